-- An app that shows the text of messages, for docs/dialects.md.
\ir tour_device.sql
select push.register_app('porteiro', 60, p_message_text => true);
