-- Lanes, one for each app and provider: how they are made, the notification that wakes their gateways, their status, and
-- how operators pause and resume them.

-- Lanes and the bell --------------------------------------------------------------------------------------------------

comment on column push.lane.service is 'one of push.push_services(provider)';
comment on column push.lane.channel is 'provider and service: apns, webpush/google';

create or replace function push.register_lane(p_app text, p_provider text, p_service text default '') returns smallint
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.lane (app, provider, service, channel)
    select p_app, p_provider, p_service, p_provider || case p_service when '' then '' else '/' || p_service end
    where not exists (select from push.lane l where l.app = p_app and l.provider = p_provider and l.service = p_service)
    on conflict (app, provider, service) do nothing;
  return (select l.id from push.lane l where l.app = p_app and l.provider = p_provider and l.service = p_service);
end
$$;
comment on function push.register_lane is
  'the lane of an app and provider; makes it if it is missing. For gateways and push.grant_app. p_app: the app; '
  'p_provider: one of push.channels(); p_service: one of push.push_services(p_provider). Returns push.lanes.id';

-- Notifications are only hints: gateways poll as well. Every role that may connect may also NOTIFY and LISTEN, and a commit
-- that notifies holds a cluster-wide lock until it is on the disk. So nothing is notified while other sessions wait for
-- that lock, or while the queue is long. The queue is long if a session commits many notifications at once, which holds the
-- lock for seconds, or if a session listens and does not read. With a full queue, commits that notify would even fail.
create or replace function push.notify(p_channel text, p_payload text) returns boolean
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  -- 0.1 ‰ of 8 GiB, which is more than gateways ever leave unread.
  perform pg_notify(p_channel, p_payload) where pg_notification_queue_usage() < 0.0001 and not exists (
    select from pg_locks l
    where l.locktype = 'object' and l.database = 0 and l.classid = 'pg_database'::regclass and l.objid = 0 and not l.granted);
  return found;
end
$$;
comment on function push.notify is 'NOTIFY, unless the commit might wait for those of other sessions; false: nothing was notified';

create or replace function push.ring_doorbell() returns void language plpgsql set search_path = push, pg_temp as $$
begin
  -- A commit with a notification holds the notification lock until it is on the disk, and on a synchronous standby. If that
  -- takes long, the next writes of a notifying gateway would wait: settlements, next channels, even its heartbeats.
  -- Gateways poll, so they need no notification of their own.
  --
  -- A commit that notifies takes a cluster-wide lock, so there is at most one in 5 ms. The key is the time slot: with a
  -- fixed key, one long transaction would silence all others. Any role can take these keys in advance, which only silences
  -- the notifications: gateways poll 50 ms later.
  if current_setting('push.is_gateway', true) is distinct from 'on'
    and pg_try_advisory_xact_lock(7781, ((extract(epoch from clock_timestamp()) * 200)::bigint % 2000000000)::int + 1000) then
    perform push.notify('push_outbox', '');
  end if;
end
$$;
comment on function push.ring_doorbell is 'wakes the gateways at commit; in the sessions of gateways (push.is_gateway) it does nothing';

-- How they are doing --------------------------------------------------------------------------------------------------

comment on column push.lane_status.refusal is 'one sentence: why the provider refuses the lane''s credentials, and what to check; null: it does not';
comment on column push.lane_status.refused is 'what refusal concerns: all or some of the lane''s pushes, or new credentials that are not used yet';

create or replace function push.report_lanes(
  p_gateway int, p_lane smallint[], p_window int[], p_capacity int[], p_in_flight int[], p_circuit text[],
  p_throttled_ms int[], p_rate int[], p_refusal text[] default null, p_refused text[] default null
) returns void
language sql volatile security definer set search_path = push, pg_temp as $$
  insert into push.lane_status as s (lane, gateway, window_size, capacity, in_flight, rate_per_second, circuit,
    throttled_until, refusal, refused)
  select r.lane, p_gateway, coalesce(r.window_size, 0), coalesce(r.capacity, 0), coalesce(r.in_flight, 0), coalesce(r.rate, 0),
    r.circuit, clock_timestamp() + nullif(greatest(r.throttled_ms, 0), 0) * interval '1 ms', left(r.refusal, 500), r.refused
  from unnest(p_lane, p_window, p_capacity, p_in_flight, p_circuit, p_throttled_ms, p_rate, p_refusal, p_refused)
    r(lane, window_size, capacity, in_flight, circuit, throttled_ms, rate, refusal, refused)
  where exists (select from push.gateways g where g.id = p_gateway and g.alive)
  on conflict (lane, gateway) do update set window_size = excluded.window_size, capacity = excluded.capacity,
    in_flight = excluded.in_flight, rate_per_second = excluded.rate_per_second, circuit = excluded.circuit,
    throttled_until = excluded.throttled_until, refusal = excluded.refusal, refused = excluded.refused, updated_at = clock_timestamp()
