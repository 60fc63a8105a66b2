-- Traces: a traceparent is accepted at enqueue or refused with its field, and returned by claims and timelines.
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
create function pg_temp.enqueue(p_call text, p_trace text) returns text language plpgsql as $$
begin
  insert into push.outbox (payload, recipients, traceparent)
    values (jsonb_build_object('callId', p_call, 'from', 'x'), '[{"userId": "u", "fcmToken": "secret-token-0123456789"}]', p_trace);
  return coalesce((select o.traceparent from push.outbox o where o.call_id = p_call), 'none');
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
\set trace 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
\set id 4bf92f3577b34da6a3ce929d0e0e4736
select '22023 traceparent: must be 00-TRACE-SPAN-FLAGS in lower-case hexadecimal digits, 32, 16 and 2 of them, neither id all zeros; '
  'leave it out if there is none (call bad)' as refusal \gset

select test.equal('a traceparent is kept as it came', pg_temp.enqueue('traced', :'trace'), :'trace');
select test.equal('any flags will do', pg_temp.enqueue('flags', left(:'trace', 53) || 'ff'), left(:'trace', 53) || 'ff');
select test.equal('none is none', pg_temp.enqueue('untraced', null), 'none');
select test.equal('an empty one is none', pg_temp.enqueue('untraced-too', ''), 'none');
select test.equal('refused: ' || fault, pg_temp.enqueue('bad', trace), :'refusal')
from (values ('a blank', ' '), ('a word', 'x'), ('capitals', upper(:'trace')), ('no version 00', '01' || substr(:'trace', 3)),
  ('a part too many', :'trace' || '-00'),
  ('too short', left(:'trace', 54)), ('a line break at its end', :'trace' || E'\n'), ('a space before it', ' ' || :'trace'),
    ('long', repeat('0', 100000)),
  ('a trace id of zeros', '00-' || repeat('0', 32) || '-00f067aa0ba902b7-01'),
    ('a span id of zeros', '00-' || :'id' || '-' || repeat('0', 16) || '-01'),
  ('no hexadecimal digits', '00-' || repeat('g', 32) || '-00f067aa0ba902b7-01')) f(fault, trace);
select test.equal('one bad of several refuses them all', pg_temp.error(format($$insert into push.outbox (payload, recipients, traceparent)
  select jsonb_build_object('callId', case i when 2 then 'bad' else 'several-' || i end, 'from', 'x'), '["secret"]', case i when 2 then 'secret'
    else %L end from generate_series(1, 3) i$$, :'trace'))
  || (select count(*) from push.outbox where call_id like 'several-%'), :'refusal' || 0);
select test.equal('a duplicate is passed over, whatever its trace', pg_temp.enqueue('traced', 'bad'), :'trace');
select test.equal('an invalid one cannot be written later',
  pg_temp.error($$update push.outbox set traceparent = 'x' where call_id = 'traced'$$) ~ '^23514',
  true);

select duplicate from push.enqueue_call('{"callId": "by-function", "from": "x"}', '["u"]', traceparent => :'trace') \gset
select test.equal('enqueue_call takes it', format('%s %s', :'duplicate', (select traceparent from push.outbox where call_id = 'by-function')),
  'f ' || :'trace');
select test.equal('enqueue_call refuses it by its name', pg_temp.error($$select push.enqueue_call('{"callId": "bad", "from": "x"}', '["u"]',
  traceparent => 'secret')$$), :'refusal');
select duplicate from push.enqueue_call('{"callId": "by-five", "from": "x"}', '["u"]', 'default', 30, 'incoming_call') \gset
select test.equal('enqueue_call is called as ever with five arguments',
  (select format('%s %s', :'duplicate', traceparent is null) from push.outbox where call_id = 'by-five'), 'f t');

select push.register_gateway('one', '1') as g \gset
select test.equal('a claim returns it', (select string_agg(call_id || ' ' || coalesce(traceparent, 'none'), ', ' order by call_id)
  from push.claim(:g, 1, array(select id from push.lane), array_fill(9, array[9]), array_fill('-infinity'::timestamptz, array[9]))
    where call_id ~ 'traced$'),
  'traced ' || :'trace' || ', untraced none');
select test.equal('claim keeps its pinned plan', (select string_agg(c, ' ' order by c) from pg_proc, unnest(proconfig) c
  where oid = 'push.claim'::regproc),
  'enable_bitmapscan=off enable_hashjoin=off enable_mergejoin=off enable_seqscan=off jit=off plan_cache_mode=force_generic_plan '
  'search_path=push, pg_temp');
select test.settle(:g, d.outbox_id, d.n, d.lease) from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id ~ 'traced$';
select test.equal('history tells the trace id', (select string_agg(call_id || ' ' || coalesce(trace_id, 'none'), ', ' order by call_id)
  from push.delivery_history where call_id ~ 'traced$'),
  'traced ' || :'id' || ', untraced none');
select test.equal('the timeline tells it in every row', (select string_agg(distinct trace_id, ', ') || count(*) filter (where trace_id is null)
  from push.timeline('traced')), :'id' || 0);
select test.equal('push.call tells it', push.call('traced') ->> 'traceId', :'id');
select test.equal('push.call tells that there is none', push.call('untraced') -> 'traceId', 'null');
