"""Runs one system through one scenario, and measures it: the same for every system.

A producer process enqueues, worker processes work; all of them write one ledger (account.py), from which jobs, times and
losses are counted. A worker that ends is started again after a second, as a service manager would.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator

from benchmarks.database import WAL, Cluster, psql
from benchmarks.harness import ROOT, Bench
from benchmarks.portable.account import Account, Histogram, Tail
from benchmarks.portable.protocol import now
from benchmarks.portable.scenarios import WORK_MS, Scenario
from benchmarks.portable.systems import OURS, Installed
from benchmarks.processes import BenchError, Process, run

READY_SECONDS = 120
RESTART_SECONDS = 1
STALLED_SECONDS = 15
"""At the end of a run: open jobs are lost if none was done for this time, with all workers running. Dead ones are noticed sooner."""
REST_SECONDS = 60
"""The end of a run, even if jobs are still being done."""
DEAD_ROWS = "select coalesce(sum(n_dead_tup), 0)::bigint from pg_stat_user_tables"


@dataclasses.dataclass
class Outcome:
    """What the table of docs/performance.md has; None: not measured in this scenario."""

    jobs_per_second: float
    """In the phase of stress."""
    p99_ms: float | None
    """From enqueueing to the beginning of the work, of all jobs from the beginning of the stress on; needs a rate."""
    dead_rows: int
    """The most, from the beginning of the stress on, of all tables together."""
    wal_bytes: float
    """Of the whole run, for each job done."""
    recovery: float | None
    """Jobs per second in the phase of recovery, as part of those in the baseline."""
    lost: int | None
    """None: open jobs were still being done at the end."""
    repeated: int
    ended: int
    """How often a worker process ended by itself."""

    def text(self) -> str:
        p99 = "" if self.p99_ms is None else f", p99 pickup {self.p99_ms:,.1f} ms"
        recovery = "" if self.recovery is None else f", recovery {self.recovery:.2f}"
        lost = "unknown whether jobs are" if self.lost is None else f"{self.lost:,} jobs"
        return (f"{self.jobs_per_second:,.0f} jobs/s{p99}, {self.dead_rows:,} dead rows, {self.wal_bytes:,.0f} bytes of WAL "
                f"a job{recovery}; {lost} lost, {self.repeated:,} repeated, {self.ended} ends of a worker")


class Member:
    """A worker process that is started again when it has ended."""

    def __init__(self, start: Callable[[], Process]) -> None:
        self._start = start
        self.process: Process = start()
        self.ended = 0
        self._killed = False
        self._starts_at: float | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it runs and has described itself."""
        return self.process.exit_status is None and self.process.output.stat().st_size > 0

    def tend(self) -> None:
        if self.process.exit_status is None:
            return
        if self._starts_at is None:
            self.ended += 0 if self._killed else 1
            self._starts_at = time.monotonic() + RESTART_SECONDS
        elif time.monotonic() >= self._starts_at:
            self.process = self._start()
            self._killed, self._starts_at = False, None

    def kill(self) -> None:
        self._killed = True
        self.process.kill()


