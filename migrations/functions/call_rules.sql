-- The rules of a call: how a call ends, who is told, and which notifications a missed call creates.
--
-- push.outbox.state is the state of a call. It changes once, from ringing to answered, ended or missed. A statement trigger
-- does the rest for all calls of the statement, inside the caller's transaction. The functions here only update that
-- column.
--
-- The race with the gateways. The end of a call deletes the call's ready and waiting invites. The delete waits for a
-- running claim, and the next statement has a new snapshot and sees what was claimed. Meanwhile a gateway may return a
-- claimed invite (park, release) or lose it (free_claims). Such an invite becomes ready only under a share lock on its
-- call. A running end of the call holds a conflicting lock; the invite then waits, and push.promote checks it again.
-- Therefore push.claim need not look at the call. A role that may update calls may also lock them for hours. After one
-- second the invite becomes ready without the lock, and the call is noted in push.ends_unchecked: if it was ending,
-- push.check_ends later cancels the invites that the end did not see. The order of locks is described in claims.sql.
--
-- A backend may end a call in a REPEATABLE READ or SERIALIZABLE transaction, whose snapshot is older. The transaction does
-- not see what has been claimed, returned, sent or added since. It does what it can and notes the call in
-- push.ends_unchecked. After the commit, push.check_ends does the rest and announces the missed calls.

-- Unsent invites ------------------------------------------------------------------------------------------------------

-- The caller may pass calls that still ring. Of those, only the invites of users who have declined are deleted. A caller
-- that has just returned invites to the queue holds locks on them, and two such callers must not wait for each other. They
-- therefore skip locked rows (p_wait false): the session that has locked an invite deletes it, or leaves it waiting until
-- push.promote checks it.
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
    -- Invites of a missed call end as push.expire would end them, whichever of the two runs first.
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
  'ends the ready and waiting invites of those of the given calls that no longer ring. Their outcome is void '
  '(CallAnswered, CallEnded, CallMissed), or expired if the call was missed and the deadline has passed. Also ends the '
  'invites of users who have declined (UserDeclined, UserBusy), and drops the deliveries of calls that were deleted. '
  'Returns how many invites ended. p_wait: true waits for rows that other sessions have locked, false skips them';

-- Cancels -------------------------------------------------------------------------------------------------------------

