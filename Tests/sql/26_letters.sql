-- An APNs token in capitals and in small letters is one token. Tables keep the text that the backend gave.
create function pg_temp.small(p_end text) returns text language sql as $$ select lpad(p_end, 64, 'eec0ff') $$;
create function pg_temp.big(p_end text) returns text language sql as $$ select upper(pg_temp.small(p_end)) $$;
create function pg_temp.mixed(p_end text) returns text language sql as $$ select overlay(pg_temp.small(p_end) placing 'E' from 1) $$;
create function pg_temp.voip(p_user text, p_token text) returns jsonb language sql as $$
  select jsonb_build_object('userId', p_user, 'voipPushToken', p_token) $$;
create function pg_temp.devices(p_end text) returns text language sql as $$
  select string_agg(format('%s:%s', d.user_id, right(d.token, 4)), ' ' order by d.id) from push.devices d
  where lower(d.token) = pg_temp.small(p_end) $$;
create function pg_temp.owed(p_call text, p_kind text) returns text language sql as $$
  select string_agg(d.user_id || ':' || right(d.device, 4), ' ' order by d.n) from push.deliveries d where d.call_id = p_call and d.kind = p_kind $$;
create function pg_temp.dead(p_token text, p_provider text default 'apns', p_since timestamptz default null) returns bigint language sql as $$
  select push.invalidate_tokens(array_agg(l.id), array_agg(p_token), array_agg(p_since), array_agg('Unregistered'::text))
  from push.lane l where l.app = 'default' and l.provider = p_provider $$;
-- The phones that are rung have got their pushes.
create function pg_temp.ring(p_gateway int, p_claim int) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, p_claim, array(select id from push.lane), array_fill(999, array[999]),
    array_fill('-infinity'::timestamptz, array[999])) c cross join lateral (
    select push.settle(p_gateway, null, array[c.outbox_id], array[c.n], array[p_claim], array[1], array[0]::smallint[], array[200]::smallint[],
      array['x'], array['m'], array['r'], array[clock_timestamp()], array[clock_timestamp()])) s $$;
select push.register_gateway('letters', '1') as g \gset
select push.register_app('default', 60, p_voip_cancel => true) \g /dev/null
select push.register_lane('default', 'apns'), push.register_lane('default', 'fcm') \g /dev/null

-- Registering.
select push.register_device('ana', 'default', 'apns', pg_temp.small('a1'), platform => 'ios', locale => 'pt') \g /dev/null
update push.devices set enabled = false where token = pg_temp.small('a1') returning id as id \gset
select push.register_device('ana', 'default', 'apns', pg_temp.big('a1')) \g /dev/null
select test.equal('a token that is registered in other letters is the same device, with the text that was given last', pg_temp.devices('a1'),
  'ana:EEA1');
select test.equal('which keeps its number, the user''s switch and the locale', (select d.id || ' ' || d.enabled || ' ' || d.locale from push.devices d
  where d.token = pg_temp.big('a1')), :'id' || ' false pt');
select push.register_device('bob', 'default', 'apns', pg_temp.small('a1')) \g /dev/null
select test.equal('it passes to another user', pg_temp.devices('a1'), 'bob:eea1');
insert into push.devices (user_id, provider, token) values ('eve', 'apns', pg_temp.big('a1'));
select test.equal('by an INSERT, too', pg_temp.devices('a1'), 'eve:EEA1');
insert into push.devices (user_id, provider, token) values ('eve', 'apns', pg_temp.big('a2')), ('fay', 'apns', pg_temp.small('a2'));
select test.equal('of two in one statement the last counts', pg_temp.devices('a2'), 'fay:eea2');
insert into push.devices (user_id, provider, token) values ('mix', 'apns', pg_temp.mixed('a3'));
select test.equal('a token in both capitals and small letters is stored in small letters', (select d.token from push.devices d where d.user_id =
  'mix'),
  pg_temp.small('a3'));
select test.equal('and is found in capitals', push.drop_device('default', 'apns', pg_temp.big('a3')), true);
select push.register_device('nsd', 'default', 'apns', format('<%s %s>', left(pg_temp.mixed('a4'), 32), right(pg_temp.mixed('a4'), 32))) \g /dev/null
select test.equal('a token is registered as a phone prints it', pg_temp.devices('a4'), 'nsd:eea4');
insert into push.devices (user_id, provider, token) values ('nsd', 'apns', '<' || pg_temp.big('a4') || '>');
select test.equal('also by an INSERT', pg_temp.devices('a4'), 'nsd:EEA4');
insert into push.devices (user_id, provider, token) values ('gus', 'fcm', 'fcm-token-aAbBcC-0123456789:x'), ('gus', 'fcm',
  'fcm-token-AABBCC-0123456789:x');
