-- Checks of what a backend enqueues. A fault of the call itself refuses the call: each *_fault function returns null if
-- there is none, else the path of the field and the remedy, and the trigger raises an error that contains no value. A fault
-- of one recipient affects only that recipient (docs/adr/0025).
--
-- The checks are plain expressions, so that the planner inlines them: a function call for each recipient would cost more
-- than the check. Lengths are compared, not written as {64,200}: a bounded repetition makes PostgreSQL's regular
-- expressions 70 times slower. A backslash is only in literals that begin with E: what is inlined is parsed with the settings of the
-- caller, who may have standard_conforming_strings = off.

-- Names, tokens, kinds ------------------------------------------------------------------------------------------------

create or replace function push.app_fault(p_app text) returns text language sql immutable parallel safe as $$
  select case when not coalesce(p_app ~ '^[A-Za-z0-9]' and p_app !~ '[^A-Za-z0-9_.-]' and length(p_app) <= 64, false)
    then 'app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores' end
$$;
comment on function push.app_fault is 'the fault of a name of an app; null: none';

-- Of a browser's subscription, the endpoint comes first and the public key last: the masks of tokens show the first and the last
-- four characters, and four characters of auth would be 24 of its 128 bits. The last character of a key is compared, too: base64url
-- has unused bits there, and the same subscription must not have two forms. The first two characters of the public key are those of
-- an uncompressed point.
--
-- What is accepted here must be accepted by the gateway (WebPushSubscription), or the call would be skipped late. Both are
-- tested with Tests/webpush/subscriptions.json. Two things only the gateway checks: whether the public key is a point on the
-- curve, and whether the host is allowed.
--
-- The token of a browser is ENDPOINT#auth=AUTH&p256dh=KEY: an https URL with a host name and a port that exist, the keys in base64url
-- without padding (16 and 65 bytes), at most 1,000 characters in all.
create or replace function push.is_token(p_provider text, p_token text) returns boolean language sql immutable parallel safe as $$
  select case p_provider
    when 'apns' then length(p_token) between 64 and 200 and length(p_token) % 2 = 0 and p_token !~ '[^0-9A-Fa-f]'
    when 'fcm' then length(p_token) between 20 and 4096 and p_token !~ '[^A-Za-z0-9_:%.-]'
    when 'expo' then case when p_token like 'ExponentPushToken[_%]' or p_token like 'ExpoPushToken[_%]'
        then length(p_token) <= 256 and p_token !~ '[^]A-Za-z0-9_:%.[-]'
      else p_token like '________-____-____-____-____________'
        and length(replace(p_token, '-', '')) = 32 and p_token !~ '[^0-9A-Fa-f-]' end
    when 'webpush' then length(p_token) between 133 and 1000
      and left(right(p_token, 123), 6) = '#auth=' and left(right(p_token, 95), 8) = '&p256dh='
      and left(right(p_token, 117), 22) !~ '[^A-Za-z0-9_-]' and right(p_token, 87) !~ '[^A-Za-z0-9_-]'
      and left(right(p_token, 96), 1) in ('A', 'Q', 'g', 'w')
      and left(right(p_token, 87), 2) ~ '^B[A-P]' and right(p_token, 1) ~ '[AEIMQUYcgkosw048]'
      and left(p_token, -123) ~ '^https://[A-Za-z0-9-]+([.][A-Za-z0-9-]+)*(:[0-9][0-9]?[0-9]?[0-9]?[0-9]?)?/[!-~]*$'
      and left(p_token, -123) !~ E'["#<>\\\\^`{|}]'
      and length(split_part(split_part(p_token, '/', 3), ':', 1)) <= 253
      and lpad(coalesce(nullif(split_part(split_part(p_token, '/', 3), ':', 2), ''), '443'), 5, '0') collate "C"
        between '00001' and '65535' end
$$;
comment on function push.is_token is 'whether a text has the form of a token of a channel';

