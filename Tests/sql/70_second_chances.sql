-- The next channel, failed tries, Expo receipts, the hold of invalidation, environments.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
-- The invites of a call, owed and finished: n:provider:user:end of the token:state or outcome<fallback of.
create function pg_temp.invites(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s:%s:%s%s', n, provider, user_id, right(device, 3), state, '<' || fallback_of), ' ' order by n) from (
    select n, provider, user_id, device, state, fallback_of from push.deliveries where call_id = p_call and kind = 'invite'
    union all select h.n, h.provider, h.user_id, h.device, h.outcome, h.fallback_of from push.delivery_history h join push.outbox o
      on o.id = h.outbox_id where o.call_id = p_call and h.kind = 'invite') x $$;
create function pg_temp.enqueue(p_call text, p_recipients jsonb, p_ring int default 600) returns bigint language sql as $$
  insert into push.outbox (app, payload, recipients, ring_seconds) values ('default', jsonb_build_object('callId', p_call, 'from', 'x'), p_recipients,
    p_ring) returning id $$;
create function pg_temp.claim_all(p_gateway int) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, 1, array(select id from push.lane where app = 'default'), array[9999, 9999, 9999],
    array['-infinity', '-infinity', '-infinity']::timestamptz[]) $$;
-- Settles in one batch the claimed deliveries of a call with these numbers.
create function pg_temp.settle(p_call text, p_n int[], p_outcome int, p_reason text default 'Unregistered', p_failures text default null,
  p_receipt_after_ms int default null)
returns bigint language sql as $$
  select push.settle(min(d.owner), array_agg(d.ctid), array_agg(d.outbox_id), array_agg(d.n), array_agg(d.lease), array_agg(d.attempt::int),
    array_agg(p_outcome::smallint), array_agg(410::smallint),
    array_agg(p_reason), array_agg('ticket-' || p_call || '-' || d.n), array_agg(p_call), array_agg(clock_timestamp()), array_agg(clock_timestamp()),
      array_agg(p_failures), array_agg(p_receipt_after_ms))
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.n = any (p_n) and d.state = 1 $$;
select push.register_gateway('one', '1') as g1 \gset
select push.register_lane('default', 'apns') as apns, push.register_lane('default', 'fcm') as fcm, push.register_lane('default', 'expo') as expo \gset

-- Fallback: an entry with tokens.
select jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('aaa'), 'apnsToken', pg_temp.hex('bbb'), 'fcmToken',
  'chance-token-0123456789-fff',
  'pushToken', 'ExponentPushToken[chance-eee]', 'locale', 'nl', 'platform', 'android')) as three \gset
select pg_temp.enqueue('f1', :'three') as f1, pg_temp.claim_all(:g1);
select pg_temp.settle('f1', '{0}', 4); select test.follow();
select test.equal('VoIP failed for good: FCM is tried at once, never the alert token', pg_temp.invites('f1'),
  '0:apns:u:aaa:dead 1:fcm:u:fff:ready<0');
select test.equal('it has the call''s deadline, the entry''s language, its own time',
  (select format('%s %s %s %s', d.deadline_at = o.deadline_at, d.locale, d.attempt, d.created_at > o.created_at)
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'f1'), 't nl 0 t');
select test.equal('the timeline tells it while it is owed', (select string_agg(concat_ws(' ', event, provider, reason), ', ') from push.timeline('f1')
  where event in ('fallback', 'ready')),
  'fallback fcm Unregistered, ready fcm');
select pg_temp.claim_all(:g1);
select pg_temp.settle('f1', '{1}', 4, 'UNREGISTERED'); select test.follow();
select test.equal('FCM failed, too: Expo', pg_temp.invites('f1'), '0:apns:u:aaa:dead 1:fcm:u:fff:dead<0 2:expo:u:ee]:ready<1');
select pg_temp.claim_all(:g1);
select pg_temp.settle('f1', '{2}', 4, 'DeviceNotRegistered'); select test.follow();
select test.equal('after Expo there is nothing', pg_temp.invites('f1'), '0:apns:u:aaa:dead 1:fcm:u:fff:dead<0 2:expo:u:ee]:dead<1');
select test.equal('the timeline tells it when it is finished', (select string_agg(concat_ws(' ', event, provider, reason), ', ' order by at, event)
  from push.timeline('f1') where event = 'fallback'),
  'fallback fcm Unregistered, fallback expo UNREGISTERED');

insert into push.token_invalidations (app, provider, token, reason) values ('default', 'fcm', 'chance-token-0123456789-ded', 'UNREGISTERED');
select pg_temp.enqueue('f2', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('aab'), 'fcmToken',
  'chance-token-0123456789-ded', 'pushToken', 'ExponentPushToken[chance-two]')));
select pg_temp.enqueue('f3', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('aac'), 'apnsToken',
  pg_temp.hex('bbc')), 'chance-other'));
select pg_temp.enqueue('f4', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('aad'), 'fcmToken',
  'chance-token-0123456789-f4f'),
  jsonb_build_object('userId', 'v', 'fcmToken', 'chance-token-0123456789-f4f')));
select pg_temp.claim_all(:g1);
select pg_temp.settle(call, '{0}', 4) from unnest(array['f2', 'f3', 'f4']) call; select test.follow();
select test.equal('a token known to be dead is skipped', pg_temp.invites('f2'), '0:apns:u:aab:dead 1:expo:u:wo]:ready<0');
select test.equal('an entry without another token has no other channel', pg_temp.invites('f3'), '0:apns:u:aac:dead');
select test.equal('no token is sent to twice in a call', (select count(*) from push.deliveries where call_id = 'f4'), 1::bigint);

-- When: dead, or expired with time left; only while the call rings.
create function pg_temp.chance(p_gateway int, p_call text, p_outcome int, p_left text default '50 s', p_end boolean default false) returns text
  language plpgsql as $$
declare
  v_deadline timestamptz;
begin
  perform pg_temp.enqueue(p_call, jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', md5(p_call) || md5(p_call), 'fcmToken',
    'chance-token-' || md5(p_call))));
  perform pg_temp.claim_all(p_gateway);
  v_deadline := clock_timestamp() + p_left::interval;
  update push.delivery d set deadline_at = v_deadline from push.outbox o where o.id = d.outbox_id and o.call_id = p_call;
  if p_end then perform push.end_call(p_call, 'busy'); end if;
  perform pg_temp.settle(p_call, '{0}', p_outcome, null);
  -- Settled with this time left, or else once more.
  if clock_timestamp() > v_deadline and p_left !~ '^-' then
    return pg_temp.chance(p_gateway, p_call || '+', p_outcome, p_left, p_end);
  end if;
  perform test.follow();
  return (select string_agg(coalesce(state, outcome), ' ' order by outcome)
    from (select outcome, n from push.delivery_history where call_id = p_call) h full
    join (select state, n from push.deliveries where call_id = p_call) d using (n));
