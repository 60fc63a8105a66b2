"""Backends in REPEATABLE READ and SERIALIZABLE transactions, which see an older snapshot: they end, delete and enqueue calls
while gateways continue. Direct and through the pool. And a follow-up that meets a claim that is not committed yet."""

import threading

import psycopg
from psycopg.types.json import Jsonb

from harness import OWNER, WAYS, check, connect, follow, is_blocked, later, owed, owner, refused, until

LEVELS = {"repeatable read": psycopg.IsolationLevel.REPEATABLE_READ, "serializable": psycopg.IsolationLevel.SERIALIZABLE}
APP = "snapshots"


def token(user):
    return f"snapshot-token-0123456789-{user}"


class Gateway:
    """A gateway with one lane, which claims and settles on request."""

    def __init__(self):
        self.claims = 0
        self.lane = owner("select push.register_lane(%s, 'fcm')", APP)
        owner("select push.register_lane(%s, 'expo')", APP)
        self.id = owner("select push.register_gateway('snapshots', 'test')")

    def claim(self):
        self.claims += 1
        return owner("select count(*) from push.claim(%s, %s, array[%s]::smallint[], array[1000], array['-infinity']::timestamptz[])",
            self.id, self.claims, self.lane)

    def settle(self, call_id, outcome=0, reason=None):
        """Settles its deliveries of a call."""
        return owner(
            """select push.settle(%s, array_agg(d.ctid order by n), array_agg(d.outbox_id order by n), array_agg(d.n order by n),
              array_agg(d.lease order by n), array_agg(1), array_agg(%s::smallint), array_agg(200::smallint), array_agg(%s::text),
              array_agg('m'::text), array_agg(o.call_id), array_agg(now()), array_agg(now()))
            from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = %s and d.state = 1""",
            self.id, outcome, reason, call_id)

    def release(self, call_id):
        return owner(
            """select push.release(%s, array_agg(d.outbox_id), array_agg(d.n), array_agg(d.lease))
            from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = %s and d.state = 1""",
            self.id, call_id)


def ring(call_id):
    """Ana has one channel, Bruno two."""
    return owner(
        "select outbox_id from push.enqueue_call(%s, %s, %s)", Jsonb({"callId": call_id, "from": "x"}),
        Jsonb([{"userId": "ana", "fcmToken": token("ana")},
            {"userId": "bruno", "fcmToken": token("bruno"), "pushToken": "ExponentPushToken[snapshot-bruno]"}]), APP)


def past(call_id):
    return owner(
        "select string_agg(user_id || ':' || kind || ':' || outcome, ' ' order by n) from push.delivery_history where call_id = %s",
        call_id)


def snapshot(db):
    """Begins the transaction and takes its snapshot."""
    db.execute("select state from push.outbox limit 1").fetchall()


def end(db, call_id, reason="busy"):
    return db.execute("select push.end_call(%s, %s, %s)", (call_id, reason, APP)).fetchone()[0]


