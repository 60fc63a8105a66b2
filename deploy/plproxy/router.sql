-- The router: an empty database in front of the shards of push-gateway, for producers that do not choose a shard themselves and for
-- operators. It has functions of the same names and arguments as the shards, and no calls of its own. docs/scaling.md says when to
-- use it; deploy/plproxy/shards.sh applies this file and keeps the router's servers and map.
--
--   psql -v ON_ERROR_STOP=1 -1 -f deploy/plproxy/router.sql ROUTER_URL       as a superuser: PL/Proxy is not a trusted language
--
-- Running it again replaces the functions. Needs the extension plproxy (Debian: postgresql-15-plproxy).
--
-- Rights. The functions here run with the caller's rights, and PL/Proxy connects to the shards as the login that the caller's user
-- mapping names. Each login has a mapping of its own, with its own password, and the shard decides what it may do: push_enqueuer,
-- push_tenant and push_ops mean there what they mean without a router. There is no mapping for public, and nobody but a superuser
-- may make or change one.
--
-- Transactions. What is done through the router is committed on the shard when the function returns. A rollback on the router does
-- not undo it.

create extension if not exists plproxy;
do $$
begin
  if not exists (select from pg_foreign_data_wrapper where fdwname = 'plproxy') then
    create foreign data wrapper plproxy validator plproxy_fdw_validator;
  end if;
end
$$;

create schema if not exists push;
comment on schema push is 'push-gateway: the router of several shards';
revoke all on schema push from public;
create schema if not exists push_router;
comment on schema push_router is 'push-gateway: what the functions of the router consist of; not for backends';
revoke all on schema push_router from public;

do $$
declare
  v_role text;
begin
  if to_regclass('push.delivery') is not null then
    raise exception using errcode = 'object_not_in_prerequisite_state', message = 'this database is a shard, not a router',
      hint = 'Apply this file to an empty database.';
  end if;
  foreach v_role in array '{push_enqueuer,push_tenant,push_ops}'::text[] loop
    if to_regrole(v_role) is null then
      execute format('create role %I nologin', v_role);
    end if;
    execute format('grant usage on schema push, push_router to %I', v_role);
  end loop;
end
$$;

-- Who may make user mappings --------------------------------------------------------------------------------------------

-- A login that may use a server may also make a user mapping for itself, and name any login of the shards there. It would need that
-- login's password, unless a shard, or a password file of this server's user, lets the router in without one.
create or replace function push_router.keep_mappings() returns event_trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if not (select r.rolsuper from pg_roles r where r.rolname = current_user) then
    raise exception using errcode = 'insufficient_privilege', message = 'user mappings are made by a superuser',
      hint = 'Each login of the router has one, to the login of the same name on the shards.';
  end if;
end
$$;
comment on function push_router.keep_mappings is 'refuses user mappings that a login makes for itself';
drop event trigger if exists push_keep_mappings;
create event trigger push_keep_mappings on ddl_command_start when tag in ('CREATE USER MAPPING', 'ALTER USER MAPPING', 'DROP USER MAPPING')
  execute function push_router.keep_mappings();

-- After the error of a shard, PL/Proxy connects to it anew, and would tell the client so.
do $$
begin
  execute format('alter database %I set client_min_messages = warning', current_database());
  -- PL/Proxy waits for a shard that accepts connections and says nothing, whatever its own time limits. This ends that.
  execute format('alter database %I set statement_timeout = %L', current_database(), '15s');
end
$$;

-- The map ---------------------------------------------------------------------------------------------------------------

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

-- A comment of a shard's function holds here, too. The next six functions are copies of the shards' functions; Tests/shards checks it.

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

create or replace function push.is_call(p_kind text) returns boolean language sql immutable parallel safe as
$$ select p_kind in ('incoming_call', 'video_call') $$;
comment on function push.is_call is 'whether a kind of push.outbox rings';

create or replace function push.is_message(p_kind text) returns boolean language sql immutable parallel safe as
$$ select p_kind in ('message', 'group_message', 'group_invite') $$;
comment on function push.is_message is 'whether a kind of push.outbox belongs to a chat';

create or replace function push.given_call_id(p_kind text, p_payload jsonb) returns text language sql immutable parallel safe as $$
  select case when push.is_message(p_kind) then coalesce(p_payload ->> 'callId', p_payload ->> 'messageId')
    else p_payload ->> 'callId' end
$$;
comment on function push.given_call_id is 'the call_id in a payload; null: none';

create table if not exists push_router.shard (
  shard   int primary key,
  name    text not null,
  is_off  boolean not null default false,
  note    text
);
comment on table push_router.shard is 'one shard, as this router knows it';
comment on column push_router.shard.shard is 'its number: option pN of the server push';
comment on column push_router.shard.name is 'how errors and push.shards name it';
comment on column push_router.shard.is_off is 'true: it is not asked, and errors say so at once (push.set_shard)';
comment on column push_router.shard.note is 'why';

create or replace function push_router.server_shards() returns int language sql stable set search_path = pg_catalog, pg_temp as $$
  select count(*)::int from pg_foreign_server s cross join lateral unnest(s.srvoptions) o(option)
  where s.srvname = 'push' and o.option ~ '^p[0-9]+='
$$;
comment on function push_router.server_shards is 'how many shards the server push has';

create or replace function push.use_shard_map(p_generation int, p_shards int[], p_keep interval default '16 days') returns text
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_now    push.shard_map;
  v_shards smallint[] := p_shards;
begin
  if (select max(s) from unnest(p_shards) s) >= push_router.server_shards() then
    raise exception using errcode = 'object_not_in_prerequisite_state', message = format('the server push has only %s shards',
        push_router.server_shards()), hint = 'Add the new shard first: alter server push options (add pN ...).';
  end if;
  lock table push.shard_map in share row exclusive mode;
  select m.* into v_now from push.shard_map m where m.until is null for update;
  if p_generation = v_now.generation and v_shards = v_now.shards then
    return format('the router has map %s already', p_generation);
  elsif p_generation <= v_now.generation then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('map %s is not newer than map %s of this router', p_generation, v_now.generation),
      hint = 'Maps only go forward. To return to an earlier one, give it the next number.';
  end if;
  update push.shard_map m set until = clock_timestamp() where m.until is null;
  insert into push.shard_map (generation, shards) values (p_generation, v_shards);
  delete from push.shard_map m where m.until < clock_timestamp() - p_keep;
  return format('the router has map %s', p_generation);
end
$$;
comment on function push.use_shard_map is
  'gives this router the next map, after all shards have it. p_generation, p_shards, p_keep: as on a shard. Returns a sentence that '
  'says what was done. Running it twice is harmless. For a superuser';

