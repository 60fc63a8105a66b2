-- The rules of a call: how it ends, whom that is told, what a missed call leaves behind, which tokens are dead.
--
-- push.outbox.state is the truth. It changes once, from ringing to answered, ended or missed; a statement trigger does
-- the rest for all calls of the statement, inside the caller's transaction. The functions here only update that column.
--
-- The race with the gateways is settled as follows. Ending a call deletes its ready and waiting invites: that waits for
-- a claim in flight, and the next statement's fresh snapshot then sees what was claimed. A claimed invite that is given
-- back meanwhile (parked, released, reaped) must not become ready unseen: it does only under a share lock on its call,
-- which an end in progress denies; otherwise it waits, and push.promote asks again. So push.claim needs to ask nothing.

-- How a call ended ----------------------------------------------------------------------------------------------------

alter table push.outbox add column answered_by text, add column ended_at timestamptz, add column end_reason text;
update push.outbox set ended_at = clock_timestamp(), end_reason = state where state <> 'ringing';
comment on column push.outbox.answered_by is 'the user who answered, as far as known: their devices are told nothing';
comment on column push.outbox.ended_at is 'when the state ceased to be ringing; null while it rings';
comment on column push.outbox.end_reason is
  'the reason given to push.end_call, else answered, ended or missed; declined and busy leave no missed call';
comment on column push.outbox.state is
  'ringing, answered, ended or missed; it changes once, and an update of it is as good as push.answer_call or end_call';
comment on column push.delivery.created_at is 'when it was enqueued: an invite with its call, anything else at its end';
-- For push.miss. A look-up by id asks "ended_at is null" for the same thing: given "state = 'ringing'" the planner may
-- walk this index instead.
create index outbox_ringing on push.outbox (deadline_at) where state = 'ringing';

-- As in 0002; besides, no call is born ended.
create or replace function push.fill_call() returns trigger
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  -- Too long or missing values are cut or replaced so that the row can be inserted; the statement trigger refuses it.
  new.app := left(coalesce(new.app, 'default'), 65);
  new.kind := coalesce(new.kind, 'incoming_call');
  new.payload := coalesce(new.payload, 'null');
  new.recipients := coalesce(new.recipients, 'null');
  new.call_id := left(coalesce(new.call_id, new.payload ->> 'callId', ''), 129);
  if exists (select from push.outbox o where o.call_id = new.call_id and o.app = new.app) then
    return null;
  end if;
  if new.ring_seconds is null then
    new.ring_seconds := coalesce((select a.ring_seconds from push.apps a where a.app = new.app), 60);
  end if;
  new.state := 'ringing';
  new.answered_by := null;
  new.ended_at := null;
  new.end_reason := null;
  new.created_at := clock_timestamp();
  new.deadline_at := new.created_at + make_interval(secs => new.ring_seconds);
  return new;
end
$$;
create function push.check_call() returns trigger language plpgsql set search_path = push, pg_temp as $$
declare
  v_fault text := case
    when (new.id, new.app, new.kind, new.call_id, new.ring_seconds, new.created_at, new.deadline_at)
        is distinct from (old.id, old.app, old.kind, old.call_id, old.ring_seconds, old.created_at, old.deadline_at)
        or new.payload is distinct from old.payload or new.recipients is distinct from old.recipients
      then ': only state, answered_by and end_reason can be changed; enqueue another call'
    when new.state is null or new.state not in ('ringing', 'answered', 'ended', 'missed')
      then '.state: must be answered, ended or missed'
    when old.state <> 'ringing' and new.state <> old.state
      then format('.state: is %s already and cannot become %s', old.state, new.state)
    when length(new.end_reason) not between 1 and 64 then '.end_reason: must have 1 to 64 characters'
    when length(new.answered_by) not between 1 and 256 then '.answered_by: must have 1 to 256 characters'
  end;
begin
  if v_fault is not null then
    raise exception using
      errcode = 'invalid_parameter_value', message = format('push.outbox%s (call %s)', v_fault, old.call_id),
      schema = 'push', table = 'outbox', column = coalesce(substring(v_fault from '^\.([a-z_]+)'), '');
  end if;
  if new.state = old.state then
    new.ended_at := old.ended_at;
    new.end_reason := old.end_reason;
    new.answered_by := old.answered_by;
  else
    new.ended_at := clock_timestamp();
    new.end_reason := coalesce(new.end_reason, new.state);
  end if;
  return new;
