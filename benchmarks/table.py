"""The tables of results in docs/performance.md, each between two comments; the text between them is always replaced as a whole."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Mapping, Sequence

from benchmarks.harness import BenchError, Row, number
from benchmarks.results import Measured

HEADING = re.compile(r"\| \*\*(\w+)\*\*( \(.*\))? \| \| \| \|")
COMPARISON = "public"
"""The benchmark that has a table of its own: one line for each scenario and system."""


def update(document: pathlib.Path, measured: Mapping[str, Measured], order: Sequence[str]) -> None:
    """Writes the tables into a Markdown file that has their comments. What was not measured here keeps its rows."""
    names = [name for name in order if name != COMPARISON]
    if any(name in measured for name in names):
        replace(document, "results", lambda old: render(measured, names, sections(old)))
    if COMPARISON in measured:
        replace(document, COMPARISON, lambda _: comparison(measured[COMPARISON]))


def replace(document: pathlib.Path, name: str, new: Callable[[str], str]) -> None:
    """Replaces what stands between the two comments of this name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    text = document.read_text()
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise BenchError(f"{document} needs one line {begin} and, after it, one line {end}")
    before, rest = text.split(begin)
    old, after = rest.split(end)
    document.write_text(f"{before}{begin}\n\n{new(old)}\n{end}{after}")


def comparison(of: Measured) -> str:
    """A table of rows named BENCHMARK.SCENARIO.SYSTEM.COLUMN, whose notes are the systems' versions."""
    columns = list(dict.fromkeys((row.name.split(".", 3)[3], row.unit) for row in of.rows))
    versions = dict.fromkeys(row.note for row in of.rows if row.note)
    heads = ["scenario", "system", *(f"{column} ({unit})" if unit else column for column, unit in columns)]
    table: list[list[str]] = []
    scenarios: set[str] = set()
    for row in of.rows:
        _, scenario, system, column = row.name.split(".", 3)
        if column == columns[0][0]:
            table.append(["" if scenario in scenarios else scenario, system])
            scenarios.add(scenario)
        table[-1].append("–" if row.value is None else number(row.value))
    lines = [f"{circumstances(of)} {', '.join(versions)}.", ""]
    for cells in (heads, *table):
        lines.append("".join(f"| {cell} " if cell else "| " for cell in cells) + "|")
    lines.insert(3, "|" + "---|" * len(heads))
    return "\n".join(lines) + "\n"


def render(measured: Mapping[str, Measured], order: Sequence[str], old: Mapping[str, Sequence[str]]) -> str:
    """The machine and date of the measurements, and the table. `old`: lines of benchmarks that were measured elsewhere."""
    known = [measured[name] for name in order if name in measured]
    if not known:
        return "Nothing was measured yet.\n"
    newest = max(known, key=lambda of: of.date)
    lines = [circumstances(newest), "", "| what | measured | target | reached |", "|---|---|---|---|"]
    for name in order:
        if name in measured:
            lines.append(f"| **{name}**{aside(measured[name], newest)} | | | |")
            lines += [line(row) for row in measured[name].rows]
        else:
            lines += old.get(name, [])
    return "\n".join(lines) + "\n"


def sections(text: str) -> dict[str, list[str]]:
    """The lines of each benchmark in a table. A heading that says nothing of where and when gets what stands above the table."""
    found: dict[str, list[str]] = {}
    above = next((line for line in text.splitlines() if line and not line.startswith("|")), "").rstrip(".")
    lines: list[str] | None = None
    for each in text.splitlines():
        if heading := HEADING.fullmatch(each):
            when = heading[2] or (f" ({above})" if above else "")
            lines = found.setdefault(heading[1], [f"| **{heading[1]}**{when} | | | |"])
        elif lines is not None and each.startswith("|"):
            lines.append(each)
    return found


def circumstances(of: Measured) -> str:
    machine = of.machine
    return (f"{machine['cores']} cores, {machine['memory_gib']} GiB, {machine['cpu']}, Linux {machine['kernel']}, "
            f"Postgres {machine['postgres']}; {of.date}, commit {of.commit}.")


def aside(of: Measured, newest: Measured) -> str:
    """Notes about benchmarks that were measured under other conditions than the newest one."""
    told = []
    if (of.date, of.commit) != (newest.date, newest.commit):
        told.append(f"{of.date}, commit {of.commit}")
    if of.machine != newest.machine:
        told.append(circumstances(of).partition(";")[0])
    return f" ({'; '.join(told)})" if told else ""


def line(row: Row) -> str:
    what = row.name.partition(".")[2].replace("_", " ") + (f" ({row.note})" if row.note else "")
    measured = "not measured" if row.value is None else f"{number(row.value)} {row.unit}".strip()
    if len(row.samples) > 1:
        measured += f" ({number(min(row.samples))}–{number(max(row.samples))})"
    target = f"{'≥' if row.target[0] == '>=' else '≤'} {number(row.target[1])} {row.unit}".strip() if row.target else ""
    reached = {None: "", True: "yes", False: "**no**"}[row.is_reached]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in (what, measured, target, reached)) + " |"
