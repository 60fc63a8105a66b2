-- Calls that ring on Ana's iPhone (VoIP, with an alert token) and Bruno's Android phone, and had been taken by both
-- providers when the page begins.
\ir base.sql
select push.register_device('ana', 'porteiro', 'apns',
  'c0ffee00112233445566778899aabbccddeeff00112233445566778899aabbcc', platform => 'ios');
select push.register_device('ana', 'porteiro', 'apns',
  'a1e700112233445566778899aabbccddeeff00112233445566778899aabbccdd', platform => 'ios', voip => false);
select push.register_device('bruno', 'porteiro', 'fcm', 'tour_fcm_token_000000000001:APA91b', platform => 'android');
select fixture.call(c, '["ana", "bruno"]', '1 s') from unnest('{answered,declined,hung-up}'::text[]) c;
select fixture.finish(c, n, 'delivered', 200)
  from unnest('{answered,declined,hung-up}'::text[]) c, generate_series(0, 1) n;
