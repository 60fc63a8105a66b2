-- Claims over several lanes: the order, the limits, and what comes last.
select push.register_gateway('claims', 'test') as g1 \gset

-- The lanes of five apps, each with a call with this number of devices.
create function test.lanes() returns smallint[] language sql as $$
  select array_agg(id order by app) from push.lane where app like 'fair-%' and provider = 'fcm'
$$;
create function test.claimed(
  p_gateway int, p_lanes smallint[], p_total int default null, p_background int default null, p_max int default 1000
) returns text language sql as $$
  select string_agg(app || ':' || count, ' ' order by app)
  from (
    select l.app, count(*) as count
    from push.claim(p_gateway, 1, p_lanes, array_fill(p_max, array[cardinality(p_lanes)]),
      array_fill('-infinity'::timestamptz, array[cardinality(p_lanes)]), p_total => p_total, p_background => p_background) c
    join push.lane l on l.id = c.lane
    group by l.app
  ) per_app
$$;
select test.call('fair-' || a, n, 'fair-' || a, p_ring => 600) from (values ('a', 900), ('b', 900), ('c', 20), ('d', 1), ('e', 1)) v(a, n);

select test.equal('lanes give their limits in the given order until the total is reached',
  test.claimed(:g1, test.lanes(), 700, p_max => 300), 'fair-a:300 fair-b:300 fair-c:20 fair-d:1 fair-e:1');
select test.equal('the last may be cut', test.claimed(:g1, test.lanes(), 700, p_max => 400), 'fair-a:400 fair-b:300');
select test.equal('lanes after the total give nothing',
  test.claimed(:g1, array(select l from unnest(test.lanes()) with ordinality u(l, i) order by i desc), 210), 'fair-b:210');
select test.equal('without a total each lane gives its limit', test.claimed(:g1, test.lanes()), 'fair-a:200 fair-b:90');

-- A missed call has hours left: it comes after calls, and has its own limit.
select test.call('fair-a2', 3, 'fair-a', p_ring => 600) as ringing \gset
update push.delivery d set deadline_at = now() + interval '4 hours' where outbox_id = :ringing;
select test.call('fair-b2', 2, 'fair-b', p_ring => 600);
select test.equal('no background, no missed calls', test.claimed(:g1, test.lanes(), 100, 0), 'fair-b:2');
select test.call('fair-c2', 1, 'fair-c', p_ring => 600);
select test.equal('calls come first, and the background has its own limit', test.claimed(:g1, test.lanes(), 100, 2), 'fair-a:2 fair-c:1');
select test.call('fair-b3', 3, 'fair-b', p_ring => 600);
select test.equal('when calls reach the total, no background is taken', test.claimed(:g1, test.lanes(), 3, 2), 'fair-b:3');
select test.call('fair-a3', 2, 'fair-a', p_ring => 600);
select test.equal('in a lane with calls only these are taken', test.claimed(:g1, test.lanes()), 'fair-a:2');
select test.equal('the rest of the background is taken next', test.claimed(:g1, test.lanes()), 'fair-a:1');
select test.equal('nothing is left', test.claimed(:g1, test.lanes()), null);

-- Half of what a lane may send at once is reserved for calls.
select test.call('fair-a4', 5, 'fair-a', p_ring => 600) as later \gset
update push.delivery d set deadline_at = now() + interval '4 hours' where outbox_id = :later;
create function test.claimed_later(p_gateway int, p_later_max int[]) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, 1, (test.lanes())[:1], '{10}', '{-infinity}', p_later_max => p_later_max)
$$;
select test.equal('a lane without room for its background gives none', test.claimed_later(:g1, '{0}'), 0::bigint);
update push.lanes set paused = true where id = (test.lanes())[1];
select test.equal('nor does a paused one', test.claimed_later(:g1, '{2}'), 0::bigint);
update push.lanes set paused = false where id = (test.lanes())[1];
select test.equal('nor deliveries below the floor of the background',
  (select count(*) from push.claim(:g1, 1, (test.lanes())[:1], '{10}', '{-infinity}', p_later_floor => array[now() + interval '5 hours'])),
  0::bigint);
