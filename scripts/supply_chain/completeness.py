"""Checks that an SBOM is complete, by comparing it with the build and not with the inventory that it was made from."""

import json
import re
from functools import cache
from pathlib import Path

from . import system_libraries
from .commands import ROOT
from .commands import sha256 as sha256_of_file
from .swift_packages import linked_modules

sha256 = cache(sha256_of_file)


def faults(sbom, build):
    """All faults of an SBOM as sentences; empty if it is complete."""
    return [*shape_faults(sbom), *package_faults(sbom, build), *library_faults(sbom, build), *target_faults(sbom)]


def package_faults(sbom, build):
    """Every package that SwiftPM resolved, every module that was linked."""
    swift = {component["bom-ref"]: component for component in sbom["components"]
             if component["bom-ref"].startswith("swift:")}
    modules = {name for component in everything(sbom) for name in values(component, "module")}
    for pin in json.loads((ROOT / "Package.resolved").read_text())["pins"]:
        ref = f"swift:{pin['identity']}@{pin['state']['version']}"
        if ref not in swift:
            yield f"{pin['identity']} {pin['state']['version']} was resolved, and is missing"
        elif values(swift[ref], "revision") != [pin["state"]["revision"]]:
            yield f"{pin['identity']} has another revision than the one that was resolved"
    ours = {target["name"] for target in targets()}
    for module in linked_modules(build.bin_path, build.program.name):
        if module not in ours and module not in modules:
            yield f"module {module} was linked, and no component has it"
        elif module in modules:
            for component in swift.values():
                if module in values(component, "module") and component["scope"] != "required":
                    yield f"{component['name']} is in the program, and its scope says that it is not"


def library_faults(sbom, build):
    """Every library that the program or one of its libraries needs, and every file that was linked into it."""
    files = {component["name"]: component for component in everything(sbom) if component["type"] == "file"}
    direct = set(next((entry["dependsOn"] for entry in sbom["dependencies"]
                       if entry["ref"] == sbom["metadata"]["component"]["bom-ref"]), []))
    libraries = system_libraries.loaded(build.program)
    for name in system_libraries.needed(build.program):
        if name not in files:
            yield f"{name} is NEEDED by the program, and is missing"
        elif files[name]["bom-ref"].rpartition("/")[0] not in direct:
            yield f"the program does not depend on {name}, which it NEEDs"
    for name, path in libraries.items():
        if name not in files:
            yield f"{name} would be loaded, and is missing"
        elif files[name]["hashes"][0]["content"] != sha256(path):
            yield f"{name} has another hash than {path}"
    for path in system_libraries.link_inputs(build.link_dependencies) if build.link_dependencies else []:
        if Path(path).name not in files:
            yield f"{path} was linked, and is missing"


def target_faults(sbom):
    """Every library that Package.swift takes from the system."""
    named = {name for component in sbom["components"] for name in values(component, "target")}
    files = [component["name"] for component in everything(sbom) if component["type"] == "file"]
    for target in system_libraries.system_targets():
        if target.name not in named:
            yield f"{target.name} of Package.swift is missing"
        for library in target.libraries:
            if not any(system_libraries.is_library(file, library) for file in files):
                yield f"-l{library} of {target.name} in Package.swift is missing"


def shape_faults(sbom):
    """Required members of every component, and valid references. Checked even without the format's schema."""
    for name, value in (("bomFormat", "CycloneDX"), ("specVersion", "1.6"), ("version", 1)):
        if sbom.get(name) != value:
            yield f"{name} is not {value}"
    if not re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", sbom.get("serialNumber", "")):
        yield "serialNumber is not a UUID"
    refs = [sbom["metadata"]["component"]["bom-ref"]]
    for component in everything(sbom):
        refs.append(component["bom-ref"])
        wanted = ["type", "name", "bom-ref"]
        if component["type"] == "file":
            wanted += ["hashes"]
        else:
            wanted += ["version", "licenses", "supplier", "purl", "scope"]
            wanted += ["components" if re.match(r"(deb|swift-toolchain):[^/]+$", component["bom-ref"]) else "hashes"]
        for field in wanted:
            if not component.get(field):
                yield f"{component['name']} has no {field}"
        for entry in component.get("hashes", []):
            if entry["alg"] != "SHA-256" or not re.fullmatch(r"[0-9a-f]{64}", entry["content"]):
                yield f"{component['name']} has a hash that is none"
    for ref in sorted({ref for ref in refs if refs.count(ref) > 1}):
        yield f"{ref} is there twice"
    listed = {entry["ref"]: entry.get("dependsOn", []) for entry in sbom["dependencies"]}
    for ref in sorted(set(refs) - set(listed)):
        yield f"nothing is said of what {ref} depends on"
    for ref, needs in sorted(listed.items()):
        for need in [ref, *needs]:
            if need not in refs:
                yield f"{need} is a dependency, and no component"


def targets():
    from .system_libraries import package_description

    return package_description()["targets"]


def everything(sbom):
    """All components, including nested ones."""
    for component in sbom["components"]:
        yield component
        yield from component.get("components", [])


def values(component, name):
    return [entry["value"] for entry in component.get("properties", []) if entry["name"] == f"push-gateway:{name}"]
