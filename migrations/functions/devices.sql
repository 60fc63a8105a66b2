-- Devices: how backends register and drop them, and views with masked tokens.

-- Registering ---------------------------------------------------------------------------------------------------------

-- The environment and the platform are checked as they are stored: push.check_device fills them in.
create or replace function push.device_fault(
  p_user_id text, p_app text, p_provider text, p_token text, p_environment text, p_platform text, p_locale text, p_is_served boolean
) returns text language sql immutable parallel safe as $$
  select 'push.devices.' || case
    when p_user_id is null or length(p_user_id) not between 1 and 256 then 'user_id: must have 1 to 256 characters'
    when push.app_fault(p_app) is not null then push.app_fault(p_app)
    when not coalesce(p_provider = any (push.channels()), false) then 'provider: must be one of ' || array_to_string(push.channels(), ', ')
    when p_token is null or push.channel_token(p_provider, p_token) is distinct from p_token
      then format('token: must have the form of a token of provider %s', p_provider)
    when p_environment not in ('production', 'sandbox') then 'environment: must be production or sandbox'
    when p_provider = 'webpush' and p_platform <> 'web' then 'platform: must be web, or null, with provider webpush'
    when p_provider <> 'webpush' and p_platform not in ('ios', 'android') then 'platform: must be ios or android, or null'
    when length(p_locale) > 64 then 'locale: must have at most 64 characters'
    when not p_is_served then format('app: no gateway has served app %s yet; start one that has it in its configuration, or correct the name', p_app)
  end
$$;
comment on function push.device_fault is 'the fault of a row of push.devices; null: none. p_is_served: whether a gateway has served the app';

create or replace function push.check_device() returns trigger language plpgsql as $$
declare
  -- A new row with the time of an earlier registration is a copy: a backup is restored, or a shard gets the devices of another. Apart from
  -- the check of the row, which would otherwise be planned anew for each.
  v_is_served constant boolean := case tg_op when 'INSERT' then new.registered_at < now() else new.app = old.app end
    or exists (select from push.lane l where l.app = new.app);
  v_fault text;
begin
  new.environment := case new.environment when 'development' then 'sandbox' else coalesce(new.environment, 'production') end;
  -- A browser's PushSubscription becomes one text, which the unique index can compare.
  new.token := coalesce(push.channel_token(new.provider, new.token), new.token);
  new.platform := coalesce(new.platform, case new.provider when 'webpush' then 'web' end);
  -- One of APNs in both capitals and small letters would not be found (push.token_digests).
  new.token := case new.token when upper(new.token) then new.token else push.token_key(new.provider, new.token) end;
  v_fault := push.device_fault(new.user_id, new.app, new.provider, new.token, new.environment, new.platform, new.locale, v_is_served);
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault, schema = 'push', table = 'devices',
      hint = format('The device was not %s.', case tg_op when 'INSERT' then 'registered' else 'changed' end),
      column = substring(v_fault from '^push.devices.([a-z_]+)');
  end if;
  return new;
end
$$;
comment on function push.check_device is 'refuses a malformed device with an error that contains no token';

create or replace trigger check_device before insert or update of user_id, app, provider, token, environment, platform, locale
  on push.devices for each row execute function push.check_device();

create or replace function push.note_devices() returns trigger
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  -- An upsert runs both triggers, and the update below this one.
  if not exists (select from changed) then
    return null;
  end if;
  -- An APNs token that was registered in other letters before.
  delete from push.devices d
  where d.ctid = any (array(
    select x.tid
    from changed c cross join lateral (
      select x.ctid as tid from push.devices x
      where sha256(x.token::bytea) = any (push.token_digests('apns', c.token)) and x.app = c.app and x.provider = 'apns'
        and (x.registered_at, x.id) < (c.registered_at, c.id)
      for update skip locked
    ) x
    where c.provider = 'apns'));
  -- Whatever looks up the devices of a user costs as much as there are. The update runs this trigger once more, usually for no rows.
  update push.devices d set invalidated_at = clock_timestamp(), invalid_reason = 'TooManyDevices'
  where d.ctid = any (array(
    select x.tid
    from (select distinct c.user_id, c.app from changed c where c.enabled and c.invalidated_at is null) u
    cross join lateral (
      select o.ctid as tid from push.devices o
      where o.user_id = u.user_id and o.app = u.app and o.enabled and o.invalidated_at is null
      order by o.registered_at desc, o.id desc
      offset 100
    ) x
    cross join lateral (select from push.devices l where l.ctid = x.tid for no key update skip locked) l));
  insert into push.follow_ups (outbox_id, why, is_urgent)
  select distinct u.outbox_id, 'failed', true
  from changed c cross join lateral (
    select u.outbox_id from push.unreached u where u.app = c.app and u.user_id = c.user_id offset 0
  ) u
  where c.enabled and c.invalidated_at is null;
  delete from push.token_invalidations x
  where x.ctid = any (array(
    select dead.tid from changed d cross join lateral push.deaths_of(d.app, d.provider, d.token) dead where d.invalidated_at is null));
  return null;