end $$;
select test.equal(format('outcome %s, %s left, the call %s', outcome, spare, case when ended then 'over' else 'rings' end),
  pg_temp.chance(:g1, format('when-%s-%s-%s', outcome, spare, ended), outcome, spare, ended), want)
from (values (0, '50 s', false, 'delivered'), (1, '50 s', false, 'delivered_late'), (2, '50 s', false, 'void'), (3, '50 s', false, 'expired ready'),
  (3, '1 s', false, 'expired'),
  (4, '1 s', false, 'dead ready'), (4, '-1 s', false, 'dead'), (4, '50 s', true, 'dead'), (3, '50 s', true, 'expired')) c(outcome, spare, ended,
    want);
select pg_temp.enqueue('lost', :'three') as lost, pg_temp.claim_all(:g1) \gset
select test.equal('a settlement under a lost lease', push.settle(:g1, null, array[:lost]::bigint[], array[0], array[9], array[1],
  array[4]::smallint[], array[410]::smallint[], array['x'], array[null], array['lost'], array[now()], array[now()]), 0::bigint);
select test.equal('falls back to nothing', pg_temp.invites('lost'), '0:apns:u:aaa:claimed');
select push.end_call('lost', 'busy'); select test.follow();

-- The payload must fit the next channel.
insert into push.outbox (payload, recipients) select jsonb_build_object('callId', 'large', 'from', 'x', 'metadata',
  jsonb_build_object('a', repeat('x', 4000))), :'three'::jsonb;
select pg_temp.claim_all(:g1);
select pg_temp.settle('large', '{0}', 4); select test.follow();
select test.equal('a payload too large for the next channel has none', pg_temp.invites('large'), '0:apns:u:aaa:dead');
insert into push.outbox (payload, recipients) select jsonb_build_object('callId', 'named', 'from', 'x', 'fromName', repeat('x', 4000)),
  :'three'::jsonb;
select pg_temp.claim_all(:g1);
select pg_temp.settle('named', '{0}', 4); select test.follow();
select test.equal('one that is too large by a name has', pg_temp.invites('named'), '0:apns:u:aaa:dead 1:fcm:u:fff:ready<0');

-- Fallback: registered users.
insert into push.devices (user_id, provider, token, platform, voip, enabled, registered_at) values
  ('reg', 'apns', pg_temp.hex('d01'), 'ios', true, true, now()), ('reg', 'apns', pg_temp.hex('d02'), 'ios', true, true, now()),
    ('reg', 'apns', pg_temp.hex('d03'), 'ios', false, true, now()),
  ('reg', 'fcm', 'chance-token-0123456789-ios', 'ios', true, true, now()), ('reg', 'fcm', 'chance-token-0123456789-off', 'ios', true, false, now()),
  ('reg', 'fcm', 'chance-token-0123456789-and', 'android', true, true, now()),
  ('reg', 'expo', 'ExponentPushToken[chance-ios]', 'ios', true, true, now()),
    ('reg', 'expo', 'ExponentPushToken[chance-and]', 'android', true, true, now()),
    ('reg', 'expo', 'ExponentPushToken[chance-any]', null, true, true, now());
select pg_temp.enqueue('r1', '["reg"]'), pg_temp.claim_all(:g1);
select test.equal('before', pg_temp.invites('r1'), '0:apns:reg:d01:claimed 1:apns:reg:d02:claimed 2:fcm:reg:and:claimed');
select pg_temp.settle('r1', '{0}', 4); select test.follow();
select test.equal('one of two VoIP tokens failed, the other is owed: no fallback', pg_temp.invites('r1'),
  '0:apns:reg:d01:dead 1:apns:reg:d02:claimed 2:fcm:reg:and:claimed');
select pg_temp.settle('r1', '{1}', 4); select test.follow();
select test.equal('the last one failed: the next channel of that platform, not a disabled device, not another platform''s', pg_temp.invites('r1'),
  '0:apns:reg:d01:dead 1:apns:reg:d02:dead 2:fcm:reg:and:claimed 3:fcm:reg:ios:ready<1');
select pg_temp.claim_all(:g1);
select pg_temp.settle('r1', '{3}', 4); select test.follow();
select test.equal('and the next; one of unknown platform only when there is no other', pg_temp.invites('r1'),
  '0:apns:reg:d01:dead 1:apns:reg:d02:dead 2:fcm:reg:and:claimed 3:fcm:reg:ios:dead<1 4:expo:reg:os]:ready<3');
select pg_temp.settle('r1', '{2}', 4); select test.follow();
select test.equal('the other platform''s channel fails by itself', (select string_agg(n || device, ' ' order by n) from push.deliveries
  where call_id = 'r1' and fallback_of = 2), '5Expo…and]');
select pg_temp.enqueue('r2', '["reg"]'), pg_temp.claim_all(:g1);
select pg_temp.settle('r2', '{0}', 0, null);
select pg_temp.settle('r2', '{1}', 4); select test.follow();
select test.equal('delivered to another token of the channel: no fallback', pg_temp.invites('r2'),
  '0:apns:reg:d01:delivered 1:apns:reg:d02:dead 2:fcm:reg:and:claimed');
select pg_temp.enqueue('r3', '["reg"]'), pg_temp.claim_all(:g1);
select pg_temp.settle('r3', '{0,1}', 4); select test.follow();
select test.equal('both tokens failed in one batch: one fallback', pg_temp.invites('r3'),
  '0:apns:reg:d01:dead 1:apns:reg:d02:dead 2:fcm:reg:and:claimed 3:fcm:reg:ios:ready<1');
select test.equal('the fallback of a call that ends is void, and the timeline stays',
  push.end_call('r3', 'busy') || ' ' || coalesce(test.follow()::text, '') || pg_temp.invites('r3') || ' '
    || (select count(*) from push.timeline('r3') where event = 'fallback'),
  'true 0:apns:reg:d01:dead 1:apns:reg:d02:dead 2:fcm:reg:and:claimed 3:fcm:reg:ios:void<1 1');
select pg_temp.enqueue('r4', :'three'), pg_temp.claim_all(:g1), pg_temp.settle('r4', '{0}', 4), test.follow(), pg_temp.claim_all(:g1),
  pg_temp.settle('r4', '{1}', 0, null), push.end_call('r4', 'busy'); select test.follow();
select test.equal('a cancel goes to a fallback that may ring', (select string_agg(kind || right(device, 3), ' ') from push.deliveries
  where call_id = 'r4'), 'cancelfff');
