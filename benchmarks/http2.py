"""Compares our HTTP/2 client, from the delivery to the counted answer, with h2load and libcurl's multi interface.

All send the same number of requests (libcurl's program a tenth of them) over one connection with a thousand streams and
the headers of a VoIP push, to the same server, in turn. Ours renders each payload by the dialect, as the gateway does, and
libcurl's program prints one; every request of these two has an apns-id and a payload of its own. All three push to the same
devices in turn, so that the server has the same paths to look up. h2load has one payload and one apns-id for all requests: it
renders nothing, stores nothing about a request, and sends its apns-id as one byte of HPACK. It is the upper bound for a client
that uses nghttp2. So ours also runs with one payload, rendered beforehand. The differences that remain are the apns-ids, and the
provider, the pool and the outcomes between a request and its answer.

There are two servers: nghttpd, which answers with an empty file, and the simulated APNs, which checks every request. The result is
the client's own CPU; its requests a second are limited by the server, too.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import socket
import time
from collections.abc import Sequence

from benchmarks.harness import ROOT, Bench, BenchError, Process, free_port, run as run_program
from benchmarks.processes import children_cpu_seconds

STREAMS = 1000
DEVICES = 3_000
"""More than the number of streams, so that all tokens in flight differ; nghttpd keeps a file open for each."""
REQUESTS, SMALL_REQUESTS = 200_000, 10_000
# libcurl has a tenth of the speed.
CURL_REQUESTS, SMALL_CURL_REQUESTS = 20_000, 2_000
REFUSED_MOST = 99
"""APNs, and its simulator, allows one stream on a connection until it has seen a token. h2load may open a hundred before it
receives that limit, as HTTP/2 allows; then all but one are refused, and are neither counted nor sent again."""
TOPIC = "com.example.app"


@dataclasses.dataclass
class Account:
    """A server with APNs' protocol, and its credentials."""

    name: str
    port: int
    ca: pathlib.Path
    team: str
    key_id: str
    key: pathlib.Path
    token: str = ""


@dataclasses.dataclass
class Work:
    """The cost of one run of a client."""

    requests: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.requests / self.cpu_seconds

    def text(self) -> str:
        return f"{self.per_second:,.0f} requests/s, {self.cpu_seconds * 1e6 / self.requests:.2f} µs of CPU each"


def run(bench: Bench) -> None:
    for name in ("HTTP2Load", "CurlMultiLoad"):
        if bench.tool(name) is None:
            raise BenchError(f"{name} is not built: swift build -c release --package-path benchmarks")
    directory = bench.directory / "http2"
    run_program([ROOT / "scripts" / "certificates.sh", directory])
    with nghttpd(bench, directory) as server:
        against_nghttpd(bench, Account(
            "nghttpd", port_of(server), directory / "ca.pem", "TEAM123456", "KEY7654321", signing_key(directory)))
    with bench.simulators(log=False) as simulators:
        sent = against_simulator(bench, simulated(simulators.config))
        if (accepted := simulators.accepted()) != sent:
            raise BenchError(f"the simulator accepted {accepted} pushes of {sent}")


# --- The runs ---


