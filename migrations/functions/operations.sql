-- Views and functions for operators: what is owed, what is late, what failed, the health of the system, and interventions,
-- which are recorded.

-- What is owed, what is late, what failed -----------------------------------------------------------------------------

create or replace function push.oldest_ringing(p_app text default null) returns interval
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  return (
    select max(now() - head.since)
    from push.lane l
    left join push.lane_conditions() s on s.lane = l.id
    cross join lateral (
      -- The earliest deadlines are sent next. An invite rings for at most ten minutes.
      -- One that is tried again is late since its next try is due: what its first tries waited for, a push service of browsers for
      -- example, says nothing about other calls.
      select d.kind, case when d.attempt > 0 then d.due_at else d.created_at end as since from push.delivery d
      where d.ready_lane = l.id and d.deadline_at > statement_timestamp()
        and d.deadline_at < statement_timestamp() + interval '10 minutes' and d.state = 0
      order by d.deadline_at
      limit 100
    ) head
    where (p_app is null or l.app = p_app) and not l.paused and s.circuit is distinct from 'open' and head.kind = 0
      -- A lane that no living replica serves does not count while there are living replicas.
      and (s.lane is not null
        or not exists (select from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s')));
end
$$;
comment on function push.oldest_ringing is
  'how long the oldest of the invites that are sent next has been ready; null if there is none. Lanes that are paused, '
  'whose circuit is open, or that none of the living replicas serves do not count. p_app: only this app; null: all. Reads '
  'at most 100 rows of each lane';

create or replace view push.summary as
select l.app, l.provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end as state,
  d.count, now() - d.oldest as oldest_age, d.first_deadline - now() as least_left
from (
  select d.lane, d.kind, d.state, sum(d.count)::bigint as count, min(d.oldest) as oldest,
    min(d.first_deadline) as first_deadline
  from push.count_owed() d
  group by d.lane, d.kind, d.state
) d
left join push.lane l on l.id = d.lane;
comment on view push.summary is
  'deliveries that are owed, by app, provider, kind and state; no rows if nothing is owed. Counts above 30,000 divided by '
  'the number of lanes are estimates, rounded to three digits (push.count_owed)';
comment on column push.summary.app is 'name of the app';
comment on column push.summary.provider is 'apns, fcm or another of push.channels()';
comment on column push.summary.kind is 'invite, cancel, missed_call or notification';
comment on column push.summary.state is 'ready, claimed (a replica has it) or waiting (for its next attempt)';
comment on column push.summary.count is 'number of deliveries';
comment on column push.summary.oldest_age is 'age of the oldest of them';
comment on column push.summary.least_left is
  'time until the first of them expires; negative: it should have expired already';

-- Shows only the most urgent deliveries, the ready ones by their index: nobody reads a backlog of 500,000, and looking up
-- its calls would take seconds. The call is a subquery and no join, so it is looked up only for the rows shown.
create or replace view push.stuck as
select d.outbox_id, d.n, l.app, (select o.call_id from push.outbox o where o.id = d.outbox_id) as call_id, l.provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  d.user_id,
  case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end as state,
  case when d.deadline_at < now() - interval '5 s' then 'past its deadline, and not expired'
    when d.state = 0 then 'ready, and not claimed'
    when d.state = 1 then 'claimed, and not settled'
    else 'due, and still waiting' end as why,
  now() - greatest(d.created_at, d.due_at) as age, d.deadline_at - now() as "left", d.last_reason, d.owner as gateway
from (
  select r.*
  from push.lane l
  left join push.lane_conditions() s on s.lane = l.id
  cross join lateral (
    select d.*
    from (
      select d.* from push.delivery d where d.ready_lane = l.id order by d.deadline_at limit 2000
    ) d
    where d.state = 0
      and (d.deadline_at < now() - interval '5 s' or not l.paused and s.circuit is distinct from 'open'
        and greatest(d.created_at, d.due_at) < now() - interval '5 s')
    order by d.deadline_at
    limit 200
  ) r
  union all
  (select c.*
    from (
      select d.*
      from push.lane l cross join lateral (
        select d.* from push.delivery d where d.ready_lane = l.id order by d.deadline_at limit 2000
      ) d
      where d.state = 1
      union all
      (select d.* from push.delivery d
        where d.ready_lane is null and d.due_at < now() - interval '5 s' and d.crashes < 2
        order by d.due_at
        limit 1000)
      union all
      (select d.* from push.delivery d where d.crashes >= 2 limit 1000)
    ) c
    where c.deadline_at < now() - interval '5 s'
      or greatest(c.created_at, c.due_at) < now() - case c.state when 1 then interval '30 s' else interval '5 s' end
    order by c.deadline_at
    limit 1000)
) d
join push.lane l on l.id = d.lane;
comment on view push.stuck is
  'deliveries that should have made progress: ready for more than 5 s while the lane is not paused and its circuit not '
  'open, claimed and more than 30 s old, waiting 5 s longer than due, or 5 s past the deadline. Shows the most urgent 200 '
  'ready deliveries of each lane and 1,000 others, among the 2,000 of each lane with the earliest deadlines. push.summary '
  'counts everything that is owed';
comment on column push.stuck.outbox_id is 'the call: push.outbox.id';
comment on column push.stuck.n is 'number of the push within its call';
comment on column push.stuck.app is 'name of the app';
comment on column push.stuck.call_id is 'payload.callId of the call';
comment on column push.stuck.provider is 'apns, fcm or another of push.channels()';
comment on column push.stuck.kind is 'invite, cancel, missed_call or notification';
comment on column push.stuck.user_id is 'the backend''s id of the user';
comment on column push.stuck.state is 'ready, claimed or waiting';
comment on column push.stuck.why is 'what should have happened';
comment on column push.stuck.age is 'time since it was enqueued, or since it was due';
comment on column push.stuck."left" is 'time until its deadline; negative: past it';
comment on column push.stuck.last_reason is 'why the last attempt did not settle it';
comment on column push.stuck.gateway is 'push.replicas.id of the replica that has it';

-- The example is looked up once for each row shown; sorting all failures of an hour for it took a second.
create or replace view push.failures as
select l.app, l.provider,
  case f.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  case f.outcome when 1 then 'delivered_late' when 3 then 'expired' else 'dead' end as outcome,
  coalesce(f.reason, 'Late') as reason, f.count, f.last_at, x.call_id as example_call_id, x.device as example_device
from push.lane l
cross join lateral (
  select h.kind, h.outcome, h.reason, count(*) as count, max(h.finished_at) as last_at
  from push.history h
  where h.lane = l.id and h.finished_at > now() - interval '1 hour' and h.outcome <> 0 and h.outcome in (1, 3, 4)
  group by h.kind, h.outcome, h.reason
) f
cross join lateral (
  select o.call_id, coalesce(left(h.token, 4) || '…' || right(h.token, 4), h.device) as device
  from push.history h left join push.outbox o on o.id = h.outbox_id and o.created_at <= h.created_at
  where h.lane = l.id and h.finished_at = f.last_at and h.outcome <> 0 and h.outcome = f.outcome and h.kind = f.kind
    and h.reason is not distinct from f.reason
  limit 1
) x;
comment on view push.failures is
  'deliveries that failed or were late in the last hour, by reason, with the last of each as an example';
comment on column push.failures.app is 'name of the app';
comment on column push.failures.provider is 'apns, fcm or another of push.channels()';
comment on column push.failures.kind is 'invite, cancel, missed_call or notification';
comment on column push.failures.outcome is 'delivered_late, expired (never sent in time) or dead (failed)';
comment on column push.failures.reason is 'the reason, from the provider or from the gateway';
comment on column push.failures.count is 'number of deliveries';
comment on column push.failures.last_at is 'when the last of them was settled';
comment on column push.failures.example_call_id is 'the call of the last one; push.timeline shows its events';
comment on column push.failures.example_device is 'the device of the last one, its token masked';

-- Replicas and health -------------------------------------------------------------------------------------------------

-- Only a living gateway declares others dead, so push.gateways.alive stays true for the last one that dies. Whoever looks from
-- outside goes by the heartbeat, too: here, in push.lane_conditions, push.lane_troubles, push.oldest_ringing and push.health.
create or replace view push.replicas as
select g.id, g.name, g.version, h.is_heard as alive, g.started_at, g.heartbeat_at,
  case when h.is_heard then now() - g.heartbeat_at end as silence, coalesce(d.claimed, 0) as claimed,
  case when g.alive and not h.is_heard then g.heartbeat_at else g.ended_at end as ended_at,
  case when g.alive and not h.is_heard then 'silent' else g.ended_reason end as ended_reason
from push.gateways g
cross join lateral (select g.alive and g.heartbeat_at > now() - interval '5 s' as is_heard) h
left join (
  select d.owner, sum(d.count)::bigint as claimed from push.count_owed() d where d.state = 1 group by d.owner
) d on d.owner = g.id;
comment on view push.replicas is 'one row for each life of a gateway process: those that run, and those that ended lately';
comment on column push.replicas.id is 'number of this life, as in push.deliveries.gateway';
comment on column push.replicas.name is 'host or pod';
comment on column push.replicas.version is 'version of the program';
comment on column push.replicas.alive is
  'whether it runs, as far as is known: it has not ended, and its last heartbeat is less than 5 s old';
comment on column push.replicas.started_at is 'when it registered';
comment on column push.replicas.heartbeat_at is 'time of its last heartbeat';
comment on column push.replicas.silence is 'time since its last heartbeat; after 3 s the other replicas declare it dead';
comment on column push.replicas.claimed is 'deliveries that it holds; when a replica ends, others take them over at once';
comment on column push.replicas.ended_at is
  'when it ended or was declared dead; of a silent one that no other replica could declare dead, its last heartbeat';
comment on column push.replicas.ended_reason is 'retired (clean shutdown) or silent (no heartbeat)';

-- Reads one index entry for each lane that is paused or that no replica serves. The status of the other lanes is reported
-- by their replicas.
create or replace function push.lane_troubles() returns table (app text, provider text, trouble text, is_bad boolean)
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  v_any_alive boolean := exists (select from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s');
begin
  return query
    select l.app, l.provider,
      case when l.paused and s.lane is null and v_any_alive then 'paused, and no replica serves it'
        when l.paused then 'paused' when s.lane is null then 'no replica serves it' when s.circuit = 'open' then 'circuit open'
        when t.until > now() then 'throttled until ' || date_trunc('second', t.until) else 'no connection' end,
      case when l.paused or t.until > now() and s.circuit <> 'open' then is_waiting else true end
    from push.lane l
    left join push.lane_conditions() s on s.lane = l.id
    -- A lane whose provider asked for a pause sends nothing once each of its replicas waits.
    left join lateral (
      select min(coalesce(r.throttled_until, '-infinity')) as until
      from push.lane_status r join push.gateways g on g.id = r.gateway
      where s.throttled_until is not null and r.lane = l.id and g.alive and g.heartbeat_at > now() - interval '5 s'
    ) t on true
    cross join lateral (
      select (l.paused or s.lane is null or t.until > now()) and exists (
        select from push.delivery d
        where d.ready_lane = l.id and d.deadline_at > statement_timestamp() and d.state = 0) as is_waiting
      offset 0
    ) d
    where l.paused or v_any_alive and s.lane is null and is_waiting or s.circuit = 'open' or t.until > now() or s.capacity = 0;
end
$$;
comment on function push.lane_troubles is
  'the lanes that send nothing: paused, not served by any replica though a delivery is ready, with an open circuit, '
  'throttled (the provider asked for a pause), or without a connection. is_bad: false if the lane is paused or throttled '
  'and no delivery is ready. For push.health';

create or replace function push.check_health() returns table (item text, value text, state text, hint text)
language plpgsql stable security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_oldest   interval;
  v_pid      int;
  v_sees_all boolean := pg_has_role(current_user, 'pg_read_all_stats', 'usage');
begin
  -- Two limits for a number: up to the first it is ok, up to the second a warning, above it bad.
  return query
    select 'dead rows of push.' || t.relname, t.n_dead_tup::text || ' beside ' || t.n_live_tup,
      case when t.n_dead_tup <= 200000 + t.n_live_tup then 'ok' when t.n_dead_tup <= 2000000 + t.n_live_tup then 'warn'
        else 'bad' end,
      'A long transaction keeps vacuum from removing them: see "oldest transaction".'
    from pg_stat_all_tables t
    where t.schemaname = 'push' and t.relname in ('delivery', 'outbox', 'lane_status', 'gateways')
    order by t.relname;

  select now() - a.xact_start, a.pid into v_oldest, v_pid
    from pg_stat_activity a
    where a.xact_start is not null and a.backend_type = 'client backend' and a.pid <> pg_backend_pid()
    order by a.xact_start
    limit 1;
  return query select 'oldest transaction',
    case when v_oldest is null then 'none' else format('%s (pid %s)', date_trunc('milliseconds', v_oldest), v_pid) end
      || case when v_sees_all then '' else ', of this role only' end,
    case when v_oldest > interval '5 minutes' then 'bad' when v_oldest > interval '30 s' then 'warn' else 'ok' end,
    case when v_sees_all then 'End it with: select pg_terminate_backend(pid), as a role in pg_signal_backend, or a superuser.'
      else format('To see those of other roles, an administrator calls: grant pg_read_all_stats to %I.', current_user) end;
  return query
    select 'prepared transactions', p.count::text, case when p.count = 0 then 'ok' else 'warn' end,
      'Forgotten ones hold back vacuum for ever: pg_prepared_xacts shows them; their owner or a superuser ends them (commit or rollback prepared).'
    from (select count(*) from pg_prepared_xacts) p;
  return query
    select 'notify queue', round(100 * q.usage::numeric, 2) || ' %',
      case when q.usage < 0.0001 then 'ok' when q.usage < 0.5 then 'warn' else 'bad' end,
      'Gateways are not notified and poll instead. A session listens and does not read: look for "idle in transaction" in pg_stat_activity.'
    from (select pg_notification_queue_usage() as usage) q;
  return query
    select 'lock table', round(100 * l.used::numeric) || ' %' || case when l.used < 0.25 then '' else (
        select format(', most by pid %s (%s)', h.pid, coalesce(h.login, 'unknown'))
        from (select k.pid, (select r.rolname from pg_stat_activity a join pg_roles r on r.oid = a.usesysid where a.pid = k.pid) as login
          from pg_locks k where k.pid is not null group by k.pid order by count(*) desc limit 1) h) end,
      case when l.used < 0.25 then 'ok' when l.used < 0.5 then 'warn' else 'bad' end,
      'When it is full, calls are refused and nothing is sent (53200). End that session: select pg_terminate_backend(pid), as a role '
      'in pg_signal_backend, or a superuser.'
    from (select push.lock_table_used() as used) l;
  return query
    select 'other logins', coalesce(string_agg(o.name, ', ' order by o.place) filter (where o.place <= 5)
        || case when count(*) > 5 then format(', and %s more', count(*) - 5) else '' end || ' may connect', 'none may connect'),
      case when count(*) = 0 then 'ok' else 'warn' end,
      'These logins can use up all connections and locks, which stops calls. A superuser prevents that with deploy/psql/harden.sql.'
    from (
      select r.rolname as name, row_number() over (order by r.rolname) as place
      from pg_roles r cross join pg_database d
      where r.rolcanlogin and not r.rolsuper and d.datname = current_database() and r.oid <> d.datdba
        -- Only logins that may connect through PUBLIC. A login that was granted the right itself has it on purpose.
        and exists (select from aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
          where a.grantee = 0 and a.privilege_type = 'CONNECT')
        and not exists (select from pg_roles p
          where (p.rolname in ('push_enqueuer', 'push_tenant', 'push_ops', 'push_keys', 'push_gateway', 'pg_monitor')
              or p.oid = (select n.nspowner from pg_namespace n where n.nspname = 'push'))
            and pg_has_role(r.oid, p.oid, 'member'))
    ) o;
  return query
    select 'replicas alive', g.count::text, case when g.count = 0 then 'bad' else 'ok' end,
      'Nothing is sent without one: push.replicas says how the last ones ended.'
    from (select count(*) from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s') g;
  return query
    select 'claims', case when r.at is null then 'open' else format('closed: restored %s ago', date_trunc('second', now() - r.at)) end,
      case when r.at is null then 'ok' when r.at > now() - interval '10 s' then 'warn' else 'bad' end,
      'In a restored database nothing is sent until a replica has ended what was owed when the dump was made: a few seconds.'
    from push.restored_at() r(at);
  return query
    select 'lanes',
      coalesce(string_agg(format('%s/%s: %s', t.app, t.provider, t.trouble), ', ' order by t.place) filter (where t.place <= 5)
        || case when count(*) > 5 then format(', and %s more', count(*) - 5) else '' end,
        case when exists (select from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s') then 'all send'
          else 'wait for a replica' end),
      case when bool_or(t.is_bad) then 'bad' when count(*) > 0 then 'warn' else 'ok' end,
      'These send nothing. push.resume_lane ends a pause (push.audit says whose); one that no replica serves needs its app and provider in '
      'the configuration of a replica; a throttled one sends again by itself; for the others see push.lanes, push.failures and the '
      'replicas'' logs.'
    from (select t.*, row_number() over (order by not t.is_bad, t.app, t.provider) as place from push.lane_troubles() t) t;
  return query
    -- Overdue since the due time, but not from before there was a gateway.
    select 'housekeeping',
      case when m.names is not null then format('no row in push.job: %s', m.names)
        when g.since is null then 'waits for a replica'
        when j.late is null then 'in time' else format('%s overdue for %s', j.name, date_trunc('second', j.late)) end,
      case when m.names is null and j.late is null then 'ok' else 'bad' end,
      case when m.names is null
        then 'push.job says what is due; any replica takes it. What fails is in the replicas'' logs.'
        else 'A job without a row never runs. The owner of the schema adds it: docs/operations.md, "A job has no row".' end
    from (select min(g.started_at) as since from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s') g
    cross join (
      select string_agg(n.name, ', ') as names
      from unnest(array['promote', 'miss', 'follow_up_urgent', 'follow_up', 'follow_up_again', 'follow_up_all', 'escalate', 'tally', 'expire',
        'prune', 'expire_all', 'erase',
        'ensure_partitions', 'drop_partitions']) n(name)
      where not exists (select from push.job j where j.name = n.name)
    ) m
    left join lateral (
      select j.name, now() - greatest(j.due_at, g.since) as late
      from push.job j
      where now() - greatest(j.due_at, g.since) > greatest(interval '10 s', 5 * j.every)
      order by 2 desc
      limit 1
    ) j on g.since is not null;
  return query
    select 'oldest ready invite', coalesce(date_trunc('milliseconds', o.age)::text, 'none'),
      case when o.age > interval '5 s' then 'bad' when o.age > interval '1 s' then 'warn' else 'ok' end,
      'Calls ring late: push.lanes shows which lane is full or has no capacity, push.stuck which deliveries wait.'
    from (select push.oldest_ringing() as age) o;
  return query
    select 'ends that failed', coalesce(string_agg(format('%s/%s', c.app, c.call_id), ', ' order by c.place) filter (where c.place <= 5)
        || case when count(*) > 5 then format(', and %s more', count(*) - 5) else '' end, 'none'),
      case when count(*) = 0 then 'ok' else 'bad' end,
      'Their missed calls are not announced yet. Each is tried again for 4 hours: push.timeline says when, the log of Postgres what failed. '
      'See docs/operations.md, "Ends that failed".'
    from (
      -- A call that was deleted has nobody to tell. Its row is removed at its next try.
      select o.app, o.call_id, row_number() over (order by e.noted_at, e.outbox_id) as place
      from (select x.outbox_id, min(x.noted_at) as noted_at from push.follow_ups x where x.tries > 0 group by x.outbox_id) e
        cross join lateral (select b.app, b.call_id from push.outbox b where b.id = e.outbox_id offset 0) o
    ) c;
  -- Calls from before a restore are left as they are.
  return query
    select 'calls past their deadline', case when c.count = 0 then 'none' else format('%s, the oldest for %s',
        c.count || case when c.count = 1000 then ' or more' else '' end, date_trunc('second', c.age)) end,
      case when c.count = 0 then 'ok' else 'bad' end,
      'They are not marked as missed: a replica runs the job miss (push.job). What fails is in its log, and in that of Postgres.'
    from (
      select count(*) as count, max(now() - o.deadline_at) as age
      from (
        select o.deadline_at from push.outbox o
        where o.state = 'ringing' and o.deadline_at < now() - interval '5 s' and push.restored_at() is null
        order by o.deadline_at
        limit 1000
      ) o
    ) c;
  return query
    select 'partitions ahead', p.count || ' days', case when p.count >= 7 then 'ok' when p.count >= 1 then 'warn'
        else 'bad' end,
      'A replica makes them every hour. What fails is in the replicas'' logs.'
    from (select count(*) from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'push.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
        and right(c.relname, 8) > to_char(now() at time zone 'UTC', 'YYYYMMDD')) p;
  return query
    select 'history without a partition', case when h.some then 'some' else 'none' end,
      case when h.some then 'bad' else 'ok' end,
      'Rows of push.history_default keep their day''s partition from being made. The owner of the schema moves them: docs/operations.md, '
      '"History without a partition".'
    from (select exists (select from push.history_default) as some) h;
  return query
    select 'receipts overdue', r.count::text || case when r.count = 1000 then ' or more' else '' end,
      case when r.count = 0 then 'ok' when r.count < 1000 then 'warn' else 'bad' end,
      'Expo''s receipts are looked up 15 minutes after sending and lost after 24 hours.'
    from (select least(coalesce(sum(cardinality(r.ticket)), 0), 1000) as count from (select r.ticket from push.receipt_batch r
      where r.due_at < now() - interval '5 minutes' or r.attempts > 3 limit 1000) r) r;
  return query
    select 'quarantined tokens', q.count::text, case when q.count = 0 then 'ok' else 'warn' end,
      'A provider reported many tokens as dead at once: push.lanes shows which provider; push.resume_invalidation ends the hold.'
    from (select count(*) from push.quarantined_tokens) q;
  return query
    select 'webhooks',
      coalesce(string_agg(format('%s: %s%s%s, %s wait', w.app, w.state,
            ' since ' || date_trunc('second', case w.state when 'gone' then w.gone_at when 'failing' then w.failing_since end),
            case when w.replicas_differ then ' (not in the configuration of every replica)' end, w.waiting), ', ' order by w.place)
          filter (where w.place <= 5)
        || case when count(*) > 5 then format(', and %s more', count(*) - 5) else '' end, 'all arrive'),
      case when bool_or(w.is_bad) then 'bad' when count(*) > 0 then 'warn' else 'ok' end,
      'Backends are not told of results; events are dropped after 24 hours. push.webhooks shows status and reason; '
      'push.resume_webhooks sends again.'
    from (
      select w.*, w.state = 'gone' or w.failing_since < now() - interval '1 hour' or w.oldest > interval '12 hours' as is_bad,
        row_number() over (order by w.app) as place
      from push.webhooks w
      where w.state in ('gone', 'paused') or w.failing_since < now() - interval '5 minutes' or w.state <> 'off' and w.oldest > interval '1 hour'
        or w.replicas_differ
    ) w;
  return query
    select 'API keys',
      coalesce(string_agg(format('%s (%s, %s) until %s', k.id, k.name, k.app, k.expires_at::date), ', ' order by k.place)
        filter (where k.place <= 5) || case when count(*) > 5 then format(', and %s more', count(*) - 5) else '' end,
        'none expires soon'),
      case when bool_or(k.expires_at < now() + interval '3 days') then 'bad' when count(*) > 0 then 'warn' else 'ok' end,
      'Backends are refused from then on. As a role in push_keys: create another key (push.create_api_key), hand it over, '
      'revoke this one (push.revoke_api_key).'
    from (select e.*, row_number() over (order by e.expires_at, e.id) as place from push.expiring_api_keys() e) k;
  return query
    select 'quotas',
      coalesce(string_agg(t.trouble, ', ' order by t.place) filter (where t.place <= 5)
        || case when count(*) > 5 then format(', and %s more', count(*) - 5) else '' end, 'none is used up'),
      case when count(*) > 0 then 'warn' else 'ok' end,
      'An app at its quota is refused (53Q01): push.quotas, push.set_quota. Replicas that differ: calls/notifications/recipients '
      'a minute; the one that registered last is right.'
    from (select q.*, row_number() over (order by q.trouble) as place from push.quota_troubles() q) t;
  return query
    select 'transaction ids used', round(d.age / 21474836.47, 1) || ' %',
      case when d.age < 500000000 then 'ok' when d.age < 1200000000 then 'warn' else 'bad' end,
      'At 100 % the database stops. Its owner calls vacuum (freeze), after ending what holds it back.'
    from (select age(d.datfrozenxid)::numeric as age from pg_database d where d.datname = current_database()) d;
end
$$;
comment on function push.check_health is 'checks conditions that could make calls ring late; for push.health';

create or replace view push.health as select h.item, h.value, h.state, h.hint from push.check_health() h;
comment on view push.health is 'one check a row: the value found, its state (ok, warn or bad), and what to do';
comment on column push.health.item is 'what was checked';
comment on column push.health.value is 'what was found';
comment on column push.health.state is 'ok, warn (act soon) or bad (act now)';
comment on column push.health.hint is 'what it means and what to do';

-- Interventions -------------------------------------------------------------------------------------------------------

create or replace function push.note_audit(p_action text, p_target text, p_detail jsonb default null) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.audit (action, target, detail) values (p_action, p_target, p_detail);
end
$$;
comment on function push.note_audit is 'records an intervention in push.audit, in the transaction of the intervention';

create or replace function push.void_call(call_id text, reason text default 'voided', app text default null)
returns table (voided int, message text)
language plpgsql volatile security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_call push.outbox;
  v_id   bigint := push.find_call(void_call.call_id, void_call.app);
  v_done boolean;
begin
  voided := (select count(*) from push.delivery d where d.outbox_id = v_id and d.kind = 0 and d.state in (0, 2));
  update push.outbox o set state = 'ended', end_reason = coalesce(void_call.reason, 'voided'), voided = true
    where o.id = v_id and o.ended_at is null;
  v_done := found;
  select o.* into v_call from push.outbox o where o.id = v_id;
  if v_done then
    message := format('call %s was ended (%s): %s invites are taken back unsent, phones that may ring are told, nobody gets a missed call',
      v_call.call_id, v_call.end_reason, voided);
  else
    voided := 0;
    message := format('call %s had ended before (%s); nothing was done', v_call.call_id, v_call.end_reason);
  end if;
  perform push.note_audit('void_call', v_call.app || '/' || v_call.call_id,
    jsonb_build_object('reason', v_call.end_reason, 'done', v_done, 'voided', voided));
  return next;
end
$$;
comment on function push.void_call is
  'cancels a ringing call: unsent invites become void, phones that may ring get a cancel, and nobody gets a missed call. '
  'call_id: payload.callId; reason: kept as push.outbox.end_reason; app: needed only if several apps have a call with this '
  'id. Returns how many invites were taken back unsent, and a sentence that says what was done. Running it twice is '
  'harmless';

create or replace function push.requeue(call_id text, app text default null) returns table (requeued int, message text)
language plpgsql volatile security definer set search_path = push, pg_temp set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
  v_call  push.outbox;
  v_woken int;
  v_made  int := 0;
begin
  -- Nobody ends the call meanwhile, or tries its next channels.
  select o.* into v_call from push.outbox o where o.id = push.find_call(requeue.call_id, requeue.app) for no key update;
  requeued := 0;
  if v_call.ended_at is not null or v_call.deadline_at <= clock_timestamp() then
    message := format('call %s rings no more (%s); nothing was requeued', v_call.call_id,
      case when v_call.ended_at is null then 'its ring window is over' else v_call.state end);
  else
    -- A condition "state = 2" may be planned as a scan of all waiting deliveries, and there are most of them when this
    -- function is needed.
    update push.delivery d
      set state = 0, ready_lane = case when d.crashes < 2 then d.lane end, due_at = clock_timestamp()
      where d.ctid = any (array(select x.ctid from push.delivery x where x.outbox_id = v_call.id))
        and d.kind = 0 and d.state > 1 and d.deadline_at > clock_timestamp();
    get diagnostics v_woken = row_count;
    with last as (
      -- The last push to each device.
      select distinct on (p.lane, p.token) p.* from push.pushes_of(array[v_call.id]) p where p.kind = 0 order by p.lane, p.token, p.n desc
    )
    insert into push.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, ready_lane, environment, platform, user_id, token,
      locale, data)
    select v_call.id, p.last_n + row_number() over (order by p.lane, p.token), clock_timestamp(), clock_timestamp(), v_call.deadline_at,
      p.lane, p.lane, coalesce(p.environment, 0), coalesce(p.platform, 0), p.user_id, p.token, p.locale, p.data
    from last p
    where p.outcome in (3, 4) and p.token is not null and not coalesce(v_call.declined ? p.user_id, false)
      -- Its user may have logged out since.
      and ((p.user_id, p.token) in (
          select e ->> 'userId', t.token from jsonb_array_elements(v_call.recipients) e cross join lateral push.entry_tokens(e, true) t
          where push.is_recipient(e))
        or (select true from push.devices d
          where d.user_id = p.user_id and d.app = v_call.app and d.provider = p.provider and d.token = p.token and d.enabled
            and d.invalidated_at is null))
      and (select true from push.token_invalidations x
        where x.token = p.token and x.app = v_call.app and x.provider = p.provider) is null;
    get diagnostics v_made = row_count;
    requeued := v_woken + v_made;
    if requeued > 0 then
      perform push.ring_doorbell();
    end if;
    message := format('call %s: %s', v_call.call_id, case requeued
      when 0 then 'nothing to requeue: no invite of a living token has failed or is waiting'
      else format('%s invites are ready again: %s had failed, %s were waiting', requeued, v_made, v_woken) end);
  end if;
  perform push.note_audit('requeue', v_call.app || '/' || v_call.call_id, jsonb_build_object('requeued', requeued));
  return next;
end
$$;
comment on function push.requeue is
  'tries a call again that still rings: makes a new invite for each device whose last one failed (dead or expired) and '
  'whose token is not known to be dead, and makes waiting invites ready. call_id: payload.callId; app: needed only if '
  'several apps have a call with this id. Returns how many became ready, and a sentence that says what was done. Running '
  'it twice is harmless: invites that are owed or were delivered are left alone. Commit at once: until then the call cannot end';
