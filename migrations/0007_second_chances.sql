-- Second chances: the next channel when one fails, the receipt after the ticket, and the breaker that keeps tokens
-- alive when a provider suddenly calls most of them dead.
--
-- settle is the hot path and does one statement, as before. What a batch rarely holds is asked of its arrays first, so
-- that a batch without receipts and failures pays for no lookup.

alter table push.delivery add column failures jsonb, add column fallback_of int,
  add constraint delivery_failures_form check (jsonb_typeof(failures) = 'array');
comment on column push.delivery.failures is 'failed tries: array of {"at", "attempt", "status", "reason"}, the last 20';
comment on column push.delivery.fallback_of is
  'n of the invite of the same call that failed, instead of which this is sent';
alter table push.history add column fallback_of int, add column receipt_reason text;
comment on column push.history.failures is
  'failed tries before the last: array of {"at", "attempt", "status", "reason"}, at most 20';
comment on column push.history.fallback_of is
  'n of the invite of the same call that failed, instead of which this was sent';
comment on column push.history.receipt_reason is 'what Expo''s receipt said later; null: nothing bad, or not yet';

-- Parked and settled, with the failed tries ---------------------------------------------------------------------------

create function push.last_failures(p_failures jsonb) returns jsonb language sql immutable parallel safe as $$
  select case when jsonb_array_length(p_failures) <= 20 then p_failures else (
    select jsonb_agg(f.failure order by f.ordinal)
    from jsonb_array_elements(p_failures) with ordinality f(failure, ordinal)
    where f.ordinal > jsonb_array_length(p_failures) - 20) end
$$;
comment on function push.last_failures is 'the last 20 of a list of failed tries';

