-- Values for each device and user: template data, the phone that answered, and users who declined.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
create function pg_temp.told(p_call text, p_kind text default 'cancel') returns text language sql as $$
  select string_agg(format('%s:%s', user_id, right(device, 3)), ' ' order by user_id, device) from push.deliveries where call_id = p_call
    and kind = p_kind $$;
create function pg_temp.past(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s', user_id, outcome, reason), ' ' order by user_id, n) from push.delivery_history where call_id = p_call $$;
create function pg_temp.claim_all(p_gateway int, p_claim int default 1) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, p_claim, array(select id from push.lane), array_fill(999, array[999]),
    array_fill('-infinity'::timestamptz, array[999])) $$;
-- All of a call's claimed invites, or one user's, with one outcome.
create function pg_temp.settle(p_call text, p_outcome int default 0, p_user text default null) returns bigint language sql as $$
  select sum(push.settle(d.owner, null, array[d.outbox_id], array[d.n], array[d.lease], array[1], array[p_outcome]::smallint[],
    array[200]::smallint[],
    array['x'], array['m'], array[p_call], array[clock_timestamp()], array[clock_timestamp()]))::bigint
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.state = 1 and d.kind = 0
    and (p_user is null or d.user_id = p_user) $$;
select push.register_gateway('people', '1') as g \gset

-- Template data.
select push.register_lane('default', p) from unnest('{apns,fcm,expo}'::text[]) p;
insert into push.devices (user_id, provider, token, platform, voip) values ('reg', 'apns', pg_temp.hex('d01'), 'ios', true),
  ('reg', 'apns', pg_temp.hex('d02'), 'ios', false),
  ('reg', 'fcm', 'people-token-0123456789-d03', 'android', true), ('reg', 'expo', 'ExponentPushToken[people-d04]', 'ios', true);
select push.enqueue_call('{"callId": "data", "from": "x"}', jsonb_build_array(jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.hex('aaa'),
  'fcmToken', 'people-token-0123456789-aaa', 'data', '{"phone": "+31 1", "x": "\"é\""}'::jsonb),
  '{"userId": "b", "fcmToken": "people-token-0123456789-bbb"}'::jsonb, '{"userId": "reg", "data": {"phone": "+31 2"}}'::jsonb)) \g /dev/null
create function pg_temp.data(p_call text, p_kind int default 0) returns text language sql as $$
  select string_agg(d.user_id || ':' || right(d.token, 3) || ':' || coalesce(d.data ->> 'phone', '-'), ' ' order by d.user_id, right(d.token, 3))
    from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.kind = p_kind $$;
select test.equal('each delivery has its recipient''s data', pg_temp.data('data'), 'a:aaa:+31 1 b:bbb:- reg:d01:+31 2 reg:d03:+31 2');
select test.equal('a claim returns it', (select string_agg(user_id || ':' || data, ' ' order by user_id, token)
  from push.claim(:g, 1, array(select id from push.lane), array_fill(99, array[99]), array_fill('-infinity'::timestamptz, array[99])) where data is
  not null),
  'a:{"x": "\"é\"", "phone": "+31 1"} reg:{"phone": "+31 2"} reg:{"phone": "+31 2"}');
select test.equal('settled', pg_temp.settle('data', 4, 'a') + pg_temp.settle('data', 4, 'reg') + pg_temp.settle('data', 0, 'b'), 4::bigint);
select test.follow();
select test.equal('the next channel has it, too', pg_temp.data('data'), 'a:aaa:+31 1 reg:04]:+31 2');
select pg_temp.claim_all(:g, 2), pg_temp.settle('data'), push.end_call('data'), test.follow() \g /dev/null
select test.equal('so have cancels, also of finished invites', pg_temp.data('data', 1), 'a:aaa:+31 1 b:bbb:- reg:04]:+31 2');
select test.equal('and missed calls', pg_temp.data('data', 2), 'a:aaa:+31 1 b:bbb:- reg:d02:+31 2');
select push.enqueue_call('{"from": "x", "chatId": "c", "callId": "note"}',
  '[{"userId": "a", "fcmToken": "people-token-0123456789-aaa", "data": {"phone": "+31 3"}}]', kind => 'message') \g /dev/null
