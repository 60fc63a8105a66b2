-- Missed calls per app: off, on the newest of a user's phones, on all; by gateways and by the backend; never twice.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
create function pg_temp.told(p_call text) returns text language sql as $$
  select string_agg(d.user_id || ':' || d.provider || ':' || right(d.device, 3), ' ' order by d.user_id, d.provider, d.device) from push.deliveries d
    where d.call_id = p_call and d.kind in ('missed_call', 'notification') $$;
-- Two users with tokens in recipients, one of them with two phones and both tokens of an iPhone; one registered user with
-- four phones.
create function pg_temp.users() returns jsonb language sql as $$
  select jsonb_build_array(
    jsonb_build_object('userId', 'a', 'fcmToken', 'missed-token-0123456789-a01'),
      jsonb_build_object('userId', 'a', 'fcmToken', 'missed-token-0123456789-a02'),
    jsonb_build_object('userId', 'a', 'apnsToken', pg_temp.hex('a03'), 'pushToken', 'ExponentPushToken[missed-a03]'),
    jsonb_build_object('userId', 'b', 'pushToken', 'ExponentPushToken[missed-b01]'), '"reg"'::jsonb) $$;
-- As a gateway, and as a backend.
create function pg_temp.missed(p_app text) returns text language plpgsql as $$
begin
  perform push.enqueue_call(jsonb_build_object('callId', p_app, 'from', 'x'), pg_temp.users(), p_app);
  update push.outbox set state = 'missed' where call_id = p_app;
  perform test.follow();
  return pg_temp.told(p_app);
end $$;
create function pg_temp.announced(p_app text) returns text language plpgsql as $$
begin
  perform push.enqueue_call(jsonb_build_object('callId', p_app || '-b', 'from', 'x'), pg_temp.users(), p_app, kind => 'missed_call');
  return pg_temp.told(p_app || '-b');
end $$;
select push.register_lane(a, p) from unnest('{plain,off,newest,all}'::text[]) a, unnest('{apns,fcm,expo}'::text[]) p \g /dev/null
select push.register_app('plain', 60, p_missed_calls => 'default'), push.register_app('off', 60, p_missed_calls => 'off'),
  push.register_app('newest', 60, p_missed_calls => 'newest'),
  push.register_app('all', 60, p_missed_calls => 'all') \g /dev/null
insert into push.devices (user_id, app, provider, token, platform, voip, registered_at)
  select 'reg', a, provider, token || left(a, 3), platform, false, now() - age from unnest('{plain,off,newest,all}'::text[]) a, (values
    ('fcm', 'missed-token-0123456789-r01', 'android', interval '3 days'), ('fcm', 'missed-token-0123456789-r02', 'android', '1 day'),
      ('fcm', 'missed-token-0123456789-r03', 'android', '2 days'),
    ('expo', 'ExponentPushToken[missed-r04-', 'ios', '1 hour')) d(provider, token, platform, age) where provider = 'fcm';
insert into push.devices (user_id, app, provider, token, platform, registered_at) select 'reg', a, 'expo', 'ExponentPushToken[' || a || '-r04]',
  'ios', now() from unnest('{plain,off,newest,all}'::text[]) a;

select test.equal('without a setting: one phone for each user, that of the best channel', pg_temp.missed('plain'),
  'a:apns:a03 b:expo:01] reg:fcm:pla');
select test.equal('its newest', (select right(d.token, 6) from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'plain'
  and d.user_id = 'reg' and d.kind = 2), 'r02pla');
select test.equal('and missed calls of the backend go to all phones', pg_temp.announced('plain'),
  'a:apns:a03 a:fcm:a01 a:fcm:a02 b:expo:01] reg:expo:04] reg:fcm:pla reg:fcm:pla reg:fcm:pla');
select test.equal('newest: one phone a user', pg_temp.missed('newest'), 'a:apns:a03 b:expo:01] reg:fcm:new');
create function pg_temp.tokens(p_call text) returns text language sql as $$
  select string_agg(right(d.token, 6), ' ' order by d.user_id) from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call
    and d.kind in (2, 3) $$;
select test.equal('also for missed calls of the backend', pg_temp.announced('newest'), 'a:apns:a03 b:expo:01] reg:fcm:new');
select test.equal('the same ones', pg_temp.tokens('newest') || ' / ' || pg_temp.tokens('newest-b'), '000a03 d-b01] r02new / 000a03 d-b01] r02new');
select push.enqueue_call('{"callId": "newest-c", "from": "x"}', '[{"userId": "a", "fcmToken": "missed-token-0123456789-z09"}, {"userId": "a", '
  '"fcmToken": "missed-token-0123456789-a01"}]', 'newest', kind => 'missed_call') \g /dev/null
