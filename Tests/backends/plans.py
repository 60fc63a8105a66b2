"""A gateway's session that began on empty tables and continues while they fill: its plans must keep using indexes.

PostgreSQL keeps the plan of a function's statement for the session's life, and makes it from what it knows at that moment.
"""

import re

import psycopg
from psycopg.types.json import Jsonb

from harness import OWNER, check, owner

GROWING = r"(?:delivery|outbox|history\w*|devices|token_invalidations|ring_reports|escalations|follow_ups|receipt_batch|webhook_event)"
SCAN = re.compile(rf"^.*?((?:Parallel )?(?:Seq|Index Only|Index|Bitmap Heap) Scan(?: Backward)?(?: using \w+)? on {GROWING})\b(?=[ \n(])")


def faults(plan):
    """Scans that read all of a growing table: a sequential scan, or an index scan without a condition."""
    found, pending = [], None
    for line in plan.splitlines():
        scan = SCAN.match(line)
        if scan or re.match(r"\s*->  ", line):
            found += [pending] if pending else []
            pending = None
        if scan and "Seq Scan" in scan[1]:
            found.append(scan[1])
        # The few suspects, usually none, may be scanned.
        elif scan and "delivery_suspect" not in scan[1]:
            pending = scan[1]
        elif "Index Cond" in line or "Recheck Cond" in line:
            pending = None
    return found + ([pending] if pending else [])


