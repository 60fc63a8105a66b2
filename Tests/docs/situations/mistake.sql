-- Three messages that should never have been written; one was sent already.
\ir base.sql
select push.enqueue_call(jsonb_build_object('chatId', 'everybody', 'messageId', 'oops-' || g, 'from', 'ana@example.com'),
  jsonb_build_array(jsonb_build_object('userId', 'user-' || g, 'fcmToken', 'mistake_fcm_token_000000' || g)), 'porteiro',
  kind => 'message') from generate_series(1, 3) g;
select fixture.finish('oops-1', 0, 'delivered', 200);
