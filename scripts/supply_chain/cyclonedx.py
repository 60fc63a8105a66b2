"""An inventory as a CycloneDX 1.6 document. The same inventory gives the same bytes."""

import datetime
import hashlib
import json
import re
import uuid
from urllib.parse import quote

from .commands import ROOT, sha256
from .licences import licence_of_text

NAMESPACE = uuid.UUID("6f4b2d0e-1c59-5d0a-9a53-2f5d0e8a3b17")
SPDX_ID = re.compile(r"[A-Za-z0-9.+-]+")


def document(inventory):
    """The SBOM of a program: all its parts and their dependencies."""
    name = inventory.program.name
    root = f"{name}@{inventory.version}"
    components, dependencies = [], {root: []}
    refs = {package.identity: f"swift:{package.identity}@{package.version}" for package in inventory.packages}
    for package in inventory.packages:
        components.append(swift_component(package, refs[package.identity]))
        dependencies[refs[package.identity]] = [refs[identity] for identity in package.dependencies]
        if package.is_direct:
            dependencies[root].append(refs[package.identity])
    owner = {file.name: f"deb:{package.name}" for package in inventory.debian for file in package.files}
    owner |= {file.name: f"swift-toolchain:{part.name}" for part in inventory.toolchain for file in part.files}
    for ref, part in [
        *((f"deb:{package.name}", package) for package in inventory.debian),
        *((f"swift-toolchain:{part.name}", part) for part in inventory.toolchain),
    ]:
        component = toolchain_component(part, ref) if ref.startswith("swift-") else debian_component(part, ref)
        components.append(component)
        needs = {owner[name] for file in part.files for name in file.needs if name in owner}
        dependencies[ref] = sorted(needs - {ref})
        if any(file.is_static or file.name in inventory.needed for file in part.files):
            dependencies[root].append(ref)
    components.sort(key=lambda component: component["bom-ref"])
    listed = [*components, *(child for component in components for child in component.get("components", []))]
    for component in listed:
        dependencies.setdefault(component["bom-ref"], [])
    when = datetime.datetime.fromtimestamp(inventory.timestamp, datetime.timezone.utc)
    sbom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [
                {"type": "application", "name": "scripts/sbom.py of push-gateway", "version": inventory.version}]},
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": name,
                "version": inventory.version,
                "purl": f"pkg:generic/{name}@{inventory.version}",
                "licenses": licences(licence_of_text((ROOT / "LICENSE").read_text())),
                "hashes": hashes(sha256(inventory.program)),
                "properties": properties(revision=inventory.revision, architecture=inventory.architecture),
            },
        },
        "components": components,
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(set(needs))} for ref, needs in sorted(dependencies.items())],
        "compositions": [{"aggregate": "complete", "dependencies": [root]}],
    }
    digest = hashlib.sha256(json.dumps(sbom, sort_keys=True).encode()).hexdigest()
    return {**sbom, "serialNumber": f"urn:uuid:{uuid.uuid5(NAMESPACE, digest)}"}


def text(sbom):
    """The bytes of a document: sorted keys, two spaces, a line feed at the end."""
    return json.dumps(sbom, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def swift_component(package, ref):
    host, _, path = package.url.partition("://")[2].partition("/")
    organisation = path.split("/")[0]
    component = {
        "type": "library",
        "bom-ref": ref,
        "name": package.name,
        "version": package.version,
        "scope": "required" if package.modules else "excluded",
        "supplier": {"name": organisation, "url": [f"https://{host}/{organisation}"]},
        "licenses": licences(package.licence),
        "purl": f"pkg:swift/{host}/{path}@{quote(package.version)}",
        "hashes": hashes(package.digest),
        "externalReferences": [{"type": "vcs", "url": package.url, "comment": f"revision {package.revision}"}],
        "properties": properties(revision=package.revision, module=package.modules, hashed="files of the checkout"),
    }
    if package.bundled:
        component["components"] = [bundled_component(bundled, ref) for bundled in package.bundled]
    return component


def bundled_component(bundled, package_ref):
    return {
        "type": "library",
        "bom-ref": f"{package_ref}/{bundled.module}",
        "name": bundled.name,
        "version": bundled.version,
        "scope": "required",
        "supplier": {"name": bundled.supplier},
        "licenses": licences(bundled.licence),
        "purl": f"{bundled.purl}@{quote(bundled.version)}",
        "hashes": hashes(bundled.digest),
        "properties": properties(module=[bundled.module], hashed="files of the module"),
    }


def debian_component(package, ref):
    qualifiers = f"arch={package.architecture}&distro={distribution()}"
    return {
        "type": "library",
        "bom-ref": ref,
        "name": package.name,
        "version": package.version,
        "scope": "required",
        "supplier": supplier(package.supplier),
        "licenses": licences(package.licence),
        "purl": f"pkg:deb/debian/{package.name}@{quote(package.version, safe=':~')}?{qualifiers}",
        "properties": properties(source=f"{package.source} {package.source_version}", target=package.targets),
        "components": [file_component(file, ref) for file in package.files],
    }


def toolchain_component(part, ref):
    children = [file_component(file, ref) for file in part.files]
    if part.icu_version:
        children.append({
            "type": "library",
            "bom-ref": f"{ref}/icu",
            "name": "ICU",
            "version": part.icu_version,
            "scope": "required",
            "supplier": {"name": "Unicode, Inc."},
            "licenses": licences("Unicode-3.0"),
            "purl": f"pkg:github/unicode-org/icu@{part.icu_version}",
            "hashes": [entry for file in children for entry in file["hashes"]][:1],
        })
    return {
        "type": "framework",
        "bom-ref": ref,
        "name": part.name,
        "version": part.version,
        "scope": "required",
        "supplier": {"name": "Swift project", "url": ["https://www.swift.org/"]},
        "licenses": licences(part.licence),
        "purl": f"pkg:github/swiftlang/{part.name}@swift-{part.version}-RELEASE",
        "components": children,
    }


def file_component(file, ref):
    return {
        "type": "file",
        "bom-ref": f"{ref}/{file.name}",
        "name": file.name,
        "hashes": hashes(file.digest),
        "properties": properties(linked="statically" if file.is_static else "dynamically"),
    }


def licences(expression):
    """A licence in CycloneDX: an SPDX id, an expression of ids, or a name."""
    if expression is None:
        return []
    if " " not in expression and re.fullmatch(SPDX_ID, expression):
        return [{"license": {"id": expression, "acknowledgement": "declared"}}]
    return [{"expression": expression, "acknowledgement": "declared"}]


def hashes(digest):
    return [{"alg": "SHA-256", "content": digest}]


def supplier(maintainer):
    """Debian's `Name <address>`."""
    match = re.fullmatch(r"(.*?) *<(.+)>", maintainer)
    return {"name": match[1], "contact": [{"email": match[2]}]} if match else {"name": maintainer}


def properties(**values):
    """Properties, for values without a field in CycloneDX; a list becomes one property for each element."""
    return [{"name": f"push-gateway:{name}", "value": str(element)}
            for name, value in sorted(values.items())
            for element in (value if isinstance(value, list) else [value])]


def distribution():
    """The distribution and version, for example `debian-12`."""
    fields = dict(line.split("=", 1) for line in open("/etc/os-release") if "=" in line)
    return f"{fields['ID'].strip()}-{fields['VERSION_ID'].strip()}".replace('"', "")
