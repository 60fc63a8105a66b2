"""One user's data is erased while calls are enqueued, sent, answered and declined. No statement fails, no other user's call is
affected, and at the end nothing of the user is left. Also checks which roles may not erase."""

from threading import Event, Thread

import psycopg
from psycopg.types.json import Jsonb

from harness import OWNER, check, connect, follow, later, owner, refused

APP = "erasing"
CALLS = 60
VICTIM, OTHER = "victim-4242", "neighbour-4242"
TOKENS = {VICTIM: "victim-token-0123456789", OTHER: "other-token-0123456789"}
RECIPIENTS = Jsonb([*({"userId": user, "fcmToken": token} for user, token in TOKENS.items()), VICTIM, OTHER])

errors = []
enqueued, settled = Event(), Event()


def go_on():
    """Gateways continue the erasures, later, and do what follows."""
    later()
    owner("update push.erasure set looked_at = looked_at - interval '1 minute' where finished_at is null returning null")
    while owner("select push.finish_erasures()"):
        pass
    later()


def worker(body):
    def run():
        try:
            body()
        except psycopg.Error as error:
            errors.append(f"{body.__name__}: {error.sqlstate} {error.diag.message_primary}")
    return Thread(target=run, name=body.__name__)


def backends():
    with connect(autocommit=True) as db:
        for i in range(CALLS):
            call = f"erasing-{i}"
            db.execute("select push.register_device(%s, %s, 'fcm', %s), push.register_device(%s, %s, 'expo', 'ExponentPushToken[erasing]')",
                (VICTIM, APP, TOKENS[VICTIM] + "-registered", OTHER, APP))
            db.execute("select push.enqueue_call(%s, %s, %s)",
                (Jsonb({"callId": call, "from": VICTIM if i % 7 == 0 else "door"}), RECIPIENTS, APP))
            db.execute("select push.report_ringing(%s, %s, %s)", (call, OTHER, APP))
            if i % 3 == 0:
                db.execute("select push.answer_call(%s, %s, %s)", (call, OTHER, APP))
            elif i % 3 == 1:
                db.execute("select push.decline_call(%s, %s, %s)", (call, OTHER, APP))
            else:
                db.execute("select push.end_call(%s, 'ended', %s)", (call, APP))


def gateways():
    with connect(login="gateway", autocommit=True) as db:
        def one(statement, *parameters):
            return db.execute(statement, parameters).fetchone()[0]

        lanes = [one("select push.register_lane(%s, %s)", APP, p) for p in ("fcm", "expo")]
        one("select push.register_app(%s, 600, 1)::text", APP)
        gateway, claim, idle = one("select push.register_gateway('erasing', 'test')"), 0, 0
        while idle < 3:
            last = enqueued.is_set()
            claim += 1
            db.execute("select push.beat(%s, true)", (gateway,))
            rows = db.execute("select outbox_id, n, lane, token from push.claim(%s, %s, %s::smallint[], '{20,20}', "
                "'{-infinity,-infinity}') order by 1, 2", (gateway, claim, lanes)).fetchall()
            for outbox, n, lane, token in rows:
                one("select push.settle(%s, null, array[%s]::bigint[], array[%s]::int[], array[%s]::int[], '{1}', array[%s]::smallint[], "
                    "'{200}', '{x}', array[%s], '{c}', '{now}', '{now}', null, array[%s]::int[])",
                    gateway, outbox, n, claim, 4 if outbox % 5 == 0 else 0, f"ticket-{outbox}-{n}", 1000 if lane == lanes[1] else None)
                if outbox % 5 == 0:
                    one("select push.invalidate_tokens(array[%s]::smallint[], array[%s], '{null}', '{x}')", lane, token)
            for job in ("prune", "erase", "expire_all", "follow_up_urgent", "follow_up", "escalate", "promote"):
                one("select push.run_job(%s)", job)
            owner("update push.erasure set looked_at = looked_at - interval '1 minute' where finished_at is null returning null")
            db.execute("select push.claim_receipts(%s, 10, 1), push.settle_receipts(%s, array(select 'ticket-' || i || '-0' from "
                "generate_series(1, 500) i), array_fill('x'::text, array[500]))", (APP, APP))
            idle = idle + 1 if last and not rows else 0
        one("select push.retire_gateway(%s)::text", gateway)
    settled.set()


def erasers():
    with connect(login="ops", autocommit=True) as db:
        while not settled.is_set() and not errors:
            db.execute("select * from push.erase_user(%s, %s, 20)", (VICTIM, APP))


def others():
    with connect(login="ops", autocommit=True) as db:
        while not settled.is_set() and not errors:
            db.execute("select * from push.erase_user('nobody-4242', %s, 20)", (APP,))


