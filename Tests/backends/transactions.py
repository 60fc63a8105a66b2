"""Transactions of backends: their visibility to others, and two at once. Direct and through the pool."""

from concurrent.futures import ThreadPoolExecutor

from psycopg.types.json import Jsonb

from harness import OWNER, PATIENCE, WAYS, check, connect, owed, owner, refused, waits

import psycopg

RECIPIENTS = Jsonb([{"userId": "u", "fcmToken": "transaction-token-0123456789"}])
INSERT = "insert into push.outbox (payload, recipients) values (%s, %s)"


def call(call_id):
    return (Jsonb({"callId": call_id, "from": "x"}), RECIPIENTS)


class Bells:
    """A session that listens as a gateway does."""

    def __init__(self):
        self.db = psycopg.connect(OWNER, autocommit=True)
        self.db.execute("listen push_outbox")
        self.heard = []
        self.db.add_notify_handler(lambda notice: self.heard.append(notice.payload))

    def rung(self):
        """Whether a notification has arrived. They arrive in the order of their commits, so the session's own is the last."""
        self.db.execute("notify push_outbox, 'probe'")
        self.db.execute("select 1")
        heard, self.heard = self.heard, []
        assert heard[-1:] == ["probe"], heard
        return "" in heard


def alone(way):
    def name(text):
        return f"{way}: {text}"

    bells = Bells()
    db = connect(way)

    # A transaction that stays open for as long as a backend's other work takes.
    db.execute(INSERT, call(f"{way}-long"))
    db.execute("select push.enqueue_call(%s, %s)", call(f"{way}-long-2"))
    seen = "select count(*) from push.outbox where call_id like %s"
    check(name("before the commit no other session sees the call"), owner(seen, f"{way}-long%"), 0)
    check(name("nor its deliveries"), owed(f"{way}-long"), None)
    check(name("nor hears the bell"), bells.rung(), False)
    check(name("the backend itself sees them"), db.execute("select push.call(%s) ->> 'state'", (f"{way}-long-2",)).fetchone(), ("ringing",))
    check(name("meanwhile another's call goes through"),
        connect(way, autocommit=True).execute("select deliveries from push.enqueue_call(%s, %s)", call(f"{way}-other")).fetchone(), (1,))
    check(name("with its bell"), bells.rung(), True)
    db.commit()
    check(name("after it they are there"), (owner(seen, f"{way}-long%"), owed(f"{way}-long"), owed(f"{way}-long-2")),
        (2, "u:invite:ready", "u:invite:ready"))
    check(name("and the bell rings"), bells.rung(), True)

    # Rolled back.
    db.execute(INSERT, call(f"{way}-back"))
    db.execute("select push.end_call(%s, 'busy')", (f"{way}-long",))
    db.rollback()
    check(name("a rollback takes calls with it"), (owner(seen, f"{way}-back"), owed(f"{way}-back")), (0, None))
    check(name("and ends"), owed(f"{way}-long"), "u:invite:ready")
    check(name("and the bell"), bells.rung(), False)

    # Savepoints.
    db.execute(INSERT, call(f"{way}-save-1"))
    try:
        with db.transaction():
            db.execute(INSERT, call(f"{way}-save-2"))
            db.execute("select push.end_call(%s, 'busy')", (f"{way}-save-1",))
            raise InterruptedError
    except InterruptedError:
        pass
    with refused(name("a bad call in a savepoint is refused"), "22023", "payload.from: must be a string"), db.transaction():
        db.execute(INSERT, (Jsonb({"callId": f"{way}-save-3", "from": 7}), RECIPIENTS))
    with db.transaction():
        db.execute(INSERT, call(f"{way}-save-4"))
    db.commit()
    check(name("what was rolled back to a savepoint is not enqueued, the rest is"),
        [owed(f"{way}-save-{i}") for i in range(1, 5)], ["u:invite:ready", None, None, "u:invite:ready"])
    check(name("it leaves no call behind"), owner(seen, f"{way}-save-%"), 2)

    # Enqueued and ended in one transaction.
    db.execute(INSERT, call(f"{way}-brief"))
    db.execute("select push.answer_call(%s, 'u')", (f"{way}-brief",))
    db.commit()
    check(name("enqueued and answered in one transaction: nobody is rung"), owed(f"{way}-brief"), None)

    # A connection that dies.
    db.execute(INSERT, call(f"{way}-died"))
    db.close()
    check(name("a connection that goes away takes its open transaction along"), owner(seen, f"{way}-died"), 0)


def together(way):
    def name(text):
        return f"{way}: {text}"

    enqueue = "select duplicate from push.enqueue_call(%s, %s)"
    answer = "select push.answer_call(%s, %s)"
    with connect(way) as one, connect(way) as two, ThreadPoolExecutor(1) as thread:

        def second(statement, parameters, end_of_first):
            """Runs a statement in TWO, which has to wait for ONE, whose transaction then ends in this way."""
            pid = two.execute("select pg_backend_pid()").fetchone()[0]
            result = thread.submit(lambda: two.execute(statement, parameters).fetchone()[0])
            waited = waits(pid)
            end_of_first()
            answered = result.result(PATIENCE)
            two.commit()
            return waited, answered

        one.execute(enqueue, call(f"{way}-race"))
        check(name("the same call in two transactions: the second waits, and is a duplicate"),
            second(enqueue, call(f"{way}-race"), one.commit), (True, True))
        check(name("one delivery"), owed(f"{way}-race"), "u:invite:ready")
        one.execute(enqueue, call(f"{way}-race-2"))
        check(name("if the first is rolled back, the second enqueues it"), second(enqueue, call(f"{way}-race-2"), one.rollback),
            (True, False))
        check(name("and it is owed"), owed(f"{way}-race-2"), "u:invite:ready")

        winner = "select answered_by from push.outbox where call_id = %s"
        one.execute(answer, (f"{way}-race", "ana"))
        check(name("two answer at once: the second waits, and is late"), second(answer, (f"{way}-race", "bruno"), one.commit),
            (True, False))
        check(name("the first has answered"), owner(winner, f"{way}-race"), "ana")
        one.execute(answer, (f"{way}-race-2", "ana"))
        check(name("if the first is rolled back, the second has answered"), second(answer, (f"{way}-race-2", "bruno"), one.rollback),
            (True, True))
        check(name("and is known by name"), owner(winner, f"{way}-race-2"), "bruno")


for way in WAYS:
    alone(way)
    together(way)
