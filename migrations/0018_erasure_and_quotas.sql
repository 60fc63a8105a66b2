-- An erasure names its user until it is finished, and keeps the calls that it has found and not yet looked at. Quotas are kept in arrays.

alter table push.erasure add column user_id text, add column found bigint[] not null default '{}',
  add column has_locked boolean not null default false, drop column has_devices, drop column if exists rings_after;
comment on column push.erasure.user_id is 'the backend''s id of the user; null: it is finished';
comment on column push.erasure.after_id is 'push.outbox.id up to which calls were looked through';
comment on column push.erasure.until_id is 'push.outbox.id down to which calls were looked through';
comment on column push.erasure.scanned_at is
  'when all calls and all of history had last been looked through; null: push.erase_user or a gateway goes on';
comment on column push.erasure.found is 'calls (push.outbox.id) that name the user and are looked at next';
comment on column push.erasure.waiting is
  'calls (push.outbox.id) that ring, of which something is still owed, or which were locked: a gateway looks at them again';
comment on column push.erasure.has_locked is 'whether rows outside of calls were locked; they are removed when it is finished';
comment on column push.erasure.looked_at is 'when a gateway last continued it';

-- Those that release 0.1.0 has begun: the user is found in the calls that wait. If none names the user, nothing has to be masked in them.
update push.erasure e set until_id = 0, user_id = (
  select n.name
  from unnest(e.waiting || e.rang) w(id) join push.outbox o on o.id = w.id cross join lateral (
    select case jsonb_typeof(r) when 'string' then r #>> '{}' else r ->> 'userId' end from jsonb_array_elements(o.recipients) r
    union all select jsonb_object_keys(o.declined) union all select o.answered_by union all select o.payload ->> 'from'
    union all select d.user_id from push.delivery d where d.outbox_id = o.id
  ) n(name)
  where sha256(convert_to(n.name, 'UTF8')) = e.user_digest limit 1)
where e.finished_at is null;
update push.erasure e set waiting = '{}', rang = '{}' where e.user_id is null;

-- push.check_call lets a call be masked only together with this, which backends may not write.
alter table push.outbox add column erased_at timestamptz;
comment on column push.outbox.erased_at is 'when push.erase_user last masked a user in it; null: never';

-- No release has had quotas. What a build before this one made of them is made anew (functions/quotas.sql).
do $$
declare
  v_name regclass;
begin
  for v_name in select c.oid::regclass from pg_class c where c.relnamespace = 'push'::regnamespace and c.relkind = 'S' and c.relname ~ '^meter_' loop
    execute format('drop sequence %s', v_name);
  end loop;
  drop table if exists push.quota, push.quota_of_replica, push.quota_refusals cascade;
end
$$;
