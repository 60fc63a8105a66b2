-- Housekeeping, done by any gateway that takes the job (jobs.sql). It is harmless if two gateways do the same.

-- Rows that cannot be changed -----------------------------------------------------------------------------------------

create or replace function push.name_fault(p_target text, p_sqlstate text, p_pushes int default 1) returns void
language sql volatile set search_path = push, pg_temp as $$
  insert into push.audit (action, target, detail)
  select 'put_aside', p_target, jsonb_strip_nulls(jsonb_build_object('sqlstate', p_sqlstate, 'pushes', p_pushes))
  where p_target is not null and not exists (select from push.audit a
    where a.action = 'put_aside' and a.at > now() - interval '1 day' and a.target = p_target)
$$;
comment on function push.name_fault is 'names in push.audit and push.health, once a day, what cannot be read or changed; nothing if p_target is null';

-- All at once. If one fails, for example by a trigger or a foreign key that somebody has added, in halves, until it is alone, so that it
-- keeps no other waiting. Such a key may be deferred to the commit, which would then fail.
create or replace function push.change_rows(p_change text, p_rows tid[], out changed bigint)
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  set constraints all immediate;
  execute p_change using p_rows;
  get diagnostics changed = row_count;
exception when others or assert_failure then
  if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
  if cardinality(p_rows) > 1 then
    changed := push.change_rows(p_change, p_rows[:cardinality(p_rows) / 2]) + push.change_rows(p_change, p_rows[cardinality(p_rows) / 2 + 1:]);
  else
    changed := 0;
    perform push.name_fault('push.outbox.id ' || case
      when p_change ~ 'update push.delivery' then (select d.outbox_id from push.delivery d where d.ctid = p_rows[1])
      when p_change ~ 'update push.outbox' then (select o.id from push.outbox o where o.ctid = p_rows[1]) end, sqlstate);
  end if;
end
$$;
comment on function push.change_rows is
  'runs a statement for rows, $1, which are locked; returns how many it has changed. Those that cannot be changed are left, and their calls named';

-- What waits, and what is too late ------------------------------------------------------------------------------------

create or replace function push.promote(p_max int default 2000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_promoted bigint := push.change_rows(
    'update push.delivery d set state = 0, ready_lane = case when d.crashes < 2 then d.lane end where d.ctid = any ($1)', array(
      select w.ctid from push.delivery w
      where w.ready_lane is null and w.due_at <= statement_timestamp() and w.deadline_at > statement_timestamp() and w.state = 2
      order by w.due_at limit p_max for no key update skip locked));
begin
  perform push.ring_doorbell() where v_promoted > 0;
  return v_promoted;
end
$$;
comment on function push.promote is
  'makes at most p_max waiting deliveries ready that are due. Returns how many. Whether their calls still ring is shown by the claim';

create or replace function push.expire(
  p_max int default 5000, p_slack interval default '0', p_since timestamptz default '-infinity'
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_before timestamptz := statement_timestamp() + p_slack;
  v_gone   tid[] := array(
    select ready.tid from push.lane l cross join lateral (
      select d.ctid as tid from push.delivery d
      where d.ready_lane = l.id and d.deadline_at > p_since and d.deadline_at <= v_before and d.state = 0
      order by d.deadline_at limit p_max for no key update skip locked) ready
    union all
    -- Those that wait, and suspects.
    select other.tid from (
      select d.ctid as tid from push.delivery d
      where d.ready_lane is null and d.due_at > p_since and d.due_at <= v_before and d.deadline_at <= v_before and d.state in (0, 2)
      order by d.due_at limit p_max for no key update skip locked) other
    limit p_max);
begin
  return push.bury(v_gone, 3);
end
$$;
comment on function push.expire is
  'ends at most p_max ready and waiting deliveries whose deadline is past, or less than p_slack away, as expired. Returns how many. '
  'Claimed ones are left to their gateway. p_since: skips those that were due before it. While a transaction holds back vacuum, a call '
  'without it reads the dead entries of all earlier calls; call it without from time to time';

-- History's partitions ------------------------------------------------------------------------------------------------

-- Making and dropping partitions are two functions and so two transactions: a drop that fails on a lock must not undo
-- tomorrow's partition. Days are UTC days, whatever the session's time zone. A new partition has the statistics settings of
-- push.history (0001_schema.sql). It is created first and attached afterwards. That locks push.history_default, which is
-- never written, and keeps no settlement waiting for a session that has read history in an open transaction. One that was detached is
-- attached again: otherwise its day would have none.
create or replace function push.ensure_partitions(p_days_ahead int default 14) returns int
language plpgsql security definer set search_path = push, pg_temp set timezone = 'UTC' set lock_timeout = '100ms' as $$
declare
  v_day  date;
  v_name text;
  v_made int := 0;
begin
  -- One replica at a time: if another runs this, it does the same work.
  perform from push.job j where j.name = 'ensure_partitions' for update skip locked;
  if not found and exists (select from push.job j where j.name = 'ensure_partitions') then
    return 0;
  end if;
  -- Not more than 60: every query on history opens a file for each partition.
  for v_day in
    select d::date from generate_series(current_date - 1, current_date + least(p_days_ahead, 60), interval '1 day') d
    where not exists (select from pg_inherits i
      where i.inhparent = 'push.history'::regclass and i.inhrelid = to_regclass('push.history_' || to_char(d, 'YYYYMMDD')))
  loop
    v_name := 'history_' || to_char(v_day, 'YYYYMMDD');
    begin
      execute format('create table if not exists push.%I (like push.history including all)', v_name);
      execute format('alter table push.%I alter user_id set statistics 0, alter token set statistics 0, alter locale set statistics 0, '
        'alter data set statistics 0, alter provider_message_id set statistics 0, alter failures set statistics 0, '
        'set (autovacuum_analyze_threshold = 100000), replica identity full', v_name);
      execute format('alter table push.history attach partition push.%I for values from (%L) to (%L)',
        v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
      execute format('revoke all on push.%I from public', v_name);  -- as roles.sql does
      execute format('comment on table push.%I is %L', v_name, 'what was finished on ' || v_day || ' (UTC)');
      v_made := v_made + 1;
    exception when others or assert_failure then
      if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
      raise warning 'push.history has no partition for % (SQLSTATE %). If push.history_default holds rows of it, move them', v_day, sqlstate;
    end;
  end loop;
  return v_made;
end
$$;
comment on function push.ensure_partitions is
  'makes the missing partitions of push.history, from yesterday on. Returns how many. p_days_ahead: number of days from '
  'today, at most 60';

create or replace function push.drop_partitions(p_keep_days int default 14) returns int
language plpgsql security definer set search_path = push, pg_temp set timezone = 'UTC' set lock_timeout = '100ms' as $$
declare
  v_name text := (
    select c.relname
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'push.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
      and right(c.relname, 8) < to_char(current_date - greatest(p_keep_days, 1), 'YYYYMMDD')
    -- One that something depends on, for example somebody's view, cannot be dropped. It comes last, so that push.health names the job then.
    order by exists (select from pg_depend d where d.refclassid = 'pg_class'::regclass and d.refobjid = c.oid and d.deptype = 'n'), c.relname
    limit 1);
begin
  if v_name is not null then
    execute format('drop table if exists push.%I', v_name);
  end if;
  return (v_name is not null)::int;
end
$$;
comment on function push.drop_partitions is
  'drops the oldest partition of push.history that is too old and returns 1; call it until it returns 0. p_keep_days: '
  'number of days to keep';

-- Makes the partitions of the first days. A gateway makes the later ones (jobs.sql). An existing partition is left alone.
select push.ensure_partitions();
