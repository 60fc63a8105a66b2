#!/bin/sh
# All tests against a private Postgres cluster, which is stopped at the end.
#
#   scripts/test.sh                    everything
#   scripts/test.sh --swift [FILTER]   the Swift tests, or those whose name matches
#   scripts/test.sh --sql              the tests of the schema, of backends, and of the commands in docs/
set -eu
cd "$(dirname "$0")/.."

cluster=.local/test
stop() { scripts/postgres.sh stop "$cluster" >/dev/null 2>&1 || true; }
trap stop EXIT
trap 'exit 130' INT TERM

# At most six tests run at a time: they have real deadlines, and dozens at once would slow each other down. Tests have
# their own time limits. If the process hangs all the same, the unfinished tests are printed.
swift_tests() {
  swift build --build-tests
  log=.local/swift-tests.log
  result=0
  { NO_COLOR=1 timeout --kill-after=10 "${TEST_SECONDS_MAX:-1200}" \
    "$(swift build --show-bin-path)/push-gatewayPackageTests.xctest" --testing-library swift-testing \
    --experimental-maximum-parallelization-width 6 ${1:+--filter "$1"} 2>&1 || echo "ended with $?" >>"$log.failed"; } |
    tee "$log" | grep -av '^◇' || true
  if [ -e "$log.failed" ]; then
    result=1
    echo "The Swift tests $(cat "$log.failed"). Failures, then tests that did not end:"
    rm "$log.failed"
    grep -a '^✘' "$log" || true
    awk '
      function name(text) { sub(/^[^TS]*(Test|Suite) /, "", text); sub(/ (started|passed|failed|with [0-9]+ test).*/, "", text); return text }
      /^◇ Test .* started\.$/ && !/^◇ Test (case|run) / { open[name($0)] }
      /^(✔|✘) Test / && !/recorded an issue/ { delete open[name($0)] }
      END { for (test in open) print "did not end: " test }' "$log"
  fi
  return $result
}

PUSH_GATEWAY_TEST_DATABASE_URL=$(scripts/postgres.sh start "$cluster")
export PUSH_GATEWAY_TEST_DATABASE_URL
unset DATABASE_URL PUSH_GATEWAY_CONFIG

part=${1:-}
scripts/sim-mutants.py --check
case $part in
  "" | --sql)
    Tests/sql/run.sh "$PUSH_GATEWAY_TEST_DATABASE_URL"
    Tests/backends/run.sh "$PUSH_GATEWAY_TEST_DATABASE_URL"
    Tests/docs/run.py "$PUSH_GATEWAY_TEST_DATABASE_URL"
    scripts/soak.sh --self-test
    ;;
esac
case $part in
  "")
    scripts/sbom.py --pin
    swift_tests
    Tests/supply/run.py
    scripts/fuzz.sh --quick --seconds 40
    scripts/sim.sh --seeds 500
    PUSH_GATEWAY=$(swift build --show-bin-path)/push-gateway
    export PUSH_GATEWAY
    Tests/deploy/run.sh
    Tests/prometheus/run.sh
    Tests/integrations/run.py
    ;;
  --swift) swift_tests "${2:-}" ;;
esac
