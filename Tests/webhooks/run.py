#!/usr/bin/env python3
"""Webhooks with the real program, a real Postgres and a real HTTPS receiver: signatures, order, repetition, and receivers that
hang, drip, flood, redirect or are gone; two gateways, of which one is killed while it holds leases.

  PUSH_GATEWAY=.build/debug/push-gateway PUSH_GATEWAY_TEST_DATABASE_URL=postgres://… Tests/webhooks/run.py

The signatures are verified by the examples of docs/webhooks.md, in Python and in Node. Makes a scratch database beside the
given one and drops it. Ends with "N passed, N failed"; non-zero when any failed. It takes about a minute.
"""

import base64
import hashlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.dont_write_bytecode = True

from receiver import Receiver, acknowledge  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
GATEWAY = os.environ.get("PUSH_GATEWAY", str(ROOT / ".build/debug/push-gateway"))
GIVEN = os.environ.get("PUSH_GATEWAY_TEST_DATABASE_URL", "")
PATIENCE_SECONDS = 300
passed, failed = 0, 0


def equal(name, got, want):
    global passed, failed
    if got == want:
        passed += 1
    else:
        failed += 1
        print(f"not ok - {name}: got {got!r}, want {want!r}")


def until(condition, seconds=PATIENCE_SECONDS):
    """Whether a condition has become true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.1)
    return False


class World:
    """A database, a receiver and gateways. Everything is stopped at the end."""

    def __init__(self):
        self.work = Path(tempfile.mkdtemp(prefix="push-webhooks."))
        self.name = f"webhooks_{os.getpid()}"
        self.url = f"{GIVEN.rsplit('/', 1)[0]}/{self.name}"
        self.gateways = []
        self.apps = {}

    def __enter__(self):
        subprocess.run(["psql", "-Xq", GIVEN, "-c", f"create database {self.name}"], check=True)
        subprocess.run([GATEWAY, "migrate"], check=True, env=os.environ | {"DATABASE_URL": self.url}, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        subprocess.run([ROOT / "scripts/certificates.sh", self.work / "certificates"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        certificates = self.work / "certificates"
        self.receiver = Receiver(certificates / "server.pem", certificates / "server.key")
        return self

    def __exit__(self, *_):
        for gateway in self.gateways:
            if gateway.poll() is None:
                gateway.send_signal(signal.SIGCONT)
                gateway.kill()
                gateway.wait()
        self.receiver.close()
        subprocess.run(["psql", "-Xq", GIVEN, "-c", f"drop database if exists {self.name} with (force)"], check=False)
        shutil.rmtree(self.work, ignore_errors=True)

    def sql(self, text):
        return subprocess.run(["psql", "-XAtq", "-v", "ON_ERROR_STOP=1", self.url, "-c", text], check=True, capture_output=True,
                              text=True).stdout.strip()

    def app(self, name, behave=acknowledge, path=None, timeout=30):
        """Adds or changes an app with a webhook."""
        path = path or f"/{name}"
        self.receiver.behave[path] = behave
        secret = self.work / f"{name}.secret"
        if not secret.exists():
            self.rotate(name, [new_secret()])
        self.apps[name] = f"""  {name}:
    expo: {{}}
    webhook: {{ url: "https://127.0.0.1:{self.receiver.port}{path}", secret_file: "{secret}", timeout_seconds: {timeout} }}
