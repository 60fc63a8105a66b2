-- Functions of the dashboard: the last minutes, the overview, a call's timeline, and the audit of interventions.
set local application_name = 'sql tests';
select push.register_lane('default', 'fcm'), push.register_lane('dash', 'fcm');
select push.register_gateway('one', '1') as g1 \gset

-- The minutes. History of other tests has been rolled back with them.
create function pg_temp.finish(p_minutes_ago int, p_ms int, p_outcome int, p_count int default 1, p_kind int default 0) returns void language sql
  as $$
  insert into push.history (finished_at, outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, lane, kind, outcome, user_id, device,
    reason)
  select at, 0, at - p_ms * interval '1 ms', at, at, at, i, 1, (select id from push.lane where app = 'dash'), p_kind, p_outcome, 'u', 'x', case
    when p_outcome > 1 then 'r' end
  from (select date_trunc('minute', now()) - p_minutes_ago * interval '1 minute' + interval '1 s' as at) a, generate_series(1, p_count) i $$;
select push.ensure_partitions();
select test.equal('without invites there is the total alone', (select string_agg(concat_ws(' ', coalesce(minute::text, 'all'), invites, p50_ms), ',')
  from push.minutes(now() - interval '30 minutes')), 'all 0');
select pg_temp.finish(3, 100, 0, 99), pg_temp.finish(3, 900, 1), pg_temp.finish(3, 100, 2, 5), pg_temp.finish(3, 1, 0, 7, 1),
  pg_temp.finish(1, 50, 0), pg_temp.finish(1, 1, 3), pg_temp.finish(1, 1, 4, 2), pg_temp.finish(40, 5000, 4, 10);
create function pg_temp.minutes(p_minutes int) returns text language sql as $$
  select string_agg(concat_ws(' ', coalesce((extract(epoch from date_trunc('minute', now()) - minute) / 60)::int::text, 'all'), invites, delivered,
    late, expired, dead,
    round(p50_ms::numeric), round(p99_ms::numeric)), ', ' order by minute nulls last)
      from push.minutes(date_trunc('minute', now()) - p_minutes * interval '1 minute') $$;
select test.equal('by minute and altogether: cancels, void ones and older ones do not count', pg_temp.minutes(30),
  '3 100 99 1 0 0 100 108, 1 4 1 0 1 2 50 50, all 104 100 1 1 2 100 100');
select test.equal('a minute of failures has no time to ring', (select p99_ms from push.minutes(now() - interval '50 minutes') order by minute
  limit 1), null::float8);
create function pg_temp.plan(p_statement text) returns text language plpgsql as $$
declare v_line text; v_plan text := ''; begin for v_line in execute 'explain ' || p_statement loop v_plan := v_plan || v_line
  || E'\n'; end loop; return v_plan; end $$;
set local enable_seqscan = off;
select test.equal('the minutes are found by their index', pg_temp.plan($$select from push.history h
  where h.finished_at >= now() - interval '5 minutes' and h.kind = 0 and h.outcome <> 2$$) ~ 'Bitmap Index Scan on history_[0-9]+_finished_at_idx',
  true);
set local enable_seqscan = on;

-- The overview.
select test.call('dash-1', 2, 'dash') as outbox \gset
select test.equal('the overview has all its parts', (select string_agg(k, ' ' order by k) from jsonb_object_keys(push.overview()) k),
  'audit failures health lanes now recent replicas stuck');
select test.equal('a lane as it is', (select concat_ws(' ', l ->> 'ready', l ->> 'paused', l ->> 'circuit')
  from jsonb_array_elements(push.overview() -> 'lanes') l where l ->> 'app' = 'dash'), '2 false');
select test.equal('so many, and no more', jsonb_array_length(push.overview(1) -> 'failures'), 1);
-- Equal rows are one, and an invite with more time left comes before what is no ring.
update push.delivery set created_at = now() - interval '9 s', due_at = now() - interval '9 s' where outbox_id = :outbox;
insert into push.delivery (outbox_id, n, kind, state, deadline_at, created_at, due_at, lane, ready_lane, user_id, token, environment, platform)
  select d.outbox_id, 10 + i, 2, 0, now() + interval '1 s', now() - interval '1 hour', now() - interval '1 hour', d.lane, d.lane, 'u' || i,
    'missed-' || d.token, 0, 2
  from push.delivery d, generate_series(1, 12) i where d.outbox_id = :outbox and d.n = 0;
create function pg_temp.stuck(p_max int) returns text language sql as $$
  select string_agg(concat_ws(' ', s ->> 'kind', s ->> 'count', s ->> 'callId', (s ->> 'ageMs')::int >= 9000), ', ' order by i)
    from jsonb_array_elements(push.overview(p_max) -> 'stuck') with ordinality x(s, i) where s ->> 'app' = 'dash' $$;
select test.equal('what is stuck: equal rows as one, invites before the rest', pg_temp.stuck(50),
  'invite 2 dash-1 t, missed_call 12 dash-1 t');
select test.equal('so a limit never hides an invite behind missed calls', pg_temp.stuck(1), 'invite 2 dash-1 t');
delete from push.delivery where outbox_id = :outbox and n > 9;
select test.equal('the last five minutes by outcome and reason, without cancels and void ones',
  (select string_agg(concat_ws(' ', r ->> 'app', r ->> 'outcome', r ->> 'reason', r ->> 'count'), ', ' order by r ->> 'outcome')
  from jsonb_array_elements(push.overview() -> 'recent') r where r ->> 'app' = 'dash'),
  'dash dead r 2, dash delivered 100, dash delivered_late 1, dash expired r 1');
