-- push.health: one check a row, with the state that it is in and what to do. Two limits for a number: up to the first it is ok, up to
-- the second a warning, above it bad.

-- The checks ------------------------------------------------------------------------------------------------------------

create or replace function push.first_few(p_names text[]) returns text language sql immutable parallel safe as $$
  select array_to_string(p_names[:5], ', ') || case when cardinality(p_names) > 5 then format(', and %s more', cardinality(p_names) - 5) else '' end
$$;
comment on function push.first_few is 'the first five of a list, and how many more there are; null: the list is null';

create or replace function push.finite(p_time timestamptz) returns timestamptz language sql immutable parallel safe as
$$ select case when p_time is not null then least(greatest(p_time, '2000-01-01 00:00:00+00'), '2100-01-01 00:00:00+00') end $$;
comment on function push.finite is 'p_time, as a time of which an age can be told: the owner of the tables may write any, infinity included';

create or replace function push.health_of_server() returns table (item text, value text, state text, hint text)
language sql stable as $$
  (select 'dead rows of push.' || t.relname, t.n_dead_tup::text || ' beside ' || t.n_live_tup,
      case when t.n_dead_tup <= 200000 + t.n_live_tup then 'ok' when t.n_dead_tup <= 2000000 + t.n_live_tup then 'warn' else 'bad' end,
      'A long transaction keeps vacuum from removing them: see "oldest transaction".'
    from pg_stat_all_tables t
    where t.schemaname = 'push' and t.relname in ('delivery', 'outbox', 'lane_status', 'gateways')
    order by t.relname)
  union all
  select 'oldest transaction',
      case when t.pid is null then 'none' else format('%s (pid %s)', date_trunc('milliseconds', t.age), t.pid) end
        || case when r.sees_all then '' else ', of this role only' end,
      case when t.age > interval '5 minutes' then 'bad' when t.age > interval '30 s' then 'warn' else 'ok' end,
      case when r.sees_all then 'End it with: select pg_terminate_backend(pid), as a role in pg_signal_backend, or a superuser.'
        else format('To see those of other roles, an administrator calls: grant pg_read_all_stats to %I.', current_user) end
    from (select pg_has_role(current_user, 'pg_read_all_stats', 'usage') as sees_all) r
    left join (
      select greatest(now() - a.xact_start, '0') as age, a.pid from pg_stat_activity a
      where a.xact_start is not null and a.backend_type = 'client backend' and a.pid <> pg_backend_pid() and a.datname = current_database()
      order by a.xact_start limit 1
    ) t on true
  union all
  select 'prepared transactions', p.count::text, case when p.count = 0 then 'ok' else 'warn' end,
      'Forgotten ones hold back vacuum for ever: pg_prepared_xacts shows them; their owner or a superuser ends them (commit or rollback prepared).'
    from (select count(*) from pg_prepared_xacts x where x.database = current_database()) p
  union all
  select 'replication slots',
      coalesce(push.first_few(array_agg(format('%s holds back vacuum by %s transactions', s.slot_name, age(s.xmin)) order by age(s.xmin) desc)),
        'none holds back vacuum'),
      case when coalesce(max(age(s.xmin)), 0) < 1000000 and bool_and(s.active) is not false then 'ok'
        when max(age(s.xmin)) < 10000000 then 'warn' else 'bad' end,
      'A standby is gone, or runs a long query. If it does not come back, a superuser calls: select pg_drop_replication_slot(NAME).'
    from pg_replication_slots s where s.xmin is not null
  union all
  -- Who may not see the state of standbys sees null. A list without a number requires one.
  select 'synchronous standby', case when s.required = 0 then 'none is required'
        else format('%s connected, %s required', s.connected, s.required) end,
      case when s.connected >= s.required then 'ok' else 'bad' end,
      'Commits of backends and of the HTTP API wait for it. Start it, or an administrator changes synchronous_standby_names.'
    from (
      select case when n.names = '' then 0
          else coalesce(substring(n.names from '^[[:space:]]*(?:[[:alpha:]]+[[:space:]]+)?([0-9]+)[[:space:]]*[(]')::int, 1) end as required,
        (select count(*) from pg_stat_replication r where coalesce(r.sync_state, 'sync') in ('sync', 'quorum')) as connected
      from (select current_setting('synchronous_standby_names') as names) n
    ) s
  union all
  select 'transaction ids used', round(d.age / 21474836.47, 1) || ' %',
      case when d.age < 500000000 then 'ok' when d.age < 1200000000 then 'warn' else 'bad' end,
      'At 100 % the database stops. After ending what holds vacuum back, a superuser calls vacuum (freeze).'
    from (select age(d.datfrozenxid)::numeric as age from pg_database d where d.datname = current_database()) d
  union all
  select 'notify queue', round(100 * q.usage::numeric, 2) || ' %',
      case when q.usage < 0.0001 then 'ok' when q.usage < 0.5 then 'warn' else 'bad' end,
      'Gateways are not notified and poll instead. A session listens and does not read: look for "idle in transaction" in pg_stat_activity.'
    from (select pg_notification_queue_usage() as usage) q
  union all
  select 'lock table', round(100 * l.used::numeric) || ' %' || case when l.used < 0.25 then '' else (
        select format(', most by pid %s (%s)', k.pid, coalesce(a.usename, 'unknown')) from pg_locks k left join pg_stat_activity a using (pid)
        where k.pid is not null group by k.pid, a.usename order by count(*) desc limit 1) end,
      case when l.used < 0.25 then 'ok' when l.used < 0.5 then 'warn' else 'bad' end,
      'When it is full, calls are refused and nothing is sent (53200). End that session: select pg_terminate_backend(pid), as a role '
      'in pg_signal_backend, or a superuser.'
    from (select push.lock_table_used() as used) l
  union all
  select 'other logins', coalesce(push.first_few(array_agg(r.rolname::text order by r.rolname)) || ' may connect', 'none may connect'),
      case when count(*) = 0 then 'ok' else 'warn' end,
      'These logins can use up all connections and locks, which stops calls. A superuser prevents that with deploy/psql/harden.sql.'
    from pg_roles r cross join pg_database d
    where r.rolcanlogin and not r.rolsuper and d.datname = current_database() and r.oid <> d.datdba
      -- Only logins that may connect through PUBLIC. A login that was granted the right itself has it on purpose.
      and exists (select from aclexplode(coalesce(d.datacl, acldefault('d', d.datdba))) a
        where a.grantee = 0 and a.privilege_type = 'CONNECT')
      and not exists (select from pg_roles p
        where (p.rolname in ('push_enqueuer', 'push_tenant', 'push_ops', 'push_keys', 'push_gateway', 'pg_monitor')
            or p.oid = (select n.nspowner from pg_namespace n where n.nspname = 'push'))
          and pg_has_role(r.oid, p.oid, 'member'))
