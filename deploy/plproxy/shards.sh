#!/bin/sh
# Makes several databases shards of one outbox, adds a shard while traffic runs, and sets up routers.
#
#   deploy/plproxy/shards.sh FILE apply     bring every shard and router to what FILE says; repeat it if it stopped half-way
#   deploy/plproxy/shards.sh FILE status    show the map of each database and the faults of each router; changes nothing
#
# FILE has one line for each database. A shard has a number from 0 on, which it keeps for ever, the URL of its owner, and how routers
# reach it (without user= and password=; those are in the routers' user mappings):
#
#   shard 0 postgres://push@db0/push host=db0 port=5432 dbname=push
#   shard 1 postgres://push@db1/push host=db1 port=5432 dbname=push
#   router postgres://postgres@router/router
#
# `closed` instead of `shard`: gets no new calls, its slots go to the others. `dead`: the same, without asking it. Then a call that it
# has may be enqueued once more, elsewhere. Routers are applied to as a superuser. `push-gateway migrate` comes before this.
set -eu

fail() { echo "shards.sh: $*" >&2; exit 1; }
say() { echo "shards.sh: $*"; }
usage() { sed -n '4,5s/^# *//p' "$0" >&2; exit 64; }

[ $# -eq 2 ] || usage
file=$1
[ -r "$file" ] || fail "cannot read $file"
router_sql=$(dirname "$0")/router.sql
# Seconds that a database may take to connect, and that a change of the map waits for open transactions each time it tries.
PGCONNECT_TIMEOUT=${PGCONNECT_TIMEOUT:-5}
export PGCONNECT_TIMEOUT
tries=${SHARDS_TRIES:-15}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM

sql() { address=$1 && shift && psql -XAtq -v ON_ERROR_STOP=1 "$address" "$@"; }

# --- What FILE says ---
shards='' routers='' open='' dead='' count=0
while read -r what number url connection || [ -n "$what" ]; do
  case $what in
    '' | '#'*) ;;
    router)
      routers="$routers $number"
      ;;
    shard | closed | dead)
      [ "$number" = "$count" ] || fail "$file: the shards must be numbered 0, 1, 2 …, without gaps: found $number, expected $count"
      [ -n "$connection" ] || fail "$file: shard $number: say how routers reach it, for example: host=db$number dbname=push"
      case $connection in *user=* | *password=*) fail "$file: shard $number: user= and password= belong into the routers' user mappings" ;; esac
      count=$((count + 1))
      printf %s "$url" >"$work/url.$number"
      printf %s "$connection" >"$work/connection.$number"
      [ "$what" = dead ] && dead="$dead $number" || shards="$shards $number"
      [ "$what" != shard ] || open="$open${open:+,}$number"
      ;;
    *) fail "$file: a line begins with shard, closed, dead, router or #, not with $what" ;;
  esac
done <"$file"
[ -n "$open" ] || fail "$file: names no open shard"

of() { cat "$work/url.$1"; }
refuse() { fail "$1. Nothing was changed"; }

status() {
  for number in $shards; do
    sql "$(of "$number")" -c "select coalesce((
        select format('shard %s: map %s since %s, %s slots', push.own_shard(), m.generation, m.since::timestamptz(0),
          cardinality(array_positions(m.shards, push.own_shard()::smallint)))
        from push.shard_map m where m.until is null), 'shard $number: has no map yet: apply')" || echo "shard $number: does not answer"
  done
  for number in $dead; do echo "shard $number: dead, not asked"; done
  for url in $routers; do
    sql "$url" -c "select format('router: map %s', (select m.generation from push.shard_map m where m.until is null))" \
      -c "select format('router: fault: %s; remedy: %s', fault, remedy) from push.router_faults" || echo "router: does not answer"
  done
}

# --- The map ---
read_maps() {
  generation=0 conflict='' places=' '
  for number in $shards; do
    sql "$(of "$number")" -c "select coalesce((select m.generation || ' ' || m.shards::text from push.shard_map m where m.until is null), '0')" \
      >"$work/map.$number" 2>"$work/error" || fail "shard $number: $(head -n 1 "$work/error"): all shards must answer (or say \`dead\`), and have the \
schema of this version: push-gateway migrate. Nothing was changed"
    place=$(sql "$(of "$number")" -c "select coalesce(push.own_shard(), $number),
      md5(current_database() || ' ' || pg_postmaster_start_time()::text)")
    [ "${place%%|*}" = "$number" ] || refuse "$file: shard $number: this URL leads to shard ${place%%|*}"
    case $places in *" ${place#*|} "*) refuse "$file: shard $number: this URL leads to the same database as one before it" ;; esac
    places="$places${place#*|} "
    read -r its_generation its_map <"$work/map.$number" || true
    if [ "$its_generation" -gt "$generation" ]; then
      generation=$its_generation conflict=''
      printf %s "$its_map" >"$work/map"
    elif [ "$its_generation" -gt 0 ] && [ "$its_generation" -eq "$generation" ] && [ "$its_map" != "$(cat "$work/map")" ]; then
      # Two of this script ran at the same time, with different files. A map with the next number replaces both.
      conflict=t
    fi
  done
}

