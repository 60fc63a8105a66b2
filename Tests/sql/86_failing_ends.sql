-- Calls whose end fails or takes too long, and what they do to those of others; numbers that become long as text.
select test.refuses('a number that is long as text', 'payload: has a number that is too large or too small; write it as text (call n)',
  '{"callId": "n", "from": "x", "metadata": {"a": [1, {"b": -1e30}]}}');
select test.refuses('or small', 'payload: has a number that is too large or too small; write it as text (call n)',
  '{"callId": "n", "from": "x", "metadata": {"a": 1e-31}}');
select test.refuses('in recipients', 'recipients: has a number that is too large or too small; write it as text (call n)',
  '{"callId": "n", "from": "x"}', '[{"userId": "v", "voipPushToken": [1e330, 1e330]}]');
select test.refuses('a nought with many decimals', 'recipients: has a number that is too large or too small; write it as text (call n)',
  '{"callId": "n", "from": "x"}', '["u", {"userId": "v", "data": {"a": 0e-16383}}]');
select test.equal('others are good', (select call_id from push.enqueue_call(
  '{"callId": "numbers", "from": "x", "metadata": {"a": 9e29, "b": -5.551115123125783e-17, "c": 0, "d": 1763942400.123, "e": "1e330"}}',
  '[{"userId": "u", "x": 17}]', 'numbers')), 'numbers');