select test.equal('no part is null', (select count(*) from jsonb_each(push.overview()) e where e.value = 'null'), 0::bigint);

-- A call's timeline.
select test.equal('no call of this id', push.calls('dash-none'), '[]'::jsonb);
select test.call('dash-1', 1, 'default') as other \gset
select test.equal('the calls of an id in all apps', (select string_agg(c ->> 'app', ' ' order by c ->> 'app')
  from jsonb_array_elements(push.calls('dash-1')) c), 'dash default');
select test.equal('each with its own timeline', (select string_agg(format('%s:%s', c ->> 'app', jsonb_array_length(c -> 'timeline')), ' '
  order by c ->> 'app') from jsonb_array_elements(push.calls('dash-1')) c), 'dash:3 default:2');
select test.equal('tokens are masked everywhere', (push.calls('dash-1')::text || push.overview()::text) ~ 'test-token-0123456789', false);

-- The audit of interventions.
select changed from push.pause_lane('dash', 'fcm', 'the pause');
select test.equal('the program is in the audit', (select concat_ws(' ', action, target, via, detail ->> 'note') from push.audit order by id desc
  limit 1), 'pause_lane dash/fcm sql tests the pause');
select test.equal('a lane goes on', (select message from push.resume_lane('dash', 'fcm', 'the end of it')), 'dash/fcm sends again');
select test.equal('why it went on is in the audit', (select concat_ws(' ', action, detail ->> 'note') from push.audit order by id desc limit 1),
  'resume_lane the end of it');
select test.equal('and not at the lane', (select note from push.lanes where app = 'dash'), null::text);
select test.equal('without a reason as before', (select concat_ws(' ', r.changed, r.message) from push.resume_lane('dash', 'fcm') r),
  'f dash/fcm was not paused; nothing to do');
select test.equal('the overview tells it', (select string_agg(concat_ws(' ', a ->> 'action', a ->> 'via', a ->> 'note'), ', ')
  from jsonb_array_elements(push.overview() -> 'audit') a where a ->> 'target' = 'dash/fcm'),
  'resume_lane sql tests, resume_lane sql tests the end of it, pause_lane sql tests the pause');


-- The operator for whom the dashboard acted.
select test.equal('a lane is paused on behalf of an operator', (select concat_ws(' ', changed, message)
  from push.operate_lane('alice', 'dash', 'fcm', true, 'her pause')),
  't dash/fcm is paused: its deliveries wait, and expire at their deadlines. Note: her pause');
select test.equal('and resumed', (select message from push.operate_lane(repeat('b', 200), 'dash', 'fcm', false, 'his end')), 'dash/fcm sends again');
select test.equal('the audit names the operator',
  (select string_agg(concat_ws(' ', action, left(operator, 5), length(operator), detail ->> 'note'), ', '
  order by id) from push.audit where operator is not null), 'pause_lane alice 5 her pause, resume_lane bbbbb 128 his end');
select test.equal('so does the overview', push.overview() -> 'audit' -> 1 ->> 'operator', 'alice');
select test.equal('an intervention in SQL has no operator',
  (select count(*) from push.audit where action in ('pause_lane', 'resume_lane') and operator is null and target = 'dash/fcm'), 3::bigint);
select test.equal('a call is tried again on behalf of an operator', push.operate_call('alice', 'dash', 'dash-1', 'requeue', 'her try'),
  'call dash-1: nothing to requeue: no invite of a living token has failed or is waiting');
select test.equal('and ended', push.operate_call(repeat('b', 200), 'dash', 'dash-1', 'void', repeat('n', 600)) ~
  '^call dash-1 was ended \(voided\): 2 invites', true);
select test.equal('it has ended', (select state || ' ' || end_reason from push.outbox where call_id = 'dash-1' and app = 'dash'), 'ended voided');
select test.equal('the call of another app goes on', (select state from push.outbox where call_id = 'dash-1' and app = 'default'), 'ringing');
select test.equal('the audit has the operators and their notes', (select string_agg(concat_ws(' ', action, target, left(operator, 5),
  length(operator), left(detail ->> 'note', 7), length(detail ->> 'note'), detail ->> 'done'), ', ' order by id)
  from push.audit where action in ('requeue', 'void_call')),
  'requeue dash/dash-1 alice 5 her try 7, void_call dash/dash-1 bbbbb 128 nnnnnnn 500 true');
select test.equal('only the service may pass an operator', (select string_agg(r || ' ' || f, ', ') from
  unnest('{push_enqueuer,push_ops,push_gateway}'::text[]) r, unnest('{"operate_lane(text, text, text, boolean, text)",
  "operate_call(text, text, text, text, text)"}'::text[]) f where has_function_privilege(r, 'push.' || f, 'execute')),
  'push_gateway operate_lane(text, text, text, boolean, text), push_gateway operate_call(text, text, text, text, text)');

-- Rights.
select test.equal('the rights may be given again', push.grant_roles(),
  'push_enqueuer, push_tenant, push_ops, push_keys and push_gateway have their rights');
select test.equal('the service has the rights of push_ops', pg_has_role('push_gateway', 'push_ops', 'member'), true);
