"""What became of every job of a run, from its ledger; and times with bounded memory.

A ledger is a file of lines that every process of a run appends to, each line by one write. So nothing that a process has
written is lost when it is killed.

    e FIRST COUNT                the database has confirmed the commit of this many jobs, numbered from FIRST on
    d NUMBER ENQUEUED STARTED    the work of a job is done; when it was enqueued and when its work began (µs since 1970)

A job is lost if its commit was confirmed and its work is not done when the run ends.
"""

from __future__ import annotations

import bisect
import collections
import dataclasses
import math
import os
import pathlib
from collections.abc import Iterable, Iterator

CONFIRMED, DONE = 1, 2


class Histogram:
    """Times in microseconds, in buckets whose bounds are 0.1 % apart: three significant figures, at most 25,000 buckets."""

    _WIDTH = math.log(1.001)
    _LONGEST = 10**10

    def __init__(self) -> None:
        self.count = 0
        self._buckets: collections.Counter[int] = collections.Counter()

    def add(self, microseconds: float) -> None:
        clipped = min(max(microseconds, 1), self._LONGEST)
        self._buckets[round(math.log(clipped) / self._WIDTH)] += 1
        self.count += 1

    def merge(self, other: Histogram) -> None:
        self._buckets.update(other._buckets)
        self.count += other.count

    def percentile(self, percent: float) -> float | None:
        """The time that this share of all do not exceed; None if there are no times."""
        rank = math.ceil(self.count * percent / 100)
        seen = 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return math.exp(bucket * self._WIDTH)
        return None


@dataclasses.dataclass
class Phase:
    """The jobs whose work began in one phase of a run."""

    name: str
    began_at: int
    """Microseconds since 1970."""
    ended_at: int | None = None
    pickup: Histogram = dataclasses.field(default_factory=Histogram)
    """From the enqueueing of a job to the beginning of its work. Repetitions do not count."""

    @property
    def jobs_per_second(self) -> float:
        if self.ended_at is None or self.ended_at <= self.began_at:
            return 0.0
        return self.pickup.count * 1e6 / (self.ended_at - self.began_at)


class Account:
    """The state of every job, from the lines of a ledger in any order. A byte for each job."""

    def __init__(self, began_at: int = 0) -> None:
        self.confirmed = 0
        self.done = 0
        """Jobs whose work is done, whether confirmed or not."""
        self.repeated = 0
        """How many times the work of a job was done again."""
        self.open = 0
        """Confirmed jobs whose work is not done; when the run has ended, they are lost."""
        self.phases = [Phase("start", began_at)]
        self._states = bytearray()

    def begin(self, name: str, at: int) -> None:
        """Ends the current phase and begins another; every line about work that began before `at` has been written by then."""
        self.phases[-1].ended_at = at
        self.phases.append(Phase(name, at))

    def phase(self, name: str) -> Phase:
        return next(phase for phase in self.phases if phase.name == name)

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            kind, *numbers = line.split()
            if kind == "e":
                first, count = map(int, numbers)
                for number in range(first, first + count):
                    self._confirm(number)
            elif kind == "d":
                self._finish(*map(int, numbers))
            else:
                raise ValueError(f"no line of a ledger: {line!r}")

    def _confirm(self, number: int) -> None:
        self.confirmed += 1
        if not self._add(number, CONFIRMED) & DONE:
            self.open += 1

    def _finish(self, number: int, enqueued: int, started: int) -> None:
        before = self._add(number, DONE)
        if before & DONE:
            self.repeated += 1
            return
        self.done += 1
        if before & CONFIRMED:
            self.open -= 1
        begun = bisect.bisect_right(self.phases, started, key=lambda phase: phase.began_at)
        self.phases[max(begun - 1, 0)].pickup.add(started - enqueued)

    def _add(self, number: int, state: int) -> int:
        """Adds to a job's state and returns the state before."""
        if number >= len(self._states):
            self._states.extend(bytes(number + 1 - len(self._states)))
        before = self._states[number]
        self._states[number] |= state
        return before


class Ledger:
    """The file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = pathlib.Path(path)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def confirmed(self, first: int, count: int) -> None:
        os.write(self._file, b"e %d %d\n" % (first, count))

    def done(self, number: int, enqueued: int, started: int) -> None:
        os.write(self._file, b"d %d %d %d\n" % (number, enqueued, started))


class Tail:
    """The whole lines that have been added to a file since the last look."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = pathlib.Path(path)
        self._offset = 0

    def lines(self) -> Iterator[str]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._offset += len(line)
                yield line.decode()
