-- Enqueueing: from one row of push.outbox to one delivery a device, inside the backend's own transaction.
--
-- A row trigger fills in what the backend leaves out and skips calls that exist. It never raises: an error there, or a
-- failing constraint, would make COPY print the line with its tokens. A statement trigger then looks at all new calls
-- at once: it refuses what is wrong, naming the field and printing no value, and inserts the deliveries. One INSERT,
-- an array of rows and a COPY all take this path.

-- What is wrong with a value ------------------------------------------------------------------------------------------
-- These are plain expressions, so that the planner inlines them: a function call a recipient would cost more than the
-- check. Each *_fault returns null when all is well, else the field's path below its parent, and the remedy.

-- Lengths are compared, not written as {64,200}: a bounded repetition makes PostgreSQL's matcher 70 times slower.

create function push.is_app(p_app text) returns boolean language sql immutable parallel safe as
$$ select p_app ~ '^[A-Za-z0-9]' and p_app !~ '[^A-Za-z0-9_.-]' and length(p_app) <= 64 $$;
comment on function push.is_app is 'whether a text may be the name of an app';

create function push.is_apns_token(p_token text) returns boolean language sql immutable parallel safe as
$$ select length(p_token) between 64 and 200 and length(p_token) % 2 = 0 and p_token !~ '[^0-9A-Fa-f]' $$;
comment on function push.is_apns_token is
  'whether a text has the form of an APNs device token: 64 to 200 hex digits, even';

create function push.is_fcm_token(p_token text) returns boolean language sql immutable parallel safe as
$$ select length(p_token) between 20 and 4096 and p_token !~ '[^A-Za-z0-9_:%.-]' $$;
comment on function push.is_fcm_token is 'whether a text has the form of an FCM registration token';

create function push.is_expo_token(p_token text) returns boolean language sql immutable parallel safe as
$$ select case
  when p_token like 'ExponentPushToken[_%]' or p_token like 'ExpoPushToken[_%]'
    then length(p_token) <= 256 and p_token !~ '[^A-Za-z0-9_:%.[\]-]'
  else p_token like '________-____-____-____-____________'
    and length(replace(p_token, '-', '')) = 32 and p_token !~ '[^0-9A-Fa-f-]'
end $$;
comment on function push.is_expo_token is 'whether a text has the form of an Expo push token';

create function push.call_fault(
  p_app text, p_kind text, p_call_id text, p_payload jsonb, p_recipients jsonb, p_ring_seconds int
) returns text language sql immutable parallel safe as $$
  select case
    when jsonb_typeof(p_payload) <> 'object' then 'payload: must be an object'
    when jsonb_typeof(p_payload -> 'callId') is distinct from 'string'
        or length(p_payload ->> 'callId') not between 1 and 128
      then 'payload.callId: must be a string of 1 to 128 characters'
    when p_call_id <> p_payload ->> 'callId'
      then 'call_id: must equal payload.callId; leave it out and it is filled in'
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
    when p_kind not in ('incoming_call', 'video_call')
      then 'kind: must be incoming_call or video_call; other kinds are not supported yet'
    when not push.is_app(p_app)
      then 'app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores'
    when p_ring_seconds not between 1 and 600
      then 'ring_seconds: must be 1 to 600 seconds; leave it out for the app''s own ring window'
    when jsonb_typeof(p_recipients) <> 'array'
      then 'recipients: must be an array of user ids or objects'
    when jsonb_array_length(case jsonb_typeof(p_recipients) when 'array' then p_recipients end) > 1000
      then 'recipients: must have at most 1000 entries; split the call'
  end
$$;
comment on function push.call_fault is 'what is wrong with a call, its recipients'' entries aside; null: nothing';

