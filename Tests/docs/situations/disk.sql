-- History has a day that is older than a week.
\ir base.sql
do $$
declare v_day date := (now() at time zone 'UTC')::date - 10;
begin
  execute format('create table push.%I partition of push.history for values from (%L) to (%L)', 'history_' || to_char(v_day, 'YYYYMMDD'),
    v_day::timestamp at time zone 'UTC', (v_day + 1)::timestamp at time zone 'UTC');
end
$$;