select test.equal('and notifications', pg_temp.data('note', 3), 'a:aaa:+31 3');
create function pg_temp.bad_data(p_data jsonb) returns text language plpgsql as $$
declare
  v_call record;
begin
  select * into v_call from push.enqueue_call(jsonb_build_object('callId', gen_random_uuid(), 'from', 'x'),
    jsonb_build_array(jsonb_build_object('userId', 'a', 'fcmToken', 'people-token-0123456789-aaa', 'data', p_data)));
  return (select format('%s %s %s', v_call.deliveries, v_call.skipped,
    (select string_agg(s.field || ' ' || s.reason, ', ') from push.skipped_recipients(v_call.outbox_id) s)))
    || (select coalesce(d.data::text, '') from push.delivery d where d.outbox_id = v_call.outbox_id);
end $$;
select test.equal(format('data %s is left out, and told', left(data::text, 20)), pg_temp.bad_data(data), '1 1 recipients[0].data MemberIgnored')
from (values ('"secret"'::jsonb), ('["secret"]'), ('{"phone": 1}'), ('{"phone": ["x"]}'), ('{"phone": null}'),
  (jsonb_build_object('phone', repeat('x', 1024)))) bad(data);
select test.equal(format('data %s is none', data), pg_temp.bad_data(data), '1 0 ') from (values ('null'::jsonb), ('{}')) none(data);
select test.equal('1,024 bytes are accepted', pg_temp.bad_data(jsonb_build_object('p', repeat('x', 1015))) ~ '^1 0 {"p": "x+"}$', true);

-- The phone that answered.
create function pg_temp.family(p_call text) returns void language sql as $$
  insert into push.outbox (payload, recipients) values (jsonb_build_object('callId', p_call, 'from', 'x'), jsonb_build_array(
    jsonb_build_object('userId', 'a', 'fcmToken', 'people-token-0123456789-a01'),
      jsonb_build_object('userId', 'a', 'fcmToken', 'people-token-0123456789-a02', 'pushToken', 'ExponentPushToken[people-a02]'),
    jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.hex('a03'), 'fcmToken', 'people-token-0123456789-a03'),
      jsonb_build_object('userId', 'b', 'fcmToken', 'people-token-0123456789-b01'),
    jsonb_build_object('userId', 'c', 'fcmToken', 'people-token-0123456789-c01'))) $$;
select pg_temp.family('f' || i) from generate_series(1, 6) i \g /dev/null
select pg_temp.claim_all(:g, 3), pg_temp.settle('f2'), pg_temp.settle('f3') \g /dev/null
select push.answer_call('f1', 'a', device => 'people-token-0123456789-a01'), push.answer_call('f2', 'a', device => ' people-token-0123456789-a02 '),
  push.answer_call('f3', 'a') \g /dev/null
select test.follow();
select test.equal('the same user''s other phones and those of all others get a cancel; the one that answered gets none', pg_temp.told('f1'),
  'a:a02 b:b01 c:c01');
select test.equal('also for finished invites', pg_temp.told('f2'), 'a:a01 b:b01 c:c01');
select test.equal('without it, none of the user''s', pg_temp.told('f3'), 'b:b01 c:c01');
select push.answer_call('f4', device => 'people-token-0123456789-a01') \g /dev/null
select test.follow();
select test.equal('the phone determines the user who answered',
  (select answered_by || ' ' || answered_device from push.outbox where call_id = 'f4') || ' '
  || pg_temp.told('f4'), 'a people-token-0123456789-a01 a:a02 b:b01 c:c01');
-- One entry is one phone: its token for another channel gets no cancel either.
select pg_temp.settle('f5', 4, 'a'), test.follow(), pg_temp.claim_all(:g, 4) \g /dev/null
select test.equal('the VoIP token''s next channel rings', (select string_agg(provider || ':' || right(device, 3), ' ' order by device)
  from push.deliveries where call_id = 'f5' and fallback_of is not null), 'expo:02] fcm:a03');
select push.answer_call('f5', 'a', device => pg_temp.hex('a03')) \g /dev/null
select test.follow();
select test.equal('an iPhone that answered over VoIP gets no cancel over FCM', pg_temp.told('f5'), 'a:02] b:b01 c:c01');
select push.answer_call('f6', 'a', device => 'people-token-0123456789-999') \g /dev/null
select test.follow();
select test.equal('a phone that was not rung (another way) answered: all of the user''s phones get a cancel', pg_temp.told('f6'),
  'a:a01 a:a02 b:b01 c:c01');
