#!/bin/sh
# A private Postgres cluster for the demo, the tests and the benchmarks.
#
#   scripts/postgres.sh start DIR [PORT]   create the cluster if necessary, start it, print its URL
#   scripts/postgres.sh stop DIR           stop it
#   scripts/postgres.sh url DIR            print its URL
#
# POSTGRES_FOR_TESTS=yes is for tests that make and drop a small database each. To make and remove its six hundred files takes most of their
# time, so the cluster is in memory (/dev/shm) if there is room, until it is stopped. Nothing waits for the disk, little memory has to be
# searched when a database is dropped, and they are rarely vacuumed. A crash of the machine, not of Postgres, may damage the cluster.
#
# It listens on 127.0.0.1 only and accepts every connection without a password. Postgres refuses to run as root: then it
# runs as the user postgres (or push, which is created). Starting or stopping twice is harmless.
set -eu

fail() { echo "postgres.sh: $*" >&2; exit 1; }
usage() { sed -n '4,6s/^# *//p' "$0" >&2; exit 64; }

[ $# -ge 2 ] || usage
command=$1
[ "$command" != start ] || mkdir -p "$2" 2>/dev/null || fail "cannot make the directory $2"
[ -d "$2" ] || [ "$command" != stop ] || exit 0
[ -d "$2" ] || fail "no cluster in $2: make one with: scripts/postgres.sh start $2"
dir=$(cd "$2" && pwd -P)
data=$dir/data
log=$dir/postgres.log
port=${3:-}

# The server's programs: pg_config's, or the newest version Debian has installed.
find_programs() {
  # Debian's fails if neither a server nor the files for building are there.
  if bin=$(pg_config --bindir 2>/dev/null) && [ -x "$bin/initdb" ]; then return; fi
  for bin in $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5 -rn); do
    [ -x "$bin/initdb" ] && return
  done
  fail "no Postgres server found: install it, for example with: apt-get install postgresql"
}

# The user that the server runs as; empty: the current user.
find_user() {
  user=
  [ "$(id -u)" -eq 0 ] || return 0
  command -v runuser >/dev/null 2>&1 || fail "runuser is needed to start Postgres from root: install util-linux"
  if id postgres >/dev/null 2>&1; then
    user=postgres
  else
    id push >/dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin push \
      || fail "cannot make the user push to run Postgres as"
    user=push
  fi
  [ "$command" != start ] || [ "$(stat -c %U "$dir")" = "$user" ] || chown -R "$user" "$dir"
  run test -x "$dir" \
    || fail "the user $user cannot enter $dir: chmod o+x the directories above it, or choose another"
}

run() { if [ -n "$user" ]; then (cd / && runuser -u "$user" -- "$@"); else "$@"; fi }

# Puts the cluster into memory if there is room: data is a link then.
choose_memory() {
  [ ! -L "$data" ] || [ -d "$data" ] || rm "$data"  # of before the machine was started
  [ "${POSTGRES_FOR_TESTS:-}" = yes ] && [ ! -e "$data" ] && [ -d /dev/shm ] || return 0
  # What a killed test has left.
  for left in /dev/shm/push-postgres-*; do
    [ ! -e "$left/of" ] || [ -L "$(cat "$left/of")/data" ] || rm -rf "$left" 2>/dev/null || true
  done
  [ "$(df -Pm /dev/shm | awk 'NR == 2 {print $4}')" -ge 2048 ] || return 0
  [ "$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)" -ge 4096 ] || return 0
  memory=$(run mktemp -d /dev/shm/push-postgres-XXXXXXXX)
  run mkdir -m 700 "$memory/data"
  run ln -s "$memory/data" "$data"
  echo "$dir" | run tee "$memory/of" >/dev/null
}

running() { [ -s "$data/postmaster.pid" ] && run "$bin/pg_ctl" status -D "$data" >/dev/null 2>&1; }

url() {
  [ -s "$data/postmaster.pid" ] || fail "no server runs in $dir: start it with: scripts/postgres.sh start $2"
  echo "postgres://push@127.0.0.1:$(sed -n 4p "$data/postmaster.pid")/push"
}

