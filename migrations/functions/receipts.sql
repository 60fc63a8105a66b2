-- Expo's receipts: which tickets to look up, and what the receipts said.
--
-- Tickets are stored in batches (push.receipt_batch), as they were settled. A look-up claims a batch or a part of one.
-- Settled tickets are removed from their batch, and what is left of it is looked up again. Few batches are being looked
-- up at a time, and an index finds those; tickets have no index.

create or replace function push.claim_receipts(p_app text, p_max int, p_lease_ms int)
returns table (ticket text, outbox_id bigint, n int, token text, sent_at timestamptz)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_room  int := p_max;
  v_batch push.receipt_batch;
begin
  for v_batch in
    select r.* from push.receipt_batch r
    where r.app = p_app and r.due_at <= statement_timestamp() and r.give_up_at > statement_timestamp()
    order by r.due_at
    limit p_max
    for no key update skip locked
  loop
    exit when v_room <= 0;
    if cardinality(v_batch.ticket) > v_room then
      insert into push.receipt_batch (sent_at, due_at, give_up_at, attempts, claimed, app, ticket, outbox_id, n, user_id, token)
        values (v_batch.sent_at, v_batch.due_at, v_batch.give_up_at, v_batch.attempts, v_batch.claimed, v_batch.app,
          v_batch.ticket[v_room + 1:], v_batch.outbox_id[v_room + 1:], v_batch.n[v_room + 1:],
          v_batch.user_id[v_room + 1:], v_batch.token[v_room + 1:]);
      perform push.cut_receipts(v_batch, array(select generate_series(1, v_room)));
    end if;
    -- The due time is the lease: if the gateway dies, the tickets are due again.
    update push.receipt_batch r
      set attempts = r.attempts + 1, claimed = true,
        due_at = least(clock_timestamp() + p_lease_ms * interval '1 ms', r.give_up_at)
      where r.id = v_batch.id returning r.* into v_batch;
    v_room := v_room - cardinality(v_batch.ticket);
    return query
      select t.ticket, t.outbox_id, t.n, t.token, v_batch.sent_at
      from unnest(v_batch.ticket, v_batch.outbox_id, v_batch.n, v_batch.token) t(ticket, outbox_id, n, token);
  end loop;
end
$$;
comment on function push.claim_receipts is
  'takes tickets whose receipts are due; after the lease they are due again. p_app: the app; p_max: maximum number of '
  'tickets; p_lease_ms: the lease in milliseconds';

create or replace function push.cut_receipts(p_batch push.receipt_batch, p_kept bigint[]) returns bigint
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  if p_kept = '{}' then
    delete from push.receipt_batch r where r.id = p_batch.id;
  else
    update push.receipt_batch r
      set (ticket, outbox_id, n, user_id, token) = (
        select array_agg(r.ticket[k]), array_agg(r.outbox_id[k]), array_agg(r.n[k]), array_agg(r.user_id[k]), array_agg(r.token[k])
        from unnest(p_kept) k)
      where r.id = p_batch.id;
  end if;
  return cardinality(p_batch.ticket) - cardinality(p_kept);
end
$$;
comment on function push.cut_receipts is
  'keeps the tickets of a batch with these subscripts, or deletes the batch if there are none; returns how many tickets it removed';

-- A batch is locked only when it is known to contain one of the tickets. An answer that comes after the lease finds the tickets as long as
-- nobody has postponed them; afterwards they are looked up once more. A row of history that cannot be changed keeps no other from it.
create or replace function push.settle_receipts(p_app text, p_ticket text[], p_reason text[]) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_settled bigint := 0;
  v_batch   push.receipt_batch;
  v_gone    record;
