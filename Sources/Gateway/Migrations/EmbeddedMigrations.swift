// The files of migrations/, made by scripts/embed-migrations.sh: edit those, not this.
// swift-format-ignore-file

extension Migration {
  /// In order of their versions.
  static let embedded: [Migration] = [
    Migration(version: 1, name: "schema", sql: migration0001),
    Migration(version: 2, name: "enqueue", sql: migration0002),
    Migration(version: 3, name: "gateway", sql: migration0003),
    Migration(version: 4, name: "ops", sql: migration0004),
    Migration(version: 5, name: "call_rules", sql: migration0005),
    Migration(version: 6, name: "provider_tokens", sql: migration0006),
    Migration(version: 7, name: "second_chances", sql: migration0007),
    Migration(version: 8, name: "notifications", sql: migration0008),
  ]
}

private let migration0001 = ###"""
-- The tables of push-gateway: what a backend writes, what is still owed, what became of it.
--
-- A call is one row of push.outbox. Inserting it fans out one narrow row of push.delivery a device (0002); a gateway
-- claims those rows, and settling one moves it to push.history in the same statement (0003). The hot table therefore
-- holds only unfinished work, and its cost does not depend on how much was ever sent.
--
-- Codes, decoded by the views of 0004:
--   kind         0 invite, 1 cancel, 2 missed_call, 3 notification
--   state        0 ready, 1 claimed, 2 waiting
--   outcome      0 delivered, 1 delivered_late, 2 void, 3 expired, 4 dead
--   environment  0 production, 1 sandbox
--   platform     0 unknown, 1 ios, 2 android

create schema if not exists push;
comment on schema push is 'push-gateway: the outbox, its deliveries and their history';
revoke all on schema push from public;

-- What the gateway's configuration says -------------------------------------------------------------------------------

create table push.apps (
  app          text primary key,
  ring_seconds int not null,
  updated_at   timestamptz not null default clock_timestamp(),
  constraint apps_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64),
  constraint apps_ring_seconds_range check (ring_seconds between 1 and 600)
);
comment on table push.apps is 'one app of the gateway''s configuration, as far as enqueueing needs it';
comment on column push.apps.app is 'name of the app: the key under apps in the configuration';
comment on column push.apps.ring_seconds is 'ring window of a call that gives none of its own, in seconds, 1 to 600';
comment on column push.apps.updated_at is 'when a gateway last changed the row';

create table push.lane (
  id         smallint generated always as identity primary key,
  app        text not null,
  provider   text not null,
  paused     boolean not null default false,
  note       text,
  updated_at timestamptz not null default clock_timestamp(),
  constraint lane_app_provider unique (app, provider),
  constraint lane_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64),
  constraint lane_provider_known check (provider in ('apns', 'fcm', 'expo'))
);
comment on table push.lane is 'one app and provider: deliveries of different lanes never wait for one another';
comment on column push.lane.id is 'small number that deliveries carry';
comment on column push.lane.app is 'name of the app';
comment on column push.lane.provider is 'apns, fcm or expo';
comment on column push.lane.paused is 'true: nothing is claimed from this lane, its deliveries wait or expire';
comment on column push.lane.note is 'why it is paused, or whatever ops want to remember';
comment on column push.lane.updated_at is 'when the row last changed';

create table push.gateways (
  id           int generated always as identity primary key,
  name         text not null,
  version      text not null,
  alive        boolean not null default true,
  started_at   timestamptz not null default clock_timestamp(),
  heartbeat_at timestamptz not null default clock_timestamp(),
  ended_at     timestamptz,
  ended_reason text,
  constraint gateways_ended check (alive = (ended_at is null) and alive = (ended_reason is null)),
  constraint gateways_ended_reason_known check (ended_reason in ('retired', 'silent'))
) with (fillfactor = 50);
comment on table push.gateways is 'one life of one gateway process; its id is the fence, so it is never used again';
comment on column push.gateways.id is 'identity of this life: the owner of what it claims';
comment on column push.gateways.name is 'host or pod name, for people';
comment on column push.gateways.version is 'version of the program';
comment on column push.gateways.alive is 'false once retired or found silent: it can claim nothing more';
comment on column push.gateways.started_at is 'when it registered';
comment on column push.gateways.heartbeat_at is 'when it was last heard';
comment on column push.gateways.ended_at is 'when it ended or was declared dead';
comment on column push.gateways.ended_reason is 'retired (clean shutdown) or silent (missed its heartbeats)';

-- What the backend writes ---------------------------------------------------------------------------------------------

-- The columns a backend fills carry no CHECK: a CHECK's error prints the failing row with its tokens. The statement
-- trigger of 0002 refuses the same rows with an error that names the field and prints no value.
create table push.outbox (
  id           bigint generated always as identity (cache 32) primary key,
  app          text not null default 'default',
  kind         text not null default 'incoming_call',
  call_id      text not null,
  payload      jsonb not null,
  recipients   jsonb not null,
  ring_seconds int not null,
  state        text not null default 'ringing',
  created_at   timestamptz not null default clock_timestamp(),
  deadline_at  timestamptz not null,
  constraint outbox_call unique (call_id, app),
  constraint outbox_state_known check (state in ('ringing', 'answered', 'ended', 'missed'))
) with (
  fillfactor = 90, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000,
  autovacuum_vacuum_cost_delay = 0
);
comment on table push.outbox is
  'one call as the backend wrote it: insert (app, payload, recipients [, kind, ring_seconds]), the rest is filled in';
comment on column push.outbox.id is 'number of the call; unique, but not in order of insertion';
comment on column push.outbox.app is 'which app''s phones ring: the key under apps in the gateway''s configuration';
comment on column push.outbox.kind is 'incoming_call or video_call';
comment on column push.outbox.call_id is 'payload.callId; unique with app, so enqueueing twice is one call';
comment on column push.outbox.payload is
  'object: callId and from (strings) required; fromName, apartmentNumber, buildingName, channelName, metadata optional';
comment on column push.outbox.recipients is
  'array of up to 1000 user ids, or objects {userId, voipPushToken, apnsToken, fcmToken, pushToken, platform, '
  'environment, locale, notificationEnabled}';
comment on column push.outbox.ring_seconds is 'ring window in seconds, 1 to 600; the app''s (else 60) unless given';
comment on column push.outbox.state is 'ringing, answered, ended or missed';
comment on column push.outbox.created_at is 'when it was enqueued, by the database''s clock';
comment on column push.outbox.deadline_at is 'end of the ring window: no invite leaves after it';

-- Whom to reach -------------------------------------------------------------------------------------------------------

-- An FCM token may be longer than a btree entry (2704 bytes): uniqueness is kept on its digest.
create table push.devices (
  id             bigint generated always as identity primary key,
  user_id        text not null,
  app            text not null default 'default',
  provider       text not null,
  token          text not null,
  voip           boolean not null default true,
  environment    text not null default 'production',
  platform       text,
  locale         text,
  enabled        boolean not null default true,
  registered_at  timestamptz not null default clock_timestamp(),
  invalidated_at timestamptz,
  invalid_reason text,
  constraint devices_provider_known check (provider in ('apns', 'fcm', 'expo')),
  constraint devices_environment_known check (environment in ('production', 'sandbox')),
  constraint devices_platform_known check (platform in ('ios', 'android')),
  constraint devices_invalid_has_reason check ((invalidated_at is null) = (invalid_reason is null))
);
create unique index devices_token on push.devices (sha256(token::bytea), app, provider);
create index devices_of_user on push.devices (user_id, app) where enabled and invalidated_at is null;
comment on table push.devices is 'one push token of one user; a token belongs to one user of an app at a time';
comment on column push.devices.id is 'number of the device';
comment on column push.devices.user_id is 'the backend''s id of the user';
comment on column push.devices.app is 'app the token belongs to';
comment on column push.devices.provider is 'apns, fcm or expo';
comment on column push.devices.token is
  'the token: 64 to 200 hex digits (apns), FCM registration token, Expo push token';
comment on column push.devices.voip is 'apns only: true for a PushKit token, false for an ordinary alert token';
comment on column push.devices.environment is 'apns only: production or sandbox';
comment on column push.devices.platform is 'ios, android or unknown (null)';
comment on column push.devices.locale is 'language of visible texts, for example pt-BR';
comment on column push.devices.enabled is 'false: the user wants no notifications here';
comment on column push.devices.registered_at is
  'when the phone last gave this token; an older invalidation does not count';
comment on column push.devices.invalidated_at is 'since when the provider calls the token dead; null: it is alive';
comment on column push.devices.invalid_reason is 'what the provider said';

create table push.token_invalidations (
  id             bigint generated always as identity primary key,
  app            text not null,
  provider       text not null,
  token          text not null,
  user_id        text,
  reason         text not null,
  invalidated_at timestamptz not null default clock_timestamp(),
  constraint token_invalidations_provider_known check (provider in ('apns', 'fcm', 'expo'))
);
-- The digest comes first, so that nothing looks up a token by app alone.
create unique index token_invalidations_token on push.token_invalidations (sha256(token::bytea), app, provider);
create index token_invalidations_lookup on push.token_invalidations using hash (token);
create index token_invalidations_feed on push.token_invalidations (invalidated_at);
comment on table push.token_invalidations is
  'one token found dead: the feed the backend reads; deleting a row lets the token be used again';
comment on column push.token_invalidations.id is 'number of the row';
comment on column push.token_invalidations.app is 'app the token belonged to';
comment on column push.token_invalidations.provider is 'apns, fcm or expo';
comment on column push.token_invalidations.token is 'the dead token';
comment on column push.token_invalidations.user_id is 'whose token it was, as far as known';
comment on column push.token_invalidations.reason is 'what the provider said';
comment on column push.token_invalidations.invalidated_at is 'since when it is dead';

-- What is still owed: the hot table -----------------------------------------------------------------------------------

-- Exactly these indexes. One on owner makes the planner settle a batch by a product of the batch with itself, and costs
-- an entry a claim. No foreign keys: each would lock or look up a row per delivery.
create table push.delivery (
  outbox_id   bigint not null,
  created_at  timestamptz not null default clock_timestamp(),
  due_at      timestamptz not null default clock_timestamp(),
  deadline_at timestamptz not null,
  n           int not null,
  lease       int not null default 0,
  owner       int,
  attempt     smallint not null default 0,
  lane        smallint not null,
  kind        smallint not null default 0,
  state       smallint not null default 0,
  environment smallint not null default 0,
  platform    smallint not null default 0,
  user_id     text not null,
  token       text not null,
  locale      text,
  last_reason text,
  constraint delivery_pkey primary key (outbox_id, n),
  constraint delivery_n_range check (n between 0 and 29999),
  constraint delivery_codes_known check (
    kind between 0 and 3 and state between 0 and 2 and environment between 0 and 1 and platform between 0 and 2),
  constraint delivery_claimed_has_owner check ((state = 1) = (owner is not null)),
  constraint delivery_counts check (lease >= 0 and attempt >= 0)
) with (
  fillfactor = 80, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 500000,
  autovacuum_vacuum_cost_delay = 0
);
create index delivery_ready on push.delivery (lane, deadline_at) where state = 0;
create index delivery_waiting on push.delivery (due_at) where state = 2;
comment on table push.delivery is
  'one push still owed to one device; claimed by an update, finished by a delete. People read push.deliveries';
comment on column push.delivery.outbox_id is 'the call: push.outbox.id';
comment on column push.delivery.created_at is 'when the call was enqueued';
comment on column push.delivery.due_at is
  'a waiting delivery becomes ready at this time, never later than its deadline';
