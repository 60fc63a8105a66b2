-- What backends live in: the phone's word that it rings, escalation, a call's state at a glance, keys for the HTTP API,
-- roles, and the pruning of what nobody needs any more.

-- The phone says that it rings ----------------------------------------------------------------------------------------

create table push.ring_reports (
  outbox_id bigint not null,
  user_id   text not null,
  rang_at   timestamptz not null default clock_timestamp(),
  constraint ring_reports_pkey primary key (outbox_id, user_id)
);
comment on table push.ring_reports is 'one user whose phone has said that a call rings; the first report counts';
comment on column push.ring_reports.outbox_id is 'the call: push.outbox.id';
comment on column push.ring_reports.user_id is 'the backend''s id of the user';
comment on column push.ring_reports.rang_at is 'when the first report came';

create function push.report_ringing(call_id text, user_id text, app text default null) returns boolean
language plpgsql volatile security definer set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_id bigint := push.find_call(call_id, app);
begin
  if not exists (select from push.outbox o where o.id = v_id
    and (o.recipients @> jsonb_build_array(report_ringing.user_id)
      or o.recipients @> jsonb_build_array(jsonb_build_object('userId', report_ringing.user_id)))) then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('user_id: call %s does not ring this user', left(call_id, 128)),
      hint = 'It must be the id that the recipients of the call gave.',
      schema = 'push', table = 'ring_reports', column = 'user_id';
  end if;
  insert into push.ring_reports as r (outbox_id, user_id) values (v_id, report_ringing.user_id)
    on conflict on constraint ring_reports_pkey do nothing;
  return found;
end
$$;
comment on function push.report_ringing is
  'a phone of this user says that the call rings. call_id: payload.callId; user_id: as in the call''s recipients; app: '
  'needed only if several apps have a call of this id. False: it had said so before';

-- Escalation ----------------------------------------------------------------------------------------------------------

alter table push.apps add column escalate_after_seconds int,
  add constraint apps_escalate_range check (escalate_after_seconds between 1 and 600);
comment on column push.apps.escalate_after_seconds is
  'a user none of whose phones has said by then that it rings is tried on the next channel, once; null: never';

create index apps_escalating on push.apps (app) where escalate_after_seconds is not null;

drop function push.register_app(text, int);
create function push.register_app(p_app text, p_ring_seconds int, p_escalate_after int default null) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.apps as a (app, ring_seconds, escalate_after_seconds)
    values (p_app, p_ring_seconds, p_escalate_after)
    on conflict (app) do update set ring_seconds = excluded.ring_seconds,
        escalate_after_seconds = excluded.escalate_after_seconds, updated_at = clock_timestamp()
      where (a.ring_seconds, a.escalate_after_seconds)
        is distinct from (excluded.ring_seconds, excluded.escalate_after_seconds);
end
$$;
comment on function push.register_app is
  'tells enqueueing what the configuration says of an app. p_ring_seconds: its ring window; p_escalate_after: seconds '
  'after which a user of whom no phone was heard is tried on the next channel; null: never';

create table push.escalations_due (
  outbox_id bigint primary key,
  due_at    timestamptz not null
);
create index escalations_due_at on push.escalations_due (due_at);
comment on table push.escalations_due is
  'one call of an app that escalates, until its time has come; taken by push.escalate';
comment on column push.escalations_due.outbox_id is 'the call: push.outbox.id';
comment on column push.escalations_due.due_at is 'when users of whom no phone was heard are tried on the next channel';

create table push.escalations (
  outbox_id bigint not null,
  n         int not null,
  user_id   text not null,
  constraint escalations_pkey primary key (outbox_id, n)
);
comment on table push.escalations is 'one invite that was made because no phone of the user had said that it rings';
comment on column push.escalations.outbox_id is 'the call: push.outbox.id';
comment on column push.escalations.n is 'number of the invite within its call';
comment on column push.escalations.user_id is 'the backend''s id of the user';

create function push.plan_escalation() returns trigger
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  -- As a rule no app escalates, and that is quickly seen.
  if exists (select from push.apps a where a.escalate_after_seconds is not null) then
    insert into push.escalations_due (outbox_id, due_at)
    select c.id, c.created_at + make_interval(secs => a.escalate_after_seconds)
    from new_calls c
    cross join lateral (select a.escalate_after_seconds from push.apps a where a.app = c.app offset 0) a
    where push.is_call(c.kind) and a.escalate_after_seconds < c.ring_seconds;
  end if;
  return null;
