"""Two Postgres servers of the soak's own, a primary and an asynchronous standby, that crash and change places."""

from __future__ import annotations

import asyncio
import os
import pathlib
import pwd
import shutil
import signal

from benchmarks.processes import BenchError, children
from Tests.soak.wire import Connection, ConnectionLost, PostgresError

SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
port = {port}
max_connections = 100
shared_buffers = 128MB
max_wal_size = 1GB
wal_keep_size = 1GB
max_wal_senders = 8
hot_standby = on
wal_retrieve_retry_interval = 200ms
autovacuum_naptime = 5s
random_page_cost = 1.1
log_line_prefix = '%m [%p] %a '
log_min_error_statement = panic
"""


class Server:
    """One data directory and the server that runs on it, on a port that stays the same."""

    def __init__(self, name: str, directory: pathlib.Path, port: int) -> None:
        self.name = name
        self.port = port
        self.data = directory / name
        self.log = directory / f"{name}.log"
        self._bin = _program_directory()
        self._user = _server_user()

    async def create(self) -> None:
        """Makes an empty cluster and starts it."""
        await self._prepare()
        await self._run("initdb", "-D", self.data, "-U", "push", "-A", "trust", "-E", "UTF8", "--locale=C",
                        "--no-instructions")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write("include 'soak.conf'\n")
        self._configure()
        await self.start()

    async def clone(self, primary: Server) -> None:
        """Becomes a standby of `primary`, whatever it was before."""
        await self._prepare()
        await self._run("pg_basebackup", "-h", "127.0.0.1", "-p", str(primary.port), "-U", "push", "-D", self.data,
                        "-R", "-X", "stream", "-c", "fast")
        self._configure()
        await self.start()

    async def start(self) -> None:
        await self._run("pg_ctl", "start", "-w", "-t", "60", "-s", "-D", self.data, "-l", self.log)

    async def stop(self, mode: str) -> None:
        """`mode`: fast, or immediate, which is a crash: what was committed without waiting for the disk may be lost."""
        if self._is_running():
            await self._run("pg_ctl", "stop", "-w", "-t", "60", "-s", "-m", mode, "-D", self.data)

    async def promote(self) -> None:
        await self._run("pg_ctl", "promote", "-w", "-t", "60", "-s", "-D", self.data)

    def kill_backend(self, number: int) -> str:
        """SIGKILL to the session of a gateway, or another process; the postmaster then restarts all. What it was."""
        named = [(pid, _title(pid)) for pid in children(self._postmaster())]
        sessions = [entry for entry in named if "push push 127.0.0.1" in entry[1]] or named
        if not sessions:
            raise BenchError(f"Postgres {self.name} has no processes")
        pid, title = sessions[number % len(sessions)]
        os.kill(pid, signal.SIGKILL)
        return title.split("(")[0].strip()

    async def wait_until_open(self, seconds: float = 60) -> None:
        """Returns once it accepts writes."""
        limit = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                connection = await Connection.open(self.port, "postgres", timeout=1)
                try:
                    if (await connection.query("select pg_is_in_recovery()"))[0][0] == "f":
                        return
                finally:
                    connection.close()
            except (ConnectionLost, PostgresError):
                pass
            if asyncio.get_running_loop().time() > limit:
                raise BenchError(f"Postgres {self.name} accepts no connections, see {self.log}")
            await asyncio.sleep(0.05)

    def _is_running(self) -> bool:
        """The process that the pid file names may be another one by now, if the machine was restarted."""
        try:
            return str(self.data) in _title(self._postmaster())
        except (OSError, ValueError, IndexError):
            return False

    def _postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    async def _prepare(self) -> None:
        """An empty directory that belongs to the server's user."""
        await asyncio.to_thread(shutil.rmtree, self.data, ignore_errors=True)
        self.data.mkdir(parents=True, mode=0o700)
        self.log.touch()
        if self._user is not None:
            for path in (self.data, self.log):
                shutil.chown(path, self._user, self._user)

    def _configure(self) -> None:
        path = self.data / "soak.conf"
        path.write_text(SETTINGS.format(port=self.port))
        if self._user is not None:
            shutil.chown(path, self._user, self._user)

    async def _run(self, program: str, *arguments: str | os.PathLike[str]) -> None:
        command = [os.fspath(self._bin / program), *(os.fspath(argument) for argument in arguments)]
        if self._user is not None:
            command = ["runuser", "-u", self._user, "--", *command]
        with (self.log.parent / "postgres-programs.log").open("ab") as output:
            child = await asyncio.create_subprocess_exec(
                *command, cwd="/", stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True)
            try:
                status = await child.wait()
            except asyncio.CancelledError:
                await child.wait()  # so that a later stop finds all processes that it started
                raise
            if status != 0:
                raise BenchError(f"{program} failed for Postgres {self.name}, see {output.name} and {self.log}")


class Pair:
    """The primary, and the standby that can take its place."""

    def __init__(self, directory: pathlib.Path, ports: tuple[int, int]) -> None:
        self.primary = Server("postgres-a", directory, ports[0])
        self.standby = Server("postgres-b", directory, ports[1])
        self.has_standby = False
        """It streams, and may be promoted."""

    async def create(self) -> None:
        for server in (self.primary, self.standby):
            await server.stop("immediate")  # of a run that was killed
        await self.primary.create()
        connection = await Connection.open(self.primary.port, "postgres")
        await connection.query("create database push")
        connection.close()

    async def make_standby(self) -> None:
        """Makes the standby anew and waits until it streams."""
        self.has_standby = False
        await self.standby.stop("immediate")
        await self.standby.clone(self.primary)
        while not await self._streams():
            await asyncio.sleep(0.2)
        self.has_standby = True

    async def crash(self) -> None:
        """The primary ends without a checkpoint and is started again."""
        await self.primary.stop("immediate")
        await self.primary.start()

    async def fail_over(self) -> None:
        """The primary is gone, the standby takes its place. There is no standby until `make_standby`."""
        self.has_standby = False
        await self.primary.stop("immediate")
        await self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    async def stop(self) -> None:
        for server in (self.standby, self.primary):
            try:
                await server.stop("fast")
            except BenchError:
                await server.stop("immediate")

    async def _streams(self) -> bool:
        try:
            connection = await Connection.open(self.primary.port, timeout=1)
            try:
                rows = await connection.query("select 1 from pg_stat_replication where state = 'streaming'")
                return bool(rows)
            finally:
                connection.close()
        except (ConnectionLost, PostgresError):
            return False


def _title(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _program_directory() -> pathlib.Path:
    """The server's programs: the newest version Debian has installed, else those in PATH."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    if initdb is None:
        raise BenchError("no Postgres server found: install it, for example with: apt-get install postgresql")
    return pathlib.Path(initdb).parent


def _server_user() -> str | None:
    """Whom the server runs as: Postgres refuses root. None: ourselves."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "push"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    raise BenchError("Postgres does not run as root, and there is no user postgres")
