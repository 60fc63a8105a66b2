-- Second chances: the next channel when one fails, and when no phone of a user has reported that it rings.

-- A call's next channel -----------------------------------------------------------------------------------------------

-- Runs in the transaction that settled the failed invites, which are already deleted from push.delivery. Also called for
-- invites that were delivered but whose phones have not reported that they ring; these come with masked tokens. A batch is
-- joined with itself by hash joins, because nested loops cost the square of its size: so this function has its own
-- settings, not those of push.settle, which disable hash joins.
--
-- Two replicas may settle the last two tokens of one channel at the same moment. Each would see the other's token as still
-- owed, and neither would go on to the next channel. So decisions about one call are taken in turn (push.take_turns), each
-- with a snapshot taken after its turn began. This cannot deadlock. The turns of several calls are taken in one order. A
-- transaction that has a turn waits for nothing else: the call's row is locked with "skip locked", no lane is made, and no
-- inserted row can conflict, because n is chosen within the turn. Ending a call takes no turn. A transaction that waits for
-- a turn holds only deliveries that it has deleted, and a transaction that has a turn never waits for these.
--
-- The race with the end of a call is handled as call_rules.sql describes for a claimed invite that is returned: the new
-- invite is ready only under a share lock on its call. If that lock is not available, the call is ending: the invite waits,
-- and push.promote makes it ready if the end was rolled back, or void if it was committed.
create or replace function push.take_turns(p_outbox_id bigint[]) returns void
language plpgsql volatile set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  -- Another transaction that inserts the same key waits until this transaction ends, and then finds no row.
  insert into push.fallback_turn (outbox_id) select distinct c.id from unnest(p_outbox_id) c(id) order by 1;
  delete from push.fallback_turn t where t.outbox_id = any (p_outbox_id);
end
$$;
comment on function push.take_turns is
  'waits until no other transaction decides about the next channel of these calls; other transactions then wait until this '
  'one ends. p_outbox_id: push.outbox.id';

create or replace function push.fall_back(p_failed push.delivery[], p_unheard boolean default false)
returns table (outbox_id bigint, user_id text, n int)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_nestloop = off set enable_mergejoin = off
set enable_hashjoin = on set plan_cache_mode = force_generic_plan set jit = off
as $$
#variable_conflict use_column
declare
  v_calls bigint[] := array(select distinct f.outbox_id from unnest(p_failed) f);
  -- Variables, so that only the partitions in this range are read. The minute covers rows that are settled meanwhile.
  v_since timestamptz;
  v_until timestamptz := clock_timestamp() + interval '1 minute';
