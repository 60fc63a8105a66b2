-- For xmin.py: keeps the backlog filled for a number of seconds, one batch of calls for each transaction. Variables: calls,
-- a file of calls whose ids begin with "batch:0:"; backlog, in deliveries; seconds. Prints the number of deliveries
-- created.

set client_min_messages = warning;
set statement_timeout = 0;
create temp table calls (app text, kind text, payload jsonb, recipients jsonb, ring_seconds int);
\set copy '\\copy calls from ' :'calls'
:copy
analyze calls;
create temp table made (deliveries bigint);
select set_config('bench.backlog', :'backlog', false), set_config('bench.seconds', :'seconds', false) \g /dev/null

do $$
declare
  v_end   constant timestamptz := clock_timestamp() + current_setting('bench.seconds')::float8 * interval '1 s';
  v_size  constant bigint := (select sum(jsonb_array_length(c.recipients)) from calls c);
  v_batch int := 0;
  v_made  bigint := 0;
begin
  while clock_timestamp() < v_end loop
    -- Statistics about rows deleted by others are up to a second old; counting the rows would read the dead ones, too.
    perform pg_stat_clear_snapshot();
    if v_made - pg_stat_get_tuples_deleted('push.delivery'::regclass) < current_setting('bench.backlog')::bigint then
      insert into push.outbox (app, kind, payload, recipients, ring_seconds)
        select c.app, c.kind,
          jsonb_set(c.payload, '{callId}',
            to_jsonb(replace(c.payload ->> 'callId', 'batch:0:', format('batch:%s:', v_batch)))),
          c.recipients, c.ring_seconds
        from calls c;
      v_batch := v_batch + 1;
      v_made := v_made + v_size;
      commit;
    else
      commit;
      perform pg_sleep(0.02);
    end if;
  end loop;
  insert into made values (v_made);
end
$$;
select deliveries from made;
