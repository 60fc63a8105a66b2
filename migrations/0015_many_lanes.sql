-- Claims that cost the same with six hundred lanes as with three.

create index lane_paused on push.lane (id) where paused;

-- As in 0014; but the lanes are looked into only until the claim is full, in the order they are asked for, a lane's limit is
-- its share (the gateway knows which lanes have more), and all rows of a claim are taken by one statement.
create or replace function push.claim(
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
  v_first   timestamptz := statement_timestamp() + p_slack;
  v_near    timestamptz := v_first + interval '10 minutes';
  v_total   bigint := coalesce(p_total, 2147483647);
  v_later   bigint;
  v_paused  smallint[] := array(select l.id from push.lane l where l.paused);
  v_ringing smallint[];
  v_tids    tid[];
  v_read    bigint := coalesce(pg_stat_get_xact_tuples_returned('push.delivery_ready'::regclass), 0);
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive) then
    return;
  end if;
  -- No order by: it would look into every lane before the first row. A nested loop keeps the order of p_lanes.
  select array_agg(pick.tid), array_agg(pick.lane) into v_tids, v_ringing
  from (
    select near.tid, u.lane
    from unnest(p_lanes, p_max, p_floor) u(lane, most, floor)
    cross join lateral (
      select d.ctid as tid from push.delivery d
      where d.state = 0 and d.lane = u.lane and d.deadline_at > greatest(u.floor, v_first) and d.deadline_at <= v_near
      order by d.deadline_at
      limit u.most
      for no key update skip locked
    ) near
    where u.most > 0 and u.lane <> all (v_paused)
    limit v_total
  ) pick;
  v_later := least(coalesce(p_background, 2147483647), v_total - coalesce(cardinality(v_tids), 0));
  if v_later > 0 then
    v_ringing := array(select distinct unnest(v_ringing));
    v_tids := v_tids || array(
      select later.tid
      from unnest(p_lanes, p_max, p_later_max, p_floor, p_later_floor) u(lane, most, later_most, floor, later_floor)
      cross join lateral (
        select d.ctid as tid from push.delivery d
        where d.state = 0 and d.lane = u.lane and d.deadline_at > greatest(u.later_floor, u.floor, v_near)
        order by d.deadline_at
        limit least(u.most, u.later_most)
        for no key update skip locked
      ) later
      where least(u.most, u.later_most) > 0 and u.lane <> all (v_paused) and u.lane <> all (v_ringing)
      limit v_later
    );
  end if;
  return query
    with taken as (
      update push.delivery d
      set state = 1, owner = p_gateway, lease = d.lease + 1, attempt = d.attempt + 1
      where d.ctid = any (v_tids)
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
  perform set_config('push.walked',
    (coalesce(pg_stat_get_xact_tuples_returned('push.delivery_ready'::regclass), 0) - v_read)::text, false);
end
$$;
comment on function push.claim is
  'takes up to p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first, with deadlines after '
  'p_floor[i] and more than p_slack away; nothing from a paused lane, nothing for a gateway declared dead. p_gateway: '
  'what push.register_gateway returned; p_total: the most of all lanes together, which are looked into in the order of '
  'p_lanes until it is reached; p_background: the most of those whose deadline is more than ten minutes away, which go '
  'last; p_later_floor, p_later_max: as p_floor and p_max, for these. Returns what a push needs, in no order; remaining_us: '
  'microseconds to the deadline. The session''s setting push.walked says how many index entries it stepped over, dead '
  'ones included';
