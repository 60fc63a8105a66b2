"""All parts of a program, read from its build."""

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from . import system_libraries
from .commands import ROOT, SupplyChainError, run
from .swift_packages import swift_packages


@dataclass
class Build:
    """The paths of a build: its program, SwiftPM's folder, and the linker's dependency file, if there is one."""
    program: Path
    scratch: Path
    bin_path: Path
    link_dependencies: Path = None

    @classmethod
    def of(cls, configuration, scratch=None, program=None):
        scratch = Path(scratch or ROOT / ".build").absolute()
        bin_path = (scratch / configuration).resolve()
        program = Path(program or bin_path / "push-gateway").absolute()
        if not program.exists():
            raise SupplyChainError(f"there is no {program}: build it first")
        links = scratch / f"{program.name}.link.d"
        return cls(program, scratch, bin_path, links if configuration == "release" and links.exists() else None)


@dataclass
class Inventory:
    version: str
    revision: str
    timestamp: int
    program: Path
    needed: list
    packages: list
    debian: list
    toolchain: list
    architecture: str


def inventory(build):
    files = system_libraries.system_files(build.program, build.link_dependencies)
    toolchain = system_libraries.toolchain_parts(files)
    if not toolchain:
        raise SupplyChainError(
            "the Swift runtime is linked statically, and the list of what was linked is missing: build with "
            f"-Xlinker --dependency-file=.build/{build.program.name}.link.d (as `make sbom` does)")
    return Inventory(
        version=version(), revision=run("git", "rev-parse", "HEAD").strip(), timestamp=timestamp(),
        program=build.program, needed=sorted(system_libraries.needed(build.program)),
        packages=swift_packages(build.scratch, build.bin_path, build.program.name), debian=system_libraries.debian_packages(files),
        toolchain=toolchain, architecture=platform.machine())


def version():
    """The output of `push-gateway --version`."""
    text = (ROOT / "Sources/Settings/GatewayVersion.swift").read_text()
    return re.search(r'current = "([^"]+)"', text)[1]


def timestamp():
    """SOURCE_DATE_EPOCH in seconds, or the time of the last commit if it is not set."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or run("git", "log", "-1", "--format=%ct").strip())
