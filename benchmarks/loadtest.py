"""Runs `push-gateway-lab loadtest` and reads its output: latencies at a rate, of calls that were checked one by one."""

from __future__ import annotations

import dataclasses
import json
import time

from benchmarks.harness import Bench, BenchError, Database, Gateway, Process, Simulators


@dataclasses.dataclass
class Latency:
    """From the answer to the call's commit to the request at the provider; milliseconds."""

    p50: float
    p99: float
    p999: float
    p99_by_provider: dict[str, float]
    failed: int
    """Deliveries that no provider accepted in time: they have no latency."""


def load_test(
    bench: Bench, database: Database, gateway: Gateway, simulators: Simulators, *, rate: float, seconds: float,
    seed: int, app: str = "porteiro", devices: int = 3, mix: str | None = None,
) -> Latency:
    """Calls with this number of devices at a rate; fails if one was lost, sent twice, late, refused or not settled.

    The same `seed` makes the same arrivals. `mix` says how devices are spread over the providers: evenly, else. The load
    tester is always that of the new version: both versions are measured with the same.
    """
    arguments = [
        bench.lab_binary, "loadtest", "--rate", str(rate), "--duration", str(seconds), "--seed", str(seed),
        "--app", app, "--devices", str(devices), "--simulator-log", simulators.log, "--json",
        # What a benchmark's faults cost is a result, not an error.
        "--require", "failed<=100%"]
    if mix is not None:
        arguments += ["--mix", mix]
    with Process("loadtest", arguments, bench.directory, env={"DATABASE_URL": database.url}) as test:
        while test.exit_status is None:
            gateway.check()
            simulators.check()
            time.sleep(0.05)
        text = test.output.read_text()
        if not text:
            raise BenchError(f"the load test failed: {test.last_words()}")
        told = json.loads(text)
        if test.exit_status != 0:
            raise BenchError(f"the load test found: {told['verdict']}")
    return read(told)


def read(told: dict) -> Latency:
    """The latencies from the commit, from the load test's JSON, whose times are microseconds."""
    stages = {provider: of["commit_to_request"] for provider, of in told["latency_us"].items()}
    overall = stages.pop("all")
    return Latency(
        overall["p50"] / 1_000, overall["p99"] / 1_000, overall["p99.9"] / 1_000,
        {provider: of["p99"] / 1_000 for provider, of in stages.items()}, told["verdict"]["failed"])