create function push.recipient_fault(
  p_entry jsonb, p_voip_token text, p_alert_token text, p_fcm_token text, p_expo_token text
) returns text language sql immutable parallel safe as $$
  select case
    when jsonb_typeof(p_entry) = 'string' then
      case when length(p_entry #>> '{}') not between 1 and 256 then ': must be a user id of 1 to 256 characters' end
    when jsonb_typeof(p_entry) <> 'object' then ': must be a user id, or an object with a userId'
    when jsonb_typeof(p_entry -> 'userId') is distinct from 'string'
        or length(p_entry ->> 'userId') not between 1 and 256
      then '.userId: must be a string of 1 to 256 characters'
    when not push.is_apns_token(p_voip_token)
      then '.voipPushToken: must be 64 to 200 hexadecimal digits, an even number'
    when not push.is_apns_token(p_alert_token)
      then '.apnsToken: must be 64 to 200 hexadecimal digits, an even number'
    when not push.is_fcm_token(p_fcm_token)
      then '.fcmToken: must be an FCM registration token: 20 to 4096 letters, digits or any of _ : % . -'
    when not push.is_expo_token(p_expo_token)
      then '.pushToken: must be ExponentPushToken[...], ExpoPushToken[...] or a UUID'
    when p_entry ->> 'platform' not in ('ios', 'android') then '.platform: must be ios or android, or left out'
    when p_entry ->> 'environment' not in ('production', 'sandbox', 'development')
      then '.environment: must be production or sandbox, or left out'
    when jsonb_typeof(p_entry -> 'locale') not in ('string', 'null') or length(p_entry ->> 'locale') > 64
      then '.locale: must be a string of at most 64 characters, or left out'
    when jsonb_typeof(p_entry -> 'notificationEnabled') not in ('boolean', 'null')
      then '.notificationEnabled: must be true or false, or left out'
  end
$$;
comment on function push.recipient_fault is
  'what is wrong with one entry of recipients, given its tokens; null: nothing';

create function push.size_faults(p_payload jsonb) returns text[] language plpgsql immutable as $$
declare
  -- What a rendered push has beside the payload: type, action, timestamp, expiresAt, seq, isVoip, a default fromName;
  -- and on Expo the title, body, sound and channel around the data.
  c_own_keys  constant int := 256;
  c_own_quotes constant int := 40;
  c_expo_envelope constant int := 512;
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
    v_members,
    -- Flat string keys, and `body` with the whole object once more as an escaped string.
    v_members + v_nested + 2 + v_members + v_escapes + c_own_quotes,
    v_members + c_expo_envelope];
  return array(
    select case when b.bytes > l.bytes then
      format('payload: up to %s bytes when rendered for %s, the limit is %s; shorten it, metadata first',
        b.bytes, l.provider, l.bytes) end
    from unnest(v_bytes) with ordinality b(bytes, rank)
    join (values (1, 'APNs VoIP', 5120), (2, 'FCM', 4096), (3, 'Expo', 4096)) l(rank, provider, bytes) using (rank)
    order by rank);
end
$$;
comment on function push.size_faults is
  'by provider (1 apns, 2 fcm, 3 expo): what is wrong with the size of a payload, bounded from above; null: nothing';

create function push.refuse(p_call_id text, p_fault text) returns boolean language plpgsql as $$
begin
  raise exception using
    errcode = 'invalid_parameter_value',
    message = format('%s (call %s)', p_fault,
      case when p_call_id = '' then 'without callId' else left(p_call_id, 128) end),
    hint = 'Nothing of this statement was enqueued.',
    schema = 'push', table = 'outbox', column = substring(p_fault from '^[a-z_]+');
end
$$;
comment on function push.refuse is
  'raises the error for a fault, naming the call; it has a result so that a query may call it';

-- Lanes and the bell --------------------------------------------------------------------------------------------------

create function push.register_lane(p_app text, p_provider text) returns smallint
language plpgsql security definer set search_path = push, pg_temp as $$
declare
  v_lane smallint;
begin
  loop
    select l.id into v_lane from push.lane l where l.app = p_app and l.provider = p_provider;
    exit when found;
    insert into push.lane (app, provider) values (p_app, p_provider) on conflict (app, provider) do nothing;
  end loop;
  return v_lane;
end
$$;
comment on function push.register_lane is 'the lane of an app and provider, made if it is missing';

create function push.ring_doorbell() returns void language plpgsql set search_path = push, pg_temp as $$
declare
  v_slot bigint := (extract(epoch from clock_timestamp()) * 200)::bigint;
