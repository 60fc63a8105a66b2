"""Child processes: started in sessions of their own, watched, measured through /proc, and stopped by their id."""

from __future__ import annotations

import os
import pathlib
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

HERTZ = os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    """A failure: the benchmark has no result."""


def run(
    arguments: Sequence[str | os.PathLike[str]], *, env: Mapping[str, str] | None = None, text: str | None = None
) -> str:
    """Runs a program to its end and returns its output; raises BenchError with its last lines if it fails."""
    done = subprocess.run(
        [os.fspath(argument) for argument in arguments], env=environment(env), input=text, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=None if text is not None else subprocess.DEVNULL,
        start_new_session=True)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip()
        raise BenchError(f"{pathlib.Path(arguments[0]).name} failed with {done.returncode}: {words[-2000:]}")
    return done.stdout


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without variables that would configure a gateway or a Postgres client by accident, plus `extra`."""
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PUSH_GATEWAY", "PG")) and name != "DATABASE_URL"}
    return {**kept, **(extra or {})}


class Process:
    """A running child. Leaving its `with` block stops it: TERM, then KILL after ten seconds.

    A Ctrl-C in the terminal does not reach it (it has a session of its own): the program that started it stops it, in order.
    """

    def __init__(
        self, name: str, arguments: Sequence[str | os.PathLike[str]], directory: pathlib.Path, *,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Starts `arguments`; what it prints goes to NAME.out and NAME.err in `directory`."""
        self.name = name
        directory.mkdir(parents=True, exist_ok=True)
        self.output = directory / f"{name}.out"
        self.errors = directory / f"{name}.err"
        with self.output.open("wb") as output, self.errors.open("wb") as errors:
            self._child = subprocess.Popen(
                [os.fspath(argument) for argument in arguments], env=environment(env), stdin=subprocess.DEVNULL,
                stdout=output, stderr=errors, start_new_session=True)
        self.pid: int = self._child.pid

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # --- Watching ---

    @property
    def exit_status(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    def check(self) -> None:
        """Fails if it has ended without being stopped."""
        if self.exit_status is not None:
            raise BenchError(f"{self.name} ended with {self.exit_status}: {self.last_words()}")

    def last_words(self) -> str:
        return self.errors.read_text(errors="replace").strip()[-2000:]

    def wait_until(self, is_ready: Callable[[], bool], what: str, seconds: float = 30, every: float = 0.05) -> None:
        """Waits for a condition that this process brings about."""
        limit = time.monotonic() + seconds
        while not is_ready():
            self.check()
            if time.monotonic() > limit:
                raise BenchError(f"{self.name}: {what} did not happen within {seconds:g} s: {self.last_words()}")
            time.sleep(every)

    def wait(self, seconds: float) -> int:
        """Waits for its end; its exit status."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self.name} still runs after {seconds:g} s") from None

    # --- Measuring ---

    def cpu_seconds(self) -> float:
        """User and system time of all its threads, those that have ended among them."""
        return cpu_seconds(self.pid)

    def rss_bytes(self) -> int:
        return self._status("VmRSS")

    def peak_rss_bytes(self) -> int:
        """The maximum since it began, or since `reset_peak_rss`."""
        return self._status("VmHWM")

    def reset_peak_rss(self) -> None:
        pathlib.Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def _status(self, key: str) -> int:
        self.check()
        for line in pathlib.Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
        raise BenchError(f"/proc/{self.pid}/status has no {key}")

    # --- Ending ---

    def kill(self) -> None:
        """Kills it, and what it started in turn, if it still runs."""
        if self.exit_status is None:
            os.killpg(self.pid, signal.SIGKILL)
            self._child.wait()

    def stop(self) -> None:
        """Stops it, and what it started in turn, if it still runs."""
        if self.exit_status is not None:
            return
        os.killpg(self.pid, signal.SIGTERM)
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            self._child.wait()


def cpu_seconds(pid: int, *, with_children: bool = False) -> float:
    """User and system time of a process; `with_children`: and of children it has waited for. 0 when it is gone."""
    fields = stat_fields(pid)
    # utime, stime, cutime, cstime are the fields 14 to 17 of proc(5), counted from 1; the first two are cut off.
    return sum(int(field) for field in fields[11:15 if with_children else 13]) / HERTZ if fields else 0.0


def children_cpu_seconds() -> float:
    """User and system time of all children of ours that were waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def stat_fields(pid: int) -> list[str]:
    """/proc/PID/stat from the state on; empty when there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def children(pid: int) -> list[int]:
    """The processes whose parent is `pid`, sorted."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            fields = stat_fields(int(entry.name))
            if fields and int(fields[1]) == pid:
                found.append(int(entry.name))
    return sorted(found)
