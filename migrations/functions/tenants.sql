-- Tenants: backends that share a database and must not access each other's calls. A member of push_enqueuer acts for every
-- app: all such logins are one trust domain. A member of push_tenant acts only for the apps that push.grant_app has granted
-- to it, or to a role that it is a member of.
--
-- The caller's identity: most functions here are SECURITY DEFINER, where current_user is the owner. Instead, the login
-- (session_user) and the role set with SET ROLE are used; both are unchanged inside such functions, and both count. A
-- tenant cannot leave its apps by switching roles, and a login that acts for every app can switch to a tenant. A connection
-- pool that logs in as one role and switches for each transaction is limited to the role that it switches to. Superusers,
-- the schema's owner and push_gateway act for every app.
--
-- Where this is checked: for a call, in push.find_call, push.timeline and push.skipped_recipients; for a device, when it is
-- registered or dropped; for new rows of push.outbox, in its triggers, because INSERT and COPY need no function. A call of
-- another tenant is treated as one that does not exist. A tenant has no right to read or update push.outbox itself.
-- Row-level security would let it see its own rows, but Postgres does not support COPY into a table that has it, and
-- EXPLAIN ANALYZE would still count the rows of others (docs/adr/0032).

-- Who may act for what --------------------------------------------------------------------------------------------------

-- A plain expression, which the planner inlines, because it is evaluated for each row that is enqueued. It may return false
-- for a caller that acts for every app; push.own_apps then decides.
create or replace function push.acts_for_all() returns boolean language sql stable parallel safe as $$
  select coalesce(pg_has_role(coalesce(nullif(current_setting('role'), 'none')::name, session_user), to_regrole('push_enqueuer'), 'usage')
      and not coalesce(pg_has_role(session_user, to_regrole('push_tenant'), 'usage')
        or pg_has_role(nullif(current_setting('role'), 'none')::name, to_regrole('push_tenant'), 'usage'), false)
    or current_setting('role') = 'none'
      and (pg_has_role(session_user, to_regrole('push_gateway'), 'usage') or has_schema_privilege(session_user, 'push', 'create')), false)
$$;
comment on function push.acts_for_all is
  'whether the login, and the role set with SET ROLE, act for every app; false: push.own_apps decides';

create or replace function push.own_apps() returns text[]
language plpgsql stable security definer set search_path = push, pg_temp as $$
declare
  v_tenant  oid := to_regrole('push_tenant');
  v_is_free boolean := false;
  v_apps    text[];
  v_granted text[];
  v_caller  name;
begin
  foreach v_caller in array array[session_user] || case when current_setting('role') <> 'none'
    then array[current_setting('role')::name] else '{}' end
  loop
    v_granted := array(
      select distinct g.app from push.app_grant g where pg_has_role(v_caller, to_regrole(quote_ident(g.role)), 'usage') order by g.app);
    if has_schema_privilege(v_caller, 'push', 'create') or pg_has_role(v_caller, to_regrole('push_gateway'), 'usage') then
      v_is_free := true;
    elsif pg_has_role(v_caller, v_tenant, 'usage') then
      -- A role with both push_enqueuer and push_tenant could read all calls in the table: it acts for no app until one of
      -- them is revoked.
      v_granted := case when pg_has_role(v_caller, to_regrole('push_enqueuer'), 'usage') then '{}' else v_granted end;
      v_apps := case when v_apps is null then v_granted else array(select unnest(v_apps) intersect select unnest(v_granted)) end;
    elsif pg_has_role(v_caller, to_regrole('push_enqueuer'), 'usage') or pg_has_role(v_caller, to_regrole('push_ops'), 'usage') then
      v_is_free := true;
    end if;
  end loop;
  -- A caller that has none of push's roles called a SECURITY DEFINER function of another role, which cannot be determined. If there are
  -- tenants, that role may be one.
  return case when v_apps is not null or v_is_free then v_apps
    when exists (select from pg_auth_members m where m.roleid = v_tenant
      and m.member <> (select n.nspowner from pg_namespace n where n.nspname = 'push'))
      then v_granted end;
