"""Lone calls while something is ill: one replica's path, one phone, one answer, the network. docs/reliability.md has the table.

Each row has a database, simulated providers and replicas of its own. A call is lost if it did not ring within its window, and late if it
rang more than three seconds after it could. Exit status: 0: all bounds were kept; 1: some were not; 2: the test itself broke.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.processes import BenchError
from Tests.soak.calls import APP
from Tests.soak.cluster import Server
from Tests.soak.fleet import Gateway, Simulators, free_port, migrate
from Tests.soak.proxy import Mode, Proxy
from Tests.soak.wire import Connection

ROOT = pathlib.Path(__file__).resolve().parents[2]
RING_SECONDS = 30
LATE_SECONDS = 3.0
TOKENS = {"apns": "{head}{number:0{rest}x}", "fcm": "{head}APA91bExample-{number:08d}", "expo": "ExponentPushToken[{head}{number:010d}]"}
MEMBERS = {"apns": "voipPushToken", "fcm": "fcmToken", "expo": "pushToken"}


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    before: str
    """What was measured before the rules of docs/adr/0060."""
    rules: Sequence[dict[str, object]] = ()
    provider: str = "apns"
    calls: int = 40
    every: float = 1.0
    head: str = "a0"
    """What the tokens of the lone calls begin with."""
    bad_head: str | None = None
    """What the token begins with that is called beside them, every `bad_every` seconds; it may ring or not."""
    bad_every: float = 3.0
    bad_tokens: int = 1
    together: int = 0
    """In how many transactions each such token is called together with a good one, before the lone calls."""
    has_ill_replica: bool = False
    """A second replica sends APNs' pushes to another listener: rules for the environment sandbox are its path."""
    once: dict[str, object] | None = None
    """How the first replica's path fails at the first push to each token of the lone calls."""
    paths: Sequence[Sequence[dict[str, object]]] = ()
    """The rules for the paths of further replicas, each of which has simulated providers of its own."""
    away: tuple[float, float] | None = None
    """From when to when nobody can ring, in seconds since the first call."""
    has_hole: bool = False
    """The network swallows everything meanwhile."""
    foreign_key_at: float | None = None
    slow: float = 0
    """How long the provider takes: such a ring is late only beyond it."""
    keeps_tokens: bool = False
    """The lone calls do not ring, and none of their tokens may be called dead."""
    late: float = LATE_SECONDS


def path(**rule: object) -> list[dict[str, object]]:
    return [{"provider": "apns", "environment": "sandbox", **rule}]


def asks_to_wait(provider: str, reason: str) -> list[dict[str, object]]:
    return [{"provider": provider, "reason": reason, "retry_after": 60}]


