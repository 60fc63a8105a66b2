-- What has become of a call's pushes, and which phones are told to stop.
--
-- The functions from here on that take calls (void_unsent, cancel_rings, tell_missed, tell_untold, next_channels) are parts of push.follow,
-- which has locked the calls. push.follow_up sets the planner for all of them: a SET clause of each would cost more than a look-up
-- (next_channels needs other settings, and has its own). They compare what there is with what there should be, so they may run twice, late,
-- or after a crash. "in (select ...)" is a hashed subplan here; a nested loop over the recipients of one call would cost the square of
-- their number.

-- What a call has sent --------------------------------------------------------------------------------------------------

-- outcome is null while the push is owed, and its provider has not accepted it. may_ring: it may have reached the phone. bypassed: its
-- lane is stuck, and push.bypass has looked at it. last_n: the highest n of the call.
create or replace function push.pushes_of(p_calls bigint[]) returns table (
  id bigint, n int, kind smallint, lane smallint, provider text, user_id text, token text, environment smallint, platform smallint,
  locale text, data jsonb, outcome smallint, reason text, may_ring boolean, fallback_of int, deadline_at timestamptz,
  bypassed boolean, last_n int, created_at timestamptz
)
language plpgsql stable set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  -- Variables, so that only these partitions are read. The hours cover rows that are settled meanwhile, and a clock that was set.
  v_since timestamptz := (select min(o.created_at) from push.outbox o where o.id = any (p_calls)) - interval '1 hour';
  v_until timestamptz := clock_timestamp() + interval '1 hour';
begin
  return query
    select p.outbox_id, p.n, p.kind, p.lane, l.provider, p.user_id,
      coalesce(p.token, case when p.hash is not null then (
        -- Release 0.1.0 kept the mask and a hash. Calls that rang during the upgrade have such rows.
        select t.token from (
          select t.token from jsonb_array_elements(o.recipients) e cross join lateral push.entry_tokens(e, true) t
          where push.is_recipient(e) and e ->> 'userId' = p.user_id and t.provider = l.provider
          union all
          select d.token from push.devices d
          where d.user_id = p.user_id and d.app = l.app and d.provider = l.provider and d.enabled and d.invalidated_at is null
        ) t
        where hashtextextended(t.token, 0) = p.hash and left(t.token, 4) || '…' || right(t.token, 4) = p.device limit 1) end),
      p.environment, p.platform, p.locale, p.data, p.outcome, p.reason, p.may_ring, p.fallback_of, p.deadline_at, p.bypassed,
      max(p.n) over (partition by p.outbox_id), p.created_at
    from unnest(p_calls) c(id)
    cross join lateral (select o.created_at, o.recipients from push.outbox o where o.id = c.id offset 0) o
    cross join lateral (
      select d.outbox_id, d.n, d.kind, d.lane, d.user_id, d.token, null as device, null::bigint as hash, d.environment, d.platform,
        d.locale, d.data, case when d.accepted_at is not null then 0::smallint end as outcome, null::text as reason,
        d.attempt > d.found_ended::int as may_ring, d.fallback_of, d.deadline_at,
        d.bypassed_at is not null as bypassed, d.created_at
      from push.delivery d where d.outbox_id = c.id
      union all
      -- A gateway that settles says whether the request left; otherwise each attempt may have. One that is dead did not arrive if every
      -- try was refused; of a hedged try only one of the two was answered.
      select h.outbox_id, h.n, h.kind, h.lane, h.user_id, h.token, h.device, h.token_hash, h.environment, h.platform, h.locale, h.data,
        h.outcome, h.reason, (h.sent_at is not null or h.attempts > case when h.owner is null then 0 else 1 end)
          and case when h.outcome <> 4 then true else h.attempts > (
              select count(*) from jsonb_array_elements(h.failures) f where f ->> 'status' <> '0' and not f ? 'hedged')
            + case when h.status is null or h.failures @> jsonb_build_array(jsonb_build_object('attempt', h.attempts, 'hedged', true))
              then 0 else 1 end end, h.fallback_of, h.deadline_at, false, h.created_at
      -- Ids may repeat: a former call has ended before.
      from push.history h
      where h.outbox_id = c.id and h.finished_at between v_since and v_until and greatest(h.created_at, h.finished_at) >= o.created_at
      offset 0
    ) p
    cross join lateral (select l.app, l.provider from push.lane l where l.id = p.lane offset 0) l;
end
$$;
comment on function push.pushes_of is 'everything that calls have sent or still owe';