select test.equal('an answered call''s update by hand tells no phone',
  pg_temp.error($$update push.outbox set answered_device = 'x' where call_id = 'f6'$$)
  || (select answered_device from push.outbox where call_id = 'f6'), 'no errorpeople-token-0123456789-999');

-- Registered phones: by token or by number.
insert into push.devices (user_id, provider, token, platform, voip) values ('two', 'fcm', 'people-token-0123456789-t01', 'android', true),
  ('two', 'fcm', 'people-token-0123456789-t02', 'android', true),
  ('two', 'apns', pg_temp.hex('e01'), 'ios', true), ('two', 'fcm', 'people-token-0123456789-t03', 'ios', true),
    ('two', 'expo', 'ExponentPushToken[people-t04]', null, true);
insert into push.devices (user_id, app, provider, token, registered_at)
  values ('two', 'other', 'fcm', 'people-token-0123456789-oth', now() - interval '1 hour');
insert into push.outbox (payload, recipients) select jsonb_build_object('callId', 't' || i, 'from', 'x'), '["two"]' from generate_series(1, 4) i;
select pg_temp.claim_all(:g, 5) \g /dev/null
select push.answer_call('t1', device => (select id::text from push.devices where token = 'people-token-0123456789-t01')) \g /dev/null
select test.follow();
select test.equal('by its number in push.devices', pg_temp.told('t1') || ' ' || (select answered_by from push.outbox where call_id = 't1'),
  'two:t02 two');
select push.answer_call('t2', 'two', device => pg_temp.hex('e01')) \g /dev/null
select test.follow();
select test.equal('an iPhone answered: the Android phones get a cancel', pg_temp.told('t2'), 'two:t01 two:t02');
select pg_temp.settle('t3', 4, 'two'), test.follow(), pg_temp.claim_all(:g, 6) \g /dev/null
select test.equal('its next channel rings', (select string_agg(right(device, 3), ' ') from push.deliveries where call_id = 't3' and fallback_of is
  not null and kind = 'invite' and platform = 'ios'), 't03');
select push.answer_call('t3', 'two', device => pg_temp.hex('e01')) \g /dev/null
select test.follow();
select test.equal('the FCM token of an iPhone that answered over VoIP may be the same phone: it gets no cancel',
  coalesce(pg_temp.told('t3'), '') !~ 't03', true);
select test.equal('no such phone', pg_temp.error($$select push.answer_call('t4', 'two', device => '999999999')$$),
  '22023 device: must be a token of the phone, or the id that it has in push.devices');
select test.equal('nor one of another app', pg_temp.error(format($$select push.answer_call('t4', 'two', device => '%s')$$,
  (select id from push.devices where app = 'other' and token = 'people-token-0123456789-oth'))),
  '22023 device: must be a token of the phone, or the id that it has in push.devices');
select test.equal('nor is a text that is no token', pg_temp.error($$select push.answer_call('t4', 'two', device => 'secret \x4')$$),
  '22023 device: must be a token of the phone, or the id that it has in push.devices');

-- Phones that change hands while they ring: what was sent to them, and not who has them now, says which are told to stop.
select push.register_device('leaver', 'default', 'fcm', 'people-token-0123456789-' || x, platform => 'android')
  from unnest('{l01,l02,l03,l04}'::text[]) x;
select push.enqueue_call('{"callId": "hands", "from": "x"}', '["leaver"]') \g /dev/null
select pg_temp.claim_all(:g, 60), pg_temp.settle('hands') \g /dev/null
select push.drop_device('default', 'fcm', 'people-token-0123456789-l01'), push.register_device('finder', 'default', 'fcm',
  'people-token-0123456789-l02'),
  push.invalidate_tokens(array(select id from push.lane where app = 'default' and provider = 'fcm'), '{people-token-0123456789-l03}', '{null}',
    '{x}');
update push.devices set enabled = false where token = 'people-token-0123456789-l04';
select push.end_call('hands', 'busy'), test.follow() \g /dev/null
select test.equal('its user has logged out, it has another user, its token is dead, it wants no more calls', pg_temp.told('hands'),
  'leaver:l01 leaver:l02 leaver:l03 leaver:l04');

