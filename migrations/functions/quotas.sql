-- Quotas: how much one app may enqueue in a minute, in this database, so that a backend that runs wild neither fills the
-- outbox nor slows its neighbours. Enqueueing (enqueue.sql) asks twice: before it makes deliveries, whether there is room;
-- and in the last trigger, when nothing else can refuse the statement, it counts. What ends a call is never counted.
--
-- A count is kept in a sequence. It is no row, so nothing waits for it: not for a transaction that is left open, nor for one
-- that is prepared. It is seen by all sessions before the commit, and a refusal, whose transaction is rolled back, is still
-- counted. What was counted for a transaction that is rolled back stays counted, and is forgotten within two minutes.
--
-- The value of such a meter holds, from the left: the minute, modulo 2^19; what was counted in the minute before; and, in the
-- lowest 22 bits, what was counted in this minute, so that nextval adds one. The use of the last minute is estimated: this
-- minute's count, and of the count of the minute before, the part of it that lies within the last 60 seconds.
--
-- Of statements that ask at once for the last of a quota, some are refused after they have counted. They do not take it off
-- the meter, which would undo what others count at the same moment: a second meter, …_returned, counts it, and the use is the
-- difference.

-- The tables ------------------------------------------------------------------------------------------------------------

create table if not exists push.quota (
  app                      text primary key,
  id                       int generated always as identity,
  configured_calls         int,
  configured_notifications int,
  configured_recipients    int,
  set_calls                int,
  set_notifications        int,
  set_recipients           int,
  set_at                   timestamptz,
  set_by                   text,
  note                     text,
  calls                    int generated always as (coalesce(set_calls, configured_calls)) stored,
  notifications            int generated always as (coalesce(set_notifications, configured_notifications)) stored,
  recipients               int generated always as (coalesce(set_recipients, configured_recipients)) stored,
  updated_at               timestamptz not null default clock_timestamp(),
  constraint quota_id unique (id),
  constraint quota_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64),
  constraint quota_range check (calls between 0 and 1000000 and notifications between 0 and 1000000
    and recipients between 0 and 1000000 and configured_calls between 0 and 1000000
    and configured_notifications between 0 and 1000000 and configured_recipients between 0 and 1000000)
);
comment on table push.quota is
  'one app that has a quota, or once had one. Written only when a quota changes; its use is in the sequences push.meter_ID_…. '
  'People read push.quotas';
comment on column push.quota.app is 'name of the app';
comment on column push.quota.id is 'number in the names of its meters';
comment on column push.quota.configured_calls is 'calls a minute, by the configuration of the gateway that registered last; null: no limit';
comment on column push.quota.configured_notifications is 'notifications a minute, likewise';
comment on column push.quota.configured_recipients is 'recipients a minute, likewise';
comment on column push.quota.set_calls is 'calls a minute, by push.set_quota, which overrides the configuration; null: not set';
comment on column push.quota.set_notifications is 'notifications a minute, likewise';
comment on column push.quota.set_recipients is 'recipients a minute, likewise';
comment on column push.quota.set_at is 'when push.set_quota was called; null: nothing is set';
comment on column push.quota.set_by is 'the login that called it';
comment on column push.quota.note is 'why, as given to push.set_quota';
comment on column push.quota.calls is 'calls a minute, as enqueueing reads it; null: no limit';
comment on column push.quota.notifications is 'notifications a minute, likewise';
comment on column push.quota.recipients is 'entries of recipients a minute, of calls and notifications, likewise';
comment on column push.quota.updated_at is 'when the row was last changed';

create table if not exists push.quota_of_replica (
  app           text not null,
  replica       text not null,
  calls         int,
  notifications int,
  recipients    int,
  said_at       timestamptz not null default clock_timestamp(),
  constraint quota_of_replica_pkey primary key (app, replica)
);
comment on table push.quota_of_replica is
  'the quota that the configuration of one replica gives an app, so that push.health can report replicas that differ';
comment on column push.quota_of_replica.app is 'name of the app';
comment on column push.quota_of_replica.replica is 'push.gateways.name of the replica';
comment on column push.quota_of_replica.calls is 'calls a minute; null: no limit';
comment on column push.quota_of_replica.notifications is 'notifications a minute; null: no limit';
comment on column push.quota_of_replica.recipients is 'recipients a minute; null: no limit';
comment on column push.quota_of_replica.said_at is 'when the replica registered the app';

