"""Tenants: two logins, each bound to an app, attack the other's calls with every function, table and view that they can use. The
test fails if a later grant has no attack here. An unbound login works as before."""

import os

import psycopg
from psycopg.types.json import Jsonb

from harness import OWNER, WAYS, check, connect, owner, refused

PREFIX = os.environ["LOGIN_PREFIX"]
TENANTS = ("tenant_a", "tenant_b")
# Names that no tenant has. Their length does not differ from real ones in answers from which names are removed.
NOWHERE = {"app": "tenant_x", "call": "call-of-tenant_x", "user": "user-of-tenant_x", "id": "999999999"}

# Function -> its kind of answer, and statements for the app, call, user or id of another tenant, with and without the app. Each
# must answer as for an object that does not exist, and change nothing.
FUNCTIONS = {
    "enqueue_call": ("42501 app: this login may not act for app", [
        """select * from push.enqueue_call('{{"callId": "{call}", "from": "x"}}', '["{user}"]', '{app}')""",
        """select * from push.enqueue_call('{{"callId": "new-{call}", "from": "x"}}', '["{user}"]', '{app}')""",
        """select * from push.enqueue_call('{{"messageId": "{call}", "chatId": "c", "from": "x"}}', '["{user}"]', '{app}',
          kind => 'message')"""]),
    "compare_call": ("P0002", ["select push.compare_call('{call}', '{{}}', '[]', '{app}')",
        "select push.compare_call('{call}', '{{}}', '[]')"]),
    "add_recipients": ("P0002", ["""select push.add_recipients('{call}', '["{user}"]', '{app}')""",
        """select push.add_recipients('{call}', '["{user}"]')"""]),
    "answer_call": ("P0002", ["select push.answer_call('{call}', '{user}', '{app}')", "select push.answer_call('{call}')",
        "select push.answer_call('{call}', device => 'token-of-{app}-0123456789')",
        "select push.answer_call('{call}', device => '{device}')"]),
    "decline_call": ("P0002", ["select push.decline_call('{call}', '{user}', '{app}')", "select push.decline_call('{call}', '{user}')",
        "select push.decline_call('{call}', 'nobody')"]),
    "end_call": ("P0002", ["select push.end_call('{call}', 'busy', '{app}')", "select push.end_call('{call}')"]),
    "report_ringing": ("P0002",
        ["select push.report_ringing('{call}', '{user}', '{app}')", "select push.report_ringing('{call}', '{user}')",
        "select push.report_ringing('{call}', 'nobody')"]),
    "register_device": ("42501 app: this login may not act for app",
        ["select push.register_device('{user}', '{app}', 'fcm', 'token-of-{app}-0123456789')",
        "select push.register_device('thief', '{app}', 'fcm', 'token-of-{app}-0123456789')",
        "select push.register_device('{user}', '{app}', 'fcm', 'no token')"]),
    "dead_tokens": ("[]", ["select * from push.dead_tokens(apps => array['{app}'])",
        "select * from push.dead_tokens('-infinity', array['{app}'], 1)"]),
    "enable_device": ("[(False,)]", ["select push.enable_device('{app}', 'fcm', 'token-of-{app}-0123456789', false)"]),
    "drop_device": ("[(False,)]", ["select push.drop_device('{app}', 'fcm', 'token-of-{app}-0123456789')"]),
    "call": ("P0002", ["select push.call('{call}', '{app}')", "select push.call('{call}')"]),
    "timeline": ("[]", ["select * from push.timeline('{call}', '{app}')", "select * from push.timeline('{call}')"]),
    "skipped_recipients": ("[]", ["select * from push.skipped_recipients({id})"]),
    "enqueue_batch": ("42501 app: this login may not act for app", [
        """select * from push.enqueue_batch(array['{{"app": "{app}", "payload": {{"callId": "{call}", "from": "x"}},
          "recipients": ["{user}"]}}']::jsonb[])""",
        """select * from push.enqueue_batch(array['{{"app": "{own}", "payload": {{"callId": "own-{call}", "from": "x"}},
          "recipients": []}}',
          '{{"app": "{app}", "call_id": "{call}", "payload": {{"callId": "{call}", "from": "x"}}, "recipients": []}}']::jsonb[])"""]),
    "find_calls": ("[]", ["select * from push.find_calls(array['{call}'], array['{app}'])",
        "select * from push.find_calls(array['{call}'], array[null])"]),
    # Where ids belong is the same for all, and says nothing of any call.
    "slot_of": ("[(952,)]", ["select push.slot_of('anything')"]),
    "shard_of": ("[(None,)]", ["select push.shard_of('{call}')"]),
    "shards_of": ("[([],)]", ["select push.shards_of('{call}')"]),
    "own_shard": ("[(None,)]", ["select push.own_shard()"]),
    "shard_map_number": ("[(None,)]", ["select push.shard_map_number()"]),
    "new_call_id": ("[(36,)]", ["select length(push.new_call_id())"]),
}
# Relation -> the rights to some of its columns, its kind of answer, and statements for rows of another tenant.
RELATIONS = {
    "outbox": ("INSERT", "42501", [
        """insert into push.outbox (app, payload, recipients) values ('{app}', '{{"callId": "{call}", "from": "x"}}', '["{user}"]')""",
        """insert into push.outbox (app, payload, recipients) values ('{app}', '{{"callId": "{call}", "from": "x"}}', '["{user}"]')
          on conflict do nothing""",
        """insert into push.outbox (app, call_id, kind, payload, recipients, ring_seconds, state, traceparent)
          values ('{app}', '{call}', 'missed_call', '{{"callId": "{call}", "from": "x"}}', '["{user}"]', 9, 'answered', 'bad')""",
        """insert into push.outbox (app, payload, recipients) values ('{own}', '{{"callId": "own-{call}", "from": "x"}}', '[]'),
          ('{app}', '{{"callId": "{call}", "from": "x"}}', '["{user}"]')""",
        "insert into push.outbox (payload, recipients) values ('{{\"callId\": \"{call}\", \"from\": \"x\"}}', '[\"{user}\"]')",
        "COPY {app} {call} {user}",
        # A tenant may neither read nor update it, not even its own rows.
        "select call_id from push.outbox", "select count(*) from push.outbox where call_id = '{call}'", "table push.outbox",
        "insert into push.outbox (app, payload, recipients) values ('{own}', '{{}}', '[]') returning id",
        "insert into push.outbox (app, payload, recipients) values ('{own}', '{{}}', '[]') on conflict (call_id, app) do nothing",
        "update push.outbox set state = 'ended' where call_id = '{call}'", "delete from push.outbox", "copy push.outbox to stdout",
        "lock table push.outbox in share mode"]),
}


