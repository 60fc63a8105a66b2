"""Webhooks with several sessions: a tenant, an operator or an open transaction must not stop the events of other apps, retention,
or a gateway that starts."""

import os

import psycopg

from harness import OWNER, check, connect, owner

BOUND = os.environ["LOGIN_PREFIX"] + "tenant_a"
TENANTS = ["tenant_a", "tenant_b"]
TOKEN = "webhook-token-of-{}-0123456789"
OTHER = "another-token-of-tenant_a-0123456789"


def write(statement, *parameters):
    with psycopg.connect(OWNER, autocommit=True) as db:
        db.execute(statement, parameters or None)


with psycopg.connect(OWNER, autocommit=True) as db:
    # As in tenants.py, which runs before.
    db.execute(f"alter role {BOUND} inherit")
    db.execute("select * from push.grant_app(%s, 'tenant_a')", (BOUND,))
write("select push.set_webhooks(%s, '{hook.example,hook.example}', '{d,d}', '{null,null}')", TENANTS)
write("delete from push.webhook_event")


def invalidate(app, token):
    write("insert into push.token_invalidations (app, provider, token, user_id, reason) values (%s, 'fcm', %s, 'u', 'Unregistered')",
        app, token)


def event(name, app, **columns):
    """Records an event that no call needs."""
    columns = {"type": "call.ended", "outbox_id": None, "created_at": "now"} | columns
    write("""insert into push.webhook_event (event, app, type, outbox_id, created_at, at, data) values (%s, %s, %s, %s, %s, now(), '{}')""",
        name, app, columns["type"], columns["outbox_id"], columns["created_at"])


def waiting():
    return owner("select coalesce(string_agg(event, ' ' order by event), '') from push.webhook_event")


def claim(db):
    return db.execute("select id, app, attempt from push.claim_webhooks(%s, '{d,d}', '{16,16}', '{600000,600000}')", (TENANTS,)).fetchall()


def settle(db, claimed, result):
    """Writes the same result for all; whether the database took it."""
    try:
        db.execute("""select push.settle_webhooks(%s, %s, array_fill('d'::text, array[n]), %s, array_fill(%s::smallint, array[n]),
            array_fill(%s, array[n]), array_fill(null::text, array[n]), array_fill(5000, array[n]), array_fill(null::int, array[n]))
          from cardinality(%s::bigint[]) n""",
            (*map(list, zip(*claimed, strict=True)), result, 500 if result else 200, [id for id, _, _ in claimed]))
    except psycopg.Error as error:
        return error.sqlstate
    return "written"


def prune(db):
    """Retention, by several steps: each ends when its time is over."""
    for _ in range(5):
        db.execute("select push.run_job('prune')")


def tried(db, statement, parameters=None):
    try:
        db.execute(statement, parameters)
        return "done"
    except psycopg.Error as error:
        return error.sqlstate