-- Declining: the result of the function, and the state of the call after what follows.
create function pg_temp.decline(p_call text, p_user text, p_reason text default 'declined', p_device text default null) returns text language plpgsql
  as $$
declare
  v_said boolean := push.decline_call(p_call, p_user, 'default', p_reason, p_device);
begin
  perform test.follow();
  return (select concat_ws(' ', v_said, o.state, o.end_reason) from push.outbox o where o.call_id = p_call);
end $$;
select pg_temp.family('d' || i) from generate_series(1, 9) i \g /dev/null
select test.equal('a user declines: nothing more is sent to their phones; phones that never rang get no cancel',
  pg_temp.decline('d1', 'a') || ' ' || pg_temp.past('d1') || coalesce(pg_temp.told('d1'), ''),
  't ringing a:void:UserDeclined a:void:UserDeclined a:void:UserDeclined');
select test.equal('the rest ring on', (select state from push.outbox where call_id = 'd1') || ' ' || pg_temp.told('d1', 'invite'),
  'ringing b:b01 c:c01');
select test.equal('again: it was so', push.decline_call('d1', 'a') || ' ' || push.decline_call('d1', 'a', reason => 'busy'), 'false false');
select test.equal('the call tells it', (select c -> 'declinedBy' -> 0 ->> 'userId' || (c -> 'declinedBy' -> 0 ->> 'reason')
  || (c -> 'declinedBy' -> 0 ->> 'at' ~ 'Z$')::text || jsonb_array_length(c -> 'declinedBy') from push.call('d1') c), 'adeclinedtrue1');
select test.equal('the timeline, too', (select string_agg(event || ' ' || user_id, ', ') from push.timeline('d1')
  where event in ('declined', 'busy')), 'declined a');
select test.equal('another is busy', pg_temp.decline('d1', 'b', 'busy'), 't ringing');
select test.equal('their invite has this reason', (select string_agg(user_id || reason, ' ') from push.delivery_history where call_id = 'd1'
  and user_id = 'b'), 'bUserBusy');
select test.equal('with the last one the call ends, as declined', pg_temp.decline('d1', 'c', 'busy'), 't ended declined');
select test.equal('no missed call is made', pg_temp.told('d1', 'missed_call'), null);
select test.equal('then no user can decline', push.decline_call('d1', 'c'), false);
select pg_temp.family('e' || i) from generate_series(1, 4) i \g /dev/null
select test.equal('all are busy: so does the call end', pg_temp.decline('e1', 'a', 'busy') || ', ' || pg_temp.decline('e1', 'b', 'busy') || ', '
  || pg_temp.decline('e1', 'c', 'busy') || coalesce(pg_temp.told('e1', 'missed_call'), ''), 't ringing, t ringing, t ended busy');
select test.equal('the app of one could not reach the call', pg_temp.decline('e2', 'a', 'connection_failed'), 't ringing');
select test.equal('this is the reason of their invites', (select string_agg(distinct reason, ' ') from push.delivery_history where call_id = 'e2'),
  'UserConnectionFailed');
select test.equal('they miss it, and those who decline do not', pg_temp.decline('e2', 'b') || ', ' || pg_temp.decline('e2', 'c', 'busy') || ': '
  || pg_temp.told('e2', 'missed_call'), 't ringing, t ended declined: a:a01');
select test.equal('they all miss it', pg_temp.decline('e3', 'a', 'connection_failed') || ', ' || pg_temp.decline('e3', 'b', 'connection_failed') ||
  ', '
  || pg_temp.decline('e3', 'c', 'connection_failed') || ': ' || pg_temp.told('e3', 'missed_call'),
  't ringing, t ringing, t ended connection_failed: a:a01 b:b01 c:c01');
select push.enqueue_call('{"callId": "e5", "from": "x"}', '[{"userId": "a", "fcmToken": "people-token-0123456789-a01", "missedCall": true},
  {"userId": "b", "fcmToken": "people-token-0123456789-b01"}, {"userId": "c", "fcmToken": "people-token-0123456789-c01", "missedCall":
    true}]') \g /dev/null
select test.equal('one who was busy misses it if the entry says so', pg_temp.decline('e5', 'a', 'busy') || ', ' || pg_temp.decline('e5', 'b', 'busy')
  || ', ' || pg_temp.decline('e5', 'c') || ': ' || pg_temp.told('e5', 'missed_call'), 't ringing, t ringing, t ended declined: a:a01');