create table if not exists push.quota_refusals (
  id         int primary key,
  seen       bigint not null default 0,
  refusals   bigint not null default 0,
  refused_at timestamptz
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
comment on table push.quota_refusals is 'how many refusals of one app the job tally has passed on to the metrics';
comment on column push.quota_refusals.id is 'push.quota.id';
comment on column push.quota_refusals.seen is 'value of the meter of refusals when it was last read';
comment on column push.quota_refusals.refusals is 'refusals in all';
comment on column push.quota_refusals.refused_at is 'when a refusal was last found';

-- Meters ----------------------------------------------------------------------------------------------------------------

create or replace function push.meter(p_id int, p_what text) returns regclass language sql stable as
$$ select to_regclass('push.meter_' || p_id || '_' || p_what) $$;
comment on function push.meter is
  'the sequence that counts for a quota. p_id: push.quota.id; p_what: an element of push.meter_names(). Null: it '
  'is missing, as after a restore of data alone; the next gateway that registers the app makes it';

create or replace function push.meter_names() returns text[] language sql immutable parallel safe as
$$ select '{calls,notifications,recipients,calls_returned,notifications_returned,recipients_returned,refusals}'::text[] $$;
comment on function push.meter_names is 'what the meters of a quota count';

create or replace function push.meter_at(p_value bigint, p_minute bigint) returns bigint
language sql immutable parallel safe as $$
  select case (p_minute - (p_value >> 44)) & 524287
    when 0 then p_value
    -- One minute ahead: another session has begun it, or the clock was set back.
    when 524287 then p_value
    when 1 then ((p_minute & 524287) << 44) | ((p_value & 4194303) << 22)
    else (p_minute & 524287) << 44 end
$$;
comment on function push.meter_at is
  'the value that a meter has in a minute if nothing more is counted. p_value: its value; p_minute: minutes since 1970';

create or replace function push.meter_rest(p_counted bigint, p_returned bigint) returns bigint
language plpgsql volatile parallel safe as $$
declare
  v_counted  bigint := push.meter_at(coalesce(p_counted, 0), floor(date_part('epoch', clock_timestamp()) / 60)::bigint);
  v_returned bigint := push.meter_at(coalesce(p_returned, 0), v_counted >> 44);
begin
  return ((v_counted >> 44) << 44)
    | (greatest(0, ((v_counted >> 22) & 4194303) - ((v_returned >> 22) & 4194303)) << 22)
    | greatest(0, (v_counted & 4194303) - (v_returned & 4194303));
end
$$;
comment on function push.meter_rest is
  'the value of a meter without what was returned. p_counted: its value; p_returned: value of the meter of what was '
  'returned, read before the other one, so that the difference is never too small';

create or replace function push.meter_value(p_id int, p_what text) returns bigint
language plpgsql volatile as $$
declare
  v_returned bigint := pg_sequence_last_value(push.meter(p_id, p_what || '_returned'));
begin
  return push.meter_rest(pg_sequence_last_value(push.meter(p_id, p_what)), v_returned);
end
$$;
comment on function push.meter_value is
  'the value of a meter, without what was returned. p_id: push.quota.id; p_what: calls, notifications or recipients';

create or replace function push.meter_used(p_value bigint) returns int
language plpgsql volatile parallel safe as $$
declare
  v_minutes double precision := date_part('epoch', clock_timestamp()) / 60;
  v_value   bigint := push.meter_at(coalesce(p_value, 0), floor(v_minutes)::bigint);
begin
  return ceil(((v_value >> 22) & 4194303) * (1 - v_minutes + floor(v_minutes)))::int + (v_value & 4194303)::int;
end
$$;
comment on function push.meter_used is
  'what a meter has counted in the last minute, an estimate. p_value: its value; null: nothing was ever counted';

create or replace function push.meter_wait(p_value bigint, p_room int) returns int
language plpgsql volatile parallel safe as $$
declare
  v_minutes double precision := date_part('epoch', clock_timestamp()) / 60;
  v_value   bigint := push.meter_at(coalesce(p_value, 0), floor(v_minutes)::bigint);
  v_before  double precision := (v_value >> 22) & 4194303;
  v_count   double precision := v_value & 4194303;
  v_part    double precision := v_minutes - floor(v_minutes);
begin
  -- The minute before is forgotten during this one, and this one during the next.
  return greatest(1, ceil(60 * (case
    when v_count <= p_room then greatest(0, 1 - (p_room - v_count) / greatest(v_before, 1)) - v_part
    else 1 - v_part + 1 - p_room / v_count end)))::int;
end
$$;
comment on function push.meter_wait is
  'seconds, at least 1, until the use of the last minute has gone down to p_room if nothing more is counted. p_value: the '
  'value of the meter; null: nothing was ever counted';

create or replace function push.count_on_meter(p_meter regclass, p_count bigint) returns bigint
language plpgsql volatile as $$
declare
  v_minute bigint := floor(date_part('epoch', clock_timestamp()) / 60);
begin
  if pg_sequence_last_value(p_meter) is distinct from push.meter_at(pg_sequence_last_value(p_meter), v_minute)
    or pg_sequence_last_value(p_meter) is null
  then
    -- Read and written within one expression: of sessions that begin a minute at the same moment, one may lose what the other
    -- counts within these microseconds.
    perform setval(p_meter, push.meter_at(coalesce(pg_sequence_last_value(p_meter), 0), v_minute));
  end if;
  if p_count > 1 then
    perform nextval(p_meter) from generate_series(2, p_count);
  end if;
  return nextval(p_meter);
end
$$;
comment on function push.count_on_meter is
  'adds p_count, at least 1, to a meter, and returns its value. Takes effect at once, whatever becomes of the transaction';

-- Asking, refusing, counting --------------------------------------------------------------------------------------------

-- The functions that run for each statement have no settings of their own: they are called by functions that have, and a
-- setting costs as much as a query.

create or replace function push.recipients_in(p_recipients jsonb) returns int language sql immutable parallel safe as
$$ select case jsonb_typeof(p_recipients) when 'array' then jsonb_array_length(p_recipients) else 0 end $$;
comment on function push.recipients_in is 'how many entries a quota counts for recipients. p_recipients: push.outbox.recipients';

-- They had other arguments before the first release that has quotas.
do $$
declare
  v_former text;
begin
  foreach v_former in array array['push.refuse_quota(text, int, text, int, bigint, regclass)', 'push.use_quota(text, bigint, bigint, bigint)'] loop
    if to_regprocedure(v_former) is not null then
      execute 'drop function ' || v_former;
    end if;
  end loop;
end
$$;

create or replace function push.refuse_quota(p_app text, p_id int, p_what text, p_limit int, p_count bigint) returns void
language plpgsql set search_path = push, pg_temp as $$
declare
  v_refusals regclass := push.meter(p_id, 'refusals');
  v_wait     int;
begin
  if v_refusals is not null then
    perform push.count_on_meter(v_refusals, 1);
  end if;
  if p_count > p_limit and p_limit > 0 then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('%s: this statement has %s %s, and the quota of app %s is %s a minute; split it',
        case p_what when 'recipients' then 'recipients' else 'app' end, p_count, p_what, p_app, p_limit),
      hint = 'Nothing of this statement was enqueued. push.quotas shows the quota, and push.set_quota changes it.',
      schema = 'push', table = 'outbox', column = case p_what when 'recipients' then 'recipients' else 'app' end;
  end if;
  if p_limit = 0 then
    -- The HTTP API needs a number for Retry-After.
    raise exception using errcode = '53Q01', message = format('app: app %s may enqueue no %s: its quota is 0', p_app, p_what),
      detail = 'retry_after_seconds=60',
      hint = 'Nothing of this statement was enqueued. An operator ends that with push.set_quota.',
      schema = 'push', table = 'outbox', column = 'app';
  end if;
  v_wait := push.meter_wait(push.meter_value(p_id, p_what), (p_limit - p_count)::int);
  raise exception using errcode = '53Q01',
    message = format('app: app %s has used up its quota of %s %s a minute', p_app, p_limit, p_what),
    detail = format('retry_after_seconds=%s', v_wait),
    hint = format('Nothing of this statement was enqueued. Enqueue less, and try again in %s s. push.quotas shows what is used, '
      'and push.set_quota changes the quota.', v_wait),
    schema = 'push', table = 'outbox', column = 'app';
end
$$;
comment on function push.refuse_quota is
  'counts a refusal and raises its error: 53Q01, or 22023 if the statement has more than a whole minute''s quota and would '
  'never be taken. p_app, p_id: columns of push.quota; p_what: calls, notifications or recipients; p_limit: the quota; '
  'p_count: how many the statement has';

create or replace function push.has_room(p_app text, p_calls bigint, p_notifications bigint, p_recipients bigint, p_refuses boolean default false)
returns boolean
language plpgsql volatile as $$
declare
  v_quota push.quota;
  v_what  text;
  v_limit int;
  v_count bigint;
begin
  select q.* into v_quota from push.quota q where q.app = p_app;
  if not found then
    return true;
  end if;
  foreach v_what in array array['calls', 'notifications', 'recipients'] loop
    v_limit := case v_what when 'calls' then v_quota.calls when 'notifications' then v_quota.notifications else v_quota.recipients end;
    v_count := case v_what when 'calls' then p_calls when 'notifications' then p_notifications else p_recipients end;
    continue when v_limit is null or v_count = 0;
    continue when push.meter(v_quota.id, v_what) is null or push.meter_used(push.meter_value(v_quota.id, v_what)) + v_count <= v_limit;
    if p_refuses then
      perform push.refuse_quota(p_app, v_quota.id, v_what, v_limit, v_count);
    end if;
    return false;
  end loop;
  return true;
end
$$;
comment on function push.has_room is
  'whether the quota of an app has room for what a statement enqueues; counts nothing. p_app: the app; p_calls, '
  'p_notifications, p_recipients: what the statement has of it; p_refuses: whether it raises the error instead of returning '
  'false';

create or replace function push.use_quota(p_app text[], p_calls bigint[], p_notifications bigint[], p_recipients bigint[]) returns void
language plpgsql volatile as $$
declare
  v_quota    push.quota;
  v_what     text;
  v_limit    int;
  v_count    bigint;
  v_meter    regclass;
  v_returned bigint;
  -- What was counted so far, by meter: the meters that give it back, and the counts.
  v_back     regclass[] := '{}';
  v_counts   bigint[] := '{}';
begin
  for v_i in 1..coalesce(cardinality(p_app), 0) loop
    select q.* into v_quota from push.quota q where q.app = p_app[v_i];
    continue when not found;
    foreach v_what in array array['calls', 'notifications', 'recipients'] loop
      v_limit := case v_what when 'calls' then v_quota.calls when 'notifications' then v_quota.notifications else v_quota.recipients end;
      v_count := (case v_what when 'calls' then p_calls when 'notifications' then p_notifications else p_recipients end)[v_i];
      continue when v_limit is null or v_count = 0;
      v_meter := push.meter(v_quota.id, v_what);
      continue when v_meter is null;
      v_back := v_back || push.meter(v_quota.id, v_what || '_returned');
      v_counts := v_counts || v_count;
      v_returned := pg_sequence_last_value(v_back[cardinality(v_back)]);
      if push.meter_used(push.meter_rest(push.count_on_meter(v_meter, v_count), v_returned)) > v_limit then
        -- Other sessions used it up since this statement asked. All that it counted is given back, for each of its apps.
        perform push.count_on_meter(b.meter, b.count) from unnest(v_back, v_counts) b(meter, count) where b.meter is not null;
        perform push.refuse_quota(p_app[v_i], v_quota.id, v_what, v_limit, v_count);
      end if;
    end loop;
  end loop;
end
$$;
comment on function push.use_quota is
  'counts what a statement enqueues. Raises the error of push.has_room if other sessions have used up a quota meanwhile; then '
  'nothing of the statement is counted. Arrays, by app, each as an argument of push.has_room';

-- Who sets it -----------------------------------------------------------------------------------------------------------

-- A sequence that a session has begun to make is waited for, by its name; then it is there.
create or replace function push.make_meters(p_id int) returns void
language plpgsql volatile set search_path = push, pg_temp set client_min_messages = warning as $$
declare
  v_what text;
begin
  foreach v_what in array push.meter_names() loop
    continue when push.meter(p_id, v_what) is not null;
    execute format('create sequence push.%I minvalue 0 start 0', 'meter_' || p_id || '_' || v_what);
    execute format('comment on sequence push.%I is %L', 'meter_' || p_id || '_' || v_what,
      replace(v_what, '_', ' ') || ' that push.quota ' || p_id || ' has counted: see functions/quotas.sql');
  end loop;
end
$$;
comment on function push.make_meters is
  'makes the meters of a quota that are missing. Its caller has the row of push.quota locked. p_id: push.quota.id';

create or replace function push.configure_quota(p_app text, p_quota int[], p_replica text) returns void
language plpgsql volatile set search_path = push, pg_temp set lock_timeout = '200ms' as $$
declare
  v_quota push.quota;
  v_found boolean;
begin
  if p_replica is not null then
    -- A gateway registers its apps just before itself.
    delete from push.quota_of_replica r
      where r.app = p_app and r.said_at < clock_timestamp() - interval '1 minute'
        and not exists (select from push.gateways g where g.name = r.replica and g.alive);
    insert into push.quota_of_replica (app, replica, calls, notifications, recipients)
      values (p_app, p_replica, p_quota[1], p_quota[2], p_quota[3])
      on conflict (app, replica) do update set calls = excluded.calls, notifications = excluded.notifications,
        recipients = excluded.recipients, said_at = clock_timestamp();
  end if;
  -- Nothing to write: a gateway does not wait for an operator whose push.set_quota is not committed.
  if coalesce((select (q.configured_calls, q.configured_notifications, q.configured_recipients)
        is not distinct from (p_quota[1], p_quota[2], p_quota[3])
        and not exists (select from unnest(push.meter_names()) w where push.meter(q.id, w) is null)
      from push.quota q where q.app = p_app), num_nonnulls(p_quota[1], p_quota[2], p_quota[3]) = 0)
  then
    return;
  end if;
  begin
    select q.* into v_quota from push.quota q where q.app = p_app for update;
    v_found := found;
    if not v_found then
      insert into push.quota (app) values (p_app) on conflict do nothing;
      select q.* into v_quota from push.quota q where q.app = p_app for update;
    end if;
    perform push.make_meters(v_quota.id);
    if (v_quota.configured_calls, v_quota.configured_notifications, v_quota.configured_recipients)
      is distinct from (p_quota[1], p_quota[2], p_quota[3])
    then
      update push.quota q set configured_calls = p_quota[1], configured_notifications = p_quota[2],
          configured_recipients = p_quota[3], updated_at = clock_timestamp()
        where q.app = p_app;
      perform push.note_audit('configure_quota', p_app, jsonb_build_object('replica', p_replica,
        'calls', p_quota[1], 'notifications', p_quota[2], 'recipients', p_quota[3], 'before', jsonb_build_object(
          'calls', v_quota.configured_calls, 'notifications', v_quota.configured_notifications,
          'recipients', v_quota.configured_recipients)));
    end if;
  exception
    -- An operator has called push.set_quota in a transaction that is still open. Calls must ring all the same.
    when lock_not_available then
      raise warning 'the quota of app % is not taken over: it is being set by an operator', p_app;
  end;
end
$$;
comment on function push.configure_quota is
  'stores the quota that a gateway''s configuration gives an app; for push.register_app. The gateway that registers last is '
  'right, and push.health reports living replicas that differ. If an operator is setting the quota, it stays as it is, '
  'and push.health says so. p_quota: calls, notifications and recipients a minute, each '
  'null for no limit; p_replica: push.gateways.name of the gateway';

create or replace function push.set_quota(
  app text, calls_per_minute int default null, notifications_per_minute int default null,
  recipients_per_minute int default null, note text default null
) returns table (changed boolean, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_before push.quota;
  v_after  push.quota;
  v_fault  text := (
    select format('%s: must be 0 to 1000000; null leaves it to the configuration', x.name)
    from (values ('calls_per_minute', set_quota.calls_per_minute), ('notifications_per_minute', set_quota.notifications_per_minute),
      ('recipients_per_minute', set_quota.recipients_per_minute)) x(name, value)
    where x.value not between 0 and 1000000 limit 1);
begin
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault,
      hint = '0 refuses everything; 1000000 lifts the limit of the configuration.';
  elsif not exists (select from push.lane l where l.app = set_quota.app)
    and not exists (select from push.apps a where a.app = set_quota.app)
  then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('app: there is no app %s', coalesce(left(set_quota.app, 64), 'without a name')),
      hint = coalesce((select 'There are ' || string_agg(a.app, ', ') from (select a.app from push.apps a order by a.app limit 20) a),
        'No gateway has registered any.');
  end if;
  if num_nonnulls(set_quota.calls_per_minute, set_quota.notifications_per_minute, set_quota.recipients_per_minute) > 0 then
    insert into push.quota (app) values (set_quota.app) on conflict do nothing;
  end if;
  select q.* into v_before from push.quota q where q.app = set_quota.app for update;
  if v_before.app is null then
    changed := false;
    message := format('app %s: no limit; nothing was set', set_quota.app);
    return next;
    return;
  end if;
  perform push.make_meters(v_before.id);
  update push.quota q
    set set_calls = set_quota.calls_per_minute, set_notifications = set_quota.notifications_per_minute,
      set_recipients = set_quota.recipients_per_minute, note = left(set_quota.note, 500), updated_at = clock_timestamp(),
      set_at = case when num_nonnulls(set_quota.calls_per_minute, set_quota.notifications_per_minute,
        set_quota.recipients_per_minute) > 0 then clock_timestamp() end,
      set_by = case when num_nonnulls(set_quota.calls_per_minute, set_quota.notifications_per_minute,
        set_quota.recipients_per_minute) > 0 then session_user end
    where q.app = set_quota.app
    returning q.* into v_after;
  changed := (v_before.set_calls, v_before.set_notifications, v_before.set_recipients, v_before.note)
    is distinct from (v_after.set_calls, v_after.set_notifications, v_after.set_recipients, v_after.note);
  message := format('app %s: %s', set_quota.app, (
    select string_agg(case when x.value is null then format('no limit of %s', x.name)
        else format('%s %s a minute (%s)', x.value, x.name, case when x.own is null then 'as configured' else 'set' end) end, ', ')
    from (values ('calls', v_after.calls, v_after.set_calls), ('notifications', v_after.notifications, v_after.set_notifications),
      ('recipients', v_after.recipients, v_after.set_recipients)) x(name, value, own)));
  perform push.note_audit('set_quota', set_quota.app, jsonb_build_object('calls', set_quota.calls_per_minute,
    'notifications', set_quota.notifications_per_minute, 'recipients', set_quota.recipients_per_minute,
    'note', left(set_quota.note, 500), 'changed', changed));
  return next;
end
$$;
comment on function push.set_quota is
  'overrides the quota of an app, at once and until the next call, whatever the configuration says or becomes. app: name of '
  'the app; calls_per_minute, notifications_per_minute, recipients_per_minute: 0 to 1000000; null: as configured. So '
  'push.set_quota(app) ends every override. note: why. Returns whether this changed anything, and a sentence that says what '
  'holds now. Running it twice is harmless';

-- What is seen ----------------------------------------------------------------------------------------------------------

create or replace function push.quota_uses()
returns table (
  app text, what text, "limit" int, used int, configured int, set_to int, refusals int, refused_at timestamptz, id int
)
language sql stable security definer set search_path = push, pg_temp as $$
  select q.app, k.what, k."limit", push.meter_used(push.meter_value(q.id, k.what)), k.configured, k.set_to,
    push.meter_used(pg_sequence_last_value(push.meter(q.id, 'refusals'))), r.refused_at, q.id
  from push.quota q
  cross join lateral (values ('calls', q.calls, q.configured_calls, q.set_calls),
    ('notifications', q.notifications, q.configured_notifications, q.set_notifications),
    ('recipients', q.recipients, q.configured_recipients, q.set_recipients)) k(what, "limit", configured, set_to)
  left join push.quota_refusals r on r.id = q.id
  where not pg_is_in_recovery()
$$;
comment on function push.quota_uses is
  'the quotas and their use, one row for each app and limit, also where there is none now. For push.quotas and push.observe';

create or replace view push.quotas as
select u.app, u.what, u."limit", u.used, u.refusals, u.refused_at, u.configured, u.set_to, q.set_at, q.set_by, q.note
from push.quota_uses() u join push.quota q on q.app = u.app
where u."limit" is not null or u.configured is not null
order by u.app, u.what;
comment on view push.quotas is
  'how much each app with a quota may enqueue in a minute, and how much it has; no rows if no app has one. push.set_quota '
  'changes a quota';
comment on column push.quotas.app is 'name of the app';
comment on column push.quotas.what is 'calls, notifications, or recipients (entries of recipients, of both)';
comment on column push.quotas."limit" is 'number allowed in a minute';
comment on column push.quotas.used is 'number enqueued in the last minute; an estimate, which also counts rolled back transactions';
comment on column push.quotas.refusals is 'statements of the app that were refused in the last minute, for any of its limits';
comment on column push.quotas.refused_at is 'when a gateway last found that some were refused; null: never';
comment on column push.quotas.configured is 'the limit of the gateways'' configuration; null: none';
comment on column push.quotas.set_to is 'the limit that push.set_quota has set, which overrides it; null: none';
comment on column push.quotas.set_at is 'when push.set_quota was called; null: nothing is set';
comment on column push.quotas.set_by is 'the login that called it';
comment on column push.quotas.note is 'why, as given to push.set_quota';

create or replace function push.quota_troubles() returns table (app text, trouble text)
language sql stable security definer set search_path = push, pg_temp as $$
  select u.app, format('%s at its quota (%s)', u.app, string_agg(format('%s of %s %s', u.used, u."limit", u.what), ', ')
      || case when max(u.refusals) > 0 then format('; %s refusals in the last minute', max(u.refusals)) else '' end)
    from push.quota_uses() u
    where u."limit" > 0 and (u.used >= u."limit" or u.refusals > 0
      and not exists (select from push.quota q where q.id = u.id and 0 in (q.calls, q.notifications, q.recipients)))
    group by u.app
  union all
  select u.app, format('%s may enqueue no %s: the quota is 0', u.app, string_agg(u.what, ' and no '))
      || case when max(u.refusals) > 0 then format('; %s refusals in the last minute', max(u.refusals)) else '' end
    from push.quota_uses() u
    where u."limit" = 0
    group by u.app
  union all
  select s.app, format('replicas differ on %s: %s', s.app, string_agg(format('%s/%s/%s (%s)', coalesce(s.calls::text, 'none'),
      coalesce(s.notifications::text, 'none'), coalesce(s.recipients::text, 'none'), s.names), ', '))
    from (
      select r.app, r.calls, r.notifications, r.recipients, string_agg(r.replica, ', ' order by r.replica) as names
      from push.quota_of_replica r
      where exists (select from push.gateways g where g.name = r.replica and g.alive)
      group by r.app, r.calls, r.notifications, r.recipients
    ) s
    group by s.app having count(*) > 1
  union all
  select s.app, format('the quota of %s is not the one that %s has: register it again, by a restart', s.app, s.replica)
    from (
      select distinct on (r.app) r.* from push.quota_of_replica r
      where exists (select from push.gateways g where g.name = r.replica and g.alive)
      order by r.app, r.said_at desc
    ) s
    left join push.quota q on q.app = s.app
    where (s.calls, s.notifications, s.recipients) is distinct from (q.configured_calls, q.configured_notifications, q.configured_recipients)
$$;
comment on function push.quota_troubles is
  'apps that are at their quota, apps with a quota of 0, apps to which living replicas give different quotas, and those whose last word was not '
  'taken over; for push.health';

-- Each refusal is counted by one gateway: the job tally adds them to its metrics.
create or replace function push.take_refusals() returns table (app text, count bigint)
language plpgsql volatile set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_quota record;
  v_value bigint;
  v_seen  bigint;
  v_ages  bigint;
begin
  for v_quota in select q.id, q.app from push.quota q loop
    v_value := pg_sequence_last_value(push.meter(v_quota.id, 'refusals'));
    continue when v_value is null;
    select r.seen into v_seen from push.quota_refusals r where r.id = v_quota.id;
    continue when v_seen = v_value;
    insert into push.quota_refusals (id) values (v_quota.id) on conflict do nothing;
    select r.seen into v_seen from push.quota_refusals r where r.id = v_quota.id for update skip locked;
    continue when not found or v_seen = v_value;
    v_ages := ((v_value >> 44) - (v_seen >> 44)) & 524287;
    app := v_quota.app;
    count := greatest(0, case v_ages
      when 0 then (v_value & 4194303) - (v_seen & 4194303)
      when 1 then ((v_value >> 22) & 4194303) - (v_seen & 4194303) + (v_value & 4194303)
      else ((v_value >> 22) & 4194303) + (v_value & 4194303) end);
    update push.quota_refusals r
      set seen = v_value, refusals = r.refusals + count, refused_at = case when count > 0 then clock_timestamp() else r.refused_at end
      where r.id = v_quota.id;
    if count > 0 then
      return next;
    end if;
  end loop;
end
$$;
comment on function push.take_refusals is
  'how many statements of each app its quota has refused since the last call; for push.take_tally. If no gateway asked for '
  'two minutes, only those of the last two are counted';
