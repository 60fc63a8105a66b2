"""A backend that enqueues and ends calls over HTTP, at whichever gateway answers."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable

from Tests.soak.backend import Backend
from Tests.soak.calls import Call, CallGenerator

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class HTTPBackend(Backend):
    """Like `Backend`. Requests without an answer, and those answered by 5xx or 429, are sent again, to the next address."""

    def __init__(self, generator: CallGenerator, addresses: Callable[[], list[str]], key: str, rate: float, seed: int) -> None:
        super().__init__(generator, lambda: 0, rate, seed)
        self._addresses = addresses
        self._key = key
        self._choice = random.Random(f"addresses {seed}")
        self.repeated = 0

    async def _work(self, keeps: bool) -> None:
        # Its connections are the HTTP client's affair.
        del keeps
        while True:
            what, call = await self._jobs.get()
            await (self._begin_over_http(call) if what == "enqueue" else self._end_over_http(call))

    async def _begin_over_http(self, call: Call) -> None:
        call.asked_at = call.asked_at or time.time()
        answer = await self._send("/v1/calls", {
            "payload": json.loads(call.payload()), "recipients": json.loads(call.recipients()), "ringSeconds": call.ring_seconds,
            "kind": call.kind}, call)
        if answer is not None:
            self._commit(call, int(answer["deliveries"]))

    async def _end_over_http(self, call: Call) -> None:
        call.end_asked_at = call.end_asked_at or time.time()
        path = f"/v1/calls/{urllib.parse.quote(call.call_id)}"
        if call.end == "answered":
            answer = await self._send(f"{path}/answer", {"userId": call.devices[0].user_id}, call)
        else:
            answer = await self._send(f"{path}/end", {"reason": call.end}, call)
        if answer is not None and answer["changed"]:
            call.ended_at = time.time()

    async def _send(self, path: str, body: dict[str, object], call: Call) -> dict[str, object] | None:
        """The answer; None: the request was refused for good."""
        while True:
            addresses = self._addresses()
            first = self._choice.randrange(len(addresses))
            for address in addresses[first:] + addresses[:first]:
                try:
                    return await asyncio.to_thread(self._post, f"http://{address}{path}", body)
                except urllib.error.HTTPError as error:
                    if error.code < 500 and error.code not in (408, 429):
                        self.refused.append(f"{path} of {call.call_id}: {error.code} {error.read(500).decode(errors='replace')}")
                        return None
                except (OSError, ValueError):  # it stops, or its answer was cut off
                    pass
                self.repeated += 1
            await asyncio.sleep(0.1)

    def _post(self, url: str, body: dict[str, object]) -> dict[str, object]:
        request = urllib.request.Request(url, json.dumps(body).encode(), {
            "Content-Type": "application/json", "Authorization": f"Bearer {self._key}"})
        with DIRECT.open(request, timeout=5) as answer:
            return json.load(answer)
