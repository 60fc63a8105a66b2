#!/bin/sh
# All tests against a private Postgres cluster, which is stopped at the end.
#
#   scripts/test.sh                    everything
#   scripts/test.sh --swift [FILTER]   the Swift tests, or those whose name matches
#   scripts/test.sh --sql              the SQL tests
set -eu
cd "$(dirname "$0")/.."

cluster=.local/test
stop() { scripts/postgres.sh stop "$cluster" >/dev/null 2>&1 || true; }
trap stop EXIT
trap 'exit 130' INT TERM

PUSH_GATEWAY_TEST_DATABASE_URL=$(scripts/postgres.sh start "$cluster")
export PUSH_GATEWAY_TEST_DATABASE_URL
unset DATABASE_URL PUSH_GATEWAY_CONFIG

part=${1:-}
scripts/embed-migrations.sh --check
case $part in
  "" | --sql) Tests/sql/run.sh "$PUSH_GATEWAY_TEST_DATABASE_URL" ;;
esac
case $part in
  "")
    swift test
    PUSH_GATEWAY=$(swift build --show-bin-path)/push-gateway Tests/deploy/run.sh
    ;;
  --swift) if [ -n "${2:-}" ]; then swift test --filter "$2"; else swift test; fi ;;
esac
