#!/bin/sh
# The tests of deploy/: what the systemd unit says is run as systemd would run it, as far as that goes without systemd.
#
#   PUSH_GATEWAY=.build/debug/push-gateway PUSH_GATEWAY_TEST_DATABASE_URL=postgres://… Tests/deploy/run.sh
#
# Makes a scratch database beside the given one, starts simulators and a gateway with the unit's command, environment
# and credentials, and stops and drops all of it. Ends with "N passed, N failed"; non-zero when any failed. What
# cannot be tested because the machine lacks systemd-analyze or strace is listed as skipped.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
gateway=${PUSH_GATEWAY:-$root/.build/debug/push-gateway}
given=${PUSH_GATEWAY_TEST_DATABASE_URL:-}
[ -n "$given" ] || { echo "run.sh: PUSH_GATEWAY_TEST_DATABASE_URL is missing: see scripts/postgres.sh" >&2; exit 64; }
[ -x "$gateway" ] || { echo "run.sh: there is no program $gateway: build it, or name it in PUSH_GATEWAY" >&2; exit 64; }
gateway=$(cd "$(dirname "$gateway")" && pwd)/$(basename "$gateway")
unit=$root/deploy/systemd/push-gateway.service

name=push_deploy_$$
case $given in
  *\?*) server=${given%%\?*} parameters="?${given#*\?}" ;;
  *) server=$given parameters= ;;
