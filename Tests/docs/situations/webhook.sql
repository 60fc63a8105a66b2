-- A receiver that refuses the signature.
\ir base.sql
select push.set_webhooks('{porteiro}', '{backend.example.com}', '{digest}', array[null]::text[]);
insert into push.outbox (app, payload, recipients) values ('porteiro', '{"callId": "hook-1", "from": "x"}', '["nobody"]'),
  ('porteiro', '{"callId": "hook-2", "from": "x"}', '["nobody"]');
select push.end_call('hook-1'), push.end_call('hook-2');
select count(*) from push.claim_webhooks('{porteiro}', '{digest}', '{10}', '{20000}');
select push.settle_webhooks(array_agg(id), array_agg(app), array_agg('digest'::text), array_agg(attempts), array_agg(1::smallint), array_agg(401),
  array_agg(null::text), array_agg(600000), array_agg(null::int)) from push.webhook_event;
update push.webhook_event set created_at = now() - interval '20 minutes';
