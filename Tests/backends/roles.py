"""The rights of a login with each role: checked by running statements, and for everything else in the catalogue."""

import os
import re
from pathlib import Path

import psycopg
from psycopg.types.json import Jsonb

from harness import check, connect, owner

GROUPS = ("enqueuer", "ops", "keys", "gateway")
ROLES = (*GROUPS, "nobody")
# Roles that may read calls.
ALL = {"enqueuer", "ops", "gateway"}
# The service shows what operators see, and has their rights.
OPS = {"ops", "gateway"}
ENQUEUE = "select push.enqueue_call('{\"callId\": \"role\", \"from\": \"x\"}', " \
    "'[{\"userId\": \"u\", \"fcmToken\": \"role-token-0123456789\"}]')"

# Statement -> roles that may run it. Each is run as each role, in a transaction that is rolled back. Roles that may not get
# "permission denied" (42501); roles that may get no error.
STATEMENTS = {
    # Backends.
    ENQUEUE: {"enqueuer", "gateway"},
    "insert into push.outbox (app, kind, payload, recipients, ring_seconds) values ('default', 'incoming_call', '{\"callId\": \"role-2\", "
    "\"from\": \"x\"}', '[]', 30) returning id, call_id, state, deadline_at": {"enqueuer"},
    "insert into push.outbox (payload, recipients) values ('{\"callId\": \"role-2\", \"from\": \"x\"}', '[]') on conflict (call_id, app) "
    "do nothing": {"enqueuer"},
    "insert into push.outbox (payload, recipients, traceparent) values ('{\"callId\": \"role-2\", \"from\": \"x\"}', '[]', "
    "'00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01') returning traceparent": {"enqueuer"},
    "update push.outbox set traceparent = null where call_id = 'ringing'": set(),
    "copy push.outbox (app, payload, recipients) from stdin": {"enqueuer"},
    "update push.outbox set state = 'answered', answered_by = 'u' where call_id = 'ringing' returning state": {"enqueuer"},
    "select push.compare_call('ringing', '{}', '[]')": {"enqueuer", "gateway"},
    "select push.add_recipients('ringing', '[\"v\"]')": {"enqueuer", "gateway"},
    "select push.answer_call('ringing', 'u')": {"enqueuer", "gateway"},
    "select push.answer_call('ringing', 'u', device => 'role-token-0123456789')": {"enqueuer", "gateway"},
    "select push.decline_call('ringing', 'u', 'default', 'busy', 'role-token-0123456789')": {"enqueuer", "gateway"},
    "update push.outbox set declined = '{}' where call_id = 'ringing'": set(),
    "update push.outbox set answered_device = 'x' where call_id = 'ringing'": set(),
    "select declined, answered_device from push.outbox": set(),
    "select data from push.delivery": set(),
    "select push.end_call('ringing')": {"enqueuer", "gateway"},
    "select push.register_device('u', 'default', 'fcm', 'role-token-0123456789')": {"enqueuer", "gateway"},
    "select push.enable_device('default', 'fcm', 'role-token-0123456789', true)": {"enqueuer", "gateway"},
    "select push.drop_device('default', 'fcm', 'role-token-0123456789')": {"enqueuer", "gateway"},
    "select * from push.dead_tokens(now() - interval '1 hour')": {"enqueuer", "gateway"},
    "select push.report_ringing('ringing', 'u')": {"enqueuer", "gateway"},
    "select push.call('ringing')": ALL,
    "select * from push.timeline('ringing')": ALL,
    "select * from push.skipped_recipients(1)": ALL,
    "select * from push.enqueue_batch(array['{\"payload\": {\"callId\": \"role\", \"from\": \"x\"}, \"recipients\": []}']::jsonb[])":
        {"enqueuer", "gateway"},
    "select push.new_call_id()": {"enqueuer", "gateway"},
    "select push.find_calls('{ringing}', '{null}')": ALL,
    "select push.slot_of('x'), push.shard_of('x'), push.shards_of('x'), push.own_shard(), push.shard_map_number()": ALL,
    "select push.use_shard_map(1, array_fill(0, array[1024]), 0)": set(),
    "select * from push.shard_map": set(),
    "select * from push.shard_here": set(),
    "select id, app, kind, call_id, ring_seconds, state, created_at, deadline_at, answered_by, ended_at, end_reason, traceparent from "
    "push.outbox": ALL,
    # Never: tokens, payloads, and columns that they must not change.
    "select payload from push.outbox": set(),
    "select recipients from push.outbox": set(),
    "select * from push.outbox": set(),
    "copy push.outbox to stdout": set(),
    "insert into push.outbox (payload, recipients) values ('{\"callId\": \"role-2\", \"from\": \"x\"}', '[]') returning recipients": set(),
    "update push.outbox set payload = '{}' where call_id = 'ringing'": set(),
    "update push.outbox set voided = true where call_id = 'ringing'": set(),
    "update push.outbox set deadline_at = now() where call_id = 'ringing'": set(),
    "insert into push.outbox (id, payload, recipients) overriding system value values (1, '{}', '[]')": set(),
    "delete from push.outbox": set(),
    "truncate push.outbox": set(),
    "select token from push.delivery": set(),
    "delete from push.delivery": set(),
    "select token from push.devices": set(),
    "select token from push.token_invalidations": set(),
    "select token from push.quarantined_tokens": set(),
    "select token from push.receipt_batch": set(),
    "select token from push.provider_tokens": set(),
    "select hash from push.api_keys": set(),
    "select device from push.history": set(),
    "delete from push.history": set(),
    "update push.lane set paused = true": set(),
    "update push.gateways set alive = true": set(),
    "insert into push.audit (action, target) values ('x', 'y')": set(),
    "delete from push.audit": set(),
    "insert into push.audit (action, target, operator) values ('pause_lane', 'default/fcm', 'alice')": set(),
    "update push.audit set operator = 'alice'": set(),
    "select push.grant_roles()": set(),
    "select push.grant_app(session_user::text, 'default')": set(),
    "select push.revoke_app(session_user::text, 'default')": set(),
    "select push.own_apps()": set(),
    "select app from push.app_grant": set(),
    "insert into push.app_grant (role, app) values (session_user, 'default')": set(),
    "create table push.mine (id int)": set(),
    "alter table push.outbox disable trigger all": set(),
    "drop table push.history_default": set(),
    "create function push.answer_call(int) returns int language sql as 'select 1'": set(),
    "set role push_gateway; " + ENQUEUE: {"gateway"},
    "set session_replication_role = replica": set(),
    # Ops.
    **{f"select * from push.{view}": OPS for view in (
        "summary", "lanes", "stuck", "failures", "replicas", "health", "deliveries", "delivery_history", "dead_devices",
        "quarantined_devices", "registered_devices", "lane_status", "audit", "job", "app_grants", "quotas",
        "webhooks")},
    "select * from push.set_quota('default', note => 'x')": OPS,
    "select * from push.pause_webhooks('default', 'x')": OPS,
    "select * from push.resume_webhooks('default')": OPS,
    "select * from push.resend_webhooks('default', since => now() - interval '1 hour')": OPS,
    "select data from push.webhook_event": set(),
    "select host from push.webhook": set(),
    "update push.webhook set paused = true": set(),
    "delete from push.webhook_event": set(),
    "select push.use_quota('{default}', '{{1,1,1}}')": set(),
    "select push.configure_quota('default', '{1,1,1}', 'x')": set(),
    "insert into push.quota (app) values ('x')": set(),
    "update push.lanes set paused = true, note = 'x'": OPS,
    "update push.lanes set app = 'x'": set(),
    "select * from push.requeue('ringing')": OPS,
    "select * from push.void_call('ringing')": OPS,
    "select * from push.pause_lane('default', 'fcm')": OPS,
    "select * from push.resume_lane('default', 'fcm')": OPS,
    "select * from push.resume_lane('default', 'fcm', 'why')": OPS,
    "select * from push.minutes(now() - interval '5 minutes')": OPS,
    "select push.overview()": OPS,
    "select push.calls('ringing')": OPS,
    "select * from push.calls": OPS,
    "select * from push.resume_invalidation('default', 'fcm')": OPS,
    "select * from push.erase_user('u', 'default')": OPS,
    "select push.finish_erasures()": set(),
    "select push.continue_erasure(null, now())": set(),
    "select push.erase_from_call(null, 1)": set(),
    "select push.hand_over(null, 'u')": set(),
    "select push.erase_elsewhere(null)": set(),
    "select user_id from push.erasure": set(),
    # The column with which push.erase_user masks calls.
    "update push.outbox set erased_at = now() where call_id = 'ringing'": set(),
    # Keys of the HTTP API: neither operators nor the service can create them.
    "select * from push.create_api_key('default', 'x')": {"keys"},
    "select * from push.create_api_key('default', 'x', '{read}', null, '{10.0.0.0/8}')": {"keys"},
    "select * from push.revoke_api_key(1)": {"keys"},
    "select id, addresses, last_used_at, last_used_from from push.keys": {"keys", *OPS},
    "select app from push.apps": {"keys", *OPS},
    "update push.api_keys set expires_at = null": set(),
    "set role push_keys; select * from push.revoke_api_key(1)": {"keys"},
    "select push.ensure_partitions()": {"gateway"},
    "select push.oldest_ringing()": {"ops", "gateway"},
    # The service.
    "select push.register_gateway('x', '1')": {"gateway"},
    "select * from push.beat(1, true)": {"gateway"},
    "select push.confirm_reclaimed(1)": {"gateway"},
    "select push.free_claims()": set(),
    "update push.job set due_at = 'infinity'": set(),
    "select name from push.job for update": set(),
    "lock table push.job": set(),
    "lock table push.delivery": set(),
    "insert into push.follow_ups (outbox_id, why) values (1, 'ended')": set(),
    "delete from push.follow_ups": set(),
    "select push.follow('{}')": set(),
    "select push.cancel_rings('{1}')": set(),
    "select push.next_channels('{1}', 'failed')": set(),
    "select push.pushes_of('{1}')": set(),
    "select push.retire_gateway(1)": {"gateway"},
    "select push.register_app('role', 60, null, true, '{fcm}')": {"gateway"},
    "select push.register_lane('role', 'fcm')": {"gateway"},
    "select push.report_lanes(1, '{1}', '{1}', '{1}', '{1}', '{closed}', '{0}', '{1}')": {"gateway"},
    "select token, payload from push.claim(1, 1, '{1}', '{10}', '{-infinity}')": {"gateway"},
    "select push.put_aside('{1}', '{10}')": {"gateway"},
    "select push.forget(1, 1)": {"gateway"},
    "select push.forget_in(1, 1)": {"gateway"},
    "select * from push.reclaim(1, 2, '{1}', '{0}')": {"gateway"},
    "select * from push.claimed_by(1, 0)": {"gateway"},
    "select push.ended('{1}')": {"gateway"},
    "select push.sync(1)": {"gateway"},
    "select push.ended_for('{1}')": {"gateway"},
    "select push.follow_up(true), push.follow_up()": {"gateway"},
    "select push.disown(1, '{1}', '{0}', '{1}')": {"gateway"},
    "select push.free_rows('{}', '{1}')": set(),
    "select push.take_job(1, true)": {"gateway"},
    "select push.run_job(name) from "
    "unnest('{promote,miss,expire,expire_all,escalate,follow_up,follow_up_again,free,tally,prune,erase,ensure_partitions,drop_partitions}'"
    "::text[]) name": {"gateway"},
    "select push.claim(1, 3, '{1}', '{10}', '{-infinity}'), push.settle(1, null, array[id], '{0}', '{1}', '{1}', '{4}', '{404}', "
    "'{UNREGISTERED}', '{null}', '{ringing}', '{now}', '{now}') from (select 1::bigint as id) o": {"gateway"},
    "select push.park(1, '{1}', '{0}', '{1}', '{1}', '{1000}', '{x}')": {"gateway"},
    "select push.release(1, '{1}', '{0}', '{1}')": {"gateway"},
    "select push.promote(), push.expire(), push.miss(), push.prune()": {"gateway"},
    "select push.bypass()": set(),
    "select push.drop_partitions(1)": {"gateway"},
    "select count(*) from push.take_tally(), push.observe()": {"gateway"},
    "select push.lock_table_used()": {"gateway"},
    "select * from push.settled(1, '{1}', '{0}')": {"gateway"},
    "select push.invalidate_tokens('{1}', '{role-token-0123456789}', '{null}', '{x}')": {"gateway"},
    "select push.hold_invalidation(1::smallint, '1 minute', 'x')": OPS,
    "select push.correct_environment('{1}', '{x}', '{1}')": {"gateway"},
    "select * from push.offer_provider_token('apns', 'x', 'y', now(), now() + interval '1 hour', '10 minutes')": {"gateway"},
    "select * from push.current_provider_token('apns', 'x')": {"gateway"},
    "select push.claim_receipts('default', 1, 1000), push.settle_receipts('default', '{x}', '{null}'), push.postpone_receipts('default', "
    "'{x}', 1), push.give_up_receipts('default')": {"gateway"},
    "select * from push.operate_lane('alice', 'default', 'fcm', true, 'why')": {"gateway"},
    "select push.operate_call('alice', 'default', 'ringing', 'requeue', 'why')": {"gateway"},
    "select * from push.enqueue_calls('[]')": {"gateway"},
    "select * from push.compare_recipients('ringing', 'default', '{u}')": {"gateway"},
    "select * from push.dead_among('default', '{fcm}', '{x}', '{now}')": {"gateway"},
    "select push.set_webhooks('{default}', '{hook.example}', '{other}', '{null}')": {"gateway"},
    "select push.claim_webhooks('{default}', '{other}', '{1}', '{1000}'), "
    "push.settle_webhooks('{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}')": {"gateway"},
    "select push.trim_webhooks()": set(),
    "select * from push.look_up_api_key(1)": {"gateway"},
    "select * from push.good_api_keys(10)": {"gateway"},
    "select push.note_api_key_uses('{1}', '{0}', '{::1}')": {"gateway"},
    # Every role that may connect.
    "listen push_outbox; listen push_control; select pg_try_advisory_lock(7781, 2), pg_advisory_unlock(7781, 2)": {*ROLES},
}

