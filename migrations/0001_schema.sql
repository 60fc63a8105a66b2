-- The tables of push-gateway: what a backend writes, what is still owed, what became of it. This is the baseline: tables
-- change in the files that follow it, and what is in functions/ is replaced as a whole.
--
-- A call is one row of push.outbox. Inserting it fans out one narrow row of push.delivery a device (enqueue.sql); a
-- gateway claims those rows (claims.sql), and settling one moves it to push.history in the same statement (settle.sql). The
-- hot table therefore holds only unfinished work, and its cost does not depend on how much was ever sent.
--
-- Codes, decoded by the views of stories.sql:
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
  app                    text primary key,
  ring_seconds           int not null,
  updated_at             timestamptz not null default clock_timestamp(),
  escalate_after_seconds int,
  at_least_once          boolean not null default false,
  constraint apps_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64),
  constraint apps_ring_seconds_range check (ring_seconds between 1 and 600),
  constraint apps_escalate_range check (escalate_after_seconds between 1 and 600)
);
create index apps_escalating on push.apps (app) where escalate_after_seconds is not null;
comment on table push.apps is 'one app of the gateway''s configuration, as far as enqueueing needs it';
comment on column push.apps.app is 'name of the app: the key under apps in the configuration';
comment on column push.apps.ring_seconds is 'ring window of a call that gives none of its own, in seconds, 1 to 600';
comment on column push.apps.updated_at is 'when a gateway last changed the row';
comment on column push.apps.escalate_after_seconds is
  'a user none of whose phones has said by then that it rings is tried on the next channel, once; null: never';
comment on column push.apps.at_least_once is
  'true: a missed call or notification of which nobody knows whether it was sent is sent again; false: it is not';

-- Lanes and replicas --------------------------------------------------------------------------------------------------

create table push.lane (
  id                   smallint generated always as identity primary key,
  app                  text not null,
  provider             text not null,
  paused               boolean not null default false,
  note                 text,
  updated_at           timestamptz not null default clock_timestamp(),
  invalidation_held_at timestamptz,
  invalidation_note    text,
  constraint lane_app_provider unique (app, provider),
  constraint lane_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64),
  constraint lane_provider_known check (provider in ('apns', 'fcm', 'expo'))
);
create index lane_paused on push.lane (id) where paused;
comment on table push.lane is 'one app and provider: deliveries of different lanes never wait for one another';
comment on column push.lane.id is 'small number that deliveries carry';
comment on column push.lane.app is 'name of the app';
comment on column push.lane.provider is 'apns, fcm or expo';
comment on column push.lane.paused is 'true: nothing is claimed from this lane, its deliveries wait or expire';
comment on column push.lane.note is 'why it is paused, or whatever ops want to remember';
comment on column push.lane.updated_at is 'when the row last changed';
comment on column push.lane.invalidation_held_at is
  'since when no token of this lane is invalidated, but quarantined; null: the ordinary state';
comment on column push.lane.invalidation_note is 'why invalidation is on hold';

create table push.gateways (
  id           int generated always as identity primary key,
  name         text not null,
  version      text not null,
  alive        boolean not null default true,
  started_at   timestamptz not null default clock_timestamp(),
  heartbeat_at timestamptz not null default clock_timestamp(),
  steady_since timestamptz not null default '-infinity',
  ended_at     timestamptz,
  ended_reason text,
  claims_from  int not null default 0,
  free_due_at  timestamptz,
  constraint gateways_ended check (alive = (ended_at is null) and alive = (ended_reason is null)),
  constraint gateways_free_ended check (free_due_at is null or not alive),
  constraint gateways_ended_reason_known check (ended_reason in ('retired', 'silent'))
) with (fillfactor = 50);
comment on table push.gateways is 'one life of one gateway process; its id is the fence, so it is never used again';
comment on column push.gateways.id is 'identity of this life: the owner of what it claims';
comment on column push.gateways.name is 'host or pod name, for people';
comment on column push.gateways.version is 'version of the program';
comment on column push.gateways.alive is 'false once retired or found silent: it can claim nothing more';
comment on column push.gateways.started_at is 'when it registered';
comment on column push.gateways.heartbeat_at is 'when it was last heard';
comment on column push.gateways.steady_since is
  'since when its heartbeats came one after the other as they should, by this server''s clock (push.beat)';
