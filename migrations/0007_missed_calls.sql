-- Missed calls per app: none, one a user, or one a phone.

alter table push.apps add column missed_calls text,
  add constraint apps_missed_calls_known check (missed_calls in ('off', 'newest', 'all'));
comment on column push.apps.missed_calls is
  'whom a missed call is shown to: off: nobody; newest: one phone of each user; all: every phone of each user; null: not said, then '
  'one phone of each user hears what gateways announce, and every phone what the backend enqueues';

-- Its signature changes. A database that is made anew has none of it yet.
set local client_min_messages = warning;
drop function if exists push.register_app(text, int, int, boolean, text[]);
reset client_min_messages;
