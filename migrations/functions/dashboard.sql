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
      percentile_cont(array[0.5, 0.99]) within group (
        order by extract(epoch from push.finite(h.answered_at) - push.finite(h.created_at))::float8 * 1000) filter (where h.outcome <= 1) as ms
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
$$ select (extract(epoch from push.finite(p_time)) * 1000)::bigint $$;
comment on function push.epoch_ms is 'a time, p_time, in milliseconds since 1970';

create or replace function push.length_ms(p_length interval) returns bigint language sql immutable parallel safe as
$$ select (extract(epoch from p_length) * 1000)::bigint $$;
comment on function push.length_ms is 'an interval, p_length, in milliseconds';

create or replace function push.overview(p_max int default 50) returns jsonb
language sql stable set search_path = push, pg_temp as $$
  select jsonb_build_object(
    'now', push.epoch_ms(clock_timestamp()),
    'lanes', (select coalesce(jsonb_agg(x), '[]') from (
      select l.app, l.provider, l.channel, l.paused, l.note, l.window_size as "window", l.capacity, l.in_flight as "inFlight", l.circuit,
        push.epoch_ms(l.throttled_until) as "throttledUntil", l.rate_per_second as rate, l.ready, l.waiting, l.claimed,
        push.length_ms(l.oldest_age) as "oldestMs", push.epoch_ms(l.invalidation_held_at) as "heldSince", l.invalidation_note as "heldNote",
        l.refusal, l.refused
      from push.lanes l order by l.app, l.channel) x),
    'health', (select jsonb_agg(h) from push.health h),
    'failures', (select coalesce(jsonb_agg(x), '[]') from (
      select f.app, f.provider, f.kind, f.outcome, f.reason, f.count, push.epoch_ms(f.last_at) as "lastAt", f.example_call_id as "callId",
        f.example_device as device
      from push.failures f order by f.count desc, f.last_at desc limit p_max) x),
    'stuck', (select coalesce(jsonb_agg(x), '[]') from (
      select s.app, s.provider, s.kind, s.why, s.last_reason as reason, count(*), max(push.length_ms(s.age)) as "ageMs",
        min(push.length_ms(s."left")) as "leftMs", (array_agg(s.call_id order by s."left"))[1] as "callId",
        string_agg(distinct s.gateway::text, ', ') as replica
      from push.stuck s group by 1, 2, 3, 4, 5 order by s.kind <> 'invite', "leftMs" limit p_max) x),
    'recent', (select coalesce(jsonb_agg(x), '[]') from (
      select h.app, h.provider, h.outcome, h.reason, count(*) from push.delivery_history h
      where h.finished_at > now() - interval '5 minutes' and h.kind = 'invite' and h.outcome <> 'void' group by 1, 2, 3, 4) x),
    'replicas', (select coalesce(jsonb_agg(x), '[]') from (
      select r.id, r.name, r.version, r.alive, push.epoch_ms(r.started_at) as "startedAt", push.length_ms(r.silence) as "silentMs", r.claimed,
        push.epoch_ms(r.ended_at) as "endedAt", r.ended_reason as "endedReason"
      from push.replicas r where r.alive or r.ended_at > now() - interval '1 hour' order by r.alive desc, r.id desc limit p_max) x),
    'audit', (select coalesce(jsonb_agg(x), '[]') from (
      select push.epoch_ms(a.at) as at, a.who, a.via, a.operator, a.action, a.target, a.detail ->> 'note' as note
      from push.audit a order by a.at desc limit 8) x))
$$;
comment on function push.overview is
  'the overview for operators, as one JSON object: lanes, health, failures, stuck (equal rows as one, with their count, invites first), '
  'replicas (alive, or ended in the last hour) and audit (the last interventions), from the views of these names, and recent (the outcomes of '
  'invites in the last five minutes). Intervals are in milliseconds, times in milliseconds since 1970. p_max: maximum number of entries of '
  'failures, stuck and replicas; the worst come first';

-- push.requeue and push.void_call record what they do as the last row of push.audit that this session has made.
create or replace function push.operate_call(p_operator text, p_app text, p_call_id text, p_action text, p_note text) returns text
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_message text := case p_action when 'requeue' then (select r.message from push.requeue(p_call_id, p_app) r)
    else (select v.message from push.void_call(p_call_id, app => p_app) v) end;
begin
  update push.audit a set operator = left(p_operator, 128), detail = a.detail || jsonb_build_object('note', left(p_note, 500))
    where a.id = currval(pg_get_serial_sequence('push.audit', 'id'));
  return v_message;
end
$$;
comment on function push.operate_call is
  'push.requeue or push.void_call for a user who is logged in to the dashboard, recorded in push.audit. p_operator: the user, for '
  'push.audit.operator; p_app, p_call_id: the call; p_action: requeue, or void; p_note: the reason, at most 500 characters. Returns a '
  'sentence that says what was done';
comment on column push.audit.operator is 'the person for whom the dashboard acted: the name of an ops key, or what a proxy vouches for; '
  'null: anybody else. Written by push.operate_lane and push.operate_call alone, which only the service may call';

-- Its name is also that of a view, which is younger (stories.sql). Gateways of release 0.1.0 call it.
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
