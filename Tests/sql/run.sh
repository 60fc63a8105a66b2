#!/bin/sh
# The SQL tests: the promises of the schema to backends, gateways and operators, checked through psql.
#
#   Tests/sql/run.sh [DATABASE_URL]     (else the variable DATABASE_URL)
#
# Makes a scratch database beside the given one, applies the schema, runs every *.sql here and the checks below that
# need several sessions, and drops the scratch database. Ends with "N passed, N failed"; non-zero when any failed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
given=${1:-${DATABASE_URL:-}}
[ -n "$given" ] || { echo "run.sh: give a database URL, for example: Tests/sql/run.sh \$(scripts/postgres.sh start .local/pg)" >&2; exit 64; }

case $given in
  *\?*) server=${given%%\?*} parameters="?${given#*\?}" ;;
  *) server=$given parameters= ;;
esac
name=push_test_$$
url=${server%/*}/$name$parameters
work=$(mktemp -d)
results=$work/results
: >"$results"

cleanup() {
  psql -Xq "$given" -c "drop database if exists $name with (force)" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

sql() { psql -XAtq -v ON_ERROR_STOP=1 "$url" "$@"; }
ok() { echo "ok - $1" >>"$results"; }
not_ok() { echo "not ok - $1: $2" >>"$results"; }
equal() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got [$2], want [$3]"; fi; }

psql -Xq "$given" -c "create database $name" >/dev/null
# A session that waits for another one gives up in the end, and the check in which it waits fails.
psql -Xq "$given" -c "alter database $name set lock_timeout = '5min'"
"$root"/scripts/apply-schema.sh "$url"

# --- The schema as a whole ---
# The output of pg_dump depends on its version, so it is compared only with output of the same version.
"$root"/scripts/dump-schema.sh "$url" >"$work/schema"
major=$(pg_dump --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')
if head -n 1 "$root/docs/schema.sql" | grep -q "as pg_dump $major shows it"; then
  if sed 1,2d "$root/docs/schema.sql" | diff - "$work/schema" >"$work/diff"; then
    ok "docs/schema.sql is the schema"
  else
    not_ok "docs/schema.sql is the schema" "it is stale, run: make schema. The first of $(grep -c '^[<>]' "$work/diff") lines: $(grep -m 1 '^[<>]' "$work/diff")"
  fi
fi
"$root"/scripts/apply-schema.sh "$url" functions
"$root"/scripts/dump-schema.sh "$url" >"$work/again"
equal "the functions applied again change nothing" "$(diff "$work/schema" "$work/again" | head -n 5)" ""
# Each object has one definition, so that no later one replaces a changed one.
defined() { cat "$root"/migrations/*.sql "$root"/migrations/functions/*.sql | sed 's/--.*//' | tr '\n' ' ' | tr -s ' ' | grep -oE "$1" | sed 's/^create or replace /create /'; }
equal "each function is defined once" "$(defined 'create (or replace )?function push\.[a-z_]+ ?\([^)]*\)' | sort | uniq -d)" ""
equal "each view is defined once" "$(defined 'create (or replace )?view push\.[a-z_]+' | sort | uniq -d)" ""
equal "each trigger is defined once" "$(defined 'create (or replace )?trigger [a-z_]+ [^;]* on push\.[a-z_]+' | sort | uniq -d)" ""
equal "all of them are in functions/" "$(grep -lE '^create (or replace )?(function|view|trigger) ' "$root"/migrations/*.sql)" ""
equal "and are all there is" "$(defined 'create (or replace )?function push\.[a-z_]+' | sort -u | wc -l | tr -d ' ')" \
  "$(sql -c "select count(distinct proname) from pg_proc where pronamespace = 'push'::regnamespace")"

equal "only roles.sql says how queries are planned" \
  "$(grep -lE '\bset (enable_[a-z]+|plan_cache_mode|jit|work_mem) ' "$root"/migrations/functions/*.sql)" ""

sql -f "$here/clock.psql" -f "$here/harness.psql" >/dev/null

# The same cases as in Tests/ProvidersTests/WebPushSubscriptionTests.swift.
subscriptions=$(cat "$root/Tests/webpush/subscriptions.json")

# A file's tests run in one transaction that is rolled back, so files do not see each other.
for file in "$here"/*.sql; do
  if { echo 'begin;'; cat "$file"; echo 'rollback;'; } | sql -v subscriptions="$subscriptions" >"$work/out" 2>"$work/err"; then :; else
    not_ok "$(basename "$file") runs to its end" "$(head -n 3 "$work/err" | tr '\n' ' ')"
  fi
  grep -E '^(ok|not ok) - ' "$work/out" >>"$results" || not_ok "$(basename "$file")" "it ran no test"
done

# Without JIT: compiling a statement takes seconds, and each of these runs for milliseconds.
equal "functions that show a call are not compiled" "$(sql -c "select string_agg(proname, ' ' order by proname)
  from pg_proc where pronamespace = 'push'::regnamespace and proname in ('timeline', 'own_calls') and (prorows = 1 or 'jit=off' = any (proconfig))")" \
  "own_calls timeline"

# --- One notification for each transaction ---
bells() { grep -c 'Asynchronous notification "push_outbox"' || true; }
equal "a transaction of several inserts rings once" "$(sql <<'SQL' | bells
listen push_outbox;
begin;
select push.enqueue_call('{"callId": "bell-1", "from": "x"}', '[{"userId": "u", "fcmToken": "bell-token-0123456789"}]');
select push.enqueue_call('{"callId": "bell-2", "from": "x"}', '[{"userId": "u", "fcmToken": "bell-token-0123456789"}]');
insert into push.outbox (payload, recipients)
  select jsonb_build_object('callId', 'bell-3-' || g, 'from', 'x'), '[{"userId": "u", "fcmToken": "bell-token-0123456789"}]'
  from generate_series(1, 50) g;
commit;
select 1;
SQL
)" 1
equal "a call without a delivery does not ring" "$(sql <<'SQL' | bells
listen push_outbox;
select push.enqueue_call('{"callId": "bell-4", "from": "x"}', '["nobody"]');
select 1;
SQL
)" 0
equal "a rolled back call does not ring" "$(sql <<'SQL' | bells
listen push_outbox;
begin;
select push.enqueue_call('{"callId": "bell-5", "from": "x"}', '[{"userId": "u", "fcmToken": "bell-token-0123456789"}]');
rollback;
select 1;
SQL
)" 0

equal "a gateway's session does not ring: a commit that notifies has a lock that all of them would wait for" "$(sql <<'SQL' | bells
listen push_outbox;
begin;
set local push.is_gateway = 'on';
select push.ring_doorbell();
commit;
select 1;
SQL
)" 0
equal "a backend's does" "$(sql <<'SQL' | bells
listen push_outbox;
select push.ring_doorbell();
select 1;
SQL
)" 1
equal "joins need READ COMMITTED" "$(sql -c "begin isolation level repeatable read" -c "select push.add_recipients('x', '[]')" 2>&1 | head -n 1)" \
  "ERROR:  push.add_recipients: needs the isolation level READ COMMITTED"
equal "a lane that is resumed rings, one that is paused does not" "$(sql <<'SQL' | bells
listen push_outbox;
select push.register_lane('bell', 'fcm');
select push.pause_lane('bell', 'fcm');
select 'paused';
update push.lanes set paused = false where app = 'bell';
select 1;
delete from push.lane where app = 'bell';
SQL
)" 1

# --- COPY ---
printf 'default\t{"callId": "copy-1", "from": "x"}\t[{"userId": "u", "fcmToken": "copy-token-0123456789"}]\n%.0s' 1 2 >"$work/twice"
sql -c "\\copy push.outbox (app, payload, recipients) from '$work/twice'"
sql -c "\\copy push.outbox (app, payload, recipients) from '$work/twice'"
equal "a call copied four times is one call and one delivery" \
  "$(sql -c "select count(*), count(d) from push.outbox o left join push.delivery d on d.outbox_id = o.id where call_id = 'copy-1'")" "1|1"
printf 'default\t{"callId": "copy-2", "from": "x"}\t[{"userId": "u", "voipPushToken": "my-secret-token"}]\n' >"$work/bad"
printf 'default\t{"callId": "copy-3", "from": 7}\t[{"userId": "u", "voipPushToken": "my-secret-token"}]\n' >"$work/worse"
sql -c "\\copy push.outbox (app, payload, recipients) from '$work/bad'" 2>"$work/err" || not_ok "COPY of a bad token" "it was refused"
equal "COPY passes over a bad token, and says nothing of it" "$(cat "$work/err")$(sql -c "select s.user_id, s.field, s.reason
  from push.outbox o cross join lateral push.skipped_recipients(o.id) s where o.call_id = 'copy-2'")" "u|recipients[0].voipPushToken|TokenMalformed"
sql -c "\\copy push.outbox (app, payload, recipients) from '$work/worse'" 2>"$work/err" && not_ok "COPY of a bad call" "it was accepted"
equal "COPY's error names the field and the call" "$(grep -c 'payload.from: must be a string (call copy-3)' "$work/err")" 1
equal "COPY's error prints no line of the data" "$(grep -c 'secret' "$work/err")" 0

# --- Several sessions ---
pids=
for session in 1 2 3 4; do
  i=0
  while [ $i -lt 100 ]; do
    i=$((i + 1))
    echo "select 'duplicate ' || duplicate from push.enqueue_call('{\"callId\": \"race-$i\", \"from\": \"x\"}', '[{\"userId\": \"u\", \"fcmToken\": \"race-token-0123456789\"}]', 'race');"
    echo "insert into push.outbox (app, payload, recipients) values ('race2', '{\"callId\": \"race-$i\", \"from\": \"x\"}', '[]') on conflict do nothing;"
  done | sql >"$work/race.$session" 2>&1 &
  pids="$pids $!"
done
for pid in $pids; do wait "$pid" || true; done
equal "four sessions enqueue the same 100 calls: 100 calls" "$(cat "$work"/race.* | grep -c 'duplicate false')" 100
equal "four sessions enqueue the same 100 calls: 300 duplicates, no error" "$(cat "$work"/race.* | grep -vc 'duplicate false')" 300
equal "four sessions made 100 deliveries" \
  "$(sql -c "select count(*) from push.delivery d join push.lane l on l.id = d.lane where l.app = 'race'")" 100

sql -c "insert into push.outbox (app, payload, recipients)
  select 'claim', jsonb_build_object('callId', 'claim-' || g, 'from', 'x'),
    (select jsonb_agg(jsonb_build_object('userId', 'u', 'fcmToken', 'claim-token-0123456789-' || k)) from generate_series(1, 3) k)
  from generate_series(1, 1000) g"
lane=$(sql -c "select id from push.lanes where app = 'claim'")
pids=
for session in 1 2 3 4; do
  gateway=$(sql -c "select push.register_gateway('session $session', 'test')")
  i=0
  while [ $i -lt 40 ]; do
    i=$((i + 1))
    echo "select outbox_id || '/' || n from push.claim($gateway, 1, array[$lane]::smallint[], array[25], array['-infinity']::timestamptz[]);"
  done | sql >"$work/claim.$session" 2>&1 &
  pids="$pids $!"
done
for pid in $pids; do wait "$pid" || true; done
equal "four gateways claim 3000 deliveries, each once" \
  "$(cat "$work"/claim.* | wc -l | tr -d ' ')/$(cat "$work"/claim.* | sort -u | wc -l | tr -d ' ')" "3000/3000"

# --- Two sessions with open transactions ---
mkfifo "$work/one.in" "$work/two.in" "$work/one.out" "$work/two.out"
PGAPPNAME=one psql -XAtq "$url" <"$work/one.in" >"$work/one.out" 2>&1 & one=$!
exec 3>"$work/one.in" 4<"$work/one.out"
PGAPPNAME=two psql -XAtq "$url" <"$work/two.in" >"$work/two.out" 2>&1 & two=$!
exec 5>"$work/two.in" 6<"$work/two.out"
# The output of a session until it has run all its statements, as one line.
read_all() { lines=; while read -r line && [ "$line" != "done" ]; do lines="$lines${lines:+ }$line"; done; echo "$lines"; }
one() { printf '%s\n\\echo done\n' "$1" >&3; read_all <&4; }
two() { two_starts "$1"; two_ends; }
two_starts() { printf '%s\n\\echo done\n' "$1" >&5; }
two_ends() { read_all <&6; }
# Waits until a query is true.
wait_until() { [ "$(sql -c "select test.until(\$query\$$2\$query\$)")" = t ] || not_ok "$1" "not within five minutes"; }
two_waits() {
  wait_until "session two waits for another" \
    "select cardinality(pg_blocking_pids(pid)) > 0 from pg_stat_activity where application_name = 'two'"
}
race_call() {
  sql -c "insert into push.outbox (app, payload, recipients) values ('end', '{\"callId\": \"$1\", \"from\": \"x\"}',
    '[{\"userId\": \"u\", \"fcmToken\": \"end-token-0123456789\"}]')"
}
# Prints each delivery that it takes: call/kind, and whether the call is over.
claim() { echo "select coalesce(o.call_id, 'deleted') || '/' || c.kind || case when bool_or(c.ended) over (partition by c.outbox_id) then '/over' else '' end
  from push.claim($gateway, 1, array[$lane]::smallint[], array[10], array['-infinity']::timestamptz[]) c left join push.outbox o on o.id = c.outbox_id;"; }
follow() { sql -c "select test.follow()" >"$work/out"; }
# What was put off is due at once.
due() { sql -c "update push.follow_ups set due_at = now()"; }
# CALL ATTEMPTS DELAY: parks what is claimed of a call.
park() { echo "select push.park($gateway, array_agg(d.outbox_id), array_agg(n), array_agg(lease), array_agg($2::int), array_agg($3::int), array_agg(null::text))
  from push.delivery d join push.outbox o on o.id = d.outbox_id where call_id = '$1' and d.state = 1;"; }
owed() { sql -c "select string_agg(kind || ':' || state, ' ' order by n) from push.deliveries where call_id = '$1'"; }
past() { sql -c "select string_agg(kind || ':' || outcome || ':' || reason, ' ' order by n) from push.delivery_history where call_id = '$1'"; }
# --- The same call copied by two sessions ---
for i in 1 2 3 4; do
  printf 'end\t{"callId": "pasted-%s", "from": "x"}\t[{"userId": "u", "fcmToken": "my-secret-token-0123456789"}]\n' $i >"$work/pasted.$i"
done
paste_call() { printf '%s\n' "\\copy push.outbox (app, payload, recipients) from '$work/pasted.$1'"; }
pasted() { sql -c "select count(distinct o.id) || ' ' || count(d) from push.outbox o left join push.delivery d on d.outbox_id = o.id where call_id = 'pasted-$1'"; }
one "begin; $(paste_call 1)" >"$work/out"
two_starts "$(paste_call 1)"
two_waits
one "commit;" >"$work/out"
equal "a call that another session is copying is passed over, and no line of the data is printed" "$(two_ends)/$(pasted 1)" "/1 1"
one "begin; $(paste_call 2)" >"$work/out"
two_starts "$(paste_call 2)"
two_waits
one "rollback;" >"$work/out"
equal "if the other is rolled back, it is enqueued" "$(two_ends)/$(pasted 2)" "/1 1"
i=2
for level in "repeatable read" serializable; do
  i=$((i + 1))
  two "begin isolation level $level; select count(*) from push.devices;" >"$work/out"
  one "$(paste_call $i)" >"$work/out"
  equal "$level: a call that another session has copied since is passed over, too" "$(two "$(paste_call $i)
    commit;")/$(pasted $i)" "/1 1"
done
two "begin isolation level repeatable read; select count(*) from push.devices;" >"$work/out"
race_call pasted-5
equal "push.enqueue_call cannot tell of such a call: the backend is to try again" "$(two "\\set VERBOSITY sqlstate
  select push.enqueue_call('{\"callId\": \"pasted-5\", \"from\": \"x\"}', '[]', 'end');
  rollback;")" "ERROR:  40001"
equal "then it is a duplicate" "$(two "select duplicate || ' ' || deliveries from push.enqueue_call('{\"callId\": \"pasted-5\", \"from\": \"x\"}', '[]', 'end');")" "true 1"
two "\\set VERBOSITY default" >"$work/out"
one "begin; delete from push.outbox where call_id = 'pasted-5';" >"$work/out"
two_starts "insert into push.outbox (app, payload, recipients) values ('end', '{\"callId\": \"pasted-5\", \"from\": \"again\"}', '[]') returning payload ->> 'from';"
two_waits
one "commit;" >"$work/out"
two_ends >"$work/out"
equal "a call that is being deleted is waited for, and its id is free afterwards" \
  "$(two "insert into push.outbox (app, payload, recipients) values ('end', '{\"callId\": \"pasted-5\", \"from\": \"again\"}', '[]') on conflict (call_id, app) do nothing; select count(*) from push.outbox where call_id = 'pasted-5';")" 1
# --- One APNs token, registered in capitals and in small letters by several sessions ---
token=$(printf 'ab%.0s' $(seq 32))
sql -c "select push.register_lane('letters', 'apns')" -c "select push.register_device('u', 'letters', 'apns', upper('$token'))" >"$work/out"
one "begin; select from push.devices where app = 'letters' for update;" >"$work/out"
two_starts "select push.register_device('u', 'letters', 'apns', '$token');"
two_waits
sql -c "insert into push.devices (user_id, app, provider, token) values ('u', 'letters', 'apns', '$token')"
one "commit;" >"$work/out"
equal "a registration that meets another one succeeds, and there is one device" \
  "$(two_ends)/$(sql -c "select string_agg(token, ' ') from push.devices where app = 'letters'")" "/$token"
for letters in "upper lower" "lower upper" "upper upper"; do
  sql -c "delete from push.devices where app = 'letters'"
  one "begin; select push.register_device('leaver', 'letters', 'apns', ${letters% *}('$token'));" >"$work/out"
  two_starts "select push.register_device('comer', 'letters', 'apns', ${letters#* }('$token'));"
  two_waits
  one "commit;" >"$work/out"
  equal "of two that register a new one ($letters) the second has it" \
    "$(two_ends)/$(sql -c "select string_agg(user_id || (token = ${letters#* }('$token')), ' ') from push.devices where app = 'letters'")" "/comertrue"
done

# --- Entries that a claim scans: all deliveries ever claimed, while a transaction holds back vacuum ---
sql -c "insert into push.outbox (app, payload, recipients)
  select 'walk', jsonb_build_object('callId', 'walk-' || g, 'from', 'x'), '[{\"userId\": \"u\", \"fcmToken\": \"walk-token-0123456789\"}]'
  from generate_series(1, 300) g"
lane=$(sql -c "select id from push.lanes where app = 'walk'")
gateway=$(sql -c "select push.register_gateway('walk', 'test')")
walk="select count(*) from push.claim($gateway, 1, array[$lane]::smallint[], array[1000], array['-infinity']::timestamptz[]);
  select current_setting('push.entries_scanned');"
one "begin isolation level repeatable read; select count(*) from push.outbox;" >"$work/out"
# Postgres may read an entry twice.
equal "a claim counts the entries it steps over: each it takes" "$(two "$walk" | sed 's/ 30[0-9]$/ 30x/')" "300 30x"
equal "while a transaction is open, the next steps over the dead" "$(two "$walk $walk" | sed "s/30[0-9]/30x/g")" "0 30x 0 30x"
one "commit;" >"$work/out"


# --- The end of a call against a gateway, in both orders ---
lane=$(sql -c "select push.register_lane('end', 'fcm')")
gateway=$(sql -c "select push.register_gateway('end', 'test')")
race_call end-1
follow
one "begin; $(claim)" >"$work/out"
equal "an end does not wait for a claim in flight" "$(two "select push.end_call('end-1', 'busy');")" t
equal "nor does what follows, which leaves the call" "$(two "select push.follow_up(p_within => '1 day');")/$(sql -c 'select count(*) from push.follow_ups')" "1/1"
one "commit;" >"$work/out"
due
follow
equal "until the claim is seen: the device is told" "$(owed end-1)" "invite:claimed cancel:ready"
sql -c "delete from push.outbox where call_id = 'end-1'"
follow

race_call end-2
one "begin; select push.end_call('end-2', 'busy');" >"$work/out"
equal "a claim does not wait for an end in progress" "$(two "$(claim)")" "end-2/0"
equal "nor does what follows, which is nothing yet" "$(two "select push.follow_up(p_within => '1 day');")/$(owed end-2)" "0/invite:claimed"
one "commit;" >"$work/out"
equal "the gateway is told afterwards" "$(two "select count(*) from push.ended_for(array(select outbox_id from push.deliveries where call_id = 'end-2'));")" 1
follow
equal "and the device" "$(owed end-2)" "invite:claimed cancel:ready"
sql -c "delete from push.outbox where call_id = 'end-2'"
follow

race_call end-3
one "begin; select push.end_call('end-3', 'busy'); rollback;" >"$work/out"
follow
equal "an end rolled back has not happened" "$(two "$(claim)")" "end-3/0"

for way in park release; do
  call=end-$way
  race_call $call
  one "$(claim)" >"$work/out"
  one "begin; select push.end_call('$call', 'busy');" >"$work/out"
  attempts=1 delay=0 state=waiting
  [ $way = park ] || attempts=null delay=null state=ready
  equal "$way during an end in progress does not wait for it" "$(two "$(park $call $attempts $delay)")/$(owed $call)" "1/invite:$state"
  one "commit;" >"$work/out"
  follow
  [ $way = park ] || equal "returned unsent, it is void afterwards" "$(owed $call)/$(past $call)" "/invite:void:CallEnded"
  [ $way = release ] || equal "parked, it is void, and the device is told" "$(owed $call)/$(past $call)" "cancel:ready/invite:void:CallEnded"

  call=$way-first
  race_call $call
  two "$(claim)" >"$work/out"
  one "begin; $(park $call $attempts $delay)" >"$work/out"
  equal "what follows an end does not wait for a $way in flight" "$(two "select push.end_call('$call', 'busy'); select push.follow_up(p_within => '1 day');")" "t 1"
  one "commit;" >"$work/out"
  equal "the invite is owed, and the device is told" "$(owed $call)" "invite:$state cancel:ready"
  equal "the next claim says that the call is over" "$(two "select push.promote();" | sed 's/./promoted/') $(two "$(claim)" | tr ' ' '\n' | grep "$call/0")" "promoted $call/0/over"
  sql -c "delete from push.outbox where call_id in ('$call', 'end-$way')"
  follow
done

race_call end-both
one "begin; select push.answer_call('end-both', 'u');" >"$work/out"
two_starts "select push.end_call('end-both');"
two_waits
one "commit;" >"$work/out"
equal "answer and end at once: one truth" "$(two_ends)/$(sql -c "select state from push.outbox where call_id = 'end-both'")" "f/answered"

# An end whose snapshot is older than all that the gateway did.
race_call end-old
two "begin isolation level repeatable read; select count(*) from push.outbox;" >"$work/out"
one "$(claim)" >"$work/out"
equal "an end in an older snapshot is no error" "$(two "select push.end_call('end-old', 'busy'); commit;")" t
follow
equal "and the device is told" "$(owed end-old)" "invite:claimed cancel:ready"
race_call end-older
two "begin isolation level serializable; select count(*) from push.outbox;" >"$work/out"
one "$(claim)" >"$work/out"
equal "nor is a deletion" "$(two "delete from push.outbox where call_id = 'end-older'; commit;")/$(follow; owed end-older)" /

# --- A decline against a gateway ---
sql -c "insert into push.outbox (app, payload, recipients) values ('end', '{\"callId\": \"declined\", \"from\": \"x\"}',
  '[{\"userId\": \"u\", \"fcmToken\": \"end-token-0123456789\"}, {\"userId\": \"v\", \"fcmToken\": \"end-token-9876543210\"}]')"
one "begin; select push.decline_call('declined', 'u');" >"$work/out"
equal "a claim does not wait for a decline in progress" "$(two "$(claim)" | tr ' ' '\n' | grep -c declined/0)" 2
one "commit;" >"$work/out"
equal "the gateway is told afterwards whose" \
  "$(two "select string_agg(user_id, ' ') from push.ended_for(array(select distinct outbox_id from push.deliveries where call_id = 'declined'));")" u
follow
equal "and that user's phone" "$(sql -c "select string_agg(user_id || ':' || kind, ' ' order by n) from push.deliveries where call_id = 'declined'")" \
  "u:invite v:invite u:cancel"
one "begin; select push.decline_call('declined', 'v');" >"$work/out"
two_starts "select push.answer_call('declined', 'u');"
two_waits
one "commit;" >"$work/out"
equal "the last decline and an answer at once: the call is answered, because its end follows" \
  "$(two_ends)/$(follow; sql -c "select state from push.outbox where call_id = 'declined'")" "t/answered"

# --- The deletion of a call against a gateway ---
race_call gone-1
one "begin; $(claim)" >"$work/out"
equal "a deletion does not wait for a running claim" "$(two "delete from push.outbox where call_id = 'gone-1' returning call_id;")" gone-1
equal "nor does what follows" "$(two "select push.follow_up(p_within => '1 day');")/$(sql -c 'select count(*) from push.follow_ups')" "1/1"
one "commit;" >"$work/out"
due
follow
equal "which deletes what it took afterwards" \
  "$(sql -c "select count(*) from push.delivery d where not exists (select from push.outbox o where o.id = d.outbox_id)")" 0

race_call gone-2
one "begin; delete from push.outbox where call_id = 'gone-2';" >"$work/out"
equal "a claim passes by a deletion in progress" "$(two "$(claim)")" "gone-2/0"
one "rollback;" >"$work/out"
follow
equal "a deletion rolled back has not happened" "$(owed gone-2)" "invite:claimed"

# --- The next channel: two gateways, two followers, and the end of a call ---
sql -c "insert into push.devices (user_id, app, provider, token, platform) values
  ('pair', 'end', 'apns', repeat('0', 60) || 'aaa1', 'ios'), ('pair', 'end', 'apns', repeat('0', 60) || 'aaa2', 'ios'),
  ('pair', 'end', 'fcm', 'pair-token-0123456789', 'ios')"
chance_call() {
  sql -c "insert into push.outbox (app, payload, recipients) values ('end', '{\"callId\": \"$1\", \"from\": \"x\"}', '[\"pair\"]')"
  one "select count(*) from push.claim($gateway, 1, array(select id from push.lane where app = 'end'), array[10, 10], array['-infinity', '-infinity']::timestamptz[]);" >"$work/out"
}
fail() {
  echo "select push.settle($gateway, array_agg(d.ctid), array_agg(d.outbox_id), array_agg(d.n), array_agg(d.lease), array_agg(1), array_agg(4::smallint),
    array_agg(410::smallint), array_agg('Unregistered'::text), array_agg(null::text), array_agg('$1'::text), array_agg(now()), array_agg(now()))
    from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = '$1' and d.n = any ('{$2}') and d.state = 1;"
}
chance_call pair-1
one "begin; $(fail pair-1 0)" >"$work/out"
equal "two gateways settle a user's last two tokens at once, and neither waits" "$(two "$(fail pair-1 1)")/$(owed pair-1)" "1/invite:claimed"
equal "the follower of one sees the other token owed: no next channel" "$(two "select push.follow_up(true, p_within => '1 day');")/$(owed pair-1)" "1/invite:claimed"
one "commit;" >"$work/out"
sql -c "insert into push.follow_ups (outbox_id, why, is_urgent) select id, 'failed', true from push.outbox where call_id = 'pair-1'"
one "begin; select push.follow_up(true, 1, '1 day');" >"$work/out"
equal "another follower of the call at the same time does not wait" "$(two "select push.follow_up(true, 1, '1 day');")/$(owed pair-1)" "1/"
one "commit;" >"$work/out"
due
follow
equal "when both have followed, there is one invite" "$(owed pair-1)/$(sql -c "select count(*) from push.follow_ups")" "invite:ready/0"

chance_call pair-2
one "begin; select push.end_call('pair-2', 'busy');" >"$work/out"
equal "next channels do not wait for an end in progress" "$(two "$(fail pair-2 0,1) select push.follow_up(true, p_within => '1 day');")/$(owed pair-2)" "2 1/"
equal "they are put off" "$(sql -c "select count(*) from push.follow_ups where due_at > noted_at + interval '90 ms'")" 1
one "commit;" >"$work/out"
due
follow
equal "and there are none if it has ended" "$(owed pair-2)/$(sql -c "select count(*) from push.follow_ups")" "/0"

chance_call pair-3
one "begin; select push.end_call('pair-3', 'busy');" >"$work/out"
two "$(fail pair-3 0,1) select push.follow_up(true, p_within => '1 day');" >"$work/out"
one "rollback;" >"$work/out"
due
follow
equal "if the end is rolled back, it is sent" "$(owed pair-3)" "invite:ready"

chance_call pair-4
two "$(fail pair-4 0,1)" >"$work/out"
one "begin; select push.follow_up(true, p_within => '1 day');" >"$work/out"
two_starts "select push.end_call('pair-4', 'busy');"
two_waits
one "commit;" >"$work/out"
equal "an end waits for a next channel in flight, which is void then" "$(two_ends)/$(follow; owed pair-4)/$(past pair-4)" \
  "t//invite:dead:Unregistered invite:dead:Unregistered invite:void:CallEnded"

# --- A device that is registered while its user is found to be unreached ---
sql -c "select push.register_device('renewed', 'end', 'fcm', 'renewed-token-0123456789-1')" >"$work/out"
sql -c "insert into push.outbox (app, payload, recipients) values ('end', '{\"callId\": \"renewed\", \"from\": \"x\"}', '[\"renewed\"]')"
one "$(claim) $(fail renewed 0)" >"$work/out"
one "begin; select push.register_device('renewed', 'end', 'fcm', 'renewed-token-0123456789-2');" >"$work/out"
follow
one "commit;" >"$work/out"
due
follow
equal "a registration that was not committed when its user was found to be unreached rings a second later" \
  "$(owed renewed)/$(past renewed)/$(sql -c "select count(*) from push.follow_ups")" "invite:ready/invite:dead:Unregistered/0"

# --- A hold of invalidation against a running invalidation, in both orders ---
dead() { echo "select push.invalidate_tokens(array[$lane]::smallint[], array['$1'], array[null]::timestamptz[], array['UNREGISTERED']);"; }
quarantined() { sql -c "select string_agg(right(token, 6), ' ' order by token) from push.quarantined_tokens"; }
one "begin; $(dead hold-token-0123456789-first)" >"$work/out"
two_starts "select push.hold_invalidation($lane::smallint, '5 minutes', 'test');"
two_waits
one "commit;" >"$work/out"
equal "a hold waits for an invalidation in flight, and takes it back" "$(two_ends)/$(quarantined)" "1/-first"
sql -c "select from push.resume_invalidation('end', 'fcm')"
one "begin; select push.hold_invalidation($lane::smallint, '5 minutes', 'test');" >"$work/out"
two_starts "$(dead hold-token-0123456789-second)"
two_waits
one "commit;" >"$work/out"
equal "an invalidation waits for a hold in progress, and heeds it" "$(two_ends)/$(quarantined)" "0/second"
sql -c "select from push.resume_invalidation('end', 'fcm')"

# --- Receipts: two replicas ---
sql -c "insert into push.receipt_batch (app, ticket, outbox_id, n, user_id, token, sent_at, due_at, give_up_at)
  select 'end', array['ticket-' || g], array[g], '{0}', '{u}', '{ExponentPushToken[end]}', now(), now(), now() + interval '1 day' from generate_series(1, 3) g"
equal "a replica claims receipts" "$(one "begin; select count(*) from push.claim_receipts('end', 2, 600000);")" 2
equal "another passes those by" "$(two "select count(*) from push.claim_receipts('end', 9, 600000);")" 1
one "rollback;" >"$work/out"
equal "unfinished work of a replica is due again" "$(two "select count(*) from push.claim_receipts('end', 9, 600000);")" 2
# --- One call of several is locked: an operator requeues it, and leaves the transaction open ---
sql -c "select push.register_app('turns', 600, 1)" -c "select push.register_lane('turns', 'apns'), push.register_lane('turns', 'fcm')" >"$work/out"
sql -c "insert into push.outbox (app, payload, recipients) select 'turns', jsonb_build_object('callId', 'turn-' || g, 'from', 'x'),
  jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', repeat(g::text, 64), 'fcmToken', 'turn-token-0123456789-' || g))
  from generate_series(1, 3) g"
tried() { sql -c "select string_agg(d.call_id, ' ' order by d.call_id) from push.deliveries d where d.app = 'turns' and d.provider = 'fcm'"; }
one "begin; select requeued from push.requeue('turn-2', 'turns');" >"$work/out"
due
equal "the others are escalated" "$(two "select push.follow_up(true, p_within => '1 day');")/$(tried)" "3/turn-1 turn-3"
one "commit;" >"$work/out"
due
equal "and it later" "$(two "select push.follow_up(true, p_within => '1 day');")/$(tried)" "1/turn-1 turn-2 turn-3"
sql -c "select push.register_app('turns', 600, 60)" >"$work/out"  # a slow machine escalates nothing by itself
sql -c "delete from push.outbox where app = 'turns'" -c "insert into push.outbox (app, payload, recipients)
  select 'turns', jsonb_build_object('callId', 'bypassed-' || g, 'from', 'x'),
  jsonb_build_array(jsonb_build_object('userId', 'u', 'voipPushToken', repeat(g::text, 64), 'fcmToken', 'turn-token-0123456789-' || g))
  from generate_series(1, 3) g"
follow
sql -c "update push.delivery d set state = 2, ready_lane = null, last_reason = 'Unavailable', due_at = now() + interval '5 s',
  created_at = now() - interval '3 s' from push.outbox o where o.id = d.outbox_id and o.app = 'turns'" -c "delete from push.follow_ups"
one "begin; select from push.outbox where call_id = 'bypassed-2' for update;" >"$work/out"
equal "a channel that sends nothing is bypassed for the others" "$(two "select push.bypass(); select push.follow_up(true, p_within => '1 day');")/$(tried)" "3 3/bypassed-1 bypassed-3"
one "commit;" >"$work/out"
due
equal "and for it later" "$(two "select push.bypass(); select push.follow_up(true, p_within => '1 day');")/$(tried)" "0 1/bypassed-1 bypassed-2 bypassed-3"
sql -c "delete from push.outbox where app = 'turns'"
follow
. "$here/claims.sh"
exec 3>&- 5>&-
wait $one $two || true
exec 4<&- 6<&-

notices() { grep -o 'Asynchronous notification "push_control" with payload "[^"]*"' | sed 's/.*payload "//; s/"//; s/[0-9][0-9]*/N/' | sort | uniq -c | tr -s ' \n' ' '; }
for k in 1 3 101; do
  sql -c "insert into push.outbox (app, payload, recipients) select 'end', jsonb_build_object('callId', 'notice-$k-' || g, 'from', 'x'),
    '[{\"userId\": \"u\", \"fcmToken\": \"end-token-0123456789\"}]' from generate_series(1, $k) g"
  sql -c "select count(*) from push.claim($gateway, 1, array[$lane]::smallint[], array[1000], array['-infinity']::timestamptz[])" >"$work/out"
  want=" $k void N "; [ $k -le 100 ] || want=" 1 void * "
  equal "$k claimed calls end: gateways are told" "$(sql <<SQL | notices
listen push_control;
update push.outbox set state = 'ended' where call_id like 'notice-$k-%';
select 1;
SQL
)" "$want"
done
sql -c "insert into push.outbox (app, payload, recipients) select 'end', jsonb_build_object('callId', 'erased-' || g, 'from', 'x'),
  '[{\"userId\": \"u\", \"fcmToken\": \"end-token-0123456789\"}]' from generate_series(1, 3) g"