# Functions that a role may execute, in addition to those of the statements above.
ALSO = {"enqueuer": set(), **dict.fromkeys(OPS, {"check_health", "lane_conditions", "count_owed", "quota_uses", "epoch_ms", "length_ms",
                                                    "entry_user", "finite"})}
# Relations, and the rights to at least one of their columns.
OPS_RELATIONS = {"outbox": "SELECT", "lanes": "SELECT UPDATE", **dict.fromkeys((
    "summary", "stuck", "failures", "replicas", "health", "deliveries", "delivery_history", "dead_devices",
    "quarantined_devices", "registered_devices", "keys", "apps", "lane_status", "audit", "job", "app_grants",
    "quotas", "webhooks", "calls"), "SELECT")}
RELATIONS = {
    "enqueuer": {"outbox": "SELECT INSERT UPDATE"},
    "ops": OPS_RELATIONS,
    "keys": {"keys": "SELECT", "apps": "SELECT"},
    "gateway": {**OPS_RELATIONS, "schema_migration": "SELECT", "schema_functions": "SELECT", "schema_faults": "SELECT",
                "missing_rights": "SELECT"},
    "nobody": {},
}


def prepare():
    """Creates a call that rings, an old history partition, an API key, and the tables of push-gateway migrate."""
    owner("select push.register_lane('default', 'fcm')")
    owner("select push.register_gateway('one', '1')")
    owner("insert into push.outbox (payload, recipients) values ('{\"callId\": \"ringing\", \"from\": \"x\"}', "
          "'[{\"userId\": \"u\", \"fcmToken\": \"role-token-0123456789\"}]') returning id")
    owner("insert into push.audit (action, target) values ('x', 'y') returning id")
    owner("select id from push.create_api_key('default', 'x')")
    owner("select push.set_webhooks('{default}', '{hook.example}', '{d}', '{null}')")
    psycopg.connect(os.environ["OWNER_URL"], autocommit=True).execute(
        "create table push.schema_migration (version int primary key);"
        "create table push.schema_functions (topic text primary key); select push.grant_roles();"
        "create table push.history_20200101 partition of push.history for values from ('2020-01-01') to ('2020-01-02')")


