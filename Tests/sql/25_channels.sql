-- The channels: their list, gateways that do not know all of them, and web push, the fourth.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
-- A browser's subscription: the keys end in three characters of their own.
create function pg_temp.browser(p_end text, p_endpoint text default 'https://push.example/send/') returns jsonb language sql as $$
  select jsonb_build_object('endpoint', p_endpoint || p_end, 'expirationTime', null, 'keys', jsonb_build_object(
    'p256dh', 'B' || repeat('P', 82) || p_end || '8', 'auth', repeat('s', 21) || 'Q')) $$;
create function pg_temp.token(p_end text) returns text language sql as $$
  select format('https://push.example/send/%s#auth=%sQ&p256dh=B%s%s8', p_end, repeat('s', 21), repeat('P', 82), p_end) $$;
create function pg_temp.device(p_user text, p_provider text, p_token text, p_platform text default null) returns text language plpgsql as $$
begin
  perform push.register_device(p_user, 'web', p_provider, p_token, platform => p_platform, voip => true);
  return 'accepted';
exception when others then
  return sqlerrm;
end $$;
create function pg_temp.story(p_recipients jsonb, p_app text default 'web', p_kind text default 'incoming_call') returns text language plpgsql as $$
declare
  v_call record;
begin
  select * into v_call from push.enqueue_call(jsonb_build_object('callId', gen_random_uuid(), 'from', 'x', 'chatId', 'c'), p_recipients, p_app,
    kind => p_kind);
  if v_call.skipped <> (select count(*) from push.skipped_recipients(v_call.outbox_id)) then
    raise exception 'skipped: %', v_call.skipped;
  end if;
  return concat_ws('; ', (select string_agg(concat_ws(':', d.user_id, d.provider, d.platform, right(d.device, 4)), ' ' order by d.user_id, d.n)
    from push.deliveries d where d.outbox_id = v_call.outbox_id),
    (select string_agg(concat_ws(' ', s.user_id, s.field, s.reason, s.remedy), '; ' order by s.field)
      from push.skipped_recipients(v_call.outbox_id) s));
end $$;
create function pg_temp.owed(p_call text) returns text language sql as $$
  select string_agg(concat_ws(':', d.kind, d.user_id, d.provider, d.platform, right(d.device, 4)), ' ' order by d.n) from push.deliveries d
    where d.call_id = p_call $$;

-- One list.
select test.equal('each is known and has a form', (select count(*) from unnest(push.channels()) c
  where push.token_remedy(c, '!') ~ '^must be '), cardinality(push.channels())::bigint);
select test.equal('names that are taken for those of members are known', (select string_agg(n, ' ') from unnest(push.recipient_members(true)) n
  where push.is_recipient(jsonb_build_object('userId', 'u', n, repeat('ab', 32)))), null);
select test.equal('and what each stands for', (select string_agg(m.member || m.count, ' ' order by m.member) from (
  select m.member, count(*) from unnest(push.recipient_members(true)) n
  cross join lateral push.misnamed(jsonb_build_object(n, repeat('ab', 32))) m group by 1) m),
  'apnsToken3 fcmToken4 notificationEnabled3 pushToken6 voipPushToken6 webPushSubscription4');
select test.equal('a payload''s size is checked for each', cardinality(push.size_faults(jsonb_build_object('callId', 'a', 'from',
  repeat('x', 9000)))), cardinality(push.channels()));
select test.equal('platforms and their codes', (select string_agg(push.platform_code(p, null)::text, ' ') from unnest(
  '{ios,android,web}'::text[]) p), '1 2 3');
select test.equal('a device without a platform has that of its channel, if there is one',
  (select string_agg(push.platform_code(null, c)::text, ' ' order by i) from unnest(push.channels()) with ordinality l(c, i)), '1 2 0 3');
select test.equal('the CHECKs ask the list', (select string_agg(conname || ' ' || convalidated, ', ' order by conname) from pg_constraint
  where connamespace = 'push'::regnamespace and contype = 'c' and pg_get_constraintdef(oid) ~ '\mchannels\(|''web'''),
  'apps_providers_known true, devices_platform_known true, devices_provider_known true, lane_provider_known true, '
  'quarantined_tokens_provider_known true, token_invalidations_provider_known true');

