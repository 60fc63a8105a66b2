#!/usr/bin/env python3
"""Prints debian/changelog, made from CHANGELOG.md.

  scripts/debian_changelog.py 'NAME <ADDRESS>'      who has built the package

The first entry is the version in Sources/Settings/GatewayVersion.swift, of the last commit's time (or SOURCE_DATE_EPOCH): it has the
changes below [Unreleased], or below that version if it has a section. Older sections, each with its date, follow.
"""

import os
import re
import subprocess
import sys
import textwrap
from datetime import datetime, timezone
from email.utils import format_datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECTION = re.compile(r"^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$", re.M)


def main():
    if len(sys.argv) != 2 or "<" not in sys.argv[1]:
        raise SystemExit(__doc__)
    print("\n".join(entry(*each, sys.argv[1]) for each in entries()), end="")


def entries():
    """(version, time, Markdown) of each version, the newest first."""
    current = re.search(r'current = "([^"]+)"', (ROOT / "Sources/Settings/GatewayVersion.swift").read_text())[1]
    parts = SECTION.split((ROOT / "CHANGELOG.md").read_text())
    sections = [*zip(parts[1::3], parts[2::3], parts[3::3])]
    versions = [(version, day, text) for version, day, text in sections if version not in ("Unreleased", current)]
    newest = [text for version, _, text in sections if version in ("Unreleased", current)]
    seconds = os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(
        ["git", "log", "-1", "--format=%ct"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    yield current, datetime.fromtimestamp(int(seconds), timezone.utc), "\n".join(newest)
    for version, day, text in versions:
        yield version, datetime.fromisoformat(f"{day}T00:00:00+00:00"), text


def entry(version, time, markdown, maintainer):
    lines = [f"push-gateway ({version}) bookworm; urgency=medium", ""]
    for heading, items in headings(markdown):
        lines.append(f"  [ {heading} ]")
        for item in items:
            lines += textwrap.wrap(item, 78, initial_indent="  * ", subsequent_indent="    ", break_long_words=False,
                                   break_on_hyphens=False)
        lines.append("")
    lines += [f" -- {maintainer}  {format_datetime(time)}", ""]
    return "\n".join(lines)


def headings(markdown):
    """(heading, items as plain text) of a section."""
    for part in re.split(r"^### ", markdown, flags=re.M)[1:]:
        heading, _, body = part.partition("\n")
        items = re.split(r"^- ", body, flags=re.M)[1:]
        if items:
            yield heading.strip(), [plain(item) for item in items]


def plain(markdown):
    text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(markdown.split()))
    return re.sub(r"\*\*|`", "", text)


if __name__ == "__main__":
    main()
