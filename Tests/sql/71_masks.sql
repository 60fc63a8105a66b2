-- Tokens with equal masks: all Expo tokens begin alike. Release 0.1.0 kept only a token's mask and hash in history.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
create function pg_temp.enqueue(p_call text, p_recipients jsonb, p_app text default 'masks') returns bigint language sql as $$
  insert into push.outbox (app, payload, recipients) values (p_app, jsonb_build_object('callId', p_call, 'from', 'x'), p_recipients) returning id $$;
create function pg_temp.claim_all(p_gateway int, p_app text default 'masks') returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, 1, array(select id from push.lane where app = p_app), array[9999, 9999, 9999],
    array['-infinity', '-infinity', '-infinity']::timestamptz[]) $$;
-- Settles the claimed deliveries of a call with these numbers.
create function pg_temp.settle(p_call text, p_n int[], p_outcome int) returns bigint language sql as $$
  select push.settle(min(d.owner), array_agg(d.ctid), array_agg(d.outbox_id), array_agg(d.n), array_agg(d.lease), array_agg(d.attempt::int),
    array_agg(p_outcome::smallint),
    array_agg(case p_outcome when 4 then 410 else 200 end::smallint), array_agg(case p_outcome when 4 then 'Gone' end::text), array_agg('id'::text),
      array_agg(p_call), array_agg(clock_timestamp()), array_agg(clock_timestamp()))
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.n = any (p_n) and d.state = 1 $$;
create function pg_temp.owed(p_call text) returns text language sql as $$
  select string_agg(concat_ws(':', d.kind, d.user_id, substr(d.token, 19, 3)), ' ' order by d.user_id, d.token) from push.delivery d
    join push.outbox o on o.id = d.outbox_id where o.call_id = p_call $$;
select push.register_gateway('masks', '1') as g1 \gset
select push.register_lane('masks', 'apns'), push.register_lane('masks', 'fcm'), push.register_lane('masks', 'expo') \g /dev/null
select jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('aaa'), 'pushToken', 'ExponentPushToken[one-same]',
  'platform', 'ios'),
  jsonb_build_object('userId', 'v', 'voipPushToken', pg_temp.hex('bbb'), 'pushToken', 'ExponentPushToken[two-same]', 'platform', 'ios')) as two \gset

select pg_temp.enqueue('mask-1', :'two'), pg_temp.claim_all(:g1), pg_temp.settle('mask-1', '{0}', 4), test.follow(),
  pg_temp.claim_all(:g1) \g /dev/null
select pg_temp.settle('mask-1', '{2}', 0) \g /dev/null
select test.equal('the first fallback was sent', (select device from push.delivery_history where call_id = 'mask-1' and n = 2), 'Expo…ame]');
select pg_temp.settle('mask-1', '{1}', 4) \g /dev/null
select test.follow();
select test.equal('a fallback is not swallowed by another user''s token of the same mask', pg_temp.owed('mask-1'), '0:v:two');
insert into push.follow_ups (outbox_id, why) select id, 'failed' from push.outbox where call_id = 'mask-1'; select test.follow();
select test.equal('a token that was sent to is not sent to again', pg_temp.owed('mask-1'), '0:v:two');

-- History as release 0.1.0 wrote it.
create function pg_temp.as_before(p_call text) returns void language sql as $$
  update push.history h set device = left(h.token, 4) || '…' || right(h.token, 4), token_hash = hashtextextended(h.token, 0), token = null,
    environment = null, platform = null, locale = null, data = null from push.outbox o where o.id = h.outbox_id and o.call_id = p_call $$;
select pg_temp.enqueue('mask-2', :'two'), pg_temp.claim_all(:g1), pg_temp.settle('mask-2', '{0}', 4), test.follow(), pg_temp.claim_all(:g1),
  pg_temp.settle('mask-2', '{2}', 0), pg_temp.as_before('mask-2'), pg_temp.settle('mask-2', '{1}', 4), test.follow() \g /dev/null
select test.equal('the next channel is the same', pg_temp.owed('mask-2'), '0:v:two');
insert into push.devices (user_id, app, provider, token) select 'r', 'masks', 'expo', 'ExponentPushToken[' || x || '-same]'
  from unnest('{one,two,thr}'::text[]) x;