-- What a gateway does not know, it does not remove.
select push.register_app('mixed', 60, p_providers => '{apns,webpush}', p_known => push.channels()) \g /dev/null
select push.register_app('mixed', 60, p_providers => '{apns,fcm}') \g /dev/null
select test.equal('a gateway of 0.1.0 keeps web push', (select providers::text from push.apps where app = 'mixed'), '{apns,fcm,webpush}');
select push.register_app('mixed', 60) \g /dev/null
select test.equal('one that names none changes none', (select providers::text from push.apps where app = 'mixed'), '{apns,fcm,webpush}');
select push.register_app('mixed', 60, p_providers => '{fcm}', p_known => push.channels()) \g /dev/null
select test.equal('one that knows it removes it', (select providers::text from push.apps where app = 'mixed'), '{fcm}');
select test.equal('its lanes stay', (select string_agg(channel, ' ' order by id) from push.lane where app = 'mixed'),
  'apns webpush/google webpush/mozilla webpush/apple webpush/windows webpush/other fcm expo');
select push.register_app('untold', 60) \g /dev/null
select test.equal('an app of which nothing is known has the first channels', (select string_agg(provider, ' ' order by id) from push.lane
  where app = 'untold'), 'apns fcm expo');
select test.equal('so its browsers are not reached', pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'u', 'webPushSubscription',
  pg_temp.browser('u01'))), 'untold'),
  'u recipients[0].webPushSubscription ProviderNotConfigured app untold has no webpush in the gateway''s configuration; add it, or give another '
  'token');

-- The subscription as a token.
select push.register_app('web', 60, p_providers => '{apns,fcm,expo,webpush}', p_known => push.channels()) \g /dev/null
select test.equal('the browser''s JSON becomes one text', push.webpush_token(pg_temp.browser('abc')::text), pg_temp.token('abc'));
select test.equal('which is accepted as it is', push.webpush_token(pg_temp.token('abc')), pg_temp.token('abc'));
select test.equal('in any order, with padding, escapes and the other alphabet', push.webpush_token(
  '{"keys":{"auth":"+/sssssssssssssssssssQ==","p256dh":"BP+' || repeat('P', 83) || '8="},"endpoint":"https:\/\/push.example\/x"}'),
  'https://push.example/x#auth=-_sssssssssssssssssssQ&p256dh=BP-' || repeat('P', 83) || '8');
select test.equal('with = & + escaped, as some libraries do', push.webpush_token('{"endpoint":"https://push.example/?a\u003d%2b\u0026b\u003D1",'
  || '"keys":{"auth":"\u002B' || repeat('s', 20) || 'Q\u003d\u003d","p256dh":"B' || repeat('P', 85) || '8\u003d"}}'),
  'https://push.example/?a=%2b&b=1#auth=-' || repeat('s', 20) || 'Q&p256dh=B' || repeat('P', 85) || '8');