create or replace function push.set_shard(p_shard int, p_is_off boolean, p_note text default null) returns text
language plpgsql volatile security definer set search_path = push, pg_temp as $$
begin
  if not p_is_off and exists (select from push_router.shard s where s.shard = p_shard and s.is_off and s.note = 'dead') then
    raise exception using errcode = 'object_not_in_prerequisite_state', message = format('shard %s is marked as dead', p_shard),
      hint = 'Write shard, or closed, into the file and run deploy/plproxy/shards.sh FILE apply: it copies the devices to it that it has missed.';
  end if;
  update push_router.shard s set is_off = p_is_off,
    note = case when s.is_off and s.note = 'dead' then s.note when p_is_off then left(p_note, 500) end
    where s.shard = p_shard;
  if not found then
    raise exception using errcode = 'no_data_found', message = format('there is no shard %s', p_shard), hint = 'push.shards lists them.';
  end if;
  return format('shard %s is %s', p_shard, case when p_is_off then 'not asked any more by this router' else 'asked again' end);
end
$$;
comment on function push.set_shard is
  'stops this router from asking a shard, so that its calls fail at once instead of waiting for a server that accepts connections and '
  'does not answer; or lets it ask again. p_shard: its number; p_is_off: true stops; p_note: why';

-- Errors ----------------------------------------------------------------------------------------------------------------

create or replace function push_router.fail(p_shard int, p_state text, p_message text, p_detail text, p_hint text) returns void
language plpgsql stable set search_path = push, pg_temp as $$
declare
  v_name   text := coalesce((select format('shard %s (%s)', s.shard, s.name) from push_router.shard s where s.shard = p_shard),
    case when p_shard is null then 'a shard' else format('shard %s', p_shard) end);
  -- How PL/Proxy shows the error of a shard: function(arguments): [database] REMOTE severity: message.
  v_remote text := substring(p_message from '^[a-z_.]+\([0-9]+\): \[[^]]*\] REMOTE [^:]+: (.*)$');
begin
  if v_remote is not null then
    raise exception using errcode = p_state, message = v_remote,
      detail = concat_ws(E'\n', nullif(regexp_replace(p_detail, '^Remote detail: ', ''), ''), format('Said by %s.', v_name)),
      hint = coalesce(regexp_replace(p_hint, '^Remote hint: ', ''), '');
  elsif p_message like 'PL/Proxy function %' then
    raise exception using errcode = 'connection_failure',
      message = format('%s does not answer: %s', v_name, btrim(regexp_replace(regexp_replace(
        p_message, '^PL/Proxy function [^:]+: (\[[^]]*\] )?', ''), '\s+', ' ', 'g'))),
      hint = 'Other shards are not affected. What was sent may have been done: repeat it when the shard is back, a call that was '
        'enqueued is then a duplicate. push.shards says which shards answer; push.set_shard stops asking one.';
  elsif p_state = '57014' and coalesce(p_hint, '') = '' then
    raise exception using errcode = p_state, message = case when p_shard is null then p_message else format('%s: %s', v_name, p_message) end,
      hint = case when p_shard is null then 'If it was a time limit, a shard accepts connections and does not answer. An operator finds it with: '
          'select * from push_router.look(N); then: select push.set_shard(N, true).'
        else format('If it was a time limit, this shard accepts connections and does not answer: select push.set_shard(%s, true) stops asking it.',
          p_shard) end;
  elsif p_state = '42704' and p_message like 'user mapping not found%' then
    raise exception using errcode = p_state, message = p_message,
      hint = format('As a superuser: create user mapping for %I server %s options (user %L, password ...);', current_user,
        coalesce(substring(p_message from 'server "([a-z_]+)"'), 'push'), current_user);
  end if;
  raise exception using errcode = p_state, message = p_message, detail = coalesce(p_detail, ''), hint = coalesce(p_hint, '');
end
$$;
comment on function push_router.fail is
  'raises the error of a shard again: its own errors as the shard gives them, and the others with the name of the shard and what to do';

create or replace function push_router.ask(p_shard int) returns int
language plpgsql stable security definer set search_path = push, pg_temp as $$
declare
  v_shard push_router.shard;
begin
  select s.* into v_shard from push_router.shard s where s.shard = p_shard;
  if not found or p_shard >= push_router.server_shards() then
    raise exception using errcode = 'object_not_in_prerequisite_state', message = case when p_shard is null then 'this router has no map'
        else format('this router does not know shard %s', p_shard) end,
      hint = 'deploy/plproxy/shards.sh tells it of the shards and their map.';
  elsif v_shard.is_off then
    raise exception using errcode = 'connection_failure',
      message = format('shard %s (%s) is switched off on this router%s', p_shard, v_shard.name, coalesce(': ' || v_shard.note, '')),
      hint = 'Other shards are not affected. ' || case when v_shard.note = 'dead' then 'It is dead in the file of deploy/plproxy/shards.sh.'
        else format('select push.set_shard(%s, false) switches it on.', p_shard) end;
  end if;
  return p_shard;
end
$$;
comment on function push_router.ask is 'the number of a shard that may be asked; raises an error if it may not. p_shard: its number';

create or replace function push_router.greet(shard int) returns int language plproxy as $$
  cluster 'push'; run on shard; select push.own_shard();
$$;
create or replace function push_router.silent_one(p_shards int[]) returns int
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shard int;
begin
  for v_shard in select distinct s from unnest(p_shards) s order by 1 loop
    begin
      perform push_router.greet(v_shard);
    exception when others then
      return v_shard;
    end;
  end loop;
  return null;
end
$$;
comment on function push_router.silent_one is 'the first of these shards that does not answer';

-- Where a call is -------------------------------------------------------------------------------------------------------

create or replace function push_router.find_calls(shard int, call_ids text[], apps text[]) returns setof int language plproxy as $$
  cluster 'push'; run on shard; select f as n from push.find_calls(call_ids, apps) f;
$$;