select test.equal('and no more than it has room for', test.claimed_later(:g1, '{2}'), 2::bigint);
select test.call('fair-a5', 4, 'fair-a', p_ring => 600);
select test.equal('calls get all the room', test.claimed_later(:g1, '{0}'), 4::bigint);
select test.equal('without a limit the background may use all of it', test.claimed_later(:g1, '{}'), 3::bigint);

-- The index has another name, for example after "create index concurrently" beside it.
savepoint renamed;
alter index push.delivery_ready rename to delivery_ready_2;
select test.call('renamed', 1, 'fair-a');
select test.equal('an index that was made again under another name stops no claim', test.claimed(:g1, test.lanes()), 'fair-a:1');
select test.equal('and is named', (select string_agg(f.fault, ', ') from push.schema_faults f), 'index delivery_ready of push.delivery is missing');
rollback to renamed;

-- A call that cannot be read.
select test.call('readable-1', 2, 'fair-a') as readable, test.call('unreadable', 2, 'fair-a') as unreadable,
  test.call('readable-2', 1, 'fair-c') \gset
set local session_replication_role = replica;
update push.outbox set declined = to_jsonb((select string_agg(gen_random_uuid()::text, '') from generate_series(1, 300))) where id = :unreadable;
set local session_replication_role = origin;
create function pg_temp.claim_fails(p_gateway int) returns text language plpgsql as $$
begin
  perform test.claimed(p_gateway, test.lanes());
  return 'no error';
exception when others then
  return sqlstate;
end $$;
select test.equal('a claim cannot leave it out', pg_temp.claim_fails(:g1), '22023');
select test.equal('it is put aside', push.put_aside(test.lanes(), '{9,9,9}'), 1);
select test.equal('its pushes end with a reason', (select string_agg(concat_ws(' ', outcome, reason), ', ') from push.delivery_history
  where outbox_id = :unreadable), 'dead Unreadable, dead Unreadable');
select test.equal('the others are claimed', test.claimed(:g1, test.lanes()), 'fair-a:2 fair-c:1');
select test.equal('health names it', (select state || ' ' || value from push.health where item = 'put aside'),
  format('warn push.outbox.id %s (SQLSTATE 22023)', :unreadable));
select test.equal('nothing else is put aside', push.put_aside(test.lanes(), '{9,9,9}'), 0);
select test.call('unwritable', 1, 'fair-a') as unwritable \gset
set local session_replication_role = replica;
update push.outbox set declined = '1' where id = :unwritable;
set local session_replication_role = origin;
create function pg_temp.no_memory() returns trigger language plpgsql as $$ begin raise exception using errcode = '53200'; end $$;
create trigger no_memory before insert on push.history for each row execute function pg_temp.no_memory();
create function pg_temp.put_aside_fails() returns text language plpgsql as $$
begin
  return push.put_aside(test.lanes(), '{9,9,9}')::text;
exception when others then
  return sqlstate;
end $$;
select test.equal('what passes, such as a lack of memory, ends no call', pg_temp.put_aside_fails() || ' ' || count(*), '53200 1')
  from push.delivery where outbox_id = :unwritable;
drop trigger no_memory on push.history;
savepoint reading;
create function pg_temp.read() returns text language plpgsql as $$ begin raise exception using errcode = '53200'; end $$;
select test.set_limit('push.put_aside', 'count(d::text)', 'count(pg_temp.read())');
select test.equal('whether it passes while a call is read', pg_temp.put_aside_fails() || ' ' || count(*), '53200 1')
  from push.delivery where outbox_id = :unwritable;
rollback to reading;
alter table push.history add constraint nothing_unreadable check (reason <> 'Unreadable') not valid;
select push.put_aside(test.lanes(), '{9,9,9}') as calls \gset
select test.equal('one whose end cannot be written either is deleted', :calls || ' ' || count(*), '1 0') from push.delivery
  where outbox_id = :unwritable;
alter table push.history drop constraint nothing_unreadable;

