-- Expire, reap, retire; partitions.
select push.register_gateway('one', '1') as g1, push.register_gateway('two', '1') as g2 \gset
select test.call('e', 4) as e \gset
select push.claim(:g1, 1, array(select id from push.lane), array[2], array['-infinity']::timestamptz[]);
select push.park(:g1, array[:e]::bigint[], array[n], array[1], array[1], array[1000], array['Unavailable'])
  from push.delivery where outbox_id = :e and state = 1 order by n limit 1;
select test.equal('expire leaves deliveries with time left', push.expire(), 0::bigint);
update push.delivery set deadline_at = now() - interval '1 s', due_at = least(due_at, now() - interval '1 s') where outbox_id = :e;
select test.equal('promote leaves expired deliveries', push.promote(), 0::bigint);
select test.equal('expire ends up to so many', push.expire(1), 1::bigint);
select test.equal('expire ends the rest, ready and waiting, and leaves the claimed', push.expire(), 2::bigint);
select test.equal('the expired say why', (select string_agg(reason, ' ' order by reason) from push.delivery_history where outbox_id = :e
  and outcome = 'expired' and call_id = 'e'),
  'DeadlinePassed DeadlinePassed Unavailable');
select test.equal('the claimed one is its gateway''s', (select count(*) from push.deliveries where outbox_id = :e and state = 'claimed'), 1::bigint);
select test.call('soon', 1, p_ring => 1) as soon \gset
select test.equal('with slack, expire takes deliveries that are too late to be sent', push.expire(p_slack => '5 s'), 1::bigint);

select test.call('r', 3) as r \gset
select count(*) as claimed from push.claim(:g1, 1, array(select id from push.lane), array[2], array['-infinity']::timestamptz[]) \gset
select count(*) as claimed from push.claim(:g2, 1, array(select id from push.lane), array[1], array['-infinity']::timestamptz[]) \gset
select test.equal('a beat leaves the living', (select alive and not must_reclaim from push.beat(:g2, true, '10 minutes'))
  and (select alive from push.gateways where id = :g1), true);
update push.gateways set heartbeat_at = now() - interval '20 minutes', doubted_at = now() - interval '5 minutes',
  steady_since = now() - interval '1 hour'
  where id in (:g1, :g2);
select push.beat(:g2, true, '10 minutes'), push.beat(:g2, true, '10 minutes');
select test.equal('a gateway that seems silent itself, as after a standstill of the server, declares none dead',
  (select alive from push.gateways where id = :g1), true);
update push.gateways set heartbeat_at = clock_timestamp() + interval '1 hour', steady_since = clock_timestamp() + interval '1 hour' where id = :g2;
select push.beat(:g2, true, '10 minutes');
select test.equal('nor does one whose last heartbeat is in the future: the clock was set',
  (select alive and (select steady_since <= clock_timestamp() from push.gateways where id = :g2) from push.gateways where id = :g1), true);
update push.gateways set heartbeat_at = clock_timestamp(), steady_since = now() - interval '1 hour' where id = :g2;
select test.equal('a gateway without p_may_reap frees nothing',
  (select alive from push.beat(:g2, false, '10 minutes')) and (select alive from push.gateways where id = :g1), true);
select push.beat(:g2, true, '10 minutes');
select test.equal('a heartbeat frees nothing', (select count(*) > 0 from push.delivery where owner = :g1), true);
select push.free_claims() \g /dev/null
select test.equal('the job frees the deliveries of the silent one',
  (select count(*) from push.delivery where owner = :g1), 0::bigint);
select test.equal('reaped deliveries keep their attempt', (select string_agg(state || attempt, ' ' order by state, attempt) from push.deliveries
  where outbox_id = :r), 'claimed1 ready1 ready1');
select test.equal('the beat of a gateway declared dead fails', (select alive from push.beat(:g1, true, '10 minutes')), false);
select test.equal('it claims nothing', test.claim(:g1), null);
select test.equal('it settles nothing', test.settle(:g1, :r, 0, 1), 0::bigint);
select test.equal('the other lives', (select alive from push.beat(:g2, true, '10 minutes')), true);
select test.equal('gateways tell how they ended', (select ended_reason from push.gateways where id = :g1), 'silent');
-- A claim that was running while its gateway was declared dead commits later: its rows are found.
update push.delivery set state = 1, owner = :g1, lease = lease + 1 where outbox_id = :r
  and n = (select min(n) from push.delivery where outbox_id = :r and state = 0);