begin
  perform push.take_turns(v_calls);
  v_since := (select min(o.created_at) from push.outbox o where o.id = any (v_calls));
  return query
  with call as materialized (
    select o.*, (
        select coalesce(x.declined, '{}') from push.outbox x where x.id = o.id and x.ended_at is null for share skip locked
      ) as declined_now
    from unnest(v_calls) c(id) cross join lateral (
      select o.id, o.app, o.recipients, o.deadline_at, o.declined, (select a.providers from push.apps a where a.app = o.app) as providers,
        case when octet_length(o.payload::text) > 880 then push.size_faults(o.payload) end as size_faults
      from push.outbox o
      where o.id = c.id and o.ended_at is null and o.deadline_at > clock_timestamp()
      offset 0
    ) o
  ), failed as materialized (
    select f.outbox_id, f.n, f.lane, f.platform, f.user_id, f.token, c.app,
      push.channel_rank(l.provider) as rank
    from unnest(p_failed) f
    join call c on c.id = f.outbox_id
    join push.lane l on l.id = f.lane
    where push.falls_back(l.provider)
      -- A user who has declined is not rung. If the user declines at this moment, push.promote checks it.
      and not coalesce(coalesce(c.declined_now, c.declined) ? f.user_id, false)
  ), owed as materialized (
    select d.* from call c cross join lateral (
      select d.outbox_id, d.n, d.lane, d.platform, d.user_id, d.token from push.delivery d
      where d.outbox_id = c.id and d.n < 10000
      offset 0
    ) d
  ), past as materialized (
    select h.* from call c cross join lateral (
      select h.outbox_id, h.n, h.lane, h.user_id, h.device, h.token_hash, h.outcome from push.history h
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and h.n < 10000
      offset 0
    ) h
  ), used as materialized (
    select u.outbox_id, max(u.n) as n
    from (select o.outbox_id, o.n from owed o union all select h.outbox_id, h.n from past h) u
    group by u.outbox_id
  ), entry as materialized (
    select c.id, e ->> 'userId' as user_id, push.recipient_token(e, 'voipPushToken') as voip_token,
      push.recipient_token(e, 'fcmToken') as fcm_token, push.recipient_token(e, 'pushToken') as expo_token,
      push.recipient_platform(e) as platform,
      push.recipient_locale(e) as locale, push.recipient_data(e) as data
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    where jsonb_typeof(e) = 'object' and e ?| '{voipPushToken,fcmToken}' and push.is_recipient(e)
      and e -> 'notificationEnabled' is distinct from 'false'
  ), given as materialized (
    -- The data that the entries of registered users contain.
    select distinct on (c.id, e ->> 'userId') c.id, e ->> 'userId' as user_id, push.recipient_data(e) as data
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    where e ? 'data' and push.recipient_data(e) is not null and not push.has_token_member(e)
  ), inline as materialized (
    -- Failed invites whose token came from an entry of recipients.
    select f.outbox_id, f.n, f.user_id, f.app, f.rank, e.fcm_token, e.expo_token, e.platform, e.locale, e.data
    from failed f
    join entry e on e.id = f.outbox_id and e.user_id = f.user_id
    cross join lateral (select case f.rank when 1 then e.voip_token else e.fcm_token end as token) t
    where f.token = t.token or p_unheard and f.token = left(t.token, 4) || '…' || right(t.token, 4)
  ), next as (
    -- The token came from an entry: the next token of the same entry.
    select i.outbox_id, i.n, i.user_id, t.rank as preference, t.rank, t.token, i.platform, i.locale, i.data
    from inline i cross join lateral (values (2, i.fcm_token), (3, i.expo_token)) t(rank, token)
    where t.rank > i.rank and t.token is not null
      -- "not exists" could be planned as a hash of all dead tokens.
      and (select true from push.token_invalidations x where x.token = t.token and x.app = i.app
        and x.provider = push.channel_of(t.rank)) is null
    union all
    -- A registered user: the devices of the next channel on the same platform, once the last token of this channel has
    -- failed.
    select f.outbox_id, f.n, f.user_id, d.rank + case when d.platform = 0 then 10 else 0 end, d.rank, d.token,
      -- A device of unknown platform counts as being on the platform of the phone that failed.
      case d.platform when 0 then f.platform else d.platform end, d.locale,
      (select g.data from given g where g.id = f.outbox_id and g.user_id = f.user_id)
    from failed f cross join lateral (
      select d.* from (
        select push.channel_rank(d.provider) as rank, d.token, d.locale, d.registered_at,
          push.platform_code(coalesce(d.platform, push.channel_platform(d.provider))) as platform
        from push.devices d
        where d.user_id = f.user_id and d.app = f.app and d.enabled and d.invalidated_at is null
          and push.is_fallback(d.provider)
        offset 0
      ) d
      where d.rank > f.rank and d.platform in (0, f.platform)
      order by d.registered_at desc
      limit 10
    ) d
    where not exists (select from inline i where i.outbox_id = f.outbox_id and i.n = f.n)
      and not exists (select from owed o
        where not p_unheard
          and o.outbox_id = f.outbox_id and o.user_id = f.user_id and o.lane = f.lane and o.platform = f.platform)
      and not exists (select from past h
        where not p_unheard
          and h.outbox_id = f.outbox_id and h.user_id = f.user_id and h.lane = f.lane and h.outcome <= 1
          -- History has no platform. Only FCM serves two platforms.
          and (f.rank = 1 or (select true from push.devices x
            where x.user_id = f.user_id and x.app = f.app and x.enabled and x.invalidated_at is null
              and x.provider = 'fcm' and case coalesce(x.platform, 'android') when 'ios' then 1 else 2 end = f.platform
              and left(x.token, 4) || '…' || right(x.token, 4) = h.device
              and coalesce(hashtextextended(x.token, 0) = h.token_hash, true)
            limit 1) is not null))
  ), best as (
    select v.*, l.id as lane, min(v.preference) over (partition by v.outbox_id, v.n) as preferred
    from next v
    join call c on c.id = v.outbox_id
    -- Without a lane, no gateway serves the channel. A lane may also belong to a provider that the app no longer has.
    join push.lane l on l.app = c.app and l.provider = push.channel_of(v.rank) and push.serves(c.providers, l.provider)
    where c.size_faults[v.rank] is null
      and not exists (select from owed o where o.outbox_id = v.outbox_id and o.lane = l.id and o.token = v.token)
      and not exists (select from past h where h.outbox_id = v.outbox_id and h.lane = l.id
        -- The mask alone may match another user's token: all Expo tokens begin alike.
        and h.device = left(v.token, 4) || '…' || right(v.token, 4)
        and coalesce(h.token_hash = hashtextextended(v.token, 0), h.user_id = v.user_id))
  ), chosen as (
    select b.*, c.deadline_at, c.declined_now is not null as rings,
      u.n + row_number() over (partition by b.outbox_id order by b.lane, b.token) as next_n
    from (
      -- Several tokens of one channel that failed together lead to one invite for each token of the next channel.
      select distinct on (b.outbox_id, b.lane, b.token) b.* from best b where b.preference = b.preferred
      order by b.outbox_id, b.lane, b.token, b.n desc
    ) b
    join call c on c.id = b.outbox_id
    join used u on u.outbox_id = b.outbox_id
  )
  insert into push.delivery as made (outbox_id, n, created_at, due_at, deadline_at, lane, ready_lane, state, platform,
    user_id, token, locale, data, fallback_of)
  select x.outbox_id, x.next_n, clock_timestamp(), clock_timestamp(), x.deadline_at, x.lane,
    case when x.rings then x.lane end, case when x.rings then 0 else 2 end, x.platform, x.user_id, x.token, x.locale, x.data,
    x.n
  from chosen x
  where x.next_n < 10000
  returning made.outbox_id, made.user_id, made.n;
  if found then
    perform push.ring_doorbell();
    perform push.commit_durably();
  end if;
