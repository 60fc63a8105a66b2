#!/bin/sh
# Called by debian/rules: puts the two programs, and the licences of what they contain, into a folder.
#
#   debian/programs.sh FOLDER
#   PROGRAMS=.build/release debian/programs.sh FOLDER     takes the programs from there, without licences: for work on the packages
set -eu
folder=$1
if [ -n "${PROGRAMS:-}" ]; then
  cp "$PROGRAMS/push-gateway" "$PROGRAMS/push-gateway-lab" "$folder/"
  exit 0
fi
. scripts/lib/release.sh
commit=$(git rev-parse HEAD)
# Debug symbols are found by build id: every program has its own.
release_build push-gateway "0x$commit"
release_build push-gateway-lab "0x$(printf 'push-gateway-lab %s' "$commit" | sha1sum | cut -c1-40)"
cp .build/release/push-gateway .build/release/push-gateway-lab "$folder/"
scripts/sbom.py --program "$folder/push-gateway" --licences "$folder/licences"
