-- One user is erased from every table; other data stays.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 60) || p_end $$;
create function pg_temp.claim_all(p_gateway int, p_claim int) returns bigint language sql as $$
  select count(*) from push.claim(p_gateway, p_claim, array(select id from push.lane order by id), array_fill(99, array[99]),
    array_fill('-infinity'::timestamptz, array[99])) $$;
-- Settles all claimed deliveries of a call, with a ticket for each Expo push.
create function pg_temp.settle(p_call text, p_user text default null, p_outcome int default 0, p_provider text default '.') returns bigint
  language sql as $$
  select sum(push.settle(d.owner, null, array[d.outbox_id], array[d.n], array[d.lease], array[1], array[p_outcome]::smallint[],
    array[200]::smallint[],
    array['x'], array['message-of-' || right(d.token, 6)], array[p_call], array[clock_timestamp()], array[clock_timestamp()],
    array['[{"at": "2026-01-01T00:00:00Z", "attempt": 1, "status": 503, "reason": "Busy"}]'],
      array[case when l.provider = 'expo' then 1000 end]))::bigint
  from push.delivery d join push.outbox o on o.id = d.outbox_id join push.lane l on l.id = d.lane
  where o.call_id = p_call and d.state = 1 and (p_user is null or d.user_id = p_user) and l.provider ~ p_provider $$;
