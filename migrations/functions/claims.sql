-- Claims: a gateway takes deliveries under a number that it counts up, so that a claim whose answer is lost can be found
-- and undone.
--
-- Locks are taken in this order: push.gateways, push.follow_ups (skip locked), push.outbox (by push.follow_up with skip locked; only
-- backends and operators, who change a call, wait for one), push.delivery, the rest (push.receipt_batch, push.job). Only these wait for a
-- lock while they hold another: push.forget holds its gateway's row and waits for deliveries; push.requeue holds a call and waits for
-- its deliveries. push.settle and push.park wait only for whoever has locked a row of their own, to mark it. Everything else that locks
-- several rows skips locked rows ("skip locked"), in any order, and finds them the next time.
--
-- A claim is identified by (owner, lease): the gateway and the claim's number. Every transition of a claimed delivery has
-- the condition (state, owner, lease), so a gateway that lost its claim changes nothing. A claim changes no indexed column
-- of a delivery, and pages are left half empty, so it is a HOT update: see the indexes of push.delivery.
--
-- The functions are PL/pgSQL with fixed plans (roles.sql): PostgreSQL 15 plans a SQL function anew at every call. Nothing here, and
-- nothing else that settles deliveries, joins a table that grows. A row is looked up with "cross join lateral (… offset 0)", and changed
-- by its ctid; the condition (state, owner, lease) is part of the change itself, so it is checked on the row's newest version.

-- Claiming ------------------------------------------------------------------------------------------------------------

-- Called only for what was returned to the outbox before, or if a lane is sick: its row is read to the last column. PL/pgSQL, because a SQL
-- function would become part of the query, and then each row would be read so.
create or replace function push.is_offered(p_row push.delivery, p_gateway int, p_last smallint[]) returns boolean
language plpgsql stable as $$
begin
  return p_row.handed_on_by is null and p_row.lane <> all (p_last) or (p_row.handed_on_by is null or p_row.attempt = 0 or -p_row.lane <> all (p_last))
    and case when p_gateway <> all (p_row.handed_on_by) then least(p_row.handed_on_at, p_row.due_at) else p_row.due_at end <= statement_timestamp()
      - interval '100 ms' * case when p_row.lane = any (p_last) then coalesce(array_position(p_row.handed_on_by, p_gateway), 1) else 0 end;
end
$$;
comment on function push.is_offered is 'whether p_gateway may claim a ready delivery, which may have been handed on. While its lane is sick '
  'there (p_last), others come first, by 100 ms: they poll every 50 ms. Of those that are sick, too, the one comes first that had it longest ago';

