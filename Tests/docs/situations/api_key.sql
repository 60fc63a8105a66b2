-- A chat server's key has to be replaced.
\ir base.sql
select push.register_app('commeazy', 60);
select push.create_api_key('commeazy', 'prosody', '{enqueue,device}');
update push.api_keys set created_at = now() - interval '200 days';
