-- Quotas: what an app may enqueue in a minute, who sets it, what is refused, and what never is.
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
declare v_detail text; v_hint text;
begin
  execute p_statement;
  return 'no error';
exception when others then
  get stacked diagnostics v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  return concat_ws('|', sqlstate, sqlerrm, regexp_replace(v_detail, '[0-9]+', 'N'));
end $$;
-- Enqueues as given, and returns how it ended.
create function pg_temp.ring(p_call text, p_app text default 'wild', p_kind text default 'incoming_call', p_recipients jsonb default '["u"]')
returns text language plpgsql as $$
declare v_detail text;
begin
  insert into push.outbox (app, kind, payload, recipients)
    values (p_app, p_kind, jsonb_build_object('callId', p_call, 'from', 'x', 'chatId', 'c'), p_recipients);
  return 'taken';
exception when others then
  return sqlstate;
end $$;
create function pg_temp.rings(p_call text, p_app text default 'wild', p_recipients jsonb default '["u"]') returns text language plpgsql as $$
begin
  return (select 'taken ' || duplicate from push.enqueue_call(jsonb_build_object('callId', p_call, 'from', 'x'), p_recipients, p_app));
exception when others then
  return sqlstate;
end $$;
create function pg_temp.used(p_app text) returns text language sql volatile as $$
  select string_agg(what || ' ' || used || '/' || coalesce("limit"::text, '-'), ', ' order by what) from push.quotas where app = p_app $$;
select push.register_app(a, 60) from unnest('{wild,calm}'::text[]) a \g /dev/null

-- Meters --------------------------------------------------------------------------------------------------------------

create function pg_temp.meter(p_minute bigint, p_before bigint, p_count bigint) returns bigint language sql as $$
  select ((p_minute & 524287) << 44) | (p_before << 22) | p_count $$;
select test.equal('a meter in its own minute is as it was', push.meter_at(pg_temp.meter(1000, 3, 4), 1000), pg_temp.meter(1000, 3, 4));
select test.equal('in the next one, its count is that of the minute before', push.meter_at(pg_temp.meter(1000, 3, 4), 1001), pg_temp.meter(1001,
  4, 0));
select test.equal('later, nothing is left', push.meter_at(pg_temp.meter(1000, 3, 4), 1002), pg_temp.meter(1002, 0, 0));
select test.equal('one that is a minute ahead stays', push.meter_at(pg_temp.meter(1000, 3, 4), 999), pg_temp.meter(1000, 3, 4));
select test.equal('after the clock was set back by more, nothing is left', push.meter_at(pg_temp.meter(1000, 3, 4), 990), pg_temp.meter(990, 0, 0));
select test.equal('minutes are counted modulo 2^19', push.meter_at(pg_temp.meter(524287, 3, 4), 524288), pg_temp.meter(0, 4, 0));
select test.equal('the largest value is a bigint', pg_temp.meter(524287, 4194303, 4194303), 9223372036854775807);

-- The part of this minute that is over, and what is told at that moment: what is used, and in how many seconds it is down to 4.
create sequence push.meter_0_told minvalue 0;
create sequence push.meter_0_told_returned minvalue 0;
create function pg_temp.told(p_before int, p_count int, p_returned int, out part float, out used int, out wait int) language plpgsql as $$
declare
  v_minute bigint := floor(date_part('epoch', clock_timestamp()) / 60);
begin
  part := date_part('epoch', clock_timestamp()) / 60 - v_minute;
  perform setval('push.meter_0_told', pg_temp.meter(v_minute, p_before, p_count)),
    setval('push.meter_0_told_returned', pg_temp.meter(v_minute, 0, p_returned));
  select m.used, m.wait into used, wait from push.read_meter(0, 'told', 4) m;
end $$;
create function pg_temp.near(p_got float, p_want float) returns boolean language sql as $$ select abs(p_got - p_want) <= 1 $$;
select test.equal('of the minute before, a part is used, and of this one what was not returned', pg_temp.near(t.used, 100 * (1 - t.part) + 2), true)
  from pg_temp.told(100, 5, 3) t where t.part < 0.99;
