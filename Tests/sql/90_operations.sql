-- Views and functions for operators.
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
create function pg_temp.settle(p_gateway int, p_call text, p_n int[], p_outcome int, p_reason text default null) returns bigint language sql as $$
  select push.settle(p_gateway, array_agg(d.ctid), array_agg(d.outbox_id), array_agg(d.n), array_agg(d.lease), array_agg(1),
    array_agg(p_outcome::smallint), array_agg(410::smallint),
    array_agg(p_reason), array_agg('m'::text), array_agg(p_call), array_agg(clock_timestamp()), array_agg(clock_timestamp()))
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.n = any (p_n) and d.state = 1 $$;
select push.register_gateway('one', '1') as g1, push.register_gateway('two', '1') as g2 \gset
select test.call('a', 4, 'ops') as a, test.call('b', 1, 'ops') as b \gset
select id as lane from push.lanes where app = 'ops' \gset

-- Summary.
select test.claim(:g1, 2, 'ops');
select push.park(:g1, array[outbox_id], array[n], array[1], array[1], array[20000], array['Unavailable']) from push.delivery where state = 1 limit 1;
select test.equal('the summary counts owed deliveries', (select string_agg(format('%s %s %s %s', provider, kind, state, count), ', ' order by state)
  from push.summary where app = 'ops'),
  'fcm invite claimed 1, fcm invite ready 3, fcm invite waiting 1');
select test.equal('it shows age and time left', (select bool_and(oldest_age between now() - clock_timestamp() and '0'
  and least_left between '600 s' and '600 s' + (clock_timestamp() - now())) from push.summary where app = 'ops'), true);

-- Lanes.
select test.equal('a lane without a replica has a backlog and no status',
  (select format('%s %s %s %s %s', ready, waiting, claimed, circuit, window_size) from push.lanes where id = :lane), '3 1 1  ');
select push.report_lanes(:g1, array[:lane]::smallint[], array[100], array[200], array[7], array['closed'], array[0], array[50]);
select push.report_lanes(:g2, array[:lane]::smallint[], array[50], array[100], array[3], array['half_open'], array[600000], array[5]);
select test.equal('lanes are summed over replicas, and the circuit is open only if it is at each',
  (select format('%s %s %s %s %s %s', window_size, capacity, in_flight, circuit, rate_per_second, throttled_until > now() + interval '50 s')
  from push.lanes where id = :lane),
  '150 300 10 half_open 55 t');
select push.report_lanes(:g1, array[:lane]::smallint[], array[1], array[200], array[0], array['open'], array[null]::int[], array[0]);
select test.equal('a report replaces the one before', (select window_size || circuit from push.lanes where id = :lane), '51half_open');
select push.retire_gateway(:g2);
select test.equal('a replica that ended does not count', (select window_size || circuit || coalesce(throttled_until::text, '-') from push.lanes
  where id = :lane), '1open-');
select push.report_lanes(:g2, array[:lane]::smallint[], array[50], array[100], array[3], array['closed'], array[0], array[5]);
select test.equal('nor does it report any more', (select window_size from push.lane_status where gateway = :g2), 50);
select test.equal('an unknown circuit is an error', pg_temp.error(format('select push.report_lanes(%s, %L, %L, %L, %L, %L, %L, %L)', :g1, '{1}',
  '{1}', '{1}', '{1}', '{broken}', '{0}', '{0}')) ~ 'lane_status_circuit_known', true);

-- Pause, resume.
select updated_at as changed_at from push.lanes where id = :lane \gset
select test.equal('pause returns a sentence', (select changed || ' ' || message from push.pause_lane('ops', 'fcm', 'FCM is down')),
  'true ops/fcm is paused: its deliveries wait, and expire at their deadlines. Note: FCM is down');
select test.equal('twice is harmless, and keeps the note', (select changed || ' ' || message from push.pause_lane('ops', 'fcm')),
  'false ops/fcm was paused already. Note: FCM is down');
select test.equal('nothing is claimed', test.claim(:g1, 9, 'ops'), null);
select test.equal('the note is there, and when it was written', (select concat_ws(' ', paused, note, updated_at > :'changed_at') from push.lanes
  where id = :lane), 't FCM is down t');
select test.equal('resume returns a sentence', (select changed || ' ' || message from push.resume_lane('ops', 'fcm')), 'true ops/fcm sends again');
select test.equal('and that it did nothing', (select changed || ' ' || message from push.resume_lane('ops', 'fcm')),
  'false ops/fcm was not paused; nothing to do');
select test.equal('its note is gone', (select note from push.lanes where id = :lane), null);
select test.equal('an unknown lane is an error', pg_temp.error($$select push.pause_lane('ops', 'apns')$$), 'P0002 there is no lane ops/apns');
update push.lanes set paused = true, note = 'by hand' where id = :lane;
update push.lanes set paused = false, note = null where id = :lane;
select test.equal('nothing else of a lane can be changed', pg_temp.error('update push.lanes set app = ''x'''),
  '22023 push.lanes: only paused and note can be changed');
select test.equal('all of it is written down', (select string_agg(format('%s %s %s', action, target, detail ->> 'changed'), ', ' order by id)
  from push.audit where target = 'ops/fcm'),
  'pause_lane ops/fcm true, pause_lane ops/fcm false, resume_lane ops/fcm true, '
  'resume_lane ops/fcm false, pause_lane ops/fcm true, resume_lane ops/fcm true');

-- Stuck.
create function pg_temp.stuck() returns text language sql as $$ select string_agg(format('%s:%s:%s', n, state, why), ', ' order by n) from push.stuck
  where call_id = 's' $$;
