-- An intercom backend's own tables, in the database of the outbox. Emil's Expo token has been found dead.
set search_path = public;
create table calls (id text primary key, apartment_id int not null, doorman_id text not null, status text not null);
create table profiles (
  id text primary key, apartment_id int not null, push_token text, voip_push_token text, platform text,
  notification_enabled boolean not null default true
);
insert into profiles values
  ('ana', 101, 'ExponentPushToken[tour0000000000000000001]',
    'c0ffee00112233445566778899aabbccddeeff00112233445566778899aabbcc', 'ios', true),
  ('bruno', 101, 'ExponentPushToken[tour0000000000000000002]', null, 'android', true),
  ('carla', 101, 'ExponentPushToken[tour0000000000000000003]', null, 'android', false);
insert into profiles values
  ('dario', 102, null, null, 'ios', true),
  ('emil', 103, 'ExponentPushToken[tour0000000000000000005]', null, 'android', true);
create table user_devices (user_id text not null, device_token text primary key, token_type text not null);
insert into user_devices values ('login-emil', 'ExponentPushToken[tour0000000000000000005]', 'standard');
select push.register_app('porteiro', 60);
insert into push.token_invalidations (app, provider, token, reason)
  values ('porteiro', 'expo', 'ExponentPushToken[tour0000000000000000005]', 'DeviceNotRegistered');
-- The backend's role owns its tables, and may make triggers on them.
alter table calls owner to push_enqueuer;
alter table profiles owner to push_enqueuer;
alter table user_devices owner to push_enqueuer;
grant create on schema public to push_enqueuer;
reset search_path;