def names(tenant):
    """Creates a tenant's data. The names of its calls contain its name."""
    call = f"call-of-{tenant}"
    return {"app": tenant, "call": call, "user": f"user-of-{tenant}",
        "id": str(owner("select id from push.outbox where call_id = %s", call) or 0),
        "device": str(owner("select id from push.devices where app = %s", tenant) or 0)}


def answer(db, statement):
    """Everything that a client gets: rows, or every field of the error. Changes are rolled back."""
    try:
        with db.transaction(force_rollback=True):
            if statement.startswith("COPY"):
                app, call, user = statement.split()[1:]
                with db.cursor() as cursor, cursor.copy("copy push.outbox (app, payload, recipients) from stdin") as copy:
                    copy.write_row((app, f'{{"callId": "{call}", "from": "x"}}', f'["{user}"]'))
                return "copied"
            if statement.startswith("copy"):
                with db.cursor() as cursor, cursor.copy(statement) as copy:
                    return str(list(copy))
            cursor = db.execute(statement)
            return str(cursor.fetchall() if cursor.description else cursor.rowcount)
    except psycopg.Error as error:
        return " ".join(str(part) for part in (error.sqlstate, *(getattr(error.diag, field) for field in (
            "message_primary", "message_detail", "message_hint", "context", "schema_name", "table_name", "column_name"))))


def told(db, statement, of, own):
    """The answer without the names in the statement itself."""
    said = answer(db, statement.format(**{"device": "1", **of}, own=own))
    for key in ("call", "user", "app"):
        said = said.replace(of[key], key.upper())
    # The position of a parser error depends on the lengths of names.
    return said


