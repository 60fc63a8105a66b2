-- Expo does not answer questions for receipts: 12 tickets are due since 20 minutes and more. Others were read before.
\ir base.sql
select fixture.call('ticket-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'pushToken', 'ExponentPushToken[receipt00000000000' || g || ']')), make_interval(mins => 60 - g))
  from generate_series(10, 29) g;
select fixture.finish('ticket-' || g, 0, 'delivered', 200) from generate_series(10, 29) g;
update push.history h set receipt_reason = case o.call_id when 'ticket-12' then 'InvalidCredentials' else 'DeviceNotRegistered' end
  from push.outbox o where o.id = h.outbox_id and o.call_id in ('ticket-10', 'ticket-11', 'ticket-12');
insert into push.receipt_batch (app, ticket, outbox_id, n, user_id, token, sent_at, due_at, give_up_at)
  select 'porteiro', array['ticket-of-' || o.call_id], array[h.outbox_id], array[h.n], array[h.user_id],
    array[h.token], h.sent_at, h.sent_at + interval '15 minutes', h.sent_at + interval '24 hours'
  from push.history h join push.outbox o on o.id = h.outbox_id where o.call_id between 'ticket-13' and 'ticket-24';
