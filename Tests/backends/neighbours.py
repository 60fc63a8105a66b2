"""Neighbours: a login that may only connect, and one that may enqueue. Neither can stop the calls of others."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from time import time

from psycopg.types.json import Jsonb

from harness import PATIENCE, check, conninfo, connect, follow, is_blocked, later, owed, owner, refused, until, waits

import psycopg

APP = "neighbours"
SHORTCUTS = Path(__file__).resolve().parents[2] / "deploy/psql/ops.psqlrc"
RECIPIENTS = Jsonb([{"userId": "u", "fcmToken": "neighbour-token-0123456789"}])


class Gateway:
    """A gateway with only the service's role."""

    def __init__(self):
        self.db = connect(login="gateway", autocommit=True)
        self.lane = self.one("select push.register_lane(%s, 'fcm')", APP)
        self.one("select push.register_app(%s, 600)", APP)
        self.id = self.one("select push.register_gateway('neighbours', 'test')")
        self.claims = 0

    def one(self, statement, *parameters):
        return self.db.execute(statement, parameters).fetchone()[0]

    def claimed(self):
        """Claims, settles, and returns the calls of the claim."""
        self.claims += 1
        rows = self.db.execute(
            "select outbox_id, n, call_id from push.claim(%s, %s, array[%s]::smallint[], '{100}', '{-infinity}') order by outbox_id, n",
            (self.id, self.claims, self.lane)).fetchall()
        for row in rows:
            self.one(
                "select push.settle(%s, null, array[%s]::bigint[], array[%s]::int[], array[%s]::int[], '{1}', '{0}', '{200}', '{null}', "
                "'{m}', '{c}', '{now}', '{now}')",
                self.id, row[0], row[1], self.claims)
        return [row[2] for row in rows]


gateway = Gateway()


def enqueue(call_id, db):
    db.execute("select push.enqueue_call(%s, %s, %s)", (Jsonb({"callId": call_id, "from": "x"}), RECIPIENTS, APP))


def rings(name, call_id):
    """A call of another login is enqueued, claimed and settled; the gateway sends a heartbeat."""
    with connect(autocommit=True) as db:
        enqueue(call_id, db)
    check(name, (gateway.claimed(), owed(call_id), gateway.one("select alive from push.beat(%s, true)", gateway.id)),
        ([call_id], None, True))


def of_calls_that_are_settled_meanwhile():
    """A call is enqueued again while its only delivery goes from push.delivery to push.history."""
    counts = set()
    with connect(autocommit=True) as db:
        for number in range(150):
            enqueue(f"again-{number}", db)
            settling = Thread(target=gateway.claimed)
            settling.start()
            while settling.is_alive():
                counts.add(db.execute("select deliveries, duplicate from push.enqueue_call(%s, %s, %s)",
                    (Jsonb({"callId": f"again-{number}", "from": "x"}), RECIPIENTS, APP)).fetchone())
            settling.join()
    check("a call enqueued again while it is settled has as many deliveries as before", counts, {(1, True)})


def of_a_login_that_may_only_connect():
    with connect(login="nobody", autocommit=True) as nobody:
        slot = int(time() * 200)
        nobody.execute("select pg_advisory_lock(7781, k) from generate_series(0, 100) k")
        nobody.execute("select pg_advisory_lock(7781, ((%s + k) %% 2000000000)::int + 1000) from generate_series(0, 1500) k", (slot,))
        rings("advisory locks, all that were ever of use here: a call rings", "locks")
        check("and housekeeping is done",
            gateway.one("select count(*) from (select push.run_job(j.name) from push.job j where j.name <> 'tally') r") > 5, True)
        nobody.execute("select pg_advisory_unlock_all()")

        nobody.execute("create temp table outbox (like pg_class); create temp table delivery (like pg_class)")
        nobody.execute("set search_path = pg_temp, push, public")
        for statement in ("select from push.outbox", "select push.ring_doorbell()", "select push.notify('push_outbox', '')"):
            with refused(f"a login that may only connect: {statement}", "42501"):
                nobody.execute(statement)
        check("large objects, prepared statements, settings of push: its own affair",
            nobody.execute("select lo_unlink(lo_create(0)) > 0, set_config('push.entries_scanned', '0', false)").fetchone(), (True, "0"))
        rings("beside them a call rings", "beside")

    # Notifications for gateways, from a login that knows every number. They are hints: nothing is dropped because of one.
    with connect(login="nobody", autocommit=True) as nobody:
        with connect(autocommit=True) as db:
            enqueue("named", db)
            number = db.execute("select push.call('named') ->> 'id'").fetchone()[0]
        nobody.execute("select pg_notify('push_control', p) from unnest(array['void ' || %s, 'void *', 'void -1', 'void', 'resume 1', "
            "repeat('x', 7999)]) p", (number,))
        nobody.execute("select pg_notify('push_control', 'void ' || n), pg_notify('push_outbox', n::text) from generate_series(1, 2000) n")
        check("a false notification that a call has ended: it rings on",
            (owner("select state from push.outbox where call_id = 'named'"), owed("named"),
            gateway.one("select push.ended(array[%s::bigint])::text", number)), ("ringing", "u:invite:ready", "{}"))
        check("it is claimed", gateway.claimed(), ["named"])
        rings("and so is the next", "after-hints")
        check("housekeeping is done meanwhile",
            gateway.one("select count(*) from (select push.run_job(j.name) from push.job j where j.name <> 'tally') r") > 5, True)

    # It listens and keeps a transaction open, so notifications stay in the queue.
    with connect(login="nobody", autocommit=True) as nobody:
        nobody.execute("listen pile")
        with nobody.transaction():
            nobody.execute("select pg_notify('pile', repeat('x', 7000) || k) from generate_series(1, 10) k")
            with connect(login="nobody", autocommit=True) as other:
                other.execute("select pg_notify('pile', repeat('x', 7000) || k) from generate_series(1, 2000) k")
            usage = owner("select pg_notification_queue_usage()")
            check("a session that listens and does not read: notifications pile up", usage > 0.001, True)
            check("then nothing is notified: the commit would fail in the end", owner("select push.notify('push_control', 'void *')"),
                False)
            rings("the calls go on", "piled")
    check("when it has read, there is", owner("select push.notify('push_control', 'void *')"), True)


