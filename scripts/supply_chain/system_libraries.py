"""Parts of the system in the program: shared libraries, files that were linked into it, and their packages."""

import json
import re
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .commands import SupplyChainError, run, sha256
from .licences import licence_of_debian


@dataclass
class SystemFile:
    name: str
    path: str
    is_static: bool
    needs: list = field(default_factory=list)

    @property
    def digest(self):
        return sha256(self.path)


@dataclass
class DebianPackage:
    name: str
    version: str
    architecture: str
    source: str
    source_version: str
    supplier: str
    files: list = field(default_factory=list)
    targets: list = field(default_factory=list)

    @property
    def licence(self):
        copyright_file = Path("/usr/share/doc") / self.name / "copyright"
        if not copyright_file.exists():
            raise SupplyChainError(f"there is no {copyright_file}: dpkg was told to leave out documentation; install "
                                   f"{self.name} with it")
        return licence_of_debian(self.source, copyright_file.read_text(errors="replace"))

    @property
    def is_linked_statically_only(self):
        return all(file.is_static for file in self.files)


@cache
def needed(path):
    """The shared libraries that an ELF file needs: its NEEDED entries."""
    return re.findall(r"\(NEEDED\)\s+Shared library: \[([^]]+)\]", run("readelf", "-dW", path))


@cache
def loaded(program):
    """The libraries that the loader loads for a program, indirect ones included: name and path."""
    output = run("ldd", program)
    missing = re.findall(r"^\s*(\S+) => not found", output, re.M)
    if missing:
        raise SupplyChainError(f"{program} needs {', '.join(missing)}, which this machine lacks: scripts/setup.sh")
    pairs = re.findall(r"^\s*(\S+)(?: => (\S+))? \(0x[0-9a-f]+\)", output, re.M)
    return {Path(name).name: path or name for name, path in pairs if path or name.startswith("/")}


@cache
def toolchain_folder():
    """The folder `usr` of the Swift toolchain."""
    swift = shutil.which("swift")
    if swift is None:
        raise SupplyChainError("there is no swift in PATH")
    return Path(json.loads(run("swift", "-print-target-info"))["paths"]["runtimeResourcePath"]).resolve().parents[1]


def is_of_toolchain(path):
    return Path(path).resolve().is_relative_to(toolchain_folder())


def link_inputs(file):
    """The archives and object files of the system and of the toolchain that were linked into the program.

    `file` is what the linker writes for `--dependency-file`. Shared libraries and our own objects are left out; so are
    members of archives, which gold lists by their bare names beside the archive.
    """
    text = Path(file).read_text().split("\n\n")[0].replace("\\\n", " ")
    paths = {Path(path).resolve() for path in text.split(":", 1)[1].split() if path.startswith("/")}
    return sorted(str(path) for path in paths if path.suffix in (".a", ".o") and ".build/" not in str(path))


def system_files(program, link_dependencies=None):
    """Every file of the system and the toolchain that the program is made of or loads, sorted by name."""
    libraries = loaded(program)
    files = [SystemFile(name, str(Path(path).resolve()), False, [soname for soname in needed(path)])
             for name, path in libraries.items()]
    if link_dependencies:
        files += [SystemFile(Path(path).name, path, True) for path in link_inputs(link_dependencies)]
    return sorted(files, key=lambda file: (file.name, file.path))


def owners(paths):
    """The Debian package of every path; usr-merged systems list some of them without `/usr`."""
    spellings = {}
    for path in paths:
        for spelling in (path, path.removeprefix("/usr"), "/usr" + path):
            spellings[spelling] = path
    found = {}
    for line in run("dpkg-query", "-S", *sorted(spellings), check=False).splitlines():
        names, _, spelling = line.rpartition(": ")
        if spelling in spellings and not names.startswith("diversion"):
            found[spellings[spelling]] = names.split(",")[0].split(":")[0]
    return found