begin
  -- A commit that notifies takes a database-wide lock, so at most one in each 5 ms does. The key is the time slot: with
  -- a fixed key one long transaction would silence all others.
  if pg_try_advisory_xact_lock(7781, (v_slot % 2000000000)::int + 1000) then
    perform pg_notify('push_outbox', '');
  end if;
end
$$;
comment on function push.ring_doorbell is 'wakes the gateways at commit; a hint, they poll as well';

-- Fan-out -------------------------------------------------------------------------------------------------------------

-- Plans are pinned to indexes: one made while the tables are small would scan them for the rest of the session.
create function push.fill_call() returns trigger
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  -- Too long or missing values are cut or replaced so that the row can be inserted; the statement trigger refuses it.
  new.app := left(coalesce(new.app, 'default'), 65);
  new.kind := coalesce(new.kind, 'incoming_call');
  new.payload := coalesce(new.payload, 'null');
  new.recipients := coalesce(new.recipients, 'null');
  new.call_id := left(coalesce(new.call_id, new.payload ->> 'callId', ''), 129);
  if exists (select from push.outbox o where o.call_id = new.call_id and o.app = new.app) then
    return null;
  end if;
  if new.ring_seconds is null then
    new.ring_seconds := coalesce((select a.ring_seconds from push.apps a where a.app = new.app), 60);
  end if;
  new.state := 'ringing';
  new.created_at := clock_timestamp();
  new.deadline_at := new.created_at + make_interval(secs => new.ring_seconds);
  return new;
end
$$;
comment on function push.fill_call is 'fills in what the backend leaves out; skips a call that exists';

create function push.invite_devices(p_app text, p_user_id text)
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
        and (d.provider <> 'apns' or d.voip)
    ) usable
  ) best
  -- An Expo token of unknown platform may be of a phone that is already reached better.
  where best.rank = best.best_rank and (best.platform is not null or not best.some_known)
  order by best.registered_at desc
  limit 10
$$;
comment on function push.invite_devices is
  'the devices an invite to a user goes to: of each platform those of its best channel, the ten newest; '
  'rank: 1 apns, 2 fcm, 3 expo';