ROWS = (
    Row("all is well", "", has_ill_replica=True, calls=20),
    Row("one of two paths answers PINGs only", "16 of 40 lost", path(action="deafen"), has_ill_replica=True),
    Row("one of two paths never answers", "", path(action="hang"), has_ill_replica=True),
    Row("one of two paths: 429 with Retry-After", "18 of 40 lost", path(status=429, reason="TooManyRequests", retry_after=20),
        has_ill_replica=True),
    Row("one of two paths closes the connection", "4 to 6 of 40 lost", path(action="close"), has_ill_replica=True),
    Row("one of two paths answers with HTML", "", path(action="html"), has_ill_replica=True),
    Row("one of two replicas has a wrong key", "3 of 80 lost", path(reason="InvalidProviderToken"), has_ill_replica=True),
    Row("one path: 503, Retry-After 60 s; the other: one 500 a token", "5 of 8 lost", calls=8, every=3,
        once={"reason": "InternalServerError"}, paths=[asks_to_wait("apns", "ServiceUnavailable")]),
    Row("one path: 503, Retry-After 60 s; the other closes once a token", "3 of 8 lost", calls=8, every=3,
        once={"action": "close"}, paths=[asks_to_wait("apns", "ServiceUnavailable")]),
    Row("one path: 429, Retry-After 60 s; the other: one 500 a token", "7 of 8 lost", calls=8, every=3,
        once={"reason": "InternalServerError"}, paths=[asks_to_wait("apns", "TooManyRequests")]),
    Row("FCM: one path UNAVAILABLE, Retry-After 60 s; the other: one INTERNAL a token", "3 of 8 lost", provider="fcm", calls=8, every=3,
        head="good", once={"reason": "INTERNAL"}, paths=[asks_to_wait("fcm", "UNAVAILABLE")]),
    *(Row(f"{name}: of three paths, one never answers, one asks to wait 60 s, one fails once a token", "7 of 12 lost", provider=provider,
          calls=12, every=3, head=head, once={"reason": once}, late=5,  # no path is well
          paths=[[{"provider": provider, "action": "hang"}], asks_to_wait(provider, wait)])
      for name, provider, head, once, wait in [("APNs", "apns", "a0", "InternalServerError", "ServiceUnavailable"),
                                               ("FCM", "fcm", "good", "INTERNAL", "UNAVAILABLE")]),
    Row("one path refuses some tokens; the other: 503 twelve times", "8 of 8 lost", [
        {"provider": "apns", "token_prefix": "a0", "status": 403, "reason": "BadEnvironmentKeyInToken"},
    ], calls=8, every=3, bad_head="bb", bad_every=0.3, bad_tokens=100, late=20,
        paths=[[{"provider": "apns", "token_prefix": "a0", "status": 503, "reason": "ServiceUnavailable", "count": 12}]]),
    Row("APNs answers after 5 s", "47 of 60 late", [{"provider": "apns", "delay_ms": 5000}], calls=60, every=0.5, slow=5),
    Row("three tokens at which APNs closes the connection", "13 of 50 lost, 7 late",
        [{"provider": "apns", "token_prefix": "bb", "action": "close"}], calls=50, bad_head="bb", bad_tokens=3),
    Row("one sandbox phone under a key for production", "15 of 43 lost",
        [{"provider": "apns", "token_prefix": "bb", "reason": "BadEnvironmentKeyInToken", "status": 403}], calls=43, bad_head="bb"),
    Row("one Expo token at which requests hang", "30 of 65 lost",
        [{"provider": "expo", "token_prefix": "ExponentPushToken[bad", "action": "hang"}], provider="expo", calls=65, head="good",
        bad_head="bad", bad_every=1),
    Row("six Expo tokens at which requests hang, called with six good ones", "6 lost, 13 late of 37",
        [{"provider": "expo", "token_prefix": "ExponentPushToken[bad", "action": "hang"}], provider="expo", calls=25, head="good",
        bad_head="bad", bad_every=30, bad_tokens=6, together=2),
    Row("Expo answers after 5 s", "13 of 40 lost", [{"provider": "expo", "delay_ms": 5000}], provider="expo", head="good", calls=40,
        every=0.25, slow=5),
    Row("one bare 429 of FCM", "15 of 15 lost", [
        {"provider": "fcm", "token_prefix": "bad", "status": 429, "count": 1,
         "body": '{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}}'},
    ], provider="fcm", calls=15, head="good",
        bad_head="bad", bad_every=100),
    Row("the first 20 requests for an access token hang", "first ring 34 s after", [{"provider": "oauth", "action": "hang", "count": 20}],
        provider="fcm", head="good", calls=30, away=(0, 20)),
    Row("a foreign key replaces the one that works", "50 of 79 lost", foreign_key_at=5),
    Row("a black hole of 20 s", "8 to 9 s after it", away=(5, 25), has_hole=True,
        # A connection that is being made when the network is back may have lost its first packets, and is given up after 4 s.
        late=4),
    Row("the other environment is ill, the label is wrong", "60 of 60 tokens destroyed",
        [{"provider": "apns", "environment": "production", "reason": "BadDeviceToken"},
         {"provider": "apns", "environment": "sandbox", "status": 503, "reason": "ServiceUnavailable"}], calls=20, keeps_tokens=True),
)


