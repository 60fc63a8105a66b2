"""Commit to request at the provider: single calls, 200 calls/s on an idle system, and during a drain with a hanging provider.

New and old version and all three cases take turns, each with a fresh database, gateway and simulators, and with real
providers' limits. A single call is enqueued every 200 ms on average, long after the previous one is settled. Loaded means:
200,000 missed-call notifications have just been committed, for the same app and so for the same three lanes; and another
app owes calls over FCM, which never answers it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib

from benchmarks.drain import Meter, drain
from benchmarks.harness import Bench, BenchError, Build, Database, write_calls
from benchmarks.loadtest import Latency, load_test

APP, HUNG_APP = "porteiro", "silent"
RATE, LONE_RATE = 200, 5
HANG = {"provider": "fcm", "token_prefix": HUNG_APP, "action": "hang"}


@dataclasses.dataclass
class Load:
    """The load besides the measured calls."""

    missed_calls: pathlib.Path
    missed_deliveries: int
    hung_calls: pathlib.Path


@dataclasses.dataclass
class Measurement:
    latency: Latency
    owed_at_end: int
    """Notifications that the drain had not yet reached."""


@dataclasses.dataclass
class Cases:
    """One version's measurements, by turn."""

    lone: list[Measurement] = dataclasses.field(default_factory=list)
    idle: list[Measurement] = dataclasses.field(default_factory=list)
    loaded: list[Measurement] = dataclasses.field(default_factory=list)

    def ratios(self) -> list[float]:
        return [beside.latency.p99 / alone.latency.p99 for beside, alone in zip(self.loaded, self.idle, strict=True)]


def run(bench: Bench) -> None:
    seconds, lone_seconds = (5, 5) if bench.small else (30, 40)
    load = make_load(bench)
    found = {"new": Cases(), "old": Cases()}
    for turn in range(bench.runs):
        for build in bench.in_turn(turn):
            found[build.name].lone.append(measure(bench, build, LONE_RATE, lone_seconds, turn, None))
        for build in bench.in_turn(turn):
            found[build.name].idle.append(measure(bench, build, RATE, seconds, turn, None))
            found[build.name].loaded.append(measure(bench, build, RATE, seconds, turn, load))
    report(bench, found["new"], found["old"])


def make_load(bench: Bench) -> Load:
    missed = bench.directory / "missed.tsv"
    count = write_calls(
        missed, 10_000 if bench.small else 66_667, apps=(APP,), kind="missed_call", ring_seconds=14_400,
        prefix="missed")
    hung = bench.directory / "hung.tsv"
    write_calls(
        hung, 2_000 if bench.small else 20_000, devices=1, apps=(HUNG_APP,), providers=("fcm",), prefix="hung",
        token_prefix=HUNG_APP)
    return Load(missed, count, hung)


def measure(bench: Bench, build: Build, rate: float, seconds: float, turn: int, load: Load | None) -> Measurement:
    """One load test from the beginning."""
    apps = (APP, HUNG_APP) if load else (APP,)
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(bench.database("latency", build))
        simulators = stack.enter_context(bench.simulators([HANG]))
        gateway = stack.enter_context(bench.gateway(database, simulators, apps=apps, rates_raised=False))
        warm = bench.directory / "warm.tsv"
        drain(database, [gateway], simulators, warm, write_calls(warm, 200, prefix="warm"))
        database.sql("checkpoint")
        if load is not None:
            database.copy_calls(load.hung_calls)
            database.copy_calls(load.missed_calls)
            database.sql("checkpoint")  # so that writing the commit to disk is not measured
        meter = Meter(database, [gateway], simulators, database.wal_bytes())
        latency = load_test(
            bench, database, gateway, simulators, rate=rate, seconds=seconds, seed=turn + 1, app=APP)
        cost = meter.read()
        owed = check(database, load)
    by_provider = ", ".join(f"{provider} {p99:.1f}" for provider, p99 in latency.p99_by_provider.items())
    case = f"{rate} calls/s, {'loaded' if load else 'idle'}"
    bench.progress(
        f"latency: run {turn + 1}, {build.name}, {case}: p50 {latency.p50:.2f} ms, p99 {latency.p99:.2f} ms "
        f"({by_provider}), {owed} notifications owed at the end; CPU of gateway, Postgres, simulators "
        f"{cost.gateway:.1f}, {cost.postgres:.1f}, {cost.simulators:.1f} s")
    return Measurement(latency, owed)


def check(database: Database, load: Load | None) -> int:
    """Every notification is owed or delivered; how many are owed."""
    if load is None:
        return 0
    row = database.sql(
        "select (select count(*) from push.delivery where kind = 3), "
        "(select count(*) from push.history where kind = 3 and outcome = 0)")
    owed, delivered = map(int, row.split("|"))
    if owed + delivered != load.missed_deliveries:
        raise BenchError(f"of {load.missed_deliveries} notifications {delivered} are delivered and {owed} owed")
    return owed


def report(bench: Bench, new: Cases, old: Cases) -> None:
    lone, idle = f"{LONE_RATE} calls/s of three devices", f"{RATE} calls/s of three devices"
    is_through = any(of.owed_at_end == 0 for of in new.loaded)
    loaded = "the notifications were through before the end" if is_through else "notifications were owed to the end"
    for name, cases, is_new in (("", new, True), ("old version: ", old, False)):
        if not cases.idle:
            continue
        for case, of_case, note in (("lone", cases.lone, lone), ("idle", cases.idle, idle), ("loaded", cases.loaded, loaded)):
            has_target = is_new and case != "loaded"
            bench.result_median(
                f"latency.{name}{case}_p50", [of.latency.p50 for of in of_case], "ms",
                target=("<=", 1) if has_target else None, note=note if is_new else "")
            bench.result_median(
                f"latency.{name}{case}_p99", [of.latency.p99 for of in of_case], "ms",
                target=("<=", 4) if has_target else None)
        if is_new:
            for provider in cases.loaded[0].latency.p99_by_provider:
                p99 = [of.latency.p99_by_provider[provider] for of in cases.loaded]
                bench.result_median(f"latency.loaded_p99_over_{provider}", p99, "ms")
        bench.result_median(
            f"latency.{name}loaded_p99_to_idle_p99", cases.ratios(), "×", target=("<=", 1.25) if is_new else None)