-- Lanes are read in the order of p_lanes, and only until the claim is full, so a claim costs the same with six hundred
-- lanes as with three: a lane without ready deliveries costs next to nothing. p_total limits the rows of the claim; p_max
-- is a lane's share (the gateway knows which lanes have a backlog). Deliveries with more than ten minutes left, which no
-- call has, come after those with less, and have a limit of their own.
--
-- A claimed delivery stays in the index until it is settled, before the ready ones, because its deadline is earlier. A
-- claim without a floor therefore steps over all claimed deliveries, at a quarter of a microsecond each. The floor is a
-- little below the newest deadline that the gateway has claimed from the lane; with a floor, a claim steps over very few.
--
-- Usually there is no suspect at all, and a gateway has at most one at a time. Lanes are read without "order by", which would read every
-- lane before the first row: a nested loop keeps the order of p_lanes.
--
-- push.entries_scanned holds the number of index entries read; it is set by an assignment, as "perform" would run a query. If the index has
-- another name, the number is 0, and push.health says that it is missing. The condition on push.origin is that of push.restored_at, as
-- calling it would cost ten times as much.
create or replace function push.pick(
  p_gateway int, p_claim int, p_lanes smallint[], p_max int[], p_floor timestamptz[], p_first timestamptz, p_total bigint,
  p_background bigint, p_later_floor timestamptz[], p_later_max int[], p_last smallint[], out places tid[], out calls bigint[]
)
language plpgsql volatile as $$
declare
  v_near    timestamptz := p_first + interval '10 minutes';
  v_paused  smallint[] := array(select l.id from push.lane l where l.paused);
  v_ringing smallint[];
  v_suspect record;
  v_read    bigint := coalesce(pg_stat_get_xact_tuples_returned(to_regclass('push.delivery_ready')), 0);
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive and g.claims_from <= p_claim)
    or exists (select from push.origin o where o.written_at > o.made_at + interval '1 s') then
    return;
  end if;
  if p_total > 0 and exists (select from push.delivery d where d.crashes >= 2)
    and not exists (select from push.delivery d where d.crashes >= 2 and d.state = 1 and d.owner = p_gateway) then
    select suspect.*, u.i into v_suspect
    from unnest(p_lanes, p_max, p_later_max) with ordinality u(lane, most, later_most, i)
    cross join lateral (
      select d.ctid as place, d.outbox_id, d.deadline_at > v_near as is_late from push.delivery d
      where d.crashes >= 2 and d.lane = u.lane and d.deadline_at > p_first and d.state = 0
        and (d.deadline_at <= v_near or least(u.most, u.later_most, p_background) > 0)
        and (d.due_at = d.created_at and u.lane <> all (p_last) or push.is_offered(d, p_gateway, p_last))
      order by d.deadline_at limit 1 for no key update skip locked
    ) suspect
    where u.most > 0 and u.lane <> all (v_paused) limit 1;
    if found then
      p_total := p_total - 1;
      p_background := p_background - v_suspect.is_late::int;
      p_max[v_suspect.i] := p_max[v_suspect.i] - 1;
    end if;
  end if;
  select array_agg(near.place), array_agg(near.outbox_id), coalesce(array_agg(distinct near.lane), '{}') into places, calls, v_ringing
  from (
    select near.*, u.lane
    from unnest(p_lanes, p_max, p_floor) u(lane, most, floor)
    cross join lateral (
      select d.ctid as place, d.outbox_id from push.delivery d
      where d.ready_lane = u.lane and d.deadline_at > greatest(u.floor, p_first) and d.deadline_at <= v_near and d.state = 0
        and (d.due_at = d.created_at and u.lane <> all (p_last) or push.is_offered(d, p_gateway, p_last))
      order by d.deadline_at limit u.most for no key update skip locked
    ) near
    where u.most > 0 and u.lane <> all (v_paused) limit p_total
  ) near;
  p_background := least(p_background, p_total - coalesce(cardinality(places), 0));
  if p_background > 0 then
    select places || array_agg(later.place), calls || array_agg(later.outbox_id) into places, calls
    from (
      select later.*
      from unnest(p_lanes, p_max, p_later_max, p_floor, p_later_floor) u(lane, most, later_most, floor, later_floor)
      cross join lateral (
        select d.ctid as place, d.outbox_id from push.delivery d
        where d.ready_lane = u.lane and d.deadline_at > greatest(u.later_floor, u.floor, v_near) and d.state = 0
          and (d.due_at = d.created_at and u.lane <> all (p_last) or push.is_offered(d, p_gateway, p_last))
        order by d.deadline_at limit least(u.most, u.later_most) for no key update skip locked
      ) later
      where least(u.most, u.later_most) > 0 and u.lane <> all (v_paused) and u.lane <> all (v_ringing)
      limit p_background
    ) later;
  end if;
  if v_suspect is not null then
    places := places || v_suspect.place;
    calls := calls || v_suspect.outbox_id;
  end if;
  v_read := set_config('push.entries_scanned',
    (coalesce(pg_stat_get_xact_tuples_returned(to_regclass('push.delivery_ready')), 0) - v_read)::text, false);
end
$$;
comment on function push.pick is
  'locks the ready deliveries that a claim may take, and returns where they are stored, and the calls that they are of, in the same order; '
  'null: none. p_first: the earliest deadline; the others: as for push.claim';

-- All rows of a claim are taken by one statement. The gateway's row is locked after they are picked, without waiting, and only if there
-- are rows to take, so an empty claim writes nothing. The lock shows that this claim is running: push.forget either waits for it or has
-- already barred it. It is the weakest row lock ("key share"), which does not block the gateway's own heartbeat.
create or replace function push.claim(
  p_gateway int, p_claim int, p_lanes smallint[], p_max int[], p_floor timestamptz[],
  p_slack interval default '300 ms', p_total int default null, p_background int default null,
  p_later_floor timestamptz[] default '{}', p_later_max int[] default '{}', p_last smallint[] default '{}'
) returns table (
  place tid, lane smallint, outbox_id bigint, n int, attempt int, kind smallint, crashes smallint, environment smallint,
  platform smallint, created_at timestamptz, deadline_at timestamptz, remaining_us bigint, user_id text, token text,
  locale text, data jsonb, app_call_kind text, call_id text, end_reason text, ended boolean, traceparent text, payload jsonb,
  paired boolean, declined jsonb
)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  -- statement_timestamp() gives an index condition; clock_timestamp() would give a filter. While a transaction holds back
  -- vacuum, the index is full of dead entries with past deadlines. The index condition starts behind them, which keeps the
  -- claim fast.
  v_first  timestamptz := statement_timestamp() + p_slack;
  -- The owner of the tables may write any time into them, infinity included. One such row must not fail the claim of all
  -- the others, nor overflow the gateway's arithmetic. created_at is part of a delivery's identity, so its bound is fixed: it is the same in
  -- push.claimed_by and push.settled.
  v_newest timestamptz := v_first + interval '1 year';
  v_picked record;
