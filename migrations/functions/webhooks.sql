-- Webhooks: an app's backend is told over HTTP what became of its deliveries, calls and tokens (docs/webhooks.md).
--
-- Statement triggers record events in the transaction that settles a delivery, ends a call or invalidates a token. So
-- gateways of earlier releases produce events, too, and an event exists if and only if its cause was committed. Every such
-- cause writes to push.history, push.outbox or push.token_invalidations. While no app has a webhook, a trigger looks up one
-- index entry of an empty table.
--
-- push.webhook_event is a queue. Recording an event only inserts a row. A gateway claims the first event of a call by moving
-- its due time into the future, which is the lease. Until that event is acknowledged it remains the first, so no other event
-- of the call is claimed. Rows are claimed with SKIP LOCKED; there is no leader.

-- Tables --------------------------------------------------------------------------------------------------------------

create table if not exists push.webhook (
  app           text primary key,
  on_until      timestamptz not null default 'infinity',
  host          text not null,
  url_digest    text not null,
  events        text[],
  changed_at    timestamptz not null default clock_timestamp(),
  paused        boolean not null default false,
  note          text,
  gone_at       timestamptz,
  failing_since timestamptz,
  failures      int not null default 0,
  retry_at      timestamptz,
  last_status   int,
  last_reason   text,
  last_at       timestamptz,
  dropped       bigint not null default 0,
  constraint webhook_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64),
  constraint webhook_events_known check (events <@ array['delivery.finished', 'delivery.receipt', 'call.answered', 'call.declined',
    'call.ended', 'call.missed', 'token.dead'] and cardinality(events) > 0),
  constraint webhook_failing check ((failing_since is null) = (failures = 0))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- So that the triggers find in one look-up whether any app has a webhook.
create index if not exists webhook_on on push.webhook (on_until);
comment on table push.webhook is
  'one app whose backend is told of events over HTTP, as the configuration of a gateway says. People read push.webhooks';
comment on column push.webhook.on_until is
  'infinity: the replica that registered last has the webhook; else until when it is on all the same: a minute after the last claim of a '
  'replica that has it. Afterwards nothing is recorded';
comment on column push.webhook.host is 'host and port of the URL; the URL itself is in the configuration only';
comment on column push.webhook.url_digest is
  'SHA-256 of the URL, in hex: failures of another URL do not count, and another URL ends the state that 410 has caused';
comment on column push.webhook.events is 'types that are recorded; null: all';
comment on column push.webhook.changed_at is 'when the configuration of the webhook last changed';
comment on column push.webhook.paused is 'true: events are recorded and not sent (push.pause_webhooks)';
comment on column push.webhook.note is 'why it is paused';
comment on column push.webhook.gone_at is
  'when the receiver answered 410: nothing is sent until the URL changes or push.resume_webhooks is called';
comment on column push.webhook.failing_since is 'since when no request was acknowledged; null: the last one was';
comment on column push.webhook.failures is 'number of failed requests since the last acknowledged one';
comment on column push.webhook.retry_at is 'nothing is sent to the app before this time; null: no limit';
comment on column push.webhook.last_status is 'HTTP status of the last answer that was noted; null: there was no answer';
comment on column push.webhook.last_reason is 'why the last request had no answer; null: there was one';
comment on column push.webhook.last_at is
  'when a result was last noted; successes that repeat the last result are noted at most every 10 s';
comment on column push.webhook.dropped is
  'number of events that were deleted without an acknowledgement, because they were too old or too many';

