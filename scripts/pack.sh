#!/bin/sh
# Packs a folder as a .tar.gz whose bytes depend only on names, contents and executable bits.
#
#   SOURCE_DATE_EPOCH=1700000000 scripts/pack.sh FOLDER FILE.tar.gz
set -eu
[ $# -eq 2 ] || { sed -n '2,4p' "$0" >&2; exit 64; }
: "${SOURCE_DATE_EPOCH:?is missing: the time of everything in the archive, in seconds}"
LC_ALL=C tar --create --directory "$(dirname "$1")" --sort=name --format=ustar --owner=0 --group=0 --numeric-owner \
  --mode='u=rwX,go=rX' --mtime="@$SOURCE_DATE_EPOCH" "$(basename "$1")" | gzip -9 --no-name >"$2.part"
mv "$2.part" "$2"
