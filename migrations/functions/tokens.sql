-- Tokens: dead tokens, the hold that protects tokens when a provider suddenly reports most of them as dead, and the tokens
-- with which gateways authenticate to providers.

-- Dead tokens ---------------------------------------------------------------------------------------------------------

-- The planner puts this function into the query that calls it.
create or replace function push.devices_with(p_app text, p_provider text, p_token text)
returns table (tid tid, user_id text, token text) language sql stable as $$
  select d.ctid, d.user_id, d.token from push.devices d
  where sha256(d.token::bytea) = any (push.token_digests(p_provider, p_token)) and d.app = p_app and d.provider = p_provider
  offset 0
$$;
comment on function push.devices_with is 'where the devices are stored that have a token, in whatever letters';

-- If invalidation is on hold in a lane, its dead tokens are quarantined.
create or replace function push.invalidate_tokens(
  p_lane smallint[], p_token text[], p_since timestamptz[], p_reason text[]
) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_dead bigint;
begin
  -- Waits for a hold that is being set, so that it counts.
  perform from push.lane l where l.id = any (p_lane) order by l.id for share;
  with said as materialized (
    -- Of several answers about a token the latest counts; an answer without a time always counts.
    select distinct on (l.app, l.provider, push.token_key(l.provider, r.token)) l.app, l.provider, r.token, r.since,
      coalesce(r.reason, 'Unknown') as reason, l.is_held
    from unnest(p_lane, p_token, p_since, p_reason) r(lane, token, since, reason)
    cross join lateral (
      select l.app, l.provider, l.invalidation_held_at is not null as is_held from push.lane l where l.id = r.lane
      offset 0
    ) l
    where r.token is not null
    order by l.app, l.provider, push.token_key(l.provider, r.token), r.since desc nulls first
  ), known as materialized (
    -- As it was registered. Without a device: in capitals or in small letters, in which push.deaths_of finds it.
    select s.app, s.provider, coalesce(d.token, case s.token when upper(s.token) then s.token else push.token_key(s.provider, s.token) end) as token,
      s.since, s.reason, s.is_held, d.tid, d.user_id
    from said s left join lateral push.devices_with(s.app, s.provider, s.token) d on true
  ), quarantined as (
    -- Without a time from the provider, the token is dead from now on: a registration during the hold is later and keeps it
    -- alive.
    insert into push.quarantined_tokens as q (app, provider, token, user_id, since, reason)
    select k.app, k.provider, k.token, k.user_id, coalesce(k.since, clock_timestamp()), k.reason
    from known k
    where k.is_held
    on conflict (sha256(token::bytea), app, provider) do update set since = excluded.since, reason = excluded.reason
      where q.since < excluded.since
  ), cleared as (
    -- A token that the phone registered again after the time given by the provider stays alive.
    update push.devices d set invalidated_at = clock_timestamp(), invalid_reason = k.reason
    from known k
    where d.ctid = k.tid and not k.is_held
      and d.invalidated_at is null and (k.since is null or k.since >= d.registered_at)
    returning d.app, d.provider, d.token, d.user_id, k.reason
  )
  insert into push.token_invalidations (app, provider, token, user_id, reason)
  select c.app, c.provider, c.token, c.user_id, c.reason from cleared c
  union all
  select k.app, k.provider, k.token, null, k.reason from known k where not k.is_held and k.tid is null
  on conflict do nothing;
  get diagnostics v_dead = row_count;
  perform push.notify('push_token_invalidations', '') where v_dead > 0;
  return v_dead;
end
$$;
comment on function push.invalidate_tokens is
  'a provider reported tokens as dead: registered devices are marked unless they were registered later, and tokens without '
  'a device are noted. Tokens of a lane whose invalidation is on hold are quarantined instead. Returns how many rows are '
  'new in push.token_invalidations; if there are any, NOTIFY push_token_invalidations. Arrays, by token: p_lane: '
  'push.lanes.id; p_token: the token; p_since: the time from which it is dead, or null; p_reason: the provider''s reason';

create or replace function push.note_tokens() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  if tg_op = 'INSERT' then
    insert into push.tally (what, lane, app, count)
    select tg_argv[0], (select l.id from push.lane l where l.app = t.app and l.provider = t.provider and l.service = t.service), t.app, count(*)
    from (select t.app, t.provider, push.push_service(t.provider, t.token) as service from tokens t) t
    group by t.app, t.provider, t.service;
  end if;
  if tg_argv[0] <> 'invalidated' or not exists (select from push.webhook w where w.on_until > statement_timestamp()) then
    return null;
  elsif tg_op = 'INSERT' then
    insert into push.webhook_event (event, app, type, user_id, at, data)
    select push.webhook_id('token', t.app, t.provider, t.id::text, extract(epoch from t.invalidated_at)::text), t.app, 'token.dead',
      t.user_id, t.invalidated_at,
      jsonb_build_object('app', t.app, 'provider', t.provider, 'token', t.token, 'userId', t.user_id, 'reason', t.reason)
    from tokens t cross join lateral push.hook_of(t.app, 'token.dead')
    on conflict do nothing;
  else
    -- They live again: their phones have registered them again, invalidation was put on hold, or an operator has deleted the rows. A
    -- receiver that is behind must not be told to delete them. A registration waits neither for a gateway nor for an operator.
    delete from push.webhook_event e where e.id = any (array(
      select x.id
      from tokens t cross join lateral (
        select x.id from push.webhook_event x
        where x.type = 'token.dead' and md5(x.data ->> 'token') = md5(t.token) and x.app = t.app
          and x.data ->> 'provider' = t.provider and x.data ->> 'token' = t.token
        for update skip locked
      ) x));
  end if;
  return null;
