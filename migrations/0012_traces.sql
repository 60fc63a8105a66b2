-- Traces: the backend says which trace a call belongs to, and logs and history say it again (W3C Trace Context).

create function push.is_traceparent(p_text text) returns boolean language sql immutable parallel safe as
$$ select p_text ~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' $$;
comment on function push.is_traceparent is
  'whether a text is a traceparent of version 00: 00-TRACE-SPAN-FLAGS in lower-case hexadecimal digits, 32, 16 and 2, '
  'neither id all zeros (w3.org/TR/trace-context)';

-- The empty text is what push.fill_call makes of a bad one, for push.check_traces to refuse: an error of this CHECK
-- would print the row with its tokens. Not validated, so that the table is not read while it is locked: every older row
-- has null.
alter table push.outbox add column traceparent text,
  add constraint outbox_traceparent_form
    check (traceparent ~ '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})?$') not valid;
comment on column push.outbox.traceparent is
  'W3C trace context of whoever enqueued the call, 00-TRACE-SPAN-FLAGS; null: none. The gateway logs its trace id';

-- Enqueueing ----------------------------------------------------------------------------------------------------------

-- As in 0008; besides, a bad traceparent becomes an empty one.
create or replace function push.fill_call() returns trigger
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  -- Too long or missing values are cut or replaced so that the row can be inserted; the statement trigger refuses it.
  new.app := left(coalesce(new.app, 'default'), 65);
  new.kind := coalesce(new.kind, 'incoming_call');
  new.payload := coalesce(new.payload, 'null');
  new.recipients := coalesce(new.recipients, 'null');
  new.call_id := left(coalesce(new.call_id, push.given_call_id(new.kind, new.payload),
    case when push.is_message(new.kind) then gen_random_uuid()::text else '' end), 129);
  if exists (select from push.outbox o where o.call_id = new.call_id and o.app = new.app) then
    return null;
  end if;
  if not push.is_traceparent(new.traceparent) then
    new.traceparent := '';
  end if;
  new.created_at := clock_timestamp();
  new.answered_by := null;
  if push.is_call(new.kind) then
    if new.ring_seconds is null then
      new.ring_seconds := coalesce((select a.ring_seconds from push.apps a where a.app = new.app), 60);
    end if;
    new.state := 'ringing';
    new.ended_at := null;
    new.end_reason := null;
  else
    new.ring_seconds := coalesce(new.ring_seconds, 14400);
    new.state := 'ended';
    new.ended_at := new.created_at;
    new.end_reason := 'notification';
  end if;
  new.deadline_at := new.created_at + make_interval(secs => new.ring_seconds);
  return new;
end
$$;

create function push.check_traces() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  perform push.refuse(c.call_id, 'traceparent: must be 00-TRACE-SPAN-FLAGS in lower-case hexadecimal digits, 32, 16 '
    'and 2 of them, neither id all zeros; leave it out if there is none')
  from new_calls c where c.traceparent = '';
  return null;
end
$$;
comment on function push.check_traces is 'refuses calls whose traceparent is none';
-- Its name puts it before fan_out.
create trigger check_traces after insert on push.outbox referencing new table as new_calls
  for each statement execute function push.check_traces();

-- As in 0010, with traceparent.
drop function push.enqueue_call(jsonb, jsonb, text, int, text);
create function push.enqueue_call(
  payload jsonb, recipients jsonb, app text default 'default', ring_seconds int default null,
  kind text default 'incoming_call', traceparent text default null
) returns table (outbox_id bigint, deliveries int, duplicate boolean, skipped int, call_id text)
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
  insert into push.outbox (app, kind, payload, recipients, ring_seconds, traceparent)
    values (enqueue_call.app, enqueue_call.kind, enqueue_call.payload, enqueue_call.recipients,
      enqueue_call.ring_seconds, enqueue_call.traceparent)
    on conflict (call_id, app) do nothing
    returning id, outbox.call_id into outbox_id, call_id;
  duplicate := not found;
  if duplicate then
    select o.id, o.call_id into outbox_id, call_id from push.outbox o
      where o.call_id = push.given_call_id(enqueue_call.kind, enqueue_call.payload)
        and o.app = coalesce(enqueue_call.app, 'default');
  end if;
  deliveries := (select count(*) from push.delivery d
    where d.outbox_id = enqueue_call.outbox_id and d.kind in (0, 3) and d.fallback_of is null);
  if duplicate then
    deliveries := deliveries + (select count(*) from push.history h
      where h.outbox_id = enqueue_call.outbox_id and h.kind in (0, 3) and h.fallback_of is null);
  end if;
  -- As a rule nobody is skipped, and that is quickly seen.
  skipped := 0;
  if duplicate or exists (
    select case jsonb_typeof(e) when 'string' then e #>> '{}' else e ->> 'userId' end
      from jsonb_array_elements(enqueue_call.recipients) e
    except
    select d.user_id from push.delivery d where d.outbox_id = enqueue_call.outbox_id
  ) then
    skipped := (select count(*) from push.skipped_recipients(outbox_id));
  end if;
  return next;
