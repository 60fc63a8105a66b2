-- How a call ends: unsent invites, cancels, missed calls, invites that a gateway still has; which tokens are dead.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
-- The deliveries owed for a call, and its history.
create function pg_temp.owed(p_call text) returns text language sql as $$
  select string_agg(format('%s/%s:%s:%s:%s:%s', kind, n, state, provider, user_id, right(device, 3)), ' ' order by n) from push.deliveries
    where call_id = p_call $$;
create function pg_temp.past(p_call text) returns text language sql as $$
  select string_agg(format('%s/%s:%s:%s', kind, n, outcome, reason), ' ' order by n) from push.delivery_history where call_id = p_call $$;
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
select push.register_gateway('one', '1') as g1, push.register_gateway('two', '1') as g2 \gset
-- Settles the deliveries of a call that gateway one has claimed.
create function pg_temp.sent(p_call text, p_n int, p_outcome int, p_sent boolean default true, p_status int default 200) returns bigint language sql
  as $$
  select sum(push.settle(d.owner, null, array[d.outbox_id], array[d.n], array[d.lease], array[d.attempt::int], array[p_outcome]::smallint[],
    array[p_status]::smallint[],
    array[null], array[null], array[o.call_id], array[case when p_sent then clock_timestamp() end], array[clock_timestamp()]))::bigint
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.n = p_n and d.state = 1 $$;

-- Unsent invites.
select test.call('unsent', 3) as unsent \gset
select test.equal('answer_call', push.answer_call('unsent', 'u2'), true); select test.follow();
select test.equal('the row tells it', (select format('%s %s %s %s', state, answered_by, end_reason, ended_at is not null) from push.outbox
  where id = :unsent), 'answered u2 answered t');
select test.equal('unsent invites are void, and phones that never rang get no cancel', pg_temp.past('unsent') || coalesce(pg_temp.owed('unsent'), ''),
  'invite/0:void:CallAnswered invite/1:void:CallAnswered invite/2:void:CallAnswered');
select test.equal('answering again is false', push.answer_call('unsent'), false);
select test.equal('ending it afterwards is false', push.end_call('unsent'), false);
select test.equal('neither changes answered_by', (select state || answered_by from push.outbox where id = :unsent), 'answeredu2');
select test.call('waits', 1) as waits \gset
select test.claim(:g1);
select push.park(:g1, array[:waits]::bigint[], array[0], array[1], array[1], array[9000], array['Unavailable']);
select test.equal('end_call', push.end_call('waits', 'declined'), true); select test.follow();
select test.equal('a waiting invite is void; it was tried and may ring, so the device gets a cancel',
  pg_temp.past('waits') || ', ' || pg_temp.owed('waits'),
  'invite/0:void:CallEnded, cancel/1:ready:fcm:u1:9-1');

-- The functions and the column.
select test.equal('an unknown call is an error', pg_temp.error($$select push.end_call('nobody')$$), 'P0002 call_id: there is no call nobody');
select test.equal('an unknown app, too', pg_temp.error($$select push.answer_call('waits', 'u', 'elsewhere')$$),
  'P0002 call_id: there is no call waits in app elsewhere');
select test.equal('no call at all, too', pg_temp.error($$select push.answer_call(null)$$), 'P0002 call_id: there is no call without call_id');
select test.call('twin', 1) as twin \gset
select test.call('twin', 1, 'other') as twin2 \gset
select test.equal('a call of several apps needs the app', pg_temp.error($$select push.end_call('twin')$$),
  '21000 app: call twin exists in several apps (default, other); say in which');
select test.equal('with the app it ends', push.end_call('twin', 'busy', 'other'), true); select test.follow();
select test.equal('the other one rings on', (select state from push.outbox where id = :twin), 'ringing');
update push.outbox set state = 'ended' where call_id = 'twin' and app = 'default'; select test.follow();
select test.equal('an update does the same as end_call', (select format('%s %s %s', state, end_reason, ended_at is not null) from push.outbox
  where id = :twin)
  || (select outcome || reason from push.delivery_history where outbox_id = :twin), 'ended ended tvoidCallEnded');
