-- Erases one user's data: rows that name the user, or hold a token of the user, are removed. Rows that also concern other
-- users are masked.
--
-- Finished calls are masked at once. A call that rings is declined in the user's name: unsent invites become void, and the
-- user's phones that may ring get a cancel. The phones of other users ring on, including a phone that two recipients share.
-- Such a call is masked when it has ended: until then, the decline keeps the gateway from ringing the user's phones on
-- another channel. A call also waits if the user is still owed a delivery that was sent or must be sent (a claimed invite,
-- a cancel): it is masked when that is settled. The job "erase", which any gateway runs, masks the calls that waited. The
-- user's devices are kept until all calls that ring are declined.
--
-- Only push.decline_call waits for a lock here: it waits for the deliveries of calls that it has locked, as the end of a
-- call does (claims.sql). Rows that another session has locked are skipped and checked again. A pass runs in steps of
-- limited time; push.erasure stores the position.

-- Masks ---------------------------------------------------------------------------------------------------------------

create or replace function push.mask_user(p_value jsonb, p_user_id text) returns jsonb language plpgsql immutable parallel safe as $$
begin
  return case jsonb_typeof(p_value)
    when 'object' then coalesce((
      select jsonb_object_agg(case when m.key = p_user_id then '[erased]' else m.key end, push.mask_user(m.value, p_user_id))
      from jsonb_each(p_value) m), '{}')
    when 'array' then coalesce((
      select jsonb_agg(push.mask_user(e.value, p_user_id) order by e.i)
      from jsonb_array_elements(p_value) with ordinality e(value, i)), '[]')
    when 'string' then case when p_value #>> '{}' = p_user_id then '"[erased]"' else p_value end
    else p_value end;
end
$$;
comment on function push.mask_user is
  'a JSON value in which every string and every key that equals p_user_id is replaced by [erased]. p_value: the value';

create or replace function push.mask_recipients(p_recipients jsonb, p_user_id text) returns jsonb
language sql immutable parallel safe as $$
  select case when jsonb_typeof(p_recipients) <> 'array' then push.mask_user(p_recipients, p_user_id) else coalesce((
    select jsonb_agg(case when p_user_id = case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end
        then '"[erased]"'::jsonb else push.mask_user(e.entry, p_user_id) end order by e.i)
    from jsonb_array_elements(p_recipients) with ordinality e(entry, i)), '[]') end
$$;
comment on function push.mask_recipients is
  'recipients of a call with this user''s entries reduced to [erased]: tokens, locale and data are removed. p_recipients: '
  'push.outbox.recipients; p_user_id: the user';

-- A payload that names the user describes the parties of the call, so only its ids are kept.
create or replace function push.mask_payload(p_payload jsonb, p_user_id text) returns jsonb language sql immutable parallel safe as $$
  select coalesce((
    select jsonb_object_agg(m.key, case m.key when 'callId' then m.value else push.mask_user(m.value, p_user_id) end)
    from jsonb_each(p_payload) m where m.key in ('callId', 'messageId', 'chatId', 'from')), '{}')
$$;
comment on function push.mask_payload is
  'a payload that names the user, reduced to callId, messageId, chatId and from; the user is masked in all of them except '
  'callId. p_payload: push.outbox.payload; p_user_id: the user';

create or replace function push.user_digest(p_user_id text) returns bytea language sql immutable parallel safe as
$$ select sha256(convert_to(p_user_id, 'UTF8')) $$;
comment on function push.user_digest is
  'the SHA-256 of the backend''s id of a user, p_user_id: an erasure is stored under it';

create or replace function push.quote_pattern(p_text text) returns text language sql immutable parallel safe as
$$ select regexp_replace(p_text, '([^[:alnum:]_[:space:]])', '\\\1', 'g') $$;
comment on function push.quote_pattern is 'a regular expression that matches exactly this text, p_text';

