"""A dump of a living database, restored into a new one: what was owed when it was made is not sent again. By the commands of
docs/operations/back-up-and-restore.md, and by others that people use."""

import os
import subprocess
import tempfile

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Jsonb

from harness import OWNER, check, until

ROOT = os.environ["ROOT"]
NAME = conninfo_to_dict(OWNER)["dbname"]
APP = "restore"
JOBS = ("promote", "miss", "follow_up_urgent", "follow_up", "follow_up_again", "follow_up_all", "free", "escalate", "expire_all", "prune")


def database(name):
    return make_conninfo(**{**conninfo_to_dict(OWNER), "dbname": name})


def run(*command):
    """With the variables of libpq, as people's shells have them."""
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr


class Outbox:
    """A database with one gateway of ours."""

    def __init__(self, name):
        self.db = psycopg.connect(database(name), autocommit=True)
        self.claims = 0

    def one(self, statement, *parameters):
        row = self.db.execute(statement, parameters or None).fetchone()
        return row and row[0]

    def register(self):
        self.gateway = self.one("select push.register_gateway('restore', 'test')")

    def beat(self, may_reap=True):
        return self.one("select alive from push.beat(%s, %s)", self.gateway, may_reap)

    def beat_until_put_away(self):
        """A beat a second is one bite each; how many there are depends on what else the database owes."""
        for _ in range(1000):
            self.beat()
            if self.one("select push.restored_at()") is None:
                break

    def claim(self, most=1000):
        self.claims += 1
        return self.db.execute(
            """select o.call_id || '/' || c.n from push.claim(%s, %s, array(select id from push.lane order by id),
              array_fill(%s, array[50]), array_fill('-infinity'::timestamptz, array[50])) c
            join push.outbox o on o.id = c.outbox_id order by 1""", (self.gateway, self.claims, most)).fetchall()

    def ring(self, call_id, kind="incoming_call", ring=None):
        return self.one("select deliveries from push.enqueue_call(%s, %s, %s, %s, %s)",
            Jsonb({"callId": call_id, "from": "x", "chatId": "x"}),
            Jsonb([{"userId": "u", "fcmToken": f"restore-token-0123456789-{call_id}", "pushToken": "ExponentPushToken[restore]"}]),
            APP, ring, kind)

    def owed(self):
        return self.one("select string_agg(distinct call_id || ':' || kind || ':' || state, ' ' order by call_id || ':' || kind || ':' || "
            "state) from push.deliveries where app = %s", APP)

    def housekeeping(self):
        for job in JOBS:
            while self.one("select push.run_job(%s)", job) and job.startswith("follow_up"):
                pass


OWED = ("claimed:invite:claimed missed:missed_call:ready note:notification:ready parked:invite:waiting ready:invite:ready")


def living(outbox):
    """Some deliveries of every kind are owed."""
    outbox.one("select push.register_app(%s, 600, 500)", APP)
    outbox.register()
    for call_id in ("claimed", "parked", "answered"):
        outbox.ring(call_id)
    outbox.claim()
    outbox.one("""select push.park(%s, array[d.outbox_id], array[d.n], array[d.lease], array[1], array[1000], array['Unavailable'])
        from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'parked'""", outbox.gateway)
    outbox.one("""select push.settle(%s, array[d.ctid], array[d.outbox_id], array[d.n], array[d.lease], array[1], array[0]::smallint[],
        array[200]::smallint[], array[null]::text[], array['m'], array['answered'], array[now()], array[now()])
        from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'answered'""", outbox.gateway)
    outbox.one("select push.answer_call('answered', 'u', %s)", APP)
    outbox.ring("missed")
    outbox.one("select push.end_call('missed', 'ended', %s)", APP)
    outbox.one("select push.run_job('follow_up')")
    outbox.ring("note", "message", 2419200)
    outbox.ring("ready")
    # They ring for longer than the whole test takes on a busy machine.
    outbox.db.execute("set session_replication_role = replica")
    for table in ("outbox", "delivery"):
        outbox.db.execute(f"update push.{table} set deadline_at = deadline_at + interval '1 day'")
    outbox.db.execute("reset session_replication_role")
    # More than one bite.
    outbox.one("""insert into push.delivery (outbox_id, n, deadline_at, lane, ready_lane, kind, user_id, token)
        select -i, 0, now() + interval '1 hour', l, l, 3, 'u', 'restore-token-0123456789'
        from generate_series(1, 45000) i, push.register_lane('backlog', 'fcm') l returning null""")
    check("the living database owes some of everything", outbox.owed(), OWED)