def run(db, statement):
    """Returns yes, no, or an unexpected error."""
    try:
        with db.transaction(force_rollback=True):
            if statement.startswith("copy"):
                with db.cursor() as cursor, cursor.copy(statement) as copy:
                    if "stdout" in statement:
                        list(copy)
                    else:
                        copy.write_row(("default", '{"callId": "role-3", "from": "x"}', "[]"))
            else:
                db.execute(statement)
        return "yes"
    except psycopg.errors.InsufficientPrivilege:
        return "no"
    except psycopg.Error as error:
        return f"{error.sqlstate} {error.diag.message_primary}"


def by_running():
    for role in ROLES:
        with connect(login=role, autocommit=True) as db:
            for statement, allowed in STATEMENTS.items():
                may = role in allowed
                check(f"{role} {'may' if may else 'may not'}: {statement}", run(db, statement), "yes" if may else "no")


def by_catalogue():
    """Roles have no rights except those in the tables above."""
    for role in ROLES:
        login = os.environ["LOGIN_PREFIX"] + role
        functions = set(owner("""select array_agg(distinct proname::text) from pg_proc where pronamespace = 'push'::regnamespace
            and has_function_privilege(%s, oid, 'execute') and has_schema_privilege(%s, 'push', 'usage')""", login, login) or [])
        listed = {f for s, allowed in STATEMENTS.items() if role in allowed for f in re.findall(r"push\.(\w+)\s*\(", s)} - {"outbox"}
        check(f"{role} may execute the listed functions, and no others", sorted(functions ^ (listed | ALSO.get(role, set()))), [])
        relations = owner("""select jsonb_object_agg(relname, can) from (
            select c.relname, string_agg(p, ' ' order by n) as can
            from pg_class c cross join unnest('{SELECT,INSERT,UPDATE,REFERENCES}'::text[]) with ordinality u(p, n)
            where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and has_any_column_privilege(%s, c.oid, p)
              and has_schema_privilege(%s, 'push', 'usage')
            group by c.relname) x""", login, login)
        check(f"{role} may touch these relations, and no others", relations or {}, RELATIONS[role])
        check(f"{role} may delete, truncate or have triggers nowhere",
            owner("""select count(*) from pg_class c, unnest('{DELETE,TRUNCATE,TRIGGER}'::text[]) p
            where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p', 'v', 'm') and has_table_privilege(%s, c.oid, p)""",
            login), 0)
        secrets = owner("""select string_agg(c.relname || '.' || a.attname, ' ') from pg_attribute a join pg_class c on c.oid = a.attrelid
            where c.relnamespace = 'push'::regnamespace and a.attname in ('token', 'payload', 'recipients', 'hash') and a.attnum > 0
              and c.relkind in ('r', 'p', 'v', 'm') and has_column_privilege(%s, c.oid, a.attnum, 'select')""", login)
        check(f"{role} may read no token, payload or hash", secrets, None)
        check(f"{role} may make nothing in the schema", owner("select has_schema_privilege(%s, 'push', 'create')", login), False)
    check("every function whose owner's rights count has a fixed search_path", owner("""select string_agg(proname, ' ') from pg_proc
        where pronamespace = 'push'::regnamespace and prosecdef and not 'search_path=push, pg_temp' = any (proconfig)"""), None)


