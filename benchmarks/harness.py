"""What all benchmarks use: a private Postgres, simulated providers, gateways, calls to enqueue, a place for results.

A benchmark is a module of this folder with `def run(bench: Bench) -> None`; its name is the module's. It verifies its
own work before it reports a figure, and raises BenchError if something failed. A missed target is no error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import platform
import re
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from benchmarks import baseline
from benchmarks.calls import write_calls
from benchmarks.database import Cluster, Database, psql, psql_program
from benchmarks.processes import BenchError, Process, environment, run

__all__ = [
    "ROOT", "Bench", "BenchError", "Build", "Cluster", "Database", "Gateway", "Process", "Simulators", "environment", "psql",
    "psql_program", "run",
    "write_calls",
]

ROOT = pathlib.Path(__file__).resolve().parent.parent
Rule = Mapping[str, object]


@dataclasses.dataclass
class Row:
    """One row of the results' table."""

    name: str
    value: float | None
    """None: not measured."""
    unit: str
    target: tuple[str, float] | None
    note: str
    samples: list[float]

    @property
    def is_reached(self) -> bool | None:
        """None without a target, or a measurement."""
        if self.target is None or self.value is None:
            return None
        comparison, bound = self.target
        return self.value >= bound if comparison == ">=" else self.value <= bound

    def text(self) -> str:
        """A line for a terminal."""
        if self.value is None:
            return f"{self.name:<44} not measured: {self.note}"
        words = [f"{self.name:<44} {number(self.value):>10} {self.unit}"]
        if self.target is not None:
            verdict = "reached" if self.is_reached else "MISSED"
            words.append(f"  target {self.target[0]} {number(self.target[1])}: {verdict}")
        if len(self.samples) > 1:
            words.append(f"  ({number(min(self.samples))} to {number(max(self.samples))})")
        if self.note:
            words.append(f"  {self.note}")
        return "".join(words)


@dataclasses.dataclass(frozen=True)
class Build:
    """A version of the gateway."""

    name: str
    """new: the version that is measured; old: the one that it is compared with."""
    program: pathlib.Path


