-- Calls and devices that are refused, and their errors.
select test.refuses('payload must be an object', 'payload: must be an object (call without callId)', '["secret"]');
select test.refuses('payload may not be null', 'payload: must be an object (call without callId)', null);
select test.refuses('callId is required', 'payload.callId: must be a string of 1 to 128 characters (call without callId)', '{"from": "x"}');
select test.refuses('callId must be a string', 'payload.callId: must be a string of 1 to 128 characters (call 7)', '{"callId": 7, "from": "x"}');
select test.refuses('callId may not be empty', 'payload.callId: must be a string of 1 to 128 characters (call without callId)',
  '{"callId": "", "from": "x"}');
select test.refuses('callId has at most 128 characters', 'payload.callId: must be a string of 1 to 128 characters (call ' || repeat('c', 128) || ')',
  jsonb_build_object('callId', repeat('c', 129), 'from', 'x'));
select test.refuses('a very long callId is refused, not an index error',
  'payload.callId: must be a string of 1 to 128 characters (call ' || repeat('c', 128) || ')',
  jsonb_build_object('callId', repeat('c', 9000), 'from', 'x'));
select test.refuses('call_id must equal callId', 'call_id: must equal payload.callId; leave it out and it is filled in (call b)',
  '{"callId": "a", "from": "x"}', p_call_id => 'b');
select test.refuses('from is required', 'payload.from: must be a string (call a)', '{"callId": "a"}');
select test.refuses('from must be a string', 'payload.from: must be a string (call a)', '{"callId": "a", "from": {"secret": 1}}');
select test.refuses(field || ' must be a string', format('payload.%s: must be a string, or left out (call a)', field),
  jsonb_build_object('callId', 'a', 'from', 'x', field, '["secret"]'::jsonb))
  from unnest(array['fromName', 'apartmentNumber', 'buildingName', 'channelName']) field;
select test.refuses('metadata must be an object', 'payload.metadata: must be an object, or left out (call a)',
  '{"callId": "a", "from": "x", "metadata": "secret"}');
select test.refuses('another kind is refused',
  'kind: must be incoming_call, video_call, message, group_message, group_invite or missed_call (call a)',
  '{"callId": "a", "from": "x"}', p_kind => 'sms');
select test.refuses('app must be a name', 'app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores (call a)',
  '{"callId": "a", "from": "x"}', p_app => 'a b');
select test.refuses('ring_seconds ' || ring || ' is out of range',
  'ring_seconds: must be 1 to 600 seconds; leave it out for the app''s own ring window (call a)',
  '{"callId": "a", "from": "x"}', p_ring => ring) from unnest(array[0, -1, 601, 2147483647]) ring;
select test.refuses('recipients must be an array', 'recipients: must be an array of user ids or objects (call a)', '{"callId": "a", "from": "x"}',
  '{"secret": 1}');
select test.refuses('recipients may not be null', 'recipients: must be an array of user ids or objects (call a)', '{"callId": "a", "from": "x"}',
  null);
select test.refuses('1001 recipients are too many', 'recipients: must have at most 1000 entries; split the call (call a)',
  '{"callId": "a", "from": "x"}',
  (select jsonb_agg('u' || g) from generate_series(1, 1001) g));
select test.refuses('more than two megabytes of recipients are too many',
  format('recipients: has %s bytes, the limit is 2097152; split the call (call a)', pg_column_size(big)), '{"callId": "a", "from": "x"}', big)
  from (select jsonb_build_array(jsonb_build_object('userId', 'u', 'fcmToken', repeat('secret', 500000))) as big) b;

-- One invalid call refuses the whole statement.
do $$ begin
  insert into push.outbox (payload, recipients) select jsonb_build_object('callId', 'all-' || g, 'from', case when g < 10 then 'x' end), '[]'
    from generate_series(1, 10) g;
exception when invalid_parameter_value then end $$;
select test.equal('one bad call refuses the whole statement', (select count(*) from push.outbox where call_id like 'all-%'), 0::bigint);

-- Sizes: the limit of each provider for the rendered payload.
create function pg_temp.sized(p_characters int, p_recipient jsonb) returns text language plpgsql as $$
begin
  insert into push.outbox (payload, recipients) values (
    jsonb_build_object('callId', gen_random_uuid(), 'from', 'x', 'metadata', jsonb_build_object('filler', repeat('secret', p_characters / 6))),
    jsonb_build_array(p_recipient));
  return 'accepted';
