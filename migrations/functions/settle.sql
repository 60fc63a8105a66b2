-- The end of a claim: deliveries are settled, parked for a later attempt, handed on to other gateways, or released. Locks, the condition on
-- the lease, and plans are described in claims.sql.

-- What is locked stays where it is. Another gateway locks a row of this one for a moment, to mark it (push.settle), so this waits. For a
-- row of another one it does not: backends and operators keep such locks for as long as they like, and have what they want of it.
create or replace function push.places(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_created_at timestamptz[] default null
) returns tid[]
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  return array(
    select coalesce(own.tid, other.tid) from generate_series(1, cardinality(p_outbox_id)) r(i)
    left join lateral (
      select d.ctid as tid from push.delivery d
      where d.outbox_id = p_outbox_id[r.i] and d.n = p_n[r.i] and d.lease = p_lease[r.i] and d.state = 1 and d.owner = p_gateway
        and p_created_at is null
      for no key update
    ) own on true
    left join lateral (
      select d.ctid as tid from push.delivery d
      where d.outbox_id = p_outbox_id[r.i] and d.n = p_n[r.i] and greatest(d.created_at, '2000-01-01 00:00:00+00') = p_created_at[r.i]
        and p_created_at is not null
      for no key update skip locked
    ) other on true
    order by r.i);
end
$$;
comment on function push.places is
  'locks deliveries, and returns where they are stored: those that the gateway has under their leases, or with p_created_at all that nobody '
  'has locked; null: not found. Arguments: as for push.settle';