end
$$;
comment on function push.note_tokens is 'counts dead or quarantined tokens. Records token.dead, and removes it if the token lives';

create or replace trigger note_tokens after insert on push.token_invalidations referencing new table as tokens
  for each statement execute function push.note_tokens('invalidated');
create or replace trigger withdraw_tokens after delete on push.token_invalidations referencing old table as tokens
  for each statement execute function push.note_tokens('invalidated');
create or replace trigger note_tokens after insert on push.quarantined_tokens referencing new table as tokens
  for each statement execute function push.note_tokens('quarantined');

-- Mass invalidation ---------------------------------------------------------------------------------------------------

create or replace function push.hold_invalidation(p_lane smallint, p_window interval, p_note text) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_lane  push.lane;
  v_moved bigint;
begin
  -- Waits for running invalidations, which hold a share lock on the lane: the next statement sees their changes.
  update push.lane l set invalidation_held_at = clock_timestamp(), invalidation_note = p_note, updated_at = clock_timestamp()
    where l.id = p_lane and l.invalidation_held_at is null
    returning l.* into v_lane;
  if not found then
    return 0;
  end if;
  with feed as (
    delete from push.token_invalidations x
    where x.invalidated_at >= clock_timestamp() - p_window and x.app = v_lane.app and x.provider = v_lane.provider
      and push.push_service(x.provider, x.token) = v_lane.service
    returning x.*
  ), alive as (
    update push.devices d set invalidated_at = null, invalid_reason = null
    where d.invalidated_at is not null
      and d.ctid = any (array(select x.tid from feed f cross join lateral push.devices_with(v_lane.app, v_lane.provider, f.token) x))
  )
  insert into push.quarantined_tokens (app, provider, token, user_id, since, reason)
  select f.app, f.provider, f.token, f.user_id, f.invalidated_at, f.reason from feed f
  on conflict (sha256(token::bytea), app, provider) do nothing;
  get diagnostics v_moved = row_count;
  insert into push.audit (action, target, detail) values ('hold_invalidation', v_lane.app || '/' || v_lane.channel,
    jsonb_build_object('note', p_note, 'window', p_window, 'quarantined', v_moved));
  return v_moved;
end
$$;
comment on function push.hold_invalidation is
  'puts the invalidation of a lane''s tokens on hold. From now on dead tokens go to push.quarantined_tokens, until '
  'push.resume_invalidation. Tokens that were invalidated lately go there too, and live again. p_lane: push.lanes.id; '
  'p_window: how far back; p_note: the reason. Returns how many tokens were moved now; 0 if it is on hold already';