exception when invalid_parameter_value then
  return regexp_replace(regexp_replace(sqlerrm, '\d+ bytes when', 'N bytes when'), ' \(call .*', '');
end $$;
select test.equal(format('%s characters over %s', characters, recipient #>> '{}'), pg_temp.sized(characters, recipient), want)
from (values
  (4500, '{"userId": "u", "voipPushToken": "0000000000000000000000000000000000000000000000000000000000000000"}'::jsonb, 'accepted'),
  (5100, '{"userId": "u", "voipPushToken": "0000000000000000000000000000000000000000000000000000000000000000"}',
    'payload: up to N bytes when rendered for APNs VoIP, the limit is 5120; shorten it, metadata first'),
  (1500, '{"userId": "u", "fcmToken": "token-0123456789-0123456789"}', 'accepted'),
  (2040, '{"userId": "u", "fcmToken": "token-0123456789-0123456789"}',
    'payload: up to N bytes when rendered for FCM, the limit is 4096; shorten it, metadata first'),
  (3000, '{"userId": "u", "pushToken": "ExponentPushToken[0123456789]"}', 'accepted'),
  (4080, '{"userId": "u", "pushToken": "ExponentPushToken[0123456789]"}',
    'payload: up to N bytes when rendered for Expo, the limit is 4096; shorten it, metadata first'),
  (6000, '"nobody"', 'accepted'),
  (18000, '"nobody"', 'payload: has 18091 bytes, the limit is 16384; shorten it')
) size(characters, recipient, want);
select test.equal('a bound is never below what a hostile payload renders to', (push.size_faults(jsonb_build_object(
  'callId', 'a', 'from', 'x', 'metadata', jsonb_build_object('a', repeat('"', 900)))))[2] is not null, true);

-- A long name refuses no call: the gateway cuts it where a push has no room for it.
create function pg_temp.with_member(p_name text, p_value jsonb) returns text language plpgsql as $$
begin
  insert into push.outbox (payload, recipients) values (
    jsonb_build_object('callId', gen_random_uuid(), 'from', 'x') || jsonb_build_object(p_name, p_value),
    jsonb_build_array(jsonb_build_object('userId', 'u', 'fcmToken', 'token-0123456789-0123456789'),
      jsonb_build_object('userId', 'v', 'voipPushToken', repeat('0', 64)),
      jsonb_build_object('userId', 'w', 'pushToken', 'ExponentPushToken[0123456789]')));
  return 'accepted';
exception when invalid_parameter_value then
  return substring(sqlerrm from 'rendered for [^,]*');
end $$;
select test.equal(format('3,000 times %s as %s', part, name), pg_temp.with_member(name, to_jsonb(repeat(part, 3000))), 'accepted')
from unnest(array['fromName', 'callerName', 'apartmentNumber', 'buildingName', 'groupName']) name, unnest(array['x', '"', '\', '🔔']) part;
select test.equal(format('3,000 characters as %s', name), pg_temp.with_member(name, value), 'rendered for FCM')
from (values ('from', to_jsonb(repeat('x', 3000))), ('channelName', to_jsonb(repeat('x', 3000))), ('other', to_jsonb(repeat('x', 3000))),
  ('metadata', jsonb_build_object('fromName', repeat('x', 3000))), ('callerName', jsonb_build_array(repeat('x', 3000)))) member(name, value);
select test.equal(format('a name of %s characters counts as %s', characters, counts),
  push.size_faults(jsonb_build_object('fromName', repeat('é', characters), 'metadata', repeat('x', 6000))),
  push.size_faults(jsonb_build_object('fromName', counts, 'metadata', repeat('x', 6000))))
from (values (3000, repeat('é', 63) || '…'), (65, repeat('é', 63) || '…'), (64, repeat('é', 64))) name(characters, counts);
select test.equal('a long name leaves the rest too large', pg_temp.with_member('metadata', jsonb_build_object('x', repeat('x', 2500)))
  || ', ' || (push.size_faults(jsonb_build_object('fromName', repeat('x', 3000), 'metadata', jsonb_build_object('x', repeat('x', 5000)))))[1],
  'rendered for FCM, payload: up to 5357 bytes when rendered for APNs VoIP, the limit is 5120; shorten it, metadata first');

-- Devices, likewise.
create function pg_temp.device(p_app text, p_provider text, p_token text, p_environment text, p_platform text) returns text language plpgsql as $$
begin
  insert into push.devices (user_id, app, provider, token, environment, platform) values ('u', p_app, p_provider, p_token, p_environment, p_platform);
  return 'accepted';
exception when others then
  return sqlerrm;
end $$;
select test.equal('device ' || want, pg_temp.device(app, provider, token, environment, platform), want)
from (values
  ('default', 'apns', 'secret', null, null, 'push.devices.token: must have the form of a token of provider apns'),
  ('default', 'fcm', 'secret', null, null, 'push.devices.token: must have the form of a token of provider fcm'),
  ('default', 'sms', 'secret', null, null, 'push.devices.provider: must be one of apns, fcm, expo, webpush'),
  ('default', 'fcm', 'device-token-0123456789', 'staging', null, 'push.devices.environment: must be production or sandbox'),
  ('default', 'fcm', 'device-token-0123456789', null, 'symbian', 'push.devices.platform: must be ios or android, or null'),
  ('a b', 'fcm', 'device-token-0123456789', null, null,
    'push.devices.app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores'),
  ('default', 'fcm', repeat('long-token', 400), 'development', null, 'accepted'),
  ('default', 'fcm', 'device-token-0123456789', null, null, 'accepted')
) d(app, provider, token, environment, platform, want);
-- An app that no gateway has served, by the table as by the function. A row with the time of an earlier registration is a copy.
create function pg_temp.refusal(p_statement text) returns text language plpgsql as $$
declare
  v_state text;
  v_message text;
  v_hint text;
  v_column text;
begin
  execute p_statement;
  return 'accepted';
exception when others then
  get stacked diagnostics v_state = returned_sqlstate, v_message = message_text, v_hint = pg_exception_hint, v_column = column_name;
  return concat_ws(' | ', v_state, v_message, v_hint, v_column);
end $$;
select test.equal('a device of an app that no gateway has served: ' || name, pg_temp.refusal(statement), case when verb is null then 'accepted'
  else format('22023 | push.devices.app: no gateway has served app strange yet; start one that has it in its configuration, or correct the name | '
  'The device was not %s. | app', verb) end)
from (values
  ('insert', $$insert into push.devices (user_id, app, provider, token) values ('u', 'strange', 'fcm', 'strange-token-0123456789')$$, 'registered'),
  ('register', $$select push.register_device('u', 'strange', 'fcm', 'strange-token-0123456789')$$, 'registered'),
  ('update', $$update push.devices set app = 'strange' where app = 'default' and token = 'device-token-0123456789'$$, 'changed'),
  ('copy', $$insert into push.devices (user_id, app, provider, token, registered_at)
    values ('u', 'strange', 'fcm', 'strange-token-0123456789', now() - interval '1 hour')$$, null),
  ('update of the copy', $$update push.devices set locale = 'de' where app = 'strange'$$, null)
) d(name, statement, verb);

-- A caller's session may have standard_conforming_strings = off.
select test.equal('no function depends on how a backslash in a literal is read', (select string_agg(p.proname, ' ' order by p.proname)
  from pg_proc p where p.pronamespace = 'push'::regnamespace
    and strpos(regexp_replace(p.prosrc, 'E''([^'']|'''')*''', '', 'g'), chr(92)) > 0), null);
-- Or array_nulls = off.
select test.equal('nor on how a null in a list is read', (select string_agg(p.proname, ' ' order by p.proname)
  from pg_proc p where p.pronamespace = 'push'::regnamespace and p.prosrc ~ '''[{]([^''"]*,)?null[,}]'), null);
create function pg_temp.read_token() returns text language sql as $$
  select push.webpush_token(format('{"endpoint": "https:%s/%s/fcm.googleapis.com/x", "keys": {"auth": "%s", "p256dh": "B%s"}}', chr(92), chr(92),
    repeat('a', 21) || 'A', repeat('A', 86)))
    || push.push_service('webpush', 'https://fcm.googleapis.com/x') || push.is_token('expo', 'ExponentPushToken[' || repeat('x', 20) || ']') $$;
select pg_temp.read_token() as token \gset
set local standard_conforming_strings = off;
select test.equal('a subscription is read whatever the session says of backslashes', pg_temp.read_token() || left(:'token', 0), :'token');
set local standard_conforming_strings = on;
select test.equal('and is the one that was written', :'token' ~ '^https://fcm[.]googleapis[.]com/x#auth=a+A&p256dh=BA+googletrue$', true);