select test.call('s', 4, 'stuck') as s, push.register_lane('stuck', 'fcm') as stuck \gset
select test.equal('new deliveries are not stuck', pg_temp.stuck(), null);
update push.delivery set created_at = now() - interval '40 s', due_at = now() - interval '40 s' where outbox_id = :s;
update push.delivery set state = 1, owner = :g1 where outbox_id = :s and n = 1;
update push.delivery set state = 2, ready_lane = null, due_at = now() - interval '6 s' where outbox_id = :s and n = 2;
update push.delivery set deadline_at = now() - interval '6 s' where outbox_id = :s and n = 3;
select test.equal('push.stuck shows the reason', pg_temp.stuck(), '0:ready:ready, and not claimed, 1:claimed:claimed, and '
  'not settled, 2:waiting:due, and still waiting, 3:ready:past its deadline, and not expired');
select test.equal('it shows the replica, the age and the time left',
  (select format('%s %s %s %s', gateway = :g1, age > '39 s', "left" between '600 s' and '600 s' + (clock_timestamp() - now()), user_id)
    from push.stuck
  where call_id = 's' and n = 1), 't t t u2');
select from push.pause_lane('stuck', 'fcm');
select test.equal('ready ones of a paused lane are not stuck', pg_temp.stuck() ~ '0:ready', false);
select from push.resume_lane('stuck', 'fcm');
select push.report_lanes(:g1, array[:stuck]::smallint[], array[1], array[1], array[0], array['open'], array[0], array[0]);
select test.equal('nor those of an open circuit', pg_temp.stuck() ~ '0:ready', false);
select push.report_lanes(:g1, array[:stuck]::smallint[], array[1], array[1], array[0], array['half_open'], array[0], array[0]);
select test.equal('those of a half-open one are', pg_temp.stuck() ~ '0:ready', true);

-- The oldest ringing.
select test.call('o', 1, 'oldest') as o, push.register_lane('oldest', 'fcm') as oldest \gset
delete from push.delivery where outbox_id <> :o;
update push.delivery set created_at = now() - interval '7 s' where outbox_id = :o;
select test.equal('a lane that no living replica serves does not count', push.oldest_ringing(), null);
select push.report_lanes(:g1, array[:oldest]::smallint[], array[1], array[1], array[0], array['closed'], array[0], array[0]);
select test.equal('an app has its own', push.oldest_ringing('oldest') between '7 s' and '20 s', true);
select test.equal('and no other''s', push.oldest_ringing('stuck'), null);
select test.equal('the age of the oldest ready invite', push.oldest_ringing() between '7 s' and '20 s', true);
update push.delivery set attempt = 3, due_at = now() - interval '1 s' where outbox_id = :o;
select test.equal('one that is tried again is ready since its next try is due', push.oldest_ringing() between '1 s' and '6 s', true);
update push.delivery set attempt = 0 where outbox_id = :o;
select from push.pause_lane('oldest', 'fcm');
select test.equal('a paused lane does not count', push.oldest_ringing(), null);
select from push.resume_lane('oldest', 'fcm');
select push.report_lanes(:g1, array[:oldest]::smallint[], array[1], array[1], array[0], array['open'], array[0], array[0]);
select test.equal('nor does an open one', push.oldest_ringing(), null);
select push.report_lanes(:g1, array[:oldest]::smallint[], array[1], array[1], array[0], array['closed'], array[0], array[0]);
update push.delivery set kind = 2 where outbox_id = :o;
select test.equal('nor anything but invites', push.oldest_ringing(), null);

-- Requeue.
create function pg_temp.owed(p_call text) returns text language sql as $$ select string_agg(format('%s:%s:%s', n, user_id, state), ' ' order by n)
  from push.deliveries where call_id = p_call and kind = 'invite' $$;
select test.call('r', 5, 'requeue') as r \gset
insert into push.devices (user_id, app, provider, token) values ('reg', 'requeue', 'apns', repeat('a', 64)),
  ('reg2', 'requeue', 'apns', repeat('b', 64));
insert into push.outbox (app, payload, recipients) values ('requeue', '{"callId": "r2", "from": "x"}', '["reg", "reg2"]');
select push.claim(:g1, 1, array(select id from push.lane where app = 'requeue'), array[9, 9], array['-infinity', '-infinity']::timestamptz[]);
select pg_temp.settle(:g1, 'r', '{0}', 0), pg_temp.settle(:g1, 'r', '{1}', 4, 'Failed'), pg_temp.settle(:g1, 'r', '{2}', 4, 'UNREGISTERED'),
  pg_temp.settle(:g1, 'r2', '{0,1}', 4, 'Failed'); select test.follow();
select push.park(:g1, array[:r]::bigint[], array[3], array[1], array[1], array[50000], array['Unavailable']);
insert into push.token_invalidations (app, provider, token, reason) values ('requeue', 'fcm', 'test-token-0123456789-3', 'UNREGISTERED');
select test.equal('requeue returns a sentence', (select requeued || ' ' || message from push.requeue('r')),
  '2 call r: 2 invites are ready again: 1 had failed, 1 were waiting');
select test.equal('the failed one of a living token has a new invite, the waiting one is ready, the rest is left alone', pg_temp.owed('r'),
  '3:u4:ready 4:u5:claimed 5:u2:ready');
select test.equal('twice is harmless', (select requeued || ' ' || message from push.requeue('r')),
  '0 call r: nothing to requeue: no invite of a living token has failed or is waiting');
update push.devices set invalidated_at = now(), invalid_reason = 'Unregistered' where user_id = 'reg2';
select test.equal('registered devices, too, if they are alive', (select requeued from push.requeue('r2')), 1);
select test.equal('and only those', pg_temp.owed('r2'), '2:reg:ready');
select push.claim(:g1, 1, array(select id from push.lane where app = 'requeue'), array[9, 9], array['-infinity', '-infinity']::timestamptz[]);
select pg_temp.settle(:g1, 'r2', '{2}', 0);
select test.equal('a device that was reached is not rung again', (select requeued from push.requeue('r2')), 0);
select push.end_call('r', 'busy'), push.end_call('r2', 'busy'); select test.follow();
select test.equal('a call that has ended is never requeued', (select requeued || ' ' || message from push.requeue('r')),
  '0 call r rings no more (ended); nothing was requeued');
