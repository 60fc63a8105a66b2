-- What follows from the end of a call, a decline, a deletion or a failed push is noted in one queue, and history keeps whole tokens.

-- A row is noted in the transaction of its cause, and taken by push.follow_up (functions/follow_ups.sql). Nobody waits for another's row,
-- so there is no key: several rows may name one call.
create table push.follow_ups (
  outbox_id bigint not null,
  why       text not null,
  is_urgent boolean not null default false,
  due_at    timestamptz not null default clock_timestamp(),
  noted_at  timestamptz not null default clock_timestamp(),
  tries     int not null default 0,
  constraint follow_ups_why_known check (why in ('ended', 'declined', 'gone', 'failed', 'unheard', 'stuck', 'untold'))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, vacuum_truncate = off);
create index follow_ups_due on push.follow_ups (is_urgent, due_at);
create index follow_ups_failed on push.follow_ups (due_at) where tries <> 0;
alter table push.follow_ups alter outbox_id set statistics 0, alter why set statistics 0;
comment on table push.follow_ups is 'one reason to look at a call after the transaction that changed it; taken by push.follow_up';
comment on column push.follow_ups.outbox_id is 'the call: push.outbox.id';
comment on column push.follow_ups.why is
  'ended, declined, gone (deleted), failed (an invite has failed for good), unheard (no phone has reported that it rings), stuck (its lane sends '
  'nothing), untold (a cancel that would '
  'have shown a missed call was not sent)';
comment on column push.follow_ups.is_urgent is 'whether a ring may depend on it';
comment on column push.follow_ups.due_at is 'when it is taken; after a failure, when it is tried again';
comment on column push.follow_ups.noted_at is 'when it was noted';
comment on column push.follow_ups.tries is 'how often it has failed alone; -1: it was among others when they took too long, and is tried alone';

alter table push.delivery add column paired boolean not null default false;
comment on column push.delivery.paired is
  'for a cancel and a missed call of one call: whether the other one is sent to the same phone. The phone shows them once';

-- A CHECK or NOT NULL that fails would print the row with its token, so there are none on what settling fills in.
alter table push.history alter device drop not null, add column token text, add column environment smallint,
  add column platform smallint, add column locale text, add column data jsonb,
  drop constraint history_codes_known, drop constraint history_failure_has_reason, drop constraint history_failures_form;
comment on column push.history.token is 'the device token; null: erased, or finished before this column existed';
comment on column push.history.environment is '0 production, 1 sandbox';
comment on column push.history.platform is 'as push.delivery.platform';
comment on column push.history.locale is 'language of visible texts';
comment on column push.history.data is 'as push.delivery.data';
do $$
declare
  v_name text;
begin
  for v_name in select i.inhrelid::regclass from pg_inherits i where i.inhparent = 'push.history'::regclass loop
    execute format('alter table %s alter token set statistics 0, alter locale set statistics 0, alter data set statistics 0', v_name);
  end loop;
end $$;
