-- Claims: a gateway takes deliveries under a number that it counts, and no answer that gets lost leaves one owed for ever.
--
-- Locks are taken in this order: push.gateways, push.outbox (ascending id), push.delivery (ascending outbox_id, n), the rest
-- (push.fallback_turn ascending, push.receipt_batch, push.life, push.job). Only these wait for a lock while they hold another:
--   push.forget        has its gateway's row, waits for deliveries
--   push.reclaim       has its gateway's row, waits for deliveries, in order
--   the end of a call  has the call's row, waits for the call's deliveries, in order (push.void_unsent); so has and does
--                      push.decline_call
--   its deletion       has the call's row, waits for the call's deliveries, in order, and for what belongs to the call
--                      (push.drop_calls); TRUNCATE has the tables, in this order, too
--   push.settle        has deliveries, waits for its turn with a call (push.fall_back); who has the turn waits for nobody
--   push.requeue       has the call's row, waits for the turn, then for deliveries
-- Everything else that locks several rows passes by what is locked ("skip locked"), in whatever order it comes, and finds it
-- the next time: push.claim, free_claims, promote, expire, park, release, their void_unsent, and announce_untold.
--
-- A claim is named by (owner, lease), the gateway and the claim's number. Every transition of a claimed delivery is fenced by
-- (state, owner, lease), so that a gateway that lost its claim changes nothing. The transition of a delivery that a claim
-- makes touches no index, which half-empty pages make a HOT update: see the indexes of push.delivery.
--
-- The functions are PL/pgSQL with pinned plans: PostgreSQL 15 plans a SQL function anew at every call, and statistics
-- taken while the queue was empty or full would change the plan at the worst time. A function's plan is made once a
-- session, maybe while the tables are empty. A join with push.delivery may then be planned to walk the table and to look
-- into the caller's batch for each row; once the table has filled, the session stays ten to a thousand times slower than
-- the next. So nothing here, or in whatever else settles deliveries, joins a table that grows: a row is looked up "cross
-- join lateral (… offset 0)", which can only run once for each row of the batch, and is changed by its ctid, which no plan
-- can find otherwise. The fence is a condition of the change itself: it is asked of the row's newest version.

-- Claiming ------------------------------------------------------------------------------------------------------------

