-- People who join a call that rings.
--
-- Their entries are added to push.outbox.recipients, so all that follows from a call (declines, cancels, missed calls, fallback) concerns
-- them, too. The phones that ring already are not touched: a token that the call has been sent to gets no second invite.

create or replace function push.add_recipients(call_id text, recipients jsonb, app text default null)
returns table (outbox_id bigint, deliveries int, skipped int)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_call  push.outbox;
  v_new   jsonb;
  v_all   jsonb;
  v_users text[];
begin
  outbox_id := push.find_call(add_recipients.call_id, add_recipients.app);
  -- Who ends a call, or acts on its end, has this lock: either they see the newcomers, or the newcomers see the end.
  select o.* into v_call from push.outbox o where o.id = add_recipients.outbox_id for no key update;
  if v_call.state <> 'ringing' or v_call.deadline_at <= clock_timestamp() then
    raise exception using errcode = '55R01',
      message = format('call_id: call %s rings no longer', left(v_call.call_id, 128)),
      hint = 'Its state is in push.outbox. To ring more people, enqueue another call, with an id of its own.';
  end if;
  -- What is there already is left out, so that calling this twice is harmless.
  v_new := case when jsonb_typeof(add_recipients.recipients) = 'array' then (
    select coalesce(jsonb_agg(e.entry order by e.ordinal), '[]')
    from jsonb_array_elements(add_recipients.recipients) with ordinality e(entry, ordinal)
    where not exists (select from jsonb_array_elements(v_call.recipients) r(entry) where r.entry = e.entry)) end;
  v_all := coalesce(v_call.recipients || v_new, 'null');
  v_users := array(select push.entry_user(e) from jsonb_array_elements(v_new) e where push.is_recipient(e));
  with call as materialized (
    -- Raises an error if the call with all its recipients would be refused.
    select a.* from push.accept(v_call.app, v_call.kind, v_call.call_id, v_call.payload,
      case when pg_column_size(v_all) > 2097152 then jsonb_build_object('tooManyBytes', pg_column_size(v_all)) else v_all end,
      v_call.ring_seconds, v_call.traceparent) a
  ), pushed as materialized (
    select p.kind, p.lane, push.token_key(p.provider, p.token) as key, p.last_n from push.pushes_of(array[v_call.id]) p
  ), made as (
    insert into push.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
    select v_call.id, coalesce((select max(p.last_n) from pushed p), -1) + row_number() over (order by t.lane, t.key), clock_timestamp(),
      clock_timestamp(), v_call.deadline_at, t.lane, t.lane, t.environment, t.platform, t.user_id, t.token, t.locale, t.data
    from (
      select distinct on (l.id, k.key) l.id as lane, v.token, k.key collate "C" as key, v.environment, v.platform, v.locale,
        push.entry_user(e.entry) as user_id, push.recipient_data(e.entry) as data,
        c.size_faults[v.rank] is null or push.refuse(v_call.call_id, c.size_faults[v.rank]) as is_small
      from call c cross join lateral jsonb_array_elements(v_new) with ordinality e(entry, ordinal)
      cross join lateral push.phones_of(v_call.app, true, c.providers, null, e.entry) v
      join push.lane l on l.app = v_call.app and l.provider = (push.channels())[v.rank]
      cross join lateral (select push.token_key(l.provider, v.token)) k(key)
      where push.is_recipient(e.entry) and e.entry -> 'notificationEnabled' is distinct from 'false'
        -- Nobody who has declined is rung.
        and not coalesce(v_call.declined ? push.entry_user(e.entry), false)
        and not exists (select from pushed p where p.kind = 0 and p.lane = l.id and p.key = k.key)
      order by l.id, k.key, e.ordinal
    ) t
    where t.is_small
    returning 1
  )
  select count(*) into deliveries from made;
  update push.outbox o set recipients = v_all where o.id = v_call.id and v_new <> '[]';
  if pg_sequence_last_value('push.quota_id_seq') is not null then
    perform push.use_quota(array[v_call.app], array[array[0, 0, jsonb_array_length(v_new)]]::bigint[]);
  end if;
  skipped := (select count(*) from push.skipped_recipients(v_call.id) s where s.user_id = any (v_users) or s.user_id is null);
  if deliveries > 0 then
    perform push.ring_doorbell();
  end if;
  return next;
end
$$;
comment on function push.add_recipients is
  'people join a call that rings: their phones ring until the call''s deadline, and the phones that ring already are not touched. '
  'call_id: payload.callId; recipients: as push.outbox.recipients, and with those of the call at most 1000; app: needed only if several '
  'apps have a call with this id. Returns outbox_id: push.outbox.id; deliveries: number of phones that are rung in addition; skipped: how '
  'many lines push.skipped_recipients has about these users. Running it twice is harmless. Raises an error if the call rings no longer';
