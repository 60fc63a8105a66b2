-- Shards: several databases that together are one outbox. Each has the whole schema and gateways of its own, and each call lives
-- in one of them. A call id belongs to one of 1,024 slots, and the map (push.shard_map) says which shard owns a slot. Backends
-- connect to the shard that push.shard_of names, or to the router of deploy/plproxy, which has these functions too.
--
-- Hot data is minutes old, so slots move without their data: calls that were enqueued before stay where they are, and new calls go
-- to the new owner. No call id may then be enqueued in both. Therefore a shard refuses new calls of slots that it does not own
-- (push.refuse_slots), and takes over a map only when no transaction that enqueued under the old one is open
-- (push.use_shard_map). The shards that lose slots take over the map first. From then on, a call of such a slot that the old owner
-- does not know will never be there. A backend that repeats a call sends it to the old owner first: there it is a duplicate,
-- or is refused (SQLSTATE 22S01). Only after the refusal does the backend send it to the new owner (docs/adr/0046).

-- The tables -----------------------------------------------------------------------------------------------------------

-- Not a migration: gateways of release 0.1.0 do not start on a schema with a migration that they do not know, and they must be able
-- to restart during the upgrade (docs/compatibility.md).

create table if not exists push.shard_map (
  generation int primary key,
  shards     smallint[] not null,
  since      timestamptz not null default clock_timestamp(),
  until      timestamptz,
  constraint shard_map_generation_positive check (generation > 0),
  constraint shard_map_every_slot check (array_ndims(shards) = 1 and array_lower(shards, 1) = 1 and cardinality(shards) = 1024),
  constraint shard_map_shards_range check (0 <= all (shards) and 1024 > all (shards) and array_position(shards, null) is null),
  constraint shard_map_order check (until >= since)
);
-- Read at every enqueue: neither compressed nor out of line.
alter table push.shard_map alter column shards set storage plain;
create unique index if not exists shard_map_current on push.shard_map ((until is null)) where until is null;
comment on table push.shard_map is
  'which shard owns which slot of call ids: the current map, and those before it while calls that were enqueued under them are kept. '
  'Empty: this database stands alone';
comment on column push.shard_map.generation is 'number of the map, the same in all databases';
comment on column push.shard_map.shards is 'the shard of each of the 1,024 slots; that of slot n (push.slot_of) is element n + 1';
comment on column push.shard_map.since is 'when this database took over the map';
comment on column push.shard_map.until is 'when this database took over the next one; null: the current map';

create table if not exists push.shard_here (
  is_present boolean primary key default true,
  shard      smallint not null,
  constraint shard_here_at_most_one check (is_present),
  constraint shard_here_range check (shard between 0 and 1023)
);
comment on table push.shard_here is 'at most one row: which shard this database is';
comment on column push.shard_here.is_present is 'always true: makes the row the only one';
comment on column push.shard_here.shard is 'number of this shard in push.shard_map';

-- Where a call belongs --------------------------------------------------------------------------------------------------

-- The result is stored in maps and computed by backends, so it may never change.
create or replace function push.slot_of(p_call_id text) returns int
language plpgsql immutable strict parallel safe as $$
declare
  v_hash bytea := sha256(convert_to(p_call_id, 'UTF8'));
begin
  return (get_byte(v_hash, 0) << 2) | (get_byte(v_hash, 1) >> 6);
end
$$;
comment on function push.slot_of is
  'the slot of a call id, 0 to 1023: the first ten bits of the SHA-256 of its UTF-8 bytes. p_call_id: push.outbox.call_id';

create or replace function push.shard_of(p_call_id text) returns int
language sql stable strict parallel safe security definer set search_path = push, pg_temp as $$
  select m.shards[push.slot_of(p_call_id) + 1] from push.shard_map m where m.until is null
$$;
comment on function push.shard_of is
  'the shard in which a new call with this id is enqueued; null: this database stands alone. p_call_id: push.outbox.call_id';

create or replace function push.shards_of(p_call_id text, p_window interval default null) returns int[]
language sql stable security definer set search_path = push, pg_temp as $$
  select array(
    select m.shards[push.slot_of(p_call_id) + 1]::int from push.shard_map m
    where m.until is null or p_window is null or m.until > clock_timestamp() - p_window
    group by 1 order by max(m.generation) desc)
$$;
comment on function push.shards_of is
  'the shards in which a call with this id may be: the current owner of its slot, then earlier ones, the latest first. '
  'p_call_id: push.outbox.call_id; p_window: only those that owned it within this time; null: all that are known';

create or replace function push.own_shard() returns int
language sql stable parallel safe security definer set search_path = push, pg_temp as $$
  select h.shard from push.shard_here h
$$;
comment on function push.own_shard is 'the number of this shard; null: this database stands alone';

create or replace function push.shard_map_number() returns int
language sql stable parallel safe security definer set search_path = push, pg_temp as $$
  select m.generation from push.shard_map m where m.until is null