select push.decline_call('e4', 'a', reason => 'connection_failed'), push.answer_call('e4', 'b'), test.follow() \g /dev/null
select test.equal('nobody misses a call that somebody answered', pg_temp.told('e4', 'missed_call'), null);
select pg_temp.claim_all(:g, 7) \g /dev/null
select pg_temp.settle('d2', 0), pg_temp.settle('d3', 0, 'a') \g /dev/null
select push.decline_call('d2', 'a', device => 'people-token-0123456789-a01'), push.decline_call('d3', 'a') \g /dev/null
select test.follow();
select test.equal('phones that may ring get a cancel, except the one that declined', pg_temp.told('d2'), 'a:a02');
select test.equal('which is not always known', pg_temp.told('d3'), 'a:a01 a:a02');
select test.equal('a cancel lives a minute and has the reason',
  (select string_agg(distinct c.end_reason || ' ' || (c.deadline_at - c.created_at)::interval(0)
  || ' ' || c.ended, ' ') from push.claim(:g, 8, array(select id from push.lane), array_fill(99, array[99]),
  array_fill('-infinity'::timestamptz, array[99])) c where c.kind = 1 and c.call_id = 'd2'), 'declined 00:01:00 false');
select test.equal('then another user declines: only theirs', pg_temp.decline('d2', 'b') || ' ' || pg_temp.told('d2'), 't ringing a:a02 b:b01');
select push.answer_call('d2', 'c', device => 'people-token-0123456789-c02') \g /dev/null
select test.follow();
select test.equal('then it is answered: phones with a cancel get no second one, and the numbers continue',
  (select string_agg(n || user_id, ' ' order by n) from push.deliveries where call_id = 'd2' and kind = 'cancel'), '5a 6b 7c');
select push.end_call('d3') \g /dev/null
select test.follow();
select test.equal('then it is hung up: the user who declined gets no missed call', pg_temp.told('d3', 'missed_call') || ' / ' || pg_temp.told('d3'),
  'b:b01 c:c01 / a:a01 a:a02 b:b01 c:c01');
select test.equal('while a gateway holds invites of theirs', pg_temp.decline('d4', 'a'), 't ringing');
select test.equal('it is told whose', (select string_agg(user_id, ' ') from push.ended_for(array(select id from push.outbox where call_id = 'd4'))),
  'a');
select test.equal('an earlier release is told to return them', (select cardinality(push.ended(array[id])) from push.outbox where call_id = 'd4'), 1);
select push.release(:g, array_agg(outbox_id), array_agg(d.n), array_agg(lease)) from push.delivery d join push.outbox o on o.id = d.outbox_id
  where o.call_id = 'd4' and d.kind = 0 \g /dev/null
select test.equal('released', pg_temp.past('d4') || ' / ' || (select string_agg(user_id || ':' || state, ' ' order by user_id) from push.deliveries
  where call_id = 'd4' and kind = 'invite'), 'a:void:UserDeclined a:void:UserDeclined a:void:UserDeclined / b:ready c:ready');
select test.equal('nothing is held then', (select cardinality(push.ended(array[id])) from push.outbox where call_id = 'd4'), 0);
select push.decline_call('d5', 'a') \g /dev/null
select test.follow();
select push.park(:g, array_agg(outbox_id), array_agg(d.n), array_agg(lease), array_agg(1), array_agg(0), array_agg('Unavailable'::text))
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'd5' and d.kind = 0 \g /dev/null
update push.delivery d set due_at = now() from push.outbox o where o.id = d.outbox_id and o.call_id = 'd5';
select test.equal('parked, they are promoted', push.promote() || ' ' || coalesce(pg_temp.past('d5'), ''), '5 ');
create temp table d5 as select c.* from push.claim(:g, 8, array(select id from push.lane), array_fill(99, array[99]),
  array_fill('-infinity'::timestamptz,
  array[99])) c join push.outbox o on o.id = c.outbox_id where o.call_id = 'd5';
select test.equal('and the next claim names the user', (select string_agg(concat_ws(' ', ended, declined, (select count(*) from d5 where kind = 0)),
  ', ') from d5
  where ended is not null), 'f ["a"] 5');
