"""Quotas with several sessions: producers at once, transactions that stay open or are rolled back, COPY, and logins that attack
their own quota or a neighbour's."""

import os
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg.types.json import Jsonb

from harness import OWNER, check, connect, owner

APP = "porteiro"
TENANTS = ("tenant_a", "tenant_b")
INSERT = "insert into push.outbox (app, payload, recipients) values (%s, %s, %s)"
SECRET = "secret-quota-token-0123456789"


def call(call_id, app=APP):
    return (app, Jsonb({"callId": call_id, "from": "secret-from"}), Jsonb([{"userId": "u", "fcmToken": SECRET}]))


def fresh(app, limit):
    """Sets a quota of calls, of which nothing is used."""
    owner("select message from push.set_quota(%s, %s)", app, limit)
    owner("select test.reset_meters(%s)", app)


def used(app):
    return owner("select used || '/' || refusals from push.quotas where app = %s and what = 'calls'", app)


def outcome(db, statement, parameters=None):
    try:
        db.execute(statement, parameters)
        return "taken"
    except psycopg.Error as error:
        return error.sqlstate


def there(like):
    return owner("select count(*) from push.outbox where call_id like %s", like)


# Producers at once, each with transactions of its own.


def produce(number):
    with connect(autocommit=True) as db:
        return [outcome(db, INSERT, call(f"producer-{number}-{index}")) for index in range(8)]


fresh(APP, 3)
with ThreadPoolExecutor(8) as pool:
    ended = sum(pool.map(produce, range(8)), [])
check("of producers at once, as many calls are taken as the quota allows",
    (ended.count("taken"), ended.count("53Q01"), there("producer-%")), (3, 61, 3))

# Statements that race for the last of a quota. They ask before they count; here they count at once, so that each one races.


def counted(db, apps, counts):
    """push.use_quota returns the error that the trigger raises."""
    return db.execute("select coalesce(push.use_quota(%s, %s) ->> 'code', 'taken')", (apps, counts)).fetchone()[0]


def race(count, times=1):
    with psycopg.connect(OWNER, autocommit=True) as db:
        return [counted(db, [APP], [[count, 0, 0]]) for _ in range(times)]


fresh(APP, 30)
ended = race(3) + race(30)
with ThreadPoolExecutor(6) as pool:
    ended = sum(pool.map(lambda _: race(3, 60), range(6)), ended)
check("of statements that race, as many are taken as there is room for", (ended.count("taken"), ended.count("53Q01")), (10, 352))
check("and those that are refused leave nothing counted, and take off nothing that others have", used(APP), "30/352")

# A statement of several apps, or with several limits, that loses such a race.
fresh("tenant_a", 5)
fresh("tenant_b", 0)
with psycopg.connect(OWNER, autocommit=True) as db:
    check("a statement of two apps is refused for the second", counted(db, ["tenant_a", "tenant_b"], [[2, 0, 0], [1, 0, 0]]), "53Q01")
    check("nothing of the first is counted", (used("tenant_a"), used("tenant_b")), ("0/0", "0/1"))
    owner("select message from push.set_quota('tenant_a', 5, recipients_per_minute => 1)")
    check("a statement is refused for its recipients", counted(db, ["tenant_a"], [[2, 0, 2]]), "22023")
    check("its calls are not counted", used("tenant_a"), "0/1")
for app in TENANTS:
    owner("select message from push.set_quota(%s)", app)

# A transaction that stays open blocks nobody, and counts before its commit.
fresh(APP, 3)
with connect() as slow, connect(autocommit=True) as quick, psycopg.connect(OWNER, autocommit=True) as operator:
    check("a transaction enqueues and stays open", outcome(slow, INSERT, call("open-1")), "taken")
    check("another session enqueues meanwhile", outcome(quick, INSERT, call("open-2")), "taken")
    check("by the function, too", outcome(quick, "select push.enqueue_call(%s, %s, %s)", (*call("open-3")[1:], APP)), "taken")
    check("what the open transaction enqueued is counted", outcome(quick, INSERT, call("open-4")), "53Q01")
    check("nobody waits for a quota to be changed", outcome(operator, "select changed from push.set_quota(%s, 4)", (APP,)), "taken")
    check("and it holds at once", outcome(quick, INSERT, call("open-4")), "taken")
    slow.rollback()
    check("what was rolled back stays counted for its minute", outcome(quick, INSERT, call("open-5")), "53Q01")
check("the call is gone", there("open-1"), 0)

# One transaction that enqueues in a loop, with savepoints.
fresh(APP, 3)
with connect() as db:
    ended = []
    for index in range(5):
        db.execute("savepoint one")
        ended.append(outcome(db, INSERT, call(f"loop-{index}")))
        if ended[-1] != "taken":
            db.execute("rollback to savepoint one")
    db.commit()