sql -c "select count(*) from push.claim($gateway, 1, array[$lane]::smallint[], array[1000], array['-infinity']::timestamptz[])" >"$work/out"
equal "claimed calls are deleted: gateways are told of those they hold" "$(sql <<'SQL' | notices
listen push_control;
delete from push.outbox where call_id like 'erased-%';
select 1;
SQL
)" " 3 void N "
equal "new dead tokens are told once a call" "$(sql <<SQL | grep -c 'push_token_invalidations'
listen push_token_invalidations;
select push.invalidate_tokens(array[$lane, $lane]::smallint[], array['told-token-0123456789-1', 'told-token-0123456789-2'], array[null, null]::timestamptz[], array['UNREGISTERED', 'UNREGISTERED']);
select push.invalidate_tokens(array[$lane]::smallint[], array['told-token-0123456789-1'], array[null]::timestamptz[], array['UNREGISTERED']);
select 1;
SQL
)" 1

equal "gateways are told of a resumed invalidation" "$(sql <<SQL | grep -c 'push_control" with payload "resume '"$lane"'"'
listen push_control;
select from push.resume_invalidation('end', 'fcm');
select 1;
SQL
)" 1

# --- The plan of the statement inside push.claim, as it really runs ---
if sql -c "load 'auto_explain'" 2>/dev/null; then
  sql >"$work/out" 2>"$work/plan" <<SQL