select test.call('late', 1, 'requeue') as late \gset
select set_config('session_replication_role', 'replica', true);
update push.outbox set deadline_at = now() - interval '1 s' where id = :late;
select set_config('session_replication_role', 'origin', true);
select test.equal('nor one past its ring window', (select requeued || ' ' || message from push.requeue('late')),
  '0 call late rings no more (its ring window is over); nothing was requeued');
select test.equal('an unknown call is an error', pg_temp.error($$select push.requeue('nowhere')$$), 'P0002 call_id: there is no call nowhere');
select from test.call('held', 2, 'requeue'), push.pause_lane('requeue', 'fcm');
update push.delivery set state = 2, ready_lane = null where n = 1 and outbox_id = (select id from push.outbox where call_id = 'held');
select test.equal('what is requeued into a paused lane waits for its end', (select requeued || ' ' || message from push.requeue('held')),
  '1 call held: 1 invites are ready again: 0 had failed, 1 were waiting; invites of a paused lane ring when it is resumed: requeue/fcm');
select test.equal('so does what is ready there', (select message from push.requeue('held')),
  'call held: nothing to requeue: no invite of a living token has failed or is waiting; '
  'invites of a paused lane ring when it is resumed: requeue/fcm');
select from push.resume_lane('requeue', 'fcm');

select push.register_lane('phones', 'apns') \g /dev/null
insert into push.devices (user_id, app, provider, token) select 'reg', 'phones', 'apns', repeat(c, 64) from unnest('{c,d,e,f}'::text[]) c;
insert into push.outbox (app, payload, recipients) values ('phones', '{"callId": "phones", "from": "x"}', '["reg"]');
select push.claim(:g1, 1, array(select id from push.lane where app = 'phones'), array[9], array['-infinity']::timestamptz[]);
select pg_temp.settle(:g1, 'phones', '{0,1,2,3}', 3, 'Unavailable'), test.follow(), push.drop_device('phones', 'apns', repeat('c', 64)),
  push.register_device('another', 'phones', 'apns', repeat('d', 64));
update push.devices set enabled = false where token = repeat('e', 64);
select test.equal('no phone whose user has logged out, is another now, or wants no calls', (select requeued from push.requeue('phones')), 1);
select test.equal('only the last one', (select device from push.deliveries where call_id = 'phones'), 'ffff…ffff');
delete from push.devices where app = 'phones';

-- Void.
insert into push.outbox (app, payload, recipients) values ('void', '{"callId": "v", "from": "x"}',
  '[{"userId": "u1", "fcmToken": "void-token-0123456789-1"}, {"userId": "u2", "fcmToken": "void-token-0123456789-2"}]');
select count(*) from push.claim(:g1, 1, array(select id from push.lane where app = 'void'), array[1], array['-infinity']::timestamptz[]);
select test.equal('void returns a sentence', (select voided || ' ' || message from push.void_call('v', 'fraud')),
  '1 call v was ended (fraud): 1 invites are taken back unsent, phones that may ring are told, nobody gets a missed call'); select test.follow();
select test.equal('the call has ended, phones that may ring get a cancel, no missed call is made',
  (select format('%s %s %s', state, end_reason, voided) from push.outbox where call_id = 'v') || ' ' ||
  (select string_agg(kind || ':' || state, ' ' order by n) from push.deliveries where call_id = 'v'), 'ended fraud t invite:claimed cancel:ready');
select test.equal('twice is harmless', (select voided || ' ' || message from push.void_call('v')),
  '0 call v had ended before (fraud); nothing was done');
select test.equal('an unknown call is an error', pg_temp.error($$select push.void_call('nowhere')$$), 'P0002 call_id: there is no call nowhere');
select test.equal('both are written down', (select string_agg(concat_ws(' ', action, target, detail ->> 'reason', detail ->> 'done'), ', '
  order by id) from push.audit where action = 'void_call'), 'void_call void/v fraud true, void_call void/v fraud false');

-- Failures.
select test.equal('failures, by reason, with an example', (select string_agg(concat_ws(' ', app, provider, kind, outcome, reason, count,
  example_call_id, example_device), ', ' order by app, reason, provider) from push.failures where app = 'requeue'),
  'requeue apns invite dead Failed 2 r2 ' || (select example_device from push.failures where app = 'requeue' and provider = 'apns')
  || ', requeue fcm invite dead Failed 1 r test…89-2, requeue fcm invite dead UNREGISTERED 1 r test…89-3');
update push.history set finished_at = now() - interval '61 minutes' where reason = 'UNREGISTERED';
select test.equal('only of the last hour', (select count(*) from push.failures where reason = 'UNREGISTERED'), 0::bigint);

-- Replicas, health.
select test.equal('push.replicas shows living replicas and their deliveries',
  (select string_agg(format('%s %s %s %s', name, alive, coalesce(ended_reason, '-'),
  silence is not null), ', ' order by id) from push.replicas where id in (:g1, :g2)), 'one t - t, two f retired f');
select test.equal('and their deliveries', (select claimed from push.replicas where id = :g1), (select count(*) from push.delivery where owner = :g1));
select test.equal('health names every concern once, with a hint', (select count(*) = count(distinct item)
  and bool_and(length(hint) > 20 and state in ('ok', 'warn', 'bad') and value is not null) and count(*) > 12 from push.health), true);
update push.job set due_at = case name when 'promote' then now() - interval '1 minute' else now() end, done_at = now();
update push.gateways set started_at = now() - interval '5 minutes' where alive;
select test.equal('a job that is never run is bad', (select state || ' ' || value from push.health where item = 'housekeeping'),
  'bad promote overdue for 00:01:00');
