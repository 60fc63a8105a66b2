#!/bin/sh
# All tests against private Postgres clusters, which are stopped at the end.
#
#   scripts/test.sh                    everything
#   scripts/test.sh --swift [FILTER]   the Swift tests, or those whose name matches
#   scripts/test.sh --sql              the tests of the schema, of backends, and of the commands in docs/
set -eu
cd "$(dirname "$0")/.."

# Tests in psql make and drop roles, which all databases of a cluster have in common: they have a cluster of their own.
clusters=".local/test .local/test-sql"
stop() { for cluster in $clusters; do scripts/postgres.sh stop "$cluster" >/dev/null 2>&1 || true; done; }
trap stop EXIT
# Jobs beside the script do not hear Ctrl-C: the script passes it on to its process group.
trap 'trap "" TERM; kill 0; exit 130' INT TERM

use_cluster() {
  PUSH_GATEWAY_TEST_DATABASE_URL=$(scripts/postgres.sh start "$1")
  export PUSH_GATEWAY_TEST_DATABASE_URL
}

# beside NAME COMMAND…: runs a part while others run. Its output goes to .local/test-NAME.log, which `finish` shows.
beside() {
  part_name=$1
  shift
  echo "== $part_name: runs beside, see .local/test-$part_name.log"
  { "$@"; } >".local/test-$part_name.log" 2>&1 &
  eval "pid_$part_name=$!"
}

# finish NAME: waits for a part that runs beside, and fails if it failed.
finish() {
  result=0
  eval "wait \"\$pid_$1\"" || result=$?
  echo "== $1"
  cat ".local/test-$1.log"
  [ "$result" = 0 ] || echo "$1 failed with $result"
  return "$result"
}

# At most eight tests run at a time: dozens at once would slow each other down, and many wait for something. Tests have their
# own time limits. If the process hangs all the same, the unfinished tests are printed.
swift_tests() {
  log=.local/swift-tests.log
  result=0
  { NO_COLOR=1 timeout --kill-after=10 "${TEST_SECONDS_MAX:-1200}" \
    "$built/push-gatewayPackageTests.xctest" --testing-library swift-testing \
    --experimental-maximum-parallelization-width 8 ${1:+--filter "$1"} 2>&1 || echo "ended with $?" >>"$log.failed"; } |
    tee "$log" | grep -av '^◇' || true
  if [ -e "$log.failed" ]; then
    result=1
    echo "The Swift tests $(cat "$log.failed"). Failures, then tests that did not end:"
    rm "$log.failed"
    grep -a '^✘' "$log" || true
    # A line may begin within another one, which tests at the same time have not ended.
    awk '
      function name(text) { sub(/^.*(◇|✔|✘) Test /, "", text); sub(/ (started|passed|failed|with [0-9]+ test).*/, "", text); return text }
      /◇ Test .* started\.$/ && !/◇ Test (case|run) / { open[name($0)] }
      /(✔|✘) Test / && !/recorded an issue/ { delete open[name($0)] }
      END { for (test in open) print "did not end: " test }' "$log"
  fi
  return $result
}

sql_tests() {
  use_cluster .local/test-sql
  scripts/sim-mutants.py --check
  Tests/sql/run.sh "$PUSH_GATEWAY_TEST_DATABASE_URL"
  Tests/backends/run.sh "$PUSH_GATEWAY_TEST_DATABASE_URL"
  Tests/docs/run.py "$PUSH_GATEWAY_TEST_DATABASE_URL"
  /usr/bin/python3 Tests/site/run.py
  /usr/bin/python3 Tests/api/words.py
  scripts/soak.sh --self-test
  benchmarks/bench --self-test
  Tests/shards/static.py
  scripts/test-failover.sh --self-test
}

build_tests() {
  scripts/sbom.py --pin && swift build --build-tests && built=$(swift build --show-bin-path)
}

# What is built for its test alone, which takes most of its time.
search_tests() {
  scripts/fuzz.sh --quick --seconds 40
  scripts/sim.sh --seeds 500
}

# What is tested with the programs as they are built.
program_tests() {
  export PUSH_GATEWAY="$built/push-gateway"
  Tests/supply/run.py
  Tests/deploy/run.sh
  Tests/debian/run.py
  Tests/upgrade/surface.py --check "$PUSH_GATEWAY"
  Tests/image/static.py
  Tests/kubernetes/run.py
  Tests/prometheus/run.sh
  Tests/webhooks/run.py
  Tests/integrations/run.py
  Tests/docs/live.py
}

mkdir -p .local
export POSTGRES_FOR_TESTS=yes
unset DATABASE_URL PUSH_GATEWAY_CONFIG

case ${1:-} in
  "")
    # The compiler and the Swift tests leave a core idle much of the time. A part runs to its end also when another fails.
    failed=
    beside sql sql_tests
    use_cluster .local/test
    if build_tests; then
      beside programs program_tests
      beside search search_tests
      swift_tests || failed=1
      finish programs || failed=1
      finish search || failed=1
    else
      failed=1
    fi
    finish sql || failed=1
    [ -z "$failed" ] || exit 1
    ;;
  --sql) sql_tests ;;
  --swift)
    use_cluster .local/test
    build_tests
    swift_tests "${2:-}"
    ;;
  *)
    sed -n '4,6s/^# *//p' "$0" >&2
    exit 64
    ;;
esac
