-- Enqueueing: turns a row of push.outbox into one delivery for each device, inside the backend's own transaction.
--
-- A row trigger fills in what the backend leaves out and skips calls that exist. It never raises an error: with COPY, an
-- error there, or a failing constraint, would print the line with its tokens. (A deadlock, a timeout or a cancelled
-- statement while it waits for another transaction with the same call still prints up to the first hundred characters of
-- the line.) A statement trigger then checks all new calls at once. It refuses invalid calls with an error that names the
-- field and prints no value, and inserts the deliveries. INSERT of one row, INSERT of many rows and COPY all work this way.
-- An invalid recipient affects only itself: it is skipped, and push.skipped_recipients reports it.
--
-- The kinds of push.outbox are two calls, incoming_call and video_call, which ring, and four notifications: message,
-- group_message, group_invite and missed_call. A notification never rings. Its state is ended from the start, so that the
-- rules of a call (answer, end, cancel, missed call, fallback) do not apply to it, and its deliveries have kind 3. They go
-- to every device of the user, over the best channel that may carry an alert, never to a VoIP token. The text of a message
-- must not pass through a push service: a payload that seems to contain it is refused, unless push.apps.message_text allows it.

-- Filling in ----------------------------------------------------------------------------------------------------------

-- Two transactions may enqueue the same call at once. The second waits in the INSERT below until the first has ended. It
-- then finds a duplicate or, if the first was rolled back, gets the key.
create or replace function push.take_call_key(p_call_id text, p_app text) returns boolean
language plpgsql security definer set search_path = push, pg_temp as $$
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
comment on function push.take_call_key is 'reserves the key of a call, and waits for others that have it; false: the call exists';

-- Plans must use indexes: a plan made while the tables are small would scan them for the rest of the session. A new call
-- always rings; a notification is ended from the start. A chat message needs no callId. An invalid traceparent becomes an
-- empty string, which push.accept refuses.
create or replace function push.fill_call() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
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
$$;
comment on function push.fill_call is 'fills in what the backend leaves out, and skips a call that exists';

create or replace trigger fill_call before insert on push.outbox for each row execute function push.fill_call();

-- Refusing and fanning out --------------------------------------------------------------------------------------------

-- The planner puts this function and the next one into push.fan_out. "offset 0" keeps a subquery from being merged into the query around
-- it: its columns are computed once, and its rows are checked before they are used.
--
-- fault is why the call is refused, and null if it is not. The other columns are for a call without a fault: is_unwanted is true for a
-- missed call of an app that shows none, and voip_tokens is set only for a notification. A column that a query does not use costs nothing.
create or replace function push.accept(
  p_app text, p_kind text, p_call_id text, p_payload jsonb, p_recipients jsonb, p_ring_seconds int, p_traceparent text
) returns table (fault text, is_call boolean, is_unwanted boolean, providers text[], voip_tokens text[], size_faults text[])
language sql stable as $$
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
comment on function push.accept is 'the fault for which a call is refused, and what its entries need if it has none';

-- An entry with tokens is one device. If its best token is dead, the next one is used. An entry that only names a user stands for the
-- user's registered devices. is_guess: the platform is that of the channel.
create or replace function push.phones_of(p_app text, p_is_call boolean, p_providers text[], p_voip_tokens text[], p_entry jsonb)
returns table (rank int, token text, environment smallint, platform smallint, locale text, registered_at timestamptz, is_guess boolean)
language sql stable as $$
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
comment on function push.phones_of is 'the phones that an entry of recipients stands for';

