"""Absurd (absurd-sdk), as a queue: tasks without steps, spawned one by one in the transaction of a batch."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

import psycopg
from absurd_sdk import AsyncAbsurd

from benchmarks.portable.protocol import DEAD_AFTER_SECONDS, Adapter, Do, main

QUEUE, TASK = "bench", "bench"


class Absurd(Adapter):
    system = "absurd"
    package = "absurd-sdk"
    tables = (f"absurd.t_{QUEUE}", f"absurd.r_{QUEUE}")

    async def install(self) -> None:
        async with await psycopg.AsyncConnection.connect(self.options.url, autocommit=True) as connection:
            schema = await (await connection.execute("select to_regnamespace('absurd')")).fetchone()
            if schema[0] is None:
                control = pathlib.Path(sys.executable).with_name("absurdctl")
                subprocess.run([control, "init"], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PGDATABASE": self.options.url})
                await AsyncAbsurd(connection, queue_name=QUEUE).create_queue()

    async def connect(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.options.url, autocommit=True)
        self.producer = AsyncAbsurd(self.connection, queue_name=QUEUE)

    async def close(self) -> None:
        await self.connection.close()

    async def enqueue(self, jobs: Sequence[str]) -> None:
        async with self.connection.transaction():
            for job in jobs:
                await self.producer.spawn(TASK, {"job": job, "padding": self.padding}, queue=QUEUE)

    async def depth(self) -> int:
        return (await (await self.connection.execute(f"select count(*) from absurd.t_{QUEUE} where state = 'pending'")).fetchone())[0]

    async def work(self, do: Do) -> None:
        worker = AsyncAbsurd(self.options.url, queue_name=QUEUE)

        @worker.register_task(TASK)
        async def run(params, context) -> None:
            await do(params["job"])

        await worker.start_worker(
            concurrency=self.options.workers, claim_timeout=int(DEAD_AFTER_SECONDS), poll_interval=0.05)


if __name__ == "__main__":
    main(Absurd)
