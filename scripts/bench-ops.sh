#!/bin/sh
# Times every view and function for operators on a full database, and the cost of a claim on it.
#
#   scripts/bench-ops.sh [--rows N] [--pending N] [--dir DIR]
#
# Creates a cluster in DIR (.local/bench-ops, removed at the end), fills push.history with N rows (20000000) over two weeks,
# a fortieth of them in the last hour, and push.delivery with N deliveries (500000), then runs each query five times. Fails
# if a query took more than a second, if the plan of the claim is not the one without history, or if a claim or a settlement
# takes more than three times as long as without history. Needs about 11 GB of disk and ten minutes.
set -eu
cd "$(dirname "$0")/.."

fail() { echo "bench-ops.sh: $*" >&2; exit 1; }
rows=20000000 pending=500000 dir=.local/bench-ops
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || fail "usage: scripts/bench-ops.sh [--rows N] [--pending N] [--dir DIR]"
  case $1 in
    --rows) rows=$2 ;;
    --pending) pending=$2 ;;
    --dir) dir=$2 ;;
    *) fail "unknown option $1" ;;
  esac
  shift 2
done
for number in "$rows" "$pending"; do
  case $number in *[!0-9]* | "") fail "--rows and --pending are numbers" ;; esac
done
{ [ "$rows" -ge 3000 ] && [ "$pending" -ge 3000 ]; } || fail "--rows and --pending are 3000 at least"
[ ! -e "$dir" ] || [ -e "$dir/.bench-ops" ] || fail "$dir exists, and is not of an earlier run: choose another"
need=$((rows * 550 / 1000000 + 3000))
mkdir -p "$dir"
free=$(df -Pm "$dir" | awk 'NR == 2 {print $4}')
[ "$free" -gt $need ] || fail "$dir has $free MB free, about $need MB are needed"

work=$(mktemp -d)
stop() {
  scripts/postgres.sh stop "$dir" >/dev/null 2>&1 || true
  rm -rf "$work" "$dir"
}
scripts/postgres.sh stop "$dir" >/dev/null 2>&1 || true
rm -rf "$dir"
mkdir -p "$dir"
: >"$dir/.bench-ops"
trap stop EXIT
trap 'exit 130' INT TERM

url=$(scripts/postgres.sh start "$dir")
sql() { psql -XAtq -v ON_ERROR_STOP=1 "$url" "$@"; }
say() { echo "bench-ops: $*" >&2; }
# Logging the load would need as much disk space as the load itself.
sql -c "alter system set max_wal_size = '1GB'" -c "alter system set autovacuum = off" -c "select pg_reload_conf()" >"$work/out"
scripts/apply-schema.sh "$url"

# Run before each measurement of the hot path, so that the same pages are in memory, and the same ones not yet in the log.
enqueue() {
  say "enqueueing $pending deliveries"
  sql -v pending=$((pending + 6000)) -v prefix="$1" -f scripts/bench-ops-pending.sql
  sql -c "vacuum analyze push.outbox" -c "vacuum analyze push.delivery" -c "checkpoint" -c "select count(token) from push.delivery" \
    -c "select count(payload) from push.outbox where id >= (select min(outbox_id) from push.delivery)" >"$work/out"
}

