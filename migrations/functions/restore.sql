-- A database that was restored from a dump (pg_dump) contains the deliveries that were owed when the dump was made. Since
-- then they were sent, or they are too late. None of them is sent again.
--
-- pg_dump does not save generated columns: they are computed again when a row is written, also by a restore. The generated
-- column of push.origin therefore shows the time of a restore, and everything made before that time is from the past.
-- Nothing is claimed until these deliveries and calls are ended: the first gateway that registers or sends a heartbeat in
-- the restored database ends them, in steps.

-- How a restore is noticed ----------------------------------------------------------------------------------------------

comment on column push.origin.written_at is 'when the row was written into this database, by its creation or by a restore';

-- Each claim and beat asks. An SQL function would be planned each time, which takes longer than all that it does.
create or replace function push.restored_at() returns timestamptz
language plpgsql stable security definer set search_path = push, pg_temp as
$$ begin return (select max(o.written_at) from push.origin o where o.written_at > o.made_at + interval '1 s'); end $$;
comment on function push.restored_at is 'when this database was restored, while something from before is left; else null';

create or replace function push.mark_restored() returns void
language sql volatile security definer set search_path = push, pg_temp as $$
  insert into push.origin (made_at) values ('-infinity')
$$;
comment on function push.mark_restored is
  'marks everything owed now as not to be sent, as in a database restored from a dump. For use after recovery of a '
  'physical backup to a point in time, before gateways start. For the owner of the schema';

-- What was owed then ----------------------------------------------------------------------------------------------------

create or replace function push.put_away() returns trigger
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  c_most     constant int := 20000;
  v_restored timestamptz := push.restored_at();
  v_places   tid[];
  v_left     bigint;
begin
  -- This function itself updates push.gateways.
  if v_restored is null or pg_trigger_depth() > 1 then
    return null;
  end if;
  -- One session at a time; the others skip this.
  perform from push.origin o for update skip locked;
  v_restored := push.restored_at();
  if not found or v_restored is null then
    return null;
  end if;
  -- Gateways from before the restore do not run here.
  update push.gateways g set alive = false, ended_at = clock_timestamp(), ended_reason = 'silent'
    where g.alive and g.started_at < v_restored;
  -- Ends that were still to be announced then, or told to phones.
  delete from push.follow_ups f where f.noted_at < v_restored;
  v_places := array(select d.ctid from push.delivery d where d.created_at < v_restored limit c_most for update skip locked);
  -- What history refuses must not keep claims closed.
  perform push.change_rows('delete from push.delivery where ctid = any ($1)', v_places)
    where push.bury(v_places, 2, 'Restored') < cardinality(v_places);
  if cardinality(v_places) = c_most then
    return null;
  end if;
  -- Missed and voided: no device gets a push for this. A call whose end cannot be written is left to push.miss.
  v_places := array(select x.ctid from push.outbox x where x.state = 'ringing' and x.created_at < v_restored
    limit c_most / 4 for update skip locked);
  v_left := cardinality(v_places) - push.change_rows('update push.outbox o set state = ''missed'', end_reason = ''restored'', voided = true '
    'where o.ctid = any ($1)', v_places);
  -- A row that was locked is ended later.
  if not exists (select from push.delivery d where d.created_at < v_restored)
    and (select count(*) from push.outbox o where o.state = 'ringing' and o.created_at < v_restored) <= v_left then
    delete from push.origin;
    insert into push.origin default values;
  end if;
  return null;
end
$$;
comment on function push.put_away is 'in a restored database: ends some of what was owed or rang before, without a push to any device';

create or replace trigger put_away_restored after insert or update on push.gateways
  for each statement execute function push.put_away();