end
$$;
comment on function push.fall_back is
  'for invites that failed for good: makes an invite over the user''s next channel while the call still rings. It never '
  'goes to an APNs token, twice to one token in a call, or to a user who has declined. Returns the invites that it made. '
  'p_failed: the invites as they were in push.delivery. p_unheard: the invites did not fail, but no phone reported that it '
  'rings (for push.fall_back_unheard); their tokens may be masked';

-- A batch has calls of all apps. An operator who requeues one of them in a transaction that stays open has the turn of that
-- call alone.
create or replace function push.fall_back_unheard(p_unheard push.delivery[])
returns table (outbox_id bigint, user_id text, n int)
language plpgsql volatile security definer set search_path = push, pg_temp set lock_timeout = '100ms' as $$
#variable_conflict use_column
declare
  v_call bigint;
begin
  begin
    return query select f.outbox_id, f.user_id, f.n from push.fall_back(p_unheard, true) f;
    return;
  exception when lock_not_available then perform set_config('lock_timeout', '10ms', true);
  end;
  for v_call in select distinct u.outbox_id from unnest(p_unheard) u order by 1 loop
    begin
      return query select f.outbox_id, f.user_id, f.n
        from push.fall_back(array(select u from unnest(p_unheard) u where u.outbox_id = v_call), true) f;
    exception when lock_not_available then
      return query select v_call, null::text, null::int;
    end;
  end loop;
