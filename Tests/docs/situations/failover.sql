-- A standby has become the primary two minutes ago. Both replicas have registered anew.
\ir base.sql
update push.gateways set alive = false, ended_reason = 'silent', started_at = now() - interval '3 days',
  heartbeat_at = now() - interval '140 s', ended_at = now() - interval '110 s';
select push.register_gateway('gateway-a', '1.0.0');
select push.register_gateway('gateway-b', '1.0.0');
update push.gateways set started_at = now() - interval '112 s' where alive;
select fixture.lanes(array[3, 5, 2], array['closed', 'closed', 'closed'], array[40, 60, 20]);
select fixture.call('over-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'fcmToken', 'over_fcm_token_0000000' || g)), make_interval(secs => 125), case g when 1 then 60 else 180 end)
  from generate_series(1, 3) g;
select fixture.finish('over-1', 0, 'expired', null, 'DeadlinePassed', null, null, 0);
select fixture.finish('over-' || g, 0, 'delivered', 200, null, '27 s', '27050 ms', 2) from generate_series(2, 3) g;
update push.outbox set state = 'missed' where call_id = 'over-1';
