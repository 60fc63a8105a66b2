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