$$;
comment on function push.shard_map_number is 'the number of the current map; null: this database stands alone';

create or replace function push.new_call_id() returns text
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_here smallint := (select h.shard from push.shard_here h);
  v_map  smallint[] := (select m.shards from push.shard_map m where m.until is null);
  v_id   text;
begin
  if v_here is not null and array_position(v_map, v_here) is null then
    raise exception using errcode = 'object_not_in_prerequisite_state',
      message = format('shard %s owns no slot', v_here), hint = 'Enqueue in another shard, or through the router.';
  end if;
  loop
    v_id := gen_random_uuid();
    exit when v_here is null or v_map[push.slot_of(v_id) + 1] = v_here;
  end loop;
  return v_id;
end
$$;
comment on function push.new_call_id is
  'a new UUID that belongs to this shard: for a backend whose own tables are here, so that it enqueues in one local transaction';

-- What a shard refuses --------------------------------------------------------------------------------------------------

-- The trigger exists only in databases that have a map: push.use_shard_map creates it, with the number of this shard as its
-- argument. Its name puts it after fan_out, whose errors come first.
--
-- A call that this shard knows already is a duplicate as ever.
create or replace function push.refuse_slots() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
declare
  v_fault text;
begin
  -- A snapshot of the transaction may show a map that was replaced since: then this is a serialization failure.
  perform from push.shard_map m
    where current_setting('transaction_isolation') in ('repeatable read', 'serializable') and m.until is null for share;
  select format('callId: call %s belongs to shard %s, and this is shard %s (map %s)', n.call_id, m.shards[push.slot_of(n.call_id) + 1],
      tg_argv[0], m.generation) into v_fault
    from (select m.shards, m.generation from push.shard_map m where m.until is null offset 0) m cross join new_calls n
    where m.shards[push.slot_of(n.call_id) + 1] <> tg_argv[0]::int and n.created_at >= statement_timestamp()
    limit 1;
  if found then
    raise exception using errcode = '22S01', message = v_fault,
      hint = 'Nothing of this statement was enqueued. Enqueue it there, or through the router.',
      schema = 'push', table = 'outbox', column = 'call_id';
  end if;
  return null;
end
$$;
comment on function push.refuse_slots is 'refuses new calls whose slot another shard owns, with SQLSTATE 22S01';

create or replace function push.use_shard_map(p_generation int, p_shards int[], p_here int, p_keep interval default '16 days')
returns text
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_now    push.shard_map;
  v_shards smallint[] := p_shards;
  v_owns   int := cardinality(array_positions(v_shards, p_here::smallint));
  v_known  boolean;
begin
  -- Waits for transactions that have enqueued under the current map, and keeps new ones waiting until this one ends.
  lock table push.outbox in share row exclusive mode;
  select m.* into v_now from push.shard_map m where m.until is null for update;
  v_known := coalesce(p_generation = v_now.generation and v_shards = v_now.shards, false);
  if p_here is distinct from coalesce((select h.shard from push.shard_here h), p_here) then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('this database is shard %s, not %s', push.own_shard(), p_here), hint = 'A shard keeps its number.';
  elsif p_generation <= v_now.generation and not v_known then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('map %s is not newer than map %s of this database', p_generation, v_now.generation),
      hint = 'Maps only go forward. To return to an earlier one, give it the next number.';
  end if;
  insert into push.shard_here (shard) values (p_here) on conflict do nothing;
  -- They may be missing in a database that has this map: rows that are replicated, or restored without the schema, do not bring them.
  if not exists (select from pg_trigger t where t.tgrelid = 'push.outbox'::regclass and t.tgname = 'refuse_slots') then
    execute format('create trigger refuse_slots after insert on push.outbox referencing new table as new_calls '
      'for each statement execute function push.refuse_slots(%L)', p_here);
  end if;
  -- Ids of calls are unique over all shards, and name theirs: id % 1024. Sessions may still have 32 ids of the old kind each.
  if (select s.increment_by from pg_sequences s where s.schemaname = 'push' and s.sequencename = 'outbox_id_seq') <> 1024 then
    execute format('alter sequence push.outbox_id_seq increment by 1024 restart with %s',
      (greatest(nextval('push.outbox_id_seq'), (select max(o.id) from push.outbox o)) / 1024 + 40) * 1024 + p_here);
  end if;
  if v_known then
    return format('shard %s has map %s already', p_here, p_generation);
  end if;
  update push.shard_map m set until = clock_timestamp() where m.until is null;
  insert into push.shard_map (generation, shards) values (p_generation, v_shards);
  delete from push.shard_map m where m.until < clock_timestamp() - p_keep;
  insert into push.audit (action, target, detail) values ('use_shard_map', 'shard ' || p_here,
    jsonb_build_object('generation', p_generation, 'slots', v_owns));
  return format('shard %s has map %s: %s of 1024 slots are its own', p_here, p_generation, v_owns);
