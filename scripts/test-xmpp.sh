#!/bin/sh
# Runs docs/integrations/xmpp.md with Debian's Prosody and ejabberd, against a gateway and a Postgres of its own.
set -eu
cd "$(dirname "$0")/.."
cluster=.local/xmpp
trap 'scripts/postgres.sh stop "$cluster" >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM
PUSH_GATEWAY_TEST_DATABASE_URL=$(scripts/postgres.sh start "$cluster")
export PUSH_GATEWAY_TEST_DATABASE_URL
XMPP_IN_EVERY_SERVER=1 Tests/integrations/run.py xmpp
