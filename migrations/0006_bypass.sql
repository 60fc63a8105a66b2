-- push.bypass looks at an invite once.
alter table push.delivery add column bypassed_at timestamptz;
comment on column push.delivery.bypassed_at is
  'when push.bypass looked for the user''s next channel, whether there is one or not; null: it has not';