def ends(way, level, gateway):
    def name(text):
        return f"{way}, {level}: {text}"

    def call(what):
        return f"{way}-{level}-{what}"

    with connect(way) as db:
        db.isolation_level = LEVELS[level]

        ring(call("quiet"))
        snapshot(db)
        end(db, call("quiet"))
        db.commit()
        follow()
        check(name("a call that nobody has touched ends"), (owed(call("quiet")), past(call("quiet"))),
            (None, "ana:invite:void bruno:invite:void"))
        follow()
        check(name("nothing is done twice"), (owed(call("quiet")), past(call("quiet"))), (None, "ana:invite:void bruno:invite:void"))

        ring(call("claimed"))
        snapshot(db)
        gateway.claim()
        check(name("a call whose invites were claimed since then ends"), end(db, call("claimed")), True)
        db.commit()
        follow()
        check(name("the devices are told"), owed(call("claimed")),
            "ana:invite:claimed bruno:invite:claimed ana:cancel:ready bruno:cancel:ready")
        gateway.settle(call("claimed"))
        gateway.claim()

        ring(call("delivered"))
        snapshot(db)
        gateway.claim()
        gateway.settle(call("delivered"))
        end(db, call("delivered"))
        db.commit()
        follow()
        check(name("devices that were rung since then are told"), owed(call("delivered")), "ana:cancel:ready bruno:cancel:ready")

        ring(call("released"))
        gateway.claim()
        snapshot(db)
        gateway.release(call("released"))
        end(db, call("released"))
        db.commit()
        follow()
        check(name("invites that were given back since then are void, and were not sent"), (past(call("released")), owed(call("released"))),
            ("ana:invite:void bruno:invite:void", None))
        gateway.claim()

        ring(call("missed"))
        snapshot(db)
        gateway.claim()
        gateway.settle(call("missed"))
        end(db, call("missed"), "ended")
        db.commit()
        check(name("who missed a call is told when it is known who gets a cancel"), owed(call("missed")), None)
        follow()
        check(name("of each phone that was rung since then the missed call follows a cancel"),
            owner("select string_agg(d.user_id || ':' || d.kind || ':' || d.paired, ' ' order by d.n) "
                "from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = %s", call("missed")),
            "ana:1:true bruno:1:true ana:2:true bruno:2:true")
        gateway.claim()

        ring(call("fallback"))
        gateway.claim()
        snapshot(db)
        gateway.settle(call("fallback"), 4, "Unregistered")
        follow()
        check(name("an invite over the next channel"), owed(call("fallback")), "bruno:invite:ready")
        end(db, call("fallback"))
        db.commit()
        follow()
        check(name("that was made since then is void"), past(call("fallback")), "ana:invite:dead bruno:invite:dead bruno:invite:void")

        ring(call("raced"))
        snapshot(db)
        owner("select push.answer_call(%s, 'ana', %s)", call("raced"), APP)
        with refused(name("a call that has ended since then: the backend is to try again"), "40001"), db.transaction():
            end(db, call("raced"))
        db.rollback()
        check(name("then it knows"), end(db, call("raced")), False)
        db.commit()
    # A call with a user whom it has not reached is looked at once more, a second later.
    later()
    check(name("nothing is left to be looked at"), owner("select count(*) from push.follow_ups"), 0)


def deletions(level, gateway):
    """As the owner of the schema."""
    def name(text):
        return f"{level}: {text}"

    def escalate():
        owner("insert into push.follow_ups (outbox_id, why, is_urgent) select id, 'unheard', true from push.outbox where call_id = %s "
            "returning 1", f"{level}-gone-escalated")
        follow()

    for what, touch in (("claimed", gateway.claim), ("released", lambda: gateway.release(f"{level}-gone-released")),
                        ("escalated", escalate)):
        call_id = f"{level}-gone-{what}"
        number = ring(call_id)
        if what != "claimed":
            gateway.claim()
        if what == "escalated":
            gateway.settle(call_id)
        with psycopg.connect(OWNER) as db:
            db.isolation_level = LEVELS[level]
            snapshot(db)
            touch()
            owner("select push.report_ringing(%s, 'ana', %s)", call_id, APP)
            db.execute("delete from push.outbox where call_id = %s", (call_id,))
        follow()
        check(name(f"a call whose invites were {what} since then is deleted with all that belongs to it"),
            owner("select (select count(*) from push.delivery where outbox_id = %s) + (select count(*) from push.ring_reports where "
                "outbox_id = %s)", number, number), 0)


def beside_a_claim(gateway):
    """A follow-up waits for no claim, and no settlement for the follow-up."""
    number = ring("claiming")
    owner("select push.end_call('claiming', 'busy', %s)", APP)
    with psycopg.connect(OWNER) as claim, psycopg.connect(OWNER) as following:
        gateway.claims += 1
        # As a claim whose snapshot is older than the end: it does not see it.
        claim.execute("update push.delivery set state = 1, owner = %s, lease = %s, attempt = 1 where outbox_id = %s",
            (gateway.id, gateway.claims, number))
        run = threading.Thread(target=lambda: following.execute("select push.follow_up(p_within => '1 day')"))
        run.start()
        until(lambda: not run.is_alive() or is_blocked(following.info.backend_pid))
        claim.commit()
        run.join()
        try:
            settled = gateway.settle("claiming")
        except psycopg.errors.LockNotAvailable as error:
            settled = error
        check("results of the claim are settled beside an uncommitted follow-up that met it", settled, 2)
        following.commit()
    later()
    check("then the phones that rang are told", owed("claiming"), "ana:cancel:ready bruno:cancel:ready")


gateway = Gateway()
beside_a_claim(gateway)
for level in LEVELS:
    for way in WAYS:
        ends(way, level, gateway)
    deletions(level, gateway)
