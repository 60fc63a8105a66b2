"""An error of a function that a backend calls is short: message, hint, and at most three lines of context, as psql and the exception of
an ORM show them. Once it was 110 lines, because the context quoted the statement in which the call was refused."""

import os
import subprocess

import psycopg
from psycopg.types.json import Jsonb

from harness import OWNER, check, conninfo, connect, owner

CONTEXT_LINES_MAX = 3
GOOD = {"callId": "errors", "from": "x"}
TOKEN = "errors-token-0123456789"
LONG = "x" * 300


def insert(payload=GOOD, recipients=(), app="default", kind="incoming_call", ring_seconds=None, traceparent=None):
    return ("insert into push.outbox (app, kind, payload, recipients, ring_seconds, traceparent) values (%s, %s, %s, %s, %s, %s)",
        (app, kind, Jsonb(payload), Jsonb(recipients), ring_seconds, traceparent))


def enqueue(payload=GOOD, recipients=(), app="default", kind="incoming_call", ring_seconds=None, traceparent=None):
    return ("select push.enqueue_call(%s, %s, %s, %s, %s, %s)",
        (Jsonb(payload), Jsonb(recipients), app, ring_seconds, kind, traceparent))


# The name of each fault of a call, and its arguments.
CALLS = {
    "payload": {"payload": [1]}, "callId": {"payload": {"from": "x"}}, "from": {"payload": {"callId": "errors"}},
    "kind": {"kind": "telegram"}, "app": {"app": "served-by-nobody"}, "app name": {"app": "no name"}, "ring": {"ring_seconds": 0},
    "traceparent": {"traceparent": "x"}, "recipients": {"recipients": {"u": 1}}, "too many": {"recipients": ["u"] * 1001},
    "long": {"payload": GOOD | {"note": "x" * 20_000}},
    "too long for FCM": {"payload": GOOD | {"note": "x" * 5_000}, "recipients": [{"userId": "u", "fcmToken": TOKEN}]},
    "text of a message": {"payload": {"chatId": "c", "from": "x", "body": "b"}, "kind": "message"},
}
# Function -> statements that each end with an error. None: nothing of it can fail.
FUNCTIONS = {
    "enqueue_call": [enqueue(**call) for call in CALLS.values()] + [
        ("select push.enqueue_call('{\"callId\": \"errors-over\", \"from\": \"x\"}', '[]')", ())],
    "enqueue_batch": [
        ("select push.enqueue_batch(array[%s]::jsonb[])", (Jsonb({"payload": {}, "recipients": []}),)),
        ("select push.enqueue_batch(array[%s]::jsonb[])", (Jsonb({"payload": GOOD, "recipients": [], "app": "served-by-nobody"}),)),
        ("select push.enqueue_batch(array[%s]::jsonb[])", (Jsonb({"payload": GOOD, "recipients": [], "ring_seconds": "x"}),))],
    "compare_call": [("select push.compare_call('none', '{}', '[]')", ())],
    "add_recipients": [("select push.add_recipients('none', '[]')", ()), ("select push.add_recipients('errors-over', '[\"u\"]')", ()),
        ("select push.add_recipients('errors-rings', '{}')", ()),
        ("select push.add_recipients('errors-rings', %s)", (Jsonb([f"u{i}" for i in range(1001)]),)),
        ("select push.add_recipients('errors-long', %s)", (Jsonb([{"userId": "v", "fcmToken": TOKEN}]),))],
    "answer_call": [("select push.answer_call('none')", ()), ("select push.answer_call('errors-rings', %s)", (LONG,)),
        ("select push.answer_call('errors-rings', 'u', device => '?')", ())],
    "decline_call": [("select push.decline_call('none', 'u')", ()), ("select push.decline_call('errors-rings', 'other')", ()),
        ("select push.decline_call('errors-rings', 'u', reason => 'tired')", ()),
        ("select push.decline_call('errors-rings', 'u', device => '?')", ())],
    "end_call": [("select push.end_call('none')", ()), ("select push.end_call('errors-rings', %s)", (LONG,))],
    "register_device": [
        ("select push.register_device('u', 'default', 'fcm', '?')", ()),
        ("select push.register_device('', 'default', 'fcm', %s)", (TOKEN,)),
        ("select push.register_device('u', 'default', 'pager', %s)", (TOKEN,)),
        ("select push.register_device('u', 'no name', 'fcm', %s)", (TOKEN,)),
        ("select push.register_device('u', 'default', 'fcm', %s, 'moon')", (TOKEN,)),
        ("select push.register_device('u', 'default', 'fcm', %s, platform => 'web')", (TOKEN,)),
        ("select push.register_device('u', 'default', 'fcm', %s, locale => %s)", (TOKEN, LONG)),
        ("select push.register_device('u', 'served-by-nobody', 'fcm', %s)", (TOKEN,))],
    "dead_tokens": [("select push.dead_tokens(rows_max => 0)", ())],
    "call": [("select push.call('none')", ())],
    "report_ringing": [("select push.report_ringing('none', 'u')", ()), ("select push.report_ringing('errors-rings', 'other')", ())],
    "enable_device": None, "drop_device": None, "timeline": None, "skipped_recipients": None, "find_calls": None, "slot_of": None,
    "shard_of": None,
    "shards_of": None, "own_shard": None, "shard_map_number": None, "new_call_id": None,
}
ROWS = [insert(**call) for call in CALLS.values()] + [("update push.outbox set state = 'asleep' where call_id = 'errors-rings'", ()),
    ("update push.outbox set state = 'ended', end_reason = %s where call_id = 'errors-rings'", (LONG,))]