end
$$;
comment on function push.note_devices is
  'keeps one device of each token, puts aside devices beyond the newest 100 of a user, notes calls that have not reached the user, and forgets '
  'that tokens of living devices were dead';

create or replace trigger note_new_devices after insert on push.devices referencing new table as changed
  for each statement execute function push.note_devices();
create or replace trigger note_changed_devices after update on push.devices referencing new table as changed
  for each statement execute function push.note_devices();

create or replace function push.register_device(
  user_id text, app text, provider text, token text, environment text default 'production',
  platform text default null, locale text default null, voip boolean default true
) returns void
language plpgsql security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_given     constant text := push.channel_token(register_device.provider, register_device.token);
  v_key       constant text := push.token_key(register_device.provider, v_given);
  v_token     constant text := case v_given when upper(v_given) then v_given else v_key end;  -- as push.check_device
  v_text      text := v_token;
  v_is_served constant boolean := exists (select from push.lane l where l.app = register_device.app);
  v_fault     text;
begin
  perform push.refuse_app(register_device.app);
  -- Not by the trigger: the context of its error would quote the INSERT.
  v_fault := push.device_fault(register_device.user_id, register_device.app, register_device.provider, v_token,
    case when register_device.environment = 'development' then 'sandbox' else register_device.environment end, register_device.platform,
    register_device.locale, v_is_served);
  if v_fault is not null then
    raise exception using errcode = 'invalid_parameter_value', message = v_fault, hint = 'The device was not registered.',
      schema = 'push', table = 'devices', column = substring(v_fault from '^push.devices.([a-z_]+)');
  end if;
  -- A device whose APNs token was registered in other letters gets the new text, and stays what it is.
  if register_device.provider = 'apns' then
    begin
      update push.devices d set token = v_token where d.token <> v_token and d.id = (
        select x.id from push.devices x
        where sha256(x.token::bytea) = any (push.token_digests('apns', v_token)) and x.app = register_device.app and x.provider = 'apns'
        order by x.token = v_token desc, x.registered_at desc limit 1);
    exception when unique_violation then
      null;  -- another session has just registered this text
    end;
  end if;
  -- The unique index compares texts. So a new token in capitals is inserted in small letters, and gets its own afterwards: of two sessions
  -- that register it in different letters, one waits for the other.
  if v_token <> v_key and not exists (select from push.devices x
      where sha256(x.token::bytea) = sha256(v_token::bytea) and x.app = register_device.app and x.provider = 'apns') then
    v_text := v_key;
  end if;
  insert into push.devices as d (user_id, app, provider, token, environment, platform, locale, voip)
    values (register_device.user_id, register_device.app, register_device.provider, v_text, register_device.environment, register_device.platform,
      register_device.locale, coalesce(register_device.voip, true))
    on conflict (sha256(token::bytea), app, provider) do update set
      user_id = excluded.user_id, environment = excluded.environment, voip = excluded.voip,
      platform = coalesce(excluded.platform, d.platform), locale = coalesce(excluded.locale, d.locale),
      -- The switch belongs to the user: when the phone passes to another user, it is on again.
      enabled = d.enabled or d.user_id <> excluded.user_id,
      registered_at = clock_timestamp(), invalidated_at = null, invalid_reason = null;
  if v_text <> v_token then
    -- Of a session for which this one has waited.
    delete from push.devices d where sha256(d.token::bytea) = sha256(v_token::bytea) and d.app = register_device.app and d.provider = 'apns';
    update push.devices d set token = v_token
      where sha256(d.token::bytea) = sha256(v_key::bytea) and d.app = register_device.app and d.provider = 'apns';
  end if;
end
$$;
comment on function push.register_device is
  'registers a token that a phone or browser has just given: it belongs to this user and is alive. To be called at every '
  'login. user_id: the backend''s id of the user; app: the app; provider: one of push.channels(); token: the token, or '
  'with provider webpush the PushSubscription that the browser gives, as JSON; environment: of an APNs token, production '
  'or sandbox; platform: ios or android, web for a browser, or null if it is not known; locale: language of visible texts, '
  'or null; voip: of an APNs token, true for PushKit';

