-- The queue of what follows: from ends, declines and deletions of calls, and from pushes that failed.
--
-- A note (push.follow_ups) is written in the transaction of its cause. A gateway takes notes when it hears that calls have ended, when it has
-- settled an invite that failed, and as a job every 250 ms, always under READ COMMITTED and in a transaction of its own. What follows is
-- found by comparing what there is with what there should be, so a note may be taken twice, late, or after a crash, and the order of
-- notes does not matter.
--
-- Locks, in this order: the notes (skip locked), the calls (skip locked; a backend may hold one for hours), then their deliveries. Claims,
-- settlements, parkings, promotions and expiries lock deliveries only, and hold nothing that others need.

-- The queue, and what it needs -----------------------------------------------------------------------------------------

-- A row is noted in the transaction of its cause, and taken by push.follow_up. Nobody waits for another's row,
-- so there is no key: several rows may name one call.
create table if not exists push.follow_ups (
  outbox_id bigint not null,
  why       text not null,
  is_urgent boolean not null default false,
  due_at    timestamptz not null default clock_timestamp(),
  noted_at  timestamptz not null default clock_timestamp(),
  tries     int not null default 0,
  constraint follow_ups_why_known check (why in ('ended', 'declined', 'gone', 'failed', 'unheard', 'stuck', 'untold'))
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000, vacuum_truncate = off);
create index if not exists follow_ups_due on push.follow_ups (is_urgent, due_at);
create index if not exists follow_ups_failed on push.follow_ups (due_at) where tries <> 0;
alter table push.follow_ups alter outbox_id set statistics 0, alter why set statistics 0;
comment on table push.follow_ups is 'one reason to look at a call after the transaction that changed it; taken by push.follow_up';
comment on column push.follow_ups.why is
  'ended, declined, gone (deleted), failed (an invite has failed for good), unheard (no phone has reported that it rings), stuck (its '
  'lane sends nothing), untold (a cancel that would have shown a missed call expired or was refused)';
comment on column push.follow_ups.is_urgent is 'whether a ring may depend on it';
comment on column push.follow_ups.due_at is 'when it is taken; after a failure, when it is tried again';
comment on column push.follow_ups.noted_at is 'when it was noted';
comment on column push.follow_ups.tries is 'how often it has failed alone; -1: it was among others when they took too long, and is tried alone';

comment on column push.delivery.paired is
  'for a cancel and a missed call of one call: whether the other one is sent to the same phone. The phone shows them once';
comment on column push.delivery.found_ended is
  'for a claimed invite: whether the claim has found that its call no longer rings for its user. Its gateway does not send it';
comment on column push.delivery.handed_on_by is
  'the gateways that have handed it on, the last one last, since one of them did so for the second time. They do not claim it before '
  'due_at, others do; null: none has';
comment on column push.delivery.handed_on_at is 'when a gateway last returned it; null: none has';
comment on column push.delivery.accepted_at is
  'for a claimed delivery: when the provider accepted it from another gateway, which had it before. So it ends as delivered';
comment on column push.history.token is 'the device token; null: erased, or finished before this column existed';

-- The work grows with the recipients, and calls are locked until the commit. A run therefore takes bites of 4, 8, 16 and then 32 calls,
-- because each costs as much as several calls, and begins no more after a quarter of a second. Every run takes one, also if finding the
-- notes took longer. The notes of a call are in one bite, so that thousands of declines of one call are one piece of work.
--
-- One call whose end fails, or takes longer than a statement may, must not stop those of others. After an error, a bite is undone, and its
-- notes are tried call by call, by the job follow_up_again, each second. The time limit counts for the whole statement, and only once, so a run
-- ends with it. A note that fails alone is due again after 250 ms, 1 s, 4 s, and so on up to half an hour, and given up when its missed calls would
-- have expired.
create or replace function push.follow_up(p_urgent boolean default false, p_max int default 200, p_within interval default '10 s')
returns int
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  -- The calls of a run stay locked until its commit.
  v_until timestamptz := clock_timestamp() + interval '250 ms';
  v_since timestamptz := statement_timestamp() - p_within;
  v_bite  tid[];
  v_count int := 0;
