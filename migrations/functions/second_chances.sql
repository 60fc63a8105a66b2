-- Second chances: the next channel when one fails, when no phone of a user has reported that it rings, and when a lane sends nothing.

-- A call's next channel -----------------------------------------------------------------------------------------------

-- For the same phone, fcm or expo replaces apns, and expo replaces fcm. A browser is a device beside the phones: it never stands in for
-- one, and none stands in for it.

-- By p_why: failed: the invite has failed for good, but not with three gateways (push.free_rows); unheard: no phone of the user has
-- reported that it rings; stuck: it waits on a lane that sends nothing (push.bypass). Not for a user who has declined. is_last: no
-- other invite of the user over this channel and platform is owed or was delivered. last_n: the highest n of the call.
create or replace function push.invites_of(p_calls bigint[], p_why text) returns table (
  id bigint, n int, lane smallint, rank int, user_id text, token text, platform smallint, data jsonb, outcome smallint, last_n int,
  has_failed boolean, is_last boolean
)
language plpgsql stable set search_path = push, pg_temp as $$
#variable_conflict use_column
begin
  return query
    with pushed as materialized (
      -- Of what a gateway of release 0.1.0 has settled, the platform is unknown.
      select p.*, coalesce(p.platform, push.platform_code(null, p.provider)) as os from push.pushes_of(p_calls) p
      where p.kind = 0
    ), decliner as materialized (
      select o.id, jsonb_object_keys(o.declined) as user_id from push.outbox o where o.id = any (p_calls)
    )
    select p.id, p.n, p.lane, array_position(push.channels(), p.provider), p.user_id, p.token, p.os, p.data, p.outcome, p.last_n,
      p.provider in ('apns', 'fcm') and (p.id, p.user_id) not in (select d.id, d.user_id from decliner d)
        and case p_why when 'failed' then p.outcome in (3, 4) and p.reason is distinct from 'GatewayCrashed'
          -- Of who has joined since, a later note is taken.
          when 'unheard' then coalesce(p.outcome, 0) <= 1
            and (p.fallback_of is not null or p.created_at <= greatest(o.created_at, clock_timestamp() - o.patience))
          else p.outcome is null and p.bypassed end
        and (p_why = 'failed' or (select true from push.ring_reports r where r.outbox_id = p.id and r.user_id = p.user_id) is null)
        and (p.id, p.n) not in (select f.id, f.fallback_of from pushed f where f.fallback_of is not null),
      p_why <> 'failed' or (p.id, p.user_id, p.lane, p.os) not in (
        select x.id, x.user_id, x.lane, x.os from pushed x where coalesce(x.outcome, 0) <= 1)
    from pushed p
    cross join lateral (
      select o.created_at, (select make_interval(secs => a.escalate_after_seconds) from push.apps a where a.app = o.app) as patience
      from push.outbox o where o.id = p.id and o.ended_at is null and o.deadline_at > clock_timestamp() offset 0
    ) o;
end
$$;
comment on function push.invites_of is 'the invites of those of these calls that ring; has_failed: the next channel is to be tried, once';

