-- What became of claimed deliveries: settled, parked for a later try, or given back. Locks, fences and plans: claims.sql.

create or replace function push.last_failures(p_failures jsonb) returns jsonb language sql immutable parallel safe as $$
  select case when jsonb_array_length(p_failures) <= 20 then p_failures else (
    select jsonb_agg(f.failure order by f.ordinal)
    from jsonb_array_elements(p_failures) with ordinality f(failure, ordinal)
    where f.ordinal > jsonb_array_length(p_failures) - 20) end
$$;
comment on function push.last_failures is 'the last 20 of a list of failed tries';

-- One statement for the batch. A delivery is found where it lay when it was claimed, which spares a look into an index; the
-- key says whether it is still the same. One that lies elsewhere by now (only a rewrite of the table does that to a claimed
-- row) is looked up by its key, and settled by a second pass. Receipts to come are noted from what was settled.
--
-- The key is asked by "is not distinct from", which no index knows. By "=" it would make the order of the key worth having for
-- a merge join: a plan made while the table is small then reads all of the index, for every batch, however much has come since.
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
  -- This locks what it found still claimed under its lease, so it is the same that is settled below.
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

  -- Arrays by subscript, which PL/pgSQL keeps expanded: unnest would write each of the fifteen into a store of its own.
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
      -- A gateway's clock may be ahead.
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
    -- Their cancels may have expired meanwhile. A variable, so that older partitions are not looked at.
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
  'ends claimed deliveries and writes their history; returns how many it accepted: fewer than given means that leases '
  'were lost, and those results are dropped. p_gateway: who has them; arrays, by delivery, in the order of the key: p_place: '
  'where it lay when it was claimed, or null; p_outbox_id, p_n, p_lease: which, as claimed; p_attempts: tries really made, '
  'retries under one lease included; p_outcome: 0 delivered, 1 delivered_late, 2 void, 3 expired, 4 dead; p_status: HTTP '
  'status; p_reason; p_message_id: the provider''s id; p_call_id: payload.callId; p_sent_at, p_answered_at; p_failures: as '
  'for push.park; p_receipt_after_ms: not null for an Expo ticket (p_message_id) whose receipt is due so much later. An '
  'invite that failed for good while its call rings is followed by one over the user''s next channel, a cancel that expired by the '
  'missed call (push.announce_untold)';

create or replace function push.settled(p_gateway int, p_outbox_id bigint[], p_n int[]) returns table (outbox_id bigint, n int)
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- A variable, so that older partitions are not looked at.
  v_since timestamptz := now() - interval '1 hour';
begin
  return query
    select r.outbox_id, r.n
    from unnest(p_outbox_id, p_n) r(outbox_id, n)
    where (select true from push.history h
      where h.outbox_id = r.outbox_id and h.n = r.n and h.owner = p_gateway and h.finished_at >= v_since) is not null;
end
$$;
comment on function push.settled is
  'which of these deliveries the gateway has settled within the last hour: asked where push.settle accepted fewer than '
  'it was given, or its answer was lost. p_gateway: what push.register_gateway returned; arrays, by delivery: '
  'p_outbox_id, p_n';

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
  'claimed to waiting; invites of calls that have ended are void; returns how many were still the caller''s. p_gateway, '
  'p_outbox_id, p_n, p_lease, p_attempts: as for push.settle; p_delay_ms: for how many milliseconds; p_reason: why; '
  'p_failures: the tries that failed, each a JSON array of {"at", "attempt", "status", "reason"} or null, kept with '
  'earlier ones';

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
  'claimed to ready with the attempt given back, for a shutdown or an open circuit; invites of calls that have ended '
  'are void; returns how many were still the caller''s. p_gateway, p_outbox_id, p_n, p_lease: as for push.settle';
