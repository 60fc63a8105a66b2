-- One app's calls are judged by that app's own lanes.

-- Its signature changes (functions/operations.sql). A database that is made anew has none of it yet.
set local client_min_messages = warning;
drop function if exists push.oldest_ringing();
reset client_min_messages;
