#!/bin/sh
# Builds the release tarball of the last commit: push-gateway-VERSION-linux-ARCHITECTURE.tar.gz and its SHA-256.
#
#   scripts/release.sh [FOLDER]    into FOLDER; default: dist
#   SWIFT=/opt/swift/usr/bin/swift scripts/release.sh
#
# The same commit gives the same bytes, wherever it was cloned, with the same Swift and the same Debian packages: see
# docs/releases.md. It contains no uncommitted changes.
set -eu
cd "$(dirname "$0")/.."

say() { echo "== $*"; }
fail() { echo "release.sh: $*" >&2; exit 1; }

root=$PWD
# Always the same folder: the compiler's output contains the paths of sources, through `#filePath` and hashes of modules,
# and -file-prefix-map changes neither (docs/adr/0039-releases-that-can-be-built-again.md).
folder=/var/tmp/push-gateway-release
swift=${SWIFT:-swift}
output=${1:-dist}

[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed: git status"
mkdir -p "$output"
output=$(cd "$output" && pwd)

umask 022
export LC_ALL=C TZ=UTC
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
commit=$(git rev-parse HEAD)

# Another user must not have created it: its name is known to all users of this machine.
mkdir -m 700 "$folder" 2>/dev/null \
  || fail "$folder is there: another release is being built, or one was killed. If none is: rm -rf $folder"
# KEEP=1 keeps it after a failure, for inspection.
trap '[ $? -ne 0 ] && [ -n "${KEEP:-}" ] || rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM

say "Sources of $commit"
git -c advice.detachedHead=false clone --quiet --no-hardlinks "$root" "$folder/source"
cd "$folder/source"
git -c advice.detachedHead=false checkout --quiet "$commit"
scripts/sbom.py --pin
# Compiled Clang modules contain the times of headers.
find . -path ./.git -prune -o -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

say "Building"
# No debug information: it names the compiler's caches. Symbols stay, for backtraces. The build id is the commit.
$swift build -c release --product push-gateway --static-swift-stdlib --force-resolved-versions -debug-info-format none \
  -Xswiftc -file-prefix-map -Xswiftc "$PWD=/push-gateway" -Xcc "-ffile-prefix-map=$PWD=/push-gateway" -Xcc -g0 \
  -Xlinker "--build-id=0x$commit" -Xlinker "--dependency-file=$PWD/.build/push-gateway.link.d"

version=$(sed -n 's/.*current = "\(.*\)".*/\1/p' Sources/Settings/GatewayVersion.swift)
name=push-gateway-$version-linux-$(uname -m)
stage=$folder/$name
mkdir -p "$stage/bin"
strip --strip-debug -o "$stage/bin/push-gateway" .build/release/push-gateway
[ "$("$stage/bin/push-gateway" --version)" = "$version" ] || fail "the program does not say that it is $version"

say "Contents"
cp -R LICENSE NOTICE migrations docs deploy README.md CHANGELOG.md openapi.yaml "$stage/"
rm -rf "$stage/deploy/Dockerfile" "$stage/deploy/Dockerfile.dockerignore" "$stage/deploy/compose.yaml" "$stage/deploy/image-bases"
scripts/sbom.py --program "$stage/bin/push-gateway" --page
scripts/sbom.py --program "$stage/bin/push-gateway" --licences "$stage/licences"
SBOM_TOOLS="${SBOM_TOOLS:-$root/.local/sbom}" \
  scripts/sbom.py --program "$stage/bin/push-gateway" --output "$stage/push-gateway.cdx.json"
{
  echo "commit: $commit"
  echo "date: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
  echo "compiler: $(swift --version 2>/dev/null | head -n 1)"
  echo "packages that the compiler and the linker read:"
  dpkg-query -W -f '  ${Package} ${Version}\n' binutils gzip libc6-dev 'libgcc-*-dev' libcurl4-openssl-dev libjemalloc-dev \
    libnghttp2-dev libpq-dev libssl-dev 'libstdc++-*-dev' tar zlib1g-dev 2>/dev/null | grep -v ' $' | sort
} >"$stage/BUILD"
(cd "$stage" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs -d '\n' sha256sum >"$folder/sums")
mv "$folder/sums" "$stage/SHA256SUMS"

"$root/scripts/pack.sh" "$stage" "$output/$name.tar.gz"
(cd "$output" && sha256sum "$name.tar.gz" | tee "$name.tar.gz.sha256")