begin
  v_picked := push.pick(p_gateway, p_claim, p_lanes, p_max, p_floor, v_first, coalesce(p_total, 2147483647),
    coalesce(p_background, 2147483647), p_later_floor, p_later_max, p_last);
  perform from push.gateways g
    where v_picked.places is not null and g.id = p_gateway and g.alive and g.claims_from <= p_claim for key share skip locked;
  if not found then
    return;
  end if;
  -- A call is read once for each of its rows, by the statement that takes them: found_ended is what the gateway is told.
  return query
    update push.delivery d
    set state = 1, owner = p_gateway, lease = p_claim, attempt = least(d.attempt, 1000000000) + 1,
      found_ended = d.kind = 0 and (c.id is null or c.ended_at is not null or coalesce(case when c.is_large then
        (c.id, d.user_id) in (select o.id, jsonb_object_keys(o.declined) from push.outbox o where o.id = any (v_picked.calls))
        else c.declined ? d.user_id end, false))
    from (
      select p.place, p.is_first, o.*
      -- In the order of their places, the deliveries of a call are adjacent, whatever their lanes.
      from (
        select p.*, lag(p.outbox_id) over (order by p.place) is distinct from p.outbox_id as is_first
        from unnest(v_picked.places, v_picked.calls) p(place, outbox_id) offset 0
      ) p
      -- PostgreSQL copies the whole row of such a subquery, and decompresses it. So what may be large is in it once for each call.
      left join lateral (
        select o.id, o.kind, o.call_id, o.ended_at, o.end_reason, o.traceparent, case when p.is_first then o.payload end as payload,
          pg_column_size(o.declined) > 2000 as is_large,
          case when p.is_first or pg_column_size(o.declined) <= 2000 then o.declined end as declined
        from push.outbox o where o.id = p.outbox_id offset 0
      ) o on true offset 0
    ) c
    where d.ctid = c.place
    returning d.ctid, d.lane, d.outbox_id, d.n, d.attempt, d.kind, d.crashes, d.environment, d.platform,
      greatest(d.created_at, '2000-01-01 00:00:00+00'), least(d.deadline_at, v_newest),
      -- Not extract: it calculates in numeric, which costs half a microsecond a row.
      (date_part('epoch', least(d.deadline_at, v_newest) - clock_timestamp()) * 1000000)::bigint,
      d.user_id, d.token, d.locale, d.data,
      case when c.is_first then c.kind end, case when c.is_first then c.call_id end,
      -- While the call rings, its cancels are for users who declined.
      case when c.is_first then coalesce(c.end_reason, case when c.declined is not null then 'declined' end) end,
      -- No row: the call was deleted. push.follow_up drops its deliveries soon.
      case when c.is_first then c.id is null or c.ended_at is not null end,
      case when c.is_first then c.traceparent end, c.payload, d.paired,
      case when c.is_first and c.declined is not null then (select jsonb_agg(k) from jsonb_object_keys(c.declined) k) end;
end
$$;
comment on function push.claim is
  'takes at most p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first. Their deadlines are after '
  'p_floor[i] and more than p_slack away. Takes nothing from a paused lane, nothing for a gateway that was declared dead, '
  'nothing while push.put_away has work to do, nothing that this gateway has handed on before it is due, and at most one suspect. '
  'p_gateway: what push.register_gateway returned; p_claim: '
  'the claim''s number, counted by the gateway, which becomes the lease of the deliveries; p_total: maximum for all lanes '
  'together; lanes are read in the order of p_lanes until it is reached; p_background: maximum number of deliveries whose '
  'deadline is more than ten minutes away; they come last; p_later_floor, p_later_max: p_floor and p_max for these; p_last: lanes '
  'that are sick here: only what others have left for 100 ms; a negative number: nothing that was tried and handed on. '
  'Returns what a push needs, in no order. place: where the row is stored, for push.settle; remaining_us: microseconds to '
  'the deadline. The columns from app_call_kind to payload are those of the call: they are set on at least one row of each '
  'call, and null on its other rows (call_id is then null). ended: the call no longer rings (a notification never does), '
  'or it was deleted, and then the call''s other columns are null; declined: the users who have declined it. Invites of such calls and '
  'users may be claimed: the gateway settles them as void without sending them. paired: as push.delivery.paired. The session setting '
  'push.entries_scanned holds the number of index entries read, dead ones included';

