"""100,000 deliveries committed by one COPY until all are settled: a whole gateway, Postgres, the simulated providers.

Each run has a fresh history, a fresh gateway, and connections that a few calls before it have opened. In turn with it:
the same with the log at its default level, to say what a delivery's line costs; and the SQL floor, a C program that
claims 500 and settles 500 deliveries on one connection, and sends nothing.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping

from benchmarks.drain import Drain, drain
from benchmarks.harness import Bench, BenchError, run as run_program, write_calls

CALLS, SMALL_CALLS = 33_334, 2_000
WARM_CALLS = 500


def run(bench: Bench) -> None:
    calls = bench.directory / "calls.tsv"
    deliveries = write_calls(calls, SMALL_CALLS if bench.small else CALLS)
    drains: list[Drain] = []
    logged: list[Drain] = []
    floors: list[float] = []
    floor = bench.tool("SQLFloor")
    if floor is None:
        bench.progress("pipeline: the SQL floor is not built, and left out")
    for turn in range(bench.runs):
        drains.append(settle(bench, calls, deliveries, turn))
        logged.append(settle(bench, calls, deliveries, turn, env={"PUSH_GATEWAY_LOG_LEVEL": "info"}))
        if floor is not None:
            floors.append(sql_floor(bench, floor, calls, deliveries, turn))
    report(bench, drains, floors, logged)


def settle(
    bench: Bench, calls: pathlib.Path, deliveries: int, turn: int, env: Mapping[str, str] | None = None
) -> Drain:
    """One run from the beginning."""
    with bench.database("pipeline") as database, bench.simulators(log=False) as simulators:
        with bench.gateway(database, simulators, env) as gateway:
            warm = bench.directory / "warm.tsv"
            warmed = write_calls(warm, WARM_CALLS, prefix="warm")
            drain(database, gateway, simulators, warm, warmed)
            database.sql("checkpoint")
            result = drain(database, gateway, simulators, calls, deliveries)
        if (accepted := simulators.accepted()) != deliveries + warmed:
            raise BenchError(f"the simulators accepted {accepted} pushes of {deliveries + warmed}")
    bench.progress(f"pipeline: run {turn + 1}{' with log' if env else ''}: {result.text()}")
    return result


def sql_floor(bench: Bench, tool: pathlib.Path, calls: pathlib.Path, deliveries: int, turn: int) -> float:
    """The same deliveries, claimed and settled by the tool alone; how many a second."""
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


def report(bench: Bench, drains: list[Drain], floors: list[float], logged: list[Drain]) -> None:
    rates = [drain.settled_per_second for drain in drains]
    cpu = [drain.cpu_each for drain in drains]
    bench.result_median(
        "pipeline.committed_to_settled", rates, "deliveries/s", target=(">=", 40_000),
        note=f"{drains[0].deliveries:,} deliveries")
    unit = "µs a delivery"
    bench.result_median("pipeline.CPU_of_gateway", [of.gateway for of in cpu], unit, target=("<=", 10))
    bench.result_median("pipeline.CPU_of_Postgres", [of.postgres for of in cpu], unit)
    bench.result_median("pipeline.CPU_of_simulators", [of.simulators for of in cpu], unit)
    of_log = [with_log.cpu_each.gateway - without.gateway for with_log, without in zip(logged, cpu, strict=True)]
    note = "one line a delivery, level info; all other rows are without"
    bench.result_median("pipeline.CPU_of_gateway's_log", of_log, unit, note=note)
    bench.result_median(
        "pipeline.COPY_with_fan-out", [drain.deliveries / drain.copy_seconds for drain in drains], "deliveries/s")
    if floors:
        note = "claims and settles 500 at a time, sends nothing"
        bench.result_median("pipeline.SQL_floor", floors, "deliveries/s", note=note)
        ratios = [rate / floor for rate, floor in zip(rates, floors, strict=True)]
        bench.result_median("pipeline.ratio_to_SQL_floor", ratios, "×", target=(">=", 0.6))
