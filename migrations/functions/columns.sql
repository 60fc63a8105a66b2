-- What the tables of the numbered migrations lack. Release 0.1.0 does not start on a schema with a migration that it does not know
-- (docs/adr/0049), so this is no migration. It is done once: gateways write to these tables all the time, and alone.sql has locked them.

-- Declared immutable because a generated column requires it. It is computed once, when the row is written.
create or replace function push.written_at() returns timestamptz language sql immutable as
$$ select pg_catalog.clock_timestamp() $$;
comment on function push.written_at is 'the current time; for push.origin.written_at';

do $$
declare
  v_change text;
begin
  if exists (select from pg_attribute a where a.attrelid = 'push.delivery'::regclass and a.attname = 'handed_on_by') then
    return;
  end if;
  -- push.lane is not rewritten: a transaction whose snapshot is older would find it empty, and its calls would be refused.
  alter table push.lane add column service text not null default '', add column channel text, drop constraint lane_app_provider,
    add constraint lane_app_provider_service unique (app, provider, service);
  update push.lane set channel = provider;
  alter table push.lane add constraint lane_service_known check (service = any (push.push_services(provider)));
  alter table push.lane_status add column refusal text, add column refused text,
    add constraint lane_status_refused_known check (refused in ('all', 'some', 'new'));
  alter table push.apps add column message_text boolean not null default false;
  alter table push.origin add column if not exists written_at timestamptz generated always as (push.written_at()) stored;  -- 0.1.0 has it
  insert into push.origin (made_at) select clock_timestamp() where not exists (select from push.origin);
  alter table push.job add column done_at timestamptz not null default clock_timestamp();
  alter table push.gateways add column login text;
  alter table push.receipt_batch add column tickets int generated always as (cardinality(ticket)) stored;
  alter table push.delivery add column paired boolean not null default false, add column found_ended boolean not null default false,
    add column handed_on_at timestamptz, add column accepted_at timestamptz, add column handed_on_by int[];
  -- A CHECK or NOT NULL that fails would print the row with its token, so there are none on what settling fills in.
  alter table push.history alter device drop not null, add column token text, add column environment smallint,
    add column platform smallint, add column locale text, add column data jsonb,
    drop constraint history_codes_known, drop constraint history_failure_has_reason, drop constraint history_failures_form;
  for v_change in
    select format('alter table %s alter token set statistics 0, alter locale set statistics 0, alter data set statistics 0', i.inhrelid::regclass)
    from pg_inherits i where i.inhparent = 'push.history'::regclass
    union all
    -- The CHECKs that list channels ask push.channels instead, so that a new channel needs no lock on a table, and the one of platforms has
    -- web. Those of a table with rows are not validated: the former ones were narrower, and a scan would stop every registration meanwhile.
    select format('alter table push.%I drop constraint if exists %I, add constraint %2$I check (%s)%s', w.relation, w.name, w.condition,
      case when pg_relation_size(format('push.%I', w.relation)::regclass) > 0 then ' not valid' end)
    from (values
      ('lane', 'lane_provider_known', 'provider = any (push.channels())'),
      ('apps', 'apps_providers_known', '(providers <@ push.channels())'),
      ('devices', 'devices_provider_known', 'provider = any (push.channels())'),
      ('devices', 'devices_platform_known', 'platform in (''ios'', ''android'', ''web'')'),
      ('token_invalidations', 'token_invalidations_provider_known', 'provider = any (push.channels())'),
      ('quarantined_tokens', 'quarantined_tokens_provider_known', 'provider = any (push.channels())')
    ) w(relation, name, condition)
  loop
    execute v_change;
  end loop;
  -- A call is masked together with erased_at (push.check_call), which no backend may write. Release 0.1.0 knew a user who is erased by
  -- digest only. The user is found in the calls that wait; if none names the user, nothing has to be masked in them.
  alter table push.outbox add column erased_at timestamptz;
  alter table push.erasure add column user_id text, add column found bigint[] not null default '{}',
    add column has_locked boolean not null default false, drop column has_devices;
  update push.erasure e set until_id = 0, user_id = (
    select n.name
    from unnest(e.waiting || e.rang) w(id) join push.outbox o on o.id = w.id cross join lateral (
      select case jsonb_typeof(r) when 'string' then r #>> '{}' else r ->> 'userId' end from jsonb_array_elements(o.recipients) r
      union all select jsonb_object_keys(o.declined) union all select o.answered_by union all select o.payload ->> 'from'
    ) n(name)
    where sha256(convert_to(n.name, 'UTF8')) = e.user_digest limit 1)
  where e.finished_at is null;
  update push.erasure e set waiting = '{}', rang = '{}' where e.user_id is null;
end
$$;
-- By themselves, because a database that was made before they were has all the others.
do $$
begin
  if not exists (select from pg_attribute a where a.attrelid = 'push.gateways'::regclass and a.attname = 'had_suspect') then
    alter table push.gateways add column had_suspect boolean not null default false;
    -- Another one would stop push.take_job, and with it all jobs.
    alter table push.job add constraint job_every_range check (every between interval '10 ms' and interval '1 day');
  end if;
end
$$;
comment on column push.apps.message_text is
  'whether the text of a message may be in its payload, as text, and is shown; false: such a message is refused';
comment on column push.delivery.n is 'number of the push within its call, from 0, in the order in which they were made';
comment on column push.job.done_at is 'when a step of it was last done, to within five seconds; a step that fails is not done';
comment on column push.gateways.login is 'the role as which it has registered';
comment on column push.gateways.had_suspect is
  'of one that has ended: whether it had a delivery that two others had when they died, which is blamed for its end';
comment on column push.receipt_batch.tickets is 'number of its tickets, which are counted without reading them';
