#!/bin/sh
# Writes the complete schema, as Postgres has it after all migrations, to docs/schema.sql. Its diff shows the effect of a
# changed migration or function.
#
#   scripts/dump-schema.sh URL       print the schema of a database
#   scripts/dump-schema.sh --write   write docs/schema.sql, by a private Postgres in .local/schema
#
# Leaves out what differs between databases with the same schema: owners, rights, the dated partitions of push.history, the meters of quotas, and
# the tables in which push-gateway migrate records what it has applied.
set -eu
cd "$(dirname "$0")/.."

dump() {
  pg_dump --schema-only --schema=push --no-owner --no-privileges \
    --exclude-table='push.history_2*' --exclude-table='push.meter_*' --exclude-table='push.schema_migration' --exclude-table='push.schema_functions' "$1" |
    sed -e '/^--$/d' -e '/^-- \(Name\|Dumped\|PostgreSQL\)/d' -e '/^SET /d' -e '/^SELECT pg_catalog.set_config/d' \
      -e '/^\\\(un\)\{0,1\}restrict /d' | cat -s
}

case ${1:-} in
  "") sed -n '5,6s/^# *//p' "$0" >&2; exit 64 ;;
  --write)
    directory=.local/schema
    trap 'scripts/postgres.sh stop "$directory" >/dev/null 2>&1 || true; rm -rf "$directory"' EXIT
    trap 'exit 130' INT TERM
    url=$(scripts/postgres.sh start "$directory")
    scripts/apply-schema.sh "$url"
    {
      echo "-- The schema of push-gateway, as pg_dump $(pg_dump --version | sed 's/[^0-9]*\([0-9]*\).*/\1/') shows it: made by make schema, for comparing. What is read and edited"
      echo "-- is in migrations/."
      dump "$url"
    } >docs/schema.sql.new
    mv docs/schema.sql.new docs/schema.sql
    ;;
  *) dump "$1" ;;
esac