-- A row that a trigger or a constraint refuses: its neighbours are made ready, and end.
select test.call('neighbour-1', 1, 'fair-a') as n1, test.call('refused', 1, 'fair-a') as refused, test.call('neighbour-2', 1, 'fair-a') as n2 \gset
create function pg_temp.states() returns text language sql as $$
  select coalesce(string_agg(o.call_id || ' ' || d.state, ', ' order by o.id), 'none') from push.delivery d join push.outbox o on o.id = d.outbox_id
  where o.call_id in ('neighbour-1', 'refused', 'neighbour-2') $$;
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
savepoint ready;
select format('create trigger refuse before update on push.delivery for each row when (old.outbox_id = %s) '
  'execute function pg_temp.refuse()', :refused) \gexec
select test.equal('a claim cannot leave out a push that cannot be claimed', pg_temp.claim_fails(:g1), 'P0001');
select test.equal('its call is put aside, and the others are claimed', push.put_aside(test.lanes(), '{9,9,9}') || ' '
  || test.claimed(:g1, test.lanes()) || ' ' || pg_temp.states(), '1 fair-a:2 neighbour-1 1, neighbour-2 1');
select test.equal('with its SQLSTATE', (select value from push.health where item = 'put aside')
  ~ format('push.outbox.id %s .SQLSTATE P0001.', :refused), true);
rollback to ready;
create function pg_temp.asserts() returns trigger language plpgsql as $$ begin assert false; return new; end $$;
select format('create trigger asserts before update on push.delivery for each row when (old.outbox_id = %s) '
  'execute function pg_temp.asserts()', :refused) \gexec
select test.equal('also by an assertion', push.put_aside(test.lanes(), '{9,9,9}') || ' '
  || test.claimed(:g1, test.lanes()) || ' ' || pg_temp.states(), '1 fair-a:2 neighbour-1 1, neighbour-2 1');
rollback to ready;
select format('create constraint trigger late after update on push.delivery deferrable initially deferred for each row '
  'when (old.outbox_id = %s) execute function pg_temp.refuse()', :refused) \gexec
select test.equal('or when the claim commits', push.put_aside(test.lanes(), '{9,9,9}') || ' '
  || test.claimed(:g1, test.lanes()) || ' ' || pg_temp.states(), '1 fair-a:2 neighbour-1 1, neighbour-2 1');
rollback to ready;
update push.delivery set crashes = 2, ready_lane = null where outbox_id = :refused;
set local session_replication_role = replica;
update push.outbox set declined = '1' where id = :refused;
set local session_replication_role = origin;
select test.equal('so is a suspect that cannot be read', push.put_aside(test.lanes(), '{9,9,9}') || ' ' || test.claimed(:g1, test.lanes()) || ' '
  || pg_temp.states(), '1 fair-a:2 neighbour-1 1, neighbour-2 1');
rollback to ready;
update push.delivery set state = 2, ready_lane = null, due_at = now() where outbox_id in (:n1, :refused, :n2);
select format('create trigger refuse before update on push.delivery for each row when (old.outbox_id = %s) '
  'execute function pg_temp.refuse()', :refused) \gexec
select push.promote() as promoted \gset
select test.equal('a push that cannot be made ready keeps no other waiting', pg_temp.states(), 'neighbour-1 0, refused 2, neighbour-2 0');
drop trigger refuse on push.delivery;
create trigger no_memory before update on push.delivery for each row execute function pg_temp.no_memory();
create function pg_temp.promote_fails() returns text language plpgsql as $$
begin
  return push.promote();
exception when others then
  return sqlstate;
end $$;
select test.equal('what passes is not tried piece by piece', pg_temp.promote_fails(), '53200');
drop trigger no_memory on push.delivery;
update push.delivery set deadline_at = now() - interval '1 s', due_at = now() - interval '1 s' where outbox_id in (:n1, :refused, :n2);
select format('alter table push.history add constraint refuse check (outbox_id <> %s) not valid', :refused) \gexec
select test.equal('a push whose end cannot be written keeps no other from ending', push.expire() || ' ' || pg_temp.states(), '2 refused 2');
select push.expire() as again \gset
select test.equal('its call is named, once', (select string_agg(detail ->> 'sqlstate', ', ') from push.audit
  where action = 'put_aside' and target = 'push.outbox.id ' || :refused), 'P0001');
alter table push.history drop constraint refuse;
select test.equal('it ends as soon as it can', push.expire() || ' ' || pg_temp.states(), '1 none');
