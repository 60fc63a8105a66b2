-- Ends and counts in SQL are noted once for the metrics, and taken once.
create function pg_temp.notes() returns text language sql as $$
  select coalesce(string_agg(concat_ws(' ', what, app, provider, kind, outcome, reason, untried, count), ', '
    order by what, reason, kind, untried), '') from push.take_tally() $$;
-- The ring window of a call is over.
create function pg_temp.lapse(p_id bigint) returns void language plpgsql set session_replication_role = replica as $$
begin
  update push.outbox set deadline_at = now() - interval '2 s', created_at = created_at - interval '3 s' where id = p_id;
end $$;
select push.register_gateway('tally', '1') as g \gset
select pg_temp.notes() \g /dev/null
select test.call('t1', 3, 'tally') as t1, test.call('t2', 2, 'tally') as t2 \gset
select test.equal('calls are counted as they are enqueued', pg_temp.notes(), 'enqueued tally f 2');
select test.equal('taken rows are deleted', pg_temp.notes(), '');

-- Void: one that was tried, two that were not.
select test.claim(:g, 1, 'tally');
select push.park(:g, array[outbox_id], array[n], array[lease], array[1], array[20000], array['Unavailable']) from push.delivery where state = 1;
select push.end_call('t1', 'declined', 'tally'); select test.follow();
select test.equal('the invites of an ended call are noted by whether they were tried', pg_temp.notes(),
  'ended tally fcm 0 2 CallEnded f 1, ended tally fcm 0 2 CallEnded t 2');
select push.end_call('t1', 'declined', 'tally');
select test.equal('ending it twice is noted once', pg_temp.notes(), '');

-- Expired, and missed.
update push.delivery set deadline_at = now() - interval '1 s' where outbox_id = :t2;
select push.expire();
select test.equal('so are expired deliveries', pg_temp.notes(), 'ended tally fcm 0 3 DeadlinePassed t 2');
select pg_temp.lapse(:t2);
select push.miss(); select test.follow();
select test.equal('missed calls are noted with their cause', pg_temp.notes(), 'missed tally deadline f 2');
select test.call('t3', 1, 'tally') as t3 \gset
select push.end_call('t3', 'ended', 'tally'); select test.follow();
select test.equal('whatever the cause', pg_temp.notes(),
  'ended tally fcm 0 2 CallEnded t 1, enqueued tally f 1, missed tally ended f 1');
insert into push.outbox (app, kind, payload, recipients) values ('tally', 'message', '{"chatId": "c", "from": "x"}', '[]');
select test.equal('a notification is no call', pg_temp.notes(), '');

-- Rings.
select test.call('t4', 1, 'tally') as t4 \gset
select pg_temp.notes() \g /dev/null
select pg_temp.lapse(:t4);
select push.report_ringing('t4', (select user_id from push.delivery where outbox_id = :t4), 'tally');
select push.report_ringing('t4', (select user_id from push.delivery where outbox_id = :t4), 'tally');
select test.equal('the first report of a user is noted, with the time it took',
  (select string_agg(format('%s %s %s', what, count, seconds between 2 and extract(epoch from clock_timestamp() - o.created_at)), ', ')
  from push.take_tally(), push.outbox o where o.id = :t4), 'rang 1 t');

-- Tokens.
select id as lane from push.lane where app = 'tally' and provider = 'fcm' \gset
select push.invalidate_tokens(array[:lane, :lane]::smallint[], array['dead-one', 'dead-two'], array[null, null]::timestamptz[],
  array['UNREGISTERED', 'UNREGISTERED']);
select push.invalidate_tokens(array[:lane]::smallint[], array['dead-one'], array[null]::timestamptz[], array['UNREGISTERED']);
select test.equal('dead tokens are noted when they are new', pg_temp.notes(), 'invalidated tally fcm f 2');
select push.hold_invalidation(:lane::smallint, interval '1 minute', 'test');
select test.equal('a hold moves them', pg_temp.notes(), 'quarantined tally fcm f 2');

-- Settled.
select test.claim(:g, 1, 'tally');
select outbox_id as o, n, lease from push.delivery where owner = :g \gset
select push.settle(:g, null, array[:o::bigint], array[:n], array[:lease], array[1], array[0::smallint], array[200::smallint], array[null]::text[],
  array['m'], array['c'], array[now()], array[now()]);
select test.equal('history names the gateway that settled',
  (select string_agg(outbox_id || '/' || n, ',') from push.settled(:g, array[:o::bigint, :o::bigint], array[:n, 99])), :'o' || '/' || :'n');
select test.equal('nor one with the same numbers that was made at another time', (select count(*)::int from push.settled(:g, array[:o::bigint],
  array[:n], array[clock_timestamp()])), 0);
select test.equal('and not another one', (select count(*)::int from push.settled(:g + 1, array[:o::bigint], array[:n])), 0);
select test.equal('a settlement is no note of SQL', pg_temp.notes(), '');

-- Gauges.
select test.call('t5', 3, 'seen');
select test.equal('owed deliveries are counted by lane, kind and state',
  (select string_agg(format('%s %s %s %s %s', what, provider, kind, state, case what when 'oldest_ready' then value between 0
    and extract(epoch from clock_timestamp() - now()) else value > 0 end), ', ' order by what) from push.observe() where app = 'seen'),
  'held fcm   f, oldest_ready fcm 0 0 t, paused fcm   f, pending fcm 0 0 t');
select test.equal('the replicas that live are', (select value from push.observe() where what = 'replicas_alive'),
  (select count(*)::double precision from push.gateways where alive));
