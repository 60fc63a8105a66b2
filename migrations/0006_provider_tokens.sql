-- Provider tokens shared by all replicas: whoever mints one offers it, and all use the one that was taken.
--
-- Apple takes no more than one new token in 20 minutes for a key. A replica that finds none, or an old one, signs its own and
-- offers it; the row's lock decides which of several is taken, and the others are never shown to the provider.

comment on column push.provider_tokens.expires_at is 'when it is to be renewed, before it stops being good';
comment on column push.provider_tokens.name is 'whose: team, key id and a fingerprint of the key (apns), service account (fcm)';

create function push.current_provider_token(p_provider text, p_name text)
returns table (token text, minted_at timestamptz, expires_at timestamptz)
language sql stable security definer set search_path = push, pg_temp as $$
  select t.token, t.minted_at, t.expires_at from push.provider_tokens t
  where t.provider = p_provider and t.name = p_name and t.expires_at > clock_timestamp()
$$;
comment on function push.current_provider_token is 'the token all replicas use now; no row if there is none';

create function push.offer_provider_token(
  p_provider text, p_name text, p_token text, p_minted_at timestamptz, p_expires_at timestamptz, p_age_min interval
) returns table (token text, minted_at timestamptz, expires_at timestamptz)
language plpgsql security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
begin
  insert into push.provider_tokens as t (provider, name, token, minted_at, expires_at)
  values (p_provider, p_name, p_token, p_minted_at, p_expires_at)
  on conflict (provider, name) do update
    set token = excluded.token, minted_at = excluded.minted_at, expires_at = excluded.expires_at
    -- A token of the future is of a clock that was wrong: it gives way.
    where t.minted_at <= excluded.minted_at - p_age_min or t.expires_at <= excluded.minted_at
      or t.minted_at > excluded.minted_at + interval '5 minutes';
  return query select t.token, t.minted_at, t.expires_at from push.provider_tokens t
    where t.provider = p_provider and t.name = p_name;
end
$$;
comment on function push.offer_provider_token is
  'offers a new token, which is taken if the current one is at least p_age_min older, or at its end; returns the one in use';

revoke execute on function push.current_provider_token, push.offer_provider_token from public;