set client_min_messages = log; load 'auto_explain';
set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set auto_explain.log_analyze = on;
select count(*) from push.claim($gateway, 1, array[$lane]::smallint[], array[10], array['-infinity']::timestamptz[]);
SQL
  equal "the claim walks the partial index, for rings and for the rest" \
    "$(grep -Ec 'Index (Only )?Scan using delivery_ready on delivery' "$work/plan")" 2
  equal "the deadline is part of both index conditions" \
    "$(grep -Ec 'Index Cond: \(\(ready_lane = .*\) AND \(deadline_at >=? ' "$work/plan")" 2
  # Except, in PostgreSQL 16 and later, the numbers of the lanes that it took from.
  equal "the claim sorts nothing" "$(grep 'Sort Key' "$work/plan" | grep -vc 'Sort Key: u.lane$')" 0
  # Except push.origin, which has one row.
  equal "the claim scans no table" "$(grep 'Seq Scan' "$work/plan" | grep -vc 'on origin ')" 0

  # Tiny tables, freshly analyzed: without pinned plans the session would keep scanning them as they grow.
  sql -c "truncate push.outbox, push.delivery" -c "insert into push.devices (user_id, provider, token)
    values ('planned', 'fcm', 'plan-token-0123456789')" -c "analyze"
  sql >"$work/out" 2>"$work/plan" <<'SQL'