-- Ids are assigned in order of insertion: within a call, an event that was committed before another one was recorded has the
-- smaller id.
create table if not exists push.webhook_event (
  id         bigint generated always as identity primary key,
  event      text not null,
  app        text not null,
  type       text not null,
  outbox_id  bigint,
  user_id    text,
  at         timestamptz not null,
  created_at timestamptz not null default clock_timestamp(),
  due_at     timestamptz not null default clock_timestamp(),
  attempts   int not null default 0,
  tries      int not null default 0,
  data       jsonb not null,
  constraint webhook_event_unique unique (event),
  constraint webhook_event_type_known check (type in ('delivery.finished', 'delivery.receipt', 'call.answered', 'call.declined',
    'call.ended', 'call.missed', 'token.dead')),
  constraint webhook_event_data_form check (jsonb_typeof(data) = 'object')
) with (
  fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, autovacuum_vacuum_cost_delay = 0
);
create index if not exists webhook_event_due on push.webhook_event (app, due_at);
-- For retention, which deletes the oldest events of one app.
create index if not exists webhook_event_age on push.webhook_event (app, created_at);
create index if not exists webhook_event_call on push.webhook_event (outbox_id, id) where outbox_id is not null;
create index if not exists webhook_event_token on push.webhook_event (md5(data ->> 'token')) where type = 'token.dead';
alter table push.webhook_event alter data set statistics 0, alter event set statistics 0, alter user_id set statistics 0;
comment on table push.webhook_event is
  'one event that the backend of an app has not acknowledged yet; kept for at most 24 hours (push.trim_webhooks)';
comment on column push.webhook_event.id is 'number of the event: events of a call are sent in this order';
comment on column push.webhook_event.event is 'id of the event for the receiver (webhook-id): the same each time it is sent';
comment on column push.webhook_event.type is
  'delivery.finished, delivery.receipt, call.answered, call.declined, call.ended, call.missed or token.dead';
comment on column push.webhook_event.outbox_id is 'the call: push.outbox.id; null: the event waits for no other one';
comment on column push.webhook_event.at is 'when what it tells happened';
comment on column push.webhook_event.created_at is 'when it was recorded';
comment on column push.webhook_event.due_at is
  'when it is sent next. While a gateway sends it: the end of the lease. Behind another event of its call: when it is examined again';
comment on column push.webhook_event.attempts is 'how often it was claimed; together with id, the fencing token against a slow gateway';
comment on column push.webhook_event.tries is
  'how often it was sent in vain since it was recorded, or since push.resume_webhooks';
comment on column push.webhook_event.data is
  'the member data of the request body. Only token.dead has the whole token; in all other types it is masked';

-- What is recorded ----------------------------------------------------------------------------------------------------

create or replace function push.delivery_data(p_app text, p_provider text, p_call_id text, p_push push.history) returns jsonb
language sql stable parallel safe as $$
  select jsonb_build_object('app', p_app, 'callId', p_call_id, 'n', p_push.n,
    'kind', (array['invite', 'cancel', 'missed_call', 'notification'])[p_push.kind + 1],
    'outcome', (array['delivered', 'delivered_late', 'void', 'expired', 'dead'])[p_push.outcome + 1],
    'reason', p_push.reason, 'status', p_push.status, 'userId', p_push.user_id,
    'device', coalesce(left(p_push.token, 4) || '…' || right(p_push.token, 4), p_push.device), 'provider', p_provider,
    'attempts', p_push.attempts, 'sentAt', push.iso_time(p_push.sent_at))
$$;
comment on function push.delivery_data is 'data of delivery.finished. p_app, p_provider: the lane; p_call_id: push.outbox.call_id';

create or replace function push.call_data(p_call push.outbox) returns jsonb language sql stable parallel safe as $$
  select jsonb_build_object('app', p_call.app, 'callId', p_call.call_id, 'kind', p_call.kind, 'state', p_call.state,
    'reason', p_call.end_reason, 'answeredBy', p_call.answered_by, 'createdAt', push.iso_time(p_call.created_at),
    'endedAt', push.iso_time(p_call.ended_at))
$$;
comment on function push.call_data is 'data of call.answered, call.ended and call.missed';

create or replace function push.webhook_id(variadic p_parts text[]) returns text language sql stable parallel safe as
$$ select 'evt_' || md5(array_to_json(p_parts)::text) $$;
comment on function push.webhook_id is 'the id of an event, from what makes it unique: a time included, as numbers may repeat';