select pg_temp.enqueue('r5', '["reg"]', 1), pg_temp.claim_all(:g1);
update push.outbox set state = 'missed' where call_id = 'r5'; select test.follow();
select pg_temp.settle('r5', '{0,1,2}', 4); select test.follow();
select test.equal('a missed call falls back to nothing', pg_temp.invites('r5'), '0:apns:reg:d01:dead 1:apns:reg:d02:dead 2:fcm:reg:and:dead');

insert into push.devices (user_id, provider, token, platform) values ('two', 'fcm', 'chance-token-0123456789-ti1', 'ios'),
  ('two', 'fcm', 'chance-token-0123456789-ta1', 'android'), ('two', 'fcm', 'chance-token-0123456789-ta2', 'android'),
  ('two', 'expo', 'ExponentPushToken[two-i]', 'ios'), ('two', 'expo', 'ExponentPushToken[two-a]', 'android');
select pg_temp.enqueue('r6', '["two"]'), pg_temp.claim_all(:g1);
select pg_temp.settle('r6', '{0}', 0, null);
select pg_temp.settle('r6', '{1,2}', 4); select test.follow();
select test.equal('delivered over FCM to one platform is not delivered to the other', pg_temp.invites('r6'),
  '0:fcm:two:ta1:delivered 1:fcm:two:ta2:dead 2:fcm:two:ti1:dead 3:expo:two:-i]:ready<2');

-- A call is looked at again, because another invite of it fails.
select pg_temp.enqueue('r7', '["reg", {"userId": "v", "fcmToken": "chance-token-0123456789-vvv"}]'), pg_temp.claim_all(:g1);
select pg_temp.settle('r7', '{0}', 4), pg_temp.settle('r7', '{1}', 4), test.follow(), pg_temp.claim_all(:g1);
select pg_temp.settle('r7', '{4}', 0, null);
select test.equal('before', pg_temp.invites('r7'),
  '0:apns:reg:d01:dead 1:apns:reg:d02:dead 2:fcm:reg:and:claimed 3:fcm:v:vvv:claimed 4:fcm:reg:ios:delivered<1');
select pg_temp.settle('r7', '{3}', 4), test.follow();
select test.equal('two tokens whose next channel was reached are not followed again', pg_temp.invites('r7'),
  '0:apns:reg:d01:dead 1:apns:reg:d02:dead 2:fcm:reg:and:claimed 3:fcm:v:vvv:dead 4:fcm:reg:ios:delivered<1');
select pg_temp.enqueue('r8', :'three'::jsonb || jsonb_build_array(jsonb_build_object('userId', 'v', 'fcmToken',
  'chance-token-0123456789-vvv'))) as r8,
  pg_temp.claim_all(:g1) \gset
update push.delivery set crashes = 2, ready_lane = null where outbox_id = :r8 and n = 0;
update push.gateways set alive = false, ended_at = now(), ended_reason = 'silent' where id = :g1;
select push.free_rows(array(select ctid from push.delivery where outbox_id = :r8 and n = 0), array[:g1]);
update push.gateways set alive = true, ended_at = null, ended_reason = null where id = :g1;
select pg_temp.settle('r8', '{1}', 4), test.follow();
select test.equal('nor is an invite with which three gateways died', pg_temp.invites('r8'), '0:apns:u:aaa:dead 1:fcm:v:vvv:dead');

-- Failed tries.
select test.call('tries', 2) as tries \gset
select pg_temp.claim_all(:g1);
create function pg_temp.tries(p_from int, p_to int) returns text language sql as $$
  select jsonb_agg(jsonb_build_object('at', now(), 'attempt', i, 'status', 503, 'reason', 'ServiceUnavailable'))::text
    from generate_series(p_from, p_to) i $$;
select push.park(:g1, array[:tries]::bigint[], array[0], array[1], array[2], array[0], array['ServiceUnavailable'], array[pg_temp.tries(1, 2)]);
select test.equal('park keeps failed attempts', (select string_agg(concat_ws(' ', event, attempt, status, reason), ', ') from push.timeline('tries')
  where event = 'attempt failed'),
  'attempt failed 1 503 ServiceUnavailable, attempt failed 2 503 ServiceUnavailable');
