-- How queries are planned: sets of settings, and which functions run with which.
--
-- Backends and gateways keep their sessions for weeks, and PL/pgSQL makes a query's plan once a session, perhaps while the tables
-- are empty, perhaps with statistics from a quiet night. A plan that suits small tables (scan the table, look into the caller's batch
-- for each row) stays for that session, and is ten to a thousand times slower once the tables have filled. So the plans of whatever
-- reads a table that grows are fixed by these settings, and by the form of the query: a row is looked up with "cross join lateral (...
-- offset 0)", which can only run once for each row of the batch, and is changed by its ctid, which no plan can find another way.
--
-- A setting also holds for what the function calls, unless that has its own. The parts of push.follow_up and push.claim, and functions that
-- the planner puts into the query around them, therefore have none: applying one costs about as much as a look-up.
--
-- roles.sql calls push.set_planner at its end, so that the settings are applied again whenever a file is.

create or replace function push.set_planner() returns void
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  -- Every look-up has an index. A scan of the whole table is never right, even if the table is small when the plan is made.
  c_index constant jsonb := '{"enable_seqscan": "off"}';
  -- Compiling a statement takes seconds, and each of these runs for milliseconds.
  c_uncompiled  constant jsonb := '{"jit": "off"}';
  -- Walks an index in its order, up to a limit: a bitmap scan would read and sort all that matches. The plan is the same for all
  -- arguments and never made again: planning takes longer than running.
  c_walk  constant jsonb := c_index || c_uncompiled || '{"enable_bitmapscan": "off", "plan_cache_mode": "force_generic_plan"}';
  -- Looks up each row of a batch by its key: a hash or merge join would read the whole table or index for every batch.
  c_batch constant jsonb := c_walk || '{"enable_hashjoin": "off", "enable_mergejoin": "off"}';
  v_plan  record;
begin
  for v_plan in
    select s.name, s.settings, p.oid::regprocedure as function, p.former
    from (select unnest(string_to_array(s.names, ', ')) as name, s.settings from (values
      (c_index, 'add_recipients, ring_newcomers, ring_unreached, answer_call, beat, call, compare_call, compare_recipients, decline_call, '
        'device_token, drop_device, enable_device, end_call, enqueue_call, fill_call, find_call, cut_receipts, report_lanes, '
        'report_ringing, retire_gateway, sync, take_call_key, void_call'),
      (c_uncompiled, 'erase_receipts, observe, observe_webhooks, overview, put_away, timeline'),
      (c_walk, 'check_health, claimed_by, count_owed, disown, drop_calls, enqueue_calls, erase_user, finish_erasures, forget, give_up_receipts, '
        'miss, oldest_ringing, postpone_receipts, promote, prune, register_device, run_job, skipped_recipients, take_job, take_tally, '
        'trim_webhooks'),
      (c_batch, 'bury, bypass, claim, claim_receipts, claim_webhooks, correct_environment, dead_tokens, ended, ended_for, expire, '
        'free_rows, hold_invalidation, invalidate_tokens, keep_newest, note_devices, note_tokens, own_calls, park, places, '
        'resume_invalidation, settle, settle_receipts, settle_webhooks, settled'),
      (c_index || c_uncompiled, 'calls, end_calls, enqueue_batch, minutes'),
      -- By hand, with a condition that only a plan for the given arguments finds by an index.
      (c_index || c_uncompiled || '{"enable_bitmapscan": "off"}', 'requeue, resend_webhooks, resume_webhooks'),
      -- Inside a statement that has the other settings.
      ('{"plan_cache_mode": "force_generic_plan"}', 'calls_that_skip'),
      -- The sort of a statement with many calls stays in memory.
      (c_batch || '{"work_mem": "64MB"}', 'fan_out'),
      -- Batches are joined with themselves: a nested loop would cost the square of their size.
      (c_walk || '{"enable_mergejoin": "off"}', 'follow_up, release'),
      ('{"enable_nestloop": "off", "enable_hashjoin": "on"}', 'next_channels'),
      (c_batch || '{"enable_hashjoin": "on"}', 'take_receipts'),
      -- They read a whole table on purpose.
      (c_batch || '{"max_parallel_workers_per_gather": "0"}', 'free_claims'),
      (c_walk - 'enable_bitmapscan' || '{"enable_seqscan": "on", "max_parallel_workers_per_gather": "0"}', 'erase_elsewhere')
    ) s(settings, names)) s
    full join (
      select p.proname as name, p.oid, coalesce(jsonb_object_agg(split_part(c, '=', 1), split_part(c, '=', 2)) filter (
        where c ~ '^(enable_|jit|plan_cache_mode|work_mem|max_parallel_)'), '{}') as former
      from pg_proc p left join unnest(p.proconfig) c on true where p.pronamespace = 'push'::regnamespace group by p.proname, p.oid
    ) p on p.name = s.name
  loop
    if v_plan.function is null then
      raise exception 'planner.sql names push.%, which does not exist', v_plan.name;
    elsif v_plan.former <> coalesce(v_plan.settings, '{}') then
      execute format('alter function %s %s %s', v_plan.function,
        (select string_agg(format('reset %I', k), ' ') from jsonb_object_keys(v_plan.former) k),
        (select string_agg(format('set %I = %L', s.key, s.value), ' ') from jsonb_each_text(v_plan.settings) s));
    end if;
  end loop;
end
$$;
comment on function push.set_planner is
  'gives functions the settings with which their queries are planned, as listed in it. Running it twice is harmless. For the owner of '
  'the schema';
