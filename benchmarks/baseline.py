"""The old version that the new one is compared with: the commit in baseline.txt, built for release once.

Its program is kept under the commit's id in .local/bench-baseline. BENCH_BASELINE names another program to compare with.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import tarfile
from collections.abc import Callable

from benchmarks.processes import BenchError, Process, environment

COMMIT = pathlib.Path(__file__).with_name("baseline.txt")
PATIENCE = 3_600  # seconds a build may take
# Python 3.11.2 of Debian 12 has no filters.
FILTER = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


class NoBaseline(Exception):
    """There is no old version to compare with; the message gives the reason."""


def program(root: pathlib.Path, say: Callable[[str], None]) -> pathlib.Path:
    """The old gateway's program, built now if necessary; NoBaseline if it cannot be built."""
    given = os.environ.get("BENCH_BASELINE")
    if given:
        path = pathlib.Path(given).absolute()
        if not os.access(path, os.X_OK):
            raise BenchError(f"there is no program {path}, which BENCH_BASELINE names")
        return path
    commit = recorded()
    directory = root / ".local" / "bench-baseline" / commit
    try:
        return build(root, commit, directory, ("push-gateway",), say)
    except NoBaseline as error:
        raise NoBaseline(f"{error} (benchmarks/baseline.txt)") from None


def recorded() -> str:
    """The full id in baseline.txt."""
    lines = [line.strip() for line in COMMIT.read_text().splitlines()]
    ids = [line for line in lines if line and not line.startswith("#")]
    if len(ids) != 1:
        raise BenchError(f"{COMMIT} should name one commit, and names {len(ids)}")
    return ids[0]


def build(
    root: pathlib.Path, commit: str, directory: pathlib.Path, products: tuple[str, ...], say: Callable[[str], None]
) -> pathlib.Path:
    """The first of a commit's programs: built from an archive of its files, as `make release` does, unless they are in `directory`."""
    if all(os.access(directory / product, os.X_OK) for product in products):
        return directory / products[0]
    known = subprocess.run(["git", "-C", root, "cat-file", "-e", commit + "^{commit}"], capture_output=True, check=False)
    if known.returncode != 0:
        raise NoBaseline(f"commit {commit[:9]} is not in this clone; a shallow clone gets it by: git fetch --unshallow")
    say(f"building commit {commit[:9]} for release, to compare with: several minutes, once")
    source = directory / "source"
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    archive = directory / "source.tar"
    subprocess.run(["git", "-C", root, "archive", "-o", archive, commit], check=True, env=environment())
    with tarfile.open(archive) as files:
        files.extractall(source, **FILTER)
    archive.unlink()
    for product in products:
        command = [
            os.environ.get("SWIFT") or "swift", "build", "--package-path", source, "-c", "release", "--product", product,
            "--static-swift-stdlib"]
        with Process("build", command, directory) as building:
            if building.wait(PATIENCE) != 0:
                raise NoBaseline(f"commit {commit[:9]} could not be built, see {building.output} and {building.errors}")
        (source / ".build" / "release" / product).rename(directory / product)
    shutil.rmtree(source)
    return directory / products[0]
