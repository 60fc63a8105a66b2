-- Kinds that do not ring; users that are skipped, and the next token of an entry.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
create function pg_temp.notify(p_kind text, p_recipients jsonb, p_payload jsonb default '{}') returns text language sql as $$
  with o as (insert into push.outbox (kind, payload, recipients) values (p_kind, '{"from": "x", "chatId": "room"}'::jsonb || p_payload, p_recipients)
    returning id) select id::text from o $$;
create function pg_temp.goes_to(p_outbox text) returns text language sql as $$
  select string_agg(format('%s:%s:%s', user_id, provider, right(device, 3)), ' ' order by user_id, provider, device) from push.deliveries
    where outbox_id = p_outbox::bigint and kind = 'notification' $$;

-- What is refused.
select test.refuses(kind || ': ' || message, message || coalesce(' (call ' || call || ')', ''), payload, p_kind => kind, p_ring => ring,
  p_call_id => given)
from (values
  ('message', '{"chatId": "r", "messageId": "m"}'::jsonb, null::int, null, 'payload.from: must be a string', 'm'),
  ('message', '{"from": "x", "messageId": "m"}', null, null, 'payload.chatId: must be a string of 1 to 256 characters', 'm'),
  ('group_invite', '{"from": "x", "chatId": "", "messageId": "m"}', null, null, 'payload.chatId: must be a string of 1 to 256 characters', 'm'),
  ('group_message', '{"from": "x", "chatId": 7, "messageId": "m"}', null, null, 'payload.chatId: must be a string of 1 to 256 characters', 'm'),
  ('message', '{"from": "x", "chatId": "r", "callId": 7}', null, null, 'payload.callId: must be a string of 1 to 128 characters, or left out', '7'),
  ('message', '{"from": "x", "chatId": "r", "callId": ""}', null, null, 'payload.callId: must be a string of 1 to 128 characters, or left out',
    'without callId'),
  ('message', '{"from": "x", "chatId": "r", "messageId": {"secret": 1}}', null, 'm',
    'payload.messageId: must be a string of 1 to 128 characters, or left out', 'm'),
  ('message', '{"from": "x", "chatId": "r"}', null, '', 'call_id: must have 1 to 128 characters; leave it out and it is filled in', 'without callId'),
  ('missed_call', '{"from": "x"}', null, null, 'payload.callId: must be a string of 1 to 128 characters', 'without callId'),
  ('missed_call', '{"callId": "a"}', null, null, 'payload.from: must be a string', 'a'),
  ('message', '{"from": "x", "chatId": "r", "messageId": "m"}', 0, null,
    'ring_seconds: must be 1 to 2419200 seconds, a notification''s time to live; leave it out for four hours', 'm'),
  ('missed_call', '{"from": "x", "callId": "m"}', 2419201, null,
    'ring_seconds: must be 1 to 2419200 seconds, a notification''s time to live; leave it out for four hours', 'm'),
  ('video_call', '{"from": "x", "callId": "m"}', 601, null, 'ring_seconds: must be 1 to 600 seconds; leave it out for the app''s own ring window',
    'm')
) bad(kind, payload, ring, given, message, call);
select test.refuses(format('a text under %s in a %s', field, kind),
  format('payload.%s: a message''s text does not travel in a push; leave it out (call m)', field),
  jsonb_build_object('from', 'x', 'chatId', 'r', 'messageId', 'm', field, 'secret'), p_kind => kind)
from unnest(array['body', 'text', 'message', 'content', 'preview', 'snippet', 'subject', 'html', 'Body', 'TEXT', 'PREVIEW']) field,
  unnest(array['message', 'group_message', 'group_invite']) kind;
select test.refuses('a text inside metadata', 'payload.metadata.Text: a message''s text does not travel in a push; leave it out (call m)',
  jsonb_build_object('from', 'x', 'chatId', 'r', 'messageId', 'm', 'metadata', metadata), p_kind => 'message')
