-- Missed calls: which calls were missed, and who is told.
--
-- The functions that take calls are parts of push.follow_up (follow_ups.sql).

-- Who answers in the last moment has not missed the call: for two seconds, the backend may still say so.
create or replace function push.miss(p_max int default 1000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
begin
  return push.change_rows('update push.outbox o set state = ''missed'' where o.ctid = any ($1)', array(
    select x.ctid from push.outbox x where x.state = 'ringing' and x.deadline_at <= statement_timestamp() - interval '2 s'
    order by x.deadline_at limit p_max for no key update skip locked));
end
$$;
comment on function push.miss is
  'marks at most p_max calls as missed that still ring two seconds after their deadline. What follows is done by push.follow_up. Returns how many';

-- A call is announced once: a call that has a missed call gets no other one.
--
-- Each user who has not declined gets one missed call, or by push.apps.missed_calls one for each phone, or none. So does one whose app could
-- not reach the call (connection_failed), and one who was busy and whose entry wants it, unless somebody answered it. It goes over APNs
-- alert, else FCM, Expo or web push, never to a VoIP token, and lives for four hours from the end of the call, or from its deadline if
-- that is earlier. It is paired with the cancels of push.cancel_rings, which runs before.
create or replace function push.tell_missed(p_calls bigint[]) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  with call as materialized (
    select o.*, a.providers, coalesce(a.missed_calls = 'all', false) as is_all, push.voip_tokens(o.recipients) as voip
    from unnest(p_calls) c(id)
    cross join lateral (select * from push.outbox o where o.id = c.id offset 0) o
    left join push.apps a on a.app = o.app
    where not o.voided and (o.state = 'missed' or o.state = 'ended' and o.end_reason <> 'notification'
        and (o.end_reason not in ('declined', 'busy') or o.declined @? '$.*.reason ? (@ == "connection_failed" || @ == "busy")'))
      and a.missed_calls is distinct from 'off'
  ), pushed as materialized (
    select p.id, max(p.last_n) as last_n, bool_or(p.kind = 2) as is_told from push.pushes_of(array(select c.id from call c)) p group by p.id
  ), due as materialized (
    -- A token that several entries name is one phone.
    select distinct on (p.id, p.lane, p.key) p.*
    from (
      -- One phone of a user, or every phone.
      select distinct on (c.id, e.user_id, k.phone) c.id, e.user_id, v.lane, v.key, v.fault, v.token, v.environment, v.locale,
        -- A device of fcm that names no platform may be an iPhone, which does not show a data message alone.
        case when v.rank = 2 and v.is_guess then 0 else v.platform end as platform,
        case when e.entry ? 'data' then push.recipient_data(e.entry) end as data,
        -- Not from the time of this statement: after an outage, calls of last week are not announced. Their missed calls expire
        -- (push.expire), and only history shows them.
        least(c.ended_at, c.deadline_at) + interval '4 hours' as until
      from call c cross join lateral (
        -- A user who is named several times is looked up once.
        select distinct on (r.user_id, r.device) r.* from (
          select r.entry, r.i, push.entry_user(r.entry) as user_id,
            case when jsonb_typeof(r.entry) = 'object' and push.has_token_member(r.entry) then r.i end as device
          from jsonb_array_elements(c.recipients) with ordinality r(entry, i)
          where push.is_recipient(r.entry) and r.entry -> 'notificationEnabled' is distinct from 'false'
            and r.entry -> 'missedCall' is distinct from 'false' offset 0
        ) r order by r.user_id, r.device, r.i
      ) e cross join lateral push.routes_of(c.app, false, c.providers, c.voip, null, e.entry) v
      cross join lateral (select case when c.is_all then coalesce(e.device::text, v.key) end) k(phone)
      -- A user who declined has not missed the call.
      where case c.declined -> e.user_id ->> 'reason' when 'connection_failed' then true
          when 'busy' then e.entry -> 'missedCall' is not distinct from 'true'
          else c.declined -> e.user_id is null and c.end_reason not in ('declined', 'busy') end
        and c.id not in (select x.id from pushed x where x.is_told)
      order by c.id, e.user_id, k.phone, v.rank, e.i, v.registered_at desc, v.token
    ) p
    where p.fault is null
    order by p.id, p.lane, p.key, p.user_id
  ), told as (
    -- These cancels may arrive after the missed call and must then show the same. One that has left shows only that the call has ended.
    update push.delivery x set paired = true
    where x.state = 0 and x.ctid = any (array(
      select s.tid from call c
      cross join lateral (
        select s.ctid as tid, s.outbox_id, s.lane, s.token from push.delivery s where s.outbox_id = c.id and s.kind = 1 and s.state = 0
        for update skip locked
      ) s
      where coalesce((s.outbox_id, s.lane, s.token) in (select d.id, d.lane, d.token from due d), false)))
    returning x.outbox_id, x.lane, x.token
  ), made as (
    insert into push.delivery (outbox_id, n, kind, paired, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
    select d.id, coalesce((select x.last_n from pushed x where x.id = d.id), -1)
        + row_number() over (partition by d.id order by d.user_id, d.lane, d.token), 2,
      (d.id, d.lane, d.token) in (select t.outbox_id, t.lane, t.token from told t),
      d.until, d.lane, d.lane, d.environment, d.platform, d.user_id, d.token, d.locale, d.data
    from due d
    returning outbox_id, deadline_at
  )
  insert into push.tally (what, app, reason, count)
  select 'missed', c.app, case c.state when 'missed' then 'deadline' else 'ended' end, count(*)
  from made m join call c on c.id = m.outbox_id where m.deadline_at > clock_timestamp() group by 2, 3;
end
$$;
comment on function push.tell_missed is 'makes missed calls of calls that nobody answered, declined or voided';

-- A missed call that is still owed no longer counts as shown by the cancel, and one that was void because of it (SaidByCancel) is made
-- again. A cancel that is dead and may have arrived has shown it.
create or replace function push.tell_untold(p_calls bigint[]) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  with phone as (
    select p.*, bool_or(p.kind = 1 and (p.outcome = 3 or p.outcome = 4 and not p.may_ring)) over (partition by p.id, p.lane, p.token) as is_untold,
      max(p.n) filter (where p.kind = 2) over (partition by p.id, p.lane, p.token) as newest
    from push.pushes_of(p_calls) p where p.token is not null
  ), untold as materialized (
    select p.* from phone p
    where p.is_untold and p.kind = 2 and p.n = p.newest and p.deadline_at > clock_timestamp()
      and (p.outcome is null or p.reason = 'SaidByCancel')
  ), unpaired as (
    update push.delivery d set paired = false
    where d.state <> 1 and d.ctid = any (array(
      select x.tid from untold u
      cross join lateral (select x.ctid as tid from push.delivery x where x.outbox_id = u.id and x.n = u.n for update skip locked) x))
  )
  insert into push.delivery (outbox_id, n, kind, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
  select u.id, u.last_n + row_number() over (partition by u.id order by u.n), 2, u.deadline_at, u.lane, u.lane, coalesce(u.environment, 0),
    coalesce(u.platform, 0), u.user_id, u.token, u.locale, u.data
  from untold u where u.reason = 'SaidByCancel';
end
$$;
comment on function push.tell_untold is 'makes missed calls again if the cancel that would have shown them was not sent';
