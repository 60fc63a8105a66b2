-- Tokens that have one mask are told apart, and VoIP cancels for the apps that take them.

alter table push.history add column token_hash bigint;
comment on column push.history.token_hash is
  'hash of the token, which tells tokens of one mask apart while their call rings; null: written by an older release';

alter table push.apps add column voip_cancel boolean not null default false;
comment on column push.apps.voip_cancel is
  'whether the phones take a VoIP push for the end of a call: a cancel goes to VoIP tokens, too';

-- Its signature changes. A database that is made anew has none of it yet.
set local client_min_messages = warning;
drop function if exists push.register_app(text, int, int, boolean, text[], text);
reset client_min_messages;
