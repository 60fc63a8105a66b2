-- Webhooks: every way in which a delivery or a call ends makes exactly one event, and none for apps without a webhook;
-- the order of a call's events, leases, results, retention, rights, and what operators do.
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
create function pg_temp.hint(p_statement text) returns text language plpgsql as $$
declare v_hint text;
begin
  execute p_statement;
  return 'no error';
exception when others then
  get stacked diagnostics v_hint = pg_exception_hint;
  return v_hint;
end $$;
-- Sends events again, and then whatever the message says, until it says nothing more: how many calls that took, and how many events.
create function pg_temp.resends(p_since timestamptz) returns text language plpgsql as $$
declare v_said record; v_steps int := 0; v_recorded bigint := 0; v_since text := p_since::text;
begin
  loop
    v_steps := v_steps + 1;
    select r.* into v_said from push.resend_webhooks('hooked', since => v_since::timestamptz) r;
    v_recorded := v_recorded + v_said.recorded;
    v_since := substring(v_said.message from 'since => ''([^'']+)''');
    exit when v_since is null or v_steps = 5;
  end loop;
  return v_steps || ' ' || v_recorded;
end $$;
-- Claims with the registered URL, or another one, for ten minutes.
create function pg_temp.take(p_room int default 10, p_app text default 'hooked', p_url_digest text default null) returns text language sql as $$
  select string_agg(format('%s:%s', c.body::json ->> 'type', coalesce(c.body::json -> 'data' ->> 'callId', c.body::json -> 'data' ->> 'token')),
  -- There is no order between calls: their events are recorded in the order in which rows lie on the disk.
  ' ' order by c.body::json -> 'data' ->> 'callId', c.id)
  from push.claim_webhooks(array[p_app], array[coalesce(p_url_digest, (select w.url_digest from push.webhook w where w.app = p_app))],
    array[p_room], '{600000}') c $$;
-- Writes one result for every event that is taken at the moment, of the registered URL or another one.
create function pg_temp.result(p_result int, p_status int, p_delay_ms int default 5000, p_pause_ms int default null, p_app text default 'hooked',
  p_url_digest text default null) returns void language sql as $$
  select push.settle_webhooks(array_agg(e.id), array_agg(e.app), array_agg(coalesce(p_url_digest, w.url_digest)), array_agg(e.attempts),
    array_agg(p_result::smallint), array_agg(p_status), array_agg(case when p_status is null then 'TimedOut' end), array_agg(p_delay_ms),
    array_agg(p_pause_ms))
  from push.webhook_event e join push.webhook w on w.app = e.app
  where e.app = p_app and e.attempts > 0 and e.due_at > clock_timestamp() + interval '3 minutes' $$;
create function pg_temp.waiting(p_call text default null) returns text language sql as $$
  select string_agg(e.type || coalesce(':' || (e.data ->> 'outcome'), '') || coalesce(':' || (e.data ->> 'reason'), ''), ' ' order by e.id)
  from push.webhook_event e where p_call is null or e.data ->> 'callId' = p_call $$;
create function pg_temp.claim(p_gateway int, p_app text default 'hooked') returns text language sql as $$ select test.claim(p_gateway, 99, p_app) $$;
create function pg_temp.settle(p_gateway int, p_call bigint, p_n int, p_outcome int, p_reason text default null) returns bigint language sql as $$
  select push.settle(p_gateway, null, array[p_call], array[p_n], array[1], array[1], array[p_outcome]::smallint[], '{200}', array[p_reason], '{m}',
    array(select o.call_id from push.outbox o where o.id = p_call), array[clock_timestamp()], array[clock_timestamp()]) $$;
select push.register_gateway('one', '1') as g, push.register_gateway('two', '1') as g2 \gset
select push.register_lane('hooked', 'fcm') as lane, push.register_lane('bare', 'fcm') as bare \gset

-- Configuration.
select test.equal('an app without a webhook has no event', (select (select test.call('early', 1, 'hooked')) is not null
  and push.end_call('early') and not exists (select from push.webhook_event)), true); select test.follow();
select push.set_webhooks('{hooked,bare}', '{hook.example:8443,null}', '{digest,null}', '{null,null}');
select test.equal('only apps with a URL have a webhook', (select string_agg(app || ' ' || host || ' ' || state, ',') from push.webhooks),
  'hooked hook.example:8443 on');
select changed_at as changed from push.webhook \gset
select push.set_webhooks('{hooked}', '{hook.example:8443}', '{digest}', '{null}');
select test.equal('the same again writes nothing', (select changed_at from push.webhook), :'changed'::timestamptz);

-- Every way in which a delivery ends.
select test.call('all', 5, 'hooked') as all_id, test.call('bare', 5, 'bare') as bare_id \gset
select pg_temp.claim(:g), pg_temp.claim(:g, 'bare');
select pg_temp.settle(:g, c, 0, 0), pg_temp.settle(:g, c, 1, 1, 'Late'), pg_temp.settle(:g, c, 2, 2, 'CallEnded'), pg_temp.settle(:g, c, 3, 3),
  pg_temp.settle(:g, c, 4, 4, 'Unregistered') from unnest(array[:all_id, :bare_id]::bigint[]) c; select test.follow();