select push.promote(), pg_temp.claim_all(:g1);
select pg_temp.settle('tries', '{0}', 0, null, pg_temp.tries(3, 25));
select test.equal('settle adds to it, the last 20 stay', (select format('%s %s %s', jsonb_array_length(failures), failures #>> '{0,attempt}',
  failures #>> '{19,attempt}') from push.history where outbox_id = :tries and n = 0), '20 6 25');
select pg_temp.settle('tries', '{1}', 0, null);
select test.equal('without failed attempts none are kept', (select failures from push.history where outbox_id = :tries and n = 1), null::jsonb);
select test.call('tries-2', 1) as tries2 \gset
select pg_temp.claim_all(:g1), push.park(:g1, array[:tries2]::bigint[], array[0], array[1], array[1], array[60000], array['x'],
  array[pg_temp.tries(1, 1)]);
update push.delivery set deadline_at = now() - interval '1 s', due_at = now() - interval '1 s' where outbox_id = :tries2;
select push.expire();
select test.equal('expire keeps them', (select jsonb_array_length(failures) from push.history where outbox_id = :tries2), 1);

-- Expo receipts.
select pg_temp.enqueue('x1', (select jsonb_agg(jsonb_build_object('userId', 'x' || i, 'pushToken', 'ExponentPushToken[receipt-' || i || ']'))
  from generate_series(1, 4) i)), pg_temp.claim_all(:g1);
select pg_temp.settle('x1', '{0,1}', 0, null, null, 900000), pg_temp.settle('x1', '{2}', 1, null, null, 0),
  pg_temp.settle('x1', '{3}', 4, 'x', null, 0); select test.follow();
create temp view receipt as select r.*, t.ticket as a_ticket, t.token as a_token
  from push.receipt_batch r cross join lateral unnest(r.ticket, r.token) t(ticket, token);
select test.equal('a receipt is scheduled for deliveries in time or late',
  (select string_agg(format('%s %s %s %s', a_ticket, a_token, due_at - sent_at > interval '899 s', give_up_at - sent_at), ', ' order by a_ticket)
  from receipt), 'ticket-x1-0 ExponentPushToken[receipt-1] t 1 day, ticket-x1-1 '
    'ExponentPushToken[receipt-2] t 1 day, ticket-x1-2 ExponentPushToken[receipt-3] f 1 day');
select test.equal('a settlement makes one row a lane', (select string_agg(cardinality(ticket)::text, ' ' order by id) from push.receipt_batch),
  '2 1');
select test.equal('only due receipts of this app are claimed', (select string_agg(ticket || n, ' ') from push.claim_receipts('default', 10, 600000))
  || (select count(*) from push.claim_receipts('other', 10, 60000)), 'ticket-x1-220');
select test.equal('a lease keeps it from others', (select count(*) from push.claim_receipts('default', 10, 600000))
  || (select format(' %s %s', attempts, due_at > now() + interval '50 s') from receipt where a_ticket = 'ticket-x1-2'), '0 1 t');
update push.receipt_batch set sent_at = sent_at - interval '1 hour', due_at = now() - interval '1 s' where 'ticket-x1-0' = any (ticket);
select test.equal('at most so many: of a larger batch a part', (select string_agg(concat_ws(' ', ticket, n, token), ', ')
  from push.claim_receipts('default', 1, 600000)), 'ticket-x1-0 0 ExponentPushToken[receipt-1]');
select test.equal('the rest is due as before', (select string_agg(a_ticket, ' ') from receipt where due_at < now()), 'ticket-x1-1');
select test.equal('and claimed next', (select string_agg(concat_ws(' ', ticket, n, token), ', ') from push.claim_receipts('default', 1, 600000)),
  'ticket-x1-1 1 ExponentPushToken[receipt-2]');
select test.equal('postpone', push.postpone_receipts('default', '{ticket-x1-0,nobody}', 60000), 1::bigint);
select test.equal('it is due later', (select due_at > now() + interval '50 s' from receipt where a_ticket = 'ticket-x1-0'), true);
update push.receipt_batch set claimed = true where 'ticket-x1-0' = any (ticket);
select push.postpone_receipts('default', '{ticket-x1-0}', 90000000);
select test.equal('never beyond its end', (select due_at = give_up_at from receipt where a_ticket = 'ticket-x1-0'), true);
select test.equal('settle_receipts', push.settle_receipts('default', '{ticket-x1-1,ticket-x1-2,nobody}', '{DeviceNotRegistered,null,x}'), 2::bigint);
select test.equal('twice is once', push.settle_receipts('default', '{ticket-x1-1,ticket-x1-2,nobody}', '{DeviceNotRegistered,null,x}'), 0::bigint);
select test.equal('the reason of a receipt is stored with the push', (select string_agg(n || coalesce(receipt_reason, '-'), ' ' order by n)
  from push.delivery_history where call_id = 'x1'), '0- 1DeviceNotRegistered 2- 3-');
-- Somebody's trigger refuses a row of history.
savepoint refused;
update push.receipt_batch set claimed = true, attempts = 1 where 'ticket-x1-0' = any (ticket);
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
create trigger refuse before update on push.history for each row execute function pg_temp.refuse();
select test.equal('a receipt whose reason cannot be stored ends, and keeps no other waiting',
  push.settle_receipts('default', '{ticket-x1-0}', '{MessageRateExceeded}'), 1::bigint);
select test.equal('its call is named', (select count(*) from push.audit a join push.outbox o on a.target = 'push.outbox.id ' || o.id
  where a.action = 'put_aside' and a.detail ->> 'sqlstate' = 'P0001' and o.call_id = 'x1'), 1::bigint);
rollback to refused;
select test.equal('another app''s tickets are another''s', push.settle_receipts('other', '{ticket-x1-0}', '{x}') || ''
  || push.postpone_receipts('other', '{ticket-x1-0}', 1), '00');

-- A batch of which some tickets are settled, some requested again, and some have no answer.
insert into push.receipt_batch (app, sent_at, due_at, give_up_at, ticket, outbox_id, n, user_id, token)
  select 'parts', now(), now(), now() + interval '1 day', array_agg('t' || i order by i), array_agg(i order by i), array_agg(i::int order by i),
    array_agg('u' || i order by i),
    array_agg('token-' || i order by i) from generate_series(1::bigint, 6) i;
select count(*) as claimed from push.claim_receipts('parts', 100, 600000) \gset
select test.equal('a batch gives all it has', :claimed, 6);
select test.equal('some have an answer', push.settle_receipts('parts', '{t5,t2}', '{null,null}'), 2::bigint);
select test.equal('the others are requested again', push.postpone_receipts('parts', '{t6,t1,t3,t4}', 60000), 4::bigint);
select test.equal('all keep what belongs to them', (select string_agg(format('%s:%s', claimed,
  array(select concat_ws('/', t, o, n, u, k) from unnest(ticket, outbox_id, r.n, user_id, token) x(t, o, n, u, k))), ' ' order by id)
  from push.receipt_batch r where app = 'parts'),
  'f:{t1/1/1/u1/token-1,t3/3/3/u3/token-3,t4/4/4/u4/token-4,t6/6/6/u6/token-6}');
select test.equal('an answer that is late is asked for again', push.settle_receipts('parts', '{t1,t3}', '{null,null}'), 0::bigint);
update push.receipt_batch set due_at = now() where app = 'parts';
select test.equal('nothing is lost', (select string_agg(ticket, ' ' order by ticket) from push.claim_receipts('parts', 100, 600000)), 't1 t3 t4 t6');
select test.equal('and then it is taken', push.settle_receipts('parts', '{t1,t3}', '{null,null}'), 2::bigint);
select test.equal('tickets can be taken out', push.cut_receipts(r, '{2}'), 1::bigint) from push.receipt_batch r where r.app = 'parts';
select test.equal('the rest is kept', (select string_agg(array_to_string(ticket, ' '), ' ') from push.receipt_batch where app = 'parts'), 't6');
select test.equal('a batch without tickets is gone', (select count(*) from push.receipt_batch where app = 'parts'), 1::bigint);
delete from push.receipt_batch where app = 'parts';
select test.equal('nothing is given up early', push.give_up_receipts('default'), 0::bigint);
update push.receipt_batch set sent_at = now() - interval '25 hours', due_at = now() - interval '1 hour', give_up_at = now() - interval '1 hour';
select test.equal('past its end it is not claimed', (select count(*) from push.claim_receipts('default', 10, 600000)), 0::bigint);
select test.equal('but given up', push.give_up_receipts('other') || '' || push.give_up_receipts('default'), '01');
select test.equal('and gone', (select count(*) from push.receipt_batch), 0::bigint);
insert into push.receipt_batch (app, sent_at, due_at, give_up_at, ticket, outbox_id, n, user_id, token)
  select 'many', now() - interval '25 hours', now() - interval '1 hour', now() - interval '1 hour', '{a,b}', '{1,1}', '{0,1}', '{u,u}', '{k,l}'
    from generate_series(1, 1001);
select test.equal('a bite of a thousand batches at a time', push.give_up_receipts('many') || ' ' || push.give_up_receipts('many') || ' '
  || push.give_up_receipts('many'), '2000 2 0');
select pg_temp.enqueue('x2', '[{"userId": "x", "pushToken": "ExponentPushToken[receipt-9]"}]') as x2, pg_temp.claim_all(:g1) \gset
select push.settle(:g1, null, array[:x2]::bigint[], array[0], array[7], array[1], array[0]::smallint[], array[200]::smallint[], array[null],
  array['t'], array['x2'], array[now()], array[now()], null, array[0]);
select test.equal('a lost lease schedules nothing', (select count(*) from push.receipt_batch), 0::bigint);
select pg_temp.settle('x2', '{0}', 0, null, null, 0), pg_temp.enqueue('x3', '[{"userId": "x", "pushToken": "ExponentPushToken[receipt-9]"}]'),
  pg_temp.claim_all(:g1);
select push.settle(:g1, null, array[d.outbox_id], array[0], array[1], array[1], array[0]::smallint[], array[200]::smallint[], array[null],
  array['late'], array['x3'], array[now() - interval '2 days'], array[now()], null, array[900000])
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'x3';
select test.equal('a clock that is wrong by days breaks nothing', (select count(*) from receipt where a_ticket = 'late' and due_at = give_up_at),
  1::bigint);

-- The hold of invalidation.
select push.register_lane('breaker', 'fcm') as lane, push.register_lane('breaker', 'apns') as other \gset
select push.register_device('b', 'breaker', 'fcm', 'breaker-token-0123456789-' || i) from generate_series(1, 5) i;
update push.devices set registered_at = now() - interval '1 hour' where app = 'breaker';
create function pg_temp.said(p_lane int, p_digits text) returns bigint language sql as $$
  select push.invalidate_tokens(array_agg(p_lane::smallint), array_agg('breaker-token-0123456789-' || c), array_agg(null::timestamptz),
    array_agg('UNREGISTERED'::text)) from regexp_split_to_table(p_digits, '') c $$;
create function pg_temp.tokens() returns text language sql as $$
  select format('alive %s dead %s quarantined %s', (select string_agg(right(token, 1), '' order by token) from push.devices where app = 'breaker'
    and invalidated_at is null),
    (select string_agg(right(token, 1), '' order by token) from push.token_invalidations where app = 'breaker'),
      (select string_agg(right(token, 1) || coalesce(user_id, '-'), '' order by token) from push.quarantined_tokens where app = 'breaker')) $$;
select pg_temp.said(:lane, '1239');
update push.token_invalidations set invalidated_at = now() - interval '10 minutes' where token = 'breaker-token-0123456789-1';
select test.equal('before', pg_temp.tokens(), 'alive 45 dead 1239 quarantined ');
select clock_timestamp() as held_after \gset
select test.equal('a hold quarantines tokens invalidated in the window',
  push.hold_invalidation(:lane::smallint, '5 minutes', '31 % dead') || ' ' || pg_temp.tokens(), '3 alive 2345 dead 1 quarantined 2b3b9-');
select test.equal('ops see it', (select (invalidation_held_at is not null) || invalidation_note from push.lanes where id = :lane), 'true31 % dead');
select test.equal('the lane says when it changed', (select updated_at >= :'held_after' from push.lanes where id = :lane), true);
select test.equal('holding again changes nothing', push.hold_invalidation(:lane::smallint, '1 hour', 'again') || ' ' || pg_temp.tokens(),
  '0 alive 2345 dead 1 quarantined 2b3b9-');
select test.equal('while it holds, tokens are quarantined', pg_temp.said(:lane, '48') || ' ' || pg_temp.tokens(),
  '0 alive 2345 dead 1 quarantined 2b3b4b8-9-');
select test.equal('calls go on to them', test.fan_out('["b"]', 'breaker') ~ 'b:9-4', true);
select test.equal('another lane is not held', push.invalidate_tokens(array[:other]::smallint[], array[pg_temp.hex('fff')], array[null]::timestamptz[],
  array['Unregistered']), 1::bigint);
delete from push.token_invalidations where token = pg_temp.hex('fff');
update push.devices set registered_at = clock_timestamp() + interval '1 s' where token = 'breaker-token-0123456789-3';
select test.equal('resumed with apply: tokens not registered since are dead',
  (select format('%s %s %s %s', r.was_held, r.invalidated, r.forgotten,
  r.message ~ '^breaker/fcm: .*on hold since .* of 5 quarantined ones, 4 were invalidated, 1 live on$')
  from push.resume_invalidation('breaker', 'fcm', true) r) || ' ' || pg_temp.tokens(), 't 4 1 t alive 35 dead 12489 quarantined ');
select test.equal('running it twice is harmless and reported', (select format('%s %s %s %s', was_held, invalidated, forgotten, message)
  from push.resume_invalidation('breaker', 'fcm', true)),
  'f 0 0 breaker/fcm: invalidation was not on hold; nothing to do');
select push.hold_invalidation(:lane::smallint, '5 minutes', 'once more'), pg_temp.said(:lane, '5');
select test.equal('resumed without: they live on', (select format('%s %s %s', was_held, invalidated, forgotten)
  from push.resume_invalidation('breaker', 'fcm')) || ' ' || pg_temp.tokens(), 't 0 5 alive 2345 dead 1 quarantined ');
insert into push.quarantined_tokens (app, provider, token, since, reason) select 'breaker', 'fcm', 'many-token-0123456789-' || i, now(), 'x'
  from generate_series(1, 10001) i;
select test.equal('of many, ten thousand at a time', (select string_agg(format('%s %s', r.invalidated,
  r.message ~ '; more are quarantined: run it again$'), ' ')
  from generate_series(1, 3) i, lateral push.resume_invalidation('breaker', 'fcm', i > 0) r), '10000 t 1 f 0 f');
delete from push.token_invalidations where token like 'many-%';
select test.equal('then tokens die again', pg_temp.said(:lane, '5') || ' ' || pg_temp.tokens(), '1 alive 234 dead 15 quarantined ');
select test.equal('all of it is written down', (select string_agg(concat_ws(' ', action, target, who = session_user, detail ->> 'apply',
  detail ->> 'note'), ', ' order by id) from push.audit),
  'hold_invalidation breaker/fcm t 31 % dead, resume_invalidation breaker/fcm t true, resume_invalidation '
  'breaker/fcm t true, hold_invalidation breaker/fcm t once more, resume_invalidation breaker/fcm t false'
    || repeat(', resume_invalidation breaker/fcm t true', 3));
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
select test.equal('an unknown lane is an error', pg_temp.error($$select push.resume_invalidation('nowhere', 'fcm')$$),
  'P0002 there is no lane nowhere/fcm');
select test.equal('a hold of no lane holds nothing', push.hold_invalidation(-1::smallint, '1 hour', 'x'), 0::bigint);

-- The right environment of an APNs token.
select push.register_device('e', 'breaker', 'apns', pg_temp.hex('e0' || i), case i when 1 then 'sandbox' else 'production' end)
  from generate_series(1, 3) i;
select test.equal('only different environments are corrected', push.correct_environment(array[:other, :other, :other, :lane]::smallint[],
  array[pg_temp.hex('e01'), pg_temp.hex('e02'), pg_temp.hex('e03'), 'breaker-token-0123456789-2'], array[0, 0, 1, 1]::smallint[]), 2::bigint);
select test.equal('only APNs tokens are', (select string_agg(environment, ' ' order by token) from push.devices where user_id = 'e'
  or token like 'breaker%-2'), 'production production sandbox production');

-- A channel that sends nothing: the next one is also tried.
create function pg_temp.bypass(p_max int default 500) returns bigint language plpgsql as $$
declare
  v_looked bigint := push.bypass(p_max);
begin
  perform test.follow();
  return v_looked;
end $$;
create function pg_temp.lane_says(p_gateway int, p_lane int, p_capacity int, p_circuit text default 'closed',
  p_throttled_ms int default 0) returns void language sql as $$
  select push.report_lanes(p_gateway, array[p_lane]::smallint[], array[100], array[p_capacity], array[0], array[p_circuit], array[p_throttled_ms],
    array[0]) $$;
-- Of three invites, one on each lane, those that push.bypass looks at. Nothing of it stays.
create function pg_temp.stuck_lanes() returns smallint[] language plpgsql as $$
declare
  v_lanes smallint[];
begin
  insert into push.delivery (outbox_id, n, created_at, deadline_at, lane, ready_lane, user_id, token)
    select -1, l.id, clock_timestamp() - interval '3 s', clock_timestamp() + interval '1 minute', l.id, l.id, 'u', 'x' from push.lane l
    where l.app = 'default';
  perform push.bypass();
  v_lanes := array(select d.lane from push.delivery d where d.outbox_id = -1 and d.bypassed_at is not null);
  raise exception using errcode = 'P0001', message = v_lanes::text;
exception when raise_exception then
  return sqlerrm;
end $$;
create function pg_temp.age(p_call text, p_by text) returns void language sql as $$
  update push.delivery d set created_at = d.created_at - p_by::interval from push.outbox o where o.id = d.outbox_id and o.call_id = p_call $$;
select pg_temp.lane_says(:g1, lane, 100) from unnest(array[:apns, :fcm, :expo]) lane;
select test.equal('no lane is stuck while each sends', pg_temp.stuck_lanes(), '{}'::smallint[]);
select pg_temp.enqueue('b1', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('b1a'), 'fcmToken',
  'chance-token-0123456789-b1f', 'pushToken', 'ExponentPushToken[chance-b1e]')));
select pg_temp.age('b1', '2 s');
select test.equal('nothing is bypassed then', pg_temp.bypass(), 0::bigint);
select pg_temp.lane_says(:g1, :apns, 0);
select test.equal('a lane without a connection is', pg_temp.stuck_lanes(), array[:apns]::smallint[]);
select pg_temp.enqueue('b2', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('b2a'), 'fcmToken',
  'chance-token-0123456789-b2f')));
