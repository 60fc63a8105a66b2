#!/bin/sh
# Installs the missing packages for building, testing and the demo. Debian and Ubuntu; as root or with sudo.
#
#   scripts/setup.sh                   what `make demo` and `make test` need
#   scripts/setup.sh --also PACKAGE…   that, and these Debian packages: for a target that needs more
set -eu

fail() { echo "setup.sh: $*" >&2; exit 1; }

command -v swift >/dev/null 2>&1 \
  || fail "there is no swift here: install Swift 6.2 or later from https://www.swift.org/install/linux/ and have it in PATH"

if [ "$(uname)" != Linux ]; then
  echo "setup.sh: not Linux, nothing is installed; with Homebrew: brew install libpq libnghttp2 curl openssl@3 zlib pkgconf nghttp2 postgresql tinyproxy"
  exit 0
fi
command -v dpkg-query >/dev/null 2>&1 \
  || fail "not a Debian system: install the headers of libpq, libnghttp2, libcurl, OpenSSL, zlib and jemalloc, pkg-config, Postgres, nghttp2, curl"

packages="libpq-dev libnghttp2-dev libcurl4-openssl-dev libssl-dev zlib1g-dev libjemalloc-dev pkg-config nghttp2-server nghttp2-client wrk curl openssl python3-venv pgbouncer python3-psycopg prometheus iproute2 prosody prosody-modules tinyproxy-bin nodejs default-jdk-headless libpostgresql-jdbc-java php-cli php-curl shellcheck python3-flake8 yamllint"

# Checks that each program or library works, however it was installed.
provided() {
  case $1 in
    libpq-dev) pkg-config --exists libpq ;;
    libnghttp2-dev) pkg-config --exists libnghttp2 ;;
    libcurl4-openssl-dev) pkg-config --exists libcurl ;;
    libssl-dev) pkg-config --exists openssl ;;
    zlib1g-dev) pkg-config --exists zlib ;;
    libjemalloc-dev) pkg-config --exists jemalloc ;;
    pkg-config) command -v pkg-config >/dev/null ;;
    nghttp2-server) command -v nghttpd >/dev/null ;;
    nghttp2-client) command -v h2load >/dev/null ;;
    iproute2) command -v ip >/dev/null || [ -x /usr/sbin/ip ] ;;
    curl | openssl | wrk | shellcheck | yamllint) command -v "$1" >/dev/null ;;
    python3-venv) python3 -c 'import venv, ensurepip' ;;
    pgbouncer) [ -x /usr/sbin/pgbouncer ] ;;
    prometheus) command -v prometheus && command -v promtool ;;
    prosody) command -v prosody ;;
    tinyproxy-bin) command -v tinyproxy ;;
    nodejs) command -v node ;;
    default-jdk-headless) command -v javac && command -v java ;;
    libpostgresql-jdbc-java) [ -f /usr/share/java/postgresql.jar ] ;;
    php-cli) command -v php ;;
    php-curl) php -r 'exit(extension_loaded("curl") ? 0 : 1);' ;;
    python3-psycopg) /usr/bin/python3 -c 'import psycopg' ;; # Debian's Python, which need not be the first in PATH
    python3-flake8) /usr/bin/python3 -c 'import flake8' ;;
    postgresql) { command -v pg_config >/dev/null && [ -x "$(pg_config --bindir)/initdb" ]; } || ls /usr/lib/postgresql/*/bin/initdb ;;
    *) [ "$(dpkg-query -W -f '${db:Status-Status}' "$1")" = installed ] ;;
  esac >/dev/null 2>&1
}

also=
case ${1:-} in
  "") ;;
  --also) shift && also=$* ;;
  *) sed -n '4,5s/^# *//p' "$0" >&2 && exit 64 ;;
esac

missing=
for package in $packages postgresql $also; do
  provided "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exec "$(dirname "$0")/node-packages.sh"

echo "Installing:$missing"
sudo=
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null 2>&1 || fail "neither root nor sudo: as root run: apt-get install$missing"
  sudo=sudo
fi
log=$(mktemp)
# The tests start Postgres, pgbouncer, Prometheus and the like themselves: no service of the system is started, now or at the next boot.
policy=/usr/sbin/policy-rc.d
made=
clean() {
  rm -f "$log"
  [ -z "$made" ] || $sudo rm -f "$policy"
}
trap clean EXIT
trap 'exit 130' INT TERM
if [ ! -e "$policy" ]; then
  made=yes
  printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null
  $sudo chmod +x "$policy"
fi
# shellcheck disable=SC2086 # the packages are words
install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 $missing >"$log" 2>&1; }
install || { $sudo apt-get update >"$log" 2>&1 && install; } || {
  tail -n 5 "$log" >&2
  fail "apt-get could not install$missing: is there a network? With one, as root: apt-get update && apt-get install$missing"
}
for package in postgresql pgbouncer prometheus prosody patroni haproxy etcd-server ejabberd; do
  case "$missing " in
    *" $package "*) [ ! -d /run/systemd/system ] || $sudo systemctl disable --quiet "${package%-server}" ;;
  esac
done
"$(dirname "$0")/node-packages.sh"