select test.equal('an ended call stays ended', pg_temp.error($$update push.outbox set state = 'answered' where call_id = 'twin'
  and app = 'default'$$),
  '22023 push.outbox.state: is ended already and cannot become answered (call twin)');
select test.equal('it does not ring again', pg_temp.error($$update push.outbox set state = 'ringing' where call_id = 'twin' and app = 'default'$$),
  '22023 push.outbox.state: is ended already and cannot become ringing (call twin)');
select test.equal('an unknown state', pg_temp.error($$update push.outbox set state = 'paused' where call_id = 'waits'$$),
  '22023 push.outbox.state: must be answered, ended or missed (call waits)');
select test.equal('enqueued values do not change', pg_temp.error($$update push.outbox set payload = '{"secret": 1}' where call_id = 'waits'$$),
  '22023 push.outbox: only state, answered_by and end_reason can be changed; enqueue another call (call waits)');
select test.call('long-reason', 1);
select test.equal('a reason is a word', pg_temp.error(format('select push.end_call(%L, %L)', 'long-reason', repeat('x', 65))),
  '22023 push.outbox.end_reason: must have 1 to 64 characters (call long-reason)');
update push.outbox set state = 'ended', end_reason = 'late words' where call_id = 'twin' and app = 'default';
select test.equal('the reason of the end stays', (select end_reason from push.outbox where id = :twin), 'ended');
insert into push.outbox (payload, recipients, state, answered_by, end_reason, ended_at)
  values ('{"callId": "born", "from": "x"}', '[]', 'ended', 'u', 'r', now());
select test.equal('no call is enqueued as ended', (select format('%s %s %s %s', state, answered_by, end_reason, ended_at) from push.outbox
  where call_id = 'born'), 'ringing   ');

-- Cancels go to devices that may ring. Seven devices, one of them VoIP, one of the answering user, in every state of an
-- invite.
insert into push.outbox (payload, recipients) values ('{"callId": "rings", "from": "x"}', jsonb_build_array(
  jsonb_build_object('userId', 'voip', 'voipPushToken', pg_temp.hex('aaa'), 'fcmToken', 'rings-token-0123456789-vvv'),
  jsonb_build_object('userId', 'a', 'fcmToken', 'rings-token-0123456789-001', 'locale', 'nl', 'platform', 'android'),
  jsonb_build_object('userId', 'b', 'fcmToken', 'rings-token-0123456789-002'),
  jsonb_build_object('userId', 'c', 'fcmToken', 'rings-token-0123456789-003'),
  jsonb_build_object('userId', 'd', 'fcmToken', 'rings-token-0123456789-004'),
  jsonb_build_object('userId', 'e', 'fcmToken', 'rings-token-0123456789-005'),
  jsonb_build_object('userId', 'f', 'fcmToken', 'rings-token-0123456789-006'),
  jsonb_build_object('userId', 'g', 'fcmToken', 'rings-token-0123456789-007'),
  jsonb_build_object('userId', 'h', 'pushToken', 'ExponentPushToken[rings-008]', 'platform', 'ios'), 'registered'));
insert into push.devices (user_id, provider, token, platform, locale) values ('later', 'fcm', 'rings-token-0123456789-999', 'android', 'de');
select id as rings from push.outbox where call_id = 'rings' \gset
select count(*) from push.claim(:g1, 1, array(select id from push.lane where app = 'default'), array[100, 100, 100],
  array['-infinity', '-infinity', '-infinity']::timestamptz[]);
create temp table n_of as select user_id, n from push.deliveries where call_id = 'rings';
select pg_temp.sent('rings', n, case user_id when 'a' then 0 when 'b' then 1 when 'c' then 3 when 'd' then 4 when 'e' then 4 else 3 end,
    user_id <> 'f', case user_id when 'd' then null when 'e' then 404 end)
  from n_of where user_id in ('a', 'b', 'c', 'd', 'e', 'f');