begin
  for v_batch in
    select r.* from push.receipt_batch r
    where r.id = any (array(
      select x.id from push.receipt_batch x where x.app = p_app and x.claimed and x.attempts > 0 and x.ticket && p_ticket))
    order by r.id for update
  loop
    for v_gone in
      select t.*, r.reason from unnest(v_batch.ticket, v_batch.outbox_id, v_batch.n) t(ticket, outbox_id, n)
      join unnest(p_ticket, p_reason) r(ticket, reason) on r.ticket = t.ticket and r.reason is not null
    loop
      begin
        with failed as (
          -- The hour allows for a wrong clock of a gateway.
          update push.history h set receipt_reason = v_gone.reason
          where h.outbox_id = v_gone.outbox_id and h.n = v_gone.n and h.provider_message_id = v_gone.ticket
            and h.finished_at >= v_batch.sent_at - interval '1 hour'
          returning h.*
        )
        insert into push.webhook_event (event, app, type, outbox_id, user_id, at, data)
        select push.webhook_id('receipt', p_app, f.outbox_id::text, f.n::text, v_gone.ticket), p_app, 'delivery.receipt', f.outbox_id,
          f.user_id, clock_timestamp(), jsonb_build_object('app', p_app, 'callId',
            (select o.call_id from push.outbox o where o.id = f.outbox_id), 'n', f.n, 'userId', f.user_id,
            'device', coalesce(left(f.token, 4) || '…' || right(f.token, 4), f.device), 'provider', 'expo', 'reason', v_gone.reason)
        from failed f cross join lateral push.hook_of(p_app, 'delivery.receipt')
        on conflict do nothing;
      exception when others or assert_failure then
        if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
        perform push.name_fault('push.outbox.id ' || v_gone.outbox_id, sqlstate);
      end;
    end loop;
    v_settled := v_settled + push.cut_receipts(v_batch, array(
      select i from unnest(v_batch.ticket) with ordinality t(ticket, i) where t.ticket not in (select unnest(p_ticket)) order by i));
  end loop;
  return v_settled;
end
$$;
comment on function push.settle_receipts is
  'ends the look-up of tickets; returns how many there were. p_app: the app. Arrays, by ticket: p_ticket: the tickets; '
  'p_reason: the reason in the receipt, kept in push.history, or null: delivered';

-- What has an answer was removed from the batch before (push.settle_receipts).
create or replace function push.postpone_receipts(p_app text, p_ticket text[], p_delay_ms int) returns bigint
language sql volatile security definer set search_path = push, pg_temp as $$
  with later as (
    update push.receipt_batch r set claimed = false, due_at = least(clock_timestamp() + p_delay_ms * interval '1 ms', r.give_up_at)
    where r.app = p_app and r.claimed and r.attempts > 0 and r.ticket && p_ticket
    returning cardinality(r.ticket) as count
  )
  select coalesce(sum(l.count), 0) from later l
$$;
comment on function push.postpone_receipts is
  'makes the batches of these tickets due again later, but not after they are given up; returns how many tickets that are. p_app: the app; '
  'p_ticket: the tickets; p_delay_ms: the delay in milliseconds';

create or replace function push.give_up_receipts(p_app text) returns bigint
language sql volatile security definer set search_path = push, pg_temp as $$
  -- Searches by due_at, which has an index and is never later than give_up_at. Batches that nobody looks up any more soon
  -- have the earliest due times.
  with due as materialized (
    select r.ctid as tid, r.give_up_at
    from push.receipt_batch r
    where r.app = p_app and r.due_at <= statement_timestamp()
    order by r.due_at
    limit 1000
    for update skip locked
  ), gone as (
    delete from push.receipt_batch r
    where r.ctid = any (array(select d.tid from due d where d.give_up_at <= statement_timestamp()))
    returning cardinality(r.ticket) as count
  )
  select coalesce(sum(g.count), 0) from gone g
$$;
comment on function push.give_up_receipts is
  'deletes tickets whose receipts Expo no longer has, among the 1,000 batches that are due first. Returns how many tickets '
  'were deleted; their results stay unknown. p_app: the app';
