-- The rights of the roles, and how queries are planned. This file is applied last, and again whenever another file is: functions of the
-- other files can be called by no role until they are granted here, and have no settings of the planner until they get them here.

-- Roles ---------------------------------------------------------------------------------------------------------------

-- What the roles may do, as GRANT names it.
create or replace view push.role_rights as
with c_insert(rights) as (values ('insert (app, kind, call_id, payload, recipients, ring_seconds, state, traceparent)')),
-- All columns of a call except payload and recipients, which contain tokens.
c_select(rights) as (
  values ('select (id, app, kind, call_id, ring_seconds, state, created_at, deadline_at, answered_by, ended_at, end_reason, traceparent)')),
c_calls(rights) as (values ('execute on function push.enqueue_call, push.compare_call, push.add_recipients, push.answer_call, push.decline_call, '
  'push.end_call, push.register_device, push.enable_device, push.drop_device, push.dead_tokens, push.call, push.report_ringing, push.timeline, '
  'push.skipped_recipients, push.enqueue_batch, push.find_calls, push.slot_of, push.shard_of, push.shards_of, '
  'push.own_shard, push.shard_map_number, push.new_call_id'))
select r.role, 'usage on schema push' as "right" from unnest('{push_enqueuer,push_tenant,push_ops,push_keys,push_gateway}'::text[]) r(role)
union all select r.role, x.rights from c_calls x cross join unnest('{push_enqueuer,push_tenant,push_gateway}'::text[]) r(role)
union all values
  ('push_enqueuer', (table c_insert) || ', update (state, answered_by, end_reason), ' || (table c_select) || ' on push.outbox'),
  -- No right to read or update push.outbox: see tenants.sql.
  ('push_tenant', (table c_insert) || ' on push.outbox'),
  ('push_ops', (table c_select) || ', select (voided) on push.outbox'),
  ('push_ops', 'select on push.summary, push.lanes, push.stuck, push.failures, push.replicas, push.health, push.deliveries, '
    'push.delivery_history, push.dead_devices, push.quarantined_devices, push.registered_devices, push.keys, push.apps, '
    'push.lane_status, push.audit, push.job, push.app_grants, push.quotas, push.webhooks, push.calls'),
  ('push_ops', 'update (paused, note) on push.lanes'),
  ('push_ops', 'execute on function push.timeline, push.call, push.requeue, push.void_call, push.pause_lane, push.resume_lane, '
    'push.hold_invalidation, push.resume_invalidation, push.set_quota, push.quota_uses, push.skipped_recipients, push.oldest_ringing, '
    'push.check_health, push.lane_conditions, push.count_owed, push.erase_user, push.find_calls, push.slot_of, push.shard_of, push.shards_of, '
    'push.own_shard, push.shard_map_number, push.pause_webhooks, push.resume_webhooks, push.resend_webhooks, push.minutes, '
    'push.overview, push.calls, push.epoch_ms, push.length_ms, push.entry_user, push.finite'),
  ('push_keys', 'select on push.keys, push.apps'),
  ('push_keys', 'execute on function push.create_api_key, push.revoke_api_key'),
  ('push_gateway', 'execute on function push.register_gateway, push.beat, push.retire_gateway, push.register_app, push.register_lane, '
    'push.report_lanes, push.claim, push.put_aside, push.settle, push.settled, push.park, push.release, push.forget, push.forget_in, push.reclaim, '
    'push.confirm_reclaimed, push.claimed_by, push.disown, push.ended, push.ended_for, push.follow_up, push.sync, push.take_job, '
    'push.run_job, push.promote, push.expire, push.miss, push.prune, push.ensure_partitions, push.drop_partitions, '
    'push.oldest_ringing, push.observe, push.take_tally, push.lock_table_used, push.operate_lane, push.operate_call, push.enqueue_calls, '
    'push.dead_among, push.compare_recipients, push.invalidate_tokens, push.hold_invalidation, push.correct_environment, '
    'push.current_provider_token, push.offer_provider_token, push.claim_receipts, push.settle_receipts, push.postpone_receipts, '
    'push.give_up_receipts, push.set_webhooks, push.claim_webhooks, push.settle_webhooks, push.look_up_api_key, '
    'push.good_api_keys, push.note_api_key_uses')
