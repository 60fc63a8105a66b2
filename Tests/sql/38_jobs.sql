-- Housekeeping jobs, which any gateway can take.
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate;
end $$;
select push.register_gateway('one', '1') as g1, push.register_gateway('two', '1') as g2 \gset
select test.equal('there is a row for everything', (select string_agg(name || ':' || extract(epoch from every)::float, ' ' order by every, name)
  from push.job),
  'follow_up:0.25 follow_up_urgent:0.25 miss:0.25 promote:0.25 escalate:0.5 free:0.5 tally:0.5 expire:1 follow_up_again:1 follow_up_all:5 prune:10 '
  'erase:15 expire_all:15 drop_partitions:3600 ensure_partitions:3600');
select test.equal('an interval that would stop them all is refused', pg_temp.error('update push.job set every = ''178000000 years'' where name '
  '= ''prune'''), '23514');
update push.job set due_at = now() - interval '1 minute', every = '1 hour';
update push.job set due_at = now() - interval '2 minutes' where name = 'expire';
select test.equal('the first one due is taken first', push.take_job(:g1), 'expire');
select test.equal('its time moves on before it is done', (select due_at > now() + interval '59 minutes' and gateway = :g1 and taken_at is not null
  from push.job where name = 'expire'), true);
create temp table taken as select push.take_job(:g2) as name from generate_series(1, 14);
select test.equal('any gateway takes all the others', (select string_agg(name, ' ' order by name) from taken),
  'drop_partitions ensure_partitions erase escalate expire_all follow_up follow_up_again follow_up_all follow_up_urgent free '
  'miss promote prune tally');
select test.equal('then none is due', push.take_job(:g1), null);
update push.job set due_at = now() - interval '1 minute' where name = 'miss';
update push.gateways set alive = false, ended_at = now(), ended_reason = 'silent' where id = :g2;
select test.equal('a gateway that was declared dead gets none', push.take_job(:g2), null);
select test.equal('nor does an unknown gateway', push.take_job(0), null);
select test.equal('a living gateway does', push.take_job(:g1), 'miss');

-- Rings wait for four of them, so that a gateway runs one of each kind at a time.
update push.job set due_at = now() - interval '1 minute' where name <> 'miss';
update push.job set due_at = now() - interval '2 minutes' where name in ('tally', 'escalate');
update push.job set due_at = now() - interval '90 s' where name = 'follow_up_urgent';
update push.job set due_at = now() - interval '80 s' where name = 'free';
select test.equal('the urgent one that is due first', push.take_job(:g1, true), 'escalate');
select test.equal('then another', push.take_job(:g1, true), 'follow_up_urgent');
select test.equal('then the others', push.take_job(:g1, true) || ' ' || push.take_job(:g1, true), 'free promote');
select test.equal('no other is urgent', push.take_job(:g1, true), null);
select test.equal('the first of the rest', push.take_job(:g1, false), 'tally');
select test.equal('an earlier release asks for any', push.take_job(:g1) is not null, true);
update push.job set due_at = now() + interval '1 hour';

update push.job set done_at = now() - interval '1 minute';
select test.equal('each can be run, and there is not much to do', (select string_agg(name, ' ') from push.job where push.run_job(name)), null);
select test.equal('when it was done is noted', (select string_agg(name, ' ') from push.job where done_at < now()), null);
update push.job set done_at = now() - interval '1 minute' where name = 'tally';
select count(*) as took from push.take_tally() \gset
select test.equal('also of the one that push.take_tally does', (select string_agg(name, ' ')
  from push.job where done_at < now()), null);
select test.equal('an unknown job is an error', pg_temp.error($$select push.run_job('x')$$), '20000');
select test.call('late-' || i, 1, p_ring => 1) from generate_series(1, 3) i;
update push.delivery d set deadline_at = now() - interval '10 minutes' from push.outbox o where o.id = d.outbox_id and o.call_id = 'late-3';
update push.delivery d set deadline_at = now() - interval '1 s' from push.outbox o where o.id = d.outbox_id and o.call_id in ('late-1', 'late-2');
select test.equal('expire', push.run_job('expire') || ' ' || (select count(*) from push.deliveries where call_id like 'late-%'), 'false 3');
select test.equal('expire takes deliveries that expired recently',
  (select string_agg(call_id, ' ') from push.deliveries where call_id like 'late-%'), 'late-3');
select push.run_job('expire_all');
select test.equal('expire_all also takes older ones', (select count(*) from push.deliveries where call_id like 'late-%'), 0::bigint);

-- A step that reaches its limit.
select test.call('wait-' || i, 500) from generate_series(1, 5) i;
update push.delivery set state = 2, ready_lane = null, due_at = now() - interval '1 s';
select test.equal('a step that reaches its limit returns true', push.run_job('promote'), true);
select test.equal('and is due again at once', (select due_at <= clock_timestamp() from push.job where name = 'promote'), true);
select test.equal('it was a bite', (select count(*) from push.deliveries where state = 'ready'), 2000::bigint);
select test.equal('the rest is less than one', push.run_job('promote'), false);
select test.equal('then all is done', (select count(*) from push.deliveries where state <> 'ready'), 0::bigint);
create table push.history_20200101 partition of push.history for values from ('2020-01-01 00:00+00') to ('2020-01-02 00:00+00');
select test.equal('a partition a time', push.run_job('drop_partitions') || ' ' || push.run_job('drop_partitions'), 'true false');
