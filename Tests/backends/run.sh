#!/bin/sh
# Backends and their roles: the promises of docs/sql.md, checked through psql, psycopg and pgbouncer, with a login that
# has only push_enqueuer; the programs of docs/orms.md; the rights of each role; and the plans of the gateway's functions.
#
#   Tests/backends/run.sh [DATABASE_URL]     (else the variable DATABASE_URL; a role that may create databases and roles)
#
# Makes a scratch database and logins beside the given one, applies the schema, starts a pgbouncer in transaction mode on
# a free port of the loopback, and removes all of it. Ends with "N passed, N failed"; non-zero when any failed.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
given=${1:-${DATABASE_URL:-}}
[ -n "$given" ] || { echo "run.sh: give a database URL, for example: Tests/backends/run.sh \$(scripts/postgres.sh start .local/pg)" >&2; exit 64; }
for program in /usr/sbin/pgbouncer /usr/bin/python3; do
  [ -x $program ] || { echo "run.sh: $program is missing: run scripts/setup.sh" >&2; exit 69; }
done
# Debian's psycopg needs Debian's Python, which may not be the first in PATH.
python() { PYTHONPATH='' PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -s "$@"; }
python -c 'import psycopg' 2>/dev/null || { echo "run.sh: python3-psycopg is missing: run scripts/setup.sh" >&2; exit 69; }

case $given in
  *\?*) server=${given%%\?*} parameters="?${given#*\?}" ;;
  *) server=$given parameters= ;;
