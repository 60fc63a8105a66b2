-- Other functions for backends and phones: ringing, escalation, a call as one object, API keys; also retention.
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
create function pg_temp.settle(p_gateway int, p_call text, p_n int[], p_outcome int, p_reason text default null) returns bigint language sql as $$
  select push.settle(p_gateway, array_agg(d.ctid), array_agg(d.outbox_id), array_agg(d.n), array_agg(d.lease), array_agg(1),
    array_agg(p_outcome::smallint), array_agg(200::smallint),
    array_agg(p_reason), array_agg('m'::text), array_agg(p_call), array_agg(clock_timestamp()), array_agg(clock_timestamp()))
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = p_call and d.n = any (p_n) and d.state = 1 $$;
create function pg_temp.claim_all(p_gateway int) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, 1, array(select id from push.lane), array_fill(99, array[99]),
    array_fill('-infinity'::timestamptz, array[99])) $$;
create function pg_temp.invites(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s:%s%s', n, provider, user_id, state, '<' || fallback_of), ' ' order by n) from (
    select n, provider, user_id, state, fallback_of from push.deliveries where call_id = p_call and kind = 'invite'
    union all select h.n, h.provider, h.user_id, h.outcome, h.fallback_of from push.delivery_history h join push.outbox o on o.id = h.outbox_id
      where o.call_id = p_call and h.kind = 'invite') x $$;
-- Does what follows, after the time of escalation, or before it. Returns how many invites were made because no phone rang.
create function pg_temp.escalate(p_is_due boolean default true) returns bigint language plpgsql as $$
declare
  v_before bigint := (select count(*) from push.escalations);
begin
  update push.follow_ups set due_at = now() - interval '1 s' where why = 'unheard' and p_is_due;
  perform test.follow();
  return (select count(*) from push.escalations) - v_before;
end $$;
create function pg_temp.planned() returns bigint language sql as $$ select count(*) from push.follow_ups where why = 'unheard' $$;
select push.register_gateway('one', '1') as g1 \gset

-- Ringing.
select test.call('ring', 2) as ring \gset
insert into push.outbox (app, payload, recipients) values ('default', '{"callId": "ring-2", "from": "x"}', '["by-id"]');
select test.equal('the first report counts', push.report_ringing('ring', 'u1') || ' ' || push.report_ringing('ring', 'u1'), 'true false');
select test.equal('of a user named by id, too', push.report_ringing('ring-2', 'by-id'), true);
select test.equal('a user whom the call does not ring cannot report', pg_temp.error($$select push.report_ringing('ring', 'stranger')$$),
  '22023 user_id: call ring does not ring this user');
select test.equal('nor for a call of another app', pg_temp.error($$select push.report_ringing('ring', 'u1', 'other')$$),
  'P0002 call_id: there is no call ring in app other');
select test.equal('no user is an error', pg_temp.error($$select push.report_ringing('ring', null)$$) ~ '^22023', true);
select test.equal('the timeline tells it', (select string_agg(concat_ws(' ', event, kind, user_id), ', ') from push.timeline('ring')
  where event = 'ringing'), 'ringing incoming_call u1');

-- Escalation.
select push.register_app('esc', 600, 300), push.register_lane('esc', 'apns'), push.register_lane('esc', 'fcm'), push.register_lane('esc', 'expo');
select test.equal('registering an app keeps its escalation', (select format('%s %s', ring_seconds, escalate_after_seconds) from push.apps
  where app = 'esc'), '600 300');
create function pg_temp.escalating(p_call text, p_ring int default null) returns void language sql as $$
  insert into push.outbox (app, payload, recipients, ring_seconds) values ('esc', jsonb_build_object('callId', p_call, 'from', 'x'),
    jsonb_build_array(
    jsonb_build_object('userId', 'heard', 'voipPushToken', md5(p_call || 1) || md5(p_call || 1), 'fcmToken', 'esc-token-heard-' || md5(p_call)),
    jsonb_build_object('userId', 'unheard', 'voipPushToken', md5(p_call || 2) || md5(p_call || 2), 'fcmToken', 'esc-token-unheard-' || md5(p_call),
      'pushToken', 'ExponentPushToken[' || p_call || ']'),
    jsonb_build_object('userId', 'single', 'voipPushToken', md5(p_call || 3) || md5(p_call || 3))), p_ring) $$;
