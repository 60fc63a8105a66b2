-- What a gateway calls: it registers, beats, claims, settles; the leader among the replicas does the housekeeping.
--
-- The hot functions are PL/pgSQL with pinned plans: PostgreSQL 15 plans a SQL function anew at every call, and
-- statistics taken while the queue was empty or full would change the plan at the worst time. Every transition of a
-- claimed delivery is fenced by (state, owner, lease), so that a gateway that lost its claim changes nothing.

-- One life of a gateway -----------------------------------------------------------------------------------------------

create function push.register_gateway(p_name text, p_version text) returns int
language plpgsql security definer set search_path = push, pg_temp as $$
declare
  v_id int;
begin
  insert into push.gateways (name, version) values (p_name, p_version) returning id into v_id;
  return v_id;
end
$$;
comment on function push.register_gateway is 'a new life of a gateway; the result is its fence';

create function push.heartbeat(p_gateway int) returns boolean
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  update push.gateways set heartbeat_at = clock_timestamp() where id = p_gateway and alive;
  return found;
end
$$;
comment on function push.heartbeat is
  'to be called every second; false: declared dead, its claims are taken over, drop them and register anew';

create function push.register_app(p_app text, p_ring_seconds int) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.apps as a (app, ring_seconds) values (p_app, p_ring_seconds)
    on conflict (app) do update set ring_seconds = excluded.ring_seconds, updated_at = clock_timestamp()
      where a.ring_seconds <> excluded.ring_seconds;
end
$$;
comment on function push.register_app is 'tells enqueueing what the configuration says of an app';

-- Rows of gateways that ended in the last minute are looked for each time: a claim that ran while its gateway was
-- declared dead commits afterwards, with an owner who can no longer settle it.
create function push.free_claims() returns bigint
language plpgsql security definer set search_path = push, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
  v_ended int[] := array(
    select g.id from push.gateways g where not g.alive and g.ended_at > clock_timestamp() - interval '1 minute');
  v_freed bigint;
begin
  if v_ended = '{}' then
    return 0;
  end if;
  with lost as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 1 and d.owner = any (v_ended)
    for no key update skip locked
  )
  update push.delivery d set state = 0, owner = null where d.ctid = any (array(select tid from lost));
  get diagnostics v_freed = row_count;
  if v_freed > 0 then
    perform push.ring_doorbell();
  end if;
  return v_freed;
end
$$;
comment on function push.free_claims is 'makes what ended gateways held ready again; attempts stay counted';

create function push.retire_gateway(p_gateway int) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  update push.gateways set alive = false, ended_at = clock_timestamp(), ended_reason = 'retired'
    where id = p_gateway and alive;
  perform push.free_claims();
end
$$;
comment on function push.retire_gateway is 'the clean end of a gateway; what it still holds becomes ready';

create function push.reap(p_silence interval default '3 s') returns bigint
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  update push.gateways set alive = false, ended_at = clock_timestamp(), ended_reason = 'silent'
    where alive and heartbeat_at < clock_timestamp() - p_silence;
  return push.free_claims();
end
$$;
comment on function push.reap is
  'declares gateways dead that were silent for so long; returns how many deliveries became ready again';

-- Claim ---------------------------------------------------------------------------------------------------------------

create function push.claim(
  p_gateway int, p_lanes smallint[], p_max int[], p_floor timestamptz[], p_slack interval default '300 ms'
) returns table (
  lane smallint, outbox_id bigint, n int, lease int, attempt int, kind smallint, environment smallint,
  platform smallint, user_id text, token text, locale text, app_call_kind text, call_id text, payload jsonb,
  created_at timestamptz, deadline_at timestamptz, remaining_us bigint
)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- An index condition, not a filter: under a transaction that holds back vacuum the index is full of dead entries with
  -- past deadlines, and starting behind them keeps the claim fast. clock_timestamp() here would make it a filter.
  v_floor timestamptz;
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive) then
    return;
  end if;
  for i in 1 .. coalesce(array_length(p_lanes, 1), 0) loop
    continue when p_max[i] <= 0;
    v_floor := greatest(p_floor[i], statement_timestamp() + p_slack);
    return query
      with pick as materialized (
        select d.ctid as tid
        from push.delivery d
        where d.state = 0 and d.lane = p_lanes[i] and d.deadline_at > v_floor
          and (select not l.paused from push.lane l where l.id = p_lanes[i])
        order by d.deadline_at
        limit p_max[i]
        for no key update skip locked
      )
      update push.delivery d
      set state = 1, owner = p_gateway, lease = d.lease + 1, attempt = d.attempt + 1
      from push.outbox o
      where d.ctid = any (array(select pick.tid from pick)) and o.id = d.outbox_id
      returning d.lane, d.outbox_id, d.n, d.lease, d.attempt::int, d.kind, d.environment, d.platform,
        d.user_id, d.token, d.locale, o.kind, o.call_id, o.payload, d.created_at, d.deadline_at,
        (extract(epoch from d.deadline_at - clock_timestamp()) * 1000000)::bigint;
  end loop;
