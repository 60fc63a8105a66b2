"""Statements of backends that began before a migration and end after it: their functions continue with the former bodies.

The migration is held while it has all its locks, until the statements wait for these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from Tests.soak.wire import Connection, ConnectionLost, PostgresError

HOLD = "alter function push.recipient_locale(jsonb) cost 101"
"""Of a function that the migration replaces after it has locked all tables. It waits until this is rolled back."""
CALL = """
select push.enqueue_call('{{"callId": "{0}", "from": "doorman", "fromName": "Portaria", "apartmentNumber": "1"}}',
  '["begun-1", "begun-2"]', app => '{1}')
"""
TOKEN = "begun-token-0123456789abcdef0123456789"
STATEMENTS = {
    "decline": ("select push.decline_call('{0}', 'begun-1', app => '{1}')", "ringing"),
    "last decline": ("select push.decline_call('{0}', 'begun-2', app => '{1}', device => '{2}')", "ended"),
    "answer": ("select push.answer_call('{0}', app => '{1}', device => '{2}')", "answered"),
    "end": ("select push.end_call('{0}', app => '{1}')", "ended"),
    "update": ("update push.outbox set state = 'missed' where call_id = '{0}'", "missed"),
    "enqueue": (CALL, "ringing"),
    "register": ("select push.register_device('{0}', '{1}', 'fcm', '{2}-{0}')", None),
    "drop": ("select push.drop_device('{1}', 'fcm', '{2}')", None),
}
"""What a backend does: the statement, and the state of the call afterwards."""
LEVELS = ("read committed", "repeatable read")
IS_HELD = """
select count(*) from pg_locks l join pg_stat_activity a using (pid)
where not l.granted and l.locktype = 'transactionid' and a.application_name = 'push-gateway migrate'
"""
WAITING = "select count(distinct l.pid) from pg_locks l where not l.granted and l.pid = any ($1::int[])"
TRIES = 20
"""A migration waits only half a second, and a busy machine may need longer to begin the statements."""


async def check(port: int, app: str, migrate: Callable[[], Awaitable[None]]) -> list[str]:
    """Migrates, and returns what went wrong."""
    watch = await Connection.open(port)
    holder = await Connection.open(port)
    await holder.query("begin")
    await holder.query(HOLD)
    migration = asyncio.ensure_future(migrate())
    try:
        for number in range(TRIES):
            faults = await _try(watch, holder, migration, app, number)
            if faults is not None:
                return faults
        return ["the statements never waited for the migration"]
    finally:
        holder.close()
        await migration
        await watch.query("delete from push.devices where user_id like 'begun-%'")
        await watch.query("delete from push.outbox where call_id like 'begun-%'")
        watch.close()


async def _try(watch: Connection, holder: Connection, migration: asyncio.Future[None], app: str, number: int) -> list[str] | None:
    """Begins all statements during one wait of the migration. None if it stopped waiting before they did."""
    cases = {f"begun-{number}-{name}-{level}".replace(" ", "-"): (name, level) for name in STATEMENTS for level in LEVELS}
    sessions = {call: await Connection.open(watch.port) for call in cases}
    pids = []
    for call, (name, level) in cases.items():
        if name not in ("enqueue", "register", "drop"):
            await watch.query(CALL.format(call, app))
        if name == "last decline":
            await watch.query(f"select push.decline_call('{call}', 'begun-1', app => '{app}')")
        await sessions[call].query(f"set default_transaction_isolation = '{level}'")
        pids.append((await sessions[call].query("select pg_backend_pid()"))[0][0] or "")
    while await _count(watch, IS_HELD) == 0:
        if migration.done():
            return ["the migration ended before the statements began"]
        await asyncio.sleep(0.002)
    tasks = [asyncio.ensure_future(_refusal(session, STATEMENTS[cases[call][0]][0].format(call, app, TOKEN)))
             for call, session in sessions.items()]
    while (waiting := await _count(watch, WAITING, "{" + ",".join(pids) + "}")) < len(tasks) and await _count(watch, IS_HELD):
        pass
    if waiting == len(tasks):
        await holder.query("rollback")
    faults = [f"{name} ({level}): {refusal}" for (name, level), refusal in zip(cases.values(), await asyncio.gather(*tasks)) if refusal]
    for session in sessions.values():
        session.close()
    if waiting < len(tasks):
        return None
    await migration
    states = dict(await watch.query("select call_id, state from push.outbox where call_id like 'begun-%'"))
    faults += [f"{name} ({level}): the call is {states.get(call)}" for call, (name, level) in cases.items()
               if states.get(call) != STATEMENTS[name][1]]
    return faults


async def _count(connection: Connection, statement: str, *parameters: object) -> int:
    return int((await connection.query(statement, *parameters))[0][0] or 0)


async def _refusal(session: Connection, statement: str) -> str | None:
    try:
        await session.query(statement, timeout=60)
    except (PostgresError, ConnectionLost) as error:
        return str(error)
    return None
