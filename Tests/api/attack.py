#!/usr/bin/env python3
"""An attacker of the HTTP API: every attempt must meet a clear refusal, and change nothing.

Needs nothing but Python. Exits with 1, and says why, if the API gives way.
"""

import argparse
import json
import os
import resource
import socket
import ssl
import sys
import threading
import time

failures = []


def check(what, is_right, found=""):
    print(f"   {'ok  ' if is_right else 'FAIL'} {what}{'' if is_right else f': {found!r}'}", flush=True)
    if not is_right:
        failures.append(what)


# Another peer than the others: every address of 127.0.0.0/8 is this machine's.
ELSEWHERE = "127.0.0.2"


class Client:
    def __init__(self, address, timeout=30, source=None):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout, source and (source, 0))

    def send(self, data):
        """Sends what the server takes; it may stop reading."""
        try:
            self.socket.sendall(data)
        except OSError:
            pass
        return self

    def answer(self):
        """Status, headers and body of one answer; status 0: the server closed without a word."""
        data = b""
        try:
            while b"\r\n\r\n" not in data:
                more = self.socket.recv(65536)
                if not more:
                    return 0, {}, b""
                data += more
            head, _, body = data.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            while len(body) < int(headers.get("content-length", 0)):
                more = self.socket.recv(65536)
                if not more:
                    break
                body += more
            return int(lines[0].split()[1]), headers, body
        except ConnectionResetError:
            return 0, {}, b""

    def close(self):
        self.socket.close()


def request(method, path, body=None, key=None, extra="", host="api"):
    text = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{extra}"
    if key:
        text += f"Authorization: Bearer {key}\r\n"
    if body is not None:
        text += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return text.encode() + b"\r\n" + (body or b"")


def ask(address, *arguments, source="127.0.0.1", **named):
    client = Client(address, source=source)
    try:
        return client.send(request(*arguments, **named)).answer()
    finally:
        client.close()


def is_alive(ops):
    begun = time.monotonic()
    status, _, _ = ask(ops, "GET", "/livez", host=ops)
    return status == 200 and time.monotonic() - begun < 2


def call(call_id):
    return json.dumps({"payload": {"callId": call_id, "from": "attacker"}, "recipients": []}).encode()


def without_a_key(api, key):
    for name, given in [("no key", None), ("a wrong key", key[:-1] + ("1" if key[-1] == "0" else "0"))]:
        status, headers, _ = ask(api, "POST", "/v1/calls", call("stolen"), key=given)
        check(f"{name} is 401", status == 401 and "www-authenticate" in headers, status)
    status, _, _ = ask(api, "GET", "/v1/calls/stolen", key=key)
    check("and nothing was enqueued", status == 404, status)


def of_a_key_that_is_not_for_this(api, expired, bound):
    status, _, body = ask(api, "POST", "/v1/calls", call("expired"), key=expired)
    check("an expired key is 401, and is told so", status == 401 and b"has expired" in body, (status, body))
    for name, extra in [("", ""), (", whatever it says of itself", f"X-Forwarded-For: {ELSEWHERE}\r\nForwarded: for={ELSEWHERE}\r\n")]:
        status, _, body = ask(api, "POST", "/v1/calls", call("bound"), key=bound, extra=extra)
        check(f"a key from a wrong address is 403{name}", status == 403 and b"address-not-allowed" in body, (status, body))
    status, _, _ = ask(api, "POST", "/v1/calls", call("bound"), key=bound, source=ELSEWHERE)
    check("from the right one it is taken", status == 202, status)


def guess(api, key, until, answers):
    """Shows wrong keys as fast as they are answered: unknown numbers, and a wrong secret of a good one."""
    number = 1_000_000 + threading.get_ident() % 1_000_000 * 1_000
    client = Client(api, source=ELSEWHERE)
    while time.monotonic() < until:
        number += 1
        shown = f"pgk_{number}_{'a' * 64}" if number % 4 else key[:-8] + "00000000"
        status, _, _ = client.send(request("GET", "/v1/calls/none", key=shown)).answer()
        answers[status] = answers.get(status, 0) + 1
        if status == 0:
            client.close()
            client = Client(api, source=ELSEWHERE)
    client.close()


