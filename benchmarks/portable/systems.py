"""The systems that are compared, and the virtual environment of each."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys

from benchmarks.processes import BenchError, run


@dataclasses.dataclass(frozen=True)
class System:
    name: str
    adapter: str
    """The module in `adapters`."""
    packages: tuple[str, ...]


OURS = System("push-gateway", "push_gateway", ("psycopg[binary]==3.3.9",))
SYSTEMS = (
    OURS,
    System("awa", "awa", ("awa-pg==0.6.9",)),
    System("procrastinate", "procrastinate", ("procrastinate==3.10.0", "psycopg[binary]==3.3.9")),
    System("pgqueuer", "pgqueuer", ("pgqueuer==1.6.0", "asyncpg==0.32.0")),
    System("absurd", "absurd", ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.9")),
)


@dataclasses.dataclass(frozen=True)
class Installed:
    """A system whose adapter can be started."""

    system: System
    python: pathlib.Path

    @property
    def command(self) -> list[str]:
        return [os.fspath(self.python), "-B", "-m", f"benchmarks.portable.adapters.{self.system.adapter}"]


def install(system: System, directory: pathlib.Path) -> Installed:
    """Makes its environment if it is not there; raises BenchError if its packages cannot be had."""
    folder = directory / "python" / system.name
    stamp = folder / "packages"
    python = folder / "bin" / "python"
    if not stamp.exists() or stamp.read_text().split() != list(system.packages):
        run([sys.executable, "-m", "venv", "--clear", folder])
        done = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *system.packages], capture_output=True, text=True,
            check=False)
        if done.returncode != 0:
            raise BenchError(f"pip cannot install {' '.join(system.packages)}: {''.join(done.stderr.strip().splitlines()[-1:])}")
        stamp.write_text("\n".join(system.packages))
    return Installed(system, python)
