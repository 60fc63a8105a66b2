-- What SQL does by itself, for the gateways' metrics: a note of each statement that ended, missed or counted something,
-- which the leader takes and adds to its counters. And what only the database can see: how much is owed, and how old.

create table push.tally (
  id      bigint generated always as identity primary key,
  what    text not null,
  lane    smallint,
  app     text,
  kind    smallint,
  outcome smallint,
  reason  text,
  untried boolean not null default false,
  count   int not null default 1,
  seconds double precision,
  constraint tally_what_known check (what in ('ended', 'enqueued', 'missed', 'rang', 'invalidated', 'quarantined')),
  constraint tally_count_positive check (count > 0)
) with (
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
  autovacuum_vacuum_cost_delay = 0
);
comment on table push.tally is
  'what one statement did that no gateway saw: only inserted into, and taken by the leader (push.take_tally)';
comment on column push.tally.id is 'number of the note; the oldest are taken first';
comment on column push.tally.what is
  'ended (deliveries, by push.void_unsent or push.expire), enqueued (calls), missed (missed calls announced), rang (a '
  'phone said so), invalidated or quarantined (tokens)';
comment on column push.tally.lane is 'push.lane.id, for deliveries and tokens';
comment on column push.tally.app is 'name of the app, where there is no lane';
comment on column push.tally.kind is 'of deliveries: as push.history.kind';
comment on column push.tally.outcome is 'of deliveries: as push.history.outcome';
comment on column push.tally.reason is 'of deliveries: as push.history.reason; of missed calls: deadline or ended';
comment on column push.tally.untried is 'of deliveries: no try of them was ever made';
comment on column push.tally.count is 'how many';
comment on column push.tally.seconds is 'rang: from the enqueueing of the call to the report';

-- What notes it -------------------------------------------------------------------------------------------------------

