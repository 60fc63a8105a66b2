#!/bin/sh
# Applies the schema to an empty database with psql, for tests and benchmarks. Elsewhere `push-gateway migrate` applies
# it and records the migrations that it has applied.
#
#   scripts/apply-schema.sh URL             migrations/NNNN_*.sql, each in a transaction, then all of migrations/functions/ in one
#   scripts/apply-schema.sh URL functions   the functions again, which must change nothing; bodies are checked this time
#   scripts/apply-schema.sh files           only list the files, in their order
set -eu
cd "$(dirname "$0")/.."

# The order is that of the file names in bytes, whatever the locale. roles.sql comes last, because it grants rights on
# what the other files create, and sets how the planner treats it.
LC_ALL=C
export LC_ALL
functions=$(ls migrations/functions/*.sql | grep -v '/roles\.sql$'; echo migrations/functions/roles.sql)

case ${1:-} in
  files) ls migrations/[0-9][0-9][0-9][0-9]_*.sql; echo "$functions"; exit ;;
  "") sed -n '5,7s/^# *//p' "$0" >&2; exit 64 ;;
esac
url=$1

sql() {
  psql -X -A -t -q -v ON_ERROR_STOP=1 -1 -o /dev/null "$url" "$@" \
    || { echo "apply-schema.sh: the schema does not apply" >&2; exit 1; }
}

# A function's body may use objects of a later file, so bodies are checked only in the second pass.
check=on
if [ "${2:-}" != functions ]; then
  check=off
  for file in migrations/[0-9][0-9][0-9][0-9]_*.sql; do sql -f "$file"; done
fi
set -- -c "set local check_function_bodies = $check"
for file in $functions; do set -- "$@" -f "$file"; done
sql "$@"
