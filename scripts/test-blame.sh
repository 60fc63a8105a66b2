#!/bin/sh
# Lone calls while something is ill, with real programs: the table in docs/reliability.md; a build and four minutes.
#
#   scripts/test-blame.sh [TEXT] [--at-once 4]      TEXT: only rows whose names contain it
#
# The program is PUSH_GATEWAY, else .build/release/push-gateway, with push-gateway-lab beside it.
set -eu
cd "$(dirname "$0")/.."
unset DATABASE_URL PUSH_GATEWAY_CONFIG

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "test-blame.sh: needs Python 3.11 or later as python3" >&2; exit 69; }
exec python3 -B -m Tests.blame "$@"
