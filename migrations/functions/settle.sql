-- The end of a claim: deliveries are settled, parked for a later attempt, or released. Locks, the condition on the lease,
-- and plans are described in claims.sql.

create or replace function push.last_failures(p_failures jsonb) returns jsonb language sql immutable parallel safe as $$
  select case when jsonb_array_length(p_failures) <= 20 then p_failures else (
    select jsonb_agg(f.failure order by f.ordinal)
    from jsonb_array_elements(p_failures) with ordinality f(failure, ordinal)
    where f.ordinal > jsonb_array_length(p_failures) - 20) end
$$;
comment on function push.last_failures is 'the last 20 elements of p_failures, a list of failed attempts';

-- One statement for the batch. A delivery is found by the ctid that it had when it was claimed, which saves an index
-- look-up; its key is checked. A delivery that has moved since (only a rewrite of the table moves a claimed row) is found
-- by its key and settled by a second pass. Expo tickets are stored from the settled rows.
--
-- The key is compared with "is not distinct from", which no index supports. With "=", a merge join in the order of the key
-- could look cheap: a plan made while the table is small would then read the whole index for every batch, however large the
-- table has become.
create or replace function push.settle(
  p_gateway int, p_place tid[], p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[],
  p_outcome smallint[], p_status smallint[], p_reason text[], p_message_id text[], p_call_id text[],
  p_sent_at timestamptz[], p_answered_at timestamptz[], p_failures text[] default null,
  p_receipt_after_ms int[] default null
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_settled bigint;
  v_failed  push.delivery[];
  v_cancels push.delivery[];
  v_said    push.delivery[];
  v_since   timestamptz;
  v_moved   int[];
  v_places  tid[];
begin
  -- This locks the rows that are still claimed under their lease, so the same rows are settled below.
  if p_outcome && '{3,4}' then
    v_failed := array(
      select d
      from generate_series(1, cardinality(p_outbox_id)) r(i)
      cross join lateral (
        select * from push.delivery d
        where d.ctid = p_place[r.i] and d.outbox_id = p_outbox_id[r.i] and d.n = p_n[r.i] and d.state = 1
          and d.owner = p_gateway and d.lease = p_lease[r.i] and d.kind = 0
          and d.deadline_at > v_now + case p_outcome[r.i] when 3 then interval '2 s' else '0' end
        offset 0 for no key update
      ) d
      where p_outcome[r.i] in (3, 4));
    v_cancels := array(
      select d
      from generate_series(1, cardinality(p_outbox_id)) r(i)
      cross join lateral (
        select * from push.delivery d
        where d.ctid = p_place[r.i] and d.outbox_id = p_outbox_id[r.i] and d.n = p_n[r.i] and d.state = 1
          and d.owner = p_gateway and d.lease = p_lease[r.i] and d.kind = 1
        offset 0 for no key update
      ) d
      where p_outcome[r.i] = 3);
  end if;
  if 'SaidByCancel' = any (p_reason) then
    v_said := array(
      select d
      from generate_series(1, cardinality(p_outbox_id)) r(i)
      cross join lateral (
        select * from push.delivery d
        where d.ctid = p_place[r.i] and d.outbox_id = p_outbox_id[r.i] and d.n = p_n[r.i] and d.state = 1
          and d.owner = p_gateway and d.lease = p_lease[r.i] and d.kind = 2
        offset 0 for no key update
      ) d
      where p_reason[r.i] = 'SaidByCancel');
  end if;

  -- Arrays by subscript: PL/pgSQL keeps them expanded. unnest would write each of the fifteen arrays into a tuple store of
  -- its own.
  with gone as (
    delete from push.delivery d
    using generate_series(1, cardinality(p_outbox_id)) r(i)
    where d.ctid = p_place[r.i] and d.outbox_id is not distinct from p_outbox_id[r.i]
      and d.n is not distinct from p_n[r.i] and d.state = 1 and d.owner = p_gateway and d.lease = p_lease[r.i]
    returning r.i, d.outbox_id, d.created_at, d.deadline_at, d.n, d.lane, d.kind, d.user_id, d.token, d.last_reason,
      d.failures, d.fallback_of
  ), receipts as (
    insert into push.receipt_batch (app, sent_at, due_at, give_up_at, ticket, outbox_id, n, user_id, token)
    select l.app, r.sent_at, least(v_now + r.after_ms * interval '1 ms', r.sent_at + interval '24 hours'),
      r.sent_at + interval '24 hours', r.ticket, r.outbox_id, r.n, r.user_id, r.token
    from (
      -- A gateway's clock may be fast.
      select g.lane, min(least(coalesce(p_sent_at[g.i], v_now), v_now)) as sent_at,
        max(p_receipt_after_ms[g.i]) as after_ms, array_agg(p_message_id[g.i]) as ticket,
        array_agg(g.outbox_id) as outbox_id, array_agg(g.n) as n, array_agg(g.user_id) as user_id,
        array_agg(g.token) as token
      from gone g
      where p_receipt_after_ms[g.i] is not null and p_outcome[g.i] <= 1 and p_message_id[g.i] is not null
      group by g.lane
    ) r cross join lateral (select l.app from push.lane l where l.id = r.lane offset 0) l
  )
  insert into push.history (outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner, lane, kind,
    outcome, status, user_id, call_id, device, token_hash, reason, provider_message_id, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, p_sent_at[g.i], p_answered_at[g.i], g.n, p_attempts[g.i], p_gateway,
    g.lane, g.kind, p_outcome[g.i], p_status[g.i], g.user_id, p_call_id[g.i], left(g.token, 4) || '…' || right(g.token, 4),
    hashtextextended(g.token, 0),
    case when p_outcome[g.i] <= 1 then p_reason[g.i]
      else coalesce(p_reason[g.i], g.last_reason,
        case p_outcome[g.i] when 2 then 'CallEnded' when 3 then 'DeadlinePassed' else 'Unknown' end)
    end,
    p_message_id[g.i],
    case when p_failures[g.i] is null then g.failures
      else push.last_failures(coalesce(g.failures, '[]') || p_failures[g.i]::jsonb) end,
    g.fallback_of
  from gone g;
  get diagnostics v_settled = row_count;

  if v_failed <> '{}' then
    perform from push.fall_back(v_failed);
  end if;
  if v_said <> '{}' then
    -- The cancels of these missed calls may have expired meanwhile. A variable, so that older partitions are not read.
    v_since := (select min(m.created_at) from unnest(v_said) m);
    v_cancels := v_cancels || array(
      select m from unnest(v_said) m
      where (select true from (
          select * from push.history h where h.outbox_id = m.outbox_id and h.finished_at >= v_since offset 0
        ) h
        where h.kind = 1 and h.outcome = 3 and h.lane = m.lane and h.token_hash = hashtextextended(m.token, 0) limit 1) is not null);
  end if;
  if v_cancels <> '{}' then
    perform push.announce_untold(v_cancels);
  end if;
  if v_settled < cardinality(p_outbox_id) then
    select array_agg(r.i), array_agg(d.tid) into v_moved, v_places
    from generate_series(1, cardinality(p_outbox_id)) r(i)
    cross join lateral (
      select d.ctid as tid from push.delivery d
      where d.outbox_id = p_outbox_id[r.i] and d.n = p_n[r.i] and d.state = 1 and d.owner = p_gateway
        and d.lease = p_lease[r.i] and d.ctid is distinct from p_place[r.i]
      offset 0
    ) d;
    if v_moved is not null then
      v_settled := v_settled + (
        select push.settle(p_gateway, v_places, array_agg(p_outbox_id[m.i] order by k), array_agg(p_n[m.i] order by k),
          array_agg(p_lease[m.i] order by k), array_agg(p_attempts[m.i] order by k), array_agg(p_outcome[m.i] order by k),
          array_agg(p_status[m.i] order by k), array_agg(p_reason[m.i] order by k), array_agg(p_message_id[m.i] order by k),
          array_agg(p_call_id[m.i] order by k), array_agg(p_sent_at[m.i] order by k),
          array_agg(p_answered_at[m.i] order by k), array_agg(p_failures[m.i] order by k),
          array_agg(p_receipt_after_ms[m.i] order by k))
        from unnest(v_moved) with ordinality m(i, k));
    end if;
  end if;
  return v_settled;
end
$$;
comment on function push.settle is
  'ends claimed deliveries and writes their history. Returns how many it accepted; if that is fewer than were passed, '
  'leases were lost and those results are dropped. p_gateway: the gateway that claimed them. Arrays, by delivery, in the '
  'order of the key: p_place: where the row was stored when it was claimed, or null; p_outbox_id, p_n, p_lease: the '
  'delivery, as claimed; p_attempts: attempts that were really made, retries under one lease included; p_outcome: 0 '
  'delivered, 1 delivered_late, 2 void, 3 expired, 4 dead; p_status: HTTP status; p_reason: the reason; p_message_id: the '
  'provider''s id; p_call_id: payload.callId; p_sent_at: when the last request was sent; p_answered_at: when the provider '
  'answered; p_failures: as for push.park; p_receipt_after_ms: for an Expo ticket (p_message_id), milliseconds until its '
  'receipt is looked up, else null. After an invite that failed for good while its call rings, an invite over the user''s '
  'next channel is made; after a cancel that expired, the missed call is sent (push.announce_untold)';

drop function if exists push.settled(int, bigint[], int[]);
create or replace function push.settled(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_created_at timestamptz[] default null
) returns table (outbox_id bigint, n int, created_at timestamptz)
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- A variable, so that older partitions are not read.
  v_since timestamptz := now() - interval '1 hour';
begin
  return query
    select r.outbox_id, r.n, r.created_at
    from unnest(p_outbox_id, p_n, p_created_at) r(outbox_id, n, created_at)
    where (select true from push.history h
      where h.outbox_id = r.outbox_id and h.n = r.n and h.owner = p_gateway and h.finished_at >= v_since
        and (r.created_at is null or greatest(h.created_at, push.oldest_time()) = r.created_at) limit 1) is not null;
end
$$;
comment on function push.settled is
  'those of these deliveries that the gateway has settled within the last hour. For when push.settle accepted fewer than '
  'it was passed, or its answer was lost. p_gateway: what push.register_gateway returned. Arrays, by delivery: '
  'p_outbox_id, p_n; p_created_at: push.delivery.created_at; null for a gateway of an earlier release';

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
  -- Due not later than the deadline, so that the index on due_at also finds waiting deliveries that have expired.
  update push.delivery d
  set state = 2, ready_lane = null, owner = null, attempt = m.attempts, last_reason = coalesce(m.reason, d.last_reason),
    due_at = least(clock_timestamp() + m.delay_ms * interval '1 ms', d.deadline_at),
    failures = case when m.failures is null then d.failures
      else push.last_failures(coalesce(d.failures, '[]') || m.failures::jsonb) end
  from mine m
  where d.ctid = m.tid and d.state = 1 and d.owner = p_gateway and d.lease = m.lease;
  get diagnostics v_parked = row_count;
  perform push.void_unsent(p_outbox_id, false);
  return v_parked;
end
$$;
comment on function push.park is
  'makes claimed deliveries wait for a later attempt. Invites of calls that have ended become void. Returns how many were '
  'still claimed by the gateway. p_gateway, p_outbox_id, p_n, p_lease, p_attempts: as for push.settle; p_delay_ms: the '
  'delay in milliseconds; p_reason: the reason; p_failures: the attempts that failed, each a JSON array of {"at", '
  '"attempt", "status", "reason"} or null, appended to earlier ones';

create or replace function push.release(p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_places tid[];
  v_leases int[];
begin
  select array_agg(d.tid), array_agg(r.lease) into v_places, v_leases
  from unnest(p_outbox_id, p_n, p_lease) r(outbox_id, n, lease)
  cross join lateral (
    select d.ctid as tid from push.delivery d
    where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease offset 0
  ) d;
  return push.give_back(p_gateway, v_places, v_leases);
end
$$;
comment on function push.release is
  'makes claimed deliveries ready again and takes back the attempt that the claim counted, for a shutdown or an open '
  'circuit. Invites of calls that have ended become void. Returns how many were still claimed by the gateway. p_gateway, '
  'p_outbox_id, p_n, p_lease: as for push.settle';