def of_a_login_that_may_create_in_public():
    """As in a database made before Postgres 15. Its functions fit the types of arguments better than the built-in ones."""
    with psycopg.connect(os.environ["OWNER_URL"], autocommit=True) as db, connect(login="nobody", autocommit=True) as nobody:
        db.execute("grant create on schema public to public")
        nobody.execute("create table public.run_as (role name); grant insert on public.run_as to public")
        nobody.execute("""create function public.to_jsonb(text[]) returns jsonb language plpgsql as $$
            begin insert into public.run_as values (current_user); return pg_catalog.to_jsonb($1); end $$""")
        nobody.execute("""create function public.exists_of(jsonb, jsonb) returns boolean language sql as 'select false';
            create operator public.? (leftarg = jsonb, rightarg = jsonb, function = public.exists_of)""")
        with connect(autocommit=True) as backend:
            enqueue("looked-up", backend)
        gateway.claimed()
        run = subprocess.run(["psql", "-At", conninfo("direct", "ops")], input=":user('u');\n", capture_output=True, text=True,
            env=os.environ | {"PSQLRC": str(SHORTCUTS)})
        check("the shortcuts of operators find the calls of a user, whatever others created in public",
            ("|looked-up|" in run.stdout, run.stderr), (True, ""))
        check("and run none of it", nobody.execute("select count(*) from public.run_as").fetchone(), (0,))
        nobody.execute("drop operator public.? (jsonb, jsonb); drop function public.to_jsonb(text[]), public.exists_of; "
                       "drop table public.run_as")
        db.execute("revoke create on schema public from public")


def notifiers():
    """The sessions that wait for the lock of commits that notify, each with the time since when it waits."""
    return set(map(tuple, owner("""select coalesce(jsonb_agg(array[pid::text, waitstart::text]), '[]') from pg_locks
        where locktype = 'object' and database = 0 and classid = 'pg_database'::regclass and objid = 0 and not granted""")))


def of_notifications_without_end():
    """A commit that notifies takes a cluster-wide lock, and holds it until its notifications are written."""
    done, ended, calls = Event(), Event(), [0]

    def storm():
        with connect(login="nobody", autocommit=True) as db:
            db.execute("set statement_timeout = 0")
            while not done.is_set():
                db.execute("select pg_notify('storm', repeat('x', 7980) || k) from generate_series(1, 5000) k")

    def backend(db):
        while not ended.is_set():
            enqueue(f"storm-{calls[0]}", db)
            db.execute("select push.end_call(%s, app => %s)", (f"storm-{calls[0]}", APP))
            calls[0] += 1

    with connect(autocommit=True) as db:
        db.execute("set statement_timeout = 0")
        threads = [Thread(target=storm) for _ in range(4)] + [Thread(target=backend, args=(db,))]
        for thread in threads:
            thread.start()
        told = []

        def looked():
            before = notifiers()
            is_told = owner("select push.notify('push_control', 'void *')")
            if before & notifiers():
                told.append(is_told)
            return len(told) >= 20
        check("storms of large notifications: while others wait to notify, nothing is notified", (until(looked), set(told)),
            (True, {False}))
        check("so backends go on", until(lambda: calls[0] >= 3), True)
        ended.set()
        threads[-1].join()
        follow()
        rings("a call rings", "in-the-storm")
        done.set()
        for thread in threads:
            thread.join()