select test.equal('tokens of others differ by their letters', (select count(*) from push.devices where user_id = 'gus'), 2::bigint);
select push.register_lane('other', 'apns') \g /dev/null
insert into push.devices (user_id, app, provider, token) values ('eve', 'other', 'apns', pg_temp.small('a1'));
select test.equal('and apps have devices of their own', pg_temp.devices('a1'), 'eve:EEA1 eve:eea1');
select test.equal('a device is switched off by other letters', push.enable_device('default', 'apns', pg_temp.small('a1'), false), true);
select test.equal('and logged out', push.drop_device('default', 'apns', pg_temp.small('a1')) || ' ' || pg_temp.devices('a1'), 'true eve:eea1');

-- Devices of release 0.1.0, which took them for two.
set session_replication_role = replica;
insert into push.devices (user_id, provider, token, registered_at) values ('old', 'apns', pg_temp.small('b1'), now() - interval '2 days'),
  ('old', 'apns', pg_temp.big('b1'), now() - interval '1 day');
set session_replication_role = origin;
select test.equal('two devices of one token: one phone rings', test.fan_out('["old"]'), 'apns:ios:production:old:EB1');
select push.register_device('old', 'default', 'apns', pg_temp.small('b1')) \g /dev/null
select test.equal('and when it registers again, there is one', pg_temp.devices('b1'), 'old:eeb1');
set session_replication_role = replica;
insert into push.devices (user_id, provider, token, registered_at) values ('old', 'apns', pg_temp.big('b1'), now() - interval '1 day');
set session_replication_role = origin;
select test.equal('a logout removes both', push.drop_device('default', 'apns', pg_temp.big('b1')) || coalesce(pg_temp.devices('b1'), ''), 'true');

-- In one call.
select test.equal('a token twice in a call is one push, with the first text', test.fan_out(jsonb_build_array(pg_temp.voip('u1', pg_temp.big('d1')),
  pg_temp.voip('u2', pg_temp.small('d1')), pg_temp.voip('u1', pg_temp.small('d1')))), 'apns:ios:production:u1:ED1');
select test.equal('and nobody is skipped', (select count(*) from push.skipped_recipients((select max(o.id) from push.outbox o))), 0::bigint);
select push.enqueue_call('{"callId": "join", "from": "x"}', jsonb_build_array(pg_temp.voip('u1', pg_temp.big('d2')))) \g /dev/null
select test.equal('who joins with the same token is not rung twice', (select a.deliveries from push.add_recipients('join',
  jsonb_build_array(pg_temp.voip('u2', pg_temp.small('d2')), pg_temp.voip('u3', pg_temp.big('d3')), pg_temp.voip('u3', pg_temp.small('d3')))) a), 1);
select push.enqueue_call('{"callId": "note", "from": "x"}', kind => 'missed_call', recipients => jsonb_build_array(
  pg_temp.voip('u1', pg_temp.big('d4')) || jsonb_build_object('apnsToken', pg_temp.small('d4')))) \g /dev/null
select test.equal('a VoIP token that is also given as an alert token shows no alert', pg_temp.owed('note', 'notification'), null);
select push.end_call('join') \g /dev/null

-- The phone that answers.
insert into push.devices (user_id, provider, token) values ('ann', 'apns', pg_temp.big('e1')), ('ann', 'apns', pg_temp.big('e2'));
select push.enqueue_call('{"callId": "answer", "from": "x"}', jsonb_build_array('ann', pg_temp.voip('u1', pg_temp.big('e3')))) \g /dev/null
select pg_temp.ring(:g, 1), push.answer_call('answer', device => pg_temp.small('e1')), test.follow() \g /dev/null
select test.equal('it is known by its token in other letters', (select o.answered_by || ':' || right(o.answered_device, 4) from push.outbox o
  where o.call_id = 'answer'), 'ann:eee1');
select test.equal('and gets no cancel', pg_temp.owed('answer', 'cancel'), 'ann:EEE2 u1:EEE3');
select push.enqueue_call('{"callId": "answer-2", "from": "x"}', jsonb_build_array(pg_temp.voip('u1', pg_temp.big('e4')) ||
  '{"fcmToken": "letters-token-0123456789"}',
  pg_temp.voip('u2', pg_temp.big('e5')))) \g /dev/null