end
$$;
comment on function push.use_shard_map is
  'makes this database a shard, or gives it the next map. Shards that lose slots must have it before those that gain them, and the routers '
  'come last (deploy/plproxy/shards.sh does it in this order). p_generation: number of the map; p_shards: the shard of each of the 1,024 '
  'slots; p_here: number of this shard; p_keep: for how long earlier maps are kept, at least as long as calls are. Waits until no transaction '
  'that has enqueued is open: set lock_timeout. Returns what was done. Running it twice is harmless. For the owner of the schema';

create or replace function push.spread_slots(p_shards int[], p_now int[] default null) returns int[]
language plpgsql immutable as $$
declare
  v_map int[] := array(select case when p_now[n] = any (p_shards) then p_now[n] end from generate_series(1, 1024) n);
  -- The shards, those with the fewest slots first.
  v_all int[];
  v_slot int;
begin
  if coalesce(cardinality(p_shards), 0) not between 1 and 1024
    or cardinality(p_shards) <> (select count(distinct s) from unnest(p_shards) s where s between 0 and 1023)
  then
    raise exception using errcode = 'invalid_parameter_value', message = 'p_shards: must name 1 to 1024 shards, numbers from 0 to 1023';
  end if;
  -- While a slot is free, or a shard has two more than another, the shard with the fewest gets one.
  loop
    v_all := array(
      select x.s from unnest(p_shards || v_map) with ordinality x(s, place) where x.s is not null group by x.s order by count(*), min(x.place));
    v_slot := coalesce(array_position(v_map, null), array_position(v_map, v_all[cardinality(v_all)]));
    exit when v_map[v_slot] is not null
      and cardinality(array_positions(v_map, v_map[v_slot])) - cardinality(array_positions(v_map, v_all[1])) < 2;
    v_map[v_slot] := v_all[1];
  end loop;
  return v_map;
end
$$;
comment on function push.spread_slots is
  'a map in which these shards own equal numbers of slots, give or take one, and as few slots as possible move. p_shards: their '
  'numbers; p_now: the map before, null: none. Returns what push.use_shard_map takes as p_shards';

-- For the router, and for backends that enqueue many calls --------------------------------------------------------------

create or replace function push.enqueue_batch(calls jsonb[])
returns table (n int, outbox_id bigint, call_id text, duplicate boolean)
language sql volatile security definer set search_path = push, pg_temp as $$
  -- Before any call is looked for.
  select push.refuse_app(a.app) from (select distinct coalesce(c ->> 'app', 'default') as app from unnest(enqueue_batch.calls) c) a;
  with asked as materialized (
    select c.ordinal::int - 1 as n, coalesce(c.call ->> 'app', 'default') as app, coalesce(c.call ->> 'kind', 'incoming_call') as kind,
      coalesce(c.call ->> 'call_id', push.given_call_id(coalesce(c.call ->> 'kind', 'incoming_call'), c.call -> 'payload'),
        case when push.is_message(c.call ->> 'kind') then push.new_call_id() else '' end) as call_id,
      c.call -> 'payload' as payload, c.call -> 'recipients' as recipients, (c.call ->> 'ring_seconds')::int as ring_seconds,
      c.call ->> 'traceparent' as traceparent
    from unnest(calls) with ordinality c(call, ordinal)
  ), made as (
    -- In the order of their keys, so that two statements with the same calls do not deadlock.
    insert into push.outbox (app, kind, call_id, payload, recipients, ring_seconds, traceparent)
      select a.app, a.kind, a.call_id, a.payload, a.recipients, a.ring_seconds, a.traceparent from asked a
      order by a.app, a.call_id, a.n
      returning id, app, call_id
  )
  select a.n, coalesce(m.id, (select o.id from push.outbox o where o.call_id = a.call_id and o.app = a.app)), a.call_id,
    m.id is null or a.n > min(a.n) over (partition by a.app, a.call_id)
  from asked a left join made m on m.app = a.app and m.call_id = a.call_id
  order by a.n
$$;
comment on function push.enqueue_batch is
  'enqueues many calls, or notifications, as one INSERT does: all or none. calls: objects with the columns of push.outbox as keys: '
  'app, kind, call_id, payload, recipients, ring_seconds, traceparent. Returns for each, by n, its position from 0: push.outbox.id, '
  'call_id, and whether it had been enqueued before';

create or replace function push.find_calls(p_call_ids text[], p_apps text[]) returns setof int
language sql stable security definer set search_path = push, pg_temp as $$
  select a.ordinal::int - 1 from unnest(p_call_ids, p_apps) with ordinality a(call_id, app, ordinal)
  where exists (select from push.own_calls(a.call_id, a.app))
$$;
comment on function push.find_calls is
  'which of these calls this database has, of the apps that the caller may act for: their positions from 0. p_call_ids, p_apps: '
  'columns of push.outbox; an app that is null stands for all';