set client_min_messages = log; load 'auto_explain';
set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set auto_explain.log_analyze = on;
select push.enqueue_call('{"callId": "plan", "from": "x"}', '["planned", {"userId": "u", "fcmToken": "plan-token-9876543210"}]');
SQL
  equal "enqueueing scans no table" "$(grep -c 'Seq Scan' "$work/plan")" 0
  # The number of places depends on the earlier size of the tables.
  equal "enqueueing finds a user's devices by index" "$(grep -c 'using devices_of_user' "$work/plan" | sed 's/^[1-9][0-9]*/yes/')" yes
  equal "enqueueing finds dead tokens by index" "$(grep -c 'using token_invalidations_lookup' "$work/plan" | sed 's/^[1-9][0-9]*/yes/')" yes

  sql >"$work/out" 2>"$work/plan" <<'SQL'
set client_min_messages = log; load 'auto_explain';
set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set auto_explain.log_analyze = on;
select count(*) from push.enqueue_batch(array(
  select jsonb_build_object('payload', jsonb_build_object('callId', 'batched-' || g, 'from', 'x'), 'recipients', '[]'::jsonb)
  from generate_series(1, 200) g));
SQL
  # Rows that a node returned or removed, times its loops: 200 for each pass over the batch, 40,000 if each call looks at all of them.
  equal "no call of a batch looks at all of the batch" "$(awk '
    match($0, /rows=[0-9.]+ loops=[0-9]+\)/) { split(substr($0, RSTART), f, /[=) ]/); loops = f[4]; if (f[2] * loops > most) most = f[2] * loops }
    /Rows Removed by/ { if ($NF * loops > most) most = $NF * loops }
    END { if (most == 200) print "one pass at a time"; else print most " rows" }' "$work/plan")" "one pass at a time"

  sql >"$work/out" 2>"$work/plan" <<'SQL'