esac
url=${server%/*}/$name$parameters
work=$(mktemp -d)
results=$work/results
: >"$results"
started=

cleanup() {
  for pid in $started; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  psql -Xq "$given" -c "drop database if exists $name with (force)" >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

ok() { echo "ok - $1" >>"$results"; }
not_ok() { echo "not ok - $1: $2" >>"$results"; }
skip() { echo "skipped - $1" >>"$results"; }
equal() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got [$2], want [$3]"; fi; }
passes() {
  what=$1
  shift
  if "$@" >"$work/out" 2>&1; then ok "$what"; else not_ok "$what" "$(tail -n 5 "$work/out" | tr '\n' ' ')"; fi
}

finish() {
  cat "$results"
  passed=$(grep -c '^ok - ' "$results" || true)
  failed=$(grep -c '^not ok - ' "$results" || true)
  echo "$passed passed, $failed failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ] || exit 1
  exit 0
}

# Waits until a command succeeds: for at most 5 minutes, and not longer than the process behind it lives.
await() {
  pid=$1 log=$2
  shift 2
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 3000 ] || ! kill -0 "$pid" 2>/dev/null; then
      not_ok "waiting for: $*" "$(tail -n 3 "$log" | tr '\n' ' ')"
      finish
    fi
    sleep 0.1
  done
}

# The values of a setting of the unit, one a line.
setting() { sed -n "s/^$1=//p" "$unit"; }

# --- The unit, as systemd reads it ---
if command -v systemd-analyze >/dev/null 2>&1; then
  sed "s|^ExecStart=/usr/bin/push-gateway|ExecStart=$gateway|" "$unit" >"$work/push-gateway.service"
  passes "systemd accepts the unit" systemd-analyze verify --man=no "$work/push-gateway.service"
  equal "systemd has nothing to say about it" "$(cat "$work/out")" ""
  # Tenths of systemd's exposure level, which goes from 0 to 10 and begins to be "OK" below 5.
  passes "the unit's exposure is at most 1.4" \
    systemd-analyze security --offline=true --threshold=14 "$work/push-gateway.service"
else
  skip "the unit as systemd reads it: no systemd-analyze"
fi
drain=$(sed -n 's/^ *drain_seconds: *\([0-9]*\).*/\1/p' "$root/deploy/systemd/gateway.yaml")
passes "the unit waits longer than the gateway drains" test "$(setting TimeoutStopSec)" -gt "$drain"

# --- A machine for it: database, providers, /etc/push-gateway ---
psql -Xq "$given" -c "create database $name"
DATABASE_URL=$url "$gateway" migrate >/dev/null

simulators=$work/simulators
"$gateway"-lab simulate --directory "$simulators" --host localhost --listen 127.0.0.1 --log "$work/pushes.jsonl" \
  >"$work/simulators.out" 2>"$work/simulators.log" &
simulator=$!
started=$simulator
await "$simulator" "$work/simulators.log" grep -q '"ready":true' "$work/simulators.out"
port=$(sed -n 's/.*"expo":\([0-9]*\).*/\1/p' "$work/simulators.out")
passes "compose's health check finds the simulators" \
  curl --silent --show-error --noproxy '*' --max-time 60 --cacert "$simulators/ca.pem" --output /dev/null \
  "https://localhost:$port/"

etc=$work/etc/push-gateway
mkdir -p "$etc"
cp "$simulators/apns-key.p8" "$simulators/fcm-service-account.json" "$simulators/expo-access-token" "$etc"
sed 's|^database: .*|database: postgres:///?service=push-gateway|' "$root/deploy/systemd/gateway.yaml" >"$etc/gateway.yaml"
chmod 600 "$etc/gateway.yaml"
cat >"$etc/pg_service.conf" <<SERVICE
[push-gateway]
$(echo "${url%%\?*}" | sed -E -e 's|^[a-z]+://(([^:@/]*)(:([^@/]*))?@)?([^:/]*)(:([0-9]+))?/(.*)$|\
host=\5\nport=\7\ndbname=\8\nuser=\2\npassword=\4|' | sed -e '/=$/d' -e '/^$/d')
SERVICE

# --- The unit's command, as systemd would start it ---
# LoadCredential=: copies in a folder of the service's own, which the unit calls %d.
credentials=$work/credentials
mkdir -m 700 "$credentials"
setting LoadCredential | while IFS=: read -r credential path; do
  file=$work$path
  # SetCredential=: an empty line in place of a file that is missing.
  [ -f "$file" ] || { setting SetCredential | grep -qx "$credential:\\\\n" && file=$work/line && echo >"$file"; } \
    || { echo "run.sh: the unit needs $path" >&2; exit 1; }
  cp "$file" "$credentials/$credential"
  chmod 400 "$credentials/$credential"
done
environment=$(setting Environment | sed "s|%d|$credentials|g")
command=$(setting ExecStart | sed "s|^/usr/bin/push-gateway|$gateway|; s|%d|$credentials|g")

# The example names the real providers and a team that is not the simulators'.
value_of() { sed -n "s/.*[{, ]$1: *\"\{0,1\}\([^\",} ]*\).*/\1/p" | head -n 1; }
value() { value_of "$1" <"$simulators/gateway.yaml"; }
url_of() { sed -n "/^ *$1:/,\$p" "$simulators/gateway.yaml" | value_of url; }
python3 "$root/Tests/servers/held_ports.py" 1 >"$work/ports" 2>"$work/ports.log" &
ports=$!
started="$ports $started"
await "$ports" "$work/ports.log" grep -q . "$work/ports"
http=$(cat "$work/ports")
app=PUSH_GATEWAY_APPS_PORTEIRO
overrides="PUSH_GATEWAY_HTTP_LISTEN=127.0.0.1:$http PUSH_GATEWAY_TLS_CA_FILE=$simulators/ca.pem
  ${app}_APNS_TEAM_ID=$(value team_id) ${app}_APNS_KEY_ID=$(value key_id) ${app}_APNS_TOPIC=$(value topic)
  ${app}_APNS_PRODUCTION_URL=$(value production_url) ${app}_APNS_SANDBOX_URL=$(value sandbox_url)
  ${app}_FCM_URL=$(url_of fcm) ${app}_EXPO_URL=$(url_of expo) ${app}_RING_SECONDS=600"

# shellcheck disable=SC2086 # these are words
passes "check-config is content with the example and the unit's credentials" \
  env -i $environment "$gateway" check-config --config "$credentials/gateway.yaml"

cat >"$work/notify.py" <<'PYTHON'
# Stands for systemd: writes down every datagram that reaches its notification socket.
import socket, sys
path, log = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(path)
with open(log, "w", buffering=1) as file:
    while True:
        file.write(listener.recv(4096).decode())
PYTHON
python3 "$work/notify.py" "$work/notify.socket" "$work/notified" 2>"$work/notify.log" &
notify=$!
started="$notify $started"
await "$notify" "$work/notify.log" test -S "$work/notify.socket"

trace=
if command -v strace >/dev/null 2>&1 && strace -D -f -q -o "$work/trace" true 2>/dev/null; then
  trace="strace -D -f -q -o $work/trace"
fi
# shellcheck disable=SC2086 # these are words
env -i NOTIFY_SOCKET="$work/notify.socket" WATCHDOG_USEC=2000000 $environment $overrides $trace $command 2>"$work/gateway.log" &
serving=$!
started="$serving $started"
await "$serving" "$work/gateway.log" grep -q '^READY=1$' "$work/notified"
ok "the gateway tells systemd that it is ready"
# It claims before the first connection to a provider is ready.
await "$serving" "$work/gateway.log" \
  curl --fail --silent --show-error --noproxy '*' --max-time 60 "http://127.0.0.1:$http/readyz"
ok "the image's health check agrees as soon as a provider is connected"
equal "a status line says what it serves" \
  "$(grep -c '^STATUS=serving porteiro/apns porteiro/fcm porteiro/expo$' "$work/notified")" 1
passes "the unit has a watchdog" test "$(setting WatchdogSec)" -ge 10
await "$serving" "$work/gateway.log" sh -c 'test "$(grep -c "^WATCHDOG=1$" "$1")" -ge 2' sh "$work/notified"
ok "it feeds the watchdog, at half the time it is given"
equal "without a terminal its log is JSON" \
  "$(python3 -c 'import json, sys; print(all("message" in json.loads(line) for line in sys.stdin))' <"$work/gateway.log")" True
equal "it has not told that it is stopping" "$(grep -c '^STOPPING=1$' "$work/notified")" 0

token=c0ffee$(od -An -N29 -tx1 /dev/urandom | tr -d ' \n')
echo '{"app": "porteiro", "payload": {"callId": "deployed", "from": "doorman", "fromName": "Portaria"}, "recipients": [
  {"userId": "ana", "voipPushToken": "'"$token"'", "platform": "ios"},
  {"userId": "bruno", "fcmToken": "deploy_fcm_'"$token"':APA91b", "platform": "android"},
  {"userId": "carla", "pushToken": "ExponentPushToken[deployDEPLOYdeployDEPL]", "platform": "android"}]}' |
  tr -d '\n' >"$work/call.jsonl"
