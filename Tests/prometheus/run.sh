#!/bin/sh
# The tests of deploy/prometheus and deploy/grafana: promtool's, and whether rules and dashboard name what a gateway
# really exposes.
#
#   PUSH_GATEWAY=.build/debug/push-gateway PUSH_GATEWAY_TEST_DATABASE_URL=postgres://… Tests/prometheus/run.sh
#   … Tests/prometheus/run.sh --alerts     every alert, caused by simulators, with a real Prometheus: two minutes
#
# Makes a scratch database beside the given one, starts simulators and gateways on the loopback, and stops and drops all
# of it. Ends with "N passed, N failed"; non-zero when any failed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
: "${PUSH_GATEWAY:=$here/../../.build/debug/push-gateway}"
export PUSH_GATEWAY
[ -n "${PUSH_GATEWAY_TEST_DATABASE_URL:-}" ] \
  || { echo "run.sh: PUSH_GATEWAY_TEST_DATABASE_URL is missing: see scripts/postgres.sh" >&2; exit 64; }
[ -x "$PUSH_GATEWAY" ] \
  || { echo "run.sh: there is no program $PUSH_GATEWAY: build it, or name it in PUSH_GATEWAY" >&2; exit 64; }
for program in prometheus promtool python3 psql; do
  command -v $program >/dev/null 2>&1 || { echo "run.sh: $program is missing: run scripts/setup.sh" >&2; exit 69; }
done

program=checks.py
[ "${1:-}" != --alerts ] || program=alerts.py
export PYTHONDONTWRITEBYTECODE=1
exec python3 "$here/$program"