update push.job set due_at = now() - interval '1 minute' where name = 'ensure_partitions';
update push.job set due_at = now() where name = 'promote';
update push.job set due_at = now() + interval '250 ms', taken_at = now(), done_at = now() - interval '60.25 s' where name = 'miss';
select test.equal('so is one that is taken again and again, and never done', (select state || ' ' || value from push.health
  where item = 'housekeeping'), 'bad miss overdue for 00:01:00');
select push.run_job('miss');
savepoint jobs;
delete from push.job where name in ('miss', 'prune');
select test.equal('a job that has no row is bad', (select state || ' ' || value from push.health where item = 'housekeeping'),
  'bad no row in push.job: miss, prune');
rollback to jobs;
select test.equal('an hourly job may be late', (select state || ' ' || value from push.health where item = 'housekeeping'), 'ok in time');
savepoint jobs;
update push.job set due_at = now() + interval '55 minutes', taken_at = now() - interval '5 minutes', done_at = now() - interval '65 minutes'
  where name = 'ensure_partitions';
select test.equal('but not if its last run has failed', (select state || ' ' || value from push.health where item = 'housekeeping'),
  'warn ensure_partitions overdue for 00:05:00');
update push.job set done_at = now() - interval '1 minute' where name = 'miss';
select test.equal('metrics count such jobs',
  (select string_agg(what || ' ' || value, ', ' order by what) from push.observe() where what ~ '^overdue'),
  'overdue_bad 1, overdue_warn 1');
update push.gateways set started_at = now() - interval '2 days' where alive;
update push.job set done_at = now() - interval '7 hours' where name = 'ensure_partitions';
select test.equal('the one that is overdue for longest is named', (select state || ' ' || value from push.health where item = 'housekeeping'),
  'bad ensure_partitions overdue for 06:00:00');
update push.gateways set started_at = 'infinity' where alive;
update push.job set due_at = 'infinity', done_at = 'infinity';
update push.lane_status set throttled_until = 'infinity';
select test.equal('times that somebody wrote stop no check', (select count(*) > 10 from push.health), true);
rollback to jobs;
select test.equal('a hint names the role, unless operators may do it', (select string_agg(item, ', ' order by item) from push.health where hint ~
  '(as a role in pg_signal_backend|[Oo]wner of the schema|role in push_keys|superuser|administrator)'),
  'API keys, history without a partition, lock table, oldest transaction, other logins, prepared transactions, replication slots, schema, '
  'synchronous standby, transaction ids used');
savepoint schema;
create function pg_temp.schema_is() returns text language sql as $$ select state || ' ' || value from push.health where item = 'schema' $$;
select test.equal('a schema as it was made is well', pg_temp.schema_is(), 'ok complete');
alter table push.outbox disable trigger fan_out;
revoke execute on function push.settle, push.answer_call from push_gateway;
select test.equal('a trigger that is disabled, and functions that the service may not execute, are seen', pg_temp.schema_is(),
  'bad push_gateway may not execute push.answer_call, push_gateway may not execute push.settle, trigger fan_out of push.outbox is disabled');
alter table push.outbox enable trigger fan_out;
select push.grant_roles() is not null as done \gset
select test.equal('what the hint says mends them', pg_temp.schema_is(), 'ok complete');
create role push_test_lost login in role push_gateway;
set local role push_test_lost;
select push.register_gateway('lost', '1') as lost \gset
reset role;
select test.equal('a gateway notes its role', (select login from push.gateways where id = :lost), 'push_test_lost');
revoke push_gateway from push_test_lost;
select test.equal('that of a gateway that has lost its membership is named',
  pg_temp.schema_is() ~ '^bad push_test_lost may not execute push\.', true);
update push.gateways set alive = false, ended_at = now(), ended_reason = 'retired' where id = :lost;
select test.equal('until it signs off', pg_temp.schema_is(), 'ok complete');
revoke usage on schema push from push_gateway, push_ops;
select test.equal('so is a schema that gateways may not use', pg_temp.schema_is(), 'bad push_gateway may not use the schema push, '
  'push_ops may not use the schema push');
rollback to schema;
savepoint schema;
drop index push.delivery_waiting;
alter table push.devices enable row level security;
alter table push.follow_ups replica identity nothing;
drop trigger end_calls on push.outbox;
create or replace function push.is_call(p_kind text) returns boolean language sql immutable parallel safe as 'select true';
select test.equal('what is missing or was changed is named', (select string_agg(f.fault, ', ' order by f.fault) from push.schema_faults f),
  'function push.is_call was changed, index delivery_waiting of push.delivery is missing, table push.devices is under row-level security, '
  'table push.follow_ups is without a replica identity, trigger end_calls of push.outbox is missing');
create index something on push.delivery (attempt);
create function public.somebodys() returns trigger language plpgsql as 'begin return new; end';
create trigger audit before update on push.delivery for each row execute function public.somebodys();
create rule double as on insert to push.lane do also nothing;
create unique index once on push.devices (user_id, token);
alter table push.outbox add constraint little check (id < 1000000000) not valid, add column more int not null default 1;
alter table push.outbox alter more drop default;
select test.equal('and what somebody has added, if it may refuse a row', (select string_agg(f.fault, ', ' order by f.fault) from push.schema_faults f
  where f.fault like '% is not of this schema'), 'column more of push.outbox is not of this schema, constraint little of push.outbox is not of '
  'this schema, index once of push.devices is not of this schema, rule double of push.lane is not of this schema, '
  'trigger audit of push.delivery is not of this schema');
refresh materialized view push.schema_made;
select test.equal('until it is declared to be right, except what is never right', (select state || ' ' || value from push.health
  where item = 'schema'), 'bad table push.devices is under row-level security, table push.follow_ups is without a replica identity');
