-- The channels: the ways to reach a device, one for each provider. This file is the only place that lists them. All other
-- files ask these functions, and a new channel is added here, beside the form of its token (validation.sql), its column
-- in push.phones_of (enqueue.sql), and whether another channel replaces it (second_chances.sql).
--
-- They are functions without a table: the planner replaces a call of an immutable function by its value, so that no plan
-- reads a row or depends on statistics.

-- Names ---------------------------------------------------------------------------------------------------------------

create or replace function push.channels() returns text[] language sql immutable parallel safe as
$$ select '{apns,fcm,expo,webpush}'::text[] $$;
comment on function push.channels is 'the names of all channels, best first: the place in this list is the rank of a channel';

-- A gateway of 0.1.0 knows apns, fcm and expo, and an app whose channels no gateway has named has these. So a later channel is used
-- only for an app that has it in its configuration.
create or replace function push.serves(p_providers text[], p_provider text) returns boolean
language sql immutable parallel safe as $$
  select p_provider = any (coalesce(p_providers, '{apns,fcm,expo}'))
$$;
comment on function push.serves is 'whether an app with these push.apps.providers has a channel';

-- Whoever registers a device names its push service, and must not be able to make lanes. So this list is fixed. The gateway has the same
-- one (WebPushService).
create or replace function push.push_services(p_provider text) returns text[] language sql immutable parallel safe as
$$ select case p_provider when 'webpush' then '{google,mozilla,apple,windows,other}' else '{""}' end::text[] $$;
comment on function push.push_services is
  'who runs the push services behind a channel, each with a lane of its own; one empty name: it is one service';

create or replace function push.push_service(p_provider text, p_token text) returns text language sql immutable parallel safe as $$
  select case when p_provider <> 'webpush' then ''
    when p_token ~* '^https://([^/:]*[.])?(fcm[.]googleapis|google)[.]com[:/]' then 'google'
    when p_token ~* '^https://([^/:]*[.])?push[.]services[.]mozilla[.]com[:/]' then 'mozilla'
    when p_token ~* '^https://([^/:]*[.])?push[.]apple[.]com[:/]' then 'apple'
    when p_token ~* '^https://([^/:]*[.])?notify[.]windows[.]com[:/]' then 'windows'
    else 'other' end
$$;
comment on function push.push_service is 'which of push.push_services a push to this token goes to';

-- Platforms -----------------------------------------------------------------------------------------------------------

create or replace function push.platform_code(p_platform text, p_provider text) returns smallint
language sql immutable parallel safe as $$
  select case coalesce(p_platform, case p_provider when 'apns' then 'ios' when 'fcm' then 'android' when 'webpush' then 'web' end)
    when 'ios' then 1 when 'android' then 2 when 'web' then 3 else 0 end::smallint
$$;
comment on function push.platform_code is 'push.delivery.platform of a device, by its channel if it names none; 0: unknown';

-- Tokens --------------------------------------------------------------------------------------------------------------

-- An APNs token loses <, > and blanks, with which phones print it, others the blanks around them. The subscription of a browser gets
-- its canonical form.
create or replace function push.channel_token(p_provider text, p_token text) returns text
language sql immutable parallel safe as $$
  select case p_provider
    when 'apns' then case when push.is_token('apns', translate(p_token, E'<> \t\r\n', ''))
      then translate(p_token, E'<> \t\r\n', '') end
    when 'webpush' then push.webpush_token(p_token)
    else case when push.is_token(p_provider, btrim(p_token, E' \t\r\n')) then btrim(p_token, E' \t\r\n') end
  end
$$;
comment on function push.channel_token is 'a token as it is used; null: it does not have the form of a token of this provider';

-- The hexadecimal digits of an APNs token may be capitals or small letters: it is the same token. Tables keep the text that the backend
-- gave, and give it back. So texts are compared by push.token_key, and rows are looked up by push.token_digests: in small letters, in
-- capitals, and as given. The indexes on the digest of the text find these. One on the small letters would have to read all of
-- push.devices, and no phone could register meanwhile.
create or replace function push.token_key(p_provider text, p_token text) returns text language sql immutable parallel safe as
$$ select case p_provider when 'apns' then lower(p_token) else p_token end $$;
comment on function push.token_key is 'a token as it is compared with others: one of APNs in small letters';

create or replace function push.token_digests(p_provider text, p_token text) returns bytea[] language sql immutable parallel safe as $$
  select case p_provider when 'apns' then array[sha256(lower(p_token)::bytea), sha256(upper(p_token)::bytea), sha256(p_token::bytea)]
    else array[sha256(p_token::bytea)] end
$$;
comment on function push.token_digests is 'digests of the texts with which a token may be stored, for look-ups by the indexes on sha256(token)';

-- The planner puts this function into the query that calls it.
create or replace function push.deaths_of(p_app text, p_provider text, p_token text)
returns table (tid tid, invalidated_at timestamptz) language sql stable as $$
  select x.ctid, x.invalidated_at from push.token_invalidations x
  where sha256(x.token::bytea) = any (push.token_digests(p_provider, p_token)) and x.app = p_app and x.provider = p_provider
  offset 0
$$;
comment on function push.deaths_of is 'where it is noted that a token is dead, in whatever letters';

