-- Counts the deliveries that are owed, in about the same time for a few as for a backlog of millions.
--
-- push.delivery is not counted in full: reading it takes half a second per million rows, and after a backlog the table
-- stays as large as the backlog was. Up to a limit, the indexes are scanned lane by lane, in the order of deadlines; that
-- count is exact. Above the limit, a random sample of a few hundred pages of the table gives an estimate. The estimate is
-- within about a tenth for the large groups. It is rounded to three digits, which shows that it is no exact count.

-- Three ranges of deadlines, as in push.claim: past, within ten minutes (calls), and later. A backlog of messages therefore hides no
-- calls. Waiting deliveries and suspects are ranges of their own, over all lanes.
create or replace function push.nearest_owed(p_each int, p_most int, p_past timestamptz, p_near timestamptz, p_with_past boolean)
returns table (lane smallint, range int, kind smallint, state smallint, owner int, created_at timestamptz, deadline_at timestamptz)
language sql stable as $$
  select l.id as lane, r.range, d.kind, d.state, d.owner, d.created_at, d.deadline_at
  from (values (0, '-infinity', p_past), (1, p_past, p_near), (2, p_near, 'infinity')) r(range, after, until)
  cross join push.lane l
  cross join lateral (
    select d.kind, d.state, d.owner, d.created_at, d.deadline_at from push.delivery d
    where d.ready_lane = l.id and d.deadline_at > r.after and d.deadline_at <= r.until
    order by d.deadline_at
    limit p_each
  ) d
  where r.range > 0 or p_with_past
  union all
  (select d.lane, 3, d.kind, d.state, d.owner, d.created_at, d.deadline_at from push.delivery d
    where d.ready_lane is null and d.due_at > case when p_with_past then '-infinity' else p_past end and d.crashes < 2
    order by d.due_at
    limit p_most)
  union all
  (select d.lane, 4, d.kind, d.state, d.owner, d.created_at, d.deadline_at from push.delivery d
    where d.crashes >= 2
    limit p_most)
$$;
comment on function push.nearest_owed is
  'the deliveries with the earliest deadlines, for push.count_owed: at most p_each of each lane and range, and p_most that wait. range: 0 '
  'past (only with p_with_past), 1 until p_near, 2 later, 3 waiting, 4 suspects';

create or replace function push.count_owed(p_most int default 30000, p_past boolean default true)
returns table (
  lane smallint, kind smallint, state smallint, owner int, count bigint, oldest timestamptz, first_deadline timestamptz
)
language plpgsql stable security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  c_pages   constant float := 300;
  v_past    timestamptz := now() - interval '5 s';
  v_near    timestamptz := now() + interval '10 minutes';
  v_each    int := greatest(p_most / greatest((select count(*) from push.lane), 1), 20);
  v_percent float := least(100, 100 * c_pages * current_setting('block_size')::int
    / greatest(pg_relation_size('push.delivery'), 1));
begin
  return query
  with looked_at as materialized (
    select n.* from push.nearest_owed(v_each, p_most, v_past, v_near, p_past) n
  ), counted as materialized (
    select c.lane, c.range, c.kind, c.state, c.owner, count(*) as count, min(c.created_at) as oldest,
      min(c.deadline_at) as first_deadline
    from looked_at c
    group by c.lane, c.range, c.kind, c.state, c.owner
  ), cut as materialized (
    -- Lanes and ranges that have more than was counted. The range of waiting deliveries covers all lanes.
    select c.lane, c.range from counted c where c.range < 3 group by c.lane, c.range having sum(c.count) >= v_each
    union all
    select l.id, 3 from push.lane l where (select sum(c.count) from counted c where c.range = 3) >= p_most
  ), drawn as materialized (
    select d.lane, d.range, d.kind, d.state, d.owner, count(*) * 100 / v_percent as count, min(d.created_at) as oldest,
      min(d.deadline_at) as first_deadline
    from (select from cut limit 1) is_any
    cross join lateral (
      select d.lane, d.kind, d.state, d.owner, d.created_at, d.deadline_at,
        case when d.crashes >= 2 then 4 when d.ready_lane is null then 3 when d.deadline_at <= v_past then 0
          when d.deadline_at <= v_near then 1 else 2 end as range
      from push.delivery d tablesample system (v_percent)
      -- Claimed deliveries usually have the earliest deadlines, so the exact count has found them.
      where d.state <> 1
    ) d
    group by d.lane, d.range, d.kind, d.state, d.owner
  ), both_ways as (
    select c.lane, c.kind, c.state, c.owner, c.count, c.oldest, c.first_deadline, 0 as drawn
    from counted c
    union all
    select d.lane, d.kind, d.state, d.owner, d.count - coalesce(c.count, 0), d.oldest, d.first_deadline, 1
    from drawn d
    join cut on cut.lane = d.lane and cut.range = d.range
    left join counted c on c.lane = d.lane and c.range = d.range and c.kind = d.kind and c.state = d.state
      and c.owner is not distinct from d.owner
    where d.count > coalesce(c.count, 0)
  )
  select b.lane, b.kind, b.state, b.owner,
    case max(b.drawn) when 0 then sum(b.count) else round(sum(b.count)::numeric, 2 - floor(log(sum(b.count)))::int) end::bigint,
    min(b.oldest), min(b.first_deadline)
  from both_ways b
  group by b.lane, b.kind, b.state, b.owner;
end
$$;
comment on function push.count_owed is
  'the deliveries that are owed, by lane, kind, state and owner: their number, the age of the oldest, and the first '
  'deadline. Exact for at most p_most deliveries. The lanes share p_most in equal parts, at least 20 each, and each lane '
  'has the same number again for deliveries with more than ten minutes left. Above that, count is an estimate, rounded to '
  'three digits. p_past: whether to count deliveries that are more than five seconds past their deadline';
