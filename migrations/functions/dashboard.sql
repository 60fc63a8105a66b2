-- Functions for the dashboard: statistics of the last minutes, an overview in one answer, and calls by their id.

-- The last minutes ----------------------------------------------------------------------------------------------------

create or replace function push.minutes(p_since timestamptz) returns table (
  minute timestamptz, invites bigint, delivered bigint, late bigint, expired bigint, dead bigint, p50_ms float8,
  p99_ms float8
)
language sql stable security definer set search_path = push, pg_temp as $$
  select m.minute, m.invites, m.delivered, m.late, m.expired, m.dead, m.ms[1], m.ms[2]
  from (
    select date_trunc('minute', h.finished_at) as minute, count(*) as invites,
      count(*) filter (where h.outcome = 0) as delivered, count(*) filter (where h.outcome = 1) as late,
      count(*) filter (where h.outcome = 3) as expired, count(*) filter (where h.outcome = 4) as dead,
      percentile_cont(array[0.5, 0.99]) within group (order by extract(epoch from h.answered_at - h.created_at)::float8 * 1000)
        filter (where h.outcome <= 1) as ms
    from push.history h
    where h.finished_at >= p_since and h.kind = 0 and h.outcome <> 2
    group by grouping sets ((1), ())
  ) m
  order by m.minute nulls last
$$;
comment on function push.minutes is
  'statistics of invites by the minute in which they were settled, without void ones. The last row, without a minute, is '
  'the total. p_since: start time; the cost grows with the deliveries settled since. late: delivered after the deadline; '
  'expired: never sent in time; dead: failed; p50_ms, p99_ms: milliseconds from enqueueing until the provider accepted the '
  'push';

-- Everything at a glance ----------------------------------------------------------------------------------------------

create or replace function push.epoch_ms(p_time timestamptz) returns bigint language sql immutable parallel safe as
$$ select (extract(epoch from p_time) * 1000)::bigint $$;
comment on function push.epoch_ms is 'a time, p_time, in milliseconds since 1970';

create or replace function push.length_ms(p_length interval) returns bigint language sql immutable parallel safe as
$$ select (extract(epoch from p_length) * 1000)::bigint $$;
comment on function push.length_ms is 'an interval, p_length, in milliseconds';

create or replace function push.overview(p_max int default 50) returns jsonb
language sql stable set search_path = push, pg_temp as $$
  select jsonb_build_object(
    'now', push.epoch_ms(clock_timestamp()),
    'lanes', (
      select coalesce(jsonb_agg(jsonb_build_object(
          'app', l.app, 'provider', l.provider, 'paused', l.paused, 'note', l.note, 'window', l.window_size,
          'capacity', l.capacity, 'inFlight', l.in_flight, 'circuit', l.circuit,
          'throttledUntil', push.epoch_ms(l.throttled_until), 'rate', l.rate_per_second, 'ready', l.ready,
          'waiting', l.waiting, 'claimed', l.claimed, 'oldestMs', push.length_ms(l.oldest_age),
          'heldSince', push.epoch_ms(l.invalidation_held_at), 'heldNote', l.invalidation_note)
        order by l.app, l.provider), '[]')
      from push.lanes l),
    'health', (
      select jsonb_agg(jsonb_build_object('item', h.item, 'value', h.value, 'state', h.state, 'hint', h.hint))
      from push.health h),
    'failures', (
      select coalesce(jsonb_agg(jsonb_build_object(
          'app', f.app, 'provider', f.provider, 'kind', f.kind, 'outcome', f.outcome, 'reason', f.reason,
          'count', f.count, 'lastAt', push.epoch_ms(f.last_at), 'callId', f.example_call_id,
          'device', f.example_device)
        order by f.count desc, f.last_at desc), '[]')
      from (select * from push.failures f order by f.count desc, f.last_at desc limit p_max) f),
    'stuck', (
      select coalesce(jsonb_agg(jsonb_build_object(
          'app', s.app, 'provider', s.provider, 'kind', s.kind, 'callId', s.call_id, 'userId', s.user_id,
          'why', s.why, 'ageMs', push.length_ms(s.age), 'leftMs', push.length_ms(s."left"),
          'reason', s.last_reason, 'replica', s.gateway)
        order by s."left"), '[]')
      from (select * from push.stuck s order by s."left" limit p_max) s),
    'replicas', (
      select coalesce(jsonb_agg(jsonb_build_object(
          'id', r.id, 'name', r.name, 'version', r.version, 'alive', r.alive, 'startedAt', push.epoch_ms(r.started_at),
          'silentMs', push.length_ms(r.silence), 'claimed', r.claimed, 'endedAt', push.epoch_ms(r.ended_at),
          'endedReason', r.ended_reason)
        order by r.alive desc, r.id desc), '[]')
      from (
        select * from push.replicas r where r.alive or r.ended_at > now() - interval '1 hour'
        order by r.alive desc, r.id desc limit p_max
      ) r),
    'audit', (
      select coalesce(jsonb_agg(jsonb_build_object(
          'at', push.epoch_ms(a.at), 'who', a.who, 'via', a.via, 'operator', a.operator, 'action', a.action,
          'target', a.target, 'note', a.detail ->> 'note')
        order by a.at desc), '[]')
      from (select * from push.audit a order by a.at desc limit 8) a))
$$;
comment on function push.overview is
  'the overview for operators, as one JSON object: lanes, health, failures, stuck, replicas (alive, or ended in the last '
  'hour) and audit (the last interventions), from the views of these names. Intervals are in milliseconds, times in '
  'milliseconds since 1970. p_max: maximum number of entries of failures, stuck and replicas; the worst come first';

create or replace function push.calls(p_call_id text) returns jsonb
language sql stable set search_path = push, pg_temp as $$
  select coalesce(jsonb_agg(push.call(p_call_id, o.app) || jsonb_build_object('timeline', (
      select coalesce(jsonb_agg(jsonb_build_object(
          'ms', t.ms, 'event', t.event, 'provider', t.provider, 'kind', t.kind, 'userId', t.user_id,
          'attempt', t.attempt, 'status', t.status, 'reason', t.reason, 'device', t.device) order by t.ordinality), '[]')
      from push.timeline(p_call_id, o.app) with ordinality t))
    order by o.created_at desc), '[]')
  from (select o.app, o.created_at from push.outbox o where o.call_id = p_call_id order by o.created_at desc limit 5) o
$$;
comment on function push.calls is
  'the calls with this id, at most one for each app, the latest five first. Each has the form of push.call, with its '
  'timeline. p_call_id: payload.callId';
