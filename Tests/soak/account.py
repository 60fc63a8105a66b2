"""The account: what was promised, compared with what the providers and Postgres saw. Without I/O and clock.

Tests/soak/README.md says what each figure means.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from Tests.soak.calls import ANSWER_SECONDS, SLOW_SECONDS, Call
from Tests.soak.evidence import VISIBLE, CallRow, Delivery, Evidence, Push
from Tests.soak.faults import Fault

LOST, LATE, STUCK, SEEN_TWICE, SETTLED = "lost", "late", "stuck", "visible repeats", "settled and repeated"
VERDICTS = (LOST, LATE, STUCK, SEEN_TWICE, SETTLED)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Tolerances, in seconds."""

    deadline: float = 0.25
    """A push that was handed to the socket in time may reach the simulator this much later."""
    end: float = 2.0
    """An invite may leave this long after its call's end was committed: until gateways have heard of it."""
    end_unheard: float = 3.0
    """The same while a fault kept the gateway from hearing of it, and its own lease had not lapsed."""
    settle: float = 2.0
    """An answer that a gateway has read is on Postgres's disk this much later, if nothing is wrong."""
    unwritten: float = 15.0
    """What could not be written while Postgres was away is written at most this much after it is back."""
    failover: float = 10.0
    """An asynchronous fail-over may lose commits that are younger than this; 0: no fail-over does."""
    claims: float = 10.0
    """Any fail-over may lose claims and settlements that are younger than this: gateways wait for no standby."""
    clock: float = 0.05
    """Between a process's reading of the clock and another's."""


@dataclasses.dataclass(frozen=True)
class Violation:
    verdict: str
    call_id: str
    text: str
    timeline: tuple[str, ...]


@dataclasses.dataclass
class Account:
    violations: list[Violation]
    figures: collections.Counter[str]
    """What is no violation, by its name."""
    outcomes: collections.Counter[str]

    def count(self, verdict: str) -> int:
        return sum(violation.verdict == verdict for violation in self.violations)

    @property
    def line(self) -> str:
        return ", ".join(f"{verdict} {self.count(verdict)}" for verdict in VERDICTS)


Value = TypeVar("Value")
GroupKey = TypeVar("GroupKey")
Key = tuple[str, str, str, str]
"""Call id, user id, provider, kind: one delivery, as both sides can name it."""


def settle_account(evidence: Evidence, faults: list[Fault], limits: Limits = Limits()) -> Account:
    return _Accountant(evidence, faults, limits).settle()