end
$$;
comment on function push.plan_escalation is 'notes when a call of an app that escalates is to be looked at';
create trigger plan_escalation after insert on push.outbox referencing new table as new_calls
  for each statement execute function push.plan_escalation();

create function push.escalate(p_max int default 500) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_calls   bigint[];
  v_unheard push.delivery[];
  v_made    bigint := 0;
  -- Variables, so that only the partitions between are looked at. The margin is for what is settled meanwhile.
  v_since   timestamptz;
  v_until   timestamptz := clock_timestamp() + interval '1 minute';
begin
  with pick as materialized (
    select e.ctid as tid from push.escalations_due e
    where e.due_at <= statement_timestamp()
    order by e.due_at
    limit p_max
    for update skip locked
  ), taken as (
    delete from push.escalations_due e where e.ctid = any (array(select p.tid from pick p)) returning e.outbox_id
  )
  select array_agg(t.outbox_id) into v_calls from taken t;
  if v_calls is null then
    return 0;
  end if;
  v_since := (select min(o.created_at) from push.outbox o where o.id = any (v_calls));
  -- Invites of users of whom no phone was heard, be they owed or finished; those that failed had their fallback.
  v_unheard := array(
    select jsonb_populate_record(null::push.delivery, jsonb_build_object('outbox_id', c.id, 'n', i.n, 'lane', i.lane,
      'user_id', i.user_id, 'token', i.token, 'platform', i.platform))
    from unnest(v_calls) c(id)
    cross join lateral (
      select o.app from push.outbox o
      where o.id = c.id and o.ended_at is null and o.deadline_at > clock_timestamp()
      offset 0
    ) o
    cross join lateral (
      select d.n, d.lane, d.user_id, d.token, d.platform from push.delivery d where d.outbox_id = c.id and d.kind = 0
      union all
      -- History does not know the platform. Only FCM serves two.
      select h.n, h.lane, h.user_id, h.device, case l.provider when 'apns' then 1 else coalesce((
          select case x.platform when 'ios' then 1 else 2 end from push.devices x
          where x.user_id = h.user_id and x.app = o.app and x.enabled and x.invalidated_at is null
            and x.provider = 'fcm' and left(x.token, 4) || '…' || right(x.token, 4) = h.device
          limit 1), 2) end::smallint
      from push.history h cross join lateral (select l.provider from push.lane l where l.id = h.lane offset 0) l
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and h.kind = 0 and h.outcome <= 1
    ) i
    where (select true from push.ring_reports r where r.outbox_id = c.id and r.user_id = i.user_id) is null);
  if v_unheard <> '{}' then
    insert into push.escalations (outbox_id, n, user_id)
    select f.outbox_id, f.n, f.user_id from push.fall_back(v_unheard, true) f;
    get diagnostics v_made = row_count;
  end if;
  return v_made;
end
$$;
comment on function push.escalate is
  'for up to p_max calls that still ring and whose app''s escalate_after_seconds are over: an invite over the next '
  'channel for each user of whom no phone has said that it rings (push.report_ringing), once; returns how many. For '
  'the leader';

-- A call at a glance --------------------------------------------------------------------------------------------------

