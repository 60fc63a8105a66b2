-- The rules of a call: how it ends, whom that is told, what a missed call leaves behind.
--
-- push.outbox.state is the truth. It changes once, from ringing to answered, ended or missed; a statement trigger does
-- the rest for all calls of the statement, inside the caller's transaction. The functions here only update that column.
--
-- The race with the gateways is settled as follows. Ending a call deletes its ready and waiting invites: that waits for
-- a claim in flight, and the next statement's fresh snapshot then sees what was claimed. A claimed invite that is given
-- back meanwhile (parked, released, reaped) must not become ready unseen: it does only under a share lock on its call,
-- which an end in progress denies; otherwise it waits, and push.promote asks again. So push.claim needs to ask nothing.
-- Whoever may update calls may also lock them for hours. After a second the invite is ready all the same, and the call is noted
-- in push.ends_unchecked: if its end was in progress, push.check_ends cancels what that has not seen.
-- Who locks what in which order is in claims.sql.
--
-- A backend may end a call in a transaction that sees the database as it was before (REPEATABLE READ, SERIALIZABLE). It does
-- not see what was claimed, given back, sent or added since. So it does what it can, notes the call in push.ends_unchecked,
-- and once it has committed push.check_ends does what it could not, and announces the missed calls.

-- Unsent invites ------------------------------------------------------------------------------------------------------

-- Also for calls of which only some have ended: the others are left alone, but for invites of users who have declined. Whoever
-- has given invites back holds locks on them, and two that void the same call must not wait for each other: so they pass by what
-- is locked. Its holder is about to void it, too, or it waits, and push.promote comes by.
create or replace function push.void_unsent(p_outbox_id bigint[], p_wait boolean default true) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_ended  bigint[];
  v_gone   bigint[];
  v_mine   tid[];
  v_voided bigint;
