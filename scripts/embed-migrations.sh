#!/bin/sh
# Writes the files of migrations/ into the binary's source, so that one installed file is all there is to install.
#
#   scripts/embed-migrations.sh            write Sources/Gateway/Migrations/EmbeddedMigrations.swift
#   scripts/embed-migrations.sh --check    only say whether it is up to date
set -eu
cd "$(dirname "$0")/.."
target=Sources/Gateway/Migrations/EmbeddedMigrations.swift

# The name of a file's constant: migration0001, functionsClaim.
constant() {
  case $1 in
    */functions/*) basename "$1" .sql | awk -F_ '{ printf "functions"; for (i = 1; i <= NF; i++) printf "%s", toupper(substr($i, 1, 1)) substr($i, 2) }' ;;
    *) basename "$1" .sql | sed 's/_.*//; s/^/migration/' ;;
  esac
}

generate() {
  files=$(scripts/apply-schema.sh files)
  echo '// The files of migrations/, made by scripts/embed-migrations.sh: edit those, not this.'
  echo '// swift-format-ignore-file'
  echo
  echo 'extension Migration {'
  echo '  /// In order of their versions.'
  echo '  static let embedded: [Migration] = ['
  for file in $files; do
    case $file in */functions/*) continue ;; esac
    base=$(basename "$file" .sql)
    version=$(echo "${base%%_*}" | sed 's/^0*//')
    printf '    Migration(version: %s, name: "%s", sql: %s),\n' "$version" "${base#*_}" "$(constant "$file")"
  done
  echo '  ]'
  echo '}'
  echo
  echo 'extension FunctionsFile {'
  echo '  /// In the order they are applied in.'
  echo '  static let embedded: [FunctionsFile] = ['
  for file in $files; do
    case $file in */functions/*) ;; *) continue ;; esac
    printf '    FunctionsFile(topic: "%s", sql: %s),\n' "$(basename "$file" .sql)" "$(constant "$file")"
  done
  echo '  ]'
  echo '}'
  for file in $files; do
    grep -q '"""###' "$file" && { echo "$file: holds \"\"\"###, which would end the text early" >&2; exit 1; }
    echo
    printf 'private let %s = ###"""\n' "$(constant "$file")"
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