select test.equal('of entries of one channel the first', pg_temp.tokens('newest-c'), '89-z09');
insert into push.outbox (app, kind, payload, recipients) values ('newest', 'message', '{"callId": "mixed-1", "chatId": "c", "from": "x"}',
  pg_temp.users()), ('newest', 'missed_call', '{"callId": "mixed-2", "from": "x"}', pg_temp.users());
select test.equal('in one statement with a message, which goes to all',
  (select string_agg(count::text, ' ' order by call_id) from (select o.call_id, count(*) from push.outbox o join push.delivery d on d.outbox_id = o.id
  where o.call_id like 'mixed-_' group by 1) x), '8 3');
select test.equal('messages go to all phones', (select deliveries from push.enqueue_call('{"chatId": "c", "from": "x"}', pg_temp.users(), 'newest',
  kind => 'message')), 8);
select test.equal('and so do calls', (select deliveries from push.enqueue_call('{"callId": "newest-call", "from": "x"}', pg_temp.users(), 'newest')),
  8);
select test.equal('all: every phone', pg_temp.missed('all'),
  'a:apns:a03 a:fcm:a01 a:fcm:a02 b:expo:01] reg:expo:04] reg:fcm:all reg:fcm:all reg:fcm:all');
select test.equal('the same for missed calls of the backend', pg_temp.announced('all'), pg_temp.told('all'));
select test.equal('off: none', pg_temp.missed('off'), null);
select test.equal('nor for missed calls of the backend', pg_temp.announced('off'), null);
select test.equal('with the reason',
  (select string_agg(s.user_id || ' ' || s.reason || ' ' || s.field, ', ' order by s.field) from push.outbox o cross
  join lateral push.skipped_recipients(o.id) s where o.call_id = 'off-b'),
  'a MissedCallsOff recipients[0], b MissedCallsOff recipients[3], reg MissedCallsOff recipients[4]');
select test.equal('and counts it', (select format('%s %s', deliveries, skipped)
  from push.enqueue_call('{"callId": "off-c", "from": "x"}', pg_temp.users(), 'off', kind => 'missed_call')), '0 3');
select test.equal('its calls ring', (select deliveries from push.enqueue_call('{"callId": "off-d", "from": "x"}', pg_temp.users(), 'off')), 8);
select test.equal('its messages are shown', (select deliveries from push.enqueue_call('{"chatId": "c", "from": "x"}', pg_temp.users(), 'off',
  kind => 'message')), 8);

-- Once for each call and phone.
select push.enqueue_call('{"callId": "shared", "from": "x"}', '[{"userId": "a", "fcmToken": "missed-token-0123456789-s01"}, {"userId": "b", '
  '"fcmToken": "missed-token-0123456789-s01"}, {"userId": "a", "fcmToken": "missed-token-0123456789-s01"}]', 'all'),
  push.end_call('shared') \g /dev/null
select test.follow();
select test.equal('a phone in several entries gets one missed call', pg_temp.told('shared'), 'a:fcm:s01');
select test.equal('a call that a gateway announced is not announced by the backend, too',
  (select duplicate from push.enqueue_call('{"callId": "shared", "from": "x"}', pg_temp.users(), 'all', kind => 'missed_call')) || ' '
  || pg_temp.told('shared'), 'true a:fcm:s01');
select test.equal('nor is one of the backend announced again by a gateway',
  (select duplicate from push.enqueue_call('{"callId": "all-b", "from": "x"}', pg_temp.users(), 'all')) || ' ' || push.end_call('all-b') || ' '
  || (pg_temp.told('all-b') = pg_temp.told('all')), 'true false true');
select test.equal('ended twice: once', push.end_call('shared') || ' ' || pg_temp.told('shared'), 'false a:fcm:s01');
insert into push.follow_ups (outbox_id, why) select id, 'ended' from push.outbox where call_id = 'shared';
select push.miss() \g /dev/null
select test.follow();
select test.equal('nor does housekeeping announce it again', pg_temp.told('shared'), 'a:fcm:s01');

-- What is registered.
select push.register_app('all', 50) \g /dev/null
select test.equal('a gateway of an older release does not say, and changes nothing',
  (select missed_calls || ring_seconds from push.apps where app = 'all'), 'all50');
select push.register_app('all', 60, p_missed_calls => 'default') \g /dev/null
select test.equal('default resets it', (select missed_calls from push.apps where app = 'all'), null);
select test.equal('another value is refused', pg_temp.error($$select push.register_app('all', 60, p_missed_calls => 'some')$$) ~ '^23514', true);