-- For migrate --check. A schema that was applied with psql does not have the tables.
union all select 'push_gateway', 'select on push.' || t from unnest('{schema_faults,missing_rights,schema_migration,schema_functions}'::text[]) t
  where to_regclass('push.' || t) is not null;
comment on view push.role_rights is 'the rights of the roles; for push.grant_roles and push.health';
comment on column push.role_rights.role is 'the role';
comment on column push.role_rights."right" is 'what it may do, as GRANT names it';

-- Roles belong to the whole cluster. A migration of another database may create them at the same moment, and the migrating
-- role may lack the right to create roles. Then an administrator creates them and calls push.grant_roles again.
create or replace function push.grant_roles() returns text
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  c_roles constant jsonb := jsonb_build_object(
    'push_enqueuer', 'backends: enqueue, answer, decline and end calls, register devices, read dead tokens (schema push)',
    'push_tenant', 'backends of some apps only, see push.grant_app (schema push)',
    'push_ops', 'operators: read everything, tokens masked, and intervene (schema push)',
    'push_keys', 'those who manage keys of the HTTP API: create, list and revoke them (schema push)',
    'push_gateway', 'the push-gateway service (schema push)');
  v_role    text;
  v_right   text;
  v_missing text[];
begin
  for v_role in select r from jsonb_object_keys(c_roles) r where to_regrole(r) is null loop
    begin
      execute format('create role %1$I nologin; comment on role %1$I is %2$L', v_role, c_roles ->> v_role);
    exception when duplicate_object or unique_violation or insufficient_privilege then null;
    end;
  end loop;
  v_missing := array(select r from jsonb_object_keys(c_roles) r where to_regrole(r) is null);
  for v_role, v_right in select r.role, r."right" from push.role_rights r where r.role <> all (v_missing) loop
    execute format('grant %s to %I', v_right, v_role);
  end loop;
  if v_missing <> '{}' then
    raise notice 'roles are missing: %; % may not create roles', array_to_string(v_missing, ', '), current_user
      using hint = 'Have them created with NOLOGIN, then: select push.grant_roles();';
    return 'missing: ' || array_to_string(v_missing, ', ');
  end if;
  -- The service shows what operators see, and pauses lanes for users who log in with its ops key.
  if not pg_has_role('push_gateway', 'push_ops', 'member') then
    begin
      grant push_ops to push_gateway;
    exception
      when unique_violation then null;  -- a migration of another database did the same
      when insufficient_privilege then
        raise notice '% may not grant push_ops to push_gateway: the dashboard stays empty', current_user
          using hint = 'As an administrator: grant push_ops to push_gateway;';
        return 'missing: grant push_ops to push_gateway';
    end;
  end if;
  return 'push_enqueuer, push_tenant, push_ops, push_keys and push_gateway have their rights';
end
$$;
comment on function push.grant_roles is
  'creates the roles push_enqueuer, push_tenant, push_ops, push_keys and push_gateway if they are missing and the caller '
  'may create roles, gives them their rights in this database, and gives push_gateway the rights of push_ops. Returns a sentence that '
  'says what was done. Running it twice is harmless. For the owner of the schema';

-- Comments ------------------------------------------------------------------------------------------------------------

-- A column of a view without a comment of its own has that of the same name in push.deliveries, which has words for codes; else that of
-- the column of a table that it shows under the same name. What is left, also of tables, has that in push.delivery or push.lane.
do $$
declare
  v_comment text;
