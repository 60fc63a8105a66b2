-- People who join a call that rings.
create function pg_temp.token(p_end text) returns text language sql as $$ select 'join-token-0123456789-' || p_end $$;
create function pg_temp.entry(p_user text, p_end text default null) returns jsonb language sql as $$
  select jsonb_build_object('userId', p_user, 'fcmToken', pg_temp.token(coalesce(p_end, p_user))) $$;
create function pg_temp.rings(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s', d.n, d.user_id, right(d.token, 2)), ' ' order by d.n)
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.kind = 0 $$;
create function pg_temp.join(p_call text, p_recipients jsonb, p_app text default null) returns text language plpgsql as $$
begin
  return (select a.deliveries || ' ' || a.skipped from push.add_recipients(p_call, p_recipients, p_app) a);
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
create function pg_temp.told(p_call text, p_kind text) returns text language sql as $$
  select string_agg(d.user_id || ':' || right(d.device, 2), ' ' order by d.user_id, d.device) from push.deliveries d
  where d.call_id = p_call and d.kind = p_kind $$;
create function pg_temp.accept_all(p_gateway int, p_claim int) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, p_claim, array(select id from push.lane), array_fill(999, array[999]),
    array_fill('-infinity'::timestamptz, array[999])) c cross join lateral (
    select push.settle(p_gateway, null, array[c.outbox_id], array[c.n], array[p_claim], array[1], array[0]::smallint[], array[200]::smallint[],
      array['x'], array['m'], array['r'], array[clock_timestamp()], array[clock_timestamp()])) s $$;
select push.register_gateway('joins', '1') as g \gset
select push.register_lane('default', 'fcm'), push.register_lane('default', 'expo') \g /dev/null
insert into push.devices (user_id, provider, token, platform) values ('reg', 'fcm', pg_temp.token('r1'), 'android'),
  ('reg', 'fcm', pg_temp.token('r2'), 'android'), ('off', 'fcm', pg_temp.token('of'), 'android');
update push.devices set enabled = false where user_id = 'off';
select push.register_app('joins', 60);

select push.enqueue_call('{"callId": "j", "from": "x"}', jsonb_build_array(pg_temp.entry('a1'))) \g /dev/null
select test.equal('somebody joins, by token and by user', pg_temp.join('j', jsonb_build_array(pg_temp.entry('b1'), 'reg')), '3 0');
select test.equal('their phones ring, numbered after the others', pg_temp.rings('j'), '0:a1:a1 1:b1:b1 2:reg:r1 3:reg:r2');
select test.equal('until the call''s deadline', (select count(distinct d.deadline_at) from push.delivery d join push.outbox o on o.id = d.outbox_id
  where o.call_id = 'j'), 1::bigint);
select test.equal('they are recipients of the call', (select jsonb_array_length(o.recipients) from push.outbox o where o.call_id = 'j'), 3);
select test.equal('again, nothing changes', pg_temp.join('j', jsonb_build_array(pg_temp.entry('b1'), 'reg')), '0 0');
select test.equal('nor are they recipients twice', (select jsonb_array_length(o.recipients) from push.outbox o where o.call_id = 'j'), 3);
select test.equal('a token that rings already gets no second invite, whoever gives it', pg_temp.join('j', jsonb_build_array(pg_temp.entry('c',
  'a1'))),
  '0 0');
select test.equal('accepted', pg_temp.accept_all(:g, 1), 4::bigint);
select test.equal('one that was rung gets none either', pg_temp.join('j', jsonb_build_array(pg_temp.entry('a1') || '{"locale": "pt"}',
  pg_temp.entry('d2'))),
  '1 0');
select test.equal('and the number is the next', pg_temp.rings('j'), '4:d2:d2');
select test.equal('who cannot be reached is skipped, and told',
  pg_temp.join('j', jsonb_build_array('nobody', '{"userId": "bad", "fcmToken": "secret"}'::jsonb, 'off',
    '{"userId": "no", "notificationEnabled": false}'::jsonb,
    '{"fcmToken": "x"}'::jsonb)), '0 5');