$$;
comment on function push.report_lanes is
  'a replica reports the status of its lanes, to be called every second. p_gateway: what push.register_gateway returned. '
  'Arrays, by lane: p_lane: push.lanes.id; p_window, p_capacity: number of requests that it allows, and could allow, in '
  'flight; p_in_flight: requests in flight; p_circuit: closed, half_open or open; p_throttled_ms: milliseconds until it '
  'sends again, 0 or null: now; p_rate: requests in the last second; '
  'p_refusal, p_refused: push.lane_status.refusal and refused, null: from releases without them';

create or replace function push.lane_conditions() returns table (
  lane smallint, window_size int, capacity int, in_flight int, circuit text, throttled_until timestamptz,
  rate_per_second int
)
language sql stable security definer set search_path = push, pg_temp as $$
  select s.lane, sum(s.window_size)::int, sum(s.capacity)::int, sum(s.in_flight)::int,
    case when count(distinct s.circuit) = 1 then min(s.circuit) else 'half_open' end,
    max(s.throttled_until) filter (where s.throttled_until > now()), sum(s.rate_per_second)::int
  from push.lane_status s join push.gateways g on g.id = s.gateway
  where g.alive and g.heartbeat_at > now() - interval '5 s'
  group by s.lane
$$;
comment on function push.lane_conditions is
  'the status of the lanes over all living replicas, those with a heartbeat within 5 s; circuit is theirs, or half_open '
  'if they differ. For push.lanes';

create or replace view push.lanes as
select l.id, l.app, l.provider, l.paused, l.note, s.window_size, s.capacity, s.in_flight, s.circuit, s.throttled_until,
  s.rate_per_second, coalesce(d.ready, 0) as ready, coalesce(d.waiting, 0) as waiting, coalesce(d.claimed, 0) as claimed,
  now() - d.oldest as oldest_age, l.invalidation_held_at, l.invalidation_note, l.updated_at, l.channel, r.refusal, r.refused
from push.lane l
left join push.lane_conditions() s on s.lane = l.id
-- The worst that a living replica says, with its name if not all of them say it.
left join (
  select distinct on (x.lane) x.lane,
    case when x.same < x.replicas then format('replica%s %s: ', case when x.same > 1 then 's' end, x.names) else '' end || x.refusal
      || case when x.refused = 'all' and x.stopped < x.replicas
        then format('; %s of %s replicas send', x.sending, x.replicas) else '' end as refusal,
    case when x.refused = 'all' and x.stopped < x.replicas then 'some' else x.refused end as refused
  from (
    select s.lane, s.refusal, s.refused, count(*) as same, min(s.gateway) as first, string_agg(g.name, ', ' order by s.gateway) as names,
      sum(count(*)) over w as replicas, sum(count(*) filter (where s.refused = 'all')) over w as stopped,
      sum(count(*) filter (where s.refused is distinct from 'all' and s.circuit = 'closed' and s.capacity > 0)) over w as sending
    from push.lane_status s join push.gateways g on g.id = s.gateway
    where g.alive and g.heartbeat_at > now() - interval '5 s' and s.lane in (select y.lane from push.lane_status y where y.refusal is not null)
    group by s.lane, s.refusal, s.refused window w as (partition by s.lane)
  ) x
  where x.refusal is not null order by x.lane, array_position('{all,some,new}'::text[], x.refused), x.first
) r on r.lane = l.id
left join (
  select d.lane, (sum(d.count) filter (where d.state = 0))::bigint as ready,
    (sum(d.count) filter (where d.state = 2))::bigint as waiting,
    (sum(d.count) filter (where d.state = 1))::bigint as claimed, min(d.oldest) as oldest
  from push.count_owed() d
  group by d.lane
) d on d.lane = l.id;
comment on view push.lanes is
  'one app and provider, or one of the push services of browsers: what it may send, what it has sent, what is owed. '
  'push.pause_lane stops it and push.resume_lane starts it again';
comment on column push.lanes.window_size is
  'number of requests that may be in flight now, in all living replicas; null: no replica serves the lane';
comment on column push.lanes.capacity is 'number of requests that the connections could carry';
comment on column push.lanes.in_flight is 'number of requests in flight';
comment on column push.lanes.circuit is
  'closed (all is well), half_open (trying again, or closed at some of the replicas only) or open (nothing is sent, or only tries)';
