-- Views and functions for operators: what is owed, what is late, what failed, which replicas run, and interventions, which are
-- recorded. push.health is in health.sql.

-- What is owed, what is late, what failed -----------------------------------------------------------------------------

create or replace function push.oldest_ringing(p_app text default null) returns interval
language plpgsql stable security definer set search_path = push, pg_temp as $$
begin
  return (
    select max(now() - push.finite(head.since))
    from push.lane l
    left join push.lane_conditions() s on s.lane = l.id
    cross join lateral (
      -- The earliest deadlines are sent next. An invite rings for at most ten minutes.
      -- One that is tried again is late since its next try is due: what its first tries waited for, a push service of browsers for
      -- example, says nothing about other calls.
      select d.kind, case when d.attempt > 0 then d.due_at else d.created_at end as since from push.delivery d
      where d.ready_lane = l.id and d.deadline_at > statement_timestamp()
        and d.deadline_at < statement_timestamp() + interval '10 minutes' and d.state = 0 and (d.handed_on_by is null or d.due_at <= now())
      order by d.deadline_at limit 100
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
select l.app, l.channel as provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end as state,
  sum(d.count)::bigint as count, now() - min(d.oldest) as oldest_age, min(d.first_deadline) - now() as least_left
from push.count_owed() d left join push.lane l on l.id = d.lane
group by l.app, l.channel, d.kind, d.state;
comment on view push.summary is
  'deliveries that are owed, by app, provider, kind and state; no rows if nothing is owed. Counts above 30,000 divided by '
  'the number of lanes are estimates, rounded to three digits (push.count_owed)';
comment on column push.summary.provider is 'provider and push service: apns, webpush/google';
comment on column push.summary.count is 'number of deliveries';
comment on column push.summary.oldest_age is 'age of the oldest of them';
comment on column push.summary.least_left is
  'time until the first of them expires; negative: it should have expired already';

-- Shows only the most urgent deliveries, the ready ones by their index: nobody reads a backlog of 500,000, and looking up
-- its calls would take seconds. The call is a subquery and no join, so it is looked up only for the rows shown.
create or replace view push.stuck as
select d.outbox_id, d.n, l.app, (select o.call_id from push.outbox o where o.id = d.outbox_id) as call_id, l.provider,
  case d.kind when 0 then 'invite' when 1 then 'cancel' when 2 then 'missed_call' else 'notification' end as kind,
  d.user_id, case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end as state,
  case when d.deadline_at < now() - interval '5 s' then 'past its deadline, and not expired'
    when d.state = 0 then 'ready, and not claimed'
    when d.state = 1 then 'claimed, and not settled'
    else 'due, and still waiting' end as why,
  now() - push.finite(greatest(d.created_at, d.due_at)) as age, push.finite(d.deadline_at) - now() as "left", d.last_reason, d.owner as gateway
from (
  select c.*, row_number() over (partition by case c.state when 0 then c.lane end order by c.deadline_at) as place
  from (
    select d.*, l.paused or coalesce(s.circuit = 'open', false) as is_stopped
    from push.lane l left join push.lane_conditions() s on s.lane = l.id
    cross join lateral (select d.* from push.delivery d where d.ready_lane = l.id order by d.deadline_at limit 2000) d
    union all
    -- Those that wait, and those that two gateways held when they died.
    (select d.*, false from push.delivery d where d.ready_lane is null and d.due_at < now() - interval '5 s' order by d.due_at limit 1000)
  ) c
  where c.deadline_at < now() - interval '5 s' or not (c.is_stopped and c.state = 0)
    and greatest(c.created_at, c.due_at) < now() - case c.state when 1 then interval '30 s' else interval '5 s' end
) d
join push.lane l on l.id = d.lane
where d.place <= case d.state when 0 then 200 else 1000 end;
comment on view push.stuck is
  'deliveries that should have made progress: ready for more than 5 s while the lane is not paused and its circuit not '
  'open, claimed and more than 30 s old, waiting 5 s longer than due, or 5 s past the deadline. Shows the most urgent 200 '
  'ready deliveries of each lane and 1,000 others, among the 2,000 of each lane with the earliest deadlines';
comment on column push.stuck.why is 'what should have happened';
comment on column push.stuck.age is 'time since it was enqueued, or since it was due';
comment on column push.stuck."left" is 'time until its deadline; negative: past it';

-- The example is looked up once for each row shown; sorting all failures of an hour for it took a second.
create or replace view push.failures as
select l.app, l.channel as provider,
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
comment on column push.failures.provider is 'provider and push service: apns, webpush/google';
comment on column push.failures.outcome is 'delivered_late, expired (never sent in time) or dead (failed)';
comment on column push.failures.count is 'number of deliveries';
comment on column push.failures.last_at is 'when the last of them was settled';
comment on column push.failures.example_call_id is 'the call of the last one; push.timeline shows its events';
comment on column push.failures.example_device is 'the device of the last one, its token masked';

-- Replicas ------------------------------------------------------------------------------------------------------------

-- Only a living gateway declares others dead, so push.gateways.alive stays true for the last one that dies. Whoever looks from
-- outside goes by the heartbeat, too: here, in push.lane_conditions, push.oldest_ringing and push.health.
create or replace view push.replicas as
select g.id, g.name, g.version, h.is_heard as alive, g.started_at, g.heartbeat_at,
  case when h.is_heard then now() - push.finite(g.heartbeat_at) end as silence, coalesce(d.claimed, 0) as claimed,
  case when g.alive and not h.is_heard then g.heartbeat_at else g.ended_at end as ended_at,
  case when g.alive and not h.is_heard then 'silent' else g.ended_reason end as ended_reason
from push.gateways g
cross join lateral (select g.alive and g.heartbeat_at > now() - interval '5 s' as is_heard) h
left join (
  select d.owner, sum(d.count)::bigint as claimed from push.count_owed() d where d.state = 1 group by d.owner
) d on d.owner = g.id;
comment on view push.replicas is 'one row for each life of a gateway process: those that run, and those that ended lately';
comment on column push.replicas.alive is
  'whether it runs, as far as is known: it has not ended, and its last heartbeat is less than 5 s old';
comment on column push.replicas.silence is 'time since its last heartbeat; after 3 s the other replicas declare it dead';
comment on column push.replicas.claimed is 'deliveries that it holds; when a replica ends, others take them over at once';
comment on column push.replicas.ended_at is
  'when it ended or was declared dead; of a silent one that no other replica could declare dead, its last heartbeat';

-- Interventions -------------------------------------------------------------------------------------------------------

create or replace function push.void_call(call_id text, reason text default 'voided', app text default null)
returns table (voided int, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_call push.outbox;
  v_id   bigint := push.find_call(void_call.call_id, void_call.app);
  v_done boolean;
begin
  update push.outbox o set state = 'ended', end_reason = coalesce(void_call.reason, 'voided'), voided = true
    where o.id = v_id and o.ended_at is null;
  v_done := found;
  voided := (select count(*) from push.delivery d where v_done and d.outbox_id = v_id and d.kind = 0 and d.state in (0, 2));
  select o.* into v_call from push.outbox o where o.id = v_id;
  message := format(case when v_done
      then 'call %s was ended (%s): %s invites are taken back unsent, phones that may ring are told, nobody gets a missed call'
      else 'call %s had ended before (%s); nothing was done' end, v_call.call_id, v_call.end_reason, voided);
  insert into push.audit (action, target, detail) values ('void_call', v_call.app || '/' || v_call.call_id,
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
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_call  push.outbox;
  v_woken int;
  v_made  int := 0;
begin
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    raise exception using errcode = 'active_sql_transaction',
      message = 'push.requeue must see what was committed last: run it under READ COMMITTED',
      hint = 'begin isolation level read committed;';
  end if;
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
      set state = 0, ready_lane = case when d.crashes < 2 then d.lane end, due_at = clock_timestamp(), handed_on_by = null
      where d.ctid = any (array(select x.ctid from push.delivery x where x.outbox_id = v_call.id))
        and d.kind = 0 and (d.state = 2 or d.state = 0 and d.handed_on_by is not null) and d.deadline_at > clock_timestamp();
    get diagnostics v_woken = row_count;
    with last as (
      -- The last push to each device.
      select distinct on (p.lane, k.key) p.*, k.key
      from push.pushes_of(array[v_call.id]) p cross join lateral (select push.token_key(p.provider, p.token)) k(key)
      where p.kind = 0 order by p.lane, k.key, p.n desc
    )
    insert into push.delivery (outbox_id, n, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
    select v_call.id, p.last_n + row_number() over (order by p.lane, p.key), v_call.deadline_at, p.lane, p.lane,
      coalesce(p.environment, 0), coalesce(p.platform, 0), p.user_id, p.token, p.locale, p.data
    from last p
    where p.outcome in (3, 4) and p.token is not null and not coalesce(v_call.declined ? p.user_id, false)
      -- Its user may have logged out since.
      and ((p.user_id, p.key) in (
          select e ->> 'userId', push.token_key(t.provider, t.token) from jsonb_array_elements(v_call.recipients) e cross join lateral
            push.entry_tokens(e, true) t
          where push.is_recipient(e))
        or (select true from push.devices d
          where d.user_id = p.user_id and d.app = v_call.app and d.provider = p.provider
            and push.token_key(d.provider, d.token) = p.key and d.enabled
            and d.invalidated_at is null limit 1))
      and not exists (select from push.deaths_of(v_call.app, p.provider, p.token));
    get diagnostics v_made = row_count;
    requeued := v_woken + v_made;
    perform push.ring_doorbell() where requeued > 0;
    message := format('call %s: %s', v_call.call_id, case requeued
      when 0 then 'nothing to requeue: no invite of a living token has failed or is waiting'
      else format('%s invites are ready again: %s had failed, %s were waiting', requeued, v_made, v_woken) end)
      || coalesce((select '; invites of a paused lane ring when it is resumed: ' || string_agg(distinct l.app || '/' || l.channel, ', ')
        from push.delivery d join push.lane l on l.id = d.lane
        where d.outbox_id = v_call.id and d.kind = 0 and d.state = 0 and l.paused), '');
  end if;
  insert into push.audit (action, target, detail) values ('requeue', v_call.app || '/' || v_call.call_id, jsonb_build_object('requeued', requeued));
  return next;
end
$$;
comment on function push.requeue is
  'tries a call again that still rings: makes a new invite for each device whose last one failed (dead or expired) and '
  'whose token is not known to be dead, and makes waiting invites ready. call_id: payload.callId; app: needed only if '
  'several apps have a call with this id. Returns how many became ready, and a sentence that says what was done. Running '
  'it twice is harmless: invites that are owed or were delivered are left alone. Commit at once: until then the call cannot end';
