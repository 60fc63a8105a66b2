"""push-gateway: a job is a call that rings one iPhone; its work is the simulator's, which answers after JOB_WORK_MS.

Needs two more variables: GATEWAY, the program, and SIMULATORS, the directory of a running

    push-gateway-lab simulate --directory DIR --log DIR/pushes.log --faults FILE

with the work's time in FILE: [{"provider": "apns", "delay_ms": 1}]. The work of a job began when the simulator accepted its
push. WORKER_COUNT is the number of requests in flight.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import re
import subprocess
from collections.abc import Sequence

import psycopg

from benchmarks.portable.account import Tail
from benchmarks.portable.protocol import Adapter, Do, main

ENQUEUE = """
insert into push.outbox (app, kind, payload, recipients, ring_seconds)
select 'porteiro', 'incoming_call', payload, recipients, 600 from unnest(%s::jsonb[], %s::jsonb[]) as calls (payload, recipients)
"""
DEPTH = "select coalesce(sum(count), 0)::bigint from push.summary where state <> 'claimed'"
ACCEPTED = re.compile(r'"at":(\d+)\.(\d{3}).*"callId":"(\d+)\.(\d+)"')


class PushGateway(Adapter):
    system = "push-gateway"
    tables = ("push.delivery", "push.outbox", "push.history")

    @property
    def version(self) -> str:
        return subprocess.run([os.environ["GATEWAY"], "--version"], capture_output=True, text=True, check=True).stdout.strip()

    async def install(self) -> None:
        subprocess.run([os.environ["GATEWAY"], "migrate"], check=True, stdout=subprocess.DEVNULL)
        async with await psycopg.AsyncConnection.connect(self.options.url, autocommit=True) as connection:
            # Calls are accepted only for apps that a gateway has served.
            await connection.execute("select push.register_app('porteiro', 60)")

    async def connect(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(self.options.url, autocommit=True)

    async def close(self) -> None:
        await self.connection.close()

    async def enqueue(self, jobs: Sequence[str]) -> None:
        payloads = [json.dumps({"callId": job, "from": "door", "fromName": self.padding}) for job in jobs]
        recipients = [json.dumps([{"userId": f"user-{job}", "voipPushToken": f"{int(job.partition('.')[0]) + 1:064x}", "platform": "ios"}])
                      for job in jobs]
        await self.connection.execute(ENQUEUE, (payloads, recipients))

    async def depth(self) -> int:
        return (await (await self.connection.execute(DEPTH)).fetchone())[0]

    async def work(self, do: Do) -> None:
        simulators = pathlib.Path(os.environ["SIMULATORS"])
        gateway = await asyncio.create_subprocess_exec(os.environ["GATEWAY"], "serve", "--config", simulators / "gateway.yaml", env={
            **os.environ, "PUSH_GATEWAY_HTTP_LISTEN": "127.0.0.1:0", "PUSH_GATEWAY_LOG_LEVEL": "warning",
            "PUSH_GATEWAY_SHUTDOWN_DRAIN_SECONDS": "1",
            "PUSH_GATEWAY_APPS_PORTEIRO_APNS_STREAMS_PER_CONNECTION": str(self.options.workers)})
        try:
            await gateway.wait()
        finally:
            if gateway.returncode is None:
                gateway.terminate()
                await gateway.wait()

    async def observe(self) -> None:
        log = Tail(pathlib.Path(os.environ["SIMULATORS"]) / "pushes.log")
        while True:
            for line in log.lines():
                if push := ACCEPTED.match(line[line.index('"at"'):]):
                    milliseconds, microseconds, number, enqueued = map(int, push.groups())
                    self.options.ledger.done(number, enqueued, milliseconds * 1000 + microseconds)
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    main(PushGateway)
