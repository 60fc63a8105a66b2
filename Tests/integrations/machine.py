"""A machine for a guide: a database, simulated providers and a gateway with the page's own configuration.

What it starts it stops. The gateway's keys and addresses are the simulators', everything else is what the page says.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "Tests" / "docs"))
from page import Page  # noqa: E402

# Longer than anything here takes on a busy machine.
PATIENCE_SECONDS = 300
# The loopback only: no proxy has a part in it.
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# When a push was sent, also in JSON within JSON.
TIMESTAMP = re.compile(r'"timestamp\\*": ?\\*"?\d+')
# Random digits of this run. A token's beginning asks a simulator for nothing.
SALT = os.urandom(8).hex()


class Failure(Exception):
    """Why the tests cannot go on."""


class Results:
    """The outcome of each test, printed as it comes."""

    def __init__(self):
        self.passed = self.failed = 0
        self.of = ""  # what is tested, printed before each test

    def equal(self, what, got, want):
        self.check(what, None if got == want else f"got {got!r}, want {want!r}")

    def check(self, what, fault):
        if fault:
            self.failed += 1
            print(f"not ok - {self.of}{what}: {fault}", flush=True)
        else:
            self.passed += 1
            print(f"ok - {self.of}{what}", flush=True)


def hexadecimal(name):
    """An APNs token."""
    return ("c0ffee" + name.encode().hex() + SALT).ljust(64, "0")[:64]


def fcm(name):
    return f"{name}_{SALT}:APA91b_{'x' * 20}"


def expo(name):
    # What differs stands at the end: that is what a masked token shows.
    return f"ExponentPushToken[{SALT[:22 - len(name)].ljust(22 - len(name), '0')}{name}]"


# Sockets that are bound and do not listen: the system gives their ports to no other socket while this process
# runs, except to a program that asks for one by its number.
HELD = []


def free_port():
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    HELD.append(holder)
    return holder.getsockname()[1]


def await_(what, condition, alive=lambda: None):
    """Waits until a condition holds, and returns what it gave; `alive` says why it never will."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        value = condition()
        if value:
            return value
        trouble = alive()
        if trouble or time.monotonic() > deadline:
            raise Failure(f"{what}: {trouble or f'not within {PATIENCE_SECONDS} s'}")
        time.sleep(0.02)