rollback to schema;
create trigger audit before update on push.delivery for each row execute function test.serve();
select test.equal('an addition is a warning', (select state || ' ' || value from push.health where item = 'schema'),
  'warn trigger audit of push.delivery is not of this schema');
rollback to schema;
alter table push.delivery alter state drop default, set unlogged;
alter table push.audit owner to push_ops;
select format('alter function %s security invoker; alter function %s stable', 'push.settle'::regproc::oid::regprocedure,
  'push.pick'::regproc::oid::regprocedure) \gexec
create or replace trigger fan_out after insert on push.outbox for each statement when (false) execute function push.fan_out();
revoke execute on function push.enqueue_call from push_enqueuer;
revoke usage on schema push from push_tenant;
alter role push_enqueuer set session_replication_role = replica;
select test.equal('so are columns, owners, functions, triggers and rights that are not as they were', (
  select string_agg(f.fault, ', ' order by f.fault) from push.schema_faults f where f.fault !~ '^push_tenant may not execute'),
  'column state of push.delivery was changed, '
  'function push.pick was changed, function push.settle was changed, owner of push.audit is push_ops, push_enqueuer may not execute '
  'push.enqueue_call, push_tenant may not use the schema push, session_replication_role of push_enqueuer is replica, table push.delivery is '
  'unlogged, trigger fan_out of push.outbox was changed');
rollback to schema;
select test.equal('a server without standbys needs none', (select string_agg(concat_ws(' ', item, state, value), ', ' order by item)
  from push.health where item in ('replication slots', 'synchronous standby')),
  'replication slots ok none holds back vacuum, synchronous standby ok none is required');
-- A server that has all of it: in place of what Postgres would say.
savepoint server;
create schema said;
create table said.names as select 'standby' as names;
create function said.current_setting(text) returns text language sql as $$
  select case $1 when 'synchronous_standby_names' then n.names else pg_catalog.current_setting($1) end from said.names n $$;
create function said.pg_has_role(name, text, text) returns boolean language sql as 'select false';
create table said.pg_stat_activity as select now() + interval '22 ms' as xact_start, 'client backend' as backend_type, 7 as pid, 'x' as usename,
  current_database() as datname union all select now() - interval '1 hour', 'client backend', 8, 'y', 'another';
create table said.pg_prepared_xacts as
  select x.gid, x.database from (values ('forgotten', current_database()), ('other', 'another')) x(gid, database);
create table said.slot as select 2000000 as age;
create view said.pg_replication_slots as select 'gone' as slot_name, false as active,
  ((pg_current_xact_id()::text::bigint + 4294967296 - s.age) % 4294967296)::text::xid as xmin from said.slot s;
create table said.pg_stat_replication (sync_state text);
create function pg_temp.server_is() returns text language sql set search_path = said, pg_catalog as $$
  select string_agg(concat_ws(' ', item, state, value), '; ' order by item) from push.health_of_server()
  where item in ('oldest transaction', 'prepared transactions', 'replication slots', 'synchronous standby') $$;
select test.equal('what holds back vacuum, a standby that is gone, and what the role may not see are named', pg_temp.server_is(),
  'oldest transaction ok 00:00:00 (pid 7), of this role only; prepared transactions warn 1; replication slots warn gone holds back vacuum by '
  '2000000 transactions; synchronous standby bad 0 connected, 1 required');
insert into said.pg_stat_replication values (null);
update said.pg_stat_activity set xact_start = now() - interval '6 minutes';
update said.slot set age = 20000000;
select test.equal('a standby whose state the role may not see is there; what is old is bad', pg_temp.server_is(),
  'oldest transaction bad 00:06:00 (pid 7), of this role only; prepared transactions warn 1; replication slots bad gone holds back vacuum by '
  '20000000 transactions; synchronous standby ok 1 connected, 1 required');
create function pg_temp.standbys(p_names text) returns text language plpgsql set search_path = said, pg_catalog as $$
begin
  update said.names set names = p_names;
  return (select state || ' ' || value from push.health_of_server() where item = 'synchronous standby');
end $$;
select test.equal('with two required, one is not enough: ' || n, pg_temp.standbys(n), 'bad 1 connected, 2 required')
  from unnest(array['2 (a, b)', 'FIRST 2 (a, b)', ' any  2(a,b,c)']) n;
select test.equal('a list, a star and a number', (select string_agg(pg_temp.standbys(n), ', ') from unnest(array['a, b', '*', 'ANY 1 (a, b)',
  '"2 (x"']) n), 'ok 1 connected, 1 required, ok 1 connected, 1 required, ok 1 connected, 1 required, ok 1 connected, 1 required');
rollback to server;
-- What the owner of the tables has written by hand.
savepoint absurd;
select test.call('absurd', 4, 'absurd') as absurd, test.call('endless', 1, 'endless') as endless \gset
set local session_replication_role = replica;
update push.delivery set created_at = case n when 0 then '-infinity' when 1 then 'infinity' else created_at end::timestamptz,
  deadline_at = case n when 2 then '-infinity' when 3 then now() - interval '1 hour' else deadline_at end::timestamptz,
  due_at = case n when 3 then 'infinity' else due_at end::timestamptz where outbox_id = :absurd;
update push.delivery set deadline_at = 'infinity' where outbox_id = :endless;
update push.outbox set deadline_at = '-infinity', recipients = '1' where id = :absurd;
insert into push.webhook (app, host, url_digest) values ('absurd', 'x', 'x');
insert into push.webhook_event (event, app, type, at, created_at, data) values ('x', 'absurd', 'call.ended', '-infinity', '-infinity', '{}');
update push.history set created_at = '-infinity' where outcome <= 1;
update push.audit set at = 'infinity' where id = (select max(id) from push.audit);
update push.gateways set heartbeat_at = now() - interval '1 hour';
set local session_replication_role = origin;
create function pg_temp.fails() returns text language plpgsql as $$
declare
  v_view text;