-- The lanes are looked into only until the claim is full, in the order they are asked for, so that claims cost the same
-- with six hundred lanes as with three: a lane without anything ready costs next to nothing. What is taken in all is
-- bounded by rows; a lane's limit is its share (the gateway knows which lanes have more). What has more than ten
-- minutes, which no ring has, goes after what has less, and has a bound of its own. All rows of a claim are taken by
-- one statement. The end of a call needs no look here (call_rules.sql).
--
-- What is claimed stays in the index until it is settled, in front of what is ready: its deadlines are the earliest. A claim
-- without a floor therefore steps over all that is in flight, at a quarter of a microsecond each; with a floor, the newest
-- deadline that the gateway has claimed of the lane less a little, over hardly any. push.entries_scanned says how many there were.
--
-- The gateway's row is locked last, without waiting, and only if there is something to take: so an empty claim writes
-- nothing. The lock says that this claim is running: push.forget waits for it, or has barred it. It is the weakest there is
-- ("key share"), which lets the gateway's own heartbeat pass.
create or replace function push.claim(
  p_gateway int, p_claim int, p_lanes smallint[], p_max int[], p_floor timestamptz[],
  p_slack interval default '300 ms', p_total int default null, p_background int default null,
  p_later_floor timestamptz[] default '{}', p_later_max int[] default '{}'
) returns table (
  place tid, lane smallint, outbox_id bigint, n int, attempt int, kind smallint, crashes smallint, environment smallint,
  platform smallint, created_at timestamptz, deadline_at timestamptz, remaining_us bigint, user_id text, token text,
  locale text, data jsonb, app_call_kind text, call_id text, end_reason text, ended boolean, traceparent text, payload jsonb
)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- An index condition, not a filter: under a transaction that holds back vacuum the index is full of dead entries with
  -- past deadlines, and starting behind them keeps the claim fast. clock_timestamp() here would make it a filter.
  v_first    timestamptz := statement_timestamp() + p_slack;
  v_near     timestamptz := v_first + interval '10 minutes';
  -- Whoever owns the tables may write any time into them, infinity included: one such row must not fail the claim of all, nor
  -- overflow what a gateway computes.
  v_oldest   timestamptz := v_first - interval '1 year';
  v_newest   timestamptz := v_first + interval '1 year';
  v_total    bigint := coalesce(p_total, 2147483647);
  v_later    bigint := coalesce(p_background, 2147483647);
  v_paused   smallint[] := array(select l.id from push.lane l where l.paused);
  v_ringing  smallint[];
  v_tids     tid[];
  v_suspect  tid;
  v_of_lane  smallint;
  v_is_later boolean;
  v_read     bigint := coalesce(pg_stat_get_xact_tuples_returned('push.delivery_ready'::regclass), 0);
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive and g.claims_from <= p_claim)
    or not exists (select from push.life l where l.is_present and l.opened_at is not null) then
    return;
  end if;
  -- One suspect at a time. As a rule there is none anywhere, and that is quickly seen.
  if v_total > 0 and exists (select from push.delivery d where d.crashes >= 2)
    and not exists (select from push.delivery d where d.crashes >= 2 and d.state = 1 and d.owner = p_gateway) then
    select suspect.tid, u.lane, suspect.is_later into v_suspect, v_of_lane, v_is_later
      from unnest(p_lanes, p_max, p_later_max) u(lane, most, later_most)
      cross join lateral (
        select d.ctid as tid, d.deadline_at > v_near as is_later from push.delivery d
        where d.crashes >= 2 and d.lane = u.lane and d.deadline_at > v_first and d.state = 0
          and (d.deadline_at <= v_near or least(u.most, u.later_most, v_later) > 0)
        order by d.deadline_at
        limit 1
        for no key update skip locked
      ) suspect
      where u.most > 0 and u.lane <> all (v_paused)
      limit 1;
    if v_suspect is not null then
      v_total := v_total - 1;
      v_later := v_later - v_is_later::int;
      p_max[array_position(p_lanes, v_of_lane)] := p_max[array_position(p_lanes, v_of_lane)] - 1;
    end if;
  end if;
  -- No order by: it would look into every lane before the first row. A nested loop keeps the order of p_lanes.
  select array_agg(pick.tid), array_agg(pick.lane) into v_tids, v_ringing
  from (
    select near.tid, u.lane
    from unnest(p_lanes, p_max, p_floor) u(lane, most, floor)
    cross join lateral (
      select d.ctid as tid from push.delivery d
      where d.ready_lane = u.lane and d.deadline_at > greatest(u.floor, v_first) and d.deadline_at <= v_near
        and d.state = 0
      order by d.deadline_at
      limit u.most
      for no key update skip locked
    ) near
    where u.most > 0 and u.lane <> all (v_paused)
    limit v_total
  ) pick;
  v_later := least(v_later, v_total - coalesce(cardinality(v_tids), 0));
  if v_later > 0 then
    v_ringing := array(select distinct unnest(v_ringing));
    v_tids := v_tids || array(
      select later.tid
      from unnest(p_lanes, p_max, p_later_max, p_floor, p_later_floor) u(lane, most, later_most, floor, later_floor)
      cross join lateral (
        select d.ctid as tid from push.delivery d
        where d.ready_lane = u.lane and d.deadline_at > greatest(u.later_floor, u.floor, v_near) and d.state = 0
        order by d.deadline_at
        limit least(u.most, u.later_most)
        for no key update skip locked
      ) later
      where least(u.most, u.later_most) > 0 and u.lane <> all (v_paused) and u.lane <> all (v_ringing)
      limit v_later
    );
  end if;
  perform set_config('push.entries_scanned',
    (coalesce(pg_stat_get_xact_tuples_returned('push.delivery_ready'::regclass), 0) - v_read)::text, false);
  if v_suspect is not null then
    v_tids := v_tids || v_suspect;
  end if;
  if v_tids is null or v_tids = '{}' then
    return;
  end if;
  perform from push.gateways g where g.id = p_gateway and g.alive and g.claims_from <= p_claim for key share skip locked;
  if not found then
    return;
  end if;
  return query
    with taken as (
      -- The rows come in the order of their places, so those of a call stand together, whatever their lanes.
      update push.delivery d
      set state = 1, owner = p_gateway, lease = p_claim, attempt = least(d.attempt, 1000000000) + 1
      where d.ctid = any (v_tids)
      returning d.ctid as place, d.lane, d.outbox_id, d.n, d.attempt, d.kind, d.crashes, d.environment, d.platform,
        d.created_at, d.deadline_at, d.user_id, d.token, d.locale, d.data
    )
    select t.place, t.lane, t.outbox_id, t.n, t.attempt, t.kind, t.crashes, t.environment, t.platform,
      greatest(t.created_at, v_oldest), least(t.deadline_at, v_newest),
      -- Not extract, which calculates in numeric: half a microsecond a row.
      (date_part('epoch', least(t.deadline_at, v_newest) - clock_timestamp()) * 1000000)::bigint,
      t.user_id, t.token, t.locale, t.data, o.kind, o.call_id, o.end_reason,
      -- A transaction that did not see the delivery (REPEATABLE READ) has deleted its call: push.check_ends drops it soon.
      case when t.is_first then coalesce(o.ended, true) end,
      o.traceparent, o.payload
    from (select t.*, lag(t.outbox_id) over () is distinct from t.outbox_id as is_first from taken t offset 0) t
    left join lateral (
      select o.kind, o.call_id, o.payload, o.ended_at is not null as ended, o.traceparent,
        -- While it rings, cancels are those of users who declined.
        coalesce(o.end_reason, case when o.declined is not null then 'declined' end) as end_reason
      from push.outbox o
      where o.id = t.outbox_id and t.is_first offset 0
    ) o on true;
