-- 183 invites that expire soon, and missed calls with hours left, which are older.
select sum(e.deliveries) from generate_series(1, 183) i cross join lateral push.enqueue_call(
  jsonb_build_object('callId', 'stuck-' || i, 'from', 'doorman-7'),
  jsonb_build_array(jsonb_build_object('userId', 'resident-' || i, 'fcmToken', 'stuck_fcm_token_of_' || i || ':APA91b')),
  'building30', 600) e;
update push.delivery d set created_at = now() - interval '9 s', due_at = now() - interval '9 s'
  from push.lane l where l.id = d.lane and l.app = 'building30';
insert into push.delivery (outbox_id, n, kind, state, deadline_at, created_at, due_at, lane, ready_lane, user_id, token, environment, platform)
select d.outbox_id, 100 + i, 2, 0, now() + interval '4 hours', now() - interval '1 hour', now() - interval '1 hour', d.lane, d.lane,
  'missed-' || i, 'missed_fcm_token_of_' || i || ':APA91b', 0, 2
from (select d.* from push.delivery d join push.lane l on l.id = d.lane where l.app = 'building30' order by d.outbox_id limit 1) d,
  generate_series(1, 12) i;
