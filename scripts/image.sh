#!/bin/sh
# Builds the container image of the last commit from Debian packages, and starts it. It needs neither Docker nor a registry.
#
#   scripts/image.sh [FOLDER]         into FOLDER; default: dist. A release build, about ten minutes, and the check
#   scripts/image.sh build [FOLDER]   without the check
#   scripts/image.sh check [FOLDER]   the check of the image in FOLDER: a minute
#
# PROGRAMS=FOLDER packs the program in that folder instead of building it, to work on the image; do not publish that one.
# DEBIAN_MIRROR and DEBIAN_SECURITY_MIRROR are the sources of Debian packages. Both parts need root.
set -eu
cd "$(dirname "$0")/.."

say() { echo "== $*"; }
fail() { echo "image.sh: $*" >&2; exit 1; }

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
[ "$(id -u)" = 0 ] || fail "needs root, for the owners of the image's files: sudo env \"PATH=\$PATH\" scripts/image.sh"
# The check needs it, after a build of ten minutes.
[ "$what" = build ] || [ -x .build/debug/push-gateway-lab ] || [ -x .build/release/push-gateway-lab ] \
  || fail "there is no push-gateway-lab, whose simulators stand for the providers: make build"
version=$(sed -n 's/.*current = "\(.*\)".*/\1/p' Sources/Settings/GatewayVersion.swift)
image=$output/push-gateway-$version-oci.tar

# curl is only for the health check; its library is needed anyway.
packages=ca-certificates,curl,libcurl4,libjemalloc2,libnghttp2-14,libpq5,libssl3,libstdc++6,zlib1g

# What the image needs of Debian, without set-uid programs. Packing leaves out what deploy/image.json says: it belongs to the machine
# that builds, or differs from build to build.
debian() {
  mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
  security=${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security}
  mmdebstrap --quiet --variant=essential --include="$packages" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook='echo push-gateway:x:10001: >>"$1/etc/group"' \
    --customize-hook='echo push-gateway:x:10001:10001::/var/lib/push-gateway:/usr/sbin/nologin >>"$1/etc/passwd"' \
    --customize-hook='install --directory --owner=10001 --group=10001 "$1/var/lib/push-gateway"' \
    --customize-hook='install --directory "$1/etc/push-gateway"' \
    --customize-hook='find "$1" -xdev -type f -perm /6000 -exec chmod a-s {} +' \
    bookworm "$1" "deb $mirror bookworm main" "deb $mirror bookworm-updates main" "deb $security bookworm-security main"
}

build() {
  . scripts/lib/release.sh
  [ -z "${PROGRAMS:-}" ] || PROGRAMS=$(cd "$PROGRAMS" && pwd)
  scripts/setup.sh --also mmdebstrap
  release_source
  stage=$release_folder/stage
  documents=$stage/usr/share/doc/push-gateway
  mkdir -p "$stage/usr/local/bin" "$documents"
  if [ -n "${PROGRAMS:-}" ]; then
    say "PROGRAMS: packs the program in $PROGRAMS, which need not be of this commit, without an SBOM of it"
    strip --strip-debug -o "$stage/usr/local/bin/push-gateway" "$PROGRAMS/push-gateway"
    echo '{"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": []}' >"$release_folder/program.cdx.json"
  else
    release_packages
    say "Building"
    release_build push-gateway "0x$release_commit"
    strip --strip-debug -o "$stage/usr/local/bin/push-gateway" .build/release/push-gateway
    SBOM_TOOLS="${SBOM_TOOLS:-$root/.local/sbom}" \
      scripts/sbom.py --program "$stage/usr/local/bin/push-gateway" --output "$release_folder/program.cdx.json"
    scripts/sbom.py --program "$stage/usr/local/bin/push-gateway" --licences "$documents/licences"
  fi
  [ "$("$stage/usr/local/bin/push-gateway" --version)" = "$version" ] || fail "the program does not say that it is $version"
  cp LICENSE NOTICE "$documents/"

  say "Debian 12 without what the program does not need"
  debian "$release_folder/debian.tar"
  say "Packing"
  scripts/oci_image.py sbom "$release_folder/program.cdx.json" "$release_folder/debian.tar" "$documents/push-gateway.cdx.json"
  python3 - "$(dpkg --print-architecture)" "$version" "$release_commit" >"$release_folder/image.json" <<'PYTHON'
import json, sys
description = json.load(open("deploy/image.json"))
architecture, version, commit = sys.argv[1:]
description["architecture"] = architecture
description["config"]["Labels"] |= {"org.opencontainers.image.version": version, "org.opencontainers.image.revision": commit}
json.dump(description, sys.stdout)
PYTHON
  mv "$stage" "$release_folder/program"
  scripts/oci_image.py pack --output "$image" --name "push-gateway:$version" --config "$release_folder/image.json" \
    "$release_folder/debian.tar" "$release_folder/program"
  cp "$release_folder/program/usr/share/doc/push-gateway/push-gateway.cdx.json" "${image%.tar}.cdx.json"
  (cd "$output" && sha256sum "$(basename "$image")" | tee "$(basename "$image").sha256")
  cd "$root"
  rm -rf "$release_folder"
  trap - EXIT
}

check() {
  [ -e "$image" ] || fail "there is no $image: scripts/image.sh build"
  scripts/setup.sh --also runc
  exec /usr/bin/python3 Tests/image/run.py "$image"
}

[ "$what" = check ] || build
[ "$what" = build ] || check
