-- Claims have numbers: what happens after a lost answer or lost commits, and which gateway has which deliveries. Invites of calls that
-- have ended may be claimed.
select push.register_gateway('one', '1') as g1, push.register_gateway('two', '1') as g2 \gset
create function pg_temp.claim(p_gateway int, p_claim int, p_max int default 100) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, p_claim, array(select id from push.lane where app = 'default' order by id), array_fill(p_max, array[9]),
    array_fill('-infinity'::timestamptz, array[9])) $$;
create function pg_temp.owed(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s@%s', d.n, d.state, d.attempt), ' ' order by d.n) from push.deliveries d where d.call_id = p_call
    and d.kind = 'invite' $$;
create function pg_temp.settle(p_gateway int, p_place tid, p_outbox bigint, p_n int, p_lease int) returns bigint language sql as $$
  select push.settle(p_gateway, array[p_place], array[p_outbox], array[p_n], array[p_lease], '{1}', '{0}', '{200}', '{null}', '{m}', '{c}',
    array[now()], array[now()]) $$;
create function pg_temp.right_lanes() returns bigint language sql as $$
  select count(*) from push.delivery where ready_lane is distinct from case when state < 2 and crashes < 2 then lane end
    or (state = 1) <> (owner is not null) $$;

-- The result of a claim.
select test.call('brings', 3) as brings \gset
create temp table brought as select * from push.claim(:g1, 7, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}');
select test.equal('one delivery of a call has the call''s columns', (select format('%s %s %s', count(*), count(call_id),
  string_agg(concat_ws(' ', app_call_kind, call_id, ended, payload ->> 'callId'), ',')) from brought), '3 1 incoming_call brings f brings,,');
select test.equal('its number is the lease', (select string_agg(format('%s/%s', owner = :g1, lease), ' ') from push.delivery
  where outbox_id = :brings), 't/7 t/7 t/7');
select test.equal('place is the row''s ctid', (select count(*) from brought b join push.delivery d on d.ctid = b.place and d.n = b.n), 3::bigint);
select test.equal('a settlement without a place is looked up', pg_temp.settle(:g1, null, :brings, 0, 7), 1::bigint);
select test.equal('one with the place of another, too', (select pg_temp.settle(:g1, place, :brings, 1, 7) from brought where n = 2), 1::bigint);
select test.equal('which is left alone', pg_temp.owed('brings'), '2:claimed@1');
select test.equal('under another number nothing is settled', (select pg_temp.settle(:g1, place, :brings, 2, 8) from brought where n = 2), 0::bigint);
select test.equal('at its place it is', (select pg_temp.settle(:g1, place, :brings, 2, 7) from brought where n = 2), 1::bigint);
select test.call('many', 1) as many \gset
update push.delivery set attempt = 99999 where outbox_id = :many;
select test.equal('the 100,000th attempt is one like any', (select attempt
  from push.claim(:g1, 7, array(select id from push.lane where app = 'default'), '{9}', '{-infinity}')), 100000);
select push.settle(:g1, null, array[:many::bigint], '{0}', '{7}', '{100000}', '{0}', '{200}', '{null}', '{m}', '{many}', array[now()], array[now()]);
select test.equal('and history counts it', (select attempts from push.history where outbox_id = :many), 100000);
select test.call('wild', 4) as wild \gset
update push.delivery set deadline_at = case n when 0 then 'infinity' when 1 then '9999-12-31' else deadline_at end, created_at = case n when 2
  then '-infinity' else created_at end,
  attempt = case n when 3 then 2147483647 else attempt end where outbox_id = :wild;
create function pg_temp.wild(p_gateway int) returns text language sql as $$
  select string_agg(format('%s %s %s %s', c.n, isfinite(c.created_at), isfinite(c.deadline_at), c.remaining_us between 0 and 32000000000000), ', '
    order by c.n)
  from push.claim(p_gateway, 7, array(select id from push.lane where app = 'default' and provider = 'fcm'), '{9}', '{-infinity}',
    p_later_floor => '{-infinity}', p_later_max => '{9}') c $$;
select test.equal('times and numbers written into a row by hand fail no claim', pg_temp.wild(:g1) || ', ' || pg_temp.wild(:g1),
  '2 t t t, 3 t t t, 0 t t t, 1 t t t');
delete from push.delivery where outbox_id = :wild;

-- Handed on.
create function pg_temp.hand_on(p_gateway int, p_call bigint, p_n int, p_lease int, p_hand_on boolean default true) returns bigint
language sql as $$
  select push.park(p_gateway, array[p_call], array[p_n], array[p_lease], '{1}', '{400000}', '{TimedOut}', null, array[p_hand_on]) $$;
select test.call('handed', 3) as handed \gset
select test.equal('claimed', pg_temp.claim(:g1, 8), 3::bigint);
select test.equal('only the gateway that has it hands a delivery on', pg_temp.hand_on(:g2, :handed, 0, 8), 0::bigint);
select test.equal('handed on', pg_temp.hand_on(:g1, :handed, 0, 8) + pg_temp.hand_on(:g1, :handed, 1, 8)
  + pg_temp.hand_on(:g1, :handed, 2, 8, null), 3::bigint);
update push.delivery set handed_on_by = array[:g2, :g1] where outbox_id = :handed and n = 1;
select test.equal('it waits, with its attempt', pg_temp.owed('handed'), '0:waiting@1 1:waiting@1 2:waiting@1');
select test.equal('its gateway does not claim it', pg_temp.claim(:g1, 9), 0::bigint);
select test.equal('another does, but not what it has handed on, too, or what waits', pg_temp.claim(:g2, 8), 1::bigint);
select test.equal('which one', pg_temp.owed('handed'), '0:claimed@2 1:waiting@1 2:waiting@1');
create function pg_temp.settle_late(p_gateway int, p_outbox bigint, p_outcome int, p_earlier interval default '0') returns text language sql as $$
  select string_agg(push.settle(p_gateway, null, array[p_outbox], array[n], '{8}', '{1}', array[p_outcome]::smallint[], '{410}', '{late}', '{m}',
      '{c}', array[now()], array['2020-02-02 +00'::timestamptz], p_created_at => array[o.created_at - p_earlier])::text, ' ' order by n)
  from generate_series(0, 2) n, push.outbox o where o.id = p_outbox $$;
select test.equal('a result of another delivery with these numbers settles nothing', pg_temp.settle_late(:g1, :handed, 0, '1 s'), '0 0 0');
select test.equal('a late failure settles what this gateway has handed on, if nobody has claimed it since', pg_temp.settle_late(:g1, :handed, 4),
  '0 1 0');
select test.equal('and leaves the others alone', pg_temp.owed('handed'), '0:claimed@2 2:waiting@1');
select test.equal('a late acceptance settles what nobody has', pg_temp.settle_late(:g1, :handed, 0), '0 0 1');
select test.equal('what another has is marked', (select accepted_at::text from push.delivery where outbox_id = :handed), '2020-02-02 00:00:00+00');
select push.park(:g2, array[:handed]::bigint[], '{0}', '{8}', '{null}', '{null}', '{null}');
select test.equal('and ends when that one returns it', (select format('%s %s %s', outcome, reason, answered_at) from push.history
  where outbox_id = :handed and n = 0), '0 Hedged 2020-02-02 00:00:00+00');
select test.equal('which is counted', (select format('%s %s %s', outcome, reason, count) from push.tally where what = 'ended' and reason = 'Hedged'),
  '0 Hedged 1');

select test.call('handed-2', 1) as handed \gset
select pg_temp.claim(:g1, 8), pg_temp.hand_on(:g1, :handed, 0, 8);
select pg_temp.claim(:g2, 8), push.park(:g2, array[:handed]::bigint[], '{0}', '{8}', '{null}', '{null}', '{null}');
select test.equal('what another has released is ready for everybody', pg_temp.claim(:g1, 9), 1::bigint);
update push.delivery set handed_on_by = array[:g1, :g2] where outbox_id = :handed;
select pg_temp.hand_on(:g1, :handed, 0, 9);
select test.equal('who hands it on a second time begins a round', (select handed_on_by from push.delivery where outbox_id = :handed), array[:g1]);
update push.delivery set state = 1, owner = :g2, lease = 9 where outbox_id = :handed;
select pg_temp.hand_on(:g2, :handed, 0, 9);
select test.equal('another one joins it', (select handed_on_by from push.delivery where outbox_id = :handed), array[:g1, :g2]);
update push.delivery set crashes = 2, ready_lane = null where outbox_id = :handed and n = 0;
select test.equal('a suspect avoids its gateway, too', pg_temp.claim(:g1, 9), 0::bigint);
update push.delivery set due_at = clock_timestamp() where outbox_id = :handed and n = 0;
select test.equal('when it is due, its gateway claims it without a job', pg_temp.claim(:g1, 9), 1::bigint);
update push.delivery set due_at = clock_timestamp() + interval '1 hour' where outbox_id = :handed;
select push.disown(:g1, array[:handed]::bigint[], '{0}', '{9}');
select test.equal('what is given up is due at once, whoever had it', pg_temp.claim(:g2, 9), 1::bigint);
-- Another one joins a round: the wait of the one before, its own, and the seconds after which one of those that had it may have it again.
create function pg_temp.joins(p_gateway int, p_had int[], p_wait interval, p_ms int) returns text language plpgsql as $$
declare
  v_row push.delivery;
begin
  update push.delivery d set state = 1, owner = p_gateway, lease = 9, handed_on_by = p_had, due_at = clock_timestamp() + p_wait
    where d.outbox_id = (select id from push.outbox where call_id = 'handed-2') returning d.* into v_row;
  perform push.park(p_gateway, array[v_row.outbox_id], array[v_row.n], '{9}', '{1}', array[p_ms], '{x}', null, '{true}');
  return (select round(extract(epoch from d.due_at - d.handed_on_at), 1)
    from push.delivery d where d.outbox_id = v_row.outbox_id);
end
$$;
select test.equal('one that was told to wait keeps it from nobody else in the round', format('%s %s %s', pg_temp.joins(:g2, array[:g1], '60 s', 1000),
  pg_temp.joins(:g2, array[:g1], '3 s', 60000), pg_temp.joins(:g2, array[:g1], '-1 s', 60000)), '1.0 3.0 0.3');
select test.equal('all that were told wait, and who begins a round waits for as long as it was told', format('%s %s %s',
  pg_temp.joins(:g2, array[:g1], '50 s', 60000), pg_temp.joins(:g2, array[:g2, :g1], '1 s', 60000), pg_temp.joins(:g2, null, '1 s', 60000)),
  '50.0 60.0 60.0');
delete from push.delivery where outbox_id = :handed;

-- A lane that is sick there.
create function pg_temp.claim_last(p_gateway int, p_claim int, p_last bigint) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, p_claim, array(select id from push.lane where app = 'default'), array_fill(9, array[9]),
    array_fill('-infinity'::timestamptz, array[9]), p_later_max => array_fill(9, array[9]), p_last => array[p_last]::smallint[]) $$;
