-- An invalid recipient affects only itself: it is skipped, with field, reason and remedy, and all others ring.
create function pg_temp.voip(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
-- The users that a call with these recipients reaches, and its report about the others.
create function pg_temp.story(p_recipients jsonb, p_app text default 'default', p_kind text default 'incoming_call') returns text language plpgsql
  as $$
declare
  v_call record;
begin
  select * into v_call from push.enqueue_call(jsonb_build_object('callId', gen_random_uuid(), 'from', 'x', 'chatId', 'c'), p_recipients, p_app,
    kind => p_kind);
  if v_call.skipped <> (select count(*) from push.skipped_recipients(v_call.outbox_id)) then
    raise exception 'skipped: %', v_call.skipped;
  end if;
  return concat_ws('; ', (select string_agg(d.user_id || ':' || right(d.token, 3), ' ' order by d.user_id, d.n) from push.delivery d
    where d.outbox_id = v_call.outbox_id),
    (select string_agg(concat_ws(' ', s.user_id, s.field, s.reason, s.remedy), '; ' order by s.field)
      from push.skipped_recipients(v_call.outbox_id) s));
end $$;
create function pg_temp.silent(p_story text) returns boolean language sql as $$ select p_story !~ 'secret' $$;

select test.equal(format('recipient %s: the others ring', entry), pg_temp.story(jsonb_build_array('{"userId": "a", "fcmToken": '
  '"skipped-token-0123456789-aaa"}'::jsonb, entry, '{"userId": "z", "fcmToken": "skipped-token-0123456789-zzz"}'::jsonb)),
  'a:aaa z:zzz; ' || concat_ws(' ', user_id, 'recipients[1]' || message))
from (values
  ('7'::jsonb, null, ' RecipientMalformed must be a user id, or an object with a userId'),
  ('null', null, ' RecipientMalformed must be a user id, or an object with a userId'),
  ('["secret"]', null, ' RecipientMalformed must be a user id, or an object with a userId'),
  ('""', '', ' RecipientMalformed must be a user id of 1 to 256 characters'),
  ('{"fcmToken": "secret-token-0123456789"}', null, '.userId RecipientMalformed must be a string of 1 to 256 characters'),
  ('{"userId": 7}', null, '.userId RecipientMalformed must be a string of 1 to 256 characters'),
  ('{"userId": ""}', '', '.userId RecipientMalformed must be a string of 1 to 256 characters'),
  ('{"userId": "u", "voipPushToken": "secret"}', 'u', '.voipPushToken TokenMalformed must be 64 to 200 hexadecimal digits, an even number'),
  ('{"userId": "u", "voipPushToken": {"secret": 1}}', 'u', '.voipPushToken TokenMalformed must be 64 to 200 hexadecimal digits, an even number'),
  ('{"userId": "u", "apnsToken": "secret"}', 'u', '.apnsToken TokenMalformed must be 64 to 200 hexadecimal digits, an even number'),
  ('{"userId": "u", "fcmToken": "secret"}', 'u',
    '.fcmToken TokenMalformed must be an FCM registration token: 20 to 4096 letters, digits or any of _ : % . -'),
  ('{"userId": "u", "fcmToken": "secret token with blanks"}', 'u',
    '.fcmToken TokenMalformed must be an FCM registration token: 20 to 4096 letters, digits or any of _ : % . -'),
  ('{"userId": "u", "pushToken": "ExponentPushToken[]"}', 'u',
    '.pushToken TokenMalformed must be ExponentPushToken[...], ExpoPushToken[...] or a UUID'),
  ('{"userId": "u", "pushToken": "secret"}', 'u', '.pushToken TokenMalformed must be ExponentPushToken[...], ExpoPushToken[...] or a UUID'),
  ('{"userId": "u", "pushToken": true}', 'u', '.pushToken TokenMalformed must be ExponentPushToken[...], ExpoPushToken[...] or a UUID'),
  ('{"userId": "u", "pushToken": "secret-raw-fcm-token-0123456789:APA91b"}', 'u',
    '.pushToken TokenMisplaced has the form of an FCM registration token; give it as fcmToken'),
  ('{"userId": "u", "pushToken": "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2"}', 'u',
    '.pushToken TokenMisplaced has the form of an APNs token; give it as voipPushToken or apnsToken'),
  ('{"userId": "u", "voipPushToken": "ExponentPushToken[secret]"}', 'u', '.voipPushToken TokenMisplaced is an Expo push token; give it as pushToken'),
  ('{"userId": "u", "fcmToken": "ExpoPushToken[secret]"}', 'u', '.fcmToken TokenMisplaced is an Expo push token; give it as pushToken'),
  ('{"userId": "u", "voipPushToken": "secret-raw-fcm-token:APA91b"}', 'u',
    '.voipPushToken TokenMisplaced has the form of an FCM registration token; give it as fcmToken'),
  ('{"userId": "u", "notificationEnabled": "false", "fcmToken": "secret-token-0123456789"}', 'u',
    '.notificationEnabled RecipientMalformed must be true or false, or left out'),
  ('{"userId": "u", "push_token": "ExponentPushToken[secret]", "notification_enabled": true}', 'u',
    '.push_token RecipientMalformed is not read; write pushToken'),
  ('{"userId": "u", "fcmToken": "secret-token-0123456789", "notification_enabled": false}', 'u',
    '.notification_enabled RecipientMalformed is not read; write notificationEnabled'),
  ('{"userId": "u", "fcmToken": "secret-token-0123456789", "notificationEnabled": null, "notification_enabled": false}', 'u',
    '.notification_enabled RecipientMalformed is not read; write notificationEnabled'),
  ('{"userId": "u", "fcmToken": "", "fcm_token": "secret-token-0123456789"}', 'u', '.fcm_token RecipientMalformed is not read; write fcmToken'),
  ('{"userId": "u", "fcm": "secret-token-0123456789"}', 'u', '.fcm RecipientMalformed is not read; write fcmToken'),
  ('{"userId": "u", "voip_tokens": [{"token": "secret"}]}', 'u', '.voip_tokens RecipientMalformed is not read; write voipPushToken'),
  ('"stranger"', 'stranger', ' NoDevice has no device for this; register one, or give a token')
) bad(entry, user_id, message);
select test.equal(format('%s: the device rings, and what is not read is told', extra), pg_temp.story(jsonb_build_array(
    '{"userId": "a", "fcmToken": "skipped-token-0123456789-aaa", "notificationEnabled": true}'::jsonb || extra)), 'a:aaa' || story)
from (values ('{"email": "secret@example.org", "name": "secret"}'::jsonb,
    '; a recipients[0].email MemberIgnored is not known, and was ignored; a recipients[0].name MemberIgnored is not known, and was ignored'),
  ('{"secret-token-as-name": 1}', ''), ('{"push_token": null, "voip_token": null}', '; a recipients[0].push_token MemberIgnored is not known, and '
    'was ignored; a recipients[0].voip_token MemberIgnored is not known, and was ignored'),
  -- These are no tokens, whatever they are called.
  ('{"subscription": "premium", "voip": false, "voip_tokens": [], "apns": {}, "expo": "", "fcm_token": null, "notification_enabled": true}', '; '
    || (select string_agg(format('a recipients[0].%s MemberIgnored is not known, and was ignored', k), '; ' order by k) from unnest(array['apns',
      'expo',
      'fcm_token', 'notification_enabled', 'subscription', 'voip', 'voip_tokens']) k)),
  ('{"fcm_token": "secret", "notification_enabled": false}', '; a recipients[0].fcm_token MemberIgnored is not known, and was ignored; '
    'a recipients[0].notification_enabled MemberIgnored is not known, and was ignored')) x(extra, story);
select test.equal(format('a VoIP token of %s digits is none', digits),
  pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken',
  repeat('a', digits)))) ~ '^u recipients.0..voipPushToken TokenMalformed', true)
  from unnest(array[62, 65, 202]) digits;