select test.equal(format('no token: %s', why), push.webpush_token(token), null)
from (values
  ('clear text', replace(pg_temp.browser('abc')::text, 'https', 'http')),
  ('no host', pg_temp.browser('abc', 'https:///send/')::text),
  ('a user name', pg_temp.browser('abc', 'https://user@push.example/')::text),
  ('a fragment', pg_temp.browser('abc', 'https://push.example/#')::text),
  ('a backslash', pg_temp.browser('abc', 'https://push.example/\')::text),
  ('a blank', pg_temp.browser('abc', 'https://push.example/ ')::text),
  ('no path', pg_temp.browser('', 'https://push.example')::text),
  ('too long', pg_temp.browser('abc', 'https://push.example/' || repeat('x', 900))::text),
  ('no auth', (pg_temp.browser('abc') #- '{keys,auth}')::text),
  ('no p256dh', (pg_temp.browser('abc') #- '{keys,p256dh}')::text),
  ('a short secret', replace(pg_temp.browser('abc')::text, 'sQ', 'Q')),
  ('bits that base64url does not use', replace(pg_temp.browser('abc')::text, 'sQ', 'sR')),
  ('a compressed key', replace(pg_temp.browser('abc')::text, 'BP', 'CP')),
  ('no JSON', '{'), ('an FCM token', 'device-token-0123456789:APA91b'), ('nothing', '')) t(why, token);
-- The gateway's test has the same cases.
select test.equal(format('%s: %s', case when (c ->> 'accepted')::boolean then 'token' else 'no token' end, c ->> 'why'),
  push.is_token('webpush', concat(c ->> 'endpoint', '#auth=', coalesce(c ->> 'auth', 'BTBZMqHH6r4Tts7J_aSIgg'), '&p256dh=',
    coalesce(c ->> 'p256dh', 'BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4'))),
  (c ->> 'accepted')::boolean)
from jsonb_array_elements(:'subscriptions'::jsonb) c;
select test.equal('push service: ' || (c ->> 'why'), push.push_service('webpush', (c ->> 'endpoint') || '#auth=a&p256dh=b'), c ->> 'service')
from jsonb_array_elements(:'subscriptions'::jsonb) c where c ? 'service';
select test.equal('a recipient with an impossible endpoint is skipped', pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'z',
  'webPushSubscription', pg_temp.browser('z01', 'https://push..example:70000/')))), 'z recipients[0].webPushSubscription TokenMalformed must be the '
  'browser''s PushSubscription: an object with endpoint (https), keys.p256dh and keys.auth, at most 1000 characters in all');
select test.equal('an endpoint as long as possible', length(push.webpush_token(pg_temp.browser('abc', 'https://push.example/'
  || repeat('x', 853))::text)), 1000);

-- Devices.
select test.equal('a browser is registered', pg_temp.device('amy', 'webpush', pg_temp.browser('a01')::text), 'accepted');
select test.equal('as the same device in either form', pg_temp.device('amy', 'webpush', pg_temp.token('a01')), 'accepted');
select test.equal('once, on the platform web', (select string_agg(concat_ws(' ', user_id, platform, token = pg_temp.token('a01')), ', ')
  from push.devices where app = 'web'), 'amy web t');
select test.equal('the mask shows the protocol and the public key, nothing of the secret', (select device from push.registered_devices
  where app = 'web'), 'http…a018');
select test.equal('bad browser: ' || want, pg_temp.device('amy', provider, token, platform), want) from (values
  ('webpush', 'secret', null, 'push.devices.token: must have the form of a token of provider webpush'),
  ('webpush', '{"endpoint": "secret"', null, 'push.devices.token: must have the form of a token of provider webpush'),
  ('webpush', pg_temp.token('a02'), 'ios', 'push.devices.platform: must be web, or null, with provider webpush'),
  ('fcm', 'device-token-0123456789', 'web', 'push.devices.platform: must be ios or android, or null')) d(provider, token, platform, want);

-- Browsers ring beside phones.
select pg_temp.device('amy', 'apns', pg_temp.hex('aa1'), 'ios'), pg_temp.device('amy', 'fcm', 'device-token-0123456789-aa2', 'android'),
  pg_temp.device('amy', 'webpush', pg_temp.token('a02')) \g /dev/null
select test.equal('a call rings on each platform', pg_temp.story('["amy"]'),
  'amy:apns:ios:0aa1 amy:fcm:android:-aa2 amy:webpush:web:a018 amy:webpush:web:a028');
select pg_temp.device('cat', 'expo', 'ExponentPushToken[cat-1]'), pg_temp.device('cat', 'webpush', pg_temp.token('c01')) \g /dev/null
select test.equal('also beside a phone of unknown platform', pg_temp.story('["cat"]'), 'cat:expo:t-1] cat:webpush:web:c018');
select pg_temp.device('dan', 'webpush', pg_temp.token('d' || lpad(i::text, 2, '0'))) from generate_series(1, 12) i \g /dev/null
select pg_temp.device('dan', 'fcm', 'device-token-0123456789-dd1', 'android') \g /dev/null
update push.devices set registered_at = now() - interval '1 year' where user_id = 'dan' and provider = 'fcm';
select test.equal('old subscriptions never displace a phone', pg_temp.story('["dan"]') ~ 'dan:fcm:android', true);
select test.equal('a message goes to the browser, too', pg_temp.story('["cat"]', 'web', 'message'), 'cat:expo:t-1] cat:webpush:web:c018');
select test.equal('an entry is one device: the browser', pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'eve', 'platform', 'web',
  'webPushSubscription', pg_temp.browser('e01')), jsonb_build_object('userId', 'eve', 'voipPushToken', pg_temp.hex('ee1')))),
  'eve:apns:ios:0ee1 eve:webpush:web:e018');
