"""Compares calls over the HTTP API with calls over SQL, each durable when it is answered.

64 connections post calls as fast as they are answered; 16 connections to Postgres call `push.enqueue_call`, with a commit
each. They take turns, each with a fresh database. No gateway serves the calls' app, so only enqueueing is measured. Then one
connection alone measures the latency of a single call.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import re

from benchmarks.harness import Bench, BenchError, free_port, run as run_program
from benchmarks.database import psql_program

CONNECTIONS, SQL_CLIENTS = 64, 16
APP = "elsewhere"
LUA = pathlib.Path(__file__).with_name("api.lua")
PAYLOAD = {
    "from": "5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d", "fromName": "Portaria", "apartmentNumber": "101",
    "buildingName": "Torre Norte", "metadata": {"schemaVersion": 1, "clientVersion": "1.4.2"},
}
RECIPIENTS = [
    {"userId": "ana", "voipPushToken": f"{7:064x}", "platform": "ios"},
    {"userId": "bruno", "fcmToken": "bench:APA91bBench" + "0" * 120, "platform": "android"},
]


def run(bench: Bench) -> None:
    seconds = 3 if bench.small else 15
    sql, http, lone = [], [], []
    for turn in range(bench.runs):
        measures = [lambda: sql.append(over_sql(bench, seconds)), lambda: http.append(over_http(bench, seconds, CONNECTIONS))]
        for measure in measures if turn % 2 == 0 else measures[::-1]:
            measure()
        lone.append(over_http(bench, seconds / 3, 1))
        bench.progress(f"api: run {turn + 1}: {http[-1]['rate']:,.0f} calls/s over HTTP (p99 {http[-1]['p99']:.1f} ms), {sql[-1]:,.0f} "
            f"over SQL")
    bench.result_median("api.sql_calls", sql, "calls/s", note=f"{SQL_CLIENTS} connections, a commit each")
    bench.result_median("api.http_calls", [of["rate"] for of in http], "calls/s", note=f"{CONNECTIONS} connections of one key")
    bench.result_median(
        "api.http_to_sql", [of["rate"] / other for of, other in zip(http, sql, strict=True)], "×", target=(">=", 3.0))
    bench.result_median("api.p50", [of["p50"] for of in http], "ms")
    bench.result_median("api.p99", [of["p99"] for of in http], "ms", target=("<=", 30.0))
    bench.result_median("api.lone_p50", [of["p50"] for of in lone], "ms", note="one connection: a commit each")
    bench.result_median("api.lone_p99", [of["p99"] for of in lone], "ms")


def over_sql(bench: Bench, seconds: float) -> float:
    """Calls a second."""
    script = bench.directory / "api.pgbench"
    payload = json.dumps(PAYLOAD)
    # To pgbench, a colon before a letter begins a variable.
    recipients = json.dumps(RECIPIENTS).replace(":A", "\\u003aA")
    script.write_text(
        f"select from push.enqueue_call(jsonb_build_object('callId', gen_random_uuid()) || '{payload}', "
        f"'{recipients}', '{APP}');\n")
    pgbench = pathlib.Path(psql_program()).resolve().with_name("pgbench")
    with bench.database("api") as database:
        database.sql(f"select push.register_app('{APP}', 60)")
        told = run_program([
            pgbench if pgbench.exists() else "pgbench", "--no-vacuum", "--client", str(SQL_CLIENTS), "--jobs", "2", "--protocol",
            "prepared", "--time", str(int(seconds)), "--file", script, database.url])
        found = re.search(r"tps = ([0-9.]+)", told)
        done = re.search(r"transactions actually processed: (\d+)", told)
        if not found or not done or "failed transactions: 0 " not in told:
            raise BenchError(f"pgbench says: {told}")
        if database.number("select count(*) from push.outbox") != int(done[1]):
            raise BenchError("not every transaction enqueued a call")
    return float(found[1])


def over_http(bench: Bench, seconds: float, connections: int) -> dict[str, float]:
    """Calls a second, and how long they took in milliseconds."""
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(bench.database("api"))
        simulators = stack.enter_context(bench.simulators())
        address = f"127.0.0.1:{free_port()}"
        stack.enter_context(bench.gateway(database, simulators, {
            "PUSH_GATEWAY_API_ENABLED": "true", "PUSH_GATEWAY_API_LISTEN": address,
            "PUSH_GATEWAY_API_RATE_PER_SECOND": "1000000", "PUSH_GATEWAY_API_BUSY_AFTER_SECONDS": "600"}))
        database.sql(f"select push.register_app('{APP}', 60)")
        key = database.sql(f"select key from push.create_api_key('{APP}', 'benchmark')")
        told = run_program([
            "wrk", "--threads", "1", "--connections", str(connections), "--duration", f"{max(1, int(seconds))}s", "--script",
            LUA, f"http://{address}/v1/calls", "--", key, json.dumps(PAYLOAD)[1:], json.dumps(RECIPIENTS)])
        figures = json.loads(told.splitlines()[-1])
        if figures["errors"] > 0:
            raise BenchError(f"{figures['errors']} requests failed: {told}")
        made = database.number("select count(*) from push.outbox")
        # wrk does not count the requests that are pending when it ends.
        if not figures["requests"] <= made <= figures["requests"] + connections:
            raise BenchError(f"{figures['requests']} calls were answered with 202, and {made} are there")
    return figures
