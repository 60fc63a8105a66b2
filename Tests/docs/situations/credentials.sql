-- APNs refuses our key since five minutes. One call rings.
\ir base.sql
select fixture.call('key-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'voipPushToken', repeat('c', 60) || g::text || '0')), make_interval(secs => 300 - g))
  from generate_series(100, 111) g;
select fixture.finish('key-' || g, 0, 'expired', 403, 'InvalidProviderToken', '58 s', '58 s', 12)
  from generate_series(100, 111) g;
select fixture.call('key-112', jsonb_build_array(jsonb_build_object('userId', 'user-112',
    'voipPushToken', repeat('c', 60) || '1120')), '9 s');
update push.delivery set state = 2, ready_lane = null, attempt = 3, last_reason = 'InvalidProviderToken', due_at = now() + interval '4 s'
  where outbox_id = (select id from push.outbox where call_id = 'key-112');
select fixture.lanes(array[0, 5, 2], array['open', 'closed', 'closed'], array[1, 60, 20]);
update push.lane_status set refused = 'all', refusal = 'Apple refuses the key of porteiro (403 InvalidProviderToken): check team_id '
  'TEAM123456, key_id OTHERKEY77, key_file apns-key.p8' where lane = 1;