-- A text that begins with { is the JSON of a PushSubscription. It is not parsed: an error of the parser would show it. The
-- members are cut out. An endpoint and keys have no character that JSON must escape, but some libraries escape / as \/, and
-- = & + as \u003d \u0026 \u002b. It is not called at all for null, and so costs nothing where there is no browser.
create or replace function push.webpush_token(p_token text) returns text
language sql immutable parallel safe returns null on null input as $$
  select case when push.is_token('webpush', t.token) then t.token end
  from (
    select case when left(btrim(p_token, E' \t\r\n'), 1) = '{' and length(p_token) <= 4096 then
        substring(j.text from '"endpoint"[[:space:]]*:[[:space:]]*"([^"]*)"')
        || '#auth=' || rtrim(translate(substring(j.text from '"auth"[[:space:]]*:[[:space:]]*"([^"]*)"'), '+/', '-_'), '=')
        || '&p256dh=' || rtrim(translate(substring(j.text from '"p256dh"[[:space:]]*:[[:space:]]*"([^"]*)"'), '+/', '-_'), '=')
      else btrim(p_token, E' \t\r\n') end as token
    from (
      select case when strpos(p_token, E'\\') = 0 then p_token
        else regexp_replace(regexp_replace(regexp_replace(replace(p_token, E'\\/', '/'),
          E'\\\\u003d', '=', 'gi'), E'\\\\u0026', '&', 'gi'), E'\\\\u002b', '+', 'gi') end as text
    ) j
  ) t
$$;
comment on function push.webpush_token is 'the subscription of a browser in its canonical form; null: it is none';

create or replace function push.is_call(p_kind text) returns boolean language sql immutable parallel safe as
$$ select p_kind in ('incoming_call', 'video_call') $$;
comment on function push.is_call is 'whether a kind of push.outbox rings';

create or replace function push.is_message(p_kind text) returns boolean language sql immutable parallel safe as
$$ select p_kind in ('message', 'group_message', 'group_invite') $$;
comment on function push.is_message is 'whether a kind of push.outbox belongs to a chat';

create or replace function push.given_call_id(p_kind text, p_payload jsonb) returns text language sql immutable parallel safe as $$
  select case when push.is_message(p_kind) then coalesce(p_payload ->> 'callId', p_payload ->> 'messageId')
    else p_payload ->> 'callId' end
$$;
comment on function push.given_call_id is 'the call_id in a payload; null: none';

-- Faults --------------------------------------------------------------------------------------------------------------

-- JSON may write a number in a few characters that takes thousands as text: 1e131071, 0e-16383. A float of 64 bits in
-- ordinary use stays within these limits.
create or replace function push.has_long_number(p_value jsonb) returns boolean language sql immutable parallel safe as $$
  select exists (select from jsonb_path_query(p_value, 'strict $.** ? (@.type() == "number")') n
    where abs(n::numeric) >= 1e30 or scale(n::numeric) > 30 and (abs(n::numeric) < 1e-30 or scale(n::numeric) > 60))
$$;
comment on function push.has_long_number is 'whether a JSON value has a number whose text is far longer than its JSON';

create or replace function push.call_fault(
  p_app text, p_kind text, p_call_id text, p_payload jsonb, p_recipients jsonb, p_ring_seconds int, p_takes_text boolean
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
    when push.app_fault(p_app) is not null then push.app_fault(p_app)
    when push.is_call(p_kind) and p_ring_seconds not between 1 and 600
      then 'ring_seconds: must be 1 to 600 seconds; leave it out for the app''s own ring window'
    when not push.is_call(p_kind) and p_ring_seconds not between 1 and 2419200
      then 'ring_seconds: must be 1 to 2419200 seconds, a notification''s time to live; leave it out for four hours'
    when jsonb_typeof(p_recipients -> 'tooManyBytes') = 'number'
      then 'recipients: has ' || (p_recipients ->> 'tooManyBytes') || ' bytes, the limit is 2097152; split the call'
    when jsonb_typeof(p_recipients) <> 'array'
      then 'recipients: must be an array of user ids or objects'
    when jsonb_array_length(case jsonb_typeof(p_recipients) when 'array' then p_recipients end) > 1000
      then 'recipients: must have at most 1000 entries; split the call'
    -- A function is called only for such numbers, and for 0, which may have thousands of decimals.
    when case when p_payload @? 'strict $.** ? (@.type() == "number" && (@ >= 1e30 || @ <= -1e30 || @ < 1e-30 && @ > -1e-30))'
        then push.has_long_number(p_payload) end
      then 'payload: has a number that is too large or too small; write it as text'
    when case when p_recipients @? 'strict $.** ? (@.type() == "number" && (@ >= 1e30 || @ <= -1e30 || @ < 1e-30 && @ > -1e-30))'
        then push.has_long_number(p_recipients) end
      then 'recipients: has a number that is too large or too small; write it as text'
    when push.is_message(p_kind) and p_takes_text and jsonb_typeof(p_payload -> 'text') not in ('string', 'null')
      then 'payload.text: must be a string, or left out'
    -- A name that suggests the text, of a member of the payload, or at any depth of its metadata. The letters of a pattern have
    -- the same capitals in every database; lower() would follow its collation, in which I may be no capital of i.
    when push.is_message(p_kind) then 'payload.' || coalesce(
        jsonb_path_query_first(case when p_takes_text then p_payload - 'text' else p_payload end, 'strict $.keyvalue() ? (@.value != null).key
          ? (@ like_regex "^(body|text|message|content|preview|snippet|subject|html)$" flag "i")') #>> '{}',
        'metadata.' || (jsonb_path_query_first(p_payload -> 'metadata', 'strict $.** ? (@.type() == "object").keyvalue()
          ? (@.value != null).key ? (@ like_regex "^(body|text|message|content|preview|snippet|subject|html)$" flag "i")') #>> '{}'))
      || case when p_takes_text then ': the text of a message is payload.text; rename it, or leave it out'
        else ': a message''s text does not travel in a push; leave it out' end
  end)
$$;
comment on function push.call_fault is
  'the fault of a call, without the entries of its recipients; null: none. p_takes_text: whether its app shows the text of messages';

-- A recipient that cannot be used affects only itself: it is skipped, and push.skipped_recipients reports it.

-- A huge entry is not examined: every access to a text of megabytes takes time. (Stable, because pg_column_size is: the
-- planner inlines no function that is declared less volatile than its body.)
create or replace function push.is_recipient(p_entry jsonb) returns boolean language sql stable parallel safe as $$
  select case when pg_column_size(p_entry) > 16384 then false else case jsonb_typeof(p_entry)
    when 'string' then length(p_entry #>> '{}') between 1 and 256
    when 'object' then coalesce(jsonb_typeof(p_entry -> 'userId') = 'string'
      and length(p_entry ->> 'userId') between 1 and 256, false)
      -- "false" as a text may mean that the user wants no notifications.
      and coalesce(jsonb_typeof(p_entry -> 'notificationEnabled') in ('boolean', 'null'), true)
      -- The names of push.misnamed are looked for first, which is quick.
      and not (p_entry ?| push.recipient_members(true) and push.misnamed(p_entry) is not null)
    else false
  end end
$$;
comment on function push.is_recipient is 'whether an entry of recipients names a user; its tokens are checked separately';

create or replace function push.recipient_locale(p_entry jsonb) returns text language sql immutable parallel safe as $$
  select case when jsonb_typeof(p_entry -> 'locale') = 'string' and length(p_entry ->> 'locale') <= 64
    then p_entry ->> 'locale' end
$$;
comment on function push.recipient_locale is 'the locale of an entry of recipients; null: it has none that can be used';

create or replace function push.recipient_data(p_entry jsonb) returns jsonb language sql immutable parallel safe as $$
  select case when jsonb_typeof(p_entry -> 'data') is distinct from 'object' or p_entry -> 'data' = '{}' then null
    -- Before anything becomes text: only that of texts is about as long as their JSON.
    when (p_entry -> 'data') @? 'strict $.* ? (@.type() != "string")' then null
    when octet_length((p_entry -> 'data')::text) <= 1024 then p_entry -> 'data' end
$$;
comment on function push.recipient_data is 'the data of an entry of recipients, for templates; null: none that can be used';

-- A value that is no text, or has more than 1,024 bytes, is no token, and may be megabytes: it is not read.
create or replace function push.voip_tokens(p_recipients jsonb) returns text[] language sql immutable parallel safe as $$
  select array(
    select lower(translate(t.token #>> '{}', E'<> \t\r\n', ''))
    from jsonb_path_query(p_recipients, 'lax $[*].voipPushToken') t(token)
    where case when jsonb_typeof(t.token) = 'string' then octet_length(t.token #>> '{}') <= 1024 end)
$$;
comment on function push.voip_tokens is 'the VoIP tokens of recipients, in small letters, without <, > and blanks';

create or replace function push.token_remedy(p_provider text, p_token text) returns text language sql immutable parallel safe as $$
  select case
    when p_provider <> 'expo' and p_token like 'Expo%[%]' and push.is_token('expo', p_token)
      then 'is an Expo push token; give it as pushToken'
    when p_provider <> 'webpush' and push.webpush_token(p_token) is not null
      then 'is a browser''s subscription; give it as webPushSubscription'
    when p_provider in ('expo', 'webpush') and push.is_token('apns', p_token)
      then 'has the form of an APNs token; give it as voipPushToken or apnsToken'
    when p_provider <> 'fcm' and push.is_token('fcm', p_token) and (p_provider in ('expo', 'webpush') or p_token like '%:%')
      then 'has the form of an FCM registration token; give it as fcmToken'
    when p_provider = 'apns' then 'must be 64 to 200 hexadecimal digits, an even number'
    when p_provider = 'fcm' then 'must be an FCM registration token: 20 to 4096 letters, digits or any of _ : % . -'
    when p_provider = 'expo' then 'must be ExponentPushToken[...], ExpoPushToken[...] or a UUID'
    when p_provider = 'webpush' then 'must be the browser''s PushSubscription: an object with endpoint (https), keys.p256dh and keys.auth, '
      'at most 1000 characters in all' end
$$;
comment on function push.token_remedy is 'what to do with a malformed token: where it belongs, or what it must be';

-- The reason is RecipientMalformed (the whole entry), TokenMalformed, TokenMisplaced (a token of another provider),
-- ProviderNotConfigured, or MemberIgnored (the device is reached all the same). field: for example recipients[1].fcmToken.
create or replace function push.recipient_faults(p_recipients jsonb, p_kind text, p_app text)
returns table (i int, user_id text, reason text, field text, remedy text)
language sql stable as $$
  with entry as materialized (
    select (e.ordinal - 1)::int as i, e.entry, format('recipients[%s]', e.ordinal - 1) as path,
      push.is_recipient(e.entry) as is_usable,
      left(case when jsonb_typeof(e.entry) = 'string' then e.entry #>> '{}'
        when jsonb_typeof(e.entry -> 'userId') = 'string' then e.entry ->> 'userId' end, 256) as user_id
    from jsonb_array_elements(case jsonb_typeof(p_recipients) when 'array' then p_recipients end)
      with ordinality e(entry, ordinal)
    where e.entry -> 'notificationEnabled' is distinct from 'false'
  ), token as materialized (
    select e.*, t.*, push.channel_token(t.provider, t.token) is not null as is_good,
      push.serves(a.providers, t.provider) as is_served
    from entry e
    cross join lateral (values
      ('voipPushToken', 'apns', push.is_call(p_kind), translate(e.entry ->> 'voipPushToken', E'<> \t\r\n', '')),
      ('apnsToken', 'apns', not push.is_call(p_kind), translate(e.entry ->> 'apnsToken', E'<> \t\r\n', '')),
      ('fcmToken', 'fcm', true, btrim(e.entry ->> 'fcmToken', E' \t\r\n')),
      ('pushToken', 'expo', true, btrim(e.entry ->> 'pushToken', E' \t\r\n')),
      ('webPushSubscription', 'webpush', true, e.entry ->> 'webPushSubscription')) t(member, provider, is_asked, token)
    left join push.apps a on a.app = p_app
    where e.is_usable and t.token <> ''
  )
  select e.i, e.user_id, 'RecipientMalformed', e.path || w.member, w.remedy
  from entry e cross join lateral push.misnamed(e.entry) l cross join lateral (
    select m.* from (values
      (1, '', pg_column_size(e.entry) > 16384, 'must have at most 16384 bytes; is one of its tokens something else?'),
      (2, '', jsonb_typeof(e.entry) = 'string', 'must be a user id of 1 to 256 characters'),
      (3, '', jsonb_typeof(e.entry) <> 'object', 'must be a user id, or an object with a userId'),
      (4, '.userId', jsonb_typeof(e.entry -> 'userId') is distinct from 'string' or length(e.entry ->> 'userId') not between 1 and 256,
        'must be a string of 1 to 256 characters'),
      (5, '.notificationEnabled', coalesce(jsonb_typeof(e.entry -> 'notificationEnabled') not in ('boolean', 'null'), false),
        'must be true or false, or left out'),
      (6, '.' || l.name, true, 'is not read; write ' || l.member)) m(place, member, is_bad, remedy)
    where m.is_bad order by m.place limit 1
  ) w
  where not e.is_usable
  union all
  select e.i, e.user_id, 'MemberIgnored', e.path || m.member, m.remedy || ', or left out; it was ignored'
  from entry e cross join lateral (values
    ('.platform', e.entry ->> 'platform' not in ('ios', 'android')
      and not (e.entry ->> 'platform' = 'web' and e.entry ? 'webPushSubscription'), 'must be ios or android'),
    ('.environment', e.entry ->> 'environment' not in ('production', 'sandbox', 'development'), 'must be production or sandbox'),
    ('.locale', e.entry -> 'locale' <> 'null' and push.recipient_locale(e.entry) is null, 'must be a string of at most 64 characters'),
    ('.missedCall', jsonb_typeof(e.entry -> 'missedCall') not in ('boolean', 'null'), 'must be true or false'),
    ('.data', e.entry -> 'data' not in ('null', '{}') and push.recipient_data(e.entry) is null,
      'must be an object of texts, 1024 bytes at most')) m(member, is_bad, remedy)
  where e.is_usable and m.is_bad
  union all
  select e.i, e.user_id, 'MemberIgnored', e.path || '.' || k.name, 'is not known, and was ignored'
  from entry e cross join lateral (
    select k.name from jsonb_object_keys(case jsonb_typeof(e.entry) when 'object' then e.entry - push.recipient_members() else '{}' end) k(name)
    -- A name may be a token.
    where k.name ~ '^[A-Za-z_]+$' and length(k.name) <= 32 limit 10
  ) k
  where e.is_usable
  union all
  select t.i, t.user_id, case when r.remedy like 'must %' then 'TokenMalformed' else 'TokenMisplaced' end, t.path || '.' || t.member, r.remedy
  from token t cross join lateral push.token_remedy(t.provider, t.token) r(remedy)
  where not t.is_good
  union all
  -- Recipients that have no token that could be used.
  select t.i, t.user_id, 'ProviderNotConfigured', t.path || '.' || t.member,
    format('app %s has no %s in the gateway''s configuration; add it, or give another token', left(p_app, 64), t.provider)
  from token t
  where t.is_good and t.is_asked and not t.is_served
    and not exists (select from token x where x.i = t.i and x.is_good and x.is_asked and x.is_served)
$$;
comment on function push.recipient_faults is 'parts of recipients that cannot be used, except in entries with notificationEnabled false';

-- Usually nobody is skipped, which is quickly checked.
create or replace view push.calls_that_skip as
select o.id from push.outbox o
cross join lateral (select (select a.providers from push.apps a where a.app = o.app) as providers offset 0) p
where exists (
  select from jsonb_array_elements(o.recipients) e
  -- What push.recipient_faults finds, and a token with blanks around it.
  where not push.is_recipient(e)
    or not push.is_token('apns', nullif(e ->> 'voipPushToken', ''))
    or not push.is_token('apns', nullif(e ->> 'apnsToken', ''))
    or not push.is_token('fcm', nullif(e ->> 'fcmToken', ''))
    or not push.is_token('expo', nullif(e ->> 'pushToken', ''))
    or e ->> 'webPushSubscription' <> '' and push.webpush_token(nullif(e ->> 'webPushSubscription', '')) is null
    or e ->> 'platform' not in ('ios', 'android') and not (e ->> 'platform' = 'web' and e ? 'webPushSubscription')
    or e ->> 'environment' not in ('production', 'sandbox', 'development')
    or jsonb_typeof(e -> 'locale') not in ('string', 'null') or length(e ->> 'locale') > 64
    or jsonb_typeof(e -> 'missedCall') not in ('boolean', 'null')
    or e -> 'data' not in ('null', '{}') and push.recipient_data(e) is null
    or not exists (select from push.delivery d where d.outbox_id = o.id and d.user_id = push.entry_user(e))
    or jsonb_typeof(e) = 'object' and (e - push.recipient_members() <> '{}'
      or not push.serves(p.providers, 'apns') and e ?| '{voipPushToken,apnsToken}'
      or not push.serves(p.providers, 'fcm') and e ? 'fcmToken' or not push.serves(p.providers, 'expo') and e ? 'pushToken'
      or not push.serves(p.providers, 'webpush') and e ? 'webPushSubscription'));
comment on view push.calls_that_skip is 'the calls of which push.skipped_recipients has something to tell, soon after they were enqueued';

create or replace function push.size_faults(p_payload jsonb, p_is_call boolean default true) returns text[]
language plpgsql immutable as $$
declare
  -- The title, body, sound and channel around the data, on Expo or in an alert.
  c_alert_envelope constant int := 512;
  -- The gateway shortens the names that apps only show, if a push is too large with them (CallData.withShortNames). Three dots have as
  -- many bytes as its ellipsis. Of the text of a message, a push has at most 1,000 bytes (TemplateRenderer).
  v_payload jsonb := p_payload || (select coalesce(jsonb_object_agg(key, left(value #>> '{}', 63) || '...'), '{}') from jsonb_each(p_payload)
    where key in ('fromName', 'callerName', 'apartmentNumber', 'buildingName', 'groupName')
      and jsonb_typeof(value) = 'string' and length(value #>> '{}') > 64) || case when not p_is_call and p_payload ? 'text'
    then jsonb_build_object('text', repeat('x', least(octet_length((p_payload -> 'text')::text), 1000))) else '{}' end;
  v_text    text := v_payload::text;
  v_escapes int := length(v_text) - length(translate(v_text, E'"\\', ''));  -- one more byte each inside a JSON string
  v_nested  int;  -- the same for the members that FCM carries as a JSON string of their own
  v_members int;
begin
  -- jsonb prints a blank after every ':' and ',' between members; a push has none. Numbers and booleans become strings. Beside the payload,
  -- a rendered push has type, action, timestamp, expiresAt, seq, isVoip and a default fromName: 256 bytes, with 40 quotes.
  select octet_length(v_text) + 256 + 2 * count(*) filter (where jsonb_typeof(value) in ('number', 'boolean')),
      coalesce(sum(length(value::text) - length(translate(value::text, E'"\\', ''))) filter (where jsonb_typeof(value) in ('object', 'array')), 0)
    into v_members, v_nested
    from jsonb_each(v_payload);
  v_members := v_members - (
    select coalesce(sum(case jsonb_typeof(node)
      when 'object' then greatest(2 * (select count(*) from jsonb_object_keys(node)) - 1, 0)
      when 'array' then greatest(jsonb_array_length(node) - 1, 0) end), 0)
    from jsonb_path_query(v_payload, 'strict $.**') node);
  return array(
    select case when l.bytes > l.most then
      format('payload: up to %s bytes when rendered for %s, the limit is %s; shorten it, metadata first', l.bytes, l.provider, l.most) end
    from (values
      (1, case when p_is_call then 'APNs VoIP' else 'an APNs alert' end, v_members + case when p_is_call then 0 else c_alert_envelope end,
        case when p_is_call then 5120 else 4096 end),
      -- Flat string keys, and `body` with the whole object again as an escaped string.
      (2, 'FCM', v_members + v_nested + 2 + v_members + v_escapes + 40, 4096),
      (3, 'Expo', v_members + c_alert_envelope, 4096),
      (4, 'web push', v_members + c_alert_envelope, 3993)) l(rank, provider, bytes, most)
    order by l.rank);
end
$$;
comment on function push.size_faults is 'by rank of the channel: the fault in the size of a payload with short names; null: none. '
  'p_is_call: as a VoIP push';
