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
create function pg_temp.long() returns jsonb language sql as $$ select jsonb_agg(n) from (select '1e131071'::jsonb as n) x, generate_series(1,
  10000) $$;
select test.equal('a long number becomes no text', format('%s %s', cardinality(push.voip_tokens(jsonb_build_array(jsonb_build_object(
    'voipPushToken', pg_temp.long())))), push.recipient_data(jsonb_build_object('data', jsonb_build_object('a', pg_temp.long())))), '0 ');

-- The announcement of these calls fails, however often it is tried.
create function test.fail() returns trigger language plpgsql as $$
begin
  if new.kind = 2 and new.user_id like 'bad%' then
    raise program_limit_exceeded;
  elsif new.kind = 2 and new.user_id like 'slow%' then
    perform test.time_out();
  end if;
  return new;
end $$;
create trigger fail before insert on push.delivery for each row execute function test.fail();
delete from push.outbox;
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
update push.outbox set deadline_at = now() - interval '9 s' where call_id in ('c-2', 'c-3');
select test.equal('those seven seconds past their deadline', (select string_agg(value || ' ' || state, '') from push.health
  where item = 'calls past their deadline') ~ '^2, the oldest for 00:00:0[789] bad$', true);
alter table push.outbox enable trigger check_call;
select test.equal('all are missed', push.miss(), 60::bigint);
select clock_timestamp() as begun \gset
select test.follow();
select test.equal('calls whose end fails stop no other one', pg_temp.states(),
  (select string_agg('c-' || i || case when i in (1, 30, 31, 60) then '' else ' told' end, ', ' order by i) from generate_series(1, 60) i));
create function pg_temp.noted() returns text language sql as $$
  select string_agg(format('%s %s', coalesce(o.call_id, f.outbox_id::text), f.tries), ', ' order by f.outbox_id)
  from push.follow_ups f left join push.outbox o on o.id = f.outbox_id $$;
-- Whether all are tried again so long after what was begun.
create function pg_temp.later(p_begun timestamptz, p_wait interval) returns boolean language sql as $$
  select bool_and(f.due_at - p_wait between p_begun and clock_timestamp()) from push.follow_ups f $$;
select test.equal('they are tried again', pg_temp.noted(), 'c-1 1, c-30 1, c-31 1, c-60 1');
select test.equal('in a quarter of a second', pg_temp.later(:'begun', '250 ms'), true);
update push.follow_ups set due_at = now() + interval '1 hour';
select test.equal('and not before', push.follow_up(false) + push.follow_up(null), 0);
select test.equal('which health shows', (select string_agg(value || ' ' || state, '') from push.health where item = 'ends that failed'),
  'ends/c-1, ends/c-30, ends/c-31, ends/c-60 bad');
select test.equal('and push.timeline, with the time of the next try', (select string_agg(format('%s %s %s', event, attempt, at = (select f.due_at
    from push.follow_ups f join push.outbox o on o.id = f.outbox_id where o.call_id = 'c-1')), ', ')
  from push.timeline('c-1', 'ends') where event ~ 'fail'), 'end failed 1 t');
select test.equal('not of others', (select count(*) from push.timeline('c-2', 'ends') where event ~ 'fail'), 0::bigint);
savepoint patient;
select pg_temp.late('patient-' || i, case i when 1 then 'bad' else 'u' end) from generate_series(1, 2) i \g /dev/null
insert into push.follow_ups (outbox_id, why, is_urgent, due_at)
  select id, 'unheard', true, now() + interval '30 minutes' from push.outbox where call_id = 'patient-2';
select push.miss(), test.follow() \g /dev/null
select test.equal('what is to be done later is not done earlier because a call of the same run fails', (select string_agg(format('%s %s',
    f.tries, f.due_at - now()), ', ') from push.follow_ups f join push.outbox o on o.id = f.outbox_id where o.call_id = 'patient-2'),
  '0 00:30:00');
