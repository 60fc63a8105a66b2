"""Commit to request at the provider: 200 calls/s on an idle system, and beside a drain and a provider that hangs.

Idle and loaded take turns, each with a fresh database, gateway and simulators, and the providers' limits a user has.
Loaded means: 200,000 missed-call notifications have just been committed, for the same app and so for the same three
lanes; and another app owes calls over FCM, which never answers it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib

from benchmarks.drain import Meter, drain
from benchmarks.harness import Bench, BenchError, Database, write_calls
from benchmarks.loadtest import Latency, load_test

APP, HUNG_APP = "porteiro", "silent"
RATE = 200
HANG = {"provider": "fcm", "token_prefix": HUNG_APP, "action": "hang"}


@dataclasses.dataclass
class Load:
    """What is beside the measured calls."""

    missed_calls: pathlib.Path
    missed_deliveries: int
    hung_calls: pathlib.Path


@dataclasses.dataclass
class Measurement:
    latency: Latency
    owed_at_end: int
    """Notifications that the drain had not come to."""


def run(bench: Bench) -> None:
    seconds = 5 if bench.small else 30
    load = make_load(bench)
    idle: list[Measurement] = []
    loaded: list[Measurement] = []
    for turn in range(bench.runs):
        idle.append(measure(bench, seconds, turn, None))
        loaded.append(measure(bench, seconds, turn, load))
    report(bench, idle, loaded)


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


def measure(bench: Bench, seconds: float, turn: int, load: Load | None) -> Measurement:
    """One load test from the beginning."""
    apps = (APP, HUNG_APP) if load else (APP,)
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(bench.database("latency"))
        simulators = stack.enter_context(bench.simulators([HANG]))
        gateway = stack.enter_context(bench.gateway(database, simulators, apps=apps, rates_raised=False))
        warm = bench.directory / "warm.tsv"
        drain(database, gateway, simulators, warm, write_calls(warm, 200, prefix="warm"))
        database.sql("checkpoint")
        if load is not None:
            database.copy_calls(load.hung_calls)
            database.copy_calls(load.missed_calls)
            database.sql("checkpoint")  # what committing so much costs the disk is another matter
        meter = Meter(database, gateway, simulators)
        latency = load_test(
            bench, database, gateway, simulators, rate=RATE, seconds=seconds, seed=turn + 1, app=APP)
        cpu = meter.read()
        owed = check(database, load)
    by_provider = ", ".join(f"{provider} {p99:.1f}" for provider, p99 in latency.p99_by_provider.items())
    bench.progress(
        f"latency: run {turn + 1} {'loaded' if load else 'idle'}: p50 {latency.p50:.2f} ms, p99 {latency.p99:.2f} ms "
        f"({by_provider}), {owed} notifications owed at the end; CPU of gateway, Postgres, simulators "
        f"{cpu.gateway:.1f}, {cpu.postgres:.1f}, {cpu.simulators:.1f} s")
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


def report(bench: Bench, idle: list[Measurement], loaded: list[Measurement]) -> None:
    note = f"{RATE} calls/s of three devices"
    bench.result_median("latency.idle_p50", [of.latency.p50 for of in idle], "ms", target=("<=", 2), note=note)
    bench.result_median("latency.idle_p99", [of.latency.p99 for of in idle], "ms", target=("<=", 8))
    is_through = any(of.owed_at_end == 0 for of in loaded)
    note = "the notifications were through before the end" if is_through else "notifications were owed to the end"
    bench.result_median("latency.loaded_p50", [of.latency.p50 for of in loaded], "ms", note=note)
    bench.result_median("latency.loaded_p99", [of.latency.p99 for of in loaded], "ms")
    for provider in loaded[0].latency.p99_by_provider:
        p99 = [of.latency.p99_by_provider[provider] for of in loaded]
        bench.result_median(f"latency.loaded_p99_over_{provider}", p99, "ms")
    ratios = [beside.latency.p99 / alone.latency.p99 for beside, alone in zip(loaded, idle, strict=True)]
    bench.result_median("latency.loaded_p99_to_idle_p99", ratios, "×", target=("<=", 1.5))
