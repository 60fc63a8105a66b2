-- One life of a gateway: it registers, beats, and retires or is found silent; what it held is then made ready again. And the
-- life of the server, which says whether commits may have been lost.
--
-- Sessions of gateways commit asynchronously, so a crash of PostgreSQL, and the promotion of a standby, may lose their last
-- commits: a delivery that one gateway has claimed, sent and settled may be ready again. Both empty unlogged tables, and so
-- push.life. Then nothing is claimed until every living gateway has reclaimed what it holds and what it remembers as
-- settled, and said so. Those that died with the server are found silent by the others, which no longer waits for them.

-- Commits that must not get lost ----------------------------------------------------------------------------------------

create or replace function push.commit_durably() returns void
language plpgsql set search_path = push, pg_temp as $$
begin
  -- A session may ask for more than "on", which stays.
  if current_setting('synchronous_commit') in ('off', 'local') then
    perform set_config('synchronous_commit', 'on', true);
  end if;
end
$$;
comment on function push.commit_durably is
  'the commit of this transaction waits for the disk, whatever the session does otherwise: for what makes pushes that people '
  'see, and for a new gateway';

-- The life of the server ------------------------------------------------------------------------------------------------

create or replace function push.open_life() returns void
language plpgsql volatile set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  if exists (select from push.life l where l.is_present and l.opened_at is not null) then
    return;
  end if;
  insert into push.life default values on conflict do nothing;
  -- One at a time: of two that confirm at once, the second sees the first.
  perform from push.life l where l.opened_at is null for update;
  update push.life l set opened_at = clock_timestamp()
    where l.opened_at is null and not exists (select from push.gateways g where g.alive
      and (select true from push.reclaimed r where r.gateway = g.id and r.confirmed_at is not null) is null);
end
$$;
comment on function push.open_life is
  'begins the life of the server, and opens it once every living gateway has reclaimed what it holds; as a rule it is open';

create or replace function push.confirm_reclaimed(p_gateway int) returns void
language plpgsql volatile security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  -- Only one that was asked: if the server crashed again since, it is asked again.
  update push.reclaimed r set confirmed_at = clock_timestamp() where r.gateway = p_gateway and r.confirmed_at is null;
  perform push.open_life();
end
$$;
comment on function push.confirm_reclaimed is
  'the gateway, whom push.beat told that it must, has reclaimed (push.reclaim) all that it holds, has queued to write or '
  'remembers as settled. p_gateway: what push.register_gateway returned';

-- One gateway -----------------------------------------------------------------------------------------------------------

create or replace function push.register_gateway(p_name text, p_version text) returns int
language plpgsql security definer set search_path = push, pg_temp as $$
declare
  v_id int;
begin
  insert into push.gateways (name, version) values (p_name, p_version) returning id into v_id;
  insert into push.reclaimed (gateway, confirmed_at) values (v_id, clock_timestamp());
  perform push.open_life();
  perform push.commit_durably();
  return v_id;
end
$$;
comment on function push.register_gateway is
  'a new life of a gateway, which has nothing to reclaim; the result is its fence. p_name: host or pod; p_version: of the '
  'program';

