-- The life of a gateway: it registers, sends heartbeats, and retires or is found silent; its claimed deliveries then become
-- ready again.
--
-- Claims do not wait for the disk, so a crash of PostgreSQL may lose the last of them: their deliveries are ready again, and a ring that is
-- in flight may be sent twice. What a gateway has settled is on the disk. A push that people see is sent only after its claim is on the
-- disk, too (push.sync).

-- One gateway -----------------------------------------------------------------------------------------------------------

create or replace function push.register_gateway(p_name text, p_version text) returns int
language sql security definer set search_path = push, pg_temp as $$
  -- Waits for the disk. A session may have asked for more than "on"; that is kept.
  select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') in ('off', 'local');
  insert into push.gateways (name, version, login)
    values (p_name, p_version, coalesce(nullif(current_setting('role'), 'none'), session_user)) returning id
$$;
comment on function push.register_gateway is
  'registers a new life of a gateway. The result fences the gateway''s statements. p_name: host or pod; p_version: of the program';

comment on column push.outbox.payload is
  'object. Calls and missed_call: callId and from (strings) required; fromName, apartmentNumber, buildingName, channelName, metadata '
  'optional. message, group_message, group_invite: from and chatId (strings) required; callId, messageId, fromName, metadata, '
  'androidChannel optional; text only if push.apps.message_text allows it';

-- It has more arguments than in 0.1. It replaces that one in a single transaction: gateways of 0.1 that run plan their statement again,
-- and find this one by the first seven.
create or replace function push.register_app(
  p_app text, p_ring_seconds int, p_escalate_after int default null, p_at_least_once boolean default false,
  p_providers text[] default null, p_missed_calls text default null, p_voip_cancel boolean default null,
  p_quota int[] default null, p_replica text default null, p_known text[] default null, p_message_text boolean default null
) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
declare
  v_old push.apps;
begin
  -- During an upgrade, gateways of two releases register the same app in turns. What one does not pass stays as it is, and one that does
  -- not know a channel must not remove it.
  select a.* into v_old from push.apps a where a.app = p_app for no key update;
  if p_providers is not null then
    p_providers := p_providers || array(
      select c.name from unnest(v_old.providers) c(name) where c.name <> all (coalesce(p_known, '{apns,fcm,expo}') || p_providers));
  end if;
  insert into push.apps as a (app, ring_seconds, escalate_after_seconds, at_least_once, providers, missed_calls, voip_cancel, message_text)
    values (p_app, p_ring_seconds, p_escalate_after, coalesce(p_at_least_once, false), coalesce(p_providers, v_old.providers),
      case when p_missed_calls is null then v_old.missed_calls else nullif(p_missed_calls, 'default') end,
      coalesce(p_voip_cancel, v_old.voip_cancel, false), coalesce(p_message_text, v_old.message_text, false))
    on conflict (app) do update set ring_seconds = excluded.ring_seconds, escalate_after_seconds = excluded.escalate_after_seconds,
        at_least_once = excluded.at_least_once, providers = excluded.providers, missed_calls = excluded.missed_calls,
        voip_cancel = excluded.voip_cancel, message_text = excluded.message_text, updated_at = clock_timestamp()
      where to_jsonb(a) - 'updated_at' <> to_jsonb(excluded) - 'updated_at';
  perform push.register_lane(p_app, p.name, s.name)
    from unnest(coalesce(p_providers, '{apns,fcm,expo}')) p(name) cross join lateral unnest(push.push_services(p.name)) s(name);
  perform push.configure_quota(p_app, p_quota, p_replica) where p_quota is not null;
end
$$;
comment on function push.register_app is
  'stores what the configuration says about an app, for enqueueing, and makes its lanes. p_app: its name; p_ring_seconds, '
  'p_escalate_after, p_at_least_once: as in push.apps; p_providers, p_missed_calls (or default), p_voip_cancel, p_message_text: the same; '
  'null: unchanged; '
  'p_quota: calls, notifications and recipients a minute, each null for no limit; null as a whole: unchanged; p_replica: name of the '
  'gateway; p_known: the channels that it knows; null: apns, fcm and expo. Channels that it does not know stay as they are';

-- Of gateways that ended ------------------------------------------------------------------------------------------------

-- A delivery that two gateways held when they died is a suspect: it is removed from the index of ready deliveries and
-- claimed one at a time. If a gateway dies with a suspect, only the suspect counts that death, not the other deliveries of
-- the gateway. After a third death the outcome is dead. There is no next channel for it: the cause is probably the call
-- itself.
--
-- Attempts stay counted, and those of silent gateways count a crash. Of these, and of gateways that live and have disowned them, missed
-- calls and notifications, which people see, end as dead (GatewayCrashed) unless the app is at_least_once. Those that are locked are
-- left.
create or replace function push.free_rows(p_places tid[], p_owners int[], out rows_found bigint)
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  c_suspect  constant int := 2;
  c_hopeless constant int := 3;
  v_gone tid[];
