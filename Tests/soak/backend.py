"""The backend: enqueues calls and ends them, by SQL, straight at the primary, and waits for every commit."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

from Tests.soak.calls import APP, Call, CallGenerator
from Tests.soak.wire import Connection, ConnectionLost, PostgresError

ENQUEUE = """
select e.deliveries from push.enqueue_call(payload => $1::jsonb, recipients => $2::jsonb, app => $3::text,
  ring_seconds => $4::int, kind => $5::text) e
"""
ANSWER = "select push.answer_call($1::text, $2::text, $3::text)"
END = "select push.end_call($1::text, $2::text, $3::text)"


class Backend:
    """At a steady rate, with bursts on request. What fails for want of a server is tried again, as a backend would.

    Every second worker opens a connection for each statement, as backends without a pool do: such a connection takes its ids from
    the sequence itself, not from a range that it has cached.
    """

    def __init__(self, generator: CallGenerator, port: Callable[[], int], rate: float, seed: int) -> None:
        self._generator = generator
        self._port = port
        self._rate = rate
        self._random = random.Random(f"arrivals {seed}")
        self._jobs: asyncio.Queue[tuple[str, Call]] = asyncio.Queue()
        self._may_commit = asyncio.Event()
        self._may_commit.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.committed = 0
        self.refused: list[str] = []
        """Statements that the server refused for a lasting reason: faults of the soak, or of the schema."""

    def start(self, workers: int = 4) -> None:
        for number in range(workers):
            self._spawn(self._work(keeps=number % 2 == 0))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def run(self, seconds: float) -> None:
        """Enqueues for this long."""
        end = time.monotonic() + seconds
        due = time.monotonic()
        while due < end:
            due += self._random.expovariate(self._rate)
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self._jobs.put_nowait(("enqueue", self._generator.next()))

    async def settle_down(self, seconds: float) -> bool:
        """Waits until everything asked for is committed, those ends too that are still to come; false: it is not."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            if self._jobs.empty() and all(
                call.committed_at and (call.end is None or call.end_asked_at) for call in self._generator.calls
            ):
                return True
            await asyncio.sleep(0.1)
        return False

    async def burst(self, count: int) -> None:
        """Commits calls in one transaction, and nothing else until `resume`.

        A commit that waits for the disk takes along what others committed without waiting. So a crash loses something only in
        such a silence.
        """
        self._may_commit.clear()
        calls = [self._generator.next() for _ in range(count)]
        for call in calls:
            call.asked_at = time.time()
        connection = None
        try:
            connection = await Connection.open(self._port(), timeout=1)
            await connection.query("begin")
            answers = [await self._enqueue(connection, call) for call in calls]
            await connection.query("commit", timeout=2)
        except (ConnectionLost, PostgresError):
            for call in calls:
                self._jobs.put_nowait(("enqueue", call))
            return
        finally:
            if connection is not None:
                connection.close()
        for call, deliveries in zip(calls, answers):
            self._commit(call, deliveries)

    def resume(self) -> None:
        self._may_commit.set()

    # --- One statement at a time ---

    async def _work(self, keeps: bool) -> None:
        connection: Connection | None = None
        while True:
            what, call = await self._jobs.get()
            while True:
                await self._may_commit.wait()
                try:
                    if connection is None:
                        connection = await Connection.open(self._port(), timeout=2)
                    await (self._begin(connection, call) if what == "enqueue" else self._end(connection, call))
                    if not keeps:
                        connection.close()
                        connection = None
                    break
                except PostgresError as error:
                    if not error.is_outage:
                        self.refused.append(f"{what} {call.call_id}: {error}")
                        break
                    if connection is not None:
                        connection.close()
                    connection = None
                except ConnectionLost:
                    connection = None
                await asyncio.sleep(0.1)

    async def _begin(self, connection: Connection, call: Call) -> None:
        call.asked_at = call.asked_at or time.time()
        self._commit(call, await self._enqueue(connection, call))

    async def _enqueue(self, connection: Connection, call: Call) -> int:
        rows = await connection.query(
            ENQUEUE, call.payload(), call.recipients(), APP, call.ring_seconds, call.kind, timeout=5)
        return int(rows[0][0] or 0)

    def _commit(self, call: Call, deliveries: int) -> None:
        call.committed_at = time.time()
        call.deliveries = deliveries
        self.committed += 1
        if call.end is not None:
            self._spawn(self._end_later(call))

    async def _end_later(self, call: Call) -> None:
        await asyncio.sleep(call.end_after)
        self._jobs.put_nowait(("end", call))

    async def _end(self, connection: Connection, call: Call) -> None:
        call.end_asked_at = call.end_asked_at or time.time()
        try:
            if call.end == "answered":
                rows = await connection.query(ANSWER, call.call_id, call.devices[0].user_id, APP, timeout=5)
            else:
                rows = await connection.query(END, call.call_id, call.end, APP, timeout=5)
        except PostgresError as error:
            if error.sqlstate == "P0002":  # a fail-over lost the call
                return
            raise
        # False: it had ended before, perhaps by a first try whose answer was lost.
        if rows[0][0] == "t":
            call.ended_at = time.time()

    def _spawn(self, work) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
