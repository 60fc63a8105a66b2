"""Rings while about one connection in a hundred is stalled: it answers PINGs, and no request.

Fifty apps have a connection to APNs and one to FCM each, and share 200 rings a second. Every 700th request of a provider stalls
the connection that it came on, for good: that is one every 3.5 s, as long as it takes to find out and replace it without hedges.
What counts is commit to request, of the request that the provider
accepted. The same with hedging switched off, and with the old version, take turns; each measurement has a fresh database,
gateway and simulators.
"""

from __future__ import annotations

import dataclasses

from benchmarks.drain import drain
from benchmarks.harness import Bench, Build, write_calls
from benchmarks.loadtest import Latency, load_test

RATE = 200
PROVIDERS = ("apns", "fcm")
APPS = [f"app{number}" for number in range(50)]
EVERY = 700
WARM_CALLS = 20 * len(APPS)
STALLS = [{"provider": provider, "action": "deafen", "share": 1 / EVERY, "after": WARM_CALLS} for provider in PROVIDERS]


@dataclasses.dataclass(frozen=True)
class Case:
    """One of those that take turns."""

    name: str
    build: Build
    hedges: bool = True


def run(bench: Bench) -> None:
    cases: list[Case] = []
    found: dict[str, list[Latency]] = {}
    for turn in range(bench.runs):
        cases = [Case(build.name, build) for build in bench.in_turn(turn)]
        cases.append(Case("unhedged", bench.new, hedges=False))
        for case in cases:
            found.setdefault(case.name, []).append(measure(bench, case, turn))
    report(bench, found)


def measure(bench: Bench, case: Case, turn: int) -> Latency:
    """One load test from the beginning."""
    env = {} if case.hedges else {
        f"PUSH_GATEWAY_APPS_{app.upper()}_{provider.upper()}_HEDGED_PERCENT_MAX": "0" for app in APPS for provider in PROVIDERS}
    with bench.database("stalled", case.build) as database, bench.simulators(STALLS) as simulators:
        with bench.gateway(database, simulators, env, apps=APPS) as gateway:
            warm = bench.directory / "warm.tsv"
            drain(database, [gateway], simulators, warm, write_calls(warm, WARM_CALLS, 2, APPS, prefix="warm", providers=PROVIDERS))
            database.sql("checkpoint")
            latency = load_test(
                bench, database, gateway, simulators, rate=RATE, seconds=10 if bench.small else 60, seed=turn + 1,
                app=",".join(APPS), devices=1, mix=",".join(f"{provider}=1" for provider in PROVIDERS))
    bench.progress(
        f"stalled: run {turn + 1}, {case.name}: p50 {latency.p50:.2f} ms, p99 {latency.p99:.2f} ms, p99.9 {latency.p999:.1f} ms")
    return latency


def report(bench: Bench, found: dict[str, list[Latency]]) -> None:
    titles = {"new": "", "unhedged": "without hedging: ", "old": "old version: "}
    for name, title in titles.items():
        if name not in found:
            continue
        note = f"{RATE} rings/s, one connection in a hundred stalled" if name == "new" else ""
        target = ("<=", 1_000) if name == "new" else None
        bench.result_median(f"stalled.{title}p99", [of.p99 for of in found[name]], "ms")
        bench.result_median(f"stalled.{title}p99.9", [of.p999 for of in found[name]], "ms", target=target, note=note)
