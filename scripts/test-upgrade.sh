#!/bin/sh
# Upgrades a fleet from the previous release and back while calls ring: docs/compatibility.md; a build and three minutes.
#
#   scripts/test-upgrade.sh [--rate 16] [--seconds 10] [--seed N]
#
# The program is PUSH_GATEWAY, else .build/release/push-gateway, with push-gateway-lab beside it. The previous release is built once
# from the commit that Tests/upgrade/previous-release names; UPGRADE_FROM names another program.
set -eu
cd "$(dirname "$0")/.."
unset DATABASE_URL PUSH_GATEWAY_CONFIG

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "test-upgrade.sh: needs Python 3.11 or later as python3" >&2; exit 69; }
exec python3 -B -m Tests.upgrade "$@"