create or replace function push.mask_words(p_value jsonb, p_pattern text) returns jsonb
language plpgsql immutable parallel safe as $$
begin
  return case jsonb_typeof(p_value)
    when 'object' then coalesce((select jsonb_object_agg(m.key, push.mask_words(m.value, p_pattern)) from jsonb_each(p_value) m), '{}')
    when 'array' then coalesce((
      select jsonb_agg(push.mask_words(e.value, p_pattern) order by e.i)
      from jsonb_array_elements(p_value) with ordinality e(value, i)), '[]')
    when 'string' then to_jsonb(regexp_replace(p_value #>> '{}', p_pattern, '[erased]', 'g'))
    else p_value end;
end
$$;
comment on function push.mask_words is
  'a JSON value in whose strings, but not in its keys, every match is replaced by [erased]. p_value: the value; p_pattern: '
  'a regular expression';

create or replace function push.add_counts(p_counts jsonb, p_place text, p_removed bigint, p_masked bigint) returns jsonb
language sql immutable parallel safe as $$
  select case when p_removed + p_masked = 0 then p_counts else p_counts || jsonb_build_object(p_place, jsonb_build_array(
    coalesce((p_counts -> p_place ->> 0)::bigint, 0) + p_removed, coalesce((p_counts -> p_place ->> 1)::bigint, 0) + p_masked)) end
$$;
comment on function push.add_counts is
  'adds to the counts of an erasure. p_counts: push.erasure.counts; p_place: the table; p_removed, p_masked: numbers of '
  'rows';

-- One call ------------------------------------------------------------------------------------------------------------

-- A token that two recipients share is one delivery, which belongs to the first of them. Without this, erasing the first
-- would silence the second.
create or replace function push.hand_over(p_outbox_id bigint, p_user_id text) returns void
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
begin
  with other as materialized (
    select distinct on (t.token) t.token, n.name, t.locale, push.recipient_data(e.entry) as data,
      case when o.ended_at is null then o.created_at - interval '1 hour' else 'infinity' end as since
    from push.outbox o
      cross join lateral jsonb_array_elements(o.recipients) with ordinality e(entry, i)
      cross join lateral (select case jsonb_typeof(e.entry) when 'string' then e.entry #>> '{}' else e.entry ->> 'userId' end) n(name)
      cross join lateral (
        select k.token, push.recipient_locale(e.entry) as locale
        from unnest(array[true, false]) c(is_call) cross join lateral push.entry_tokens(e.entry, c.is_call) k
        union all
        select d.token, d.locale from push.devices d
        where d.user_id = n.name and d.app = o.app and d.enabled and d.invalidated_at is null) t
    where o.id = p_outbox_id and not coalesce(o.declined ? p_user_id, false) and push.is_recipient(e.entry)
      and n.name <> p_user_id and not coalesce(o.declined ? n.name, false)
      and e.entry -> 'notificationEnabled' is distinct from 'false'
    order by t.token, e.i
  ), owed as materialized (
    select d.ctid as tid, d.token from push.delivery d
    where d.outbox_id = p_outbox_id and d.user_id = p_user_id and d.kind <> 1
    for update skip locked
  ), handed as (
    update push.delivery d set user_id = x.name, locale = x.locale, data = x.data
    from owed w join other x on x.token = w.token
    where d.ctid = w.tid
  )
  -- For a call that rings: the cancels go to the user that history names.
  update push.history h set user_id = x.name, locale = x.locale, data = x.data
    from other x
    where h.outbox_id = p_outbox_id and h.finished_at >= x.since and h.user_id = p_user_id and h.kind = 0
      and coalesce(h.token = x.token, h.token_hash = hashtextextended(x.token, 0));
end
$$;
comment on function push.hand_over is
  'gives deliveries of one user in one call to another recipient who has the same token and has not declined. For a call '
  'that rings, the history of invites that were sent is changed in the same way. Locked rows are skipped. p_outbox_id: '
  'push.outbox.id; p_user_id: the user who is erased';

create or replace function push.erase_from_call(p_outbox_id bigint, p_user_id text, inout p_counts jsonb,
  inout p_hashes bigint[], out is_done boolean)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_call  push.outbox;
  v_since timestamptz;
  v_free  tid[];
  v_said  jsonb;
  v_n     int[];
  v_count bigint;
  v_was   text := coalesce(current_setting('push.erasing', true), '');
begin
  select o.* into v_call from push.outbox o where o.id = p_outbox_id for no key update skip locked;
  if not found and exists (select from push.outbox o where o.id = p_outbox_id) then
    is_done := false;
    return;
  end if;
  perform push.hand_over(p_outbox_id, p_user_id);
  -- Of a call that was deleted, only the history is left.
  v_since := coalesce(v_call.created_at - interval '1 hour', '-infinity');
  p_hashes := array(
    select unnest(p_hashes)
    union
    select hashtextextended(t.token, 0)
      from jsonb_array_elements(v_call.recipients) e
      cross join unnest(array[true, false]) c(is_call)
      cross join lateral push.entry_tokens(e, c.is_call) t
      where e ->> 'userId' = p_user_id
    union
    select coalesce(hashtextextended(h.token, 0), h.token_hash) from push.history h
      where h.outbox_id = p_outbox_id and h.finished_at >= v_since and h.user_id = p_user_id
        and (h.token is not null or h.token_hash is not null));

  -- Unsent deliveries are never sent, except cancels: a phone must not ring without an end.
  v_free := array(
    select d.ctid from push.delivery d
    where d.outbox_id = p_outbox_id and d.user_id = p_user_id and d.state in (0, 2)
      and d.kind <> 1 and (d.kind <> 0 or v_call.ended_at is not null or v_call.declined ? p_user_id)
    for update skip locked);
  with gone as (
    delete from push.delivery d where d.ctid = any (v_free) returning d.*
  ), tallied as (
    insert into push.tally (what, lane, kind, outcome, reason, untried, count)
    select 'ended', g.lane, g.kind, 2, 'UserErased', g.attempt = 0, count(*) from gone g group by 2, 3, 6
  )
  insert into push.history (outbox_id, created_at, deadline_at, n, attempts, lane, kind, outcome, user_id, device, reason,
    failures, fallback_of)
  select g.outbox_id, g.created_at, g.deadline_at, g.n, g.attempt, g.lane, g.kind, 2, '[erased]', '…', 'UserErased', g.failures,
    g.fallback_of
  from gone g;
  get diagnostics v_count = row_count;
  p_counts := push.add_counts(p_counts, 'delivery', v_count, 0);

  if exists (select from push.delivery d where d.outbox_id = p_outbox_id and d.user_id = p_user_id)
    or exists (select from push.follow_ups f where f.outbox_id = p_outbox_id and f.why <> 'unheard')
    -- While the call rings, a decline without the user's id would let the gateway ring the user's phones on another
    -- channel.
    or v_call.id is not null and v_call.ended_at is null then
    is_done := false;
    return;
  end if;
  is_done := true;

  v_n := array(
    select h.n from push.history h
    where h.outbox_id = p_outbox_id and h.finished_at >= v_since and h.user_id = p_user_id
    for no key update skip locked);
  update push.history h set user_id = '[erased]', token = null, device = '…', token_hash = null, locale = null, data = null,
      provider_message_id = null
    where h.outbox_id = p_outbox_id and h.finished_at >= v_since and h.user_id = p_user_id and h.n = any (v_n);
  get diagnostics v_count = row_count;
  p_counts := push.add_counts(p_counts, 'history', 0, v_count);
  if exists (select from push.history h
    where h.outbox_id = p_outbox_id and h.finished_at >= v_since and h.user_id = p_user_id) then
    is_done := false;
  end if;

  delete from push.ring_reports r where r.outbox_id = p_outbox_id and r.user_id = p_user_id;
  get diagnostics v_count = row_count;
  p_counts := push.add_counts(p_counts, 'ring_reports', v_count, 0);
  update push.escalations e set user_id = '[erased]' where e.outbox_id = p_outbox_id and e.user_id = p_user_id;
  get diagnostics v_count = row_count;
  p_counts := push.add_counts(p_counts, 'escalations', 0, v_count);

  if v_call.id is null then
    return;
  end if;
  v_said := v_call.declined;
  v_call.recipients := push.mask_recipients(v_call.recipients, p_user_id);
  v_call.declined := case when v_call.declined ? p_user_id
    then push.mask_user(v_call.declined #- array[p_user_id, 'device'], p_user_id) else v_call.declined end;
  if v_call.answered_by = p_user_id or hashtextextended(v_call.answered_device, 0) = any (p_hashes) then
    v_call.answered_device := null;
  end if;
  if v_call.answered_by = p_user_id then
    v_call.answered_by := '[erased]';
  end if;
  if v_call.payload - 'callId' <> push.mask_user(v_call.payload - 'callId', p_user_id) then
    -- The phones of the other users show the caller.
    if exists (select from push.delivery d where d.outbox_id = p_outbox_id) then
      is_done := false;
    else
      v_call.payload := push.mask_payload(v_call.payload, p_user_id);
    end if;
  end if;
  -- Not in the function's header: there, only superusers may set a parameter that belongs to no loaded extension.
  perform set_config('push.erasing', 'on', true);
  update push.outbox o
    set recipients = v_call.recipients, declined = v_call.declined, answered_by = v_call.answered_by,
      answered_device = v_call.answered_device, payload = v_call.payload
    where o.id = p_outbox_id
      and (o.recipients, o.declined, o.answered_by, o.answered_device, o.payload)
        is distinct from (v_call.recipients, v_call.declined, v_call.answered_by, v_call.answered_device, v_call.payload);
  get diagnostics v_count = row_count;
  perform set_config('push.erasing', v_was, true);
  if v_said is distinct from v_call.declined and not coalesce(v_said ? '[erased]', false) then
    perform push.withdraw_decline(v_call.app, p_outbox_id, '[erased]');
  end if;
  p_counts := push.add_counts(p_counts, 'outbox', 0, v_count);
end
$$;
comment on function push.erase_from_call is
  'masks one user in one call, its history and its other rows. The user''s ready and waiting deliveries become void. '
  'p_outbox_id: push.outbox.id; p_user_id: the user; p_counts, p_hashes: push.erasure.counts and token_hashes, which are '
  'added to. is_done: false if a delivery is still owed or a row is locked. For push.erase_user';

-- Calls that ring ----------------------------------------------------------------------------------------------------

-- Nothing finds the calls that ring one user, so all that ring in the app are looked at, each with up to thousands of
-- recipients. That takes seconds while thousands ring, so it is done in rounds, which continue where the time ran out. A call that
-- is committed after its number was passed rings on, like one that is committed after the devices are gone.
alter table push.erasure add column if not exists rings_after bigint not null default 0;
comment on column push.erasure.rings_after is 'push.outbox.id up to which this round has looked at calls that ring; 0: a round begins';

-- They had fewer arguments in release 0.1.0.
do $$
begin
  if to_regprocedure('push.rings_of(text, bytea)') is not null then
    drop function push.rings_of(text, bytea);
  end if;
  if to_regprocedure('push.decline_rings(bigint[])') is not null then
    drop function push.decline_rings(bigint[]);
  end if;
end
$$;

create or replace function push.rings_of(p_app text, p_user_digest bytea, p_until timestamptz, inout p_user_id text, inout p_after bigint,
  out calls bigint[], out is_end boolean)
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  -- Not in the order of their numbers at once: that could be planned as a walk through all calls.
  v_ids  bigint[] := array(
    select r.id
    from (select o.id from push.outbox o where o.state = 'ringing' and o.ended_at is null and o.app = p_app offset 0) r
    where r.id > p_after
    order by r.id);
  v_id   bigint;
  v_name text;
begin
  calls := '{}';
  is_end := v_ids = '{}';
  foreach v_id in array v_ids loop
    if p_user_id is null then
      select n.name into v_name
        from push.outbox o
          cross join lateral (select case jsonb_typeof(e) when 'string' then e #>> '{}' else e ->> 'userId' end as name
            from jsonb_array_elements(o.recipients) e) n
        where o.id = v_id and push.user_digest(n.name) = p_user_digest
        limit 1;
    else
      -- A name is compared fifty times as fast as a digest is made.
      select p_user_id into v_name
        from push.outbox o
        where o.id = v_id and (o.recipients @> jsonb_build_array(p_user_id)
          or o.recipients @> jsonb_build_array(jsonb_build_object('userId', p_user_id)));
    end if;
    if v_name is not null then
      calls := calls || v_id;
      p_user_id := v_name;
    end if;
    p_after := v_id;
    is_end := v_id = v_ids[cardinality(v_ids)];
    exit when clock_timestamp() >= p_until;
  end loop;
end
$$;
comment on function push.rings_of is
  'the calls that ring a user, calls: push.outbox.id, as far as there is time to look. p_app: the app; p_user_digest: as '
  'push.erasure.user_digest; p_until: when to stop; p_user_id: the user''s id, null if it is not known, which takes longer; it '
  'is returned if a call has it; p_after: push.erasure.rings_after. is_end: all calls that ring were looked at';

-- Calls are locked in the order of their numbers, each before its deliveries, and deliveries are waited for. The calls of another
-- erasure may have lower numbers, so a transaction declines those of one. The phones get their cancels while the tokens are known.
-- The device passed to push.decline does not exist, so each of the user's phones gets a cancel.
create or replace function push.decline_rings(p_erasures bigint[], p_user_ids text[], p_until timestamptz, p_declines boolean) returns boolean
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_erasure  push.erasure;
  v_user     text;
  v_found    bigint[];
  v_calls    bigint[];
  v_id       bigint;
  v_is_end   boolean;
  v_is_left  boolean;
  v_declined int := 0;
begin
  for v_place in 1..cardinality(p_erasures) loop
    select e.* into v_erasure from push.erasure e where e.id = p_erasures[v_place];
    v_user := p_user_ids[v_place];
    if v_user is null then
      -- Most of the calls that wait name the user.
      select x.name into v_user
        from unnest(v_erasure.waiting[:10]) w(id)
          cross join lateral (select push.erased_user(w.id, v_erasure.user_digest) as name offset 0) x
        where x.name is not null
        limit 1;
    end if;
    select r.p_user_id, r.p_after, r.calls, r.is_end into v_user, v_erasure.rings_after, v_found, v_is_end
      from push.rings_of(v_erasure.app, v_erasure.user_digest, p_until, v_user, v_erasure.rings_after) r;
    v_calls := array(select c.id from unnest(v_erasure.waiting || v_found) with ordinality c(id, i) group by c.id order by min(c.i));
    v_is_left := false;
    for v_id in select c.id from unnest(v_calls) c(id) where v_user is not null order by c.id loop
      continue when not exists (
        select from push.outbox o
        where o.id = v_id and o.state = 'ringing' and o.ended_at is null and not coalesce(o.declined ? v_user, false)
          and (o.recipients @> jsonb_build_array(v_user) or o.recipients @> jsonb_build_array(jsonb_build_object('userId', v_user))));
      if v_declined > 0 and clock_timestamp() >= p_until then
        v_is_left := true;
        exit;
      end if;
      perform from push.outbox o where o.id = v_id and o.state = 'ringing' and o.ended_at is null for no key update skip locked;
      if not found then
        v_is_left := true;
        continue;
      elsif not p_declines then
        return false;
      end if;
      v_declined := v_declined + 1;
      -- Waits as push.decline_call does: otherwise deliveries that are locked now would be declined and not handed over.
      perform from push.delivery d where d.outbox_id = v_id and d.user_id = v_user order by d.n for update;
      perform push.hand_over(v_id, v_user);
      if push.decline(v_id, v_user, 'declined', 'none-of-the-phones-declined', true) then
        perform push.withdraw_decline(v_erasure.app, v_id, v_user);
      end if;
    end loop;
    update push.erasure e
      set waiting = v_calls, rang = array(select unnest(e.rang) union select unnest(v_calls)), is_known = e.is_known or v_found <> '{}',
        has_devices = v_is_left or not v_is_end, rings_after = case when v_is_end then 0 else v_erasure.rings_after end
      where e.id = v_erasure.id;
  end loop;
  return true;
end
$$;
comment on function push.decline_rings is
  'looks for calls that ring users who are being erased, notes them in push.erasure.waiting, and declines them in the users'' '
  'names. Locked calls are skipped. p_erasures: push.erasure.id; p_user_ids: the users'' ids in the same order, null where one '
  'is not known; p_until: stops then; p_declines: false declines nothing, and returns false, without a change but with a lock, if a '
  'call can be declined. has_devices of an erasure is false after it if no call is left. For push.erase_user and push.continue_erasure';

-- Tokens outside of calls ----------------------------------------------------------------------------------------------

-- Reads whole tables: an index on the user in each of them would cost every settlement and registration.
create or replace function push.erase_tokens(p_app text, p_user_digest bytea, p_asked_at timestamptz, p_devices boolean, inout p_counts jsonb,
  inout p_hashes bigint[], out is_done boolean)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = on set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_batch  push.receipt_batch;
  v_kept   bigint[];
  v_gone   bigint[];
  v_number bigint;
  v_count  bigint;
begin
  is_done := true;
  for v_number in
    select r.id from push.receipt_batch r
    where r.app = p_app and exists (select from unnest(r.user_id) u where push.user_digest(u) = p_user_digest)
  loop
    select r.* into v_batch from push.receipt_batch r where r.id = v_number for update skip locked;
    if not found then
      is_done := false;
      continue;
    end if;
    v_kept := array(
      select i from unnest(v_batch.user_id) with ordinality t(u, i) where push.user_digest(t.u) <> p_user_digest order by i);
    p_hashes := array(
      select unnest(p_hashes)
      union
      select hashtextextended(t.token, 0) from unnest(v_batch.user_id, v_batch.token) t(u, token)
      where push.user_digest(t.u) = p_user_digest);
    p_counts := push.add_counts(p_counts, 'receipt_batch', cardinality(v_batch.ticket) - cardinality(v_kept), 0);
    perform push.keep_receipts(v_number, v_kept);
  end loop;

  with gone as (
    delete from push.devices d
    where d.ctid = any (array(
      select x.ctid from push.devices x
      where p_devices and x.app = p_app and push.user_digest(x.user_id) = p_user_digest and x.registered_at <= p_asked_at
      for update skip locked))
    returning hashtextextended(d.token, 0) as hash
  )
  select coalesce(array_agg(g.hash), '{}') into v_gone from gone g;
  p_hashes := array(select unnest(p_hashes) union select unnest(v_gone));
  p_counts := push.add_counts(p_counts, 'devices', cardinality(v_gone), 0);

  -- Tokens without a device have no known user; they are found by their hash.
  delete from push.token_invalidations t
    where t.ctid = any (array(
      select x.ctid from push.token_invalidations x
      where x.app = p_app and (push.user_digest(x.user_id) = p_user_digest
        or x.user_id is null and hashtextextended(x.token, 0) = any (p_hashes))
      for update skip locked));
  get diagnostics v_count = row_count;
  p_counts := push.add_counts(p_counts, 'token_invalidations', v_count, 0);
  delete from push.quarantined_tokens t
    where t.ctid = any (array(
      select x.ctid from push.quarantined_tokens x
      where x.app = p_app and (push.user_digest(x.user_id) = p_user_digest
        or x.user_id is null and hashtextextended(x.token, 0) = any (p_hashes))
      for update skip locked));
  get diagnostics v_count = row_count;
  p_counts := push.add_counts(p_counts, 'quarantined_tokens', v_count, 0);

  -- Events of webhooks that were not acknowledged yet. An event about a token of nobody known is found by its hash.
  delete from push.webhook_event t
    where t.id = any (array(
      select x.id from push.webhook_event x
      where x.app = p_app and x.type = 'token.dead' and (push.user_digest(x.user_id) = p_user_digest
        or x.user_id is null and hashtextextended(x.data ->> 'token', 0) = any (p_hashes))
      for update skip locked));
  get diagnostics v_count = row_count;
  p_counts := push.add_counts(p_counts, 'webhook_event', v_count, 0);
  update push.webhook_event t
    set user_id = '[erased]', data = t.data || case when t.data ? 'answeredBy' then '{"answeredBy": "[erased]"}'
      when t.data ? 'device' then '{"userId": "[erased]", "device": "…"}' else '{"userId": "[erased]"}' end::jsonb
    where t.id = any (array(
      select x.id from push.webhook_event x
      where x.app = p_app and x.type <> 'token.dead' and push.user_digest(x.user_id) = p_user_digest
      for no key update skip locked));
  get diagnostics v_count = row_count;
  p_counts := push.add_counts(p_counts, 'webhook_event', 0, v_count);

  if exists (select from push.devices d
      where p_devices and d.app = p_app and push.user_digest(d.user_id) = p_user_digest and d.registered_at <= p_asked_at)
    or exists (select from push.token_invalidations x where x.app = p_app and push.user_digest(x.user_id) = p_user_digest)
    or exists (select from push.quarantined_tokens x where x.app = p_app and push.user_digest(x.user_id) = p_user_digest)
    or exists (select from push.webhook_event x where x.app = p_app and push.user_digest(x.user_id) = p_user_digest) then
    is_done := false;
  end if;
end
$$;
comment on function push.erase_tokens is
  'removes one user''s devices, dead and quarantined tokens, Expo tickets and token.dead events, and masks the user in the '
  'other events of webhooks. p_app: the app; p_user_digest: as '
  'push.erasure.user_digest; p_asked_at: devices registered later are kept; p_devices: false keeps all devices (there may '
  'be millions to read); p_counts, p_hashes: push.erasure.counts and token_hashes, which are added to. is_done: false if a '
  'row was locked. Reads whole tables. For push.erase_user and push.finish_erasures';

-- The whole -----------------------------------------------------------------------------------------------------------

create or replace function push.erase_user(user_id text, app text, max_ms int default 1000)
returns table (place text, removed bigint, masked bigint, waiting bigint, is_complete boolean)
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
#variable_conflict use_column
declare
  v_begun   timestamptz := clock_timestamp();
  v_user    text := erase_user.user_id;
  v_app     text := erase_user.app;
  v_until   timestamptz := v_begun + make_interval(secs => greatest(coalesce(max_ms, 1000), 0) / 1000.0);
  -- Every call of this function makes progress, however little time it has.
  v_steps   int := 0;
  v_digest  bytea := push.user_digest(v_user);
  v_text    text := to_jsonb(v_user)::text;
  v_erasure push.erasure;
  v_is_new  boolean;
  c_word    constant text := '(?<![[:alnum:]_])';
  c_end     constant text := '(?![[:alnum:]_])';
  -- Members of push.audit.detail that the actions write themselves; they are not masked.
  c_own     constant text[] := '{scopes,expires_at,addresses,changed,done,window}';
  v_lanes   smallint[] := array(select l.id from push.lane l where l.app = v_app);
  v_calls   bigint[];
  v_id      bigint;
  v_last    bigint;
  v_pages   bigint;
  v_step    int := 100;
  v_done    boolean;
  v_tokens  boolean := false;
  v_known   boolean;
  v_masks   boolean;
  v_table   text;
  v_from    timestamptz;
  v_count   bigint;
begin
  if v_user is null or length(v_user) not between 1 and 256 or v_user = '[erased]' then
    raise exception using errcode = 'invalid_parameter_value', message = 'user_id: must have 1 to 256 characters',
      hint = 'It is the id that recipients and push.register_device gave.';
  elsif not coalesce(push.is_app(v_app), false) then
    raise exception using errcode = 'invalid_parameter_value',
      message = 'app: must be the name of an app: 1 to 64 letters, digits, dots, dashes or underscores';
  elsif v_lanes = '{}' and not exists (select from push.apps a where a.app = v_app)
    and not exists (select from push.devices d where d.app = v_app) and not exists (select from push.outbox o where o.app = v_app)
  then
    raise exception using errcode = 'no_data_found',
      message = format('app: no gateway has served %s, and it has no calls and no devices', v_app),
      hint = coalesce((select 'There are ' || string_agg(a.app, ', ') from (select a.app from push.apps a order by a.app limit 20) a),
        'No gateway has served any app yet.');
  end if;
  -- Two erasures of one user run one after the other.
  insert into push.erasure as e (app, user_digest) values (v_app, v_digest) on conflict (user_digest, app) do nothing;
  select e.* into v_erasure from push.erasure e where e.app = v_app and e.user_digest = v_digest for update;
  v_is_new := v_erasure.scanned_at is not null or v_erasure.until_id = 0;
  if v_is_new then
    v_erasure.asked_at := clock_timestamp();
    v_erasure.after_id := 0;
    v_erasure.until_id := coalesce((select max(o.id) from push.outbox o), 0);
    v_erasure.after_table := '';
    v_erasure.after_page := 0;
    v_erasure.scanned_at := null;
    v_erasure.finished_at := null;
    v_erasure.counts := '{}';
  end if;

  -- Calls, in the order of their numbers. No index finds the calls that name a user.
  while v_erasure.after_id < v_erasure.until_id and (v_steps = 0 or clock_timestamp() < v_until) loop
    v_steps := v_steps + 1;
    v_from := clock_timestamp();
    select max(b.id), array_agg(b.id order by b.id) filter (where b.is_named), coalesce(bool_or(b.is_known), false)
      into v_last, v_calls, v_known
      from (
        select o.id, o.app = v_app and (o.answered_by = v_user or o.declined ? v_user or strpos(o.recipients::text, v_text) > 0
          or strpos(o.payload::text, v_text) > 0) as is_named,
          o.app = v_app and (o.answered_by = v_user or o.declined ? v_user or o.recipients @> jsonb_build_array(v_user)
            or o.recipients @> jsonb_build_array(jsonb_build_object('userId', v_user)) or o.payload ->> 'from' = v_user) as is_known
        from push.outbox o
        where o.id > v_erasure.after_id and o.id <= v_erasure.until_id
        order by o.id
        limit v_step
      ) b;
    v_erasure.after_id := coalesce(v_last, v_erasure.until_id);
    v_erasure.is_known := v_erasure.is_known or v_known;
    foreach v_id in array coalesce(v_calls, '{}') loop
      select e.p_counts, e.p_hashes, e.is_done into v_erasure.counts, v_erasure.token_hashes, v_done
        from push.erase_from_call(v_id, v_user, v_erasure.counts, v_erasure.token_hashes) e;
      if not v_done then
        v_erasure.waiting := v_erasure.waiting || v_id;
      end if;
      -- A hundred large calls take seconds.
      if clock_timestamp() >= v_until and v_id < v_calls[cardinality(v_calls)] then
        v_erasure.after_id := v_id;
        exit;
      end if;
    end loop;
    v_step := case when clock_timestamp() - v_from > interval '20 ms' then greatest(v_step / 2, 1) else least(v_step * 2, 5000) end;
  end loop;

  -- The history of calls that were deleted: partition by partition, 1,000 pages at a time.
  while v_erasure.after_id >= v_erasure.until_id and v_erasure.scanned_at is null
    and (v_steps = 0 or clock_timestamp() < v_until)
  loop
    v_steps := v_steps + 1;
    v_table := (
      select min(c.relname::text) from pg_inherits i join pg_class c on c.oid = i.inhrelid
      where i.inhparent = 'push.history'::regclass
        and (c.relname > v_erasure.after_table or c.relname = v_erasure.after_table and v_erasure.after_page > 0));
    if v_table is null then
      v_erasure.scanned_at := clock_timestamp();
      exit;
    end if;
    if v_table <> v_erasure.after_table then
      v_erasure.after_page := 0;
    end if;
    v_pages := pg_relation_size(format('push.%I', v_table)::regclass) / current_setting('block_size')::int;
    execute format('select array_agg(distinct h.outbox_id order by h.outbox_id) from push.%I h '
      'where h.ctid >= $1 and h.ctid < $2 and h.user_id = $3 and h.lane = any ($4)', v_table)
      into v_calls
      using format('(%s,0)', v_erasure.after_page)::tid, format('(%s,0)', v_erasure.after_page + 1000)::tid, v_user, v_lanes;
    foreach v_id in array coalesce(v_calls, '{}') loop
      continue when v_id = any (v_erasure.waiting);
      select e.p_counts, e.p_hashes, e.is_done into v_erasure.counts, v_erasure.token_hashes, v_done
        from push.erase_from_call(v_id, v_user, v_erasure.counts, v_erasure.token_hashes) e;
      if not v_done then
        v_erasure.waiting := v_erasure.waiting || v_id;
      end if;
    end loop;
    v_erasure.after_table := v_table;
    v_erasure.after_page := case when v_erasure.after_page + 1000 < v_pages then v_erasure.after_page + 1000 else 0 end;
  end loop;

  -- However much time the scan took, the calls that ring get some.
  v_until := greatest(v_until, clock_timestamp() + make_interval(secs => greatest(coalesce(max_ms, 1000), 0) / 4000.0));
  update push.erasure e set waiting = v_erasure.waiting, rang = v_erasure.rang, is_known = v_erasure.is_known where e.id = v_erasure.id;
  perform push.decline_rings(array[v_erasure.id], array[v_user], v_until, true);
  select e.waiting, e.rang, e.is_known, e.has_devices into v_calls, v_erasure.rang, v_erasure.is_known, v_erasure.has_devices
    from push.erasure e where e.id = v_erasure.id;
  v_erasure.waiting := '{}';
  v_steps := 0;
  foreach v_id in array v_calls loop
    exit when v_steps > 0 and clock_timestamp() >= v_until;
    v_steps := v_steps + 1;
    select e.p_counts, e.p_hashes, e.is_done into v_erasure.counts, v_erasure.token_hashes, v_done
      from push.erase_from_call(v_id, v_user, v_erasure.counts, v_erasure.token_hashes) e;
    if not v_done then
      v_erasure.waiting := v_erasure.waiting || v_id;
    end if;
  end loop;
  v_erasure.waiting := v_calls[v_steps + 1:] || v_erasure.waiting;

  -- A call that could not be declined may need the devices for its cancels.
  if not v_erasure.has_devices then
    select e.p_counts, e.p_hashes, e.is_done into v_erasure.counts, v_erasure.token_hashes, v_tokens
      from push.erase_tokens(v_app, v_digest, v_erasure.asked_at, true, v_erasure.counts, v_erasure.token_hashes) e;
    v_erasure.has_devices := not v_tokens;
  end if;

  -- Notes of operators about this app in which the user's id stands as a word. The id of an unknown user masks nothing;
  -- otherwise operators could rewrite the record. The names of apps, lanes, roles and keys are not masked, and neither is
  -- the id of a call.
  v_erasure.is_known := v_erasure.is_known or v_erasure.counts ?| '{devices,delivery,history,ring_reports,escalations,receipt_batch,'
    'token_invalidations,quarantined_tokens,webhook_event}';
  v_masks := v_user <> v_app and not exists (select from push.outbox o where o.call_id = v_user and o.app = v_app);
  v_text := c_word || push.quote_pattern(v_user) || c_end;
  with line as (
    select x.id,
      case when v_masks and x.action in ('void_call', 'requeue')
        then v_app || '/' || regexp_replace(substr(x.target, length(v_app) + 2), v_text, '[erased]', 'g') else x.target end as target,
      push.mask_words(x.detail - c_own, v_text)
        || coalesce((select jsonb_object_agg(m.key, m.value) from jsonb_each(x.detail) m where m.key = any (c_own)), '{}') as detail
    from push.audit x
    where v_erasure.is_known and split_part(x.target, '/', 1) = v_app
      and (strpos(x.target, v_user) > 0 or strpos(x.detail::text, substr(to_jsonb(v_user)::text, 2, length(to_jsonb(v_user)::text) - 2)) > 0)
      and x.action not in ('erase_user', 'finish_erasure')
    for no key update skip locked
  )
  update push.audit a set target = l.target, detail = l.detail
    from line l where a.id = l.id and (a.target, a.detail) is distinct from (l.target, l.detail);
  get diagnostics v_count = row_count;
  v_erasure.counts := push.add_counts(v_erasure.counts, 'audit', 0, v_count);

  if v_is_new or v_erasure.scanned_at is not null then
    perform push.note_audit('erase_user', v_app || '/sha256:' || left(encode(v_digest, 'hex'), 16),
      jsonb_build_object('counts', v_erasure.counts, 'waiting', cardinality(v_erasure.waiting),
        'complete', v_erasure.scanned_at is not null and not v_erasure.has_devices));
  end if;
  update push.erasure e
    set asked_at = v_erasure.asked_at, after_id = v_erasure.after_id, until_id = greatest(v_erasure.until_id, 1),
      after_table = v_erasure.after_table, after_page = v_erasure.after_page, scanned_at = v_erasure.scanned_at,
      waiting = v_erasure.waiting, rang = v_erasure.rang, has_devices = v_erasure.has_devices, is_known = v_erasure.is_known,
      token_hashes = v_erasure.token_hashes, counts = v_erasure.counts,
      finished_at = v_erasure.finished_at
    where e.id = v_erasure.id;
  return query
    select t.name, coalesce((v_erasure.counts -> t.name ->> 0)::bigint, 0), coalesce((v_erasure.counts -> t.name ->> 1)::bigint, 0),
      case when t.name = 'outbox' then cardinality(v_erasure.waiting)::bigint
        when t.name = 'devices' then (not v_tokens)::int::bigint else 0 end,
      v_erasure.scanned_at is not null
    from unnest('{devices,delivery,outbox,history,ring_reports,escalations,receipt_batch,token_invalidations,quarantined_tokens,webhook_event,'
      'audit}'::text[]) with ordinality t(name, i)
    order by t.i;
end
$$;
comment on function push.erase_user is
  'removes or masks all data of one user of one app in this schema. user_id: the backend''s id; app: the app; gateways '
  'have served it, or it has calls or devices; max_ms: stops after about this many milliseconds. Returns a row for each '
  'table: place; removed, masked: rows since the pass began; waiting: calls that still ring, are locked, or have a '
  'delivery of the user that is still owed, or that there was no time for; for devices, 1 if a device is locked or is kept for '
  'calls that ring and are locked or not yet looked at. Gateways do what is waiting within a quarter of an hour, or after the '
  'call. is_complete: if false, call this again with the same arguments: it continues where it stopped. A call that rings is '
  'declined in the user''s name, and the user''s phones get a cancel, except those that also ring for another recipient. Running '
  'it again is harmless and starts a new pass';

-- What had to wait ------------------------------------------------------------------------------------------------------

create or replace function push.erased_user(p_outbox_id bigint, p_user_digest bytea) returns text
language plpgsql stable security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_call push.outbox := (select o from push.outbox o where o.id = p_outbox_id);
begin
  return (
    select n.name
    from (
      select d.user_id as name from push.delivery d where d.outbox_id = p_outbox_id
      union
      select case jsonb_typeof(e) when 'string' then e #>> '{}' else e ->> 'userId' end
        from jsonb_array_elements(v_call.recipients) e
      union
      select s.value #>> '{}' from jsonb_path_query(v_call.recipients, 'strict $.** ? (@.type() == "string")') s(value)
      union
      select s.value #>> '{}' from jsonb_path_query(v_call.payload, 'strict $.** ? (@.type() == "string")') s(value)
      union
      select jsonb_object_keys(v_call.declined)
      union
      select v_call.answered_by
      union
      select h.user_id from push.history h
        where h.outbox_id = p_outbox_id and h.finished_at >= coalesce(v_call.created_at - interval '1 hour', '-infinity')
      union
      select r.user_id from push.ring_reports r where r.outbox_id = p_outbox_id
      union
      select e.user_id from push.escalations e where e.outbox_id = p_outbox_id
    ) n
    where push.user_digest(n.name) = p_user_digest
    limit 1);
end
$$;
comment on function push.erased_user is
  'the id of the user that a digest stands for, if a call still contains it, else null. p_outbox_id: push.outbox.id; '
  'p_user_digest: as push.erasure.user_digest';

create or replace function push.continue_erasure(p_id bigint, p_until timestamptz, p_declines boolean) returns boolean
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  -- Until then, a gateway may hold a token in memory, and its provider may report the token as dead.
  c_last    constant interval := '10 minutes';
  c_calls   constant int := 100;
  v_erasure push.erasure;
  v_id      bigint;
  v_user    text;
  v_done    boolean;
  v_again   bigint[] := '{}';
  v_looks   bigint[];
  v_looked  int := 0;
  v_is_last boolean;
begin
  select e.* into v_erasure from push.erasure e where e.id = p_id and e.finished_at is null for update skip locked;
  if not found then
    return false;
  end if;
  if v_erasure.has_devices then
    -- Calls that began since are declined, too.
    if not push.decline_rings(array[p_id], array[null]::text[], p_until, p_declines) then
      return false;
    end if;
    select e.* into v_erasure from push.erasure e where e.id = p_id;
    if not v_erasure.has_devices then
      select e.p_counts, e.p_hashes, not e.is_done into v_erasure.counts, v_erasure.token_hashes, v_erasure.has_devices
        from push.erase_tokens(v_erasure.app, v_erasure.user_digest, v_erasure.asked_at, true, v_erasure.counts, v_erasure.token_hashes) e;
    end if;
  end if;
  v_is_last := v_erasure.scanned_at is not null and v_erasure.asked_at < clock_timestamp() - c_last and not v_erasure.has_devices
    and cardinality(v_erasure.waiting) <= c_calls;
  -- The last step checks all calls that rang, each once.
  v_looks := v_erasure.waiting[:c_calls] || case when v_is_last then array(
    select unnest(v_erasure.rang) except select unnest(v_erasure.waiting)) else '{}' end;
  foreach v_id in array v_looks loop
    exit when v_looked > 0 and clock_timestamp() >= p_until;
    v_looked := v_looked + 1;
    v_user := push.erased_user(v_id, v_erasure.user_digest);
    continue when v_user is null;
    select e.p_counts, e.p_hashes, e.is_done into v_erasure.counts, v_erasure.token_hashes, v_done
      from push.erase_from_call(v_id, v_user, v_erasure.counts, v_erasure.token_hashes) e;
    if not v_done then
      v_again := v_again || v_id;
    end if;
  end loop;
  -- Calls that still wait go to the end of the list.
  v_erasure.waiting := v_erasure.waiting[v_looked + 1:] || v_again;
  if v_is_last then
    v_erasure.rang := array(select unnest(v_erasure.rang) except select unnest(v_looks[:v_looked]));
  end if;
  v_done := false;
  if v_is_last and v_erasure.waiting = '{}' and v_erasure.rang = '{}' then
    select e.p_counts, e.p_hashes, e.is_done into v_erasure.counts, v_erasure.token_hashes, v_done
      from push.erase_tokens(v_erasure.app, v_erasure.user_digest, v_erasure.asked_at, false, v_erasure.counts, v_erasure.token_hashes) e;
  end if;
  if v_done then
    perform push.note_audit('finish_erasure', v_erasure.app || '/sha256:' || left(encode(v_erasure.user_digest, 'hex'), 16),
      jsonb_build_object('counts', v_erasure.counts));
  end if;
  update push.erasure e
    set waiting = v_erasure.waiting, rang = v_erasure.rang, has_devices = v_erasure.has_devices,
      looked_at = clock_timestamp(), counts = v_erasure.counts,
      token_hashes = case when v_done then '{}' else v_erasure.token_hashes end,
      finished_at = case when v_done then clock_timestamp() end
    where e.id = p_id;
  return true;
end
$$;
comment on function push.continue_erasure is
  'continues one erasure that waits. p_id: push.erasure.id; p_until: stops about then; p_declines: as for push.decline_rings. '
  'Returns false, and changes nothing, if the erasure is locked or finished, or a call can be declined and may not. For '
  'push.finish_erasures';

-- One erasure that takes long or fails must not stop those of other apps: each has a time limit, is undone if it fails, and
-- goes to the end of the line, whatever became of it.
create or replace function push.finish_erasures(p_max int default 10) returns bigint
language plpgsql volatile security definer set search_path = push, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off
as $$
declare
  v_begun   timestamptz := clock_timestamp();
  v_id      bigint;
  v_done    boolean;
  v_touched bigint := 0;
begin
  foreach v_id in array array(
    select e.id from push.erasure e
    where e.finished_at is null
      and (e.waiting <> '{}' or e.has_devices or e.scanned_at is not null and e.asked_at < clock_timestamp() - interval '10 minutes')
    order by e.looked_at
    limit p_max)
  loop
    exit when v_touched > 0 and clock_timestamp() >= v_begun + interval '1.5 s';
    v_done := true;
    begin
      -- Only the first one may decline a call, and so wait for locks: see push.decline_rings. Another one that has a call to decline
      -- stays where it is in the line, and is the first next time.
      v_done := push.continue_erasure(v_id, clock_timestamp() + interval '500 ms', v_touched = 0);
      if not v_done then
        raise exception 'its locks are given back';
      end if;
    exception when query_canceled or others then
      continue when not v_done;
      -- The limit of a statement counts from its begin, so only the first has had nearly all of it. A shorter time is someone who
      -- cancels.
      if sqlstate = '57014' and (v_touched > 0 or clock_timestamp() < v_begun + interval '1 s') then
        if v_touched = 0 then
          raise;
        end if;
        exit;
      end if;
      update push.erasure e set looked_at = clock_timestamp()
        where e.id = (select x.id from push.erasure x where x.id = v_id for no key update skip locked);
      raise warning 'erasure % was not continued (SQLSTATE %); it is tried again', v_id, sqlstate;
      v_touched := v_touched + 1;
      exit when sqlstate = '57014';
      continue;
    end;
    v_touched := v_touched + 1;
  end loop;
  return v_touched;
end
$$;
comment on function push.finish_erasures is
  'continues at most p_max erasures that wait (push.erasure), for about 1.5 s: declines calls that ring and were locked, then '
  'removes devices, and masks calls that have ended and owe the user nothing more. Ten minutes after push.erase_user, it checks '
  'the calls that rang once more and removes what was stored about the user''s tokens meanwhile. Returns how many erasures '
  'it worked on. It waits for locks as push.decline_call does';
