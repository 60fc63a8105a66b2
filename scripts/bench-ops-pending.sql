-- Deliveries that are owed, for scripts/bench-ops.sh: calls with three devices, through push.outbox. Variables: pending,
-- prefix (of their ids). A fifth of the calls ring, for ten minutes; the others are messages.
\set ON_ERROR_STOP on
set synchronous_commit = off;
insert into push.outbox (app, kind, payload, recipients, ring_seconds)
select 'app-' || i % 8, case when i % 10 < 2 then 'incoming_call' else 'message' end,
  jsonb_build_object('callId', :'prefix' || i, 'chatId', 'room-' || i % 500, 'from', 'door-' || i % 500, 'fromName', 'Portaria'),
  jsonb_build_array(
    jsonb_build_object('userId', 'ios-' || i, case when i % 10 < 2 then 'voipPushToken' else 'apnsToken' end, md5(:'prefix' || i) || md5(i || 'v')),
    jsonb_build_object('userId', 'android-' || i, 'fcmToken', 'bench-token-' || :'prefix' || md5(i::text)),
    jsonb_build_object('userId', 'expo-' || i, 'pushToken', 'ExponentPushToken[' || :'prefix' || i || ']')),
  case when i % 10 < 2 then 600 else 14400 end
from generate_series(1, :pending / 3) i;