def of_the_service():
    """The service's role can plan every statement of the program and execute its functions."""
    sources = Path(os.environ["ROOT"]) / "Sources"
    files = [f for f in [*sources.glob("Queue/**/*.swift"), *sources.glob("Gateway/**/*.swift")]
             if not {"Commands", "Migrations"} & set(f.parts)]
    found = 0
    with connect(login="gateway", autocommit=True) as db:
        for file in sorted(files):
            for name, block, line in re.findall(r'PostgresStatement\(\s*name: "(\w+)",\s*sql:\s*(?:"""\n(.*?)"""|"(.*?)"\s*\))',
                    file.read_text(), re.S):
                found += 1
                statement = " ".join((block or line).split())
                count = max([0, *map(int, re.findall(r"\$(\d+)", statement))])
                try:
                    if statement.startswith("listen"):
                        db.execute(statement)
                    else:
                        db.execute(f"prepare s{found} as {statement}")
                        # Without running it, the executor checks the rights to its functions.
                        db.execute(f"explain execute s{found}" + (f" ({', '.join(['null'] * count)})" if count else ""))
                    got = "yes"
                except psycopg.Error as error:
                    got = f"{error.sqlstate} {error.diag.message_primary}"
                check(f"the service may: {name}", got, "yes")
    check("the service's statements were found", found >= 25, True)


def of_settings():
    """A login whose sessions read literals and lists in another way than ours."""
    login, settings = os.environ["LOGIN_PREFIX"] + "enqueuer", ("standard_conforming_strings", "array_nulls", "row_security")
    browser = r'{"endpoint": "https:\/\/fcm.googleapis.com\/x", "keys": {"auth": "a", "p256dh": "b"}}'
    with psycopg.connect(os.environ["OWNER_URL"], autocommit=True) as admin:
        for setting in settings:
            admin.execute(f"alter role {login} set {setting} = off")
        with connect(autocommit=True) as db:
            call = Jsonb({"callId": "set", "from": "x", "note": "x" * 1000})
            phones = Jsonb([{"userId": "u", "fcmToken": "role-token-0123456789"}, {"userId": "v", "webPushSubscription": browser}])
            check("a login with other settings enqueues",
                  db.execute("select deliveries from push.enqueue_call(%s, %s)", (call, phones)).fetchone(), (1,))
            check("and answers", db.execute("select push.answer_call('set', 'u')").fetchone(), (True,))
        admin.execute(f"alter role {login} reset all")


prepare()
by_running()
of_settings()
by_catalogue()
of_the_service()