create function pg_temp.owed(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s', user_id, kind, state), ' ' order by user_id, n) from push.deliveries where call_id = p_call $$;
create function pg_temp.past(p_call text) returns text language sql as $$
  select string_agg(format('%s:%s:%s', user_id, kind, coalesce(reason, outcome)), ' ' order by user_id, n) from push.delivery_history
    where call_id = p_call $$;

-- Gateways continue the erasures, later.
create function pg_temp.go_on() returns void language plpgsql as $$
begin
  for i in 1..100 loop
    update push.erasure set looked_at = looked_at - interval '1 minute';
    exit when not push.finish_erasures() and not exists (
      select from push.erasure e where e.finished_at is null and (e.scanned_at is null or e.found <> '{}'));
  end loop;
end $$;

-- Values that must not be found: an id, tokens, their masks and hashes. The text of a row contains all its columns.
create function pg_temp.needles(p_user text, p_end text) returns table (needle text) language sql as $$
  select unnest(array[p_user, encode(convert_to(p_user, 'UTF8'), 'hex')])
  union all
  select unnest(array[t, left(t, 4) || '…' || right(t, 4), hashtextextended(t, 0)::text, encode(convert_to(t, 'UTF8'), 'hex'),
    encode(sha256(convert_to(t, 'UTF8')), 'hex')])
  from unnest(array[pg_temp.hex(p_end || '1'), pg_temp.hex(p_end || '2'), 'erasure-token-0123456789-' || p_end || '3',
    'ExponentPushToken[erasure-' || p_end || '4]',
    'erasure-token-0123456789-' || p_end || '5', 'ExponentPushToken[erasure-' || p_end || '6]']) t $$;
create function pg_temp.found(p_user text, p_end text) returns text language plpgsql as $$
declare
  v_table text; v_count bigint; v_found text[] := '{}';
begin
  for v_table in select c.relname from pg_class c where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
    order by 1 loop
    execute format('select count(*) from push.%I x where exists (select from pg_temp.needles($1, $2) n where strpos(x::text, n.needle) > 0)',
      v_table) into v_count using p_user, p_end;
    if v_count > 0 then v_found := v_found || v_table; end if;
  end loop;
  return array_to_string(v_found, ' ');
end $$;
-- The rows of another user.
create function pg_temp.rows_of(p_user text) returns text language plpgsql as $$
declare
  v_table text; v_rows text; v_all text := '';
begin
  for v_table in select c.relname from pg_class c where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
      and c.relname not in ('outbox', 'receipt_batch') order by 1 loop
    execute format('select string_agg(x::text, E''\n'' order by x::text) from push.%I x where strpos(x::text, $1) > 0', v_table) into v_rows
      using p_user;
    v_all := v_all || v_table || ': ' || coalesce(v_rows, '') || E'\n';
  end loop;
  return v_all;
end $$;
create function pg_temp.entries() returns text language sql as $$
  select string_agg(format('%s: %s %s', o.call_id, o.payload, (select string_agg(e::text, ' ' order by i) from jsonb_array_elements(o.recipients)
    with ordinality r(e, i) where e::text ~ 'bystander')), E'\n' order by o.id)
    || (select count(*) from push.receipt_batch r cross join unnest(r.user_id) u where u = 'bystander')
  from push.outbox o where o.call_id <> 'caller' $$;

-- Fills every table: u is to be erased; v has the same kinds of rows, and rings together with u.
select push.register_app('erase', 600, 1, false, null, 'all', true) \g /dev/null
select push.register_lane('erase', p), push.register_lane('other', p) from unnest('{apns,fcm,expo}'::text[]) p \g /dev/null
select push.set_webhooks('{erase}', '{hook.example}', '{digest}', array[null]::text[]) \g /dev/null
select push.register_gateway('erasure', '1') as g \gset
create function pg_temp.fill(p_user text, p_end text) returns void language sql as $$
  select push.register_device(p_user, 'erase', 'apns', pg_temp.hex(p_end || '1'), platform => 'ios'),
    push.register_device(p_user, 'erase', 'apns', pg_temp.hex(p_end || '2'), voip => false),
    push.register_device(p_user, 'erase', 'fcm', 'erasure-token-0123456789-' || p_end || '3', platform => 'android'),
      push.register_device(p_user, 'erase', 'expo', 'ExponentPushToken[erasure-' || p_end || '4]'),
    push.register_device(p_user, 'other', 'fcm', 'elsewhere-token-0123456789-' || p_end) $$;
select pg_temp.fill('victim.7731', 'bad'), pg_temp.fill('bystander', 'cab') \g /dev/null
create function pg_temp.entry(p_user text, p_end text) returns jsonb language sql as $$
  select jsonb_build_object('userId', p_user, 'fcmToken', 'erasure-token-0123456789-' || p_end || '5', 'pushToken',
    'ExponentPushToken[erasure-' || p_end || '6]', 'locale', 'pt-BR', 'data', jsonb_build_object('flat', p_user)) $$;
create function pg_temp.family(p_call text, p_kind text default 'incoming_call', p_from text default 'door') returns void language sql as $$
  insert into push.outbox (app, kind, payload, recipients) values ('erase', p_kind,
    jsonb_build_object('callId', p_call, 'from', p_from, 'fromName', 'N ' || p_from, 'chatId', 'chat'),
    jsonb_build_array(pg_temp.entry('victim.7731', 'bad'), pg_temp.entry('bystander', 'cab'), 'victim.7731', 'bystander')) $$;

-- Answered by u, and finished.
select pg_temp.family('answered') \g /dev/null
select pg_temp.claim_all(:g, 1), pg_temp.settle('answered'), push.report_ringing('answered', 'victim.7731'),
  push.report_ringing('answered', 'bystander'),
  push.answer_call('answered', 'victim.7731', device => 'erasure-token-0123456789-bad5') \g /dev/null
select test.follow();
select pg_temp.claim_all(:g, 2), pg_temp.settle('answered') \g /dev/null
-- Declined by both, escalated, with a fallback.
select pg_temp.family('declined') \g /dev/null
select pg_temp.claim_all(:g, 3), pg_temp.settle('declined') \g /dev/null
select test.follow();
update push.follow_ups set due_at = now() - interval '1 s' where why = 'unheard';
select test.follow();
select pg_temp.claim_all(:g, 4), pg_temp.settle('declined') \g /dev/null
select test.follow();
select push.decline_call('declined', u, device => d) from (values ('victim.7731', 'erasure-token-0123456789-bad5'), ('bystander', null)) x(u,
  d) \g /dev/null
select test.follow();
select pg_temp.claim_all(:g, 5), pg_temp.settle('declined') \g /dev/null
-- A call from u with nothing owed, and a call of another app by another user with this id.
select pg_temp.family('caller', p_from => 'victim.7731') \g /dev/null
select push.end_call('caller', 'busy') \g /dev/null
select test.follow();
select pg_temp.claim_all(:g, 6), pg_temp.settle('caller') \g /dev/null
insert into push.outbox (app, payload, recipients) values ('other', '{"callId": "elsewhere", "from": "victim.7731"}', '["victim.7731"]');
-- Receipts, dead and quarantined tokens, notes of operators.
create function pg_temp.dead(p_user text, p_end text) returns void language sql as $$
  insert into push.token_invalidations (app, provider, token, user_id, reason)
    values ('erase', 'fcm', 'old-erasure-token-' || p_user, p_user, 'UNREGISTERED'),
    ('erase', 'fcm', 'erasure-token-0123456789-' || p_end || '5', null, 'UNREGISTERED'),
    ('other', 'fcm', 'old-elsewhere-token-' || p_end, p_user, 'UNREGISTERED');
  insert into push.quarantined_tokens (app, provider, token, user_id, since, reason)
    values ('erase', 'fcm', 'old-erasure-token-' || p_user, p_user, now(), 'x'),
    ('erase', 'expo', 'ExponentPushToken[erasure-' || p_end || '6]', null, now(), 'x');
  insert into push.audit (action, target, detail)
    values ('void_call', 'erase/' || p_user, jsonb_build_object('note', 'asked for by ' || p_user, 'user', p_user)) $$;
select pg_temp.dead('victim.7731', 'bad'), pg_temp.dead('bystander', 'cab') \g /dev/null
insert into push.audit (action, target, detail)
  values ('void_call', 'other/victim.7731', '{"note": "victim.77312"}'), ('x', 'erase/victim.77312', null);
-- Owed: a message, a call that rings with an invite in flight, one delivered and one not sent, and a missed call.
select pg_temp.family('message', 'message'), pg_temp.family('missed') \g /dev/null
select push.end_call('missed') \g /dev/null
select test.follow();
select pg_temp.family('rings') \g /dev/null
update push.follow_ups set due_at = 'infinity' where why = 'unheard';
select pg_temp.claim_all(:g, 7), pg_temp.settle('rings', 'bystander'), pg_temp.settle('rings', 'victim.7731', p_provider => 'fcm') \g /dev/null
select test.follow();
-- A call that was deleted: its history stays.
select pg_temp.family('deleted') \g /dev/null
select pg_temp.claim_all(:g, 8) \g /dev/null
select pg_temp.settle('deleted') \g /dev/null
delete from push.outbox where call_id = 'deleted';

insert into push.unreached select o.app, 'victim.7731', o.id from push.outbox o where o.call_id = 'rings' \g /dev/null
-- The tables: fails if a table that can contain a user or a token is not filled here.
select test.equal('every table that can name a user, or hold a token, is filled by this test',
  string_agg(distinct c.table_name, ' ' order by c.table_name),
  'delivery devices escalations history outbox quarantined_tokens receipt_batch ring_reports token_invalidations unreached webhook_event')
from information_schema.columns c join pg_class r on r.relname = c.table_name and r.relnamespace = 'push'::regnamespace and r.relkind in ('r', 'p')
  and not r.relispartition
where c.table_schema = 'push' and c.column_name ~ 'user|token|device|recipient|payload|answered_by|declined|locale'
  -- The providers' own tokens, digests until an erasure is finished, and numbers.
  and c.table_name not in ('provider_tokens', 'erasure', 'quota', 'quota_of_replica');
select test.equal('and is found to be', pg_temp.found('victim.7731', 'bad'),
  'audit delivery devices escalations history outbox quarantined_tokens receipt_batch ring_reports token_invalidations unreached webhook_event');
create temp table before as select pg_temp.rows_of('bystander') as bystander, pg_temp.rows_of('elsewhere') as elsewhere, pg_temp.entries() as entries;
select test.equal('a call that rings: u''s invites are in flight', pg_temp.owed('rings') ~ 'victim.7731:invite:claimed', true);

-- Erased. Some compared times are those of the transaction, so the search is for names.
create temp table said as select * from push.erase_user('victim.7731', 'erase', 60000); select test.follow();
select test.equal('it returns its counts, table by table', (select string_agg(place, ' ') from said where removed + masked > 0),
  'devices delivery outbox history ring_reports escalations receipt_batch token_invalidations quarantined_tokens webhook_event audit');
select test.equal('to its end, but for the call that rings', (select bool_and(is_complete) || ' ' || sum(waiting) from said), 'true 1');
select test.equal('another user''s rows are as they were', pg_temp.rows_of('bystander'), (select bystander from before));
select test.equal('another app''s, too', pg_temp.rows_of('elsewhere'), (select elsewhere from before));
select test.equal('and their part in calls and tickets', pg_temp.entries(), (select entries from before));
select test.equal('a payload that named u keeps the call''s id only', (select payload from push.outbox where call_id = 'caller'),
  '{"callId": "caller", "chatId": "chat", "from": "[erased]"}'::jsonb);
select test.equal('unsent deliveries are void, those of other users are owed',
  pg_temp.owed('message') || ' ' || pg_temp.owed('missed') ~ 'victim', false);
select test.equal('the others'' message is still owed', pg_temp.owed('message') ~ '^(bystander:notification:ready ?)+$', true);
select test.equal('their missed call, too', pg_temp.owed('missed') ~ 'bystander:missed_call:ready', true);
select test.equal('u''s phones get a cancel for each claimed and each delivered invite',
  (select count(*) filter (where d.kind = 0) || ' ' || count(*) filter (where d.kind = 1) from push.delivery d join push.outbox o
  on o.id = d.outbox_id where call_id = 'rings' and user_id = 'victim.7731'), '2 3');
select test.equal('the call rings on for the others', (select state from push.outbox where call_id = 'rings'), 'ringing');
select test.equal('a VoIP token gets one, too', (select count(*) from push.delivery d join push.outbox o on o.id = d.outbox_id join push.lane l
  on l.id = d.lane where call_id = 'rings' and d.kind = 1 and l.provider = 'apns' and user_id = 'victim.7731'), 1::bigint);
select test.equal('no device is left', (select count(*) from push.devices where user_id = 'victim.7731' and app = 'erase'), 0::bigint);
select test.equal('u is found only where the call that rings needs it, and as a digest', pg_temp.found('victim.7731', 'bad'),
  'audit delivery devices erasure history outbox token_invalidations');

-- A gateway returns the invites and sends the cancels, however late it is.
update push.delivery set deadline_at = 'infinity' where kind = 1;
select test.equal('which calls a gateway is to give back', push.ended(array(select id from push.outbox where call_id = 'rings')) <> '{}', true);
select pg_temp.go_on() \g /dev/null
select test.follow();
select test.equal('claimed deliveries are waited for', (select cardinality(waiting) from push.erasure), 1);
select pg_temp.settle('rings', 'victim.7731') \g /dev/null
select pg_temp.claim_all(:g, 9), pg_temp.settle('rings', 'victim.7731') \g /dev/null
-- Meanwhile a provider reported one of u's tokens as dead.
select push.invalidate_tokens(array(select id from push.lane where app = 'erase' and provider = 'fcm'), '{erasure-token-0123456789-bad3}', '{null}',
  '{UNREGISTERED}') \g /dev/null
select pg_temp.go_on() \g /dev/null
select test.follow();
select test.equal('then the call waits until it has ended: the decline must be found',
  (select cardinality(waiting) from push.erasure) || ' ' || (select (declined ? 'victim.7731') || ' ' || state from push.outbox
  where call_id = 'rings'), '1 true ringing');
update push.follow_ups set due_at = now() - interval '1 s' where why = 'unheard';
select test.follow();
select test.equal('so u is not rung on another channel', (select count(*) from push.deliveries where call_id = 'rings'
  and user_id in ('victim.7731', '[erased]')), 0::bigint);
select push.decline_call('rings', 'bystander') \g /dev/null
select test.follow();
select test.equal('the others may decline it, and that ends it', (select state = 'ended' from push.outbox where call_id = 'rings'), true);
select pg_temp.claim_all(:g, 10), pg_temp.settle('rings'), pg_temp.go_on() \g /dev/null
select test.follow();
select test.equal('then it is masked', (select waiting = '{}' and finished_at is null from push.erasure)
  and (select recipients::text !~ 'victim' and declined ?& '{bystander,[erased]}' and not declined ? 'victim.7731' from push.outbox
  where call_id = 'rings'), true);
insert into push.ring_reports select id, 'victim.7731' from push.outbox where call_id = 'rings';
update push.erasure set asked_at = asked_at - interval '11 minutes', looked_at = looked_at - interval '1 minute';
select push.run_job('erase') \g /dev/null
select test.equal('and ten minutes later it is finished', (select finished_at is not null and token_hashes = '{}' from push.erasure), true);
delete from push.outbox where app = 'other'; select test.follow();
delete from push.devices where app = 'other' and user_id = 'victim.7731';
delete from push.token_invalidations where app = 'other' and user_id = 'victim.7731';
delete from push.audit where target in ('other/victim.7731', 'erase/victim.77312');
select test.equal('u is found nowhere', pg_temp.found('victim.7731', 'bad'), '');

-- Again, in steps, and for an unknown user.
create temp table again as select * from push.erase_user('victim.7731', 'erase', 60000);
select test.equal('again there is nothing to do', (select sum(removed + masked + waiting) || ' ' || bool_and(is_complete) from again), '0 true');
select test.equal('each time is written down, without the name', (select count(*) || ' ' || min(detail ->> 'complete') from push.audit
  where action = 'erase_user' and target = 'erase/sha256:' || left(encode(sha256('victim.7731'), 'hex'), 16)), '2 true');
create function pg_temp.bites(p_user text) returns text language plpgsql as $$
declare
  v_bites int := 0; v_complete boolean := false; v_removed bigint;
begin
  while not v_complete and v_bites < 10000 loop
    v_bites := v_bites + 1;
    select bool_and(e.is_complete), sum(e.removed + e.masked) into v_complete, v_removed from push.erase_user(p_user, 'erase', 0) e;
  end loop;
  return format('%s %s', v_bites > 1, v_removed > 0);
end $$;
select pg_temp.found('bystander', 'cab') \g /dev/null
select test.equal('a step continues where the last one ended, and counts are those of the pass', pg_temp.bites('bystander'), 't t');
select pg_temp.claim_all(:g, 20) \g /dev/null
select pg_temp.settle(call_id) from push.outbox where app = 'erase' \g /dev/null
select test.follow();
select pg_temp.go_on() \g /dev/null
select test.follow();
delete from push.outbox where app = 'other';
delete from push.devices where app = 'other';
delete from push.token_invalidations where app = 'other';
update push.erasure set asked_at = asked_at - interval '11 minutes';
select pg_temp.go_on() \g /dev/null
select test.follow();
select test.equal('the other user is erased in bites', pg_temp.found('bystander', 'cab'), '');
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
select test.equal(format('no user: %s', u), pg_temp.error(format('select push.erase_user(%L, %L)', u, 'erase')),
  '22023 user_id: must have 1 to 256 characters') from unnest(array[null, '', repeat('x', 257), '[erased]']) u;
select test.equal('no app', pg_temp.error($$select push.erase_user('u', 'not an app')$$),
  '22023 app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores');
select test.equal('an id of signs that mean something elsewhere', (select bool_and(is_complete) from push.erase_user(E'.*"\\[%_$1', 'erase', 60000)),
  true);

-- An id that looks like JSON breaks no value, and only words in strings are masked.
create function pg_temp.erase_odd(p_user text) returns text language plpgsql as $$
declare
  v_id bigint; v_after text;
begin
  insert into push.devices (app, user_id, provider, token) values ('erase', p_user, 'fcm', 'odd-token-0123456789-' || md5(p_user));
  insert into push.outbox (app, payload, recipients) values ('erase',
    jsonb_build_object('callId', 'odd-' || md5(p_user), 'from', 'x', 'n', 10, 't', true, '0', '1'),
    jsonb_build_array(jsonb_build_object('userId', p_user, 'fcmToken', 'odd-token-0123456789-2', 'data', jsonb_build_object('a', 'b'))));
  perform push.end_call('odd-' || md5(p_user), 'busy', 'erase');
  insert into push.audit (action, target, detail) values ('x', 'erase/odd',
    jsonb_build_object('n', 0, 'ok', true, 'list', '["a", "b", 1]'::jsonb, 'note', 'by ' || p_user || ' again')) returning id into v_id;
  perform push.erase_user(p_user, 'erase', 60000);
  select a.target || a.detail into v_after from push.audit a where a.id = v_id;
  return v_after;
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
select test.equal(format('an id that looks like JSON: %s', u), pg_temp.erase_odd(u),
  'erase/odd' || jsonb_build_object('n', 0, 'ok', true, 'list', '["a", "b", 1]'::jsonb, 'note', 'by [erased] again')::text)
  from unnest('{0,1,true,":","\"","\\",note}'::text[]) u;
select test.equal(format('an id of signs between words: [%s]', u), pg_temp.erase_odd(u) ~ '^erase/odd\{.*"n": 0.*"list": \["a", "b", 1\]', true)
  from unnest(array[', ', ': ', '", "']) u;

-- Operators cannot rewrite the record: only ids of users are masked, and no app, lane, call or role.
insert into push.outbox (app, payload, recipients) values ('erase', '{"callId": "record-1", "from": "x"}', '["nobody"]');
create function pg_temp.record() returns text language sql as $$
  select string_agg(a.action || ' ' || a.target || ' ' || a.detail, E'\n' order by a.id) from push.audit a
    where a.action in ('void_call', 'pause_lane', 'grant_app') and a.at >= (select max(b.at) from push.audit b where b.action = 'record begins') $$;
insert into push.audit (action, target, at) values ('record begins', 'erase/x', clock_timestamp());
insert into push.audit (at, action, target, detail) values (clock_timestamp(), 'void_call', 'erase/record-1', '{"reason": "oops", "done": "voided"}'),
  (clock_timestamp(), 'pause_lane', 'erase/fcm', '{"note": "oops", "changed": true}'),
  (clock_timestamp(), 'grant_app', 'erase/clerk', '{"changed": true}');
create temp table recorded as select pg_temp.record() as lines;
select push.erase_user(u, 'erase', 60000) from unnest('{oops,erase,record-1,fcm,clerk,changed,note,voided,void_call}'::text[]) u \g /dev/null
select test.follow();
select test.equal('an unknown id is not masked anywhere', pg_temp.record(), (select lines from recorded));
select push.register_device(u, 'erase', 'fcm', 'record-token-0123456789-' || u)
  from unnest('{erase,record-1,fcm,clerk,changed,voided,sha256}'::text[]) u \g /dev/null
select push.erase_user(u, 'erase', 60000) from unnest('{erase,record-1,fcm,clerk,changed,voided,sha256}'::text[]) u \g /dev/null
select test.equal('nor does a user with such a name change the record of actions', pg_temp.record(), (select lines from recorded));
select test.equal('nor which user was erased', (select count(*) from push.audit where action = 'erase_user'
  and target !~ '^erase/sha256:[0-9a-f]{16}$'), 0::bigint);
select test.equal('nor is a call''s own id masked', (select payload ->> 'callId' from push.outbox where call_id = 'record-1'), 'record-1');

-- Two users of one phone have one delivery: erasing one of them does not end the call for the other.
insert into push.outbox (app, payload, recipients) values ('erase', '{"callId": "shared", "from": "x"}',
  '[{"userId": "first", "fcmToken": "shared-token-0123456789"}, {"userId": "second", "fcmToken": "shared-token-0123456789"}]');
select push.erase_user('first', 'erase', 60000) \g /dev/null
select test.follow();
select test.equal('an erasure ends no call with a user left who has not declined',
  (select state || ' ' || (declined ? 'first') from push.outbox where call_id = 'shared'), 'ringing true');
select push.decline_call('shared', 'second', 'erase') \g /dev/null
select test.follow();
select test.equal('but their own decline does', (select state from push.outbox where call_id = 'shared'), 'ended');

-- A token that another recipient of the call also has rings on as theirs, whether it is registered or in recipients.
create function pg_temp.tablet(p_call text, p_how text, p_kind text default 'incoming_call') returns void language plpgsql as $$
begin
  insert into push.devices (user_id, app, provider, token) values ('owner-' || p_call, 'erase', 'fcm', 'tablet-token-0123456789-' || p_call);
  insert into push.devices (user_id, app, provider, token) values ('parent', 'erase', 'fcm', 'parent-token-0123456789') on conflict do nothing;
  insert into push.outbox (app, kind, payload, recipients) values ('erase', p_kind, jsonb_build_object('callId', p_call, 'from', 'x', 'chatId', 'c'),
    jsonb_build_array(jsonb_build_object('userId', 'parent', 'fcmToken', 'tablet-token-0123456789-' || p_call, 'data', '{"flat": "parent"}'::jsonb),
      'parent',
      case p_how when 'registered' then to_jsonb('owner-' || p_call)
        else jsonb_build_object('userId', 'owner-' || p_call, 'fcmToken', 'tablet-token-0123456789-' || p_call, 'locale', 'de') end));
end $$;
create function pg_temp.tablets(p_call text) returns text language sql as $$
  select coalesce(string_agg(format('%s %s %s', d.kind, left(d.user_id, 6), coalesce(d.data ->> 'flat', '-')), ', ' order by d.kind, d.user_id),
    'nothing') from push.delivery d join push.outbox o on o.id = d.outbox_id
  where o.call_id = p_call and d.token ~ '^tablet' $$;
select pg_temp.tablet('tablet-1', 'registered'), pg_temp.tablet('tablet-2', 'named'), pg_temp.tablet('tablet-3', 'registered'),
  pg_temp.tablet('tablet-4', 'named'), pg_temp.tablet('tablet-5', 'registered', 'message'), pg_temp.tablet('tablet-6', 'registered') \g /dev/null
select test.equal('a tablet of two has one delivery, the first''s', pg_temp.tablets(c), '0 parent parent')
  from unnest('{tablet-1,tablet-2}'::text[]) c;
-- One invite is sent, one claimed, the others are unsent; users who have declined are not rung.
select push.decline_call('tablet-6', 'owner-tablet-6', 'erase'), pg_temp.claim_all(:g, 30), pg_temp.settle('tablet-3') \g /dev/null
select test.follow();
select push.release(:g, array_agg(d.outbox_id), array_agg(d.n), array_agg(d.lease)) from push.delivery d join push.outbox o on o.id = d.outbox_id
  where d.state = 1 and o.call_id ~ '^tablet-[1256]' \g /dev/null
select push.erase_user('parent', 'erase', 60000) \g /dev/null
select test.follow();
select test.equal(format('%s: its invite is the other''s now, with what the call says of them', c), pg_temp.tablets(c), '0 owner- -')
  from unnest('{tablet-1,tablet-2,tablet-4}'::text[]) c;
select test.equal('a message, too', pg_temp.tablets('tablet-5'), '3 owner- -');
select test.equal('one that a gateway had claimed for the first is a new one: the gateway voids that, as its user has declined',
  (select d.state || ' ' || (d.n > 1) from push.delivery d join push.outbox o on o.id = d.outbox_id
  where o.call_id = 'tablet-4' and d.token ~ '^tablet'), '0 true');
select test.equal('a tablet that rings is told nothing', pg_temp.tablets('tablet-3'), 'nothing');
select test.equal('but the other phone is', (select count(*) from push.delivery d join push.outbox o on o.id = d.outbox_id
  where o.call_id = 'tablet-3' and d.kind = 1 and d.token ~ '^parent'), 1::bigint);
select test.equal('a user who has declined gets nothing', pg_temp.tablets('tablet-6'), 'nothing');
select test.equal('the devices are the other''s still', (select count(*) || ' ' || bool_and(user_id ~ '^owner') from push.devices
  where token ~ '^(tablet|parent)-token'), '6 true');
select push.end_call('tablet-2', 'busy', 'erase'), pg_temp.claim_all(:g, 31), pg_temp.settle('tablet-4') \g /dev/null
select test.follow();
select test.equal('the history names the other user', (select string_agg(user_id, ' ') from push.history h join push.outbox o on o.id = h.outbox_id
  where o.call_id = 'tablet-4' and h.token ~ '^tablet' and h.kind = 0), 'owner-tablet-4');
select push.decline_call(c, 'owner-' || c, 'erase') from unnest('{tablet-3,tablet-4}'::text[]) c \g /dev/null
select test.follow();
select test.equal(format('%s: when the other declines, it ends', c), (select state from push.outbox where call_id = c), 'ended')
  from unnest('{tablet-3,tablet-4}'::text[]) c;
select test.equal('and the tablet is told to stop', pg_temp.tablets('tablet-3'), '1 owner- -');

-- A call that has ended, and whose phones are not told yet.
insert into push.outbox (app, payload, recipients) values ('erase', '{"callId": "untold", "from": "x"}',
  '["other", {"userId": "untold", "fcmToken": "untold-token-0123456789"}]');
select pg_temp.claim_all(:g, 32), pg_temp.settle('untold'), push.end_call('untold', 'busy', 'erase') \g /dev/null
select test.equal('a call waits for what follows from its end', (select waiting from push.erase_user('untold', 'erase', 60000)
  where place = 'outbox'), 1::bigint);
select test.follow();
select test.equal('so the phone is told', (select count(*) from push.deliveries where call_id = 'untold' and user_id = 'untold'
  and kind = 'cancel'), 1::bigint);

-- Erasures that gateways continue: one that fails, or takes longer than a statement may, stops no other one.
select push.erase_user('owner-tablet-1', 'erase', 60000) \g /dev/null
delete from push.outbox;
select test.follow();
delete from push.erasure;
create function pg_temp.ask(p_users text[]) returns void language sql as $$
  select push.register_device('line-' || u, 'erase', 'fcm', 'line-token-0123456789-' || u) from unnest(p_users) u;
  insert into push.erasure (app, user_digest, user_id, asked_at, looked_at)
    select 'erase', sha256(convert_to('line-' || u, 'UTF8')), 'line-' || u, clock_timestamp(), now() - (10 - i) * interval '1 hour'
    from unnest(p_users) with ordinality x(u, i) $$;
create function pg_temp.stumble() returns trigger language plpgsql as $$
begin
  if old.user_id in ('line-1', 'line-3') then
    raise program_limit_exceeded;
  elsif old.user_id = 'line-slow' then
    raise query_canceled;
  end if;
  return old;
end $$;
create trigger stumble before delete on push.devices for each row execute function pg_temp.stumble();
create function pg_temp.in_line() returns text language sql as $$
  select string_agg(d.user_id, ' ' order by e.looked_at) from push.devices d join push.erasure e on e.user_id = d.user_id and e.scanned_at is null
    where d.user_id like 'line-%' $$;
set local client_min_messages = error;
select pg_temp.ask('{1,2,3,4}'), pg_temp.go_on() \g /dev/null
select test.equal('an erasure that fails is passed over', pg_temp.in_line(), 'line-1 line-3');
create function pg_temp.health() returns text language sql as $$ select state || ' ' || value from push.health where item = 'put aside' $$;
select test.equal('health names each by its digest', (select string_agg(x, ' ' order by x)
    from regexp_split_to_table(regexp_replace(pg_temp.health(), '^warn ', ''), ', ') x),
  (select string_agg(x, ' ' order by x) from unnest(array['1', '3']) u, format('erase/sha256:%s (SQLSTATE 54000)',
    left(encode(sha256(convert_to('line-' || u, 'UTF8')), 'hex'), 16)) x));
select pg_temp.ask('{slow,last}') \g /dev/null
select test.equal('there are others to continue', push.run_job('erase'), true);
select test.equal('one that takes too long goes to the end of the line', pg_temp.in_line(), 'line-last line-1 line-3 line-slow');
select push.run_job('erase') \g /dev/null
select test.equal('the next run goes on behind it', pg_temp.in_line(), 'line-1 line-3 line-slow');
select test.equal('the job is not due again before a quarter of a minute', push.run_job('erase'), false);
drop trigger stumble on push.devices;
select pg_temp.go_on() \g /dev/null
select test.equal('they are all done when nothing is wrong any more', pg_temp.in_line(), null);
select test.equal('each was named once', (select array_agg(distinct n) from (select count(*) as n from push.audit
  where action = 'put_aside' and target like 'erase/%' group by target) x), array[1::bigint]);
set local client_min_messages = notice;

-- Calls that ring come first, and each call of the function, and each run, looks at what it has time for, at least one.
savepoint rings;
delete from push.erasure;
select push.register_device('ringer', 'erase', 'fcm', 'ringer-token-0123456789') \g /dev/null
insert into push.outbox (app, payload, recipients) select 'erase', jsonb_build_object('callId', 'ring-' || i, 'from', 'x'),
  jsonb_build_array('other', case i when 2 then '"ringer"' when 4 then '{"userId": "ringer"}' else '"nobody"' end::jsonb)
  from generate_series(1, 4) i;
create function pg_temp.rings() returns text language sql as $$
  select format('%s: %s found, %s waiting, %s devices',
    (select string_agg(right(o.call_id, 1), '' order by o.id) from push.outbox o where o.declined ? 'ringer'),
    cardinality(e.found), cardinality(e.waiting), (select count(*) from push.devices d where d.user_id = 'ringer')) from push.erasure e $$;
select test.equal('push.erase_user stops when the time is over', (select string_agg(waiting || ' ' || is_complete, ', ')
  from push.erase_user('ringer', 'erase', 0) where place in ('outbox', 'devices')) || '; ' || pg_temp.rings(),
  '0 false, 2 false; 2: 1 found, 1 waiting, 1 devices');
insert into push.outbox (app, payload, recipients) values ('erase', '{"callId": "ring-5", "from": "x"}',
  '["other", {"userId": "ringer", "fcmToken": "ringer-token-0123456789"}]');
select pg_temp.go_on() \g /dev/null
select test.equal('gateways do the rest, also with calls that began meanwhile', pg_temp.rings(), '245: 0 found, 3 waiting, 0 devices');
select push.register_device('chime-' || i, 'erase', 'fcm', 'chime-token-0123456789-' || i) from generate_series(1, 2) i \g /dev/null
insert into push.outbox (app, payload, recipients) values ('erase', '{"callId": "chimes", "from": "x"}', '["other", "chime-1", "chime-2"]');
delete from push.erasure;
insert into push.erasure (app, user_digest, user_id, looked_at)
  select 'erase', sha256(convert_to('chime-' || i, 'UTF8')), 'chime-' || i, now() - (10 - i) * interval '1 hour' from generate_series(1, 2) i;
create function pg_temp.chimes() returns text language sql as $$
  select string_agg(u, ' ' order by u) from push.outbox o cross join lateral jsonb_object_keys(o.declined) u where o.call_id = 'chimes' $$;
select push.finish_erasures() \g /dev/null
select test.equal('one run continues one erasure', pg_temp.chimes(), 'chime-1');
select push.finish_erasures() \g /dev/null
select test.equal('the next one another', pg_temp.chimes(), 'chime-1 chime-2');
rollback to rings;

-- A call that cannot be masked keeps nothing else of the user.
savepoint unmaskable;
delete from push.erasure;
delete from push.audit where action = 'put_aside';
select push.register_device('stays', 'erase', 'fcm', 'stays-token-0123456789') \g /dev/null
insert into push.outbox (app, payload, recipients)
  select 'erase', jsonb_build_object('callId', 'stays-' || i, 'from', 'x'), '["other", "stays"]' from generate_series(1, 2) i;
select push.end_call('stays-' || i, 'declined', 'erase') from generate_series(1, 2) i \g /dev/null
select test.follow();
create function pg_temp.stay() returns trigger language plpgsql as $$
begin
  if new.call_id = 'stays-1' and new.erased_at is distinct from old.erased_at then raise program_limit_exceeded; end if;
  return new;
end $$;
create trigger aab_stay before update on push.outbox for each row execute function pg_temp.stay();
create function pg_temp.stays() returns text language sql as $$
  select format('%s devices, waiting %s, masked %s, named %s', (select count(*) from push.devices d where d.user_id = 'stays'),
    (select string_agg(o.call_id, ' ') from push.outbox o where o.id = any (e.waiting)),
    (select string_agg(o.call_id, ' ' order by o.id) from push.outbox o where o.call_id ~ '^stays' and not o.recipients ? 'stays'),
    (select string_agg(o.call_id || ' ' || (a.detail ->> 'sqlstate'), ', ') from push.audit a join push.outbox o
      on a.target = 'push.outbox.id ' || o.id where a.action = 'put_aside'))
  from push.erasure e $$;
select push.erase_user('stays', 'erase', 60000) \g /dev/null
select test.equal('it waits and is named, and the rest is erased', pg_temp.stays(),
  '0 devices, waiting stays-1, masked stays-2, named stays-1 54000');
drop trigger aab_stay on push.outbox;
select pg_temp.go_on() \g /dev/null
select test.equal('it is masked when nothing is wrong any more', pg_temp.stays(),
  '0 devices, waiting , masked stays-1 stays-2, named stays-1 54000');
rollback to unmaskable;

-- A mistyped app, also while no gateway has served any app.
savepoint none_served;
delete from push.apps;
select test.equal('an unknown app, while there is none', pg_temp.error($$select push.erase_user('u', 'erasse')$$),
  'P0002 app: no gateway has served erasse, and it has no calls and no devices');
rollback to none_served;
select test.equal('an unknown app', pg_temp.error($$select push.erase_user('u', 'erasse')$$),
  'P0002 app: no gateway has served erasse, and it has no calls and no devices');
select test.equal('and nothing is written down', (select count(*) from push.erasure where app = 'erasse')
  + (select count(*) from push.audit where target ~ '^erasse/'), 0::bigint);
insert into push.devices (user_id, app, provider, token, registered_at)
  values ('u', 'device-only', 'fcm', 'device-only-0123456789', now() - interval '1 day');
select test.equal('an app with a device', (select bool_and(is_complete) from push.erase_user('u', 'device-only', 60000)), true);

-- A step is short, however large the calls are: it ends after a megabyte of them.
insert into push.outbox (app, payload, recipients) select 'large', jsonb_build_object('callId', 'large-' || c, 'from', 'x'), (
  select jsonb_agg(jsonb_build_object('userId', c || '-' || i, 'fcmToken', 'erasure-token-0123456789-' || (
    select string_agg(md5(format('%s %s %s', c, i, z)), '') from generate_series(1, 8) z))) from generate_series(1, 1000) i)
  from generate_series(1, 8) c;
select test.equal('four of 320 kB each are more than a megabyte', (select count(*) from push.outbox o where o.app = 'large' and o.id <= (
  push.look_further(jsonb_populate_record(null::push.erasure, jsonb_build_object('app', 'large', 'user_id', 'nobody', 'until_id', 0, 'after_id',
    (select min(x.id) - 1 from push.outbox x where x.app = 'large'))))).after_id), 4::bigint);
