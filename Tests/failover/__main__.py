"""Promotes a standby while calls ring, again and again, and settles the account of the soak afterwards: docs/failover.md."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from benchmarks.processes import BenchError
from Tests.failover.nodes import BRIDGE, NAME, ROOT, TTL, Cluster, ip
from Tests.soak import evidence
from Tests.soak.account import Limits, settle_account
from Tests.soak.backend import Backend
from Tests.soak.calls import CallGenerator
from Tests.soak.evidence import Evidence
from Tests.soak.faults import Fault
from Tests.soak.fleet import Gateway, Simulators, migrate
from Tests.soak.wire import Connection, ConnectionLost, PostgresError

KINDS = ("kill", "freeze", "cut", "switchover", "thaw")
"""The last one shows what a node without a watchdog does. It loses commits, so it runs only on request."""
ROUTES = {
    "hosts": "postgres://push@10.99.0.11:5432,10.99.0.12:5432/push?target_session_attrs=read-write",
    "name": f"postgres://push@{NAME}:5432/push",
    "haproxy": "postgres://push@127.0.0.1:5000/push",
}
PROXY_PORT = 5000
LAG_SECONDS = 1.5
"""For how long the standby hears nothing before the primary is killed."""


class Trial:
    """Several promotions in one mode of replication. Leaving its `async with` block stops all it has started."""

    def __init__(self, mode: str, kinds: list[str], rate: float, seed: int, binary: pathlib.Path,
                 directory: pathlib.Path, hosts: pathlib.Path) -> None:
        self.mode = mode
        self.is_strict = False
        self.kinds = kinds
        self.directory = directory / mode
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.directory.chmod(0o755)
        self.cluster = Cluster(self.directory, hosts, mode == "synchronous")
        self.generator = CallGenerator(seed)
        self.backend = Backend(self.generator, lambda: PROXY_PORT, rate, seed)
        self.gateways: list[Gateway] = []
        self.faults: list[Fault] = []
        self.promotions: list[dict[str, object]] = []
        self._binary = binary
        self._simulators: Simulators | None = None

    async def __aenter__(self) -> Trial:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.backend.stop()
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.kill)
        if self._simulators is not None:
            await asyncio.to_thread(self._simulators.stop)
        await asyncio.to_thread(self.cluster.stop)

    async def run(self) -> bool:
        say(f"{self.mode}: two Patroni nodes start")
        await self.cluster.start()
        await asyncio.to_thread(migrate, self._binary, ROUTES["hosts"])
        self._simulators = await asyncio.to_thread(Simulators, self._binary, self.directory)
        for number, url in enumerate(ROUTES.values()):
            self.gateways.append(Gateway(number, self._binary, self._simulators, self.directory, url=url))
            self.gateways[-1].start()
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.wait_until_ready)
        self.backend.start()
        load = asyncio.create_task(self.backend.run(3600))
        try:
            for kind in self.kinds:
                await self.cluster.wait_until_whole()
                await asyncio.sleep(6)
                await self._promote(kind)
            await asyncio.sleep(8)
        finally:
            load.cancel()
            await asyncio.gather(load, return_exceptions=True)
        return await self._settle()

    async def _promote(self, kind: str) -> None:
        old, new = await self.cluster.wait_until_whole()
        if kind == "kill":  # the worst case: the standby has not heard of the last commits
            new.cut(True)
            await asyncio.sleep(LAG_SECONDS)
        fault = Fault("promote", time.time(), 0, detail=kind)
        self.faults.append(fault)
        match kind:
            case "kill":
                await asyncio.to_thread(old.kill)
                new.cut(False)
            case "freeze" | "thaw":
                old.freeze(True)
            case "cut":
                old.cut(True)
            case _:
                await asyncio.to_thread(old.switch_over, new)

        async def is_promoted() -> bool:
            return await asyncio.to_thread(new.is_primary)
        await self.cluster.wait(is_promoted, "promotion", 90)
        fault.until = time.time()
        # Sequences run ahead of the standby by up to 32 values and hide that ids repeat. Set back, the next calls have those of the
        # calls that were lost.
        await new.ask("select setval(pg_get_serial_sequence('push.outbox', 'id'), max(id)) from push.outbox having count(*) > 0",
                      "push")
        say(f"{self.mode}: {kind} of {old.name}, {new.name} was primary {fault.until - fault.at:.1f} s later")
        await asyncio.sleep(4)
        zombie, sessions = 0.0, 0
        match kind:
            case "kill":
                old.start()
            case "freeze":  # its watchdog has reset it
                await asyncio.to_thread(old.kill)
                old.start()
            case "thaw" | "cut":
                old.freeze(False) if kind == "thaw" else old.cut(False)
                came_back = time.monotonic()
                while time.monotonic() < came_back + 8:
                    # Without a session of a gateway there is one row, too.
                    rows = await old.ask(
                        "select count(*) filter (where application_name like 'push-gateway%'), pg_is_in_recovery() from pg_stat_activity")
                    if rows and rows[0][1] == "f":
                        zombie = time.monotonic() - came_back
                        sessions = max(sessions, int(rows[0][0] or 0))
                    await asyncio.sleep(0.1)
        self.promotions.append({"mode": self.mode, "kind": kind, "at": fault.at, "promoted": fault.until - fault.at,
                                "zombie": zombie, "zombie sessions": sessions})

    async def _settle(self) -> bool:
        """Prints what was lost, late and repeated; whether every promise was kept."""
        say(f"{self.mode}: waiting until nothing is owed")
        await self.backend.settle_down(30)
        limit = time.monotonic() + 75
        while time.monotonic() < limit:
            with contextlib.suppress(ConnectionLost, PostgresError):
                connection = await Connection.open(PROXY_PORT, timeout=2)
                waiting = (await connection.query(evidence.WAITING))[0]
                connection.close()
                if waiting == ("0", "0"):
                    break
            await asyncio.sleep(0.5)
        connection = await Connection.open(PROXY_PORT)
        owed = await evidence.read_deliveries(connection, evidence.OWED)
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.stop)
        assert self._simulators is not None
        await asyncio.to_thread(self._simulators.stop)
        rows = await evidence.read_calls(connection)
        history = await evidence.read_deliveries(connection, evidence.HISTORY)
        left = await evidence.read_deliveries(connection, evidence.OWED)
        connection.close()
        pushes, strange = evidence.read_pushes(self._simulators.log, self.generator.by_token)
        # A synchronous standby has every commit of the backend that was acknowledged.
        limits = Limits(failover=0.0) if self.mode == "synchronous" else Limits()
        if self.is_strict:
            limits = Limits(failover=0.0, claims=0.0)
        account = settle_account(Evidence(self.generator.calls, pushes, rows, history, owed, left, {}), self.faults, limits)
        self._measure(pushes)
        for number, count in sorted(account.figures.items()):
            print(f"  {count:>8,}  {number}")
        with (self.directory / "violations.txt").open("w") as file:
            for violation in account.violations:
                file.write("\n".join([f"{violation.verdict.upper()}: call {violation.call_id}: {violation.text}",
                                      *(f"    {line}" for line in violation.timeline)]) + "\n\n")
        ended = [end for gateway in self.gateways for end in gateway.ended]
        for title, lines in (("gateways ended", ended), ("statements refused", self.backend.refused), ("strange pushes", strange)):
            if lines:
                print(f"  {len(lines)} {title}, for example: {lines[0][:300]}")
        print(f"failover {self.mode}: {len(self.promotions)} promotions, {account.line}", flush=True)
        (self.directory / "report.json").write_text(json.dumps({
            "promotions": self.promotions, "figures": account.figures, "verdict": account.line}, indent=1))
        return not (account.violations or ended or self.backend.refused or strange)

    def _measure(self, pushes: list[evidence.Push]) -> None:
        print(f"\n  {'':<12}{'promoted':>10}{'committed':>11}{'rings':>8}{'of ttl':>8}" +
              "".join(f"{route:>9}" for route in ROUTES) + f"{'zombie':>9}{'sessions':>10}")
        for index, found in enumerate(self.promotions):
            at, promoted_at = self.faults[index].at, self.faults[index].until
            committed = [call.committed_at - at for call in self.generator.calls if call.committed_at > promoted_at]
            new = [push for push in pushes if push.kind == "invite" and push.at > promoted_at]
            by_route = [min((push.at - at for push in new if push.gateway == number), default=-1.0)
                        for number in range(len(ROUTES))]
            rings = min((push.at - at for push in new), default=-1.0)
            found |= {"committed": min(committed, default=-1.0), "rings": rings, "routes": dict(zip(ROUTES, by_route))}
            print(f"  {found['kind']:<12}{found['promoted']:>10.1f}{found['committed']:>11.1f}{rings:>8.1f}{rings / TTL:>8.2f}" +
                  "".join(f"{value:>9.1f}" for value in by_route) + f"{found['zombie']:>9.1f}{found['zombie sessions']:>10}")
        print()


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


async def supervise(options: argparse.Namespace) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    directory = ROOT / ".local" / "failover"
    directory.mkdir(parents=True, exist_ok=True)
    hosts = directory / f"hosts-{options.modes[0]}"  # two runs at a time may do a mode each
    hosts.write_text("127.0.0.1 localhost\n")
    shutil.chown(hosts, "postgres", "postgres")
    subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)
    ip("link", "set", "lo", "up")
    ip("link", "add", "bridge0", "type", "bridge")
    ip("addr", "add", f"{BRIDGE}/24", "dev", "bridge0")
    ip("link", "set", "bridge0", "up")
    kept = True
    for mode in options.modes:
        async with Trial(mode, options.kinds, options.rate, options.seed, options.binary, directory, hosts) as trial:
            trial.is_strict = options.strict
            kept = await trial.run() and kept
    return 0 if kept else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test-failover.sh", description=__doc__)
    parser.add_argument("--small", action="store_true", help="a kill and a switchover with synchronous replication")
    parser.add_argument("--modes", type=lambda text: text.split(","), help="synchronous,asynchronous")
    parser.add_argument("--kinds", type=lambda text: text.split(","), help=",".join(KINDS))
    parser.add_argument("--rate", type=float, default=4, help="calls a second")
    parser.add_argument("--strict", action="store_true", help="excuse nothing that asynchronous replication lost: this must fail")
    parser.add_argument("--seed", type=int, default=4711)
    options = parser.parse_args()
    options.modes = options.modes or (["synchronous"] if options.small else ["synchronous", "asynchronous"])
    options.kinds = options.kinds or (["kill", "switchover"] if options.small else list(KINDS[:-1]))
    if set(options.kinds) - set(KINDS) or set(options.modes) - {"synchronous", "asynchronous"}:
        parser.error("there is no such mode or kind")
    options.binary = pathlib.Path(os.environ.get("PUSH_GATEWAY", ROOT / ".build" / "release" / "push-gateway")).absolute()
    if not os.access(options.binary, os.X_OK):
        parser.error(f"there is no program {options.binary}: make release, or name one in PUSH_GATEWAY")
    try:
        return asyncio.run(supervise(options))
    except BenchError as error:
        print(f"failover: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("failover: interrupted", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
