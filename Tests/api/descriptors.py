#!/usr/bin/env python3
"""Attackers of the listeners: connections that say nothing, trickle, or read nothing, more of them than the gateway may have
files open. Meanwhile calls are taken and ring, and probes are answered.

Starts gateways of its own (`push-gateway serve`) under limits of its own, one after the other. Needs nothing but Python.
Exits with 1, and says why, if a gateway gives way.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import pathlib
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "servers"))
from held_ports import hold  # noqa: E402

PATIENCE = 60
failures = []


def check(what, is_right, found=""):
    print(f"   {'ok  ' if is_right else 'FAIL'} {what}{'' if is_right else f': {found!r}'}", flush=True)
    if not is_right:
        failures.append(what)


def eventually(condition, seconds=60):
    """Whether the condition holds at some time; many seconds, because other things may keep the machine busy."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


# MARK: - The gateway

class Gateway:
    def __init__(self, options, name, files, core=None):
        self.name = name
        self.log = pathlib.Path(options.directory, f"{name}.log")
        self.cores = pathlib.Path(options.directory, name)
        shutil.rmtree(self.cores, ignore_errors=True)
        self.cores.mkdir(parents=True)
        self.held = [hold(), hold()]
        self.ops, self.api = (one.getsockname()[1] for one in self.held)
        environment = dict(
            os.environ, PUSH_GATEWAY_HTTP_LISTEN=f"127.0.0.1:{self.ops}", PUSH_GATEWAY_LOG_LEVEL="warning",
            PUSH_GATEWAY_API_ENABLED="true", PUSH_GATEWAY_API_LISTEN=f"127.0.0.1:{self.api}",
            # Swift's own handler, where its tools are installed, would take the signal that asks for a core dump.
            SWIFT_BACKTRACE="enable=no")

        def limit():
            # A shell ignores it for what it starts in the background.
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_NOFILE, files)
            if core is not None:
                resource.setrlimit(resource.RLIMIT_CORE, (core, core))

        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [options.gateway, "serve", "--config", options.config], env=environment, cwd=self.cores, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=log, preexec_fn=limit)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for one in self.held:
            one.close()

    def is_running(self):
        return self.process.poll() is None

    def wait_until_ready(self):
        if not eventually(lambda: not self.is_running() or ask(self.ops, "/readyz") == 200) or not self.is_running():
            self.__exit__()
            sys.exit(f"the gateway did not start: {self.text()[-3000:]}")
        return self

    def text(self):
        return self.log.read_text(errors="replace")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# MARK: - Clients that are as they should be