select test.equal('a settled delivery is one event, whatever its outcome', pg_temp.waiting('all'),
  'delivery.finished:delivered delivery.finished:delivered_late:Late delivery.finished:void:CallEnded '
  'delivery.finished:expired:DeadlinePassed delivery.finished:dead:Unregistered');
select test.equal('it tells what a backend needs, with a masked token', (select (e.data - 'sentAt')::text from push.webhook_event e
  where e.data ->> 'outcome' = 'dead'), jsonb_build_object('app', 'hooked', 'callId', 'all', 'n', 4, 'kind', 'invite', 'outcome', 'dead', 'reason',
  'Unregistered', 'status', 200, 'userId', 'u5', 'device', 'test…89-5', 'provider', 'fcm', 'attempts', 1)::text);
select push.end_call('all'), push.end_call('bare'); select test.follow();

select test.call('void', 2, 'hooked') as void_id \gset
select push.answer_call('void', 'u1'); select test.follow();
select test.equal('an end comes before the deliveries that it makes void', pg_temp.waiting('void'),
  'call.answered:answered delivery.finished:void:CallAnswered delivery.finished:void:CallAnswered');
select test.equal('it says who answered', (select e.data ->> 'answeredBy' from push.webhook_event e where e.type = 'call.answered'), 'u1');
select test.equal('an end in vain is no event', (select push.end_call('void')::text || ' ' || count(*) from push.webhook_event e where e.data ->>
  'callId' = 'void'),
  'false 3');

select test.call('declined', 2, 'hooked') as declined_id \gset
select push.decline_call('declined', 'u1', reason => 'busy'); select test.follow();
select test.equal('a decline of one user',
  pg_temp.waiting('declined'), 'call.declined:busy delivery.finished:void:UserBusy');
select push.decline_call('declined', 'u2'); select test.follow();
select test.equal('the decline of the last one ends the call', pg_temp.waiting('declined'), 'call.declined:busy delivery.finished:void:UserBusy '
  'call.declined:declined call.ended:declined delivery.finished:void:CallEnded');

select test.call('late', 1, 'hooked') as late_id, test.call('late-bare', 1, 'bare') \gset
update push.delivery set deadline_at = clock_timestamp() - interval '1 s' where outbox_id = :late_id;
select push.expire();
select test.equal('a delivery that expires in the database', pg_temp.waiting('late'), 'delivery.finished:expired:DeadlinePassed');
set local session_replication_role = replica;
update push.outbox set deadline_at = clock_timestamp() - interval '2 s' where id = :late_id;
set local session_replication_role = origin;
select push.miss(); select test.follow();
select test.equal('a call that nobody answers', pg_temp.waiting('late'), 'delivery.finished:expired:DeadlinePassed call.missed:missed');
delete from push.delivery where outbox_id = :late_id;

select test.call('crash', 1, 'hooked') as crash_id \gset
update push.delivery set kind = 3 where outbox_id = :crash_id;
select pg_temp.claim(:g2);
select test.dies(:g2, :g);
select test.equal('a delivery that died with its gateway', pg_temp.waiting('crash'), 'delivery.finished:dead:GatewayCrashed');

select test.call('old', 1, 'hooked') as old_id \gset
set local session_replication_role = replica;
update push.outbox set state = 'missed', ended_at = now() - interval '5 hours', deadline_at = now() - interval '5 hours', end_reason = 'missed'
  where id = :old_id;
set local session_replication_role = origin;
insert into push.follow_ups (outbox_id, why) values (:old_id, 'ended');
delete from push.delivery where outbox_id = :old_id;
select test.follow(), push.expire();
select test.equal('a missed call that is too late to be told', pg_temp.waiting('old'), 'delivery.finished:expired:DeadlinePassed');

select test.call('void-call', 1, 'hooked');
select push.void_call('void-call'); select test.follow();
select test.equal('an operator voids a call', pg_temp.waiting('void-call'), 'call.ended:voided delivery.finished:void:CallEnded');

select test.equal('there is one event for each finished delivery of the app', (select count(*) from push.webhook_event where type =
  'delivery.finished'),
  (select count(*) from push.history h where h.lane = :lane and h.outbox_id <> (select id from push.outbox where call_id = 'early')));
select test.equal('one for each ended call', (select string_agg(e.data ->> 'callId', ' ' order by e.data ->> 'callId')
  from push.webhook_event e where e.type in ('call.answered', 'call.ended', 'call.missed')), 'all declined late void void-call');
select test.equal('and none of the app without a webhook', (select string_agg(distinct app, ' ') from push.webhook_event), 'hooked');
select test.equal('no event contains a whole token', (select count(*) from push.webhook_event e where e.data::text ~ 'test-token-0123456789'),
  0::bigint);
delete from push.webhook_event;

-- Notifications are deliveries and no calls.
insert into push.outbox (app, kind, payload, recipients) values ('hooked', 'message', '{"from": "x", "chatId": "c"}',
  '[{"userId": "u", "fcmToken": "test-token-0123456789-m"}]') returning id as message_id \gset
