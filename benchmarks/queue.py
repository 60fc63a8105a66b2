"""The queue alone: how much a backend can enqueue in a second, and how much can be claimed and settled.

Claiming and settling is measured with three programs, in turn, in one database: pgbench and SQLFloor, a C loop over libpq,
which run the gateway's own SQL and nothing else, on one connection; and QueueLoad, the gateway's `PostgresOutbox` on its two
connections. The difference is the overhead of our code, or its gain from settling one batch while it claims the next.

SQLFloor sends and reads the same as the gateway: binary values, and the next claim before a batch is settled. pgbench waits
for every answer and cannot store rows: the claim's query returns them as arrays of text, and texts are sent back to be
settled (queue.sql). Its figure includes this work.

Enqueueing is measured in deliveries, three for each call: `push.enqueue_call` by pgbench, each call in a transaction of its
own, committed to the disk; `insert … select` of 500 calls; and COPY.
"""

from __future__ import annotations

import json
import math
import pathlib
import re
import time
from collections.abc import Sequence

from benchmarks.harness import Bench, BenchError, Database, run as run_program, write_calls
from benchmarks.processes import children_cpu_seconds

CALLS, SMALL_CALLS = 33_334, 2_000
DEVICES = 3
BATCH = 500
CLIENTS = 16
SCRIPT = pathlib.Path(__file__).with_name("queue.sql")
COLUMNS = "app, kind, payload, recipients, ring_seconds"

# pgbench replaces :name everywhere, even within quotes. Tokens are as long as the real ones.
SINGLE = """\\set call :call + 1
\\set digits 10000000 + :call
select deliveries, duplicate, skipped from push.enqueue_call(
  '{"callId": "single-:turn-:client_id-:call", "from": "5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d", "fromName": "Portaria", \
"apartmentNumber": "12", "buildingName": "Torre Norte", "channelName": "call-:call"}',
  '[{"userId": "ios-:call", "voipPushToken": "%s:digits", "platform": "ios"}, \
{"userId": "android-:call", "fcmToken": "single:digits-%s", "platform": "android"}, \
{"userId": "expo-:call", "pushToken": "ExponentPushToken[single-bench-:digits]", "platform": "android"}]',
  'porteiro', 600);
""" % ("5ca1ab1e" * 7, "APA91bBench" * 12)


def run(bench: Bench) -> None:
    with bench.database("queue") as database:
        claim_and_settle(bench, database)
    with bench.database("enqueue") as database:
        enqueue_single(bench, database)
        enqueue_batches(bench, database)


# --- Claiming and settling, and COPY before it ---


def claim_and_settle(bench: Bench, database: Database) -> None:
    calls = SMALL_CALLS if bench.small else CALLS
    floor, ours = tool(bench, "SQLFloor"), tool(bench, "QueueLoad")
    rivals = {"pgbench": lambda: pgbench(database), "SQLFloor": lambda: json.loads(run_program([floor, database.url])),
              "QueueLoad": lambda: json.loads(run_program([ours, database.url]))}
    rates: dict[str, list[float]] = {name: [] for name in rivals}
    cpu: dict[str, list[float]] = {name: [] for name in rivals}
    copies: list[float] = []
    total = 0
    # The first of each warm the caches up.
    for turn in range(bench.runs + 1):
        for name, claim_and_settle_all in rivals.items():
            path = bench.directory / "queue.tsv"
            deliveries = write_calls(path, calls, DEVICES, prefix=f"{name}-{turn}")
            database.sql("vacuum push.delivery", "vacuum push.outbox", "checkpoint")
            copied = deliveries / database.copy_calls(path).seconds
            told = claim_and_settle_all()
            total += deliveries
            if told["deliveries"] != deliveries:
                raise BenchError(f"{name} settled {told['deliveries']} deliveries of {deliveries}")
            if turn == 0:
                continue
            copies.append(copied)
            rates[name].append(told["per_second"])
            cpu[name].append(told["cpu_seconds"] * 1e6 / deliveries)
            bench.progress(f"queue: run {turn}, {name}: {told['per_second']:,.0f} deliveries/s, "
                           f"{cpu[name][-1]:.1f} µs of its own CPU each")
    check_history(database, total)
    bench.result_median(
        "queue.pgbench_per_second", rates["pgbench"], "deliveries/s", note="the same SQL, arrays as text, one connection")
    bench.result_median(
        "queue.sql_floor_per_second", rates["SQLFloor"], "deliveries/s", note="C and libpq, one connection")
    bench.result_median(
        "queue.ours_per_second", rates["QueueLoad"], "deliveries/s", note="PostgresOutbox, two connections")
    bench.result_median("queue.ratio", ratios(rates["QueueLoad"], rates["SQLFloor"]), "×", note="to C and libpq")
    bench.result_median("queue.ratio_to_pgbench", ratios(rates["QueueLoad"], rates["pgbench"]), "×")
    bench.result_median("queue.pgbench_CPU", cpu["pgbench"], "µs a delivery", note="of the client alone")
    bench.result_median("queue.sql_floor_CPU", cpu["SQLFloor"], "µs a delivery", note="of the client alone")
    bench.result_median("queue.ours_CPU", cpu["QueueLoad"], "µs a delivery", note="of the client alone")
    bench.result_median("queue.enqueue_COPY", copies, "deliveries/s", note=f"{calls:,} calls in one transaction")