begin
  select array_agg(c.id order by c.id) filter (where o.state <> 'ringing' or o.declined is not null),
      array_agg(c.id) filter (where o.state is null)
    into v_ended, v_gone
    from (select distinct unnest(p_outbox_id) as id) c
    left join lateral (select o.state, o.declined from push.outbox o where o.id = c.id offset 0) o on true;
  if v_gone is not null then
    perform push.drop_deliveries(v_gone, p_wait);
  end if;
  if v_ended is null then
    return 0;
  end if;
  if not p_wait then
    v_mine := array(
      select d.tid from unnest(v_ended) c(id)
      cross join lateral (
        select o.state as call_state, o.declined from push.outbox o where o.id = c.id offset 0
      ) o
      cross join lateral (
        select d.ctid as tid from push.delivery d where d.outbox_id = c.id and d.kind = 0 and d.state in (0, 2)
          and (o.call_state <> 'ringing' or o.declined ? d.user_id)
        for update skip locked
      ) d);
    if v_mine = '{}' then
      return 0;
    end if;
  end if;
  with unsent as materialized (
    select d.tid, o.call_id, case o.call_state when 'ringing' then 'User' || initcap(o.declined -> d.user_id ->> 'reason')
        else 'Call' || initcap(o.call_state) end as why, o.call_state = 'missed' as is_missed
    from unnest(v_ended) c(id)
    cross join lateral (
      select o.call_id, o.state as call_state, o.declined from push.outbox o where o.id = c.id offset 0
    ) o
    cross join lateral (
      select d.ctid as tid, d.user_id from push.delivery d where d.outbox_id = c.id and d.kind = 0 offset 0
    ) d
    where (p_wait or d.tid = any (v_mine)) and (o.call_state <> 'ringing' or o.declined ? d.user_id)
  ), gone as (
    delete from push.delivery d
    using unsent u
    where d.ctid = u.tid and d.kind = 0 and d.state in (0, 2)
    -- A missed call's invites ended as push.expire would have ended them, whichever of the two comes first.
    returning d.*, u.call_id, u.why, u.is_missed and d.deadline_at <= clock_timestamp() as is_late
  ), tallied as (
    insert into push.tally (what, lane, kind, outcome, reason, untried, count)
    select 'ended', g.lane, g.kind, case when g.is_late then 3 else 2 end,
      case when g.is_late then coalesce(g.last_reason, 'DeadlinePassed') else g.why end,
      g.attempt = 0, count(*)
    from gone g
    group by 2, 3, 4, 5, 6
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
    device, token_hash, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind,
    case when g.is_late then 3 else 2 end, g.user_id, g.call_id, left(g.token, 4) || '…' || right(g.token, 4),
    hashtextextended(g.token, 0),
    case when g.is_late then coalesce(g.last_reason, 'DeadlinePassed') else g.why end,
    g.failures, g.fallback_of
  from gone g;
  get diagnostics v_voided = row_count;
  return v_voided;
end
$$;
comment on function push.void_unsent is
  'ends the ready and waiting invites of those of the given calls that no longer ring, as void (CallAnswered, '
  'CallEnded, CallMissed), or as expired when missed, and those of users who have declined (UserDeclined, UserBusy), and drops '
  'what is owed of those that were deleted; returns how many ended. p_wait: for what others have locked, rather than leaving it to them';

-- Cancels -------------------------------------------------------------------------------------------------------------

-- "lateral (… offset 0)" pins a lookup by index for each outer row, and leaves hash joins to what is small. History
-- holds masked tokens only: a token is found again among the call's recipients and the user's devices, by its mask and its hash.
-- A VoIP token gets a cancel only where the app says that its phones take one for the end of a call.
create or replace function push.cancel_invites(p_outbox_id bigint[], p_again boolean default false) returns bigint
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
      select o.id, o.app, o.recipients, o.answered_by, o.answered_device, o.declined, o.state = 'ringing' as rings,
        coalesce((select a.voip_cancel from push.apps a where a.app = o.app), false) as voip_cancel
      from push.outbox o
      where o.id = c.id and (o.state in ('answered', 'ended') or o.state = 'ringing' and o.declined is not null)
      offset 0
    ) o
  ), claimed as materialized (
    -- Ready and waiting ones are gone, but for one that was given back this very moment.
    select c.id, d.lane, d.token, d.user_id, d.environment, d.platform, d.locale, d.data
    from call c cross join lateral (
      select * from push.delivery d where d.outbox_id = c.id and d.kind = 0 offset 0
    ) d
  ), finished as materialized (
    -- Of those that a gateway settled, the last try counts only if it left; of the others, every try may have.
    select distinct c.id, c.app, h.lane, h.user_id, h.device, h.token_hash, l.provider
    from call c cross join lateral (
      select * from push.history h
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and h.kind = 0
        and (h.sent_at is not null or h.attempts > case when h.owner is null then 0 else 1 end)
        and (h.outcome <> 4 or h.status is null)
      offset 0
    ) h
    join push.lane l on l.id = h.lane
    where l.provider <> 'apns' or c.voip_cancel
  ), inline as materialized (
    select c.id, t.provider, e ->> 'userId' as user_id, t.token,
      case when e ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
      case t.provider when 'apns' then 1::smallint else push.recipient_platform(e) end as platform,
      push.recipient_locale(e) as locale, push.recipient_data(e) as data
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    cross join lateral (values ('apns', case when c.voip_cancel then push.recipient_token(e, 'voipPushToken') end),
      ('fcm', push.recipient_token(e, 'fcmToken')),
      ('expo', push.recipient_token(e, 'pushToken'))) t(provider, token)
    where t.token is not null and push.is_recipient(e)
  ), given as materialized (
    -- What the entries of registered users brought.
    select distinct on (c.id, e ->> 'userId') c.id, e ->> 'userId' as user_id, push.recipient_data(e) as data
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    where e ? 'data' and push.recipient_data(e) is not null and not e ?| '{voipPushToken,apnsToken,fcmToken,pushToken}'
  ), phone as materialized (
    -- Those that answered or declined are told nothing.
    select c.id, c.app, c.recipients, p.token
    from call c cross join lateral (
      select c.answered_device as token
      union all
      select s.said ->> 'device' from jsonb_each(c.declined) s(user_id, said)
    ) p
    where p.token is not null
  ), own as materialized (
    select p.id, p.token from phone p
    union
    -- An entry that brought the token is that phone, with all its tokens.
    select p.id, t.token
    from phone p cross join lateral jsonb_array_elements(p.recipients) e
    cross join lateral (values (push.recipient_token(e, 'voipPushToken')), (push.recipient_token(e, 'fcmToken')),
      (push.recipient_token(e, 'pushToken'))) t(token)
    where t.token is not null and p.token in (push.recipient_token(e, 'voipPushToken'), push.recipient_token(e, 'fcmToken'),
      push.recipient_token(e, 'pushToken'))
    union
    -- Of a registered one nobody knows which tokens of other providers it has: they may be the user's of that platform.
    select p.id, d.token
    from phone p
    cross join lateral (
      select x.user_id, x.provider,
        coalesce(x.platform, case x.provider when 'apns' then 'ios' when 'fcm' then 'android' end) as platform
      from push.devices x where sha256(x.token::bytea) = sha256(p.token::bytea) and x.app = p.app
      offset 0
    ) x
    cross join lateral (
      select d.token from push.devices d
      where d.user_id = x.user_id and d.app = p.app and d.enabled and d.invalidated_at is null and d.provider <> x.provider
        and (x.platform is null or coalesce(d.platform, case d.provider when 'fcm' then 'android' else x.platform end) = x.platform)
      offset 0
    ) d
  ), target as (
    select c.* from claimed c
    union all
    select f.id, f.lane, i.token, f.user_id, i.environment, i.platform, i.locale, i.data
    from finished f
    join inline i on i.id = f.id and i.user_id = f.user_id and i.provider = f.provider
      and left(i.token, 4) || '…' || right(i.token, 4) = f.device
      and coalesce(hashtextextended(i.token, 0) = f.token_hash, true)
    union all
    select f.id, f.lane, d.token, f.user_id, case d.environment when 'sandbox' then 1 else 0 end::smallint,
      case when d.provider = 'apns' or d.platform = 'ios' then 1 when d.platform = 'android' then 2 else 0 end::smallint, d.locale,
      (select g.data from given g where g.id = f.id and g.user_id = f.user_id)
    from finished f cross join lateral (
      select * from push.devices d
      where d.user_id = f.user_id and d.app = f.app and d.enabled and d.invalidated_at is null
        and d.provider = f.provider and left(d.token, 4) || '…' || right(d.token, 4) = f.device
        and coalesce(hashtextextended(d.token, 0) = f.token_hash, true) and (d.provider <> 'apns' or d.voip)
      offset 0
    ) d
  ), told as materialized (
    select d.* from call c cross join lateral (
      select d.outbox_id, d.lane, d.user_id, left(d.token, 4) || '…' || right(d.token, 4) as device,
        hashtextextended(d.token, 0) as token_hash, d.n
      from push.delivery d where d.outbox_id = c.id and d.kind = 1
      union all
      select h.outbox_id, h.lane, h.user_id, h.device, h.token_hash, h.n from push.history h
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and h.kind = 1
      offset 0
    ) d
    where p_again or c.declined is not null
  )
  insert into push.delivery (outbox_id, n, kind, created_at, due_at, deadline_at, lane, ready_lane, environment, platform,
    user_id, token, locale, data)
  select t.id,
    coalesce((select max(case when x.n >= 30000 then x.n - 20000 else x.n end) from told x where x.outbox_id = t.id), 9999)
      + row_number() over (partition by t.id order by t.lane, t.token),
    1, clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '60 s', t.lane, t.lane, t.environment, t.platform,
    t.user_id, t.token, t.locale, t.data
  from (
    select distinct on (t.id, t.lane, t.token) t.*
    from target t
    join call c on c.id = t.id
    join push.lane l on l.id = t.lane
    -- Apple: a VoIP push must end in a reported call, so none may be sent to cancel one, but to apps that report it all the same.
    -- Nor to one that may be the phone on which the call was declined: it has no call left to report.
    where (l.provider <> 'apns' or c.voip_cancel
        and (not coalesce(c.declined ? t.user_id, false) or c.declined -> t.user_id ->> 'device' is not null))
      and (not c.rings or c.declined ? t.user_id)
      and (c.answered_device is not null or t.user_id is distinct from c.answered_by)
      and not exists (select from own w where w.id = t.id and w.token = t.token)
      and not exists (select from told x where x.outbox_id = t.id and x.lane = t.lane and x.user_id = t.user_id
        and x.device = left(t.token, 4) || '…' || right(t.token, 4)
        and coalesce(x.token_hash = hashtextextended(t.token, 0), true))
    order by t.id, t.lane, t.token
  ) t;
  get diagnostics v_cancels = row_count;
  if v_cancels > 0 then
    perform push.commit_durably();
  end if;
  return v_cancels;