select test.call('left', 2) as left, (select id from push.lane where app = 'default' and provider = 'fcm') as fcm \gset
update push.delivery set due_at = clock_timestamp() + interval '1 hour', handed_on_at = clock_timestamp() + interval '1 minute',
  handed_on_by = case n when 1 then array[:g2] end where outbox_id = :left;
select test.equal('it claims nothing that is new, or was just handed on', pg_temp.claim_last(:g1, 9, :fcm), 0::bigint);
update push.delivery set handed_on_at = clock_timestamp() - interval '100 ms' where outbox_id = :left and n = 1;
select test.equal('it claims what was handed on, and left for 100 ms', pg_temp.claim_last(:g1, 9, :fcm), 1::bigint);
select test.equal('which one', pg_temp.owed('left'), '0:ready@0 1:claimed@1');
update push.delivery set crashes = 2, ready_lane = null where outbox_id = :left and n = 0;
select test.equal('a new suspect is left to others, too', pg_temp.claim_last(:g1, 9, :fcm), 0::bigint);
update push.delivery set crashes = 0, ready_lane = lane, deadline_at = clock_timestamp() + interval '1 hour' where outbox_id = :left and n = 0;
select test.equal('and what is not urgent', pg_temp.claim_last(:g1, 9, :fcm), 0::bigint);
select test.equal('the other lanes are as always', pg_temp.claim_last(:g1, 9, 0), 1::bigint);
update push.delivery set state = 0, owner = null, due_at = clock_timestamp() - interval '100 ms' where outbox_id = :left and n = 0;
select test.equal('it claims what others have left for 100 ms', pg_temp.claim_last(:g1, 9, :fcm), 1::bigint);
select test.equal('of those that are sick, the one comes first that had it longest ago', (
  select string_agg(push.is_offered(r, g.id, array[:fcm]::smallint[])::text, ' ' order by waited, g.i)
  from unnest('{150 ms,200 ms}'::interval[]) waited, unnest(array[:g1, :g2]) with ordinality g(id, i), push.delivery d
  cross join lateral jsonb_populate_record(d, jsonb_build_object('handed_on_by', array[:g2, :g1], 'due_at', statement_timestamp() - waited)) r
  where d.outbox_id = :left and d.n = 0), 'false true true true');