$$;
comment on function push.health_of_server is 'checks of the server that all apps share; for push.health';

create or replace function push.health_of_replicas() returns table (item text, value text, state text, hint text)
language sql stable as $$
  with living as materialized (
    select g.id, g.name, g.started_at from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s'
  ), trouble as materialized (
    -- The lanes that send nothing. Reads one index entry for each lane that is paused or half-open, or that no replica serves.
    select l.app, l.channel,
      case when l.paused and s.lane is null and exists (select from living) then 'paused, and no replica serves it'
        when l.paused then 'paused' when s.lane is null then 'no replica serves it' when s.circuit = 'open' then 'circuit open'
        when t.until > now() then format('throttled for %s s', ceil(extract(epoch from t.until - now())))
        when s.capacity = 0 then 'no connection' when t.none_sends then 'trying again' else push.first_few(t.idle) end as what,
      case when l.paused or t.until > now() and s.circuit <> 'open' then is_waiting else coalesce(t.none_sends, true) end as is_bad
    from push.lane l
    left join push.lane_conditions() s on s.lane = l.id
    -- A lane that was asked for a pause, or is half-open, sends nothing once each of its replicas waits. What a half-open one claims is a try.
    -- A replica that has just started is still connecting.
    left join (
      select r.lane, min(coalesce(push.finite(r.throttled_until), '-infinity')) as until,
        bool_and(r.circuit <> 'closed' or r.capacity = 0) as none_sends,
        array_agg(format('%s at replica %s', case when r.capacity = 0 then 'no connection' when r.circuit = 'open' then 'circuit open'
          else 'trying again' end, g.name) order by g.id)
          filter (where (r.circuit <> 'closed' or r.capacity = 0) and g.started_at < now() - interval '5 s') as idle
      from push.lane_status r join living g on g.id = r.gateway group by r.lane
    ) t on t.lane = l.id
    cross join lateral (
      select (l.paused or s.lane is null or t.until > now() or t.none_sends) and exists (select from push.delivery d
        where d.ready_lane = l.id and d.deadline_at > statement_timestamp() and (d.state = 0 or t.none_sends)) as is_waiting
      offset 0
    ) d
    where l.paused or exists (select from living) and s.lane is null and is_waiting or s.circuit = 'open' or t.until > now()
      or s.capacity = 0 or case when t.none_sends then is_waiting else t.idle is not null end
  )
  select 'replicas alive', g.count::text, case when g.count = 0 then 'bad' else 'ok' end,
      'Nothing is sent without one: push.replicas says how the last ones ended.' from (select count(*) from living) g
  union all
  select 'lanes',
      coalesce(push.first_few(array_agg(format('%s/%s: %s', t.app, t.channel, t.what) order by not t.is_bad, t.app, t.channel)),
        case when exists (select from living) then 'all send' else 'wait for a replica' end),
      case when bool_or(t.is_bad) then 'bad' when count(*) > 0 then 'warn' else 'ok' end,
      case when count(*) = 0 then 'A lane that sends nothing is named here.' else concat_ws(' ',
        case when bool_or(t.what not like '% at replica %') then 'These send nothing, or only tries.' end,
        case when bool_or(t.what ~ ' at replica ') then 'Where a replica is named, the others send: docs/operations/requests-go-unanswered.md.' end,
        case when bool_or(t.what like 'paused%') then 'push.resume_lane ends a pause (push.audit says whose).' end,
        case when bool_or(t.what like '%serves it') then 'The configuration of a replica needs the app and provider that none serves.' end,
        case when bool_or(t.what like 'throttled%') then 'A throttled lane sends again by itself.' end,
        case when bool_or(t.what in ('circuit open', 'no connection', 'trying again')) then 'push.failures and the replicas'' logs say why a '
          'provider fails: docs/operations/a-provider-is-down.md, or requests-go-unanswered.md if it does not answer.' end) end
    from trouble t
  union all
  select 'housekeeping',
      coalesce('no row in push.job: ' || string_agg(j.name, ', ') filter (where j.every is null),
        (array_agg(format('%s overdue for %s', j.name, date_trunc('second', j.overdue)) order by j.state, j.overdue desc))[1],
        case when exists (select from living) then 'in time' else 'waits for a replica' end),
      coalesce(min(j.state), 'ok'),
      case when bool_and(j.every is not null) is not false
        then 'push.job says what is due, and when it was last done; any replica takes it. What fails is in the replicas'' logs.'
        else 'A job without a row never runs. The owner of the schema adds it: docs/operations/a-job-has-no-row.md.' end
    from push.overdue_jobs j