def of_traffic():
    # An app that no gateway has served is refused.
    owner("select push.register_app(%s, 600, 1)::text", APP)
    threads = [worker(body) for body in (gateways, erasers, erasers, others)]
    writer = worker(backends)
    for thread in [*threads, writer]:
        thread.start()
    writer.join()
    enqueued.set()
    for thread in threads:
        thread.join()
    # What follows is done later where a call was locked, and its cancels are sent.
    go_on()
    last = worker(gateways)
    last.start()
    last.join()
    check("a user is erased by two at once while calls come and go: no error anywhere", errors, [])
    check("every call ended", owner("select count(*) from push.outbox where app = %s and ended_at is not null", APP), CALLS)
    check("and nothing is owed", owner("select count(*) from push.deliveries where app = %s", APP), 0)
    check("the other user's part in the calls is whole",
        owner("select count(*) from push.outbox where app = %s and recipients @> %s and recipients @> '[\"neighbour-4242\"]'",
        APP, Jsonb([{"userId": OTHER, "fcmToken": TOKENS[OTHER]}])), CALLS)
    # A pass leaves what was registered after it began, so the last one begins now.
    for user in (VICTIM, "nobody-4242") * 2:
        for _ in range(100):
            if owner("select bool_and(is_complete) and sum(waiting) = 0 from push.erase_user(%s, %s)", user, APP):
                break
    owner("update push.erasure set asked_at = asked_at - interval '11 minutes' where app = %s returning null", APP)
    for _ in range(100):
        go_on()
        if not owner("select count(*) from push.erasure where app = %s and finished_at is null", APP):
            break
    check("its erasures are finished", owner("select count(*) from push.erasure where app = %s and finished_at is null", APP), 0)
    tables = owner("select array_agg(relname) from pg_class where relnamespace = 'push'::regnamespace and relkind in ('r', 'p') and not "
        "relispartition")
    left = [table for table in tables
        if owner(f"select exists (select from push.{table} x where strpos(x::text, %s) + strpos(x::text, %s) > 0)", VICTIM, TOKENS[VICTIM])]
    check("and nothing of the user is left", left, [])


def of_those_who_may_not():
    for login in ("nobody", "enqueuer"):
        with connect(login=login, autocommit=True) as db, refused(f"{login} erases nobody", "42501"):
            db.execute("select push.erase_user('u', %s)", (APP,))
    # The column with which push.erase_user changes calls that have ended.
    with connect(autocommit=True) as db, refused("a backend writes no call as erased", "42501"):
        db.execute("update push.outbox set erased_at = now(), answered_by = 'somebody' where app = %s", (APP,))
    with connect(autocommit=True) as db:
        db.execute("update push.outbox set answered_by = 'somebody' where app = %s and ended_at is not null", (APP,))
    check("nor changes one that has ended", owner("select count(*) from push.outbox where answered_by = 'somebody'"), 0)


def of_a_lock():
    """A session that locks a call's row, for any time, delays only that call."""
    with connect() as held:
        with connect(autocommit=True) as db:
            for call in ("held", "free"):
                db.execute("select push.enqueue_call(%s, %s, %s)", (Jsonb({"callId": f"erasing-{call}", "from": "x"}), RECIPIENTS, APP))
                db.execute("select push.end_call(%s, 'busy', %s)", (f"erasing-{call}", APP))
        follow()
        held.execute("select id from push.outbox where call_id = 'erasing-held' for no key update")
        with connect(login="ops", autocommit=True) as db:
            check("a locked call is skipped and reported as waiting",
                db.execute("select sum(waiting), bool_and(is_complete) from push.erase_user(%s, %s, 60000)", (VICTIM, APP)).fetchone(),
                (1, True))
        check("others are masked meanwhile", owner("select recipients::text ~ 'victim' from push.outbox where call_id = 'erasing-free'"),
            False)
        held.rollback()
    go_on()
    check("and that one once it is free", owner("select recipients::text ~ 'victim' from push.outbox where call_id = 'erasing-held'"),
        False)