def quiet(way, name):
    """Restored deliveries are not sent; those enqueued since are."""
    restored = Outbox(name)
    check(f"{way}: the owed deliveries are there", restored.owed(), OWED)
    holder = psycopg.connect(database(name))
    holder.execute("select from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = 'note' for update of d")
    holder.execute("select from push.outbox where call_id = 'claimed' for update")
    check(f"{way}: a new call is taken", restored.ring("new"), 1)
    # A process whose gateway is from the other database, and that does not know that the database has changed.
    restored.gateway = restored.one("select max(id) from push.gateways")
    check(f"{way}: a gateway of the other database is none here", (restored.beat(False), restored.claim(), restored.beat(False)),
        (True, [], False))
    restored.register()
    restored.housekeeping()
    for _ in range(20):
        restored.beat()
    check(f"{way}: while somebody has locked some of it, nothing is sent",
        (restored.one("select push.restored_at() is null"), restored.claim()), (False, []))
    holder.close()
    restored.beat_until_put_away()
    restored.housekeeping()
    check(f"{way}: only the new call is given to gateways", restored.claim(), [("new/0",)])
    check(f"{way}: nothing else is owed", restored.owed(), "new:invite:claimed")
    check(f"{way}: the owed deliveries are void, with a reason",
        restored.one("select string_agg(call_id || ':' || outcome || ':' || reason, ' ' order by call_id) from push.delivery_history where "
            "reason = 'Restored' and app = %s", APP),
        "claimed:void:Restored missed:void:Restored note:void:Restored parked:void:Restored ready:void:Restored")
    check(f"{way}: the calls are over", restored.one("select string_agg(distinct state, ' ' order by state) from push.outbox where app = "
        "%s and call_id not in ('new')", APP), "answered ended missed")
    check(f"{way}: the database works like any other", (restored.one("select push.restored_at()"),
        restored.one("select count(*) from push.follow_ups where why <> 'unheard'"),
        restored.one("select state from push.health where item = 'claims'")), (None, 0, "ok"))
    restored.one("update push.outbox set state = 'ended' where call_id = 'new' returning id")
    restored.db.execute("delete from push.outbox where call_id = 'new'")


def refill(name):
    """Deliveries of the living database, in a restored copy."""
    outbox = Outbox(name)
    outbox.db.execute("truncate push.outbox, push.history")
    living(outbox)
    outbox.db.close()


living(Outbox(NAME))
with tempfile.TemporaryDirectory() as work, psycopg.connect(OWNER, autocommit=True) as owner:
    dump = f"{work}/push.dump"
    made = []

    def new(suffix):
        made.append(f"{NAME}_{suffix}")
        owner.execute(f'create database "{made[-1]}"')
        return made[-1]

    try:
        check("a living database is dumped", run("pg_dump", "--format=custom", f"--file={dump}", OWNER), (0, ""))
        first = new("first")
        check("and restored", run("pg_restore", "--exit-on-error", "--no-owner", f"--dbname={database(first)}", dump), (0, ""))
        quiet("a dump", first)

        refill(first)
        # A database that is dumped and restored within a second of its own restore is not told from one.
        with psycopg.connect(database(first), autocommit=True) as db:
            until(lambda: db.execute("select max(made_at) < clock_timestamp() - interval '1 s' from push.origin").fetchone()[0])
        check("a restored database is dumped", run("pg_dump", f"--file={work}/push.sql", database(first)), (0, ""))
        second = new("second")
        check("and restored in one transaction",
            run("psql", "-Xqo", f"{work}/out", "-1", "-v", "ON_ERROR_STOP=1", "-f", f"{work}/push.sql", database(second)), (0, ""))
        quiet("a dump of a restored database", second)

        # Restores only data into an existing schema: not the documented way, and with many errors, but nothing rings.
        third = new("third")
        run(f"{ROOT}/scripts/apply-schema.sh", database(third))
        run("pg_restore", "--data-only", "--no-owner", f"--dbname={database(third)}", dump)
        quiet("data alone", third)

        living_still = Outbox(NAME)
        check("the database that was dumped goes on", (living_still.one("select push.restored_at()"), living_still.owed()), (None, OWED))
        living_still.one("select push.mark_restored()")
        living_still.register()
        living_still.beat_until_put_away()
        check("marked as restored, it owes nothing any more", (living_still.owed(), living_still.claim()), (None, []))
    finally:
        for name in made:
            owner.execute(f'drop database "{name}" with (force)')
