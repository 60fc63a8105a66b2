"""One soak from beginning to end: start everything, load and faults, quiet, then read what is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Mapping

from benchmarks.processes import BenchError
from Tests.soak import evidence
from Tests.soak.backend import Backend
from Tests.soak.calls import CallGenerator
from Tests.soak.cluster import Pair
from Tests.soak.evidence import Evidence
from Tests.soak.faults import Injector
from Tests.soak.fleet import Gateway, Simulators, free_port, migrate
from Tests.soak.proxy import Proxy
from Tests.soak.wire import Connection, ConnectionLost, PostgresError

GATEWAYS = 3
OVERDUE_SECONDS = 15.0
"""How long after its deadline a delivery may be owed still."""
QUIET_SECONDS = 90.0
"""How long what is owed may take when all is well again: a ring window, and a minute."""


@dataclasses.dataclass
class Options:
    seconds: float
    seed: int
    rate: float
    every: float
    weights: Mapping[str, int]
    gateway: pathlib.Path
    simulators: pathlib.Path
    directory: pathlib.Path


class Soak:
    """Leaving its `async with` block stops all it has started."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.generator = CallGenerator(options.seed)
        self.evidence: Evidence | None = None
        self.strange: list[str] = []
        """Lines of the simulators' log that fit no call."""
        self.gateways: list[Gateway] = []
        self.pair = Pair(options.directory, (free_port(), free_port()))
        self.backend = Backend(self.generator, lambda: self.pair.primary.port, options.rate, options.seed)
        self.injector: Injector | None = None
        self.longest_stall = 0.0
        """For how long this process, and so perhaps the whole machine, did not run."""
        self._overdue: dict[tuple[str, int], str] = {}
        self._simulators: Simulators | None = None
        self._proxies: list[Proxy] = []
        self._watch: Connection | None = None
        self._broken: asyncio.Future[None] | None = None

    async def __aenter__(self) -> Soak:
        self._broken = asyncio.get_running_loop().create_future()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.injector is not None:
            await self.injector.stop()
        await self.backend.stop()
        await self._stop_gateways()
        if self._simulators is not None:
            await asyncio.to_thread(self._simulators.stop)
        for proxy in self._proxies:
            await proxy.stop()
        await self.pair.stop()

    async def run(self) -> None:
        await self._start()
        assert self.injector is not None and self._broken is not None
        load = asyncio.gather(
            self.backend.run(self.options.seconds), self.injector.run(self.options.seconds, self.options.every))
        background = [asyncio.create_task(self._supervise()), asyncio.create_task(self._report_progress())]
        try:
            # Only the load ends by itself: whatever else is first has failed.
            done, _ = await asyncio.wait([load, self._broken, *background], return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
            await self.injector.finish()
            self._say("the faults are over; waiting until nothing is owed")
            await self._wait_until_quiet()
        finally:
            for task in (load, *background):
                task.cancel()
            await asyncio.gather(load, *background, return_exceptions=True)
        await self._read()

    # --- Beginning ---

    async def _start(self) -> None:
        options = self.options
        await self.pair.create()
        await asyncio.to_thread(
            migrate, options.gateway, f"postgres://push@127.0.0.1:{self.pair.primary.port}/push")
        await self.pair.make_standby()
        self._simulators = await asyncio.to_thread(Simulators, options.simulators, options.directory)
        for number in range(GATEWAYS):
            proxy = Proxy(self.pair.primary.port)
            await proxy.start()
            self._proxies.append(proxy)
            gateway = Gateway(number, options.gateway, self._simulators, options.directory, proxy)
            self.gateways.append(gateway)
            gateway.start()
        for gateway in self.gateways:
            await asyncio.to_thread(gateway.wait_until_ready)
        self.injector = Injector(options.weights, options.seed, self.gateways, self.pair, self.backend, self._fail)
        self.backend.start()

    def _fail(self, error: BaseException) -> None:
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error if isinstance(error, BenchError) else BenchError(f"a fault failed: {error!r}"))

    # --- Meanwhile ---

    async def _supervise(self) -> None:
        """Starts gateways again that have ended, measures stalls, and looks for what is overdue."""
        looked_at = 0.0
        while True:
            asked = time.monotonic()
            await asyncio.sleep(0.25)
            self.longest_stall = max(self.longest_stall, time.monotonic() - asked - 0.25)
            for gateway in self.gateways:
                gateway.revive()
            if time.monotonic() - looked_at >= 5:
                looked_at = time.monotonic()
                with contextlib.suppress(ConnectionLost, PostgresError):
                    self._overdue |= await evidence.read_overdue(await self._watching(), OVERDUE_SECONDS)

    async def _report_progress(self) -> None:
        assert self.injector is not None and self._simulators is not None
        begun = time.monotonic()
        while True:
            await asyncio.sleep(10)
            try:
                [(owed, ringing)] = await (await self._watching()).query(evidence.WAITING, timeout=2)
                waiting = f"{owed} owed, {ringing} ringing"
            except (ConnectionLost, PostgresError):
                waiting = "Postgres is away"
            last = f", last: {self.injector.done[-1].kind}" if self.injector.done else ""
            overdue = f", {len(self._overdue)} OVERDUE" if self._overdue else ""
            self._say(f"{time.monotonic() - begun:4.0f} s  {self.backend.committed} calls, {waiting}{overdue}, "
                      f"{len(self.injector.done)} faults{last}")

    async def _watching(self) -> Connection:
        """A session of our own at the primary."""
        if self._watch is None or self._watch.is_closed or self._watch.port != self.pair.primary.port:
            self._watch = await Connection.open(self.pair.primary.port, timeout=1)
        return self._watch

    def _say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)

    # --- End ---

    async def _wait_until_quiet(self) -> None:
        limit = time.monotonic() + QUIET_SECONDS
        await self.backend.settle_down(30)
        while time.monotonic() < limit:
            with contextlib.suppress(ConnectionLost, PostgresError):
                connection = await Connection.open(self.pair.primary.port, timeout=2)
                try:
                    if (await connection.query(evidence.WAITING))[0] == ("0", "0"):
                        return
                finally:
                    connection.close()
            await asyncio.sleep(0.5)

    async def _stop_gateways(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(gateway.stop) for gateway in self.gateways))

    async def _read(self) -> None:
        """What is owed is read before the gateways stop, for then they give back what they hold."""
        assert self._simulators is not None
        connection = await Connection.open(self.pair.primary.port)
        try:
            owed = await evidence.read_deliveries(connection, evidence.OWED)
            await self._stop_gateways()
            await asyncio.to_thread(self._simulators.stop)
            rows = await evidence.read_calls(connection)
            history = await evidence.read_deliveries(connection, evidence.HISTORY)
            left = await evidence.read_deliveries(connection, evidence.OWED)
        finally:
            connection.close()
        pushes, self.strange = await asyncio.to_thread(
            evidence.read_pushes, self._simulators.log, self.generator.by_token)
        self.evidence = Evidence(self.generator.calls, pushes, rows, history, owed, left, self._overdue)
