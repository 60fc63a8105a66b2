"""The packages that SwiftPM resolved, their modules in the program, and third-party code in these modules."""

import json
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from .commands import ROOT, SupplyChainError, run, sha256_of_tree
from .licences import licence_of_text


@dataclass
class SwiftPackage:
    identity: str
    name: str
    url: str
    version: str
    revision: str
    folder: Path
    dependencies: list
    is_direct: bool
    modules: list = field(default_factory=list)
    files: list = field(default_factory=list)  # The sources of those modules.
    bundled: list = field(default_factory=list)

    @property
    def licence(self):
        return next((found for text in self.licence_files() if (found := licence_of_text(read(text)))), None)

    @property
    def digest(self):
        return sha256_of_tree(self.folder)

    def licence_files(self):
        """The text of the licence and the notices, which must accompany the program."""
        return sorted((path for path in self.folder.iterdir() if re.match(r"(LICEN[CS]E|COPYING|NOTICE)", path.name)),
                      key=lambda path: (path.name.startswith("NOTICE"), path.name))


@dataclass
class Bundled:
    """Third-party code in a module of a package."""
    name: str
    version: str
    licence: str
    supplier: str
    purl: str
    module: str
    folder: Path

    @property
    def digest(self):
        return sha256_of_tree(self.folder)


def read(path):
    return Path(path).read_text(errors="replace")


def found(pattern, path):
    """The first group of a pattern in a file; with several, joined by dots."""
    match = re.search(pattern, read(path), re.S) if path.exists() else None
    return ".".join(match.groups()) if match else None


def boringssl(folder):
    return found(r"at revision ([0-9a-f]{40})", folder / "hash.txt")


# Modules in C or C++ with third-party code: name, how the version is read, licence, supplier, purl without version.
# The licences are those in the sources' headers; Tests/supply checks them.
FOREIGN = {
    # Its sources contain no version; the package's changelog names the revision copied last.
    "CYaml": ("libyaml", lambda folder: found(
        r"libyaml/compare/\w+\.\.\.(\w+)", folder.parents[1] / "CHANGELOG.md"),
        "MIT", "Kirill Simonov and the YAML project", "pkg:github/yaml/libyaml"),
    "CNIOLLHTTP": ("llhttp", lambda folder: found(
        r"VERSION_MAJOR (\d+).*VERSION_MINOR (\d+).*VERSION_PATCH (\d+)", folder / "include/c_nio_llhttp.h"),
        "MIT", "Fedor Indutny and the Node.js project", "pkg:github/nodejs/llhttp"),
    "CNIOSHA1": ("FreeBSD sha1.c", lambda folder: found(
        r"sha1\.c,v ([0-9.]+)", folder / "c_nio_sha1.c"),
        "BSD-3-Clause", "The FreeBSD project", "pkg:github/freebsd/freebsd-src"),
    "CNIOExtrasZlib": ("zlib", lambda folder: found(
        r"(\d+\.\d[\w.-]*)", folder / "vendored-zlib.version"),
        "Zlib", "Jean-loup Gailly and Mark Adler", "pkg:github/madler/zlib"),
    "CNIOBoringSSL": ("BoringSSL", boringssl, "Apache-2.0 AND MIT", "Google", "pkg:generic/boringssl"),
    "CCryptoBoringSSL": ("BoringSSL", boringssl, "Apache-2.0 AND MIT", "Google", "pkg:generic/boringssl"),
    "CXKCP": ("XKCP", lambda folder: found(r"-g([0-9a-f]{7,40})\)", folder / "vendored-sources.txt"),
              "CC0-1.0", "The Keccak Team", "pkg:github/XKCP/XKCP"),
}

# C modules of the package itself: shims for the platform, covered by its licence.
OWN = {
    "CAsyncHTTPClient", "CCryptoBoringSSLShims", "CNIOAtomics", "CNIOBoringSSLShims", "CNIODarwin", "CNIOFreeBSD",
    "CNIOLinux", "CNIOOpenBSD", "CNIOPosix", "CNIOWASI", "CNIOWindows", "CSystem", "CXKCPShims", "_AtomicsShims",
    "_CWASI", "_NumericsShims",
}


@cache
def resolved_tree(scratch):
    """The tree of packages that SwiftPM resolved, as JSON."""
    return json.loads(run("swift", "package", "--ignore-lock", "--scratch-path", scratch, "show-dependencies", "--format", "json"))