create function push.fan_out() returns trigger
language plpgsql security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set work_mem = '64MB' set jit = off
as $$
begin
  -- "offset 0" keeps a subquery from being merged into the one around it: its columns are computed once, and its rows
  -- are checked before anything is made of them. Nothing but the sort stores rows, so a large COPY stays in memory.
  insert into push.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, environment, platform, user_id,
    token, locale)
  select d.id, row_number() over (partition by d.id order by d.lane, d.token) - 1,
    d.created_at, d.created_at, d.deadline_at, d.lane, d.environment, d.platform, d.user_id, d.token, d.locale
  from (
    -- The same token twice in a call is one delivery.
    select distinct on (t.id, t.lane, t.token) t.*
    from (
      select e.id, e.ordinal, e.created_at, e.deadline_at, v.token collate "C" as token, e.user_id,
        v.environment, v.platform, v.locale,
        case when e.size_faults[v.rank] is null
          then coalesce(l.id,
            push.register_lane(e.app, case v.rank when 1 then 'apns' when 2 then 'fcm' else 'expo' end))
          else push.refuse(e.call_id, e.size_faults[v.rank])::int end as lane
      from (
        select e.id, e.app, e.call_id, e.created_at, e.deadline_at, e.size_faults, e.ordinal, e.entry,
          case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end as user_id,
          coalesce(e.voip_token, e.fcm_token, e.expo_token) as token,
          case when e.voip_token is not null then 1 when e.fcm_token is not null then 2 else 3 end as rank,
          coalesce(e.voip_token, e.fcm_token, e.expo_token) is not null
            or jsonb_typeof(e.entry) = 'object' and e.entry ?| '{voipPushToken,apnsToken,fcmToken,pushToken}' as inline
        from (
          select t.*, push.recipient_fault(t.entry, t.voip_token, t.alert_token, t.fcm_token, t.expo_token) as fault
          from (
            select c.*, r.entry, r.ordinal,
              nullif(r.entry ->> 'voipPushToken', '') as voip_token,
              nullif(r.entry ->> 'apnsToken', '') as alert_token,
              nullif(r.entry ->> 'fcmToken', '') as fcm_token,
              nullif(r.entry ->> 'pushToken', '') as expo_token
            from (
              select c.id, c.app, c.call_id, c.created_at, c.deadline_at, c.recipients,
                -- Below 880 bytes no provider's limit can be reached, whatever the payload holds.
                case when c.bytes > 880 then push.size_faults(c.payload) end as size_faults
              from (
                select n.*, octet_length(n.payload::text) as bytes,
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
        select e.rank, e.token,
          case when e.entry ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
          case when e.rank = 1 or e.entry ->> 'platform' = 'ios' then 1 when e.entry ->> 'platform' = 'android' then 2
            else 0 end::smallint as platform,
          e.entry ->> 'locale' as locale
        where e.inline and e.token is not null
          and not exists (select from push.token_invalidations x where x.token = e.token and x.app = e.app
            and x.provider = case e.rank when 1 then 'apns' when 2 then 'fcm' else 'expo' end)
        union all
        select d.rank, d.token, d.environment, d.platform, d.locale
        from push.invite_devices(e.app, e.user_id) d
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
comment on function push.fan_out is 'refuses bad calls, and makes one delivery a device of the good ones';

create trigger fill_call before insert on push.outbox for each row execute function push.fill_call();
create trigger fan_out after insert on push.outbox referencing new table as new_calls
  for each statement execute function push.fan_out();

create function push.enqueue_call(
  payload jsonb, recipients jsonb, app text default 'default', ring_seconds int default null
) returns table (outbox_id bigint, deliveries int, duplicate boolean)
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
  insert into push.outbox (app, payload, recipients, ring_seconds)
    values (enqueue_call.app, enqueue_call.payload, enqueue_call.recipients, enqueue_call.ring_seconds)
    on conflict (call_id, app) do nothing
    returning id into outbox_id;
  duplicate := not found;
  if duplicate then
    select o.id into outbox_id from push.outbox o
      where o.call_id = enqueue_call.payload ->> 'callId' and o.app = coalesce(enqueue_call.app, 'default');
  end if;
  deliveries := (select count(*) from push.delivery d where d.outbox_id = enqueue_call.outbox_id and d.kind in (0, 3));
  if duplicate then
    deliveries := deliveries + (select count(*) from push.history h
      where h.outbox_id = enqueue_call.outbox_id and h.kind in (0, 3));
  end if;
  return next;
end
$$;
comment on function push.enqueue_call is
  'enqueues one call; deliveries is how many devices it goes to, duplicate is true when (app, callId) existed already';

-- Devices -------------------------------------------------------------------------------------------------------------

create function push.check_device() returns trigger language plpgsql as $$
declare
  v_fault text;
begin
  new.environment := case new.environment when 'development' then 'sandbox'
    else coalesce(new.environment, 'production') end;
  v_fault := case
    when new.user_id is null or length(new.user_id) not between 1 and 256 then 'user_id: must have 1 to 256 characters'
    when not coalesce(push.is_app(new.app), false)
      then 'app: must have 1 to 64 letters, digits, dots, dashes or underscores'
    when new.provider is null or new.provider not in ('apns', 'fcm', 'expo') then 'provider: must be apns, fcm or expo'
    when not coalesce(case new.provider when 'apns' then push.is_apns_token(new.token)
        when 'fcm' then push.is_fcm_token(new.token) else push.is_expo_token(new.token) end, false)
      then format('token: must have the form of a token of provider %s', new.provider)
    when new.environment not in ('production', 'sandbox') then 'environment: must be production or sandbox'
    when new.platform not in ('ios', 'android') then 'platform: must be ios or android, or null'
    when length(new.locale) > 64 then 'locale: must have at most 64 characters'
  end;
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = 'push.devices.' || v_fault,
      schema = 'push', table = 'devices', column = substring(v_fault from '^[a-z_]+');
  end if;
  return new;
end
$$;
comment on function push.check_device is
  'refuses a malformed device with an error that names the column and prints no token';

create trigger check_device before insert or update of user_id, app, provider, token, environment, platform, locale
  on push.devices for each row execute function push.check_device();

revoke execute on all functions in schema push from public;