select test.equal('the minute before is forgotten during this one', pg_temp.near(t.wait, greatest(1, 60 * (0.98 - t.part))), true)
  from pg_temp.told(100, 2, 0) t where t.part < 0.99;
select test.equal('this one during the next', pg_temp.near(t.wait, 60 * (1.6 - t.part)), true) from pg_temp.told(100, 10, 0) t where t.part < 0.99;

-- By psql -------------------------------------------------------------------------------------------------------------

select test.equal('no quota, no row', (select count(*) from push.quotas), 0::bigint);
select test.equal('and health is well', (select state || ' ' || value from push.health where item = 'quotas'), 'ok none is used up');
select test.equal('an unknown app is refused', pg_temp.error($$select push.set_quota('nobody', 1)$$), '22023|app: there is no app nobody|');
select test.equal('so is a limit out of range', pg_temp.error($$select push.set_quota('wild', recipients_per_minute => 1000001)$$),
  '22023|recipients_per_minute: must be 0 to 1000000; null leaves it to the configuration|');
select test.equal('to end what was never set changes nothing', (select changed || ' ' || message from push.set_quota('wild')),
  'false app wild: no limit; nothing was set');
select test.equal('a quota is set', (select changed || ' ' || message from push.set_quota('wild', 3, 1, note => 'loop')),
  'true app wild: 3 calls a minute (set), 1 notifications a minute (set), no limit of recipients');
select test.equal('twice is harmless', (select changed from push.set_quota('wild', 3, 1, note => 'loop')), false);
select test.reset_meters('wild') \g /dev/null
select test.equal('the audit has it', (select detail ->> 'note' || ' ' || (detail ->> 'calls') from push.audit where action = 'set_quota'
  and target = 'wild' order by id desc limit 1), 'loop 3');

select test.equal('as many are taken as it allows', (select string_agg(pg_temp.ring('w-' || i), ' ') from generate_series(1, 3) i),
  'taken taken taken');
select test.equal('one more is not', pg_temp.error($$insert into push.outbox (app, payload, recipients)
  values ('wild', '{"callId": "w-4", "from": "x"}', '["u"]')$$),
  '53Q01|app: app wild has used up its quota of 3 calls a minute|retry_after_seconds=N');
select test.equal('nor by the function', pg_temp.rings('w-4'), '53Q01');
select test.equal('nor with others in one statement, of which none is taken', pg_temp.error($$insert into push.outbox (app, payload, recipients)
  select a, jsonb_build_object('callId', 'together', 'from', 'x'), '["u"]' from unnest('{calm,wild}'::text[]) a$$) ~ '^53Q01', true);
select test.equal('nothing of it is left', (select string_agg(app || call_id, ' ' order by id) from push.outbox
  where app in ('wild', 'calm')), 'wildw-1 wildw-2 wildw-3');
select test.equal('another app is not affected', pg_temp.ring('c-1', 'calm') || pg_temp.rings('c-2', 'calm'), 'takentaken false');
select test.equal('a duplicate is taken as ever, and not counted', pg_temp.ring('w-1') || ' ' || pg_temp.rings('w-2'), 'taken taken true');
select test.equal('a notification is counted for itself', pg_temp.ring('n-1', p_kind => 'message') || pg_temp.ring('n-2', p_kind => 'message'),
  'taken53Q01');