select pg_temp.escalating('e1');
select pg_temp.claim_all(:g1);
select test.equal('all were delivered', pg_temp.settle(:g1, 'e1', '{0,1,2}', 0), 3::bigint);
select push.report_ringing('e1', 'heard');
select test.equal('nothing before its time', pg_temp.escalate(false), 0::bigint);
select test.equal('in time', pg_temp.escalate(), 1::bigint);
select test.equal('users without a report are tried on the next channel; those with a report, or without a next channel, are not',
  (select string_agg(provider || ':' || user_id || ':' || state, ' ') from push.deliveries where call_id = 'e1'), 'fcm:unheard:ready');
select test.equal('it rings as long as the call', (select d.deadline_at = o.deadline_at and d.n = 3 from push.delivery d join push.outbox o
  on o.id = d.outbox_id where o.call_id = 'e1'), true);
select test.equal('once', pg_temp.escalate(), 0::bigint);
select test.equal('the timeline tells it', (select string_agg(concat_ws(' ', event, provider, user_id, reason), ', ') from push.timeline('e1')
  where event in ('escalation', 'fallback')), 'escalation fcm unheard NotRinging');
select pg_temp.claim_all(:g1);
select pg_temp.settle(:g1, 'e1', '{3}', 4, 'UNREGISTERED'); select test.follow();
select test.equal('if that fails, the channel after it is tried', pg_temp.invites('e1') ~ '4:expo:unheard:ready<3$', true);
select test.equal('which is a fallback', (select string_agg(concat_ws(' ', event, provider, user_id, reason), ', ' order by at)
  from push.timeline('e1') where event in ('escalation', 'fallback')), 'escalation fcm unheard NotRinging, fallback expo unheard UNREGISTERED');

select pg_temp.escalating('e2');
select test.equal('one that was not even sent yet is escalated, too', pg_temp.escalate(), 2::bigint);
select test.equal('to each user''s next channel', (select string_agg(user_id, ' ' order by user_id) from push.deliveries where call_id = 'e2'
  and fallback_of is not null and provider = 'fcm'), 'heard unheard');
select pg_temp.escalating('e3'), push.end_call('e3', 'busy', 'esc'); select test.follow();
select test.equal('a call that has ended is not escalated', pg_temp.escalate(), 0::bigint);
select pg_temp.escalating('e4', 4);
select test.equal('one that rings no longer than that is not even noted', pg_temp.planned(), 0::bigint);
insert into push.outbox (app, kind, payload, recipients) values ('esc', 'message', '{"chatId": "c", "from": "x", "callId": "e5"}', '["nobody"]');
select test.equal('nor is a notification', pg_temp.planned(), 0::bigint);
select push.register_app('esc', 600);
select pg_temp.escalating('e6');
select test.equal('nor a call of an app that does not escalate', pg_temp.planned(), 0::bigint);
select push.register_app('esc', 600, 300);
insert into push.devices (user_id, app, provider, token, platform, registered_at) values ('reg', 'esc', 'apns', repeat('c', 64), 'ios', now()),
  ('reg', 'esc', 'expo', 'ExponentPushToken[esc-reg]', 'ios', now()),
  ('reg', 'esc', 'fcm', 'esc-token-reg-0123456789', 'android', now());
insert into push.outbox (app, payload, recipients) values ('esc', '{"callId": "e7", "from": "x"}', '["reg"]');
select pg_temp.claim_all(:g1);
select pg_temp.settle(:g1, 'e7', '{0,1}', 0);
select test.equal('a registered user is tried on the next channel of each phone', pg_temp.escalate(), 1::bigint);
select test.equal('of the same platform', (select string_agg(provider, ' ') from push.deliveries where call_id = 'e7'), 'expo');

-- A call as one object.
insert into push.outbox (payload, recipients) values ('{"callId": "glance", "from": "x"}',
  '[{"userId": "a", "fcmToken": "glance-token-0123456789-1"}, {"userId": "b", "fcmToken": "glance-token-0123456789-2"}]');