drop function push.timeline(text);
create function push.timeline(call_id text, app text default null)
returns table (
  at timestamptz, ms numeric, event text, provider text, kind text, user_id text, attempt int, status int, reason text,
  device text
)
language sql stable security definer set search_path = push, pg_temp as $$
  with call as (
    select o.id, o.kind, o.created_at from push.outbox o
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
    e.user_id, e.attempt, e.status, e.reason, e.device
  from event e join call c on c.id = e.id
  order by e.at, e.step, e.n, e.user_id
$$;
comment on function push.timeline is
  'the story of a call, in order of time. call_id: payload.callId; app: only the call of this app. ms: milliseconds '
  'since it was enqueued; event: enqueued, skipped (no delivery was made for this user), fallback (the channel before '
  'it failed for this reason), escalation (no phone had said that it rings), ready, claimed, waiting, attempt failed, '
  'sent, the outcome (delivered, delivered_late, void, expired, dead), or ringing (a phone said so)';

create function push.iso_time(p_time timestamptz) returns text language sql stable parallel safe as
$$ select to_char(p_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') $$;
comment on function push.iso_time is 'a time as ISO 8601 in UTC, with milliseconds';

create function push.call(call_id text, app text default null) returns jsonb
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
  'endedAt, endReason, answeredBy, and devices: an array of {userId, provider, kind, state (ready, claimed, waiting, or '
  'the outcome), reason, sentAt, answeredAt (by the provider), device (masked), rangAt (the user''s first report)}; '
  'times are ISO 8601 in UTC. call_id: payload.callId; app: needed only if several apps have a call of this id';

-- Keys for the HTTP API -----------------------------------------------------------------------------------------------

create table push.api_keys (
  id         int generated always as identity primary key,
  app        text not null,
  name       text not null,
  scopes     text[] not null,
  hash       bytea not null,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz,
  revoked_at timestamptz,
  constraint api_keys_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64),
  constraint api_keys_name_length check (length(name) between 1 and 128),
  constraint api_keys_scopes_known check (scopes <@ '{enqueue,device,read}' and cardinality(scopes) between 1 and 3),
  constraint api_keys_hash_sha256 check (length(hash) = 32)
);
comment on table push.api_keys is 'one key to the HTTP API; the key itself is not stored';
comment on column push.api_keys.id is 'number of the key, and its part after pgk_';
comment on column push.api_keys.app is 'the only app it opens';
comment on column push.api_keys.name is 'who has it, for people';
comment on column push.api_keys.scopes is
  'what it may do: enqueue (enqueue, answer and end calls), device (register and drop devices, report ringing), read '
  '(a call''s state and timeline)';
comment on column push.api_keys.hash is 'SHA-256 of the whole key';
comment on column push.api_keys.created_at is 'when it was made';
comment on column push.api_keys.expires_at is 'from when on it is refused; null: never';
comment on column push.api_keys.revoked_at is 'since when it is refused; null: it is not';

create function push.create_api_key(
  app text, name text, scopes text[] default '{enqueue,device,read}', expires_at timestamptz default null
) returns table (id int, key text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_scopes text[] := array(select distinct s from unnest(create_api_key.scopes) s where s is not null order by s);
  v_fault  text := case
    when not coalesce(push.is_app(create_api_key.app), false)
      then 'app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores'
    when create_api_key.name is null or length(create_api_key.name) not between 1 and 128
      then 'name: must have 1 to 128 characters'
    when v_scopes = '{}' or not v_scopes <@ '{enqueue,device,read}'
      then 'scopes: must be some of enqueue, device and read'
    when create_api_key.expires_at <= clock_timestamp() then 'expires_at: must be in the future, or null'
  end;
begin
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault,
      schema = 'push', table = 'api_keys', column = substring(v_fault from '^[a-z_]+');
  end if;
  id := nextval(pg_get_serial_sequence('push.api_keys', 'id'));
  -- 32 bytes out of 366 random bits: the server has no other source without an extension.
  key := 'pgk_' || id || '_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
    || uuid_send(gen_random_uuid())), 'hex');
  insert into push.api_keys (id, app, name, scopes, hash, expires_at) overriding system value
    values (create_api_key.id, create_api_key.app, create_api_key.name, v_scopes, sha256(convert_to(key, 'UTF8')),
      create_api_key.expires_at);
  perform push.note_audit('create_api_key', create_api_key.app || '/' || id,
    jsonb_build_object('name', create_api_key.name, 'scopes', v_scopes));
  return next;
end
$$;
comment on function push.create_api_key is
  'a new key to the HTTP API, shown this once: only its SHA-256 is stored. app: the only app it opens; name: who has '
  'it; scopes: some of enqueue, device and read; expires_at: from when on it is refused, null: never. To rotate a key, '
  'make another, move over, then push.revoke_api_key the old one';

