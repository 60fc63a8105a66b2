-- Quotas: how much one app may enqueue in a minute, in this database, so that a backend that runs wild neither fills the
-- outbox nor slows its neighbours. Enqueueing (enqueue.sql) asks twice: before it makes deliveries, whether there is room;
-- and in the last trigger (tally.sql), when nothing else can refuse the statement, it counts. What ends a call is never counted.
--
-- There are three limits: calls, notifications, and recipients of both. Arrays have them in this order.
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
  app        text primary key,
  id         int generated always as identity,
  configured int[] not null default '{null,null,null}',
  set_to     int[] not null default '{null,null,null}',
  limits     int[] generated always as (array[coalesce(set_to[1], configured[1]), coalesce(set_to[2], configured[2]),
    coalesce(set_to[3], configured[3])]) stored,
  set_at     timestamptz,
  set_by     text,
  note       text,
  constraint quota_id unique (id),
  constraint quota_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64),
  constraint quota_range check (0 <= all (configured || set_to) and 1000000 >= all (configured || set_to))
);
comment on table push.quota is
  'one app that has a quota, or once had one. Written only when a quota changes; its use is in the sequences push.meter_ID_…. '
  'People read push.quotas';
comment on column push.quota.id is 'number in the names of its meters';
comment on column push.quota.configured is
  'calls, notifications and recipients a minute, by the configuration of the gateway that registered last; null: no limit';
comment on column push.quota.set_to is 'the same by push.set_quota, which overrides the configuration; null: not set';
comment on column push.quota.limits is 'the same as enqueueing reads it';
comment on column push.quota.set_at is 'when push.set_quota was called; null: nothing is set';
comment on column push.quota.set_by is 'the login that called it';
comment on column push.quota.note is 'why, as given to push.set_quota';

create table if not exists push.quota_of_replica (
  app     text not null,
  replica text not null,
  limits  int[] not null,
  said_at timestamptz not null default clock_timestamp(),
  constraint quota_of_replica_pkey primary key (app, replica)
);
comment on table push.quota_of_replica is
  'the quota that the configuration of one replica gives an app, so that push.health can report replicas that differ';
comment on column push.quota_of_replica.replica is 'push.gateways.name of the replica';
comment on column push.quota_of_replica.limits is 'as push.quota.configured';
comment on column push.quota_of_replica.said_at is 'when the replica registered the app';

-- Meters ----------------------------------------------------------------------------------------------------------------

-- The functions that run for each statement have no settings of their own: they are called by functions that have, and a
-- setting costs as much as a query.

-- refusals_seen: what the meter of refusals was when it was last read.
create or replace function push.meter_names() returns text[] language sql immutable parallel safe as
$$ select '{calls,notifications,recipients,calls_returned,notifications_returned,recipients_returned,refusals,refusals_seen}'::text[] $$;
comment on function push.meter_names is 'what the meters of a quota count; the first three are its limits';

-- A meter is missing after a restore of data alone, until push.register_app makes it.
create or replace function push.meter(p_id int, p_what text) returns regclass language sql stable as
$$ select to_regclass('push.meter_' || p_id || '_' || p_what) $$;
comment on function push.meter is 'the sequence that counts for a quota; null: it is missing';

create or replace function push.meter_at(p_value bigint, p_minute bigint) returns bigint
language sql immutable parallel safe as $$
  select case (p_minute - (p_value >> 44)) & 524287
    when 0 then p_value
    -- One minute ahead: another session has begun it, or the clock was set back.
    when 524287 then p_value
    when 1 then ((p_minute & 524287) << 44) | ((p_value & 4194303) << 22)
    else (p_minute & 524287) << 44 end
$$;
comment on function push.meter_at is 'the value that a meter has in a minute (since 1970) if nothing more is counted';