create or replace function push.register_app(
  p_app text, p_ring_seconds int, p_escalate_after int default null, p_at_least_once boolean default false,
  p_providers text[] default null, p_missed_calls text default null, p_voip_cancel boolean default null
) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  insert into push.apps as a (app, ring_seconds, escalate_after_seconds, at_least_once, providers, missed_calls,
      voip_cancel)
    values (p_app, p_ring_seconds, p_escalate_after, coalesce(p_at_least_once, false), p_providers,
      nullif(p_missed_calls, 'default'), coalesce(p_voip_cancel, false))
    on conflict (app) do update set ring_seconds = excluded.ring_seconds,
        escalate_after_seconds = excluded.escalate_after_seconds, at_least_once = excluded.at_least_once,
        -- A gateway of an older release does not say.
        providers = coalesce(excluded.providers, a.providers),
        missed_calls = case when p_missed_calls is null then a.missed_calls else excluded.missed_calls end,
        voip_cancel = coalesce(p_voip_cancel, a.voip_cancel),
        updated_at = clock_timestamp()
      where (a.ring_seconds, a.escalate_after_seconds, a.at_least_once, a.providers, a.missed_calls, a.voip_cancel)
        is distinct from (excluded.ring_seconds, excluded.escalate_after_seconds, excluded.at_least_once,
          coalesce(excluded.providers, a.providers),
          case when p_missed_calls is null then a.missed_calls else excluded.missed_calls end,
          coalesce(p_voip_cancel, a.voip_cancel));
  perform push.register_lane(p_app, p.name) from unnest(coalesce(p_providers, '{apns,fcm,expo}')) p(name);
end
$$;
comment on function push.register_app is
  'tells enqueueing what the configuration says of an app, and makes its lanes. p_app: its name; p_ring_seconds: its ring window; '
  'p_escalate_after: seconds after which a user of whom no phone was heard is tried on the next channel; null: never; '
  'p_at_least_once: a missed call or notification of unknown fate is sent again; p_providers: which of apns, fcm and expo it '
  'has; null: as before, and a lane of each; p_missed_calls: off, newest, all or default, as push.apps.missed_calls; null: as before; '
  'p_voip_cancel: as push.apps.voip_cancel; null: as before';

-- Of gateways that ended ------------------------------------------------------------------------------------------------

-- What p_gateways, which ended in this transaction, had claimed, and what is still to be freed of others. All that is free to
-- be locked is freed at once. The rest, and a claim that was running when its gateway ended and commits afterwards, is found
-- by a later look: push.gateways.free_due_at says when, and is cleared by a look that found nothing while it had the
-- gateway's row to itself, which a running claim denies ("key share"). That is never the look of the transaction that ended
-- the gateway: a claim may have locked the row as it was before.
--
-- A delivery that was with two gateways when they died is a suspect: it is out of the index of ready ones, and claimed one at a
-- time. If a gateway dies with a suspect, that one is blamed, and nothing else it had. After a third death it is dead. It has
-- no next channel: what kills a gateway is likely to be the call's.
create or replace function push.free_claims(p_gateways int[] default '{}') returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  c_suspect  constant int := 2;
  c_hopeless constant int := 3;
  v_begun    timestamptz := clock_timestamp();
  v_alone    int[] := array(
    select g.id from push.gateways g
    where g.free_due_at <= v_begun and g.id <> all (p_gateways)
    order by g.id for update skip locked);
  v_ended    int[] := p_gateways || v_alone || array(
    select g.id from push.gateways g
    where g.free_due_at <= v_begun and g.id <> all (p_gateways || v_alone)
    order by g.id for no key update skip locked);
  v_silent   int[];
  v_places   tid[];
  v_found    bigint;
  v_freed    bigint;
  v_unsure   bigint[];
