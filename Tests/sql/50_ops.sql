-- Views for operators.
insert into push.outbox (payload, recipients) values ('{"callId": "t", "from": "x"}',
  '[{"userId": "a", "fcmToken": "secret-0123456789-token-1"}, {"userId": "b", "fcmToken": "secret-0123456789-token-2"}]');
select id as t from push.outbox where call_id = 't' \gset
select test.equal('the timeline of a new call', (select string_agg(concat_ws(' ', event, provider, kind, user_id, attempt), ', ')
  from push.timeline('t')),
  'enqueued incoming_call, ready fcm invite a 0, ready fcm invite b 0');
select push.register_gateway('one', '1') as g \gset
select count(*) as claimed from push.claim(:g, 1, array(select id from push.lane), array[5], array['-infinity']::timestamptz[]) \gset
select push.settle(:g, null, array[:t]::bigint[], array[0], array[1], array[2], array[0]::smallint[], array[200]::smallint[], array[null], array['m'],
  array['t'],
  array[created_at + interval '5.25 ms'], array[created_at + interval '20 ms']) from push.outbox where id = :t;
update push.history set failures = jsonb_build_array(jsonb_build_object('at', created_at + interval '2 ms', 'attempt', 1, 'status', 503, 'reason',
  'ServiceUnavailable'))
  where outbox_id = :t;
select push.park(:g, array[:t]::bigint[], array[1], array[1], array[1], array[10000], array['QUOTA_EXCEEDED']);
select test.equal('the timeline tells the story in order', (select string_agg(concat_ws(' ', event, user_id, attempt, status, reason), ', ')
  from push.timeline('t')),
  'enqueued, attempt failed a 1 503 ServiceUnavailable, sent a 2, delivered a 2 200, waiting b 1 QUOTA_EXCEEDED');
select test.equal('times count from the commit''s enqueueing', (select string_agg(ms::text, ' ') from push.timeline('t')
  where event in ('enqueued', 'sent', 'delivered')),
  '0.0 5.3 20.0');
savepoint unsent;
update push.history set failures = jsonb_build_array(jsonb_build_object('at', created_at + interval '10 ms', 'attempt', 1, 'status', 0, 'reason',
  'ConnectionLost'))
  where outbox_id = :t;
select test.equal('sent is said of the attempt that was sent, not of a later one', (select string_agg(concat_ws(' ', event, user_id, attempt), ', ')
  from push.timeline('t') where event in ('sent', 'attempt failed', 'delivered')), 'sent a 1, attempt failed a 1, delivered a 2');
rollback to unsent;
select test.equal('no view or timeline shows a token', (select count(*)
  from (select d::text from push.deliveries d union all select h::text from push.delivery_history h
  union all select t::text from push.timeline('t') t) x(line) where line like '%0123456789%'), 0::bigint);
select test.equal('an unknown call has no timeline', (select count(*) from push.timeline('nobody')), 0::bigint);
update push.lanes set paused = true, note = 'key rotated' where app = 'default';
select test.equal('ops pause a lane through the view', (select provider || ' ' || note from push.lanes where paused), 'fcm key rotated');

select test.equal('every table, view and column has a comment', (select string_agg(format('%s.%s', c.relname, a.attname), ' ' order by 1)
  from pg_class c
  left join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and c.relispartition = false
  where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p', 'v') and c.relname not in ('schema_migration', 'schema_functions')
    and (obj_description(c.oid, 'pg_class') is null or a.attnum is not null and col_description(c.oid, a.attnum) is null)), null);
select test.equal('every function has a comment', (select string_agg(p.proname, ' ' order by 1) from pg_proc p
  where p.pronamespace = 'push'::regnamespace and obj_description(p.oid, 'pg_proc') is null), null);
select test.equal('no other role has any right, except to mask a text', (select count(*) from pg_proc p
  where p.pronamespace = 'push'::regnamespace and p.proname <> 'mask' and has_function_privilege('public', p.oid, 'execute'))
  + (select count(*) from pg_class c where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p', 'v')
    and has_table_privilege('public', c.oid, 'select, insert, update, delete'))
  + has_schema_privilege('public', 'push', 'usage')::int, 0::bigint);
-- Otherwise a publication FOR ALL TABLES would let nothing be deleted from it.
select test.equal('every table has a replica identity, also partitions', (select string_agg(c.relname, ' ' order by c.relname) from pg_class c
  where c.relnamespace = 'push'::regnamespace and c.relkind = 'r' and c.relreplident in ('d', 'n')
    and not exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary)), null);
select test.equal('the hot table has just its indexes', (select string_agg(indexname, ' ' order by indexname) from pg_indexes
  where schemaname = 'push' and tablename = 'delivery'), 'delivery_pkey delivery_ready delivery_suspect delivery_waiting delivery_waiting_invite');