def state(tenant):
    """All data of a tenant."""
    return owner("""select md5(concat(
        (select string_agg(o::text, ' ' order by o.id) from push.outbox o where o.app = %(app)s),
        (select string_agg(k::text, ' ' order by k.call_id) from push.call_key k where k.app = %(app)s),
        (select string_agg(d::text, ' ' order by d.id) from push.devices d where d.app = %(app)s),
        (select string_agg(d::text, ' ' order by d.outbox_id, d.n) from push.delivery d
          join push.lane l on l.id = d.lane where l.app = %(app)s),
        (select count(*) from push.history h join push.lane l on l.id = h.lane where l.app = %(app)s),
        (select count(*) from push.ring_reports r join push.outbox o on o.id = r.outbox_id where o.app = %(app)s)))"""
        .replace("%(app)s", f"'{tenant}'"))


def attack(name, db, own):
    """Runs every attack as a login with OWN against the other tenant."""
    other, = set(TENANTS) - {own}
    there, before = names(other), state(other)
    for entry, (begins, statements) in [*FUNCTIONS.items(), *((r, s) for r, (_, *s) in RELATIONS.items())]:
        for statement in statements:
            got = told(db, statement, there, own)
            check(f"{name}: {entry}: another tenant's object is treated as missing: {statement}",
                (got[:len(begins)], "COPY outbox" in got, got),
                (begins, False, told(db, statement, {**NOWHERE, "device": "999999999"}, own)))
    check(f"{name}: nothing of the other tenant's has changed", state(other), before)


def works(name, db, app):
    """Runs every function for an app that the login acts for."""
    call, device = f"{name}-{app}".replace(" ", "-").replace(":", ""), "own-token-0123456789"
    with db.transaction(force_rollback=True):
        def one(statement, *parameters):
            return db.execute(statement, parameters).fetchone()[0]

        db.execute("select push.register_device('own', %s, 'fcm', %s)", (app, device))
        got = [one("select deliveries from push.enqueue_call(%s, '[\"own\", \"lost\"]', %s)", Jsonb({"callId": call, "from": "x"}), app),
            one("select duplicate from push.enqueue_call(%s, '[\"own\", \"lost\"]', %s)", Jsonb({"callId": call, "from": "x"}), app),
            one("select push.call(%s, %s) ->> 'state'", call, app), one("select count(*) > 0 from push.timeline(%s)", call),
            one("select count(*) from push.skipped_recipients((push.call(%s, %s) ->> 'id')::bigint)", call, app),
            one("select push.report_ringing(%s, 'own')", call), one("select push.decline_call(%s, 'lost')", call),
            one("select push.answer_call(%s, 'own')", call), one("select push.end_call(%s)", call),
            one("select push.enable_device(%s, 'fcm', %s, false)", app, device), one("select push.drop_device(%s, 'fcm', %s)", app, device)]
        db.execute("insert into push.outbox (app, payload, recipients) values (%s, %s, '[]')",
            (app, Jsonb({"callId": call + "-i", "from": "x"})))
        with db.cursor() as cursor, cursor.copy("copy push.outbox (app, payload, recipients) from stdin") as copy:
            for what in ("-c", "-i", "-c"):
                copy.write_row((app, f'{{"callId": "{call}{what}", "from": "x"}}', "[]"))
        got += [one("select push.call(%s) ->> 'app'", call + what) == app for what in ("-i", "-c")]
        check(f"{name}: its own app works", got, [1, True, "ringing", True, 1, True, True, True, False, True, True, True, True])


def decided():
    """Everything that a backend can use is attacked above."""
    for group in ("push_enqueuer", "push_tenant"):
        functions = owner("""select array_agg(distinct proname::text) from pg_proc where pronamespace = 'push'::regnamespace
            and has_function_privilege(%s, oid, 'execute')""", group)
        check(f"every function that {group} may call is attacked", sorted(set(functions) ^ set(FUNCTIONS)),
            [])
    for tenant in TENANTS:
        relations = owner("""select jsonb_object_agg(c.relname, c.can) from (
            select c.relname, string_agg(p, ' ' order by n) as can
            from pg_class c cross join unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) with ordinality u(p, n)
            where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f')
              and has_any_column_privilege(%s, c.oid, p)
            group by c.relname) c""", PREFIX + tenant)
        check(f"every table and view that {tenant} may touch is attacked", relations, {r: can for r, (can, *_) in RELATIONS.items()})
        check(f"{tenant} has no right to a whole table or view, and so cannot lock one",
            owner("""select string_agg(c.relname || ' ' || p, ', ')
            from pg_class c, unnest('{SELECT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER,INSERT}'::text[]) p
            where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'f') and has_table_privilege(%s, c.oid, p)""",
            PREFIX + tenant), None)
        check("nor to a sequence", owner("""select string_agg(c.relname, ' ') from pg_class c where c.relnamespace = 'push'::regnamespace
            and case c.relkind when 'S' then has_sequence_privilege(%s, c.oid, 'usage, select, update') end""", PREFIX + tenant), None)


