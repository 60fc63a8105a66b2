# shellcheck shell=sh disable=SC2154 # its variables are those of run.sh
# Races of claims with other claims and with dead gateways, and of promotions: two sessions with open transactions. Sourced by run.sh,
# which has the sessions one and two.

fcm=$(sql -c "select push.register_lane('numbers', 'fcm')")
numbers=$(sql -c "select push.register_gateway('numbers', 'test')")
reaper=$(sql -c "select push.register_gateway('reaper', 'test')")
numbers_call() {
  sql -c "insert into push.outbox (app, payload, recipients) values ('numbers', '{\"callId\": \"$1\", \"from\": \"x\"}',
    (select jsonb_agg(jsonb_build_object('userId', 'u' || i, 'fcmToken', 'numbers-token-0123456789-' || i)) from generate_series(1, ${2:-1}) i))"
}
# NUMBER [MAX [GATEWAY]]: prints the number of deliveries that a claim takes.
claims() { echo "select count(*) from push.claim(${3:-$numbers}, $1, array[$fcm]::smallint[], array[${2:-10}], array['-infinity']::timestamptz[]);"; }
beats() { echo "select alive from push.beat($reaper, true, '1 day'); do 'begin perform push.free_claims(); end';"; }
silent() {
  sql -c "update push.gateways set heartbeat_at = now() - interval '10 days', doubted_at = now() - interval '10 days' where id = $1" \
    -c "update push.gateways set steady_since = now() - interval '10 days' where id = $reaper"
}
to_be_freed() { sql -c "select free_due_at is not null from push.gateways where id = $1"; }
look_again() { sql -c "update push.gateways set free_due_at = now() where id = $1"; }
gone() { sql -c "delete from push.delivery d using push.outbox o where o.id = d.outbox_id and o.app = 'numbers'"; }

# --- A lost answer ---
numbers_call run 2
one "begin; $(claims 50)" >"$work/out"
two_starts "select push.forget($numbers, 50);"
two_waits
equal "a running claim does not hold up its gateway's beat" "$(sql -c "select alive from push.beat($numbers, false)")" t
one "commit;" >"$work/out"
equal "forget waits for a running claim and returns its deliveries" "$(two_ends)/$(owed run)" "2/invite:ready invite:ready"
one "begin; select push.forget($numbers, 60);" >"$work/out"
equal "a claim that is just being forgotten takes nothing, and does not wait" "$(two "$(claims 60)")" 0
one "commit;" >"$work/out"
equal "nor does it afterwards" "$(two "$(claims 60)")" 0
equal "but the next one" "$(two "$(claims 61)")" 2
gone

# --- Commits that wait for the disk ---
# Without the WAL writer, which flushes five times a second.
before=$(sql -c "set synchronous_commit = off" -c "update push.gateways set version = 'disk' where id = $numbers" -c "select pg_current_wal_insert_lsn()")
sql -c "set synchronous_commit = off" -c "select push.sync($numbers)" >"$work/out"
equal "commits before a sync are on the disk after it" "$(sql -c "select pg_current_wal_flush_lsn() >= '${before##*SET}'::pg_lsn")" t

# --- Dead gateways ---
numbers_call victim 4
victim=$(sql -c "select push.register_gateway('victim', 'test')")
equal "a gateway has two, and claims two more" "$(one "$(claims 1 2 "$victim")") $(one "begin; $(claims 2 2 "$victim")")" "2 2"
silent "$victim"
equal "meanwhile it is declared dead, and its deliveries are freed" "$(two "$(beats)")/$(owed victim)" \
  "t/invite:ready invite:ready invite:ready invite:ready"
look_again "$victim"
two "$(beats)" >"$work/out"
equal "as long as the claim runs it is looked for" "$(to_be_freed "$victim")" t
one "commit;" >"$work/out"
equal "the claim ends with a dead owner" "$(owed victim)" "invite:ready invite:ready invite:claimed invite:claimed"
look_again "$victim"
equal "a later beat frees that, too" "$(two "$(beats)")/$(owed victim)" "t/invite:ready invite:ready invite:ready invite:ready"
equal "and then no gateway checks any more" "$(to_be_freed "$victim")" f
gone