delete from push.delivery where outbox_id <> :message_id;
select pg_temp.claim(:g);
select pg_temp.settle(:g, :message_id, 0, 0);
select test.equal('a notification is told as a delivery', (select string_agg(e.type || ' ' || (e.data ->> 'kind'), ', ') from push.webhook_event e),
  'delivery.finished notification');
delete from push.webhook_event;

-- Dead tokens.
insert into push.devices (user_id, app, provider, token, registered_at) values ('owner', 'hooked', 'fcm', 'dead-token-0123456789-1', now() -
  interval '1 day'),
  ('owner', 'bare', 'fcm', 'dead-token-0123456789-1', now() - interval '1 day');
select push.invalidate_tokens(array[:lane, :lane, :bare]::smallint[], '{dead-token-0123456789-1,dead-token-0123456789-2,dead-token-0123456789-1}',
  '{null,null,null}', '{UNREGISTERED,UNREGISTERED,UNREGISTERED}');
select test.equal('each dead token of the app is one event, with the whole token', (select string_agg(format('%s %s %s %s', app, data ->> 'token',
  data ->> 'userId',
  data ->> 'reason'), ', ' order by data ->> 'token') from push.webhook_event),
  'hooked dead-token-0123456789-1 owner UNREGISTERED, hooked dead-token-0123456789-2  UNREGISTERED');
select push.invalidate_tokens(array[:lane]::smallint[], '{dead-token-0123456789-2}', '{null}', '{UNREGISTERED}');
select test.equal('it is told once', (select count(*) from push.webhook_event), 2::bigint);
update push.devices set registered_at = clock_timestamp(), invalidated_at = null, invalid_reason = null where app = 'hooked' and token =
  'dead-token-0123456789-1';
select test.equal('a token that lives again is not told any more', pg_temp.take(), 'token.dead:dead-token-0123456789-2');
select push.hold_invalidation(:lane::smallint, '5 minutes', 'test');
select test.equal('nor one that a hold takes back', (select count(*) from push.webhook_event), 0::bigint);
select from push.resume_invalidation('hooked', 'fcm');

-- Expo's receipts.
select push.register_lane('hooked', 'expo') as expo \gset
insert into push.outbox (app, payload, recipients) values ('hooked', '{"callId": "expo", "from": "x"}',
  '[{"userId": "u", "pushToken": "ExponentPushToken[hook]"}]')
  returning id as expo_id \gset
select pg_temp.claim(:g);
select push.settle(:g, null, array[:expo_id::bigint], '{0}', '{1}', '{1}', '{0}', '{200}', '{null}', '{ticket-1}', '{expo}', array[now()],
  array[now()], null, '{1}');
update push.receipt_batch set due_at = sent_at;
select count(*) from push.claim_receipts('hooked', 10, 60000);
select push.settle_receipts('hooked', '{ticket-1}', '{DeviceNotRegistered}');
select test.equal('a receipt that reports a failure is an event of its own', pg_temp.waiting('expo'),
  'delivery.finished:delivered delivery.receipt:DeviceNotRegistered');
delete from push.webhook_event;

-- Types.
select push.set_webhooks('{hooked}', '{hook.example:8443}', '{digest}', '{"call.missed,call.ended"}');
select test.call('typed', 1, 'hooked');
select push.end_call('typed'); select test.follow();
select test.equal('only the chosen types are recorded', pg_temp.waiting(), 'call.ended:ended');
select push.set_webhooks('{hooked}', '{hook.example:8443}', '{digest}', '{null}');
delete from push.webhook_event;

-- Order and leases.
select test.call('first', 1, 'hooked'), test.call('second', 1, 'hooked');
select push.answer_call('first'), push.answer_call('second'); select test.follow();
select test.equal('of each call the first event is taken', pg_temp.take(), 'call.answered:first call.answered:second');
select test.equal('the others wait for it', pg_temp.take(), null);
select test.equal('which puts them off', (select bool_and(due_at > clock_timestamp() + interval '3 minutes') from push.webhook_event where attempts =
  0), true);
update push.webhook_event set due_at = clock_timestamp() where attempts = 1 and data ->> 'callId' = 'second';
select test.equal('after its lease it is taken again, before the next', pg_temp.take(), 'call.answered:second');
select pg_temp.result(0, 200);
select test.equal('acknowledged ones are gone, and the next are due at once', pg_temp.take(), 'delivery.finished:first delivery.finished:second');
select test.equal('of several rooms', (select count(*) from push.claim_webhooks('{hooked}', '{digest}', '{0}', '{1000}')), 0::bigint);
select clock_timestamp() as begun, pg_temp.result(1, 500) \gset
select test.equal('a failed event is due later', (select bool_and(due_at - interval '5 s' between :'begun' and clock_timestamp()) from
  push.webhook_event), true);