end
$$;
comment on function push.cancel_invites is
  'for calls answered or ended: one cancel a device that may ring, to a VoIP token only by push.apps.voip_cancel, none for the user who '
  'answered, or, where it is known, for the phone that did. For calls that ring: the same for users who have declined, and '
  'none for the phone that did. Returns how many. p_again: it was done before, and those who were told are left alone';

-- How much at a time --------------------------------------------------------------------------------------------------

-- What follows from the end of a call grows with its recipients. A bite of housekeeping takes calls up to so many recipients,
-- one call at least: many large calls that end together must fit into no statement's time limit. A long list is not
-- unpacked to be counted.
create or replace function push.count_recipients(p_recipients jsonb) returns int language sql stable parallel safe as $$
  select case when pg_column_size(p_recipients) > 20000 then 1000
    when jsonb_typeof(p_recipients) = 'array' then 1 + jsonb_array_length(p_recipients) else 1 end
$$;
comment on function push.count_recipients is
  'about how many recipients a call has, at most 1,001. p_recipients: push.outbox.recipients';

-- Missed calls --------------------------------------------------------------------------------------------------------

-- Nobody missed a voided call.
create or replace function push.announce_missed(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  -- From the end of the call, not from when this came to it: after an outage nobody hears of the calls of last week.
  c_life      constant interval := '4 hours';
  v_now       timestamptz := clock_timestamp();
  v_announced bigint;
begin
  with told as materialized (
    -- Phones that get a cancel, which for some apps says all that there is to say.
    select d.outbox_id, d.lane, d.token, array_agg(d.tid) filter (where d.state = 0 and d.n < 20000) as unsent
    from unnest(p_outbox_id) c(id) cross join lateral (
      select d.*, d.ctid as tid from push.delivery d where d.outbox_id = c.id and d.kind = 1 offset 0
    ) d
    group by 1, 2, 3
  ), due as materialized (
    -- The same token twice in a call is one phone.
    select distinct on (m.id, m.lane, m.token) m.*, m.until <= v_now as is_late, t.unsent as cancels,
      case when t.token is null then 19999 else 39999 end
        + row_number() over (partition by m.id order by m.user_id, m.lane, m.token) as n
    from (
      select m.*, l.id as lane
      from (
        -- One phone a user, or each: an entry that brings tokens is one, and so is each token of a registered user.
        select distinct on (r.id, r.user_id, case when r.missed_calls = 'all' then case when r.inline then r.ordinal::text else v.token end end)
          r.id, r.call_id, r.app, r.until, r.user_id,
          case when r.entry ? 'data' then push.recipient_data(r.entry) end as data, v.*
        from (
          select o.id, o.call_id, o.app, o.recipients, o.providers, o.missed_calls, o.dirty_voip_tokens,
            least(o.ended_at, o.deadline_at) + c_life as until, e.entry, e.ordinal,
            case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end as user_id,
            jsonb_typeof(e.entry) = 'object' and e.entry ?| '{voipPushToken,apnsToken,fcmToken,pushToken}' as inline
          from unnest(p_outbox_id) c(id) cross join lateral (
            select o.*, (select a.providers from push.apps a where a.app = o.app) as providers,
              (select a.missed_calls from push.apps a where a.app = o.app) as missed_calls,
              push.dirty_voip_tokens(o.recipients) as dirty_voip_tokens
            from push.outbox o
            where o.id = c.id and not o.voided
              and (o.state = 'missed' or o.state = 'ended' and o.end_reason not in ('declined', 'busy'))
            offset 0
          ) o
          cross join lateral jsonb_array_elements(o.recipients) with ordinality e(entry, ordinal)
          where o.missed_calls is distinct from 'off' and push.is_recipient(e.entry)
            and e.entry -> 'notificationEnabled' is distinct from 'false'
            -- Who declined has not missed it.
            and (o.declined is null
              or not o.declined ? case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end)
        ) r
        cross join lateral (
          select t.rank, t.provider, t.token,
            case when r.entry ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
            case when t.rank = 1 then 1::smallint else push.recipient_platform(r.entry) end as platform,
            push.recipient_locale(r.entry) as locale, null::timestamptz as registered_at
          from (values (1, 'apns', push.recipient_token(r.entry, 'apnsToken')),
            (2, 'fcm', push.recipient_token(r.entry, 'fcmToken')),
            (3, 'expo', push.recipient_token(r.entry, 'pushToken'))) t(rank, provider, token)
          -- "not exists" may become a join, with all dead tokens or all devices.
          where r.inline and t.token is not null and (r.providers is null or t.provider = any (r.providers))
            and (select true from push.token_invalidations x
              where x.token = t.token and x.app = r.app and x.provider = t.provider) is null
            -- A VoIP token that somebody calls an alert token, too, is a VoIP token.
            and (t.rank > 1 or t.token <> all (r.dirty_voip_tokens)
              and not r.recipients @> jsonb_build_array(jsonb_build_object('voipPushToken', t.token))
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
              and (d.provider <> 'apns' or not d.voip) and (r.providers is null or d.provider = any (r.providers))
              and r.missed_calls is distinct from 'all'
            offset 0
          ) d
          union all
          select d.rank, case d.rank when 1 then 'apns' when 2 then 'fcm' else 'expo' end, d.token, d.environment, d.platform, d.locale, null
          from push.reachable_devices(r.app, r.user_id, false, r.providers) d
          where not r.inline and r.missed_calls = 'all'
        ) v
        order by r.id, r.user_id, case when r.missed_calls = 'all' then case when r.inline then r.ordinal::text else v.token end end,
          v.rank, r.ordinal, v.registered_at desc, v.token
      ) m
      join push.lane l on l.app = m.app and l.provider = m.provider
      offset 0
    ) m
    left join told t on t.outbox_id = m.id and t.lane = m.lane and t.token = m.token
    where m.lane is not null
    order by m.id, m.lane, m.token, m.user_id
  ), made as (
    insert into push.delivery (outbox_id, n, kind, created_at, due_at, deadline_at, lane, ready_lane, environment, platform,
      user_id, token, locale, data)
    select d.id, d.n, 2, v_now, v_now, d.until, d.lane, d.lane, d.environment, d.platform, d.user_id, d.token, d.locale, d.data
    from due d
    where not d.is_late
    returning outbox_id
  ), followed as (
    -- They may come after the missed call, and must then say the same.
    update push.delivery d set n = d.n + 20000
    where d.state = 0 and d.ctid = any (array(select unnest(u.cancels) from due u where not u.is_late))
  ), late as (
    insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id, device,
      token_hash, reason)
    select d.id, v_now, d.until, d.n, 0, d.lane, 2, 3, d.user_id, d.call_id, left(d.token, 4) || '…' || right(d.token, 4),
      hashtextextended(d.token, 0), 'DeadlinePassed'
    from due d
    where d.is_late
  ), tallied_late as (
    insert into push.tally (what, lane, kind, outcome, reason, untried, count)
    select 'ended', d.lane, 2, 3, 'DeadlinePassed', true, count(*) from due d where d.is_late group by d.lane
  ), tallied as (
    insert into push.tally (what, app, reason, count)
    select 'missed', o.app, case o.state when 'missed' then 'deadline' else 'ended' end, count(*)
    from made d cross join lateral (select o.app, o.state from push.outbox o where o.id = d.outbox_id offset 0) o
    group by 2, 3
    returning count
  )
  select coalesce(sum(t.count), 0) into v_announced from tallied t;
  if v_announced > 0 then
    perform push.commit_durably();
  end if;
  return v_announced;
