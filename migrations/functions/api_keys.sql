-- Keys for the HTTP API. Members of push_keys create and revoke them; gateways look them up.

create or replace function push.create_api_key(
  app text, name text, scopes text[] default '{enqueue,device,read}',
  expires_at timestamptz default now() + interval '1 year', addresses cidr[] default null
) returns table (id int, key text, expires timestamptz)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_scopes  text[] := array(select distinct s from unnest(create_api_key.scopes) s where s is not null order by s);
  v_expires timestamptz := nullif(create_api_key.expires_at, 'infinity');
  v_fault   text := coalesce(push.app_fault(create_api_key.app), case
    when create_api_key.name is null or length(create_api_key.name) not between 1 and 128
      then 'name: must have 1 to 128 characters'
    when v_scopes = '{}' or not v_scopes <@ '{enqueue,device,read}'
      then 'scopes: must be some of enqueue, device and read'
    when v_expires <= clock_timestamp() then 'expires_at: must be in the future, or null'
    when create_api_key.addresses is not null and (cardinality(create_api_key.addresses) not between 1 and 64
        or array_position(create_api_key.addresses, null) is not null)
      then 'addresses: must be 1 to 64 networks, or null'
  end);
begin
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault,
      schema = 'push', table = 'api_keys', column = substring(v_fault from '^[a-z_]+');
  end if;
  id := nextval(pg_get_serial_sequence('push.api_keys', 'id'));
  -- A SHA-256 of 366 random bits. Without an extension the server has no other source of randomness.
  key := 'pgk_' || id || '_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
    || uuid_send(gen_random_uuid())), 'hex');
  expires := v_expires;
  insert into push.api_keys (id, app, name, scopes, hash, expires_at, addresses) overriding system value
    values (create_api_key.id, create_api_key.app, create_api_key.name, v_scopes, sha256(convert_to(key, 'UTF8')),
      v_expires, create_api_key.addresses);
  insert into push.audit (action, target, detail) values ('create_api_key', create_api_key.app || '/' || id,
    jsonb_build_object('name', create_api_key.name, 'scopes', v_scopes, 'expires_at', v_expires,
      'addresses', create_api_key.addresses));
  return next;
end
$$;
comment on function push.create_api_key is
  'creates a key to the HTTP API and returns it. This is the only time it is shown: only its SHA-256 is stored. app: the '
  'only app that the key gives access to; name: the holder of the key; scopes: some of enqueue, device and read; '
  'expires_at: the key is refused from this time on, by default in one year; null or infinity: it never expires; '
  'addresses: the networks that the key may be used from; null: any. Returns expires; null: never. To rotate a key, create '
  'another one, give it to the backend, then revoke the old one with push.revoke_api_key';

create or replace function push.revoke_api_key(id int) returns table (revoked boolean, message text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_key push.api_keys;
begin
  select k.* into v_key from push.api_keys k where k.id = revoke_api_key.id for no key update;
  if not found then
    raise exception using errcode = 'no_data_found', message = format('there is no API key %s', revoke_api_key.id),
      hint = 'push.keys lists them.';
  end if;
  revoked := v_key.revoked_at is null;
  update push.api_keys k set revoked_at = clock_timestamp() where k.id = v_key.id and k.revoked_at is null;
  message := format('key %s (%s, app %s) %s', v_key.id, v_key.name, v_key.app,
    case when revoked then 'is refused from now on' else 'was revoked already' end);
  insert into push.audit (action, target, detail) values ('revoke_api_key', v_key.app || '/' || v_key.id, jsonb_build_object('revoked', revoked));
  return next;
end
$$;
comment on function push.revoke_api_key is
  'revokes a key to the HTTP API: it is refused from now on. id: push.keys.id. Returns whether this changed anything, and '
  'a sentence that says what was done. Running it twice is harmless';

create or replace function push.look_up_api_key(p_id int)
returns table (id int, app text, scopes text[], hash bytea, addresses cidr[], state text)
language sql stable security definer set search_path = push, pg_temp as $$
  select k.id, k.app, k.scopes, k.hash, k.addresses,
    case when k.revoked_at is not null then 'revoked' when k.expires_at <= now() then 'expired' else 'good' end
  from push.api_keys k
  where k.id = p_id
$$;
comment on function push.look_up_api_key is
  'a key to the HTTP API, valid or not: its app, scopes and addresses, and the SHA-256 of the whole key to compare with. '
  'p_id: the number in the key. state: good, expired or revoked. No row: there is no such key';

create or replace function push.good_api_keys(p_max int)
returns table (id int, app text, scopes text[], hash bytea, addresses cidr[], state text)
language sql stable security definer set search_path = push, pg_temp as $$
  select k.id, k.app, k.scopes, k.hash, k.addresses, 'good'
  from push.api_keys k
  where k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
  order by greatest(k.created_at, k.last_used_at) desc
  limit p_max
$$;
comment on function push.good_api_keys is
  'the keys to the HTTP API that are neither revoked nor expired, with the columns of push.look_up_api_key; the most '
  'recently used or created come first. p_max: maximum number of rows';

create or replace function push.note_api_key_uses(p_ids int[], p_ages int[], p_peers text[]) returns int
language sql volatile security definer set search_path = push, pg_temp as $$
  with noted as (
    update push.api_keys k set last_used_at = u.at, last_used_from = u.peer
    from (
      -- Skips a key that is locked, for example because it is being revoked. Another replica may have noted a use of the same
      -- minute.
      select x.id, t.at, u.peer::inet as peer
      from unnest(p_ids, p_ages, p_peers) u(id, age, peer) join push.api_keys x on x.id = u.id
      cross join lateral (select clock_timestamp() - make_interval(secs => u.age / 1000.0)) t(at)
      where x.last_used_at is null or x.last_used_at <= t.at - interval '1 minute'
      order by x.id for no key update of x skip locked
    ) u
    where k.id = u.id
    returning 1
  )
  select count(*)::int from noted
$$;
comment on function push.note_api_key_uses is
  'notes when keys to the HTTP API were last used, at most once a minute for each key. Returns how many were noted. p_ids: '
  'the keys, each once; p_ages: how long ago, in milliseconds; p_peers: the addresses that the requests came from; null: '
  'unknown';

create or replace view push.keys as
select k.id, k.app, k.name, k.scopes, k.created_at, k.expires_at, k.revoked_at, k.addresses, k.last_used_at,
  host(k.last_used_from) as last_used_from
from push.api_keys k;
comment on view push.keys is 'push.api_keys without the hashes';
