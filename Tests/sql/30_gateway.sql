-- Claim, settle, park and release, and their condition on the lease.
select test.call('long', 1, p_ring => 600) as long \gset
select test.call('short', 2, p_ring => 300) as short \gset
select test.call('hopeless', 1, p_ring => 1) as hopeless \gset
update push.delivery set deadline_at = now() + interval '100 ms' where outbox_id = :hopeless;
select push.register_gateway('one', '1') as g1, push.register_gateway('two', '1') as g2 \gset
select test.equal('gateways have identities of their own', :g1 <> :g2, true);

select test.equal('the claim takes the earliest deadlines, except those that are too near', test.claim(:g1, 2), 'short/0#1@1 short/1#1@1');
select test.equal('claimed deliveries are not claimed again', test.claim(:g2), 'long/0#1@1');
select test.equal('a claim returns the columns that a push needs',
  (select format('%s %s %s %s %s', state, attempt, lease, gateway, kind) from push.deliveries
  where call_id = 'short' and n = 0),
  format('claimed 1 1 %s invite', :g1));
select test.equal('settle by another gateway changes nothing', test.settle(:g2, :short, 0, 1), 0::bigint);
select test.equal('settle under another lease changes nothing', test.settle(:g1, :short, 0, 2), 0::bigint);
select test.equal('settle by the owner is accepted', test.settle(:g1, :short, 0, 1), 1::bigint);
select test.equal('settle twice is accepted once', test.settle(:g1, :short, 0, 1), 0::bigint);
select test.equal('history tells the truth', (select format('%s %s %s %s %s %s %s', outcome, provider, kind, user_id, attempts, provider_message_id,
  device)
  from push.delivery_history where outbox_id = :short and n = 0), 'delivered fcm invite u1 1 message-1 test…89-1');
select test.equal('a failure without a reason gets one', test.settle(:g1, :short, 1, 1, 3), 1::bigint); select test.follow();
select test.equal('its reason says why', (select outcome || ' ' || reason from push.delivery_history where outbox_id = :short and n = 1),
  'expired DeadlinePassed');

-- A batch: some leases lost.
select test.call('batch', 5) as batch \gset
select test.equal('claim of a batch', test.claim(:g1), 'batch/0#1@1 batch/1#1@1 batch/2#1@1 batch/3#1@1 batch/4#1@1');
select test.equal('a batch returns the number of accepted settlements',
  push.settle(:g1, null, array[:batch, :batch, :batch]::bigint[], array[0, 1, 2], array[1, 9, 1],
  array[1, 1, 3],
  array[0, 0, 4]::smallint[], array[200, 200, 410]::smallint[], array[null, null, 'Unregistered'], array['a', 'b', null],
    array['batch', 'batch', 'batch'],
  array[now(), now(), null]::timestamptz[], array[now(), now(), null]::timestamptz[]), 2::bigint); select test.follow();
select test.equal('dead and delivered pushes are distinguished',
  (select string_agg(format('%s %s %s %s', n, outcome, attempts, reason), ', ' order by n)
  from push.delivery_history where outbox_id = :batch),
  '0 delivered 1 , 2 dead 3 Unregistered');

select test.equal('release gives the attempt back', push.release(:g1, array[:batch]::bigint[], array[1], array[1]), 1::bigint);
select test.equal('a released delivery is ready', (select state || ' ' || attempt || ' ' || lease from push.deliveries where outbox_id = :batch
  and n = 1), 'ready 0 1');
select test.equal('release is fenced', push.release(:g2, array[:batch, :batch]::bigint[], array[3, 4], array[1, 1]), 0::bigint);
select test.equal('the next claim has its own number', test.claim(:g2, p_claim => 2), 'batch/1#2@1');
select test.equal('park is fenced', push.park(:g2, array[:batch]::bigint[], array[3], array[1], array[1], array[10], array['x']), 0::bigint);
select test.equal('park', push.park(:g1, array[:batch, :batch]::bigint[], array[3, 4], array[1, 1], array[2, 2], array[500000, 900000],
  array['TooManyRequests', 'Later']), 2::bigint);
