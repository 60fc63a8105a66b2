"""pgqueuer over asyncpg, set up as its checklist for production says: autovacuum, heartbeats, one connection for the worker."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.portable.protocol import DEAD_AFTER_SECONDS, Adapter, Do, main

ENTRYPOINT = "bench"


class Pgqueuer(Adapter):
    system = "pgqueuer"
    package = "pgqueuer"
    tables = ("public.pgqueuer", "public.pgqueuer_log")

    async def install(self) -> None:
        connection = await asyncpg.connect(self.options.url)
        queries = Queries.from_asyncpg_connection(connection)
        if not await queries.schema_is_installed():
            await queries.install()
            await queries.optimize_autovacuum()
        await connection.close()

    async def connect(self) -> None:
        self.pool = await asyncpg.create_pool(self.options.url, min_size=1, max_size=2)
        self.queries = Queries.from_asyncpg_pool(self.pool)

    async def close(self) -> None:
        self.pool.terminate()

    async def enqueue(self, jobs: Sequence[str]) -> None:
        padding = self.padding
        await self.queries.enqueue([ENTRYPOINT] * len(jobs), [f"{job} {padding}".encode() for job in jobs], [0] * len(jobs))

    async def depth(self) -> int:
        return sum(of.count for of in await self.queries.queue_size() if of.status == "queued")

    async def work(self, do: Do) -> None:
        worker = PgQueuer.from_asyncpg_connection(await asyncpg.connect(self.options.url))

        @worker.entrypoint(ENTRYPOINT)
        async def run(job: Job) -> None:
            await do(job.payload.split()[0].decode())

        # A batch has at most half of the jobs that may run at the same time.
        await worker.run(
            batch_size=max(1, self.options.workers // 2), max_concurrent_tasks=self.options.workers,
            shutdown_on_listener_failure=True, heartbeat_timeout=datetime.timedelta(seconds=DEAD_AFTER_SECONDS))


if __name__ == "__main__":
    main(Pgqueuer)
