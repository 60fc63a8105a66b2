"""The scenarios, with their times, and what each does to the systems.

The names and what they do are those of postgresql-job-queue-benchmarking, whose phases take minutes to hours; ours take
seconds. A scenario has four phases: warm, baseline, stress, recovery; one without a baseline has warm and stress only.
"""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import struct
import urllib.parse
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from benchmarks.database import psql, psql_program
from benchmarks.processes import Process

if TYPE_CHECKING:
    from benchmarks.portable.driver import Run

RATE = 200
"""Jobs a second."""
WORKERS = 32
WORK_MS = 10
CONCURRENCIES = (4, 16, 64, 256)
CONNECTIONS_LEFT = 5
FOREVER_SECONDS = 1_000_000
Stress = Callable[["Run"], contextlib.AbstractContextManager[None]]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Times are seconds."""

    name: str
    stress: Stress
    stress_seconds: float
    warm_seconds: float = 2
    baseline_seconds: float = 4
    recovery_seconds: float = 5
    rate: float | None = RATE
    """None: as many as are done, while `waiting` wait."""
    workers: int = WORKERS
    replicas: int = 1
    """Worker processes, which share `workers` evenly."""
    stresses_cluster: bool = False
    """And not only the system's database."""

    @property
    def waiting(self) -> int:
        return max(500, 8 * self.workers)

    def scaled(self, factor: float) -> Scenario:
        return dataclasses.replace(self, **{
            name: factor * value for name, value in vars(self).items() if name.endswith("_seconds")})


# --- Stresses ---


@contextlib.contextmanager
def nothing(_: Run) -> Iterator[None]:
    yield


@contextlib.contextmanager
def idle_in_transaction(run: Run) -> Iterator[None]:
    """A session that has an id of a transaction leaves it open, which holds vacuum back."""
    with session(run, "idle", run.url, "begin", "select txid_current()", f"\\! sleep {FOREVER_SECONDS}") as idle:
        open = f"from pg_stat_activity where datname = '{run.database}' and state = 'idle in transaction' and backend_xid is not null"
        idle.wait_until(lambda: psql(run.url, f"select count(*) {open}") != "0", "opening its transaction")
        yield


@contextlib.contextmanager
def active_readers(run: Run) -> Iterator[None]:
    """Four sessions at repeatable read scan the table of the jobs again and again, each in one transaction."""
    scan = f"do $$ begin loop perform count(*) from {run.tables[0]}; perform pg_sleep(0.1); end loop; end $$"
    with contextlib.ExitStack() as stack:
        for number in range(4):
            stack.enter_context(session(run, f"reader{number}", run.url, "begin isolation level repeatable read", scan))
        yield


@contextlib.contextmanager
def high_load(run: Run) -> Iterator[None]:
    run.offer(1.5 * RATE)
    yield
    run.offer(RATE)


@contextlib.contextmanager
def postgres_restart(run: Run) -> Iterator[None]:
    run.cluster.stop()
    try:
        yield
    finally:
        run.cluster.start_again()


@contextlib.contextmanager
def backend_kill(run: Run) -> Iterator[None]:
    """Twice a second, every backend of the system that is at work is terminated."""
    kill = f"""do $$ begin loop
      perform pg_terminate_backend(pid) from pg_stat_activity
        where datname = '{run.database}' and state in ('active', 'idle in transaction');
      commit; perform pg_sleep(0.5); end loop; end $$"""
    with session(run, "kill", run.cluster.url, kill):
        yield


@contextlib.contextmanager
def pool_exhaustion(run: Run) -> Iterator[None]:
    """Idle connections take what is left of max_connections, but for a few."""
    left = "select current_setting('max_connections')::int - count(*) from pg_stat_activity where backend_type = 'client backend'"
    with contextlib.ExitStack() as stack:
        for _ in range(int(psql(run.url, left)) - CONNECTIONS_LEFT):
            stack.enter_context(idle_connection(run.url))
        yield


@contextlib.contextmanager
def repeated_kills(run: Run) -> Iterator[None]:
    """The first worker process is killed three times; it is started again a second later."""
    run.kill_every(run.scenario.stress_seconds / 3)
    yield
    run.kill_every(None)


@contextlib.contextmanager
def session(run: Run, name: str, url: str, *commands: str) -> Iterator[Process]:
    """A psql that must not end before the block does."""
    arguments = [psql_program(), "-qXAt", "-v", "ON_ERROR_STOP=1", "-d", url]
    # So that the server ends a loop when its client has gone.
    for command in ("set client_connection_check_interval = '100 ms'", *commands):
        arguments += ["-c", command]
    with Process(f"{run.name}-{name}", arguments, run.directory) as process:
        yield process
        process.check()


def idle_connection(url: str) -> socket.socket:
    """A connection that Postgres has accepted, and that sends nothing more."""
    parts = urllib.parse.urlsplit(url)
    words = f"user\0{parts.username}\0database\0{parts.path[1:]}\0\0".encode()
    connection = socket.create_connection((parts.hostname, parts.port), timeout=10)
    connection.sendall(struct.pack("!ii", 8 + len(words), 3 << 16) + words)
    connection.recv(1)
    return connection


# --- The table ---

SCENARIOS = (
    *(Scenario(f"throughput_{workers}", nothing, stress_seconds=6, baseline_seconds=0, recovery_seconds=0, rate=None, workers=workers)
      for workers in CONCURRENCIES),
    Scenario("idle_in_tx_saturation", idle_in_transaction, stress_seconds=8),
    Scenario("active_readers", active_readers, stress_seconds=8),
    Scenario("sustained_high_load", high_load, stress_seconds=8),
    Scenario("chaos_postgres_restart", postgres_restart, stress_seconds=3, stresses_cluster=True),
    Scenario("chaos_pg_backend_kill", backend_kill, stress_seconds=6),
    Scenario("chaos_pool_exhaustion", pool_exhaustion, stress_seconds=6, stresses_cluster=True),
    Scenario("chaos_repeated_kills", repeated_kills, stress_seconds=9, replicas=2),
    Scenario("soak", nothing, stress_seconds=30),
)