select test.equal('by reason', (select string_agg(s.user_id || ':' || s.reason, ' ' order by s.user_id) from push.skipped_recipients(
  (select o.id from push.outbox o where o.call_id = 'j')) s where s.user_id in ('nobody', 'bad', 'off', 'no')),
  'bad:TokenMalformed no:NotificationsDisabled nobody:NoDevice off:NotificationsDisabled');

-- What follows from the call concerns them.
select test.equal('a newcomer may decline', push.decline_call('j', 'b1'), true);
select test.follow();
select test.equal('and is told to stop', pg_temp.told('j', 'cancel'), 'b1:b1');
select test.equal('and is not rung again', pg_temp.join('j', jsonb_build_array(pg_temp.entry('b1', 'b2'))), '0 0');
select pg_temp.accept_all(:g, 2), push.end_call('j'), test.follow() \g /dev/null
select test.equal('at the end all phones are told to stop', pg_temp.told('j', 'cancel'), 'a1:a1 d2:d2 reg:r1 reg:r2');
select test.equal('and miss the call, but for who declined', pg_temp.told('j', 'missed_call'), 'a1:a1 d2:d2 reg:r2');

-- When it is refused.
select test.equal('a call that has ended rings nobody else', pg_temp.join('j', jsonb_build_array(pg_temp.entry('e'))),
  '55R01 call_id: call j rings no longer');
select test.equal('nor one that is unknown', pg_temp.join('unknown', '["a"]'), 'P0002 call_id: there is no call unknown');
select push.enqueue_call('{"callId": "note", "from": "x", "chatId": "c"}', '["reg"]', kind => 'message') \g /dev/null
select test.equal('nor a notification', pg_temp.join('note', '["off"]'), '55R01 call_id: call note is a notification');
select push.enqueue_call('{"callId": "k", "from": "x"}', jsonb_build_array(pg_temp.entry('a1'))) \g /dev/null
select test.equal(format('recipients must be an array: %s', coalesce(bad::text, 'null')), pg_temp.join('k', bad),
  '22023 recipients: must be an array of user ids or objects (call k)')
from (values ('{"userId": "a"}'::jsonb), ('"a"'), ('null'), (null)) b(bad);
select test.equal('1,000 in all', pg_temp.join('k', (select jsonb_agg('u' || i) from generate_series(1, 1000) i)),
  '22023 recipients: must have at most 1000 entries; split the call (call k)');
select test.equal('2 MB in all', pg_temp.join('k', jsonb_build_array(repeat('x', 2200000))) ~
  '^22023 recipients: has 2\d+ bytes, the limit is 2097152', true);
select test.equal('nothing was done', pg_temp.rings('k'), '0:a1:a1');
select test.equal('a call without phones', (select deliveries from push.enqueue_call('{"callId": "empty", "from": "x"}', '[]')), 0);
select test.equal('gets its first', pg_temp.join('empty', jsonb_build_array(pg_temp.entry('f1'))), '1 0');
select test.equal('with the number 0', pg_temp.rings('empty'), '0:f1:f1');
select push.enqueue_call(jsonb_build_object('callId', 'big', 'from', 'x', 'metadata', jsonb_build_object('x', repeat('y', 2500))),
  jsonb_build_array(jsonb_build_object('userId', 'i', 'voipPushToken', repeat('0', 64)))) \g /dev/null
select test.equal('what is too large for the newcomer''s channel', pg_temp.join('big', jsonb_build_array(pg_temp.entry('g1')))
  ~ '^22023 payload: up to \d+ bytes when rendered for FCM, the limit is 4096; shorten it, metadata first \(call big\)$', true);
select push.enqueue_call(jsonb_build_object('callId', 'named', 'from', 'x', 'fromName', repeat('x', 3000)),
  jsonb_build_array(jsonb_build_object('userId', 'i', 'voipPushToken', repeat('0', 64)))) \g /dev/null
select test.equal('a long name is not', pg_temp.join('named', jsonb_build_array(pg_temp.entry('h1'))), '1 0');

-- Recipients are only added.
create function pg_temp.change(p_recipients jsonb) returns text language plpgsql as $$
begin
  update push.outbox o set recipients = p_recipients where o.call_id = 'k';
  return 'changed';
exception when others then
  return sqlerrm;
end $$;
select test.equal('recipients are not removed', pg_temp.change('[]'),
  'push.outbox: only state, answered_by and end_reason can be changed; enqueue another call (call k)');
