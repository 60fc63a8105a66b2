-- A gateway that serves the app of an XMPP client.
select push.register_app('chat', 60);
select push.register_lane('chat', p) from unnest('{apns,fcm}'::text[]) p;