from unnest(array['{"Text": "secret"}', '{"a": {"Text": "secret"}}', '{"a": [{"b": {"Text": "secret"}}]}']::jsonb[]) metadata;
select test.equal('a member that is null is no text', (select count(*) from unnest(array[
  '{"from": "x", "chatId": "r", "text": null}', '{"from": "x", "chatId": "r", "metadata": {"body": null}}']::jsonb[]) p,
  push.enqueue_call(p, '[]', kind => 'message')), 2::bigint);
-- An app that shows texts.
select push.register_app('default', 60, p_message_text => true) \g /dev/null
select test.equal('the text of a message is taken where the app shows it', (select count(*) from unnest(array['message', 'group_message']) k,
  push.enqueue_call('{"from": "x", "chatId": "r", "text": "a \"text\""}', '[]', kind => k)), 2::bigint);
select test.equal('and in the API''s batches', (select count(*) from push.enqueue_calls('[{"app": "default", "kind": "message", "recipients": [],
  "payload": {"from": "x", "chatId": "r", "text": "t"}}]')), 1::bigint);
select test.refuses('a text that is none', 'payload.text: must be a string, or left out (call m)',
  '{"from": "x", "chatId": "r", "messageId": "m", "text": {"secret": 1}}', p_kind => 'message');
select test.refuses('a text under another name', format('payload.%s: the text of a message is payload.text; rename it, or leave it out (call m)',
  place),
  '{"from": "x", "chatId": "r", "messageId": "m", "text": "secret"}'::jsonb || more, p_kind => 'message')
from (values ('body', '{"body": "secret"}'::jsonb), ('Text', '{"Text": "secret"}'), ('metadata.text', '{"metadata": {"text": "secret"}}')) b(place,
  more);
select test.equal('a long text is not refused: gateways cut it', (select count(*) from push.enqueue_call(jsonb_build_object('from', 'x', 'chatId',
  'r', 'text', repeat('x', 5000)), jsonb_build_array(jsonb_build_object('userId', 'u', 'apnsToken', pg_temp.hex('aaa')),
  jsonb_build_object('userId', 'v', 'fcmToken', 'notice-token-0123456789-tex')), kind => 'message')), 1::bigint);
select push.register_app('default', 60) \g /dev/null
select test.equal('a gateway of an older release changes nothing of it', (select message_text from push.apps where app = 'default'), true);
select push.register_app('default', 60, p_message_text => false) \g /dev/null
select test.refuses('it is not taken any more', 'payload.text: a message''s text does not travel in a push; leave it out (call m)',
  '{"from": "x", "chatId": "r", "messageId": "m", "text": "secret"}', p_kind => 'message');
select test.equal('a call''s metadata is the backend''s own', (select count(*)
  from push.enqueue_call('{"callId": "own-words", "from": "x", "metadata": {"text": "t"}}', '[]')), 1::bigint);
select test.refuses('an alert is smaller than a VoIP push',
  'payload: up to 4789 bytes when rendered for an APNs alert, the limit is 4096; shorten it, metadata first (call m)',
  jsonb_build_object('from', 'x', 'chatId', 'r', 'messageId', 'm', 'metadata', jsonb_build_object('a', repeat('x', 3960))),
  jsonb_build_array(jsonb_build_object('userId', 'u', 'apnsToken', pg_temp.hex('aaa'))), p_kind => 'message');

-- A new notification.
select pg_temp.notify('message', '["nobody"]', '{"callId": "c", "messageId": "m"}') as m1, pg_temp.notify('group_message', '[]', '{"messageId": "m"}')
  as m2, pg_temp.notify('group_invite', '[]') as m3 \gset
select test.equal('call_id is callId, else messageId, else a UUID', (select string_agg(case when length(call_id) = 36 then 'uuid' else call_id end,
  ' ' order by id) from push.outbox where id in (:m1, :m2, :m3)), 'c m uuid');
insert into push.outbox (kind, call_id, payload, recipients, state, end_reason, answered_by)
  values ('message', 'given', '{"from": "x", "chatId": "r", "callId": "c2"}', '[]', 'ringing', 'r', 'u');
select test.equal('a given call_id is kept; the notification is ended from the start and lives four hours',
  (select format('%s %s %s %s %s %s', state, end_reason, ended_at = created_at, answered_by, ring_seconds, deadline_at - created_at) from push.outbox
  where call_id = 'given'),
  'ended notification t  14400 04:00:00');
select test.equal('the same message twice is one', (select concat_ws(' ', a.duplicate, b.duplicate, a.outbox_id = b.outbox_id)
  from push.enqueue_call('{"from": "x", "chatId": "r", "messageId": "twice"}', '[]', kind => 'message') a,
  lateral (select * from push.enqueue_call('{"from": "x", "chatId": "r", "messageId": "twice"}', '[]', kind => case when a.outbox_id > 0
    then 'message' end)) b), 'f t t');
select test.equal('messages without an id are many', (select count(distinct outbox_id) from generate_series(1, 3) i,
  lateral push.enqueue_call(jsonb_build_object('from', 'x' || i, 'chatId', 'r'), '[]', kind => 'message')), 3::bigint);
select outbox_id as lives from push.enqueue_call('{"from": "x", "chatId": "r"}', '[]', ring_seconds => 2419200, kind => 'message') \gset
select test.equal('its own time to live', (select deadline_at - created_at from push.outbox where id = :lives), '28 days'::interval);

-- Where it goes.
insert into push.devices (user_id, provider, token, platform, voip, enabled) values
  ('all', 'apns', pg_temp.hex('a01'), 'ios', true, true), ('all', 'apns', pg_temp.hex('a02'), 'ios', false, true),
    ('all', 'apns', pg_temp.hex('a03'), 'ios', false, true),
  ('all', 'fcm', 'notice-token-0123456789-ios', 'ios', true, true), ('all', 'fcm', 'notice-token-0123456789-and', 'android', true, true),
    ('all', 'expo', 'ExponentPushToken[notice-and]', 'android', true, true),
  ('all', 'expo', 'ExponentPushToken[notice-any]', null, true, true), ('voip', 'apns', pg_temp.hex('a04'), 'ios', true, true),
    ('voip-fcm', 'apns', pg_temp.hex('a05'), 'ios', true, true),
  ('voip-fcm', 'fcm', 'notice-token-0123456789-vfc', 'ios', true, true), ('off', 'fcm', 'notice-token-0123456789-off', null, true, false);
insert into push.devices (user_id, provider, token, invalidated_at, invalid_reason)
  values ('gone', 'fcm', 'notice-token-0123456789-gon', now(), 'UNREGISTERED');
insert into push.token_invalidations (app, provider, token, reason) values ('default', 'apns', pg_temp.hex('ded'), 'Unregistered'),
  ('default', 'fcm', 'notice-token-0123456789-ded', 'UNREGISTERED');
select test.equal(kind || ': every device of a user, alert tokens before FCM before Expo on each platform, never VoIP',
  pg_temp.goes_to(pg_temp.notify(kind, '["all", "voip", "voip-fcm", "off", "gone", "nobody"]', jsonb_build_object('callId', 'to-' || kind))),
  'all:apns:a02 all:apns:a03 all:fcm:and voip-fcm:fcm:vfc') from unnest(array['message', 'group_message', 'group_invite', 'missed_call']) kind;
select test.equal('a call still rings the VoIP token', test.fan_out('["voip", "voip-fcm"]'),
  'apns:ios:production:voip:a04 apns:ios:production:voip-fcm:a05');
select test.equal('tokens of entries: alert before FCM before Expo; a VoIP token is no alert token even if given as one; dead ones are skipped',
  pg_temp.goes_to(pg_temp.notify('message', jsonb_build_array(
  jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.hex('b01'), 'apnsToken', pg_temp.hex('b02'), 'fcmToken', 'notice-token-0123456789-001'),
  jsonb_build_object('userId', 'b', 'voipPushToken', pg_temp.hex('b03'), 'fcmToken', 'notice-token-0123456789-002', 'pushToken',
    'ExponentPushToken[notice-002]'),
  jsonb_build_object('userId', 'c', 'voipPushToken', pg_temp.hex('b04')),
  jsonb_build_object('userId', 'd', 'apnsToken', pg_temp.hex('b03'), 'pushToken', 'ExponentPushToken[notice-004]'),
  jsonb_build_object('userId', 'e', 'apnsToken', pg_temp.hex('a01'), 'pushToken', 'ExponentPushToken[notice-005]'),
  jsonb_build_object('userId', 'f', 'apnsToken', pg_temp.hex('ded'), 'fcmToken', 'notice-token-0123456789-ded', 'pushToken',
    'ExponentPushToken[notice-006]'),
  jsonb_build_object('userId', 'g', 'apnsToken', pg_temp.hex('b05'), 'notificationEnabled', false)))),
  'a:apns:b02 b:fcm:002 d:expo:04] e:expo:05] f:expo:06]');