select test.equal('answer while it rings', push.answer_call('rings', 'b'), true); select test.follow();
select test.equal('a cancel for delivered, expired after sending, dead without an answer, '
  'claimed; none for VoIP, for a dead token, for what never left, for who answered',
  (select string_agg(format('%s:%s:%s', user_id, provider, right(device, 3)), ' ' order by user_id) from push.deliveries where call_id = 'rings'
    and kind = 'cancel'),
  'a:fcm:001 c:fcm:003 d:fcm:004 g:fcm:007 h:expo:08]');
select test.equal('a cancel lives a minute and has the device''s locale',
  (select format('%s %s %s %s', d.locale, d.platform, d.token,
  deadline_at - interval '60 s' between now() and clock_timestamp()) from push.delivery d where outbox_id = :rings and user_id = 'a'),
  'nl 2 rings-token-0123456789-001 t');
select test.equal('an answered call creates no missed call',
  (select count(*) from push.deliveries where kind = 'missed_call' and call_id = 'rings'), 0::bigint);
select test.equal('the claim returns the reason for cancels', (select string_agg(distinct format('%s %s %s', kind, call_id, end_reason), ' ')
  from push.claim(:g2, 1,
  array(select id from push.lane where app = 'default'), array[100, 100, 100], array['-infinity', '-infinity', '-infinity']::timestamptz[])
    where call_id = 'rings'), '1 rings answered');
select push.enqueue_call('{"callId": "later2", "from": "x"}', '["later"]');
select test.claim(:g1); select pg_temp.sent('later2', 0, 0);
select push.end_call('later2', 'declined'); select test.follow();
select test.equal('a registered user''s token is found again and gets a cancel with its locale',
  (select format('%s %s %s %s', d.kind, token, platform, locale) from push.delivery d join push.outbox o on o.id = d.outbox_id
  where call_id = 'later2'),
  '1 rings-token-0123456789-999 2 de');

-- A backend's transaction notes each call that ends, and does nothing that grows with the recipients.
create function pg_temp.rows_written() returns bigint language sql as $$
  select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_xact_all_tables where schemaname = 'push' $$;
create function pg_temp.deliveries_read() returns bigint language sql as $$
  select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint from pg_stat_xact_all_tables where schemaname = 'push' and relname in ('delivery',
    'devices') $$;
-- Rows that a statement writes, and deliveries and devices that it reads.
create function pg_temp.work(p_statement text) returns text language plpgsql as $$
declare
  v_written bigint := pg_temp.rows_written(); v_read bigint := pg_temp.deliveries_read();
begin
  execute p_statement;
  return format('%s %s', pg_temp.rows_written() - v_written, pg_temp.deliveries_read() - v_read);
end $$;
select test.call('work-' || k || '-' || i, k) from unnest('{1,500}'::int[]) k, generate_series(1, 7) i \g /dev/null
select test.claim(:g1, 9999) is not null as claimed \gset
select test.equal(format('an end: the call and a note, with %s recipients', k), pg_temp.work(format('select push.end_call(%L)', 'work-' || k
  || '-1')), '2 0')
  from unnest('{1,500}'::int[]) k;
select test.equal(format('an answer, with %s', k), pg_temp.work(format('select push.answer_call(%L, ''u1'')', 'work-' || k || '-2')), '2 0')
  from unnest('{1,500}'::int[]) k;
select test.equal(format('a decline, with %s', k), pg_temp.work(format('select push.decline_call(%L, ''u1'')', 'work-' || k || '-3')), '2 0')
  from unnest('{1,500}'::int[]) k;
select test.equal(format('three that end at once, with %s', k),
  pg_temp.work(format('update push.outbox set state = ''ended'' where call_id = any (%L)',
  array['work-' || k || '-4', 'work-' || k || '-5', 'work-' || k || '-6'])), '6 0') from unnest('{1,500}'::int[]) k;
