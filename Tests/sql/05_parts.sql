-- Lost claims and dead gateways in a table that is read in parts, as one of millions of rows: here a part is a page.
create function pg_temp.claim(p_gateway int, p_claim int) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, p_claim, array(select id from push.lane order by id), array_fill(300, array[9]),
    array_fill('-infinity'::timestamptz, array[9])) $$;
create function test.refuse() returns trigger language plpgsql as $$ begin raise program_limit_exceeded; end $$;

-- A claim whose answer was lost.
select push.register_gateway('three', '1') as g3, test.call('wide', 300) as wide \gset
select test.equal('claimed', pg_temp.claim(:g3, 1), 300::bigint);
select given as g, next_page as page from push.forget_in(:g3, 1, 0, 1) \gset
select test.equal('a call reads a part', array[:g < 300, :page = 1], '{t,t}');
select test.equal('the claim is barred already', pg_temp.claim(:g3, 1), 0::bigint);
create function pg_temp.forget(p_gateway int, p_claim int, p_page bigint) returns bigint language plpgsql as $$
declare
  v_sum bigint := 0; v_given bigint;
begin
  while p_page is not null loop
    select f.given, f.next_page into v_given, p_page from push.forget_in(p_gateway, p_claim, p_page, 1) f;
    v_sum := v_sum + v_given;
  end loop;
  return v_sum;
end $$;
select test.equal('its answer is lost, and it is repeated; further calls read the rest', :g + pg_temp.forget(:g3, 1, 0), 300::bigint);
select test.equal('all are ready', (select count(*) from push.deliveries where call_id = 'wide' and state = 'ready' and attempt = 0), 300::bigint);
select test.equal('and claimed by the next claim', pg_temp.claim(:g3, 2), 300::bigint);
select test.equal('a second time it finds nothing', pg_temp.forget(:g3, 1, 0) + pg_temp.forget(:g3, 1, 1), 0::bigint);
select test.equal('nor does it with a number that was never used', (select pg_temp.forget(:g3, 3, 0) = 0 and count(*) = 300 from push.deliveries
  where call_id = 'wide' and state = 'claimed'), true);
delete from push.delivery where outbox_id = :wide;

-- A gateway that died. One row cannot be changed, and one, on the first page, is a suspect.
select test.set_limit('push.free_claims', '2000', '1'), test.set_limit('push.free_claims', '1 hour', '-1 s');
select test.call('broad', 300) as broad, push.register_gateway('m', '1') as m, push.register_gateway('reaper', '1') as reaper \gset
update push.delivery set crashes = 2, ready_lane = null where outbox_id = :broad and n = 0;
select pg_temp.claim(:m, 1) \g /dev/null
select test.equal('a table of many pages', pg_relation_size('push.delivery') > 5 * 8192, true);
create trigger refuse before update on push.delivery for each row when (old.n = 150) execute function test.refuse();
create function pg_temp.free(p_passes int) returns void language plpgsql as $$
begin
  for i in 1..p_passes * (pg_relation_size('push.delivery') / 8192 + 1) loop
    update push.gateways set free_due_at = clock_timestamp() where free_due_at is not null;
    perform push.free_claims();
  end loop;
end $$;
create function pg_temp.broad() returns text language sql as $$
  select string_agg(format('%s %s', state, count), ', ' order by count) from (
    select state, count(*) from push.deliveries where call_id = 'broad' group by state) s $$;
set client_min_messages = error;
select test.dies(:m, :reaper);
select test.equal('the heartbeat reads a part', (select free_due_at <= clock_timestamp() and free_from_page = 1
  from push.gateways where id = :m), true);
-- Others end all the time, and begin at the page where it is.
do $$ begin
  for i in 1..pg_relation_size('push.delivery') / 8192 * 2 loop
    update push.gateways set free_due_at = clock_timestamp() where free_due_at is not null;
    perform push.retire_gateway(push.register_gateway('n', '1'));
  end loop;
end $$;
select test.equal('further runs read the rest, whoever ends meanwhile', pg_temp.broad(), 'claimed 1, ready 298');
select test.equal('the suspect is blamed, and nothing beside it, in whatever part', (select string_agg(h.n || ':' || h.reason, ' ') || ' ' || (
  select sum(crashes) from push.delivery where outbox_id = :broad) from push.history h where h.outbox_id = :broad), '0:GatewayCrashed 0');
select pg_temp.free(3);
select test.equal('as long as one is left it is looked for', (select free_due_at is not null from push.gateways where id = :m), true);
reset client_min_messages;
drop trigger refuse on push.delivery;
select pg_temp.free(3);
select test.equal('it is freed as soon as it can be changed', pg_temp.broad(), 'ready 299');
select test.equal('then nothing is looked for', (select count(*) from push.gateways where free_due_at is not null), 0::bigint);
-- One that ended while another session had its row, and is found when all pages have been read for another.
select push.register_gateway('o', '1') as o \gset
select test.equal('claimed', pg_temp.claim(:o, 1), 299::bigint);
update push.gateways set free_due_at = clock_timestamp(), free_from_page = pg_relation_size('push.delivery') / 8192 where id = :m;
update push.gateways set alive = false, ended_at = now(), ended_reason = 'retired', free_due_at = clock_timestamp() where id = :o;
select pg_temp.free(3);
select test.equal('all pages are read for it', pg_temp.broad(), 'ready 299');
delete from push.delivery where outbox_id = :broad;
