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

# stoppable COMMAND…: runs it in a process group of its own, all of which ends when this script is stopped.
stoppable() {
  setsid "$@" &
  group=$!
  trap 'trap "" INT TERM; kill -- "-$group" 2>/dev/null; wait "$group"; exit 130' INT TERM
  status=0
  wait "$group" || status=$?
  trap 'exit 130' INT TERM
  return "$status"
}

what=all
case ${1:-} in
  build | check) what=$1 && shift ;;
  -*) sed -n '4,9s/^# *//p' "$0" >&2 && exit 64 ;;
esac
output=${1:-dist}
mkdir -p "$output"
output=$(cd "$output" && pwd)
root=$PWD
# sudo's own PATH has no Swift.
[ "$what" = build ] || [ "$(id -u)" = 0 ] \
  || fail "the check needs root: sudo env \"PATH=\$PATH\" scripts/deb.sh; without it: scripts/deb.sh build"

build() {
  . scripts/lib/release.sh
  if [ -n "${PROGRAMS:-}" ]; then
    PROGRAMS=$(cd "$PROGRAMS" && pwd)
    export PROGRAMS
    say "PROGRAMS: packages the programs in $PROGRAMS, which need not be of this commit"
  fi
  scripts/setup.sh --also build-essential debhelper fakeroot git man-db
  release_source
  cp -R deploy/debian debian
  maintainer=${PACKAGE_MAINTAINER:-$(sed -n 's/^Maintainer: //p' debian/control)}
  sed -i "s|^Maintainer: .*|Maintainer: $maintainer|" debian/control
  scripts/debian_changelog.py "$maintainer" >debian/changelog
  [ -n "${PROGRAMS:-}" ] || release_packages

  say "debhelper builds push-gateway and push-gateway-lab"
  export SBOM_TOOLS="${SBOM_TOOLS:-$root/.local/sbom}"
  stoppable dpkg-buildpackage --build=binary --no-sign \
    || fail "dpkg-buildpackage failed; with KEEP=1 its folder stays: $release_folder"
  (cd "$release_folder" && sha256sum -- *.deb)
  rm -f "$output"/push-gateway*.deb
  cp "$release_folder"/*.deb "$output/"
  cd "$root"
  rm -rf "$release_folder"
  trap - EXIT
}

check() {
  scripts/setup.sh --also debhelper lintian debootstrap systemd systemd-container man-db
  # Its mounts end with it.
  stoppable unshare --mount --propagation private /usr/bin/python3 Tests/debian/packages.py "$output"
}

[ "$what" = check ] || build
[ "$what" = build ] || check
