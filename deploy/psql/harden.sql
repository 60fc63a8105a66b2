-- Revokes rights with which logins that have no role of push-gateway could stop calls: connections to its database, and
-- ways to fill Postgres's lock table, which all databases of a server share. Run it as a superuser, after the first
-- `push-gateway migrate`, in the gateway's database:
--
--   psql -X -f deploy/psql/harden.sql "$DATABASE_URL"
--
-- and then in every other database of the server, template1 included: each database has its own rights to functions.
-- Running it twice is harmless; run it again after a restore. Its limits: docs/security.md, "Who may connect".

\set ON_ERROR_STOP on
\set QUIET on
\pset tuples_only on
\pset format unaligned
begin;

-- Advisory locks, and functions that write without a right to any table: each of their savepoints is a lock. A session can
-- take 30,000 of them in less than a second.
select format('revoke execute on function %s from public', p.oid::regprocedure)
from pg_proc p
where p.pronamespace = 'pg_catalog'::regnamespace
  and (p.proname ~ '^pg_(try_)?advisory_' or p.proname in ('lo_creat', 'lo_create', 'lo_from_bytea', 'lo_import', 'lo_put',
    'lo_truncate', 'lo_truncate64', 'lo_unlink', 'lowrite', 'pg_logical_emit_message'))
order by p.oid
\gexec
select format('revoke temporary on database %I from public', current_database())
\gexec
-- A database created before Postgres 15 lets every role create objects in schema public.
select 'revoke create on schema public from public' where to_regnamespace('public') is not null
\gexec

-- The owner of the schema needs three of them: for notifications (push.ring_doorbell), and for migrations that wait for
-- each other.
select format('grant execute on function %s to %I', f.signature, n.nspowner::regrole)
from pg_namespace n
cross join unnest('{"pg_advisory_lock(int,int)","pg_advisory_unlock(int,int)","pg_try_advisory_xact_lock(int,int)"}'::text[]) f(signature)
where n.nspname = 'push'
\gexec

-- Roles that have a role of push-gateway, inherited or not, may connect.
select format('revoke connect on database %I from public', current_database())
where to_regnamespace('push') is not null
\gexec
select format('grant connect on database %I to %I', current_database(), r.rolname)
from pg_roles r
where to_regnamespace('push') is not null and not r.rolsuper
  and exists (select from pg_roles p
    where (p.rolname in ('push_enqueuer', 'push_tenant', 'push_ops', 'push_keys', 'push_gateway', 'pg_monitor')
        or p.oid = (select n.nspowner from pg_namespace n where n.nspname = 'push'))
      and pg_has_role(r.oid, p.oid, 'member'))
  and (r.rolcanlogin or r.rolname like 'push\_%')
order by r.rolname
\gexec

commit;
\set QUIET off
select format('Done in %s. A login that is made later: grant connect on database %I to it.', current_database(), current_database())
where to_regnamespace('push') is not null
union all
select format('Done in %s, which has no schema push.', current_database()) where to_regnamespace('push') is null;
