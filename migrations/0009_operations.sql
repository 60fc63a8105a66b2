-- Operations: plans that hold for a session's whole life, escalation, and what ops read and do.
--
-- A function's plan is made once a session, maybe while the tables are empty. A join with push.delivery may then be
-- planned to walk the table and to look into the caller's batch for each row; once the table has filled, the session
-- stays ten to a thousand times slower than the next. So nothing below joins a table that grows: a row is looked up
-- "cross join lateral (… offset 0)", which can only run once for each row of the batch, and is changed by its ctid,
-- which no plan can find otherwise. The fence is a condition of the change itself: it is asked of the row's newest
-- version.

-- Hot functions -------------------------------------------------------------------------------------------------------

-- As in 0005; besides, the plan is the only one there is.
create or replace function push.claim(
  p_gateway int, p_lanes smallint[], p_max int[], p_floor timestamptz[], p_slack interval default '300 ms'
) returns table (
  lane smallint, outbox_id bigint, n int, lease int, attempt int, kind smallint, environment smallint,
  platform smallint, user_id text, token text, locale text, app_call_kind text, call_id text, payload jsonb,
  created_at timestamptz, deadline_at timestamptz, remaining_us bigint, end_reason text
)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- An index condition, not a filter: under a transaction that holds back vacuum the index is full of dead entries with
  -- past deadlines, and starting behind them keeps the claim fast. clock_timestamp() here would make it a filter.
  v_floor timestamptz;
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive) then
    return;
  end if;
  for i in 1 .. coalesce(array_length(p_lanes, 1), 0) loop
    continue when p_max[i] <= 0;
    v_floor := greatest(p_floor[i], statement_timestamp() + p_slack);
    return query
      with pick as materialized (
        select d.ctid as tid
        from push.delivery d
        where d.state = 0 and d.lane = p_lanes[i] and d.deadline_at > v_floor
          and (select not l.paused from push.lane l where l.id = p_lanes[i])
        order by d.deadline_at
        limit p_max[i]
        for no key update skip locked
      ), taken as (
        update push.delivery d
        set state = 1, owner = p_gateway, lease = d.lease + 1, attempt = d.attempt + 1
        where d.ctid = any (array(select pick.tid from pick))
        returning d.lane, d.outbox_id, d.n, d.lease, d.attempt, d.kind, d.environment, d.platform, d.user_id, d.token,
          d.locale, d.created_at, d.deadline_at
      )
      select t.lane, t.outbox_id, t.n, t.lease, t.attempt::int, t.kind, t.environment, t.platform, t.user_id, t.token,
        t.locale, o.kind, o.call_id, o.payload, t.created_at, t.deadline_at,
        (extract(epoch from t.deadline_at - clock_timestamp()) * 1000000)::bigint, o.end_reason
      from taken t cross join lateral (
        select o.kind, o.call_id, o.payload, o.end_reason from push.outbox o where o.id = t.outbox_id offset 0
      ) o;
  end loop;
end
$$;