select pg_temp.claim_all(:g1);
select pg_temp.settle(:g1, 'glance', '{0}', 0), push.report_ringing('glance', 'a');
select push.call('glance') as glance \gset
select test.equal('a call tells its state', :'glance'::jsonb - '{id,createdAt,deadlineAt,devices,next}'::text[],
  '{"app": "default", "callId": "glance", "kind": "incoming_call", "state": "ringing", "endedAt": null, '
  '"endReason": null, "answeredBy": null, "declinedBy": [], "traceId": null}'::jsonb);
select test.equal('times are ISO 8601', :'glance'::jsonb ->> 'createdAt' ~ '^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d\d\dZ$', true);
select test.equal('it tells its devices, masked', (select string_agg(concat_ws(' ', d ->> 'userId', d ->> 'provider', d ->> 'kind', d ->> 'state',
  d ->> 'device', d ->> 'sentAt' is not null, d ->> 'answeredAt' is not null, d ->> 'rangAt' is not null), ', ')
  from jsonb_array_elements(:'glance'::jsonb -> 'devices') d),
  'a fcm invite delivered glan…89-1 t t t, b fcm invite claimed glan…89-2 f f f');
select push.answer_call('glance', 'a'); select test.follow();
select test.equal('and how it ended', (select concat_ws(' ', c ->> 'state', c ->> 'endReason', c ->> 'answeredBy', c ->> 'endedAt' is not null)
  from push.call('glance', 'default') c), 'answered answered a t');
select test.equal('an unknown call is an error', pg_temp.error($$select push.call('nobody')$$), 'P0002 call_id: there is no call nobody');
select test.call('glance', 1, 'second');
select test.equal('a call of two apps needs the app', pg_temp.error($$select push.call('glance')$$),
  '21000 app: call glance exists in several apps (default, second); say in which');
select test.equal('the timeline of one app only', (select count(*) from push.timeline('glance') where event = 'enqueued') || ' '
  || (select count(*) from push.timeline('glance', 'second') where event = 'enqueued'), '2 1');

-- API keys.
select id as key_id, key as key from push.create_api_key('app-1', 'the backend', '{read,enqueue,read}') \gset
select test.equal('a key names its number and is long', :'key' ~ ('^pgk_' || :key_id || '_[0-9a-f]{64}$'), true);
select test.equal('it is found by its number, with the hash of the whole',
  (select format('%s %s %s', app, scopes, hash = sha256(convert_to(:'key', 'UTF8'))) from push.look_up_api_key(:key_id)), 'app-1 {enqueue,read} t');
select test.equal('it is stored nowhere', (select count(*) from push.api_keys k, push.audit a where k::text like '%' || :'key' || '%'
  or a::text like '%' || :'key' || '%' or a::text like '%' || right(:'key', 64) || '%'), 0::bigint);
select test.equal('two keys differ', (select a.key <> b.key and right(a.key, 64) <> right(b.key, 64) from push.create_api_key('app-1', 'x') a,
  push.create_api_key('app-1', 'x') b), true);
select test.equal('revoking returns a sentence', (select revoked || ' ' || message from push.revoke_api_key(:key_id)),
  format('true key %s (the backend, app app-1) is refused from now on', :key_id));
select test.equal('twice is harmless', (select revoked || ' ' || message from push.revoke_api_key(:key_id)),
  format('false key %s (the backend, app app-1) was revoked already', :key_id));
select id as brief from push.create_api_key('app-1', 'brief', '{read}', now() + interval '1 hour') \gset
update push.api_keys set expires_at = now() - interval '1 s' where id = :brief;
select test.equal('the list shows no hash', (select string_agg(column_name::text, ' ' order by ordinal_position) from information_schema.columns
  where table_schema = 'push' and table_name = 'keys'), 'id app name scopes created_at expires_at revoked_at addresses last_used_at last_used_from');
select test.equal('a bad app is refused', pg_temp.error($$select push.create_api_key('no/app', 'x')$$) ~ '^22023 app: must be', true);
select test.equal('so is a bad scope', pg_temp.error($$select push.create_api_key('app', 'x', '{admin}')$$),
  '22023 scopes: must be some of enqueue, device and read');
select test.equal('no scope', pg_temp.error($$select push.create_api_key('app', 'x', '{}')$$),
  '22023 scopes: must be some of enqueue, device and read');
