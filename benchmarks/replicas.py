"""One lane's burst drained by one replica and by three: whether replicas that claim from the same rows slow each other down.

100,000 calls over APNs, one lane, are committed by one COPY. One and three replicas take turns, and so do new and old version,
each time with a fresh database and fresh gateways whose connections an earlier burst has opened. Everything runs on one
machine, so three replicas can be required to be no slower than one, but not to be faster.
"""

from __future__ import annotations

import contextlib
import pathlib

from benchmarks.drain import Drain, drain
from benchmarks.harness import Bench, BenchError, Build, write_calls

CALLS, SMALL_CALLS = 100_000, 6_000
WARM_CALLS = 20_000
TURNS, SMALL_TURNS = 5, 1
MANY = 3


def run(bench: Bench) -> None:
    calls = bench.directory / "burst.tsv"
    deliveries = write_calls(calls, SMALL_CALLS if bench.small else CALLS, devices=1, providers=("apns",))
    found: dict[tuple[str, int], list[Drain]] = {}
    for turn in range(SMALL_TURNS if bench.small else TURNS):
        for build in bench.in_turn(turn):
            for count in (1, MANY) if turn % 2 == 0 else (MANY, 1):
                found.setdefault((build.name, count), []).append(burst(bench, build, count, calls, deliveries, turn))
    report(bench, found, deliveries)


def burst(bench: Bench, build: Build, count: int, calls: pathlib.Path, deliveries: int, turn: int) -> Drain:
    """One run from the beginning, with this number of replicas."""
    with bench.database("replicas", build) as database, bench.simulators(log=False) as simulators:
        with contextlib.ExitStack() as stack:
            gateways = [stack.enter_context(bench.gateway(database, simulators, replica=number + 1)) for number in range(count)]
            warm = bench.directory / "warm.tsv"
            warmed = write_calls(
                warm, min(WARM_CALLS, deliveries), devices=1, providers=("apns",), prefix="warm")
            drain(database, gateways, simulators, warm, warmed)
            database.sql("checkpoint")
            result = drain(database, gateways, simulators, calls, deliveries)
        if (accepted := simulators.accepted()) != deliveries + warmed:
            raise BenchError(f"the simulators accepted {accepted} pushes of {deliveries + warmed}")
    bench.progress(f"replicas: run {turn + 1}, {build.name}, {count}: {result.text()}")
    return result


def report(bench: Bench, found: dict[tuple[str, int], list[Drain]], deliveries: int) -> None:
    for build, name, target in (("new", "", (">=", 1.0)), ("old", "old version: ", None)):
        if (build, 1) not in found:
            continue
        one, many = ([drain.settled_per_second for drain in found[build, count]] for count in (1, MANY))
        note = f"{deliveries:,} deliveries of one lane" if build == "new" else ""
        bench.result_median(f"replicas.{name}one", one, "deliveries/s", note=note)
        bench.result_median(f"replicas.{name}three", many, "deliveries/s")
        ratios = [three / single for three, single in zip(many, one, strict=True)]
        bench.result_median(f"replicas.{name}three_to_one", ratios, "×", target=target)