select test.equal('the failure is seen', (select format('%s %s %s', state, last_status, waiting) from push.webhooks), 'failing 500 2');
update push.webhook_event set due_at = clock_timestamp();
select pg_temp.take(1);
select pg_temp.result(0, 204);
select test.equal('a success ends it', (select format('%s %s %s', state, last_status, failing_since is null) from push.webhooks), 'on 204 t');
-- A slow gateway: its result comes after another one has taken the event.
select pg_temp.take(1);
select e.id as slow, e.attempts as slow_attempt from push.webhook_event e \gset
update push.webhook_event set due_at = clock_timestamp();
select pg_temp.take(1);
select due_at as lease from push.webhook_event \gset
select push.settle_webhooks(array[:slow::bigint], '{hooked}', '{digest}', array[:slow_attempt], '{1}', '{500}', '{null}', '{0}', '{null}');
select test.equal('the late failure of a former lease changes nothing', (select due_at from push.webhook_event), :'lease'::timestamptz);
select push.settle_webhooks(array[:slow::bigint], '{hooked}', '{digest}', array[:slow_attempt], '{0}', '{200}', '{null}', '{0}', '{null}');
select test.equal('its late success does', (select count(*) from push.webhook_event), 0::bigint);

-- A receiver that is down.
select test.call('down-' || i, 1, 'hooked'), push.end_call('down-' || i) from generate_series(1, 8) i; select test.follow();
select push.set_webhooks('{hooked}', '{hook.example:8443}', '{other}', '{null}');
select test.equal('another URL begins anew', (select format('%s %s', failures, state) from push.webhooks join push.webhook using (app)), '0 on');
select pg_temp.take(4);
select pg_temp.result(1, null);
select test.equal('four failures stop nothing', (select retry_at from push.webhook), null);
select pg_temp.take(1);
select clock_timestamp() as begun, pg_temp.result(1, null) \gset
select test.equal('the fifth makes the app wait', (select retry_at - interval '5 s' between :'begun' and clock_timestamp() from push.webhook), true);
update push.webhook set retry_at = retry_at + interval '10 minutes';
select test.equal('nothing is taken meanwhile', pg_temp.take(), null);
update push.webhook set retry_at = clock_timestamp();
select test.equal('then one event, as a probe', (select count(*) from push.claim_webhooks('{hooked}', '{other}', '{10}', '{600000}')), 1::bigint);
update push.webhook_event set due_at = clock_timestamp();
select test.equal('and no other beside it', pg_temp.take(), null);
select test.equal('the reason is seen', (select last_reason from push.webhooks), 'TimedOut');
select push.resume_webhooks('hooked');
select test.equal('an operator can end the wait', (select count(*) from push.claim_webhooks('{hooked}', '{other}', '{10}', '{600000}')), 8::bigint);
select pg_temp.result(1, 503, 60000, 900000);
select test.equal('a receiver that asks for a pause gets one', (select retry_at > clock_timestamp() + interval '10 minutes' from push.webhook), true);
select push.resume_webhooks('hooked');
select pg_temp.take(1) is not null and pg_temp.take(1) is not null and pg_temp.take(1) is not null as took \gset
select push.settle_webhooks(array[(select min(id) from push.webhook_event where attempts > 0 and due_at > clock_timestamp() + interval '3 minutes')],
  '{hooked}', '{other}', array[99], '{1}', '{503}', '{null}', '{0}', '{900000}');
select test.equal('a pause', :'took' || (select format(' %s %s', failures, retry_at > clock_timestamp() + interval '10 minutes') from push.webhook),
  't 1 t');
select pg_temp.result(1, 500, 0);
select test.equal('is not ended by a failure of a request that was under way', (select retry_at > clock_timestamp() + interval '10 minutes'
  from push.webhook), true);
select min(id) as kept from push.webhook_event \gset
select push.settle_webhooks(array[:kept::bigint], '{hooked}', '{digest}', '{1}', '{0}', '{200}', '{null}', '{0}', '{null}', '{evt_other}');
select test.equal('a result for another event that had this id deletes nothing', (select min(id) from push.webhook_event), :kept::bigint);
update push.webhook set failures = 1, failing_since = clock_timestamp();
select push.settle_webhooks('{0}', '{hooked}', '{other}', '{1}', '{0}', '{200}', '{null}', '{0}', '{null}');
select test.equal('nor by an acknowledgement', (select format('%s %s', failures, retry_at > clock_timestamp() + interval '10 minutes')
  from push.webhook),
  '0 t');
select push.resume_webhooks('hooked');

-- Requests that were under way when the receiver stopped answering, and fail one after the other.
create function pg_temp.fails(p_events bigint[]) returns void language sql as $$
  select push.settle_webhooks(array[e.id], array[e.app], array[w.url_digest], array[e.attempts], '{1}', '{null}', '{TimedOut}', '{0}', '{null}')
  from push.webhook_event e join push.webhook w on w.app = e.app where e.id = any (p_events) $$;
-- What the last failure has made of it.
create function pg_temp.rest() returns text language sql as $$
  select format('%s failures, %s s', failures, round(extract(epoch from retry_at - last_at))) from push.webhook where app = 'hooked' $$;
update push.webhook_event set due_at = clock_timestamp();
select pg_temp.take(8) is not null as took \gset
select array_agg(id order by id) as ids from push.webhook_event where due_at > clock_timestamp() + interval '3 minutes' \gset
select pg_temp.fails((:'ids'::bigint[])[1:5]);
select test.equal('five failures make the app wait', cardinality(:'ids'::bigint[]) || ' ' || pg_temp.rest(), '8 5 failures, 5 s');
update push.webhook set retry_at = clock_timestamp() + interval '10 minutes' where app = 'hooked' returning retry_at as wait \gset
select pg_temp.fails((:'ids'::bigint[])[6:7]);
select test.equal('more of requests sent before make the wait no longer', (select failures || ' ' || (retry_at = :'wait') from push.webhook
  where app = 'hooked'), '5 true');