end
$$;
comment on function push.claim is
  'takes up to p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first, with deadlines after '
  'p_floor[i] and more than p_slack away; nothing from a paused lane, nothing for a gateway declared dead, nothing before '
  'push.life is opened, and at most one suspect. p_gateway: what push.register_gateway returned; p_claim: the claim''s '
  'number, which the gateway counts and which becomes the deliveries'' lease; p_total: the most of all lanes together, which '
  'are looked into in the order of p_lanes until it is reached; p_background: the most of those whose deadline is more than '
  'ten minutes away, which go last; p_later_floor, p_later_max: as p_floor and p_max, for these. Returns what a push '
  'needs, in no order. place: where the row lies, for push.settle; remaining_us: microseconds to the deadline; '
  'app_call_kind to payload are those of the call, on at least one of its rows, and null (as call_id is then) on others; '
  'ended: a call no longer rings (a notification never did), or was deleted, and then the others are null. The session''s '
  'setting push.entries_scanned says how many index entries it scanned, dead ones included';

-- When an answer is lost ------------------------------------------------------------------------------------------------

create or replace function push.claimed_places(p_gateways int[], p_claim int default null) returns tid[]
language plpgsql stable set search_path = push, pg_temp set enable_seqscan = on set max_parallel_workers_per_gather = 0
set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  -- The whole table is read, on purpose: an index on owner would cost each claim an entry.
  if p_claim is null then
    return array(select d.ctid from push.delivery d where d.state = 1 and d.owner = any (p_gateways));
  end if;
  return array(select d.ctid from push.delivery d where d.state = 1 and d.owner = p_gateways[1] and d.lease = p_claim);