comment on column push.delivery.deadline_at is 'nothing is sent after this';
comment on column push.delivery.n is
  'number of the push within its call: invites from 0, cancels from 10000, missed calls from 20000';
comment on column push.delivery.lease is
  'raised by every claim, never lowered: with owner, the fence against a slow gateway';
comment on column push.delivery.owner is 'push.gateways.id of the gateway that has claimed it';
comment on column push.delivery.attempt is 'tries so far, the current one included';
comment on column push.delivery.lane is 'push.lane.id';
comment on column push.delivery.kind is '0 invite, 1 cancel, 2 missed_call, 3 notification';
comment on column push.delivery.state is '0 ready, 1 claimed, 2 waiting';
comment on column push.delivery.environment is '0 production, 1 sandbox';
comment on column push.delivery.platform is '0 unknown, 1 ios, 2 android';
comment on column push.delivery.user_id is 'the backend''s id of the user';
comment on column push.delivery.token is 'the device token';
comment on column push.delivery.locale is 'language of visible texts';
comment on column push.delivery.last_reason is 'why the last try did not end it';

-- What became of it ---------------------------------------------------------------------------------------------------

create table push.history (
  finished_at         timestamptz not null default clock_timestamp(),
  outbox_id           bigint not null,
  created_at          timestamptz not null,
  deadline_at         timestamptz not null,
  sent_at             timestamptz,
  answered_at         timestamptz,
  n                   int not null,
  attempts            int not null,
  owner               int,
  lane                smallint not null,
  kind                smallint not null,
  outcome             smallint not null,
  status              smallint,
  user_id             text not null,
  call_id             text,
  device              text not null,
  reason              text,
  provider_message_id text,
  failures            jsonb,
  constraint history_codes_known check (kind between 0 and 3 and outcome between 0 and 4),
  constraint history_failure_has_reason check (outcome <= 1 or reason is not null),
  constraint history_failures_form check (jsonb_typeof(failures) = 'array')
) partition by range (finished_at);
create index history_call on push.history (outbox_id);
create index history_failed on push.history (lane, finished_at) where outcome <> 0;
comment on table push.history is
  'one finished push; a partition a UTC day, dropped by retention. People read push.delivery_history';
comment on column push.history.finished_at is 'when it was settled';
comment on column push.history.outbox_id is 'the call: push.outbox.id';
comment on column push.history.created_at is 'when the call was enqueued';
comment on column push.history.deadline_at is 'what the deadline was';
comment on column push.history.sent_at is 'when the last request left; null: none ever left';
comment on column push.history.answered_at is 'when the provider''s last answer came; null: none came';
comment on column push.history.n is 'number of the push within its call';
comment on column push.history.attempts is 'tries made';
comment on column push.history.owner is 'push.gateways.id of the gateway that settled it';
comment on column push.history.lane is 'push.lane.id';
comment on column push.history.kind is '0 invite, 1 cancel, 2 missed_call, 3 notification';
comment on column push.history.outcome is '0 delivered, 1 delivered_late, 2 void, 3 expired, 4 dead';
comment on column push.history.status is 'HTTP status of the last answer';
comment on column push.history.user_id is 'the backend''s id of the user';
comment on column push.history.call_id is 'payload.callId of the call';
comment on column push.history.device is 'the token, masked: its first and last four characters';
comment on column push.history.reason is 'why it was not delivered, in the provider''s word or ours';
comment on column push.history.provider_message_id is 'the provider''s id: apns-id, FCM message name, Expo ticket';
comment on column push.history.failures is
  'failed tries before the last: array of {"at", "attempt", "status", "reason"}';

-- A forgotten partition must never fail a settlement; push.ensure_partitions keeps this one empty.
create table push.history_default partition of push.history default;
comment on table push.history_default is 'airbag: catches finished pushes for which no day''s partition exists';

-- What replicas share -------------------------------------------------------------------------------------------------

create table push.expo_receipts (
  app        text not null,
  ticket     text not null,
  outbox_id  bigint not null,
  n          int not null,
  user_id    text not null,
  token      text not null,
  sent_at    timestamptz not null,
  due_at     timestamptz not null,
  give_up_at timestamptz not null,
  attempts   int not null default 0,
  constraint expo_receipts_pkey primary key (app, ticket),
  constraint expo_receipts_order check (sent_at <= due_at and due_at <= give_up_at)
);
create index expo_receipts_due on push.expo_receipts (due_at);
comment on table push.expo_receipts is 'one Expo ticket whose receipt is still to be looked up';
comment on column push.expo_receipts.app is 'app whose access token reads the receipt';
comment on column push.expo_receipts.ticket is 'the ticket''s id';
comment on column push.expo_receipts.outbox_id is 'the call: push.outbox.id';
comment on column push.expo_receipts.n is 'number of the push within its call';
comment on column push.expo_receipts.user_id is 'the backend''s id of the user';
comment on column push.expo_receipts.token is 'the token, to be invalidated when the receipt says so';
comment on column push.expo_receipts.sent_at is
  'when the push was sent; the token counts as dead only if not registered since';
comment on column push.expo_receipts.due_at is 'when to look next: about 15 minutes after sending';
comment on column push.expo_receipts.give_up_at is 'when Expo has dropped the receipt: 24 hours after sending';
comment on column push.expo_receipts.attempts is 'look-ups made';

create table push.provider_tokens (
  provider   text not null,
  name       text not null,
  token      text not null,
  minted_at  timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  constraint provider_tokens_pkey primary key (provider, name),
  constraint provider_tokens_provider_known check (provider in ('apns', 'fcm')),
  constraint provider_tokens_order check (minted_at < expires_at)
);
comment on table push.provider_tokens is 'one signed APNs JWT or FCM access token, shared by all replicas; secret';
comment on column push.provider_tokens.provider is 'apns or fcm';
comment on column push.provider_tokens.name is 'whose: team and key id (apns), service account and scope (fcm)';
comment on column push.provider_tokens.token is 'the token; secret';
comment on column push.provider_tokens.minted_at is 'when it was signed or fetched';
comment on column push.provider_tokens.expires_at is 'when it stops being good';

"""###

private let migration0002 = ###"""
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

"""###

private let migration0003 = ###"""
-- What a gateway calls: it registers, beats, claims, settles; the leader among the replicas does the housekeeping.
--
-- The hot functions are PL/pgSQL with pinned plans: PostgreSQL 15 plans a SQL function anew at every call, and
-- statistics taken while the queue was empty or full would change the plan at the worst time. Every transition of a
-- claimed delivery is fenced by (state, owner, lease), so that a gateway that lost its claim changes nothing.

-- One life of a gateway -----------------------------------------------------------------------------------------------

create function push.register_gateway(p_name text, p_version text) returns int
language plpgsql security definer set search_path = push, pg_temp as $$
declare
  v_id int;
begin
  insert into push.gateways (name, version) values (p_name, p_version) returning id into v_id;
  return v_id;
end
$$;
comment on function push.register_gateway is 'a new life of a gateway; the result is its fence';

create function push.heartbeat(p_gateway int) returns boolean
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  update push.gateways set heartbeat_at = clock_timestamp() where id = p_gateway and alive;
  return found;
end
$$;
comment on function push.heartbeat is
  'to be called every second; false: declared dead, its claims are taken over, drop them and register anew';

create function push.register_app(p_app text, p_ring_seconds int) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.apps as a (app, ring_seconds) values (p_app, p_ring_seconds)
    on conflict (app) do update set ring_seconds = excluded.ring_seconds, updated_at = clock_timestamp()
      where a.ring_seconds <> excluded.ring_seconds;
end
$$;
comment on function push.register_app is 'tells enqueueing what the configuration says of an app';

-- Rows of gateways that ended in the last minute are looked for each time: a claim that ran while its gateway was
-- declared dead commits afterwards, with an owner who can no longer settle it.
create function push.free_claims() returns bigint
language plpgsql security definer set search_path = push, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
  v_ended int[] := array(
    select g.id from push.gateways g where not g.alive and g.ended_at > clock_timestamp() - interval '1 minute');
  v_freed bigint;
begin
  if v_ended = '{}' then
    return 0;
  end if;
  with lost as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 1 and d.owner = any (v_ended)
    for no key update skip locked
  )
  update push.delivery d set state = 0, owner = null where d.ctid = any (array(select tid from lost));
  get diagnostics v_freed = row_count;
  if v_freed > 0 then
    perform push.ring_doorbell();
  end if;
  return v_freed;
end
$$;
comment on function push.free_claims is 'makes what ended gateways held ready again; attempts stay counted';

create function push.retire_gateway(p_gateway int) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  update push.gateways set alive = false, ended_at = clock_timestamp(), ended_reason = 'retired'
    where id = p_gateway and alive;
  perform push.free_claims();
end
$$;
comment on function push.retire_gateway is 'the clean end of a gateway; what it still holds becomes ready';

create function push.reap(p_silence interval default '3 s') returns bigint
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  update push.gateways set alive = false, ended_at = clock_timestamp(), ended_reason = 'silent'
    where alive and heartbeat_at < clock_timestamp() - p_silence;
  return push.free_claims();
end
$$;
comment on function push.reap is
  'declares gateways dead that were silent for so long; returns how many deliveries became ready again';

-- Claim ---------------------------------------------------------------------------------------------------------------

create function push.claim(
  p_gateway int, p_lanes smallint[], p_max int[], p_floor timestamptz[], p_slack interval default '300 ms'
) returns table (
  lane smallint, outbox_id bigint, n int, lease int, attempt int, kind smallint, environment smallint,
  platform smallint, user_id text, token text, locale text, app_call_kind text, call_id text, payload jsonb,
  created_at timestamptz, deadline_at timestamptz, remaining_us bigint
)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- An index condition, not a filter: under a transaction that holds back vacuum the index is full of dead entries with
  -- past deadlines, and starting behind them keeps the claim fast. clock_timestamp() here would make it a filter.
  v_floor timestamptz;
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive) then
    return;
  end if;
  for i in 1 .. coalesce(array_length(p_lanes, 1), 0) loop
    continue when p_max[i] <= 0;
    v_floor := greatest(p_floor[i], statement_timestamp() + p_slack);
    return query
      with pick as materialized (
        select d.ctid as tid
        from push.delivery d
        where d.state = 0 and d.lane = p_lanes[i] and d.deadline_at > v_floor
          and (select not l.paused from push.lane l where l.id = p_lanes[i])
        order by d.deadline_at
        limit p_max[i]
        for no key update skip locked
      )
      update push.delivery d
      set state = 1, owner = p_gateway, lease = d.lease + 1, attempt = d.attempt + 1
      from push.outbox o
      where d.ctid = any (array(select pick.tid from pick)) and o.id = d.outbox_id
      returning d.lane, d.outbox_id, d.n, d.lease, d.attempt::int, d.kind, d.environment, d.platform,
        d.user_id, d.token, d.locale, o.kind, o.call_id, o.payload, d.created_at, d.deadline_at,
        (extract(epoch from d.deadline_at - clock_timestamp()) * 1000000)::bigint;
  end loop;
end
$$;
comment on function push.claim is
  'takes up to p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first, with deadlines after '
  'p_floor[i] and more than p_slack away; nothing from a paused lane, nothing for a gateway declared dead';

-- What became of claimed deliveries -----------------------------------------------------------------------------------

