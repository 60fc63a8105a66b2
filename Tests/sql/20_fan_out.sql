-- Which devices get an invite, and over which channel.
create function pg_temp.voip(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;

select push.register_app('default', 60) \g /dev/null
insert into push.outbox (payload, recipients) values ('{"callId": "filled", "from": "x", "apartmentNumber": 101, "fromName": null}', '[]');
select test.equal('an insert is filled in', (select format('%s %s %s %s %s', app, kind, call_id, ring_seconds, state) from push.outbox
  where call_id = 'filled'),
  'default incoming_call filled 60 ringing');
select test.equal('the deadline is the end of the ring window', (select deadline_at - created_at from push.outbox where call_id = 'filled'),
  '60 seconds'::interval);
select push.register_app('porteiro', 45);
insert into push.outbox (app, payload, recipients, ring_seconds, state, created_at, deadline_at, kind) values
  ('porteiro', '{"callId": "app", "from": "x"}', '[]', null, default, default, default, 'video_call'),
  ('porteiro', '{"callId": "own", "from": "x"}', '[]', 20, 'answered', '2000-01-01', default, default),
  ('porteiro', '{"callId": "own-end", "from": "x"}', '[]', 20, 'answered', default, '2100-01-01', default);
select test.equal('the app''s ring window holds', (select ring_seconds from push.outbox where call_id = 'app'), 45);
select test.equal('a ring window of its own holds', (select ring_seconds from push.outbox where call_id = 'own'), 20);
select test.equal('a call cannot be backdated or answered in advance',
  (select state || ' ' || (created_at > now() - interval '1 hour') || ' ' || (deadline_at - created_at)
  from push.outbox where call_id = 'own'), 'ringing true 00:00:20');
select test.equal('nor gives it another end', (select state || ' ' || (deadline_at - created_at) from push.outbox where call_id = 'own-end'),
  'ringing 00:00:20');
insert into push.outbox (app, call_id, payload, recipients, ring_seconds, state, created_at, deadline_at, answered_by, ended_at, end_reason, voided)
  values
  ('porteiro', 'past', '{"callId": "past", "from": "x"}', '[{"userId": "u", "fcmToken": "past-token-0123456789"}]', 60, 'answered',
    now() - interval '1 hour', now() - interval '59 minutes', 'u', now(), 'answered', false),
  ('porteiro', 'past-2', '{"callId": "past-2", "from": "x"}', '[{"userId": "u", "fcmToken": "past-token-0123456789"}]', 600, 'ringing',
    now() - interval '1 minute', now() + interval '9 minutes', null, null, null, false);
select test.equal('a call with both times is restored from a dump: it stays as it was and rings no phone',
  (select string_agg(concat_ws(' ', call_id, state, created_at < now(), answered_by, (select count(*) from push.delivery d where d.outbox_id = o.id)),
  ', ' order by call_id)
  from push.outbox o where call_id like 'past%'), 'past answered t u 0, past-2 ringing t 0');

select test.equal('one entry with a VoIP token', test.fan_out(jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken',
  pg_temp.voip('aaa')))),
  'apns:ios:production:u:aaa');
select test.equal('VoIP before FCM before Expo', test.fan_out(jsonb_build_array(
  jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.voip('aaa'), 'fcmToken', 'token-0123456789-0123-fff', 'pushToken',
    'ExponentPushToken[0123456789]'),
  jsonb_build_object('userId', 'b', 'fcmToken', 'token-0123456789-0123-fff', 'pushToken', 'ExponentPushToken[0123456789]'),
  jsonb_build_object('userId', 'c', 'pushToken', 'ExponentPushToken[0123456789]'))),
  'apns:ios:production:a:aaa fcm::production:b:fff expo::production:c:89]');
select test.equal('each form of an Expo token', test.fan_out('[{"userId": "a", "pushToken": "ExpoPushToken[a-b_c]"},
  {"userId": "b", "pushToken": "0b6e1a7c-6a3f-4c59-9d1e-2f7a53c0d111"}]'),
  'expo::production:b:111 expo::production:a:_c]');
select test.equal('environment and platform', test.fan_out(jsonb_build_array(
  jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.voip('aaa'), 'environment', 'sandbox'),
  jsonb_build_object('userId', 'b', 'voipPushToken', pg_temp.voip('bbb'), 'environment', 'development', 'platform', null),
  jsonb_build_object('userId', 'c', 'fcmToken', 'token-0123456789-0123-fff', 'platform', 'android', 'environment', null))),
  'apns:ios:sandbox:a:aaa apns:ios:sandbox:b:bbb fcm:android:production:c:fff');
select test.equal('an alert token alone gets no invite', test.fan_out(jsonb_build_array(jsonb_build_object('userId', 'u', 'apnsToken',
  pg_temp.voip('aaa')))), null);