begin
  with lost as materialized (
    select d.ctid as tid, d.owner, d.kind, d.lane, d.crashes, d.accepted_at from push.delivery d
    where d.ctid = any (p_places) and d.state = 1 and d.owner = any (p_owners)
    for no key update skip locked
  ), judged as materialized (
    -- A gateway that lives has disowned its rows.
    select l.tid, l.crashes + (not g.alive and g.ended_reason = 'silent'
        and (l.crashes >= c_suspect or not g.had_suspect))::int as deaths,
      -- Accepted from another gateway (push.settle); or visible to people, and it is unknown whether it was sent.
      l.accepted_at is not null or (g.alive or g.ended_reason = 'silent') and l.kind in (2, 3) and not coalesce((
        select a.at_least_once from push.lane x join push.apps a on a.app = x.app where x.id = l.lane), false) as is_over
    from lost l join push.gateways g on g.id = l.owner
  ), freed as (
    update push.delivery d
    set state = 0, owner = null, attempt = d.attempt - d.found_ended::int, found_ended = false, crashes = j.deaths,
      ready_lane = case when j.deaths < c_suspect then d.lane end, due_at = clock_timestamp()
    from judged j
    where d.ctid = j.tid and not j.is_over and j.deaths < c_hopeless
    returning 1
  )
  select (select count(*) from freed), array(select j.tid from judged j where j.is_over or j.deaths >= c_hopeless) into rows_found, v_gone;
  -- What history refuses stays claimed, and is tried again by a later run. Invites do not wait for it.
  if v_gone <> '{}' then
    begin
      rows_found := rows_found + push.bury(v_gone, 4, 'GatewayCrashed');
    exception when lock_not_available then null;
    end;
  end if;
  perform push.ring_doorbell() where rows_found > 0;
exception when others or assert_failure then
  -- One that cannot be changed stays claimed, too, and keeps no other from being freed (push.change_rows).
  if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
  if cardinality(p_places) > 1 then
    rows_found := push.free_rows(p_places[:cardinality(p_places) / 2], p_owners)
      + push.free_rows(p_places[cardinality(p_places) / 2 + 1:], p_owners);
  else
    rows_found := 0;
    perform push.name_fault((select 'push.outbox.id ' || d.outbox_id from push.delivery d where d.ctid = p_places[1]), sqlstate);
  end if;
end
$$;
comment on function push.free_rows is 'makes claimed deliveries ready again, or ends them; returns how many';

-- A heartbeat only notes that a gateway has ended, and the job "free" does what follows: no heartbeat waits for it. A run frees rings, or if
-- none can be freed the rest, for half a second. Rows that are locked, or cannot be changed, are found by a later run; so is a claim that
-- was running when its gateway ended and commits afterwards. push.gateways.free_due_at is the time of that run. It is cleared by a run that
-- has left nothing while it held the gateway's row exclusively; a running claim ("key share") prevents that lock.
--
-- An index on owner would cost every claim an entry, so the table is read: by one statement, which sees every row, wherever it moves.
create or replace function push.free_claims() returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_begun    timestamptz := clock_timestamp();
  -- Later than in a minute: the clock was set back.
  v_alone    int[] := array(
    select g.id from push.gateways g
    where g.free_due_at not between v_begun and v_begun + interval '1 minute' order by g.id for update skip locked);
  v_ended    int[] := v_alone || array(
    select g.id from push.gateways g
    where g.free_due_at not between v_begun and v_begun + interval '1 minute' and g.id <> all (v_alone)
    order by g.id for no key update skip locked);
  v_rings    tid[];
  v_rest     tid[];
  v_suspects int[];
  v_is_rest  boolean;
  v_piece    tid[];
  v_read_at  timestamptz;
  v_found    bigint := 0;
begin
  if v_ended = '{}' then
    return 0;
  end if;
  -- In any order, so that those that cannot be changed do not always come before others.
  select coalesce(array_agg(d.ctid order by random()) filter (where d.kind < 2), '{}'),
      coalesce(array_agg(d.ctid order by random()) filter (where d.kind >= 2), '{}'), array_agg(distinct d.owner) filter (where d.crashes >= 2)
    into v_rings, v_rest, v_suspects
    from push.delivery d where d.state = 1 and d.owner = any (v_ended);
  v_read_at := clock_timestamp();
  update push.gateways g set had_suspect = true where g.id = any (v_suspects) and not g.had_suspect;
  for v_is_rest, v_piece in
    select p.is_rest, array_agg(p.place) from (
      select false as is_rest, (r.i - 1) / 100 as piece, r.place from unnest(v_rings) with ordinality r(place, i)
      union all select true, (r.i - 1) / 100, r.place from unnest(v_rest) with ordinality r(place, i)) p
    group by p.is_rest, p.piece order by p.is_rest, p.piece
  loop
    exit when v_is_rest and v_found > 0;
    begin
      v_found := v_found + push.free_rows(v_piece, v_ended);
    exception when lock_not_available then
      exit;  -- somebody has locked a table
    end;
    exit when clock_timestamp() > v_read_at + interval '500 ms';
  end loop;
  -- What is left is looked for again at once if some of it was freed, and else later: at most a tenth of the time is spent on it.
  update push.gateways g
    set free_due_at = case
      when v_found < cardinality(v_rings || v_rest) and v_found > 0 then clock_timestamp()
      when v_found < cardinality(v_rings || v_rest) or g.id <> all (v_alone)
        then clock_timestamp() + greatest(interval '1 s', 10 * (clock_timestamp() - v_begun)) end
    where g.id = any (v_ended);
  return v_found;
