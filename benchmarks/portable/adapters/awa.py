"""awa (awa-pg), with its queue storage."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

from awa import AsyncClient

from benchmarks.portable.protocol import DEAD_AFTER_SECONDS, Adapter, Do, main

QUEUE = "bench"


@dataclasses.dataclass
class BenchJob:
    job: str
    padding: str


class Awa(Adapter):
    system = "awa"
    package = "awa-pg"
    tables = ("awa.ready_entries", "awa.lease_claims", "awa.done_entries")

    async def install(self) -> None:
        async with AsyncClient(self.options.url) as client:
            await client.migrate()
            if '"state": "active"' not in await client.storage_status():
                # The first worker of a new database switches it to queue storage.
                await self.start(client, None)
                await client.shutdown()

    async def start(self, client: AsyncClient, do: Do | None) -> None:
        @client.task(BenchJob, queue=QUEUE)
        async def run(job) -> None:
            if do is not None:
                await do(job.args.job)

        milliseconds = int(DEAD_AFTER_SECONDS * 1000)
        await client.start(
            [(QUEUE, max(1, self.options.workers))], heartbeat_interval_ms=milliseconds // 4, heartbeat_staleness_ms=milliseconds,
            heartbeat_rescue_interval_ms=1000)

    async def connect(self) -> None:
        self.client = AsyncClient(self.options.url)

    async def close(self) -> None:
        await self.client.close()

    async def enqueue(self, jobs: Sequence[str]) -> None:
        await self.client.enqueue_many_copy([BenchJob(job, self.padding) for job in jobs], queue=QUEUE)

    async def depth(self) -> int:
        return sum(of.available for of in await self.client.queue_stats() if of.queue == QUEUE)

    async def work(self, do: Do) -> None:
        client = AsyncClient(self.options.url)
        await self.start(client, do)
        await asyncio.Event().wait()


if __name__ == "__main__":
    main(Awa)
