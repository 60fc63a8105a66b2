"""Two Patroni nodes, an etcd and an haproxy on a bridge of this network namespace."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

from benchmarks.processes import BenchError
from Tests.soak.wire import Connection, ConnectionLost, PostgresError

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "deploy" / "patroni"
BRIDGE = "10.99.0.1"
NAME = "pg-primary.test"
"""The name that follows the primary: a callback of Patroni rewrites its line in the hosts file."""
TTL = 20.0
"""Of deploy/patroni/patroni.yml; the least that Patroni documents."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Node:
    """A machine: a namespace of processes and of the network. Its first process is Patroni, which also reaps; to kill it is
    to pull the plug."""

    def __init__(self, name: str, number: int, directory: pathlib.Path, hosts: pathlib.Path, is_synchronous: bool) -> None:
        self.name = name
        self.address = f"10.99.0.{10 + number}"
        self._link = f"veth{number}"
        self._directory = directory / f"node-{name}"
        self._hosts = hosts
        self._machine: subprocess.Popen[bytes] | None = None
        self._directory.mkdir(mode=0o700)
        binaries = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))[-1]
        text = (EXAMPLES / "patroni.yml").read_text()
        for word, value in (
            ("NODE", name), ("ADDRESS", self.address), ("ETCD", BRIDGE), ("DIRECTORY", str(self._directory)),
            ("BINARIES", str(binaries)), ("SYNCHRONOUS", str(is_synchronous).lower()),
        ):
            text = text.replace(word, value)
        self._config = self._directory / "patroni.yml"
        self._config.write_text(text)
        callback = self._directory / "move-name"
        callback.write_text(f"#!/bin/sh\n[ \"$2\" = master ] || [ \"$2\" = primary ] || exit 0\n"
                            f"printf '127.0.0.1 localhost\\n{self.address} {NAME}\\n' >{hosts}\n")
        callback.chmod(0o755)
        for path in (self._directory, *self._directory.iterdir()):
            shutil.chown(path, "postgres", "postgres")

    def start(self) -> None:
        (self._directory / "data" / "postmaster.pid").unlink(missing_ok=True)  # the machine was dead
        with (self._directory.parent / f"patroni-{self.name}.log").open("ab") as log:
            # It waits for a line: until its network is there.
            self._machine = subprocess.Popen(
                ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
                 'read _ && exec setpriv --reuid postgres --regid postgres --init-groups patroni "$1"', "sh", self._config],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd="/")
        limit = time.monotonic() + 10
        while not self._first() and time.monotonic() < limit:
            time.sleep(0.02)
        time.sleep(0.1)
        first = str(self._first())
        ip("link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", first)
        ip("link", "set", self._link, "master", "bridge0", "up")
        for words in (("link", "set", "lo", "up"), ("addr", "add", f"{self.address}/24", "dev", "eth0"),
                      ("link", "set", "eth0", "up")):
            subprocess.run(["nsenter", "-t", first, "-n", "ip", *words], check=True)
        assert self._machine.stdin is not None
        self._machine.stdin.write(b"\n")
        self._machine.stdin.close()

    def kill(self) -> None:
        if self._machine is not None:
            first = self._first()
            if first:
                os.kill(first, signal.SIGKILL)
            self._machine.wait()
            self._machine = None
            subprocess.run(["ip", "link", "del", self._link], stderr=subprocess.DEVNULL)

    def freeze(self, is_frozen: bool) -> None:
        """Everything that runs on the node; the first process of a namespace ends last."""
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):  # a session that has ended meanwhile
                os.kill(pid, signal.SIGSTOP if is_frozen else signal.SIGCONT)

    def cut(self, is_cut: bool) -> None:
        """The cable: processes run on."""
        ip("link", "set", self._link, "down" if is_cut else "up")

    def is_primary(self) -> bool:
        try:
            with DIRECT.open(f"http://{self.address}:8008/primary", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

    def switch_over(self, to: Node) -> None:
        request = urllib.request.Request(
            f"http://{self.address}:8008/switchover", json.dumps({"leader": self.name, "candidate": to.name}).encode(),
            {"Content-Type": "application/json"})
        try:
            DIRECT.open(request, timeout=60).close()
        except urllib.error.HTTPError as error:
            raise BenchError(f"Patroni refused the switchover: {error.read().decode()}") from None

    async def ask(self, statement: str, database: str = "postgres") -> list[tuple[str | None, ...]] | None:
        """None: it does not answer."""
        try:
            connection = await Connection.open(5432, database, timeout=1, host=self.address)
            try:
                return await connection.query(statement, timeout=2)
            finally:
                connection.close()
        except (ConnectionLost, PostgresError):
            return None

    def _first(self) -> int:
        assert self._machine is not None
        pid = self._machine.pid
        try:
            return int((pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split() or ["0"])[0])
        except OSError:
            return 0

    def _processes(self) -> list[int]:
        ours = os.readlink(f"/proc/{self._first()}/ns/pid")
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if os.readlink(path / "ns" / "pid") == ours:
                    found.append(int(path.name))
            except OSError:
                pass
        return sorted(found)


class Cluster:
    def __init__(self, directory: pathlib.Path, hosts: pathlib.Path, is_synchronous: bool) -> None:
        self.is_synchronous = is_synchronous
        self.nodes = [Node(name, number, directory, hosts, is_synchronous) for number, name in enumerate("ab", 1)]
        self._directory = directory
        self._services: list[subprocess.Popen[bytes]] = []

    async def start(self) -> None:
        etcd = f"http://{BRIDGE}"
        self._service("etcd", "etcd", "--data-dir", str(self._directory / "etcd"), "--listen-client-urls", f"{etcd}:2379",
                      "--advertise-client-urls", f"{etcd}:2379", "--listen-peer-urls", f"{etcd}:2380",
                      "--initial-advertise-peer-urls", f"{etcd}:2380", "--initial-cluster", f"default={etcd}:2380",
                      "--unsafe-no-fsync")
        proxy = self._directory / "haproxy.cfg"
        text = (EXAMPLES / "haproxy.cfg").read_text()
        for word, node in zip(("ADDRESS_A", "ADDRESS_B"), self.nodes):
            text = text.replace(word, node.address)
        proxy.write_text(text)
        self._service("haproxy", "haproxy", "-db", "-f", str(proxy))
        self.nodes[0].start()
        await self.wait(lambda: self._leads(self.nodes[0]), "the first primary", 90)
        await self.nodes[0].ask("create database push")
        self.nodes[1].start()
        await self.wait_until_whole()

    async def wait_until_whole(self) -> tuple[Node, Node]:
        """Until a standby streams, synchronously if it must: the primary and the standby."""
        state = "sync" if self.is_synchronous else "async"

        async def is_whole() -> bool:
            for node in self.nodes:
                if await self._leads(node):
                    rows = await node.ask(
                        f"select 1 from pg_stat_replication where state = 'streaming' and sync_state = '{state}'"
                        " and application_name in ('a', 'b')")
                    return bool(rows)
            return False
        await self.wait(is_whole, "a streaming standby", 120)
        first, second = self.nodes
        return (first, second) if await self._leads(first) else (second, first)

    async def wait(self, is_so, what: str, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while not await is_so():
            if time.monotonic() > limit:
                raise BenchError(f"no {what} after {seconds:g} s: see patroni-a.log and patroni-b.log in {self._directory}")
            for service in self._services:
                if service.poll() is not None:
                    raise BenchError(f"{service.args[0]} ended with {service.returncode}: see its log in {self._directory}")
            await asyncio.sleep(0.1)

    def stop(self) -> None:
        for node in self.nodes:
            node.kill()
        for service in self._services:
            service.kill()
            service.wait()

    async def _leads(self, node: Node) -> bool:
        return await asyncio.to_thread(node.is_primary)

    def _service(self, name: str, *command: str) -> None:
        with (self._directory / f"{name}.log").open("wb") as log:
            self._services.append(subprocess.Popen(
                list(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True))