end
$$;
comment on function push.fall_back_unheard is
  'push.fall_back for invites that did not fail, but of which no phone reported that it rings. Returns the invites that it made, '
  'and a row without user_id and n for each call that was left out because another transaction has its turn. p_unheard: the '
  'invites; their tokens may be masked';

-- The phone says that it rings ----------------------------------------------------------------------------------------

create or replace function push.check_recipient(p_outbox_id bigint, p_call_id text, p_user_id text) returns void
language plpgsql stable set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  if not exists (select from push.outbox o where o.id = p_outbox_id
    and (o.recipients @> jsonb_build_array(p_user_id)
      or o.recipients @> jsonb_build_array(jsonb_build_object('userId', p_user_id)))) then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('user_id: call %s does not ring this user', left(p_call_id, 128)),
      hint = 'It must be the id that the recipients of the call gave.',
      schema = 'push', table = 'ring_reports', column = 'user_id';
  end if;
end
$$;
comment on function push.check_recipient is
  'raises an error if a call does not name this user. p_outbox_id: push.outbox.id; p_call_id: for the error message; '
  'p_user_id: the user';

create or replace function push.report_ringing(call_id text, user_id text, app text default null) returns boolean
language plpgsql volatile security definer set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_id bigint := push.find_call(call_id, app);
begin
  perform push.check_recipient(v_id, call_id, user_id);
  insert into push.ring_reports as r (outbox_id, user_id) values (v_id, report_ringing.user_id)
    on conflict on constraint ring_reports_pkey do nothing;
  return found;
end
$$;
comment on function push.report_ringing is
  'a phone of this user reports that the call rings. call_id: payload.callId; user_id: as in the call''s recipients; app: '
  'needed only if several apps have a call with this id. Returns false if a phone of this user had reported it before';

-- Escalation ----------------------------------------------------------------------------------------------------------

create or replace function push.plan_escalation() returns trigger
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  -- Usually no app escalates, which is quickly checked.
  if exists (select from push.apps a where a.escalate_after_seconds is not null) then
    insert into push.escalations_due (outbox_id, due_at)
    select c.id, c.created_at + make_interval(secs => a.escalate_after_seconds)
    from new_calls c
    cross join lateral (select a.escalate_after_seconds from push.apps a where a.app = c.app offset 0) a
    where push.is_call(c.kind) and a.escalate_after_seconds < c.ring_seconds and c.created_at >= statement_timestamp();
  end if;
  return null;
end
$$;
comment on function push.plan_escalation is 'schedules when to check a call of an app that escalates';

create or replace trigger plan_escalation after insert on push.outbox referencing new table as new_calls
  for each statement execute function push.plan_escalation();

create or replace function push.escalate(p_max int default 500) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  c_recipients constant int := 2000;
  v_calls   bigint[];
  v_unheard push.delivery[];
  v_made    bigint := 0;
  -- Variables, so that only the partitions in this range are read. The minute covers rows that are settled meanwhile.
  v_since   timestamptz;
  v_until   timestamptz := clock_timestamp() + interval '1 minute';