class Trial:
    """One row. Leaving its `async with` block stops all it has started."""

    def __init__(self, row: Row, place: int, server: Server, binary: pathlib.Path, directory: pathlib.Path) -> None:
        self.row, self.server, self.binary, self.directory = row, server, binary, directory
        self.database = f"row_{place}"
        self.url = f"postgres://push@127.0.0.1:{server.port}/{self.database}"
        self.gateways: list[Gateway] = []
        self.proxies: list[Proxy] = []
        self.simulators: list[Simulators] = []
        self.connection: Connection | None = None
        self._tokens = 0

    async def __aenter__(self) -> Trial:
        return self

    async def __aexit__(self, *_: object) -> None:
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.kill)
        for simulators in self.simulators:
            await asyncio.to_thread(simulators.stop)
        for proxy in self.proxies:
            await proxy.stop()
        if self.connection is not None:
            self.connection.close()

    async def start(self) -> None:
        admin = await Connection.open(self.server.port, "postgres")
        await admin.query(f"create database {self.database}")
        admin.close()
        await asyncio.to_thread(migrate, self.binary, self.url)
        self.connection = await Connection.open(self.server.port, self.database)
        first = self.row.rules if self.row.once is None else [
            {"provider": self.row.provider, "token_prefix": self._token(self.row.head, number), "count": 1, **self.row.once}
            for number in range(self.row.calls)]
        for number, rules in enumerate([first, *self.row.paths]):
            directory = self.directory / f"path-{number}"
            directory.mkdir(parents=True)
            simulators = await asyncio.to_thread(Simulators, self.binary, directory, list(rules))
            self.simulators.append(simulators)
            if self.row.has_hole:
                config = await self._through_proxy(simulators.config.read_text(), r"production_url: https://127.0.0.1:(\d+)")
                simulators.config.write_text(config)
            await self._gateway(simulators)
        if self.row.has_ill_replica:
            config = simulators.config.read_text()
            sandbox = re.findall(r"sandbox_url: (\S+)", config)[0]
            simulators.config.write_text(re.sub(r"production_url: \S+", f"production_url: {sandbox}", config))
            await self._gateway(simulators)

    async def _through_proxy(self, text: str, pattern: str) -> str:
        port = re.findall(pattern, text)[0]
        proxy = Proxy(int(port))
        await proxy.start()
        self.proxies.append(proxy)
        return re.sub(pattern, lambda found: found[0].replace(port, str(proxy.port)), text)

    async def _gateway(self, simulators: Simulators) -> None:
        gateway = Gateway(len(self.gateways), self.binary, simulators, self.directory, url=self.url)
        gateway.start()
        self.gateways.append(gateway)
        assert self.connection is not None
        while (await self.connection.query("select count(*) from push.apps"))[0][0] == "0":
            await asyncio.sleep(0.1)
        if not any(rule["provider"] == "oauth" for rule in self.row.rules):
            await asyncio.to_thread(gateway.wait_until_ready)

    async def run(self) -> str:
        """Rings, and says what was lost and late, or how many tokens were called dead."""
        row = self.row
        begun = time.monotonic()
        await asyncio.gather(self._disturb(begun), self._call_bad(begun), self._call(begun))
        assert self.connection is not None
        await asyncio.sleep(1)
        limit = time.monotonic() + RING_SECONDS + 5
        while time.monotonic() < limit and (await self.connection.query("select count(*) from push.delivery where kind = 0"))[0][0] != "0":
            await asyncio.sleep(0.25)
        if row.keeps_tokens:
            self.lost = int((await self.connection.query("select count(*) from push.token_invalidations"))[0][0] or 0)
            return f"{self.lost} of {row.calls} tokens called dead"
        # A second for what was under way.
        away = (row.away[0] - 1, row.away[1]) if row.away else None
        lost, late, worst = (await self.connection.query(
            """
            with call as (
              select o.call_id, min(h.answered_at) filter (where h.outcome = 'delivered') as rang_at,
                case when $2::float8 is null then o.created_at
                  else case when o.created_at between z.t0 + make_interval(secs => $1::float8) and z.t0 + make_interval(secs => $2::float8)
                    then z.t0 + make_interval(secs => $2::float8) else o.created_at end end as since
              from push.outbox o
              cross join (select min(created_at) as t0 from push.outbox where call_id like 'lone-%') z
              left join push.delivery_history h on h.call_id = o.call_id and h.kind = 'invite'
              where o.call_id like 'lone-%' group by o.call_id, o.created_at, z.t0
            )
            select count(*) filter (where rang_at is null),
              count(*) filter (where rang_at > since + make_interval(secs => $3::float8)),
              round(max(extract(epoch from rang_at - since))::numeric, 1) from call
            """, str(away[0]) if away else None, str(away[1]) if away else None, str(row.late if not row.slow else row.slow + 1)))[0]
        self.lost, self.late = int(lost or 0), int(late or 0)
        count = row.calls + row.together * row.bad_tokens
        return f"{lost} lost, {late} late of {count}; slowest {worst} s"

    lost = 0
    late = 0

    async def _disturb(self, begun: float) -> None:
        if self.row.away is not None and self.row.has_hole:
            await asyncio.sleep(self.row.away[0])
            self.proxies[0].mode = Mode.HOLE
            await asyncio.sleep(begun + self.row.away[1] - time.monotonic())
            self.proxies[0].mode = Mode.PASS
        if self.row.foreign_key_at is not None:
            await asyncio.sleep(self.row.foreign_key_at)
            key = subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
                                 check=True, capture_output=True).stdout
            file = pathlib.Path(re.findall(r'\n +key_file: "(.*)"', self.simulators[0].config.read_text())[0])
            file.write_bytes(key)

    async def _call_bad(self, begun: float) -> None:
        if self.row.bad_head is None:
            return
        number = 0
        for time_ in range(self.row.together):
            connection = await Connection.open(self.server.port, self.database)
            await connection.query("begin")
            for token in range(self.row.bad_tokens):
                name = f"{time_}-{token}"
                await self._enqueue(f"bad-with-{name}", self.row.bad_head, token, connection)
                await self._enqueue(f"lone-with-{name}", self.row.head, 1000 + token, connection)
            await connection.query("commit")
            connection.close()
        while time.monotonic() < begun + self.row.calls * self.row.every:
            await self._enqueue(f"bad-{number}", self.row.bad_head, number % self.row.bad_tokens)
            number += 1
            await asyncio.sleep(self.row.bad_every)

    async def _call(self, begun: float) -> None:
        await asyncio.sleep(0.2)
        for number in range(self.row.calls):
            await self._enqueue(f"lone-{number}", self.row.head, number)
            await asyncio.sleep(max(0, begun + (number + 1) * self.row.every - time.monotonic()))

    def _token(self, head: str, number: int) -> str:
        return TOKENS[self.row.provider].format(head=head, number=number, rest=64 - len(head))

    async def _enqueue(self, call: str, head: str, number: int, within: Connection | None = None) -> None:
        connection = within or await Connection.open(self.server.port, self.database)
        token = self._token(head, number)
        payload = json.dumps({"callId": call, "from": "doorman"})
        recipients = json.dumps([{"userId": call, MEMBERS[self.row.provider]: token}])
        await connection.query("select push.enqueue_call($1::jsonb, $2::jsonb, $3, $4::int)", payload, recipients, APP, str(RING_SECONDS))
        if within is None:
            connection.close()