def of_a_login_that_may_enqueue():
    with connect() as slow:
        # It could be minutes.
        enqueue("open", slow)
        slow.execute("select id from push.outbox where call_id = 'open' for no key update")
        rings("a transaction that is left open: another's call rings", "beside-open")
        slow.execute("savepoint s")
        with refused("a lock of a whole table", "42501"):
            slow.execute("lock table push.outbox in share mode")
        slow.execute("rollback to s")
        rings("nor has a savepoint any effect", "beside-savepoint")
        slow.rollback()

    with connect() as held:
        with connect(autocommit=True) as db:
            enqueue("held", db)
            enqueue("held-2", db)
        # A backend can lock the rows that it may update: all calls, for any time.
        held.execute("select id from push.outbox where app = %s for no key update", (APP,))
        check("rows that are locked: their calls are claimed all the same", gateway.claimed(), ["held", "held-2"])
        rings("and so are others", "beside-held")
        with connect(autocommit=True) as db:
            enqueue("over", db)
        owner("select test.lapse('over')")
        check("locked calls are skipped when others are missed",
            owner("select push.miss()") >= 1 and owner("select state from push.outbox where call_id = 'over'"), "missed")
        held.rollback()

    # A prepared transaction would outlive its session.
    with connect() as db:
        enqueue("prepared", db)
        try:
            db.execute("prepare transaction 'neighbour'")
            check("a transaction that enqueued is not prepared", "prepared", "refused")
        except psycopg.Error as error:
            check("a transaction that enqueued is not prepared", error.sqlstate in ("0A000", "55000"), True)
        db.rollback()
    rings("the call beside it rings", "beside-prepared")


def of_a_transaction_that_has_read_history():
    """A reader of history delays the creation of a day's partition, and no settlement."""
    owner("select push.ensure_partitions(60)")
    furthest = owner("select 'push.history_' || to_char(current_date + 60, 'YYYYMMDD')")
    with psycopg.connect(os.environ["OWNER_URL"], autocommit=True) as db:
        db.execute(f"drop table {furthest}")
        # It gives up after a tenth of a second, and here after five minutes (Tests/sql/clock.psql).
        with connect() as reader, connect(login="gateway", autocommit=True) as maker, ThreadPoolExecutor(1) as thread:
            reader.execute("select count(*) from push.timeline('beside-open', %s)", (APP,))
            made = thread.submit(lambda: maker.execute("select push.ensure_partitions(60)").fetchone()[0])
            check("creating a partition waits for readers of history", waits(maker.info.backend_pid), True)
            rings("and no settlement waits for it", "while-made")
            check("which still waits", is_blocked(maker.info.backend_pid), True)
            reader.rollback()
            check("then it is made", made.result(PATIENCE), 1)


def first_channel_fails(calls, meanwhile):
    """In calls with two channels, the first channel is tried and fails for good."""
    apns = owner("select id from push.lane where app = %s and provider = 'apns'", APP)
    for call_id, token in calls.items():
        with connect(autocommit=True) as db:
            db.execute("select push.enqueue_call(%s, %s, %s)", (Jsonb({"callId": call_id, "from": "x"}),
                Jsonb([{"userId": "u", "voipPushToken": token * 32, "fcmToken": f"next-of-{call_id}-0123456789"}]), APP))
    gateway.claims += 1
    claimed = gateway.db.execute("select outbox_id, n from push.claim(%s, %s, array[%s]::smallint[], '{100}', '{-infinity}')",
        (gateway.id, gateway.claims, apns)).fetchall()
    meanwhile()
    for number, n in claimed:
        gateway.one(
            "select push.settle(%s, null, array[%s]::bigint[], array[%s]::int[], array[%s]::int[], '{1}', '{4}', '{410}', "
            "'{Unregistered}', '{null}', '{c}', '{now}', '{now}')",
            gateway.id, number, n, gateway.claims)