-- A cancel and a missed call to the same phone are a pair, and say so (!): some apps show the missed call by the cancel, and in the others
-- either replaces the other.
select push.register_app('all', 60, p_missed_calls => 'all') \g /dev/null
select push.register_gateway('cancels', '1') as g, (select id from push.lane where app = 'all' and provider = 'fcm') as fcm \gset
create function pg_temp.pushes(p_call text) returns text language sql as $$
  select string_agg(format('%s%s:%s', (array['cancel', 'missed_call'])[d.kind], case when d.paired then '!' end, right(d.token, 3)), ' ' order by n)
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.kind in (1, 2) $$;
create function pg_temp.two(p_call text) returns void language sql as $$
  select from push.enqueue_call(jsonb_build_object('callId', p_call, 'from', 'x'),
    jsonb_build_array(jsonb_build_object('userId', 'u', 'fcmToken', 'cancel-token-0123456789-' || p_call || '-01'),
    jsonb_build_object('userId', 'u', 'fcmToken', 'cancel-token-0123456789-' || p_call || '-02')), 'all') $$;
create function pg_temp.claim(p_gateway int, p_lane int, p_count int) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, 1, array[p_lane]::smallint[], array[p_count], array['-infinity']::timestamptz[]) $$;
delete from push.delivery where state = 0 and kind = 0;
select pg_temp.two('unsent'), push.end_call('unsent') \g /dev/null
select test.follow();
select test.equal('of an invite that had not left there is no cancel before the missed call', pg_temp.pushes('unsent'),
  'missed_call:-01 missed_call:-02');
select pg_temp.two('half') \g /dev/null
select pg_temp.claim(:g, :fcm, 1), push.end_call('half') \g /dev/null
select test.follow();
select test.equal('a cancel to one of a user''s phones', pg_temp.pushes('half'), 'cancel!:-01 missed_call!:-01 missed_call:-02');
select test.equal('the claim says it', (select string_agg(format('%s%s', kind, case when paired then '!' end), ' ' order by n)
  from push.claim(:g, 1, array[:fcm]::smallint[], '{9}', '{-infinity}', p_later_floor => '{-infinity}', p_later_max => '{9}')
  where outbox_id = (select id from push.outbox where call_id = 'half')), '1!');
select pg_temp.two('out'), pg_temp.claim(:g, :fcm, 9) \g /dev/null
update push.outbox set state = 'missed' where call_id = 'out'; select test.follow();
select test.equal('a call that ran out has no cancels', pg_temp.pushes('out'), 'missed_call:-01 missed_call:-02');

-- After a cancel that expired, the missed call to its phone is sent.
create function pg_temp.lapse(p_call text) returns void language sql as $$
  update push.delivery d set deadline_at = clock_timestamp() - interval '1 s' from push.outbox o where o.id = d.outbox_id and o.call_id = p_call
    and d.kind = 1 $$;
create function pg_temp.settle(p_call text, p_kind int, p_outcome int, p_reason text) returns bigint language sql as $$
  select sum(push.settle(d.owner, d.ctid_of, array[d.outbox_id], array[d.n], array[d.lease], array[1], array[p_outcome]::smallint[],
    array[null]::smallint[], array[p_reason], array[null], array[p_call],
    array[case when p_outcome = 0 then clock_timestamp() end], array[null]::timestamptz[]))::bigint
  from (select d.*, array[d.ctid] as ctid_of from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call
    and d.kind = p_kind and d.state = 1) d $$;
create function pg_temp.rung(p_call text) returns void language plpgsql as $$
begin
  delete from push.delivery;
  perform pg_temp.two(p_call);
  perform pg_temp.claim((select max(id) from push.gateways), (select id from push.lane where app = 'all' and provider = 'fcm'), 9);
  perform pg_temp.settle(p_call, 0, 0, null);
  perform push.end_call(p_call);
  perform test.follow();
end $$;
select pg_temp.rung('owed') \g /dev/null
select pg_temp.lapse('owed') \g /dev/null
select push.expire() \g /dev/null
select test.follow();
select test.equal('one that is owed, by housekeeping', pg_temp.pushes('owed'), 'missed_call:-01 missed_call:-02');
select pg_temp.rung('void') \g /dev/null
select pg_temp.claim(:g, :fcm, 2) \g /dev/null
select pg_temp.claim(:g, :fcm, 9) \g /dev/null
select pg_temp.settle('void', 2, 2, 'SaidByCancel') \g /dev/null
select test.follow();
select test.equal('one that is void is not there', pg_temp.pushes('void'), 'cancel!:-01 cancel!:-02');
select pg_temp.settle('void', 1, 3, 'UNAVAILABLE'), test.follow() \g /dev/null
select test.equal('its cancel is settled by a gateway', pg_temp.pushes('void'), 'missed_call:-01 missed_call:-02');
select test.equal('as it was', (select string_agg(distinct format('%s %s %s', d.token, d.user_id, d.deadline_at = h.deadline_at), ', ')
  from push.delivery d join push.history h on h.outbox_id = d.outbox_id and h.kind = d.kind and h.token = d.token),
  'cancel-token-0123456789-void-01 u t, cancel-token-0123456789-void-02 u t');
