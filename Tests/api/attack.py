#!/usr/bin/env python3
"""An attacker of the HTTP API: every attempt must meet a clear refusal, and change nothing.

Needs nothing but Python. Exits with 1, and says why, if the API gives way.
"""

import argparse
import json
import resource
import socket
import ssl
import sys
import time

failures = []


def check(what, is_right, found=""):
    print(f"   {'ok  ' if is_right else 'FAIL'} {what}{'' if is_right else f': {found!r}'}", flush=True)
    if not is_right:
        failures.append(what)


class Client:
    def __init__(self, address, timeout=30):
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout)

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


def request(method, path, body=None, key=None, extra=""):
    text = f"{method} {path} HTTP/1.1\r\nHost: api\r\n{extra}"
    if key:
        text += f"Authorization: Bearer {key}\r\n"
    if body is not None:
        text += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return text.encode() + b"\r\n" + (body or b"")


def ask(address, *arguments, **named):
    client = Client(address)
    try:
        return client.send(request(*arguments, **named)).answer()
    finally:
        client.close()


def is_alive(ops):
    begun = time.monotonic()
    status, _, _ = ask(ops, "GET", "/livez")
    return status == 200 and time.monotonic() - begun < 2


def call(call_id):
    return json.dumps({"payload": {"callId": call_id, "from": "attacker"}, "recipients": []}).encode()


def without_a_key(api, key):
    for name, given in [("no key", None), ("a wrong key", key[:-1] + ("1" if key[-1] == "0" else "0"))]:
        status, headers, _ = ask(api, "POST", "/v1/calls", call("stolen"), key=given)
        check(f"{name} is 401", status == 401 and "www-authenticate" in headers, status)
    status, _, _ = ask(api, "GET", "/v1/calls/stolen", key=key)
    check("and nothing was enqueued", status == 404, status)


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
    status, _, _ = served.send(request("GET", "/v1/calls/none", key=key)).answer()
    check("one connection is served before", status == 404, status)
    crowd = []
    answers = {}
    begun = time.monotonic()
    for _ in range(count):
        crowd.append(Client(api))
    print(f"        {count} connections in {time.monotonic() - begun:.1f} s", flush=True)
    check("the probe answers among them", is_alive(ops))
    status, _, _ = served.send(request("GET", "/v1/calls/none", key=key)).answer()
    check("the connection from before is still served", status == 404, status)
    for client in crowd[-200:]:
        status, _, _ = client.answer()
        answers[status] = answers.get(status, 0) + 1
    check("the last 200 were refused or closed", set(answers) <= {0, 503}, answers)
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
    """Handshakes that never end, on all places but one: who has it is served, and the others get theirs back."""
    served = tls_client(api, ca)
    status, _, _ = served.send(request("GET", "/v1/calls/none", key=key)).answer()
    check("one connection over TLS is served before", status == 404, status)
    beginning = bytes.fromhex("160301020001000001fc0303") + bytes(32)
    stalled = [Client(api, seconds + 20).send(beginning[:length % len(beginning)]) for length in range(count - 1)]
    status, _, _ = served.send(request("GET", "/v1/calls/none", key=key)).answer()
    check(f"and among {count - 1} handshakes that stall", status == 404, status)
    try:
        over = tls_client(api, ca)
        status, _, _ = over.answer()
        over.close()
    except OSError as error:
        status = error
    check("one connection too many is 503, over TLS", status == 503, status)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api", required=True, help="host:port")
    parser.add_argument("--ops", required=True, help="host:port of /livez")
    parser.add_argument("--key", required=True, help="with all scopes")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--timeout", type=int, default=10, help="api.request_timeout_seconds")
    parser.add_argument("--tls-api", help="host:port of an API with TLS, whose api.connections_max is --tls-connections")
    parser.add_argument("--tls-ops", help="host:port of its ops listener, with TLS")
    parser.add_argument("--tls-connections", type=int, default=64)
    parser.add_argument("--ca", help="the authority of both")
    options = parser.parse_args()
    without_a_key(options.api, options.key)
    too_much(options.api, options.key)
    too_slow(options.api, options.key, options.timeout)
    too_many(options.api, options.ops, options.key, options.connections)
    if options.tls_api:
        wrong_tls(options.tls_api, options.tls_ops, options.ca, options.key)
        stalled_handshakes(options.tls_api, options.tls_ops, options.ca, options.key, options.tls_connections,
                           options.timeout)
    check("the gateway is alive", is_alive(options.ops))
    sys.exit(1 if failures else 0)


main()