update push.delivery set state = 0, owner = null, due_at = clock_timestamp() + interval '1 hour', handed_on_at = clock_timestamp(),
  handed_on_by = case n when 1 then array[:g2] end where outbox_id = :left;
select test.equal('where it wants new ones, it does not claim what was handed on', pg_temp.claim_last(:g1, 9, -:fcm), 1::bigint);
select test.equal('which one', pg_temp.owed('left'), '0:claimed@3 1:waiting@1');
update push.delivery set attempt = 0, due_at = clock_timestamp() where outbox_id = :left and n = 1;
select test.equal('unless it was handed on without a try', pg_temp.claim_last(:g1, 9, -:fcm), 1::bigint);
delete from push.delivery where outbox_id = :left;

-- Forget.
select test.call('lost', 2) as lost \gset
select test.equal('claimed, and the answer lost', pg_temp.claim(:g1, 10), 2::bigint);
select test.equal('another''s claim is not ours to forget', push.forget(:g2, 10), 0::bigint);
select test.equal('forget returns the deliveries of the claim', push.forget(:g1, 10), 2::bigint);
select test.equal('with the attempt', pg_temp.owed('lost'), '0:ready@0 1:ready@0');
select test.equal('a second time it finds nothing', push.forget(:g1, 10), 0::bigint);
select test.equal('a later claim with its number takes nothing', pg_temp.claim(:g1, 10), 0::bigint);
select test.equal('nor one with a lower number', pg_temp.claim(:g1, 9), 0::bigint);
select test.equal('the next one does', pg_temp.claim(:g1, 11), 2::bigint);
select test.equal('forgetting an earlier one leaves it alone', push.forget(:g1, 10), 0::bigint);
select push.end_call('lost', 'busy'); select test.follow();
select test.equal('the call has ended meanwhile', push.forget(:g1, 11), 2::bigint);
select test.equal('its invites wait for a gateway that settles them as void', pg_temp.owed('lost'), '0:ready@0 1:ready@0');
delete from push.delivery where outbox_id = :lost;
select test.call('unseen', 2) as unseen \gset
select test.equal('one that is barred before it begins', push.forget(:g1, 12), 0::bigint);
select test.equal('takes nothing', pg_temp.claim(:g1, 12), 0::bigint);
select test.equal('all lanes are right', pg_temp.right_lanes(), 0::bigint);