select test.equal('a batch leaves such a call out', (select string_agg(n || ':' || call_id, ' ') from push.enqueue_calls('[
  {"app": "numbers", "payload": {"callId": "long-1", "from": "x"}, "recipients": [{"userId": "v", "voipPushToken": [1e131071]}]},
  {"app": "numbers", "payload": {"callId": "short", "from": "x"}, "recipients": ["u"]},
  {"app": "numbers", "payload": {"callId": "long-2", "from": "x", "metadata": {"a": 1e131071}}, "recipients": ["u"]}]')), '1:short');

-- What is read of recipients.
select test.equal('only texts of a token''s length are read as VoIP tokens', push.voip_tokens(jsonb_build_array('u',
  jsonb_build_object('voipPushToken', '<ab cd>'), jsonb_build_object('voipPushToken', jsonb_build_array('<a b>')),
  jsonb_build_object('voipPushToken', 7), jsonb_build_object('voipPushToken', '<' || repeat('x', 2000)), jsonb_build_object('a', 1))),
  '{abcd}'::text[]);
create function pg_temp.long() returns jsonb language sql as $$ select jsonb_agg(n) from (select '1e131071'::jsonb as n) x, generate_series(1, 10000) $$;
select test.equal('a long number becomes no text', format('%s %s', cardinality(push.voip_tokens(jsonb_build_array(jsonb_build_object(
    'voipPushToken', pg_temp.long())))), push.recipient_data(jsonb_build_object('data', jsonb_build_object('a', pg_temp.long())))), '0 ');
create temp table long (recipients jsonb);
insert into long select jsonb_build_array(jsonb_build_object('userId', 'u', 'x', repeat('x', 1000000)));
select test.equal('a list counts by its bytes, however well it is compressed',
  (select format('%s %s', pg_column_size(recipients) < 20000, push.count_recipients(recipients)) from long), 't 1001');
select test.equal('a short one by its entries', push.count_recipients('["a", "b"]'), 3);

-- The announcement of these calls fails, however often it is tried.
create function test.fail() returns trigger language plpgsql as $$
begin
  if new.kind = 2 and new.user_id like 'bad%' then
    raise program_limit_exceeded;
  elsif new.kind = 2 and new.user_id like 'slow%' then
    perform test.time_out();
  elsif new.kind = 2 and new.user_id like 'held%' then
    raise lock_not_available;
  elsif new.kind = 2 and new.user_id like 'full%' then
    raise out_of_memory;
  end if;
  return new;
end $$;
create trigger fail before insert on push.delivery for each row execute function test.fail();
delete from push.outbox;
select test.follow();
create function pg_temp.late(p_call text, p_user text) returns void language plpgsql as $$
begin
  insert into push.outbox (app, payload, recipients, ring_seconds) values ('ends', jsonb_build_object('callId', p_call, 'from', 'x'),
    jsonb_build_array(jsonb_build_object('userId', p_user, 'fcmToken', 'failing-end-0123456789-' || p_call)), 1);
  perform test.lapse(p_call);
end $$;
create function pg_temp.states() returns text language sql as $$
  select string_agg(o.call_id || case when o.state = 'ringing' then ' rings' else '' end
    || case when exists (select from push.deliveries d where d.outbox_id = o.id and d.kind = 'missed_call') then ' told' else '' end,
    ', ' order by o.id) from push.outbox o $$;
select pg_temp.late('c-' || i, case when i in (1, 30, 31, 60) then 'bad' else 'u' end) from generate_series(1, 60) i \g /dev/null
set client_min_messages = error;
select test.equal('health counts no call that has just ended', (select string_agg(value || ' ' || state, '') from push.health
  where item = 'calls past their deadline'), 'none ok');
alter table push.outbox disable trigger check_call;
update push.outbox set deadline_at = now() - interval '7 s' where call_id in ('c-2', 'c-3');
select test.follow();
select test.equal('those five seconds past their deadline', (select string_agg(value || ' ' || state, '') from push.health
  where item = 'calls past their deadline') ~ '^2, the oldest for 00:00:0[789] bad$', true);
alter table push.outbox enable trigger check_call;
do $$ begin for i in 1..20 loop perform push.run_job('miss'); end loop; end $$;
select test.follow();
select test.equal('calls whose end fails stop no other one', pg_temp.states(),
  (select string_agg('c-' || i || case when i in (1, 30, 31, 60) then '' else ' told' end, ', ' order by i) from generate_series(1, 60) i));
select test.equal('they are tried again', (select count(*) from push.ends_unchecked where is_unannounced), 4::bigint);
-- Calls that are left as by a transaction with an older snapshot.
select pg_temp.late('r-' || i, case when i % 10 = 1 then 'bad' else 'u' end) from generate_series(1, 30) i \g /dev/null
alter table push.outbox disable trigger end_calls;
update push.outbox set state = 'ended' where call_id like 'r-%';
select test.follow();
insert into push.ends_unchecked (outbox_id, is_unannounced) select id, true from push.outbox where call_id like 'r-%';
alter table push.outbox enable trigger end_calls;
do $$ begin for i in 1..20 loop perform push.run_job('check_ends'); end loop; end $$;
select test.follow();
select test.equal('more than once', format('%s, %s', (select count(*) from push.ends_unchecked where tries = 1 and
    due_at between now() + interval '3 s' and clock_timestamp() + interval '5 s'),
    (select count(*) from push.deliveries where call_id like 'r-%' and kind = 'missed_call')), '7, 27');
select test.equal('which health shows', (select string_agg(value || ' ' || state, '') from push.health where item = 'ends that failed'),
  'ends/c-1, ends/c-30, ends/c-31, ends/c-60, ends/r-1, and 2 more bad');
select test.equal('and push.timeline, with the time of the next try', (select string_agg(format('%s %s %s', event, attempt, at = (select e.due_at
    from push.ends_unchecked e join push.outbox o on o.id = e.outbox_id where o.call_id = 'r-1')), ', ')
  from push.timeline('r-1', 'ends') where event ~ 'fail'), 'end failed 1 t');
select test.equal('not of others', (select count(*) from push.timeline('r-2', 'ends') where event ~ 'fail'), 0::bigint);
savepoint deleted;
delete from push.outbox where call_id like 'c-%' or call_id like 'r-%';
select test.follow();
select test.equal('none of a call that was deleted', (select string_agg(value || ' ' || state, '') from push.health
  where item = 'ends that failed'), 'none ok');
rollback to deleted;
update push.ends_unchecked set due_at = now();
select clock_timestamp() as begun \gset
do $$ begin for i in 1..20 loop perform push.run_job('check_ends'); end loop; end $$;
select test.equal('each time later', (select format('%s, %s', count(*), bool_and(due_at - interval '20 s' between :'begun' and clock_timestamp()))
  from push.ends_unchecked where tries = 2), '7, t');
update push.ends_unchecked set due_at = now(), ended_at = now() - interval '241 min';
drop trigger fail on push.delivery;
update push.ends_unchecked set ended_at = now() where outbox_id in (select id from push.outbox where call_id like 'c-%');
update push.ends_unchecked e set due_at = 'infinity' from push.outbox o where o.id = e.outbox_id and o.call_id like 'r-%';
select push.run_job('check_ends') \g /dev/null
select test.follow();
select test.equal('and told when nothing fails any more', (select string_agg(o.call_id, ' ' order by o.id) from push.outbox o where exists (
  select from push.deliveries d where d.outbox_id = o.id and d.kind = 'missed_call' and o.call_id in ('c-1', 'c-30', 'c-31', 'c-60'))),
  'c-1 c-30 c-31 c-60');
create trigger fail before insert on push.delivery for each row execute function test.fail();
update push.ends_unchecked set due_at = now();
do $$ begin for i in 1..20 loop perform push.run_job('check_ends'); end loop; end $$;
select test.follow();
select test.equal('or given up after four hours', format('%s, %s', (select count(*) from push.ends_unchecked),
    (select count(*) from push.deliveries where call_id like 'r-%' and kind = 'missed_call')), '0, 27');
-- The time limit counts for the whole statement. After it a run begins no more, and any run begins one.
create or replace function push.bite_time() returns interval language sql immutable parallel safe as $$ select interval '500 ms' $$;
delete from push.outbox;
select test.follow();
select pg_temp.late('t-' || i, case when i in (1, 8) then 'slow' else 'u' end) from generate_series(1, 12) i \g /dev/null
select 'select push.run_job(''miss'')' from generate_series(1, 12) \gexec
select 'select push.run_job(''check_ends'')' from generate_series(1, 2) \gexec
select test.equal('a call whose end takes too long stops no other one',
  format('%s; %s', pg_temp.states(), (select count(*) from push.ends_unchecked where tries = 1)),
  (select string_agg('t-' || i || case when i in (1, 8) then '' else ' told' end, ', ' order by i) || '; 2' from generate_series(1, 12) i));
create or replace function push.bite_time() returns interval language sql immutable parallel safe as $$ select interval '10 minutes' $$;
delete from push.ends_unchecked;
-- A lock is nobody's fault, nor is a statement that someone cancels.
delete from push.outbox;
select test.follow();
select pg_temp.late('h', 'held') \g /dev/null
do $$ begin perform push.miss(); exception when lock_not_available then null; end $$;
select test.follow();
select test.equal('an error that will pass puts no call aside',
  format('%s; %s', pg_temp.states(), (select count(*) from push.ends_unchecked)), 'h rings; 0');
delete from push.outbox;
select test.follow();
select pg_temp.late('m', 'full') \g /dev/null
do $$ begin perform push.miss(); exception when out_of_memory then null; end $$;
select test.follow();
select test.equal('nor do memory and locks that have run out',
  format('%s; %s', pg_temp.states(), (select count(*) from push.ends_unchecked)), 'm rings; 0');
-- A user who is named often.
delete from push.outbox;
select test.follow();
select push.register_device('often', 'ends', 'fcm', 'often-0123456789-0123456789-' || i) from generate_series(1, 500) i \g /dev/null
insert into push.outbox (app, payload, recipients, ring_seconds) values ('ends', '{"callId": "often", "from": "x"}',
  jsonb_build_array('ofte') || (select jsonb_agg('often'::text) from generate_series(1, 900)), 1);
select test.lapse('often') \g /dev/null
create function pg_temp.devices_read() returns bigint language sql as
  $$ select idx_tup_fetch from pg_stat_xact_user_tables where relid = 'push.devices'::regclass $$;
begin;
select coalesce(pg_temp.devices_read(), 0) as read_before \gset
select push.miss() \g /dev/null
select test.follow();
select test.equal('is looked up once', pg_temp.devices_read() - :read_before < 2000, true);
commit;
select test.equal('and told once', (select string_agg(user_id, ' ') from push.deliveries where call_id = 'often' and kind = 'missed_call'),
  'often');
delete from push.outbox;
select test.follow();
delete from push.history where lane in (select id from push.lane where app = 'ends');
drop trigger fail on push.delivery;
-- Calls whose end failed before wait for those that have not failed.
insert into push.ends_unchecked (outbox_id, tries, due_at) values (-1, 1, now() - interval '1 hour'), (-2, 0, now());
select push.check_ends(1) \g /dev/null
select test.follow();
select test.equal('what failed before comes last', (select string_agg(outbox_id::text, ' ') from push.ends_unchecked), '-1');
delete from push.ends_unchecked;
reset client_min_messages;
