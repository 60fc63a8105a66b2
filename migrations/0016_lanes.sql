-- Enqueueing makes no lanes: functions/lanes.sql drops the function that did.

-- Of what enqueueing would have made: lanes of apps whose calls are taken already, so that they are taken as before.
insert into push.lane (app, provider)
  select k.app, p.name
  from (select g.app from push.app_grant g union select l.app from push.lane l union select a.app from push.apps a) k
    left join push.apps a on a.app = k.app
    cross join lateral unnest(coalesce(a.providers, '{apns,fcm,expo}')) p(name)
  where not exists (select from push.lane l where l.app = k.app and l.provider = p.name)
  order by k.app, p.name
  on conflict (app, provider) do nothing;

comment on table push.ends_unchecked is
  'one call that is to be looked at once more, by push.check_ends: a transaction ended, or deleted it, which saw the database as it had '
  'been before (REPEATABLE READ, SERIALIZABLE), or had locked it for so long that an invite was made ready without it';
comment on column push.ends_unchecked.ended_at is 'when it was ended, deleted or found locked';