end
$$;
comment on function push.claimed_places is
  'where the deliveries lie that are claimed in these gateways'' names. p_gateways: push.gateways.id; p_claim: only those of '
  'the claim with this number, of the first gateway. For push.forget and push.free_claims; reads all of push.delivery';

-- An invite becomes ready only under a share lock on its call, which an end in progress denies (call_rules.sql).
create or replace function push.give_back(p_gateway int, p_place tid[], p_lease int[]) returns bigint
language plpgsql volatile set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_given  bigint;
  v_unsure bigint[];
begin
  with mine as materialized (
    select p_place[r.i] as tid, p_lease[r.i] as lease, d.outbox_id, d.kind <> 0 or coalesce((
        select true from push.outbox o
        where o.id = d.outbox_id and o.ended_at is null and not coalesce(o.declined ? d.user_id, false)
        for share skip locked
      ), false) as rings
    from generate_series(1, cardinality(p_place)) r(i)
    cross join lateral (
      select d.outbox_id, d.kind, d.user_id from push.delivery d
      where d.ctid = p_place[r.i] and d.state = 1 and d.owner = p_gateway and d.lease = p_lease[r.i] offset 0
    ) d
  ), given as (
    update push.delivery d
    set state = case when m.rings then 0 else 2 end, ready_lane = case when m.rings then d.ready_lane end, owner = null,
      attempt = greatest(d.attempt - 1, 0), due_at = clock_timestamp()
    from mine m
    where d.ctid = m.tid and d.state = 1 and d.owner = p_gateway and d.lease = m.lease
    returning d.outbox_id, m.rings
  )
  select count(*), array_agg(distinct g.outbox_id) filter (where not g.rings) into v_given, v_unsure from given g;
  perform push.void_unsent(v_unsure, false);
  if v_given > 0 then
    perform push.ring_doorbell();
  end if;
  return v_given;
end
$$;
comment on function push.give_back is
  'claimed to ready with the attempt given back; invites of calls that have ended are void, those of calls that are being '
  'ended wait. p_gateway: whose; arrays, by delivery: p_place: where it lies, p_lease: as claimed. Returns how many were '
  'still the gateway''s. For push.release and push.forget';

create or replace function push.forget(p_gateway int, p_claim int) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_places tid[];
begin
  -- "for update", which an update of these columns would not take by itself, waits for a claim that is running and bars it
  -- to one that has picked its rows and not yet locked this one. The next statement sees what the claim took.
  perform from push.gateways g where g.id = p_gateway and g.alive and g.claims_from <= p_claim for update;
  if not found then
    return 0;
  end if;
  update push.gateways g set claims_from = p_claim + 1 where g.id = p_gateway;
  v_places := push.claimed_places(array[p_gateway], p_claim);
  return push.give_back(p_gateway, v_places, array_fill(p_claim, array[cardinality(v_places)]));
end
$$;
comment on function push.forget is
  'the answer to a claim was lost: if it has not begun it takes nothing any more; if it runs it is waited for; what it took '
  'is ready again, with the attempt given back, and invites of ended calls are void. The same goes for numbers below, which '
  'are barred only. p_gateway: what push.register_gateway returned; p_claim: the claim''s number. Returns how many it gave '
  'back; calling it again is harmless';

-- In order, for it waits: a row may be locked by whoever takes over from the gateway, and is nobody's a moment later.
create or replace function push.reclaim(p_gateway int, p_claim int, p_outbox_id bigint[], p_n int[])
returns table (i int, place tid)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  v_i     int[];
  v_tid   tid[];
  -- It was asked to reclaim, since commits may have been lost. A delivery that it holds, or has settled, may then be another's by
  -- a claim of before, which that one had given back: whatever came after was lost, or this gateway would not be alive.
  v_asked boolean := exists (select from push.reclaimed r where r.gateway = p_gateway and r.confirmed_at is null);