begin
  for v_comment in
    select format('comment on column push.%I.%I is %L', c.relname, v.attname,
      coalesce(min(col_description(d.attrelid, d.attnum)),
        (array_agg(col_description(t.attrelid, t.attnum) order by not starts_with(c.relname, u.table_name), t.attrelid))[1],
        min(col_description(s.attrelid, s.attnum))))
    from pg_class c join pg_attribute v on v.attrelid = c.oid and v.attnum > 0 and not v.attisdropped
    left join pg_attribute d on d.attrelid = 'push.deliveries'::regclass and d.attname = v.attname and c.relkind = 'v'
    left join information_schema.view_column_usage u
      on u.view_schema = 'push' and u.table_schema = 'push' and u.view_name = c.relname and u.column_name = v.attname
    left join pg_attribute t on t.attrelid = to_regclass('push.' || u.table_name) and t.attname = u.column_name
    left join pg_attribute s on s.attrelid in ('push.delivery'::regclass, 'push.lane'::regclass) and s.attname = v.attname
    where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition
      and col_description(v.attrelid, v.attnum) is null
    group by c.relname, v.attname
  loop
    execute v_comment;
  end loop;
end
$$;

-- What the schema is made of --------------------------------------------------------------------------------------------

-- Nothing could be deleted from a table without a primary key while it is in a publication, such as one FOR ALL TABLES.
do $$
begin
  execute coalesce((
    select string_agg(format('alter table push.%I replica identity full', c.relname), '; ') from pg_class c
    where c.relnamespace = 'push'::regnamespace and c.relkind = 'r' and c.relreplident = 'd'
      and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)), '');
end
$$;

-- Without partitions, which come and go, the table that a refresh of push.schema_made fills (pg_temp_…), what is being built (…_ccnew), and
-- what belongs to an extension. A state is made of what every release of Postgres says in the same words, so that a server may be upgraded.
create or replace view push.schema_objects as
with owner as (select p.proowner as oid from pg_proc p where p.oid = to_regproc('push.fan_out')), part as (
  select d.objid as oid from pg_depend d where d.deptype = 'e' and d.classid in ('pg_class'::regclass, 'pg_proc'::regclass)
), made as (
  select c.*, c.relname as name, c.relowner <> (table owner) as is_foreign from pg_class c
  where c.oid not in (table part)
    and c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition and left(c.relname, 3) <> 'pg_')
select format('trigger %s of push.%s', t.tgname, c.name) as object, case when t.tgenabled not in ('O', 'A') then 'disabled' else
    concat_ws(' ', 'enabled', t.tgtype, p.proname, t.tgqual is null, t.tgdeferrable, t.tgattr) end as state
from made c join pg_trigger t on t.tgrelid = c.oid and not t.tgisinternal join pg_proc p on p.oid = t.tgfoid
union all select format('rule %s of push.%s', r.rulename, c.name), 'there'
from made c join pg_rewrite r on r.ev_class = c.oid and r.rulename <> '_RETURN'
union all select format('index %s of push.%s', x.relname, c.name), case when i.indisvalid then concat_ws(' ', 'valid',
    case when i.indisunique then 'unique' end, i.indkey, i.indpred is null, i.indexprs is null) else 'invalid' end
from made c join pg_index i on i.indrelid = c.oid join pg_class x on x.oid = i.indexrelid and x.relname !~ '_cc(new|old)[0-9]*$'
union all select format('constraint %s of push.%s', k.conname, c.name), k.contype::text
from made c join pg_constraint k on k.conrelid = c.oid and k.contype in ('c', 'x', 'f', 'p', 'u')
union all select format('column %s of push.%s', a.attname, c.name), concat_ws(' ', format_type(a.atttypid, a.atttypmod),
    case when a.atthasdef or a.attidentity <> '' then 'with a default' end, case when a.attnotnull then 'not null' end)
from made c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
union all select 'owner of push.' || c.name, case when c.is_foreign then c.relowner::regrole::text else 'that of the functions' end from made c
union all select case c.relkind when 'v' then 'view' else 'table' end || ' push.' || c.name, case
    when c.relrowsecurity then 'under row-level security' when c.relkind = 'r' and c.relreplident = 'n' then 'without a replica identity'
    when c.relpersistence = 'u' then 'unlogged' else 'as made' end from made c
