#!/usr/bin/env python3
"""Packs, checks and unpacks container images: OCI image layouts in one tar file, which podman, skopeo and `docker load` read.

  scripts/oci_image.py pack --output FILE --name NAME --config JSON LAYER…   a LAYER is a tar file, or a folder (owned by root in it)
  scripts/oci_image.py check FILE                      whether every digest, size and reference is right
  scripts/oci_image.py unpack FILE FOLDER              the root file system into FOLDER/rootfs, the configuration into FOLDER/config.json
  scripts/oci_image.py sbom PROGRAM-SBOM LAYER FILE    the program's SBOM, and the Debian packages that are installed in LAYER

The same layers and configuration give the same bytes: folders are sorted, and no time is later than SOURCE_DATE_EPOCH. The formats
are those of the OCI image specification 1.0 and of CycloneDX 1.6.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import sys
import tarfile
import uuid
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYOUT = {"imageLayoutVersion": "1.0.0"}
# Python 3.11 of Debian 12 trusts every archive; newer ones have to be told.
TRUSTED = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))


class ImageError(Exception):
    pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("pack")
    one.add_argument("--output", type=Path, required=True)
    one.add_argument("--name", required=True, help="push-gateway:1.2.3")
    one.add_argument("--config", type=Path, required=True, help="config, architecture and annotations, as JSON")
    one.add_argument("layers", type=Path, nargs="+")
    commands.add_parser("check").add_argument("file", type=Path)
    one = commands.add_parser("unpack")
    one.add_argument("file", type=Path)
    one.add_argument("folder", type=Path)
    one = commands.add_parser("sbom")
    one.add_argument("program_sbom", type=Path)
    one.add_argument("layer", type=Path)
    one.add_argument("output", type=Path)
    options = parser.parse_args()
    try:
        match options.command:
            case "pack":
                digest = pack(options.output, options.name, json.loads(options.config.read_text()), options.layers)
                print(f"{options.output}: {options.output.stat().st_size / 1e6:.1f} MB, {digest}")
            case "check":
                image = Image(options.file)
                print(f"{options.file}: {len(image.layers)} layers, {image.digest}")
            case "unpack":
                Image(options.file).unpack(options.folder)
            case "sbom":
                write_sbom(options.program_sbom, options.layer, options.output)
    except ImageError as error:
        raise SystemExit(f"oci_image.py: {error}") from None


# --- Packing ---

def pack(output, name, description, layers):
    """Writes an image; the digest of its manifest, which identifies it. `description`: see deploy/image.json."""
    blobs = {}

    def blob(kind, data, **others):
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": kind, "digest": digest, "size": len(data), **others}

    created = datetime.fromtimestamp(EPOCH, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    without = description.get("without", [])
    archives = [archive_without(path, without) if path.is_file() else folder_archive(path) for path in layers]
    config = blob(CONFIG, text({
        "created": created, "architecture": description["architecture"], "os": "linux", "config": description["config"],
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(archive).hexdigest() for archive in archives]},
        "history": [{"created": created, "comment": path.name} for path in layers]}))
    annotations = {"org.opencontainers.image.created": created, **description["config"].get("Labels", {})}
    manifest = blob(MANIFEST, text({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config,
        "layers": [blob(LAYER, gzip.compress(archive, 9, mtime=0)) for archive in archives], "annotations": annotations}))
    version = name.partition(":")[2]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [
        {**manifest, "platform": {"architecture": description["architecture"], "os": "linux"},
         "annotations": {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"docker.io/library/{name}"}}]}
    # For docker load without containerd's image store.
    parsed = json.loads(blobs[manifest["digest"]])
    legacy = [{"Config": location(config["digest"]), "RepoTags": [name], "Layers": [location(each["digest"]) for each in parsed["layers"]]}]
    files = {"oci-layout": text(LAYOUT), "index.json": text(index), "manifest.json": text(legacy),
             **{location(digest): data for digest, data in blobs.items()}}
    partial = output.with_name(output.name + ".part")
    with tarfile.open(partial, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(files):
            add(tar, path, files[path])
    partial.rename(output)
    return manifest["digest"]


def text(value):
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def location(digest):
    return "blobs/" + digest.replace(":", "/")


def add(tar, path, data, mode=0o644):
    entry = tarfile.TarInfo(path)
    entry.size, entry.mode, entry.mtime = len(data), mode, EPOCH
    tar.addfile(entry, io.BytesIO(data))


def archive_without(file, without):
    """A tar file without some paths and what is below them; of a path that ends with a slash the folder itself stays."""
    data = io.BytesIO()
    with tarfile.open(file) as old, tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as new:
        for entry in old:
            path = "/" + os.path.normpath(entry.name)
            if path == "/." or any(path == each or path.startswith(each.rstrip("/") + "/") for each in without):
                continue
            entry.name = path[1:]
            if entry.islnk():
                entry.linkname = os.path.normpath(entry.linkname)
            entry.mtime = min(int(entry.mtime), EPOCH) if EPOCH else int(entry.mtime)
            entry.uname = entry.gname = ""
            entry.pax_headers = {}
            new.addfile(entry, old.extractfile(entry) if entry.isreg() else None)
    return data.getvalue()


def folder_archive(folder):
    """A folder as a tar file: owned by root, sorted, files readable by all and writable by their owner only."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise ImageError(f"{path} is neither a file nor a folder")
            if path.is_dir():
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, EPOCH
                tar.addfile(entry)
            else:
                add(tar, name, path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644)
    return data.getvalue()


