"""docs/dependencies.md: its tables are generated from the build, its reasons are written by hand; an error if they differ."""

import difflib
import re

from .commands import ROOT, SupplyChainError
from .cyclonedx import distribution

PAGE = ROOT / "docs/dependencies.md"
DISTRIBUTION = "debian-12"

INTRODUCTION = """# Dependencies

This page lists everything that the program `push-gateway` contains or loads: name, version, licence, and why. The reasons are
written by hand. `make dependencies` writes everything else from a build, and `make test` fails if this page and the build differ.
`Package.swift` requires exactly these versions of direct dependencies. Tests and releases use exactly these versions of indirect
dependencies (`scripts/sbom.py --pin`). The [SBOM](releases.md#sbom) contains the same list with hashes, suppliers and every module.

The licences are those that the packages declare. Every release contains the licences of the Swift packages and of the Swift
toolchain, in `licences/`. Those of Debian are in `/usr/share/doc/PACKAGE/copyright` on the machine that runs the program.
"""

COST = """## What they cost to build

The table counts the source files of each direct dependency that a clean build compiles for the program: those of the linked modules.
Indirect dependencies have one row together, because most of them serve several packages.
"""


def main(inventory, is_written):
    """Writes the page, or compares it with the build; raises SupplyChainError when a row or a reason is missing."""
    before = PAGE.read_text() if PAGE.exists() else ""
    reasons = reasons_of(before)
    after, missing = render(inventory, before, reasons)
    if is_written:
        PAGE.write_text(after)
    elif before != after:
        diff = "\n".join(difflib.unified_diff(
            before.splitlines(), after.splitlines(), "docs/dependencies.md", "this build", lineterm="", n=0))
        raise SupplyChainError(f"docs/dependencies.md is not what is in the program: make dependencies\n{diff}")
    if missing:
        raise SupplyChainError(f"docs/dependencies.md does not say why we use {', '.join(missing)}: write it into the last column")
    print(f"docs/dependencies.md: {after.count(chr(10) + '| ') - after.count('|---')} rows, as the build has them")


def reasons_of(page):
    """The last column of every table that ends with *why*, by the name in the first one."""
    reasons, is_why = {}, False
    for line in page.splitlines():
        row = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        is_why = row[-1] == "why" or is_why if row else False
        if is_why and len(row) > 2:
            reasons[row[0].strip("`")] = row[-1]
    return reasons


def render(inventory, before, reasons):
    """The page, and the names without a reason."""
    packages = {package.identity: package for package in inventory.packages}
    users = {identity: sorted(other.name for other in packages.values() if identity in other.dependencies)
             for identity in packages}
    missing = []

    def reason(name):
        text = reasons.get(name, "")
        if not text or text == "?":
            missing.append(name)
        return text or "?"

    direct = [[f"`{package.name}`", package.version, licence_of(package), reason(package.name)]
              for package in inventory.packages if package.is_direct]
    indirect = [[f"`{package.name}`", package.version, licence_of(package), "yes" if package.modules else "no",
                 ", ".join(users[package.identity])]
                for package in inventory.packages if not package.is_direct]
    bundled = [[code.name, code.version[:12], code.licence, f"`{package.name}`, module `{code.module}`"]
               for package in inventory.packages for code in package.bundled]
    toolchain = [[f"`{part.name}`", licence_of(part), reason(part.name)] for part in inventory.toolchain]
    if any(part.name == "swift-foundation-icu" for part in inventory.toolchain):
        toolchain.append(["ICU", "Unicode-3.0", reason("ICU")])
    sections = [
        INTRODUCTION,
        "## Swift packages\n", table(["package", "version", "licence", "why"], direct),
        "## Swift packages that those need\n\nSome of these are not in the program: SwiftPM resolves every package that a "
        "package names, even for products that are not used here.\n",
        table(["package", "version", "licence", "in the program", "for"], indirect),
        "## Code of others inside of Swift packages\n\nOnly code that is in the program is listed.\n",
        table(["code", "version or revision", "licence", "in"], bundled),
        COST, table(["package", "Swift", "C and assembler"], cost(inventory.packages)),
        "## The Swift toolchain\n\nThese parts are linked statically in a release. Their version is that of the compiler.\n",
        table(["part", "licence", "why"], toolchain),
        "## Debian packages\n\nThese are shared libraries of Debian 12; they are not part of a release. Security updates of "
        "Debian take effect when the gateway is restarted.\n",
    ]
    if distribution() == DISTRIBUTION:
        sections += debian_tables(inventory, before, reason)
    else:
        kept = re.search(r"^## Debian packages\n.*?\n(\| .*)", before, re.M | re.S)
        sections.append(kept[1] if kept else "")
    return "\n".join(section.rstrip("\n") + "\n" for section in sections), missing


def cost(packages):
    """The number of files of each direct dependency, and its own dependencies."""
    def row(name, part):
        files = [file for package in part for file in package.files]
        swift = sum(file.endswith(".swift") for file in files)
        return [name, str(swift), str(len(files) - swift)]

    for package in packages:
        if package.is_direct:
            yield row(f"`{package.name}`", [package])
    yield row("all that those need", [package for package in packages if not package.is_direct])


def debian_tables(inventory, before, reason):
    """The packages that the program or the Swift runtime needs, then their own dependencies."""
    runtime = [file for part in inventory.toolchain for file in part.files]
    asked = {*inventory.needed, *(name for file in runtime for name in file.needs)}
    packages = [package for package in inventory.debian if not package.is_linked_statically_only]
    direct = [package for package in packages if any(file.name in asked for file in package.files)]
    users = {package.name: sorted(
        other.name for other in packages if other is not package
        and {file.name for file in package.files} & {name for file in other.files for name in file.needs})
        for package in packages}
    return [
        table(["package", "version", "licence", "why"],
              [[f"`{package.name}`", series(package, before), licence_of(package), reason(package.name)] for package in direct]),
        "### What those need\n",
        table(["package", "version", "licence", "for"],
              [[f"`{package.name}`", series(package, before), licence_of(package), ", ".join(users[package.name])]
               for package in packages if package not in direct]),
    ]


def licence_of(part):
    if part.licence is None:
        raise SupplyChainError(f"the licence of {part.name} is not known: see scripts/supply_chain/licences.py")
    return part.licence


def series(package, before):
    """The upstream version, without the part that changes with Debian's security updates: the page's text if it still matches."""
    upstream = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", package.version)[1].split(".")
    match = re.search(rf"^\| `{re.escape(package.name)}` \| ([\d.]+) \|", before, re.M)
    if match and upstream[: match[1].count(".") + 1] == match[1].split("."):
        return match[1]
    return ".".join(upstream[:2])


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("|---" * len(head) + "|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines) + "\n"