class Machine:
    """A context. page: the guide, whose file gateway.yaml is used; app, system: which, and whose phones."""

    def __init__(self, given, gateway, page, app, system, variant="today"):
        self.given, self.gateway, self.app = given, str(Path(gateway).resolve()), app
        self.page = Page(page)
        self.system, self.variant = system, variant
        self.name = f"push_guide_{app}_{os.getpid()}"
        server, mark, parameters = given.partition("?")
        self.url = f"{server.rpartition('/')[0]}/{self.name}{mark}{parameters}"
        self.work = Path(tempfile.mkdtemp(prefix=f"push-guide-{app}."))
        self.work.chmod(0o755)
        self.running = []
        self.environment = {}  # more settings of the gateway
        self.api = f"127.0.0.1:{free_port()}"

    def __enter__(self):
        try:
            self._psql(self.given, f"create database {self.name}")
            self.run([self.gateway, "migrate"], {"DATABASE_URL": self.url})
            self._simulators()
            self.serve()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process, _ in reversed(self.running):
            stop(process)
        self._psql(self.given, f"drop database if exists {self.name} with (force)")
        shutil.rmtree(self.work, ignore_errors=True)

    def _simulators(self):
        self.pushes_file = self.work / "pushes.jsonl"
        directory = self.work / "simulators"
        process, log = self.start("simulators", [
            f"{self.gateway}-lab", "simulate", "--directory", str(directory), "--log", str(self.pushes_file), "--app", self.app,
            "--explain", self.system, "--explain-variant", self.variant,
            *(["--expo-without-access-token"] if "expo: {}" in self.page.files["gateway.yaml"] else [])])
        self.explanations = log
        await_("simulators", lambda: '"ready":true' in log.read_text(), lambda: ended(process, log))
        self.simulated = (directory / "gateway.yaml").read_text()

    def serve(self):
        """Starts the gateway, with the page's configuration and the simulators' addresses and credentials."""
        written = self.work / "simulators" / "guide.yaml"
        # Five minutes, so that a busy machine misses no call.
        text = re.sub(r"ring_seconds: \d+", "ring_seconds: 300", self.page.files["gateway.yaml"])
        for ours, theirs in (("key_file", "apns-key.p8"), ("service_account_file", "fcm-service-account.json"),
                             ("access_token_file", "expo-access-token"), ("vapid_key_file", "webpush-key.pem")):
            text = re.sub(ours + r": [^ ,}]+", f"{ours}: {theirs}", text)
        for name in ("team_id", "key_id", "topic"):
            text = re.sub(name + r": [^ ,}]+", f"{name}: {self._simulated(name)}", text)
        written.write_text(text)
        prefix = f"PUSH_GATEWAY_APPS_{self.app.upper()}"
        address = f"127.0.0.1:{free_port()}"
        environment = {
            "DATABASE_URL": self.url, "PUSH_GATEWAY_HTTP_LISTEN": address, "PUSH_GATEWAY_API_LISTEN": self.api,
            "PUSH_GATEWAY_TLS_CA_FILE": str(self.work / "simulators" / "ca.pem")}
        sections = {"apns": [("PRODUCTION", "production_url"), ("SANDBOX", "sandbox_url")], "fcm": [("", "url")],
                    "expo": [("", "url")], "webpush": [("", "origins")]}
        for section, names in sections.items():
            if re.search(rf"^ +{section}:", text, re.M):
                for _, name in names:
                    environment[f"{prefix}_{section.upper()}_{name.upper()}"] = self._simulated(name, section)
        self.serving, log = self.start("gateway", [self.gateway, "serve", "--config", str(written)],
                                       {**environment, **self.environment})
        self.gateway_log = log
        await_("gateway", lambda: reachable(f"http://{address}/readyz"), lambda: ended(self.serving, log))

    def _simulated(self, name, section="apns"):
        part = self.simulated[self.simulated.index(f"    {section}:"):]
        return re.search(rf"{name}: \"?([^\s\"]+)", part)[1]

    def key(self, scopes):
        return self.run([self.gateway, "api-key", "create", self.app, "guide", "--scopes", scopes],
                        {"DATABASE_URL": self.url}).split()[-1]

    def sql(self, statement):
        return self._psql(self.url, statement)

    # --- What came of it ---

    def pushes(self, token=None):
        """The pushes that providers accepted, in order: objects with provider, kind, token, and what was sent. One that was sent twice,
        because its first answer came late, is there once: all but the time of the two is the same."""
        found = {(push["token"], TIMESTAMP.sub("", json.dumps(push["payload"]))): push for push in reversed(self._accepted())}
        return [push for push in reversed(found.values()) if token is None or push["token"] == token]

    def _accepted(self):
        if not self.pushes_file.exists():
            return []
        # A line that is still being written counts for the next look.
        return [json.loads(line) for line in self.pushes_file.read_text().split("\n")[:-1]]

    def push(self, token, number=0):
        """The push of that number to a token, waited for."""
        return await_(f"push {number + 1} to {token[:12]}…", lambda: self.pushes(token)[number:number + 1])[0]

    def find(self, token, **members):
        """The first push to a token whose payload has these members, waited for."""
        def found():
            return [p for p in self.pushes(token) if all(p["payload"].get(k) == v for k, v in members.items())]
        return await_(f"a push to {token[:12]}… with {members}", found)[0]

    def told(self, call_id, own, other, say, least=2):
        """How many pushes of a call each of a user's two phones gets; `say` says that the phone `own` answered or declined. least: how many
        the other one gets, which are waited for."""
        def heard(token):
            return sum(call_id in json.dumps(push["payload"]) for push in self.pushes(token))
        for token in (own, other):
            await_(f"{call_id} to {token[:12]}…", lambda token=token: heard(token))
        self.settled()
        say()
        await_(f"what {other[:12]}… is told of {call_id}", lambda: heard(other) >= least)
        self.settled()
        return heard(own), heard(other)

    def does(self, push):
        """What phones do with it by their apps' own code: by kind of phone and, where that matters, its state."""
        def lines():
            text = self.explanations.read_text()
            part = re.search(rf"^\w+ \w+ {re.escape(str(push['id']))}\n((?:  .*\n)+)", text, re.M)
            return part and text.endswith("\n") and part[1].splitlines()
        read = [re.fullmatch(r"  (.+?): (.*?)  \[.*", line) for line in await_(f"the reading of {push['id']}", lines)]
        return {line[1]: line[2] for line in read}

    def settled(self):
        """Waits until nothing is owed, and the simulators' file, which they write a little later, has what they accepted.

        Owed is also what follows from a change that is committed, such as the pushes that tell the phones of an answered call.
        """
        owed = """exists (select from push.deliveries)
            or exists (select from push.follow_ups where tries < 4 and (why <> 'unheard' or due_at <= clock_timestamp()))"""
        await_("the gateway", lambda: self.sql(f"select not ({owed})") == "t", lambda: ended(self.serving, self.gateway_log))
        accepted = set(self.sql("select provider_message_id from push.history where outcome <= 1 and provider_message_id <> ''").split())
        await_("the simulators' file", lambda: accepted <= {push["id"] for push in self._accepted()})

    def lapse(self, call_id, is_served=True):
        """The ring window of a call is over (as test.lapse of Tests/sql/clock.psql does it), and a gateway has noticed."""
        self.sql(f"""
            set session_replication_role = replica;
            update push.outbox set deadline_at = clock_timestamp() - interval '1 s' where call_id = '{call_id}';
            update push.delivery d set deadline_at = o.deadline_at, due_at = least(d.due_at, o.deadline_at)
              from push.outbox o where o.id = d.outbox_id and o.call_id = '{call_id}'""")
        if is_served:
            await_(f"{call_id} to be missed", lambda: self.sql(f"select state from push.outbox where call_id = '{call_id}'") == "missed")

    # --- Processes ---

    def start(self, name, arguments, environment=None, **options):
        log = self.work / f"{name}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(arguments, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=subprocess.STDOUT, **options)
        self.running.append((process, log))
        return process, log

    def _psql(self, url, statement):
        return self.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", url, "-c", statement])

    @staticmethod
    def run(arguments, environment=None, **options):
        done = subprocess.run(arguments, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=False, **options)
        if done.returncode:
            raise Failure(f"{Path(arguments[0]).name} failed: {(done.stdout + done.stderr).strip()[-1500:]}")
        return done.stdout.strip()


def stop(process, how=signal.SIGTERM):
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def ended(process, log):
    """Why a process cannot be waited for; None: it runs."""
    return None if process.poll() is None else f"has ended: {' '.join(log.read_text().splitlines()[-5:])}"


def reachable(url):
    try:
        with HTTP.open(url, timeout=PATIENCE_SECONDS) as response:
            return response.status == 200
    except OSError:
        return False
