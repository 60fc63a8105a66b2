-- A gateway that serves the app of a chat server.
select push.register_app('commeazy', 60);
select push.register_lane('commeazy', p) from unnest('{apns,fcm}'::text[]) p;
