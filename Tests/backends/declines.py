"""A user declines while another transaction changes the call, in both orders. The second transaction waits where necessary.
Whichever commits first: no user who declined is rung again, no other user stops ringing, and the call ends once."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg.types.json import Jsonb

from harness import OWNER, PATIENCE, WAYS, check, connect, follow, is_blocked, later, owner, refused, until

APP = "declines"
DECLINE = "select push.decline_call(%s, %s, 'declines', %s)"
ANSWER = "select push.answer_call(%s, %s, 'declines')"
END = "select push.end_call(%s, %s, 'declines')"


def token(user):
    return f"decline-token-0123456789-{user}"


class Gateway:
    """A gateway with its own session."""

    def __init__(self):
        self.db = psycopg.connect(OWNER, autocommit=True)
        self.claims = 0
        self.lanes = [owner("select push.register_lane(%s, %s)", APP, provider) for provider in ("fcm", "expo")]
        self.id = owner("select push.register_gateway('declines', 'test')")

    def one(self, statement, *parameters):
        return self.db.execute(statement, parameters or None).fetchone()[0]

    def claim(self):
        """Claims all deliveries; returns their number."""
        self.claims += 1
        return self.one("select count(*) from push.claim(%s, %s, %s::smallint[], '{1000,1000}', '{-infinity,-infinity}')",
            self.id, self.claims, self.lanes)

    def settle(self, call_id, outcome=0, user=None):
        """Settles its deliveries of a call, or of one user of it, in the open transaction."""
        return self.one(
            """select push.settle(%s, array_agg(d.ctid order by n), array_agg(d.outbox_id order by n), array_agg(d.n order by n),
              array_agg(d.lease order by n), array_agg(1), array_agg(%s::smallint), array_agg(410::smallint), array_agg('x'::text),
              array_agg('m'::text), array_agg(o.call_id), array_agg(now()), array_agg(now()))
            from push.delivery d join push.outbox o on o.id = d.outbox_id
            where o.call_id = %s and d.state = 1 and d.kind = 0 and d.user_id = coalesce(%s, d.user_id)""",
            self.id, outcome, call_id, user)

    def give_back(self, call_id):
        return self.one(
            """select push.release(%s, array_agg(d.outbox_id), array_agg(d.n), array_agg(d.lease))
            from push.delivery d join push.outbox o on o.id = d.outbox_id where o.call_id = %s and d.state = 1 and d.kind = 0""",
            self.id, call_id)


def ring(call_id, bruno=True):
    """Enqueues a call: Ana has two phones, one of them with two channels; Bruno has one, unless he is left out."""
    recipients = [{"userId": "ana", "fcmToken": token("ana")},
        {"userId": "ana", "fcmToken": token("ana-2"), "pushToken": "ExponentPushToken[decline-ana-2]"}]
    if bruno:
        recipients.append({"userId": "bruno", "fcmToken": token("bruno")})
    owner("select outbox_id from push.enqueue_call(%s, %s, %s)", Jsonb({"callId": call_id, "from": "x"}), Jsonb(recipients), APP)
    return call_id


def call(call_id):
    """The state of the call, and the users who declined."""
    return owner(
        """select concat_ws(' ', o.state, o.end_reason, o.answered_by,
          (select string_agg(s.key || ':' || (s.value ->> 'reason'), ' ' order by s.key) from jsonb_each(o.declined) s))
        from push.outbox o where o.call_id = %s""", call_id)


def owed(call_id, kind="invite"):
    return owner(
        """select string_agg(d.user_id || ':' || d.state, ' ' order by d.user_id, d.n) from push.deliveries d
        where d.call_id = %s and d.kind = %s""", call_id, kind)


def past(call_id):
    """The outcomes of invites."""
    return owner(
        """select string_agg(h.user_id || ':' || h.outcome, ' ' order by h.user_id, h.n) from push.delivery_history h
        where h.call_id = %s and h.kind = 'invite'""", call_id)


def promote():
    """Runs the jobs that a gateway runs a moment later."""
    owner("select push.promote()")
    follow()


class Race:
    """Two sessions. The second begins before the first commits. What follows is done after both."""

    def __init__(self, way):
        self.one, self.two = connect(way), connect(way)
        self.thread = ThreadPoolExecutor(1)

    def second(self, db, statement, parameters, finish):
        """Runs a statement in DB while the first transaction is open, which then ends by FINISH. Returns whether the statement
        waited, and its result."""
        pid = db.execute("select pg_backend_pid()").fetchone()[0]
        result = self.thread.submit(lambda: db.execute(statement, parameters).fetchone()[0])
        waited = until(lambda: "done" if result.done() else is_blocked(pid)) is True
        finish()
        answered = result.result(PATIENCE)
        if db is self.two:
            db.commit()
        follow()
        return waited, answered

    def close(self):
        self.one.close()
        self.two.close()
        self.thread.shutdown()


def together(way, gateway):
    """Races between backends."""
    def name(text):
        return f"{way}: {text}"

    race = Race(way)
    one, two = race.one, race.two

    def first(statement, *parameters):
        return one.execute(statement, parameters).fetchone()[0]

    # Against an answer.
    c = ring(f"{way}-answer-1")
    first(DECLINE, c, "ana", "declined")
    check(name("an answer waits for a decline"), race.second(two, ANSWER, (c, "bruno"), one.commit), (True, True))
    check(name("both have happened"), (call(c), past(c)), ("answered answered bruno ana:declined", "ana:void ana:void bruno:void"))
    c = ring(f"{way}-answer-2")
    first(ANSWER, c, "bruno")
    check(name("a decline waits for an answer, and comes too late"), race.second(two, DECLINE, (c, "ana", "busy"), one.commit),
        (True, False))
    check(name("nobody declined then"), call(c), "answered answered bruno")
    c = ring(f"{way}-answer-3")
    first(ANSWER, c, "bruno")
    check(name("unless the answer is rolled back"), race.second(two, DECLINE, (c, "ana", "busy"), one.rollback), (True, True))
    check(name("then the rest rings on"), (call(c), owed(c)), ("ringing ana:busy", "bruno:ready"))
    c = ring(f"{way}-answer-4", bruno=False)
    first(DECLINE, c, "ana", "declined")
    check(name("an answer while the last one declines comes before the end that follows"), race.second(two, ANSWER, (c, "ana"), one.commit),
        (True, True))
    check(name("one truth"), call(c), "answered answered ana ana:declined")

    # Against an end.
    c = ring(f"{way}-end-1")
    first(DECLINE, c, "ana", "declined")
    check(name("an end waits for a decline"), race.second(two, END, (c, "ended"), one.commit), (True, True))
    check(name("who declined has missed nothing"), (call(c), owed(c, "missed_call")), ("ended ended ana:declined", "bruno:ready"))
    c = ring(f"{way}-end-2")
    first(END, c, "ended")
    check(name("a decline waits for an end, and comes too late"), race.second(two, DECLINE, (c, "ana", "declined"), one.commit),
        (True, False))
    check(name("then all have missed it"), (call(c), owed(c, "missed_call")), ("ended ended", "ana:ready bruno:ready"))

    # Two at once.
    c = ring(f"{way}-both-1")
    first(DECLINE, c, "ana", "declined")
    check(name("two decline at once: the second waits, and is the last"), race.second(two, DECLINE, (c, "bruno", "busy"), one.commit),
        (True, True))
    check(name("so the call ends"), (call(c), owed(c), owed(c, "missed_call")), ("ended declined ana:declined bruno:busy", None, None))
    c = ring(f"{way}-both-2")
    first(DECLINE, c, "ana", "declined")
    check(name("if the first is rolled back, the second is not the last"), race.second(two, DECLINE, (c, "bruno", "busy"), one.rollback),
        (True, True))
    check(name("and the first one's phones ring on"), (call(c), owed(c)), ("ringing bruno:busy", "ana:ready ana:ready"))
    c = ring(f"{way}-both-3")
    first(DECLINE, c, "ana", "declined")
    check(name("the same user twice: the second waits, and it was so"), race.second(two, DECLINE, (c, "ana", "busy"), one.commit),
        (True, False))
    check(name("the first word counts"), call(c), "ringing ana:declined")

    # Against a call that becomes missed at its deadline.
    c = ring(f"{way}-missed")
    with psycopg.connect(OWNER) as house:
        house.execute("update push.outbox set state = 'missed' where call_id = %s", (c,))
        check(name("a decline waits for the deadline's end, and comes too late"),
            race.second(two, DECLINE, (c, "ana", "declined"), house.commit), (True, False))
    check(name("who came too late has missed it"), owed(c, "missed_call"), "ana:ready bruno:ready")

    # An older snapshot.
    two.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    c = ring(f"{way}-snapshot-1")
    two.execute("select count(*) from push.outbox").fetchone()
    gateway.claim()
    check(name("REPEATABLE READ: a decline that does not see what was claimed since"),
        two.execute(DECLINE, (c, "ana", "declined")).fetchone(), (True,))
    two.commit()
    promote()
    check(name("the phones are told all the same"), (call(c), owed(c, "cancel")), ("ringing ana:declined", "ana:ready ana:ready"))
    check(name("what a gateway of an earlier release gives back of hers is void"), (gateway.give_back(c), past(c), owed(c)),
        (3, "ana:void ana:void", "bruno:ready"))
    c = ring(f"{way}-snapshot-2")
    two.execute("select count(*) from push.outbox").fetchone()
    owner(DECLINE, c, "bruno", "declined")
    with refused(name("REPEATABLE READ: somebody declined since: the backend is to try again"), "40001"), two.transaction():
        two.execute(DECLINE, (c, "ana", "declined"))
    two.rollback()
    check(name("then it is the last"), (two.execute(DECLINE, (c, "ana", "declined")).fetchone(), two.commit(), follow(), call(c)),
        ((True,), None, None, "ended declined ana:declined bruno:declined"))
    race.close()


def against_gateways(gateway):
    """Meanwhile a gateway processes the invites. None of its statements waits for a decline."""
    race = Race("direct")
    one, two = race.one, race.two

    def first(statement, *parameters):
        return one.execute(statement, parameters).fetchone()[0]

    gateway.claim()
    c = ring("settle-1")
    gateway.claim()
    first(DECLINE, c, "ana", "declined")
    check("a settlement does not wait for a decline", gateway.settle(c), 3)
    one.commit()
    promote()
    check("a device reached meanwhile gets a cancel", (past(c), owed(c), owed(c, "cancel")),
        ("ana:delivered ana:delivered bruno:delivered", None, "ana:ready ana:ready"))

    c = ring("settle-2")
    gateway.claim()
    gateway.db.execute("begin")
    gateway.settle(c)
    declined = race.second(two, DECLINE, (c, "ana", "declined"), lambda: gateway.db.execute("commit"))
    check("a decline comes through a settlement that is being written", declined[1], True)
    promote()
    check("and the phones are told", (call(c), owed(c), owed(c, "cancel")), ("ringing ana:declined", None, "ana:ready ana:ready"))

    # Her invites fail while she declines: no next channel.
    c = ring("failed-1")
    gateway.claim()
    first(DECLINE, c, "ana", "declined")
    gateway.settle(c, 4, "ana")
    follow()
    check("what follows a failed invite is put off during a decline", owed(c), "bruno:claimed")
    one.commit()
    later()
    check("and comes to nothing afterwards", (past(c), owed(c)), ("ana:dead ana:dead", "bruno:claimed"))
    c = ring("failed-2")
    gateway.claim()
    first(DECLINE, c, "ana", "declined")
    gateway.settle(c, 4, "ana")
    follow()
    one.rollback()
    later()
    check("if the decline is rolled back, it rings", owed(c), "ana:ready bruno:claimed")
    c = ring("failed-3")
    gateway.claim()
    gateway.settle(c, 4, "ana")
    gateway.db.execute("begin")
    gateway.one("select push.follow_up(true, p_within => '1 day')")
    waited, declined = race.second(two, DECLINE, (c, "ana", "declined"), lambda: gateway.db.execute("commit"))
    check("a decline waits for a next channel in flight, which is void then", (waited, declined, past(c)),
        (True, True, "ana:dead ana:dead ana:void"))

    # Returned, claimed, bypassed.
    c = ring("back")
    gateway.claim()
    first(DECLINE, c, "ana", "declined")
    check("an invite can be returned during a decline", (gateway.give_back(c), owed(c)), (3, "ana:ready ana:ready bruno:ready"))
    one.commit()
    promote()
    check("afterwards her invites are void, the others' are ready", (past(c), owed(c)), ("ana:void ana:void", "bruno:ready"))
    gateway.claim()
    c = ring("claim")
    first(DECLINE, c, "ana", "declined")
    gateway.claim()
    check("a claim takes all during a decline", owed(c), "ana:claimed ana:claimed bruno:claimed")
    one.commit()
    check("the gateway is told afterwards whose are not to be sent", owner(
        "select string_agg(e.user_id, ' ') from push.ended_for(array(select id from push.outbox where call_id = %s)) e", c), "ana")
    gateway.settle(c, 2, "ana")
    promote()
    check("and sends none", (past(c), owed(c)), ("ana:void ana:void", "bruno:claimed"))
    c = ring("round")
    gateway.claim()
    owner("update push.delivery d set state = 2, ready_lane = null, owner = null, last_reason = 'HTTP503', created_at = d.created_at - "
        "interval '3 s' "
        "from push.outbox o where o.id = d.outbox_id and o.call_id = %s returning 1", c)
    first(DECLINE, c, "ana", "declined")
    made = owner("select push.bypass()")
    follow()
    check("during a decline nothing is sent round a channel", (made, owed(c)), (3, "ana:waiting ana:waiting bruno:waiting"))
    one.commit()
    promote()
    later()
    check("nor of hers afterwards", (owner("select push.bypass()"), owed(c)), (0, "bruno:ready"))
    race.close()


gateway = Gateway()
for way in WAYS:
    together(way, gateway)
against_gateways(gateway)
