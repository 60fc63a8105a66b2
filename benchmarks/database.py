"""The benchmarks' own Postgres cluster, and databases in it."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
import time
import urllib.parse
from collections.abc import Sequence

from benchmarks.processes import BenchError, Process, children, cpu_seconds, run


class Cluster:
    """A private Postgres of scripts/postgres.sh, with its settings; started when first needed."""

    def __init__(self, root: pathlib.Path, directory: pathlib.Path) -> None:
        self._script = root / "scripts" / "postgres.sh"
        self.directory = directory
        self._url: str | None = None

    @property
    def url(self) -> str:
        """A permanent database for creating others; starts the cluster if necessary."""
        if self._url is None:
            self._url = run([self._script, "start", self.directory]).strip()
        return self._url

    def url_of(self, name: str) -> str:
        return self.url.rpartition("/")[0] + "/" + name

    @property
    def postmaster_pid(self) -> int:
        return int((self.directory / "data" / "postmaster.pid").read_text().split()[0])

    @property
    def program_directory(self) -> pathlib.Path:
        """The folder of the server's own programs, such as pgbench."""
        return pathlib.Path(os.readlink(f"/proc/{self.postmaster_pid}/exe")).parent

    def version(self) -> str:
        return psql(self.url, "show server_version").split()[0]

    def stop(self) -> None:
        if self.directory.exists():
            run([self._script, "stop", self.directory])

    def start_again(self) -> None:
        """After `stop`: at the same address."""
        run([self._script, "start", self.directory, str(urllib.parse.urlsplit(self.url).port)])


@functools.cache
def psql_program() -> str:
    """psql itself: Debian's is a Perl wrapper that takes longer to start than most queries take to run."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/psql"), key=lambda path: int(path.parts[-3]))
    return os.fspath(found[-1]) if found else "psql"


def psql(url: str, *statements: str) -> str:
    """Runs statements, each in a transaction of its own; the rows, columns separated by |."""
    arguments: list[str] = [psql_program(), "-qXAt", "-v", "ON_ERROR_STOP=1", "-d", url]
    for statement in statements:
        arguments += ["-c", statement]
    return run(arguments).strip()


@dataclasses.dataclass
class Copied:
    """The time of a COPY, and the cluster's write-ahead log position at its commit."""

    seconds: float
    wal_bytes: int


class Database:
    """A newly migrated database. Leaving its `with` block drops it."""

    def __init__(self, cluster: Cluster, name: str, gateway_binary: pathlib.Path, directory: pathlib.Path) -> None:
        self.cluster = cluster
        self.name = f"bench_{name}"
        self.url = cluster.url_of(self.name)
        self.gateway_binary = gateway_binary
        """The version of its schema and of its gateways."""
        self._directory = directory
        psql(cluster.url, f"drop database if exists {self.name} with (force)", f"create database {self.name}")
        run([gateway_binary, "migrate"], env={"DATABASE_URL": self.url})
        # Calls are accepted only for apps that a gateway has served.
        psql(self.url, "select push.register_app('porteiro', 60)")

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        psql(self.cluster.url, f"drop database if exists {self.name} with (force)")

    @property
    def postmaster_pid(self) -> int:
        return self.cluster.postmaster_pid

    def sql(self, *statements: str) -> str:
        """See `psql`."""
        return psql(self.url, *statements)

    def number(self, statement: str) -> int:
        return int(self.sql(statement))

    def script(self, path: pathlib.Path, **variables: object) -> str:
        """Runs a file of SQL with psql variables."""
        arguments: list[str | os.PathLike[str]] = [psql_program(), "-qXAt", "-v", "ON_ERROR_STOP=1", "-d", self.url]
        for name, value in variables.items():
            arguments += ["-v", f"{name}={value}"]
        return run([*arguments, "-f", path]).strip()

    def copy_calls(self, path: pathlib.Path) -> Copied:
        """Commits the calls of `write_calls` by one COPY."""
        start = time.monotonic()
        wal = self.sql(copy_statement(path), WAL)
        return Copied(time.monotonic() - start, int(wal))

    def cpu_seconds(self) -> float:
        """User and system time of the whole cluster so far: the postmaster's, and its children's, alive or not."""
        while True:
            backends = children(self.postmaster_pid)
            ended = cpu_seconds(self.postmaster_pid, with_children=True)
            running = sum(cpu_seconds(pid) for pid in backends)
            # A backend that ends during the sum would be counted twice or never.
            if children(self.postmaster_pid) == backends:
                return ended + running

    def wal_bytes(self) -> int:
        """Write-ahead log of the whole cluster so far."""
        return self.number(WAL)

    # --- Deliveries ---

    def now(self) -> str:
        """The time by the database's clock."""
        return self.sql("select clock_timestamp()")

    def owed(self) -> int:
        return self.number("select count(*) from push.delivery")

    def outcomes(self, since: str = "-infinity") -> dict[str, int]:
        """Deliveries finished since a time of the database's clock, by outcome."""
        rows = self.sql(
            f"select outcome, count(*) from push.delivery_history where finished_at >= '{since}' group by outcome")
        return {outcome: int(count) for outcome, count in (row.split("|") for row in rows.splitlines())}

    def wait_until_settled(self, processes: Sequence[Process], seconds: float = 600) -> float:
        """Waits until nothing is owed and returns the seconds. Fails if a process ends or the time is up.

        One session looks, every 10 ms, in transactions of their own, which hold back no vacuum. It looks at the last
        calls first: by their key that costs next to nothing, whereas a scan would read all that has been deleted.
        """
        start = time.monotonic()
        # Without statistics of the newly filled tables, the plan would read all of them a hundred times a second.
        looking = [psql_program(), "-qX", "-v", "ON_ERROR_STOP=1", "-d", self.url, "-c", "set enable_seqscan = off", "-c", WAIT]
        with Process("wait", looking, self._directory) as wait:
            while wait.exit_status is None:
                for process in processes:
                    process.check()
                if time.monotonic() - start > seconds:
                    raise BenchError(f"{self.owed()} deliveries are still owed after {seconds:g} s")
                time.sleep(0.002)
            took = time.monotonic() - start
            if wait.exit_status != 0:
                raise BenchError(f"waiting failed: {wait.last_words()}")
        return took


def copy_statement(path: pathlib.Path) -> str:
    """psql's \\copy of a file of `write_calls`."""
    return f"\\copy push.outbox (app, kind, payload, recipients, ring_seconds) from '{path}'"


WAL = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"

WAIT = """
do $$
declare
  v_last bigint := (select max(o.id) - 1000 from push.outbox o);
begin
  loop
    if not exists (select from push.delivery d where d.outbox_id > v_last) then
      exit when not exists (select from push.delivery order by outbox_id, n limit 1);
    end if;
    commit;
    perform pg_sleep(0.01);
    commit;
  end loop;
end
$$
"""