def swift_packages(scratch, bin_path, program="push-gateway"):
    """Every package that SwiftPM resolved, sorted by identity.

    `scratch` is the folder of checkouts (`.build`), `bin_path` the one the program was built in.
    """
    pins = {pin["identity"]: pin for pin in json.loads(read(ROOT / "Package.resolved"))["pins"]}
    packages = {}

    def visit(node, is_direct):
        for child in node["dependencies"]:
            identity = child["identity"]
            pin = pins.get(identity)
            if pin is None:
                raise SupplyChainError(f"{identity} was resolved but is not in Package.resolved: swift package resolve")
            if identity not in packages:
                packages[identity] = SwiftPackage(
                    identity=identity, name=child["url"].removesuffix(".git").rpartition("/")[2], url=child["url"].removesuffix(".git"),
                    version=child["version"], revision=pin["state"]["revision"], folder=Path(child["path"]),
                    dependencies=sorted({grandchild["identity"] for grandchild in child["dependencies"]}),
                    is_direct=False)
                visit(child, False)
            packages[identity].is_direct |= is_direct

    visit(resolved_tree(scratch), True)
    for package in packages.values():
        expect_untouched(package)
    attach_modules(packages, scratch, bin_path, program)
    return [packages[identity] for identity in sorted(packages)]


def expect_untouched(package):
    """A checkout that was edited is not the package that its version names."""
    head = run("git", "-C", package.folder, "rev-parse", "HEAD").strip()
    changed = run("git", "-C", package.folder, "status", "--porcelain", "--untracked-files=all").strip()
    if head != package.revision or changed:
        raise SupplyChainError(f"{package.folder} is not {package.version} as pinned: swift package reset")


def linked_modules(bin_path, program="push-gateway"):
    """The modules whose object files are linked into the program: what the linker was given."""
    objects = (Path(bin_path) / f"{program}.product/Objects.LinkFileList").read_text().split()
    return sorted({match[1] for path in objects if (match := re.search(r"/(\w+)\.build/", path.strip("'\"")))})


def attach_modules(packages, scratch, bin_path, program):
    folders = {package.folder.name: package for package in packages.values()}
    sources = module_sources(scratch, bin_path)
    for module in linked_modules(bin_path, program):
        files = sources.get(module, [])
        if not files:
            raise SupplyChainError(f"the build does not say where module {module} comes from: build again")
        package = next((folders[match[1]] for file in files if (match := re.search(r"/checkouts/([^/]+)/", file))), None)
        if package is None:
            continue  # Ours.
        package.modules.append(module)
        package.files += files
        if not files[0].endswith(".swift") and module not in OWN:
            package.bundled.append(bundled(module, package, files))


def bundled(module, package, files):
    if module not in FOREIGN:
        raise SupplyChainError(
            f"{package.identity} has a module in C, {module}, that nobody has looked at: put it into FOREIGN or OWN in "
            "scripts/supply_chain/swift_packages.py")
    name, version_of, licence, supplier, purl = FOREIGN[module]
    within = Path(files[0].split(f"/checkouts/{package.folder.name}/", 1)[1]).parts
    folder = package.folder.joinpath(*within[: within.index(module) + 1] if module in within else ())
    version = version_of(folder)
    if version is None:
        raise SupplyChainError(f"the version of {name} in {folder} can't be read: see FOREIGN in swift_packages.py")
    return Bundled(name, version, licence, supplier, purl, module, folder)


def module_sources(scratch, bin_path):
    """The source files of every module, from the build's own description; generated ones left out."""
    configuration = Path(bin_path).resolve().name
    text = read(Path(scratch) / f"{configuration}.yaml")
    sources = {}
    swift = re.finditer(r'^  "C\.(\w+)-[^"\n]*\.module":\n    tool: \w+\n    inputs: \[(.*)\]', text, re.M)
    c = re.finditer(r'^  "[^"\n]*/(\w+)\.build/[^"\n]*\.o":\n    tool: clang\n    inputs: \[(.*)\]', text, re.M)
    for module, inputs in [match.groups() for found_in in (swift, c) for match in found_in]:
        files = [file for file in re.findall(r'"([^"]*)"', inputs) if re.search(r"\.(swift|c|cc|cpp|S|s|m|mm)$", file)]
        sources.setdefault(module, []).extend(file for file in files if ".build/" not in file.split("/checkouts/")[-1])
    return sources
