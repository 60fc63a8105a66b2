-- One app's calls are judged by that app's own lanes.

drop function if exists push.oldest_ringing();  -- it has a parameter now (functions/operations.sql)