# Each login that a router maps needs its roles on every shard, else its calls fail there. That is no reason not to switch off a dead one.
check_logins() {
  for url in $routers; do
    logins=$(sql "$url" -c "select string_agg(distinct format('(%L, %L)', coalesce(
        (select substring(o from 6) from unnest(u.umoptions) o where o like 'user=%'), l.rolname), r.role), ', ')
      from pg_user_mappings u join pg_roles l on l.oid = u.umuser and not l.rolsuper
      cross join unnest('{push_enqueuer,push_tenant,push_ops}'::text[]) r(role)
      where u.srvname in ('push', 'push_ops')
        and case when to_regrole(r.role) is not null then pg_has_role(l.oid, to_regrole(r.role), 'member') else false end" 2>"$work/error") \
      || refuse "router: $(head -n 1 "$work/error")"
    [ -n "$logins" ] || continue
    for number in $shards; do
      missing=$(sql "$(of "$number")" -c "select string_agg(format('%s (%s)', l.login, l.role), ', ') from (values $logins) l(login, role)
        where not coalesce(pg_has_role(to_regrole(quote_ident(l.login)), to_regrole(l.role), 'member'), false)")
      [ -n "$missing" ] || continue
      missing="shard $number: logins of the router are missing, or do not have their role: $missing. Create them there, with the passwords of \
their user mappings, and grant their roles (tenants: push.grant_app)"
      [ "$generation" -eq 0 ] || [ "$(cut -d' ' -f1 "$work/map.$number")" != 0 ] || refuse "$missing"
      say "$missing"
    done
  done
}

# A database with calls or devices of its own may only be the first shard: devices that the others do not have would be deleted.
refuse_used() {
  [ "$(sql "$(of "$2")" -c "select exists (select from push.outbox)")" = f ] || refuse "shard $2: has calls already; a new shard must be empty"
  sql "$(of "$2")" -c "copy (select app, provider, token from push.devices) to stdout" | LC_ALL=C sort >"$work/own"
  [ -s "$work/own" ] || return 0
  sql "$(of "$1")" -c "copy (select app, provider, token from push.devices) to stdout" | LC_ALL=C sort >"$work/devices"
  own=$(LC_ALL=C comm -23 "$work/own" "$work/devices" | wc -l)
  [ "$own" -eq 0 ] || refuse "shard $2: has devices that shard $1 does not have: $own. A new shard must be empty"
}

# The note of a shard that was dead, until it has the devices.
returns='it was dead, and its devices are being copied'

# was_dead NUMBER: prints t if a router did not write devices to this shard.
was_dead() {
  for url in $routers; do
    [ "$(sql "$url" -c "select to_regclass('push_router.shard') is not null")" = t ] || continue
    sql "$url" -c "select true from push_router.shard where shard = $1 and (is_off and note = 'dead' or note = '$returns')"
  done | head -n 1
}

set_up_router() {
  url=$1
  # Only where it is new: replacing views waits for statements that use them, and may be refused as a deadlock.
  version=$(sha256sum "$router_sql" | cut -c1-16)
  if [ "$(sql "$url" -c "select obj_description(to_regnamespace('push_router')) like '%$version'")" != t ]; then
    sql "$url" -1 -f "$router_sql" -c "comment on schema push_router is 'push-gateway: what the functions of the router consist of; version $version'" \
      >/dev/null 2>"$work/error" || fail "router: $(grep -v NOTICE "$work/error" | head -n 2 | tr '\n' ' ')"
    say "the router has the functions of $router_sql"
  fi
  {
    # Connections of push_ops are used for a second: a frozen shard then meets new ones, which statement_timeout can end.
    set_server push 1800
    set_server push_ops 1
    number=0
    while [ "$number" -lt "$count" ]; do
      is_off=false
      case " $dead " in *" $number "*) is_off=true ;; esac
      echo "insert into push_router.shard as s (shard, name, is_off, note) values ($number, $(quote "$(cat "$work/connection.$number")"), \
$is_off, case when $is_off then 'dead' end) on conflict (shard) do update set name = excluded.name, is_off = excluded.is_off or s.is_off and \
s.note is distinct from 'dead', note = coalesce(excluded.note, case when s.is_off and s.note = 'dead' then '$returns' else s.note end);"
      number=$((number + 1))
    done
    echo "grant usage on foreign server push to push_enqueuer, push_tenant, push_ops; grant usage on foreign server push_ops to push_ops;"
  } | sql "$url" -1 >/dev/null 2>"$work/error" || fail "router: $(head -n 2 "$work/error" | tr '\n' ' ')"
}

