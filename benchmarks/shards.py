"""One database against three that one gateway serves together, with the same calls: what a shard costs.

All databases are in one cluster on the same machine, so the throughput says nothing; the cost of a delivery does. Both cases take
turns, each with fresh databases, a fresh gateway and fresh simulators. Each run with three databases is compared with the mean of
the runs with one before and after it, which compensates for a machine that becomes slower or faster meanwhile. Both cases run the
same statements in the same order: three COPYs of a third of the calls each. The gateway delivers what is committed during the next
COPY, and work that runs beside other work costs more CPU. What is delivered before the measurement is enough to fill the caches
and plans of each database's connections. CPU of Postgres is that of all processes of the cluster.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import pathlib
from collections.abc import Sequence

from benchmarks.drain import Cost, Meter
from benchmarks.harness import Bench, BenchError, Database, write_calls
from benchmarks.processes import Process

CALLS, SMALL_CALLS = 66_666, 1_998
WARM_CALLS = 9_999
TURNS, SMALL_TURNS = 9, 1
SHARDS = 3


def run(bench: Bench) -> None:
    calls = SMALL_CALLS if bench.small else CALLS
    one, three = [measure(bench, 1, calls)], []
    for _ in range(SMALL_TURNS if bench.small else TURNS):
        three.append(measure(bench, SHARDS, calls))
        one.append(measure(bench, 1, calls))
    bench.result_median("shards.CPU_of_all_processes_with_1", one, "µs a delivery")
    bench.result_median(f"shards.CPU_of_all_processes_with_{SHARDS}", three, "µs a delivery")
    around = [(before + after) / 2 for before, after in itertools.pairwise(one)]
    bench.compare("shards.cost_of_three_to_one", three, around, target=("<=", 1.05))


def measure(bench: Bench, shards: int, calls: int) -> float:
    """CPU of all processes in one run, in microseconds a delivery."""
    cost = settle(bench, shards, calls)
    bench.progress(
        f"shards: {shards} database{'s' if shards > 1 else ''}: CPU of gateway, Postgres, simulators "
        f"{cost.gateway:.1f}, {cost.postgres:.1f}, {cost.simulators:.1f} µs a delivery")
    return cost.all


def settle(bench: Bench, shards: int, calls: int) -> Cost:
    """One run from the beginning; microseconds a delivery."""
    with contextlib.ExitStack() as stack:
        databases = [stack.enter_context(bench.database(f"shard{number}")) for number in range(shards)]
        simulators = stack.enter_context(bench.simulators(log=False))
        # An empty variable counts as none: DATABASE_URL cannot be combined with several databases.
        env = {"DATABASE_URL": ""} | {
            f"PUSH_GATEWAY_DATABASES_N{number}_URL": database.url for number, database in enumerate(databases)}
        gateway = stack.enter_context(bench.gateway(databases[0], simulators, env if shards > 1 else None))
        for database in databases:
            alive = functools.partial(database.number, "select count(*) from push.gateways where alive")
            gateway.wait_until(lambda is_alive=alive: is_alive() > 0, "serving every database")
        files = [bench.directory / f"shard{number}.tsv" for number in range(SHARDS)]
        processes = [gateway, simulators]
        warm = write_all(files, WARM_CALLS, "warm")
        commit(databases, files)
        wait_until_delivered(databases, processes, warm)
        deliveries = write_all(files, calls, "call")
        databases[0].sql("checkpoint")
        meter = Meter(databases[0], [gateway], simulators, databases[0].wal_bytes())
        commit(databases, files)
        for database in databases:
            database.wait_until_settled(processes)
        cost = meter.read()
        wait_until_delivered(databases, processes, warm + deliveries)
        return cost.of_each(deliveries)


def write_all(files: Sequence[pathlib.Path], calls: int, prefix: str) -> int:
    """Writes an equal part of so many calls into each file. Returns the number of deliveries."""
    return sum(
        write_calls(file, calls // len(files), prefix=f"{prefix}{number}-", token_prefix=f"{prefix}{number}")
        for number, file in enumerate(files))


def commit(databases: Sequence[Database], files: Sequence[pathlib.Path]) -> None:
    """One COPY for each file, to each database in turn."""
    for database, file in zip(itertools.cycle(databases), files, strict=False):
        database.copy_calls(file)


def wait_until_delivered(databases: Sequence[Database], processes: Sequence[Process], deliveries: int) -> None:
    """Waits until nothing is owed; fails unless so many deliveries were settled, all as delivered."""
    outcomes: collections.Counter[str] = collections.Counter()
    for database in databases:
        database.wait_until_settled(processes)
        outcomes.update(database.outcomes())
    if outcomes != {"delivered": deliveries}:
        raise BenchError(f"{deliveries} deliveries should have been delivered; settled were {dict(outcomes)}")