esac
name=push_backends_$$
url=${server%/*}/$name$parameters
work=$(mktemp -d)
results=$work/results
: >"$results"
pool=
logins="enqueuer ops keys gateway nobody web tenant_a tenant_b"

cleanup() {
  [ -z "$pool" ] || { kill "$pool" 2>/dev/null || true; wait "$pool" 2>/dev/null || true; }
  psql -Xq "$given" -c "drop database if exists $name with (force)" >/dev/null 2>&1 || true
  for login in $logins group inner renamed; do psql -Xq "$given" -c "drop role if exists ${name}_$login" >/dev/null 2>&1 || true; done
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

sql() { psql -XAtq -v ON_ERROR_STOP=1 "$url" "$@"; }
equal() {
  if [ "$2" = "$3" ]; then echo "ok - $1"; else echo "not ok - $1: got [$2], want [$3]"; fi >>"$results"
}

psql -Xq "$given" -c "create database $name" >/dev/null
# A session that waits for another one gives up in the end, and the check in which it waits fails.
psql -Xq "$given" -c "alter database $name set lock_timeout = '5min'" -c "alter database $name set statement_timeout = '10min'"
"$root"/scripts/apply-schema.sh "$url"
sql -f "$here/../sql/clock.psql" >/dev/null
password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
for login in $logins; do sql -c "create role ${name}_$login login noinherit password '$password'"; done
# Members inherit what their group may; "web" switches to it, as Supabase's authenticator does.
sql -c "alter role ${name}_enqueuer inherit" -c "grant push_enqueuer to ${name}_enqueuer, ${name}_web" \
  -c "alter role ${name}_ops inherit" -c "grant push_ops to ${name}_ops" \
  -c "alter role ${name}_keys inherit" -c "grant push_keys to ${name}_keys" \
  -c "alter role ${name}_gateway inherit" -c "grant push_gateway to ${name}_gateway"
# As a gateway does when it starts: calls of these apps are accepted. They ring for longer than a slow machine takes.
sql -c "select push.register_app(a, 600) from unnest('{default,porteiro,copies,declines,errors,snapshots,tenant_a,tenant_b}'::text[]) a" >"$work/out"

# --- pgbouncer: two server connections for each login, so that clients must share them ---
# It refuses to run as root, and changes to the user of its configuration.
user=
if [ "$(id -u)" -eq 0 ]; then
  user=nobody
  for candidate in postgres push; do if id $candidate >/dev/null 2>&1; then user=$candidate && break; fi; done
fi
mkdir "$work/pool"
chmod 711 "$work"
for login in $logins; do echo "\"${name}_$login\" \"$password\""; done >"$work/pool/users"
upstream=$(sql -c '\echo host=:HOST port=:PORT')
start_pool() {
  cat >"$work/pool/pgbouncer.ini" <<SETTINGS
[databases]
$name = $upstream dbname=$name
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $1
unix_socket_dir =
${user:+user = $user}
pool_mode = transaction
default_pool_size = 2
auth_type = scram-sha-256
auth_file = $work/pool/users
admin_users = ${name}_nobody
query_wait_timeout = 600
SETTINGS
  [ -z "$user" ] || chown -R "$user" "$work/pool"
  chmod 600 "$work/pool/users"
  /usr/sbin/pgbouncer "$work/pool/pgbouncer.ini" >"$work/pool.log" 2>&1 &
  pool=$!
  while kill -0 "$pool" 2>/dev/null; do
    # Checks that the admin console is that of this pgbouncer: another program may have taken the port.
    if [ "$(PGCONNECT_TIMEOUT=60 psql -XAtq "postgres://${name}_nobody:$password@127.0.0.1:$1/pgbouncer" \
      -c 'show databases' 2>/dev/null | grep -c "^$name|")" = 1 ]; then
      return 0
    fi
  done
  wait "$pool" || true
  pool=
  return 1
}
tries=0
until port=$((20000 + $(od -An -N2 -tu2 /dev/urandom) % 12000)) && start_pool "$port"; do
  tries=$((tries + 1))
  [ $tries -lt 10 ] || { echo "run.sh: pgbouncer does not start: $(tail -n 1 "$work/pool.log")" >&2; exit 1; }
done

# --- Tests ---
export OWNER_URL="$url" POOL_PORT="$port" LOGIN_PREFIX="${name}_" LOGIN_PASSWORD="$password" ROOT="$root"
direct="$(python "$here/harness.py" direct enqueuer)"
pooled="$(python "$here/harness.py" pooled enqueuer)"
equal "the pool is in transaction mode" \
  "$(psql -XAtq "$(python "$here/harness.py" pooled nobody pgbouncer)" -c 'show config' | grep -c '^pool_mode|transaction|')" 1

# psql, with only the statements of docs/sql.md.
for way in direct pooled; do
  case $way in direct) to=$direct ;; *) to=$pooled ;; esac
  cat >"$work/$way.tsv" <<CALLS
porteiro	{"callId": "$way-copy-1", "from": "x"}	[{"userId": "u", "fcmToken": "copy-token-0123456789"}]
porteiro	{"callId": "$way-copy-2", "from": "x"}	[{"userId": "u", "fcmToken": "copy-token-0123456789"}]
CALLS
  psql -XAtq -v way=$way -f "$here/backend.psql" "$to" <"$work/$way.tsv" >"$work/out" 2>&1 || true
  equal "psql $way: enqueues, answers and ends" "$(sed "s/^psql:[^ ]* //; s/$way-//g" "$work/out")" "$(cat "$here/backend.expected")"
done

plans=plans
if ! sql -c "load 'auto_explain'" 2>/dev/null; then
  plans=
  echo "skipped: the plans of the gateway's functions, because this server has no auto_explain"
fi
for file in backend orms transactions snapshots declines neighbours tenants quotas errors webhooks copies erasure roles ownership restore $plans hardened; do
  python "$here/$file.py" >"$work/out" 2>"$work/err" || echo "not ok - $file.py runs to its end: $(tail -n 1 "$work/err")" >>"$results"
  grep -E '^(ok|not ok) - ' "$work/out" >>"$results" || echo "not ok - $file.py: it ran no test" >>"$results"
done
equal "the pool is left with no session's remains" \
  "$(sql -c "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())")" 0

cat "$results"
passed=$(grep -c '^ok - ' "$results" || true)
failed=$(grep -c '^not ok - ' "$results" || true)
[ "$failed" -eq 0 ] || { echo "Failed:"; grep '^not ok - ' "$results"; }
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