-- A part of push.follow_up (follow_ups.sql). A batch is joined with itself by hash joins, because nested loops cost the square of its size.
--
-- No APNs token gets such an invite, no token gets two invites of a call, and a user who has declined gets none.
create or replace function push.next_channels(p_calls bigint[], p_why text) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  with invite as materialized (
    select i.* from push.invites_of(p_calls, p_why) i
  ), failed as materialized (
    select i.* from invite i where i.has_failed
  ), call as materialized (
    select o.id, o.app, o.recipients, o.deadline_at, (select a.providers from push.apps a where a.app = o.app) as providers,
      case when octet_length(o.payload::text) > 880 then push.size_faults(o.payload) end as size_faults
    from push.outbox o where o.id = any (array(select f.id from failed f))
  ), entry as materialized (
    select c.id, e.i, e.entry ->> 'userId' as user_id, t.rank, t.token, push.entry_platform(t.provider, e.entry) as platform,
      push.recipient_locale(e.entry) as locale, push.recipient_data(e.entry) as data
    from call c cross join lateral jsonb_array_elements(c.recipients) with ordinality e(entry, i)
    cross join lateral push.entry_tokens(e.entry, true) t
    where push.is_recipient(e.entry) and e.entry -> 'notificationEnabled' is distinct from 'false'
  ), inline as materialized (
    select f.id, f.n, f.rank, f.user_id, s.i from failed f join entry s on s.id = f.id and s.user_id = f.user_id
      and push.token_key((push.channels())[s.rank], s.token) = push.token_key((push.channels())[s.rank], f.token)
  ), next as (
    -- The token came from an entry: the next token of the same entry.
    select i.id, i.n, i.user_id, t.rank as preference, t.rank, t.token, t.platform, t.locale, t.data
    from inline i join entry t on t.id = i.id and t.i = i.i where t.rank > i.rank and t.rank <= 3
    union all
    -- A registered user: the ten newest devices of the next channel on the same platform, once the last token of this one has failed.
    select f.id, f.n, f.user_id, d.rank + case when d.platform = 0 then 10 else 0 end, d.rank, d.token,
      -- A device of unknown platform counts as being on the platform of the phone that failed.
      case d.platform when 0 then f.platform else d.platform end, d.locale, f.data
    from failed f join call c on c.id = f.id
    cross join lateral (
      select x.* from (
        select array_position(push.channels(), d.provider) as rank, d.token, d.locale, d.registered_at,
          push.platform_code(d.platform, d.provider) as platform
        from push.devices d
        where d.user_id = f.user_id and d.app = c.app and d.enabled and d.invalidated_at is null and d.provider in ('fcm', 'expo') offset 0
      ) x where x.rank > f.rank and x.platform in (0, f.platform) order by x.registered_at desc limit 10
    ) d
    where f.is_last and (f.id, f.n) not in (select i.id, i.n from inline i)
  ), used as materialized (
    select i.id, i.lane, i.token, bool_and(coalesce(i.outcome in (3, 4), false)) as has_failed from invite i group by i.id, i.lane, i.token
  ), best as (
    -- A channel that has been tried, and has not failed, is the next one: an invite that failed earlier goes no further.
    select x.*, l.id as lane, c.deadline_at, u.id is not null as is_used, min(x.preference) over (partition by x.id, x.n) as preferred
    from next x join call c on c.id = x.id
    join push.lane l on l.app = c.app and l.provider = (push.channels())[x.rank] and push.serves(c.providers, l.provider)
      and l.service = push.push_service(l.provider, x.token)
    left join used u on u.id = x.id and u.lane = l.id and u.token = x.token
    where c.size_faults[x.rank] is null and u.has_failed is not true
      and (select true from push.token_invalidations t where t.token = x.token and t.app = c.app and t.provider = l.provider) is null
  ), made as (
    insert into push.delivery (outbox_id, n, deadline_at, lane, ready_lane, platform, user_id, token, locale, data, fallback_of)
    select b.id, f.last_n + row_number() over (partition by b.id order by b.lane, b.token), b.deadline_at, b.lane, b.lane, b.platform,
      b.user_id, b.token, b.locale, b.data, b.n
    from (
      -- Several tokens of one channel that failed together lead to one invite for each token of the next channel.
      select distinct on (b.id, b.lane, b.token) b.* from best b where b.preference = b.preferred and not b.is_used
      order by b.id, b.lane, b.token, b.n desc
    ) b join failed f on f.id = b.id and f.n = b.n
    returning outbox_id, n, user_id
  )
  insert into push.escalations (outbox_id, n, user_id) select m.outbox_id, m.n, m.user_id from made m where p_why = 'unheard';
end
$$;
comment on function push.next_channels is 'makes an invite over the next channel for each of push.invites_of that has failed';

-- A phone whose token died while it was called ---------------------------------------------------------------------------

