"""A proxy between one gateway and Postgres: it forwards bytes, and on request cuts, swallows or delays them.

A link is one connection of the gateway with its counterpart to the server. What a disturbance did to a link stays with
it: a link some of whose bytes are gone can never be used again, as after a fail-over of a network device.
"""

from __future__ import annotations

import asyncio
import enum
import socket
import struct


class Mode(enum.Enum):
    PASS = "pass"
    HOLE = "hole"
    """Bytes are swallowed in both directions, connections stay open."""
    MUTE = "mute"
    """Requests arrive, their answers are swallowed."""
    DELAY = "delay"
    """Bytes are held back, and arrive later: also those of connections that the gateway has given up meanwhile."""


class _Link:
    """One connection of the gateway."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = (reader, writer)
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.is_holed = False
        """It swallows everything for good, until the gateway closes it."""
        self.is_muted = False
        """An answer is missing."""

    async def run(self) -> None:
        try:
            if self._proxy.mode is Mode.DELAY:
                await self._proxy.is_passing.wait()
            if self._proxy.mode is Mode.HOLE:
                self.is_holed = True
            else:
                self._server = await asyncio.open_connection("127.0.0.1", self._proxy.target)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._forward())
                if self._server is not None:
                    pumps.create_task(self._return())
        except* (OSError, _Ended):
            pass
        finally:
            self.cut()

    def cut(self) -> None:
        """Resets both connections at once."""
        for side in (self._client, self._server):
            if side is not None:
                _reset(side[1])

    async def _forward(self) -> None:
        """From the gateway to the server."""
        while data := await self._client[0].read(65536):
            if self._proxy.mode is Mode.DELAY:
                await self._proxy.is_passing.wait()
            if self.is_holed or self._proxy.mode is Mode.HOLE:
                self.is_holed = True
                continue
            if self._server is not None:
                self._server[1].write(data)
                await self._server[1].drain()
        if self._server is not None and not self._server[1].is_closing():
            self._server[1].write_eof()  # what was delayed still arrives
            await asyncio.sleep(0.05)
        raise _Ended

    async def _return(self) -> None:
        """From the server to the gateway."""
        assert self._server is not None
        while data := await self._server[0].read(65536):
            if self._proxy.mode is Mode.DELAY:
                await self._proxy.is_passing.wait()
            if self.is_holed or self._proxy.mode is Mode.HOLE:
                self.is_holed = True
            elif self.is_muted or self._proxy.mode is Mode.MUTE:
                self.is_muted = True
            else:
                self._client[1].write(data)
                await self._client[1].drain()
        if self.is_holed:
            await asyncio.Event().wait()  # the gateway does not hear of the end, either
        raise _Ended


class _Ended(Exception):
    """One side has closed."""


class Proxy:
    """Listens on a port of 127.0.0.1 for one gateway."""

    def __init__(self, target: int) -> None:
        self.target = target
        """Port of the server that new connections go to: the name that moves."""
        self.mode = Mode.PASS
        self.is_passing = asyncio.Event()
        """Cleared while bytes are delayed."""
        self.is_passing.set()
        self.port = 0
        self._links: dict[_Link, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def disturb(self, mode: Mode) -> None:
        self.mode = mode
        if mode is Mode.DELAY:
            self.is_passing.clear()

    def heal(self) -> None:
        """Links that were muted are reset, for their answers are gone; those in a black hole stay there."""
        self.mode = Mode.PASS
        self.is_passing.set()
        for link in list(self._links):
            if link.is_muted and not link.is_holed:
                link.cut()

    def cut(self, only: int | None = None) -> int:
        """Resets all connections, or one of them, whose number is `only` modulo their count; how many."""
        links = list(self._links)
        if only is not None and links:
            links = [links[only % len(links)]]
        for link in links:
            link.cut()
        return len(links)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        task = asyncio.current_task()
        assert task is not None
        self._links[link] = None
        self._tasks.add(task)
        try:
            await link.run()
        except asyncio.CancelledError:
            link.cut()
        finally:
            self._links.pop(link, None)
            self._tasks.discard(task)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with RST rather than FIN."""
    connection = writer.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