comment on column push.lanes.throttled_until is
  'the time until which at least one replica waits, for a pause that the provider asked for or an open circuit; null: none waits';
comment on column push.lanes.rate_per_second is 'requests sent in the last second';
comment on column push.lanes.ready is
  'deliveries that could be sent now; above 30,000 divided by the number of lanes an estimate, rounded to three digits';
comment on column push.lanes.waiting is 'deliveries that wait for their next attempt';
comment on column push.lanes.claimed is 'deliveries that a replica holds';
comment on column push.lanes.oldest_age is 'age of the oldest of these deliveries';

-- Pausing -------------------------------------------------------------------------------------------------------------

-- A note is removed when the lane is resumed; push.audit keeps it. Only the service may pass an operator's name: any other role could
-- record somebody else's.
create or replace function push.operate_lane(p_operator text, p_app text, p_provider text, p_paused boolean, p_note text)
returns table (changed boolean, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_target text := left(p_app, 64) || '/' || left(p_provider, 16);
  v_said   text := left(p_note, 500);
  v_note   text;
  v_paused boolean;
begin
  select bool_or(l.paused), bool_or(l.paused <> p_paused), min(l.note) into v_paused, changed, v_note
    from (select l.* from push.lane l where l.app = p_app and p_provider in (l.provider, l.channel) order by l.id for no key update) l;
  if v_paused is null then
    raise exception using errcode = 'no_data_found',
      message = format('there is no lane %s', coalesce(v_target, 'without app or provider')),
      hint = 'push.lanes lists them; provider is one of ' || array_to_string(push.channels(), ', ') || '.';
  end if;
  v_note := case when p_paused then coalesce(v_said, v_note) end;
  update push.lane l set paused = p_paused, note = case when p_paused then coalesce(v_said, l.note) end, updated_at = clock_timestamp()
    where l.app = p_app and p_provider in (l.provider, l.channel)
      and (l.paused <> p_paused or l.note is distinct from case when p_paused then coalesce(v_said, l.note) end);
  perform push.ring_doorbell() where changed and not p_paused;
  message := v_target || case
    when p_paused and changed then ' is paused: its deliveries wait, and expire at their deadlines'
    when p_paused then ' was paused already'
    when changed then ' sends again'
    else ' was not paused; nothing to do' end || coalesce('. Note: ' || v_note, '');
  insert into push.audit (action, target, detail, operator) values (case when p_paused then 'pause_lane' else 'resume_lane' end, v_target,
    jsonb_build_object('changed', changed, 'note', coalesce(v_note, v_said)), left(p_operator, 128));
  return next;
end
$$;
comment on function push.operate_lane is
  'push.pause_lane or push.resume_lane for a user who is logged in to the dashboard, recorded in push.audit. p_operator: the user, for '
  'push.audit.operator; p_app, p_provider: the lane (webpush: those of all push services, webpush/google: one); p_paused: whether to pause or '
  'resume it; p_note: the reason, at most 500 characters';

create or replace function push.pause_lane(app text, provider text, note text default null) returns table (changed boolean, message text)
language sql volatile security definer set search_path = push, pg_temp as $$ select * from push.operate_lane(null, app, provider, true, note) $$;
comment on function push.pause_lane is
  'nothing more is claimed from this lane until push.resume_lane; deliveries that a replica holds are still sent. app, '
  'provider: the lane; note: the reason. Returns whether this changed anything, and a sentence that says what was done. '
  'Running it twice is harmless';

create or replace function push.resume_lane(app text, provider text, note text default null) returns table (changed boolean, message text)
language sql volatile security definer set search_path = push, pg_temp as $$ select * from push.operate_lane(null, app, provider, false, note) $$;
comment on function push.resume_lane is
  'a paused lane sends again at once, and its note is removed. app, provider: the lane; note: the reason, kept in '
  'push.audit. Returns whether this changed anything, and a sentence that says what was done. Running it twice is harmless';

create or replace function push.change_lane() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  if to_jsonb(new) - '{paused,note}'::text[] <> to_jsonb(old) - '{paused,note}'::text[] then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'push.lanes: only paused and note can be changed',
      hint = 'push.resume_invalidation ends a hold of invalidation.';
  end if;
  perform from push.operate_lane(null, old.app, old.channel, new.paused, new.note);
  update push.lane l set note = new.note, updated_at = clock_timestamp()
    where l.id = old.id and l.note is distinct from new.note;
  return new;
end
$$;
comment on function push.change_lane is 'an update of push.lanes does the same as push.pause_lane or push.resume_lane';

create or replace trigger change_lane instead of update on push.lanes for each row execute function push.change_lane();
