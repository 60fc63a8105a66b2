-- Two deliveries ended on days for which there was no partition.
\ir base.sql
insert into push.history_default (finished_at, outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, device)
  select now() + days * interval '1 day', 1, now(), now(), 0, 1, 1, 0, 0, 'user-1', 'test…ken1' from unnest('{-5, 20}'::int[]) days;
