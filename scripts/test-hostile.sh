#!/bin/sh
# Sends a call through a whole gateway for each misbehaviour of a provider or the network (docs/reliability.md): a minute.
# With the time limits of an idle machine, and over connections that really lose packets. Uses a private Postgres cluster,
# which is stopped at the end.
#
#   scripts/test-hostile.sh                everything; the table goes to .local/hostile-table.md
#   scripts/test-hostile.sh --update-docs  also writes it into docs/reliability.md
#   scripts/test-hostile.sh NAME           the behaviours whose names contain NAME
#
# PUSH_GATEWAY_HOSTILE_IDLE_SECONDS: seconds that connections are idle before their packets are lost; default 6.
set -eu
cd "$(dirname "$0")/.."

# Packets are lost on a device in a network namespace of its own.
if [ -z "${PUSH_GATEWAY_HOSTILE_NETWORK:-}" ]; then
  if [ "$(uname)" = Linux ] && [ "$(id -u)" = 0 ] && [ -c /dev/net/tun ] && command -v ip >/dev/null \
    && unshare -n true 2>/dev/null
  then
    swift build --build-tests # here, where there is a network
    exec env PUSH_GATEWAY_HOSTILE_NETWORK=1 unshare -n "$0" "$@"
  fi
  echo "test-hostile.sh: skipped: packets that are really lost (that takes root, a network namespace, ip and /dev/net/tun)"
  PUSH_GATEWAY_HOSTILE_NETWORK=0
  swift build --build-tests
else
  ip link set lo up
fi
export PUSH_GATEWAY_HOSTILE_NETWORK

update=
if [ "${1:-}" = --update-docs ]; then
  update=yes
  shift
fi
cluster=.local/hostile
stop() { scripts/postgres.sh stop "$cluster" >/dev/null 2>&1 || true; }
trap stop EXIT
trap 'exit 130' INT TERM
PUSH_GATEWAY_TEST_DATABASE_URL=$(scripts/postgres.sh start "$cluster")
PUSH_GATEWAY_HOSTILE=1
PUSH_GATEWAY_HOSTILE_TABLE=$PWD/.local/hostile-table.md
export PUSH_GATEWAY_TEST_DATABASE_URL PUSH_GATEWAY_HOSTILE PUSH_GATEWAY_HOSTILE_TABLE
unset DATABASE_URL PUSH_GATEWAY_CONFIG
[ -z "${1:-}" ] || export PUSH_GATEWAY_HOSTILE_ONLY="$*"
rm -f "$PUSH_GATEWAY_HOSTILE_TABLE"

NO_COLOR=1 timeout --kill-after=10 900 "$(swift build --show-bin-path)/push-gatewayPackageTests.xctest" \
  --testing-library swift-testing --no-parallel --filter 'HostileTests|HostileNetworkTests|BadTokenTests'

[ -z "$update" ] || python3 - "$PUSH_GATEWAY_HOSTILE_TABLE" <<'PYTHON'
import pathlib, re, sys
page = pathlib.Path("docs/reliability.md")
# A flood has a line for each provider.
merged: dict[tuple[str, ...], list[str]] = {}
for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    times = merged.setdefault(tuple(cells[:3]), ["", "", ""])
    merged[tuple(cells[:3])] = [new or old for new, old in zip(cells[3:], times, strict=True)]
rows = "".join(f"| {' | '.join([*what, *times])} |\n" for what, times in merged.items())
text = page.read_text()
begin, end = "<!-- measured by make test-hostile: begin -->", "<!-- end -->"
head = "| behaviour | what the phone experiences | bound | APNs | FCM | Expo |\n|---|---|---|---|---|---|\n"
page.write_text(re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n{head}{rows}{end}", text, flags=re.S))
PYTHON
