-- What the situations share: an app with three lanes, two replicas that serve them and have done the housekeeping, and ways
-- to write the past.
set search_path = push;
-- As deploy/psql/harden.sql does: other tests make logins on the same server.
do $$ begin execute format('revoke connect on database %I from public', current_database()); end $$;
select push.register_app('porteiro', 60);
select push.register_lane('porteiro', p) from unnest('{apns,fcm,expo}'::text[]) p;
select push.register_gateway('gateway-a', '1.0.0');
select push.register_gateway('gateway-b', '1.0.0');
select push.ensure_partitions(14);
update push.job set taken_at = now(), done_at = now() + interval '1 hour', due_at = now() + interval '1 hour';

create schema fixture;

-- A call that was enqueued so long ago.
create function fixture.call(p_call_id text, p_recipients jsonb, p_ago interval, p_ring_seconds int default 60)
returns bigint language plpgsql as $$
declare
  v_id bigint;
begin
  select outbox_id into v_id from push.enqueue_call(
    jsonb_build_object('callId', p_call_id, 'from', 'doorman-7'), p_recipients, 'porteiro', p_ring_seconds);
  -- What is past cannot be changed, except like this.
  set local session_replication_role = replica;
  update push.outbox set created_at = created_at - p_ago, deadline_at = deadline_at - p_ago where id = v_id;
  update push.delivery set created_at = created_at - p_ago, deadline_at = deadline_at - p_ago, due_at = due_at - p_ago
    where outbox_id = v_id;
  set local session_replication_role = origin;
  return v_id;
end
$$;

-- A delivery of a call ended: sent and answered so long after it was enqueued; null for never.
create function fixture.finish(
  p_call_id text, p_n int, p_outcome text, p_status int default null, p_reason text default null,
  p_sent interval default '8 ms', p_answered interval default '60 ms', p_attempts int default 1,
  p_failures jsonb default null
) returns void language sql as $$
  with gone as (
    delete from push.delivery d using push.outbox o where o.call_id = p_call_id and d.outbox_id = o.id and d.n = p_n
    returning d.*
  )
  insert into push.history (finished_at, outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner,
    lane, kind, outcome, status, user_id, token, environment, platform, reason, failures, fallback_of)
  select d.created_at + coalesce(p_answered, p_sent, '1 s') + interval '2 ms', d.outbox_id, d.created_at, d.deadline_at,
    d.created_at + p_sent, d.created_at + p_answered, d.n, p_attempts, 1, d.lane, d.kind,
    array_position('{delivered,delivered_late,void,expired,dead}'::text[], p_outcome) - 1, p_status, d.user_id,
    d.token, d.environment, d.platform, p_reason, p_failures, d.fallback_of
  from gone d
$$;

-- One more invite of a call, over the channel after the one of p_failed.
create function fixture.fallback(p_call_id text, p_n int, p_failed int, p_provider text, p_token text, p_after interval)
returns void language sql as $$
  insert into push.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, ready_lane, state, platform, user_id, token,
    fallback_of)
  select o.id, p_n, o.created_at + p_after, o.created_at + p_after, o.deadline_at, l.id, l.id, 0, h.platform, h.user_id, p_token,
    p_failed
  from push.outbox o join push.lane l on l.app = o.app and l.provider = p_provider cross join lateral (
    select h.user_id, 1::smallint as platform from push.history h where h.outbox_id = o.id and h.n = p_failed) h
  where o.call_id = p_call_id
$$;

-- How both replicas see the lanes: apns, fcm, expo.
create function fixture.lanes(p_in_flight int[], p_circuit text[], p_rate int[]) returns void language sql as $$
  select push.report_lanes(g.id, array[1, 2, 3]::smallint[], array[1000, 400, 600], array[1000, 400, 600], p_in_flight,
    p_circuit, array[0, 0, 0], p_rate)
  from push.gateways g where g.alive
$$;
select fixture.lanes(array[3, 5, 2], array['closed', 'closed', 'closed'], array[40, 60, 20]);
reset search_path;
