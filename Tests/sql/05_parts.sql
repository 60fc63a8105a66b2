-- Lost claims in a table that is read in parts, as one of millions of rows: here a part is a page. What many dead deliveries take.
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

-- A gateway that died with many. One ring cannot be changed, nor can any message, and one ring is a suspect. A run takes one piece.
select test.set_limit('push.free_claims', '100', '50'), test.set_limit('push.free_claims', '1 hour', '-1 s');
select test.call('broad', 120) as broad, push.register_gateway('m', '1') as m, push.register_gateway('reaper', '1') as reaper \gset
insert into push.outbox (kind, ring_seconds, payload, recipients) select 'message', 300, jsonb_build_object('from', 'x', 'messageId',
  'm' || i, 'chatId', 'c'), '[{"userId": "u", "fcmToken": "many-token-0123456789"}]' from generate_series(1, 60) i;
update push.delivery set crashes = 2, ready_lane = null where outbox_id = :broad and n = 0;
select test.equal('claimed', pg_temp.claim(:m, 1), 180::bigint);
create trigger refuse before update on push.delivery for each row when (old.n = 110) execute function test.refuse();
create trigger refuse before insert on push.history for each row when (new.kind = 3) execute function test.refuse();
create function pg_temp.owed() returns text language sql as $$
  select string_agg(format('%s %s %s', kind, state, count), ', ' order by kind, state) from (
    select kind, state, count(*) from push.deliveries group by 1, 2) s $$;
set client_min_messages = error;
select test.dies(:m, :reaper, 1);
select test.equal('rings come first, and it goes on', (select count(*) >= 48 from push.delivery where state = 0 and kind = 0)
  and (select free_due_at <= clock_timestamp() from push.gateways where id = :m), true);
do 'begin for i in 1..2 loop perform push.free_claims(); end loop; end';
select test.equal('whoever cannot be changed keeps nobody', pg_temp.owed(), 'invite claimed 1, invite ready 118, notification claimed 60');
select test.equal('the suspect is blamed, and nothing beside it, in whatever run', (select string_agg(h.n || ':' || h.reason, ' ') || ' ' || (
  select sum(crashes) from push.delivery where outbox_id = :broad) from push.history h where h.outbox_id = :broad), '0:GatewayCrashed 0');
do 'begin for i in 1..4 loop update push.gateways set free_due_at = clock_timestamp() where id = (select max(owner) from push.delivery);
  perform push.free_claims(); end loop; end';
select test.equal('as long as one is left it is looked for', (select free_due_at is not null from push.gateways where id = :m), true);
reset client_min_messages;
drop trigger refuse on push.delivery;
drop trigger refuse on push.history;
do 'begin for i in 1..9 loop update push.gateways set free_due_at = clock_timestamp() where free_due_at is not null;
  perform push.free_claims(); end loop; end';
select test.equal('it is freed as soon as it can be changed', pg_temp.owed(), 'invite ready 119');
select test.equal('then nothing is looked for', (select count(*) from push.gateways where free_due_at is not null), 0::bigint);
delete from push.delivery;