update push.webhook set retry_at = clock_timestamp() where app = 'hooked';
select test.equal('a probe is sent', (select count(*) from push.claim_webhooks('{hooked}', '{other}', '{10}', '{600000}')), 1::bigint);
select e.id as probe, w.retry_at as wait from push.webhook_event e join push.webhook w on w.app = e.app and w.retry_at = e.due_at \gset
select pg_temp.fails((:'ids'::bigint[])[8:8]);
select test.equal('which the last of them leaves alone', (select failures || ' ' || (retry_at = :'wait') from push.webhook where app = 'hooked'),
  '5 true');
select pg_temp.fails(array[:probe]);
select test.equal('its failure makes the wait longer', pg_temp.rest(), '6 failures, 10 s');
select push.resume_webhooks('hooked');

-- 410.
select pg_temp.take(1);
select pg_temp.result(2, 410);
select test.equal('410 stops it', (select state from push.webhooks) || coalesce(pg_temp.take(), ''), 'gone');
select push.set_webhooks('{hooked}', '{hook.example:8443}', '{other}', '{call.ended}');
select test.equal('also after a change that leaves the URL', (select state from push.webhooks), 'gone');
select push.set_webhooks('{hooked}', '{hook.example:8443}', '{third}', '{null}');
select test.equal('until the URL changes', (select state from push.webhooks), 'on');
select test.equal('health tells it', (select state from push.check_health() where item = 'webhooks'), 'ok');

-- A rolling restart with another URL: some replicas still have the former one.
select pg_temp.take(1, p_url_digest => 'other') is not null as took \gset
select pg_temp.result(2, 410, 0, 90000, p_url_digest => 'other');
select test.equal('410 of the former URL does not stop the new one', :'took' || (select format(' %s %s', state, retry_at) from push.webhooks),
  't on ');
select pg_temp.take(8, p_url_digest => 'other') is not null as took \gset
select pg_temp.result(1, null, 0, p_url_digest => 'other');
select test.equal('nor do its failures count', :'took' || (select format(' %s %s', state, retry_at) from push.webhooks), 't on ');
select pg_temp.take(2) is not null as took \gset
select pg_temp.result(2, 410, 0);
select test.equal('410 of the new URL stops the replicas that have it, and no others', :'took' || (select ' ' || state from push.webhooks)
  || coalesce(pg_temp.take(), '') || (pg_temp.take(p_url_digest => 'other') is not null), 't gonetrue');
select pg_temp.result(0, 200, p_url_digest => 'other');
select test.equal('an acknowledgement of the former URL counts', (select failures from push.webhook), 0);
select push.set_webhooks('{hooked}', '{hook.example:8443}', '{fourth}', '{null}');

-- Operators.
select test.equal('a pause', (select changed from push.pause_webhooks('hooked', 'their deploy')), true);
update push.webhook_event set due_at = clock_timestamp();
select test.equal('stops sending, and is seen', coalesce(pg_temp.take(), '') || (select state || ' ' || note from push.webhooks),
  'paused their deploy');
select test.equal('health warns', (select state || ' ' || (value ~ '^hooked: paused') from push.check_health() where item = 'webhooks'), 'warn true');
update push.webhook set failures = 1, failing_since = now() - interval '2 minutes' where app = 'hooked';
select test.equal('and says no time, which would be that of a failure', (select value from push.check_health() where item = 'webhooks') ~
  '^hooked: paused, [0-9]+ wait', true);
update push.webhook set failures = 0, failing_since = null where app = 'hooked';
select test.call('paused', 1, 'hooked');
select push.end_call('paused'); select test.follow();
select test.equal('events are recorded all the same', pg_temp.waiting('paused'), 'call.ended:ended delivery.finished:void:CallEnded');
select test.equal('a resume', (select changed from push.resume_webhooks('hooked')), true);
select test.equal('sends them', pg_temp.take(99) ~ 'call.ended:paused', true);
select test.equal('who did it is recorded', (select string_agg(action || ' ' || target, ', ' order by id desc) from (select * from push.audit
  order by id desc limit 2) a),
  'resume_webhooks hooked, pause_webhooks hooked');
delete from push.webhook_event where data ->> 'callId' <> 'paused' or type = 'call.ended';
select test.equal('a call''s events can be sent again; one that waits is not doubled', (select recorded from push.resend_webhooks('hooked',
  'paused')), 1::bigint);
select test.equal('with the same ids', (select count(*) from push.webhook_event where event = (
  select push.webhook_id('call', 'hooked', o.id::text, extract(epoch from o.created_at)::text) from push.outbox o
  where call_id = 'paused')), 1::bigint);
