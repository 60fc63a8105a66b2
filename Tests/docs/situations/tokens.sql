-- FCM calls most tokens dead: a service account of another project was put in place. Two APNs tokens died as any do.
\ir base.sql
select push.register_device('user-' || g, 'porteiro', 'fcm', 'gone_fcm_token_0000000' || g, platform => 'android')
  from generate_series(100, 399) g;
select push.register_device('user-' || g, 'porteiro', 'apns', repeat('b', 60) || g::text || '0', platform => 'ios')
  from generate_series(100, 199) g;
update push.devices set registered_at = now() - interval '30 days';
select push.invalidate_tokens(array_agg(2::smallint), array_agg('gone_fcm_token_0000000' || g),
  array_agg(null::timestamptz), array_agg('SENDER_ID_MISMATCH'::text)) from generate_series(100, 339) g;
select push.invalidate_tokens('{1,1}', array[repeat('b', 60) || '1010', repeat('b', 60) || '1020'], '{null,null}',
  '{Unregistered,Unregistered}');
select push.hold_invalidation(2::smallint, '5 minutes', '240 of 310 answers in 300 s called the token dead');
select push.invalidate_tokens('{2}', '{gone_fcm_token_0000000341}', '{null}', '{SENDER_ID_MISMATCH}');
select push.register_device('user-100', 'porteiro', 'fcm', 'gone_fcm_token_0000000100', platform => 'android');