begin
  perform from push.gateways g where g.id = p_gateway and g.alive and g.claims_from <= p_claim for key share;
  if not found then
    return;
  end if;
  select array_agg(mine.i), array_agg(mine.tid) into v_i, v_tid
  from (
    select r.i, d.tid
    from (
      select r.i, r.outbox_id, r.n from unnest(p_outbox_id, p_n) with ordinality r(outbox_id, n, i)
      order by r.outbox_id, r.n offset 0
    ) r
    cross join lateral (
      select d.ctid as tid from push.delivery d
      where d.outbox_id = r.outbox_id and d.n = r.n and (v_asked or d.state <> 1 or d.owner = p_gateway
        or (select g.alive from push.gateways g where g.id = d.owner) is not true)
      for no key update
    ) d
  ) mine;
  return query
    update push.delivery d
    set state = 1, owner = p_gateway, lease = p_claim, ready_lane = case when d.crashes < 2 then d.lane end,
      attempt = d.attempt + case when d.state = 1 and d.owner = p_gateway then 0 else 1 end
    from generate_series(1, cardinality(v_tid)) r(k)
    where d.ctid = v_tid[r.k]
    returning v_i[r.k], d.ctid;
end
$$;
comment on function push.reclaim is
  'of these deliveries, those that exist become the gateway''s own under a new number. After a crash of the server, which may '
  'have lost the claims and settlements of its last moment, until push.confirm_reclaimed: whosever they are, so that nothing '
  'may be named that was, or may have been, given back. After it was declared dead itself: its own and nobody''s (not claimed, '
  'or by one that has ended). p_gateway: what push.register_gateway returned; p_claim: the number of '
  'this claim; arrays, by delivery: p_outbox_id, p_n. Returns which (i, the subscript, from 1) and where they lie now; '
  'calling it again with the same arguments is harmless';

create or replace function push.claimed_by(
  p_gateway int, p_from_page bigint, p_pages int default 2000,
  out outbox_id bigint[], out n int[], out lease int[], out next_page bigint
)
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  v_from  tid := format('(%s,0)', greatest(p_from_page, 0))::tid;
  v_until tid := format('(%s,0)', greatest(p_from_page, 0) + greatest(p_pages, 1))::tid;
begin
  select coalesce(array_agg(d.outbox_id), '{}'), coalesce(array_agg(d.n), '{}'), coalesce(array_agg(d.lease), '{}')
    into outbox_id, n, lease
    from push.delivery d
    where d.ctid >= v_from and d.ctid < v_until and d.state = 1 and d.owner = p_gateway;
  next_page := greatest(p_from_page, 0) + greatest(p_pages, 1);
  if next_page >= pg_relation_size('push.delivery') / current_setting('block_size')::int then
    next_page := null;
  end if;
end
$$;
comment on function push.claimed_by is
  'the deliveries claimed in a gateway''s name in one bite of the table. p_gateway: what push.register_gateway returned; '
  'p_from_page: 0, then next_page of the bite before; p_pages: how many pages are read. Arrays, by delivery: outbox_id, n and '
  'lease, the claim''s number; next_page: null at the end';

create or replace function push.ended(p_outbox_id bigint[]) returns bigint[]
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  return array(
    select c.id from unnest(p_outbox_id) c(id)
    where c.id is not null and (
      select true from push.outbox o
      where o.id = c.id and o.ended_at is null
        and (o.declined is null or not exists (
          select from push.delivery d where d.outbox_id = c.id and d.kind = 0 and d.state = 1 and o.declined ? d.user_id))
      ) is null);
end
$$;
comment on function push.ended is
  'which of these calls no longer ring, or were deleted, or have claimed invites of a user who has declined: what of them has not '
  'left is to be given back, and those of other users are ready again. A notification of push_control is a hint, and what it names '
  'is looked up. '
  'p_outbox_id: push.outbox.id';
