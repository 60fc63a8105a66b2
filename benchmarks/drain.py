"""One drain: calls committed by one COPY until all their deliveries are settled, checked and timed."""

from __future__ import annotations

import dataclasses
import pathlib

from benchmarks.harness import BenchError, Database, Gateway, Simulators


@dataclasses.dataclass
class CPU:
    """User and system seconds of each part."""

    gateway: float
    postgres: float
    simulators: float


class Meter:
    """CPU of gateway, Postgres and simulators since it was made."""

    def __init__(self, database: Database, gateway: Gateway, simulators: Simulators) -> None:
        self._parts = (gateway, database, simulators)
        self._start = [part.cpu_seconds() for part in self._parts]

    def read(self) -> CPU:
        return CPU(*(part.cpu_seconds() - start for part, start in zip(self._parts, self._start, strict=True)))


@dataclasses.dataclass
class Drain:
    """What it took; `cpu` is seconds."""

    deliveries: int
    copy_seconds: float
    seconds: float
    cpu: CPU
    gateway_peak_rss: int

    @property
    def settled_per_second(self) -> float:
        return self.deliveries / self.seconds

    @property
    def cpu_each(self) -> CPU:
        """Microseconds a delivery."""
        return CPU(*(seconds * 1e6 / self.deliveries for seconds in dataclasses.astuple(self.cpu)))

    def text(self) -> str:
        cpu = self.cpu_each
        return (
            f"{self.settled_per_second:,.0f} deliveries/s, CPU of gateway, Postgres, simulators {cpu.gateway:.1f}, "
            f"{cpu.postgres:.1f}, {cpu.simulators:.1f} µs a delivery")


def drain(
    database: Database, gateway: Gateway, simulators: Simulators, calls: pathlib.Path, deliveries: int
) -> Drain:
    """Commits the calls and waits; fails unless every delivery was settled as delivered.

    Time and CPU count from the commit on: nothing of a COPY is seen before.
    """
    start = database.now()
    gateway.reset_peak_rss()
    copy_seconds = database.copy_calls(calls)
    meter = Meter(database, gateway, simulators)
    seconds = database.wait_until_settled([gateway, simulators])
    cpu = meter.read()
    settled = database.outcomes(since=start)
    if settled != {"delivered": deliveries}:
        raise BenchError(f"{deliveries} deliveries should have been delivered; settled were {settled}")
    return Drain(deliveries, copy_seconds, seconds, cpu, gateway.peak_rss_bytes())