select test.equal(format('a deletion: the call, its key, a note and the record, with %s', k),
  (regexp_match(pg_temp.work(format('delete from push.outbox where call_id = %L', 'work-' || k || '-7')), '^\d+'))[1], '4')
    from unnest('{1,500}'::int[]) k;
select test.equal('a note for each call', (select string_agg(concat_ws(' ', why, count), ', ' order by why) from (select why, count(*)
  from push.follow_ups
  group by 1) x), 'declined 2, ended 10, gone 2');
select test.equal('another update of a call that has ended notes nothing',
  pg_temp.work('update push.outbox set end_reason = ''x'' where call_id ~ ''^work-1-''')
  || (select count(*) from push.follow_ups where why = 'ended'), '6 010');
delete from push.outbox where call_id ~ '^work-';
select test.follow();

-- Many declines, before the claim.
select test.call('crowd', 100) as crowd \gset
update push.outbox set declined = (select jsonb_object_agg('u' || i, jsonb_build_object('reason', 'declined', 'device', repeat(md5(i::text), 30)))
  from generate_series(1, 99) i) where id = :crowd;
select test.claim(:g1, 999) is not null as claimed \gset
select test.equal('a claim finds all who have declined', (select string_agg(concat_ws(' ', found_ended, count), ', ' order by found_ended) from (
  select found_ended, count(*) from push.delivery where outbox_id = :crowd and kind = 0 and state = 1 group by 1) x), 'f 1, t 99');
select test.follow();
select test.equal('so none of their phones gets a cancel', (select count(*) from push.deliveries where outbox_id = :crowd and kind = 'cancel'),
  0::bigint);
delete from push.outbox where id = :crowd; select test.follow();

-- Invites of an ended call that a gateway still has: it may return them, and the next claim says that the call is over.
create function pg_temp.park(p_gateway int, p_call text, p_n int, p_attempts int, p_delay_ms int, p_reason text) returns bigint language sql as $$
  select push.park(p_gateway, array[d.outbox_id], array[d.n], array[d.lease], array[p_attempts], array[p_delay_ms], array[p_reason])
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.n = p_n $$;
select test.call('fence', 6) as fence \gset
select test.claim(:g1);
select test.equal('one is parked before the end', pg_temp.park(:g1, 'fence', 4, 1, 9000, 'Unavailable'), 1::bigint);
select push.end_call('fence', 'busy');
select push.void_unsent(array[:fence]::bigint[]);
select test.equal('one is parked in the middle of the follow-up', pg_temp.park(:g1, 'fence', 5, 1, 9000, 'Unavailable'), 1::bigint);
select push.cancel_rings(array[:fence]::bigint[]);
delete from push.follow_ups;
select test.equal('claimed invites stay, and that one; each phone that may ring gets a cancel',
  (select string_agg(concat_ws(' ', kind, state, count), ', ') from (select kind, state, count(*) from push.deliveries where call_id = 'fence'
  group by 1, 2 order by 1, 2) x), 'cancel ready 6, invite claimed 4, invite waiting 1');
select test.equal('park accepts one', pg_temp.park(:g1, 'fence', 0, 1, 10, 'Unavailable'), 1::bigint);
select test.equal('or returns it at once, without the attempt', pg_temp.park(:g1, 'fence', 1, null, null, null), 1::bigint);
select test.equal('both are owed', (select string_agg(concat_ws(' ', n, state, attempt, last_reason), ', ' order by n) from push.deliveries
  where call_id = 'fence' and n < 2), '0 waiting 1 Unavailable, 1 ready 0');
select push.register_gateway('reaper', '1') as reaper \gset
select test.dies(:g1, :reaper);
select test.equal('a beat frees the others', (select count(*) from push.delivery where owner = :g1), 0::bigint);
update push.delivery set due_at = now() where outbox_id = :fence;
select test.equal('promote makes those ready that wait', push.promote(), 2::bigint);
select test.equal('all are claimed with the word that the call is over', (select concat_ws(' ', bool_or(c.ended), max(c.end_reason),
  count(*) filter (where c.kind = 0)) from push.claim(:reaper, 1, array(select id from push.lane where app = 'default'), '{999,999,999}',
  array_fill('-infinity'::timestamptz, array[3])) c where outbox_id = :fence), 't busy 5');
