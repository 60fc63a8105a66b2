-- The rules of a call: how it changes, and who may change it.
--
-- push.outbox.state is the state of a call. It changes once, from ringing to answered, ended or missed. A user who declines is written
-- into push.outbox.declined. The transaction that changes a call only notes so (push.follow_ups): nothing in it grows with the recipients,
-- and its isolation level does not matter, because it reads nothing but the rows that its statement changed. What follows is done
-- by push.follow_up after the commit: unsent invites become void, phones that may ring get a cancel (cancels.sql), users get a missed
-- call (missed_calls.sql).
--
-- The call's row is the only mutex. Who changes a call has it locked; push.follow_up takes it with "skip locked", so it waits for no
-- backend. Nothing else looks at calls before it makes an invite ready: an invite of a call that has ended may be claimed. The claim
-- says so, and the gateway settles it as void.

-- The end of a call ---------------------------------------------------------------------------------------------------

create or replace function push.check_call() returns trigger language plpgsql set search_path = push, pg_temp as $$
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
comment on function push.check_call is
  'lets a call end once, and refuses any other change, except those of push.erase_user and push.add_recipients';

create or replace trigger check_call before update on push.outbox for each row execute function push.check_call();

-- The gateways are told with NOTIFY push_control: "void" and push.outbox.id, or "void *" (any call may have ended) if there are more
-- than 100.
create or replace function push.end_calls() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp as $$
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
comment on function push.end_calls is 'records events for webhooks, notes ends and declines for push.follow_up, and tells the gateways';

-- Not "update of state": PostgreSQL gives no transition tables to a trigger with a column list.
create or replace trigger end_calls after update on push.outbox referencing old table as old_calls new table as new_calls
  for each statement execute function push.end_calls();

-- Which call is meant ---------------------------------------------------------------------------------------------------

-- A tenant's apps are looked up one by one, so that no row of another tenant is read. The statistics of the tenant's own
-- transaction would show such reads.
create or replace function push.own_calls(p_call_id text, p_app text) returns table (id bigint, app text)
language plpgsql stable rows 1 set search_path = push, pg_temp as $$
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
comment on function push.own_calls is 'the calls with this id in the apps that the caller may act for; p_app: only this app';

-- Raises an error if there is no such call, if p_app is null and several apps have one, or if it does not name the user.
create or replace function push.find_call(p_call_id text, p_app text, p_user_id text default null) returns bigint
language plpgsql stable set search_path = push, pg_temp as $$
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
comment on function push.find_call is 'the number of a call in the apps that the caller may act for';

create or replace function push.device_token(p_app text, p_device text) returns text
language plpgsql stable strict set search_path = push, pg_temp as $$
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
$$;
comment on function push.device_token is 'the token of a device: given itself, or by push.devices.id; null gives null';

-- What a backend says of a call -----------------------------------------------------------------------------------------

create or replace function push.answer_call(
  call_id text, user_id text default null, app text default null, device text default null
) returns boolean
language plpgsql security definer set search_path = push, pg_temp as $$
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
comment on function push.answer_call is
  'marks the call as answered: nothing more is sent, and other devices that may ring get a cancel. call_id: '
  'payload.callId; user_id: the user who answered, if known: none of this user''s devices gets a cancel; app: needed only '
  'if several apps have a call with this id; device: the phone that answered, if known, by its token or push.devices.id: '
  'only this phone gets no cancel, the user''s other phones get one. Returns false if the call had ended before';

create or replace function push.decline_call(
  call_id text, user_id text, app text default null, reason text default 'declined', device text default null
) returns boolean
language plpgsql security definer set search_path = push, pg_temp as $$
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
comment on function push.decline_call is
  'a user declines the call, or is busy: nothing more is sent to this user''s phones, those that may ring get a cancel, '
  'and the user gets no missed call. The phones of other users ring on. When the last user whose phones were rung has '
  'declined, the call ends, with their reason if all gave the same, else with the reason declined. call_id: payload.callId; '
  'user_id: as in the call''s recipients; app: needed only if several apps have a call with this id; reason: declined, busy, '
  'or connection_failed: the app could not reach the call, and the user gets a missed call, unless it was answered; device: the '
  'phone that declined, if known, by its token or push.devices.id: it gets no cancel; if it is not known, none of the user''s VoIP '
  'tokens gets one. Returns false if the user had declined before, or the call had ended';

create or replace function push.end_call(call_id text, reason text default 'ended', app text default null) returns boolean
language plpgsql security definer set search_path = push, pg_temp as $$
declare
  v_id bigint := push.find_call(call_id, app);
begin
  -- In one line, because the context of an error quotes it.
  update push.outbox o set state = 'ended', end_reason = coalesce(end_call.reason, 'ended') where o.id = v_id and o.ended_at is null;
  return found;
end
$$;
comment on function push.end_call is
  'ends a call that was not answered: nothing more is sent, devices that may ring get a cancel, and users get a missed '
  'call unless the reason is declined or busy. call_id: payload.callId; reason: kept as push.outbox.end_reason; app: '
  'needed only if several apps have a call with this id. Returns false if the call had ended before';
