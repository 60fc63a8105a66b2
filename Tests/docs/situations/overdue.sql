-- The job that marks calls as missed fails each time, for four minutes. One call's ring window ended a minute ago.
\ir base.sql
update push.gateways set started_at = now() - interval '1 hour';
update push.job set done_at = now() - interval '4 minutes' - every, due_at = now(), gateway = 1 where name = 'miss';
select fixture.call('unmissed', '["user-1"]', '2 minutes');
