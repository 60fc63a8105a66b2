-- The old APNs key was revoked before the new one was in place; since then pushes are accepted.
\ir base.sql
select fixture.call('key-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'voipPushToken', repeat('c', 60) || g::text || '0')), make_interval(secs => 400 - g))
  from generate_series(100, 111) g;
select fixture.finish('key-' || g, 0, 'expired', 403, 'InvalidProviderToken', '58 s', '58 s', 12)
  from generate_series(100, 111) g;
select fixture.call('new-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'voipPushToken', repeat('c', 60) || g::text || '0')), make_interval(secs => 140 - g))
  from generate_series(100, 119) g;
select fixture.finish('new-' || g, 0, 'delivered', 200) from generate_series(100, 119) g;
