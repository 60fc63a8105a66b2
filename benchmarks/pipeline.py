"""100,000 deliveries committed by one COPY until all are settled: a whole gateway, Postgres, the simulated providers.

Each run has a fresh history, a fresh gateway, and connections that a few earlier calls have opened. It takes turns with the
old version (baseline.py) on a database of its own; with the same version at the default log level, which shows the cost of
a delivery's log line; and with the SQL floor, a C program that claims 500 and settles 500 deliveries on one connection and
sends nothing.

CPU of Postgres is that of all its processes: backends, writers, vacuum. All processes means these, the gateway, and the
simulators, which are the same program for both versions. WAL is the amount written since the commit of the calls.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Mapping

from benchmarks.drain import Cost, Drain, drain
from benchmarks.harness import Bench, BenchError, Build, run as run_program, write_calls

CALLS, SMALL_CALLS = 33_334, 2_000
WARM_CALLS = 500
TURNS, SMALL_TURNS = 5, 1


def run(bench: Bench) -> None:
    calls = bench.directory / "calls.tsv"
    deliveries = write_calls(calls, SMALL_CALLS if bench.small else CALLS)
    drains: dict[str, list[Drain]] = {"new": [], "old": []}
    logged: list[Drain] = []
    floors: list[float] = []
    floor = bench.tool("SQLFloor")
    if floor is None:
        bench.progress("pipeline: the SQL floor is not built, and left out")
    for turn in range(SMALL_TURNS if bench.small else TURNS):
        for build in bench.in_turn(turn):
            drains[build.name].append(settle(bench, build, calls, deliveries, turn))
        logged.append(settle(bench, bench.new, calls, deliveries, turn, env={"PUSH_GATEWAY_LOG_LEVEL": "info"}))
        if floor is not None:
            floors.append(sql_floor(bench, floor, calls, deliveries, turn))
    report(bench, drains["new"], drains["old"], floors, logged)


def settle(
    bench: Bench, build: Build, calls: pathlib.Path, deliveries: int, turn: int, env: Mapping[str, str] | None = None
) -> Drain:
    """One run from the beginning."""
    with bench.database("pipeline", build) as database, bench.simulators(log=False) as simulators:
        with bench.gateway(database, simulators, env) as gateway:
            warm = bench.directory / "warm.tsv"
            warmed = write_calls(warm, WARM_CALLS, prefix="warm")
            drain(database, [gateway], simulators, warm, warmed)
            database.sql("checkpoint")
            result = drain(database, [gateway], simulators, calls, deliveries)
        if (accepted := simulators.accepted()) != deliveries + warmed:
            raise BenchError(f"the simulators accepted {accepted} pushes of {deliveries + warmed}")
    bench.progress(f"pipeline: run {turn + 1}, {build.name}{' with log' if env else ''}: {result.text()}")
    return result


def sql_floor(bench: Bench, tool: pathlib.Path, calls: pathlib.Path, deliveries: int, turn: int) -> float:
    """The same deliveries, claimed and settled by the tool alone; deliveries a second."""
    with bench.database("floor") as database:
        warm = bench.directory / "warm.tsv"
        database.copy_calls(warm)
        run_program([tool, database.url])
        database.sql("checkpoint")
        database.copy_calls(calls)
        told = json.loads(run_program([tool, database.url]))
        if told["deliveries"] != deliveries or database.owed() != 0:
            raise BenchError(
                f"the SQL floor settled {told['deliveries']} deliveries of {deliveries}; {database.owed()} are owed")
    bench.progress(f"pipeline: run {turn + 1}, SQL alone: {told['per_second']:,.0f} deliveries/s")
    return told["per_second"]


def report(bench: Bench, drains: list[Drain], old: list[Drain], floors: list[float], logged: list[Drain]) -> None:
    rates = [drain.settled_per_second for drain in drains]
    bench.result_median(
        "pipeline.committed_to_settled", rates, "deliveries/s", target=(">=", 55_000),
        note=f"{drains[0].deliveries:,} deliveries; the target holds where the old version has 44,000")
    old_rates = [drain.settled_per_second for drain in old]
    if old:
        bench.result_median("pipeline.old_version", old_rates, "deliveries/s")
    bench.compare("pipeline.ratio_to_old_version", rates, old_rates or None, target=(">=", 1.25))
    report_costs(bench, [drain.cost_each for drain in drains], [drain.cost_each for drain in old])
    of_log = [with_log.cost_each.gateway - without.cost_each.gateway for with_log, without in zip(logged, drains, strict=True)]
    bench.result_median(
        "pipeline.CPU_of_gateway's_log", of_log, "µs a delivery",
        note="one line a delivery, level info; all other rows are without")
    bench.result_median(
        "pipeline.COPY_with_fan-out", [drain.deliveries / drain.copy_seconds for drain in drains], "deliveries/s")
    if floors:
        note = "claims and settles 500 at a time, sends nothing"
        bench.result_median("pipeline.SQL_floor", floors, "deliveries/s", note=note)
        ratios = [rate / floor for rate, floor in zip(rates, floors, strict=True)]
        bench.result_median("pipeline.ratio_to_SQL_floor", ratios, "×", target=(">=", 0.6))


def report_costs(bench: Bench, costs: list[Cost], old: list[Cost]) -> None:
    """The cost of a delivery, in both versions, and the ratios."""
    parts: list[tuple[str, Callable[[Cost], float], float | None, str, str]] = [
        ("CPU_of_Postgres", lambda cost: cost.postgres, 15, "µs a delivery", "all its processes"),
        ("CPU_of_gateway", lambda cost: cost.gateway, 10, "µs a delivery", ""),
        ("CPU_of_simulators", lambda cost: cost.simulators, None, "µs a delivery", ""),
        ("CPU_of_all_processes", lambda cost: cost.all, 33, "µs a delivery", "Postgres, gateway and simulators"),
        ("WAL", lambda cost: cost.wal_bytes, 600, "bytes a delivery", "from the commit of the calls on"),
    ]
    for name, part, most, unit, note in parts:
        mine, theirs = [part(cost) for cost in costs], [part(cost) for cost in old]
        bench.result_median(f"pipeline.{name}", mine, unit, target=None if most is None else ("<=", most), note=note)
        if old:
            bench.result_median(f"pipeline.{name}_of_old_version", theirs, unit)
            bench.compare(f"pipeline.{name}:_to_old_version", mine, theirs)