delete from push.webhook_event;
select test.equal('so can those of an hour', (select recorded > 20 from push.resend_webhooks('hooked', since => now() - interval '1 hour')), true);
select test.equal('of the app only', (select string_agg(distinct app, ' ') from push.webhook_event), 'hooked');
select test.equal('one of both is needed', pg_temp.error($$select push.resend_webhooks('hooked')$$), '22023 call_id, since: give one of them');
select test.equal('not of last week', pg_temp.error($$select push.resend_webhooks('hooked', since => now() - interval '7 days')$$),
  '22023 since: must not be more than 24 hours ago');
select test.equal('whose hint names what does it', pg_temp.hint($$select push.resend_webhooks('hooked', since => now() - interval '7 days')$$)
  ~ 'call_id => .* an older call', true);
select test.equal('nor of the future', pg_temp.error($$select push.resend_webhooks('hooked', since => now() + interval '1 hour')$$),
  '22023 since: must not be in the future');
select test.equal('not of an app without a webhook', pg_temp.error($$select push.resend_webhooks('bare', 'bare')$$),
  'P0002 app: there is no webhook of app bare');
select test.equal('not of a call that is not there', pg_temp.error($$select push.resend_webhooks('hooked', 'nowhere')$$),
  'P0002 call_id: there is no call nowhere in app hooked');
select test.equal('whose hint names what finds it', pg_temp.hint($$select push.resend_webhooks('hooked', 'nowhere')$$) ~ 'push.timeline', true);
update push.webhook set on_until = now() where app = 'hooked';
select test.equal('nor while the webhook is off, when nothing would be recorded',
  pg_temp.error($$select push.resend_webhooks('hooked', 'paused')$$), '55000 app: the webhook of app hooked is off');
update push.webhook set on_until = 'infinity' where app = 'hooked';
-- More than 10,000 events: of one call, and of one moment, before and after which there are others.
delete from push.webhook_event;
set local session_replication_role = replica;
insert into push.history select r.* from push.history h, generate_series(1, 10004) i, jsonb_populate_record(h, jsonb_build_object('n', i)) r
  where h.outbox_id = (select id from push.outbox where call_id = 'paused') and h.n = 0;
set local session_replication_role = origin;
select recorded || ' ' || (message ~ 'call it again') as resent from push.resend_webhooks('hooked', 'paused') \gset
select test.equal('all events of a call are sent again, at once', :'resent'::text, '10006 false');
delete from push.webhook_event;
delete from push.history where outbox_id = (select id from push.outbox where call_id = 'paused') and n > 0;
set local session_replication_role = replica;
insert into push.token_invalidations (app, provider, token, reason, invalidated_at)
  select 'hooked', 'fcm', 'many-token-0123456789-' || i, 'UNREGISTERED',
    now() - case when i <= 2 then interval '23 hours' when i <= 10007 then interval '22 hours' else interval '21 hours' end
  from generate_series(1, 10010) i;
set local session_replication_role = origin;
select split_part(pg_temp.resends(now() - interval '23 hours'), ' ', 1) as steps \gset
select test.equal('of a time, what happened at one moment is sent together, so that each call of the function comes further', :'steps' || ' '
  || (select count(*) from push.webhook_event where data ->> 'token' ~ '^many-token'), '2 10010');
delete from push.webhook_event;
delete from push.token_invalidations where token ~ '^many-token';

-- Sixteen requests that fail together.
delete from push.webhook_event;
update push.webhook set failures = 0, failing_since = null, retry_at = null;
insert into push.webhook_event (event, app, type, at, data) select 'burst-' || i, 'hooked', 'token.dead', now(), '{}' from generate_series(1, 16) i;
select pg_temp.take(16) is not null as took \gset
select pg_temp.result(1, null);
select test.equal('requests that fail together stop the app for five seconds, not for five minutes',
  (select failures || ' ' || (retry_at < clock_timestamp() + interval '6 s') from push.webhook where app = 'hooked'), '5 true');
update push.webhook set failures = 0, failing_since = null, retry_at = null;

-- Retention.
delete from push.webhook_event;
insert into push.webhook_event (event, app, type, at, created_at, data) select 'stray-' || i, 'strayed', 'token.dead', now(),
  now() - interval '25 hours', '{}' from generate_series(1, 5001) i;
insert into push.webhook (app, host, url_digest, on_until) values ('strayed', 'hook.example', 'd', now() - interval '1 minute');
insert into push.webhook_event (event, app, type, at, created_at, data) values ('kept', 'hooked', 'token.dead', now(), now() - interval '23 hours',
  '{}'), ('due', 'hooked', 'token.dead', now(), now() - interval '25 hours', '{}');
select sum(push.trim_webhooks()) > 0 as trimmed from generate_series(1, 5) \gset
select test.equal('old events of an app are deleted, however many older ones another app has, and all of an app whose webhook is off',
  :'trimmed' || ' ' || (select concat_ws(' ', count(*), min(event)) from push.webhook_event), 't 1 kept');
delete from push.webhook_event;
delete from push.webhook where app = 'strayed';
update push.webhook set dropped = 0;
select test.call('aged', 1, 'hooked');
select push.end_call('aged'); select test.follow();
update push.webhook_event set created_at = now() - interval '25 hours' where type = 'call.ended';
select test.set_limit('push.trim_webhooks', '1 hour', '-1 s');
select push.trim_webhooks() as trimmed \gset
select test.set_limit('push.trim_webhooks', '-1 s', '1 hour');
select test.equal('events of yesterday are dropped and counted, however little time there is',
  :'trimmed' || ' ' || (select dropped || ' ' || waiting from push.webhooks), '1 1 1');
