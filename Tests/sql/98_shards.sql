-- Shards: where a call id belongs, what a shard refuses, and how it takes over a map.
select push.register_lane('default', 'fcm'), push.register_gateway('one', '1') as g1 \gset

-- Vectors: a backend in any language must come to the same slots (docs/scaling.md).
select test.equal('slot of ' || coalesce(nullif(left(v.id, 40), ''), 'the empty id'), push.slot_of(v.id), v.slot) from (values
  ('', 910), ('call-7', 296), ('c1', 835), ('ünï', 933), ('日本語', 477), (repeat('a', 128), 416),
  ('9f1c2a34-5b67-489a-8bcd-ef0123456789', 1014), (E'tab\tand \\ backslash', 714)) v(id, slot);
select test.equal('slots are spread evenly', (select min(n) > 20 and max(n) < 90 and count(*) = 1024 from (
  select count(*) as n from generate_series(1, 50000) g group by push.slot_of('call-' || g)) x), true);

-- Batches. That a large one costs no more for each call is a test of its plan, in run.sh.
select push.enqueue_call('{"callId": "batched-1", "from": "x"}', '[]') \g /dev/null
select test.equal('a call that is in a batch twice is a duplicate the second time', (
  select string_agg(b.n || ' ' || b.duplicate, ', ' order by b.n) from push.enqueue_batch(array(
    select jsonb_build_object('payload', jsonb_build_object('callId', c, 'from', 'x'), 'recipients', '[]'::jsonb)
    from unnest('{twice-1,twice-2,twice-1,batched-1}'::text[]) c)) b), '0 false, 1 false, 2 true, 3 true');

-- A database that stands alone.
select test.equal('a database that stands alone has no shards', (push.shard_of('c1') is null and push.own_shard() is null
  and push.shards_of('c1') = '{}' and not exists (select from pg_trigger where tgname = 'refuse_slots')), true);
select test.equal('its new call id is any UUID', length(push.new_call_id()), 36);

-- Maps.
create function pg_temp.share(p_shards int[], p_now int[] default null) returns text language sql as $$
  select string_agg(s || ':' || n, ' ' order by s) from (select s, count(*) as n from unnest(push.spread_slots(p_shards, p_now)) s group by s) x $$;
select test.equal('slots are shared out evenly', pg_temp.share('{0,1,2}'), '0:342 1:341 2:341');
select test.equal('a new shard takes an equal part from each', pg_temp.share('{0,1,2,3}', push.spread_slots('{0,1,2}')), '0:256 1:256 2:256 3:256');
select test.equal('no slot moves between the others', (select count(*) from unnest(push.spread_slots('{0,1,2}'),
  push.spread_slots('{0,1,2,3}', push.spread_slots('{0,1,2}'))) x(a, b) where a <> b and b <> 3), 0::bigint);
select test.equal('a shard that leaves gives away its own alone', (select count(*) from unnest(push.spread_slots('{0,1,2}'),
  push.spread_slots('{0,2}', push.spread_slots('{0,1,2}'))) x(a, b) where a <> b and a <> 1), 0::bigint);
select test.equal('nothing moves without need', push.spread_slots('{2,1,0}', push.spread_slots('{0,1,2}')), push.spread_slots('{0,1,2}'));

