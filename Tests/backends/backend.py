"""A backend on psycopg that knows the statements of docs/sql.md, straight and through the pool, as a member of push_enqueuer."""

import json

from psycopg.types.json import Jsonb

from harness import WAYS, check, connect, follow, owed, owner, refused


def recipient(user, token="backend-token-0123456789"):
    return {"userId": user, "fcmToken": f"{token}-{user}"}


def call(call_id, **members):
    return {"callId": call_id, "from": "doorman-7", **members}


ENQUEUE = "select deliveries, duplicate, skipped, call_id from push.enqueue_call(%s, %s, 'porteiro')"
INSERT = "insert into push.outbox (app, payload, recipients) values ('porteiro', %s, %s)"


def works(way):
    """Every statement of docs/sql.md in one connection that commits each."""

    def name(text):
        return f"psycopg {way}: {text}"

    db = connect(way, autocommit=True)

    def one(statement, *parameters):
        return db.execute(statement, parameters or None).fetchone()

    # Enqueueing.
    a = f"{way}-insert"
    inserted = one(INSERT + " returning id, call_id, state", Jsonb(call(a)), Jsonb([recipient("ana"), recipient("bruno")]))
    check(name("an insert says what it made"), inserted, (owner("select id from push.outbox where call_id = %s", a), a, "ringing"))
    check(name("it is owed to each device"), owed(a), "ana:invite:ready bruno:invite:ready")
    calls = [(Jsonb(call(f"{way}-many-{i}")), Jsonb([recipient(f"u{k}") for k in range(3)])) for i in range(50)]
    with db.cursor() as cursor:
        cursor.executemany(INSERT, calls)
    with db.cursor() as cursor, cursor.copy("copy push.outbox (app, payload, recipients) from stdin") as copy:
        for i in range(100):
            copy.write_row(("porteiro", json.dumps(call(f"{way}-bulk-{i}")), json.dumps([recipient("u"), recipient("v")])))
    made = "select count(*) from push.deliveries where call_id like %s"
    check(name("executemany enqueues"), owner(made, f"{way}-many-%"), 150)
    check(name("COPY enqueues"), owner(made, f"{way}-bulk-%"), 200)
    # More than psycopg's prepare_threshold, and by turns with another client of the same pool.
    others = [connect(way, autocommit=True) for _ in range(3)]
    said = [c.execute(ENQUEUE, (Jsonb(call(f"{way}-turn-{i}")), Jsonb([recipient("u"), "stranger"]))).fetchone()
            for i, c in enumerate(others * 4)]
    check(name("one statement again and again, by several clients"), said, [(1, False, 1, f"{way}-turn-{i}") for i in range(12)])
    if way == "pooled":
        pids = {c.execute("select pg_backend_pid()").fetchone()[0] for c in [db, *others] * 3}
        check(name("four clients shared two server sessions"), len(pids) <= 2, True)
    for other in others:
        other.close()
    check(name("twice is one call"), one(ENQUEUE, Jsonb(call(a)), Jsonb(["x"])), (2, True, 0, a))
    db.execute(INSERT, (Jsonb(call(a)), Jsonb([recipient("x")])))
    check(name("a second insert is passed over"), owed(a), "ana:invite:ready bruno:invite:ready")
    check(name("a message has an id made for it"), one(
        "select deliveries, length(call_id) from push.enqueue_call(%s, %s, 'porteiro', kind => 'message')",
        Jsonb({"chatId": "room-7", "from": "ana"}), Jsonb([recipient("bruno")])), (1, 36))

    # Devices.
    register = "select push.register_device(%s, 'porteiro', 'fcm', %s, platform => 'android')"
    token = f"{way}-registered-0123456789"
    db.execute(register, ("dora", token))
    check(name("a registered device is reached by the user's id"), one(ENQUEUE, Jsonb(call(f"{way}-registered")), Jsonb(["dora"]))[0], 1)
    check(name("a device is dropped once"), (one("select push.drop_device('porteiro', 'fcm', %s)", token)[0],
        one("select push.drop_device('porteiro', 'fcm', %s)", token)[0]), (True, False))
    check(name("a dropped one is not rung"), one(ENQUEUE, Jsonb(call(f"{way}-dropped")), Jsonb(["dora"]))[:3], (0, False, 1))

    # The end of a call, and what is known of it.
    check(name("a phone rings"), one("select push.report_ringing(%s, 'ana')", a), (True,))
    check(name("a call is answered once"),
        (one("select push.answer_call(%s, 'ana')", a)[0], one("select push.answer_call(%s, 'bruno')", a)[0]), (True, False))
    follow()
    check(name("nothing is owed afterwards"), owed(a), None)
    told = one("select push.call(%s)", a)[0]
    check(name("a call tells its state"),
        (told["state"], told["answeredBy"], [(d["userId"], d["state"], d["reason"]) for d in told["devices"]]),
        ("answered", "ana", [("ana", "void", "CallAnswered"), ("bruno", "void", "CallAnswered")]))
    check(name("and never a token"), "backend-token" in json.dumps(told), False)
    check(name("an update of the state is as good"), db.execute(
        "update push.outbox set state = 'ended', end_reason = 'busy' where call_id = %s", (f"{way}-many-0",)).rowcount, 1)
    check(name("an end"), one("select push.end_call(%s, 'declined', 'porteiro')", f"{way}-many-1"), (True,))
    follow()
    check(name("take the invites back"), (owed(f"{way}-many-0"), owed(f"{way}-many-1"), owed(f"{way}-many-2") is None), (None, None, False))
    check(name("the timeline"), [r[0] for r in db.execute("select event from push.timeline(%s)", (f"{way}-many-1",))],
        ["enqueued"] + ["void"] * 3)

    # Errors.
    with refused(name("an error names the field"), "22023", f"payload.from: must be a string (call {way}-bad)"):
        db.execute(INSERT, (Jsonb({"callId": f"{way}-bad"}), Jsonb([{"userId": "u", "voipPushToken": "secret"}])))
    db.execute(INSERT, (Jsonb(call(f"{way}-skips")), Jsonb([{"userId": "u", "voipPushToken": "secret"}, "ana"])))
    check(name("a recipient that cannot be used is passed over, and told"), db.execute(
        "select s.user_id, s.field, s.reason from push.outbox o cross join lateral push.skipped_recipients(o.id) s where o.call_id = %s "
        "and s.user_id = 'u'",
        (f"{way}-skips",)).fetchall(), [("u", "recipients[0].voipPushToken", "TokenMalformed")])
    with refused(name("an unknown call is an error"), "P0002", "call_id: there is no call"):
        db.execute("select push.answer_call('nowhere')")
    with refused(name("a call that has ended cannot change"), "22023",
            f"push.outbox.state: is answered already and cannot become ended (call {a})"):
        db.execute("update push.outbox set state = 'ended' where call_id = %s", (a,))
    with refused(name("one bad call of many refuses all"), "22023",
            f"payload.from: must be a string (call {way}-half-2)"), db.cursor() as cursor:
        cursor.execute("insert into push.outbox (app, payload, recipients) select 'porteiro', p, '[]' from unnest(%s::jsonb[]) p",
            ([Jsonb(call(f"{way}-half-1")), Jsonb({"callId": f"{way}-half-2", "from": 7})],))
    check(name("nothing of that was enqueued"),
        owner("select count(*) from push.outbox where call_id like %s or call_id like %s", f"{way}-bad%", f"{way}-half%"), 0)
    db.close()