select test.equal('nor is an FCM token of 4097 characters', pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'u', 'fcmToken',
  repeat('a', 4097)))) ~ '^u recipients.0..fcmToken TokenMalformed', true);
select test.equal('an entry of more than 16384 bytes is not examined, and the others ring',
  pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'u', 'fcmToken', repeat('secret', 3000)),
  '{"userId": "z", "fcmToken": "skipped-token-0123456789-zzz"}'::jsonb)),
  'z:zzz; u recipients[0] RecipientMalformed must have at most 16384 bytes; is one of its tokens something else?');
select test.equal(format('%s is left out, and the device rings', member),
  pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.voip('aaa'), member, value))),
  format('u:aaa; u recipients[0].%s MemberIgnored %s; it was ignored', member, remedy))
from (values ('platform', '"secret"'::jsonb, 'must be ios or android, or left out'),
  ('environment', '"secret"', 'must be production or sandbox, or left out'),
  ('locale', '7', 'must be a string of at most 64 characters, or left out'),
    ('locale', to_jsonb(repeat('secret', 11)), 'must be a string of at most 64 characters, or left out')) bad(member, value, remedy);
select test.equal('as if left out', (select format('%s %s %s', environment, platform, locale) from push.delivery d where user_id = 'u'
  and token = pg_temp.voip('aaa') order by outbox_id desc limit 1), '0 1 ');
