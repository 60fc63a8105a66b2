-- Keys of the HTTP API: who used one last, from where one may be used, and an end to each that does not ask for none.

alter table push.api_keys
  add column addresses cidr[],
  add column last_used_at timestamptz,
  add column last_used_from inet,
  add constraint api_keys_addresses_some check (cardinality(addresses) between 1 and 64 and array_position(addresses, null) is null);
comment on column push.api_keys.addresses is
  'networks it may be used from, 1 to 64; null: from anywhere. Gateways compare them with the address that the request came from';
comment on column push.api_keys.last_used_at is
  'when a gateway last took a request with it, written at most once a minute; null: never, or by older releases only';
comment on column push.api_keys.last_used_from is 'the address that this request came from';

-- Its signature changes (functions/api_keys.sql). A database that is made anew has none of it yet.
set local client_min_messages = warning;
drop function if exists push.create_api_key(text, text, text[], timestamptz);
reset client_min_messages;