set client_min_messages = log; load 'auto_explain';
set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set auto_explain.log_analyze = on;
select push.end_call('plan');
select push.miss();
select push.follow_up(p_within => '1 day');
SQL
  equal "the end of a call scans no table" "$(grep 'Seq Scan' "$work/plan" | grep -vc 'on origin ')" 0
  equal "it looks up the call's deliveries, each time" "$(grep 'using delivery_pkey' "$work/plan" | grep -vc 'never executed')" 5
  # There are few lanes and apps, so they may be scanned.
  equal "it walks no index as a whole" "$(grep -A1 -E 'Index (Only )?Scan using' "$work/plan" | grep -v '^--' \
    | awk '/Scan using/ { if (open) whole++; open = !/lane|apps/ } /Index Cond/ { open = 0 } END { print whole + open }')" 0
  equal "late calls are found by the index on ringing ones" "$(grep -c 'using outbox_ringing' "$work/plan" | sed 's/^[1-9][0-9]*/yes/')" yes

  sql >"$work/out" 2>"$work/plan" <<'SQL'
set client_min_messages = log; load 'auto_explain';
set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set auto_explain.log_analyze = on;
select count(*) from push.observe();
select count(*) from push.summary;
select count(claimed) from push.lanes;
select count(claimed) from push.replicas;
SQL
  equal "queries for metrics and operators count no deliveries one by one" "$(grep -c 'Seq Scan on delivery' "$work/plan")" 0
  equal "but walks an index as far as a limit" "$(grep -A1 'Limit' "$work/plan" | grep -c 'Index Scan using delivery_ready' | sed 's/^[1-9][0-9]*/yes/')" yes

  # Tokens, also by texts with other letters.
  sql >"$work/out" 2>"$work/tokens" <<'SQL'
