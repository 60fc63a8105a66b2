#!/bin/sh
# The listeners against more connections than there are descriptors: real gateways under `ulimit -n 1024`, 1,100 slow clients.
#
#   scripts/test-descriptors.sh [--only NAME]   builds the gateway (debug) and tests it
#   PUSH_GATEWAY=… scripts/test-descriptors.sh  tests this one
#
# Everything it starts is its own and stopped at the end. It fails if a request, a probe or a ring is missing.
set -eu
cd "$(dirname "$0")/.."

say() { echo "== $*"; }
fail() { echo "test-descriptors.sh: $*" >&2; exit 1; }

local=.local/descriptors
simulator_pid=
stop_all() {
  status=$?
  trap - EXIT
  if [ -n "$simulator_pid" ]; then
    kill "$simulator_pid" 2>/dev/null || true
    wait "$simulator_pid" 2>/dev/null || true
  fi
  scripts/postgres.sh stop "$local/postgres" >/dev/null 2>&1 || true
  exit "$status"
}
trap stop_all EXIT
trap 'exit 130' INT TERM

gateway=${PUSH_GATEWAY:-}
if [ -z "$gateway" ]; then
  say "Building"
  swift build --product push-gateway
  swift build --product push-gateway-lab
  gateway=$(swift build --show-bin-path)/push-gateway
fi
mkdir -p "$local"

say "A private Postgres and simulators"
DATABASE_URL=$(scripts/postgres.sh start "$local/postgres")
export DATABASE_URL
unset PUSH_GATEWAY_CONFIG
psql=$(command -v psql || echo "$(pg_config --bindir)/psql")
"$psql" -XAtq "$DATABASE_URL" -c "set client_min_messages = error; drop schema if exists push cascade"
"$gateway" migrate >/dev/null
rm -rf "$local/simulators" "$local/simulators.out" "$local/pushes.jsonl"
"$gateway"-lab simulate --directory "$local/simulators" --log "$local/pushes.jsonl" \
  >"$local/simulators.out" 2>"$local/simulators.log" &
simulator_pid=$!
tries=0
until grep -qs '"ready":true' "$local/simulators.out"; do
  kill -0 "$simulator_pid" 2>/dev/null || fail "the simulator has ended, see $local/simulators.log"
  tries=$((tries + 1))
  [ "$tries" -lt 300 ] || fail "the simulator was not ready within 30 s, see $local/simulators.log"
  sleep 0.1
done
key=$("$psql" -XAtq "$DATABASE_URL" -c "select key from push.create_api_key('porteiro', 'test-descriptors.sh')")

say "Crowds"
python3 Tests/api/descriptors.py --gateway "$(realpath "$gateway")" --config "$PWD/$local/simulators/gateway.yaml" \
  --pushes "$local/pushes.jsonl" --key "$key" --directory "$local" "$@"
! grep -qF "$key" "$local"/*.log || fail "the key is in a log in $local"
say "The listeners hold"
