"""What is known at the end: the simulators' log, and what Postgres says of calls and deliveries. Times: seconds since 1970."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping

from Tests.soak.calls import APP, Call, Device
from Tests.soak.wire import Connection

VISIBLE = ("missed_call", "notification")
"""Kinds of deliveries that people see."""


@dataclasses.dataclass(eq=False)
class Push:
    """One push that a provider accepted."""

    at: float
    call: Call
    device: Device
    provider: str
    kind: str
    """As push.delivery_history calls it: invite, cancel, missed_call, notification."""
    gateway: int
    """Which one sent it, by its templates."""


@dataclasses.dataclass(frozen=True)
class CallRow:
    """A row of push.outbox."""

    outbox_id: int
    call_id: str
    state: str
    end_reason: str | None
    created_at: float
    deadline_at: float
    ended_at: float | None


@dataclasses.dataclass(frozen=True)
class Delivery:
    """A row of push.delivery_history, or of push.deliveries."""

    outbox_id: int
    n: int
    kind: str
    provider: str
    user_id: str
    outcome: str
    """Of a row of push.deliveries: its state."""
    reason: str | None
    attempts: int
    deadline_at: float
    sent_at: float | None
    finished_at: float | None
    """None in push.deliveries."""
    gateway: int | None
    """push.gateways.id."""
    is_hedged: bool = False
    """A try of it was sent over two connections."""
    is_handed_on: bool = False
    """A try of it got no answer in time, so that another gateway sent it, too (ADR 60)."""


@dataclasses.dataclass
class Evidence:
    calls: list[Call]
    pushes: list[Push]
    rows: dict[str, CallRow]
    """By call id."""
    history: list[Delivery]
    owed: list[Delivery]
    """Rows of push.deliveries when the wait was over."""
    left: list[Delivery]
    """Rows of push.deliveries when the gateways had stopped, as old as `history`."""
    overdue: dict[tuple[str, int], str]
    """Rows seen in push.deliveries long after their deadline, while the soak ran: (call id, n) and what was seen."""


def read_pushes(log: pathlib.Path, by_token: Mapping[str, tuple[Call, Device]]) -> tuple[list[Push], list[str]]:
    """The accepted pushes in order, and lines that cannot be understood."""
    pushes: list[Push] = []
    strange: list[str] = []
    with log.open() as lines:
        for line in lines:
            entry = json.loads(line)
            payload = entry["payload"]
            mark = payload.get("data", {}) if entry["provider"] == "expo" else payload
            found = by_token.get(entry["token"])
            if found is None or "soakKind" not in mark or mark.get("callId") != found[0].call_id or "violation" in entry:
                strange.append(line.strip())
                continue
            call, device = found
            kind = mark["soakKind"] if call.rings else "notification"
            pushes.append(Push(entry["at"] / 1000, call, device, entry["provider"], kind, int(mark["soakGateway"])))
    pushes.sort(key=lambda push: push.at)
    return pushes, strange


OUTBOX = """
select id, call_id, state, end_reason, extract(epoch from created_at), extract(epoch from deadline_at),
  extract(epoch from ended_at)
from push.outbox where app = $1
"""
HISTORY = """
select outbox_id, n, kind, provider, user_id, outcome, reason, attempts, extract(epoch from deadline_at),
  extract(epoch from sent_at), extract(epoch from finished_at), gateway,
  reason is not distinct from 'Hedged' or coalesce(failures @? '$[*].hedged', false),
  coalesce(failures @? '$[*].reason ? (@ == "TimedOut")', false)
from push.delivery_history where app = $1
"""
OWED = """
select outbox_id, n, kind, provider, user_id, state, last_reason, attempt, extract(epoch from deadline_at), null, null,
  gateway, coalesce(failures @? '$[*].hedged', false), coalesce(failures @? '$[*].reason ? (@ == "TimedOut")', false)
from push.deliveries where app = $1
"""
OVERDUE = """
select coalesce(call_id, 'outbox_id ' || outbox_id), n, kind, provider, state, attempt, gateway,
  round(extract(epoch from clock_timestamp() - deadline_at))
from push.deliveries where deadline_at < clock_timestamp() - make_interval(secs => $1::float8)
"""
WAITING = """
select (select count(*) from push.deliveries) + (select count(*) from push.follow_ups where tries < 4),
  (select count(*) from push.outbox where state = 'ringing')
"""


async def read_calls(connection: Connection) -> dict[str, CallRow]:
    rows = await connection.query(OUTBOX, APP, timeout=60)
    calls = [
        CallRow(int(row[0] or 0), row[1] or "", row[2] or "", row[3], float(row[4] or 0), float(row[5] or 0), _time(row[6]))
        for row in rows]
    return {call.call_id: call for call in calls}


async def read_deliveries(connection: Connection, statement: str) -> list[Delivery]:
    """`statement`: HISTORY or OWED."""
    return [
        Delivery(
            int(row[0] or 0), int(row[1] or 0), row[2] or "", row[3] or "", row[4] or "", row[5] or "", row[6],
            int(row[7] or 0), float(row[8] or 0), _time(row[9]), _time(row[10]), int(row[11]) if row[11] else None,
            row[12] == "t", row[13] == "t")
        for row in await connection.query(statement, APP, timeout=60)]


async def read_overdue(connection: Connection, seconds: float) -> dict[tuple[str, int], str]:
    rows = await connection.query(OVERDUE, seconds)
    return {
        (row[0] or "", int(row[1] or 0)):
            f"{row[2]} over {row[3]} was {row[4]} (attempt {row[5]}, gateway {row[6]}) {row[7]} s after its deadline"
        for row in rows}


def _time(text: str | None) -> float | None:
    return None if text is None else float(text)
