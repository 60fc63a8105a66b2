-- A missed call could not be announced, four times.
\ir base.sql
select fixture.call('call-90', '["ana", "bruno"]', '245 s');
set local session_replication_role = replica;
update push.outbox set state = 'missed', ended_at = now() - interval '185 s';
set local session_replication_role = origin;
insert into push.follow_ups (outbox_id, why, noted_at, tries, due_at)
  select id, 'ended', ended_at, 4, now() + interval '12 s' from push.outbox;
