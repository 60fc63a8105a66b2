-- Counts for the gateways' metrics of what happens in SQL alone. Each statement that ends, misses or counts something
-- inserts a row into push.tally; a gateway removes the rows and adds them to its counters. Also gauges that only the
-- database can compute: how much is owed, and how old it is. The ends of deliveries are noted by push.bury, missed calls by
-- push.tell_missed, phones that ring by push.report_ringing, tokens by push.note_tokens.

-- What notes it -------------------------------------------------------------------------------------------------------

create or replace function push.tally_calls() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
declare
  v_full jsonb;
begin
  insert into push.tally (what, app, count)
  select 'enqueued', c.app, count(*) from new_calls c
  where push.is_call(c.kind) and c.created_at >= statement_timestamp() group by c.app;
  -- Usually no app escalates, which is quickly checked.
  if exists (select from push.apps a where a.escalate_after_seconds is not null) then
    insert into push.follow_ups (outbox_id, why, is_urgent, due_at)
    select c.id, 'unheard', true, c.created_at + make_interval(secs => a.escalate_after_seconds)
    from new_calls c
    cross join lateral (select a.escalate_after_seconds from push.apps a where a.app = c.app offset 0) a
    where push.is_call(c.kind) and a.escalate_after_seconds < c.ring_seconds and c.created_at >= statement_timestamp();
  end if;
  -- Here, because no later trigger refuses the statement: what others refuse is not counted.
  if pg_sequence_last_value('push.quota_id_seq') is not null then
    select push.use_quota(array_agg(u.app), array_agg(u.counts)) into v_full
    from (
      select n.app, array[count(*) filter (where push.is_call(n.kind)), count(*) filter (where not push.is_call(n.kind)),
        sum(jsonb_array_length(n.recipients))] as counts
      from new_calls n where n.created_at >= statement_timestamp() and n.app in (select q.app from push.quota q)
      group by n.app
    ) u;
    if v_full is not null then
      raise exception using errcode = v_full ->> 'code', message = v_full ->> 'message', detail = v_full ->> 'detail',
        hint = v_full ->> 'hint', schema = 'push', table = 'outbox', column = v_full ->> 'column';
    end if;
  end if;
  return null;
end
$$;
comment on function push.tally_calls is 'counts calls, also for the quota of their app, and notes when to look whether phones ring';

create or replace trigger tally_calls after insert on push.outbox referencing new table as new_calls
  for each statement execute function push.tally_calls();

-- Who takes it --------------------------------------------------------------------------------------------------------

create or replace function push.take_tally(p_max int default 20000)
returns table (
  what text, app text, provider text, kind smallint, outcome smallint, reason text, untried boolean, count bigint,
  seconds double precision
)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_id    int;
  v_value bigint;
  v_seen  bigint;
begin
  perform push.run_job('tally');  -- notes that it is done
  return query
    with gone as (
      delete from push.tally t
      where t.ctid = any (array(select x.ctid from push.tally x order by x.id limit p_max for update skip locked))
      returning t.*
    )
    select g.what, coalesce(l.app, g.app), l.channel, g.kind, g.outcome, g.reason, g.untried, sum(g.count)::bigint,
      g.seconds
    from gone g left join push.lane l on l.id = g.lane
    group by 1, 2, 3, 4, 5, 6, 7, 9;
  -- What quotas have refused since the last call, at most of the last two minutes. Each refusal is counted by one gateway.
  what := 'refused';
  for v_id, app in
    select q.id, q.app from push.quota q
    where pg_sequence_last_value(push.meter(q.id, 'refusals')) is distinct from pg_sequence_last_value(push.meter(q.id, 'refusals_seen'))
    for no key update skip locked
  loop
    v_value := pg_sequence_last_value(push.meter(v_id, 'refusals'));
    v_seen := push.meter_at(coalesce(pg_sequence_last_value(push.meter(v_id, 'refusals_seen')), 0), v_value >> 44);
    perform setval(push.meter(v_id, 'refusals_seen'), v_value);
    count := greatest(0, (v_value & 4194303) - (v_seen & 4194303) + ((v_value >> 22) & 4194303) - ((v_seen >> 22) & 4194303));
    if count > 0 then
      return next;
    end if;
  end loop;
