-- People who join a call that rings.
--
-- Their entries are added to push.outbox.recipients, so all that follows from a call (declines, cancels, missed calls, fallback) concerns
-- them, too. The phones that ring already are not touched: an entry with a token that another entry of the call has is the same phone,
-- and a token that the call has been sent to gets no second invite.

create or replace function push.ring_newcomers(p_call push.outbox, p_recipients jsonb, p_all jsonb, out deliveries int)
language plpgsql volatile set search_path = push, pg_temp as $$
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
comment on function push.ring_newcomers is
  'makes the invites of people who join: for the phones of p_recipients that the call has not been sent to. p_call: the call, locked, as it '
  'was before; p_all: its recipients with the new ones; null: these are among them, and a phone whose channel cannot carry the payload is left '
  'out. Returns how many';

create or replace function push.add_recipients(call_id text, recipients jsonb, app text default null)
returns table (outbox_id bigint, deliveries int, skipped int, skipped_recipients jsonb)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
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
comment on function push.add_recipients is
  'people join a call that rings: their phones ring until the call''s deadline, and the phones that ring already are not touched. '
  'call_id: payload.callId; recipients: as push.outbox.recipients, and with those of the call at most 1000; app: needed only if several '
  'apps have a call with this id. Returns outbox_id: push.outbox.id; deliveries: number of phones that are rung in addition; '
  'skipped_recipients: what push.skipped_recipients says about these recipients, an array of {userId, field, reason, remedy}; skipped: how '
  'many that are. Running it twice is harmless. Raises an error if the call rings no longer. Needs READ COMMITTED';
