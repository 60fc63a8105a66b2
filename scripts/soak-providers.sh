#!/bin/sh
# Soak tests with misbehaving providers: stalls, GOAWAYs, a key rotation, hangs; about ten minutes.
# They use a private Postgres cluster, which is stopped at the end. Each test prints its measurements in lines that begin
# with "soak:".
#
#   scripts/soak-providers.sh                    everything
#   scripts/soak-providers.sh --small            a short run of half a minute, to check that it works
#   scripts/soak-providers.sh [--small] FILTER   tests whose name matches: StallSoakTests, GoAwaySoakTests, HangSoakTests
#
# Sizes, with their defaults: PUSH_GATEWAY_SOAK_INVITES=10000, _RING_SECONDS=30, _STALL_SECONDS=120, _PUSHES=50000,
# _GOAWAY_EVERY=500, _HANG_SECONDS=60, _SEED=1.
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" = --small ]; then
  shift
  : "${PUSH_GATEWAY_SOAK_INVITES:=900}" "${PUSH_GATEWAY_SOAK_RING_SECONDS:=4}" "${PUSH_GATEWAY_SOAK_STALL_SECONDS:=8}"
  : "${PUSH_GATEWAY_SOAK_PUSHES:=5000}" "${PUSH_GATEWAY_SOAK_HANG_SECONDS:=3}"
  export PUSH_GATEWAY_SOAK_INVITES PUSH_GATEWAY_SOAK_RING_SECONDS PUSH_GATEWAY_SOAK_STALL_SECONDS
  export PUSH_GATEWAY_SOAK_PUSHES PUSH_GATEWAY_SOAK_HANG_SECONDS
fi

cluster=.local/soak-providers
stop() { scripts/postgres.sh stop "$cluster" >/dev/null 2>&1 || true; }
trap stop EXIT
trap 'exit 130' INT TERM

PUSH_GATEWAY_TEST_DATABASE_URL=$(scripts/postgres.sh start "$cluster")
export PUSH_GATEWAY_TEST_DATABASE_URL
export PUSH_GATEWAY_SOAK=1
unset DATABASE_URL PUSH_GATEWAY_CONFIG

swift test --filter "${1:-SoakTests}"
