-- Calls come in, and nothing leaves: no replica has been alive for 40 s, APNs' lane was paused yesterday and forgotten,
-- and a deployment of the backend names users whom nobody registered.
\ir base.sql
select push.pause_lane('porteiro', 'apns', 'maintenance on Friday');
set local session_replication_role = replica;
update push.lane set updated_at = now() - case provider when 'apns' then interval '20 hours' else '30 days' end;
set local session_replication_role = origin;
select fixture.call('mute-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'voipPushToken', repeat('e', 60) || g::text || '00')), make_interval(secs => 40 - g)) from generate_series(10, 15) g;
select fixture.call('mute-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'fcmToken', 'mute_fcm_token_0000000' || g)), make_interval(secs => 40 - g)) from generate_series(16, 19) g;
select fixture.call('mute-' || g, jsonb_build_array('resident:' || g), make_interval(secs => 40 - g))
  from generate_series(20, 27) g;
-- Both were killed: nobody was left to declare them dead.
update push.gateways set heartbeat_at = now() - interval '37 s';
