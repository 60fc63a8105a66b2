-- Erases one user's data: rows that name the user, or hold a token of the user, are removed. Rows that also concern other
-- users are masked.
--
-- An erasure (push.erasure) looks through all calls and all of history for calls that name the user, and masks each. A call that rings
-- is declined in the user's name first: its unsent invites become void, and the user's phones that may ring get a cancel. The phones
-- of other users ring on, including a phone that two recipients share. Such a call is masked when it has ended: until then, the
-- decline keeps the gateway from ringing the user's phones on another channel. A call also waits if something is still owed that
-- needs the user, or that may follow (push.follow_ups). What nobody owes any more cannot come back, because everything that makes a
-- push has the call's row locked.
--
-- push.erase_user and the job "erase", which any gateway runs, take the same steps of limited time. If another session has locked a row of
-- a call, what was done to the call is undone after 10 ms, and the call is looked at again. Other rows that are locked are skipped and
-- looked at again.

comment on column push.outbox.erased_at is 'when push.erase_user last masked a user in it; null: never';
comment on column push.erasure.user_id is 'the backend''s id of the user; null: it is finished';
comment on column push.erasure.until_id is 'push.outbox.id down to which calls were looked through';
comment on column push.erasure.found is 'calls (push.outbox.id) that name the user and are looked at next';
comment on column push.erasure.has_locked is 'whether rows outside of calls were locked; they are removed when it is finished';

-- Masks ---------------------------------------------------------------------------------------------------------------

create or replace function push.mask_user(p_value jsonb, p_user_id text, p_words boolean default false) returns jsonb
language plpgsql immutable parallel safe as $$
begin
  return case jsonb_typeof(p_value)
    when 'object' then coalesce((
      select jsonb_object_agg(case when m.key = p_user_id and not p_words then '[erased]' else m.key end,
        push.mask_user(m.value, p_user_id, p_words))
      from jsonb_each(p_value) m), '{}')
    when 'array' then coalesce((
      select jsonb_agg(push.mask_user(e.value, p_user_id, p_words) order by e.i)
      from jsonb_array_elements(p_value) with ordinality e(value, i)), '[]')
    when 'string' then case
      when p_words then to_jsonb(regexp_replace(p_value #>> '{}', '(?<![[:alnum:]_])'
        || regexp_replace(p_user_id, '([^[:alnum:]_[:space:]])', E'\\\\\\1', 'g') || '(?![[:alnum:]_])', '[erased]', 'g'))
      when p_value #>> '{}' = p_user_id then '"[erased]"' else p_value end
    else p_value end;
end
$$;
comment on function push.mask_user is 'a JSON value without a user: [erased] replaces strings and keys, or with p_words words in strings';

create or replace function push.add_counts(p_counts jsonb, p_more jsonb) returns jsonb language sql immutable parallel safe as $$
  select coalesce(jsonb_object_agg(s.place, jsonb_build_array(s.removed, s.masked)), '{}')
  from (
    select c.key as place, sum((c.value ->> 0)::bigint) as removed, sum((c.value ->> 1)::bigint) as masked
    from (select * from jsonb_each(p_counts) union all select * from jsonb_each(p_more)) c group by c.key
  ) s
  where s.removed + s.masked > 0
$$;
comment on function push.add_counts is 'adds to the counts of an erasure. p_counts: push.erasure.counts; p_more: what is added, likewise';

-- One call ------------------------------------------------------------------------------------------------------------

