#!/bin/sh
# Runs the psql commands of the README and of docs/, and compares their output with the page. See Tests/docs/run.py.
#
#   scripts/test-docs.sh [FILE.md …]     against PUSH_GATEWAY_TEST_DATABASE_URL, else a private Postgres
set -eu
cd "$(dirname "$0")/.."

if [ -n "${PUSH_GATEWAY_TEST_DATABASE_URL:-}" ]; then
  url=$PUSH_GATEWAY_TEST_DATABASE_URL
else
  cluster=.local/test-docs
  trap 'scripts/postgres.sh stop "$cluster" >/dev/null 2>&1 || true' EXIT
  trap 'exit 130' INT TERM
  url=$(scripts/postgres.sh start "$cluster")
fi
python3 Tests/docs/run.py "$url" "$@"
