-- push.dead_tokens: what a backend is told of the tokens that providers have called dead.
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
-- The ends of the tokens that the caller is given, in their order.
create function pg_temp.told(p_since timestamptz default null, p_apps text[] default null, p_rows_max int default 1000) returns text
language sql as $$
  select string_agg(right(d.token, 3), ' ' order by d.place) from push.dead_tokens(p_since, p_apps, p_rows_max)
    with ordinality d(app, user_id, provider, token, reason, died_at, place) $$;
grant execute on function pg_temp.told, pg_temp.error, test.equal to public;
grant usage on schema test to public;
create function pg_temp.ago(p_minutes int) returns timestamptz language sql as $$ select now() - make_interval(mins => p_minutes) $$;
grant execute on function pg_temp.ago to public;

insert into push.token_invalidations (app, provider, token, user_id, reason, invalidated_at) values
  ('feed', 'fcm', 'feed-token-0123456789-003', 'ana', 'UNREGISTERED', pg_temp.ago(10)),
  ('feed', 'expo', 'ExponentPushToken[feed-001', null, 'DeviceNotRegistered', pg_temp.ago(30)),
  ('other', 'fcm', 'feed-token-0123456789-002', 'bruno', 'UNREGISTERED', pg_temp.ago(20)),
  ('other', 'fcm', 'feed-token-0123456789-004', 'ana', 'SENDER_ID_MISMATCH', pg_temp.ago(5));
create function pg_temp.row(p_token text) returns text language sql as $$
  select concat_ws(', ', d.app, coalesce(d.user_id, 'nobody'), d.provider, d.token, d.reason, d.died_at = pg_temp.ago(30))
  from push.dead_tokens() d where d.token = p_token $$;
select test.equal('each token has app, user, provider, reason and time', pg_temp.row('ExponentPushToken[feed-001'),
  'feed, nobody, expo, ExponentPushToken[feed-001, DeviceNotRegistered, t');
select test.equal('the oldest is first, whatever its app', pg_temp.told(), '001 002 003 004');
select test.equal('only those that died later', pg_temp.told(pg_temp.ago(20)), '003 004');
select test.equal('of some apps', pg_temp.told(null, '{feed}') || '|' || pg_temp.told(null, '{other}') || '|'
  || pg_temp.told(null, '{other,feed,other,nowhere}'), '001 003|002 004|001 002 003 004');
select test.equal('of some apps, only those that died later', pg_temp.told(pg_temp.ago(20), '{other}'), '004');
select test.equal('of no app', pg_temp.told(null, '{}'), null);
select test.equal('the oldest come first where there are more than asked for', pg_temp.told(null, null, 2) || '|'
  || pg_temp.told(null, '{feed,other}', 2), '001 002|001 002');
select test.equal('the last time that was read continues', pg_temp.told(pg_temp.ago(20), '{feed,other}', 1), '003');
select test.equal(format('rows_max of %s is refused', n), pg_temp.error(format('select push.dead_tokens(rows_max => %s)', n)),
  '22023 rows_max: must be 1 to 1000') from unnest('{0,1001,"null"}'::text[]) n;
-- Those of one moment come together, so that none is lost between two calls.
insert into push.token_invalidations (app, provider, token, reason, invalidated_at)
  select 'feed', 'fcm', 'feed-token-0123456789-a' || i, 'UNREGISTERED', pg_temp.ago(1) from generate_series(10, 12) i;
select test.equal('tokens of one moment come together', pg_temp.told(pg_temp.ago(2), null, 1) || '|' || pg_temp.told(pg_temp.ago(2), '{feed}', 2),
  'a10 a11 a12|a10 a11 a12');
insert into push.token_invalidations (app, provider, token, reason, invalidated_at)
  select 'many', 'fcm', 'feed-token-0123456789-' || i, 'UNREGISTERED', pg_temp.ago(100000 - i) from generate_series(1, 1005) i;
select test.equal('at most 1,000 are given, from the oldest on', (
  select count(*) || ', ' || max(substring(d.token from '\d+$')::int) from push.dead_tokens(apps => '{many}') d), '1000, 1000');

-- Registered again, or quarantined.
select push.register_lane('feed', p) from unnest('{apns,fcm}'::text[]) p \g /dev/null
delete from push.token_invalidations where token like '%-a1_' or app = 'many';
select push.register_device('ana', 'feed', 'fcm', 'feed-token-0123456789-003') \g /dev/null
select test.equal('a token that its phone has registered since is not among them', pg_temp.told(null, '{feed}'), '001');
select push.invalidate_tokens(array[l.id], '{feed-token-0123456789-003}', '{null}', '{UNREGISTERED}') from push.lane l
  where l.app = 'feed' and l.provider = 'fcm' \g /dev/null
select test.equal('called dead once more, it is, with its user', (select d.user_id from push.dead_tokens(apps => '{feed}') d
  where right(d.token, 3) = '003'), 'ana');
select push.hold_invalidation(l.id, '1 hour', 'test') from push.lane l where l.app = 'feed' and l.provider = 'fcm' \g /dev/null
select test.equal('quarantined tokens are not', pg_temp.told(null, '{feed}'), '001');

-- Who may ask, and of which apps.
insert into push.token_invalidations (app, provider, token, user_id, reason) values ('third', 'fcm', 'feed-token-0123456789-005', 'eve', 'x');
create role dead_tokens_backend in role push_enqueuer;
create role dead_tokens_tenant;
create role dead_tokens_nobody;
select push.grant_app('dead_tokens_tenant', a) from unnest('{feed,third}'::text[]) a \g /dev/null
set session authorization dead_tokens_backend;
select test.equal('a backend is told of the dead tokens of every app', pg_temp.told(), '001 002 004 005');
select test.equal('and may read no table for that', pg_temp.error('select * from push.token_invalidations'),
  '42501 permission denied for table token_invalidations');
set session authorization dead_tokens_tenant;
select test.equal('a tenant is told of those of its apps', pg_temp.told(), '001 005');
select test.equal('and of no other, although it asks', pg_temp.told(null, '{other,feed}') || coalesce(pg_temp.told(null, '{other}'), ''), '001');
set session authorization default;
select push.revoke_app('dead_tokens_tenant', a) from unnest('{feed,third}'::text[]) a \g /dev/null
set session authorization dead_tokens_tenant;
select test.equal('a tenant without an app is told of none', pg_temp.told() || coalesce(pg_temp.told(null, '{feed}'), ''), null);
set session authorization dead_tokens_nobody;
select test.equal('others may not ask', pg_temp.error('select push.dead_tokens()'), '42501 permission denied for schema push');
set session authorization default;
