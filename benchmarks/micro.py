"""Single steps of the hot path: rendering payloads, heads of requests, HTTP/2 sessions, rows of claims, scheduler and neighbours.

The rows are read from a result of libpq's that was made here: none of this needs a server.

Each has a committed threshold in thresholds/micro.json: how many times it may allocate memory, which is the same on every
machine, and how long it may take as a multiple of a loop of known work that is timed in turn with it. More allocations break
the benchmark; a step that is twice as slow as its threshold is a target missed, for times are never as certain.

After a change that is meant: BENCH_RENEW=1 benchmarks/bench micro writes the thresholds anew.
"""

from __future__ import annotations

import json
import os
import pathlib

from benchmarks.harness import Bench, BenchError, run as run_program

THRESHOLDS = pathlib.Path(__file__).with_name("thresholds") / "micro.json"
SLOWER_MOST = 2.0
"""How much slower than its threshold a step may be: other processors, other caches, other tenants."""
ALLOCATIONS_MOST = 0.5
"""How many more allocations an average may show: what is set up once is divided by another number of repetitions each time."""


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