class Bench:
    """One run of benchmarks. Leaving its `with` block stops everything that was started."""

    def __init__(self, *, small: bool = False, directory: pathlib.Path | None = None) -> None:
        self.small = small
        """A short run, which exercises everything and proves nothing."""
        given = os.environ.get("BENCH_DIRECTORY")
        self.directory = (directory or (pathlib.Path(given) if given else ROOT / ".local" / "bench")).resolve()
        self.gateway_binary = _program("PUSH_GATEWAY", ROOT / ".build" / "release" / "push-gateway", "make release")
        self.lab_binary = self.gateway_binary.with_name(self.gateway_binary.name + "-lab")
        self.tools = pathlib.Path(os.environ.get("BENCH_TOOLS") or ROOT / "benchmarks" / ".build" / "release").resolve()
        """The programs of the nested package."""
        self.runs = 1 if small else 3
        """The number of measurements of each case; the median counts."""
        self.new = Build("new", self.gateway_binary)
        self.rows: list[Row] = []
        """The rows of the running benchmark."""
        self.cluster = Cluster(ROOT, self.directory / "postgres")
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Bench:
        self.directory.mkdir(parents=True, exist_ok=True)
        _allow_many_files()
        self._cleanup.callback(self.cluster.stop)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    # --- Output ---

    def progress(self, text: str) -> None:
        """One line on standard error."""
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def result(
        self, name: str, value: float, unit: str, *, target: tuple[str, float] | None = None, note: str = "",
        samples: Sequence[float] = (),
    ) -> None:
        """One row of the table: printed at once, kept in results.json when the benchmark is done.

        `name` is benchmark.what_it_is; `target` a comparison, '>=' or '<=', and a bound in the same unit; `samples`
        what `value` is the median of.
        """
        row = Row(name, float(value), unit, target, note, [float(sample) for sample in samples])
        self.rows.append(row)
        print(row.text(), flush=True)

    def median(self, samples: Sequence[float]) -> float:
        return statistics.median(samples)

    def result_median(
        self, name: str, samples: Sequence[float], unit: str, *, target: tuple[str, float] | None = None,
        note: str = "",
    ) -> None:
        """The median of `samples` as a row."""
        self.result(name, self.median(samples), unit, target=target, note=note, samples=samples)

    def compare(
        self, name: str, new: Sequence[float], old: Sequence[float] | None, *, target: tuple[str, float] | None = None,
        note: str = "",
    ) -> None:
        """The median of the turns' ratios, new to old, as a row; `old` is None if there is no old version."""
        if old is None:
            self.rows.append(Row(name, None, "×", target, self._old[1], []))
            print(self.rows[-1].text(), flush=True)
        else:
            ratios = [one / other for one, other in zip(new, old, strict=True)]
            self.result_median(name, ratios, "×", target=target, note=note)

    # --- Versions, databases and programs ---

    def in_turn(self, turn: int) -> list[Build]:
        """The new version and the old one, if it can be built; in alternating order, so that neither is always first."""
        builds = [self.new] if self.old is None else [self.new, self.old]
        return builds if turn % 2 == 0 else builds[::-1]

    @property
    def old(self) -> Build | None:
        """The version to compare with, built when first needed; None if it cannot be built."""
        return self._old[0]

    @functools.cached_property
    def _old(self) -> tuple[Build | None, str]:
        """The reason why it cannot be built."""
        try:
            return Build("old", baseline.program(ROOT, self.progress)), ""
        except baseline.NoBaseline as reason:
            print(f"bench: nothing is compared with the old version: {reason}", file=sys.stderr, flush=True)
            return None, str(reason)

    def database(self, name: str, build: Build | None = None) -> Database:
        """A fresh database of a version's schema, for a `with`; its gateways are of that version, too. Default: the new one."""
        build = build or self.new
        return Database(self.cluster, name if build is self.new else f"{name}_{build.name}", build.program, self.directory)

    def simulators(self, faults: Sequence[Rule] | None = None, log: bool = True) -> Simulators:
        """All providers, for a `with`; `faults` are the rules of `push-gateway-lab simulate --faults`."""
        return Simulators(self, faults, log)

    def gateway(
        self, database: Database, simulators: Simulators, env: Mapping[str, str] | None = None, *,
        apps: Sequence[str] = ("porteiro",), rates_raised: bool = True, replica: int = 1,
    ) -> Gateway:
        """A gateway of the version of `database`, which it serves, for a `with`: alive when this returns.

        `apps` all have the simulators' credentials. The providers' own limits (600 pushes/s at Expo, 10,000 at FCM) are
        raised unless `rates_raised` is false: they would be what is measured. `env` goes before the rest. `replica` tells
        several of one database apart.
        """
        return Gateway(self, database, simulators, env or {}, apps, rates_raised, replica)

    def tool(self, name: str) -> pathlib.Path | None:
        """A program of the nested package; None when it is not built."""
        path = self.tools / name
        return path if os.access(path, os.X_OK) else None


class Simulators(Process):
    """`push-gateway-lab simulate`, ready."""

    def __init__(self, bench: Bench, faults: Sequence[Rule] | None, log: bool) -> None:
        self.directory = bench.directory / "simulators"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "pushes.log"
        """Every push accepted, a line of JSON each, when `log` was asked for."""
        self.log.unlink(missing_ok=True)
        arguments: list[str | os.PathLike[str]] = [bench.lab_binary, "simulate", "--directory", self.directory]
        if log:
            arguments += ["--log", self.log]
        if faults:
            plan = self.directory / "faults.json"
            plan.write_text(json.dumps(list(faults)))
            arguments += ["--faults", plan]
        super().__init__("simulators", arguments, bench.directory)
        self.config = self.directory / "gateway.yaml"
        """What `push-gateway-lab simulate` wrote for a gateway with the one app porteiro."""
        with _stopped_if_it_fails(self):
            self.wait_until(lambda: '"ready":true' in self.output.read_text(), "getting ready")

    def accepted(self) -> int:
        """Stops them and returns the number of pushes that they accepted."""
        counters = self.counters()
        violations = {name: of["violations"] for name, of in counters.items() if of["violations"]}
        if violations:
            raise BenchError(f"the simulators saw rules broken: {violations}")
        return sum(of["accepted"] for of in counters.values())

    def counters(self) -> dict[str, dict]:
        """Stops them and returns their counters by provider."""
        self.stop()
        return json.loads(self.output.read_text().splitlines()[-1])