comment on column push.gateways.ended_at is 'when it ended or was declared dead';
comment on column push.gateways.ended_reason is 'retired (clean shutdown) or silent (missed its heartbeats)';
comment on column push.gateways.claims_from is 'claims with a lower number are barred: they take nothing any more (push.forget)';
comment on column push.gateways.free_due_at is
  'of one that has ended: when deliveries that are claimed in its name are looked for again; null: none is left';

-- Both are unlogged on purpose: PostgreSQL empties them after a crash and on a promoted standby, which may have lost the last
-- commits of the gateways' sessions, and keeps them over a clean restart. An empty push.life says that this may have happened.
create unlogged table push.life (
  is_present boolean primary key default true,
  began_at   timestamptz not null default clock_timestamp(),
  opened_at  timestamptz,
  constraint life_at_most_one check (is_present)
);
comment on table push.life is
  'at most one row: the time since which no commit can have been lost. Nothing is claimed before it is opened (gateways.sql)';
comment on column push.life.is_present is 'always true: makes the row the only one';
comment on column push.life.began_at is 'when a gateway first found the table empty';
comment on column push.life.opened_at is
  'when every living gateway had reclaimed what it holds and what it remembers as settled; null: claims return nothing';

create unlogged table push.reclaimed (
  gateway      int primary key,
  asked_at     timestamptz not null default clock_timestamp(),
  confirmed_at timestamptz
);
comment on table push.reclaimed is 'one gateway that was asked, in this life of the server, to reclaim what it holds';
comment on column push.reclaimed.gateway is 'push.gateways.id';
comment on column push.reclaimed.asked_at is 'when push.beat first told it to';
comment on column push.reclaimed.confirmed_at is 'when it had done so, or was new and had nothing; null: not yet';