def of_a_ringing_lock():
    """A session that locks the row of a ringing call delays its decline. The phones are told to stop although the devices are gone."""
    user, call = "holder-4242", "erasing-ringing"
    with connect() as held:
        with connect(autocommit=True) as db:
            db.execute("select push.register_device(%s, %s, 'fcm', 'holder-token-0123456789')", (user, APP))
            db.execute("select push.enqueue_call(%s, %s, %s)", (Jsonb({"callId": call, "from": "x"}), Jsonb([user, OTHER]), APP))
        with connect(login="gateway", autocommit=True) as db:
            gateway = db.execute("select push.register_gateway('erasing', 'test')").fetchone()[0]
            lanes = owner("select array_agg(id) from push.lane where app = %s", APP)
            rows = db.execute("select outbox_id, n from push.claim(%s, 1, %s::smallint[], array_fill(20, array[%s]), "
                "array_fill('-infinity'::timestamptz, array[%s])) where user_id = %s",
                (gateway, lanes, len(lanes), len(lanes), user)).fetchall()
            for outbox, n in rows:
                db.execute("select push.settle(%s, null, array[%s]::bigint[], array[%s]::int[], '{1}', '{1}', '{0}', '{200}', '{x}', "
                    "'{m}', '{c}', '{now}', '{now}', null, '{null}')", (gateway, outbox, n))
        held.execute("select id from push.outbox where call_id = %s for no key update", (call,))
        with connect(login="ops", autocommit=True) as db:
            check("a call that rings and is locked waits, and the devices do not",
                db.execute("select string_agg(place || ' ' || removed || ' ' || waiting, ', ') from push.erase_user(%s, %s, 60000) where "
                    "place in ('devices', 'outbox')", (user, APP)).fetchone(), ("devices 1 0, outbox 0 1",))
        owner("update push.erasure set asked_at = asked_at - interval '11 minutes' where user_id = %s returning null", user)
        go_on()
        check("however late it is, the erasure is not finished",
            owner("select finished_at is null from push.erasure where app = %s and user_id = %s", APP, user), True)
        held.rollback()
    go_on()
    check("once it is free it is declined", owner("select declined ? %s from push.outbox where call_id = %s", user, call), True)
    check("and the phone is told to stop", (len(rows),
        owner("select count(*) from push.deliveries where call_id = %s and user_id = %s and kind = 'cancel'", call, user)), (1, 1))


def of_a_locked_invite():
    """Two users share a phone. Its invite is locked for a moment, as by a claim: it is handed over before the call is declined."""
    call, both = "erasing-shared", ["sharer-4242", OTHER]
    with connect(autocommit=True) as db:
        db.execute("select push.enqueue_call(%s, %s, %s)", (Jsonb({"callId": call, "from": "x"}),
            Jsonb([{"userId": user, "fcmToken": "shared-token-0123456789"} for user in both]), APP))
    number = owner("select id from push.outbox where call_id = %s", call)
    with psycopg.connect(OWNER) as held:
        held.execute("select n from push.delivery where outbox_id = %s for update", (number,))
        with connect(login="ops", autocommit=True) as db:
            db.execute("select * from push.erase_user(%s, %s, 60000)", (both[0], APP))
        check("an erasure waits for no invite", owner("select declined from push.outbox where id = %s", number), None)
    go_on()
    check("later the call is declined, and the phone rings for the other user", (
        owner("select declined ? %s from push.outbox where id = %s", both[0], number),
        owner("select string_agg(user_id || ' ' || kind || ' ' || state, ', ') from push.deliveries where call_id = %s", call)),
        (True, f"{OTHER} invite ready"))


def of_a_locked_device():
    """A device's row that is locked is removed at the last look, which is repeated until it can be."""
    user = "keeper-4242"
    with connect(autocommit=True) as db:
        db.execute("select push.register_device(%s, %s, 'fcm', 'keeper-token-0123456789')", (user, APP))
    owner("update push.devices set registered_at = registered_at - interval '1 hour' where user_id = %s returning null", user)
    with psycopg.connect(OWNER) as held:
        held.execute("select from push.devices where user_id = %s for update", (user,))
        with connect(login="ops", autocommit=True) as db:
            check("a device that is locked waits",
                db.execute("select removed, waiting from push.erase_user(%s, %s, 60000) where place = 'devices'", (user, APP)).fetchone(),
                (0, 1))
        owner("update push.erasure set asked_at = asked_at - interval '11 minutes' where user_id = %s returning null", user)
        go_on()
        check("and the erasure with it", owner("select finished_at is null from push.erasure where user_id = %s", user), True)
    go_on()
    check("later it is gone, too", (owner("select count(*) from push.devices where user_id = %s", user),
        owner("select finished_at is not null from push.erasure where user_digest = sha256(convert_to(%s, 'UTF8'))", user)), (0, True))


def of_a_line():
    """Erasures whose calls somebody has locked do not keep those waiting whose calls can be declined."""
    users = ["line-a-4242", "line-b-4242", "line-c-4242"]
    declined = "select array_agg(declined ? call_id order by id) from push.outbox where call_id = any(%s)"
    with connect(autocommit=True) as db:
        for user in users:
            db.execute("select push.enqueue_call(%s, %s, %s)", (Jsonb({"callId": user, "from": "x"}), Jsonb([user, OTHER]), APP))
    with connect() as held, connect() as freed:
        held.execute("select id from push.outbox where call_id = any(%s) for no key update", (users[:2],))
        freed.execute("select id from push.outbox where call_id = %s for no key update", (users[2],))
        with connect(login="ops", autocommit=True) as db:
            for user in users:
                db.execute("select push.erase_user(%s, %s, 60000)", (user, APP))
        freed.rollback()
        go_on()
        check("a call that is free is declined, however many locked ones are before it", owner(declined, users), [None, None, True])
        held.rollback()
    go_on()
    check("then the others", owner(declined, users), [True] * 3)


of_traffic()
of_those_who_may_not()
of_a_lock()
of_a_ringing_lock()
of_a_locked_invite()
of_a_locked_device()
of_a_line()