-- used is an estimate; wait is at least 1, and right if nothing more is counted. What was returned is read before what was counted, so
-- that the difference is never too small.
create or replace function push.read_meter(
  p_id int, p_what text, p_room int default null, p_count bigint default 0, out used int, out wait int
)
language plpgsql volatile as $$
declare
  v_minutes  double precision := date_part('epoch', clock_timestamp()) / 60;
  v_part     double precision := v_minutes - floor(v_minutes);
  v_given    bigint := coalesce(pg_sequence_last_value(push.meter(p_id, p_what || '_returned')), 0);
  v_counted  bigint := push.meter_at(coalesce(case when p_count > 0 then push.count_on_meter(push.meter(p_id, p_what), p_count)
    else pg_sequence_last_value(push.meter(p_id, p_what)) end, 0), floor(v_minutes)::bigint);
  v_returned bigint := push.meter_at(v_given, v_counted >> 44);
  v_before   double precision := greatest(0, ((v_counted >> 22) & 4194303) - ((v_returned >> 22) & 4194303));
  v_count    double precision := greatest(0, (v_counted & 4194303) - (v_returned & 4194303));
begin
  used := ceil(v_before * (1 - v_part)) + v_count;
  -- The minute before is forgotten during this one, and this one during the next.
  wait := greatest(1, ceil(60 * (case
    when v_count <= p_room then greatest(0, 1 - (p_room - v_count) / greatest(v_before, 1)) - v_part
    else 1 - v_part + 1 - p_room / v_count end)));
end
$$;
comment on function push.read_meter is
  'counts p_count on a meter; returns what it has counted in the last minute, and seconds until that is down to p_room';

create or replace function push.count_on_meter(p_meter regclass, p_count bigint) returns bigint
language plpgsql volatile as $$
declare
  v_minute bigint := floor(date_part('epoch', clock_timestamp()) / 60);
begin
  if pg_sequence_last_value(p_meter) is distinct from push.meter_at(coalesce(pg_sequence_last_value(p_meter), 0), v_minute) then
    -- Read and written within one expression: of sessions that begin a minute at the same moment, one may lose what the other
    -- counts within these microseconds.
    perform setval(p_meter, push.meter_at(coalesce(pg_sequence_last_value(p_meter), 0), v_minute));
  end if;
  perform nextval(p_meter) from generate_series(2, p_count);
  return nextval(p_meter);
end
$$;
comment on function push.count_on_meter is 'adds p_count, at least 1, to a meter at once, whatever becomes of the transaction';

-- Asking, refusing, counting --------------------------------------------------------------------------------------------

-- 53Q01, or 22023 for more than the quota of a minute. A refusal is counted.
create or replace function push.quota_fault(p_app text, p_counts bigint[], p_refuses boolean default false, p_uses boolean default false)
returns jsonb
language plpgsql volatile as $$
declare
  v_full record;
  v_wait int;
begin
  select q.id, k.*, k.count * (not p_uses)::int as added into v_full from push.quota q
    cross join lateral unnest((push.meter_names())[:3], q.limits, p_counts) with ordinality k(what, most, count, place)
    where q.app = p_app and case when k.count > 0 and k.most is not null and push.meter(q.id, k.what) is not null
      then (push.read_meter(q.id, k.what, p_count => k.count * p_uses::int)).used + k.count * (not p_uses)::int > k.most end
    order by k.place limit 1;
  if not found or not p_refuses then
    return case when found then '{}' end::jsonb;
  end if;
  perform push.count_on_meter(m.meter, 1) from push.meter(v_full.id, 'refusals') m(meter) where m.meter is not null;
  if v_full.count > v_full.most and v_full.most > 0 then
    return jsonb_build_object('code', '22023', 'column', case v_full.what when 'recipients' then 'recipients' else 'app' end,
      'message', format('%s: this statement has %s %s, and the quota of app %s is %s a minute; split it',
        case v_full.what when 'recipients' then 'recipients' else 'app' end, v_full.count, v_full.what, p_app, v_full.most),
      'detail', format('quota=%s', v_full.most),
      'hint', 'Nothing of this statement was enqueued. push.quotas shows the quota, and push.set_quota changes it.');
  end if;
  -- If it is 0, the HTTP API needs a number for Retry-After, too.
  v_wait := case v_full.most when 0 then 60 else (push.read_meter(v_full.id, v_full.what, (v_full.most - v_full.added)::int)).wait end;
  return jsonb_build_object('code', '53Q01', 'detail', format('retry_after_seconds=%s', v_wait), 'column', 'app',
    'message', case v_full.most when 0 then format('app: app %s may enqueue no %s: its quota is 0', p_app, v_full.what)
      else format('app: app %s has used up its quota of %s %s a minute', p_app, v_full.most, v_full.what) end,
    'hint', 'Nothing of this statement was enqueued. ' || case v_full.most when 0 then 'An operator ends that with push.set_quota.'
      else format('Enqueue less, and try again in %s s. push.quotas shows what is used, and push.set_quota changes the quota.', v_wait) end);
