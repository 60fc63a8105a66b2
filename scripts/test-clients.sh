#!/bin/sh
# Runs the programs of docs/integrations/clients.md in every language, against a gateway and a Postgres of its own.
set -eu
cd "$(dirname "$0")/.."
cluster=.local/clients
trap 'scripts/postgres.sh stop "$cluster" >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM
PUSH_GATEWAY_TEST_DATABASE_URL=$(scripts/postgres.sh start "$cluster")
export PUSH_GATEWAY_TEST_DATABASE_URL
CLIENTS_IN_EVERY_LANGUAGE=1 Tests/integrations/run.py clients