select pg_temp.enqueue('mask-6', '["r", {"userId": "u", "pushToken": "ExponentPushToken[fou-same]"}, {"userId": "u", "pushToken": '
  '"ExponentPushToken[fiv-same]"}]'), pg_temp.claim_all(:g1), pg_temp.settle('mask-6', '{1,2,4}', 0), pg_temp.settle('mask-6', '{0,3}', 4),
  pg_temp.as_before('mask-6') \g /dev/null
delete from push.devices where user_id = 'r' and token like '%two%';
select push.end_call('mask-6', 'declined'), test.follow() \g /dev/null
select test.equal('phones that rang get a cancel, if their tokens are still known', pg_temp.owed('mask-6'), '1:r:one 1:u:fou');

insert into push.token_invalidations (app, provider, token, reason) values ('masks', 'expo', 'ExponentPushToken[bad-same]', 'DeviceNotRegistered');
select pg_temp.enqueue('mask-3', '[{"userId": "u", "pushToken": "ExponentPushToken[one-same]"}, {"userId": "v", "pushToken": '
  '"ExponentPushToken[bad-same]"}, {"userId": "w", "pushToken": "ExponentPushToken[one-same]"}]') as mask3 \gset
select test.equal('a skipped user is reported although another user''s token has the same mask; a user who shares a token is not',
  (select string_agg(concat_ws(' ', user_id, reason), ', ') from push.skipped_recipients(:mask3)), 'v TokenInvalid');
select pg_temp.claim_all(:g1), pg_temp.settle('mask-3', '{0}', 0) \g /dev/null
select test.equal('and when the other''s is finished', (select string_agg(concat_ws(' ', user_id, reason), ', ')
  from push.skipped_recipients(:mask3)), 'v TokenInvalid');

select pg_temp.enqueue('mask-4', '[{"userId": "u", "pushToken": "ExponentPushToken[one-same]"}, {"userId": "v", "pushToken": '
  '"ExponentPushToken[two-same]"}]'), pg_temp.claim_all(:g1), pg_temp.settle('mask-4', '{0,1}', 4) \g /dev/null
select test.follow();
select pg_temp.as_before('mask-4');
select test.equal('a requeue takes both', (select requeued from push.requeue('mask-4')), 2);
select test.equal('and each once', pg_temp.owed('mask-4'), '0:u:one 0:v:two');

-- A user with two phones: the one that was not rung gets no cancel.
select pg_temp.enqueue('mask-5', '[{"userId": "u", "pushToken": "ExponentPushToken[one-same]"}, {"userId": "u", '
  '"pushToken": "ExponentPushToken[two-same]"}]'), pg_temp.claim_all(:g1), pg_temp.settle('mask-5', '{0}', 0), pg_temp.settle('mask-5', '{1}', 4),
  push.end_call('mask-5', 'declined') \g /dev/null
select test.follow();
select test.equal('a cancel goes to the token that was rung, not to another with its mask', pg_temp.owed('mask-5'), '1:u:one');

-- Cancels over VoIP: only if the app says that its phones treat one as the end of a call.
select push.register_app('sdk4', 60, p_voip_cancel => true), push.register_app('sdk3', 60, p_voip_cancel => false),
  push.register_lane('sdk4', 'apns'), push.register_lane('sdk4', 'fcm'), push.register_lane('sdk3', 'apns'),
  push.register_lane('sdk3', 'fcm') \g /dev/null
select jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('ccc'), 'environment', 'sandbox', 'locale', 'nl'),
  jsonb_build_object('userId', 'v', 'fcmToken', 'mask-token-0123456789-fff')) as phones \gset
create function pg_temp.cancels(p_call text) returns text language sql as $$
  select string_agg(concat_ws(':', l.provider, d.user_id, right(d.token, 3), d.environment, d.platform, d.locale), ' ' order by d.user_id, d.token)
    from push.delivery d join push.outbox o on o.id = d.outbox_id join push.lane l on l.id = d.lane where o.call_id = p_call and d.kind = 1 $$;
select pg_temp.enqueue(app || '-1', :'phones', app), pg_temp.claim_all(:g1, app), pg_temp.settle(app || '-1', '{0,1}', 0),
  push.end_call(app || '-1', 'declined') from unnest('{sdk3,sdk4}'::text[]) app \g /dev/null
