#!/bin/sh
# Measures a scrape of /metrics while many deliveries are owed, with a whole gateway, Postgres and simulated providers.
#
#   scripts/bench-scrape.sh [PENDING [SCRAPES]]     100,000 deliveries and 20 scrapes unless told otherwise
#
# Prints the times of scrapes that read the database and of scrapes that get the previous result. Fails if the median of
# the first kind is above SCRAPE_MS_MAX (50). PUSH_GATEWAY is the program; by default the release build is made and
# used.
set -eu
cd "$(dirname "$0")/.."
pending=${1:-100000} scrapes=${2:-20} limit=${SCRAPE_MS_MAX:-50}
local=.local/bench-scrape
mkdir -p "$local"
. scripts/lib/processes.sh

gateway=${PUSH_GATEWAY:-}
[ -n "$gateway" ] || {
  swift build -c release --product push-gateway
  swift build -c release --product push-gateway-lab
  gateway=$(swift build -c release --show-bin-path)/push-gateway
}
start_database
# shellcheck disable=SC2119 # no options
start_simulators
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
PUSH_GATEWAY_HTTP_LISTEN=127.0.0.1:$port "$gateway" serve --config "$local/simulators/gateway.yaml" \
  >"$local/serve.log" 2>&1 &
started="$! $started"
await "the gateway" "$!" "$local/serve.log" curl --noproxy '*' -sf "$url/readyz"

"$psql" -Xqv ON_ERROR_STOP=1 "$DATABASE_URL" <<SQL
update push.lanes set paused = true;
insert into push.delivery (outbox_id, n, deadline_at, due_at, lane, ready_lane, kind, state, user_id, token)
select i, 0, now() + interval '1 hour', now() + interval '1 hour', l.id, case when i % 10 <> 0 then l.id end, i % 4,
  case i % 10 when 0 then 2 else 0 end,
  'user-' || i, repeat('ab', 32)
from generate_series(1, $pending) i join (select id, row_number() over () - 1 as r from push.lane) l
  on l.r = i % (select count(*) from push.lane);
vacuum analyze push.delivery;
SQL

scrape() { curl --noproxy '*' -so "$local/metrics" -w '%{time_total}\n' "$url/metrics"; }
rm -f "$local/fresh" "$local/cached"
scrape >/dev/null
i=0
while [ $i -lt "$scrapes" ]; do
  sleep 1.1  # longer than what was seen is told again
  scrape >>"$local/fresh"
  scrape >>"$local/cached"
  i=$((i + 1))
done
seen=$(awk '/^push_gateway_pending[{]/ { sum += $2 } END { printf "%d", sum }' "$local/metrics")
# A large backlog is estimated (push.count_owed).
awk -v seen="$seen" -v owed="$pending" 'BEGIN { exit seen < 0.8 * owed || seen > 1.2 * owed }' \
  || fail "$seen deliveries are seen, $pending are owed"

median() { sort -n "$1" | awk '{ v[NR] = $1 * 1000 } END { printf "%.1f", v[int((NR + 1) / 2)] }'; }
fresh=$(median "$local/fresh") cached=$(median "$local/cached")
best=$(sort -n "$local/fresh" | awk 'NR == 1 { printf "%.1f", $1 * 1000 }')
series=$(grep -cv '^#' "$local/metrics")
echo "$pending deliveries owed, $series series: a scrape takes $fresh ms (best $best), \
or $cached ms within a second of another (medians of $scrapes)"
awk -v got="$fresh" -v most="$limit" 'BEGIN { exit got > most }' || fail "more than $limit ms"