-- As in 0009; besides, the ends are noted.
create or replace function push.void_unsent(p_outbox_id bigint[]) returns bigint
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
  with unsent as materialized (
    select d.tid, o.call_id, o.call_state
    from unnest(v_ended) c(id)
    cross join lateral (
      select o.call_id, o.state as call_state from push.outbox o where o.id = c.id offset 0
    ) o
    cross join lateral (
      select d.ctid as tid from push.delivery d where d.outbox_id = c.id and d.kind = 0 offset 0
    ) d
  ), gone as (
    delete from push.delivery d
    using unsent u
    where d.ctid = u.tid and d.kind = 0 and d.state in (0, 2)
    -- A missed call's invites ended as push.expire would have ended them, whichever of the two comes first.
    returning d.*, u.call_id, u.call_state, u.call_state = 'missed' and d.deadline_at <= clock_timestamp() as is_late
  ), tallied as (
    insert into push.tally (what, lane, kind, outcome, reason, untried, count)
    select 'ended', g.lane, g.kind, case when g.is_late then 3 else 2 end,
      case when g.is_late then coalesce(g.last_reason, 'DeadlinePassed') else 'Call' || initcap(g.call_state) end,
      g.attempt = 0, count(*)
    from gone g
    group by 2, 3, 4, 5, 6
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind,
    case when g.is_late then 3 else 2 end, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    case when g.is_late then coalesce(g.last_reason, 'DeadlinePassed') else 'Call' || initcap(g.call_state) end,
    g.failures, g.fallback_of
  from gone g;
  get diagnostics v_voided = row_count;
  return v_voided;
end
$$;

-- As in 0009; besides, the ends are noted.
create or replace function push.expire(
  p_max int default 5000, p_slack interval default '0', p_since timestamptz default '-infinity'
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_before timestamptz := statement_timestamp() + p_slack;
  v_expired bigint;
begin
  with ready as materialized (
    select late.tid
    from push.lane l cross join lateral (
      select d.ctid as tid
      from push.delivery d
      where d.state = 0 and d.lane = l.id and d.deadline_at > p_since and d.deadline_at <= v_before
      order by d.deadline_at
      limit p_max
      for no key update skip locked
    ) late
  ), waiting as materialized (
    select d.ctid as tid
    from push.delivery d
    where d.state = 2 and d.due_at > p_since and d.due_at <= v_before and d.deadline_at <= v_before
    order by d.due_at
    limit p_max
    for no key update skip locked
  ), gone as (
    delete from push.delivery d
    where d.ctid = any (array(select tid from ready union all select tid from waiting limit p_max))
    returning d.*
  ), tallied as (
    insert into push.tally (what, lane, kind, outcome, reason, untried, count)
    select 'ended', g.lane, g.kind, 3, coalesce(g.last_reason, 'DeadlinePassed'), g.attempt = 0, count(*)
    from gone g
    group by 2, 3, 4, 5, 6
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind, 3, g.user_id,
    (select o.call_id from push.outbox o where o.id = g.outbox_id),
    left(g.token, 4) || '…' || right(g.token, 4), coalesce(g.last_reason, 'DeadlinePassed'), g.failures, g.fallback_of
  from gone g;
  get diagnostics v_expired = row_count;
  return v_expired;
end
$$;

-- As in 0009; besides, the missed calls are noted.
create or replace function push.announce_missed(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_announced bigint;
begin
  with made as (
    insert into push.delivery (outbox_id, n, kind, created_at, due_at, deadline_at, lane, environment, platform,
      user_id, token, locale)
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
          where o.id = c.id and not o.voided
            and (o.state = 'missed' or o.state = 'ended' and o.end_reason not in ('declined', 'busy'))
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
        -- "not exists" may become a join, with all dead tokens or all devices.
        where r.inline and t.token <> ''
          and (select true from push.token_invalidations x
            where x.token = t.token and x.app = r.app and x.provider = t.provider) is null
          -- A VoIP token that somebody calls an alert token, too, is a VoIP token.
          and (t.rank > 1 or not r.recipients @> jsonb_build_array(jsonb_build_object('voipPushToken', t.token))
            and (select true from push.devices x where sha256(x.token::bytea) = sha256(t.token::bytea)
              and x.app = r.app and x.provider = 'apns' and x.voip) is null)
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
    left join push.lane l on l.app = m.app and l.provider = m.provider
    returning outbox_id
  ), tallied as (
    insert into push.tally (what, app, reason, count)
    select 'missed', o.app, case o.state when 'missed' then 'deadline' else 'ended' end, count(*)
    from made d cross join lateral (select o.app, o.state from push.outbox o where o.id = d.outbox_id offset 0) o
    group by 2, 3
    returning count
  )
  select coalesce(sum(t.count), 0) into v_announced from tallied t;
  return v_announced;
end
$$;

create function push.tally_calls() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.tally (what, app, count)
  select 'enqueued', c.app, count(*) from new_calls c where push.is_call(c.kind) group by c.app;
  return null;
end
$$;
comment on function push.tally_calls is 'notes how many calls were enqueued';
create trigger tally_calls after insert on push.outbox referencing new table as new_calls
  for each statement execute function push.tally_calls();

create function push.tally_rings() returns trigger
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  insert into push.tally (what, app, seconds)
  select 'rang', o.app, greatest(0, extract(epoch from r.rang_at - o.created_at))
  from new_reports r
  cross join lateral (select o.app, o.created_at from push.outbox o where o.id = r.outbox_id offset 0) o;
  return null;
end
$$;
comment on function push.tally_rings is 'notes how long it took until a phone said that it rings';
create trigger tally_rings after insert on push.ring_reports referencing new table as new_reports
  for each statement execute function push.tally_rings();

create function push.tally_tokens() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.tally (what, lane, app, count)
  select tg_argv[0], (select l.id from push.lane l where l.app = t.app and l.provider = t.provider), t.app, count(*)
  from new_tokens t
  group by t.app, t.provider;
  return null;
end
$$;
comment on function push.tally_tokens is 'notes how many tokens were invalidated, or quarantined (its argument)';
create trigger tally_tokens after insert on push.token_invalidations referencing new table as new_tokens
  for each statement execute function push.tally_tokens('invalidated');
create trigger tally_tokens after insert on push.quarantined_tokens referencing new table as new_tokens
  for each statement execute function push.tally_tokens('quarantined');

-- Who takes it --------------------------------------------------------------------------------------------------------

create function push.take_tally(p_max int default 20000)
returns table (
  what text, app text, provider text, kind smallint, outcome smallint, reason text, untried boolean, count bigint,
  seconds double precision
)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
begin
  return query
    with gone as (
      delete from push.tally t
      where t.ctid = any (array(select x.ctid from push.tally x order by x.id limit p_max for update skip locked))
      returning t.*
    )
    select g.what, coalesce(l.app, g.app), l.provider, g.kind, g.outcome, g.reason, g.untried, sum(g.count)::bigint,
      g.seconds
    from gone g left join push.lane l on l.id = g.lane
    group by 1, 2, 3, 4, 5, 6, 7, 9;
end
$$;
comment on function push.take_tally is
  'removes up to p_max of the oldest notes of push.tally, and returns them added up. For the leader';

create function push.settled(p_gateway int, p_outbox_id bigint[], p_n int[]) returns table (outbox_id bigint, n int)
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  -- A variable, so that older partitions are not looked at.
  v_since timestamptz := now() - interval '1 hour';
begin
  return query
    select r.outbox_id, r.n
    from unnest(p_outbox_id, p_n) r(outbox_id, n)
    where (select true from push.history h
      where h.outbox_id = r.outbox_id and h.n = r.n and h.owner = p_gateway and h.finished_at >= v_since) is not null;
end
$$;
comment on function push.settled is
  'which of these deliveries the gateway has settled within the last hour: asked where push.settle accepted fewer than '
  'it was given, or its answer was lost. p_gateway: what push.register_gateway returned; arrays, by delivery: '
  'p_outbox_id, p_n';

-- What only the database sees -----------------------------------------------------------------------------------------

create function push.observe()
returns table (what text, app text, provider text, kind smallint, state smallint, value double precision)
language sql stable security definer set search_path = push, pg_temp set jit = off as $$
  -- One pass over what is owed: the indexes do not know the kind, and of so busy a table no page is all-visible.
  with owed as materialized (
    select d.lane, d.kind, d.state, count(*) as count, min(d.created_at) as oldest
    from push.delivery d
    group by d.lane, d.kind, d.state
  )
  select 'pending', l.app, l.provider, d.kind, d.state, d.count::double precision
    from owed d join push.lane l on l.id = d.lane
  union all
  select 'oldest_ready', l.app, l.provider, d.kind, d.state,
      greatest(0, extract(epoch from clock_timestamp() - d.oldest))
    from owed d join push.lane l on l.id = d.lane
    where d.state = 0
  union all
  select 'paused', l.app, l.provider, null, null, l.paused::int from push.lane l
  union all
  select 'held', l.app, l.provider, null, null, (l.invalidation_held_at is not null)::int from push.lane l
  union all
  select 'replicas_alive', null, null, null, null, count(*) from push.gateways g where g.alive
  union all
  select 'receipts_pending', r.app, null, null, null, count(*) from push.expo_receipts r group by r.app
  union all
  -- Asking makes a ticket due again a while later: those that were asked for in vain are not late by their due time.
  select 'receipts_overdue', r.app, null, null, null, count(*)
    from push.expo_receipts r where r.due_at < now() - interval '1 minute' or r.attempts > 3 group by r.app
$$;
comment on function push.observe is
  'what metrics say of the database, a row a series. what: pending (deliveries owed), oldest_ready (age of the oldest '
  'that could be sent, in seconds), paused, held (invalidation is on hold), replicas_alive, receipts_pending, '
  'receipts_overdue (due for a minute, or asked for more than three times in vain)';

revoke execute on function push.tally_calls, push.tally_rings, push.tally_tokens, push.take_tally, push.settled,
  push.observe from public;