end
$$;
comment on function push.enqueue_call is
  'enqueues one call, or one notification, in the caller''s transaction. payload: as push.outbox.payload; recipients: '
  'as push.outbox.recipients; app: which app''s phones ring; ring_seconds: the ring window, or the time to live of a '
  'notification; null: the app''s own; kind: as push.outbox.kind; traceparent: as push.outbox.traceparent. Returns '
  'outbox_id: push.outbox.id; deliveries: how many devices it goes to; duplicate: true if (app, callId) existed '
  'already, then nothing was done; skipped: how many users have no device (push.timeline says why); call_id: '
  'payload.callId, or the one made for a notification without';

-- Claiming ------------------------------------------------------------------------------------------------------------

-- As in 0009, with traceparent.
drop function push.claim(int, smallint[], int[], timestamptz[], interval);
create function push.claim(
  p_gateway int, p_lanes smallint[], p_max int[], p_floor timestamptz[], p_slack interval default '300 ms'
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
  v_floor timestamptz;
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive) then
    return;
  end if;
  for i in 1 .. coalesce(array_length(p_lanes, 1), 0) loop
    continue when p_max[i] <= 0;
    v_floor := greatest(p_floor[i], statement_timestamp() + p_slack);
    return query
      with pick as materialized (
        select d.ctid as tid
        from push.delivery d
        where d.state = 0 and d.lane = p_lanes[i] and d.deadline_at > v_floor
          and (select not l.paused from push.lane l where l.id = p_lanes[i])
        order by d.deadline_at
        limit p_max[i]
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
        (extract(epoch from t.deadline_at - clock_timestamp()) * 1000000)::bigint, o.end_reason, o.traceparent
      from taken t cross join lateral (
        select o.kind, o.call_id, o.payload, o.end_reason, o.traceparent from push.outbox o
        where o.id = t.outbox_id offset 0
      ) o;
  end loop;
end
$$;
comment on function push.claim is
  'takes up to p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first, with deadlines after '
  'p_floor[i] and more than p_slack away; nothing from a paused lane, nothing for a gateway declared dead. p_gateway: '
  'what push.register_gateway returned. Returns what a push needs; remaining_us: microseconds to the deadline';

-- What people read ----------------------------------------------------------------------------------------------------

-- As in 0009, with trace_id.
create or replace view push.delivery_history as
select h.outbox_id, l.app, o.call_id, l.provider,
  case h.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  h.user_id,
  case h.outcome when 0 then 'delivered' when 1 then 'delivered_late' when 2 then 'void' when 3 then 'expired'
    else 'dead' end as outcome,
  h.reason, h.attempts, h.created_at, h.sent_at, h.finished_at, h.provider_message_id,
  h.status::int as status, h.answered_at, h.deadline_at, h.n, h.owner as gateway, h.device, h.failures, h.fallback_of,
  h.receipt_reason, substr(o.traceparent, 4, 32) as trace_id
from push.history h
left join push.lane l on l.id = h.lane
left join push.outbox o on o.id = h.outbox_id;
comment on column push.delivery_history.trace_id is 'the trace that the call belongs to, from push.outbox.traceparent';

-- As in 0010, with trace_id.
drop function push.timeline(text, text);
create function push.timeline(call_id text, app text default null)
returns table (
  at timestamptz, ms numeric, event text, provider text, kind text, user_id text, attempt int, status int, reason text,
  device text, trace_id text
)
language sql stable security definer set search_path = push, pg_temp as $$
  with call as (
    select o.id, o.kind, o.created_at, substr(o.traceparent, 4, 32) as trace_id from push.outbox o
    where o.call_id = timeline.call_id and (timeline.app is null or o.app = timeline.app)
  ), owed as (
    select d.* from call c join push.deliveries d on d.outbox_id = c.id
  ), done as (
    select h.* from call c join push.delivery_history h on h.outbox_id = c.id and h.finished_at >= c.created_at
  ), event as (
    select c.id, c.created_at as at, 0 as step, -1 as n, 'enqueued' as event, null as provider, c.kind, null as user_id,
      null::int as attempt, null::int as status, null as reason, null as device
    from call c
    union all
    select c.id, c.created_at, 1, -1, 'skipped', null, c.kind, s.user_id, null, null, s.reason, null
    from call c cross join lateral push.skipped_recipients(c.id) s
    union all
    -- Another channel took over from one that failed, or from one of which no phone was heard.
    select f.outbox_id, f.created_at, 2, f.n, case when e.n is null then 'fallback' else 'escalation' end, f.provider,
      f.kind, f.user_id, null, case when e.n is null then h.status end,
      case when e.n is null then h.reason else 'NotRinging' end, f.device
    from (
      select outbox_id, created_at, n, provider, kind, user_id, device, fallback_of from owed
      union all
      select outbox_id, created_at, n, provider, kind, user_id, device, fallback_of from done
    ) f
    left join done h on h.outbox_id = f.outbox_id and h.n = f.fallback_of
    left join push.escalations e on e.outbox_id = f.outbox_id and e.n = f.n
    where f.fallback_of is not null
    union all
    -- A ready or claimed delivery has no time of its own: it is shown where it began.
    select d.outbox_id, case d.state when 'waiting' then d.due_at else d.created_at end, 3, d.n, d.state, d.provider,
      d.kind, d.user_id, d.attempt, null, d.last_reason, d.device
    from owed d
    union all
    select t.outbox_id, (f ->> 'at')::timestamptz, 4, t.n, 'attempt failed', t.provider, t.kind,
      t.user_id, (f ->> 'attempt')::int, (f ->> 'status')::int, f ->> 'reason', t.device
    from (
      select outbox_id, n, provider, kind, user_id, device, failures from owed
      union all
      select outbox_id, n, provider, kind, user_id, device, failures from done
    ) t
    cross join lateral jsonb_array_elements(t.failures) f
    union all
    select h.outbox_id, h.sent_at, 5, h.n, 'sent', h.provider, h.kind, h.user_id, h.attempts, null, null, h.device
    from done h where h.sent_at is not null
    union all
    select h.outbox_id, coalesce(h.answered_at, h.finished_at), 6, h.n, h.outcome, h.provider, h.kind,
      h.user_id, h.attempts, h.status, h.reason, h.device
    from done h
    union all
    select c.id, r.rang_at, 7, -1, 'ringing', null, c.kind, r.user_id, null, null, null, null
    from call c join push.ring_reports r on r.outbox_id = c.id
  )
  select e.at, round((extract(epoch from e.at - c.created_at) * 1000)::numeric, 1), e.event, e.provider, e.kind,
    e.user_id, e.attempt, e.status, e.reason, e.device, c.trace_id
  from event e join call c on c.id = e.id
  order by e.at, e.step, e.n, e.user_id
$$;
comment on function push.timeline is
  'the story of a call, in order of time. call_id: payload.callId; app: only the call of this app. ms: milliseconds '
  'since it was enqueued; event: enqueued, skipped (no delivery was made for this user), fallback (the channel before '
  'it failed for this reason), escalation (no phone had said that it rings), ready, claimed, waiting, attempt failed, '
  'sent, the outcome (delivered, delivered_late, void, expired, dead), or ringing (a phone said so); trace_id: the '
  'call''s, from push.outbox.traceparent';

-- As in 0010, with traceId.
create or replace function push.call(call_id text, app text default null) returns jsonb
language plpgsql stable security definer set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_call  push.outbox;
  v_id    bigint := push.find_call(call_id, app);
  v_since timestamptz;
begin
  select o.* into v_call from push.outbox o where o.id = v_id;
  -- A variable, so that older partitions are not looked at.
  v_since := v_call.created_at;
  return jsonb_build_object(
    'id', v_call.id, 'app', v_call.app, 'callId', v_call.call_id, 'kind', v_call.kind, 'state', v_call.state,
    'createdAt', push.iso_time(v_call.created_at), 'deadlineAt', push.iso_time(v_call.deadline_at),
    'endedAt', push.iso_time(v_call.ended_at), 'endReason', v_call.end_reason, 'answeredBy', v_call.answered_by,
    'traceId', substr(v_call.traceparent, 4, 32),
    'devices', coalesce((
      select jsonb_agg(jsonb_build_object('userId', d.user_id, 'provider', d.provider, 'kind', d.kind,
          'state', d.state, 'reason', d.reason, 'sentAt', push.iso_time(d.sent_at),
          'answeredAt', push.iso_time(d.answered_at), 'device', d.device, 'rangAt', push.iso_time(r.rang_at))
        order by d.n)
      from (
        select d.n, d.user_id, d.provider, d.kind, d.state, d.last_reason as reason, null::timestamptz as sent_at,
          null::timestamptz as answered_at, d.device
        from push.deliveries d where d.outbox_id = v_id
        union all
        select h.n, h.user_id, h.provider, h.kind, h.outcome, coalesce(h.receipt_reason, h.reason), h.sent_at,
          h.answered_at, h.device
        from push.delivery_history h where h.outbox_id = v_id and h.finished_at >= v_since
      ) d
      left join push.ring_reports r on r.outbox_id = v_id and r.user_id = d.user_id and d.kind = 'invite'), '[]'));
end
$$;
comment on function push.call is
  'a call as one JSON object: id, app, callId, kind, state (ringing, answered, ended, missed), createdAt, deadlineAt, '
  'endedAt, endReason, answeredBy, traceId, and devices: an array of {userId, provider, kind, state (ready, claimed, '
  'waiting, or the outcome), reason, sentAt, answeredAt (by the provider), device (masked), rangAt (the user''s '
  'first report)}; times are ISO 8601 in UTC. call_id: payload.callId; app: needed only if several apps have a call of '
  'this id';

-- Roles ---------------------------------------------------------------------------------------------------------------

-- As in 0010, with traceparent.
create or replace function push.grant_roles() returns text
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  c_roles constant jsonb := jsonb_build_object(
    'push_enqueuer', 'backends: enqueue, answer and end calls, register devices (schema push)',
    'push_ops', 'operators: read everything, tokens masked, and intervene (schema push)',
    'push_gateway', 'the push-gateway service (schema push)');
  -- Of a call, neither its payload nor its recipients, who are tokens.
  c_call_columns constant text :=
    'id, app, kind, call_id, ring_seconds, state, created_at, deadline_at, answered_by, ended_at, end_reason, '
    'traceparent';
  c_calls constant text := 'push.enqueue_call, push.answer_call, push.end_call, push.register_device, push.drop_device, '
    'push.call, push.report_ringing, push.timeline';
  v_role    text;
  v_missing text[] := '{}';
begin
  for v_role in select jsonb_object_keys(c_roles) loop
    if to_regrole(v_role) is null then
      begin
        execute format('create role %I nologin', v_role);
        execute format('comment on role %I is %L', v_role, c_roles ->> v_role);
      exception
        when duplicate_object or unique_violation then null;
        when insufficient_privilege then v_missing := v_missing || v_role;
      end;
    end if;
    continue when v_role = any (v_missing);
    execute format('grant usage on schema push to %I', v_role);
    case v_role
      when 'push_enqueuer' then
        execute format('grant insert (app, kind, call_id, payload, recipients, ring_seconds, state, traceparent), '
          'update (state, answered_by, end_reason), select (%s) on push.outbox to %I', c_call_columns, v_role);
        execute format('grant execute on function %s to %I', c_calls, v_role);
      when 'push_ops' then
        execute format('grant select (%s, voided) on push.outbox to %I', c_call_columns, v_role);
        execute format('grant select on push.summary, push.lanes, push.stuck, push.failures, push.replicas, push.health, '
          'push.deliveries, push.delivery_history, push.dead_devices, push.quarantined_devices, '
          'push.registered_devices, push.keys, push.apps, push.lane_status, push.audit to %I', v_role);
        execute format('grant update (paused, note) on push.lanes to %I', v_role);
        execute format('grant execute on function push.timeline, push.call, push.requeue, push.void_call, '
          'push.pause_lane, push.resume_lane, push.resume_invalidation, push.create_api_key, push.revoke_api_key, '
          'push.ensure_partitions, push.skipped_recipients, push.oldest_ringing, push.check_health, '
          'push.lane_conditions to %I', v_role);
      when 'push_gateway' then
        execute format('grant execute on function %s, push.register_gateway, push.heartbeat, push.retire_gateway, '
          'push.register_app, push.register_lane, push.report_lanes, push.claim, push.settle, push.park, push.release, '
          'push.invalidate_tokens, push.hold_invalidation, push.correct_environment, push.current_provider_token, '
          'push.offer_provider_token, push.claim_receipts, push.settle_receipts, push.postpone_receipts, '
          'push.give_up_receipts, push.promote, push.expire, push.miss, push.reap, push.escalate, push.prune, '
          'push.ensure_partitions, push.drop_partitions, push.oldest_ringing, push.find_api_key, '
          'push.take_tally, push.settled, push.observe to %I', c_calls, v_role);
        if to_regclass('push.schema_migration') is not null then
          execute format('grant select on push.schema_migration to %I', v_role);
        end if;
    end case;
  end loop;
  if v_missing <> '{}' then
    raise notice 'roles are missing: %; % may not create roles', array_to_string(v_missing, ', '), current_user
      using hint = 'Have them created with NOLOGIN, then: select push.grant_roles();';
    return 'missing: ' || array_to_string(v_missing, ', ');
  end if;
  return 'push_enqueuer, push_ops and push_gateway have their rights';
end
$$;
comment on function push.grant_roles is
  'makes the roles push_enqueuer, push_ops and push_gateway if they are missing and may be made, and gives them their '
  'rights in this database; says what it did; running it twice is harmless. For whoever owns the schema';

revoke execute on all functions in schema push from public;
select push.grant_roles();