select test.equal('nothing of a recipient is ever in the answer', pg_temp.silent(pg_temp.story('["ok", {"userId": "u", "voipPushToken": "secret"}, '
  '{"userId": "v", "pushToken": "secret-raw-fcm-token-0123456789:APA91b"}]')), true);

-- Characters around a token that are removed.
select test.equal('a token as printed by a phone is cleaned', pg_temp.story(jsonb_build_array(
  jsonb_build_object('userId', 'a', 'voipPushToken', '<' || regexp_replace(pg_temp.voip('abc'), '(.{8})', '\1 ', 'g') || '>'),
  jsonb_build_object('userId', 'b', 'fcmToken', E' skipped-token-0123456789-bbb\n'),
    jsonb_build_object('userId', 'c', 'pushToken', ' ExponentPushToken[skipped-ccc] '))), 'a:abc b:bbb c:cc]');
select test.equal('it is the clean token that is owed', (select count(*) from push.delivery
  where token in (pg_temp.voip('abc'), 'skipped-token-0123456789-bbb', 'ExponentPushToken[skipped-ccc]')), 3::bigint);
select test.equal('a text of blanks alone is no token',
  pg_temp.story('[{"userId": "a", "voipPushToken": "<> ", "fcmToken": "skipped-token-0123456789-aaa"}]'), 'a:aaa');
insert into push.token_invalidations (app, provider, token, reason) values ('default', 'fcm', 'skipped-token-0123456789-ded', 'UNREGISTERED');
select test.equal('a dirty token may be a dead one', pg_temp.story('[{"userId": "a", "fcmToken": " skipped-token-0123456789-ded"}]'),
  'a recipients[0] TokenInvalid the provider reported every token as dead; the phone must register a new one');
select test.equal('a VoIP token with blanks gets no alert, even if it is also given as an alert token',
  pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'a', 'voipPushToken', '<' || pg_temp.voip('abd') || '>', 'apnsToken',
  pg_temp.voip('abd'), 'fcmToken', 'skipped-token-0123456789-aaa'),
  jsonb_build_object('userId', 'b', 'apnsToken', pg_temp.voip('abe')),
    jsonb_build_object('userId', 'c', 'apnsToken', '<' || pg_temp.voip('abd') || '>')), p_kind => 'message'),
  'a:aaa b:abe; c recipients[2] NoDevice has no device for this; register one, or give a token');

