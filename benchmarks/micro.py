"""Single steps of the hot path: rendering payloads, heads of requests, HTTP/2 sessions, rows of claims, scheduler and neighbours.

The rows are read from a libpq result that is created here, so no server is needed.

Each step has a committed threshold in thresholds/micro.json: its number of memory allocations, which is the same on every
machine, and its time as a multiple of a loop of known work that is timed in turn with it. More allocations fail the
benchmark. A step that takes twice its threshold is only a missed target, because times are less certain.

After an intended change: BENCH_RENEW=1 benchmarks/bench micro writes new thresholds.
"""

from __future__ import annotations

import json
import os
import pathlib

from benchmarks.harness import Bench, BenchError, run as run_program

THRESHOLDS = pathlib.Path(__file__).with_name("thresholds") / "micro.json"
SLOWER_MOST = 2.0
"""Allowed factor over a step's threshold, for other processors, caches and tenants."""
ALLOCATIONS_MOST = 0.5
"""Allowed excess of the average allocations: the one-time setup is divided by a different number of repetitions each time."""


def run(bench: Bench) -> None:
    tool = bench.tool("Micro")
    if tool is None:
        raise BenchError("Micro is not built: swift build -c release --package-path benchmarks")
    figures = json.loads(run_program([tool, "200" if bench.small else "1000"]))
    if os.environ.get("BENCH_RENEW"):
        renew(figures)
        bench.progress(f"micro: wrote {THRESHOLDS}")
    thresholds = json.loads(THRESHOLDS.read_text())
    if sorted(thresholds) != sorted(figures):
        raise BenchError(f"{THRESHOLDS} and Micro know different steps; renew it: BENCH_RENEW=1 benchmarks/bench micro")
    grown = []
    for name, figure in figures.items():
        threshold = thresholds[name]
        bench.result(
            f"micro.{name}", figure["ratio"], "× the calibration", target=("<=", round(threshold["ratio"] * SLOWER_MOST, 4)),
            note=f"{figure['nanoseconds']:.0f} ns, {figure['allocations']:.2f} allocations")
        if figure["allocations"] > threshold["allocations"] + ALLOCATIONS_MOST:
            grown.append(f"{name} allocates {figure['allocations']:.2f} times instead of {threshold['allocations']:.2f}")
    if grown:
        raise BenchError("; ".join(grown) + ": if that is meant, renew the thresholds: BENCH_RENEW=1 benchmarks/bench micro")


def renew(figures: dict) -> None:
    kept = {name: {"ratio": round(figure["ratio"], 4), "allocations": round(figure["allocations"], 2)}
            for name, figure in figures.items()}
    THRESHOLDS.write_text(json.dumps(kept, indent=2) + "\n")
