-- Enqueueing makes no lanes, and notifications have one limit.

-- A database that is made anew has none of these.
set local client_min_messages = warning;
drop function if exists push.make_lane(text, text);
drop function if exists push.skips_anybody(bigint, jsonb, text[]);
-- Its signature changes (functions/lanes.sql).
drop function if exists push.notify(text, text, double precision);
reset client_min_messages;