def against_nghttpd(bench: Bench, account: Account) -> None:
    requests = SMALL_REQUESTS if bench.small else REQUESTS
    curl_requests = SMALL_CURL_REQUESTS if bench.small else CURL_REQUESTS
    account.token = token(bench, account)
    clients = {"ours": lambda: ours(bench, account, requests), "h2load": lambda: h2load(bench, account, requests),
               "one_payload": lambda: ours(bench, account, requests, "--one-payload"),
               "curl": lambda: curl(bench, account, curl_requests)}
    work = take_turns(bench, account, clients)
    notes = {"ours": "payloads rendered", "one_payload": "ours, rendered beforehand", "h2load": "one payload, one apns-id",
             "curl": "libcurl's multi interface"}
    for name, note in notes.items():
        bench.result_median(f"http2.{name}_requests_per_second", [each.per_second for each in work[name]], "requests/s", note=note)
        bench.result_median(
            f"http2.{name}_requests_per_cpu_second", [each.per_cpu_second for each in work[name]], "requests/CPU s")
    bench.result_median(
        "http2.cpu_ratio_to_h2load", ratios(work["ours"], work["h2load"], "per_cpu_second"), "×", target=(">=", 0.8),
        note="requests per CPU second, nghttpd")
    bench.result_median(
        "http2.cpu_ratio_to_h2load_of_one_payload", ratios(work["one_payload"], work["h2load"], "per_cpu_second"), "×",
        target=(">=", 0.9), note="like for like: nothing is rendered")
    bench.result_median(
        "http2.ratio_to_curl_multi", ratios(work["ours"], work["curl"], "per_second"), "×", target=(">=", 10),
        note="requests per second, nghttpd")
    bench.result_median(
        "http2.cpu_ratio_to_curl_multi", ratios(work["ours"], work["curl"], "per_cpu_second"), "×", target=(">=", 10),
        note="requests per CPU second, nghttpd")


def against_simulator(bench: Bench, account: Account) -> int:
    """How many pushes were sent."""
    requests = SMALL_REQUESTS if bench.small else REQUESTS
    account.token = token(bench, account)
    clients = {"ours": lambda: ours(bench, account, requests), "h2load": lambda: h2load(bench, account, requests)}
    work = take_turns(bench, account, clients)
    bench.result_median(
        "http2.simulator_requests_per_second", [each.per_second for each in work["ours"]], "requests/s",
        note="the simulator's own speed")
    bench.result_median(
        "http2.simulator_requests_per_cpu_second", [each.per_cpu_second for each in work["ours"]], "requests/CPU s")
    bench.result_median(
        "http2.simulator_cpu_ratio_to_h2load", ratios(work["ours"], work["h2load"], "per_cpu_second"), "×")
    return sum(each.requests for runs in work.values() for each in runs)


def take_turns(bench: Bench, account: Account, clients: dict) -> dict[str, list[Work]]:
    work: dict[str, list[Work]] = {name: [] for name in clients}
    for turn in range(bench.runs):
        for name, client in clients.items():
            work[name].append(client())
            bench.progress(f"http2: {account.name}, run {turn + 1}, {name}: {work[name][-1].text()}")
    return work


def ratios(ours: Sequence[Work], theirs: Sequence[Work], of: str) -> list[float]:
    return [getattr(one, of) / getattr(other, of) for one, other in zip(ours, theirs, strict=True)]


# --- The clients ---


def ours(bench: Bench, account: Account, requests: int, *options: str) -> Work:
    return told(run_program([
        bench.tool("HTTP2Load"), "--port", str(account.port), "--ca", account.ca, "--team", account.team, "--key-id", account.key_id,
        "--key", account.key, "--topic", TOPIC, "--requests", str(requests), "--streams", str(STREAMS),
        "--devices", str(DEVICES), *options]), requests)


def curl(bench: Bench, account: Account, requests: int) -> Work:
    return told(run_program([
        bench.tool("CurlMultiLoad"), "--port", str(account.port), "--ca", account.ca, "--token", account.token, "--topic", TOPIC,
        "--requests", str(requests), "--streams", str(STREAMS), "--devices", str(DEVICES)]), requests)


def told(output: str, requests: int) -> Work:
    """The output of one of our programs."""
    work = json.loads(output)
    if work["ok"] != requests:
        raise BenchError(f"{work['ok']} requests of {requests} were answered with 200")
    return Work(requests, work["microseconds"] / 1e6, work["cpu_microseconds"] / 1e6)


