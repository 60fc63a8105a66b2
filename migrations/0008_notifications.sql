-- Notifications beside calls, and enqueueing that knows a dead token from a living one.
--
-- The kinds of push.outbox are two calls, incoming_call and video_call, which ring, and four notifications: message,
-- group_message, group_invite and missed_call. A notification rings nowhere: it is born ended, so that nothing that
-- belongs to a call (answer, end, cancel, missed call, fallback) touches it, and its deliveries have kind 3. They go to
-- every device of the user, over the best channel that may carry an alert: never to a VoIP token.
--
-- No text of a message travels through a push service: a payload that seems to hold one is refused.

comment on table push.outbox is
  'one call, or one notification, as the backend wrote it: insert (app, payload, recipients [, kind, ring_seconds]), '
  'the rest is filled in';
comment on column push.outbox.kind is
  'incoming_call, video_call, or one of the notifications message, group_message, group_invite, missed_call';
comment on column push.outbox.call_id is
  'payload.callId; for message, group_message and group_invite what was given, else payload.callId, payload.messageId '
  'or a new UUID; unique with app, so enqueueing twice is one call';
comment on column push.outbox.payload is
  'object. Calls and missed_call: callId and from (strings) required; fromName, apartmentNumber, buildingName, '
  'channelName, metadata optional. message, group_message, group_invite: from and chatId (strings) required; callId, '
  'messageId, fromName, metadata optional; never a text of the message';
comment on column push.outbox.ring_seconds is
  'calls: ring window in seconds, 1 to 600; the app''s (else 60) unless given. Notifications: time to live in seconds, '
  '1 to 2419200; 14400 unless given';
comment on column push.outbox.state is
  'ringing, answered, ended or missed; it changes once, and an update of it is as good as push.answer_call or '
  'end_call; a notification is ended from the start';
comment on column push.outbox.end_reason is
  'the reason given to push.end_call, else answered, ended or missed; declined and busy leave no missed call; '
  'notification: it never was a call';
comment on column push.outbox.deadline_at is 'end of the ring window, or of the time to live: nothing leaves after it';
comment on column push.delivery.n is
  'number of the push within its call: invites and notifications from 0, cancels from 10000, missed calls from 20000';

-- What is wrong with a value ------------------------------------------------------------------------------------------

create function push.is_call(p_kind text) returns boolean language sql immutable parallel safe as
$$ select p_kind in ('incoming_call', 'video_call') $$;
comment on function push.is_call is 'whether a kind of push.outbox rings';

create function push.is_message(p_kind text) returns boolean language sql immutable parallel safe as
$$ select p_kind in ('message', 'group_message', 'group_invite') $$;
comment on function push.is_message is 'whether a kind of push.outbox belongs to a chat';

create function push.given_call_id(p_kind text, p_payload jsonb) returns text language sql immutable parallel safe as $$
  select case when push.is_message(p_kind) then coalesce(p_payload ->> 'callId', p_payload ->> 'messageId')
    else p_payload ->> 'callId' end
$$;
comment on function push.given_call_id is 'the call_id that a payload brings; null: none';

-- A function of its own: one that looks into a set is not inlined, and calls need not pay for it.
create function push.message_text_fault(p_payload jsonb) returns text language sql immutable parallel safe as $$
  select 'payload.' || m.parent || m.key || ': a message''s text does not travel in a push; leave it out'
  from (
    select '' as parent, key from jsonb_object_keys(p_payload) key
    union all
    select 'metadata.', key
    from jsonb_path_query(p_payload -> 'metadata', 'strict $.**') node
    cross join lateral jsonb_object_keys(case jsonb_typeof(node) when 'object' then node else '{}' end) key
  ) m
  where lower(m.key) in ('body', 'text', 'message', 'content', 'preview', 'snippet', 'subject', 'html')
  order by m.parent, m.key
  limit 1
$$;
comment on function push.message_text_fault is
  'names a member of a payload, or of anything inside its metadata, that is called like a message''s text; null: none';

