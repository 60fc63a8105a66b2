#!/bin/sh
# Runs `make test` N times from a clean clone while other work keeps the machine busy: two loops, a compiler and a disk writer.
#
#   scripts/test-under-load.sh [N]      N: number of runs, 1 if not given. Stops at the first that fails.
#
# A test that depends on how fast the machine is fails here sooner or later. A compiler does not: the clone is built before, without the
# other work, which takes ten minutes instead of forty. The logs are in .local/under-load/.
set -eu
cd "$(dirname "$0")/.."
runs=${1:-1}
case $runs in '' | *[!0-9]* | 0) sed -n '4s/^# *//p' "$0" >&2; exit 64 ;; esac

root=$PWD
work=$root/.local/under-load
rm -rf "$work"
mkdir -p "$work"
# Beside the checkout, so that no tool finds the checkout's own build.
clone=$(mktemp -d "${TMPDIR:-/tmp}/under-load.XXXXXX")
load=
stop() {
  [ -z "$load" ] || kill -- "-$load" 2>/dev/null || true
  rm -rf "$clone"
}
trap stop EXIT
trap 'exit 130' INT TERM
chmod 755 "$clone"  # Postgres runs as another user
git clone -q "$root" "$clone"

echo "building a clone of $(git log -1 --format=%h)"
built() {
  cd "$clone" && make setup && scripts/sbom.py --pin && swift build --build-tests && scripts/fuzz.sh --quick --build &&
    scripts/sim.sh --seeds 1
}
if ! (built) >"$work/build.log" 2>&1; then
  tail -n 20 "$work/build.log"
  exit 1
fi

# The other work runs in one session, as what another terminal has started: where the kernel groups processes by session, it gets half of
# the machine.
export scratch="$clone/.local/scratch"
mkdir -p "$scratch"
# shellcheck disable=SC2016  # for the shell that it starts
setsid sh -c '
  while :; do :; done &
  while :; do :; done &
  i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); echo "int f$i(int a) { return a * $i; }"; done >"$scratch/a.c"
  while :; do cc -O2 -c "$scratch/a.c" -o "$scratch/a.o"; done &
  while :; do dd if=/dev/zero of="$scratch/written" bs=1M count=64 conv=fsync; done' >/dev/null 2>&1 &
load=$!

# What a log says of failures: those of Swift tests, SQL tests and Python tests, and the seeds with which they can be repeated; then its end.
failures() {
  grep -aE '^(✘|not ok|FAIL|ERROR|error:)|failed with|[Ss]eed [0-9]+' "$1" | cut -c1-400 | head -n 60
  tail -n 5 "$1" | cut -c1-400
}

# The limit ends tests that hang, and these are slow by intention.
export TEST_SECONDS_MAX=3600
run=0
while [ "$run" -lt "$runs" ]; do
  run=$((run + 1))
  began=$(date +%s)
  echo "run $run of $runs: $(cut -d ' ' -f 1 /proc/loadavg) processes wait or run"
  if (cd "$clone" && make test) >"$work/run-$run.log" 2>&1; then
    echo "run $run of $runs: passed in $(($(date +%s) - began)) s"
  else
    echo "run $run of $runs: FAILED after $(($(date +%s) - began)) s, see $work/run-$run.log"
    failures "$work/run-$run.log"
    exit 1
  fi
done
echo "$runs runs passed under load"
