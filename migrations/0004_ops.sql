-- What people read: codes as words, tokens masked, a call's story in one list.

create view push.lanes as
select l.id, l.app, l.provider, l.paused, l.note, l.updated_at from push.lane l;
comment on view push.lanes is
  'one app and provider; to stop it: update push.lanes set paused = true, note = ''why'' '
  'where app = … and provider = …';
comment on column push.lanes.id is 'small number of the lane';
comment on column push.lanes.app is 'name of the app';
comment on column push.lanes.provider is 'apns, fcm or expo';
comment on column push.lanes.paused is 'true: nothing is claimed from this lane';
comment on column push.lanes.note is 'why it is paused, or whatever is worth remembering';
comment on column push.lanes.updated_at is 'when the row last changed';

create function push.touch_lane() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  new.updated_at := clock_timestamp();
  if old.paused and not new.paused then
    perform push.ring_doorbell();
  end if;
  return new;
end
$$;
comment on function push.touch_lane is 'keeps updated_at, and wakes the gateways when a lane is resumed';
create trigger touch_lane before update on push.lane for each row execute function push.touch_lane();

create view push.deliveries as
select d.outbox_id, l.app, o.call_id, l.provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  d.user_id,
  case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end as state,
  d.attempt::int as attempt, d.due_at, d.deadline_at, d.last_reason, d.created_at, d.n, d.owner as gateway, d.lease,
  case d.environment when 0 then 'production' else 'sandbox' end as environment,
  case d.platform when 1 then 'ios' when 2 then 'android' end as platform,
  d.locale, left(d.token, 4) || '…' || right(d.token, 4) as device
from push.delivery d
left join push.lane l on l.id = d.lane
left join push.outbox o on o.id = d.outbox_id;
comment on view push.deliveries is 'one push still owed to one device';
comment on column push.deliveries.outbox_id is 'the call: push.outbox.id';
comment on column push.deliveries.app is 'name of the app';
comment on column push.deliveries.call_id is 'payload.callId of the call';
comment on column push.deliveries.provider is 'apns, fcm or expo';
comment on column push.deliveries.kind is 'invite, cancel, missed_call or notification';
comment on column push.deliveries.user_id is 'the backend''s id of the user';
comment on column push.deliveries.state is 'ready, claimed (a gateway has it) or waiting (until due_at)';
comment on column push.deliveries.attempt is 'tries so far, the current one included';
comment on column push.deliveries.due_at is 'a waiting delivery becomes ready at this time';
comment on column push.deliveries.deadline_at is 'nothing is sent after this';
comment on column push.deliveries.last_reason is 'why the last try did not end it';
comment on column push.deliveries.created_at is 'when the call was enqueued';
comment on column push.deliveries.n is 'number of the push within its call';
comment on column push.deliveries.gateway is 'push.gateways.id of the gateway that has it';
comment on column push.deliveries.lease is 'how often it was claimed';
comment on column push.deliveries.environment is 'production or sandbox';
comment on column push.deliveries.platform is 'ios, android or unknown (null)';
comment on column push.deliveries.locale is 'language of visible texts';
comment on column push.deliveries.device is 'the token, masked: its first and last four characters';

create view push.delivery_history as
select h.outbox_id, l.app, h.call_id, l.provider,
  case h.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  h.user_id,
  case h.outcome when 0 then 'delivered' when 1 then 'delivered_late' when 2 then 'void' when 3 then 'expired'
    else 'dead' end as outcome,
  h.reason, h.attempts, h.created_at, h.sent_at, h.finished_at, h.provider_message_id,
  h.status::int as status, h.answered_at, h.deadline_at, h.n, h.owner as gateway, h.device, h.failures