-- A call that cannot be read --------------------------------------------------------------------------------------------

-- A claim is one statement, so one call that it cannot read, such as one on a damaged page, would fail it for all others. The gateway then
-- calls this. Here each call is read alone, as a whole, which includes all that push.claim reads of it, and its pushes are claimed, which is
-- undone.
create or replace function push.put_aside(p_lanes smallint[], p_max int[]) returns int
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_call  record;
  v_count int := 0;
begin
  for v_call in
    select d.outbox_id, array_agg(d.ctid) as places from unnest(p_lanes, p_max) l(lane, most) cross join lateral (
      select ready.* from (
        select d.ctid, d.outbox_id from push.delivery d
        where d.ready_lane = l.lane and d.deadline_at > statement_timestamp() and d.state = 0
        order by d.deadline_at limit l.most for no key update skip locked) ready
      union all
      select suspect.* from (
        select d.ctid, d.outbox_id from push.delivery d
        where d.crashes >= 2 and d.lane = l.lane and d.deadline_at > statement_timestamp() and d.state = 0
        order by d.deadline_at limit l.most for no key update skip locked) suspect
    ) d group by d.outbox_id
  loop
    begin
      perform (select count(d::text) from push.delivery d where d.ctid = any (v_call.places)),
        (select count(o::text) + count((select min(k) from jsonb_object_keys(o.declined) k)) from push.outbox o where o.id = v_call.outbox_id);
      update push.delivery d set state = 1, owner = 0, attempt = least(d.attempt, 1000000000) + 1 where d.ctid = any (v_call.places);
      set constraints all immediate;
      raise exception using errcode = 'CLEAN';
    exception when others or assert_failure then
      continue when sqlstate = 'CLEAN';
      -- What passes, such as a lack of memory, is not of the call: a ring must not end by it.
      if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
      v_count := v_count + 1;
      perform push.name_fault('push.outbox.id ' || v_call.outbox_id, sqlstate, cardinality(v_call.places));
      perform push.change_rows('delete from push.delivery where ctid = any ($1)', v_call.places)
        where push.bury(v_call.places, 4, 'Unreadable') < cardinality(v_call.places);
    end;
  end loop;
  return v_count;
end
$$;
comment on function push.put_aside is 'after a claim that failed because of a row: ends the ready deliveries of calls that cannot be read as '
  'dead (Unreadable), and deletes those that cannot be read themselves. push.audit and push.health name the calls. p_lanes, p_max: as for '
  'push.claim. Returns how many calls';

-- When an answer is lost ------------------------------------------------------------------------------------------------

-- Reads the table in parts, so that none is cancelled. A row that moves meanwhile is found by push.claimed_by.
create or replace function push.forget_in(
  p_gateway int, p_claim int, p_from_page bigint default 0, p_pages int default 10000, out given bigint, out next_page bigint
)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_accepted tid[];
begin
  given := 0;
  -- An update of these columns alone would take a weaker lock. "for update" waits for a claim that is running, and bars a
  -- claim that has picked its rows but has not yet locked this row. The next statement sees what the claim took.
  perform from push.gateways g
    where g.id = p_gateway and g.alive and g.claims_from <= p_claim + 1 for update;
  if not found then
    return;
  end if;
  update push.gateways g set claims_from = p_claim + 1 where g.id = p_gateway and g.claims_from <= p_claim;
  with given as (
    update push.delivery d set state = 0, owner = null, found_ended = false, attempt = greatest(d.attempt - 1, 0),
        due_at = clock_timestamp()
      where d.ctid >= format('(%s,0)', greatest(p_from_page, 0))::tid
        and d.ctid < format('(%s,0)', greatest(p_from_page, 0) + greatest(p_pages, 1))::tid
        and d.state = 1 and d.owner = p_gateway and d.lease = p_claim
      returning d.ctid as place, d.accepted_at
  )
  select count(*), array_agg(g.place) filter (where g.accepted_at is not null) into given, v_accepted from given g;
  perform push.bury(v_accepted, 0), push.ring_doorbell() where given > 0;
  next_page := greatest(p_from_page, 0) + greatest(p_pages, 1);
  next_page := case when next_page < pg_relation_size('push.delivery') / current_setting('block_size')::int then next_page end;