-- Calls that no longer ring for some. Nobody has followed up yet what the backends did.
insert into push.outbox (payload, recipients) select jsonb_build_object('callId', c, 'from', 'x'), jsonb_build_array(
  jsonb_build_object('userId', 'a', 'fcmToken', 'over-token-0123456789-a' || c), jsonb_build_object('userId', 'b', 'fcmToken',
  'over-token-0123456789-b' || c)) from unnest('{ended,answered,missed,one,both,busy,deleted}'::text[]) c;
select id as deleted from push.outbox where call_id = 'deleted' \gset
select push.end_call('ended'), push.answer_call('answered', 'a'), push.decline_call('one', 'a'), push.decline_call('busy', 'b', reason => 'busy'),
  push.decline_call('both', 'b'), push.decline_call('both', 'a');
update push.outbox set state = 'missed' where call_id = 'missed';
delete from push.outbox where id = :deleted;
create temp table seen as select * from push.claim(:g1, 13, array(select id from push.lane where app = 'default'), '{99}', '{-infinity}');
select test.equal('the claim says which calls are over, and who has declined, once for each call',
  (select string_agg(format('%s %s %s', coalesce(call_id, 'none'), ended, declined), ', ' order by call_id)
  from seen where ended is not null and call_id <> 'unseen'),
  'answered t , both f ["a", "b"], busy f ["b"], ended t , missed t , one f ["a"]');
select test.equal('of a call that was deleted, that it is over', (select string_agg(concat_ws(' ', ended, call_id, declined), ', ')
  from seen where outbox_id = :deleted and ended is not null), 't');
