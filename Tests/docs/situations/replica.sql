-- gateway-b stopped four minutes ago with two deliveries in its hands; gateway-a has sent them since.
\ir base.sql
update push.gateways set started_at = now() - interval '3 days';
select fixture.call('taken-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'fcmToken', 'taken_fcm_token_000000' || g)), '4 minutes') from generate_series(1, 2) g;
select fixture.finish('taken-' || g, 0, 'delivered', 200, null, '3400 ms', '3450 ms', 2) from generate_series(1, 2) g;
update push.gateways set alive = false, ended_reason = 'silent', heartbeat_at = now() - interval '4 minutes',
  ended_at = now() - interval '3 minutes 57 s' where name = 'gateway-b';