create function push.revoke_api_key(id int) returns table (revoked boolean, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
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
  perform push.note_audit('revoke_api_key', v_key.app || '/' || v_key.id, jsonb_build_object('revoked', revoked));
  return next;
end
$$;
comment on function push.revoke_api_key is
  'a key to the HTTP API is refused from now on. id: push.keys.id. Returns whether it changed anything, and a sentence '
  'about it; running it twice is harmless';

create function push.find_api_key(p_id int) returns table (app text, scopes text[], hash bytea)
language sql stable security definer set search_path = push, pg_temp as $$
  select k.app, k.scopes, k.hash from push.api_keys k
  where k.id = p_id and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
$$;
comment on function push.find_api_key is
  'what a key to the HTTP API may do, and the SHA-256 of the whole key to compare with; p_id: the number in it; no row: '
  'there is none, or it is revoked or expired';

create view push.keys as
select k.id, k.app, k.name, k.scopes, k.created_at, k.expires_at, k.revoked_at from push.api_keys k;
comment on view push.keys is 'push.api_keys without the hashes';
comment on column push.keys.id is 'number of the key, and its part after pgk_';
comment on column push.keys.app is 'the only app it opens';
comment on column push.keys.name is 'who has it';
comment on column push.keys.scopes is 'what it may do: enqueue, device, read';
comment on column push.keys.created_at is 'when it was made';
comment on column push.keys.expires_at is 'from when on it is refused; null: never';
comment on column push.keys.revoked_at is 'since when it is refused; null: it is not';

-- Enqueueing: as in 0008, and it says the id under which a notification that brought none is found. --------------------

drop function push.enqueue_call(jsonb, jsonb, text, int, text);
create function push.enqueue_call(
  payload jsonb, recipients jsonb, app text default 'default', ring_seconds int default null,
  kind text default 'incoming_call'
) returns table (outbox_id bigint, deliveries int, duplicate boolean, skipped int, call_id text)
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
  insert into push.outbox (app, kind, payload, recipients, ring_seconds)
    values (enqueue_call.app, enqueue_call.kind, enqueue_call.payload, enqueue_call.recipients,
      enqueue_call.ring_seconds)
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

-- Pruning -------------------------------------------------------------------------------------------------------------

create function push.prune(p_max int default 1000, p_keep_days int default 15) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
set lock_timeout = '200ms'
as $$
declare
  c_batches constant int := 10;
  -- A day longer than their history, which is looked up through them; a notification may be owed for longer.
  v_before timestamptz := (date_trunc('day', now() at time zone 'UTC')
    - make_interval(days => greatest(p_keep_days, 1))) at time zone 'UTC';
  v_last   bigint := -1;
  v_seen   int;
  v_oldest timestamptz;
  v_gone   bigint[];
  v_pruned bigint := 0;
begin
  -- Numbers rise with time, nearly: so no index on a time is needed. A batch wholly too young is the end.
  for i in 1 .. c_batches loop
    select count(*), max(b.id), min(b.created_at), array_agg(b.id) filter (where b.is_done)
      into v_seen, v_last, v_oldest, v_gone
      from (
        select o.id, o.created_at, o.created_at < v_before and o.ended_at is not null
          and (select true from push.delivery d where d.outbox_id = o.id limit 1) is null as is_done
        from push.outbox o
        where o.id > v_last
        order by o.id
        limit p_max
      ) b;
    exit when v_seen = 0 or v_oldest >= v_before;
    if v_gone is not null then
      with gone as (
        delete from push.outbox o where o.id = any (array(
          select x.id from push.outbox x where x.id = any (v_gone) order by x.id for update skip locked))
        returning o.id
      )
      select array_agg(g.id), v_pruned + count(*) into v_gone, v_pruned from gone g;
      delete from push.ring_reports r where r.outbox_id = any (v_gone);
      delete from push.escalations e where e.outbox_id = any (v_gone);
      exit when v_pruned >= p_max;
    end if;
  end loop;
  delete from push.escalations_due e where e.ctid = any (array(
    select x.ctid from push.escalations_due x where x.due_at < now() - interval '1 day' order by x.due_at limit p_max
    for update skip locked));
  delete from push.audit a where a.id = any (array(
    select x.id from push.audit x where x.at < now() - interval '90 days' order by x.at limit p_max));
  delete from push.lane_status s where not exists (select from push.gateways g
    where g.id = s.gateway and (g.alive or g.ended_at > now() - interval '1 day'));
  delete from push.gateways g where not g.alive and g.ended_at < now() - interval '1 day';
  return v_pruned;
end
$$;
comment on function push.prune is
  'removes about p_max calls, the oldest, that were enqueued more than p_keep_days days before today (UTC), have ended '
  'and of which nothing is owed, with what belongs to them; besides, interventions (push.audit) of more than 90 days '
  'ago, and replicas that ended more than a day ago. Returns how many calls: call it again while it returns p_max or '
  'more. It waits for nobody: what is locked is left for the next time. For the leader';

-- Roles ---------------------------------------------------------------------------------------------------------------

-- Roles belong to the whole cluster: another database's migration may make them at the same moment, and whoever
-- migrates may not be allowed to. Then an administrator makes them, and calls push.grant_roles again.
create function push.grant_roles() returns text
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  c_roles constant jsonb := jsonb_build_object(
    'push_enqueuer', 'backends: enqueue, answer and end calls, register devices (schema push)',
    'push_ops', 'operators: read everything, tokens masked, and intervene (schema push)',
    'push_gateway', 'the push-gateway service (schema push)');
  -- Of a call, neither its payload nor its recipients, who are tokens.
  c_call_columns constant text :=
    'id, app, kind, call_id, ring_seconds, state, created_at, deadline_at, answered_by, ended_at, end_reason';
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
        execute format('grant insert (app, kind, call_id, payload, recipients, ring_seconds, state), '
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
          'push.ensure_partitions, push.drop_partitions, push.oldest_ringing, push.find_api_key to %I', c_calls, v_role);
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

-- What the arguments mean ---------------------------------------------------------------------------------------------

comment on function push.enqueue_call is
  'enqueues one call, or one notification, in the caller''s transaction. payload: as push.outbox.payload; recipients: '
  'as push.outbox.recipients; app: which app''s phones ring; ring_seconds: the ring window, or the time to live of a '
  'notification; null: the app''s own; kind: as push.outbox.kind. Returns outbox_id: push.outbox.id; deliveries: how '
  'many devices it goes to; duplicate: true if (app, callId) existed already, then nothing was done; skipped: how many '
  'users have no device (push.timeline says why); call_id: payload.callId, or the one made for a notification without';
comment on function push.answer_call is
  'the call was answered: nothing more is sent, other devices that may ring are told. call_id: payload.callId; user_id: '
  'who answered, if known: their devices are told nothing; app: needed only if several apps have a call of this id. '
  'False: it had ended before';
comment on function push.end_call is
  'the call is over, unanswered: nothing more is sent, devices that may ring are told, and users get a missed call '
  'unless the reason is declined or busy. call_id: payload.callId; reason: kept as push.outbox.end_reason; app: needed '
  'only if several apps have a call of this id. False: it had ended before';
comment on function push.register_device is
  'the phone gave this token, now: it is the user''s, and alive; to be called at every login. user_id: the backend''s id; '
  'app; provider: apns, fcm or expo; token; environment: of an APNs token, production or sandbox; platform: ios, '
  'android or null; locale: language of visible texts, or null; voip: of an APNs token, true for PushKit';
comment on function push.drop_device is
  'the user logged out of this device, nothing more is sent to its token. app, provider, token: as registered. False: '
  'it was not registered';
comment on function push.register_gateway is
  'a new life of a gateway; the result is its fence. p_name: host or pod; p_version: of the program';
comment on function push.heartbeat is
  'to be called every second; false: declared dead, its claims are taken over, drop them and register anew. p_gateway: '
  'what push.register_gateway returned';
comment on function push.retire_gateway is
  'the clean end of a gateway; what it still holds becomes ready. p_gateway: what push.register_gateway returned';
comment on function push.register_lane is
  'the lane of an app and provider, made if it is missing. p_app; p_provider: apns, fcm or expo. Returns push.lanes.id';
comment on function push.claim is
  'takes up to p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first, with deadlines after '
  'p_floor[i] and more than p_slack away; nothing from a paused lane, nothing for a gateway declared dead. p_gateway: '
  'what push.register_gateway returned. Returns what a push needs; remaining_us: microseconds to the deadline';
comment on function push.settle is
  'ends claimed deliveries and writes their history; returns how many it accepted: fewer than given means that leases '
  'were lost, and those results are dropped. p_gateway: who has them; arrays, by delivery: p_outbox_id, p_n, p_lease: '
  'which, as claimed; p_attempts: tries really made, retries under one lease included; p_outcome: 0 delivered, '
  '1 delivered_late, 2 void, 3 expired, 4 dead; p_status: HTTP status; p_reason; p_message_id: the provider''s id; '
  'p_call_id: payload.callId; p_sent_at, p_answered_at; p_failures: as for push.park; p_receipt_after_ms: not null for '
  'an Expo ticket (p_message_id) whose receipt is due so much later. An invite that failed for good while its call '
  'rings is followed by one over the user''s next channel';
comment on function push.park is
  'claimed to waiting; invites of calls that have ended are void; returns how many were still the caller''s. p_gateway, '
  'p_outbox_id, p_n, p_lease, p_attempts: as for push.settle; p_delay_ms: for how many milliseconds; p_reason: why; '
  'p_failures: the tries that failed, each a JSON array of {"at", "attempt", "status", "reason"} or null, kept with '
  'earlier ones';
comment on function push.release is
  'claimed to ready with the attempt given back, for a shutdown or an open circuit; invites of calls that have ended '
  'are void; returns how many were still the caller''s. p_gateway, p_outbox_id, p_n, p_lease: as for push.settle';
comment on function push.invalidate_tokens is
  'the provider called tokens dead: registered devices are cleared unless registered later, tokens of no device are '
  'noted; returns how many are new in push.token_invalidations, and if any are, NOTIFY push_token_invalidations. Those '
  'of a lane whose invalidation is on hold are quarantined instead. Arrays, by token: p_lane: push.lanes.id; p_token; '
  'p_since: since when, or null; p_reason: the provider''s word';
comment on function push.hold_invalidation is
  'from now on no token of a lane is invalidated, and those that were lately live again: all go to '
  'push.quarantined_tokens until push.resume_invalidation. p_lane: push.lanes.id; p_window: how lately; p_note: why. '
  'Returns how many went there now; 0 if it is on hold already';
comment on function push.resume_invalidation is
  'ends the hold of a lane''s invalidation: quarantined tokens live on (one that is dead will be found so again). app, '
  'provider: which lane; apply: true: they are invalidated after all, unless registered since. Says what it did; '
  'running it twice is harmless. NOTIFY push_control with "resume" and push.lanes.id';
comment on function push.current_provider_token is
  'the token all replicas use now; no row if there is none. p_provider, p_name: as in push.provider_tokens';
comment on function push.offer_provider_token is
  'offers a new token, which is taken if the current one is at least p_age_min older, or at its end; returns the one in '
  'use. p_provider, p_name, p_token, p_minted_at, p_expires_at: as in push.provider_tokens';
comment on function push.skipped_recipients is
  'users of a call for whom no delivery was made, and why, as far as is known now: TokenInvalid, NotificationsDisabled '
  'or NoDevice. p_outbox_id: push.outbox.id';
comment on function push.claim_receipts is
  'takes tickets whose receipts are due, for a while; then they are due again. p_app: whose; p_max: how many at most; '
  'p_lease_ms: for how many milliseconds';
comment on function push.settle_receipts is
  'ends the look-up of tickets; returns how many there were. p_app: whose; arrays, by ticket: p_ticket; p_reason: what '
  'the receipt said, kept in push.history, or null: delivered';
comment on function push.postpone_receipts is
  'these tickets are due again later, never later than they are given up; returns how many there were. p_app: whose; '
  'p_ticket: which; p_delay_ms: in how many milliseconds';
comment on function push.give_up_receipts is
  'forgets tickets whose receipts Expo no longer has; returns how many nobody will ever know of. p_app: whose';
comment on function push.correct_environment is
  'APNs accepted these tokens in this environment: registered devices that say otherwise are corrected; returns how '
  'many. Arrays, by token: p_lane: push.lanes.id; p_token; p_environment: 0 production, 1 sandbox';
comment on function push.reap is
  'declares silent gateways dead; returns how many deliveries became ready again. p_silence: after how long';
comment on function push.ensure_partitions is
  'makes the missing partitions of push.history from yesterday on; returns how many. p_days_ahead: up to how many days from now';
comment on function push.drop_partitions is
  'drops the oldest partition of push.history that is too old; call it until it returns 0. p_keep_days: how many days are kept';
comment on function push.register_app is
  'tells enqueueing what the configuration says of an app. p_app: its name; p_ring_seconds: its ring window; '
  'p_escalate_after: seconds after which a user of whom no phone was heard is tried on the next channel; null: never';
comment on function push.report_lanes is
  'a replica says how its lanes are; to be called every second. p_gateway: what push.register_gateway returned; arrays, '
  'by lane: p_lane: push.lanes.id; p_window and p_capacity: requests it lets, and could let, be in flight; p_in_flight; '
  'p_circuit: closed, half_open or open; p_throttled_ms: milliseconds until it sends again, 0 or null: now; p_rate: '
  'requests in the last second';
