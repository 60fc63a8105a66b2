"""The arithmetic of the public benchmark, and a whole adapter with a queue in memory that loses jobs.

    benchmarks/bench --self-test
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from benchmarks.harness import ROOT, Row
from benchmarks.portable.account import Account, Histogram, Ledger, Tail
from benchmarks.portable.protocol import WINDOW_SECONDS, Window
from benchmarks.portable.scenarios import SCENARIOS
from benchmarks.results import Measured
from benchmarks.table import comparison, update

LEAKY = '''
import asyncio, sys
from benchmarks.portable.protocol import Adapter, main

class Leaky(Adapter):
    system, version, tables = "leaky", "1", ["jobs"]
    queue = asyncio.Queue()
    async def install(self): pass
    async def connect(self): pass
    async def close(self): pass
    async def enqueue(self, jobs):
        for job in jobs:
            if int(job.partition(".")[0]) % 10:
                self.queue.put_nowait(job)
    async def depth(self): return self.queue.qsize()
    async def work(self, do):
        while True:
            await do(await self.queue.get())

main(Leaky)
'''


class HistogramTests(unittest.TestCase):
    def test_percentiles_have_three_significant_figures(self) -> None:
        histogram = Histogram()
        for microseconds in range(1, 100_001):
            histogram.add(microseconds)
        for percent in (1, 50, 99, 99.9, 100):
            self.assertAlmostEqual(histogram.percentile(percent) / (1000 * percent), 1, delta=0.001)

    def test_memory_is_bounded(self) -> None:
        histogram = Histogram()
        for exponent in range(-3, 20):
            for step in range(1, 1_000):
                histogram.add(step * 10.0**exponent)
        self.assertEqual(histogram.count, 23 * 999)
        self.assertLessEqual(len(histogram._buckets), 25_000)

    def test_without_times_there_is_no_percentile(self) -> None:
        self.assertIsNone(Histogram().percentile(99))

    def test_merged_ones_are_as_one(self) -> None:
        one, other, all = Histogram(), Histogram(), Histogram()
        for microseconds in range(1, 1_000):
            (one if microseconds % 2 else other).add(microseconds)
            all.add(microseconds)
        one.merge(other)
        self.assertEqual([one.percentile(percent) for percent in (50, 99)], [all.percentile(percent) for percent in (50, 99)])

    def test_the_window_forgets(self) -> None:
        window = Window()
        window.add(1_000_000, at=100)
        window.add(1_000, at=101.5)
        self.assertAlmostEqual(window.percentiles([100], at=101.9)[0] / 1_000_000, 1, delta=0.001)
        self.assertAlmostEqual(window.percentiles([100], at=100.5 + WINDOW_SECONDS)[0] / 1_000, 1, delta=0.001)
        self.assertEqual(window.percentiles([100], at=102 + WINDOW_SECONDS), [0])


class AccountTests(unittest.TestCase):
    """Times are microseconds."""

    def setUp(self) -> None:
        self.account = Account(0)

    def test_a_confirmed_job_whose_work_is_not_done_is_lost(self) -> None:
        self.account.read(["e 0 3", "d 0 5 6", "d 2 5 6"])
        self.assertEqual((self.account.confirmed, self.account.done, self.account.open), (3, 2, 1))

    def test_a_job_may_be_done_before_its_commit_is_confirmed(self) -> None:
        self.account.read(["d 1 5 6", "e 0 2", "d 0 5 6"])
        self.assertEqual((self.account.done, self.account.open), (2, 0))

    def test_a_job_whose_commit_was_never_confirmed_is_not_lost(self) -> None:
        self.account.read(["e 0 1", "d 0 5 6", "e 5 1", "d 5 5 6", "d 3 5 6"])
        self.assertEqual((self.account.done, self.account.open), (3, 0))

    def test_work_done_again_is_a_repetition(self) -> None:
        self.account.read(["e 0 1", "d 0 5 6", "d 0 5 9", "d 0 5 10"])
        self.assertEqual((self.account.done, self.account.repeated, self.account.open), (1, 2, 0))

    def test_work_belongs_to_the_phase_in_which_it_began(self) -> None:
        self.account.begin("baseline", 1_000_000)
        self.account.begin("stress", 3_000_000)
        self.account.read(["e 0 4", "d 0 900000 1000000", "d 1 900000 2999999", "d 2 2900000 3000000", "d 3 0 999999"])
        self.account.begin("recovery", 5_000_000)
        self.assertEqual([phase.pickup.count for phase in self.account.phases], [1, 2, 1, 0])
        self.assertEqual(self.account.phase("baseline").jobs_per_second, 1)
        self.assertAlmostEqual(self.account.phase("stress").pickup.percentile(99) / 100_000, 1, delta=0.001)

    def test_a_line_that_is_none_is_an_error(self) -> None:
        with self.assertRaises(ValueError):
            self.account.read(["x 1 2"])


class LedgerTests(unittest.TestCase):
    def test_only_whole_lines_are_read_and_each_once(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "ledger"
            tail = Tail(path)
            self.assertEqual(list(tail.lines()), [])
            ledger = Ledger(path)
            ledger.confirmed(0, 2)
            with path.open("a") as file:
                file.write("d 0 1")
            self.assertEqual(list(tail.lines()), ["e 0 2\n"])
            with path.open("a") as file:
                file.write(" 2\n")
            ledger.done(1, 3, 4)
            self.assertEqual(list(tail.lines()), ["d 0 1 2\n", "d 1 3 4\n"])

    def test_what_an_adapter_loses_is_found(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            directory = pathlib.Path(name)
            rate, ledger = directory / "rate", directory / "ledger"
            rate.write_text("2000")
            env = {**os.environ, "PYTHONPATH": str(ROOT), "DATABASE_URL": "postgres://localhost/none", "JOB_LEDGER": str(ledger),
                   "PRODUCER_RATE_CONTROL_FILE": str(rate), "JOB_WORK_MS": "0", "WORKER_COUNT": "1"}
            account, tail = Account(), Tail(ledger)
            with subprocess.Popen([sys.executable, "-B", "-c", LEAKY], env=env, stdout=subprocess.DEVNULL) as adapter:
                self.wait_until(adapter, account, tail, lambda: account.confirmed >= 100)
                rate.write_text("0")
                self.wait_until(adapter, account, tail, lambda: account.done == account.confirmed - (account.confirmed + 9) // 10)
                adapter.terminate()
                self.assertEqual(adapter.wait(), 0)
            self.assertEqual(account.open, (account.confirmed + 9) // 10)

    def wait_until(self, adapter: subprocess.Popen, account: Account, tail: Tail, is_so) -> None:
        limit = time.monotonic() + 60
        while not is_so():
            account.read(tail.lines())
            self.assertIsNone(adapter.poll())
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)


class ScenarioTests(unittest.TestCase):
    def test_all_times_are_scaled(self) -> None:
        for scenario in SCENARIOS:
            half = scenario.scaled(0.5)
            for name in ("warm_seconds", "baseline_seconds", "stress_seconds", "recovery_seconds"):
                self.assertEqual(getattr(half, name), getattr(scenario, name) / 2)
            self.assertEqual((half.name, half.rate, half.workers), (scenario.name, scenario.rate, scenario.workers))


class TableTests(unittest.TestCase):
    MACHINE = {"cores": 2, "memory_gib": 24, "cpu": "A", "kernel": "6", "postgres": "15"}

    def measured(self) -> Measured:
        rows = [Row(f"public.soak.{system}.{column}", value, unit, None, note, [])
                for system, note, values in (("push-gateway", "", (200.0, 3.1)), ("peer", "peer 1.2", (100.0, None)))
                for (column, unit), value in zip((("throughput", "jobs/s"), ("p99 pickup", "ms")), values, strict=True)]
        return Measured("public", "2026-01-02", "abc", self.MACHINE, rows)

    def test_a_line_for_each_scenario_and_system(self) -> None:
        lines = comparison(self.measured()).splitlines()
        self.assertIn("peer 1.2", lines[0])
        self.assertEqual(lines[2:], [
            "| scenario | system | throughput (jobs/s) | p99 pickup (ms) |", "|---|---|---|---|",
            "| soak | push-gateway | 200 | 3.1 |", "| | peer | 100 | – |"])

    def test_the_other_table_stays(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            document = pathlib.Path(directory) / "performance.md"
            before = "<!-- results: begin -->\n\n2 cores; 2025.\n\n| **http2** | | | |\n\n<!-- results: end -->\n"
            document.write_text(f"{before}<!-- public: begin --><!-- public: end -->after")
            update(document, {"public": self.measured()}, ["http2", "public"])
            self.assertTrue(document.read_text().startswith(before))
            self.assertIn(comparison(self.measured()), document.read_text())
            update(document, {"http2": Measured("http2", "2026-01-02", "abc", self.MACHINE, [])}, ["http2", "public"])
            self.assertFalse(document.read_text().startswith(before))
            self.assertIn(comparison(self.measured()), document.read_text())


if __name__ == "__main__":
    unittest.main()
