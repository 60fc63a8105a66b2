-- A group message to many devices waits behind FCM's rate, and one call passes it by.
\ir base.sql
select push.enqueue_call(jsonb_build_object('chatId', 'all', 'from', 'office', 'messageId', 'bulk-' || b),
    (select jsonb_agg(jsonb_build_object('userId', 'user-' || b || '-' || g, 'platform', 'android',
      'fcmToken', 'bulk_fcm_token_00000000' || b || '-' || g)) from generate_series(1, 1000) g),
    'porteiro', kind => 'group_message')
  from generate_series(1, 3) b;
update push.delivery set created_at = created_at - interval '90 s', due_at = due_at - interval '90 s';
select fixture.lanes(array[3, 200, 2], array['closed', 'closed', 'closed'], array[40, 300, 20]);
select fixture.call('ring-' || g, jsonb_build_array(jsonb_build_object('userId', 'user-' || g,
    'fcmToken', 'ring_fcm_token_0000000' || g)), make_interval(secs => 30 - g)) from generate_series(10, 19) g;
select fixture.finish('ring-' || g, 0, 'delivered', 200, null, '9 ms', '70 ms') from generate_series(10, 19) g;
