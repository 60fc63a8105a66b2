"""The versions of Swift packages: docs/dependencies.md has them, and SwiftPM is told to take these and no newer ones."""

import json
import re

from .commands import ROOT, SupplyChainError, run
from .dependencies_page import PAGE


def main():
    """Resolves every package at the version that docs/dependencies.md names; does nothing where that is so already."""
    wanted = versions_of_page(PAGE.read_text())
    if not (ROOT / "Package.resolved").exists():
        run("swift", "package", "resolve")
    for identity, version in sorted(wanted.items()):
        if resolved().get(identity, version) != version:
            run("swift", "package", "resolve", identity, "--version", version)
    found = resolved()
    different = [f"{identity} {found.get(identity, 'missing')} instead of {wanted.get(identity, 'none')}"
                 for identity in sorted({*wanted, *found}) if found.get(identity) != wanted.get(identity)]
    if different:
        raise SupplyChainError(
            f"what SwiftPM resolved is not what docs/dependencies.md has: {', '.join(different)}. If Package.swift has "
            "changed: make dependencies, and read what has changed")
    print(f"{len(found)} Swift packages at the versions of docs/dependencies.md")


def resolved():
    pins = json.loads((ROOT / "Package.resolved").read_text())["pins"]
    return {pin["identity"]: pin["state"].get("version") for pin in pins}


def versions_of_page(page):
    """The versions of the page's first two tables, by SwiftPM's identity."""
    part = page.partition("## Swift packages\n")[2].partition("\n## Code of others")[0]
    return {name.lower(): version for name, version in re.findall(r"^\| `([^`]+)` \| ([^ |]+) \|", part, re.M)}