-- One statement for the batch: deliveries go, their history is written with Expo's tickets, and calls that must be looked at are noted. It
-- makes no invite and locks no call. A delivery is found by the ctid that it had when it was claimed, which saves an index look-up; its
-- key is checked. The commit waits for the server's own disk (the session's synchronous_commit is local), so nobody has to remember what
-- was settled.
--
-- That a provider has accepted a push is a fact, whoever has the row by then. A row that nobody has ends by it; if another gateway has it,
-- it is marked, and ends as delivered whatever that gateway writes (here, push.park, push.free_rows). So nobody sends it again.
--
-- Arrays are read by subscript: PL/pgSQL keeps them expanded. unnest would write each of them into a tuple store of its own.
--
-- The key is compared with "is not distinct from", which no index supports. With "=", a merge join in the order of the key
-- could look cheap: a plan made while the table is small would then read the whole index for every batch, however large the
-- table has become.
create or replace function push.settle(
  p_gateway int, p_place tid[], p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_outcome smallint[],
  p_status smallint[], p_reason text[], p_message_id text[], p_call_id text[], p_sent_at timestamptz[], p_answered_at timestamptz[],
  p_failures text[] default null, p_receipt_after_ms int[] default null, p_created_at timestamptz[] default null
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_now     timestamptz := clock_timestamp();
  v_settled bigint := 0;
  v_more    bigint;
begin
  for v_pass in 1..3 loop
    with gone as (
      delete from push.delivery d
      using generate_series(1, cardinality(p_outbox_id)) r(i)
      where d.ctid = p_place[r.i] and d.outbox_id is not distinct from p_outbox_id[r.i]
        and d.n is not distinct from p_n[r.i] and (d.state = 1 and d.owner = p_gateway and d.lease = p_lease[r.i]
          or d.state <> 1 and v_pass = 3
            and (p_outcome[r.i] <= 1 or d.handed_on_by[cardinality(d.handed_on_by)] = p_gateway and d.lease = p_lease[r.i]))
      -- First what all three statements below need: each reads a row to the last column that it needs.
      returning r.i, case when p_outcome[r.i] > 1 and d.accepted_at is not null then (d.accepted_at > d.deadline_at)::int
          else coalesce(p_outcome[r.i], 4) end as outcome, d.kind, d.outbox_id, d.deadline_at, d.lane, d.n, d.created_at, d.environment,
        d.platform, case when d.state <> 1 then d.attempt end as tries, case when p_outcome[r.i] > 1 then d.accepted_at end as hedged_at,
        d.fallback_of, d.user_id, d.token, d.locale, d.data, d.last_reason, d.failures
    ), receipts as (
      insert into push.receipt_batch (app, sent_at, due_at, give_up_at, ticket, outbox_id, n, user_id, token)
      select l.app, r.sent_at, least(v_now + r.after_ms * interval '1 ms', r.sent_at + interval '24 hours'),
        r.sent_at + interval '24 hours', r.ticket, r.outbox_id, r.n, r.user_id, r.token
      from (
        -- A gateway's clock may be fast.
        select g.lane, min(least(coalesce(p_sent_at[g.i], v_now), v_now)) as sent_at, max(p_receipt_after_ms[g.i]) as after_ms,
          array_agg(p_message_id[g.i]) as ticket, array_agg(g.outbox_id) as outbox_id, array_agg(g.n) as n,
          array_agg(g.user_id) as user_id, array_agg(g.token) as token
        from gone g
        where p_receipt_after_ms[g.i] is not null and g.outcome <= 1 and p_message_id[g.i] is not null
        group by g.lane
      ) r cross join lateral (select l.app from push.lane l where l.id = r.lane offset 0) l
    ), noted as (
      insert into push.follow_ups (outbox_id, why, is_urgent)
      select distinct g.outbox_id, case g.kind when 0 then 'failed' else 'untold' end, g.kind = 0
      from gone g
      -- An invite that expired has no time left for another channel, unless its wait was longer than its window.
      where g.outcome >= 3 and g.kind = 0 and g.deadline_at > v_now + (g.outcome = 3)::int * interval '2 s'
        or g.outcome >= 3 and g.kind = 1 or g.kind = 2 and p_reason[g.i] = 'SaidByCancel'
    )
    insert into push.history (outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner, lane, kind, outcome, status,
      user_id, token, environment, platform, locale, data, reason, provider_message_id, failures, fallback_of)
    select g.outbox_id, g.created_at, g.deadline_at, p_sent_at[g.i], coalesce(g.hedged_at, p_answered_at[g.i]), g.n,
      coalesce(greatest(p_attempts[g.i], g.tries), 0), p_gateway, g.lane, g.kind, g.outcome,
      case when g.hedged_at is null then nullif(p_status[g.i], 0) end, g.user_id, g.token, g.environment, g.platform, g.locale, g.data,
      case when g.hedged_at is not null then 'Hedged' when g.outcome <= 1 or p_reason[g.i] is not null then p_reason[g.i]
        when g.outcome = 2 then coalesce((
          select case when o.ended_at is not null then 'Call' || initcap(o.state)
            else 'User' || replace(initcap(o.declined -> g.user_id ->> 'reason'), '_', '') end
          from push.outbox o where o.id = g.outbox_id), 'CallEnded')
        else coalesce(g.last_reason, case g.outcome when 3 then 'DeadlinePassed' else 'Unknown' end) end, p_message_id[g.i],
      case when p_failures[g.i] is null then g.failures
        else jsonb_path_query_array(coalesce(g.failures, '[]') || p_failures[g.i]::jsonb, '$[last - 19 to last]') end,
      g.fallback_of
    from gone g;
    get diagnostics v_more = row_count;
    v_settled := v_settled + v_more;
    exit when v_settled = cardinality(p_outbox_id) or v_pass = 3 or v_pass = 2 and p_created_at is null;
    -- A rewrite of the table has moved the others, or they are no longer ours.
    p_place := push.places(p_gateway, p_outbox_id, p_n, p_lease, case v_pass when 2 then p_created_at end);
  end loop;
  if v_settled < cardinality(p_outbox_id) then
    update push.delivery d set accepted_at = coalesce(p_answered_at[r.i], v_now) from generate_series(1, cardinality(p_outbox_id)) r(i)
      where d.ctid = p_place[r.i] and d.state = 1 and p_outcome[r.i] <= 1 and d.accepted_at is null;
  end if;
  return v_settled;
end
$$;
comment on function push.settle is
  'ends deliveries that are claimed, or were handed on and not claimed since, and writes their history. Returns how many it ended; if '
  'that is fewer than were passed, leases were lost: what was accepted is noted (push.delivery.accepted_at), other results are dropped. '
  'p_gateway: the gateway that claimed them. Arrays, by delivery, in the '
  'order of the key: p_place: where the row was stored when it was claimed, or null; p_outbox_id, p_n, p_lease: the '
  'delivery, as claimed; p_attempts: attempts that were really made, retries under one lease included; p_outcome: 0 '
  'delivered, 1 delivered_late, 2 void, 3 expired, 4 dead; p_status: HTTP status, 0: no answer; p_reason: the reason; p_message_id: the '
  'provider''s id; p_sent_at: when the last request was sent; p_answered_at: when the provider '
  'answered; p_failures: as for push.park; p_receipt_after_ms: for an Expo ticket (p_message_id), milliseconds until its '
  'receipt is looked up, else null; p_created_at: as claimed, null: of a gateway of release 0.1.0, for which p_call_id stands, too, which is '
  'unused. p_reason null: for a void delivery '
  'CallAnswered, CallEnded, CallMissed, UserDeclined, UserBusy or UserConnectionFailed. Notes invites and cancels that failed for good or '
  'expired, for push.follow_up';

create or replace function push.settled(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_created_at timestamptz[] default null
) returns table (outbox_id bigint, n int, created_at timestamptz)
language sql stable security definer set search_path = push, pg_temp as $$
  select r.outbox_id, r.n, r.created_at
  from unnest(p_outbox_id, p_n, p_created_at) r(outbox_id, n, created_at)
  where (select true from push.history h
    where h.outbox_id = r.outbox_id and h.n = r.n and h.owner = p_gateway and h.finished_at >= now() - interval '1 hour'
      and (r.created_at is null or greatest(h.created_at, '2000-01-01 00:00:00+00') = r.created_at) limit 1) is not null
$$;
comment on function push.settled is
  'those of these deliveries that the gateway has settled within the last hour. For when push.settle accepted fewer than '
  'it was passed, or its answer was lost. p_gateway: what push.register_gateway returned. Arrays, by delivery: '
  'p_outbox_id, p_n; p_created_at: push.delivery.created_at; null for a gateway of an earlier release';

-- The call is not looked at: if it has ended, the next claim says so, and the invite becomes void then.
--
-- What is handed on stays ready: a job that makes it ready would come up to 250 ms late. Gateways poll, so they find it within 50 ms. An
-- invite that is not to be tried again here within 2 s of its call is then tried over the user's next channel as well, unless others have
-- rung it (push.bypass does this for those that wait).
create or replace function push.park(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_delay_ms int[], p_reason text[],
  p_failures text[] default null, p_hand_on boolean[] default null
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_now    timestamptz := clock_timestamp();
  v_places tid[] := push.places(p_gateway, p_outbox_id, p_n, p_lease);
  v_parked bigint;
begin
  with parked as (
    -- Due not later than the deadline, so that the index on due_at also finds waiting deliveries that have expired.
    update push.delivery d
    set state = case when p_delay_ms[r.i] is null or p_hand_on[r.i] then 0 else 2 end,
      ready_lane = case when p_delay_ms[r.i] is null or p_hand_on[r.i] then d.ready_lane end, owner = null, found_ended = false,
      -- Who had it before begins the next round.
      handed_on_by = case when p_hand_on[r.i] is not true then d.handed_on_by when p_gateway = any (d.handed_on_by) then array[p_gateway]
        else d.handed_on_by || p_gateway end, handed_on_at = v_now,
      attempt = coalesce(p_attempts[r.i], greatest(d.attempt - 1, 0)), last_reason = coalesce(p_reason[r.i], d.last_reason),
      -- In a round, the first time at which one of those that had it may have it again. What one was told to wait keeps it from no other.
      due_at = least(case when p_hand_on[r.i] and p_gateway <> all (d.handed_on_by)
          then greatest(v_now + least(p_delay_ms[r.i], 250) * interval '1 ms', least(d.due_at, v_now + p_delay_ms[r.i] * interval '1 ms'))
        else v_now + coalesce(p_delay_ms[r.i], 0) * interval '1 ms' end, d.deadline_at),
      failures = case when p_failures[r.i] is null then d.failures
        else jsonb_path_query_array(coalesce(d.failures, '[]') || p_failures[r.i]::jsonb, '$[last - 19 to last]') end,
      bypassed_at = case when p_hand_on[r.i] and d.kind = 0 and d.accepted_at is null
          and v_now + p_delay_ms[r.i] * interval '1 ms' >= d.created_at + interval '2 s'
        then coalesce(d.bypassed_at, v_now) else d.bypassed_at end
    from generate_series(1, cardinality(p_outbox_id)) r(i)
    where d.ctid = v_places[r.i]
    returning d.ctid as place, d.outbox_id, d.created_at, d.bypassed_at, d.accepted_at
  ), noted as (
    insert into push.follow_ups (outbox_id, why, is_urgent, due_at)
    select distinct p.outbox_id, 'stuck', true, greatest(v_now, p.created_at + interval '2 s') from parked p where p.bypassed_at = v_now
  )
  select count(*), array_agg(p.place) filter (where p.accepted_at is not null) into v_parked, v_places from parked p;
  perform push.bury(v_places, 0) where v_places is not null;
  if array_position(p_delay_ms, null) is not null or true = any (p_hand_on) then
    perform push.ring_doorbell();
  end if;
  return v_parked;
end
$$;
comment on function push.park is
  'returns claimed deliveries to the outbox. Returns how many were still claimed by the gateway. p_gateway, p_outbox_id, p_n, p_lease: as '
  'for push.settle; p_attempts: attempts that were made, null: without the one that the claim counted; p_delay_ms: how long they wait, '
  'in milliseconds, null: they are ready at once; p_reason: why, or null; p_failures: the attempts that failed, each a JSON array of '
  '{"at", "attempt", "status", "reason"} or null, appended to earlier ones; p_hand_on: true: until p_delay_ms are over, or, if that is '
  'earlier, the wait of one that had it before in this round (250 ms at least), only gateways that have not handed it on '
  '(push.delivery.handed_on_by) may claim it; otherwise it waits, and push.promote makes it ready';

-- A gateway of release 0.1.0 releases an invite when the claim says that its call has ended.
create or replace function push.release(p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_none   int[] := array_fill(null::int, array[coalesce(cardinality(p_outbox_id), 0)]);
  v_parked bigint := push.park(p_gateway, p_outbox_id, p_n, p_lease, v_none, v_none, v_none::text[]);
begin
  perform push.void_unsent(p_outbox_id);
  return v_parked;
end
$$;
comment on function push.release is
  'for gateways of release 0.1.0: push.park without a delay and without the attempt. Invites of calls that have ended become void. '
  'p_gateway, p_outbox_id, p_n, p_lease: as for push.settle';

create or replace function push.disown(p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[]) returns bigint
language sql volatile security definer set search_path = push, pg_temp as $$
  select push.free_rows(array_remove(push.places(p_gateway, p_outbox_id, p_n, p_lease), null), array[p_gateway])
$$;
comment on function push.disown is
  'for deliveries that are claimed in the gateway''s name and that it does not know, because a fail-over has lost what it settled: those '
  'that people see end as dead (GatewayCrashed) unless the app is at_least_once, the others become ready. p_gateway, p_outbox_id, p_n, '
  'p_lease: as for push.settle. Returns how many';