create table if not exists push.unreached (
  app       text not null,
  user_id   text not null,
  outbox_id bigint not null,
  primary key (app, user_id, outbox_id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index if not exists unreached_call on push.unreached (outbox_id);
comment on table push.unreached is
  'users whom a call that rings had not reached: each of their invites had failed. If one of them registers a device, the call is looked at '
  'again, and rings it if no other device is rung since';

-- A part of push.follow. Who registers a device (push.note_devices) has the call looked at again. A registration that is not committed yet
-- finds no such user, and is not found here. So the call of a new such user is looked at once more.
create or replace function push.ring_unreached(p_calls bigint[]) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_left record;
begin
  for v_left in
    select o.call, u.users
    from (
      select p.id, array_agg(p.user_id) as users
      from (
        select p.id, p.user_id from push.pushes_of(p_calls) p where p.kind = 0
        group by p.id, p.user_id having bool_and(coalesce(p.outcome in (3, 4), false))
      ) p
      group by p.id
    ) u
    cross join lateral (
      select o as call from push.outbox o where o.id = u.id and o.ended_at is null and o.deadline_at > clock_timestamp() offset 0
    ) o
  loop
    insert into push.unreached (app, user_id, outbox_id)
      select (v_left.call).app, u.user_id, (v_left.call).id from unnest(v_left.users) u(user_id)
      where not coalesce((v_left.call).declined ? u.user_id, false)
      on conflict do nothing;
    insert into push.follow_ups (outbox_id, why, is_urgent, due_at)
      select (v_left.call).id, 'failed', true, clock_timestamp() + interval '1 s' where found;
    perform push.ring_newcomers(v_left.call, (
      select coalesce(jsonb_agg(e.entry), '[]') from jsonb_array_elements((v_left.call).recipients) e(entry)
      where push.entry_user(e.entry) = any (v_left.users)
        and not (jsonb_typeof(e.entry) = 'object' and push.has_token_member(e.entry))), null);
  end loop;
end
$$;
comment on function push.ring_unreached is
  'rings the devices that users have registered whom these calls have not reached, and notes such users. p_calls: calls that are locked';

-- The phone says that it rings ----------------------------------------------------------------------------------------

create or replace function push.report_ringing(call_id text, user_id text, app text default null) returns boolean
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_id bigint := push.find_call(call_id, app, coalesce(user_id, ''));
begin
  with made as (
    insert into push.ring_reports as r (outbox_id, user_id) values (v_id, report_ringing.user_id)
      on conflict on constraint ring_reports_pkey do nothing
      returning r.rang_at
  )
  -- How long it took.
  insert into push.tally (what, app, seconds)
  select 'rang', o.app, greatest(0, extract(epoch from m.rang_at - o.created_at)) from made m join push.outbox o on o.id = v_id;
  return found;
end
$$;
comment on function push.report_ringing is
  'a phone of this user reports that the call rings. call_id: payload.callId; user_id: as in the call''s recipients; app: '
  'needed only if several apps have a call with this id. Returns false if a phone of this user had reported it before';

-- A channel that sends nothing ------------------------------------------------------------------------------------------

-- A lane is stuck if no living gateway sends over it now, because it has no connection, an open circuit, or a pause of more than 2 s that
-- the provider asked for. Those of channels that none can replace, and those that operators have paused, are left out.
--
-- Usually no lane is stuck and no invite waits for another attempt, which is quickly checked. Each invite is checked once
-- and marked, whatever the result: otherwise invites of users without another channel would come before all others every
-- time. On a stuck lane the latest deadlines are checked first, and lanes take turns.
--
-- It looks at invites that are at least 2 s old and on a stuck lane, or that failed and wait for their next attempt. Each gets one
-- invite over the user's next channel beside it, and goes on waiting.
create or replace function push.bypass(p_max int default 500, out invites bigint)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  c_scanned constant int := 5000;
  v_lanes   smallint[] := array(
    select s.lane from push.lane_status s join push.gateways g on g.id = s.gateway and g.alive
    where s.lane in (select l.id from push.lane l where l.provider in ('apns', 'fcm') and not l.paused)
    group by s.lane
    having bool_and(s.circuit <> 'closed' or s.capacity = 0 or coalesce(s.throttled_until > clock_timestamp() + interval '2 s', false)));
  v_soon    timestamptz := clock_timestamp() + interval '1 s';
  -- Ten minutes is the longest ring window. A variable, so that only a part of the index is read.
  v_due     timestamptz := clock_timestamp() + interval '10 minutes';
begin
  invites := push.change_rows(
    'with looked as (
      update push.delivery d set bypassed_at = clock_timestamp() where d.ctid = any ($1) returning d.outbox_id
    ), noted as (
      insert into push.follow_ups (outbox_id, why, is_urgent) select distinct l.outbox_id, ''stuck'', true from looked l
    )
    select from looked', array(
    with seen as materialized (
      -- Deliveries of other kinds do not count towards the limit: there may be thousands of them.
      select y.* from unnest(v_lanes) s(lane) cross join lateral (
        select d.ctid as tid, d.lane, d.created_at, d.deadline_at, d.state, d.bypassed_at from push.delivery d
        where d.ready_lane = s.lane and d.deadline_at > v_soon and d.deadline_at <= v_due and d.kind = 0
        order by d.deadline_at desc limit c_scanned
      ) y
      union all
      select w.* from (
        -- Invites that failed before, or that are on a stuck lane.
        select d.ctid, d.lane, d.created_at, d.deadline_at, d.state, d.bypassed_at from push.delivery d
        where d.ready_lane is null and d.kind = 0 and d.due_at <= v_due and d.state = 2
          and (d.last_reason is not null or d.lane = any (v_lanes))
        order by d.due_at limit c_scanned
      ) w
    )
    select x.ctid from push.delivery x where x.ctid = any (array(
      select n.tid from (
        select s.tid, row_number() over (partition by s.lane order by s.deadline_at desc) as place from seen s
        where s.bypassed_at is null and s.state in (0, 2) and s.created_at <= clock_timestamp() - interval '2 s' and s.deadline_at > v_soon
      ) n
      order by n.place limit p_max))
    for no key update skip locked));
end
$$;
comment on function push.bypass is 'notes the calls of at most p_max invites that wait, for push.next_channels; returns how many invites';
