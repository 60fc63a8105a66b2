-- Which functions plan their queries with which settings: roles.sql has all of them, and no function is forgotten there.
\set roles `cat migrations/functions/roles.sql`
-- Parts of push.follow_up, push.erase_user, push.claim, push.prune and push.check_health, and functions inside a statement of others: they
-- run with the settings of their callers.
create temp table part as select unnest('{
  follow, take_notes, put_off, pushes_of, void_unsent, cancel_rings, tell_missed, tell_untold, invites_of,
  next_channels, continue_erasure, look_further, hand_over, erase_from_call, mask_rows, pick, prune_others, health_of_replicas,
  health_of_calls, phones_of, routes_of, announce_deliveries, past_events,
  devices_with}'::name[]) as name;
create temp view planned as select p.proname, regexp_replace(p.prosrc, '--[^\n]*', '', 'g') as source
  from pg_proc p where p.pronamespace = 'push'::regnamespace and coalesce(p.proconfig::text, '') !~ 'enable_seqscan=';
select test.equal('each function that reads a table that grows uses indexes, whatever the tables'' size',
  (select string_agg(p.proname, ' ' order by p.proname) from planned p
    where p.source ~ '\m(from|join|update|using)\s+push\.(delivery|history|outbox|devices|follow_ups)\M' and p.proname not in (select name from part)
      -- For people, or once in the life of a database.
      and p.proname not in ('put_away', 'timeline', 'use_shard_map')), null);
select test.equal('and so does each that calls its parts', (select string_agg(distinct p.proname, ' ') from planned p join part c
  on p.source ~ format('\mpush\.%s\(', c.name) where p.proname not in (select name from part)), null);
select test.equal('no name is listed twice', (select string_agg(name, ' ') from (
  select n as name from regexp_matches(:'roles', '''([a-z_]+(, [a-z_]+)*(, )?)''', 'g') m
  cross join lateral string_to_table(rtrim(m[1], ', '), ', ') n
  where to_regproc('push.' || n) is not null group by n having count(*) > 1) d), null);

-- PostgreSQL 15 plans an SQL function that it cannot put into the caller's query anew at every call.
select test.equal('what each claim, beat and job runs calls no such function', (
  select string_agg(h.proname || ' calls ' || p.proname, ', ') from pg_proc h
  join pg_proc p on p.pronamespace = h.pronamespace and p.prolang = (select l.oid from pg_language l where l.lanname = 'sql')
    and (p.prosecdef or p.proconfig is not null or p.prosrc ~* '\mfrom\M') and h.prosrc ~ format('\mpush\.%s\(', p.proname)
  where h.pronamespace = 'push'::regnamespace and h.proname in ('claim', 'pick', 'beat', 'put_away', 'take_job', 'run_job', 'follow_up')), null);

select test.equal('nor is it one', (select string_agg(p.proname, ' ') from pg_proc p join pg_language l on l.oid = p.prolang
  where p.pronamespace = 'push'::regnamespace and l.lanname = 'sql'
    and p.proname in ('claim', 'pick', 'settle', 'park', 'beat', 'take_job', 'run_job', 'follow_up', 'enqueue_call')), null);

-- A query on history, of which the arguments tell the partitions, was planned anew at every call.
select skipped from push.enqueue_call('{"callId": "plans", "from": "Gate"}', '[{"userId": "u", "fcmToken": "plans"}]') \g /dev/null
select test.equal('whoever enqueues reads no history', (select count(*) from pg_locks l
  join pg_class c on c.oid = l.relation and c.relname ~ '^history' where l.pid = pg_backend_pid()), 0::bigint);

create function pg_temp.settings(p_name text) returns text language sql as $$
  select array_to_string(array(select c from pg_proc p, unnest(p.proconfig) c where p.oid = ('push.' || p_name)::regproc order by c), ' ')
$$;
select pg_temp.settings('fan_out') as fan_out, pg_temp.settings('prune') as prune \gset
alter function push.fan_out reset work_mem set jit = on set enable_nestloop = off;
alter function push.prune reset all;
alter function push.prune set search_path = push, pg_temp set lock_timeout = '200ms';
alter function push.iso_time set jit = off;
create function pg_temp.error(p_sql text) returns text language plpgsql as $$
begin
  execute p_sql;
  return null;
exception when others then return sqlerrm;
end
$$;
select test.equal('the file may be applied again', pg_temp.error(:'roles'), null);
select test.equal('each function gets the settings that are listed for it', array[pg_temp.settings('fan_out'), pg_temp.settings('prune')],
  array[:'fan_out', :'prune']);
select test.equal('and one that is not listed gets none', pg_temp.settings('iso_time'), '');

alter function push.bury rename to bury_again;
select test.equal('a name without a function is an error', pg_temp.error(:'roles'), 'roles.sql names push.bury, which does not exist');
