-- What goes: calls that somebody deletes, and what is too old to be kept.

-- Calls that are deleted ----------------------------------------------------------------------------------------------

-- By their key, not by their place: a delivery that a gateway changes meanwhile is waited for and deleted all the same.
create or replace function push.drop_deliveries(p_outbox_id bigint[], p_wait boolean default true) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_free    tid[];
  v_held    bigint[];
  v_dropped bigint;
begin
  if not p_wait then
    v_free := array(select d.ctid from push.delivery d where d.outbox_id = any (p_outbox_id) for update skip locked);
  end if;
  with gone as (
    delete from push.delivery d where d.outbox_id = any (p_outbox_id) and (p_wait or d.ctid = any (v_free))
    returning d.outbox_id, d.state
  )
  select array_agg(distinct g.outbox_id) filter (where g.state = 1), count(*) into v_held, v_dropped from gone g;
  perform push.tell_void(v_held);
  return v_dropped;
end
$$;
comment on function push.drop_deliveries is
  'removes what is owed of calls that exist no more, and leaves no history of it; gateways that hold some of it are '
  'told; returns how many deliveries. p_wait: for what others have locked, rather than leaving it to them';

create or replace function push.drop_belongings(p_outbox_id bigint[]) returns void
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  delete from push.ring_reports r where r.outbox_id = any (p_outbox_id);
  delete from push.escalations e where e.outbox_id = any (p_outbox_id);
  delete from push.escalations_due e where e.outbox_id = any (p_outbox_id);
end
$$;
comment on function push.drop_belongings is 'removes what else there is of calls that exist no more';

-- The calls are locked by now, so nobody makes deliveries of them any more, but for an invite that waits because of that
-- very lock (call_rules.sql): push.void_unsent drops it. Deliveries are waited for in the order of their keys, as by the end
-- of a call (claims.sql).
create or replace function push.drop_calls() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_calls   bigint[] := array(select g.id from gone_calls g order by g.id);
  v_dropped bigint := 0;
begin
  if v_calls = '{}' then
    return null;
  end if;
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    insert into push.ends_unchecked (outbox_id) select unnest(v_calls);
    begin
      v_dropped := push.drop_deliveries(v_calls);
    exception when serialization_failure then
      -- What a gateway has done since; push.check_ends comes by.
      null;
    end;
  else
    v_dropped := push.drop_deliveries(v_calls);
  end if;
  -- Retention deletes nothing that is owed, so this was somebody.
  if v_dropped > 0 then
    perform push.note_audit('delete_calls', coalesce((select min(g.call_id) || case when count(*) > 1 then ', …' else '' end
      from gone_calls g), ''), jsonb_build_object('calls', cardinality(v_calls), 'owed', v_dropped));
  end if;
  perform push.drop_belongings(v_calls);
  -- The last, so that whoever waits for a key finds the call gone.
  delete from push.call_key k where k.ctid = any (array(
    select k.tid
    from gone_calls g cross join lateral (
      select k.ctid as tid from push.call_key k where k.call_id = g.call_id and k.app = g.app offset 0
    ) k));
  return null;
end
$$;
comment on function push.drop_calls is
  'what follows from calls being deleted: nothing is owed of them any more, and what belongs to them is gone; their '
  'history stays';

create or replace trigger drop_calls after delete on push.outbox referencing old table as gone_calls
  for each statement execute function push.drop_calls();

create or replace function push.drop_all_calls() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp set jit = off
as $$
declare
  v_table text;
begin
  foreach v_table in array '{delivery,ring_reports,escalations,escalations_due,ends_unchecked,call_key}'::text[] loop
    begin
      execute format('truncate push.%I', v_table);
    exception when object_in_use then
      -- As a rule the same TRUNCATE names it, and it is empty.
      execute format('delete from push.%I', v_table);
    end;
  end loop;
  perform push.note_audit('truncate_calls', 'push.outbox');
  perform push.notify('push_control', 'void *');
  return null;
end
$$;
comment on function push.drop_all_calls is 'what push.drop_calls does, after a TRUNCATE';

create or replace trigger drop_all_calls after truncate on push.outbox
  for each statement execute function push.drop_all_calls();

-- What is too old -----------------------------------------------------------------------------------------------------

-- A bite looks at calls in the order of their numbers, which rise with time, nearly: so no index on a time is needed, and
-- a step that is wholly too young is the end. The next bite goes on behind it, so what is old and still owed is passed
-- over once a pass, and never in the way. At the end a pass begins anew; not at once, unless a new day has begun, for then
-- there is only what was owed.
create or replace function push.prune(p_max int default 5000, p_keep_days int default 15) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
set lock_timeout = '200ms'
as $$
declare
  -- A bite ends after so long, and steps shrink or grow to take a tenth of it or two: a call may have a thousand reports.
  c_bite   constant interval := '25 ms';
  c_pause  constant interval := '10 minutes';
  c_keep_tokens constant interval := '90 days';
  -- A day longer than their history, which is looked up through them; a notification may be owed for longer.
  v_before timestamptz := (date_trunc('day', now() at time zone 'UTC')
    - make_interval(days => greatest(p_keep_days, 1))) at time zone 'UTC';
  v_begun  timestamptz := clock_timestamp();
  v_step   int := 20;
  v_from   timestamptz;
  v_took   interval;
  v_cursor push.prune_cursor;
  v_seen   int;
  v_last   bigint;
  v_oldest timestamptz;
  v_done   bigint[];
  v_pruned bigint := 0;
