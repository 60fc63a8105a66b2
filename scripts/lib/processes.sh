# Sourced by scripts that start a private Postgres and other processes. Stops all of them at the end, even if the script fails.
#
# Set `local`, the script's folder, first; its Postgres is in $local/postgres. Put the pid of each process in front of `started`.
# shellcheck shell=sh disable=SC2154 # local is set by the script

started=

say() { printf '\n== %s\n' "$*"; }
fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

# The last one started is stopped first, so that a gateway drains while its database and providers are there.
stop_all() {
  status=$?
  trap - EXIT INT TERM
  for pid in $started; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  scripts/postgres.sh stop "$local/postgres" >/dev/null 2>&1 || true
  [ -z "${removed_at_end:-}" ] || (cd / && rm -rf "$removed_at_end")
  exit "$status"
}
trap stop_all EXIT
trap 'exit 130' INT TERM

# await WHAT PID LOG COMMAND…: waits until the command succeeds, at most 30 s, and only while the process PID lives.
await() {
  what=$1 pid=$2 log=$3
  shift 3
  tries=0
  until "$@" >/dev/null 2>&1; do
    kill -0 "$pid" 2>/dev/null || { tail -n 20 "$log" >&2; fail "$what has ended, see $log"; }
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || { tail -n 20 "$log" >&2; fail "$what was not ready within 30 s, see $log"; }
    sleep 0.1
  done
}

# Sets `gateway` to PUSH_GATEWAY; without it, makes a debug build and uses that.
find_gateway() {
  gateway=${PUSH_GATEWAY:-}
  if [ -z "$gateway" ]; then
    say "Building"
    swift build --product push-gateway
    swift build --product push-gateway-lab
    gateway=$(swift build --show-bin-path)/push-gateway
  fi
}

# Starts the private Postgres with an empty, migrated schema. Sets DATABASE_URL, and `psql` to the program.
start_database() {
  DATABASE_URL=$(scripts/postgres.sh start "$local/postgres")
  export DATABASE_URL
  unset PUSH_GATEWAY_CONFIG
  psql=$(command -v psql || echo "$(pg_config --bindir)/psql")
  "$psql" -XAtq "$DATABASE_URL" -c "set client_min_messages = error; drop schema if exists push cascade"
  "$gateway" migrate >/dev/null
}

# start_simulators [OPTION…]: simulators of the providers, with their files in $local/simulators and what they print in
# $local/simulators.out and .log. Sets simulator_pid.
start_simulators() {
  rm -rf "$local/simulators" "$local/simulators.out"
  "$gateway"-lab simulate --directory "$local/simulators" "$@" >"$local/simulators.out" 2>"$local/simulators.log" &
  simulator_pid=$!
  started="$simulator_pid $started"
  await "the simulator" "$simulator_pid" "$local/simulators.log" grep -qs '"ready":true' "$local/simulators.out"
}