def bind(role, app):
    return owner("select message from push.grant_app(%s, %s)", PREFIX + role, app)


def run(*statements):
    with psycopg.connect(OWNER, autocommit=True) as db:
        for statement in statements:
            db.execute(statement.replace("$", PREFIX))


def enqueue_as(login, app, call):
    with connect(login=login, autocommit=True) as db:
        try:
            return db.execute("select deliveries from push.enqueue_call(%s, '[]', %s)",
                (Jsonb({"callId": call, "from": "x"}), app)).fetchone()[0]
        except psycopg.Error as error:
            return error.sqlstate


def through_a_function(login, owned_by, app, call):
    """Enqueues through a SECURITY DEFINER function, called by a login that need not have any rights."""
    with connect(login=login, autocommit=True) as db:
        try:
            db.execute(f"select deputies.by_{owned_by}(%s, %s)", (app, call))
            return "enqueued"
        except psycopg.Error as error:
            return error.sqlstate


def prepare():
    run("create schema deputies; grant usage, create on schema deputies to public")
    for login in ("enqueuer", "tenant_a"):
        run(f"alter role ${login} inherit", f"grant push_enqueuer to ${login}")
        with connect(login=login, autocommit=True) as db:
            db.execute(f"""create function deputies.by_{login}(app text, call text) returns void language sql security definer as
                $$ select push.enqueue_call(jsonb_build_object('callId', call, 'from', 'x'), '[]', app) $$""")
    # Members of push_tenant belong to the whole cluster.
    if owner("select count(*) from pg_auth_members where roleid = 'push_tenant'::regrole") == 0:
        check("without tenants, a backend's function enqueues for every caller",
            through_a_function("nobody", "enqueuer", "tenant_b", "deputy-0"), "enqueued")
    with connect(login="tenant_a", autocommit=True) as db:
        works("before it is bound", db, "tenant_b")
    run("alter role $tenant_b inherit", "grant push_enqueuer to $tenant_b")
    check("a backend's role is bound", bind("tenant_a", "tenant_a"), f"granted to {PREFIX}tenant_a: tenant_a")
    # The other is bound as a member of a group.
    run("create role $group", "grant $group to $tenant_b")
    with refused("one that has push_enqueuer through another role is not bound by halves", "22023", "role: "):
        run("grant push_enqueuer to $group", "create role $inner in role $group", "select push.grant_app('$inner', 'tenant_b')")
    run("drop role $inner", "revoke push_enqueuer from $tenant_b", "select push.grant_app('$group', 'tenant_b')")
    for tenant in TENANTS:
        owner("select push.register_lane(%s, 'fcm')", tenant)
        owner("select push.register_device(%s, %s, 'fcm', %s)::text", f"user-of-{tenant}", tenant, f"token-of-{tenant}-0123456789")
        owner("select outbox_id from push.enqueue_call(%s, %s, %s)", Jsonb({"callId": f"call-of-{tenant}", "from": "x"}),
            Jsonb([f"user-of-{tenant}", "nobody"]), tenant)
        owner("insert into push.token_invalidations (app, provider, token, reason) values (%s, 'fcm', %s, 'x') returning 1", tenant,
            f"dead-token-of-{tenant}-0123456789")
        owner("select outbox_id from push.enqueue_call(%s, '[]', %s)", Jsonb({"callId": "shared", "from": "x"}), tenant)
        owner("select push.report_ringing(%s, %s)", f"call-of-{tenant}", f"user-of-{tenant}")


def both_ways():
    for tenant in TENANTS:
        for way in WAYS:
            with connect(way, tenant, autocommit=True) as db:
                works(f"{way} {tenant}", db, tenant)
                attack(f"{way} {tenant}", db, tenant)
                check(f"{way} {tenant}: a call id that both have needs no app, and is its own",
                    db.execute("select push.call('shared') ->> 'app', push.end_call('shared', 'busy')").fetchone()[0], tenant)
    # Two sessions: a tenant does not wait for a call that another tenant is enqueueing.
    with connect(login="tenant_b") as held, connect(login="tenant_a", autocommit=True) as db:
        held.execute("select push.enqueue_call('{\"callId\": \"held\", \"from\": \"x\"}', '[]', 'tenant_b')")
        with refused("a call that another tenant has not committed yet is not waited for", "42501",
                "app: this login may not act for app tenant_b"):
            db.execute("select push.enqueue_call('{\"callId\": \"held\", \"from\": \"x\"}', '[]', 'tenant_b')")
        held.rollback()