from push.history h
left join push.lane l on l.id = h.lane;
comment on view push.delivery_history is 'one finished push';
comment on column push.delivery_history.outbox_id is 'the call: push.outbox.id';
comment on column push.delivery_history.app is 'name of the app';
comment on column push.delivery_history.call_id is 'payload.callId of the call';
comment on column push.delivery_history.provider is 'apns, fcm or expo';
comment on column push.delivery_history.kind is 'invite, cancel, missed_call or notification';
comment on column push.delivery_history.user_id is 'the backend''s id of the user';
comment on column push.delivery_history.outcome is
  'delivered, delivered_late (after the deadline), void (cancelled unsent), expired (never sent in time) '
  'or dead (failed)';
comment on column push.delivery_history.reason is 'why it was not delivered, in the provider''s word or ours';
comment on column push.delivery_history.attempts is 'tries made';
comment on column push.delivery_history.created_at is 'when the call was enqueued';
comment on column push.delivery_history.sent_at is 'when the last request left; null: none ever left';
comment on column push.delivery_history.finished_at is 'when it was settled; give a range of it to read few partitions';
comment on column push.delivery_history.provider_message_id is 'apns-id, FCM message name or Expo ticket';
comment on column push.delivery_history.status is 'HTTP status of the last answer';
comment on column push.delivery_history.answered_at is 'when the provider''s last answer came';
comment on column push.delivery_history.deadline_at is 'what the deadline was';
comment on column push.delivery_history.n is 'number of the push within its call';
comment on column push.delivery_history.gateway is 'push.gateways.id of the gateway that settled it';
comment on column push.delivery_history.device is 'the token, masked';
comment on column push.delivery_history.failures is
  'failed tries before the last: array of {"at", "attempt", "status", "reason"}';

create function push.timeline(call_id text)
returns table (
  at timestamptz, ms numeric, event text, provider text, kind text, user_id text, attempt int, status int, reason text,
  device text
)
language sql stable security definer set search_path = push, pg_temp as $$
  with call as (
    select o.id, o.kind, o.created_at from push.outbox o where o.call_id = timeline.call_id
  ), done as (
    select h.* from call c join push.delivery_history h on h.outbox_id = c.id and h.finished_at >= c.created_at
  ), event as (
    select c.id, c.created_at as at, 0 as step, -1 as n, 'enqueued' as event, null as provider, c.kind, null as user_id,
      null::int as attempt, null::int as status, null as reason, null as device
    from call c
    union all
    -- A ready or claimed delivery has no time of its own: it is shown where the call began.
    select d.outbox_id, case d.state when 'waiting' then d.due_at else d.created_at end, 1, d.n, d.state, d.provider,
      d.kind, d.user_id, d.attempt, null, d.last_reason, d.device
    from call c join push.deliveries d on d.outbox_id = c.id
    union all
    select h.outbox_id, (f ->> 'at')::timestamptz, 2, h.n, 'attempt failed', h.provider, h.kind,
      h.user_id, (f ->> 'attempt')::int, (f ->> 'status')::int, f ->> 'reason', h.device
    from done h cross join lateral jsonb_array_elements(h.failures) f
    union all
    select h.outbox_id, h.sent_at, 3, h.n, 'sent', h.provider, h.kind, h.user_id, h.attempts, null, null, h.device
    from done h where h.sent_at is not null
    union all
    select h.outbox_id, coalesce(h.answered_at, h.finished_at), 4, h.n, h.outcome, h.provider, h.kind,
      h.user_id, h.attempts, h.status, h.reason, h.device
    from done h
  )
  select e.at, round((extract(epoch from e.at - c.created_at) * 1000)::numeric, 1), e.event, e.provider, e.kind,
    e.user_id, e.attempt, e.status, e.reason, e.device
  from event e join call c on c.id = e.id
  order by e.at, e.step, e.n
$$;
comment on function push.timeline is
  'the story of a call, in order of time; ms: milliseconds since it was enqueued; event: enqueued, ready, claimed, '
  'waiting, attempt failed, sent, or the outcome';

revoke execute on all functions in schema push from public;