end
$$;
comment on function push.quota_fault is
  'null: the quota has room for a statement; else, with p_refuses, the error: code, message, detail, hint and column, for RAISE. '
  'p_uses: counts the statement, also if there is no room for it';

create or replace function push.use_quota(p_app text[], p_counts bigint[]) returns jsonb
language plpgsql volatile as $$
declare
  v_fault jsonb;
begin
  for v_app in 1..coalesce(cardinality(p_app), 0) loop
    v_fault := push.quota_fault(p_app[v_app], array(select unnest(p_counts[v_app:v_app])), true, true);
    if v_fault is not null then
      -- Other sessions used it up since this statement asked. All that it counted is given back, for each of its apps.
      perform push.count_on_meter(push.meter(q.id, k.what || '_returned'), p_counts[a.i][k.place])
        from generate_series(1, v_app) a(i) join push.quota q on q.app = p_app[a.i]
        cross join lateral unnest((push.meter_names())[:3], q.limits) with ordinality k(what, most, place)
        where k.most is not null and p_counts[a.i][k.place] > 0
          and num_nulls(push.meter(q.id, k.what), push.meter(q.id, k.what || '_returned')) = 0;
      return v_fault;
    end if;
  end loop;
  return null;
end
$$;
comment on function push.use_quota is 'counts what a statement enqueues, by app; or returns the error, as push.quota_fault does';

-- Who sets it -----------------------------------------------------------------------------------------------------------

create or replace function push.lock_quota(p_app text) returns push.quota language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_quota push.quota;
  v_what  text;
begin
  insert into push.quota (app) select p_app where not exists (select from push.quota q where q.app = p_app) on conflict do nothing;
  select q.* into v_quota from push.quota q where q.app = p_app for update;
  for v_what in select w from unnest(push.meter_names()) w where push.meter(v_quota.id, w) is null loop
    execute format('create sequence push.%I minvalue 0 start 0', 'meter_' || v_quota.id || '_' || v_what);
  end loop;
  return v_quota;
end
$$;
comment on function push.lock_quota is 'the row of an app in push.quota, locked, and made if it is missing, like its meters';

-- The gateway that registers last is right, unless an operator is setting the quota; push.health reports both.
create or replace function push.configure_quota(p_app text, p_quota int[], p_replica text) returns void
language plpgsql volatile set search_path = push, pg_temp set lock_timeout = '200ms' as $$
declare
  v_quota push.quota;
begin
  -- A gateway registers its apps just before itself.
  delete from push.quota_of_replica r
    where p_replica is not null and r.app = p_app and r.said_at < clock_timestamp() - interval '1 minute'
      and not exists (select from push.gateways g where g.name = r.replica and g.alive);
  insert into push.quota_of_replica (app, replica, limits) select p_app, p_replica, p_quota where p_replica is not null
    on conflict (app, replica) do update set limits = excluded.limits, said_at = excluded.said_at;
  -- Nothing to write: a gateway does not wait for an operator whose push.set_quota is not committed.
  if coalesce((select q.configured = p_quota and not exists (select from unnest(push.meter_names()) w where push.meter(q.id, w) is null)
      from push.quota q where q.app = p_app), num_nonnulls(variadic p_quota) = 0) then
    return;
  end if;
  begin
    v_quota := push.lock_quota(p_app);
    if v_quota.configured <> p_quota then
      update push.quota q set configured = p_quota where q.app = p_app;
      insert into push.audit (action, target, detail) values ('configure_quota', p_app, (
        select jsonb_object_agg(l.name, l.now) || jsonb_build_object('replica', p_replica, 'before', jsonb_object_agg(l.name, l.before))
        from unnest((push.meter_names())[:3], p_quota, v_quota.configured) l(name, now, before)));
    end if;
  exception
    -- An operator has called push.set_quota in a transaction that is still open. Calls must ring all the same.
    when lock_not_available then
      raise warning 'the quota of app % is not taken over: it is being set by an operator', p_app;
  end;
end
$$;
comment on function push.configure_quota is 'stores the quota that the configuration of a gateway gives an app';

