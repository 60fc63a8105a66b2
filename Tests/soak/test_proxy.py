"""What the proxy does to a connection, with a server that answers each line with itself in capitals."""

from __future__ import annotations

import asyncio
import unittest

from Tests.soak.proxy import Mode, Proxy


class ProxyTests(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.proxy = Proxy(self.server.sockets[0].getsockname()[1])
        await self.proxy.start()

    async def asyncTearDown(self) -> None:
        await self.proxy.stop()
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.heard.put_nowait(line)
                writer.write(line.upper())
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.proxy.port)
        self.addCleanup(writer.close)
        writer.write(b"hello\n")
        self.assertEqual(await within(reader.readline()), b"HELLO\n")
        self.assertEqual(await within(self.heard.get()), b"hello\n")
        return reader, writer

    async def test_a_cut_resets_the_connection(self) -> None:
        reader, _ = await self.connect()
        self.assertEqual(self.proxy.cut(), 1)
        with self.assertRaises(ConnectionResetError):
            await within(reader.readline())

    async def test_a_cut_may_hit_one_of_several(self) -> None:
        _, (reader, writer) = await self.connect(), await self.connect()
        self.assertEqual(self.proxy.cut(only=0), 1)
        writer.write(b"still\n")
        self.assertEqual(await within(reader.readline()), b"STILL\n")

    async def test_a_connection_never_leaves_a_black_hole(self) -> None:
        reader, writer = await self.connect()
        self.proxy.disturb(Mode.HOLE)
        writer.write(b"swallowed\n")
        await self.nothing_comes(reader)
        self.proxy.heal()
        writer.write(b"swallowed, too\n")
        await self.nothing_comes(reader)
        self.assertTrue(self.heard.empty())
        await self.connect()  # another one works

    async def test_a_muted_request_arrives_and_its_connection_is_reset_later(self) -> None:
        reader, writer = await self.connect()
        self.proxy.disturb(Mode.MUTE)
        writer.write(b"asked\n")
        self.assertEqual(await within(self.heard.get()), b"asked\n")
        await self.nothing_comes(reader)
        self.proxy.heal()
        with self.assertRaises(ConnectionResetError):
            await within(reader.readline())

    async def test_a_delayed_request_arrives_although_it_was_given_up(self) -> None:
        reader, writer = await self.connect()
        self.proxy.disturb(Mode.DELAY)
        writer.write(b"late\n")
        await self.nothing_comes(reader)
        self.assertTrue(self.heard.empty())
        writer.close()
        self.proxy.heal()
        self.assertEqual(await within(self.heard.get()), b"late\n")

    async def nothing_comes(self, reader: asyncio.StreamReader) -> None:
        with self.assertRaises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)


async def within(work):
    return await asyncio.wait_for(work, 5)


if __name__ == "__main__":
    unittest.main()