end
$$;
comment on function push.forget_in is
  'the answer to a claim was lost. If the claim has not begun, it will take nothing; if it is running, this waits for it. '
  'What it took in one part of the table becomes ready again, without counting the attempt. Claims with '
  'lower numbers are barred, too, but what they took is left alone. p_gateway: what push.register_gateway returned; '
  'p_claim: the claim''s number; p_from_page: 0, then next_page of the previous result; p_pages: number of pages to read. '
  'given: how many deliveries were returned; next_page: null at the end. Calling it again is harmless';

create or replace function push.forget(p_gateway int, p_claim int) returns bigint
language sql volatile security definer set search_path = push, pg_temp as
$$ select f.given from push.forget_in(p_gateway, p_claim, 0, 2147483647) f $$;
comment on function push.forget is
  'for gateways of release 0.1.0: push.forget_in of the whole table. p_gateway, p_claim: as there. Returns how many deliveries were returned';

-- Release 0.1.0 calls these two after it was declared dead, with all that it holds.
drop function if exists push.reclaim(int, int, bigint[], int[]);
create or replace function push.reclaim(p_gateway int, p_claim int, p_outbox_id bigint[], p_n int[]) returns table (i int, place tid)
language sql stable security definer set search_path = push, pg_temp as
$$ select null::int, null::tid where false $$;
comment on function push.reclaim is
  'for gateways of release 0.1.0: claims nothing again, whatever p_gateway, p_claim, p_outbox_id and p_n say';
create or replace function push.confirm_reclaimed(p_gateway int) returns void
language sql stable security definer set search_path = push, pg_temp as $$ select null::void $$;
comment on function push.confirm_reclaimed is 'for gateways of release 0.1.0: does nothing, whatever p_gateway says';

drop function if exists push.claimed_by(int, bigint, int);
create or replace function push.claimed_by(
  p_gateway int, p_from_page bigint, p_pages int default 2000,
  out outbox_id bigint[], out n int[], out lease int[], out created_at timestamptz[], out next_page bigint
)
language plpgsql stable security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
begin
  next_page := greatest(p_from_page, 0) + greatest(p_pages, 1);
  select coalesce(array_agg(d.outbox_id), '{}'), coalesce(array_agg(d.n), '{}'), coalesce(array_agg(d.lease), '{}'),
      coalesce(array_agg(greatest(d.created_at, '2000-01-01 00:00:00+00')), '{}')
    into outbox_id, n, lease, created_at
    from push.delivery d
    where d.ctid >= format('(%s,0)', greatest(p_from_page, 0))::tid and d.ctid < format('(%s,0)', next_page)::tid
      and d.state = 1 and d.owner = p_gateway;
  next_page := case when next_page < pg_relation_size('push.delivery') / current_setting('block_size')::int then next_page end;
end
$$;
comment on function push.claimed_by is
  'the deliveries that a gateway has claimed, in one part of the table. p_gateway: what push.register_gateway returned; '
  'p_from_page: 0, then next_page of the previous result; p_pages: number of pages to read. Arrays, by delivery: '
  'outbox_id, n, lease, the claim''s number, and created_at; next_page: null at the end';

create or replace function push.ended(p_outbox_id bigint[]) returns bigint[]
language sql stable security definer set search_path = push, pg_temp as $$
  select array(select c.id from unnest(p_outbox_id) c(id) where exists (
    select from push.ended_for(array[c.id]) e where e.user_id is null or exists (
      select from push.delivery d where d.outbox_id = c.id and d.kind = 0 and d.state = 1 and d.user_id = e.user_id)))
$$;
comment on function push.ended is
  'for gateways of release 0.1.0: those of these calls that no longer ring, were deleted, or have claimed invites of a user who has '
  'declined. p_outbox_id: push.outbox.id';

create or replace function push.ended_for(p_outbox_id bigint[]) returns table (outbox_id bigint, user_id text)
language plpgsql stable security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
begin
  return query
    select c.id, null::text from unnest(p_outbox_id) c(id)
    where c.id is not null and (select true from push.outbox o where o.id = c.id and o.ended_at is null) is null
    union all
    select c.id, s.user_id from unnest(p_outbox_id) c(id)
    cross join lateral (select o.declined from push.outbox o where o.id = c.id and o.ended_at is null and o.declined is not null offset 0) o
    cross join lateral jsonb_object_keys(o.declined) s(user_id);
end
$$;
comment on function push.ended_for is
  'whose phones must not ring for these calls: a row without user_id for each call that no longer rings or was deleted, and a row for each '
  'user who has declined one that rings. A notification on push_control is only a hint, so gateways check with this function. '
  'p_outbox_id: push.outbox.id';
