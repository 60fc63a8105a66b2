-- Half an hour of a quiet evening: what the charts show. The same every time.
select setseed(0.7782);
select push.ensure_partitions();
insert into push.history (finished_at, outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, lane, kind,
  outcome, status, user_id, call_id, device, reason, provider_message_id)
select at, -i, at - ms * interval '1 ms', at + interval '1 minute', at - ms * 0.8 * interval '1 ms', at, 0, 1,
  lane, 0, outcome, case outcome when 4 then 410 when 3 then null else 200 end, 'resident-' || i, md5(i::text)::uuid::text,
  'c0ff…' || lpad(to_hex(i % 65536), 4, '0'), case outcome when 4 then 'Unregistered' when 3 then 'DeadlinePassed' end, 'm' || i
from (
  select i, now() - interval '30 minutes' * (1 - (i - 0.5) / 10800) as at,
    35 + 60 * random() + case when random() < 0.02 then 250 * random() else 0 end
      + case when i between 4600 and 5120 then 380 * random() else 0 end as ms,
    (select id from push.lane order by id offset i % 3 limit 1) as lane,
    case when i between 4600 and 5120 and random() < 0.06 then 3 when random() < 0.004 then 4 else 0 end as outcome
  from generate_series(1, 10800) i
  where random() < 0.75 + 0.25 * sin(i / 840.0)
) x;
