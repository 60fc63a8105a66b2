#!/bin/sh
# Checks that a release can be reproduced: builds the tarball of the last commit twice, from two clones in two folders
# with different settings, and compares all bytes. Two whole builds take ten minutes or more.
#
#   scripts/release-check.sh [FOLDER]    keeps the tarball in FOLDER; default: dist
set -eu
cd "$(dirname "$0")/.."
root=$PWD
output=${1:-dist}
mkdir -p "$output"
output=$(cd "$output" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

[ -z "$(git status --porcelain)" ] || { echo "release-check.sh: there are changes that are not committed: git status" >&2; exit 1; }
SBOM_TOOLS=$root/.local/sbom
export SBOM_TOOLS
commit=$(git rev-parse HEAD)
first=$work/a
second="$work/another/folder, far away/push-gateway"
mkdir -p "$work/another/folder, far away"
(umask 022 && git clone --quiet --no-hardlinks "$root" "$first")
(umask 077 && git clone --quiet --no-hardlinks "$root" "$second")
for clone in "$first" "$second"; do git -C "$clone" -c advice.detachedHead=false checkout --quiet "$commit"; done
(umask 022 && cd "$first" && TZ=UTC scripts/release.sh "$work/first")
(umask 077 && cd "$second" && LANG=de_DE.UTF-8 TZ=Asia/Tokyo scripts/release.sh "$work/second")

for tarball in "$work"/first/*.tar.gz; do
  name=$(basename "$tarball")
  if cmp -s "$tarball" "$work/second/$name"; then
    cp "$tarball" "$tarball.sha256" "$output/"
    echo "$name: the same twice, $(cut -c1-64 "$tarball.sha256")"
  else
    echo "release-check.sh: two builds of $commit differ. Files that do:" >&2
    for which in first second; do mkdir "$work/$which/x" && tar -xzf "$work/$which/$name" -C "$work/$which/x"; done
    diff -rq "$work/first/x" "$work/second/x" >&2 || true
    rm -rf "$output/different" && mkdir -p "$output/different"
    mv "$work/first" "$work/second" "$output/different/"
    echo "release-check.sh: both are in $output/different" >&2
    exit 1
  fi
done