$$;
comment on function push.health_of_replicas is 'checks of the replicas and of what they send; for push.health';

create or replace function push.health_of_calls() returns table (item text, value text, state text, hint text)
language sql stable as $$
  select 'claims', case when r.at is null then 'open' else format('closed: restored %s ago', date_trunc('second', now() - r.at)) end,
      case when r.at is null then 'ok' when r.at > now() - interval '10 s' then 'warn' else 'bad' end,
      'In a restored database nothing is sent until a replica has ended what was owed when the dump was made: a few seconds.'
    from push.restored_at() r(at)
  union all
  select 'oldest ready invite', coalesce(date_trunc('milliseconds', o.age)::text, 'none'),
      case when o.age > interval '5 s' then 'bad' when o.age > interval '1 s' then 'warn' else 'ok' end,
      'Calls ring late: push.lanes shows which lane is full or has no capacity, push.stuck which deliveries wait.'
    from (select push.oldest_ringing() as age) o
  union all
  select 'ends that failed',
      coalesce(push.first_few(array_agg(format('%s/%s', o.app, o.call_id) order by e.noted_at, e.outbox_id)), 'none'),
      case when count(*) = 0 then 'ok' else 'bad' end,
      'What follows is not done yet: missed calls and cancels, or, while a call rings, the next channels of its users. Each is tried again for '
      '4 hours: push.timeline says when, the log of Postgres what failed. See docs/operations/ends-that-failed.md.'
    from (select x.outbox_id, min(x.noted_at) as noted_at from push.follow_ups x where x.tries > 0 group by x.outbox_id) e
    -- A call that was deleted has nobody to tell. Its row is removed at its next try.
    cross join lateral (select b.app, b.call_id from push.outbox b where b.id = e.outbox_id offset 0) o
  union all
  select 'put aside', coalesce(push.first_few(array_agg(format('%s (SQLSTATE %s)', a.target, a.detail ->> 'sqlstate') order by a.at desc)),
        'none'), case when count(*) = 0 then 'ok' else 'warn' end,
      'In the last day, pushes of these calls could not be read and are dead (Unreadable), or calls, or users to be erased, cannot be changed. '
      'XX001 or XX002: the table or an index is damaged, restore a backup. 40…, 53…, 55P03 or 57014, of a user: the erasure was in the way of '
      'others, or too slow; it is tried again. Others: a value written by hand, or somebody''s trigger.'
    from push.audit a where a.action = 'put_aside' and a.at > now() - interval '1 day'
  union all
  -- Calls from before a restore are left as they are.
  select 'calls past their deadline', case when count(*) = 0 then 'none' else format('%s, the oldest for %s',
        count(*) || case when count(*) = 1000 then ' or more' else '' end, date_trunc('second', max(c.age))) end,
      case when count(*) = 0 then 'ok' else 'bad' end,
      'They are not marked as missed: a replica runs the job miss (push.job). If housekeeping is in time, they cannot be changed (put aside), '
      'or a transaction has locked them (oldest transaction).'
    from (
      select now() - push.finite(o.deadline_at) as age from push.outbox o
      where o.state = 'ringing' and o.deadline_at < now() - interval '7 s' and push.restored_at() is null
      order by o.deadline_at limit 1000
    ) c
  union all
  select 'partitions ahead', p.count || ' days', case when p.count >= 7 then 'ok' when p.count >= 1 then 'warn' else 'bad' end,
      'A replica makes them every hour. What fails is in the log of Postgres.'
    -- Up to the first that is missing.
    from (select coalesce(min(d), 61) - 1 as count from generate_series(1, 60) d where not exists (select from pg_class c
      where c.oid = to_regclass('push.history_' || to_char(now() at time zone 'UTC' + d * interval '1 day', 'YYYYMMDD')) and c.relispartition)) p
  union all
  select 'history without a partition', case when h.some then 'some' else 'none' end, case when h.some then 'bad' else 'ok' end,
      'Rows of push.history_default keep their day''s partition from being made. The owner of the schema moves them: '
      'docs/operations/history-without-a-partition.md.'
    from (select exists (select from push.history_default) as some) h
  union all
  select 'receipts overdue', r.count::text || case when r.count = 1000 then ' or more' else '' end,
      case when r.count = 0 then 'ok' when r.count < 1000 then 'warn' else 'bad' end,
      'Expo''s receipts are looked up 15 minutes after sending and lost after 24 hours.'
    from (select least(coalesce(sum(cardinality(r.ticket)), 0), 1000) as count from (select r.ticket from push.receipt_batch r
      where r.due_at < now() - interval '5 minutes' or r.attempts > 3 limit 1000) r) r
  union all
  select 'quarantined tokens', q.count::text, case when q.count = 0 then 'ok' else 'warn' end,
      'A provider reported many tokens as dead at once: push.quarantined_devices shows which provider. push.resume_invalidation ends the hold, '
      'and releases 10,000 tokens at a time: repeat it until none is left.'
    from (select count(*) from push.quarantined_tokens) q