begin
  if v_ended = '{}' then
    return 0;
  end if;
  v_silent := array(select g.id from push.gateways g where g.id = any (v_ended) and g.ended_reason = 'silent');
  v_places := push.claimed_places(v_ended);
  with lost as materialized (
    select d.ctid as tid, d.outbox_id, d.owner, d.kind, d.lane, d.crashes, d.user_id
    from push.delivery d
    where d.ctid = any (v_places) and d.state = 1 and d.owner = any (v_ended)
    for no key update skip locked
  ), careful as materialized (
    select distinct l.owner from lost l where l.crashes >= c_suspect
  ), judged as materialized (
    select l.*, l.crashes + (l.owner = any (v_silent)
        and (l.crashes >= c_suspect or l.owner <> all (array(select c.owner from careful c))))::int as deaths,
      -- People see it, and nobody knows whether it was sent.
      l.owner = any (v_silent) and l.kind in (2, 3) and not coalesce((
        select a.at_least_once from push.lane x join push.apps a on a.app = x.app where x.id = l.lane
      ), false) as is_seen
    from lost l
  ), asked as materialized (
    select j.*, j.is_seen or j.deaths >= c_hopeless as is_dead, j.kind <> 0 or coalesce((
        select true from push.outbox o
        where o.id = j.outbox_id and o.ended_at is null and not coalesce(o.declined ? j.user_id, false)
        for share skip locked
      ), false) as rings
    from judged j
  ), gone as (
    delete from push.delivery d where d.ctid = any (array(select a.tid from asked a where a.is_dead)) returning d.*
  ), noted as (
    -- Without an owner: no gateway settled it, and its last try may have left (push.cancel_invites).
    insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id,
      device, token_hash, reason, failures, fallback_of)
    select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind, 4, g.user_id,
      (select o.call_id from push.outbox o where o.id = g.outbox_id), left(g.token, 4) || '…' || right(g.token, 4),
      hashtextextended(g.token, 0), 'GatewayCrashed', g.failures, g.fallback_of
    from gone g
  ), tallied as (
    insert into push.tally (what, lane, kind, outcome, reason, count)
    select 'ended', g.lane, g.kind, 4, 'GatewayCrashed', count(*) from gone g group by g.lane, g.kind
  ), freed as (
    update push.delivery d
    set state = case when a.rings then 0 else 2 end, owner = null, crashes = a.deaths,
      ready_lane = case when a.rings and a.deaths < c_suspect then d.lane end,
      due_at = case when a.rings then d.due_at else clock_timestamp() end
    from asked a
    where d.ctid = a.tid and not a.is_dead
    returning a.outbox_id, a.rings
  )
  select (select count(*) from lost), count(*), array_agg(distinct f.outbox_id) filter (where not f.rings)
    into v_found, v_freed, v_unsure from freed f;
  perform push.void_unsent(v_unsure, false);
  if v_freed > 0 then
    perform push.ring_doorbell();
  end if;
  -- At most a tenth of the time is spent on looking.
  update push.gateways g
    set free_due_at = case when g.id <> all (v_alone) or v_found < cardinality(v_places)
      then clock_timestamp() + greatest(interval '1 s', 10 * (clock_timestamp() - v_begun)) end
    where g.id = any (v_ended);
  return v_freed;
end
$$;
comment on function push.free_claims is
  'makes ready what gateways that have ended held. Attempts stay counted; invites of calls that have ended are void. Of one '
  'that was silent, what people see (missed calls, notifications) is dead, GatewayCrashed, unless the app is at_least_once, '
  'and the others count a crash. p_gateways: those that ended in this transaction. Returns how many it freed';

-- A transaction that writes nothing would flush nothing.
create or replace function push.sync(p_gateway int) returns void
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  if current_setting('synchronous_commit') = 'off' then
    perform set_config('synchronous_commit', 'local', true);
  end if;
  update push.gateways g set claims_from = g.claims_from where g.id = p_gateway;
end
$$;
comment on function push.sync is
  'when its transaction has been committed, the disk has all that was committed before it: asked before pushes that people see '
  'leave. It does not wait for standbys. p_gateway: what push.register_gateway returned';

create or replace function push.retire_gateway(p_gateway int) returns void
language plpgsql security definer set search_path = push, pg_temp set enable_seqscan = off as $$
begin
  update push.gateways set alive = false, ended_at = clock_timestamp(), ended_reason = 'retired',
      free_due_at = clock_timestamp()
    where id = p_gateway and alive;
  if found then
    delete from push.reclaimed r where r.gateway = p_gateway;
    perform push.free_claims(array[p_gateway]);
    perform push.open_life();
    perform push.commit_durably();
  end if;
end
$$;
comment on function push.retire_gateway is
  'the clean end of a gateway; what it still holds becomes ready. p_gateway: what push.register_gateway returned';

