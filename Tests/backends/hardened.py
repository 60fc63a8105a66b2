"""deploy/psql/harden.sql: before it, a login that may only connect can fill Postgres's lock table; after it, it cannot, and all
other logins work as before. Runs last, because the rights that it revokes are gone."""

import os
import pathlib
import subprocess

from psycopg.types.json import Jsonb

from harness import check, connect, owed, owner, refused, until

import psycopg

HARDEN = pathlib.Path(__file__).resolve().parents[2] / "deploy/psql/harden.sql"
# Each statement takes another lock with each number, or with each savepoint.
WAYS = (
    "select pg_advisory_lock({})", "select pg_advisory_lock(1, {})", "select pg_try_advisory_lock({})", "select pg_advisory_xact_lock({})",
    "select pg_try_advisory_xact_lock_shared({})", "select pg_advisory_lock_shared({})", "select lo_create({})", "select lo_creat({})",
    "select lo_from_bytea({}, '')", "select pg_logical_emit_message(true, 'a', '{}')", "create temp table filling_{} ()")

# The same, on what such a login made while it still might: a large object, and the right to create in the schema public, as a
# database has it that was made before Postgres 15.
OBJECT = 910_001
LATER = (
    "select lo_put(910001, 0, '{}')", "select lowrite(lo_open(910001, 131072), '{}')", "select lo_truncate(lo_open(910001, 131072), {})",
    "select lo_truncate64(lo_open(910001, 131072), {})", "create table public.filling_{} ()",
    "create function public.filling_{}() returns int language sql as 'select 1'")


def locks(db):
    return owner("select count(*) from pg_locks where pid = %s", db.info.backend_pid)


def taken(count, ways_there_are=WAYS):
    """The statements with which a login that may only connect has taken this number of locks; the others are refused."""
    ways = []
    for place, way in enumerate(ways_there_are):
        with connect(login="nobody") as nobody:
            before = locks(nobody)
            try:
                for number in range(count):
                    nobody.execute("savepoint filling")
                    nobody.execute(way.format(place * 100_000 + number + 900_000))
                if locks(nobody) >= before + count:
                    ways.append(way)
            except psycopg.Error as error:
                check(f"refused: {way}", error.sqlstate, "42501")
            nobody.rollback()
    return ways


def harden():
    done = subprocess.run(["psql", "-Xf", HARDEN, os.environ["OWNER_URL"]], capture_output=True, text=True)
    return done.returncode, done.stderr, done.stdout.count("Done in")


def enqueues(call_id):
    with connect(autocommit=True) as db:
        db.execute("select push.enqueue_call(%s, %s, 'default')", (
            Jsonb({"callId": call_id, "from": "x"}), Jsonb([{"userId": "u", "fcmToken": "hardened-token-0123456789"}])))
    return owed(call_id)


def is_heard(call_id):
    with connect(login="gateway", autocommit=True) as gateway:
        gateway.execute("listen push_outbox")
        enqueues(call_id)

        def heard():
            gateway.pgconn.consume_input()
            return gateway.pgconn.notifies() is not None

        return until(heard)


def others():
    return owner("select state from push.health where item = 'other logins'")


check("a login that may only connect takes as many locks as it likes", taken(100), list(WAYS))
with psycopg.connect(os.environ["OWNER_URL"], autocommit=True) as db:
    db.execute("grant create on schema public to public")
with connect(login="nobody", autocommit=True) as nobody:
    nobody.execute("select lo_create(%s), lo_create(%s)", (OBJECT, OBJECT + 1))
check("and with its own objects", taken(100, LATER), list(LATER))
check("push.health says that it could", others(), "warn")
check("deploy/psql/harden.sql, twice", (harden(), harden()), ((0, "", 1),) * 2)
with refused("then it may not even connect", None):
    connect(login="nobody")
with psycopg.connect(os.environ["OWNER_URL"], autocommit=True) as db:
    db.execute(f"grant connect on database {owner('select current_database()')} to {os.environ['LOGIN_PREFIX']}nobody")
check("and if it may, it takes no lock that way", taken(1), [])
check("nor with objects that it created before", taken(1, LATER), [])
with connect(login="nobody") as nobody:
    with refused("nor by removing that", "42501"):
        nobody.execute("select lo_unlink(%s)", (OBJECT + 1,))
check("push.health is content", others(), "ok")
check("a call is enqueued as before", enqueues("hardened"), "u:invite:ready")
check("and wakes the gateways", is_heard("heard"), True)
for login in ("enqueuer", "ops", "keys", "gateway", "web"):
    with connect(login=login) as db:
        check(f"{login} connects as before", db.execute("select 1").fetchone(), (1,))
