"""An adapter's side of the protocol of postgresql-job-queue-benchmarking: what all adapters have in common.

An adapter is a process that enqueues jobs at a rate, works on them, or both. The environment says what to do, standard
output has a line of JSON for its description and for each figure, every few seconds, and standard error is its log:

    DATABASE_URL                 a database of its own
    SCENARIO                     migrate_only: install the schema and end; else serve until SIGTERM
    PRODUCER_RATE                jobs a second; PRODUCER_RATE_CONTROL_FILE: a file with the rate that is read instead
    PRODUCER_MODE, TARGET_DEPTH  fixed, or depth-target: the same, but never more than this many jobs that are not done
    PRODUCER_BATCH_MAX, _MS      at most this many jobs in a batch, and the time between two batches
    WORKER_COUNT                 jobs worked on at the same time; 0: none
    JOB_PAYLOAD_BYTES, JOB_WORK_MS
    SAMPLE_EVERY_S               the time between two samples
    BENCH_INSTANCE_ID            0, the default: enqueues, and reports figures. Others only work
    JOB_LEDGER                   our own addition: the file of account.py that all processes of a run write

Processes of one run may share it: 0 with WORKER_COUNT=0 enqueues, 1, 2, … work. As one process, 0 does both.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.portable.account import Account, Histogram, Ledger, Tail

Do = Callable[[str], Awaitable[None]]
"""Does the work of a job, given what `Adapter.enqueue` got for it."""
WINDOW_SECONDS = 30
DEAD_AFTER_SECONDS = 4.0
"""The time after which a worker that no longer reports counts as dead, for systems that let it be set."""


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1_000


@dataclasses.dataclass
class Options:
    """The environment."""

    url: str
    only_installs: bool
    rate: float
    control: pathlib.Path | None
    depth: int | None
    """None: not limited."""
    batch_max: int
    batch_seconds: float
    workers: int
    payload_bytes: int
    work_seconds: float
    sample_seconds: int
    instance: int
    ledger: Ledger

    @staticmethod
    def of_environment() -> Options:
        def number(name: str, otherwise: float) -> float:
            return float(os.environ.get(name) or otherwise)
        only_installs = os.environ.get("SCENARIO") == "migrate_only"
        control, ledger = os.environ.get("PRODUCER_RATE_CONTROL_FILE"), os.environ.get("JOB_LEDGER")
        if not ledger:
            ledger = os.devnull if only_installs else tempfile.mkstemp(prefix="ledger-")[1]
        return Options(
            url=os.environ["DATABASE_URL"],
            only_installs=only_installs,
            rate=number("PRODUCER_RATE", 800),
            control=pathlib.Path(control) if control else None,
            depth=int(number("TARGET_DEPTH", 1000)) if os.environ.get("PRODUCER_MODE") == "depth-target" else None,
            batch_max=int(number("PRODUCER_BATCH_MAX", 128)),
            batch_seconds=number("PRODUCER_BATCH_MS", 10) / 1000,
            workers=int(number("WORKER_COUNT", 32)),
            payload_bytes=int(number("JOB_PAYLOAD_BYTES", 256)),
            work_seconds=number("JOB_WORK_MS", 1) / 1000,
            sample_seconds=int(number("SAMPLE_EVERY_S", 5)),
            instance=int(number("BENCH_INSTANCE_ID", 0)),
            ledger=Ledger(ledger))

    def rate_now(self) -> float:
        """The rate at this moment: that of the control file, if there is one that can be read."""
        if self.control is not None:
            with contextlib.suppress(OSError, ValueError):
                return float(self.control.read_text())
        return self.rate


class Adapter(abc.ABC):
    """One system, by its documented interface."""

    system: str
    package: str
    """Whose version is reported."""
    tables: Sequence[str]
    """Those that have the jobs, the busiest first; readers scan the first."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.padding = "x" * max(0, options.payload_bytes - 96)

    @property
    def version(self) -> str:
        return importlib.metadata.version(self.package)

    @abc.abstractmethod
    async def install(self) -> None:
        """Installs the schema; does nothing if it is there."""

    @abc.abstractmethod
    async def connect(self) -> None:
        """Opens what `enqueue` and `depth` need."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Closes it, whatever state it is in."""

    @abc.abstractmethod
    async def enqueue(self, jobs: Sequence[str]) -> None:
        """Returns when the jobs are committed. Each is a text of up to 40 characters, to be passed to `do`; `padding` goes with it."""

    @abc.abstractmethod
    async def depth(self) -> int:
        """The number of jobs that no worker has taken yet."""

    @abc.abstractmethod
    async def work(self, do: Do) -> None:
        """Works until it is cancelled, on `options.workers` jobs at a time. Ends with an error if the system's worker does."""

    async def observe(self) -> None:
        """Writes the work to the ledger that is not done by `do`, until it is cancelled. Runs beside the producer."""
        await asyncio.Event().wait()


def main(make: Callable[[Options], Adapter]) -> None:
    asyncio.run(_serve(make(Options.of_environment())))