"""

    def rotate(self, name, lines):
        secret = self.work / f"{name}.secret"
        new = self.work / f"{name}.new"
        new.touch(0o600)
        new.write_text("".join(line + "\n" for line in lines))
        new.rename(secret)

    def secret(self, name):
        return (self.work / f"{name}.secret").read_text().split()

    def configure(self):
        (self.work / "gateway.yaml").write_text(
            f"database: {self.url}\ntls: {{ ca_file: \"{self.work}/certificates/ca.pem\" }}\nhttp: {{ listen: \"127.0.0.1:0\" }}\n"
            f"log: {{ level: notice }}\nshutdown: {{ drain_seconds: 2 }}\napps:\n" + "".join(self.apps.values()))

    def start(self):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PUSH_GATEWAY", "DATABASE_URL"))}
        log = self.work / f"gateway.{len(self.gateways)}.log"
        with log.open("w") as file:
            gateway = subprocess.Popen([GATEWAY, "serve", "--config", self.work / "gateway.yaml", "--log-format", "text"],
                                       stdout=file, stderr=file, env=environment)
        self.gateways.append(gateway)
        if not until(lambda: gateway.poll() is not None or "The gateway serves" in log.read_text()) or gateway.poll() is not None:
            raise SystemExit(f"the gateway does not start: {log.read_text()}")
        return gateway, log

    def wait_for_webhooks(self, count):
        """The apps are known to the database."""
        return until(lambda: self.sql("select count(*) from push.webhooks where state <> 'off'") == str(count))

    def call(self, app, *calls, ends=True):
        """Calls to one phone that end before a gateway sees them: two events each, of the call and of its invite."""
        self.sql("begin;" + "".join(f"""select push.enqueue_call('{{"callId": "{call}", "from": "x"}}',
          '[{{"userId": "u", "pushToken": "ExponentPushToken[{call}]"}}]', '{app}');""" + (
            f"select push.end_call('{call}', 'busy', '{app}');" if ends else "") for call in calls) + "commit;")

    def waiting(self, app):
        return int(self.sql(f"select coalesce((select waiting from push.webhooks where app = '{app}'), 0)"))

    def hurry(self, app):
        self.sql(f"select from push.resume_webhooks('{app}')")


def new_secret():
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def examples():
    """The code of docs/webhooks.md: Python's function, and the text for Node."""
    page = (ROOT / "docs/webhooks.md").read_text()
    code = {name: text for name, text in re.findall(r"<!-- file: (\S+) -->\n\n```\w+\n(.*?)```", page, re.S)}
    scope = {}
    exec(code["verify.py"], scope)  # noqa: S102
    return scope["verify"], code["verify.mjs"]


def verified(verify, secret, arrival, **changes):
    try:
        verify(secret, arrival.headers | changes.get("headers", {}), changes.get("body", arrival.body), changes.get("now"))
        return True
    except ValueError:
        return False


def verified_by_node(world, module, secret, arrival, body=None):
    (world.work / "verify.mjs").write_text(module)
    script = """import { verify } from './verify.mjs';
const { secret, headers, body } = JSON.parse(process.argv[1]);
try { verify(secret, headers, Buffer.from(body, 'base64')); console.log('yes'); } catch (error) { console.log(error.message); }"""
    given = json.dumps({"secret": secret, "headers": arrival.headers, "body": base64.b64encode(body or arrival.body).decode()})
    done = subprocess.run(["node", "--input-type=module", "-e", script, given], cwd=world.work, capture_output=True, text=True)
    return done.stdout.strip()


def calls_of(arrivals):
    """The types of the events of each call, in the order in which they arrived first."""
    calls, seen = {}, set()
    for one in arrivals:
        if one.headers["webhook-id"] in seen:
            continue
        seen.add(one.headers["webhook-id"])
        body = json.loads(one.body)
        calls.setdefault(body["data"].get("callId"), []).append(body["type"])
    return calls


# --- The parts ---

def signatures(world):
    verify, module = examples()
    world.call("plain", "p1")
    equal("both events arrive", until(lambda: len(world.receiver.at("/plain", True)) == 2), True)
    first = world.receiver.at("/plain")[0]
    secret = world.secret("plain")[0]
    equal("Python's example verifies the signature", verified(verify, secret, first), True)
    equal("and not another secret", verified(verify, new_secret(), first), False)
    equal("nor another body", verified(verify, secret, first, body=first.body + b" "), False)
    equal("nor another time", verified(verify, secret, first, headers={"webhook-timestamp": "1764086400"}), False)
    equal("nor an old one", verified(verify, secret, first, now=time.time() + 301), False)
    equal("Node's example verifies it", verified_by_node(world, module, secret, first), "yes")
    equal("and not another body", verified_by_node(world, module, secret, first, first.body + b" "), "the signature does not match")
    body = json.loads(first.body)
    equal("the body has type, timestamp and data", sorted(body), ["data", "timestamp", "type"])
    equal("of the call", (body["type"], body["data"]["callId"], body["data"]["reason"]), ("call.ended", "p1", "busy"))
    last = json.loads(world.receiver.at("/plain")[1].body)["data"]
    equal("and of its invite, with a masked token", (last["outcome"], last["device"]), ("void", "Expo…[p1]"))
    equal("events are gone when they are acknowledged", until(lambda: world.waiting("plain") == 0), True)

    former = secret
    world.rotate("plain", [new_secret(), former])
    new = world.secret("plain")[0]

    def has_both():
        before = len(world.receiver.at("/plain"))
        world.call("plain", f"r{before}")
        arrives = until(lambda: len(world.receiver.at("/plain")) > before)
        return arrives and verified(verify, new, world.receiver.at("/plain")[-1])
    equal("a secret is added without a restart", until(has_both), True)
    equal("the former one is good, too", verified(verify, former, world.receiver.at("/plain")[-1]), True)
    world.rotate("plain", [new])
    equal("and is removed", until(lambda: has_both() and not verified(verify, former, world.receiver.at("/plain")[-1])), True)


