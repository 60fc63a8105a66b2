-- What is deleted: calls that are deleted by hand, and rows that are older than the retention time.

-- Calls that are deleted ----------------------------------------------------------------------------------------------

-- The history of deleted calls stays. After a TRUNCATE, the other rows of all calls go at once.
create or replace function push.drop_calls() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  -- It may not show deliveries that have been made since.
  v_is_old constant boolean := current_setting('transaction_isolation') in ('repeatable read', 'serializable');
  v_table  text;
  v_owing  bigint[];
begin
  if tg_op = 'TRUNCATE' then
    foreach v_table in array '{delivery,ring_reports,escalations,unreached,follow_ups,call_key}'::text[] loop
      begin
        execute format('truncate push.%I', v_table);
      exception when object_in_use then
        -- Usually the same TRUNCATE includes this table, which is then empty.
        execute format('delete from push.%I', v_table);
      end;
    end loop;
    insert into push.audit (action, target) values ('truncate_calls', 'push.outbox');
    perform push.notify('push_control', 'void *');
    return null;
  end if;
  -- Retention deletes no call with deliveries, so these calls were deleted by hand.
  v_owing := array(select g.id from gone_calls g where v_is_old or (select true from push.delivery d where d.outbox_id = g.id limit 1));
  if v_owing <> '{}' then
    insert into push.follow_ups (outbox_id, why) select c.id, 'gone' from unnest(v_owing) c(id);
    perform push.notify('push_control', 'void ' || c.id)
      from unnest(case when cardinality(v_owing) <= 100 then v_owing::text[] else '{*}' end) c(id);
    insert into push.audit (action, target, detail) values ('delete_calls',
      (select min(g.call_id) || case when count(*) > 1 then ', …' else '' end from gone_calls g),
      jsonb_build_object('calls', (select count(*) from gone_calls), 'owed',
        (select count(*) from push.delivery d where d.outbox_id = any (v_owing))));
  end if;
  delete from push.ring_reports r where r.outbox_id = any (array(select g.id from gone_calls g));
  delete from push.escalations e where e.outbox_id = any (array(select g.id from gone_calls g));
  delete from push.unreached u where u.outbox_id = any (array(select g.id from gone_calls g));
  -- Deleted last, so that a session that waits for a key finds that the call is gone.
  delete from push.call_key k where k.ctid = any (array(
    select k.tid
    from gone_calls g cross join lateral (
      select k.ctid as tid from push.call_key k where k.call_id = g.call_id and k.app = g.app offset 0
    ) k));
  return null;
end
$$;
comment on function push.drop_calls is 'when calls are deleted: deletes their other rows, and notes their deliveries for push.follow_up';

create or replace trigger drop_calls after delete on push.outbox referencing old table as gone_calls
  for each statement execute function push.drop_calls();
create or replace trigger drop_all_calls after truncate on push.outbox
  for each statement execute function push.drop_calls();

-- What is too old -----------------------------------------------------------------------------------------------------

create or replace function push.prune_others() returns void
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_table text;
  v_time  text;
  v_keep  interval;
begin
  for v_table, v_time, v_keep in values
    ('audit', 'at', interval '90 days'),
    -- Dead tokens. A token that is tried again is found dead again.
    ('token_invalidations', 'invalidated_at', '90 days'), ('devices', 'invalidated_at', '90 days'),
    ('quarantined_tokens', 'quarantined_at', '90 days'), ('provider_tokens', 'expires_at', '1 day'),
    ('erasure', 'coalesce(finished_at, asked_at)', '90 days'),
    -- Not while a delivery may still be claimed by the gateway.
    ('gateways', 'case when free_due_at is null then ended_at end', '1 day')
  loop
    execute format('select push.change_rows(''delete from push.%1$I where ctid = any ($1)'', array('
      'select ctid from push.%1$I where %2$s < now() - %3$L::interval order by %2$s limit 250 for update skip locked))', v_table, v_time, v_keep);
  end loop;
  -- Expo no longer has these receipts. Usually the app's gateway has given them up; an app that is no longer configured has
  -- no gateway.
  perform push.change_rows('delete from push.receipt_batch where ctid = any ($1)', array(
    select x.tid from push.lane l cross join lateral (
      select r.ctid as tid from push.receipt_batch r
      where r.app = l.app and r.due_at < now() - interval '1 day' and r.give_up_at < now() - interval '1 day'
      limit 25 for update skip locked
    ) x
    where l.provider = 'expo'));
  perform push.change_rows('delete from push.lane_status where ctid = any ($1)', array(
    select x.ctid from push.lane_status x where not exists (select from push.gateways g
      where g.id = x.gateway and (g.alive or g.ended_at > now() - interval '1 day')) limit 250 for update skip locked));
end
$$;
comment on function push.prune_others is 'deletes what is too old in other tables than that of calls, in small bites';

-- A step reads twenty calls, each of which may have a thousand reports, in the order of their numbers, which nearly follow time. No
-- index on a time is needed, and the pass ends at a step in which every call is too young. The next step continues after the last
-- number, so an old call that is still owed is skipped once a pass and blocks nothing. After the end of a pass, the next one begins ten
-- minutes later, or when a new day has begun: until then only calls that were still owed would be left.
create or replace function push.prune(p_max int default 5000, p_keep_days int default 15) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp set lock_timeout = '200ms' as $$
declare
  -- A day longer than their history, which is found through the calls. A notification may be owed for longer.
  v_before timestamptz := (date_trunc('day', now() at time zone 'UTC')
    - make_interval(days => greatest(p_keep_days, 1))) at time zone 'UTC';
  v_begun  timestamptz := clock_timestamp();
  v_cursor push.prune_cursor;
  v_oldest timestamptz;
  v_done   bigint[];
  v_pruned bigint := 0;
begin
  perform push.prune_others();
  select c.* into v_cursor from push.prune_cursor c for update skip locked;
  if not found
    or v_cursor.after_id = 0 and v_cursor.until = v_before and v_cursor.ended_at > v_begun - interval '10 minutes' then
    return 0;
  end if;
  loop
    select max(b.id), min(b.created_at), array_agg(b.id) filter (where b.is_done) into v_cursor.after_id, v_oldest, v_done
      from (
        select o.id, o.created_at, o.created_at < v_before and o.ended_at is not null
          and (select true from push.delivery d where d.outbox_id = o.id limit 1) is null as is_done
        from push.outbox o
        where o.id > v_cursor.after_id
        order by o.id
        limit least(20, p_max - v_pruned)
      ) b;
    if coalesce(v_oldest >= v_before, true) then
      v_cursor.after_id := 0;
      v_cursor.until := v_before;
      v_cursor.ended_at := clock_timestamp();
      exit;
    end if;
    -- The trigger drop_calls deletes their other rows.
    v_pruned := v_pruned + push.change_rows('delete from push.outbox where ctid = any ($1)', array(
      select x.ctid from push.outbox x where x.id = any (v_done) order by x.id for update skip locked));
    exit when v_pruned >= p_max or clock_timestamp() > v_begun + interval '25 ms';
  end loop;
  update push.prune_cursor c
    set after_id = v_cursor.after_id, until = v_cursor.until, ended_at = v_cursor.ended_at;
  return v_pruned;
end
$$;
comment on function push.prune is
  'one step of retention: deletes at most p_max calls that were enqueued more than p_keep_days days before today (UTC), have ended and owe '
  'nothing, with their other rows, and what is too old elsewhere (push.prune_others). Returns how many. Stops after 25 ms and continues there '
  'the next time, until push.prune_cursor.after_id is 0. Locked rows, and those that a foreign key keeps, are left for the next pass';