select test.equal('or its best channel', pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'eve',
  'fcmToken', 'device-token-0123456789-ee2', 'webPushSubscription', pg_temp.browser('e01')))), 'eve:fcm:-ee2');
select test.equal(format('recipient %s', why), regexp_replace(pg_temp.story(jsonb_build_array(entry)), '^z\S+; ', ''), want) from (values
  ('malformed', jsonb_build_object('userId', 'z', 'webPushSubscription', pg_temp.browser('zzz') - 'keys'), 'z recipients[0].webPushSubscription '
    'TokenMalformed must be the browser''s PushSubscription: an object with endpoint (https), keys.p256dh and keys.auth, at most 1000 characters '
    'in all'),
  ('a number', '{"userId": "z", "webPushSubscription": 7}', 'z recipients[0].webPushSubscription TokenMalformed must be the browser''s '
    'PushSubscription: an object with endpoint (https), keys.p256dh and keys.auth, at most 1000 characters in all'),
  ('with an FCM token there', '{"userId": "z", "webPushSubscription": "secret-raw-fcm-token:APA91b"}', 'z recipients[0].webPushSubscription '
    'TokenMisplaced has the form of an FCM registration token; give it as fcmToken'),
  ('with a subscription as FCM token', jsonb_build_object('userId', 'z', 'fcmToken', pg_temp.browser('zzz')), 'z recipients[0].fcmToken '
    'TokenMisplaced is a browser''s subscription; give it as webPushSubscription'),
  ('with the platform of a phone', '{"userId": "z", "fcmToken": "device-token-0123456789-zz1", "platform": "web"}', 'z recipients[0].platform '
    'MemberIgnored must be ios or android, or left out; it was ignored')) r(why, entry, want);

-- The push service of each browser has a lane.
select c.* from push.enqueue_call('{"callId": "lanes", "from": "x"}', (select jsonb_agg(jsonb_build_object('userId', 'u' || n, 'webPushSubscription',
      pg_temp.browser('l0' || n, endpoint))) from unnest('{https://web.push.apple.com/,https://fcm.googleapis.com/,https://push.example/}'::text[])
    with ordinality e(endpoint, n)), 'web') c \g /dev/null
select test.equal('a push goes to the lane of its push service', (select string_agg(concat_ws(' ', l.channel, substring(d.token from '^[^#]*')),
  ', ' order by l.channel) from push.delivery d join push.outbox o on o.id = d.outbox_id join push.lane l on l.id = d.lane where o.call_id = 'lanes'),
  'webpush/apple https://web.push.apple.com/l01, webpush/google https://fcm.googleapis.com/l02, webpush/other https://push.example/l03');
select push.pause_lane('web', 'webpush', 'test') \g /dev/null
select test.equal('a pause is of all of them', (select string_agg(distinct concat_ws(' ', paused, note), ', ') from push.lanes
  where app = 'web' and provider = 'webpush'), 't test');
select push.resume_lane('web', 'webpush') \g /dev/null
select test.equal('which ends with all of them', (select count(*) from push.lanes where app = 'web' and (paused or note is not null)), 0::bigint);
update push.lanes set paused = true, note = 'one' where app = 'web' and channel = 'webpush/google';
select test.equal('one of them can be paused, too', (select string_agg(channel || note, ' ') from push.lanes where app = 'web' and paused),
  'webpush/googleone');
select push.resume_lane('web', 'webpush/google') \g /dev/null
select l.id as apple from push.lane l where l.app = 'web' and l.service = 'apple' \gset
select push.invalidate_tokens(array_agg(l.id), array_agg(push.webpush_token(pg_temp.browser(e.name, e.endpoint)::text)),
  array_agg(null::timestamptz), array_agg('HTTP410'::text))
  from (values ('q01', 'https://web.push.apple.com/', 'apple'), ('q02', 'https://fcm.googleapis.com/', 'google')) e(name, endpoint, service)
  join push.lane l on l.app = 'web' and l.service = e.service \g /dev/null