class Run:
    """One system in one scenario, with a database of its own."""

    def __init__(self, bench: Bench, installed: Installed, scenario: Scenario) -> None:
        self.scenario = scenario
        self.cluster = bench.cluster
        self.name = installed.system.name
        self.directory = bench.directory / "public" / self.name
        self.tables: list[str] = []
        self._bench = bench
        self._installed = installed
        self._account = Account(now())
        self._ledger = self.directory / "ledger"
        self._tail = Tail(self._ledger)
        self._control = self.directory / "rate"
        self._members: list[Member] = []
        self._starts = 0
        self._kill_seconds: float | None = None
        self._kill_at = 0.0
        self._dead_rows: list[int] = []
        self._sampled_at = 0.0
        self._is_known = False

    # --- For the stresses ---

    @property
    def database(self) -> str:
        return f"bench_run_{self._installed.system.adapter}"

    @property
    def url(self) -> str:
        return self.cluster.url_of(self.database)

    def offer(self, rate: float) -> None:
        """Sets the producer's jobs per second."""
        partial = self._control.with_suffix(".partial")
        partial.write_text(str(rate))
        partial.replace(self._control)

    def kill_every(self, seconds: float | None) -> None:
        """Kills the first worker now, and each time these seconds have passed; None: no more."""
        self._kill_seconds, self._kill_at = seconds, time.monotonic()

    # --- The run ---

    def measure(self) -> Outcome:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._ledger.unlink(missing_ok=True)
        self._ledger.touch()
        self.offer(self.scenario.rate or 1_000_000)
        with contextlib.ExitStack() as stack:
            stack.enter_context(database_of(self.cluster, self.database, template(self._installed)))
            simulators = None
            if self._installed.system is OURS:
                simulators = stack.enter_context(self._bench.simulators([{"provider": "apns", "delay_ms": WORK_MS}]))
            wal = self._wal_bytes()
            producer = stack.enter_context(self._start(0, 0))
            stack.callback(self._end)
            for number in range(self.scenario.replicas):
                self._members.append(Member(lambda of=number + 1: self._start(of, self.scenario.workers // self.scenario.replicas)))
            self._pass_phases(producer)
            outcome = self._outcome(self._wal_bytes() - wal)
            if simulators is not None:
                self._end()
                simulators.accepted()
        return outcome

    def _pass_phases(self, producer: Process) -> None:
        self._wait(producer, READY_SECONDS, lambda: self._account.done > 0)
        if self._account.done == 0:
            raise BenchError(f"{self.name} did no job within {READY_SECONDS} s: {self._members[0].process.last_words()}")
        self.tables = json.loads(producer.output.read_text().splitlines()[0])["event_tables"]
        self._pass("warm", producer, self.scenario.warm_seconds)
        self._pass("baseline", producer, self.scenario.baseline_seconds)
        with self.scenario.stress(self):
            self._pass("stress", producer, self.scenario.stress_seconds)
        self._pass("recovery", producer, self.scenario.recovery_seconds)
        self._rest(producer)

    def _rest(self, producer: Process) -> None:
        """Without new jobs, until none is open, or none is done any more."""
        self.offer(0)
        self._pass("rest", producer, 0.5)  # a batch may be on its way
        done, began = self._account.done, time.monotonic()
        done_at = quiet_from = began
        while self._account.open > 0 and time.monotonic() < min(quiet_from + STALLED_SECONDS, began + REST_SECONDS):
            self._wait(producer, 0.5, lambda: self._account.open == 0)
            if self._account.done > done:
                done, done_at = self._account.done, time.monotonic()
            if done_at > quiet_from or not all(member.is_ready for member in self._members):
                quiet_from = time.monotonic()
        self._is_known = self._account.open == 0 or time.monotonic() >= done_at + STALLED_SECONDS
        self._begin("end")

    def _pass(self, name: str, producer: Process, seconds: float) -> None:
        self._begin(name)
        self._wait(producer, seconds, lambda: False)

    def _begin(self, phase: str) -> None:
        at = now()
        self._account.read(self._tail.lines())
        self._account.begin(phase, at)

    def _wait(self, producer: Process, seconds: float, is_enough: Callable[[], bool]) -> None:
        """Waits, and meanwhile looks after the workers, the ledger and dead rows."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not is_enough():
            producer.check()
            if self._kill_seconds is not None and time.monotonic() >= self._kill_at:
                self._members[0].kill()
                self._kill_at += self._kill_seconds
            for member in self._members:
                member.tend()
            self._account.read(self._tail.lines())
            if time.monotonic() >= self._sampled_at + 1:
                self._sampled_at = time.monotonic()
                self._sample_dead_rows()
            time.sleep(0.02)

    def _sample_dead_rows(self) -> None:
        if self._account.phases[-1].name not in ("start", "warm", "baseline"):
            with contextlib.suppress(BenchError):  # Postgres may be stopped, or kill this session
                self._dead_rows.append(int(psql(self.url, DEAD_ROWS)))

    def _outcome(self, wal_bytes: int) -> Outcome:
        account = self._account
        baseline, stress, recovery = (account.phase(name) for name in ("baseline", "stress", "recovery"))
        pickup = Histogram()
        for phase in account.phases[account.phases.index(stress):]:
            pickup.merge(phase.pickup)
        p99 = pickup.percentile(99) if self.scenario.rate is not None else None
        return Outcome(
            jobs_per_second=stress.jobs_per_second, p99_ms=None if p99 is None else p99 / 1000,
            dead_rows=max(self._dead_rows, default=0), wal_bytes=wal_bytes / max(account.done, 1),
            recovery=recovery.jobs_per_second / baseline.jobs_per_second if baseline.pickup.count else None,
            lost=account.open if self._is_known else None, repeated=account.repeated,
            ended=sum(member.ended for member in self._members))

    # --- Processes and database ---

    def _start(self, instance: int, workers: int) -> Process:
        """Starts the adapter: 0 is the producer."""
        self._starts += 1
        env = {
            "DATABASE_URL": self.url, "SCENARIO": "long_horizon", "BENCH_INSTANCE_ID": str(instance), "WORKER_COUNT": str(workers),
            "PRODUCER_MODE": "depth-target" if self.scenario.rate is None else "fixed", "TARGET_DEPTH": str(self.scenario.waiting),
            "PRODUCER_RATE_CONTROL_FILE": str(self._control), "PRODUCER_BATCH_MAX": "500", "JOB_WORK_MS": str(WORK_MS),
            "SAMPLE_EVERY_S": "1", "JOB_LEDGER": str(self._ledger)}
        return Process(f"{self.scenario.name}-{self._starts}", self._installed.command, self.directory, env=adapter_env(self._bench, env))

    def _end(self) -> None:
        for member in self._members:
            member.kill()

    def _wal_bytes(self) -> int:
        return int(psql(self.cluster.url, WAL))


def adapter_env(bench: Bench, env: dict[str, str]) -> dict[str, str]:
    return {"PYTHONPATH": os.fspath(ROOT), "GATEWAY": os.fspath(bench.gateway_binary),
            "SIMULATORS": os.fspath(bench.directory / "simulators"), **env}


def template(installed: Installed) -> str:
    return f"bench_template_{installed.system.adapter}"


@contextlib.contextmanager
def templates(bench: Bench, systems: list[Installed]) -> Iterator[None]:
    """A database for each system with its schema, which those of its runs are copies of."""
    with contextlib.ExitStack() as stack:
        for installed in systems:
            stack.enter_context(database_of(bench.cluster, template(installed), "template1"))
            run(installed.command, env=adapter_env(bench, {
                "DATABASE_URL": bench.cluster.url_of(template(installed)), "SCENARIO": "migrate_only"}))
        yield


@contextlib.contextmanager
def database_of(cluster: Cluster, name: str, template: str) -> Iterator[None]:
    psql(cluster.url, f"drop database if exists {name} with (force)", f"create database {name} template {template}")
    try:
        yield
    finally:
        psql(cluster.url, f"drop database if exists {name} with (force)")
