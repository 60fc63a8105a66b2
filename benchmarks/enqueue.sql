-- For enqueue.py. Variables: calls, a file of calls; batch, calls in one; batches; singles, calls enqueued one by one.
-- Prints: fan_out|bare|ours|ratio in µs of CPU a delivery, medians; single|p50|p99 in ms.

set client_min_messages = warning;
set synchronous_commit = off;
create table calls (
  number int generated always as identity (minvalue 0) primary key,
  app text, kind text, payload jsonb, recipients jsonb, ring_seconds int);
\set copy '\\copy calls (app, kind, payload, recipients, ring_seconds) from ' :'calls'
:copy
analyze calls;

-- The tables without triggers, and their rows, taken from a fan-out that is then deleted.
create schema bare;
create table bare.outbox (like push.outbox including all);
create table bare.delivery (like push.delivery including all);
alter table bare.outbox set (fillfactor = 90);
alter table bare.delivery set (fillfactor = 50);
begin;
insert into push.outbox (app, kind, payload, recipients, ring_seconds)
  select app, kind, payload, recipients, ring_seconds from calls where number < :batches * :batch;
create table made_outbox as
  select c.number, o.* from push.outbox o join calls c on o.call_id = c.payload ->> 'callId';
create table made_delivery as
  select m.number, d.* from push.delivery d join made_outbox m on m.id = d.outbox_id;
truncate push.outbox, push.delivery, push.tally;
commit;
create index on made_outbox (number);
create index on made_delivery (number);
vacuum analyze made_outbox, made_delivery;
checkpoint;

create procedure cpu(out microseconds double precision) language plpgsql as $$
begin
  -- The kernel updates the value when a process is switched out, and otherwise only every few milliseconds.
  perform pg_sleep(0.00005);
  microseconds := split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::double precision / 1000;
end
$$;
create table cost (batch int, bare double precision, ours double precision);
create table single (milliseconds double precision);

select set_config('bench.batch', :'batch', false), set_config('bench.batches', :'batches', false),
  set_config('bench.singles', :'singles', false) \g /dev/null

do $$
declare
  v_batch constant int := current_setting('bench.batch');
  v_from  int;
  v_to    int;
  v_start double precision;
  v_end   double precision;
  v_bare  double precision;
begin
  for i in 0 .. current_setting('bench.batches')::int - 1 loop
    v_from := i * v_batch;
    v_to := v_from + v_batch - 1;
    call cpu(v_start);
    insert into bare.outbox (id, app, kind, call_id, payload, recipients, ring_seconds, state, created_at, deadline_at)
      overriding system value
      select m.id, m.app, m.kind, m.call_id, m.payload, m.recipients, m.ring_seconds, m.state, m.created_at,
        m.deadline_at
      from made_outbox m where m.number between v_from and v_to order by m.number;
    insert into bare.delivery (outbox_id, n, created_at, due_at, deadline_at, lane, ready_lane, kind, environment, platform,
      user_id, token, locale)
      select m.outbox_id, m.n, m.created_at, m.due_at, m.deadline_at, m.lane, m.ready_lane, m.kind, m.environment,
        m.platform, m.user_id, m.token, m.locale
      from made_delivery m where m.number between v_from and v_to order by m.number, m.n;
    call cpu(v_end);
    v_bare := v_end - v_start;
    commit;
    call cpu(v_start);
    insert into push.outbox (app, kind, payload, recipients, ring_seconds)
      select c.app, c.kind, c.payload, c.recipients, c.ring_seconds
      from calls c where c.number between v_from and v_to order by c.number;
    call cpu(v_end);
    insert into cost values (i, v_bare, v_end - v_start);
    commit;
  end loop;
end
$$;

do $$
declare
  v_call  record;
  v_first int := current_setting('bench.batches')::int * current_setting('bench.batch')::int;
  v_start timestamptz;
  v_took  interval;
begin
  for i in v_first .. v_first + current_setting('bench.singles')::int - 1 loop
    select * into v_call from calls where number = i;
    v_start := clock_timestamp();
    perform from push.enqueue_call(v_call.payload, v_call.recipients, v_call.app, v_call.ring_seconds);
    v_took := clock_timestamp() - v_start;
    insert into single values (1000 * extract(epoch from v_took));
    commit;
  end loop;
end
$$;

-- The first batch creates the plans.
select 'fan_out', percentile_cont(0.5) within group (order by bare) / (3 * :batch),
  percentile_cont(0.5) within group (order by ours) / (3 * :batch),
  percentile_cont(0.5) within group (order by ours / bare)
from cost where batch > 0;
select 'single', percentile_cont(0.5) within group (order by milliseconds),
  percentile_cont(0.99) within group (order by milliseconds)
from single;