end
$$;
comment on function push.announce_missed is
  'for calls missed, or ended without an answer, other than declined, busy or voided: one missed_call a user who has not declined (or, by '
  'push.apps.missed_calls, one a phone, or none), over APNs alert, else FCM, else Expo, never to a '
  'VoIP token, for four hours from the end of the call, which was at its deadline '
  'at the latest. If these are over it expires at once, and only history says so. Those whose phone gets a cancel are numbered from '
  '40000, and these cancels from 30000: it comes after push.cancel_invites. Returns how many were made';

-- A missed call that its cancel would have said, while the cancel said nothing. One that a gateway has claimed just now is passed
-- by: push.settle asks once more where it is void.
create or replace function push.announce_untold(p_cancels push.delivery[]) returns void
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  -- A variable, so that older partitions are not looked at.
  v_since timestamptz := (select min(c.created_at) from unnest(p_cancels) c);
begin
  with owed as materialized (
    select m.tid
    from unnest(p_cancels) c
    cross join lateral (
      select d.ctid as tid from push.delivery d
      where d.outbox_id = c.outbox_id and d.n >= 40000 and d.kind = 2 and d.lane = c.lane and d.token = c.token
        and d.state in (0, 2)
      offset 0 for update skip locked
    ) m
  )
  update push.delivery d set n = d.n - 20000 where d.ctid = any (array(select o.tid from owed o));
  insert into push.delivery (outbox_id, n, kind, created_at, due_at, deadline_at, lane, ready_lane, environment, platform,
    user_id, token, locale, data)
  select c.outbox_id, m.n - 20000, 2, clock_timestamp(), clock_timestamp(), m.deadline_at, c.lane, c.lane, c.environment,
    c.platform, m.user_id, c.token, c.locale, c.data
  from unnest(p_cancels) c
  cross join lateral (
    -- What else is asked stands outside: there are indexes by lane and outcome.
    select * from push.history h where h.outbox_id = c.outbox_id and h.finished_at >= v_since and h.n >= 40000 offset 0
  ) m
  where m.kind = 2 and m.lane = c.lane and m.outcome = 2 and m.reason = 'SaidByCancel'
    and m.token_hash = hashtextextended(c.token, 0) and m.device = left(c.token, 4) || '…' || right(c.token, 4)
    and m.deadline_at > clock_timestamp()
  on conflict do nothing;
  if found then
    perform push.ring_doorbell();
    perform push.commit_durably();
  end if;
