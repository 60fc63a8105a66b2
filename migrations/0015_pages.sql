-- A large call is read in pages.

-- Their signatures change (functions/stories.sql). A database that is made anew has none of them yet.
set local client_min_messages = warning;
drop function if exists push.timeline(text, text);
drop function if exists push.call(text, text);
reset client_min_messages;