select test.equal('on no other row', (select count(*) from seen where ended is null and (declined, call_id) is distinct from (null, null)),
  0::bigint);
select push.settle(:g1, array_agg(place), array_agg(outbox_id), array_agg(n), array_agg(13), array_agg(0), array_agg(2::smallint),
  array_agg(null::smallint), array_agg(null::text), array_agg(null::text), array_agg(null::text), array_agg(null::timestamptz),
  array_agg(null::timestamptz))
  from seen where outbox_id in (select id from push.outbox where call_id not in ('unseen', 'one', 'busy')) or user_id = 'a'
    or outbox_id = (select id from push.outbox where call_id = 'busy');
select test.equal('such an invite becomes void, for its own reason', (select string_agg(concat_ws(' ', coalesce(call_id, 'none'), user_id, outcome,
  reason),
  ', ' order by call_id, user_id) from push.delivery_history where outcome = 'void'),
  'answered a void CallAnswered, answered b void CallAnswered, both a void UserDeclined, both b void UserDeclined, '
  'busy a void CallEnded, busy b void UserBusy, ended a void CallEnded, ended b void CallEnded, '
  'missed a void CallMissed, missed b void CallMissed, one a void UserDeclined, none a void CallEnded');
select push.settle(:g1, null, array[outbox_id], array[n], '{13}', '{0}', '{2}', '{null}', '{ItsReason}', '{null}', '{null}', '{null}', '{null}')
  from seen where outbox_id = (select id from push.outbox where call_id = 'one') and user_id = 'b';
select test.equal('a reason that the gateway gives is kept', (select reason from push.delivery_history where call_id = 'one' and user_id = 'b'),
  'ItsReason');
select test.follow();
select test.equal('nothing was sent: no phone is told', (select count(*) from push.delivery where kind = 1), 0::bigint);
select test.equal('of the deleted call nothing is owed', (select count(*) from push.delivery where outbox_id = :deleted), 0::bigint);
delete from push.delivery where kind = 2;
select push.forget(:g1, 13);

-- What a release that remembered settlements calls.
select test.equal('nothing is claimed again', (select count(*) from push.reclaim(:g1, 14, array[:unseen::bigint], '{0}')), 0::bigint);
select test.equal('nobody must', (select alive and not must_reclaim from push.beat(:g1, false)), true);
select push.confirm_reclaimed(:g1);
select test.equal('and claims are open', (select state || ' ' || value from push.health where item = 'claims'), 'ok open');

-- Claimed in a gateway's name, and unknown to it: a fail-over has lost what it had settled.
select push.register_app('strays', 60), push.register_app('again', 60, null, true);
create temp table stray (outbox_id bigint, app text);
insert into stray select test.call('stray-' || a, 1, a), a from unnest('{strays,again}'::text[]) a;
insert into push.outbox (app, kind, payload, recipients) select a, 'message',
  jsonb_build_object('from', 'x', 'chatId', 'y', 'messageId', 'word-' || a), '[{"userId": "u", "fcmToken": "stray-token-0123456789"}]'
  from unnest('{strays,again}'::text[]) a;
insert into stray select id, app from push.outbox where kind = 'message' and app in ('strays', 'again');
create function pg_temp.take(p_gateway int) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, 15, array(select id from push.lane where app in ('strays', 'again')), array_fill(9, array[9]),
    array_fill('-infinity'::timestamptz, array[9]), p_later_floor => array_fill('-infinity'::timestamptz, array[9]), p_later_max => array_fill(9,
      array[9])) $$;
select test.equal('two invites are claimed, then two messages', pg_temp.take(:g1) || ' ' || pg_temp.take(:g1), '2 2');
create function pg_temp.disown(p_gateway int, p_lease int) returns bigint language sql as $$
  select push.disown(p_gateway, array_agg(d.outbox_id), array_agg(d.n), array_agg(p_lease)) from push.delivery d join stray using (outbox_id) $$;
select test.equal('of another gateway, or another claim: none', pg_temp.disown(:g2, 15) || ' ' || pg_temp.disown(:g1, 14), '0 0');
select test.equal('its own: all', pg_temp.disown(:g1, 15), 4::bigint);
select test.equal('what people see is not sent again, except in an app that is at_least_once',
  (select string_agg(concat_ws(':', app, kind, state, attempt), ' ' order by app, kind) from push.deliveries join stray using (outbox_id, app)),
  'again:invite:ready:1 again:notification:ready:1 strays:invite:ready:1');
