#!/usr/bin/env python3
"""Several databases as one outbox: a router on PL/Proxy, three shards and a fourth, on the loopback.

  PUSH_GATEWAY=.build/debug/push-gateway Tests/shards/run.py [NAME …]     NAME: some of the tests below; SHARDS_ONE_PROCESS=1: one gateway

Starts five clusters, simulated providers and gateways, and stops all of it. Ends with "N passed, N failed"; non-zero when any failed.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path

sys.dont_write_bytecode = True

import psycopg  # noqa: E402
from psycopg.conninfo import make_conninfo  # noqa: E402
from machine import APP, PASSWORD, ROOT, Machine, Results, await_, run, say  # noqa: E402

SALT = os.urandom(4).hex()


def fcm(name):
    return f"{name}_{SALT}:APA91b_{'x' * 40}"


def slot_of(call_id):
    """As a backend in any language computes it."""
    digest = hashlib.sha256(call_id.encode()).digest()
    return digest[0] << 2 | digest[1] >> 6


def phone(name, user=None):
    return [{"userId": user or name, "fcmToken": fcm(name)}]


def payload(call_id, **more):
    return json.dumps({"callId": call_id, "from": "doorman-7", "fromName": "Portaria Sul", "channelName": call_id, **more})


def enqueue(database, call_id, recipients=None, login="backend", **arguments):
    names = "".join(f", {name} => {value}" for name, value in arguments.items())
    with database.connect(login) as connection:
        return connection.execute(
            f"select deliveries, duplicate, outbox_id from push.enqueue_call(%s::jsonb, %s::jsonb, '{APP}'{names})",
            (payload(call_id), json.dumps(recipients if recipients is not None else phone(call_id))),
        ).fetchone()


def fault(database, statement, *parameters, login="backend"):
    """SQLSTATE, message, detail and hint of the error of a statement; None: it has none."""
    try:
        database.rows(statement, *parameters, login=login)
    except psycopg.Error as error:
        diagnosis = error.diag
        return (diagnosis.sqlstate, diagnosis.message_primary or str(error), diagnosis.message_detail or "", diagnosis.message_hint or "")


def ids(machine, shard, count, tag):
    """Call ids that belong to a shard."""
    with machine.router.connect() as connection:
        return [
            row[0]
            for row in connection.execute(
                "select id from (select %s || g as id from generate_series(1, 40000) g) x where push.shard_of(id) = %s limit %s",
                (f"{tag}-{SALT}-", shard, count),
            )
        ]


# --- The tests ---------------------------------------------------------------------------------------------------------------------


def calls_through_the_router(machine, results):
    router = machine.router
    call = ids(machine, 1, 1, "one")[0]
    results.equal("a call is enqueued through the router", enqueue(router, call)[:2], (1, False))
    results.equal("it is in the shard of its id alone", machine.where(call), [1])
    results.equal(
        "shards and router agree on the shard", [d.sql("select push.shard_of(%s)", call) for d in [router, *machine.shards]], [1] * 4
    )
    await_("its phone", lambda: machine.rung(call))
    results.equal("enqueued again it is a duplicate", enqueue(router, call)[:2], (1, True))
    results.equal("it is answered through the router", router.sql("select push.answer_call(%s, %s)", call, call, login="backend"), True)
    results.equal("once", router.sql("select push.answer_call(%s, %s)", call, call, login="backend"), False)
    await_("settled", lambda: "delivered" in [r[0] for r in router.rows("select event from push.timeline(%s)", call, login="backend")])
    events = [row[0] for row in router.rows("select event from push.timeline(%s)", call, login="ops")]
    results.check("its timeline", None if {"enqueued", "delivered"} <= set(events) else f"{events}")
    results.equal("push.call", router.sql("select push.call(%s) ->> 'state'", call, login="backend"), "answered")

    call = ids(machine, 2, 2, "two")[1]
    enqueue(router, call, phone(call, "ana") + phone(call + "b", "bea"))
    results.equal("a call is compared", router.sql("select state from push.compare_call(%s, '{}', '[]')", call, login="backend"), "ringing")
    results.equal("somebody joins", router.sql("select deliveries from push.add_recipients(%s, '[\"nobody\"]')", call, login="backend"), 0)
    results.equal("a user declines", router.sql("select push.decline_call(%s, 'ana')", call, login="backend"), True)
    results.equal("a phone reports that it rings", router.sql("select push.report_ringing(%s, 'bea')", call, login="backend"), True)
    results.equal("the call is ended", router.sql("select push.end_call(%s)", call, login="backend"), True)
    results.equal(
        "an unknown call is an error, with the message of docs/sql.md",
        fault(router, "select push.end_call('nobody')")[:2],
        ("P0002", "call_id: there is no call nobody"),
    )
    error = fault(router, "select push.enqueue_call('{\"callId\": \"bad\", \"from\": 7}', '[]', %s)", APP)
    results.equal("so is a faulty one", error[:2], ("22023", "payload.from: must be a string (call bad)"))
    results.check("which says the shard", None if error[2].startswith("Said by shard") else error[2])

    number = enqueue(router, f"skip-{SALT}", ["nobody"])[2]
    results.equal(
        "skipped recipients, by the number of the call",
        router.rows("select user_id, reason from push.skipped_recipients(%s)", number, login="backend"),
        [("nobody", "NoDevice")],
    )
    call = ids(machine, 0, 3, "three")[2]
    enqueue(router, call, ["nobody"])
    results.check(
        "requeue", None if "nothing to requeue" in router.sql("select message from push.requeue(%s)", call, login="ops") else "no"
    )
    results.check("void_call", None if "was ended" in router.sql("select message from push.void_call(%s)", call, login="ops") else "no")
    message = router.rows(
        "select deliveries, call_id from push.enqueue_call('{\"chatId\": \"room\", \"from\": \"ana\"}', %s::jsonb, %s, "
        "kind => 'message')",
        json.dumps(phone("chat")),
        APP,
        login="backend",
    )[0]
    results.equal(
        "a notification without an id gets one of its shard",
        machine.where(message[1]),
        [router.sql("select push.shard_of(%s)", message[1])],
    )


def many_calls(machine, results):
    router = machine.router
    calls = [f"batch-{SALT}-{number}" for number in range(300)]
    rows = [json.dumps({"app": APP, "payload": json.loads(payload(call)), "recipients": phone(call)}) for call in calls]
    made = router.rows("select n, call_id, duplicate from push.enqueue_batch(%s::jsonb[])", rows, login="backend")
    results.equal("a batch is split over the shards and answered in its order", made, [(n, call, False) for n, call in enumerate(calls)])
    spread = [shard.sql("select count(*) from push.outbox where call_id like %s", f"batch-{SALT}%") for shard in machine.shards]
    results.check("every shard has its part", None if sum(spread) == 300 and min(spread) > 60 else f"{spread}")
    results.equal(
        "a batch that is repeated is duplicates",
        {row[2] for row in router.rows("select n, call_id, duplicate from push.enqueue_batch(%s::jsonb[])", rows, login="backend")},
        {True},
    )
    error = fault(
        router, "select push.enqueue_batch(%s::jsonb[])", [*rows[:20], json.dumps({"app": APP, "payload": {"callId": f"no-{SALT}"}})]
    )
    results.check(
        "a batch with a faulty call says which, and that others may be enqueued",
        None if error and error[0] == "22023" and f"no-{SALT}" in error[1] and "may have been enqueued" in error[3] else f"{error}",
    )
    with router.connect("backend") as connection:
        inserted = connection.execute(
            "insert into push.outbox (app, payload, recipients) values (%s, %s, %s), (%s, %s, %s) returning call_id, state",
            [APP, payload(f"row-{SALT}-1"), json.dumps(phone("row1")), APP, payload(f"row-{SALT}-2"), json.dumps(phone("row2"))],
        ).fetchall()
        results.equal("rows are inserted as into a shard", inserted, [(f"row-{SALT}-1", "ringing"), (f"row-{SALT}-2", "ringing")])
        cursor = connection.cursor()
        with cursor.copy("copy push.outbox (app, payload, recipients) from stdin") as copy:
            for number in range(20):
                copy.write_row((APP, payload(f"copy-{SALT}-{number}"), json.dumps(phone(f"copy{number}"))))
        results.equal("COPY", cursor.rowcount, 20)
        calls += [f"row-{SALT}-1", f"row-{SALT}-2"] + [f"copy-{SALT}-{n}" for n in range(20)]
    await_("all phones", lambda: all(machine.counts().get(call) for call in calls))
    results.equal("every phone rings once", {call: n for call, n in machine.counts().items() if call in calls and n != 1}, {})
    error = fault(router, "update push.outbox set state = 'ended' where call_id = 'x'")
    results.equal("an UPDATE says what to do instead", error and (error[0], "push.end_call" in error[3]), ("0A000", True))
    error = fault(router, "select call_id from push.outbox")
    results.equal("so does a SELECT", error and (error[0], "push.call(" in error[3]), ("0A000", True))


def a_row_is_refused(machine, results):
    """The error of a row in COPY would print its line, with the tokens."""
    router = machine.router
    calls = [f"refused-{SALT}-{number}" for number in range(3)]
    with router.connect("backend") as connection:
        cursor = connection.cursor()
        try:
            with cursor.copy("copy push.outbox (recipients, payload, app) from stdin") as copy:
                for call, more in zip(calls, ({}, {"from": 7}, {})):
                    copy.write_row((json.dumps(phone(call)), payload(call, **more), APP))
            outcome = "accepted"
        except psycopg.Error as error:
            diagnosis = error.diag
            outcome = (diagnosis.sqlstate, diagnosis.message_primary)
            said = " ".join(filter(None, [str(error), diagnosis.message_detail, diagnosis.message_hint, diagnosis.context]))
        results.equal("a faulty row of a COPY is refused", outcome, ("22023", f"payload.from: must be a string (call {calls[1]})"))
        results.check("its error prints nothing of the line", said if fcm(calls[1]) in said or "COPY outbox" in said else None)
        results.check("and says that earlier rows are enqueued", None if "Rows before this one are enqueued" in said else said)
        log = (router.directory / "postgres.log").read_text()
        results.check("nor does the router's log", "it does" if f'"userId": "{calls[1]}"' in log else None)
        results.equal("earlier rows are enqueued, later ones are not", [len(machine.where(call)) for call in calls], [1, 0, 0])
        results.equal(
            "the next statement of the session is not affected",
            connection.execute(
                "insert into push.outbox (app, payload, recipients) values (%s, %s, %s) returning call_id",
                (APP, payload(calls[2]), json.dumps(phone(calls[2]))),
            ).fetchall(),
            [(calls[2],)],
        )


def one_local_transaction(machine, results):
    """A backend whose own tables are in a shard."""
    shard = machine.shards[2]
    shard.sql("create schema if not exists backend")
    shard.sql("create table if not exists backend.calls (id text primary key, door text)")
    shard.sql("grant usage on schema backend to backend; grant select, insert on backend.calls to backend")
    with shard.connect("backend", autocommit=False) as connection:
        call = connection.execute("select push.new_call_id()").fetchone()[0]
        connection.execute("insert into backend.calls values (%s, 'north')", (call,))
        connection.execute(
            "insert into push.outbox (app, payload, recipients) values (%s, %s, %s)", (APP, payload(call), json.dumps(phone(call)))
        )
        connection.rollback()
        results.equal(
            "rolled back, neither the call nor the backend's row is there",
            [
                shard.sql("select count(*) from push.outbox where call_id = %s", call),
                shard.sql("select count(*) from backend.calls where id = %s", call),
            ],
            [0, 0],
        )
        call = connection.execute("select push.new_call_id()").fetchone()[0]
        connection.execute("insert into backend.calls values (%s, 'north')", (call,))
        connection.execute(
            "insert into push.outbox (app, payload, recipients) values (%s, %s, %s)", (APP, payload(call), json.dumps(phone(call)))
        )
        connection.commit()
    await_("the phone", lambda: machine.rung(call))
    results.equal("committed, both are, and the phone rings", shard.sql("select count(*) from backend.calls where id = %s", call), 1)
    results.equal(
        "others answer it through the router", machine.router.sql("select push.answer_call(%s, 'x')", call, login="backend"), True
    )
    other = ids(machine, 0, 1, "stray")[0]
    error = fault(shard, "select push.enqueue_call(%s::jsonb, '[]', %s)", payload(other), APP)
    results.equal(
        "a shard refuses a call that belongs to another",
        error[:2],
        ("22S01", f"callId: call {other} belongs to shard 0, and this is shard 2 (map 1)"),
    )


def rights(machine, results):
    router = machine.router
    mine, theirs = ids(machine, 1, 2, "tenant")
    results.equal(
        "a tenant enqueues for its app",
        router.sql("select duplicate from push.enqueue_call(%s::jsonb, '[]', 'tenants')", payload(mine), login="tenant"),
        False,
    )
    enqueue(router, theirs, [])
    results.equal(
        "for another app it may not",
        fault(router, "select push.enqueue_call(%s::jsonb, '[]', %s)", payload("t-x"), APP, login="tenant")[:2],
        ("42501", f"app: this login may not act for app {APP}"),
    )
    results.equal(
        "nor by INSERT",
        fault(router, "insert into push.outbox (app, payload, recipients) values (%s, %s, '[]')", APP, payload("t-x"), login="tenant")[0],
        "42501",
    )
    results.equal(
        "nor in a batch",
        fault(
            router,
            "select push.enqueue_batch(array[%s]::jsonb[])",
            json.dumps({"app": APP, "payload": json.loads(payload("t-x")), "recipients": []}),
            login="tenant",
        )[0],
        "42501",
    )
    for what, statement in (("end", "select push.end_call(%s)"), ("read", "select push.call(%s)")):
        results.equal(
            f"it cannot {what} another's call, nor learn of it",
            fault(router, statement, theirs, login="tenant")[:2],
            ("P0002", f"call_id: there is no call {theirs}"),
        )
    results.equal("its timeline is empty", router.rows("select * from push.timeline(%s)", theirs, login="tenant"), [])
    results.equal(
        "no call is found by the router's own functions",
        router.rows("select push_router.find_calls(1, array[%s, %s], array[null, null])", theirs, mine, login="tenant"),
        [(1,)],
    )
    results.equal("its own call it ends", router.sql("select push.end_call(%s)", mine, login="tenant"), True)
    error = fault(router, "begin; lock table push.outbox in access exclusive mode", login="tenant")
    results.equal("it cannot keep others from inserting", error and error[0], "42501")
    results.equal("a tenant does not see what operators see", fault(router, "select * from push.lanes", login="tenant")[0], "42501")
    results.equal(
        "operators do not enqueue",
        fault(router, "select push.enqueue_call(%s::jsonb, '[]', %s)", payload("ops-x"), APP, login="ops")[0],
        "42501",
    )
    error = fault(router, "create user mapping for tenant server push options (user 'push')", login="tenant")
    results.equal("no login maps itself to another", error and error[:2], ("42501", "user mappings are made by a superuser"))
    error = fault(router, "alter user mapping for tenant server push options (set user 'push')", login="tenant")
    results.equal("nor changes its mapping", error and error[0], "42501")
    error = fault(router, "drop event trigger push_keep_mappings", login="tenant")
    results.equal("nor drops what keeps it", error and error[0], "42501")
    results.equal(
        "the password of a mapping is its owner's to see",
        router.rows(
            "select usename, umoptions is null from pg_user_mappings where srvname = 'push' "
            "and usename in ('backend', 'tenant') order by 1",
            login="tenant",
        ),
        [("backend", True), ("tenant", False)],
    )
    machine.login_at(router, "stranger", "push_enqueuer")
    router.sql("drop user mapping for stranger server push")
    error = fault(router, "select push.end_call('x')", login="stranger")
    results.equal(
        "a login without a mapping is told what is missing",
        error and (error[0], "create user mapping for stranger" in error[3]),
        ("42704", True),
    )
    results.check(
        "and operators see it",
        (
            None
            if "stranger may use push-gateway here and has no user mapping for the server push"
            in str(router.rows("select fault from push.router_faults", login="ops"))
            else "no"
        ),
    )
    router.sql("create user mapping for stranger server push options (user 'stranger', password 'wrong')")
    error = fault(router, "select push.end_call('x')", login="stranger")
    results.equal("a wrong password is not let in", error and (error[0], "password authentication failed" in error[1]), ("08006", True))
    router.sql("drop user mapping for stranger server push")
    router.sql("revoke push_enqueuer from stranger")


def devices_and_operators(machine, results):
    router = machine.router
    router.rows("select push.register_device('dora', %s, 'fcm', %s)", APP, fcm("dora"), login="backend")
    results.equal(
        "a device is registered in every shard",
        [s.sql("select count(*) from push.devices where user_id = 'dora'") for s in machine.shards],
        [1, 1, 1],
    )
    calls = [ids(machine, number, 1, "dora")[0] for number in range(3)]
    results.equal("a call in any of them goes to it", [enqueue(router, call, ["dora"])[0] for call in calls], [1, 1, 1])
    await_("the phone, three times", lambda: all(machine.rung(call) for call in calls))
    results.equal("switched off", router.sql("select push.enable_device(%s, 'fcm', %s, false)", APP, fcm("dora"), login="backend"), True)
    results.equal(
        "in all of them", [s.sql("select enabled from push.devices where user_id = 'dora'") for s in machine.shards], [False] * 3
    )
    results.equal("dropped", router.sql("select push.drop_device(%s, 'fcm', %s)", APP, fcm("dora"), login="backend"), True)
    results.equal(
        "from all of them", [s.sql("select count(*) from push.devices where user_id = 'dora'") for s in machine.shards], [0, 0, 0]
    )
    for number, shard in enumerate(machine.shards):
        shard.sql(f"""insert into push.token_invalidations (app, provider, token, reason, invalidated_at)
            select %s, 'fcm', 'shard-{number}-token-' || i, 'x', now() - interval '{number + 1} minutes'
            from generate_series(1, 2) i returning 1""", APP)
    dead = "select string_agg(left(token, 7), ' ' order by died_at) from push.dead_tokens(now() - interval '1 hour', array[%s], {})"
    results.equal(
        "dead tokens of all shards, the oldest first",
        [router.sql(dead.format(rows), APP, login="backend") for rows in (1, 3, 1000)],
        ["shard-2 shard-2", "shard-2 shard-2 shard-1 shard-1", "shard-2 shard-2 shard-1 shard-1 shard-0 shard-0"],
    )
    for shard in machine.shards:
        shard.sql("delete from push.token_invalidations where token like 'shard-%%' returning 1")
    results.equal(
        "lanes of all shards", {row[0] for row in router.rows("select shard from push.lanes where app = %s", APP, login="ops")}, {0, 1, 2}
    )
    results.equal(
        "one living replica for each",
        [row[0] for row in router.rows("select shard from push.replicas where alive order by 1", login="ops")],
        [0, 1, 2],
    )
    results.equal(
        "a lane is paused everywhere",
        [row[0] for row in router.rows("select changed from push.pause_lane(%s, 'fcm', 'test')", APP, login="ops")],
        [True] * 3,
    )
    for call in (held := [ids(machine, number, 2, "held")[1] for number in range(3)]):
        enqueue(router, call)
    results.equal(
        "push.summary adds up what the shards owe",
        router.rows("select provider, kind, state, count from push.summary where app = %s and kind = 'invite'", APP, login="ops"),
        [("fcm", "invite", "ready", 3)],
    )
    results.check(
        "push.health says it of each",
        None if len(router.rows("select 1 from push.health where item = 'lanes' and state = 'bad'", login="ops")) == 3 else "no",
    )
    router.rows("select push.resume_lane(%s, 'fcm')", APP, login="ops")
    await_("what was held", lambda: all(machine.rung(call) for call in held))
    results.check(
        "push.audit has all of it",
        None if len(router.rows("select 1 from push.audit where action = 'pause_lane' and who = 'ops'", login="ops")) == 3 else "no",
    )
    results.equal(
        "push.shards",
        [row[1:] for row in router.rows("select name, shard, slots, map, answers, trouble from push.shards", login="ops")],
        [(0, 342, 1, True, None), (1, 341, 1, True, None), (2, 341, 1, True, None)],
    )
    erased = router.rows("select place, is_complete from push.erase_user('dora', %s)", APP, login="ops")
    results.equal("a user is erased from all", {row[0][:8] for row in erased}, {"shard 0:", "shard 1:", "shard 2:"})
    results.equal("push.router_faults", router.rows("select * from push.router_faults", login="ops"), [])


class Traffic:
    """Backends that enqueue one call after another and repeat what failed, until stopped."""

    def __init__(self, machine, tag, ways=("single", "batch", "row", "direct"), ring=60):
        self.machine, self.tag, self.ring = machine, tag, ring
        # The map as backends in shards read it once.
        self.map = machine.shards[0].sql("select shards from push.shard_map where until is null")
        self.stopping = threading.Event()
        self.done, self.errors, self.slow = [], {}, 0.0
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.loop, args=(way,), daemon=True) for way in ways]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(90)

    def loop(self, way):
        connections = {}
        number = 0
        while not self.stopping.is_set():
            number += 1
            calls = [f"{self.tag}-{SALT}-{way}-{number}-{n}" for n in range(20 if way == "batch" else 1)]
            began = time.monotonic()
            while True:
                # It goes to another shard only when the one that it knows of refuses the call.
                owner = self.map[slot_of(calls[0])]
                key = owner if way == "direct" else "router"
                try:
                    if key not in connections or connections[key].closed:
                        database = self.machine.shards[owner] if way == "direct" else self.machine.router
                        connections[key] = database.connect("backend", options="-c statement_timeout=15000")
                    self.enqueue(connections[key], way, calls)
                    break
                except psycopg.Error as error:
                    state = error.diag.sqlstate or "connection"
                    with self.lock:
                        self.errors.setdefault(state, []).append(error.diag.message_primary or str(error))
                    if way == "direct" and state == "22S01":
                        self.map[slot_of(calls[0])] = int(error.diag.message_primary.split("belongs to shard ")[1].split(",")[0])
                    if state == "connection" or connections[key].broken:
                        connections.pop(key, None)
                    if self.stopping.is_set() and time.monotonic() - began > 30:
                        return
                    time.sleep(0.1)
            with self.lock:
                self.done += calls
                self.slow = max(self.slow, time.monotonic() - began)
            time.sleep(0.02)
        for connection in connections.values():
            connection.close()

    def enqueue(self, connection, way, calls):
        if way == "batch":
            connection.execute(
                "select count(*) from push.enqueue_batch(%s::jsonb[])",
                (
                    [
                        json.dumps({"app": APP, "payload": json.loads(payload(call)), "recipients": phone(call), "ring_seconds": self.ring})
                        for call in calls
                    ],
                ),
            )
        elif way == "row":
            connection.execute(
                "insert into push.outbox (app, payload, recipients, ring_seconds) values (%s, %s, %s, %s)",
                (APP, payload(calls[0]), json.dumps(phone(calls[0])), self.ring),
            )
        else:
            connection.execute(
                f"select push.enqueue_call(%s::jsonb, %s::jsonb, '{APP}', {self.ring})", (payload(calls[0]), json.dumps(phone(calls[0])))
            )

    def check(self, results, what):
        """Nothing lost, nothing doubled: each call is in one shard, and rang once."""
        machine = self.machine
        places = {}
        for number, shard in enumerate(machine.shards):
            for (call,) in shard.rows("select call_id from push.outbox where call_id like %s", f"{self.tag}-{SALT}%"):
                places.setdefault(call, []).append(number)
        results.equal(
            f"{what}: every one of {len(self.done)} calls is in a shard", [call for call in self.done if call not in places][:5], []
        )
        results.equal(f"{what}: none is in two", {call: at for call, at in list(places.items()) if len(at) > 1}, {})
        await_("every phone", lambda: not self.missing(places))
        # On a machine that stands still for seconds a connection is lost, and what was under way on it is sent again.
        again = {call for shard in machine.shards for (call,) in shard.rows(
            "select call_id from push.delivery_history where call_id like %s and kind = 'invite' and attempts > 1", f"{self.tag}-{SALT}%")}
        counts = machine.counts()
        results.equal(
            f"{what}: every phone rang once",
            {call: counts[call] for call in places if counts.get(call) != 1 and call not in again}, {})

    def missing(self, places):
        counts = self.machine.counts()
        return [call for call in places if not counts.get(call)]


def a_shard_is_killed(machine, results):
    router, dead = machine.router, machine.shards[1]
    mine = ids(machine, 1, 6, "kill")
    other = ids(machine, 0, 400, "beside")
    # Held back by a pause, so that they are owed when the server dies.
    dead.sql("select push.pause_lane(%s, 'fcm')", APP)
    enqueue(router, mine[0], ring_seconds=120)
    enqueue(router, mine[1], ring_seconds=2)
    dead.kill()
    began = time.monotonic()
    error = fault(router, "select push.enqueue_call(%s::jsonb, '[]', %s)", payload(mine[2]), APP)
    results.check(
        "a call of the shard that was killed is an error at once that names the shard and the remedy",
        (
            None
            if error
            and error[0] == "08006"
            and error[1].startswith("shard 1 (")
            and "does not answer" in error[1]
            and "push.shards" in error[3]
            and time.monotonic() - began < 5
            else f"{error} after {time.monotonic() - began:.1f} s"
        ),
    )
    error = fault(router, "select push.answer_call(%s, 'x')", mine[0])
    results.check("so is an answer", None if error and error[0] == "08006" and error[1].startswith("shard 1 (") else f"{error}")
    error = fault(
        router,
        "select push.enqueue_batch(%s::jsonb[])",
        [json.dumps({"app": APP, "payload": json.loads(payload(call)), "recipients": phone(call)}) for call in (mine[3], other[300])],
    )
    results.check(
        "a batch that has calls of it fails and names it",
        None if error and error[0] == "08006" and error[1].startswith("shard 1 (") else f"{error}",
    )
    error = fault(router, "select push.register_device('eve', %s, 'fcm', %s)", APP, fcm("eve"))
    results.check(
        "registering a device fails and names it",
        None if error and error[0] == "08006" and error[1].startswith("shard 1 (") else f"{error}",
    )
    results.equal(
        "the others have the device",
        [machine.shards[n].sql("select count(*) from push.devices where user_id = 'eve'") for n in (0, 2)],
        [1, 1],
    )

    delays = []
    for call in other[:40]:
        began = time.monotonic()
        enqueue(router, call)
        await_("the phone", lambda: machine.rung(call))
        delays.append(time.monotonic() - began)
    results.check(
        f"calls of the other shards ring on: the slowest of 40 after {max(delays) * 1000:.0f} ms, reading the log of the simulators "
        "included",
        None if max(delays) < 2 else f"{delays}",
    )

    with router.connect("ops") as connection:
        notices = []
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        began = time.monotonic()
        shards = {row[0] for row in connection.execute("select shard from push.lanes").fetchall()}
        took = time.monotonic() - began
        results.equal("an ops view shows the shards that answer", shards, {0, 2})
        results.check("a warning names the one that does not", None if notices and notices[0].startswith("shard 1 (") else f"{notices}")
        results.check(f"it takes {took * 1000:.0f} ms", None if took < 5 else "too long")
        results.equal(
            "push.health has it as bad",
            connection.execute("select value, state from push.health where item = 'shard' and shard = 1").fetchall(),
            [("does not answer", "bad")],
        )
        answers = {row[0]: row[1] for row in connection.execute("select shard, answers from push.shards").fetchall()}
        results.equal("push.shards says which answer", answers, {0: True, 1: False, 2: True})
        rows = connection.execute("select changed, message from push.pause_lane(%s, 'expo', 'test')", (APP,)).fetchall()
        results.check(
            "what is switched everywhere is switched where possible, and says where not",
            None if [row[0] for row in rows] == [True, None, True] and "repeat it later" in rows[1][1] else f"{rows}",
        )
        connection.execute("select push.resume_lane(%s, 'expo')", (APP,))
        erased = connection.execute("select place, is_complete from push.erase_user('eve', %s)", (APP,)).fetchall()
        results.check(
            "an erasure is not complete",
            None if any(not complete and "does not answer" in place for place, complete in erased) else f"{erased}",
        )

    url = make_conninfo(router.url, user="ops", password=PASSWORD)
    for command in re.findall(r'^psql "\$ROUTER_URL" .*$', (ROOT / "docs/operations/a-shard-does-not-answer.md").read_text(), re.M):
        done = run("sh", "-c", command, environment={"ROUTER_URL": url}, check=False)
        results.check(
            f"the runbook's command shows it: {command[22:60]}…", None if "does not answer" in done.stdout else done.stdout + done.stderr
        )

    dead.start()
    dead.sql("select push.resume_lane(%s, 'fcm')", APP)
    await_("the call that still rings", lambda: machine.rung(mine[0]), 40)
    results.equal("when it is back, a call whose time is not over rings", machine.rung(mine[0]), 1)
    await_("the other call's end", lambda: router.sql("select push.call(%s) ->> 'state'", mine[1], login="backend") == "missed")
    results.equal(
        "one whose time is over is missed, and did not ring",
        (
            machine.rung(mine[1]),
            router.rows("select event, reason from push.timeline(%s) where event in ('expired', 'void')", mine[1], login="ops")[:1],
        ),
        (0, [("expired", "DeadlinePassed")]),
    )
    for call in (mine[2], mine[3], other[300]):
        enqueue(router, call)
    results.equal("what was repeated is in one place", [machine.where(call) for call in (mine[2], mine[3], other[300])], [[1], [1], [0]])
    router.rows("select push.register_device('eve', %s, 'fcm', %s)", APP, fcm("eve"), login="backend")
    results.equal(
        "the device, registered again, is everywhere",
        [s.sql("select count(*) from push.devices where user_id = 'eve'") for s in machine.shards],
        [1, 1, 1],
    )


def killed_under_traffic(machine, results):
    with Traffic(machine, "crash") as traffic:
        time.sleep(2)
        machine.shards[2].kill()
        time.sleep(4)
        machine.shards[2].start()
        time.sleep(4)
    states = {state: len(messages) for state, messages in traffic.errors.items()}
    results.check(
        f"backends saw only errors of the connection: {states}",
        (
            None
            if set(states) <= {"08006", "57P03", "57P02", "57P01", "connection"} and states
            else str({state: messages[:2] for state, messages in traffic.errors.items()})
        ),
    )
    traffic.check(results, "a shard is killed under traffic and comes back")


def a_shard_freezes(machine, results):
    router, frozen = machine.router, machine.shards[1]
    mine, early, late = ids(machine, 1, 3, "ice")
    other = ids(machine, 0, 1, "warm")[0]
    # Connections that are open when it freezes, as those of a pool.
    ops = router.connect("ops", options="-c statement_timeout=4000")
    ops.execute("select count(*) from push.lanes")
    pooled = router.connect("backend", options="-c statement_timeout=3000")
    pooled.execute(f"select push.enqueue_call(%s::jsonb, '[]', '{APP}')", (payload(early),))
    frozen.freeze()
    try:
        began = time.monotonic()
        enqueue(router, other)
        await_("the phone", lambda: machine.rung(other))
        results.check(
            "a frozen shard does not delay the others' calls", None if time.monotonic() - began < 2 else f"{time.monotonic() - began:.1f} s"
        )
        results.equal(
            "switched off",
            router.sql("select push.set_shard(1, true, 'frozen')", login="ops"),
            "shard 1 is not asked any more by this router",
        )
        began = time.monotonic()
        error = fault(router, "select push.enqueue_call(%s::jsonb, '[]', %s)", payload(mine), APP)
        results.check(
            "its calls fail at once and say so",
            (
                None
                if error
                and error[0] == "08006"
                and "switched off on this router: frozen" in error[1]
                and "push.set_shard(1, false)" in error[3]
                and time.monotonic() - began < 2
                else f"{error}"
            ),
        )
        began = time.monotonic()
        results.equal(
            "ops views show the others at once", {row[0] for row in router.rows("select shard from push.lanes", login="ops")}, {0, 2}
        )
        results.check("at once", None if time.monotonic() - began < 3 else f"{time.monotonic() - began:.1f} s")
        router.sql("select push.set_shard(1, false)", login="ops")
        # Not switched off: PL/Proxy waits. The time limit of the caller's statement ends it, also in a session with open connections.
        for what, session in (
            ("a new session", lambda: router.connect("ops", options="-c statement_timeout=4000")),
            ("an old one", lambda: ops),
        ):
            outcome = []

            def look():
                try:
                    with session() as connection:
                        outcome.append(connection.execute("select count(*) from push.lanes").fetchone())
                except psycopg.Error as error:
                    outcome.append((error.diag.sqlstate, error.diag.message_hint or ""))

            thread = threading.Thread(target=look, daemon=True)
            began = time.monotonic()
            thread.start()
            thread.join(20)
            results.check(
                f"an ops view with a statement_timeout of 4 s ends, in {what}: after {time.monotonic() - began:.1f} s, and says what to do",
                None if outcome and outcome[0][0] == "57014" and "push.set_shard" in outcome[0][1] else f"{outcome}",
            )
        error = fault(router, "set statement_timeout = 3000; select push.enqueue_call(" + f"'{payload(late)}', '[]', '{APP}')")
        results.check(
            "a statement of one call that reaches its time limit names the shard",
            None if error and error[0] == "57014" and error[1].startswith("shard 1 (") and "push.set_shard(1" in error[3] else f"{error}",
        )
        # What the runbook says of sessions that do not end.
        outcome = []

        def enqueue_pooled():
            try:
                pooled.execute(f"select push.enqueue_call(%s::jsonb, '[]', '{APP}')", (payload(late),))
            except psycopg.Error as error:
                outcome.append((error.diag.sqlstate, error.diag.message_primary))

        thread = threading.Thread(target=enqueue_pooled, daemon=True)
        thread.start()
        thread.join(6)
        results.equal("a session whose connection was open waits beyond its time limit", outcome, [])
        results.equal("a termination does not end it", router.sql("select pg_terminate_backend(%s, 2000)", pooled.info.backend_pid), False)
        closed = run("ss", "--no-header", "--kill", "dst", frozen.host, "dport", "=", str(frozen.port), check=False)
        if str(frozen.port) in closed.stdout:
            thread.join(20)
            results.check("closing the connection to the shard does", None if outcome else "it still waits")
        else:
            print("   closing the connection to the shard is not tested: ss --kill needs root, and a kernel with INET_DIAG_DESTROY")
        results.equal(
            "without a time limit of its own, a session has the router's", router.sql("show statement_timeout", login="ops"), "15s"
        )
    finally:
        frozen.thaw()
        frozen.frozen = None
        ops.close()
        pooled.close()
    await_(
        "the shard",
        lambda: not fault(router, "select push.enqueue_call(%s::jsonb, %s::jsonb, %s)", payload(mine), json.dumps(phone(mine)), APP),
    )
    await_("its phone", lambda: machine.rung(mine))
    results.equal("thawed, its calls ring", machine.where(mine), [1])


def a_shard_is_added(machine, results):
    router = machine.router
    router.rows("select push.register_device('fay', %s, 'fcm', %s)", APP, fcm("fay"), login="backend")
    router.rows("select push.register_device('gil', %s, 'fcm', %s)", APP, fcm("gil"), login="backend")
    before = dict(
        router.rows(
            "select 'moved-' || %s || '-' || g, push.shard_of('moved-' || %s || '-' || g) from generate_series(1, 200) g", SALT, SALT
        )
    )
    calls = list(before)
    for call in calls[:100]:
        enqueue(router, call, ring_seconds=600)
    number = len(machine.shards)
    say(f"Shard {number}")
    machine.add_shard()
    machine.login_at(machine.shards[-1], "backend", "push_enqueuer")
    machine.login_at(machine.shards[-1], "ops", "push_ops")
    machine.login_at(machine.shards[-1], "tenant", app="tenants")
    machine.serve()
    # A backend that has enqueued in its transaction and not committed: the shard must not change the map under it.
    slow = machine.shards[0].connect("backend", autocommit=False)
    held = ids(machine, 0, 400, "slow")
    for call in held:
        slow.execute(f"select push.enqueue_call(%s::jsonb, %s::jsonb, '{APP}')", (payload(call), json.dumps(phone(call))))
    # And one whose snapshot is older than the new map.
    old = machine.shards[0].connect("backend", autocommit=False)
    old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    old.execute("select count(*) from push.outbox")
    # A phone that is dropped while devices are copied: a router's statement came to the new shard before the copy did.
    dropping = threading.Thread(target=drop_while_copied, args=(machine, machine.shards[:number], machine.shards[number]))
    dropping.start()
    # The backend's calls are repeated through the router as soon as this has the new map.
    repeated = []
    repeating = threading.Thread(target=repeat_with_map, args=(machine, 2, held, repeated))
    with Traffic(machine, "add") as traffic:
        time.sleep(2)
        threading.Timer(10, slow.commit).start()
        repeating.start()
        began = time.monotonic()
        machine.apply()
        took = time.monotonic() - began
        time.sleep(3)
    slow.close()
    dropping.join()
    repeating.join()
    results.equal(
        "a device that was dropped while they were copied is not in the new shard",
        [s.sql("select count(*) from push.devices where user_id = 'gil'") for s in machine.shards],
        [0] * (number + 1),
    )
    results.check(
        f"the map changes under traffic, {took:.1f} s after it began, behind a transaction that was open for 10 s of it",
        None if took > 9.5 else "too soon",
    )
    results.equal("calls of that transaction, repeated through the router at once, are duplicates", repeated.count(True), len(held))
    results.equal("and in one place", {call: machine.where(call) for call in held if machine.where(call) != [0]}, {})
    after = dict(router.rows("select c, push.shard_of(c) from unnest(%s::text[]) c", calls))
    moved = [call for call in calls if before[call] != after[call]]
    results.check(
        f"{len(moved)} of 200 calls belong to it",
        None if len(moved) > 20 and {after[call] for call in moved} == {number} else f"{moved[:3]}",
    )
    results.equal("databases agree", {d.sql("select max(generation) from push.shard_map") for d in [router, *machine.shards]}, {2})
    states = {state: len(messages) for state, messages in traffic.errors.items()}
    results.check(
        f"backends behind the router saw no error; those in a shard were told where to go: {states}",
        (
            None
            if set(states) == {"22S01"} and all("belongs to shard" in m for m in traffic.errors.get("22S01", []))
            else str({state: messages[:2] for state, messages in traffic.errors.items()})
        ),
    )
    print(f"   the slowest call took {traffic.slow:.2f} s")
    traffic.check(results, "a shard is added under traffic")
    results.check(
        "the new shard has calls",
        None if machine.shards[-1].sql("select count(*) from push.outbox where call_id like %s", f"add-{SALT}%") > 10 else "none",
    )
    await_("the slow backend's calls", lambda: all(machine.counts().get(call) for call in held))
    results.equal("the slow backend's calls rang once", {call for call in held if machine.counts()[call] != 1}, set())
    mine = next(call for call in ids(machine, number, 2000, "gone") if machine.router.sql("select push.shards_of(%s)", call)[1:] == [0])
    try:
        old.execute(f"select push.enqueue_call(%s::jsonb, '[]', '{APP}')", (payload(mine),))
        outcome = "accepted"
    except psycopg.Error as error:
        outcome = error.diag.sqlstate
    old.rollback()
    old.close()
    results.equal("a transaction that sees the old map may not enqueue under it", outcome, "40001")
    results.equal("and nothing is there", machine.where(mine), [])

    old_moved = [call for call in moved if call in calls[:100]]
    new_moved = [call for call in moved if call in calls[100:]]
    results.equal(
        "a call from before, repeated, is a duplicate where it is",
        [(enqueue(router, call)[1], machine.where(call)) for call in old_moved],
        [(True, [before[call]]) for call in old_moved],
    )
    batch = [json.dumps({"app": APP, "payload": json.loads(payload(call)), "recipients": phone(call)}) for call in moved]
    results.equal(
        "in a batch, too",
        {
            call: duplicate
            for call, duplicate in router.rows("select call_id, duplicate from push.enqueue_batch(%s::jsonb[])", batch, login="backend")
        },
        {call: call in old_moved for call in moved},
    )
    results.equal("new calls of its slots go to it", [machine.where(call) for call in new_moved], [[number]] * len(new_moved))
    results.equal(
        "calls from before are answered, read and requeued where they are",
        [
            (
                router.sql("select push.call(%s) ->> 'callId'", call, login="backend") == call,
                len(router.rows("select 1 from push.timeline(%s)", call, login="ops")) > 0,
                router.sql("select requeued from push.requeue(%s)", call, login="ops"),
                router.sql("select push.answer_call(%s, 'x')", call, login="backend"),
            )
            for call in old_moved[:5]
        ],
        [(True, True, 0, True)] * 5,
    )
    results.equal("a call that no shard has is an error still", fault(router, "select push.end_call(%s)", mine)[0], "P0002")
    results.equal("its devices came along", enqueue(router, new := ids(machine, number, 1, "fay")[0], ["fay"])[0], 1)
    await_("that phone", lambda: machine.rung(new))
    results.equal("nothing is left to do", machine.apply().stdout.count("already"), number + 2)


def repeat_with_map(machine, generation, calls, repeated):
    await_("the router's new map", lambda: machine.router.sql("select generation from push.shard_map where until is null") == generation)
    repeated += [enqueue(machine.router, call)[1] for call in calls]


def drop_while_copied(machine, shards, new):
    await_("the copy of the device", lambda: new.sql("select count(*) from push.devices where user_id = 'gil'"))
    for shard in shards:
        shard.sql("select push.drop_device(%s, 'fcm', %s)", APP, fcm("gil"))


def a_shard_is_closed(machine, results):
    router = machine.router
    number = 1
    calls = ids(machine, number, 20, "close")
    for call in calls[:10]:
        enqueue(router, call)
    with Traffic(machine, "close") as traffic:
        time.sleep(1)
        machine.apply(["closed" if n == number else "shard" for n in range(len(machine.shards))])
        time.sleep(2)
    results.equal("a closed shard owns nothing", router.sql("select slots from push.shards where shard = %s", number, login="ops"), 0)
    for call in calls[10:]:
        enqueue(router, call)
    results.equal("new calls go elsewhere", [call for call in calls[10:] if machine.where(call) in ([], [number])], [])
    results.equal(
        "earlier ones are found there", [router.sql("select push.end_call(%s)", call, login="backend") for call in calls[:10]], [True] * 10
    )
    results.equal("repeated, they are duplicates", {enqueue(router, call)[1] for call in calls}, {True})
    traffic.check(results, "a shard is closed under traffic")
    say("The closed shard dies for good")
    stop_serving(machine, number)
    machine.shards[number].stop()
    error = machine.apply(["closed" if n == number else "shard" for n in range(len(machine.shards))], check=False)
    results.check(
        "a map is not changed while a shard does not answer",
        None if error.returncode and "Nothing was changed" in error.stderr else error.stderr,
    )
    machine.apply(["dead" if n == number else "shard" for n in range(len(machine.shards))])
    call = ids(machine, 0, 50, "after")[49]
    results.equal("marked as dead it is not asked", enqueue(router, call)[:2], (1, False))
    results.equal(
        "also for slots that were its own within the hour",
        {enqueue(router, call)[:2] for call in (f"late-{SALT}-{n}" for n in range(40))},
        {(1, False)},
    )


def stop_serving(machine, number):
    from machine import stop

    process = machine.serving.pop(machine.shards[number].name, None)
    if process:
        stop(process)


def from_one_database(machine, results):
    """A database that has been in use alone becomes shard 0 of three: its calls are found where they are."""
    router = machine.router
    for database in [router, *machine.shards]:
        database.sql("set client_min_messages = error; delete from push.shard_map")
    for shard in machine.shards:
        shard.sql(
            "delete from push.shard_here; drop trigger if exists refuse_slots on push.outbox; "
            "truncate push.outbox, push.delivery, push.call_key, push.devices"
        )
    alone = machine.shards[0]
    calls = [f"alone-{SALT}-{n}" for n in range(30)]
    for call in calls:
        enqueue(alone, call, ["hal"])
    alone.rows("select push.register_device('hal', %s, 'fcm', %s)", APP, fcm("hal"), login="backend")
    out = machine.apply().stdout
    results.check(
        "first it owns all, then its share", None if "shard 0 has map 1: 1024 of 1024" in out and "shard 0 has map 2: " in out else out
    )
    results.equal("its calls are found", {router.sql("select push.end_call(%s)", call, login="backend") for call in calls}, {True})
    results.equal("and are duplicates", {enqueue(router, call, ["hal"])[1] for call in calls}, {True})
    results.equal(
        "its devices are everywhere", [s.sql("select count(*) from push.devices where user_id = 'hal'") for s in machine.shards], [1, 1, 1]
    )


def a_slot_moves_under_a_batch(machine, results):
    """The router repeats a batch while the map changes. Messages without an id must not be enqueued again."""
    router, shards = machine.router, machine.shards
    generation, slots = router.rows("select generation, shards from push.shard_map where until is null")[0]
    moving = ids(machine, 0, 1, "moving")[0]
    slots[slot_of(moving)] = 1
    for number, shard in enumerate(shards):
        shard.sql("select push.use_shard_map(%s, %s::int[], %s)", generation + 1, slots, number)
    chat = f"chat-{SALT}"
    message = {"app": APP, "kind": "message", "payload": {"chatId": chat, "from": "ana"}, "recipients": phone(chat)}
    calls = [json.dumps(message)] * 3 + [json.dumps({"app": APP, "payload": json.loads(payload(moving)), "recipients": []})]
    made = []
    batch = threading.Thread(
        target=lambda: made.extend(
            router.rows("select call_id, duplicate from push.enqueue_batch(%s::jsonb[]) order by n", calls, login="backend")
        )
    )
    batch.start()
    time.sleep(1)
    router.sql("select push.use_shard_map(%s, %s::int[])", generation + 1, slots)
    batch.join()
    found = [
        row[0] for shard in shards for row in shard.rows("select call_id from push.outbox where payload ->> 'chatId' = %s", chat)
    ]
    want = sorted(row[0] for row in made[:3])
    results.equal("messages without an id are enqueued once, although the batch is repeated", sorted(found), want)
    results.equal("and are no duplicates", [row[1] for row in made], [False] * 4)
    results.equal("the call is enqueued, too", machine.where(moving), [1])


def a_dead_shard_returns(machine, results):
    router = machine.router
    gone, stays, passed, late = (f"{name}-{SALT}" for name in ("gone", "stays", "passed", "late"))
    for user in (gone, stays, passed):
        router.rows("select push.register_device(%s, %s, 'fcm', %s)", user, APP, fcm(user), login="backend")
    machine.apply(["shard", "shard", "dead"])
    results.equal(
        "while a shard is dead, a device is registered without an error",
        [
            fault(router, "select push.register_device(%s, %s, 'fcm', %s)", user, APP, fcm(token))
            for user, token in ((late, late), (f"{passed}-on", passed))
        ],
        [None, None],
    )
    results.equal("and dropped", fault(router, "select push.drop_device(%s, 'fcm', %s)", APP, fcm(gone)), None)
    error = fault(router, "select push.set_shard(2, false)", login="ops")
    results.check("it is not switched on by hand", None if error and error[0] == "55000" and "shards.sh" in error[3] else f"{error}")
    # The operator's connection is lost while devices are copied: no token stays in a file, and the next run copies them.
    with tempfile.TemporaryDirectory() as folder:
        machine.configuration.write_text(machine.configuration.read_text().replace("dead 2", "shard 2"))
        command = ["deploy/plproxy/shards.sh", str(machine.configuration), "apply"]
        environment = {**os.environ, "TMPDIR": folder, "SHARDS_SETTLE_SECONDS": "3"}
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_("the copy of the devices", lambda: list(Path(folder).glob("*/gone")) or process.poll() is not None)
        process.send_signal(signal.SIGHUP)
        process.wait()
        results.equal("shards.sh leaves no files behind when it is interrupted", list(Path(folder).iterdir()), [])
    machine.apply()
    users = "select string_agg(user_id, ' ' order by user_id) from push.devices where user_id like %s"
    results.equal(
        "when it is back, it has the devices as they are now",
        [shard.sql(users, f"%{SALT}%") for shard in machine.shards],
        [" ".join(sorted([late, stays, f"{passed}-on"]))] * 3,
    )
    results.equal("and is asked again", router.sql("select bool_and(answers) from push.shards", login="ops"), True)
    results.equal("a shard that is asked has no note", router.sql("select count(*) from push_router.shard where note is not null"), 0)


def mistakes_in_the_file(machine, results):
    """A file that cannot be right is refused before any database is changed."""
    router = machine.router

    def maps():
        return [shard.rows("select generation, md5(shards::text) from push.shard_map where until is null") for shard in machine.shards]

    def refused(what, words, *, shards=None):
        before, listed = maps(), machine.shards
        machine.shards = shards or listed
        done = machine.apply(check=False)
        machine.shards = listed
        results.check(what, None if done.returncode and "Nothing was changed" in done.stderr and words in done.stderr else str(done))
        results.equal("nothing was changed", maps(), before)
        results.equal("also on the router", router.sql("select count(*) from push_router.shard"), 3)

    refused("a shard that is listed twice is refused", "leads to shard 1", shards=[*machine.shards, machine.shards[1]])
    new = machine.add_shard()
    for login in ("backend", "ops", "tenant"):  # of an earlier run
        new.sql(f"drop role if exists {login}")
    refused("so is a database that is listed twice", "same database", shards=[*machine.shards, new])
    refused("and one without the logins that routers have", "backend (push_enqueuer)")
    machine.login_at(new, "backend", "push_enqueuer")
    machine.login_at(new, "ops", "push_ops")
    machine.login_at(new, "tenant", app="tenants")
    new.rows("select push.register_app(%s, 60)", APP)
    new.rows("select push.register_device('own', %s, 'fcm', %s)", APP, fcm("own"))
    refused("and one with devices of its own", "does not have: 1")
    results.equal("which keeps them", new.sql("select count(*) from push.devices"), 1)
    new.sql("delete from push.devices")
    machine.serve()
    machine.apply()
    results.equal("corrected, it is accepted", len({str(map_) for map_ in maps()}), 1)

    # Two operators at the same time, with different files.
    number = router.sql("select max(generation) + 1 from push.shard_map")
    for shard, open_ in ((0, "{0,1,2}"), (1, "{0,1,2,3}")):
        machine.shards[shard].sql(
            "select push.use_shard_map(%s, push.spread_slots(%s::int[], array_fill(-1, array[1024])), %s)", number, open_, shard
        )
    # What shard 0 has is what the file says.
    machine.apply(["shard", "shard", "shard", "closed"])
    results.equal("two maps of the same number are replaced by one", len({str(map_) for map_ in maps()}), 1)


TESTS = [
    calls_through_the_router,
    many_calls,
    a_row_is_refused,
    one_local_transaction,
    rights,
    devices_and_operators,
    a_shard_is_killed,
    killed_under_traffic,
    a_shard_freezes,
    a_shard_is_added,
    a_shard_is_closed,
]
ALONE = [from_one_database, a_slot_moves_under_a_batch, a_dead_shard_returns, mistakes_in_the_file]


def main():
    gateway = Path(os.environ.get("PUSH_GATEWAY", ROOT / ".build/debug/push-gateway"))
    if not os.access(gateway, os.X_OK):
        sys.exit(f"run.py: there is no program {gateway}: build it, or name it in PUSH_GATEWAY")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = sys.argv[1:]
    unknown = [name for name in names if name not in [test.__name__ for test in TESTS + ALONE]]
    if unknown:
        sys.exit(f"run.py: there is no test {unknown[0]}: there are {', '.join(test.__name__ for test in TESTS + ALONE)}")
    results = Results()
    try:
        for tests in (ALONE, TESTS):
            chosen = [test for test in tests if not names or test.__name__ in names]
            if not chosen:
                continue
            with Machine(gateway) as machine:
                machine.serve()
                machine.apply()
                machine.login("backend", "push_enqueuer")
                machine.login("ops", "push_ops")
                machine.login("tenant", app="tenants")
                for test in chosen:
                    say(test.__name__.replace("_", " ").capitalize())
                    test(machine, results)
    except Exception as trouble:  # whatever it is, what was started is stopped, and the tests have failed
        traceback.print_exc()
        results.check("the tests run to their end", f"{type(trouble).__name__}: {trouble}")
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"{results.passed} passed, {results.failed} failed")
    sys.exit(1 if results.failed or not results.passed else 0)


if __name__ == "__main__":
    main()