-- As in 0007.
create or replace function push.park(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_delay_ms int[], p_reason text[],
  p_failures text[] default null
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_parked bigint;
begin
  with mine as materialized (
    select d.tid, r.*
    from unnest(p_outbox_id, p_n, p_lease, p_attempts, p_delay_ms, p_reason, p_failures)
      r(outbox_id, n, lease, attempts, delay_ms, reason, failures)
    cross join lateral (
      select d.ctid as tid from push.delivery d where d.outbox_id = r.outbox_id and d.n = r.n offset 0
    ) d
  )
  -- Due at the deadline at the latest: so the index on due_at finds waiting deliveries that have expired, too.
  update push.delivery d
  set state = 2, owner = null, attempt = m.attempts, last_reason = coalesce(m.reason, d.last_reason),
    due_at = least(clock_timestamp() + m.delay_ms * interval '1 ms', d.deadline_at),
    failures = case when m.failures is null then d.failures
      else push.last_failures(coalesce(d.failures, '[]') || m.failures::jsonb) end
  from mine m
  where d.ctid = m.tid and d.state = 1 and d.owner = p_gateway and d.lease = m.lease;
  get diagnostics v_parked = row_count;
  perform push.void_unsent(p_outbox_id);
  return v_parked;
end
$$;

-- As in 0005.
create or replace function push.release(p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_released bigint;
begin
  with mine as materialized (
    select d.tid, r.lease, coalesce((
      select true from push.outbox o where o.id = r.outbox_id and o.ended_at is null for share skip locked
    ), false) as rings
    from unnest(p_outbox_id, p_n, p_lease) r(outbox_id, n, lease)
    cross join lateral (
      select d.ctid as tid from push.delivery d where d.outbox_id = r.outbox_id and d.n = r.n offset 0
    ) d
  )
  update push.delivery d
  set state = case when d.kind <> 0 or m.rings then 0 else 2 end, owner = null,
    attempt = greatest(d.attempt - 1, 0), due_at = clock_timestamp()
  from mine m
  where d.ctid = m.tid and d.state = 1 and d.owner = p_gateway and d.lease = m.lease;
  get diagnostics v_released = row_count;
  perform push.void_unsent(p_outbox_id);
  if v_released > 0 then
    perform push.ring_doorbell();
  end if;
  return v_released;
end
$$;

-- As in 0007.
create or replace function push.void_unsent(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_ended  bigint[] := array(
    select distinct o.id from push.outbox o where o.id = any (p_outbox_id) and o.state <> 'ringing' order by o.id);
  v_voided bigint;
begin
  if v_ended = '{}' then
    return 0;
  end if;
  with unsent as materialized (
    select d.tid, o.call_id, o.call_state
    from unnest(v_ended) c(id)
    cross join lateral (
      select o.call_id, o.state as call_state from push.outbox o where o.id = c.id offset 0
    ) o
    cross join lateral (
      select d.ctid as tid from push.delivery d where d.outbox_id = c.id and d.kind = 0 offset 0
    ) d
  ), gone as (
    delete from push.delivery d
    using unsent u
    where d.ctid = u.tid and d.kind = 0 and d.state in (0, 2)
    -- A missed call's invites ended as push.expire would have ended them, whichever of the two comes first.
    returning d.*, u.call_id, u.call_state, u.call_state = 'missed' and d.deadline_at <= clock_timestamp() as is_late
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind,
    case when g.is_late then 3 else 2 end, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    case when g.is_late then coalesce(g.last_reason, 'DeadlinePassed') else 'Call' || initcap(g.call_state) end,
    g.failures, g.fallback_of
  from gone g;
  get diagnostics v_voided = row_count;
  return v_voided;
end
$$;

-- As in 0007, with a lower bound.
drop function push.expire(int, interval);
create function push.expire(
  p_max int default 5000, p_slack interval default '0', p_since timestamptz default '-infinity'
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_before timestamptz := statement_timestamp() + p_slack;
  v_expired bigint;
begin
  with ready as materialized (
    select late.tid
    from push.lane l cross join lateral (
      select d.ctid as tid
      from push.delivery d
      where d.state = 0 and d.lane = l.id and d.deadline_at > p_since and d.deadline_at <= v_before
      order by d.deadline_at
      limit p_max
      for no key update skip locked
    ) late
  ), waiting as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 2 and d.due_at > p_since and d.due_at <= v_before and d.deadline_at <= v_before
    order by d.due_at
    limit p_max
    for no key update skip locked
  ), gone as (
    delete from push.delivery d
    where d.ctid = any (array(select tid from ready union all select tid from waiting limit p_max))
    returning d.*
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind, 3, g.user_id,
    (select o.call_id from push.outbox o where o.id = g.outbox_id),
    left(g.token, 4) || '…' || right(g.token, 4), coalesce(g.last_reason, 'DeadlinePassed'), g.failures, g.fallback_of
  from gone g;
  get diagnostics v_expired = row_count;
  return v_expired;
end
$$;
comment on function push.expire is
  'ends up to p_max ready and waiting deliveries whose deadline is past, or less than p_slack away, as expired; '
  'returns how many. A claimed one belongs to its gateway. p_since: leaves alone what was due before it, so that a '
  'transaction that holds back vacuum does not make each call walk the dead entries of all earlier ones; call it '
  'without from time to time';

-- A call's next channel: as in 0007, but a batch is joined with itself by hashes, for nested loops cost its square (it
-- ran under push.settle's settings, which forbid hashes); and it may be asked for invites that were delivered, but of
-- which no phone was heard, with their tokens masked.
drop function push.fall_back(push.delivery[]);
create function push.fall_back(p_failed push.delivery[], p_unheard boolean default false)
returns table (outbox_id bigint, user_id text, n int)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off
set enable_hashjoin = on set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  v_calls bigint[] := array(select distinct f.outbox_id from unnest(p_failed) f);
  -- Variables, so that only the partitions between are looked at. The margin is for what is settled meanwhile.
  v_since timestamptz;
  v_until timestamptz := clock_timestamp() + interval '1 minute';
begin
  -- Spread over all keys, so that no other use of advisory locks by a number is hit.
  perform pg_advisory_xact_lock(k.key)
    from (select hashint8extended(c.id, 7782) as key from unnest(v_calls) c(id) order by 1 offset 0) k;
  v_since := (select min(o.created_at) from push.outbox o where o.id = any (v_calls));
  return query
  with call as materialized (
    select o.*,
      coalesce((select true from push.outbox x where x.id = o.id and x.ended_at is null for share skip locked), false)
        as rings
    from unnest(v_calls) c(id) cross join lateral (
      select o.id, o.app, o.recipients, o.deadline_at,
        case when octet_length(o.payload::text) > 880 then push.size_faults(o.payload) end as size_faults
      from push.outbox o
      where o.id = c.id and o.ended_at is null and o.deadline_at > clock_timestamp()
      offset 0
    ) o
  ), failed as materialized (
    select f.outbox_id, f.n, f.lane, f.platform, f.user_id, f.token, c.app,
      case l.provider when 'apns' then 1 when 'fcm' then 2 else 3 end as rank
    from unnest(p_failed) f
    join call c on c.id = f.outbox_id
    join push.lane l on l.id = f.lane
    where l.provider <> 'expo'
  ), owed as materialized (
    select d.* from call c cross join lateral (
      select d.outbox_id, d.n, d.lane, d.platform, d.user_id, d.token from push.delivery d
      where d.outbox_id = c.id and d.n < 10000
      offset 0
    ) d
  ), past as materialized (
    select h.* from call c cross join lateral (
      select h.outbox_id, h.n, h.lane, h.user_id, h.device, h.outcome from push.history h
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and h.n < 10000
      offset 0
    ) h
  ), used as materialized (
    select u.outbox_id, max(u.n) as n
    from (select o.outbox_id, o.n from owed o union all select h.outbox_id, h.n from past h) u
    group by u.outbox_id
  ), entry as materialized (
    select c.id, e ->> 'userId' as user_id, nullif(e ->> 'voipPushToken', '') as voip_token,
      nullif(e ->> 'fcmToken', '') as fcm_token, nullif(e ->> 'pushToken', '') as expo_token,
      case e ->> 'platform' when 'ios' then 1 when 'android' then 2 else 0 end::smallint as platform,
      e ->> 'locale' as locale
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    where jsonb_typeof(e) = 'object' and e ?| '{voipPushToken,fcmToken}'
      and e -> 'notificationEnabled' is distinct from 'false'
  ), inline as materialized (
    -- Those that an entry of recipients brought.
    select f.outbox_id, f.n, f.user_id, f.app, f.rank, e.fcm_token, e.expo_token, e.platform, e.locale
    from failed f
    join entry e on e.id = f.outbox_id and e.user_id = f.user_id
    cross join lateral (select case f.rank when 1 then e.voip_token else e.fcm_token end as token) t
    where f.token = t.token or p_unheard and f.token = left(t.token, 4) || '…' || right(t.token, 4)
  ), next as (
    -- An entry that brought the token: the next token of the same entry.
    select i.outbox_id, i.n, i.user_id, t.rank as preference, t.rank, t.token, i.platform, i.locale
    from inline i cross join lateral (values (2, i.fcm_token), (3, i.expo_token)) t(rank, token)
    where t.rank > i.rank and t.token is not null
      -- "not exists" may become a hash of all dead tokens.
      and (select true from push.token_invalidations x where x.token = t.token and x.app = i.app
        and x.provider = case t.rank when 2 then 'fcm' else 'expo' end) is null
    union all
    -- A registered user: the devices of the next channel of the same platform, once the last token of this one failed.
    select f.outbox_id, f.n, f.user_id, d.rank + case when d.platform = 0 then 10 else 0 end, d.rank, d.token,
      d.platform, d.locale
    from failed f cross join lateral (
      select d.* from (
        select case d.provider when 'fcm' then 2 else 3 end as rank, d.token, d.locale, d.registered_at,
          case coalesce(d.platform, case d.provider when 'fcm' then 'android' end)
            when 'ios' then 1 when 'android' then 2 else 0 end::smallint as platform
        from push.devices d
        where d.user_id = f.user_id and d.app = f.app and d.enabled and d.invalidated_at is null
          and d.provider <> 'apns'
        offset 0
      ) d
      where d.rank > f.rank and d.platform in (0, f.platform)
      order by d.registered_at desc
      limit 10
    ) d
    where not exists (select from inline i where i.outbox_id = f.outbox_id and i.n = f.n)
      and not exists (select from owed o
        where not p_unheard
          and o.outbox_id = f.outbox_id and o.user_id = f.user_id and o.lane = f.lane and o.platform = f.platform)
      and not exists (select from past h
        where not p_unheard
          and h.outbox_id = f.outbox_id and h.user_id = f.user_id and h.lane = f.lane and h.outcome <= 1
          -- History does not know the platform. Only FCM serves two.
          and (f.rank = 1 or (select true from push.devices x
            where x.user_id = f.user_id and x.app = f.app and x.enabled and x.invalidated_at is null
              and x.provider = 'fcm' and case coalesce(x.platform, 'android') when 'ios' then 1 else 2 end = f.platform
              and left(x.token, 4) || '…' || right(x.token, 4) = h.device
            limit 1) is not null))
  ), best as (
    select v.*, l.id as lane, min(v.preference) over (partition by v.outbox_id, v.n) as preferred
    from next v
    join call c on c.id = v.outbox_id
    -- Without a lane no gateway serves the channel.
    join push.lane l on l.app = c.app and l.provider = case v.rank when 2 then 'fcm' else 'expo' end
    where c.size_faults[v.rank] is null
      and not exists (select from owed o where o.outbox_id = v.outbox_id and o.lane = l.id and o.token = v.token)
      and not exists (select from past h where h.outbox_id = v.outbox_id and h.lane = l.id
        and h.device = left(v.token, 4) || '…' || right(v.token, 4))
  ), chosen as (
    select b.*, c.deadline_at, c.rings,
      u.n + row_number() over (partition by b.outbox_id order by b.lane, b.token) as next_n
    from (
      -- Several tokens of one channel that failed together have one next channel.
      select distinct on (b.outbox_id, b.lane, b.token) b.* from best b where b.preference = b.preferred
      order by b.outbox_id, b.lane, b.token, b.n desc
    ) b
    join call c on c.id = b.outbox_id
    join used u on u.outbox_id = b.outbox_id
  )
  insert into push.delivery as made (outbox_id, n, created_at, due_at, deadline_at, lane, state, platform, user_id,
    token, locale, fallback_of)
  select x.outbox_id, x.next_n, clock_timestamp(), clock_timestamp(), x.deadline_at, x.lane,
    case when x.rings then 0 else 2 end, x.platform, x.user_id, x.token, x.locale, x.n
  from chosen x
  where x.next_n < 10000
  returning made.outbox_id, made.user_id, made.n;
  if found then
    perform push.ring_doorbell();
  end if;
end
$$;
comment on function push.fall_back is
  'for invites that failed for good: an invite over the user''s next channel while the call still rings, never to an '
  'APNs token, to no token twice in a call; returns what it made. For push.settle. p_unheard: they did not fail, no '
  'phone said that it rings (for push.escalate); their tokens may be masked';

-- As in 0007.
create or replace function push.settle(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_outcome smallint[],
  p_status smallint[], p_reason text[], p_message_id text[], p_call_id text[],
  p_sent_at timestamptz[], p_answered_at timestamptz[], p_failures text[] default null,
  p_receipt_after_ms int[] default null
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_settled bigint;
  v_failed  push.delivery[];
begin
  -- Both of these lock what they found still claimed under its lease, so it is the same that is settled below.
  if cardinality(array_remove(p_receipt_after_ms, null)) > 0 then
    insert into push.expo_receipts (app, ticket, outbox_id, n, user_id, token, sent_at, due_at, give_up_at)
    select (select l.app from push.lane l where l.id = d.lane), r.message_id, d.outbox_id, d.n, d.user_id, d.token,
      r.sent_at, least(clock_timestamp() + r.after_ms * interval '1 ms', r.sent_at + interval '24 hours'),
      r.sent_at + interval '24 hours'
    from (
      -- A gateway's clock may be ahead.
      select u.*, least(coalesce(u.left_at, now()), now()) as sent_at
      from unnest(p_outbox_id, p_n, p_lease, p_outcome, p_message_id, p_sent_at, p_receipt_after_ms)
        u(outbox_id, n, lease, outcome, message_id, left_at, after_ms)
      where u.after_ms is not null and u.outcome <= 1 and u.message_id is not null
      offset 0
    ) r
    cross join lateral (
      select * from push.delivery d
      where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease
      offset 0 for no key update
    ) d
    on conflict (app, ticket) do nothing;
  end if;
  if p_outcome && '{3,4}' then
    v_failed := array(
      select d
      from unnest(p_outbox_id, p_n, p_lease, p_outcome) r(outbox_id, n, lease, outcome)
      cross join lateral (
        select * from push.delivery d
        where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease
          and d.kind = 0 and d.deadline_at > clock_timestamp() + case r.outcome when 3 then interval '2 s' else '0' end
        offset 0 for no key update
      ) d
      where r.outcome in (3, 4));
  end if;

  with mine as materialized (
    select d.tid, r.*
    from unnest(p_outbox_id, p_n, p_lease, p_attempts, p_outcome, p_status, p_reason, p_message_id, p_call_id,
      p_sent_at, p_answered_at, p_failures)
      r(outbox_id, n, lease, attempts, outcome, status, reason, message_id, call_id, sent_at, answered_at, failures)
    cross join lateral (
      select d.ctid as tid from push.delivery d where d.outbox_id = r.outbox_id and d.n = r.n offset 0
    ) d
  ), gone as (
    delete from push.delivery d
    using mine m
    where d.ctid = m.tid and d.state = 1 and d.owner = p_gateway and d.lease = m.lease
    returning d.outbox_id, d.created_at, d.deadline_at, m.sent_at, m.answered_at, d.n, m.attempts, d.lane, d.kind,
      m.outcome, m.status, d.user_id, m.call_id, d.token, m.reason, d.last_reason, m.message_id,
      case when m.failures is null then d.failures
        else push.last_failures(coalesce(d.failures, '[]') || m.failures::jsonb) end as failures, d.fallback_of
  )
  insert into push.history (outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner, lane, kind,
    outcome, status, user_id, call_id, device, reason, provider_message_id, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.sent_at, g.answered_at, g.n, g.attempts, p_gateway, g.lane, g.kind,
    g.outcome, g.status, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    case when g.outcome <= 1 then g.reason
      else coalesce(g.reason, g.last_reason,
        case g.outcome when 2 then 'CallEnded' when 3 then 'DeadlinePassed' else 'Unknown' end)
    end,
    g.message_id, g.failures, g.fallback_of
  from gone g;
  get diagnostics v_settled = row_count;

  if v_failed <> '{}' then
    perform from push.fall_back(v_failed);
  end if;
  return v_settled;
end
$$;

-- Tokens, receipts: as in 0007 and 0005 -------------------------------------------------------------------------------

create or replace function push.invalidate_tokens(
  p_lane smallint[], p_token text[], p_since timestamptz[], p_reason text[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_dead bigint;
begin
  -- A hold in progress is waited for, and counts.
  perform from push.lane l where l.id = any (p_lane) order by l.id for share;
  with said as materialized (
    -- Of several answers about a token the latest counts; one without a time counts always.
    select distinct on (l.app, l.provider, r.token) l.app, l.provider, r.token, r.since,
      coalesce(r.reason, 'Unknown') as reason, l.is_held
    from unnest(p_lane, p_token, p_since, p_reason) r(lane, token, since, reason)
    cross join lateral (
      select l.app, l.provider, l.invalidation_held_at is not null as is_held from push.lane l where l.id = r.lane
      offset 0
    ) l
    where r.token is not null
    order by l.app, l.provider, r.token, r.since desc nulls first
  ), known as materialized (
    select s.*, d.tid, d.user_id
    from said s left join lateral (
      select d.ctid as tid, d.user_id from push.devices d
      where sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider
      offset 0
    ) d on true
  ), quarantined as (
    -- Without a time of the provider's it is dead since now: a token given anew during the hold is another matter.
    insert into push.quarantined_tokens as q (app, provider, token, user_id, since, reason)
    select k.app, k.provider, k.token, k.user_id, coalesce(k.since, clock_timestamp()), k.reason
    from known k
    where k.is_held
    on conflict (sha256(token::bytea), app, provider) do update set since = excluded.since, reason = excluded.reason
      where q.since < excluded.since
  ), cleared as (
    -- Compare and clear: a token the phone gave anew after the provider saw it dead stays alive.
    update push.devices d set invalidated_at = clock_timestamp(), invalid_reason = k.reason
    from known k
    where d.ctid = k.tid and not k.is_held
      and d.invalidated_at is null and (k.since is null or k.since >= d.registered_at)
    returning d.app, d.provider, d.token, d.user_id, k.reason
  )
  insert into push.token_invalidations (app, provider, token, user_id, reason)
  select c.app, c.provider, c.token, c.user_id, c.reason from cleared c
  union all
  select k.app, k.provider, k.token, null, k.reason from known k where not k.is_held and k.tid is null
  on conflict do nothing;
  get diagnostics v_dead = row_count;
  if v_dead > 0 then
    perform pg_notify('push_token_invalidations', '');
  end if;
  return v_dead;
end
$$;

create or replace function push.revive_tokens() returns trigger
language plpgsql security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
  delete from push.token_invalidations x
  where x.ctid = any (array(
    select dead.tid
    from changed d cross join lateral (
      select x.ctid as tid from push.token_invalidations x
      where sha256(x.token::bytea) = sha256(d.token::bytea) and x.app = d.app and x.provider = d.provider
      offset 0
    ) dead
    where d.invalidated_at is null));
  return null;
end
$$;

create or replace function push.hold_invalidation(p_lane smallint, p_window interval, p_note text) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_app      text;
  v_provider text;
  v_moved    bigint;
begin
  -- Waits for invalidations in flight, which share the lane's lock: the next statement sees what they did.
  update push.lane l set invalidation_held_at = clock_timestamp(), invalidation_note = p_note
    where l.id = p_lane and l.invalidation_held_at is null
    returning l.app, l.provider into v_app, v_provider;
  if not found then
    return 0;
  end if;
  with feed as (
    delete from push.token_invalidations x
    where x.invalidated_at >= clock_timestamp() - p_window and x.app = v_app and x.provider = v_provider
    returning x.*
  ), known as materialized (
    select d.tid from feed f cross join lateral (
      select d.ctid as tid from push.devices d
      where sha256(d.token::bytea) = sha256(f.token::bytea) and d.app = v_app and d.provider = v_provider
      offset 0
    ) d
  ), alive as (
    update push.devices d set invalidated_at = null, invalid_reason = null
    where d.ctid = any (array(select k.tid from known k)) and d.invalidated_at is not null
  )
  insert into push.quarantined_tokens (app, provider, token, user_id, since, reason)
  select f.app, f.provider, f.token, f.user_id, f.invalidated_at, f.reason from feed f
  on conflict (sha256(token::bytea), app, provider) do nothing;
  get diagnostics v_moved = row_count;
  perform push.note_audit('hold_invalidation', v_app || '/' || v_provider,
    jsonb_build_object('note', p_note, 'window', p_window, 'quarantined', v_moved));
  return v_moved;
end
$$;

create or replace function push.correct_environment(p_lane smallint[], p_token text[], p_environment smallint[])
returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_corrected bigint;
begin
  with right_one as materialized (
    select d.tid, case u.environment when 1 then 'sandbox' else 'production' end as environment
    from unnest(p_lane, p_token, p_environment) u(lane, token, environment)
    cross join lateral (
      select l.app from push.lane l where l.id = u.lane and l.provider = 'apns' offset 0
    ) l
    cross join lateral (
      select d.ctid as tid from push.devices d
      where sha256(d.token::bytea) = sha256(u.token::bytea) and d.app = l.app and d.provider = 'apns'
      offset 0
    ) d
    where u.environment in (0, 1)
  )
  update push.devices d set environment = r.environment
  from right_one r
  where d.ctid = r.tid and d.environment <> r.environment;
  get diagnostics v_corrected = row_count;
  return v_corrected;
end
$$;

create or replace function push.settle_receipts(p_app text, p_ticket text[], p_reason text[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_settled bigint := 0;
  v_gone    record;
  -- A variable, so that older partitions are not looked at. The margin is for a gateway's clock.
  v_since   timestamptz;
begin
  for v_gone in
    with gone as (
      delete from push.expo_receipts r where r.app = p_app and r.ticket = any (p_ticket)
      returning r.outbox_id, r.n, r.ticket, r.sent_at
    )
    select g.*, p_reason[array_position(p_ticket, g.ticket)] as reason from gone g
  loop
    v_settled := v_settled + 1;
    continue when v_gone.reason is null;
    v_since := v_gone.sent_at - interval '1 hour';
    update push.history h set receipt_reason = v_gone.reason
      where h.outbox_id = v_gone.outbox_id and h.n = v_gone.n and h.provider_message_id = v_gone.ticket
        and h.finished_at >= v_since;
  end loop;
  return v_settled;
end
$$;

-- A call ended by ops -------------------------------------------------------------------------------------------------

alter table push.outbox add column voided boolean not null default false;
comment on column push.outbox.voided is 'ended by push.void_call: nobody is told of a missed call';

-- As in 0005, with voided.
create or replace function push.check_call() returns trigger language plpgsql set search_path = push, pg_temp as $$
declare
  v_fault text := case
    when (new.id, new.app, new.kind, new.call_id, new.ring_seconds, new.created_at, new.deadline_at)
        is distinct from (old.id, old.app, old.kind, old.call_id, old.ring_seconds, old.created_at, old.deadline_at)
        or new.payload is distinct from old.payload or new.recipients is distinct from old.recipients
      then ': only state, answered_by and end_reason can be changed; enqueue another call'
    when new.state is null or new.state not in ('ringing', 'answered', 'ended', 'missed')
      then '.state: must be answered, ended or missed'
    when old.state <> 'ringing' and new.state <> old.state
      then format('.state: is %s already and cannot become %s', old.state, new.state)
    when length(new.end_reason) not between 1 and 64 then '.end_reason: must have 1 to 64 characters'
    when length(new.answered_by) not between 1 and 256 then '.answered_by: must have 1 to 256 characters'
  end;
begin
  if v_fault is not null then
    raise exception using
      errcode = 'invalid_parameter_value', message = format('push.outbox%s (call %s)', v_fault, old.call_id),
      schema = 'push', table = 'outbox', column = coalesce(substring(v_fault from '^\.([a-z_]+)'), '');
  end if;
  if new.state = old.state then
    new.ended_at := old.ended_at;
    new.end_reason := old.end_reason;
    new.answered_by := old.answered_by;
    new.voided := old.voided;
  else
    new.ended_at := clock_timestamp();
    new.end_reason := coalesce(new.end_reason, new.state);
  end if;
  return new;
end
$$;

-- As in 0005; besides, nobody missed a voided call.
create or replace function push.announce_missed(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_announced bigint;
begin
  insert into push.delivery (outbox_id, n, kind, created_at, due_at, deadline_at, lane, environment, platform, user_id,
    token, locale)
  select m.id, 19999 + row_number() over (partition by m.id order by m.user_id), 2, clock_timestamp(),
    clock_timestamp(), clock_timestamp() + interval '4 hours', coalesce(l.id, push.register_lane(m.app, m.provider)),
    m.environment, m.platform, m.user_id, m.token, m.locale
  from (
    select distinct on (r.id, r.user_id) r.id, r.app, r.user_id, v.*
    from (
      select o.id, o.app, o.recipients, e.entry, e.ordinal,
        case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end as user_id,
        jsonb_typeof(e.entry) = 'object' and e.entry ?| '{voipPushToken,apnsToken,fcmToken,pushToken}' as inline
      from unnest(p_outbox_id) c(id) cross join lateral (
        select * from push.outbox o
        where o.id = c.id and not o.voided
          and (o.state = 'missed' or o.state = 'ended' and o.end_reason not in ('declined', 'busy'))
        offset 0
      ) o
      cross join lateral jsonb_array_elements(o.recipients) with ordinality e(entry, ordinal)
      where e.entry -> 'notificationEnabled' is distinct from 'false'
    ) r
    cross join lateral (
      select t.rank, t.provider, t.token,
        case when r.entry ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
        case when t.rank = 1 or r.entry ->> 'platform' = 'ios' then 1 when r.entry ->> 'platform' = 'android' then 2
          else 0 end::smallint as platform,
        r.entry ->> 'locale' as locale, null::timestamptz as registered_at
      from (values (1, 'apns', r.entry ->> 'apnsToken'), (2, 'fcm', r.entry ->> 'fcmToken'),
        (3, 'expo', r.entry ->> 'pushToken')) t(rank, provider, token)
      -- "not exists" may become a join, with all dead tokens or all devices.
      where r.inline and t.token <> ''
        and (select true from push.token_invalidations x
          where x.token = t.token and x.app = r.app and x.provider = t.provider) is null
        -- A VoIP token that somebody calls an alert token, too, is a VoIP token.
        and (t.rank > 1 or not r.recipients @> jsonb_build_array(jsonb_build_object('voipPushToken', t.token))
          and (select true from push.devices x where sha256(x.token::bytea) = sha256(t.token::bytea)
            and x.app = r.app and x.provider = 'apns' and x.voip) is null)
      union all
      select d.* from (
        select case d.provider when 'apns' then 1 when 'fcm' then 2 else 3 end, d.provider, d.token,
          case d.environment when 'sandbox' then 1 else 0 end::smallint,
          case coalesce(d.platform, case d.provider when 'apns' then 'ios' end)
            when 'ios' then 1 when 'android' then 2 else 0 end::smallint,
          d.locale, d.registered_at
        from push.devices d
        where not r.inline and d.user_id = r.user_id and d.app = r.app and d.enabled and d.invalidated_at is null
          and (d.provider <> 'apns' or not d.voip)
        offset 0
      ) d
    ) v
    order by r.id, r.user_id, v.rank, r.ordinal, v.registered_at desc, v.token
  ) m
  left join push.lane l on l.app = m.app and l.provider = m.provider;
  get diagnostics v_announced = row_count;
  return v_announced;
end
$$;
comment on function push.announce_missed is
  'for calls missed, or ended without an answer, other than declined, busy or voided: one missed_call a user, over APNs '
  'alert, else FCM, else Expo, never to a VoIP token; returns how many';

create function push.void_call(call_id text, reason text default 'voided', app text default null)
returns table (voided int, message text)
language plpgsql volatile security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_call push.outbox;
  v_id   bigint := push.find_call(void_call.call_id, void_call.app);
  v_done boolean;
begin
  voided := (select count(*) from push.delivery d where d.outbox_id = v_id and d.kind = 0 and d.state in (0, 2));
  update push.outbox o set state = 'ended', end_reason = coalesce(void_call.reason, 'voided'), voided = true
    where o.id = v_id and o.ended_at is null;
  v_done := found;
  select o.* into v_call from push.outbox o where o.id = v_id;
  if v_done then
    message := format('call %s was ended (%s): %s invites were taken back unsent, %s phones that may ring are told, '
      'nobody gets a missed call', v_call.call_id, v_call.end_reason, voided,
      (select count(*) from push.delivery d where d.outbox_id = v_id and d.kind = 1));
  else
    voided := 0;
    message := format('call %s had ended before (%s); nothing was done', v_call.call_id, v_call.end_reason);
  end if;
  perform push.note_audit('void_call', v_call.app || '/' || v_call.call_id,
    jsonb_build_object('reason', v_call.end_reason, 'done', v_done, 'voided', voided));
  return next;
end
$$;
comment on function push.void_call is
  'ends a ringing call as if it had never been: unsent invites are void, phones that may ring are told to stop, and '
  'nobody is told of a missed call. call_id: payload.callId; reason: kept as push.outbox.end_reason; app: needed only '
  'if several apps have a call of this id. Returns how many invites were taken back unsent, and a sentence about it; '
  'running it twice is harmless';

create function push.requeue(call_id text, app text default null) returns table (requeued int, message text)
language plpgsql volatile security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_id    bigint := push.find_call(requeue.call_id, requeue.app);
  v_call  push.outbox;
  v_woken int;
  v_made  int := 0;
begin
  -- The call's row first: whoever ends the call waits for deliveries whose settlement may wait for the other lock.
  select o.* into v_call from push.outbox o where o.id = v_id for share;
  perform pg_advisory_xact_lock(hashint8extended(v_id, 7782));
  requeued := 0;
  if v_call.ended_at is not null or v_call.deadline_at <= clock_timestamp() then
    message := format('call %s rings no more (%s); nothing was requeued', v_call.call_id,
      case when v_call.ended_at is null then 'its ring window is over' else v_call.state end);
  else
    -- With "state = 2" it may walk the index of all that waits, and that is most when this is needed.
    update push.delivery d set state = 0, due_at = clock_timestamp()
      where d.ctid = any (array(select x.ctid from push.delivery x where x.outbox_id = v_id))
        and d.kind = 0 and d.state > 1 and d.deadline_at > clock_timestamp();
    get diagnostics v_woken = row_count;
    with past as materialized (
      -- What came of each device last.
      select distinct on (h.lane, h.device) h.n, h.lane, h.user_id, h.device, h.outcome, l.provider
      from push.history h join push.lane l on l.id = h.lane
      where h.outbox_id = v_id and h.finished_at >= v_call.created_at and h.kind = 0
      order by h.lane, h.device, h.n desc
    ), token as (
      -- History knows tokens by their mask only.
      select p.lane, p.user_id, t.token, t.environment, t.platform, t.locale
      from past p cross join lateral (
        select k.token,
          case when e ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
          case when p.provider = 'apns' or e ->> 'platform' = 'ios' then 1 when e ->> 'platform' = 'android' then 2
            else 0 end::smallint as platform,
          e ->> 'locale' as locale
        from jsonb_array_elements(v_call.recipients) e
        cross join lateral (select case p.provider when 'apns' then e ->> 'voipPushToken' when 'fcm' then e ->> 'fcmToken'
          else e ->> 'pushToken' end as token) k
        where jsonb_typeof(e) = 'object' and e ->> 'userId' = p.user_id
          and e -> 'notificationEnabled' is distinct from 'false'
        union all
        select d.token, case d.environment when 'sandbox' then 1 else 0 end::smallint,
          case coalesce(d.platform, case d.provider when 'apns' then 'ios' end)
            when 'ios' then 1 when 'android' then 2 else 0 end::smallint, d.locale
        from push.devices d
        where d.user_id = p.user_id and d.app = v_call.app and d.provider = p.provider and d.enabled
          and d.invalidated_at is null and (d.provider <> 'apns' or d.voip)
      ) t
      where p.outcome in (3, 4) and left(t.token, 4) || '…' || right(t.token, 4) = p.device
        and (select true from push.token_invalidations x
          where x.token = t.token and x.app = v_call.app and x.provider = p.provider) is null
        and (select true from push.delivery d
          where d.outbox_id = v_id and d.kind = 0 and d.lane = p.lane and d.token = t.token limit 1) is null
    ), used as (
      select max(u.n) as n from (
        select p.n from past p union all select d.n from push.delivery d where d.outbox_id = v_id and d.n < 10000) u
    )
    insert into push.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, environment, platform, user_id,
      token, locale)
    select v_id, u.n + row_number() over (order by t.lane, t.token), clock_timestamp(), clock_timestamp(),
      v_call.deadline_at, t.lane, t.environment, t.platform, t.user_id, t.token, t.locale
    from (select distinct on (t.lane, t.token) t.* from token t order by t.lane, t.token) t cross join used u;
    get diagnostics v_made = row_count;
    requeued := v_woken + v_made;
    if requeued > 0 then
      perform push.ring_doorbell();
    end if;
    message := format('call %s: %s', v_call.call_id, case requeued
      when 0 then 'nothing to requeue: no invite of a living token has failed or is waiting'
      else format('%s invites are ready again: %s had failed, %s were waiting', requeued, v_made, v_woken) end);
  end if;
  perform push.note_audit('requeue', v_call.app || '/' || v_call.call_id, jsonb_build_object('requeued', requeued));
  return next;
end
$$;
comment on function push.requeue is
  'tries a call again that still rings: a new invite for each device whose last one failed (dead or expired) and whose '
  'token is not known to be dead, and waiting invites are ready now. call_id: payload.callId; app: needed only if '
  'several apps have a call of this id. Returns how many became ready, and a sentence about it; running it twice is '
  'harmless: what is owed or was delivered is left alone';

-- Lanes ---------------------------------------------------------------------------------------------------------------

create table push.lane_status (
  lane            smallint not null,
  gateway         int not null,
  window_size     int not null,
  capacity        int not null,
  in_flight       int not null,
  rate_per_second int not null,
  circuit         text not null,
  throttled_until timestamptz,
  updated_at      timestamptz not null default clock_timestamp(),
  constraint lane_status_pkey primary key (lane, gateway),
  constraint lane_status_circuit_known check (circuit in ('closed', 'half_open', 'open'))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table push.lane_status is 'one lane as one replica sees it, written every second. People read push.lanes';
comment on column push.lane_status.lane is 'push.lane.id';
comment on column push.lane_status.gateway is 'push.gateways.id of the replica';
comment on column push.lane_status.window_size is 'how many requests the replica lets be in flight now';
comment on column push.lane_status.capacity is 'how many its connections could carry';
comment on column push.lane_status.in_flight is 'how many are';
comment on column push.lane_status.rate_per_second is 'requests it sent in the last second';
comment on column push.lane_status.circuit is
  'closed (all is well), half_open (trying again) or open (nothing is sent)';
comment on column push.lane_status.throttled_until is 'until when the provider wants to be left alone';
comment on column push.lane_status.updated_at is 'when the replica last said so';

create function push.report_lanes(
  p_gateway int, p_lane smallint[], p_window int[], p_capacity int[], p_in_flight int[], p_circuit text[],
  p_throttled_ms int[], p_rate int[]
) returns void
language plpgsql volatile security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive) then
    return;
  end if;
  insert into push.lane_status as s (lane, gateway, window_size, capacity, in_flight, rate_per_second, circuit,
    throttled_until)
  select r.lane, p_gateway, coalesce(r.window_size, 0), coalesce(r.capacity, 0), coalesce(r.in_flight, 0),
    coalesce(r.rate, 0), r.circuit, clock_timestamp() + nullif(greatest(r.throttled_ms, 0), 0) * interval '1 ms'
  from unnest(p_lane, p_window, p_capacity, p_in_flight, p_circuit, p_throttled_ms, p_rate)
    r(lane, window_size, capacity, in_flight, circuit, throttled_ms, rate)
  on conflict (lane, gateway) do update set window_size = excluded.window_size, capacity = excluded.capacity,
    in_flight = excluded.in_flight, rate_per_second = excluded.rate_per_second, circuit = excluded.circuit,
    throttled_until = excluded.throttled_until, updated_at = clock_timestamp();
end
$$;
comment on function push.report_lanes is
  'a replica says how its lanes are; to be called every second. p_gateway: its push.gateways.id; by lane: p_window and '
  'p_capacity (requests it lets, and could let, be in flight), p_in_flight, p_circuit (closed, half_open, open), '
  'p_throttled_ms (milliseconds until it sends again; 0 or null: now), p_rate (requests in the last second)';

create function push.lane_conditions() returns table (
  lane smallint, window_size int, capacity int, in_flight int, circuit text, throttled_until timestamptz,
  rate_per_second int
)
language sql stable security definer set search_path = push, pg_temp as $$
  select s.lane, sum(s.window_size)::int, sum(s.capacity)::int, sum(s.in_flight)::int,
    case when bool_or(s.circuit = 'open') then 'open' when bool_or(s.circuit = 'half_open') then 'half_open'
      else 'closed' end,
    max(s.throttled_until) filter (where s.throttled_until > now()), sum(s.rate_per_second)::int
  from push.lane_status s join push.gateways g on g.id = s.gateway
  where g.alive
  group by s.lane
$$;
comment on function push.lane_conditions is
  'the lanes as all living replicas together see them; circuit is the worst of theirs. For push.lanes';

drop view push.lanes;
create view push.lanes as
select l.id, l.app, l.provider, l.paused, l.note, s.window_size, s.capacity, s.in_flight, s.circuit, s.throttled_until,
  s.rate_per_second, coalesce(d.ready, 0) as ready, coalesce(d.waiting, 0) as waiting, coalesce(d.claimed, 0) as claimed,
  now() - d.oldest as oldest_age, l.invalidation_held_at, l.invalidation_note, l.updated_at
from push.lane l
left join push.lane_conditions() s on s.lane = l.id
left join (
  select d.lane, count(*) filter (where d.state = 0) as ready, count(*) filter (where d.state = 2) as waiting,
    count(*) filter (where d.state = 1) as claimed, min(d.created_at) as oldest
  from push.delivery d
  group by d.lane
) d on d.lane = l.id;
comment on view push.lanes is
  'one app and provider: what it may send, what it has sent, what is owed. To stop it: push.pause_lane, to go on: '
  'push.resume_lane';
comment on column push.lanes.id is 'small number of the lane';
comment on column push.lanes.app is 'name of the app';
comment on column push.lanes.provider is 'apns, fcm or expo';
comment on column push.lanes.paused is 'true: nothing is claimed from this lane';
comment on column push.lanes.note is 'why it is paused, or whatever is worth remembering';
comment on column push.lanes.window_size is
  'how many requests may be in flight now, in all living replicas; null: none serves the lane';
comment on column push.lanes.capacity is 'how many their connections could carry';
comment on column push.lanes.in_flight is 'how many are in flight';
comment on column push.lanes.circuit is
  'closed (all is well), half_open (trying again) or open (nothing is sent), the worst of the replicas''';
comment on column push.lanes.throttled_until is 'until when the provider wants to be left alone; null: it does not';
comment on column push.lanes.rate_per_second is 'requests sent in the last second';
comment on column push.lanes.ready is 'deliveries that could be sent now';
comment on column push.lanes.waiting is 'deliveries that wait for their next try';
comment on column push.lanes.claimed is 'deliveries that a replica holds';
comment on column push.lanes.oldest_age is 'how long the oldest of these is owed';
comment on column push.lanes.invalidation_held_at is
  'since when dead tokens are quarantined rather than invalidated; push.resume_invalidation ends it';
comment on column push.lanes.invalidation_note is 'why invalidation is on hold';
comment on column push.lanes.updated_at is 'when the pause, the note or the hold last changed';

create function push.switch_lane(p_action text, p_app text, p_provider text, p_paused boolean, p_note text)
returns table (changed boolean, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_target text := left(p_app, 64) || '/' || left(p_provider, 8);
  v_lane   push.lane;
begin
  select l.* into v_lane from push.lane l where l.app = p_app and l.provider = p_provider for no key update;
  if not found then
    raise exception using errcode = 'no_data_found',
      message = format('there is no lane %s', coalesce(v_target, 'without app or provider')),
      hint = 'push.lanes lists them; provider is apns, fcm or expo.';
  end if;
  changed := v_lane.paused <> p_paused;
  if changed or v_lane.note is distinct from p_note then
    update push.lane l set paused = p_paused, note = p_note where l.id = v_lane.id;
  end if;
  message := v_target || case
    when p_paused and changed then ' is paused: its deliveries wait, and expire at their deadlines'
    when p_paused then ' was paused already'
    when changed then ' sends again'
    else ' was not paused; nothing to do' end || coalesce('. Note: ' || p_note, '');
  perform push.note_audit(p_action, v_target, jsonb_build_object('changed', changed, 'note', p_note));
  return next;
end
$$;
comment on function push.switch_lane is
  'sets a lane''s pause and note, and writes it down; for push.pause_lane, push.resume_lane and updates of push.lanes';

create function push.pause_lane(app text, provider text, note text default null)
returns table (changed boolean, message text)
language sql volatile security definer set search_path = push, pg_temp as $$
  select s.changed, s.message from push.switch_lane('pause_lane', app, provider, true, coalesce(note,
    (select l.note from push.lane l where l.app = pause_lane.app and l.provider = pause_lane.provider and l.paused))) s
$$;
comment on function push.pause_lane is
  'nothing more is claimed from this lane until push.resume_lane; what a replica holds is still sent. app, provider: '
  'which lane; note: why. Returns whether it changed anything, and a sentence about it; running it twice is harmless';

create function push.resume_lane(app text, provider text) returns table (changed boolean, message text)
language sql volatile security definer set search_path = push, pg_temp as $$
  select s.changed, s.message from push.switch_lane('resume_lane', app, provider, false, null) s
$$;
comment on function push.resume_lane is
  'a paused lane sends again, at once, and its note is removed. app, provider: which lane. Returns whether it changed '
  'anything, and a sentence about it; running it twice is harmless';

create function push.change_lane() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  if (new.app, new.provider, new.id) is distinct from (old.app, old.provider, old.id)
    or (new.invalidation_held_at, new.invalidation_note) is distinct from
      (old.invalidation_held_at, old.invalidation_note) then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'push.lanes: only paused and note can be changed',
      hint = 'push.resume_invalidation ends a hold of invalidation.';
  end if;
  perform from push.switch_lane(case when new.paused then 'pause_lane' else 'resume_lane' end, old.app, old.provider,
    new.paused, new.note);
  return new;
end
$$;
comment on function push.change_lane is 'an update of paused or note in push.lanes is as good as push.pause_lane';
create trigger change_lane instead of update on push.lanes for each row execute function push.change_lane();

create function push.oldest_ringing() returns interval
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  return (
    select max(now() - head.created_at)
    from push.lane l
    left join push.lane_conditions() s on s.lane = l.id
    cross join lateral (
      -- The earliest deadlines are the next to leave; an invite rings ten minutes at most.
      select d.kind, d.created_at from push.delivery d
      where d.state = 0 and d.lane = l.id and d.deadline_at > statement_timestamp()
        and d.deadline_at < statement_timestamp() + interval '10 minutes'
      order by d.deadline_at
      limit 100
    ) head
    where not l.paused and s.circuit is distinct from 'open' and head.kind = 0);
end
$$;
comment on function push.oldest_ringing is
  'how long the oldest of the invites that are next to leave has been ready, lanes that are paused or whose circuit is '
  'open aside; null: none is. Reads 100 rows a lane, however many are owed';

-- What is owed, what is late, what failed -----------------------------------------------------------------------------

create view push.summary as
select l.app, l.provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end as state,
  d.count, now() - d.oldest as oldest_age, d.first_deadline - now() as least_left
from (
  select d.lane, d.kind, d.state, count(*) as count, min(d.created_at) as oldest, min(d.deadline_at) as first_deadline
  from push.delivery d
  group by d.lane, d.kind, d.state
) d
left join push.lane l on l.id = d.lane;
comment on view push.summary is 'what is owed, by app, provider, kind and state; nothing is owed: no rows';
comment on column push.summary.app is 'name of the app';
comment on column push.summary.provider is 'apns, fcm or expo';
comment on column push.summary.kind is 'invite, cancel, missed_call or notification';
comment on column push.summary.state is 'ready, claimed (a replica has it) or waiting (for its next try)';
comment on column push.summary.count is 'how many deliveries';
comment on column push.summary.oldest_age is 'how long the oldest of them is owed';
comment on column push.summary.least_left is 'time until the first of them expires; negative: it should be gone';

-- Of a backlog of 500,000 nobody reads all, and looking up their calls would take seconds: so the most urgent, the ready
-- ones by their index. The call is looked up for what is shown, so it is no join.
create view push.stuck as
select d.outbox_id, d.n, l.app, (select o.call_id from push.outbox o where o.id = d.outbox_id) as call_id, l.provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  d.user_id,
  case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end as state,
  case when d.deadline_at < now() - interval '5 s' then 'past its deadline, and not expired'
    when d.state = 0 then 'ready, and not claimed'
    when d.state = 1 then 'claimed, and not settled'
    else 'due, and still waiting' end as why,
  now() - greatest(d.created_at, d.due_at) as age, d.deadline_at - now() as "left", d.last_reason, d.owner as gateway
from (
  select r.*
  from push.lane l
  left join push.lane_conditions() s on s.lane = l.id
  cross join lateral (
    select d.* from push.delivery d
    where d.state = 0 and d.lane = l.id
      and (d.deadline_at < now() - interval '5 s' or not l.paused and s.circuit is distinct from 'open'
        and greatest(d.created_at, d.due_at) < now() - interval '5 s')
    order by d.deadline_at
    limit 200
  ) r
  union all
  (select d.* from push.delivery d
    where d.state <> 0
      and (d.deadline_at < now() - interval '5 s'
        or greatest(d.created_at, d.due_at) < now() - case d.state when 1 then interval '30 s' else interval '5 s' end)
    order by d.deadline_at
    limit 1000)
) d
join push.lane l on l.id = d.lane;
comment on view push.stuck is
  'deliveries that something should have happened to: ready for more than 5 s while the lane is neither paused nor its '
  'circuit open, claimed and more than 30 s old, waiting 5 s longer than due, or 5 s past the deadline. The most urgent '
  '200 ready ones of each lane and 1,000 others; push.summary counts all that is owed';
comment on column push.stuck.outbox_id is 'the call: push.outbox.id';
comment on column push.stuck.n is 'number of the push within its call';
comment on column push.stuck.app is 'name of the app';
comment on column push.stuck.call_id is 'payload.callId of the call';
comment on column push.stuck.provider is 'apns, fcm or expo';
comment on column push.stuck.kind is 'invite, cancel, missed_call or notification';
comment on column push.stuck.user_id is 'the backend''s id of the user';
comment on column push.stuck.state is 'ready, claimed or waiting';
comment on column push.stuck.why is 'what should have happened';
comment on column push.stuck.age is 'since it was enqueued, or since it was due';
comment on column push.stuck."left" is 'time until its deadline; negative: past it';
comment on column push.stuck.last_reason is 'why the last try did not end it';
comment on column push.stuck.gateway is 'push.replicas.id of the replica that has it';

-- The example is looked up once a row shown; sorting all failures of an hour for it took a second.
create view push.failures as
select l.app, l.provider,
  case f.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  case f.outcome when 1 then 'delivered_late' when 3 then 'expired' else 'dead' end as outcome,
  coalesce(f.reason, 'Late') as reason, f.count, f.last_at, x.call_id as example_call_id, x.device as example_device
from push.lane l
cross join lateral (
  select h.kind, h.outcome, h.reason, count(*) as count, max(h.finished_at) as last_at
  from push.history h
  where h.lane = l.id and h.finished_at > now() - interval '1 hour' and h.outcome <> 0 and h.outcome in (1, 3, 4)
  group by h.kind, h.outcome, h.reason
) f
cross join lateral (
  select h.call_id, h.device from push.history h
  where h.lane = l.id and h.finished_at = f.last_at and h.outcome <> 0 and h.outcome = f.outcome and h.kind = f.kind
    and h.reason is not distinct from f.reason
  limit 1
) x;
comment on view push.failures is
  'what was not delivered, or late, in the last hour, by reason, with the last of each as an example';
comment on column push.failures.app is 'name of the app';
comment on column push.failures.provider is 'apns, fcm or expo';
comment on column push.failures.kind is 'invite, cancel, missed_call or notification';
comment on column push.failures.outcome is 'delivered_late, expired (never sent in time) or dead (failed)';
comment on column push.failures.reason is 'why, in the provider''s word or ours';
comment on column push.failures.count is 'how many';
comment on column push.failures.last_at is 'when the last of them was settled';
comment on column push.failures.example_call_id is 'call of the last; push.timeline tells its story';
comment on column push.failures.example_device is 'device of the last, its token masked';

-- History ------------------------------------------------------------------------------------------------------------

-- Rows are written in order of time: the smallest of indexes finds the last minute of a day with millions.
create index history_finished on push.history using brin (finished_at)
  with (pages_per_range = 32, autosummarize = on);

-- As in 0007, but the call's id is that of push.outbox, which has an index on it: a call's history is found at once.
create or replace view push.delivery_history as
select h.outbox_id, l.app, o.call_id, l.provider,
  case h.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  h.user_id,
  case h.outcome when 0 then 'delivered' when 1 then 'delivered_late' when 2 then 'void' when 3 then 'expired'
    else 'dead' end as outcome,
  h.reason, h.attempts, h.created_at, h.sent_at, h.finished_at, h.provider_message_id,
  h.status::int as status, h.answered_at, h.deadline_at, h.n, h.owner as gateway, h.device, h.failures, h.fallback_of,
  h.receipt_reason
from push.history h
left join push.lane l on l.id = h.lane
left join push.outbox o on o.id = h.outbox_id;

-- Replicas and health -------------------------------------------------------------------------------------------------

create view push.replicas as
select g.id, g.name, g.version, g.alive, g.started_at, g.heartbeat_at,
  case when g.alive then now() - g.heartbeat_at end as silence, coalesce(d.claimed, 0) as claimed, g.ended_at,
  g.ended_reason
from push.gateways g
left join (
  select d.owner, count(*) as claimed from push.delivery d where d.state = 1 group by d.owner
) d on d.owner = g.id;
comment on view push.replicas is 'one life of one gateway process: those that run, and those that ended lately';
comment on column push.replicas.id is 'number of this life, as in push.deliveries.gateway';
comment on column push.replicas.name is 'host or pod';
comment on column push.replicas.version is 'version of the program';
comment on column push.replicas.alive is 'whether it runs, as far as known';
comment on column push.replicas.started_at is 'when it registered';
comment on column push.replicas.heartbeat_at is 'when it was last heard';
comment on column push.replicas.silence is 'how long it has been silent; after 3 s it is declared dead';
comment on column push.replicas.claimed is 'deliveries it holds; of one that ended they are taken over at once';
comment on column push.replicas.ended_at is 'when it ended or was declared dead';
comment on column push.replicas.ended_reason is 'retired (clean shutdown) or silent (declared dead)';

create function push.check_health() returns table (item text, value text, state text, hint text)
language plpgsql stable security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_oldest   interval;
  v_pid      int;
  v_sees_all boolean := pg_has_role(current_user, 'pg_read_all_stats', 'usage');
begin
  -- How bad a number is: up to the first limit it is ok, up to the second a warning.
  return query
    select 'dead rows of push.' || t.relname, t.n_dead_tup::text || ' beside ' || t.n_live_tup,
      case when t.n_dead_tup <= 200000 + t.n_live_tup then 'ok' when t.n_dead_tup <= 2000000 + t.n_live_tup then 'warn'
        else 'bad' end,
      'A long transaction keeps vacuum from removing them: see "oldest transaction".'
    from pg_stat_all_tables t
    where t.schemaname = 'push' and t.relname in ('delivery', 'outbox', 'lane_status', 'gateways')
    order by t.relname;

  select now() - a.xact_start, a.pid into v_oldest, v_pid
    from pg_stat_activity a
    where a.xact_start is not null and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
    order by a.xact_start
    limit 1;
  return query select 'oldest transaction',
    case when v_oldest is null then 'none' else format('%s (pid %s)', date_trunc('milliseconds', v_oldest), v_pid) end
      || case when v_sees_all then '' else ', of this role only' end,
    case when v_oldest > interval '5 minutes' then 'bad' when v_oldest > interval '30 s' then 'warn' else 'ok' end,
    case when v_sees_all then 'End it with: select pg_terminate_backend(pid).'
      else format('To see those of other roles: grant pg_read_all_stats to %I.', current_user) end;
  return query
    select 'prepared transactions', p.count::text, case when p.count = 0 then 'ok' else 'warn' end,
      'Forgotten ones hold back vacuum for ever: pg_prepared_xacts; commit or rollback prepared.'
    from (select count(*) from pg_prepared_xacts) p;
  return query
    select 'notify queue', round(100 * q.usage::numeric, 1) || ' %',
      case when q.usage < 0.1 then 'ok' when q.usage < 0.5 then 'warn' else 'bad' end,
      'A session listens and does not read: look for "idle in transaction" in pg_stat_activity.'
    from (select pg_notification_queue_usage() as usage) q;
  return query
    select 'replicas alive', g.count::text, case when g.count = 0 then 'bad' else 'ok' end,
      'Nothing is sent without one: push.replicas says how the last ones ended.'
    from (select count(*) from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s') g;
  return query
    select 'leader', case when l.pid is null then 'none' else 'pid ' || l.pid end,
      case when l.pid is null then 'bad' else 'ok' end,
      'The replica that holds advisory lock (7781, 2) does the housekeeping; another takes over when its session ends.'
    from (select min(l.pid) as pid from pg_locks l
      where l.locktype = 'advisory' and l.classid = 7781 and l.objid = 2 and l.objsubid = 2 and l.granted
        and l.database = (select d.oid from pg_database d where d.datname = current_database())) l;
  return query
    select 'oldest ready invite', coalesce(date_trunc('milliseconds', o.age)::text, 'none'),
      case when o.age > interval '5 s' then 'bad' when o.age > interval '1 s' then 'warn' else 'ok' end,
      'Calls ring late: push.lanes shows which lane is full, push.stuck which deliveries wait.'
    from (select push.oldest_ringing() as age) o;
  return query
    select 'partitions ahead', p.count || ' days', case when p.count >= 7 then 'ok' when p.count >= 1 then 'warn'
        else 'bad' end,
      'select push.ensure_partitions(); the leader does so every hour.'
    from (select count(*) from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'push.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
        and right(c.relname, 8) > to_char(now() at time zone 'UTC', 'YYYYMMDD')) p;
  return query
    select 'history without a partition', case when h.some then 'some' else 'none' end,
      case when h.some then 'bad' else 'ok' end,
      'Rows of push.history_default keep their day''s partition from being made: move them away.'
    from (select exists (select from push.history_default) as some) h;
  return query
    select 'receipts overdue', r.count::text || case when r.count = 1000 then ' or more' else '' end,
      case when r.count = 0 then 'ok' when r.count < 1000 then 'warn' else 'bad' end,
      'Expo''s receipts are looked up 15 minutes after sending and lost after 24 hours.'
    from (select count(*) from (select from push.expo_receipts r
      where r.due_at < now() - interval '5 minutes' or r.attempts > 3 limit 1000) r) r;
  return query
    select 'quarantined tokens', q.count::text, case when q.count = 0 then 'ok' else 'warn' end,
      'A provider called many tokens dead at once: push.lanes says which; push.resume_invalidation decides.'
    from (select count(*) from push.quarantined_tokens) q;
  return query
    select 'transaction ids used', round(d.age / 21474836.47, 1) || ' %',
      case when d.age < 500000000 then 'ok' when d.age < 1200000000 then 'warn' else 'bad' end,
      'At 100 % the database stops: vacuum (freeze), after ending what holds it back.'
    from (select age(d.datfrozenxid)::numeric as age from pg_database d where d.datname = current_database()) d;
end
$$;
comment on function push.check_health is 'what could make calls ring late tomorrow; for push.health';

create view push.health as select h.item, h.value, h.state, h.hint from push.check_health() h;
comment on view push.health is 'one concern a row: how it is, whether that is ok, warn or bad, and what to do';
comment on column push.health.item is 'what was looked at';
comment on column push.health.value is 'what was found';
comment on column push.health.state is 'ok, warn (soon) or bad (now)';
comment on column push.health.hint is 'what it means and what to do';

-- Tokens, masked ------------------------------------------------------------------------------------------------------

create view push.dead_devices as
select x.app, x.provider, x.user_id, left(x.token, 4) || '…' || right(x.token, 4) as device, x.reason, x.invalidated_at
from push.token_invalidations x;
comment on view push.dead_devices is 'push.token_invalidations with the tokens masked';
comment on column push.dead_devices.app is 'app the token belonged to';
comment on column push.dead_devices.provider is 'apns, fcm or expo';
comment on column push.dead_devices.user_id is 'whose token it was, as far as known';
comment on column push.dead_devices.device is 'the token, masked';
comment on column push.dead_devices.reason is 'what the provider said';
comment on column push.dead_devices.invalidated_at is 'since when it is dead';

create view push.quarantined_devices as
select q.app, q.provider, q.user_id, left(q.token, 4) || '…' || right(q.token, 4) as device, q.reason, q.since,
  q.quarantined_at
from push.quarantined_tokens q;
comment on view push.quarantined_devices is 'push.quarantined_tokens with the tokens masked';
comment on column push.quarantined_devices.app is 'app the token belongs to';
comment on column push.quarantined_devices.provider is 'apns, fcm or expo';
comment on column push.quarantined_devices.user_id is 'whose token it is, as far as known';
comment on column push.quarantined_devices.device is 'the token, masked';
comment on column push.quarantined_devices.reason is 'what the provider said';
comment on column push.quarantined_devices.since is 'since when the provider calls it dead';
comment on column push.quarantined_devices.quarantined_at is 'when it came here';

create view push.registered_devices as
select d.user_id, d.app, d.provider, left(d.token, 4) || '…' || right(d.token, 4) as device, d.voip, d.environment,
  d.platform, d.locale, d.enabled, d.registered_at, d.invalidated_at, d.invalid_reason
from push.devices d;
comment on view push.registered_devices is 'push.devices with the tokens masked';
comment on column push.registered_devices.user_id is 'the backend''s id of the user';
comment on column push.registered_devices.app is 'app the token belongs to';
comment on column push.registered_devices.provider is 'apns, fcm or expo';
comment on column push.registered_devices.device is 'the token, masked';
comment on column push.registered_devices.voip is 'apns only: true for a PushKit token';
comment on column push.registered_devices.environment is 'apns only: production or sandbox';
comment on column push.registered_devices.platform is 'ios, android or unknown (null)';
comment on column push.registered_devices.locale is 'language of visible texts';
comment on column push.registered_devices.enabled is 'false: the user wants no notifications here';
comment on column push.registered_devices.registered_at is 'when the phone last gave this token';
comment on column push.registered_devices.invalidated_at is 'since when it is dead; null: it is alive';
comment on column push.registered_devices.invalid_reason is 'what the provider said';

revoke execute on all functions in schema push from public;