create table push.job (
  name     text primary key,
  every    interval not null,
  due_at   timestamptz not null default clock_timestamp(),
  taken_at timestamptz,
  gateway  int,
  constraint job_every_positive check (every > '0')
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table push.job is
  'one piece of housekeeping; any gateway takes what is due (push.take_job) and runs a bite of it (push.run_job)';
comment on column push.job.name is 'what is done: housekeeping.sql';
comment on column push.job.every is 'how long after it was taken it is due again';
comment on column push.job.due_at is 'when it is due; moved on when it is taken, so an error delays it and nothing else';
comment on column push.job.taken_at is 'when it was last taken';
comment on column push.job.gateway is 'push.gateways.id of the gateway that took it';
insert into push.job (name, every) values
  ('promote', '250 ms'), ('miss', '250 ms'), ('check_ends', '250 ms'), ('escalate', '500 ms'), ('tally', '500 ms'), ('expire', '1 s'),
  ('prune', '10 s'), ('expire_all', '15 s'), ('ensure_partitions', '1 hour'), ('drop_partitions', '1 hour');

-- Its other column, and its row, are made by restore.sql.
create table push.origin (
  made_at timestamptz not null default clock_timestamp()
);
comment on table push.origin is
  'when this database was made. A row that was written later than it was made was restored from a dump, and with it all '
  'that was owed then (restore.sql)';
comment on column push.origin.made_at is 'when the row was first made, as a dump has it';

create table push.lane_status (
  lane            smallint not null,
  gateway         int not null,
  window_size     int not null,
  capacity        int not null,
  in_flight       int not null,
  rate_per_second int not null,
  circuit         text not null,
  throttled_until timestamptz,
  updated_at      timestamptz not null default clock_timestamp(),
  constraint lane_status_pkey primary key (lane, gateway),
  constraint lane_status_circuit_known check (circuit in ('closed', 'half_open', 'open'))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table push.lane_status is 'one lane as one replica sees it, written every second. People read push.lanes';
comment on column push.lane_status.lane is 'push.lane.id';
comment on column push.lane_status.gateway is 'push.gateways.id of the replica';
comment on column push.lane_status.window_size is 'how many requests the replica lets be in flight now';
comment on column push.lane_status.capacity is 'how many its connections could carry';
comment on column push.lane_status.in_flight is 'how many are';
comment on column push.lane_status.rate_per_second is 'requests it sent in the last second';
comment on column push.lane_status.circuit is
  'closed (all is well), half_open (trying again) or open (nothing is sent)';
comment on column push.lane_status.throttled_until is 'until when the provider wants to be left alone';
comment on column push.lane_status.updated_at is 'when the replica last said so';

-- What the backend writes ---------------------------------------------------------------------------------------------

-- The columns a backend fills carry no CHECK that it can fail: a CHECK's error prints the failing row with its tokens. The
-- statement triggers of enqueue.sql refuse the same rows with an error that names the field and prints no value. The
-- empty traceparent is what push.fill_call makes of a bad one, for push.check_traces to refuse.
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
  answered_by  text,
  ended_at     timestamptz,
  end_reason   text,
  voided       boolean not null default false,
  traceparent  text,
  constraint outbox_call unique (call_id, app),
  constraint outbox_state_known check (state in ('ringing', 'answered', 'ended', 'missed')),
  constraint outbox_traceparent_form check (traceparent ~ '^(00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2})?$')
) with (
  fillfactor = 90, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 100000
);
-- For push.miss. A look-up by id asks "ended_at is null" for the same thing: given "state = 'ringing'" the planner may
-- walk this index instead.
create index outbox_ringing on push.outbox (deadline_at) where state = 'ringing';
comment on table push.outbox is
  'one call, or one notification, as the backend wrote it: insert (app, payload, recipients [, kind, ring_seconds]), '
  'the rest is filled in';
comment on column push.outbox.id is 'number of the call; unique, but not in order of insertion';
comment on column push.outbox.app is 'which app''s phones ring: the key under apps in the gateway''s configuration';
comment on column push.outbox.kind is
  'incoming_call, video_call, or one of the notifications message, group_message, group_invite, missed_call';
comment on column push.outbox.call_id is
  'payload.callId; for message, group_message and group_invite what was given, else payload.callId, payload.messageId '
  'or a new UUID; unique with app, so enqueueing twice is one call';
comment on column push.outbox.payload is
  'object. Calls and missed_call: callId and from (strings) required; fromName, apartmentNumber, buildingName, '
  'channelName, metadata optional. message, group_message, group_invite: from and chatId (strings) required; callId, '
  'messageId, fromName, metadata optional; never a text of the message';
comment on column push.outbox.recipients is
  'array of up to 1000 user ids, or objects {userId, voipPushToken, apnsToken, fcmToken, pushToken, platform, '
  'environment, locale, notificationEnabled}';
comment on column push.outbox.ring_seconds is
  'calls: ring window in seconds, 1 to 600; the app''s (else 60) unless given. Notifications: time to live in seconds, '
  '1 to 2419200; 14400 unless given';
comment on column push.outbox.state is
  'ringing, answered, ended or missed; it changes once, and an update of it is as good as push.answer_call or '
  'end_call; a notification is ended from the start';
comment on column push.outbox.created_at is 'when it was enqueued, by the database''s clock';
comment on column push.outbox.deadline_at is 'end of the ring window, or of the time to live: nothing leaves after it';
comment on column push.outbox.answered_by is 'the user who answered, as far as known: their devices are told nothing';
comment on column push.outbox.ended_at is 'when the state ceased to be ringing; null while it rings';
comment on column push.outbox.end_reason is
  'the reason given to push.end_call, else answered, ended or missed; declined and busy leave no missed call; '
  'notification: it never was a call';
comment on column push.outbox.voided is 'ended by push.void_call: nobody is told of a missed call';
comment on column push.outbox.traceparent is
  'W3C trace context of whoever enqueued the call, 00-TRACE-SPAN-FLAGS; null: none. The gateway logs its trace id';

-- What makes a call unique, beside the constraint of push.outbox: a row trigger can ask "on conflict" of it, which waits
-- for another transaction that enqueues the same call. The constraint itself is never violated, so it never raises.
create table push.call_key (
  call_id text not null,
  app     text not null,
  constraint call_key_pkey primary key (call_id, app)
) with (
  vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 500000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_threshold = 100000
);
comment on table push.call_key is
  'one call of push.outbox by what makes it unique; written by push.fill_call before the call, removed with it';
comment on column push.call_key.call_id is 'push.outbox.call_id';
comment on column push.call_key.app is 'push.outbox.app';

create table push.prune_cursor (
  is_present boolean primary key default true,
  after_id   bigint not null default 0,
  until      timestamptz,
  ended_at   timestamptz,
  constraint prune_cursor_one check (is_present)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table push.prune_cursor is 'one row: how far push.prune has come. Whoever prunes has it locked';
comment on column push.prune_cursor.is_present is 'always true: makes the row the only one';
comment on column push.prune_cursor.after_id is 'push.outbox.id after which the next bite begins; 0: a pass begins';
comment on column push.prune_cursor.until is 'what the last pass removed was enqueued before this';
comment on column push.prune_cursor.ended_at is 'when the last pass came to the end';
insert into push.prune_cursor default values;

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

-- What is still owed: the hot table -----------------------------------------------------------------------------------

-- Exactly these indexes. No index mentions, its predicate included, what a claim changes (lease, owner, attempt, state):
-- so a claim is a HOT update, for which half of each page is kept free. One on owner would also make the planner settle a
-- batch by a product of the batch with itself. No foreign keys: each would lock or look up a row per delivery. One CHECK:
-- each is evaluated twice a delivery; that the other codes are known, enqueueing sees to (enqueue.sql).
create table push.delivery (
  outbox_id   bigint not null,
  created_at  timestamptz not null default clock_timestamp(),
  due_at      timestamptz not null default clock_timestamp(),
  deadline_at timestamptz not null,
  n           int not null,
  lease       int not null default 0,
  attempt     int not null default 0,
  owner       int,
  state       smallint not null default 0,
  crashes     smallint not null default 0,
  lane        smallint not null,
  ready_lane  smallint,
  kind        smallint not null default 0,
  environment smallint not null default 0,
  platform    smallint not null default 0,
  user_id     text not null,
  token       text not null,
  locale      text,
  last_reason text,
  failures    jsonb,
  fallback_of int,
  constraint delivery_pkey primary key (outbox_id, n),
  constraint delivery_state_form check (
    ready_lane is not distinct from case when state < 2 and crashes < 2 then lane end
    and (owner is not null) = (state = 1) and state between 0 and 2)
) with (
  fillfactor = 50, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 500000,
  autovacuum_vacuum_cost_delay = 0
);
create index delivery_ready on push.delivery (ready_lane, deadline_at) where ready_lane is not null;
create index delivery_waiting on push.delivery (due_at) where ready_lane is null;
create index delivery_suspect on push.delivery (lane, deadline_at) where crashes >= 2;
comment on table push.delivery is
  'one push still owed to one device; claimed by an update, finished by a delete. People read push.deliveries';
comment on column push.delivery.outbox_id is 'the call: push.outbox.id';
comment on column push.delivery.created_at is 'when it was enqueued: an invite with its call, anything else at its end';
comment on column push.delivery.due_at is
  'a waiting delivery becomes ready at this time, never later than its deadline';
comment on column push.delivery.deadline_at is 'nothing is sent after this';
comment on column push.delivery.n is
  'number of the push within its call: invites and notifications from 0, cancels from 10000, missed calls from 20000';
comment on column push.delivery.lease is
  'number of the claim that took it: with owner, the fence against a slow gateway. Kept when it is given back';
comment on column push.delivery.owner is 'push.gateways.id of the gateway that has claimed it';
comment on column push.delivery.attempt is 'tries so far, the current one included';
comment on column push.delivery.lane is 'push.lane.id';
comment on column push.delivery.crashes is
  'how many gateways died while they had it. From 2 on it is a suspect: taken one at a time; at 3 it is dead, GatewayCrashed';
comment on column push.delivery.ready_lane is
  'the lane while it is ready or claimed; null while it waits, and of a suspect: so the index of ready ones has no state in it';
comment on column push.delivery.kind is '0 invite, 1 cancel, 2 missed_call, 3 notification';
comment on column push.delivery.state is '0 ready, 1 claimed, 2 waiting';
comment on column push.delivery.environment is '0 production, 1 sandbox';
comment on column push.delivery.platform is '0 unknown, 1 ios, 2 android';
comment on column push.delivery.user_id is 'the backend''s id of the user';
comment on column push.delivery.token is 'the device token';
comment on column push.delivery.locale is 'language of visible texts';
comment on column push.delivery.last_reason is 'why the last try did not end it';
comment on column push.delivery.failures is 'failed tries: array of {"at", "attempt", "status", "reason"}, the last 20';
comment on column push.delivery.fallback_of is
  'n of the invite of the same call that failed, instead of which this is sent';

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
  fallback_of         int,
  receipt_reason      text,
  constraint history_codes_known check (kind between 0 and 3 and outcome between 0 and 4),
  constraint history_failure_has_reason check (outcome <= 1 or reason is not null),
  constraint history_failures_form check (jsonb_typeof(failures) = 'array')
) partition by range (finished_at);
create index history_call on push.history (outbox_id);
create index history_failed on push.history (lane, finished_at) where outcome <> 0;
-- Rows are written in order of time: the smallest of indexes finds the last minute of a day with millions.
create index history_finished on push.history using brin (finished_at)
  with (pages_per_range = 32, autosummarize = on);
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
  'failed tries before the last: array of {"at", "attempt", "status", "reason"}, at most 20';
comment on column push.history.fallback_of is
  'n of the invite of the same call that failed, instead of which this was sent';
comment on column push.history.receipt_reason is 'what Expo''s receipt said later; null: nothing bad, or not yet';

-- A forgotten partition must never fail a settlement; push.ensure_partitions keeps this one empty.
create table push.history_default partition of push.history default with (autovacuum_analyze_threshold = 100000);
comment on table push.history_default is 'airbag: catches finished pushes for which no day''s partition exists';

-- The phone says that it rings ----------------------------------------------------------------------------------------

create table push.ring_reports (
  outbox_id bigint not null,
  user_id   text not null,
  rang_at   timestamptz not null default clock_timestamp(),
  constraint ring_reports_pkey primary key (outbox_id, user_id)
);
comment on table push.ring_reports is 'one user whose phone has said that a call rings; the first report counts';
comment on column push.ring_reports.outbox_id is 'the call: push.outbox.id';
comment on column push.ring_reports.user_id is 'the backend''s id of the user';
comment on column push.ring_reports.rang_at is 'when the first report came';

create table push.escalations_due (
  outbox_id bigint primary key,
  due_at    timestamptz not null
);
create index escalations_due_at on push.escalations_due (due_at);
comment on table push.escalations_due is
  'one call of an app that escalates, until its time has come; taken by push.escalate';
comment on column push.escalations_due.outbox_id is 'the call: push.outbox.id';
comment on column push.escalations_due.due_at is 'when users of whom no phone was heard are tried on the next channel';

create table push.escalations (
  outbox_id bigint not null,
  n         int not null,
  user_id   text not null,
  constraint escalations_pkey primary key (outbox_id, n)
);
comment on table push.escalations is 'one invite that was made because no phone of the user had said that it rings';
comment on column push.escalations.outbox_id is 'the call: push.outbox.id';
comment on column push.escalations.n is 'number of the invite within its call';
comment on column push.escalations.user_id is 'the backend''s id of the user';

-- No key: rows come and go, and nobody is to wait for another one's.
create table push.ends_unchecked (
  outbox_id bigint not null,
  ended_at  timestamptz not null default clock_timestamp()
);
comment on table push.ends_unchecked is
  'one call that a transaction ended, or deleted, which saw the database as it had been before (REPEATABLE READ, '
  'SERIALIZABLE): its deliveries are looked at once more, by push.check_ends';
comment on column push.ends_unchecked.outbox_id is 'the call: push.outbox.id';
comment on column push.ends_unchecked.ended_at is 'when it was ended or deleted';

create unlogged table push.fallback_turn (
  outbox_id bigint primary key
);
comment on table push.fallback_turn is
  'decisions about a call''s next channel are taken in turn: each inserts the call here, which waits for the other''s commit, '
  'and deletes it at once. Nobody ever sees a row';
comment on column push.fallback_turn.outbox_id is 'the call: push.outbox.id';

-- What replicas share -------------------------------------------------------------------------------------------------

-- One row a settlement and lane, not a ticket. The arrays are stored as they are: compressing them would cost more than it saves.
create table push.receipt_batch (
  id         bigint generated always as identity primary key,
  sent_at    timestamptz not null,
  due_at     timestamptz not null,
  give_up_at timestamptz not null,
  attempts   int not null default 0,
  claimed    boolean not null default false,
  app        text not null,
  ticket     text[] not null,
  outbox_id  bigint[] not null,
  n          int[] not null,
  user_id    text[] not null,
  token      text[] not null,
  constraint receipt_batch_order check (sent_at <= due_at and due_at <= give_up_at),
  constraint receipt_batch_lengths check (cardinality(ticket) > 0 and cardinality(outbox_id) = cardinality(ticket)
    and cardinality(n) = cardinality(ticket) and cardinality(user_id) = cardinality(ticket)
    and cardinality(token) = cardinality(ticket))
) with (autovacuum_analyze_threshold = 10000);
alter table push.receipt_batch alter ticket set storage external, alter outbox_id set storage external,
  alter n set storage external, alter user_id set storage external, alter token set storage external;
create index receipt_batch_due on push.receipt_batch (app, due_at);
create index receipt_batch_asked on push.receipt_batch (app, claimed) where attempts > 0;
comment on table push.receipt_batch is
  'Expo tickets whose receipts are still to be looked up: those that one settlement noted for one lane, or what is left of them';
comment on column push.receipt_batch.id is 'number of the batch';
comment on column push.receipt_batch.sent_at is
  'when the first of the pushes was sent; a token counts as dead only if not registered since';
comment on column push.receipt_batch.due_at is 'when to look next: about 15 minutes after sending. While claimed: the end of the lease';
comment on column push.receipt_batch.give_up_at is 'when Expo has dropped the receipts: 24 hours after sending';
comment on column push.receipt_batch.attempts is 'look-ups made';
comment on column push.receipt_batch.claimed is 'a replica looks these up, or did and died';
comment on column push.receipt_batch.app is 'app whose access token reads the receipts';
comment on column push.receipt_batch.ticket is 'the tickets'' ids; the other arrays have the same order';
comment on column push.receipt_batch.outbox_id is 'the calls: push.outbox.id';
comment on column push.receipt_batch.n is 'numbers of the pushes within their calls';
comment on column push.receipt_batch.user_id is 'the backend''s ids of the users';
comment on column push.receipt_batch.token is 'the tokens, to be invalidated when a receipt says so';

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
comment on column push.provider_tokens.name is 'whose: team, key id and a fingerprint of the key (apns), service account (fcm)';
comment on column push.provider_tokens.token is 'the token; secret';
comment on column push.provider_tokens.minted_at is 'when it was signed or fetched';
comment on column push.provider_tokens.expires_at is 'when it is to be renewed, before it stops being good';

create table push.tally (
  id      bigint generated always as identity primary key,
  what    text not null,
  lane    smallint,
  app     text,
  kind    smallint,
  outcome smallint,
  reason  text,
  untried boolean not null default false,
  count   int not null default 1,
  seconds double precision,
  constraint tally_what_known check (what in ('ended', 'enqueued', 'missed', 'rang', 'invalidated', 'quarantined')),
  constraint tally_count_positive check (count > 0)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
comment on table push.tally is
  'what one statement did that no gateway saw: only inserted into, and taken by a gateway (push.take_tally)';
comment on column push.tally.id is 'number of the note; the oldest are taken first';
comment on column push.tally.what is
  'ended (deliveries, by push.void_unsent or push.expire), enqueued (calls), missed (missed calls announced), rang (a '
  'phone said so), invalidated or quarantined (tokens)';
comment on column push.tally.lane is 'push.lane.id, for deliveries and tokens';
comment on column push.tally.app is 'name of the app, where there is no lane';
comment on column push.tally.kind is 'of deliveries: as push.history.kind';
comment on column push.tally.outcome is 'of deliveries: as push.history.outcome';
comment on column push.tally.reason is 'of deliveries: as push.history.reason; of missed calls: deadline or ended';
comment on column push.tally.untried is 'of deliveries: no try of them was ever made';
comment on column push.tally.count is 'how many';
comment on column push.tally.seconds is 'rang: from the enqueueing of the call to the report';

-- Who did what, and who may ask ---------------------------------------------------------------------------------------

create table push.audit (
  id     bigint generated always as identity primary key,
  at     timestamptz not null default clock_timestamp(),
  who    text not null default session_user,
  action text not null,
  target text not null,
  detail jsonb,
  via    text default nullif(current_setting('application_name'), '')
);
create index audit_at on push.audit (at);
comment on table push.audit is 'one intervention, by ops or by a gateway on its own';
comment on column push.audit.id is 'number of the intervention';
comment on column push.audit.at is 'when';
comment on column push.audit.who is 'the database role that was logged in';
comment on column push.audit.action is 'name of the function';
comment on column push.audit.target is 'what it was done to, for example app/provider';
comment on column push.audit.detail is 'object: what was asked and what came of it';
comment on column push.audit.via is 'the program that asked (application_name): psql, push-gateway dashboard';

create table push.api_keys (
  id         int generated always as identity primary key,
  app        text not null,
  name       text not null,
  scopes     text[] not null,
  hash       bytea not null,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz,
  revoked_at timestamptz,
  constraint api_keys_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64),
  constraint api_keys_name_length check (length(name) between 1 and 128),
  constraint api_keys_scopes_known check (scopes <@ '{enqueue,device,read}' and cardinality(scopes) between 1 and 3),
  constraint api_keys_hash_sha256 check (length(hash) = 32)
);
comment on table push.api_keys is 'one key to the HTTP API; the key itself is not stored';
comment on column push.api_keys.id is 'number of the key, and its part after pgk_';
comment on column push.api_keys.app is 'the only app it opens';
comment on column push.api_keys.name is 'who has it, for people';
comment on column push.api_keys.scopes is
  'what it may do: enqueue (enqueue, answer and end calls), device (register and drop devices, report ringing), read '
  '(a call''s state and timeline)';
comment on column push.api_keys.hash is 'SHA-256 of the whole key';
comment on column push.api_keys.created_at is 'when it was made';
comment on column push.api_keys.expires_at is 'from when on it is refused; null: never';
comment on column push.api_keys.revoked_at is 'since when it is refused; null: it is not';

-- Statistics that nobody plans with -----------------------------------------------------------------------------------

-- ANALYZE comes by whenever a table has grown by a tenth, every few seconds on a day that has just begun, and sorts thirty
-- thousand samples of each of these columns: seen as 14 us a delivery. Plans do not depend on it (claims.sql).
alter table push.call_key alter call_id set statistics 0;
alter table push.outbox alter payload set statistics 0, alter recipients set statistics 0,
  alter traceparent set statistics 0;
alter table push.history alter user_id set statistics 0, alter call_id set statistics 0, alter device set statistics 0,
  alter provider_message_id set statistics 0, alter failures set statistics 0;
alter table push.receipt_batch alter ticket set statistics 0, alter outbox_id set statistics 0, alter n set statistics 0,
  alter user_id set statistics 0, alter token set statistics 0;