def counts():
    """A tenant's own transaction reads the same number of rows of push.outbox for another's call as for a missing one."""
    read = """select pg_stat_get_xact_tuples_fetched(c.oid) + pg_stat_get_xact_tuples_returned(c.oid) from pg_class c
        where c.oid in ('push.outbox'::regclass, 'push.outbox_call'::regclass, 'push.call_key'::regclass, 'push.call_key_pkey'::regclass)"""
    for statement in ("select count(*) from push.timeline(%s)", "select count(*) from push.timeline(%s, 'tenant_b')",
            "select push.call(%s)",
            "select push.answer_call(%s)", "select push.end_call(%s, app => 'tenant_b')", "select push.report_ringing(%s, 'u')"):
        counted = []
        for call in ("call-of-tenant_b", "call-of-nobody"):
            with connect(login="tenant_a") as db:
                # From the sixth execution on, its plan is generic.
                for _ in range(10):
                    try:
                        with db.transaction():
                            db.execute(statement, (call,))
                    except psycopg.errors.NoDataFound:
                        pass
                counted.append(db.execute(read).fetchall())
                db.rollback()
        check(f"{statement}: another's call is read no more than one that does not exist", counted[0], counted[1])


def escapes():
    """Attempts to leave the granted apps."""
    with connect(login="tenant_a", autocommit=True) as db:
        for statement in ("set role push_enqueuer", "set role push_gateway", f"set role {PREFIX}tenant_b",
                f"set session authorization {PREFIX}tenant_b",
                "select set_config('role', 'push_enqueuer', false)", "grant push_enqueuer to current_user",
                "select push.grant_app(session_user::text, 'tenant_b')",
                "insert into push.app_grant (role, app) values (session_user, 'tenant_b')", "select push.own_apps()",
                "select push.is_own('x')",
                "select push.fill_call()", "select push.take_call_key('call-of-tenant_b', 'tenant_b')",
                "select push.find_call('call-of-tenant_b', 'tenant_b')"):
            check(f"refused: {statement}", answer(db, statement).split()[0] in ("42501", "42704"), True)
        db.execute(f"set role {PREFIX}tenant_a")
        attack("switched to itself", db, "tenant_a")
        db.execute("set role push_tenant")
        check("switched to the group it acts for nothing", answer(db, "select push.call('shared')").split()[0], "P0002")
        db.execute("reset role")
        # Its own operators, functions and tables, found before those of push and pg_catalog.
        for statement in ("create function deputies.yes(text, text) returns boolean language sql immutable as 'select true'",
                "create function deputies.no(text, text) returns boolean language sql immutable as 'select false'",
                "create operator deputies.= (function = deputies.yes, leftarg = text, rightarg = text)",
                "create operator deputies.<> (function = deputies.no, leftarg = text, rightarg = text)",
                "create function deputies.pg_has_role(name, oid, text) returns boolean language sql as 'select true'",
                "create function deputies.current_setting(text) returns text language sql as $$ select 'push_enqueuer' $$",
                "create temp table app_grant as select session_user::text as role, 'tenant_b' as app",
                "set search_path = deputies, pg_temp, pg_catalog, push"):
            db.execute(statement)
        db.execute("select set_config('push.is_gateway', 'on', false), set_config('push.role', 'none', false)")
        attack("with a search path of its own", db, "tenant_a")
    run("drop operator deputies.= (text, text)", "drop operator deputies.<> (text, text)",
        "drop function deputies.pg_has_role(name, oid, text)", "drop function deputies.current_setting(text)")

    # A tenant's function, called by a login without any role of push.
    check("a tenant's own function enqueues for its app", through_a_function("tenant_a", "tenant_a", "tenant_a", "deputy-1"), "enqueued")
    check("and for no other", through_a_function("tenant_a", "tenant_a", "tenant_b", "deputy-2"), "42501")
    check("nor when a login without rights calls it", through_a_function("nobody", "tenant_a", "tenant_b", "deputy-3"), "42501")
    check("a backend's function does not lend a tenant its rights", through_a_function("tenant_a", "enqueuer", "tenant_b", "deputy-4"),
        "42501")
    check("where there are tenants, one without rights acts by no function",
        through_a_function("nobody", "enqueuer", "tenant_b", "deputy-5"), "42501")
    bind("nobody", "tenant_b")
    run("revoke push_tenant from $nobody")
    check("but for apps that are granted to it", (through_a_function("nobody", "enqueuer", "tenant_b", "deputy-6"),
        through_a_function("nobody", "enqueuer", "tenant_a", "deputy-7"), enqueue_as("nobody", "tenant_b", "deputy-8")),
        ("enqueued", "42501", "42501"))
    run("select push.revoke_app('$nobody', 'tenant_b')")