# A free port. Another process may take it before the server does; start then tries again.
free_port() {
  tries=0
  while :; do
    tries=$((tries + 1))
    candidate=$((20000 + ($(od -An -N2 -tu2 /dev/urandom) % 12000)))
    "$bin/pg_isready" -q -h 127.0.0.1 -p "$candidate" -t 1 && state=0 || state=$?
    [ "$state" -eq 2 ] && { echo "$candidate"; return; }
    [ "$tries" -lt 50 ] || fail "found no free port"
  done
}

# The path of a socket has at most 107 bytes.
socket_directory() {
  if [ ${#dir} -le 80 ]; then
    echo "$dir"
  else
    sockets=/tmp/push-postgres-$(printf %s "$dir" | cksum | cut -d' ' -f1)
    run mkdir -p -m 700 "$sockets"
    echo "$sockets"
  fi
}

configure() {
  memory=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo 2>/dev/null || echo 2048)
  buffers=$((memory / 4))
  [ "$buffers" -le 2048 ] || buffers=2048
  [ "$buffers" -ge 64 ] || buffers=64
  disk=$(df -Pm "$dir" | awk 'NR == 2 {print $4}')
  wal=8192
  [ "$wal" -le $((disk / 4)) ] || wal=$((disk / 4))
  [ "$wal" -ge 256 ] || wal=256
  naptime=5
  fsync=on
  if [ "${POSTGRES_FOR_TESTS:-}" = yes ]; then
    buffers=256
    wal=1024
    naptime=60
    fsync=off
  fi
  compression=on
  case $(cat "$data/PG_VERSION") in
    9.* | 1[0-4]) ;;
    *) "$bin/pg_config" --configure 2>/dev/null | grep -q with-lz4 && compression=lz4 ;;
  esac
  run tee "$data/push.conf" >/dev/null <<SETTINGS
# Written by scripts/postgres.sh at every start.
listen_addresses = '127.0.0.1'
unix_socket_directories = '$(socket_directory)'
port = $port
max_connections = 300
shared_buffers = ${buffers}MB
max_wal_size = ${wal}MB
wal_compression = $compression
autovacuum_naptime = ${naptime}s
fsync = $fsync
full_page_writes = $fsync
random_page_cost = 1.1
log_min_error_statement = panic
SETTINGS
  grep -q "push.conf" "$data/postgresql.conf" \
    || echo "include 'push.conf'" | run tee -a "$data/postgresql.conf" >/dev/null
}

start() {
  if ! running; then
    choose_memory
    [ -s "$data/PG_VERSION" ] || run "$bin/initdb" -D "$data" -U push -A trust -E UTF8 --locale=C --no-instructions \
      >"$dir/initdb.log" 2>&1 || fail "initdb failed, see $dir/initdb.log: $(tail -n 1 "$dir/initdb.log")"
    given=$port
    tries=0
    while :; do
      tries=$((tries + 1))
      [ -n "$given" ] && port=$given || port=$(free_port)
      configure
      run "$bin/pg_ctl" start -w -t 600 -s -D "$data" -l "$log" >/dev/null 2>&1 9>&- && break
      if [ -n "$given" ] || [ "$tries" -ge 5 ] || ! tail -n 20 "$log" | grep -q "could not bind"; then
        fail "Postgres did not start on port $port, see $log: $(grep -E 'FATAL|ERROR' "$log" | tail -n 1)"
      fi
    done
  fi
  address=$(url start "$dir")
  base=${address%/push}
  exists=$("$bin/psql" -XAtq "$base/postgres" -c "select 1 from pg_database where datname = 'push'")
  [ -n "$exists" ] || "$bin/createdb" --maintenance-db="$base/postgres" push
  echo "$address"
}

stop() {
  if running; then
    run "$bin/pg_ctl" stop -w -t 600 -s -m fast -D "$data" >/dev/null || fail "Postgres did not stop, see $log"
  fi
  case $(readlink "$data") in
    /dev/shm/push-postgres-*) rm -rf "$(dirname "$(readlink "$data")")" "$data" ;;
  esac
}

find_programs
find_user
case $command in
  start)
    # One at a time. The server must not inherit the lock.
    exec 9>"$dir/lock"
    flock 9
    start
    ;;
  stop) stop ;;
  url) url "$@" ;;
  *) usage ;;
esac