async def test(rows: Sequence[Row], binary: pathlib.Path, directory: pathlib.Path, at_once: int) -> bool:
    server = Server("postgres", directory, free_port())
    await server.create()
    gate = asyncio.Semaphore(at_once)
    failed: list[str] = []

    async def one(place: int, row: Row) -> None:
        async with gate, Trial(row, place, server, binary, directory / f"row-{place}") as trial:
            await trial.start()
            text = await trial.run()
            is_kept = not trial.lost and not trial.late
            if not is_kept:
                failed.append(row.name)
            print(f"| {row.name} | {row.before} | {text} |{'' if is_kept else ' NOT KEPT'}", flush=True)

    try:
        async with asyncio.TaskGroup() as group:
            for place, row in enumerate(rows):
                group.create_task(one(place, row))
    finally:
        await server.stop("immediate")
    print(f"{len(rows) - len(failed)} rows kept, {len(failed)} not")
    return not failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test-blame.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="?", help="rows whose names contain this")
    parser.add_argument("--at-once", type=int, default=4, help="number of rows that run at the same time")
    options = parser.parse_args()
    directory = ROOT / ".local" / "blame"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    binary = pathlib.Path(os.environ.get("PUSH_GATEWAY", ROOT / ".build" / "release" / "push-gateway")).absolute()
    rows = [row for row in ROWS if not options.only or options.only in row.name]
    try:
        return 0 if asyncio.run(test(rows, binary, directory, options.at_once)) else 1
    except* BenchError as errors:
        print(f"blame: {errors.exceptions}", file=sys.stderr)
    except* KeyboardInterrupt:
        print("blame: interrupted", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