select test.equal('nor replaced', pg_temp.change('["z"]'),
  'push.outbox: only state, answered_by and end_reason can be changed; enqueue another call (call k)');

select test.equal('nor added past push.add_recipients: nobody would ring', pg_temp.change(jsonb_build_array(pg_temp.entry('a1'), 'reg')),
  'push.outbox: only state, answered_by and end_reason can be changed; enqueue another call (call k)');
select test.equal('who joins leaves no mark', pg_temp.join('k', '["reg"]') || ' ' || (select format('%s %s %s', o.state, o.ended_at, o.end_reason)
  from push.outbox o where o.call_id = 'k'), '2 0 ringing  ');

-- What is said of newcomers is about them alone.
select push.enqueue_call('{"callId": "s", "from": "x"}', '[7, "nobody"]') \g /dev/null
select test.equal('a good one: nothing is skipped', pg_temp.join('s', jsonb_build_array(pg_temp.entry('g1'))), '1 0');
select test.equal('a token under another name', pg_temp.join('s', '[{"userId": "ana", "fcm_token": "join-token-0123456789-an"}]'), '0 1');
select test.equal('a switch that is none', pg_temp.join('s', jsonb_build_array(pg_temp.entry('h1') || '{"notificationEnabled": "no"}')), '0 1');
select test.equal('again, it is said again', pg_temp.join('s', '[{"userId": "ana", "fcm_token": "join-token-0123456789-an"}]'), '0 1');
select test.equal('with field and remedy', (select a.skipped_recipients from push.add_recipients('s', '["x"]') a),
  '[{"field": "recipients[5]", "reason": "NoDevice", "remedy": "has no device for this; register one, or give a token", "userId": "x"}]'::jsonb);
-- The same phone by another token; a user who has registered a phone since.
select push.enqueue_call('{"callId": "t", "from": "x"}', jsonb_build_array(pg_temp.entry('i1') || '{"pushToken": "ExponentPushToken[join-i1]"}',
  'late')) \g /dev/null
select test.equal('an entry with a token of another one is the same phone',
  pg_temp.join('t', '[{"userId": "i1", "pushToken": "ExponentPushToken[join-i1]", "platform": "ios"}]'), '0 0');
insert into push.devices (user_id, provider, token, platform) values ('late', 'fcm', pg_temp.token('l1'), 'android');
select test.equal('a user who is named again rings on the phone that has come since', pg_temp.join('t', '["late"]'), '1 0');
select test.equal('once', pg_temp.join('t', '["late"]'), '0 0');

-- An app that escalates: each has the time from when they were called.
select push.register_app('loud', 600, 5), push.register_lane('loud', 'fcm'), push.register_lane('loud', 'expo') \g /dev/null
select push.enqueue_call('{"callId": "loud", "from": "x"}', jsonb_build_array(pg_temp.entry('k1') || '{"pushToken": "ExponentPushToken[join-k1]"}'),
  'loud') \g /dev/null
select pg_temp.join('loud', jsonb_build_array(pg_temp.entry('k2') || '{"pushToken": "ExponentPushToken[join-k2]"}'), 'loud') \g /dev/null
select pg_temp.accept_all(:g, 3) \g /dev/null
update push.follow_ups set due_at = now() - interval '1 s' where why = 'unheard' and due_at = (select min(due_at) from push.follow_ups where why =
  'unheard');
select test.follow();
select test.equal('when the first has had it, the next channel of that one', pg_temp.rings('loud'), '2:k1:1]');
update push.history set created_at = created_at - interval '6 s' where user_id = 'k2';
update push.follow_ups set due_at = now() - interval '1 s' where why = 'unheard';
select test.follow();
select test.equal('then the newcomer''s', pg_temp.rings('loud'), '2:k1:1] 3:k2:2]');

-- An app that may ring nobody.
select push.register_lane('joins', 'fcm'), push.enqueue_call('{"callId": "q", "from": "x"}', jsonb_build_array(pg_temp.entry('q1')), 'joins')
  \g /dev/null
select push.set_quota('joins', 0, 0, null) \g /dev/null
select test.equal('nobody joins', pg_temp.join('q', jsonb_build_array(pg_temp.entry('q2')), 'joins') ~ '^53Q01 ', true);
