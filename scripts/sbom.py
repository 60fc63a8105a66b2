#!/usr/bin/env python3
"""The SBOM of push-gateway, in CycloneDX 1.6: every part of the program, with version, licence, supplier and hash.

  scripts/sbom.py [--configuration release] [--program FILE] [--output FILE]   write it, and check it
  scripts/sbom.py --check FILE [--configuration …]                             check an existing one
  scripts/sbom.py --page [--write] [--configuration debug]                     docs/dependencies.md: check it, or write it
  scripts/sbom.py --pin                                                        resolve Swift packages at the page's versions
  scripts/sbom.py --licences FOLDER [--configuration …]                        licence texts of the parts of the program

It is read from the build: the packages that SwiftPM resolved, the inputs of the linker, the shared libraries that the program
NEEDs, and their Debian packages. Then it is compared with the build: the exit code is 1 if a part of the program is missing
in the SBOM. The format's own schema is checked if pip can install cyclonedx-python-lib into .local/sbom, once.
The same build gives the same bytes: the time in the SBOM is SOURCE_DATE_EPOCH, else that of the last commit.
"""

import argparse
import json
import sys
from pathlib import Path

from supply_chain import completeness, cyclonedx, dependencies_page, licence_texts, pins, schema
from supply_chain.commands import SupplyChainError
from supply_chain.inventory import Build, inventory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configuration", default="release", choices=["release", "debug"])
    parser.add_argument("--scratch", type=Path, help="SwiftPM's folder; default: .build")
    parser.add_argument("--program", type=Path, help="the program that is shipped, if it was stripped or moved")
    parser.add_argument("--output", type=Path, default=Path(".build/push-gateway.cdx.json"))
    parser.add_argument("--check", type=Path, metavar="FILE")
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--licences", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.pin:
        pins.main()
        return
    build = Build.of(options.configuration, options.scratch, options.program)
    if options.check:
        finish(json.loads(options.check.read_text()), build, options.check)
        return
    parts = inventory(build)
    if options.page:
        dependencies_page.main(parts, options.write)
    elif options.licences:
        licence_texts.write(parts, options.licences)
    else:
        sbom = cyclonedx.document(parts)
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(cyclonedx.text(sbom))
        finish(sbom, build, options.output)


def finish(sbom, build, path):
    faults = [*completeness.faults(sbom, build)]
    verdict = schema.verdict(path)
    if verdict.faults:
        faults += verdict.faults
    print(*faults, sep="\n", end="\n" if faults else "", file=sys.stderr)
    count = len([*completeness.everything(sbom)])
    print(f"{path}: {count} components, {len(faults)} faults; {verdict.note}")
    if faults:
        raise SystemExit(1)


if __name__ == "__main__":
    try:
        main()
    except SupplyChainError as error:
        raise SystemExit(f"sbom.py: {error}")
