"""The same calls enqueued by several sessions at once, by COPY and INSERT, and the contents of errors."""

import json
from concurrent.futures import ThreadPoolExecutor

import psycopg
from psycopg.types.json import Jsonb

from harness import PATIENCE, WAYS, check, connect, owner, waits

APP = "copies"
SECRET = "secret-token-0123456789"
LEVELS = {"read committed": psycopg.IsolationLevel.READ_COMMITTED, "repeatable read": psycopg.IsolationLevel.REPEATABLE_READ}


def line(call_id):
    return APP, f'{{"callId": "{call_id}", "from": "secret-from"}}', f'[{{"userId": "secret-user", "fcmToken": "{SECRET}"}}]'


def copies(db, *calls):
    with db.cursor() as cursor, cursor.copy("copy push.outbox (app, payload, recipients) from stdin") as copy:
        for call_id in calls:
            copy.write_row(line(call_id))


def inserts(db, *calls):
    db.execute("insert into push.outbox (app, payload, recipients) select a, p, r from unnest(%s::text[], %s::jsonb[], %s::jsonb[]) x(a, "
        "p, r)",
        tuple(list(column) for column in zip(*map(line, calls))))


def printed(error):
    """All fields of an error that a client gets."""
    return " ".join(str(part) for part in (getattr(error.diag, field) for field in (
        "message_primary", "message_detail", "message_hint", "context", "internal_query", "constraint_name", "statement_position")) if part)


def outcome(work, *parameters):
    try:
        work(*parameters)
        return "done"
    except psycopg.Error as error:
        return f"{error.sqlstate} {printed(error)}"


def there(like):
    """The numbers of calls, of different calls, and of deliveries."""
    return owner("""select format('%%s %%s %%s', count(*), count(distinct call_id),
        (select count(*) from push.delivery d where d.outbox_id = any (array_agg(o.id))))
        from push.outbox o where app = %s and call_id like %s""", APP, like)


def one_after_the_other(way, level):
    first_does = {"COPY": copies, "INSERT": inserts}
    with connect(way) as one, connect(way) as two, ThreadPoolExecutor(1) as thread:
        one.isolation_level = two.isolation_level = LEVELS[level]
        for first in first_does:
            for second in first_does:
                for end in ("commit", "rollback"):
                    name = f"{way}, {level}, {first} and {end}, {second} meanwhile"
                    prefix = f"{way}-{level}-{first}-{second}-{end}-".replace(" ", "-")
                    calls = [prefix + str(i) for i in range(20)]
                    pid = two.execute("select pg_backend_pid()").fetchone()[0]
                    first_does[first](one, *calls[:15])
                    result = thread.submit(outcome, first_does[second], two, *calls[5:])
                    waited = waits(pid)
                    getattr(one, end)()
                    check(f"{name}: it waits, and never raises", (waited, result.result(PATIENCE)), (True, "done"))
                    two.commit()
                    count = 20 if end == "commit" else 15
                    check(f"{name}: each call once", there(prefix + "%"), f"{count} {count} {count}")


def all_at_once():
    """Many overlapping sessions in one order, like backends that got the same event."""
    calls = [f"at-once-{i:04}" for i in range(300)]

    def session(number):
        with connect(autocommit=True) as db:
            return {outcome(copies if (number + start) % 2 else inserts, db, *calls[start:start + 60]) for start in range(0, 300, 30)}

    with ThreadPoolExecutor(6) as threads:
        check("six sessions enqueue the same calls, in pieces that overlap: none raises", set().union(*threads.map(session, range(6))),
            {"done"})
    check("each call once, with its delivery", there("at-once-%"), "300 300 300")


def in_opposite_orders():
    """Each has a call that the other needs: Postgres ends one of them."""
    for how, work in (("COPY", copies), ("INSERT", inserts)):
        calls = [f"opposite-{how}-{i}" for i in (1, 2)]
        with connect() as one, connect() as two, ThreadPoolExecutor(1) as thread:
            pid = two.execute("select pg_backend_pid()").fetchone()[0]
            work(one, calls[0])
            work(two, calls[1])

            def second():
                got = outcome(work, two, calls[0])
                two.rollback() if got != "done" else two.commit()
                return got

            result = thread.submit(second)
            waits(pid)
            got = outcome(work, one, calls[1])
            one.rollback() if got != "done" else one.commit()
            said = sorted([got, result.result(PATIENCE)])
            check(f"{how} in opposite orders: one of two is told to try again", (said[0][:5], said[1]), ("40P01", "done"))
            if how == "INSERT":
                check("INSERT: the error prints nothing of a call", "secret" in said[0], False)
            else:
                # Postgres itself adds the line; see docs/operations/what-postgres-itself-writes-of-calls.md.
                quoted = said[0][said[0].index("COPY outbox, line 1: "):]
                check("COPY: Postgres prints at most 100 characters of the line that waited", len(quoted) < 130, True)
            work(one, *calls)
            one.commit()
        check(f"{how}: tried again, each call is there once", there(f"opposite-{how}-%"), "2 2 2")


def as_text(value):
    """A value in COPY's text format."""
    value = value.obj if isinstance(value, Jsonb) else value
    return value if isinstance(value, str) else json.dumps(value)


