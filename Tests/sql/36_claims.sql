-- Claims have numbers: what happens after a lost answer or lost commits, and which gateway has which deliveries.
select push.register_gateway('one', '1') as g1, push.register_gateway('two', '1') as g2 \gset
create function pg_temp.claim(p_gateway int, p_claim int, p_max int default 100) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, p_claim, array(select id from push.lane where app = 'default' order by id), array_fill(p_max, array[9]),
    array_fill('-infinity'::timestamptz, array[9])) $$;
create function pg_temp.owed(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s@%s', d.n, d.state, d.attempt), ' ' order by d.n) from push.deliveries d where d.call_id = p_call
    and d.kind = 'invite' $$;
create function pg_temp.settle(p_gateway int, p_place tid, p_outbox bigint, p_n int, p_lease int) returns bigint language sql as $$
  select push.settle(p_gateway, array[p_place], array[p_outbox], array[p_n], array[p_lease], '{1}', '{0}', '{200}', '{null}', '{m}', '{c}',
    array[now()], array[now()]) $$;
create function pg_temp.right_lanes() returns bigint language sql as $$
  select count(*) from push.delivery where ready_lane is distinct from case when state < 2 and crashes < 2 then lane end
    or (state = 1) <> (owner is not null) $$;

-- The result of a claim.
select test.call('brings', 3) as brings \gset
create temp table brought as select * from push.claim(:g1, 7, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}');
select test.equal('one delivery of a call has the call''s columns', (select format('%s %s %s', count(*), count(call_id),
  string_agg(concat_ws(' ', app_call_kind, call_id, ended, payload ->> 'callId'), ',')) from brought), '3 1 incoming_call brings f brings,,');
select test.equal('its number is the lease', (select string_agg(format('%s/%s', owner = :g1, lease), ' ') from push.delivery
  where outbox_id = :brings), 't/7 t/7 t/7');
select test.equal('place is the row''s ctid', (select count(*) from brought b join push.delivery d on d.ctid = b.place and d.n = b.n), 3::bigint);
select test.equal('a settlement without a place is looked up', pg_temp.settle(:g1, null, :brings, 0, 7), 1::bigint);
select test.equal('one with the place of another, too', (select pg_temp.settle(:g1, place, :brings, 1, 7) from brought where n = 2), 1::bigint);
select test.equal('which is left alone', pg_temp.owed('brings'), '2:claimed@1');
select test.equal('under another number nothing is settled', (select pg_temp.settle(:g1, place, :brings, 2, 8) from brought where n = 2), 0::bigint);
select test.equal('at its place it is', (select pg_temp.settle(:g1, place, :brings, 2, 7) from brought where n = 2), 1::bigint);
select test.call('many', 1) as many \gset
update push.delivery set attempt = 99999 where outbox_id = :many;
select test.equal('the 100,000th attempt is one like any', (select attempt
  from push.claim(:g1, 7, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}')), 100000);
select push.settle(:g1, null, array[:many::bigint], '{0}', '{7}', '{100000}', '{0}', '{200}', '{null}', '{m}', '{many}', array[now()], array[now()]);
select test.equal('and history counts it', (select attempts from push.history where outbox_id = :many), 100000);
select test.call('wild', 4) as wild \gset
update push.delivery set deadline_at = case n when 0 then 'infinity' when 1 then '9999-12-31' else deadline_at end, created_at = case n when 2
  then '-infinity' else created_at end,
  attempt = case n when 3 then 2147483647 else attempt end where outbox_id = :wild;
create function pg_temp.wild(p_gateway int) returns text language sql as $$
  select string_agg(format('%s %s %s %s', c.n, isfinite(c.created_at), isfinite(c.deadline_at), c.remaining_us between 0 and 32000000000000), ', '
    order by c.n)
  from push.claim(p_gateway, 7, array(select id from push.lane where app = 'default' and provider = 'fcm'), '{9}', '{-infinity}',
    p_later_floor => '{-infinity}', p_later_max => '{9}') c $$;
select test.equal('times and numbers written into a row by hand fail no claim', pg_temp.wild(:g1) || ', ' || pg_temp.wild(:g1),
  '2 t t t, 3 t t t, 0 t t t, 1 t t t');
delete from push.delivery where outbox_id = :wild;

-- Forget.
select test.call('lost', 2) as lost \gset
select test.equal('claimed, and the answer lost', pg_temp.claim(:g1, 10), 2::bigint);
select test.equal('another''s claim is not ours to forget', push.forget(:g2, 10), 0::bigint);
select test.equal('forget returns the deliveries of the claim', push.forget(:g1, 10), 2::bigint);
select test.equal('with the attempt', pg_temp.owed('lost'), '0:ready@0 1:ready@0');
select test.equal('a second time it finds nothing', push.forget(:g1, 10), 0::bigint);
select test.equal('a later claim with its number takes nothing', pg_temp.claim(:g1, 10), 0::bigint);
select test.equal('nor one with a lower number', pg_temp.claim(:g1, 9), 0::bigint);
select test.equal('the next one does', pg_temp.claim(:g1, 11), 2::bigint);
select test.equal('forgetting an earlier one leaves it alone', push.forget(:g1, 10), 0::bigint);
select push.end_call('lost', 'busy');
select test.equal('the call has ended meanwhile', push.forget(:g1, 11), 2::bigint);
select test.equal('its invites are void', (select string_agg(outcome || ' ' || reason || ' ' || attempts, ', ') from push.delivery_history
  where call_id = 'lost'), 'void CallEnded 0, void CallEnded 0');
select test.call('unseen', 2) as unseen \gset
select test.equal('one that is barred before it begins', push.forget(:g1, 12), 0::bigint);
select test.equal('takes nothing', pg_temp.claim(:g1, 12), 0::bigint);
select test.equal('all lanes are right', pg_temp.right_lanes(), 0::bigint);

-- Reclaim.
delete from push.delivery where outbox_id = :lost;
select pg_temp.claim(:g1, 13, 1), pg_temp.claim(:g2, 21, 1);
select test.call('back', 3) as back \gset
update push.delivery set state = 2, ready_lane = null where outbox_id = :back and n = 1;
insert into push.gateways (name, version, alive, ended_at, ended_reason) values ('dead', '1', false, now(), 'silent') returning id as dead \gset
update push.delivery set state = 1, owner = :dead, lease = 4 where outbox_id = :back and n = 2;
create temp table again as select * from push.reclaim(:g1, 14,
  array[:unseen, :unseen, :back, :back, :back, :back, 1]::bigint[], array[0, 1, 0, 1, 2, 3, 0]);
select test.equal('reclaimed: own, ready and waiting deliveries and those of a dead gateway; not those of a living one, nor deleted ones',
  (select string_agg(i::text, ' ' order by i) from again), '1 3 4 5');
select test.equal('they are claimed under the new number; unclaimed ones count an attempt',
  (select string_agg(format('%s/%s:%s@%s', o.call_id, d.n, d.lease, d.attempt), ' ' order by o.call_id, d.n)
  from push.delivery d join push.outbox o on o.id = d.outbox_id where d.owner = :g1 and d.state = 1),
    'back/0:14@1 back/1:14@1 back/2:14@1 unseen/0:14@1');
select test.equal('the places are theirs', (select count(*) from again a join push.delivery d on d.ctid = a.place and d.owner = :g1), 4::bigint);
select test.equal('once more it changes nothing', (select string_agg(i::text, ' ' order by i)
  from push.reclaim(:g1, 14, array[:unseen, :unseen, :back, :back, :back, :back, 1]::bigint[], array[0, 1, 0, 1, 2, 3, 0])), '1 3 4 5');
select test.equal('nor counts an attempt', (select string_agg(distinct d.attempt::text, ' ') from push.delivery d where d.owner = :g1), '1');
select test.equal('nothing under a number that is barred', (select count(*) from push.reclaim(:g1, 12, array[:back]::bigint[], '{0}')), 0::bigint);
select test.equal('nor for a dead gateway', (select count(*) from push.reclaim(:dead, 1, array[:back]::bigint[], '{0}')), 0::bigint);
select test.equal('nothing reclaimed, no rows', (select count(*) from push.reclaim(:g1, 15, '{}', '{}')), 0::bigint);
select test.equal('settled under the number before: not accepted', pg_temp.settle(:g1, null, :unseen, 0, 13), 0::bigint);
select test.equal('under the new one it is', pg_temp.settle(:g1, null, :unseen, 0, 14), 1::bigint);
select test.equal('a settled delivery is not returned', (select count(*) from push.reclaim(:g1, 16, array[:unseen]::bigint[], '{0}')),
  0::bigint);
select test.equal('all lanes are right', pg_temp.right_lanes(), 0::bigint);

-- The deliveries of a gateway, in parts of the table.
select push.forget(:g1, 14), push.forget(:g2, 21);
select test.call('wide-' || i, 50, p_ring => 600) from generate_series(1, 4) i;
select test.equal('a wide claim', pg_temp.claim(:g1, 20, 120), 120::bigint);
select test.equal('and another''s', pg_temp.claim(:g2, 22, 30), 30::bigint);
create temp table held (outbox_id bigint, n int, lease int, bite int);
do $$
declare
  v_bite record; v_page bigint := 0; v_count int := 0; v_gateway int := (select max(id) from push.gateways where name = 'one');
begin
  loop
    select * into v_bite from push.claimed_by(v_gateway, v_page, 2);
    v_count := v_count + 1;
    insert into held select b.o, b.n, b.l, v_count from unnest(v_bite.outbox_id, v_bite.n, v_bite.lease) b(o, n, l);
    v_page := v_bite.next_page;
    exit when v_page is null or v_count > 1000;
  end loop;
end $$;
select test.equal('bite by bite all that is ours is found', (select format('%s %s', count(*),
  count(*) filter (where d.owner = :g1 and d.lease = h.lease)) from held h join push.delivery d using (outbox_id, n)), '120 120');
select test.equal('in several', (select count(distinct bite) > 1 from held), true);
select test.equal('past the end there is nothing', (select format('%s %s', outbox_id, next_page) from push.claimed_by(:g1, 1000000)), '{} ');

-- Notifications are hints.
select test.call('rings', 1) as rings, test.call('over', 1) as over \gset
select push.end_call('over', 'busy');
select test.equal('push.ended returns calls that have ended or do not exist', push.ended(array[:rings, :over, -1, null]::bigint[]),
  array[:over, -1]::bigint[]);
select test.equal('without calls the result is empty', push.ended('{}'), '{}'::bigint[]);

-- The life of the server: a crash empties both tables.
select test.equal('a first gateway opens the first life', (select count(*) from push.life where opened_at is not null), 1::bigint);
truncate push.life, push.reclaimed;
select test.equal('after a crash nothing is claimed', pg_temp.claim(:g1, 30), 0::bigint);
select push.confirm_reclaimed(:g1);
select test.equal('a confirmation from before the crash confirms nothing', (select count(*) from push.reclaimed), 0::bigint);
select test.equal('health says so', (select state || ' ' || value from push.health where item = 'claims'),
  format('warn closed for 00:00:00, waiting for replica %s, %s', :g1, :g2));
select test.equal('a gateway that sends a heartbeat must reclaim', (select alive and must_reclaim from push.beat(:g1, false)), true);
select test.equal('and is asked again', (select alive and must_reclaim from push.beat(:g1, false)), true);
select test.equal('reclaiming is what can be done', (select count(*) from push.reclaim(:g1, 31, array[:rings]::bigint[], '{0}')), 1::bigint);
select push.confirm_reclaimed(:g1);
select test.equal('a gateway that has confirmed is not asked again', (select must_reclaim from push.beat(:g1, false)), false);
select test.equal('while another has not, nothing is claimed', pg_temp.claim(:g1, 32), 0::bigint);
update push.life set began_at = now() - interval '11 s';
select test.equal('health names the gateway', (select state || ' ' || value from push.health where item = 'claims'),
  format('bad closed for 00:00:11, waiting for replica %s', :g2));
select push.register_gateway('three', '1') as g3 \gset
select test.equal('a new gateway has nothing to reclaim', (select must_reclaim from push.beat(:g3, false)), false);
select test.equal('but waits, too', pg_temp.claim(:g3, 1), 0::bigint);
select must_reclaim from push.beat(:g2, false) \gset
select push.confirm_reclaimed(:g2);
select test.equal('when all have, the life is open', pg_temp.claim(:g3, 2, 5), 5::bigint);
select test.equal('and health is well', (select state || ' ' || value from push.health where item = 'claims'), 'ok open');
truncate push.life, push.reclaimed;
select push.beat(:g1, false), push.confirm_reclaimed(:g1), push.beat(:g3, false), push.confirm_reclaimed(:g3);
select test.equal('one died with the server', pg_temp.claim(:g1, 33, 5), 0::bigint);
select test.dies(:g2, :g1);
select test.equal('declared dead, it is not waited for', pg_temp.claim(:g1, 34, 5), 5::bigint);
truncate push.life, push.reclaimed;
select push.beat(:g1, false), push.confirm_reclaimed(:g1);
select push.retire_gateway(:g3);
select test.equal('nor is one that has retired', pg_temp.claim(:g1, 35, 5), 5::bigint);
select test.equal('the life is one row', (select count(*) from push.life), 1::bigint);
select test.equal('unlogged, as is push.reclaimed', (select string_agg(relname, ' ' order by relname) from pg_class where relpersistence = 'u'
  and relnamespace = 'push'::regnamespace and relkind = 'r'), 'fallback_turn life reclaimed');

-- Commits that must not be lost, in a session that does not wait for the disk.
create function pg_temp.is_durable() returns boolean language plpgsql as $$
declare
  v_was text := current_setting('synchronous_commit');
begin
  perform set_config('synchronous_commit', 'off', true);
  return v_was = 'on';
end $$;
set local synchronous_commit = off;
select test.call('durable', 2) as durable, test.call('durable-2', 1) as durable_2 \gset
select test.equal('a call is enqueued as its backend wants', pg_temp.is_durable(), false);
select push.register_gateway('four', '1') as g4 \gset
select test.equal('a new gateway is on the disk', pg_temp.is_durable(), true);
select push.retire_gateway(:g4);
select test.equal('so is its end', pg_temp.is_durable(), true);
select pg_temp.claim(:g1, 36), push.beat(:g1, true);
select test.equal('claims and heartbeats are not', pg_temp.is_durable(), false);
select push.end_call('durable-2', 'busy');
select test.equal('cancels are', pg_temp.is_durable(), true);
select test.equal('there was one', (select count(*) from push.deliveries where call_id = 'durable-2' and kind = 'cancel'), 1::bigint);
update push.outbox set state = 'missed' where id = :durable;
select test.equal('missed calls are', pg_temp.is_durable(), true);
insert into push.outbox (app, payload, recipients) values ('default', '{"callId": "durable-3", "from": "x"}',
  jsonb_build_array(jsonb_build_object('userId', 'd', 'voipPushToken', repeat('ab', 32), 'fcmToken', 'durable-token-0123456789')));
select push.register_lane('default', 'fcm');
select pg_temp.claim(:g1, 37), pg_temp.is_durable();
select push.settle(:g1, null, array[d.outbox_id], array[d.n], '{37}', '{1}', '{4}', '{410}', '{Unregistered}', '{null}', '{durable-3}', array[now()],
  array[now()])
  from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'durable-3';
select test.equal('a call''s next channel is', pg_temp.is_durable(), true);
select push.register_app('loud', 60, 5), push.register_lane('loud', 'apns'), push.register_lane('loud', 'fcm');
insert into push.outbox (app, payload, recipients) values ('loud', '{"callId": "durable-4", "from": "x"}',
  jsonb_build_array(jsonb_build_object('userId', 'd', 'voipPushToken', repeat('ab', 32), 'fcmToken', 'durable-token-0123456789')));
update push.escalations_due set due_at = now();
select test.equal('an escalation', push.escalate(), 1::bigint);
select test.equal('is', pg_temp.is_durable(), true);
set local synchronous_commit = remote_apply;
select push.register_gateway('five', '1');
select test.equal('a session with a stronger setting keeps it', current_setting('synchronous_commit'), 'remote_apply');
reset synchronous_commit;
select test.equal('all lanes are right', pg_temp.right_lanes(), 0::bigint);
