-- Jobs of housekeeping, which any gateway may run. A gateway takes the job that is due first, which moves the job's due
-- time on, and then runs one step of it in a transaction of its own. An error, or a gateway that stops in between, delays
-- one job by its interval. Two gateways may run the same job at once if a step takes longer than the interval: every job
-- skips locked rows.

insert into push.job (name, every) values
  ('follow_up_urgent', '250 ms'), ('follow_up', '250 ms'), ('follow_up_again', '1 s'), ('follow_up_all', '5 s'), ('free', '500 ms')
  on conflict do nothing;
delete from push.job j where j.name = 'check_ends';  -- of release 0.1.0

-- Jobs that rings wait for (retries that are due, next channels, and what dead gateways held) are urgent. They run beside the others: a
-- gateway takes one of each kind at a time, so that a call whose end takes seconds delays no ring.
create or replace function push.take_job(p_gateway int, p_urgent boolean default null) returns text
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_name text;
begin
  update push.job j set due_at = clock_timestamp() + j.every, taken_at = clock_timestamp(), gateway = p_gateway
    -- No job is due later than one interval from now, unless the clock was set back.
    where j.name = (select x.name from push.job x where x.due_at not between clock_timestamp() and clock_timestamp() + x.every
        and coalesce((x.name in ('promote', 'escalate', 'follow_up_urgent', 'free')) = p_urgent, true)
      order by x.due_at limit 1 for update skip locked)
      and exists (select from push.gateways g where g.id = p_gateway and g.alive)
    returning j.name into v_name;
  return v_name;
end
$$;
comment on function push.take_job is
  'the job that is due first, for push.run_job, or for push.take_tally if the name is tally. Null: no job is due, or the '
  'gateway was declared dead. p_gateway: what push.register_gateway returned; p_urgent: only one that is urgent, '
  'or one that is not; null: any';

create or replace function push.run_job(p_name text) returns boolean
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_more boolean := false;
begin
  case p_name
    when 'promote' then v_more := push.promote(2000) >= 2000;
    when 'free' then v_more := push.free_claims() > 0;
    -- Calls from before a restore neither ring nor are announced (push.put_away).
    when 'miss' then v_more := case when push.restored_at() is null then push.miss(1000) else 0 end >= 1000;
    -- Notes of the last minute: cheap, even while vacuum is held back. follow_up_all takes older ones.
    when 'follow_up_urgent' then v_more := push.follow_up(true, 200, interval '1 minute') >= 200;
    when 'follow_up' then v_more := push.follow_up(false, 200, interval '1 minute') >= 200;
    when 'follow_up_again' then v_more := push.follow_up(null, 2000) > 0;
    when 'follow_up_all' then v_more := push.follow_up(true, 200, interval '1 year') + push.follow_up(false, 200, interval '1 year') >= 200;
    -- Deliveries that expired recently: cheap, even while vacuum is held back. expire_all finds the rest.
    when 'expire' then v_more := push.expire(5000, p_since => now() - interval '1 minute') >= 5000;
    when 'expire_all' then v_more := push.expire(5000) >= 5000;
    when 'escalate' then v_more := case when push.restored_at() is null then push.bypass(500) else 0 end >= 500;
    when 'prune' then
      perform push.prune();
      v_more := push.trim_webhooks() >= 5000 or exists (select from push.prune_cursor c where c.after_id > 0);
    when 'erase' then v_more := push.finish_erasures();
    when 'ensure_partitions' then perform push.ensure_partitions();
    when 'drop_partitions' then v_more := push.drop_partitions() > 0;
    -- The caller runs push.take_tally itself and adds the result to its counters.
    when 'tally' then null;
  end case;
  -- Not at each run: some are run four times a second, and while vacuum is held back each update leaves a dead row.
  update push.job j set done_at = clock_timestamp(), due_at = case when v_more then clock_timestamp() else j.due_at end
    where j.name = p_name and (v_more or j.done_at < clock_timestamp() - interval '5 s');
  return v_more;
end
$$;
comment on function push.run_job is
  'runs one step of a job. p_name: what push.take_job returned. Returns true if there is more to do; the job is then due '
  'again at once';

-- What fails is due again after its interval, since push.take_job has moved the due time on. So it counts from the last step that was done,
-- but not from before there was a gateway. One try more is left to jobs that are run seldom: nothing urgent is among them.
create or replace view push.overdue_jobs as
select n.name, n.every, now() - n.since as overdue,
  case when now() - n.since <= 5 * n.every then 'warn' else 'bad' end as state
from (
  select name, j.every, greatest(least(push.finite(j.due_at), push.finite(j.done_at) + j.every), push.finite(g.since)) as since
  from unnest(array['promote', 'miss', 'follow_up_urgent', 'follow_up', 'follow_up_again', 'follow_up_all', 'free', 'escalate', 'tally',
    'expire', 'prune', 'expire_all', 'erase', 'ensure_partitions', 'drop_partitions']) r(name)
  full join push.job j using (name)
  cross join (select min(g.started_at) as since from push.gateways g where g.alive and g.heartbeat_at > now() - interval '5 s') g
  where g.since is not null or j.every is null
) n
where n.every is null or now() - n.since > case when n.every > '2 s' then interval '1 minute' else '10 s' end;
comment on view push.overdue_jobs is 'jobs that are not done in time, because each run fails or none takes place; for push.health and metrics';
comment on column push.overdue_jobs.overdue is 'for how long; null: it has no row, and no gateway runs';
comment on column push.overdue_jobs.state is 'warn or bad, as in push.health';