-- Pushes that end in SQL -------------------------------------------------------------------------------------------------

-- What a gateway has settled is written by push.settle. These deliveries have no gateway as their owner, so each of their attempts may
-- have been sent. Without p_reason, the reason is that of the last attempt, or DeadlinePassed.
create or replace function push.bury(p_places tid[], p_outcome int, p_reason text default null, out ended bigint)
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  with gone as (
    delete from push.delivery d where d.ctid = any (p_places)
    returning d.*, case when d.accepted_at is null then p_outcome else (d.accepted_at > d.deadline_at)::int end as outcome,
      case when d.accepted_at is null then coalesce(p_reason, d.last_reason, 'DeadlinePassed') else 'Hedged' end as reason
  ), noted as (
    -- A cancel may have stood for a missed call.
    insert into push.follow_ups (outbox_id, why) select distinct g.outbox_id, 'untold' from gone g where g.kind = 1 and g.outcome >= 3
  ), counted as (
    insert into push.tally (what, lane, kind, outcome, reason, untried, count)
    select 'ended', g.lane, g.kind, g.outcome, g.reason, g.attempt = 0, count(*) from gone g group by g.lane, g.kind, g.outcome, g.reason, 6
  )
  insert into push.history (outbox_id, created_at, deadline_at, answered_at, n, attempts, lane, kind, outcome, user_id, token, environment,
    platform, locale, data, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.accepted_at, g.n, g.attempt, g.lane, g.kind, g.outcome, g.user_id, g.token,
    g.environment, g.platform, g.locale, g.data, g.reason, g.failures, g.fallback_of
  from gone g;
  get diagnostics ended = row_count;
exception when others or assert_failure then
  if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
  if cardinality(p_places) > 1 then
    ended := push.bury(p_places[:cardinality(p_places) / 2], p_outcome, p_reason)
      + push.bury(p_places[cardinality(p_places) / 2 + 1:], p_outcome, p_reason);
  else
    ended := 0;
    perform push.name_fault((select 'push.outbox.id ' || d.outbox_id from push.delivery d where d.ctid = p_places[1]), sqlstate);
  end if;
end
$$;
comment on function push.bury is 'ends deliveries, which are locked, and writes their history. p_places: where they are stored. Returns how many. '
  'What cannot be read or written is left; push.audit and push.health name its call';

-- Invites of a missed call end as push.expire would end them, whichever of the two runs first.
--
-- Waits for nobody: an invite that a claim is taking is left. Until that claim is committed it cannot be seen whether its phone will ring.
create or replace function push.void_unsent(p_calls bigint[]) returns bigint[]
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_end record;
begin
  for v_end in
    with call as materialized (
      select o.* from unnest(p_calls) c(id) cross join lateral (
        select o.id, o.state, o.declined from push.outbox o where o.id = c.id and (o.ended_at is not null or o.declined is not null) offset 0
      ) o
    ), said as materialized (
      -- Read once: an object of declines may be large.
      select c.id, s.user_id, 'User' || replace(initcap(s.said ->> 'reason'), '_', '') as reason
      from call c cross join lateral jsonb_each(c.declined) s(user_id, said) where c.state = 'ringing'
    ), unsent as materialized (
      select d.*, c.id, c.state from call c cross join lateral (
        select d.ctid as tid, d.user_id, d.deadline_at from push.delivery d
        where d.outbox_id = c.id and d.kind = 0 and d.state in (0, 2)
          and (c.state <> 'ringing' or (c.id, d.user_id) in (select s.id, s.user_id from said s))
        for update skip locked
      ) d
    )
    select u.state = 'missed' and u.deadline_at <= clock_timestamp() as is_late, coalesce(s.reason, 'Call' || initcap(u.state)) as reason,
      array_agg(u.tid) as places
    from unsent u left join said s on s.id = u.id and s.user_id = u.user_id
    group by 1, 2
  loop
    perform push.bury(v_end.places, case when v_end.is_late then 3 else 2 end, case when not v_end.is_late then v_end.reason end);
  end loop;
  return array(
    select distinct d.outbox_id from push.delivery d
    where d.outbox_id = any (p_calls) and d.kind = 0 and d.state in (0, 2)
      and (d.outbox_id in (select e.outbox_id from push.ended_for(p_calls) e where e.user_id is null)
        or (d.outbox_id, d.user_id) in (select e.outbox_id, e.user_id from push.ended_for(p_calls) e)));
end
$$;
comment on function push.void_unsent is
  'ends unsent invites of calls that no longer ring, and of users who have declined; returns the calls of those that are locked';

-- Cancels ---------------------------------------------------------------------------------------------------------------

-- Apple: the app must report a call for every VoIP push, so a VoIP token gets a cancel only if the app's phones take it for the end of
-- a call (push.apps.voip_cancel), and never a phone that may have declined: that phone has no call left to report. A missed call rings
-- no more, so it has no cancels.
--
-- The user who answered gets none; if the phone that answered is known, only that phone gets none. While a call rings, cancels are for
-- users who have declined it.
create or replace function push.cancel_rings(p_calls bigint[]) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  with call as materialized (
    select o.id, o.app, o.recipients, o.ended_at, o.answered_by, o.answered_device, o.declined,
      coalesce((select a.voip_cancel from push.apps a where a.app = o.app), false) as voip_cancel,
      -- The phones that have answered or declined: their tokens, and as push.token_key.
      array(select case when push.is_token('apns', d.token) then lower(d.token) else d.token end from (
        select o.answered_device union select s.said ->> 'device' from jsonb_each(o.declined) s(user_id, said)) d(token)
        where d.token is not null) as said
    from unnest(p_calls) c(id) cross join lateral (
      select * from push.outbox o
      where o.id = c.id and (o.state in ('answered', 'ended') or o.state = 'ringing' and o.declined is not null) offset 0
    ) o
  ), decliner as materialized (
    select c.id, s.user_id, s.said ->> 'device' is not null or s.said ? 'erases' as has_call
    from call c cross join lateral jsonb_each(c.declined) s(user_id, said)
  ), own (id, key) as materialized (
    select c.id, s.key from call c cross join unnest(c.said) s(key)
    union all
    -- An entry of recipients with tokens is one phone.
    select c.id, push.token_key(t.provider, t.token)
    from call c cross join lateral jsonb_array_elements(c.recipients) e cross join lateral push.entry_tokens(e, true) t
    where c.said <> '{}' and (lower(push.channel_token('apns', e ->> 'apnsToken')) = any (c.said)
      or exists (select from push.entry_tokens(e, true) s where push.token_key(s.provider, s.token) = any (c.said)))
    union all
    -- Of a registered phone it is unknown which other tokens it has: any of the user's tokens on that platform may be its own.
    -- A browser has only one.
    select c.id, push.token_key(d.provider, d.token) from call c cross join unnest(c.said) s(key)
    cross join lateral (
      select x.user_id, x.provider, x.voip, coalesce(x.platform, case x.provider when 'apns' then 'ios' when 'fcm' then 'android' end) as platform
      from push.devices x
      where sha256(x.token::bytea) = any (push.token_digests(case when push.is_token('apns', s.key) then 'apns' end, s.key)) and x.app = c.app and
        x.provider <> 'webpush' offset 0
    ) x
    cross join lateral (
      select d.provider, d.token from push.devices d
      where d.user_id = x.user_id and d.app = c.app and d.enabled and d.invalidated_at is null and d.provider <> 'webpush'
        and (d.provider <> x.provider or d.voip > x.voip)
        and (x.platform is null or coalesce(d.platform, case d.provider when 'fcm' then 'android' else x.platform end) = x.platform) offset 0
    ) d
  ), pushed as materialized (
    select p.*, push.token_key(p.provider, p.token) as key from push.pushes_of(array(select c.id from call c)) p
  ), target as (
    select distinct on (p.id, p.lane, p.key) p.*
    from call c join pushed p on p.id = c.id left join decliner s on s.id = p.id and s.user_id = p.user_id
    where p.kind = 0 and p.may_ring and p.token is not null and (c.ended_at is not null or s.id is not null)
      and (c.answered_device is not null or p.user_id is distinct from c.answered_by)
      and (p.id, p.key) not in (select o.id, o.key from own o)
      and (p.provider <> 'apns' or c.voip_cancel and coalesce(s.has_call, true))
      and (p.id, p.lane, p.key) not in (select x.id, x.lane, x.key from pushed x where x.kind = 1 and x.key is not null)
    order by p.id, p.lane, p.key, p.n desc
  )
  insert into push.delivery (outbox_id, n, kind, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
  select t.id, t.last_n + row_number() over (partition by t.id order by t.lane, t.key), 1, clock_timestamp() + interval '60 s', t.lane, t.lane,
    coalesce(t.environment, 0), coalesce(t.platform, 0), t.user_id, t.token, t.locale, t.data
  from target t;
end
$$;
comment on function push.cancel_rings is 'makes one cancel for each phone that may ring and should not, and has none';