create or replace function push.resume_invalidation(app text, provider text, apply boolean default false)
returns table (lane smallint, was_held boolean, invalidated bigint, forgotten bigint, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  c_tokens   constant int := 10000;
  v_target   text := left(resume_invalidation.app, 64) || '/' || left(resume_invalidation.provider, 16);
  v_lanes    smallint[];
  v_provider text;
  v_services text[];
  v_held_at  timestamptz;
  v_token    text[];
  v_since    timestamptz[];
  v_reason   text[];
begin
  select array_agg(l.id), min(l.invalidation_held_at), min(l.provider), array_agg(l.service)
    into v_lanes, v_held_at, v_provider, v_services
    from (select l.* from push.lane l where l.app = resume_invalidation.app and resume_invalidation.provider in (l.provider, l.channel)
      order by l.id for no key update) l;
  if v_lanes is null then
    raise exception using errcode = 'no_data_found',
      message = format('there is no lane %s', coalesce(v_target, 'without app or provider')),
      hint = 'push.lanes lists them; provider is one of ' || array_to_string(push.channels(), ', ') || '.';
  end if;
  lane := v_lanes[1];
  was_held := v_held_at is not null;
  update push.lane l set invalidation_held_at = null, invalidation_note = null, updated_at = clock_timestamp()
    where l.id = any (v_lanes) and l.invalidation_held_at is not null;
  with gone as (
    delete from push.quarantined_tokens q
    where q.ctid = any (array(
      select x.ctid from push.quarantined_tokens x
      where x.app = resume_invalidation.app and x.provider = v_provider and push.push_service(v_provider, x.token) = any (v_services)
      limit c_tokens))
    returning q.token, q.since, q.reason
  )
  select coalesce(array_agg(g.token), '{}'), array_agg(g.since), array_agg(g.reason)
    into v_token, v_since, v_reason
    from gone g;
  invalidated := case when apply and v_token <> '{}'
    then push.invalidate_tokens(array_fill(lane, array[cardinality(v_token)]), v_token, v_since, v_reason) else 0 end;
  forgotten := cardinality(v_token) - invalidated;
  message := case
    when not was_held and v_token = '{}' then format('%s: invalidation was not on hold; nothing to do', v_target)
    else format('%s: dead tokens are invalidated again (%s); of %s quarantined ones, %s invalidated, %s live on%s', v_target,
      coalesce('on hold since ' || to_char(v_held_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'it was not on hold'),
      cardinality(v_token), case when apply then invalidated || ' were' else 'none was' end, forgotten,
      case when cardinality(v_token) = c_tokens and exists (select from push.quarantined_tokens q
          where q.app = resume_invalidation.app and q.provider = v_provider and push.push_service(v_provider, q.token) = any (v_services))
        then '; more are quarantined: run it again' else '' end)
    end;
  insert into push.audit (action, target, detail) values ('resume_invalidation', v_target, jsonb_build_object('apply', coalesce(apply, false),
    'wasHeld', was_held, 'invalidated', invalidated, 'forgotten', forgotten));
  perform push.notify('push_control', 'resume ' || l) from unnest(v_lanes) l;
  return next;
end
$$;
comment on function push.resume_invalidation is
  'ends the hold of a lane''s invalidation: quarantined tokens live on (a dead one will be found again). app, provider: the lane; '
  'apply: true invalidates them instead, except those registered since. Handles at most 10,000 tokens in one call, and returns what was '
  'done and whether there are more. Running it twice is harmless. NOTIFY push_control with "resume" and push.lanes.id';

-- APNs' other environment ---------------------------------------------------------------------------------------------

create or replace function push.correct_environment(p_lane smallint[], p_token text[], p_environment smallint[])
returns bigint
language sql volatile security definer set search_path = push, pg_temp as $$
  with corrected as (
    update push.devices d set environment = u.name
    from unnest(p_lane, p_token, p_environment) t(lane, token, environment)
    join (values (0, 'production'), (1, 'sandbox')) u(code, name) on u.code = t.environment
    cross join lateral (select l.app from push.lane l where l.id = t.lane and l.provider = 'apns' offset 0) l
    cross join lateral push.devices_with(l.app, 'apns', t.token) x
    where d.ctid = x.tid and d.environment <> u.name
    returning 1
  )
  select count(*) from corrected
$$;
comment on function push.correct_environment is
  'APNs accepted these tokens in this environment: corrects registered devices with the other environment. Returns how '
  'many. Arrays, by token: p_lane: push.lanes.id; p_token: the token; p_environment: 0 production, 1 sandbox';

-- Tokens of providers, shared by all replicas -------------------------------------------------------------------------

-- All replicas use the same provider token: Apple accepts at most one new token in 20 minutes for a key. A replica that
-- finds no token, or an old one, signs a new one and offers it. The row's lock decides which of several is accepted; the
-- others are never sent to the provider.
create or replace function push.current_provider_token(p_provider text, p_name text)
returns table (token text, minted_at timestamptz, expires_at timestamptz)
language sql stable security definer set search_path = push, pg_temp as $$
  select t.token, t.minted_at, t.expires_at from push.provider_tokens t
  where t.provider = p_provider and t.name = p_name and t.expires_at > clock_timestamp()
$$;
comment on function push.current_provider_token is
  'the provider token that all replicas use now; no row if there is none. p_provider, p_name: as in push.provider_tokens';

create or replace function push.offer_provider_token(
  p_provider text, p_name text, p_token text, p_minted_at timestamptz, p_expires_at timestamptz, p_age_min interval
) returns table (token text, minted_at timestamptz, expires_at timestamptz)
language sql security definer set search_path = push, pg_temp as $$
  insert into push.provider_tokens as t (provider, name, token, minted_at, expires_at)
  values (p_provider, p_name, p_token, p_minted_at, p_expires_at)
  on conflict (provider, name) do update
    set token = excluded.token, minted_at = excluded.minted_at, expires_at = excluded.expires_at
    -- A token from the future was signed with a wrong clock and is replaced.
    where t.minted_at <= excluded.minted_at - p_age_min or t.expires_at <= excluded.minted_at
      or t.minted_at > excluded.minted_at + interval '5 minutes';
  select t.token, t.minted_at, t.expires_at from push.provider_tokens t where t.provider = p_provider and t.name = p_name
$$;
comment on function push.offer_provider_token is
  'offers a new provider token, which is accepted if the current one is at least p_age_min older, or has expired. Returns '
  'the token in use. p_provider, p_name, p_token, p_minted_at, p_expires_at: as in push.provider_tokens';
