-- For queue.py, by pgbench: claims a batch and settles it, each in a transaction of its own, as the gateway does. Variables:
-- gateway, an id; claim, 0; lanes, limits, floors, arrays of one length; batch; expo, the lane whose pushes have receipts.
--
-- pgbench stores the values of one row and cannot process them. So the claim's rows are returned as arrays in text, in the
-- order of the key. The claim's query also creates the result of each push, an answer of 200 with the provider's id, and
-- the call's id, which is set on only one row of each call. Texts that no settlement needs are returned in one piece.

\set claim :claim + 1
select count(*) as claimed, coalesce(string_agg(texts, ''), '') as texts, array_agg(place) as places, array_agg(outbox_id) as ids,
  array_agg(n) as numbers, array_agg(lease) as leases, array_agg(attempt) as attempts, array_agg(0) as outcomes,
  array_agg(200) as statuses, array_agg(null::text) as nothing, array_agg(message_id) as message_ids, array_agg(call_id) as call_ids,
  array_agg(clock_timestamp()) as times, array_agg(receipt_after_ms) as receipts
from (
  select place, outbox_id, n, :claim::int as lease, attempt, max(call_id) over (partition by outbox_id) as call_id,
    lpad(to_hex(n), 8, '0') || '-0000-4000-8000-' || lpad(to_hex(outbox_id), 12, '0') as message_id,
    case when lane = :expo then 900000 end as receipt_after_ms,
    concat(user_id, token, locale, data, app_call_kind, end_reason, traceparent, payload) as texts
  from push.claim(:gateway, :claim, :lanes, :limits, :floors, p_total => :batch)
  order by outbox_id, n
) rows
\gset
\if :claimed > 0
select push.settle(:gateway, :places, :ids, :numbers, :leases, :attempts, :outcomes, :statuses, :nothing, :message_ids, :call_ids,
  :times, :times, :nothing, :receipts);
\endif