class Session:
    """A session whose nested statements report their plans."""

    def __init__(self):
        self.db = psycopg.connect(OWNER, autocommit=True, prepare_threshold=None)
        self.plans = []
        self.db.add_notice_handler(lambda notice: self.plans.append(notice.message_primary or ""))
        self.db.execute("load 'auto_explain'; set client_min_messages = log; set auto_explain.log_min_duration = 0;"
                        "set auto_explain.log_nested_statements = on")
        self.gateway = self.one("select push.register_gateway('planned', '1')")[0]
        self.claims = 0
        self.lanes = [self.one("select push.register_lane('plan', %s)", p)[0] for p in ("apns", "fcm", "expo")]

    def one(self, statement, *parameters):
        return self.db.execute(statement, parameters or None).fetchone()

    def plans_of(self, statement, *parameters):
        self.plans.clear()
        rows = self.db.execute(statement, parameters or None).fetchall()
        # The outer statement only calls the function.
        return rows, [p for p in self.plans if "plan:" in p and "push." in p]

    def work(self, call_id):
        """All statements of a gateway and a backend for a call, with the plans of each."""
        did = {}

        def does(name, statement, *parameters):
            rows, did[name] = self.plans_of(statement, *parameters)
            return rows

        voip = (call_id.encode().hex() + "0" * 64)[:64]
        fcm = [f"plan-token-0123456789-{call_id}-{i}" for i in range(4)]
        recipients = [{"userId": "fails", "voipPushToken": voip, "fcmToken": fcm[3]}, "registered",
                      *({"userId": f"u{i}", "fcmToken": fcm[i]} for i in range(3))]
        made = does("enqueue_call", "select (push.enqueue_call(%s, %s, 'plan', 300)).*", Jsonb({"callId": call_id, "from": "x"}),
            Jsonb(recipients))
        assert made[0][1] == 5, made
        claim = ("select outbox_id, n, place::text, user_id, lane from push.claim(%s, %s, %s::smallint[], '{9,9,9}', "
                 "'{-infinity,-infinity,-infinity}', '0') order by n")
        self.claims += 1
        claimed = does("claim", claim, self.gateway, self.claims, self.lanes)
        # The answer of the claim was lost.
        rows = does("forget", "select given from push.forget_in(%s, %s)", self.gateway, self.claims)
        assert rows[0][0] == len(claimed), rows
        self.claims += 1
        claimed = does("claim", claim, self.gateway, self.claims, self.lanes)
        claimed = [row for row in claimed if row[0] == made[0][0]]
        assert len(claimed) == 5, claimed

        def fence(user):
            return next((self.gateway, [o], [n], [self.claims]) for o, n, _, u, _ in claimed if u == user)

        def placed(user, place=True):
            gateway, *key = fence(user)
            return (gateway, [next(p for _, _, p, u, _ in claimed if u == user)] if place else None, *key)

        settle = ("select push.settle(%s, %s::text[]::tid[], %s::bigint[], %s::int[], %s::int[], '{1}', array[%s]::smallint[], '{200}', "
                  "array[%s], array['m'], array[%s], array[now()], array[now()], null, %s)")
        does("settle", settle, *placed("u0"), 0, None, call_id, None)
        does("settle of a row that has moved", settle, *placed("registered", False), 0, None, call_id, [900000])
        does("settle of a failure", settle, *placed("fails"), 4, "Unregistered", call_id, None)
        does("next channels", "select push.follow_up(true, p_within => '1 day')")
        assert owner("select count(*) from push.deliveries where call_id = %s and fallback_of is not null", call_id) == 1
        does("park", "select push.park(%s, %s, %s::int[], %s::int[], '{1}', '{60000}', '{Unavailable}')", *fence("u1"))
        rows = does("claimed_by", "select outbox_id, next_page from push.claimed_by(%s, 0, 1000000)", self.gateway)
        assert made[0][0] in rows[0][0], rows
        does("ended_for", "select push.ended_for(%s)", [made[0][0]])
        does("release", "select push.release(%s, %s, %s::int[], %s::int[])", *fence("u2"))
        does("invalidate_tokens", "select push.invalidate_tokens(%s::smallint[], %s, '{null,null}', '{x,x}')", self.lanes[:2],
            [voip, fcm[0]])
        does("correct_environment", "select push.correct_environment(%s::smallint[], %s, '{1}')", self.lanes[:1], [voip])
        does("report_ringing", "select push.report_ringing(%s, 'u1', 'plan')", call_id)
        owner("update push.follow_ups set due_at = now() where outbox_id = %s returning 1", made[0][0])
        does("escalation", "select push.follow_up(true, p_within => '1 day')")
        does("compare_call", "select * from push.compare_call(%s, '{}', '[]')", call_id)
        does("add_recipients", "select * from push.add_recipients(%s, '[\"u1\", \"u2\", \"u3\"]')", call_id)
        does("decline_call", "select push.decline_call(%s, 'u2', 'plan')", call_id)
        does("what follows a decline", "select push.follow_up(p_within => '1 day')")
        does("requeue", "select * from push.requeue(%s, 'plan')", call_id)
        does("oldest_ringing", "select push.oldest_ringing()")
        does("call", "select push.call(%s, 'plan')", call_id)
        owner("update push.receipt_batch set due_at = now() where app = 'plan' and claimed is false returning 1")
        does("claim_receipts", "select * from push.claim_receipts('plan', 10, 1000)")
        does("settle_receipts", "select push.settle_receipts('plan', '{m}', '{DeviceNotRegistered}')")
        for name in ("promote", "miss", "expire", "expire_all", "escalate", "follow_up_all", "prune"):
            does(name, "select push.run_job(%s)", name)
        does("take_job", "select push.take_job(%s, false)", self.gateway)
        # A gateway died with one of them.
        other = self.one("select push.register_gateway('died', '1')")[0]
        self.one("select count(*) from push.claim(%s, 1, %s::smallint[], '{1,1,1}', '{-infinity,-infinity,-infinity}', '0')", other,
            self.lanes)
        owner("update push.gateways set doubted_at = now() - interval '1 hour', heartbeat_at = now() - case id when %s then interval "
            "'1 hour' else '0' end, steady_since = now() - interval '1 hour' where alive returning 1", other)
        does("beat", "select * from push.beat(%s, true, '10 minutes')", self.gateway)
        does("free", "select push.run_job('free')")
        does("end_call", "select push.end_call(%s, app => 'plan')", call_id)
        does("what follows an end", "select push.follow_up(p_within => '1 day')")
        owner("insert into push.follow_ups (outbox_id, why, tries) values (%s, 'untold', 1) returning 1", made[0][0])
        does("what follows a cancel that expired", "select push.follow_up(null)")
        self.one("select push.enqueue_call(%s, %s, 'plan')", Jsonb({"callId": f"{call_id}-void", "from": "x"}), Jsonb(recipients))
        does("void_call", "select * from push.void_call(%s, app => 'plan')", f"{call_id}-void")
        deleted = owner("delete from push.outbox where call_id = %s returning id", f"{call_id}-void")
        does("what follows a deletion", "select push.follow_up(p_within => '1 day')")
        assert owner("select count(*) from push.delivery where outbox_id = %s", deleted) == 0
        self.claims += 1
        self.one("select count(*) from push.claim(%s, %s, %s::smallint[], '{1,1,1}', '{-infinity,-infinity,-infinity}', '0')", self.gateway,
            self.claims, self.lanes)
        stray = self.one("select outbox_id, n, lease from push.delivery where owner = %s limit 1", self.gateway)
        does("disown", "select push.disown(%s, array[%s]::bigint[], array[%s]::int[], array[%s]::int[])", self.gateway, *stray)
        return did