select test.equal('null and empty tokens are no tokens', test.fan_out(
  '[{"userId": "u", "voipPushToken": null, "fcmToken": "", "pushToken": "ExponentPushToken[0123456789]"}]'), 'expo::production:u:89]');
select test.equal('notificationEnabled false gets nothing', test.fan_out(
  '[{"userId": "u", "notificationEnabled": false, "fcmToken": "token-0123456789-0123-fff"}, {"userId": "v", "notificationEnabled": false}]'), null);
select test.equal('notificationEnabled true or null is served', test.fan_out(
  '[{"userId": "u", "notificationEnabled": true, "fcmToken": "token-0123456789-0123-fff"}, {"userId": '
  '"v", "notificationEnabled": null, "fcmToken": "token-0123456789-0123-ggg"}]'),
  'fcm::production:u:fff fcm::production:v:ggg');
select test.equal('the same token twice is one delivery', test.fan_out(
  '[{"userId": "u", "fcmToken": "token-0123456789-0123-fff"}, {"userId": "v", "fcmToken": "token-0123456789-0123-fff"}]'), 'fcm::production:u:fff');
select test.call('thousand', 1000) as thousand \gset
select test.equal('1000 recipients are accepted, numbered from 0', (select format('%s %s %s', count(*), min(n), max(n)) from push.delivery
  where outbox_id = :thousand), '1000 0 999');

insert into push.token_invalidations (app, provider, token, reason) values
  ('default', 'fcm', 'token-0123456789-0123-ded', 'UNREGISTERED'), ('other', 'fcm', 'token-0123456789-0123-fff', 'UNREGISTERED'),
  ('default', 'fcm', repeat('long-token', 400), 'UNREGISTERED');
select test.equal('a dead token is skipped, another app''s is not', test.fan_out(jsonb_build_array(
  '{"userId": "u", "fcmToken": "token-0123456789-0123-ded"}'::jsonb, '{"userId": "v", "fcmToken": "token-0123456789-0123-fff"}'::jsonb,
  jsonb_build_object('userId', 'w', 'fcmToken', repeat('long-token', 400)))), 'fcm::production:v:fff');

-- Users, resolved through push.devices.
insert into push.devices (user_id, provider, token, platform, voip, enabled, invalidated_at, invalid_reason, environment) values
  ('both', 'apns', pg_temp.voip('a01'), 'ios', true, true, null, null, 'sandbox'),
  ('both', 'apns', pg_temp.voip('a02'), null, true, true, null, null, null),
  ('both', 'expo', 'ExponentPushToken[both-ios]', 'ios', true, true, null, null, null),
  ('both', 'expo', 'ExponentPushToken[both-any]', null, true, true, null, null, null),
  ('both', 'fcm', 'token-0123456789-both-f01', 'android', true, true, null, null, null),
  ('both', 'fcm', 'token-0123456789-both-f02', null, true, true, null, null, null),
  ('both', 'expo', 'ExponentPushToken[both-and]', 'android', true, true, null, null, null),
  ('expo', 'expo', 'ExponentPushToken[expo-any]', null, true, true, null, null, null),
  ('ios-expo', 'apns', pg_temp.voip('a03'), 'ios', false, true, null, null, null),
  ('ios-expo', 'expo', 'ExponentPushToken[ios-expo]', 'ios', true, true, null, null, null),
  ('off', 'fcm', 'token-0123456789-off', null, true, false, null, null, null),
  ('gone', 'fcm', 'token-0123456789-gone-1', null, true, true, now(), 'UNREGISTERED', null),
  ('gone', 'expo', 'ExponentPushToken[gone-two]', 'android', true, true, null, null, null);
select push.register_lane('other', 'fcm') \g /dev/null
insert into push.devices (user_id, app, provider, token) values ('both', 'other', 'fcm', 'token-0123456789-other-1');
select test.equal('a user: the best channel of each platform', test.fan_out('["both"]'),
  'apns:ios:sandbox:both:a01 apns:ios:production:both:a02 fcm:android:production:both:f01 fcm:android:production:both:f02');
select test.equal('an object without tokens is a user, too', test.fan_out('[{"userId": "both", "platform": "ios"}]'), test.fan_out('["both"]'));
select test.equal('a user named twice is reached once', test.fan_out('["both", "both", {"userId": "both"}]'), test.fan_out('["both"]'));
select test.equal('an object with a token key, even null, is not looked up', test.fan_out('[{"userId": "both", "voipPushToken": null}]'), null);
select test.equal('a user called like a token key is a user', test.fan_out('["fcmToken"]'), null);
select test.equal('Expo of unknown platform when there is nothing else', test.fan_out('["expo"]'), 'expo::production:expo:ny]');
select test.equal('an alert token does not hide the Expo token', test.fan_out('["ios-expo"]'), 'expo:ios:production:ios-expo:po]');
select test.equal('a disabled device gets nothing', test.fan_out('["off"]'), null);
select test.equal('a dead device leaves the next channel', test.fan_out('["gone"]'), 'expo:android:production:gone:wo]');
select test.equal('devices belong to an app', test.fan_out('["both"]', 'other'), 'fcm:android:production:both:r-1');
select test.equal('an inline token that a user has as well is one delivery', test.fan_out(
  '["expo", {"userId": "expo", "pushToken": "ExponentPushToken[expo-any]"}]'), 'expo::production:expo:ny]');