select pg_temp.rung('dead') \g /dev/null
select pg_temp.claim(:g, :fcm, 2) \g /dev/null
select pg_temp.claim(:g, :fcm, 9) \g /dev/null
select pg_temp.settle('dead', 2, 2, 'SaidByCancel') \g /dev/null
select test.follow();
select pg_temp.settle('dead', 1, 4, 'INVALID_ARGUMENT'), test.follow() \g /dev/null
select test.equal('its cancel is refused for good', pg_temp.pushes('dead'), 'missed_call:-01 missed_call:-02');
select pg_temp.rung('said') \g /dev/null
select pg_temp.claim(:g, :fcm, 2) \g /dev/null
select pg_temp.claim(:g, :fcm, 9) \g /dev/null
select pg_temp.settle('said', 2, 0, null) \g /dev/null
select pg_temp.lapse('said') \g /dev/null
select pg_temp.settle('said', 1, 3, null), test.follow() \g /dev/null
select test.equal('one that was sent is not sent again', pg_temp.pushes('said'), null);
select pg_temp.rung('told') \g /dev/null
select pg_temp.claim(:g, :fcm, 2) \g /dev/null
select pg_temp.claim(:g, :fcm, 9) \g /dev/null
select pg_temp.settle('told', 2, 2, 'SaidByCancel') \g /dev/null
select test.follow();
select pg_temp.settle('told', 1, 0, null), test.follow() \g /dev/null
select test.equal('of a cancel that was delivered nothing follows', pg_temp.pushes('told'), null);
select pg_temp.rung('many') \g /dev/null
select pg_temp.claim(:g, :fcm, 2) \g /dev/null
select pg_temp.claim(:g, :fcm, 9) \g /dev/null
select push.settle(d.owner, null, array[d.outbox_id], array[d.n], array[d.lease], array[1], array[case right(token, 3) when '-01' then 0 else 3
  end]::smallint[], array[null]::smallint[], array[null], array[null], array['many'], array[null]::timestamptz[], array[null]::timestamptz[])
  from push.delivery d where d.kind = 1 \g /dev/null
select test.follow();
select pg_temp.settle('many', 2, 2, 'SaidByCancel'), test.follow() \g /dev/null
select test.equal('each phone by itself, and also if a gateway has the missed call when its cancel expires', pg_temp.pushes('many'),
  'missed_call:-02');

-- Whatever note of a call comes first, its cancels and its missed calls are made together.
delete from push.delivery;
select pg_temp.two('first'), pg_temp.claim(:g, :fcm, 9), pg_temp.settle('first', 0, 0, null), push.end_call('first') \g /dev/null
insert into push.follow_ups (outbox_id, why, is_urgent) select id, 'failed', true from push.outbox where call_id = 'first';
select push.follow_up(true), pg_temp.claim(:g, :fcm, 1) \g /dev/null
select test.follow();
select test.equal('although one of the cancels has been claimed', regexp_replace(pg_temp.pushes('first'), ':-0.', '', 'g'),
  'cancel! cancel! missed_call! missed_call!');

-- A trigger that somebody has added raises for one call.
select test.call('heard-' || i, 1, 'ops') from generate_series(1, 3) i;
set local session_replication_role = replica;
update push.outbox set deadline_at = now() - interval '1 minute' where call_id like 'heard-%';
set local session_replication_role = origin;
create function pg_temp.refuse() returns trigger language plpgsql as $$
begin
  if new.call_id = 'heard-2' and new.state = 'missed' then raise exception 'no'; end if;
  return new;
end $$;
create trigger refuse_missed before update on push.outbox for each row execute function pg_temp.refuse();
create function pg_temp.states() returns text language sql as
  $$ select string_agg(call_id || ' ' || state, ', ' order by call_id) from push.outbox where call_id like 'heard-%' $$;
select test.equal('a call that cannot be marked as missed stops no other', push.miss(), 2::bigint);
select test.equal('it alone rings on', pg_temp.states(), 'heard-1 missed, heard-2 ringing, heard-3 missed');
select test.equal('and is named', (select string_agg(a.detail ->> 'sqlstate', ' ') from push.audit a join push.outbox o
  on a.target = 'push.outbox.id ' || o.id where o.call_id like 'heard-%'), 'P0001');
drop trigger refuse_missed on push.outbox;
select test.equal('until it can be', push.miss() || ' ' || pg_temp.states(), '1 heard-1 missed, heard-2 missed, heard-3 missed');
