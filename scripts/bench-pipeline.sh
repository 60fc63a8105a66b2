#!/bin/sh
# The pipeline benchmark: deliveries committed by one COPY → all settled, gateway, Postgres and simulators on this machine.
#
#   scripts/bench-pipeline.sh [CALLS] [DIR]     3 devices a call; default 33334 calls in .local/bench
#
# Prints deliveries/s and the CPU seconds of the gateway, Postgres and the simulators, counted from the commit to the last
# settlement. CPU seconds are read from /proc, those of Postgres as the sum over its processes.
set -eu
cd "$(dirname "$0")/.."
calls=${1:-33334}
dir=${2:-.local/bench}
binary=${PUSH_GATEWAY:-$(swift build -c release --product push-gateway --show-bin-path)/push-gateway}
[ -x "$binary" ] || { echo "bench: build first: make build" >&2; exit 1; }
mkdir -p "$dir"

gateway=; simulators=
stop() {
  for pid in $gateway $simulators; do kill "$pid" 2>/dev/null || true; done
  for pid in $gateway $simulators; do wait "$pid" 2>/dev/null || true; done
  scripts/postgres.sh stop "$dir/postgres" >/dev/null 2>&1 || true
}
trap stop EXIT
trap 'exit 130' INT TERM

server=$(scripts/postgres.sh start "$dir/postgres")
psql -qX "$server" -c 'drop database if exists bench with (force)' -c 'create database bench'
DATABASE_URL=$(echo "$server" | sed 's,/[^/]*$,/bench,'); export DATABASE_URL
"$binary" migrate >/dev/null

"$binary" simulate --directory "$dir/simulators" --log "$dir/pushes.log" >"$dir/simulators.out" &
simulators=$!
while ! grep -q '"ready":true' "$dir/simulators.out"; do kill -0 $simulators; sleep 0.05; done
rm -f "$dir/pushes.log"; : >"$dir/pushes.log"
# The providers' own rate limits would be what is measured.
PUSH_GATEWAY_HTTP_LISTEN=127.0.0.1:0 PUSH_GATEWAY_LOG_LEVEL=warning \
  PUSH_GATEWAY_APPS_PORTEIRO_FCM_RATE_PER_SECOND=1000000 PUSH_GATEWAY_APPS_PORTEIRO_EXPO_RATE_PER_SECOND=1000000 \
  "$binary" serve --config "$dir/simulators/gateway.yaml" 2>"$dir/gateway.err" &
gateway=$!
sql() { psql -qXAt "$DATABASE_URL" -c "$1"; }
until [ "$(sql 'select count(*) from push.gateways where alive')" = 1 ]; do kill -0 $gateway; sleep 0.05; done

echo "bench: making $calls calls with 3 devices" >&2
awk -v calls="$calls" 'BEGIN {
  for (i = 1; i <= calls; i++) {
    printf "porteiro\t{\"callId\": \"bench-%d\", \"from\": \"5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d\", \"fromName\": \"Portaria\", ", i
    printf "\"apartmentNumber\": \"%d\", \"buildingName\": \"Torre Norte\", \"channelName\": \"call-%d\", ", i % 500, i
    printf "\"metadata\": {\"schemaVersion\": 1, \"clientVersion\": \"1.4.2\"}}\t"
    printf "[{\"userId\": \"ios-%d\", \"voipPushToken\": \"%064x\", \"platform\": \"ios\"}, ", i, i
    printf "{\"userId\": \"android-%d\", \"fcmToken\": \"bench%032d:APA91bBench\", \"platform\": \"android\"}, ", i, i
    printf "{\"userId\": \"expo-%d\", \"pushToken\": \"ExponentPushToken[%022d]\", \"platform\": \"android\"}]\t600\n", i, i
  }
}' >"$dir/calls.tsv"

# Seconds of CPU used by a process, or by all children of the postmaster that are alive and those it has waited for.
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"; }
postgres_ticks() {
  postmaster=$(sed -n 1p "$dir/postgres/data/postmaster.pid")
  sum=$(awk '{ sub(/.*\) /, ""); print $12 + $13 + $14 + $15 }' "/proc/$postmaster/stat")
  for pid in $(pgrep -P "$postmaster"); do sum=$((sum + $(ticks "$pid" 2>/dev/null || echo 0))); done
  echo "$sum"
}
milliseconds() { date +%s%3N; }

start=$(milliseconds)
psql -qX "$DATABASE_URL" -c '\copy push.outbox (app, payload, recipients, ring_seconds) from '"$dir/calls.tsv"
committed=$(milliseconds)
g0=$(ticks $gateway); p0=$(postgres_ticks); s0=$(ticks $simulators)
while [ "$(sql 'select exists (select from push.delivery)')" = t ]; do sleep 0.05; kill -0 $gateway; done
settled=$(milliseconds)
g1=$(ticks $gateway); p1=$(postgres_ticks); s1=$(ticks $simulators)

sql "select format('%s %s', outcome, count(*)) from push.delivery_history group by outcome order by outcome"
deliveries=$(sql 'select count(*) from push.history')
hertz=$(getconf CLK_TCK)
awk -v n="$deliveries" -v copy=$((committed - start)) -v drain=$((settled - committed)) \
  -v g=$((g1 - g0)) -v p=$((p1 - p0)) -v s=$((s1 - s0)) -v hz="$hertz" 'BEGIN {
  printf "COPY                    %8.2f s  %8.0f deliveries/s\n", copy / 1000, n * 1000 / copy
  printf "committed to settled    %8.2f s  %8.0f deliveries/s\n", drain / 1000, n * 1000 / drain
  printf "CPU gateway             %8.2f s  %8.1f us a delivery\n", g / hz, g * 1e6 / hz / n
  printf "CPU Postgres            %8.2f s  %8.1f us a delivery\n", p / hz, p * 1e6 / hz / n
  printf "CPU simulators          %8.2f s  %8.1f us a delivery\n", s / hz, s * 1e6 / hz / n
}'