end
$$;
comment on function push.own_apps is 'the apps that a member of push_tenant may act for; null: every app';

-- push.own_apps is called again only if it returned null.
create or replace function push.is_own(p_app text) returns boolean language sql stable as
$$ select push.acts_for_all() or coalesce(p_app = any (push.own_apps()), push.own_apps() is null) $$;
comment on function push.is_own is 'whether the caller may act for an app';

create or replace function push.refuse_app(p_app text) returns void language plpgsql set search_path = push, pg_temp as $$
begin
  if not push.is_own(p_app) then
    raise exception using errcode = 'insufficient_privilege',
      message = format('app: this login may not act for app %s', coalesce(left(p_app, 64), 'without a name')),
      hint = 'Nothing of this statement was done. push.grant_app lets a role act for an app; push.app_grants shows which it has.',
      schema = 'push', column = 'app';
  end if;
end
$$;
comment on function push.refuse_app is 'raises the error for an app that the caller may not act for';

-- Binding ---------------------------------------------------------------------------------------------------------------

-- Runs with the caller's rights: only an administrator, or the schema's owner if it created the roles, may grant them.
create or replace function push.grant_app(role text, app text) returns table (changed boolean, message text)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_role  oid := (select r.oid from pg_roles r where r.rolname = grant_app.role);
  v_moved boolean := false;
  -- What is wrong, and what to do.
  v_fault text[] := case
    when v_role is null then array[format('role: there is no role %s', left(grant_app.role, 64)), 'Make it first: create role ... login.']
    when push.app_fault(grant_app.app) is not null then array[push.app_fault(grant_app.app), 'The gateways'' configuration names them.']
    when to_regrole('push_tenant') is null
      then array['role push_tenant is missing', 'Have it created with NOLOGIN, then: select push.grant_roles();']
    when grant_app.role in ('push_tenant', 'push_enqueuer', 'push_ops', 'push_keys', 'push_gateway')
      then array[format('role: %s is a role of push-gateway itself', grant_app.role), 'Name a login, or a group of your own.']
    when has_schema_privilege(v_role, 'push', 'create') or pg_has_role(v_role, to_regrole('push_gateway'), 'usage')
      then array[format('role: %s acts for every app: it is a superuser or the schema''s owner, or has push_gateway', grant_app.role),
        'Give the backend a role of its own.']
    when pg_has_role(v_role, to_regrole('push_ops'), 'member') or pg_has_role(v_role, to_regrole('push_keys'), 'member')
      then array[format('role: %s has push_ops or push_keys, which act for every app', grant_app.role), 'Give the backend a role of its own.']
    when (select r.rolcreaterole from pg_roles r where r.oid = v_role)
      then array[format('role: %s may create roles, and so give itself the rights of others', grant_app.role),
        format('alter role %I nocreaterole;', grant_app.role)]
  end;
begin
  if v_fault is not null then
    raise exception using message = v_fault[1], hint = v_fault[2],
      errcode = case when v_role is null or to_regrole('push_tenant') is null then 'undefined_object' else 'invalid_parameter_value' end;
  end if;
  if exists (select from pg_auth_members m where m.member = v_role and m.roleid = to_regrole('push_enqueuer')) then
    execute format('revoke push_enqueuer from %I', grant_app.role);
    v_moved := true;
  end if;
  if pg_has_role(v_role, to_regrole('push_enqueuer'), 'member') then
    raise exception using errcode = 'invalid_parameter_value',
      message = format('role: %s has push_enqueuer, which acts for every app', grant_app.role),
      hint = format('As the role that granted it: revoke push_enqueuer from %I, or from the group that gives it push_enqueuer.', grant_app.role);
  end if;
  if not pg_has_role(v_role, to_regrole('push_tenant'), 'usage') then
    execute format('grant push_tenant to %I', grant_app.role);
    v_moved := true;
  end if;
  insert into push.app_grant (role, app) values (grant_app.role, grant_app.app) on conflict do nothing;
  changed := found or v_moved;
  -- Calls of the app are accepted from now on, and ring once a gateway serves the app.
  perform push.register_lane(grant_app.app, p) from unnest('{apns,fcm,expo}'::text[]) p;
  message := format('granted to %s: %s', grant_app.role,
    (select string_agg(g.app, ', ' order by g.app) from push.app_grant g where g.role = grant_app.role));
  insert into push.audit (action, target, detail) values ('grant_app', grant_app.app || '/' || grant_app.role,
    jsonb_build_object('changed', changed));
  return next;