create or replace function push.set_quota(
  app text, calls_per_minute int default null, notifications_per_minute int default null,
  recipients_per_minute int default null, note text default null
) returns table (changed boolean, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_set    constant int[] := array[calls_per_minute, notifications_per_minute, recipients_per_minute];
  v_is_set constant boolean := num_nonnulls(variadic v_set) > 0;
  v_before push.quota;
  v_after  push.quota;
  v_detail jsonb;
  v_fault  text := (
    select format('%s_per_minute: must be 0 to 1000000; null leaves it to the configuration', x.name)
    from unnest((push.meter_names())[:3], v_set) x(name, value) where x.value not between 0 and 1000000 limit 1);
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
  if not v_is_set and not exists (select from push.quota q where q.app = set_quota.app) then
    return query select false, format('app %s: no limit; nothing was set', set_quota.app);
    return;
  end if;
  v_before := push.lock_quota(set_quota.app);
  update push.quota q
    set set_to = v_set, note = left(set_quota.note, 500), set_at = case when v_is_set then clock_timestamp() end,
      set_by = case when v_is_set then session_user end
    where q.app = set_quota.app returning q.* into v_after;
  changed := (v_before.set_to, v_before.note) is distinct from (v_after.set_to, v_after.note);
  select format('app %s: %s', set_quota.app, string_agg(case when x.value is null then format('no limit of %s', x.name)
        else format('%s %s a minute (%s)', x.value, x.name, case when x.own is null then 'as configured' else 'set' end) end, ', ')),
      jsonb_object_agg(x.name, x.own) || jsonb_build_object('note', left(set_quota.note, 500), 'changed', changed)
    into message, v_detail from unnest((push.meter_names())[:3], v_after.limits, v_set) x(name, value, own);
  insert into push.audit (action, target, detail) values ('set_quota', set_quota.app, v_detail);
  return next;
end
$$;
comment on function push.set_quota is
  'overrides the quota of an app, at once and until the next call, whatever the configuration says or becomes. app: name of '
  'the app; calls_per_minute, notifications_per_minute, recipients_per_minute: 0 to 1000000; null: as configured. So '
  'push.set_quota(app) ends every override. note: why. Returns whether this changed anything, and a sentence that says what '
  'holds now. Running it twice is harmless';

-- What is seen ----------------------------------------------------------------------------------------------------------

create or replace function push.quota_uses(p_quota push.quota)
returns table (what text, "limit" int, used int, refusals int, refused_at timestamptz, configured int, set_to int)
language sql stable security definer set search_path = push, pg_temp as $$
  select k.what, k."limit", (push.read_meter(p_quota.id, k.what)).used, (push.read_meter(p_quota.id, 'refusals')).used,
    least(to_timestamp(60 * (n.next - ((n.next - (m.refusals >> 44)) & 524287))), clock_timestamp()), k.configured, k.set_to
  from unnest((push.meter_names())[:3], p_quota.limits, p_quota.configured, p_quota.set_to) k(what, "limit", configured, set_to)
  cross join pg_sequence_last_value(push.meter(p_quota.id, 'refusals')) m(refusals)
  cross join (select floor(date_part('epoch', clock_timestamp()) / 60)::bigint + 1) n(next)
$$;
comment on function push.quota_uses(push.quota) is
  'the quota of an app and its use, one row for each limit, also where there is none now. For push.quotas. p_quota: the app''s row';

create or replace view push.quotas as
select q.app, u.*, q.set_at, q.set_by, q.note from push.quota q cross join lateral push.quota_uses(q) u
where not pg_is_in_recovery() and (u."limit" is not null or u.configured is not null) order by q.app, u.what;
comment on view push.quotas is
  'how much each app with a quota may enqueue in a minute, and how much it has; no rows if no app has one. push.set_quota '
  'changes a quota';
comment on column push.quotas.what is 'calls, notifications, or recipients (entries of recipients, of both)';
comment on column push.quotas."limit" is 'number allowed in a minute';
comment on column push.quotas.used is 'number enqueued in the last minute; an estimate, which also counts rolled back transactions';
comment on column push.quotas.refusals is 'statements of the app that were refused in the last minute, for any of its limits';
comment on column push.quotas.refused_at is 'the minute in which one was last refused; null: never';
comment on column push.quotas.configured is 'the limit of the gateways'' configuration; null: none';
comment on column push.quotas.set_to is 'the limit that push.set_quota has set, which overrides it; null: none';
