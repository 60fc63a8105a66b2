-- Deliveries of a gateway that died: sent again, not sent again, claimed one at a time, or dead.
create function pg_temp.gateway(p_name text) returns int language sql as $$ select push.register_gateway(p_name, '1') $$;
create function pg_temp.claim(p_gateway int, p_max int default 100, p_app text default 'default') returns text language sql as $$
  select test.claim(p_gateway, p_max, p_app) $$;
create function pg_temp.tell(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s@%s%s', d.n, case d.state when 0 then 'ready' when 1 then 'claimed' else 'waiting' end, d.crashes, d.attempt, case
    when d.ready_lane is null then ' aside' end), ', ' order by d.n)
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.kind <> 1 $$;
create function pg_temp.past(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s', h.n, h.outcome, h.reason), ', ' order by h.n) from push.delivery_history h where h.call_id = p_call $$;
select pg_temp.gateway('reaper') as reaper, pg_temp.gateway('a') as a, pg_temp.gateway('b') as b, pg_temp.gateway('c') as c \gset

-- With two gateways that died: a suspect; with a third: dead.
select test.call('crash', 3) as crash \gset
select test.equal('claimed', pg_temp.claim(:a, 2), 'crash/0#1@1 crash/1#1@1');
select test.dies(:a, :reaper);
select test.equal('its deliveries count a crash, others do not', pg_temp.tell('crash'), '0:ready:1@1, 1:ready:1@1, 2:ready:0@0');
select test.equal('claimed again', pg_temp.claim(:b), 'crash/0#1@2 crash/1#1@2 crash/2#1@1');
select test.dies(:b, :reaper);
select test.equal('after two crashes a delivery is a suspect', pg_temp.tell('crash'), '0:ready:2@2 aside, 1:ready:2@2 aside, 2:ready:1@1');
select test.equal('ops see them waiting for their turn', (select string_agg(state, ' ') from push.deliveries where call_id = 'crash'),
  'ready ready ready');
select test.equal('a claim takes one suspect besides the others', pg_temp.claim(:c), 'crash/0#1@3 crash/2#1@2');
select test.equal('and no other while that is held', pg_temp.claim(:c), null);
select pg_temp.gateway('d') as d \gset
select test.equal('another gateway takes another', (select string_agg(format('%s/%s', crashes, n), ' ')
  from push.claim(:d, 1, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}')), '2/1');
select push.settle(:d, null, array[:crash::bigint], '{1}', '{1}', '{3}', '{0}', '{200}', '{null}', '{m}', '{crash}', array[now()], array[now()]);
select test.dies(:c, :reaper);
select test.equal('a suspect is blamed, and nothing beside it', pg_temp.tell('crash'), '2:ready:1@2');
select test.equal('at the third crash it is dead', pg_temp.past('crash'), '0:dead:GatewayCrashed, 1:delivered:');
select test.equal('nothing takes its place', (select count(*) from push.deliveries where call_id = 'crash' and fallback_of is not null), 0::bigint);
select test.equal('its history has no owner', (select gateway from push.delivery_history where call_id = 'crash' and n = 0), null);
select test.equal('metrics count it', (select format('%s %s %s %s', kind, outcome, reason, count) from push.tally where what = 'ended'
  and reason = 'GatewayCrashed'), '0 4 GatewayCrashed 1');
select push.answer_call('crash', null); select test.follow();
select test.equal('a phone that may ring gets a cancel', (select count(*) from push.deliveries where call_id = 'crash' and kind = 'cancel'
  and device like '%9-1'), 1::bigint);
delete from push.delivery where outbox_id = :crash;

-- Claiming suspects.
select test.call('careful', 4) as careful, test.call('other', 1, 'other') as other \gset
update push.delivery set crashes = 2, ready_lane = null where outbox_id in (:careful, :other);
update push.delivery set deadline_at = now() + interval '4 hours' where outbox_id = :careful and n = 3;
select pg_temp.gateway('e') as e \gset
update push.lanes set paused = true where app = 'default' and provider = 'fcm';
select test.equal('no suspect from a paused lane', pg_temp.claim(:e), null);
update push.lanes set paused = false where app = 'default' and provider = 'fcm';
select test.equal('none from a lane with a limit of 0', pg_temp.claim(:e, 0), null);
select test.equal('nor from a lane that is not in p_lanes', (select count(*) from push.claim(:e, 1, '{}', '{}', '{}')), 0::bigint);
select test.equal('nor with a total of 0', (select count(*) from push.claim(:e, 1, array(select id from push.lane where app = 'default'),
  '{9}', '{-infinity}', p_total => 0)), 0::bigint);
select test.equal('deliveries with less than the slack are left', pg_temp.claim(:e, 1, 'none'), null);
select test.call('beside', 3) as beside \gset
select test.equal('a suspect counts for the lane''s limit', pg_temp.claim(:e, 2), 'careful/0#1@1 beside/0#1@1');
select push.park(:e, array[:careful::bigint], '{0}', '{1}', '{1}', '{0}', '{x}');
select test.equal('parked and promoted it is still one', push.promote() || ' ' || pg_temp.tell('careful'),
  '1 0:ready:2@1 aside, 1:ready:2@0 aside, 2:ready:2@0 aside, 3:ready:2@0 aside');
select test.equal('and claimed alone again', (select string_agg(crashes::text, ' ' order by crashes)
  from push.claim(:e, 1, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}', p_total => 2)), '0 2');
select push.release(:e, array[:careful::bigint], '{0}', '{1}');
select test.equal('released it is ready, and still one', pg_temp.tell('careful') ~ '^0:ready:2@1 aside', true);
select test.equal('in the total', (select count(*) from push.claim(:e, 1, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}',
  p_total => 1)), 1::bigint);
select push.forget(:e, 1);
select test.equal('forgotten, too', pg_temp.tell('careful') ~ '^0:ready:2@1 aside', true);
delete from push.delivery where outbox_id = :careful and n < 3;
select pg_temp.gateway('f') as f \gset
select test.equal('a suspect with hours left is background: none if no background is taken',
  (select count(*) from push.claim(:f, 1, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}', p_background => 0)
  where crashes = 2), 0::bigint);
select test.equal('or the lane has no room for it', (select count(*)
  from push.claim(:f, 1, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}', p_later_max => '{0}') where crashes = 2),
  0::bigint);
select test.equal('else it is', (select count(*) from push.claim(:f, 1, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}')
  where crashes = 2), 1::bigint);
update push.delivery set deadline_at = now() - interval '6 s', due_at = now() - interval '6 s' where outbox_id = :other;
select test.equal('a suspect past its deadline is stuck', (select why from push.stuck where call_id = 'other'), 'past its deadline, and not expired');
select test.equal('it is not claimed', pg_temp.claim(:reaper, 9, 'other'), null);
select test.equal('until it expires', push.expire() || ' ' || pg_temp.past('other'), '1 0:expired:DeadlinePassed');
delete from push.delivery;

-- Visible pushes.
select push.register_app('once', 60), push.register_app('twice', 60, null, true);
select test.equal('an app can be at_least_once', (select string_agg(app || ':' || at_least_once, ' ' order by app) from push.apps
  where app in ('once', 'twice')), 'once:false twice:true');
insert into push.outbox (app, kind, payload, recipients) select a, 'message',
  jsonb_build_object('from', 'x', 'chatId', 'y', 'messageId', 'note-' || a), '[{"userId": "u", "fcmToken": "seen-token-0123456789"}]'
  from unnest('{once,twice,plain}'::text[]) a;
select test.call('ring-' || a, 1, a) from unnest('{once,twice,plain}'::text[]) a;
select test.call('missed-' || a, 1, a) from unnest('{once,twice,plain}'::text[]) a;
update push.outbox set state = 'missed' where call_id like 'missed-%'; select test.follow();
select pg_temp.gateway('g') as g \gset
select test.equal('all are claimed', (select count(*) from push.claim(:g, 1,
  array(select id from push.lane where app in ('once', 'twice', 'plain') and provider = 'fcm'), array_fill(9, array[3]),
  array_fill('-infinity'::timestamptz, array[3]))), 3::bigint);
select test.equal('the rest of them', (select count(*) from push.claim(:g, 1,
  array(select id from push.lane where app in ('once', 'twice', 'plain') and provider = 'fcm'), array_fill(9, array[3]),
  array_fill('-infinity'::timestamptz, array[3]))), 6::bigint);
select test.equal('and an invite more', test.call('given-back', 1, 'once') is not null and pg_temp.claim(:g, 9, 'once') is not null, true);
select push.release(:g, array[d.outbox_id], array[n], array[lease]) from push.delivery d join push.outbox o on o.id = d.outbox_id
  where o.call_id = 'given-back';
select test.dies(:g, :reaper);
select test.equal('visible pushes are not sent again, except in an app that is at_least_once',
  (select string_agg(format('%s:%s:%s', app, kind, state), ' ' order by app, kind) from push.deliveries where call_id not like 'given%'),
  'once:invite:ready plain:invite:ready twice:invite:ready twice:missed_call:ready twice:notification:ready');
select test.equal('it is dead', (select string_agg(format('%s:%s:%s:%s', app, kind, outcome, reason), ' ' order by app, kind)
  from push.delivery_history where reason = 'GatewayCrashed' and call_id <> 'crash'),
  'once:missed_call:dead:GatewayCrashed once:notification:dead:GatewayCrashed '
  'plain:missed_call:dead:GatewayCrashed plain:notification:dead:GatewayCrashed');
select test.equal('returned deliveries count no crash', (select crashes from push.delivery d join push.outbox o on o.id = d.outbox_id
  where call_id = 'given-back'), 0::smallint);
delete from push.delivery;

-- History refuses what the dead gateway may have shown.
create function test.refuse() returns trigger language plpgsql as $$ begin raise program_limit_exceeded; end $$;
insert into push.outbox (app, kind, payload, recipients) values ('once', 'message', '{"from": "x", "chatId": "y", "messageId": "refused"}',
  '[{"userId": "u", "fcmToken": "seen-token-0123456789"}]');
select test.call('beside', 1, 'once');
select pg_temp.gateway('k') as k, pg_temp.gateway('l') as l \gset
select test.equal('both are claimed, one after the other', (select count(*) from generate_series(1, 2) i cross join lateral push.claim(:k, i,
  array(select id from push.lane where app = 'once' and provider = 'fcm'), '{9}', '{-infinity}')), 2::bigint);
create trigger refuse before insert on push.history for each row execute function test.refuse();
set client_min_messages = error;
select test.dies(:k, :l);
select test.equal('invites do not wait for it', (select string_agg(concat_ws(':', kind, state), ' ' order by kind) from push.deliveries
  where app = 'once'), 'invite:ready notification:claimed');
update push.gateways set free_due_at = now() where id = :k;
select push.free_claims() \g /dev/null
select test.equal('a later run looks again', (select free_due_at > now() from push.gateways where id = :k), true);
reset client_min_messages;
drop trigger refuse on push.history;
update push.gateways set free_due_at = now() where id = :k;
select push.free_claims() \g /dev/null
select test.equal('it is tried again', (select string_agg(concat_ws(':', kind, state), ' ' order by kind) from push.deliveries where app = 'once'),
  'invite:ready');
delete from push.delivery;

-- Ended calls.
select test.call('known', 1) as known, pg_temp.gateway('j') as j \gset
select push.end_call('known', 'busy') \g /dev/null
select test.equal('claimed after its end', pg_temp.claim(:j), 'known/0#1@1');
select test.dies(:j, :reaper); select test.follow();
select test.equal('the gateway did not send it: its phone gets no cancel', (select string_agg(kind || ':' || attempts, ' ') from
  push.delivery_history where call_id = 'known') || (select count(*) from push.deliveries where call_id = 'known'), 'invite:00');
select test.call('over', 1) as over, test.call('on', 1) as on \gset
select pg_temp.gateway('h') as h, pg_temp.gateway('i') as i \gset
select test.equal('both are claimed', pg_temp.claim(:h), 'over/0#1@1 on/0#1@1');
select push.end_call('over', 'declined'); select test.follow();
select test.dies(:h, :reaper);
select test.equal('an invite of a call that has ended is ready: the next claim says that the call is over', pg_temp.tell('over'), '0:ready:1@1');
select test.equal('its phone may have rung, and is told', (select count(*) from push.deliveries where call_id = 'over' and kind = 'cancel'),
  1::bigint);
delete from push.delivery where outbox_id = :over;
select test.equal('one of a call that rings is ready', pg_temp.tell('on'), '0:ready:1@1');

-- Retired.
select pg_temp.claim(:i) is not null as claimed \gset
select push.retire_gateway(:i);
select test.equal('as long as it finds something it goes on', push.run_job('free') || ' ' || push.run_job('free'), 'true false');
select test.equal('a gateway that retires counts no crash', pg_temp.tell('on'), '0:ready:1@2');
update push.gateways set free_due_at = clock_timestamp() where not alive;
update push.gateways set ended_at = now() - interval '2 days' where not alive;
select push.prune();
select test.equal('and not forgotten before that', (select count(*) from push.gateways where not alive), 8::bigint);
update push.delivery set state = 1, owner = :i, lease = 1 where outbox_id = :on;
select push.free_claims();
select test.equal('a claim that slipped in is found', pg_temp.tell('on'), '0:ready:1@2');
select push.prune();
select test.equal('then nothing is left to look for', (select count(*) from push.gateways where not alive), 0::bigint);
select test.equal('all lanes are right', (select count(*) from push.delivery where ready_lane is distinct from case when state < 2 and crashes < 2
  then lane end), 0::bigint);

-- The server stood still, or its clock was set ahead: the gateway with the first heartbeat finds none silent; ten minutes of
-- silence later it does.
select test.equal('unless it is said otherwise, three seconds are silence',
  pg_get_function_arguments('push.beat'::regproc) ~ 'p_silence interval DEFAULT ''00:00:03''::interval', true);
delete from push.gateways where alive;
select pg_temp.gateway('first') as first, pg_temp.gateway('second') as second \gset
update push.gateways set heartbeat_at = clock_timestamp() - interval '20 minutes', steady_since = '-infinity' where alive;
select push.beat(:first, true, '10 minutes');
select push.beat(:first, true, '10 minutes');
select test.equal('all live after a pause', (select count(*) from push.gateways where alive), 2::bigint);
update push.gateways set heartbeat_at = clock_timestamp(), steady_since = clock_timestamp() - interval '10 minutes' where id = :first;
select push.beat(:first, true, '10 minutes');
select push.beat(:first, true, '10 minutes');
select test.equal('no gateway is declared dead at the first check, nor at one right after it',
  (select count(*) from push.gateways where alive), 2::bigint);
update push.gateways set doubted_at = doubted_at - interval '2 minutes' where id = :second;
select push.beat(:second, false, '10 minutes');
update push.gateways set heartbeat_at = clock_timestamp() - interval '20 minutes' where id = :second;
select push.beat(:first, true, '10 minutes');
select test.equal('a beat takes the doubt away', (select count(*) from push.gateways where alive), 2::bigint);
update push.gateways set doubted_at = now() + interval '1 hour' where id = :second;
select push.beat(:first, true, '10 minutes');
update push.gateways set doubted_at = doubted_at - interval '2 minutes' where id = :second;
select push.beat(:first, true, '10 minutes');
select test.equal('a gateway without a heartbeat since then is declared dead', (select ended_reason from push.gateways where id = :second), 'silent');

-- Commits that wait for the disk.
set local synchronous_commit = off;
select push.sync(:first);
select test.equal('its commit waits for the disk, and for no standby', current_setting('synchronous_commit'), 'local');
set local synchronous_commit = remote_apply;
select push.sync(:first);
select test.equal('a stronger setting is kept', current_setting('synchronous_commit'), 'remote_apply');
reset synchronous_commit;

-- The clock was set back.
select pg_temp.gateway('second') as second \gset
update push.gateways set heartbeat_at = now() + interval '1 hour' where alive;
select push.beat(:first, true, '10 minutes');
select test.equal('no gateway is dead after a step back of the clock', (select count(*) from push.gateways where alive), 2::bigint);
update push.gateways set heartbeat_at = clock_timestamp(), steady_since = clock_timestamp() - interval '10 minutes' where id = :first;
update push.gateways set doubted_at = clock_timestamp() - interval '2 minutes' where id = :second;
select push.beat(:first, true, '10 minutes');
select test.equal('a heartbeat from before the crash does not count', (select ended_reason from push.gateways where id = :second), 'silent');
update push.job set every = '1 hour', due_at = now() + case name when 'prune' then interval '1 day' else interval '30 minutes' end;
select test.equal('a job of before it is due', push.take_job(:first), 'prune');
select test.equal('others are not', push.take_job(:first), null);

-- A push that a trigger of somebody's refuses to change.
select pg_temp.gateway('m') as m, pg_temp.gateway('n') as n, test.call('firm', 1) as firm, test.call('yields', 1) as yields \gset
select pg_temp.claim(:m) is not null as claimed \gset
select format('create trigger refuse before update on push.delivery for each row when (old.outbox_id = %s) execute function test.refuse()', :firm)
  \gexec
select test.dies(:m, :n);
select test.equal('the others are freed, and heartbeats go on', format('%s; %s; %s', pg_temp.tell('firm'), pg_temp.tell('yields'),
  (select alive from push.beat(:n, true, '10 minutes'))), '0:claimed:0@1; 0:ready:1@1; t');
select test.equal('its call is named', (select detail ->> 'sqlstate' from push.audit where target = 'push.outbox.id ' || :firm), '54000');
drop trigger refuse on push.delivery;

-- In a restored database.
create trigger refuse before insert on push.history for each row when (new.outbox_id = :firm) execute function test.refuse();
create trigger refuse_end before update on push.outbox for each row when (old.id = :firm) execute function test.refuse();
select push.mark_restored(), pg_temp.gateway('o') is not null as registered;
select test.equal('neither what history refuses nor a call that cannot end keeps claims closed', format('%s %s %s', push.restored_at(),
  (select count(*) from push.delivery), (select string_agg(call_id || ' ' || state, ', ' order by call_id) from push.outbox
  where call_id in ('firm', 'yields'))), ' 0 firm ringing, yields missed');