select test.follow();
select test.equal('by default none to a VoIP token', pg_temp.cancels('sdk3-1'), 'fcm:v:fff:0:0');
select test.equal('one where phones take it', pg_temp.cancels('sdk4-1'), 'apns:u:ccc:1:1:nl fcm:v:fff:0:0');
select pg_temp.enqueue('sdk4-2', :'phones', 'sdk4'), pg_temp.claim_all(:g1, 'sdk4'), push.answer_call('sdk4-2', 'v') \g /dev/null
select test.follow();
select test.equal('also while a gateway has the invite', pg_temp.cancels('sdk4-2'), 'apns:u:ccc:1:1:nl');
select pg_temp.enqueue('sdk4-3', :'phones', 'sdk4'), pg_temp.claim_all(:g1, 'sdk4'), pg_temp.settle('sdk4-3', '{0}', 4),
  push.answer_call('sdk4-3', 'v') \g /dev/null
select test.follow();
select test.equal('none to one that never rang: iOS would end an app that reports no call', pg_temp.cancels('sdk4-3'), null);
select pg_temp.enqueue('sdk4-4', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('ddd'), 'fcmToken',
  'mask-token-0123456789-ddd'), jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('eee'))), 'sdk4'),
  pg_temp.claim_all(:g1, 'sdk4'), pg_temp.settle('sdk4-4', '{0,1,2,3}', 0),
    push.answer_call('sdk4-4', 'u', device => 'mask-token-0123456789-ddd') \g /dev/null
select test.follow();
select test.equal('none to the phone that answered, by any of its tokens; its user''s other phone gets one', pg_temp.cancels('sdk4-4'),
  'apns:u:eee:0:1');
select pg_temp.enqueue('sdk4-6', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('ddd')),
  jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('eee')), jsonb_build_object('userId', 'v', 'fcmToken', 'mask-token-0123456789-ggg')),
  'sdk4'),
  pg_temp.claim_all(:g1, 'sdk4'), pg_temp.settle('sdk4-6', '{0,1,2}', 0), push.decline_call('sdk4-6', 'u') \g /dev/null
select test.follow();
select test.equal('none to any that may have declined: it has no call left to report', pg_temp.cancels('sdk4-6'), null);
select push.end_call('sdk4-6', 'declined') \g /dev/null
select test.follow();
select test.equal('not at the end of the call either', pg_temp.cancels('sdk4-6'), 'fcm:v:ggg:0:0');
insert into push.devices (user_id, app, provider, token, voip) values ('r', 'sdk4', 'apns', pg_temp.hex('fff'), true);
select pg_temp.enqueue('sdk4-5', '["r"]', 'sdk4'), pg_temp.claim_all(:g1, 'sdk4'), pg_temp.settle('sdk4-5', '{0}', 0),
  push.end_call('sdk4-5', 'declined') \g /dev/null
select test.follow();
select test.equal('a registered iPhone', pg_temp.cancels('sdk4-5'), 'apns:r:fff:0:1');
-- The phone that answers or declines may name itself by its alert token.
select pg_temp.enqueue('sdk4-7', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('aa1'), 'apnsToken',
  pg_temp.hex('aa2')), jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('aa3'), 'apnsToken', pg_temp.hex('aa4'))), 'sdk4'),
  pg_temp.claim_all(:g1, 'sdk4'), pg_temp.settle('sdk4-7', '{0,1}', 0), push.answer_call('sdk4-7', 'u', device => pg_temp.hex('aa2')) \g /dev/null
select test.follow();
select test.equal('the other iPhone gets a cancel', pg_temp.cancels('sdk4-7'), 'apns:u:aa3:0:1');
insert into push.devices (user_id, app, provider, token, voip) values ('s', 'sdk4', 'apns', pg_temp.hex('ab1'), true),
  ('s', 'sdk4', 'apns', pg_temp.hex('ab2'), false);
select pg_temp.enqueue('sdk4-8', jsonb_build_array('s', jsonb_build_object('userId', 'v', 'fcmToken', 'mask-token-0123456789-hhh')), 'sdk4'),
  pg_temp.claim_all(:g1, 'sdk4'), pg_temp.settle('sdk4-8', '{0,1}', 0), push.decline_call('sdk4-8', 's', device => pg_temp.hex('ab2')) \g /dev/null
select test.follow();
select test.equal('a registered one that has declined gets none', pg_temp.cancels('sdk4-8'), null);
select push.register_app('sdk4', 60) \g /dev/null
select test.equal('a gateway of an older release changes nothing of it', (select voip_cancel from push.apps where app = 'sdk4'), true);
