#!/bin/sh
# Writes the files of migrations/ into the binary's source, so that one installed file is all there is to install.
#
#   scripts/embed-migrations.sh            write Sources/Gateway/Migrations/EmbeddedMigrations.swift
#   scripts/embed-migrations.sh --check    only say whether it is up to date
set -eu
cd "$(dirname "$0")/.."
target=Sources/Gateway/Migrations/EmbeddedMigrations.swift

generate() {
  echo '// The files of migrations/, made by scripts/embed-migrations.sh: edit those, not this.'
  echo '// swift-format-ignore-file'
  echo
  echo 'extension Migration {'
  echo '  /// In order of their versions.'
  echo '  static let embedded: [Migration] = ['
  for file in migrations/[0-9][0-9][0-9][0-9]_*.sql; do
    base=$(basename "$file" .sql)
    version=$(echo "${base%%_*}" | sed 's/^0*//')
    printf '    Migration(version: %s, name: "%s", sql: migration%s),\n' "$version" "${base#*_}" "${base%%_*}"
  done
  echo '  ]'
  echo '}'
  for file in migrations/[0-9][0-9][0-9][0-9]_*.sql; do
    base=$(basename "$file" .sql)
    grep -q '"""###' "$file" && { echo "$file: holds \"\"\"###, which would end the text early" >&2; exit 1; }
    echo
    printf 'private let migration%s = ###"""\n' "${base%%_*}"
    cat "$file"
    # A text ends with the line break before its closing quotes; the file's own last one needs a line more.
    [ -z "$(tail -c 1 "$file")" ] && echo
    echo '"""###'
  done
}

if [ "${1:-}" = --check ]; then
  generate | cmp -s - "$target" || { echo "$target is stale: run scripts/embed-migrations.sh" >&2; exit 1; }
else
  generate >"$target.new"
  mv "$target.new" "$target"
fi
