-- Views and functions for people: codes as words, tokens masked, the events of a call as a list, and the state of a call in
-- one object.

-- Deliveries and their history ----------------------------------------------------------------------------------------

create or replace view push.deliveries as
select d.outbox_id, l.app, o.call_id, l.provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  d.user_id,
  case when d.state = 1 then 'claimed' when d.state = 2 or d.handed_on_by is not null and d.due_at > now() then 'waiting' else 'ready' end
    as state,
  d.attempt::int as attempt, d.due_at, d.deadline_at, d.last_reason, d.created_at, d.n, d.owner as gateway, d.lease,
  case d.environment when 0 then 'production' else 'sandbox' end as environment,
  case d.platform when 1 then 'ios' when 2 then 'android' when 3 then 'web' end as platform,
  d.locale, left(d.token, 4) || '…' || right(d.token, 4) as device, d.failures, d.fallback_of
from push.delivery d
left join push.lane l on l.id = d.lane
left join push.outbox o on o.id = d.outbox_id;
comment on view push.deliveries is 'one push that is still owed to one device';
comment on column push.deliveries.kind is 'invite, cancel, missed_call or notification';
comment on column push.deliveries.state is 'ready, claimed (a gateway has it) or waiting (until due_at)';
comment on column push.deliveries.gateway is 'push.gateways.id of the gateway that has it';
comment on column push.deliveries.environment is 'production or sandbox';
comment on column push.deliveries.platform is 'ios, android, web or unknown (null)';
comment on column push.deliveries.device is 'the token, masked: its first and last four characters';
comment on column push.deliveries.failures is
  'failed attempts: array of {"at", "attempt", "status", "reason"}, and "hedged": true if an attempt was sent twice';

-- call_id is taken from push.outbox, which has an index on it, so a call's history is found quickly.
create or replace view push.delivery_history as
select h.outbox_id, l.app, o.call_id, l.provider,
  case h.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  h.user_id,
  case h.outcome when 0 then 'delivered' when 1 then 'delivered_late' when 2 then 'void' when 3 then 'expired'
    else 'dead' end as outcome,
  h.reason, h.attempts, h.created_at, h.sent_at, h.finished_at, h.provider_message_id,
  h.status::int as status, h.answered_at, h.deadline_at, h.n, h.owner as gateway,
  coalesce(left(h.token, 4) || '…' || right(h.token, 4), h.device) as device, h.failures, h.fallback_of,
  h.receipt_reason, substr(o.traceparent, 4, 32) as trace_id
from push.history h
left join push.lane l on l.id = h.lane
-- A later call may have the id of one that was truncated, or lost by a fail-over.
left join push.outbox o on o.id = h.outbox_id and o.created_at <= h.created_at;
comment on view push.delivery_history is 'one finished push';
comment on column push.delivery_history.outcome is
  'delivered, delivered_late (after the deadline), void (cancelled unsent), expired (never sent in time) '
  'or dead (failed)';
comment on column push.delivery_history.reason is
  'why it was not delivered, from the provider or from the gateway. For a delivered push: Hedged if it was sent over two '
  'connections, else Alert if it is an invite that an iPhone only showed, else null';
comment on column push.delivery_history.finished_at is
  'when it was settled; a range on this column makes a query read few partitions';
comment on column push.delivery_history.gateway is 'push.gateways.id of the gateway that settled it';
comment on column push.delivery_history.trace_id is 'the trace that the call belongs to, from push.outbox.traceparent';

-- Whom a call skipped -------------------------------------------------------------------------------------------------

-- Skipped recipients are not stored: that would be a row for every user without a phone. They are computed from what the
-- backend wrote, the deliveries made, and what is known of the tokens now. Once the history of the call's day is dropped,
-- they are unknown, and the result is empty.
create or replace function push.skipped_recipients(p_outbox_id bigint)
returns table (user_id text, reason text, field text, remedy text)
language plpgsql stable security definer set search_path = push, pg_temp as $$
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
$$;
comment on function push.skipped_recipients is
  'users and parts of recipients that a call skipped, as far as is known now. Users without a delivery: TokenInvalid, '
  'NotificationsDisabled, ProviderNotConfigured, MissedCallsOff or NoDevice. Parts of recipients that could not be used: '
  'RecipientMalformed, TokenMalformed, TokenMisplaced (a token of another provider), ProviderNotConfigured, or '
  'MemberIgnored (the device is reached all the same). field: for example recipients[1].fcmToken; remedy: what to do. '
  'p_outbox_id: push.outbox.id';

