-- An app that rings in browsers, too.
select push.register_app('porteiro', 60, p_providers => '{apns,fcm,expo,webpush}', p_known => push.channels());