class Gateway(Process):
    """`push-gateway serve`, alive."""

    def __init__(
        self, bench: Bench, database: Database, simulators: Simulators, env: Mapping[str, str], apps: Sequence[str],
        rates_raised: bool, replica: int,
    ) -> None:
        name = f"gateway-{database.name}-{replica}"
        config = bench.directory / f"{name}.yaml"
        config.write_text(configuration(simulators.config.read_text(), apps, rates_raised))
        port = free_port()
        self.http = f"http://127.0.0.1:{port}"
        """Where /metrics and the health checks are."""
        newest = database.number("select coalesce(max(id), 0) from push.gateways")
        super().__init__(name, [database.gateway_binary, "serve", "--config", config], bench.directory, env={
            "DATABASE_URL": database.url, "PUSH_GATEWAY_HTTP_LISTEN": f"127.0.0.1:{port}",
            "PUSH_GATEWAY_LOG_LEVEL": "warning", "PUSH_GATEWAY_SHUTDOWN_DRAIN_SECONDS": "2", **env})
        with _stopped_if_it_fails(self):
            alive = f"select count(*) from push.gateways where alive and id > {newest}"
            self.wait_until(lambda: database.number(alive) > 0, "serving")


def configuration(simulated: str, apps: Sequence[str], rates_raised: bool) -> str:
    """The simulators' gateway.yaml with its one app under other names, and without browsers, which the old version does not know."""
    head, _, app = simulated.partition("apps:\n")
    name, _, settings = app.partition("\n")
    settings = re.sub(r"^    webpush:\n(?:      .*\n)*", "", settings, flags=re.MULTILINE)
    if rates_raised:
        for provider in ("fcm", "expo"):
            settings = settings.replace(f"    {provider}:\n", f"    {provider}:\n      rate_per_second: 1000000\n")
    indent = name[: len(name) - len(name.lstrip())]
    return f"{head}apps:\n" + "".join(f"{indent}{app}:\n{settings}" for app in apps)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def number(value: float) -> str:
    """Three significant digits, or a whole number with commas."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def machine(cluster: Cluster) -> dict[str, object]:
    """The machine on which the figures were measured."""
    cpu = [line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith("model name")]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": len(os.sched_getaffinity(0)), "memory_gib": round(pages / 2**30),
        "cpu": cpu[0] if cpu else platform.machine(), "kernel": platform.release(), "postgres": cluster.version(),
    }


def commit() -> str:
    """The short id of the checkout's commit, with a + when something measured has been changed since."""
    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip()
    changed = git("status", "--porcelain", "--", "Sources", "Package.swift", "migrations", "benchmarks", "scripts")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+" if changed else "")


@contextlib.contextmanager
def _stopped_if_it_fails(process: Process):
    try:
        yield
    except BaseException:
        process.stop()
        raise


def _program(variable: str, otherwise: pathlib.Path, remedy: str) -> pathlib.Path:
    path = pathlib.Path(os.environ.get(variable) or otherwise).absolute()
    if not os.access(path, os.X_OK):
        raise BenchError(f"there is no program {path}: {remedy}, or name one in {variable}")
    return path


def _allow_many_files() -> None:
    """600 lanes have thousands of connections, in the gateway and in the simulators."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
