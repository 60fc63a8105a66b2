"""One database against three that one gateway serves together, with the same calls: what a shard costs.

All databases are in one cluster on the same machine, so the throughput says nothing; the cost of a delivery does. Both cases take
turns, each with fresh databases, a fresh gateway and fresh simulators. CPU of Postgres is that of all processes of the cluster.
"""

from __future__ import annotations

import contextlib
import functools
import pathlib
from collections.abc import Sequence

from benchmarks.drain import Cost, Meter
from benchmarks.harness import Bench, BenchError, Database, Gateway, Simulators, write_calls

CALLS, SMALL_CALLS = 33_333, 1_998
WARM_CALLS = 498
TURNS, SMALL_TURNS = 5, 1
SHARDS = 3


def run(bench: Bench) -> None:
    calls = SMALL_CALLS if bench.small else CALLS
    costs: dict[int, list[Cost]] = {1: [], SHARDS: []}
    for turn in range(SMALL_TURNS if bench.small else TURNS):
        # The case that comes second finds a warmer machine: they take turns in being first.
        for shards in (1, SHARDS) if turn % 2 == 0 else (SHARDS, 1):
            cost = settle(bench, shards, calls)
            costs[shards].append(cost)
            bench.progress(
                f"shards: run {turn + 1}, {shards} database{'s' if shards > 1 else ''}: CPU of gateway, Postgres, simulators "
                f"{cost.gateway:.1f}, {cost.postgres:.1f}, {cost.simulators:.1f} µs a delivery")
    for shards, found in costs.items():
        bench.result_median(f"shards.CPU_of_all_processes_with_{shards}", [cost.all for cost in found], "µs a delivery")
    bench.compare(
        "shards.cost_of_three_to_one", [cost.all for cost in costs[SHARDS]], [cost.all for cost in costs[1]],
        target=("<=", 1.05))


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
        files = [bench.directory / f"shard{number}.tsv" for number in range(shards)]
        deliver(databases, gateway, simulators, files, WARM_CALLS // shards, "warm")
        databases[0].sql("checkpoint")
        meter = Meter(databases[0], [gateway], simulators, databases[0].wal_bytes())
        deliveries = deliver(databases, gateway, simulators, files, calls // shards, "calls")
        return meter.read().of_each(deliveries)


def deliver(
    databases: Sequence[Database], gateway: Gateway, simulators: Simulators, files: Sequence[pathlib.Path], calls: int,
    prefix: str,
) -> int:
    """Commits so many calls in each database, and waits until all are settled. Returns the number of deliveries."""
    deliveries = 0
    before = [database.outcomes() for database in databases]
    for number, (database, file) in enumerate(zip(databases, files, strict=True)):
        deliveries += write_calls(file, calls, prefix=f"{prefix}{number}", token_prefix=f"{prefix}{number}")
        database.copy_calls(file)
    for database in databases:
        database.wait_until_settled([gateway, simulators])
    settled = sum(
        sum(database.outcomes().values()) - sum(was.values()) for database, was in zip(databases, before, strict=True))
    if settled != deliveries or any(set(database.outcomes()) != {"delivered"} for database in databases):
        raise BenchError(f"{deliveries} deliveries should have been delivered; {settled} were settled")
    return deliveries