def pgbench(database: Database) -> dict[str, float]:
    """Claims and settles all deliveries, with the settings of the gateway's sessions; prints what the other programs print."""
    owed = database.owed()
    gateway = database.number("select push.register_gateway('pgbench', 'benchmark')")
    # Release 0.1.0 claims nothing before the first heartbeat of a gateway.
    database.sql(f"select push.beat({gateway}, false)")
    lanes = database.sql("select id from push.lane order by id").split()
    expo = database.number("select id from push.lane where provider = 'expo'")
    # Towards the end a claim returns less, because the limit of each lane is set before the claim.
    batches = math.ceil(owed / BATCH) + 2
    variables = {
        "gateway": gateway, "claim": 0, "expo": expo, "batch": BATCH, "lanes": array(lanes), "limits": array([BATCH] * len(lanes)),
        "floors": array(["-infinity"] * len(lanes))}
    before = children_cpu_seconds()
    output = run_program([
        database.cluster.program_directory / "pgbench", "--no-vacuum", "--protocol=prepared", f"--file={SCRIPT}",
        f"--transactions={batches}", *(f"--define={name}={value}" for name, value in variables.items()), database.url],
        env={"PGOPTIONS": "-c synchronous_commit=off -c jit=off"})
    used = children_cpu_seconds() - before
    database.sql(f"select push.retire_gateway({gateway})")
    rate = re.search(r"tps = ([\d.]+)", output)
    if rate is None:
        raise BenchError(f"pgbench did not say how long it took: {output[-1000:]}")
    seconds = batches / float(rate.group(1))
    settled = owed - database.owed()
    return {"deliveries": settled, "per_second": settled / seconds, "cpu_seconds": used}


def array(values: Sequence[object]) -> str:
    """As Postgres writes an array in text."""
    return "{" + ",".join(map(str, values)) + "}"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def tool(bench: Bench, name: str) -> pathlib.Path:
    program = bench.tool(name)
    if program is None:
        raise BenchError(f"there is no program {bench.tools / name}: swift build -c release --package-path benchmarks")
    return program


def check_history(database: Database, deliveries: int) -> None:
    """Everything was settled, and once."""
    rows, keys = database.sql(
        "select count(*), count(distinct (outbox_id, n)) filter (where outcome = 0) from push.history").split("|")
    if (int(rows), int(keys), database.owed()) != (deliveries, deliveries, 0):
        raise BenchError(f"of {deliveries} deliveries {keys} were settled, in {rows} rows; {database.owed()} are owed")


# --- Enqueueing ---


def enqueue_single(bench: Bench, database: Database) -> None:
    script = bench.directory / "single.sql"
    script.write_text(SINGLE)
    seconds = 1 if bench.small else 5
    for clients in (1, CLIENTS):
        rates = []
        for turn in range(bench.runs):
            before = database.owed()
            database.sql("checkpoint")
            run_program([
                database.cluster.program_directory / "pgbench", "--no-vacuum", f"--file={script}",
                f"--client={clients}", f"--jobs={min(2, clients)}", f"--time={seconds}",
                f"--define=turn={clients}{turn}", "--define=call=0", database.url])
            made = database.owed() - before
            calls = database.number(f"select count(*) from push.outbox where call_id like 'single-{clients}{turn}-%'")
            if calls == 0 or made != calls * DEVICES:
                raise BenchError(f"{calls} calls, one by one, made {made} deliveries instead of {calls * DEVICES}")
            rates.append(made / seconds)
        bench.result_median(
            f"queue.enqueue_single_{clients}", rates, "deliveries/s",
            note=f"enqueue_call by {clients} client{'s' if clients > 1 else ''}, each call committed to the disk")


def enqueue_batches(bench: Bench, database: Database) -> None:
    """Calls lie in a table; a backend has them in memory."""
    batches = 4 if bench.small else 40
    path = bench.directory / "batches.tsv"
    rates = []
    for turn in range(bench.runs):
        deliveries = write_calls(path, batches * BATCH, DEVICES, prefix=f"batch-{turn}")
        database.sql(
            "drop table if exists calls",
            "create unlogged table calls (number int generated always as identity (minvalue 0) primary key, "
            "app text, kind text, payload jsonb, recipients jsonb, ring_seconds int)",
            f"\\copy calls ({COLUMNS}) from '{path}'", "analyze calls", "checkpoint")
        script = bench.directory / "batches.sql"
        script.write_text("".join(
            f"insert into push.outbox ({COLUMNS}) select {COLUMNS} from calls "
            f"where number >= {batch * BATCH} and number < {(batch + 1) * BATCH};\n" for batch in range(batches)))
        before = database.owed()
        start = time.monotonic()
        database.script(script)
        took = time.monotonic() - start
        if database.owed() - before != deliveries:
            raise BenchError(f"batches made {database.owed() - before} deliveries instead of {deliveries}")
        rates.append(deliveries / took)
    bench.result_median(
        "queue.enqueue_batch", rates, "deliveries/s",
        note=f"insert … select of {BATCH} calls, each batch committed to the disk")