delete from push.webhook_event;
insert into push.webhook_event (event, app, type, at, data) select 'many-' || i, 'hooked', 'token.dead', now(), '{}' from generate_series(1,
  100009) i;
select push.trim_webhooks() as trimmed \gset
select test.equal('so are the oldest of more than 100,000', :'trimmed' || ' ' || (select dropped || ' ' || waiting from push.webhooks),
  '9 10 100000');
select test.equal('the newest stay', (select count(*) from push.webhook_event where event = 'many-100009'), 1::bigint);
select test.equal('metrics show it', (select string_agg(concat_ws(' ', what, app, value), ', ' order by what) from push.observe()
  where what in ('webhook_waiting', 'webhook_dropped')), 'webhook_dropped hooked 10, webhook_waiting hooked 100000');
select push.set_webhooks('{hooked}', '{null}', '{null}', '{null}');
select test.equal('a replica without the webhook turns it off', (select state from push.webhooks), 'off');
update push.webhook set on_until = clock_timestamp() - interval '1 ms';  -- It has just done so, however slow the machine is.
select push.trim_webhooks() as trimmed \gset
select test.equal('but deletes no events yet', :trimmed, 0);
select pg_temp.take(1) is not null as took \gset
select test.equal('if another replica still has it, it is on', :'took' || ' ' || (select state || ' ' || replicas_differ from push.webhooks),
  't on true');
select test.equal('and health says that they differ', (select state || ' ' || substring(value from 'hooked: on.*') from push.health where item =
  'webhooks'), 'warn hooked: on (not in the configuration of every replica), 100000 wait');
update push.webhook set on_until = clock_timestamp() + interval '1 hour';
select push.trim_webhooks() \g /dev/null
select test.equal('as long as that one claims', (select state from push.webhooks), 'on');
update push.webhook set on_until = clock_timestamp() - interval '1 ms';
select push.trim_webhooks() \g /dev/null
select test.equal('and off a minute after its last claim', (select state || ' ' || replicas_differ from push.webhooks), 'off false');
update push.webhook set on_until = clock_timestamp() - interval '20 s';
delete from push.webhook_event where attempts > 0;
select push.trim_webhooks() as trimmed \gset
select test.equal('without its webhook, an app''s events go in bites', :'trimmed' || ' ' || (select state || ' ' || dropped from push.webhooks),
  '5000 off 10');
select test.equal('the job takes one bite after the other', (select push.run_job('prune') and due_at <= clock_timestamp() from push.job where name
  = 'prune'), true);
delete from push.webhook_event where id > (select min(id) + 4998 from push.webhook_event);
select test.equal('until there is no more', (select bool_or(push.run_job('prune')) from generate_series(1, 5)), false);
select test.equal('and nothing is left', (select count(*) from push.webhook_event), 0::bigint);
select test.call('off', 1, 'hooked');
select push.end_call('off'); select test.follow();
select test.equal('and none comes', pg_temp.waiting('off'), null);
delete from push.webhook_event;

-- Apps that no gateway serves any more.
select push.set_webhooks('{hooked}', '{hook.example:8443}', '{digest}', '{null}');
update push.webhook set changed_at = now() - interval '25 hours';
update push.gateways set started_at = now() - interval '2 minutes' where alive;
create function pg_temp.trimmed() returns text language plpgsql as $$
begin
  perform push.trim_webhooks();
  return (select state || ' ' || replicas_differ from push.webhooks);
end $$;
select push.report_lanes(:g, array[:lane]::smallint[], '{1}', '{1}', '{0}', '{closed}', '{0}', '{0}');
select test.equal('the webhook of an app that a gateway serves stays on', pg_temp.trimmed(), 'on false');
update push.lane_status set updated_at = now() - interval '23 hours';
select test.equal('also if it did so within 24 hours', pg_temp.trimmed(), 'on false');
update push.lane_status set updated_at = now() - interval '25 hours';
update push.webhook set changed_at = now() - interval '23 hours';
select test.equal('or the webhook is new', pg_temp.trimmed(), 'on false');
update push.webhook set changed_at = now() - interval '25 hours';
update push.gateways set started_at = clock_timestamp();
select test.equal('or no gateway has run for a minute', pg_temp.trimmed(), 'on false');
update push.gateways set started_at = now() - interval '2 minutes' where alive;
select test.equal('otherwise it is about to be off', pg_temp.trimmed(), 'on true');
select test.call('unserved', 1, 'hooked');
select push.end_call('unserved'); select test.follow();
select test.equal('events are recorded meanwhile', pg_temp.waiting('unserved'), 'call.ended:ended delivery.finished:void:CallEnded');
update push.webhook set on_until = clock_timestamp() - interval '10 s';
select pg_temp.take(1) is not null as took \gset
select test.equal('a gateway that has it keeps it on', :'took' || ' ' || pg_temp.trimmed(), 't on true');
update push.webhook set on_until = clock_timestamp() - interval '20 s';
select test.equal('without one it is off', pg_temp.trimmed(), 'off false');
select test.equal('and its events are gone', (select count(*) from push.webhook_event), 0::bigint);