begin
  foreach v_view in array '{push.health,push.lanes,push.summary,push.stuck,push.replicas,push.webhooks,push.calls,push.observe(),push.overview(),
    push.minutes(''-infinity'')}'::text[] loop
    begin
      execute format('select count(x::text) from %s x', v_view);
    exception when others then return v_view || ' ' || sqlerrm;
    end;
  end loop;
  return null;
end $$;
select test.equal('infinite times, and recipients that are none, leave everything readable', pg_temp.fails(), null);
select test.equal('and are bad', (select string_agg(state, ' ') from push.health where item in ('oldest ready invite', 'calls past their deadline',
  'webhooks')), 'bad bad bad');
update push.gateways set heartbeat_at = 'infinity' where alive;
select test.equal('a heartbeat, too', pg_temp.fails(), null);
rollback to absurd;
select test.equal('a replica alive is well', (select state from push.health where item = 'replicas alive'), 'ok');
savepoint lanes;
update push.gateways set alive = false, ended_at = now(), ended_reason = 'retired' where alive;
delete from push.delivery;
update push.lane set paused = false;
create function pg_temp.lanes_are() returns text language sql as $$ select state || ' ' || value from push.health where item = 'lanes' $$;
select test.equal('lanes without a replica and without deliveries are ok', pg_temp.lanes_are(), 'ok wait for a replica');
select push.register_gateway('health', '1') as hg \gset
select push.register_lane('health', p) from unnest('{apns,fcm,expo}'::text[]) p;
create function pg_temp.report(p_capacity int[], p_circuit text[]) returns void language sql as $$
  select push.report_lanes((select max(id) from push.gateways), (select array_agg(id order by id) from push.lane where app = 'health')::smallint[],
    array[10, 10, 10], p_capacity, array[0, 0, 0], p_circuit, array[0, 0, 0], array[0, 0, 0]) $$;
select pg_temp.report(array[10, 10, 10], array['closed', 'half_open', 'closed']);
select test.equal('lanes that send are well', pg_temp.lanes_are(), 'ok all send');
select push.pause_lane('health', 'apns');
select test.equal('a pause is seen', pg_temp.lanes_are(), 'warn health/apns: paused');
select push.enqueue_call('{"callId": "paused", "from": "x"}',
  '[{"userId": "u", "voipPushToken": "9999999999999999999999999999999999999999999999999999999999999999"}]', 'health');
select test.equal('it is bad when something waits', pg_temp.lanes_are(), 'bad health/apns: paused');
select pg_temp.report(array[10, 10, 0], array['closed', 'open', 'closed']);
select test.equal('so are an open circuit and a lane without a connection', pg_temp.lanes_are(),
  'bad health/apns: paused, health/expo: no connection, health/fcm: circuit open');
create function pg_temp.lanes_hint() returns text language sql as $$ select hint from push.health where item = 'lanes' $$;
select test.equal('the hint is about a pause and a provider', pg_temp.lanes_hint(), 'These send nothing, or only tries. push.resume_lane ends a '
  'pause (push.audit says whose). push.failures and the replicas'' logs say why a provider fails: docs/operations/a-provider-is-down.md, '
  'or requests-go-unanswered.md if it does not answer.');
select pg_temp.report(array[10, 10, 10], array['half_open', 'half_open', 'closed']);
select push.resume_lane('health', 'apns');
select test.equal('so is a half-open circuit for which something waits', pg_temp.lanes_are(), 'bad health/apns: trying again');
select test.equal('the hint is about a provider',
  pg_temp.lanes_hint() ~ '^These send nothing, or only tries. push.failures .* requests-go-unanswered.md', true);
update push.delivery set state = 1, owner = :hg;
select test.equal('also if its try has all that waits', pg_temp.lanes_are(), 'bad health/apns: trying again');
select push.register_gateway('health-4', '1') as hg4 \gset
select pg_temp.report(array[10, 10, 10], array['closed', 'closed', 'closed']);
select test.equal('what another replica can send does not wait', pg_temp.lanes_are(), 'ok all send');
select test.equal('a circuit is closed if it is at all replicas', (select circuit from push.lanes where app = 'health' and provider = 'apns'),
  'half_open');
update push.gateways set started_at = now() - interval '6 s' where id in (:hg, :hg4);
select test.equal('one replica that sends nothing beside others that do is named', pg_temp.lanes_are(),
  'warn health/apns: trying again at replica health, health/fcm: trying again at replica health');
select test.equal('and the hint is about it', pg_temp.lanes_hint(), 'Where a replica is named, the others send: '
  'docs/operations/requests-go-unanswered.md.');
select pg_temp.report(array[0, 10, 0], array['closed', 'open', 'closed']);
select test.equal('so is one without a connection or with an open circuit, and what nobody sends is bad and comes first',
  pg_temp.lanes_are(), 'bad health/apns: trying again, health/expo: no connection at replica health-4');
select test.equal('the hint says both', pg_temp.lanes_hint() ~ '^These send nothing, or only tries. Where a replica is named', true);
select pg_temp.report(array[10, 10, 10], array['closed', 'open', 'closed']);
update push.lane_status set circuit = 'closed' where gateway = :hg;
select test.equal('an open circuit of one replica is no open circuit of the lane', (select circuit || ' ' || pg_temp.lanes_are()
  from push.lanes where app = 'health' and provider = 'fcm'), 'half_open warn health/fcm: circuit open at replica health-4');