with connect(login="gateway", autocommit=True) as gateway, connect(login="tenant_a") as tenant, connect(login="ops") as operator:
    # So a lock that another session keeps stops none of the following for longer.
    check("a gateway waits for the lock of a webhook for a tenth of a second, and for the others less",
        owner("""select string_agg(proname || ' ' || setting, ', ' order by proname) from pg_proc cross join unnest(proconfig) setting
          where pronamespace = 'push'::regnamespace and proname in ('set_webhooks', 'settle_webhooks') and setting ~ 'lock_timeout'"""),
        "set_webhooks lock_timeout=100ms, settle_webhooks lock_timeout=100ms")

    # A tenant's receiver is told that a token is dead. Before it answers, its backend registers the token again, and keeps the
    # transaction open.
    for app in TENANTS:
        owner("select push.register_device('webhook-user', %s, 'fcm', %s)", app, TOKEN.format(app))
        invalidate(app, TOKEN.format(app))
    claimed = claim(gateway)
    check("a dead token of each app is claimed", sorted(app for _, app, _ in claimed), TENANTS)
    tenant.execute("select push.register_device('webhook-user', 'tenant_a', 'fcm', %s)", (TOKEN.format("tenant_a"),))
    check("a tenant that keeps a registration open does not delay results of others", settle(gateway, claimed, 0), "written")
    check("which are settled", owner("select string_agg(app, ' ') from push.webhook_event"), "tenant_a")
    tenant.rollback()
    write("delete from push.webhook_event")

    # A registration does not wait for an operator who sends the token's event again.
    invalidate("tenant_a", OTHER)
    claim(gateway)
    operator.execute("select push.resume_webhooks('tenant_a')")
    check("a registration does not wait for an operator",
        tried(tenant, "select push.register_device('webhook-user', 'tenant_a', 'fcm', %s)", (OTHER,)), "done")
    tenant.rollback()
    operator.rollback()
    write("delete from push.webhook_event")

    # An operator leaves a transaction open.
    for number, app in enumerate(TENANTS * 2):
        event(f"e{number}", app, outbox_id=900 + number % 2)
    claimed = claim(gateway)
    operator.execute("select push.pause_webhooks('tenant_a', 'left open')")
    check("with a pause left open, failures are written", settle(gateway, claimed, 1), "written")
    write("update push.webhook_event set due_at = now()")
    write("update push.webhook set failures = 9, failing_since = now() where app = 'tenant_b'")
    check("the other app is claimed, without waiting", [app for _, app, _ in claim(gateway) if app == "tenant_b"], ["tenant_b"])
    operator.rollback()
    owner("select from unnest(%s::text[]) a, push.resume_webhooks(a)", TENANTS)
    claimed = claim(gateway)
    operator.execute("select push.resume_webhooks('tenant_a')")
    check("with a resumption left open, acknowledgements are written", settle(gateway, claimed, 0), "written")
    check("of the other app", waiting(), "e0 e2 e3")
    check("whose next event is due", [app for _, app, _ in claim(gateway)], ["tenant_b"])
    operator.rollback()
    write("delete from push.webhook_event")

    event("old-a", "tenant_a", created_at="yesterday")
    event("old-b", "tenant_b", created_at="yesterday")
    write("update push.webhook_event set created_at = now() - interval '25 hours'")
    operator.execute("select push.pause_webhooks('tenant_a', 'left open')")
    check("retention goes on", tried(gateway, "select push.run_job('prune')"), "done")
    prune(gateway)
    check("the other app's old events are deleted", waiting(), "old-a")
    check("a gateway with the same webhooks starts",
        tried(gateway, "select push.set_webhooks(%s, '{hook.example,hook.example}', '{d,d}', '{null,null}')", (TENANTS,)), "done")
    operator.rollback()
    prune(gateway)
    check("those of this one afterwards", waiting() + owner("select dropped::text from push.webhook where app = 'tenant_a'"), "1")

    # As many old events as retention takes in one step, of an app that an operator has locked.
    write("""insert into push.webhook_event (event, app, type, created_at, at, data)
      select 'locked-' || i, 'tenant_a', 'token.dead', now() - interval '25 hours', now(), '{}' from generate_series(1, 5001) i""")
    event("old-b", "tenant_b", created_at="yesterday")
    write("update push.webhook_event set created_at = now() - interval '24 hours 1 s' where app = 'tenant_b'")
    operator.execute("select push.pause_webhooks('tenant_a', 'left open')")
    prune(gateway)
    check("they keep no other app's events from being deleted",
        owner("select string_agg(distinct app, ' ') from push.webhook_event"), "tenant_a")

    # A gateway starts whose configuration has other URLs.
    def register(host, digest):
        locked = gateway.execute("select push.set_webhooks(%s, array[%s, %s], array[%s, %s], '{null,null}')",
            (TENANTS, host, host, digest, digest)).fetchone()[0]
        state = "select string_agg(url_digest || (on_until > now()), ' ' order by app) from push.webhook where app = any (%s)"
        return locked, owner(state, TENANTS)

    check("a webhook that an operator has locked delays only itself", register("hook.example", "e"), (["tenant_a"], "dtrue etrue"))
    check("also one that is removed", register(None, None), (["tenant_a"], "dtrue efalse"))
    operator.rollback()
    check("it is written afterwards", register("hook.example", "e"), ([], "etrue etrue"))
    write("delete from push.webhook_event")
    write("delete from push.webhook where app = any (%s)", TENANTS)
    with psycopg.connect(OWNER) as other:
        other.execute("select push.set_webhooks('{tenant_a}', '{hook.example}', '{d}', '{null}')")
        check("so does a new one that another transaction has written", register("hook.example", "d"), (["tenant_a"], "dtrue"))
    check("which is committed", register("hook.example", "d"), ([], "dtrue dtrue"))

    # The same for a quota.
    quota = "select push.register_app('tenant_a', 600, p_quota => '{100,null,null}', p_replica => 'webhooks')"
    gateway.execute(quota)
    operator.execute("select push.set_quota('tenant_a', 200, note => 'left open')")
    check("a gateway whose quota is known does not wait for an operator who sets one", tried(gateway, quota), "done")
    write("select push.register_gateway('webhooks', '1')")
    check("nor one with another quota", tried(gateway, quota.replace("100", "300")), "done")
    operator.rollback()
    # Other tests of this database may have left an app at its quota, of which health warns, too.
    troubles = "select (value ~ 'tenant_a is not the one that webhooks has')::text from push.health where item = 'quotas'"
    check("which health reports", owner(troubles), "true")
    gateway.execute(quota.replace("100", "300"))
    check("until it registers again", owner(troubles), "false")
    gateway.execute("select push.register_app('tenant_a', 600, p_quota => '{null,null,null}', p_replica => 'webhooks')")

owner("select push.set_webhooks(%s, '{null,null}', '{null,null}', '{null,null}')", TENANTS)
