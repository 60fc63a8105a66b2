#!/bin/sh
# Tests the dashboard in a real browser, headless Chromium, and takes the pictures of the README.
# Tests/dashboard/run.py does what somebody on call does.
#
#   scripts/test-dashboard.sh                  builds the gateway (debug) and tests it
#   PUSH_GATEWAY=… scripts/test-dashboard.sh   tests this one
#   PICTURES=DIR …                          where the pictures go; .local/dashboard/pictures unless given
#
# Installs chromium, its driver and python3-selenium if they are missing (Debian; as root or with sudo). Everything it
# starts is its own and stopped at the end.
set -eu
cd "$(dirname "$0")/.."

local=.local/dashboard
. scripts/lib/processes.sh

packages=
command -v chromium >/dev/null || packages="$packages chromium"
command -v chromedriver >/dev/null || packages="$packages chromium-driver"
/usr/bin/python3 -c 'import selenium' 2>/dev/null || packages="$packages python3-selenium"
if [ -n "$packages" ]; then
  say "Installing$packages"
  sudo=
  [ "$(id -u)" -eq 0 ] || sudo=sudo
  # shellcheck disable=SC2086 # the packages are words
  install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages >/dev/null; }
  install || { $sudo apt-get update -qq && install; } || fail "apt-get could not install$packages"
fi

find_gateway
pictures=${PICTURES:-$local/pictures}
mkdir -p "$local" "$pictures"

say "A private Postgres, simulators, and a gateway"
start_database
sql() { "$psql" -XAtq -v ON_ERROR_STOP=1 "$DATABASE_URL" "$@"; }
# shellcheck disable=SC2119 # without options
start_simulators

python3 Tests/servers/held_ports.py 1 >"$local/ports" 2>"$local/ports.log" &
ports_pid=$!
started="$ports_pid $started"
await "the port" "$ports_pid" "$local/ports.log" grep -q . "$local/ports"
port=$(cat "$local/ports")
(umask 077 && openssl rand -hex 32 >"$local/ops.key")
serve() {
  PUSH_GATEWAY_HTTP_LISTEN=127.0.0.1:$port PUSH_GATEWAY_LOG_LEVEL=warning \
    PUSH_GATEWAY_DASHBOARD_OPS_KEY_FILE=$local/ops.key PUSH_GATEWAY_HTTP_HOSTS=$1 \
    "$gateway" serve --config "$local/simulators/gateway.yaml" >"$local/gateway.out" 2>>"$local/gateway.log" &
  gateway_pid=$!
  started="$gateway_pid $started"
  await "the gateway" "$gateway_pid" "$local/gateway.log" curl --noproxy '*' -fs "http://127.0.0.1:$port/readyz"
}
: >"$local/gateway.log"
serve ""

say "Half an hour of calls, as history has them, and some now"
sql -f Tests/dashboard/history.sql >/dev/null
"$gateway" enqueue Tests/dashboard/calls.jsonl >/dev/null
failed() { [ "$(sql -c "select count(*) from push.delivery_history where call_id = 'call-failed' and outcome = 'dead'")" -ge 2 ]; }
await "the failed call" "$gateway_pid" "$local/gateway.log" failed

say "Chromium"
browse() {
  PYTHONPATH='' PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -s Tests/dashboard/run.py --url "http://127.0.0.1:$port" \
    --key-file "$local/ops.key" --psql "$psql" --database "$DATABASE_URL" --pictures "$pictures" \
    --gateway-pid "$gateway_pid" "$@"
}
browse
cp "$local/ops.key" "$local/ops.key.used"
kill "$gateway_pid"
wait "$gateway_pid" || fail "the gateway did not end well, see $local/gateway.log"
say "A gateway that needs a login"
serve push.example.com
browse --locked
! grep -qF "$(cat "$local/ops.key.used")" "$local/gateway.log" || fail "the ops key is in $local/gateway.log"
say "Pictures are in $pictures"