# --- The hot path without history: its cost, and the plan of the claim ---
# 60 batches of 100, claimed and settled in one session; the medians in microseconds.
hot_path() {
  sql -c "select push.register_gateway('bench', 'bench')" >"$work/gateway"
  sql >"$work/out" 2>"$work/$1" <<SQL
set synchronous_commit = off;
create temp table cost (claim double precision, settle double precision);
do \$\$
declare
  v_gateway int := $(cat "$work/gateway");
  v_lanes smallint[] := array(select l.id from push.lane l order by l.id);
  v_times timestamptz[];
  v_batch record;
begin
  for i in 1 .. 60 loop
    v_times[1] := clock_timestamp();
    select array_agg(c.place) as place, array_agg(c.outbox_id) as outbox_id, array_agg(c.n) as n, array_agg(i) as lease, array_agg(c.call_id) as call_id,
        array_agg(1) as one, array_agg(0::smallint) as zero, array_agg(null::text) as nothing, array_agg(now()) as now
      into v_batch
      from push.claim(v_gateway, i, v_lanes[1 + i % 24 : 1 + i % 24], '{100}', '{-infinity}') c;
    v_times[2] := clock_timestamp();
    perform push.settle(v_gateway, v_batch.place, v_batch.outbox_id, v_batch.n, v_batch.lease, v_batch.one, v_batch.zero, v_batch.zero,
      v_batch.nothing, v_batch.nothing, v_batch.call_id, v_batch.now, v_batch.now);
    v_times[3] := clock_timestamp();
    assert cardinality(v_batch.n) = 100, 'a claim found fewer than it asked for';
    -- The first ones warm up.
    if i > 12 then
      insert into cost select extract(epoch from v_times[2] - v_times[1]), extract(epoch from v_times[3] - v_times[2]);
    end if;
  end loop;
  raise notice 'cost %', (select format('%s %s', round(1e6 * percentile_cont(0.5) within group (order by claim)),
    round(1e6 * percentile_cont(0.5) within group (order by settle))) from cost);
end
\$\$;
set client_min_messages = log; load 'auto_explain';
set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on;
select count(*) from push.claim($(cat "$work/gateway"), 61, '{1}', '{1}', '{-infinity}');
SQL
  sql -c "select push.retire_gateway($(cat "$work/gateway"))" >"$work/out"
  # The plan without its costs.
  sed -n '/array_agg(pick.tid)/,$ s/ *(cost=[^)]*)//p; /Index Cond\|Filter/p' "$work/$1" | grep -v 'Query Text' >"$work/$1.plan"
  sed -n 's/.*cost //p' "$work/$1" | head -n 1 >"$work/$1.cost"
}
sql -c "select push.register_lane('app-' || a, p), push.register_app('app-' || a, 60)
  from generate_series(0, 7) a, unnest('{apns,fcm,expo}'::text[]) p" >"$work/out"
enqueue small-
hot_path small
sql -c "truncate push.outbox, push.delivery, push.history"

# --- The load ---
say "writing $rows rows of history"
sql -v rows="$rows" -f scripts/bench-ops.sql >"$work/out"
say "vacuum"
sql -c "vacuum (analyze, parallel 0)"
enqueue pending-
sql -c "alter system reset autovacuum" -c "select pg_reload_conf()" >"$work/out"
hot_path large

# Replicas that report, deliveries that they hold, and calls with a failed invite, for push.requeue.
gateway=$(sql -c "select push.register_gateway('replica-1', 'bench')")
sql >"$work/out" <<SQL
select push.register_gateway('replica-' || g, 'bench') from generate_series(2, 3) g;
select push.report_lanes(g.id, array_agg(l.id), array_agg(100), array_agg(1000), array_agg(50), array_agg('closed'::text), array_agg(0), array_agg(900))
  from push.gateways g, push.lane l where g.alive group by g.id;
select count(*) from push.claim($gateway, 1, array(select id from push.lane), array_fill(200, array[24]), array_fill('-infinity'::timestamptz, array[24]));
update push.delivery d set state = 1, owner = $gateway, lease = 1 from push.outbox o
  where o.call_id = any (array['pending-11', 'pending-21', 'pending-31', 'pending-41', 'pending-51']) and d.outbox_id = o.id and d.n = 2;
select push.settle($gateway, array_agg(d.ctid), array_agg(d.outbox_id), array_agg(d.n), array_agg(d.lease), array_agg(1), array_agg(4::smallint), array_agg(400::smallint),
  array_agg('Failed'::text), array_agg(null::text), array_agg(o.call_id), array_agg(now()), array_agg(now()))
  from push.delivery d join push.outbox o on o.id = d.outbox_id
  where o.call_id = any (array['pending-11', 'pending-21', 'pending-31', 'pending-41', 'pending-51']) and d.n = 2;
SQL

