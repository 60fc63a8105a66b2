-- Expo does not answer questions for receipts: 12 tickets are due since 20 minutes and more. Others were read before.
\ir base.sql
select fixture.call('ticket-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'pushToken', 'ExponentPushToken[receipt00000000000' || g || ']')), make_interval(mins => 60 - g))
  from generate_series(10, 29) g;
select fixture.finish('ticket-' || g, 0, 'delivered', 200) from generate_series(10, 29) g;
update push.history set receipt_reason = 'DeviceNotRegistered' where call_id in ('ticket-10', 'ticket-11');
update push.history set receipt_reason = 'InvalidCredentials' where call_id = 'ticket-12';
insert into push.receipt_batch (app, ticket, outbox_id, n, user_id, token, sent_at, due_at, give_up_at)
  select 'porteiro', array['ticket-of-' || h.call_id], array[h.outbox_id], array[h.n], array[h.user_id],
    array['ExponentPushToken[' || h.call_id || ']'], h.sent_at, h.sent_at + interval '15 minutes', h.sent_at + interval '24 hours'
  from push.history h where h.call_id between 'ticket-13' and 'ticket-24';
