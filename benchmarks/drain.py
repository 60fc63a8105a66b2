"""One drain: calls committed by one COPY until all their deliveries are settled, checked and timed."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence

from benchmarks.harness import BenchError, Database, Gateway, Simulators


@dataclasses.dataclass
class Cost:
    """User and system seconds of each part, and bytes of write-ahead log."""

    gateway: float
    """All replicas."""
    postgres: float
    """All processes of the server."""
    simulators: float
    wal_bytes: float

    @property
    def all(self) -> float:
        """CPU seconds of all processes."""
        return self.gateway + self.postgres + self.simulators

    def of_each(self, deliveries: int) -> Cost:
        """Microseconds and bytes a delivery."""
        micro = 1e6 / deliveries
        return Cost(self.gateway * micro, self.postgres * micro, self.simulators * micro, self.wal_bytes / deliveries)


class Meter:
    """CPU of gateways, Postgres and simulators since this was created, and write-ahead log since the given number of bytes."""

    def __init__(
        self, database: Database, gateways: Sequence[Gateway], simulators: Simulators, wal_bytes: int
    ) -> None:
        self._database, self._gateways, self._simulators = database, gateways, simulators
        self._start = Cost(*self._seconds(), wal_bytes)

    def read(self) -> Cost:
        now = Cost(*self._seconds(), self._database.wal_bytes())
        parts = zip(dataclasses.astuple(now), dataclasses.astuple(self._start), strict=True)
        return Cost(*(at_end - at_start for at_end, at_start in parts))

    def _seconds(self) -> tuple[float, float, float]:
        return (sum(gateway.cpu_seconds() for gateway in self._gateways), self._database.cpu_seconds(),
                self._simulators.cpu_seconds())


@dataclasses.dataclass
class Drain:
    """The result of a drain."""

    deliveries: int
    copy_seconds: float
    seconds: float
    cost: Cost
    gateway_peak_rss: int
    """Of the largest replica."""

    @property
    def settled_per_second(self) -> float:
        return self.deliveries / self.seconds

    @property
    def cost_each(self) -> Cost:
        """Microseconds and bytes a delivery."""
        return self.cost.of_each(self.deliveries)

    def text(self) -> str:
        cost = self.cost_each
        return (
            f"{self.settled_per_second:,.0f} deliveries/s, CPU of gateway, Postgres, simulators {cost.gateway:.1f}, "
            f"{cost.postgres:.1f}, {cost.simulators:.1f} µs and {cost.wal_bytes:,.0f} bytes of WAL a delivery")


def drain(
    database: Database, gateways: Sequence[Gateway], simulators: Simulators, calls: pathlib.Path, deliveries: int
) -> Drain:
    """Commits the calls and waits; fails unless every delivery was settled as delivered.

    Time and costs count from the commit on: nothing of a COPY is seen before.
    """
    start = database.now()
    for gateway in gateways:
        gateway.reset_peak_rss()
    copied = database.copy_calls(calls)
    meter = Meter(database, gateways, simulators, copied.wal_bytes)
    seconds = database.wait_until_settled([*gateways, simulators])
    cost = meter.read()
    settled = database.outcomes(since=start)
    if settled != {"delivered": deliveries}:
        raise BenchError(f"{deliveries} deliveries should have been delivered; settled were {settled}")
    return Drain(deliveries, copied.seconds, seconds, cost, max(gateway.peak_rss_bytes() for gateway in gateways))
