"""Measures the cost of enqueueing in the backend's transaction.

*Fan-out*: compares calls inserted into `push.outbox`, with the checks and the fan-out of its triggers, with bare inserts:
the same rows into tables with the same columns, constraints and indexes, but without triggers, one statement for calls
and one for deliveries. The cost is CPU of the server process, as the kernel counts it (/proc/self/schedstat). Both take
turns in one session, over batches of 500 calls.

*One call*: `push.enqueue_call` for three devices in a transaction of its own, timed inside the server, without the
commit.
"""

from __future__ import annotations

import pathlib

from benchmarks.harness import Bench, BenchError, Database, write_calls

BATCH = 500
SQL = pathlib.Path(__file__).with_name("enqueue.sql")


def run(bench: Bench) -> None:
    batches, singles = (4, 200) if bench.small else (40, 5_000)
    path = bench.directory / "enqueue.tsv"
    deliveries = write_calls(path, batches * BATCH + singles)
    with bench.database("enqueue") as database:
        told = database.script(SQL, calls=path, batch=BATCH, batches=batches, singles=singles)
        check(database, deliveries, batches * BATCH * deliveries // (batches * BATCH + singles))
    rows = dict(line.split("|", 1) for line in told.splitlines())
    bare, ours, ratio = (float(value) for value in rows["fan_out"].split("|"))
    p50, p99 = (float(value) for value in rows["single"].split("|"))
    bench.result("enqueue.bare_inserts", bare, "µs a delivery", note="CPU of the server")
    bench.result("enqueue.with_fan_out", ours, "µs a delivery", note="CPU of the server")
    bench.result("enqueue.fan_out_adds", ratio - 1, "× bare inserts", target=("<=", 2.0))
    bench.result(
        "enqueue.single_p50", p50, "ms", target=("<=", 1.0),
        note="one call, three devices, its own transaction, without the commit")
    bench.result("enqueue.single_p99", p99, "ms")


def check(database: Database, ours: int, bare: int) -> None:
    found = database.sql("select (select count(*) from push.delivery), (select count(*) from bare.delivery)")
    if found != f"{ours}|{bare}":
        raise BenchError(f"{ours}|{bare} deliveries should have been made, with fan-out and bare; there are {found}")
