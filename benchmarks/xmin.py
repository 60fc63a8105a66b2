"""A transaction that holds back xmin under full load: no row claimed or settled meanwhile can be vacuumed.

QueueLoad, the gateway's own queue without providers, drains as fast as it can, while batches of calls keep the backlog
filled. In the middle, a session reads at repeatable read and leaves its transaction open for a minute. Throughput during
that minute, from the database's history, is compared with the time before and after.

A queue whose claim scans the dead entries of its index slows down to a tenth within seconds; here the claim starts behind
them (Sources/Queue/ClaimFloor.swift).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import time

from benchmarks.harness import Bench, BenchError, Database, Process, run as run_program, write_calls
from benchmarks.queue import check_history, tool

BATCH_CALLS, DEVICES = 5_000, 3
BACKLOG = 150_000
SLICE = 5  # seconds
SQL = pathlib.Path(__file__).with_name("xmin.sql")


@dataclasses.dataclass
class Phases:
    """Lengths in seconds."""

    warm: float
    before: float
    pinned: float
    after: float

    @property
    def total(self) -> float:
        return self.warm + self.before + self.pinned + self.after


@dataclasses.dataclass
class Turn:
    """One measurement, on a database of its own; `dead` is the number of dead rows at the end of the transaction."""

    before: Phase
    pinned: Phase
    after: Phase
    dead: int


def run(bench: Bench) -> None:
    phases = Phases(3, 4, 5, 4) if bench.small else Phases(10, 30, 60, 20)
    turns = []
    for number in range(bench.runs):
        turns.append(measure(bench, phases))
        bench.progress(f"xmin: run {number + 1}: {turns[-1].before.per_second:,.0f}, {turns[-1].pinned.per_second:,.0f} and "
                       f"{turns[-1].after.per_second:,.0f} deliveries/s before, with and after {turns[-1].dead:,} dead rows")
    report(bench, turns)


def measure(bench: Bench, phases: Phases) -> Turn:
    program = tool(bench, "QueueLoad")
    with bench.database("xmin") as database:
        load = loader(bench, database, phases.total)
        # The running program has created lanes, which a drain needs.
        with load, drainer(bench, database, program, phases.total, load) as drain:
            time.sleep(phases.warm)
            marks = [mark(database)]
            time.sleep(phases.before)
            marks.append(mark(database))
            pin(bench, database, phases.pinned)
            marks.append(mark(database))
            dead = database.number("select n_dead_tup from pg_stat_user_tables where relid = 'push.delivery'::regclass")
            time.sleep(phases.after)
            marks.append(mark(database))
            for process in (load, drain):
                if process.wait(60) != 0:
                    raise BenchError(f"{process.name} failed: {process.last_words()}")
        made = int(load.output.read_text())
        settled = json.loads(drain.output.read_text())["deliveries"]
        settled += json.loads(run_program([program, database.url]))["deliveries"]
        if settled != made:
            raise BenchError(f"{settled} deliveries of {made} were settled; {database.owed()} are owed")
        check_history(database, made)
        return Turn(*(Phase(database, *span) for span in itertools.pairwise(marks)), dead)


def loader(bench: Bench, database: Database, seconds: float) -> Process:
    """Keeps the backlog filled for this time, then prints the number of deliveries created."""
    path = bench.directory / "xmin.tsv"
    write_calls(path, BATCH_CALLS, DEVICES, prefix="batch:0:")
    return Process("xmin-loader", [
        "psql", "-qXAt", "-v", "ON_ERROR_STOP=1", "-v", f"calls={path}", "-v", f"backlog={BACKLOG}",
        "-v", f"seconds={seconds}", "-f", SQL, "-d", database.url], bench.directory)


def drainer(bench: Bench, database: Database, program: pathlib.Path, seconds: float, load: Process) -> Process:
    load.wait_until(lambda: database.number("select count(*) from push.lane") > 0, "enqueueing the first calls")
    return Process("xmin-drain", [program, "--seconds", str(seconds), database.url], bench.directory)


def pin(bench: Bench, database: Database, seconds: float) -> None:
    """A transaction that has read a row and stays open."""
    arguments = ["psql", "-qXAt", "-v", "ON_ERROR_STOP=1", "-d", database.url]
    for statement in (
        "set idle_in_transaction_session_timeout = 0", "begin isolation level repeatable read",
        "select count(*) from push.lane", f"select pg_sleep({seconds})", "commit",
    ):
        arguments += ["-c", statement]
    with Process("xmin-pin", arguments, bench.directory) as reader:
        if reader.wait(seconds + 60) != 0:
            raise BenchError(f"the transaction that pins xmin failed: {reader.last_words()}")


def mark(database: Database) -> tuple[str, float]:
    """The time by the database's clock, and the CPU it has taken."""
    return database.now(), database.cpu_seconds()


class Phase:
    """Deliveries settled between two marks, from the database's history."""

    def __init__(self, database: Database, begin: tuple[str, float], end: tuple[str, float]) -> None:
        rows = database.sql(
            f"select extract(epoch from timestamptz '{end[0]}' - '{begin[0]}'), count(*), "
            f"count(*) filter (where finished_at >= timestamptz '{end[0]}' - interval '{SLICE} s') from push.history "
            f"where finished_at >= '{begin[0]}' and finished_at < '{end[0]}'").split("|")
        self.seconds = float(rows[0])
        settled, last = int(rows[1]), int(rows[2])
        if settled == 0:
            raise BenchError(f"nothing was settled in the {self.seconds:g} s after {begin[0]}")
        self.per_second = settled / self.seconds
        self.last_per_second = last / min(SLICE, self.seconds)
        self.microseconds = (end[1] - begin[1]) * 1e6 / settled


def report(bench: Bench, turns: list[Turn]) -> None:
    for name in ("before", "pinned", "after"):
        phases = [getattr(turn, name) for turn in turns]
        cpu = bench.median([phase.microseconds for phase in phases])
        bench.result_median(
            f"xmin.{name}", [phase.per_second for phase in phases], "deliveries/s",
            note=f"{cpu:.1f} µs of CPU of Postgres each, enqueueing included")
    bench.result_median(
        "xmin.throughput_ratio", [turn.pinned.per_second / turn.before.per_second for turn in turns], "×",
        target=(">=", 0.95),
        note=f"pinned for {turns[0].pinned.seconds:.0f} s, to before; {max(turn.dead for turn in turns):,} dead rows at the end")
    bench.result_median(
        "xmin.last_ratio", [turn.pinned.last_per_second / turn.before.per_second for turn in turns], "×",
        note=f"the last {SLICE} s of the pinned time, to before")