def as_postgrest(way):
    """The statements that PostgREST makes of supabase.from('outbox').insert(…), .upsert(…) and .update(…)."""

    def name(text):
        return f"PostgREST {way}: {text}"

    body = """with pgrst_source as (
        insert into "push"."outbox" ("app", "payload", "recipients")
        select "app", "payload", "recipients" from json_to_recordset(%s) as _ ("app" text, "payload" jsonb, "recipients" jsonb) {conflict}
        returning "push"."outbox"."id", "push"."outbox"."call_id", "push"."outbox"."state"
      ) select coalesce(json_agg(t.call_id), '[]') from pgrst_source t"""
    rows = json.dumps([{"app": "porteiro", "payload": call(f"{way}-rest-{i}"), "recipients": [recipient("u")]} for i in range(2)])
    with connect(way, "web") as db:

        def request(statement, *parameters):
            """A request of PostgREST's: a transaction that takes on the role and says who asks."""
            with db.transaction():
                db.execute("select set_config('role', 'push_enqueuer', true), set_config('request.jwt.claims', '{}', true)")
                return db.execute(statement, parameters).fetchone()[0]

        check(name("an insert of two rows"), request(body.format(conflict=""), rows), [f"{way}-rest-0", f"{way}-rest-1"])
        check(name("is owed"), owed(f"{way}-rest-1"), "u:invite:ready")
        check(name("an upsert that ignores duplicates"), request(body.format(conflict='on conflict ("call_id", "app") do nothing'), rows),
            [])
        update = """with pgrst_source as (
            update "push"."outbox" set "state" = b."state", "answered_by" = b."answered_by"
            from (select * from json_to_record(%s) as _ ("state" text, "answered_by" text)) b
            where "push"."outbox"."call_id" = %s and "push"."outbox"."app" = 'porteiro'
            returning "push"."outbox"."state", "push"."outbox"."ended_at"
          ) select json_agg(t.state) from pgrst_source t"""
        check(name("an update answers"), request(update, json.dumps({"state": "answered", "answered_by": "u"}), f"{way}-rest-0"),
            ["answered"])
        follow()
        check(name("and takes back"), owed(f"{way}-rest-0"), None)
        check(name("a function call"), request("select push.end_call(call_id => %s, reason => 'busy')", f"{way}-rest-1"), True)
        with refused(name("without the role nothing"), "42501"):
            db.execute("select push.end_call('x')")


for way in WAYS:
    works(way)
    as_postgrest(way)