def debian_packages(files):
    """The Debian packages of the files, sorted by name; files of the toolchain are left out."""
    files = [file for file in files if not is_of_toolchain(file.path)]
    owner = owners([file.path for file in files])
    strays = sorted(file.path for file in files if file.path not in owner)
    if strays:
        raise SupplyChainError(f"no Debian package has {', '.join(strays)}: what is it, and whose?")
    fields = "${Package}\\t${Version}\\t${Architecture}\\t${source:Package}\\t${source:Version}\\t${Maintainer}\\n"
    packages = {}
    for line in run("dpkg-query", "-W", "-f", fields, *sorted(set(owner.values()))).splitlines():
        package = DebianPackage(*line.split("\t"))
        packages[package.name] = package
    for file in files:
        packages[owner[file.path]].files.append(file)
    attach_targets(packages)
    return [packages[name] for name in sorted(packages)]


@dataclass
class SystemTarget:
    """A system library of Package.swift: a target, and the libraries that it links."""
    name: str
    libraries: list


@cache
def package_description():
    """Package.swift as SwiftPM reads it."""
    return json.loads(run("swift", "package", "--ignore-lock", "dump-package"))


@cache
def system_targets():
    """The system libraries of Package.swift: targets found through pkg-config, and libraries named to the linker."""
    targets = []
    for target in package_description()["targets"]:
        libraries = []
        if target["type"] == "system":
            flags = run("pkg-config", "--libs-only-l", target.get("pkgConfig") or target["name"])
            libraries = re.findall(r"-l(\S+)", flags)
        for setting in target["settings"]:
            libraries += [kind["_0"] for name, kind in setting["kind"].items() if name == "linkedLibrary"]
        if libraries:
            targets.append(SystemTarget(target["name"], sorted(libraries)))
    return sorted(targets, key=lambda target: target.name)


def is_library(file, library):
    """Whether `-lLIBRARY` means this file."""
    return re.match(rf"lib{re.escape(library)}\.(so(\.|$)|a$)", file) is not None


def attach_targets(packages):
    for target in system_targets():
        for package in packages.values():
            if any(is_library(file.name, library) for file in package.files for library in target.libraries):
                package.targets.append(target.name)


# --- The Swift toolchain ---

# The projects of the toolchain and their libraries: the first matching pattern counts. All have the toolchain's licence.
TOOLCHAIN_PARTS = [
    ("swift-foundation-icu", r"lib_FoundationICU\."),
    ("swift-foundation", r"lib(FoundationEssentials|FoundationInternationalization|_Foundation\w+)\."),
    ("swift-corelibs-foundation", r"lib(Foundation\w*|CoreFoundation|_CF\w+)\."),
    ("swift-corelibs-libdispatch", r"lib(dispatch|BlocksRuntime|swiftDispatch)\."),
    ("swift", r""),
]


@dataclass
class ToolchainPart:
    """One project of the Swift toolchain whose libraries are in the program, or are loaded by it."""
    name: str
    version: str
    licence: str
    files: list

    @property
    def icu_version(self):
        """The version of the ICU that swift-foundation-icu carries; None for the other parts."""
        for file in self.files:
            if file.name.startswith("lib_FoundationICU."):
                match = re.search(rb"icudt(\d+)l", Path(file.path).read_bytes())
                if match is None:
                    raise SupplyChainError(f"the version of ICU in {file.path} can't be read")
                return match[1].decode()
        return None


def toolchain_parts(files):
    """The parts of the toolchain that the program holds or loads, sorted by name."""
    from .licences import licence_of_text

    version = re.search(r"Swift version (\S+)", run("swift", "--version"))[1]
    text = toolchain_folder() / "share/swift/LICENSE.txt"
    licence = licence_of_text(text.read_text()) if text.exists() else None
    parts = {}
    for file in files:
        if is_of_toolchain(file.path):
            name = next(name for name, pattern in TOOLCHAIN_PARTS if re.match(pattern, file.name))
            parts.setdefault(name, ToolchainPart(name, version, licence, [])).files.append(file)
    return [parts[name] for name in sorted(parts)]