numbers_call locked 3
victim=$(sql -c "select push.register_gateway('victim', 'test')")
one "$(claims 1 3 "$victim") begin; select n from push.delivery where owner = $victim and n = 1 for update;" >"$work/out"
silent "$victim"
equal "locked rows are left, and no session waits for them" "$(two "$(beats)")/$(owed locked)" "t/invite:ready invite:claimed invite:ready"
look_again "$victim"
two "$(beats)" >"$work/out"
equal "as long as it is locked it is looked for" "$(to_be_freed "$victim")" t
one "rollback;" >"$work/out"
look_again "$victim"
equal "it is freed the next time" "$(two "$(beats)")/$(owed locked)" "t/invite:ready invite:ready invite:ready"
equal "and each counts one crash" "$(sql -c "select string_agg(crashes::text, ' ') from push.delivery d join push.outbox o on o.id = d.outbox_id where call_id = 'locked'")" "1 1 1"
gone

numbers_call truth 2
victim=$(sql -c "select push.register_gateway('victim', 'test')")
one "$(claims 1 2 "$victim") begin; select push.settle($victim, null, array[d.outbox_id], array[d.n], '{1}', '{1}', '{0}', '{200}', '{null}', '{m}', '{truth}', array[now()], array[now()])
  from push.delivery d where d.owner = $victim and d.n = 0;" >"$work/out"
silent "$victim"
equal "a settlement in flight is not taken over" "$(two "$(beats)")/$(owed truth)" "t/invite:claimed invite:ready"
one "commit;" >"$work/out"
equal "it is accepted" "$(owed truth)/$(sql -c "select outcome from push.delivery_history where call_id = 'truth'")" "invite:ready/delivered"
look_again "$victim"
equal "and nothing of it repeated" "$(two "$(beats)")/$(owed truth)" "t/invite:ready"
gone

# --- What a provider has accepted, while another gateway has the row ---
owner_a=$(sql -c "select push.register_gateway('a', 'test')")
owner_b=$(sql -c "select push.register_gateway('b', 'test')")
# GATEWAY NUMBERS: it hands these on.
hands_on() {
  echo "select push.park($1, array_agg(d.outbox_id order by n), array_agg(n order by n), array_agg(lease order by n), array_agg(1), array_agg(400000),
    array_agg('TimedOut'::text), null, array_agg(true)) from push.delivery d where owner = $1 and n = any ('{$2}');"
}
# The provider accepts both from gateway a, which has handed them on.
accepts() {
  echo "select push.settle($owner_a, null, array_agg(o.id), array_agg(n), array_agg(1), array_agg(1), array_agg(0::smallint), array_agg(200::smallint),
    array_agg(null::text), array_agg('m'::text), array_agg('c'::text), array_agg(now()), array_agg(now()), p_created_at => array_agg(o.created_at))
    from push.outbox o, generate_series(0, 1) n where call_id = '$1';"
}
handed_call() {
  numbers_call "$1" 2
  sql -c "$(claims 1 2 "$owner_a")" -c "$(hands_on "$owner_a" 0,1)" -c "$(claims 1 2 "$owner_b")" >"$work/out"
}
accepted() { sql -c "select string_agg(format('%s:%s %s', n, outcome, reason), ', ' order by n) from push.delivery_history where call_id = '$1'"; }
handed_call late-1
one "begin; $(hands_on "$owner_b" 0)" >"$work/out"
equal "an acceptance waits for nobody who returns the row, and marks the others" \
  "$(two "$(accepts late-1)")/$(sql -c "select string_agg(n::text, ' ') from push.delivery where accepted_at is not null")" "0/1"
one "commit;" >"$work/out"
equal "it ends the row the next time" "$(two "$(accepts late-1)")/$(accepted late-1)" "1/0:delivered "
equal "what is marked ends when it is returned" "$(two "$(hands_on "$owner_b" 1)")/$(accepted late-1)" "1/0:delivered , 1:delivered Hedged"
handed_call late-2
one "begin; $(accepts late-2)" >"$work/out"
two_starts "$(hands_on "$owner_b" 0)"
two_waits
one "commit;" >"$work/out"
equal "who returns a row waits for the mark" "$(two_ends)/$(accepted late-2)" "1/0:delivered Hedged"
equal "nothing that is marked is ready again when the claim was lost" "$(two "select push.forget($owner_b, 1);")/$(accepted late-2)/$(owed late-2)" \
  "1/0:delivered Hedged, 1:delivered Hedged/"
equal "and no channel follows" "$(due; follow; sql -c "select count(*) from push.delivery d join push.outbox o on o.id = d.outbox_id where call_id ~ '^late-'")" 0
sql -c "delete from push.gateways where id in ($owner_a, $owner_b)"

