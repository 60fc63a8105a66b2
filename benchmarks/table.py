"""The table of results in docs/performance.md, between two comments; the text between them is always replaced as a whole."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping, Sequence

from benchmarks.harness import BenchError, Row, number
from benchmarks.results import Measured

HEADING = re.compile(r"\| \*\*(\w+)\*\*( \(.*\))? \| \| \| \|")
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def update(document: pathlib.Path, measured: Mapping[str, Measured], order: Sequence[str]) -> None:
    """Writes the table into a Markdown file that has the two comments. What was not measured here keeps its rows."""
    text = document.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BenchError(f"{document} needs one line {BEGIN} and, after it, one line {END}")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    document.write_text(f"{before}{BEGIN}\n\n{render(measured, order, sections(old))}\n{END}{after}")


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