end
$$;
comment on function push.free_claims is 'the job "free": what gateways held that have ended becomes ready, or ends. Returns how many';

-- The update changes nothing, but a transaction that writes nothing would flush nothing.
create or replace function push.sync(p_gateway int) returns void
language sql security definer set search_path = push, pg_temp as $$
  select set_config('synchronous_commit', 'local', true) where current_setting('synchronous_commit') = 'off';
  update push.gateways g set claims_from = g.claims_from where g.id = p_gateway
$$;
comment on function push.sync is
  'once its transaction is committed, everything that was committed before it is on the disk. Gateways call it before they '
  'send pushes that people see. It does not wait for standbys. p_gateway: what push.register_gateway returned';

create or replace function push.retire_gateway(p_gateway int) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  update push.gateways set alive = false, ended_at = clock_timestamp(), ended_reason = 'retired',
      free_due_at = clock_timestamp()
    where id = p_gateway and alive;
  if found then
    -- As in push.register_gateway.
    perform set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') in ('off', 'local');
  end if;
end
$$;
comment on function push.retire_gateway is
  'the clean end of a gateway: the deliveries that it still holds become ready (push.free_claims). p_gateway: what push.register_gateway '
  'returned';

-- The gateway's own row is updated first. A silent gateway may still be working (settling, claiming). That does not prevent
-- declaring it dead: every transition checks the owner itself.
--
-- Silence is measured on the server's clock, between heartbeats that were executed. If the server stood still (a suspended
-- virtual machine, a disk that did not answer), or its clock was set ahead, all gateways seem silent, and the first one
-- whose heartbeat is executed would declare all others dead. But its own heartbeats have a gap then, too. For p_silence
-- after such a gap it declares no gateway dead, and by then every living gateway has sent a heartbeat. Two steps of the clock
-- between two of its own heartbeats leave no gap, but a gateway that registered between the steps seems old. Therefore a gateway is
-- declared dead only at the second check: the first comes after two thirds of p_silence, and a heartbeat in between cancels it.
create or replace function push.beat(
  p_gateway int, p_may_reap boolean, p_silence interval default '3 s', out alive boolean, out must_reclaim boolean
)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_now    timestamptz := clock_timestamp();
  v_steady timestamptz;
  v_silent int[] := '{}';
begin
  must_reclaim := false;
  update push.gateways g set heartbeat_at = v_now, doubted_at = null,
      steady_since = case
        when g.heartbeat_at between v_now - p_silence * 2 / 3 and v_now then g.steady_since
        else v_now
      end
    where g.id = p_gateway and g.alive
    returning g.steady_since into v_steady;
  alive := found;
  if p_may_reap and v_steady <= v_now - p_silence then
    with ended as (
      update push.gateways g
      set alive = false, ended_at = clock_timestamp(), ended_reason = 'silent',
        free_due_at = clock_timestamp()
      where g.id = any (array(
        select x.id from push.gateways x
        -- In the future: the clock was set back, and there was no heartbeat since.
        where x.alive and (x.heartbeat_at < v_now - p_silence or x.heartbeat_at > clock_timestamp() + p_silence)
          and x.doubted_at < v_now - p_silence / 6 and x.id <> p_gateway
        order by x.id for no key update skip locked))
      returning g.id
    )
    select coalesce(array_agg(e.id), '{}') into v_silent from ended e;
    update push.gateways g set doubted_at = v_now
    where g.id = any (array(
      select x.id from push.gateways x
      where x.alive and (x.heartbeat_at < v_now - p_silence * 2 / 3 or x.heartbeat_at > clock_timestamp() + p_silence)
        and (x.doubted_at <= v_now) is not true and x.id <> p_gateway
      order by x.id for no key update skip locked));
  end if;
end
$$;
comment on function push.beat is
  'a gateway''s heartbeat, to be called every second. It finds the others that were silent for p_silence and declares them dead; '
  'their deliveries become ready (push.free_claims). p_may_reap enables this; it must be false until the caller''s own '
  'connection has been up for p_silence. p_gateway: what push.register_gateway '
  'returned. alive: false if the caller itself was declared dead: its deliveries are taken over, and it must '
  'register again. must_reclaim: for gateways of release 0.1.0: always false';
