-- A call for four people: Ana's VoIP token is dead and Expo took over, Bruno was reached late, Carla has switched
-- notifications off, Dario's only token is dead.
\ir base.sql
select push.register_device('ana', 'porteiro', 'apns', repeat('d', 60) || 'beef', platform => 'ios');
select push.register_device('ana', 'porteiro', 'expo', 'ExponentPushToken[silent000000000000001]', platform => 'ios');
select push.register_device('bruno', 'porteiro', 'fcm', 'silent_fcm_token_000001:APA91b', platform => 'android');
select push.register_device('carla', 'porteiro', 'fcm', 'silent_fcm_token_000002:APA91c', platform => 'android');
select push.register_device('dario', 'porteiro', 'fcm', 'silent_fcm_token_000003:APA91d', platform => 'android');
update push.devices set enabled = false where user_id = 'carla';
update push.devices set registered_at = now() - interval '40 days';
select push.invalidate_tokens('{2}', '{silent_fcm_token_000003:APA91d}', '{null}', '{UNREGISTERED}');
select fixture.call('call-77', '["ana", "bruno", "carla", "dario"]', '10 minutes');
select fixture.finish('call-77', 0, 'dead', 410, 'Unregistered', '8 ms', '64 ms');
select fixture.fallback('call-77', 2, 0, 'expo', 'ExponentPushToken[silent000000000000001]', '66 ms');
select fixture.finish('call-77', 2, 'delivered', 200, null, '5 ms', '140 ms');
select fixture.finish('call-77', 1, 'delivered', 200, null, '2350 ms', '2410 ms', 3, (
  select jsonb_build_array(
    jsonb_build_object('at', o.created_at + interval '90 ms', 'attempt', 1, 'status', 503, 'reason', 'UNAVAILABLE'),
    jsonb_build_object('at', o.created_at + interval '840 ms', 'attempt', 2, 'status', 503, 'reason', 'UNAVAILABLE'))
  from push.outbox o where o.call_id = 'call-77'));
update push.devices set invalidated_at = now() - interval '9 minutes', invalid_reason = 'Unregistered'
  where user_id = 'ana' and provider = 'apns';
insert into push.ring_reports (outbox_id, user_id, rang_at)
  select o.id, 'ana', o.created_at + interval '611 ms' from push.outbox o where o.call_id = 'call-77';
