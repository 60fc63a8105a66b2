-- What a call knows of one device and of one user: members of their own for templates, who answered with which phone, who declined.

alter table push.delivery add column data jsonb;
comment on column push.delivery.data is
  'object of texts: what the recipient''s entry brought for templates, ${recipient.NAME}; null, as a rule: nothing';

alter table push.outbox add column answered_device text, add column declined jsonb;
alter table push.outbox alter declined set statistics 0;
comment on column push.outbox.answered_device is
  'token of the phone that answered, as far as known: it is told nothing, the same user''s other phones are';
comment on column push.outbox.declined is
  'object: each user who declined or is busy, with {"reason", "at", "device"}: their phones ring no more; null: nobody. Written by '
  'push.decline_call';

-- Their signatures change. A database that is made anew has none of them yet.
set local client_min_messages = warning;
drop function if exists push.claim(int, int, smallint[], int[], timestamptz[], interval, int, int, timestamptz[], int[]);
drop function if exists push.answer_call(text, text, text);
reset client_min_messages;