-- The rules of calls do not apply to it.
select pg_temp.notify('message', '["all"]', '{"callId": "quiet"}') as quiet \gset
select test.equal('it cannot be answered or ended', push.answer_call('quiet', 'all') or push.end_call('quiet'), false);
update push.outbox set state = 'ended', end_reason = 'x' where id = :quiet;
select test.equal('nothing was cancelled or missed by that', (select string_agg(distinct kind, ' ') || ' ' || count(*) from push.deliveries
  where outbox_id = :quiet), 'notification 3');
select push.register_gateway('one', '1') as g1 \gset
-- Run twice: deliveries with hours left come after calls.
create temp table held as select * from push.claim(:g1, 1, array(select id from push.lane where app = 'default'), array[999, 999, 999],
  array['-infinity', '-infinity', '-infinity']::timestamptz[]);
insert into held select * from push.claim(:g1, 1, array(select id from push.lane where app = 'default'), array[999, 999, 999],
  array['-infinity', '-infinity', '-infinity']::timestamptz[]);
select test.equal('the claim tells its kind', (select distinct format('%s %s', kind, app_call_kind) from held where outbox_id = :quiet and call_id is
  not null), '3 message');
create function pg_temp.claim_quiet(p_gateway int) returns void language sql as $$
  select count(*) from push.claim(p_gateway, 1, array(select id from push.lane where app = 'default'), array[999, 999, 999],
    array['-infinity', '-infinity', '-infinity']::timestamptz[]) $$;