-- The next token of the same entry, and the other entries of the same user.
select test.equal('an entry with another token uses it and reports the fault',
  pg_temp.story('[{"userId": "a", "voipPushToken": "secret", "fcmToken": "skipped-token-0123456789-aaa"}]'),
  'a:aaa; a recipients[0].voipPushToken TokenMalformed must be 64 to 200 hexadecimal digits, an even number');
select test.equal('one of a user''s two phones',
  pg_temp.story('[{"userId": "a", "fcmToken": "secret"}, {"userId": "a", "fcmToken": "skipped-token-0123456789-aaa"}]'),
  'a:aaa; a recipients[0].fcmToken TokenMalformed must be an FCM registration token: 20 to 4096 letters, digits or any of _ : % . -');
select test.equal('a user without notifications is not asked for a better token',
  pg_temp.story('[{"userId": "a", "fcmToken": "secret", "notificationEnabled": false}]'),
  'a recipients[0] NotificationsDisabled the user wants no notifications; nothing to do');

-- A fault of the call itself refuses it, whatever its recipients.
select test.refuses('a call without from', 'payload.from: must be a string (call a)', '{"callId": "a"}',
  '[7, {"userId": "u", "voipPushToken": "secret"}]');

-- COPY, INSERT and the function behave alike; the timeline and the missed call of a call with cleaned tokens.
insert into push.outbox (payload, recipients) select jsonb_build_object('callId', 'alike-' || g, 'from', 'x'),
  jsonb_build_array(7, jsonb_build_object('userId', 'a', 'fcmToken', ' skipped-token-0123456789-a0' || g)) from generate_series(1, 2) g;
select test.equal('an array of rows', (select string_agg(call_id || ':' || user_id || ':'
  || (select string_agg(s.field, ',') from push.skipped_recipients(d.outbox_id) s), ' ' order by call_id) from push.deliveries d
  where call_id like 'alike-%'), 'alike-1:a:recipients[0] alike-2:a:recipients[0]');
select test.equal('the timeline tells it', (select string_agg(concat_ws(' ', event, user_id, reason, field), ', ') from push.timeline('alike-1')
  where event = 'skipped'), 'skipped RecipientMalformed recipients[0]');
select push.register_gateway('skips', '1') as g1 \gset
select count(*) from push.claim(:g1, 1, array(select id from push.lane), array_fill(99, array[99]), array_fill('-infinity'::timestamptz, array[99]));
select push.end_call('alike-1', 'declined'), push.end_call('alike-2'); select test.follow();
select test.equal('a phone whose token was cleaned gets the cancel and the missed call',
  (select string_agg(call_id || ' ' || kind || ' ' || user_id, ', ' order by call_id, n) from push.deliveries where call_id like 'alike-%'
  and kind <> 'invite'), 'alike-1 cancel a, alike-2 cancel a, alike-2 missed_call a');
select push.enqueue_call('{"callId": "nobody", "from": "x"}', '[7, {"userId": "u", "fcmToken": "secret"}, "nobody"]');
select test.equal('a call without a device still rings, because it may be answered in another way',
  (select state from push.outbox where call_id = 'nobody') || ' ' || push.answer_call('nobody', 'nobody'), 'ringing true');

-- A next channel is never a token that cannot be used.
select push.register_lane('default', 'expo'), push.register_lane('default', 'fcm'), push.register_lane('default', 'apns');
select outbox_id as chance from push.enqueue_call('{"callId": "chance", "from": "x"}',
  jsonb_build_array(jsonb_build_object('userId', 'a', 'voipPushToken', '<' || pg_temp.voip('ace') || '>', 'fcmToken', 'secret', 'pushToken',
  ' ExponentPushToken[skipped-ace]'))) \gset
