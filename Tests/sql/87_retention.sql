-- Retention continues after calls that it must keep, in steps.
delete from push.outbox;
-- Calls of 20 days ago, the first p_owed of which are still owed.
create function pg_temp.old_calls(p_prefix text, p_count int, p_owed int) returns void language plpgsql set session_replication_role = replica as $$
begin
  insert into push.outbox (app, call_id, payload, recipients, ring_seconds, state, created_at, deadline_at, ended_at, end_reason)
    select 'keep', p_prefix || g, '{}', '[]', 60, 'ended', now() - interval '20 days', now() - interval '20 days', now() - interval '20 days', 'ended'
    from generate_series(1, p_count) g order by g;
  insert into push.call_key select call_id, app from push.outbox on conflict do nothing;
  insert into push.delivery (outbox_id, n, kind, deadline_at, lane, ready_lane, user_id, token)
    select o.id, 0, 3, now() + interval '1 day', l.id, l.id, 'u', 'keep-token-0123456789'
    from (select id from push.outbox where call_id like p_prefix || '%' order by id limit p_owed) o
    cross join (select push.register_lane('keep', 'fcm') as id) l;
end $$;
create function pg_temp.kept(p_prefix text) returns bigint language sql as $$ select count(*) from push.outbox where call_id like p_prefix || '%' $$;
create function pg_temp.new_pass() returns void language sql as $$ update push.prune_cursor set ended_at = ended_at - interval '11 minutes' $$;
-- Repeats steps until the number of calls is deleted or the pass has ended.
create function pg_temp.bites(p_enough bigint, p_max int default 5000, p_keep_days int default 15) returns bigint language plpgsql as $$
declare
  v_pruned bigint := 0;
begin
  for i in 1..10000 loop
    v_pruned := v_pruned + push.prune(p_max, p_keep_days);
    exit when v_pruned >= p_enough or (select after_id = 0 from push.prune_cursor);
  end loop;
  return v_pruned;
end $$;

select pg_temp.old_calls('a', 400, 300);
insert into push.ring_reports (outbox_id, user_id) select id, 'u' from push.outbox;
select test.equal('calls that are still owed do not block the others', pg_temp.bites(10, 10) >= 10, true);
select test.equal('the next step continues after it', (select after_id > 0 from push.prune_cursor) and pg_temp.bites(10, 10) >= 10, true);
select test.equal('the job continues to the end, and returns that', (select bool_or(not push.run_job('prune')) from generate_series(1, 1000)
  where (select after_id > 0 from push.prune_cursor)), true);
select test.equal('all is gone that may go', pg_temp.kept('a'), 300::bigint);
select test.equal('with its other rows', (select count(*) from push.ring_reports) || ' ' || (select count(*) from push.call_key), '300 300');
delete from push.delivery where outbox_id in (select id from push.outbox where call_id like 'a%' order by id limit 299);
select test.equal('the next pass begins after a while', push.prune(), 0::bigint);
select pg_temp.new_pass();
select test.equal('and deletes calls that are no longer owed', pg_temp.bites(1000), 299::bigint);
select test.equal('not what is', pg_temp.kept('a'), 1::bigint);
select pg_temp.old_calls('b', 3, 0);
select test.equal('a pass that does not end in one bite', pg_temp.bites(1, 1, 14), 1::bigint);
select test.equal('is not begun anew before it has', pg_temp.bites(2, 1, 14), 2::bigint);
select test.equal('then it reaches the end', pg_temp.bites(1, 1, 14), 0::bigint);
select test.equal('and begins at the front the next time', (select after_id from push.prune_cursor), 0::bigint);
select pg_temp.old_calls('c', 3, 0);
update push.prune_cursor set until = until - interval '1 day';
select test.equal('a new day begins a pass at once', pg_temp.bites(2, 2, 14), 2::bigint);
select pg_temp.old_calls('d', 6000, 0);
update push.job set due_at = now() + interval '1 minute' where name = 'prune';
select test.equal('a bite of many calls: there is more', push.run_job('prune'), true);
select test.equal('and it is due at once', (select due_at <= clock_timestamp() from push.job where name = 'prune'), true);

