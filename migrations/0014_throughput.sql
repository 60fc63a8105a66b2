-- Claims and settlements that cost less, and that are fair to many lanes.

-- Claiming ------------------------------------------------------------------------------------------------------------

-- As in 0012; besides, it looks first which lanes have anything ready, so that a lane without costs next to nothing; what
-- is taken in all is bounded by rows, so that a lane's limit takes nothing from the others as long as it has no rows; and
-- what has more than ten minutes, which no ring has, goes after what has less, and has a bound of its own.
drop function push.claim(int, smallint[], int[], timestamptz[], interval);
create function push.claim(
  p_gateway int, p_lanes smallint[], p_max int[], p_floor timestamptz[], p_slack interval default '300 ms',
  p_total int default null, p_background int default null, p_later_floor timestamptz[] default '{}',
  p_later_max int[] default '{}'
) returns table (
  lane smallint, outbox_id bigint, n int, lease int, attempt int, kind smallint, environment smallint,
  platform smallint, user_id text, token text, locale text, app_call_kind text, call_id text, payload jsonb,
  created_at timestamptz, deadline_at timestamptz, remaining_us bigint, end_reason text, traceparent text
)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- An index condition, not a filter: under a transaction that holds back vacuum the index is full of dead entries with
  -- past deadlines, and starting behind them keeps the claim fast. clock_timestamp() here would make it a filter.
  v_first timestamptz := statement_timestamp() + p_slack;
  v_near  timestamptz := v_first + interval '10 minutes';
  v_left  bigint := coalesce(p_total, 2147483647);
  v_later bigint := coalesce(p_background, 2147483647);
  v_taken bigint;
  v_read  bigint := coalesce(pg_stat_get_xact_tuples_returned('push.delivery_ready'::regclass), 0);
  v       record;
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive) then
    return;
  end if;
  for v in
    select u.lane, head.deadline_at as first, head.deadline_at > v_near as is_later,
      -- Fewer than two hundred are not worth a statement, nor a write to the provider.
      least(u.most, greatest(200, v_left / count(*) over ()), case when head.deadline_at > v_near then u.later_most end)
        as most
    from unnest(p_lanes, p_max, p_floor, p_later_floor, p_later_max) with ordinality
      u(lane, most, floor, later_floor, later_most, i)
    cross join lateral (
      select near.deadline_at from (
        select d.deadline_at from push.delivery d
        where d.state = 0 and d.lane = u.lane and d.deadline_at > greatest(u.floor, v_first) and d.deadline_at <= v_near
        order by d.deadline_at
        limit 1
      ) near
      union all
      select later.deadline_at from (
        select d.deadline_at from push.delivery d
        where d.state = 0 and d.lane = u.lane and d.deadline_at > greatest(u.later_floor, u.floor, v_near)
        order by d.deadline_at
        limit 1
      ) later
      limit 1
    ) head
    where u.most > 0 and (select not l.paused from push.lane l where l.id = u.lane)
    order by is_later, u.i
  loop
    continue when v.most <= 0 or v.is_later and v_later <= 0;
    return query
      with pick as materialized (
        select d.ctid as tid
        from push.delivery d
        where d.state = 0 and d.lane = v.lane and d.deadline_at >= v.first  -- where the look ended
          and d.deadline_at <= case when v.is_later then 'infinity' else v_near end
        order by d.deadline_at
        limit least(v.most, v_left, case when v.is_later then v_later end)
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
        -- Not extract, which calculates in numeric: half a microsecond a row.
        (date_part('epoch', t.deadline_at - clock_timestamp()) * 1000000)::bigint, o.end_reason, o.traceparent
      from taken t cross join lateral (
        select o.kind, o.call_id, o.payload, o.end_reason, o.traceparent from push.outbox o
        where o.id = t.outbox_id offset 0
      ) o;
    get diagnostics v_taken = row_count;
    v_left := v_left - v_taken;
    if v.is_later then
      v_later := v_later - v_taken;
    end if;
    exit when v_left <= 0;
  end loop;
  perform set_config('push.walked',
    (coalesce(pg_stat_get_xact_tuples_returned('push.delivery_ready'::regclass), 0) - v_read)::text, false);
end
$$;
comment on function push.claim is
  'takes up to p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first, with deadlines after '
  'p_floor[i] and more than p_slack away; nothing from a paused lane, nothing for a gateway declared dead. p_gateway: '
  'what push.register_gateway returned; p_total: the most of all lanes together, shared among those that have any, in the '
  'order of p_lanes, 200 or more each; p_background: the most of those whose deadline is more than ten minutes away, '
  'which go last; p_later_floor, p_later_max: as p_floor and p_max, for these. Returns what a push needs; remaining_us: '
  'microseconds to the deadline. The session''s setting push.walked says how many index entries it stepped over, dead '
  'ones included';

-- Settling ------------------------------------------------------------------------------------------------------------

-- As in 0009; receipts to come are noted from what was settled, so that a delivery is looked up once.
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
  -- This locks what it found still claimed under its lease, so it is the same that is settled below.
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

  -- Arrays by subscript, which PL/pgSQL keeps expanded: unnest would write each of the thirteen into a store of its own.
  with mine as materialized (
    select d.tid, r.i
    from generate_series(1, cardinality(p_outbox_id)) r(i)
    cross join lateral (
      select d.ctid as tid from push.delivery d where d.outbox_id = p_outbox_id[r.i] and d.n = p_n[r.i] offset 0
    ) d
  ), gone as (
    delete from push.delivery d
    using mine m
    where d.ctid = m.tid and d.state = 1 and d.owner = p_gateway and d.lease = p_lease[m.i]
    returning m.i, d.outbox_id, d.created_at, d.deadline_at, d.n, d.lane, d.kind, d.user_id, d.token, d.last_reason,
      case when p_failures[m.i] is null then d.failures
        else push.last_failures(coalesce(d.failures, '[]') || p_failures[m.i]::jsonb) end as failures, d.fallback_of
  ), receipts as (
    insert into push.expo_receipts (app, ticket, outbox_id, n, user_id, token, sent_at, due_at, give_up_at)
    select l.app, r.ticket, r.outbox_id, r.n, r.user_id, r.token, r.sent_at,
      least(clock_timestamp() + r.after_ms * interval '1 ms', r.sent_at + interval '24 hours'),
      r.sent_at + interval '24 hours'
    from (
      select g.outbox_id, g.n, g.user_id, g.token, g.lane, p_message_id[g.i] as ticket,
        p_receipt_after_ms[g.i] as after_ms,
        -- A gateway's clock may be ahead.
        least(coalesce(p_sent_at[g.i], now()), now()) as sent_at
      from gone g
      where p_receipt_after_ms[g.i] is not null and p_outcome[g.i] <= 1 and p_message_id[g.i] is not null
      offset 0
    ) r cross join lateral (select l.app from push.lane l where l.id = r.lane offset 0) l
    on conflict (app, ticket) do nothing
  )
  insert into push.history (outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner, lane, kind,
    outcome, status, user_id, call_id, device, reason, provider_message_id, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, p_sent_at[g.i], p_answered_at[g.i], g.n, p_attempts[g.i], p_gateway,
    g.lane, g.kind, p_outcome[g.i], p_status[g.i], g.user_id, p_call_id[g.i], left(g.token, 4) || '…' || right(g.token, 4),
    case when p_outcome[g.i] <= 1 then p_reason[g.i]
      else coalesce(p_reason[g.i], g.last_reason,
        case p_outcome[g.i] when 2 then 'CallEnded' when 3 then 'DeadlinePassed' else 'Unknown' end)
    end,
    p_message_id[g.i], g.failures, g.fallback_of
  from gone g;
  get diagnostics v_settled = row_count;

  if v_failed <> '{}' then
    perform from push.fall_back(v_failed);
  end if;
  return v_settled;
end
$$;

-- Statistics that nobody plans with -----------------------------------------------------------------------------------

-- ANALYZE comes by whenever a table has grown by a tenth, every few seconds on a day that has just begun, and sorts thirty
-- thousand samples of each of these columns: seen as 14 us a delivery. Plans do not depend on it (0009).
alter table push.outbox alter payload set statistics 0, alter recipients set statistics 0, alter traceparent set statistics 0;
alter table push.history alter user_id set statistics 0, alter call_id set statistics 0, alter device set statistics 0,
  alter provider_message_id set statistics 0, alter failures set statistics 0;
alter table push.expo_receipts alter user_id set statistics 0, alter token set statistics 0;
alter table push.outbox set (autovacuum_analyze_threshold = 100000);
alter table push.expo_receipts set (autovacuum_analyze_threshold = 100000);
do $$
declare
  v_day regclass;
begin
  for v_day in select inhrelid from pg_inherits where inhparent = 'push.history'::regclass loop
    execute format('alter table %s set (autovacuum_analyze_threshold = 100000)', v_day);
  end loop;
end
$$;

-- As in 0003; besides, a new day is as they are.
create or replace function push.ensure_partitions(p_days_ahead int default 14) returns int
language plpgsql security definer set search_path = push, pg_temp set timezone = 'UTC' set lock_timeout = '500ms' as $$
declare
  v_day  date;
  v_name text;
  v_made int := 0;
begin
  -- One replica at a time: the other is doing the same.
  if not pg_try_advisory_xact_lock(7781, 1) then
    return 0;
  end if;
  for v_day in
    select d::date from generate_series(current_date - 1, current_date + p_days_ahead, interval '1 day') d
  loop
    v_name := 'history_' || to_char(v_day, 'YYYYMMDD');
    continue when to_regclass('push.' || v_name) is not null;
    begin
      execute format('create table push.%I partition of push.history for values from (%L) to (%L)',
        v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
      execute format('alter table push.%I alter user_id set statistics 0, alter call_id set statistics 0, '
        'alter device set statistics 0, alter provider_message_id set statistics 0, alter failures set statistics 0, '
        'set (autovacuum_analyze_threshold = 100000)', v_name);
      execute format('comment on table push.%I is %L', v_name, 'what was finished on ' || v_day || ' (UTC)');
      v_made := v_made + 1;
    exception when check_violation then
      raise warning 'push.history_default holds rows of %: move them, then call push.ensure_partitions again', v_day;
    end;
  end loop;
  return v_made;
end
$$;

revoke execute on function push.claim(int, smallint[], int[], timestamptz[], interval, int, int, timestamptz[], int[]) from public;
select push.grant_roles();
