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
  v_function regprocedure;
  v_made     record;
begin
  if v_is_first then
    -- What was noted elsewhere.
    insert into push.follow_ups (outbox_id, why, noted_at)
      select e.outbox_id, case when (select true from push.outbox o where o.id = e.outbox_id) is null then 'gone'
        when e.is_unannounced then 'ended' else 'declined' end, e.ended_at from push.ends_unchecked e;
    insert into push.follow_ups (outbox_id, why, is_urgent, due_at) select e.outbox_id, 'unheard', true, e.due_at from push.escalations_due e;
    update push.delivery d set paired = true where d.n >= 30000;
    for v_made in
      select * from (values ('cancel_invites(p_outbox_id bigint[], p_again boolean default false) returns bigint', 'select 0::bigint'),
        ('tell_void(p_outbox_id bigint[]) returns void', '')) f(head, body)
    loop
      execute format('create or replace function push.%s language sql as %L', v_made.head, v_made.body);
    end loop;
  else
    -- The last two recorded whether a crash of the server had lost commits.
    drop table if exists push.ends_unchecked, push.escalations_due, push.fallback_turn, push.life, push.reclaimed;
  end if;
  foreach v_function in array array_remove(array(select to_regprocedure('push.' || f) from unnest(array[
    'has_recipient_fault(jsonb)', 'is_apns_token(text)', 'is_expo_token(text)', 'is_fcm_token(text)', 'message_text_fault(jsonb)',
    'refuse_unserved(text, text)', 'user_digest(text)',
    'announce_missed(bigint[])', 'announce_tokens()', 'announce_untold(push.delivery[])', 'bite_time()',
    'cancel_invites(bigint[], boolean)', 'check_ends(int)', 'check_recipient(bigint, text, text)', 'check_traces()',
    'claimed_places(int[], int)', 'commit_durably()', 'count_recipients(jsonb)', 'decline_rings(bigint[])', 'devices_max()',
    'dirty_voip_tokens(jsonb)', 'drop_all_calls()', 'drop_belongings(bigint[])', 'drop_deliveries(bigint[], boolean)',
    'erase_tokens(text, bytea, timestamptz, boolean, jsonb, bigint[])', 'erased_user(bigint, bytea)', 'escalate(int)',
    'expiring_api_keys()', 'fall_back(push.delivery[], boolean)', 'fall_back_unheard(push.delivery[])', 'give_back(int, tid[], int[])',
    'is_culprit(text, timestamptz, bigint)', 'is_traceparent(text)', 'is_urgent(text)', 'keep_closed()', 'lane_troubles()',
    'last_failures(jsonb)', 'limit_devices()', 'make_lane(text, text)', 'mask_payload(jsonb, text)', 'mask_recipients(jsonb, text)',
    'mask_words(jsonb, text)', 'open_life()', 'plan_escalation()', 'platform_name(smallint)', 'put_away_restored()',
    'quote_pattern(text)', 'recipient_platform(jsonb)', 'recipient_token(jsonb, text)', 'revive_tokens()', 'rings_of(text, bytea)',
    'skips_anybody(bigint, jsonb, text[])', 'stuck_lanes()', 'switch_lane(text, text, text, boolean, text)', 'take_turns(bigint[])',
    'tally_rings()', 'tally_tokens()', 'tell_held(bigint[])', 'tell_void(bigint[])', 'touch_lane()']) f), null)
  loop
    -- With its triggers, if it is of any.
    if not v_is_first or (select p.prorettype from pg_proc p where p.oid = v_function) = 'trigger'::regtype then
      execute format('drop function %s cascade', v_function);
    end if;
  end loop;
end
$$;

-- Operators could make partitions. A new one locks the default one until the transaction ends, and every end of a call waits for it.
do $$
begin
  if to_regrole('push_ops') is not null then
    revoke execute on function push.ensure_partitions from push_ops;
  end if;
end
$$;