end
$$;
comment on function push.take_tally is
  'removes at most p_max of the oldest rows of push.tally and returns their sums, and what quotas have refused';

-- What only the database sees -----------------------------------------------------------------------------------------

-- Computed as Postgres computes the size of its lock table. Postgres reserves memory for half of it. More entries are
-- possible as long as other shared memory is left, and that memory is not given back. The function reads no table: when the
-- lock table is full, a session that has called it before can still call it, and can run no other statement.
create or replace function push.lock_table_used() returns double precision language sql stable as $$
  select (select count(*) from pg_locks l where not l.fastpath) / (
    current_setting('max_locks_per_transaction')::double precision * (
      select sum(current_setting(s)::int)
      from unnest('{max_connections,autovacuum_max_workers,max_worker_processes,max_wal_senders,max_prepared_transactions}'::text[]) s))
$$;
comment on function push.lock_table_used is
  'the locks held or waited for in all databases of the server, divided by the number that Postgres guarantees room for. '
  'From 0.5 on the lock table may be full: statements of every session then fail with 53200';

create or replace function push.observe()
returns table (what text, app text, provider text, kind smallint, state smallint, value double precision)
language sql stable security definer set search_path = push, pg_temp as $$
  select x.what, l.app, l.channel, d.kind, d.state, x.value::double precision
    from (
      select d.lane, d.kind, d.state, sum(d.count) as count, min(d.oldest) as oldest from push.count_owed(5000, false) d group by 1, 2, 3
    ) d
    join push.lane l on l.id = d.lane
    cross join lateral (values ('pending', true, d.count),
      ('oldest_ready', d.state = 0, greatest(0, extract(epoch from clock_timestamp() - d.oldest)))) x(what, is_so, value)
    where x.is_so
  union all
  select x.what, l.app, l.channel, null, null, x.is_so::int
    from push.lane l cross join lateral (values ('paused', l.paused), ('held', l.invalidation_held_at is not null)) x(what, is_so)
  union all
  select 'replicas_alive', null, null, null, null, count(*) from push.gateways g where g.alive
  union all
  select 'overdue_' || j.state, null, null, null, null, count(*) from push.overdue_jobs j group by 1
  union all
  select x.what, r.app, null, null, null, sum(r.tickets)
    from push.receipt_batch r cross join lateral (
      -- A look-up makes a ticket due again later, so a ticket that was looked up in vain is not overdue by its due time.
      values ('receipts_pending', true), ('receipts_overdue', r.due_at < now() - interval '1 minute' or r.attempts > 3)) x(what, is_so)
    where x.is_so group by x.what, r.app
  union all
  select 'keys_expiring', k.app, null, null, null, count(*) from push.api_keys k
    where k.revoked_at is null and k.expires_at between now() and now() + interval '30 days'
      and coalesce(k.last_used_at > now() - interval '30 days', true)
    group by k.app
  union all
  select 'quota_' || u.what, u.app, null, null, null, round(u.used::numeric / greatest(u."limit", 1), 4)
    from push.quotas u where u."limit" is not null
  union all
  select 'webhook_' || x.what, w.app, null, null, null, x.value::double precision
    from push.webhooks w cross join lateral (values ('waiting', w.waiting), ('oldest', greatest(0, extract(epoch from w.oldest))),
      ('failing', greatest(0, extract(epoch from clock_timestamp() - w.failing_since))), ('stopped', (w.state in ('paused', 'gone'))::int),
      ('dropped', w.dropped)) x(what, value)
    where w.state <> 'off' and x.value is not null
$$;
comment on function push.observe is
  'the gauges of the database for metrics, one row for each series. what: pending (deliveries owed; an estimate for a lane '
  'with more than 5,000 divided by the number of lanes, see push.count_owed), oldest_ready (age in seconds of the oldest '
  'delivery that could be sent, among those read), paused, held (invalidation is on hold), replicas_alive, overdue_warn, overdue_bad (jobs), '
  'receipts_pending, receipts_overdue (due for a minute, or looked up more than three times in vain), keys_expiring (keys '
  'of the HTTP API with less than 30 days left), quota_calls, '
  'quota_notifications and quota_recipients (the used part of a quota); webhook_waiting and webhook_dropped (events), '
  'webhook_oldest (age of the oldest) and webhook_failing (both in seconds), webhook_stopped (1: paused, or after 410)';
