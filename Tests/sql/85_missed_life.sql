-- The lifetime of a missed call starts at the end of the call, that of a notification when it is enqueued, whenever they are
-- processed.

-- Moves the end of a call's ring window back by this time.
create function pg_temp.lapse(p_call text, p_ago interval) returns void language plpgsql set session_replication_role = replica as $$
begin
  update push.outbox set created_at = now() - p_ago - interval '1 minute', deadline_at = now() - p_ago where call_id = p_call;
end $$;
create function pg_temp.owed(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s', kind, user_id), ' ' order by n) from push.deliveries where call_id = p_call $$;
create function pg_temp.past(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s:%s', kind, user_id, outcome, reason), ' ' order by n) from push.delivery_history where call_id = p_call $$;
-- The lifetime of the missed call in minutes, from now on: from when these tests began, as does pg_temp.lapse.
create function pg_temp.minutes_left(p_call text) returns int language sql as $$
  select round(extract(epoch from deadline_at - now()) / 60)::int from push.deliveries where call_id = p_call and kind = 'missed_call' $$;
select push.take_tally() \g /dev/null

select test.call('on-time', 1, 'life');
select test.call('in-time', 1, 'life');
select pg_temp.lapse('on-time', '2 s');
-- In one statement, which has one time for both.
create function pg_temp.miss() returns bigint language plpgsql set session_replication_role = replica as $$
begin
  update push.outbox set deadline_at = statement_timestamp() - interval '1 s' where call_id = 'in-time';
  set local session_replication_role = origin;
  return push.miss();
end $$;
select test.equal('a call whose ring window ended two seconds ago is missed', pg_temp.miss(), 1::bigint); select test.follow();
select test.equal('one that ended a moment ago may still be answered', push.answer_call('in-time', 'u1', 'life'), true); select test.follow();
select test.equal('and then nobody has missed it', coalesce(pg_temp.owed('in-time'), '') ~ 'missed_call', false);
select test.equal('and worth telling for four hours', pg_temp.minutes_left('on-time'), 240);
select test.call('hour', 1, 'life');
select pg_temp.lapse('hour', '1 hour');
select test.equal('found an hour later, too', push.miss(), 1::bigint); select test.follow();
select test.equal('and worth telling for three hours more', pg_temp.minutes_left('hour'), 180);
select test.call('ended', 1, 'life');
select push.end_call('ended', app => 'life'); select test.follow();
select test.equal('a call that is ended while it rings: four hours from its end', (select d.deadline_at - o.ended_at from push.deliveries d
  join push.outbox o on o.id = d.outbox_id where o.call_id = 'ended' and d.kind = 'missed_call'), '4 hours'::interval);
select test.call('late-end', 1, 'life');
select pg_temp.lapse('late-end', '3 hours');
select push.end_call('late-end', app => 'life'); select test.follow();
select test.equal('a call ended after its ring window', pg_temp.minutes_left('late-end'), 60);

delete from push.delivery;
select push.take_tally() \g /dev/null
select test.call('old', 2, 'life');
delete from push.delivery;
select pg_temp.lapse('old', '3 days');
select test.equal('a call of days ago', push.miss(), 1::bigint); select test.follow();
select test.equal('becomes missed', (select state from push.outbox where call_id = 'old'), 'missed');
select push.expire();
select test.equal('but no missed call is sent any more', pg_temp.owed('old'), null);
select test.equal('and history shows it for each user', pg_temp.past('old'),
  'missed_call:u1:expired:DeadlinePassed missed_call:u2:expired:DeadlinePassed');
select test.equal('metrics count it as expired, not as announced',
  (select string_agg(concat_ws(' ', what, provider, kind, outcome, reason, untried, count), ', ')
  from push.take_tally() where what <> 'enqueued'), 'ended fcm 2 3 DeadlinePassed t 2');
select test.call('old-end', 1, 'life');
delete from push.delivery;
select pg_temp.lapse('old-end', '4 hours');
select push.end_call('old-end', app => 'life');
select test.follow(), push.expire();
select test.equal('ended by its backend days later: the same', coalesce(pg_temp.owed('old-end'), '') || pg_temp.past('old-end'),
  'missed_call:u1:expired:DeadlinePassed');
select test.equal('the timeline tells it', (select string_agg(event || ' ' || kind, ', ') from push.timeline('old-end', 'life')
  where event <> 'skipped'), 'enqueued incoming_call, expired missed_call');

insert into push.outbox (app, kind, payload, recipients, ring_seconds)
  values ('life', 'message', '{"callId": "note", "chatId": "c", "from": "x"}', '[{"userId": "u", "fcmToken": "life-token-0123456789"}]', 600);
select test.equal('a notification lives for its ring_seconds from when it was enqueued',
  (select d.deadline_at - o.created_at from push.deliveries d join push.outbox o on o.id = d.outbox_id where o.call_id = 'note'),
  interval '10 minutes');