def fill():
    """200,000 deliveries owed, 50,000 calls to be looked at tomorrow, and what a busy fortnight leaves behind; then the statistics of
    that."""
    db = psycopg.connect(OWNER, autocommit=True)
    db.execute("set synchronous_commit = off")
    db.execute("set statement_timeout = 0")
    db.execute("""insert into push.outbox (app, payload, recipients, ring_seconds)
        select 'plan', jsonb_build_object('callId', 'full-' || i, 'from', 'x'),
          jsonb_build_array(jsonb_build_object('userId', 'v', 'voipPushToken', md5(i::text) || md5(i::text)),
            jsonb_build_object('userId', 'f', 'fcmToken', 'plan-token-0123456789-a-' || i),
            jsonb_build_object('userId', 'g', 'fcmToken', 'plan-token-0123456789-b-' || i),
            jsonb_build_object('userId', 'e', 'pushToken', 'ExponentPushToken[' || i || ']')), 600
        from generate_series(1, 50000) i""")
    db.execute("update push.follow_ups set due_at = now() + interval '1 day'")
    db.execute("""insert into push.history (finished_at, outbox_id, created_at, deadline_at, n, attempts, lane,
        kind, outcome, user_id, call_id, device, reason)
        select now() - i * interval '1 s', i, now() - i * interval '1 s', now(), 0, 1, 1, 0,
        case when i % 10 = 0 then 4 else 0 end, 'u', 'x', 'x…y', 'x'
        from generate_series(1, 100000) i""")
    db.execute("""insert into push.devices (user_id, app, provider, token)
        select 'user-' || i, 'plan', 'fcm', 'plan-device-0123456789-' || i from generate_series(1, 20000) i""")
    db.execute("""insert into push.token_invalidations (app, provider, token, reason)
        select 'plan', 'fcm', 'plan-dead-0123456789-' || i, 'x' from generate_series(1, 20000) i""")
    db.execute("""insert into push.webhook_event (event, app, type, at, created_at, data)
        select 'full-' || i, 'hooked', 'token.dead', now(), now() - case when i > 19000 then interval '25 hours' else '0' end, '{}'
        from generate_series(1, 20000) i""")
    db.execute("analyze")


# Nothing is escalated before the test says so.
owner("select push.register_app('plan', 600, 500)")
owner("select push.register_device('registered', 'plan', 'expo', 'ExponentPushToken[plan]')")
owner("select push.set_webhooks('{hooked}', '{hook.example}', '{digest}', '{null}')")
owner("insert into push.webhook_event (event, app, type, at, data) values ('first', 'hooked', 'token.dead', now(), '{}') returning 1")
db = psycopg.connect(OWNER, autocommit=True)
db.execute("truncate push.outbox, push.delivery, push.history")
db.execute("analyze")
sessions = {"empty": Session()}
first = {"empty": sessions["empty"].work("empty")}
# A table of one page, known to be one, is what a sequential scan is best for.
db.execute("analyze")
sessions["tiny"] = Session()
first["tiny"] = sessions["tiny"].work("tiny")
fill()
sessions["full"] = Session()
did = {began: session.work(f"{began}-now-full") for began, session in sessions.items()}

# These plans, too, stay until the next ANALYZE, however much comes before that.
for began, work in first.items():
    for name in ("claim", "settle", "settle of a row that has moved", "settle of a failure", "next channels", "escalation",
            "what follows a decline", "what follows an end", "what follows a cancel that expired", "what follows a deletion", "park",
            "release", "disown"):
        check(f"{name}, planned on {began} tables, reads no table and no index as a whole",
            sorted({f for p in work[name] for f in faults(p)}), [])

check("200,000 deliveries arrived", owner("select count(*) >= 200000 from push.delivery"), True)
for began, work in did.items():
    when = f"in a session that began on {began} tables"
    for name, plans in work.items():
        check(f"{name} {when} shows its plans", bool(plans), True)
        if name != "free":
            check(f"{name} {when} reads no table and no index as a whole", sorted({f for p in plans for f in faults(p)}), [])
    # Whose claims are looked for, seldom, reads what is owed: an index on owner would cost each claim.
    check(f"forget {when} reads a part of the table", any("Tid Range Scan on delivery" in p for p in work["forget"]), True)
    check(f"free {when} reads the table once", sum("Seq Scan on delivery" in p for p in work["free"]), 1)
    claim = "\n".join(work["claim"])  # one look for rings, one for the background
    check(f"claim {when} walks the partial index", len(re.findall(r"Index Scan using delivery_ready on delivery", claim)), 2)
    check(f"claim {when} has the deadline in its condition",
        len(re.findall(r"Index Cond: \(\(ready_lane = .*\) AND \(deadline_at >=? ", claim)), 2)


def shape(plans):
    """A plan without its costs and the parameters that it ran with."""
    return [re.sub(r"\s+\(cost=[^)]*\)|duration: \S+ ms|\nQuery Parameters: .*", "", p) for p in plans]


for began in ("empty", "tiny"):
    check(f"claim has the same plan in a session that began on {began} tables as in one that began on full ones",
        shape(did[began]["claim"]), shape(did["full"]["claim"]))
check("the check sees a whole read", faults("Seq Scan on delivery d  (cost=1..2)\n  Filter: (state = 0)\n") + faults(
    "Nested Loop  (cost=0..1)\n  ->  Index Scan using delivery_pkey on delivery d  (cost=0..1)\n  ->  Index Scan using outbox_pkey on "
    "outbox o  (cost=0..1)\n        Index Cond: (id = 1)\n"),
    ["Seq Scan on delivery", "Index Scan using delivery_pkey on delivery"])