DATABASE_URL=$url "$gateway" enqueue "$work/call.jsonl" >/dev/null
settled() { [ "$(psql -XAtq "$url" -c "select not exists (select from push.deliveries)")" = t ]; }
await "$serving" "$work/gateway.log" settled
equal "a call rings all three phones with the unit's configuration" \
  "$(psql -XAtq "$url" -c "select string_agg(provider || ' ' || outcome, ', ' order by provider)
    from push.delivery_history")" \
  "apns delivered, expo delivered, fcm delivered"

kill -TERM "$serving"
status=0
wait "$serving" || status=$?
started="$notify $ports $simulator"
equal "SIGTERM ends it with 0" "$status" 0
equal "it tells systemd that it is stopping, once" "$(grep -c '^STOPPING=1$' "$work/notified")" 1
equal "ready comes before stopping" \
  "$(grep -E '^(READY|STOPPING)=' "$work/notified" | tr '\n' ' ')" "READY=1 STOPPING=1 "

# --- What it asked of the kernel, against what the unit lets it ask ---
if [ -n "$trace" ] && command -v systemd-analyze >/dev/null 2>&1; then
  # The tracer is a process of its own, and may still be writing.
  tries=0
  until tail -n 3 "$work/trace" | grep -q '+++ exited with 0 +++' || [ "$tries" -ge 3000 ]; do
    tries=$((tries + 1))
    sleep 0.1
  done
  # The system calls of a set, the sets in it included.
  calls_of() {
    systemd-analyze syscall-filter "$1" | sed -n 's/^    \([@a-z_0-9-]*\)$/\1/p' | while read -r call; do
      case $call in @*) calls_of "$call" ;; *) echo "$call" ;; esac
    done
  }
  # Line by line, as systemd does: the later one wins.
  : >"$work/allowed"
  setting SystemCallFilter | while read -r line; do
    echo "${line#"~"}" | tr ' ' '\n' | while read -r set; do
      case $set in @*) calls_of "$set" ;; *) echo "$set" ;; esac
    done | sort -u >"$work/set"
    case $line in
      "~"*) comm -23 "$work/allowed" "$work/set" ;;
      *) sort -u "$work/allowed" "$work/set" ;;
    esac >"$work/sum"
    mv "$work/sum" "$work/allowed"
  done
  sed -n 's/^[0-9]* *\([a-z_0-9]*\)(.*/\1/p' "$work/trace" | sort -u >"$work/called"
  passes "the trace is one of a gateway at work" grep -qx 'sendto' "$work/called"
  equal "it calls nothing that SystemCallFilter= denies" "$(comm -23 "$work/called" "$work/allowed" | tr '\n' ' ')" ""
  # MemoryDenyWriteExecute=: no memory both writable and executable, none made executable later.
  equal "it makes no memory executable" \
    "$(grep -E 'mmap\(.*PROT_WRITE\|PROT_EXEC|mprotect\(.*PROT_EXEC|shmat\(.*SHM_EXEC' "$work/trace" | head -n 3)" ""
  # ProtectSystem=strict: only /dev and its private /tmp can be written to.
  equal "it opens no file for writing" \
    "$(grep -E 'open(at)?\(.*O_(WRONLY|RDWR|CREAT)' "$work/trace" | grep -v '"/dev/' | head -n 3)" ""
else
  skip "what it asks of the kernel: no strace that works, or no systemd-analyze"
fi

finish
