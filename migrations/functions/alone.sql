-- What an upgrade from release 0.1.0 does first.

-- It changes most tables. It takes all locks before it does anything else, and does not wait for them: who waits for one lock while it has
-- others stops everybody, and those it waits for may wait for it.
do $$
begin
  for v_try in 1..300 loop
    -- A function that the upgrade drops (upgrade.sql).
    exit when to_regprocedure('push.plan_escalation()') is null;
    begin
      execute (
        select format('lock table %s in access exclusive mode nowait', string_agg(format('push.%I', c.relname), ', '))
        from pg_class c where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition);
      exit;
    exception when lock_not_available then
      if v_try = 300 then
        raise;
      end if;
    end;
    perform pg_sleep(0.01);
  end loop;
end
$$;

-- These have other arguments now. What no longer exists is dropped by upgrade.sql.
drop function if exists push.find_call(text, text), push.void_unsent(bigint[], boolean), push.put_away(int), push.take_job(int),
  push.refuse(text, text), push.settled(int, bigint[], int[]), push.add_counts(jsonb, text, bigint, bigint), push.mask_user(jsonb, text),
  push.hand_over(bigint, text), push.finish_erasures(int), push.erase_from_call(bigint, text, jsonb, bigint[]), push.register_lane(text, text),
  push.register_app(text, int, int, boolean, text[], text, boolean), push.call_fault(text, text, text, jsonb, jsonb, int),
  push.free_claims(int[]), push.report_lanes(int, smallint[], int[], int[], int[], text[], int[], int[]),
  push.claim(int, int, smallint[], int[], timestamptz[], interval, int, int, timestamptz[], int[]),
  push.park(int, bigint[], int[], int[], int[], int[], text[], text[]),
  push.settle(int, tid[], bigint[], int[], int[], int[], smallint[], smallint[], text[], text[], text[], timestamptz[], timestamptz[],
    text[], int[]);