begin
  -- Calls from before a restore no longer ring.
  if push.restored_at() is not null then
    return 0;
  end if;
  with pick as materialized (
    select e.ctid as tid, e.due_at,
      coalesce((select push.count_recipients(o.recipients) from push.outbox o where o.id = e.outbox_id), 1) as count
    from push.escalations_due e
    where e.due_at <= statement_timestamp()
    order by e.due_at
    limit p_max
    for update of e skip locked
  ), bite as (
    select p.tid, sum(p.count) over (order by p.due_at, p.tid) - p.count as before from pick p
  ), taken as (
    delete from push.escalations_due e
    where e.ctid = any (array(select b.tid from bite b where b.before < c_recipients))
    returning e.outbox_id
  )
  select array_agg(t.outbox_id) into v_calls from taken t;
  if v_calls is null then
    return 0;
  end if;
  v_since := (select min(o.created_at) from push.outbox o where o.id = any (v_calls));
  -- Invites, owed or finished, of users of whom no phone reported that it rings. Invites that failed have had their
  -- fallback.
  v_unheard := array(
    select jsonb_populate_record(null::push.delivery, jsonb_build_object('outbox_id', c.id, 'n', i.n, 'lane', i.lane,
      'user_id', i.user_id, 'token', i.token, 'platform', i.platform))
    from unnest(v_calls) c(id)
    cross join lateral (
      select o.app from push.outbox o
      where o.id = c.id and o.ended_at is null and o.deadline_at > clock_timestamp()
      offset 0
    ) o
    cross join lateral (
      select d.n, d.lane, d.user_id, d.token, d.platform from push.delivery d where d.outbox_id = c.id and d.kind = 0
      union all
      -- History has no platform. Only FCM serves two platforms.
      select h.n, h.lane, h.user_id, h.device, case l.provider when 'apns' then 1 else coalesce((
          select case x.platform when 'ios' then 1 else 2 end from push.devices x
          where x.user_id = h.user_id and x.app = o.app and x.enabled and x.invalidated_at is null
            and x.provider = 'fcm' and left(x.token, 4) || '…' || right(x.token, 4) = h.device
            and coalesce(hashtextextended(x.token, 0) = h.token_hash, true)
          limit 1), 2) end::smallint
      from push.history h cross join lateral (select l.provider from push.lane l where l.id = h.lane offset 0) l
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and h.kind = 0 and h.outcome <= 1
    ) i
    where (select true from push.ring_reports r where r.outbox_id = c.id and r.user_id = i.user_id) is null);
  if v_unheard <> '{}' then
    with made as materialized (
      select f.* from push.fall_back_unheard(v_unheard) f
    ), again as (
      insert into push.escalations_due (outbox_id, due_at)
      select m.outbox_id, clock_timestamp() + interval '1 s' from made m where m.n is null
    )
    insert into push.escalations (outbox_id, n, user_id)
    select m.outbox_id, m.n, m.user_id from made m where m.n is not null;
    get diagnostics v_made = row_count;
  end if;
  return v_made;
end
$$;
comment on function push.escalate is
  'for calls that still ring and whose app''s escalate_after_seconds have passed, at most p_max calls with about 2,000 '
  'recipients in all: makes one invite over the next channel for each user who has not declined and of whom no phone has '
  'reported that it rings (push.report_ringing). Each call is handled once, but again after a second if another transaction '
  'has its turn. Returns how many invites were made';

-- A channel that sends nothing ------------------------------------------------------------------------------------------

create or replace function push.stuck_lanes() returns smallint[]
language sql stable set search_path = push, pg_temp as $$
  select coalesce(array_agg(x.lane), '{}') from (
    select s.lane from push.lane_status s join push.gateways g on g.id = s.gateway and g.alive
    group by s.lane
    having bool_and(s.circuit <> 'closed' or s.capacity = 0
      or coalesce(s.throttled_until > clock_timestamp() + interval '2 s', false))
  ) x join push.lane l on l.id = x.lane
  where push.falls_back(l.provider) and not l.paused
$$;
comment on function push.stuck_lanes is
  'lanes over which no living gateway sends now, because it has no connection, an open circuit, or a pause of more than 2 '
  's that the provider asked for. Lanes of channels that none can replace (push.falls_back) and lanes paused by operators '
  'are left out';

