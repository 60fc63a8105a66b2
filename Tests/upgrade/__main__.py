"""Upgrades a fleet of two gateways from the previous release, back and forth, while calls ring: docs/compatibility.md.

Two backends enqueue and end calls, one by SQL and one over HTTP. At the end, the account of the soak says whether anything was lost,
late, stuck or repeated. Exit status: 0: all promises were kept; 1: some were not; 2: the test itself broke.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import sys
import time

from benchmarks import baseline
from benchmarks.processes import BenchError, run
from Tests.soak import evidence
from Tests.soak.account import settle_account
from Tests.soak.backend import Backend
from Tests.soak.calls import APP, CallGenerator
from Tests.soak.cluster import Server
from Tests.soak.evidence import Evidence
from Tests.soak.faults import Fault
from Tests.soak.fleet import Gateway, Simulators, free_port, migrate
from Tests.soak.wire import Connection
from Tests.upgrade import begun
from Tests.upgrade.http_backend import HTTPBackend

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREVIOUS = pathlib.Path(__file__).with_name("previous-release")
QUIET_SECONDS = 90.0
"""How long what is owed may take at the end: a ring window, and a minute."""
KEPT = """
select 'function push.' || p.proname || '(' || regexp_replace(pg_get_function_identity_arguments(p.oid), '(, )?OUT .*', '') || ')'
  from pg_proc p
  where p.pronamespace = 'push'::regnamespace and not exists (select from push.job j where j.name = p.proname)
    and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee <> p.proowner)
union all
select 'column push.' || c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
  from pg_class c join pg_attribute a on a.attrelid = c.oid
  where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p', 'v') and a.attnum > 0 and not a.attisdropped
    and not c.relispartition and exists (
      select from (values (c.relacl), (a.attacl)) v(acl) cross join lateral aclexplode(v.acl) x where x.grantee <> c.relowner)
