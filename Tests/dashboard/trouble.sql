-- Forty more apps of the replica, some of them in trouble. The times of their pushes are ahead, so that they are among the last five minutes
-- however long the test takes.
select max(g.id) as id from push.gateways g where g.alive \gset
select count(push.register_lane('building' || lpad(i::text, 2, '0'), p)) from generate_series(1, 40) i, unnest('{apns,fcm,expo}'::text[]) p;
select push.report_lanes(:id, array_agg(l.id), array_agg(100), array_agg(100), array_agg(0),
    array_agg(case l.app || l.provider when 'building05expo' then 'open' else 'closed' end),
    array_agg(case l.app || l.provider when 'building09apns' then 3900000 else 0 end), array_agg(1))
  from push.lane l where l.app ~ '^building';
insert into push.history (finished_at, outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, lane, kind, outcome, status,
  user_id, device, reason)
select t.at, -i, t.at, t.at + interval '1 minute', t.at, t.at, 0, 1, l.id, 0, case when f.failed then 4 else 0 end,
  case when f.failed then 404 else 200 end, 'resident-' || i, 'demo…' || lpad(i::text, 4, '0'), case when f.failed then 'UNREGISTERED' end
from generate_series(1, 103) i
cross join (select now() + interval '20 minutes' as at) t
cross join lateral (select i <= 8 or i > 98 as failed) f
join push.lane l on l.app = 'building' || case when i <= 8 then '17' else '21' end and l.provider = 'fcm';
