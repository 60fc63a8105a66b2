-- Backends read the dead tokens of their apps with push.dead_tokens (functions/devices.sql).

-- An expression, so that only that function can use the index: whatever looks up a token would read all those of an app by it.
create index if not exists token_invalidations_of_app on push.token_invalidations ((app || ''), invalidated_at);