update push.lane_status set circuit = 'half_open' where gateway = :hg;
select push.retire_gateway(:hg4);
update push.delivery set state = 0, owner = null;
update push.lane_status set circuit = 'closed' where gateway = :hg;
-- Credentials.
create function pg_temp.credentials_are() returns text language sql as $$ select state || ' ' || value from push.health where item = 'credentials' $$;
create function pg_temp.refuse(p_gateway int, p_provider text, p_refusal text, p_refused text) returns void language sql as $$
  select push.report_lanes(p_gateway, (select array_agg(id) from push.lane where app = 'health' and provider = p_provider)::smallint[],
    array[10], array[10], array[0], array['closed'], array[0], array[0], array[p_refusal], array[p_refused]) $$;
select test.equal('a replica of a release without refusals reports none', pg_temp.credentials_are(), 'ok none is refused');
select pg_temp.refuse(:hg, 'fcm', 'Google refuses the new account: check it', 'new');
select test.equal('new credentials that are refused are a warning', pg_temp.credentials_are(), 'warn Google refuses the new account: check it');
select pg_temp.refuse(:hg, 'apns', 'Apple refuses the key: check it', 'all');
select test.equal('those in use are bad, and come first', pg_temp.credentials_are(),
  'bad Apple refuses the key: check it, Google refuses the new account: check it');
select push.register_gateway('health-3', '1') as hg3 \gset
select pg_temp.refuse(:hg3, 'apns', 'Apple refuses the key: check it', 'all'), pg_temp.refuse(:hg3, 'expo', 'Expo refuses some', 'some');
select test.equal('replicas that say the same are not repeated', pg_temp.credentials_are(),
  'bad Apple refuses the key: check it, Google refuses the new account: check it, replica health-3: Expo refuses some');
create function pg_temp.credentials_hint() returns text language sql as $$ select hint from push.health where item = 'credentials' $$;
select test.equal('calls do not ring', pg_temp.credentials_hint() ~ '^Calls do not ring there, unless a sentence says otherwise. A replica', true);
select pg_temp.refuse(:hg3, 'apns', 'Apple refuses the new key: check it', 'new');
select test.equal('lanes show the worst, with the replica that says it unless all do',
  (select string_agg(format('%s %s %s', provider, refused, refusal), '; ' order by provider)
  from push.lanes where app = 'health' and refusal is not null),
  'apns some replica health: Apple refuses the key: check it; 1 of 2 replicas send; '
  'expo some replica health-3: Expo refuses some; fcm new Google refuses the new account: check it');
select pg_temp.refuse(:hg3, 'apns', null, null);
select test.equal('what one of several replicas is refused is a warning that names it', pg_temp.credentials_are(),
  'warn Google refuses the new account: check it, replica health-3: Expo refuses some, '
  'replica health: Apple refuses the key: check it; 1 of 2 replicas send');
select test.equal('then nothing says that calls do not ring', pg_temp.credentials_hint() ~ '^A replica reads a corrected file .* a replica that is '
  'named, asks', true);
select test.equal('the dashboard says the same', (select string_agg(concat_ws(' ', l ->> 'refused', l ->> 'refusal'), ', ' order by l ->> 'channel')
  from jsonb_array_elements(push.overview() -> 'lanes') l where l ->> 'app' = 'health' and l ->> 'channel' = 'apns'),
  'some replica health: Apple refuses the key: check it; 1 of 2 replicas send');
update push.lane_status set circuit = 'half_open' where gateway = :hg3;
select test.equal('another one that is in trouble does not send', (select refused || ' ' || refusal from push.lanes
  where app = 'health' and provider = 'apns'), 'some replica health: Apple refuses the key: check it; 0 of 2 replicas send');
select pg_temp.refuse(:hg3, 'apns', 'Apple refuses the key: check another file', 'all');
select test.equal('it is bad if each is refused in its own way', (select refused || ' ' || refusal from push.lanes
  where app = 'health' and provider = 'apns'), 'all replica health: Apple refuses the key: check it');
select push.retire_gateway(:hg3);
select test.equal('a replica that ended does not count', pg_temp.credentials_are(),
  'bad Apple refuses the key: check it, Google refuses the new account: check it');
select test.equal('an unknown extent is an error', pg_temp.error(format('select pg_temp.refuse(%s, %L, %L, %L)', :hg, 'apns', 'x', 'none'))
  ~ 'lane_status_refused_known', true);
select pg_temp.refuse(:hg, 'fcm', null, null), pg_temp.refuse(:hg, 'apns', null, null);
select test.equal('a refusal ends with the next report', pg_temp.credentials_are(), 'ok none is refused');
create function pg_temp.throttle(p_gateway int, p_ms int) returns void language sql as $$
  select push.report_lanes(p_gateway, (select array_agg(id) from push.lane where app = 'health' and provider = 'fcm')::smallint[],
    array[10], array[10], array[0], array['closed'], array[p_ms], array[0]) $$;
select clock_timestamp() as begun, pg_temp.throttle(:hg, 600000) \gset
select test.equal('so is a throttled lane', (select regexp_replace(pg_temp.lanes_are(), '[0-9]+', 'N')), 'warn health/fcm: throttled for N s');
select test.equal('for the right time', (select substring(value from 'for (.*) s$')::int * interval '1 s' - interval '10 minutes'
  from push.health where item = 'lanes') between :'begun'::timestamptz - now() and clock_timestamp() - now() + interval '1 s', true);
