-- Deleted calls: none of their deliveries is owed any more, whichever role deletes them.
select push.register_gateway('one', '1') as g \gset
create function pg_temp.left_of(p_id bigint) returns text language sql as $$
  select format('%s %s %s %s', (select count(*) from push.delivery where outbox_id = p_id),
    (select count(*) from push.ring_reports where outbox_id = p_id),
    (select count(*) from push.escalations where outbox_id = p_id), (select count(*) from push.follow_ups where outbox_id = p_id)) $$;
create function pg_temp.belongings(p_id bigint) returns void language sql as $$
  insert into push.ring_reports (outbox_id, user_id) values (p_id, 'u1');
  insert into push.escalations (outbox_id, n, user_id) values (p_id, 1, 'u1');
  insert into push.unreached (app, user_id, outbox_id) values ('default', 'u1', p_id);
  insert into push.follow_ups (outbox_id, why, due_at) values (p_id, 'unheard', now() + interval '1 hour') $$;

select test.call('d1', 3) as d1 \gset
select test.call('d2', 3) as d2 \gset
select pg_temp.belongings(:d1), pg_temp.belongings(:d2);
select count(*) as claimed from push.claim(:g, 1, array(select id from push.lane where app = 'default' order by id), array[2, 2, 2],
  array['-infinity', '-infinity', '-infinity']::timestamptz[]) \gset
select push.park(:g, array[outbox_id], array[n], array[lease], array[1], array[9000], array['Unavailable']) from push.delivery where outbox_id = :d1
  and n = 0;
select test.settle(:g, outbox_id, n, lease) from push.delivery where outbox_id = :d1 and n = 1 and state = 1;
delete from push.outbox where id = :d1;
select test.equal('before the follow-up, a claim says of a deleted call that it is over, and nothing else',
  (select string_agg(concat_ws(' ', c.n, c.ended, c.call_id, c.declined), ', ')
  from push.claim(:g, 2, array(select id from push.lane where app = 'default' order by id), array[9, 9, 9],
    array['-infinity', '-infinity', '-infinity']::timestamptz[]) c where c.outbox_id = :d1), '2 t');
select test.settle(:g, :d1, 2, 2, 2);
select test.equal('it can be settled: it is void', (select reason from push.history where outbox_id = :d1 and n = 2), 'CallEnded');
select test.follow();
select test.equal('a deleted call leaves nothing behind, be it ready, claimed or waiting', pg_temp.left_of(:d1), '0 0 0 1');
update push.follow_ups set due_at = now() where outbox_id = :d1; select test.follow();
select test.equal('nor a note, when that is due', pg_temp.left_of(:d1), '0 0 0 0');
select test.equal('a deletion of owed calls is recorded', (select concat_ws(' ', who, action, target, detail) from push.audit order by id desc
  limit 1), format('%s delete_calls d1 {"owed": 2, "calls": 1}', session_user));
select test.equal('to gateways it has ended', push.ended(array[:d1, :d2]::bigint[]), array[:d1]::bigint[]);
select test.equal('its history stays', (select count(*) from push.history where outbox_id = :d1), 2::bigint);
select test.equal('other calls are not touched', pg_temp.left_of(:d2), '3 1 1 1');
select test.call('d-unreached', 1) as d_unreached \gset
select pg_temp.belongings(:d_unreached);
delete from push.delivery where outbox_id = :d_unreached;
delete from push.outbox where id = :d_unreached;
select test.equal('a deleted call of which nothing was owed leaves no user whom it has not reached',
  (select count(*) from push.unreached where outbox_id = :d_unreached), 0::bigint);
select test.equal('deliveries that a gateway held are deleted: their settlement finds nothing', test.settle(:g, :d1, 0, 1), 0::bigint);
select test.equal('it may be enqueued again', (select duplicate || ' ' || deliveries
  from push.enqueue_call('{"callId": "d1", "from": "x"}', '[{"userId": "u", "fcmToken": "deleted-token-0123456789"}]')), 'false 1');

insert into push.call_key (call_id, app) values ('stale', 'default');
select test.equal('a key without a call costs no call', (select duplicate || ' ' || deliveries
  from push.enqueue_call('{"callId": "stale", "from": "x"}', '[{"userId": "u", "fcmToken": "deleted-token-0123456789"}]')), 'false 1');
select test.equal('nor is it good for a second one', (select duplicate from push.enqueue_call('{"callId": "stale", "from": "x"}', '[]')), true);

select test.equal('each call has its key, and no other', (select string_agg(coalesce(o.call_id, k.call_id), ' ') from push.outbox o full
  join push.call_key k using (call_id, app) where o.id is null or k.app is null), null);
select count(*) as audits from push.audit \gset
select test.call('d3') as d3 \gset
delete from push.delivery where outbox_id = :d3;
delete from push.outbox where id = :d3;
select test.equal('a deletion of calls without deliveries, as by retention, is not', (select count(*) from push.audit), :audits::bigint);
truncate push.outbox;
select test.equal('so is a TRUNCATE', (select action from push.audit order by id desc limit 1), 'truncate_calls');
select test.equal('after a TRUNCATE nothing is left of any call', (select count(*) from push.delivery) + (select count(*) from push.ring_reports)
  + (select count(*) from push.escalations) + (select count(*) from push.unreached)
  + (select count(*) from push.follow_ups) + (select count(*) from push.call_key), 0::bigint);
truncate push.outbox, push.delivery;
select test.equal('a call can be enqueued after it', (select duplicate || ' ' || deliveries
  from push.enqueue_call('{"callId": "d2", "from": "x"}', '[{"userId": "u", "fcmToken": "deleted-token-0123456789"}]')), 'false 1');
