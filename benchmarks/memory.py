"""Resident memory of the gateway: idle, at 100,000 pending deliveries, and over a soak.

The deliveries are pending once while they drain, and once because no provider answers: the gateway holds at most its lanes'
windows, however many deliveries are owed. The soak sends the deliveries of one hour of 200 calls/s with three devices as
fast as possible, each with its own call, user and token.
"""

from __future__ import annotations

import dataclasses
import threading
import time

from benchmarks.drain import drain
from benchmarks.harness import Bench, BenchError, Database, Gateway, Process, Simulators, write_calls

MB = 10**6
PENDING_CALLS, SMALL_PENDING_CALLS = 33_334, 5_000
PENDING_SECONDS, SMALL_PENDING_SECONDS = 30, 5
SETTLED_CALLS = 1_000
SOAK_CALLS, SMALL_SOAK_CALLS = 200 * 3_600, 16_667
CHUNK_CALLS = 20_000
HANGS = [{"provider": provider, "action": "hang"} for provider in ("apns", "fcm", "expo")]


def run(bench: Bench) -> None:
    with bench.database("memory") as database, bench.simulators(log=False) as simulators:
        with bench.gateway(database, simulators) as gateway:
            idle(bench, database, gateway, simulators)
            draining(bench, database, gateway, simulators)
    with bench.database("memory") as database, bench.simulators(HANGS, log=False) as simulators:
        with bench.gateway(database, simulators) as gateway:
            pending(bench, database, gateway)
    with bench.database("memory") as database, bench.simulators(log=False) as simulators:
        with bench.gateway(database, simulators) as gateway:
            soak(bench, database, gateway)
        expected = 3 * (SMALL_SOAK_CALLS if bench.small else SOAK_CALLS)
        if (accepted := simulators.accepted()) != expected:
            raise BenchError(f"the simulators accepted {accepted} pushes of {expected}")


def idle(bench: Bench, database: Database, gateway: Gateway, simulators: Simulators) -> None:
    time.sleep(2)  # its first look at everything
    bench.result("memory.idle_after_start", gateway.rss_bytes() / MB, "MB", target=("<=", 60))
    path = bench.directory / "memory.tsv"
    drain(database, [gateway], simulators, path, write_calls(path, SETTLED_CALLS))
    time.sleep(2)
    note = f"{SETTLED_CALLS:,} calls settled"
    bench.result("memory.idle_after_use", gateway.rss_bytes() / MB, "MB", target=("<=", 60), note=note)


def draining(bench: Bench, database: Database, gateway: Gateway, simulators: Simulators) -> None:
    """The peak from the commit of a backlog to the end of its drain."""
    path = bench.directory / "memory.tsv"
    deliveries = write_calls(path, SMALL_PENDING_CALLS if bench.small else PENDING_CALLS, prefix="drained")
    peak = drain(database, [gateway], simulators, path, deliveries).gateway_peak_rss
    bench.result("memory.peak_while_draining", peak / MB, "MB", target=("<=", 150), note=f"{deliveries:,} deliveries")


def pending(bench: Bench, database: Database, gateway: Gateway) -> None:
    """The peak while deliveries are owed that no provider answers."""
    path = bench.directory / "memory.tsv"
    deliveries = write_calls(path, SMALL_PENDING_CALLS if bench.small else PENDING_CALLS)
    database.copy_calls(path)
    with Sampler(gateway) as sampler:
        time.sleep(SMALL_PENDING_SECONDS if bench.small else PENDING_SECONDS)
    gateway.check()
    if (owed := database.owed()) != deliveries:
        raise BenchError(f"{owed} deliveries are owed, not {deliveries}, although no provider answers")
    bench.result(
        "memory.peak_while_pending", max(gateway.peak_rss_bytes(), *sampler.values()) / MB, "MB", target=("<=", 150),
        note=f"{deliveries:,} deliveries that no provider answers")


def soak(bench: Bench, database: Database, gateway: Gateway) -> None:
    """An hour's deliveries, in chunks: the next is written while the gateway sends the one before.

    soak.csv has every sample: seconds, bytes.
    """
    calls = SMALL_SOAK_CALLS if bench.small else SOAK_CALLS
    chunk = min(CHUNK_CALLS, calls // 8)
    path = bench.directory / "memory.tsv"
    start = time.monotonic()
    with Sampler(gateway) as sampler:
        for first in range(0, calls, chunk):
            write_calls(path, min(chunk, calls - first), prefix="soak", first=first)
            database.copy_calls(path)
            # One chunk may be owed while the next is created, so that the gateway always has work.
            gateway.wait_until(lambda: database.owed() < 3 * chunk, "catching up", seconds=300, every=0.1)
        database.wait_until_settled([gateway])
    seconds = time.monotonic() - start
    outcomes = database.outcomes()
    if outcomes != {"delivered": 3 * calls}:
        raise BenchError(f"{3 * calls} deliveries should have been delivered; settled were {outcomes}")
    file = bench.directory / "soak.csv"
    file.write_text("".join(f"{sample.at - start:.1f},{sample.rss}\n" for sample in sampler.samples))
    report_soak(bench, sampler.samples, 3 * calls, seconds)


def report_soak(bench: Bench, samples: list[Sample], deliveries: int, seconds: float) -> None:
    begin, end = samples[0].at, samples[-1].at
    quarters = [[sample.rss for sample in samples if quarter <= 4 * (sample.at - begin) / (end - begin) <= quarter + 1]
                for quarter in range(4)]
    if not all(quarters):
        raise BenchError("the soak was too short to tell anything")
    medians = [bench.median(quarter) for quarter in quarters]
    bench.result(
        "memory.soak_peak", max(sample.rss for sample in samples) / MB, "MB",
        note=f"{deliveries:,} deliveries at {deliveries / seconds:,.0f}/s")
    bench.result("memory.soak_second_quarter", medians[1] / MB, "MB")
    bench.result("memory.soak_last_quarter", medians[3] / MB, "MB")
    bench.result("memory.soak_last_to_second_quarter", medians[3] / medians[1], "×", target=("<=", 1.05))
    settled_in = [sample for sample in samples if 4 * (sample.at - begin) >= end - begin]
    bench.result(
        "memory.soak_slope", slope(settled_in) / MB * (end - begin), "MB a soak",
        note="straight line through all but the first quarter")


@dataclasses.dataclass
class Sample:
    """Resident bytes at a time of the monotonic clock."""

    at: float
    rss: int


def slope(samples: list[Sample]) -> float:
    """Bytes a second, by least squares."""
    mean_at = sum(sample.at for sample in samples) / len(samples)
    mean_rss = sum(sample.rss for sample in samples) / len(samples)
    spread = sum((sample.at - mean_at) ** 2 for sample in samples)
    together = sum((sample.at - mean_at) * (sample.rss - mean_rss) for sample in samples)
    return together / spread if spread else 0.0


class Sampler:
    """Samples a process's resident memory ten times a second during a `with` block."""

    def __init__(self, process: Process) -> None:
        self.samples: list[Sample] = []
        self._process = process
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def values(self) -> list[int]:
        return [sample.rss for sample in self.samples]

    def _sample(self) -> None:
        try:
            while True:
                self.samples.append(Sample(time.monotonic(), self._process.rss_bytes()))
                if self._stop.wait(0.1):
                    return
        except BenchError:
            return  # it has ended; the code that waits for it reports this