check("a loop within one transaction is stopped, and keeps what it had",
    (" ".join(ended), there("loop-%")), ("taken taken taken 53Q01 53Q01", 3))

# COPY, whose errors may print the line.
fresh(APP, 3)


def copy(db, *calls):
    with db.cursor() as cursor, cursor.copy("copy push.outbox (app, payload, recipients) from stdin") as lines:
        for call_id in calls:
            app, payload, recipients = call(call_id)
            lines.write_row((app, payload, recipients))


def copied(*calls):
    with connect(autocommit=True) as db:
        try:
            copy(db, *calls)
            return "taken"
        except psycopg.Error as error:
            fields = ("message_primary", "message_detail", "message_hint", "context")
            said = " ".join(str(getattr(error.diag, field)) for field in fields)
            return f"{error.sqlstate} {'secret' in said}"


check("COPY is taken up to the quota", copied("copy-1", "copy-2"), "taken")
check("beyond it, all of it is refused, without printing a line", copied("copy-3", "copy-4"), "53Q01 False")
check("the calls that exist are duplicates, and no more are counted", (copied("copy-1", "copy-2", "copy-5"), used(APP)), ("taken", "3/1"))
check("more than a minute's quota would never be taken", copied("big-1", "big-2", "big-3", "big-4"), "22023 False")

# A statement that another rule refuses uses nothing up.
fresh(APP, 3)
with connect(autocommit=True) as db:
    check("an invalid call is refused", outcome(db, INSERT, (APP, Jsonb(7), Jsonb([]))), "22023")
    check("and so is a call of an app that nobody serves, in one statement with one of this app", outcome(db,
        "insert into push.outbox (app, payload, recipients) select a, %s, '[\"u\"]' from unnest(array[%s, 'unserved']) a",
        (Jsonb({"callId": "mixed", "from": "x"}), APP)), "22023")
check("nothing is counted for them", used(APP), "0/0")

# A login may enqueue for its own app alone, and attacks: its own quota, then its neighbour's.
BOUND = os.environ["LOGIN_PREFIX"] + "tenant_a"
with psycopg.connect(OWNER, autocommit=True) as db:
    # As in tenants.py, which runs before.
    db.execute(f"alter role {BOUND} inherit")
    db.execute("select * from push.grant_app(%s, 'tenant_a')", (BOUND,))
for tenant in TENANTS:
    fresh(tenant, 2)
for login in ("tenant_a", "enqueuer"):
    with connect(login=login, autocommit=True) as db:
        meter = owner("select format('push.meter_%s_calls', id) from push.quota where app = 'tenant_a'")
        for statement in ("select push.set_quota('tenant_a', 1000000)", "select push.set_quota('tenant_a')", f"select setval('{meter}', 0)",
                f"select nextval('{meter}')", f"select last_value from {meter}", "update push.quota set set_to = '{null,null,null}'",
                "table push.quotas", "delete from push.quota", "select push.use_quota('{tenant_b}', '{{1000,0,0}}')",
                "select push.quota_fault('tenant_b', '{1,0,0}')",
                f"select push.count_on_meter('{meter}', 1000)", f"drop sequence {meter}", "select push.take_tally()",
                "select push.register_app('tenant_a', 60, p_quota => '{1000000,null,null}')"):
            check(f"{login}: {statement.split('(')[0]} is not allowed", outcome(db, statement), "42501")
with connect(login="tenant_a", autocommit=True) as db:
    for limit in (2, 0):
        fresh("tenant_b", limit)
        ended = [outcome(db, INSERT, call("theirs", "tenant_b")),
            outcome(db, "select push.enqueue_call(%s, %s, 'tenant_b')", call("theirs")[1:]),
            outcome(db, "select push.enqueue_batch(array[%s])", (Jsonb({"app": "tenant_b", "payload": {"callId": "t", "from": "x"},
                "recipients": []}),))]
        check(f"a neighbour's app is refused, whose quota is {limit}", ended, ["42501"] * 3)
        check("nothing of its quota is used, and no refusal counted", used("tenant_b"), "0/0")
    fresh("tenant_b", 2)
    for index in range(3):
        outcome(db, INSERT, call(f"own-{index}", "tenant_a"))
    check("its own calls are counted", (there("own-%"), used("tenant_a")), (2, "2/1"))
with connect(autocommit=True) as db:
    check("the neighbour has its whole quota",
        [outcome(db, INSERT, call(f"b-{i}", "tenant_b")) for i in range(3)], ["taken", "taken", "53Q01"])
for app in (APP, *TENANTS):
    owner("select message from push.set_quota(%s)", app)
