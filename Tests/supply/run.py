#!/usr/bin/env python3
"""The tests of the supply chain: the SBOM, docs/dependencies.md, the packing of releases, the version of Swift.

  Tests/supply/run.py            needs a debug build (swift build) and no release build; a few seconds

The SBOM of the debug build is made and must be complete; then it is spoilt in every way that matters, and every time the
check must say what is missing. Ends with "N passed, N failed"; non-zero when any failed.
"""

import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
os.chdir(ROOT)

from supply_chain import completeness, cyclonedx, dependencies_page, schema, swift_packages, system_libraries  # noqa: E402
from supply_chain.commands import SupplyChainError  # noqa: E402
from supply_chain.inventory import Build, inventory  # noqa: E402
from supply_chain.licences import licence_of_debian, licence_of_text  # noqa: E402
from supply_chain.pins import MANIFESTS, faults_of_manifest, versions_of_page  # noqa: E402

results = []
DIGEST = "0123456789abcdef" * 4


def check(what, holds, otherwise=""):
    results.append((what, holds, otherwise))


def main():
    with tempfile.TemporaryDirectory() as work:
        build = Build.of("debug")
        parts = inventory(build)
        sbom = cyclonedx.document(parts)
        complete(sbom, build, Path(work))
        spoilt(sbom, build)
        second_tls_library(build, Path(work))
        static_parts(Path(work))
        licences()
        own_licence(sbom)
        page(parts)
        packing(Path(work))
        swift_versions()
    for what, holds, otherwise in results:
        print(f"{'ok' if holds else 'not ok'} - {what}{'' if holds else f': {otherwise}'}")
    failed = sum(not holds for _, holds, _ in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    raise SystemExit(1 if failed else 0)


def complete(sbom, build, work):
    found = completeness.faults(sbom, build)
    check("the SBOM of this build is complete", found == [], "; ".join(found))
    again = cyclonedx.document(inventory(build))
    check("made again, it has the same bytes", cyclonedx.text(sbom) == cyclonedx.text(again))
    file = work / "sbom.json"
    file.write_text(cyclonedx.text(sbom))
    verdict = schema.verdict(file)
    if verdict.note.startswith("not held"):
        print(f"skipped - CycloneDX's schema: {verdict.note}")
        return
    check("it is valid by CycloneDX's schema", not verdict.faults, "; ".join(verdict.faults))
    file.write_text(cyclonedx.text({**sbom, "components": [{"name": "without a type"}]}))
    check("the schema's check can fail", schema.verdict(file).faults != [])


def spoilt(sbom, build):
    """Takes one thing away at a time; the check must name it."""
    def without(test):
        spoiled = copy.deepcopy(sbom)
        spoiled["components"] = [component for component in spoiled["components"] if not test(component)]
        return spoiled

    def refused(what, spoiled, words):
        found = completeness.faults(spoiled, build)
        check(f"refused: {what}", any(words in fault for fault in found), "; ".join(found) or "nothing was found")

    packages = [component["bom-ref"] for component in sbom["components"] if component["bom-ref"].startswith("swift:")]
    for ref in packages:
        identity = ref.removeprefix("swift:").partition("@")[0]
        refused(f"no {identity}", without(lambda component: component["bom-ref"] == ref), f"{identity} ")
    for name in system_libraries.needed(build.program):
        holder = next(component["bom-ref"] for component in sbom["components"]
                      if any(child["name"] == name for child in component.get("components", [])))
        refused(f"no {name}", without(lambda component: component["bom-ref"] == holder), f"{name} is NEEDED")
    for target in system_libraries.system_targets():
        spoiled = copy.deepcopy(sbom)
        for component in spoiled["components"]:
            component["properties"] = [entry for entry in component.get("properties", []) if entry["value"] != target.name]
        refused(f"no {target.name} of Package.swift", spoiled, f"{target.name} of Package.swift is missing")
    refused("a library of a library is missing", without(lambda component: component["bom-ref"] == "deb:libgnutls30"),
            "libgnutls.so.30 would be loaded")

    def changed(change):
        spoiled = copy.deepcopy(sbom)
        change(next(component for component in spoiled["components"] if component["bom-ref"].startswith("swift:swift-nio@")))
        return spoiled

    refused("a package that is in the program as one that is not", changed(lambda nio: nio.update(scope="excluded")), "its scope")
    refused("a package without a licence", changed(lambda nio: nio.update(licenses=[])), "has no licenses")
    refused("a package without a hash", changed(lambda nio: nio.pop("hashes")), "has no hashes")
    refused("a module that nobody has", changed(lambda nio: nio.update(properties=[])), "module NIOCore was linked")
    refused("a package under another reference", changed(lambda nio: nio.update({"bom-ref": "swift:swift-nio@0"})), "swift-nio ")
    for component in sbom["components"]:
        if component["bom-ref"] == "deb:libssl3":
            spoiled = copy.deepcopy(sbom)
            library = next(part for part in spoiled["components"] if part["bom-ref"] == "deb:libssl3")["components"][0]
            library["hashes"][0]["content"] = DIGEST
            refused("a library with another hash", spoiled, "has another hash")


def second_tls_library(build, work):
    """OpenSSL is the one TLS library. A copy of BoringSSL that comes in with swift-nio-ssl, which SwiftPM resolves for Hummingbird,
    is found by what the linker was given, and named with its revision."""
    linked = swift_packages.linked_modules(build.bin_path)
    check("the program has one TLS library", not [module for module in linked if "BoringSSL" in module], str(linked))
    bin_path = work / "debug"
    (bin_path / "push-gateway.product").mkdir(parents=True)
    listed = (build.bin_path / "push-gateway.product/Objects.LinkFileList").read_text()
    (bin_path / "push-gateway.product/Objects.LinkFileList").write_text(
        listed + f"\n{build.bin_path}/CNIOBoringSSL.build/crypto/mem.cc.o\n{build.bin_path}/NIOSSL.build/NIOSSL.swift.o\n")
    packages = {package.identity: package for package in swift_packages.swift_packages(build.scratch, bin_path)}
    nio_ssl = packages.get("swift-nio-ssl")
    check("swift-nio-ssl in the program brings BoringSSL into the SBOM",
          nio_ssl is not None and [code.name for code in nio_ssl.bundled] == ["BoringSSL"]
          and len(nio_ssl.bundled[0].version) == 40, str(nio_ssl))
    known = swift_packages.FOREIGN.pop("CNIOBoringSSL")
    try:
        swift_packages.swift_packages(build.scratch, bin_path)
        check("a module in C that nobody has looked at is refused", False)
    except SupplyChainError as error:
        check("a module in C that nobody has looked at is refused", "CNIOBoringSSL" in str(error), str(error))
    finally:
        swift_packages.FOREIGN["CNIOBoringSSL"] = known


def static_parts(work):
    """What the linker's list of inputs says, as gold and lld write it."""
    listed = work / "push-gateway.link.d"
    listed.write_text("/x/push-gateway: \\\n  /usr/lib/libx.a \\\n  member.o \\\n  /x/.build/release/Gateway.build/A.swift.o \\\n"
                      "  /usr/lib/crti.o \\\n  /usr/lib/liby.so\n\n/usr/lib/libz.a:\n\n")
    found = system_libraries.link_inputs(listed)
    check("archives and start files that were linked are found, and nothing of ours is", found == ["/usr/lib/crti.o", "/usr/lib/libx.a"],
          str(found))


def licences():
    check("a text that is no known licence has none", licence_of_text("All rights reserved.") is None)
    check("Swift's exception is not left out", licence_of_text(
        "Apache License\nVersion 2.0, January 2004 … ## Runtime Library Exception to the Apache 2.0 License") ==
        "Apache-2.0 WITH Swift-exception")
    text = "Format: https://www.debian.org/x\n\nFiles: *\nCopyright: a\nLicense: GPL-2+ or Expat\n\nFiles: debian/*\nLicense: ISC\n"
    check("Debian's machine-readable copyright", licence_of_debian("x", text) == "GPL-2.0-or-later OR MIT")
    check("a copyright file that was read by hand, and is another now", licence_of_debian("glibc", "MIT") is None)


def own_licence(sbom):
    """The project's own: the text as Debian has it, what the SBOM says, and whether tarball and image carry it."""
    text, original = Path("LICENSE").read_bytes(), Path("/usr/share/common-licenses/Apache-2.0")
    check("LICENSE is the text of Apache 2.0", not original.exists() or text == original.read_bytes())
    check("NOTICE has the project's name and its authors",
          Path("NOTICE").read_text().startswith("push-gateway\nCopyright 2026 The push-gateway authors\n"))
    found = sbom["metadata"]["component"].get("licenses")
    check("the SBOM says it of the program", found == cyclonedx.licences("Apache-2.0"), str(found))
    staging = next(line for line in Path("scripts/release.sh").read_text().splitlines() if line.startswith("cp -R "))
    check("the tarball carries LICENSE and NOTICE", {"LICENSE", "NOTICE"} <= {*staging.split()}, staging)
    dockerfile = Path("deploy/Dockerfile").read_text().partition(" AS base\n")[2]
    seen = Path("deploy/Dockerfile.dockerignore").read_text().splitlines()
    check("the image carries LICENSE and NOTICE",
          "\nCOPY LICENSE NOTICE /usr/share/doc/push-gateway/\n" in dockerfile and {"!LICENSE", "!NOTICE"} <= {*seen})


def page(parts):
    before = dependencies_page.PAGE.read_text()

    def fault(text):
        with tempfile.TemporaryDirectory() as folder:
            original = dependencies_page.PAGE
            dependencies_page.PAGE = Path(folder) / "dependencies.md"
            dependencies_page.PAGE.write_text(text)
            try:
                with open(os.devnull, "w") as null:
                    stdout, sys.stdout = sys.stdout, null
                    try:
                        dependencies_page.main(parts, False)
                    finally:
                        sys.stdout = stdout
                return ""
            except SupplyChainError as error:
                return str(error)
            finally:
                dependencies_page.PAGE = original

    found = fault(before)
    check("docs/dependencies.md is what this build has", found == "", found)
    lines = before.splitlines(keepends=True)
    row = next(line for line in lines if line.startswith("| `swift-log` |"))
    version = row.split("|")[2].strip()
    for what, text, words in [
        ("a row is missing", before.replace(row, ""), "`swift-log`"),
        ("another version", before.replace(row, row.replace(version, "0.0.1")), "0.0.1"),
        ("another licence", before.replace(row, row.replace("Apache-2.0", "MIT")), "MIT"),
        ("no reason", before.replace(row, f"{row.rpartition(' | ')[0]} | ? |\n"), "why"),
        ("a row too many", before.replace(row, row + "| `swift-gone` | 1.0.0 | MIT | it was |\n"), "swift-gone"),
    ]:
        found = fault(text)
        check(f"docs/dependencies.md is refused: {what}", words in found, found or "it was not")
    pins = {pin["identity"]: pin["state"]["version"] for pin in json.loads(Path("Package.resolved").read_text())["pins"]}
    check("the page pins every Swift package", versions_of_page(before) == pins)
    for name in MANIFESTS:
        manifest = Path(name).read_text()
        check(f"{name} takes the versions of the page", not [*faults_of_manifest(name, manifest, before)],
              "; ".join(faults_of_manifest(name, manifest, before)))
        exact = f'exact: "{version}"'
        for what, requirement in [("a range", f'from: "{version}"'), ("another version", 'exact: "0.0.1"')]:
            found = "; ".join(faults_of_manifest(name, manifest.replace(exact, requirement), before))
            check(f"{name} is refused: {what}", "swift-log" in found, found or "it was not")


def packing(work):
    """Two folders with the same files, made in another order, at another time, with other rights."""
    archives = []
    orders = [([*"hijklmnopabcdefg", "z/y"], 0o022), (["z/y", *"ponmlkjihgfedcba"], 0o077)]
    for number, (names, mask) in enumerate(orders):
        before = os.umask(mask)
        folder = work / f"pack{number}" / "name"
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)
            os.utime(folder / name, (number * 1000, number * 1000))
        (folder / "a").chmod(0o700 if number else 0o755)
        os.umask(before)
        archive = work / f"pack{number}" / f"{'x' * number}.tar.gz"
        subprocess.run(["scripts/pack.sh", folder, archive], check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        archives.append(archive)
    first, second = (archive.read_bytes() for archive in archives)
    check("the same files are packed into the same bytes", first == second)
    listed = subprocess.run(["tar", "-tzf", archives[0]], capture_output=True, text=True, check=True).stdout.split()
    check("names are packed in order, whatever the file system's is",
          listed == ["name/", *(f"name/{name}" for name in "abcdefghijklmnop"), "name/z/", "name/z/y"], " ".join(listed))
    (work / "pack1/name/a").write_text("A")
    subprocess.run(["scripts/pack.sh", work / "pack1/name", archives[1]], check=True,
                   env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
    check("other contents are packed into other bytes", archives[1].read_bytes() != first)


def swift_versions():
    dockerfile = Path("deploy/Dockerfile").read_text()
    image = next(line for line in dockerfile.splitlines() if line.startswith("ARG SWIFT_IMAGE=")).partition("=")[2]
    workflows = [Path(f".github/workflows/{name}.yml").read_text() for name in ("ci", "release")]
    check("the workflows build with the Swift of the Dockerfile", all(f"container: {image}\n" in text for text in workflows), image)


if __name__ == "__main__":
    if shutil.which("dpkg-query") is None:
        raise SystemExit("skipped - not a Debian system\n0 passed, 0 failed")
    main()
