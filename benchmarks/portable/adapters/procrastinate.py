"""procrastinate: finished jobs stay in its table, as by default; stalled ones are retried as its documentation recommends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from procrastinate import App, PsycopgConnector

from benchmarks.portable.protocol import DEAD_AFTER_SECONDS, Adapter, Do, Options, main

QUEUE = "bench"


class Procrastinate(Adapter):
    system = "procrastinate"
    package = "procrastinate"
    tables = ("public.procrastinate_jobs", "public.procrastinate_events")

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.do: Do | None = None

    def app(self) -> App:
        app = App(connector=PsycopgConnector(conninfo=self.options.url))

        @app.task(queue=QUEUE, name="bench")
        async def bench(job: str, padding: str) -> None:
            await self.do(job)

        return app

    async def install(self) -> None:
        async with self.app().open_async() as app:
            if not await app.check_connection_async():
                await app.schema_manager.apply_schema_async()

    async def connect(self) -> None:
        self.producer = self.app()
        await self.producer.open_async()

    async def close(self) -> None:
        await self.producer.close_async()

    async def enqueue(self, jobs: Sequence[str]) -> None:
        await self.producer.tasks["bench"].batch_defer_async(*({"job": job, "padding": self.padding} for job in jobs))

    async def depth(self) -> int:
        return sum(queue["todo"] for queue in await self.producer.job_manager.list_queues_async(queue=QUEUE))

    async def work(self, do: Do) -> None:
        self.do = do
        async with self.app().open_async() as app:
            worker = app.run_worker_async(
                queues=[QUEUE], concurrency=self.options.workers, install_signal_handlers=False, fetch_job_polling_interval=0.05,
                update_heartbeat_interval=DEAD_AFTER_SECONDS / 4, stalled_worker_timeout=DEAD_AFTER_SECONDS)
            tasks = [asyncio.ensure_future(each) for each in (worker, self.retry_stalled(app))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()

    async def retry_stalled(self, app: App) -> None:
        while True:
            await asyncio.sleep(1)
            for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=DEAD_AFTER_SECONDS):
                await app.job_manager.retry_job(job)


if __name__ == "__main__":
    main(Procrastinate)
