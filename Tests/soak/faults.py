"""The faults: which comes next, and how each is done. What was done is kept with its times, for the account."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Awaitable, Callable, Mapping

from Tests.soak.backend import Backend
from Tests.soak.cluster import Pair
from Tests.soak.fleet import Gateway
from Tests.soak.proxy import Mode

WEIGHTS = {
    "cut": 5, "hole": 3, "mute": 3, "delay": 2, "crash-backend": 3, "crash-server": 3, "kill": 4, "freeze": 4, "promote": 2,
}
MEANINGS = {
    "cut": "connections of a gateway to Postgres, or of all, are reset",
    "hole": "what a gateway, or all, and Postgres send each other is swallowed for 4 s; connections stay open",
    "mute": "Postgres's answers are swallowed for 1 s, then the connections are reset",
    "delay": "what a gateway and Postgres send each other is held back for 2 to 5 s, then arrives",
    "crash-backend": "SIGKILL to a session of Postgres: it restarts everything, commits not yet on disk are lost",
    "crash-server": "Postgres is stopped at once (immediate) and started",
    "kill": "SIGKILL to a gateway, started again within 3 s",
    "freeze": "SIGSTOP to a gateway for 2 to 8 s",
    "promote": "Postgres is stopped at once, its asynchronous standby takes over",
}
PROMOTION_INTERVAL = 60.0
DATABASE_FAULTS = ("crash-backend", "crash-server", "promote")


@dataclasses.dataclass
class Fault:
    """One fault that was done. Times are seconds since 1970."""

    kind: str
    at: float
    until: float
    gateways: tuple[int, ...] = ()
    """Whom it hit; empty: Postgres."""
    detail: str = ""

    @property
    def cuts_off(self) -> bool:
        """The other gateways may rightly take this one for dead, and repeat what it was sending."""
        return self.kind in ("kill", "freeze", "hole", "delay")

    @property
    def loses_commits(self) -> bool:
        return self.kind in DATABASE_FAULTS

    @property
    def text_of_cause(self) -> str:
        return f"{self.kind} of {'Postgres' if self.loses_commits else 'the gateway'}"

    def hits(self, gateway: int) -> bool:
        return self.loses_commits or gateway in self.gateways

    def text(self) -> str:
        whom = " gateway " + ", ".join(map(str, self.gateways)) if self.gateways else ""
        return f"{self.kind}{whom}{f' ({self.detail})' if self.detail else ''}, {self.until - self.at:.1f} s"


class Deck:
    """Kinds of faults in random order, each as often as its weight says: a shuffled deck, so that none stays out."""

    def __init__(self, weights: Mapping[str, int], seed: int) -> None:
        self._cards = [kind for kind, weight in weights.items() for _ in range(weight)]
        self._random = random.Random(f"faults {seed}")
        self._left: list[str] = []

    def draw(self, is_possible: Callable[[str], bool]) -> str | None:
        """The next card that can be played; the others keep their places. None: none can."""
        for _ in range(2):
            for index, kind in enumerate(self._left):
                if is_possible(kind):
                    return self._left.pop(index)
            self._left += self._random.sample(self._cards, len(self._cards))
        return None


class Injector:
    """Does a fault every few seconds."""

    def __init__(
        self, weights: Mapping[str, int], seed: int, gateways: list[Gateway], pair: Pair, backend: Backend,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._deck = Deck(weights, seed)
        self._random = random.Random(f"choices {seed}")
        self._gateways = gateways
        self._pair = pair
        self._backend = backend
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy: set[int] = set()
        """Gateways that are dead, frozen or cut off right now."""
        self._is_database_busy = False
        self._promoted_at = 0.0
        self.done: list[Fault] = []

    async def run(self, seconds: float, every: float) -> None:
        end = time.monotonic() + seconds
        due = time.monotonic()
        while (due := due + every) < end:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            kind = self._deck.draw(self._is_possible)
            if kind is None:
                continue
            # Most faults meet a burst of calls that has just been committed.
            if self._random.random() < 0.75:
                await self._backend.burst(self._random.randint(10, 25))
                await asyncio.sleep(self._random.uniform(0.005, 0.25))
            work = self._work(kind)
            task = asyncio.create_task(self._do(work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            await asyncio.sleep(0.1)
            self._backend.resume()

    async def stop(self) -> None:
        """Breaks off what is going on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finish(self) -> None:
        """Waits until the last faults are over. Connections in a black hole stay there: gateways must find out."""
        await asyncio.gather(*list(self._tasks), return_exceptions=True)

    def _is_possible(self, kind: str) -> bool:
        if kind in DATABASE_FAULTS and self._is_database_busy:
            return False
        if kind == "promote":
            return self._pair.has_standby and time.monotonic() - self._promoted_at >= PROMOTION_INTERVAL
        if kind in DATABASE_FAULTS or kind == "cut":
            return True
        return len(self._busy) < len(self._gateways)

    async def _do(self, work: Awaitable[None]) -> None:
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # the soak cannot go on without its own machinery
            self._failed(error)

    def _work(self, kind: str) -> Awaitable[None]:
        match kind:
            case "cut": return self._cut()
            case "hole": return self._disturb("hole", Mode.HOLE, 4.0, self._some())
            case "mute": return self._disturb("mute", Mode.MUTE, 1.0, self._some())
            case "delay": return self._disturb("delay", Mode.DELAY, self._random.uniform(2, 5), self._one())
            case "crash-backend": return self._crash_backend()
            case "crash-server": return self._crash_server()
            case "kill": return self._kill()
            case "freeze": return self._freeze()
            case _: return self._promote()

    # --- Network ---

    def _one(self) -> list[Gateway]:
        free = [gateway for gateway in self._gateways if gateway.number not in self._busy]
        return [self._random.choice(free)]

    def _some(self) -> list[Gateway]:
        """One, or now and then all that are not busy."""
        if self._random.random() < 0.7:
            return self._one()
        return [gateway for gateway in self._gateways if gateway.number not in self._busy]

    async def _cut(self) -> None:
        choice = self._random.random()
        chosen = self._gateways if choice < 0.3 else [self._random.choice(self._gateways)]
        only = self._random.randrange(1000) if choice > 0.65 else None
        fault = self._begin("cut", chosen)
        count = sum(gateway.proxy.cut(only) for gateway in chosen)
        fault.detail = f"{count} connections"
        fault.until = time.time()

    async def _disturb(self, kind: str, mode: Mode, seconds: float, chosen: list[Gateway]) -> None:
        fault = self._begin(kind, chosen, busy=True)
        for gateway in chosen:
            gateway.proxy.disturb(mode)
        await asyncio.sleep(seconds)
        for gateway in chosen:
            gateway.proxy.heal()
        self._end(fault)

    # --- Gateways ---

    async def _kill(self) -> None:
        [gateway] = chosen = self._one()
        fault = self._begin("kill", chosen, busy=True)
        await asyncio.to_thread(gateway.kill)
        await asyncio.sleep(self._random.uniform(0, 3))
        gateway.start()
        self._end(fault)

    async def _freeze(self) -> None:
        [gateway] = chosen = self._one()
        fault = self._begin("freeze", chosen, busy=True)
        gateway.freeze()
        await asyncio.sleep(self._random.uniform(2, 8))
        gateway.thaw()
        self._end(fault)

    # --- Postgres ---

    async def _crash_backend(self) -> None:
        self._is_database_busy = True
        fault = self._begin("crash-backend", [])
        fault.detail = self._pair.primary.kill_backend(self._random.randrange(1000))
        await asyncio.sleep(0.2)  # until the postmaster has noticed
        await self._pair.primary.wait_until_open()
        self._end(fault)

    async def _crash_server(self) -> None:
        self._is_database_busy = True
        fault = self._begin("crash-server", [])
        await self._pair.crash()
        await self._pair.primary.wait_until_open()
        self._end(fault)

    async def _promote(self) -> None:
        self._is_database_busy = True
        self._promoted_at = time.monotonic()
        fault = self._begin("promote", [])
        await self._pair.fail_over()
        await self._pair.primary.wait_until_open()
        for gateway in self._gateways:
            gateway.proxy.target = self._pair.primary.port
        fault.until = time.time()
        await self._pair.make_standby()
        self._is_database_busy = False

    # --- Book-keeping ---

    def _begin(self, kind: str, chosen: list[Gateway], busy: bool = False) -> Fault:
        fault = Fault(kind, time.time(), float("inf"), tuple(gateway.number for gateway in chosen))
        self.done.append(fault)
        if busy:
            self._busy |= set(fault.gateways)
        return fault

    def _end(self, fault: Fault) -> None:
        fault.until = time.time()
        self._busy -= set(fault.gateways)
        if fault.loses_commits:
            self._is_database_busy = False