begin
  -- Of others a bite each, for as long as somebody prunes.
  delete from push.escalations_due e where e.ctid = any (array(
    select x.ctid from push.escalations_due x where x.due_at < now() - interval '1 day' order by x.due_at limit 250
    for update skip locked));
  delete from push.audit a where a.id = any (array(
    select x.id from push.audit x where x.at < now() - interval '90 days' order by x.at limit 250
    for update skip locked));
  -- Tokens that are of no use. One that is tried again is found dead again.
  delete from push.token_invalidations t where t.ctid = any (array(
    select x.ctid from push.token_invalidations x where x.invalidated_at < now() - c_keep_tokens order by x.invalidated_at limit 250
    for update skip locked));
  delete from push.devices d where d.ctid = any (array(
    select x.ctid from push.devices x where x.invalidated_at < now() - c_keep_tokens order by x.invalidated_at limit 250
    for update skip locked));
  delete from push.quarantined_tokens q where q.ctid = any (array(
    select x.ctid from push.quarantined_tokens x where x.quarantined_at < now() - c_keep_tokens order by x.quarantined_at limit 250
    for update skip locked));
  delete from push.provider_tokens t where t.ctid = any (array(
    select x.ctid from push.provider_tokens x where x.expires_at < now() - interval '1 day' limit 250 for update skip locked));
  -- Expo has forgotten them. As a rule the app's gateway has given them up; an app that is configured no more has none.
  delete from push.receipt_batch r where r.ctid = any (array(
    select x.tid from push.lane l cross join lateral (
      select r.ctid as tid from push.receipt_batch r
      where r.app = l.app and r.due_at < now() - interval '1 day' and r.give_up_at < now() - interval '1 day'
      limit 25 for update skip locked
    ) x
    where l.provider = 'expo'));
  delete from push.erasure e where e.id = any (array(
    select x.id from push.erasure x where coalesce(x.finished_at, x.asked_at) < now() - interval '90 days' limit 250 for update skip locked));
  delete from push.lane_status s where s.ctid = any (array(
    select x.ctid from push.lane_status x where not exists (select from push.gateways g
      where g.id = x.gateway and (g.alive or g.ended_at > now() - interval '1 day')) limit 250 for update skip locked));
  -- Not while a delivery may still be claimed in its name.
  delete from push.gateways g where g.id = any (array(
    select x.id from push.gateways x where not x.alive and x.ended_at < now() - interval '1 day' and x.free_due_at is null
    limit 250 for update skip locked));

  select c.* into v_cursor from push.prune_cursor c for update skip locked;
  if not found
    or v_cursor.after_id = 0 and v_cursor.until = v_before and v_cursor.ended_at > v_begun - c_pause then
    return 0;
  end if;
  loop
    v_from := clock_timestamp();
    select count(*), max(b.id), min(b.created_at), array_agg(b.id) filter (where b.is_done)
      into v_seen, v_last, v_oldest, v_done
      from (
        select o.id, o.created_at, o.created_at < v_before and o.ended_at is not null
          and (select true from push.delivery d where d.outbox_id = o.id limit 1) is null as is_done
        from push.outbox o
        where o.id > v_cursor.after_id
        order by o.id
        limit least(v_step, p_max - v_pruned)
      ) b;
    if v_seen = 0 or v_oldest >= v_before then
      v_cursor.after_id := 0;
      v_cursor.until := v_before;
      v_cursor.ended_at := clock_timestamp();
      exit;
    end if;
    v_cursor.after_id := v_last;
    if v_done is not null then
      -- The trigger drop_calls removes what belongs to them.
      with gone as (
        delete from push.outbox o where o.id = any (array(
          select x.id from push.outbox x where x.id = any (v_done) order by x.id for update skip locked))
        returning 1
      )
      select v_pruned + count(*) into v_pruned from gone;
    end if;
    exit when v_pruned >= p_max or clock_timestamp() > v_begun + c_bite;
    v_took := clock_timestamp() - v_from;
    v_step := case when v_took > c_bite / 5 then greatest(v_step / 4, 1) when v_took > c_bite / 10 then v_step
      else least(v_step * 2, 500) end;
  end loop;
  update push.prune_cursor c
    set after_id = v_cursor.after_id, until = v_cursor.until, ended_at = v_cursor.ended_at;
  return v_pruned;
end
$$;
comment on function push.prune is
  'a bite of retention: removes up to p_max calls that were enqueued more than p_keep_days days before today (UTC), have '
  'ended and of which nothing is owed, with what belongs to them; besides, interventions (push.audit), dead and quarantined '
  'tokens and finished erasures of more than 90 days ago, tokens of providers that expired, tickets that were given up, and replicas '
  'that ended, more than a day ago. Returns how many calls. It stops after 25 ms and goes '
  'on there the next time, until push.prune_cursor.after_id is 0. It waits for nobody: what is locked is left for the next '
  'pass';
