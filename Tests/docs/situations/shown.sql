-- APNs' connection broke while a missed call was on its way, and a gateway died with another. gateway-a serves on.
\ir base.sql
select push.enqueue_call('{"callId": "call-60", "from": "doorman-7"}', jsonb_build_array(jsonb_build_object('userId', 'user-60',
    'apnsToken', repeat('60', 32), 'platform', 'ios')), 'porteiro', kind => 'missed_call');
select push.enqueue_call('{"callId": "call-61", "from": "doorman-7"}',
  '[{"userId": "user-61", "fcmToken": "shown_fcm_token_0000000061", "platform": "android"}]', 'porteiro', kind => 'missed_call');
select fixture.finish('call-60', 0, 'dead', null, 'FateUnknown', '8 ms', '3510 ms', 1, jsonb_build_array(jsonb_build_object(
    'at', push.iso_time(now()), 'attempt', 1, 'status', 0, 'reason', 'ConnectionLost')));
select fixture.finish('call-61', 0, 'dead', null, 'GatewayCrashed', null, null);
