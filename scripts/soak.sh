#!/bin/sh
# Runs real gateways for ten minutes, with a cut, a crash, a freeze or a promotion every five seconds: Tests/soak/README.md.
#
#   scripts/soak.sh [--seconds 600] [--seed N] [--small] [--rate 25] [--every 5] [--faults cut,freeze=2]
#   scripts/soak.sh --self-test   tests of the soak's own rules: seconds
#
# The program is PUSH_GATEWAY, else .build/release/push-gateway, else .build/debug/push-gateway.
set -eu
cd "$(dirname "$0")/.."
unset DATABASE_URL PUSH_GATEWAY_CONFIG

python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
  || { echo "soak.sh: needs Python 3.11 or later as python3" >&2; exit 69; }
case ${1:-} in
  --self-test) exec python3 -B -m unittest Tests.soak.test_account Tests.soak.test_proxy ;;
  *) exec python3 -B -m Tests.soak "$@" ;;
esac