-- A token that two recipients share is one delivery, which belongs to the first of them. Without this, erasing the first would silence
-- the second. The other user gets a delivery with a number of its own: a gateway may have the former one in its memory and end it,
-- as the first user has declined. What people see is left alone if it may be on its way: they would see it twice.
create or replace function push.hand_over(p_call push.outbox, p_user_id text) returns void
language plpgsql volatile set search_path = push, pg_temp as $$
begin
  -- What a gateway is about to settle is in history afterwards.
  perform from push.delivery d where d.outbox_id = p_call.id and d.user_id = p_user_id and d.kind = 0 for update;
  with other as materialized (
    select distinct on (t.provider, k.key) t.provider, k.key, t.token, n.name, t.locale, push.recipient_data(e.entry) as data
    from jsonb_array_elements(p_call.recipients) with ordinality e(entry, i)
      cross join lateral (select push.entry_user(e.entry)) n(name)
      cross join lateral (
        select k.provider, k.token, push.recipient_locale(e.entry) as locale
        from unnest(array[true, false]) c(is_call) cross join lateral push.entry_tokens(e.entry, c.is_call) k
        union all
        select d.provider, d.token, d.locale from push.devices d
        where d.user_id = n.name and d.app = p_call.app and d.enabled and d.invalidated_at is null) t
      cross join lateral (select push.token_key(t.provider, t.token)) k(key)
    where push.is_recipient(e.entry) and n.name <> p_user_id and not coalesce(p_call.declined ? n.name, false)
      and e.entry -> 'notificationEnabled' is distinct from 'false'
    order by t.provider, k.key, e.i
  ), told as (
    -- While the call rings, its cancels go to the user that history names.
    update push.history h set user_id = x.name, locale = x.locale, data = x.data from other x
      where p_call.ended_at is null and h.outbox_id = p_call.id and h.finished_at >= p_call.created_at - interval '1 hour'
        and h.user_id = p_user_id and h.kind = 0
        and coalesce(push.token_key(x.provider, h.token) = x.key, h.token_hash = hashtextextended(x.token, 0))
  ), gone as (
    delete from push.delivery d using other x
      where d.outbox_id = p_call.id and d.user_id = p_user_id and push.token_key(x.provider, d.token) = x.key
        and (d.kind = 0 and p_call.ended_at is null or d.kind in (2, 3) and d.state <> 1)
      returning d.*, x.name, x.locale as said, x.data as given
  )
  insert into push.delivery (outbox_id, n, kind, deadline_at, lane, ready_lane, environment, platform, user_id, token, locale, data)
  select g.outbox_id, (select max(p.last_n) from push.pushes_of(array[p_call.id]) p) + row_number() over (order by g.n), g.kind,
    g.deadline_at, g.lane, g.lane, g.environment, g.platform, g.name, g.token, g.said, g.given
  from gone g;
  perform push.ring_doorbell() where found;
end
$$;
comment on function push.hand_over is 'hands what is owed to a user, on tokens that others have too, over to them';