select pg_temp.ring(:g, 2), push.answer_call('answer-2', device => pg_temp.small('e4')), test.follow() \g /dev/null
select test.equal('nor if it is not registered', (select o.answered_by from push.outbox o where o.call_id = 'answer-2') || ' '
  || pg_temp.owed('answer-2', 'cancel'), 'u1 u2:EEE5');
select push.enqueue_call('{"callId": "decline", "from": "x"}', jsonb_build_array('ann')) \g /dev/null
select pg_temp.ring(:g, 3), push.decline_call('decline', 'ann', device => pg_temp.small('e2')), test.follow() \g /dev/null
select test.equal('nor if it declines', pg_temp.owed('decline', 'cancel'), 'ann:EEE1');

-- The next channel of a phone that two entries name.
select push.enqueue_call('{"callId": "next", "from": "x"}', jsonb_build_array(pg_temp.voip('u1', pg_temp.big('c1')),
  pg_temp.voip('u1', pg_temp.small('c1')) || '{"fcmToken": "letters-token-next-0123456789"}')) \g /dev/null
select push.settle(:g, null, array[c.outbox_id], array[c.n], array[4], array[1], array[4]::smallint[], array[410]::smallint[], array['Unregistered'],
  array['m'], array['r'], array[clock_timestamp()], array[clock_timestamp()])
  from push.claim(:g, 4, array(select id from push.lane), array_fill(999, array[999]), array_fill('-infinity'::timestamptz, array[999])) c
  where c.user_id = 'u1' and c.token = pg_temp.big('c1') \g /dev/null
select test.follow() \g /dev/null
select test.equal('the other entry has it', (select string_agg(d.provider || ':' || right(d.device, 4), ' ') from push.deliveries d
  where d.call_id = 'next'), 'fcm:6789');

-- Missed calls: a user's phones are told apart, and each is told once.
set session_replication_role = replica;
insert into push.devices (user_id, provider, token, voip) values ('mia', 'apns', pg_temp.big('c2'), false), ('mia', 'apns', pg_temp.small('c2'),
  false);
set session_replication_role = origin;
update push.apps set missed_calls = 'all' where app = 'default';
select push.enqueue_call('{"callId": "missed", "from": "x"}', jsonb_build_array('mia', jsonb_build_object('userId', 'u1', 'apnsToken',
  pg_temp.big('c3'),
    'voipPushToken', pg_temp.big('c4')), jsonb_build_object('userId', 'u2', 'apnsToken', pg_temp.small('c3')),
  jsonb_build_object('userId', 'u3', 'apnsToken', pg_temp.small('c4')))) \g /dev/null
select push.end_call('missed'), test.follow() \g /dev/null
select test.equal('one for each phone, and none to a VoIP token', (select string_agg(lower(right(d.device, 2)), ' ' order by d.n) from
  push.deliveries d
  where d.call_id = 'missed' and d.kind = 'missed_call'), 'c2 c3');
update push.apps set missed_calls = null where app = 'default';

-- A requeued invite goes to one phone once.
insert into push.devices (user_id, provider, token) values ('req', 'apns', pg_temp.small('c5'));
select push.enqueue_call('{"callId": "requeue", "from": "x"}', jsonb_build_array('req')) \g /dev/null
update push.devices set token = pg_temp.big('c5') where user_id = 'req';
select push.settle(:g, null, array[c.outbox_id], array[c.n], array[5], array[1], array[4]::smallint[], array[400]::smallint[], array['BadTopic'],
  array['m'], array['r'], array[clock_timestamp()], array[clock_timestamp()])
  from push.claim(:g, 5, array(select id from push.lane), array_fill(999, array[999]), array_fill('-infinity'::timestamptz, array[999])) c
  where c.user_id = 'req' \g /dev/null
select test.equal('an invite is requeued to a device that was registered in other letters since', (select r.requeued::int from
  push.requeue('requeue') r), 1);
select push.end_call('requeue') \g /dev/null

-- Dead tokens.
insert into push.devices (user_id, provider, token) values ('dan', 'apns', pg_temp.big('f1'));
select test.equal('a token is reported as dead in other letters', pg_temp.dead(pg_temp.small('f1')), 1::bigint);
select test.equal('its device is marked', (select d.invalid_reason from push.devices d where d.user_id = 'dan'), 'Unregistered');
select test.equal('and the feed has the text that was registered', (select x.user_id || ':' || right(x.token, 4) from push.token_invalidations x
  where lower(x.token) = pg_temp.small('f1')), 'dan:EEF1');