select sum(push.settle(:reaper, null, array[outbox_id], array[n], array[lease], array[attempt - 1], '{2}', '{null}', '{null}', '{null}', '{null}',
  '{null}',
  '{null}')) from push.delivery where outbox_id = :fence and kind = 0;
select test.equal('and end as void', pg_temp.past('fence'), (select string_agg(format('invite/%s:void:CallEnded', n), ' ') from generate_series(0,
  5) n));
insert into push.follow_ups (outbox_id, why) values (:fence, 'ended'); select test.follow();
select test.equal('no phone is told twice', (select count(*) from push.deliveries where call_id = 'fence'), 6::bigint);
select push.register_gateway('one', '1') as g1 \gset
select test.call('release', 2) as release \gset
select test.claim(:g1);
select test.equal('a ringing call''s invite is ready again, too', pg_temp.park(:g1, 'release', 0, null, null, null) || ' ' || pg_temp.owed('release'),
  '1 invite/0:ready:fcm:u1:9-1 invite/1:claimed:fcm:u2:9-2');
select push.release(:g1, array[:release]::bigint[], array[1], array[1]);
select test.equal('an earlier release calls that release', pg_temp.owed('release'), 'invite/0:ready:fcm:u1:9-1 invite/1:ready:fcm:u2:9-2');
select test.claim(:g1);
select push.end_call('release', 'busy');
select push.release(:g1, array[:release]::bigint[], array[0], array[1]);
select test.equal('which ends it as void if the call is over: that gateway would claim it again and again', pg_temp.past('release'),
  'invite/0:void:CallEnded');

-- Missed calls.
insert into push.devices (user_id, provider, token, platform, voip, enabled, invalidated_at, invalid_reason, environment, locale) values
  ('iphone', 'apns', pg_temp.hex('b01'), 'ios', true, true, null, null, null, null),
    ('iphone', 'apns', pg_temp.hex('b02'), null, false, true, null, null, 'sandbox', 'pt-BR'),
  ('iphone', 'fcm', 'missed-token-0123456789-i01', 'ios', true, true, null, null, null, null),
  ('droid', 'expo', 'ExponentPushToken[droid]', 'android', true, true, null, null, null, null),
    ('droid', 'fcm', 'missed-token-0123456789-d01', 'android', true, true, null, null, null, null),
  ('voip-only', 'apns', pg_temp.hex('b03'), 'ios', true, true, null, null, null, null),
  ('off', 'fcm', 'missed-token-0123456789-o01', null, true, false, null, null, null, null),
  ('gone', 'fcm', 'missed-token-0123456789-g01', null, true, true, now(), 'UNREGISTERED', null, null);