select pg_temp.age('b2', '-5 minutes');  -- It is new, however slow the machine is.
select test.equal('an invite that has waited for 2 s is tried over the next channel and goes on waiting',
  format('%s %s', pg_temp.bypass(), pg_temp.invites('b1')),
  '1 0:apns:u:b1a:ready 1:fcm:u:b1f:ready<0');
select test.equal('a new one is not', pg_temp.invites('b2'), '0:apns:u:b2a:ready');
select test.equal('once', format('%s %s', pg_temp.bypass(), pg_temp.invites('b1')), '0 0:apns:u:b1a:ready 1:fcm:u:b1f:ready<0');
select pg_temp.age('b2', '5 minutes 3 s'), pg_temp.claim_all(:g1);
update push.delivery d set state = 2, ready_lane = null, owner = null, due_at = clock_timestamp() + interval '9 minutes' from push.outbox o
  where o.id = d.outbox_id and o.call_id = 'b2';
savepoint refused;
select pg_temp.enqueue(c, jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex(c), 'fcmToken',
  'chance-token-0123456789-' || c))) as id from unnest('{dd1,dd2}'::text[]) c;
update push.delivery set created_at = now() - interval '3 s' where outbox_id in (select id from push.outbox where call_id ~ '^dd');
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
create trigger refuse before update on push.delivery for each row when (old.token ~ 'dd1$') execute function pg_temp.refuse();
select test.equal('one that cannot be changed keeps no other from its second chance', format('%s %s; %s', pg_temp.bypass() > 0,
  pg_temp.invites('dd1'), pg_temp.invites('dd2')), 't 0:apns:u:dd1:ready; 0:apns:u:dd2:ready 1:fcm:u:dd2:ready<0');
