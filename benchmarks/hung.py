"""Calls over APNs while FCM deliveries hang: the effect of a provider that never answers on other calls of the same app.

5,000 calls over FCM have been committed and none of them is ever answered. Meanwhile iPhones ring, 200 calls a second,
and the time from commit to request at APNs is measured: alone, with the hanging deliveries, and the ratio. New and old version
take turns, each measurement with a fresh database, gateway and simulators, and with real providers' limits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib

from benchmarks.drain import drain
from benchmarks.harness import Bench, BenchError, Build, write_calls
from benchmarks.loadtest import Latency, load_test

RATE = 200
HUNG, SMALL_HUNG = 5_000, 1_000
MARK = "silent"
HANG = {"provider": "fcm", "token_prefix": MARK, "action": "hang"}


@dataclasses.dataclass
class Cases:
    """One version's measurements, by turn."""

    alone: list[Latency] = dataclasses.field(default_factory=list)
    beside: list[Latency] = dataclasses.field(default_factory=list)

    def ratios(self) -> list[float]:
        return [beside.p99 / alone.p99 for beside, alone in zip(self.beside, self.alone, strict=True)]


def run(bench: Bench) -> None:
    calls = bench.directory / "hung-fcm.tsv"
    hung = write_calls(
        calls, SMALL_HUNG if bench.small else HUNG, devices=1, providers=("fcm",), prefix="hung", token_prefix=MARK)
    found = {"new": Cases(), "old": Cases()}
    for turn in range(bench.runs):
        for build in bench.in_turn(turn):
            found[build.name].alone.append(measure(bench, build, turn, calls, 0))
            found[build.name].beside.append(measure(bench, build, turn, calls, hung))
    report(bench, found["new"], found["old"], hung)


def measure(bench: Bench, build: Build, turn: int, calls: pathlib.Path, hung: int) -> Latency:
    """One load test from the beginning, with this number of hanging deliveries."""
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(bench.database("hung", build))
        simulators = stack.enter_context(bench.simulators([HANG]))
        gateway = stack.enter_context(bench.gateway(database, simulators, rates_raised=False))
        warm = bench.directory / "warm.tsv"
        drain(database, [gateway], simulators, warm, write_calls(warm, 200, prefix="warm"))
        if hung > 0:
            database.copy_calls(calls)
        database.sql("checkpoint")
        latency = load_test(
            bench, database, gateway, simulators, rate=RATE, seconds=5 if bench.small else 30, seed=turn + 1,
            devices=1, mix="apns=1")
        if (owed := database.owed()) != hung:
            raise BenchError(f"{owed} deliveries are owed, not the {hung} that hang")
    bench.progress(f"hung: run {turn + 1}, {build.name}, beside {hung:,}: p50 {latency.p50:.2f} ms, p99 {latency.p99:.2f} ms")
    return latency


def report(bench: Bench, new: Cases, old: Cases, hung: int) -> None:
    for name, cases, target in (("", new, ("<=", 1.5)), ("old version: ", old, None)):
        if not cases.alone:
            continue
        note = f"{RATE} rings/s over APNs, commit to request" if cases is new else ""
        bench.result_median(f"hung.{name}alone_p99", [of.p99 for of in cases.alone], "ms", note=note)
        note = f"{hung:,} deliveries of the same app hang at FCM" if cases is new else ""
        bench.result_median(f"hung.{name}beside_p99", [of.p99 for of in cases.beside], "ms", note=note)
        bench.result_median(f"hung.{name}beside_p99_to_alone_p99", cases.ratios(), "×", target=target)