create function pg_temp.fault(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'none';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
select test.call('before-1'), test.call('before-2');
select test.equal('a database becomes a shard', push.use_shard_map(1, array_fill(4, array[1024]), 4),
  'shard 4 has map 1: 1024 of 1024 slots are its own');
select test.equal('twice is harmless', push.use_shard_map(1, array_fill(4, array[1024]), 4), 'shard 4 has map 1 already');
drop trigger refuse_slots on push.outbox;
alter sequence push.outbox_id_seq increment by 1;
select push.use_shard_map(1, array_fill(4, array[1024]), 4) as again \gset
select test.equal('in a database whose rows were copied without the trigger and the sequence, the map that is there makes them',
  (select count(*) from pg_trigger where tgname = 'refuse_slots') || ' ' || (test.call('copied') % 1024), '1 4');
select test.equal('it keeps its number', pg_temp.fault('select push.use_shard_map(2, array_fill(4, array[1024]), 5)'),
  '22023 this database is shard 4, not 5');
select test.equal('one number, one map', pg_temp.fault('select push.use_shard_map(1, array_fill(5, array[1024]), 4)'),
  '22023 map 1 is not newer than map 1 of this database');
select test.equal('a map has 1,024 slots', left(pg_temp.fault('select push.use_shard_map(2, array_fill(4, array[1000]), 4)'), 5), '23514');
select test.equal('ids of calls name their shard', (select test.call('numbered') % 1024), 4::bigint);

-- Slot 835 (call c1) moves to shard 5; the others stay.
select push.use_shard_map(2, (select array_agg(case when n = 835 then 5 else 4 end order by n) from generate_series(0, 1023) n), 4) as moved \gset
select test.equal('the owner, and the owners before', concat_ws(' ', push.shard_of('c1'), push.shards_of('c1'), push.shards_of('c1', '-1 s'),
  push.shards_of('call-7')), '5 {5,4} {5} {4}');
select test.equal('a call of a slot that moved is refused', pg_temp.fault($$select test.call('c1')$$),
  '22S01 callId: call c1 belongs to shard 5, and this is shard 4 (map 2)');
select test.equal('all calls of a statement are', pg_temp.fault($$insert into push.outbox (payload, recipients)
  select jsonb_build_object('callId', id, 'from', 'x'), '[]' from unnest('{call-7,c1}'::text[]) id$$),
  '22S01 callId: call c1 belongs to shard 5, and this is shard 4 (map 2)');
select test.equal('and nothing of it was enqueued', (select count(*) from push.outbox where call_id in ('c1', 'call-7')), 0::bigint);
select test.equal('other faults come first', left(
  pg_temp.fault($$insert into push.outbox (payload, recipients) values ('{"callId": "c1"}', '[]')$$), 5),
  '22023');
select test.equal('calls of other slots are taken', test.call('call-7') is not null, true);

-- A call that was enqueued before its slot moved stays, and is a duplicate.
select push.use_shard_map(3, array_fill(5, array[1024]), 4) as moved \gset
select test.equal('a call from before is a duplicate', (select duplicate from push.enqueue_call('{"callId": "before-1", "from": "x"}', '[]')), true);
select test.equal('it can be answered', push.answer_call('before-1'), true); select test.follow();
select test.equal('and is found', array(select f from push.find_calls('{c1,before-2,before-1}', '{default,default,null}') f), '{1,2}'::int[]);
select test.equal('a shard without slots makes no ids', pg_temp.fault('select push.new_call_id()'), '55000 shard 4 owns no slot');
select test.equal('a notification without an id is refused there, too', pg_temp.fault($$select push.enqueue_call(
  '{"chatId": "r", "from": "x"}', '["u"]', kind => 'message')$$), '55000 shard 4 owns no slot');

-- Half of the slots: new ids, and ids of notifications, are its own.
select push.use_shard_map(4, (select array_agg(4 + n % 2 order by n) from generate_series(0, 1023) n), 4) as moved \gset
select test.equal('new ids belong to this shard', (select bool_and(push.shard_of(push.new_call_id()) = 4) from generate_series(1, 50)), true);
select test.equal('so do ids of notifications', (select bool_and(push.shard_of(call_id) = 4) from generate_series(1, 20) g cross join lateral
  push.enqueue_call(jsonb_build_object('chatId', 'r' || g, 'from', 'x'), '["u"]', kind => 'message')), true);
select test.equal('and in the API''s batches', (select bool_and(push.shard_of(call_id) = 4) from push.enqueue_calls((select jsonb_agg(
  jsonb_build_object('app', 'default', 'kind', 'message', 'payload', jsonb_build_object('chatId', 'r', 'from', 'x'), 'recipients', '["u"]'::jsonb))
  from generate_series(1, 20)))), true);
select test.equal('earlier owners, the latest first', push.shards_of((select id from (select 'o-' || g as id from generate_series(1, 99) g) x
  where push.slot_of(id) % 2 = 0 limit 1)), '{4,5}'::int[]);
select push.use_shard_map(5, array_fill(4, array[1024]), 4, '-1 s') as moved \gset
select test.equal('old maps are dropped', (select string_agg(generation::text, ' ') from push.shard_map), '5');

-- Batches, the form in which the router passes calls on.
select test.equal('a batch', (select string_agg(concat_ws(' ', n, call_id, duplicate), ', ') from push.enqueue_batch(array[
  '{"payload": {"callId": "batch-2", "from": "x"}, "recipients": ["u"]}', '{"payload": {"callId": "batch-1", "from": "x"}, "recipients": ["u"]}',
  '{"payload": {"callId": "batch-2", "from": "x"}, "recipients": ["u"]}',
  '{"app": "default", "kind": "message", "call_id": "given-1",
    "payload": {"chatId": "r", "from": "x"}, "recipients": [], "ring_seconds": 7}',
  '{"payload": {"callId": "call-7", "from": "x"}, "recipients": ["u"]}']::jsonb[])),
  '0 batch-2 f, 1 batch-1 f, 2 batch-2 t, 3 given-1 f, 4 call-7 t');
select test.equal('its columns arrive', (select concat_ws(' ', app, kind, ring_seconds) from push.outbox where call_id = 'given-1'),
  'default message 7');
select test.equal('a batch with a bad call is refused', pg_temp.fault($$select push.enqueue_batch(array[
  '{"payload": {"callId": "batch-3", "from": "x"}, "recipients": []}', '{"payload": {"from": "x"}, "recipients": []}']::jsonb[])$$),
  '22023 payload.callId: must be a string of 1 to 128 characters (call without callId)');
select test.equal('none of it is enqueued', (select count(*) from push.outbox where call_id = 'batch-3'), 0::bigint);
select test.equal('an empty batch', (select count(*) from push.enqueue_batch('{}')), 0::bigint);