set client_min_messages = log; load 'auto_explain';
set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set auto_explain.log_analyze = on;
select push.register_device('planned-3', 'default', 'apns', repeat('0', 60) || 'ABCF');
select push.register_device('planned-3', 'default', 'apns', repeat('0', 60) || 'abcf');
select push.enable_device('default', 'apns', repeat('0', 60) || 'ABCF', true);
select push.invalidate_tokens(array[l.id], array[repeat('0', 60) || 'ABCF'], array[null]::timestamptz[], array['x'])
  from push.lane l where l.app = 'default' order by l.provider limit 1;
select push.drop_device('default', 'apns', repeat('0', 60) || 'ABCF');
select count(*) from push.dead_tokens();
select count(*) from push.dead_tokens(apps => '{default}');
SQL
  equal "tokens are looked up without a scan" "$(grep -cE 'Seq Scan on (devices|token_invalidations)|Filter: .*sha256' "$work/tokens")" 0
  equal "a backend's dead tokens are walked in the order of their times, those of an app by its own index" \
    "$(grep -A1 -E 'Index Scan using token_invalidations_(feed|of_app)' "$work/tokens" | grep -c 'Index Cond: (\(((app ||.*AND (\)*invalidated_at > ')" 2
  equal "by the indexes on their digests" "$(grep -c 'Index Cond: .*sha256.* = ANY' "$work/tokens" | sed 's/^[1-9][0-9]*/yes/')" yes

  # A fallback, also planned with statistics of tiny tables.
  sql -c "truncate push.outbox, push.delivery" -c "insert into push.devices (user_id, provider, token, platform) values
    ('planned-2', 'apns', repeat('0', 60) || 'abcd', 'ios'), ('planned-2', 'expo', 'ExponentPushToken[plan]', 'ios')" -c "analyze"
  sql -c "select push.register_lane('default', 'expo')" -c "select push.enqueue_call('{\"callId\": \"plan-2\", \"from\": \"x\"}',
    jsonb_build_array('planned-2', jsonb_build_object('userId', 'u', 'voipPushToken', repeat('0', 60) || 'abce', 'fcmToken', 'plan-token-9876543210')))" >"$work/out"
  sql -c "select count(*) from push.claim($gateway, 1, array(select id from push.lane where app = 'default'), array[9, 9, 9], array['-infinity', '-infinity', '-infinity']::timestamptz[])" >"$work/out"
  sql -c "$(fail plan-2 0,1)" >"$work/out"
  sql >"$work/out" 2>"$work/chance" <<'SQL'