select push.hold_invalidation(:apple::smallint, '1 hour', 'many') \g /dev/null
select test.equal('of the dead tokens those of one push service are quarantined', (select string_agg(push.push_service('webpush', token), ' ')
  from push.quarantined_tokens where app = 'web'), 'apple');
select test.equal('only its lane is on hold', (select string_agg(channel, ' ') from push.lanes where invalidation_held_at is not null),
  'webpush/apple');
select test.equal('nobody ends it for another one', (select concat_ws(' ', r.was_held, r.forgotten)
  from push.resume_invalidation('web', 'webpush/google', true) r), 'f 0');
select test.equal('which an operator ends by the provider', (select r.was_held from push.resume_invalidation('web', 'webpush', true) r), true);
select test.equal('for all of its lanes', (select count(*) from push.lanes where invalidation_held_at is not null)
  + (select count(*) from push.quarantined_tokens where app = 'web'), 0::bigint);
select push.void_call('lanes', 'test', 'web') \g /dev/null
delete from push.token_invalidations where app = 'web';

-- The end of a call, and dead subscriptions.
select push.register_gateway('web', '1') as g1 \gset
create function pg_temp.claim_all(p_gateway int) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, 1, array(select id from push.lane where app = 'web' order by id), array_fill(99, array[8]),
    array_fill('-infinity'::timestamptz, array[8])) $$;
create function pg_temp.settle(p_call text, p_provider text, p_outcome int) returns bigint language sql as $$
  select sum(push.settle(d.owner, array[d.ctid], array[d.outbox_id], array[d.n], array[d.lease], array[d.attempt::int], array[p_outcome]::smallint[],
    array[case p_outcome when 4 then 410 else 201 end]::smallint[], array[case p_outcome when 4 then 'HTTP410' end], array[null], array[p_call],
    array[clock_timestamp()], array[clock_timestamp()]))::bigint
  from push.delivery d join push.outbox o on o.id = d.outbox_id join push.lane l on l.id = d.lane
  where o.call_id = p_call and l.provider = p_provider and d.state = 1 $$;
select push.void_call(call_id, 'test', app) from push.outbox where app = 'web' and state = 'ringing' \g /dev/null
select test.follow();
delete from push.devices where user_id = 'dan';
select push.enqueue_call('{"callId": "web-1", "from": "x"}', jsonb_build_array('amy', jsonb_build_object('userId', 'eve', 'webPushSubscription',
  pg_temp.browser('e01'))), 'web'), pg_temp.claim_all(:g1), pg_temp.settle('web-1', 'webpush', 0), pg_temp.settle('web-1', 'fcm', 0),
  pg_temp.settle('web-1', 'apns', 0) \g /dev/null
select push.answer_call('web-1', 'amy', 'web', pg_temp.browser('a01')::text) \g /dev/null
select test.follow();
select test.equal('answered in a browser: other browsers and phones get a cancel', pg_temp.owed('web-1'),
  'cancel:amy:fcm:android:-aa2 cancel:amy:webpush:web:a028 cancel:eve:webpush:web:e018');
select push.enqueue_call('{"callId": "web-2", "from": "x"}', '["cat"]', 'web'), pg_temp.claim_all(:g1), pg_temp.settle('web-2', 'webpush', 0),
  pg_temp.settle('web-2', 'expo', 0) \g /dev/null
select push.answer_call('web-2', 'cat', 'web', 'ExponentPushToken[cat-1]') \g /dev/null
select test.follow();
select test.equal('answered on a phone of unknown platform: the browser gets a cancel', pg_temp.owed('web-2'), 'cancel:cat:webpush:web:c018');
select push.enqueue_call('{"callId": "web-3", "from": "x"}', '["cat"]', 'web'), pg_temp.claim_all(:g1), pg_temp.settle('web-3', 'webpush', 0),
  pg_temp.settle('web-3', 'expo', 0) \g /dev/null