"""
"""What somebody other than the owner may use. Functions use the rest, and are replaced with it; push.run_job runs the jobs."""
RECORDED = """
select string_agg(t::text, ';' order by t::text) from (select topic, checksum, release, applied_at from push.schema_functions) t
"""
COMMANDS = (["status"], ["lanes"], ["migrate", "--check"], ["api-key", "list"])
"""What an operator may run of the former release on the schema of this one."""
FAMILY = re.compile(r"^# TYPE (\S+) (\S+)$", re.M)


@dataclasses.dataclass(frozen=True)
class Release:
    version: str
    binary: pathlib.Path


@dataclasses.dataclass
class Phase:
    """A part of the run, in which the same programs ran. Times are seconds since 1970."""

    name: str
    at: float


class Upgrade:
    """Leaving its `async with` block stops all it has started."""

    def __init__(self, old: Release, new: Release, rate: float, seconds: float, seed: int, directory: pathlib.Path) -> None:
        self.old, self.new = old, new
        self.directory = directory
        self.seconds = seconds
        """How long each phase lasts."""
        self.server = Server("postgres", directory, free_port())
        self.url = f"postgres://push@127.0.0.1:{self.server.port}/push"
        self.generator = CallGenerator(seed)
        self.sql = Backend(self.generator, lambda: self.server.port, rate / 2, seed)
        self.http: HTTPBackend | None = None
        self.gateways: list[Gateway] = []
        self.api = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.faults: list[Fault] = []
        self.phases: list[Phase] = []
        self.findings: list[str] = []
        """What is wrong besides the account."""
        self._rate, self._seed = rate, seed
        self._simulators: Simulators | None = None

    async def __aenter__(self) -> Upgrade:
        return self

    async def __aexit__(self, *_: object) -> None:
        for backend in (self.sql, self.http):
            if backend is not None:
                await backend.stop()
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.kill)
        if self._simulators is not None:
            await asyncio.to_thread(self._simulators.stop)
        with contextlib.suppress(BenchError):
            await self.server.stop("fast")

    async def run(self) -> bool:
        await self._start()
        assert self.http is not None
        for backend in (self.sql, self.http):
            backend.start()
        load = asyncio.gather(self.sql.run(3600), self.http.run(3600))
        try:
            steps = asyncio.create_task(self._steps())
            await asyncio.wait([steps, load], return_when=asyncio.FIRST_COMPLETED)
            if load.done():
                steps.cancel()
                await load
            await steps
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
        return await self._settle()

    async def _start(self) -> None:
        await self.server.stop("immediate")  # of a run that was killed
        await self.server.create()
        connection = await Connection.open(self.server.port, "postgres")
        await connection.query("create database push")
        connection.close()
        await asyncio.to_thread(migrate, self.old.binary, self.url)
        # The configuration is the former release's, too.
        self._simulators = await asyncio.to_thread(Simulators, self.old.binary, self.directory)
        for number, address in enumerate(self.api):
            self.gateways.append(Gateway(
                number, self.old.binary, self._simulators, self.directory, url=self.url,
                environment={"PUSH_GATEWAY_API_ENABLED": "true", "PUSH_GATEWAY_API_LISTEN": address}))
            self.gateways[-1].start()
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.wait_until_ready)
        key = run([self.old.binary, "api-key", "create", APP, "upgrade", "--scopes", "enqueue"], env={"DATABASE_URL": self.url})
        self.http = HTTPBackend(self.generator, lambda: self.api, key.split()[-1], self._rate / 2, self._seed)

    # --- The upgrade ---

    async def _steps(self) -> None:
        old, new = self.old, self.new
        first, second = self.gateways
        await self._phase(f"{old.version} on its own schema")
        before = await self._schema()
        metrics = await asyncio.to_thread(first.read, "/metrics")
        self._say(f"{new.version} migrates")
        self.phases.append(Phase(f"{new.version} migrates", time.time()))
        refused = await begun.check(self.server.port, APP, lambda: asyncio.to_thread(migrate, new.binary, self.url))
        self.findings += [f"a statement that began before the migration: {text}" for text in refused]
        after = await self._schema()
        self._compare(before, after)
        await self._phase(f"{old.version} on the schema of {new.version}")
        await self._check_commands(old)
        fault = Fault("kill", time.time(), 0, (0,))
        await asyncio.to_thread(first.kill)
        first.start()
        await asyncio.to_thread(first.wait_until_ready)
        fault.until = time.time()
        self.faults.append(fault)
        await self._phase(f"{old.version}, killed and started on the schema of {new.version}")
        await self._replace(first, new, f"{new.version} beside {old.version}")
        self._compare_metrics(metrics, await asyncio.to_thread(first.read, "/metrics"))
        await self._replace(second, new, f"{new.version} alone")
        await self._check_commands(new)
        await self._replace(first, old, f"rolled back: {old.version} beside {new.version}")
        await self._replace(second, old, f"rolled back: {old.version} alone")
        recorded = await self._ask(RECORDED)
        await asyncio.to_thread(migrate, old.binary, self.url)
        if await self._ask(RECORDED) != recorded:
            self.findings.append(f"migrate of {old.version} changed the schema of {new.version}")
        await self._replace(second, new, f"forward again: {old.version} beside {new.version}")
        await self._replace(first, new, f"forward again: {new.version} alone")
        await self._next_release(first)

    async def _phase(self, name: str) -> None:
        self._say(name)
        self.phases.append(Phase(name, time.time()))
        await asyncio.sleep(self.seconds)
        for gateway in self.gateways:
            gateway.revive()

    async def _replace(self, gateway: Gateway, release: Release, name: str) -> None:
        await asyncio.to_thread(gateway.replace, release.binary)
        await asyncio.to_thread(gateway.wait_until_ready)
        await self._phase(name)

    async def _next_release(self, gateway: Gateway) -> None:
        """A gateway of this release starts on the schema of the next one, and not on that of a later one."""
        major, minor = (int(number) for number in self.new.version.split(".")[:2])
        await self._ask("insert into push.schema_migration values (9999, 'next', sha256('next'), clock_timestamp(), 1)")
        await self._ask("create table push.of_the_next_release (id int)")
        await self._ask(f"update push.schema_functions set release = '{major}.{minor + 1}.0'")
        await self._replace(gateway, self.new, f"{self.new.version} on a schema of {major}.{minor + 1}.0")
        later = f"{major}.{minor + 2}.0"
        await self._ask(f"update push.schema_functions set release = '{later}'")
        try:
            await asyncio.to_thread(
                run, ["timeout", "20", self.new.binary, "serve", "--config", self.directory / "gateway-0.yaml"],
                env={"DATABASE_URL": self.url, "PUSH_GATEWAY_HTTP_LISTEN": "127.0.0.1:0"})
        except BenchError as error:
            if f"push-gateway {later} has migrated this schema" not in str(error):
                self.findings.append(f"{self.new.version} refuses the schema of {later} without saying why: {error}")
        else:
            self.findings.append(f"{self.new.version} serves the schema of {later}")

    async def _ask(self, statement: str) -> list[tuple[str | None, ...]]:
        connection = await Connection.open(self.server.port)
        try:
            return await connection.query(statement, timeout=60)
        finally:
            connection.close()

    async def _schema(self) -> set[str]:
        return {row[0] or "" for row in await self._ask(KEPT)}

    def _compare(self, before: set[str], after: set[str]) -> None:
        gone = sorted(before - after)
        self._say(f"the migration added {len(after - before)} functions and columns, and removed {len(gone)}")
        for name in gone:
            arguments = name[:-1]  # more arguments at the end, if they have defaults
            longer = arguments if arguments.endswith("(") else f"{arguments}, "
            if not name.startswith("function") or not any(other.startswith(longer) for other in after):
                self.findings.append(f"{self.old.version} used it, and {self.new.version} does not have it: {name}")

    def _compare_metrics(self, before: str, after: str) -> None:
        kept = dict(FAMILY.findall(after))
        for name, kind in FAMILY.findall(before):
            if kept.get(name) != kind:
                self.findings.append(f"the {kind} {name} of {self.old.version} is not a metric of {self.new.version}")

    async def _check_commands(self, release: Release) -> None:
        for words in COMMANDS:
            try:
                await asyncio.to_thread(run, [release.binary, *words], env={"DATABASE_URL": self.url})
            except BenchError as error:
                self.findings.append(f"push-gateway {' '.join(words)} of {release.version}: {error}")

    # --- The account ---

    async def _settle(self) -> bool:
        assert self.http is not None and self._simulators is not None
        self._say("waiting until nothing is owed")
        await self.sql.settle_down(30)
        limit = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < limit and (await self._ask(evidence.WAITING))[0] != ("0", "0"):
            await asyncio.sleep(0.5)
        connection = await Connection.open(self.server.port)
        owed = await evidence.read_deliveries(connection, evidence.OWED)
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.stop)
        await asyncio.to_thread(self._simulators.stop)
        rows = await evidence.read_calls(connection)
        history = await evidence.read_deliveries(connection, evidence.HISTORY)
        left = await evidence.read_deliveries(connection, evidence.OWED)
        connection.close()
        pushes, strange = evidence.read_pushes(self._simulators.log, self.generator.by_token)
        account = settle_account(Evidence(self.generator.calls, pushes, rows, history, owed, left, {}), self.faults)
        self._print_phases(pushes)
        for name, count in sorted(account.figures.items()):
            print(f"  {count:>8,}  {name}")
        print(f"  {self.http.repeated:>8,}  requests of the HTTP backend that were sent again")
        with (self.directory / "violations.txt").open("w") as file:
            for violation in account.violations:
                file.write("\n".join([f"{violation.verdict.upper()}: call {violation.call_id}: {violation.text}",
                                      *(f"    {line}" for line in violation.timeline)]) + "\n\n")
        ended = [end for gateway in self.gateways for end in gateway.ended]
        refused = self.sql.refused + self.http.refused
        for title, lines in (("gateways ended", ended), ("statements and requests refused", refused), ("strange pushes", strange),
                             ("faults of compatibility", self.findings)):
            for line in lines[:5]:
                print(f"  {title}: {line[:600]}")
        (self.directory / "report.json").write_text(json.dumps({
            "verdict": account.line, "figures": account.figures, "findings": self.findings,
            "phases": [dataclasses.asdict(phase) for phase in self.phases]}, indent=1))
        print(f"upgrade {self.old.version} to {self.new.version}: {account.line}, faults of compatibility {len(self.findings)}", flush=True)
        return not (account.violations or ended or refused or strange or self.findings)

    def _print_phases(self, pushes: list[evidence.Push]) -> None:
        """How fast calls rang in each phase: from the commit to the first invite that a provider accepted."""
        first: dict[str, float] = {}
        for push in pushes:
            if push.kind == "invite":
                first[push.call.call_id] = min(push.at, first.get(push.call.call_id, push.at))
        print(f"\n  {'calls':>8}{'median':>10}{'99 %':>10}{'longest':>10}   commit to the first invite, in ms")
        for phase, end in zip(self.phases, [*(phase.at for phase in self.phases[1:]), time.time()]):
            waits = sorted(first[call.call_id] - call.committed_at for call in self.generator.calls
                           if call.call_id in first and phase.at <= call.committed_at < end)
            if waits:
                hundredth = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
                print(f"  {len(waits):>8,}{statistics.median(waits) * 1000:>10.0f}{hundredth * 1000:>10.0f}"
                      f"{waits[-1] * 1000:>10.0f}   {phase.name}")
        print()

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


async def supervise(upgrade: Upgrade) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    async with upgrade:
        return 0 if await upgrade.run() else 1


def previous(directory: pathlib.Path) -> Release:
    """The former release: that of UPGRADE_FROM, else built once from its commit."""
    given = os.environ.get("UPGRADE_FROM")
    if given:
        binary = pathlib.Path(given).absolute()
    else:
        version, commit = next(line.split() for line in PREVIOUS.read_text().splitlines() if not line.startswith("#"))
        binary = baseline.build(ROOT, commit, directory / version, ("push-gateway", "push-gateway-lab"), print)
    return Release(version_of(binary), binary)


def version_of(binary: pathlib.Path) -> str:
    return run([binary, "--version"]).strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test-upgrade.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=16, help="calls a second, of both backends together")
    parser.add_argument("--seconds", type=float, default=10, help="length of each phase")
    parser.add_argument("--seed", type=int, default=4711)
    options = parser.parse_args()
    directory = ROOT / ".local" / "upgrade"
    work = directory / "run"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    binary = pathlib.Path(os.environ.get("PUSH_GATEWAY", ROOT / ".build" / "release" / "push-gateway")).absolute()
    try:
        old, new = previous(directory), Release(version_of(binary), binary)
        if old.version == new.version:
            raise BenchError(f"{old.binary} and {new.binary} are both {new.version}: see Tests/upgrade/previous-release")
        return asyncio.run(supervise(Upgrade(old, new, options.rate, options.seconds, options.seed, work)))
    except (BenchError, baseline.NoBaseline) as error:
        print(f"upgrade: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("upgrade: interrupted", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
