#!/bin/sh
# Makes every alert fire in a real Prometheus, by faults of the simulators: two minutes. See Tests/prometheus/run.sh.
#
#   scripts/test-alerts.sh     uses PUSH_GATEWAY, else the debug build; and PUSH_GATEWAY_TEST_DATABASE_URL, else a
#                              private Postgres
set -eu
cd "$(dirname "$0")/.."

if [ -z "${PUSH_GATEWAY_TEST_DATABASE_URL:-}" ]; then
  cluster=.local/test-alerts
  trap 'scripts/postgres.sh stop "$cluster" >/dev/null 2>&1 || true' EXIT
  trap 'exit 130' INT TERM
  PUSH_GATEWAY_TEST_DATABASE_URL=$(scripts/postgres.sh start "$cluster")
  export PUSH_GATEWAY_TEST_DATABASE_URL
fi
Tests/prometheus/run.sh --alerts