drop function push.park(int, bigint[], int[], int[], int[], int[], text[]);
create function push.park(
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
  -- Due at the deadline at the latest: so the index on due_at finds waiting deliveries that have expired, too.
  update push.delivery d
  set state = 2, owner = null, attempt = r.attempts, last_reason = coalesce(r.reason, d.last_reason),
    due_at = least(clock_timestamp() + r.delay_ms * interval '1 ms', d.deadline_at),
    failures = case when r.failures is null then d.failures
      else push.last_failures(coalesce(d.failures, '[]') || r.failures::jsonb) end
  from unnest(p_outbox_id, p_n, p_lease, p_attempts, p_delay_ms, p_reason, p_failures)
    r(outbox_id, n, lease, attempts, delay_ms, reason, failures)
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_parked = row_count;
  perform push.void_unsent(p_outbox_id);
  return v_parked;
end
$$;
comment on function push.park is
  'claimed to waiting, for so many milliseconds; p_failures: the tries that failed, each a JSON array of {"at", '
  '"attempt", "status", "reason"} or null, kept with earlier ones; invites of calls that have ended are void; returns '
  'how many were still the caller''s';

-- A call's next channel -----------------------------------------------------------------------------------------------

-- Runs in the transaction that settled the failed invites, which are gone from push.delivery by now.
--
-- Two replicas may settle the last two tokens of one channel at the same moment. Each would still see the other's as
-- owed, and neither would go on to the next channel. So decisions about one call are taken one after the other, under
-- an advisory lock, and each with a snapshot taken after it had the lock. No cycle of waits comes of it: the locks of
-- several calls are taken in one order; who holds one waits for nothing else (the call's row is locked with "skip
-- locked", no lane is made, no row is inserted that another could insert, for n is chosen under the lock too); and
-- ending a call never asks for one. Whoever waits for one holds deliveries it has deleted, which nobody with such a
-- lock waits for.
--
-- The race with the end of a call has the outcome that 0005 describes for a claimed invite given back: the new invite
-- is ready only under a share lock on its call. If that is denied, an end is in progress: the invite waits, and
-- push.promote makes it ready if the end was rolled back, and void if it was not.
create function push.fall_back(p_failed push.delivery[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_calls bigint[] := array(select distinct f.outbox_id from unnest(p_failed) f);
  -- Variables, so that only the partitions between are looked at. The margin is for what is settled meanwhile.
  v_since timestamptz;
  v_until timestamptz := clock_timestamp() + interval '1 minute';
  v_made  bigint;
begin
  -- Spread over all keys, so that no other use of advisory locks by a number is hit.
  perform pg_advisory_xact_lock(k.key)
    from (select hashint8extended(c.id, 7782) as key from unnest(v_calls) c(id) order by 1 offset 0) k;
  v_since := (select min(o.created_at) from push.outbox o where o.id = any (v_calls));
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
      and f.token = case f.rank when 1 then e.voip_token else e.fcm_token end
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
        where o.outbox_id = f.outbox_id and o.user_id = f.user_id and o.lane = f.lane and o.platform = f.platform)
      and not exists (select from past h
        where h.outbox_id = f.outbox_id and h.user_id = f.user_id and h.lane = f.lane and h.outcome <= 1
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
      (select max(u.n) from (select o.n from owed o where o.outbox_id = c.id
        union all select h.n from past h where h.outbox_id = c.id) u)
        + row_number() over (partition by b.outbox_id order by b.lane, b.token) as next_n
    from (
      -- Several tokens of one channel that failed together have one next channel.
      select distinct on (b.outbox_id, b.lane, b.token) b.* from best b where b.preference = b.preferred
      order by b.outbox_id, b.lane, b.token, b.n desc
    ) b
    join call c on c.id = b.outbox_id
  )
  insert into push.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, state, platform, user_id, token,
    locale, fallback_of)
  select x.outbox_id, x.next_n, clock_timestamp(), clock_timestamp(), x.deadline_at, x.lane,
    case when x.rings then 0 else 2 end, x.platform, x.user_id, x.token, x.locale, x.n
  from chosen x
  where x.next_n < 10000;
  get diagnostics v_made = row_count;
  if v_made > 0 then
    perform push.ring_doorbell();
  end if;
  return v_made;
end
$$;
comment on function push.fall_back is
  'for invites that failed for good: an invite over the user''s next channel while the call still rings, never to an '
  'APNs token, to no token twice in a call; returns how many. For push.settle';

-- Settle --------------------------------------------------------------------------------------------------------------

drop function push.settle(int, bigint[], int[], int[], int[], smallint[], smallint[], text[], text[], text[],
  timestamptz[], timestamptz[]);
create function push.settle(
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
    select l.app, r.message_id, d.outbox_id, d.n, d.user_id, d.token, r.sent_at,
      least(clock_timestamp() + r.after_ms * interval '1 ms', r.sent_at + interval '24 hours'),
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
    join push.lane l on l.id = d.lane
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

  with gone as (
    delete from push.delivery d
    using unnest(p_outbox_id, p_n, p_lease, p_attempts, p_outcome, p_status, p_reason, p_message_id, p_call_id,
      p_sent_at, p_answered_at, p_failures)
      r(outbox_id, n, lease, attempts, outcome, status, reason, message_id, call_id, sent_at, answered_at, failures)
    where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease
    returning d.outbox_id, d.created_at, d.deadline_at, r.sent_at, r.answered_at, d.n, r.attempts, d.lane, d.kind,
      r.outcome, r.status, d.user_id, r.call_id, d.token, r.reason, d.last_reason, r.message_id,
      case when r.failures is null then d.failures
        else push.last_failures(coalesce(d.failures, '[]') || r.failures::jsonb) end as failures, d.fallback_of
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
    perform push.fall_back(v_failed);
  end if;
  return v_settled;
end
$$;
comment on function push.settle is
  'ends claimed deliveries and writes their history; returns how many it accepted: fewer than given means that leases '
  'were lost, and those results are dropped. attempts are what was really tried, retries under one lease included; '
  'p_failures: as for push.park; p_receipt_after_ms: not null for an Expo ticket (p_message_id) whose receipt is due '
  'so much later. An invite that failed for good while its call rings is followed by one over the user''s next channel';

-- As in 0005, with the failed tries and the fallback.
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
  with gone as (
    delete from push.delivery d
    using push.outbox o
    where o.id = any (v_ended) and d.outbox_id = any (v_ended) and d.outbox_id = o.id
      and d.kind = 0 and d.state in (0, 2)
    -- A missed call's invites ended as push.expire would have ended them, whichever of the two comes first.
    returning d.*, o.call_id, o.state as call_state,
      o.state = 'missed' and d.deadline_at <= clock_timestamp() as is_late
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

-- As in 0003, with the failed tries and the fallback.
create or replace function push.expire(p_max int default 5000, p_slack interval default '0') returns bigint
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
      where d.state = 0 and d.lane = l.id and d.deadline_at <= v_before
      order by d.deadline_at
      limit p_max
      for no key update skip locked
    ) late
  ), waiting as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 2 and d.due_at <= v_before and d.deadline_at <= v_before
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
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind, 3, g.user_id, o.call_id,
    left(g.token, 4) || '…' || right(g.token, 4), coalesce(g.last_reason, 'DeadlinePassed'), g.failures, g.fallback_of
  from gone g left join push.outbox o on o.id = g.outbox_id;
  get diagnostics v_expired = row_count;
  return v_expired;
end
$$;

-- Expo receipts -------------------------------------------------------------------------------------------------------

drop index push.expo_receipts_due;
create index expo_receipts_due on push.expo_receipts (app, due_at);

create function push.claim_receipts(p_app text, p_max int, p_lease_ms int)
returns table (ticket text, outbox_id bigint, n int, token text, sent_at timestamptz)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
begin
  return query
    with pick as materialized (
      select r.ctid as tid
      from push.expo_receipts r
      where r.app = p_app and r.due_at <= statement_timestamp() and r.give_up_at > statement_timestamp()
      order by r.due_at
      limit p_max
      for no key update skip locked
    )
    -- The lease is the due time: whoever takes them dies, and they are due again.
    update push.expo_receipts r
    set attempts = r.attempts + 1, due_at = least(clock_timestamp() + p_lease_ms * interval '1 ms', r.give_up_at)
    where r.ctid = any (array(select pick.tid from pick))
    returning r.ticket, r.outbox_id, r.n, r.token, r.sent_at;
end
$$;
comment on function push.claim_receipts is
  'takes up to p_max tickets of an app whose receipts are due, for p_lease_ms milliseconds; then they are due again';

create function push.settle_receipts(p_app text, p_ticket text[], p_reason text[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_settled bigint;
  v_outbox  bigint[];
  v_n       int[];
  v_ticket  text[];
  v_reason  text[];
  -- A variable, so that older partitions are not looked at. The margin is for a gateway's clock.
  v_since   timestamptz;
begin
  with gone as (
    delete from push.expo_receipts r
    using unnest(p_ticket, p_reason) s(ticket, reason)
    where r.app = p_app and r.ticket = s.ticket
    returning r.outbox_id, r.n, r.ticket, s.reason, r.sent_at
  )
  select count(*), array_agg(g.outbox_id) filter (where g.reason is not null),
      array_agg(g.n) filter (where g.reason is not null), array_agg(g.ticket) filter (where g.reason is not null),
      array_agg(g.reason) filter (where g.reason is not null), min(g.sent_at) - interval '1 hour'
    into v_settled, v_outbox, v_n, v_ticket, v_reason, v_since
    from gone g;
  if v_outbox is not null then
    update push.history h set receipt_reason = s.reason
    from unnest(v_outbox, v_n, v_ticket, v_reason) s(outbox_id, n, ticket, reason)
    where h.outbox_id = s.outbox_id and h.n = s.n and h.provider_message_id = s.ticket and h.finished_at >= v_since;
  end if;
  return v_settled;
end
$$;
comment on function push.settle_receipts is
  'ends the look-up of these tickets; a reason other than null is what the receipt said, kept in push.history; returns '
  'how many there were';

create function push.postpone_receipts(p_app text, p_ticket text[], p_delay_ms int) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_postponed bigint;
begin
  update push.expo_receipts r
  set due_at = least(clock_timestamp() + p_delay_ms * interval '1 ms', r.give_up_at)
  where r.app = p_app and r.ticket = any (p_ticket);
  get diagnostics v_postponed = row_count;
  return v_postponed;
end
$$;
comment on function push.postpone_receipts is
  'these tickets are due again in so many milliseconds, never later than they are given up; returns how many there '
  'were';

create function push.give_up_receipts(p_app text) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_lost bigint;
begin
  -- due_at is never later than give_up_at: it is what the index knows.
  delete from push.expo_receipts r
    where r.app = p_app and r.due_at <= statement_timestamp() and r.give_up_at <= statement_timestamp();
  get diagnostics v_lost = row_count;
  return v_lost;
end
$$;
comment on function push.give_up_receipts is
  'forgets an app''s tickets whose receipts Expo no longer has; returns how many nobody will ever know of';

-- What ops did --------------------------------------------------------------------------------------------------------

create table push.audit (
  id     bigint generated always as identity primary key,
  at     timestamptz not null default clock_timestamp(),
  who    text not null default session_user,
  action text not null,
  target text not null,
  detail jsonb
);
create index audit_at on push.audit (at);
comment on table push.audit is 'one intervention, by ops or by a gateway on its own';
comment on column push.audit.id is 'number of the intervention';
comment on column push.audit.at is 'when';
comment on column push.audit.who is 'the database role that was logged in';
comment on column push.audit.action is 'name of the function';
comment on column push.audit.target is 'what it was done to, for example app/provider';
comment on column push.audit.detail is 'object: what was asked and what came of it';

create function push.note_audit(p_action text, p_target text, p_detail jsonb default null) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.audit (action, target, detail) values (p_action, p_target, p_detail);
end
$$;
comment on function push.note_audit is 'writes down an intervention, in the transaction that makes it';

-- Mass invalidation ---------------------------------------------------------------------------------------------------

alter table push.lane add column invalidation_held_at timestamptz, add column invalidation_note text;
comment on column push.lane.invalidation_held_at is
  'since when no token of this lane is invalidated, but quarantined; null: the ordinary state';
comment on column push.lane.invalidation_note is 'why invalidation is on hold';

create table push.quarantined_tokens (
  app            text not null,
  provider       text not null,
  token          text not null,
  user_id        text,
  since          timestamptz not null,
  reason         text not null,
  quarantined_at timestamptz not null default clock_timestamp(),
  constraint quarantined_tokens_provider_known check (provider in ('apns', 'fcm', 'expo'))
);
create unique index quarantined_tokens_token on push.quarantined_tokens (sha256(token::bytea), app, provider);
comment on table push.quarantined_tokens is
  'one token that its provider called dead while the lane''s invalidation is on hold; it is used as if alive, until '
  'push.resume_invalidation decides';
comment on column push.quarantined_tokens.app is 'app the token belongs to';
comment on column push.quarantined_tokens.provider is 'apns, fcm or expo';
comment on column push.quarantined_tokens.token is 'the token';
comment on column push.quarantined_tokens.user_id is 'whose token it is, as far as known';
comment on column push.quarantined_tokens.since is 'since when the provider calls it dead, or when it said so';
comment on column push.quarantined_tokens.reason is 'what the provider said';
comment on column push.quarantined_tokens.quarantined_at is 'when it came here';

create function push.hold_invalidation(p_lane smallint, p_window interval, p_note text) returns bigint
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
  ), alive as (
    update push.devices d set invalidated_at = null, invalid_reason = null
    from feed f
    where sha256(d.token::bytea) = sha256(f.token::bytea) and d.app = v_app and d.provider = v_provider
      and d.invalidated_at is not null
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
comment on function push.hold_invalidation is
  'from now on no token of this lane is invalidated, and those that were within p_window live again: all go to '
  'push.quarantined_tokens until push.resume_invalidation; returns how many went there now; 0 if it is on hold already';

-- As in 0005; besides, a lane on hold has its dead tokens quarantined.
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
      coalesce(r.reason, 'Unknown') as reason, l.invalidation_held_at is not null as is_held
    from unnest(p_lane, p_token, p_since, p_reason) r(lane, token, since, reason)
    join push.lane l on l.id = r.lane
    where r.token is not null
    order by l.app, l.provider, r.token, r.since desc nulls first
  ), quarantined as (
    -- Without a time of the provider's it is dead since now: a token given anew during the hold is another matter.
    insert into push.quarantined_tokens as q (app, provider, token, user_id, since, reason)
    select s.app, s.provider, s.token, (select d.user_id from push.devices d
        where sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider),
      coalesce(s.since, clock_timestamp()), s.reason
    from said s
    where s.is_held
    on conflict (sha256(token::bytea), app, provider) do update set since = excluded.since, reason = excluded.reason
      where q.since < excluded.since
  ), cleared as (
    -- Compare and clear: a token the phone gave anew after the provider saw it dead stays alive.
    update push.devices d set invalidated_at = clock_timestamp(), invalid_reason = s.reason
    from said s
    where not s.is_held
      and sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider
      and d.invalidated_at is null and (s.since is null or s.since >= d.registered_at)
    returning d.app, d.provider, d.token, d.user_id, s.reason
  )
  insert into push.token_invalidations (app, provider, token, user_id, reason)
  select c.app, c.provider, c.token, c.user_id, c.reason from cleared c
  union all
  select s.app, s.provider, s.token, null, s.reason
  from said s
  where not s.is_held and not exists (select from push.devices d
    where sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider)
  on conflict do nothing;
  get diagnostics v_dead = row_count;
  if v_dead > 0 then
    perform pg_notify('push_token_invalidations', '');
  end if;
  return v_dead;
end
$$;
comment on function push.invalidate_tokens is
  'the provider of a lane called these tokens dead, since a time if it gave one: registered devices are cleared unless '
  'registered later, tokens of no device are noted; returns how many are new in push.token_invalidations, and if any '
  'are, NOTIFY push_token_invalidations. Those of a lane whose invalidation is on hold are quarantined instead';

create function push.resume_invalidation(app text, provider text, apply boolean default false)
returns table (lane smallint, was_held boolean, invalidated bigint, forgotten bigint, message text)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  v_target   text := left(resume_invalidation.app, 64) || '/' || left(resume_invalidation.provider, 8);
  v_held_at  timestamptz;
  v_token    text[];
  v_since    timestamptz[];
  v_reason   text[];
begin
  select l.id, l.invalidation_held_at into lane, v_held_at from push.lane l
    where l.app = resume_invalidation.app and l.provider = resume_invalidation.provider
    for no key update;
  if not found then
    raise exception using errcode = 'no_data_found',
      message = format('there is no lane %s', coalesce(v_target, 'without app or provider')),
      hint = 'push.lanes lists them; provider is apns, fcm or expo.';
  end if;
  was_held := v_held_at is not null;
  update push.lane l set invalidation_held_at = null, invalidation_note = null where l.id = lane and was_held;
  with gone as (
    delete from push.quarantined_tokens q
    where q.app = resume_invalidation.app and q.provider = resume_invalidation.provider
    returning q.token, q.since, q.reason
  )
  select coalesce(array_agg(g.token), '{}'), array_agg(g.since), array_agg(g.reason)
    into v_token, v_since, v_reason
    from gone g;
  invalidated := 0;
  if apply and v_token <> '{}' then
    invalidated := push.invalidate_tokens(array_fill(lane, array[cardinality(v_token)]), v_token, v_since, v_reason);
  end if;
  forgotten := cardinality(v_token) - invalidated;
  message := case
    when not was_held and v_token = '{}' then format('%s: invalidation was not on hold; nothing to do', v_target)
    else format('%s: dead tokens are invalidated again (%s); of %s quarantined ones, %s %s', v_target,
      case when was_held then format('on hold since %s',
        to_char(v_held_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) else 'it was not on hold' end,
      cardinality(v_token),
      case when apply then format('%s were invalidated,', invalidated) else 'none was invalidated,' end,
      format('%s live on', forgotten)) end;
  perform push.note_audit('resume_invalidation', v_target, jsonb_build_object('apply', coalesce(apply, false),
    'wasHeld', was_held, 'invalidated', invalidated, 'forgotten', forgotten));
  perform pg_notify('push_control', 'resume ' || lane);
  return next;
end
$$;
comment on function push.resume_invalidation is
  'ends the hold of a lane''s invalidation: quarantined tokens live on (one that is dead will be found so again), or, '
  'with apply, are invalidated unless registered since; says what it did; running it twice is harmless. '
  'NOTIFY push_control with "resume" and push.lanes.id';

create function push.correct_environment(p_lane smallint[], p_token text[], p_environment smallint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_corrected bigint;
begin
  update push.devices d set environment = case r.environment when 1 then 'sandbox' else 'production' end
  from (
    select l.app, u.token, u.environment
    from unnest(p_lane, p_token, p_environment) u(lane, token, environment)
    join push.lane l on l.id = u.lane
    where l.provider = 'apns' and u.environment in (0, 1)
  ) r
  where sha256(d.token::bytea) = sha256(r.token::bytea) and d.app = r.app and d.provider = 'apns'
    and d.environment <> case r.environment when 1 then 'sandbox' else 'production' end;
  get diagnostics v_corrected = row_count;
  return v_corrected;
end
$$;
comment on function push.correct_environment is
  'APNs accepted these tokens in this environment (0 production, 1 sandbox): registered devices that say otherwise are '
  'corrected; returns how many';

-- What people read ----------------------------------------------------------------------------------------------------

create or replace view push.lanes as
select l.id, l.app, l.provider, l.paused, l.note, l.updated_at, l.invalidation_held_at, l.invalidation_note
from push.lane l;
comment on column push.lanes.invalidation_held_at is
  'since when dead tokens are quarantined rather than invalidated; push.resume_invalidation ends it';
comment on column push.lanes.invalidation_note is 'why invalidation is on hold';

create or replace view push.deliveries as
select d.outbox_id, l.app, o.call_id, l.provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  d.user_id,
  case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end as state,
  d.attempt::int as attempt, d.due_at, d.deadline_at, d.last_reason, d.created_at, d.n, d.owner as gateway, d.lease,
  case d.environment when 0 then 'production' else 'sandbox' end as environment,
  case d.platform when 1 then 'ios' when 2 then 'android' end as platform,
  d.locale, left(d.token, 4) || '…' || right(d.token, 4) as device, d.failures, d.fallback_of
from push.delivery d
left join push.lane l on l.id = d.lane
left join push.outbox o on o.id = d.outbox_id;
comment on column push.deliveries.failures is 'failed tries: array of {"at", "attempt", "status", "reason"}';
comment on column push.deliveries.fallback_of is 'n of the invite that failed, instead of which this is sent';

create or replace view push.delivery_history as
select h.outbox_id, l.app, h.call_id, l.provider,
  case h.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  h.user_id,
  case h.outcome when 0 then 'delivered' when 1 then 'delivered_late' when 2 then 'void' when 3 then 'expired'
    else 'dead' end as outcome,
  h.reason, h.attempts, h.created_at, h.sent_at, h.finished_at, h.provider_message_id,
  h.status::int as status, h.answered_at, h.deadline_at, h.n, h.owner as gateway, h.device, h.failures, h.fallback_of,
  h.receipt_reason
from push.history h
left join push.lane l on l.id = h.lane;
comment on column push.delivery_history.fallback_of is 'n of the invite that failed, instead of which this was sent';
comment on column push.delivery_history.receipt_reason is 'what Expo''s receipt said later';

revoke execute on all functions in schema push from public;
