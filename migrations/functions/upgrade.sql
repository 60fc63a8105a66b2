-- What release 0.1.0 had and this release has not.
--
-- A function that is being executed continues with its former body: push.decline_call of release 0.1.0 may have waited for the transaction
-- that replaces it. So what such a body still uses is dropped by a later run; until then, it finds that nothing is to be done, because
-- the new triggers have noted the change. Tables go later for another reason, too: a former gateway that has locked one of them waits
-- for this transaction.

do $$
declare
  -- This function goes with the first run.
  v_is_first constant boolean := to_regprocedure('push.plan_escalation()') is not null;
begin
  if v_is_first then
    -- What was noted elsewhere.
    insert into push.follow_ups (outbox_id, why, noted_at)
      select e.outbox_id, case when (select true from push.outbox o where o.id = e.outbox_id) is null then 'gone'
        when e.is_unannounced then 'ended' else 'declined' end, e.ended_at from push.ends_unchecked e;
    insert into push.follow_ups (outbox_id, why, is_urgent, due_at) select e.outbox_id, 'unheard', true, e.due_at from push.escalations_due e;
    update push.delivery d set paired = true where d.n >= 30000;
    execute format('create or replace function %s returns bigint language sql as ''select 0::bigint''',
      'push.cancel_invites(p_outbox_id bigint[], p_again boolean default false)');
    execute format('create or replace function %s returns void language sql as ''''', 'push.tell_void(p_outbox_id bigint[])');
    -- Operators could make partitions. A new one locks the default one until the transaction ends, and every end of a call waits for it.
    if to_regrole('push_ops') is not null then
      revoke execute on function push.ensure_partitions from push_ops;
    end if;
  else
    -- The last two recorded whether a crash of the server had lost commits.
    drop table if exists push.ends_unchecked, push.escalations_due, push.fallback_turn, push.life, push.reclaimed;
  end if;
  -- Triggers go at once, with their functions.
  execute coalesce((
    select string_agg(format('drop function %s cascade', p.oid::regprocedure), '; ') from pg_proc p
    where p.pronamespace = 'push'::regnamespace and (not v_is_first or p.prorettype = 'trigger'::regtype) and p.proname = any ('{
      announce_missed, announce_untold, cancel_invites, check_ends, check_recipient, check_traces, claimed_places, commit_durably,
      count_recipients, decline_rings, dirty_voip_tokens, drop_all_calls, drop_belongings, drop_deliveries, erase_tokens, erased_user,
      escalate, expiring_api_keys, fall_back, give_back, granted_apps, has_recipient_fault, is_apns_token, is_app, is_expo_token, is_fcm_token,
      calls_that_skip, is_traceparent, keep_closed, keep_newest, keep_receipts, lane_troubles, last_failures, mask_payload, mask_recipients,
      mask_words, message_text_fault, note_audit, open_life, plan_escalation, put_away_restored, quote_pattern, reachable_devices, recipient_platform,
      recipient_token, refuse_unserved, revive_tokens, rings_of, stuck_lanes, switch_lane, take_receipts, take_turns, tally_rings,
      erase_receipts, tally_tokens, tell_held, tell_void, touch_lane, user_digest, find_api_key, grant_dashboard}')), '');
end
$$;
