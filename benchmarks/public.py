"""push-gateway beside other queues in Postgres, in scenarios of postgresql-job-queue-benchmarking: load, stress and chaos.

Every system has the same Postgres, rate, number of workers and time of work; an adapter of each (portable/adapters) speaks that
project's protocol, and one driver (portable/driver.py) measures all of them. portable/README.md says how, and what is not
comparable. A peer that pip cannot install, or that does no job at all, is left out.

BENCH_PUBLIC_FACTOR multiplies the times of the phases.
"""

from __future__ import annotations

import concurrent.futures
import os

from benchmarks.harness import Bench, BenchError, Row
from benchmarks.portable import driver
from benchmarks.portable.scenarios import CONCURRENCIES, SCENARIOS, Scenario
from benchmarks.portable.systems import OURS, SYSTEMS, Installed, System, install

SMALL_FACTOR = 0.25


def run(bench: Bench) -> None:
    systems = install_all(bench)
    lost = 0
    with driver.templates(bench, systems):
        for scenario in scenarios(bench):
            for installed, outcome in zip(systems, measure_all(bench, systems, scenario), strict=True):
                report(bench, installed.system, scenario, outcome)
                if installed.system is OURS and outcome is not None:
                    lost += outcome.lost or 0
    if lost:
        raise BenchError(f"push-gateway lost {lost} jobs")


def scenarios(bench: Bench) -> list[Scenario]:
    factor = SMALL_FACTOR if bench.small else float(os.environ.get("BENCH_PUBLIC_FACTOR") or 1)
    left_out = {f"throughput_{workers}" for workers in CONCURRENCIES[1:-1]} if bench.small else set()
    return [scenario.scaled(factor) for scenario in SCENARIOS if scenario.name not in left_out]


def install_all(bench: Bench) -> list[Installed]:
    def attempt(system: System) -> Installed | None:
        try:
            return install(system, bench.directory)
        except BenchError as error:
            if system is OURS:
                raise
            bench.progress(f"public: {system.name} is left out: {error}")
            return None
    with concurrent.futures.ThreadPoolExecutor(len(SYSTEMS)) as pool:
        return [installed for installed in pool.map(attempt, SYSTEMS) if installed is not None]


def measure_all(bench: Bench, systems: list[Installed], scenario: Scenario) -> list[driver.Outcome | None]:
    """One after the other. In a short run, which proves nothing, all at once, unless that would stress the others' databases, too."""
    if not bench.small or scenario.stresses_cluster:
        return [measure(bench, installed, scenario) for installed in systems]
    with concurrent.futures.ThreadPoolExecutor(len(systems)) as pool:
        return list(pool.map(lambda installed: measure(bench, installed, scenario), systems))


def measure(bench: Bench, installed: Installed, scenario: Scenario) -> driver.Outcome | None:
    """None: a peer failed altogether."""
    try:
        outcome = driver.Run(bench, installed, scenario).measure()
    except BenchError as error:
        if installed.system is OURS:
            raise
        bench.progress(f"public: {scenario.name}, {installed.system.name}: not measured: {error}")
        return None
    bench.progress(f"public: {scenario.name}, {installed.system.name}: {outcome.text()}")
    return outcome


def report(bench: Bench, system: System, scenario: Scenario, outcome: driver.Outcome | None) -> None:
    """The rows of a line of the table: public.SCENARIO.SYSTEM.COLUMN; the note of each is the version."""
    columns = (
        ("throughput", "jobs/s", "jobs_per_second"), ("p99 pickup", "ms", "p99_ms"), ("dead rows", "", "dead_rows"),
        ("WAL", "bytes a job", "wal_bytes"), ("recovery", "×", "recovery"), ("jobs lost", "", "lost"),
        ("jobs repeated", "", "repeated"), ("worker ended", "times", "ended"))
    for column, unit, field in columns:
        value = None if outcome is None else getattr(outcome, field)
        bench.rows.append(Row(
            f"public.{scenario.name}.{system.name}.{column}", None if value is None else float(value), unit, None,
            "" if system is OURS else system.packages[0].replace("==", " "), []))