-- "lateral (… offset 0)" forces an index lookup for each outer row and leaves hash joins to the small sets. History holds
-- only masked tokens: a token is found again among the call's recipients and the user's devices, by its mask and its hash.
-- A VoIP token gets a cancel only if push.apps.voip_cancel says that the app's phones treat it as the end of the call.
create or replace function push.cancel_invites(p_outbox_id bigint[], p_again boolean default false) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  -- Variables, so that only the partitions in this range are read. The minute covers rows that are settled meanwhile.
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
    -- Ready and waiting invites are already deleted, except one that was returned to the queue at this moment.
    select c.id, d.lane, d.token, d.user_id, d.environment, d.platform, d.locale, d.data
    from call c cross join lateral (
      select * from push.delivery d where d.outbox_id = c.id and d.kind = 0 offset 0
    ) d
  ), finished as materialized (
    -- If a gateway settled the invite, its last attempt counts only if the request was sent. Otherwise every attempt may
    -- have been sent.
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
      push.entry_platform(t.provider, e) as platform,
      push.recipient_locale(e) as locale, push.recipient_data(e) as data
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    cross join lateral push.entry_tokens(e, true) t
    where (t.provider <> 'apns' or c.voip_cancel) and push.is_recipient(e)
  ), given as materialized (
    -- The data that the entries of registered users contain.
    select distinct on (c.id, e ->> 'userId') c.id, e ->> 'userId' as user_id, push.recipient_data(e) as data
    from call c cross join lateral jsonb_array_elements(c.recipients) e
    where e ? 'data' and push.recipient_data(e) is not null and not push.has_token_member(e)
  ), phone as materialized (
    -- The phones that answered or declined. They get no cancel.
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
    -- An entry of recipients with this token is that phone; all tokens of the entry belong to it.
    select p.id, t.token
    from phone p cross join lateral jsonb_array_elements(p.recipients) e
    cross join lateral push.entry_tokens(e, true) t
    where exists (select from push.entry_tokens(e, true) s where s.token = p.token)
    union
    -- For a registered phone it is unknown which tokens of other providers it has. Any of the user's tokens on that
    -- platform may be its own. A browser has only one.
    select p.id, d.token
    from phone p
    cross join lateral (
      select x.user_id, x.provider,
        coalesce(x.platform, push.channel_platform(x.provider)) as platform
      from push.devices x where sha256(x.token::bytea) = sha256(p.token::bytea) and x.app = p.app and x.provider <> 'webpush'
      offset 0
    ) x
    cross join lateral (
      select d.token from push.devices d
      where d.user_id = x.user_id and d.app = p.app and d.enabled and d.invalidated_at is null
        and d.provider <> x.provider and d.provider <> 'webpush'
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
      push.platform_code(case d.provider when 'apns' then 'ios' else d.platform end), d.locale,
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
    -- Apple: the app must report a call for every VoIP push, so a cancel goes to a VoIP token only if the app reports one
    -- for it, too. It never goes to a phone that may have declined the call: that phone has no call left to report.
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
  'for calls that were answered or ended: makes one cancel for each device that may ring. A VoIP token gets one only if '
  'push.apps.voip_cancel is set. The user who answered gets none; if the phone that answered is known, only that phone '
  'gets none. For calls that still ring: the same for users who have declined; the phone that declined gets none. Returns '
  'how many were made. p_again: this ran before for these calls, so devices that have a cancel get no second one';

-- How much at a time --------------------------------------------------------------------------------------------------

-- The work at the end of a call grows with the number of its recipients. A step of housekeeping takes at least one call,
-- and at most as many as have about c_recipients recipients in all. Otherwise many large calls that end together would
-- exceed a statement's time limit. The work grows with the bytes, too: 200 of them count as a recipient. A list that is long
-- although it is compressed is not expanded to be counted; "#> '{}'" is the list itself, expanded.
create or replace function push.count_recipients(p_recipients jsonb) returns int language sql stable parallel safe as $$
  select case when pg_column_size(p_recipients) > 20000 then 1000
    else least(1001, greatest(pg_column_size(p_recipients #> '{}') / 200,
      case jsonb_typeof(p_recipients) when 'array' then 1 + jsonb_array_length(p_recipients) else 1 end)) end
$$;
comment on function push.count_recipients is
  'an estimate of the number of recipients of a call, at most 1,001. p_recipients: push.outbox.recipients';

-- One call whose end fails, or takes longer than a statement may, must not stop those of others. push.miss and
-- push.check_ends therefore begin with one call, go on with four times as many for as long as all goes well, and undo a bite
-- that fails. After an error, the next bite is a quarter; after the time limit, the next run begins with one call again. A
-- call that fails alone is put aside: push.miss leaves it to push.check_ends, which tries again after 5 s, 20 s, and so on up
-- to half an hour, until its missed calls would have expired. A machine that stands still for seconds looks like a call that
-- takes too long. So each run that finds calls handles at least one. Errors that are not the call's own, such as a lock that
-- another session holds, or memory or locks that have run out, put nothing aside.
alter table push.ends_unchecked add column if not exists tries int not null default 0,
  add column if not exists due_at timestamptz not null default '-infinity';
comment on column push.ends_unchecked.tries is 'how often push.check_ends has failed';
comment on column push.ends_unchecked.due_at is 'after a failure: when it is tried again';
create or replace function push.bite_time() returns interval language sql immutable parallel safe as $$ select interval '500 ms' $$;
comment on function push.bite_time is 'for how long one run of push.miss or push.check_ends begins new bites';

create or replace function push.is_culprit(p_state text, p_begun timestamptz, p_done bigint) returns boolean
language sql volatile as $$
  select case
    when p_state ~ '^(08|25|40|53[0-3]|55|57P|58)' then false
    -- The limit of a statement counts from its begin: only the first call of a run has had nearly all of it. A shorter time
    -- is someone who cancels.
    when p_state = '57014' then p_done = 0 and clock_timestamp() > p_begun + interval '1 second'
    else true end
$$;
comment on function push.is_culprit is
  'whether an error may be the fault of the calls in the bite that had it. p_state: SQLSTATE; p_begun: when the run began; '
  'p_done: number of calls that the run had handled before';

-- Missed calls --------------------------------------------------------------------------------------------------------

-- A voided call is not announced as missed.
create or replace function push.announce_missed(p_outbox_id bigint[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  -- Counted from the end of the call, not from the time of this statement: after an outage, calls of last week are not
  -- announced.
  c_life      constant interval := '4 hours';
  v_now       timestamptz := clock_timestamp();
  v_announced bigint;
begin
  with told as materialized (
    -- Phones that get a cancel. In some apps the cancel already shows the missed call.
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
        -- One phone of a user, or every phone. An entry with tokens is one phone; each token of a registered user is one
        -- phone.
        select distinct on (r.id, r.user_id, case when r.missed_calls = 'all' then case when r.inline then r.ordinal::text else v.token end end)
          r.id, r.call_id, r.app, r.until, r.user_id,
          case when r.entry ? 'data' then push.recipient_data(r.entry) end as data, v.*
        from (
          select o.id, o.call_id, o.app, o.providers, o.missed_calls, o.voip_tokens,
            least(o.ended_at, o.deadline_at) + c_life as until, e.*
          from unnest(p_outbox_id) c(id) cross join lateral (
            select o.*, (select a.providers from push.apps a where a.app = o.app) as providers,
              (select a.missed_calls from push.apps a where a.app = o.app) as missed_calls,
              push.voip_tokens(o.recipients) as voip_tokens
            from push.outbox o
            where o.id = c.id and not o.voided
              and (o.state = 'missed' or o.state = 'ended' and o.end_reason not in ('declined', 'busy'))
            offset 0
          ) o
          cross join lateral (
            -- A user who is named several times is looked up once.
            select distinct on (e.user_id, case when e.inline then e.ordinal end) e.*
            from (
              select e.entry, e.ordinal,
                case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end as user_id,
                jsonb_typeof(e.entry) = 'object' and push.has_token_member(e.entry) as inline
              from jsonb_array_elements(o.recipients) with ordinality e(entry, ordinal)
              where push.is_recipient(e.entry) and e.entry -> 'notificationEnabled' is distinct from 'false'
                and e.entry -> 'missedCall' is distinct from 'false'
              offset 0
            ) e
            -- A user who declined has not missed the call.
            where o.declined is null or not o.declined ? e.user_id
            order by e.user_id, case when e.inline then e.ordinal end, e.ordinal
          ) e
          where o.missed_calls is distinct from 'off'
        ) r
        cross join lateral (
          select t.rank, t.provider, t.token,
            case when r.entry ->> 'environment' in ('sandbox', 'development') then 1 else 0 end::smallint as environment,
            push.entry_platform(t.provider, r.entry) as platform,
            push.recipient_locale(r.entry) as locale, null::timestamptz as registered_at
          from push.entry_tokens(r.entry, false) t
          -- "not exists" could be planned as a join with all dead tokens or all devices.
          where r.inline and push.serves(r.providers, t.provider)
            and (select true from push.token_invalidations x
              where x.token = t.token and x.app = r.app and x.provider = t.provider) is null
            -- A token that is given both as a VoIP token and as an alert token counts as a VoIP token.
            and (t.rank > 1 or t.token <> all (r.voip_tokens)
              and (select true from push.devices x where sha256(x.token::bytea) = sha256(t.token::bytea)
                and x.app = r.app and x.provider = 'apns' and x.voip) is null)
          union all
          select d.* from (
            select push.channel_rank(d.provider), d.provider, d.token,
              case d.environment when 'sandbox' then 1 else 0 end::smallint,
              push.platform_code(coalesce(d.platform, case d.provider when 'apns' then 'ios' end)), d.locale, d.registered_at
            from push.devices d
            where not r.inline and d.user_id = r.user_id and d.app = r.app and d.enabled and d.invalidated_at is null
              and (d.provider <> 'apns' or not d.voip) and push.serves(r.providers, d.provider)
              and r.missed_calls is distinct from 'all'
            offset 0
          ) d
          union all
          select d.rank, push.channel_of(d.rank), d.token, d.environment, d.platform, d.locale, null
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
    -- These cancels may arrive after the missed call and must then show the same.
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
  'for calls that were missed, or that ended without an answer and were not declined, busy or voided: makes one '
  'missed_call for each user who has not declined. By push.apps.missed_calls there may be one for each phone instead, or '
  'none. It goes over APNs alert, else FCM, Expo or web push, never to a VoIP token. Its lifetime is four hours from the end of '
  'the call, or from its deadline if that is earlier; when these have passed, it expires at once and only history shows '
  'it. Missed calls to phones that get a cancel have numbers from 40000, and their cancels numbers from 30000; therefore '
  'run this after push.cancel_invites. Returns how many were made';

-- Handles missed calls that a cancel would have shown, when that cancel was not sent. A missed call that a gateway has just
-- claimed is skipped: push.settle checks again when its outcome is void.
create or replace function push.announce_untold(p_cancels push.delivery[]) returns void
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  -- A variable, so that older partitions are not read.
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
    -- The other conditions stand outside, because there are indexes on lane and outcome that must not be used here.
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
  'for cancels that expired: finds the missed call to the same phone of the same call. If it is still owed, it no longer '
  'counts as shown by the cancel (its number is lowered by 20000). If it was void because of the cancel (SaidByCancel), it '
  'is made again. p_cancels: the rows of the cancels as they were in push.delivery, or the missed calls that were void';

create or replace function push.miss(p_max int default 1000) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  c_recipients constant int := 2000;
  v_begun  timestamptz := clock_timestamp();
  v_bite   timestamptz := v_begun;
  v_size   int := 1;
  v_calls  bigint[];
  v_count  bigint;
  v_seen   bigint := 0;
  v_missed bigint := 0;
  v_last   timestamptz;
  v_from   timestamptz := '-infinity';
begin
  -- Calls from before a restore are not announced.
  if push.restored_at() is not null then
    return 0;
  end if;
  while v_missed < p_max and v_seen < c_recipients and clock_timestamp() < v_bite + push.bite_time() loop
    v_calls := null;
    begin
      with late as materialized (
        select o.id, o.deadline_at, push.count_recipients(o.recipients) as count
        from push.outbox o
        where o.state = 'ringing' and o.deadline_at <= statement_timestamp() and o.deadline_at >= v_from
        order by o.deadline_at
        limit least(v_size, p_max - v_missed)
        for no key update skip locked
      ), bite as (
        select l.id, l.count, l.deadline_at, sum(l.count) over (order by l.deadline_at, l.id) - l.count as before from late l
      )
      select array_agg(b.id), sum(b.count), max(b.deadline_at) into v_calls, v_count, v_last
        from bite b where b.before < c_recipients - v_seen;
      exit when v_calls is null;
      -- The first bite may have stepped over many calls that a transaction has locked. The others begin behind them.
      if v_missed = 0 then
        v_bite := clock_timestamp();
      end if;
      update push.outbox o set state = 'missed' where o.id = any (v_calls);
      v_size := 4 * cardinality(v_calls);
    exception when query_canceled or others then
      if v_calls is null or not push.is_culprit(sqlstate, v_begun, v_missed) then
        if v_missed = 0 then
          raise;
        end if;
        exit;
      end if;
      v_size := greatest(cardinality(v_calls) / 4, 1);
      continue when cardinality(v_calls) > 1;
      insert into push.ends_unchecked (outbox_id, is_unannounced) values (v_calls[1], true);
      perform set_config('push.put_aside', v_calls[1]::text, true);
      update push.outbox o set state = 'missed' where o.id = v_calls[1];
      raise warning 'call % was missed, and its end failed (SQLSTATE %); it is tried again (push.check_ends)',
        (select o.call_id from push.outbox o where o.id = v_calls[1]), sqlstate;
    end;
    v_from := v_last;
    v_missed := v_missed + cardinality(v_calls);
    v_seen := v_seen + v_count;
  end loop;
  return v_missed;
end
$$;
comment on function push.miss is
  'marks calls as missed that still ring after their deadline: at most p_max calls, with about 2,000 recipients in all, for '
  'half a second. Returns how many. A call whose end fails is left to push.check_ends';

-- The end of a call ---------------------------------------------------------------------------------------------------

create or replace function push.check_call() returns trigger language plpgsql set search_path = push, pg_temp as $$
declare
  -- Any role can change the setting, so the right to update the column is checked, too.
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
  'lets a call end once. Refuses any other change, except those of push.erase_user, with an error that names the column '
  'and contains no token';

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
  'tells gateways that calls have ended or were deleted: NOTIFY push_control with "void" and push.outbox.id, or with "void '
  '*" (any call may have ended) if there are more than 100';

-- After the deadline, gateways drop on their own the invites that they hold in memory.
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
  'tells gateways (push.tell_void) which of these calls, which have ended, still have invites that a gateway may hold';

create or replace function push.end_calls() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  -- Only calls that this statement ended: those that rang before it.
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
  -- push.miss leaves a call whose end fails to push.check_ends. Any role can change the setting; it saves looking at the
  -- table, which only functions write.
  if current_setting('push.put_aside', true) = array_to_string(v_calls, ' ') then
    if exists (select from push.ends_unchecked e where e.outbox_id = v_calls[1] and e.is_unannounced) then
      return null;
    end if;
  end if;
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    -- Missed calls are announced later, when it is known which devices get a cancel.
    insert into push.ends_unchecked (outbox_id, is_unannounced) select unnest(v_calls), true;
    begin
      perform push.void_unsent(v_calls);
      v_made := push.cancel_invites(v_calls);
    exception when serialization_failure then
      -- A gateway has changed the rows since. The backend's transaction need not fail because of this.
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
  'runs when calls end: makes unsent invites void, sends cancels to devices that may ring, announces missed calls to '
  'users, and tells the gateways that hold invites of these calls';

create or replace function push.check_ends(p_max int default 500) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  c_recipients constant int := 2000;
  c_life       constant interval := '4 hours';
  v_begun  timestamptz := clock_timestamp();
  v_size   int := 1;
  v_calls  bigint[];
  v_ends   bigint[];
  v_bite   bigint;
  v_count  bigint;
  v_made   bigint;
  v_is_over boolean;
  v_seen   bigint := 0;
  v_taken  bigint := 0;
begin
  while v_taken < p_max and v_seen < c_recipients and clock_timestamp() < v_begun + push.bite_time() loop
    v_calls := null;
    begin
      with unchecked as materialized (
        select x.tid, x.tries, x.due_at,
          coalesce((select push.count_recipients(o.recipients) from push.outbox o where o.id = x.outbox_id), 100) as count
        from (
          -- Those that failed before come last.
          select e.ctid as tid, e.outbox_id, e.tries, e.due_at from push.ends_unchecked e
          where e.due_at <= v_begun
          order by e.tries, e.due_at
        ) x cross join lateral (
          select from push.ends_unchecked e
          -- A call that rings and is locked may be ending (push.promote). It is checked when its outcome is known.
          where e.ctid = x.tid and ((select true from push.outbox o where o.id = e.outbox_id and o.ended_at is null) is null
            or (select true from push.outbox o where o.id = e.outbox_id for share skip locked))
          for update skip locked
        ) l
        limit least(v_size, p_max - v_taken)
      ), bite as (
        select u.tid, u.count, sum(u.count) over (order by u.tries, u.due_at, u.tid) - u.count as before from unchecked u
      ), chosen as materialized (
        select b.tid, b.count from bite b where b.before < c_recipients - v_seen
      ), taken as (
        delete from push.ends_unchecked e
        where e.ctid = any (array(select c.tid from chosen c))
        returning e.outbox_id, e.is_unannounced
      )
      select array_agg(distinct t.outbox_id order by t.outbox_id), count(*), (select sum(c.count) from chosen c),
          array_agg(t.outbox_id order by t.outbox_id) filter (where t.is_unannounced)
        into v_calls, v_bite, v_count, v_ends
        from taken t;
      exit when v_bite = 0;
      -- For calls that were deleted, this drops all deliveries.
      perform push.void_unsent(v_calls);
      perform push.drop_belongings(array(select c.id from unnest(v_calls) c(id)
        where (select true from push.outbox o where o.id = c.id) is null));
      v_made := push.cancel_invites(v_calls, true);
      -- Calls from before a restore are not announced.
      if v_ends is not null and push.restored_at() is null then
        v_made := v_made + push.announce_missed(v_ends);
      end if;
      if v_made > 0 then
        perform push.ring_doorbell();
      end if;
      perform push.tell_held(v_calls);
      v_size := 4 * v_bite;
    exception when query_canceled or others then
      if v_calls is null or not push.is_culprit(sqlstate, v_begun, v_taken) then
        if v_taken = 0 then
          raise;
        end if;
        exit;
      end if;
      v_size := greatest(v_bite / 4, 1);
      continue when cardinality(v_calls) > 1;
      -- Missed calls of a call that ended c_life ago would have expired.
      delete from push.ends_unchecked e where e.outbox_id = v_calls[1] and e.ended_at < v_begun - c_life;
      v_is_over := found;
      update push.ends_unchecked e
        set tries = e.tries + 1,
          due_at = clock_timestamp() + least(interval '5 s' * power(4, least(e.tries, 10)), interval '30 minutes')
        where e.outbox_id = v_calls[1];
      begin
        perform push.void_unsent(v_calls);
      exception when query_canceled or others then null;
      end;
      raise warning 'call % has ended, and its end failed (SQLSTATE %); %',
        coalesce((select o.call_id from push.outbox o where o.id = v_calls[1]), v_calls[1]::text), sqlstate,
        case when v_is_over then 'its phones and users are told nothing more' else 'it is tried again' end;
    end;
    v_taken := v_taken + v_bite;
    v_seen := v_seen + v_count;
  end loop;
  return v_taken;
end
$$;
comment on function push.check_ends is
  'checks again at most p_max calls, with about 2,000 recipients in all, that were ended or deleted by transactions that '
  'may not have seen all deliveries. The remaining invites become void, devices that may ring get a cancel, and then '
  'missed calls are announced. What fails is tried again for four hours. Returns how many calls were checked';

-- Not "update of state": PostgreSQL gives no transition tables to a trigger with a column list.
create or replace trigger end_calls after update on push.outbox referencing old table as old_calls new table as new_calls
  for each statement execute function push.end_calls();

-- A tenant's apps are looked up one by one, so that no row of another tenant is read. The statistics of the tenant's own
-- transaction would show such reads.
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
  'numbers and apps of the calls with this id in the apps that the caller may act for. p_call_id: push.outbox.call_id; '
  'p_app: only this app; null: all of them';

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
  'the number of a call in the apps that the caller may act for. Raises an error if there is none, or if p_app is null and '
  'several apps have one. p_call_id, p_app: columns of push.outbox';

create or replace function push.device_token(p_app text, p_device text) returns text
language plpgsql stable set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_token text := coalesce(push.recipient_token(jsonb_build_object('apnsToken', p_device), 'apnsToken'),
    push.recipient_token(jsonb_build_object('pushToken', p_device), 'pushToken'),
    push.recipient_token(jsonb_build_object('fcmToken', p_device), 'fcmToken'), push.webpush_token(p_device));
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
  'the token of a device; raises an error if there is no such device. p_app: the app; p_device: a token, or '
  'push.devices.id; null gives null';

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
        where push.is_recipient(e) and exists (select from push.entry_tokens(e, true) t where t.token = v_token)
        limit 1))
    where o.id = v_id and o.ended_at is null;
  return found;
end
$$;
comment on function push.answer_call is
  'marks the call as answered: nothing more is sent, and other devices that may ring get a cancel. call_id: '
  'payload.callId; user_id: the user who answered, if known: none of this user''s devices gets a cancel; app: needed only '
  'if several apps have a call with this id; device: the phone that answered, if known, by its token or push.devices.id: '
  'only this phone gets no cancel, the user''s other phones get one. Returns false if the call had ended before';

-- The call's row is updated. A transaction that makes an invite ready under a share lock on this row therefore either sees
-- the decline, or its invite is seen by the statements below. The row is locked as by an end, so an end, an answer and
-- another user's decline run one after the other.
create or replace function push.decline(
  p_outbox_id bigint, p_user_id text, p_reason text, p_device text, p_erases boolean
) returns boolean
language plpgsql set search_path = push, pg_temp set enable_seqscan = off as $$
declare
  v_call    push.outbox;
  v_said    jsonb;
  v_created timestamptz;
  v_made    bigint;
begin
  select o.* into v_call from push.outbox o where o.id = p_outbox_id;
  perform push.check_recipient(p_outbox_id, v_call.call_id, p_user_id);
  if coalesce(p_reason not in ('declined', 'busy'), true) then
    raise exception using errcode = 'invalid_parameter_value', message = 'reason: must be declined or busy',
      schema = 'push', table = 'outbox', column = 'declined';
  end if;
  v_created := v_call.created_at;
  v_said := jsonb_build_object('reason', p_reason, 'at', clock_timestamp(), 'device', push.device_token(v_call.app, p_device));
  update push.outbox o set declined = coalesce(o.declined, '{}') || jsonb_build_object(p_user_id, v_said)
    where o.id = p_outbox_id and o.ended_at is null and not coalesce(o.declined ? p_user_id, false);
  if not found then
    return false;
  end if;
  -- The call ends when every user whose phones were rung has declined. If no phone was rung, or a user is being erased, all
  -- recipients count: two of them may share a phone. A phone whose invite the provider refused was not rung.
  update push.outbox o set state = 'ended', end_reason = 'declined'
    where o.id = p_outbox_id and o.ended_at is null and not exists (
      with rung as materialized (
        select d.user_id from push.delivery d where d.outbox_id = p_outbox_id and d.kind = 0
        union
        select h.user_id from push.history h
        where h.outbox_id = p_outbox_id and h.finished_at >= v_created and h.kind = 0 and (h.outcome <> 4 or h.status is null)
      )
      select from rung r where not o.declined ? r.user_id
      union all
      select from jsonb_array_elements(o.recipients) e
      where (p_erases or not exists (select from rung)) and push.is_recipient(e)
        and not o.declined ? case jsonb_typeof(e) when 'string' then e #>> '{}' else e ->> 'userId' end);
  if found then
    return true;
  end if;
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
    insert into push.ends_unchecked (outbox_id) values (p_outbox_id);
    begin
      perform push.void_unsent(array[p_outbox_id]);
      v_made := push.cancel_invites(array[p_outbox_id]);
    exception when serialization_failure then
      -- A gateway has changed the rows since: push.check_ends checks again.
      v_made := 0;
    end;
    perform push.tell_void(array[p_outbox_id]);
  else
    perform push.void_unsent(array[p_outbox_id]);
    v_made := push.cancel_invites(array[p_outbox_id]);
    if cardinality(push.ended(array[p_outbox_id])) > 0 then
      perform push.tell_void(array[p_outbox_id]);
    end if;
  end if;
  if v_made > 0 then
    perform push.ring_doorbell();
  end if;
  return true;
end
$$;
comment on function push.decline is
  'a user declines a call, for push.decline_call and push.decline_rings. p_outbox_id: push.outbox.id; p_user_id, p_reason, '
  'p_device: as for push.decline_call; p_erases: the user is being erased, so the call ends only when all recipients have '
  'declined';

create or replace function push.decline_call(
  call_id text, user_id text, app text default null, reason text default 'declined', device text default null
) returns boolean
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  return push.decline(push.find_call(call_id, app), user_id, reason, device, false);
end
$$;
comment on function push.decline_call is
  'a user declines the call, or is busy: nothing more is sent to this user''s phones, those that may ring get a cancel, '
  'and the user gets no missed call. The phones of other users ring on. When the last user whose phones were rung has '
  'declined, the call ends with the reason declined. call_id: payload.callId; user_id: as in the call''s recipients; app: '
  'needed only if several apps have a call with this id; reason: declined or busy; device: the phone that declined, if '
  'known, by its token or push.devices.id: it gets no cancel. Returns false if the user had declined before, or the call '
  'had ended';

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
  'ends a call that was not answered: nothing more is sent, devices that may ring get a cancel, and users get a missed '
  'call unless the reason is declined or busy. call_id: payload.callId; reason: kept as push.outbox.end_reason; app: '
  'needed only if several apps have a call with this id. Returns false if the call had ended before';