create or replace function push.enable_device(app text, provider text, token text, enabled boolean default true) returns boolean
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  update push.devices d set enabled = coalesce(enable_device.enabled, true)
    where sha256(d.token::bytea) = any (push.token_digests(enable_device.provider, push.channel_token(enable_device.provider, enable_device.token)))
      and d.app = enable_device.app and d.provider = enable_device.provider and push.is_own(enable_device.app);
  return found;
end
$$;
comment on function push.enable_device is
  'the user''s switch for a device. app, provider, token: as registered; enabled: false: it gets no pushes. Returns false if it is not '
  'registered';

create or replace function push.drop_device(app text, provider text, token text) returns boolean
language plpgsql security definer set search_path = push, pg_temp as $$
begin
  delete from push.devices d
    where sha256(d.token::bytea) = any (push.token_digests(drop_device.provider, push.channel_token(drop_device.provider, drop_device.token)))
      and d.app = drop_device.app and d.provider = drop_device.provider and push.is_own(drop_device.app);
  return found;
end
$$;
comment on function push.drop_device is
  'the user has logged out of this device: nothing more is sent to its token. app, provider, token: as registered. Returns '
  'false if it was not registered';

-- Dead tokens ---------------------------------------------------------------------------------------------------------

-- An expression, so that only this function can use the index: whatever looks up a token would read all those of an app by it.
create index if not exists token_invalidations_of_app on push.token_invalidations ((app || ''), invalidated_at);

-- A tenant's apps are read by an index that has each app's tokens in the order of their times: no row of another app is read.
create or replace function push.dead_tokens(since timestamptz default null, apps text[] default null, rows_max int default 1000)
returns table (app text, user_id text, provider text, token text, reason text, died_at timestamptz)
language plpgsql stable security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_own   constant text[] := push.own_apps();
  v_apps  constant text[] := case when v_own is null then dead_tokens.apps when dead_tokens.apps is null then v_own
    else array(select unnest(v_own) intersect select unnest(dead_tokens.apps)) end;
  v_since constant timestamptz := coalesce(dead_tokens.since, '-infinity');
begin
  if not coalesce(dead_tokens.rows_max between 1 and 1000, false) then
    raise exception using errcode = 'invalid_parameter_value', message = 'rows_max: must be 1 to 1000';
  elsif v_apps is null then
    return query
      select x.app, x.user_id, x.provider, x.token, x.reason, x.invalidated_at
      from push.token_invalidations x
      where x.invalidated_at > v_since
      order by x.invalidated_at fetch first (dead_tokens.rows_max) rows with ties;
  else
    return query
      select x.app, x.user_id, x.provider, x.token, x.reason, x.invalidated_at
      from (select distinct unnest(v_apps) as app) a cross join lateral (
        select x.* from push.token_invalidations x
        where x.app || '' = a.app and x.invalidated_at > v_since
        order by x.invalidated_at fetch first (dead_tokens.rows_max) rows with ties
      ) x
      order by x.invalidated_at fetch first (dead_tokens.rows_max) rows with ties;
  end if;
end
$$;
comment on function push.dead_tokens is
  'tokens that a provider has called dead, and that no phone has registered since: the oldest first. Quarantined tokens are not among them. '
  'since: only those that died later; null: all that are kept. apps: of these apps; null: of all for which the caller may act, and never of '
  'others. rows_max: at most this many rows, 1 to 1000, and those that died at the same microsecond as the last one; call it again with the '
  'last died_at. user_id: null if it is not known; token: the whole token; reason: the provider''s';

-- Tokens, masked ------------------------------------------------------------------------------------------------------

create or replace view push.registered_devices as
select d.user_id, d.app, d.provider, left(d.token, 4) || '…' || right(d.token, 4) as device, d.voip, d.environment,
  d.platform, d.locale, d.enabled, d.registered_at, d.invalidated_at, d.invalid_reason
from push.devices d;
comment on view push.registered_devices is 'push.devices with the tokens masked';

create or replace view push.dead_devices as
select x.app, x.provider, x.user_id, left(x.token, 4) || '…' || right(x.token, 4) as device, x.reason, x.invalidated_at
from push.token_invalidations x;
comment on view push.dead_devices is 'push.token_invalidations with the tokens masked';

create or replace view push.quarantined_devices as
select q.app, q.provider, q.user_id, left(q.token, 4) || '…' || right(q.token, 4) as device, q.reason, q.since,
  q.quarantined_at
from push.quarantined_tokens q;
comment on view push.quarantined_devices is 'push.quarantined_tokens with the tokens masked';