union all select 'function push.' || p.proname,
    string_agg(md5(concat_ws(' ', p.prosrc, p.prosecdef, p.provolatile, p.proisstrict,
      p.proowner = (table owner), (select string_agg(c, ' ' order by c) from unnest(p.proconfig) c))),
      ' ' order by p.pronargs, md5(p.prosrc))
from pg_proc p where p.pronamespace = 'push'::regnamespace and p.oid not in (table part) group by p.proname;
comment on view push.schema_objects is 'what the schema is made of now; for push.schema_faults';
comment on column push.schema_objects.object is 'kind and name';
comment on column push.schema_objects.state is 'the state that calls depend on; of a function, a digest of its body and settings';

create materialized view if not exists push.schema_made as select * from push.schema_objects with no data;
comment on materialized view push.schema_made is 'push.schema_objects as migrate has left them';

-- Those of push_gateway also of who asks, and of the logins of gateways that run, or have fallen silent within an hour.
create or replace view push.missing_rights as
select r.rolname::text as role, coalesce('execute push.' || p.proname, 'use the schema push') as "right"
from push.role_rights x
left join lateral regexp_matches(x."right", 'push[.]([a-z_]+)', 'g') m(names) on true
left join pg_proc p on p.proname = m.names[1] and p.pronamespace = 'push'::regnamespace
join pg_roles r on r.rolname = x.role or x.role = 'push_gateway' and (r.rolname = current_user or r.rolname in (
  select g.login from push.gateways g where g.ended_reason is distinct from 'retired' and g.heartbeat_at > now() - interval '1 hour'))
where x."right" ~ '^(usage|execute) '
  and not coalesce(has_function_privilege(r.oid, p.oid, 'execute'), has_schema_privilege(r.oid, 'push', 'usage'));
comment on view push.missing_rights is 'what a role must be allowed to do, and may not; for push.health, /readyz and check-config';
comment on column push.missing_rights.role is 'the role or login';
comment on column push.missing_rights."right" is 'what it may not do';

-- Somebody's trigger, rule, constraint or unique index may refuse a row, or keep it from being changed; so may a new column.
create or replace view push.schema_faults as
select case when m.object is null then o.object || ' is not of this schema' when o.object is null then m.object || ' is missing'
  when o.state ~ '^(disabled|invalid|under|without)' or m.object ~ '^(owner|table) ' then m.object || ' is ' || o.state
  else m.object || ' was changed' end as fault
from push.schema_made m full join push.schema_objects o using (object)
where case when m.object is not null then o.state ~ '^(disabled|invalid|under|without)' or o.state is distinct from m.state
  else exists (select from push.schema_made t where t.object = 'table ' || split_part(o.object, ' of ', 2)) and (
    o.object ~ '^(rule|constraint) ' or o.object like 'trigger %' and o.object <> 'trigger refuse_slots of push.outbox'
    or o.state like 'valid unique %'
    or o.object like 'column %' and o.state like '%not null' and o.state not like '%with a default%') end
union all select format('%s may not %s', r.role, r."right") from push.missing_rights r
-- No trigger runs in its sessions. Superusers, who restore and replicate, know what they do.
union all select format('session_replication_role of %s is replica', coalesce(quote_ident(r.rolname), 'this database'))
from pg_db_role_setting s left join pg_roles r on r.oid = s.setrole
where s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database()))
  and lower(s.setconfig::text) ~ 'session_replication_role=replica\M'
  and (r.oid is null or not r.rolsuper and has_schema_privilege(r.oid, 'push', 'usage'))
union all select 'session_replication_role of this session is replica' where current_setting('session_replication_role') = 'replica';
comment on view push.schema_faults is 'how the schema differs from what migrate has left; for push.health and push-gateway migrate';
comment on column push.schema_faults.fault is 'a sentence';

-- Rights --------------------------------------------------------------------------------------------------------------