-- Its own row is first. A gateway that is silent may be one that works on something (settles, claims): that does not hinder
-- declaring it dead, for every transition is fenced by itself.
--
-- Silence is measured on the server's clock, from beats that were executed. If the server stood still (a virtual machine that
-- was suspended, a disk that did not answer), or its clock was set ahead, all gateways seem to have been silent, and the first
-- whose beat is executed then would declare all others dead. But its own beats have a gap then, too: for one interval of
-- silence after a gap it declares nobody dead, and by then all that live have been heard. The same goes for its first beat after
-- a crash of the server (it is not in push.reclaimed yet), which may have lost the last beats of others. Of two steps of the
-- clock between two of its own beats it sees nothing, while another that registered between them seems old: so a death takes two
-- looks, the first after two thirds of p_silence, and no beat of the other between them.
create or replace function push.beat(
  p_gateway int, p_may_reap boolean, p_silence interval default '3 s', out alive boolean, out must_reclaim boolean
)
language plpgsql volatile security definer set search_path = push, pg_temp set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_now    timestamptz := clock_timestamp();
  v_steady timestamptz;
  v_silent int[] := '{}';
begin
  must_reclaim := false;
  update push.gateways g set heartbeat_at = v_now, doubted_at = null,
      steady_since = case
        when g.heartbeat_at between v_now - p_silence * 2 / 3 and v_now
          and (select true from push.reclaimed r where r.gateway = p_gateway) then g.steady_since
        else v_now
      end
    where g.id = p_gateway and g.alive
    returning g.steady_since into v_steady;
  alive := found;
  if not alive then
    return;
  end if;
  if p_may_reap and v_steady <= v_now - p_silence then
    with silent as materialized (
      select g.id from push.gateways g
      -- Of the future: the clock was set back, and it was not heard since.
      where g.alive and (g.heartbeat_at < v_now - p_silence or g.heartbeat_at > clock_timestamp() + p_silence)
        and g.doubted_at < v_now - p_silence / 6
        and g.id <> p_gateway
      order by g.id for no key update skip locked
    ), ended as (
      update push.gateways g set alive = false, ended_at = clock_timestamp(), ended_reason = 'silent',
        free_due_at = clock_timestamp()
      from silent s where g.id = s.id returning g.id
    )
    select coalesce(array_agg(e.id), '{}') into v_silent from ended e;
    delete from push.reclaimed r where r.gateway = any (v_silent);
    with doubtful as materialized (
      select g.id from push.gateways g
      where g.alive and (g.heartbeat_at < v_now - p_silence * 2 / 3 or g.heartbeat_at > clock_timestamp() + p_silence)
        and (g.doubted_at <= v_now) is not true and g.id <> p_gateway
      order by g.id for no key update skip locked
    )
    update push.gateways g set doubted_at = v_now from doubtful d where g.id = d.id;
  end if;
  if p_may_reap then
    perform push.free_claims(v_silent);
  end if;
  insert into push.reclaimed (gateway) select p_gateway
    where not exists (select from push.reclaimed r where r.gateway = p_gateway)
    on conflict do nothing;
  must_reclaim := (select r.confirmed_at is null from push.reclaimed r where r.gateway = p_gateway);
  perform push.open_life();
end
$$;
comment on function push.beat is
  'the gateway is alive; to be called every second. Anyone''s call finds the others that were silent for p_silence, declares '
  'them dead and frees what they held, if p_may_reap: to be false until the caller''s own connection has been up for so long. '
  'It declares nobody dead for p_silence after there were two thirds of p_silence between two beats of its own, and nobody at '
  'the first look. '
  'p_gateway: what push.register_gateway returned. alive: false: it was declared dead itself, its claims are taken over, it '
  'must register anew; must_reclaim: the server may have lost the last commits, so it must push.reclaim and then '
  'push.confirm_reclaimed; until all have, nobody is given anything';
