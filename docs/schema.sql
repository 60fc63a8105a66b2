-- The schema of push-gateway, as pg_dump 15 shows it: made by make schema, for comparing. What is read and edited
-- is in migrations/.

CREATE SCHEMA push;

COMMENT ON SCHEMA push IS 'push-gateway: the outbox, its deliveries and their history';

CREATE FUNCTION push.accept(p_app text, p_kind text, p_call_id text, p_payload jsonb, p_recipients jsonb, p_ring_seconds integer, p_traceparent text) RETURNS TABLE(fault text, is_call boolean, is_unwanted boolean, providers text[], voip_tokens text[], size_faults text[])
    LANGUAGE sql STABLE
    AS $$
  select case when c.bytes > 16384 then format('payload: has %s bytes, the limit is 16384; shorten it', c.bytes) else c.fault end
      || format(' (call %s)', case when p_call_id = '' then 'without callId' else left(p_call_id, 128) end), c.is_call,
    p_kind = 'missed_call' and c.missed_calls is not distinct from 'off', c.providers,
    case when c.fault is null and not c.is_call then push.voip_tokens(p_recipients) end,
    -- Below 880 bytes no provider's limit can be reached, whatever the payload contains.
    case when c.bytes between 881 and 16384 then push.size_faults(p_payload, c.is_call) end
  from (
    -- Only here is a payload made text: with a fault it may be thousands of times as long.
    select c.*, case when c.fault is null then octet_length(p_payload::text) end as bytes from (
      select push.is_call(p_kind) as is_call, a.providers, a.missed_calls, coalesce(
        case when p_traceparent = '' then
          'traceparent: must be 00-TRACE-SPAN-FLAGS in lower-case hexadecimal digits, 32, 16 and 2 of them, neither id all zeros; leave it '
          'out if there is none' end,
        push.call_fault(p_app, p_kind, p_call_id, p_payload, p_recipients, p_ring_seconds, a.message_text),
        -- Enqueueing makes no lanes. Lane numbers are shared by all apps and would run out, and a transaction left open would keep a
        -- gateway from making the same lane.
        case when (select true from push.lane l where l.app = p_app limit 1) is null
          then format('app: no gateway has served app %s yet; start one that has it in its configuration, or correct the name', p_app)
        end) as fault
      from (select) x left join push.apps a on a.app = p_app
      offset 0
    ) c
    offset 0
  ) c
$$;

COMMENT ON FUNCTION push.accept(p_app text, p_kind text, p_call_id text, p_payload jsonb, p_recipients jsonb, p_ring_seconds integer, p_traceparent text) IS 'the fault for which a call is refused, and what its entries need if it has none';

CREATE FUNCTION push.acts_for_all() RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select coalesce(pg_has_role(coalesce(nullif(current_setting('role'), 'none')::name, session_user), to_regrole('push_enqueuer'), 'usage')
      and not coalesce(pg_has_role(session_user, to_regrole('push_tenant'), 'usage')
        or pg_has_role(nullif(current_setting('role'), 'none')::name, to_regrole('push_tenant'), 'usage'), false)
    or current_setting('role') = 'none'
      and (pg_has_role(session_user, to_regrole('push_gateway'), 'usage') or has_schema_privilege(session_user, 'push', 'create')), false)
$$;

COMMENT ON FUNCTION push.acts_for_all() IS 'whether the login, and the role set with SET ROLE, act for every app; false: push.own_apps decides';

CREATE FUNCTION push.add_counts(p_counts jsonb, p_more jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select coalesce(jsonb_object_agg(s.place, jsonb_build_array(s.removed, s.masked)), '{}')
  from (
    select c.key as place, sum((c.value ->> 0)::bigint) as removed, sum((c.value ->> 1)::bigint) as masked
    from (select * from jsonb_each(p_counts) union all select * from jsonb_each(p_more)) c group by c.key
  ) s
  where s.removed + s.masked > 0
$$;

COMMENT ON FUNCTION push.add_counts(p_counts jsonb, p_more jsonb) IS 'adds to the counts of an erasure. p_counts: push.erasure.counts; p_more: what is added, likewise';

CREATE FUNCTION push.add_recipients(call_id text, recipients jsonb, app text DEFAULT NULL::text) RETURNS TABLE(outbox_id bigint, deliveries integer, skipped integer, skipped_recipients jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_call  push.outbox;
  v_all   jsonb;
  v_known int;
  v_full  jsonb;
begin
  -- A snapshot from before does not show what a gateway has sent since.
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    raise exception using errcode = 'feature_not_supported', message = 'push.add_recipients: needs the isolation level READ COMMITTED',
      hint = 'Call it in a transaction of its own: begin isolation level read committed.';
  end if;
  outbox_id := push.find_call(add_recipients.call_id, add_recipients.app);
  -- Who ends a call, or acts on its end, has this lock: either they see the newcomers, or the newcomers see the end.
  select o.* into v_call from push.outbox o where o.id = add_recipients.outbox_id for no key update;
  if v_call.state <> 'ringing' or v_call.deadline_at <= clock_timestamp() or not push.is_call(v_call.kind) then
    raise exception using errcode = '55R01',
      message = format('call_id: call %s %s', left(v_call.call_id, 128),
        case when push.is_call(v_call.kind) then 'rings no longer' else 'is a notification' end),
      hint = 'push.call shows its state. To ring more people, enqueue another call, with an id of its own.';
  elsif v_call.id is null then
    perform push.find_call(add_recipients.call_id, add_recipients.app);  -- it was deleted meanwhile
  end if;
  v_known := jsonb_array_length(v_call.recipients);
  -- What is there already is not added again, so that calling this twice is harmless.
  v_all := coalesce(v_call.recipients || case when jsonb_typeof(add_recipients.recipients) = 'array' then (
    select coalesce(jsonb_agg(e.entry order by e.ordinal), '[]')
    from jsonb_array_elements(add_recipients.recipients) with ordinality e(entry, ordinal)
    where not exists (select from jsonb_array_elements(v_call.recipients) r(entry) where r.entry = e.entry)) end, 'null');
  if pg_sequence_last_value('push.quota_id_seq') is not null and jsonb_typeof(v_all) = 'array' then
    -- While the app may ring nobody, nobody joins.
    v_full := coalesce(push.quota_fault(v_call.app, array[1, 0, jsonb_array_length(v_all) - v_known], true),
      push.use_quota(array[v_call.app], array[array[0, 0, jsonb_array_length(v_all) - v_known]]::bigint[]));
    if v_full is not null then
      raise exception using errcode = v_full ->> 'code', message = v_full ->> 'message', detail = v_full ->> 'detail',
        hint = v_full ->> 'hint', schema = 'push', table = 'outbox', column = v_full ->> 'column';
    end if;
  end if;
  deliveries := push.ring_newcomers(v_call, add_recipients.recipients, v_all);
  update push.outbox o set recipients = v_all, ended_at = 'infinity' where o.id = v_call.id and jsonb_array_length(v_all) > v_known;
  skipped_recipients := (
    select coalesce(jsonb_agg(jsonb_build_object('userId', s.user_id, 'field', s.field, 'reason', s.reason, 'remedy', s.remedy)), '[]')
    from push.skipped_recipients(v_call.id) s
    -- Of those who were given here, whether they are new or not.
    where substring(s.field from '[0-9]+')::int + 1 in (
      select a.ordinal from jsonb_array_elements(v_all) with ordinality a(entry, ordinal)
      where a.entry in (select e from jsonb_array_elements(add_recipients.recipients) e)));
  skipped := jsonb_array_length(skipped_recipients);
  return next;
end
$$;

COMMENT ON FUNCTION push.add_recipients(call_id text, recipients jsonb, app text) IS 'people join a call that rings: their phones ring until the call''s deadline, and the phones that ring already are not touched. call_id: payload.callId; recipients: as push.outbox.recipients, and with those of the call at most 1000; app: needed only if several apps have a call with this id. Returns outbox_id: push.outbox.id; deliveries: number of phones that are rung in addition; skipped_recipients: what push.skipped_recipients says about these recipients, an array of {userId, field, reason, remedy}; skipped: how many that are. Running it twice is harmless. Raises an error if the call rings no longer. Needs READ COMMITTED';

CREATE FUNCTION push.announce_deliveries() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if exists (select from push.webhook w where w.on_until > statement_timestamp()) then
    insert into push.webhook_event (event, app, type, outbox_id, user_id, at, data)
    select push.webhook_id('delivery', l.app, h.outbox_id::text, h.n::text, extract(epoch from h.finished_at)::text), l.app,
      'delivery.finished', h.outbox_id, h.user_id, h.finished_at,
      push.delivery_data(l.app, l.provider, o.call_id, row(h.*)::push.history)
    from new_rows h
    left join lateral (select o.call_id from push.outbox o where o.id = h.outbox_id offset 0) o on true
    cross join lateral (select l.app, l.provider from push.lane l where l.id = h.lane offset 0) l
    cross join lateral push.hook_of(l.app, 'delivery.finished')
    on conflict do nothing;
  end if;
  return null;
end
$$;

COMMENT ON FUNCTION push.announce_deliveries() IS 'records delivery.finished for the deliveries that a statement has finished';

CREATE FUNCTION push.answer_call(call_id text, user_id text DEFAULT NULL::text, app text DEFAULT NULL::text, device text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  v_id    bigint := push.find_call(call_id, app);
  v_app   text := (select o.app from push.outbox o where o.id = v_id);
  v_token text := push.device_token(v_app, device);
  v_user  text := coalesce(answer_call.user_id, case when v_token is not null then coalesce(
    (select d.user_id from push.devices d
      where sha256(d.token::bytea) = any (push.token_digests(case when push.is_token('apns', v_token) then 'apns' end, v_token))
        and d.app = v_app limit 1),
    (select e ->> 'userId' from push.outbox o cross join lateral jsonb_array_elements(o.recipients) e
      where o.id = v_id and push.is_recipient(e) and exists (select from push.entry_tokens(e, true) t
        where push.token_key(t.provider, t.token) = push.token_key(t.provider, v_token))
      limit 1)) end);
begin
  -- In one line, because the context of an error quotes it.
  update push.outbox o set state = 'answered', answered_device = v_token, answered_by = v_user where o.id = v_id and o.ended_at is null;
  return found;
end
$$;

COMMENT ON FUNCTION push.answer_call(call_id text, user_id text, app text, device text) IS 'marks the call as answered: nothing more is sent, and other devices that may ring get a cancel. call_id: payload.callId; user_id: the user who answered, if known: none of this user''s devices gets a cancel; app: needed only if several apps have a call with this id; device: the phone that answered, if known, by its token or push.devices.id: only this phone gets no cancel, the user''s other phones get one. Returns false if the call had ended before';

CREATE FUNCTION push.app_fault(p_app text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case when not coalesce(p_app ~ '^[A-Za-z0-9]' and p_app !~ '[^A-Za-z0-9_.-]' and length(p_app) <= 64, false)
    then 'app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores' end
$$;

COMMENT ON FUNCTION push.app_fault(p_app text) IS 'the fault of a name of an app; null: none';

CREATE FUNCTION push.beat(p_gateway integer, p_may_reap boolean, p_silence interval DEFAULT '00:00:03'::interval, OUT alive boolean, OUT must_reclaim boolean) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_now    timestamptz := clock_timestamp();
  v_steady timestamptz;
  v_silent int[] := '{}';
begin
  must_reclaim := false;
  update push.gateways g set heartbeat_at = v_now, doubted_at = null,
      steady_since = case
        when g.heartbeat_at between v_now - p_silence * 2 / 3 and v_now then g.steady_since
        else v_now
      end
    where g.id = p_gateway and g.alive
    returning g.steady_since into v_steady;
  alive := found;
  if p_may_reap and v_steady <= v_now - p_silence then
    with ended as (
      update push.gateways g
      set alive = false, ended_at = clock_timestamp(), ended_reason = 'silent',
        free_due_at = clock_timestamp()
      where g.id = any (array(
        select x.id from push.gateways x
        -- In the future: the clock was set back, and there was no heartbeat since.
        where x.alive and (x.heartbeat_at < v_now - p_silence or x.heartbeat_at > clock_timestamp() + p_silence)
          and x.doubted_at < v_now - p_silence / 6 and x.id <> p_gateway
        order by x.id for no key update skip locked))
      returning g.id
    )
    select coalesce(array_agg(e.id), '{}') into v_silent from ended e;
    update push.gateways g set doubted_at = v_now
    where g.id = any (array(
      select x.id from push.gateways x
      where x.alive and (x.heartbeat_at < v_now - p_silence * 2 / 3 or x.heartbeat_at > clock_timestamp() + p_silence)
        and (x.doubted_at <= v_now) is not true and x.id <> p_gateway
      order by x.id for no key update skip locked));
  end if;
end
$$;

COMMENT ON FUNCTION push.beat(p_gateway integer, p_may_reap boolean, p_silence interval, OUT alive boolean, OUT must_reclaim boolean) IS 'a gateway''s heartbeat, to be called every second. It finds the others that were silent for p_silence and declares them dead; their deliveries become ready (push.free_claims). p_may_reap enables this; it must be false until the caller''s own connection has been up for p_silence. p_gateway: what push.register_gateway returned. alive: false if the caller itself was declared dead: its deliveries are taken over, and it must register again. must_reclaim: for gateways of release 0.1.0: always false';

CREATE FUNCTION push.bury(p_places tid[], p_outcome integer, p_reason text DEFAULT NULL::text, OUT ended bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
  with gone as (
    delete from push.delivery d where d.ctid = any (p_places)
    returning d.*, case when d.accepted_at is null then p_outcome else (d.accepted_at > d.deadline_at)::int end as outcome,
      case when d.accepted_at is null then coalesce(p_reason, d.last_reason, 'DeadlinePassed') else 'Hedged' end as reason
  ), noted as (
    -- A cancel may have stood for a missed call.
    insert into push.follow_ups (outbox_id, why) select distinct g.outbox_id, 'untold' from gone g where g.kind = 1 and g.outcome >= 3
  ), counted as (
    insert into push.tally (what, lane, kind, outcome, reason, untried, count)
    select 'ended', g.lane, g.kind, g.outcome, g.reason, g.attempt = 0, count(*) from gone g group by g.lane, g.kind, g.outcome, g.reason, 6
  )
  insert into push.history (outbox_id, created_at, deadline_at, answered_at, n, attempts, lane, kind, outcome, user_id, token, environment,
    platform, locale, data, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.accepted_at, g.n, g.attempt, g.lane, g.kind, g.outcome, g.user_id, g.token,
    g.environment, g.platform, g.locale, g.data, g.reason, g.failures, g.fallback_of
  from gone g;
  get diagnostics ended = row_count;
exception when others or assert_failure then
  if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
  if cardinality(p_places) > 1 then
    ended := push.bury(p_places[:cardinality(p_places) / 2], p_outcome, p_reason)
      + push.bury(p_places[cardinality(p_places) / 2 + 1:], p_outcome, p_reason);
  else
    ended := 0;
    perform push.name_fault((select 'push.outbox.id ' || d.outbox_id from push.delivery d where d.ctid = p_places[1]), sqlstate);
  end if;
end
$$;

COMMENT ON FUNCTION push.bury(p_places tid[], p_outcome integer, p_reason text, OUT ended bigint) IS 'ends deliveries, which are locked, and writes their history. p_places: where they are stored. Returns how many. What cannot be read or written is left; push.audit and push.health name its call';

CREATE FUNCTION push.bypass(p_max integer DEFAULT 500, OUT invites bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
declare
  c_scanned constant int := 5000;
  v_lanes   smallint[] := array(
    select s.lane from push.lane_status s join push.gateways g on g.id = s.gateway and g.alive
    where s.lane in (select l.id from push.lane l where l.provider in ('apns', 'fcm') and not l.paused)
    group by s.lane
    having bool_and(s.circuit <> 'closed' or s.capacity = 0 or coalesce(s.throttled_until > clock_timestamp() + interval '2 s', false)));
  v_soon    timestamptz := clock_timestamp() + interval '1 s';
  -- Ten minutes is the longest ring window. A variable, so that only a part of the index is read.
  v_due     timestamptz := clock_timestamp() + interval '10 minutes';
begin
  invites := push.change_rows(
    'with looked as (
      update push.delivery d set bypassed_at = clock_timestamp() where d.ctid = any ($1) returning d.outbox_id
    ), noted as (
      insert into push.follow_ups (outbox_id, why, is_urgent) select distinct l.outbox_id, ''stuck'', true from looked l
    )
    select from looked', array(
    with seen as materialized (
      -- Deliveries of other kinds do not count towards the limit: there may be thousands of them.
      select y.* from unnest(v_lanes) s(lane) cross join lateral (
        select d.ctid as tid, d.lane, d.created_at, d.deadline_at, d.state, d.bypassed_at from push.delivery d
        where d.ready_lane = s.lane and d.deadline_at > v_soon and d.deadline_at <= v_due and d.kind = 0
        order by d.deadline_at desc limit c_scanned
      ) y
      union all
      select w.* from (
        -- Invites that failed before, or that are on a stuck lane.
        select d.ctid, d.lane, d.created_at, d.deadline_at, d.state, d.bypassed_at from push.delivery d
        where d.ready_lane is null and d.kind = 0 and d.due_at <= v_due and d.state = 2
          and (d.last_reason is not null or d.lane = any (v_lanes))
        order by d.due_at limit c_scanned
      ) w
    )
    select x.ctid from push.delivery x where x.ctid = any (array(
      select n.tid from (
        select s.tid, row_number() over (partition by s.lane order by s.deadline_at desc) as place from seen s
        where s.bypassed_at is null and s.state in (0, 2) and s.created_at <= clock_timestamp() - interval '2 s' and s.deadline_at > v_soon
      ) n
      order by n.place limit p_max))
    for no key update skip locked));
end
$_$;

COMMENT ON FUNCTION push.bypass(p_max integer, OUT invites bigint) IS 'notes the calls of at most p_max invites that wait, for push.next_channels; returns how many invites';

CREATE FUNCTION push.call(call_id text, app text DEFAULT NULL::text, after_n integer DEFAULT NULL::integer, devices integer DEFAULT NULL::integer) RETURNS jsonb
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  v_call push.outbox := (select o from push.outbox o where o.id = push.find_call(call.call_id, call.app));
  v_last int;
begin
  -- The last number on this page, if another page follows.
  select case when devices is not null and count(*) > 1 then min(page.n) end into v_last
    from (
      select d.n from push.delivery d where d.outbox_id = v_call.id and d.n > coalesce(after_n, -1)
      union all
      select h.n from push.history h where h.outbox_id = v_call.id and h.finished_at >= v_call.created_at and h.n > coalesce(after_n, -1)
      order by n offset greatest(devices, 1) - 1 limit 2
    ) page;
  return jsonb_build_object(
    'id', v_call.id, 'app', v_call.app, 'callId', v_call.call_id, 'kind', v_call.kind, 'state', v_call.state,
    'createdAt', push.iso_time(v_call.created_at), 'deadlineAt', push.iso_time(v_call.deadline_at),
    'endedAt', push.iso_time(v_call.ended_at), 'endReason', v_call.end_reason, 'answeredBy', v_call.answered_by,
    'declinedBy', coalesce((
      select jsonb_agg(jsonb_build_object('userId', s.user_id, 'reason', s.said ->> 'reason',
        'at', push.iso_time((s.said ->> 'at')::timestamptz)) order by s.said ->> 'at', s.user_id)
      from jsonb_each(v_call.declined) s(user_id, said)), '[]'),
    'traceId', substr(v_call.traceparent, 4, 32), 'next', v_last,
    'devices', coalesce((
      select jsonb_agg(to_jsonb(d) - 'n' || jsonb_build_object('rangAt', push.iso_time(r.rang_at)) order by d.n)
      from (
        select d.n, d.user_id as "userId", d.provider, d.kind, d.state, d.last_reason as reason, null as "sentAt", null as "answeredAt", d.device
        from push.deliveries d
        where d.outbox_id = v_call.id and d.n > coalesce(after_n, -1) and (v_last is null or d.n <= v_last)
        union all
        select h.n, h.user_id, h.provider, h.kind, h.outcome, coalesce(h.receipt_reason, h.reason), push.iso_time(h.sent_at),
          push.iso_time(h.answered_at), h.device
        from push.delivery_history h
        where h.outbox_id = v_call.id and h.finished_at >= v_call.created_at and h.n > coalesce(after_n, -1) and (v_last is null or h.n <= v_last)
      ) d
      left join push.ring_reports r on r.outbox_id = v_call.id and r.user_id = d."userId" and d.kind = 'invite'), '[]'));
end
$$;

COMMENT ON FUNCTION push.call(call_id text, app text, after_n integer, devices integer) IS 'a call as one JSON object: id, app, callId, kind, state (ringing, answered, ended, missed), createdAt, deadlineAt, endedAt, endReason, answeredBy, declinedBy (an array of {userId, reason, at}), traceId, next, and devices: an array of {userId, provider, kind, state (ready, claimed, waiting, or the outcome), reason, sentAt, answeredAt (by the provider), device (masked), rangAt (the user''s first report)}. Times are ISO 8601 in UTC. call_id: payload.callId; app: needed only if several apps have a call with this id; devices: maximum number of devices; null: all; after_n: only devices after this number. next: the after_n of the next page; null: this is the last page';

CREATE TABLE push.outbox (
    id bigint NOT NULL,
    app text DEFAULT 'default'::text NOT NULL,
    kind text DEFAULT 'incoming_call'::text NOT NULL,
    call_id text NOT NULL,
    payload jsonb NOT NULL,
    recipients jsonb NOT NULL,
    ring_seconds integer NOT NULL,
    state text DEFAULT 'ringing'::text NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    answered_by text,
    ended_at timestamp with time zone,
    end_reason text,
    voided boolean DEFAULT false NOT NULL,
    traceparent text,
    answered_device text,
    declined jsonb,
    erased_at timestamp with time zone,
    CONSTRAINT outbox_state_known CHECK ((state = ANY (ARRAY['ringing'::text, 'answered'::text, 'ended'::text, 'missed'::text]))),
    CONSTRAINT outbox_traceparent_form CHECK ((traceparent ~ '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})?$'::text))
)
WITH (fillfactor='90', vacuum_truncate=off, autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='50000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='500000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='100000');
ALTER TABLE ONLY push.outbox ALTER COLUMN payload SET STATISTICS 0;
ALTER TABLE ONLY push.outbox ALTER COLUMN recipients SET STATISTICS 0;
ALTER TABLE ONLY push.outbox ALTER COLUMN traceparent SET STATISTICS 0;
ALTER TABLE ONLY push.outbox ALTER COLUMN declined SET STATISTICS 0;

COMMENT ON TABLE push.outbox IS 'one call, or one notification, as the backend wrote it: insert (app, payload, recipients [, kind, ring_seconds]), the rest is filled in';

COMMENT ON COLUMN push.outbox.id IS 'number of the call; unique, but not in order of insertion';

COMMENT ON COLUMN push.outbox.app IS 'which app''s phones ring: the key under apps in the gateway''s configuration';

COMMENT ON COLUMN push.outbox.kind IS 'incoming_call, video_call, or one of the notifications message, group_message, group_invite, missed_call';

COMMENT ON COLUMN push.outbox.call_id IS 'payload.callId; for message, group_message and group_invite what was given, else payload.callId, payload.messageId or a new UUID; unique with app, so enqueueing twice is one call';

COMMENT ON COLUMN push.outbox.payload IS 'object. Calls and missed_call: callId and from (strings) required; fromName, apartmentNumber, buildingName, channelName, metadata optional. message, group_message, group_invite: from and chatId (strings) required; callId, messageId, fromName, metadata, androidChannel optional; text only if push.apps.message_text allows it';

COMMENT ON COLUMN push.outbox.recipients IS 'array of up to 1000 user ids, or objects {userId, voipPushToken, apnsToken, fcmToken, pushToken, webPushSubscription, platform, environment, locale, data, notificationEnabled}';

COMMENT ON COLUMN push.outbox.ring_seconds IS 'calls: ring window in seconds, 1 to 600; the app''s (else 60) unless given. Notifications: time to live in seconds, 1 to 2419200; 14400 unless given';

COMMENT ON COLUMN push.outbox.state IS 'ringing, answered, ended or missed; it changes once, and an update of it is as good as push.answer_call or end_call; a notification is ended from the start';

COMMENT ON COLUMN push.outbox.created_at IS 'when it was enqueued, by the database''s clock';

COMMENT ON COLUMN push.outbox.deadline_at IS 'end of the ring window, or of the time to live: nothing leaves after it';

COMMENT ON COLUMN push.outbox.answered_by IS 'the user who answered, as far as known: their devices are told nothing';

COMMENT ON COLUMN push.outbox.ended_at IS 'when the state ceased to be ringing; null while it rings';

COMMENT ON COLUMN push.outbox.end_reason IS 'the reason given to push.end_call, else answered, ended or missed; declined and busy leave no missed call; notification: it never was a call';

COMMENT ON COLUMN push.outbox.voided IS 'ended by push.void_call: nobody is told of a missed call';

COMMENT ON COLUMN push.outbox.traceparent IS 'W3C trace context of whoever enqueued the call, 00-TRACE-SPAN-FLAGS; null: none. The gateway logs its trace id';

COMMENT ON COLUMN push.outbox.answered_device IS 'token of the phone that answered, as far as known: it is told nothing, the same user''s other phones are';

COMMENT ON COLUMN push.outbox.declined IS 'object: each user who declined or is busy, with {"reason", "at", "device"}: their phones ring no more; null: nobody. Written by push.decline_call';

COMMENT ON COLUMN push.outbox.erased_at IS 'when push.erase_user last masked a user in it; null: never';

CREATE FUNCTION push.call_data(p_call push.outbox) RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select jsonb_build_object('app', p_call.app, 'callId', p_call.call_id, 'kind', p_call.kind, 'state', p_call.state,
    'reason', p_call.end_reason, 'answeredBy', p_call.answered_by, 'createdAt', push.iso_time(p_call.created_at),
    'endedAt', push.iso_time(p_call.ended_at))
$$;

COMMENT ON FUNCTION push.call_data(p_call push.outbox) IS 'data of call.answered, call.ended and call.missed';

CREATE FUNCTION push.call_fault(p_app text, p_kind text, p_call_id text, p_payload jsonb, p_recipients jsonb, p_ring_seconds integer, p_takes_text boolean) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
  select coalesce(case
    when jsonb_typeof(p_payload) <> 'object' then 'payload: must be an object'
    when push.is_call(p_kind) or p_kind = 'missed_call' then case
      when jsonb_typeof(p_payload -> 'callId') is distinct from 'string'
          or length(p_payload ->> 'callId') not between 1 and 128
        then 'payload.callId: must be a string of 1 to 128 characters'
      when p_call_id <> p_payload ->> 'callId'
        then 'call_id: must equal payload.callId; leave it out and it is filled in'
    end
    when push.is_message(p_kind) then case
      when jsonb_typeof(p_payload -> 'callId') not in ('string', 'null')
          or length(p_payload ->> 'callId') not between 1 and 128
        then 'payload.callId: must be a string of 1 to 128 characters, or left out'
      when jsonb_typeof(p_payload -> 'messageId') not in ('string', 'null')
          or length(p_payload ->> 'messageId') not between 1 and 128
        then 'payload.messageId: must be a string of 1 to 128 characters, or left out'
      when length(p_call_id) not between 1 and 128
        then 'call_id: must have 1 to 128 characters; leave it out and it is filled in'
      when jsonb_typeof(p_payload -> 'chatId') is distinct from 'string'
          or length(p_payload ->> 'chatId') not between 1 and 256
        then 'payload.chatId: must be a string of 1 to 256 characters'
    end
    else 'kind: must be incoming_call, video_call, message, group_message, group_invite or missed_call'
  end, case
    when jsonb_typeof(p_payload -> 'from') is distinct from 'string' then 'payload.from: must be a string'
    when jsonb_typeof(p_payload -> 'fromName') not in ('string', 'number', 'null')
      then 'payload.fromName: must be a string, or left out'
    when jsonb_typeof(p_payload -> 'apartmentNumber') not in ('string', 'number', 'null')
      then 'payload.apartmentNumber: must be a string, or left out'
    when jsonb_typeof(p_payload -> 'buildingName') not in ('string', 'number', 'null')
      then 'payload.buildingName: must be a string, or left out'
    when jsonb_typeof(p_payload -> 'channelName') not in ('string', 'number', 'null')
      then 'payload.channelName: must be a string, or left out'
    when jsonb_typeof(p_payload -> 'metadata') not in ('object', 'null')
      then 'payload.metadata: must be an object, or left out'
    when push.app_fault(p_app) is not null then push.app_fault(p_app)
    when push.is_call(p_kind) and p_ring_seconds not between 1 and 600
      then 'ring_seconds: must be 1 to 600 seconds; leave it out for the app''s own ring window'
    when not push.is_call(p_kind) and p_ring_seconds not between 1 and 2419200
      then 'ring_seconds: must be 1 to 2419200 seconds, a notification''s time to live; leave it out for four hours'
    when jsonb_typeof(p_recipients -> 'tooManyBytes') = 'number'
      then 'recipients: has ' || (p_recipients ->> 'tooManyBytes') || ' bytes, the limit is 2097152; split the call'
    when jsonb_typeof(p_recipients) <> 'array'
      then 'recipients: must be an array of user ids or objects'
    when jsonb_array_length(case jsonb_typeof(p_recipients) when 'array' then p_recipients end) > 1000
      then 'recipients: must have at most 1000 entries; split the call'
    -- A function is called only for such numbers, and for 0, which may have thousands of decimals.
    when case when p_payload @? 'strict $.** ? (@.type() == "number" && (@ >= 1e30 || @ <= -1e30 || @ < 1e-30 && @ > -1e-30))'
        then push.has_long_number(p_payload) end
      then 'payload: has a number that is too large or too small; write it as text'
    when case when p_recipients @? 'strict $.** ? (@.type() == "number" && (@ >= 1e30 || @ <= -1e30 || @ < 1e-30 && @ > -1e-30))'
        then push.has_long_number(p_recipients) end
      then 'recipients: has a number that is too large or too small; write it as text'
    when push.is_message(p_kind) and p_takes_text and jsonb_typeof(p_payload -> 'text') not in ('string', 'null')
      then 'payload.text: must be a string, or left out'
    -- A name that suggests the text, of a member of the payload, or at any depth of its metadata. The letters of a pattern have
    -- the same capitals in every database; lower() would follow its collation, in which I may be no capital of i.
    when push.is_message(p_kind) then 'payload.' || coalesce(
        jsonb_path_query_first(case when p_takes_text then p_payload - 'text' else p_payload end, 'strict $.keyvalue() ? (@.value != null).key
          ? (@ like_regex "^(body|text|message|content|preview|snippet|subject|html)$" flag "i")') #>> '{}',
        'metadata.' || (jsonb_path_query_first(p_payload -> 'metadata', 'strict $.** ? (@.type() == "object").keyvalue()
          ? (@.value != null).key ? (@ like_regex "^(body|text|message|content|preview|snippet|subject|html)$" flag "i")') #>> '{}'))
      || case when p_takes_text then ': the text of a message is payload.text; rename it, or leave it out'
        else ': a message''s text does not travel in a push; leave it out' end
  end)
$_$;

COMMENT ON FUNCTION push.call_fault(p_app text, p_kind text, p_call_id text, p_payload jsonb, p_recipients jsonb, p_ring_seconds integer, p_takes_text boolean) IS 'the fault of a call, without the entries of its recipients; null: none. p_takes_text: whether its app shows the text of messages';

CREATE FUNCTION push.calls(p_call_id text) RETURNS jsonb
    LANGUAGE sql STABLE
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS $$
  select coalesce(jsonb_agg(push.call(p_call_id, o.app) || jsonb_build_object('timeline', (
      select coalesce(jsonb_agg(jsonb_build_object(
          'ms', t.ms, 'event', t.event, 'provider', t.provider, 'kind', t.kind, 'userId', t.user_id,
          'attempt', t.attempt, 'status', t.status, 'reason', t.reason, 'device', t.device) order by t.ordinality), '[]')
      from push.timeline(p_call_id, o.app) with ordinality t))
    order by o.created_at desc), '[]')
  from (select o.app, o.created_at from push.outbox o where o.call_id = p_call_id order by o.created_at desc limit 5) o
$$;

COMMENT ON FUNCTION push.calls(p_call_id text) IS 'the calls with this id, at most one for each app, the latest five first. Each has the form of push.call, with its timeline. p_call_id: payload.callId';

CREATE FUNCTION push.cancel_rings(p_calls bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
begin
  with call as materialized (
    select o.id, o.app, o.recipients, o.ended_at, o.answered_by, o.answered_device, o.declined,
      coalesce((select a.voip_cancel from push.apps a where a.app = o.app), false) as voip_cancel,
      -- The phones that have answered or declined: their tokens, and as push.token_key.
      array(select case when push.is_token('apns', d.token) then lower(d.token) else d.token end from (
        select o.answered_device union select s.said ->> 'device' from jsonb_each(o.declined) s(user_id, said)) d(token)
        where d.token is not null) as said
    from unnest(p_calls) c(id) cross join lateral (
      select * from push.outbox o
      where o.id = c.id and (o.state in ('answered', 'ended') or o.state = 'ringing' and o.declined is not null) offset 0
    ) o
  ), decliner as materialized (
    select c.id, s.user_id, s.said ->> 'device' is not null or s.said ? 'erases' as has_call
    from call c cross join lateral jsonb_each(c.declined) s(user_id, said)
  ), own (id, key) as materialized (
    select c.id, s.key from call c cross join unnest(c.said) s(key)
    union all
    -- An entry of recipients with tokens is one phone.
    select c.id, push.token_key(t.provider, t.token)
    from call c cross join lateral jsonb_array_elements(c.recipients) e cross join lateral push.entry_tokens(e, true) t
    where c.said <> '{}' and (lower(push.channel_token('apns', e ->> 'apnsToken')) = any (c.said)
      or exists (select from push.entry_tokens(e, true) s where push.token_key(s.provider, s.token) = any (c.said)))
    union all
    -- Of a registered phone it is unknown which other tokens it has: any of the user's tokens on that platform may be its own.
    -- A browser has only one.
    select c.id, push.token_key(d.provider, d.token) from call c cross join unnest(c.said) s(key)
    cross join lateral (
      select x.user_id, x.provider, x.voip, coalesce(x.platform, case x.provider when 'apns' then 'ios' when 'fcm' then 'android' end) as platform
      from push.devices x
      where sha256(x.token::bytea) = any (push.token_digests(case when push.is_token('apns', s.key) then 'apns' end, s.key)) and x.app = c.app and
        x.provider <> 'webpush' offset 0
    ) x
    cross join lateral (
      select d.provider, d.token from push.devices d
      where d.user_id = x.user_id and d.app = c.app and d.enabled and d.invalidated_at is null and d.provider <> 'webpush'
        and (d.provider <> x.provider or d.voip > x.voip)
        and (x.platform is null or coalesce(d.platform, case d.provider when 'fcm' then 'android' else x.platform end) = x.platform) offset 0
    ) d
  ), pushed as materialized (
    select p.*, push.token_key(p.provider, p.token) as key from push.pushes_of(array(select c.id from call c)) p
  ), target as (
    select distinct on (p.id, p.lane, p.key) p.*
    from call c join pushed p on p.id = c.id left join decliner s on s.id = p.id and s.user_id = p.user_id
    where p.kind = 0 and p.may_ring and p.token is not null and (c.ended_at is not null or s.id is not null)
      and (c.answered_device is not null or p.user_id is distinct from c.answered_by)
      and (p.id, p.key) not in (select o.id, o.key from own o)
      and (p.provider <> 'apns' or c.voip_cancel and coalesce(s.has_call, true))
      and (p.id, p.lane, p.key) not in (select x.id, x.lane, x.key from pushed x where x.kind = 1 and x.key is not null)
    order by p.id, p.lane, p.key, p.n desc
  )
  insert into push.delivery (outbox_id, n, kind, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
  select t.id, t.last_n + row_number() over (partition by t.id order by t.lane, t.key), 1, clock_timestamp() + interval '60 s', t.lane, t.lane,
    coalesce(t.environment, 0), coalesce(t.platform, 0), t.user_id, t.token, t.locale, t.data
  from target t;
end
$$;

COMMENT ON FUNCTION push.cancel_rings(p_calls bigint[]) IS 'makes one cancel for each phone that may ring and should not, and has none';

CREATE FUNCTION push.change_lane() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION push.change_lane() IS 'an update of push.lanes does the same as push.pause_lane or push.resume_lane';

CREATE FUNCTION push.change_rows(p_change text, p_rows tid[], OUT changed bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
  set constraints all immediate;
  execute p_change using p_rows;
  get diagnostics changed = row_count;
exception when others or assert_failure then
  if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
  if cardinality(p_rows) > 1 then
    changed := push.change_rows(p_change, p_rows[:cardinality(p_rows) / 2]) + push.change_rows(p_change, p_rows[cardinality(p_rows) / 2 + 1:]);
  else
    changed := 0;
    perform push.name_fault('push.outbox.id ' || case
      when p_change ~ 'update push.delivery' then (select d.outbox_id from push.delivery d where d.ctid = p_rows[1])
      when p_change ~ 'update push.outbox' then (select o.id from push.outbox o where o.ctid = p_rows[1]) end, sqlstate);
  end if;
end
$$;

COMMENT ON FUNCTION push.change_rows(p_change text, p_rows tid[], OUT changed bigint) IS 'runs a statement for rows, $1, which are locked; returns how many it has changed. Those that cannot be changed are left, and their calls named';

CREATE FUNCTION push.channel_token(p_provider text, p_token text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case p_provider
    when 'apns' then case when push.is_token('apns', translate(p_token, E'<> \t\r\n', ''))
      then translate(p_token, E'<> \t\r\n', '') end
    when 'webpush' then push.webpush_token(p_token)
    else case when push.is_token(p_provider, btrim(p_token, E' \t\r\n')) then btrim(p_token, E' \t\r\n') end
  end
$$;

COMMENT ON FUNCTION push.channel_token(p_provider text, p_token text) IS 'a token as it is used; null: it does not have the form of a token of this provider';

CREATE FUNCTION push.channels() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select '{apns,fcm,expo,webpush}'::text[] $$;

COMMENT ON FUNCTION push.channels() IS 'the names of all channels, best first: the place in this list is the rank of a channel';

CREATE FUNCTION push.check_call() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  -- No backend has the right to update this column.
  v_is_erasing boolean := new.erased_at is distinct from old.erased_at;
  v_fault text := case
    when not v_is_erasing and ((new.id, new.app, new.kind, new.call_id, new.ring_seconds, new.created_at, new.deadline_at)
        is distinct from (old.id, old.app, old.kind, old.call_id, old.ring_seconds, old.created_at, old.deadline_at)
        or new.payload is distinct from old.payload
        -- push.add_recipients marks its change so: below, the mark is removed. Others would ring nobody.
        or new.recipients is distinct from old.recipients and new.ended_at is distinct from 'infinity')
      then ': only state, answered_by and end_reason can be changed; enqueue another call'
    when new.state is null or new.state not in ('ringing', 'answered', 'ended', 'missed')
      then '.state: must be answered, ended or missed'
    when old.state <> 'ringing' and new.state <> old.state
      then format('.state: is %s already and cannot become %s', old.state, new.state)
    when length(new.end_reason) not between 1 and 64 then '.end_reason: must have 1 to 64 characters'
    when length(new.answered_by) not between 1 and 256 then '.answered_by: must have 1 to 256 characters'
  end;
begin
  if v_fault is not null then
    raise exception using
      errcode = 'invalid_parameter_value', message = format('push.outbox%s (call %s)', v_fault, old.call_id),
      schema = 'push', table = 'outbox', column = coalesce(substring(v_fault from '^[.]([a-z_]+)'), '');
  end if;
  if new.state = old.state then
    new.ended_at := old.ended_at;
    new.end_reason := old.end_reason;
    new.voided := old.voided;
    if not v_is_erasing then
      new.answered_by := old.answered_by;
      new.answered_device := old.answered_device;
    end if;
  else
    new.ended_at := clock_timestamp();
    new.end_reason := coalesce(new.end_reason, new.state);
  end if;
  return new;
end
$$;

COMMENT ON FUNCTION push.check_call() IS 'lets a call end once, and refuses any other change, except those of push.erase_user and push.add_recipients';

CREATE FUNCTION push.check_device() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
declare
  -- A new row with the time of an earlier registration is a copy: a backup is restored, or a shard gets the devices of another. Apart from
  -- the check of the row, which would otherwise be planned anew for each.
  v_is_served constant boolean := case tg_op when 'INSERT' then new.registered_at < now() else new.app = old.app end
    or exists (select from push.lane l where l.app = new.app);
  v_fault text;
begin
  new.environment := case new.environment when 'development' then 'sandbox' else coalesce(new.environment, 'production') end;
  -- A browser's PushSubscription becomes one text, which the unique index can compare.
  new.token := coalesce(push.channel_token(new.provider, new.token), new.token);
  new.platform := coalesce(new.platform, case new.provider when 'webpush' then 'web' end);
  -- One of APNs in both capitals and small letters would not be found (push.token_digests).
  new.token := case new.token when upper(new.token) then new.token else push.token_key(new.provider, new.token) end;
  v_fault := push.device_fault(new.user_id, new.app, new.provider, new.token, new.environment, new.platform, new.locale, v_is_served);
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault, schema = 'push', table = 'devices',
      hint = format('The device was not %s.', case tg_op when 'INSERT' then 'registered' else 'changed' end),
      column = substring(v_fault from '^push.devices.([a-z_]+)');
  end if;
  return new;
end
$$;

COMMENT ON FUNCTION push.check_device() IS 'refuses a malformed device with an error that contains no token';

CREATE FUNCTION push.check_health() RETURNS TABLE(item text, value text, state text, hint text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
begin
  -- After a restore without data.
  if not (select c.relispopulated from pg_class c where c.oid = 'push.schema_made'::regclass) then
    return query values ('schema', 'not compared', 'warn', 'The owner of the schema calls: refresh materialized view push.schema_made.');
  else
    return query
      select 'schema', coalesce(push.first_few(array_agg(f.fault order by f.fault)), 'complete'),
          case when count(*) = 0 then 'ok' when bool_and(f.fault like '% is not of this schema') then 'warn' else 'bad' end,
          case when bool_and(f.fault like '% is not of this schema')
            then 'It may keep calls from being enqueued, sent or recorded. Remove it, or declare it right: refresh materialized view '
              'push.schema_made.'
            else 'Calls do not ring, or what became of them is not recorded. The owner of the schema switches a trigger on (alter table … '
              'enable trigger …), gives rights back with: select push.grant_roles(); and makes the rest as docs/schema.sql has it.' end
        from push.schema_faults f;
  end if;
  return query
    select * from push.health_of_server()
    union all
    select * from push.health_of_replicas()
    union all
    select * from push.health_of_calls()
    union all
    select 'credentials', coalesce(push.first_few(array_agg(r.refusal order by r.refused, r.refusal)), 'none is refused'),
        case when bool_or(r.refused = 'all') then 'bad' when count(*) > 0 then 'warn' else 'ok' end,
        case when bool_or(r.refused = 'all') then 'Calls do not ring there, unless a sentence says otherwise. ' else '' end
          || 'A replica reads a corrected file within 2 s, and tries it: push-gateway check-config --connect, on the machine of a replica that '
          'is named, asks each provider. See docs/operations/credentials-fail.md.'
      from push.lanes r where r.refusal is not null
    union all
    select 'webhooks',
        coalesce(push.first_few(array_agg(format('%s: %s%s%s, %s wait', w.app, w.state,
          ' since ' || date_trunc('second', case w.state when 'gone' then w.gone_at when 'failing' then w.failing_since end),
          case when w.replicas_differ then ' (not in the configuration of every replica)' end, w.waiting) order by w.app)), 'all arrive'),
        case when bool_or(w.state = 'gone' or w.failing_since < now() - interval '1 hour' or w.oldest > interval '12 hours') then 'bad'
          when count(*) > 0 then 'warn' else 'ok' end,
        'Backends are not told of results; events are dropped after 24 hours. push.webhooks shows status and reason; '
        'push.resume_webhooks sends again.'
      from push.webhooks w
      where w.state in ('gone', 'paused') or w.failing_since < now() - interval '5 minutes'
        or w.state <> 'off' and w.oldest > interval '1 hour' or w.replicas_differ
    union all
    select 'API keys',
        coalesce(push.first_few(array_agg(format('%s (%s, %s) until %s', k.id, k.name, k.app, k.expires_at::date)
          order by k.expires_at, k.id)), 'none expires soon'),
        case when bool_or(k.expires_at < now() + interval '3 days') then 'bad' when count(*) > 0 then 'warn' else 'ok' end,
        'Backends are refused from then on. As a role in push_keys: create another key (push.create_api_key), hand it over, '
        'revoke this one (push.revoke_api_key).'
      -- Not those whose last use is more than 30 days ago.
      from push.api_keys k
      where k.revoked_at is null and k.expires_at between now() and now() + interval '30 days'
        and coalesce(k.last_used_at > now() - interval '30 days', true)
    union all
    select 'quotas', coalesce(push.first_few(array_agg(q.trouble order by q.trouble)), 'none is used up'),
        case when count(*) > 0 then 'warn' else 'ok' end,
        'An app at its quota is refused (53Q01): push.quotas, push.set_quota. Of replicas that differ (calls/notifications/recipients a '
        'minute), the one that registered last is right; a restart registers it again.'
      from (
        with used as (
          select u.*, 0 = any (array_agg(u."limit") over (partition by u.app)) as is_shut,
            case when u.refusals > 0 then format('; %s refusals in the last minute', u.refusals) else '' end as refused
          from push.quotas u where u."limit" is not null
        )
        select format('%s at its quota (%s)', u.app, string_agg(format('%s of %s %s', u.used, u."limit", u.what), ', ')) || max(u.refused)
          from used u
          where u."limit" > 0 and (u.used >= u."limit" or u.refusals > 0 and not u.is_shut)
          group by u.app
        union all
        select format('%s may enqueue no %s: the quota is 0', u.app, string_agg(u.what, ' and no ')) || max(u.refused)
          from used u where u."limit" = 0 group by u.app
        union all
        select format('the quota of %s is not the one that %s has: %s', r.app, r.replica, array_to_string(r.limits, '/', 'none'))
          from push.quota_of_replica r left join push.quota q on q.app = r.app
          where r.limits <> coalesce(q.configured, array_fill(null::int, '{3}'))
            and exists (select from push.gateways g where g.name = r.replica and g.alive)
      ) q(trouble);
end
$$;

COMMENT ON FUNCTION push.check_health() IS 'checks conditions that could make calls ring late; for push.health';

CREATE FUNCTION push.check_webhook(p_app text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'push', 'pg_temp'
    AS $$
begin
  if not exists (select from push.webhook w where w.app = p_app) then
    raise exception using errcode = 'no_data_found',
      message = format('app: there is no webhook of app %s', coalesce(left(p_app, 64), 'without a name')),
      hint = 'push.webhooks lists them; they are configured with apps.APP.webhook.';
  end if;
  return p_app;
end
$$;

COMMENT ON FUNCTION push.check_webhook(p_app text) IS 'raises an error if the app has no webhook. p_app: name of the app';

CREATE FUNCTION push.claim(p_gateway integer, p_claim integer, p_lanes smallint[], p_max integer[], p_floor timestamp with time zone[], p_slack interval DEFAULT '00:00:00.3'::interval, p_total integer DEFAULT NULL::integer, p_background integer DEFAULT NULL::integer, p_later_floor timestamp with time zone[] DEFAULT '{}'::timestamp with time zone[], p_later_max integer[] DEFAULT '{}'::integer[], p_last smallint[] DEFAULT '{}'::smallint[]) RETURNS TABLE(place tid, lane smallint, outbox_id bigint, n integer, attempt integer, kind smallint, crashes smallint, environment smallint, platform smallint, created_at timestamp with time zone, deadline_at timestamp with time zone, remaining_us bigint, user_id text, token text, locale text, data jsonb, app_call_kind text, call_id text, end_reason text, ended boolean, traceparent text, payload jsonb, paired boolean, declined jsonb)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

COMMENT ON FUNCTION push.claim(p_gateway integer, p_claim integer, p_lanes smallint[], p_max integer[], p_floor timestamp with time zone[], p_slack interval, p_total integer, p_background integer, p_later_floor timestamp with time zone[], p_later_max integer[], p_last smallint[]) IS 'takes at most p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first. Their deadlines are after p_floor[i] and more than p_slack away. Takes nothing from a paused lane, nothing for a gateway that was declared dead, nothing while push.put_away has work to do, nothing that this gateway has handed on before it is due, and at most one suspect. p_gateway: what push.register_gateway returned; p_claim: the claim''s number, counted by the gateway, which becomes the lease of the deliveries; p_total: maximum for all lanes together; lanes are read in the order of p_lanes until it is reached; p_background: maximum number of deliveries whose deadline is more than ten minutes away; they come last; p_later_floor, p_later_max: p_floor and p_max for these; p_last: lanes that are sick here: only what others have left for 100 ms; a negative number: nothing that was tried and handed on. Returns what a push needs, in no order. place: where the row is stored, for push.settle; remaining_us: microseconds to the deadline. The columns from app_call_kind to payload are those of the call: they are set on at least one row of each call, and null on its other rows (call_id is then null). ended: the call no longer rings (a notification never does), or it was deleted, and then the call''s other columns are null; declined: the users who have declined it. Invites of such calls and users may be claimed: the gateway settles them as void without sending them. paired: as push.delivery.paired. The session setting push.entries_scanned holds the number of index entries read, dead ones included';

CREATE FUNCTION push.claim_receipts(p_app text, p_max integer, p_lease_ms integer) RETURNS TABLE(ticket text, outbox_id bigint, n integer, token text, sent_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_room  int := p_max;
  v_batch push.receipt_batch;
begin
  for v_batch in
    select r.* from push.receipt_batch r
    where r.app = p_app and r.due_at <= statement_timestamp() and r.give_up_at > statement_timestamp()
    order by r.due_at
    limit p_max
    for no key update skip locked
  loop
    exit when v_room <= 0;
    if cardinality(v_batch.ticket) > v_room then
      insert into push.receipt_batch (sent_at, due_at, give_up_at, attempts, claimed, app, ticket, outbox_id, n, user_id, token)
        values (v_batch.sent_at, v_batch.due_at, v_batch.give_up_at, v_batch.attempts, v_batch.claimed, v_batch.app,
          v_batch.ticket[v_room + 1:], v_batch.outbox_id[v_room + 1:], v_batch.n[v_room + 1:],
          v_batch.user_id[v_room + 1:], v_batch.token[v_room + 1:]);
      perform push.cut_receipts(v_batch, array(select generate_series(1, v_room)));
    end if;
    -- The due time is the lease: if the gateway dies, the tickets are due again.
    update push.receipt_batch r
      set attempts = r.attempts + 1, claimed = true,
        due_at = least(clock_timestamp() + p_lease_ms * interval '1 ms', r.give_up_at)
      where r.id = v_batch.id returning r.* into v_batch;
    v_room := v_room - cardinality(v_batch.ticket);
    return query
      select t.ticket, t.outbox_id, t.n, t.token, v_batch.sent_at
      from unnest(v_batch.ticket, v_batch.outbox_id, v_batch.n, v_batch.token) t(ticket, outbox_id, n, token);
  end loop;
end
$$;

COMMENT ON FUNCTION push.claim_receipts(p_app text, p_max integer, p_lease_ms integer) IS 'takes tickets whose receipts are due; after the lease they are due again. p_app: the app; p_max: maximum number of tickets; p_lease_ms: the lease in milliseconds';

CREATE FUNCTION push.claim_webhooks(p_app text[], p_url_digest text[], p_room integer[], p_lease_ms integer[]) RETURNS TABLE(id bigint, app text, attempt integer, tries integer, event text, body text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  -- After this number of failures in a row, one event at a time is sent, as a probe.
  c_open constant int := 5;
  v_now  timestamptz;
  v_due  timestamptz;
  v_hook push.webhook;
  v_mine bigint[];
begin
  for v_i in 1..cardinality(p_app) loop
    select w.* into v_hook from push.webhook w where w.app = p_app[v_i];
    v_now := clock_timestamp();
    -- Another replica has no webhook for the app. It stays on as long as one that has it claims.
    if v_hook.on_until < v_now + interval '50 s' then
      update push.webhook w set on_until = v_now + interval '1 minute'
        where w.app = (select x.app from push.webhook x where x.app = v_hook.app and x.on_until < 'infinity' for no key update skip locked);
      v_hook.on_until := greatest(v_hook.on_until, case when found then v_now + interval '1 minute' end);
    end if;
    -- 410 stops the replicas with the URL that answered it.
    continue when v_hook.app is null or v_hook.on_until <= v_now or v_hook.paused or v_hook.retry_at > v_now or p_room[v_i] < 1
      or v_hook.gone_at is not null and v_hook.url_digest = p_url_digest[v_i];
    with due as materialized (
      select d.id, coalesce(f.id, d.id) as first_id, coalesce(f.due_at, v_now) as first_due_at
      from (
        select e.id, e.outbox_id from push.webhook_event e where e.app = v_hook.app and e.due_at <= v_now order by e.due_at limit 500
      ) d left join lateral (
        select f.id, f.due_at from push.webhook_event f where f.outbox_id = d.outbox_id order by f.outbox_id, f.id limit 1
      ) f on true
    ), behind as (
      update push.webhook_event e set due_at = d.first_due_at
      from due d cross join lateral (
        select x.ctid as tid, x.due_at from push.webhook_event x where x.id = d.id offset 0 for no key update skip locked
      ) x
      where d.first_due_at > v_now and x.due_at <= v_now and e.ctid = x.tid
    )
    select array(
      select x.id from (select distinct d.first_due_at, d.first_id from due d where d.first_due_at <= v_now order by 1, 2) d
      cross join lateral (
        select x.id, x.due_at from push.webhook_event x where x.id = d.first_id offset 0 for no key update skip locked
      ) x
      where x.due_at <= v_now limit case when v_hook.failures < c_open then p_room[v_i] else 1 end) into v_mine;
    v_due := clock_timestamp() + p_lease_ms[v_i] * interval '1 ms';
    if v_hook.failures >= c_open and v_mine <> '{}' then
      -- Whoever has locked the row sends a probe, or is an operator: then the probe is sent after the operator's transaction.
      -- By this time push.settle_webhooks knows the probe among requests that were sent before.
      update push.webhook w set retry_at = v_due
        where w.app = (select x.app from push.webhook x where x.app = v_hook.app and x.failures >= c_open for no key update skip locked);
      continue when not found;
    end if;
    return query
      with taken as (
        update push.webhook_event e set due_at = v_due, attempts = e.attempts + 1 where e.id = any (v_mine) returning e.*
      )
      select t.id, t.app, t.attempts, t.tries, t.event,
        json_build_object('type', t.type, 'timestamp', push.iso_time(t.at), 'data', t.data)::text
      from taken t
      order by t.id;
  end loop;
end
$$;

COMMENT ON FUNCTION push.claim_webhooks(p_app text[], p_url_digest text[], p_room integer[], p_lease_ms integer[]) IS 'takes due events, of each call only the first; after the lease they are due again. Arrays, by app: p_app: the app; p_url_digest: SHA-256 of the URL that the gateway sends to, in hex: 410 of another URL does not stop it; p_room: maximum number of events; p_lease_ms: the lease in milliseconds. Returns each event, how often it was taken and sent in vain, and its id and body for the receiver. After five failures in a row it takes one event at a time';

CREATE FUNCTION push.claimed_by(p_gateway integer, p_from_page bigint, p_pages integer DEFAULT 2000, OUT outbox_id bigint[], OUT n integer[], OUT lease integer[], OUT created_at timestamp with time zone[], OUT next_page bigint) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
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

COMMENT ON FUNCTION push.claimed_by(p_gateway integer, p_from_page bigint, p_pages integer, OUT outbox_id bigint[], OUT n integer[], OUT lease integer[], OUT created_at timestamp with time zone[], OUT next_page bigint) IS 'the deliveries that a gateway has claimed, in one part of the table. p_gateway: what push.register_gateway returned; p_from_page: 0, then next_page of the previous result; p_pages: number of pages to read. Arrays, by delivery: outbox_id, n, lease, the claim''s number, and created_at; next_page: null at the end';

CREATE FUNCTION push.compare_call(call_id text, payload jsonb, recipients jsonb, app text DEFAULT NULL::text) RETURNS TABLE(state text, payload_differs boolean, recipients_differ boolean)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  select o.state, o.payload <> compare_call.payload, o.recipients <> compare_call.recipients
  from push.outbox o where o.id = push.find_call(compare_call.call_id, compare_call.app)
$$;

COMMENT ON FUNCTION push.compare_call(call_id text, payload jsonb, recipients jsonb, app text) IS 'what became of a call that was enqueued before, and whether it was the same. call_id, app: columns of push.outbox; payload, recipients: what is compared with it. Returns state: push.outbox.state; payload_differs, recipients_differ. Raises an error if there is no such call';

CREATE FUNCTION push.compare_recipients(call_id text, app text, user_ids text[]) RETURNS TABLE(others integer, absent text[])
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  with there as materialized (
    select push.entry_user(e) as user_id
    from push.outbox o cross join lateral jsonb_array_elements(o.recipients) e
    where o.id = push.find_call(compare_recipients.call_id, compare_recipients.app) and push.is_recipient(e)
  )
  select (select count(*)::int from there t where t.user_id <> all (compare_recipients.user_ids)),
    array(select distinct u from unnest(compare_recipients.user_ids) u where u not in (select t.user_id from there t))
$$;

COMMENT ON FUNCTION push.compare_recipients(call_id text, app text, user_ids text[]) IS 'compares users with the recipients of a call. call_id, app: columns of push.outbox; user_ids: the users. Returns others: number of recipients that are not among the users; absent: the users who are not among the recipients. Raises an error if there is no such call';

CREATE FUNCTION push.configure_quota(p_app text, p_quota integer[], p_replica text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET lock_timeout TO '200ms'
    AS $$
declare
  v_quota push.quota;
begin
  -- A gateway registers its apps just before itself.
  delete from push.quota_of_replica r
    where p_replica is not null and r.app = p_app and r.said_at < clock_timestamp() - interval '1 minute'
      and not exists (select from push.gateways g where g.name = r.replica and g.alive);
  insert into push.quota_of_replica (app, replica, limits) select p_app, p_replica, p_quota where p_replica is not null
    on conflict (app, replica) do update set limits = excluded.limits, said_at = excluded.said_at;
  -- Nothing to write: a gateway does not wait for an operator whose push.set_quota is not committed.
  if coalesce((select q.configured = p_quota and not exists (select from unnest(push.meter_names()) w where push.meter(q.id, w) is null)
      from push.quota q where q.app = p_app), num_nonnulls(variadic p_quota) = 0) then
    return;
  end if;
  begin
    v_quota := push.lock_quota(p_app);
    if v_quota.configured <> p_quota then
      update push.quota q set configured = p_quota where q.app = p_app;
      insert into push.audit (action, target, detail) values ('configure_quota', p_app, (
        select jsonb_object_agg(l.name, l.now) || jsonb_build_object('replica', p_replica, 'before', jsonb_object_agg(l.name, l.before))
        from unnest((push.meter_names())[:3], p_quota, v_quota.configured) l(name, now, before)));
    end if;
  exception
    -- An operator has called push.set_quota in a transaction that is still open. Calls must ring all the same.
    when lock_not_available then
      raise warning 'the quota of app % is not taken over: it is being set by an operator', p_app;
  end;
end
$$;

COMMENT ON FUNCTION push.configure_quota(p_app text, p_quota integer[], p_replica text) IS 'stores the quota that the configuration of a gateway gives an app';

CREATE FUNCTION push.confirm_reclaimed(p_gateway integer) RETURNS void
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$ select null::void $$;

COMMENT ON FUNCTION push.confirm_reclaimed(p_gateway integer) IS 'for gateways of release 0.1.0: does nothing, whatever p_gateway says';

CREATE TABLE push.erasure (
    id bigint NOT NULL,
    app text NOT NULL,
    user_digest bytea NOT NULL,
    asked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    after_id bigint DEFAULT 0 NOT NULL,
    until_id bigint DEFAULT 0 NOT NULL,
    after_table text DEFAULT ''::text NOT NULL,
    after_page bigint DEFAULT 0 NOT NULL,
    scanned_at timestamp with time zone,
    waiting bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    rang bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    is_known boolean DEFAULT false NOT NULL,
    looked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    token_hashes bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    counts jsonb DEFAULT '{}'::jsonb NOT NULL,
    finished_at timestamp with time zone,
    user_id text,
    found bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    has_locked boolean DEFAULT false NOT NULL,
    CONSTRAINT erasure_digest_sha256 CHECK ((length(user_digest) = 32))
);

COMMENT ON TABLE push.erasure IS 'one user of one app whose data push.erase_user removes; it names the user and the tokens by digests only';

COMMENT ON COLUMN push.erasure.id IS 'number of the erasure';

COMMENT ON COLUMN push.erasure.app IS 'app whose user it is';

COMMENT ON COLUMN push.erasure.user_digest IS 'SHA-256 of the backend''s id of the user';

COMMENT ON COLUMN push.erasure.asked_at IS 'when push.erase_user began its last pass; what was registered later stays';

COMMENT ON COLUMN push.erasure.after_id IS 'push.outbox.id up to which calls were looked at';

COMMENT ON COLUMN push.erasure.until_id IS 'push.outbox.id down to which calls were looked through';

COMMENT ON COLUMN push.erasure.after_table IS 'partition of push.history that is being looked at; empty: none yet';

COMMENT ON COLUMN push.erasure.after_page IS 'page of it at which the next bite begins';

COMMENT ON COLUMN push.erasure.scanned_at IS 'when all calls and all of history had been looked at; null: call push.erase_user again';

COMMENT ON COLUMN push.erasure.waiting IS 'calls (push.outbox.id) that ring, of which something is still owed, or which were locked: a gateway masks them when they have ended and nothing is';

COMMENT ON COLUMN push.erasure.rang IS 'calls (push.outbox.id) that have waited: looked at once more before it is finished';

COMMENT ON COLUMN push.erasure.is_known IS 'whether there was such a user in the app: if not, nothing is masked in push.audit';

COMMENT ON COLUMN push.erasure.looked_at IS 'when a gateway last looked at what waits';

COMMENT ON COLUMN push.erasure.token_hashes IS 'hashes of the user''s tokens, as push.history.token_hash, until it is finished: a provider''s last word about them is removed, too';

COMMENT ON COLUMN push.erasure.counts IS 'object: rows by table, as push.erase_user returns them: {"devices": [removed, masked]}';

COMMENT ON COLUMN push.erasure.finished_at IS 'when nothing was left; removed 90 days later';

COMMENT ON COLUMN push.erasure.user_id IS 'the backend''s id of the user; null: it is finished';

COMMENT ON COLUMN push.erasure.found IS 'calls (push.outbox.id) that name the user and are looked at next';

COMMENT ON COLUMN push.erasure.has_locked IS 'whether rows outside of calls were locked; they are removed when it is finished';

CREATE FUNCTION push.continue_erasure(p_erasure push.erasure, p_until timestamp with time zone) RETURNS push.erasure
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_is_new  constant boolean := p_erasure.scanned_at is null;
  v_is_last boolean;
  v_call    bigint;
  v_user    constant text := p_erasure.user_id;
  v_app     constant text := p_erasure.app;
  -- Members of push.audit.detail that the actions write themselves.
  c_own     constant text[] := '{scopes,expires_at,addresses,changed,done,window}';
begin
  -- Every call of this function looks further, or at a call, however little time it has. At the end it looks once more at those that wait.
  loop
    v_call := p_erasure.found[1];
    p_erasure.found := p_erasure.found[2:];
    if v_call is not null then
      p_erasure := push.erase_from_call(p_erasure, v_call);
    else
      exit when p_erasure.scanned_at is not null;
      p_erasure := push.look_further(p_erasure);
      if p_erasure.scanned_at is not null then
        p_erasure.found := p_erasure.waiting;
        p_erasure.waiting := '{}';
      end if;
    end if;
    exit when clock_timestamp() >= p_until and (v_call is not null or p_erasure.found = '{}');
  end loop;
  -- Until then, a gateway may hold a token in memory, and its provider may report the token as dead.
  v_is_last := not v_is_new and p_erasure.asked_at < clock_timestamp() - interval '10 minutes'
    and p_erasure.found || p_erasure.waiting || p_erasure.rang = '{}';
  if v_is_new and p_erasure.scanned_at is not null or v_is_last then
    p_erasure := push.erase_elsewhere(p_erasure);
    -- Notes of operators about this app in which the user's id stands as a word. The id of an unknown user masks nothing; otherwise
    -- operators could rewrite the record. The names of apps, lanes, roles and keys are not masked, and neither is the id of a call.
    p_erasure.is_known := p_erasure.is_known or p_erasure.counts - '{outbox,audit}'::text[] <> '{}';
    with masked as (
      update push.audit a set target = l.target, detail = l.detail from (
        select x.id, case when v_user <> v_app and x.action in ('void_call', 'requeue')
              and not exists (select from push.outbox o where o.call_id = v_user and o.app = v_app)
            then v_app || '/' || (push.mask_user(to_jsonb(substr(x.target, length(v_app) + 2)), v_user, true) #>> '{}')
            else x.target end as target,
          push.mask_user(x.detail - c_own, v_user, true)
            || coalesce((select jsonb_object_agg(m.key, m.value) from jsonb_each(x.detail) m where m.key = any (c_own)), '{}') as detail
        from push.audit x
        where p_erasure.is_known and split_part(x.target, '/', 1) = v_app and x.action not in ('erase_user', 'finish_erasure')
          and (strpos(x.target, v_user) > 0 or strpos(x.detail::text, btrim(to_jsonb(v_user)::text, '"')) > 0)
        for no key update skip locked
      ) l
      where a.id = l.id and (a.target, a.detail) is distinct from (l.target, l.detail)
      returning 1
    )
    select push.add_counts(p_erasure.counts, jsonb_build_object('audit', array[0, count(*)])) into p_erasure.counts from masked;
    if v_is_last and not p_erasure.has_locked then
      p_erasure.finished_at := clock_timestamp();
      p_erasure.user_id := null;
      p_erasure.token_hashes := '{}';
      insert into push.audit (action, target, detail) values ('finish_erasure',
        p_erasure.app || '/sha256:' || left(encode(p_erasure.user_digest, 'hex'), 16), jsonb_build_object('counts', p_erasure.counts));
    end if;
  end if;
  update push.erasure e
    set user_id = p_erasure.user_id, after_id = p_erasure.after_id, after_table = p_erasure.after_table, after_page = p_erasure.after_page,
      scanned_at = p_erasure.scanned_at, found = p_erasure.found, waiting = p_erasure.waiting, rang = p_erasure.rang,
      has_locked = p_erasure.has_locked, is_known = p_erasure.is_known, token_hashes = p_erasure.token_hashes, counts = p_erasure.counts,
      finished_at = p_erasure.finished_at
    where e.id = p_erasure.id;
  return p_erasure;
end
$$;

COMMENT ON FUNCTION push.continue_erasure(p_erasure push.erasure, p_until timestamp with time zone) IS 'continues an erasure, whose row is locked, until p_until';

CREATE FUNCTION push.correct_environment(p_lane smallint[], p_token text[], p_environment smallint[]) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  with corrected as (
    update push.devices d set environment = u.name
    from unnest(p_lane, p_token, p_environment) t(lane, token, environment)
    join (values (0, 'production'), (1, 'sandbox')) u(code, name) on u.code = t.environment
    cross join lateral (select l.app from push.lane l where l.id = t.lane and l.provider = 'apns' offset 0) l
    cross join lateral push.devices_with(l.app, 'apns', t.token) x
    where d.ctid = x.tid and d.environment <> u.name
    returning 1
  )
  select count(*) from corrected
$$;

COMMENT ON FUNCTION push.correct_environment(p_lane smallint[], p_token text[], p_environment smallint[]) IS 'APNs accepted these tokens in this environment: corrects registered devices with the other environment. Returns how many. Arrays, by token: p_lane: push.lanes.id; p_token: the token; p_environment: 0 production, 1 sandbox';

CREATE FUNCTION push.count_on_meter(p_meter regclass, p_count bigint) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
  v_minute bigint := floor(date_part('epoch', clock_timestamp()) / 60);
begin
  if pg_sequence_last_value(p_meter) is distinct from push.meter_at(coalesce(pg_sequence_last_value(p_meter), 0), v_minute) then
    -- Read and written within one expression: of sessions that begin a minute at the same moment, one may lose what the other
    -- counts within these microseconds.
    perform setval(p_meter, push.meter_at(coalesce(pg_sequence_last_value(p_meter), 0), v_minute));
  end if;
  perform nextval(p_meter) from generate_series(2, p_count);
  return nextval(p_meter);
end
$$;

COMMENT ON FUNCTION push.count_on_meter(p_meter regclass, p_count bigint) IS 'adds p_count, at least 1, to a meter at once, whatever becomes of the transaction';

CREATE FUNCTION push.count_owed(p_most integer DEFAULT 30000, p_past boolean DEFAULT true) RETURNS TABLE(lane smallint, kind smallint, state smallint, owner integer, count bigint, oldest timestamp with time zone, first_deadline timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
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

COMMENT ON FUNCTION push.count_owed(p_most integer, p_past boolean) IS 'the deliveries that are owed, by lane, kind, state and owner: their number, the age of the oldest, and the first deadline. Exact for p_most deliveries, which the lanes share in equal parts, at least 20 each, and as many again with more than ten minutes left. Above that, count is an estimate, rounded to three digits. p_past: whether to count deliveries that are more than five seconds past their deadline';

CREATE FUNCTION push.create_api_key(app text, name text, scopes text[] DEFAULT '{enqueue,device,read}'::text[], expires_at timestamp with time zone DEFAULT (now() + '1 year'::interval), addresses cidr[] DEFAULT NULL::cidr[]) RETURNS TABLE(id integer, key text, expires timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  v_scopes  text[] := array(select distinct s from unnest(create_api_key.scopes) s where s is not null order by s);
  v_expires timestamptz := nullif(create_api_key.expires_at, 'infinity');
  v_fault   text := coalesce(push.app_fault(create_api_key.app), case
    when create_api_key.name is null or length(create_api_key.name) not between 1 and 128
      then 'name: must have 1 to 128 characters'
    when v_scopes = '{}' or not v_scopes <@ '{enqueue,device,read}'
      then 'scopes: must be some of enqueue, device and read'
    when v_expires <= clock_timestamp() then 'expires_at: must be in the future, or null'
    when create_api_key.addresses is not null and (cardinality(create_api_key.addresses) not between 1 and 64
        or array_position(create_api_key.addresses, null) is not null)
      then 'addresses: must be 1 to 64 networks, or null'
  end);
begin
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault,
      schema = 'push', table = 'api_keys', column = substring(v_fault from '^[a-z_]+');
  end if;
  id := nextval(pg_get_serial_sequence('push.api_keys', 'id'));
  -- A SHA-256 of 366 random bits. Without an extension the server has no other source of randomness.
  key := 'pgk_' || id || '_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
    || uuid_send(gen_random_uuid())), 'hex');
  expires := v_expires;
  insert into push.api_keys (id, app, name, scopes, hash, expires_at, addresses) overriding system value
    values (create_api_key.id, create_api_key.app, create_api_key.name, v_scopes, sha256(convert_to(key, 'UTF8')),
      v_expires, create_api_key.addresses);
  insert into push.audit (action, target, detail) values ('create_api_key', create_api_key.app || '/' || id,
    jsonb_build_object('name', create_api_key.name, 'scopes', v_scopes, 'expires_at', v_expires,
      'addresses', create_api_key.addresses));
  return next;
end
$$;

COMMENT ON FUNCTION push.create_api_key(app text, name text, scopes text[], expires_at timestamp with time zone, addresses cidr[]) IS 'creates a key to the HTTP API and returns it. This is the only time it is shown: only its SHA-256 is stored. app: the only app that the key gives access to; name: the holder of the key; scopes: some of enqueue, device and read; expires_at: the key is refused from this time on, by default in one year; null or infinity: it never expires; addresses: the networks that the key may be used from; null: any. Returns expires; null: never. To rotate a key, create another one, give it to the backend, then revoke the old one with push.revoke_api_key';

CREATE FUNCTION push.current_provider_token(p_provider text, p_name text) RETURNS TABLE(token text, minted_at timestamp with time zone, expires_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select t.token, t.minted_at, t.expires_at from push.provider_tokens t
  where t.provider = p_provider and t.name = p_name and t.expires_at > clock_timestamp()
$$;

COMMENT ON FUNCTION push.current_provider_token(p_provider text, p_name text) IS 'the provider token that all replicas use now; no row if there is none. p_provider, p_name: as in push.provider_tokens';

CREATE TABLE push.receipt_batch (
    id bigint NOT NULL,
    sent_at timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    give_up_at timestamp with time zone NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    claimed boolean DEFAULT false NOT NULL,
    app text NOT NULL,
    ticket text[] NOT NULL,
    outbox_id bigint[] NOT NULL,
    n integer[] NOT NULL,
    user_id text[] NOT NULL,
    token text[] NOT NULL,
    tickets integer GENERATED ALWAYS AS (cardinality(ticket)) STORED,
    CONSTRAINT receipt_batch_lengths CHECK (((cardinality(ticket) > 0) AND (cardinality(outbox_id) = cardinality(ticket)) AND (cardinality(n) = cardinality(ticket)) AND (cardinality(user_id) = cardinality(ticket)) AND (cardinality(token) = cardinality(ticket)))),
    CONSTRAINT receipt_batch_order CHECK (((sent_at <= due_at) AND (due_at <= give_up_at)))
)
WITH (autovacuum_analyze_threshold='10000');
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN ticket SET STATISTICS 0;
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN ticket SET STORAGE EXTERNAL;
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN outbox_id SET STATISTICS 0;
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN outbox_id SET STORAGE EXTERNAL;
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN n SET STATISTICS 0;
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN n SET STORAGE EXTERNAL;
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN user_id SET STATISTICS 0;
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN user_id SET STORAGE EXTERNAL;
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN token SET STATISTICS 0;
ALTER TABLE ONLY push.receipt_batch ALTER COLUMN token SET STORAGE EXTERNAL;

COMMENT ON TABLE push.receipt_batch IS 'Expo tickets whose receipts are still to be looked up: those that one settlement noted for one lane, or what is left of them';

COMMENT ON COLUMN push.receipt_batch.id IS 'number of the batch';

COMMENT ON COLUMN push.receipt_batch.sent_at IS 'when the first of the pushes was sent; a token counts as dead only if not registered since';

COMMENT ON COLUMN push.receipt_batch.due_at IS 'when to look next: about 15 minutes after sending. While claimed: the end of the lease';

COMMENT ON COLUMN push.receipt_batch.give_up_at IS 'when Expo has dropped the receipts: 24 hours after sending';

COMMENT ON COLUMN push.receipt_batch.attempts IS 'look-ups made';

COMMENT ON COLUMN push.receipt_batch.claimed IS 'a replica looks these up, or did and died';

COMMENT ON COLUMN push.receipt_batch.app IS 'app whose access token reads the receipts';

COMMENT ON COLUMN push.receipt_batch.ticket IS 'the tickets'' ids; the other arrays have the same order';

COMMENT ON COLUMN push.receipt_batch.outbox_id IS 'the calls: push.outbox.id';

COMMENT ON COLUMN push.receipt_batch.n IS 'numbers of the pushes within their calls';

COMMENT ON COLUMN push.receipt_batch.user_id IS 'the backend''s ids of the users';

COMMENT ON COLUMN push.receipt_batch.token IS 'the tokens, to be invalidated when a receipt says so';

COMMENT ON COLUMN push.receipt_batch.tickets IS 'number of its tickets, which are counted without reading them';

CREATE FUNCTION push.cut_receipts(p_batch push.receipt_batch, p_kept bigint[]) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
  if p_kept = '{}' then
    delete from push.receipt_batch r where r.id = p_batch.id;
  else
    update push.receipt_batch r
      set (ticket, outbox_id, n, user_id, token) = (
        select array_agg(r.ticket[k]), array_agg(r.outbox_id[k]), array_agg(r.n[k]), array_agg(r.user_id[k]), array_agg(r.token[k])
        from unnest(p_kept) k)
      where r.id = p_batch.id;
  end if;
  return cardinality(p_batch.ticket) - cardinality(p_kept);
end
$$;

COMMENT ON FUNCTION push.cut_receipts(p_batch push.receipt_batch, p_kept bigint[]) IS 'keeps the tickets of a batch with these subscripts, or deletes the batch if there are none; returns how many tickets it removed';

CREATE FUNCTION push.dead_among(app text, providers text[], tokens text[], set_at timestamp with time zone[]) RETURNS SETOF text
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  with dead as materialized (
    -- The time is that of another clock, in whole seconds. A token that is wrongly called dead is lost; one that is wrongly called
    -- alive is tried once more, and is then dead from a later time on.
    select x.tid, a.token, coalesce(x.invalidated_at < a.set_at + interval '1 minute'
      and a.set_at <= clock_timestamp() + interval '1 day', false) as is_set_again
    from unnest(dead_among.providers, dead_among.tokens, dead_among.set_at) a(provider, token, set_at)
    cross join lateral push.deaths_of(dead_among.app, a.provider, a.token) x
  ), revived as (
    delete from push.token_invalidations x using dead d where x.ctid = d.tid and d.is_set_again
  )
  select distinct d.token from dead d where not d.is_set_again;
$$;

COMMENT ON FUNCTION push.dead_among(app text, providers text[], tokens text[], set_at timestamp with time zone[]) IS 'those of these tokens that a provider has called dead. A token that its phone gave again after that is alive: its row in push.token_invalidations is removed. app: the app; arrays, by token: providers: apns, fcm or expo; tokens: the tokens, without backslashes; set_at: when the phone gave the token, or null. Its clock may be a minute behind, or a day ahead; a later time counts as null';

CREATE FUNCTION push.dead_tokens(since timestamp with time zone DEFAULT NULL::timestamp with time zone, apps text[] DEFAULT NULL::text[], rows_max integer DEFAULT 1000) RETURNS TABLE(app text, user_id text, provider text, token text, reason text, died_at timestamp with time zone)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_own   constant text[] := push.own_apps();
  v_apps  constant text[] := case when v_own is null then dead_tokens.apps when dead_tokens.apps is null then v_own
    else array(select unnest(v_own) intersect select unnest(dead_tokens.apps)) end;
  v_since constant timestamptz := coalesce(dead_tokens.since, '-infinity');
begin
  if not coalesce(dead_tokens.rows_max between 1 and 1000, false) then
    raise exception using errcode = 'invalid_parameter_value', message = 'rows_max: must be 1 to 1000';
  elsif v_apps is null then
    return query
      select x.app, x.user_id, x.provider, x.token, x.reason, x.invalidated_at
      from push.token_invalidations x
      where x.invalidated_at > v_since
      order by x.invalidated_at fetch first (dead_tokens.rows_max) rows with ties;
  else
    return query
      select x.app, x.user_id, x.provider, x.token, x.reason, x.invalidated_at
      from (select distinct unnest(v_apps) as app) a cross join lateral (
        select x.* from push.token_invalidations x
        where x.app || '' = a.app and x.invalidated_at > v_since
        order by x.invalidated_at fetch first (dead_tokens.rows_max) rows with ties
      ) x
      order by x.invalidated_at fetch first (dead_tokens.rows_max) rows with ties;
  end if;
end
$$;

COMMENT ON FUNCTION push.dead_tokens(since timestamp with time zone, apps text[], rows_max integer) IS 'tokens that a provider has called dead, and that no phone has registered since: the oldest first. Quarantined tokens are not among them. since: only those that died later; null: all that are kept. apps: of these apps; null: of all for which the caller may act, and never of others. rows_max: at most this many rows, 1 to 1000, and those that died at the same microsecond as the last one; call it again with the last died_at. user_id: null if it is not known; token: the whole token; reason: the provider''s';

CREATE FUNCTION push.deaths_of(p_app text, p_provider text, p_token text) RETURNS TABLE(tid tid, invalidated_at timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
  select x.ctid, x.invalidated_at from push.token_invalidations x
  where sha256(x.token::bytea) = any (push.token_digests(p_provider, p_token)) and x.app = p_app and x.provider = p_provider
  offset 0
$$;

COMMENT ON FUNCTION push.deaths_of(p_app text, p_provider text, p_token text) IS 'where it is noted that a token is dead, in whatever letters';

CREATE FUNCTION push.decline_call(call_id text, user_id text, app text DEFAULT NULL::text, reason text DEFAULT 'declined'::text, device text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  v_id bigint := push.find_call(call_id, app, coalesce(user_id, ''));
  v_token text := push.device_token((select o.app from push.outbox o where o.id = v_id), decline_call.device);
begin
  if coalesce(reason not in ('declined', 'busy', 'connection_failed'), true) then
    raise exception using errcode = 'invalid_parameter_value', message = 'reason: must be declined, busy or connection_failed',
      schema = 'push', table = 'outbox', column = 'declined';
  end if;
  update push.outbox o
    set declined = coalesce(o.declined, '{}') || jsonb_build_object(decline_call.user_id, jsonb_build_object('reason', decline_call.reason,
      'at', clock_timestamp(), 'device', v_token))
    where o.id = v_id and o.ended_at is null and not coalesce(o.declined ? decline_call.user_id, false);
  return found;
end
$$;

COMMENT ON FUNCTION push.decline_call(call_id text, user_id text, app text, reason text, device text) IS 'a user declines the call, or is busy: nothing more is sent to this user''s phones, those that may ring get a cancel, and the user gets no missed call. The phones of other users ring on. When the last user whose phones were rung has declined, the call ends, with their reason if all gave the same, else with the reason declined. call_id: payload.callId; user_id: as in the call''s recipients; app: needed only if several apps have a call with this id; reason: declined, busy, or connection_failed: the app could not reach the call, and the user gets a missed call, unless it was answered; device: the phone that declined, if known, by its token or push.devices.id: it gets no cancel; if it is not known, none of the user''s VoIP tokens gets one. Returns false if the user had declined before, or the call had ended';

CREATE TABLE push.history (
    finished_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    outbox_id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    answered_at timestamp with time zone,
    n integer NOT NULL,
    attempts integer NOT NULL,
    owner integer,
    lane smallint NOT NULL,
    kind smallint NOT NULL,
    outcome smallint NOT NULL,
    status smallint,
    user_id text NOT NULL,
    call_id text,
    device text,
    reason text,
    provider_message_id text,
    failures jsonb,
    fallback_of integer,
    receipt_reason text,
    token_hash bigint,
    token text,
    environment smallint,
    platform smallint,
    locale text,
    data jsonb
)
PARTITION BY RANGE (finished_at);
ALTER TABLE ONLY push.history ALTER COLUMN user_id SET STATISTICS 0;
ALTER TABLE ONLY push.history ALTER COLUMN call_id SET STATISTICS 0;
ALTER TABLE ONLY push.history ALTER COLUMN device SET STATISTICS 0;
ALTER TABLE ONLY push.history ALTER COLUMN provider_message_id SET STATISTICS 0;
ALTER TABLE ONLY push.history ALTER COLUMN failures SET STATISTICS 0;

COMMENT ON TABLE push.history IS 'one finished push; a partition a UTC day, dropped by retention. People read push.delivery_history';

COMMENT ON COLUMN push.history.finished_at IS 'when it was settled';

COMMENT ON COLUMN push.history.outbox_id IS 'the call: push.outbox.id';

COMMENT ON COLUMN push.history.created_at IS 'when the call was enqueued';

COMMENT ON COLUMN push.history.deadline_at IS 'what the deadline was';

COMMENT ON COLUMN push.history.sent_at IS 'when the last request left; null: none ever left';

COMMENT ON COLUMN push.history.answered_at IS 'when the provider''s last answer came; null: none came';

COMMENT ON COLUMN push.history.n IS 'number of the push within its call';

COMMENT ON COLUMN push.history.attempts IS 'tries made';

COMMENT ON COLUMN push.history.owner IS 'push.gateways.id of the gateway that settled it';

COMMENT ON COLUMN push.history.lane IS 'push.lane.id';

COMMENT ON COLUMN push.history.kind IS '0 invite, 1 cancel, 2 missed_call, 3 notification';

COMMENT ON COLUMN push.history.outcome IS '0 delivered, 1 delivered_late, 2 void, 3 expired, 4 dead';

COMMENT ON COLUMN push.history.status IS 'HTTP status of the last answer';

COMMENT ON COLUMN push.history.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.history.call_id IS 'payload.callId of the call';

COMMENT ON COLUMN push.history.device IS 'the token, masked: its first and last four characters';

COMMENT ON COLUMN push.history.reason IS 'why it was not delivered, in the provider''s word or ours';

COMMENT ON COLUMN push.history.provider_message_id IS 'the provider''s id: apns-id, FCM message name, Expo ticket';

COMMENT ON COLUMN push.history.failures IS 'failed tries before the last: array of {"at", "attempt", "status", "reason"}, at most 20';

COMMENT ON COLUMN push.history.fallback_of IS 'n of the invite of the same call that failed, instead of which this was sent';

COMMENT ON COLUMN push.history.receipt_reason IS 'what Expo''s receipt said later; null: nothing bad, or not yet';

COMMENT ON COLUMN push.history.token_hash IS 'hash of the token, which tells tokens of one mask apart while their call rings; null: written by an older release';

COMMENT ON COLUMN push.history.token IS 'the device token; null: erased, or finished before this column existed';

COMMENT ON COLUMN push.history.environment IS '0 production, 1 sandbox';

COMMENT ON COLUMN push.history.platform IS '0 unknown, 1 ios, 2 android, 3 web';

COMMENT ON COLUMN push.history.locale IS 'language of visible texts';

COMMENT ON COLUMN push.history.data IS 'object of texts: what the recipient''s entry brought for templates, ${recipient.NAME}; null, as a rule: nothing';

CREATE FUNCTION push.delivery_data(p_app text, p_provider text, p_call_id text, p_push push.history) RETURNS jsonb
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select jsonb_build_object('app', p_app, 'callId', p_call_id, 'n', p_push.n,
    'kind', (array['invite', 'cancel', 'missed_call', 'notification'])[p_push.kind + 1],
    'outcome', (array['delivered', 'delivered_late', 'void', 'expired', 'dead'])[p_push.outcome + 1],
    'reason', p_push.reason, 'status', p_push.status, 'userId', p_push.user_id,
    'device', coalesce(left(p_push.token, 4) || '…' || right(p_push.token, 4), p_push.device), 'provider', p_provider,
    'attempts', p_push.attempts, 'sentAt', push.iso_time(p_push.sent_at))
$$;

COMMENT ON FUNCTION push.delivery_data(p_app text, p_provider text, p_call_id text, p_push push.history) IS 'data of delivery.finished. p_app, p_provider: the lane; p_call_id: push.outbox.call_id';

CREATE FUNCTION push.device_fault(p_user_id text, p_app text, p_provider text, p_token text, p_environment text, p_platform text, p_locale text, p_is_served boolean) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select 'push.devices.' || case
    when p_user_id is null or length(p_user_id) not between 1 and 256 then 'user_id: must have 1 to 256 characters'
    when push.app_fault(p_app) is not null then push.app_fault(p_app)
    when not coalesce(p_provider = any (push.channels()), false) then 'provider: must be one of ' || array_to_string(push.channels(), ', ')
    when p_token is null or push.channel_token(p_provider, p_token) is distinct from p_token
      then format('token: must have the form of a token of provider %s', p_provider)
    when p_environment not in ('production', 'sandbox') then 'environment: must be production or sandbox'
    when p_provider = 'webpush' and p_platform <> 'web' then 'platform: must be web, or null, with provider webpush'
    when p_provider <> 'webpush' and p_platform not in ('ios', 'android') then 'platform: must be ios or android, or null'
    when length(p_locale) > 64 then 'locale: must have at most 64 characters'
    when not p_is_served then format('app: no gateway has served app %s yet; start one that has it in its configuration, or correct the name', p_app)
  end
$$;

COMMENT ON FUNCTION push.device_fault(p_user_id text, p_app text, p_provider text, p_token text, p_environment text, p_platform text, p_locale text, p_is_served boolean) IS 'the fault of a row of push.devices; null: none. p_is_served: whether a gateway has served the app';

CREATE FUNCTION push.device_token(p_app text, p_device text) RETURNS text
    LANGUAGE plpgsql STABLE STRICT
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $_$
declare
  v_token text := coalesce(push.channel_token('apns', p_device), push.channel_token('expo', p_device), push.channel_token('fcm', p_device),
    push.channel_token('webpush', p_device), (select d.token from push.devices d
      where d.id = case when p_device ~ '^[0-9]{1,18}$' then p_device::bigint end and d.app = p_app));
begin
  if v_token is null then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'device: must be a token of the phone, or the id that it has in push.devices',
      hint = 'Leave it out if the phone is not known.', schema = 'push', table = 'outbox', column = 'answered_device';
  end if;
  return v_token;
end
$_$;

COMMENT ON FUNCTION push.device_token(p_app text, p_device text) IS 'the token of a device: given itself, or by push.devices.id; null gives null';

CREATE FUNCTION push.devices_with(p_app text, p_provider text, p_token text) RETURNS TABLE(tid tid, user_id text, token text)
    LANGUAGE sql STABLE
    AS $$
  select d.ctid, d.user_id, d.token from push.devices d
  where sha256(d.token::bytea) = any (push.token_digests(p_provider, p_token)) and d.app = p_app and d.provider = p_provider
  offset 0
$$;

COMMENT ON FUNCTION push.devices_with(p_app text, p_provider text, p_token text) IS 'where the devices are stored that have a token, in whatever letters';

CREATE FUNCTION push.disown(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_lease integer[]) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
  select push.free_rows(array_remove(push.places(p_gateway, p_outbox_id, p_n, p_lease), null), array[p_gateway])
$$;

COMMENT ON FUNCTION push.disown(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_lease integer[]) IS 'for deliveries that are claimed in the gateway''s name and that it does not know, because a fail-over has lost what it settled: those that people see end as dead (GatewayCrashed) unless the app is at_least_once, the others become ready. p_gateway, p_outbox_id, p_n, p_lease: as for push.settle. Returns how many';

CREATE FUNCTION push.drop_calls() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  -- It may not show deliveries that have been made since.
  v_is_old constant boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
  v_table  text;
  v_owing  bigint[];
begin
  if tg_op = 'TRUNCATE' then
    foreach v_table in array '{delivery,ring_reports,escalations,unreached,follow_ups,call_key}'::text[] loop
      begin
        execute format('truncate push.%I', v_table);
      exception when object_in_use then
        -- Usually the same TRUNCATE includes this table, which is then empty.
        execute format('delete from push.%I', v_table);
      end;
    end loop;
    insert into push.audit (action, target) values ('truncate_calls', 'push.outbox');
    perform push.notify('push_control', 'void *');
    return null;
  end if;
  -- Retention deletes no call with deliveries, so these calls were deleted by hand.
  v_owing := array(select g.id from gone_calls g where v_is_old or (select true from push.delivery d where d.outbox_id = g.id limit 1));
  if v_owing <> '{}' then
    insert into push.follow_ups (outbox_id, why) select c.id, 'gone' from unnest(v_owing) c(id);
    perform push.notify('push_control', 'void ' || c.id)
      from unnest(case when cardinality(v_owing) <= 100 then v_owing::text[] else '{*}' end) c(id);
    insert into push.audit (action, target, detail) values ('delete_calls',
      (select min(g.call_id) || case when count(*) > 1 then ', …' else '' end from gone_calls g),
      jsonb_build_object('calls', (select count(*) from gone_calls), 'owed',
        (select count(*) from push.delivery d where d.outbox_id = any (v_owing))));
  end if;
  delete from push.ring_reports r where r.outbox_id = any (array(select g.id from gone_calls g));
  delete from push.escalations e where e.outbox_id = any (array(select g.id from gone_calls g));
  delete from push.unreached u where u.outbox_id = any (array(select g.id from gone_calls g));
  -- Deleted last, so that a session that waits for a key finds that the call is gone.
  delete from push.call_key k where k.ctid = any (array(
    select k.tid
    from gone_calls g cross join lateral (
      select k.ctid as tid from push.call_key k where k.call_id = g.call_id and k.app = g.app offset 0
    ) k));
  return null;
end
$$;

COMMENT ON FUNCTION push.drop_calls() IS 'when calls are deleted: deletes their other rows, and notes their deliveries for push.follow_up';

CREATE FUNCTION push.drop_device(app text, provider text, token text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
  delete from push.devices d
    where sha256(d.token::bytea) = any (push.token_digests(drop_device.provider, push.channel_token(drop_device.provider, drop_device.token)))
      and d.app = drop_device.app and d.provider = drop_device.provider and push.is_own(drop_device.app);
  return found;
end
$$;

COMMENT ON FUNCTION push.drop_device(app text, provider text, token text) IS 'the user has logged out of this device: nothing more is sent to its token. app, provider, token: as registered. Returns false if it was not registered';

CREATE FUNCTION push.drop_partitions(p_keep_days integer DEFAULT 14) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    SET lock_timeout TO '100ms'
    AS $_$
declare
  v_name text := (
    select c.relname
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'push.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
      and right(c.relname, 8) < to_char(current_date - greatest(p_keep_days, 1), 'YYYYMMDD')
    -- One that something depends on, for example somebody's view, cannot be dropped. It comes last, so that push.health names the job then.
    order by exists (select from pg_depend d where d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid and d.deptype = 'n'), c.relname
    limit 1);
begin
  if v_name is not null then
    execute format('drop table if exists push.%I', v_name);
  end if;
  return (v_name is not null)::int;
end
$_$;

COMMENT ON FUNCTION push.drop_partitions(p_keep_days integer) IS 'drops the oldest partition of push.history that is too old and returns 1; call it until it returns 0. p_keep_days: number of days to keep';

CREATE FUNCTION push.enable_device(app text, provider text, token text, enabled boolean DEFAULT true) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
  update push.devices d set enabled = coalesce(enable_device.enabled, true)
    where sha256(d.token::bytea) = any (push.token_digests(enable_device.provider, push.channel_token(enable_device.provider, enable_device.token)))
      and d.app = enable_device.app and d.provider = enable_device.provider and push.is_own(enable_device.app);
  return found;
end
$$;

COMMENT ON FUNCTION push.enable_device(app text, provider text, token text, enabled boolean) IS 'the user''s switch for a device. app, provider, token: as registered; enabled: false: it gets no pushes. Returns false if it is not registered';

CREATE FUNCTION push.end_call(call_id text, reason text DEFAULT 'ended'::text, app text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  v_id bigint := push.find_call(call_id, app);
begin
  -- In one line, because the context of an error quotes it.
  update push.outbox o set state = 'ended', end_reason = coalesce(end_call.reason, 'ended') where o.id = v_id and o.ended_at is null;
  return found;
end
$$;

COMMENT ON FUNCTION push.end_call(call_id text, reason text, app text) IS 'ends a call that was not answered: nothing more is sent, devices that may ring get a cancel, and users get a missed call unless the reason is declined or busy. call_id: payload.callId; reason: kept as push.outbox.end_reason; app: needed only if several apps have a call with this id. Returns false if the call had ended before';

CREATE FUNCTION push.end_calls() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS $$
declare
  v_held bigint[];
begin
  if exists (select from push.webhook w where w.on_until > statement_timestamp()) then
    insert into push.webhook_event (event, app, type, outbox_id, user_id, at, data)
    select push.webhook_id('decline', n.app, n.id::text, extract(epoch from n.created_at)::text, s.user_id), n.app, 'call.declined', n.id,
      s.user_id, coalesce((s.said ->> 'at')::timestamptz, clock_timestamp()),
      jsonb_build_object('app', n.app, 'callId', n.call_id, 'kind', n.kind, 'userId', s.user_id, 'reason', s.said ->> 'reason')
    from new_calls n join old_calls o on o.id = n.id
    cross join lateral jsonb_each(n.declined) s(user_id, said)
    cross join lateral push.hook_of(n.app, 'call.declined')
    where o.declined is distinct from n.declined and not coalesce(o.declined ? s.user_id, false)
      -- A user who is erased has not declined, or not now.
      and s.user_id <> '[erased]' and not s.said ? 'erases'
    union all
    select push.webhook_id('call', n.app, n.id::text, extract(epoch from n.created_at)::text), n.app,
      'call.' || n.state, n.id, n.answered_by, n.ended_at, push.call_data(row(n.*)::push.outbox)
    from new_calls n join old_calls o on o.id = n.id cross join lateral push.hook_of(n.app, 'call.' || n.state)
    where o.state = 'ringing' and n.state <> 'ringing'
    on conflict do nothing;
  end if;
  with changed as materialized (
    select n.id, n.deadline_at, n.state <> o.state as has_ended
    from new_calls n join old_calls o on o.id = n.id
    where o.state = 'ringing' and (n.state <> o.state or n.declined is distinct from o.declined)
  ), noted as (
    insert into push.follow_ups (outbox_id, why) select c.id, case when c.has_ended then 'ended' else 'declined' end from changed c
  )
  -- After the deadline, gateways drop on their own the invites that they hold in memory.
  select array_agg(c.id) filter (where c.deadline_at > clock_timestamp()) into v_held from changed c;
  perform push.notify('push_control', 'void ' || c.id) from unnest(case when cardinality(v_held) <= 100 then v_held::text[] else '{*}' end) c(id)
    where v_held is not null;
  return null;
end
$$;

COMMENT ON FUNCTION push.end_calls() IS 'records events for webhooks, notes ends and declines for push.follow_up, and tells the gateways';

CREATE FUNCTION push.ended(p_outbox_id bigint[]) RETURNS bigint[]
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  select array(select c.id from unnest(p_outbox_id) c(id) where exists (
    select from push.ended_for(array[c.id]) e where e.user_id is null or exists (
      select from push.delivery d where d.outbox_id = c.id and d.kind = 0 and d.state = 1 and d.user_id = e.user_id)))
$$;

COMMENT ON FUNCTION push.ended(p_outbox_id bigint[]) IS 'for gateways of release 0.1.0: those of these calls that no longer ring, were deleted, or have claimed invites of a user who has declined. p_outbox_id: push.outbox.id';

CREATE FUNCTION push.ended_for(p_outbox_id bigint[]) RETURNS TABLE(outbox_id bigint, user_id text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
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

COMMENT ON FUNCTION push.ended_for(p_outbox_id bigint[]) IS 'whose phones must not ring for these calls: a row without user_id for each call that no longer rings or was deleted, and a row for each user who has declined one that rings. A notification on push_control is only a hint, so gateways check with this function. p_outbox_id: push.outbox.id';

CREATE FUNCTION push.enqueue_batch(calls jsonb[]) RETURNS TABLE(n integer, outbox_id bigint, call_id text, duplicate boolean)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS $$
  -- Before any call is looked for.
  select push.refuse_app(a.app) from (select distinct coalesce(c ->> 'app', 'default') as app from unnest(enqueue_batch.calls) c) a;
  with asked as materialized (
    select c.ordinal::int - 1 as n, coalesce(c.call ->> 'app', 'default') as app, coalesce(c.call ->> 'kind', 'incoming_call') as kind,
      coalesce(c.call ->> 'call_id', push.given_call_id(coalesce(c.call ->> 'kind', 'incoming_call'), c.call -> 'payload'),
        case when push.is_message(c.call ->> 'kind') then push.new_call_id() else '' end) as call_id,
      c.call -> 'payload' as payload, c.call -> 'recipients' as recipients, (c.call ->> 'ring_seconds')::int as ring_seconds,
      c.call ->> 'traceparent' as traceparent
    from unnest(calls) with ordinality c(call, ordinal)
  ), made as (
    -- In the order of their keys, so that two statements with the same calls do not deadlock.
    insert into push.outbox (app, kind, call_id, payload, recipients, ring_seconds, traceparent)
      select a.app, a.kind, a.call_id, a.payload, a.recipients, a.ring_seconds, a.traceparent from asked a
      order by a.app, a.call_id, a.n
      returning id, app, call_id
  )
  select a.n, coalesce(m.id, (select o.id from push.outbox o where o.call_id = a.call_id and o.app = a.app)), a.call_id,
    m.id is null or a.n > min(a.n) over (partition by a.app, a.call_id)
  from asked a left join made m on m.app = a.app and m.call_id = a.call_id
  order by a.n
$$;

COMMENT ON FUNCTION push.enqueue_batch(calls jsonb[]) IS 'enqueues many calls, or notifications, as one INSERT does: all or none. calls: objects with the columns of push.outbox as keys: app, kind, call_id, payload, recipients, ring_seconds, traceparent. Returns for each, by n, its position from 0: push.outbox.id, call_id, and whether it had been enqueued before';

CREATE FUNCTION push.enqueue_call(payload jsonb, recipients jsonb, app text DEFAULT 'default'::text, ring_seconds integer DEFAULT NULL::integer, kind text DEFAULT 'incoming_call'::text, traceparent text DEFAULT NULL::text) RETURNS TABLE(outbox_id bigint, deliveries integer, duplicate boolean, skipped integer, call_id text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $_$
#variable_conflict use_column
declare
  v_app    constant text := coalesce(enqueue_call.app, 'default');
  v_kind   constant text := coalesce(enqueue_call.kind, 'incoming_call');
  v_given  constant text := push.given_call_id(v_kind, enqueue_call.payload);
  v_counts constant bigint[] := array[push.is_call(v_kind)::int, (not push.is_call(v_kind))::int,
    case jsonb_typeof(enqueue_call.recipients) when 'array' then jsonb_array_length(enqueue_call.recipients) else 0 end];
  v_since  timestamptz;
  v_over   text;
  v_full   jsonb;
begin
  perform push.refuse_app(v_app) where not push.acts_for_all();
  -- A refusal here leaves no dead rows. A call that exists is a duplicate, as ever.
  v_full := case when pg_sequence_last_value('push.quota_id_seq') is not null and push.quota_fault(v_app, v_counts) is not null
      and not exists (select from push.outbox o where o.call_id = v_given and o.app = v_app)
    then push.quota_fault(v_app, v_counts, true) end;
  if v_full is not null then
    raise exception using errcode = v_full ->> 'code', message = v_full ->> 'message', detail = v_full ->> 'detail',
      hint = v_full ->> 'hint', schema = 'push', table = 'outbox', column = v_full ->> 'column';
  end if;
  -- In one line, because the context of an error quotes it.
  insert into push.outbox (app, kind, payload, recipients, ring_seconds, traceparent) values (v_app, v_kind, $1, $2, $4, $6) returning id, call_id
    into outbox_id, call_id;
  duplicate := not found;
  if duplicate then
    -- For a minute after a call's end, enqueueing it again may be a repetition whose first answer was lost.
    select o.id, o.call_id, o.created_at, o.state || case when o.ended_at < clock_timestamp() - interval '1 minute' then '' end
      into outbox_id, call_id, v_since, v_over from push.outbox o where o.call_id = v_given and o.app = v_app;
    if not found then
      raise exception using errcode = 'serialization_failure', hint = 'Roll back and try again.',
        message = format('call %s was enqueued, or deleted, by another transaction meanwhile', left(v_given, 128));
    elsif v_over is not null and push.is_call(v_kind) then
      raise exception using errcode = '55R01', message = format('callId: call %s was %s before; it does not ring again', left(v_given, 128), v_over),
        hint = 'Each call that rings needs an id of its own.';
    end if;
    -- In one statement: a delivery that is settled meanwhile is counted once. Only here: a query on history is planned at every call.
    deliveries := (select count(*) from (
      select d.kind, d.fallback_of from push.delivery d where d.outbox_id = enqueue_call.outbox_id union all
      select h.kind, h.fallback_of from push.history h where h.outbox_id = enqueue_call.outbox_id and h.finished_at >= v_since
    ) d where d.kind in (0, 3) and d.fallback_of is null);
  else
    deliveries := (select count(*) from push.delivery d where d.outbox_id = enqueue_call.outbox_id and d.kind in (0, 3) and d.fallback_of is null);
  end if;
  skipped := case when duplicate or exists (select from push.calls_that_skip s where s.id = enqueue_call.outbox_id)
    then (select count(*) from push.skipped_recipients(outbox_id)) else 0 end;
  return next;
end
$_$;

COMMENT ON FUNCTION push.enqueue_call(payload jsonb, recipients jsonb, app text, ring_seconds integer, kind text, traceparent text) IS 'enqueues one call, or one notification, in the caller''s transaction. payload: as push.outbox.payload; recipients: as push.outbox.recipients; app: the app whose phones ring; ring_seconds: the ring window, or the time to live of a notification; null: the app''s own; kind: as push.outbox.kind; traceparent: as push.outbox.traceparent. Returns outbox_id: push.outbox.id; deliveries: number of devices that it goes to; duplicate: true if (app, callId) existed already, and nothing was done (push.compare_call tells more); skipped: number of users without a device, plus number of entries of recipients or members of them that could not be used (push.skipped_recipients lists them with reason and remedy); call_id: payload.callId, or the id made for a notification without one. A call that ended more than a minute ago does not ring again: that is an error';

CREATE FUNCTION push.enqueue_calls(calls jsonb) RETURNS TABLE(n integer, outbox_id bigint, deliveries integer, skipped integer, call_id text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET lock_timeout TO '20ms'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_made jsonb;
begin
  begin
    with asked as materialized (
      -- With the ids of messages that have none.
      select a.*, coalesce(push.given_call_id(a.kind, a.payload), case when push.is_message(a.kind) then push.new_call_id() end) as call_id
      from (
        select c.i::int - 1 as n, c.call ->> 'app' as app, coalesce(c.call ->> 'kind', 'incoming_call') as kind, c.call -> 'payload' as payload,
          c.call -> 'recipients' as recipients, (c.call ->> 'ringSeconds')::int as ring_seconds, c.call ->> 'traceparent' as traceparent
        from jsonb_array_elements(enqueue_calls.calls) with ordinality c(call, i)
        offset 0
      ) a
    ), refused as materialized (
      -- For the quota of its app, a call comes after those before it.
      select r.n
      from (
        select a.n, a.app, array[sum(push.is_call(a.kind)::int) over w, sum((not push.is_call(a.kind))::int) over w,
          sum(case jsonb_typeof(a.recipients) when 'array' then jsonb_array_length(a.recipients) else 0 end) over w] as counts
        from asked a join push.quota q on q.app = a.app
        where pg_sequence_last_value('push.quota_id_seq') is not null
        window w as (partition by a.app order by a.n)
      ) r
      where push.quota_fault(r.app, r.counts) is not null
    ), good as materialized (
      select distinct on (a.app, a.call_id) a.*
      from asked a cross join lateral push.accept(a.app, a.kind, a.call_id, a.payload, a.recipients, a.ring_seconds, null) x
      where x.fault is null and coalesce(array_remove(x.size_faults, null), '{}') = '{}' and a.n <> all (array(select r.n from refused r))
      order by a.app, a.call_id, a.n
    ), made as (
      -- Inserted in the order of their keys, so that two statements with the same calls do not deadlock.
      insert into push.outbox (app, kind, call_id, payload, recipients, ring_seconds, traceparent)
        select g.app, g.kind, g.call_id, g.payload, g.recipients, g.ring_seconds, g.traceparent from good g
        order by g.app, g.call_id
        returning id, app, call_id
    )
    select jsonb_agg(jsonb_build_object('n', g.n, 'id', m.id)) into v_made
      from made m join good g on g.app = m.app and g.call_id = m.call_id;
  exception when others or assert_failure then
    -- An error in one call, or a lock that one call waits for, must not affect the others.
    return query select null::int, null::bigint, null::int, null::int, null::text;
    return;
  end;
  return query
    select m.n, o.id,
      (select count(*)::int from push.delivery d where d.outbox_id = o.id and d.kind in (0, 3) and d.fallback_of is null),
      case when exists (select from push.calls_that_skip s where s.id = o.id)
        then (select count(*)::int from push.skipped_recipients(o.id)) else 0 end,
      o.call_id
    from jsonb_to_recordset(v_made) m(n int, id bigint)
    cross join lateral (select * from push.outbox o where o.id = m.id offset 0) o;
end
$$;

COMMENT ON FUNCTION push.enqueue_calls(calls jsonb) IS 'enqueues many calls, or notifications, in one transaction. calls: an array of objects with the arguments of push.enqueue_call: app, kind, payload, recipients, ringSeconds, traceparent. Returns the columns of push.enqueue_call by n, the position in calls from 0. A call that is invalid, exists already or occurs twice has no row, and nothing was done for it: push.enqueue_call gives the reason. One row with null for n: nothing at all was done, because one of the calls failed; try them in halves';

CREATE FUNCTION push.ensure_partitions(p_days_ahead integer DEFAULT 14) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET "TimeZone" TO 'UTC'
    SET lock_timeout TO '100ms'
    AS $$
declare
  v_day  date;
  v_name text;
  v_made int := 0;
begin
  -- One replica at a time: if another runs this, it does the same work.
  perform from push.job j where j.name = 'ensure_partitions' for update skip locked;
  if not found and exists (select from push.job j where j.name = 'ensure_partitions') then
    return 0;
  end if;
  -- Not more than 60: every query on history opens a file for each partition.
  for v_day in
    select d::date from generate_series(current_date - 1, current_date + least(p_days_ahead, 60), interval '1 day') d
    where not exists (select from pg_inherits i
      where i.inhparent = 'push.history'::regclass and i.inhrelid = to_regclass('push.history_' || to_char(d, 'YYYYMMDD')))
  loop
    v_name := 'history_' || to_char(v_day, 'YYYYMMDD');
    begin
      execute format('create table if not exists push.%I (like push.history including all)', v_name);
      execute format('alter table push.%I alter user_id set statistics 0, alter token set statistics 0, alter locale set statistics 0, '
        'alter data set statistics 0, alter provider_message_id set statistics 0, alter failures set statistics 0, '
        'set (autovacuum_analyze_threshold = 100000), replica identity full', v_name);
      execute format('alter table push.history attach partition push.%I for values from (%L) to (%L)',
        v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
      execute format('revoke all on push.%I from public', v_name);  -- as roles.sql does
      execute format('comment on table push.%I is %L', v_name, 'what was finished on ' || v_day || ' (UTC)');
      v_made := v_made + 1;
    exception when others or assert_failure then
      if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
      raise warning 'push.history has no partition for % (SQLSTATE %). If push.history_default holds rows of it, move them', v_day, sqlstate;
    end;
  end loop;
  return v_made;
end
$$;

COMMENT ON FUNCTION push.ensure_partitions(p_days_ahead integer) IS 'makes the missing partitions of push.history, from yesterday on. Returns how many. p_days_ahead: number of days from today, at most 60';

CREATE FUNCTION push.entry_platform(p_provider text, p_entry jsonb) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case p_provider when 'apns' then 1 when 'webpush' then 3 else
    case when p_entry ->> 'platform' = 'ios' then 1 when p_entry ->> 'platform' = 'android' then 2
      when p_entry ->> 'voipPushToken' <> '' or p_entry ->> 'apnsToken' <> '' then 1 else 0 end end::smallint
$$;

COMMENT ON FUNCTION push.entry_platform(p_provider text, p_entry jsonb) IS 'push.delivery.platform of an entry of recipients that is reached over a channel';

CREATE FUNCTION push.entry_tokens(p_entry jsonb, p_is_call boolean) RETURNS TABLE(rank integer, provider text, token text)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select t.rank, t.provider, t.token
  from (values
    (1, 'apns', push.channel_token('apns', p_entry ->> case when p_is_call then 'voipPushToken' else 'apnsToken' end)),
    (2, 'fcm', push.channel_token('fcm', p_entry ->> 'fcmToken')),
    (3, 'expo', push.channel_token('expo', p_entry ->> 'pushToken')),
    (4, 'webpush', push.channel_token('webpush', p_entry ->> 'webPushSubscription'))) t(rank, provider, token)
  where t.token is not null
$$;

COMMENT ON FUNCTION push.entry_tokens(p_entry jsonb, p_is_call boolean) IS 'the usable tokens of an entry of recipients: for a call the VoIP token, else the alert token';

CREATE FUNCTION push.entry_user(p_entry jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select case jsonb_typeof(p_entry) when 'string' then p_entry #>> '{}' else p_entry ->> 'userId' end $$;

COMMENT ON FUNCTION push.entry_user(p_entry jsonb) IS 'the user that an entry of recipients names. p_entry: an element of push.outbox.recipients';

CREATE FUNCTION push.epoch_ms(p_time timestamp with time zone) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select (extract(epoch from push.finite(p_time)) * 1000)::bigint $$;

COMMENT ON FUNCTION push.epoch_ms(p_time timestamp with time zone) IS 'a time, p_time, in milliseconds since 1970';

CREATE FUNCTION push.erase_elsewhere(p_erasure push.erasure) RETURNS push.erasure
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'on'
    SET plan_cache_mode TO 'force_generic_plan'
    SET max_parallel_workers_per_gather TO '0'
    AS $_$
declare
  v_user    constant text := p_erasure.user_id;
  v_table   record;
  v_batch   push.receipt_batch;
  v_hashes  bigint[];
  v_seen    bigint;
  v_removed bigint := 0;
  v_masked  bigint;
begin
  for v_batch in select r.* from push.receipt_batch r where r.app = p_erasure.app and v_user = any (r.user_id) for update skip locked loop
    v_removed := v_removed + push.cut_receipts(v_batch, array(
      select i from unnest(v_batch.user_id) with ordinality t(u, i) where t.u <> v_user order by i));
    p_erasure.token_hashes := array(
      select unnest(p_erasure.token_hashes)
      union
      select hashtextextended(t.token, 0) from unnest(v_batch.user_id, v_batch.token) t(u, token) where t.u = v_user);
  end loop;
  p_erasure.counts := push.add_counts(p_erasure.counts, jsonb_build_object('receipt_batch', array[v_removed, 0]));

  p_erasure.has_locked := exists (select from push.receipt_batch r where r.app = p_erasure.app and v_user = any (r.user_id));
  for v_table in select * from (values
    ('devices', 'x.token', 'x.registered_at <= $4'), ('token_invalidations', 'x.token', 'true'), ('quarantined_tokens', 'x.token', 'true'),
    ('webhook_event', 'x.data ->> ''token''', 'x.type = ''token.dead''')
  ) t(name, token, is_meant) loop
    execute format('with seen as materialized (select x.ctid as tid from push.%1$I x where x.app = $1 and %3$s
          and (x.user_id = $2 or x.user_id is null and hashtextextended(%2$s, 0) = any ($3))), gone as (
        delete from push.%1$I x where x.ctid = any (array(select l.ctid from push.%1$I l
          where l.ctid = any (array(select s.tid from seen s)) for update skip locked)) returning hashtextextended(%2$s, 0) as hash)
      select (select count(*) from seen), count(*), coalesce(array_agg(g.hash), ''{}'') from gone g',
      v_table.name, v_table.token, v_table.is_meant)
      into v_seen, v_removed, v_hashes using p_erasure.app, v_user, p_erasure.token_hashes, p_erasure.asked_at;
    p_erasure.token_hashes := array(select unnest(p_erasure.token_hashes) union select unnest(v_hashes));
    p_erasure.counts := push.add_counts(p_erasure.counts, jsonb_build_object(v_table.name, array[v_removed, 0]));
    p_erasure.has_locked := p_erasure.has_locked or v_removed < v_seen;
  end loop;

  -- Events that were not acknowledged yet.
  update push.webhook_event t
    set user_id = '[erased]', data = t.data || case when t.data ? 'answeredBy' then '{"answeredBy": "[erased]"}'
      when t.data ? 'device' then '{"userId": "[erased]", "device": "…"}' else '{"userId": "[erased]"}' end::jsonb
    where t.id = any (array(
      select x.id from push.webhook_event x where x.app = p_erasure.app and x.user_id = v_user for no key update skip locked));
  get diagnostics v_masked = row_count;
  p_erasure.counts := push.add_counts(p_erasure.counts, jsonb_build_object('webhook_event', array[0, v_masked]));
  p_erasure.has_locked := p_erasure.has_locked
    or exists (select from push.webhook_event x where x.app = p_erasure.app and x.user_id = v_user);
  return p_erasure;
end
$_$;

COMMENT ON FUNCTION push.erase_elsewhere(p_erasure push.erasure) IS 'erases the user outside of calls; has_locked: rows were skipped';

CREATE FUNCTION push.erase_from_call(p_erasure push.erasure, p_outbox_id bigint) RETURNS push.erasure
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET lock_timeout TO '10ms'
    AS $$
declare
  v_user   constant text := p_erasure.user_id;
  v_call   push.outbox;
  v_since  timestamptz;
  v_former push.erasure;
  v_is_recipient boolean;
begin
  -- It waits, unless it is masked below.
  p_erasure.waiting := array_remove(p_erasure.waiting, p_outbox_id) || p_outbox_id;
  v_former := p_erasure;
  select o.* into v_call from push.outbox o where o.id = p_outbox_id for no key update;
  perform push.hand_over(v_call, v_user);
  -- Of a call that was deleted, only the history is left.
  v_since := coalesce(v_call.created_at - interval '1 hour', '-infinity');
  p_erasure.token_hashes := array_remove(array(
    select unnest(p_erasure.token_hashes)
    union
    -- As push.token_digests.
    select hashtextextended(s.token, 0)
      from jsonb_array_elements(v_call.recipients) e cross join unnest(array[true, false]) c(is_call)
      cross join lateral push.entry_tokens(e, c.is_call) t
      cross join lateral unnest(array[t.token, lower(t.token), upper(t.token)]) s(token)
      where e ->> 'userId' = v_user
    union
    select coalesce(hashtextextended(s.token, 0), h.token_hash) from push.history h
      cross join lateral unnest(array[h.token, lower(h.token), upper(h.token)]) s(token)
      where h.outbox_id = p_outbox_id and h.finished_at >= v_since and h.user_id = v_user), null);
  v_is_recipient := coalesce(v_call.recipients @> jsonb_build_array(v_user)
    or v_call.recipients @> jsonb_build_array(jsonb_build_object('userId', v_user)), false);
  p_erasure.is_known := p_erasure.is_known or v_is_recipient
    or coalesce(v_call.declined ? v_user or v_call.answered_by = v_user or v_call.payload ->> 'from' = v_user, false);
  update push.outbox o
    set declined = coalesce(o.declined, '{}')
      || jsonb_build_object(v_user, jsonb_build_object('reason', 'declined', 'at', clock_timestamp(), 'erases', true))
    where o.id = p_outbox_id and o.ended_at is null and v_is_recipient and not coalesce(o.declined ? v_user, false);
  delete from push.unreached u where u.outbox_id = p_outbox_id and u.user_id = v_user;
  -- Unsent notifications and missed calls are never sent. Invites become void as after every decline, and cancels are sent: a phone
  -- must not ring without an end.
  p_erasure.counts := push.add_counts(p_erasure.counts, jsonb_build_object('delivery', array[push.bury(array(
      select d.ctid from push.delivery d
      where d.outbox_id = p_outbox_id and d.user_id = v_user and d.state in (0, 2) and d.kind in (2, 3) for update),
    2, 'UserErased'), 0]));

  if v_call.id is not null and v_call.ended_at is null
    or exists (select from push.follow_ups f where f.outbox_id = p_outbox_id and f.why <> 'unheard')
    -- A payload that names the user goes to the phones of the others.
    or exists (select from push.delivery d
      where d.outbox_id = p_outbox_id and (d.user_id = v_user
        or v_call.payload - 'callId' <> push.mask_user(v_call.payload - 'callId', v_user)))
  then
    return p_erasure;
  end if;
  return push.mask_rows(p_erasure, p_outbox_id, v_call, v_since);
exception
  when lock_not_available then return v_former;
  when others or assert_failure then
    -- A call that cannot be masked keeps no other waiting.
    if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
    perform push.name_fault('push.outbox.id ' || p_outbox_id, sqlstate);
    return v_former;
end
$$;

COMMENT ON FUNCTION push.erase_from_call(p_erasure push.erasure, p_outbox_id bigint) IS 'masks the user in one call, or declines it if it rings; it waits while something is owed';

CREATE FUNCTION push.erase_user(user_id text, app text, max_ms integer DEFAULT 1000) RETURNS TABLE(place text, removed bigint, masked bigint, waiting bigint, is_complete boolean)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_user    constant text := erase_user.user_id;
  v_app     constant text := erase_user.app;
  v_digest  constant bytea := sha256(convert_to(v_user, 'UTF8'));
  v_rings   constant bigint := coalesce((
    select min(o.id) from push.outbox o where o.state = 'ringing' and o.ended_at is null and o.app = v_app), 0);
  v_erasure push.erasure;
  v_is_new  boolean;
begin
  if v_user is null or length(v_user) not between 1 and 256 or v_user = '[erased]' then
    raise exception using errcode = 'invalid_parameter_value', message = 'user_id: must have 1 to 256 characters',
      hint = 'It is the id that recipients and push.register_device gave.';
  elsif push.app_fault(v_app) is not null then
    raise exception using errcode = 'invalid_parameter_value', message = push.app_fault(v_app);
  elsif not exists (select from push.lane l where l.app = v_app) and not exists (select from push.apps a where a.app = v_app)
    and not exists (select from push.devices d where d.app = v_app) and not exists (select from push.outbox o where o.app = v_app)
  then
    raise exception using errcode = 'no_data_found',
      message = format('app: no gateway has served %s, and it has no calls and no devices', v_app),
      hint = coalesce((select 'There are ' || string_agg(a.app, ', ') from (select a.app from push.apps a order by a.app limit 20) a),
        'No gateway has served any app yet.');
  end if;
  -- Two erasures of one user run one after the other.
  insert into push.erasure (app, user_digest) values (v_app, v_digest) on conflict on constraint erasure_of_user do nothing;
  select e.* into v_erasure from push.erasure e where e.app = v_app and e.user_digest = v_digest for update;
  v_is_new := v_erasure.user_id is null or v_erasure.scanned_at is not null and v_erasure.found = '{}';
  if v_is_new then
    update push.erasure e
      set user_id = v_user, asked_at = clock_timestamp(), after_id = v_rings - 1, until_id = v_rings, after_table = '', after_page = 0,
        scanned_at = null, finished_at = null, counts = '{}', rang = e.rang || e.waiting, waiting = '{}'
      where e.id = v_erasure.id returning e.* into v_erasure;
  end if;
  v_erasure := push.continue_erasure(v_erasure, clock_timestamp() + make_interval(secs => greatest(coalesce(max_ms, 1000), 0) / 1000.0));
  is_complete := v_erasure.scanned_at is not null and v_erasure.found = '{}';
  if v_is_new or is_complete then
    insert into push.audit (action, target, detail) values ('erase_user', v_app || '/sha256:' || left(encode(v_erasure.user_digest, 'hex'), 16),
      jsonb_build_object('counts', v_erasure.counts, 'waiting', cardinality(v_erasure.waiting || v_erasure.found), 'complete', is_complete));
  end if;
  return query
    select t.name, coalesce((v_erasure.counts -> t.name ->> 0)::bigint, 0), coalesce((v_erasure.counts -> t.name ->> 1)::bigint, 0),
      case t.name when 'outbox' then cardinality(v_erasure.waiting || v_erasure.found) when 'devices' then v_erasure.has_locked::int
        else 0 end::bigint, is_complete
    from unnest('{devices,delivery,outbox,history,ring_reports,escalations,receipt_batch,token_invalidations,quarantined_tokens,webhook_event,'
      'audit}'::text[]) with ordinality t(name, i) order by t.i;
end
$$;

COMMENT ON FUNCTION push.erase_user(user_id text, app text, max_ms integer) IS 'removes or masks all data of one user of one app in this schema. user_id: the backend''s id; app: one that gateways have served, or that has calls or devices; max_ms: stops after about this many milliseconds. Returns a row for each table: place; removed, masked: rows since the pass began; waiting: calls that still ring, are locked, owe the user a delivery, or had no time left; for devices, 1 if rows outside of calls are locked. Gateways do what is waiting within a quarter of an hour, or after the call. is_complete: if false, call this again with the same arguments. A call that rings is declined in the user''s name, and the user''s phones get a cancel, except those that also ring for another recipient. Running it again is harmless and starts a new pass';

CREATE FUNCTION push.expire(p_max integer DEFAULT 5000, p_slack interval DEFAULT '00:00:00'::interval, p_since timestamp with time zone DEFAULT '-infinity'::timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_before timestamptz := statement_timestamp() + p_slack;
  v_gone   tid[] := array(
    select ready.tid from push.lane l cross join lateral (
      select d.ctid as tid from push.delivery d
      where d.ready_lane = l.id and d.deadline_at > p_since and d.deadline_at <= v_before and d.state = 0
      order by d.deadline_at limit p_max for no key update skip locked) ready
    union all
    -- Those that wait, and suspects.
    select other.tid from (
      select d.ctid as tid from push.delivery d
      where d.ready_lane is null and d.due_at > p_since and d.due_at <= v_before and d.deadline_at <= v_before and d.state in (0, 2)
      order by d.due_at limit p_max for no key update skip locked) other
    limit p_max);
begin
  return push.bury(v_gone, 3);
end
$$;

COMMENT ON FUNCTION push.expire(p_max integer, p_slack interval, p_since timestamp with time zone) IS 'ends at most p_max ready and waiting deliveries whose deadline is past, or less than p_slack away, as expired. Returns how many. Claimed ones are left to their gateway. p_since: skips those that were due before it. While a transaction holds back vacuum, a call without it reads the dead entries of all earlier calls; call it without from time to time';

CREATE FUNCTION push.fan_out() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET work_mem TO '64MB'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_full  jsonb;
  v_fault text;
  v_count int;
begin
  perform push.refuse_app(a.app) from (select distinct n.app from new_calls n) a where not push.acts_for_all();
  -- Before there are deliveries; the last trigger counts (tally.sql). As long as no app has ever had a quota, its table is not read.
  if pg_sequence_last_value('push.quota_id_seq') is not null then
    select push.quota_fault(n.app, array[count(*) filter (where push.is_call(n.kind)), count(*) filter (where not push.is_call(n.kind)),
        sum(case jsonb_typeof(n.recipients) when 'array' then jsonb_array_length(n.recipients) else 0 end)], true) as fault into v_full
      from new_calls n where n.created_at >= statement_timestamp() and n.app in (select q.app from push.quota q)
      group by n.app order by fault limit 1;
    if v_full is not null then
      raise exception using errcode = v_full ->> 'code', message = v_full ->> 'message', detail = v_full ->> 'detail',
        hint = v_full ->> 'hint', schema = 'push', table = 'outbox', column = v_full ->> 'column';
    end if;
  end if;
  -- Each call is checked once. If one has a fault, no delivery is made.
  with call as materialized (
    select n.id, n.app, n.call_id, n.created_at, n.deadline_at, n.recipients, a.*
    from new_calls n cross join lateral push.accept(n.app, n.kind, n.call_id, n.payload, n.recipients, n.ring_seconds, n.traceparent) a
    where n.created_at >= statement_timestamp()
  ), made as (
    insert into push.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, ready_lane, kind, environment, platform, user_id, token,
      locale, data, last_reason)
    select d.id, row_number() over (partition by d.id order by d.lane, d.key) - 1, d.created_at, d.created_at, d.deadline_at, d.lane, d.lane,
      case when d.is_call then 0 else 3 end, d.environment, d.platform, d.user_id, d.token, d.locale, d.data, d.fault
    from (
      -- A token that occurs twice in a call gets one delivery.
      select distinct on (t.id, t.lane, t.key) t.* from (
        select c.id, e.ordinal, c.created_at, c.deadline_at, c.is_call, v.token, v.key collate "C" as key, push.entry_user(e.entry) as user_id,
          v.environment, v.platform, v.locale, case when e.entry ? 'data' then push.recipient_data(e.entry) end as data, v.lane,
          v.fault || format(' (call %s)', c.call_id) as fault
        from call c cross join lateral jsonb_array_elements(c.recipients) with ordinality e(entry, ordinal)
        cross join lateral push.routes_of(c.app, c.is_call, c.providers, c.voip_tokens, c.size_faults, e.entry) v
        where not exists (select from call x where x.fault is not null) and not c.is_unwanted and push.is_recipient(e.entry)
          and e.entry -> 'notificationEnabled' is distinct from 'false'
      ) t
      order by t.id, t.lane, t.key, t.ordinal
    ) d
    returning last_reason
  )
  select coalesce((select c.fault from call c where c.fault is not null limit 1), min(m.last_reason)), count(*) into v_fault, v_count from made m;
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault, hint = 'Nothing of this statement was enqueued.',
      schema = 'push', table = 'outbox', column = substring(v_fault from '^[a-z_]+');
  elsif v_count > 0 then
    if exists (select from new_calls n where n.kind = 'missed_call') then
      -- Chooses as push.tell_missed does: the best channel, and in it the first entry or the newest token.
      delete from push.delivery d using (
        select d.tid, row_number() over (partition by n.id, d.user_id order by
          (select array_position(push.channels(), l.provider) from push.lane l where l.id = d.lane),
          (select min(e.ordinal) from jsonb_array_elements(n.recipients) with ordinality e(entry, ordinal)
            where push.is_recipient(e.entry)
              and exists (select from push.entry_tokens(e.entry, false) t where t.token = d.token)),
          (select x.registered_at from push.devices x
            where sha256(x.token::bytea) = sha256(d.token::bytea) and x.app = n.app limit 1) desc, d.token) as place
        from new_calls n join push.apps a on a.app = n.app
        cross join lateral (select d.ctid as tid, d.lane, d.user_id, d.token from push.delivery d where d.outbox_id = n.id offset 0) d
        where n.kind = 'missed_call' and a.missed_calls = 'newest' and n.created_at >= statement_timestamp()
      ) p
      where d.ctid = p.tid and p.place > 1;
    end if;
    perform push.ring_doorbell();
  end if;
  return null;
end
$$;

COMMENT ON FUNCTION push.fan_out() IS 'refuses invalid calls, and those of other tenants; makes a delivery for each device of the others';

CREATE FUNCTION push.fill_call() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $_$
begin
  -- Too long or missing values are cut or replaced so that the row can be inserted; the statement trigger refuses it.
  new.app := left(coalesce(new.app, 'default'), 65);
  new.kind := coalesce(new.kind, 'incoming_call');
  new.payload := coalesce(new.payload, 'null');
  -- The value is not compressed yet, so pg_column_size is its full size.
  new.recipients := case when pg_column_size(new.recipients) > 2097152
    then jsonb_build_object('tooManyBytes', pg_column_size(new.recipients)) else coalesce(new.recipients, 'null') end;
  new.call_id := left(coalesce(new.call_id, push.given_call_id(new.kind, new.payload),
    case when push.is_message(new.kind) then push.new_call_id() else '' end), 129);
  if not push.acts_for_all() and not push.is_own(new.app) then
    -- Does not check whether another tenant has this call: push.fan_out refuses the statement.
    new.call_id := gen_random_uuid();
    new.traceparent := null;
  elsif current_setting('transaction_isolation') not in ('repeatable read', 'serializable') then
    -- The first statement of push.take_call_key, repeated here: calling the function would cost as much again.
    insert into push.call_key (call_id, app) values (new.call_id, new.app) on conflict do nothing;
    if not found and not push.take_call_key(new.call_id, new.app) then
      return null;
    end if;
  else
    begin
      if not push.take_call_key(new.call_id, new.app) then
        return null;
      end if;
    exception when serialization_failure then
      -- Another transaction enqueued it after this one's snapshot was taken.
      return null;
    end;
  end if;
  -- Only a restore of data into an existing schema sets both columns. That call is from the past and stays as it was. The
  -- statement triggers recognize it by created_at.
  if new.deadline_at is not null and new.created_at < statement_timestamp() then
    return new;
  end if;
  -- Of version 00 (w3.org/TR/trace-context). A backend without a trace may give an empty one.
  if new.traceparent !~ '^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' then
    new.traceparent := case when new.traceparent <> '' then '' end;
  end if;
  new.created_at := greatest(clock_timestamp(), statement_timestamp());
  new.answered_by := null;
  if push.is_call(new.kind) then
    new.ring_seconds := coalesce(new.ring_seconds, (select a.ring_seconds from push.apps a where a.app = new.app), 60);
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
$_$;

COMMENT ON FUNCTION push.fill_call() IS 'fills in what the backend leaves out, and skips a call that exists';

CREATE FUNCTION push.find_call(p_call_id text, p_app text, p_user_id text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  v_ids  bigint[];
  v_apps text;
begin
  select array_agg(c.id), string_agg(c.app, ', ' order by c.app) into v_ids, v_apps from push.own_calls(p_call_id, p_app) c;
  if v_ids is null then
    raise exception using errcode = 'no_data_found',
      message = format('call_id: there is no call %s%s', coalesce(left(p_call_id, 128), 'without call_id'),
        ' in app ' || left(p_app, 64)),
      hint = 'It must have been enqueued, in this transaction or in one that is committed.';
  elsif cardinality(v_ids) > 1 then
    raise exception using errcode = 'cardinality_violation',
      message = format('app: call %s exists in several apps (%s); say in which', p_call_id, v_apps);
  elsif p_user_id is not null and not exists (select from push.outbox o where o.id = v_ids[1]
    and (o.recipients @> jsonb_build_array(p_user_id) or o.recipients @> jsonb_build_array(jsonb_build_object('userId', p_user_id))))
  then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('user_id: call %s does not ring this user', left(p_call_id, 128)),
      hint = 'It must be the id that the recipients of the call gave.',
      schema = 'push', table = 'ring_reports', column = 'user_id';
  end if;
  return v_ids[1];
end
$$;

COMMENT ON FUNCTION push.find_call(p_call_id text, p_app text, p_user_id text) IS 'the number of a call in the apps that the caller may act for';

CREATE FUNCTION push.find_calls(p_call_ids text[], p_apps text[]) RETURNS SETOF integer
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select a.ordinal::int - 1 from unnest(p_call_ids, p_apps) with ordinality a(call_id, app, ordinal)
  where exists (select from push.own_calls(a.call_id, a.app))
$$;

COMMENT ON FUNCTION push.find_calls(p_call_ids text[], p_apps text[]) IS 'which of these calls this database has, of the apps that the caller may act for: their positions from 0. p_call_ids, p_apps: columns of push.outbox; an app that is null stands for all';

CREATE FUNCTION push.finish_erasures() RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_begun   constant timestamptz := clock_timestamp();
  v_last    constant timestamptz := v_begun - interval '10 minutes';
  v_ids     bigint[] := array(
    select e.id from push.erasure e
    where e.finished_at is null and e.looked_at < v_begun - interval '10 s' and (e.user_id is not null or e.scanned_at is not null)
      and (e.scanned_at is null or e.found || e.waiting <> '{}' or e.asked_at < v_last)
    order by e.looked_at limit 2 for update skip locked);
  v_erasure push.erasure;
begin
  update push.erasure e set looked_at = v_begun where e.id = v_ids[1] returning e.* into v_erasure;
  if not found then
    return false;
  end if;
  begin
    -- The last look is at all calls that have ever waited.
    v_erasure.rang := array(select unnest(v_erasure.rang) union select unnest(v_erasure.waiting));
    v_erasure.found := v_erasure.found || case when v_erasure.asked_at < v_last then v_erasure.rang else v_erasure.waiting end;
    v_erasure.rang := case when v_erasure.asked_at < v_last then '{}' else v_erasure.rang end;
    v_erasure.waiting := '{}';
    perform push.continue_erasure(v_erasure, v_begun + interval '500 ms');
  exception when query_canceled or others then
    perform push.name_fault(v_erasure.app || '/sha256:' || left(encode(v_erasure.user_digest, 'hex'), 16), sqlstate, null);
  end;
  return cardinality(v_ids) > 1;
end
$$;

COMMENT ON FUNCTION push.finish_erasures() IS 'the job "erase": continues one erasure for about 500 ms. Returns whether another one waits';

CREATE FUNCTION push.finite(p_time timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select case when p_time is not null then least(greatest(p_time, '2000-01-01 00:00:00+00'), '2100-01-01 00:00:00+00') end $$;

COMMENT ON FUNCTION push.finite(p_time timestamp with time zone) IS 'p_time, as a time of which an age can be told: the owner of the tables may write any, infinity included';

CREATE FUNCTION push.first_few(p_names text[]) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select array_to_string(p_names[:5], ', ') || case when cardinality(p_names) > 5 then format(', and %s more', cardinality(p_names) - 5) else '' end
$$;

COMMENT ON FUNCTION push.first_few(p_names text[]) IS 'the first five of a list, and how many more there are; null: the list is null';

CREATE FUNCTION push.follow(p_notes tid[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $_$
declare
  v_all   bigint[] := array(select distinct f.outbox_id from push.follow_ups f where f.ctid = any (p_notes));
  v_calls bigint[] := array(select o.id from push.outbox o where o.id = any (v_all) order by o.id for no key update skip locked);
  v_gone  bigint[] := array(select c.id from unnest(v_all) c(id) where (select true from push.outbox o where o.id = c.id) is null);
  -- Of these, phones must be silent: of all users, or of those who have declined.
  v_quiet bigint[] := array(
    select o.id from push.outbox o where o.id = any (v_calls) and (o.ended_at is not null or o.declined is not null));
  v_declined bigint[] := array(
    select o.id from push.outbox o where o.id = any (v_quiet) and o.ended_at is null);
  v_left  bigint[] := '{}';
  v_noted record;
begin
  if v_gone <> '{}' then
    delete from push.delivery d
      where d.ctid = any (array(select x.ctid from push.delivery x where x.outbox_id = any (v_gone) for update skip locked));
    v_left := array(select distinct d.outbox_id from push.delivery d where d.outbox_id = any (v_gone));
    delete from push.ring_reports r where r.outbox_id = any (v_gone);
    delete from push.escalations e where e.outbox_id = any (v_gone);
    delete from push.unreached u where u.outbox_id = any (v_gone);
  end if;
  -- What a call is decides what follows, not which note came first. So a user whose invite has failed is tried on the next channel before
  -- the last decline ends the call; and the cancels and the missed calls of a call, which belong together, are made together.
  for v_noted in
    select f.why, array_agg(distinct f.outbox_id) as calls from push.follow_ups f
    where f.ctid = any (p_notes) and f.outbox_id = any (v_calls) and f.why in ('failed', 'unheard', 'stuck') group by f.why
  loop
    perform push.next_channels(v_noted.calls, v_noted.why);
    perform push.ring_unreached(v_noted.calls) where v_noted.why = 'failed';
  end loop;
  if v_declined <> '{}' then
    perform push.next_channels(v_declined, 'failed');
    -- A call ends when every user whose phone was rung has declined. If no phone was rung, or a user is being erased, all recipients count:
    -- two of them may share a phone. A phone whose invite the provider refused was not rung.
    with rung as materialized (
      select p.id, array_agg(distinct p.user_id) as users from push.pushes_of(v_declined) p
      where p.kind = 0 and (p.outcome is distinct from 4 or p.may_ring) and p.user_id <> '[erased]' group by p.id
    )
    update push.outbox o set state = 'ended', end_reason = (
        -- What all of them have said.
        select case when min(s.said ->> 'reason') = max(s.said ->> 'reason') then min(s.said ->> 'reason') else 'declined' end
        from jsonb_each(o.declined) s(user_id, said))
    where o.id = any (v_declined) and o.ended_at is null
      and o.declined ?& coalesce((select r.users from rung r where r.id = o.id), '{}')
      and (o.id in (select r.id from rung r) and not o.declined @? '$.*.erases' or o.declined ?& array(
        select push.entry_user(e) from jsonb_array_elements(o.recipients) e where push.is_recipient(e)));
  end if;
  if v_quiet <> '{}' then
    v_left := v_left || push.void_unsent(v_quiet);
    v_quiet := array(select c.id from unnest(v_quiet) c(id) where c.id <> all (v_left));
    perform push.cancel_rings(v_quiet);
    perform push.tell_missed(v_quiet);
    delete from push.unreached u where u.outbox_id = any (v_quiet) and u.outbox_id <> all (v_declined);
    perform push.tell_untold(array(
      select distinct f.outbox_id from push.follow_ups f where f.ctid = any (p_notes) and f.why = 'untold' and f.outbox_id = any (v_quiet)));
  end if;
  delete from push.follow_ups f
    where f.ctid = any (p_notes) and (f.outbox_id = any (v_calls) or f.outbox_id = any (v_gone)) and f.outbox_id <> all (v_left);
  -- A claim is taking an invite of the call at this moment, or a backend has the call's row locked. The longer it does, the less often it
  -- is looked at.
  update push.follow_ups f
    set due_at = clock_timestamp() + least(greatest(interval '100 ms', (clock_timestamp() - f.noted_at) / 2), interval '1 s')
    where f.ctid = any (p_notes);
end
$_$;

COMMENT ON FUNCTION push.follow(p_notes tid[]) IS 'makes of the calls of these notes what there should be, and deletes the notes. p_notes: where they are stored';

CREATE FUNCTION push.follow_up(p_urgent boolean DEFAULT false, p_max integer DEFAULT 200, p_within interval DEFAULT '00:00:10'::interval) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  -- The calls of a run stay locked until its commit.
  v_until timestamptz := clock_timestamp() + interval '250 ms';
  v_since timestamptz := statement_timestamp() - p_within;
  v_bite  tid[];
  v_count int := 0;
begin
  -- Calls from before a restore neither ring nor are announced (push.put_away).
  if push.restored_at() is not null then
    return 0;
  end if;
  for v_bite in
    with newest as materialized (
      select f.ctid as tid, f.outbox_id, f.due_at from push.follow_ups f
      where f.is_urgent = p_urgent and f.due_at > v_since and f.due_at <= statement_timestamp() and f.tries = 0
      order by f.due_at desc limit p_max / 2 for update skip locked
    ), oldest as materialized (
      select f.ctid as tid, f.outbox_id, f.due_at from push.follow_ups f
      where f.is_urgent = p_urgent and f.due_at > v_since and f.due_at <= statement_timestamp() and f.tries = 0
        and f.ctid not in (select n.tid from newest n)
      order by f.due_at limit p_max - p_max / 2 for update skip locked
    ), failed as materialized (
      select f.ctid as tid, f.outbox_id, f.tries, f.due_at from push.follow_ups f
      where p_urgent is null and f.tries <> 0 and f.due_at <= statement_timestamp() order by f.due_at limit p_max for update skip locked
    ), noted as (
      -- The oldest and the newest in turns: who ends thousands of calls at once does not make the phones of others wait.
      select n.tid, n.outbox_id, least(row_number() over (order by n.due_at), row_number() over (order by n.due_at desc)) as turn
      from (select * from newest union all select * from oldest) n
      union all
      select f.tid, f.outbox_id, row_number() over (order by f.tries, f.due_at) from failed f
    )
    select array_agg(c.tid)
    from (
      select n.tid, case when p_urgent is null then n.place when n.place <= 28 then floor(log(2.0, (n.place + 3) / 4.0))
        else 3 + (n.place - 29) / 32 end as bite
      from (
        select n.tid, dense_rank() over (order by n.first, n.outbox_id) as place
        from (select n.*, min(n.turn) over (partition by n.outbox_id) as first from noted n) n
      ) n
    ) c group by c.bite order by c.bite
  loop
    if v_count > 0 and clock_timestamp() > v_until then
      return p_max;
    end if;
    v_count := v_count + cardinality(v_bite);
    begin
      perform push.follow(v_bite);
    exception when query_canceled or others then
      perform push.put_off(v_bite, sqlstate);
      exit when sqlstate = '57014';
    end;
  end loop;
  return v_count;
end
$$;

COMMENT ON FUNCTION push.follow_up(p_urgent boolean, p_max integer, p_within interval) IS 'does what follows from ends, declines, deletions and failed pushes, for at most p_max notes. Returns how many it took, or p_max if there was no time for the rest. p_urgent: notes that a ring may depend on, or the others; null: call by call, those that have failed, or that were among others when they took too long; p_within: leaves out notes that were due longer ago, unless p_urgent is null. While a transaction holds back vacuum, a run without this limit reads the dead entries of all earlier notes; run it so from time to time';

CREATE FUNCTION push.forget(p_gateway integer, p_claim integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$ select f.given from push.forget_in(p_gateway, p_claim, 0, 2147483647) f $$;

COMMENT ON FUNCTION push.forget(p_gateway integer, p_claim integer) IS 'for gateways of release 0.1.0: push.forget_in of the whole table. p_gateway, p_claim: as there. Returns how many deliveries were returned';

CREATE FUNCTION push.forget_in(p_gateway integer, p_claim integer, p_from_page bigint DEFAULT 0, p_pages integer DEFAULT 10000, OUT given bigint, OUT next_page bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
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

COMMENT ON FUNCTION push.forget_in(p_gateway integer, p_claim integer, p_from_page bigint, p_pages integer, OUT given bigint, OUT next_page bigint) IS 'the answer to a claim was lost. If the claim has not begun, it will take nothing; if it is running, this waits for it. What it took in one part of the table becomes ready again, without counting the attempt. Claims with lower numbers are barred, too, but what they took is left alone. p_gateway: what push.register_gateway returned; p_claim: the claim''s number; p_from_page: 0, then next_page of the previous result; p_pages: number of pages to read. given: how many deliveries were returned; next_page: null at the end. Calling it again is harmless';

CREATE FUNCTION push.free_claims() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'on'
    SET enable_indexscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET max_parallel_workers_per_gather TO '0'
    AS $$
declare
  v_begun    timestamptz := clock_timestamp();
  -- Later than in a minute: the clock was set back.
  v_alone    int[] := array(
    select g.id from push.gateways g
    where g.free_due_at not between v_begun and v_begun + interval '1 minute' order by g.id for update skip locked);
  v_ended    int[] := v_alone || array(
    select g.id from push.gateways g
    where g.free_due_at not between v_begun and v_begun + interval '1 minute' and g.id <> all (v_alone)
    order by g.id for no key update skip locked);
  v_rings    tid[];
  v_rest     tid[];
  v_suspects int[];
  v_is_rest  boolean;
  v_piece    tid[];
  v_read_at  timestamptz;
  v_found    bigint := 0;
begin
  if v_ended = '{}' then
    return 0;
  end if;
  -- In any order, so that those that cannot be changed do not always come before others.
  select coalesce(array_agg(d.ctid order by random()) filter (where d.kind < 2), '{}'),
      coalesce(array_agg(d.ctid order by random()) filter (where d.kind >= 2), '{}'), array_agg(distinct d.owner) filter (where d.crashes >= 2)
    into v_rings, v_rest, v_suspects
    from push.delivery d where d.state = 1 and d.owner = any (v_ended);
  v_read_at := clock_timestamp();
  update push.gateways g set had_suspect = true where g.id = any (v_suspects) and not g.had_suspect;
  for v_is_rest, v_piece in
    select p.is_rest, array_agg(p.place) from (
      select false as is_rest, (r.i - 1) / 100 as piece, r.place from unnest(v_rings) with ordinality r(place, i)
      union all select true, (r.i - 1) / 100, r.place from unnest(v_rest) with ordinality r(place, i)) p
    group by p.is_rest, p.piece order by p.is_rest, p.piece
  loop
    exit when v_is_rest and v_found > 0;
    begin
      v_found := v_found + push.free_rows(v_piece, v_ended);
    exception when lock_not_available then
      exit;  -- somebody has locked a table
    end;
    exit when clock_timestamp() > v_read_at + interval '500 ms';
  end loop;
  -- What is left is looked for again at once if some of it was freed, and else later: at most a tenth of the time is spent on it.
  update push.gateways g
    set free_due_at = case
      when v_found < cardinality(v_rings || v_rest) and v_found > 0 then clock_timestamp()
      when v_found < cardinality(v_rings || v_rest) or g.id <> all (v_alone)
        then clock_timestamp() + greatest(interval '1 s', 10 * (clock_timestamp() - v_begun)) end
    where g.id = any (v_ended);
  return v_found;
end
$$;

COMMENT ON FUNCTION push.free_claims() IS 'the job "free": what gateways held that have ended becomes ready, or ends. Returns how many';

CREATE FUNCTION push.free_rows(p_places tid[], p_owners integer[], OUT rows_found bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  c_suspect  constant int := 2;
  c_hopeless constant int := 3;
  v_gone tid[];
begin
  with lost as materialized (
    select d.ctid as tid, d.owner, d.kind, d.lane, d.crashes, d.accepted_at from push.delivery d
    where d.ctid = any (p_places) and d.state = 1 and d.owner = any (p_owners)
    for no key update skip locked
  ), judged as materialized (
    -- A gateway that lives has disowned its rows.
    select l.tid, l.crashes + (not g.alive and g.ended_reason = 'silent'
        and (l.crashes >= c_suspect or not g.had_suspect))::int as deaths,
      -- Accepted from another gateway (push.settle); or visible to people, and it is unknown whether it was sent.
      l.accepted_at is not null or (g.alive or g.ended_reason = 'silent') and l.kind in (2, 3) and not coalesce((
        select a.at_least_once from push.lane x join push.apps a on a.app = x.app where x.id = l.lane), false) as is_over
    from lost l join push.gateways g on g.id = l.owner
  ), freed as (
    update push.delivery d
    set state = 0, owner = null, attempt = d.attempt - d.found_ended::int, found_ended = false, crashes = j.deaths,
      ready_lane = case when j.deaths < c_suspect then d.lane end, due_at = clock_timestamp()
    from judged j
    where d.ctid = j.tid and not j.is_over and j.deaths < c_hopeless
    returning 1
  )
  select (select count(*) from freed), array(select j.tid from judged j where j.is_over or j.deaths >= c_hopeless) into rows_found, v_gone;
  -- What history refuses stays claimed, and is tried again by a later run. Invites do not wait for it.
  if v_gone <> '{}' then
    begin
      rows_found := rows_found + push.bury(v_gone, 4, 'GatewayCrashed');
    exception when lock_not_available then null;
    end;
  end if;
  perform push.ring_doorbell() where rows_found > 0;
exception when others or assert_failure then
  -- One that cannot be changed stays claimed, too, and keeps no other from being freed (push.change_rows).
  if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
  if cardinality(p_places) > 1 then
    rows_found := push.free_rows(p_places[:cardinality(p_places) / 2], p_owners)
      + push.free_rows(p_places[cardinality(p_places) / 2 + 1:], p_owners);
  else
    rows_found := 0;
    perform push.name_fault((select 'push.outbox.id ' || d.outbox_id from push.delivery d where d.ctid = p_places[1]), sqlstate);
  end if;
end
$$;

COMMENT ON FUNCTION push.free_rows(p_places tid[], p_owners integer[], OUT rows_found bigint) IS 'makes claimed deliveries ready again, or ends them; returns how many';

CREATE FUNCTION push.give_up_receipts(p_app text) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
  -- Searches by due_at, which has an index and is never later than give_up_at. Batches that nobody looks up any more soon
  -- have the earliest due times.
  with due as materialized (
    select r.ctid as tid, r.give_up_at
    from push.receipt_batch r
    where r.app = p_app and r.due_at <= statement_timestamp()
    order by r.due_at
    limit 1000
    for update skip locked
  ), gone as (
    delete from push.receipt_batch r
    where r.ctid = any (array(select d.tid from due d where d.give_up_at <= statement_timestamp()))
    returning cardinality(r.ticket) as count
  )
  select coalesce(sum(g.count), 0) from gone g
$$;

COMMENT ON FUNCTION push.give_up_receipts(p_app text) IS 'deletes tickets whose receipts Expo no longer has, among the 1,000 batches that are due first. Returns how many tickets were deleted; their results stay unknown. p_app: the app';

CREATE FUNCTION push.given_call_id(p_kind text, p_payload jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case when push.is_message(p_kind) then coalesce(p_payload ->> 'callId', p_payload ->> 'messageId')
    else p_payload ->> 'callId' end
$$;

COMMENT ON FUNCTION push.given_call_id(p_kind text, p_payload jsonb) IS 'the call_id in a payload; null: none';

CREATE FUNCTION push.good_api_keys(p_max integer) RETURNS TABLE(id integer, app text, scopes text[], hash bytea, addresses cidr[], state text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select k.id, k.app, k.scopes, k.hash, k.addresses, 'good'
  from push.api_keys k
  where k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
  order by greatest(k.created_at, k.last_used_at) desc
  limit p_max
$$;

COMMENT ON FUNCTION push.good_api_keys(p_max integer) IS 'the keys to the HTTP API that are neither revoked nor expired, with the columns of push.look_up_api_key; the most recently used or created come first. p_max: maximum number of rows';

CREATE FUNCTION push.grant_app(role text, app text) RETURNS TABLE(changed boolean, message text)
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  v_role  oid := (select r.oid from pg_roles r where r.rolname = grant_app.role);
  v_moved boolean := false;
  -- What is wrong, and what to do.
  v_fault text[] := case
    when v_role is null then array[format('role: there is no role %s', left(grant_app.role, 64)), 'Make it first: create role ... login.']
    when push.app_fault(grant_app.app) is not null then array[push.app_fault(grant_app.app), 'The gateways'' configuration names them.']
    when to_regrole('push_tenant') is null
      then array['role push_tenant is missing', 'Have it created with NOLOGIN, then: select push.grant_roles();']
    when grant_app.role in ('push_tenant', 'push_enqueuer', 'push_ops', 'push_keys', 'push_gateway')
      then array[format('role: %s is a role of push-gateway itself', grant_app.role), 'Name a login, or a group of your own.']
    when has_schema_privilege(v_role, 'push', 'create') or pg_has_role(v_role, to_regrole('push_gateway'), 'usage')
      then array[format('role: %s acts for every app: it is a superuser or the schema''s owner, or has push_gateway', grant_app.role),
        'Give the backend a role of its own.']
    when pg_has_role(v_role, to_regrole('push_ops'), 'member') or pg_has_role(v_role, to_regrole('push_keys'), 'member')
      then array[format('role: %s has push_ops or push_keys, which act for every app', grant_app.role), 'Give the backend a role of its own.']
    when (select r.rolcreaterole from pg_roles r where r.oid = v_role)
      then array[format('role: %s may create roles, and so give itself the rights of others', grant_app.role),
        format('alter role %I nocreaterole;', grant_app.role)]
  end;
begin
  if v_fault is not null then
    raise exception using message = v_fault[1], hint = v_fault[2],
      errcode = case when v_role is null or to_regrole('push_tenant') is null then 'undefined_object' else 'invalid_parameter_value' end;
  end if;
  if exists (select from pg_auth_members m where m.member = v_role and m.roleid = to_regrole('push_enqueuer')) then
    execute format('revoke push_enqueuer from %I', grant_app.role);
    v_moved := true;
  end if;
  if pg_has_role(v_role, to_regrole('push_enqueuer'), 'member') then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('role: %s has push_enqueuer, which acts for every app', grant_app.role),
      hint = format('As the role that granted it: revoke push_enqueuer from %I, or from the group that gives it push_enqueuer.', grant_app.role);
  end if;
  if not pg_has_role(v_role, to_regrole('push_tenant'), 'usage') then
    execute format('grant push_tenant to %I', grant_app.role);
    v_moved := true;
  end if;
  insert into push.app_grant (role, app) values (grant_app.role, grant_app.app) on conflict do nothing;
  changed := found or v_moved;
  -- Calls of the app are accepted from now on, and ring once a gateway serves the app.
  perform push.register_lane(grant_app.app, p) from unnest('{apns,fcm,expo}'::text[]) p;
  message := format('granted to %s: %s', grant_app.role,
    (select string_agg(g.app, ', ' order by g.app) from push.app_grant g where g.role = grant_app.role));
  insert into push.audit (action, target, detail) values ('grant_app', grant_app.app || '/' || grant_app.role,
    jsonb_build_object('changed', changed));
  return next;
end
$$;

COMMENT ON FUNCTION push.grant_app(role text, app text) IS 'lets a backend''s role, and its members, act for this app. They may act only for apps that were granted: the role gets push_tenant and loses push_enqueuer. role: a database role; app: name of the app. Returns whether this changed anything, and a sentence that says what was done. Running it twice is harmless. For the owner of the schema';

CREATE FUNCTION push.grant_roles() RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $_$
declare
  c_roles constant jsonb := jsonb_build_object(
    'push_enqueuer', 'backends: enqueue, answer, decline and end calls, register devices, read dead tokens (schema push)',
    'push_tenant', 'backends of some apps only, see push.grant_app (schema push)',
    'push_ops', 'operators: read everything, tokens masked, and intervene (schema push)',
    'push_keys', 'those who manage keys of the HTTP API: create, list and revoke them (schema push)',
    'push_gateway', 'the push-gateway service (schema push)');
  v_role    text;
  v_right   text;
  v_missing text[];
begin
  for v_role in select r from jsonb_object_keys(c_roles) r where to_regrole(r) is null loop
    begin
      execute format('create role %1$I nologin; comment on role %1$I is %2$L', v_role, c_roles ->> v_role);
    exception when duplicate_object or unique_violation or insufficient_privilege then null;
    end;
  end loop;
  v_missing := array(select r from jsonb_object_keys(c_roles) r where to_regrole(r) is null);
  for v_role, v_right in select r.role, r."right" from push.role_rights r where r.role <> all (v_missing) loop
    execute format('grant %s to %I', v_right, v_role);
  end loop;
  if v_missing <> '{}' then
    raise notice 'roles are missing: %; % may not create roles', array_to_string(v_missing, ', '), current_user
      using hint = 'Have them created with NOLOGIN, then: select push.grant_roles();';
    return 'missing: ' || array_to_string(v_missing, ', ');
  end if;
  -- The service shows what operators see, and pauses lanes for users who log in with its ops key.
  if not pg_has_role('push_gateway', 'push_ops', 'member') then
    begin
      grant push_ops to push_gateway;
    exception
      when unique_violation then null;  -- a migration of another database did the same
      when insufficient_privilege then
        raise notice '% may not grant push_ops to push_gateway: the dashboard stays empty', current_user
          using hint = 'As an administrator: grant push_ops to push_gateway;';
        return 'missing: grant push_ops to push_gateway';
    end;
  end if;
  return 'push_enqueuer, push_tenant, push_ops, push_keys and push_gateway have their rights';
end
$_$;

COMMENT ON FUNCTION push.grant_roles() IS 'creates the roles push_enqueuer, push_tenant, push_ops, push_keys and push_gateway if they are missing and the caller may create roles, gives them their rights in this database, and gives push_gateway the rights of push_ops. Returns a sentence that says what was done. Running it twice is harmless. For the owner of the schema';

CREATE FUNCTION push.hand_over(p_call push.outbox, p_user_id text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
begin
  -- What a gateway is about to settle is in history afterwards.
  perform from push.delivery d where d.outbox_id = p_call.id and d.user_id = p_user_id and d.kind = 0 for update;
  with other as materialized (
    select distinct on (t.provider, k.key) t.provider, k.key, t.token, n.name, t.locale, push.recipient_data(e.entry) as data
    from jsonb_array_elements(p_call.recipients) with ordinality e(entry, i)
      cross join lateral (select push.entry_user(e.entry)) n(name)
      cross join lateral (
        select k.provider, k.token, push.recipient_locale(e.entry) as locale
        from unnest(array[true, false]) c(is_call) cross join lateral push.entry_tokens(e.entry, c.is_call) k
        union all
        select d.provider, d.token, d.locale from push.devices d
        where d.user_id = n.name and d.app = p_call.app and d.enabled and d.invalidated_at is null) t
      cross join lateral (select push.token_key(t.provider, t.token)) k(key)
    where push.is_recipient(e.entry) and n.name <> p_user_id and not coalesce(p_call.declined ? n.name, false)
      and e.entry -> 'notificationEnabled' is distinct from 'false'
    order by t.provider, k.key, e.i
  ), told as (
    -- While the call rings, its cancels go to the user that history names.
    update push.history h set user_id = x.name, locale = x.locale, data = x.data from other x
      where p_call.ended_at is null and h.outbox_id = p_call.id and h.finished_at >= p_call.created_at - interval '1 hour'
        and h.user_id = p_user_id and h.kind = 0
        and coalesce(push.token_key(x.provider, h.token) = x.key, h.token_hash = hashtextextended(x.token, 0))
  ), gone as (
    delete from push.delivery d using other x
      where d.outbox_id = p_call.id and d.user_id = p_user_id and push.token_key(x.provider, d.token) = x.key
        and (d.kind = 0 and p_call.ended_at is null or d.kind in (2, 3) and d.state <> 1)
      returning d.*, x.name, x.locale as said, x.data as given
  )
  insert into push.delivery (outbox_id, n, kind, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
  select g.outbox_id, (select max(p.last_n) from push.pushes_of(array[p_call.id]) p) + row_number() over (order by g.n), g.kind,
    g.deadline_at, g.lane, g.lane, g.environment, g.platform, g.name, g.token, g.said, g.given
  from gone g;
  perform push.ring_doorbell() where found;
end
$$;

COMMENT ON FUNCTION push.hand_over(p_call push.outbox, p_user_id text) IS 'hands what is owed to a user, on tokens that others have too, over to them';

CREATE FUNCTION push.has_long_number(p_value jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
  select exists (select from jsonb_path_query(p_value, 'strict $.** ? (@.type() == "number")') n
    where abs(n::numeric) >= 1e30 or scale(n::numeric) > 30 and (abs(n::numeric) < 1e-30 or scale(n::numeric) > 60))
$_$;

COMMENT ON FUNCTION push.has_long_number(p_value jsonb) IS 'whether a JSON value has a number whose text is far longer than its JSON';

CREATE FUNCTION push.has_token_member(p_entry jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select p_entry ?| '{voipPushToken,apnsToken,fcmToken,pushToken,webPushSubscription}' $$;

COMMENT ON FUNCTION push.has_token_member(p_entry jsonb) IS 'whether an entry of recipients has a token: it is one device; others name a user';

CREATE FUNCTION push.health_of_calls() RETURNS TABLE(item text, value text, state text, hint text)
    LANGUAGE sql STABLE
    AS $$
  select 'claims', case when r.at is null then 'open' else format('closed: restored %s ago', date_trunc('second', now() - r.at)) end,
      case when r.at is null then 'ok' when r.at > now() - interval '10 s' then 'warn' else 'bad' end,
      'In a restored database nothing is sent until a replica has ended what was owed when the dump was made: a few seconds.'
    from push.restored_at() r(at)
  union all
  select 'oldest ready invite', coalesce(date_trunc('milliseconds', o.age)::text, 'none'),
      case when o.age > interval '5 s' then 'bad' when o.age > interval '1 s' then 'warn' else 'ok' end,
      'Calls ring late: push.lanes shows which lane is full or has no capacity, push.stuck which deliveries wait.'
    from (select push.oldest_ringing() as age) o
  union all
  select 'ends that failed',
      coalesce(push.first_few(array_agg(format('%s/%s', o.app, o.call_id) order by e.noted_at, e.outbox_id)), 'none'),
      case when count(*) = 0 then 'ok' else 'bad' end,
      'What follows is not done yet: missed calls and cancels, or, while a call rings, the next channels of its users. Each is tried again for '
      '4 hours: push.timeline says when, the log of Postgres what failed. See docs/operations/ends-that-failed.md.'
    from (select x.outbox_id, min(x.noted_at) as noted_at from push.follow_ups x where x.tries > 0 group by x.outbox_id) e
    -- A call that was deleted has nobody to tell. Its row is removed at its next try.
    cross join lateral (select b.app, b.call_id from push.outbox b where b.id = e.outbox_id offset 0) o
  union all
  select 'put aside', coalesce(push.first_few(array_agg(format('%s (SQLSTATE %s)', a.target, a.detail ->> 'sqlstate') order by a.at desc)),
        'none'), case when count(*) = 0 then 'ok' else 'warn' end,
      'In the last day, pushes of these calls could not be read and are dead (Unreadable), or calls, or users to be erased, cannot be changed. '
      'XX001 or XX002: the table or an index is damaged, restore a backup. 40…, 53…, 55P03 or 57014, of a user: the erasure was in the way of '
      'others, or too slow; it is tried again. Others: a value written by hand, or somebody''s trigger.'
    from push.audit a where a.action = 'put_aside' and a.at > now() - interval '1 day'
  union all
  -- Calls from before a restore are left as they are.
  select 'calls past their deadline', case when count(*) = 0 then 'none' else format('%s, the oldest for %s',
        count(*) || case when count(*) = 1000 then ' or more' else '' end, date_trunc('second', max(c.age))) end,
      case when count(*) = 0 then 'ok' else 'bad' end,
      'They are not marked as missed: a replica runs the job miss (push.job). If housekeeping is in time, they cannot be changed (put aside), '
      'or a transaction has locked them (oldest transaction).'
    from (
      select now() - push.finite(o.deadline_at) as age from push.outbox o
      where o.state = 'ringing' and o.deadline_at < now() - interval '7 s' and push.restored_at() is null
      order by o.deadline_at limit 1000
    ) c
  union all
  select 'partitions ahead', p.count || ' days', case when p.count >= 7 then 'ok' when p.count >= 1 then 'warn' else 'bad' end,
      'A replica makes them every hour. What fails is in the log of Postgres.'
    -- Up to the first that is missing.
    from (select coalesce(min(d), 61) - 1 as count from generate_series(1, 60) d where not exists (select from pg_class c
      where c.oid = to_regclass('push.history_' || to_char(now() at time zone 'UTC' + d * interval '1 day', 'YYYYMMDD')) and c.relispartition)) p
  union all
  select 'history without a partition', case when h.some then 'some' else 'none' end, case when h.some then 'bad' else 'ok' end,
      'Rows of push.history_default keep their day''s partition from being made. The owner of the schema moves them: '
      'docs/operations/history-without-a-partition.md.'
    from (select exists (select from push.history_default) as some) h
  union all
  select 'receipts overdue', r.count::text || case when r.count = 1000 then ' or more' else '' end,
      case when r.count = 0 then 'ok' when r.count < 1000 then 'warn' else 'bad' end,
      'Expo''s receipts are looked up 15 minutes after sending and lost after 24 hours.'
    from (select least(coalesce(sum(cardinality(r.ticket)), 0), 1000) as count from (select r.ticket from push.receipt_batch r
      where r.due_at < now() - interval '5 minutes' or r.attempts > 3 limit 1000) r) r
  union all
  select 'quarantined tokens', q.count::text, case when q.count = 0 then 'ok' else 'warn' end,
      'A provider reported many tokens as dead at once: push.quarantined_devices shows which provider. push.resume_invalidation ends the hold, '
      'and releases 10,000 tokens at a time: repeat it until none is left.'
    from (select count(*) from push.quarantined_tokens) q
$$;

COMMENT ON FUNCTION push.health_of_calls() IS 'checks of calls, their history, receipts and tokens; for push.health';

CREATE FUNCTION push.health_of_replicas() RETURNS TABLE(item text, value text, state text, hint text)
    LANGUAGE sql STABLE
    AS $$
  with living as materialized (
    select g.id, g.name, g.started_at from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s'
  ), trouble as materialized (
    -- The lanes that send nothing. Reads one index entry for each lane that is paused or half-open, or that no replica serves.
    select l.app, l.channel,
      case when l.paused and s.lane is null and exists (select from living) then 'paused, and no replica serves it'
        when l.paused then 'paused' when s.lane is null then 'no replica serves it' when s.circuit = 'open' then 'circuit open'
        when t.until > now() then format('throttled for %s s', ceil(extract(epoch from t.until - now())))
        when s.capacity = 0 then 'no connection' when t.none_sends then 'trying again' else push.first_few(t.idle) end as what,
      case when l.paused or t.until > now() and s.circuit <> 'open' then is_waiting else coalesce(t.none_sends, true) end as is_bad
    from push.lane l
    left join push.lane_conditions() s on s.lane = l.id
    -- A lane that was asked for a pause, or is half-open, sends nothing once each of its replicas waits. What a half-open one claims is a try.
    -- A replica that has just started is still connecting.
    left join (
      select r.lane, min(coalesce(push.finite(r.throttled_until), '-infinity')) as until,
        bool_and(r.circuit <> 'closed' or r.capacity = 0) as none_sends,
        array_agg(format('%s at replica %s', case when r.capacity = 0 then 'no connection' when r.circuit = 'open' then 'circuit open'
          else 'trying again' end, g.name) order by g.id)
          filter (where (r.circuit <> 'closed' or r.capacity = 0) and g.started_at < now() - interval '5 s') as idle
      from push.lane_status r join living g on g.id = r.gateway group by r.lane
    ) t on t.lane = l.id
    cross join lateral (
      select (l.paused or s.lane is null or t.until > now() or t.none_sends) and exists (select from push.delivery d
        where d.ready_lane = l.id and d.deadline_at > statement_timestamp() and (d.state = 0 or t.none_sends)) as is_waiting
      offset 0
    ) d
    where l.paused or exists (select from living) and s.lane is null and is_waiting or s.circuit = 'open' or t.until > now()
      or s.capacity = 0 or case when t.none_sends then is_waiting else t.idle is not null end
  )
  select 'replicas alive', g.count::text, case when g.count = 0 then 'bad' else 'ok' end,
      'Nothing is sent without one: push.replicas says how the last ones ended.' from (select count(*) from living) g
  union all
  select 'lanes',
      coalesce(push.first_few(array_agg(format('%s/%s: %s', t.app, t.channel, t.what) order by not t.is_bad, t.app, t.channel)),
        case when exists (select from living) then 'all send' else 'wait for a replica' end),
      case when bool_or(t.is_bad) then 'bad' when count(*) > 0 then 'warn' else 'ok' end,
      case when count(*) = 0 then 'A lane that sends nothing is named here.' else concat_ws(' ',
        case when bool_or(t.what not like '% at replica %') then 'These send nothing, or only tries.' end,
        case when bool_or(t.what ~ ' at replica ') then 'Where a replica is named, the others send: docs/operations/requests-go-unanswered.md.' end,
        case when bool_or(t.what like 'paused%') then 'push.resume_lane ends a pause (push.audit says whose).' end,
        case when bool_or(t.what like '%serves it') then 'The configuration of a replica needs the app and provider that none serves.' end,
        case when bool_or(t.what like 'throttled%') then 'A throttled lane sends again by itself.' end,
        case when bool_or(t.what in ('circuit open', 'no connection', 'trying again')) then 'push.failures and the replicas'' logs say why a '
          'provider fails: docs/operations/a-provider-is-down.md, or requests-go-unanswered.md if it does not answer.' end) end
    from trouble t
  union all
  select 'housekeeping',
      coalesce('no row in push.job: ' || string_agg(j.name, ', ') filter (where j.every is null),
        (array_agg(format('%s overdue for %s', j.name, date_trunc('second', j.overdue)) order by j.state, j.overdue desc))[1],
        case when exists (select from living) then 'in time' else 'waits for a replica' end),
      coalesce(min(j.state), 'ok'),
      case when bool_and(j.every is not null) is not false
        then 'push.job says what is due, and when it was last done; any replica takes it. What fails is in the replicas'' logs.'
        else 'A job without a row never runs. The owner of the schema adds it: docs/operations/a-job-has-no-row.md.' end
    from push.overdue_jobs j
$$;

COMMENT ON FUNCTION push.health_of_replicas() IS 'checks of the replicas and of what they send; for push.health';

CREATE FUNCTION push.health_of_server() RETURNS TABLE(item text, value text, state text, hint text)
    LANGUAGE sql STABLE
    AS $$
  (select 'dead rows of push.' || t.relname, t.n_dead_tup::text || ' beside ' || t.n_live_tup,
      case when t.n_dead_tup <= 200000 + t.n_live_tup then 'ok' when t.n_dead_tup <= 2000000 + t.n_live_tup then 'warn' else 'bad' end,
      'A long transaction keeps vacuum from removing them: see "oldest transaction".'
    from pg_stat_all_tables t
    where t.schemaname = 'push' and t.relname in ('delivery', 'outbox', 'lane_status', 'gateways')
    order by t.relname)
  union all
  select 'oldest transaction',
      case when t.pid is null then 'none' else format('%s (pid %s)', date_trunc('milliseconds', t.age), t.pid) end
        || case when r.sees_all then '' else ', of this role only' end,
      case when t.age > interval '5 minutes' then 'bad' when t.age > interval '30 s' then 'warn' else 'ok' end,
      case when r.sees_all then 'End it with: select pg_terminate_backend(pid), as a role in pg_signal_backend, or a superuser.'
        else format('To see those of other roles, an administrator calls: grant pg_read_all_stats to %I.', current_user) end
    from (select pg_has_role(current_user, 'pg_read_all_stats', 'usage') as sees_all) r
    left join (
      select greatest(now() - a.xact_start, '0') as age, a.pid from pg_stat_activity a
      where a.xact_start is not null and a.backend_type = 'client backend' and a.pid <> pg_backend_pid() and a.datname = current_database()
      order by a.xact_start limit 1
    ) t on true
  union all
  select 'prepared transactions', p.count::text, case when p.count = 0 then 'ok' else 'warn' end,
      'Forgotten ones hold back vacuum for ever: pg_prepared_xacts shows them; their owner or a superuser ends them (commit or rollback prepared).'
    from (select count(*) from pg_prepared_xacts x where x.database = current_database()) p
  union all
  select 'replication slots',
      coalesce(push.first_few(array_agg(format('%s holds back vacuum by %s transactions', s.slot_name, age(s.xmin)) order by age(s.xmin) desc)),
        'none holds back vacuum'),
      case when coalesce(max(age(s.xmin)), 0) < 1000000 and bool_and(s.active) is not false then 'ok'
        when max(age(s.xmin)) < 10000000 then 'warn' else 'bad' end,
      'A standby is gone, or runs a long query. If it does not come back, a superuser calls: select pg_drop_replication_slot(NAME).'
    from pg_replication_slots s where s.xmin is not null
  union all
  -- Who may not see the state of standbys sees null. A list without a number requires one.
  select 'synchronous standby', case when s.required = 0 then 'none is required'
        else format('%s connected, %s required', s.connected, s.required) end,
      case when s.connected >= s.required then 'ok' else 'bad' end,
      'Commits of backends and of the HTTP API wait for it. Start it, or an administrator changes synchronous_standby_names.'
    from (
      select case when n.names = '' then 0
          else coalesce(substring(n.names from '^[[:space:]]*(?:[[:alpha:]]+[[:space:]]+)?([0-9]+)[[:space:]]*[(]')::int, 1) end as required,
        (select count(*) from pg_stat_replication r where coalesce(r.sync_state, 'sync') in ('sync', 'quorum')) as connected
      from (select current_setting('synchronous_standby_names') as names) n
    ) s
  union all
  select 'transaction ids used', round(d.age / 21474836.47, 1) || ' %',
      case when d.age < 500000000 then 'ok' when d.age < 1200000000 then 'warn' else 'bad' end,
      'At 100 % the database stops. After ending what holds vacuum back, a superuser calls vacuum (freeze).'
    from (select age(d.datfrozenxid)::numeric as age from pg_database d where d.datname = current_database()) d
  union all
  select 'notify queue', round(100 * q.usage::numeric, 2) || ' %',
      case when q.usage < 0.0001 then 'ok' when q.usage < 0.5 then 'warn' else 'bad' end,
      'Gateways are not notified and poll instead. A session listens and does not read: look for "idle in transaction" in pg_stat_activity.'
    from (select pg_notification_queue_usage() as usage) q
  union all
  select 'lock table', round(100 * l.used::numeric) || ' %' || case when l.used < 0.25 then '' else (
        select format(', most by pid %s (%s)', k.pid, coalesce(a.usename, 'unknown')) from pg_locks k left join pg_stat_activity a using (pid)
        where k.pid is not null group by k.pid, a.usename order by count(*) desc limit 1) end,
      case when l.used < 0.25 then 'ok' when l.used < 0.5 then 'warn' else 'bad' end,
      'When it is full, calls are refused and nothing is sent (53200). End that session: select pg_terminate_backend(pid), as a role '
      'in pg_signal_backend, or a superuser.'
    from (select push.lock_table_used() as used) l
  union all
  select 'other logins', coalesce(push.first_few(array_agg(r.rolname::text order by r.rolname)) || ' may connect', 'none may connect'),
      case when count(*) = 0 then 'ok' else 'warn' end,
      'These logins can use up all connections and locks, which stops calls. A superuser prevents that with deploy/psql/harden.sql.'
    from pg_roles r cross join pg_database d
    where r.rolcanlogin and not r.rolsuper and d.datname = current_database() and r.oid <> d.datdba
      -- Only logins that may connect through PUBLIC. A login that was granted the right itself has it on purpose.
      and exists (select from aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
        where a.grantee = 0 and a.privilege_type = 'CONNECT')
      and not exists (select from pg_roles p
        where (p.rolname in ('push_enqueuer', 'push_tenant', 'push_ops', 'push_keys', 'push_gateway', 'pg_monitor')
            or p.oid = (select n.nspowner from pg_namespace n where n.nspname = 'push'))
          and pg_has_role(r.oid, p.oid, 'member'))
$$;

COMMENT ON FUNCTION push.health_of_server() IS 'checks of the server that all apps share; for push.health';

CREATE FUNCTION push.hold_invalidation(p_lane smallint, p_window interval, p_note text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_lane  push.lane;
  v_moved bigint;
begin
  -- Waits for running invalidations, which hold a share lock on the lane: the next statement sees their changes.
  update push.lane l set invalidation_held_at = clock_timestamp(), invalidation_note = p_note, updated_at = clock_timestamp()
    where l.id = p_lane and l.invalidation_held_at is null
    returning l.* into v_lane;
  if not found then
    return 0;
  end if;
  with feed as (
    delete from push.token_invalidations x
    where x.invalidated_at >= clock_timestamp() - p_window and x.app = v_lane.app and x.provider = v_lane.provider
      and push.push_service(x.provider, x.token) = v_lane.service
    returning x.*
  ), alive as (
    update push.devices d set invalidated_at = null, invalid_reason = null
    where d.invalidated_at is not null
      and d.ctid = any (array(select x.tid from feed f cross join lateral push.devices_with(v_lane.app, v_lane.provider, f.token) x))
  )
  insert into push.quarantined_tokens (app, provider, token, user_id, since, reason)
  select f.app, f.provider, f.token, f.user_id, f.invalidated_at, f.reason from feed f
  on conflict (sha256(token::bytea), app, provider) do nothing;
  get diagnostics v_moved = row_count;
  insert into push.audit (action, target, detail) values ('hold_invalidation', v_lane.app || '/' || v_lane.channel,
    jsonb_build_object('note', p_note, 'window', p_window, 'quarantined', v_moved));
  return v_moved;
end
$$;

COMMENT ON FUNCTION push.hold_invalidation(p_lane smallint, p_window interval, p_note text) IS 'puts the invalidation of a lane''s tokens on hold. From now on dead tokens go to push.quarantined_tokens, until push.resume_invalidation. Tokens that were invalidated lately go there too, and live again. p_lane: push.lanes.id; p_window: how far back; p_note: the reason. Returns how many tokens were moved now; 0 if it is on hold already';

CREATE FUNCTION push.hook_of(p_app text, p_type text) RETURNS SETOF text
    LANGUAGE sql STABLE
    AS $$
  select w.app from push.webhook w
  where w.app = p_app and w.on_until > statement_timestamp() and (w.events is null or p_type = any (w.events)) offset 0
$$;

COMMENT ON FUNCTION push.hook_of(p_app text, p_type text) IS 'the app itself, if events of this type are recorded for it; otherwise no row';

CREATE FUNCTION push.invalidate_tokens(p_lane smallint[], p_token text[], p_since timestamp with time zone[], p_reason text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_dead bigint;
begin
  -- Waits for a hold that is being set, so that it counts.
  perform from push.lane l where l.id = any (p_lane) order by l.id for share;
  with said as materialized (
    -- Of several answers about a token the latest counts; an answer without a time always counts.
    select distinct on (l.app, l.provider, push.token_key(l.provider, r.token)) l.app, l.provider, r.token, r.since,
      coalesce(r.reason, 'Unknown') as reason, l.is_held
    from unnest(p_lane, p_token, p_since, p_reason) r(lane, token, since, reason)
    cross join lateral (
      select l.app, l.provider, l.invalidation_held_at is not null as is_held from push.lane l where l.id = r.lane
      offset 0
    ) l
    where r.token is not null
    order by l.app, l.provider, push.token_key(l.provider, r.token), r.since desc nulls first
  ), known as materialized (
    -- As it was registered. Without a device: in capitals or in small letters, in which push.deaths_of finds it.
    select s.app, s.provider, coalesce(d.token, case s.token when upper(s.token) then s.token else push.token_key(s.provider, s.token) end) as token,
      s.since, s.reason, s.is_held, d.tid, d.user_id
    from said s left join lateral push.devices_with(s.app, s.provider, s.token) d on true
  ), quarantined as (
    -- Without a time from the provider, the token is dead from now on: a registration during the hold is later and keeps it
    -- alive.
    insert into push.quarantined_tokens as q (app, provider, token, user_id, since, reason)
    select k.app, k.provider, k.token, k.user_id, coalesce(k.since, clock_timestamp()), k.reason
    from known k
    where k.is_held
    on conflict (sha256(token::bytea), app, provider) do update set since = excluded.since, reason = excluded.reason
      where q.since < excluded.since
  ), cleared as (
    -- A token that the phone registered again after the time given by the provider stays alive.
    update push.devices d set invalidated_at = clock_timestamp(), invalid_reason = k.reason
    from known k
    where d.ctid = k.tid and not k.is_held
      and d.invalidated_at is null and (k.since is null or k.since >= d.registered_at)
    returning d.app, d.provider, d.token, d.user_id, k.reason
  )
  insert into push.token_invalidations (app, provider, token, user_id, reason)
  select c.app, c.provider, c.token, c.user_id, c.reason from cleared c
  union all
  select k.app, k.provider, k.token, null, k.reason from known k where not k.is_held and k.tid is null
  on conflict do nothing;
  get diagnostics v_dead = row_count;
  perform push.notify('push_token_invalidations', '') where v_dead > 0;
  return v_dead;
end
$$;

COMMENT ON FUNCTION push.invalidate_tokens(p_lane smallint[], p_token text[], p_since timestamp with time zone[], p_reason text[]) IS 'a provider reported tokens as dead: registered devices are marked unless they were registered later, and tokens without a device are noted. Tokens of a lane whose invalidation is on hold are quarantined instead. Returns how many rows are new in push.token_invalidations; if there are any, NOTIFY push_token_invalidations. Arrays, by token: p_lane: push.lanes.id; p_token: the token; p_since: the time from which it is dead, or null; p_reason: the provider''s reason';

CREATE FUNCTION push.invites_of(p_calls bigint[], p_why text) RETURNS TABLE(id bigint, n integer, lane smallint, rank integer, user_id text, token text, platform smallint, data jsonb, outcome smallint, last_n integer, has_failed boolean, is_last boolean)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'push', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return query
    with pushed as materialized (
      -- Of what a gateway of release 0.1.0 has settled, the platform is unknown.
      select p.*, coalesce(p.platform, push.platform_code(null, p.provider)) as os from push.pushes_of(p_calls) p
      where p.kind = 0
    ), decliner as materialized (
      select o.id, jsonb_object_keys(o.declined) as user_id from push.outbox o where o.id = any (p_calls)
    )
    select p.id, p.n, p.lane, array_position(push.channels(), p.provider), p.user_id, p.token, p.os, p.data, p.outcome, p.last_n,
      p.provider in ('apns', 'fcm') and (p.id, p.user_id) not in (select d.id, d.user_id from decliner d)
        and case p_why when 'failed' then p.outcome in (3, 4) and p.reason is distinct from 'GatewayCrashed'
          -- Of who has joined since, a later note is taken.
          when 'unheard' then coalesce(p.outcome, 0) <= 1
            and (p.fallback_of is not null or p.created_at <= greatest(o.created_at, clock_timestamp() - o.patience))
          else p.outcome is null and p.bypassed end
        and (p_why = 'failed' or (select true from push.ring_reports r where r.outbox_id = p.id and r.user_id = p.user_id) is null)
        and (p.id, p.n) not in (select f.id, f.fallback_of from pushed f where f.fallback_of is not null),
      p_why <> 'failed' or (p.id, p.user_id, p.lane, p.os) not in (
        select x.id, x.user_id, x.lane, x.os from pushed x where coalesce(x.outcome, 0) <= 1)
    from pushed p
    cross join lateral (
      select o.created_at, (select make_interval(secs => a.escalate_after_seconds) from push.apps a where a.app = o.app) as patience
      from push.outbox o where o.id = p.id and o.ended_at is null and o.deadline_at > clock_timestamp() offset 0
    ) o;
end
$$;

COMMENT ON FUNCTION push.invites_of(p_calls bigint[], p_why text) IS 'the invites of those of these calls that ring; has_failed: the next channel is to be tried, once';

CREATE FUNCTION push.is_call(p_kind text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select p_kind in ('incoming_call', 'video_call') $$;

COMMENT ON FUNCTION push.is_call(p_kind text) IS 'whether a kind of push.outbox rings';

CREATE FUNCTION push.is_message(p_kind text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select p_kind in ('message', 'group_message', 'group_invite') $$;

COMMENT ON FUNCTION push.is_message(p_kind text) IS 'whether a kind of push.outbox belongs to a chat';

CREATE TABLE push.delivery (
    outbox_id bigint NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    due_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    n integer NOT NULL,
    lease integer DEFAULT 0 NOT NULL,
    attempt integer DEFAULT 0 NOT NULL,
    owner integer,
    state smallint DEFAULT 0 NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    lane smallint NOT NULL,
    ready_lane smallint,
    kind smallint DEFAULT 0 NOT NULL,
    environment smallint DEFAULT 0 NOT NULL,
    platform smallint DEFAULT 0 NOT NULL,
    user_id text NOT NULL,
    token text NOT NULL,
    locale text,
    last_reason text,
    failures jsonb,
    fallback_of integer,
    data jsonb,
    bypassed_at timestamp with time zone,
    paired boolean DEFAULT false NOT NULL,
    found_ended boolean DEFAULT false NOT NULL,
    handed_on_at timestamp with time zone,
    accepted_at timestamp with time zone,
    handed_on_by integer[],
    CONSTRAINT delivery_state_form CHECK (((NOT (ready_lane IS DISTINCT FROM
CASE
    WHEN ((state < 2) AND (crashes < 2)) THEN lane
    ELSE NULL::smallint
END)) AND ((owner IS NOT NULL) = (state = 1)) AND ((state >= 0) AND (state <= 2))))
)
WITH (fillfactor='50', vacuum_truncate=off, autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='20000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='500000', autovacuum_vacuum_cost_delay='0');

COMMENT ON TABLE push.delivery IS 'one push still owed to one device; claimed by an update, finished by a delete. People read push.deliveries';

COMMENT ON COLUMN push.delivery.outbox_id IS 'the call: push.outbox.id';

COMMENT ON COLUMN push.delivery.created_at IS 'when it was enqueued: an invite with its call, anything else at its end';

COMMENT ON COLUMN push.delivery.due_at IS 'a waiting delivery becomes ready at this time, never later than its deadline';

COMMENT ON COLUMN push.delivery.deadline_at IS 'nothing is sent after this';

COMMENT ON COLUMN push.delivery.n IS 'number of the push within its call, from 0, in the order in which they were made';

COMMENT ON COLUMN push.delivery.lease IS 'number of the claim that took it: with owner, the fence against a slow gateway. Kept when it is given back';

COMMENT ON COLUMN push.delivery.attempt IS 'tries so far, the current one included';

COMMENT ON COLUMN push.delivery.owner IS 'push.gateways.id of the gateway that has claimed it';

COMMENT ON COLUMN push.delivery.state IS '0 ready, 1 claimed, 2 waiting';

COMMENT ON COLUMN push.delivery.crashes IS 'how many gateways died while they had it. From 2 on it is a suspect: taken one at a time; at 3 it is dead, GatewayCrashed';

COMMENT ON COLUMN push.delivery.lane IS 'push.lane.id';

COMMENT ON COLUMN push.delivery.ready_lane IS 'the lane while it is ready or claimed; null while it waits, and of a suspect: so the index of ready ones has no state in it';

COMMENT ON COLUMN push.delivery.kind IS '0 invite, 1 cancel, 2 missed_call, 3 notification';

COMMENT ON COLUMN push.delivery.environment IS '0 production, 1 sandbox';

COMMENT ON COLUMN push.delivery.platform IS '0 unknown, 1 ios, 2 android, 3 web';

COMMENT ON COLUMN push.delivery.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.delivery.token IS 'the device token';

COMMENT ON COLUMN push.delivery.locale IS 'language of visible texts';

COMMENT ON COLUMN push.delivery.last_reason IS 'why the last try did not end it';

COMMENT ON COLUMN push.delivery.failures IS 'failed tries: array of {"at", "attempt", "status", "reason"}, the last 20';

COMMENT ON COLUMN push.delivery.fallback_of IS 'n of the invite of the same call that failed, instead of which this is sent';

COMMENT ON COLUMN push.delivery.data IS 'object of texts: what the recipient''s entry brought for templates, ${recipient.NAME}; null, as a rule: nothing';

COMMENT ON COLUMN push.delivery.bypassed_at IS 'when push.bypass looked for the user''s next channel, whether there is one or not; null: it has not';

COMMENT ON COLUMN push.delivery.paired IS 'for a cancel and a missed call of one call: whether the other one is sent to the same phone. The phone shows them once';

COMMENT ON COLUMN push.delivery.found_ended IS 'for a claimed invite: whether the claim has found that its call no longer rings for its user. Its gateway does not send it';

COMMENT ON COLUMN push.delivery.handed_on_at IS 'when a gateway last returned it; null: none has';

COMMENT ON COLUMN push.delivery.accepted_at IS 'for a claimed delivery: when the provider accepted it from another gateway, which had it before. So it ends as delivered';

COMMENT ON COLUMN push.delivery.handed_on_by IS 'the gateways that have handed it on, the last one last, since one of them did so for the second time. They do not claim it before due_at, others do; null: none has';

CREATE FUNCTION push.is_offered(p_row push.delivery, p_gateway integer, p_last smallint[]) RETURNS boolean
    LANGUAGE plpgsql STABLE
    AS $$
begin
  return p_row.handed_on_by is null and p_row.lane <> all (p_last) or (p_row.handed_on_by is null or p_row.attempt = 0 or -p_row.lane <> all (p_last))
    and case when p_gateway <> all (p_row.handed_on_by) then least(p_row.handed_on_at, p_row.due_at) else p_row.due_at end <= statement_timestamp()
      - interval '100 ms' * case when p_row.lane = any (p_last) then coalesce(array_position(p_row.handed_on_by, p_gateway), 1) else 0 end;
end
$$;

COMMENT ON FUNCTION push.is_offered(p_row push.delivery, p_gateway integer, p_last smallint[]) IS 'whether p_gateway may claim a ready delivery, which may have been handed on. While its lane is sick there (p_last), others come first, by 100 ms: they poll every 50 ms. Of those that are sick, too, the one comes first that had it longest ago';

CREATE FUNCTION push.is_own(p_app text) RETURNS boolean
    LANGUAGE sql STABLE
    AS $$ select push.acts_for_all() or coalesce(p_app = any (push.own_apps()), push.own_apps() is null) $$;

COMMENT ON FUNCTION push.is_own(p_app text) IS 'whether the caller may act for an app';

CREATE FUNCTION push.is_recipient(p_entry jsonb) RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
  select case when pg_column_size(p_entry) > 16384 then false else case jsonb_typeof(p_entry)
    when 'string' then length(p_entry #>> '{}') between 1 and 256
    when 'object' then coalesce(jsonb_typeof(p_entry -> 'userId') = 'string'
      and length(p_entry ->> 'userId') between 1 and 256, false)
      -- "false" as a text may mean that the user wants no notifications.
      and coalesce(jsonb_typeof(p_entry -> 'notificationEnabled') in ('boolean', 'null'), true)
      -- The names of push.misnamed are looked for first, which is quick.
      and not (p_entry ?| push.recipient_members(true) and push.misnamed(p_entry) is not null)
    else false
  end end
$$;

COMMENT ON FUNCTION push.is_recipient(p_entry jsonb) IS 'whether an entry of recipients names a user; its tokens are checked separately';

CREATE FUNCTION push.is_token(p_provider text, p_token text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
  select case p_provider
    when 'apns' then length(p_token) between 64 and 200 and length(p_token) % 2 = 0 and p_token !~ '[^0-9A-Fa-f]'
    when 'fcm' then length(p_token) between 20 and 4096 and p_token !~ '[^A-Za-z0-9_:%.-]'
    when 'expo' then case when p_token like 'ExponentPushToken[_%]' or p_token like 'ExpoPushToken[_%]'
        then length(p_token) <= 256 and p_token !~ '[^]A-Za-z0-9_:%.[-]'
      else p_token like '________-____-____-____-____________'
        and length(replace(p_token, '-', '')) = 32 and p_token !~ '[^0-9A-Fa-f-]' end
    when 'webpush' then length(p_token) between 133 and 1000
      and left(right(p_token, 123), 6) = '#auth=' and left(right(p_token, 95), 8) = '&p256dh='
      and left(right(p_token, 117), 22) !~ '[^A-Za-z0-9_-]' and right(p_token, 87) !~ '[^A-Za-z0-9_-]'
      and left(right(p_token, 96), 1) in ('A', 'Q', 'g', 'w')
      and left(right(p_token, 87), 2) ~ '^B[A-P]' and right(p_token, 1) ~ '[AEIMQUYcgkosw048]'
      and left(p_token, -123) ~ '^https://[A-Za-z0-9-]+([.][A-Za-z0-9-]+)*(:[0-9][0-9]?[0-9]?[0-9]?[0-9]?)?/[!-~]*$'
      and left(p_token, -123) !~ E'["#<>\\\\^`{|}]'
      and length(split_part(split_part(p_token, '/', 3), ':', 1)) <= 253
      and lpad(coalesce(nullif(split_part(split_part(p_token, '/', 3), ':', 2), ''), '443'), 5, '0') collate "C"
        between '00001' and '65535' end
$_$;

COMMENT ON FUNCTION push.is_token(p_provider text, p_token text) IS 'whether a text has the form of a token of a channel';

CREATE FUNCTION push.iso_time(p_time timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ select to_char(p_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') $$;

COMMENT ON FUNCTION push.iso_time(p_time timestamp with time zone) IS 'a time, p_time, as ISO 8601 in UTC, with milliseconds';

CREATE FUNCTION push.lane_conditions() RETURNS TABLE(lane smallint, window_size integer, capacity integer, in_flight integer, circuit text, throttled_until timestamp with time zone, rate_per_second integer)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select s.lane, sum(s.window_size)::int, sum(s.capacity)::int, sum(s.in_flight)::int,
    case when count(distinct s.circuit) = 1 then min(s.circuit) else 'half_open' end,
    max(s.throttled_until) filter (where s.throttled_until > now()), sum(s.rate_per_second)::int
  from push.lane_status s join push.gateways g on g.id = s.gateway
  where g.alive and g.heartbeat_at > now() - interval '5 s'
  group by s.lane
$$;

COMMENT ON FUNCTION push.lane_conditions() IS 'the status of the lanes over all living replicas, those with a heartbeat within 5 s; circuit is theirs, or half_open if they differ. For push.lanes';

CREATE FUNCTION push.length_ms(p_length interval) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select (extract(epoch from p_length) * 1000)::bigint $$;

COMMENT ON FUNCTION push.length_ms(p_length interval) IS 'an interval, p_length, in milliseconds';

CREATE TABLE push.quota (
    app text NOT NULL,
    id integer NOT NULL,
    configured integer[] DEFAULT '{NULL,NULL,NULL}'::integer[] NOT NULL,
    set_to integer[] DEFAULT '{NULL,NULL,NULL}'::integer[] NOT NULL,
    limits integer[] GENERATED ALWAYS AS (ARRAY[COALESCE(set_to[1], configured[1]), COALESCE(set_to[2], configured[2]), COALESCE(set_to[3], configured[3])]) STORED,
    set_at timestamp with time zone,
    set_by text,
    note text,
    CONSTRAINT quota_app_form CHECK (((app ~ '^[A-Za-z0-9]'::text) AND (app !~ '[^A-Za-z0-9_.-]'::text) AND (length(app) <= 64))),
    CONSTRAINT quota_range CHECK (((0 <= ALL ((configured || set_to))) AND (1000000 >= ALL ((configured || set_to)))))
);

COMMENT ON TABLE push.quota IS 'one app that has a quota, or once had one. Written only when a quota changes; its use is in the sequences push.meter_ID_…. People read push.quotas';

COMMENT ON COLUMN push.quota.app IS 'name of the app';

COMMENT ON COLUMN push.quota.id IS 'number in the names of its meters';

COMMENT ON COLUMN push.quota.configured IS 'calls, notifications and recipients a minute, by the configuration of the gateway that registered last; null: no limit';

COMMENT ON COLUMN push.quota.set_to IS 'the same by push.set_quota, which overrides the configuration; null: not set';

COMMENT ON COLUMN push.quota.limits IS 'the same as enqueueing reads it';

COMMENT ON COLUMN push.quota.set_at IS 'when push.set_quota was called; null: nothing is set';

COMMENT ON COLUMN push.quota.set_by IS 'the login that called it';

COMMENT ON COLUMN push.quota.note IS 'why, as given to push.set_quota';

CREATE FUNCTION push.lock_quota(p_app text) RETURNS push.quota
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_quota push.quota;
  v_what  text;
begin
  insert into push.quota (app) select p_app where not exists (select from push.quota q where q.app = p_app) on conflict do nothing;
  select q.* into v_quota from push.quota q where q.app = p_app for update;
  for v_what in select w from unnest(push.meter_names()) w where push.meter(v_quota.id, w) is null loop
    execute format('create sequence push.%I minvalue 0 start 0', 'meter_' || v_quota.id || '_' || v_what);
  end loop;
  return v_quota;
end
$$;

COMMENT ON FUNCTION push.lock_quota(p_app text) IS 'the row of an app in push.quota, locked, and made if it is missing, like its meters';

CREATE FUNCTION push.lock_table_used() RETURNS double precision
    LANGUAGE sql STABLE
    AS $$
  select (select count(*) from pg_locks l where not l.fastpath) / (
    current_setting('max_locks_per_transaction')::double precision * (
      select sum(current_setting(s)::int)
      from unnest('{max_connections,autovacuum_max_workers,max_worker_processes,max_wal_senders,max_prepared_transactions}'::text[]) s))
$$;

COMMENT ON FUNCTION push.lock_table_used() IS 'the locks held or waited for in all databases of the server, divided by the number that Postgres guarantees room for. From 0.5 on the lock table may be full: statements of every session then fail with 53200';

CREATE FUNCTION push.look_further(p_erasure push.erasure) RETURNS push.erasure
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $_$
declare
  v_user  constant text := p_erasure.user_id;
  v_text  constant text := to_jsonb(v_user)::text;
  v_are_left boolean;
  v_table text;
begin
  select greatest(max(o.id), p_erasure.after_id), least(min(o.id), p_erasure.until_id), count(*) > 0,
      coalesce(array_agg(o.id order by o.id < p_erasure.until_id, o.id) filter (where o.app = p_erasure.app and (
      o.answered_by = v_user or o.declined ? v_user or strpos(o.recipients::text, v_text) > 0 or strpos(o.payload::text, v_text) > 0)), '{}')
    into p_erasure.after_id, p_erasure.until_id, v_are_left, p_erasure.found
    from (
      (select x.id, x.app, x.answered_by, x.declined, x.recipients, x.payload, sum(pg_column_size(x.recipients) + pg_column_size(x.payload))
          over (order by x.id rows between unbounded preceding and 1 preceding) as bytes_before
        from push.outbox x where x.id > p_erasure.after_id order by x.id limit 100)
      union all
      (select x.id, x.app, x.answered_by, x.declined, x.recipients, x.payload, sum(pg_column_size(x.recipients) + pg_column_size(x.payload))
          over (order by x.id desc rows between unbounded preceding and 1 preceding)
        from push.outbox x where x.id < p_erasure.until_id order by x.id desc limit 100)
    ) o
    where coalesce(o.bytes_before, 0) < 1048576;
  if v_are_left then
    return p_erasure;
  end if;
  v_table := (
    select min(c.relname::text) from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'push.history'::regclass
      and (c.relname > p_erasure.after_table or c.relname = p_erasure.after_table and p_erasure.after_page > 0));
  if v_table is null then
    p_erasure.scanned_at := clock_timestamp();
    return p_erasure;
  elsif v_table <> p_erasure.after_table then
    p_erasure.after_table := v_table;
    p_erasure.after_page := 0;
  end if;
  execute format('select array(select distinct h.outbox_id from push.%I h where h.ctid >= $1 and h.ctid < $2 and h.user_id = $3 '
    'and h.lane = any ($4) and h.outbox_id <> all ($5))', v_table)
    into p_erasure.found
    using format('(%s,0)', p_erasure.after_page)::tid, format('(%s,0)', p_erasure.after_page + 1000)::tid, v_user,
      array(select l.id from push.lane l where l.app = p_erasure.app), p_erasure.waiting;
  p_erasure.after_page := p_erasure.after_page + 1000;
  p_erasure.after_page := case when p_erasure.after_page < pg_relation_size(format('push.%I', v_table)::regclass)
    / current_setting('block_size')::int then p_erasure.after_page else 0 end;
  return p_erasure;
end
$_$;

COMMENT ON FUNCTION push.look_further(p_erasure push.erasure) IS 'finds the calls that name the user in the next bite of all calls and history';

CREATE FUNCTION push.look_up_api_key(p_id integer) RETURNS TABLE(id integer, app text, scopes text[], hash bytea, addresses cidr[], state text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select k.id, k.app, k.scopes, k.hash, k.addresses,
    case when k.revoked_at is not null then 'revoked' when k.expires_at <= now() then 'expired' else 'good' end
  from push.api_keys k
  where k.id = p_id
$$;

COMMENT ON FUNCTION push.look_up_api_key(p_id integer) IS 'a key to the HTTP API, valid or not: its app, scopes and addresses, and the SHA-256 of the whole key to compare with. p_id: the number in the key. state: good, expired or revoked. No row: there is no such key';

CREATE FUNCTION push.mark_restored() RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  insert into push.origin (made_at) values ('-infinity')
$$;

COMMENT ON FUNCTION push.mark_restored() IS 'marks everything owed now as not to be sent, as in a database restored from a dump. For use after recovery of a physical backup to a point in time, before gateways start. For the owner of the schema';

CREATE FUNCTION push.mask_rows(p_erasure push.erasure, p_id bigint, p_call push.outbox, p_since timestamp with time zone) RETURNS push.erasure
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_user constant text := p_erasure.user_id;
begin
  p_call.recipients := coalesce((
    select jsonb_agg(case when push.entry_user(e.entry) = v_user then '"[erased]"' else push.mask_user(e.entry, v_user) end order by e.i)
    from jsonb_array_elements(p_call.recipients) with ordinality e(entry, i)), p_call.recipients);
  if p_call.declined ? v_user then
    p_call.declined := push.mask_user(p_call.declined #- array[v_user, 'device'], v_user);
  end if;
  if p_call.answered_by = v_user or exists (select from unnest(p_erasure.token_hashes) h(hash)
    where h.hash in (hashtextextended(p_call.answered_device, 0), hashtextextended(lower(p_call.answered_device), 0))) then
    p_call.answered_device := null;
  end if;
  p_call.answered_by := case p_call.answered_by when v_user then '[erased]' else p_call.answered_by end;
  -- A payload that names the user describes the parties of the call, so only its ids are kept.
  if p_call.payload - 'callId' <> push.mask_user(p_call.payload - 'callId', v_user) then
    p_call.payload := coalesce((
      select jsonb_object_agg(m.key, case m.key when 'callId' then m.value else push.mask_user(m.value, v_user) end)
      from jsonb_each(p_call.payload) m where m.key in ('callId', 'messageId', 'chatId', 'from')), '{}');
  end if;
  with history as (
    update push.history h set user_id = '[erased]', token = null, device = '…', token_hash = null, locale = null, data = null,
        provider_message_id = null
      where h.outbox_id = p_id and h.finished_at >= p_since and h.user_id = v_user
      returning 1
  ), reports as (
    delete from push.ring_reports r where r.outbox_id = p_id and r.user_id = v_user returning 1
  ), escalated as (
    update push.escalations e set user_id = '[erased]' where e.outbox_id = p_id and e.user_id = v_user returning 1
  ), call as (
    update push.outbox o
      set recipients = p_call.recipients, declined = p_call.declined, answered_by = p_call.answered_by,
        answered_device = p_call.answered_device, payload = p_call.payload, erased_at = clock_timestamp()
      where o.id = p_id and (o.recipients, o.declined, o.answered_by, o.answered_device, o.payload) is distinct from
        (p_call.recipients, p_call.declined, p_call.answered_by, p_call.answered_device, p_call.payload)
      returning 1
  )
  select push.add_counts(p_erasure.counts, jsonb_build_object('history', array[0, (select count(*) from history)],
      'ring_reports', array[(select count(*) from reports), 0], 'escalations', array[0, (select count(*) from escalated)],
      'outbox', array[0, (select count(*) from call)]))
    into p_erasure.counts;
  p_erasure.waiting := array_remove(p_erasure.waiting, p_id);
  return p_erasure;
end
$$;

COMMENT ON FUNCTION push.mask_rows(p_erasure push.erasure, p_id bigint, p_call push.outbox, p_since timestamp with time zone) IS 'masks the user in a call, which is locked, and in its other rows';

CREATE FUNCTION push.mask_user(p_value jsonb, p_user_id text, p_words boolean DEFAULT false) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    AS $$
begin
  return case jsonb_typeof(p_value)
    when 'object' then coalesce((
      select jsonb_object_agg(case when m.key = p_user_id and not p_words then '[erased]' else m.key end,
        push.mask_user(m.value, p_user_id, p_words))
      from jsonb_each(p_value) m), '{}')
    when 'array' then coalesce((
      select jsonb_agg(push.mask_user(e.value, p_user_id, p_words) order by e.i)
      from jsonb_array_elements(p_value) with ordinality e(value, i)), '[]')
    when 'string' then case
      when p_words then to_jsonb(regexp_replace(p_value #>> '{}', '(?<![[:alnum:]_])'
        || regexp_replace(p_user_id, '([^[:alnum:]_[:space:]])', E'\\\\\\1', 'g') || '(?![[:alnum:]_])', '[erased]', 'g'))
      when p_value #>> '{}' = p_user_id then '"[erased]"' else p_value end
    else p_value end;
end
$$;

COMMENT ON FUNCTION push.mask_user(p_value jsonb, p_user_id text, p_words boolean) IS 'a JSON value without a user: [erased] replaces strings and keys, or with p_words words in strings';

CREATE FUNCTION push.meter(p_id integer, p_what text) RETURNS regclass
    LANGUAGE sql STABLE
    AS $$ select to_regclass('push.meter_' || p_id || '_' || p_what) $$;

COMMENT ON FUNCTION push.meter(p_id integer, p_what text) IS 'the sequence that counts for a quota; null: it is missing';

CREATE FUNCTION push.meter_at(p_value bigint, p_minute bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case (p_minute - (p_value >> 44)) & 524287
    when 0 then p_value
    -- One minute ahead: another session has begun it, or the clock was set back.
    when 524287 then p_value
    when 1 then ((p_minute & 524287) << 44) | ((p_value & 4194303) << 22)
    else (p_minute & 524287) << 44 end
$$;

COMMENT ON FUNCTION push.meter_at(p_value bigint, p_minute bigint) IS 'the value that a meter has in a minute (since 1970) if nothing more is counted';

CREATE FUNCTION push.meter_names() RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select '{calls,notifications,recipients,calls_returned,notifications_returned,recipients_returned,refusals,refusals_seen}'::text[] $$;

COMMENT ON FUNCTION push.meter_names() IS 'what the meters of a quota count; the first three are its limits';

CREATE FUNCTION push.minutes(p_since timestamp with time zone) RETURNS TABLE(minute timestamp with time zone, invites bigint, delivered bigint, late bigint, expired bigint, dead bigint, p50_ms double precision, p99_ms double precision)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    AS $$
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

COMMENT ON FUNCTION push.minutes(p_since timestamp with time zone) IS 'statistics of invites by the minute in which they were settled, without void ones. The last row, without a minute, is the total. p_since: start time; the cost grows with the deliveries settled since. late: delivered after the deadline; expired: never sent in time; dead: failed; p50_ms, p99_ms: milliseconds from enqueueing until the provider accepted the push';

CREATE FUNCTION push.misnamed(p_entry jsonb, OUT name text, OUT member text) RETURNS record
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select n.name, m.member
  from unnest(push.recipient_members(true)) with ordinality n(name, i) cross join lateral (
    select case when n.name like 'voip%' then 'voipPushToken' when n.name like 'apn%' then 'apnsToken'
      when n.name ~ 'fcm|firebase' then 'fcmToken' when n.name ~* 'subscription' then 'webPushSubscription'
      when n.name like 'notification%' then 'notificationEnabled' else 'pushToken' end) m(member)
  where coalesce(p_entry ->> m.member, '') = '' and case
    when m.member = 'notificationEnabled' then p_entry -> n.name not in ('true', 'null')
    else length(p_entry ->> n.name) >= 20 and (jsonb_typeof(p_entry -> n.name) in ('string', 'array') or p_entry -> n.name ? 'endpoint') end
  order by n.i limit 1
$$;

COMMENT ON FUNCTION push.misnamed(p_entry jsonb, OUT name text, OUT member text) IS 'a token, or the switch that is off, that an entry has under another name (name), and not under its own (member); null: none';

CREATE FUNCTION push.miss(p_max integer DEFAULT 1000) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $_$
begin
  return push.change_rows('update push.outbox o set state = ''missed'' where o.ctid = any ($1)', array(
    select x.ctid from push.outbox x where x.state = 'ringing' and x.deadline_at <= statement_timestamp() - interval '2 s'
    order by x.deadline_at limit p_max for no key update skip locked));
end
$_$;

COMMENT ON FUNCTION push.miss(p_max integer) IS 'marks at most p_max calls as missed that still ring two seconds after their deadline. What follows is done by push.follow_up. Returns how many';

CREATE FUNCTION push.name_fault(p_target text, p_sqlstate text, p_pushes integer DEFAULT 1) RETURNS void
    LANGUAGE sql
    SET search_path TO 'push', 'pg_temp'
    AS $$
  insert into push.audit (action, target, detail)
  select 'put_aside', p_target, jsonb_strip_nulls(jsonb_build_object('sqlstate', p_sqlstate, 'pushes', p_pushes))
  where p_target is not null and not exists (select from push.audit a
    where a.action = 'put_aside' and a.at > now() - interval '1 day' and a.target = p_target)
$$;

COMMENT ON FUNCTION push.name_fault(p_target text, p_sqlstate text, p_pushes integer) IS 'names in push.audit and push.health, once a day, what cannot be read or changed; nothing if p_target is null';

CREATE FUNCTION push.new_call_id() RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_here smallint := (select h.shard from push.shard_here h);
  v_map  smallint[] := (select m.shards from push.shard_map m where m.until is null);
  v_id   text;
begin
  if v_here is not null and array_position(v_map, v_here) is null then
    raise exception using errcode = 'object_not_in_prerequisite_state',
      message = format('shard %s owns no slot', v_here), hint = 'Enqueue in another shard, or through the router.';
  end if;
  loop
    v_id := gen_random_uuid();
    exit when v_here is null or v_map[push.slot_of(v_id) + 1] = v_here;
  end loop;
  return v_id;
end
$$;

COMMENT ON FUNCTION push.new_call_id() IS 'a new UUID that belongs to this shard: for a backend whose own tables are here, so that it enqueues in one local transaction';

CREATE FUNCTION push.next_channels(p_calls bigint[], p_why text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET enable_hashjoin TO 'on'
    SET enable_nestloop TO 'off'
    AS $$
begin
  with invite as materialized (
    select i.* from push.invites_of(p_calls, p_why) i
  ), failed as materialized (
    select i.* from invite i where i.has_failed
  ), call as materialized (
    select o.id, o.app, o.recipients, o.deadline_at, (select a.providers from push.apps a where a.app = o.app) as providers,
      case when octet_length(o.payload::text) > 880 then push.size_faults(o.payload) end as size_faults
    from push.outbox o where o.id = any (array(select f.id from failed f))
  ), entry as materialized (
    select c.id, e.i, e.entry ->> 'userId' as user_id, t.rank, t.token, push.entry_platform(t.provider, e.entry) as platform,
      push.recipient_locale(e.entry) as locale, push.recipient_data(e.entry) as data
    from call c cross join lateral jsonb_array_elements(c.recipients) with ordinality e(entry, i)
    cross join lateral push.entry_tokens(e.entry, true) t
    where push.is_recipient(e.entry) and e.entry -> 'notificationEnabled' is distinct from 'false'
  ), inline as materialized (
    select f.id, f.n, f.rank, f.user_id, s.i from failed f join entry s on s.id = f.id and s.user_id = f.user_id
      and push.token_key((push.channels())[s.rank], s.token) = push.token_key((push.channels())[s.rank], f.token)
  ), next as (
    -- The token came from an entry: the next token of the same entry.
    select i.id, i.n, i.user_id, t.rank as preference, t.rank, t.token, t.platform, t.locale, t.data
    from inline i join entry t on t.id = i.id and t.i = i.i where t.rank > i.rank and t.rank <= 3
    union all
    -- A registered user: the ten newest devices of the next channel on the same platform, once the last token of this one has failed.
    select f.id, f.n, f.user_id, d.rank + case when d.platform = 0 then 10 else 0 end, d.rank, d.token,
      -- A device of unknown platform counts as being on the platform of the phone that failed.
      case d.platform when 0 then f.platform else d.platform end, d.locale, f.data
    from failed f join call c on c.id = f.id
    cross join lateral (
      select x.* from (
        select array_position(push.channels(), d.provider) as rank, d.token, d.locale, d.registered_at,
          push.platform_code(d.platform, d.provider) as platform
        from push.devices d
        where d.user_id = f.user_id and d.app = c.app and d.enabled and d.invalidated_at is null and d.provider in ('fcm', 'expo') offset 0
      ) x where x.rank > f.rank and x.platform in (0, f.platform) order by x.registered_at desc limit 10
    ) d
    where f.is_last and (f.id, f.n) not in (select i.id, i.n from inline i)
  ), used as materialized (
    select i.id, i.lane, i.token, bool_and(coalesce(i.outcome in (3, 4), false)) as has_failed from invite i group by i.id, i.lane, i.token
  ), best as (
    -- A channel that has been tried, and has not failed, is the next one: an invite that failed earlier goes no further.
    select x.*, l.id as lane, c.deadline_at, u.id is not null as is_used, min(x.preference) over (partition by x.id, x.n) as preferred
    from next x join call c on c.id = x.id
    join push.lane l on l.app = c.app and l.provider = (push.channels())[x.rank] and push.serves(c.providers, l.provider)
      and l.service = push.push_service(l.provider, x.token)
    left join used u on u.id = x.id and u.lane = l.id and u.token = x.token
    where c.size_faults[x.rank] is null and u.has_failed is not true
      and (select true from push.token_invalidations t where t.token = x.token and t.app = c.app and t.provider = l.provider) is null
  ), made as (
    insert into push.delivery (outbox_id, n, deadline_at, lane, ready_lane, platform, user_id, token, locale, data, fallback_of)
    select b.id, f.last_n + row_number() over (partition by b.id order by b.lane, b.token), b.deadline_at, b.lane, b.lane, b.platform,
      b.user_id, b.token, b.locale, b.data, b.n
    from (
      -- Several tokens of one channel that failed together lead to one invite for each token of the next channel.
      select distinct on (b.id, b.lane, b.token) b.* from best b where b.preference = b.preferred and not b.is_used
      order by b.id, b.lane, b.token, b.n desc
    ) b join failed f on f.id = b.id and f.n = b.n
    returning outbox_id, n, user_id
  )
  insert into push.escalations (outbox_id, n, user_id) select m.outbox_id, m.n, m.user_id from made m where p_why = 'unheard';
end
$$;

COMMENT ON FUNCTION push.next_channels(p_calls bigint[], p_why text) IS 'makes an invite over the next channel for each of push.invites_of that has failed';

CREATE FUNCTION push.note_api_key_uses(p_ids integer[], p_ages integer[], p_peers text[]) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  with noted as (
    update push.api_keys k set last_used_at = u.at, last_used_from = u.peer
    from (
      -- Skips a key that is locked, for example because it is being revoked. Another replica may have noted a use of the same
      -- minute.
      select x.id, t.at, u.peer::inet as peer
      from unnest(p_ids, p_ages, p_peers) u(id, age, peer) join push.api_keys x on x.id = u.id
      cross join lateral (select clock_timestamp() - make_interval(secs => u.age / 1000.0)) t(at)
      where x.last_used_at is null or x.last_used_at <= t.at - interval '1 minute'
      order by x.id for no key update of x skip locked
    ) u
    where k.id = u.id
    returning 1
  )
  select count(*)::int from noted
$$;

COMMENT ON FUNCTION push.note_api_key_uses(p_ids integer[], p_ages integer[], p_peers text[]) IS 'notes when keys to the HTTP API were last used, at most once a minute for each key. Returns how many were noted. p_ids: the keys, each once; p_ages: how long ago, in milliseconds; p_peers: the addresses that the requests came from; null: unknown';

CREATE FUNCTION push.note_devices() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
  -- An upsert runs both triggers, and the update below this one.
  if not exists (select from changed) then
    return null;
  end if;
  -- An APNs token that was registered in other letters before.
  delete from push.devices d
  where d.ctid = any (array(
    select x.tid
    from changed c cross join lateral (
      select x.ctid as tid from push.devices x
      where sha256(x.token::bytea) = any (push.token_digests('apns', c.token)) and x.app = c.app and x.provider = 'apns'
        and (x.registered_at, x.id) < (c.registered_at, c.id)
      for update skip locked
    ) x
    where c.provider = 'apns'));
  -- Whatever looks up the devices of a user costs as much as there are. The update runs this trigger once more, usually for no rows.
  update push.devices d set invalidated_at = clock_timestamp(), invalid_reason = 'TooManyDevices'
  where d.ctid = any (array(
    select x.tid
    from (select distinct c.user_id, c.app from changed c where c.enabled and c.invalidated_at is null) u
    cross join lateral (
      select o.ctid as tid from push.devices o
      where o.user_id = u.user_id and o.app = u.app and o.enabled and o.invalidated_at is null
      order by o.registered_at desc, o.id desc
      offset 100
    ) x
    cross join lateral (select from push.devices l where l.ctid = x.tid for no key update skip locked) l));
  insert into push.follow_ups (outbox_id, why, is_urgent)
  select distinct u.outbox_id, 'failed', true
  from changed c cross join lateral (
    select u.outbox_id from push.unreached u where u.app = c.app and u.user_id = c.user_id offset 0
  ) u
  where c.enabled and c.invalidated_at is null;
  delete from push.token_invalidations x
  where x.ctid = any (array(
    select dead.tid from changed d cross join lateral push.deaths_of(d.app, d.provider, d.token) dead where d.invalidated_at is null));
  return null;
end
$$;

COMMENT ON FUNCTION push.note_devices() IS 'keeps one device of each token, puts aside devices beyond the newest 100 of a user, notes calls that have not reached the user, and forgets that tokens of living devices were dead';

CREATE FUNCTION push.note_tokens() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
  if tg_op = 'INSERT' then
    insert into push.tally (what, lane, app, count)
    select tg_argv[0], (select l.id from push.lane l where l.app = t.app and l.provider = t.provider and l.service = t.service), t.app, count(*)
    from (select t.app, t.provider, push.push_service(t.provider, t.token) as service from tokens t) t
    group by t.app, t.provider, t.service;
  end if;
  if tg_argv[0] <> 'invalidated' or not exists (select from push.webhook w where w.on_until > statement_timestamp()) then
    return null;
  elsif tg_op = 'INSERT' then
    insert into push.webhook_event (event, app, type, user_id, at, data)
    select push.webhook_id('token', t.app, t.provider, t.id::text, extract(epoch from t.invalidated_at)::text), t.app, 'token.dead',
      t.user_id, t.invalidated_at,
      jsonb_build_object('app', t.app, 'provider', t.provider, 'token', t.token, 'userId', t.user_id, 'reason', t.reason)
    from tokens t cross join lateral push.hook_of(t.app, 'token.dead')
    on conflict do nothing;
  else
    -- They live again: their phones have registered them again, invalidation was put on hold, or an operator has deleted the rows. A
    -- receiver that is behind must not be told to delete them. A registration waits neither for a gateway nor for an operator.
    delete from push.webhook_event e where e.id = any (array(
      select x.id
      from tokens t cross join lateral (
        select x.id from push.webhook_event x
        where x.type = 'token.dead' and md5(x.data ->> 'token') = md5(t.token) and x.app = t.app
          and x.data ->> 'provider' = t.provider and x.data ->> 'token' = t.token
        for update skip locked
      ) x));
  end if;
  return null;
end
$$;

COMMENT ON FUNCTION push.note_tokens() IS 'counts dead or quarantined tokens. Records token.dead, and removes it if the token lives';

CREATE FUNCTION push.note_webhook(p_app text, p_url_digest text, p_result integer, p_failures integer, p_pause_ms integer, p_is_probe boolean, p_status integer, p_reason text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  c_open  constant int := 5;
  v_pause constant timestamptz := clock_timestamp() + p_pause_ms * interval '1 ms';
begin
  if p_result = 0 then
    update push.webhook w
      set failures = 0, failing_since = null, last_status = p_status, last_reason = p_reason, last_at = clock_timestamp(),
        retry_at = greatest(
          case when w.failures < c_open and w.retry_at > clock_timestamp() then w.retry_at end,
          case when w.url_digest = p_url_digest then v_pause end)
      where w.app = p_app
        and (w.failures > 0 or p_pause_ms is not null or (w.last_status, w.last_reason) is distinct from (p_status, p_reason)
          or w.last_at < clock_timestamp() - interval '10 s');
  else
    update push.webhook w
      set failures = least(w.failures + p_failures, greatest(w.failures + 1, c_open)),
        failing_since = coalesce(w.failing_since, clock_timestamp()),
        last_status = p_status, last_reason = p_reason, last_at = clock_timestamp(),
        gone_at = coalesce(w.gone_at, case p_result when 2 then clock_timestamp() end),
        -- After the fifth failure in a row: 5 s, 10 s, … 5 minutes. Requests that fail together are one step.
        retry_at = greatest(v_pause, case when w.failures < c_open then w.retry_at end,
          case when w.failures + p_failures >= c_open then
            clock_timestamp() + least(interval '5 minutes', interval '5 s' * power(2, least(greatest(w.failures + 1 - c_open, 0), 10))) end)
      where w.app = p_app and w.url_digest = p_url_digest
        and (w.failures < c_open or coalesce(w.retry_at <= clock_timestamp(), true) or p_is_probe or p_result = 2 or v_pause is not null);
  end if;
end
$$;

COMMENT ON FUNCTION push.note_webhook(p_app text, p_url_digest text, p_result integer, p_failures integer, p_pause_ms integer, p_is_probe boolean, p_status integer, p_reason text) IS 'notes the results of requests to the webhook of an app. p_result: 0 some were acknowledged; 1 none was; 2 one had the answer 410';

CREATE FUNCTION push.notify(p_channel text, p_payload text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
begin
  -- 0.1 ‰ of 8 GiB, which is more than gateways ever leave unread.
  perform pg_notify(p_channel, p_payload) where pg_notification_queue_usage() < 0.0001 and not exists (
    select from pg_locks l
    where l.locktype = 'object' and l.database = 0 and l.classid = 'pg_database'::regclass and l.objid = 0 and not l.granted);
  return found;
end
$$;

COMMENT ON FUNCTION push.notify(p_channel text, p_payload text) IS 'NOTIFY, unless the commit might wait for those of other sessions; false: nothing was notified';

CREATE FUNCTION push.observe() RETURNS TABLE(what text, app text, provider text, kind smallint, state smallint, value double precision)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    AS $$
  select x.what, l.app, l.channel, d.kind, d.state, x.value::double precision
    from (
      select d.lane, d.kind, d.state, sum(d.count) as count, min(d.oldest) as oldest from push.count_owed(5000, false) d group by 1, 2, 3
    ) d
    join push.lane l on l.id = d.lane
    cross join lateral (values ('pending', true, d.count),
      ('oldest_ready', d.state = 0, greatest(0, extract(epoch from clock_timestamp() - d.oldest)))) x(what, is_so, value)
    where x.is_so
  union all
  select x.what, l.app, l.channel, null, null, x.is_so::int
    from push.lane l cross join lateral (values ('paused', l.paused), ('held', l.invalidation_held_at is not null)) x(what, is_so)
  union all
  select 'replicas_alive', null, null, null, null, count(*) from push.gateways g where g.alive
  union all
  select 'overdue_' || j.state, null, null, null, null, count(*) from push.overdue_jobs j group by 1
  union all
  select x.what, r.app, null, null, null, sum(r.tickets)
    from push.receipt_batch r cross join lateral (
      -- A look-up makes a ticket due again later, so a ticket that was looked up in vain is not overdue by its due time.
      values ('receipts_pending', true), ('receipts_overdue', r.due_at < now() - interval '1 minute' or r.attempts > 3)) x(what, is_so)
    where x.is_so group by x.what, r.app
  union all
  select 'keys_expiring', k.app, null, null, null, count(*) from push.api_keys k
    where k.revoked_at is null and k.expires_at between now() and now() + interval '30 days'
      and coalesce(k.last_used_at > now() - interval '30 days', true)
    group by k.app
  union all
  select 'quota_' || u.what, u.app, null, null, null, round(u.used::numeric / greatest(u."limit", 1), 4)
    from push.quotas u where u."limit" is not null
  union all
  select 'webhook_' || x.what, w.app, null, null, null, x.value::double precision
    from push.webhooks w cross join lateral (values ('waiting', w.waiting), ('oldest', greatest(0, extract(epoch from w.oldest))),
      ('failing', greatest(0, extract(epoch from clock_timestamp() - w.failing_since))), ('stopped', (w.state in ('paused', 'gone'))::int),
      ('dropped', w.dropped)) x(what, value)
    where w.state <> 'off' and x.value is not null
$$;

COMMENT ON FUNCTION push.observe() IS 'the gauges of the database for metrics, one row for each series. what: pending (deliveries owed; an estimate for a lane with more than 5,000 divided by the number of lanes, see push.count_owed), oldest_ready (age in seconds of the oldest delivery that could be sent, among those read), paused, held (invalidation is on hold), replicas_alive, overdue_warn, overdue_bad (jobs), receipts_pending, receipts_overdue (due for a minute, or looked up more than three times in vain), keys_expiring (keys of the HTTP API with less than 30 days left), quota_calls, quota_notifications and quota_recipients (the used part of a quota); webhook_waiting and webhook_dropped (events), webhook_oldest (age of the oldest) and webhook_failing (both in seconds), webhook_stopped (1: paused, or after 410)';

CREATE FUNCTION push.offer_provider_token(p_provider text, p_name text, p_token text, p_minted_at timestamp with time zone, p_expires_at timestamp with time zone, p_age_min interval) RETURNS TABLE(token text, minted_at timestamp with time zone, expires_at timestamp with time zone)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  insert into push.provider_tokens as t (provider, name, token, minted_at, expires_at)
  values (p_provider, p_name, p_token, p_minted_at, p_expires_at)
  on conflict (provider, name) do update
    set token = excluded.token, minted_at = excluded.minted_at, expires_at = excluded.expires_at
    -- A token from the future was signed with a wrong clock and is replaced.
    where t.minted_at <= excluded.minted_at - p_age_min or t.expires_at <= excluded.minted_at
      or t.minted_at > excluded.minted_at + interval '5 minutes';
  select t.token, t.minted_at, t.expires_at from push.provider_tokens t where t.provider = p_provider and t.name = p_name
$$;

COMMENT ON FUNCTION push.offer_provider_token(p_provider text, p_name text, p_token text, p_minted_at timestamp with time zone, p_expires_at timestamp with time zone, p_age_min interval) IS 'offers a new provider token, which is accepted if the current one is at least p_age_min older, or has expired. Returns the token in use. p_provider, p_name, p_token, p_minted_at, p_expires_at: as in push.provider_tokens';

CREATE FUNCTION push.oldest_ringing(p_app text DEFAULT NULL::text) RETURNS interval
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
  return (
    select max(now() - push.finite(head.since))
    from push.lane l
    left join push.lane_conditions() s on s.lane = l.id
    cross join lateral (
      -- The earliest deadlines are sent next. An invite rings for at most ten minutes.
      -- One that is tried again is late since its next try is due: what its first tries waited for, a push service of browsers for
      -- example, says nothing about other calls.
      select d.kind, case when d.attempt > 0 then d.due_at else d.created_at end as since from push.delivery d
      where d.ready_lane = l.id and d.deadline_at > statement_timestamp()
        and d.deadline_at < statement_timestamp() + interval '10 minutes' and d.state = 0 and (d.handed_on_by is null or d.due_at <= now())
      order by d.deadline_at limit 100
    ) head
    where (p_app is null or l.app = p_app) and not l.paused and s.circuit is distinct from 'open' and head.kind = 0
      -- A lane that no living replica serves does not count while there are living replicas.
      and (s.lane is not null
        or not exists (select from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s')));
end
$$;

COMMENT ON FUNCTION push.oldest_ringing(p_app text) IS 'how long the oldest of the invites that are sent next has been ready; null if there is none. Lanes that are paused, whose circuit is open, or that none of the living replicas serves do not count. p_app: only this app; null: all. Reads at most 100 rows of each lane';

CREATE FUNCTION push.operate_call(p_operator text, p_app text, p_call_id text, p_action text, p_note text) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_message text := case p_action when 'requeue' then (select r.message from push.requeue(p_call_id, p_app) r)
    else (select v.message from push.void_call(p_call_id, app => p_app) v) end;
begin
  update push.audit a set operator = left(p_operator, 128), detail = a.detail || jsonb_build_object('note', left(p_note, 500))
    where a.id = currval(pg_get_serial_sequence('push.audit', 'id'));
  return v_message;
end
$$;

COMMENT ON FUNCTION push.operate_call(p_operator text, p_app text, p_call_id text, p_action text, p_note text) IS 'push.requeue or push.void_call for a user who is logged in to the dashboard, recorded in push.audit. p_operator: the user, for push.audit.operator; p_app, p_call_id: the call; p_action: requeue, or void; p_note: the reason, at most 500 characters. Returns a sentence that says what was done';

CREATE FUNCTION push.operate_lane(p_operator text, p_app text, p_provider text, p_paused boolean, p_note text) RETURNS TABLE(changed boolean, message text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION push.operate_lane(p_operator text, p_app text, p_provider text, p_paused boolean, p_note text) IS 'push.pause_lane or push.resume_lane for a user who is logged in to the dashboard, recorded in push.audit. p_operator: the user, for push.audit.operator; p_app, p_provider: the lane (webpush: those of all push services, webpush/google: one); p_paused: whether to pause or resume it; p_note: the reason, at most 500 characters';

CREATE FUNCTION push.overview(p_max integer DEFAULT 50) RETURNS jsonb
    LANGUAGE sql STABLE
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION push.overview(p_max integer) IS 'the overview for operators, as one JSON object: lanes, health, failures, stuck (equal rows as one, with their count, invites first), replicas (alive, or ended in the last hour) and audit (the last interventions), from the views of these names, and recent (the outcomes of invites in the last five minutes). Intervals are in milliseconds, times in milliseconds since 1970. p_max: maximum number of entries of failures, stuck and replicas; the worst come first';

CREATE FUNCTION push.own_apps() RETURNS text[]
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_tenant  oid := to_regrole('push_tenant');
  v_is_free boolean := false;
  v_apps    text[];
  v_granted text[];
  v_caller  name;
begin
  foreach v_caller in array array[session_user] || case when current_setting('role') <> 'none'
    then array[current_setting('role')::name] else '{}' end
  loop
    v_granted := array(
      select distinct g.app from push.app_grant g where pg_has_role(v_caller, to_regrole(quote_ident(g.role)), 'usage') order by g.app);
    if has_schema_privilege(v_caller, 'push', 'create') or pg_has_role(v_caller, to_regrole('push_gateway'), 'usage') then
      v_is_free := true;
    elsif pg_has_role(v_caller, v_tenant, 'usage') then
      -- A role with both push_enqueuer and push_tenant could read all calls in the table: it acts for no app until one of
      -- them is revoked.
      v_granted := case when pg_has_role(v_caller, to_regrole('push_enqueuer'), 'usage') then '{}' else v_granted end;
      v_apps := case when v_apps is null then v_granted else array(select unnest(v_apps) intersect select unnest(v_granted)) end;
    elsif pg_has_role(v_caller, to_regrole('push_enqueuer'), 'usage') or pg_has_role(v_caller, to_regrole('push_ops'), 'usage') then
      v_is_free := true;
    end if;
  end loop;
  -- A caller that has none of push's roles called a SECURITY DEFINER function of another role, which cannot be determined. If there are
  -- tenants, that role may be one.
  return case when v_apps is not null or v_is_free then v_apps
    when exists (select from pg_auth_members m where m.roleid = v_tenant
      and m.member <> (select n.nspowner from pg_namespace n where n.nspname = 'push'))
      then v_granted end;
end
$$;

COMMENT ON FUNCTION push.own_apps() IS 'the apps that a member of push_tenant may act for; null: every app';

CREATE FUNCTION push.own_calls(p_call_id text, p_app text) RETURNS TABLE(id bigint, app text)
    LANGUAGE plpgsql STABLE ROWS 1
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_own text[] := case when not push.acts_for_all() then push.own_apps() end;
begin
  if v_own is null and p_app is null then
    return query select o.id, o.app from push.outbox o where o.call_id = p_call_id;
  else
    return query select o.id, o.app from unnest(coalesce(v_own, array[p_app])) a(app)
      cross join lateral (select o.id, o.app from push.outbox o where o.call_id = p_call_id and o.app = a.app offset 0) o
      where p_app is null or a.app = p_app;
  end if;
end
$$;

COMMENT ON FUNCTION push.own_calls(p_call_id text, p_app text) IS 'the calls with this id in the apps that the caller may act for; p_app: only this app';

CREATE FUNCTION push.own_shard() RETURNS integer
    LANGUAGE sql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select h.shard from push.shard_here h
$$;

COMMENT ON FUNCTION push.own_shard() IS 'the number of this shard; null: this database stands alone';

CREATE FUNCTION push.park(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_lease integer[], p_attempts integer[], p_delay_ms integer[], p_reason text[], p_failures text[] DEFAULT NULL::text[], p_hand_on boolean[] DEFAULT NULL::boolean[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
declare
  v_now    timestamptz := clock_timestamp();
  v_places tid[] := push.places(p_gateway, p_outbox_id, p_n, p_lease);
  v_parked bigint;
begin
  with parked as (
    -- Due not later than the deadline, so that the index on due_at also finds waiting deliveries that have expired.
    update push.delivery d
    set state = case when p_delay_ms[r.i] is null or p_hand_on[r.i] then 0 else 2 end,
      ready_lane = case when p_delay_ms[r.i] is null or p_hand_on[r.i] then d.ready_lane end, owner = null, found_ended = false,
      -- Who had it before begins the next round.
      handed_on_by = case when p_hand_on[r.i] is not true then d.handed_on_by when p_gateway = any (d.handed_on_by) then array[p_gateway]
        else d.handed_on_by || p_gateway end, handed_on_at = v_now,
      attempt = coalesce(p_attempts[r.i], greatest(d.attempt - 1, 0)), last_reason = coalesce(p_reason[r.i], d.last_reason),
      -- In a round, the first time at which one of those that had it may have it again. What one was told to wait keeps it from no other.
      due_at = least(case when p_hand_on[r.i] and p_gateway <> all (d.handed_on_by)
          then greatest(v_now + least(p_delay_ms[r.i], 250) * interval '1 ms', least(d.due_at, v_now + p_delay_ms[r.i] * interval '1 ms'))
        else v_now + coalesce(p_delay_ms[r.i], 0) * interval '1 ms' end, d.deadline_at),
      failures = case when p_failures[r.i] is null then d.failures
        else jsonb_path_query_array(coalesce(d.failures, '[]') || p_failures[r.i]::jsonb, '$[last - 19 to last]') end,
      bypassed_at = case when p_hand_on[r.i] and d.kind = 0 and d.accepted_at is null
          and v_now + p_delay_ms[r.i] * interval '1 ms' >= d.created_at + interval '2 s'
        then coalesce(d.bypassed_at, v_now) else d.bypassed_at end
    from generate_series(1, cardinality(p_outbox_id)) r(i)
    where d.ctid = v_places[r.i]
    returning d.ctid as place, d.outbox_id, d.created_at, d.bypassed_at, d.accepted_at
  ), noted as (
    insert into push.follow_ups (outbox_id, why, is_urgent, due_at)
    select distinct p.outbox_id, 'stuck', true, greatest(v_now, p.created_at + interval '2 s') from parked p where p.bypassed_at = v_now
  )
  select count(*), array_agg(p.place) filter (where p.accepted_at is not null) into v_parked, v_places from parked p;
  perform push.bury(v_places, 0) where v_places is not null;
  if array_position(p_delay_ms, null) is not null or true = any (p_hand_on) then
    perform push.ring_doorbell();
  end if;
  return v_parked;
end
$_$;

COMMENT ON FUNCTION push.park(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_lease integer[], p_attempts integer[], p_delay_ms integer[], p_reason text[], p_failures text[], p_hand_on boolean[]) IS 'returns claimed deliveries to the outbox. Returns how many were still claimed by the gateway. p_gateway, p_outbox_id, p_n, p_lease: as for push.settle; p_attempts: attempts that were made, null: without the one that the claim counted; p_delay_ms: how long they wait, in milliseconds, null: they are ready at once; p_reason: why, or null; p_failures: the attempts that failed, each a JSON array of {"at", "attempt", "status", "reason"} or null, appended to earlier ones; p_hand_on: true: until p_delay_ms are over, or, if that is earlier, the wait of one that had it before in this round (250 ms at least), only gateways that have not handed it on (push.delivery.handed_on_by) may claim it; otherwise it waits, and push.promote makes it ready';

CREATE FUNCTION push.past_events(p_app text, p_from timestamp with time zone, p_ids bigint[]) RETURNS TABLE(event text, type text, outbox_id bigint, user_id text, at timestamp with time zone, data jsonb)
    LANGUAGE sql STABLE
    AS $$
  select push.webhook_id('delivery', p_app, h.outbox_id::text, h.n::text, extract(epoch from h.finished_at)::text) as event,
    'delivery.finished' as type, h.outbox_id, h.user_id, h.finished_at as at,
    push.delivery_data(p_app, l.provider, o.call_id, h) as data
  from push.lane l cross join lateral (
    select * from push.history h
    where h.lane = l.id and h.finished_at >= p_from and (p_ids is null or h.outbox_id = any (p_ids))
    offset 0) h
  left join push.outbox o on o.id = h.outbox_id and o.created_at <= h.created_at
  where l.app = p_app
  union all
  select push.webhook_id('call', p_app, o.id::text, extract(epoch from o.created_at)::text), 'call.' || o.state, o.id,
    o.answered_by, o.ended_at, push.call_data(o)
  from push.outbox o
  where o.app = p_app and o.state <> 'ringing' and push.is_call(o.kind)
    and case when p_ids is null then o.ended_at >= p_from else o.id = any (p_ids) end
  union all
  select push.webhook_id('token', p_app, t.provider, t.id::text, extract(epoch from t.invalidated_at)::text), 'token.dead', null,
    t.user_id, t.invalidated_at,
    jsonb_build_object('app', p_app, 'provider', t.provider, 'token', t.token, 'userId', t.user_id, 'reason', t.reason)
  from push.token_invalidations t
  where p_ids is null and t.app = p_app and t.invalidated_at >= p_from
$$;

COMMENT ON FUNCTION push.past_events(p_app text, p_from timestamp with time zone, p_ids bigint[]) IS 'the events in the past of an app, as they were recorded: of these calls, or since p_from';

CREATE FUNCTION push.pause_lane(app text, provider text, note text DEFAULT NULL::text) RETURNS TABLE(changed boolean, message text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$ select * from push.operate_lane(null, app, provider, true, note) $$;

COMMENT ON FUNCTION push.pause_lane(app text, provider text, note text) IS 'nothing more is claimed from this lane until push.resume_lane; deliveries that a replica holds are still sent. app, provider: the lane; note: the reason. Returns whether this changed anything, and a sentence that says what was done. Running it twice is harmless';

CREATE FUNCTION push.pause_webhooks(app text, note text DEFAULT NULL::text) RETURNS TABLE(changed boolean, message text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  v_app text := push.check_webhook(pause_webhooks.app);
begin
  update push.webhook w set paused = true, note = left(pause_webhooks.note, 200) where w.app = v_app and not w.paused;
  changed := found;
  message := format('%s: events %s; they are kept for 24 hours, at most 100,000', v_app,
    case when changed then 'are recorded and no longer sent' else 'were paused before' end);
  insert into push.audit (action, target, detail) values ('pause_webhooks', v_app,
    jsonb_build_object('note', left(pause_webhooks.note, 200), 'changed', changed));
  return next;
end
$$;

COMMENT ON FUNCTION push.pause_webhooks(app text, note text) IS 'stops sending the events of an app; they are recorded and kept for at most 24 hours. app: name of the app; note: the reason, for people. Returns whether this changed anything, and a sentence. Running it twice is harmless';

CREATE FUNCTION push.phones_of(p_app text, p_is_call boolean, p_providers text[], p_voip_tokens text[], p_entry jsonb) RETURNS TABLE(rank integer, token text, environment smallint, platform smallint, locale text, registered_at timestamp with time zone, is_guess boolean)
    LANGUAGE sql STABLE
    AS $$
  select e.rank, case e.rank when 1 then e.apns when 2 then e.fcm when 3 then e.expo else e.webpush end,
    case when p_entry ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint,
    push.entry_platform((push.channels())[e.rank], p_entry), push.recipient_locale(p_entry), null, false
  from (
    -- The best channel whose token is not known to be dead. Each token is looked up only when it is its turn, and by its index: "not
    -- exists" could be planned as a hash of all dead tokens.
    select t.*, case
      when t.apns is not null and not exists (select from push.deaths_of(p_app, 'apns', t.apns))
        -- A token that is given both as a VoIP token and as an alert token counts as a VoIP token.
        and (p_is_call or lower(t.apns) <> all (p_voip_tokens) and (select true from push.devices x
          where sha256(x.token::bytea) = any (push.token_digests('apns', t.apns)) and x.app = p_app and x.provider = 'apns' and x.voip
          limit 1) is null)
        then 1
      when t.fcm is not null
        and (select true from push.token_invalidations x where x.token = t.fcm and x.app = p_app and x.provider = 'fcm') is null then 2
      when t.expo is not null
        and (select true from push.token_invalidations x where x.token = t.expo and x.app = p_app and x.provider = 'expo') is null then 3
      when t.webpush is not null
        and (select true from push.token_invalidations x where x.token = t.webpush and x.app = p_app and x.provider = 'webpush') is null
        then 4 end as rank
    from (
      -- Usable tokens: they have the right form (as push.channel_token) and belong to a provider that the app has.
      select case when push.is_token('apns', t.apns) and push.serves(p_providers, 'apns') then t.apns end as apns,
        case when push.is_token('fcm', t.fcm) and push.serves(p_providers, 'fcm') then t.fcm end as fcm,
        case when push.is_token('expo', t.expo) and push.serves(p_providers, 'expo') then t.expo end as expo,
        case when p_entry ? 'webPushSubscription' and push.serves(p_providers, 'webpush')
          then push.webpush_token(p_entry ->> 'webPushSubscription') end as webpush
      from (
        select translate(case when p_is_call then p_entry ->> 'voipPushToken' else p_entry ->> 'apnsToken' end, E'<> \t\r\n', '') as apns,
          btrim(p_entry ->> 'fcmToken', E' \t\r\n') as fcm, btrim(p_entry ->> 'pushToken', E' \t\r\n') as expo
        where jsonb_typeof(p_entry) = 'object' and push.has_token_member(p_entry)
        offset 0
      ) t
      offset 0
    ) t
    offset 0
  ) e
  where e.rank is not null
  union all
  -- On each platform the devices of the best channel, at most the ten newest in all. Browsers come last, so that old subscriptions never
  -- displace a phone.
  (select d.rank, d.token, (d.environment = 'sandbox')::int::smallint, d.platform, d.locale, d.registered_at, d.is_guess
  from (
    select d.*, min(d.rank) over (partition by d.platform) as best_rank, bool_or(d.platform in (1, 2)) over () as some_known
    from (
      select d.token, d.environment, d.locale, d.registered_at, d.platform is null as is_guess,
        array_position(push.channels(), d.provider) as rank, push.platform_code(d.platform, d.provider) as platform
      from push.devices d
      -- Of an entry with tokens, no device is looked up.
      where d.user_id = case when not (jsonb_typeof(p_entry) = 'object' and push.has_token_member(p_entry)) then push.entry_user(p_entry) end
        and d.app = p_app and d.enabled and d.invalidated_at is null
        -- A call rings through a VoIP token, everything else is shown through an alert token.
        and (d.provider <> 'apns' or d.voip = p_is_call) and push.serves(p_providers, d.provider)
    ) d
  ) d
  -- An Expo token without a platform may belong to a phone that is already reached over a better channel.
  where d.rank = d.best_rank and (d.platform > 0 or not d.some_known)
  order by d.platform = 3, d.registered_at desc limit 10)
$$;

COMMENT ON FUNCTION push.phones_of(p_app text, p_is_call boolean, p_providers text[], p_voip_tokens text[], p_entry jsonb) IS 'the phones that an entry of recipients stands for';

CREATE FUNCTION push.pick(p_gateway integer, p_claim integer, p_lanes smallint[], p_max integer[], p_floor timestamp with time zone[], p_first timestamp with time zone, p_total bigint, p_background bigint, p_later_floor timestamp with time zone[], p_later_max integer[], p_last smallint[], OUT places tid[], OUT calls bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
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

COMMENT ON FUNCTION push.pick(p_gateway integer, p_claim integer, p_lanes smallint[], p_max integer[], p_floor timestamp with time zone[], p_first timestamp with time zone, p_total bigint, p_background bigint, p_later_floor timestamp with time zone[], p_later_max integer[], p_last smallint[], OUT places tid[], OUT calls bigint[]) IS 'locks the ready deliveries that a claim may take, and returns where they are stored, and the calls that they are of, in the same order; null: none. p_first: the earliest deadline; the others: as for push.claim';

CREATE FUNCTION push.places(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_lease integer[], p_created_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[]) RETURNS tid[]
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
  return array(
    select coalesce(own.tid, other.tid) from generate_series(1, cardinality(p_outbox_id)) r(i)
    left join lateral (
      select d.ctid as tid from push.delivery d
      where d.outbox_id = p_outbox_id[r.i] and d.n = p_n[r.i] and d.lease = p_lease[r.i] and d.state = 1 and d.owner = p_gateway
        and p_created_at is null
      for no key update
    ) own on true
    left join lateral (
      select d.ctid as tid from push.delivery d
      where d.outbox_id = p_outbox_id[r.i] and d.n = p_n[r.i] and greatest(d.created_at, '2000-01-01 00:00:00+00') = p_created_at[r.i]
        and p_created_at is not null
      for no key update skip locked
    ) other on true
    order by r.i);
end
$$;

COMMENT ON FUNCTION push.places(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_lease integer[], p_created_at timestamp with time zone[]) IS 'locks deliveries, and returns where they are stored: those that the gateway has under their leases, or with p_created_at all that nobody has locked; null: not found. Arguments: as for push.settle';

CREATE FUNCTION push.platform_code(p_platform text, p_provider text) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case coalesce(p_platform, case p_provider when 'apns' then 'ios' when 'fcm' then 'android' when 'webpush' then 'web' end)
    when 'ios' then 1 when 'android' then 2 when 'web' then 3 else 0 end::smallint
$$;

COMMENT ON FUNCTION push.platform_code(p_platform text, p_provider text) IS 'push.delivery.platform of a device, by its channel if it names none; 0: unknown';

CREATE FUNCTION push.postpone_receipts(p_app text, p_ticket text[], p_delay_ms integer) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
  with later as (
    update push.receipt_batch r set claimed = false, due_at = least(clock_timestamp() + p_delay_ms * interval '1 ms', r.give_up_at)
    where r.app = p_app and r.claimed and r.attempts > 0 and r.ticket && p_ticket
    returning cardinality(r.ticket) as count
  )
  select coalesce(sum(l.count), 0) from later l
$$;

COMMENT ON FUNCTION push.postpone_receipts(p_app text, p_ticket text[], p_delay_ms integer) IS 'makes the batches of these tickets due again later, but not after they are given up; returns how many tickets that are. p_app: the app; p_ticket: the tickets; p_delay_ms: the delay in milliseconds';

CREATE FUNCTION push.promote(p_max integer DEFAULT 2000) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $_$
declare
  v_promoted bigint := push.change_rows(
    'update push.delivery d set state = 0, ready_lane = case when d.crashes < 2 then d.lane end where d.ctid = any ($1)', array(
      select w.ctid from push.delivery w
      where w.ready_lane is null and w.due_at <= statement_timestamp() and w.deadline_at > statement_timestamp() and w.state = 2
      order by w.due_at limit p_max for no key update skip locked));
begin
  perform push.ring_doorbell() where v_promoted > 0;
  return v_promoted;
end
$_$;

COMMENT ON FUNCTION push.promote(p_max integer) IS 'makes at most p_max waiting deliveries ready that are due. Returns how many. Whether their calls still ring is shown by the claim';

CREATE FUNCTION push.prune(p_max integer DEFAULT 5000, p_keep_days integer DEFAULT 15) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET lock_timeout TO '200ms'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $_$
declare
  -- A day longer than their history, which is found through the calls. A notification may be owed for longer.
  v_before timestamptz := (date_trunc('day', now() at time zone 'UTC')
    - make_interval(days => greatest(p_keep_days, 1))) at time zone 'UTC';
  v_begun  timestamptz := clock_timestamp();
  v_cursor push.prune_cursor;
  v_oldest timestamptz;
  v_done   bigint[];
  v_pruned bigint := 0;
begin
  perform push.prune_others();
  select c.* into v_cursor from push.prune_cursor c for update skip locked;
  if not found
    or v_cursor.after_id = 0 and v_cursor.until = v_before and v_cursor.ended_at > v_begun - interval '10 minutes' then
    return 0;
  end if;
  loop
    select max(b.id), min(b.created_at), array_agg(b.id) filter (where b.is_done) into v_cursor.after_id, v_oldest, v_done
      from (
        select o.id, o.created_at, o.created_at < v_before and o.ended_at is not null
          and (select true from push.delivery d where d.outbox_id = o.id limit 1) is null as is_done
        from push.outbox o
        where o.id > v_cursor.after_id
        order by o.id
        limit least(20, p_max - v_pruned)
      ) b;
    if coalesce(v_oldest >= v_before, true) then
      v_cursor.after_id := 0;
      v_cursor.until := v_before;
      v_cursor.ended_at := clock_timestamp();
      exit;
    end if;
    -- The trigger drop_calls deletes their other rows.
    v_pruned := v_pruned + push.change_rows('delete from push.outbox where ctid = any ($1)', array(
      select x.ctid from push.outbox x where x.id = any (v_done) order by x.id for update skip locked));
    exit when v_pruned >= p_max or clock_timestamp() > v_begun + interval '25 ms';
  end loop;
  update push.prune_cursor c
    set after_id = v_cursor.after_id, until = v_cursor.until, ended_at = v_cursor.ended_at;
  return v_pruned;
end
$_$;

COMMENT ON FUNCTION push.prune(p_max integer, p_keep_days integer) IS 'one step of retention: deletes at most p_max calls that were enqueued more than p_keep_days days before today (UTC), have ended and owe nothing, with their other rows, and what is too old elsewhere (push.prune_others). Returns how many. Stops after 25 ms and continues there the next time, until push.prune_cursor.after_id is 0. Locked rows, and those that a foreign key keeps, are left for the next pass';

CREATE FUNCTION push.prune_others() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $_$
declare
  v_table text;
  v_time  text;
  v_keep  interval;
begin
  for v_table, v_time, v_keep in values
    ('audit', 'at', interval '90 days'),
    -- Dead tokens. A token that is tried again is found dead again.
    ('token_invalidations', 'invalidated_at', '90 days'), ('devices', 'invalidated_at', '90 days'),
    ('quarantined_tokens', 'quarantined_at', '90 days'), ('provider_tokens', 'expires_at', '1 day'),
    ('erasure', 'coalesce(finished_at, asked_at)', '90 days'),
    -- Not while a delivery may still be claimed by the gateway.
    ('gateways', 'case when free_due_at is null then ended_at end', '1 day')
  loop
    execute format('select push.change_rows(''delete from push.%1$I where ctid = any ($1)'', array('
      'select ctid from push.%1$I where %2$s < now() - %3$L::interval order by %2$s limit 250 for update skip locked))', v_table, v_time, v_keep);
  end loop;
  -- Expo no longer has these receipts. Usually the app's gateway has given them up; an app that is no longer configured has
  -- no gateway.
  perform push.change_rows('delete from push.receipt_batch where ctid = any ($1)', array(
    select x.tid from push.lane l cross join lateral (
      select r.ctid as tid from push.receipt_batch r
      where r.app = l.app and r.due_at < now() - interval '1 day' and r.give_up_at < now() - interval '1 day'
      limit 25 for update skip locked
    ) x
    where l.provider = 'expo'));
  perform push.change_rows('delete from push.lane_status where ctid = any ($1)', array(
    select x.ctid from push.lane_status x where not exists (select from push.gateways g
      where g.id = x.gateway and (g.alive or g.ended_at > now() - interval '1 day')) limit 250 for update skip locked));
end
$_$;

COMMENT ON FUNCTION push.prune_others() IS 'deletes what is too old in other tables than that of calls, in small bites';

CREATE FUNCTION push.push_service(p_provider text, p_token text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case when p_provider <> 'webpush' then ''
    when p_token ~* '^https://([^/:]*[.])?(fcm[.]googleapis|google)[.]com[:/]' then 'google'
    when p_token ~* '^https://([^/:]*[.])?push[.]services[.]mozilla[.]com[:/]' then 'mozilla'
    when p_token ~* '^https://([^/:]*[.])?push[.]apple[.]com[:/]' then 'apple'
    when p_token ~* '^https://([^/:]*[.])?notify[.]windows[.]com[:/]' then 'windows'
    else 'other' end
$$;

COMMENT ON FUNCTION push.push_service(p_provider text, p_token text) IS 'which of push.push_services a push to this token goes to';

CREATE FUNCTION push.push_services(p_provider text) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select case p_provider when 'webpush' then '{google,mozilla,apple,windows,other}' else '{""}' end::text[] $$;

COMMENT ON FUNCTION push.push_services(p_provider text) IS 'who runs the push services behind a channel, each with a lane of its own; one empty name: it is one service';

CREATE FUNCTION push.pushes_of(p_calls bigint[]) RETURNS TABLE(id bigint, n integer, kind smallint, lane smallint, provider text, user_id text, token text, environment smallint, platform smallint, locale text, data jsonb, outcome smallint, reason text, may_ring boolean, fallback_of integer, deadline_at timestamp with time zone, bypassed boolean, last_n integer, created_at timestamp with time zone)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'push', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  -- Variables, so that only these partitions are read. The hours cover rows that are settled meanwhile, and a clock that was set.
  v_since timestamptz := (select min(o.created_at) from push.outbox o where o.id = any (p_calls)) - interval '1 hour';
  v_until timestamptz := clock_timestamp() + interval '1 hour';
begin
  return query
    select p.outbox_id, p.n, p.kind, p.lane, l.provider, p.user_id,
      coalesce(p.token, case when p.hash is not null then (
        -- Release 0.1.0 kept the mask and a hash. Calls that rang during the upgrade have such rows.
        select t.token from (
          select t.token from jsonb_array_elements(o.recipients) e cross join lateral push.entry_tokens(e, true) t
          where push.is_recipient(e) and e ->> 'userId' = p.user_id and t.provider = l.provider
          union all
          select d.token from push.devices d
          where d.user_id = p.user_id and d.app = l.app and d.provider = l.provider and d.enabled and d.invalidated_at is null
        ) t
        where hashtextextended(t.token, 0) = p.hash and left(t.token, 4) || '…' || right(t.token, 4) = p.device limit 1) end),
      p.environment, p.platform, p.locale, p.data, p.outcome, p.reason, p.may_ring, p.fallback_of, p.deadline_at, p.bypassed,
      max(p.n) over (partition by p.outbox_id), p.created_at
    from unnest(p_calls) c(id)
    cross join lateral (select o.created_at, o.recipients from push.outbox o where o.id = c.id offset 0) o
    cross join lateral (
      select d.outbox_id, d.n, d.kind, d.lane, d.user_id, d.token, null as device, null::bigint as hash, d.environment, d.platform,
        d.locale, d.data, case when d.accepted_at is not null then 0::smallint end as outcome, null::text as reason,
        d.attempt > d.found_ended::int as may_ring, d.fallback_of, d.deadline_at,
        d.bypassed_at is not null as bypassed, d.created_at
      from push.delivery d where d.outbox_id = c.id
      union all
      -- A gateway that settles says whether the request left; otherwise each attempt may have. One that is dead did not arrive if every
      -- try was refused; of a hedged try only one of the two was answered.
      select h.outbox_id, h.n, h.kind, h.lane, h.user_id, h.token, h.device, h.token_hash, h.environment, h.platform, h.locale, h.data,
        h.outcome, h.reason, (h.sent_at is not null or h.attempts > case when h.owner is null then 0 else 1 end)
          and case when h.outcome <> 4 then true else h.attempts > (
              select count(*) from jsonb_array_elements(h.failures) f where f ->> 'status' <> '0' and not f ? 'hedged')
            + case when h.status is null or h.failures @> jsonb_build_array(jsonb_build_object('attempt', h.attempts, 'hedged', true))
              then 0 else 1 end end, h.fallback_of, h.deadline_at, false, h.created_at
      -- Ids may repeat: a former call has ended before.
      from push.history h
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and greatest(h.created_at, h.finished_at) >= o.created_at
      offset 0
    ) p
    cross join lateral (select l.app, l.provider from push.lane l where l.id = p.lane offset 0) l;
end
$$;

COMMENT ON FUNCTION push.pushes_of(p_calls bigint[]) IS 'everything that calls have sent or still owe';

CREATE FUNCTION push.put_aside(p_lanes smallint[], p_max integer[]) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
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
$_$;

COMMENT ON FUNCTION push.put_aside(p_lanes smallint[], p_max integer[]) IS 'after a claim that failed because of a row: ends the ready deliveries of calls that cannot be read as dead (Unreadable), and deletes those that cannot be read themselves. push.audit and push.health name the calls. p_lanes, p_max: as for push.claim. Returns how many calls';

CREATE FUNCTION push.put_away() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    AS $_$
declare
  c_most     constant int := 20000;
  v_restored timestamptz := push.restored_at();
  v_places   tid[];
  v_left     bigint;
begin
  -- This function itself updates push.gateways.
  if v_restored is null or pg_trigger_depth() > 1 then
    return null;
  end if;
  -- One session at a time; the others skip this.
  perform from push.origin o for update skip locked;
  v_restored := push.restored_at();
  if not found or v_restored is null then
    return null;
  end if;
  -- Gateways from before the restore do not run here.
  update push.gateways g set alive = false, ended_at = clock_timestamp(), ended_reason = 'silent'
    where g.alive and g.started_at < v_restored;
  -- Ends that were still to be announced then, or told to phones.
  delete from push.follow_ups f where f.noted_at < v_restored;
  v_places := array(select d.ctid from push.delivery d where d.created_at < v_restored limit c_most for update skip locked);
  -- What history refuses must not keep claims closed.
  perform push.change_rows('delete from push.delivery where ctid = any ($1)', v_places)
    where push.bury(v_places, 2, 'Restored') < cardinality(v_places);
  if cardinality(v_places) = c_most then
    return null;
  end if;
  -- Missed and voided: no device gets a push for this. A call whose end cannot be written is left to push.miss.
  v_places := array(select x.ctid from push.outbox x where x.state = 'ringing' and x.created_at < v_restored
    limit c_most / 4 for update skip locked);
  v_left := cardinality(v_places) - push.change_rows('update push.outbox o set state = ''missed'', end_reason = ''restored'', voided = true '
    'where o.ctid = any ($1)', v_places);
  -- A row that was locked is ended later.
  if not exists (select from push.delivery d where d.created_at < v_restored)
    and (select count(*) from push.outbox o where o.state = 'ringing' and o.created_at < v_restored) <= v_left then
    delete from push.origin;
    insert into push.origin default values;
  end if;
  return null;
end
$_$;

COMMENT ON FUNCTION push.put_away() IS 'in a restored database: ends some of what was owed or rang before, without a push to any device';

CREATE FUNCTION push.put_off(p_notes tid[], p_state text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_calls bigint[] := array(select distinct f.outbox_id from push.follow_ups f where f.ctid = any (p_notes));
  v_why   text := (select f.why from push.follow_ups f where f.ctid = p_notes[1]);
  v_tries int := (select greatest(max(f.tries), 0) from push.follow_ups f where f.ctid = any (p_notes));
  -- With the other notes of these calls that are due, which would fail the same way.
  v_tids  tid[] := array(
    select f.ctid from push.follow_ups f
    where f.outbox_id = any (v_calls) and (f.tries = 0 and f.due_at <= clock_timestamp() or f.ctid = any (p_notes)) for update skip locked);
begin
  if cardinality(v_calls) > 1 then
    update push.follow_ups f set tries = -1, due_at = clock_timestamp() where f.ctid = any (v_tids);
    return;
  end if;
  delete from push.follow_ups f where f.ctid = any (v_tids) and f.noted_at < clock_timestamp() - interval '4 hours';
  update push.follow_ups f
    set tries = v_tries + 1, due_at = clock_timestamp()
      + least(interval '250 ms' * power(4, least(v_tries, 10)), interval '30 minutes')
    where f.ctid = any (v_tids);
  -- By its number: a look at push.outbox would wait for a TRUNCATE, which waits for these notes.
  raise warning 'push.outbox.id %: what follows (%) failed (SQLSTATE %); %', v_calls[1], v_why, p_state,
    case when found then 'it is tried again' else 'its phones and users are told nothing more' end;
end
$$;

COMMENT ON FUNCTION push.put_off(p_notes tid[], p_state text) IS 'after an error: the notes of one call are tried again later, those of several are tried call by call. p_notes: where they are stored; p_state: SQLSTATE. The message of the error is not shown, because it may contain a token';

CREATE FUNCTION push.quota_fault(p_app text, p_counts bigint[], p_refuses boolean DEFAULT false, p_uses boolean DEFAULT false) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
declare
  v_full record;
  v_wait int;
begin
  select q.id, k.*, k.count * (not p_uses)::int as added into v_full from push.quota q
    cross join lateral unnest((push.meter_names())[:3], q.limits, p_counts) with ordinality k(what, most, count, place)
    where q.app = p_app and case when k.count > 0 and k.most is not null and push.meter(q.id, k.what) is not null
      then (push.read_meter(q.id, k.what, p_count => k.count * p_uses::int)).used + k.count * (not p_uses)::int > k.most end
    order by k.place limit 1;
  if not found or not p_refuses then
    return case when found then '{}' end::jsonb;
  end if;
  perform push.count_on_meter(m.meter, 1) from push.meter(v_full.id, 'refusals') m(meter) where m.meter is not null;
  if v_full.count > v_full.most and v_full.most > 0 then
    return jsonb_build_object('code', '22023', 'column', case v_full.what when 'recipients' then 'recipients' else 'app' end,
      'message', format('%s: this statement has %s %s, and the quota of app %s is %s a minute; split it',
        case v_full.what when 'recipients' then 'recipients' else 'app' end, v_full.count, v_full.what, p_app, v_full.most),
      'detail', format('quota=%s', v_full.most),
      'hint', 'Nothing of this statement was enqueued. push.quotas shows the quota, and push.set_quota changes it.');
  end if;
  -- If it is 0, the HTTP API needs a number for Retry-After, too.
  v_wait := case v_full.most when 0 then 60 else (push.read_meter(v_full.id, v_full.what, (v_full.most - v_full.added)::int)).wait end;
  return jsonb_build_object('code', '53Q01', 'detail', format('retry_after_seconds=%s', v_wait), 'column', 'app',
    'message', case v_full.most when 0 then format('app: app %s may enqueue no %s: its quota is 0', p_app, v_full.what)
      else format('app: app %s has used up its quota of %s %s a minute', p_app, v_full.most, v_full.what) end,
    'hint', 'Nothing of this statement was enqueued. ' || case v_full.most when 0 then 'An operator ends that with push.set_quota.'
      else format('Enqueue less, and try again in %s s. push.quotas shows what is used, and push.set_quota changes the quota.', v_wait) end);
end
$$;

COMMENT ON FUNCTION push.quota_fault(p_app text, p_counts bigint[], p_refuses boolean, p_uses boolean) IS 'null: the quota has room for a statement; else, with p_refuses, the error: code, message, detail, hint and column, for RAISE. p_uses: counts the statement, also if there is no room for it';

CREATE FUNCTION push.quota_uses(p_quota push.quota) RETURNS TABLE(what text, "limit" integer, used integer, refusals integer, refused_at timestamp with time zone, configured integer, set_to integer)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select k.what, k."limit", (push.read_meter(p_quota.id, k.what)).used, (push.read_meter(p_quota.id, 'refusals')).used,
    least(to_timestamp(60 * (n.next - ((n.next - (m.refusals >> 44)) & 524287))), clock_timestamp()), k.configured, k.set_to
  from unnest((push.meter_names())[:3], p_quota.limits, p_quota.configured, p_quota.set_to) k(what, "limit", configured, set_to)
  cross join pg_sequence_last_value(push.meter(p_quota.id, 'refusals')) m(refusals)
  cross join (select floor(date_part('epoch', clock_timestamp()) / 60)::bigint + 1) n(next)
$$;

COMMENT ON FUNCTION push.quota_uses(p_quota push.quota) IS 'the quota of an app and its use, one row for each limit, also where there is none now. For push.quotas. p_quota: the app''s row';

CREATE FUNCTION push.read_meter(p_id integer, p_what text, p_room integer DEFAULT NULL::integer, p_count bigint DEFAULT 0, OUT used integer, OUT wait integer) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
  v_minutes  double precision := date_part('epoch', clock_timestamp()) / 60;
  v_part     double precision := v_minutes - floor(v_minutes);
  v_given    bigint := coalesce(pg_sequence_last_value(push.meter(p_id, p_what || '_returned')), 0);
  v_counted  bigint := push.meter_at(coalesce(case when p_count > 0 then push.count_on_meter(push.meter(p_id, p_what), p_count)
    else pg_sequence_last_value(push.meter(p_id, p_what)) end, 0), floor(v_minutes)::bigint);
  v_returned bigint := push.meter_at(v_given, v_counted >> 44);
  v_before   double precision := greatest(0, ((v_counted >> 22) & 4194303) - ((v_returned >> 22) & 4194303));
  v_count    double precision := greatest(0, (v_counted & 4194303) - (v_returned & 4194303));
begin
  used := ceil(v_before * (1 - v_part)) + v_count;
  -- The minute before is forgotten during this one, and this one during the next.
  wait := greatest(1, ceil(60 * (case
    when v_count <= p_room then greatest(0, 1 - (p_room - v_count) / greatest(v_before, 1)) - v_part
    else 1 - v_part + 1 - p_room / v_count end)));
end
$$;

COMMENT ON FUNCTION push.read_meter(p_id integer, p_what text, p_room integer, p_count bigint, OUT used integer, OUT wait integer) IS 'counts p_count on a meter; returns what it has counted in the last minute, and seconds until that is down to p_room';

CREATE FUNCTION push.recipient_data(p_entry jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
  select case when jsonb_typeof(p_entry -> 'data') is distinct from 'object' or p_entry -> 'data' = '{}' then null
    -- Before anything becomes text: only that of texts is about as long as their JSON.
    when (p_entry -> 'data') @? 'strict $.* ? (@.type() != "string")' then null
    when octet_length((p_entry -> 'data')::text) <= 1024 then p_entry -> 'data' end
$_$;

COMMENT ON FUNCTION push.recipient_data(p_entry jsonb) IS 'the data of an entry of recipients, for templates; null: none that can be used';

CREATE FUNCTION push.recipient_faults(p_recipients jsonb, p_kind text, p_app text) RETURNS TABLE(i integer, user_id text, reason text, field text, remedy text)
    LANGUAGE sql STABLE
    AS $_$
  with entry as materialized (
    select (e.ordinal - 1)::int as i, e.entry, format('recipients[%s]', e.ordinal - 1) as path,
      push.is_recipient(e.entry) as is_usable,
      left(case when jsonb_typeof(e.entry) = 'string' then e.entry #>> '{}'
        when jsonb_typeof(e.entry -> 'userId') = 'string' then e.entry ->> 'userId' end, 256) as user_id
    from jsonb_array_elements(case jsonb_typeof(p_recipients) when 'array' then p_recipients end)
      with ordinality e(entry, ordinal)
    where e.entry -> 'notificationEnabled' is distinct from 'false'
  ), token as materialized (
    select e.*, t.*, push.channel_token(t.provider, t.token) is not null as is_good,
      push.serves(a.providers, t.provider) as is_served
    from entry e
    cross join lateral (values
      ('voipPushToken', 'apns', push.is_call(p_kind), translate(e.entry ->> 'voipPushToken', E'<> \t\r\n', '')),
      ('apnsToken', 'apns', not push.is_call(p_kind), translate(e.entry ->> 'apnsToken', E'<> \t\r\n', '')),
      ('fcmToken', 'fcm', true, btrim(e.entry ->> 'fcmToken', E' \t\r\n')),
      ('pushToken', 'expo', true, btrim(e.entry ->> 'pushToken', E' \t\r\n')),
      ('webPushSubscription', 'webpush', true, e.entry ->> 'webPushSubscription')) t(member, provider, is_asked, token)
    left join push.apps a on a.app = p_app
    where e.is_usable and t.token <> ''
  )
  select e.i, e.user_id, 'RecipientMalformed', e.path || w.member, w.remedy
  from entry e cross join lateral push.misnamed(e.entry) l cross join lateral (
    select m.* from (values
      (1, '', pg_column_size(e.entry) > 16384, 'must have at most 16384 bytes; is one of its tokens something else?'),
      (2, '', jsonb_typeof(e.entry) = 'string', 'must be a user id of 1 to 256 characters'),
      (3, '', jsonb_typeof(e.entry) <> 'object', 'must be a user id, or an object with a userId'),
      (4, '.userId', jsonb_typeof(e.entry -> 'userId') is distinct from 'string' or length(e.entry ->> 'userId') not between 1 and 256,
        'must be a string of 1 to 256 characters'),
      (5, '.notificationEnabled', coalesce(jsonb_typeof(e.entry -> 'notificationEnabled') not in ('boolean', 'null'), false),
        'must be true or false, or left out'),
      (6, '.' || l.name, true, 'is not read; write ' || l.member)) m(place, member, is_bad, remedy)
    where m.is_bad order by m.place limit 1
  ) w
  where not e.is_usable
  union all
  select e.i, e.user_id, 'MemberIgnored', e.path || m.member, m.remedy || ', or left out; it was ignored'
  from entry e cross join lateral (values
    ('.platform', e.entry ->> 'platform' not in ('ios', 'android')
      and not (e.entry ->> 'platform' = 'web' and e.entry ? 'webPushSubscription'), 'must be ios or android'),
    ('.environment', e.entry ->> 'environment' not in ('production', 'sandbox', 'development'), 'must be production or sandbox'),
    ('.locale', e.entry -> 'locale' <> 'null' and push.recipient_locale(e.entry) is null, 'must be a string of at most 64 characters'),
    ('.missedCall', jsonb_typeof(e.entry -> 'missedCall') not in ('boolean', 'null'), 'must be true or false'),
    ('.data', e.entry -> 'data' not in ('null', '{}') and push.recipient_data(e.entry) is null,
      'must be an object of texts, 1024 bytes at most')) m(member, is_bad, remedy)
  where e.is_usable and m.is_bad
  union all
  select e.i, e.user_id, 'MemberIgnored', e.path || '.' || k.name, 'is not known, and was ignored'
  from entry e cross join lateral (
    select k.name from jsonb_object_keys(case jsonb_typeof(e.entry) when 'object' then e.entry - push.recipient_members() else '{}' end) k(name)
    -- A name may be a token.
    where k.name ~ '^[A-Za-z_]+$' and length(k.name) <= 32 limit 10
  ) k
  where e.is_usable
  union all
  select t.i, t.user_id, case when r.remedy like 'must %' then 'TokenMalformed' else 'TokenMisplaced' end, t.path || '.' || t.member, r.remedy
  from token t cross join lateral push.token_remedy(t.provider, t.token) r(remedy)
  where not t.is_good
  union all
  -- Recipients that have no token that could be used.
  select t.i, t.user_id, 'ProviderNotConfigured', t.path || '.' || t.member,
    format('app %s has no %s in the gateway''s configuration; add it, or give another token', left(p_app, 64), t.provider)
  from token t
  where t.is_good and t.is_asked and not t.is_served
    and not exists (select from token x where x.i = t.i and x.is_good and x.is_asked and x.is_served)
$_$;

COMMENT ON FUNCTION push.recipient_faults(p_recipients jsonb, p_kind text, p_app text) IS 'parts of recipients that cannot be used, except in entries with notificationEnabled false';

CREATE FUNCTION push.recipient_locale(p_entry jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case when jsonb_typeof(p_entry -> 'locale') = 'string' and length(p_entry ->> 'locale') <= 64
    then p_entry ->> 'locale' end
$$;

COMMENT ON FUNCTION push.recipient_locale(p_entry jsonb) IS 'the locale of an entry of recipients; null: it has none that can be used';

CREATE FUNCTION push.recipient_members(p_are_misnamed boolean DEFAULT false) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case when p_are_misnamed
    then '{voip_push_token,voipToken,voip_token,voipTokens,voip_tokens,voip,apns_token,apnToken,apns,fcm_token,firebaseToken,firebase_token,fcm,'
      'push_token,expoPushToken,expo_push_token,expoToken,expo_token,expo,web_push_subscription,pushSubscription,push_subscription,'
      'subscription,notification_enabled,notificationsEnabled,notifications_enabled}'
    else '{userId,voipPushToken,apnsToken,fcmToken,pushToken,webPushSubscription,platform,environment,locale,data,notificationEnabled,'
      'missedCall}' end::text[]
$$;

COMMENT ON FUNCTION push.recipient_members(p_are_misnamed boolean) IS 'the members that an object in recipients may have; p_are_misnamed: instead, names that backends give to some of them';

CREATE FUNCTION push.reclaim(p_gateway integer, p_claim integer, p_outbox_id bigint[], p_n integer[]) RETURNS TABLE(i integer, place tid)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$ select null::int, null::tid where false $$;

COMMENT ON FUNCTION push.reclaim(p_gateway integer, p_claim integer, p_outbox_id bigint[], p_n integer[]) IS 'for gateways of release 0.1.0: claims nothing again, whatever p_gateway, p_claim, p_outbox_id and p_n say';

CREATE FUNCTION push.refuse_app(p_app text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
begin
  if not push.is_own(p_app) then
    raise exception using errcode = 'insufficient_privilege',
      message = format('app: this login may not act for app %s', coalesce(left(p_app, 64), 'without a name')),
      hint = 'Nothing of this statement was done. push.grant_app lets a role act for an app; push.app_grants shows which it has.',
      schema = 'push', column = 'app';
  end if;
end
$$;

COMMENT ON FUNCTION push.refuse_app(p_app text) IS 'raises the error for an app that the caller may not act for';

CREATE FUNCTION push.refuse_slots() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_fault text;
begin
  -- A snapshot of the transaction may show a map that was replaced since: then this is a serialization failure.
  perform from push.shard_map m
    where current_setting('transaction_isolation') in ('repeatable read', 'serializable') and m.until is null for share;
  select format('callId: call %s belongs to shard %s, and this is shard %s (map %s)', n.call_id, m.shards[push.slot_of(n.call_id) + 1],
      tg_argv[0], m.generation) into v_fault
    from (select m.shards, m.generation from push.shard_map m where m.until is null offset 0) m cross join new_calls n
    where m.shards[push.slot_of(n.call_id) + 1] <> tg_argv[0]::int and n.created_at >= statement_timestamp()
    limit 1;
  if found then
    raise exception using errcode = '22S01', message = v_fault,
      hint = 'Nothing of this statement was enqueued. Enqueue it there, or through the router.',
      schema = 'push', table = 'outbox', column = 'call_id';
  end if;
  return null;
end
$$;

COMMENT ON FUNCTION push.refuse_slots() IS 'refuses new calls whose slot another shard owns, with SQLSTATE 22S01';

CREATE FUNCTION push.register_app(p_app text, p_ring_seconds integer, p_escalate_after integer DEFAULT NULL::integer, p_at_least_once boolean DEFAULT false, p_providers text[] DEFAULT NULL::text[], p_missed_calls text DEFAULT NULL::text, p_voip_cancel boolean DEFAULT NULL::boolean, p_quota integer[] DEFAULT NULL::integer[], p_replica text DEFAULT NULL::text, p_known text[] DEFAULT NULL::text[], p_message_text boolean DEFAULT NULL::boolean) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_old push.apps;
begin
  -- During an upgrade, gateways of two releases register the same app in turns. What one does not pass stays as it is, and one that does
  -- not know a channel must not remove it.
  select a.* into v_old from push.apps a where a.app = p_app for no key update;
  if p_providers is not null then
    p_providers := p_providers || array(
      select c.name from unnest(v_old.providers) c(name) where c.name <> all (coalesce(p_known, '{apns,fcm,expo}') || p_providers));
  end if;
  insert into push.apps as a (app, ring_seconds, escalate_after_seconds, at_least_once, providers, missed_calls, voip_cancel, message_text)
    values (p_app, p_ring_seconds, p_escalate_after, coalesce(p_at_least_once, false), coalesce(p_providers, v_old.providers),
      case when p_missed_calls is null then v_old.missed_calls else nullif(p_missed_calls, 'default') end,
      coalesce(p_voip_cancel, v_old.voip_cancel, false), coalesce(p_message_text, v_old.message_text, false))
    on conflict (app) do update set ring_seconds = excluded.ring_seconds, escalate_after_seconds = excluded.escalate_after_seconds,
        at_least_once = excluded.at_least_once, providers = excluded.providers, missed_calls = excluded.missed_calls,
        voip_cancel = excluded.voip_cancel, message_text = excluded.message_text, updated_at = clock_timestamp()
      where to_jsonb(a) - 'updated_at' <> to_jsonb(excluded) - 'updated_at';
  perform push.register_lane(p_app, p.name, s.name)
    from unnest(coalesce(p_providers, '{apns,fcm,expo}')) p(name) cross join lateral unnest(push.push_services(p.name)) s(name);
  perform push.configure_quota(p_app, p_quota, p_replica) where p_quota is not null;
end
$$;

COMMENT ON FUNCTION push.register_app(p_app text, p_ring_seconds integer, p_escalate_after integer, p_at_least_once boolean, p_providers text[], p_missed_calls text, p_voip_cancel boolean, p_quota integer[], p_replica text, p_known text[], p_message_text boolean) IS 'stores what the configuration says about an app, for enqueueing, and makes its lanes. p_app: its name; p_ring_seconds, p_escalate_after, p_at_least_once: as in push.apps; p_providers, p_missed_calls (or default), p_voip_cancel, p_message_text: the same; null: unchanged; p_quota: calls, notifications and recipients a minute, each null for no limit; null as a whole: unchanged; p_replica: name of the gateway; p_known: the channels that it knows; null: apns, fcm and expo. Channels that it does not know stay as they are';

CREATE FUNCTION push.register_device(user_id text, app text, provider text, token text, environment text DEFAULT 'production'::text, platform text DEFAULT NULL::text, locale text DEFAULT NULL::text, voip boolean DEFAULT true) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_given     constant text := push.channel_token(register_device.provider, register_device.token);
  v_key       constant text := push.token_key(register_device.provider, v_given);
  v_token     constant text := case v_given when upper(v_given) then v_given else v_key end;  -- as push.check_device
  v_text      text := v_token;
  v_is_served constant boolean := exists (select from push.lane l where l.app = register_device.app);
  v_fault     text;
begin
  perform push.refuse_app(register_device.app);
  -- Not by the trigger: the context of its error would quote the INSERT.
  v_fault := push.device_fault(register_device.user_id, register_device.app, register_device.provider, v_token,
    case when register_device.environment = 'development' then 'sandbox' else register_device.environment end, register_device.platform,
    register_device.locale, v_is_served);
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault, hint = 'The device was not registered.',
      schema = 'push', table = 'devices', column = substring(v_fault from '^push.devices.([a-z_]+)');
  end if;
  -- A device whose APNs token was registered in other letters gets the new text, and stays what it is.
  if register_device.provider = 'apns' then
    begin
      update push.devices d set token = v_token where d.token <> v_token and d.id = (
        select x.id from push.devices x
        where sha256(x.token::bytea) = any (push.token_digests('apns', v_token)) and x.app = register_device.app and x.provider = 'apns'
        order by x.token = v_token desc, x.registered_at desc limit 1);
    exception when unique_violation then
      null;  -- another session has just registered this text
    end;
  end if;
  -- The unique index compares texts. So a new token in capitals is inserted in small letters, and gets its own afterwards: of two sessions
  -- that register it in different letters, one waits for the other.
  if v_token <> v_key and not exists (select from push.devices x
      where sha256(x.token::bytea) = sha256(v_token::bytea) and x.app = register_device.app and x.provider = 'apns') then
    v_text := v_key;
  end if;
  insert into push.devices as d (user_id, app, provider, token, environment, platform, locale, voip)
    values (register_device.user_id, register_device.app, register_device.provider, v_text, register_device.environment, register_device.platform,
      register_device.locale, coalesce(register_device.voip, true))
    on conflict (sha256(token::bytea), app, provider) do update set
      user_id = excluded.user_id, environment = excluded.environment, voip = excluded.voip,
      platform = coalesce(excluded.platform, d.platform), locale = coalesce(excluded.locale, d.locale),
      -- The switch belongs to the user: when the phone passes to another user, it is on again.
      enabled = d.enabled or d.user_id <> excluded.user_id,
      registered_at = clock_timestamp(), invalidated_at = null, invalid_reason = null;
  if v_text <> v_token then
    -- Of a session for which this one has waited.
    delete from push.devices d where sha256(d.token::bytea) = sha256(v_token::bytea) and d.app = register_device.app and d.provider = 'apns';
    update push.devices d set token = v_token
      where sha256(d.token::bytea) = sha256(v_key::bytea) and d.app = register_device.app and d.provider = 'apns';
  end if;
end
$$;

COMMENT ON FUNCTION push.register_device(user_id text, app text, provider text, token text, environment text, platform text, locale text, voip boolean) IS 'registers a token that a phone or browser has just given: it belongs to this user and is alive. To be called at every login. user_id: the backend''s id of the user; app: the app; provider: one of push.channels(); token: the token, or with provider webpush the PushSubscription that the browser gives, as JSON; environment: of an APNs token, production or sandbox; platform: ios or android, web for a browser, or null if it is not known; locale: language of visible texts, or null; voip: of an APNs token, true for PushKit';

CREATE FUNCTION push.register_gateway(p_name text, p_version text) RETURNS integer
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  -- Waits for the disk. A session may have asked for more than "on"; that is kept.
  select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') in ('off', 'local');
  insert into push.gateways (name, version, login)
    values (p_name, p_version, coalesce(nullif(current_setting('role'), 'none'), session_user)) returning id
$$;

COMMENT ON FUNCTION push.register_gateway(p_name text, p_version text) IS 'registers a new life of a gateway. The result fences the gateway''s statements. p_name: host or pod; p_version: of the program';

CREATE FUNCTION push.register_lane(p_app text, p_provider text, p_service text DEFAULT ''::text) RETURNS smallint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
begin
  insert into push.lane (app, provider, service, channel)
    select p_app, p_provider, p_service, p_provider || case p_service when '' then '' else '/' || p_service end
    where not exists (select from push.lane l where l.app = p_app and l.provider = p_provider and l.service = p_service)
    on conflict (app, provider, service) do nothing;
  return (select l.id from push.lane l where l.app = p_app and l.provider = p_provider and l.service = p_service);
end
$$;

COMMENT ON FUNCTION push.register_lane(p_app text, p_provider text, p_service text) IS 'the lane of an app and provider; makes it if it is missing. For gateways and push.grant_app. p_app: the app; p_provider: one of push.channels(); p_service: one of push.push_services(p_provider). Returns push.lanes.id';

CREATE FUNCTION push.release(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_lease integer[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_none   int[] := array_fill(null::int, array[coalesce(cardinality(p_outbox_id), 0)]);
  v_parked bigint := push.park(p_gateway, p_outbox_id, p_n, p_lease, v_none, v_none, v_none::text[]);
begin
  perform push.void_unsent(p_outbox_id);
  return v_parked;
end
$$;

COMMENT ON FUNCTION push.release(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_lease integer[]) IS 'for gateways of release 0.1.0: push.park without a delay and without the attempt. Invites of calls that have ended become void. p_gateway, p_outbox_id, p_n, p_lease: as for push.settle';

CREATE FUNCTION push.report_lanes(p_gateway integer, p_lane smallint[], p_window integer[], p_capacity integer[], p_in_flight integer[], p_circuit text[], p_throttled_ms integer[], p_rate integer[], p_refusal text[] DEFAULT NULL::text[], p_refused text[] DEFAULT NULL::text[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
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

COMMENT ON FUNCTION push.report_lanes(p_gateway integer, p_lane smallint[], p_window integer[], p_capacity integer[], p_in_flight integer[], p_circuit text[], p_throttled_ms integer[], p_rate integer[], p_refusal text[], p_refused text[]) IS 'a replica reports the status of its lanes, to be called every second. p_gateway: what push.register_gateway returned. Arrays, by lane: p_lane: push.lanes.id; p_window, p_capacity: number of requests that it allows, and could allow, in flight; p_in_flight: requests in flight; p_circuit: closed, half_open or open; p_throttled_ms: milliseconds until it sends again, 0 or null: now; p_rate: requests in the last second; p_refusal, p_refused: push.lane_status.refusal and refused, null: from releases without them';

CREATE FUNCTION push.report_ringing(call_id text, user_id text, app text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  v_id bigint := push.find_call(call_id, app, coalesce(user_id, ''));
begin
  with made as (
    insert into push.ring_reports as r (outbox_id, user_id) values (v_id, report_ringing.user_id)
      on conflict on constraint ring_reports_pkey do nothing
      returning r.rang_at
  )
  -- How long it took.
  insert into push.tally (what, app, seconds)
  select 'rang', o.app, greatest(0, extract(epoch from m.rang_at - o.created_at)) from made m join push.outbox o on o.id = v_id;
  return found;
end
$$;

COMMENT ON FUNCTION push.report_ringing(call_id text, user_id text, app text) IS 'a phone of this user reports that the call rings. call_id: payload.callId; user_id: as in the call''s recipients; app: needed only if several apps have a call with this id. Returns false if a phone of this user had reported it before';

CREATE FUNCTION push.requeue(call_id text, app text DEFAULT NULL::text) RETURNS TABLE(requeued integer, message text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_call  push.outbox;
  v_woken int;
  v_made  int := 0;
begin
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    raise exception using errcode = 'active_sql_transaction',
      message = 'push.requeue must see what was committed last: run it under READ COMMITTED',
      hint = 'begin isolation level read committed;';
  end if;
  -- Nobody ends the call meanwhile, or tries its next channels.
  select o.* into v_call from push.outbox o where o.id = push.find_call(requeue.call_id, requeue.app) for no key update;
  requeued := 0;
  if v_call.ended_at is not null or v_call.deadline_at <= clock_timestamp() then
    message := format('call %s rings no more (%s); nothing was requeued', v_call.call_id,
      case when v_call.ended_at is null then 'its ring window is over' else v_call.state end);
  else
    -- A condition "state = 2" may be planned as a scan of all waiting deliveries, and there are most of them when this
    -- function is needed.
    update push.delivery d
      set state = 0, ready_lane = case when d.crashes < 2 then d.lane end, due_at = clock_timestamp(), handed_on_by = null
      where d.ctid = any (array(select x.ctid from push.delivery x where x.outbox_id = v_call.id))
        and d.kind = 0 and (d.state = 2 or d.state = 0 and d.handed_on_by is not null) and d.deadline_at > clock_timestamp();
    get diagnostics v_woken = row_count;
    with last as (
      -- The last push to each device.
      select distinct on (p.lane, k.key) p.*, k.key
      from push.pushes_of(array[v_call.id]) p cross join lateral (select push.token_key(p.provider, p.token)) k(key)
      where p.kind = 0 order by p.lane, k.key, p.n desc
    )
    insert into push.delivery (outbox_id, n, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
    select v_call.id, p.last_n + row_number() over (order by p.lane, p.key), v_call.deadline_at, p.lane, p.lane,
      coalesce(p.environment, 0), coalesce(p.platform, 0), p.user_id, p.token, p.locale, p.data
    from last p
    where p.outcome in (3, 4) and p.token is not null and not coalesce(v_call.declined ? p.user_id, false)
      -- Its user may have logged out since.
      and ((p.user_id, p.key) in (
          select e ->> 'userId', push.token_key(t.provider, t.token) from jsonb_array_elements(v_call.recipients) e cross join lateral
            push.entry_tokens(e, true) t
          where push.is_recipient(e))
        or (select true from push.devices d
          where d.user_id = p.user_id and d.app = v_call.app and d.provider = p.provider
            and push.token_key(d.provider, d.token) = p.key and d.enabled
            and d.invalidated_at is null limit 1))
      and not exists (select from push.deaths_of(v_call.app, p.provider, p.token));
    get diagnostics v_made = row_count;
    requeued := v_woken + v_made;
    perform push.ring_doorbell() where requeued > 0;
    message := format('call %s: %s', v_call.call_id, case requeued
      when 0 then 'nothing to requeue: no invite of a living token has failed or is waiting'
      else format('%s invites are ready again: %s had failed, %s were waiting', requeued, v_made, v_woken) end)
      || coalesce((select '; invites of a paused lane ring when it is resumed: ' || string_agg(distinct l.app || '/' || l.channel, ', ')
        from push.delivery d join push.lane l on l.id = d.lane
        where d.outbox_id = v_call.id and d.kind = 0 and d.state = 0 and l.paused), '');
  end if;
  insert into push.audit (action, target, detail) values ('requeue', v_call.app || '/' || v_call.call_id, jsonb_build_object('requeued', requeued));
  return next;
end
$$;

COMMENT ON FUNCTION push.requeue(call_id text, app text) IS 'tries a call again that still rings: makes a new invite for each device whose last one failed (dead or expired) and whose token is not known to be dead, and makes waiting invites ready. call_id: payload.callId; app: needed only if several apps have a call with this id. Returns how many became ready, and a sentence that says what was done. Running it twice is harmless: invites that are owed or were delivered are left alone. Commit at once: until then the call cannot end';

CREATE FUNCTION push.resend_webhooks(app text, call_id text DEFAULT NULL::text, since timestamp with time zone DEFAULT NULL::timestamp with time zone) RETURNS TABLE(recorded bigint, message text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  c_max   constant int := 10000;
  v_app   text := push.check_webhook(resend_webhooks.app);
  v_from  timestamptz := resend_webhooks.since;
  v_until timestamptz;
  v_ids   bigint[];
  v_found bigint;
begin
  if (resend_webhooks.call_id is null) = (resend_webhooks.since is null) then
    raise exception using errcode = 'invalid_parameter_value', message = 'call_id, since: give one of them',
      hint = 'call_id => ''…'' sends the events of one call again, since => now() - interval ''1 hour'' those of the last hour.';
  elsif resend_webhooks.since < clock_timestamp() - interval '24 hours' then
    raise exception using errcode = 'invalid_parameter_value', message = 'since: must not be more than 24 hours ago',
      hint = 'call_id => ''…'' sends the events of an older call again. Older results are in push.delivery_history.';
  elsif resend_webhooks.since > clock_timestamp() then
    raise exception using errcode = 'invalid_parameter_value', message = 'since: must not be in the future',
      hint = 'since => now() - interval ''1 hour'' sends the events of the last hour again.';
  elsif (select w.on_until <= clock_timestamp() from push.webhook w where w.app = v_app) then
    raise exception using errcode = 'object_not_in_prerequisite_state', message = format('app: the webhook of app %s is off', v_app),
      hint = 'Nothing is recorded for it. It is on when a gateway has started whose configuration has apps.APP.webhook.';
  end if;
  if resend_webhooks.call_id is not null then
    select array_agg(o.id), min(o.created_at) into v_ids, v_from
      from push.outbox o where o.call_id = resend_webhooks.call_id and o.app = v_app;
    if v_ids is null then
      raise exception using errcode = 'no_data_found',
        message = format('call_id: there is no call %s in app %s', left(resend_webhooks.call_id, 128), v_app),
        hint = 'It may be of another app, or deleted because it was too old: push.timeline(''…'') shows a call of any app.';
    end if;
  end if;
  -- Of a time, the oldest c_max events are recorded, and those that happened at the same moment as the last of them, so that
  -- calling it again with the moment after it leaves none out, and comes to an end. Of a call, all of them are.
  with found as materialized (
    select x.* from push.past_events(v_app, v_from, v_ids) x cross join lateral push.hook_of(v_app, x.type)
    order by x.at
    fetch first (case when v_ids is null then c_max else 2147483647 end) rows with ties
  ), made as (
    insert into push.webhook_event (event, app, type, outbox_id, user_id, at, data)
    select f.event, v_app, f.type, f.outbox_id, f.user_id, f.at, f.data from found f order by f.at
    on conflict do nothing
    returning 1
  )
  select (select count(*) from made), (select count(*) from found), (select max(f.at) from found f) into recorded, v_found, v_until;
  message := format('%s: %s events are sent again, with the ids that they had; those that wait already are not recorded twice', v_app, recorded)
    || case when v_ids is null and v_found >= c_max
      then format('. There may be more: call it again with since => %L', v_until + interval '1 microsecond') else '' end;
  insert into push.audit (action, target, detail) values ('resend_webhooks', v_app || coalesce('/' || left(resend_webhooks.call_id, 128), ''),
    jsonb_build_object('since', resend_webhooks.since, 'recorded', recorded));
  return next;
end
$$;

COMMENT ON FUNCTION push.resend_webhooks(app text, call_id text, since timestamp with time zone) IS 'records again, from the history, events that were sent before. app: name of the app; call_id: those of this call; since: those since then, at most 24 hours ago, of which it handles about 10,000 at a time, the oldest first. Returns how many were recorded, and a sentence that says whether there are more. Declines of single users and receipts are not among them';

CREATE FUNCTION push.restored_at() RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$ begin return (select max(o.written_at) from push.origin o where o.written_at > o.made_at + interval '1 s'); end $$;

COMMENT ON FUNCTION push.restored_at() IS 'when this database was restored, while something from before is left; else null';

CREATE FUNCTION push.resume_invalidation(app text, provider text, apply boolean DEFAULT false) RETURNS TABLE(lane smallint, was_held boolean, invalidated bigint, forgotten bigint, message text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  c_tokens   constant int := 10000;
  v_target   text := left(resume_invalidation.app, 64) || '/' || left(resume_invalidation.provider, 16);
  v_lanes    smallint[];
  v_provider text;
  v_services text[];
  v_held_at  timestamptz;
  v_token    text[];
  v_since    timestamptz[];
  v_reason   text[];
begin
  select array_agg(l.id), min(l.invalidation_held_at), min(l.provider), array_agg(l.service)
    into v_lanes, v_held_at, v_provider, v_services
    from (select l.* from push.lane l where l.app = resume_invalidation.app and resume_invalidation.provider in (l.provider, l.channel)
      order by l.id for no key update) l;
  if v_lanes is null then
    raise exception using errcode = 'no_data_found',
      message = format('there is no lane %s', coalesce(v_target, 'without app or provider')),
      hint = 'push.lanes lists them; provider is one of ' || array_to_string(push.channels(), ', ') || '.';
  end if;
  lane := v_lanes[1];
  was_held := v_held_at is not null;
  update push.lane l set invalidation_held_at = null, invalidation_note = null, updated_at = clock_timestamp()
    where l.id = any (v_lanes) and l.invalidation_held_at is not null;
  with gone as (
    delete from push.quarantined_tokens q
    where q.ctid = any (array(
      select x.ctid from push.quarantined_tokens x
      where x.app = resume_invalidation.app and x.provider = v_provider and push.push_service(v_provider, x.token) = any (v_services)
      limit c_tokens))
    returning q.token, q.since, q.reason
  )
  select coalesce(array_agg(g.token), '{}'), array_agg(g.since), array_agg(g.reason)
    into v_token, v_since, v_reason
    from gone g;
  invalidated := case when apply and v_token <> '{}'
    then push.invalidate_tokens(array_fill(lane, array[cardinality(v_token)]), v_token, v_since, v_reason) else 0 end;
  forgotten := cardinality(v_token) - invalidated;
  message := case
    when not was_held and v_token = '{}' then format('%s: invalidation was not on hold; nothing to do', v_target)
    else format('%s: dead tokens are invalidated again (%s); of %s quarantined ones, %s invalidated, %s live on%s', v_target,
      coalesce('on hold since ' || to_char(v_held_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'it was not on hold'),
      cardinality(v_token), case when apply then invalidated || ' were' else 'none was' end, forgotten,
      case when cardinality(v_token) = c_tokens and exists (select from push.quarantined_tokens q
          where q.app = resume_invalidation.app and q.provider = v_provider and push.push_service(v_provider, q.token) = any (v_services))
        then '; more are quarantined: run it again' else '' end)
    end;
  insert into push.audit (action, target, detail) values ('resume_invalidation', v_target, jsonb_build_object('apply', coalesce(apply, false),
    'wasHeld', was_held, 'invalidated', invalidated, 'forgotten', forgotten));
  perform push.notify('push_control', 'resume ' || l) from unnest(v_lanes) l;
  return next;
end
$$;

COMMENT ON FUNCTION push.resume_invalidation(app text, provider text, apply boolean) IS 'ends the hold of a lane''s invalidation: quarantined tokens live on (a dead one will be found again). app, provider: the lane; apply: true invalidates them instead, except those registered since. Handles at most 10,000 tokens in one call, and returns what was done and whether there are more. Running it twice is harmless. NOTIFY push_control with "resume" and push.lanes.id';

CREATE FUNCTION push.resume_lane(app text, provider text, note text DEFAULT NULL::text) RETURNS TABLE(changed boolean, message text)
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$ select * from push.operate_lane(null, app, provider, false, note) $$;

COMMENT ON FUNCTION push.resume_lane(app text, provider text, note text) IS 'a paused lane sends again at once, and its note is removed. app, provider: the lane; note: the reason, kept in push.audit. Returns whether this changed anything, and a sentence that says what was done. Running it twice is harmless';

CREATE FUNCTION push.resume_webhooks(app text) RETURNS TABLE(changed boolean, message text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_app   text := push.check_webhook(resume_webhooks.app);
  v_count bigint;
begin
  update push.webhook w set paused = false, note = null, gone_at = null, retry_at = null, failures = 0, failing_since = null
    where w.app = v_app and (w.paused or w.gone_at is not null or w.failures > 0 or w.retry_at is not null);
  changed := found;
  -- A gateway that is sending one of them sends it again if that fails; another gateway may send it twice.
  update push.webhook_event e set due_at = clock_timestamp(), tries = 0
    where e.id = any (array(select x.id from push.webhook_event x where x.app = v_app and x.due_at > clock_timestamp()
      for no key update skip locked));
  get diagnostics v_count = row_count;
  changed := changed or v_count > 0;
  message := format('%s: events are sent; %s wait, and those that waited for another attempt are due now', v_app,
    (select count(*) from push.webhook_event e where e.app = v_app));
  insert into push.audit (action, target, detail) values ('resume_webhooks', v_app, jsonb_build_object('changed', changed, 'due', v_count));
  return next;
end
$$;

COMMENT ON FUNCTION push.resume_webhooks(app text) IS 'sends the events of an app again: ends a pause, the state that 410 has caused, and the wait after failures. app: name of the app. Returns whether this changed anything, and a sentence. Running it twice is harmless';

CREATE FUNCTION push.retire_gateway(p_gateway integer) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
  update push.gateways set alive = false, ended_at = clock_timestamp(), ended_reason = 'retired',
      free_due_at = clock_timestamp()
    where id = p_gateway and alive;
  if found then
    -- As in push.register_gateway.
    perform set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') in ('off', 'local');
  end if;
end
$$;

COMMENT ON FUNCTION push.retire_gateway(p_gateway integer) IS 'the clean end of a gateway: the deliveries that it still holds become ready (push.free_claims). p_gateway: what push.register_gateway returned';

CREATE FUNCTION push.revoke_api_key(id integer) RETURNS TABLE(revoked boolean, message text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  v_key push.api_keys;
begin
  select k.* into v_key from push.api_keys k where k.id = revoke_api_key.id for no key update;
  if not found then
    raise exception using errcode = 'no_data_found', message = format('there is no API key %s', revoke_api_key.id),
      hint = 'push.keys lists them.';
  end if;
  revoked := v_key.revoked_at is null;
  update push.api_keys k set revoked_at = clock_timestamp() where k.id = v_key.id and k.revoked_at is null;
  message := format('key %s (%s, app %s) %s', v_key.id, v_key.name, v_key.app,
    case when revoked then 'is refused from now on' else 'was revoked already' end);
  insert into push.audit (action, target, detail) values ('revoke_api_key', v_key.app || '/' || v_key.id, jsonb_build_object('revoked', revoked));
  return next;
end
$$;

COMMENT ON FUNCTION push.revoke_api_key(id integer) IS 'revokes a key to the HTTP API: it is refused from now on. id: push.keys.id. Returns whether this changed anything, and a sentence that says what was done. Running it twice is harmless';

CREATE FUNCTION push.revoke_app(role text, app text) RETURNS TABLE(changed boolean, message text)
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  delete from push.app_grant g where g.role = revoke_app.role and g.app = revoke_app.app;
  changed := found;
  message := format('granted to %s: %s', revoke_app.role,
    coalesce((select string_agg(g.app, ', ' order by g.app) from push.app_grant g where g.role = revoke_app.role), 'no app'));
  insert into push.audit (action, target, detail) values ('revoke_app', left(revoke_app.app, 64) || '/' || left(revoke_app.role, 64),
    jsonb_build_object('changed', changed));
  return next;
end
$$;

COMMENT ON FUNCTION push.revoke_app(role text, app text) IS 'a role no longer acts for this app. It stays in push_tenant, and without any app it acts for none. role: a database role, which may have been dropped; app: name of the app. Returns whether this changed anything, and a sentence that says what was done. Running it twice is harmless. For the owner of the schema';

CREATE FUNCTION push.ring_doorbell() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION push.ring_doorbell() IS 'wakes the gateways at commit; in the sessions of gateways (push.is_gateway) it does nothing';

CREATE FUNCTION push.ring_newcomers(p_call push.outbox, p_recipients jsonb, p_all jsonb, OUT deliveries integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  v_after interval := (select make_interval(secs => a.escalate_after_seconds) from push.apps a where a.app = p_call.app);
  v_fault text;
begin
  -- As in push.fan_out, with all recipients of the call.
  with call as materialized (
    select case when p_all is not null then a.fault end as fault, a.providers, a.size_faults
    from push.accept(p_call.app, p_call.kind, p_call.call_id, p_call.payload,
      case when pg_column_size(p_all) > 2097152 then jsonb_build_object('tooManyBytes', pg_column_size(p_all)) else p_all end,
      p_call.ring_seconds, p_call.traceparent) a
  ), pushed as materialized (
    select p.kind, p.lane, push.token_key(p.provider, p.token) as key, p.last_n from push.pushes_of(array[p_call.id]) p
  ), known as materialized (
    select r.entry, t.provider, push.token_key(t.provider, t.token) as key
    from jsonb_array_elements(p_call.recipients) r(entry) left join lateral push.entry_tokens(r.entry, true) t on push.is_recipient(r.entry)
  ), made as (
    insert into push.delivery (outbox_id, n, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data,
      last_reason)
    select p_call.id, coalesce((select max(p.last_n) from pushed p), -1) + row_number() over (order by t.lane, t.key),
      p_call.deadline_at, t.lane, t.lane, t.environment, t.platform, t.user_id, t.token, t.locale, t.data, t.fault
    from (
      select distinct on (v.lane, v.key) v.lane, v.token, v.key collate "C" as key, v.environment, v.platform, v.locale,
        push.entry_user(e.entry) as user_id, push.recipient_data(e.entry) as data, v.fault || format(' (call %s)', p_call.call_id) as fault
      from call c cross join lateral jsonb_array_elements(case when c.fault is null then p_recipients end) with ordinality e(entry, ordinal)
      cross join lateral push.routes_of(p_call.app, true, c.providers, null, c.size_faults, e.entry) v
      where push.is_recipient(e.entry) and e.entry -> 'notificationEnabled' is distinct from 'false'
        and (p_all is not null or v.fault is null)
        -- Nobody who has declined is rung.
        and not coalesce(p_call.declined ? push.entry_user(e.entry), false)
        and not exists (select from pushed p where p.kind = 0 and p.lane = v.lane and p.key = v.key)
        and (e.entry in (select x.entry from known x) or not exists (
          select from push.entry_tokens(e.entry, true) t where (t.provider, push.token_key(t.provider, t.token)) in (
            select x.provider, x.key from known x where x.key is not null)))
      order by v.lane, v.key, e.ordinal
    ) t
    returning last_reason
  )
  select coalesce((select c.fault from call c), min(m.last_reason)), count(*) into v_fault, deliveries from made m;
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault, hint = 'Nothing of this statement was enqueued.',
      schema = 'push', table = 'outbox', column = substring(v_fault from '^[a-z_]+');
  elsif deliveries > 0 then
    perform push.ring_doorbell();
    insert into push.follow_ups (outbox_id, why, is_urgent, due_at)
      select p_call.id, 'unheard', true, clock_timestamp() + v_after where v_after is not null;
  end if;
end
$$;

COMMENT ON FUNCTION push.ring_newcomers(p_call push.outbox, p_recipients jsonb, p_all jsonb, OUT deliveries integer) IS 'makes the invites of people who join: for the phones of p_recipients that the call has not been sent to. p_call: the call, locked, as it was before; p_all: its recipients with the new ones; null: these are among them, and a phone whose channel cannot carry the payload is left out. Returns how many';

CREATE FUNCTION push.ring_unreached(p_calls bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  v_left record;
begin
  for v_left in
    select o.call, u.users
    from (
      select p.id, array_agg(p.user_id) as users
      from (
        select p.id, p.user_id from push.pushes_of(p_calls) p where p.kind = 0
        group by p.id, p.user_id having bool_and(coalesce(p.outcome in (3, 4), false))
      ) p
      group by p.id
    ) u
    cross join lateral (
      select o as call from push.outbox o where o.id = u.id and o.ended_at is null and o.deadline_at > clock_timestamp() offset 0
    ) o
  loop
    insert into push.unreached (app, user_id, outbox_id)
      select (v_left.call).app, u.user_id, (v_left.call).id from unnest(v_left.users) u(user_id)
      where not coalesce((v_left.call).declined ? u.user_id, false)
      on conflict do nothing;
    insert into push.follow_ups (outbox_id, why, is_urgent, due_at)
      select (v_left.call).id, 'failed', true, clock_timestamp() + interval '1 s' where found;
    perform push.ring_newcomers(v_left.call, (
      select coalesce(jsonb_agg(e.entry), '[]') from jsonb_array_elements((v_left.call).recipients) e(entry)
      where push.entry_user(e.entry) = any (v_left.users)
        and not (jsonb_typeof(e.entry) = 'object' and push.has_token_member(e.entry))), null);
  end loop;
end
$$;

COMMENT ON FUNCTION push.ring_unreached(p_calls bigint[]) IS 'rings the devices that users have registered whom these calls have not reached, and notes such users. p_calls: calls that are locked';

CREATE FUNCTION push.routes_of(p_app text, p_is_call boolean, p_providers text[], p_voip_tokens text[], p_size_faults text[], p_entry jsonb) RETURNS TABLE(rank integer, token text, environment smallint, platform smallint, locale text, registered_at timestamp with time zone, is_guess boolean, key text, lane smallint, fault text)
    LANGUAGE sql STABLE
    AS $$
  select v.*, push.token_key((push.channels())[v.rank], v.token),
    case when p_size_faults[v.rank] is null and l.id is not null then l.id else 0::smallint end,
    coalesce(p_size_faults[v.rank],
      case when l.id is null then format('app: no gateway has served %s of app %s yet', (push.channels())[v.rank], p_app) end)
  from push.phones_of(p_app, p_is_call, p_providers, p_voip_tokens, p_entry) v
  left join push.lane l on l.app = p_app and l.provider = (push.channels())[v.rank]
    and l.service = push.push_service((push.channels())[v.rank], v.token)
$$;

COMMENT ON FUNCTION push.routes_of(p_app text, p_is_call boolean, p_providers text[], p_voip_tokens text[], p_size_faults text[], p_entry jsonb) IS 'the phones that an entry of recipients stands for, each with its lane and its token as push.token_key. p_size_faults: of push.accept';

CREATE FUNCTION push.run_job(p_name text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_more boolean := false;
begin
  case p_name
    when 'promote' then v_more := push.promote(2000) >= 2000;
    when 'free' then v_more := push.free_claims() > 0;
    -- Calls from before a restore neither ring nor are announced (push.put_away).
    when 'miss' then v_more := case when push.restored_at() is null then push.miss(1000) else 0 end >= 1000;
    -- Notes of the last minute: cheap, even while vacuum is held back. follow_up_all takes older ones.
    when 'follow_up_urgent' then v_more := push.follow_up(true, 200, interval '1 minute') >= 200;
    when 'follow_up' then v_more := push.follow_up(false, 200, interval '1 minute') >= 200;
    when 'follow_up_again' then v_more := push.follow_up(null, 2000) > 0;
    when 'follow_up_all' then v_more := push.follow_up(true, 200, interval '1 year') + push.follow_up(false, 200, interval '1 year') >= 200;
    -- Deliveries that expired recently: cheap, even while vacuum is held back. expire_all finds the rest.
    when 'expire' then v_more := push.expire(5000, p_since => now() - interval '1 minute') >= 5000;
    when 'expire_all' then v_more := push.expire(5000) >= 5000;
    when 'escalate' then v_more := case when push.restored_at() is null then push.bypass(500) else 0 end >= 500;
    when 'prune' then
      perform push.prune();
      v_more := push.trim_webhooks() >= 5000 or exists (select from push.prune_cursor c where c.after_id > 0);
    when 'erase' then v_more := push.finish_erasures();
    when 'ensure_partitions' then perform push.ensure_partitions();
    when 'drop_partitions' then v_more := push.drop_partitions() > 0;
    -- The caller runs push.take_tally itself and adds the result to its counters.
    when 'tally' then null;
  end case;
  -- Not at each run: some are run four times a second, and while vacuum is held back each update leaves a dead row.
  update push.job j set done_at = clock_timestamp(), due_at = case when v_more then clock_timestamp() else j.due_at end
    where j.name = p_name and (v_more or j.done_at < clock_timestamp() - interval '5 s');
  return v_more;
end
$$;

COMMENT ON FUNCTION push.run_job(p_name text) IS 'runs one step of a job. p_name: what push.take_job returned. Returns true if there is more to do; the job is then due again at once';

CREATE FUNCTION push.serves(p_providers text[], p_provider text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select p_provider = any (coalesce(p_providers, '{apns,fcm,expo}'))
$$;

COMMENT ON FUNCTION push.serves(p_providers text[], p_provider text) IS 'whether an app with these push.apps.providers has a channel';

CREATE FUNCTION push.set_quota(app text, calls_per_minute integer DEFAULT NULL::integer, notifications_per_minute integer DEFAULT NULL::integer, recipients_per_minute integer DEFAULT NULL::integer, note text DEFAULT NULL::text) RETURNS TABLE(changed boolean, message text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  v_set    constant int[] := array[calls_per_minute, notifications_per_minute, recipients_per_minute];
  v_is_set constant boolean := num_nonnulls(variadic v_set) > 0;
  v_before push.quota;
  v_after  push.quota;
  v_detail jsonb;
  v_fault  text := (
    select format('%s_per_minute: must be 0 to 1000000; null leaves it to the configuration', x.name)
    from unnest((push.meter_names())[:3], v_set) x(name, value) where x.value not between 0 and 1000000 limit 1);
begin
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault,
      hint = '0 refuses everything; 1000000 lifts the limit of the configuration.';
  elsif not exists (select from push.lane l where l.app = set_quota.app)
    and not exists (select from push.apps a where a.app = set_quota.app)
  then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('app: there is no app %s', coalesce(left(set_quota.app, 64), 'without a name')),
      hint = coalesce((select 'There are ' || string_agg(a.app, ', ') from (select a.app from push.apps a order by a.app limit 20) a),
        'No gateway has registered any.');
  end if;
  if not v_is_set and not exists (select from push.quota q where q.app = set_quota.app) then
    return query select false, format('app %s: no limit; nothing was set', set_quota.app);
    return;
  end if;
  v_before := push.lock_quota(set_quota.app);
  update push.quota q
    set set_to = v_set, note = left(set_quota.note, 500), set_at = case when v_is_set then clock_timestamp() end,
      set_by = case when v_is_set then session_user end
    where q.app = set_quota.app returning q.* into v_after;
  changed := (v_before.set_to, v_before.note) is distinct from (v_after.set_to, v_after.note);
  select format('app %s: %s', set_quota.app, string_agg(case when x.value is null then format('no limit of %s', x.name)
        else format('%s %s a minute (%s)', x.value, x.name, case when x.own is null then 'as configured' else 'set' end) end, ', ')),
      jsonb_object_agg(x.name, x.own) || jsonb_build_object('note', left(set_quota.note, 500), 'changed', changed)
    into message, v_detail from unnest((push.meter_names())[:3], v_after.limits, v_set) x(name, value, own);
  insert into push.audit (action, target, detail) values ('set_quota', set_quota.app, v_detail);
  return next;
end
$$;

COMMENT ON FUNCTION push.set_quota(app text, calls_per_minute integer, notifications_per_minute integer, recipients_per_minute integer, note text) IS 'overrides the quota of an app, at once and until the next call, whatever the configuration says or becomes. app: name of the app; calls_per_minute, notifications_per_minute, recipients_per_minute: 0 to 1000000; null: as configured. So push.set_quota(app) ends every override. note: why. Returns whether this changed anything, and a sentence that says what holds now. Running it twice is harmless';

CREATE FUNCTION push.set_webhooks(p_app text[], p_host text[], p_url_digest text[], p_events text[]) RETURNS text[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET lock_timeout TO '100ms'
    AS $$
declare
  v_hook   record;
  v_locked text[] := '{}';
begin
  -- An unchanged row is not written.
  for v_hook in
    select c.app, c.host, c.url_digest, t.events
    from unnest(p_app, p_host, p_url_digest, p_events) c(app, host, url_digest, events)
    cross join lateral (select string_to_array(c.events, ',')) t(events)
    left join push.webhook w on w.app = c.app
    where case when c.host is null then w.on_until > clock_timestamp()
      else (w.on_until, w.host, w.url_digest, w.events) is distinct from ('infinity', c.host, c.url_digest, t.events) end
    order by c.app
  loop
    begin
      if v_hook.host is null then
        update push.webhook w set on_until = clock_timestamp(), changed_at = clock_timestamp() where w.app = v_hook.app;
        continue;
      end if;
      -- Another URL begins anew.
      update push.webhook w set gone_at = null, failing_since = null, failures = 0, retry_at = null
        where w.app = v_hook.app and w.url_digest <> v_hook.url_digest;
      insert into push.webhook (app, host, url_digest, events) values (v_hook.app, v_hook.host, v_hook.url_digest, v_hook.events)
        on conflict (app) do update
          set on_until = 'infinity', host = excluded.host, url_digest = excluded.url_digest, events = excluded.events,
            changed_at = clock_timestamp();
    exception
      -- An operator has the app paused, or another replica has just written it, in a transaction that is open. It is left out, and the
      -- others are not. There may be many such apps: only for the first one it waits.
      when lock_not_available then
        v_locked := v_locked || v_hook.app;
        perform set_config('lock_timeout', '1ms', true);
    end;
  end loop;
  return v_locked;
end
$$;

COMMENT ON FUNCTION push.set_webhooks(p_app text[], p_host text[], p_url_digest text[], p_events text[]) IS 'writes which apps have a webhook. Arrays, by app: p_app: name of the app; p_host: host and port of the URL, or null: the app has no webhook; p_url_digest: SHA-256 of the URL, in hex; p_events: types separated by commas, or null: all. Other apps are left as they are. Returns the apps whose row another transaction has locked: they are unchanged, so call it again';

CREATE FUNCTION push.settle(p_gateway integer, p_place tid[], p_outbox_id bigint[], p_n integer[], p_lease integer[], p_attempts integer[], p_outcome smallint[], p_status smallint[], p_reason text[], p_message_id text[], p_call_id text[], p_sent_at timestamp with time zone[], p_answered_at timestamp with time zone[], p_failures text[] DEFAULT NULL::text[], p_receipt_after_ms integer[] DEFAULT NULL::integer[], p_created_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $_$
declare
  v_now     timestamptz := clock_timestamp();
  v_settled bigint := 0;
  v_more    bigint;
begin
  for v_pass in 1..3 loop
    with gone as (
      delete from push.delivery d
      using generate_series(1, cardinality(p_outbox_id)) r(i)
      where d.ctid = p_place[r.i] and d.outbox_id is not distinct from p_outbox_id[r.i]
        and d.n is not distinct from p_n[r.i] and (d.state = 1 and d.owner = p_gateway and d.lease = p_lease[r.i]
          or d.state <> 1 and v_pass = 3
            and (p_outcome[r.i] <= 1 or d.handed_on_by[cardinality(d.handed_on_by)] = p_gateway and d.lease = p_lease[r.i]))
      -- First what all three statements below need: each reads a row to the last column that it needs.
      returning r.i, case when p_outcome[r.i] > 1 and d.accepted_at is not null then (d.accepted_at > d.deadline_at)::int
          else coalesce(p_outcome[r.i], 4) end as outcome, d.kind, d.outbox_id, d.deadline_at, d.lane, d.n, d.created_at, d.environment,
        d.platform, case when d.state <> 1 then d.attempt end as tries, case when p_outcome[r.i] > 1 then d.accepted_at end as hedged_at,
        d.fallback_of, d.user_id, d.token, d.locale, d.data, d.last_reason, d.failures
    ), receipts as (
      insert into push.receipt_batch (app, sent_at, due_at, give_up_at, ticket, outbox_id, n, user_id, token)
      select l.app, r.sent_at, least(v_now + r.after_ms * interval '1 ms', r.sent_at + interval '24 hours'),
        r.sent_at + interval '24 hours', r.ticket, r.outbox_id, r.n, r.user_id, r.token
      from (
        -- A gateway's clock may be fast.
        select g.lane, min(least(coalesce(p_sent_at[g.i], v_now), v_now)) as sent_at, max(p_receipt_after_ms[g.i]) as after_ms,
          array_agg(p_message_id[g.i]) as ticket, array_agg(g.outbox_id) as outbox_id, array_agg(g.n) as n,
          array_agg(g.user_id) as user_id, array_agg(g.token) as token
        from gone g
        where p_receipt_after_ms[g.i] is not null and g.outcome <= 1 and p_message_id[g.i] is not null
        group by g.lane
      ) r cross join lateral (select l.app from push.lane l where l.id = r.lane offset 0) l
    ), noted as (
      insert into push.follow_ups (outbox_id, why, is_urgent)
      select distinct g.outbox_id, case g.kind when 0 then 'failed' else 'untold' end, g.kind = 0
      from gone g
      -- An invite that expired has no time left for another channel, unless its wait was longer than its window.
      where g.outcome >= 3 and g.kind = 0 and g.deadline_at > v_now + (g.outcome = 3)::int * interval '2 s'
        or g.outcome >= 3 and g.kind = 1 or g.kind = 2 and p_reason[g.i] = 'SaidByCancel'
    )
    insert into push.history (outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner, lane, kind, outcome, status,
      user_id, token, environment, platform, locale, data, reason, provider_message_id, failures, fallback_of)
    select g.outbox_id, g.created_at, g.deadline_at, p_sent_at[g.i], coalesce(g.hedged_at, p_answered_at[g.i]), g.n,
      coalesce(greatest(p_attempts[g.i], g.tries), 0), p_gateway, g.lane, g.kind, g.outcome,
      case when g.hedged_at is null then nullif(p_status[g.i], 0) end, g.user_id, g.token, g.environment, g.platform, g.locale, g.data,
      case when g.hedged_at is not null then 'Hedged' when g.outcome <= 1 or p_reason[g.i] is not null then p_reason[g.i]
        when g.outcome = 2 then coalesce((
          select case when o.ended_at is not null then 'Call' || initcap(o.state)
            else 'User' || replace(initcap(o.declined -> g.user_id ->> 'reason'), '_', '') end
          from push.outbox o where o.id = g.outbox_id), 'CallEnded')
        else coalesce(g.last_reason, case g.outcome when 3 then 'DeadlinePassed' else 'Unknown' end) end, p_message_id[g.i],
      case when p_failures[g.i] is null then g.failures
        else jsonb_path_query_array(coalesce(g.failures, '[]') || p_failures[g.i]::jsonb, '$[last - 19 to last]') end,
      g.fallback_of
    from gone g;
    get diagnostics v_more = row_count;
    v_settled := v_settled + v_more;
    exit when v_settled = cardinality(p_outbox_id) or v_pass = 3 or v_pass = 2 and p_created_at is null;
    -- A rewrite of the table has moved the others, or they are no longer ours.
    p_place := push.places(p_gateway, p_outbox_id, p_n, p_lease, case v_pass when 2 then p_created_at end);
  end loop;
  if v_settled < cardinality(p_outbox_id) then
    update push.delivery d set accepted_at = coalesce(p_answered_at[r.i], v_now) from generate_series(1, cardinality(p_outbox_id)) r(i)
      where d.ctid = p_place[r.i] and d.state = 1 and p_outcome[r.i] <= 1 and d.accepted_at is null;
  end if;
  return v_settled;
end
$_$;

COMMENT ON FUNCTION push.settle(p_gateway integer, p_place tid[], p_outbox_id bigint[], p_n integer[], p_lease integer[], p_attempts integer[], p_outcome smallint[], p_status smallint[], p_reason text[], p_message_id text[], p_call_id text[], p_sent_at timestamp with time zone[], p_answered_at timestamp with time zone[], p_failures text[], p_receipt_after_ms integer[], p_created_at timestamp with time zone[]) IS 'ends deliveries that are claimed, or were handed on and not claimed since, and writes their history. Returns how many it ended; if that is fewer than were passed, leases were lost: what was accepted is noted (push.delivery.accepted_at), other results are dropped. p_gateway: the gateway that claimed them. Arrays, by delivery, in the order of the key: p_place: where the row was stored when it was claimed, or null; p_outbox_id, p_n, p_lease: the delivery, as claimed; p_attempts: attempts that were really made, retries under one lease included; p_outcome: 0 delivered, 1 delivered_late, 2 void, 3 expired, 4 dead; p_status: HTTP status, 0: no answer; p_reason: the reason; p_message_id: the provider''s id; p_sent_at: when the last request was sent; p_answered_at: when the provider answered; p_failures: as for push.park; p_receipt_after_ms: for an Expo ticket (p_message_id), milliseconds until its receipt is looked up, else null; p_created_at: as claimed, null: of a gateway of release 0.1.0, for which p_call_id stands, too, which is unused. p_reason null: for a void delivery CallAnswered, CallEnded, CallMissed, UserDeclined, UserBusy or UserConnectionFailed. Notes invites and cancels that failed for good or expired, for push.follow_up';

CREATE FUNCTION push.settle_receipts(p_app text, p_ticket text[], p_reason text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_settled bigint := 0;
  v_batch   push.receipt_batch;
  v_gone    record;
begin
  for v_batch in
    select r.* from push.receipt_batch r
    where r.id = any (array(
      select x.id from push.receipt_batch x where x.app = p_app and x.claimed and x.attempts > 0 and x.ticket && p_ticket))
    order by r.id for update
  loop
    for v_gone in
      select t.*, r.reason from unnest(v_batch.ticket, v_batch.outbox_id, v_batch.n) t(ticket, outbox_id, n)
      join unnest(p_ticket, p_reason) r(ticket, reason) on r.ticket = t.ticket and r.reason is not null
    loop
      begin
        with failed as (
          -- The hour allows for a wrong clock of a gateway.
          update push.history h set receipt_reason = v_gone.reason
          where h.outbox_id = v_gone.outbox_id and h.n = v_gone.n and h.provider_message_id = v_gone.ticket
            and h.finished_at >= v_batch.sent_at - interval '1 hour'
          returning h.*
        )
        insert into push.webhook_event (event, app, type, outbox_id, user_id, at, data)
        select push.webhook_id('receipt', p_app, f.outbox_id::text, f.n::text, v_gone.ticket), p_app, 'delivery.receipt', f.outbox_id,
          f.user_id, clock_timestamp(), jsonb_build_object('app', p_app, 'callId',
            (select o.call_id from push.outbox o where o.id = f.outbox_id), 'n', f.n, 'userId', f.user_id,
            'device', coalesce(left(f.token, 4) || '…' || right(f.token, 4), f.device), 'provider', 'expo', 'reason', v_gone.reason)
        from failed f cross join lateral push.hook_of(p_app, 'delivery.receipt')
        on conflict do nothing;
      exception when others or assert_failure then
        if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
        perform push.name_fault('push.outbox.id ' || v_gone.outbox_id, sqlstate);
      end;
    end loop;
    v_settled := v_settled + push.cut_receipts(v_batch, array(
      select i from unnest(v_batch.ticket) with ordinality t(ticket, i) where t.ticket not in (select unnest(p_ticket)) order by i));
  end loop;
  return v_settled;
end
$$;

COMMENT ON FUNCTION push.settle_receipts(p_app text, p_ticket text[], p_reason text[]) IS 'ends the look-up of tickets; returns how many there were. p_app: the app. Arrays, by ticket: p_ticket: the tickets; p_reason: the reason in the receipt, kept in push.history, or null: delivered';

CREATE FUNCTION push.settle_webhooks(p_id bigint[], p_app text[], p_url_digest text[], p_attempt integer[], p_result smallint[], p_status integer[], p_reason text[], p_delay_ms integer[], p_pause_ms integer[], p_event text[] DEFAULT NULL::text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET lock_timeout TO '100ms'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_app  record;
  v_next bigint[];
begin
  for v_app in
    select p_app[r.i] as app, p_url_digest[r.i] as url_digest,
      case when bool_or(p_result[r.i] = 2) then 2 else min(p_result[r.i]) end::int as result,
      count(*) filter (where p_result[r.i] > 0)::int as failures, max(p_pause_ms[r.i]) as pause_ms,
      coalesce(bool_or(p.is_probe), false) as is_probe,
      (array_agg(p_status[r.i] order by r.i desc))[1] as status, (array_agg(p_reason[r.i] order by r.i desc))[1] as reason
    from generate_subscripts(p_id, 1) r(i) left join lateral (
      select true as is_probe from push.webhook_event e cross join lateral (
        select from push.webhook w where w.app = e.app and w.retry_at = e.due_at offset 0
      ) w
      where e.id = p_id[r.i] offset 0
    ) p on true
    group by 1, 2 order by 1, 2
  loop
    begin
      perform push.note_webhook(v_app.app, v_app.url_digest, v_app.result, v_app.failures, v_app.pause_ms, v_app.is_probe, v_app.status,
        v_app.reason);
    exception
      -- An operator has paused or resumed the app in a transaction that is open. The next result is noted. There may be
      -- many such apps: only for the first one it waits.
      when lock_not_available then perform set_config('lock_timeout', '1ms', true);
    end;
  end loop;
  -- One statement writes results of several apps. A backend that registers a dead token again, or an operator, may lock one of
  -- the events in a transaction that stays open: that event is left out, and sent again after its lease.
  with result as materialized (
    select e.tid, r.attempt, r.result, r.delay_ms
    from unnest(p_id, p_event, p_attempt, p_result, p_delay_ms) r(id, event, attempt, result, delay_ms)
    cross join lateral (
      select e.ctid as tid from push.webhook_event e where e.id = r.id and e.event = coalesce(r.event, e.event) for update skip locked
    ) e
  ), gone as (
    delete from push.webhook_event e using result r where e.ctid = r.tid and r.result = 0 returning e.id, e.outbox_id
  ), again as (
    update push.webhook_event e set due_at = clock_timestamp() + r.delay_ms * interval '1 ms', tries = e.tries + 1
    from result r where e.ctid = r.tid and r.result > 0 and e.attempts = r.attempt
  )
  select array_agg(f.id) into v_next
    from (select distinct g.outbox_id from gone g) g cross join lateral (
      select f.id from push.webhook_event f where f.outbox_id = g.outbox_id and f.id not in (select x.id from gone x)
      order by f.outbox_id, f.id limit 1
    ) f;
  -- The next event of each call is due now. It is updated even if it is due already, so that push.claim_webhooks of another
  -- gateway, which may still see the former first event, does not put it off.
  begin
    update push.webhook_event e set due_at = clock_timestamp() where e.id = any (v_next) and e.attempts = 0;
  exception
    -- An operator has locked some of them: another gateway would not do so for that long.
    when lock_not_available then
      update push.webhook_event e set due_at = clock_timestamp()
        where e.id = any (array(
          select x.id from push.webhook_event x where x.id = any (v_next) and x.attempts = 0 for no key update skip locked));
  end;
end
$$;

COMMENT ON FUNCTION push.settle_webhooks(p_id bigint[], p_app text[], p_url_digest text[], p_attempt integer[], p_result smallint[], p_status integer[], p_reason text[], p_delay_ms integer[], p_pause_ms integer[], p_event text[]) IS 'notes the results of requests. Arrays, by event: p_id, p_app, p_attempt, p_event: as push.claim_webhooks returned them (an id may repeat after a fail-over); p_url_digest: SHA-256 of the URL that the request was sent to, in hex: if another one is registered, a failure does not count; p_result: 0 acknowledged, so it is deleted, 1 to be sent again, 2 the same, and nothing more is sent to this URL (410); p_status: HTTP status; p_reason: why there was no answer; p_delay_ms: when it is due again, unless it was claimed since; p_pause_ms: for how long the receiver asked not to be sent anything (Retry-After), or null';

CREATE FUNCTION push.settled(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_created_at timestamp with time zone[] DEFAULT NULL::timestamp with time zone[]) RETURNS TABLE(outbox_id bigint, n integer, created_at timestamp with time zone)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_mergejoin TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
  select r.outbox_id, r.n, r.created_at
  from unnest(p_outbox_id, p_n, p_created_at) r(outbox_id, n, created_at)
  where (select true from push.history h
    where h.outbox_id = r.outbox_id and h.n = r.n and h.owner = p_gateway and h.finished_at >= now() - interval '1 hour'
      and (r.created_at is null or greatest(h.created_at, '2000-01-01 00:00:00+00') = r.created_at) limit 1) is not null
$$;

COMMENT ON FUNCTION push.settled(p_gateway integer, p_outbox_id bigint[], p_n integer[], p_created_at timestamp with time zone[]) IS 'those of these deliveries that the gateway has settled within the last hour. For when push.settle accepted fewer than it was passed, or its answer was lost. p_gateway: what push.register_gateway returned. Arrays, by delivery: p_outbox_id, p_n; p_created_at: push.delivery.created_at; null for a gateway of an earlier release';

CREATE FUNCTION push.shard_map_number() RETURNS integer
    LANGUAGE sql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select m.generation from push.shard_map m where m.until is null
$$;

COMMENT ON FUNCTION push.shard_map_number() IS 'the number of the current map; null: this database stands alone';

CREATE FUNCTION push.shard_of(p_call_id text) RETURNS integer
    LANGUAGE sql STABLE STRICT SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select m.shards[push.slot_of(p_call_id) + 1] from push.shard_map m where m.until is null
$$;

COMMENT ON FUNCTION push.shard_of(p_call_id text) IS 'the shard in which a new call with this id is enqueued; null: this database stands alone. p_call_id: push.outbox.call_id';

CREATE FUNCTION push.shards_of(p_call_id text, p_window interval DEFAULT NULL::interval) RETURNS integer[]
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
  select array(
    select m.shards[push.slot_of(p_call_id) + 1]::int from push.shard_map m
    where m.until is null or p_window is null or m.until > clock_timestamp() - p_window
    group by 1 order by max(m.generation) desc)
$$;

COMMENT ON FUNCTION push.shards_of(p_call_id text, p_window interval) IS 'the shards in which a call with this id may be: the current owner of its slot, then earlier ones, the latest first. p_call_id: push.outbox.call_id; p_window: only those that owned it within this time; null: all that are known';

CREATE FUNCTION push.size_faults(p_payload jsonb, p_is_call boolean DEFAULT true) RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
declare
  -- The title, body, sound and channel around the data, on Expo or in an alert.
  c_alert_envelope constant int := 512;
  -- The gateway shortens the names that apps only show, if a push is too large with them (CallData.withShortNames). Three dots have as
  -- many bytes as its ellipsis. Of the text of a message, a push has at most 1,000 bytes (TemplateRenderer).
  v_payload jsonb := p_payload || (select coalesce(jsonb_object_agg(key, left(value #>> '{}', 63) || '...'), '{}') from jsonb_each(p_payload)
    where key in ('fromName', 'callerName', 'apartmentNumber', 'buildingName', 'groupName')
      and jsonb_typeof(value) = 'string' and length(value #>> '{}') > 64) || case when not p_is_call and p_payload ? 'text'
    then jsonb_build_object('text', repeat('x', least(octet_length((p_payload -> 'text')::text), 1000))) else '{}' end;
  v_text    text := v_payload::text;
  v_escapes int := length(v_text) - length(translate(v_text, E'"\\', ''));  -- one more byte each inside a JSON string
  v_nested  int;  -- the same for the members that FCM carries as a JSON string of their own
  v_members int;
begin
  -- jsonb prints a blank after every ':' and ',' between members; a push has none. Numbers and booleans become strings. Beside the payload,
  -- a rendered push has type, action, timestamp, expiresAt, seq, isVoip and a default fromName: 256 bytes, with 40 quotes.
  select octet_length(v_text) + 256 + 2 * count(*) filter (where jsonb_typeof(value) in ('number', 'boolean')),
      coalesce(sum(length(value::text) - length(translate(value::text, E'"\\', ''))) filter (where jsonb_typeof(value) in ('object', 'array')), 0)
    into v_members, v_nested
    from jsonb_each(v_payload);
  v_members := v_members - (
    select coalesce(sum(case jsonb_typeof(node)
      when 'object' then greatest(2 * (select count(*) from jsonb_object_keys(node)) - 1, 0)
      when 'array' then greatest(jsonb_array_length(node) - 1, 0) end), 0)
    from jsonb_path_query(v_payload, 'strict $.**') node);
  return array(
    select case when l.bytes > l.most then
      format('payload: up to %s bytes when rendered for %s, the limit is %s; shorten it, metadata first', l.bytes, l.provider, l.most) end
    from (values
      (1, case when p_is_call then 'APNs VoIP' else 'an APNs alert' end, v_members + case when p_is_call then 0 else c_alert_envelope end,
        case when p_is_call then 5120 else 4096 end),
      -- Flat string keys, and `body` with the whole object again as an escaped string.
      (2, 'FCM', v_members + v_nested + 2 + v_members + v_escapes + 40, 4096),
      (3, 'Expo', v_members + c_alert_envelope, 4096),
      (4, 'web push', v_members + c_alert_envelope, 3993)) l(rank, provider, bytes, most)
    order by l.rank);
end
$_$;

COMMENT ON FUNCTION push.size_faults(p_payload jsonb, p_is_call boolean) IS 'by rank of the channel: the fault in the size of a payload with short names; null: none. p_is_call: as a VoIP push';

CREATE FUNCTION push.skipped_recipients(p_outbox_id bigint) RETURNS TABLE(user_id text, reason text, field text, remedy text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $_$
#variable_conflict use_column
declare
  v_call  push.outbox := (select o from push.outbox o where o.id = p_outbox_id);
  v_app   push.apps := (select a from push.apps a where a.app = v_call.app);
begin
  if v_call.id is null or not push.is_own(v_call.app)
    or to_regclass('push.history_' || to_char(v_call.created_at at time zone 'UTC', 'YYYYMMDD')) is null then
    return;
  end if;
  return query
    with fault as materialized (
      select * from push.recipient_faults(v_call.recipients, v_call.kind, v_call.app)
    ), reached as materialized (
      select distinct p.user_id, p.token from push.pushes_of(array[p_outbox_id]) p where p.kind in (0, 3)
    ), missing as materialized (
      select e.* from (
        select push.entry_user(e) as user_id, e -> 'notificationEnabled' is not distinct from 'false' as is_off, e, r.i - 1 as i
        from jsonb_array_elements(v_call.recipients) with ordinality r(e, i) where push.is_recipient(e) offset 0
      ) e
      where not exists (select from reached r where r.user_id = e.user_id)
        and not exists (select from fault f where f.user_id = e.user_id and f.reason <> 'MemberIgnored')
    ), token as materialized (
      -- Every token that could have been used, and why it could not.
      select m.user_id, t.provider, t.token, m.is_off, exists (select from push.deaths_of(v_call.app, t.provider, t.token)) as is_dead,
        not push.serves(v_app.providers, t.provider) as is_unserved
      from missing m cross join lateral push.entry_tokens(m.e, push.is_call(v_call.kind)) t
      where jsonb_typeof(m.e) = 'object'
      union all
      select m.user_id, d.provider, d.token, m.is_off or not d.enabled,
        d.invalidated_at is not null, not push.serves(v_app.providers, d.provider)
      from missing m join push.devices d on d.user_id = m.user_id and d.app = v_call.app
      where not (jsonb_typeof(m.e) = 'object' and push.has_token_member(m.e))
        and (d.provider <> 'apns' or d.voip = push.is_call(v_call.kind))
    ), unreached as (
      select m.user_id, case
          when v_call.kind = 'missed_call' and v_app.missed_calls = 'off' then 'MissedCallsOff'
          when bool_and(m.is_off) then 'NotificationsDisabled'
          when bool_or(t.is_dead and not t.is_off) then 'TokenInvalid'
          when bool_or(t.is_off) then 'NotificationsDisabled'
          when bool_or(t.is_unserved) then 'ProviderNotConfigured'
          else 'NoDevice' end as reason, min(m.i) as i
      from missing m left join token t on t.user_id = m.user_id
      -- A token that two users share is one delivery, which belongs to the first user.
      where not exists (select from token t join reached r on push.token_key(t.provider, r.token) = push.token_key(t.provider, t.token)
        where t.user_id = m.user_id)
      group by m.user_id
    )
    select u.user_id, u.reason, format('recipients[%s]', u.i), case u.reason
        when 'NotificationsDisabled' then 'the user wants no notifications; nothing to do'
        when 'MissedCallsOff' then format('app %s shows no missed calls: apps.%1$s.missed_calls is off in the gateway''s configuration', v_call.app)
        when 'TokenInvalid' then 'the provider reported every token as dead; the phone must register a new one'
        when 'ProviderNotConfigured' then format(
          'app %s lacks the providers of this user''s devices in the gateway''s configuration; add them', v_call.app)
        else 'has no device for this; register one, or give a token' end
    from unreached u
    union all
    select f.user_id, f.reason, f.field, f.remedy from fault f
    order by 1, 3;
end
$_$;

COMMENT ON FUNCTION push.skipped_recipients(p_outbox_id bigint) IS 'users and parts of recipients that a call skipped, as far as is known now. Users without a delivery: TokenInvalid, NotificationsDisabled, ProviderNotConfigured, MissedCallsOff or NoDevice. Parts of recipients that could not be used: RecipientMalformed, TokenMalformed, TokenMisplaced (a token of another provider), ProviderNotConfigured, or MemberIgnored (the device is reached all the same). field: for example recipients[1].fcmToken; remedy: what to do. p_outbox_id: push.outbox.id';

CREATE FUNCTION push.slot_of(p_call_id text) RETURNS integer
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
declare
  v_hash bytea := sha256(convert_to(p_call_id, 'UTF8'));
begin
  return (get_byte(v_hash, 0) << 2) | (get_byte(v_hash, 1) >> 6);
end
$$;

COMMENT ON FUNCTION push.slot_of(p_call_id text) IS 'the slot of a call id, 0 to 1023: the first ten bits of the SHA-256 of its UTF-8 bytes. p_call_id: push.outbox.call_id';

CREATE FUNCTION push.spread_slots(p_shards integer[], p_now integer[] DEFAULT NULL::integer[]) RETURNS integer[]
    LANGUAGE plpgsql IMMUTABLE
    AS $$
declare
  v_map int[] := array(select case when p_now[n] = any (p_shards) then p_now[n] end from generate_series(1, 1024) n);
  -- The shards, those with the fewest slots first.
  v_all int[];
  v_slot int;
begin
  if coalesce(cardinality(p_shards), 0) not between 1 and 1024
    or cardinality(p_shards) <> (select count(distinct s) from unnest(p_shards) s where s between 0 and 1023)
  then
    raise exception using errcode = 'invalid_parameter_value', message = 'p_shards: must name 1 to 1024 shards, numbers from 0 to 1023';
  end if;
  -- While a slot is free, or a shard has two more than another, the shard with the fewest gets one.
  loop
    v_all := array(
      select x.s from unnest(p_shards || v_map) with ordinality x(s, place) where x.s is not null group by x.s order by count(*), min(x.place));
    v_slot := coalesce(array_position(v_map, null), array_position(v_map, v_all[cardinality(v_all)]));
    exit when v_map[v_slot] is not null
      and cardinality(array_positions(v_map, v_map[v_slot])) - cardinality(array_positions(v_map, v_all[1])) < 2;
    v_map[v_slot] := v_all[1];
  end loop;
  return v_map;
end
$$;

COMMENT ON FUNCTION push.spread_slots(p_shards integer[], p_now integer[]) IS 'a map in which these shards own equal numbers of slots, give or take one, and as few slots as possible move. p_shards: their numbers; p_now: the map before, null: none. Returns what push.use_shard_map takes as p_shards';

CREATE FUNCTION push.sync(p_gateway integer) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
  select set_config('synchronous_commit', 'local', true) where current_setting('synchronous_commit') = 'off';
  update push.gateways g set claims_from = g.claims_from where g.id = p_gateway
$$;

COMMENT ON FUNCTION push.sync(p_gateway integer) IS 'once its transaction is committed, everything that was committed before it is on the disk. Gateways call it before they send pushes that people see. It does not wait for standbys. p_gateway: what push.register_gateway returned';

CREATE FUNCTION push.take_call_key(p_call_id text, p_app text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
  insert into push.call_key (call_id, app) values (p_call_id, p_app) on conflict do nothing;
  if found then
    return true;
  elsif exists (select from push.outbox o where o.call_id = p_call_id and o.app = p_app) then
    return false;
  end if;
  -- A key without a call: the call is being deleted, or was deleted or skipped where triggers did not run. The key may then
  -- be used for one more call, which the update ensures.
  update push.call_key k set app = k.app where k.call_id = p_call_id and k.app = p_app;
  return found and not exists (select from push.outbox o where o.call_id = p_call_id and o.app = p_app);
end
$$;

COMMENT ON FUNCTION push.take_call_key(p_call_id text, p_app text) IS 'reserves the key of a call, and waits for others that have it; false: the call exists';

CREATE FUNCTION push.take_job(p_gateway integer, p_urgent boolean DEFAULT NULL::boolean) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
  v_name text;
begin
  update push.job j set due_at = clock_timestamp() + j.every, taken_at = clock_timestamp(), gateway = p_gateway
    -- No job is due later than one interval from now, unless the clock was set back.
    where j.name = (select x.name from push.job x where x.due_at not between clock_timestamp() and clock_timestamp() + x.every
        and coalesce((x.name in ('promote', 'escalate', 'follow_up_urgent', 'free')) = p_urgent, true)
      order by x.due_at limit 1 for update skip locked)
      and exists (select from push.gateways g where g.id = p_gateway and g.alive)
    returning j.name into v_name;
  return v_name;
end
$$;

COMMENT ON FUNCTION push.take_job(p_gateway integer, p_urgent boolean) IS 'the job that is due first, for push.run_job, or for push.take_tally if the name is tally. Null: no job is due, or the gateway was declared dead. p_gateway: what push.register_gateway returned; p_urgent: only one that is urgent, or one that is not; null: any';

CREATE FUNCTION push.take_tally(p_max integer DEFAULT 20000) RETURNS TABLE(what text, app text, provider text, kind smallint, outcome smallint, reason text, untried boolean, count bigint, seconds double precision)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_id    int;
  v_value bigint;
  v_seen  bigint;
begin
  perform push.run_job('tally');  -- notes that it is done
  return query
    with gone as (
      delete from push.tally t
      where t.ctid = any (array(select x.ctid from push.tally x order by x.id limit p_max for update skip locked))
      returning t.*
    )
    select g.what, coalesce(l.app, g.app), l.channel, g.kind, g.outcome, g.reason, g.untried, sum(g.count)::bigint,
      g.seconds
    from gone g left join push.lane l on l.id = g.lane
    group by 1, 2, 3, 4, 5, 6, 7, 9;
  -- What quotas have refused since the last call, at most of the last two minutes. Each refusal is counted by one gateway.
  what := 'refused';
  for v_id, app in
    select q.id, q.app from push.quota q
    where pg_sequence_last_value(push.meter(q.id, 'refusals')) is distinct from pg_sequence_last_value(push.meter(q.id, 'refusals_seen'))
    for no key update skip locked
  loop
    v_value := pg_sequence_last_value(push.meter(v_id, 'refusals'));
    v_seen := push.meter_at(coalesce(pg_sequence_last_value(push.meter(v_id, 'refusals_seen')), 0), v_value >> 44);
    perform setval(push.meter(v_id, 'refusals_seen'), v_value);
    count := greatest(0, (v_value & 4194303) - (v_seen & 4194303) + ((v_value >> 22) & 4194303) - ((v_seen >> 22) & 4194303));
    if count > 0 then
      return next;
    end if;
  end loop;
end
$$;

COMMENT ON FUNCTION push.take_tally(p_max integer) IS 'removes at most p_max of the oldest rows of push.tally and returns their sums, and what quotas have refused';

CREATE FUNCTION push.tally_calls() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_full jsonb;
begin
  insert into push.tally (what, app, count)
  select 'enqueued', c.app, count(*) from new_calls c
  where push.is_call(c.kind) and c.created_at >= statement_timestamp() group by c.app;
  -- Usually no app escalates, which is quickly checked.
  if exists (select from push.apps a where a.escalate_after_seconds is not null) then
    insert into push.follow_ups (outbox_id, why, is_urgent, due_at)
    select c.id, 'unheard', true, c.created_at + make_interval(secs => a.escalate_after_seconds)
    from new_calls c
    cross join lateral (select a.escalate_after_seconds from push.apps a where a.app = c.app offset 0) a
    where push.is_call(c.kind) and a.escalate_after_seconds < c.ring_seconds and c.created_at >= statement_timestamp();
  end if;
  -- Here, because no later trigger refuses the statement: what others refuse is not counted.
  if pg_sequence_last_value('push.quota_id_seq') is not null then
    select push.use_quota(array_agg(u.app), array_agg(u.counts)) into v_full
    from (
      select n.app, array[count(*) filter (where push.is_call(n.kind)), count(*) filter (where not push.is_call(n.kind)),
        sum(jsonb_array_length(n.recipients))] as counts
      from new_calls n where n.created_at >= statement_timestamp() and n.app in (select q.app from push.quota q)
      group by n.app
    ) u;
    if v_full is not null then
      raise exception using errcode = v_full ->> 'code', message = v_full ->> 'message', detail = v_full ->> 'detail',
        hint = v_full ->> 'hint', schema = 'push', table = 'outbox', column = v_full ->> 'column';
    end if;
  end if;
  return null;
end
$$;

COMMENT ON FUNCTION push.tally_calls() IS 'counts calls, also for the quota of their app, and notes when to look whether phones ring';

CREATE FUNCTION push.tell_missed(p_calls bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $_$
begin
  with call as materialized (
    select o.*, a.providers, coalesce(a.missed_calls = 'all', false) as is_all, push.voip_tokens(o.recipients) as voip
    from unnest(p_calls) c(id)
    cross join lateral (select * from push.outbox o where o.id = c.id offset 0) o
    left join push.apps a on a.app = o.app
    where not o.voided and (o.state = 'missed' or o.state = 'ended' and o.end_reason <> 'notification'
        and (o.end_reason not in ('declined', 'busy') or o.declined @? '$.*.reason ? (@ == "connection_failed" || @ == "busy")'))
      and a.missed_calls is distinct from 'off'
  ), pushed as materialized (
    select p.id, max(p.last_n) as last_n, bool_or(p.kind = 2) as is_told from push.pushes_of(array(select c.id from call c)) p group by p.id
  ), due as materialized (
    -- A token that several entries name is one phone.
    select distinct on (p.id, p.lane, p.key) p.*
    from (
      -- One phone of a user, or every phone.
      select distinct on (c.id, e.user_id, k.phone) c.id, e.user_id, v.lane, v.key, v.fault, v.token, v.environment, v.locale,
        -- A device of fcm that names no platform may be an iPhone, which does not show a data message alone.
        case when v.rank = 2 and v.is_guess then 0 else v.platform end as platform,
        case when e.entry ? 'data' then push.recipient_data(e.entry) end as data,
        -- Not from the time of this statement: after an outage, calls of last week are not announced. Their missed calls expire
        -- (push.expire), and only history shows them.
        least(c.ended_at, c.deadline_at) + interval '4 hours' as until
      from call c cross join lateral (
        -- A user who is named several times is looked up once.
        select distinct on (r.user_id, r.device) r.* from (
          select r.entry, r.i, push.entry_user(r.entry) as user_id,
            case when jsonb_typeof(r.entry) = 'object' and push.has_token_member(r.entry) then r.i end as device
          from jsonb_array_elements(c.recipients) with ordinality r(entry, i)
          where push.is_recipient(r.entry) and r.entry -> 'notificationEnabled' is distinct from 'false'
            and r.entry -> 'missedCall' is distinct from 'false' offset 0
        ) r order by r.user_id, r.device, r.i
      ) e cross join lateral push.routes_of(c.app, false, c.providers, c.voip, null, e.entry) v
      cross join lateral (select case when c.is_all then coalesce(e.device::text, v.key) end) k(phone)
      -- A user who declined has not missed the call.
      where case c.declined -> e.user_id ->> 'reason' when 'connection_failed' then true
          when 'busy' then e.entry -> 'missedCall' is not distinct from 'true'
          else c.declined -> e.user_id is null and c.end_reason not in ('declined', 'busy') end
        and c.id not in (select x.id from pushed x where x.is_told)
      order by c.id, e.user_id, k.phone, v.rank, e.i, v.registered_at desc, v.token
    ) p
    where p.fault is null
    order by p.id, p.lane, p.key, p.user_id
  ), told as (
    -- These cancels may arrive after the missed call and must then show the same. One that has left shows only that the call has ended.
    update push.delivery x set paired = true
    where x.state = 0 and x.ctid = any (array(
      select s.tid from call c
      cross join lateral (
        select s.ctid as tid, s.outbox_id, s.lane, s.token from push.delivery s where s.outbox_id = c.id and s.kind = 1 and s.state = 0
        for update skip locked
      ) s
      where coalesce((s.outbox_id, s.lane, s.token) in (select d.id, d.lane, d.token from due d), false)))
    returning x.outbox_id, x.lane, x.token
  ), made as (
    insert into push.delivery (outbox_id, n, kind, paired, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
    select d.id, coalesce((select x.last_n from pushed x where x.id = d.id), -1)
        + row_number() over (partition by d.id order by d.user_id, d.lane, d.token), 2,
      (d.id, d.lane, d.token) in (select t.outbox_id, t.lane, t.token from told t),
      d.until, d.lane, d.lane, d.environment, d.platform, d.user_id, d.token, d.locale, d.data
    from due d
    returning outbox_id, deadline_at
  )
  insert into push.tally (what, app, reason, count)
  select 'missed', c.app, case c.state when 'missed' then 'deadline' else 'ended' end, count(*)
  from made m join call c on c.id = m.outbox_id where m.deadline_at > clock_timestamp() group by 2, 3;
end
$_$;

COMMENT ON FUNCTION push.tell_missed(p_calls bigint[]) IS 'makes missed calls of calls that nobody answered, declined or voided';

CREATE FUNCTION push.tell_untold(p_calls bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
begin
  with phone as (
    select p.*, bool_or(p.kind = 1 and (p.outcome = 3 or p.outcome = 4 and not p.may_ring)) over (partition by p.id, p.lane, p.token) as is_untold,
      max(p.n) filter (where p.kind = 2) over (partition by p.id, p.lane, p.token) as newest
    from push.pushes_of(p_calls) p where p.token is not null
  ), untold as materialized (
    select p.* from phone p
    where p.is_untold and p.kind = 2 and p.n = p.newest and p.deadline_at > clock_timestamp()
      and (p.outcome is null or p.reason = 'SaidByCancel')
  ), unpaired as (
    update push.delivery d set paired = false
    where d.state <> 1 and d.ctid = any (array(
      select x.tid from untold u
      cross join lateral (select x.ctid as tid from push.delivery x where x.outbox_id = u.id and x.n = u.n for update skip locked) x))
  )
  insert into push.delivery (outbox_id, n, kind, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
  select u.id, u.last_n + row_number() over (partition by u.id order by u.n), 2, u.deadline_at, u.lane, u.lane, coalesce(u.environment, 0),
    coalesce(u.platform, 0), u.user_id, u.token, u.locale, u.data
  from untold u where u.reason = 'SaidByCancel';
end
$$;

COMMENT ON FUNCTION push.tell_untold(p_calls bigint[]) IS 'makes missed calls again if the cancel that would have shown them was not sent';

CREATE FUNCTION push.timeline(call_id text, app text DEFAULT NULL::text, first_n integer DEFAULT NULL::integer, last_n integer DEFAULT NULL::integer) RETURNS TABLE(at timestamp with time zone, ms numeric, event text, provider text, kind text, user_id text, attempt integer, status integer, reason text, device text, trace_id text, field text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    AS $$
  with call as (
    select o.id, o.kind, o.created_at, o.declined, substr(o.traceparent, 4, 32) as trace_id, coalesce(timeline.first_n, 0) as first_n,
      coalesce(timeline.last_n, 2147483647) as last_n
    from push.own_calls(timeline.call_id, timeline.app) c join push.outbox o on o.id = c.id
  ), pushed as (
    -- A ready or claimed delivery has no time of its own; it is listed at the time when it was created.
    select p.* from call c cross join lateral (
      select d.outbox_id, d.n, d.created_at, d.provider, d.kind, d.user_id, d.device, d.fallback_of, d.failures, 3 as step,
        case d.state when 'waiting' then d.due_at else d.created_at end as at, d.state as event, d.attempt, null::int as status,
        d.last_reason as reason, null::timestamptz as sent_at
      from push.deliveries d
      where d.outbox_id = c.id and d.n between c.first_n and c.last_n
      union all
      select h.outbox_id, h.n, h.created_at, h.provider, h.kind, h.user_id, h.device, h.fallback_of, h.failures, 6,
        coalesce(h.answered_at, h.finished_at), h.outcome, h.attempts, h.status, h.reason, h.sent_at
      from push.delivery_history h
      where h.outbox_id = c.id and h.finished_at >= c.created_at and h.n between c.first_n and c.last_n
      offset 0) p
  ), told as (
    select p.outbox_id as id, e.*, p.n, p.provider, p.kind, p.user_id, p.device, null as field
    from pushed p cross join lateral (
      -- Another channel replaced one that failed, or one whose phones did not report that they ring.
      select p.created_at as at, 2 as step, case when s.n is null then 'fallback' else 'escalation' end as event, null::int as attempt,
        case when s.n is null then f.status end as status, case when s.n is null then f.reason else 'NotRinging' end as reason
      from (select) x left join pushed f on f.outbox_id = p.outbox_id and f.n = p.fallback_of and f.step = 6
      left join push.escalations s on s.outbox_id = p.outbox_id and s.n = p.n
      where p.fallback_of is not null
      union all
      select p.at, p.step, p.event, p.attempt, p.status, p.reason
      union all
      select (a ->> 'at')::timestamptz, 4, 'attempt failed', (a ->> 'attempt')::int, (a ->> 'status')::int, a ->> 'reason'
      from jsonb_array_elements(p.failures) a
      union all
      -- The last attempt may not have been sent. The one that was is the first to fail after it was sent, if any did.
      select p.sent_at, 5, 'sent', coalesce((
          select min((a ->> 'attempt')::int) from jsonb_array_elements(p.failures) a where (a ->> 'at')::timestamptz >= p.sent_at
        ), p.attempt), null, null
      where p.sent_at is not null
    ) e
    union all
    select c.id, e.at, e.step, e.event, e.attempt, null, e.reason, -1, null, c.kind, e.user_id, null, e.field
    from call c cross join lateral (
      select c.created_at as at, 0 as step, 'enqueued' as event, null as user_id, null::int as attempt, null as reason, null as field
      union all
      select c.created_at, 1, 'skipped', s.user_id, null, s.reason, s.field from push.skipped_recipients(c.id) s
      union all
      select r.rang_at, 7, 'ringing', r.user_id, null, null, null from push.ring_reports r where r.outbox_id = c.id
      union all
      select (s.said ->> 'at')::timestamptz, 7, s.said ->> 'reason', s.user_id, null, null, null from jsonb_each(c.declined) s(user_id, said)
      union all
      -- Listed at the time of its next try, like a delivery that waits.
      select max(f.due_at), 8, 'end failed', null, max(f.tries), null, null from push.follow_ups f
      where f.outbox_id = c.id and f.tries > 0 having count(*) > 0
    ) e
    where timeline.first_n is null
  )
  select e.at, round((extract(epoch from e.at - c.created_at) * 1000)::numeric, 1), e.event, e.provider, e.kind,
    e.user_id, e.attempt, e.status, e.reason, e.device, c.trace_id, e.field
  from told e join call c on c.id = e.id
  order by e.at, e.step, e.n, e.user_id
$$;

COMMENT ON FUNCTION push.timeline(call_id text, app text, first_n integer, last_n integer) IS 'the events of a call, in order of time. call_id: payload.callId; app: only the call of this app; first_n, last_n: only pushes with these numbers, for pages of a large call; events that belong to no push are included only without first_n. ms: milliseconds since the call was enqueued; event: enqueued, skipped (no delivery was made for this user, or a part of recipients could not be used; field names it, for example recipients[1].fcmToken), fallback (the channel before failed for this reason), escalation (no phone had reported that it rings), ready, claimed, waiting, attempt failed, sent, the outcome (delivered, delivered_late, void, expired, dead), ringing (a phone reported it), declined or busy (the user declined, push.decline_call), end failed (its missed calls are not announced yet; attempt: how often that failed; at: when it is tried next); trace_id: the trace of the call, from push.outbox.traceparent';

CREATE FUNCTION push.token_digests(p_provider text, p_token text) RETURNS bytea[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case p_provider when 'apns' then array[sha256(lower(p_token)::bytea), sha256(upper(p_token)::bytea), sha256(p_token::bytea)]
    else array[sha256(p_token::bytea)] end
$$;

COMMENT ON FUNCTION push.token_digests(p_provider text, p_token text) IS 'digests of the texts with which a token may be stored, for look-ups by the indexes on sha256(token)';

CREATE FUNCTION push.token_key(p_provider text, p_token text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select case p_provider when 'apns' then lower(p_token) else p_token end $$;

COMMENT ON FUNCTION push.token_key(p_provider text, p_token text) IS 'a token as it is compared with others: one of APNs in small letters';

CREATE FUNCTION push.token_remedy(p_provider text, p_token text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
  select case
    when p_provider <> 'expo' and p_token like 'Expo%[%]' and push.is_token('expo', p_token)
      then 'is an Expo push token; give it as pushToken'
    when p_provider <> 'webpush' and push.webpush_token(p_token) is not null
      then 'is a browser''s subscription; give it as webPushSubscription'
    when p_provider in ('expo', 'webpush') and push.is_token('apns', p_token)
      then 'has the form of an APNs token; give it as voipPushToken or apnsToken'
    when p_provider <> 'fcm' and push.is_token('fcm', p_token) and (p_provider in ('expo', 'webpush') or p_token like '%:%')
      then 'has the form of an FCM registration token; give it as fcmToken'
    when p_provider = 'apns' then 'must be 64 to 200 hexadecimal digits, an even number'
    when p_provider = 'fcm' then 'must be an FCM registration token: 20 to 4096 letters, digits or any of _ : % . -'
    when p_provider = 'expo' then 'must be ExponentPushToken[...], ExpoPushToken[...] or a UUID'
    when p_provider = 'webpush' then 'must be the browser''s PushSubscription: an object with endpoint (https), keys.p256dh and keys.auth, '
      'at most 1000 characters in all' end
$$;

COMMENT ON FUNCTION push.token_remedy(p_provider text, p_token text) IS 'what to do with a malformed token: where it belongs, or what it must be';

CREATE FUNCTION push.trim_webhooks(OUT trimmed bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_bitmapscan TO 'off'
    AS $_$
declare
  c_age_max constant interval := '24 hours';
  v_begun   timestamptz := clock_timestamp();
  v_count   bigint;
  v_hook    push.webhook;
begin
  trimmed := 0;
  -- An app that was removed together with its webhook. If a living replica has the webhook after all, it claims within the
  -- minute, and the webhook stays on. Replicas report their lanes every second; one that has just started has not yet.
  update push.webhook w set on_until = v_begun + interval '1 minute'
    where w.app = any (array(
      select x.app from push.webhook x
      where x.on_until = 'infinity' and x.changed_at < v_begun - c_age_max
        and exists (select from push.gateways g where g.alive and g.started_at < v_begun - interval '1 minute')
        and not exists (select from push.lane l join push.lane_status s on s.lane = l.id
          where l.app = x.app and s.updated_at > v_begun - c_age_max)
      for no key update skip locked));
  -- Apps take turns, because looking for the oldest events of many may take longer than one step may; a step does at least one app. Each
  -- app's events are found by an index of their own, so those of an app whose row an operator has locked, which are left, keep no others
  -- from being deleted.
  for v_hook in
    select w.* from push.webhook w where (select true from push.webhook_event e where e.app = w.app limit 1)
    order by random() for no key update of w skip locked
  loop
    exit when v_count is not null and clock_timestamp() > v_begun + interval '250 ms';
    v_count := push.change_rows('delete from push.webhook_event where ctid = any ($1)', array(
        select x.ctid from push.webhook_event x
        where x.app = v_hook.app and x.created_at < greatest(v_begun - c_age_max,
            (select n.created_at from push.webhook_event n
              where n.app = v_hook.app order by n.created_at desc offset 100000 - 1 limit 1),
            -- Those of a webhook that was turned off within the last ten seconds are kept: another replica may have it.
            case when v_hook.on_until < v_begun - interval '10 s' then 'infinity'::timestamptz end)
        order by x.created_at limit 5000 for update skip locked));
    update push.webhook w set dropped = w.dropped + v_count where w.app = v_hook.app and w.on_until > v_begun and v_count > 0;
    trimmed := trimmed + v_count;
  end loop;
end
$_$;

COMMENT ON FUNCTION push.trim_webhooks(OUT trimmed bigint) IS 'turns off webhooks that no gateway has, and deletes old events; returns how many';

CREATE FUNCTION push.use_quota(p_app text[], p_counts bigint[]) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
declare
  v_fault jsonb;
begin
  for v_app in 1..coalesce(cardinality(p_app), 0) loop
    v_fault := push.quota_fault(p_app[v_app], array(select unnest(p_counts[v_app:v_app])), true, true);
    if v_fault is not null then
      -- Other sessions used it up since this statement asked. All that it counted is given back, for each of its apps.
      perform push.count_on_meter(push.meter(q.id, k.what || '_returned'), p_counts[a.i][k.place])
        from generate_series(1, v_app) a(i) join push.quota q on q.app = p_app[a.i]
        cross join lateral unnest((push.meter_names())[:3], q.limits) with ordinality k(what, most, place)
        where k.most is not null and p_counts[a.i][k.place] > 0
          and num_nulls(push.meter(q.id, k.what), push.meter(q.id, k.what || '_returned')) = 0;
      return v_fault;
    end if;
  end loop;
  return null;
end
$$;

COMMENT ON FUNCTION push.use_quota(p_app text[], p_counts bigint[]) IS 'counts what a statement enqueues, by app; or returns the error, as push.quota_fault does';

CREATE FUNCTION push.use_shard_map(p_generation integer, p_shards integer[], p_here integer, p_keep interval DEFAULT '16 days'::interval) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_now    push.shard_map;
  v_shards smallint[] := p_shards;
  v_owns   int := cardinality(array_positions(v_shards, p_here::smallint));
  v_known  boolean;
begin
  -- Waits for transactions that have enqueued under the current map, and keeps new ones waiting until this one ends.
  lock table push.outbox in share row exclusive mode;
  select m.* into v_now from push.shard_map m where m.until is null for update;
  v_known := coalesce(p_generation = v_now.generation and v_shards = v_now.shards, false);
  if p_here is distinct from coalesce((select h.shard from push.shard_here h), p_here) then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('this database is shard %s, not %s', push.own_shard(), p_here), hint = 'A shard keeps its number.';
  elsif p_generation <= v_now.generation and not v_known then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('map %s is not newer than map %s of this database', p_generation, v_now.generation),
      hint = 'Maps only go forward. To return to an earlier one, give it the next number.';
  end if;
  insert into push.shard_here (shard) values (p_here) on conflict do nothing;
  -- They may be missing in a database that has this map: rows that are replicated, or restored without the schema, do not bring them.
  if not exists (select from pg_trigger t where t.tgrelid = 'push.outbox'::regclass and t.tgname = 'refuse_slots') then
    execute format('create trigger refuse_slots after insert on push.outbox referencing new table as new_calls '
      'for each statement execute function push.refuse_slots(%L)', p_here);
  end if;
  -- Ids of calls are unique over all shards, and name theirs: id % 1024. Sessions may still have 32 ids of the old kind each.
  if (select s.increment_by from pg_sequences s where s.schemaname = 'push' and s.sequencename = 'outbox_id_seq') <> 1024 then
    execute format('alter sequence push.outbox_id_seq increment by 1024 restart with %s',
      (greatest(nextval('push.outbox_id_seq'), (select max(o.id) from push.outbox o)) / 1024 + 40) * 1024 + p_here);
  end if;
  if v_known then
    return format('shard %s has map %s already', p_here, p_generation);
  end if;
  update push.shard_map m set until = clock_timestamp() where m.until is null;
  insert into push.shard_map (generation, shards) values (p_generation, v_shards);
  delete from push.shard_map m where m.until < clock_timestamp() - p_keep;
  insert into push.audit (action, target, detail) values ('use_shard_map', 'shard ' || p_here,
    jsonb_build_object('generation', p_generation, 'slots', v_owns));
  return format('shard %s has map %s: %s of 1024 slots are its own', p_here, p_generation, v_owns);
end
$$;

COMMENT ON FUNCTION push.use_shard_map(p_generation integer, p_shards integer[], p_here integer, p_keep interval) IS 'makes this database a shard, or gives it the next map. Shards that lose slots must have it before those that gain them, and the routers come last (deploy/plproxy/shards.sh does it in this order). p_generation: number of the map; p_shards: the shard of each of the 1,024 slots; p_here: number of this shard; p_keep: for how long earlier maps are kept, at least as long as calls are. Waits until no transaction that has enqueued is open: set lock_timeout. Returns what was done. Running it twice is harmless. For the owner of the schema';

CREATE FUNCTION push.void_call(call_id text, reason text DEFAULT 'voided'::text, app text DEFAULT NULL::text) RETURNS TABLE(voided integer, message text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'push', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  v_call push.outbox;
  v_id   bigint := push.find_call(void_call.call_id, void_call.app);
  v_done boolean;
begin
  update push.outbox o set state = 'ended', end_reason = coalesce(void_call.reason, 'voided'), voided = true
    where o.id = v_id and o.ended_at is null;
  v_done := found;
  voided := (select count(*) from push.delivery d where v_done and d.outbox_id = v_id and d.kind = 0 and d.state in (0, 2));
  select o.* into v_call from push.outbox o where o.id = v_id;
  message := format(case when v_done
      then 'call %s was ended (%s): %s invites are taken back unsent, phones that may ring are told, nobody gets a missed call'
      else 'call %s had ended before (%s); nothing was done' end, v_call.call_id, v_call.end_reason, voided);
  insert into push.audit (action, target, detail) values ('void_call', v_call.app || '/' || v_call.call_id,
    jsonb_build_object('reason', v_call.end_reason, 'done', v_done, 'voided', voided));
  return next;
end
$$;

COMMENT ON FUNCTION push.void_call(call_id text, reason text, app text) IS 'cancels a ringing call: unsent invites become void, phones that may ring get a cancel, and nobody gets a missed call. call_id: payload.callId; reason: kept as push.outbox.end_reason; app: needed only if several apps have a call with this id. Returns how many invites were taken back unsent, and a sentence that says what was done. Running it twice is harmless';

CREATE FUNCTION push.void_unsent(p_calls bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    SET search_path TO 'push', 'pg_temp'
    AS $$
declare
  v_end record;
begin
  for v_end in
    with call as materialized (
      select o.* from unnest(p_calls) c(id) cross join lateral (
        select o.id, o.state, o.declined from push.outbox o where o.id = c.id and (o.ended_at is not null or o.declined is not null) offset 0
      ) o
    ), said as materialized (
      -- Read once: an object of declines may be large.
      select c.id, s.user_id, 'User' || replace(initcap(s.said ->> 'reason'), '_', '') as reason
      from call c cross join lateral jsonb_each(c.declined) s(user_id, said) where c.state = 'ringing'
    ), unsent as materialized (
      select d.*, c.id, c.state from call c cross join lateral (
        select d.ctid as tid, d.user_id, d.deadline_at from push.delivery d
        where d.outbox_id = c.id and d.kind = 0 and d.state in (0, 2)
          and (c.state <> 'ringing' or (c.id, d.user_id) in (select s.id, s.user_id from said s))
        for update skip locked
      ) d
    )
    select u.state = 'missed' and u.deadline_at <= clock_timestamp() as is_late, coalesce(s.reason, 'Call' || initcap(u.state)) as reason,
      array_agg(u.tid) as places
    from unsent u left join said s on s.id = u.id and s.user_id = u.user_id
    group by 1, 2
  loop
    perform push.bury(v_end.places, case when v_end.is_late then 3 else 2 end, case when not v_end.is_late then v_end.reason end);
  end loop;
  return array(
    select distinct d.outbox_id from push.delivery d
    where d.outbox_id = any (p_calls) and d.kind = 0 and d.state in (0, 2)
      and (d.outbox_id in (select e.outbox_id from push.ended_for(p_calls) e where e.user_id is null)
        or (d.outbox_id, d.user_id) in (select e.outbox_id, e.user_id from push.ended_for(p_calls) e)));
end
$$;

COMMENT ON FUNCTION push.void_unsent(p_calls bigint[]) IS 'ends unsent invites of calls that no longer ring, and of users who have declined; returns the calls of those that are locked';

CREATE FUNCTION push.voip_tokens(p_recipients jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
  select array(
    select lower(translate(t.token #>> '{}', E'<> \t\r\n', ''))
    from jsonb_path_query(p_recipients, 'lax $[*].voipPushToken') t(token)
    where case when jsonb_typeof(t.token) = 'string' then octet_length(t.token #>> '{}') <= 1024 end)
$_$;

COMMENT ON FUNCTION push.voip_tokens(p_recipients jsonb) IS 'the VoIP tokens of recipients, in small letters, without <, > and blanks';

CREATE FUNCTION push.webhook_id(VARIADIC p_parts text[]) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ select 'evt_' || md5(array_to_json(p_parts)::text) $$;

COMMENT ON FUNCTION push.webhook_id(VARIADIC p_parts text[]) IS 'the id of an event, from what makes it unique: a time included, as numbers may repeat';

CREATE FUNCTION push.webpush_token(p_token text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $$
  select case when push.is_token('webpush', t.token) then t.token end
  from (
    select case when left(btrim(p_token, E' \t\r\n'), 1) = '{' and length(p_token) <= 4096 then
        substring(j.text from '"endpoint"[[:space:]]*:[[:space:]]*"([^"]*)"')
        || '#auth=' || rtrim(translate(substring(j.text from '"auth"[[:space:]]*:[[:space:]]*"([^"]*)"'), '+/', '-_'), '=')
        || '&p256dh=' || rtrim(translate(substring(j.text from '"p256dh"[[:space:]]*:[[:space:]]*"([^"]*)"'), '+/', '-_'), '=')
      else btrim(p_token, E' \t\r\n') end as token
    from (
      select case when strpos(p_token, E'\\') = 0 then p_token
        else regexp_replace(regexp_replace(regexp_replace(replace(p_token, E'\\/', '/'),
          E'\\\\u003d', '=', 'gi'), E'\\\\u0026', '&', 'gi'), E'\\\\u002b', '+', 'gi') end as text
    ) j
  ) t
$$;

COMMENT ON FUNCTION push.webpush_token(p_token text) IS 'the subscription of a browser in its canonical form; null: it is none';

CREATE FUNCTION push.written_at() RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE
    AS $$ select pg_catalog.clock_timestamp() $$;

COMMENT ON FUNCTION push.written_at() IS 'the current time; for push.origin.written_at';

CREATE TABLE push.api_keys (
    id integer NOT NULL,
    app text NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL,
    hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    addresses cidr[],
    last_used_at timestamp with time zone,
    last_used_from inet,
    CONSTRAINT api_keys_addresses_some CHECK ((((cardinality(addresses) >= 1) AND (cardinality(addresses) <= 64)) AND (array_position(addresses, NULL::cidr) IS NULL))),
    CONSTRAINT api_keys_app_form CHECK (((app ~ '^[A-Za-z0-9]'::text) AND (app !~ '[^A-Za-z0-9_.-]'::text) AND (length(app) <= 64))),
    CONSTRAINT api_keys_hash_sha256 CHECK ((length(hash) = 32)),
    CONSTRAINT api_keys_name_length CHECK (((length(name) >= 1) AND (length(name) <= 128))),
    CONSTRAINT api_keys_scopes_known CHECK (((scopes <@ '{enqueue,device,read}'::text[]) AND ((cardinality(scopes) >= 1) AND (cardinality(scopes) <= 3))))
);

COMMENT ON TABLE push.api_keys IS 'one key to the HTTP API; the key itself is not stored';

COMMENT ON COLUMN push.api_keys.id IS 'number of the key, and its part after pgk_';

COMMENT ON COLUMN push.api_keys.app IS 'the only app it opens';

COMMENT ON COLUMN push.api_keys.name IS 'who has it, for people';

COMMENT ON COLUMN push.api_keys.scopes IS 'what it may do: enqueue (enqueue, answer and end calls), device (register and drop devices, report ringing), read (a call''s state and timeline)';

COMMENT ON COLUMN push.api_keys.hash IS 'SHA-256 of the whole key';

COMMENT ON COLUMN push.api_keys.created_at IS 'when it was made';

COMMENT ON COLUMN push.api_keys.expires_at IS 'from when on it is refused; null: never';

COMMENT ON COLUMN push.api_keys.revoked_at IS 'since when it is refused; null: it is not';

COMMENT ON COLUMN push.api_keys.addresses IS 'networks it may be used from, 1 to 64; null: from anywhere. Gateways compare them with the address that the request came from';

COMMENT ON COLUMN push.api_keys.last_used_at IS 'when a gateway last took a request with it, written at most once a minute; null: never, or by older releases only';

COMMENT ON COLUMN push.api_keys.last_used_from IS 'the address that this request came from';

ALTER TABLE push.api_keys ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.api_keys_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE push.app_grant (
    role text NOT NULL,
    app text NOT NULL,
    granted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    granted_by text DEFAULT SESSION_USER NOT NULL,
    CONSTRAINT app_grant_app_form CHECK (((app ~ '^[A-Za-z0-9]'::text) AND (app !~ '[^A-Za-z0-9_.-]'::text) AND (length(app) <= 64)))
);

COMMENT ON TABLE push.app_grant IS 'one app that a role of push_tenant, and its members, may act for; written by push.grant_app. People read push.app_grants';

COMMENT ON COLUMN push.app_grant.role IS 'name of the database role, which is good in every cluster that the database is restored to';

COMMENT ON COLUMN push.app_grant.app IS 'name of the app';

COMMENT ON COLUMN push.app_grant.granted_at IS 'when it was granted';

COMMENT ON COLUMN push.app_grant.granted_by IS 'the database role that was logged in then';

CREATE VIEW push.app_grants AS
 SELECT b.role,
    g.app,
    g.granted_at,
    g.granted_by,
        CASE
            WHEN (r.oid IS NULL) THEN 'there is no such role'::text
            WHEN (has_schema_privilege(r.oid, 'push'::text, 'create'::text) OR pg_has_role(r.oid, (to_regrole('push_gateway'::text))::oid, 'usage'::text)) THEN 'acts for every app: a superuser, the schema''s owner, or push_gateway'::text
            WHEN (pg_has_role(r.oid, (to_regrole('push_ops'::text))::oid, 'member'::text) OR pg_has_role(r.oid, (to_regrole('push_keys'::text))::oid, 'member'::text)) THEN 'has push_ops or push_keys, which act for every app; revoke it'::text
            WHEN r.rolcreaterole THEN 'may create roles, and so give itself the rights of others'::text
            WHEN (NOT pg_has_role(r.oid, (to_regrole('push_tenant'::text))::oid, 'usage'::text)) THEN 'is not in push_tenant'::text
            WHEN pg_has_role(r.oid, (to_regrole('push_enqueuer'::text))::oid, 'usage'::text) THEN 'acts for no app: has push_enqueuer as well; revoke it'::text
            WHEN (t.names IS NOT NULL) THEN (('these members act for no app: '::text || t.names) || ' have push_enqueuer as well; revoke it'::text)
            WHEN (g.app IS NULL) THEN 'acts for no app but those of roles it is a member of'::text
            ELSE NULL::text
        END AS fault
   FROM (((( SELECT g_1.role
           FROM push.app_grant g_1
        UNION
         SELECT (r_1.rolname)::text AS rolname
           FROM (pg_auth_members m
             JOIN pg_roles r_1 ON ((r_1.oid = m.member)))
          WHERE ((m.roleid = (to_regrole('push_tenant'::text))::oid) AND (m.member <> ( SELECT n.nspowner
                   FROM pg_namespace n
                  WHERE (n.nspname = 'push'::name))))) b
     LEFT JOIN push.app_grant g ON ((g.role = b.role)))
     LEFT JOIN pg_roles r ON ((r.rolname = b.role)))
     LEFT JOIN LATERAL ( SELECT string_agg((x.rolname)::text, ', '::text ORDER BY ((x.rolname)::text)) AS names
           FROM pg_roles x
          WHERE ((x.oid <> r.oid) AND pg_has_role(x.oid, r.oid, 'usage'::text) AND pg_has_role(x.oid, (to_regrole('push_enqueuer'::text))::oid, 'usage'::text) AND (NOT has_schema_privilege(x.oid, 'push'::text, 'create'::text)) AND (NOT COALESCE(pg_has_role(x.oid, (to_regrole('push_gateway'::text))::oid, 'usage'::text), false)))) t ON (true));

COMMENT ON VIEW push.app_grants IS 'one row for each role that is bound to apps and each of its apps; members of the role are bound with it';

COMMENT ON COLUMN push.app_grants.role IS 'name of the database role, which is good in every cluster that the database is restored to';

COMMENT ON COLUMN push.app_grants.app IS 'an app that it may act for; null: none was granted to it';

COMMENT ON COLUMN push.app_grants.granted_at IS 'when it was granted';

COMMENT ON COLUMN push.app_grants.granted_by IS 'the database role that was logged in then';

COMMENT ON COLUMN push.app_grants.fault IS 'why the grant does not work as it seems to; null: it works';

CREATE TABLE push.apps (
    app text NOT NULL,
    ring_seconds integer NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    escalate_after_seconds integer,
    at_least_once boolean DEFAULT false NOT NULL,
    providers text[],
    missed_calls text,
    voip_cancel boolean DEFAULT false NOT NULL,
    message_text boolean DEFAULT false NOT NULL,
    CONSTRAINT apps_app_form CHECK (((app ~ '^[A-Za-z0-9]'::text) AND (app !~ '[^A-Za-z0-9_.-]'::text) AND (length(app) <= 64))),
    CONSTRAINT apps_escalate_range CHECK (((escalate_after_seconds >= 1) AND (escalate_after_seconds <= 600))),
    CONSTRAINT apps_missed_calls_known CHECK ((missed_calls = ANY (ARRAY['off'::text, 'newest'::text, 'all'::text]))),
    CONSTRAINT apps_providers_known CHECK ((providers <@ push.channels())),
    CONSTRAINT apps_ring_seconds_range CHECK (((ring_seconds >= 1) AND (ring_seconds <= 600)))
);

COMMENT ON TABLE push.apps IS 'one app of the gateway''s configuration, as far as enqueueing needs it';

COMMENT ON COLUMN push.apps.app IS 'name of the app: the key under apps in the configuration';

COMMENT ON COLUMN push.apps.ring_seconds IS 'ring window of a call that gives none of its own, in seconds, 1 to 600';

COMMENT ON COLUMN push.apps.updated_at IS 'when a gateway last changed the row';

COMMENT ON COLUMN push.apps.escalate_after_seconds IS 'a user none of whose phones has said by then that it rings is tried on the next channel, once; null: never';

COMMENT ON COLUMN push.apps.at_least_once IS 'true: a missed call or notification of which nobody knows whether it was sent is sent again; false: it is not';

COMMENT ON COLUMN push.apps.providers IS 'the channels that the configuration has for the app; null: unknown, as apns, fcm and expo. Tokens of others are skipped';

COMMENT ON COLUMN push.apps.missed_calls IS 'whom a missed call is shown to: off: nobody; newest: one phone of each user; all: every phone of each user; null: not said, then one phone of each user hears what gateways announce, and every phone what the backend enqueues';

COMMENT ON COLUMN push.apps.voip_cancel IS 'whether the phones take a VoIP push for the end of a call: a cancel goes to VoIP tokens, too';

COMMENT ON COLUMN push.apps.message_text IS 'whether the text of a message may be in its payload, as text, and is shown; false: such a message is refused';

CREATE TABLE push.audit (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    who text DEFAULT SESSION_USER NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    detail jsonb,
    via text DEFAULT NULLIF(current_setting('application_name'::text), ''::text),
    operator text
);

COMMENT ON TABLE push.audit IS 'one intervention, by ops or by a gateway on its own';

COMMENT ON COLUMN push.audit.id IS 'number of the intervention';

COMMENT ON COLUMN push.audit.at IS 'when';

COMMENT ON COLUMN push.audit.who IS 'the database role that was logged in';

COMMENT ON COLUMN push.audit.action IS 'name of the function';

COMMENT ON COLUMN push.audit.target IS 'what it was done to, for example app/provider';

COMMENT ON COLUMN push.audit.detail IS 'object: what was asked and what came of it';

COMMENT ON COLUMN push.audit.via IS 'the program that asked (application_name): psql, push-gateway dashboard';

COMMENT ON COLUMN push.audit.operator IS 'the person for whom the dashboard acted: the name of an ops key, or what a proxy vouches for; null: anybody else. Written by push.operate_lane and push.operate_call alone, which only the service may call';

ALTER TABLE push.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE push.call_key (
    call_id text NOT NULL,
    app text NOT NULL
)
WITH (vacuum_truncate=off, autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='50000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='500000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_threshold='100000');
ALTER TABLE ONLY push.call_key ALTER COLUMN call_id SET STATISTICS 0;

COMMENT ON TABLE push.call_key IS 'one call of push.outbox by what makes it unique; written by push.fill_call before the call, removed with it';

COMMENT ON COLUMN push.call_key.call_id IS 'push.outbox.call_id';

COMMENT ON COLUMN push.call_key.app IS 'push.outbox.app';

CREATE TABLE push.lane (
    id smallint NOT NULL,
    app text NOT NULL,
    provider text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    note text,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    invalidation_held_at timestamp with time zone,
    invalidation_note text,
    service text DEFAULT ''::text NOT NULL,
    channel text,
    CONSTRAINT lane_app_form CHECK (((app ~ '^[A-Za-z0-9]'::text) AND (app !~ '[^A-Za-z0-9_.-]'::text) AND (length(app) <= 64))),
    CONSTRAINT lane_provider_known CHECK ((provider = ANY (push.channels()))),
    CONSTRAINT lane_service_known CHECK ((service = ANY (push.push_services(provider))))
);

COMMENT ON TABLE push.lane IS 'one app and provider: deliveries of different lanes never wait for one another';

COMMENT ON COLUMN push.lane.id IS 'small number that deliveries carry';

COMMENT ON COLUMN push.lane.app IS 'name of the app';

COMMENT ON COLUMN push.lane.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.lane.paused IS 'true: nothing is claimed from this lane, its deliveries wait or expire';

COMMENT ON COLUMN push.lane.note IS 'why it is paused, or whatever ops want to remember';

COMMENT ON COLUMN push.lane.updated_at IS 'when the row last changed';

COMMENT ON COLUMN push.lane.invalidation_held_at IS 'since when no token of this lane is invalidated, but quarantined; null: the ordinary state';

COMMENT ON COLUMN push.lane.invalidation_note IS 'why invalidation is on hold';

COMMENT ON COLUMN push.lane.service IS 'one of push.push_services(provider)';

COMMENT ON COLUMN push.lane.channel IS 'provider and service: apns, webpush/google';

CREATE VIEW push.deliveries AS
 SELECT d.outbox_id,
    l.app,
    o.call_id,
    l.provider,
        CASE d.kind
            WHEN 0 THEN 'invite'::text
            WHEN 1 THEN 'cancel'::text
            WHEN 2 THEN 'missed_call'::text
            ELSE 'notification'::text
        END AS kind,
    d.user_id,
        CASE
            WHEN (d.state = 1) THEN 'claimed'::text
            WHEN ((d.state = 2) OR ((d.handed_on_by IS NOT NULL) AND (d.due_at > now()))) THEN 'waiting'::text
            ELSE 'ready'::text
        END AS state,
    d.attempt,
    d.due_at,
    d.deadline_at,
    d.last_reason,
    d.created_at,
    d.n,
    d.owner AS gateway,
    d.lease,
        CASE d.environment
            WHEN 0 THEN 'production'::text
            ELSE 'sandbox'::text
        END AS environment,
        CASE d.platform
            WHEN 1 THEN 'ios'::text
            WHEN 2 THEN 'android'::text
            WHEN 3 THEN 'web'::text
            ELSE NULL::text
        END AS platform,
    d.locale,
    (("left"(d.token, 4) || '…'::text) || "right"(d.token, 4)) AS device,
    d.failures,
    d.fallback_of
   FROM ((push.delivery d
     LEFT JOIN push.lane l ON ((l.id = d.lane)))
     LEFT JOIN push.outbox o ON ((o.id = d.outbox_id)));

COMMENT ON VIEW push.deliveries IS 'one push that is still owed to one device';

COMMENT ON COLUMN push.deliveries.outbox_id IS 'the call: push.outbox.id';

COMMENT ON COLUMN push.deliveries.app IS 'name of the app';

COMMENT ON COLUMN push.deliveries.call_id IS 'payload.callId; for message, group_message and group_invite what was given, else payload.callId, payload.messageId or a new UUID; unique with app, so enqueueing twice is one call';

COMMENT ON COLUMN push.deliveries.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.deliveries.kind IS 'invite, cancel, missed_call or notification';

COMMENT ON COLUMN push.deliveries.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.deliveries.state IS 'ready, claimed (a gateway has it) or waiting (until due_at)';

COMMENT ON COLUMN push.deliveries.attempt IS 'tries so far, the current one included';

COMMENT ON COLUMN push.deliveries.due_at IS 'a waiting delivery becomes ready at this time, never later than its deadline';

COMMENT ON COLUMN push.deliveries.deadline_at IS 'nothing is sent after this';

COMMENT ON COLUMN push.deliveries.last_reason IS 'why the last try did not end it';

COMMENT ON COLUMN push.deliveries.created_at IS 'when it was enqueued: an invite with its call, anything else at its end';

COMMENT ON COLUMN push.deliveries.n IS 'number of the push within its call, from 0, in the order in which they were made';

COMMENT ON COLUMN push.deliveries.gateway IS 'push.gateways.id of the gateway that has it';

COMMENT ON COLUMN push.deliveries.lease IS 'number of the claim that took it: with owner, the fence against a slow gateway. Kept when it is given back';

COMMENT ON COLUMN push.deliveries.environment IS 'production or sandbox';

COMMENT ON COLUMN push.deliveries.platform IS 'ios, android, web or unknown (null)';

COMMENT ON COLUMN push.deliveries.locale IS 'language of visible texts';

COMMENT ON COLUMN push.deliveries.device IS 'the token, masked: its first and last four characters';

COMMENT ON COLUMN push.deliveries.failures IS 'failed attempts: array of {"at", "attempt", "status", "reason"}, and "hedged": true if an attempt was sent twice';

COMMENT ON COLUMN push.deliveries.fallback_of IS 'n of the invite of the same call that failed, instead of which this is sent';

CREATE VIEW push.delivery_history AS
 SELECT h.outbox_id,
    l.app,
    o.call_id,
    l.provider,
        CASE h.kind
            WHEN 0 THEN 'invite'::text
            WHEN 1 THEN 'cancel'::text
            WHEN 2 THEN 'missed_call'::text
            ELSE 'notification'::text
        END AS kind,
    h.user_id,
        CASE h.outcome
            WHEN 0 THEN 'delivered'::text
            WHEN 1 THEN 'delivered_late'::text
            WHEN 2 THEN 'void'::text
            WHEN 3 THEN 'expired'::text
            ELSE 'dead'::text
        END AS outcome,
    h.reason,
    h.attempts,
    h.created_at,
    h.sent_at,
    h.finished_at,
    h.provider_message_id,
    (h.status)::integer AS status,
    h.answered_at,
    h.deadline_at,
    h.n,
    h.owner AS gateway,
    COALESCE((("left"(h.token, 4) || '…'::text) || "right"(h.token, 4)), h.device) AS device,
    h.failures,
    h.fallback_of,
    h.receipt_reason,
    substr(o.traceparent, 4, 32) AS trace_id
   FROM ((push.history h
     LEFT JOIN push.lane l ON ((l.id = h.lane)))
     LEFT JOIN push.outbox o ON (((o.id = h.outbox_id) AND (o.created_at <= h.created_at))));

COMMENT ON VIEW push.delivery_history IS 'one finished push';

COMMENT ON COLUMN push.delivery_history.outbox_id IS 'the call: push.outbox.id';

COMMENT ON COLUMN push.delivery_history.app IS 'name of the app';

COMMENT ON COLUMN push.delivery_history.call_id IS 'payload.callId; for message, group_message and group_invite what was given, else payload.callId, payload.messageId or a new UUID; unique with app, so enqueueing twice is one call';

COMMENT ON COLUMN push.delivery_history.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.delivery_history.kind IS 'invite, cancel, missed_call or notification';

COMMENT ON COLUMN push.delivery_history.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.delivery_history.outcome IS 'delivered, delivered_late (after the deadline), void (cancelled unsent), expired (never sent in time) or dead (failed)';

COMMENT ON COLUMN push.delivery_history.reason IS 'why it was not delivered, from the provider or from the gateway. For a delivered push: Hedged if it was sent over two connections, else Alert if it is an invite that an iPhone only showed, else null';

COMMENT ON COLUMN push.delivery_history.attempts IS 'tries made';

COMMENT ON COLUMN push.delivery_history.created_at IS 'when it was enqueued, by the database''s clock';

COMMENT ON COLUMN push.delivery_history.sent_at IS 'when the last request left; null: none ever left';

COMMENT ON COLUMN push.delivery_history.finished_at IS 'when it was settled; a range on this column makes a query read few partitions';

COMMENT ON COLUMN push.delivery_history.provider_message_id IS 'the provider''s id: apns-id, FCM message name, Expo ticket';

COMMENT ON COLUMN push.delivery_history.status IS 'HTTP status of the last answer';

COMMENT ON COLUMN push.delivery_history.answered_at IS 'when the provider''s last answer came; null: none came';

COMMENT ON COLUMN push.delivery_history.deadline_at IS 'what the deadline was';

COMMENT ON COLUMN push.delivery_history.n IS 'number of the push within its call';

COMMENT ON COLUMN push.delivery_history.gateway IS 'push.gateways.id of the gateway that settled it';

COMMENT ON COLUMN push.delivery_history.device IS 'the token, masked: its first and last four characters';

COMMENT ON COLUMN push.delivery_history.failures IS 'failed attempts: array of {"at", "attempt", "status", "reason"}, and "hedged": true if an attempt was sent twice';

COMMENT ON COLUMN push.delivery_history.fallback_of IS 'n of the invite of the same call that failed, instead of which this was sent';

COMMENT ON COLUMN push.delivery_history.receipt_reason IS 'what Expo''s receipt said later; null: nothing bad, or not yet';

COMMENT ON COLUMN push.delivery_history.trace_id IS 'the trace that the call belongs to, from push.outbox.traceparent';

CREATE VIEW push.calls AS
 SELECT o.id,
    o.app,
    o.call_id,
    o.kind,
    o.created_at,
    o.state AS outcome,
    o.end_reason,
    o.ended_at,
    o.answered_by,
    ARRAY( SELECT push.entry_user(r.r) AS entry_user
           FROM jsonb_path_query(o.recipients, '$[*]'::jsonpath) r(r)
          WHERE (push.entry_user(r.r) IS NOT NULL)) AS users,
    ARRAY( SELECT DISTINCT concat_ws(' '::text, p.state, p.reason) AS concat_ws
           FROM ( SELECT d.kind,
                    d.state,
                    d.last_reason AS reason
                   FROM push.deliveries d
                  WHERE (d.outbox_id = o.id)
                UNION ALL
                 SELECT h.kind,
                    h.outcome,
                    COALESCE(h.receipt_reason, h.reason) AS "coalesce"
                   FROM push.delivery_history h
                  WHERE ((h.outbox_id = o.id) AND (h.finished_at >= o.created_at))) p
          WHERE (p.kind = ANY (ARRAY['invite'::text, 'notification'::text]))
          ORDER BY (concat_ws(' '::text, p.state, p.reason))) AS pushes
   FROM push.outbox o;

COMMENT ON VIEW push.calls IS 'one call, or one notification; for searches, which should name a time: select * from push.calls where created_at > now() - interval ''1 hour'' and ''ana'' = any (users) order by created_at desc limit 20';

COMMENT ON COLUMN push.calls.id IS 'number of the call; unique, but not in order of insertion';

COMMENT ON COLUMN push.calls.app IS 'which app''s phones ring: the key under apps in the gateway''s configuration';

COMMENT ON COLUMN push.calls.call_id IS 'payload.callId; for message, group_message and group_invite what was given, else payload.callId, payload.messageId or a new UUID; unique with app, so enqueueing twice is one call';

COMMENT ON COLUMN push.calls.kind IS 'invite, cancel, missed_call or notification';

COMMENT ON COLUMN push.calls.created_at IS 'when it was enqueued, by the database''s clock';

COMMENT ON COLUMN push.calls.outcome IS 'ringing, answered, ended or missed: push.outbox.state';

COMMENT ON COLUMN push.calls.end_reason IS 'the reason given to push.end_call, else answered, ended or missed; declined and busy leave no missed call; notification: it never was a call';

COMMENT ON COLUMN push.calls.ended_at IS 'when the state ceased to be ringing; null while it rings';

COMMENT ON COLUMN push.calls.answered_by IS 'the user who answered, as far as known: their devices are told nothing';

COMMENT ON COLUMN push.calls.users IS 'the ids of the users that recipients names, also of those that were skipped';

COMMENT ON COLUMN push.calls.pushes IS 'what became of its invites or notifications, each once: ready, claimed, waiting or the outcome, with the reason. Empty: nobody had a device, or the history has been dropped';

CREATE VIEW push.calls_that_skip AS
 SELECT o.id
   FROM (push.outbox o
     CROSS JOIN LATERAL ( SELECT ( SELECT a.providers
                   FROM push.apps a
                  WHERE (a.app = o.app)) AS providers
         OFFSET 0) p)
  WHERE (EXISTS ( SELECT
           FROM jsonb_array_elements(o.recipients) e(value)
          WHERE ((NOT push.is_recipient(e.value)) OR (NOT push.is_token('apns'::text, NULLIF((e.value ->> 'voipPushToken'::text), ''::text))) OR (NOT push.is_token('apns'::text, NULLIF((e.value ->> 'apnsToken'::text), ''::text))) OR (NOT push.is_token('fcm'::text, NULLIF((e.value ->> 'fcmToken'::text), ''::text))) OR (NOT push.is_token('expo'::text, NULLIF((e.value ->> 'pushToken'::text), ''::text))) OR (((e.value ->> 'webPushSubscription'::text) <> ''::text) AND (push.webpush_token(NULLIF((e.value ->> 'webPushSubscription'::text), ''::text)) IS NULL)) OR (((e.value ->> 'platform'::text) <> ALL (ARRAY['ios'::text, 'android'::text])) AND (NOT (((e.value ->> 'platform'::text) = 'web'::text) AND (e.value ? 'webPushSubscription'::text)))) OR ((e.value ->> 'environment'::text) <> ALL (ARRAY['production'::text, 'sandbox'::text, 'development'::text])) OR (jsonb_typeof((e.value -> 'locale'::text)) <> ALL (ARRAY['string'::text, 'null'::text])) OR (length((e.value ->> 'locale'::text)) > 64) OR (jsonb_typeof((e.value -> 'missedCall'::text)) <> ALL (ARRAY['boolean'::text, 'null'::text])) OR (((e.value -> 'data'::text) <> ALL (ARRAY['null'::jsonb, '{}'::jsonb])) AND (push.recipient_data(e.value) IS NULL)) OR (NOT (EXISTS ( SELECT
                   FROM push.delivery d
                  WHERE ((d.outbox_id = o.id) AND (d.user_id = push.entry_user(e.value)))))) OR ((jsonb_typeof(e.value) = 'object'::text) AND (((e.value - push.recipient_members()) <> '{}'::jsonb) OR ((NOT push.serves(p.providers, 'apns'::text)) AND (e.value ?| '{voipPushToken,apnsToken}'::text[])) OR ((NOT push.serves(p.providers, 'fcm'::text)) AND (e.value ? 'fcmToken'::text)) OR ((NOT push.serves(p.providers, 'expo'::text)) AND (e.value ? 'pushToken'::text)) OR ((NOT push.serves(p.providers, 'webpush'::text)) AND (e.value ? 'webPushSubscription'::text)))))));

COMMENT ON VIEW push.calls_that_skip IS 'the calls of which push.skipped_recipients has something to tell, soon after they were enqueued';

COMMENT ON COLUMN push.calls_that_skip.id IS 'number of the call; unique, but not in order of insertion';

CREATE TABLE push.token_invalidations (
    id bigint NOT NULL,
    app text NOT NULL,
    provider text NOT NULL,
    token text NOT NULL,
    user_id text,
    reason text NOT NULL,
    invalidated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT token_invalidations_provider_known CHECK ((provider = ANY (push.channels())))
);

COMMENT ON TABLE push.token_invalidations IS 'one token found dead: the feed the backend reads; deleting a row lets the token be used again';

COMMENT ON COLUMN push.token_invalidations.id IS 'number of the row';

COMMENT ON COLUMN push.token_invalidations.app IS 'app the token belonged to';

COMMENT ON COLUMN push.token_invalidations.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.token_invalidations.token IS 'the dead token';

COMMENT ON COLUMN push.token_invalidations.user_id IS 'whose token it was, as far as known';

COMMENT ON COLUMN push.token_invalidations.reason IS 'what the provider said';

COMMENT ON COLUMN push.token_invalidations.invalidated_at IS 'since when it is dead';

CREATE VIEW push.dead_devices AS
 SELECT x.app,
    x.provider,
    x.user_id,
    (("left"(x.token, 4) || '…'::text) || "right"(x.token, 4)) AS device,
    x.reason,
    x.invalidated_at
   FROM push.token_invalidations x;

COMMENT ON VIEW push.dead_devices IS 'push.token_invalidations with the tokens masked';

COMMENT ON COLUMN push.dead_devices.app IS 'app the token belonged to';

COMMENT ON COLUMN push.dead_devices.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.dead_devices.user_id IS 'whose token it was, as far as known';

COMMENT ON COLUMN push.dead_devices.device IS 'the token, masked: its first and last four characters';

COMMENT ON COLUMN push.dead_devices.reason IS 'what the provider said';

COMMENT ON COLUMN push.dead_devices.invalidated_at IS 'since when it is dead';

CREATE TABLE push.devices (
    id bigint NOT NULL,
    user_id text NOT NULL,
    app text DEFAULT 'default'::text NOT NULL,
    provider text NOT NULL,
    token text NOT NULL,
    voip boolean DEFAULT true NOT NULL,
    environment text DEFAULT 'production'::text NOT NULL,
    platform text,
    locale text,
    enabled boolean DEFAULT true NOT NULL,
    registered_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    invalidated_at timestamp with time zone,
    invalid_reason text,
    CONSTRAINT devices_environment_known CHECK ((environment = ANY (ARRAY['production'::text, 'sandbox'::text]))),
    CONSTRAINT devices_invalid_has_reason CHECK (((invalidated_at IS NULL) = (invalid_reason IS NULL))),
    CONSTRAINT devices_platform_known CHECK ((platform = ANY (ARRAY['ios'::text, 'android'::text, 'web'::text]))),
    CONSTRAINT devices_provider_known CHECK ((provider = ANY (push.channels())))
);

COMMENT ON TABLE push.devices IS 'one push token of one user; a token belongs to one user of an app at a time';

COMMENT ON COLUMN push.devices.id IS 'number of the device';

COMMENT ON COLUMN push.devices.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.devices.app IS 'app the token belongs to';

COMMENT ON COLUMN push.devices.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.devices.token IS 'the token: 64 to 200 hex digits (apns), in small letters unless all letters are capitals, FCM registration token, Expo push token, or a browser''s subscription as push.webpush_token writes it';

COMMENT ON COLUMN push.devices.voip IS 'apns only: true for a PushKit token, false for an ordinary alert token';

COMMENT ON COLUMN push.devices.environment IS 'apns only: production or sandbox';

COMMENT ON COLUMN push.devices.platform IS 'ios, android, web or unknown (null)';

COMMENT ON COLUMN push.devices.locale IS 'language of visible texts, for example pt-BR';

COMMENT ON COLUMN push.devices.enabled IS 'false: the user wants no notifications here';

COMMENT ON COLUMN push.devices.registered_at IS 'when the phone last gave this token; an older invalidation does not count';

COMMENT ON COLUMN push.devices.invalidated_at IS 'since when the provider calls the token dead; null: it is alive';

COMMENT ON COLUMN push.devices.invalid_reason IS 'what the provider said';

ALTER TABLE push.devices ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.devices_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE push.erasure ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.erasure_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE push.escalations (
    outbox_id bigint NOT NULL,
    n integer NOT NULL,
    user_id text NOT NULL
);

COMMENT ON TABLE push.escalations IS 'one invite that was made because no phone of the user had said that it rings';

COMMENT ON COLUMN push.escalations.outbox_id IS 'the call: push.outbox.id';

COMMENT ON COLUMN push.escalations.n IS 'number of the invite within its call';

COMMENT ON COLUMN push.escalations.user_id IS 'the backend''s id of the user';

CREATE VIEW push.failures AS
 SELECT l.app,
    l.channel AS provider,
        CASE f.kind
            WHEN 0 THEN 'invite'::text
            WHEN 1 THEN 'cancel'::text
            WHEN 2 THEN 'missed_call'::text
            ELSE 'notification'::text
        END AS kind,
        CASE f.outcome
            WHEN 1 THEN 'delivered_late'::text
            WHEN 3 THEN 'expired'::text
            ELSE 'dead'::text
        END AS outcome,
    COALESCE(f.reason, 'Late'::text) AS reason,
    f.count,
    f.last_at,
    x.call_id AS example_call_id,
    x.device AS example_device
   FROM ((push.lane l
     CROSS JOIN LATERAL ( SELECT h.kind,
            h.outcome,
            h.reason,
            count(*) AS count,
            max(h.finished_at) AS last_at
           FROM push.history h
          WHERE ((h.lane = l.id) AND (h.finished_at > (now() - '01:00:00'::interval)) AND (h.outcome <> 0) AND (h.outcome = ANY (ARRAY[1, 3, 4])))
          GROUP BY h.kind, h.outcome, h.reason) f)
     CROSS JOIN LATERAL ( SELECT o.call_id,
            COALESCE((("left"(h.token, 4) || '…'::text) || "right"(h.token, 4)), h.device) AS device
           FROM (push.history h
             LEFT JOIN push.outbox o ON (((o.id = h.outbox_id) AND (o.created_at <= h.created_at))))
          WHERE ((h.lane = l.id) AND (h.finished_at = f.last_at) AND (h.outcome <> 0) AND (h.outcome = f.outcome) AND (h.kind = f.kind) AND (NOT (h.reason IS DISTINCT FROM f.reason)))
         LIMIT 1) x);

COMMENT ON VIEW push.failures IS 'deliveries that failed or were late in the last hour, by reason, with the last of each as an example';

COMMENT ON COLUMN push.failures.app IS 'name of the app';

COMMENT ON COLUMN push.failures.provider IS 'provider and push service: apns, webpush/google';

COMMENT ON COLUMN push.failures.kind IS 'invite, cancel, missed_call or notification';

COMMENT ON COLUMN push.failures.outcome IS 'delivered_late, expired (never sent in time) or dead (failed)';

COMMENT ON COLUMN push.failures.reason IS 'why it was not delivered, in the provider''s word or ours';

COMMENT ON COLUMN push.failures.count IS 'number of deliveries';

COMMENT ON COLUMN push.failures.last_at IS 'when the last of them was settled';

COMMENT ON COLUMN push.failures.example_call_id IS 'the call of the last one; push.timeline shows its events';

COMMENT ON COLUMN push.failures.example_device IS 'the device of the last one, its token masked';

CREATE TABLE push.follow_ups (
    outbox_id bigint NOT NULL,
    why text NOT NULL,
    is_urgent boolean DEFAULT false NOT NULL,
    due_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    noted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    CONSTRAINT follow_ups_why_known CHECK ((why = ANY (ARRAY['ended'::text, 'declined'::text, 'gone'::text, 'failed'::text, 'unheard'::text, 'stuck'::text, 'untold'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='100000', vacuum_truncate=off);
ALTER TABLE ONLY push.follow_ups ALTER COLUMN outbox_id SET STATISTICS 0;
ALTER TABLE ONLY push.follow_ups ALTER COLUMN why SET STATISTICS 0;

ALTER TABLE ONLY push.follow_ups REPLICA IDENTITY FULL;

COMMENT ON TABLE push.follow_ups IS 'one reason to look at a call after the transaction that changed it; taken by push.follow_up';

COMMENT ON COLUMN push.follow_ups.outbox_id IS 'the call: push.outbox.id';

COMMENT ON COLUMN push.follow_ups.why IS 'ended, declined, gone (deleted), failed (an invite has failed for good), unheard (no phone has reported that it rings), stuck (its lane sends nothing), untold (a cancel that would have shown a missed call expired or was refused)';

COMMENT ON COLUMN push.follow_ups.is_urgent IS 'whether a ring may depend on it';

COMMENT ON COLUMN push.follow_ups.due_at IS 'when it is taken; after a failure, when it is tried again';

COMMENT ON COLUMN push.follow_ups.noted_at IS 'when it was noted';

COMMENT ON COLUMN push.follow_ups.tries IS 'how often it has failed alone; -1: it was among others when they took too long, and is tried alone';

CREATE TABLE push.gateways (
    id integer NOT NULL,
    name text NOT NULL,
    version text NOT NULL,
    alive boolean DEFAULT true NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    steady_since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    ended_reason text,
    claims_from integer DEFAULT 0 NOT NULL,
    free_due_at timestamp with time zone,
    doubted_at timestamp with time zone,
    login text,
    had_suspect boolean DEFAULT false NOT NULL,
    CONSTRAINT gateways_ended CHECK (((alive = (ended_at IS NULL)) AND (alive = (ended_reason IS NULL)))),
    CONSTRAINT gateways_ended_reason_known CHECK ((ended_reason = ANY (ARRAY['retired'::text, 'silent'::text]))),
    CONSTRAINT gateways_free_ended CHECK (((free_due_at IS NULL) OR (NOT alive)))
)
WITH (fillfactor='50');

COMMENT ON TABLE push.gateways IS 'one life of one gateway process; its id is the fence, so it is never used again';

COMMENT ON COLUMN push.gateways.id IS 'identity of this life: the owner of what it claims';

COMMENT ON COLUMN push.gateways.name IS 'host or pod name, for people';

COMMENT ON COLUMN push.gateways.version IS 'version of the program';

COMMENT ON COLUMN push.gateways.alive IS 'false once retired or found silent: it can claim nothing more';

COMMENT ON COLUMN push.gateways.started_at IS 'when it registered';

COMMENT ON COLUMN push.gateways.heartbeat_at IS 'when it was last heard';

COMMENT ON COLUMN push.gateways.steady_since IS 'since when its beats have come without a gap: only one whose own beats do may find that another is silent';

COMMENT ON COLUMN push.gateways.ended_at IS 'when it ended or was declared dead';

COMMENT ON COLUMN push.gateways.ended_reason IS 'retired (clean shutdown) or silent (missed its heartbeats)';

COMMENT ON COLUMN push.gateways.claims_from IS 'claims with a lower number are barred: they take nothing any more (push.forget)';

COMMENT ON COLUMN push.gateways.free_due_at IS 'of one that has ended: when deliveries that are claimed in its name are looked for again; null: none is left';

COMMENT ON COLUMN push.gateways.doubted_at IS 'when another first found that it is not heard (push.beat); null: it is heard, cleared by its own beats';

COMMENT ON COLUMN push.gateways.login IS 'the role as which it has registered';

COMMENT ON COLUMN push.gateways.had_suspect IS 'of one that has ended: whether it had a delivery that two others had when they died, which is blamed for its end';

ALTER TABLE push.gateways ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.gateways_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW push.health AS
 SELECT h.item,
    h.value,
    h.state,
    h.hint
   FROM push.check_health() h(item, value, state, hint);

COMMENT ON VIEW push.health IS 'one check a row: the value found, its state (ok, warn or bad), and what to do';

COMMENT ON COLUMN push.health.item IS 'what was checked';

COMMENT ON COLUMN push.health.value IS 'what was found';

COMMENT ON COLUMN push.health.state IS 'ok, warn (act soon) or bad (act now)';

COMMENT ON COLUMN push.health.hint IS 'what it means and what to do';

CREATE TABLE push.history_default (
    finished_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    outbox_id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    sent_at timestamp with time zone,
    answered_at timestamp with time zone,
    n integer NOT NULL,
    attempts integer NOT NULL,
    owner integer,
    lane smallint NOT NULL,
    kind smallint NOT NULL,
    outcome smallint NOT NULL,
    status smallint,
    user_id text NOT NULL,
    call_id text,
    device text,
    reason text,
    provider_message_id text,
    failures jsonb,
    fallback_of integer,
    receipt_reason text,
    token_hash bigint,
    token text,
    environment smallint,
    platform smallint,
    locale text,
    data jsonb
)
WITH (autovacuum_analyze_threshold='100000');
ALTER TABLE ONLY push.history_default ALTER COLUMN user_id SET STATISTICS 0;
ALTER TABLE ONLY push.history_default ALTER COLUMN call_id SET STATISTICS 0;
ALTER TABLE ONLY push.history_default ALTER COLUMN device SET STATISTICS 0;
ALTER TABLE ONLY push.history_default ALTER COLUMN provider_message_id SET STATISTICS 0;
ALTER TABLE ONLY push.history_default ALTER COLUMN failures SET STATISTICS 0;
ALTER TABLE ONLY push.history_default ALTER COLUMN token SET STATISTICS 0;
ALTER TABLE ONLY push.history_default ALTER COLUMN locale SET STATISTICS 0;
ALTER TABLE ONLY push.history_default ALTER COLUMN data SET STATISTICS 0;

ALTER TABLE ONLY push.history_default REPLICA IDENTITY FULL;

COMMENT ON TABLE push.history_default IS 'airbag: catches finished pushes for which no day''s partition exists';

CREATE TABLE push.job (
    name text NOT NULL,
    every interval NOT NULL,
    due_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    taken_at timestamp with time zone,
    gateway integer,
    done_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT job_every_positive CHECK ((every > '00:00:00'::interval)),
    CONSTRAINT job_every_range CHECK (((every >= '00:00:00.01'::interval) AND (every <= '1 day'::interval)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE push.job IS 'one piece of housekeeping; any gateway takes what is due (push.take_job) and runs a bite of it (push.run_job)';

COMMENT ON COLUMN push.job.name IS 'what is done: housekeeping.sql';

COMMENT ON COLUMN push.job.every IS 'how long after it was taken it is due again';

COMMENT ON COLUMN push.job.due_at IS 'when it is due; moved on when it is taken, so an error delays it and nothing else';

COMMENT ON COLUMN push.job.taken_at IS 'when it was last taken';

COMMENT ON COLUMN push.job.gateway IS 'push.gateways.id of the gateway that took it';

COMMENT ON COLUMN push.job.done_at IS 'when a step of it was last done, to within five seconds; a step that fails is not done';

CREATE VIEW push.keys AS
 SELECT k.id,
    k.app,
    k.name,
    k.scopes,
    k.created_at,
    k.expires_at,
    k.revoked_at,
    k.addresses,
    k.last_used_at,
    host(k.last_used_from) AS last_used_from
   FROM push.api_keys k;

COMMENT ON VIEW push.keys IS 'push.api_keys without the hashes';

COMMENT ON COLUMN push.keys.id IS 'number of the key, and its part after pgk_';

COMMENT ON COLUMN push.keys.app IS 'the only app it opens';

COMMENT ON COLUMN push.keys.name IS 'who has it, for people';

COMMENT ON COLUMN push.keys.scopes IS 'what it may do: enqueue (enqueue, answer and end calls), device (register and drop devices, report ringing), read (a call''s state and timeline)';

COMMENT ON COLUMN push.keys.created_at IS 'when it was made';

COMMENT ON COLUMN push.keys.expires_at IS 'from when on it is refused; null: never';

COMMENT ON COLUMN push.keys.revoked_at IS 'since when it is refused; null: it is not';

COMMENT ON COLUMN push.keys.addresses IS 'networks it may be used from, 1 to 64; null: from anywhere. Gateways compare them with the address that the request came from';

COMMENT ON COLUMN push.keys.last_used_at IS 'when a gateway last took a request with it, written at most once a minute; null: never, or by older releases only';

COMMENT ON COLUMN push.keys.last_used_from IS 'the address that this request came from';

ALTER TABLE push.lane ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.lane_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE push.lane_status (
    lane smallint NOT NULL,
    gateway integer NOT NULL,
    window_size integer NOT NULL,
    capacity integer NOT NULL,
    in_flight integer NOT NULL,
    rate_per_second integer NOT NULL,
    circuit text NOT NULL,
    throttled_until timestamp with time zone,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    refusal text,
    refused text,
    CONSTRAINT lane_status_circuit_known CHECK ((circuit = ANY (ARRAY['closed'::text, 'half_open'::text, 'open'::text]))),
    CONSTRAINT lane_status_refused_known CHECK ((refused = ANY (ARRAY['all'::text, 'some'::text, 'new'::text])))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE push.lane_status IS 'one lane as one replica sees it, written every second. People read push.lanes';

COMMENT ON COLUMN push.lane_status.lane IS 'push.lane.id';

COMMENT ON COLUMN push.lane_status.gateway IS 'push.gateways.id of the replica';

COMMENT ON COLUMN push.lane_status.window_size IS 'how many requests the replica lets be in flight now';

COMMENT ON COLUMN push.lane_status.capacity IS 'how many its connections could carry';

COMMENT ON COLUMN push.lane_status.in_flight IS 'how many are';

COMMENT ON COLUMN push.lane_status.rate_per_second IS 'requests it sent in the last second';

COMMENT ON COLUMN push.lane_status.circuit IS 'closed (all is well), half_open (trying again) or open (nothing is sent)';

COMMENT ON COLUMN push.lane_status.throttled_until IS 'until when the provider wants to be left alone';

COMMENT ON COLUMN push.lane_status.updated_at IS 'when the replica last said so';

COMMENT ON COLUMN push.lane_status.refusal IS 'one sentence: why the provider refuses the lane''s credentials, and what to check; null: it does not';

COMMENT ON COLUMN push.lane_status.refused IS 'what refusal concerns: all or some of the lane''s pushes, or new credentials that are not used yet';

CREATE VIEW push.lanes AS
 SELECT l.id,
    l.app,
    l.provider,
    l.paused,
    l.note,
    s.window_size,
    s.capacity,
    s.in_flight,
    s.circuit,
    s.throttled_until,
    s.rate_per_second,
    COALESCE(d.ready, (0)::bigint) AS ready,
    COALESCE(d.waiting, (0)::bigint) AS waiting,
    COALESCE(d.claimed, (0)::bigint) AS claimed,
    (now() - d.oldest) AS oldest_age,
    l.invalidation_held_at,
    l.invalidation_note,
    l.updated_at,
    l.channel,
    r.refusal,
    r.refused
   FROM (((push.lane l
     LEFT JOIN push.lane_conditions() s(lane, window_size, capacity, in_flight, circuit, throttled_until, rate_per_second) ON ((s.lane = l.id)))
     LEFT JOIN ( SELECT DISTINCT ON (x.lane) x.lane,
            ((
                CASE
                    WHEN ((x.same)::numeric < x.replicas) THEN format('replica%s %s: '::text,
                    CASE
                        WHEN (x.same > 1) THEN 's'::text
                        ELSE NULL::text
                    END, x.names)
                    ELSE ''::text
                END || x.refusal) ||
                CASE
                    WHEN ((x.refused = 'all'::text) AND (x.stopped < x.replicas)) THEN format('; %s of %s replicas send'::text, x.sending, x.replicas)
                    ELSE ''::text
                END) AS refusal,
                CASE
                    WHEN ((x.refused = 'all'::text) AND (x.stopped < x.replicas)) THEN 'some'::text
                    ELSE x.refused
                END AS refused
           FROM ( SELECT s_1.lane,
                    s_1.refusal,
                    s_1.refused,
                    count(*) AS same,
                    min(s_1.gateway) AS first,
                    string_agg(g.name, ', '::text ORDER BY s_1.gateway) AS names,
                    sum(count(*)) OVER w AS replicas,
                    sum(count(*) FILTER (WHERE (s_1.refused = 'all'::text))) OVER w AS stopped,
                    sum(count(*) FILTER (WHERE ((s_1.refused IS DISTINCT FROM 'all'::text) AND (s_1.circuit = 'closed'::text) AND (s_1.capacity > 0)))) OVER w AS sending
                   FROM (push.lane_status s_1
                     JOIN push.gateways g ON ((g.id = s_1.gateway)))
                  WHERE (g.alive AND (g.heartbeat_at > (now() - '00:00:05'::interval)) AND (s_1.lane IN ( SELECT y.lane
                           FROM push.lane_status y
                          WHERE (y.refusal IS NOT NULL))))
                  GROUP BY s_1.lane, s_1.refusal, s_1.refused
                  WINDOW w AS (PARTITION BY s_1.lane)) x
          WHERE (x.refusal IS NOT NULL)
          ORDER BY x.lane, (array_position('{all,some,new}'::text[], x.refused)), x.first) r ON ((r.lane = l.id)))
     LEFT JOIN ( SELECT d_1.lane,
            (sum(d_1.count) FILTER (WHERE (d_1.state = 0)))::bigint AS ready,
            (sum(d_1.count) FILTER (WHERE (d_1.state = 2)))::bigint AS waiting,
            (sum(d_1.count) FILTER (WHERE (d_1.state = 1)))::bigint AS claimed,
            min(d_1.oldest) AS oldest
           FROM push.count_owed() d_1(lane, kind, state, owner, count, oldest, first_deadline)
          GROUP BY d_1.lane) d ON ((d.lane = l.id)));

COMMENT ON VIEW push.lanes IS 'one app and provider, or one of the push services of browsers: what it may send, what it has sent, what is owed. push.pause_lane stops it and push.resume_lane starts it again';

COMMENT ON COLUMN push.lanes.id IS 'small number that deliveries carry';

COMMENT ON COLUMN push.lanes.app IS 'name of the app';

COMMENT ON COLUMN push.lanes.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.lanes.paused IS 'true: nothing is claimed from this lane, its deliveries wait or expire';

COMMENT ON COLUMN push.lanes.note IS 'why it is paused, or whatever ops want to remember';

COMMENT ON COLUMN push.lanes.window_size IS 'number of requests that may be in flight now, in all living replicas; null: no replica serves the lane';

COMMENT ON COLUMN push.lanes.capacity IS 'number of requests that the connections could carry';

COMMENT ON COLUMN push.lanes.in_flight IS 'number of requests in flight';

COMMENT ON COLUMN push.lanes.circuit IS 'closed (all is well), half_open (trying again, or closed at some of the replicas only) or open (nothing is sent, or only tries)';

COMMENT ON COLUMN push.lanes.throttled_until IS 'the time until which at least one replica waits, for a pause that the provider asked for or an open circuit; null: none waits';

COMMENT ON COLUMN push.lanes.rate_per_second IS 'requests sent in the last second';

COMMENT ON COLUMN push.lanes.ready IS 'deliveries that could be sent now; above 30,000 divided by the number of lanes an estimate, rounded to three digits';

COMMENT ON COLUMN push.lanes.waiting IS 'deliveries that wait for their next attempt';

COMMENT ON COLUMN push.lanes.claimed IS 'deliveries that a replica holds';

COMMENT ON COLUMN push.lanes.oldest_age IS 'age of the oldest of these deliveries';

COMMENT ON COLUMN push.lanes.invalidation_held_at IS 'since when no token of this lane is invalidated, but quarantined; null: the ordinary state';

COMMENT ON COLUMN push.lanes.invalidation_note IS 'why invalidation is on hold';

COMMENT ON COLUMN push.lanes.updated_at IS 'when the row last changed';

COMMENT ON COLUMN push.lanes.channel IS 'provider and service: apns, webpush/google';

COMMENT ON COLUMN push.lanes.refusal IS 'one sentence: why the provider refuses the lane''s credentials, and what to check; null: it does not';

COMMENT ON COLUMN push.lanes.refused IS 'what refusal concerns: all or some of the lane''s pushes, or new credentials that are not used yet';

CREATE VIEW push.role_rights AS
 WITH c_insert(rights) AS (
         VALUES ('insert (app, kind, call_id, payload, recipients, ring_seconds, state, traceparent)'::text)
        ), c_select(rights) AS (
         VALUES ('select (id, app, kind, call_id, ring_seconds, state, created_at, deadline_at, answered_by, ended_at, end_reason, traceparent)'::text)
        ), c_calls(rights) AS (
         VALUES ('execute on function push.enqueue_call, push.compare_call, push.add_recipients, push.answer_call, push.decline_call, push.end_call, push.register_device, push.enable_device, push.drop_device, push.dead_tokens, push.call, push.report_ringing, push.timeline, push.skipped_recipients, push.enqueue_batch, push.find_calls, push.slot_of, push.shard_of, push.shards_of, push.own_shard, push.shard_map_number, push.new_call_id'::text)
        )
 SELECT r.role,
    'usage on schema push'::text AS "right"
   FROM unnest('{push_enqueuer,push_tenant,push_ops,push_keys,push_gateway}'::text[]) r(role)
UNION ALL
 SELECT r.role,
    x.rights AS "right"
   FROM (c_calls x
     CROSS JOIN unnest('{push_enqueuer,push_tenant,push_gateway}'::text[]) r(role))
UNION ALL
 SELECT "*VALUES*".column1 AS role,
    "*VALUES*".column2 AS "right"
   FROM (VALUES ('push_enqueuer'::text,(((( SELECT c_insert.rights
           FROM c_insert) || ', update (state, answered_by, end_reason), '::text) || ( SELECT c_select.rights
           FROM c_select)) || ' on push.outbox'::text)), ('push_tenant'::text,(( SELECT c_insert.rights
           FROM c_insert) || ' on push.outbox'::text)), ('push_ops'::text,(( SELECT c_select.rights
           FROM c_select) || ', select (voided) on push.outbox'::text)), ('push_ops'::text,'select on push.summary, push.lanes, push.stuck, push.failures, push.replicas, push.health, push.deliveries, push.delivery_history, push.dead_devices, push.quarantined_devices, push.registered_devices, push.keys, push.apps, push.lane_status, push.audit, push.job, push.app_grants, push.quotas, push.webhooks, push.calls'::text), ('push_ops'::text,'update (paused, note) on push.lanes'::text), ('push_ops'::text,'execute on function push.timeline, push.call, push.requeue, push.void_call, push.pause_lane, push.resume_lane, push.hold_invalidation, push.resume_invalidation, push.set_quota, push.quota_uses, push.skipped_recipients, push.oldest_ringing, push.check_health, push.lane_conditions, push.count_owed, push.erase_user, push.find_calls, push.slot_of, push.shard_of, push.shards_of, push.own_shard, push.shard_map_number, push.pause_webhooks, push.resume_webhooks, push.resend_webhooks, push.minutes, push.overview, push.calls, push.epoch_ms, push.length_ms, push.entry_user, push.finite'::text), ('push_keys'::text,'select on push.keys, push.apps'::text), ('push_keys'::text,'execute on function push.create_api_key, push.revoke_api_key'::text), ('push_gateway'::text,'execute on function push.register_gateway, push.beat, push.retire_gateway, push.register_app, push.register_lane, push.report_lanes, push.claim, push.put_aside, push.settle, push.settled, push.park, push.release, push.forget, push.forget_in, push.reclaim, push.confirm_reclaimed, push.claimed_by, push.disown, push.ended, push.ended_for, push.follow_up, push.sync, push.take_job, push.run_job, push.promote, push.expire, push.miss, push.prune, push.ensure_partitions, push.drop_partitions, push.oldest_ringing, push.observe, push.take_tally, push.lock_table_used, push.operate_lane, push.operate_call, push.enqueue_calls, push.dead_among, push.compare_recipients, push.invalidate_tokens, push.hold_invalidation, push.correct_environment, push.current_provider_token, push.offer_provider_token, push.claim_receipts, push.settle_receipts, push.postpone_receipts, push.give_up_receipts, push.set_webhooks, push.claim_webhooks, push.settle_webhooks, push.look_up_api_key, push.good_api_keys, push.note_api_key_uses'::text)) "*VALUES*"
UNION ALL
 SELECT 'push_gateway'::text AS role,
    ('select on push.'::text || t.t) AS "right"
   FROM unnest('{schema_faults,missing_rights,schema_migration,schema_functions}'::text[]) t(t)
  WHERE (to_regclass(('push.'::text || t.t)) IS NOT NULL);

COMMENT ON VIEW push.role_rights IS 'the rights of the roles; for push.grant_roles and push.health';

COMMENT ON COLUMN push.role_rights.role IS 'the role';

COMMENT ON COLUMN push.role_rights."right" IS 'what it may do, as GRANT names it';

CREATE VIEW push.missing_rights AS
 SELECT (r.rolname)::text AS role,
    COALESCE(('execute push.'::text || (p.proname)::text), 'use the schema push'::text) AS "right"
   FROM (((push.role_rights x
     LEFT JOIN LATERAL regexp_matches(x."right", 'push[.]([a-z_]+)'::text, 'g'::text) m(names) ON (true))
     LEFT JOIN pg_proc p ON (((p.proname = m.names[1]) AND (p.pronamespace = ('push'::regnamespace)::oid))))
     JOIN pg_roles r ON (((r.rolname = x.role) OR ((x.role = 'push_gateway'::text) AND ((r.rolname = CURRENT_USER) OR (r.rolname IN ( SELECT g.login
           FROM push.gateways g
          WHERE ((g.ended_reason IS DISTINCT FROM 'retired'::text) AND (g.heartbeat_at > (now() - '01:00:00'::interval))))))))))
  WHERE ((x."right" ~ '^(usage|execute) '::text) AND (NOT COALESCE(has_function_privilege(r.oid, p.oid, 'execute'::text), has_schema_privilege(r.oid, 'push'::text, 'usage'::text))));

COMMENT ON VIEW push.missing_rights IS 'what a role must be allowed to do, and may not; for push.health, /readyz and check-config';

COMMENT ON COLUMN push.missing_rights.role IS 'the role or login';

COMMENT ON COLUMN push.missing_rights."right" IS 'what it may not do';

CREATE TABLE push.origin (
    made_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    written_at timestamp with time zone GENERATED ALWAYS AS (push.written_at()) STORED
);

ALTER TABLE ONLY push.origin REPLICA IDENTITY FULL;

COMMENT ON TABLE push.origin IS 'when this database was made. A row that was written later than it was made was restored from a dump, and with it all that was owed then (restore.sql)';

COMMENT ON COLUMN push.origin.made_at IS 'when the row was first made, as a dump has it';

COMMENT ON COLUMN push.origin.written_at IS 'when the row was written into this database, by its creation or by a restore';

ALTER TABLE push.outbox ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.outbox_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 32
);

CREATE VIEW push.overdue_jobs AS
 SELECT n.name,
    n.every,
    (now() - n.since) AS overdue,
        CASE
            WHEN ((now() - n.since) <= ((5)::double precision * n.every)) THEN 'warn'::text
            ELSE 'bad'::text
        END AS state
   FROM ( SELECT name,
            j.every,
            GREATEST(LEAST(push.finite(j.due_at), (push.finite(j.done_at) + j.every)), push.finite(g.since)) AS since
           FROM ((unnest(ARRAY['promote'::text, 'miss'::text, 'follow_up_urgent'::text, 'follow_up'::text, 'follow_up_again'::text, 'follow_up_all'::text, 'free'::text, 'escalate'::text, 'tally'::text, 'expire'::text, 'prune'::text, 'expire_all'::text, 'erase'::text, 'ensure_partitions'::text, 'drop_partitions'::text]) r(name)
             FULL JOIN push.job j USING (name))
             CROSS JOIN ( SELECT min(g_1.started_at) AS since
                   FROM push.gateways g_1
                  WHERE (g_1.alive AND (g_1.heartbeat_at > (now() - '00:00:05'::interval)))) g)
          WHERE ((g.since IS NOT NULL) OR (j.every IS NULL))) n
  WHERE ((n.every IS NULL) OR ((now() - n.since) >
        CASE
            WHEN (n.every > '00:00:02'::interval) THEN '00:01:00'::interval
            ELSE '00:00:10'::interval
        END));

COMMENT ON VIEW push.overdue_jobs IS 'jobs that are not done in time, because each run fails or none takes place; for push.health and metrics';

COMMENT ON COLUMN push.overdue_jobs.name IS 'what is done: housekeeping.sql';

COMMENT ON COLUMN push.overdue_jobs.every IS 'how long after it was taken it is due again';

COMMENT ON COLUMN push.overdue_jobs.overdue IS 'for how long; null: it has no row, and no gateway runs';

COMMENT ON COLUMN push.overdue_jobs.state IS 'warn or bad, as in push.health';

CREATE TABLE push.provider_tokens (
    provider text NOT NULL,
    name text NOT NULL,
    token text NOT NULL,
    minted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT provider_tokens_order CHECK ((minted_at < expires_at)),
    CONSTRAINT provider_tokens_provider_known CHECK ((provider = ANY (ARRAY['apns'::text, 'fcm'::text])))
);

COMMENT ON TABLE push.provider_tokens IS 'one signed APNs JWT or FCM access token, shared by all replicas; secret';

COMMENT ON COLUMN push.provider_tokens.provider IS 'apns or fcm';

COMMENT ON COLUMN push.provider_tokens.name IS 'whose: team, key id and a fingerprint of the key (apns), service account (fcm)';

COMMENT ON COLUMN push.provider_tokens.token IS 'the token; secret';

COMMENT ON COLUMN push.provider_tokens.minted_at IS 'when it was signed or fetched';

COMMENT ON COLUMN push.provider_tokens.expires_at IS 'when it is to be renewed, before it stops being good';

CREATE TABLE push.prune_cursor (
    is_present boolean DEFAULT true NOT NULL,
    after_id bigint DEFAULT 0 NOT NULL,
    until timestamp with time zone,
    ended_at timestamp with time zone,
    CONSTRAINT prune_cursor_one CHECK (is_present)
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE push.prune_cursor IS 'one row: how far push.prune has come. Whoever prunes has it locked';

COMMENT ON COLUMN push.prune_cursor.is_present IS 'always true: makes the row the only one';

COMMENT ON COLUMN push.prune_cursor.after_id IS 'push.outbox.id after which the next bite begins; 0: a pass begins';

COMMENT ON COLUMN push.prune_cursor.until IS 'what the last pass removed was enqueued before this';

COMMENT ON COLUMN push.prune_cursor.ended_at IS 'when the last pass came to the end';

CREATE TABLE push.quarantined_tokens (
    app text NOT NULL,
    provider text NOT NULL,
    token text NOT NULL,
    user_id text,
    since timestamp with time zone NOT NULL,
    reason text NOT NULL,
    quarantined_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT quarantined_tokens_provider_known CHECK ((provider = ANY (push.channels())))
);

ALTER TABLE ONLY push.quarantined_tokens REPLICA IDENTITY FULL;

COMMENT ON TABLE push.quarantined_tokens IS 'one token that its provider called dead while the lane''s invalidation is on hold; it is used as if alive, until push.resume_invalidation decides';

COMMENT ON COLUMN push.quarantined_tokens.app IS 'app the token belongs to';

COMMENT ON COLUMN push.quarantined_tokens.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.quarantined_tokens.token IS 'the token';

COMMENT ON COLUMN push.quarantined_tokens.user_id IS 'whose token it is, as far as known';

COMMENT ON COLUMN push.quarantined_tokens.since IS 'since when the provider calls it dead, or when it said so';

COMMENT ON COLUMN push.quarantined_tokens.reason IS 'what the provider said';

COMMENT ON COLUMN push.quarantined_tokens.quarantined_at IS 'when it came here';

CREATE VIEW push.quarantined_devices AS
 SELECT q.app,
    q.provider,
    q.user_id,
    (("left"(q.token, 4) || '…'::text) || "right"(q.token, 4)) AS device,
    q.reason,
    q.since,
    q.quarantined_at
   FROM push.quarantined_tokens q;

COMMENT ON VIEW push.quarantined_devices IS 'push.quarantined_tokens with the tokens masked';

COMMENT ON COLUMN push.quarantined_devices.app IS 'app the token belongs to';

COMMENT ON COLUMN push.quarantined_devices.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.quarantined_devices.user_id IS 'whose token it is, as far as known';

COMMENT ON COLUMN push.quarantined_devices.device IS 'the token, masked: its first and last four characters';

COMMENT ON COLUMN push.quarantined_devices.reason IS 'what the provider said';

COMMENT ON COLUMN push.quarantined_devices.since IS 'since when the provider calls it dead, or when it said so';

COMMENT ON COLUMN push.quarantined_devices.quarantined_at IS 'when it came here';

ALTER TABLE push.quota ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.quota_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE push.quota_of_replica (
    app text NOT NULL,
    replica text NOT NULL,
    limits integer[] NOT NULL,
    said_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE push.quota_of_replica IS 'the quota that the configuration of one replica gives an app, so that push.health can report replicas that differ';

COMMENT ON COLUMN push.quota_of_replica.app IS 'name of the app';

COMMENT ON COLUMN push.quota_of_replica.replica IS 'push.gateways.name of the replica';

COMMENT ON COLUMN push.quota_of_replica.limits IS 'as push.quota.configured';

COMMENT ON COLUMN push.quota_of_replica.said_at IS 'when the replica registered the app';

CREATE VIEW push.quotas AS
 SELECT q.app,
    u.what,
    u."limit",
    u.used,
    u.refusals,
    u.refused_at,
    u.configured,
    u.set_to,
    q.set_at,
    q.set_by,
    q.note
   FROM (push.quota q
     CROSS JOIN LATERAL push.quota_uses(q.*) u(what, "limit", used, refusals, refused_at, configured, set_to))
  WHERE ((NOT pg_is_in_recovery()) AND ((u."limit" IS NOT NULL) OR (u.configured IS NOT NULL)))
  ORDER BY q.app, u.what;

COMMENT ON VIEW push.quotas IS 'how much each app with a quota may enqueue in a minute, and how much it has; no rows if no app has one. push.set_quota changes a quota';

COMMENT ON COLUMN push.quotas.app IS 'name of the app';

COMMENT ON COLUMN push.quotas.what IS 'calls, notifications, or recipients (entries of recipients, of both)';

COMMENT ON COLUMN push.quotas."limit" IS 'number allowed in a minute';

COMMENT ON COLUMN push.quotas.used IS 'number enqueued in the last minute; an estimate, which also counts rolled back transactions';

COMMENT ON COLUMN push.quotas.refusals IS 'statements of the app that were refused in the last minute, for any of its limits';

COMMENT ON COLUMN push.quotas.refused_at IS 'the minute in which one was last refused; null: never';

COMMENT ON COLUMN push.quotas.configured IS 'the limit of the gateways'' configuration; null: none';

COMMENT ON COLUMN push.quotas.set_to IS 'the limit that push.set_quota has set, which overrides it; null: none';

COMMENT ON COLUMN push.quotas.set_at IS 'when push.set_quota was called; null: nothing is set';

COMMENT ON COLUMN push.quotas.set_by IS 'the login that called it';

COMMENT ON COLUMN push.quotas.note IS 'why, as given to push.set_quota';

ALTER TABLE push.receipt_batch ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.receipt_batch_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW push.registered_devices AS
 SELECT d.user_id,
    d.app,
    d.provider,
    (("left"(d.token, 4) || '…'::text) || "right"(d.token, 4)) AS device,
    d.voip,
    d.environment,
    d.platform,
    d.locale,
    d.enabled,
    d.registered_at,
    d.invalidated_at,
    d.invalid_reason
   FROM push.devices d;

COMMENT ON VIEW push.registered_devices IS 'push.devices with the tokens masked';

COMMENT ON COLUMN push.registered_devices.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.registered_devices.app IS 'app the token belongs to';

COMMENT ON COLUMN push.registered_devices.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.registered_devices.device IS 'the token, masked: its first and last four characters';

COMMENT ON COLUMN push.registered_devices.voip IS 'apns only: true for a PushKit token, false for an ordinary alert token';

COMMENT ON COLUMN push.registered_devices.environment IS 'production or sandbox';

COMMENT ON COLUMN push.registered_devices.platform IS 'ios, android, web or unknown (null)';

COMMENT ON COLUMN push.registered_devices.locale IS 'language of visible texts, for example pt-BR';

COMMENT ON COLUMN push.registered_devices.enabled IS 'false: the user wants no notifications here';

COMMENT ON COLUMN push.registered_devices.registered_at IS 'when the phone last gave this token; an older invalidation does not count';

COMMENT ON COLUMN push.registered_devices.invalidated_at IS 'since when the provider calls the token dead; null: it is alive';

COMMENT ON COLUMN push.registered_devices.invalid_reason IS 'what the provider said';

CREATE VIEW push.replicas AS
 SELECT g.id,
    g.name,
    g.version,
    h.is_heard AS alive,
    g.started_at,
    g.heartbeat_at,
        CASE
            WHEN h.is_heard THEN (now() - push.finite(g.heartbeat_at))
            ELSE NULL::interval
        END AS silence,
    COALESCE(d.claimed, (0)::bigint) AS claimed,
        CASE
            WHEN (g.alive AND (NOT h.is_heard)) THEN g.heartbeat_at
            ELSE g.ended_at
        END AS ended_at,
        CASE
            WHEN (g.alive AND (NOT h.is_heard)) THEN 'silent'::text
            ELSE g.ended_reason
        END AS ended_reason
   FROM ((push.gateways g
     CROSS JOIN LATERAL ( SELECT (g.alive AND (g.heartbeat_at > (now() - '00:00:05'::interval))) AS is_heard) h)
     LEFT JOIN ( SELECT d_1.owner,
            (sum(d_1.count))::bigint AS claimed
           FROM push.count_owed() d_1(lane, kind, state, owner, count, oldest, first_deadline)
          WHERE (d_1.state = 1)
          GROUP BY d_1.owner) d ON ((d.owner = g.id)));

COMMENT ON VIEW push.replicas IS 'one row for each life of a gateway process: those that run, and those that ended lately';

COMMENT ON COLUMN push.replicas.id IS 'identity of this life: the owner of what it claims';

COMMENT ON COLUMN push.replicas.name IS 'host or pod name, for people';

COMMENT ON COLUMN push.replicas.version IS 'version of the program';

COMMENT ON COLUMN push.replicas.alive IS 'whether it runs, as far as is known: it has not ended, and its last heartbeat is less than 5 s old';

COMMENT ON COLUMN push.replicas.started_at IS 'when it registered';

COMMENT ON COLUMN push.replicas.heartbeat_at IS 'when it was last heard';

COMMENT ON COLUMN push.replicas.silence IS 'time since its last heartbeat; after 3 s the other replicas declare it dead';

COMMENT ON COLUMN push.replicas.claimed IS 'deliveries that it holds; when a replica ends, others take them over at once';

COMMENT ON COLUMN push.replicas.ended_at IS 'when it ended or was declared dead; of a silent one that no other replica could declare dead, its last heartbeat';

COMMENT ON COLUMN push.replicas.ended_reason IS 'retired (clean shutdown) or silent (missed its heartbeats)';

CREATE TABLE push.ring_reports (
    outbox_id bigint NOT NULL,
    user_id text NOT NULL,
    rang_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE push.ring_reports IS 'one user whose phone has said that a call rings; the first report counts';

COMMENT ON COLUMN push.ring_reports.outbox_id IS 'the call: push.outbox.id';

COMMENT ON COLUMN push.ring_reports.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.ring_reports.rang_at IS 'when the first report came';

CREATE VIEW push.schema_objects AS
 WITH owner AS (
         SELECT p.proowner AS oid
           FROM pg_proc p
          WHERE (p.oid = (to_regproc('push.fan_out'::text))::oid)
        ), part AS (
         SELECT d.objid AS oid
           FROM pg_depend d
          WHERE ((d.deptype = 'e'::"char") AND (d.classid = ANY (ARRAY[('pg_class'::regclass)::oid, ('pg_proc'::regclass)::oid])))
        ), made AS (
         SELECT c.oid,
            c.relname,
            c.relnamespace,
            c.reltype,
            c.reloftype,
            c.relowner,
            c.relam,
            c.relfilenode,
            c.reltablespace,
            c.relpages,
            c.reltuples,
            c.relallvisible,
            c.reltoastrelid,
            c.relhasindex,
            c.relisshared,
            c.relpersistence,
            c.relkind,
            c.relnatts,
            c.relchecks,
            c.relhasrules,
            c.relhastriggers,
            c.relhassubclass,
            c.relrowsecurity,
            c.relforcerowsecurity,
            c.relispopulated,
            c.relreplident,
            c.relispartition,
            c.relrewrite,
            c.relfrozenxid,
            c.relminmxid,
            c.relacl,
            c.reloptions,
            c.relpartbound,
            c.relname AS name,
            (c.relowner <> ( SELECT owner.oid
                   FROM owner)) AS is_foreign
           FROM pg_class c
          WHERE ((NOT (c.oid IN ( SELECT part.oid
                   FROM part))) AND (c.relnamespace = ('push'::regnamespace)::oid) AND (c.relkind = ANY (ARRAY['r'::"char", 'p'::"char", 'v'::"char"])) AND (NOT c.relispartition) AND ("left"((c.relname)::text, 3) <> 'pg_'::text))
        )
 SELECT format('trigger %s of push.%s'::text, t.tgname, c.name) AS object,
        CASE
            WHEN (t.tgenabled <> ALL (ARRAY['O'::"char", 'A'::"char"])) THEN 'disabled'::text
            ELSE concat_ws(' '::text, 'enabled', t.tgtype, p.proname, (t.tgqual IS NULL), t.tgdeferrable, t.tgattr)
        END AS state
   FROM ((made c
     JOIN pg_trigger t ON (((t.tgrelid = c.oid) AND (NOT t.tgisinternal))))
     JOIN pg_proc p ON ((p.oid = t.tgfoid)))
UNION ALL
 SELECT format('rule %s of push.%s'::text, r.rulename, c.name) AS object,
    'there'::text AS state
   FROM (made c
     JOIN pg_rewrite r ON (((r.ev_class = c.oid) AND (r.rulename <> '_RETURN'::name))))
UNION ALL
 SELECT format('index %s of push.%s'::text, x.relname, c.name) AS object,
        CASE
            WHEN i.indisvalid THEN concat_ws(' '::text, 'valid',
            CASE
                WHEN i.indisunique THEN 'unique'::text
                ELSE NULL::text
            END, i.indkey, (i.indpred IS NULL), (i.indexprs IS NULL))
            ELSE 'invalid'::text
        END AS state
   FROM ((made c
     JOIN pg_index i ON ((i.indrelid = c.oid)))
     JOIN pg_class x ON (((x.oid = i.indexrelid) AND (x.relname !~ '_cc(new|old)[0-9]*$'::text))))
UNION ALL
 SELECT format('constraint %s of push.%s'::text, k.conname, c.name) AS object,
    (k.contype)::text AS state
   FROM (made c
     JOIN pg_constraint k ON (((k.conrelid = c.oid) AND (k.contype = ANY (ARRAY['c'::"char", 'x'::"char", 'f'::"char", 'p'::"char", 'u'::"char"])))))
UNION ALL
 SELECT format('column %s of push.%s'::text, a.attname, c.name) AS object,
    concat_ws(' '::text, format_type(a.atttypid, a.atttypmod),
        CASE
            WHEN (a.atthasdef OR (a.attidentity <> ''::"char")) THEN 'with a default'::text
            ELSE NULL::text
        END,
        CASE
            WHEN a.attnotnull THEN 'not null'::text
            ELSE NULL::text
        END) AS state
   FROM (made c
     JOIN pg_attribute a ON (((a.attrelid = c.oid) AND (a.attnum > 0) AND (NOT a.attisdropped))))
UNION ALL
 SELECT ('owner of push.'::text || (c.name)::text) AS object,
        CASE
            WHEN c.is_foreign THEN ((c.relowner)::regrole)::text
            ELSE 'that of the functions'::text
        END AS state
   FROM made c
UNION ALL
 SELECT ((
        CASE c.relkind
            WHEN 'v'::"char" THEN 'view'::text
            ELSE 'table'::text
        END || ' push.'::text) || (c.name)::text) AS object,
        CASE
            WHEN c.relrowsecurity THEN 'under row-level security'::text
            WHEN ((c.relkind = 'r'::"char") AND (c.relreplident = 'n'::"char")) THEN 'without a replica identity'::text
            WHEN (c.relpersistence = 'u'::"char") THEN 'unlogged'::text
            ELSE 'as made'::text
        END AS state
   FROM made c
UNION ALL
 SELECT ('function push.'::text || (p.proname)::text) AS object,
    string_agg(md5(concat_ws(' '::text, p.prosrc, p.prosecdef, p.provolatile, p.proisstrict, (p.proowner = ( SELECT owner.oid
           FROM owner)), ( SELECT string_agg(c.c, ' '::text ORDER BY c.c) AS string_agg
           FROM unnest(p.proconfig) c(c)))), ' '::text ORDER BY p.pronargs, (md5(p.prosrc))) AS state
   FROM pg_proc p
  WHERE ((p.pronamespace = ('push'::regnamespace)::oid) AND (NOT (p.oid IN ( SELECT part.oid
           FROM part))))
  GROUP BY p.proname;

COMMENT ON VIEW push.schema_objects IS 'what the schema is made of now; for push.schema_faults';

COMMENT ON COLUMN push.schema_objects.object IS 'kind and name';

COMMENT ON COLUMN push.schema_objects.state IS 'the state that calls depend on; of a function, a digest of its body and settings';

CREATE MATERIALIZED VIEW push.schema_made AS
 SELECT schema_objects.object,
    schema_objects.state
   FROM push.schema_objects
  WITH NO DATA;

COMMENT ON MATERIALIZED VIEW push.schema_made IS 'push.schema_objects as migrate has left them';

CREATE VIEW push.schema_faults AS
 SELECT
        CASE
            WHEN (m.object IS NULL) THEN (o.object || ' is not of this schema'::text)
            WHEN (o.object IS NULL) THEN (m.object || ' is missing'::text)
            WHEN ((o.state ~ '^(disabled|invalid|under|without)'::text) OR (m.object ~ '^(owner|table) '::text)) THEN ((m.object || ' is '::text) || o.state)
            ELSE (m.object || ' was changed'::text)
        END AS fault
   FROM (push.schema_made m
     FULL JOIN push.schema_objects o USING (object))
  WHERE
        CASE
            WHEN (m.object IS NOT NULL) THEN ((o.state ~ '^(disabled|invalid|under|without)'::text) OR (o.state IS DISTINCT FROM m.state))
            ELSE ((EXISTS ( SELECT
               FROM push.schema_made t
              WHERE (t.object = ('table '::text || split_part(o.object, ' of '::text, 2))))) AND ((o.object ~ '^(rule|constraint) '::text) OR ((o.object ~~ 'trigger %'::text) AND (o.object <> 'trigger refuse_slots of push.outbox'::text)) OR (o.state ~~ 'valid unique %'::text) OR ((o.object ~~ 'column %'::text) AND (o.state ~~ '%not null'::text) AND (o.state !~~ '%with a default%'::text))))
        END
UNION ALL
 SELECT format('%s may not %s'::text, r.role, r."right") AS fault
   FROM push.missing_rights r
UNION ALL
 SELECT format('session_replication_role of %s is replica'::text, COALESCE(quote_ident((r.rolname)::text), 'this database'::text)) AS fault
   FROM (pg_db_role_setting s
     LEFT JOIN pg_roles r ON ((r.oid = s.setrole)))
  WHERE ((s.setdatabase = ANY (ARRAY[(0)::oid, ( SELECT d.oid
           FROM pg_database d
          WHERE (d.datname = current_database()))])) AND (lower((s.setconfig)::text) ~ 'session_replication_role=replica\M'::text) AND ((r.oid IS NULL) OR ((NOT r.rolsuper) AND has_schema_privilege(r.oid, 'push'::text, 'usage'::text))))
UNION ALL
 SELECT 'session_replication_role of this session is replica'::text AS fault
  WHERE (current_setting('session_replication_role'::text) = 'replica'::text);

COMMENT ON VIEW push.schema_faults IS 'how the schema differs from what migrate has left; for push.health and push-gateway migrate';

COMMENT ON COLUMN push.schema_faults.fault IS 'a sentence';

CREATE TABLE push.shard_here (
    is_present boolean DEFAULT true NOT NULL,
    shard smallint NOT NULL,
    CONSTRAINT shard_here_at_most_one CHECK (is_present),
    CONSTRAINT shard_here_range CHECK (((shard >= 0) AND (shard <= 1023)))
);

COMMENT ON TABLE push.shard_here IS 'at most one row: which shard this database is';

COMMENT ON COLUMN push.shard_here.is_present IS 'always true: makes the row the only one';

COMMENT ON COLUMN push.shard_here.shard IS 'number of this shard in push.shard_map';

CREATE TABLE push.shard_map (
    generation integer NOT NULL,
    shards smallint[] NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    until timestamp with time zone,
    CONSTRAINT shard_map_every_slot CHECK (((array_ndims(shards) = 1) AND (array_lower(shards, 1) = 1) AND (cardinality(shards) = 1024))),
    CONSTRAINT shard_map_generation_positive CHECK ((generation > 0)),
    CONSTRAINT shard_map_order CHECK ((until >= since)),
    CONSTRAINT shard_map_shards_range CHECK (((0 <= ALL (shards)) AND (1024 > ALL (shards)) AND (array_position(shards, NULL::smallint) IS NULL)))
);
ALTER TABLE ONLY push.shard_map ALTER COLUMN shards SET STORAGE PLAIN;

COMMENT ON TABLE push.shard_map IS 'which shard owns which slot of call ids: the current map, and those before it while calls that were enqueued under them are kept. Empty: this database stands alone';

COMMENT ON COLUMN push.shard_map.generation IS 'number of the map, the same in all databases';

COMMENT ON COLUMN push.shard_map.shards IS 'the shard of each of the 1,024 slots; that of slot n (push.slot_of) is element n + 1';

COMMENT ON COLUMN push.shard_map.since IS 'when this database took over the map';

COMMENT ON COLUMN push.shard_map.until IS 'when this database took over the next one; null: the current map';

CREATE VIEW push.stuck AS
 SELECT d.outbox_id,
    d.n,
    l.app,
    ( SELECT o.call_id
           FROM push.outbox o
          WHERE (o.id = d.outbox_id)) AS call_id,
    l.provider,
        CASE d.kind
            WHEN 0 THEN 'invite'::text
            WHEN 1 THEN 'cancel'::text
            WHEN 2 THEN 'missed_call'::text
            ELSE 'notification'::text
        END AS kind,
    d.user_id,
        CASE d.state
            WHEN 0 THEN 'ready'::text
            WHEN 1 THEN 'claimed'::text
            ELSE 'waiting'::text
        END AS state,
        CASE
            WHEN (d.deadline_at < (now() - '00:00:05'::interval)) THEN 'past its deadline, and not expired'::text
            WHEN (d.state = 0) THEN 'ready, and not claimed'::text
            WHEN (d.state = 1) THEN 'claimed, and not settled'::text
            ELSE 'due, and still waiting'::text
        END AS why,
    (now() - push.finite(GREATEST(d.created_at, d.due_at))) AS age,
    (push.finite(d.deadline_at) - now()) AS "left",
    d.last_reason,
    d.owner AS gateway
   FROM (( SELECT c.outbox_id,
            c.created_at,
            c.due_at,
            c.deadline_at,
            c.n,
            c.lease,
            c.attempt,
            c.owner,
            c.state,
            c.crashes,
            c.lane,
            c.ready_lane,
            c.kind,
            c.environment,
            c.platform,
            c.user_id,
            c.token,
            c.locale,
            c.last_reason,
            c.failures,
            c.fallback_of,
            c.data,
            c.bypassed_at,
            c.paired,
            c.found_ended,
            c.handed_on_at,
            c.accepted_at,
            c.handed_on_by,
            c.is_stopped,
            row_number() OVER (PARTITION BY
                CASE c.state
                    WHEN 0 THEN c.lane
                    ELSE NULL::smallint
                END ORDER BY c.deadline_at) AS place
           FROM ( SELECT d_1.outbox_id,
                    d_1.created_at,
                    d_1.due_at,
                    d_1.deadline_at,
                    d_1.n,
                    d_1.lease,
                    d_1.attempt,
                    d_1.owner,
                    d_1.state,
                    d_1.crashes,
                    d_1.lane,
                    d_1.ready_lane,
                    d_1.kind,
                    d_1.environment,
                    d_1.platform,
                    d_1.user_id,
                    d_1.token,
                    d_1.locale,
                    d_1.last_reason,
                    d_1.failures,
                    d_1.fallback_of,
                    d_1.data,
                    d_1.bypassed_at,
                    d_1.paired,
                    d_1.found_ended,
                    d_1.handed_on_at,
                    d_1.accepted_at,
                    d_1.handed_on_by,
                    (l_1.paused OR COALESCE((s.circuit = 'open'::text), false)) AS is_stopped
                   FROM ((push.lane l_1
                     LEFT JOIN push.lane_conditions() s(lane, window_size, capacity, in_flight, circuit, throttled_until, rate_per_second) ON ((s.lane = l_1.id)))
                     CROSS JOIN LATERAL ( SELECT d_2.outbox_id,
                            d_2.created_at,
                            d_2.due_at,
                            d_2.deadline_at,
                            d_2.n,
                            d_2.lease,
                            d_2.attempt,
                            d_2.owner,
                            d_2.state,
                            d_2.crashes,
                            d_2.lane,
                            d_2.ready_lane,
                            d_2.kind,
                            d_2.environment,
                            d_2.platform,
                            d_2.user_id,
                            d_2.token,
                            d_2.locale,
                            d_2.last_reason,
                            d_2.failures,
                            d_2.fallback_of,
                            d_2.data,
                            d_2.bypassed_at,
                            d_2.paired,
                            d_2.found_ended,
                            d_2.handed_on_at,
                            d_2.accepted_at,
                            d_2.handed_on_by
                           FROM push.delivery d_2
                          WHERE (d_2.ready_lane = l_1.id)
                          ORDER BY d_2.deadline_at
                         LIMIT 2000) d_1)
                UNION ALL
                ( SELECT d_1.outbox_id,
                    d_1.created_at,
                    d_1.due_at,
                    d_1.deadline_at,
                    d_1.n,
                    d_1.lease,
                    d_1.attempt,
                    d_1.owner,
                    d_1.state,
                    d_1.crashes,
                    d_1.lane,
                    d_1.ready_lane,
                    d_1.kind,
                    d_1.environment,
                    d_1.platform,
                    d_1.user_id,
                    d_1.token,
                    d_1.locale,
                    d_1.last_reason,
                    d_1.failures,
                    d_1.fallback_of,
                    d_1.data,
                    d_1.bypassed_at,
                    d_1.paired,
                    d_1.found_ended,
                    d_1.handed_on_at,
                    d_1.accepted_at,
                    d_1.handed_on_by,
                    false
                   FROM push.delivery d_1
                  WHERE ((d_1.ready_lane IS NULL) AND (d_1.due_at < (now() - '00:00:05'::interval)))
                  ORDER BY d_1.due_at
                 LIMIT 1000)) c
          WHERE ((c.deadline_at < (now() - '00:00:05'::interval)) OR ((NOT (c.is_stopped AND (c.state = 0))) AND (GREATEST(c.created_at, c.due_at) < (now() -
                CASE c.state
                    WHEN 1 THEN '00:00:30'::interval
                    ELSE '00:00:05'::interval
                END))))) d
     JOIN push.lane l ON ((l.id = d.lane)))
  WHERE (d.place <=
        CASE d.state
            WHEN 0 THEN 200
            ELSE 1000
        END);

COMMENT ON VIEW push.stuck IS 'deliveries that should have made progress: ready for more than 5 s while the lane is not paused and its circuit not open, claimed and more than 30 s old, waiting 5 s longer than due, or 5 s past the deadline. Shows the most urgent 200 ready deliveries of each lane and 1,000 others, among the 2,000 of each lane with the earliest deadlines';

COMMENT ON COLUMN push.stuck.outbox_id IS 'the call: push.outbox.id';

COMMENT ON COLUMN push.stuck.n IS 'number of the push within its call, from 0, in the order in which they were made';

COMMENT ON COLUMN push.stuck.app IS 'name of the app';

COMMENT ON COLUMN push.stuck.call_id IS 'payload.callId; for message, group_message and group_invite what was given, else payload.callId, payload.messageId or a new UUID; unique with app, so enqueueing twice is one call';

COMMENT ON COLUMN push.stuck.provider IS 'apns, fcm or another of push.channels()';

COMMENT ON COLUMN push.stuck.kind IS 'invite, cancel, missed_call or notification';

COMMENT ON COLUMN push.stuck.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.stuck.state IS 'ready, claimed (a gateway has it) or waiting (until due_at)';

COMMENT ON COLUMN push.stuck.why IS 'what should have happened';

COMMENT ON COLUMN push.stuck.age IS 'time since it was enqueued, or since it was due';

COMMENT ON COLUMN push.stuck."left" IS 'time until its deadline; negative: past it';

COMMENT ON COLUMN push.stuck.last_reason IS 'why the last try did not end it';

COMMENT ON COLUMN push.stuck.gateway IS 'push.gateways.id of the gateway that has it';

CREATE VIEW push.summary AS
 SELECT l.app,
    l.channel AS provider,
        CASE d.kind
            WHEN 0 THEN 'invite'::text
            WHEN 1 THEN 'cancel'::text
            WHEN 2 THEN 'missed_call'::text
            ELSE 'notification'::text
        END AS kind,
        CASE d.state
            WHEN 0 THEN 'ready'::text
            WHEN 1 THEN 'claimed'::text
            ELSE 'waiting'::text
        END AS state,
    (sum(d.count))::bigint AS count,
    (now() - min(d.oldest)) AS oldest_age,
    (min(d.first_deadline) - now()) AS least_left
   FROM (push.count_owed() d(lane, kind, state, owner, count, oldest, first_deadline)
     LEFT JOIN push.lane l ON ((l.id = d.lane)))
  GROUP BY l.app, l.channel, d.kind, d.state;

COMMENT ON VIEW push.summary IS 'deliveries that are owed, by app, provider, kind and state; no rows if nothing is owed. Counts above 30,000 divided by the number of lanes are estimates, rounded to three digits (push.count_owed)';

COMMENT ON COLUMN push.summary.app IS 'name of the app';

COMMENT ON COLUMN push.summary.provider IS 'provider and push service: apns, webpush/google';

COMMENT ON COLUMN push.summary.kind IS 'invite, cancel, missed_call or notification';

COMMENT ON COLUMN push.summary.state IS 'ready, claimed (a gateway has it) or waiting (until due_at)';

COMMENT ON COLUMN push.summary.count IS 'number of deliveries';

COMMENT ON COLUMN push.summary.oldest_age IS 'age of the oldest of them';

COMMENT ON COLUMN push.summary.least_left IS 'time until the first of them expires; negative: it should have expired already';

CREATE TABLE push.tally (
    id bigint NOT NULL,
    what text NOT NULL,
    lane smallint,
    app text,
    kind smallint,
    outcome smallint,
    reason text,
    untried boolean DEFAULT false NOT NULL,
    count integer DEFAULT 1 NOT NULL,
    seconds double precision,
    CONSTRAINT tally_count_positive CHECK ((count > 0)),
    CONSTRAINT tally_what_known CHECK ((what = ANY (ARRAY['ended'::text, 'enqueued'::text, 'missed'::text, 'rang'::text, 'invalidated'::text, 'quarantined'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='50000', autovacuum_vacuum_cost_delay='0');

COMMENT ON TABLE push.tally IS 'what one statement did that no gateway saw: only inserted into, and taken by a gateway (push.take_tally)';

COMMENT ON COLUMN push.tally.id IS 'number of the note; the oldest are taken first';

COMMENT ON COLUMN push.tally.what IS 'ended (deliveries, by push.void_unsent or push.expire), enqueued (calls), missed (missed calls announced), rang (a phone said so), invalidated or quarantined (tokens)';

COMMENT ON COLUMN push.tally.lane IS 'push.lane.id, for deliveries and tokens';

COMMENT ON COLUMN push.tally.app IS 'name of the app, where there is no lane';

COMMENT ON COLUMN push.tally.kind IS 'of deliveries: as push.history.kind';

COMMENT ON COLUMN push.tally.outcome IS 'of deliveries: as push.history.outcome';

COMMENT ON COLUMN push.tally.reason IS 'of deliveries: as push.history.reason; of missed calls: deadline or ended';

COMMENT ON COLUMN push.tally.untried IS 'of deliveries: no try of them was ever made';

COMMENT ON COLUMN push.tally.count IS 'how many';

COMMENT ON COLUMN push.tally.seconds IS 'rang: from the enqueueing of the call to the report';

ALTER TABLE push.tally ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.tally_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

ALTER TABLE push.token_invalidations ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.token_invalidations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE push.unreached (
    app text NOT NULL,
    user_id text NOT NULL,
    outbox_id bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE push.unreached IS 'users whom a call that rings had not reached: each of their invites had failed. If one of them registers a device, the call is looked at again, and rings it if no other device is rung since';

COMMENT ON COLUMN push.unreached.app IS 'name of the app';

COMMENT ON COLUMN push.unreached.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.unreached.outbox_id IS 'the call: push.outbox.id';

CREATE TABLE push.webhook (
    app text NOT NULL,
    on_until timestamp with time zone DEFAULT 'infinity'::timestamp with time zone NOT NULL,
    host text NOT NULL,
    url_digest text NOT NULL,
    events text[],
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    note text,
    gone_at timestamp with time zone,
    failing_since timestamp with time zone,
    failures integer DEFAULT 0 NOT NULL,
    retry_at timestamp with time zone,
    last_status integer,
    last_reason text,
    last_at timestamp with time zone,
    dropped bigint DEFAULT 0 NOT NULL,
    CONSTRAINT webhook_app_form CHECK (((app ~ '^[A-Za-z0-9]'::text) AND (app !~ '[^A-Za-z0-9_.-]'::text) AND (length(app) <= 64))),
    CONSTRAINT webhook_events_known CHECK (((events <@ ARRAY['delivery.finished'::text, 'delivery.receipt'::text, 'call.answered'::text, 'call.declined'::text, 'call.ended'::text, 'call.missed'::text, 'token.dead'::text]) AND (cardinality(events) > 0))),
    CONSTRAINT webhook_failing CHECK (((failing_since IS NULL) = (failures = 0)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE push.webhook IS 'one app whose backend is told of events over HTTP, as the configuration of a gateway says. People read push.webhooks';

COMMENT ON COLUMN push.webhook.app IS 'name of the app';

COMMENT ON COLUMN push.webhook.on_until IS 'infinity: the replica that registered last has the webhook; else until when it is on all the same: a minute after the last claim of a replica that has it. Afterwards nothing is recorded';

COMMENT ON COLUMN push.webhook.host IS 'host and port of the URL; the URL itself is in the configuration only';

COMMENT ON COLUMN push.webhook.url_digest IS 'SHA-256 of the URL, in hex: failures of another URL do not count, and another URL ends the state that 410 has caused';

COMMENT ON COLUMN push.webhook.events IS 'types that are recorded; null: all';

COMMENT ON COLUMN push.webhook.changed_at IS 'when the configuration of the webhook last changed';

COMMENT ON COLUMN push.webhook.paused IS 'true: events are recorded and not sent (push.pause_webhooks)';

COMMENT ON COLUMN push.webhook.note IS 'why it is paused';

COMMENT ON COLUMN push.webhook.gone_at IS 'when the receiver answered 410: nothing is sent until the URL changes or push.resume_webhooks is called';

COMMENT ON COLUMN push.webhook.failing_since IS 'since when no request was acknowledged; null: the last one was';

COMMENT ON COLUMN push.webhook.failures IS 'number of failed requests since the last acknowledged one';

COMMENT ON COLUMN push.webhook.retry_at IS 'nothing is sent to the app before this time; null: no limit';

COMMENT ON COLUMN push.webhook.last_status IS 'HTTP status of the last answer that was noted; null: there was no answer';

COMMENT ON COLUMN push.webhook.last_reason IS 'why the last request had no answer; null: there was one';

COMMENT ON COLUMN push.webhook.last_at IS 'when a result was last noted; successes that repeat the last result are noted at most every 10 s';

COMMENT ON COLUMN push.webhook.dropped IS 'number of events that were deleted without an acknowledgement, because they were too old or too many';

CREATE TABLE push.webhook_event (
    id bigint NOT NULL,
    event text NOT NULL,
    app text NOT NULL,
    type text NOT NULL,
    outbox_id bigint,
    user_id text,
    at timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    due_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    tries integer DEFAULT 0 NOT NULL,
    data jsonb NOT NULL,
    CONSTRAINT webhook_event_data_form CHECK ((jsonb_typeof(data) = 'object'::text)),
    CONSTRAINT webhook_event_type_known CHECK ((type = ANY (ARRAY['delivery.finished'::text, 'delivery.receipt'::text, 'call.answered'::text, 'call.declined'::text, 'call.ended'::text, 'call.missed'::text, 'token.dead'::text])))
)
WITH (fillfactor='80', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='5000', autovacuum_vacuum_insert_scale_factor='0', autovacuum_vacuum_insert_threshold='50000', autovacuum_analyze_scale_factor='0', autovacuum_analyze_threshold='100000', autovacuum_vacuum_cost_delay='0');
ALTER TABLE ONLY push.webhook_event ALTER COLUMN event SET STATISTICS 0;
ALTER TABLE ONLY push.webhook_event ALTER COLUMN user_id SET STATISTICS 0;
ALTER TABLE ONLY push.webhook_event ALTER COLUMN data SET STATISTICS 0;

COMMENT ON TABLE push.webhook_event IS 'one event that the backend of an app has not acknowledged yet; kept for at most 24 hours (push.trim_webhooks)';

COMMENT ON COLUMN push.webhook_event.id IS 'number of the event: events of a call are sent in this order';

COMMENT ON COLUMN push.webhook_event.event IS 'id of the event for the receiver (webhook-id): the same each time it is sent';

COMMENT ON COLUMN push.webhook_event.app IS 'name of the app';

COMMENT ON COLUMN push.webhook_event.type IS 'delivery.finished, delivery.receipt, call.answered, call.declined, call.ended, call.missed or token.dead';

COMMENT ON COLUMN push.webhook_event.outbox_id IS 'the call: push.outbox.id; null: the event waits for no other one';

COMMENT ON COLUMN push.webhook_event.user_id IS 'the backend''s id of the user';

COMMENT ON COLUMN push.webhook_event.at IS 'when what it tells happened';

COMMENT ON COLUMN push.webhook_event.created_at IS 'when it was recorded';

COMMENT ON COLUMN push.webhook_event.due_at IS 'when it is sent next. While a gateway sends it: the end of the lease. Behind another event of its call: when it is examined again';

COMMENT ON COLUMN push.webhook_event.attempts IS 'how often it was claimed; together with id, the fencing token against a slow gateway';

COMMENT ON COLUMN push.webhook_event.tries IS 'how often it was sent in vain since it was recorded, or since push.resume_webhooks';

COMMENT ON COLUMN push.webhook_event.data IS 'the member data of the request body. Only token.dead has the whole token; in all other types it is masked';

ALTER TABLE push.webhook_event ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME push.webhook_event_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW push.webhooks AS
 SELECT w.app,
    w.host,
        CASE
            WHEN (w.on_until <= clock_timestamp()) THEN 'off'::text
            WHEN w.paused THEN 'paused'::text
            WHEN (w.gone_at IS NOT NULL) THEN 'gone'::text
            WHEN (w.failing_since IS NOT NULL) THEN 'failing'::text
            ELSE 'on'::text
        END AS state,
    e.waiting,
    e.oldest,
    w.failing_since,
    w.last_status,
    w.last_reason,
    w.last_at,
    w.retry_at,
    w.dropped,
    w.events,
    w.note,
    w.gone_at,
    ((w.on_until > clock_timestamp()) AND (w.on_until < 'infinity'::timestamp with time zone)) AS replicas_differ
   FROM (push.webhook w
     CROSS JOIN LATERAL ( SELECT count(*) AS waiting,
            (clock_timestamp() - push.finite(min(e_1.created_at))) AS oldest
           FROM push.webhook_event e_1
          WHERE (e_1.app = w.app)) e);

COMMENT ON VIEW push.webhooks IS 'one row for each app that has, or had, a webhook: where to, and whether events arrive';

COMMENT ON COLUMN push.webhooks.app IS 'name of the app';

COMMENT ON COLUMN push.webhooks.host IS 'host and port of the URL; the URL itself is in the configuration only';

COMMENT ON COLUMN push.webhooks.state IS 'on; failing (the last request was not acknowledged); gone (the receiver answered 410); paused (by push.pause_webhooks); off (no longer configured)';

COMMENT ON COLUMN push.webhooks.waiting IS 'events that were not acknowledged yet';

COMMENT ON COLUMN push.webhooks.oldest IS 'age of the oldest of them';

COMMENT ON COLUMN push.webhooks.failing_since IS 'since when no request was acknowledged; null: the last one was';

COMMENT ON COLUMN push.webhooks.last_status IS 'HTTP status of the last answer that was noted; null: there was no answer';

COMMENT ON COLUMN push.webhooks.last_reason IS 'why the last request had no answer; null: there was one';

COMMENT ON COLUMN push.webhooks.last_at IS 'when a result was last noted; successes that repeat the last result are noted at most every 10 s';

COMMENT ON COLUMN push.webhooks.retry_at IS 'nothing is sent to the app before this time; null: no limit';

COMMENT ON COLUMN push.webhooks.dropped IS 'number of events that were deleted without an acknowledgement, because they were too old or too many';

COMMENT ON COLUMN push.webhooks.events IS 'types that are recorded; null: all';

COMMENT ON COLUMN push.webhooks.note IS 'why it is paused';

COMMENT ON COLUMN push.webhooks.gone_at IS 'when the receiver answered 410: nothing is sent until the URL changes or push.resume_webhooks is called';

COMMENT ON COLUMN push.webhooks.replicas_differ IS 'whether it is on although a replica has no webhook for the app';

ALTER TABLE ONLY push.history ATTACH PARTITION push.history_default DEFAULT;

ALTER TABLE ONLY push.api_keys
    ADD CONSTRAINT api_keys_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.app_grant
    ADD CONSTRAINT app_grant_pkey PRIMARY KEY (role, app);

ALTER TABLE ONLY push.apps
    ADD CONSTRAINT apps_pkey PRIMARY KEY (app);

ALTER TABLE ONLY push.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.call_key
    ADD CONSTRAINT call_key_pkey PRIMARY KEY (call_id, app);

ALTER TABLE ONLY push.delivery
    ADD CONSTRAINT delivery_pkey PRIMARY KEY (outbox_id, n);

ALTER TABLE ONLY push.devices
    ADD CONSTRAINT devices_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.erasure
    ADD CONSTRAINT erasure_of_user UNIQUE (user_digest, app);

ALTER TABLE ONLY push.erasure
    ADD CONSTRAINT erasure_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.escalations
    ADD CONSTRAINT escalations_pkey PRIMARY KEY (outbox_id, n);

ALTER TABLE ONLY push.gateways
    ADD CONSTRAINT gateways_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (name);

ALTER TABLE ONLY push.lane
    ADD CONSTRAINT lane_app_provider_service UNIQUE (app, provider, service);

ALTER TABLE ONLY push.lane
    ADD CONSTRAINT lane_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.lane_status
    ADD CONSTRAINT lane_status_pkey PRIMARY KEY (lane, gateway);

ALTER TABLE ONLY push.outbox
    ADD CONSTRAINT outbox_call UNIQUE (call_id, app);

ALTER TABLE ONLY push.outbox
    ADD CONSTRAINT outbox_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.provider_tokens
    ADD CONSTRAINT provider_tokens_pkey PRIMARY KEY (provider, name);

ALTER TABLE ONLY push.prune_cursor
    ADD CONSTRAINT prune_cursor_pkey PRIMARY KEY (is_present);

ALTER TABLE ONLY push.quota
    ADD CONSTRAINT quota_id UNIQUE (id);

ALTER TABLE ONLY push.quota_of_replica
    ADD CONSTRAINT quota_of_replica_pkey PRIMARY KEY (app, replica);

ALTER TABLE ONLY push.quota
    ADD CONSTRAINT quota_pkey PRIMARY KEY (app);

ALTER TABLE ONLY push.receipt_batch
    ADD CONSTRAINT receipt_batch_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.ring_reports
    ADD CONSTRAINT ring_reports_pkey PRIMARY KEY (outbox_id, user_id);

ALTER TABLE ONLY push.shard_here
    ADD CONSTRAINT shard_here_pkey PRIMARY KEY (is_present);

ALTER TABLE ONLY push.shard_map
    ADD CONSTRAINT shard_map_pkey PRIMARY KEY (generation);

ALTER TABLE ONLY push.tally
    ADD CONSTRAINT tally_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.token_invalidations
    ADD CONSTRAINT token_invalidations_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.unreached
    ADD CONSTRAINT unreached_pkey PRIMARY KEY (app, user_id, outbox_id);

ALTER TABLE ONLY push.webhook_event
    ADD CONSTRAINT webhook_event_pkey PRIMARY KEY (id);

ALTER TABLE ONLY push.webhook_event
    ADD CONSTRAINT webhook_event_unique UNIQUE (event);

ALTER TABLE ONLY push.webhook
    ADD CONSTRAINT webhook_pkey PRIMARY KEY (app);

CREATE INDEX apps_escalating ON push.apps USING btree (app) WHERE (escalate_after_seconds IS NOT NULL);

CREATE INDEX audit_at ON push.audit USING btree (at);

CREATE INDEX delivery_ready ON push.delivery USING btree (ready_lane, deadline_at) WHERE (ready_lane IS NOT NULL);

CREATE INDEX delivery_suspect ON push.delivery USING btree (lane, deadline_at) WHERE (crashes >= 2);

CREATE INDEX delivery_waiting ON push.delivery USING btree (due_at) WHERE (ready_lane IS NULL);

CREATE INDEX delivery_waiting_invite ON push.delivery USING btree (due_at) WHERE ((ready_lane IS NULL) AND (kind = 0));

CREATE INDEX devices_invalidated ON push.devices USING btree (invalidated_at) WHERE (invalidated_at IS NOT NULL);

CREATE INDEX devices_of_user ON push.devices USING btree (user_id, app) WHERE (enabled AND (invalidated_at IS NULL));

CREATE UNIQUE INDEX devices_token ON push.devices USING btree (sha256((token)::bytea), app, provider);

CREATE INDEX erasure_unfinished ON push.erasure USING btree (id) WHERE (finished_at IS NULL);

CREATE INDEX follow_ups_due ON push.follow_ups USING btree (is_urgent, due_at);

CREATE INDEX follow_ups_failed ON push.follow_ups USING btree (due_at) WHERE (tries <> 0);

CREATE INDEX history_call ON ONLY push.history USING btree (outbox_id);

CREATE INDEX history_finished ON ONLY push.history USING brin (finished_at) WITH (pages_per_range='32', autosummarize='on');

CREATE INDEX history_default_finished_at_idx ON push.history_default USING brin (finished_at) WITH (pages_per_range='32', autosummarize='on');

CREATE INDEX history_failed ON ONLY push.history USING btree (lane, finished_at) WHERE (outcome <> 0);

CREATE INDEX history_default_lane_finished_at_idx ON push.history_default USING btree (lane, finished_at) WHERE (outcome <> 0);

CREATE INDEX history_default_outbox_id_idx ON push.history_default USING btree (outbox_id);

CREATE INDEX lane_paused ON push.lane USING btree (id) WHERE paused;

CREATE INDEX outbox_created ON push.outbox USING brin (created_at) WITH (pages_per_range='32', autosummarize='on');

CREATE INDEX outbox_ringing ON push.outbox USING btree (deadline_at) WHERE (state = 'ringing'::text);

CREATE INDEX quarantined_tokens_age ON push.quarantined_tokens USING btree (quarantined_at);

CREATE UNIQUE INDEX quarantined_tokens_token ON push.quarantined_tokens USING btree (sha256((token)::bytea), app, provider);

CREATE INDEX receipt_batch_asked ON push.receipt_batch USING btree (app, claimed) WHERE (attempts > 0);

CREATE INDEX receipt_batch_due ON push.receipt_batch USING btree (app, due_at);

CREATE UNIQUE INDEX shard_map_current ON push.shard_map USING btree (((until IS NULL))) WHERE (until IS NULL);

CREATE INDEX token_invalidations_feed ON push.token_invalidations USING btree (invalidated_at);

CREATE INDEX token_invalidations_lookup ON push.token_invalidations USING hash (token);

CREATE INDEX token_invalidations_of_app ON push.token_invalidations USING btree (((app || ''::text)), invalidated_at);

CREATE UNIQUE INDEX token_invalidations_token ON push.token_invalidations USING btree (sha256((token)::bytea), app, provider);

CREATE INDEX unreached_call ON push.unreached USING btree (outbox_id);

CREATE INDEX webhook_event_age ON push.webhook_event USING btree (app, created_at);

CREATE INDEX webhook_event_call ON push.webhook_event USING btree (outbox_id, id) WHERE (outbox_id IS NOT NULL);

CREATE INDEX webhook_event_due ON push.webhook_event USING btree (app, due_at);

CREATE INDEX webhook_event_token ON push.webhook_event USING btree (md5((data ->> 'token'::text))) WHERE (type = 'token.dead'::text);

CREATE INDEX webhook_on ON push.webhook USING btree (on_until);

ALTER INDEX push.history_finished ATTACH PARTITION push.history_default_finished_at_idx;

ALTER INDEX push.history_failed ATTACH PARTITION push.history_default_lane_finished_at_idx;

ALTER INDEX push.history_call ATTACH PARTITION push.history_default_outbox_id_idx;

CREATE TRIGGER announce_deliveries AFTER INSERT ON push.history REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION push.announce_deliveries();

CREATE TRIGGER change_lane INSTEAD OF UPDATE ON push.lanes FOR EACH ROW EXECUTE FUNCTION push.change_lane();

CREATE TRIGGER check_call BEFORE UPDATE ON push.outbox FOR EACH ROW EXECUTE FUNCTION push.check_call();

CREATE TRIGGER check_device BEFORE INSERT OR UPDATE OF user_id, app, provider, token, environment, platform, locale ON push.devices FOR EACH ROW EXECUTE FUNCTION push.check_device();

CREATE TRIGGER drop_all_calls AFTER TRUNCATE ON push.outbox FOR EACH STATEMENT EXECUTE FUNCTION push.drop_calls();

CREATE TRIGGER drop_calls AFTER DELETE ON push.outbox REFERENCING OLD TABLE AS gone_calls FOR EACH STATEMENT EXECUTE FUNCTION push.drop_calls();

CREATE TRIGGER end_calls AFTER UPDATE ON push.outbox REFERENCING OLD TABLE AS old_calls NEW TABLE AS new_calls FOR EACH STATEMENT EXECUTE FUNCTION push.end_calls();

CREATE TRIGGER fan_out AFTER INSERT ON push.outbox REFERENCING NEW TABLE AS new_calls FOR EACH STATEMENT EXECUTE FUNCTION push.fan_out();

CREATE TRIGGER fill_call BEFORE INSERT ON push.outbox FOR EACH ROW EXECUTE FUNCTION push.fill_call();

CREATE TRIGGER note_changed_devices AFTER UPDATE ON push.devices REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION push.note_devices();

CREATE TRIGGER note_new_devices AFTER INSERT ON push.devices REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION push.note_devices();

CREATE TRIGGER note_tokens AFTER INSERT ON push.quarantined_tokens REFERENCING NEW TABLE AS tokens FOR EACH STATEMENT EXECUTE FUNCTION push.note_tokens('quarantined');

CREATE TRIGGER note_tokens AFTER INSERT ON push.token_invalidations REFERENCING NEW TABLE AS tokens FOR EACH STATEMENT EXECUTE FUNCTION push.note_tokens('invalidated');

CREATE TRIGGER put_away_restored AFTER INSERT OR UPDATE ON push.gateways FOR EACH STATEMENT EXECUTE FUNCTION push.put_away();

CREATE TRIGGER tally_calls AFTER INSERT ON push.outbox REFERENCING NEW TABLE AS new_calls FOR EACH STATEMENT EXECUTE FUNCTION push.tally_calls();

CREATE TRIGGER withdraw_tokens AFTER DELETE ON push.token_invalidations REFERENCING OLD TABLE AS tokens FOR EACH STATEMENT EXECUTE FUNCTION push.note_tokens('invalidated');

