-- A user with two devices, a call that is over, and one that rings.
\ir base.sql
select push.register_device('ana', 'porteiro', 'fcm', 'people_fcm_token_000000001', platform => 'android');
select push.register_device('ana', 'porteiro', 'expo', 'ExponentPushToken[people0000000001]');
select fixture.call('call-20', '["ana", {"userId": "bruno", "fcmToken": "people_fcm_token_000000002", "platform": "android"}]', '5 minutes');
select fixture.finish('call-20', 0, 'delivered', 200);
select fixture.finish('call-20', 1, 'delivered', 200);
select push.answer_call('call-20', 'ana');
delete from push.delivery;
select fixture.call('call-21', '["ana", {"userId": "bruno", "fcmToken": "people_fcm_token_000000002", "platform": "android"}]', '4 s');
select fixture.finish('call-21', 0, 'delivered', 200);
select fixture.finish('call-21', 1, 'delivered', 200);