select push.park(:g1, array_agg(outbox_id), array_agg(n), array_agg(1), array_agg(1), array_agg(0), array_agg('x'::text)) from held
  where outbox_id = :quiet;
select test.equal('parked it is not void', (select string_agg(state, ' ') from push.deliveries where outbox_id = :quiet), 'waiting waiting waiting');
select push.promote();
select test.equal('it becomes ready again', (select string_agg(state, ' ') from push.deliveries where outbox_id = :quiet), 'ready ready ready');
select pg_temp.claim_quiet(:g1);
select push.release(:g1, array_agg(outbox_id), array_agg(n), array_agg(lease)) from push.delivery where outbox_id = :quiet;
select test.equal('released, too', (select string_agg(state, ' ') from push.deliveries where outbox_id = :quiet), 'ready ready ready');
select pg_temp.claim_quiet(:g1);
select push.settle(:g1, array_agg(ctid), array_agg(outbox_id), array_agg(n), array_agg(lease), array_agg(1), array_agg(4::smallint),
  array_agg(410::smallint), array_agg('Unregistered'::text), array_agg(null::text),
  array_agg('quiet'::text), array_agg(now()), array_agg(now())) from push.delivery where outbox_id = :quiet;
select test.equal('one that fails has no fallback', (select count(*) from push.delivery_history where outbox_id = :quiet and outcome = 'dead') || ' '
  || (select count(*) from push.deliveries where outbox_id = :quiet), '3 0');
