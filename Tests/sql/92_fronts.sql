-- What clients of Sygnal and gorush need: which tokens are dead, whom a call rings, and entries that are told of no missed call.
create function pg_temp.hex(p_end text) returns text language sql as $$ select repeat('0', 61) || p_end $$;
create function pg_temp.error(p_statement text) returns text language plpgsql as $$
begin
  execute p_statement;
  return 'no error';
exception when others then
  return sqlstate || ' ' || sqlerrm;
end $$;
select push.register_lane(a, p) from unnest('{front,elsewhere}'::text[]) a, unnest('{apns,fcm}'::text[]) p \g /dev/null

-- Dead tokens.
insert into push.token_invalidations (app, provider, token, reason, invalidated_at) values
  ('front', 'apns', pg_temp.hex('d01'), 'Unregistered', now() - interval '1 hour'),
  ('front', 'fcm', 'front-token-0123456789-d02', 'UNREGISTERED', now() - interval '1 hour'),
  ('front', 'fcm', 'front-token-0123456789-d03', 'UNREGISTERED', now() - interval '1 hour'),
  ('front', 'fcm', 'front-token-0123456789-d04', 'UNREGISTERED', now() - interval '1 hour'),
  ('elsewhere', 'fcm', 'front-token-0123456789-a05', 'UNREGISTERED', now() - interval '1 hour');
create function pg_temp.dead(p_set_at timestamptz) returns text language sql as $$
  select string_agg(right(d, 3), ' ' order by d collate "C") from push.dead_among('front', '{apns,fcm,fcm,apns}',
    array[pg_temp.hex('d01'), 'front-token-0123456789-d02', 'front-token-0123456789-a05', pg_temp.hex('a06')],
    array_fill(p_set_at, '{4}')) d $$;
select test.equal('dead tokens of this app are told, others are not', pg_temp.dead(null), 'd01 d02');
select test.equal('also those that were given before they died', pg_temp.dead(now() - interval '2 hours'), 'd01 d02');
select test.equal('a time far in the future does not revive', pg_temp.dead(now() + interval '2 days'), 'd01 d02');
savepoint clocks;
select test.equal('the homeserver''s clock may be ahead', pg_temp.dead(now() + interval '1 hour'), null);
rollback to clocks;
select test.equal('or a little behind, and it gives whole seconds', pg_temp.dead(now() - interval '1 hour 30 seconds'), null);
rollback to clocks;
select test.equal('a token that was given again afterwards is alive', pg_temp.dead(now() - interval '1 minute'), null);
select test.equal('and stays so', pg_temp.dead(null), null);
select test.equal('the others are as dead as before',
  (select string_agg(right(token, 3), ' ' order by token) from push.token_invalidations where app in ('front', 'elsewhere')),
  'a05 d03 d04');

-- Whom a call rings.
select push.enqueue_call('{"callId": "front-1", "from": "x"}',
  '[{"userId": "a", "fcmToken": "front-token-0123456789-001"}, "b", 7]', 'front') \g /dev/null
create function pg_temp.compared(p_users text[]) returns text language sql as $$
  select format('%s %s', others, absent) from push.compare_recipients('front-1', 'front', p_users) $$;
select test.equal('all of its users', pg_temp.compared('{a,b}'), '0 {}');
select test.equal('one of them', pg_temp.compared('{b}'), '1 {}');
select test.equal('a stranger', pg_temp.compared('{a,c,c}'), '1 {c}');
select test.equal('nobody', pg_temp.compared('{}'), '2 {}');
select test.equal('another app''s call is not found',
  left(pg_temp.error($$ select push.compare_recipients('front-1', 'elsewhere', '{a}') $$), 5), 'P0002');

-- Missed calls.
select push.enqueue_call('{"callId": "front-2", "from": "x"}', '[
  {"userId": "a", "fcmToken": "front-token-0123456789-001", "missedCall": false},
  {"userId": "b", "fcmToken": "front-token-0123456789-002", "missedCall": true},
  {"userId": "c", "fcmToken": "front-token-0123456789-003", "missedCall": null},
  {"userId": "d", "fcmToken": "front-token-0123456789-004"}]', 'front') \g /dev/null
select test.equal('an entry that wants no missed call rings all the same',
  (select count(*) from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'front-2')::text, '4');
update push.outbox set state = 'missed' where call_id = 'front-2'; select test.follow();
select test.equal('and is told of none',
  (select string_agg(d.user_id, ' ' order by d.user_id) from push.deliveries d where d.call_id = 'front-2' and d.kind = 'missed_call'),
  'b c d');
select test.equal('another value is ignored, and told', (
    select c.skipped::text from push.enqueue_call('{"callId": "front-3", "from": "x"}',
      '[{"userId": "a", "fcmToken": "front-token-0123456789-001", "missedCall": "no"}]', 'front') c), '1');
select test.equal('its field is named', (
    select format('%s %s %s', field, reason, remedy)
    from push.skipped_recipients((select id from push.outbox where call_id = 'front-3'))),
  'recipients[0].missedCall MemberIgnored must be true or false, or left out; it was ignored');