def h2load(bench: Bench, account: Account, requests: int) -> Work:
    body = bench.directory / "http2" / "body.json"
    body.write_text(json.dumps({
        "type": "intercom_call", "action": "incoming_call", "callId": "bench-10000", "from": "5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d",
        "fromName": "Portaria", "apartmentNumber": "12", "buildingName": "Torre Norte", "channelName": "call-10000",
        "metadata": {"clientVersion": "1.4.2", "schemaVersion": 1}, "timestamp": str(int(time.time() * 1000)),
        "expiresAt": str(int(time.time() * 1000) + 600_000), "seq": "0", "isVoip": True}, separators=(",", ":")))
    uris = bench.directory / "http2" / "uris.txt"
    uris.write_text("".join(f"https://localhost:{account.port}/3/device/{number:064x}\n" for number in range(1, DEVICES + 1)))
    headers = {"authorization": f"bearer {account.token}", "apns-topic": f"{TOPIC}.voip", "apns-push-type": "voip",
               "apns-priority": "10", "apns-expiration": "0", "apns-id": "00000000-0001-8000-8000-000000000000"}
    before = children_cpu_seconds()
    output = run_program([
        program("h2load"), "-n", str(requests), "-c", "1", "-m", str(STREAMS), "-d", body,
        *(part for name, value in headers.items() for part in ("-H", f"{name}: {value}")), "-i", uris])
    used = children_cpu_seconds() - before
    found = re.search(r"finished in .*?, ([\d.]+) req/s.* (\d+) errored.*status codes: (\d+) 2xx", output, re.DOTALL)
    refused, answered = (int(found[2]), int(found[3])) if found else (0, 0)
    if found is None or refused > REFUSED_MOST or answered + refused != requests:
        raise BenchError(f"h2load did not get {requests} answers of 200: {output[-1000:]}")
    return Work(answered, answered / float(found[1]), used)


def token(bench: Bench, account: Account) -> str:
    return run_program([
        bench.tool("HTTP2Load"), "--print-token", "--team", account.team, "--key-id", account.key_id, "--key", account.key]).strip()


# --- The servers ---


def nghttpd(bench: Bench, directory: pathlib.Path) -> Process:
    """nghttpd with an empty file for every device, so that it says 200; listening when this returns."""
    root = directory / "root"
    files = root / "3" / "device"
    files.mkdir(parents=True, exist_ok=True)
    for number in range(1, DEVICES + 1):
        (files / f"{number:064x}").touch()
    port = free_port()
    server = Process(f"nghttpd-{port}", [
        program("nghttpd"), "-m", str(STREAMS), "-a", "127.0.0.1", "-d", root, str(port), directory / "server.key",
        directory / "server.pem"], directory)
    try:
        server.wait_until(lambda: listens(port), "listening")
    except BaseException:
        server.stop()
        raise
    return server


def port_of(server: Process) -> int:
    return int(server.name.rpartition("-")[2])


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def signing_key(directory: pathlib.Path) -> pathlib.Path:
    """A key to sign with, which nghttpd does not check."""
    path = directory / "apns-key.p8"
    if not path.exists():
        run_program(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path])
    return path


def simulated(config: pathlib.Path) -> Account:
    """The account in the configuration that `push-gateway-lab simulate` wrote."""
    text = config.read_text()

    def setting(name: str) -> str:
        found = re.search(rf'^\s*{name}: "?([^"\n]+)"?$', text, re.MULTILINE)
        if found is None:
            raise BenchError(f"{config} has no {name}")
        return found.group(1)

    if setting("topic") != TOPIC:
        raise BenchError(f"{config} is for the topic {setting('topic')}, and not for {TOPIC}")
    return Account(
        "the simulator", int(setting("production_url").rpartition(":")[2]), pathlib.Path(setting("ca_file")), setting("team_id"),
        setting("key_id"), pathlib.Path(setting("key_file")))


def program(name: str) -> str:
    """Debian installs servers in a folder that is not in every user's PATH."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")
    if found is None:
        raise BenchError(f"{name} is not installed: make setup")
    return found
