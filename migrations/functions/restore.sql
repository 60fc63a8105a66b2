-- A database that was restored from a dump (pg_dump) contains the deliveries that were owed when the dump was made. Since
-- then they were sent, or they are too late. None of them is sent again.
--
-- pg_dump does not save generated columns: they are computed again when a row is written, also by a restore. The generated
-- column of push.origin therefore shows the time of a restore, and everything made before that time is from the past.
-- Nothing is claimed until these deliveries and calls are ended: the first gateway that registers or sends a heartbeat in
-- the restored database ends them, in steps.

-- How a restore is noticed ----------------------------------------------------------------------------------------------

-- Declared immutable because a generated column requires it. It is computed once, when the row is written.
create or replace function push.written_at() returns timestamptz language sql immutable as
$$ select pg_catalog.clock_timestamp() $$;
comment on function push.written_at is 'the current time; for push.origin.written_at';

do $$
begin
  if not exists (select from pg_attribute a where a.attrelid = 'push.origin'::regclass and a.attname = 'written_at') then
    alter table push.origin add written_at timestamptz generated always as (push.written_at()) stored;
    insert into push.origin default values;
  end if;
end
$$;
comment on column push.origin.written_at is 'when the row was written into this database, by its creation or by a restore';

create or replace function push.restored_at() returns timestamptz
language sql stable security definer set search_path = push, pg_temp as $$
  select max(o.written_at) from push.origin o where o.written_at > o.made_at + interval '1 s'
$$;
comment on function push.restored_at is
  'when this database was restored from a dump, as long as deliveries or ringing calls from before are left; null: it was '
  'not restored, or they have all been ended';

create or replace function push.mark_restored() returns void
language sql volatile security definer set search_path = push, pg_temp as $$
  insert into push.origin (made_at) values ('-infinity')
$$;
comment on function push.mark_restored is
  'marks everything owed now as not to be sent, as in a database restored from a dump. For use after recovery of a '
  'physical backup to a point in time, before gateways start. For the owner of the schema';

-- What was owed then ----------------------------------------------------------------------------------------------------

create or replace function push.put_away(p_max int default 20000) returns boolean
language plpgsql volatile security definer set search_path = push, pg_temp set jit = off as $$
declare
  v_restored timestamptz;
  v_calls    int;
  v_owed     int;
begin
  -- One session at a time; the others skip this.
  perform from push.origin o for update skip locked;
  v_restored := push.restored_at();
  if not found or v_restored is null then
    return false;
  end if;
  -- Gateways from before the restore do not run here, and the server has begun a new life.
  update push.gateways g set alive = false, ended_at = clock_timestamp(), ended_reason = 'silent'
    where g.alive and g.started_at < v_restored;
  delete from push.reclaimed r where r.asked_at < v_restored;
  delete from push.life l where l.began_at < v_restored;
  -- Ends that were still to be announced then, or told to phones.
  delete from push.ends_unchecked e where e.ended_at < v_restored;
  with gone as (
    delete from push.delivery d
    where d.ctid = any (array(
      select x.ctid from push.delivery x where x.created_at < v_restored limit p_max for update skip locked))
    returning d.*
  ), tallied as (
    insert into push.tally (what, lane, kind, outcome, reason, untried, count)
    select 'ended', g.lane, g.kind, 2, 'Restored', g.attempt = 0, count(*) from gone g group by g.lane, g.kind, g.attempt = 0
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, call_id, device,
    token_hash, reason, failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind, 2, g.user_id,
    (select o.call_id from push.outbox o where o.id = g.outbox_id), left(g.token, 4) || '…' || right(g.token, 4),
    hashtextextended(g.token, 0), 'Restored', g.failures, g.fallback_of
  from gone g;
  get diagnostics v_owed = row_count;
  if v_owed = p_max then
    return true;
  end if;
  -- Missed and voided: no device gets a push for this.
  update push.outbox o set state = 'missed', end_reason = 'restored', voided = true
    where o.id = any (array(
      select x.id from push.outbox x where x.state = 'ringing' and x.created_at < v_restored
      limit p_max / 4 for update skip locked));
  get diagnostics v_calls = row_count;
  if v_calls = 0 and v_owed = 0 then
    delete from push.origin;
    insert into push.origin default values;
    return false;
  end if;
  return true;
end
$$;
comment on function push.put_away is
  'in a database restored from a dump: makes at most p_max deliveries from before the restore void (Restored), ends the '
  'calls that rang then without a push to any device, and marks their gateways as ended. Returns true if there may be more';

create or replace function push.put_away_restored() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp as $$
begin
  -- push.put_away itself updates push.gateways.
  if pg_trigger_depth() = 1 and push.restored_at() is not null then
    perform push.put_away();
  end if;
  return null;
end
$$;
comment on function push.put_away_restored is 'runs push.put_away when a gateway registers or sends a heartbeat';

create or replace trigger put_away_restored after insert or update on push.gateways
  for each statement execute function push.put_away_restored();

create or replace function push.keep_closed() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp as $$
begin
  if push.restored_at() is not null then
    new.opened_at := null;
  end if;
  return new;
end
$$;
comment on function push.keep_closed is
  'keeps push.life closed, so that nothing is claimed, until push.put_away has ended what was restored';

create or replace trigger keep_closed before insert or update of opened_at on push.life
  for each row when (new.opened_at is not null) execute function push.keep_closed();
