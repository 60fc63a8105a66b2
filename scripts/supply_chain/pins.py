"""The versions of Swift packages: Package.swift has the direct ones, docs/dependencies.md all; SwiftPM must use exactly these."""

import json
import re

from .commands import ROOT, SupplyChainError, run
from .dependencies_page import PAGE

MANIFESTS = ["Package.swift", "benchmarks/Package.swift"]


def main():
    """Resolves every package at the version that docs/dependencies.md names; does nothing if they are already resolved so.

    A manifest says exactly which version of a direct dependency it takes. What those need in turn has no place in it.
    """
    page = PAGE.read_text()
    wanted = versions_of_page(page)
    faults = [fault for name in MANIFESTS for fault in faults_of_manifest(name, (ROOT / name).read_text(), page)]
    if faults:
        raise SupplyChainError(f"{'; '.join(faults)}. After a change of Package.swift: make dependencies, and read what has changed")
    if not (ROOT / "Package.resolved").exists() or resolved() != wanted:
        run("swift", "package", "resolve")
    for identity, version in sorted(wanted.items()):
        if resolved().get(identity, version) != version:
            run("swift", "package", "resolve", identity, "--version", version)
    found = resolved()
    different = [f"{identity} {found.get(identity, 'missing')} instead of {wanted.get(identity, 'none')}"
                 for identity in sorted({*wanted, *found}) if found.get(identity) != wanted.get(identity)]
    if different:
        raise SupplyChainError(
            f"what SwiftPM resolved is not what docs/dependencies.md has: {', '.join(different)}. Was a package updated? "
            "make dependencies, and read what has changed")
    print(f"{len(found)} Swift packages at the versions of docs/dependencies.md")


def resolved():
    pins = json.loads((ROOT / "Package.resolved").read_text())["pins"]
    return {pin["identity"]: pin["state"].get("version") for pin in pins}


def versions_of_page(page):
    """The versions of the page's first two tables, by SwiftPM's identity."""
    return versions(page.partition("## Swift packages\n")[2].partition("\n## Code of others")[0])


def versions(tables):
    return {name.lower(): version for name, version in re.findall(r"^\| `([^`]+)` \| ([^ |]+) \|", tables, re.M)}


def faults_of_manifest(name, manifest, page):
    """Packages that a manifest does not require at exactly the version in the page's first table."""
    wanted = versions(page.partition("## Swift packages\n")[2].partition("\n## ")[0])
    for url, requirement in re.findall(r'\.package\(\s*url: "([^"]+)",\s*([^)]+)\)', manifest):
        identity = url.rpartition("/")[2].removesuffix(".git").lower()
        if identity not in wanted:
            yield f"{name} has {identity}, and docs/dependencies.md does not"
        elif requirement.partition(", traits:")[0] != f'exact: "{wanted[identity]}"':
            yield f'{name} takes {identity} {requirement}, and not exact: "{wanted[identity]}" as docs/dependencies.md has it'