update push.gateways set free_due_at = clock_timestamp() where id = :g1;
select test.equal('a claim that slipped in is freed by a later run', push.free_claims(), 1::bigint);
select push.retire_gateway(:g2), push.free_claims();
select test.equal('a retired gateway holds nothing', (select count(*) from push.deliveries where outbox_id = :r and state = 'ready'), 3::bigint);
select test.equal('a retired gateway has ended', (select alive || ' ' || ended_reason from push.gateways where id = :g2), 'false retired');

select test.equal('partitions for yesterday, today and 14 days exist', (select count(*) from pg_inherits where inhparent = 'push.history'::regclass),
  17::bigint);
select test.equal('making them again makes none', push.ensure_partitions(), 0);
savepoint rights;
alter default privileges grant select on tables to public;
select test.equal('two more are made', push.ensure_partitions(16), 2);
select test.equal('whatever may be read by default, nobody may read new ones', (select count(*) from pg_class c
  where c.relnamespace = 'push'::regnamespace and c.relname ~ '^history_' and has_table_privilege('push_enqueuer', c.oid, 'select')), 0::bigint);
rollback to rights;
savepoint attached;
select 'history_' || to_char(now() at time zone 'UTC', 'YYYYMMDD') as today \gset
alter table push.history detach partition push.:today;
select push.ensure_partitions() as made \gset
select test.equal('one that was detached is attached again', :made || ' ' || count(*), '1 17')
  from pg_inherits where inhparent = 'push.history'::regclass;
rollback to attached;
select 'history_' || to_char(now() at time zone 'UTC' + interval '3 days', 'YYYYMMDD') as third \gset
alter table push.history detach partition push.:third;
alter table push.:third drop column data;
set client_min_messages = error;
select test.equal('one that no longer fits keeps no other from being made', push.ensure_partitions(16), 2);
reset client_min_messages;
select test.equal('and is seen before its day', (select state || ' ' || value from push.health where item = 'partitions ahead'), 'warn 2 days');
rollback to attached;
select test.equal('two more days', push.ensure_partitions(16), 2);
select test.equal('each has a replica identity', (select string_agg(distinct c.relreplident::text, '') from pg_inherits i
  join pg_class c on c.oid = i.inhrelid where i.inhparent = 'push.history'::regclass), 'f');
set local timezone = 'Pacific/Auckland';
select test.equal('days are UTC days in any session', push.ensure_partitions(16), 0);
reset timezone;
savepoint days;
select push.ensure_partitions(100) as made \gset
select test.equal('at most 60 days ahead are made, whatever the argument',
  (select count(*) from pg_inherits where inhparent = 'push.history'::regclass), 63::bigint);
rollback to days;
create table push.history_20200101 partition of push.history for values from ('2020-01-01 00:00+00') to ('2020-01-02 00:00+00');
create table push.history_20200102 partition of push.history for values from ('2020-01-02 00:00+00') to ('2020-01-03 00:00+00');
savepoint kept;
create view pg_temp.report as select * from push.history_20200101;
create function pg_temp.dropped() returns text language plpgsql as $$
begin
  return push.drop_partitions();
exception when others then
  return sqlerrm;
end $$;
select test.equal('one that somebody''s view needs keeps no other', push.drop_partitions() || ' ' || (to_regclass('push.history_20200102') is null),
  '1 true');
select test.equal('it is left for the end, as an error', pg_temp.dropped() ~ '^cannot drop table .*history_20200101', true);
rollback to kept;
select test.equal('drop takes one partition a call, the oldest', push.drop_partitions() || ' ' || (to_regclass('push.history_20200101') is null)
  || ' ' || (to_regclass('push.history_20200102') is null), '1 true false');
select test.equal('then the next', push.drop_partitions(), 1);
select test.equal('then none', push.drop_partitions(), 0);
select test.equal('history goes to the day''s partition', (select count(*) from push.history_default), 0::bigint);