-- Enqueueing takes no numbers from the sequence of lanes, and cannot create lanes for apps without a gateway.
select max(id) as newest, count(*) as lanes from push.lane \gset
select test.refuses('an app that no gateway has served',
  'app: no gateway has served app strange yet; start one that has it in its configuration, or correct the name (call strange)',
  '{"callId": "strange", "from": "x"}', '[{"userId": "u", "fcmToken": "strange-token-0123456789"}]', 'strange');
select test.refuses('and nobody to ring',
  'app: no gateway has served app strange yet; start one that has it in its configuration, or correct the name (call strange)',
  '{"callId": "strange", "from": "x"}', '[]', 'strange');
select test.equal('enqueueing makes no lanes', (select count(*) from push.lane), :lanes::bigint);
select push.register_app('strange', 60, p_providers => '{fcm}');
select test.equal('once a gateway has registered it, it has lanes', test.fan_out('[{"userId": "u", "fcmToken": "strange-token-0123456789"}]',
  'strange'), 'fcm::production:u:789');
select test.equal('of its providers', (select string_agg(provider, ' ') from push.lanes where app = 'strange'), 'fcm');
select push.register_app('strange', 60, p_providers => '{fcm}') from generate_series(1, 50) \g /dev/null
select test.equal('lanes are made once, and use up a number once', (select max(id) from push.lane) - :newest, 1);

-- The function, and enqueueing twice.
select test.equal('enqueue_call tells the deliveries', (select format('%s %s', deliveries, duplicate) from push.enqueue_call(
  '{"callId": "f1", "from": "x"}', '["both", "expo", "nobody"]')), '5 f');
select test.equal('enqueue_call again: the same call, a duplicate', (select format('%s %s %s', e.deliveries, e.duplicate, o.call_id)
  from push.enqueue_call(
  '{"callId": "f1", "from": "y"}', '["both"]') e join push.outbox o on o.id = e.outbox_id), '5 t f1');
select test.equal('the first payload stays', (select payload ->> 'from' from push.outbox where call_id = 'f1'), 'x');
select test.equal('what it is compared with', (select concat_ws(' ', c.state, c.payload_differs, c.recipients_differ)
  from push.compare_call('f1', '{"from": "x", "callId": "f1"}', '["both"]') c), 'ringing f t');
create function pg_temp.redial(p_call text, p_kind text default 'incoming_call') returns text language plpgsql as $$
begin
  return (select 'duplicate ' || e.duplicate from push.enqueue_call(jsonb_build_object('callId', p_call, 'from', 'x'), '["both"]', kind => p_kind) e);
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
select push.answer_call('f1', 'both') \g /dev/null
select test.equal('just after its end it is a duplicate still', pg_temp.redial('f1'), 'duplicate true');
set local session_replication_role = replica;
update push.outbox set ended_at = ended_at - interval '2 minutes' where call_id = 'f1';
set local session_replication_role = origin;
select test.equal('later it does not ring again, and says so', pg_temp.redial('f1'),
  '55R01 callId: call f1 was answered before; it does not ring again');
select test.equal('a missed call of it is announced by the gateway', pg_temp.redial('f1', 'missed_call'), 'duplicate true');
select test.equal('another app is another call', (select duplicate from push.enqueue_call('{"callId": "f1", "from": "x"}', '[]', 'other')), false);
select outbox_id as f2 from push.enqueue_call('{"callId": "f2", "from": "x"}', '[]', ring_seconds => 7) \gset
select test.equal('enqueue_call takes a ring window', (select ring_seconds from push.outbox where id = :f2), 7);
insert into push.outbox (payload, recipients) values ('{"callId": "f1", "from": "x"}', '["both"]'), ('{"callId": "f3", "from": "x"}', '["both"]'),
  ('{"callId": "f3", "from": "x"}', '["both"]');
select test.equal('a plain insert skips existing calls, also in the same statement',
  (select count(*) from push.outbox where call_id in ('f1', 'f3') and app = 'default'), 2::bigint);
select test.equal('and fans out once', (select count(*) from push.deliveries where call_id = 'f3'), 4::bigint);
