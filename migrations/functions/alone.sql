-- An upgrade from release 0.1.0 changes most tables. It takes all locks before it does anything else (this file is the first), and does not
-- wait for them: who waits for one lock while it has others stops everybody, and those it waits for may wait for it.

do $$
begin
  -- A function that the upgrade drops (upgrade.sql).
  if to_regprocedure('push.plan_escalation()') is null then
    return;
  end if;
  for v_try in 1..300 loop
    begin
      execute (
        select format('lock table %s in access exclusive mode nowait', string_agg(format('push.%I', c.relname), ', '))
        from pg_class c where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition);
      return;
    exception when lock_not_available then
      if v_try = 300 then
        raise;
      end if;
    end;
    perform pg_sleep(0.01);
  end loop;
end
$$;
