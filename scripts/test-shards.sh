#!/bin/sh
# Tests several databases as one outbox, with a router on PL/Proxy, in five Postgres clusters: a few minutes.
# See Tests/shards/run.py.
#
#   scripts/test-shards.sh [NAME …]     uses PUSH_GATEWAY, else the debug build
set -eu
cd "$(dirname "$0")/.."

Tests/shards/static.py
[ -f "$(pg_config --sharedir)/extension/plproxy.control" ] || {
  echo "test-shards.sh: PL/Proxy is missing for the Postgres of $(pg_config --bindir): install postgresql-$(pg_config --version | sed 's/[^0-9]*\([0-9]*\).*/\1/')-plproxy" >&2
  exit 69
}
PUSH_GATEWAY=${PUSH_GATEWAY:-$(swift build --show-bin-path)/push-gateway}
export PUSH_GATEWAY
# Debian's Python, which has psycopg.
exec /usr/bin/python3 Tests/shards/run.py "$@"
