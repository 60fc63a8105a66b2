-- Roles that act for some apps only: tenants. Who is one, and what that means, is in functions/tenants.sql.

create table push.app_grant (
  role       text not null,
  app        text not null,
  granted_at timestamptz not null default clock_timestamp(),
  granted_by text not null default session_user,
  constraint app_grant_pkey primary key (role, app),
  constraint app_grant_app_form check (app ~ '^[A-Za-z0-9]' and app !~ '[^A-Za-z0-9_.-]' and length(app) <= 64)
);
comment on table push.app_grant is
  'one app that a role of push_tenant, and its members, may act for; written by push.grant_app. People read push.app_grants';
comment on column push.app_grant.role is 'name of the database role, which is good in every cluster that the database is restored to';
comment on column push.app_grant.app is 'name of the app';
comment on column push.app_grant.granted_at is 'when it was granted';
comment on column push.app_grant.granted_by is 'the database role that was logged in then';