select push.answer_call('web-3', 'cat', 'web', pg_temp.token('c01')) \g /dev/null
select test.follow();
select test.equal('answered in the browser: the phone gets a cancel', pg_temp.owed('web-3'), 'cancel:cat:expo:t-1]');
select push.enqueue_call('{"callId": "web-4", "from": "x"}', '["amy"]', 'web'), pg_temp.claim_all(:g1) \g /dev/null
select pg_temp.settle('web-4', 'apns', 4) \g /dev/null
select test.follow();
select test.equal('a browser never stands in for a phone', (select string_agg(distinct provider, ' ') from push.deliveries
  where call_id = 'web-4' and state = 'ready'), null);
select pg_temp.settle('web-4', 'webpush', 4) \g /dev/null
select test.follow();
select test.equal('nor a phone for a browser', (select string_agg(distinct provider, ' ') from push.deliveries where call_id = 'web-4'
  and state = 'ready'), null);
select push.invalidate_tokens(array[l.id], array[pg_temp.token('a01')], array[null]::timestamptz[], array['HTTP410']) from push.lane l
  where l.app = 'web' and l.provider = 'webpush' \g /dev/null
select test.equal('a dead subscription is marked, and masked', (select concat_ws(' ', provider, user_id, device, reason) from push.dead_devices
  where app = 'web'), 'webpush amy http…a018 HTTP410');
select test.equal('it is not used again', pg_temp.story('["amy"]'), 'amy:apns:ios:0aa1 amy:fcm:android:-aa2 amy:webpush:web:a028');
select push.end_call('web-4', app => 'web') \g /dev/null
select test.follow();
select push.enqueue_call('{"callId": "web-5", "from": "x"}', jsonb_build_array(jsonb_build_object('userId', 'fay', 'webPushSubscription',
  pg_temp.browser('f01'))), 'web'), pg_temp.claim_all(:g1), pg_temp.settle('web-5', 'webpush', 0), push.end_call('web-5', app => 'web') \g /dev/null
select test.follow();
select push.sync(:g1) \g /dev/null
select test.equal('a missed call is shown in a browser if there is no phone', pg_temp.owed('web-5') ~ 'missed_call:fay:webpush:web:f018', true);
select push.enqueue_call('{"callId": "web-8", "from": "x"}', jsonb_build_array(jsonb_build_object('userId', 'jan', 'webPushSubscription',
  pg_temp.browser('j01'))), 'web'), push.answer_call('web-8', app => 'web', device => pg_temp.browser('j01')::text) \g /dev/null
select test.follow();
select test.equal('a browser of recipients determines the user who answered', (select answered_by from push.outbox where call_id = 'web-8'), 'jan');
select test.equal('a browser is dropped in either form', push.drop_device('web', 'webpush', pg_temp.browser('a02')::text), true);
select test.equal('it is gone', push.drop_device('web', 'webpush', pg_temp.token('a02')), false);

-- Erasing a user.
insert into push.outbox (app, payload, recipients) select 'web', '{"callId": "web-6", "from": "x"}'::jsonb,
  jsonb_agg(jsonb_build_object('userId', u, 'webPushSubscription', pg_temp.browser('g01')) order by u) from unnest('{gil,hal}'::text[]) u;
select test.equal('a browser of two users has one delivery, the first''s', pg_temp.owed('web-6'), 'invite:gil:webpush:web:g018');
select push.erase_user('gil', 'web', 60000) \g /dev/null
select test.follow();
select test.equal('when the first is erased, it rings on for the other', pg_temp.owed('web-6'), 'invite:hal:webpush:web:g018');
insert into push.token_invalidations (app, provider, token, user_id, reason) values ('web', 'webpush', pg_temp.token('i01'), null, 'HTTP410');
select push.enqueue_call('{"callId": "web-7", "from": "x"}', jsonb_build_array(jsonb_build_object('userId', 'ida', 'webPushSubscription',
  pg_temp.browser('i01'))), 'web'), push.end_call('web-7', app => 'web') \g /dev/null
select test.follow();
select push.erase_user('ida', 'web', 60000) \g /dev/null
select test.equal('a subscription that only a call knew as the user''s is erased', (select count(*) from push.token_invalidations
  where token = pg_temp.token('i01')), 0::bigint);