insert into push.token_invalidations (app, provider, token, reason) values ('default', 'apns', pg_temp.hex('c99'), 'Unregistered');
create function pg_temp.missed(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s', user_id, provider, right(device, 3)), ' ' order by user_id) from push.deliveries where call_id = p_call
    and kind = 'missed_call' $$;
create function pg_temp.enqueue_missed(p_call text) returns void language sql as $$
  insert into push.outbox (payload, recipients) values (jsonb_build_object('callId', p_call, 'from', 'x'),
    jsonb_build_array('iphone', 'droid', 'droid', 'voip-only', 'off', 'gone', 'nobody',
    jsonb_build_object('userId', 'alert', 'voipPushToken', pg_temp.hex('c01'), 'apnsToken', pg_temp.hex('c02'), 'fcmToken',
      'missed-token-0123456789-001', 'environment', 'sandbox'),
    jsonb_build_object('userId', 'alert', 'fcmToken', 'missed-token-0123456789-002'),
    jsonb_build_object('userId', 'dead', 'apnsToken', pg_temp.hex('c99'), 'fcmToken', 'missed-token-0123456789-003'),
    jsonb_build_object('userId', 'same', 'voipPushToken', pg_temp.hex('c03'), 'apnsToken', pg_temp.hex('c03'), 'pushToken',
      'ExponentPushToken[same]'),
    jsonb_build_object('userId', 'swap', 'apnsToken', pg_temp.hex('c03'), 'fcmToken', 'missed-token-0123456789-004'),
    jsonb_build_object('userId', 'known', 'apnsToken', pg_temp.hex('b01'), 'fcmToken', 'missed-token-0123456789-005'),
    jsonb_build_object('userId', 'quiet', 'fcmToken', 'missed-token-0123456789-006', 'notificationEnabled', false),
    jsonb_build_object('userId', 'none', 'voipPushToken', pg_temp.hex('c04')))) $$;
select pg_temp.enqueue_missed('m1');
select test.equal('miss leaves calls with time left', push.miss(), 0::bigint);
select test.lapse('m1');
select test.equal('miss takes late calls', push.miss(), 1::bigint); select test.follow();
select test.equal('the row tells it', (select state || ' ' || end_reason from push.outbox where call_id = 'm1'), 'missed missed');
select test.equal('each user gets one missed call, APNs alert before FCM before Expo; never over a VoIP token, even if also given as an alert token',
  pg_temp.missed('m1'), 'alert:apns:c02 dead:fcm:003 droid:fcm:d01 iphone:apns:b02 known:fcm:005 same:expo:me] swap:fcm:004');
select test.equal('it lives four hours and has the phone''s locale and environment',
  (select format('%s %s %s %s', environment, platform, locale,
  deadline_at - (select o.deadline_at from push.outbox o where o.call_id = 'm1')) from push.deliveries where call_id = 'm1'
    and user_id = 'iphone' and kind = 'missed_call'), 'sandbox ios pt-BR 04:00:00');
select test.equal('missed: no cancel', (select count(*) from push.deliveries where call_id = 'm1' and kind = 'cancel'), 0::bigint);
select test.equal('its invites have expired', (select string_agg(distinct outcome || ' ' || reason, ', ') from push.delivery_history
  where call_id = 'm1'), 'expired DeadlinePassed');
update push.delivery set deadline_at = 'infinity' where kind = 1;  -- A minute, which a slow machine may need.
select test.equal('miss again: nothing', push.miss() || '/' || push.expire(), '0/0');
update push.outbox set state = 'missed' where call_id = 'm1';
select test.equal('exactly once', (select count(*) from push.deliveries where call_id = 'm1' and kind = 'missed_call'), 7::bigint);
select test.equal('an answer comes too late', push.answer_call('m1', 'droid') or push.end_call('m1'), false);

select test.call('m2', 1) as m2 \gset
select test.lapse('m2');
select test.equal('expire before miss', push.expire() || '/' || push.miss(), '1/1'); select test.follow();
select test.equal('the same', pg_temp.past('m2') || ' ' || pg_temp.missed('m2'),
  'invite/0:expired:DeadlinePassed u1:fcm:9-1');
select test.call('m3', 1) as m3 \gset
select test.claim(:g1);
select push.park(:g1, array[:m3]::bigint[], array[0], array[1], array[1], array[9000], array['Unavailable']);
select test.lapse('m3');
select test.equal('miss before expire', push.miss(), 1::bigint); select test.follow();
select test.equal('the same, with the provider''s reason', push.expire() || ' ' || pg_temp.past('m3'), '0 invite/0:expired:Unavailable');
select test.call('m4', 1) as m4 \gset
select test.claim(:g1); select pg_temp.sent('m4', 0, 0);
select push.answer_call('m4', 'u1'); select test.lapse('m4'); select test.follow();
select test.equal('an answer suppresses the missed call', push.miss() || coalesce(pg_temp.owed('m4'), ''), '0');
select pg_temp.enqueue_missed('m5'), push.end_call('m5'), pg_temp.enqueue_missed('m6'), push.end_call('m6', 'declined'), pg_temp.enqueue_missed('m7'),
  push.end_call('m7', 'busy'); select test.follow();
select test.equal('a hang-up is missed at once', pg_temp.missed('m5'), pg_temp.missed('m1'));
select test.equal('declined and busy are not', concat(pg_temp.missed('m6'), pg_temp.missed('m7')), '');
select test.call('m8', 1); update push.outbox set state = 'missed' where call_id = 'm8'; select test.follow();
select test.equal('missed by hand before the deadline: unsent invites are void', pg_temp.past('m8') || ' ' || pg_temp.missed('m8'),
  'invite/0:void:CallMissed u1:fcm:9-1');
select test.call('s' || i, 2) from generate_series(1, 20) i;
update push.outbox set state = 'ended', end_reason = 'shutdown' where call_id ~ '^s[0-9]+$'; select test.follow();
select test.equal('one statement ends many calls', (select count(*) || ' ' || count(*) filter (where kind = 'missed_call') from push.deliveries
  where call_id ~ '^s[0-9]+$'), '40 40');

-- Dead tokens.
select push.register_lane('tokens', 'fcm') as fcm, push.register_lane('tokens', 'apns') as apns \gset
select push.register_lane('tokens', 'fcm');
select push.register_device('u', 'tokens', 'fcm', 'dead-token-0123456789-' || i, platform => 'android') from generate_series(1, 4) i;
update push.devices set registered_at = now() - interval '1 hour' where app = 'tokens';
create function pg_temp.alive() returns text language sql as $$
  select string_agg(right(token, 1), '' order by token) filter (where invalidated_at is null) || ' '
    || (select coalesce(string_agg(right(token, 1) || coalesce(user_id, '-') || reason, ' ' order by token), '')
    from push.token_invalidations where app = 'tokens') from push.devices where app = 'tokens' $$;
select test.equal('compare and clear', push.invalidate_tokens(array[:fcm, :fcm, :fcm, :fcm, :fcm]::smallint[],
  array['dead-token-0123456789-1', 'dead-token-0123456789-2', 'dead-token-0123456789-3', 'dead-token-0123456789-3', 'dead-token-0123456789-9'],
  array[null, now() - interval '2 hours', now() - interval '2 hours', now() - interval '1 minute', now() - interval '2 hours']::timestamptz[],
    array['A', 'B', 'B', 'C', 'D']), 3::bigint);
select test.equal('dead: reported without a time, or with one after the registration; alive: registered later; a token without a device is noted',
  pg_temp.alive(),
  '24 1uA 3uC 9-D');
select test.equal('saying it again changes nothing', push.invalidate_tokens(array[:fcm, :fcm, :apns]::smallint[],
  array['dead-token-0123456789-1', 'dead-token-0123456789-9', null], array[null, null, null]::timestamptz[], array['X', 'X', 'X'])
  || pg_temp.alive(), '024 1uA 3uC 9-D');
select test.equal('the device has the reason', (select invalid_reason from push.devices where token = 'dead-token-0123456789-3'), 'C');
select test.equal('another provider''s token is another', push.invalidate_tokens(array[:apns]::smallint[], array['dead-token-0123456789-2'],
  array[null]::timestamptz[], array['X']) || left(pg_temp.alive(), 2), '124');
select test.equal('a dead token is not enqueued to, registered or inline',
  test.fan_out('[{"userId": "i", "fcmToken": "dead-token-0123456789-1"}, {"userId": "i", "fcmToken": "dead-token-0123456789-9"}]', 'tokens'), null);
update push.devices set enabled = false where token = 'dead-token-0123456789-1';
select push.register_device('u', 'tokens', 'fcm', 'dead-token-0123456789-1', locale => 'da');
select push.register_device('i', 'tokens', 'fcm', 'dead-token-0123456789-9');
select test.equal('a token registered again is alive again, also in recipients',
  test.fan_out('[{"userId": "i", "fcmToken": "dead-token-0123456789-1"}, {"userId": "i", "fcmToken": "dead-token-0123456789-9"}]', 'tokens'),
  'fcm::production:i:9-1 fcm::production:i:9-9');
select test.equal('registering keeps values that are not passed, and the user''s switch',
  (select format('%s %s %s %s', platform, locale, enabled, registered_at > now() - interval '1 minute') from push.devices
  where token = 'dead-token-0123456789-1'), 'android da f t');
select push.register_device('v', 'tokens', 'fcm', 'dead-token-0123456789-1');
select test.equal('with another user the token moves, and is on', (select format('%s %s', user_id, enabled) from push.devices
  where token = 'dead-token-0123456789-1'), 'v t');
update push.devices set registered_at = clock_timestamp(), invalidated_at = null, invalid_reason = null where token = 'dead-token-0123456789-3';
select test.equal('an update by hand revives, too', (select count(*) from push.token_invalidations where token like 'dead-token%-3'), 0::bigint);
select push.register_device('w', 'tokens', 'apns', pg_temp.hex('d01'), 'sandbox', 'ios', 'nl', false);
select test.equal('an alert token', (select format('%s %s %s %s %s', user_id, voip, environment, platform, locale) from push.devices
  where token = pg_temp.hex('d01') and app = 'tokens'), 'w f sandbox ios nl');
select test.equal('a malformed token is refused without printing it', pg_temp.error($$select push.register_device('w', 'tokens', 'apns', 'secret')$$),
  '22023 push.devices.token: must have the form of a token of provider apns');
select test.equal('drop_device', push.drop_device('tokens', 'apns', pg_temp.hex('d01')), true);
select test.equal('once', push.drop_device('tokens', 'apns', pg_temp.hex('d01')), false);
select push.register_device('many', 'tokens', 'fcm', 'many-token-0123456789-' || i) from generate_series(1, 100) i;
update push.devices set registered_at = now() - interval '1 day' where token = 'many-token-0123456789-7';
select push.register_device('many', 'tokens', 'apns', pg_temp.hex('dae'), platform => 'ios');
create function pg_temp.many() returns text language sql as $$
  select count(*) filter (where invalidated_at is null) || ' ' || string_agg(right(token, 2), ' ' order by token) filter (where
    invalid_reason = 'TooManyDevices') from push.devices where user_id = 'many' $$;
select test.equal('of more than a hundred devices, the one registered longest ago is put aside', pg_temp.many(), '100 -7');
select push.register_device('many', 'tokens', 'fcm', 'many-token-0123456789-7');
select test.equal('it comes back when it is registered again', pg_temp.many(), '100 -1');
insert into push.devices (user_id, app, provider, token) select case when i % 2 = 0 then 'many' else 'more' end, 'tokens', 'fcm',
  'more-token-0123456789-' || i from generate_series(1, 240) i;
select test.equal('of many in one statement, too, and for each user',
  (select string_agg(n::text, ' ') from (select count(*) as n from push.devices where user_id in ('many', 'more') and invalidated_at is null
  group by user_id) x), '100 100');
select test.equal('no token is noted as dead', (select count(*) from push.token_invalidations where token like 'm%-token%'), 0::bigint);
delete from push.devices where user_id in ('many', 'more');

-- Another server is the primary, and its clock differs.
select push.register_gateway('clocks', '1') as g \gset
create function pg_temp.cancels_after(p_gateway int, p_call text, p_step interval) returns bigint language plpgsql as $$
declare
  v_id bigint := test.call(p_call, 1, 'clocks');
begin
  perform test.claim(p_gateway, 100, 'clocks');
  perform test.settle(p_gateway, v_id, 0, 1);
  update push.history set finished_at = finished_at + p_step where outbox_id = v_id;
  perform push.end_call(p_call, app => 'clocks'), test.follow();
  return (select count(*) from push.deliveries where call_id = p_call and kind = 'cancel');
end $$;
select test.equal('a phone that rang by a clock that was ahead gets a cancel', pg_temp.cancels_after(:g, 'ahead', '90 s'), 1::bigint);
select test.equal('and one that rang by a clock that is behind that of the call', pg_temp.cancels_after(:g, 'behind', '-90 s'), 1::bigint);