$$;
comment on function push.health_of_calls is 'checks of calls, their history, receipts and tokens; for push.health';

-- The planner puts the others into this one, whose plan is made once a session.
create or replace function push.check_health() returns table (item text, value text, state text, hint text)
language plpgsql stable security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
begin
  -- After a restore without data.
  if not (select c.relispopulated from pg_class c where c.oid = 'push.schema_made'::regclass) then
    return query values ('schema', 'not compared', 'warn', 'The owner of the schema calls: refresh materialized view push.schema_made.');
  else
    return query
      select 'schema', coalesce(push.first_few(array_agg(f.fault order by f.fault)), 'complete'),
          case when count(*) = 0 then 'ok' when bool_and(f.fault like '% is not of this schema') then 'warn' else 'bad' end,
          case when bool_and(f.fault like '% is not of this schema')
            then 'It may keep calls from being enqueued, sent or recorded. Remove it, or declare it right: refresh materialized view '
              'push.schema_made.'
            else 'Calls do not ring, or what became of them is not recorded. The owner of the schema switches a trigger on (alter table … '
              'enable trigger …), gives rights back with: select push.grant_roles(); and makes the rest as docs/schema.sql has it.' end
        from push.schema_faults f;
  end if;
  return query
    select * from push.health_of_server()
    union all
    select * from push.health_of_replicas()
    union all
    select * from push.health_of_calls()
    union all
    select 'credentials', coalesce(push.first_few(array_agg(r.refusal order by r.refused, r.refusal)), 'none is refused'),
        case when bool_or(r.refused = 'all') then 'bad' when count(*) > 0 then 'warn' else 'ok' end,
        case when bool_or(r.refused = 'all') then 'Calls do not ring there, unless a sentence says otherwise. ' else '' end
          || 'A replica reads a corrected file within 2 s, and tries it: push-gateway check-config --connect, on the machine of a replica that '
          'is named, asks each provider. See docs/operations/credentials-fail.md.'
      from push.lanes r where r.refusal is not null
    union all
    select 'webhooks',
        coalesce(push.first_few(array_agg(format('%s: %s%s%s, %s wait', w.app, w.state,
          ' since ' || date_trunc('second', case w.state when 'gone' then w.gone_at when 'failing' then w.failing_since end),
          case when w.replicas_differ then ' (not in the configuration of every replica)' end, w.waiting) order by w.app)), 'all arrive'),
        case when bool_or(w.state = 'gone' or w.failing_since < now() - interval '1 hour' or w.oldest > interval '12 hours') then 'bad'
          when count(*) > 0 then 'warn' else 'ok' end,
        'Backends are not told of results; events are dropped after 24 hours. push.webhooks shows status and reason; '
        'push.resume_webhooks sends again.'
      from push.webhooks w
      where w.state in ('gone', 'paused') or w.failing_since < now() - interval '5 minutes'
        or w.state <> 'off' and w.oldest > interval '1 hour' or w.replicas_differ
    union all
    select 'API keys',
        coalesce(push.first_few(array_agg(format('%s (%s, %s) until %s', k.id, k.name, k.app, k.expires_at::date)
          order by k.expires_at, k.id)), 'none expires soon'),
        case when bool_or(k.expires_at < now() + interval '3 days') then 'bad' when count(*) > 0 then 'warn' else 'ok' end,
        'Backends are refused from then on. As a role in push_keys: create another key (push.create_api_key), hand it over, '
        'revoke this one (push.revoke_api_key).'
      -- Not those whose last use is more than 30 days ago.
      from push.api_keys k
      where k.revoked_at is null and k.expires_at between now() and now() + interval '30 days'
        and coalesce(k.last_used_at > now() - interval '30 days', true)
    union all
    select 'quotas', coalesce(push.first_few(array_agg(q.trouble order by q.trouble)), 'none is used up'),
        case when count(*) > 0 then 'warn' else 'ok' end,
        'An app at its quota is refused (53Q01): push.quotas, push.set_quota. Of replicas that differ (calls/notifications/recipients a '
        'minute), the one that registered last is right; a restart registers it again.'
      from (
        with used as (
          select u.*, 0 = any (array_agg(u."limit") over (partition by u.app)) as is_shut,
            case when u.refusals > 0 then format('; %s refusals in the last minute', u.refusals) else '' end as refused
          from push.quotas u where u."limit" is not null
        )
        select format('%s at its quota (%s)', u.app, string_agg(format('%s of %s %s', u.used, u."limit", u.what), ', ')) || max(u.refused)
          from used u
          where u."limit" > 0 and (u.used >= u."limit" or u.refusals > 0 and not u.is_shut)
          group by u.app
        union all
        select format('%s may enqueue no %s: the quota is 0', u.app, string_agg(u.what, ' and no ')) || max(u.refused)
          from used u where u."limit" = 0 group by u.app
        union all
        select format('the quota of %s is not the one that %s has: %s', r.app, r.replica, array_to_string(r.limits, '/', 'none'))
          from push.quota_of_replica r left join push.quota q on q.app = r.app
          where r.limits <> coalesce(q.configured, array_fill(null::int, '{3}'))
            and exists (select from push.gateways g where g.name = r.replica and g.alive)
      ) q(trouble);
end
$$;
comment on function push.check_health is 'checks conditions that could make calls ring late; for push.health';

create or replace view push.health as select h.item, h.value, h.state, h.hint from push.check_health() h;
comment on view push.health is 'one check a row: the value found, its state (ok, warn or bad), and what to do';
comment on column push.health.item is 'what was checked';
comment on column push.health.value is 'what was found';
comment on column push.health.state is 'ok, warn (act soon) or bad (act now)';
comment on column push.health.hint is 'what it means and what to do';