def granted(role):
    """The functions that a role may call."""
    return set(owner("""select array_agg(distinct p.proname::text) from pg_proc p
        where p.pronamespace = 'push'::regnamespace and has_function_privilege(%s, p.oid, 'execute')""", role))


def psql(statement, parameters):
    """What psql prints about the error of a statement."""
    with psycopg.connect(OWNER) as db:
        text = psycopg.ClientCursor(db).mogrify(statement, parameters)
    command = ["psql", "-Xq", conninfo("direct", "enqueuer")]
    return subprocess.run(command, input=text + ";", capture_output=True, text=True, check=False).stderr


def fault(db, statement, parameters, has_hint):
    """What is wrong with the error of a statement; empty: nothing."""
    try:
        with db.transaction(force_rollback=True):
            db.execute(statement, parameters)
        return "accepted"
    except psycopg.Error as error:
        said, context = error.diag, (error.diag.context or "").splitlines()
        if len(context) > CONTEXT_LINES_MAX:
            return f"{len(context)} lines of context"
        if said.message_primary.count("\n") or len(said.message_primary) > 300:
            return "a long message"
        if has_hint and not (said.message_hint and said.schema_name == "push" and said.column_name):
            return "no hint or field"
        # The message, DETAIL of a quota, HINT and CONTEXT; psql also quotes the line of a statement of several.
        for way, text in (("psycopg", str(error)), ("psql", psql(statement, parameters))):
            if len(text.splitlines()) > CONTEXT_LINES_MAX + 3:
                return f"{len(text.splitlines())} lines in {way}"
        return ""


check("every function of a backend is here", granted("push_enqueuer") ^ set(FUNCTIONS), set())
check("and every one of a tenant", granted("push_tenant") ^ set(FUNCTIONS), set())
with connect(autocommit=True) as db:
    for call_id, payload in (("errors-rings", {}), ("errors-over", {}), ("errors-long", {"note": "x" * 5_000})):
        db.execute("select push.enqueue_call(%s, '[\"u\"]')", (Jsonb(GOOD | payload | {"callId": call_id}),))
    db.execute("select push.end_call('errors-over')")
    with psycopg.connect(OWNER) as admin:
        admin.execute("set local session_replication_role = 'replica'")
        admin.execute("update push.outbox set ended_at = now() - interval '1 hour' where call_id = 'errors-over'")
    for name, statements in {**FUNCTIONS, "INSERT and UPDATE": ROWS}.items():
        for number, (statement, parameters) in enumerate(statements or (), 1):
            has_hint = name == "enqueue_call" and "errors-over" not in statement
            check(f"{name}: a short error, {number}", fault(db, statement, parameters, has_hint), "")
for limits in ("10, 10, 2", "10, 10, 0", "0, 0, 0"):
    owner(f"select push.set_quota('errors', {limits})")
    with connect(autocommit=True) as db:
        for statement, parameters in (insert(recipients=["u"] * 3, app="errors"), enqueue(recipients=["u"] * 3, app="errors")):
            check(f"quota {limits}: a short error", fault(db, statement, parameters, True), "")
with connect(login="tenant_a", autocommit=True) as db:
    owner(f"select push.grant_app('{os.environ['LOGIN_PREFIX']}tenant_a', 'tenant_a')")
    for name, statements in (("INSERT", insert(app="tenant_b")), ("enqueue_call", enqueue(app="tenant_b")),
            ("register_device", ("select push.register_device('u', 'tenant_b', 'fcm', %s)", (TOKEN,))),
            ("enqueue_batch", ("select push.enqueue_batch(array[%s]::jsonb[])", (
                Jsonb({"payload": GOOD, "recipients": [], "app": "tenant_b"}),)))):
        check(f"{name} for another tenant's app: a short error", fault(db, *statements, True), "")