rollback to refused;
select test.equal('also if it waits for its next attempt', format('%s %s', pg_temp.bypass(), pg_temp.invites('b2')),
  '1 0:apns:u:b2a:waiting 1:fcm:u:b2f:ready<0');
select pg_temp.settle('b1', '{1}', 4, 'UNREGISTERED'); select test.follow();
select test.equal('when the second fails for good, the third follows', pg_temp.invites('b1'),
  '0:apns:u:b1a:claimed 1:fcm:u:b1f:dead<0 2:expo:u:1e]:ready<1');
select test.equal('a stuck invite gets only one successor', pg_temp.bypass(), 0::bigint);
select pg_temp.lane_says(:g1, :apns, 100, 'open');
select test.equal('an open circuit is stuck', pg_temp.stuck_lanes(), array[:apns]::smallint[]);
select pg_temp.lane_says(:g1, :apns, 100, 'closed', 600000);
select test.equal('so is a pause the provider asked for', pg_temp.stuck_lanes(), array[:apns]::smallint[]);
select push.pause_lane('default', 'apns', 'test');
select test.equal('a lane that ops have paused is not, whatever its provider does', pg_temp.stuck_lanes(), '{}'::smallint[]);
select push.resume_lane('default', 'apns');
select pg_temp.lane_says(:g1, :apns, 100, 'closed', 1000);
select test.equal('a short pause is not', pg_temp.stuck_lanes(), '{}'::smallint[]);
select pg_temp.lane_says(:g1, :expo, 0);
select test.equal('nor is the last channel', pg_temp.stuck_lanes(), '{}'::smallint[]);
select push.register_gateway('bypass-two', '1') as g9 \gset
select pg_temp.lane_says(:g1, :apns, 0), pg_temp.lane_says(:g9, :apns, 100);
select test.equal('nor is a lane over which another replica sends', pg_temp.stuck_lanes(), '{}'::smallint[]);
select push.retire_gateway(:g9);
select test.equal('until that one is gone', pg_temp.stuck_lanes(), array[:apns]::smallint[]);
select pg_temp.enqueue('b3', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('b3a'), 'fcmToken',
  'chance-token-0123456789-b3f')));