# set_server NAME LIFETIME: prints what makes the server, and sets its options.
set_server() {
  echo "select exists (select from pg_foreign_server where srvname = '$1') as has_server \gset"
  printf '%s\n' '\if :has_server' '\else'
  echo "create server $1 foreign data wrapper plproxy options (modular_mapping '1', connection_lifetime '$2', p0 '');"
  printf '%s\n' '\endif'
  number=0
  while [ "$number" -lt "$count" ]; do
    connection="$(cat "$work/connection.$number") connect_timeout=3 keepalives_idle=5 keepalives_interval=3 keepalives_count=3 \
tcp_user_timeout=10000 application_name=push-router options='-c statement_timeout=10000 -c lock_timeout=5000'"
    echo "select exists (select from pg_foreign_server s, unnest(s.srvoptions) o(o) where s.srvname = '$1' and o.o like 'p$number=%') as has \gset"
    printf '%s\n' '\if :has'
    echo "alter server $1 options (set p$number $(quote "$connection"));"
    printf '%s\n' '\else'
    echo "alter server $1 options (add p$number $(quote "$connection"));"
    printf '%s\n' '\endif'
    number=$((number + 1))
  done
}
quote() { printf "'%s'" "$(printf %s "$1" | sed "s/'/''/g")"; }

# A new shard needs the devices and the dead tokens. Routers write to it already, so what is copied is compared once more afterwards:
# a device that was dropped meanwhile must not come back. A shard that was dead has devices: of two, the one registered later is right.
copy_devices() {
  from=$1 to=$2
  columns="user_id, app, provider, token, voip, environment, platform, locale, enabled, registered_at, invalidated_at, invalid_reason"
  began=$(sql "$(of "$from")" -c "select clock_timestamp()")
  sql "$(of "$from")" -c "copy (select $columns from push.devices) to stdout" >"$work/devices"
  sql "$(of "$from")" -c "copy (select app, provider, token, user_id, reason, invalidated_at from push.token_invalidations) to stdout" >"$work/gone"
  sql "$(of "$to")" -1 <<SQL
create temp table d as select $columns from push.devices limit 0;
\\copy d from '$work/devices'
insert into push.devices as old ($columns) select $columns from d on conflict (sha256(token::bytea), app, provider) do update set
  user_id = excluded.user_id, voip = excluded.voip, environment = excluded.environment, platform = excluded.platform, locale = excluded.locale,
  enabled = excluded.enabled, registered_at = excluded.registered_at, invalidated_at = excluded.invalidated_at,
  invalid_reason = excluded.invalid_reason
  where $3 and excluded.registered_at > old.registered_at;
create temp table g as select app, provider, token, user_id, reason, invalidated_at from push.token_invalidations limit 0;
\\copy g from '$work/gone'
insert into push.token_invalidations (app, provider, token, user_id, reason, invalidated_at)
  select g.* from g where not exists (select from push.token_invalidations x where x.token = g.token and x.app = g.app and x.provider = g.provider)
  on conflict do nothing;
SQL
  # Longer than the router's time limits: whatever it began before the copy has ended on every shard.
  sleep "${SHARDS_SETTLE_SECONDS:-11}"
  sql "$(of "$from")" -c "copy (select app, provider, token from push.devices) to stdout" >"$work/devices"
  dropped=$(sql "$(of "$to")" -1 <<SQL
create temp table k (app text, provider text, token text);
\\copy k from '$work/devices'
with gone as (
  delete from push.devices d where d.registered_at <= '$began'
    and not exists (select from k where k.token = d.token and k.app = d.app and k.provider = d.provider)
  returning 1)
select count(*) from gone;
SQL
  )
  say "shard $to: $(sql "$(of "$to")" -c "select count(*) from push.devices") devices, copied from shard $from ($dropped dropped meanwhile)"
}

# use_map NUMBER: waits for transactions that have enqueued, 1.5 s at a time, so that it does not keep others waiting for long. Longer than
# deadlock_timeout (1 s): then Postgres ends an autovacuum of push.outbox, which may take minutes.
use_map() {
  try=0
  until sql "$(of "$1")" -v ON_ERROR_STOP=1 -c "set lock_timeout = '1500ms'" -c "select push.use_shard_map($new, '$map', $1)" 2>"$work/error"; do
    try=$((try + 1))
    if [ "$try" -ge "$tries" ] || ! grep -q "lock timeout" "$work/error"; then
      fail "shard $1: $(head -n 1 "$work/error"). Shards before it have map $new and refuse calls of slots that moved: end the \
transactions that stay open (pg_stat_activity), and repeat this command"
    fi
    sleep 0.2
  done
}

# copy_history URL: the maps before the current one, which say where earlier calls are. They may be missing in a new database.
copy_history() {
  sql "$1" -1 <<SQL
create temp table h as select * from push.shard_map limit 0;
\\copy h from '$work/history'
insert into push.shard_map select * from h on conflict do nothing;
SQL
}

# A database that has been in use alone is the earlier owner of every slot: its calls are found where they are.
begin_with_one() {
  used=''
  for number in $shards; do
    [ "$(sql "$(of "$number")" -c "select exists (select from push.outbox) or exists (select from push.devices)")" = f ] || used="$used $number"
  done
  used=${used# }
  case $used in
    '') ;;
    *' '*) say "shards $used all have calls or devices: routers find calls that were enqueued before now only in the shard of their id" ;;
    *)
      new=1
      map=$(sql "$(of "$used")" -c "select push.spread_slots('{$used}')")
      use_map "$used"
      generation=1
      printf %s "$map" >"$work/map"
      echo "1 $map" >"$work/map.$used"
      ;;
  esac
}

