#!/bin/sh
# Writes the files of dashboard/ into the binary's source, so that one installed file is all there is.
#
#   scripts/embed-dashboard.sh            write Sources/Gateway/Dashboard/EmbeddedDashboard.swift
#   scripts/embed-dashboard.sh --check    only say whether it is up to date
set -eu
cd "$(dirname "$0")/.."
assets=dashboard
target=Sources/Gateway/Dashboard/EmbeddedDashboard.swift

# index.html is the page, any other file is below /ui/.
path() { if [ "$1" = index.html ]; then echo /; else echo "/ui/$1"; fi; }
type() {
  case $1 in
    *.html) echo "text/html; charset=utf-8" ;;
    *.css) echo "text/css; charset=utf-8" ;;
    *.js) echo "text/javascript; charset=utf-8" ;;
    *.svg) echo "image/svg+xml" ;;
    *) echo "$assets/$1: of a type that embed-dashboard.sh does not know" >&2; exit 1 ;;
  esac
}

generate() {
  echo "// The files of $assets/, made by scripts/embed-dashboard.sh: edit those, not this."
  echo '// swift-format-ignore-file'
  echo
  echo 'extension DashboardAsset {'
  echo '  static let all: [DashboardAsset] = ['
  for file in "$assets"/*; do
    name=$(basename "$file")
    type=$(type "$name")
    printf '    DashboardAsset(path: "%s", type: "%s", text: %s),\n' "$(path "$name")" "$type" "$(echo "$name" | tr . _)"
  done
  echo '  ]'
  echo '}'
  for file in "$assets"/*; do
    grep -q '"""###' "$file" && { echo "$file: holds \"\"\"###, which would end the text early" >&2; exit 1; }
    echo
    printf 'private let %s = ###"""\n' "$(basename "$file" | tr . _)"
    cat "$file"
    # A text ends with the line break before its closing quotes; the file's own last one needs a line more.
    [ -z "$(tail -c 1 "$file")" ] && echo
    echo '"""###'
  done
}

if [ "${1:-}" = --check ]; then
  generate | cmp -s - "$target" || { echo "$target is stale: run scripts/embed-dashboard.sh" >&2; exit 1; }
else
  generate >"$target.new"
  mv "$target.new" "$target"
fi
