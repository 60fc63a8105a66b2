-- A chat app with a VoIP and an FCM token a user, as its backend registered them.
select push.register_app('enclosure', 60);
select push.register_device('omar', 'enclosure', 'apns',
  'c0ffee00112233445566778899aabbccddeeff00112233445566778899aabbcc', platform => 'ios');
select push.register_device('omar', 'enclosure', 'fcm', 'encl_fcm_token_000000000001:APA91b0001', platform => 'ios');
select push.register_device('lina', 'enclosure', 'fcm', 'encl_fcm_token_000000000002:APA91b0002',
  platform => 'android');