apply() {
  read_maps
  first=${shards# }
  first=${first%% *}
  [ "$generation" -gt 0 ] || begin_with_one
  # A shard with devices and a map is where new shards, and those that were dead, get theirs.
  source=''
  if [ "$generation" -gt 0 ]; then
    source=$(for number in $shards; do
      [ "$(cut -d' ' -f1 "$work/map.$number")" = 0 ] || [ "$(was_dead "$number")" = t ] || { echo "$number"; break; }
    done)
    [ -n "$source" ] || refuse "all shards with a map were dead: which one has the right devices? On each router: update push_router.shard set is_off = false, note = null where shard = N"
    for number in $shards; do
      [ "$(cut -d' ' -f1 "$work/map.$number")" != 0 ] || refuse_used "$source" "$number"
    done
  fi
  check_logins
  now=null
  [ "$generation" -eq 0 ] || now="'$(cat "$work/map")'"
  map=$(sql "$(of "$first")" -c "select push.spread_slots('{$open}', $now)")
  new=$generation
  if [ "$generation" -eq 0 ] || [ -n "$conflict" ] || [ "$map" != "$(cat "$work/map")" ]; then new=$((generation + 1)); fi

  for url in $routers; do set_up_router "$url"; done
  if [ -n "$source" ]; then
    for number in $shards; do
      if [ "$(cut -d' ' -f1 "$work/map.$number")" = 0 ]; then
        copy_devices "$source" "$number" false
      elif [ "$(was_dead "$number")" = t ]; then
        copy_devices "$source" "$number" true
      fi
    done
    for url in $routers; do sql "$url" -c "update push_router.shard set note = null where note = '$returns'"; done
  fi
  # First those that lose slots: from then on, what they do not have they never will.
  losers='' others=''
  for number in $shards; do
    its_map=$(cut -d' ' -f2 -s "$work/map.$number")
    loses=f
    [ -z "$its_map" ] || loses=$(sql "$(of "$first")" -c "select coalesce(bool_or(a = $number and b <> $number), false) from unnest('$its_map'::int[], '$map'::int[]) x(a, b)")
    if [ "$loses" = t ]; then losers="$losers $number"; else others="$others $number"; fi
  done
  for number in $losers $others; do use_map "$number"; done
  longest=$(for number in $shards; do
    echo "$(sql "$(of "$number")" -c "select count(*) from push.shard_map") $number"
  done | sort -n | tail -n 1 | cut -d' ' -f2)
  sql "$(of "$longest")" -c "copy (select * from push.shard_map where until is not null) to stdout" >"$work/history"
  for number in $shards; do copy_history "$(of "$number")"; done
  for url in $routers; do
    copy_history "$url"
    sql "$url" -c "select push.use_shard_map($new, '$map')" || fail "a router did not take over map $new: repeat this command"
  done
  for url in $routers; do
    faults=$(sql "$url" -c "select format('router: fault: %s; remedy: %s', fault, remedy) from push.router_faults")
    [ -z "$faults" ] || echo "$faults"
  done
}

case $2 in
  apply) apply ;;
  status) status ;;
  *) usage ;;
esac