select count(*) from push.claim(:g1, 2, array(select id from push.lane), array_fill(99, array[99]), array_fill('-infinity'::timestamptz, array[99]));
select test.settle(:g1, :chance, 0, 2, 4, 'Unregistered'); select test.follow();
select test.equal('the next channel is the next token that can be used',
  (select string_agg(provider || ':' || device || ':' || fallback_of, ', ') from push.deliveries where outbox_id = :chance), 'expo:Expo…ace]:0');

-- A provider that the app has not configured.
select push.register_app('partial', 60, p_providers => '{fcm}');
select test.equal('it is skipped', pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.voip('aaa')),
  '{"userId": "b", "fcmToken": "skipped-token-0123456789-bbb"}'::jsonb), 'partial'),
  'b:bbb; a recipients[0].voipPushToken ProviderNotConfigured app partial has no apns in the gateway''s configuration; add it, '
  'or give another token');
select test.equal('it makes no lane', (select string_agg(provider, ' ') from push.lanes where app = 'partial'), 'fcm');
select test.equal('an entry with another token uses it, and nothing is wrong',
  pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.voip('aaa'), 'fcmToken',
  'skipped-token-0123456789-aaa')), 'partial'), 'a:aaa');
insert into push.devices (user_id, app, provider, token, platform, voip) values ('reg', 'partial', 'apns', pg_temp.voip('a01'), 'ios', true),
  ('reg', 'partial', 'expo', 'ExponentPushToken[skipped-reg]', 'android', true),
  ('reg', 'partial', 'fcm', 'skipped-token-0123456789-reg', 'ios', true), ('lone', 'partial', 'apns', pg_temp.voip('a02'), 'ios', true),
    ('alert', 'partial', 'apns', pg_temp.voip('a03'), 'ios', false);
select test.equal('of a registered user the best channel that there is', pg_temp.story('["reg", "lone"]', 'partial'),
  'reg:reg; lone recipients[1] ProviderNotConfigured app partial lacks the providers of '
  'this user''s devices in the gateway''s configuration; add them');
select push.enqueue_call('{"callId": "unmissed", "from": "x"}', jsonb_build_array('alert',
  jsonb_build_object('userId', 'inline', 'apnsToken', pg_temp.voip('a04'), 'pushToken', 'ExponentPushToken[skipped-in]'), 'reg'), 'partial'),
  push.end_call('unmissed', app => 'partial'); select test.follow();
select test.equal('it gets no missed call', (select string_agg(user_id || ':' || provider, ' ') from push.deliveries
  where call_id = 'unmissed'), 'reg:fcm');
select test.equal('nor does that make a lane', (select string_agg(provider, ' ') from push.lanes where app = 'partial'), 'fcm');
select push.register_lane('partial', 'expo');
select outbox_id as gone from push.enqueue_call('{"callId": "gone", "from": "x"}',
  '[{"userId": "a", "fcmToken": "skipped-token-0123456789-gon", "pushToken": "ExponentPushToken[skipped-gon]"}]', 'partial') \gset
select count(*) from push.claim(:g1, 3, array(select id from push.lane), array_fill(99, array[99]), array_fill('-infinity'::timestamptz, array[99]));
select test.settle(:g1, :gone, 0, 3, 4, 'UNREGISTERED'); select test.follow();
select test.equal('nor is the lane of a former provider a next channel', (select count(*) from push.deliveries where outbox_id = :gone), 0::bigint);
select push.register_app('partial', 50);
select test.equal('a gateway of an older release changes nothing of it',
  (select format('%s %s', ring_seconds, providers) from push.apps where app = 'partial'), '50 {fcm}');
select push.register_app('partial', 50, p_providers => '{fcm,apns}');
select test.equal('once it is configured, it is used', pg_temp.story(jsonb_build_array(jsonb_build_object('userId', 'a', 'voipPushToken',
  pg_temp.voip('aaa'))), 'partial'), 'a:aaa');
