"""The end of a call: what it costs the backend's transaction, and the time until its last cancel is committed.

All phones of the call have been rung over FCM, and nobody has answered, so each gets a cancel and a missed call. New and old version
take turns, each with a fresh database, gateway and simulators. The cost is CPU of the backend's server process, its commit included, as
the kernel counts it (/proc/self/schedstat). The time counts from before the statement until a look, every millisecond, finds all
cancels.
"""

from __future__ import annotations

import dataclasses
import pathlib
import statistics

from benchmarks.harness import Bench, BenchError, Build, write_calls

# Recipients of a call, each with one phone; calls; the most that CPU may be of the old version's.
SIZES = ((3, 400, 0.25), (500, 30, 0.05))
TURNS, SMALL_TURNS = 5, 1
SQL = pathlib.Path(__file__).with_name("ends.sql")


@dataclasses.dataclass
class Ends:
    """Medians of a run's calls."""

    cpu: float
    """Microseconds of the backend's server process."""
    cancelled: float
    """Milliseconds until all cancels are committed."""


def run(bench: Bench) -> None:
    for recipients, calls, most in SIZES:
        found: dict[str, list[Ends]] = {"new": [], "old": []}
        for turn in range(SMALL_TURNS if bench.small else TURNS):
            for build in bench.in_turn(turn):
                found[build.name].append(measure(bench, build, recipients, 5 if bench.small else calls))
        report(bench, f"{recipients}_recipients", found["new"], found["old"], most)


def measure(bench: Bench, build: Build, recipients: int, calls: int) -> Ends:
    """One run from the beginning."""
    path = bench.directory / "ends.tsv"
    deliveries = write_calls(path, calls, devices=recipients, providers=("fcm",))
    with bench.database("ends", build) as database, bench.simulators(log=False) as simulators:
        with bench.gateway(database, simulators) as gateway:
            database.copy_calls(path)
            database.wait_until_settled([gateway, simulators])
            told = database.script(SQL, recipients=recipients)
            database.wait_until_settled([gateway, simulators])
        if (accepted := simulators.accepted()) != 3 * deliveries:
            raise BenchError(f"{deliveries} rings, cancels and missed calls each should have been sent; the simulators accepted {accepted}")
    rows = [[float(value) for value in row.split("|")] for row in told.splitlines()]
    if len(rows) != calls:
        raise BenchError(f"{calls} calls should have ended; {len(rows)} did")
    ends = Ends(*(statistics.median(column) for column in zip(*rows, strict=True)))
    bench.progress(
        f"ends: {build.name}, {recipients} recipients: {ends.cpu:,.0f} µs of CPU, {ends.cancelled:.2f} ms until the last cancel")
    return ends


def report(bench: Bench, size: str, new: list[Ends], old: list[Ends], most: float) -> None:
    for name, part, unit, bound in (("CPU_of_backend", "cpu", "µs", most), ("until_the_last_cancel", "cancelled", "ms", 1.1)):
        mine, theirs = ([getattr(ends, part) for ends in found] for found in (new, old))
        bench.result_median(f"ends.{size}:_{name}", mine, unit)
        if theirs:
            bench.result_median(f"ends.{size}:_{name}_of_old_version", theirs, unit)
            bench.compare(f"ends.{size}:_{name}:_to_old_version", mine, theirs, target=("<=", bound))