end
$$;
comment on function push.claim is
  'takes up to p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first, with deadlines after '
  'p_floor[i] and more than p_slack away; nothing from a paused lane, nothing for a gateway declared dead';

-- What became of claimed deliveries -----------------------------------------------------------------------------------

create function push.settle(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_outcome smallint[],
  p_status smallint[], p_reason text[], p_message_id text[], p_call_id text[],
  p_sent_at timestamptz[], p_answered_at timestamptz[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_settled bigint;
begin
  with gone as (
    delete from push.delivery d
    using unnest(p_outbox_id, p_n, p_lease, p_attempts, p_outcome, p_status, p_reason, p_message_id, p_call_id,
      p_sent_at, p_answered_at)
      r(outbox_id, n, lease, attempts, outcome, status, reason, message_id, call_id, sent_at, answered_at)
    where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease
    returning d.outbox_id, d.created_at, d.deadline_at, r.sent_at, r.answered_at, d.n, r.attempts, d.lane, d.kind,
      r.outcome, r.status, d.user_id, r.call_id, d.token, r.reason, d.last_reason, r.message_id
  )
  insert into push.history (outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner, lane, kind,
    outcome, status, user_id, call_id, device, reason, provider_message_id)
  select g.outbox_id, g.created_at, g.deadline_at, g.sent_at, g.answered_at, g.n, g.attempts, p_gateway, g.lane, g.kind,
    g.outcome, g.status, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    case when g.outcome <= 1 then g.reason
      else coalesce(g.reason, g.last_reason,
        case g.outcome when 2 then 'CallEnded' when 3 then 'DeadlinePassed' else 'Unknown' end)
    end,
    g.message_id
  from gone g;
  get diagnostics v_settled = row_count;
  return v_settled;
end
$$;
comment on function push.settle is
  'ends claimed deliveries and writes their history; returns how many it accepted: fewer than given means that leases '
  'were lost, and those results are dropped. attempts are what was really tried, retries under one lease included';

create function push.park(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_delay_ms int[], p_reason text[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_parked bigint;
begin
  -- Due at the deadline at the latest: so the index on due_at finds waiting deliveries that have expired, too.
  update push.delivery d
  set state = 2, owner = null, attempt = r.attempts, last_reason = coalesce(r.reason, d.last_reason),
    due_at = least(clock_timestamp() + r.delay_ms * interval '1 ms', d.deadline_at)
  from unnest(p_outbox_id, p_n, p_lease, p_attempts, p_delay_ms, p_reason)
    r(outbox_id, n, lease, attempts, delay_ms, reason)
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_parked = row_count;
  return v_parked;
end
$$;
comment on function push.park is
  'claimed to waiting, for so many milliseconds; returns how many were still the caller''s';

create function push.release(p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_released bigint;
begin
  update push.delivery d set state = 0, owner = null, attempt = greatest(d.attempt - 1, 0)
  from unnest(p_outbox_id, p_n, p_lease) r(outbox_id, n, lease)
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_released = row_count;
  if v_released > 0 then
    perform push.ring_doorbell();
  end if;
  return v_released;
end
$$;
comment on function push.release is
  'claimed to ready with the attempt given back, for a shutdown or an open circuit; '
  'returns how many were still the caller''s';

-- Housekeeping, by the leader; harmless when two do it ----------------------------------------------------------------

create function push.promote(p_max int default 2000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_promoted bigint;
begin
  with pick as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 2 and d.due_at <= statement_timestamp() and d.deadline_at > statement_timestamp()
    order by d.due_at
    limit p_max
    for no key update skip locked
  )
  update push.delivery d set state = 0 where d.ctid = any (array(select pick.tid from pick));
  get diagnostics v_promoted = row_count;
  if v_promoted > 0 then
    perform push.ring_doorbell();
  end if;
  return v_promoted;
end
$$;
comment on function push.promote is 'makes up to p_max waiting deliveries ready whose time has come; returns how many';

create function push.expire(p_max int default 5000, p_slack interval default '0') returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_before timestamptz := statement_timestamp() + p_slack;
  v_expired bigint;
begin
  with ready as materialized (
    select late.tid
    from push.lane l cross join lateral (
      select d.ctid as tid
      from push.delivery d
      where d.state = 0 and d.lane = l.id and d.deadline_at <= v_before
      order by d.deadline_at
      limit p_max
      for no key update skip locked
    ) late
  ), waiting as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 2 and d.due_at <= v_before and d.deadline_at <= v_before
    order by d.due_at
    limit p_max
    for no key update skip locked
  ), gone as (
    delete from push.delivery d
    where d.ctid = any (array(select tid from ready union all select tid from waiting limit p_max))
    returning d.*
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind, 3, g.user_id, o.call_id,
    left(g.token, 4) || '…' || right(g.token, 4), coalesce(g.last_reason, 'DeadlinePassed')
  from gone g left join push.outbox o on o.id = g.outbox_id;
  get diagnostics v_expired = row_count;
  return v_expired;
end
$$;
comment on function push.expire is
  'ends up to p_max ready and waiting deliveries whose deadline is past, or less than p_slack away, as expired; '
  'returns how many. A claimed one belongs to its gateway';

-- History's partitions ------------------------------------------------------------------------------------------------

-- Making and dropping are two functions, hence two transactions: a drop that loses a race for a lock must not undo
-- tomorrow's partition. Days are UTC days, whatever the session's time zone.

create function push.ensure_partitions(p_days_ahead int default 14) returns int
language plpgsql security definer set search_path = push, pg_temp set timezone = 'UTC' set lock_timeout = '500ms' as $$
declare
  v_day  date;
  v_name text;
  v_made int := 0;
begin
  -- One replica at a time: the other is doing the same.
  if not pg_try_advisory_xact_lock(7781, 1) then
    return 0;
  end if;
  for v_day in
    select d::date from generate_series(current_date - 1, current_date + p_days_ahead, interval '1 day') d
  loop
    v_name := 'history_' || to_char(v_day, 'YYYYMMDD');
    continue when to_regclass('push.' || v_name) is not null;
    begin
      execute format('create table push.%I partition of push.history for values from (%L) to (%L)',
        v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
      execute format('comment on table push.%I is %L', v_name, 'what was finished on ' || v_day || ' (UTC)');
      v_made := v_made + 1;
    exception when check_violation then
      raise warning 'push.history_default holds rows of %: move them, then call push.ensure_partitions again', v_day;
    end;
  end loop;
  return v_made;
end
$$;
comment on function push.ensure_partitions is
  'makes the missing partitions of push.history from yesterday to so many days ahead; returns how many';

create function push.drop_partitions(p_keep_days int default 14) returns int
language plpgsql security definer set search_path = push, pg_temp set timezone = 'UTC' set lock_timeout = '200ms' as $$
declare
  v_name text := (
    select c.relname
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'push.history'::regclass and c.relname ~ '^history_[0-9]{8}$'
      and right(c.relname, 8) < to_char(current_date - greatest(p_keep_days, 1), 'YYYYMMDD')
    order by c.relname
    limit 1);
begin
  if v_name is null then
    return 0;
  end if;
  execute format('drop table if exists push.%I', v_name);
  return 1;
end
$$;
comment on function push.drop_partitions is
  'drops the oldest partition of push.history that is older than so many days; call it until it returns 0';

select push.ensure_partitions();

revoke execute on all functions in schema push from public;