-- Finding a call ------------------------------------------------------------------------------------------------------

-- Calls are searched by time: no index has the users of a call, and numbers do not follow time exactly (a session takes 32 at once). As for
-- push.history, the smallest of indexes finds the last hours. Where the collation is C, outbox_call finds the beginning of an id.
create index if not exists outbox_created on push.outbox using brin (created_at) with (pages_per_range = 32, autosummarize = on);

-- Both arrays are computed only where they are read: of a query with "order by created_at desc limit 20", pushes only of the 20.
create or replace view push.calls as
select o.id, o.app, o.call_id, o.kind, o.created_at, o.state as outcome, o.end_reason, o.ended_at, o.answered_by,
  array(select push.entry_user(r) from jsonb_path_query(o.recipients, '$[*]') r where push.entry_user(r) is not null) as users,
  array(
    select distinct concat_ws(' ', p.state, p.reason)
    from (
      select d.kind, d.state, d.last_reason as reason from push.deliveries d where d.outbox_id = o.id
      union all
      select h.kind, h.outcome, coalesce(h.receipt_reason, h.reason) from push.delivery_history h
      where h.outbox_id = o.id and h.finished_at >= o.created_at
    ) p
    where p.kind in ('invite', 'notification')
    order by 1
  ) as pushes
from push.outbox o;
comment on view push.calls is
  'one call, or one notification; for searches, which should name a time: select * from push.calls where created_at > now() - interval '
  '''1 hour'' and ''ana'' = any (users) order by created_at desc limit 20';
comment on column push.calls.outcome is 'ringing, answered, ended or missed: push.outbox.state';
comment on column push.calls.users is 'the ids of the users that recipients names, also of those that were skipped';
comment on column push.calls.pushes is
  'what became of its invites or notifications, each once: ready, claimed, waiting or the outcome, with the reason. Empty: nobody had a '
  'device, or the history has been dropped';

-- The story of a call -------------------------------------------------------------------------------------------------

create or replace function push.timeline(
  call_id text, app text default null, first_n int default null, last_n int default null
) returns table (
  at timestamptz, ms numeric, event text, provider text, kind text, user_id text, attempt int, status int, reason text,
  device text, trace_id text, field text
)
language sql stable security definer set search_path = push, pg_temp as $$
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
comment on function push.timeline is
  'the events of a call, in order of time. call_id: payload.callId; app: only the call of this app; first_n, last_n: only '
  'pushes with these numbers, for pages of a large call; events that belong to no push are included only without first_n. '
  'ms: milliseconds since the call was enqueued; event: enqueued, skipped (no delivery was made for this user, or a part '
  'of recipients could not be used; field names it, for example recipients[1].fcmToken), fallback (the channel before '
  'failed for this reason), escalation (no phone had reported that it rings), ready, claimed, waiting, attempt failed, '
  'sent, the outcome (delivered, delivered_late, void, expired, dead), ringing (a phone reported it), declined or busy '
  '(the user declined, push.decline_call), end failed (its missed calls are not announced yet; attempt: how often that '
  'failed; at: when it is tried next); trace_id: the trace of the call, from push.outbox.traceparent';

create or replace function push.iso_time(p_time timestamptz) returns text language sql stable parallel safe as
$$ select to_char(p_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') $$;
comment on function push.iso_time is 'a time, p_time, as ISO 8601 in UTC, with milliseconds';

create or replace function push.call(
  call_id text, app text default null, after_n int default null, devices int default null
) returns jsonb
language plpgsql stable security definer set search_path = push, pg_temp as $$
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
comment on function push.call is
  'a call as one JSON object: id, app, callId, kind, state (ringing, answered, ended, missed), createdAt, deadlineAt, '
  'endedAt, endReason, answeredBy, declinedBy (an array of {userId, reason, at}), traceId, next, and devices: an array of '
  '{userId, provider, kind, state (ready, claimed, waiting, or the outcome), reason, sentAt, answeredAt (by the provider), '
  'device (masked), rangAt (the user''s first report)}. Times are ISO 8601 in UTC. call_id: payload.callId; app: needed '
  'only if several apps have a call with this id; devices: maximum number of devices; null: all; after_n: only devices '
  'after this number. next: the after_n of the next page; null: this is the last page';
