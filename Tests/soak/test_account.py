"""The account's rules, each with what it must find and what it must let pass.

    scripts/soak.sh --self-test
"""

from __future__ import annotations

import dataclasses
import unittest

from Tests.soak.account import LATE, LOST, SEEN_TWICE, SETTLED, STUCK, Account, Limits, settle_account
from Tests.soak.calls import Call, CallGenerator, Device
from Tests.soak.evidence import CallRow, Delivery, Evidence, Push
from Tests.soak.faults import Deck, Fault

BEGIN = 1_000_000.0


class AccountTests(unittest.TestCase):
    """One call to one FCM phone: committed at 0 s, accepted at 0.1 s, settled at 0.2 s, deadline at 20 s."""

    def setUp(self) -> None:
        self.device = Device("user-1", "fcm", "plain", {}, {"token": "fcm"}, "fcm", True)
        self.call = Call(0, "call-1", "incoming_call", 20, [self.device], committed_at=BEGIN, deliveries=1)
        self.row: CallRow | None = self.call_row("ended", "declined", 10)
        self.call.ended_at = BEGIN + 10
        self.history = [self.delivery("invite", 0, 0.2)]
        self.owed: list[Delivery] = []
        self.left: list[Delivery] = []
        self.pushes = [self.push("invite", 0.1)]
        self.faults: list[Fault] = []
        self.overdue: dict[tuple[str, int], str] = {}

    def call_row(self, state: str, reason: str | None, ended_at: float | None) -> CallRow:
        return CallRow(7, "call-1", state, reason, BEGIN, BEGIN + 20, None if ended_at is None else BEGIN + ended_at)

    def delivery(self, kind: str, n: int, finished_at: float, outcome: str = "delivered") -> Delivery:
        return Delivery(7, n, kind, "fcm", "user-1", outcome, None, 1, BEGIN + 20, None, BEGIN + finished_at, 1)

    def push(self, kind: str, at: float, gateway: int = 0) -> Push:
        return Push(BEGIN + at, self.call, self.device, "fcm", kind, gateway)

    def fault(self, kind: str, at: float, until: float, *gateways: int) -> None:
        self.faults.append(Fault(kind, BEGIN + at, BEGIN + until, gateways))

    def settle(self, limits: Limits = Limits()) -> Account:
        rows = {self.row.call_id: self.row} if self.row else {}
        return settle_account(
            Evidence([self.call], self.pushes, rows, self.history, self.owed, self.left, self.overdue), self.faults, limits)

    def check(self, *verdicts: str, limits: Limits = Limits()) -> Account:
        account = self.settle(limits)
        self.assertEqual(sorted(violation.verdict for violation in account.violations), sorted(verdicts),
                         [violation.text for violation in account.violations])
        return account

    # --- Lost and stuck ---

    def test_a_call_that_went_well_breaks_no_promise(self) -> None:
        self.check()

    def test_a_delivery_that_is_nowhere_is_lost(self) -> None:
        self.history = []
        self.check(LOST)

    def test_a_delivery_that_nobody_accepted_was_not_delivered(self) -> None:
        self.pushes = []
        self.check(LOST)

    def test_a_call_that_vanished_is_lost(self) -> None:
        self.row, self.history = None, []
        self.check(LOST)

    def test_a_call_that_a_fail_over_lost_does_not_count(self) -> None:
        self.row, self.history = None, []
        self.fault("promote", 2, 3)
        account = self.check()
        self.assertEqual(account.figures["calls lost by the asynchronous fail-over"], 1)

    def test_a_call_that_was_committed_during_a_fail_over_may_be_lost(self) -> None:
        self.row, self.history = None, []
        self.fault("promote", -0.3, 0.1)
        self.check()
        self.faults = []
        self.fault("promote", -0.3, -0.1)
        self.check(LOST)

    def test_a_missed_call_that_was_claimed_before_a_fail_over_may_be_shown_again(self) -> None:
        self.row = self.call_row("missed", "missed", 20)
        self.call.ended_at = 0
        self.history.append(self.delivery("missed_call", 1, 41))
        self.pushes += [self.push("missed_call", 20.1), self.push("missed_call", 40)]
        self.check(SEEN_TWICE)
        self.fault("promote", 21, 39)
        self.check()
        self.check(limits=Limits(failover=0))
        self.check(SEEN_TWICE, limits=Limits(claims=0))

    def test_a_fail_over_long_after_a_commit_did_not_lose_it(self) -> None:
        self.row, self.history = None, []
        self.fault("promote", 60, 61)
        self.check(LOST)

    def test_a_crash_loses_no_call(self) -> None:
        self.row, self.history = None, []
        self.fault("crash-server", 0.05, 3)
        self.check(LOST)

    def test_a_call_that_never_was_committed_does_not_count(self) -> None:
        self.call.committed_at, self.row, self.history = 0, None, []
        self.check()

    def test_an_end_that_was_committed_stays(self) -> None:
        self.row = self.call_row("answered", "answered", 10)
        self.check()
        self.row = self.call_row("missed", "missed", 20)
        self.history.append(self.delivery("missed_call", 20000, 20.1))
        self.pushes.append(self.push("missed_call", 20.05))
        self.check(LOST)
        self.fault("promote", 10.5, 11)
        self.check()

    def test_a_missed_call_must_be_told(self) -> None:
        self.row = self.call_row("ended", "ended", 10)
        self.check(LOST)
        self.device.is_reachable = False
        self.check()

    def test_a_delivery_that_is_owed_at_the_end_is_stuck(self) -> None:
        self.history, self.pushes = [], []
        self.owed = self.left = [self.delivery("invite", 0, 0)]
        self.check(STUCK)

    def test_what_the_gateways_gave_back_when_they_stopped_was_stuck_all_the_same(self) -> None:
        self.owed = [self.delivery("invite", 0, 0)]
        self.check(STUCK)

    def test_a_delivery_that_was_overdue_once_is_stuck(self) -> None:
        self.overdue = {("call-1", 0): "invite"}
        self.check(STUCK)

    def test_a_call_that_rings_for_ever_is_stuck(self) -> None:
        self.call.ended_at = 0
        self.row = self.call_row("ringing", None, None)
        self.check(STUCK)

    # --- Late ---

    def test_nothing_leaves_after_the_deadline(self) -> None:
        self.call.ended_at = 0
        self.row = self.call_row("answered", "answered", 30)
        self.pushes, self.history = [self.push("invite", 20.2)], [self.delivery("invite", 0, 20.4)]
        self.check()
        self.pushes, self.history = [self.push("invite", 20.3)], [self.delivery("invite", 0, 20.4)]
        self.check(LATE)

    def test_no_invite_leaves_after_the_end(self) -> None:
        self.pushes, self.history = [self.push("invite", 11.9)], [self.delivery("invite", 0, 13)]
        self.check()
        self.pushes = [self.push("invite", 12.5)]
        self.check(LATE)

    def test_a_gateway_that_could_not_hear_of_the_end_has_a_little_longer(self) -> None:
        self.pushes, self.history = [self.push("invite", 12.5)], [self.delivery("invite", 0, 13)]
        self.fault("hole", 9.5, 13.5, 0)
        self.check()
        self.pushes = [self.push("invite", 12.5, gateway=1)]
        self.check(LATE)
        self.pushes, self.history = [self.push("invite", 13.2)], [self.delivery("invite", 0, 14)]
        self.check(LATE)

    # --- Repeats ---

    def test_an_invite_that_was_answered_is_not_repeated(self) -> None:
        self.pushes.append(self.push("invite", 1, gateway=1))
        self.history = [self.delivery("invite", 0, 1.1)]
        self.check(SETTLED)

    def test_a_cut_excuses_no_repeat(self) -> None:
        self.pushes.append(self.push("invite", 2, gateway=1))
        self.history = [self.delivery("invite", 0, 2.1)]
        self.fault("cut", 0.3, 0.3, 0)
        self.check(SETTLED)

    def test_a_crash_undoes_the_claim_of_a_ring_in_flight(self) -> None:
        self.pushes.append(self.push("invite", 2, gateway=1))
        self.history = [self.delivery("invite", 0, 2.1)]
        self.fault("crash-backend", 0.3, 1)
        self.assertEqual(self.check().figures["invite repeats: crash-backend of Postgres"], 1)
        self.faults = []
        self.fault("crash-backend", 7, 8)
        self.pushes[-1] = self.push("invite", 9, gateway=1)
        self.history = [self.delivery("invite", 0, 9.1)]
        self.check(SETTLED)

    def test_a_gateway_that_died_could_not_tell_what_it_had_sent(self) -> None:
        self.pushes.append(self.push("invite", 4, gateway=1))
        self.history = [self.delivery("invite", 0, 4.1)]
        for kind in ("kill", "freeze", "hole", "delay"):
            self.faults = []
            self.fault(kind, 0.3, 5, 0)
            account = self.check()
            self.assertEqual(account.figures[f"invite repeats: {kind} of the gateway"], 1)
            self.faults = []
            self.fault(kind, 0.3, 5, 1)  # another one
            self.check(SETTLED)

    def test_a_gateway_that_died_much_later_had_long_settled_it(self) -> None:
        self.pushes.append(self.push("invite", 9, gateway=1))
        self.history = [self.delivery("invite", 0, 9.1)]
        self.fault("kill", 5, 6, 0)
        self.check(SETTLED)
        self.fault("crash-server", 0.2, 2)  # so that the dead one could not write it
        self.faults.sort(key=lambda fault: fault.at)
        self.check()

    def test_nothing_is_sent_once_it_is_settled(self) -> None:
        self.pushes.append(self.push("invite", 4, gateway=1))
        self.fault("kill", 0.3, 5, 0)
        self.check(SETTLED)

    def test_a_hedged_invite_may_be_accepted_twice_at_any_time(self) -> None:
        self.pushes.append(self.push("invite", 4))
        self.history = [dataclasses.replace(self.delivery("invite", 0, 0.2), is_hedged=True)]
        account = self.check()
        self.assertEqual(account.figures["invite repeats: hedged"], 1)

    def test_an_invite_without_an_answer_is_handed_on(self) -> None:
        self.pushes.append(self.push("invite", 1.3, gateway=1))
        self.history = [dataclasses.replace(self.delivery("invite", 0, 1.4), is_handed_on=True)]
        self.assertEqual(self.check().figures["invite repeats: handed on without an answer"], 1)
        self.pushes.append(self.push("invite", 2))
        self.check(SETTLED)

    def test_an_invite_is_hedged_before_its_answer_by_the_same_gateway(self) -> None:
        self.history = [self.delivery("invite", 0, 3)]
        self.device.behaviour = "slow"
        for at, gateway, verdicts in [(0.4, 0, []), (0.4, 1, [SETTLED]), (1.3, 0, [SETTLED])]:
            self.pushes = [self.push("invite", 0.1), self.push("invite", at, gateway=gateway)]
            self.check(*verdicts)

    def test_nothing_that_people_see_is_hedged(self) -> None:
        self.row = self.call_row("ended", "ended", 10)
        self.history.append(dataclasses.replace(self.delivery("missed_call", 20000, 10.6), is_hedged=True))
        self.pushes += [self.push("missed_call", 10.1), self.push("missed_call", 10.5)]
        self.check(SEEN_TWICE)

    def test_an_answer_that_was_lost_excuses_an_invite(self) -> None:
        self.device.behaviour = "lossy"
        self.pushes.append(self.push("invite", 8))
        self.history = [self.delivery("invite", 0, 8.1)]
        self.check()

    def test_two_rows_of_history_are_one_too_many(self) -> None:
        self.history.append(self.delivery("invite", 0, 0.3))
        self.check(SETTLED)

    def test_a_row_that_is_finished_is_not_owed(self) -> None:
        self.left = [self.delivery("invite", 0, 0)]
        self.check(SETTLED)

    def test_nothing_excuses_that_people_see_something_twice(self) -> None:
        self.row = self.call_row("ended", "ended", 10)
        self.device.behaviour = "lossy"
        self.fault("kill", 10.2, 12, 0)
        self.history.append(self.delivery("missed_call", 20000, 14.1))
        self.pushes += [self.push("missed_call", 10.1), self.push("missed_call", 14, gateway=1)]
        self.check(SEEN_TWICE)

    def test_what_a_fail_over_undid_may_be_done_again(self) -> None:
        self.row = self.call_row("missed", "missed", 13)  # first at 10 s, lost
        self.call.ended_at = 0
        self.history.append(self.delivery("missed_call", 20000, 13.2))
        self.pushes += [self.push("missed_call", 10.1), self.push("missed_call", 13.1, gateway=1)]
        self.check(SEEN_TWICE)
        self.fault("promote", 10.2, 11)
        self.check()


class GeneratorTests(unittest.TestCase):
    def test_the_same_seed_makes_the_same_calls(self) -> None:
        first, second = CallGenerator(3), CallGenerator(3)
        for _ in range(50):
            first.next(), second.next()
        self.assertEqual([call.recipients() for call in first.calls], [call.recipients() for call in second.calls])
        self.assertEqual(sum(len(device.tokens) for call in first.calls for device in call.devices), len(first.by_token))

    def test_every_fault_has_its_turn(self) -> None:
        deck = Deck({"cut": 3, "kill": 1}, seed=1)
        self.assertEqual(sorted(str(deck.draw(lambda _: True)) for _ in range(8)), ["cut"] * 6 + ["kill"] * 2)
        self.assertEqual(deck.draw(lambda kind: kind == "kill"), "kill")
        self.assertIsNone(deck.draw(lambda _: False))


if __name__ == "__main__":
    unittest.main()
