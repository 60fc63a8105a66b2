-- People's data: what one user's erasure still waits for, and indexes by which tokens that are too old are found.

create table push.erasure (
  id           bigint generated always as identity primary key,
  app          text not null,
  user_digest  bytea not null,
  asked_at     timestamptz not null default clock_timestamp(),
  after_id     bigint not null default 0,
  until_id     bigint not null default 0,
  after_table  text not null default '',
  after_page   bigint not null default 0,
  scanned_at   timestamptz,
  waiting      bigint[] not null default '{}',
  rang         bigint[] not null default '{}',
  has_devices  boolean not null default false,
  is_known     boolean not null default false,
  looked_at    timestamptz not null default clock_timestamp(),
  token_hashes bigint[] not null default '{}',
  counts       jsonb not null default '{}',
  finished_at  timestamptz,
  constraint erasure_of_user unique (user_digest, app),
  constraint erasure_digest_sha256 check (length(user_digest) = 32)
);
create index erasure_unfinished on push.erasure (id) where finished_at is null;
comment on table push.erasure is
  'one user of one app whose data push.erase_user removes; it names the user and the tokens by digests only';
comment on column push.erasure.id is 'number of the erasure';
comment on column push.erasure.app is 'app whose user it is';
comment on column push.erasure.user_digest is 'SHA-256 of the backend''s id of the user';
comment on column push.erasure.asked_at is 'when push.erase_user began its last pass; what was registered later stays';
comment on column push.erasure.after_id is 'push.outbox.id up to which calls were looked at';
comment on column push.erasure.until_id is 'push.outbox.id at which the pass ends: the newest call when it began';
comment on column push.erasure.after_table is 'partition of push.history that is being looked at; empty: none yet';
comment on column push.erasure.after_page is 'page of it at which the next bite begins';
comment on column push.erasure.scanned_at is 'when all calls and all of history had been looked at; null: call push.erase_user again';
comment on column push.erasure.waiting is
  'calls (push.outbox.id) that ring, of which something is still owed, or which were locked: a gateway masks them when they have '
  'ended and nothing is';
comment on column push.erasure.rang is 'calls (push.outbox.id) that have waited: looked at once more before it is finished';
comment on column push.erasure.has_devices is
  'true: devices are left, as a call that rings was locked and not yet declined, or a device was locked: a gateway goes on';
comment on column push.erasure.is_known is
  'whether there was such a user in the app: if not, nothing is masked in push.audit';
comment on column push.erasure.looked_at is 'when a gateway last looked at what waits';
comment on column push.erasure.token_hashes is
  'hashes of the user''s tokens, as push.history.token_hash, until it is finished: a provider''s last word about them is removed, too';
comment on column push.erasure.counts is 'object: rows by table, as push.erase_user returns them: {"devices": [removed, masked]}';
comment on column push.erasure.finished_at is 'when nothing was left; removed 90 days later';

insert into push.job (name, every) values ('erase', '15 s');

-- What is too old is found by these (push.prune).
create index devices_invalidated on push.devices (invalidated_at) where invalidated_at is not null;
create index quarantined_tokens_age on push.quarantined_tokens (quarantined_at);