class Client:
    """A connection of a client that sends requests and reads answers."""

    def __init__(self, port, source="127.0.0.1"):
        self.port, self.source, self.is_over = port, source, False
        self.connect()

    def connect(self):
        self.socket = socket.create_connection(("127.0.0.1", self.port), PATIENCE, (self.source, 0))

    def ask(self, path, body=None, key=None):
        """The status; 0: closed, or no answer in time."""
        head = f"{'GET' if body is None else 'POST'} {path} HTTP/1.1\r\nHost: localhost\r\n"
        if key:
            head += f"Authorization: Bearer {key}\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        try:
            if self.is_over:
                self.socket.close()
                self.connect()
            self.socket.sendall(f"{head}\r\n{body or ''}".encode())
            data = b""
            while b"\r\n\r\n" not in data:
                data += self._more()
            top, _, rest = data.partition(b"\r\n\r\n")
            length = next((int(line[15:]) for line in top.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0)
            while len(rest) < length:
                rest += self._more()
            # A listener that was full answers so to requests without a key.
            self.is_over = b"\r\nconnection: close" in top.lower()
            return int(top.split()[1])
        except (OSError, EOFError):
            return 0

    def _more(self):
        data = self.socket.recv(65536)
        if not data:
            raise EOFError
        return data

    def close(self):
        self.socket.close()


def ask(port, path, body=None, key=None, source="127.0.0.1"):
    """One request on a connection of its own."""
    try:
        client = Client(port, source)
    except OSError:
        return 0
    try:
        return client.ask(path, body, key)
    finally:
        client.close()


class Backend:
    """Enqueues calls and looks at the probes as long as an attack lasts, on connections that last and on new ones."""

    number = 0

    def __init__(self, options, gateway, source="127.0.0.1"):
        self.options, self.gateway, self.source = options, gateway, source
        self.calls = []
        self.lasting = Client(gateway.api, source)
        self.lasting_probe = Client(gateway.ops, source)
        self.work("before")

    def call(self):
        Backend.number += 1
        name = f"descriptors-{os.getpid()}-{Backend.number}"
        self.calls.append(name)
        return json.dumps({
            "payload": {"callId": name, "from": "doorman"}, "ringSeconds": 60,
            "recipients": [{"userId": f"user-{name}", "fcmToken": f"fcm-token-of-{name}"}]})

    def work(self, when, rounds=1, keeps_probe=True):
        """
        keeps_probe: false where clients may not be told from attackers, for both were answered and wait: then the lasting
        connection to the probes is made anew.
        """
        if not keeps_probe:
            self.lasting_probe.close()
            self.lasting_probe = Client(self.gateway.ops, self.source)
        answers = {"call": [], "call on a new connection": [], "probe": [], "/livez": [], "/readyz": []}
        begun, longest = time.monotonic(), 0
        for _ in range(rounds):
            answers["call"].append(self.lasting.ask("/v1/calls", self.call(), self.options.key))
            answers["call on a new connection"].append(
                ask(self.gateway.api, "/v1/calls", self.call(), self.options.key, self.source))
            answers["probe"].append(self.lasting_probe.ask("/livez"))
            answers["/livez"].append(ask(self.gateway.ops, "/livez", source=self.source))
            answers["/readyz"].append(ask(self.gateway.ops, "/readyz", source=self.source))
            longest, begun = max(longest, time.monotonic() - begun), time.monotonic()
        wrong = {name: [status for status in found if status not in (200, 202)] for name, found in answers.items()}
        wrong = {name: found for name, found in wrong.items() if found}
        check(f"{when}: {rounds * 5} requests are answered (five took {longest:.2f} s at most)", not wrong and self.gateway.is_running(),
            wrong)

    def expect_rings(self):
        """Every call that was enqueued here rang: its provider took the push."""
        pushes = pathlib.Path(self.options.pushes)
        missing = set(self.calls)

        def have_rung():
            text = pushes.read_text(errors="replace")
            missing.difference_update({name for name in missing if f'{name}"' in text or f"{name}\\" in text})
            return not missing

        check(f"all {len(self.calls)} calls rang", eventually(have_rung), sorted(missing)[:3])
        self.lasting.close()
        self.lasting_probe.close()


# MARK: - Attackers

SILENT = b""
TRICKLE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
SLOW_BODY = b"POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
ANSWERED = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
UNREAD = b"GET /ui/dashboard.css HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 40


def one_address(_):
    return "127.0.0.9"


def own_address(_):
    return "127.0.0.1"


def many_addresses(number):
    return f"127.{1 + number // 60_000}.{1 + number // 250 % 250}.{1 + number % 250}"


class Crowd:
    """Connections that are held open. What the gateway closes stays closed on its side only."""

    def __init__(self, port, count, data, address, receives=None):
        self.port, self.data, self.address, self.receives = port, data, address, receives
        self.sockets = [self.connect(number) for number in range(count)]

    def connect(self, number):
        attacker = socket.socket()
        attacker.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        if self.receives:
            attacker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receives)
        try:
            attacker.bind((self.address(number), 0))
            attacker.settimeout(PATIENCE)
            attacker.connect(("127.0.0.1", self.port))
            attacker.setblocking(False)
            if self.data:
                attacker.send(self.data)
        except OSError:
            pass
        return attacker

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for attacker in self.sockets:
            attacker.close()


