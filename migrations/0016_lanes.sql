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