select push.settle(:g, array_agg(place), array_agg(outbox_id), array_agg(n), array_agg(8), array_agg(1), array_agg(2::smallint), '{}', '{}', '{}',
  '{}', '{}', '{}')
  from d5 where user_id = 'a' and kind = 0 \g /dev/null
select test.equal('their invites are void then, and the others are not', pg_temp.past('d5') || ' / ' || pg_temp.told('d5', 'invite'),
  'a:void:UserDeclined a:void:UserDeclined a:void:UserDeclined / b:b01 c:c01');
select push.decline_call('d6', 'a') \g /dev/null
select test.follow();
select pg_temp.settle('d6', 4, 'a'), pg_temp.settle('d6', 4, 'b') \g /dev/null
select test.follow();
select test.equal('no next channel for the user who declined',
  (select count(*) from push.deliveries where call_id = 'd6' and fallback_of is not null),
  0::bigint);
select test.equal('nor by requeue', (select message from push.requeue('d6')), 'call d6: 1 invites are ready again: 1 had failed, 0 were waiting');
select test.equal('which rings the others', (select string_agg(user_id, ' ') from push.deliveries where call_id = 'd6' and kind = 'invite'
  and state = 'ready'), 'b');
select pg_temp.decline('d8', 'b'), pg_temp.decline('d8', 'c') \g /dev/null
select pg_temp.settle('d8', 4, 'a'), test.follow() \g /dev/null
select test.equal('while the next channel is tried, a user has not declined', (select state from push.outbox where call_id = 'd8'), 'ringing');
select pg_temp.claim_all(:g, 9), pg_temp.settle('d8', 4, 'a'), test.follow() \g /dev/null
select test.equal('a call ends when those decline who are left, also if the last invite of another one fails later',
  (select concat_ws(' ', state, end_reason) from push.outbox where call_id = 'd8'), 'ended declined');
select push.decline_call('d7', 'a') \g /dev/null
update push.gateways set alive = false, ended_at = clock_timestamp(), ended_reason = 'silent', free_due_at = now() where id = :g;
select push.free_claims() \g /dev/null
select test.follow();
select test.equal('of a gateway that died', pg_temp.past('d7') || ' / '
  || (select string_agg(user_id || ':' || state, ' ' order by user_id) from push.deliveries where call_id = 'd7' and kind = 'invite'),
  'a:void:UserDeclined a:void:UserDeclined a:void:UserDeclined / b:ready c:ready');
select push.register_gateway('people', '2') as g \gset

-- The same by escalation.
select push.register_app('loudly', 600, 5), push.register_lane('loudly', 'apns'), push.register_lane('loudly', 'fcm') \g /dev/null
select push.enqueue_call('{"callId": "loud", "from": "x"}', jsonb_build_array(jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.hex('a11'),
  'fcmToken', 'people-token-0123456789-a11'), jsonb_build_object('userId', 'b', 'voipPushToken', pg_temp.hex('b11'), 'fcmToken',
  'people-token-0123456789-b11')), 'loudly') \g /dev/null
select pg_temp.claim_all(:g), pg_temp.settle('loud'), push.decline_call('loud', 'a') \g /dev/null
select test.follow();
update push.follow_ups set due_at = now() - interval '1 s' where why = 'unheard'; select test.follow();
select test.equal('the user who declined is not tried on the next channel', pg_temp.told('loud', 'invite'), 'b:b11');

-- Equal masks.
select push.enqueue_call('{"callId": "masks", "from": "x"}',
  '[{"userId": "a", "fcmToken": "mask-token-0123456789-a-mask"}, {"userId": "b", "fcmToken": "mask-token-0123456789-b-mask"}]') \g /dev/null
select pg_temp.claim_all(:g, 50), pg_temp.settle('masks'), push.decline_call('masks', 'a'), push.end_call('masks') \g /dev/null
select test.follow();
select test.equal('another user whose token has the same mask gets a cancel, too', pg_temp.told('masks'), 'a:ask b:ask');

