-- Keys for the HTTP API: made and revoked by ops, looked up by gateways.

create or replace function push.create_api_key(
  app text, name text, scopes text[] default '{enqueue,device,read}', expires_at timestamptz default null
) returns table (id int, key text)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_scopes text[] := array(select distinct s from unnest(create_api_key.scopes) s where s is not null order by s);
  v_fault  text := case
    when not coalesce(push.is_app(create_api_key.app), false)
      then 'app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores'
    when create_api_key.name is null or length(create_api_key.name) not between 1 and 128
      then 'name: must have 1 to 128 characters'
    when v_scopes = '{}' or not v_scopes <@ '{enqueue,device,read}'
      then 'scopes: must be some of enqueue, device and read'
    when create_api_key.expires_at <= clock_timestamp() then 'expires_at: must be in the future, or null'
  end;
begin
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault,
      schema = 'push', table = 'api_keys', column = substring(v_fault from '^[a-z_]+');
  end if;
  id := nextval(pg_get_serial_sequence('push.api_keys', 'id'));
  -- 32 bytes out of 366 random bits: the server has no other source without an extension.
  key := 'pgk_' || id || '_' || encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
    || uuid_send(gen_random_uuid())), 'hex');
  insert into push.api_keys (id, app, name, scopes, hash, expires_at) overriding system value
    values (create_api_key.id, create_api_key.app, create_api_key.name, v_scopes, sha256(convert_to(key, 'UTF8')),
      create_api_key.expires_at);
  perform push.note_audit('create_api_key', create_api_key.app || '/' || id,
    jsonb_build_object('name', create_api_key.name, 'scopes', v_scopes));
  return next;
end
$$;
comment on function push.create_api_key is
  'a new key to the HTTP API, shown this once: only its SHA-256 is stored. app: the only app it opens; name: who has '
  'it; scopes: some of enqueue, device and read; expires_at: from when on it is refused, null: never. To rotate a key, '
  'make another, move over, then push.revoke_api_key the old one';

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
  perform push.note_audit('revoke_api_key', v_key.app || '/' || v_key.id, jsonb_build_object('revoked', revoked));
  return next;
end
$$;
comment on function push.revoke_api_key is
  'a key to the HTTP API is refused from now on. id: push.keys.id. Returns whether it changed anything, and a sentence '
  'about it; running it twice is harmless';

create or replace function push.find_api_key(p_id int) returns table (app text, scopes text[], hash bytea)
language sql stable security definer set search_path = push, pg_temp as $$
  select k.app, k.scopes, k.hash from push.api_keys k
  where k.id = p_id and k.revoked_at is null and (k.expires_at is null or k.expires_at > now())
$$;
comment on function push.find_api_key is
  'what a key to the HTTP API may do, and the SHA-256 of the whole key to compare with; p_id: the number in it; no row: '
  'there is none, or it is revoked or expired';

create or replace view push.keys as
select k.id, k.app, k.name, k.scopes, k.created_at, k.expires_at, k.revoked_at from push.api_keys k;
comment on view push.keys is 'push.api_keys without the hashes';
comment on column push.keys.id is 'number of the key, and its part after pgk_';
comment on column push.keys.app is 'the only app it opens';
comment on column push.keys.name is 'who has it';
comment on column push.keys.scopes is 'what it may do: enqueue, device, read';
comment on column push.keys.created_at is 'when it was made';
comment on column push.keys.expires_at is 'from when on it is refused; null: never';
comment on column push.keys.revoked_at is 'since when it is refused; null: it is not';