def order(world):
    """Every third request fails, and some are slow."""
    dice, calls = random.Random(1), [f"o{i}" for i in range(20)]
    for call in calls:
        world.call("order", call, ends=False)
    world.sql("select push.decline_call(call_id, 'u', app) from push.outbox where app = 'order'")
    hurrying = threading.Event()

    def flaky(_arrival, _handler):
        time.sleep(dice.random() / 20)
        return 500 if dice.random() < 0.33 else 200
    world.receiver.behave["/order"] = flaky

    def hurry():
        while not hurrying.wait(0.5):
            world.hurry("order")
    thread = threading.Thread(target=hurry)
    thread.start()
    equal("every event is acknowledged in the end", until(lambda: world.waiting("order") == 0), True)
    hurrying.set()
    thread.join()
    wanted = ["call.declined", "call.ended", "delivery.finished"]
    arrived = calls_of(world.receiver.at("/order", True))
    # The decline makes the invite void, and ends the call: whichever is committed first.
    equal("in the order of their call", {call: kinds for call, kinds in arrived.items()
        if kinds[0] != wanted[0] or sorted(kinds) != wanted}, {})
    equal("of every call", len(arrived), len(calls))
    by_call, early = {}, 0
    for one in world.receiver.at("/order"):
        sent = by_call.setdefault(json.loads(one.body)["data"]["callId"], [])
        # It may have been sent again before its acknowledgement was written, and have failed then.
        acknowledged = {before.headers["webhook-id"] for before in sent
                        if before.status is not None and before.status < 300 and before.answered_at < one.at}
        early += not {before.headers["webhook-id"] for before in sent} <= acknowledged | {one.headers["webhook-id"]}
        sent.append(one)
    equal("nothing was sent before the event before it was acknowledged", early, 0)
    equal("some failed", any(one.status == 500 for one in world.receiver.at("/order")), True)


def bad_receivers(world):
    """What hangs, drips, floods or redirects; meanwhile another app's events arrive."""
    def hang(_arrival, _handler):
        world.receiver.stopped.wait(20)

    def drip(_arrival, handler):
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not world.receiver.stopped.wait(1):
                handler.wfile.write(b"x")
        except OSError:
            pass

    def flood(_arrival, handler):
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            while not world.receiver.stopped.is_set():
                handler.wfile.write(b"x" * 65536)
        except OSError:
            pass

    world.receiver.behave |= {"/hang": hang, "/drip": drip, "/flood": flood, "/elsewhere": acknowledge,
                              "/redirect": lambda *_: (302, {"Location": "/elsewhere"}),
                              "/gone": lambda *_: 410, "/busy": lambda *_: (503, {"Retry-After": "3600"})}
    bad = ["hang", "drip", "flood", "redirect", "gone", "busy"]
    for app in bad:
        world.call(app, f"{app}-1")
    for i in range(5):
        world.call("plain", f"meanwhile-{i}")
    equal("other apps' events arrive meanwhile", until(lambda: world.waiting("plain") == 0), True)
    for app in bad:
        equal(f"{app}: the receiver is asked", until(lambda app=app: len(world.receiver.at(f"/{app}")) > 0), True)

    def state(app):
        return world.sql(f"select concat_ws(' ', state, last_status, last_reason) from push.webhooks where app = '{app}'")
    for app, wanted in {"hang": "failing TimedOut", "drip": "failing TimedOut", "flood": "failing ResponseTooLarge",
                        "redirect": "failing 302", "gone": "gone 410", "busy": "failing 503"}.items():
        until(lambda app=app, wanted=wanted: state(app) == wanted)
        equal(f"{app} is seen", state(app), wanted)
        equal(f"{app}: nothing is lost", world.waiting(app), 2)
    equal("a redirect is not followed", world.receiver.at("/elsewhere"), [])
    # After other failures the wait is five minutes at most. This one is an hour, some of which may be over.
    pause = world.sql("select retry_at > now() + interval '10 minutes' from push.webhooks where app = 'busy'")
    equal("Retry-After stops the app", pause, "t")
    asked = len(world.receiver.at("/gone"))
    world.call("gone", "gone-2")
    world.app("gone", path="/back")
    world.configure()
    equal("after 410 nothing is sent until the URL changes, then everything",
          until(lambda: world.waiting("gone") == 0 and len(world.receiver.at("/back", True)) == 4), True)
    equal("and nothing to the former URL", len(world.receiver.at("/gone")), asked)


