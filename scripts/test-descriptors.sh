#!/bin/sh
# Tests the listeners with more connections than there are descriptors: real gateways under `ulimit -n 1024`, 1,100 slow clients.
#
#   scripts/test-descriptors.sh [--only NAME]   builds the gateway (debug) and tests it
#   PUSH_GATEWAY=… scripts/test-descriptors.sh  tests this one
#
# Starts its own programs and stops them at the end. Fails if a request, a probe or a ring is missing.
set -eu
cd "$(dirname "$0")/.."

local=.local/descriptors
. scripts/lib/processes.sh

find_gateway
mkdir -p "$local"

say "A private Postgres and simulators"
rm -f "$local/pushes.jsonl"
start_database
start_simulators --log "$local/pushes.jsonl"
key=$("$psql" -XAtq "$DATABASE_URL" -c "select key from push.create_api_key('porteiro', 'test-descriptors.sh')")

say "Crowds"
python3 Tests/api/descriptors.py --gateway "$(realpath "$gateway")" --config "$PWD/$local/simulators/gateway.yaml" \
  --pushes "$local/pushes.jsonl" --key "$key" --directory "$local" "$@"
! grep -qF "$key" "$local"/*.log || fail "the key is in a log in $local"
say "The listeners hold"
