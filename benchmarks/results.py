"""results.json: the latest rows of each benchmark, with its date, machine and commit."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import time
from collections.abc import Sequence

from benchmarks.harness import Row


@dataclasses.dataclass
class Measured:
    """The results of one benchmark."""

    benchmark: str
    date: str
    commit: str
    machine: dict[str, object]
    rows: list[Row]


def file(directory: pathlib.Path, small: bool) -> pathlib.Path:
    """Small runs prove nothing and are stored separately."""
    return directory / ("results-small.json" if small else "results.json")


def load(path: pathlib.Path) -> dict[str, Measured]:
    if not path.exists():
        return {}
    return {
        name: Measured(name, of["date"], of["commit"], of["machine"], [_row(row) for row in of["rows"]])
        for name, of in json.loads(path.read_text()).items()
    }


def save(path: pathlib.Path, benchmark: str, commit: str, machine: dict[str, object], rows: Sequence[Row]) -> None:
    """Replaces the results of one benchmark, and keeps those of the others."""
    all = load(path)
    all[benchmark] = Measured(benchmark, time.strftime("%Y-%m-%d"), commit, machine, list(rows))
    text = json.dumps({name: _plain(of) for name, of in all.items()}, indent=2, ensure_ascii=False)
    partial = path.with_suffix(".partial")
    partial.write_text(text + "\n")
    partial.replace(path)


def _plain(measured: Measured) -> dict[str, object]:
    plain = dataclasses.asdict(measured)
    del plain["benchmark"]
    return plain


def _row(plain: dict) -> Row:
    target = plain["target"]
    return Row(**{**plain, "target": (target[0], target[1]) if target else None})