rollback to patient;
savepoint deleted;
delete from push.outbox where call_id like 'c-%';
select test.equal('none of a call that was deleted', (select string_agg(value || ' ' || state, '') from push.health
  where item = 'ends that failed'), 'none ok');
update push.follow_ups set due_at = now(); select test.follow();
select test.equal('whose note goes', pg_temp.noted(), null);
rollback to deleted;
update push.follow_ups set due_at = now();
select clock_timestamp() as begun \gset
select test.equal('by a job', push.run_job('follow_up_again')::text, 'true');
select test.equal('each time later', pg_temp.later(:'begun', '1 s') || ' ' || pg_temp.noted(), 'true c-1 2, c-30 2, c-31 2, c-60 2');
update push.follow_ups set tries = 30, due_at = now();
select clock_timestamp() as begun \gset
select test.follow();
select test.equal('up to half an hour', pg_temp.later(:'begun', '30 minutes'), true);
update push.follow_ups set due_at = now(), noted_at = now() - interval '241 minutes' where outbox_id in (select id from push.outbox
  where call_id in ('c-30', 'c-31')); select test.follow();
select test.equal('it is given up after four hours', pg_temp.noted(), 'c-1 31, c-60 31');
drop trigger fail on push.delivery;
update push.follow_ups set due_at = now(); select test.follow();
select test.equal('and told when nothing fails any more', coalesce(pg_temp.noted(), '') || (select string_agg(o.call_id, ' ' order by o.id)
  from push.outbox o where o.call_id in ('c-1', 'c-30', 'c-31', 'c-60') and exists (select from push.deliveries d where d.outbox_id = o.id
  and d.kind = 'missed_call')), 'c-1 c-60');
create trigger fail before insert on push.delivery for each row execute function test.fail();

-- Who ends many calls at once does not make others wait.
delete from push.outbox; select test.follow();
select pg_temp.late('many-' || i, 'u') from generate_series(1, 60) i \g /dev/null
select push.miss() \g /dev/null
select pg_temp.late('lone', 'u') \g /dev/null
select push.miss() \g /dev/null
select test.equal('a run takes the newest notes, too', format('%s %s', push.follow_up(false, 4), pg_temp.states() ~ 'lone told'), '4 t');
select test.equal('and the oldest', pg_temp.states() ~ 'many-1 told, many-2 told, many-3,', true);

-- The time limit counts for the whole statement, and only once: what was stopped is tried again one by one.
delete from push.outbox; select test.follow();
select pg_temp.late('t-' || i, case when i in (1, 8) then 'slow' else 'u' end) from generate_series(1, 12) i \g /dev/null
select push.miss() \g /dev/null
select push.follow_up(false) \g /dev/null
select test.equal('the run ends with it, and of its bite, the two oldest and the two newest, it is unknown which one took too long',
  pg_temp.noted(), (select string_agg(format('t-%s %s', i, case when i in (1, 2, 11, 12) then -1 else 0 end), ', ' order by i)
  from generate_series(1, 12) i));
select test.equal('and not shown', (select state from push.health where item = 'ends that failed') || (select count(*) from push.timeline('t-1',
  'ends')
  where event ~ 'fail'), 'ok0');
select pg_temp.late('v-1', 'u') \g /dev/null
select push.miss() \g /dev/null
select push.follow_up(false) \g /dev/null
select push.follow_up(false) \g /dev/null
select test.equal('a later one need not wait for them', pg_temp.states() ~ 'v-1 told$', true);
select 'select push.follow_up(false), push.run_job(''follow_up_again'')' from generate_series(1, 13) \gexec
select test.equal('a call whose end takes too long stops no other one',
  pg_temp.states() || '; ' || regexp_replace(pg_temp.noted(), ' [1-9]\d*', '', 'g'),
  (select string_agg('t-' || i || case when i in (1, 8) then '' else ' told' end, ', ' order by i) || ', v-1 told; t-1, t-8'
  from generate_series(1, 12) i));