-- By default every role may execute a new function, and by somebody's default privileges read a new table.
revoke execute on all functions in schema push from public;
revoke all on all tables in schema push from public;
select push.grant_roles();

-- How queries are planned -----------------------------------------------------------------------------------------------

-- Backends and gateways keep their sessions for weeks, and PL/pgSQL makes a query's plan once a session, perhaps while the tables
-- are empty, perhaps with statistics from a quiet night. A plan that suits small tables (scan the table, look into the caller's batch
-- for each row) stays for that session, and is ten to a thousand times slower once the tables have filled. So the plans of whatever
-- reads a table that grows are fixed by these settings, and by the form of the query: a row is looked up with "cross join lateral (...
-- offset 0)", which can only run once for each row of the batch, and is changed by its ctid, which no plan can find another way.
--
-- A setting also holds for what the function calls, unless that has its own. The parts of push.follow_up and push.claim therefore have none,
-- unless they need others, nor have functions that the planner puts into the query around them: applying one costs about as much as a look-up.
do $$
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
      (c_uncompiled, 'observe, overview, put_away, timeline'),
      (c_walk, 'change_rows, check_health, claimed_by, count_owed, dead_tokens, disown, drop_calls, enqueue_calls, erase_user, '
        'finish_erasures, forget_in, give_up_receipts, miss, oldest_ringing, postpone_receipts, promote, prune, register_device, run_job, '
        'skipped_recipients, take_job, take_tally, trim_webhooks'),
      (c_batch, 'bury, bypass, claim, claim_receipts, claim_webhooks, correct_environment, dead_among, ended, ended_for, expire, '
        'free_rows, hold_invalidation, invalidate_tokens, note_devices, note_tokens, own_calls, park, places, '
        'put_aside, resume_invalidation, settle, settle_webhooks, settled'),
      (c_index || c_uncompiled, 'calls, end_calls, enqueue_batch, minutes'),
      -- By hand, with a condition that only a plan for the given arguments finds by an index.
      (c_index || c_uncompiled || '{"enable_bitmapscan": "off"}', 'requeue, resend_webhooks, resume_webhooks'),
      -- The sort of a statement with many calls stays in memory.
      (c_batch || '{"work_mem": "64MB"}', 'fan_out'),
      -- Batches are joined with themselves: a nested loop would cost the square of their size.
      (c_walk || '{"enable_mergejoin": "off"}', 'follow_up, release'),
      ('{"enable_nestloop": "off", "enable_hashjoin": "on"}', 'next_channels'),
      (c_batch || '{"enable_hashjoin": "on"}', 'settle_receipts'),
      -- They read a whole table on purpose.
      (c_uncompiled || '{"enable_seqscan": "on", "enable_bitmapscan": "off", "enable_indexscan": "off", "max_parallel_workers_per_gather": "0"}',
        'free_claims'),
      (c_walk - 'enable_bitmapscan' || '{"enable_seqscan": "on", "max_parallel_workers_per_gather": "0"}', 'erase_elsewhere')
    ) s(settings, names)) s
    full join (
      select p.proname as name, p.oid, coalesce(jsonb_object_agg(split_part(c, '=', 1), split_part(c, '=', 2)) filter (
        where c ~ '^(enable_|jit|plan_cache_mode|work_mem|max_parallel_)'), '{}') as former
      from pg_proc p left join unnest(p.proconfig) c on true where p.pronamespace = 'push'::regnamespace group by p.proname, p.oid
    ) p on p.name = s.name
  loop
    if v_plan.function is null then
      raise exception 'roles.sql names push.%, which does not exist', v_plan.name;
    elsif v_plan.former <> coalesce(v_plan.settings, '{}') then
      execute format('alter function %s %s %s', v_plan.function,
        (select string_agg(format('reset %I', k), ' ') from jsonb_object_keys(v_plan.former) k),
        (select string_agg(format('set %I = %L', s.key, s.value), ' ') from jsonb_each_text(v_plan.settings) s));
    end if;
  end loop;
end
$$;

-- Last, when all is there.
refresh materialized view push.schema_made;