end
$$;
comment on function push.announce_untold is
  'for cancels that expired: the missed call to the same phone, if the call has one, no longer counts as said by the cancel (its number '
  'is lower by 20000), and is made again where it was void for that (SaidByCancel). p_cancels: as they were in push.delivery, or the '
  'missed calls that were void';

create or replace function push.miss(p_max int default 1000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  c_recipients constant int := 2000;
  v_missed bigint;
begin
  -- Calls of the time before a restore are not announced.
  if push.restored_at() is not null then
    return 0;
  end if;
  with late as materialized (
    select o.id, o.deadline_at, push.count_recipients(o.recipients) as count
    from push.outbox o
    where o.state = 'ringing' and o.deadline_at <= statement_timestamp()
    order by o.deadline_at
    limit p_max
    for no key update skip locked
  ), bite as (
    select l.id, sum(l.count) over (order by l.deadline_at, l.id) - l.count as before from late l
  )
  update push.outbox o set state = 'missed'
    where o.id = any (array(select b.id from bite b where b.before < c_recipients));
  get diagnostics v_missed = row_count;
  return v_missed;
end
$$;
comment on function push.miss is
  'up to p_max calls that still ring after their deadline, with about 2,000 recipients in all, become missed; returns how many';

-- The end of a call ---------------------------------------------------------------------------------------------------

create or replace function push.check_call() returns trigger language plpgsql set search_path = push, pg_temp as $$
declare
  -- A setting is anybody's; what goes with it is not.
  v_is_erasing boolean := coalesce(current_setting('push.erasing', true) = 'on', false)
    and has_column_privilege('push.outbox', 'recipients', 'update');
  v_fault text := case
    when (new.id, new.app, new.kind, new.call_id, new.ring_seconds, new.created_at, new.deadline_at)
        is distinct from (old.id, old.app, old.kind, old.call_id, old.ring_seconds, old.created_at, old.deadline_at)
        or new.payload is distinct from old.payload or new.recipients is distinct from old.recipients
      then case when not v_is_erasing then ': only state, answered_by and end_reason can be changed; enqueue another call' end
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
    new.voided := old.voided;
    if not v_is_erasing then
      new.answered_by := old.answered_by;
      new.answered_device := old.answered_device;
    end if;
  else
    new.ended_at := clock_timestamp();
    new.end_reason := coalesce(new.end_reason, new.state);
  end if;
  return new;
end
$$;
comment on function push.check_call is
  'lets a call end once and refuses any other change but that of push.erase_user, with an error that names the column and prints '
  'no token';

create or replace trigger check_call before update on push.outbox for each row execute function push.check_call();

create or replace function push.tell_void(p_outbox_id bigint[]) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  if cardinality(p_outbox_id) > 100 then
    perform push.notify('push_control', 'void *');
  else
    perform push.notify('push_control', 'void ' || c.id) from unnest(p_outbox_id) c(id);
  end if;
end
$$;
comment on function push.tell_void is
  'tells gateways that calls have ended, or exist no more: NOTIFY push_control with "void" and push.outbox.id, or '
  '"void *" (any call may have ended) when there are more than 100';

-- Past the deadline they drop what they hold in memory by themselves.
create or replace function push.tell_held(p_outbox_id bigint[]) returns void
language plpgsql volatile set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
begin
  perform push.tell_void(array(
    select c.id
    from unnest(p_outbox_id) c(id)
    where exists (select from push.delivery d
      where d.outbox_id = c.id and d.kind = 0 and d.deadline_at > clock_timestamp())
    order by c.id
    limit 101));
end
$$;
comment on function push.tell_held is
  'tells gateways (push.tell_void) of those of these calls, which have ended, of which one holds invites';

create or replace function push.end_calls() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  -- A call ends once: it is one that did not ring before, or it is of this statement.
  v_calls   bigint[] := array(
    select n.id from new_calls n where n.state <> 'ringing'
    except
    select o.id from old_calls o where o.state <> 'ringing'
    order by 1);
  v_made    bigint;
begin
  if v_calls = '{}' then
    return null;
  end if;
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    -- Who missed the call is told when it is known who gets a cancel.
    insert into push.ends_unchecked (outbox_id, is_unannounced) select unnest(v_calls), true;
    begin
      perform push.void_unsent(v_calls);
      v_made := push.cancel_invites(v_calls);
    exception when serialization_failure then
      -- What a gateway has done since. The backend's transaction need not fail for it.
      v_made := 0;
    end;
    perform push.tell_void(v_calls[:101]);
  else
    perform push.void_unsent(v_calls);
    v_made := push.cancel_invites(v_calls) + push.announce_missed(v_calls);
    perform push.tell_held(v_calls);
  end if;
  if v_made > 0 then
    perform push.ring_doorbell();
  end if;
  return null;
end
$$;
comment on function push.end_calls is
  'what follows from calls ending: unsent invites are void, devices that may ring are told, so are users who missed '
  'the call, and gateways that hold invites of it';

create or replace function push.check_ends(p_max int default 500) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  c_recipients constant int := 2000;
  v_calls bigint[];
  v_ends  bigint[];
  v_taken bigint;
  v_made  bigint;
begin
  with unchecked as materialized (
    select x.ctid as tid, coalesce((select push.count_recipients(o.recipients) from push.outbox o where o.id = x.outbox_id), 100) as count
    from push.ends_unchecked x
    -- Of a call that rings and is locked the end may be in progress (push.promote): it is looked at when its outcome is known.
    where (select true from push.outbox o where o.id = x.outbox_id and o.ended_at is null) is null
      or (select true from push.outbox o where o.id = x.outbox_id for share skip locked)
    limit p_max for update of x skip locked
  ), bite as (
    select u.tid, sum(u.count) over (order by u.tid) - u.count as before from unchecked u
  ), taken as (
    delete from push.ends_unchecked e
    where e.ctid = any (array(select b.tid from bite b where b.before < c_recipients))
    returning e.outbox_id, e.is_unannounced
  )
  select array_agg(distinct t.outbox_id order by t.outbox_id), count(*),
      array_agg(t.outbox_id order by t.outbox_id) filter (where t.is_unannounced)
    into v_calls, v_taken, v_ends
    from taken t;
  if v_taken > 0 then
    -- Of calls that were deleted it drops all that is owed.
    perform push.void_unsent(v_calls);
    perform push.drop_belongings(array(select c.id from unnest(v_calls) c(id)
      where (select true from push.outbox o where o.id = c.id) is null));
    v_made := push.cancel_invites(v_calls, true);
    -- Calls of the time before a restore are not announced.
    if v_ends is not null and push.restored_at() is null then
      v_made := v_made + push.announce_missed(v_ends);
    end if;
    if v_made > 0 then
      perform push.ring_doorbell();
    end if;
    perform push.tell_held(v_calls);
  end if;
  return v_taken;
end
$$;
comment on function push.check_ends is
  'looks once more at up to p_max calls, with about 2,000 recipients in all, that were '
  'ended or deleted by transactions which may not have seen all their '
  'deliveries: invites that are left are void, devices that may ring are told, and then users who missed the call; returns how many calls';

-- PostgreSQL gives no transition tables to a trigger with a column list, so it is not "update of state".
create or replace trigger end_calls after update on push.outbox referencing old table as old_calls new table as new_calls
  for each statement execute function push.end_calls();

-- A tenant's apps are looked up one by one: no row of another's is read, which statistics of its own transaction would tell it.
create or replace function push.own_calls(p_call_id text, p_app text) returns table (id bigint, app text)
language plpgsql stable rows 1 set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
#variable_conflict use_column
declare
  v_own text[] := case when not push.acts_for_all() then push.own_apps() end;
begin
  if v_own is null and p_app is null then
    return query select o.id, o.app from push.outbox o where o.call_id = p_call_id;
  else
    return query select o.id, o.app from unnest(coalesce(v_own, array[p_app])) a(app)
      cross join lateral (select o.id, o.app from push.outbox o where o.call_id = p_call_id and o.app = a.app offset 0) o
      where p_app is null or a.app = p_app;
  end if;
end
$$;
comment on function push.own_calls is
  'numbers and apps of the calls of this id in the caller''s apps. p_call_id: of push.outbox; p_app: only of this app; null: of each';

create or replace function push.find_call(p_call_id text, p_app text) returns bigint
language plpgsql stable set search_path = push, pg_temp as $$
declare
  v_ids  bigint[];
  v_apps text;
begin
  select array_agg(c.id), string_agg(c.app, ', ' order by c.app) into v_ids, v_apps from push.own_calls(p_call_id, p_app) c;
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
  'number of a call of the caller''s apps; an error if there is none, or, without an app, several. p_call_id, p_app: of push.outbox';

create or replace function push.device_token(p_app text, p_device text) returns text
language plpgsql stable set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_token text := coalesce(push.recipient_token(jsonb_build_object('apnsToken', p_device), 'apnsToken'),
    push.recipient_token(jsonb_build_object('pushToken', p_device), 'pushToken'),
    push.recipient_token(jsonb_build_object('fcmToken', p_device), 'fcmToken'));
begin
  if v_token is null and p_device ~ '^[0-9]{1,18}$' then
    v_token := (select d.token from push.devices d where d.id = p_device::bigint and d.app = p_app);
  end if;
  if v_token is null and p_device is not null then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'device: must be a token of the phone, or the id that it has in push.devices',
      hint = 'Leave it out if the phone is not known.', schema = 'push', table = 'outbox', column = 'answered_device';
  end if;
  return v_token;
end
$$;
comment on function push.device_token is
  'the token that a device is known by; an error if there is no such device. p_app: its app; p_device: a token, or push.devices.id; '
  'null: null';

create or replace function push.answer_call(
  call_id text, user_id text default null, app text default null, device text default null
) returns boolean
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_id    bigint := push.find_call(call_id, app);
  v_app   text := (select o.app from push.outbox o where o.id = v_id);
  v_token text := push.device_token(v_app, device);
begin
  update push.outbox o set state = 'answered', answered_device = v_token, answered_by = coalesce(answer_call.user_id,
      (select d.user_id from push.devices d where sha256(d.token::bytea) = sha256(v_token::bytea) and d.app = v_app limit 1),
      (select e ->> 'userId' from jsonb_array_elements(o.recipients) e
        where push.is_recipient(e) and v_token in (push.recipient_token(e, 'voipPushToken'),
          push.recipient_token(e, 'fcmToken'), push.recipient_token(e, 'pushToken'))
        limit 1))
    where o.id = v_id and o.ended_at is null;
  return found;
end
$$;
comment on function push.answer_call is
  'the call was answered: nothing more is sent, other devices that may ring are told. call_id: payload.callId; user_id: '
  'who answered, if known: their devices are told nothing; app: needed only if several apps have a call of this id; device: the '
  'phone that answered, if known, by its token or push.devices.id: then it is told nothing, and the user''s other phones are. '
  'False: it had ended before';

-- The call's row is written, so that whoever makes an invite ready (under a share lock on it) sees the decline, or is seen by what
-- follows here; and it is locked as by an end, so the end, an answer and another user's decline come one after the other.
create or replace function push.decline_call(
  call_id text, user_id text, app text default null, reason text default 'declined', device text default null
) returns boolean
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_id      bigint := push.find_call(call_id, app);
  v_call    push.outbox;
  v_said    jsonb;
  v_created timestamptz;
  v_made    bigint;
begin
  perform push.check_recipient(v_id, call_id, user_id);
  if coalesce(reason not in ('declined', 'busy'), true) then
    raise exception using errcode = 'invalid_parameter_value', message = 'reason: must be declined or busy',
      schema = 'push', table = 'outbox', column = 'declined';
  end if;
  select o.* into v_call from push.outbox o where o.id = v_id;
  v_created := v_call.created_at;
  v_said := jsonb_build_object('reason', reason, 'at', clock_timestamp(), 'device', push.device_token(v_call.app, device));
  update push.outbox o set declined = coalesce(o.declined, '{}') || jsonb_build_object(decline_call.user_id, v_said)
    where o.id = v_id and o.ended_at is null and not coalesce(o.declined ? decline_call.user_id, false);
  if not found then
    return false;
  end if;
  -- The last of those whose phones were rung; if none was, or one is erased, the last of all: two may have one phone. A phone
  -- whose invite its provider refused was not.
  update push.outbox o set state = 'ended', end_reason = 'declined'
    where o.id = v_id and o.ended_at is null and not exists (
      with rung as materialized (
        select d.user_id from push.delivery d where d.outbox_id = v_id and d.kind = 0
        union
        select h.user_id from push.history h
        where h.outbox_id = v_id and h.finished_at >= v_created and h.kind = 0 and (h.outcome <> 4 or h.status is null)
      )
      select from rung r where not o.declined ? r.user_id
      union all
      select from jsonb_array_elements(o.recipients) e
      where (current_setting('push.erasing', true) = 'on' or not exists (select from rung)) and push.is_recipient(e)
        and not o.declined ? case jsonb_typeof(e) when 'string' then e #>> '{}' else e ->> 'userId' end);
  if found then
    return true;
  end if;
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    insert into push.ends_unchecked (outbox_id) values (v_id);
    begin
      perform push.void_unsent(array[v_id]);
      v_made := push.cancel_invites(array[v_id]);
    exception when serialization_failure then
      -- What a gateway has done since: push.check_ends looks once more.
      v_made := 0;
    end;
    perform push.tell_void(array[v_id]);
  else
    perform push.void_unsent(array[v_id]);
    v_made := push.cancel_invites(array[v_id]);
    if cardinality(push.ended(array[v_id])) > 0 then
      perform push.tell_void(array[v_id]);
    end if;
  end if;
  if v_made > 0 then
    perform push.ring_doorbell();
  end if;
  return true;
end
$$;
comment on function push.decline_call is
  'a user declines, or is busy: nothing more is sent to their phones, those that may ring are told, and no missed call; the other '
  'users'' ring on. When the last user whose phones were rung has declined, the call ends as declined. call_id: payload.callId; '
  'user_id: as in the call''s recipients; app: needed only if several apps have a call of this id; reason: declined or busy; device: '
  'the phone that declined, if known, by its token or push.devices.id: it is told nothing. False: the user had declined before, or '
  'the call had ended';

create or replace function push.end_call(call_id text, reason text default 'ended', app text default null) returns boolean
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
  'unless the reason is declined or busy. call_id: payload.callId; reason: kept as push.outbox.end_reason; app: needed '
  'only if several apps have a call of this id. False: it had ended before';