-- Entries of recipients lose tokens, locale and data, and a payload that names the user keeps only its ids.
create or replace function push.mask_rows(p_erasure push.erasure, p_id bigint, p_call push.outbox, p_since timestamptz) returns push.erasure
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_user constant text := p_erasure.user_id;
begin
  p_call.recipients := coalesce((
    select jsonb_agg(case when push.entry_user(e.entry) = v_user then '"[erased]"' else push.mask_user(e.entry, v_user) end order by e.i)
    from jsonb_array_elements(p_call.recipients) with ordinality e(entry, i)), p_call.recipients);
  if p_call.declined ? v_user then
    p_call.declined := push.mask_user(p_call.declined #- array[v_user, 'device'], v_user);
  end if;
  if p_call.answered_by = v_user or exists (select from unnest(p_erasure.token_hashes) h(hash)
    where h.hash in (hashtextextended(p_call.answered_device, 0), hashtextextended(lower(p_call.answered_device), 0))) then
    p_call.answered_device := null;
  end if;
  p_call.answered_by := case p_call.answered_by when v_user then '[erased]' else p_call.answered_by end;
  -- A payload that names the user describes the parties of the call, so only its ids are kept.
  if p_call.payload - 'callId' <> push.mask_user(p_call.payload - 'callId', v_user) then
    p_call.payload := coalesce((
      select jsonb_object_agg(m.key, case m.key when 'callId' then m.value else push.mask_user(m.value, v_user) end)
      from jsonb_each(p_call.payload) m where m.key in ('callId', 'messageId', 'chatId', 'from')), '{}');
  end if;
  with history as (
    update push.history h set user_id = '[erased]', token = null, device = '…', token_hash = null, locale = null, data = null,
        provider_message_id = null
      where h.outbox_id = p_id and h.finished_at >= p_since and h.user_id = v_user
      returning 1
  ), reports as (
    delete from push.ring_reports r where r.outbox_id = p_id and r.user_id = v_user returning 1
  ), escalated as (
    update push.escalations e set user_id = '[erased]' where e.outbox_id = p_id and e.user_id = v_user returning 1
  ), call as (
    update push.outbox o
      set recipients = p_call.recipients, declined = p_call.declined, answered_by = p_call.answered_by,
        answered_device = p_call.answered_device, payload = p_call.payload, erased_at = clock_timestamp()
      where o.id = p_id and (o.recipients, o.declined, o.answered_by, o.answered_device, o.payload) is distinct from
        (p_call.recipients, p_call.declined, p_call.answered_by, p_call.answered_device, p_call.payload)
      returning 1
  )
  select push.add_counts(p_erasure.counts, jsonb_build_object('history', array[0, (select count(*) from history)],
      'ring_reports', array[(select count(*) from reports), 0], 'escalations', array[0, (select count(*) from escalated)],
      'outbox', array[0, (select count(*) from call)]))
    into p_erasure.counts;
  p_erasure.waiting := array_remove(p_erasure.waiting, p_id);
  return p_erasure;
end
$$;
comment on function push.mask_rows is 'masks the user in a call, which is locked, and in its other rows';

create or replace function push.erase_from_call(p_erasure push.erasure, p_outbox_id bigint) returns push.erasure
language plpgsql volatile set search_path = push, pg_temp set lock_timeout = '10ms' as $$
declare
  v_user   constant text := p_erasure.user_id;
  v_call   push.outbox;
  v_since  timestamptz;
  v_former push.erasure;
  v_is_recipient boolean;
begin
  -- It waits, unless it is masked below.
  p_erasure.waiting := array_remove(p_erasure.waiting, p_outbox_id) || p_outbox_id;
  v_former := p_erasure;
  select o.* into v_call from push.outbox o where o.id = p_outbox_id for no key update;
  perform push.hand_over(v_call, v_user);
  -- Of a call that was deleted, only the history is left.
  v_since := coalesce(v_call.created_at - interval '1 hour', '-infinity');
  p_erasure.token_hashes := array_remove(array(
    select unnest(p_erasure.token_hashes)
    union
    -- As push.token_digests.
    select hashtextextended(s.token, 0)
      from jsonb_array_elements(v_call.recipients) e cross join unnest(array[true, false]) c(is_call)
      cross join lateral push.entry_tokens(e, c.is_call) t
      cross join lateral unnest(array[t.token, lower(t.token), upper(t.token)]) s(token)
      where e ->> 'userId' = v_user
    union
    select coalesce(hashtextextended(s.token, 0), h.token_hash) from push.history h
      cross join lateral unnest(array[h.token, lower(h.token), upper(h.token)]) s(token)
      where h.outbox_id = p_outbox_id and h.finished_at >= v_since and h.user_id = v_user), null);
  v_is_recipient := coalesce(v_call.recipients @> jsonb_build_array(v_user)
    or v_call.recipients @> jsonb_build_array(jsonb_build_object('userId', v_user)), false);
  p_erasure.is_known := p_erasure.is_known or v_is_recipient
    or coalesce(v_call.declined ? v_user or v_call.answered_by = v_user or v_call.payload ->> 'from' = v_user, false);
  update push.outbox o
    set declined = coalesce(o.declined, '{}')
      || jsonb_build_object(v_user, jsonb_build_object('reason', 'declined', 'at', clock_timestamp(), 'erases', true))
    where o.id = p_outbox_id and o.ended_at is null and v_is_recipient and not coalesce(o.declined ? v_user, false);
  delete from push.unreached u where u.outbox_id = p_outbox_id and u.user_id = v_user;
  -- Unsent notifications and missed calls are never sent. Invites become void as after every decline, and cancels are sent: a phone
  -- must not ring without an end.
  p_erasure.counts := push.add_counts(p_erasure.counts, jsonb_build_object('delivery', array[push.bury(array(
      select d.ctid from push.delivery d
      where d.outbox_id = p_outbox_id and d.user_id = v_user and d.state in (0, 2) and d.kind in (2, 3) for update),
    2, 'UserErased'), 0]));

  if v_call.id is not null and v_call.ended_at is null
    or exists (select from push.follow_ups f where f.outbox_id = p_outbox_id and f.why <> 'unheard')
    -- A payload that names the user goes to the phones of the others.
    or exists (select from push.delivery d
      where d.outbox_id = p_outbox_id and (d.user_id = v_user
        or v_call.payload - 'callId' <> push.mask_user(v_call.payload - 'callId', v_user)))
  then
    return p_erasure;
  end if;
  return push.mask_rows(p_erasure, p_outbox_id, v_call, v_since);
exception
  when lock_not_available then return v_former;
  when others or assert_failure then
    -- A call that cannot be masked keeps no other waiting.
    if sqlstate ~ '^(08|40|53|57|55P03)' then raise; end if;
    perform push.name_fault('push.outbox.id ' || p_outbox_id, sqlstate);
    return v_former;
end
$$;
comment on function push.erase_from_call is 'masks the user in one call, or declines it if it rings; it waits while something is owed';

-- Which calls name the user -------------------------------------------------------------------------------------------

-- No index finds them. Calls are read in the order of their numbers, in both directions from the oldest call that rings, so that the
-- calls that ring come first: a hundred in each direction at a time, and no more after a megabyte, because all that is read is made text.
-- Then history is read by partition, 1,000 pages at a time: calls that were deleted have left it behind. A call that is committed after its
-- number was passed is not found.
create or replace function push.look_further(p_erasure push.erasure) returns push.erasure
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_user  constant text := p_erasure.user_id;
  v_text  constant text := to_jsonb(v_user)::text;
  v_are_left boolean;
  v_table text;
begin
  select greatest(max(o.id), p_erasure.after_id), least(min(o.id), p_erasure.until_id), count(*) > 0,
      coalesce(array_agg(o.id order by o.id < p_erasure.until_id, o.id) filter (where o.app = p_erasure.app and (
      o.answered_by = v_user or o.declined ? v_user or strpos(o.recipients::text, v_text) > 0 or strpos(o.payload::text, v_text) > 0)), '{}')
    into p_erasure.after_id, p_erasure.until_id, v_are_left, p_erasure.found
    from (
      (select x.id, x.app, x.answered_by, x.declined, x.recipients, x.payload, sum(pg_column_size(x.recipients) + pg_column_size(x.payload))
          over (order by x.id rows between unbounded preceding and 1 preceding) as bytes_before
        from push.outbox x where x.id > p_erasure.after_id order by x.id limit 100)
      union all
      (select x.id, x.app, x.answered_by, x.declined, x.recipients, x.payload, sum(pg_column_size(x.recipients) + pg_column_size(x.payload))
          over (order by x.id desc rows between unbounded preceding and 1 preceding)
        from push.outbox x where x.id < p_erasure.until_id order by x.id desc limit 100)
    ) o
    where coalesce(o.bytes_before, 0) < 1048576;
  if v_are_left then
    return p_erasure;
  end if;
  v_table := (
    select min(c.relname::text) from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'push.history'::regclass
      and (c.relname > p_erasure.after_table or c.relname = p_erasure.after_table and p_erasure.after_page > 0));
  if v_table is null then
    p_erasure.scanned_at := clock_timestamp();
    return p_erasure;
  elsif v_table <> p_erasure.after_table then
    p_erasure.after_table := v_table;
    p_erasure.after_page := 0;
  end if;
  execute format('select array(select distinct h.outbox_id from push.%I h where h.ctid >= $1 and h.ctid < $2 and h.user_id = $3 '
    'and h.lane = any ($4) and h.outbox_id <> all ($5))', v_table)
    into p_erasure.found
    using format('(%s,0)', p_erasure.after_page)::tid, format('(%s,0)', p_erasure.after_page + 1000)::tid, v_user,
      array(select l.id from push.lane l where l.app = p_erasure.app), p_erasure.waiting;
  p_erasure.after_page := p_erasure.after_page + 1000;
  p_erasure.after_page := case when p_erasure.after_page < pg_relation_size(format('push.%I', v_table)::regclass)
    / current_setting('block_size')::int then p_erasure.after_page else 0 end;
  return p_erasure;
end
$$;
comment on function push.look_further is 'finds the calls that name the user in the next bite of all calls and history';

-- Outside of calls ------------------------------------------------------------------------------------------------------

-- Reads whole tables: an index on the user in each of them would cost every settlement and registration. Tokens without a device have
-- no known user; they are found by their hash.
--
-- Devices that were registered since push.erase_user stay.
create or replace function push.erase_elsewhere(p_erasure push.erasure) returns push.erasure
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_user    constant text := p_erasure.user_id;
  v_table   record;
  v_batch   push.receipt_batch;
  v_hashes  bigint[];
  v_seen    bigint;
  v_removed bigint := 0;
  v_masked  bigint;
begin
  for v_batch in select r.* from push.receipt_batch r where r.app = p_erasure.app and v_user = any (r.user_id) for update skip locked loop
    v_removed := v_removed + push.cut_receipts(v_batch, array(
      select i from unnest(v_batch.user_id) with ordinality t(u, i) where t.u <> v_user order by i));
    p_erasure.token_hashes := array(
      select unnest(p_erasure.token_hashes)
      union
      select hashtextextended(t.token, 0) from unnest(v_batch.user_id, v_batch.token) t(u, token) where t.u = v_user);
  end loop;
  p_erasure.counts := push.add_counts(p_erasure.counts, jsonb_build_object('receipt_batch', array[v_removed, 0]));

  p_erasure.has_locked := exists (select from push.receipt_batch r where r.app = p_erasure.app and v_user = any (r.user_id));
  for v_table in select * from (values
    ('devices', 'x.token', 'x.registered_at <= $4'), ('token_invalidations', 'x.token', 'true'), ('quarantined_tokens', 'x.token', 'true'),
    ('webhook_event', 'x.data ->> ''token''', 'x.type = ''token.dead''')
  ) t(name, token, is_meant) loop
    execute format('with seen as materialized (select x.ctid as tid from push.%1$I x where x.app = $1 and %3$s
          and (x.user_id = $2 or x.user_id is null and hashtextextended(%2$s, 0) = any ($3))), gone as (
        delete from push.%1$I x where x.ctid = any (array(select l.ctid from push.%1$I l
          where l.ctid = any (array(select s.tid from seen s)) for update skip locked)) returning hashtextextended(%2$s, 0) as hash)
      select (select count(*) from seen), count(*), coalesce(array_agg(g.hash), ''{}'') from gone g',
      v_table.name, v_table.token, v_table.is_meant)
      into v_seen, v_removed, v_hashes using p_erasure.app, v_user, p_erasure.token_hashes, p_erasure.asked_at;
    p_erasure.token_hashes := array(select unnest(p_erasure.token_hashes) union select unnest(v_hashes));
    p_erasure.counts := push.add_counts(p_erasure.counts, jsonb_build_object(v_table.name, array[v_removed, 0]));
    p_erasure.has_locked := p_erasure.has_locked or v_removed < v_seen;
  end loop;

  -- Events that were not acknowledged yet.
  update push.webhook_event t
    set user_id = '[erased]', data = t.data || case when t.data ? 'answeredBy' then '{"answeredBy": "[erased]"}'
      when t.data ? 'device' then '{"userId": "[erased]", "device": "…"}' else '{"userId": "[erased]"}' end::jsonb
    where t.id = any (array(
      select x.id from push.webhook_event x where x.app = p_erasure.app and x.user_id = v_user for no key update skip locked));
  get diagnostics v_masked = row_count;
  p_erasure.counts := push.add_counts(p_erasure.counts, jsonb_build_object('webhook_event', array[0, v_masked]));
  p_erasure.has_locked := p_erasure.has_locked
    or exists (select from push.webhook_event x where x.app = p_erasure.app and x.user_id = v_user);
  return p_erasure;