select pg_temp.age('b3', '3 s'), push.end_call('b3', 'hung_up'); select test.follow();
select test.equal('a call that has ended has no second chance', pg_temp.bypass(), 0::bigint);
select pg_temp.lane_says(:g1, :apns, 100);
select pg_temp.enqueue('b5', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('b5a'), 'fcmToken',
  'chance-token-0123456789-b5f')));
select pg_temp.age('b5', '3 s'), pg_temp.claim_all(:g1);
select push.park(:g1, array[d.outbox_id], array[d.n], array[d.lease], array[4], array[2500], array['HTTP503']) from push.delivery d join push.outbox o
  on o.id = d.outbox_id where o.call_id = 'b5';
select test.equal('an invite that failed and waits for its next try is bypassed on any lane', format('%s %s', pg_temp.bypass(),
  pg_temp.invites('b5')),
  '1 0:apns:u:b5a:waiting 1:fcm:u:b5f:ready<0');
select pg_temp.enqueue('bd', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('bda'), 'fcmToken',
  'chance-token-0123456789-bdf')));
select pg_temp.claim_all(:g1);
create function pg_temp.hand_on(p_gateway int) returns bigint language sql as $$
  select push.park(p_gateway, array[d.outbox_id], array[d.n], array[d.lease], array[4], array[250], array['HTTP503'], null, '{true}')
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'bd' and d.state = 1 $$;
select test.equal('one that is handed on early is not', format('%s %s %s', pg_temp.hand_on(:g1), test.follow(), pg_temp.invites('bd')),
  '1  0:apns:u:bda:waiting');
update push.delivery d set due_at = clock_timestamp() from push.outbox o where o.id = d.outbox_id and o.call_id = 'bd';
select pg_temp.age('bd', '3 s'), pg_temp.claim_all(:g1);
select test.equal('one that is handed on after 2 s is', format('%s %s %s', pg_temp.hand_on(:g1), test.follow(), pg_temp.invites('bd')),
  '1  0:apns:u:bda:waiting 1:fcm:u:bdf:ready<0');
select pg_temp.enqueue('be', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('bea'), 'fcmToken',
  'chance-token-0123456789-bef')));
select pg_temp.claim_all(:g1);
select push.park(:g1, array[d.outbox_id], array[d.n], array[d.lease], array[1], array[20000], array['TooManyRequests'], null, '{true}')
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'be' and d.state = 1;
select test.equal('one that is to wait for longer is left to other gateways until 2 s after its call', format('%s %s', test.follow(),
  pg_temp.invites('be')), ' 0:apns:u:bea:waiting');
select test.equal('and then it is bypassed', (select (n.due_at - o.created_at)::text from push.follow_ups n join push.outbox o on o.id = n.outbox_id
  where o.call_id = 'be' and n.why = 'stuck'), '00:00:02');
update push.follow_ups set due_at = clock_timestamp();
select test.equal('over the next channel', format('%s %s', test.follow(), pg_temp.invites('be')), ' 0:apns:u:bea:waiting 1:fcm:u:bef:ready<0');
select test.equal('an operator may wake it', (select requeued from push.requeue('be')), 1);
select test.equal('for any gateway', pg_temp.invites('be'), '0:apns:u:bea:ready 1:fcm:u:bef:ready<0');
select pg_temp.enqueue('bf', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('bfa'), 'fcmToken',
  'chance-token-0123456789-bff')));
select pg_temp.age('bf', '3 s'), pg_temp.claim_all(:g1);
select push.park(:g1, array[d.outbox_id], array[d.n], array[d.lease], array[1], array[1], array['TimedOut'], null, '{true}')
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'bf' and d.state = 1;
update push.delivery d set due_at = clock_timestamp() - interval '1 s' from push.outbox o where o.id = d.outbox_id and o.call_id = 'bf';
select pg_temp.claim_all(:g1);
update push.delivery d set accepted_at = clock_timestamp() from push.outbox o where o.id = d.outbox_id and o.call_id = 'bf';
select test.equal('one that its provider has accepted meanwhile is not', format('%s %s', test.follow(), pg_temp.invites('bf')),
  ' 0:apns:u:bfa:claimed');
select pg_temp.lane_says(:g1, :apns, 0);
select pg_temp.enqueue('b4', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('b4a'), 'fcmToken',
  'chance-token-0123456789-b4f')));
select pg_temp.age('b4', '3 s');
select test.equal('the job does it', format('%s%s %s', push.run_job('escalate'), test.follow(), pg_temp.invites('b4')),
  'f 0:apns:u:b4a:ready 1:fcm:u:b4f:ready<0');

select pg_temp.enqueue('b6', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('b6a'), 'fcmToken',
  'chance-token-0123456789-b6f')));
select pg_temp.age('b6', '3 s'), push.report_ringing('b6', 'u');
select test.equal('a phone that reports that it rings needs no second chance', format('%s %s', pg_temp.bypass() is not null, pg_temp.invites('b6')),
  't 0:apns:u:b6a:ready');
select pg_temp.enqueue('b7', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('b7a'), 'fcmToken',
  'chance-token-0123456789-b7f')), 55);
select pg_temp.enqueue('b8', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('b8a')),
  jsonb_build_object('userId', 'v', 'voipPushToken', pg_temp.hex('b8b'))));
select pg_temp.age('b7', '3 s'), pg_temp.age('b8', '3 s');
select test.equal('users without another channel are checked once and then block no others',
  format('%s, %s %s', pg_temp.bypass(2), pg_temp.bypass(2), pg_temp.invites('b7')),
  '2, 1 0:apns:u:b7a:ready 1:fcm:u:b7f:ready<0');
select pg_temp.enqueue('b9', jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', pg_temp.hex('b9a'), 'fcmToken',
  'chance-token-0123456789-b9f')));
select pg_temp.age('b9', '3 s');
insert into push.delivery (outbox_id, n, deadline_at, lane, ready_lane, kind, user_id, token)
  select -1, i, clock_timestamp() + interval '9 minutes', :apns, :apns, 3, 'u', 'x' from generate_series(1, 5000) i;
select test.equal('nor do thousands of messages', format('%s %s', pg_temp.bypass(), pg_temp.invites('b9')),
  '1 0:apns:u:b9a:ready 1:fcm:u:b9f:ready<0');
