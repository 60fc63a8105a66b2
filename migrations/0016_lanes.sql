-- Enqueueing makes no lanes, and notifications have one limit.

-- A database that is made anew has none of these.
set local client_min_messages = warning;
drop function if exists push.make_lane(text, text);
drop function if exists push.skips_anybody(bigint, jsonb, text[]);
-- Its signature changes (functions/lanes.sql).
drop function if exists push.notify(text, text, double precision);
reset client_min_messages;

comment on table push.ends_unchecked is
  'one call that is to be looked at once more, by push.check_ends: a transaction ended, or deleted it, which saw the database as it had '
  'been before (REPEATABLE READ, SERIALIZABLE), or had locked it for so long that an invite was made ready without it';
comment on column push.ends_unchecked.ended_at is 'when it was ended, deleted or found locked';
