-- A fortnight of history for scripts/bench-ops.sh. Variable: rows.
--
-- Three deliveries for each call, with ids and times rising together. A fortieth were finished in the last hour, a busy one
-- in which 30 % failed.
\set ON_ERROR_STOP on
\timing off
set timezone = 'UTC';
set synchronous_commit = off;
set session_replication_role = replica;

-- The same partitions as push.ensure_partitions makes, for past days.
select format('create table push.%I partition of push.history for values from (%L) to (%L)',
    'history_' || to_char(d, 'YYYYMMDD'), d, d + interval '1 day')
  from generate_series(date_trunc('day', now()) - interval '14 days', date_trunc('day', now()), interval '1 day') d
  where to_regclass('push.history_' || to_char(d, 'YYYYMMDD')) is null \gexec

select push.register_lane('app-' || a, p), push.register_app('app-' || a, 60)
  from generate_series(0, 7) a, unnest('{apns,fcm,expo}'::text[]) p;
create schema bench;
create table bench.lane as select id, substr(app, 5)::int as app, array_position('{apns,fcm,expo}', provider) - 1 as rank from push.lane;
create table bench.call as
  select i as id, md5(i::text)::uuid::text as call_id, (i % 8)::int as app,
    -- Whether it belongs to the last hour.
    i > :rows / 3 - :rows / 120 as is_recent,
    case when i > :rows / 3 - :rows / 120
      then now() - interval '59 minutes' * (:rows / 3.0 - i) / (:rows / 120.0) - interval '30 s'
      else now() - interval '1 hour' - interval '334 hours' * (1 - i / (:rows / 3.0 - :rows / 120.0)) end as created_at
  from generate_series(1, :rows / 3) i;
analyze bench.call;

insert into push.outbox (id, app, kind, call_id, payload, recipients, ring_seconds, state, created_at, deadline_at,
  answered_by, ended_at, end_reason)
overriding system value
select c.id, 'app-' || c.app, 'incoming_call', c.call_id,
  jsonb_build_object('callId', c.call_id, 'from', 'door-' || c.id % 500, 'fromName', 'Portaria', 'apartmentNumber', c.id % 900,
    'buildingName', 'Torre Norte', 'metadata', jsonb_build_object('schemaVersion', 1)),
  jsonb_build_array('user-' || c.id % 100000, 'user-' || (c.id + 1) % 100000),
  60, s.state, c.created_at, c.created_at + interval '60 s',
  case when s.state = 'answered' then 'user-' || c.id % 100000 end, c.created_at + interval '20 s', s.state
from bench.call c cross join lateral (
  select case c.id % 3 when 0 then 'answered' when 1 then 'missed' else 'ended' end as state) s;
select setval(pg_get_serial_sequence('push.outbox', 'id'), :rows / 3 + 1000);

-- Two invites for each call, and a cancel, a missed call or a third invite.
insert into push.history (finished_at, outbox_id, created_at, deadline_at, sent_at, answered_at, n, attempts, owner, lane,
  kind, outcome, status, user_id, call_id, device, reason, provider_message_id, failures)
select c.created_at + h.took, c.id, c.created_at, c.created_at + interval '60 s',
  case when h.outcome in (0, 1, 4) then c.created_at + interval '4 ms' end,
  case when h.outcome in (0, 1, 4) then c.created_at + h.took end,
  case when k = 2 and c.id % 3 < 2 then 10000 * (1 + c.id % 3) else k end,
  case when h.outcome = 3 then 5 else 1 end, 1 + c.id % 3, l.id,
  case when k = 2 and c.id % 3 < 2 then 1 + c.id % 3 else 0 end,
  h.outcome, case h.outcome when 0 then 200 when 4 then 410 when 3 then 503 end,
  'user-' || (c.id + k % 2) % 100000, c.call_id, substr(md5((c.id + k)::text), 1, 4) || '…' || substr(md5((c.id + k)::text), 5, 4),
  case h.outcome when 4 then (array[
      array['Unregistered', 'BadDeviceToken', 'ExpiredToken'], array['UNREGISTERED', 'SENDER_ID_MISMATCH', 'INVALID_ARGUMENT'],
      array['DeviceNotRegistered', 'MismatchSenderId', 'InvalidCredentials']])[l.rank + 1][1 + h.dice % 3]
    when 3 then (array['DeadlinePassed', 'UNAVAILABLE', 'TooManyRequests'])[1 + h.dice % 3]
    when 2 then (array['CallAnswered', 'CallEnded'])[1 + h.dice % 2] end,
  case when h.outcome <= 1 then md5((3 * c.id + k)::text)::uuid::text end,
  case when h.dice % 50 = 0 then '[{"at": "2026-01-01T00:00:00.000Z", "attempt": 1, "status": 503, "reason": "UNAVAILABLE"}]'::jsonb end
from bench.call c
cross join generate_series(0, 2) k
join bench.lane l on l.app = c.app and l.rank = k
cross join lateral (select abs(hashint8(3 * c.id + k)) % 1000 as dice) d
cross join lateral (
  select case when d.dice >= case when c.is_recent then 300 else 60 end then 0 when d.dice % 4 = 0 then 3
    when d.dice % 4 = 1 then 2 when d.dice = 6 then 1 else 4 end::smallint as outcome
) o
cross join lateral (
  select d.dice, o.outcome, case o.outcome when 3 then interval '25 s' else interval '20 ms' * (1 + d.dice % 5) end as took
) h;

insert into push.devices (user_id, app, provider, token, platform)
  select 'user-' || i % 100000, 'app-' || i % 8, 'fcm', 'bench-device-' || md5(i::text), 'android' from generate_series(1, least(200000, :rows)) i;
insert into push.token_invalidations (app, provider, token, user_id, reason, invalidated_at)
  select 'app-' || i % 8, 'fcm', 'bench-dead-' || md5(i::text), 'user-' || i, 'UNREGISTERED', now() - i * interval '10 s'
  from generate_series(1, least(50000, :rows)) i;
set client_min_messages = warning;
drop schema bench cascade;
