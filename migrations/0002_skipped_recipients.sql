-- One recipient that cannot be used costs one device: what an app has configured, and what is told of whom was passed over.

alter table push.apps add column providers text[],
  add constraint apps_providers_known check (providers <@ '{apns,fcm,expo}');
comment on column push.apps.providers is
  'which of apns, fcm and expo the app has: nothing is owed to tokens of others; null: not known, then all are taken';

-- Their signatures change. A database that is made anew has none of them yet.
set local client_min_messages = warning;
drop function if exists push.register_app(text, int, int, boolean);
drop function if exists push.skipped_recipients(bigint);
drop function if exists push.timeline(text, text);
drop function if exists push.reachable_devices(text, text, boolean);
drop function if exists push.recipient_fault(jsonb, text, text, text, text);
reset client_min_messages;