# --- The questions ---
# :k is the run, 1 to 5; the calls pending-11, 21, 31 … ring.
cat >"$work/questions" <<'QUESTIONS'
push.summary|select * from push.summary
push.lanes|select * from push.lanes
push.stuck, all of it|select * from push.stuck
push.stuck, counted|select why, count(*) from push.stuck group by why
push.failures|select * from push.failures
push.replicas|select * from push.replicas
push.health|select * from push.health
push.minutes, half an hour|select * from push.minutes(now() - interval '30 minutes')
push.minutes, five minutes|select * from push.minutes(now() - interval '5 minutes')
push.overview|select push.overview()
push.oldest_ringing()|select push.oldest_ringing()
push.timeline(), a call of last week|select * from push.timeline(md5((1000 + :k)::text)::uuid::text)
push.timeline(), a call that rings|select * from push.timeline('pending-' || :k || '1')
push.call(), a call of last week|select push.call(md5((2000 + :k)::text)::uuid::text)
push.call(), a call that rings|select push.call('pending-' || :k || '1')
push.deliveries of a call|select * from push.deliveries where call_id = 'pending-' || :k || '1'
push.deliveries, the next 50 to expire|select * from push.deliveries order by deadline_at limit 50
push.delivery_history of a call|select * from push.delivery_history where call_id = md5((3000 + :k)::text)::uuid::text
push.delivery_history, the last minute|select * from push.delivery_history where finished_at > now() - interval '1 minute'
push.delivery_history, outcomes of the last hour|select app, provider, outcome, count(*) from push.delivery_history where finished_at > now() - interval '1 hour' group by 1, 2, 3
push.registered_devices of a user|select * from push.registered_devices where user_id = 'user-7' and app = 'app-7'
push.dead_devices, the last hour|select * from push.dead_devices where invalidated_at > now() - interval '1 hour'
push.quarantined_devices|select * from push.quarantined_devices
push.keys|select * from push.keys
push.requeue()|select * from push.requeue('pending-' || :k || '1')
push.pause_lane()|select * from push.pause_lane('app-' || :k, 'fcm', 'bench')
push.resume_lane()|select * from push.resume_lane('app-' || :k, 'fcm')
push.void_call()|select * from push.void_call('pending-' || :k + 5 || '1')
push.audit, the last 50|select * from push.audit order by at desc limit 50
QUESTIONS

say "asking"
while IFS='|' read -r name question; do
  {
    printf '\\timing on\n\\o /dev/null\n'
    for k in 1 2 3 4 5; do printf '\\set k %s\n%s;\n' $k "$question"; done
  } | sql >"$work/times" || fail "$name failed"
  sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' "$work/times" | sort -n | awk -v name="$name" \
    '{ t[NR] = $1 } END { if (NR != 5) exit 1; printf "%s|%.1f|%.1f\n", name, t[3], t[5] }' >>"$work/answers" || fail "$name was not timed"
done <"$work/questions"

sql -c "select format('%s rows of history in %s, %s calls in %s, %s deliveries owed in %s; the database is %s',
  (select sum(reltuples)::bigint from pg_class where oid in (select inhrelid from pg_inherits where inhparent = 'push.history'::regclass)),
  (select pg_size_pretty(sum(pg_total_relation_size(inhrelid))) from pg_inherits where inhparent = 'push.history'::regclass),
  (select reltuples::bigint from pg_class where oid = 'push.outbox'::regclass), pg_size_pretty(pg_total_relation_size('push.outbox')),
  (select count(*) from push.delivery), pg_size_pretty(pg_total_relation_size('push.delivery')), pg_size_pretty(pg_database_size(current_database())))"
echo
awk -F'|' 'BEGIN { printf "%-50s %10s %10s\n", "", "median ms", "worst ms" }
  { printf "%-50s %10.1f %10.1f%s\n", $1, $2, $3, ($3 > 1000 ? "  TOO SLOW" : ""); if ($3 > 1000) slow = 1 }
  END { exit slow }' "$work/answers" && state=0 || state=1
echo
paste -d' ' "$work/small.cost" "$work/large.cost" | awk '{
  printf "%-50s %10s %10s %8s\n", "100 deliveries, median", "empty us", "full us", "ratio"
  printf "%-50s %10d %10d %8.2f\n", "push.claim()", $1, $3, $3 / $1
  printf "%-50s %10d %10d %8.2f\n", "push.settle()", $2, $4, $4 / $2
  exit $3 > 3 * $1 || $4 > 3 * $2 }' || { state=1; echo "bench-ops.sh: the cost of the hot path grows with the amount of data" >&2; }
if [ -s "$work/small.plan" ] && diff "$work/small.plan" "$work/large.plan" >&2; then
  echo "The claim's plan is the same."
else
  state=1; echo "bench-ops.sh: the claim's plan has changed" >&2
fi
exit "$state"