-- Bypassing a channel that sends nothing: an invite of each user waits for its next attempt.
select push.register_app('round', 600), push.register_lane('round', 'apns'), push.register_lane('round', 'fcm') \g /dev/null
insert into push.outbox (app, payload, recipients) values ('round', '{"callId": "round", "from": "x"}',
  jsonb_build_array(jsonb_build_object('userId', 'a', 'voipPushToken', pg_temp.hex('a21'), 'fcmToken', 'people-token-0123456789-a21'),
  jsonb_build_object('userId', 'b', 'voipPushToken', pg_temp.hex('b21'), 'fcmToken', 'people-token-0123456789-b21')));
update push.delivery d set state = 2, ready_lane = null, last_reason = 'HTTP503', created_at = d.created_at - interval '3 s',
  due_at = clock_timestamp() + interval '5 s' from push.outbox o where o.id = d.outbox_id and o.call_id = 'round';
update push.outbox o set declined = '{"a": {"reason": "declined"}}' where call_id = 'round';
select test.equal('both are looked at', push.bypass(), 2::bigint); select test.follow();
select test.equal('no bypass for the user who declined', pg_temp.told('round', 'invite') || ' / ' || (select string_agg(h.user_id || h.reason, ' ')
  from push.history h where outbox_id = (select id from push.outbox where call_id = 'round')), 'b:b21 b:b21 / aUserDeclined');

-- Which user counts as the last one.
select push.enqueue_call('{"callId": "last", "from": "x"}', '[{"userId": "a", "fcmToken": "people-token-0123456789-a01"}, "nobody", {"userId": '
  '"off", "fcmToken": "people-token-0123456789-off", "notificationEnabled": false}, 7]') \g /dev/null
select test.equal('users whose phones were not rung do not count', pg_temp.decline('last', 'a'), 't ended declined');
-- Bruno's invite is refused, or its result is unknown.
create function pg_temp.undelivered(p_call text, p_status int, p_claim int default null) returns void language sql as $$
  select push.enqueue_call(jsonb_build_object('callId', p_call, 'from', 'x'),
    '[{"userId": "a", "fcmToken": "people-token-0123456789-a01"}, {"userId": "b", "fcmToken": "people-token-0123456789-b01"}]');
  select pg_temp.claim_all((select max(id) from push.gateways where alive), coalesce(p_claim, 900 + p_status));
  select push.settle(d.owner, null, array[d.outbox_id], array[d.n], array[d.lease], '{1}', '{4}', array[p_status]::smallint[], '{x}',
    '{null}', array[p_call], array[clock_timestamp()], array[clock_timestamp()])
    from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.user_id = 'b' $$;
select pg_temp.undelivered('refused', 400), pg_temp.undelivered('unknown', 0) \g /dev/null
select test.equal('nor do those whose invite the provider refused', pg_temp.decline('refused', 'a'), 't ended declined');
select test.equal('but users whose invite may have arrived count', pg_temp.decline('unknown', 'a') || ', ' || pg_temp.decline('unknown', 'b'),
  't ringing, t ended declined');
select pg_temp.undelivered('silent', 0, 1500), push.end_call('silent') \g /dev/null
select pg_temp.undelivered('heard', 410, 1501), push.end_call('heard') \g /dev/null
select test.follow();
select test.equal('and get a cancel when it ends; those whose invite was refused get none', pg_temp.told('silent') || ', ' || pg_temp.told('heard'),
  'a:a01 b:b01, a:a01');
select push.enqueue_call('{"callId": "none", "from": "x"}', '["nobody", "noone", 7]') \g /dev/null
select test.equal('if no phone was rung, all users count', pg_temp.decline('none', 'nobody') || ', ' || pg_temp.decline('none', 'noone'),
  't ringing, t ended declined');
select test.equal('of a stranger it is refused', pg_temp.error($$select push.decline_call('d9', 'stranger')$$),
  '22023 user_id: call d9 does not ring this user');
select test.equal('so is another reason', pg_temp.error($$select push.decline_call('d9', 'a', reason => 'asleep')$$),
  '22023 reason: must be declined, busy or connection_failed');
select test.equal('and an unknown phone', pg_temp.error($$select push.decline_call('d9', 'a', device => 'secret')$$),
  '22023 device: must be a token of the phone, or the id that it has in push.devices');
select test.equal('an unknown call', pg_temp.error($$select push.decline_call('nowhere', 'a')$$), 'P0002 call_id: there is no call nowhere');
select test.equal('a notification cannot be declined', push.decline_call('note', 'a'), false);
