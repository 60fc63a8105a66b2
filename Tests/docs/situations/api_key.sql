-- A chat server's key has to be replaced.
\ir base.sql
select push.register_app('commeazy', 60);
select push.create_api_key('commeazy', 'prosody', '{enqueue,device}');
update push.api_keys set created_at = now() - interval '200 days';
update push.api_keys set expires_at = created_at + interval '365 days', last_used_at = now() - interval '20 s', last_used_from = '203.0.113.9';