-- fault: why the push cannot be sent to this phone, and then lane is 0, which does not exist.
create or replace function push.routes_of(
  p_app text, p_is_call boolean, p_providers text[], p_voip_tokens text[], p_size_faults text[], p_entry jsonb
) returns table (
  rank int, token text, environment smallint, platform smallint, locale text, registered_at timestamptz, is_guess boolean, key text,
  lane smallint, fault text
)
language sql stable as $$
  select v.*, push.token_key((push.channels())[v.rank], v.token),
    case when p_size_faults[v.rank] is null and l.id is not null then l.id else 0::smallint end,
    coalesce(p_size_faults[v.rank],
      case when l.id is null then format('app: no gateway has served %s of app %s yet', (push.channels())[v.rank], p_app) end)
  from push.phones_of(p_app, p_is_call, p_providers, p_voip_tokens, p_entry) v
  left join push.lane l on l.app = p_app and l.provider = (push.channels())[v.rank]
    and l.service = push.push_service((push.channels())[v.rank], v.token)
$$;
comment on function push.routes_of is
  'the phones that an entry of recipients stands for, each with its lane and its token as push.token_key. p_size_faults: of push.accept';

-- Errors are raised outside the statements that find them, because the context of an error quotes the statement around it. A push that is
-- refused is inserted with its fault, and the error undoes that.
create or replace function push.fan_out() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
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
comment on function push.fan_out is 'refuses invalid calls, and those of other tenants; makes a delivery for each device of the others';

create or replace trigger fan_out after insert on push.outbox referencing new table as new_calls
  for each statement execute function push.fan_out();

-- By one function -----------------------------------------------------------------------------------------------------

create or replace function push.enqueue_call(
  payload jsonb, recipients jsonb, app text default 'default', ring_seconds int default null,
  kind text default 'incoming_call', traceparent text default null
) returns table (outbox_id bigint, deliveries int, duplicate boolean, skipped int, call_id text)
language plpgsql security definer set search_path = push, pg_temp as $$
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
$$;
comment on function push.enqueue_call is
  'enqueues one call, or one notification, in the caller''s transaction. payload: as push.outbox.payload; recipients: as '
  'push.outbox.recipients; app: the app whose phones ring; ring_seconds: the ring window, or the time to live of a '
  'notification; null: the app''s own; kind: as push.outbox.kind; traceparent: as push.outbox.traceparent. Returns '
  'outbox_id: push.outbox.id; deliveries: number of devices that it goes to; duplicate: true if (app, callId) existed '
  'already, and nothing was done (push.compare_call tells more); skipped: number of users without a device, plus number of '
  'entries of recipients or members of them that could not be used (push.skipped_recipients lists them with reason and '
  'remedy); call_id: payload.callId, or the id made for a notification without one. A call that ended more than a minute ago '
  'does not ring again: that is an error';

create or replace function push.compare_call(call_id text, payload jsonb, recipients jsonb, app text default null)
returns table (state text, payload_differs boolean, recipients_differ boolean)
language sql stable security definer set search_path = push, pg_temp as $$
  select o.state, o.payload <> compare_call.payload, o.recipients <> compare_call.recipients
  from push.outbox o where o.id = push.find_call(compare_call.call_id, compare_call.app)
$$;
comment on function push.compare_call is
  'what became of a call that was enqueued before, and whether it was the same. call_id, app: columns of push.outbox; payload, recipients: '
  'what is compared with it. Returns state: push.outbox.state; payload_differs, recipients_differ. Raises an error if there is no such call';

-- For the HTTP API: calls of many requests share one commit. A call that would be refused, or exists already, is left out
-- and does not affect the others. The gateway then calls push.enqueue_call for it, which gives the reason.
create or replace function push.enqueue_calls(calls jsonb)
returns table (n int, outbox_id bigint, deliveries int, skipped int, call_id text)
language plpgsql security definer set search_path = push, pg_temp set lock_timeout = '20ms' as $$
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
comment on function push.enqueue_calls is
  'enqueues many calls, or notifications, in one transaction. calls: an array of objects with the arguments of '
  'push.enqueue_call: app, kind, payload, recipients, ringSeconds, traceparent. Returns the columns of push.enqueue_call '
  'by n, the position in calls from 0. A call that is invalid, exists already or occurs twice has no row, and nothing was '
  'done for it: push.enqueue_call gives the reason. One row with null for n: nothing at all was done, because one of the '
  'calls failed; try them in halves';