begin
  -- Calls from before a restore neither ring nor are announced (push.put_away).
  if push.restored_at() is not null then
    return 0;
  end if;
  for v_bite in
    with newest as materialized (
      select f.ctid as tid, f.outbox_id, f.due_at from push.follow_ups f
      where f.is_urgent = p_urgent and f.due_at > v_since and f.due_at <= statement_timestamp() and f.tries = 0
      order by f.due_at desc limit p_max / 2 for update skip locked
    ), oldest as materialized (
      select f.ctid as tid, f.outbox_id, f.due_at from push.follow_ups f
      where f.is_urgent = p_urgent and f.due_at > v_since and f.due_at <= statement_timestamp() and f.tries = 0
        and f.ctid not in (select n.tid from newest n)
      order by f.due_at limit p_max - p_max / 2 for update skip locked
    ), failed as materialized (
      select f.ctid as tid, f.outbox_id, f.tries, f.due_at from push.follow_ups f
      where p_urgent is null and f.tries <> 0 and f.due_at <= statement_timestamp() order by f.due_at limit p_max for update skip locked
    ), noted as (
      -- The oldest and the newest in turns: who ends thousands of calls at once does not make the phones of others wait.
      select n.tid, n.outbox_id, least(row_number() over (order by n.due_at), row_number() over (order by n.due_at desc)) as turn
      from (select * from newest union all select * from oldest) n
      union all
      select f.tid, f.outbox_id, row_number() over (order by f.tries, f.due_at) from failed f
    )
    select array_agg(c.tid)
    from (
      select n.tid, case when p_urgent is null then n.place when n.place <= 28 then floor(log(2.0, (n.place + 3) / 4.0))
        else 3 + (n.place - 29) / 32 end as bite
      from (
        select n.tid, dense_rank() over (order by n.first, n.outbox_id) as place
        from (select n.*, min(n.turn) over (partition by n.outbox_id) as first from noted n) n
      ) n
    ) c group by c.bite order by c.bite
  loop
    if v_count > 0 and clock_timestamp() > v_until then
      return p_max;
    end if;
    v_count := v_count + cardinality(v_bite);
    begin
      perform push.follow(v_bite);
    exception when query_canceled or others then
      perform push.put_off(v_bite, sqlstate);
      exit when sqlstate = '57014';
    end;
  end loop;
  return v_count;
end
$$;
comment on function push.follow_up is
  'does what follows from ends, declines, deletions and failed pushes, for at most p_max notes. Returns how many it took, or p_max if there was no '
  'time for the rest. p_urgent: '
  'notes that a ring may depend on, or the others; null: call by call, those that have failed, or that were among others when they took too '
  'long; p_within: leaves out notes that were due longer ago, unless p_urgent is null. While a transaction holds back '
  'vacuum, a run without this limit reads the dead entries of all earlier notes; run it so from time to time';

create or replace function push.follow(p_notes tid[]) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_all   bigint[] := array(select distinct f.outbox_id from push.follow_ups f where f.ctid = any (p_notes));
  v_calls bigint[] := array(select o.id from push.outbox o where o.id = any (v_all) order by o.id for no key update skip locked);
  v_gone  bigint[] := array(select c.id from unnest(v_all) c(id) where (select true from push.outbox o where o.id = c.id) is null);
  -- Of these, phones must be silent: of all users, or of those who have declined.
  v_quiet bigint[] := array(
    select o.id from push.outbox o where o.id = any (v_calls) and (o.ended_at is not null or o.declined is not null));
  v_declined bigint[] := array(
    select o.id from push.outbox o where o.id = any (v_quiet) and o.ended_at is null);
  v_left  bigint[] := '{}';
  v_noted record;
