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
release_programs
cp .build/release/push-gateway .build/release/push-gateway-lab "$folder/"
scripts/sbom.py --program "$folder/push-gateway" --licences "$folder/licences"
