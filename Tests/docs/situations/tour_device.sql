-- The tour, docs/tour.md, and the examples of docs/sql.md, with a registered device.
\ir tour.sql
select push.register_device('bruno', 'porteiro', 'fcm', 'tour_fcm_token_000000000001:APA91b', platform => 'android');