class _Accountant:
    def __init__(self, evidence: Evidence, faults: list[Fault], limits: Limits) -> None:
        self._evidence = evidence
        self._limits = limits
        self._faults = faults
        self._failovers = [fault for fault in faults if fault.kind == "promote"]
        self._pushes: dict[Key, list[Push]] = _grouped(
            evidence.pushes, lambda push: (push.call.call_id, push.device.user_id, push.provider, push.kind))
        self._pushes_of: dict[str, list[Push]] = _grouped(evidence.pushes, lambda push: push.call.call_id)
        call_ids = {row.outbox_id: row.call_id for row in evidence.rows.values()}

        def key(delivery: Delivery) -> Key:
            return call_ids.get(delivery.outbox_id, ""), delivery.user_id, delivery.provider, delivery.kind
        self._history: dict[Key, list[Delivery]] = _grouped(evidence.history, key)
        self._owed: dict[Key, list[Delivery]] = _grouped(evidence.owed, key)
        self._history_of: dict[int, list[Delivery]] = _grouped(evidence.history, lambda delivery: delivery.outbox_id)
        self._owed_of: dict[int, list[Delivery]] = _grouped(evidence.owed, lambda delivery: delivery.outbox_id)
        self._left_of: dict[int, list[Delivery]] = _grouped(evidence.left, lambda delivery: delivery.outbox_id)
        self._violations: list[Violation] = []
        self._figures: collections.Counter[str] = collections.Counter()

    def settle(self) -> Account:
        excluded: set[str] = set()
        for call in self._evidence.calls:
            if not call.committed_at:
                excluded.add(call.call_id)
                self._figures["calls never committed"] += 1
                continue
            self._figures["calls committed"] += 1
            row = self._evidence.rows.get(call.call_id)
            if row is not None:
                self._check_deliveries(call, row)
                self._check_end(call, row)
                self._count_silence(call)
            elif self._was_failed_over(call.committed_at):
                excluded.add(call.call_id)
                self._figures["calls lost by the asynchronous fail-over"] += 1
            else:
                excluded.add(call.call_id)
                self._blame(LOST, call, "the committed call is not in push.outbox")
        for key, pushes in self._pushes.items():
            self._figures["pushes accepted"] += len(pushes)
            if key[0] not in excluded:
                self._check_time(pushes)
                self._check_repeats(key, pushes)
        calls = {call.call_id: call for call in self._evidence.calls}
        for (call_id, n), text in self._evidence.overdue.items():
            if (call := calls.get(call_id)) is not None:
                self._blame(STUCK, call, f"n {n}: {text}, seen while the soak ran")
        outcomes = collections.Counter(
            f"{row.kind} {row.outcome}" + (f" {row.reason}" if row.outcome != "delivered" and row.reason else "")
            for row in self._evidence.history)
        self._figures["deliveries settled"] = len(self._evidence.history)
        return Account(self._violations, self._figures, outcomes)

    # --- Nothing is lost, nothing is stuck ---

    def _check_deliveries(self, call: Call, row: CallRow) -> None:
        finished = collections.Counter(delivery.n for delivery in self._history_of.get(row.outbox_id, ()))
        owed = {delivery.n: delivery for delivery in self._owed_of.get(row.outbox_id, ())}
        left = {delivery.n for delivery in self._left_of.get(row.outbox_id, ())}
        for n in range(call.deliveries):
            if not finished[n] and n not in left:
                self._blame(LOST, call, f"n {n} is neither owed nor finished")
        for n, count in finished.items():
            if count > 1:
                self._blame(SETTLED, call, f"n {n} has {count} rows of history")
            if n in left:
                self._blame(SETTLED, call, f"n {n} is finished, and owed")
        for n, delivery in owed.items():
            if (call.call_id, n) not in self._evidence.overdue:  # told already
                self._blame(STUCK, call, f"n {n} is owed still: {_told(delivery)}")
        for delivery in self._history_of.get(row.outbox_id, ()):
            key = (call.call_id, delivery.user_id, delivery.provider, delivery.kind)
            if delivery.outcome.startswith("delivered") and key not in self._pushes:
                self._blame(LOST, call, f"n {delivery.n} is said to be delivered, and no provider accepted it")

    def _check_end(self, call: Call, row: CallRow) -> None:
        if not call.rings:
            return
        if row.state == "ringing":
            self._blame(STUCK, call, "the call rings still in push.outbox")
        if call.ended_at and row.state not in ("answered", "ended"):
            if self._was_failed_over(call.ended_at):
                self._figures["ends lost by the asynchronous fail-over"] += 1
            else:
                self._blame(LOST, call, f"its end was committed, and it is {row.state}")
        if row.state == "missed" or row.state == "ended" and row.end_reason not in ("declined", "busy"):
            for device in call.devices:
                key = (call.call_id, device.user_id, device.shown_over, "missed_call")
                if device.is_reachable and key not in self._history and key not in self._owed:
                    self._blame(LOST, call, f"{device.user_id} has no missed call")

    def _count_silence(self, call: Call) -> None:
        """No promise, but what a user would notice."""
        if call.rings and not call.ended_at and any(device.behaviour != "dead" for device in call.devices) \
                and not any(push.kind == "invite" for push in self._pushes_of.get(call.call_id, ())):
            self._figures["calls that rang nowhere until their ring window was over"] += 1

    # --- Nothing is late ---

    def _check_time(self, pushes: list[Push]) -> None:
        call = pushes[0].call
        row = self._evidence.rows[call.call_id]
        if pushes[0].kind not in ("invite", "notification"):
            return
        for push in pushes:
            late = push.at - row.deadline_at
            if late > self._limits.deadline and row.created_at < push.at:
                self._blame(LATE, call, f"{_named(push)} was accepted {late:.2f} s after its deadline")
            elif push.kind == "invite" and (end := self._end(call, row)) is not None:
                allowed = self._limits.end
                if any(fault.hits(push.gateway) and fault.at < push.at and fault.until > end - 1 for fault in self._faults):
                    allowed = self._limits.end_unheard
                if push.at - end > allowed:
                    self._blame(LATE, call, f"{_named(push)} was accepted {push.at - end:.2f} s after the call's end")

    def _end(self, call: Call, row: CallRow) -> float | None:
        """When the end that holds was known to be committed; None where the deadline says all."""
        if row.state not in ("answered", "ended") or row.ended_at is None:
            return None
        # The first end may have been lost by a fail-over, or its answer by a crash.
        return max(call.ended_at, row.ended_at)

    # --- Nothing is repeated without need ---

    def _check_repeats(self, key: Key, pushes: list[Push]) -> None:
        call = pushes[0].call
        row = self._evidence.rows[call.call_id]
        settled = self._history.get(key, [])
        finished_at = min((delivery.finished_at or 0 for delivery in settled), default=None)
        is_shown_twice = pushes[0].kind in VISIBLE and len(pushes) > 1
        # The other request of a hedged invite may be accepted at any time.
        is_hedged = pushes[0].kind == "invite" and any(delivery.is_hedged for delivery in settled)
        if finished_at is not None and pushes[-1].at > finished_at + self._limits.clock \
                and not is_shown_twice and not is_hedged:
            self._blame(SETTLED, call, f"{_named(pushes[-1])} was accepted {pushes[-1].at - finished_at:.2f} s after it was "
                                       f"settled as {settled[0].outcome}")
            return
        for first, second in itertools.pairwise(pushes):
            if self._was_lost(first, row):
                self._figures["repeats of what the fail-over lost"] += 1
            elif first.kind in VISIBLE:
                self._blame(SEEN_TWICE, call, f"{_named(second)} was accepted {second.at - first.at:.2f} s after the same by "
                                              f"gateway {first.gateway}")
            elif is_hedged or self._is_hedge(first, second):
                self._figures["invite repeats: hedged"] += 1
            elif any(delivery.is_handed_on for delivery in settled):
                self._figures[f"{first.kind} repeats: handed on without an answer"] += 1
            elif first.device.behaviour == "lossy":
                self._figures[f"{first.kind} repeats: the answer was lost"] += 1
            elif (fault := self._excuse(first, second)) is not None:
                self._figures[f"{first.kind} repeats: {fault.text_of_cause}"] += 1
            else:
                self._blame(SETTLED, call, f"{_named(second)} was accepted {second.at - first.at:.2f} s after the same, which "
                                           f"gateway {first.gateway} sent, had been answered")

    def _is_hedge(self, first: Push, second: Push) -> bool:
        """Whether an invite was sent once more before the first was answered: history does not tell where somebody else
        settled it, after a crash or the call's end."""
        return first.kind == "invite" and first.gateway == second.gateway and first.device.behaviour == "slow" \
            and second.at < first.at + SLOW_SECONDS

    def _excuse(self, first: Push, second: Push) -> Fault | None:
        """The fault because of which nobody could know that the first push was answered, or because of which Postgres had
        forgotten who sends it: a crash undoes a claim that was just made, until what became of it is written."""
        slow = first.device.behaviour == "slow" or first.provider == "expo"  # a batch waits for its slowest
        until = first.at + (SLOW_SECONDS if slow else ANSWER_SECONDS) + self._limits.settle
        # While Postgres is away, only the gateway knows.
        for fault in self._faults:
            if fault.at > until:
                break
            if fault.until >= first.at and fault.hits(first.gateway):
                until = max(until, fault.until + self._limits.unwritten)
        for fault in self._faults:
            if fault.at >= min(until, second.at):
                break
            # The push may be the second try of what was claimed before the fault.
            if fault.until + 3 > first.at and (fault.loses_commits or fault.cuts_off and first.gateway in fault.gateways):
                return fault
        return None

    # --- Fail-overs ---

    def _was_failed_over(self, at: float) -> bool:
        """Whether a fail-over came so soon after a commit of a backend, or was under way, that it may have lost it."""
        return self._limits.failover > 0 and self._may_be_lost(at, self._limits.failover)

    def _may_be_lost(self, at: float, limit: float) -> bool:
        return any(fault.at - limit < at < fault.until + self._limits.clock for fault in self._failovers)

    def _was_lost(self, push: Push, row: CallRow) -> bool:
        """Whether a fail-over lost the claim of a push that people see, or what was sent, so that it was made again."""
        if push.kind in VISIBLE and self._limits.claims > 0 and self._may_be_lost(push.at, self._limits.claims):
            return True
        made_at = row.ended_at if push.kind in ("missed_call", "cancel") else row.created_at
        return self._limits.failover > 0 and made_at is not None and push.at < made_at and any(
            push.at - self._limits.failover < fault.at < made_at for fault in self._failovers)

    # --- Explaining ---

    def _blame(self, verdict: str, call: Call, text: str) -> None:
        self._violations.append(Violation(verdict, call.call_id, text, tuple(self._timeline(call))))

    def _timeline(self, call: Call) -> list[str]:
        """All that is known of a call, in order, with the faults from its beginning to its end."""
        events: list[tuple[float, str]] = []
        if call.committed_at:
            devices = ", ".join(f"{device.provider} {device.behaviour}" for device in call.devices)
            events.append((call.committed_at, f"backend: {call.kind} committed, {call.deliveries} deliveries ({devices})"))
        if call.ended_at:
            events.append((call.ended_at, f"backend: end committed ({call.end})"))
        row = self._evidence.rows.get(call.call_id)
        if row is not None:
            events.append((row.deadline_at, "deadline"))
            if call.rings and row.ended_at is not None:
                events.append((row.ended_at, f"Postgres: the call is {row.state} ({row.end_reason})"))
            for delivery in self._history_of.get(row.outbox_id, ()):
                events.append((delivery.finished_at or 0, f"Postgres: settled n {delivery.n}: {_told(delivery)}"))
            for delivery in self._owed_of.get(row.outbox_id, ()):
                events.append((float("inf"), f"Postgres: owed at the end n {delivery.n}: {_told(delivery)}"))
        for push in self._pushes_of.get(call.call_id, ()):
            events.append((push.at, f"provider: accepted {_named(push)} from gateway {push.gateway}"))
        begin = min((at for at, _ in events), default=0.0) - 5
        end = max((at for at, _ in events if at < float("inf")), default=0.0)
        for fault in self._faults:
            if fault.at < end and fault.until > begin:
                events.append((fault.at, f"fault: {fault.text()}"))
        return [f"{_clock(at)}  {text}" for at, text in sorted(events)]


def _grouped(values: Iterable[Value], key: Callable[[Value], GroupKey]) -> dict[GroupKey, list[Value]]:
    groups: dict[GroupKey, list[Value]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


def _named(push: Push) -> str:
    return f"{push.kind} for {push.device.user_id} over {push.provider} ({push.device.behaviour})"


def _told(delivery: Delivery) -> str:
    reason = f" {delivery.reason}" if delivery.reason else ""
    return (f"{delivery.kind} for {delivery.user_id} over {delivery.provider}, {delivery.outcome}{reason}, "
            f"{delivery.attempts} attempts, by push.gateways.id {delivery.gateway}")


def _clock(at: float) -> str:
    if at == float("inf"):
        return "at the end  "
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at % 1 * 1000):03d}"