set client_min_messages = log; load 'auto_explain';
set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on; set auto_explain.log_analyze = on;
select push.follow_up(true, p_within => '1 day');
SQL
  equal "a fallback was made for each" "$(owed plan-2)" "invite:ready invite:ready"
  equal "it scans no table" "$(grep 'Seq Scan' "$work/chance" | grep -vc 'on origin ')" 0
  equal "it finds devices by user, dead tokens by themselves" \
    "$(grep -c 'using devices_of_user' "$work/chance" | sed 's/^[1-9][0-9]*/yes/')/$(grep -c 'using token_invalidations_lookup' "$work/chance" | sed 's/^[1-9][0-9]*/yes/')" yes/yes
  equal "it walks no index as a whole" "$(grep -A1 -E 'Index (Only )?Scan using' "$work/chance" | grep -v '^--' \
    | awk '/Scan using/ { if (open) whole++; open = !/lane|apps/ } /Index Cond/ { open = 0 } END { print whole + open }')" 0
else
  echo "skipped: the plans of queries, because this server has no auto_explain"
fi

cat "$results"
passed=$(grep -c '^ok - ' "$results" || true)
failed=$(grep -c '^not ok - ' "$results" || true)
[ "$failed" -eq 0 ] || { echo "Failed:"; grep '^not ok - ' "$results"; }
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
