"""Calls while about one connection in a hundred is stalled: it answers PINGs, and no request.

Fifty apps have one connection to APNs and one to FCM each, and share 200 calls a second. Every 700th request of a provider stalls
its connection for good: that is one every 3.5 s, which is the time to detect and replace a connection without hedges. The result
is the time from commit to the request that the provider accepted. It takes turns with the same load without hedging; each
measurement has a fresh database, gateway and simulators. The old version is not measured: there, calls over a stalled connection
never rang, so they have no latency.
"""

from __future__ import annotations

from benchmarks.drain import drain
from benchmarks.harness import Bench, write_calls
from benchmarks.loadtest import Latency, load_test

RATE = 200
PROVIDERS = ("apns", "fcm")
APPS = [f"app{number}" for number in range(50)]
EVERY = 700
WARM_CALLS = 20 * len(APPS)
STALLS = [{"provider": provider, "action": "deafen", "share": 1 / EVERY, "after": WARM_CALLS} for provider in PROVIDERS]


def run(bench: Bench) -> None:
    found: dict[bool, list[Latency]] = {True: [], False: []}
    for turn in range(bench.runs):
        for hedges in (True, False) if turn % 2 == 0 else (False, True):
            found[hedges].append(measure(bench, hedges, turn))
    report(bench, found)


def measure(bench: Bench, hedges: bool, turn: int) -> Latency:
    """One load test from the beginning."""
    env = {} if hedges else {
        f"PUSH_GATEWAY_APPS_{app.upper()}_{provider.upper()}_HEDGED_PERCENT_MAX": "0" for app in APPS for provider in PROVIDERS}
    with bench.database("stalled") as database, bench.simulators(STALLS) as simulators:
        with bench.gateway(database, simulators, env, apps=APPS) as gateway:
            warm = bench.directory / "warm.tsv"
            drain(database, [gateway], simulators, warm, write_calls(warm, WARM_CALLS, 2, APPS, prefix="warm", providers=PROVIDERS))
            database.sql("checkpoint")
            latency = load_test(
                bench, database, gateway, simulators, rate=RATE, seconds=10 if bench.small else 60, seed=turn + 1,
                app=",".join(APPS), devices=1, mix=",".join(f"{provider}=1" for provider in PROVIDERS))
    bench.progress(
        f"stalled: run {turn + 1}, {'hedged' if hedges else 'unhedged'}: p50 {latency.p50:.2f} ms, p99 {latency.p99:.2f} ms, "
        f"p99.9 {latency.p999:.1f} ms, {latency.failed} never rang")
    return latency


def report(bench: Bench, found: dict[bool, list[Latency]]) -> None:
    for hedges, latencies in found.items():
        title = "" if hedges else "without hedging: "
        note = f"{RATE} rings/s, one connection in a hundred stalled" if hedges else ""
        bench.result_median(f"stalled.{title}p99", [of.p99 for of in latencies], "ms")
        bench.result_median(
            f"stalled.{title}p99.9", [of.p999 for of in latencies], "ms", target=("<=", 1_000) if hedges else None, note=note)
        bench.result(
            f"stalled.{title}never rang", sum(of.failed for of in latencies), "rings", target=("<=", 0) if hedges else None,
            note="in all runs")