select test.equal('no name', pg_temp.error($$select push.create_api_key('app', '')$$), '22023 name: must have 1 to 128 characters');
select test.equal('an unknown key', pg_temp.error($$select push.revoke_api_key(-1)$$), 'P0002 there is no API key -1');
select id as yearly, expires as yearly_end from push.create_api_key('app-2', 'x') \gset
select test.equal('a key has a year unless it is said otherwise', (select expires_at = :'yearly_end'
  and expires_at between now() + interval '1 year' - interval '1 minute' and now() + interval '1 year' from push.keys where id = :yearly), true);
select array_agg(m.id) as endless, count(m.expires) as ends from unnest('{null,infinity}'::timestamptz[]) e cross
  join lateral push.create_api_key('app-2', 'x', expires_at => e) m \gset
select test.equal('null and infinity are for ever', (select count(*) from push.keys where id = any (:'endless') and expires_at is null) - :ends,
  2::bigint);
select test.equal('the past is refused', pg_temp.error($$select push.create_api_key('app', 'x', expires_at => '-infinity')$$),
  '22023 expires_at: must be in the future, or null');
select id as bound, key as bound_key from push.create_api_key('app-2', 'bound', addresses => '{10.0.0.0/8,2001:db8::/32}') \gset
select test.equal('networks are kept', (select addresses::text from push.keys where id = :bound), '{10.0.0.0/8,2001:db8::/32}');
select test.equal('none at all is refused', pg_temp.error($$select push.create_api_key('app', 'x', addresses => '{}')$$),
  '22023 addresses: must be 1 to 64 networks, or null');
select test.equal('so is a null among them', pg_temp.error($$select push.create_api_key('app', 'x', addresses => '{null}')$$),
  '22023 addresses: must be 1 to 64 networks, or null');
select test.equal('so are 65', pg_temp.error($$select push.create_api_key('app', 'x',
  addresses => array(select format('10.0.0.%s/32', g)::cidr from generate_series(1, 65) g))$$), '22023 addresses: must be 1 to 64 networks, or null');
select test.equal('a key is looked up with its state', (select string_agg(format('%s %s', i,
  (select concat_ws(' ', k.app, k.state, k.addresses) from push.look_up_api_key(i) k)), ', ' order by o)
  from unnest(array[:key_id, :brief, :bound, 999999]) with ordinality u(i, o)),
  format('%s app-1 revoked, %s app-1 expired, %s app-2 good {10.0.0.0/8,2001:db8::/32}, 999999 ', :key_id, :brief, :bound));
update push.api_keys set last_used_at = now() + interval '1 minute' where id = :bound;
select test.equal('the keys used last come first, those that are refused never',
  (select array_agg(id) from push.good_api_keys(1)) || array(select id from push.good_api_keys(1000) where id in (:key_id, :brief)), array[:bound]);
update push.api_keys set last_used_at = null;
select clock_timestamp() as begun \gset
select test.equal('a use is noted', push.note_api_key_uses(array[:bound, 999999], '{5000,0}', '{10.1.2.3,10.1.2.3}'), 1);
select test.equal('with the time and the address', (select format('%s %s', last_used_from, last_used_at + interval '5 s' between :'begun'
  and clock_timestamp()) from push.keys where id = :bound), '10.1.2.3 t');
select test.equal('once a minute', push.note_api_key_uses(array[:bound], '{0}', '{::1}') || ' '
  || (select last_used_from from push.keys where id = :bound), '0 10.1.2.3');
update push.api_keys set last_used_at = last_used_at - interval '1 minute' where id = :bound;
select test.equal('and then again', push.note_api_key_uses(array[:bound], '{0}', '{null}'), 1);
select test.equal('an address need not be known', (select last_used_from is null and last_used_at is not null from push.keys where id = :bound),
  true);
select test.equal('keys that expire are seen in time', (select state || ' ' || value from push.health where item = 'API keys'),
  'ok none expires soon');
select id as soon from push.create_api_key('app-3', 'chat', expires_at => now() + interval '29 days') \gset
select test.equal('a month before', (select state || ' ' || value from push.health where item = 'API keys'),
  format('warn %s (chat, app-3) until %s', :soon, (now() + interval '29 days')::date));