-- The planner puts it into the query around it.
create or replace function push.hook_of(p_app text, p_type text) returns setof text language sql stable as $$
  select w.app from push.webhook w
  where w.app = p_app and w.on_until > statement_timestamp() and (w.events is null or p_type = any (w.events)) offset 0
$$;
comment on function push.hook_of is 'the app itself, if events of this type are recorded for it; otherwise no row';

-- It has no SET clause, because applying one would cost more than the rest while no app has a webhook. It needs neither that
-- nor SECURITY DEFINER: rows are inserted only by functions of this schema, with their owner's rights and search path.
create or replace function push.announce_deliveries() returns trigger language plpgsql as $$
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
comment on function push.announce_deliveries is 'records delivery.finished for the deliveries that a statement has finished';

create or replace trigger announce_deliveries after insert on push.history referencing new table as new_rows
  for each statement execute function push.announce_deliveries();

-- push.end_calls (call_rules.sql) records call.answered, call.declined, call.ended and call.missed, push.settle_receipts (receipts.sql)
-- delivery.receipt. push.note_tokens (tokens.sql) records token.dead, and takes it back.

-- What gateways do ----------------------------------------------------------------------------------------------------

create or replace function push.set_webhooks(p_app text[], p_host text[], p_url_digest text[], p_events text[]) returns text[]
language plpgsql security definer set search_path = push, pg_temp set lock_timeout = '100ms' as $$
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
comment on function push.set_webhooks is
  'writes which apps have a webhook. Arrays, by app: p_app: name of the app; p_host: host and port of the URL, or null: the '
  'app has no webhook; p_url_digest: SHA-256 of the URL, in hex; p_events: types separated by commas, or null: all. Other apps are '
  'left as they are. Returns the apps whose row another transaction has locked: they are unchanged, so call it again';

