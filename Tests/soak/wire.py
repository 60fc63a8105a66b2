"""A client of Postgres, as small as the soak needs it: trust authentication, text values, one statement at a time.

psql would do, too, but a lost connection, an error of the server and a timeout must be told apart here: only the last
answer of a COMMIT says whether a call is committed.
"""

from __future__ import annotations

import asyncio
import struct

Row = tuple[str | None, ...]


class ConnectionLost(Exception):
    """The connection broke, or the server did not answer in time: what was asked for may have happened or not."""


class PostgresError(Exception):
    """The server refused a statement."""

    def __init__(self, sqlstate: str, message: str) -> None:
        super().__init__(f"{sqlstate}: {message}")
        self.sqlstate = sqlstate

    @property
    def is_outage(self) -> bool:
        """The server is starting, stopping or recovering: the same statement may succeed a moment later."""
        return self.sqlstate[:2] in ("08", "57") or self.sqlstate in ("25006", "53300", "40001", "40P01", "55P03")


class Connection:
    """One session, whose statements run one after the other. It is of no use any more once `ConnectionLost` was raised."""

    def __init__(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.port = port
        self.is_closed = False
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, port: int, database: str = "push", user: str = "push", timeout: float = 5,
                   host: str = "127.0.0.1") -> Connection:
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(host, port)
                connection = cls(port, reader, writer)
                try:
                    await connection._start(user, database)
                except BaseException:
                    connection.close()
                    raise
                return connection
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            raise ConnectionLost(str(error) or type(error).__name__) from None

    async def query(self, statement: str, *parameters: object, timeout: float = 10) -> list[Row]:
        """Runs one statement, `$1` and so on standing for `parameters`; its rows."""
        message = _message(b"P", b"\0" + statement.encode() + b"\0" + struct.pack("!h", 0))
        values = b"".join(_value(parameter) for parameter in parameters)
        message += _message(b"B", b"\0\0" + struct.pack("!hh", 0, len(parameters)) + values + struct.pack("!h", 0))
        message += _message(b"E", b"\0" + struct.pack("!i", 0)) + _message(b"S", b"")
        try:
            async with asyncio.timeout(timeout), self._turn:
                self._writer.write(message)
                await self._writer.drain()
                return await self._answer()
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.close()
            raise ConnectionLost(str(error) or type(error).__name__) from None

    def close(self) -> None:
        self.is_closed = True
        self._writer.close()

    # --- Messages ---

    async def _start(self, user: str, database: str) -> None:
        options = b"".join(part.encode() + b"\0" for part in (
            "user", user, "database", database, "application_name", "soak backend", "client_encoding", "UTF8"))
        body = struct.pack("!i", 196608) + options + b"\0"
        self._writer.write(struct.pack("!i", len(body) + 4) + body)
        await self._answer()

    async def _answer(self) -> list[Row]:
        """Everything up to ReadyForQuery."""
        rows: list[Row] = []
        error: PostgresError | None = None
        while True:
            head = await self._reader.readexactly(5)
            body = await self._reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
            match head[:1]:
                case b"D":
                    rows.append(_row(body))
                case b"E":
                    error = _error(body)
                    if error.sqlstate.startswith("57P") or error.sqlstate in ("53300", "3D000"):
                        self.close()
                        raise error  # the server hangs up without ReadyForQuery
                case b"R" if struct.unpack("!i", body[:4])[0] != 0:
                    raise PostgresError("28000", "the server asks for a password")
                case b"Z":
                    if error is not None:
                        raise error
                    return rows


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _value(parameter: object) -> bytes:
    if parameter is None:
        return struct.pack("!i", -1)
    text = str(parameter).encode()
    return struct.pack("!i", len(text)) + text


def _row(body: bytes) -> Row:
    values: list[str | None] = []
    offset = 2
    for _ in range(struct.unpack("!h", body[:2])[0]):
        length = struct.unpack("!i", body[offset:offset + 4])[0]
        offset += 4
        if length < 0:
            values.append(None)
        else:
            values.append(body[offset:offset + length].decode())
            offset += length
    return tuple(values)


def _error(body: bytes) -> PostgresError:
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    return PostgresError(fields.get(b"C", "?????"), fields.get(b"M", ""))