def crash(world, gateway):
    """A gateway is killed while it holds leases; another one sends what it had taken. No request may fail before, since fewer
    are sent after a failure."""
    blocked = threading.Event()
    world.receiver.behave["/crash"] = lambda *_: blocked.wait(PATIENCE_SECONDS) and None
    world.call("crash", *[f"k{i}" for i in range(10)])
    equal("requests are under way", until(lambda: len(world.receiver.at("/crash")) >= 10), True)
    gateway.kill()
    gateway.wait()
    world.receiver.behave["/crash"] = acknowledge
    begun = time.monotonic()
    world.start()
    equal("another gateway sends them after their lease", until(lambda: world.waiting("crash") == 0), True)
    print(f"# the lost leases took {time.monotonic() - begun:.1f} s")
    wanted = ["call.ended", "delivery.finished"]
    equal("all of them, in order", calls_of(world.receiver.at("/crash", True)), {f"k{i}": wanted for i in range(10)})
    blocked.set()


def share(world):
    """Two gateways: each event arrives once while nothing fails."""
    world.start()
    for i in range(40):
        world.call("plain", f"s{i}")
    equal("two gateways send everything", until(lambda: world.waiting("plain") == 0), True)
    shared = [one.headers["webhook-id"] for one in world.receiver.at("/plain")
              if json.loads(one.body)["data"]["callId"].startswith("s")]
    equal("each event once", (len(shared), len(set(shared))), (80, 80))


def locked(world):
    """An operator pauses an app and leaves the transaction open, while the URLs of two apps change."""
    operator = subprocess.Popen(["psql", "-XAtq", world.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        operator.stdin.write("begin;\nselect changed from push.pause_webhooks('order');\n")
        operator.stdin.flush()
        equal("an operator leaves a transaction open", operator.stdout.readline().strip(), "t")
        for app in ("order", "plain"):
            world.app(app, path=f"/new-{app}")
        world.configure()

        def uses_new():
            world.call("plain", f"locked-{time.monotonic_ns()}")
            return until(lambda: world.receiver.at("/new-plain", True), 2)
        equal("the other app is served meanwhile, at its new URL", until(uses_new), True)
        line = "Webhooks wait for a transaction that has locked them"
        equal("the log says so", until(lambda: any(line in log.read_text() for log in world.work.glob("gateway.*.log"))), True)
    finally:
        operator.communicate("rollback;\n", PATIENCE_SECONDS)
    digest = hashlib.sha256(f"https://127.0.0.1:{world.receiver.port}/new-order".encode()).hexdigest()
    registered = f"select url_digest = '{digest}' from push.webhook where app = 'order'"
    equal("the locked one is registered afterwards", until(lambda: world.sql(registered) == "t"), True)


def end(world):
    gateways = [gateway for gateway in world.gateways if gateway.poll() is None]
    for gateway in gateways:
        gateway.send_signal(signal.SIGTERM)
    equal("gateways end in time and well", [gateway.wait(PATIENCE_SECONDS) for gateway in gateways], [0 for _ in gateways])
    logs = "".join(log.read_text() for log in world.work.glob("gateway.*.log"))
    secret = [line for path in world.work.glob("*.secret") for line in path.read_text().split()]
    equal("no log has a secret, a URL's path or a token", [one for one in [*secret, "/hang", "ExponentPushToken"] if one in logs], [])
    lines = ("does not acknowledge events", "answered 410", "acknowledges events again", "An app's webhook has changed")
    equal("failures and recoveries are logged", [line for line in lines if line not in logs], [])


def main():
    if not GIVEN:
        raise SystemExit("run.py: PUSH_GATEWAY_TEST_DATABASE_URL is missing: see scripts/postgres.sh")
    with World() as world:
        for name in ["plain", "order", "gone", "busy", "redirect", "flood"]:
            world.app(name)
        for name in ["hang", "drip"]:
            world.app(name, timeout=1)
        world.app("crash")
        world.configure()
        gateway, _ = world.start()
        equal("the webhooks are known", world.wait_for_webhooks(9), True)
        signatures(world)
        order(world)
        bad_receivers(world)
        crash(world, gateway)
        share(world)
        locked(world)
        end(world)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