create or replace function push.call_fault(
  p_app text, p_kind text, p_call_id text, p_payload jsonb, p_recipients jsonb, p_ring_seconds int
) returns text language sql immutable parallel safe as $$
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
    when not push.is_app(p_app)
      then 'app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores'
    when push.is_call(p_kind) and p_ring_seconds not between 1 and 600
      then 'ring_seconds: must be 1 to 600 seconds; leave it out for the app''s own ring window'
    when not push.is_call(p_kind) and p_ring_seconds not between 1 and 2419200
      then 'ring_seconds: must be 1 to 2419200 seconds, a notification''s time to live; leave it out for four hours'
    when jsonb_typeof(p_recipients) <> 'array'
      then 'recipients: must be an array of user ids or objects'
    when jsonb_array_length(case jsonb_typeof(p_recipients) when 'array' then p_recipients end) > 1000
      then 'recipients: must have at most 1000 entries; split the call'
    when push.is_message(p_kind) then push.message_text_fault(p_payload)
  end)
$$;
comment on function push.call_fault is
  'what is wrong with a call or notification, its recipients'' entries aside; null: nothing';

drop function push.size_faults(jsonb);
create function push.size_faults(p_payload jsonb, p_is_call boolean default true) returns text[]
language plpgsql immutable as $$
declare
  -- What a rendered push has beside the payload: type, action, timestamp, expiresAt, seq, isVoip, a default fromName;
  -- and on Expo, or in an alert, the title, body, sound and channel around the data.
  c_own_keys  constant int := 256;
  c_own_quotes constant int := 40;
  c_alert_envelope constant int := 512;
  v_text    text := p_payload::text;
  v_blanks  int;  -- jsonb prints one after every ':' and ',' that separates members; a push has none
  v_escapes int := length(v_text) - length(translate(v_text, '"\', ''));  -- one more byte each inside a JSON string
  v_nested  int;  -- the same for the members that FCM carries as a JSON string of their own
  v_scalars int;  -- numbers and booleans, which become strings
  v_members int;
  v_bytes   int[];
begin
  select coalesce(sum(case jsonb_typeof(node)
      when 'object' then greatest(2 * (select count(*) from jsonb_object_keys(node)) - 1, 0)
      when 'array' then greatest(jsonb_array_length(node) - 1, 0)
      else 0 end), 0)
    into v_blanks
    from jsonb_path_query(p_payload, 'strict $.**') node;
  select coalesce(sum(length(value::text) - length(translate(value::text, '"\', '')))
        filter (where jsonb_typeof(value) in ('object', 'array')), 0),
      count(*) filter (where jsonb_typeof(value) in ('number', 'boolean'))
    into v_nested, v_scalars
    from jsonb_each(p_payload);
  v_members := octet_length(v_text) - v_blanks + 2 * v_scalars + c_own_keys;
  v_bytes := array[
    v_members + case when p_is_call then 0 else c_alert_envelope end,
    -- Flat string keys, and `body` with the whole object once more as an escaped string.
    v_members + v_nested + 2 + v_members + v_escapes + c_own_quotes,
    v_members + c_alert_envelope];
  return array(
    select case when b.bytes > l.bytes then
      format('payload: up to %s bytes when rendered for %s, the limit is %s; shorten it, metadata first',
        b.bytes, l.provider, l.bytes) end
    from unnest(v_bytes) with ordinality b(bytes, rank)
    join (values (1, case when p_is_call then 'APNs VoIP' else 'an APNs alert' end,
        case when p_is_call then 5120 else 4096 end),
      (2, 'FCM', 4096), (3, 'Expo', 4096)) l(rank, provider, bytes) using (rank)
    order by rank);
end
$$;
comment on function push.size_faults is
  'by provider (1 apns, 2 fcm, 3 expo): what is wrong with the size of a payload, bounded from above; null: nothing; '
  'p_is_call: a VoIP push, which may be larger than an alert';

-- Enqueueing ----------------------------------------------------------------------------------------------------------

-- As in 0005; besides, a notification is born ended, and a chat's needs no callId.
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

drop function push.invite_devices(text, text);
create function push.reachable_devices(p_app text, p_user_id text, p_is_call boolean)
returns table (rank int, token text, environment smallint, platform smallint, locale text)
language sql stable as $$
  select best.rank, best.token,
    case best.environment when 'sandbox' then 1 else 0 end::smallint,
    case best.platform when 'ios' then 1 when 'android' then 2 else 0 end::smallint,
    best.locale
  from (
    select usable.*,
      min(usable.rank) over (partition by usable.platform) as best_rank,
      bool_or(usable.platform is not null) over () as some_known
    from (
      select d.token, d.environment, d.locale, d.registered_at,
        case d.provider when 'apns' then 1 when 'fcm' then 2 else 3 end as rank,
        coalesce(d.platform, case d.provider when 'apns' then 'ios' when 'fcm' then 'android' end) as platform
      from push.devices d
      where d.user_id = p_user_id and d.app = p_app and d.enabled and d.invalidated_at is null
        -- A call rings through a VoIP token, anything else is shown through an alert token; never the other way round.
        and (d.provider <> 'apns' or d.voip = p_is_call)
    ) usable
  ) best
  -- An Expo token of unknown platform may be of a phone that is already reached better.
  where best.rank = best.best_rank and (best.platform is not null or not best.some_known)
  order by best.registered_at desc
  limit 10
$$;
comment on function push.reachable_devices is
  'the devices that a call, or a notification, to a user goes to: of each platform those of its best channel, the ten '
  'newest; rank: 1 apns, 2 fcm, 3 expo';

-- As in 0002; besides, an entry whose best token is dead uses its next, and notifications go out as such.
create or replace function push.fan_out() returns trigger
language plpgsql security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set work_mem = '64MB' set jit = off
as $$
begin
  -- "offset 0" keeps a subquery from being merged into the one around it: its columns are computed once, and its rows
  -- are checked before anything is made of them. Nothing but the sort stores rows, so a large COPY stays in memory.
  insert into push.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, kind, environment, platform, user_id,
    token, locale)
  select d.id, row_number() over (partition by d.id order by d.lane, d.token) - 1,
    d.created_at, d.created_at, d.deadline_at, d.lane, case when d.is_call then 0 else 3 end, d.environment, d.platform,
    d.user_id, d.token, d.locale
  from (
    -- The same token twice in a call is one delivery.
    select distinct on (t.id, t.lane, t.token) t.*
    from (
      select e.id, e.ordinal, e.created_at, e.deadline_at, e.is_call, v.token collate "C" as token, e.user_id,
        v.environment, v.platform, v.locale,
        case when e.size_faults[v.rank] is null
          then coalesce(l.id,
            push.register_lane(e.app, case v.rank when 1 then 'apns' when 2 then 'fcm' else 'expo' end))
          else push.refuse(e.call_id, e.size_faults[v.rank])::int end as lane
      from (
        select e.id, e.app, e.call_id, e.created_at, e.deadline_at, e.is_call, e.size_faults, e.ordinal, e.entry,
          case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end as user_id,
          e.apns_token, e.fcm_token, e.expo_token,
          -- The best channel whose token is not known to be dead; each is looked up only when it is its turn, and by
          -- its index: "not exists" may become a hash of all dead tokens.
          case
            when e.apns_token is not null
              and (select true from push.token_invalidations x
                where x.token = e.apns_token and x.app = e.app and x.provider = 'apns') is null
              -- A VoIP token that somebody calls an alert token, too, is a VoIP token.
              and (e.is_call
                or not e.recipients @> jsonb_build_array(jsonb_build_object('voipPushToken', e.apns_token))
                  and (select true from push.devices x
                    where sha256(x.token::bytea) = sha256(e.apns_token::bytea) and x.app = e.app
                      and x.provider = 'apns' and x.voip) is null)
              then 1
            when e.fcm_token is not null and (select true from push.token_invalidations x
              where x.token = e.fcm_token and x.app = e.app and x.provider = 'fcm') is null then 2
            when e.expo_token is not null and (select true from push.token_invalidations x
              where x.token = e.expo_token and x.app = e.app and x.provider = 'expo') is null then 3
          end as rank,
          jsonb_typeof(e.entry) = 'object' and e.entry ?| '{voipPushToken,apnsToken,fcmToken,pushToken}' as inline
        from (
          select t.*, case when t.is_call then t.voip_token else t.alert_token end as apns_token,
            push.recipient_fault(t.entry, t.voip_token, t.alert_token, t.fcm_token, t.expo_token) as fault
          from (
            select c.*, r.entry, r.ordinal,
              nullif(r.entry ->> 'voipPushToken', '') as voip_token,
              nullif(r.entry ->> 'apnsToken', '') as alert_token,
              nullif(r.entry ->> 'fcmToken', '') as fcm_token,
              nullif(r.entry ->> 'pushToken', '') as expo_token
            from (
              select c.id, c.app, c.call_id, c.created_at, c.deadline_at, c.recipients, c.is_call,
                -- Below 880 bytes no provider's limit can be reached, whatever the payload holds.
                case when c.bytes > 880 then push.size_faults(c.payload, c.is_call) end as size_faults
              from (
                select n.*, octet_length(n.payload::text) as bytes, push.is_call(n.kind) as is_call,
                  push.call_fault(n.app, n.kind, n.call_id, n.payload, n.recipients, n.ring_seconds) as fault
                from new_calls n offset 0
              ) c
              where case
                when c.fault is not null then push.refuse(c.call_id, c.fault)
                when c.bytes > 16384
                  then push.refuse(c.call_id, format('payload: has %s bytes, the limit is 16384; shorten it', c.bytes))
                else true end
              offset 0
            ) c cross join lateral jsonb_array_elements(c.recipients) with ordinality r(entry, ordinal)
            offset 0
          ) t offset 0
        ) e
        where case
          when e.fault is not null then push.refuse(e.call_id, format('recipients[%s]%s', e.ordinal - 1, e.fault))
          else e.entry -> 'notificationEnabled' is distinct from 'false' end
        offset 0
      ) e
      -- An entry that brings tokens is one device; one that only names a user stands for the user's registered devices.
      cross join lateral (
        select e.rank, case e.rank when 1 then e.apns_token when 2 then e.fcm_token else e.expo_token end as token,
          case when e.entry ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
          case when e.rank = 1 or e.entry ->> 'platform' = 'ios' then 1 when e.entry ->> 'platform' = 'android' then 2
            else 0 end::smallint as platform,
          e.entry ->> 'locale' as locale
        where e.inline and e.rank is not null
        union all
        select d.rank, d.token, d.environment, d.platform, d.locale
        from push.reachable_devices(e.app, e.user_id, e.is_call) d
        where not e.inline
      ) v
      left join push.lane l
        on l.app = e.app and l.provider = case v.rank when 1 then 'apns' when 2 then 'fcm' else 'expo' end
    ) t
    order by t.id, t.lane, t.token, t.ordinal
  ) d;
  if found then
    perform push.ring_doorbell();
  end if;
  return null;
end
$$;
comment on function push.fan_out is
  'refuses bad calls and notifications, and makes one delivery a device of the good ones';

-- Nothing is stored of whom a call skipped: that would be a row for every user without a phone. It can be told later
-- from what the backend wrote, what was made of it, and what is known of the tokens by then. Once the history of the
-- call's day is dropped it cannot, and nobody is called skipped.
create function push.skipped_recipients(p_outbox_id bigint) returns table (user_id text, reason text)
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  v_call  push.outbox := (select o from push.outbox o where o.id = p_outbox_id);
  v_since timestamptz := v_call.created_at;
  v_until timestamptz := clock_timestamp() + interval '1 minute';
begin
  if v_call.id is null
    or to_regclass('push.history_' || to_char(v_call.created_at at time zone 'UTC', 'YYYYMMDD')) is null then
    return;
  end if;
  return query
    with reached as materialized (
      select d.user_id, left(d.token, 4) || '…' || right(d.token, 4) as device
      from push.delivery d where d.outbox_id = p_outbox_id and d.n < 10000
      union
      select h.user_id, h.device
      from push.history h where h.outbox_id = p_outbox_id and h.finished_at between v_since and v_until and h.n < 10000
    ), entry as materialized (
      select case jsonb_typeof(e) when 'string' then e #>> '{}' else e ->> 'userId' end as user_id,
        e -> 'notificationEnabled' is not distinct from 'false' as is_off, e
      from jsonb_array_elements(v_call.recipients) e
    ), missing as materialized (
      select e.* from entry e where not exists (select from reached r where r.user_id = e.user_id)
    ), token as materialized (
      -- Every token that could have been used, and what is known against it.
      select m.user_id, left(t.token, 4) || '…' || right(t.token, 4) as device, m.is_off,
        (select true from push.token_invalidations x
          where x.token = t.token and x.app = v_call.app and x.provider = t.provider) is not null as is_dead
      from missing m cross join lateral (values
        ('apns', case when push.is_call(v_call.kind) then m.e ->> 'voipPushToken' else m.e ->> 'apnsToken' end),
        ('fcm', m.e ->> 'fcmToken'), ('expo', m.e ->> 'pushToken')) t(provider, token)
      where jsonb_typeof(m.e) = 'object' and t.token <> ''
      union all
      select m.user_id, left(d.token, 4) || '…' || right(d.token, 4), m.is_off or not d.enabled,
        d.invalidated_at is not null
      from missing m join push.devices d on d.user_id = m.user_id and d.app = v_call.app
      where not (jsonb_typeof(m.e) = 'object' and m.e ?| '{voipPushToken,apnsToken,fcmToken,pushToken}')
        and (d.provider <> 'apns' or d.voip = push.is_call(v_call.kind))
    )
    select m.user_id, case
        when bool_and(m.is_off) then 'NotificationsDisabled'
        when exists (select from token t where t.user_id = m.user_id and t.is_dead and not t.is_off) then 'TokenInvalid'
        when exists (select from token t where t.user_id = m.user_id and t.is_off) then 'NotificationsDisabled'
        else 'NoDevice' end
    from missing m
    -- A token that two users share is one delivery, under the name of the first.
    where not exists (select from token t join reached r on r.device = t.device where t.user_id = m.user_id)
    group by m.user_id
    order by m.user_id;
end
$$;
comment on function push.skipped_recipients is
  'users of a call for whom no delivery was made, and why, as far as is known now: TokenInvalid, NotificationsDisabled '
  'or NoDevice';

drop function push.enqueue_call(jsonb, jsonb, text, int);
create function push.enqueue_call(
  payload jsonb, recipients jsonb, app text default 'default', ring_seconds int default null,
  kind text default 'incoming_call'
) returns table (outbox_id bigint, deliveries int, duplicate boolean, skipped int)
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
  insert into push.outbox (app, kind, payload, recipients, ring_seconds)
    values (enqueue_call.app, enqueue_call.kind, enqueue_call.payload, enqueue_call.recipients,
      enqueue_call.ring_seconds)
    on conflict (call_id, app) do nothing
    returning id into outbox_id;
  duplicate := not found;
  if duplicate then
    select o.id into outbox_id from push.outbox o
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
  'enqueues one call, or one notification; deliveries is how many devices it goes to, skipped how many users have none '
  '(push.timeline says why), duplicate is true when (app, callId) existed already';

-- The story of a call -------------------------------------------------------------------------------------------------

create or replace function push.timeline(call_id text)
returns table (
  at timestamptz, ms numeric, event text, provider text, kind text, user_id text, attempt int, status int, reason text,
  device text
)
language sql stable security definer set search_path = push, pg_temp as $$
  with call as (
    select o.id, o.kind, o.created_at from push.outbox o where o.call_id = timeline.call_id
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
    -- Another channel took over from one that failed.
    select f.outbox_id, f.created_at, 2, f.n, 'fallback', f.provider, f.kind, f.user_id, null, h.status, h.reason,
      f.device
    from (
      select outbox_id, created_at, n, provider, kind, user_id, device, fallback_of from owed
      union all
      select outbox_id, created_at, n, provider, kind, user_id, device, fallback_of from done
    ) f
    left join done h on h.outbox_id = f.outbox_id and h.n = f.fallback_of
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
  )
  select e.at, round((extract(epoch from e.at - c.created_at) * 1000)::numeric, 1), e.event, e.provider, e.kind,
    e.user_id, e.attempt, e.status, e.reason, e.device
  from event e join call c on c.id = e.id
  order by e.at, e.step, e.n, e.user_id
$$;
comment on function push.timeline is
  'the story of a call, in order of time; ms: milliseconds since it was enqueued; event: enqueued, skipped (no '
  'delivery was made for this user), fallback (the channel before it failed for this reason), ready, claimed, '
  'waiting, attempt failed, sent, or the outcome';

revoke execute on all functions in schema push from public;
