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

. scripts/lib/release.sh

root=$PWD
folder=$release_folder
output=${1:-dist}
mkdir -p "$output"
output=$(cd "$output" && pwd)
release_source
commit=$release_commit
release_packages

say "Building"
release_programs

version=$(sed -n 's/.*current = "\(.*\)".*/\1/p' Sources/Settings/GatewayVersion.swift)
name=push-gateway-$version-linux-$(uname -m)
stage=$folder/$name
mkdir -p "$stage/bin"
for program in push-gateway push-gateway-lab; do
  strip --strip-debug -o "$stage/bin/$program" ".build/release/$program"
done
[ "$("$stage/bin/push-gateway" --version)" = "$version" ] || fail "the program does not say that it is $version"

say "Contents"
cp -R LICENSE NOTICE migrations docs deploy README.md CHANGELOG.md openapi.yaml "$stage/"
rm -rf "$stage/deploy/Dockerfile" "$stage/deploy/Dockerfile.dockerignore" "$stage/deploy/compose.yaml" "$stage/deploy/image.json"
scripts/sbom.py --program "$stage/bin/push-gateway" --page
scripts/sbom.py --program "$stage/bin/push-gateway" --licences "$stage/licences"
scripts/sbom.py --program "$stage/bin/push-gateway-lab" --licences "$stage/licences-lab"
for program in push-gateway push-gateway-lab; do
  SBOM_TOOLS="${SBOM_TOOLS:-$root/.local/sbom}" scripts/sbom.py --program "$stage/bin/$program" --output "$stage/$program.cdx.json"
done
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