def errors():
    """Invalid inputs: no error may contain the payload, a token or a user."""
    app, payload, recipients = line("errors")
    broken = payload[:-1]
    columns = "app, payload, recipients"

    def copy(text, names=columns):
        def work(db):
            with db.cursor() as cursor, cursor.copy(f"copy push.outbox ({names}) from stdin") as copy:
                copy.write(text)
        return work

    def query(statement, *parameters):
        return lambda db: db.execute(statement, parameters)

    def insert(**row):
        row = {"app": APP, "payload": payload, "recipients": recipients, **row}
        return query(f"insert into push.outbox ({', '.join(row)}) values ({', '.join(['%s'] * len(row))})", *row.values())

    bad = {"callId": "bad", "from": 7, "fromName": "secret-name"}
    faults = {
        "app": {"app": "secret app"}, "no app": {"app": "x" * 300}, "kind": {"kind": "secret-kind"},
        "payload.from": {"payload": Jsonb(bad)},
        "payload is an array": {"payload": Jsonb(["secret"])}, "no callId": {"payload": Jsonb({"from": "secret"})},
        "a text in a message": {"kind": "message", "payload": Jsonb({"chatId": "c", "from": "x", "body": "secret"})},
        "call_id": {"call_id": "another"}, "call_id too long": {"call_id": "x" * 3000}, "ring_seconds": {"ring_seconds": 2147483647},
        "ring_seconds below": {"ring_seconds": -2147483648},
        "traceparent": {"traceparent": "secret"}, "recipients": {"recipients": Jsonb({"secret": 1})},
        "too many recipients": {"recipients": Jsonb(["secret"] * 1001)},
        "a payload that is too long": {"payload": Jsonb({"callId": "long", "from": "secret" * 4000})},
        "a payload that fits no push": {"payload": Jsonb({"callId": "long", "from": "secret" * 1000}), "recipients": recipients},
    }
    works = {f"INSERT, {fault}": insert(**row) for fault, row in faults.items()}
    for fault, row in faults.items():
        row = {"app": APP, "payload": payload, "recipients": recipients, **row}
        works[f"COPY, {fault}"] = copy("\t".join(map(as_text, row.values())) + "\n", ", ".join(row))
    works |= {
        "INSERT, an id": query("insert into push.outbox (id, payload, recipients) values (1, %s, %s)", payload, recipients),
        "INSERT, null": insert(app=None, payload=None, kind=None, state=None),
        "UPDATE, another state": query("update push.outbox set state = 'secret' where app = %s", APP),
        "UPDATE, answered_by": query("update push.outbox set state = 'answered', answered_by = repeat('secret', 100) where app = %s", APP),
        "UPDATE, payload": query("update push.outbox set payload = %s", payload),
        "push.enqueue_call": query("select push.enqueue_call(%s, %s, %s)", Jsonb(bad), recipients, APP),
        "push.register_device, token": query("select push.register_device('secret-user', %s, 'apns', %s)", APP, SECRET),
        "push.register_device, a backslash": query("select push.register_device('secret-user', %s, 'fcm', %s)", APP, "\\x" + SECRET),
        "push.register_device, nothing": query("select push.register_device(null, null, null, %s)", SECRET),
        "push.register_device, environment": query("select push.register_device('secret-user', %s, 'fcm', %s, 'secret')", APP, SECRET),
        "push.register_device, platform": query("select push.register_device('secret-user', %s, 'fcm', %s, platform => 'secret')", APP,
            SECRET),
        "push.register_device, user": query("select push.register_device(repeat('secret', 100), %s, 'fcm', %s)", APP, SECRET),
        "push.answer_call, device": query("select push.answer_call('at-once-0001', 'secret-user', %s, %s)", APP, SECRET + "\\"),
        "push.decline_call, user": query("select push.decline_call('at-once-0001', 'secret-stranger', %s)", APP),
        "push.end_call, reason": query("select push.end_call('at-once-0001', repeat('secret', 100), %s)", APP),
        # Errors of Postgres itself: it cannot parse the input, and no trigger has run yet.
        "COPY, broken JSON *": copy(f"{app}\t{broken}\t{recipients}\n"),
        "COPY, a column too few *": copy(f"{app}\t{payload}\n"),
        "COPY, a column too many *": copy(f"{app}\t{payload}\t{recipients}\tx\n"),
        "COPY, columns in the wrong order *": copy(f"{app}\t{payload}\t{recipients}\t{SECRET}\n", columns + ", ring_seconds"),
        "INSERT, broken JSON *": insert(payload=broken),
        "push.enqueue_call, broken JSON *": query("select push.enqueue_call(%s::jsonb, '[]', %s)", broken, APP),
    }
    for way in WAYS:
        with connect(way, autocommit=True) as db:
            for name, work in works.items():
                got = outcome(work, db)
                check(f"{way}: {name.rstrip(' *')}: refused, {'Postgres prints it' if '*' in name else 'and prints nothing of it'}",
                    (got == "done", "secret" in got.lower() if got != "done" else got), (False, "*" in name))
    # A token that cannot be registered is not found.
    with connect(autocommit=True) as db:
        check("push.drop_device: a backslash is not read as bytea's",
            db.execute("select push.drop_device(%s, 'fcm', %s)", (APP, "\\x" + SECRET)).fetchone()[0], False)
    # Two sessions that register the same token at once.
    with connect() as one, connect() as two, ThreadPoolExecutor(1) as thread:
        pid = two.execute("select pg_backend_pid()").fetchone()[0]
        register = "select push.register_device(%s, %s, 'fcm', %s)"
        one.execute(register, ("ana", APP, SECRET))
        result = thread.submit(outcome, two.execute, register, ("bruno", APP, SECRET))
        waited = waits(pid)
        one.commit()
        check("two register one token at once: the second waits, and has it", (waited, result.result(PATIENCE)), (True, "done"))
        two.commit()
        check("it is the second's", owner("select string_agg(user_id, ' ') from push.devices where token = %s", SECRET), "bruno")


for way in WAYS:
    for level in LEVELS:
        one_after_the_other(way, level)
all_at_once()
in_opposite_orders()
errors()