update push.api_keys set expires_at = now() + interval '2 days' where id = :soon;
select test.equal('days before it is bad', (select state from push.health where item = 'API keys'), 'bad');
select test.equal('metrics count them', (select string_agg(format('%s %s', app, value), ', ') from push.observe() where what = 'keys_expiring'),
  'app-3 1');
update push.api_keys set last_used_at = now() - interval '31 days' where id = :soon;
select test.equal('but a key that is no longer used may expire', (select state from push.health where item = 'API keys'), 'ok');
select test.equal('keys are audited', (select string_agg(action, ' ' order by id) from push.audit where target = 'app-1/' || :key_id),
  'create_api_key revoke_api_key revoke_api_key');

-- Pruning.
delete from push.outbox; delete from push.delivery; delete from push.ring_reports; delete from push.escalations; select test.follow();
insert into push.outbox (payload, recipients) select jsonb_build_object('callId', 'p' || g, 'from', 'x'), '[]' from generate_series(1, 5) g;
insert into push.outbox (payload, recipients) select jsonb_build_object('callId', c, 'from', 'x'), '[]' from unnest('{p-owed,p-young}'::text[]) c;
update push.outbox set state = 'ended', end_reason = 'busy' where call_id <> 'p5'; select test.follow();
insert into push.delivery (outbox_id, n, deadline_at, lane, ready_lane, user_id, token) select id, 0, now(), 1, 1, 'u', 'test-token-0123456789-1'
  from push.outbox where call_id = 'p-owed';
select set_config('session_replication_role', 'replica', true);
update push.outbox set created_at = now() - interval '20 days', ended_at = ended_at - interval '20 days' where call_id <> 'p-young';
select set_config('session_replication_role', 'origin', true);
insert into push.ring_reports (outbox_id, user_id) select id, 'u' from push.outbox where call_id in ('p1', 'p-young');
insert into push.escalations (outbox_id, n, user_id) select id, 1, 'u' from push.outbox where call_id in ('p1', 'p-young');
create function pg_temp.kept() returns text language sql as $$ select string_agg(call_id, ' ' order by call_id) from push.outbox $$;
select test.equal('pruning keeps as long as it is told', push.prune(1000, 21), 0::bigint);
select test.equal('it goes in steps', push.prune(2), 2::bigint);
select test.equal('the oldest first', pg_temp.kept(), 'p-owed p-young p3 p4 p5');
select test.equal('to the end', push.prune(), 2::bigint);
select test.equal('calls that ring, are owed, or are young stay', pg_temp.kept(), 'p-owed p-young p5');
select test.equal('then there is nothing to prune', push.prune(), 0::bigint);
select test.equal('their other rows are deleted, too', (select count(*) from push.ring_reports) || ' ' || (select count(*) from push.escalations),
  '1 1');
insert into push.audit (at, action, target) values (now() - interval '91 days', 'old', 'x'), (now() - interval '89 days', 'young', 'x');
insert into push.gateways (name, version, alive, ended_at, ended_reason) values ('gone', '1', false, now() - interval '25 hours', 'silent'),
  ('just gone', '1', false, now() - interval '23 hours', 'silent');
insert into push.lane_status (lane, gateway, window_size, capacity, in_flight, rate_per_second, circuit) select 1, id, 1, 1, 1, 1, 'closed'
  from push.gateways;
select push.prune();
select test.equal('interventions are kept for 90 days', (select string_agg(action, ' ') from push.audit where target = 'x'), 'young');
select test.equal('replicas that ended a day ago are deleted with their status',
  (select string_agg(g.name || ':' || (select count(*) from push.lane_status s where s.gateway = g.id), ' ' order by g.id) from push.gateways g),
  'one:1 just gone:1');
select test.equal('of the others nothing is left', (select count(*) from push.lane_status), 2::bigint);

-- Comments.
select test.equal('every argument of a function is in its comment, or the function is internal',
  (select string_agg(p.proname, ' ' order by p.proname) from pg_proc p
  where p.pronamespace = 'push'::regnamespace and has_function_privilege('push_gateway', p.oid, 'execute') and exists (
    select from unnest(p.proargnames[1:p.pronargs]) a where position(a in obj_description(p.oid, 'pg_proc')) = 0)), null);
