#!/bin/sh
# Promotes a standby under Patroni while calls ring, and checks every promise afterwards: docs/failover.md; as root, six minutes.
#
#   scripts/test-failover.sh [--small] [--modes synchronous,asynchronous] [--kinds kill,freeze,cut,switchover,thaw] [--rate 4]
#   scripts/test-failover.sh --self-test   whether page, examples and test agree: a second
#
# The program is PUSH_GATEWAY, else .build/release/push-gateway. Nodes are namespaces of this machine: it needs root.
set -eu
cd "$(dirname "$0")/.."
unset DATABASE_URL PUSH_GATEWAY_CONFIG
fail() { echo "test-failover.sh: $*" >&2; exit 69; }

[ "${1:-}" != --self-test ] || exec python3 -B -m unittest Tests.failover.test_files
[ "$(id -u)" -eq 0 ] || fail "needs root, for it makes namespaces: sudo scripts/test-failover.sh"
PATH=$PATH:/usr/sbin:/sbin
export PATH
for program in patroni etcd haproxy ip unshare nsenter setpriv; do
  command -v "$program" >/dev/null || fail "there is no $program: scripts/setup.sh --also patroni etcd-server haproxy python3-etcd"
done
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "needs Python 3.11 or later as python3"
unshare --net --mount true || fail "this machine makes no namespaces: a container needs CAP_SYS_ADMIN and CAP_NET_ADMIN"
exec unshare --net --mount python3 -B -m Tests.failover "$@"