delete from push.delivery where outbox_id = -1;
select pg_temp.enqueue('b10', (select jsonb_agg(jsonb_build_object('userId', 'u' || i, 'voipPushToken', pg_temp.hex(lpad(to_hex(i), 3, '0'))))
  from generate_series(1, 600) i));
select pg_temp.age('b10', '3 s');
select test.equal('the job is due at once while there are more', push.run_job('escalate') || ' ' || push.run_job('escalate'), 'true false');
select test.follow();
select test.equal('each is checked only once', pg_temp.bypass(), 0::bigint);
insert into push.devices (user_id, provider, token, platform, voip) values
  ('m1', 'apns', pg_temp.hex('fa1'), 'ios', true), ('m1', 'fcm', 'chance-token-0123456789-m1f', 'ios', false),
  ('m2', 'apns', pg_temp.hex('fa2'), 'ios', true), ('m2', 'expo', 'ExponentPushToken[chance-m2e]', 'ios', false),
  ('m3', 'apns', pg_temp.hex('fa3'), 'ios', true), ('m4', 'fcm', 'chance-token-0123456789-m4f', 'android', false),
  ('m4', 'expo', 'ExponentPushToken[chance-m4e]', 'android', false);
select pg_temp.lane_says(:g1, :apns, 0), pg_temp.lane_says(:g1, :fcm, 0);
select pg_temp.enqueue('b1' || i, to_jsonb(array['m' || i])), pg_temp.age('b1' || i, '3 s') from generate_series(1, 4) i;
select pg_temp.enqueue('b15', jsonb_build_array(jsonb_build_object('userId', 'u', 'fcmToken', 'chance-token-0123456789-b15',
  'pushToken', 'ExponentPushToken[chance-b15]'))), pg_temp.age('b15', '3 s');
select test.equal('each that has another channel is tried over it', format('%s: %s', pg_temp.bypass(), (
  select string_agg(pg_temp.invites('b1' || i), '; ' order by i) from generate_series(1, 5) i)), '5: 0:apns:m1:fa1:ready 1:fcm:m1:m1f:ready<0; '
  '0:apns:m2:fa2:ready 1:expo:m2:2e]:ready<0; 0:apns:m3:fa3:ready; 0:fcm:m4:m4f:ready 1:expo:m4:4e]:ready<0; '
  '0:fcm:u:b15:ready 1:expo:u:15]:ready<0');
select pg_temp.lane_says(:g1, :apns, 0), pg_temp.lane_says(:g1, :fcm, 100);

-- A token that died while its phone was called, and the new one of that phone.
insert into push.devices (user_id, provider, token, platform, voip, environment, registered_at) values
  ('new', 'apns', pg_temp.hex('e01'), 'ios', true, 'production', now() - interval '1 day'),
  ('new', 'expo', 'ExponentPushToken[chance-e02]', 'android', true, 'production', now() - interval '1 day');
select pg_temp.enqueue('n1', '["new", "other"]'), pg_temp.enqueue('n2', '["other"]'), pg_temp.claim_all(:g1);
select test.equal('both phones are rung', pg_temp.invites('n1'), '0:apns:new:e01:claimed 1:expo:new:02]:claimed');
select pg_temp.settle('n1', '{0}', 4), pg_temp.settle('n1', '{1}', 4, 'DeviceNotRegistered');
select push.invalidate_tokens(array[:apns, :expo]::smallint[], array[pg_temp.hex('e01'), 'ExponentPushToken[chance-e02]'], '{null,null}', '{x,x}')
  \g /dev/null
select test.follow();
select test.equal('there is nothing else', pg_temp.invites('n1'), '0:apns:new:e01:dead 1:expo:new:02]:dead');
select push.register_device('new', 'default', 'apns', pg_temp.hex('e03'), 'sandbox', 'ios') \g /dev/null
select test.follow();
select test.equal('the iPhone''s new token rings at once', pg_temp.invites('n1'), '0:apns:new:e01:dead 1:expo:new:02]:dead 2:apns:new:e03:ready');
select test.equal('in its environment',
  (select d.environment from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'n1'), 1::smallint);
select push.register_device('new', 'default', 'expo', 'ExponentPushToken[chance-e04]', platform => 'android'), test.follow() \g /dev/null
select test.equal('another phone of a user who is rung again does not', pg_temp.invites('n1'),
  '0:apns:new:e01:dead 1:expo:new:02]:dead 2:apns:new:e03:ready');
select push.register_device('new', 'default', 'apns', pg_temp.hex('e05'), 'sandbox', 'ios'), test.follow() \g /dev/null
select test.equal('once', (select count(*) from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'n1'), 1::bigint);
select test.equal('calls of others are left alone', pg_temp.invites('n2'), null);
select pg_temp.enqueue('n3', '["new"]'), pg_temp.claim_all(:g1), pg_temp.settle('n3', '{0,1,2}', 4), push.decline_call('n3', 'new') \g /dev/null
select push.register_device('new', 'default', 'apns', pg_temp.hex('e06'), 'sandbox', 'ios'), test.follow() \g /dev/null
select test.equal('a user who has declined is not rung', (select count(*) from push.delivery d join push.outbox o on o.id = d.outbox_id
  where o.call_id = 'n3' and d.kind = 0), 0::bigint);
select pg_temp.enqueue('n4', '["new"]'), pg_temp.claim_all(:g1), pg_temp.settle('n4', '{0,1,2,3}', 4), test.follow(), push.end_call('n4') \g /dev/null
select push.register_device('new', 'default', 'apns', pg_temp.hex('e07'), 'sandbox', 'ios'), test.follow() \g /dev/null
select test.equal('after the end of a call no invite is made', pg_temp.invites('n4') ~ 'dead' and pg_temp.invites('n4') !~ 'e07', true);
insert into push.devices (user_id, provider, token, platform, environment) values ('new-1', 'apns', pg_temp.hex('f01'), 'ios', 'sandbox'),
  ('new-2', 'apns', pg_temp.hex('f02'), 'ios', 'sandbox');
select push.enqueue_call(jsonb_build_object('callId', 'n5', 'from', 'x', 'metadata', jsonb_build_object('m', repeat('m', 4200))),
  '["new-1", "new-2"]',
  ring_seconds => 600), pg_temp.claim_all(:g1), pg_temp.settle('n5', '{0,1}', 4), test.follow() \g /dev/null
select push.register_device('new-1', 'default', 'expo', 'ExponentPushToken[chance-f03]', platform => 'android'),
  push.register_device('new-2', 'default', 'apns', pg_temp.hex('f04'), 'sandbox', 'ios'), test.follow() \g /dev/null
select test.equal('a new device whose channel cannot carry the payload stops no other', pg_temp.invites('n5'),
  '0:apns:new-1:f01:dead 1:apns:new-2:f02:dead 2:apns:new-2:f04:ready');