select pg_temp.notify('missed_call', '["all"]', '{"callId": "told-missed"}') as late \gset
select test.lapse('told-missed');
select test.equal('push.miss leaves it alone', push.miss(), 0::bigint);
select push.expire();
select test.equal('past its time it expires', (select string_agg(distinct kind || ' ' || outcome, ', ') from push.delivery_history
  where outbox_id = :late) || (select count(*) from push.deliveries where outbox_id = :late), 'notification expired0');

-- Dead tokens and skipped users.
select test.equal('a dead best token leaves the next, and the next', test.fan_out(jsonb_build_array(
  jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.hex('ded'), 'fcmToken', 'notice-token-0123456789-101', 'pushToken',
    'ExponentPushToken[notice-101]'),
  jsonb_build_object('userId', 'b', 'voipPushToken', pg_temp.hex('ded'), 'fcmToken', 'notice-token-0123456789-ded', 'pushToken',
    'ExponentPushToken[notice-102]'),
  jsonb_build_object('userId', 'c', 'voipPushToken', pg_temp.hex('ded'), 'fcmToken', 'notice-token-0123456789-ded'))),
    'fcm:ios:production:a:101 expo:ios:production:b:02]');
select jsonb_build_array('all', 'off', 'gone', 'nobody', 'nobody', 'off',
  jsonb_build_object('userId', 'dead', 'fcmToken', 'notice-token-0123456789-ded'),
  jsonb_build_object('userId', 'no', 'fcmToken', 'notice-token-0123456789-301', 'notificationEnabled', false),
  jsonb_build_object('userId', 'no-tokens', 'fcmToken', null), jsonb_build_object('userId', 'alert', 'apnsToken', pg_temp.hex('301')),
    jsonb_build_object('userId', 'one', 'fcmToken', 'notice-token-0123456789-302'),
  jsonb_build_object('userId', 'same', 'fcmToken', 'notice-token-0123456789-302'),
    jsonb_build_object('userId', 'half', 'fcmToken', 'notice-token-0123456789-ded'),
    jsonb_build_object('userId', 'half', 'fcmToken', 'notice-token-0123456789-303')) as mixed \gset
select test.equal('enqueue_call counts the users it skips', (select format('%s %s %s', deliveries, skipped, duplicate)
  from push.enqueue_call('{"callId": "mixed", "from": "x"}', :'mixed')), '4 7 f');
select test.equal('again: the same', (select format('%s %s %s', deliveries, skipped, duplicate)
  from push.enqueue_call('{"callId": "mixed", "from": "x"}', :'mixed')), '4 7 t');
select test.equal('the timeline shows the users and the reasons',
  (select string_agg(user_id || ' ' || reason, ', ' order by user_id) from push.timeline('mixed')
  where event = 'skipped'),
  'alert NoDevice, dead TokenInvalid, gone TokenInvalid, no NotificationsDisabled, no-tokens NoDevice, nobody NoDevice, off NotificationsDisabled');
select test.equal('a user who was reached is not reported as skipped after the call',
  push.end_call('mixed', 'busy') || (select count(*)::text from push.timeline('mixed') where event = 'skipped'), 'true7'); select test.follow();
select pg_temp.notify('message', '["voip", "all"]') as voiceless \gset
select test.equal('a notification: a VoIP token does not count', (select string_agg(user_id || ' ' || reason, ', ')
  from push.skipped_recipients(:voiceless)), 'voip NoDevice');
select test.equal('no user is skipped', (select skipped from push.enqueue_call('{"callId": "unmixed", "from": "x"}', '["all", "all"]')), 0);
create function pg_temp.age(p_call text) returns void language sql set session_replication_role = replica as $$ update push.outbox
  set created_at = '2020-01-01' where call_id = p_call $$;
select pg_temp.age('mixed');
select test.equal('once its history is dropped, no user is reported as skipped',
  (select count(*) from push.timeline('mixed') where event = 'skipped'),
  0::bigint);