end
$$;
comment on function push.erase_elsewhere is 'erases the user outside of calls; has_locked: rows were skipped';

-- The whole -----------------------------------------------------------------------------------------------------------

-- It looks at the calls that were found, and looks for more. At the end it removes what is stored outside of calls. After ten minutes,
-- if no call waits, it does so once more, and the erasure is finished.
create or replace function push.continue_erasure(p_erasure push.erasure, p_until timestamptz) returns push.erasure
language plpgsql volatile set search_path = push, pg_temp as $$
declare
  v_is_new  constant boolean := p_erasure.scanned_at is null;
  v_is_last boolean;
  v_call    bigint;
  v_user    constant text := p_erasure.user_id;
  v_app     constant text := p_erasure.app;
  -- Members of push.audit.detail that the actions write themselves.
  c_own     constant text[] := '{scopes,expires_at,addresses,changed,done,window}';
begin
  -- Every call of this function looks further, or at a call, however little time it has. At the end it looks once more at those that wait.
  loop
    v_call := p_erasure.found[1];
    p_erasure.found := p_erasure.found[2:];
    if v_call is not null then
      p_erasure := push.erase_from_call(p_erasure, v_call);
    else
      exit when p_erasure.scanned_at is not null;
      p_erasure := push.look_further(p_erasure);
      if p_erasure.scanned_at is not null then
        p_erasure.found := p_erasure.waiting;
        p_erasure.waiting := '{}';
      end if;
    end if;
    exit when clock_timestamp() >= p_until and (v_call is not null or p_erasure.found = '{}');
  end loop;
  -- Until then, a gateway may hold a token in memory, and its provider may report the token as dead.
  v_is_last := not v_is_new and p_erasure.asked_at < clock_timestamp() - interval '10 minutes'
    and p_erasure.found || p_erasure.waiting || p_erasure.rang = '{}';
  if v_is_new and p_erasure.scanned_at is not null or v_is_last then
    p_erasure := push.erase_elsewhere(p_erasure);
    -- Notes of operators about this app in which the user's id stands as a word. The id of an unknown user masks nothing; otherwise
    -- operators could rewrite the record. The names of apps, lanes, roles and keys are not masked, and neither is the id of a call.
    p_erasure.is_known := p_erasure.is_known or p_erasure.counts - '{outbox,audit}'::text[] <> '{}';
    with masked as (
      update push.audit a set target = l.target, detail = l.detail from (
        select x.id, case when v_user <> v_app and x.action in ('void_call', 'requeue')
              and not exists (select from push.outbox o where o.call_id = v_user and o.app = v_app)
            then v_app || '/' || (push.mask_user(to_jsonb(substr(x.target, length(v_app) + 2)), v_user, true) #>> '{}')
            else x.target end as target,
          push.mask_user(x.detail - c_own, v_user, true)
            || coalesce((select jsonb_object_agg(m.key, m.value) from jsonb_each(x.detail) m where m.key = any (c_own)), '{}') as detail
        from push.audit x
        where p_erasure.is_known and split_part(x.target, '/', 1) = v_app and x.action not in ('erase_user', 'finish_erasure')
          and (strpos(x.target, v_user) > 0 or strpos(x.detail::text, btrim(to_jsonb(v_user)::text, '"')) > 0)
        for no key update skip locked
      ) l
      where a.id = l.id and (a.target, a.detail) is distinct from (l.target, l.detail)
      returning 1
    )
    select push.add_counts(p_erasure.counts, jsonb_build_object('audit', array[0, count(*)])) into p_erasure.counts from masked;
    if v_is_last and not p_erasure.has_locked then
      p_erasure.finished_at := clock_timestamp();
      p_erasure.user_id := null;
      p_erasure.token_hashes := '{}';
      insert into push.audit (action, target, detail) values ('finish_erasure',
        p_erasure.app || '/sha256:' || left(encode(p_erasure.user_digest, 'hex'), 16), jsonb_build_object('counts', p_erasure.counts));
    end if;
  end if;
  update push.erasure e
    set user_id = p_erasure.user_id, after_id = p_erasure.after_id, after_table = p_erasure.after_table, after_page = p_erasure.after_page,
      scanned_at = p_erasure.scanned_at, found = p_erasure.found, waiting = p_erasure.waiting, rang = p_erasure.rang,
      has_locked = p_erasure.has_locked, is_known = p_erasure.is_known, token_hashes = p_erasure.token_hashes, counts = p_erasure.counts,
      finished_at = p_erasure.finished_at
    where e.id = p_erasure.id;
  return p_erasure;
end
$$;
comment on function push.continue_erasure is 'continues an erasure, whose row is locked, until p_until';

create or replace function push.erase_user(user_id text, app text, max_ms int default 1000)
returns table (place text, removed bigint, masked bigint, waiting bigint, is_complete boolean)
language plpgsql volatile security definer set search_path = push, pg_temp as $$
#variable_conflict use_column
declare
  v_user    constant text := erase_user.user_id;
  v_app     constant text := erase_user.app;
  v_digest  constant bytea := sha256(convert_to(v_user, 'UTF8'));
  v_rings   constant bigint := coalesce((
    select min(o.id) from push.outbox o where o.state = 'ringing' and o.ended_at is null and o.app = v_app), 0);
  v_erasure push.erasure;
  v_is_new  boolean;
begin
  if v_user is null or length(v_user) not between 1 and 256 or v_user = '[erased]' then
    raise exception using errcode = 'invalid_parameter_value', message = 'user_id: must have 1 to 256 characters',
      hint = 'It is the id that recipients and push.register_device gave.';
  elsif push.app_fault(v_app) is not null then
    raise exception using errcode = 'invalid_parameter_value', message = push.app_fault(v_app);
  elsif not exists (select from push.lane l where l.app = v_app) and not exists (select from push.apps a where a.app = v_app)
    and not exists (select from push.devices d where d.app = v_app) and not exists (select from push.outbox o where o.app = v_app)
  then
    raise exception using errcode = 'no_data_found',
      message = format('app: no gateway has served %s, and it has no calls and no devices', v_app),
      hint = coalesce((select 'There are ' || string_agg(a.app, ', ') from (select a.app from push.apps a order by a.app limit 20) a),
        'No gateway has served any app yet.');
  end if;
  -- Two erasures of one user run one after the other.
  insert into push.erasure (app, user_digest) values (v_app, v_digest) on conflict on constraint erasure_of_user do nothing;
  select e.* into v_erasure from push.erasure e where e.app = v_app and e.user_digest = v_digest for update;
  v_is_new := v_erasure.user_id is null or v_erasure.scanned_at is not null and v_erasure.found = '{}';
  if v_is_new then
    update push.erasure e
      set user_id = v_user, asked_at = clock_timestamp(), after_id = v_rings - 1, until_id = v_rings, after_table = '', after_page = 0,
        scanned_at = null, finished_at = null, counts = '{}', rang = e.rang || e.waiting, waiting = '{}'
      where e.id = v_erasure.id returning e.* into v_erasure;
  end if;
  v_erasure := push.continue_erasure(v_erasure, clock_timestamp() + make_interval(secs => greatest(coalesce(max_ms, 1000), 0) / 1000.0));
  is_complete := v_erasure.scanned_at is not null and v_erasure.found = '{}';
  if v_is_new or is_complete then
    insert into push.audit (action, target, detail) values ('erase_user', v_app || '/sha256:' || left(encode(v_erasure.user_digest, 'hex'), 16),
      jsonb_build_object('counts', v_erasure.counts, 'waiting', cardinality(v_erasure.waiting || v_erasure.found), 'complete', is_complete));
  end if;
  return query
    select t.name, coalesce((v_erasure.counts -> t.name ->> 0)::bigint, 0), coalesce((v_erasure.counts -> t.name ->> 1)::bigint, 0),
      case t.name when 'outbox' then cardinality(v_erasure.waiting || v_erasure.found) when 'devices' then v_erasure.has_locked::int
        else 0 end::bigint, is_complete
    from unnest('{devices,delivery,outbox,history,ring_reports,escalations,receipt_batch,token_invalidations,quarantined_tokens,webhook_event,'
      'audit}'::text[]) with ordinality t(name, i) order by t.i;
end
$$;
comment on function push.erase_user is
  'removes or masks all data of one user of one app in this schema. user_id: the backend''s id; app: one that gateways have served, or that '
  'has calls or devices; max_ms: stops after about this many milliseconds. Returns a row for each table: place; removed, masked: rows since '
  'the pass began; waiting: calls that still ring, are locked, owe the user a delivery, or had no time left; for devices, 1 if rows outside '
  'of calls are locked. Gateways do what is waiting within a quarter of an hour, or after the call. is_complete: if false, call this again '
  'with the same arguments. A call that rings is declined in the user''s name, and the user''s phones get a cancel, except those that also '
  'ring for another recipient. Running it again is harmless and starts a new pass';

-- One erasure in a transaction, so that each has the time of a statement. One that fails goes to the end of the line like every other:
-- it must not stop those of other apps. The message of the error is not kept, because it may contain a token.
create or replace function push.finish_erasures() returns boolean
language plpgsql volatile security definer set search_path = push, pg_temp as $$
declare
  v_begun   constant timestamptz := clock_timestamp();
  v_last    constant timestamptz := v_begun - interval '10 minutes';
  v_ids     bigint[] := array(
    select e.id from push.erasure e
    where e.finished_at is null and e.looked_at < v_begun - interval '10 s' and (e.user_id is not null or e.scanned_at is not null)
      and (e.scanned_at is null or e.found || e.waiting <> '{}' or e.asked_at < v_last)
    order by e.looked_at limit 2 for update skip locked);
  v_erasure push.erasure;
begin
  update push.erasure e set looked_at = v_begun where e.id = v_ids[1] returning e.* into v_erasure;
  if not found then
    return false;
  end if;
  begin
    -- The last look is at all calls that have ever waited.
    v_erasure.rang := array(select unnest(v_erasure.rang) union select unnest(v_erasure.waiting));
    v_erasure.found := v_erasure.found || case when v_erasure.asked_at < v_last then v_erasure.rang else v_erasure.waiting end;
    v_erasure.rang := case when v_erasure.asked_at < v_last then '{}' else v_erasure.rang end;
    v_erasure.waiting := '{}';
    perform push.continue_erasure(v_erasure, v_begun + interval '500 ms');
  exception when query_canceled or others then
    perform push.name_fault(v_erasure.app || '/sha256:' || left(encode(v_erasure.user_digest, 'hex'), 16), sqlstate, null);
  end;
  return cardinality(v_ids) > 1;
end
$$;
comment on function push.finish_erasures is 'the job "erase": continues one erasure for about 500 ms. Returns whether another one waits';