async def _serve(adapter: Adapter) -> None:
    options = adapter.options
    if options.instance == 0:
        await adapter.install()
    if options.only_installs:
        return
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _print({"kind": "descriptor", "system": adapter.system, "event_tables": list(adapter.tables), "extensions": [],
            "version": adapter.version, "schema_version": adapter.version, "db_name": options.url.rpartition("/")[2],
            "started_at": _clock(), "instance_id": options.instance})
    parts = [stop.wait()]
    if options.instance == 0:
        producer = Producer(adapter)
        parts += [producer.produce(), producer.sample(), producer.follow(), adapter.observe()]
    if options.workers > 0:
        parts.append(adapter.work(_worker(options)))
    tasks = [asyncio.ensure_future(part) for part in parts]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    # None of them ends by itself, except by an error. The process then ends, and is started again by whoever started it.
    for task in tasks:
        if task.done() and (error := task.exception()) is not None:
            print(f"{adapter.system}: {error!r}", file=sys.stderr, flush=True)
        task.cancel()
    await asyncio.wait(tasks, timeout=1)
    os._exit(0 if stop.is_set() else 1)  # whatever a system's threads still wait for


def _worker(options: Options) -> Do:
    async def do(job: str) -> None:
        started = now()
        await asyncio.sleep(options.work_seconds)
        number, enqueued = job.split(".")
        options.ledger.done(int(number), int(enqueued), started)
    return do


class Window:
    """Times of the last 30 seconds, in as many histograms."""

    def __init__(self) -> None:
        self._seconds: collections.deque[tuple[int, Histogram]] = collections.deque(maxlen=WINDOW_SECONDS)

    def add(self, microseconds: float, at: float) -> None:
        """`at`: seconds since 1970, not less than before."""
        if not self._seconds or self._seconds[-1][0] != int(at):
            self._seconds.append((int(at), Histogram()))
        self._seconds[-1][1].add(microseconds)

    def percentiles(self, percents: Sequence[float], at: float) -> list[float]:
        """0 if there are no times."""
        all = Histogram()
        for second, histogram in self._seconds:
            if second > at - WINDOW_SECONDS:
                all.merge(histogram)
        return [all.percentile(percent) or 0.0 for percent in percents]


class Producer:
    """Enqueues at the rate, and reports how the jobs fare."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._options = adapter.options
        self._account = Account()
        self._pickup = Window()
        self._target_rate = 0.0

    async def produce(self) -> None:
        """Offers load by the clock: what a slow batch delays is made up for."""
        first, credit, at = 0, 0.0, time.monotonic()
        is_connected = False
        while True:
            await asyncio.sleep(self._options.batch_seconds)
            self._target_rate = self._options.rate_now()
            before, at = at, time.monotonic()
            credit = credit + self._target_rate * (at - before) if self._target_rate > 0 else 0.0
            count = min(int(credit), self._options.batch_max)
            if self._options.depth is not None:
                count = min(count, self._options.depth - self._account.open)
            if count <= 0:
                continue
            enqueued = now()
            try:
                if not is_connected:
                    await asyncio.wait_for(self._adapter.connect(), 10)
                    is_connected = True
                await asyncio.wait_for(self._adapter.enqueue([f"{first + n}.{enqueued}" for n in range(count)]), 10)
            except Exception as error:  # whatever a driver raises when its connection is lost
                print(f"{self._adapter.system}: enqueueing failed: {error!r}", file=sys.stderr, flush=True)
                is_connected = False
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(self._adapter.close(), 1)
                await asyncio.sleep(0.2)
            else:
                credit -= count
                self._options.ledger.confirmed(first, count)
            first += count  # those of a batch that failed may have been committed: their numbers are not used again

    async def follow(self) -> None:
        """Reads the ledger."""
        tail = Tail(self._options.ledger.path)
        while True:
            for line in tail.lines():
                self._account.read([line])
                if line.startswith("d"):
                    _, _, enqueued, started = line.split()
                    self._pickup.add(int(started) - int(enqueued), time.time())
            await asyncio.sleep(0.02)

    async def sample(self) -> None:
        """Prints the figures of every interval; intervals begin at multiples of their length by the wall clock."""
        interval = self._options.sample_seconds
        at, confirmed, done = time.monotonic(), 0, 0
        while True:
            await asyncio.sleep(interval - time.time() % interval)
            before, at = at, time.monotonic()
            for percent, time_us in zip((50, 95, 99), self._pickup.percentiles((50, 95, 99), time.time()), strict=True):
                self._metric(f"claim_p{percent}_ms", time_us / 1000, WINDOW_SECONDS)
            self._metric("enqueue_rate", (self._account.confirmed - confirmed) / (at - before), interval)
            self._metric("completion_rate", (self._account.done - done) / (at - before), interval)
            self._metric("producer_target_rate", self._target_rate, 0)
            confirmed, done = self._account.confirmed, self._account.done
            with contextlib.suppress(Exception):  # without a database there is no depth
                self._metric("queue_depth", await asyncio.wait_for(self._adapter.depth(), 5), 0)

    def _metric(self, name: str, value: float, window: float) -> None:
        _print({"t": _clock(), "system": self._adapter.system, "kind": "adapter", "subject_kind": "adapter", "subject": "",
                "metric": name, "value": value, "window_s": window, "instance_id": self._options.instance})


def _print(record: dict[str, object]) -> None:
    print(json.dumps(record), flush=True)


def _clock() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