select test.equal('but ends as dead', (select string_agg(concat_ws(':', app, kind, outcome, reason), ' ') from push.delivery_history join stray
  using (outbox_id, app)), 'strays:notification:dead:GatewayCrashed');
select test.equal('nobody counts a crash', (select max(crashes) from push.delivery), 0::smallint);
select test.equal('once more there are none', pg_temp.disown(:g1, 15), 0::bigint);
select test.equal('all lanes are right', pg_temp.right_lanes(), 0::bigint);
delete from push.delivery where outbox_id in (select outbox_id from stray);

-- The deliveries of a gateway, in parts of the table.
select test.call('wide-' || i, 50, p_ring => 600) from generate_series(1, 4) i;
select test.equal('a wide claim', pg_temp.claim(:g1, 20, 120), 120::bigint);
select test.equal('and another''s', pg_temp.claim(:g2, 22, 30), 30::bigint);
create temp table held (outbox_id bigint, n int, lease int, bite int);
do $$
declare
  v_bite record; v_page bigint := 0; v_count int := 0; v_gateway int := (select max(id) from push.gateways where name = 'one');
begin
  loop
    select * into v_bite from push.claimed_by(v_gateway, v_page, 2);
    v_count := v_count + 1;
    insert into held select b.o, b.n, b.l, v_count from unnest(v_bite.outbox_id, v_bite.n, v_bite.lease) b(o, n, l);
    v_page := v_bite.next_page;
    exit when v_page is null or v_count > 1000;
  end loop;
end $$;
select test.equal('bite by bite all that is ours is found', (select format('%s %s', count(*),
  count(*) filter (where d.owner = :g1 and d.lease = h.lease)) from held h join push.delivery d using (outbox_id, n)), '120 120');
select test.equal('in several', (select count(distinct bite) > 1 from held), true);
select test.equal('past the end there is nothing', (select format('%s %s', outbox_id, next_page) from push.claimed_by(:g1, 1000000)), '{} ');

-- Notifications are hints.
select test.call('rings', 1) as rings, test.call('over', 1) as over, test.call('half', 2) as half \gset
select push.end_call('over', 'busy'), push.decline_call('half', 'u2');
select test.equal('push.ended_for names the calls that have ended or do not exist, and the users who have declined one that rings',
  (select string_agg(coalesce(c.name, 'none') || coalesce('/' || e.user_id, ''), ' ' order by c.name)
  from push.ended_for(array[:rings, :over, :half, -1, null]::bigint[]) e
  left join (values (:rings, 'rings'), (:over, 'over'), (:half, 'half')) c(id, name) on c.id = e.outbox_id), 'half/u2 over none');
select test.equal('without calls the result is empty', (select count(*) from push.ended_for('{}')), 0::bigint);
select test.equal('to an earlier release, push.ended names the calls', push.ended(array[:rings, :over, -1, null]::bigint[]), array[:over,
  -1]::bigint[]);
select test.equal('of none, none', push.ended('{}'), '{}'::bigint[]);

-- Commits that must not be lost, in a session that does not wait for the disk.
create function pg_temp.is_durable() returns boolean language plpgsql as $$
declare
  v_was text := current_setting('synchronous_commit');
begin
  perform set_config('synchronous_commit', 'off', true);
  return v_was = 'on';
end $$;
set local synchronous_commit = off;
select test.call('durable', 2) as durable, test.call('durable-2', 1) as durable_2 \gset
select test.equal('a call is enqueued as its backend wants', pg_temp.is_durable(), false);
select push.register_gateway('four', '1') as g4 \gset
select test.equal('a new gateway is on the disk', pg_temp.is_durable(), true);
select push.retire_gateway(:g4);
select test.equal('so is its end', pg_temp.is_durable(), true);
select pg_temp.claim(:g1, 36), push.beat(:g1, true);
select test.equal('claims and heartbeats are not', pg_temp.is_durable(), false);
select push.end_call('durable-2', 'busy');
select test.equal('the end of a call is as its backend wants, too', pg_temp.is_durable(), false);
set local synchronous_commit = remote_apply;
select push.register_gateway('five', '1');
select test.equal('a session with a stronger setting keeps it', current_setting('synchronous_commit'), 'remote_apply');
reset synchronous_commit;
select test.equal('all lanes are right', pg_temp.right_lanes(), 0::bigint);