end
$$;
comment on function push.check_call is
  'lets a call end once and refuses any other change, with an error that names the column and prints no token';

-- Unsent invites ------------------------------------------------------------------------------------------------------

-- Also for calls of which only some have ended: the others are left alone.
create function push.void_unsent(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_ended  bigint[] := array(
    select distinct o.id from push.outbox o where o.id = any (p_outbox_id) and o.state <> 'ringing' order by o.id);
  v_voided bigint;
begin
  if v_ended = '{}' then
    return 0;
  end if;
  with gone as (
    delete from push.delivery d
    using push.outbox o
    where o.id = any (v_ended) and d.outbox_id = any (v_ended) and d.outbox_id = o.id
      and d.kind = 0 and d.state in (0, 2)
    -- A missed call's invites ended as push.expire would have ended them, whichever of the two comes first.
    returning d.*, o.call_id, o.state as call_state,
      o.state = 'missed' and d.deadline_at <= clock_timestamp() as is_late
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind,
    case when g.is_late then 3 else 2 end, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    case when g.is_late then coalesce(g.last_reason, 'DeadlinePassed') else 'Call' || initcap(g.call_state) end
  from gone g;
  get diagnostics v_voided = row_count;
  return v_voided;
end
$$;
comment on function push.void_unsent is
  'ends the ready and waiting invites of those of the given calls that no longer ring, as void (CallAnswered, '
  'CallEnded, CallMissed), or as expired when missed; returns how many';

-- Cancels -------------------------------------------------------------------------------------------------------------

-- "lateral (… offset 0)" pins a lookup by index for each outer row, and leaves hash joins to what is small. History
-- holds masked tokens only: a token is found again among the call's recipients and the user's devices by its mask.
create function push.cancel_invites(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  -- Variables, so that only the partitions between are looked at. The margin is for what is settled meanwhile.
  v_since   timestamptz := (select min(o.created_at) from push.outbox o where o.id = any (p_outbox_id));
  v_until   timestamptz := clock_timestamp() + interval '1 minute';
  v_cancels bigint;
begin
  with call as materialized (
    select o.*
    from unnest(p_outbox_id) c(id) cross join lateral (
      select o.id, o.app, o.recipients, o.answered_by from push.outbox o
      where o.id = c.id and o.state in ('answered', 'ended')
      offset 0
    ) o
  ), claimed as materialized (
    -- Ready and waiting ones are gone, but for one that was given back this very moment.
    select c.id, d.lane, d.token, d.user_id, d.environment, d.platform, d.locale
    from call c cross join lateral (
      select * from push.delivery d where d.outbox_id = c.id and d.kind = 0 offset 0
    ) d
  ), finished as materialized (
    -- Of those that a gateway settled, the last try counts only if it left; of the others, every try may have.
    select distinct c.id, c.app, h.lane, h.user_id, h.device, l.provider
    from call c cross join lateral (
      select * from push.history h
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and h.kind = 0
        and (h.sent_at is not null or h.attempts > case when h.owner is null then 0 else 1 end)
        and (h.outcome <> 4 or h.status is null)
      offset 0
    ) h
    join push.lane l on l.id = h.lane
    where l.provider <> 'apns'
  ), inline as materialized (
    select c.id, t.provider, e ->> 'userId' as user_id, t.token,
      case when e ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
      case e ->> 'platform' when 'ios' then 1 when 'android' then 2 else 0 end::smallint as platform,
      e ->> 'locale' as locale
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    cross join lateral (values ('fcm', e ->> 'fcmToken'), ('expo', e ->> 'pushToken')) t(provider, token)
    where t.token <> ''
  ), target as (
    select c.* from claimed c
    union all
    select f.id, f.lane, i.token, f.user_id, i.environment, i.platform, i.locale
    from finished f
    join inline i on i.id = f.id and i.user_id = f.user_id and i.provider = f.provider
      and left(i.token, 4) || '…' || right(i.token, 4) = f.device
    union all
    select f.id, f.lane, d.token, f.user_id, case d.environment when 'sandbox' then 1 else 0 end::smallint,
      case d.platform when 'ios' then 1 when 'android' then 2 else 0 end::smallint, d.locale
    from finished f cross join lateral (
      select * from push.devices d
      where d.user_id = f.user_id and d.app = f.app and d.enabled and d.invalidated_at is null
        and d.provider = f.provider and left(d.token, 4) || '…' || right(d.token, 4) = f.device
      offset 0
    ) d
  )
  insert into push.delivery (outbox_id, n, kind, created_at, due_at, deadline_at, lane, environment, platform, user_id,
    token, locale)
  select t.id, 9999 + row_number() over (partition by t.id order by t.lane, t.token), 1, clock_timestamp(),
    clock_timestamp(), clock_timestamp() + interval '60 s', t.lane, t.environment, t.platform, t.user_id, t.token,
    t.locale
  from (
    select distinct on (t.id, t.lane, t.token) t.*
    from target t
    join call c on c.id = t.id
    join push.lane l on l.id = t.lane
    -- Apple: a VoIP push must end in a reported call, so none may be sent to cancel one.
    where l.provider <> 'apns' and t.user_id is distinct from c.answered_by
    order by t.id, t.lane, t.token
  ) t;
  get diagnostics v_cancels = row_count;
  return v_cancels;
end
$$;
comment on function push.cancel_invites is
  'for calls answered or ended: one cancel a device that may ring, never to a VoIP token, none for the user who '
  'answered; returns how many';

-- Missed calls --------------------------------------------------------------------------------------------------------

create function push.announce_missed(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_announced bigint;
begin
  insert into push.delivery (outbox_id, n, kind, created_at, due_at, deadline_at, lane, environment, platform, user_id,
    token, locale)
  select m.id, 19999 + row_number() over (partition by m.id order by m.user_id), 2, clock_timestamp(),
    clock_timestamp(), clock_timestamp() + interval '4 hours', coalesce(l.id, push.register_lane(m.app, m.provider)),
    m.environment, m.platform, m.user_id, m.token, m.locale
  from (
    select distinct on (r.id, r.user_id) r.id, r.app, r.user_id, v.*
    from (
      select o.id, o.app, o.recipients, e.entry, e.ordinal,
        case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end as user_id,
        jsonb_typeof(e.entry) = 'object' and e.entry ?| '{voipPushToken,apnsToken,fcmToken,pushToken}' as inline
      from unnest(p_outbox_id) c(id) cross join lateral (
        select * from push.outbox o
        where o.id = c.id and (o.state = 'missed' or o.state = 'ended' and o.end_reason not in ('declined', 'busy'))
        offset 0
      ) o
      cross join lateral jsonb_array_elements(o.recipients) with ordinality e(entry, ordinal)
      where e.entry -> 'notificationEnabled' is distinct from 'false'
    ) r
    cross join lateral (
      select t.rank, t.provider, t.token,
        case when r.entry ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
        case when t.rank = 1 or r.entry ->> 'platform' = 'ios' then 1 when r.entry ->> 'platform' = 'android' then 2
          else 0 end::smallint as platform,
        r.entry ->> 'locale' as locale, null::timestamptz as registered_at
      from (values (1, 'apns', r.entry ->> 'apnsToken'), (2, 'fcm', r.entry ->> 'fcmToken'),
        (3, 'expo', r.entry ->> 'pushToken')) t(rank, provider, token)
      where r.inline and t.token <> ''
        and not exists (select from push.token_invalidations x
          where x.token = t.token and x.app = r.app and x.provider = t.provider)
        -- A VoIP token that somebody calls an alert token, too, is a VoIP token.
        and (t.rank > 1 or not r.recipients @> jsonb_build_array(jsonb_build_object('voipPushToken', t.token))
          and not exists (select from push.devices x where sha256(x.token::bytea) = sha256(t.token::bytea)
            and x.app = r.app and x.provider = 'apns' and x.voip))
      union all
      select d.* from (
        select case d.provider when 'apns' then 1 when 'fcm' then 2 else 3 end, d.provider, d.token,
          case d.environment when 'sandbox' then 1 else 0 end::smallint,
          case coalesce(d.platform, case d.provider when 'apns' then 'ios' end)
            when 'ios' then 1 when 'android' then 2 else 0 end::smallint,
          d.locale, d.registered_at
        from push.devices d
        where not r.inline and d.user_id = r.user_id and d.app = r.app and d.enabled and d.invalidated_at is null
          and (d.provider <> 'apns' or not d.voip)
        offset 0
      ) d
    ) v
    order by r.id, r.user_id, v.rank, r.ordinal, v.registered_at desc, v.token
  ) m
  left join push.lane l on l.app = m.app and l.provider = m.provider;
  get diagnostics v_announced = row_count;
  return v_announced;
end
$$;
comment on function push.announce_missed is
  'for calls missed, or ended without an answer, other than declined or busy: one missed_call a user, over APNs alert, '
  'else FCM, else Expo, never to a VoIP token; returns how many';

create function push.miss(p_max int default 1000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_missed bigint;
begin
  with late as materialized (
    select o.id
    from push.outbox o
    where o.state = 'ringing' and o.deadline_at <= statement_timestamp()
    order by o.deadline_at
    limit p_max
    for no key update skip locked
  )
  update push.outbox o set state = 'missed' where o.id = any (array(select late.id from late));
  get diagnostics v_missed = row_count;
  return v_missed;
end
$$;
comment on function push.miss is
  'up to p_max calls that still ring after their deadline become missed; returns how many. For the leader';

-- The end of a call ---------------------------------------------------------------------------------------------------

create function push.end_calls() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  c_notices constant int := 100;
  -- A call ends once: it is one that did not ring before, or it is of this statement.
  v_calls   bigint[] := array(
    select n.id from new_calls n where n.state <> 'ringing'
    except
    select o.id from old_calls o where o.state <> 'ringing'
    order by 1);
  v_held    bigint[];
  v_made    bigint;
begin
  if v_calls = '{}' then
    return null;
  end if;
  perform push.void_unsent(v_calls);
  v_made := push.cancel_invites(v_calls) + push.announce_missed(v_calls);
  -- Gateways drop what they hold in memory. Past the deadline they do so by themselves.
  v_held := array(
    select c.id
    from unnest(v_calls) c(id)
    where exists (select from push.delivery d
      where d.outbox_id = c.id and d.kind = 0 and d.deadline_at > clock_timestamp())
    order by c.id
    limit c_notices + 1);
  if cardinality(v_held) > c_notices then
    perform pg_notify('push_control', 'void *');
  else
    perform pg_notify('push_control', 'void ' || h.id) from unnest(v_held) h(id);
  end if;
  if v_made > 0 then
    perform push.ring_doorbell();
  end if;
  return null;
end
$$;
comment on function push.end_calls is
  'what follows from calls ending: unsent invites are void, devices that may ring are told, so are users who missed '
  'the call, and gateways that hold invites of it: NOTIFY push_control with "void" and push.outbox.id, or "void *" '
  '(any call may have ended) when there are more than 100';

create trigger check_call before update on push.outbox for each row execute function push.check_call();
-- PostgreSQL gives no transition tables to a trigger with a column list, so it is not "update of state".
create trigger end_calls after update on push.outbox referencing old table as old_calls new table as new_calls
  for each statement execute function push.end_calls();

create function push.find_call(p_call_id text, p_app text) returns bigint
language plpgsql stable set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_ids  bigint[];
  v_apps text;
begin
  select array_agg(o.id), string_agg(o.app, ', ' order by o.app) into v_ids, v_apps
    from push.outbox o where o.call_id = p_call_id and (p_app is null or o.app = p_app);
  if v_ids is null then
    raise exception using errcode = 'no_data_found',
      message = format('call_id: there is no call %s%s', coalesce(left(p_call_id, 128), 'without call_id'),
        ' in app ' || left(p_app, 64)),
      hint = 'It must have been enqueued, in this transaction or in one that is committed.';
  elsif cardinality(v_ids) > 1 then
    raise exception using errcode = 'cardinality_violation',
      message = format('app: call %s exists in several apps (%s); say in which', p_call_id, v_apps);
  end if;
  return v_ids[1];
end
$$;
comment on function push.find_call is
  'number of a call; an error if there is none, or, without an app, several';

create function push.answer_call(call_id text, user_id text default null, app text default null) returns boolean
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_id bigint := push.find_call(call_id, app);
begin
  update push.outbox o set state = 'answered', answered_by = answer_call.user_id
    where o.id = v_id and o.ended_at is null;
  return found;
end
$$;
comment on function push.answer_call is
  'the call was answered, by this user if known: nothing more is sent, other devices that may ring are told; '
  'false: it had ended before';

create function push.end_call(call_id text, reason text default 'ended', app text default null) returns boolean
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_id bigint := push.find_call(call_id, app);
begin
  update push.outbox o set state = 'ended', end_reason = coalesce(end_call.reason, 'ended')
    where o.id = v_id and o.ended_at is null;
  return found;
end
$$;
comment on function push.end_call is
  'the call is over, unanswered: nothing more is sent, devices that may ring are told, and users get a missed call '
  'unless the reason is declined or busy; false: it had ended before';

-- Fences: what a gateway gives back of a call that has ended ----------------------------------------------------------

create or replace function push.free_claims() returns bigint
language plpgsql security definer set search_path = push, pg_temp set plan_cache_mode = force_generic_plan as $$
declare
  v_ended int[] := array(
    select g.id from push.gateways g where not g.alive and g.ended_at > clock_timestamp() - interval '1 minute');
  v_freed bigint;
  v_unsure bigint[];
begin
  if v_ended = '{}' then
    return 0;
  end if;
  with lost as materialized (
    select d.ctid as tid, d.outbox_id, d.kind
    from push.delivery d
    where d.state = 1 and d.owner = any (v_ended)
    for no key update skip locked
  ), asked as materialized (
    select l.tid, l.outbox_id, l.kind <> 0 or coalesce((
      select true from push.outbox o where o.id = l.outbox_id and o.ended_at is null for share skip locked
    ), false) as rings
    from lost l
  ), ready as (
    update push.delivery d set state = 0, owner = null
    where d.ctid = any (array(select tid from asked where rings)) returning 1
  ), waiting as (
    update push.delivery d set state = 2, owner = null, due_at = clock_timestamp()
    where d.ctid = any (array(select tid from asked where not rings)) returning 1
  )
  select (select count(*) from ready) + (select count(*) from waiting),
      array(select distinct outbox_id from asked where not rings)
    into v_freed, v_unsure;
  perform push.void_unsent(v_unsure);
  if v_freed > 0 then
    perform push.ring_doorbell();
  end if;
  return v_freed;
end
$$;
comment on function push.free_claims is
  'makes what ended gateways held ready again; attempts stay counted, invites of calls that have ended are void';

create or replace function push.park(
  p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[], p_attempts int[], p_delay_ms int[], p_reason text[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_parked bigint;
begin
  -- Due at the deadline at the latest: so the index on due_at finds waiting deliveries that have expired, too.
  update push.delivery d
  set state = 2, owner = null, attempt = r.attempts, last_reason = coalesce(r.reason, d.last_reason),
    due_at = least(clock_timestamp() + r.delay_ms * interval '1 ms', d.deadline_at)
  from unnest(p_outbox_id, p_n, p_lease, p_attempts, p_delay_ms, p_reason)
    r(outbox_id, n, lease, attempts, delay_ms, reason)
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_parked = row_count;
  perform push.void_unsent(p_outbox_id);
  return v_parked;
end
$$;
comment on function push.park is
  'claimed to waiting, for so many milliseconds; invites of calls that have ended are void; '
  'returns how many were still the caller''s';

create or replace function push.release(p_gateway int, p_outbox_id bigint[], p_n int[], p_lease int[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_released bigint;
begin
  update push.delivery d
  set state = case when d.kind <> 0 or r.rings then 0 else 2 end, owner = null,
    attempt = greatest(d.attempt - 1, 0), due_at = clock_timestamp()
  from (
    select r.*, coalesce((
      select true from push.outbox o where o.id = r.outbox_id and o.ended_at is null for share skip locked
    ), false) as rings
    from unnest(p_outbox_id, p_n, p_lease) r(outbox_id, n, lease)
    offset 0
  ) r
  where d.outbox_id = r.outbox_id and d.n = r.n and d.state = 1 and d.owner = p_gateway and d.lease = r.lease;
  get diagnostics v_released = row_count;
  perform push.void_unsent(p_outbox_id);
  if v_released > 0 then
    perform push.ring_doorbell();
  end if;
  return v_released;
end
$$;
comment on function push.release is
  'claimed to ready with the attempt given back, for a shutdown or an open circuit; invites of calls that have ended '
  'are void; returns how many were still the caller''s';

create or replace function push.promote(p_max int default 2000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_promoted bigint;
  v_unsure bigint[];
begin
  with pick as materialized (
    select d.ctid as tid, d.outbox_id, d.kind
    from push.delivery d
    where d.state = 2 and d.due_at <= statement_timestamp() and d.deadline_at > statement_timestamp()
    order by d.due_at
    limit p_max
    for no key update skip locked
  ), asked as materialized (
    -- An end in progress holds the call's lock: the invite goes on waiting, for its outcome.
    select p.tid, p.outbox_id, p.kind <> 0 or coalesce((
      select true from push.outbox o where o.id = p.outbox_id and o.ended_at is null for share skip locked
    ), false) as rings
    from pick p
  ), ready as (
    update push.delivery d set state = 0 where d.ctid = any (array(select tid from asked where rings)) returning 1
  )
  select (select count(*) from ready), array(select distinct outbox_id from asked where not rings)
    into v_promoted, v_unsure;
  perform push.void_unsent(v_unsure);
  if v_promoted > 0 then
    perform push.ring_doorbell();
  end if;
  return v_promoted;
end
$$;
comment on function push.promote is
  'makes up to p_max waiting deliveries ready whose time has come, and invites of ended calls void; '
  'returns how many became ready';

-- Claim: as in 0003, with why the call ended at the end of the row, for cancels ---------------------------------------

drop function push.claim(int, smallint[], int[], timestamptz[], interval);
create function push.claim(
  p_gateway int, p_lanes smallint[], p_max int[], p_floor timestamptz[], p_slack interval default '300 ms'
) returns table (
  lane smallint, outbox_id bigint, n int, lease int, attempt int, kind smallint, environment smallint,
  platform smallint, user_id text, token text, locale text, app_call_kind text, call_id text, payload jsonb,
  created_at timestamptz, deadline_at timestamptz, remaining_us bigint, end_reason text
)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- An index condition, not a filter: under a transaction that holds back vacuum the index is full of dead entries with
  -- past deadlines, and starting behind them keeps the claim fast. clock_timestamp() here would make it a filter.
  v_floor timestamptz;
begin
  if not exists (select from push.gateways g where g.id = p_gateway and g.alive) then
    return;
  end if;
  for i in 1 .. coalesce(array_length(p_lanes, 1), 0) loop
    continue when p_max[i] <= 0;
    v_floor := greatest(p_floor[i], statement_timestamp() + p_slack);
    return query
      with pick as materialized (
        select d.ctid as tid
        from push.delivery d
        where d.state = 0 and d.lane = p_lanes[i] and d.deadline_at > v_floor
          and (select not l.paused from push.lane l where l.id = p_lanes[i])
        order by d.deadline_at
        limit p_max[i]
        for no key update skip locked
      )
      update push.delivery d
      set state = 1, owner = p_gateway, lease = d.lease + 1, attempt = d.attempt + 1
      from push.outbox o
      where d.ctid = any (array(select pick.tid from pick)) and o.id = d.outbox_id
      returning d.lane, d.outbox_id, d.n, d.lease, d.attempt::int, d.kind, d.environment, d.platform,
        d.user_id, d.token, d.locale, o.kind, o.call_id, o.payload, d.created_at, d.deadline_at,
        (extract(epoch from d.deadline_at - clock_timestamp()) * 1000000)::bigint, o.end_reason;
  end loop;
end
$$;
comment on function push.claim is
  'takes up to p_max[i] ready deliveries of each lane p_lanes[i], earliest deadline first, with deadlines after '
  'p_floor[i] and more than p_slack away; nothing from a paused lane, nothing for a gateway declared dead';

-- Dead tokens ---------------------------------------------------------------------------------------------------------

create function push.invalidate_tokens(
  p_lane smallint[], p_token text[], p_since timestamptz[], p_reason text[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_dead bigint;
begin
  with said as materialized (
    -- Of several answers about a token the latest counts; one without a time counts always.
    select distinct on (l.app, l.provider, r.token) l.app, l.provider, r.token, r.since,
      coalesce(r.reason, 'Unknown') as reason
    from unnest(p_lane, p_token, p_since, p_reason) r(lane, token, since, reason)
    join push.lane l on l.id = r.lane
    where r.token is not null
    order by l.app, l.provider, r.token, r.since desc nulls first
  ), cleared as (
    -- Compare and clear: a token the phone gave anew after the provider saw it dead stays alive.
    update push.devices d set invalidated_at = clock_timestamp(), invalid_reason = s.reason
    from said s
    where sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider
      and d.invalidated_at is null and (s.since is null or s.since >= d.registered_at)
    returning d.app, d.provider, d.token, d.user_id, s.reason
  )
  insert into push.token_invalidations (app, provider, token, user_id, reason)
  select c.app, c.provider, c.token, c.user_id, c.reason from cleared c
  union all
  select s.app, s.provider, s.token, null, s.reason
  from said s
  where not exists (select from push.devices d
    where sha256(d.token::bytea) = sha256(s.token::bytea) and d.app = s.app and d.provider = s.provider)
  on conflict do nothing;
  get diagnostics v_dead = row_count;
  if v_dead > 0 then
    perform pg_notify('push_token_invalidations', '');
  end if;
  return v_dead;
end
$$;
comment on function push.invalidate_tokens is
  'the provider of a lane called these tokens dead, since a time if it gave one: registered devices are cleared unless '
  'registered later, tokens of no device are noted; returns how many are new in push.token_invalidations, and if any '
  'are, NOTIFY push_token_invalidations';

create function push.revive_tokens() returns trigger
language plpgsql security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
  delete from push.token_invalidations x
  using changed d
  where d.invalidated_at is null
    and sha256(x.token::bytea) = sha256(d.token::bytea) and x.app = d.app and x.provider = d.provider;
  return null;
end
$$;
comment on function push.revive_tokens is 'a token that a living device has is not a dead one';

create trigger revive_tokens_of_new after insert on push.devices referencing new table as changed
  for each statement execute function push.revive_tokens();
create trigger revive_tokens_of_changed after update on push.devices referencing new table as changed
  for each statement execute function push.revive_tokens();

create function push.register_device(
  user_id text, app text, provider text, token text, environment text default 'production',
  platform text default null, locale text default null, voip boolean default true
) returns void
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
begin
  insert into push.devices as d (user_id, app, provider, token, environment, platform, locale, voip)
    values (register_device.user_id, register_device.app, register_device.provider, register_device.token,
      register_device.environment, register_device.platform, register_device.locale,
      coalesce(register_device.voip, true))
    on conflict (sha256(token::bytea), app, provider) do update set
      user_id = excluded.user_id, environment = excluded.environment, voip = excluded.voip,
      platform = coalesce(excluded.platform, d.platform), locale = coalesce(excluded.locale, d.locale),
      -- The switch is the user's: it does not pass to another with the phone.
      enabled = d.enabled or d.user_id <> excluded.user_id,
      registered_at = clock_timestamp(), invalidated_at = null, invalid_reason = null;
end
$$;
comment on function push.register_device is
  'the phone gave this token, now: it is the user''s, and alive; to be called at every login';

create function push.drop_device(app text, provider text, token text) returns boolean
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  delete from push.devices d
    where sha256(d.token::bytea) = sha256(drop_device.token::bytea) and d.app = drop_device.app
      and d.provider = drop_device.provider;
  return found;
end
$$;
comment on function push.drop_device is 'the user logged out of this device; false: it was not registered';

revoke execute on all functions in schema push from public;
