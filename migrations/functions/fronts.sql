-- What the HTTP API needs to answer clients of other push servers (docs/migrating.md): a Matrix homeserver wants to know which
-- tokens are dead, and clients of gorush ring and cancel tokens, not users.

create or replace function push.dead_among(app text, providers text[], tokens text[], set_at timestamptz[])
returns setof text
language sql volatile security definer set search_path = push, pg_temp as $$
  with dead as materialized (
    -- The time is that of another clock, in whole seconds. A token that is wrongly called dead is lost; one that is wrongly called
    -- alive is tried once more, and is then dead from a later time on.
    select x.tid, a.token, coalesce(x.invalidated_at < a.set_at + interval '1 minute'
      and a.set_at <= clock_timestamp() + interval '1 day', false) as is_set_again
    from unnest(dead_among.providers, dead_among.tokens, dead_among.set_at) a(provider, token, set_at)
    cross join lateral push.deaths_of(dead_among.app, a.provider, a.token) x
  ), revived as (
    delete from push.token_invalidations x using dead d where x.ctid = d.tid and d.is_set_again
  )
  select distinct d.token from dead d where not d.is_set_again;
$$;
comment on function push.dead_among is
  'those of these tokens that a provider has called dead. A token that its phone gave again after that is alive: its row in '
  'push.token_invalidations is removed. app: the app; arrays, by token: providers: apns, fcm or expo; tokens: the tokens, '
  'without backslashes; set_at: when the phone gave the token, or null. Its clock may be a minute behind, or a day ahead; a '
  'later time counts as null';

create or replace function push.compare_recipients(call_id text, app text, user_ids text[])
returns table (others int, absent text[])
language sql stable security definer set search_path = push, pg_temp as $$
  with there as materialized (
    select push.entry_user(e) as user_id
    from push.outbox o cross join lateral jsonb_array_elements(o.recipients) e
    where o.id = push.find_call(compare_recipients.call_id, compare_recipients.app) and push.is_recipient(e)
  )
  select (select count(*)::int from there t where t.user_id <> all (compare_recipients.user_ids)),
    array(select distinct u from unnest(compare_recipients.user_ids) u where u not in (select t.user_id from there t))
$$;
comment on function push.compare_recipients is
  'compares users with the recipients of a call. call_id, app: columns of push.outbox; user_ids: the users. Returns others: '
  'number of recipients that are not among the users; absent: the users who are not among the recipients. Raises an error '
  'if there is no such call';
