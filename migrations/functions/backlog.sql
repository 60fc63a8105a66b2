-- Counts the deliveries that are owed, in about the same time for a few as for a backlog of millions.
--
-- push.delivery is not counted in full: reading it takes half a second per million rows, and after a backlog the table
-- stays as large as the backlog was. Up to a limit, the indexes are scanned lane by lane, in the order of deadlines; that
-- count is exact. Above the limit, a random sample of a few hundred pages of the table gives an estimate. The estimate is
-- within about a tenth for the large groups. It is rounded to three digits, which shows that it is no exact count.

-- Three ranges of deadlines, as in push.claim: past (0), within ten minutes (1: calls), and later (2). A backlog of messages therefore
-- hides no calls. Waiting deliveries (3) and suspects (4) are ranges of their own, over all lanes.
create or replace function push.count_owed(p_most int default 30000, p_past boolean default true)
returns table (
  lane smallint, kind smallint, state smallint, owner int, count bigint, oldest timestamptz, first_deadline timestamptz
)
language plpgsql stable security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_past    timestamptz := now() - interval '5 s';
  v_near    timestamptz := now() + interval '10 minutes';
  v_each    int := greatest(p_most / greatest((select count(*) from push.lane), 1), 20);
  v_percent float := least(100, 100 * 300::float * current_setting('block_size')::int
    / greatest(pg_relation_size('push.delivery'), 1));
begin
  return query
  with looked_at as materialized (
    select l.id as lane, r.range, d.*
    from (values (0, '-infinity', v_past), (1, v_past, v_near), (2, v_near, 'infinity')) r(range, after, until)
    cross join push.lane l
    cross join lateral (
      select d.kind, case when d.state = 0 and d.handed_on_by is not null and d.due_at > now() then 2::smallint else d.state end as state,
        d.owner, d.created_at, d.deadline_at
      from push.delivery d
      where d.ready_lane = l.id and d.deadline_at > r.after and d.deadline_at <= r.until
      order by d.deadline_at limit v_each
    ) d
    where r.range > 0 or p_past
    union all
    (select d.lane, 3, d.kind, d.state, d.owner, d.created_at, d.deadline_at from push.delivery d
      where d.ready_lane is null and d.due_at > case when p_past then '-infinity' else v_past end and d.crashes < 2
      order by d.due_at limit p_most)
    union all
    (select d.lane, 4, d.kind, d.state, d.owner, d.created_at, d.deadline_at from push.delivery d where d.crashes >= 2 limit p_most)
  ), counted as materialized (
    select c.lane, c.range, c.kind, c.state, c.owner, count(*)::float as count, min(c.created_at) as oldest,
      min(c.deadline_at) as first_deadline, false as is_drawn
    from looked_at c group by c.lane, c.range, c.kind, c.state, c.owner
  ), cut as materialized (
    -- Lanes and ranges that have more than was counted. The range of waiting deliveries covers all lanes.
    select c.lane, c.range from counted c where c.range < 3 group by c.lane, c.range having sum(c.count) >= v_each
    union all
    select l.id, 3 from push.lane l where (select sum(c.count) from counted c where c.range = 3) >= p_most
  ), drawn as (
    -- Each stands for several.
    select d.lane, case when d.crashes >= 2 then 4 when d.ready_lane is null then 3 when d.deadline_at <= v_past then 0
        when d.deadline_at <= v_near then 1 else 2 end as range, d.kind, d.state, d.owner, 100 / v_percent, d.created_at, d.deadline_at, true
    from (select from cut limit 1) is_any cross join lateral (
      -- Claimed deliveries usually have the earliest deadlines, so the exact count has found them.
      select d.* from push.delivery d tablesample system (v_percent) where d.state <> 1
    ) d
  ), best as (
    select b.lane, b.kind, b.state, b.owner, min(b.oldest) as oldest, min(b.first_deadline) as first_deadline,
      coalesce(sum(b.count) filter (where not b.is_drawn), 0) as counted, coalesce(sum(b.count) filter (where b.is_drawn), 0) as estimated
    from (select c.* from counted c union all select d.* from drawn d where (d.lane, d.range) in (select c.lane, c.range from cut c)) b
    group by b.lane, b.range, b.kind, b.state, b.owner
  )
  select b.lane, b.kind, b.state, b.owner, case when bool_or(b.estimated > b.counted)
      then round(sum(greatest(b.counted, b.estimated))::numeric, 2 - floor(log(sum(greatest(b.counted, b.estimated))))::int)
      else sum(b.counted) end::bigint, push.finite(min(b.oldest)),
    push.finite(min(b.first_deadline))
  from best b group by b.lane, b.kind, b.state, b.owner;
end
$$;
comment on function push.count_owed is
  'the deliveries that are owed, by lane, kind, state and owner: their number, the age of the oldest, and the first deadline. Exact for '
  'p_most deliveries, which the lanes share in equal parts, at least 20 each, and as many again with more than ten minutes left. Above that, '
  'count is an estimate, rounded to three digits. p_past: whether to count deliveries that are more than five seconds past their deadline';