select test.equal('this is what is used', pg_temp.used('wild'), 'calls 3/3, notifications 1/1');
select test.equal('the batch of the API leaves out what is refused, and says nothing of it',
  (select string_agg(n::text, ',' order by n) from
  push.enqueue_calls('[{"app": "wild", "payload": {"callId": "w-5", "from": "x"}, "recipients": ["u"]},
    {"app": "calm", "payload": {"callId": "c-3", "from": "x"}, "recipients": ["u"]}]')), '1');
select test.equal('a batch of calls is refused as a whole', pg_temp.error($$select push.enqueue_batch(array['{"app": "wild", "payload":
  {"callId": "w-6", "from": "x"}, "recipients": []}']::jsonb[])$$) ~ '^53Q01', true);

-- The ends of calls.
select push.register_gateway('quotas', '1') as g \gset
select push.set_quota('wild', 0, 0, 0) \g /dev/null
select test.equal('zero refuses everything', pg_temp.ring('w-7') || pg_temp.ring('n-3', p_kind => 'message'), '53Q0153Q01');
select test.equal('a call without recipients, too', pg_temp.ring('w-8', p_recipients => '[]'), '53Q01');
select test.equal('the error says so, and names no time', (select pg_temp.error($$insert into push.outbox (app, payload, recipients)
  values ('wild', '{"callId": "w-9", "from": "x"}', '[]')$$)), '53Q01|app: app wild may enqueue no calls: its quota is 0|retry_after_seconds=N');
select push.report_ringing('w-1', 'u', 'wild') \g /dev/null
select push.answer_call('w-1', 'u', 'wild') \g /dev/null
select test.follow();
select push.decline_call('w-2', 'u', app => 'wild') \g /dev/null
select test.follow();
select push.end_call('w-3', app => 'wild') \g /dev/null
select test.follow();
select test.equal('calls are answered, declined and ended', (select string_agg(state, ' ' order by call_id) from push.outbox where app = 'wild'
  and kind = 'incoming_call'), 'answered ended ended');

-- Seen by ops.
select test.equal('refusals are counted, although their transactions were rolled back',
  (select refusals from push.quotas where app = 'wild' and what = 'calls'), 9);
select test.equal('and reported as unhealthy', (select state || ' ' || value from
  push.health
  where item = 'quotas'), 'warn wild may enqueue no calls and no notifications and no recipients: the quota is 0; 9 refusals in the last minute');
select test.equal('a gateway takes them for its metrics', (select string_agg(app || ' ' || count, ',') from push.take_tally() where what =
  'refused'), 'wild 9');
select test.equal('once', (select count(*) from push.take_tally() where what = 'refused'), 0::bigint);
select pg_temp.ring('w-10') \g /dev/null
select test.equal('then only those that have come since', (select string_agg(app || ' ' || count, ',') from push.take_tally() where what =
  'refused'), 'wild 1');
select test.equal('operators see when', (select refused_at between now() - interval '2 minutes' and clock_timestamp() from push.quotas
  where app = 'wild' and what = 'calls'), true);
select test.equal('the gauges have the used part', (select string_agg(what || ' ' || value, ',' order by what) from push.observe() where what ~
  'quota'),
  'quota_calls 3,quota_notifications 1,quota_recipients 0');

-- Recipients ----------------------------------------------------------------------------------------------------------

select push.set_quota('calm', recipients_per_minute => 5), test.reset_meters('calm') \g /dev/null
select test.equal('recipients are counted over calls and notifications', pg_temp.ring('r-1', 'calm', p_recipients => '["a", "b", "c"]')
  || pg_temp.ring('r-2', 'calm', 'message', '["a", "b"]') || pg_temp.ring('r-3', 'calm'), 'takentaken53Q01');
select test.equal('a statement that would never be taken says so', pg_temp.error($$insert into push.outbox (app, payload, recipients)
  values ('calm', '{"callId": "r-4", "from": "x"}', '["a", "b", "c", "d", "e", "f"]')$$),
  '22023|recipients: this statement has 6 recipients, and the quota of app calm is 5 a minute; split it|quota=N');
select test.equal('without recipients there is nothing to count', pg_temp.ring('r-5', 'calm', p_recipients => '[]'), 'taken');
select test.equal('a fault of the call comes first',
  pg_temp.error($$insert into push.outbox (app, payload, recipients) values ('calm', '1', '7')$$) ~ '^22023.payload', true);
select test.equal('no room is used up by what another rule refuses', pg_temp.used('calm'), 'recipients 5/5');

-- The configuration and psql ------------------------------------------------------------------------------------------

select push.set_quota('calm'), push.set_quota('wild') \g /dev/null
select push.register_app('calm', 60, p_quota => '{7,null,9}', p_replica => 'quotas') \g /dev/null
select test.equal('a gateway registers the quota of its configuration', pg_temp.used('calm') ~ '^calls [0-9]+/7, recipients [0-9]+/9$', true);
select test.equal('the audit has that', (select detail ->> 'replica' || ' ' || (detail ->> 'calls') from push.audit where action = 'configure_quota'
  and target = 'calm'), 'quotas 7');
select push.register_app('calm', 60), push.register_app('calm', 60, null, false, '{fcm}', 'default', false) \g /dev/null
select test.equal('a gateway that knows no quotas leaves it', (select string_agg(what || "limit", ' ' order by what) from push.quotas where app =
  'calm'),
  'calls7 recipients9');
select push.set_quota('calm', 2) \g /dev/null
select push.register_app('calm', 60, p_quota => '{100,100,null}', p_replica => 'quotas') \g /dev/null
select test.equal('what is set holds whatever the configuration becomes, and only for its own limit',
  (select string_agg(concat_ws(' ', what, "limit", configured), ', ' order by what) from push.quotas where app = 'calm'),
  'calls 2 100, notifications 100 100');
select test.equal('until it is set no more', (select message from push.set_quota('calm')),
  'app calm: 100 calls a minute (as configured), 100 notifications a minute (as configured), no limit of recipients');
select push.register_app('calm', 60, p_quota => '{null,null,null}', p_replica => 'quotas') \g /dev/null
select test.equal('a configuration without a quota ends it', pg_temp.used('calm'), null);
select push.register_app('untold', 60, p_quota => '{null,null,null}', p_replica => 'quotas') \g /dev/null
select test.equal('and makes nothing for an app that never had one', (select count(*) from push.quota where app = 'untold'), 0::bigint);
select push.register_gateway('another', '1') \g /dev/null
select push.register_app('wild', 60, p_quota => '{600,null,null}', p_replica => 'quotas'),
  push.register_app('wild', 60, p_quota => '{300,null,5}', p_replica => 'another') \g /dev/null
select test.equal('the replica that registered last is right', (select string_agg(what || "limit", ' ' order by what) from push.quotas where app
  = 'wild'),
  'calls300 recipients5');
create function pg_temp.differs() returns text language sql as $$
  select state || ' ' || substring(value from 'the quota of wild is not the one that [^,]*') from push.health where item = 'quotas' $$;
select test.equal('and health names the other', pg_temp.differs(), 'warn the quota of wild is not the one that quotas has: 600/none/none');
select push.register_app('wild', 60, p_quota => '{600,null,null}', p_replica => 'quotas') \g /dev/null
select test.equal('whoever that is', pg_temp.differs(), 'warn the quota of wild is not the one that another has: 300/none/5');
update push.gateways set alive = false, ended_at = now(), ended_reason = 'retired' where name = 'another';
select test.equal('but not one that has ended', pg_temp.differs(), null);

-- Without its meters, as after a restore of data alone.
select push.set_quota('calm', 0) \g /dev/null
select format('drop sequence push.meter_%s_calls', id) as statement from push.quota where app = 'calm' \gset
:statement;
select test.equal('a quota whose meter is missing refuses nothing', pg_temp.ring('without', 'calm'), 'taken');
select push.register_app('calm', 60, p_quota => '{null,null,null}') \g /dev/null
select test.equal('until a gateway registers the app', pg_temp.ring('with', 'calm'), '53Q01');

-- A kind that is null is a call. The app has no other calls, and its quota is not that of notifications.
select push.register_app('null', 60), push.register_lane('null', 'fcm'), push.set_quota('null', 1), test.reset_meters('null') \g /dev/null
select test.equal('with kind null, a call takes the place that there is',
  (select duplicate from push.enqueue_call('{"callId": "null-1", "from": "x"}', '["u"]', 'null', kind => null)), false);
select test.equal('and no second one', pg_temp.error($$select push.enqueue_call('{"callId": "null-2", "from": "x"}', '["u"]', 'null', kind => null)$$)
  like '53Q01|%', true);
