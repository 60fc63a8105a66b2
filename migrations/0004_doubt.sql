-- A gateway is declared dead at a second look: two steps of the clock may make one look deceive.
alter table push.gateways add column doubted_at timestamptz;
comment on column push.gateways.doubted_at is
  'when another first found that it is not heard (push.beat); null: it is heard, cleared by its own beats';