-- Events behind another one of their call are put off until its due time, so they are not examined again before then.
create or replace function push.claim_webhooks(p_app text[], p_url_digest text[], p_room int[], p_lease_ms int[])
returns table (id bigint, app text, attempt int, tries int, event text, body text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
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
comment on function push.claim_webhooks is
  'takes due events, of each call only the first; after the lease they are due again. Arrays, by app: p_app: the app; '
  'p_url_digest: SHA-256 of the URL that the gateway sends to, in hex: 410 of another URL does not stop it; p_room: maximum '
  'number of events; p_lease_ms: the lease in milliseconds. Returns each event, how often it was taken and sent in vain, and its '
  'id and body for the receiver. After five failures in a row it takes one event at a time';

-- While replicas have different URLs, a receiver that only some of them use must not stop the others: a failure counts only
-- if it comes from the URL that was registered last. An acknowledgement always counts.
-- Before the fifth failure in a row, retry_at is a pause for which the receiver asked. Answers to requests that were under
-- way at that time do not end it. After it, only the failure of a probe is noted, and makes the next wait longer: the others are of
-- requests that were sent before the first wait began, and end one after the other. They count if the answer is 410 or asks for a pause.
create or replace function push.note_webhook(
  p_app text, p_url_digest text, p_result int, p_failures int, p_pause_ms int, p_is_probe boolean, p_status int, p_reason text
) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
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
comment on function push.note_webhook is
  'notes the results of requests to the webhook of an app. p_result: 0 some were acknowledged; 1 none was; 2 one had the answer 410';

create or replace function push.settle_webhooks(
  p_id bigint[], p_app text[], p_url_digest text[], p_attempt int[], p_result smallint[], p_status int[], p_reason text[],
  p_delay_ms int[], p_pause_ms int[], p_event text[] default null
) returns void
language plpgsql volatile security definer set search_path = push, pg_temp set lock_timeout = '100ms' as $$
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
comment on function push.settle_webhooks is
  'notes the results of requests. Arrays, by event: p_id, p_app, p_attempt, p_event: as push.claim_webhooks returned them (an id may '
  'repeat after a fail-over); p_url_digest: SHA-256 of the URL that the request was sent to, in hex: if another one is registered, a '
  'failure does not count; p_result: 0 acknowledged, so it is deleted, 1 to be sent again, 2 the same, and nothing more is sent to this '
  'URL (410); p_status: HTTP status; p_reason: why there was no answer; p_delay_ms: when it is due again, unless it was claimed since; '
  'p_pause_ms: for how long the receiver asked not to be sent anything (Retry-After), or null';

-- Retention -----------------------------------------------------------------------------------------------------------

-- Webhooks whose app no gateway has served for 24 hours are about to be off. Events older than 24 hours are deleted, the oldest of an app
-- with more than 100,000 (both are counted in push.webhook.dropped), and those of webhooks that are off, in bites of 5,000 of an app: if
-- it returns 5,000 or more, there may be more.
create or replace function push.trim_webhooks(out trimmed bigint)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
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
$$;
comment on function push.trim_webhooks is 'turns off webhooks that no gateway has, and deletes old events; returns how many';

-- What people see and do ----------------------------------------------------------------------------------------------

create or replace view push.webhooks as
select w.app, w.host,
  case when w.on_until <= clock_timestamp() then 'off' when w.paused then 'paused' when w.gone_at is not null then 'gone'
    when w.failing_since is not null then 'failing' else 'on' end as state,
  e.waiting, e.oldest, w.failing_since, w.last_status, w.last_reason, w.last_at, w.retry_at, w.dropped, w.events, w.note, w.gone_at,
  w.on_until > clock_timestamp() and w.on_until < 'infinity' as replicas_differ
from push.webhook w
cross join lateral (
  select count(*) as waiting, clock_timestamp() - push.finite(min(e.created_at)) as oldest from push.webhook_event e where e.app = w.app
) e;
comment on view push.webhooks is 'one row for each app that has, or had, a webhook: where to, and whether events arrive';
comment on column push.webhooks.state is
  'on; failing (the last request was not acknowledged); gone (the receiver answered 410); paused (by push.pause_webhooks); off '
  '(no longer configured)';
comment on column push.webhooks.waiting is 'events that were not acknowledged yet';
comment on column push.webhooks.oldest is 'age of the oldest of them';
comment on column push.webhooks.replicas_differ is 'whether it is on although a replica has no webhook for the app';

create or replace function push.check_webhook(p_app text) returns text
language plpgsql stable set search_path = push, pg_temp as $$
begin
  if not exists (select from push.webhook w where w.app = p_app) then
    raise exception using errcode = 'no_data_found',
      message = format('app: there is no webhook of app %s', coalesce(left(p_app, 64), 'without a name')),
      hint = 'push.webhooks lists them; they are configured with apps.APP.webhook.';
  end if;
  return p_app;
end
$$;
comment on function push.check_webhook is 'raises an error if the app has no webhook. p_app: name of the app';

create or replace function push.pause_webhooks(app text, note text default null) returns table (changed boolean, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
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
comment on function push.pause_webhooks is
  'stops sending the events of an app; they are recorded and kept for at most 24 hours. app: name of the app; note: the '
  'reason, for people. Returns whether this changed anything, and a sentence. Running it twice is harmless';

create or replace function push.resume_webhooks(app text) returns table (changed boolean, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
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
comment on function push.resume_webhooks is
  'sends the events of an app again: ends a pause, the state that 410 has caused, and the wait after failures. app: name of '
  'the app. Returns whether this changed anything, and a sentence. Running it twice is harmless';

create or replace function push.past_events(p_app text, p_from timestamptz, p_ids bigint[])
returns table (event text, type text, outbox_id bigint, user_id text, at timestamptz, data jsonb)
language sql stable as $$
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
comment on function push.past_events is 'the events in the past of an app, as they were recorded: of these calls, or since p_from';

create or replace function push.resend_webhooks(app text, call_id text default null, since timestamptz default null)
returns table (recorded bigint, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
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
comment on function push.resend_webhooks is
  'records again, from the history, events that were sent before. app: name of the app; call_id: those of this call; since: '
  'those since then, at most 24 hours ago, of which it handles about 10,000 at a time, the oldest first. Returns how many '
  'were recorded, and a sentence that says whether there are more. Declines of single users and receipts are not among them';
