-- Expo sends as fast as it may, and more is enqueued than that. FCM is quick, but its answers take seconds.
\ir base.sql
select fixture.call('fast-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'voipPushToken', repeat('a', 60) || g)), make_interval(secs => g)) from generate_series(1000, 1019) g;
select fixture.finish('fast-' || g, 0, 'delivered', 200, null, '7 ms', '65 ms') from generate_series(1000, 1019) g;
select fixture.call('slow-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'fcmToken', 'late_fcm_token_000000' || g)), make_interval(secs => g)) from generate_series(10, 29) g;
select fixture.finish('slow-' || g, 0, 'delivered', 200, null, '9 ms', '2600 ms') from generate_series(10, 29) g;
select fixture.call('wait-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'pushToken', 'ExponentPushToken[late000000000000000' || g || ']')), make_interval(secs => 70 + g))
  from generate_series(10, 29) g;
select fixture.finish('wait-' || g, 0, 'delivered', 200, null, '9500 ms', '9600 ms') from generate_series(10, 29) g;
select fixture.call('next-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'pushToken', 'ExponentPushToken[late00000000000000' || g || ']')), '9 s') from generate_series(100, 399) g;
select fixture.lanes(array[3, 190, 600], array['closed', 'closed', 'closed'], array[40, 60, 600]);