# --- Reading ---

class Image:
    """An image that was checked: every digest and size."""

    def __init__(self, file):
        with tarfile.open(file) as tar:
            self.files = {entry.name: tar.extractfile(entry).read() for entry in tar if entry.isfile()}
        if json.loads(self.file("oci-layout")) != LAYOUT:
            raise ImageError(f"{file} is no OCI image layout of version 1.0.0")
        index = json.loads(self.file("index.json"))
        if len(index["manifests"]) != 1:
            raise ImageError(f"{file} has {len(index['manifests'])} images")
        self.digest = index["manifests"][0]["digest"]
        self.manifest = json.loads(self.blob(index["manifests"][0], MANIFEST))
        self.config = json.loads(self.blob(self.manifest["config"], CONFIG))
        self.layers = [gzip.decompress(self.blob(layer, LAYER)) for layer in self.manifest["layers"]]
        ids = ["sha256:" + hashlib.sha256(layer).hexdigest() for layer in self.layers]
        if ids != self.config["rootfs"]["diff_ids"]:
            raise ImageError("rootfs.diff_ids of the configuration are not the digests of the layers")
        used = {location(part["digest"]) for part in [index["manifests"][0], self.manifest["config"], *self.manifest["layers"]]}
        if unused := {name for name in self.files if name.startswith("blobs/")} - used:
            raise ImageError(f"nothing refers to {', '.join(sorted(unused))}")

    def file(self, name):
        if name not in self.files:
            raise ImageError(f"{name} is missing")
        return self.files[name]

    def blob(self, reference, kind):
        data = self.file(location(reference["digest"]))
        if reference["mediaType"] != kind:
            raise ImageError(f"{reference['digest']} should be {kind}, and is {reference['mediaType']}")
        if len(data) != reference["size"]:
            raise ImageError(f"{reference['digest']} has {len(data)} bytes, and should have {reference['size']}")
        if "sha256:" + hashlib.sha256(data).hexdigest() != reference["digest"]:
            raise ImageError(f"{reference['digest']} has another digest")
        return data

    def entries(self):
        """Every entry of the root file system, by its path; a later layer replaces an earlier one's."""
        found = {}
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                for entry in tar:
                    found["/" + os.path.normpath(entry.name).lstrip("./")] = entry
        return found

    def unpack(self, folder):
        """As root, with owners; otherwise everything belongs to the user who runs it."""
        (folder / "rootfs").mkdir(parents=True)
        for layer in self.layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                tar.extractall(folder / "rootfs", numeric_owner=True, **TRUSTED)
        (folder / "config.json").write_bytes(text(self.config))


# --- The SBOM ---

def write_sbom(program_sbom, layer, output):
    sbom = json.loads(program_sbom.read_text())
    known = {part["name"]: part for part in sbom["components"] if part.get("purl", "").startswith("pkg:deb/")}
    for package in installed(layer):
        part = known.get(package["Package"])
        version = quote(package["Version"], safe=":~")
        purl = f"pkg:deb/debian/{package['Package']}@{version}?arch={package['Architecture']}&distro=debian-12"
        if part is not None:
            if part["version"] != package["Version"]:  # the machine that linked the program has an older or newer update
                part |= {"version": package["Version"], "purl": purl}
                part.pop("components", None)  # the hashes of that machine's files
                part.pop("properties", None)
            continue
        sbom["components"].append({
            "type": "library", "bom-ref": purl, "name": package["Package"], "version": package["Version"], "purl": purl,
            "scope": "required", "supplier": {"name": package["Maintainer"]}})
    digest = hashlib.sha256(json.dumps({**sbom, "serialNumber": ""}, sort_keys=True).encode()).hexdigest()
    sbom["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}"
    output.write_text(json.dumps(sbom, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def installed(layer):
    """Every Debian package of a layer, as dpkg's status file has it."""
    with tarfile.open(layer) as tar:
        status = next((entry for entry in tar if os.path.normpath(entry.name) == "var/lib/dpkg/status"), None)
        if status is None:
            raise ImageError(f"{layer} has no /var/lib/dpkg/status")
        paragraphs = tar.extractfile(status).read().decode().strip().split("\n\n")
    for paragraph in paragraphs:
        package = dict(re.findall(r"^(\S+): (.*)$", paragraph, re.M))
        if package.get("Status") == "install ok installed":
            yield package


if __name__ == "__main__":
    sys.exit(main())
