-- A call that rings two phones, and should not.
\ir base.sql
select fixture.call('call-13', '[{"userId": "ana", "fcmToken": "stop_fcm_token_0000000001", "platform": "android"},
  {"userId": "bruno", "fcmToken": "stop_fcm_token_0000000002", "platform": "android"},
  {"userId": "carla", "voipPushToken": "c0ffee00112233445566778899aabbccddeeff00112233445566778899aabbcc"}]', '4 s');
select fixture.finish('call-13', 0, 'delivered', 200);
select fixture.finish('call-13', 1, 'delivered', 200);