end
$$;
comment on function push.grant_app is
  'lets a backend''s role, and its members, act for this app. They may act only for apps that were granted: the role gets push_tenant and '
  'loses push_enqueuer. role: a database role; app: name of the app. Returns whether this changed anything, and a sentence that says what '
  'was done. Running it twice is harmless. For the owner of the schema';

create or replace function push.revoke_app(role text, app text) returns table (changed boolean, message text)
language plpgsql volatile set search_path = push, pg_temp as $$
#variable_conflict use_column
begin
  delete from push.app_grant g where g.role = revoke_app.role and g.app = revoke_app.app;
  changed := found;
  message := format('granted to %s: %s', revoke_app.role,
    coalesce((select string_agg(g.app, ', ' order by g.app) from push.app_grant g where g.role = revoke_app.role), 'no app'));
  insert into push.audit (action, target, detail) values ('revoke_app', left(revoke_app.app, 64) || '/' || left(revoke_app.role, 64),
    jsonb_build_object('changed', changed));
  return next;
end
$$;
comment on function push.revoke_app is
  'a role no longer acts for this app. It stays in push_tenant, and without any app it acts for none. role: a database role, which may have '
  'been dropped; app: name of the app. Returns whether this changed anything, and a sentence that says what was done. Running it twice is '
  'harmless. For the owner of the schema';

create or replace view push.app_grants as
select b.role, g.app, g.granted_at, g.granted_by, case
    when r.oid is null then 'there is no such role'
    when has_schema_privilege(r.oid, 'push', 'create') or pg_has_role(r.oid, to_regrole('push_gateway'), 'usage')
      then 'acts for every app: a superuser, the schema''s owner, or push_gateway'
    when pg_has_role(r.oid, to_regrole('push_ops'), 'member') or pg_has_role(r.oid, to_regrole('push_keys'), 'member')
      then 'has push_ops or push_keys, which act for every app; revoke it'
    when r.rolcreaterole then 'may create roles, and so give itself the rights of others'
    when not pg_has_role(r.oid, to_regrole('push_tenant'), 'usage') then 'is not in push_tenant'
    when pg_has_role(r.oid, to_regrole('push_enqueuer'), 'usage') then 'acts for no app: has push_enqueuer as well; revoke it'
    when t.names is not null then 'these members act for no app: ' || t.names || ' have push_enqueuer as well; revoke it'
    when g.app is null then 'acts for no app but those of roles it is a member of'
  end as fault
from (
  select g.role from push.app_grant g union select r.rolname::text from pg_auth_members m join pg_roles r on r.oid = m.member
  where m.roleid = to_regrole('push_tenant') and m.member <> (select n.nspowner from pg_namespace n where n.nspname = 'push')
) b
left join push.app_grant g on g.role = b.role left join pg_roles r on r.rolname = b.role
left join lateral (
  select string_agg(x.rolname, ', ' order by x.rolname) as names from pg_roles x
  where x.oid <> r.oid and pg_has_role(x.oid, r.oid, 'usage') and pg_has_role(x.oid, to_regrole('push_enqueuer'), 'usage')
    and not has_schema_privilege(x.oid, 'push', 'create') and not coalesce(pg_has_role(x.oid, to_regrole('push_gateway'), 'usage'), false)
) t on true;
comment on view push.app_grants is 'one row for each role that is bound to apps and each of its apps; members of the role are bound with it';
comment on column push.app_grants.app is 'an app that it may act for; null: none was granted to it';
comment on column push.app_grants.fault is 'why the grant does not work as it seems to; null: it works';