create function push.settle(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_outcome smallint[],
  p_status smallint[], p_reason text[], p_message_id text[], p_call_id text[],
  p_sent_at timestamptz[], p_answered_at timestamptz[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_settled bigint;
begin
  with gone as (
    delete from push.delivery d
    using unnest(p_outbox_id, p_n, p_lease, p_attempts, p_outcome, p_status, p_reason, p_message_id, p_call_id,
      p_sent_at, p_answered_at)
      r(outbox_id, n, lease, attempts, outcome, status, reason, message_id, call_id, sent_at, answered_at)
    where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease
    returning d.outbox_id, d.created_at, d.deadline_at, r.sent_at, r.answered_at, d.n, r.attempts, d.lane, d.kind,
      r.outcome, r.status, d.user_id, r.call_id, d.token, r.reason, d.last_reason, r.message_id
  )
  insert into push.history (outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner, lane, kind,
    outcome, status, user_id, call_id, device, reason, provider_message_id)
  select g.outbox_id, g.created_at, g.deadline_at, g.sent_at, g.answered_at, g.n, g.attempts, p_gateway, g.lane, g.kind,
    g.outcome, g.status, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    case when g.outcome <= 1 then g.reason
      else coalesce(g.reason, g.last_reason,
        case g.outcome when 2 then 'CallEnded' when 3 then 'DeadlinePassed' else 'Unknown' end)
    end,
    g.message_id
  from gone g;
  get diagnostics v_settled = row_count;
  return v_settled;
end
$$;
comment on function push.settle is
  'ends claimed deliveries and writes their history; returns how many it accepted: fewer than given means that leases '
  'were lost, and those results are dropped. attempts are what was really tried, retries under one lease included';

create function push.park(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_delay_ms int[], p_reason text[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_parked bigint;
begin
  -- Due at the deadline at the latest: so the index on due_at finds waiting deliveries that have expired, too.
  update push.delivery d
  set state = 2, owner = null, attempt = r.attempts, last_reason = coalesce(r.reason, d.last_reason),
    due_at = least(clock_timestamp() + r.delay_ms * interval '1 ms', d.deadline_at)
  from unnest(p_outbox_id, p_n, p_lease, p_attempts, p_delay_ms, p_reason)
    r(outbox_id, n, lease, attempts, delay_ms, reason)
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_parked = row_count;
  return v_parked;
end
$$;
comment on function push.park is
  'claimed to waiting, for so many milliseconds; returns how many were still the caller''s';

create function push.release(p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_released bigint;
begin
  update push.delivery d set state = 0, owner = null, attempt = greatest(d.attempt - 1, 0)
  from unnest(p_outbox_id, p_n, p_lease) r(outbox_id, n, lease)
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_released = row_count;
  if v_released > 0 then
    perform push.ring_doorbell();
  end if;
  return v_released;
end
$$;
comment on function push.release is
  'claimed to ready with the attempt given back, for a shutdown or an open circuit; '
  'returns how many were still the caller''s';

-- Housekeeping, by the leader; harmless when two do it ----------------------------------------------------------------

create function push.promote(p_max int default 2000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_promoted bigint;
begin
  with pick as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 2 and d.due_at <= statement_timestamp() and d.deadline_at > statement_timestamp()
    order by d.due_at
    limit p_max
    for no key update skip locked
  )
  update push.delivery d set state = 0 where d.ctid = any (array(select pick.tid from pick));
  get diagnostics v_promoted = row_count;
  if v_promoted > 0 then
    perform push.ring_doorbell();
  end if;
  return v_promoted;
end
$$;
comment on function push.promote is 'makes up to p_max waiting deliveries ready whose time has come; returns how many';

create function push.expire(p_max int default 5000, p_slack interval default '0') returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_before timestamptz := statement_timestamp() + p_slack;
  v_expired bigint;
begin
  with ready as materialized (
    select late.tid
    from push.lane l cross join lateral (
      select d.ctid as tid
      from push.delivery d
      where d.state = 0 and d.lane = l.id and d.deadline_at <= v_before
      order by d.deadline_at
      limit p_max
      for no key update skip locked
    ) late
  ), waiting as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 2 and d.due_at <= v_before and d.deadline_at <= v_before
    order by d.due_at
    limit p_max
    for no key update skip locked
  ), gone as (
    delete from push.delivery d
    where d.ctid = any (array(select tid from ready union all select tid from waiting limit p_max))
    returning d.*
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind, 3, g.user_id, o.call_id,
    left(g.token, 4) || '…' || right(g.token, 4), coalesce(g.last_reason, 'DeadlinePassed')
  from gone g left join push.outbox o on o.id = g.outbox_id;
  get diagnostics v_expired = row_count;
  return v_expired;
end
$$;
comment on function push.expire is
  'ends up to p_max ready and waiting deliveries whose deadline is past, or less than p_slack away, as expired; '
  'returns how many. A claimed one belongs to its gateway';

-- History's partitions ------------------------------------------------------------------------------------------------

-- Making and dropping are two functions, hence two transactions: a drop that loses a race for a lock must not undo
-- tomorrow's partition. Days are UTC days, whatever the session's time zone.

create function push.ensure_partitions(p_days_ahead int default 14) returns int
language plpgsql security definer set search_path = push, pg_temp set timezone = 'UTC' set lock_timeout = '500ms' as $$
declare
  v_day  date;
  v_name text;
  v_made int := 0;
begin
  -- One replica at a time: the other is doing the same.
  if not pg_try_advisory_xact_lock(7781, 1) then
    return 0;
  end if;
  for v_day in
    select d::date from generate_series(current_date - 1, current_date + p_days_ahead, interval '1 day') d
  loop
    v_name := 'history_' || to_char(v_day, 'YYYYMMDD');
    continue when to_regclass('push.' || v_name) is not null;
    begin
      execute format('create table push.%I partition of push.history for values from (%L) to (%L)',
        v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
      execute format('comment on table push.%I is %L', v_name, 'what was finished on ' || v_day || ' (UTC)');
      v_made := v_made + 1;
    exception when check_violation then
      raise warning 'push.history_default holds rows of %: move them, then call push.ensure_partitions again', v_day;
    end;
  end loop;
  return v_made;
end
$$;
comment on function push.ensure_partitions is
  'makes the missing partitions of push.history from yesterday to so many days ahead; returns how many';

create function push.drop_partitions(p_keep_days int default 14) returns int
language plpgsql security definer set search_path = push, pg_temp set timezone = 'UTC' set lock_timeout = '200ms' as $$
declare
  v_name text := (
    select c.relname
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'push.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
      and right(c.relname, 8) < to_char(current_date - greatest(p_keep_days, 1), 'YYYYMMDD')
    order by c.relname
    limit 1);
begin
  if v_name is null then
    return 0;
  end if;
  execute format('drop table if exists push.%I', v_name);
  return 1;
end
$$;
comment on function push.drop_partitions is
  'drops the oldest partition of push.history that is older than so many days; call it until it returns 0';

select push.ensure_partitions();

revoke execute on all functions in schema push from public;

"""###

private let migration0004 = ###"""
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

"""###

private let migration0005 = ###"""
-- The rules of a call: how it ends, whom that is told, what a missed call leaves behind, which tokens are dead.
--
-- push.outbox.state is the truth. It changes once, from ringing to answered, ended or missed; a statement trigger does
-- the rest for all calls of the statement, inside the caller's transaction. The functions here only update that column.
--
-- The race with the gateways is settled as follows. Ending a call deletes its ready and waiting invites: that waits for
-- a claim in flight, and the next statement's fresh snapshot then sees what was claimed. A claimed invite that is given
-- back meanwhile (parked, released, reaped) must not become ready unseen: it does only under a share lock on its call,
-- which an end in progress denies; otherwise it waits, and push.promote asks again. So push.claim needs to ask nothing.

-- How a call ended ----------------------------------------------------------------------------------------------------

alter table push.outbox add column answered_by text, add column ended_at timestamptz, add column end_reason text;
update push.outbox set ended_at = clock_timestamp(), end_reason = state where state <> 'ringing';
comment on column push.outbox.answered_by is 'the user who answered, as far as known: their devices are told nothing';
comment on column push.outbox.ended_at is 'when the state ceased to be ringing; null while it rings';
comment on column push.outbox.end_reason is
  'the reason given to push.end_call, else answered, ended or missed; declined and busy leave no missed call';
comment on column push.outbox.state is
  'ringing, answered, ended or missed; it changes once, and an update of it is as good as push.answer_call or end_call';
comment on column push.delivery.created_at is 'when it was enqueued: an invite with its call, anything else at its end';
-- For push.miss. A look-up by id asks "ended_at is null" for the same thing: given "state = 'ringing'" the planner may
-- walk this index instead.
create index outbox_ringing on push.outbox (deadline_at) where state = 'ringing';

-- As in 0002; besides, no call is born ended.
create or replace function push.fill_call() returns trigger
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
  new.answered_by := null;
  new.ended_at := null;
  new.end_reason := null;
  new.created_at := clock_timestamp();
  new.deadline_at := new.created_at + make_interval(secs => new.ring_seconds);
  return new;
end
$$;
create function push.check_call() returns trigger language plpgsql set search_path = push, pg_temp as $$
declare
  v_fault text := case
    when (new.id, new.app, new.kind, new.call_id, new.ring_seconds, new.created_at, new.deadline_at)
        is distinct from (old.id, old.app, old.kind, old.call_id, old.ring_seconds, old.created_at, old.deadline_at)
        or new.payload is distinct from old.payload or new.recipients is distinct from old.recipients
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
      schema = 'push', table = 'outbox', column = coalesce(substring(v_fault from '^\.([a-z_]+)'), '');
  end if;
  if new.state = old.state then
    new.ended_at := old.ended_at;
    new.end_reason := old.end_reason;
    new.answered_by := old.answered_by;
  else
    new.ended_at := clock_timestamp();
    new.end_reason := coalesce(new.end_reason, new.state);
  end if;
  return new;
end
$$;
comment on function push.check_call is
  'lets a call end once and refuses any other change, with an error that names the column and prints no token';

-- Unsent invites ------------------------------------------------------------------------------------------------------

-- Also for calls of which only some have ended: the others are left alone.
create function push.void_unsent(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_ended  bigint[] := array(
    select distinct o.id from push.outbox o where o.id = any (p_outbox_id) and o.state <> 'ringing' order by o.id);
  v_voided bigint;
begin
  if v_ended = '{}' then
    return 0;
  end if;
  with gone as (
    delete from push.delivery d
    using push.outbox o
    where o.id = any (v_ended) and d.outbox_id = any (v_ended) and d.outbox_id = o.id
      and d.kind = 0 and d.state in (0, 2)
    -- A missed call's invites ended as push.expire would have ended them, whichever of the two comes first.
    returning d.*, o.call_id, o.state as call_state,
      o.state = 'missed' and d.deadline_at <= clock_timestamp() as is_late
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind,
    case when g.is_late then 3 else 2 end, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    case when g.is_late then coalesce(g.last_reason, 'DeadlinePassed') else 'Call' || initcap(g.call_state) end
  from gone g;
  get diagnostics v_voided = row_count;
  return v_voided;
end
$$;
comment on function push.void_unsent is
  'ends the ready and waiting invites of those of the given calls that no longer ring, as void (CallAnswered, '
  'CallEnded, CallMissed), or as expired when missed; returns how many';

-- Cancels -------------------------------------------------------------------------------------------------------------

-- "lateral (… offset 0)" pins a lookup by index for each outer row, and leaves hash joins to what is small. History
-- holds masked tokens only: a token is found again among the call's recipients and the user's devices by its mask.
create function push.cancel_invites(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  -- Variables, so that only the partitions between are looked at. The margin is for what is settled meanwhile.
  v_since   timestamptz := (select min(o.created_at) from push.outbox o where o.id = any (p_outbox_id));
  v_until   timestamptz := clock_timestamp() + interval '1 minute';
  v_cancels bigint;
begin
  with call as materialized (
    select o.*
    from unnest(p_outbox_id) c(id) cross join lateral (
      select o.id, o.app, o.recipients, o.answered_by from push.outbox o
      where o.id = c.id and o.state in ('answered', 'ended')
      offset 0
    ) o
  ), claimed as materialized (
    -- Ready and waiting ones are gone, but for one that was given back this very moment.
    select c.id, d.lane, d.token, d.user_id, d.environment, d.platform, d.locale
    from call c cross join lateral (
      select * from push.delivery d where d.outbox_id = c.id and d.kind = 0 offset 0
    ) d
  ), finished as materialized (
    -- Of those that a gateway settled, the last try counts only if it left; of the others, every try may have.
    select distinct c.id, c.app, h.lane, h.user_id, h.device, l.provider
    from call c cross join lateral (
      select * from push.history h
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and h.kind = 0
        and (h.sent_at is not null or h.attempts > case when h.owner is null then 0 else 1 end)
        and (h.outcome <> 4 or h.status is null)
      offset 0
    ) h
    join push.lane l on l.id = h.lane
    where l.provider <> 'apns'
  ), inline as materialized (
    select c.id, t.provider, e ->> 'userId' as user_id, t.token,
      case when e ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
      case e ->> 'platform' when 'ios' then 1 when 'android' then 2 else 0 end::smallint as platform,
      e ->> 'locale' as locale
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    cross join lateral (values ('fcm', e ->> 'fcmToken'), ('expo', e ->> 'pushToken')) t(provider, token)
    where t.token <> ''
  ), target as (
    select c.* from claimed c
    union all
    select f.id, f.lane, i.token, f.user_id, i.environment, i.platform, i.locale
    from finished f
    join inline i on i.id = f.id and i.user_id = f.user_id and i.provider = f.provider
      and left(i.token, 4) || '…' || right(i.token, 4) = f.device
    union all
    select f.id, f.lane, d.token, f.user_id, case d.environment when 'sandbox' then 1 else 0 end::smallint,
      case d.platform when 'ios' then 1 when 'android' then 2 else 0 end::smallint, d.locale
    from finished f cross join lateral (
      select * from push.devices d
      where d.user_id = f.user_id and d.app = f.app and d.enabled and d.invalidated_at is null
        and d.provider = f.provider and left(d.token, 4) || '…' || right(d.token, 4) = f.device
      offset 0
    ) d
  )
  insert into push.delivery (outbox_id, n, kind, created_at, due_at, deadline_at, lane, environment, platform, user_id,
    token, locale)
  select t.id, 9999 + row_number() over (partition by t.id order by t.lane, t.token), 1, clock_timestamp(),
    clock_timestamp(), clock_timestamp() + interval '60 s', t.lane, t.environment, t.platform, t.user_id, t.token,
    t.locale
  from (
    select distinct on (t.id, t.lane, t.token) t.*
    from target t
    join call c on c.id = t.id
    join push.lane l on l.id = t.lane
    -- Apple: a VoIP push must end in a reported call, so none may be sent to cancel one.
    where l.provider <> 'apns' and t.user_id is distinct from c.answered_by
    order by t.id, t.lane, t.token
  ) t;
  get diagnostics v_cancels = row_count;
  return v_cancels;
end
$$;
comment on function push.cancel_invites is
  'for calls answered or ended: one cancel a device that may ring, never to a VoIP token, none for the user who '
  'answered; returns how many';

-- Missed calls --------------------------------------------------------------------------------------------------------

create function push.announce_missed(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_announced bigint;
begin
  insert into push.delivery (outbox_id, n, kind, created_at, due_at, deadline_at, lane, environment, platform, user_id,
    token, locale)
  select m.id, 19999 + row_number() over (partition by m.id order by m.user_id), 2, clock_timestamp(),
    clock_timestamp(), clock_timestamp() + interval '4 hours', coalesce(l.id, push.register_lane(m.app, m.provider)),
    m.environment, m.platform, m.user_id, m.token, m.locale
  from (
    select distinct on (r.id, r.user_id) r.id, r.app, r.user_id, v.*
    from (
      select o.id, o.app, o.recipients, e.entry, e.ordinal,
        case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end as user_id,
        jsonb_typeof(e.entry) = 'object' and e.entry ?| '{voipPushToken,apnsToken,fcmToken,pushToken}' as inline
      from unnest(p_outbox_id) c(id) cross join lateral (
        select * from push.outbox o
        where o.id = c.id and (o.state = 'missed' or o.state = 'ended' and o.end_reason not in ('declined', 'busy'))
        offset 0
      ) o
      cross join lateral jsonb_array_elements(o.recipients) with ordinality e(entry, ordinal)
      where e.entry -> 'notificationEnabled' is distinct from 'false'
    ) r
    cross join lateral (
      select t.rank, t.provider, t.token,
        case when r.entry ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
        case when t.rank = 1 or r.entry ->> 'platform' = 'ios' then 1 when r.entry ->> 'platform' = 'android' then 2
          else 0 end::smallint as platform,
        r.entry ->> 'locale' as locale, null::timestamptz as registered_at
      from (values (1, 'apns', r.entry ->> 'apnsToken'), (2, 'fcm', r.entry ->> 'fcmToken'),
        (3, 'expo', r.entry ->> 'pushToken')) t(rank, provider, token)
      where r.inline and t.token <> ''
        and not exists (select from push.token_invalidations x
          where x.token = t.token and x.app = r.app and x.provider = t.provider)
        -- A VoIP token that somebody calls an alert token, too, is a VoIP token.
        and (t.rank > 1 or not r.recipients @> jsonb_build_array(jsonb_build_object('voipPushToken', t.token))
          and not exists (select from push.devices x where sha256(x.token::bytea) = sha256(t.token::bytea)
            and x.app = r.app and x.provider = 'apns' and x.voip))
      union all
      select d.* from (
        select case d.provider when 'apns' then 1 when 'fcm' then 2 else 3 end, d.provider, d.token,
          case d.environment when 'sandbox' then 1 else 0 end::smallint,
          case coalesce(d.platform, case d.provider when 'apns' then 'ios' end)
            when 'ios' then 1 when 'android' then 2 else 0 end::smallint,
          d.locale, d.registered_at
        from push.devices d
        where not r.inline and d.user_id = r.user_id and d.app = r.app and d.enabled and d.invalidated_at is null
          and (d.provider <> 'apns' or not d.voip)
        offset 0
      ) d
    ) v
    order by r.id, r.user_id, v.rank, r.ordinal, v.registered_at desc, v.token
  ) m
  left join push.lane l on l.app = m.app and l.provider = m.provider;
  get diagnostics v_announced = row_count;
  return v_announced;
end
$$;
comment on function push.announce_missed is
  'for calls missed, or ended without an answer, other than declined or busy: one missed_call a user, over APNs alert, '
  'else FCM, else Expo, never to a VoIP token; returns how many';

create function push.miss(p_max int default 1000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_missed bigint;
begin
  with late as materialized (
    select o.id
    from push.outbox o
    where o.state = 'ringing' and o.deadline_at <= statement_timestamp()
    order by o.deadline_at
    limit p_max
    for no key update skip locked
  )
  update push.outbox o set state = 'missed' where o.id = any (array(select late.id from late));
  get diagnostics v_missed = row_count;
  return v_missed;
end
$$;
comment on function push.miss is
  'up to p_max calls that still ring after their deadline become missed; returns how many. For the leader';

-- The end of a call ---------------------------------------------------------------------------------------------------

create function push.end_calls() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  c_notices constant int := 100;
  -- A call ends once: it is one that did not ring before, or it is of this statement.
  v_calls   bigint[] := array(
    select n.id from new_calls n where n.state <> 'ringing'
    except
    select o.id from old_calls o where o.state <> 'ringing'
    order by 1);
  v_held    bigint[];
  v_made    bigint;
begin
  if v_calls = '{}' then
    return null;
  end if;
  perform push.void_unsent(v_calls);
  v_made := push.cancel_invites(v_calls) + push.announce_missed(v_calls);
  -- Gateways drop what they hold in memory. Past the deadline they do so by themselves.
  v_held := array(
    select c.id
    from unnest(v_calls) c(id)
    where exists (select from push.delivery d
      where d.outbox_id = c.id and d.kind = 0 and d.deadline_at > clock_timestamp())
    order by c.id
    limit c_notices + 1);
  if cardinality(v_held) > c_notices then
    perform pg_notify('push_control', 'void *');
  else
    perform pg_notify('push_control', 'void ' || h.id) from unnest(v_held) h(id);
  end if;
  if v_made > 0 then
    perform push.ring_doorbell();
  end if;
  return null;
end
$$;
comment on function push.end_calls is
  'what follows from calls ending: unsent invites are void, devices that may ring are told, so are users who missed '
  'the call, and gateways that hold invites of it: NOTIFY push_control with "void" and push.outbox.id, or "void *" '
  '(any call may have ended) when there are more than 100';

create trigger check_call before update on push.outbox for each row execute function push.check_call();
-- PostgreSQL gives no transition tables to a trigger with a column list, so it is not "update of state".
create trigger end_calls after update on push.outbox referencing old table as old_calls new table as new_calls
  for each statement execute function push.end_calls();

create function push.find_call(p_call_id text, p_app text) returns bigint
language plpgsql stable set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_ids  bigint[];
  v_apps text;
begin
  select array_agg(o.id), string_agg(o.app, ', ' order by o.app) into v_ids, v_apps
    from push.outbox o where o.call_id = p_call_id and (p_app is null or o.app = p_app);
  if v_ids is null then
    raise exception using errcode = 'no_data_found',
      message = format('call_id: there is no call %s%s', coalesce(left(p_call_id, 128), 'without call_id'),
        ' in app ' || left(p_app, 64)),
      hint = 'It must have been enqueued, in this transaction or in one that is committed.';
  elsif cardinality(v_ids) > 1 then
    raise exception using errcode = 'cardinality_violation',
      message = format('app: call %s exists in several apps (%s); say in which', p_call_id, v_apps);
  end if;
  return v_ids[1];
end
$$;
comment on function push.find_call is
  'number of a call; an error if there is none, or, without an app, several';

create function push.answer_call(call_id text, user_id text default null, app text default null) returns boolean
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_id bigint := push.find_call(call_id, app);
begin
  update push.outbox o set state = 'answered', answered_by = answer_call.user_id
    where o.id = v_id and o.ended_at is null;
  return found;
end
$$;
comment on function push.answer_call is
  'the call was answered, by this user if known: nothing more is sent, other devices that may ring are told; '
  'false: it had ended before';

create function push.end_call(call_id text, reason text default 'ended', app text default null) returns boolean
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_id bigint := push.find_call(call_id, app);
begin
  update push.outbox o set state = 'ended', end_reason = coalesce(end_call.reason, 'ended')
    where o.id = v_id and o.ended_at is null;
  return found;
end
$$;
comment on function push.end_call is
  'the call is over, unanswered: nothing more is sent, devices that may ring are told, and users get a missed call '
  'unless the reason is declined or busy; false: it had ended before';

-- Fences: what a gateway gives back of a call that has ended ----------------------------------------------------------

create or replace function push.free_claims() returns bigint
language plpgsql security definer set search_path = push, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
  v_ended int[] := array(
    select g.id from push.gateways g where not g.alive and g.ended_at > clock_timestamp() - interval '1 minute');
  v_freed bigint;
  v_unsure bigint[];
begin
  if v_ended = '{}' then
    return 0;
  end if;
  with lost as materialized (
    select d.ctid as tid, d.outbox_id, d.kind
    from push.delivery d
    where d.state = 1 and d.owner = any (v_ended)
    for no key update skip locked
  ), asked as materialized (
    select l.tid, l.outbox_id, l.kind <> 0 or coalesce((
      select true from push.outbox o where o.id = l.outbox_id and o.ended_at is null for share skip locked
    ), false) as rings
    from lost l
  ), ready as (
    update push.delivery d set state = 0, owner = null
    where d.ctid = any (array(select tid from asked where rings)) returning 1
  ), waiting as (
    update push.delivery d set state = 2, owner = null, due_at = clock_timestamp()
    where d.ctid = any (array(select tid from asked where not rings)) returning 1
  )
  select (select count(*) from ready) + (select count(*) from waiting),
      array(select distinct outbox_id from asked where not rings)
    into v_freed, v_unsure;
  perform push.void_unsent(v_unsure);
  if v_freed > 0 then
    perform push.ring_doorbell();
  end if;
  return v_freed;
end
$$;
comment on function push.free_claims is
  'makes what ended gateways held ready again; attempts stay counted, invites of calls that have ended are void';

create or replace function push.park(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_delay_ms int[], p_reason text[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_parked bigint;
begin
  -- Due at the deadline at the latest: so the index on due_at finds waiting deliveries that have expired, too.
  update push.delivery d
  set state = 2, owner = null, attempt = r.attempts, last_reason = coalesce(r.reason, d.last_reason),
    due_at = least(clock_timestamp() + r.delay_ms * interval '1 ms', d.deadline_at)
  from unnest(p_outbox_id, p_n, p_lease, p_attempts, p_delay_ms, p_reason)
    r(outbox_id, n, lease, attempts, delay_ms, reason)
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_parked = row_count;
  perform push.void_unsent(p_outbox_id);
  return v_parked;
end
$$;
comment on function push.park is
  'claimed to waiting, for so many milliseconds; invites of calls that have ended are void; '
  'returns how many were still the caller''s';

create or replace function push.release(p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_released bigint;
begin
  update push.delivery d
  set state = case when d.kind <> 0 or r.rings then 0 else 2 end, owner = null,
    attempt = greatest(d.attempt - 1, 0), due_at = clock_timestamp()
  from (
    select r.*, coalesce((
      select true from push.outbox o where o.id = r.outbox_id and o.ended_at is null for share skip locked
    ), false) as rings
    from unnest(p_outbox_id, p_n, p_lease) r(outbox_id, n, lease)
    offset 0
  ) r
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_released = row_count;
  perform push.void_unsent(p_outbox_id);
  if v_released > 0 then
    perform push.ring_doorbell();
  end if;
  return v_released;
end
$$;
comment on function push.release is
  'claimed to ready with the attempt given back, for a shutdown or an open circuit; invites of calls that have ended '
  'are void; returns how many were still the caller''s';

create or replace function push.promote(p_max int default 2000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_promoted bigint;
  v_unsure bigint[];
begin
  with pick as materialized (
    select d.ctid as tid, d.outbox_id, d.kind
    from push.delivery d
    where d.state = 2 and d.due_at <= statement_timestamp() and d.deadline_at > statement_timestamp()
    order by d.due_at
    limit p_max
    for no key update skip locked
  ), asked as materialized (
    -- An end in progress holds the call's lock: the invite goes on waiting, for its outcome.
    select p.tid, p.outbox_id, p.kind <> 0 or coalesce((
      select true from push.outbox o where o.id = p.outbox_id and o.ended_at is null for share skip locked
    ), false) as rings
    from pick p
  ), ready as (
    update push.delivery d set state = 0 where d.ctid = any (array(select tid from asked where rings)) returning 1
  )
  select (select count(*) from ready), array(select distinct outbox_id from asked where not rings)
    into v_promoted, v_unsure;
  perform push.void_unsent(v_unsure);
  if v_promoted > 0 then
    perform push.ring_doorbell();
  end if;
  return v_promoted;
end
$$;
comment on function push.promote is
  'makes up to p_max waiting deliveries ready whose time has come, and invites of ended calls void; '
  'returns how many became ready';

-- Claim: as in 0003, with why the call ended at the end of the row, for cancels ---------------------------------------

drop function push.claim(int, smallint[], int[], timestamptz[], interval);
create function push.claim(
  p_gateway int, p_lanes smallint[], p_max int[], p_floor timestamptz[], p_slack interval default '300 ms'
) returns table (
  lane smallint, outbox_id bigint, n int, lease int, attempt int, kind smallint, environment smallint,
  platform smallint, user_id text, token text, locale text, app_call_kind text, call_id text, payload jsonb,
  created_at timestamptz, deadline_at timestamptz, remaining_us bigint, end_reason text
)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- An index condition, not a filter: under a transaction that holds back vacuum the index is full of dead entries with
  -- past deadlines, and starting behind them keeps the claim fast. clock_timestamp() here would make it a filter.
  v_floor timestamptz;
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive) then
    return;
  end if;
  for i in 1 .. coalesce(array_length(p_lanes, 1), 0) loop
    continue when p_max[i] <= 0;
    v_floor := greatest(p_floor[i], statement_timestamp() + p_slack);
    return query
      with pick as materialized (
        select d.ctid as tid
        from push.delivery d
        where d.state = 0 and d.lane = p_lanes[i] and d.deadline_at > v_floor
          and (select not l.paused from push.lane l where l.id = p_lanes[i])
        order by d.deadline_at
        limit p_max[i]
        for no key update skip locked
      )
      update push.delivery d
      set state = 1, owner = p_gateway, lease = d.lease + 1, attempt = d.attempt + 1
      from push.outbox o
      where d.ctid = any (array(select pick.tid from pick)) and o.id = d.outbox_id
      returning d.lane, d.outbox_id, d.n, d.lease, d.attempt::int, d.kind, d.environment, d.platform,
        d.user_id, d.token, d.locale, o.kind, o.call_id, o.payload, d.created_at, d.deadline_at,
        (extract(epoch from d.deadline_at - clock_timestamp()) * 1000000)::bigint, o.end_reason;
  end loop;
end
$$;
comment on function push.claim is
  'takes up to p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first, with deadlines after '
  'p_floor[i] and more than p_slack away; nothing from a paused lane, nothing for a gateway declared dead';

-- Dead tokens ---------------------------------------------------------------------------------------------------------

create function push.invalidate_tokens(
  p_lane smallint[], p_token text[], p_since timestamptz[], p_reason text[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_dead bigint;
begin
  with said as materialized (
    -- Of several answers about a token the latest counts; one without a time counts always.
    select distinct on (l.app, l.provider, r.token) l.app, l.provider, r.token, r.since,
      coalesce(r.reason, 'Unknown') as reason
    from unnest(p_lane, p_token, p_since, p_reason) r(lane, token, since, reason)
    join push.lane l on l.id = r.lane
    where r.token is not null
    order by l.app, l.provider, r.token, r.since desc nulls first
  ), cleared as (
    -- Compare and clear: a token the phone gave anew after the provider saw it dead stays alive.
    update push.devices d set invalidated_at = clock_timestamp(), invalid_reason = s.reason
    from said s
    where sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider
      and d.invalidated_at is null and (s.since is null or s.since >= d.registered_at)
    returning d.app, d.provider, d.token, d.user_id, s.reason
  )
  insert into push.token_invalidations (app, provider, token, user_id, reason)
  select c.app, c.provider, c.token, c.user_id, c.reason from cleared c
  union all
  select s.app, s.provider, s.token, null, s.reason
  from said s
  where not exists (select from push.devices d
    where sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider)
  on conflict do nothing;
  get diagnostics v_dead = row_count;
  if v_dead > 0 then
    perform pg_notify('push_token_invalidations', '');
  end if;
  return v_dead;
end
$$;
comment on function push.invalidate_tokens is
  'the provider of a lane called these tokens dead, since a time if it gave one: registered devices are cleared unless '
  'registered later, tokens of no device are noted; returns how many are new in push.token_invalidations, and if any '
  'are, NOTIFY push_token_invalidations';

create function push.revive_tokens() returns trigger
language plpgsql security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
  delete from push.token_invalidations x
  using changed d
  where d.invalidated_at is null
    and sha256(x.token::bytea) = sha256(d.token::bytea) and x.app = d.app and x.provider = d.provider;
  return null;
end
$$;
comment on function push.revive_tokens is 'a token that a living device has is not a dead one';

create trigger revive_tokens_of_new after insert on push.devices referencing new table as changed
  for each statement execute function push.revive_tokens();
create trigger revive_tokens_of_changed after update on push.devices referencing new table as changed
  for each statement execute function push.revive_tokens();

create function push.register_device(
  user_id text, app text, provider text, token text, environment text default 'production',
  platform text default null, locale text default null, voip boolean default true
) returns void
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
  insert into push.devices as d (user_id, app, provider, token, environment, platform, locale, voip)
    values (register_device.user_id, register_device.app, register_device.provider, register_device.token,
      register_device.environment, register_device.platform, register_device.locale,
      coalesce(register_device.voip, true))
    on conflict (sha256(token::bytea), app, provider) do update set
      user_id = excluded.user_id, environment = excluded.environment, voip = excluded.voip,
      platform = coalesce(excluded.platform, d.platform), locale = coalesce(excluded.locale, d.locale),
      -- The switch is the user's: it does not pass to another with the phone.
      enabled = d.enabled or d.user_id <> excluded.user_id,
      registered_at = clock_timestamp(), invalidated_at = null, invalid_reason = null;
end
$$;
comment on function push.register_device is
  'the phone gave this token, now: it is the user''s, and alive; to be called at every login';

create function push.drop_device(app text, provider text, token text) returns boolean
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  delete from push.devices d
    where sha256(d.token::bytea) = sha256(drop_device.token::bytea) and d.app = drop_device.app
      and d.provider = drop_device.provider;
  return found;
end
$$;
comment on function push.drop_device is 'the user logged out of this device; false: it was not registered';

revoke execute on all functions in schema push from public;

"""###

private let migration0006 = ###"""
-- Provider tokens shared by all replicas: whoever mints one offers it, and all use the one that was taken.
--
-- Apple takes no more than one new token in 20 minutes for a key. A replica that finds none, or an old one, signs its own and
-- offers it; the row's lock decides which of several is taken, and the others are never shown to the provider.

comment on column push.provider_tokens.expires_at is 'when it is to be renewed, before it stops being good';
comment on column push.provider_tokens.name is 'whose: team, key id and a fingerprint of the key (apns), service account (fcm)';

create function push.current_provider_token(p_provider text, p_name text)
returns table (token text, minted_at timestamptz, expires_at timestamptz)
language sql stable security definer set search_path = push, pg_temp as $$
  select t.token, t.minted_at, t.expires_at from push.provider_tokens t
  where t.provider = p_provider and t.name = p_name and t.expires_at > clock_timestamp()
$$;
comment on function push.current_provider_token is 'the token all replicas use now; no row if there is none';

create function push.offer_provider_token(
  p_provider text, p_name text, p_token text, p_minted_at timestamptz, p_expires_at timestamptz, p_age_min interval
) returns table (token text, minted_at timestamptz, expires_at timestamptz)
language plpgsql security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
begin
  insert into push.provider_tokens as t (provider, name, token, minted_at, expires_at)
  values (p_provider, p_name, p_token, p_minted_at, p_expires_at)
  on conflict (provider, name) do update
    set token = excluded.token, minted_at = excluded.minted_at, expires_at = excluded.expires_at
    -- A token of the future is of a clock that was wrong: it gives way.
    where t.minted_at <= excluded.minted_at - p_age_min or t.expires_at <= excluded.minted_at
      or t.minted_at > excluded.minted_at + interval '5 minutes';
  return query select t.token, t.minted_at, t.expires_at from push.provider_tokens t
    where t.provider = p_provider and t.name = p_name;
end
$$;
comment on function push.offer_provider_token is
  'offers a new token, which is taken if the current one is at least p_age_min older, or at its end; returns the one in use';

revoke execute on function push.current_provider_token, push.offer_provider_token from public;

"""###

private let migration0007 = ###"""
-- Second chances: the next channel when one fails, the receipt after the ticket, and the breaker that keeps tokens
-- alive when a provider suddenly calls most of them dead.
--
-- settle is the hot path and does one statement, as before. What a batch rarely holds is asked of its arrays first, so
-- that a batch without receipts and failures pays for no lookup.

alter table push.delivery add column failures jsonb, add column fallback_of int,
  add constraint delivery_failures_form check (jsonb_typeof(failures) = 'array');
comment on column push.delivery.failures is 'failed tries: array of {"at", "attempt", "status", "reason"}, the last 20';
comment on column push.delivery.fallback_of is
  'n of the invite of the same call that failed, instead of which this is sent';
alter table push.history add column fallback_of int, add column receipt_reason text;
comment on column push.history.failures is
  'failed tries before the last: array of {"at", "attempt", "status", "reason"}, at most 20';
comment on column push.history.fallback_of is
  'n of the invite of the same call that failed, instead of which this was sent';
comment on column push.history.receipt_reason is 'what Expo''s receipt said later; null: nothing bad, or not yet';

-- Parked and settled, with the failed tries ---------------------------------------------------------------------------

create function push.last_failures(p_failures jsonb) returns jsonb language sql immutable parallel safe as $$
  select case when jsonb_array_length(p_failures) <= 20 then p_failures else (
    select jsonb_agg(f.failure order by f.ordinal)
    from jsonb_array_elements(p_failures) with ordinality f(failure, ordinal)
    where f.ordinal > jsonb_array_length(p_failures) - 20) end
$$;
comment on function push.last_failures is 'the last 20 of a list of failed tries';

drop function push.park(int, bigint[], int[], int[], int[], int[], text[]);
create function push.park(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_delay_ms int[], p_reason text[],
  p_failures text[] default null
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_parked bigint;
begin
  -- Due at the deadline at the latest: so the index on due_at finds waiting deliveries that have expired, too.
  update push.delivery d
  set state = 2, owner = null, attempt = r.attempts, last_reason = coalesce(r.reason, d.last_reason),
    due_at = least(clock_timestamp() + r.delay_ms * interval '1 ms', d.deadline_at),
    failures = case when r.failures is null then d.failures
      else push.last_failures(coalesce(d.failures, '[]') || r.failures::jsonb) end
  from unnest(p_outbox_id, p_n, p_lease, p_attempts, p_delay_ms, p_reason, p_failures)
    r(outbox_id, n, lease, attempts, delay_ms, reason, failures)
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_parked = row_count;
  perform push.void_unsent(p_outbox_id);
  return v_parked;
end
$$;
comment on function push.park is
  'claimed to waiting, for so many milliseconds; p_failures: the tries that failed, each a JSON array of {"at", '
  '"attempt", "status", "reason"} or null, kept with earlier ones; invites of calls that have ended are void; returns '
  'how many were still the caller''s';

-- A call's next channel -----------------------------------------------------------------------------------------------

-- Runs in the transaction that settled the failed invites, which are gone from push.delivery by now.
--
-- Two replicas may settle the last two tokens of one channel at the same moment. Each would still see the other's as
-- owed, and neither would go on to the next channel. So decisions about one call are taken one after the other, under
-- an advisory lock, and each with a snapshot taken after it had the lock. No cycle of waits comes of it: the locks of
-- several calls are taken in one order; who holds one waits for nothing else (the call's row is locked with "skip
-- locked", no lane is made, no row is inserted that another could insert, for n is chosen under the lock too); and
-- ending a call never asks for one. Whoever waits for one holds deliveries it has deleted, which nobody with such a
-- lock waits for.
--
-- The race with the end of a call has the outcome that 0005 describes for a claimed invite given back: the new invite
-- is ready only under a share lock on its call. If that is denied, an end is in progress: the invite waits, and
-- push.promote makes it ready if the end was rolled back, and void if it was not.
create function push.fall_back(p_failed push.delivery[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_calls bigint[] := array(select distinct f.outbox_id from unnest(p_failed) f);
  -- Variables, so that only the partitions between are looked at. The margin is for what is settled meanwhile.
  v_since timestamptz;
  v_until timestamptz := clock_timestamp() + interval '1 minute';
  v_made  bigint;
begin
  -- Spread over all keys, so that no other use of advisory locks by a number is hit.
  perform pg_advisory_xact_lock(k.key)
    from (select hashint8extended(c.id, 7782) as key from unnest(v_calls) c(id) order by 1 offset 0) k;
  v_since := (select min(o.created_at) from push.outbox o where o.id = any (v_calls));
  with call as materialized (
    select o.*,
      coalesce((select true from push.outbox x where x.id = o.id and x.ended_at is null for share skip locked), false)
        as rings
    from unnest(v_calls) c(id) cross join lateral (
      select o.id, o.app, o.recipients, o.deadline_at,
        case when octet_length(o.payload::text) > 880 then push.size_faults(o.payload) end as size_faults
      from push.outbox o
      where o.id = c.id and o.ended_at is null and o.deadline_at > clock_timestamp()
      offset 0
    ) o
  ), failed as materialized (
    select f.outbox_id, f.n, f.lane, f.platform, f.user_id, f.token, c.app,
      case l.provider when 'apns' then 1 when 'fcm' then 2 else 3 end as rank
    from unnest(p_failed) f
    join call c on c.id = f.outbox_id
    join push.lane l on l.id = f.lane
    where l.provider <> 'expo'
  ), owed as materialized (
    select d.* from call c cross join lateral (
      select d.outbox_id, d.n, d.lane, d.platform, d.user_id, d.token from push.delivery d
      where d.outbox_id = c.id and d.n < 10000
      offset 0
    ) d
  ), past as materialized (
    select h.* from call c cross join lateral (
      select h.outbox_id, h.n, h.lane, h.user_id, h.device, h.outcome from push.history h
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and h.n < 10000
      offset 0
    ) h
  ), entry as materialized (
    select c.id, e ->> 'userId' as user_id, nullif(e ->> 'voipPushToken', '') as voip_token,
      nullif(e ->> 'fcmToken', '') as fcm_token, nullif(e ->> 'pushToken', '') as expo_token,
      case e ->> 'platform' when 'ios' then 1 when 'android' then 2 else 0 end::smallint as platform,
      e ->> 'locale' as locale
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    where jsonb_typeof(e) = 'object' and e ?| '{voipPushToken,fcmToken}'
      and e -> 'notificationEnabled' is distinct from 'false'
  ), inline as materialized (
    -- Those that an entry of recipients brought.
    select f.outbox_id, f.n, f.user_id, f.app, f.rank, e.fcm_token, e.expo_token, e.platform, e.locale
    from failed f
    join entry e on e.id = f.outbox_id and e.user_id = f.user_id
      and f.token = case f.rank when 1 then e.voip_token else e.fcm_token end
  ), next as (
    -- An entry that brought the token: the next token of the same entry.
    select i.outbox_id, i.n, i.user_id, t.rank as preference, t.rank, t.token, i.platform, i.locale
    from inline i cross join lateral (values (2, i.fcm_token), (3, i.expo_token)) t(rank, token)
    where t.rank > i.rank and t.token is not null
      -- "not exists" may become a hash of all dead tokens.
      and (select true from push.token_invalidations x where x.token = t.token and x.app = i.app
        and x.provider = case t.rank when 2 then 'fcm' else 'expo' end) is null
    union all
    -- A registered user: the devices of the next channel of the same platform, once the last token of this one failed.
    select f.outbox_id, f.n, f.user_id, d.rank + case when d.platform = 0 then 10 else 0 end, d.rank, d.token,
      d.platform, d.locale
    from failed f cross join lateral (
      select d.* from (
        select case d.provider when 'fcm' then 2 else 3 end as rank, d.token, d.locale, d.registered_at,
          case coalesce(d.platform, case d.provider when 'fcm' then 'android' end)
            when 'ios' then 1 when 'android' then 2 else 0 end::smallint as platform
        from push.devices d
        where d.user_id = f.user_id and d.app = f.app and d.enabled and d.invalidated_at is null
          and d.provider <> 'apns'
        offset 0
      ) d
      where d.rank > f.rank and d.platform in (0, f.platform)
      order by d.registered_at desc
      limit 10
    ) d
    where not exists (select from inline i where i.outbox_id = f.outbox_id and i.n = f.n)
      and not exists (select from owed o
        where o.outbox_id = f.outbox_id and o.user_id = f.user_id and o.lane = f.lane and o.platform = f.platform)
      and not exists (select from past h
        where h.outbox_id = f.outbox_id and h.user_id = f.user_id and h.lane = f.lane and h.outcome <= 1
          -- History does not know the platform. Only FCM serves two.
          and (f.rank = 1 or (select true from push.devices x
            where x.user_id = f.user_id and x.app = f.app and x.enabled and x.invalidated_at is null
              and x.provider = 'fcm' and case coalesce(x.platform, 'android') when 'ios' then 1 else 2 end = f.platform
              and left(x.token, 4) || '…' || right(x.token, 4) = h.device
            limit 1) is not null))
  ), best as (
    select v.*, l.id as lane, min(v.preference) over (partition by v.outbox_id, v.n) as preferred
    from next v
    join call c on c.id = v.outbox_id
    -- Without a lane no gateway serves the channel.
    join push.lane l on l.app = c.app and l.provider = case v.rank when 2 then 'fcm' else 'expo' end
    where c.size_faults[v.rank] is null
      and not exists (select from owed o where o.outbox_id = v.outbox_id and o.lane = l.id and o.token = v.token)
      and not exists (select from past h where h.outbox_id = v.outbox_id and h.lane = l.id
        and h.device = left(v.token, 4) || '…' || right(v.token, 4))
  ), chosen as (
    select b.*, c.deadline_at, c.rings,
      (select max(u.n) from (select o.n from owed o where o.outbox_id = c.id
        union all select h.n from past h where h.outbox_id = c.id) u)
        + row_number() over (partition by b.outbox_id order by b.lane, b.token) as next_n
    from (
      -- Several tokens of one channel that failed together have one next channel.
      select distinct on (b.outbox_id, b.lane, b.token) b.* from best b where b.preference = b.preferred
      order by b.outbox_id, b.lane, b.token, b.n desc
    ) b
    join call c on c.id = b.outbox_id
  )
  insert into push.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, state, platform, user_id, token,
    locale, fallback_of)
  select x.outbox_id, x.next_n, clock_timestamp(), clock_timestamp(), x.deadline_at, x.lane,
    case when x.rings then 0 else 2 end, x.platform, x.user_id, x.token, x.locale, x.n
  from chosen x
  where x.next_n < 10000;
  get diagnostics v_made = row_count;
  if v_made > 0 then
    perform push.ring_doorbell();
  end if;
  return v_made;
end
$$;
comment on function push.fall_back is
  'for invites that failed for good: an invite over the user''s next channel while the call still rings, never to an '
  'APNs token, to no token twice in a call; returns how many. For push.settle';

-- Settle --------------------------------------------------------------------------------------------------------------

drop function push.settle(int, bigint[], int[], int[], int[], smallint[], smallint[], text[], text[], text[],
  timestamptz[], timestamptz[]);
create function push.settle(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_outcome smallint[],
  p_status smallint[], p_reason text[], p_message_id text[], p_call_id text[],
  p_sent_at timestamptz[], p_answered_at timestamptz[], p_failures text[] default null,
  p_receipt_after_ms int[] default null
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_settled bigint;
  v_failed  push.delivery[];
begin
  -- Both of these lock what they found still claimed under its lease, so it is the same that is settled below.
  if cardinality(array_remove(p_receipt_after_ms, null)) > 0 then
    insert into push.expo_receipts (app, ticket, outbox_id, n, user_id, token, sent_at, due_at, give_up_at)
    select l.app, r.message_id, d.outbox_id, d.n, d.user_id, d.token, r.sent_at,
      least(clock_timestamp() + r.after_ms * interval '1 ms', r.sent_at + interval '24 hours'),
      r.sent_at + interval '24 hours'
    from (
      -- A gateway's clock may be ahead.
      select u.*, least(coalesce(u.left_at, now()), now()) as sent_at
      from unnest(p_outbox_id, p_n, p_lease, p_outcome, p_message_id, p_sent_at, p_receipt_after_ms)
        u(outbox_id, n, lease, outcome, message_id, left_at, after_ms)
      where u.after_ms is not null and u.outcome <= 1 and u.message_id is not null
      offset 0
    ) r
    cross join lateral (
      select * from push.delivery d
      where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease
      offset 0 for no key update
    ) d
    join push.lane l on l.id = d.lane
    on conflict (app, ticket) do nothing;
  end if;
  if p_outcome && '{3,4}' then
    v_failed := array(
      select d
      from unnest(p_outbox_id, p_n, p_lease, p_outcome) r(outbox_id, n, lease, outcome)
      cross join lateral (
        select * from push.delivery d
        where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease
          and d.kind = 0 and d.deadline_at > clock_timestamp() + case r.outcome when 3 then interval '2 s' else '0' end
        offset 0 for no key update
      ) d
      where r.outcome in (3, 4));
  end if;

  with gone as (
    delete from push.delivery d
    using unnest(p_outbox_id, p_n, p_lease, p_attempts, p_outcome, p_status, p_reason, p_message_id, p_call_id,
      p_sent_at, p_answered_at, p_failures)
      r(outbox_id, n, lease, attempts, outcome, status, reason, message_id, call_id, sent_at, answered_at, failures)
    where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease
    returning d.outbox_id, d.created_at, d.deadline_at, r.sent_at, r.answered_at, d.n, r.attempts, d.lane, d.kind,
      r.outcome, r.status, d.user_id, r.call_id, d.token, r.reason, d.last_reason, r.message_id,
      case when r.failures is null then d.failures
        else push.last_failures(coalesce(d.failures, '[]') || r.failures::jsonb) end as failures, d.fallback_of
  )
  insert into push.history (outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner, lane, kind,
    outcome, status, user_id, call_id, device, reason, provider_message_id, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.sent_at, g.answered_at, g.n, g.attempts, p_gateway, g.lane, g.kind,
    g.outcome, g.status, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    case when g.outcome <= 1 then g.reason
      else coalesce(g.reason, g.last_reason,
        case g.outcome when 2 then 'CallEnded' when 3 then 'DeadlinePassed' else 'Unknown' end)
    end,
    g.message_id, g.failures, g.fallback_of
  from gone g;
  get diagnostics v_settled = row_count;

  if v_failed <> '{}' then
    perform push.fall_back(v_failed);
  end if;
  return v_settled;
end
$$;
comment on function push.settle is
  'ends claimed deliveries and writes their history; returns how many it accepted: fewer than given means that leases '
  'were lost, and those results are dropped. attempts are what was really tried, retries under one lease included; '
  'p_failures: as for push.park; p_receipt_after_ms: not null for an Expo ticket (p_message_id) whose receipt is due '
  'so much later. An invite that failed for good while its call rings is followed by one over the user''s next channel';

-- As in 0005, with the failed tries and the fallback.
create or replace function push.void_unsent(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_ended  bigint[] := array(
    select distinct o.id from push.outbox o where o.id = any (p_outbox_id) and o.state <> 'ringing' order by o.id);
  v_voided bigint;
begin
  if v_ended = '{}' then
    return 0;
  end if;
  with gone as (
    delete from push.delivery d
    using push.outbox o
    where o.id = any (v_ended) and d.outbox_id = any (v_ended) and d.outbox_id = o.id
      and d.kind = 0 and d.state in (0, 2)
    -- A missed call's invites ended as push.expire would have ended them, whichever of the two comes first.
    returning d.*, o.call_id, o.state as call_state,
      o.state = 'missed' and d.deadline_at <= clock_timestamp() as is_late
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind,
    case when g.is_late then 3 else 2 end, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    case when g.is_late then coalesce(g.last_reason, 'DeadlinePassed') else 'Call' || initcap(g.call_state) end,
    g.failures, g.fallback_of
  from gone g;
  get diagnostics v_voided = row_count;
  return v_voided;
end
$$;

-- As in 0003, with the failed tries and the fallback.
create or replace function push.expire(p_max int default 5000, p_slack interval default '0') returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_before timestamptz := statement_timestamp() + p_slack;
  v_expired bigint;
begin
  with ready as materialized (
    select late.tid
    from push.lane l cross join lateral (
      select d.ctid as tid
      from push.delivery d
      where d.state = 0 and d.lane = l.id and d.deadline_at <= v_before
      order by d.deadline_at
      limit p_max
      for no key update skip locked
    ) late
  ), waiting as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 2 and d.due_at <= v_before and d.deadline_at <= v_before
    order by d.due_at
    limit p_max
    for no key update skip locked
  ), gone as (
    delete from push.delivery d
    where d.ctid = any (array(select tid from ready union all select tid from waiting limit p_max))
    returning d.*
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind, 3, g.user_id, o.call_id,
    left(g.token, 4) || '…' || right(g.token, 4), coalesce(g.last_reason, 'DeadlinePassed'), g.failures, g.fallback_of
  from gone g left join push.outbox o on o.id = g.outbox_id;
  get diagnostics v_expired = row_count;
  return v_expired;
end
$$;

-- Expo receipts -------------------------------------------------------------------------------------------------------

drop index push.expo_receipts_due;
create index expo_receipts_due on push.expo_receipts (app, due_at);

create function push.claim_receipts(p_app text, p_max int, p_lease_ms int)
returns table (ticket text, outbox_id bigint, n int, token text, sent_at timestamptz)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
begin
  return query
    with pick as materialized (
      select r.ctid as tid
      from push.expo_receipts r
      where r.app = p_app and r.due_at <= statement_timestamp() and r.give_up_at > statement_timestamp()
      order by r.due_at
      limit p_max
      for no key update skip locked
    )
    -- The lease is the due time: whoever takes them dies, and they are due again.
    update push.expo_receipts r
    set attempts = r.attempts + 1, due_at = least(clock_timestamp() + p_lease_ms * interval '1 ms', r.give_up_at)
    where r.ctid = any (array(select pick.tid from pick))
    returning r.ticket, r.outbox_id, r.n, r.token, r.sent_at;
end
$$;
comment on function push.claim_receipts is
  'takes up to p_max tickets of an app whose receipts are due, for p_lease_ms milliseconds; then they are due again';

create function push.settle_receipts(p_app text, p_ticket text[], p_reason text[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_settled bigint;
  v_outbox  bigint[];
  v_n       int[];
  v_ticket  text[];
  v_reason  text[];
  -- A variable, so that older partitions are not looked at. The margin is for a gateway's clock.
  v_since   timestamptz;
begin
  with gone as (
    delete from push.expo_receipts r
    using unnest(p_ticket, p_reason) s(ticket, reason)
    where r.app = p_app and r.ticket = s.ticket
    returning r.outbox_id, r.n, r.ticket, s.reason, r.sent_at
  )
  select count(*), array_agg(g.outbox_id) filter (where g.reason is not null),
      array_agg(g.n) filter (where g.reason is not null), array_agg(g.ticket) filter (where g.reason is not null),
      array_agg(g.reason) filter (where g.reason is not null), min(g.sent_at) - interval '1 hour'
    into v_settled, v_outbox, v_n, v_ticket, v_reason, v_since
    from gone g;
  if v_outbox is not null then
    update push.history h set receipt_reason = s.reason
    from unnest(v_outbox, v_n, v_ticket, v_reason) s(outbox_id, n, ticket, reason)
    where h.outbox_id = s.outbox_id and h.n = s.n and h.provider_message_id = s.ticket and h.finished_at >= v_since;
  end if;
  return v_settled;
end
$$;
comment on function push.settle_receipts is
  'ends the look-up of these tickets; a reason other than null is what the receipt said, kept in push.history; returns '
  'how many there were';

create function push.postpone_receipts(p_app text, p_ticket text[], p_delay_ms int) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_postponed bigint;
begin
  update push.expo_receipts r
  set due_at = least(clock_timestamp() + p_delay_ms * interval '1 ms', r.give_up_at)
  where r.app = p_app and r.ticket = any (p_ticket);
  get diagnostics v_postponed = row_count;
  return v_postponed;
end
$$;
comment on function push.postpone_receipts is
  'these tickets are due again in so many milliseconds, never later than they are given up; returns how many there '
  'were';

create function push.give_up_receipts(p_app text) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_lost bigint;
begin
  -- due_at is never later than give_up_at: it is what the index knows.
  delete from push.expo_receipts r
    where r.app = p_app and r.due_at <= statement_timestamp() and r.give_up_at <= statement_timestamp();
  get diagnostics v_lost = row_count;
  return v_lost;
end
$$;
comment on function push.give_up_receipts is
  'forgets an app''s tickets whose receipts Expo no longer has; returns how many nobody will ever know of';

-- What ops did --------------------------------------------------------------------------------------------------------

create table push.audit (
  id     bigint generated always as identity primary key,
  at     timestamptz not null default clock_timestamp(),
  who    text not null default session_user,
  action text not null,
  target text not null,
  detail jsonb
);
create index audit_at on push.audit (at);
comment on table push.audit is 'one intervention, by ops or by a gateway on its own';
comment on column push.audit.id is 'number of the intervention';
comment on column push.audit.at is 'when';
comment on column push.audit.who is 'the database role that was logged in';
comment on column push.audit.action is 'name of the function';
comment on column push.audit.target is 'what it was done to, for example app/provider';
comment on column push.audit.detail is 'object: what was asked and what came of it';

create function push.note_audit(p_action text, p_target text, p_detail jsonb default null) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.audit (action, target, detail) values (p_action, p_target, p_detail);
end
$$;
comment on function push.note_audit is 'writes down an intervention, in the transaction that makes it';

-- Mass invalidation ---------------------------------------------------------------------------------------------------

alter table push.lane add column invalidation_held_at timestamptz, add column invalidation_note text;
comment on column push.lane.invalidation_held_at is
  'since when no token of this lane is invalidated, but quarantined; null: the ordinary state';
comment on column push.lane.invalidation_note is 'why invalidation is on hold';

create table push.quarantined_tokens (
  app            text not null,
  provider       text not null,
  token          text not null,
  user_id        text,
  since          timestamptz not null,
  reason         text not null,
  quarantined_at timestamptz not null default clock_timestamp(),
  constraint quarantined_tokens_provider_known check (provider in ('apns', 'fcm', 'expo'))
);
create unique index quarantined_tokens_token on push.quarantined_tokens (sha256(token::bytea), app, provider);
comment on table push.quarantined_tokens is
  'one token that its provider called dead while the lane''s invalidation is on hold; it is used as if alive, until '
  'push.resume_invalidation decides';
comment on column push.quarantined_tokens.app is 'app the token belongs to';
comment on column push.quarantined_tokens.provider is 'apns, fcm or expo';
comment on column push.quarantined_tokens.token is 'the token';
comment on column push.quarantined_tokens.user_id is 'whose token it is, as far as known';
comment on column push.quarantined_tokens.since is 'since when the provider calls it dead, or when it said so';
comment on column push.quarantined_tokens.reason is 'what the provider said';
comment on column push.quarantined_tokens.quarantined_at is 'when it came here';

create function push.hold_invalidation(p_lane smallint, p_window interval, p_note text) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_app      text;
  v_provider text;
  v_moved    bigint;
begin
  -- Waits for invalidations in flight, which share the lane's lock: the next statement sees what they did.
  update push.lane l set invalidation_held_at = clock_timestamp(), invalidation_note = p_note
    where l.id = p_lane and l.invalidation_held_at is null
    returning l.app, l.provider into v_app, v_provider;
  if not found then
    return 0;
  end if;
  with feed as (
    delete from push.token_invalidations x
    where x.invalidated_at >= clock_timestamp() - p_window and x.app = v_app and x.provider = v_provider
    returning x.*
  ), alive as (
    update push.devices d set invalidated_at = null, invalid_reason = null
    from feed f
    where sha256(d.token::bytea) = sha256(f.token::bytea) and d.app = v_app and d.provider = v_provider
      and d.invalidated_at is not null
  )
  insert into push.quarantined_tokens (app, provider, token, user_id, since, reason)
  select f.app, f.provider, f.token, f.user_id, f.invalidated_at, f.reason from feed f
  on conflict (sha256(token::bytea), app, provider) do nothing;
  get diagnostics v_moved = row_count;
  perform push.note_audit('hold_invalidation', v_app || '/' || v_provider,
    jsonb_build_object('note', p_note, 'window', p_window, 'quarantined', v_moved));
  return v_moved;
end
$$;
comment on function push.hold_invalidation is
  'from now on no token of this lane is invalidated, and those that were within p_window live again: all go to '
  'push.quarantined_tokens until push.resume_invalidation; returns how many went there now; 0 if it is on hold already';

-- As in 0005; besides, a lane on hold has its dead tokens quarantined.
create or replace function push.invalidate_tokens(
  p_lane smallint[], p_token text[], p_since timestamptz[], p_reason text[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_dead bigint;
begin
  -- A hold in progress is waited for, and counts.
  perform from push.lane l where l.id = any (p_lane) order by l.id for share;
  with said as materialized (
    -- Of several answers about a token the latest counts; one without a time counts always.
    select distinct on (l.app, l.provider, r.token) l.app, l.provider, r.token, r.since,
      coalesce(r.reason, 'Unknown') as reason, l.invalidation_held_at is not null as is_held
    from unnest(p_lane, p_token, p_since, p_reason) r(lane, token, since, reason)
    join push.lane l on l.id = r.lane
    where r.token is not null
    order by l.app, l.provider, r.token, r.since desc nulls first
  ), quarantined as (
    -- Without a time of the provider's it is dead since now: a token given anew during the hold is another matter.
    insert into push.quarantined_tokens as q (app, provider, token, user_id, since, reason)
    select s.app, s.provider, s.token, (select d.user_id from push.devices d
        where sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider),
      coalesce(s.since, clock_timestamp()), s.reason
    from said s
    where s.is_held
    on conflict (sha256(token::bytea), app, provider) do update set since = excluded.since, reason = excluded.reason
      where q.since < excluded.since
  ), cleared as (
    -- Compare and clear: a token the phone gave anew after the provider saw it dead stays alive.
    update push.devices d set invalidated_at = clock_timestamp(), invalid_reason = s.reason
    from said s
    where not s.is_held
      and sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider
      and d.invalidated_at is null and (s.since is null or s.since >= d.registered_at)
    returning d.app, d.provider, d.token, d.user_id, s.reason
  )
  insert into push.token_invalidations (app, provider, token, user_id, reason)
  select c.app, c.provider, c.token, c.user_id, c.reason from cleared c
  union all
  select s.app, s.provider, s.token, null, s.reason
  from said s
  where not s.is_held and not exists (select from push.devices d
    where sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider)
  on conflict do nothing;
  get diagnostics v_dead = row_count;
  if v_dead > 0 then
    perform pg_notify('push_token_invalidations', '');
  end if;
  return v_dead;
end
$$;
comment on function push.invalidate_tokens is
  'the provider of a lane called these tokens dead, since a time if it gave one: registered devices are cleared unless '
  'registered later, tokens of no device are noted; returns how many are new in push.token_invalidations, and if any '
  'are, NOTIFY push_token_invalidations. Those of a lane whose invalidation is on hold are quarantined instead';

create function push.resume_invalidation(app text, provider text, apply boolean default false)
returns table (lane smallint, was_held boolean, invalidated bigint, forgotten bigint, message text)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  v_target   text := left(resume_invalidation.app, 64) || '/' || left(resume_invalidation.provider, 8);
  v_held_at  timestamptz;
  v_token    text[];
  v_since    timestamptz[];
  v_reason   text[];
begin
  select l.id, l.invalidation_held_at into lane, v_held_at from push.lane l
    where l.app = resume_invalidation.app and l.provider = resume_invalidation.provider
    for no key update;
  if not found then
    raise exception using errcode = 'no_data_found',
      message = format('there is no lane %s', coalesce(v_target, 'without app or provider')),
      hint = 'push.lanes lists them; provider is apns, fcm or expo.';
  end if;
  was_held := v_held_at is not null;
  update push.lane l set invalidation_held_at = null, invalidation_note = null where l.id = lane and was_held;
  with gone as (
    delete from push.quarantined_tokens q
    where q.app = resume_invalidation.app and q.provider = resume_invalidation.provider
    returning q.token, q.since, q.reason
  )
  select coalesce(array_agg(g.token), '{}'), array_agg(g.since), array_agg(g.reason)
    into v_token, v_since, v_reason
    from gone g;
  invalidated := 0;
  if apply and v_token <> '{}' then
    invalidated := push.invalidate_tokens(array_fill(lane, array[cardinality(v_token)]), v_token, v_since, v_reason);
  end if;
  forgotten := cardinality(v_token) - invalidated;
  message := case
    when not was_held and v_token = '{}' then format('%s: invalidation was not on hold; nothing to do', v_target)
    else format('%s: dead tokens are invalidated again (%s); of %s quarantined ones, %s %s', v_target,
      case when was_held then format('on hold since %s',
        to_char(v_held_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')) else 'it was not on hold' end,
      cardinality(v_token),
      case when apply then format('%s were invalidated,', invalidated) else 'none was invalidated,' end,
      format('%s live on', forgotten)) end;
  perform push.note_audit('resume_invalidation', v_target, jsonb_build_object('apply', coalesce(apply, false),
    'wasHeld', was_held, 'invalidated', invalidated, 'forgotten', forgotten));
  perform pg_notify('push_control', 'resume ' || lane);
  return next;
end
$$;
comment on function push.resume_invalidation is
  'ends the hold of a lane''s invalidation: quarantined tokens live on (one that is dead will be found so again), or, '
  'with apply, are invalidated unless registered since; says what it did; running it twice is harmless. '
  'NOTIFY push_control with "resume" and push.lanes.id';

create function push.correct_environment(p_lane smallint[], p_token text[], p_environment smallint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_corrected bigint;
begin
  update push.devices d set environment = case r.environment when 1 then 'sandbox' else 'production' end
  from (
    select l.app, u.token, u.environment
    from unnest(p_lane, p_token, p_environment) u(lane, token, environment)
    join push.lane l on l.id = u.lane
    where l.provider = 'apns' and u.environment in (0, 1)
  ) r
  where sha256(d.token::bytea) = sha256(r.token::bytea) and d.app = r.app and d.provider = 'apns'
    and d.environment <> case r.environment when 1 then 'sandbox' else 'production' end;
  get diagnostics v_corrected = row_count;
  return v_corrected;
end
$$;
comment on function push.correct_environment is
  'APNs accepted these tokens in this environment (0 production, 1 sandbox): registered devices that say otherwise are '
  'corrected; returns how many';

-- What people read ----------------------------------------------------------------------------------------------------

create or replace view push.lanes as
select l.id, l.app, l.provider, l.paused, l.note, l.updated_at, l.invalidation_held_at, l.invalidation_note
from push.lane l;
comment on column push.lanes.invalidation_held_at is
  'since when dead tokens are quarantined rather than invalidated; push.resume_invalidation ends it';
comment on column push.lanes.invalidation_note is 'why invalidation is on hold';

create or replace view push.deliveries as
select d.outbox_id, l.app, o.call_id, l.provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  d.user_id,
  case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end as state,
  d.attempt::int as attempt, d.due_at, d.deadline_at, d.last_reason, d.created_at, d.n, d.owner as gateway, d.lease,
  case d.environment when 0 then 'production' else 'sandbox' end as environment,
  case d.platform when 1 then 'ios' when 2 then 'android' end as platform,
  d.locale, left(d.token, 4) || '…' || right(d.token, 4) as device, d.failures, d.fallback_of
from push.delivery d
left join push.lane l on l.id = d.lane
left join push.outbox o on o.id = d.outbox_id;
comment on column push.deliveries.failures is 'failed tries: array of {"at", "attempt", "status", "reason"}';
comment on column push.deliveries.fallback_of is 'n of the invite that failed, instead of which this is sent';

create or replace view push.delivery_history as
select h.outbox_id, l.app, h.call_id, l.provider,
  case h.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  h.user_id,
  case h.outcome when 0 then 'delivered' when 1 then 'delivered_late' when 2 then 'void' when 3 then 'expired'
    else 'dead' end as outcome,
  h.reason, h.attempts, h.created_at, h.sent_at, h.finished_at, h.provider_message_id,
  h.status::int as status, h.answered_at, h.deadline_at, h.n, h.owner as gateway, h.device, h.failures, h.fallback_of,
  h.receipt_reason
from push.history h
left join push.lane l on l.id = h.lane;
comment on column push.delivery_history.fallback_of is 'n of the invite that failed, instead of which this was sent';
comment on column push.delivery_history.receipt_reason is 'what Expo''s receipt said later';

revoke execute on all functions in schema push from public;

"""###

private let migration0008 = ###"""
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

"""###