def as_a_pool_does():
    """One login that switches for each transaction, as PostgREST does."""
    run("grant $tenant_a, $group to $web")
    with connect("pooled", "web", autocommit=True) as db:
        for role, app, other in (("tenant_a", "tenant_a", "tenant_b"), ("group", "tenant_b", "tenant_a")):
            with db.transaction():
                db.execute(f"set local role {PREFIX}{role}")
                check(f"a login that has switched to {role} acts for its app alone", [a[:5] for a in (
                    answer(db, f"select deliveries from push.enqueue_call('{{\"callId\": \"web\", \"from\": \"x\"}}', '[]', '{app}')"),
                    answer(db, f"select deliveries from push.enqueue_call('{{\"callId\": \"web\", \"from\": \"x\"}}', '[]', '{other}')"))],
                    ["[(0,)", "42501"])
        with db.transaction():
            db.execute("set local role push_enqueuer")
            works("switched to push_enqueuer, which it was given", db, "tenant_b")
    with psycopg.connect(OWNER, autocommit=True) as db:
        works("a superuser", db, "tenant_b")
        db.execute(f"set role {PREFIX}tenant_a")
        attack("a superuser that has switched to a tenant", db, "tenant_a")
    run("revoke $tenant_a, $group from $web")


def unbound():
    with connect() as db:
        for app in TENANTS:
            works("unbound", db, app)
            got = [db.execute("insert into push.outbox (app, payload, recipients) values (%s, '{\"callId\": \"free\", \"from\": \"x\"}', "
                "'[]') on conflict (call_id, app) do nothing returning app", (app,)).fetchone()[0],
                db.execute("update push.outbox set state = 'answered' where call_id = 'free' and app = %s returning state",
                    (app,)).fetchone()[0],
                db.execute("select array_agg(distinct app order by app) @> '{tenant_a,tenant_b}' from push.outbox").fetchone()[0],
                db.execute("select count(*) from push.timeline('shared')").fetchone()[0] >= 2]
            check(f"unbound: inserts, updates and reads in the table, {app}", got, [app, "answered", True, True])
            db.rollback()
    for login in ("gateway", "ops"):
        with connect(login=login, autocommit=True) as db:
            check(f"{login}: calls of every app",
                [db.execute("select push.call(%s) ->> 'app'", (f"call-of-{t}",)).fetchone()[0] for t in TENANTS], list(TENANTS))
    with connect(login="gateway", autocommit=True) as db:
        check("gateway: enqueues for every app", answer(db,
            "select deliveries from push.enqueue_call('{\"callId\": \"by-gateway\", \"from\": \"x\"}', '[]', 'tenant_b')"), "[(0,)]")


def faults():
    return owner("select coalesce(jsonb_agg(concat_ws(': ', replace(g.role, %s, ''), g.app, g.fault) order by g.role, g.app), '[]') from "
        "push.app_grants g where g.role like %s",
        PREFIX, PREFIX + "%")