select test.equal('a parked delivery waits', (select state || ' ' || attempt || ' ' || last_reason || ' '
  || (due_at - interval '500 s' between now() and clock_timestamp())
  from push.deliveries where outbox_id = :batch and n = 3), 'waiting 2 TooManyRequests true');
select test.equal('it waits no longer than its deadline', (select due_at = deadline_at from push.delivery where outbox_id = :batch and n = 4), true);
select test.equal('a waiting delivery is not claimed', test.claim(:g1), null);
select test.equal('promote leaves deliveries that are not due', push.promote(), 0::bigint);
update push.delivery set due_at = now() - interval '1 s' where outbox_id = :batch and n = 3;
select test.equal('promote takes due deliveries', push.promote(), 1::bigint);
select test.equal('a promoted delivery counts on', test.claim(:g1), 'batch/3#1@3');

-- Floor, slack, lanes.
select test.call('floor', 1, p_ring => 300) as floor \gset
select test.equal('nothing below the floor', test.claim(:g1, p_floor => clock_timestamp() + interval '400 s'), null);
select test.equal('nothing within the slack', test.claim(:g1, p_slack => '400 s'), null);
update push.lanes set paused = true, note = 'test' where app = 'default' and provider = 'fcm';
select test.equal('nothing from a paused lane', test.claim(:g1), null);
update push.lanes set paused = false where app = 'default' and provider = 'fcm';
select test.call('other', 1, 'other') as other \gset
select test.equal('several lanes in one call, each with its own number', (select string_agg(call_id, ' ' order by call_id) from push.claim(:g1, 1,
  array(select id from push.lane where provider = 'fcm' order by app), array[1, 0], array['-infinity', '-infinity']::timestamptz[])), 'floor');
select test.equal('no lanes, no rows', (select count(*) from push.claim(:g1, 1, '{}', '{}', '{}')), 0::bigint);
select test.equal('the claim returns the call', (select format('%s %s %s %s', app_call_kind, payload ->> 'callId', user_id,
  deadline_at - remaining_us * interval '1 us' between statement_timestamp() and clock_timestamp()) from push.claim(:g1, 1,
  array(select id from push.lane where app = 'other'), array[5], array['-infinity']::timestamptz[])), 'incoming_call other u1 t');

-- Whatever a gateway passes, an error of push.history prints no token: its rows contain them.
create function pg_temp.odd(p_gateway int, p_lease int, p_attempts int, p_outcome int) returns text language plpgsql as $$
declare
  v_call bigint := test.call('odd-' || gen_random_uuid()); v_message text; v_detail text;
begin
  perform push.claim(p_gateway, p_lease, array(select id from push.lane where app = 'default'), array_fill(999, array[9]),
    array_fill('-infinity'::timestamptz, array[9]));
  perform push.settle(p_gateway, null, array[v_call], '{0}', array[p_lease], array[p_attempts], array[p_outcome]::smallint[], '{null}', '{null}',
    '{null}', '{null}', '{null}', '{null}');
  return (select format('%s %s %s', h.outcome, h.attempts, h.reason) from push.history h where h.outbox_id = v_call);
exception when others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail;
  return v_message || ' ' || v_detail;
end $$;
select test.equal('without an outcome it is dead', pg_temp.odd(:g1, 90, 1, null), '4 1 Unknown');
select test.equal('without attempts it has none', pg_temp.odd(:g1, 90, null, 0), '0 0 ');
select test.equal('a number that means nothing is kept', pg_temp.odd(:g1, 90, -1, -1), '-1 -1 ');
select test.equal('no constraint of history can fail for what settling fills in', (select string_agg(a.attname, ' ' order by a.attname)
  from pg_attribute a where a.attrelid = 'push.history'::regclass and a.attnum > 0 and a.attnotnull and a.attname not in ('finished_at', 'outbox_id',
  'created_at', 'deadline_at', 'n', 'attempts', 'lane', 'kind', 'outcome', 'user_id'))
  || (select string_agg(c.conname, ' ') from pg_constraint c where c.conrelid = 'push.history'::regclass), null);
