"""The programs under test: three gateways, each behind a proxy of its own, and the simulated providers."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import time
import urllib.request
from collections.abc import Mapping

from benchmarks.processes import BenchError, Process, run
from Tests.soak.calls import APP, RULES
from Tests.soak.proxy import Proxy

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Simulators(Process):
    """`push-gateway-lab simulate`: its log is the outside account of what the providers accepted."""

    def __init__(self, binary: pathlib.Path, directory: pathlib.Path, rules: list[dict[str, object]] = RULES) -> None:
        material = directory / "simulators"
        material.mkdir(parents=True, exist_ok=True)
        plan = directory / "simulators-faults.json"
        plan.write_text(json.dumps(rules))
        self.log = directory / "pushes.log"
        super().__init__("simulators", [
            f"{binary}-lab", "simulate", "--directory", material, "--app", APP, "--log", self.log, "--faults", plan], directory)
        self.config = material / "gateway.yaml"
        self.wait_until(lambda: '"ready":true' in self.output.read_text(), "getting ready")


class Gateway:
    """One place in the fleet: a process, and the next one when it has died."""

    def __init__(
        self, number: int, binary: pathlib.Path, simulators: Simulators, directory: pathlib.Path,
        proxy: Proxy | None = None, url: str = "", environment: Mapping[str, str] | None = None,
    ) -> None:
        self.number = number
        self._environment = environment or {}
        self._proxy = proxy
        self._url = url
        """How it reaches Postgres without a proxy."""
        self.is_frozen = False
        self.ended: list[str] = []
        """The ends of its processes that nobody asked for."""
        self._binary = binary
        self._directory = directory
        self._lives = 0
        self._process: Process | None = None
        self._port = free_port()
        self._config = directory / f"gateway-{number}.yaml"
        templates = directory / f"gateway-{number}-templates.json"
        templates.write_text(json.dumps(marked_templates(str(number))))
        self._config.write_text(simulators.config.read_text() + f"    templates_file: {json.dumps(str(templates))}\n")

    @property
    def proxy(self) -> Proxy:
        assert self._proxy is not None
        return self._proxy

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.exit_status is None

    def start(self) -> None:
        self._lives += 1
        self.is_frozen = False
        self._process = Process(
            f"gateway-{self.number}.{self._lives}", [self._binary, "serve", "--config", self._config], self._directory,
            env={
                "DATABASE_URL": self._url or f"postgres://push@127.0.0.1:{self.proxy.port}/push",
                "PUSH_GATEWAY_HTTP_LISTEN": f"127.0.0.1:{self._port}",
                "PUSH_GATEWAY_LOG_LEVEL": os.environ.get("PUSH_GATEWAY_SOAK_LOG_LEVEL", "notice"),
                "PUSH_GATEWAY_LOG_FORMAT": "json",
                "PUSH_GATEWAY_SHUTDOWN_DRAIN_SECONDS": "5",
                **self._environment,
            })

    def is_ready(self) -> bool:
        try:
            self.read("/readyz")
        except OSError:
            return False
        return True

    def read(self, path: str) -> str:
        """What its listener of health and metrics answers; OSError if it does not."""
        with DIRECT.open(f"http://127.0.0.1:{self._port}{path}", timeout=1) as answer:
            return answer.read().decode()

    def wait_until_ready(self, seconds: float = 60) -> None:
        limit = time.monotonic() + seconds
        while not self.is_ready():
            if self._process is not None:
                self._process.check()
            if time.monotonic() > limit:
                raise BenchError(f"gateway {self.number} is not ready after {seconds:g} s")
            time.sleep(0.1)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(10)
        self._process = None

    def replace(self, binary: pathlib.Path) -> None:
        """Stops it as an init system does, and starts another program in its place."""
        if self._process is not None:
            os.kill(self._process.pid, signal.SIGTERM)
            if (status := self._process.wait(30)) != 0:
                self.ended.append(f"gateway {self.number}, life {self._lives}: status {status} after SIGTERM, see {self._process.errors}")
        self._binary = binary
        self.start()

    def freeze(self) -> None:
        self.is_frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.is_frozen = False
        self._signal(signal.SIGCONT)

    def revive(self) -> bool:
        """Starts it again, as an init system would, if it ended by itself; whether it did."""
        if self._process is None or self._process.exit_status is None:
            return False
        self.ended.append(f"gateway {self.number}, life {self._lives}: status {self._process.exit_status}, "
                          f"see {self._process.errors}")
        self.start()
        return True

    def stop(self) -> None:
        if self._process is not None:
            if self.is_frozen:
                self.thaw()
            self._process.stop()

    def _signal(self, number: signal.Signals) -> None:
        if self.is_running and self._process is not None:
            os.killpg(self._process.pid, number)


def marked_templates(gateway: str) -> dict[str, dict[str, object]]:
    """Templates for every push of the soak, which say who sent it and what it is."""
    kinds = ("invite", "cancel", "missed_call", "message")

    def data(kind: str) -> dict[str, object]:
        return {"soakGateway": gateway, "soakKind": kind, "callId": "${callId}", "timestamp": "${timestamp}",
                "expiresAt": "${expiresAt}", "seq": "${seq}"}
    alert = {"alert": {"title": "${fromName|from}", "body": "Soak"}}
    return {
        "apns": {kind: data(kind) if kind == "invite" else {"aps": alert, **data(kind)} for kind in kinds if kind != "cancel"},
        "fcm": {kind: data(kind) for kind in kinds},
        "expo": {kind: {"title": "Soak", "body": "Soak", "data": data(kind)} if kind in ("missed_call", "message")
                 else {"_contentAvailable": True, "data": data(kind)} for kind in kinds},
    }


def migrate(binary: pathlib.Path, url: str) -> None:
    run([binary, "migrate"], env={"DATABASE_URL": url})


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