-- Usually no lane is stuck and no invite waits for another attempt, which is quickly checked. Each invite is checked once
-- and marked, whatever the result: otherwise invites of users without another channel would come before all others every
-- time. On a stuck lane the latest deadlines are checked first, and lanes take turns. No invite is made if there is already
-- one over the next channel (from push.escalate, or from before a push.requeue), or if a phone of the user has reported
-- that it rings.
create or replace function push.bypass(p_max int default 500) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  c_scanned constant int := 5000;
  v_lanes   smallint[] := push.stuck_lanes();
  v_waited  timestamptz := clock_timestamp() - interval '2 s';
  v_soon    timestamptz := clock_timestamp() + interval '1 s';
  -- Ten minutes is the longest ring window. Variables, so that only newer partitions and a part of the indexes are read.
  v_since   timestamptz := clock_timestamp() - interval '10 minutes';
  v_due     timestamptz := clock_timestamp() + interval '10 minutes';
  v_looked  push.delivery[];
  v_stuck   push.delivery[];
  v_locked  bigint[];
begin
  if push.restored_at() is not null then
    return 0;
  end if;
  with seen as materialized (
    -- Deliveries of other kinds do not count towards the limit: there may be thousands of them.
    select y.* from unnest(v_lanes) s(lane) cross join lateral (
      select d.ctid as tid, d.lane, d.created_at, d.deadline_at, d.state, d.bypassed_at from push.delivery d
      where d.ready_lane = s.lane and d.deadline_at > v_soon and d.deadline_at <= v_due and d.kind = 0
      order by d.deadline_at desc limit c_scanned
    ) y
    union all
    select w.* from (
      -- Invites that failed before, or that are on a stuck lane. Invites of a call that may be ending wait, too.
      select d.ctid, d.lane, d.created_at, d.deadline_at, d.state, d.bypassed_at from push.delivery d
      where d.ready_lane is null and d.kind = 0 and d.due_at <= v_due and d.state = 2
        and (d.last_reason is not null or d.lane = any (v_lanes))
      order by d.due_at limit c_scanned
    ) w
  ), wanted as materialized (
    select n.tid from (
      select s.tid, row_number() over (partition by s.lane order by s.deadline_at desc) as place from seen s
      where s.bypassed_at is null and s.state in (0, 2) and s.created_at <= v_waited and s.deadline_at > v_soon
    ) n
    order by n.place limit p_max
  ), pick as materialized (
    select d.ctid as tid from push.delivery d where d.ctid = any (array(select w.tid from wanted w))
    for no key update skip locked
  ), looked as (
    update push.delivery d set bypassed_at = clock_timestamp() where d.ctid = any (array(select p.tid from pick p))
    returning d
  )
  select array_agg(l.d) into v_looked from looked l;
  if v_looked is null then
    return 0;
  end if;
  v_stuck := array(
    select x from unnest(v_looked) x
    where (select true from push.delivery f where f.outbox_id = x.outbox_id and f.fallback_of = x.n limit 1) is null
      and (select true from push.history h where h.outbox_id = x.outbox_id and h.fallback_of = x.n
        and h.finished_at >= greatest(v_since, x.created_at) limit 1) is null
      and (select true from push.ring_reports r where r.outbox_id = x.outbox_id and r.user_id = x.user_id) is null);
  if v_stuck <> '{}' then
    v_locked := array(select f.outbox_id from push.fall_back_unheard(v_stuck) f where f.n is null);
    update push.delivery d set bypassed_at = null
      from unnest(v_stuck) s
      where s.outbox_id = any (v_locked) and d.outbox_id = s.outbox_id and d.n = s.n;
  end if;
  return cardinality(v_looked);
end
$$;
comment on function push.bypass is
  'for at most p_max invites that are at least 2 s old and on a stuck lane (push.stuck_lanes), or that failed and wait for '
  'their next attempt: makes one invite over the user''s next channel, while the first one goes on waiting, unless a phone '
  'of the user has reported that it rings. Returns how many invites were checked; each is checked only once, unless another '
  'transaction has the turn of its call';
