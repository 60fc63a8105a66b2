-- The number of owed deliveries: exact while there are few, an estimate for many; a backlog never hides a call.
delete from push.outbox; truncate push.delivery;  -- Truncated: the estimate looks at what is left of earlier tests, too.
select push.register_lane('log', 'fcm') as lane, push.register_lane('log', 'expo') as expo, push.register_gateway('one', '1') as g \gset
-- Adds this number of deliveries of a kind, with this lifetime.
create function pg_temp.owe(p_kind int, p_count int, p_left interval, p_lane int) returns void language sql as $$
  insert into push.delivery (outbox_id, n, created_at, deadline_at, lane, ready_lane, kind, user_id, token)
  select 1000 * p_kind + g / 100, g % 100, now() - interval '7 s', now() + p_left + g * interval '1 us', p_lane, p_lane, p_kind, 'u',
    'log-token-0123456789'
  from generate_series(1, p_count) g $$;
create function pg_temp.told(p_most int, p_past boolean default true) returns text language sql as $$
  select string_agg(format('%s%s:%s', kind, state, count), ' ' order by kind, state) from (
    select kind, state, sum(count) as count from push.count_owed(p_most, p_past) d join push.lane l on l.id = d.lane where l.app = 'log'
      and l.provider = 'fcm' group by 1, 2) x $$;
select pg_temp.owe(3, 3217, '1 hour', :lane), pg_temp.owe(0, 12, '1 minute', :lane), pg_temp.owe(2, 9, '2 hours', :expo);
update push.delivery set state = 1, owner = :g where lane = :lane and kind = 0 and n < 4;
update push.delivery set state = 2, ready_lane = null, due_at = now() + interval '1 s' where lane = :lane and kind = 0 and n between 4 and 6;
select test.equal('below the bound all is counted', pg_temp.told(1000000), '00:6 01:3 02:3 30:3217');
select test.equal('above the limit the backlog is estimated and rounded; calls are counted', pg_temp.told(20), '00:6 01:3 02:3 30:3220');
select test.equal('the oldest and the first deadline are returned', (select bool_and(now() - oldest between '7 s' and '8 s'
  and first_deadline - now() between '1 hour' and '61 minutes') from push.count_owed(20) where kind = 3), true);
select test.equal('and the owners of claimed deliveries are shown',
  (select string_agg(owner || ':' || count, ' ') from push.count_owed(20) where state = 1),
  :g || ':3');
select test.equal('metrics see the same', (select string_agg(format('%s%s:%s', kind, state, value), ' ' order by kind, state) from push.observe()
  where what = 'pending' and app = 'log' and provider = 'fcm'), '00:6 01:3 02:3 30:3220');
select test.equal('lanes too', (select format('%s %s %s', ready, waiting, claimed) from push.lanes where id = :lane), '3223 3 3');
select test.equal('and the summary', (select string_agg(format('%s %s %s', kind, state, count), ', ' order by kind, state) from push.summary
  where app = 'log' and provider = 'expo'), 'missed_call ready 9');
select test.equal('and replicas', (select claimed from push.replicas where id = :g), 3::bigint);
update push.delivery set deadline_at = now() - interval '1 minute', due_at = now() - interval '1 minute' where kind = 0;
select test.equal('deliveries past their deadline are shown to operators', pg_temp.told(1000000), '00:6 01:3 02:3 30:3217');
select test.equal('and not to metrics: it is about to be written down',
  (select count(*) from push.observe() where what = 'pending' and app = 'log' and kind = 0), 0::bigint);
update push.delivery set crashes = 2, ready_lane = null, state = 0, owner = null where kind = 0 and state = 1;
select test.equal('suspects are counted once', pg_temp.told(1000000), '00:9 02:3 30:3217');

insert into push.receipt_batch (sent_at, due_at, give_up_at, attempts, app, ticket, outbox_id, n, user_id, token)
  select now(), now() + interval '1 minute', now() + interval '1 day', case when b = 60 then 4 else 0 end, 'log', array_agg('t' || k), array_agg(k),
    array_agg(k::int), array_agg('u'::text), array_agg('t'::text)
  from generate_series(1, 60) b, generate_series(1, 10) k group by b;
select test.equal('tickets are counted, by the batch', (select string_agg(what || ' ' || value, ', ' order by what) from push.observe()
  where app = 'log' and what like 'receipts%'), 'receipts_overdue 10, receipts_pending 600');
