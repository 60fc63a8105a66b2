"""Whether throughput depends on the size of history (20 million rows) or on the number of apps (10 and 200).

The cases take turns in the same cluster, each with its own running gateway: changes in the speed of the host then affect
all of them, and the median of the turns' ratios counts. Connections are open before the clock starts: 200 apps have
thousands, which a running gateway has opened already. Then the latency of a call on an idle system is measured, for a
single app and for one of many.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from benchmarks.drain import Drain, drain
from benchmarks.harness import ROOT, Bench, BenchError, Database, Gateway, Simulators, write_calls
from benchmarks.loadtest import load_test

HISTORY_ROWS, SMALL_HISTORY_ROWS = 20_000_000, 200_000
CALLS, SMALL_CALLS = 33_334, 2_000
TURNS, SMALL_TURNS = 9, 1
WARM_DRAINS = 2
"""As large as the measured load: a pool opens another connection each time three quarters of its streams are in use."""
WARM_CALLS_AN_APP = 10
HISTORY = ROOT / "scripts" / "bench-ops.sql"
"""Two weeks of history, also used to measure the views for operators."""


@dataclasses.dataclass
class Rival:
    """One case, measured in turn with others."""

    name: str
    database: Database
    apps: Sequence[str]
    drains: list[Drain] = dataclasses.field(default_factory=list)

    def rates(self) -> list[float]:
        return [drain.settled_per_second for drain in self.drains]


def run(bench: Bench) -> None:
    calls = SMALL_CALLS if bench.small else CALLS
    with bench.database("growth_full") as full, bench.database("growth_empty") as empty:
        rows = fill(bench, full)
        without = Rival("empty history", empty, names(1))
        compare(bench, calls, without, [Rival(f"{rows:,} rows of history", full, names(1))])
    many = 20 if bench.small else 200
    with contextlib.ExitStack() as stack:
        rivals = [Rival(title(count), stack.enter_context(bench.database(f"growth_apps_{count}")), names(count))
                  for count in (1, 10, many)]
        compare(bench, calls, rivals[0], rivals[1:])
        for rival in rivals[0], rivals[-1]:
            wait_of_a_call(bench, rival)


def names(count: int) -> list[str]:
    return ["porteiro"] if count == 1 else [f"app-{number}" for number in range(count)]


def title(count: int) -> str:
    return f"{count} app{'' if count == 1 else 's'}, {3 * count} lanes"


def fill(bench: Bench, database: Database) -> int:
    """Creates the history and returns its number of rows. Vacuums now, so that no vacuum runs during measurements."""
    rows = SMALL_HISTORY_ROWS if bench.small else HISTORY_ROWS
    bench.progress(f"growth: making {rows:,} rows of history")
    # Logging them would need as much disk space again.
    settings = [("max_wal_size", "'1GB'"), ("autovacuum", "off")]
    database.sql(*(f"alter system set {name} = {value}" for name, value in settings), "select pg_reload_conf()")
    database.script(HISTORY, rows=rows)
    database.sql("vacuum (freeze, analyze)")
    database.sql(*(f"alter system reset {name}" for name, _ in settings), "select pg_reload_conf()", "checkpoint")
    made = database.number("select count(*) from push.history")
    if made < rows * 0.99:
        raise BenchError(f"{made} rows of history were made, not {rows}")
    return made


def compare(bench: Bench, calls: int, small: Rival, others: Sequence[Rival]) -> None:
    """Measures the cases in turn; returns each one's throughput as a share of the small case's, for each turn."""
    rivals = [small, *others]
    turns = SMALL_TURNS if bench.small else TURNS
    drained = 0
    with bench.simulators(log=False) as simulators:
        with contextlib.ExitStack() as stack:
            served = [(rival, stack.enter_context(bench.gateway(rival.database, simulators, apps=rival.apps)))
                      for rival in rivals]
            for turn in range(-WARM_DRAINS, turns):
                # The order is reversed each time, so that no case is always first.
                for rival, gateway in served if turn % 2 == 0 else reversed(served):
                    result = measure(bench, rival, gateway, simulators, calls, turn)
                    drained += result.deliveries
                    if turn >= 0:
                        rival.drains.append(result)
        if (accepted := simulators.accepted()) != drained:
            raise BenchError(f"the simulators accepted {accepted} pushes of {drained}")
    bench.result_median(f"growth.{small.name}", small.rates(), "deliveries/s")
    for rival in others:
        bench.result_median(f"growth.{rival.name}", rival.rates(), "deliveries/s")
        ratios = [large / little for large, little in zip(rival.rates(), small.rates(), strict=True)]
        bench.result_median(f"growth.{rival.name}: to {small.name}", ratios, "×", target=(">=", 0.95))


def measure(
    bench: Bench, rival: Rival, gateway: Gateway, simulators: Simulators, calls: int, turn: int
) -> Drain:
    """One drain; turns below 0 warm up."""
    path = bench.directory / "growth.tsv"
    deliveries = write_calls(path, calls, apps=rival.apps, prefix=f"turn-{turn}")
    rival.database.sql("checkpoint")
    result = drain(rival.database, [gateway], simulators, path, deliveries)
    what = f"run {turn + 1}" if turn >= 0 else "warming"
    bench.progress(f"growth: {what}, {rival.name}: {result.text()}")
    return result


def wait_of_a_call(bench: Bench, rival: Rival) -> None:
    """Calls for the app in the middle of the list, on an idle system."""
    path = bench.directory / "growth.tsv"
    with bench.simulators() as simulators, bench.gateway(rival.database, simulators, apps=rival.apps) as gateway:
        warmed = write_calls(path, WARM_CALLS_AN_APP * max(len(rival.apps), 20), apps=rival.apps, prefix="warm-idle")
        drain(rival.database, [gateway], simulators, path, warmed)
        latency = load_test(
            bench, rival.database, gateway, simulators, rate=20, seconds=3 if bench.small else 20, seed=1,
            app=rival.apps[len(rival.apps) // 2])
    bench.result(
        f"growth.{rival.name}: commit to request p99", latency.p99, "ms", note="20 calls/s for one app, else idle")
