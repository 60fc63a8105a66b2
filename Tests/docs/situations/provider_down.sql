-- FCM answers 503 for ten minutes. The app escalates after 15 s, so who has an Expo token as well was reached over Expo; one
-- call rings now.
\ir base.sql
update push.apps set escalate_after_seconds = 15;
select fixture.call('call-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g, 'platform', 'android',
    'fcmToken', 'down_fcm_token_00000000' || g, 'pushToken', 'ExponentPushToken[down000000000000000' || g || ']')),
  make_interval(secs => 600 - 10 * g)) from generate_series(10, 49) g;
select fixture.finish('call-' || g, 0, 'expired', 503, 'UNAVAILABLE', '55 s', '55 s', 9) from generate_series(10, 49) g;
select fixture.fallback('call-' || g, 1, 0, 'expo', 'ExponentPushToken[down000000000000000' || g || ']', '15 s')
  from generate_series(10, 49) g;
select fixture.finish('call-' || g, 1, 'delivered', 200, null, '10 ms', '90 ms') from generate_series(10, 49) g;
select fixture.lanes(array[3, 0, 9], array['closed', 'open', 'closed'], array[40, 0, 80]);
select fixture.call('call-50', '[{"userId": "user-50", "fcmToken": "down_fcm_token_0000000050", "platform": "android"},
  {"userId": "user-51", "fcmToken": "down_fcm_token_0000000051", "platform": "android"}]', '20 s');
update push.delivery set state = 2, ready_lane = null, attempt = 4, last_reason = 'UNAVAILABLE', due_at = now() + interval '3 s'
  where n = 1 and outbox_id = (select id from push.outbox where call_id = 'call-50');
select fixture.finish('call-50', 0, 'expired', 503, 'UNAVAILABLE', '15 s', '15 s', 7);