def of_rows_that_stay_locked():
    """A backend locks calls while their first channel fails; it has ended one of them, and commits late."""
    with connect() as held, connect() as ending:
        def meanwhile():
            held.execute("select id from push.outbox where call_id = 'locked' for update")
            ending.execute("select push.end_call('ending', 'busy', %s)", (APP,))

        first_channel_fails({"locked": "a1", "ending": "b2", "free": "c3"}, meanwhile)
        check("calls whose rows are locked: what follows does not wait for them",
            gateway.one("select push.follow_up(true, p_within => '1 day')"), 3)
        check("other calls go on", (owed("locked"), owed("ending"), gateway.claimed()), (None, None, ["free"]))
        check("it is put off for a tenth of a second", owner(
            "select count(*) from push.follow_ups where is_urgent and due_at between noted_at + interval '90 ms' "
            "and clock_timestamp() + greatest(interval '100 ms', (clock_timestamp() - noted_at) / 2)"), 2)
        held.rollback()
        ending.commit()
        later()
        check("then the call that rings goes on, and the one that has ended does not", (owed("locked"), owed("ending")),
            ("u:invite:ready", None))
        check("and nothing is left to be looked at", owner("select count(*) from push.follow_ups"), 0)
        check("that is sent", gateway.claimed(), ["locked"])


def numbers():
    """The values of all sequences that can be exhausted (not those of eight bytes)."""
    return owner("select jsonb_object_agg(sequencename, coalesce(last_value, 0)) from pg_sequences where schemaname = 'push' and data_type "
        "<> 'bigint'::regtype")


def of_numbers():
    """Sequences do not take back numbers of a rolled back statement."""
    before = numbers()
    check("there are sequences that could be used up", {"lane_id_seq", "gateways_id_seq", "api_keys_id_seq"} <= set(before), True)
    with connect() as db:
        for attempt in range(20):
            with refused("calls of apps that no gateway has served", "22023", "app: no gateway has served app burnt-"):
                db.execute("""insert into push.outbox (app, payload, recipients) select 'burnt-' || %s || '-' || i,
                    jsonb_build_object('callId', 'c', 'from', 'x'),
                    '[{"userId": "u", "fcmToken": "burnt-token-0123456789", "pushToken": "ExponentPushToken[burnt]"}]'
                    from generate_series(1, 20) i""", (attempt,))
            db.rollback()
            db.execute("select push.enqueue_call(%s, %s, %s)", (Jsonb({"callId": f"burnt-{attempt}", "from": "x"}), RECIPIENTS, APP))
            db.execute("select push.end_call(%s, app => %s)", (f"burnt-{attempt}", APP))
            with refused("and their devices", "22023", "push.devices.app: no gateway has served app burnt-"):
                db.execute("select push.register_device('u', %s, 'fcm', 'burnt-token-0123456789')", (f"burnt-{attempt}",))
            db.rollback()
    check("enqueueing and rolling back exhausts no sequence", numbers(), before)
    for sequence in owner("select array_agg(sequencename::text order by 1) from pg_sequences where schemaname = 'push'"):
        for login in ("enqueuer", "nobody"):
            with connect(login=login, autocommit=True) as db:
                for ask in (f"nextval('push.{sequence}')", f"setval('push.{sequence}', 32767)"):
                    with refused(f"{login}: {ask}", "42501"):
                        db.execute(f"select {ask}")
    check("nor left a lane", owner("select count(*) from push.lane where app like 'burnt%'"), 0)
    rings("and calls ring", "after-burning")
    with connect() as left_open:
        with refused("a transaction that has asked for an app's first call, and stays open", "22023"):
            with left_open.transaction():
                left_open.execute("select push.enqueue_call(%s, %s, 'first-of-all')", (Jsonb({"callId": "first", "from": "x"}), RECIPIENTS))
        with refused("and has registered a device of it", "22023"):
            with left_open.transaction():
                left_open.execute("select push.register_device('u', 'first-of-all', 'fcm', 'first-token-0123456789')")
        gateway.one("select push.register_app('first-of-all', 600)::text")
        check("the app's gateway does not wait for it", owner("select count(*) from push.lanes where app = 'first-of-all'"), 3)


def of_a_key_that_is_about_to_be_revoked():
    key = owner("select id from push.create_api_key(%s, 'x')", APP)
    with psycopg.connect(os.environ["OWNER_URL"]) as held:
        held.execute("select * from push.revoke_api_key(%s)", (key,))
        check("a revocation that is not committed: gateways note uses without waiting for it, and look the key up",
            (gateway.one("select push.note_api_key_uses(array[%s]::int[], '{0}', '{::1}')", key),
             gateway.one("select state from push.look_up_api_key(%s)", key)), (0, "good"))
        held.commit()
    check("then it is revoked", gateway.one("select state from push.look_up_api_key(%s)", key), "revoked")


of_a_login_that_may_only_connect()
of_a_login_that_may_create_in_public()
of_notifications_without_end()
of_a_login_that_may_enqueue()
of_calls_that_are_settled_meanwhile()
of_a_transaction_that_has_read_history()
of_rows_that_stay_locked()
of_numbers()
of_a_key_that_is_about_to_be_revoked()
gateway.one("select push.retire_gateway(%s)::text", gateway.id)
