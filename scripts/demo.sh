#!/bin/sh
# One call rings three phones: a private Postgres, simulated providers, the gateway, all on this machine.
#
# Exits with 0 only if all three pushes were delivered. Stops everything that it has started, even if it fails. With PUSH_GATEWAY, it
# builds nothing and takes that program, and push-gateway-lab beside it. push-gateway-lab contains this script and those that it uses:
# its command `demo` copies them into PUSH_DEMO_FOLDER, which a demo that succeeds removes.
set -eu
cd "$(dirname "$0")/.."

local=$PWD/.local/demo

. scripts/lib/processes.sh

# A debug build: from nothing it takes half as long as a release build.
find_gateway
mkdir -p "$local"

say "A private Postgres in $local/postgres"
DATABASE_URL=$(scripts/postgres.sh start "$local/postgres")
export DATABASE_URL
echo "$DATABASE_URL"

say "Simulators of APNs, FCM, Expo and web push"
simulators=$local/simulators
start_simulators --log "$local/pushes.jsonl"
cat "$local/simulators.out"

say "Schema and configuration"
"$gateway" migrate
"$gateway" check-config --config "$simulators/gateway.yaml"

say "The gateway"
ready_port=$(shuf -i 20000-31999 -n 1)
PUSH_GATEWAY_HTTP_LISTEN=127.0.0.1:$ready_port "$gateway" serve --config "$simulators/gateway.yaml" 2>"$local/gateway.log" &
gateway_pid=$!
started="$gateway_pid $started"
await "the gateway" "$gateway_pid" "$local/gateway.log" curl --noproxy '*' -fs "http://127.0.0.1:$ready_port/readyz"
echo "http://127.0.0.1:$ready_port/readyz: ready"

say "The door rings: one resident with an iPhone, one with an Android phone, one with the app through Expo"
call_id=$(cat /proc/sys/kernel/random/uuid)
hex=c0ffee$(od -An -N29 -tx1 /dev/urandom | tr -d ' \n')  # no prefix that asks a simulator for a fault
cat >"$local/call.jsonl" <<CALL
{"app": "porteiro", "payload": {"callId": "$call_id", "from": "doorman-7", "fromName": "Portaria Sul", "apartmentNumber": "101", "buildingName": "Edifício Aurora", "channelName": "call-101", "metadata": {"schemaVersion": 1, "clientVersion": null}}, "recipients": [{"userId": "ana", "voipPushToken": "$hex", "platform": "ios", "environment": "production"}, {"userId": "bruno", "fcmToken": "demo_fcm_token_$hex:APA91b", "platform": "android"}, {"userId": "carla", "pushToken": "ExponentPushToken[demo$(echo "$hex" | cut -c1-18)]", "platform": "android"}], "ringSeconds": 60}
CALL
"$gateway" enqueue "$local/call.jsonl"

delivered() { [ "$("$gateway" timeline "$call_id" --json | grep -c '"event":"delivered"')" -eq "$1" ]; }
settled() {
  "$gateway" timeline "$call_id" --json >"$local/timeline.json"
  ! grep -Eq '"event":"(ready|claimed|waiting)"' "$local/timeline.json"
}
await "the gateway" "$gateway_pid" "$local/gateway.log" settled

say "What became of it: milliseconds since the backend's commit"
"$gateway" timeline "$call_id"
delivered 3 || { tail -n 20 "$local/gateway.log" >&2; fail "not every phone was reached, see $local/gateway.log and $local/simulators.log"; }

say "What the providers accepted"
cat "$local/pushes.jsonl"

if [ -n "${PUSH_DEMO_FOLDER:-}" ]; then
  say "All three phones ring."
  removed_at_end=$PUSH_DEMO_FOLDER
else
  say "All three phones ring. Logs and data are in $local."
fi
