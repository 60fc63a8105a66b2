#!/bin/sh
# Tests the HTTP API against its description (schemathesis) and against attackers: five minutes.
# The attacks: floods of requests and of bytes, slow clients, and last more connections than there are descriptors
# (scripts/test-descriptors.sh).
#
#   scripts/test-api.sh                  builds the gateway (debug) and tests it
#   PUSH_GATEWAY=… scripts/test-api.sh   tests this one
#   SECONDS_MAX=30 scripts/test-api.sh   a shorter run of schemathesis; default 120
#
# Starts its own programs and stops them at the end; installs only into .local/. Fails if there is any finding.
set -eu
cd "$(dirname "$0")/.."

local=.local/api
version=4.32.5
. scripts/lib/processes.sh

find_gateway
mkdir -p "$local"

if ! "$local/venv/bin/st" --version 2>/dev/null | grep -q "$version"; then
  say "Installing schemathesis $version"
  python3 -m venv "$local/venv"
  "$local/venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
fi

say "A private Postgres, simulators, and a gateway with its API on"
start_database
# shellcheck disable=SC2119 # without options
start_simulators

python3 Tests/servers/held_ports.py 4 >"$local/ports" 2>"$local/ports.log" &
ports_pid=$!
started="$ports_pid $started"
await "the ports" "$ports_pid" "$local/ports.log" sh -c '[ "$(wc -l <"$1")" -eq 4 ]' sh "$local/ports"
{ read -r ops_port; read -r api_port; read -r tls_port; read -r tls_ops_port; } <"$local/ports"
api=http://127.0.0.1:$api_port
(umask 077 && openssl rand -hex 32 >"$local/ops.key" && openssl rand -hex 32 >"$local/metrics.key")
# Its ops listener can be reached from other machines, so it requires a login.
PUSH_GATEWAY_HTTP_LISTEN=0.0.0.0:$ops_port PUSH_GATEWAY_DASHBOARD_OPS_KEY_FILE=$local/ops.key \
  PUSH_GATEWAY_HTTP_METRICS_KEY_FILE=$local/metrics.key PUSH_GATEWAY_API_ENABLED=true \
  PUSH_GATEWAY_API_LISTEN=127.0.0.1:$api_port PUSH_GATEWAY_LOG_LEVEL=notice \
  PUSH_GATEWAY_API_GORUSH_ENABLED=true PUSH_GATEWAY_API_MATRIX_NETWORKS=127.0.0.1 \
  PUSH_GATEWAY_APPS_PORTEIRO_MATRIX_FCM='com.example.app.*' \
  "$gateway" serve --config "$local/simulators/gateway.yaml" >"$local/gateway.out" 2>"$local/gateway.log" &
gateway_pid=$!
started="$gateway_pid $started"
await "the gateway" "$gateway_pid" "$local/gateway.log" curl --noproxy '*' -fs "http://127.0.0.1:$ops_port/readyz"
make_key() { "$psql" -XAtq "$DATABASE_URL" -c "select key from push.create_api_key('porteiro', 'test-api.sh'$1)"; }
key=$(make_key '')

# A second replica, whose listeners speak TLS.
scripts/certificates.sh "$local/certificates"
PUSH_GATEWAY_HTTP_LISTEN=127.0.0.1:$tls_ops_port PUSH_GATEWAY_API_ENABLED=true \
  PUSH_GATEWAY_API_LISTEN=127.0.0.1:$tls_port PUSH_GATEWAY_API_CONNECTIONS_MAX=64 PUSH_GATEWAY_LOG_LEVEL=warning \
  PUSH_GATEWAY_API_TLS_CERTIFICATE_FILE=$local/certificates/server.pem \
  PUSH_GATEWAY_API_TLS_KEY_FILE=$local/certificates/server.key \
  PUSH_GATEWAY_HTTP_TLS_CERTIFICATE_FILE=$local/certificates/server.pem \
  PUSH_GATEWAY_HTTP_TLS_KEY_FILE=$local/certificates/server.key \
  "$gateway" serve --config "$local/simulators/gateway.yaml" >"$local/tls.out" 2>"$local/tls.log" &
tls_pid=$!
started="$tls_pid $started"
await "the gateway with TLS" "$tls_pid" "$local/tls.log" \
  curl --noproxy '*' -fs --cacert "$local/certificates/ca.pem" "https://127.0.0.1:$tls_ops_port/readyz"

say "schemathesis, ${SECONDS_MAX:-120} s"
# Generates no U+0000: the description excludes it from texts, but cannot exclude it from names within metadata.
PYTHONPATH=Tests/api "$local/venv/bin/st" --config-file Tests/api/schemathesis.toml run openapi.yaml --url "$api" \
  --header "Authorization: Bearer $key" --checks all --max-time "${SECONDS_MAX:-120}" --generation-allow-x00 false \
  --no-color >"$local/schemathesis.log" 2>&1 \
  || { tail -n 120 "$local/schemathesis.log" | cut -c1-600 >&2; fail "a violation: see $local/schemathesis.log"; }
grep -A3 -E '^Test cases:|^=.* in [0-9.]+s' "$local/schemathesis.log" || true

say "Clients that generators make of openapi.yaml"
python3 Tests/api/clients.py --api "$api" --key "$key" --work "$local/clients" || fail "a generated client cannot use the API"

say "Attackers"
expired=$(make_key '')
"$psql" -XAtq "$DATABASE_URL" -c "update push.api_keys set expires_at = now() where id = $(echo "$expired" | cut -d_ -f2)"
fresh=$(make_key '')
bound=$(make_key ", addresses => '{127.0.0.2/32}'")
python3 Tests/api/attack.py --api "127.0.0.1:$api_port" --ops "127.0.0.1:$ops_port" --key "$key" \
  --fresh-key "$fresh" --expired-key "$expired" --bound-key "$bound" \
  --ops-key "$(cat "$local/ops.key")" --metrics-key "$(cat "$local/metrics.key")" \
  --tls-api "127.0.0.1:$tls_port" --tls-ops "127.0.0.1:$tls_ops_port" --ca "$local/certificates/ca.pem" \
  --tls-process "$tls_pid"

kill -0 "$gateway_pid" 2>/dev/null || fail "the gateway has ended, see $local/gateway.log"
kill -0 "$tls_pid" 2>/dev/null || fail "the gateway with TLS has ended, see $local/tls.log"
! grep -q "A request's statement failed" "$local/gateway.log" \
  || { tail -n 20 "$local/gateway.log" >&2; fail "a statement failed unexpectedly, see $local/gateway.log"; }
for secret in "$key" "$fresh" "$expired" "$bound" "$(cat "$local/ops.key")" "$(cat "$local/metrics.key")"; do
  ! grep -qF "$secret" "$local/gateway.log" || fail "a key is in $local/gateway.log"
done
# The clients that guess keys have sent many thousand requests.
refused=$(grep -c "Requests were refused" "$local/gateway.log") || fail "nobody is said to have been refused in $local/gateway.log"
[ "$refused" -lt 1000 ] || fail "$refused lines about refusals in $local/gateway.log"

say "Postgres crashes while calls are taken"
python3 Tests/api/durable.py --api "127.0.0.1:$api_port" --key "$key" --gateway "$gateway_pid" --cluster "$local/postgres"

# Starts its own gateways, with their own limits.
PUSH_GATEWAY=$gateway scripts/test-descriptors.sh

say "The API holds"