create or replace function push_router.has_call(p_shard int, p_call_id text, p_app text) returns boolean
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  return exists (select from push_router.find_calls(push_router.ask(p_shard), array[p_call_id], array[p_app]));
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(p_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push_router.has_call is
  'whether a shard has this call, as far as the caller may know it. p_app: null stands for all apps of the caller';

-- Most slots never moved, and then nothing is asked. If one did, and neither owner has the call, the answer is the current owner,
-- unless one of them could not be asked: then the call may be there.
create or replace function push_router.place_of(p_call_id text, p_app text) returns int
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shards  int[] := push.shards_of(p_call_id);
  v_shard   int;
  v_state   text;
  v_message text;
  v_hint    text;
begin
  if cardinality(v_shards) > 1 then
    foreach v_shard in array v_shards loop
      begin
        if push_router.has_call(v_shard, p_call_id, p_app) then
          return v_shard;
        end if;
      exception when connection_failure then
        get stacked diagnostics v_state = returned_sqlstate, v_message = message_text, v_hint = pg_exception_hint;
      end;
    end loop;
    if v_state is not null then
      raise exception using errcode = v_state, message = v_message, hint = v_hint;
    end if;
  end if;
  return push_router.ask(v_shards[1]);
end
$$;
comment on function push_router.place_of is 'the shard in which a call is looked for. p_call_id, p_app: of the call; app may be null';

-- A shard that lost a slot refuses new calls of it, so what it does not have now it never will. An hour is longer than anyone
-- repeats an enqueueing, and longer than a call rings.
create or replace function push_router.place_for(p_call_id text, p_app text) returns int
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shards int[] := case when p_call_id is not null then push.shards_of(p_call_id, '1 hour') end;
  v_shard  int;
begin
  if p_call_id is null then
    -- The shard gives the notification an id that belongs there. (A call without an id is refused there.)
    return (
      select s.shard from push_router.shard s join push.shard_map m on m.until is null
      where not s.is_off and array_position(m.shards, s.shard::smallint) is not null
      order by random() limit 1);
  end if;
  foreach v_shard in array v_shards[2:] loop
    -- An operator who switched a shard off does not want to wait for it: a call that it has may then be enqueued once more.
    continue when (select s.is_off from push_router.shard s where s.shard = v_shard);
    if push_router.has_call(v_shard, p_call_id, p_app) then
      return v_shard;
    end if;
  end loop;
  return push_router.ask(v_shards[1]);
end
$$;
comment on function push_router.place_for is
  'the shard in which a call is enqueued: where it is already, else the owner of its slot. p_call_id, p_app: of the call';

create or replace function push_router.new_id() returns text
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_id text;
begin
  for v_try in 1..100 loop
    v_id := gen_random_uuid();
    exit when not exists (select from push_router.shard s where s.shard = push.shard_of(v_id) and s.is_off);
  end loop;
  return v_id;
end
$$;
comment on function push_router.new_id is 'a UUID for a message without an id; of a shard that is not switched off, if there is one';

-- Enqueueing ------------------------------------------------------------------------------------------------------------

create or replace function push_router.enqueue_call(
  shard int, payload jsonb, recipients jsonb, app text, ring_seconds int, kind text, traceparent text,
  out outbox_id bigint, out deliveries int, out duplicate boolean, out skipped int, out call_id text
) returns setof record language plproxy as $$
  cluster 'push'; run on shard;
  select e.outbox_id, e.deliveries, e.duplicate, e.skipped, e.call_id
    from push.enqueue_call(payload, recipients, app, ring_seconds, kind, traceparent) e;
$$;

create or replace function push.enqueue_call(
  payload jsonb, recipients jsonb, app text default 'default', ring_seconds int default null,
  kind text default 'incoming_call', traceparent text default null
) returns table (outbox_id bigint, deliveries int, duplicate boolean, skipped int, call_id text)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_until   timestamptz := clock_timestamp() + interval '5 s';
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  loop
    v_shard := push_router.place_for(push.given_call_id(enqueue_call.kind, enqueue_call.payload), coalesce(enqueue_call.app, 'default'));
    begin
      return query select * from push_router.enqueue_call(v_shard, enqueue_call.payload, enqueue_call.recipients, enqueue_call.app,
        enqueue_call.ring_seconds, enqueue_call.kind, enqueue_call.traceparent);
      return;
    exception when query_canceled or others then
      get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
      -- The slot is moving: this router is about to get the new map.
      if sqlstate <> '22S01' or clock_timestamp() > v_until then
        perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
      end if;
    end;
    perform pg_sleep(0.05);
  end loop;
end
$$;
comment on function push.enqueue_call is
  'enqueues one call, or one notification, on the shard that owns its id, and commits it there. Arguments and result: as on a shard';

create or replace function push_router.find_where(shard int[], positions int[], call_ids text[], apps text[], out "position" int, out place int)
returns setof record language plproxy as $$
  cluster 'push'; split all; run on shard;
  select (positions::int[])[f + 1] as "position", (shard::int[])[f + 1] as place from push.find_calls(call_ids::text[], apps::text[]) f;
$$;

create or replace function push_router.enqueue_batch(
  shard int[], positions int[], calls jsonb[], out n int, out outbox_id bigint, out call_id text, out duplicate boolean
) returns setof record language plproxy as $$
  cluster 'push'; split all; run on shard;
  select (positions::int[])[b.n + 1] as n, b.outbox_id, b.call_id, b.duplicate from push.enqueue_batch(calls::jsonb[]) b;
$$;

create or replace function push.enqueue_batch(calls jsonb[]) returns table (n int, outbox_id bigint, call_id text, duplicate boolean)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_until     timestamptz := clock_timestamp() + interval '5 s';
  v_calls     jsonb[];
  v_unnamed   int[];
  v_ids       text[];
  v_shards    int[];
  v_moved     int[];
  v_earlier   int[];
  v_found     int[];
  v_message   text;
  v_detail    text;
  v_hint      text;
begin
  -- A message without an id gets it here and not on a shard: if the batch is repeated below, it must not be enqueued again.
  v_unnamed := array(
    select c.ordinal::int - 1 from unnest(calls) with ordinality c(call, ordinal)
    where push.is_message(c.call ->> 'kind')
      and coalesce(c.call ->> 'call_id', push.given_call_id(c.call ->> 'kind', c.call -> 'payload')) is null);
  v_calls := array(
    select case when c.ordinal - 1 = any (v_unnamed) then c.call || jsonb_build_object('call_id', push_router.new_id()) else c.call end
    from unnest(calls) with ordinality c(call, ordinal) order by c.ordinal);
  v_ids := array(
    select coalesce(c.call ->> 'call_id', push.given_call_id(coalesce(c.call ->> 'kind', 'incoming_call'), c.call -> 'payload'))
    from unnest(v_calls) with ordinality c(call, ordinal) order by c.ordinal);
  loop
    begin
      v_shards := array(
        select case when i.id is null then push_router.place_for(null, null) else push_router.ask(push.shard_of(i.id)) end
        from unnest(v_ids) with ordinality i(id, ordinal) order by i.ordinal);
      -- Calls of slots that moved lately may be with an earlier owner.
      select array_agg(i.ordinal::int order by i.ordinal), array_agg(s.shard order by i.ordinal) into v_moved, v_earlier
        from unnest(v_ids) with ordinality i(id, ordinal)
        cross join lateral unnest((push.shards_of(i.id, '1 hour'))[2:]) s(shard)
        where not (select x.is_off from push_router.shard x where x.shard = s.shard);
      if v_moved is not null then
        for v_found in
          select array[f."position", f.place] from push_router.find_where(
            array(select push_router.ask(s) from unnest(v_earlier) s), v_moved,
            array(select v_ids[p] from unnest(v_moved) with ordinality m(p, o) order by o),
            array(select coalesce(v_calls[p] ->> 'app', 'default') from unnest(v_moved) with ordinality m(p, o) order by o)) f
        loop
          v_shards[v_found[1]] := v_found[2];
        end loop;
      end if;
      return query select b.n, b.outbox_id, b.call_id, b.duplicate and b.n <> all (v_unnamed)
        from push_router.enqueue_batch(v_shards, array(select generate_series(0, cardinality(v_calls) - 1)), v_calls) b order by b.n;
      return;
    exception when query_canceled or others then
      get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
      if sqlstate <> '22S01' or clock_timestamp() > v_until then
        if (select count(distinct s) from unnest(v_shards) s) > 1 then
          v_hint := regexp_replace(v_hint, 'Nothing of this statement was (enqueued|done)\.',
            'Calls of other shards may have been enqueued: correct the batch and repeat all of it, what was enqueued is then a duplicate.');
        end if;
        perform push_router.fail(coalesce((select min(s) from unnest(v_shards) s having min(s) = max(s)),
          case when v_message like 'PL/Proxy function %' then push_router.silent_one(v_shards) end), sqlstate, v_message, v_detail, v_hint);
      end if;
    end;
    perform pg_sleep(0.05);
  end loop;
end
$$;
comment on function push.enqueue_batch is
  'enqueues many calls: each shard gets its own in one statement, all shards at the same time. An error on one shard does not undo what '
  'others did: repeat the whole batch, what was enqueued is then a duplicate. calls, and the result: as on a shard';

-- Rows, for producers that insert them. A row is sent to its shard at once; COPY and INSERT of many rows send one after another.
-- Reading, updating and deleting would read every shard, and is refused.
create or replace function push_router.no_rows() returns boolean language plpgsql stable as $$
begin
  raise exception using errcode = 'feature_not_supported', message = 'push.outbox of the router can only be inserted into',
    hint = 'push.call(call_id) shows a call; push.answer_call, push.decline_call and push.end_call change one.';
end
$$;
create or replace view push.outbox as
select null::bigint as id, null::text as app, null::text as kind, null::text as call_id, null::jsonb as payload, null::jsonb as recipients,
  null::int as ring_seconds, null::text as state, null::timestamptz as created_at, null::timestamptz as deadline_at,
  null::text as answered_by, null::timestamptz as ended_at, null::text as end_reason, null::text as traceparent
where push_router.no_rows();
comment on view push.outbox is 'takes rows as push.outbox of a shard does, and sends each to the shard that owns its id; has no rows';


-- An error in this trigger would print the line of a COPY, with its tokens. So the first error of a statement is kept until all rows
-- have been read, no further row is sent, and push_router.raise_row_fault raises the error.
create or replace function push_router.insert_call() returns trigger
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_made    record;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  if coalesce(current_setting('push_router.row_fault', true), '') <> '' then
    return null;
  end if;
  select b.* into v_made from push.enqueue_batch(array[jsonb_strip_nulls(jsonb_build_object('app', new.app, 'kind', new.kind, 'call_id',
      new.call_id, 'ring_seconds', new.ring_seconds, 'traceparent', new.traceparent))
    || jsonb_build_object('payload', new.payload, 'recipients', new.recipients)]) b;
  if v_made.duplicate then
    return null;
  end if;
  new.id := v_made.outbox_id;
  new.call_id := v_made.call_id;
  new.state := case when push.is_call(coalesce(new.kind, 'incoming_call')) then 'ringing' else 'ended' end;
  return new;
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform set_config('push_router.row_fault', jsonb_build_object('state', sqlstate, 'message', v_message, 'detail', v_detail,
    'hint', v_hint)::text, true);
  return null;
end
$$;
create or replace trigger insert_call instead of insert on push.outbox for each row execute function push_router.insert_call();

create or replace function push_router.forget_row_fault() returns trigger language plpgsql set search_path = push, pg_temp as $$
begin
  perform set_config('push_router.row_fault', '', true);
  return null;
end
$$;
create or replace trigger forget_row_fault before insert on push.outbox for each statement execute function push_router.forget_row_fault();

create or replace function push_router.raise_row_fault() returns trigger language plpgsql set search_path = push, pg_temp as $$
declare
  v_fault jsonb := nullif(current_setting('push_router.row_fault', true), '');
begin
  if v_fault is not null then
    perform set_config('push_router.row_fault', '', true);
    raise exception using errcode = v_fault ->> 'state', message = v_fault ->> 'message', detail = v_fault ->> 'detail',
      hint = regexp_replace(v_fault ->> 'hint', '^Nothing of this statement was (enqueued|done)\.',
        'Rows before this one are enqueued, and those after it are not: correct it and repeat all of them, what was enqueued is then a duplicate.');
  end if;
  return null;
end
$$;
create or replace trigger raise_row_fault after insert on push.outbox for each statement execute function push_router.raise_row_fault();

-- Never runs: it has Postgres look for the rows, which says what to do instead.
create or replace function push_router.keep_call() returns trigger language plpgsql as $$ begin return null; end $$;
create or replace trigger keep_call instead of update or delete on push.outbox for each row execute function push_router.keep_call();

-- One call ---------------------------------------------------------------------------------------------------------------

create or replace function push_router.compare_call(shard int, call_id text, payload jsonb, recipients jsonb, app text,
  out state text, out payload_differs boolean, out recipients_differ boolean
) returns setof record language plproxy as $$
  cluster 'push'; run on shard;
  select f.state, f.payload_differs, f.recipients_differ from push.compare_call(call_id, payload, recipients, app) f;
$$;
create or replace function push.compare_call(call_id text, payload jsonb, recipients jsonb, app text default null)
returns table (state text, payload_differs boolean, recipients_differ boolean)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(compare_call.call_id, compare_call.app);
  return query select * from push_router.compare_call(v_shard, compare_call.call_id, compare_call.payload, compare_call.recipients, compare_call.app);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.compare_call is 'compares one call, wherever it is. Arguments and result: as on a shard';

create or replace function push_router.add_recipients(shard int, call_id text, recipients jsonb, app text,
  out outbox_id bigint, out deliveries int, out skipped int, out skipped_recipients jsonb
) returns setof record language plproxy as $$
  cluster 'push'; run on shard;
  select f.outbox_id, f.deliveries, f.skipped, f.skipped_recipients from push.add_recipients(call_id, recipients, app) f;
$$;
create or replace function push.add_recipients(call_id text, recipients jsonb, app text default null)
returns table (outbox_id bigint, deliveries int, skipped int, skipped_recipients jsonb)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(add_recipients.call_id, add_recipients.app);
  return query select * from push_router.add_recipients(v_shard, add_recipients.call_id, add_recipients.recipients, add_recipients.app);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.add_recipients is 'people join one call, wherever it is. Arguments and result: as on a shard';

create or replace function push_router.answer_call(
  shard int, call_id text, user_id text, app text, device text
) returns boolean language plproxy as $$
  cluster 'push'; run on shard; select push.answer_call(call_id, user_id, app, device);
$$;
create or replace function push.answer_call(call_id text, user_id text default null, app text default null, device text default null)
returns boolean
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(answer_call.call_id, answer_call.app);
  return push_router.answer_call(v_shard, answer_call.call_id, answer_call.user_id, answer_call.app, answer_call.device);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.answer_call is 'answers one call, wherever it is. Arguments and result: as on a shard';

create or replace function push_router.decline_call(
  shard int, call_id text, user_id text, app text, reason text, device text
) returns boolean language plproxy as $$
  cluster 'push'; run on shard; select push.decline_call(call_id, user_id, app, reason, device);
$$;
create or replace function push.decline_call(
  call_id text, user_id text, app text default null, reason text default 'declined', device text default null
)
returns boolean
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(decline_call.call_id, decline_call.app);
  return push_router.decline_call(v_shard, decline_call.call_id, decline_call.user_id, decline_call.app, decline_call.reason, decline_call.device);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.decline_call is 'declines one call, wherever it is. Arguments and result: as on a shard';

create or replace function push_router.end_call(shard int, call_id text, reason text, app text) returns boolean language plproxy as $$
  cluster 'push'; run on shard; select push.end_call(call_id, reason, app);
$$;
create or replace function push.end_call(call_id text, reason text default 'ended', app text default null)
returns boolean
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(end_call.call_id, end_call.app);
  return push_router.end_call(v_shard, end_call.call_id, end_call.reason, end_call.app);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.end_call is 'ends one call, wherever it is. Arguments and result: as on a shard';

create or replace function push_router.report_ringing(
  shard int, call_id text, user_id text, app text
) returns boolean language plproxy as $$
  cluster 'push'; run on shard; select push.report_ringing(call_id, user_id, app);
$$;
create or replace function push.report_ringing(call_id text, user_id text, app text default null)
returns boolean
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(report_ringing.call_id, report_ringing.app);
  return push_router.report_ringing(v_shard, report_ringing.call_id, report_ringing.user_id, report_ringing.app);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.report_ringing is 'notes that a phone rings, for one call, wherever it is. Arguments and result: as on a shard';

create or replace function push_router.call(
  shard int, call_id text, app text, after_n int, devices int
) returns jsonb language plproxy as $$
  cluster 'push'; run on shard; select push.call(call_id, app, after_n, devices);
$$;
create or replace function push.call(call_id text, app text default null, after_n int default null, devices int default null)
returns jsonb
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(call.call_id, call.app);
  return push_router.call(v_shard, call.call_id, call.app, call.after_n, call.devices);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.call is 'the state of one call, wherever it is. Arguments and result: as on a shard';

create or replace function push_router.timeline(shard int, call_id text, app text, first_n int, last_n int,
  out at timestamptz, out ms numeric, out event text, out provider text, out kind text,
  out user_id text, out attempt int, out status int, out reason text, out device text,
  out trace_id text, out field text
) returns setof record language plproxy as $$
  cluster 'push'; run on shard;
  select f.at, f.ms, f.event, f.provider, f.kind,
    f.user_id, f.attempt, f.status, f.reason, f.device, f.trace_id, f.field
    from push.timeline(call_id, app, first_n, last_n) f;
$$;
create or replace function push.timeline(call_id text, app text default null, first_n int default null, last_n int default null)
returns table (
  at timestamptz, ms numeric, event text, provider text, kind text,
  user_id text, attempt int, status int, reason text, device text, trace_id text, field text
)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(timeline.call_id, timeline.app);
  return query select * from push_router.timeline(v_shard, timeline.call_id, timeline.app, timeline.first_n, timeline.last_n);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.timeline is 'the events of one call, wherever it is. Arguments and result: as on a shard';

create or replace function push_router.skipped_recipients(shard int, p_outbox_id bigint,
  out user_id text, out reason text, out field text, out remedy text
) returns setof record language plproxy as $$
  cluster 'push'; run on shard; select f.user_id, f.reason, f.field, f.remedy from push.skipped_recipients(p_outbox_id) f;
$$;
create or replace function push.skipped_recipients(p_outbox_id bigint)
returns table (user_id text, reason text, field text, remedy text)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.ask((skipped_recipients.p_outbox_id % 1024)::int);
  return query select * from push_router.skipped_recipients(v_shard, skipped_recipients.p_outbox_id);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.skipped_recipients is
  'the recipients of a call that were skipped. The number of a call names its shard. Arguments and result: as on a shard';

create or replace function push_router.requeue(shard int, call_id text, app text,
  out requeued int, out message text
) returns setof record language plproxy as $$
  cluster 'push'; run on shard; select f.requeued, f.message from push.requeue(call_id, app) f;
$$;
create or replace function push.requeue(call_id text, app text default null)
returns table (requeued int, message text)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(requeue.call_id, requeue.app);
  return query select * from push_router.requeue(v_shard, requeue.call_id, requeue.app);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.requeue is 'tries again one call, wherever it is. Arguments and result: as on a shard';

create or replace function push_router.void_call(shard int, call_id text, reason text, app text,
  out voided int, out message text
) returns setof record language plproxy as $$
  cluster 'push'; run on shard; select f.voided, f.message from push.void_call(call_id, reason, app) f;
$$;
create or replace function push.void_call(call_id text, reason text default 'voided', app text default null)
returns table (voided int, message text)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_shard   int;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  v_shard := push_router.place_of(void_call.call_id, void_call.app);
  return query select * from push_router.void_call(v_shard, void_call.call_id, void_call.reason, void_call.app);
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(v_shard, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.void_call is 'cancels one call, wherever it is. Arguments and result: as on a shard';

-- Every shard -----------------------------------------------------------------------------------------------------------
--
-- All shards are asked at the same time (run on all). If one of them fails, each is asked on its own, so that the others are reached.
-- Reading has a server of its own, push_ops, whose connections live for a second. A shard that is frozen then meets new connections,
-- which statement_timeout ends. It does not end what waits on an open connection, because PL/Proxy first asks the frozen server to
-- cancel.

create or replace function push_router.ping(shard int, out number int, out generation int) returns setof record language plproxy as $$
  cluster 'push_ops'; run on shard;
  select push.own_shard() as number, push.shard_map_number() as generation;
$$;

create or replace function push_router.look(p_shard int, out map int, out trouble text)
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_ping record;
begin
  begin
    select p.* into v_ping from push_router.ping(push_router.ask(p_shard)) p;
  exception when others then
    begin
      perform push_router.fail(p_shard, sqlstate, sqlerrm, null, null);
    exception when others then
      trouble := sqlerrm;
      return;
    end;
  end;
  map := v_ping.generation;
  if v_ping.number is distinct from p_shard then
    trouble := format('option p%s of the server push leads to %s', p_shard, coalesce('shard ' || v_ping.number, 'a database that is no shard'));
  end if;
end
$$;
comment on function push_router.look is 'the map that a shard has, or why it cannot be asked; null: it answers. p_shard: its number';

create or replace view push.shards as
select s.shard, s.name, coalesce(cardinality(array_positions(m.shards, s.shard::smallint)), 0) as slots, p.map, p.trouble is null as answers,
  coalesce(p.trouble, case when p.map is distinct from m.generation
    then format('it has map %s, and this router map %s: deploy/plproxy/shards.sh FILE apply', p.map, m.generation) end) as trouble
from push_router.shard s
left join push.shard_map m on m.until is null
cross join lateral (select * from push_router.look(s.shard) offset 0) p
order by s.shard;
comment on view push.shards is
  'one row for each shard: how many of the 1,024 slots are its own, the number of the map it has, and whether it answers';

create or replace function push_router.read_all(what text, out shard int, out data jsonb) returns setof record language plproxy as $$
  cluster 'push_ops'; run on all;
  select push.own_shard() as shard, r.data from (
    select to_jsonb(v) as data from push.summary v where what::text = 'summary'
    union all select to_jsonb(v) from push.lanes v where what::text = 'lanes'
    union all select to_jsonb(v) from push.stuck v where what::text = 'stuck'
    union all select to_jsonb(v) from push.failures v where what::text = 'failures'
    union all select to_jsonb(v) from push.replicas v where what::text = 'replicas'
    union all select to_jsonb(v) from push.health v where what::text = 'health'
    union all select to_jsonb(v) from (select * from push.audit order by id desc limit 1000) v where what::text = 'audit') r;
$$;
create or replace function push_router.read_one(number int, what text, out shard int, out data jsonb)
returns setof record language plproxy as $$
  cluster 'push_ops'; run on number;
  select push.own_shard() as shard, r.data from (
    select to_jsonb(v) as data from push.summary v where what::text = 'summary'
    union all select to_jsonb(v) from push.lanes v where what::text = 'lanes'
    union all select to_jsonb(v) from push.stuck v where what::text = 'stuck'
    union all select to_jsonb(v) from push.failures v where what::text = 'failures'
    union all select to_jsonb(v) from push.replicas v where what::text = 'replicas'
    union all select to_jsonb(v) from push.health v where what::text = 'health'
    union all select to_jsonb(v) from (select * from push.audit order by id desc limit 1000) v where what::text = 'audit') r;
$$;

create or replace function push_router.read(p_what text) returns table (shard int, data jsonb)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_shard   int;
  v_trouble text;
begin
  if not exists (select from push_router.shard s where s.is_off) then
    begin
      return query select r.shard, r.data from push_router.read_all(p_what) r;
      return;
    exception
      when query_canceled then
        raise exception using errcode = 'query_canceled', message = sqlerrm,
          hint = 'If it was a time limit, a shard accepts connections and does not answer. Find it with: select * from push_router.look(N); then: '
            'select push.set_shard(N, true).';
      when others then
        if sqlerrm not like 'PL/Proxy function %' then
          perform push_router.fail(null, sqlstate, sqlerrm, null, null);
        end if;
    end;
  end if;
  for v_shard in select s.shard from push_router.shard s order by 1 loop
    v_trouble := (push_router.look(v_shard)).trouble;
    if v_trouble is null then
      return query select r.shard, r.data from push_router.read_one(v_shard, p_what) r;
    else
      raise warning '%', v_trouble using hint = 'Its rows are missing here.';
      return query select v_shard, null::jsonb;
    end if;
  end loop;
end
$$;
comment on function push_router.read is
  'the rows of a view on every shard. A shard that does not answer has one row with null for data, and a warning says why';

create or replace view push.summary as
select r.app, r.provider, r.kind, r.state, sum(r.count)::bigint as count, max(r.oldest_age) as oldest_age, min(r.least_left) as least_left
from push_router.read('summary') x cross join lateral jsonb_to_record(x.data) r(app text, provider text, kind text, state text, count bigint,
  oldest_age interval, least_left interval)
where x.data is not null
group by 1, 2, 3, 4;
comment on view push.summary is 'deliveries that are owed on all shards that answer; a warning names the others';

create or replace view push.lanes as
select r.*, x.shard, x.data ->> 'channel' as channel
from push_router.read('lanes') x cross join lateral jsonb_to_record(x.data) r(id smallint, app text, provider text, paused boolean, note text,
  window_size int, capacity int, in_flight int, circuit text, throttled_until timestamptz, rate_per_second int, ready bigint, waiting bigint,
  claimed bigint, oldest_age interval, invalidation_held_at timestamptz, invalidation_note text, updated_at timestamptz)
where x.data is not null;
comment on view push.lanes is 'the lanes of each shard that answers, with its number; a warning names the others';

create or replace view push.stuck as
select r.*, x.shard
from push_router.read('stuck') x cross join lateral jsonb_to_record(x.data) r(outbox_id bigint, n int, app text, call_id text, provider text,
  kind text, user_id text, state text, why text, age interval, "left" interval, last_reason text, gateway int)
where x.data is not null;
comment on view push.stuck is 'the overdue deliveries of each shard that answers, with its number; a warning names the others';

create or replace view push.failures as
select r.*, x.shard
from push_router.read('failures') x cross join lateral jsonb_to_record(x.data) r(app text, provider text, kind text, outcome text, reason text,
  count bigint, last_at timestamptz, example_call_id text, example_device text)
where x.data is not null;
comment on view push.failures is 'the failures of the last hour of each shard that answers, with its number; a warning names the others';

create or replace view push.replicas as
select r.*, x.shard
from push_router.read('replicas') x cross join lateral jsonb_to_record(x.data) r(id int, name text, version text, alive boolean,
  started_at timestamptz, heartbeat_at timestamptz, silence interval, claimed bigint, ended_at timestamptz, ended_reason text)
where x.data is not null;
comment on view push.replicas is 'the lives of gateways of each shard that answers, with its number; a warning names the others';

create or replace view push.health as
select coalesce(r.item, 'shard') as item, case when x.data is null then 'does not answer' else r.value end as value,
  coalesce(r.state, 'bad') as state,
  coalesce(r.hint, 'Its calls do not ring, those of other shards do: push.shards says why. What was sent to it may be repeated later.') as hint,
  x.shard
from push_router.read('health') x left join lateral jsonb_to_record(x.data) r(item text, value text, state text, hint text) on true;
comment on view push.health is 'the checks of each shard, with its number; one that does not answer is bad';

create or replace view push.audit as
select r.*, x.shard
from push_router.read('audit') x cross join lateral jsonb_to_record(x.data) r(id bigint, at timestamptz, who text, action text, target text,
  detail jsonb, via text, operator text)
where x.data is not null;
comment on view push.audit is 'the last 1,000 interventions on each shard that answers, with its number; a warning names the others';

create or replace function push_router.oldest_ringing(shard int, p_app text) returns interval language plproxy as $$
  cluster 'push_ops'; run on shard; select push.oldest_ringing(p_app);
$$;
create or replace function push.oldest_ringing(p_app text default null) returns interval
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shard  int;
  v_oldest interval;
begin
  for v_shard in select s.shard from push_router.shard s order by 1 loop
    begin
      v_oldest := greatest(v_oldest, push_router.oldest_ringing(push_router.ask(v_shard), p_app));
    exception when others then
      raise warning '%', coalesce((push_router.look(v_shard)).trouble, sqlerrm);
    end;
  end loop;
  return v_oldest;
end
$$;
comment on function push.oldest_ringing is 'as on a shard, over all shards that answer; a warning names the others';

-- What is written to every shard: devices, because calls are spread by call and not by user, and what operators switch. Each
-- function may be repeated, and does what it can: shards that answer have it. A shard that is marked as dead needs no devices:
-- when it returns, deploy/plproxy/shards.sh copies them.
create or replace function push_router.register_device(
  shard int, user_id text, app text, provider text, token text, environment text, platform text, locale text, voip boolean
) returns boolean language plproxy as $$
  cluster 'push'; run on shard;
  select push.register_device(user_id, app, provider, token, environment, platform, locale, voip) is not null;
$$;
create or replace function push_router.drop_device(shard int, app text, provider text, token text) returns boolean language plproxy as $$
  cluster 'push'; run on shard; select push.drop_device(app, provider, token);
$$;
create or replace function push_router.enable_device(shard int, app text, provider text, token text, enabled boolean) returns boolean
language plproxy as $$
  cluster 'push'; run on shard; select push.enable_device(app, provider, token, enabled);
$$;

create or replace function push.register_device(
  user_id text, app text, provider text, token text, environment text default 'production',
  platform text default null, locale text default null, voip boolean default true
) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_shard   int;
  v_failed  int;
  v_state   text;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  for v_shard in select s.shard from push_router.shard s where not (s.is_off and s.note is not distinct from 'dead') order by 1 loop
    begin
      perform push_router.register_device(push_router.ask(v_shard), user_id, app, provider, token, environment, platform, locale, voip);
    exception when query_canceled then
      perform push_router.fail(v_shard, sqlstate, sqlerrm, null, null);
    when others then
      get stacked diagnostics v_state = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
        v_hint = pg_exception_hint;
      v_failed := v_shard;
    end;
  end loop;
  if v_failed is not null then
    perform push_router.fail(v_failed, v_state, v_message, v_detail, v_hint);
  end if;
end
$$;
comment on function push.register_device is
  'registers a device on every shard. After an error, shards that answer have it: call it again, as at every login. Arguments: as on '
  'a shard';

create or replace function push_router.change_device(app text, provider text, token text, enabled boolean) returns boolean
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_found   boolean := false;
  v_shard   int;
  v_failed  int;
  v_state   text;
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  for v_shard in select s.shard from push_router.shard s where not (s.is_off and s.note is not distinct from 'dead') order by 1 loop
    begin
      if enabled is null then
        v_found := push_router.drop_device(push_router.ask(v_shard), app, provider, token) or v_found;
      else
        v_found := push_router.enable_device(push_router.ask(v_shard), app, provider, token, enabled) or v_found;
      end if;
    exception when query_canceled then
      perform push_router.fail(v_shard, sqlstate, sqlerrm, null, null);
    when others then
      get stacked diagnostics v_state = returned_sqlstate, v_message = message_text, v_detail = pg_exception_detail,
        v_hint = pg_exception_hint;
      v_failed := v_shard;
    end;
  end loop;
  if v_failed is not null then
    perform push_router.fail(v_failed, v_state, v_message, v_detail, v_hint);
  end if;
  return v_found;
end
$$;
comment on function push_router.change_device is
  'sets push.devices.enabled on every shard; null drops the device. Returns false if no shard has it';

create or replace function push.drop_device(app text, provider text, token text) returns boolean
language sql volatile set search_path = push, pg_temp as $$
  select push_router.change_device(app, provider, token, null)
$$;
comment on function push.drop_device is
  'drops a device on every shard. After an error, shards that answer have dropped it: call it again. Arguments and result: as on a shard';

create or replace function push.enable_device(app text, provider text, token text, enabled boolean default true) returns boolean
language sql volatile set search_path = push, pg_temp as $$
  select push_router.change_device(app, provider, token, coalesce(enabled, true))
$$;
comment on function push.enable_device is
  'the user''s switch, on every shard. After an error, shards that answer have set it: call it again. Arguments and result: as on a shard';

create or replace function push_router.dead_tokens(shard int, since timestamptz, apps text[], rows_max int,
  out app text, out user_id text, out provider text, out token text, out reason text, out died_at timestamptz
) returns setof record language plproxy as $$
  cluster 'push'; run on shard;
  select f.app, f.user_id, f.provider, f.token, f.reason, f.died_at from push.dead_tokens(since, apps, rows_max) f;
$$;
create or replace function push.dead_tokens(since timestamptz default null, apps text[] default null, rows_max int default 1000)
returns table (app text, user_id text, provider text, token text, reason text, died_at timestamptz)
language plpgsql stable set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_message text;
  v_detail  text;
  v_hint    text;
begin
  -- One statement: what a shard leaves out is later than what is returned.
  return query
    select d.app, d.user_id, d.provider, d.token, d.reason, d.died_at
    from (select s.shard from push_router.shard s where not (s.is_off and s.note is not distinct from 'dead') order by 1) s
    cross join lateral push_router.dead_tokens(push_router.ask(s.shard), dead_tokens.since, dead_tokens.apps, dead_tokens.rows_max) d
    order by d.died_at fetch first (dead_tokens.rows_max) rows with ties;
exception when query_canceled or others then
  get stacked diagnostics v_message = message_text, v_detail = pg_exception_detail, v_hint = pg_exception_hint;
  perform push_router.fail(null, sqlstate, v_message, v_detail, v_hint);
end
$$;
comment on function push.dead_tokens is
  'dead tokens of every shard: each shard notes those that its own calls have found, so a token may be there more than once. Fails if a '
  'shard does not answer. Arguments and result: as on a shard';

create or replace function push_router.switch(
  shard int, action text, app text, provider text, note text, apply boolean, out changed boolean, out message text
) returns setof record language plproxy as $$
  cluster 'push'; run on shard;
  select f.changed, f.message from (
    select (p).changed, (p).message from (select push.pause_lane(app, provider, note) as p where action::text = 'pause') x
    union all
    select (p).changed, (p).message from (select push.resume_lane(app, provider, note) as p where action::text = 'resume') x
    union all
    select (p).was_held, (p).message
      from (select push.resume_invalidation(app, provider, apply) as p where action::text = 'resume_invalidation') x) f;
$$;
create or replace function push_router.switch_all(p_action text, p_app text, p_provider text, p_note text, p_apply boolean)
returns table (changed boolean, message text)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_shard int;
begin
  for v_shard in select s.shard from push_router.shard s order by 1 loop
    begin
      return query select s.changed, format('shard %s: %s', v_shard, s.message)
        from push_router.switch(push_router.ask(v_shard), p_action, p_app, p_provider, p_note, p_apply) s;
    exception when others then
      begin
        perform push_router.fail(v_shard, sqlstate, sqlerrm, null, null);
      exception when others then
        return query select null::boolean, format('%s: nothing was done there, repeat it later', sqlerrm);
      end;
    end;
  end loop;
end
$$;
comment on function push_router.switch_all is 'does one thing on every shard, and says of each what was done';

create or replace function push.pause_lane(app text, provider text, note text default null) returns table (changed boolean, message text)
language sql volatile set search_path = push, pg_temp as $$
  select * from push_router.switch_all('pause', pause_lane.app, pause_lane.provider, pause_lane.note, null)
$$;
comment on function push.pause_lane is 'pauses a lane on every shard; one row for each, changed is null where the shard does not answer';
create or replace function push.resume_lane(app text, provider text, note text default null) returns table (changed boolean, message text)
language sql volatile set search_path = push, pg_temp as $$
  select * from push_router.switch_all('resume', resume_lane.app, resume_lane.provider, resume_lane.note, null)
$$;
comment on function push.resume_lane is 'a lane sends again on every shard; one row for each, changed is null where the shard does not answer';
create or replace function push.resume_invalidation(app text, provider text, apply boolean default false)
returns table (was_held boolean, message text)
language sql volatile set search_path = push, pg_temp as $$
  select * from push_router.switch_all('resume_invalidation', resume_invalidation.app, resume_invalidation.provider, null,
    resume_invalidation.apply)
$$;
comment on function push.resume_invalidation is
  'ends the hold of dead tokens on every shard; one row for each, was_held is null where the shard does not answer';

create or replace function push_router.erase_user(
  shard int, user_id text, app text, max_ms int, out place text, out removed bigint, out masked bigint, out waiting bigint,
  out is_complete boolean
) returns setof record language plproxy as $$
  cluster 'push'; run on shard; select f.place, f.removed, f.masked, f.waiting, f.is_complete from push.erase_user(user_id, app, max_ms) f;
$$;
create or replace function push.erase_user(user_id text, app text, max_ms int default 1000)
returns table (place text, removed bigint, masked bigint, waiting bigint, is_complete boolean)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_shard int;
begin
  for v_shard in select s.shard from push_router.shard s order by 1 loop
    begin
      return query select format('shard %s: %s', v_shard, e.place), e.removed, e.masked, e.waiting, e.is_complete
        from push_router.erase_user(push_router.ask(v_shard), erase_user.user_id, erase_user.app, erase_user.max_ms) e;
    exception when others then
      begin
        perform push_router.fail(v_shard, sqlstate, sqlerrm, null, null);
      exception when others then
        return query select sqlerrm, null::bigint, null::bigint, null::bigint, false;
      end;
    end;
  end loop;
end
$$;
comment on function push.erase_user is
  'removes or masks a user on every shard; the rows of each, and one with is_complete false for a shard that does not answer: call it '
  'again until every row is complete. Arguments: as on a shard';

-- Faults of the set-up --------------------------------------------------------------------------------------------------

create or replace view push.router_faults as
select format('option %s of the server %s contains user=, so that every login is that one on the shard', split_part(o.option, '=', 1), s.srvname)
    as fault,
  format('alter server %s options (set %s ''...''), without it', s.srvname, split_part(o.option, '=', 1)) as remedy
from pg_foreign_server s cross join lateral unnest(s.srvoptions) o(option) where s.srvname in ('push', 'push_ops') and o.option ~ 'user='
union all
select format('server %s has a user mapping for public: logins without a mapping of their own act as that one on the shards', u.srvname),
  format('drop user mapping for public server %s', u.srvname)
from pg_user_mappings u where u.srvname in ('push', 'push_ops') and u.umuser = 0
union all
select format('%s may use push-gateway here and has no user mapping for the server %s', r.rolname, w.server),
  format('create user mapping for %I server %s options (user %L, password ...)', r.rolname, w.server, r.rolname)
from pg_roles r
cross join (values ('push', 'push_enqueuer'), ('push', 'push_tenant'), ('push', 'push_ops'), ('push_ops', 'push_ops')) w(server, role)
where r.rolcanlogin and not r.rolsuper and pg_has_role(r.oid, w.role, 'member')
  and not exists (select from pg_user_mappings u where u.srvname = w.server and u.umuser = r.oid)
union
select format('the map names shard %s, which the server push does not have', s.shard), 'deploy/plproxy/shards.sh FILE apply'
from (select distinct unnest(m.shards)::int as shard from push.shard_map m where m.until is null) s
where s.shard >= push_router.server_shards()
union all
select 'this router has no map', 'deploy/plproxy/shards.sh FILE apply' where not exists (select from push.shard_map);
comment on view push.router_faults is 'what is wrong with the set-up of this router; no rows: nothing is known to be';

-- Rights ----------------------------------------------------------------------------------------------------------------

revoke execute on all functions in schema push, push_router from public;
grant execute on function push_router.server_shards, push_router.fail, push_router.ask, push_router.find_calls, push_router.has_call,
  push_router.place_of, push_router.place_for, push_router.ping, push_router.greet, push_router.look, push_router.silent_one, push_router.no_rows,
  push_router.new_id,
  push.slot_of, push.shard_of, push.shards_of, push.is_call, push.is_message, push.given_call_id,
  push_router.call, push.call, push_router.timeline, push.timeline, push_router.skipped_recipients, push.skipped_recipients
  to push_enqueuer, push_tenant, push_ops;
grant execute on function push_router.enqueue_call, push.enqueue_call, push_router.find_where, push_router.enqueue_batch,
  push.enqueue_batch, push_router.insert_call, push_router.keep_call, push_router.compare_call, push.compare_call, push_router.add_recipients,
    push.add_recipients, push_router.answer_call, push.answer_call, push_router.decline_call,
  push.decline_call, push_router.end_call, push.end_call, push_router.report_ringing, push.report_ringing, push_router.register_device,
  push.register_device, push_router.drop_device, push.drop_device, push_router.enable_device, push.enable_device, push_router.change_device,
  push_router.dead_tokens, push.dead_tokens to push_enqueuer, push_tenant;
-- UPDATE of some columns only: with a right to the whole view, a login could lock it, and all others would wait.
revoke update on push.outbox from push_enqueuer, push_tenant;
grant insert, select, update (state, answered_by, end_reason) on push.outbox to push_enqueuer, push_tenant;
grant select on push.shard_map, push_router.shard to push_enqueuer, push_tenant, push_ops;
grant select on push.shards, push.summary, push.lanes, push.stuck, push.failures, push.replicas, push.health, push.audit,
  push.router_faults to push_ops;
grant execute on function push_router.read_all, push_router.read_one, push_router.read, push_router.oldest_ringing, push.oldest_ringing,
  push_router.requeue, push.requeue, push_router.void_call, push.void_call, push_router.switch, push_router.switch_all, push.pause_lane,
  push.resume_lane, push.resume_invalidation, push_router.erase_user, push.erase_user, push.set_shard to push_ops;
do $$
begin
  if exists (select from pg_foreign_server where srvname = 'push') then
    grant usage on foreign server push to push_enqueuer, push_tenant, push_ops;
    grant usage on foreign server push_ops to push_ops;
  end if;
end
$$;
