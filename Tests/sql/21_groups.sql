-- Many calls in one statement, for the HTTP API: valid calls are enqueued, the others are left out.
create function pg_temp.made(p_calls jsonb) returns text language sql as $$
  select string_agg(concat_ws(':', coalesce(n::text, 'none'), call_id, deliveries, skipped), ' ' order by n) from push.enqueue_calls(p_calls) $$;
create function pg_temp.ask(p_id text, p_recipients text default '["u"]', p_more text default '{}') returns jsonb language sql as $$
  select jsonb_build_object('app', 'default', 'payload', jsonb_build_object('callId', p_id, 'from', 'x'), 'recipients', p_recipients::jsonb)
    || p_more::jsonb $$;
select push.register_app(a, 60) from unnest('{default,another}'::text[]) a \g /dev/null

select test.equal('good calls are made, by their place', pg_temp.made(jsonb_build_array(pg_temp.ask('g2',
  '[{"userId": "u", "fcmToken": "group-token-one-of-u"}]'), pg_temp.ask('g1'))),
  '0:g2:1:0 1:g1:0:1');
select test.equal('existing calls are left out', pg_temp.made(jsonb_build_array(pg_temp.ask('g1'), pg_temp.ask('g3'))), '1:g3:0:1');
select test.equal('of the same call twice the first is made', pg_temp.made(jsonb_build_array(pg_temp.ask('g4'), pg_temp.ask('g4', '["v"]'))),
  '0:g4:0:1');
select test.equal('the first, indeed', (select recipients::text from push.outbox where call_id = 'g4'), '["u"]');
select test.equal('the same id in another app is another call', pg_temp.made(jsonb_build_array(pg_temp.ask('g4', '["u"]', '{"app": "another"}'))),
  '0:g4:0:1');
select test.equal('bad calls are left out', pg_temp.made(jsonb_build_array(
  pg_temp.ask('g5') #- '{payload,from}', pg_temp.ask('') , pg_temp.ask('g6', '{}'), pg_temp.ask('g7', '["u"]', '{"kind": "nonsense"}'),
    pg_temp.ask('g8', '["u"]', '{"ringSeconds": 0}'),
  pg_temp.ask('g9', '["u"]', jsonb_build_object('payload', jsonb_build_object('callId', 'g9', 'from', repeat('x', 20000)))::text),
  pg_temp.ask('g10', '["u"]', jsonb_build_object('payload', jsonb_build_object('callId', 'g10', 'from', repeat('x', 6000)))::text),
  pg_temp.ask('good'))), '7:good:0:1');
select test.equal('arguments arrive', pg_temp.made(jsonb_build_array(
  pg_temp.ask('g11', '["u"]', '{"ringSeconds": 33, "kind": "video_call", '
    '"traceparent": "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}'))), '0:g11:0:1');
select test.equal('as they were', (select concat_ws(' ', ring_seconds, kind, substr(traceparent, 4, 8)) from push.outbox where call_id = 'g11'),
  '33 video_call 01234567');
select test.equal('a notification without an id has one made', (select call_id ~ '^[0-9a-f-]{36}$' from push.enqueue_calls(
  '[{"app": "default", "kind": "message", "payload": {"from": "x", "chatId": "room"}, "recipients": ["u"]}]')), true);
select test.equal('a statement that fails as a whole enqueues nothing and reports it', pg_temp.made(jsonb_build_array(
  pg_temp.ask('g12'), pg_temp.ask('g13', '["u"]', '{"traceparent": "nonsense"}'))), 'none');
select test.equal('nothing, indeed', (select count(*) from push.outbox where call_id in ('g12', 'g13')), 0::bigint);
select test.equal('no call, no row', pg_temp.made('[]'), null);

-- A large call in pages.
insert into push.outbox (app, payload, recipients) select 'default', '{"callId": "large", "from": "x"}',
  jsonb_agg(jsonb_build_object('userId', 'u' || i, 'fcmToken', 'the-token-of-a-large-call-' || i)) || '["nobody"]' from generate_series(1, 7) i;
create function pg_temp.page(p_after int, p_limit int) returns text language sql as $$
  select format('%s next %s', (select string_agg(d ->> 'userId', ' ' order by o) from jsonb_array_elements(c -> 'devices') with ordinality e(d, o)),
    c ->> 'next')
  from push.call('large', 'default', p_after, p_limit) c $$;
select test.equal('the first page', pg_temp.page(null, 3), 'u1 u2 u3 next 2');
select test.equal('the second', pg_temp.page(2, 3), 'u4 u5 u6 next 5');
select test.equal('the last', pg_temp.page(5, 3), 'u7 next ');
select test.equal('a page that is just full is the last', pg_temp.page(null, 7), 'u1 u2 u3 u4 u5 u6 u7 next ');
select test.equal('without a limit, all', pg_temp.page(null, null), 'u1 u2 u3 u4 u5 u6 u7 next ');
select test.equal('its first page of events has those of no push', (select string_agg(concat_ws(' ', event, user_id), ', ' order by at, event,
  user_id) from push.timeline('large', 'default', null, 1)),
  'enqueued, ready u1, ready u2, skipped nobody');
select test.equal('the others have not', (select string_agg(concat_ws(' ', event, user_id), ', ' order by user_id)
  from push.timeline('large', 'default', 2, 3)), 'ready u3, ready u4');