class ReturningCrowd(Crowd):
    """Connections that come back as soon as they are closed."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.is_over = False
        self.returns = 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        number = len(self.sockets)
        while not self.is_over:
            for place, attacker in enumerate(self.sockets):
                try:
                    if attacker.recv(4096):
                        continue
                except BlockingIOError:
                    continue
                except OSError:
                    pass
                attacker.close()
                number += 1
                self.returns += 1
                self.sockets[place] = self.connect(number)
                if self.is_over:
                    return
            time.sleep(0.001)

    def __exit__(self, *_):
        self.is_over = True
        self.thread.join()
        super().__exit__()


class Flood:
    """Connections that send one whole request after the other, without a key, and come back as soon as they are closed. They run in a
    process of their own, so that they do not take the time of the clients that are measured."""

    def __init__(self, port, count, data, address):
        self.answers = multiprocessing.Value("L", 0)
        self.process = multiprocessing.get_context("fork").Process(
            target=lambda: asyncio.run(self.run(port, count, data, address)), daemon=True)

    async def run(self, port, count, data, address):
        # A signal that stops the test also stops this process.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        await asyncio.gather(*(self.repeat(port, data, address(number)) for number in range(count)))

    async def repeat(self, port, data, source):
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            except OSError:
                await asyncio.sleep(0.01)
                continue
            try:
                while True:
                    writer.write(data)
                    if not await reader.read(4096):
                        break
                    self.answers.value += 1
            except OSError:
                pass
            writer.transport.abort()

    def __enter__(self):
        self.process.start()
        eventually(lambda: self.answers.value > 2000)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.join()


def withstands_whole_requests(options):
    """A flood of requests that are whole and have no key: a call on a new connection, and a probe, are answered soon all the same."""
    floods = [("api", b"POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"),
              ("ops", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n"), ("ops", ANSWERED)]
    with Gateway(options, "requests", (4096, 4096)).wait_until_ready() as gateway:
        backend = Backend(options, gateway)
        for (port, data), address in [(flood, address) for flood in floods for address in (one_address, many_addresses)]:
            with Flood(getattr(gateway, port), 600, data, address) as flood:
                before, begun, times, waits = flood.answers.value, time.monotonic(), {"call": [], "/livez": []}, {"call": [], "/livez": []}
                statuses = set()
                while time.monotonic() < begun + 10 or len(times["call"]) < 5:
                    for name, ask_it in (("call", lambda: ask(gateway.api, "/v1/calls", backend.call(), options.key)),
                                         ("/livez", lambda: ask(gateway.ops, "/livez"))):
                        asked, answers = time.monotonic(), flood.answers.value
                        statuses.add(ask_it())
                        times[name].append(time.monotonic() - asked)
                        waits[name].append(flood.answers.value - answers)
                    time.sleep(0.05)
                rate = (flood.answers.value - before) / (time.monotonic() - begun)
            said = ", ".join(f"{name} {statistics.median(found):.2f} s, {max(found):.2f} s at most" for name, found in times.items())
            waited = {name: statistics.median(found) for name, found in waits.items()}
            print(f"        {rate:.0f} requests a second to {port}, {address.__name__}; on new connections: {said}", flush=True)
            check("each was answered", statuses == {200, 202}, statuses)
            # How long that takes is a matter of the machine; in which order, of the gateway.
            check("in its turn, before each attacker has been answered a few times more", max(waited.values()) < 5 * 600, waited)
        backend.expect_rings()


def withstands_crowds(options):
    with Gateway(options, "crowds", (1024, 1024)).wait_until_ready() as gateway:
        print(f"        {gateway.descriptors()} files are open without a client", flush=True)
        backend = Backend(options, gateway)
        crowds = [(name, data, address, port) for address in (own_address, one_address, many_addresses)
                  for name, data in (("silent", SILENT), ("slow", TRICKLE)) for port in ("ops", "api")]
        crowds += [("answered once", ANSWERED, own_address, "ops"), ("answered once", ANSWERED, many_addresses, "ops"),
                   ("slow bodies", SLOW_BODY, many_addresses, "api")]
        for name, data, address, port in crowds:
            with Crowd(getattr(gateway, port), options.connections, data, address):
                is_answered = name == "answered once"
                backend.work(f"{options.connections} {name} connections to {port}, {address.__name__}", 4, not is_answered)
            if is_answered:
                backend.work("after them", 1, False)
        check("a listener's fullness is in the log", '"message":"A listener is full"' in gateway.text())
        backend.expect_rings()


def withstands_returning_crowds(options):
    with Gateway(options, "returning", (1024, 1024)).wait_until_ready() as gateway:
        backend = Backend(options, gateway)
        for address in (one_address, many_addresses):
            for port in ("ops", "api"):
                with ReturningCrowd(getattr(gateway, port), options.connections, TRICKLE, address) as crowd:
                    backend.work(f"{options.connections} connections to {port} that return, {address.__name__}", 20)
                    print(f"        {crowd.returns} returned", flush=True)
        backend.expect_rings()


def withstands_clients_that_do_not_read(options):
    with Gateway(options, "unread", (1024, 1024)).wait_until_ready() as gateway:
        backend = Backend(options, gateway)
        with Crowd(gateway.ops, 300, UNREAD, one_address, receives=4096):
            backend.work("300 connections that read no answer", 4)
        backend.expect_rings()


def recovers_when_descriptors_return(options):
    """Something else takes all descriptors: the listeners wait, and go on by themselves."""
    if not hasattr(resource, "prlimit"):
        return print("   skip: this system changes no limit of a running process")
    with Gateway(options, "recovers", (1024, 1024)).wait_until_ready() as gateway:
        backend = Backend(options, gateway)
        pid = gateway.process.pid
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 1024))
        waiting = [Client(gateway.ops), Client(gateway.api)]
        line = '"message":"A listener cannot accept connections"'
        check("the log says that no connection is to be had", eventually(lambda: gateway.text().count(line) == 2), gateway.text()[-800:])
        before, begun = gateway.cpu_seconds(), time.monotonic()
        time.sleep(3)
        share = (gateway.cpu_seconds() - before) / (time.monotonic() - begun)
        check("it does not ask all the time", share < 0.6, share)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1024, 1024))
        check("a connection of that time is answered", [waiting[0].ask("/livez"), waiting[1].ask("/v1/calls/none", key=options.key)]
              == [200, 404])
        backend.work("afterwards")
        backend.expect_rings()


def fits_into_its_limit(options):
    with Gateway(options, "raised", (256, 4096)).wait_until_ready() as gateway:
        limits = pathlib.Path(f"/proc/{gateway.process.pid}/limits")
        if limits.exists():
            line = next(line for line in limits.read_text().splitlines() if line.startswith("Max open files"))
            check("the soft limit of open files is raised to the hard one", line.split()[3:5] == ["4096", "4096"], line)
        check("and nothing is lowered", "Fewer connections" not in gateway.text(), gateway.text())
    with Gateway(options, "lowered", (256, 256)).wait_until_ready() as gateway:
        line = next((line for line in gateway.text().splitlines() if "Fewer connections are accepted than configured" in line), "{}")
        said = json.loads(line)
        check("limits that do not fit are lowered, and the log says to what",
              0 < int(said.get("http_connections_max", 0)) < 128 and 0 < int(said.get("api_connections_max", 0)) < 512, line)
        backend = Backend(options, gateway)
        with Crowd(gateway.ops, 400, TRICKLE, many_addresses), Crowd(gateway.api, 400, TRICKLE, many_addresses):
            backend.work("800 slow connections where 256 files may be open", 4)
        backend.expect_rings()
    with Gateway(options, "refused", (100, 100)) as gateway:
        code = gateway.process.wait(PATIENCE)
        check("where nothing fits it does not start: 78", code == 78 and "The limit of open files is too low to start" in gateway.text(),
              (code, gateway.text()[-500:]))


def status_of(process):
    """Waits for the process, and returns what wait(2) says of it."""
    ended = []
    if not eventually(lambda: ended.append(os.waitpid(process.pid, os.WNOHANG)) or ended[-1][0]):
        process.kill()
        return 0
    process.returncode = os.waitstatus_to_exitcode(ended[-1][1])
    return ended[-1][1]


def writes_no_core(options):
    """What is in its memory does not come to a disk, nor before the eyes of others."""
    tried = 0
    directory = pathlib.Path(options.directory, "control")
    directory.mkdir(exist_ok=True)

    def limit():
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (hard_core, hard_core))

    hard_core = resource.getrlimit(resource.RLIMIT_CORE)[1]
    control = subprocess.Popen(["sleep", "600"], cwd=directory, preexec_fn=limit)
    eventually(lambda: pathlib.Path(f"/proc/{control.pid}/comm").read_text().strip() == "sleep")
    os.kill(control.pid, signal.SIGQUIT)
    control_dumps = os.WCOREDUMP(status_of(control))
    with Gateway(options, "core", (1024, 1024), core=hard_core).wait_until_ready() as gateway:
        if os.getuid() != 0:
            tried += 1
            owner = os.stat(f"/proc/{gateway.process.pid}/environ").st_uid
            check("its memory is closed to other processes of its user", owner == 0, owner)
        gateway.process.send_signal(signal.SIGQUIT)
        status = status_of(gateway.process)
        if control_dumps:
            tried += 1
            check("SIGQUIT ends it without a core dump, which another process has",
                  os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGQUIT and not os.WCOREDUMP(status), status)
            check("and there is no file", not list(gateway.cores.iterdir()), list(gateway.cores.iterdir()))
    for file in directory.iterdir():
        file.unlink()
    check("one of both could be tried here", tried > 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gateway", required=True, help="the program")
    parser.add_argument("--config", required=True, help="its configuration, with simulators as providers")
    parser.add_argument("--pushes", required=True, help="where the simulators log the pushes they take")
    parser.add_argument("--key", required=True, help="with all scopes, for the app porteiro")
    parser.add_argument("--directory", required=True, help="for logs")
    parser.add_argument("--connections", type=int, default=1100)
    parser.add_argument("--only", help="a part of a test's name")
    parser.add_argument("--patience", type=int, default=PATIENCE, help="seconds to wait for an answer")
    options = parser.parse_args()
    globals()["PATIENCE"] = options.patience
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard < options.connections + 200:
        sys.exit(f"{options.connections + 200} open files are needed here, and the limit is {hard}: raise it (ulimit -Hn)")
    tests = [fits_into_its_limit, writes_no_core, withstands_crowds, withstands_whole_requests, withstands_returning_crowds,
             withstands_clients_that_do_not_read, recovers_when_descriptors_return]
    for test in tests:
        if not options.only or options.only in test.__name__:
            print(f"-- {test.__name__.replace('_', ' ')}", flush=True)
            test(options)
    sys.exit(1 if failures else 0)


main()
