#!/bin/sh
# Builds the Debian packages of the last commit, and installs, runs, upgrades and removes them in a Debian 12 of their own.
#
#   scripts/deb.sh [FOLDER]           into FOLDER; default: dist. Two release builds, about a quarter of an hour, and the check
#   scripts/deb.sh build [FOLDER]     without the check
#   scripts/deb.sh check [FOLDER]     the check of the packages in FOLDER: about four minutes; the first time debootstrap, too
#
# PROGRAMS=FOLDER packages the programs in that folder instead of building them, to work on the packages; do not publish those.
# PACKAGE_MAINTAINER='NAME <ADDRESS>' says who builds the packages. The check needs root, for debootstrap and chroot.
set -eu
cd "$(dirname "$0")/.."

say() { echo "== $*"; }
fail() { echo "deb.sh: $*" >&2; exit 1; }

what=all
case ${1:-} in
  build | check) what=$1 && shift ;;
  -*) sed -n '4,9s/^# *//p' "$0" >&2 && exit 64 ;;
esac
output=${1:-dist}
mkdir -p "$output"
output=$(cd "$output" && pwd)
root=$PWD
[ "$what" = build ] || [ "$(id -u)" = 0 ] || fail "the check needs root: sudo scripts/deb.sh; without it: scripts/deb.sh build"

build() {
  . scripts/lib/release.sh
  if [ -n "${PROGRAMS:-}" ]; then
    PROGRAMS=$(cd "$PROGRAMS" && pwd)
    export PROGRAMS
    say "PROGRAMS: packages the programs in $PROGRAMS, which need not be of this commit"
  fi
  scripts/setup.sh --also debhelper fakeroot git man-db
  release_source
  cp -R deploy/debian debian
  maintainer=${PACKAGE_MAINTAINER:-$(sed -n 's/^Maintainer: //p' debian/control)}
  sed -i "s|^Maintainer: .*|Maintainer: $maintainer|" debian/control
  scripts/debian_changelog.py "$maintainer" >debian/changelog
  [ -n "${PROGRAMS:-}" ] || release_packages

  # What it prints goes to a file, too; the lines of the compiler show how far it is.
  say "debhelper builds push-gateway and push-gateway-lab"
  status=0
  { SBOM_TOOLS="${SBOM_TOOLS:-$root/.local/sbom}" dpkg-buildpackage --build=binary --no-sign 2>&1 || echo "$?" >"$release_folder/failed"; } |
    tee "$release_folder/build.log"
  [ ! -e "$release_folder/failed" ] || status=$(cat "$release_folder/failed")
  [ "$status" = 0 ] || fail "dpkg-buildpackage ended with $status; with KEEP=1 its folder stays: $release_folder"
  (cd "$release_folder" && sha256sum -- *.deb)
  rm -f "$output"/push-gateway*.deb
  cp "$release_folder"/*.deb "$output/"
  cd "$root"
}

check() {
  scripts/setup.sh --also debhelper lintian debootstrap systemd systemd-container man-db
  # Its mounts end with it.
  unshare --mount --propagation private /usr/bin/python3 Tests/debian/packages.py "$output"
}

[ "$what" = check ] || (build)
[ "$what" = build ] || check
