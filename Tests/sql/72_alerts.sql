-- An iPhone that is not reached through PushKit gets a visible push: it would not show a data message alone.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
create function pg_temp.owed(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s', d.user_id, l.provider, d.platform), ' ' order by d.user_id, d.n) from push.delivery d join push.outbox o
    on o.id = d.outbox_id join push.lane l on l.id = d.lane where o.call_id = p_call $$;
create function pg_temp.fail(p_call text, p_gateway int, p_claim int) returns void language plpgsql as $$
begin
  perform push.claim(p_gateway, p_claim, array(select id from push.lane), array_fill(99, array[99]), array_fill('-infinity'::timestamptz, array[99]));
  perform push.settle(d.owner, null, array[d.outbox_id], array[d.n], array[d.lease], '{1}', '{4}', '{410}', '{Unregistered}', '{null}', array[p_call],
    array[clock_timestamp()], array[clock_timestamp()])
    from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.state = 1;
end $$;
select push.register_gateway('alerts', '1') as g, push.register_lane('default', 'apns'), push.register_lane('default', 'fcm'),
  push.register_lane('default', 'expo') \gset
select test.equal('an entry with an APNs token is an iPhone, unless its platform is android',
  (select string_agg(push.entry_platform('fcm', e::jsonb)::text, ' ' order by n)
  from (values (1, '{"voipPushToken": "x"}'), (2, '{"apnsToken": "x", "platform": null}'),
  (3, '{"voipPushToken": "x", "platform": "android"}'), (4, '{"voipPushToken": ""}'), (5, '{"fcmToken": "x"}'), (6, '{"platform": "ios"}'),
    (7, '"u"')) v(n, e)), '1 1 2 0 0 1 0');
select push.enqueue_call('{"callId": "next", "from": "x"}', jsonb_build_array(
  jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.hex('a01'), 'pushToken', 'ExponentPushToken[alerts-a01]'),
  jsonb_build_object('userId', 'b', 'voipPushToken', pg_temp.hex('b01'), 'fcmToken', 'alerts-token-0123456789-b01'),
  jsonb_build_object('userId', 'c', 'voipPushToken', pg_temp.hex('c01'), 'pushToken', 'ExponentPushToken[alerts-c01]', 'platform',
    'android'))) \g /dev/null
select pg_temp.fail('next', :g, 1) \g /dev/null
select test.follow();
select test.equal('its next channel is an iPhone''s, too', pg_temp.owed('next'), 'a:expo:1 b:fcm:1 c:expo:2');
insert into push.token_invalidations (app, provider, token, reason, user_id) select 'default', 'apns', pg_temp.hex('d01'), 'Unregistered', 'd';
select push.enqueue_call('{"callId": "dead", "from": "x"}', jsonb_build_array(jsonb_build_object('userId', 'd', 'voipPushToken', pg_temp.hex('d01'),
  'pushToken', 'ExponentPushToken[alerts-d01]'))) \g /dev/null
select test.equal('also if its VoIP token is known to be dead', pg_temp.owed('dead'), 'd:expo:1');
select push.claim(:g, 2, array(select id from push.lane), array_fill(99, array[99]), array_fill('-infinity'::timestamptz, array[99])),
  push.end_call('dead') \g /dev/null
select test.follow();
select test.equal('so are its cancel and missed call', (select string_agg(d.kind || ':' || platform, ' ' order by d.kind) from push.delivery d
  join push.outbox o on o.id = d.outbox_id where o.call_id = 'dead'), '0:1 1:1 2:1');
insert into push.devices (user_id, provider, token, platform) values ('reg', 'apns', pg_temp.hex('e01'), 'ios'),
  ('reg', 'expo', 'ExponentPushToken[alerts-e01]', null);
select push.enqueue_call('{"callId": "reg", "from": "x"}', '["reg"]') \g /dev/null
select pg_temp.fail('reg', :g, 3) \g /dev/null
select test.follow();
select test.equal('a registered token of unknown platform counts as the phone that failed', pg_temp.owed('reg'), 'reg:expo:1');