def guessers(api, ops, key, fresh, seconds=15):
    until = time.monotonic() + seconds
    answers = {}
    threads = [threading.Thread(target=guess, args=(api, key, until, answers), daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    while answers.get(429, 0) == 0 and time.monotonic() < until:
        time.sleep(0.05)
    mine, slowest, number = {}, 0, 0
    firsts, later = [], []
    next_fresh = 0
    while time.monotonic() < until:
        number += 1
        begun = time.monotonic()
        status, _, _ = ask(api, "POST", "/v1/calls", call(f"beside-{number}-{begun}"), key=key)
        slowest = max(slowest, time.monotonic() - begun)
        mine[status] = mine.get(status, 0) + 1
        # Less often than an answer about a key is believed; from the guessers' own address.
        if begun >= next_fresh:
            status, _, _ = ask(api, "POST", "/v1/calls", call(f"fresh-{begun}"), key=fresh, source=ELSEWHERE)
            (later if firsts and firsts[-1] == 202 else firsts).append(status)
            next_fresh = begun + (3 if status == 202 else 0.5)
        time.sleep(0.01)
    for thread in threads:
        thread.join(30)
    print(f"        {answers} to the guessers, {mine} to the key, the slowest after {slowest:.2f} s", flush=True)
    check("guessers are told 401, then 429, and nothing else", set(answers) == {401, 429} and answers[429] > answers[401], answers)
    check("beside them a good key enqueues", set(mine) == {202} and number > 20, mine)
    check("and so does one that was never shown before, from the guessers' address", firsts and firsts[-1] == 202 and len(firsts) <= 6,
        firsts)
    check("from then on always", set(later) == {202}, later)
    check("the probe answers", is_alive(ops))


def too_much(api, key):
    client = Client(api)
    status, _, body = client.send(request("POST", "/v1/calls", b"x" * 10_000_000, key=key)).answer()
    check("a body of 10 MB is 413, and the sender reads it", status == 413 and b"body-too-large" in body, status)
    client.close()
    status, _, _ = ask(api, "GET", "/v1/calls/x", key=key, extra=f"X-Long: {'x' * 100_000}\r\n")
    check("a head of 100 kB is 431", status == 431, status)
    status, _, _ = ask(api, "POST", "/v1/calls", b"[" * 60_000, key=key)
    check("60,000 nested arrays are 400", status == 400, status)


def too_slow(api, key, seconds):
    head = request("POST", "/v1/calls", b"{}", key=key)[:40]
    body = request("POST", "/v1/calls", call("slow"), key=key)[:-5]
    clients = [(name, Client(api, seconds + 20).send(data)) for name, data in [("head", head), ("body", body)]]
    begun = time.monotonic()
    for name, client in clients:
        status, _, _ = client.answer()
        check(f"a slow {name} is 408 within {seconds + 5} s", status == 408 and time.monotonic() - begun < seconds + 5, status)
        client.close()


def too_many(api, ops, key, count):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(count, hard - 200)
    served = Client(api)
    status, _, _ = served.send(request("POST", "/v1/calls", call(f"before-{time.time()}"), key=key)).answer()
    check("one connection is served before", status == 202, status)
    crowd = []
    answers = {}
    begun = time.monotonic()
    for _ in range(count):
        crowd.append(Client(api))
    print(f"        {count} connections in {time.monotonic() - begun:.1f} s", flush=True)
    check("the probe answers among them", is_alive(ops))
    status, _, _ = served.send(request("GET", "/v1/calls/none", key=key)).answer()
    check("the connection from before is still served", status == 404, status)
    status, _, _ = ask(api, "POST", "/v1/calls", call(f"among-{time.time()}"), key=key)
    check("a call is taken among them on a new connection", status == 202, status)
    for client in crowd[:200]:
        status, _, _ = client.answer()
        answers[status] = answers.get(status, 0) + 1
    check("the first 200 had to go", set(answers) <= {0, 408, 503}, answers)
    for client in crowd:
        client.close()
    served.close()
    end = time.monotonic() + 15
    status = 0
    while status != 202 and time.monotonic() < end:
        try:
            status, _, _ = ask(api, "POST", "/v1/calls", call(f"after-{time.time()}"), key=key)
        except OSError:
            status = 0
    check("a call is taken afterwards", status == 202, status)


# --- http.listen, which other machines reach: the dashboard, the metrics, the probes ---

OPS_PATHS = ("/", "/ui/main.js", "/ui/session", "/ui/state", "/ui/calls?id=x", "/metrics", "/livez", "/readyz", "/nothing")
OPS_DATA = ("/ui/state", "/ui/calls?id=x", "/metrics")


def read_by_a_stranger(ops, keys):
    for path in OPS_DATA:
        for name, extra in [("nothing", ""), ("a wrong key", f"Authorization: Bearer {'0' * 64}\r\n"),
                ("no word", "Authorization: Bearer \r\n"),
                            ("an invented cookie", f"Cookie: __Host-push-gateway={'A' * 43}; push-gateway={'A' * 43}\r\n"),
                            ("an unsigned identity", "X-Goog-IAP-JWT-Assertion: eyJhbGciOiJub25lIn0.eyJlbWFpbCI6ImFAYiJ9.\r\n")]:
            status, _, body = ask(ops, "GET", path, host=ops, extra=extra)
            check(f"{path} with {name} is refused", status in (401, 403, 429) and b"push_gateway_" not in body and b"lanes" not in body,
                status)
            time.sleep(0.25 if "Bearer" in extra else 0)
    for path, name in [("/metrics", "metrics"), ("/metrics", "ops"), ("/ui/state", "ops")]:
        status, _, _ = ask(ops, "GET", path, host=ops, key=keys[name])
        check(f"{path} with the key of {name} is read", status == 200, status)
    status, _, _ = ask(ops, "GET", "/ui/state", host=ops, key=keys["metrics"])
    check("the key of the metrics opens nothing else", status == 401, status)
    status, _, body = ask(ops, "GET", "/readyz", host=ops)
    check("a probe needs no key, and tells one word", status == 200 and body == b"ready\n", (status, body))


def foreign_host(ops, keys):
    port = ops.rpartition(":")[2]
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "localhost.", ""):
        found = {path: ask(ops, "GET", path, host=host, key=keys["ops"])[0] for path in OPS_PATHS}
        # Without any host a probe is answered, for a browser always names one.
        wrong = {path: status for path, status in found.items() if status not in (400, 421) and (host or path not in ("/livez", "/readyz"))}
        check(f"no path answers to the host {host!r}", not wrong, wrong)


def log_in(ops, key, source):
    body = json.dumps({"key": key}).encode()
    client = Client(ops, source=source)
    try:
        return client.send(request("POST", "/ui/session", body, host=ops, extra=f"Origin: http://{ops}\r\n")).answer()[0]
    finally:
        client.close()


def login_flood(ops, keys):
    statuses, stop = [], threading.Event()

    def guess():
        while not stop.is_set():
            statuses.append(log_in(ops, "0" * 64, "127.0.0.2"))
            time.sleep(0.02)

    flood = [threading.Thread(target=guess, daemon=True) for _ in range(24)]
    for thread in flood:
        thread.start()
    end = time.monotonic() + 30
    while 429 not in statuses and time.monotonic() < end:
        time.sleep(0.01)
    # Each a peer of its own, so that none has a share to use up.
    found = [log_in(ops, keys["ops"], f"127.0.0.{number}") for number in range(10, 30)]
    stop.set()
    for thread in flood:
        thread.join(30)
    check("a login flood from one address is refused", set(statuses) == {403, 429}, set(statuses))
    check("and nobody else waits for it to log in", found == [200] * 20, found)


def tls_client(address, ca, **options):
    """A client over TLS; it reads as the others do."""
    client = Client(address)
    context = ssl.create_default_context(cafile=ca)
    for name, value in options.items():
        setattr(context, name, value)
    client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
    return client


def handshake(address, ca, **options):
    """What a handshake came to: a version, or why not."""
    try:
        client = tls_client(address, ca, **options)
    except (OSError, ssl.SSLError) as error:
        return str(error)
    try:
        return client.socket.version()
    finally:
        client.close()


def stalled_handshakes(api, ops, ca, key, count, seconds):
    """Stalled handshakes on all connections but one: that one is served, and a new connection replaces a stalled one."""
    served = tls_client(api, ca)
    status, _, _ = served.send(request("GET", "/v1/calls/none", key=key)).answer()
    check("one connection over TLS is served before", status == 404, status)
    beginning = bytes.fromhex("160301020001000001fc0303") + bytes(32)
    stalled = [Client(api, seconds + 20).send(beginning[:length % len(beginning)]) for length in range(count - 1)]
    status, _, _ = served.send(request("GET", "/v1/calls/none", key=key)).answer()
    check(f"and among {count - 1} handshakes that stall", status == 404, status)
    new = tls_client(api, ca)
    status, _, _ = new.send(request("GET", "/v1/calls/none", key=key)).answer()
    check("a new connection is served in place of one that stalls", status == 404, status)
    new.close()
    begun = time.monotonic()
    answers = {client.answer()[0] for client in stalled}
    check(f"all of them are dropped within {seconds + 10} s, without a word",
          answers == {0} and time.monotonic() - begun < seconds + 10, answers)
    status, _, _ = served.send(request("POST", "/v1/calls", call(f"tls-{time.time()}"), key=key)).answer()
    check("a call is taken over TLS afterwards", status == 202, status)
    served.close()
    again = tls_client(api, ca)
    status, _, _ = again.send(request("POST", "/v1/calls", call(f"tls-{time.time()}"), key=key)).answer()
    check("and on a connection of its own", status == 202, status)
    again.close()
    for client in stalled:
        client.close()


def wrong_tls(api, ops, ca, key):
    status, _, _ = ask(api, "GET", "/v1/calls/none", key=key)
    check("clear text at the TLS port is not answered", status == 0, status)
    found = handshake(api, ca, maximum_version=ssl.TLSVersion.TLSv1_1, minimum_version=ssl.TLSVersion.TLSv1)
    check("TLS 1.1 is refused", not found.startswith("TLSv"), found)
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        found = handshake(api, ca, maximum_version=version, minimum_version=version)
        check(f"{version.name} is taken", found == version.name.replace("_", "."), found)
    found = handshake(ops, ca)
    check("the ops listener speaks TLS", found == "TLSv1.3", found)


def many_handshakes(api, ca, process, count):
    """Connections that end in every way leave nothing behind in the gateway: no descriptor and no memory."""
    hello = bytes.fromhex("160301020001000001fc0303") + bytes(32)

    def rounds(number):
        for index in range(number):
            if index % 4 == 0:
                client = Client(api).send(hello[:index % len(hello)])
            elif index % 4 == 1:
                client = Client(api).send(b"GET / HTTP/1.1\r\n\r\n")
            else:
                client = tls_client(api, ca)
                if index % 4 == 2:
                    client.send(request("GET", "/livez")).answer()
            client.close()

    def descriptors():
        return len(os.listdir(f"/proc/{process}/fd"))

    def kilobytes():
        with open(f"/proc/{process}/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    rounds(400)
    time.sleep(2)
    files, memory = descriptors(), kilobytes()
    rounds(count)
    end = time.monotonic() + 30
    while descriptors() > files and time.monotonic() < end:
        time.sleep(0.1)
    check(f"{count} handshakes leave no descriptor open", descriptors() <= files, descriptors() - files)
    # A session that stays takes at least 10 kB.
    check("and take no memory", kilobytes() - memory < count * 4, f"{kilobytes() - memory} kB")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api", required=True, help="host:port")
    parser.add_argument("--ops", required=True, help="host:port of /livez")
    parser.add_argument("--key", required=True, help="with all scopes")
    parser.add_argument("--ops-key", required=True, help="opens the dashboard of --ops, which listens for other machines")
    parser.add_argument("--metrics-key", required=True, help="opens its /metrics")
    parser.add_argument("--tls-api", help="host:port of an API with TLS, whose api.connections_max is --tls-connections")
    parser.add_argument("--tls-ops", help="host:port of its ops listener, with TLS")
    parser.add_argument("--tls-connections", type=int, default=64)
    parser.add_argument("--ca", help="the authority of both")
    parser.add_argument("--tls-process", type=int, help="the gateway that has both")
    parser.add_argument("--fresh-key", required=True, help="a good one that was never shown")
    parser.add_argument("--expired-key", required=True)
    parser.add_argument("--bound-key", required=True, help=f"bound to {ELSEWHERE}")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--timeout", type=int, default=10, help="api.request_timeout_seconds")
    options = parser.parse_args()
    without_a_key(options.api, options.key)
    of_a_key_that_is_not_for_this(options.api, options.expired_key, options.bound_key)
    guessers(options.api, options.ops, options.key, options.fresh_key)
    too_much(options.api, options.key)
    too_slow(options.api, options.key, options.timeout)
    too_many(options.api, options.ops, options.key, options.connections)
    keys = {"ops": options.ops_key, "metrics": options.metrics_key}
    read_by_a_stranger(options.ops, keys)
    foreign_host(options.ops, keys)
    login_flood(options.ops, keys)
    if options.tls_api:
        wrong_tls(options.tls_api, options.tls_ops, options.ca, options.key)
        stalled_handshakes(options.tls_api, options.tls_ops, options.ca, options.key, options.tls_connections,
                           options.timeout)
        many_handshakes(options.tls_api, options.ca, options.tls_process, 2_000)
    check("the gateway is alive", is_alive(options.ops))
    sys.exit(1 if failures else 0)


main()