-- Erasure.
select push.set_webhooks('{hooked}', '{hook.example:8443}', '{digest}', '{null}');
insert into push.outbox (app, payload, recipients) values ('hooked', '{"callId": "erased-call", "from": "x"}',
  '[{"userId": "person", "fcmToken": "person-token-0123456789"}]');
select push.answer_call('erased-call', 'person'); select test.follow();
select push.invalidate_tokens(array[:lane]::smallint[], '{person-token-0123456789}', '{null}', '{UNREGISTERED}');
select test.equal('before', pg_temp.waiting(), 'call.answered:answered delivery.finished:void:CallAnswered token.dead:UNREGISTERED');
-- Its row in push.token_invalidations is gone, as after a TRUNCATE.
insert into push.webhook_event (event, app, type, user_id, at, data)
  values ('lone', 'hooked', 'token.dead', 'person', now(), '{"token": "person-lone"}');
select from push.erase_user('person', 'hooked');
select test.equal('an erased user is in no event, and the token in none', (select count(*) from push.webhook_event e where e::text ~ 'pers')
  || ' ' || pg_temp.waiting(), '0 call.answered:answered delivery.finished:void:CallAnswered');
select test.equal('the others are masked', (select string_agg(coalesce(data ->> 'answeredBy', data ->> 'userId') || coalesce(data ->> 'device',
  ''), ' ' order by id)
  from push.webhook_event), '[erased] [erased]…');

-- A restored database: calls end, and nobody is rung.
delete from push.webhook_event;
select test.call('restored', 1, 'hooked');
update push.delivery set created_at = now() - interval '1 hour' where outbox_id in (select id from push.outbox where call_id = 'restored');
set local session_replication_role = replica;
update push.outbox set created_at = now() - interval '1 hour' where call_id = 'restored';
set local session_replication_role = origin;
insert into push.origin (made_at) values ('-infinity');
insert into push.follow_ups (outbox_id, why, noted_at) values (-1, 'ended', now() - interval '1 minute');
update push.gateways set heartbeat_at = heartbeat_at where false;
select test.equal('what a restored database puts away is told', pg_temp.waiting('restored'), 'delivery.finished:void:Restored call.missed:restored');
select test.equal('no end of before is announced', (select count(*) from push.follow_ups where noted_at < now()), 0::bigint);
delete from push.origin where made_at = '-infinity';

-- Rights.
select test.equal('gateways have what they need, and no more', (select string_agg(f, ' ' order by f) from unnest(array['set_webhooks',
  'claim_webhooks', 'settle_webhooks',
  'trim_webhooks']) f where has_function_privilege('push_gateway', (select p.oid from pg_proc p where p.proname = f), 'execute')),
  'claim_webhooks set_webhooks settle_webhooks');
select test.equal('operators, too', (select string_agg(f, ' ' order by f) from unnest(array['set_webhooks', 'claim_webhooks', 'pause_webhooks',
  'resume_webhooks',
  'resend_webhooks']) f where has_function_privilege('push_ops', (select p.oid from pg_proc p where p.proname = f), 'execute')),
  'pause_webhooks resend_webhooks resume_webhooks');
select test.equal('nobody reads the events, which contain tokens', (select string_agg(r, ' ') from unnest(array['push_ops', 'push_gateway',
  'push_enqueuer', 'push_tenant']) r
  where has_table_privilege(r, 'push.webhook_event', 'select') or has_table_privilege(r, 'push.webhook', 'select')), null);

-- An erased user has not declined: neither the calls that ring, nor, a second time, those that the user had declined.
delete from push.webhook_event;
update push.webhook set on_until = 'infinity', events = null where app = 'hooked';
insert into push.outbox (app, payload, recipients) values ('hooked', '{"callId": "erased-rings", "from": "x"}',
  '[{"userId": "leaves", "fcmToken": "leaving-token-0123456789"}, {"userId": "stays", "fcmToken": "staying-token-0123456789"}]'),
  ('hooked', '{"callId": "erased-declined", "from": "x"}', '[{"userId": "leaves", "fcmToken": "leaving-token-0123456780"}, "stays"]');
select push.decline_call('erased-declined', 'leaves') \g /dev/null
select test.follow();
select from push.erase_user('leaves', 'hooked', 0); select test.follow();
select push.end_call('erased-rings'), push.end_call('erased-declined') \g /dev/null
select test.follow();
select from push.erase_user('leaves', 'hooked', 0);
select from push.erase_user('leaves', 'hooked', 60000);
select test.equal('an erasure is no decline', (select string_agg(o.call_id || ':' || coalesce(e.user_id, '-'), ' ' order by e.id)
    from push.webhook_event e join push.outbox o on o.id = e.outbox_id where e.type = 'call.declined')
  || '; ' || (select string_agg(k, ' ') from push.outbox o cross join jsonb_object_keys(o.declined) k
    where o.call_id like 'erased-_%' and o.app = 'hooked'),
  'erased-declined:[erased]; [erased] [erased]');
