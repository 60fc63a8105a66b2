-- Finding a call: push.calls, by user, app, outcome and the first characters of the id; who may; and by which indexes.
select push.register_app('find', 600, p_providers => '{fcm}'), push.register_app('other', 600, p_providers => '{fcm}');
select push.ensure_partitions();
insert into push.devices (app, user_id, provider, token) values ('find', 'ana', 'fcm', 'find-token-0123456789:ana');
select push.enqueue_call('{"callId": "find-1", "from": "d"}', '["ana", {"userId": "bruno"}]', 'find');
select push.enqueue_call('{"callId": "find-2", "from": "d"}', '["bruno"]', 'find');
select push.enqueue_call('{"callId": "find-3", "from": "d"}', '["ana"]', 'other');
select push.enqueue_call('{"callId": "note-1", "from": "d", "chatId": "c"}', '["ana"]', 'find', kind => 'message');
select push.end_call('find-2', 'declined', 'find');
create function pg_temp.found(p_condition text) returns text language plpgsql as $$
declare v_found text;
begin
  execute 'select string_agg(call_id, '' '' order by created_at desc) from push.calls where ' || p_condition into v_found;
  return v_found;
end
$$;

select test.equal('a user''s calls are found, in all apps, and notifications',
  pg_temp.found($$'ana' = any (users) and created_at > now() - interval '1 hour'$$), 'note-1 find-3 find-1');
select test.equal('also those in which the user was skipped', pg_temp.found($$'bruno' = any (users)$$), 'find-2 find-1');
select test.equal('by app and outcome', pg_temp.found($$app = 'find' and outcome = 'ended' and kind = 'incoming_call'$$), 'find-2');
select test.equal('by the first characters of the id', pg_temp.found($$call_id ^@ 'find-'$$), 'find-3 find-2 find-1');
select test.equal('since a time', pg_temp.found($$created_at > now() + interval '1 hour'$$), null);
select test.equal('a call tells how it ended',
  (select concat_ws(' ', outcome, end_reason, ended_at is not null) from push.calls where call_id = 'find-2'),
  'ended declined t');
select test.equal('and what became of its pushes: nothing, where nobody has a device',
  (select string_agg(concat_ws(' ', call_id, pushes), ', ' order by call_id) from push.calls where call_id ~ '^(find|note)-'),
  'find-1 {ready}, find-2 {}, find-3 {}, note-1 {ready}');
insert into push.history (finished_at, outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, device, reason)
  select clock_timestamp(), d.outbox_id, o.created_at, d.deadline_at, i, 1, d.lane, k, 4, d.user_id, 'x', 'r' || k
  from push.delivery d join push.outbox o on o.id = d.outbox_id, (values (1, 0), (2, 0), (3, 1)) h(i, k) where o.call_id = 'find-1';
select test.equal('each result once, with its reason, and of invites alone', (select pushes::text from push.calls where call_id = 'find-1'),
  '{"dead r0",ready}');

-- Rights: as every view, it is for operators. Backends read calls by push.call and push.timeline, those of their own apps.
select test.equal('operators may read it, and no backend may', (select string_agg(r, ' ' order by r)
  from unnest('{push_enqueuer,push_tenant,push_ops,push_keys,push_gateway}'::text[]) r where has_table_privilege(r, 'push.calls', 'select')),
  'push_gateway push_ops');
create role find_ops nologin in role push_ops;
set local role find_ops;
select count(*) as calls, count(users) as users, count(pushes) as pushes from push.calls where call_id ^@ 'find-' \gset
reset role;
select test.equal('with all its columns', array[:calls, :users, :pushes], array[3, 3, 3]);

-- The plans, as the planner makes them for many calls.
create function pg_temp.plan(p_condition text, p_columns text default 'id') returns text language plpgsql as $$
declare v_line text; v_plan text := '';
begin
  for v_line in execute format('explain select %s from push.calls where ', p_columns) || p_condition || ' order by created_at desc limit 20' loop
    v_plan := v_plan || v_line || E'\n';
  end loop;
  return v_plan;
end
$$;
set local session_replication_role = replica;
insert into push.outbox (app, call_id, payload, recipients, ring_seconds, state, created_at, deadline_at, ended_at)
  select 'find', 'many-' || i, '{}', '["u"]', 60, 'missed', t, t, t
  from generate_series(1, 20000) i cross join lateral (select now() - i * interval '1 minute' as t) t;
set local session_replication_role = origin;
analyze push.outbox;
select test.equal('a user''s calls are found by their time',
  pg_temp.plan($$created_at > now() - interval '1 hour' and 'ana' = any (users)$$) ~ 'Bitmap Index Scan on outbox_created', true);
select test.equal('and so are those of an app and an outcome',
  pg_temp.plan($$created_at > now() - interval '1 hour' and app = 'find' and outcome = 'missed'$$) ~ 'Bitmap Index Scan on outbox_created', true);
select test.equal('pushes are computed for what is shown alone',
  pg_temp.plan($$created_at > now() - interval '1 day'$$, 'call_id, pushes') ~ '^Limit[^\n]*\n  ->  Result[^\n]*\n        ->  Sort', true);
select test.equal('the beginning of an id by the index of ids', pg_temp.plan($$call_id ^@ 'many-77'$$) ~ 'Index Scan using outbox_call', true);
