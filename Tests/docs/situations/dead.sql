-- A backend that keeps tokens in a table of its own: one died three hours ago, one just now, and one was registered since it died.
\ir base.sql
set search_path = public;
create table phones (user_id text not null, token text primary key, registered_at timestamptz not null);
insert into phones values
  ('ana', 'ExponentPushToken[tour0000000000000000006]', now() - interval '9 days'),
  ('bruno', 'tour_fcm_token_000000000006:APA91b', now() - interval '9 days'),
  ('carla', 'tour_fcm_token_000000000007:APA91b', now() - interval '1 hour');
insert into push.token_invalidations (app, provider, token, user_id, reason, invalidated_at) values
  ('porteiro', 'expo', 'ExponentPushToken[tour0000000000000000006]', 'ana', 'DeviceNotRegistered', now() - interval '180 minutes'),
  ('porteiro', 'fcm', 'tour_fcm_token_000000000007:APA91b', 'carla', 'UNREGISTERED', now() - interval '120 minutes'),
  ('porteiro', 'fcm', 'tour_fcm_token_000000000006:APA91b', 'bruno', 'UNREGISTERED', now() - interval '5 minutes');
alter table phones owner to push_enqueuer;
grant create on schema public to push_enqueuer;
reset search_path;