select test.equal('a hint says what is true now', pg_temp.lanes_hint(), 'These send nothing, or only tries. A throttled lane sends again by itself.');
select push.enqueue_call('{"callId": "throttled", "from": "x"}', '[{"userId": "u", "fcmToken": "throttled-token-0123456789"}]', 'health');
select test.equal('it is bad when something waits', pg_temp.lanes_are() ~ '^bad health/fcm: throttled', true);
select push.register_gateway('health-2', '1') as hg2 \gset
select pg_temp.throttle(:hg2, 0);
select test.equal('a lane that another replica serves sends', pg_temp.lanes_are(), 'ok all send');
select push.retire_gateway(:hg2);
select pg_temp.throttle(:hg, 0);
delete from push.delivery where lane in (select id from push.lane where app = 'health' and provider = 'fcm');
select push.enqueue_call('{"callId": "mistyped", "from": "x"}', '[{"userId": "u", "fcmToken": "mistyped-token-0123456789"}]', 'helth');
select test.equal('so is an app that no replica has', pg_temp.lanes_are(), 'bad helth/fcm: no replica serves it');
select test.equal('and the hint is about that', pg_temp.lanes_hint(),
  'These send nothing, or only tries. The configuration of a replica needs the app and provider that none serves.');
select push.pause_lane('helth', 'fcm');
select test.equal('a pause does not hide it', pg_temp.lanes_are(), 'bad helth/fcm: paused, and no replica serves it');
select push.resume_lane('helth', 'fcm');
select push.retire_gateway(:hg);
select test.equal('without replicas, health reports the replicas and not the lanes', pg_temp.lanes_are(), 'ok wait for a replica');

-- The last gateway dies: nobody declares it dead.
select push.register_gateway('last', '1') as hg \gset
select pg_temp.report(array[10, 10, 10], array['closed', 'closed', 'open']);
update push.gateways set heartbeat_at = now() - interval '34 s', started_at = now() - interval '5 minutes' where id = :hg;
select test.equal('one that is silent is not alive, although no other has declared it dead', (select concat_ws(' ', alive, silence,
  (now() - ended_at)::interval(0), ended_reason) from push.replicas where id = :hg), 'f 00:00:34 silent');
select test.equal('and its lanes have no status', (select string_agg(coalesce(circuit, '-') || coalesce(window_size::text, '-'), ' ')
  from push.lanes where app = 'health'), '-- -- --');
select test.equal('health does not report its lanes', pg_temp.lanes_are(), 'ok wait for a replica');
update push.job set due_at = now() - interval '1 minute';
select test.equal('nor its housekeeping', (select string_agg(state || ' ' || value, ', ' order by item desc) from push.health
  where item in ('housekeeping', 'replicas alive')), 'bad 0, ok waits for a replica');
update push.delivery set created_at = now() - interval '7 s', due_at = now() - interval '7 s';
select test.equal('what is ready is still old', push.oldest_ringing() between '7 s' and '20 s', true);
update push.gateways set heartbeat_at = now() where id = :hg;
select test.equal('one that is heard again is alive', (select concat_ws(' ', alive, ended_at, ended_reason) from push.replicas where id = :hg), 't');
select push.retire_gateway(:hg);
select test.equal('of many, five are named', (select string_agg(message, '') is not null from unnest('{apns,fcm,expo}'::text[]) p cross
  join lateral push.pause_lane('health', p))
  and (select count(*) = 3 from unnest('{a,b,c}'::text[]) a cross join lateral push.register_lane(a, 'fcm') cross
    join lateral push.pause_lane(a, 'fcm')), true);
select test.equal('and the rest counted', pg_temp.lanes_are(),
  'bad health/apns: paused, a/fcm: paused, b/fcm: paused, c/fcm: paused, health/expo: paused, and 1 more');
select push.pause_lane('health', 'fcm', repeat('n', 100000)) is not null as done \gset
select test.equal('a note has an end', (select length(note) from push.lane where app = 'health' and provider = 'fcm'), 500);
rollback to lanes;
insert into push.history_default (finished_at, outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, device)
  values ('2019-01-01', 1, now(), now(), 0, 1, 1, 0, 0, 'u', 'x');
insert into push.receipt_batch (app, ticket, outbox_id, n, user_id, token, sent_at, due_at, give_up_at)
  values ('ops', '{overdue}', '{1}', '{0}', '{u}', '{x}', now() - interval '1 hour', now() - interval '10 minutes', now() + interval '1 day');
insert into push.quarantined_tokens (app, provider, token, since, reason) values ('ops', 'fcm', 'quarantined-token-0123456789', now(), 'x');
select test.equal('what is not well is seen', (select string_agg(item || ' ' || value || ' ' || state, ', ' order by item) from push.health
  where item in ('history without a partition', 'receipts overdue', 'quarantined tokens')),
  'history without a partition some bad, quarantined tokens 1 warn, receipts overdue 1 warn');

-- Tokens.
select test.equal('no view shows a token', (select string_agg(v, ' ') from (
  select 'stuck' as v from push.stuck x where x::text ~ '0123456789' union all select 'failures' from push.failures x where x::text ~ '0123456789'
  union all select 'dead' from push.dead_devices x where x::text ~ '0123456789' union all select 'quarantined' from push.quarantined_devices x
    where x::text ~ '0123456789'
  union all select 'registered' from push.registered_devices x where x::text ~ '(aaaaaaaaa|bbbbbbbbb|0123456789)' union all select 'audit'
    from push.audit x where x::text ~ '0123456789') x), null);
select test.equal('but what is needed to recognise one', (select device from push.quarantined_devices) || ' '
  || (select count(*) from push.registered_devices where user_id = 'reg') || ' '
  || (select count(*) from push.dead_devices where user_id is null and app = 'requeue'), 'quar…6789 1 1');

-- Expire with a floor.
select test.call('floor', 2, 'floor') as floor \gset
delete from push.delivery where outbox_id <> :floor;
update push.delivery set deadline_at = now() - n * interval '10 s' - interval '1 s' where outbox_id = :floor;
select test.equal('expire skips deliveries that were due before p_since', push.expire(p_since => now() - interval '5 s'), 1::bigint);
select test.equal('which is still there', (select string_agg(n::text, ' ') from push.delivery where outbox_id = :floor), '1');
select test.equal('and finds it without', push.expire(), 1::bigint);