-- A table of somebody's own refers to a call, by a key that is checked at the commit.
savepoint referred;
select pg_temp.old_calls('e', 30, 0);
create table test.bill (call bigint references push.outbox (id) deferrable initially deferred);
insert into test.bill select id from push.outbox where call_id = 'e7';
insert into push.audit (at, action, target) select now() - interval '91 days', 'old', i from generate_series(1, 3) i;
create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$;
create trigger refuse before delete on push.audit for each row when (old.target = '2') execute function pg_temp.refuse();
select pg_temp.new_pass();
select test.equal('it keeps that call, and no other', format('%s %s', pg_temp.bites(100000) > 28, pg_temp.kept('e')), 't 1');
set constraints all immediate;
select test.equal('and a row that cannot be deleted keeps no other', (select string_agg(target, ' ') from push.audit where action = 'old'), '2');
rollback to referred;

insert into push.audit (at, action, target) select now() - interval '91 days', 'old', 'x' from generate_series(1, 1500);
insert into push.gateways (name, version, alive, ended_at, ended_reason) select 'gone', '1', false, now() - interval '25 hours', 'silent'
  from generate_series(1, 1500);
insert into push.lane_status (lane, gateway, window_size, capacity, in_flight, rate_per_second, circuit) select 1, id, 1, 1, 1, 1, 'closed'
  from push.gateways where name = 'gone';
select push.prune();
select test.equal('of everything else a bite, too', (select count(*) from push.audit where action = 'old') || ' '
  || (select count(*) from push.gateways where name = 'gone') || ' ' || (select count(*) from push.lane_status), '1250 1250 1250');
select count(push.prune()) as pruned from generate_series(1, 5) \gset
select test.equal('and then the rest', (select count(*) from push.audit where action = 'old') || ' '
  || (select count(*) from push.gateways where name = 'gone') || ' ' || (select count(*) from push.lane_status), '0 0 0');

-- Tokens and users: 90 days after a provider reported a token as dead, and a day after the end of its use.
select push.register_lane('keep', 'expo') \g /dev/null
insert into push.token_invalidations (app, provider, token, user_id, reason, invalidated_at) select 'keep', 'fcm', 'keep-dead-0123456789-' || d, 'u',
  'x', now() - make_interval(days => d) from unnest('{89,91}'::int[]) d;
insert into push.quarantined_tokens (app, provider, token, user_id, since, reason, quarantined_at) select 'keep', 'fcm', 'keep-held-0123456789-' || d,
  'u', now(), 'x', now() - make_interval(days => d) from unnest('{89,91}'::int[]) d;
insert into push.devices (app, user_id, provider, token, registered_at, invalidated_at, invalid_reason) select 'keep', 'u', 'fcm',
  'keep-device-0123456789-' || d, now() - interval '400 days', case when d > 0 then now() - make_interval(days => d) end, case when d > 0 then 'x' end
  from unnest('{0,89,91}'::int[]) d;
insert into push.provider_tokens (provider, name, token, minted_at, expires_at) select 'fcm', 'keep-' || d, 'x', now() - interval '5 days',
  now() - make_interval(days => d) from unnest('{0,2}'::int[]) d;
insert into push.receipt_batch (app, sent_at, due_at, give_up_at, ticket, outbox_id, n, user_id, token) select 'keep',
  now() - make_interval(days => d + 1), now() - make_interval(days => d), now() - make_interval(days => d), array['ticket-' || d], '{1}', '{0}',
  '{u}', '{x}' from unnest('{0,2}'::int[]) d;
insert into push.erasure (app, user_digest, finished_at) select 'keep', sha256(d::text::bytea), now() - make_interval(days => d)
  from unnest('{89,91}'::int[]) d;
select push.prune() \g /dev/null
select test.equal('dead tokens, quarantined ones, devices, providers'' tokens, tickets and erasures that are too old are gone, and no others',
  (select string_agg(right(token, 2), ' ') from push.token_invalidations where app = 'keep') || ', '
    || (select string_agg(right(token, 2), ' ') from push.quarantined_tokens where app = 'keep')
    || ', ' || (select string_agg(right(token, 2), ' ' order by token) from push.devices where app = 'keep') || ', '
      || (select string_agg(name, ' ') from push.provider_tokens where name like 'keep-%')
    || ', ' || (select string_agg(ticket[1], ' ') from push.receipt_batch where app = 'keep') || ', '
      || (select count(*) from push.erasure where app = 'keep'),
  '89, 89, -0 89, keep-0, ticket-0, 1');
