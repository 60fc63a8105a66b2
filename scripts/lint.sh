#!/bin/sh
# Checks the sources without building or running them. Changes nothing. Prints each finding as a line FILE:LINE: WHAT; if
# there is any, the exit code is 1.
#
#   scripts/lint.sh               everything
#   scripts/lint.sh LINTER …      some of: swift shell python yaml text commits
set -eu
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# All files that are in git or could be added to it.
git -c core.quotePath=off ls-files --cached --others --exclude-standard | sort -u | while IFS= read -r file; do
  if [ -f "$file" ]; then echo "$file"; fi
done >"$work/files"
[ -s "$work/files" ] || { echo "lint.sh: git lists no files here" >&2; exit 1; }

# The files with this ending, and those without one whose first line names this interpreter.
files() {
  grep -E "\.($1)\$" "$work/files" || true
  grep -E '(^|/)[^./]+$' "$work/files" | grep -v /corpus/ | xargs -d '\n' awk -v interpreter="^#!.*[/ ]($2)( |\$)" '
    FNR == 1 { if ($0 ~ interpreter) print FILENAME; nextfile }'
}

lint_swift() {
  status=0
  ${SWIFT:-swift} format lint --strict --parallel --recursive Package.swift Plugins Sources Tests benchmarks/Package.swift \
    benchmarks/Sources 2>&1 || status=$?
  # Tests that sleep fail on a busy machine. Tests/TestTime has what they use instead.
  grep -rn 'Task\.sleep' Tests --include='*.swift' | grep -v '^Tests/TestTime/' |
    sed -E 's|^([^:]+:[0-9]+):.*|\1: Task.sleep in a test: use eventually, a clock or a signal, or letPass (CONTRIBUTING.md, Tests)|'
  grep -rnE 'try [a-zA-Z]+\.run\(\)$' Tests --include='*.swift' | grep -v '^Tests/TestProcess/' |
    sed -E 's|^([^:]+:[0-9]+):.*|\1: run() of a Process: use start() of Tests/TestProcess, which says why|'
  grep -rc '^@Suite' Tests --include='*.swift' | sed -nE 's/^([^:]+):([2-9]|[0-9]{2,})$/\1:1: \2 suites in a file: one is enough/p'
  # A package import turns off cross-module optimization of everything that uses the imported module.
  (cd Sources && grep -rnE '^package import' Runtime PushModel Queue Providers Dialects Dispatching) |
    sed -E 's|^([^:]+:[0-9]+):.*|Sources/\1: package import in a module of the way of a call: use public or internal import|'
  return "$status"
}
lint_shell() { files sh 'ba?sh|dash|sh' | xargs -d '\n' shellcheck -f gcc; }
lint_python() { files py 'python3?' | xargs -d '\n' /usr/bin/python3 -m flake8; }
lint_yaml() { grep -E '\.ya?ml$' "$work/files" | xargs -d '\n' yamllint --strict -f parsable; }
lint_text() { xargs -d '\n' /usr/bin/python3 scripts/lint_text.py <"$work/files"; }
lint_commits() {
  status=0
  Tests/commits/run.py >"$work/commits" || status=1
  sed -n 's|^not ok - |scripts/hooks/commit-msg:1: |p' "$work/commits"
  scripts/hooks/commit-msg --head 2>&1 || status=1
  return "$status"
}

for linter in "${@:-swift shell python yaml text commits}"; do
  for name in $linter; do
    case $name in
      swift | shell | python | yaml | text | commits) ;;
      *) sed -n '5,6s/^# *//p' "$0" >&2; exit 64 ;;
    esac
    # A linter that fails without output counts as a finding, too.
    "lint_$name" >"$work/found" || [ -s "$work/found" ] || echo "scripts/lint.sh:1: the linter $name failed" >"$work/found"
    # Most linters print a column after the line; it is removed.
    sed -E 's/^([^:]+:[0-9]+):[0-9]+:/\1:/' "$work/found" | tee -a "$work/all"
  done
done
count=$(wc -l <"$work/all")
[ "$count" -eq 0 ] || { echo "lint: $count found" >&2; exit 1; }
