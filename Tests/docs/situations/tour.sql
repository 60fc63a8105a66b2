-- The README's tour as far as it needs no gateway: the first call, and the lanes a gateway would have made.
select push.register_app('porteiro', 60);
select push.register_lane('porteiro', p) from unnest('{apns,fcm,expo}'::text[]) p;
insert into push.outbox (app, payload, recipients) values ('porteiro', '{"callId": "tour-1", "from": "doorman-7"}',
  '[{"userId": "ana", "voipPushToken": "c0ffee00112233445566778899aabbccddeeff00112233445566778899aabbcc"}]');
