"""A machine for push-gateway: a database, simulated providers, replicas, a Prometheus. What it starts it stops."""

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Longer than anything here takes on a busy machine.
PATIENCE_SECONDS = 300
# The loopback only: no proxy has a part in it.
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Failure(Exception):
    """Why the tests cannot go on."""


# Sockets that are bound and do not listen: the system gives their ports to no other socket while this process
# runs, except to a program that asks for one by its number.
HELD = []


def free_port():
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    HELD.append(holder)
    return holder.getsockname()[1]


def get(url, accept="*/*"):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with HTTP.open(request, timeout=PATIENCE_SECONDS) as response:
        return response.read().decode()


def reachable(url):
    try:
        get(url)
        return True
    except OSError:
        return False


class Machine:
    """A context: everything is stopped and dropped at its end, the last one started first."""

    def __init__(self, given, gateway):
        self.given = given
        self.gateway = str(Path(gateway).resolve())
        self.name = f"push_prometheus_{os.getpid()}"
        server, mark, parameters = given.partition("?")
        self.url = f"{server.rpartition('/')[0]}/{self.name}{mark}{parameters}"
        self.work = Path(tempfile.mkdtemp(prefix="push-prometheus."))
        self.running = []

    def __enter__(self):
        self._psql(self.given, f"create database {self.name}")
        self._run([self.gateway, "migrate"], env={"DATABASE_URL": self.url})
        return self

    def __exit__(self, *_):
        for process in reversed(self.running):
            self.stop(process)
        self._psql(self.given, f"drop database if exists {self.name} with (force)")
        shutil.rmtree(self.work, ignore_errors=True)

    def sql(self, statement):
        return self._psql(self.url, statement)

    def simulators(self):
        """Starts the providers; returns the configuration they wrote for a gateway."""
        directory = self.work / "simulators"
        arguments = [f"{self.gateway}-lab", "simulate", "--directory", str(directory)]
        process, log = self.start("simulators", arguments)
        self.await_("simulators", process, log, lambda: '"ready":true' in log.read_text())
        return (directory / "gateway.yaml").read_text()

    def replica(self, name, configuration, address=None, environment=None):
        """Starts a gateway; returns its process and its address once it is ready."""
        file = self.work / "simulators" / f"{name}.yaml"
        file.write_text(configuration)
        address = address or f"127.0.0.1:{free_port()}"
        process, log = self.start(
            name, [self.gateway, "serve", "--config", str(file)],
            env={"DATABASE_URL": self.url, "PUSH_GATEWAY_HTTP_LISTEN": address, **(environment or {})})
        self.await_(name, process, log, lambda: reachable(f"http://{address}/readyz"))
        return process, address

    def prometheus(self, targets, rules):
        """Starts a Prometheus that looks every five seconds, and waits as long; returns its address."""
        (self.work / "rules.yml").write_text(rules)
        (self.work / "prometheus.yml").write_text(f"""
global: {{ scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 1s }}
rule_files: [rules.yml]
scrape_configs:
  - job_name: push-gateway
    static_configs: [{{ targets: {targets!r} }}]
""")
        address = f"127.0.0.1:{free_port()}"
        process, log = self.start("prometheus", [
            "prometheus", f"--config.file={self.work}/prometheus.yml", f"--storage.tsdb.path={self.work}/tsdb",
            f"--web.listen-address={address}", "--log.level=warn"])
        self.await_("prometheus", process, log, lambda: reachable(f"http://{address}/-/ready"))
        return address

    def start(self, name, arguments, env=None):
        log = self.work / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                arguments, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT)
        self.running.append(process)
        return process, log

    def stop(self, process, how=signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @staticmethod
    def await_(what, process, log, condition):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"{what} is not ready: {' '.join(log.read_text().splitlines()[-5:])}")
            time.sleep(0.05)

    def _psql(self, url, statement):
        return self._run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", url, "-c", statement])

    @staticmethod
    def _run(arguments, env=None):
        done = subprocess.run(arguments, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(f"{arguments[0]} failed: {done.stderr.strip()[-500:]}")
        return done.stdout.strip()


def app_block(configuration, name, changes=()):
    """The simulators' app under another name, each change a pair of a pattern and what to put in its place."""
    block = configuration[configuration.index("\napps:\n") + len("\napps:\n") :]
    block = re.sub(r"^  [\w-]+:$", f"  {name}:", block, count=1, flags=re.MULTILINE)
    for pattern, replacement in changes:
        block, count = re.subn(pattern, replacement, block, count=1, flags=re.MULTILINE)
        if not count:
            raise Failure(f"the simulators' configuration has no {pattern}")
    return block.rstrip("\n") + "\n"


def with_apps(configuration, blocks):
    return configuration[: configuration.index("\napps:\n") + len("\napps:\n")] + "".join(blocks)