create or replace function push.recipient_members(p_are_misnamed boolean default false) returns text[]
language sql immutable parallel safe as $$
  select case when p_are_misnamed
    then '{voip_push_token,voipToken,voip_token,voipTokens,voip_tokens,voip,apns_token,apnToken,apns,fcm_token,firebaseToken,firebase_token,fcm,'
      'push_token,expoPushToken,expo_push_token,expoToken,expo_token,expo,web_push_subscription,pushSubscription,push_subscription,'
      'subscription,notification_enabled,notificationsEnabled,notifications_enabled}'
    else '{userId,voipPushToken,apnsToken,fcmToken,pushToken,webPushSubscription,platform,environment,locale,data,notificationEnabled,'
      'missedCall}' end::text[]
$$;
comment on function push.recipient_members is
  'the members that an object in recipients may have; p_are_misnamed: instead, names that backends give to some of them';

-- A backend passes on a row of its own: then a phone would not ring, or one would whose owner has switched notifications off. What has such
-- a name, and could be no token (a plan's name as subscription), is left alone.
create or replace function push.misnamed(p_entry jsonb, out name text, out member text) language sql immutable parallel safe as $$
  select n.name, m.member
  from unnest(push.recipient_members(true)) with ordinality n(name, i) cross join lateral (
    select case when n.name like 'voip%' then 'voipPushToken' when n.name like 'apn%' then 'apnsToken'
      when n.name ~ 'fcm|firebase' then 'fcmToken' when n.name ~* 'subscription' then 'webPushSubscription'
      when n.name like 'notification%' then 'notificationEnabled' else 'pushToken' end) m(member)
  where coalesce(p_entry ->> m.member, '') = '' and case
    when m.member = 'notificationEnabled' then p_entry -> n.name not in ('true', 'null')
    else length(p_entry ->> n.name) >= 20 and (jsonb_typeof(p_entry -> n.name) in ('string', 'array') or p_entry -> n.name ? 'endpoint') end
  order by n.i limit 1
$$;
comment on function push.misnamed is
  'a token, or the switch that is off, that an entry has under another name (name), and not under its own (member); null: none';

create or replace function push.has_token_member(p_entry jsonb) returns boolean language sql immutable parallel safe as
$$ select p_entry ?| '{voipPushToken,apnsToken,fcmToken,pushToken,webPushSubscription}' $$;
comment on function push.has_token_member is 'whether an entry of recipients has a token: it is one device; others name a user';

create or replace function push.entry_user(p_entry jsonb) returns text language sql immutable parallel safe as
$$ select case jsonb_typeof(p_entry) when 'string' then p_entry #>> '{}' else p_entry ->> 'userId' end $$;
comment on function push.entry_user is 'the user that an entry of recipients names. p_entry: an element of push.outbox.recipients';

create or replace function push.entry_tokens(p_entry jsonb, p_is_call boolean)
returns table (rank int, provider text, token text) language sql immutable parallel safe as $$
  select t.rank, t.provider, t.token
  from (values
    (1, 'apns', push.channel_token('apns', p_entry ->> case when p_is_call then 'voipPushToken' else 'apnsToken' end)),
    (2, 'fcm', push.channel_token('fcm', p_entry ->> 'fcmToken')),
    (3, 'expo', push.channel_token('expo', p_entry ->> 'pushToken')),
    (4, 'webpush', push.channel_token('webpush', p_entry ->> 'webPushSubscription'))) t(rank, provider, token)
  where t.token is not null
$$;
comment on function push.entry_tokens is 'the usable tokens of an entry of recipients: for a call the VoIP token, else the alert token';

-- An entry with an APNs token is an iPhone, even if it is reached over another channel. An Android phone rings on a data message alone, and
-- an iPhone does not show one.
create or replace function push.entry_platform(p_provider text, p_entry jsonb) returns smallint
language sql immutable parallel safe as $$
  select case p_provider when 'apns' then 1 when 'webpush' then 3 else
    case when p_entry ->> 'platform' = 'ios' then 1 when p_entry ->> 'platform' = 'android' then 2
      when p_entry ->> 'voipPushToken' <> '' or p_entry ->> 'apnsToken' <> '' then 1 else 0 end end::smallint
$$;
comment on function push.entry_platform is 'push.delivery.platform of an entry of recipients that is reached over a channel';

-- Tables --------------------------------------------------------------------------------------------------------------

comment on column push.lane.provider is 'apns, fcm or another of push.channels()';
comment on column push.devices.provider is 'apns, fcm or another of push.channels()';
comment on column push.devices.token is
  'the token: 64 to 200 hex digits (apns), in small letters unless all letters are capitals, FCM registration token, Expo push '
  'token, or a browser''s subscription as '
  'push.webpush_token writes it';
comment on column push.devices.platform is 'ios, android, web or unknown (null)';
comment on column push.token_invalidations.provider is 'apns, fcm or another of push.channels()';
comment on column push.quarantined_tokens.provider is 'apns, fcm or another of push.channels()';
comment on column push.apps.providers is
  'the channels that the configuration has for the app; null: unknown, as apns, fcm and expo. Tokens of others are skipped';
comment on column push.outbox.recipients is
  'array of up to 1000 user ids, or objects {userId, voipPushToken, apnsToken, fcmToken, pushToken, webPushSubscription, '
  'platform, environment, locale, data, notificationEnabled}';
comment on column push.delivery.platform is '0 unknown, 1 ios, 2 android, 3 web';
