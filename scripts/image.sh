#!/bin/sh
# Builds the container image of a release; its base images are pinned by digest.
#
#   scripts/image.sh pin              look up the digests of deploy/image-bases, and write them there; commit that
#   scripts/image.sh check            whether every base has a digest
#   scripts/image.sh build [TAG]      check, then build push-gateway:VERSION (or TAG)
#
# A tag such as debian:bookworm-slim names another image next week; a digest does not. `docker build -f deploy/Dockerfile .` and
# compose take the tags, for trying things out. IMAGE_BASES names another file than deploy/image-bases.
set -eu
cd "$(dirname "$0")/.."
bases=${IMAGE_BASES:-deploy/image-bases}
fail() { echo "image.sh: $*" >&2; exit 1; }

# The lines NAME=IMAGE of the file.
settings() { grep -E '^[A-Z_]+=' "$bases" || fail "$bases names no image"; }

# Every base image of the Dockerfile must be in the file, and every image in the file must be pinned.
check() {
  faults=
  # shellcheck disable=SC2013 # one image a line, without blanks
  for image in $(sed -n 's/^FROM  *\(--[^ ]*  *\)*\([^ ]*\).*/\2/p' deploy/Dockerfile); do
    # A stage of its own.
    [ "$image" != base ] || continue
    name=$(expr "$image" : '\${\([A-Z_]*\)}$') || fail "deploy/Dockerfile begins with $image, and not with an argument of $bases"
    settings | grep -q "^$name=" || fail "$bases does not say what $name is"
  done
  if grep -qi '^# *syntax *=' deploy/Dockerfile; then fail "deploy/Dockerfile has a line # syntax=: one more image, without a digest"; fi
  for setting in $(settings); do
    expr "$setting" : '[A-Z_]*=[^@]*@sha256:[0-9a-f]\{64\}$' >/dev/null || faults="$faults ${setting#*=}"
  done
  [ -z "$faults" ] || fail "no digest:$faults. Where there are Docker and a network: make image-pin, and commit $bases"
}

pin() {
  command -v docker >/dev/null || fail "there is no docker here to ask the registry"
  for setting in $(settings); do
    image=${setting#*=}
    image=${image%@*}
    digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')
    expr "$digest" : 'sha256:[0-9a-f]\{64\}$' >/dev/null || fail "the registry has no digest for $image: $digest"
    sed "s|^${setting%%=*}=.*|${setting%%=*}=$image@$digest|" "$bases" >"$bases.part"
    mv "$bases.part" "$bases"
    echo "$image@$digest"
  done
}

build() {
  check
  [ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed: git status"
  command -v docker >/dev/null || fail "there is no docker here"
  scripts/sbom.py --pin
  version=$(sed -n 's/.*current = "\(.*\)".*/\1/p' Sources/Settings/GatewayVersion.swift)
  arguments=
  for setting in $(settings); do arguments="$arguments --build-arg $setting"; done
  # shellcheck disable=SC2086 # the arguments are words
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) docker build --pull -f deploy/Dockerfile $arguments \
    --label "org.opencontainers.image.revision=$(git rev-parse HEAD)" \
    --label "org.opencontainers.image.version=$version" -t "${1:-push-gateway:$version}" .
}

case ${1:-} in
  pin | check) "$1" ;;
  build) shift && build "$@" ;;
  *) sed -n '2,9p' "$0" >&2; exit 64 ;;
esac