delete from push.follow_ups;

-- All notes of a call are one piece of work, and fail together.
delete from push.outbox; select test.follow();
select pg_temp.late('crowd', 'slow'), pg_temp.late('beside', 'u') \g /dev/null
select push.miss() \g /dev/null
insert into push.follow_ups (outbox_id, why) select id, 'ended' from push.outbox, generate_series(1, 99) where call_id = 'crowd';
select push.follow_up(false) \g /dev/null
create function pg_temp.noted_by_call() returns text language sql as $$
  select string_agg(concat_ws(' ', call_id, tries, count), ', ' order by call_id, tries) from (select o.call_id, f.tries, count(*)
  from push.follow_ups f join push.outbox o on o.id = f.outbox_id group by 1, 2) x $$;
select test.equal('after a bite that took too long', pg_temp.noted_by_call(), 'beside -1 1, crowd -1 100');
select push.run_job('follow_up_again') from generate_series(1, 2) \g /dev/null
select test.equal('two runs are enough for another call, whatever the number of notes', format('%s %s', pg_temp.states() ~ 'beside told',
  pg_temp.noted_by_call()), 't crowd 1 100');
select pg_temp.late('after', 'u') \g /dev/null
select push.miss() \g /dev/null
update push.follow_ups f set tries = case o.call_id when 'crowd' then 5 else -1 end, due_at = now(), noted_at = now() - interval '241 minutes'
  from push.outbox o where o.id = f.outbox_id;
select push.run_job('follow_up_again') from generate_series(1, 2) \g /dev/null
select test.equal('all its notes are given up together, and another call waits for none of them', format('%s %s', pg_temp.states() ~ 'after told',
  pg_temp.noted_by_call()), 't ');
delete from push.follow_ups;

-- Large calls end a few at a time: a run does two of the oldest and two of the newest, and begins no more when its time is over.
delete from push.outbox; select test.follow();
select pg_temp.late('l-' || i, 'u') from generate_series(1, 12) i \g /dev/null
select push.miss() \g /dev/null
select test.set_limit('push.follow_up', '1 hour', '-1 s');
select test.equal('there is more to do', push.follow_up(false, 20), 20);
select test.equal('for the next run', pg_temp.states(), (select string_agg('l-' || i || case when i in (1, 2, 11, 12) then ' told' else '' end,
  ', ' order by i) from generate_series(1, 12) i));
select test.follow();
select test.equal('which does the rest', pg_temp.states(), (select string_agg('l-' || i || ' told', ', ' order by i) from generate_series(1, 12) i));
select test.set_limit('push.follow_up', '-1 s', '1 hour');

-- A user who is named often.
delete from push.outbox;
select push.register_device('often', 'ends', 'fcm', 'often-0123456789-0123456789-' || i) from generate_series(1, 500) i \g /dev/null
insert into push.outbox (app, payload, recipients, ring_seconds) values ('ends', '{"callId": "often", "from": "x"}',
  jsonb_build_array('ofte') || (select jsonb_agg('often'::text) from generate_series(1, 900)), 1);
select test.lapse('often') \g /dev/null
create function pg_temp.devices_read() returns bigint language sql as
  $$ select idx_tup_fetch from pg_stat_xact_user_tables where relid = 'push.devices'::regclass $$;
select push.miss() \g /dev/null
select coalesce(pg_temp.devices_read(), 0) as read_before \gset
select test.follow();
select test.equal('is looked up once', pg_temp.devices_read() - :read_before < 2000, true);
select test.equal('and told once', (select string_agg(user_id, ' ') from push.deliveries where call_id = 'often' and kind = 'missed_call'),
  'often');
delete from push.outbox;
delete from push.history where lane in (select id from push.lane where app = 'ends');
drop trigger fail on push.delivery;
reset client_min_messages;