def binding():
    check("push.app_grants lists the bound roles", faults(), ["group: tenant_b", "tenant_a: tenant_a"])
    with connect(login="ops", autocommit=True) as db:
        check("for operators, too", db.execute("select count(*) from push.app_grants").fetchone()[0] >= 2, True)
    for role in ("push_ops", "push_keys"):
        with psycopg.connect(os.environ["OWNER_URL"], autocommit=True) as db:
            db.execute(f"grant {role} to {PREFIX}tenant_a")
            check(f"a tenant with {role} is at fault", faults(),
                ["group: tenant_b", "tenant_a: tenant_a: has push_ops or push_keys, which act for every app; revoke it"])
            db.execute(f"revoke {role} from {PREFIX}tenant_a")
    check("binding is written down", owner("select detail ->> 'changed' from push.audit where action = 'grant_app' and target = %s",
        f"tenant_a/{PREFIX}tenant_a"), "true")
    check("twice is harmless", owner("select changed from push.grant_app(%s, 'tenant_a')", PREFIX + "tenant_a"), False)
    for role, app, code, text in (("nosuch", "a", "42704", "role: there is no role"), ("tenant_a", "no/app", "22023", "app: must be"),
            ("gateway", "a", "22023", "role: ")):
        with refused(f"not bound: {role} to {app}", code, text):
            bind(role, app)
    for role in ("push_tenant", "push_enqueuer", "push_ops", "push_gateway"):
        with refused(f"not bound: {role}", "22023", f"role: {role} is a role of push-gateway itself"):
            owner("select push.grant_app(%s, 'a')", role)
    run("alter role $tenant_b createrole")
    with refused("nor one that may create roles", "22023", "role: "):
        bind("tenant_b", "tenant_b")
    run("alter role $tenant_b nocreaterole")
    with refused("nor a superuser", "22023", "role: "):
        owner("select push.grant_app(session_user::text, 'a')")

    check("two apps", (bind("tenant_a", "tenant_c"), enqueue_as("tenant_a", "tenant_c", "c"), enqueue_as("tenant_a", "tenant_b", "c")),
        (f"granted to {PREFIX}tenant_a: tenant_a, tenant_c", 0, "42501"))
    check("and one again", (owner("select changed from push.revoke_app(%s, 'tenant_c')", PREFIX + "tenant_a"),
        enqueue_as("tenant_a", "tenant_c", "c2"),
        enqueue_as("tenant_a", "tenant_a", "c3")), (True, "42501", 0))
    check("an app that was not granted is not revoked",
        owner("select changed from push.revoke_app(%s, 'tenant_c')", PREFIX + "tenant_a"), False)
    check("that, too, is written down",
        owner("select count(*) from push.audit where action = 'revoke_app' and target = %s", f"tenant_c/{PREFIX}tenant_a"), 2)

    # With push_enqueuer it could read the table: it can do nothing until one of the two roles is revoked.
    run("grant push_enqueuer to $tenant_a")
    check("push_enqueuer given to a tenant later: it acts for nothing", (enqueue_as("tenant_a", "tenant_a", "c4"), faults()),
        ("42501", ["group: tenant_b", "tenant_a: tenant_a: acts for no app: has push_enqueuer as well; revoke it"]))
    check("granting again mends it", (bind("tenant_a", "tenant_a"), enqueue_as("tenant_a", "tenant_a", "c5")),
        (f"granted to {PREFIX}tenant_a: tenant_a", 0))
    run("grant push_enqueuer to $tenant_b")
    check("and to a member of one", (enqueue_as("tenant_b", "tenant_b", "b1"), faults()[0]),
        ("42501", f"group: tenant_b: these members act for no app: {PREFIX}tenant_b have push_enqueuer as well; revoke it"))
    run("revoke push_enqueuer from $tenant_b")
    # With another name it is another role, as in a cluster into which the database was restored.
    run("alter role $tenant_a rename to $renamed")
    check("a role that was renamed acts for nothing", faults(),
        ["group: tenant_b", "renamed: acts for no app but those of roles it is a member of", "tenant_a: tenant_a: there is no such role"])
    run("alter role $renamed rename to $tenant_a")
    with psycopg.connect(OWNER, autocommit=True) as db:
        password = os.environ["LOGIN_PASSWORD"]
        db.execute(psycopg.sql.SQL("alter role {} password {}").format(psycopg.sql.Identifier(PREFIX + "tenant_a"), password))
    check("the last app revoked leaves it none", (owner("select message from push.revoke_app(%s, 'tenant_a')", PREFIX + "tenant_a"),
        enqueue_as("tenant_a", "tenant_a", "c6")), (f"granted to {PREFIX}tenant_a: no app", "42501"))
    with connect(login="tenant_a", autocommit=True) as db:
        check("and nothing to read", answer(db, "select push.call('shared')").split()[0], "P0002")
    bind("tenant_a", "tenant_a")


prepare()
decided()
both_ways()
counts()
escapes()
as_a_pool_does()
unbound()
binding()
run("revoke push_tenant from $tenant_a, $group", "drop schema deputies cascade", "drop role $group")