select test.equal('it is dead for a call that gives it in small letters', test.fan_out(jsonb_build_array(pg_temp.voip('dan', pg_temp.small('f1')))),
  null);
select test.equal('which says so', (select s.reason from push.skipped_recipients((select max(o.id) from push.outbox o)) s), 'TokenInvalid');
select test.equal('push.dead_among gives back what was asked', array(select push.dead_among('default', '{apns,apns}',
  array[pg_temp.small('f1'), pg_temp.small('f2')], '{null,null}')), array[pg_temp.small('f1')]);
select push.register_device('dan', 'default', 'apns', pg_temp.small('f1')) \g /dev/null
select test.equal('registered in small letters, it lives again', (select count(*) from push.token_invalidations x
  where lower(x.token) = pg_temp.small('f1')), 0::bigint);
select pg_temp.dead(pg_temp.small('f3')), pg_temp.dead(pg_temp.big('f3')) \g /dev/null
select test.equal('a token without a device may be dead twice', test.fan_out(jsonb_build_array(pg_temp.voip('x', pg_temp.big('f3')))), null);
select test.equal('also as an alert', (select count(*) from push.phones_of('default', false, null, '{}', jsonb_build_object('userId', 'x',
  'apnsToken', pg_temp.big('f3')))), 0::bigint);
select pg_temp.dead(pg_temp.mixed('f5')) \g /dev/null
select test.equal('one in both capitals and small letters is dead in either', test.fan_out(jsonb_build_array(pg_temp.voip('x', pg_temp.big('f5')),
  pg_temp.voip('y', pg_temp.small('f5')), pg_temp.voip('z', pg_temp.mixed('f5')))), null);
insert into push.devices (user_id, provider, token) values ('kim', 'apns', pg_temp.big('f4'));
select push.correct_environment(array_agg(l.id), array_agg(pg_temp.small('f4')), '{1}') from push.lane l where l.app = 'default' and l.provider =
  'apns'
  \g /dev/null
select test.equal('its environment is corrected', (select d.environment from push.devices d where d.user_id = 'kim'), 'sandbox');
select push.hold_invalidation(l.id, '1 hour', 'test') from push.lane l where l.app = 'default' and l.provider = 'apns' \g /dev/null
set session_replication_role = replica;
insert into push.devices (user_id, provider, token) values ('kim', 'apns', pg_temp.small('f4'));
set session_replication_role = origin;
select pg_temp.dead(pg_temp.small('f4')) \g /dev/null
select test.equal('quarantined tokens are those that are registered', (select string_agg(right(q.token, 4), ' ' order by q.token collate "C")
  from push.quarantined_tokens q where q.user_id = 'kim'), 'EEF4 eef4');

-- Erasure: the phone of two users is not silenced with one of them.
select push.enqueue_call('{"callId": "erase", "from": "x"}', jsonb_build_array(pg_temp.voip('gone', pg_temp.big('99')),
  pg_temp.voip('stays', pg_temp.small('99')))) \g /dev/null
select push.erase_user('gone', 'default') \g /dev/null
select test.equal('the push to a token that two users have passes to the other', pg_temp.owed('erase', 'invite'), 'stays:EE99');
insert into push.token_invalidations (app, provider, token, reason) values ('default', 'apns', pg_temp.big('97'), 'x'), ('default', 'apns',
  pg_temp.big('98'), 'x');
select push.enqueue_call('{"callId": "erase-2", "from": "x"}', jsonb_build_array(pg_temp.voip('leaves', pg_temp.small('98')))) \g /dev/null
select push.answer_call('erase-2', 'somebody', device => pg_temp.big('98')), test.follow() \g /dev/null
select push.erase_user('leaves', 'default') \g /dev/null
select test.equal('and no text of the token stays', (select count(*) from push.token_invalidations x where lower(x.token) = pg_temp.small('98'))
  || ' ' || (select o.answered_device is null from push.outbox o where o.call_id = 'erase-2'), '0 true');
select push.enqueue_call('{"callId": "erase-3", "from": "x"}', jsonb_build_array(pg_temp.voip('parts', pg_temp.big('96')))) \g /dev/null
select pg_temp.ring(:g, 6), push.answer_call('erase-3', 'somebody', device => pg_temp.mixed('96')), test.follow() \g /dev/null
select push.erase_user('parts', 'default') \g /dev/null
select test.equal('nor where it was given in both capitals and small letters', (select o.answered_device from push.outbox o
  where o.call_id = 'erase-3'), null);