begin
  if v_gone <> '{}' then
    delete from push.delivery d
      where d.ctid = any (array(select x.ctid from push.delivery x where x.outbox_id = any (v_gone) for update skip locked));
    v_left := array(select distinct d.outbox_id from push.delivery d where d.outbox_id = any (v_gone));
    delete from push.ring_reports r where r.outbox_id = any (v_gone);
    delete from push.escalations e where e.outbox_id = any (v_gone);
    delete from push.unreached u where u.outbox_id = any (v_gone);
  end if;
  -- What a call is decides what follows, not which note came first. So a user whose invite has failed is tried on the next channel before
  -- the last decline ends the call; and the cancels and the missed calls of a call, which belong together, are made together.
  for v_noted in
    select f.why, array_agg(distinct f.outbox_id) as calls from push.follow_ups f
    where f.ctid = any (p_notes) and f.outbox_id = any (v_calls) and f.why in ('failed', 'unheard', 'stuck') group by f.why
  loop
    perform push.next_channels(v_noted.calls, v_noted.why);
    perform push.ring_unreached(v_noted.calls) where v_noted.why = 'failed';
  end loop;
  if v_declined <> '{}' then
    perform push.next_channels(v_declined, 'failed');
    -- A call ends when every user whose phone was rung has declined. If no phone was rung, or a user is being erased, all recipients count:
    -- two of them may share a phone. A phone whose invite the provider refused was not rung.
    with rung as materialized (
      select p.id, array_agg(distinct p.user_id) as users from push.pushes_of(v_declined) p
      where p.kind = 0 and (p.outcome is distinct from 4 or p.may_ring) and p.user_id <> '[erased]' group by p.id
    )
    update push.outbox o set state = 'ended', end_reason = (
        -- What all of them have said.
        select case when min(s.said ->> 'reason') = max(s.said ->> 'reason') then min(s.said ->> 'reason') else 'declined' end
        from jsonb_each(o.declined) s(user_id, said))
    where o.id = any (v_declined) and o.ended_at is null
      and o.declined ?& coalesce((select r.users from rung r where r.id = o.id), '{}')
      and (o.id in (select r.id from rung r) and not o.declined @? '$.*.erases' or o.declined ?& array(
        select push.entry_user(e) from jsonb_array_elements(o.recipients) e where push.is_recipient(e)));
  end if;
  if v_quiet <> '{}' then
    v_left := v_left || push.void_unsent(v_quiet);
    v_quiet := array(select c.id from unnest(v_quiet) c(id) where c.id <> all (v_left));
    perform push.cancel_rings(v_quiet);
    perform push.tell_missed(v_quiet);
    delete from push.unreached u where u.outbox_id = any (v_quiet) and u.outbox_id <> all (v_declined);
    perform push.tell_untold(array(
      select distinct f.outbox_id from push.follow_ups f where f.ctid = any (p_notes) and f.why = 'untold' and f.outbox_id = any (v_quiet)));
  end if;
  delete from push.follow_ups f
    where f.ctid = any (p_notes) and (f.outbox_id = any (v_calls) or f.outbox_id = any (v_gone)) and f.outbox_id <> all (v_left);
  -- A claim is taking an invite of the call at this moment, or a backend has the call's row locked. The longer it does, the less often it
  -- is looked at.
  update push.follow_ups f
    set due_at = clock_timestamp() + least(greatest(interval '100 ms', (clock_timestamp() - f.noted_at) / 2), interval '1 s')
    where f.ctid = any (p_notes);
end
$$;
comment on function push.follow is 'makes of the calls of these notes what there should be, and deletes the notes. p_notes: where they are stored';

create or replace function push.put_off(p_notes tid[], p_state text) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_calls bigint[] := array(select distinct f.outbox_id from push.follow_ups f where f.ctid = any (p_notes));
  v_why   text := (select f.why from push.follow_ups f where f.ctid = p_notes[1]);
  v_tries int := (select greatest(max(f.tries), 0) from push.follow_ups f where f.ctid = any (p_notes));
  -- With the other notes of these calls that are due, which would fail the same way.
  v_tids  tid[] := array(
    select f.ctid from push.follow_ups f
    where f.outbox_id = any (v_calls) and (f.tries = 0 and f.due_at <= clock_timestamp() or f.ctid = any (p_notes)) for update skip locked);
begin
  if cardinality(v_calls) > 1 then
    update push.follow_ups f set tries = -1, due_at = clock_timestamp() where f.ctid = any (v_tids);
    return;
  end if;
  delete from push.follow_ups f where f.ctid = any (v_tids) and f.noted_at < clock_timestamp() - interval '4 hours';
  update push.follow_ups f
    set tries = v_tries + 1, due_at = clock_timestamp()
      + least(interval '250 ms' * power(4, least(v_tries, 10)), interval '30 minutes')
    where f.ctid = any (v_tids);
  -- By its number: a look at push.outbox would wait for a TRUNCATE, which waits for these notes.
  raise warning 'push.outbox.id %: what follows (%) failed (SQLSTATE %); %', v_calls[1], v_why, p_state,
    case when found then 'it is tried again' else 'its phones and users are told nothing more' end;
end
$$;
comment on function push.put_off is
  'after an error: the notes of one call are tried again later, those of several are tried call by call. p_notes: where they are stored; '
  'p_state: SQLSTATE. The message of the '
  'error is not shown, because it may contain a token';