# --- Two gateways disown and free the same row ---
numbers_call strays 2
victim=$(sql -c "select push.register_gateway('victim', 'test')")
one "$(claims 1 2 "$victim")" >"$work/out"
disowns() { echo "select push.disown($victim, array_agg(outbox_id), array_agg(n), array_agg(lease)) from push.delivery where owner = $victim;"; }
one "begin; $(disowns)" >"$work/out"
silent "$victim"
equal "a gateway that is declared dead while it disowns does not stop the one that says so" "$(two "$(beats)")" t
one "commit;" >"$work/out"
look_again "$victim"
equal "each delivery is freed once" "$(two "$(beats)")/$(owed strays)" "t/invite:ready invite:ready"
equal "and counts no crash" "$(sql -c "select max(crashes) from push.delivery d join push.outbox o on o.id = d.outbox_id where call_id = 'strays'")" 0
gone

# --- A promotion against the end of a call, in both orders ---
waiting_call() {
  numbers_call "$1" 2
  sql -c "update push.delivery d set state = 2, ready_lane = null, due_at = now() from push.outbox o where o.id = d.outbox_id and o.call_id = '$1'"
}
waiting_call promoted
one "begin; select push.promote();" >"$work/out"
equal "an end does not wait for a running promote" "$(two "select push.end_call('promoted', 'busy');")" t
equal "nor does what follows, which leaves the call" "$(two "select push.follow_up();")/$(sql -c 'select count(*) from push.follow_ups')" "1/1"
one "commit;" >"$work/out"
due
follow
equal "and voids the invites that were made ready afterwards" "$(owed promoted)/$(past promoted)" "/invite:void:CallEnded invite:void:CallEnded"
waiting_call ending
one "begin; select push.end_call('ending', 'busy');" >"$work/out"
equal "promote does not wait for an end in progress" "$(two "select push.promote();")/$(owed ending)" "2/invite:ready invite:ready"
one "commit;" >"$work/out"
follow
equal "after it they are void" "$(owed ending)/$(past ending)" "/invite:void:CallEnded invite:void:CallEnded"
gone

# --- Locks of other sessions ---
# Making partitions, which once took such a lock.
sql -c "select push.register_lane('numbers', 'apns')" -c "insert into push.devices (user_id, app, provider, token, platform) values
  ('stranger', 'numbers', 'apns', repeat('0', 60) || 'bbb1', 'ios'),
  ('stranger', 'numbers', 'fcm', 'stranger-token-0123456789', 'ios')" >"$work/out"
sql -c "insert into push.outbox (app, payload, recipients) values ('numbers', '{\"callId\": \"stranger\", \"from\": \"x\"}', '[\"stranger\"]')"
one "select count(pg_advisory_lock(7781, k)) from generate_series(0, 100) k; select count(pg_advisory_lock(k)) from generate_series(0, 100) k;
  select count(pg_advisory_lock(hashint8extended(id, 7782))) from push.outbox where call_id = 'stranger';" >"$work/out"
last=$(sql -c "select 'push.history_' || to_char(current_date + 14, 'YYYYMMDD')")
sql -c "drop table if exists $last" -c "update push.job set due_at = now() - interval '1 s'"
# Those that are due again meanwhile come after the others.
jobs=$(sql -c "select count(*) from push.job")
equal "a session with advisory locks stops no job" "$(two "select count(push.run_job(push.take_job($numbers))) from generate_series(1, $jobs);")" "$jobs"
equal "no partition" "$(sql -c "select to_regclass('$last') is not null")" t
apns=$(sql -c "select push.register_lane('numbers', 'apns')")
equal "no claim" "$(two "select count(*) from push.claim($numbers, 70, array[$apns]::smallint[], '{9}', '{-infinity}');")" 1
equal "no settlement with its fallback" "$(two "select push.settle($numbers, null, array[id], '{0}', '{70}', '{1}', '{4}', '{410}', '{Unregistered}', '{null}', '{stranger}', array[now()], array[now()])
  from push.outbox where call_id = 'stranger';")/$(follow; owed stranger)" "1/invite:ready"
silent "$numbers"
equal "no takeover" "$(two "$(beats)")/$(sql -c "select ended_reason from push.gateways where id = $numbers")" "t/silent"
equal "no requeue, no end" "$(two "select requeued from push.requeue('stranger', 'numbers'); select push.end_call('stranger', 'busy', 'numbers');")" "1 t"
one "select pg_advisory_unlock_all();" >"$work/out"
gone
