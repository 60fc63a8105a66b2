#!/usr/bin/env python3
"""Tests of scripts/oci_image.py, with small images. Ends with "N passed, N failed"; non-zero when any failed."""

import io
import json
import os
import re
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import oci_image  # noqa: E402

failed = passed = 0


def check(what, is_good, why=""):
    global failed, passed
    passed, failed = passed + bool(is_good), failed + (not is_good)
    print(f"ok - {what}" if is_good else f"not ok - {what}: {why}")


def refusal(file):
    try:
        oci_image.Image(file)
    except oci_image.ImageError as error:
        return str(error)
    return ""


def changed(file, output, change):
    """A copy of an image whose files `change` has changed: names and contents."""
    with tarfile.open(file) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar}
    change(files)
    with tarfile.open(output, "w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return output


def main():
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        description = json.loads((ROOT / "deploy/image.json").read_text()) | {"architecture": "amd64"}
        files = []
        for number, order in enumerate((["b", "a"], ["a", "b"])):
            layer = work / f"layer{number}"
            for part in order:
                (layer / part).mkdir(parents=True)
                (layer / part / "file").write_text(part)
                os.utime(layer / part / "file", (number, number))
            (layer / "a/program").write_text("#!/bin/sh\n")
            (layer / "a/program").chmod(0o700)
            moved = work / f"{number}" / "layer"
            moved.parent.mkdir()
            layer.rename(moved)
            files.append(work / f"{number}.tar")
            oci_image.pack(files[-1], "push-gateway:1.2.3", description, [moved])
        check("the same files give the same bytes", files[0].read_bytes() == files[1].read_bytes())
        image = oci_image.Image(files[0])
        entries = image.entries()
        check("the image has the files", {"/a", "/a/file", "/a/program", "/b", "/b/file"} == set(entries), entries)
        check("programs can be executed, other files cannot, and root owns them",
              (entries["/a/program"].mode, entries["/a/file"].mode, entries["/a/file"].uid) == (0o755, 0o644, 0))
        check("the configuration is that of deploy/image.json", image.config["config"] == description["config"])
        image.unpack(work / "unpacked")
        check("it can be unpacked", (work / "unpacked/rootfs/b/file").read_text() == "b")

        largest = max(image.files, key=lambda name: len(image.files[name]) if name.startswith("blobs/") else 0)

        def break_blob(files):
            files[largest] = files[largest][:-1] + bytes([files[largest][-1] ^ 1])

        def cut_blob(files):
            files[largest] = files[largest][:-1]

        for what, change, words in (
            ("a changed byte", break_blob, "has another digest"), ("a missing byte", cut_blob, "bytes, and should have"),
            ("a missing blob", lambda files: files.pop(largest), "is missing"),
            ("a blob that nothing refers to", lambda files: files.update({"blobs/sha256/x": b""}), "nothing refers to"),
            ("another layout", lambda files: files.update({"oci-layout": b"{}"}), "no OCI image layout"),
        ):
            found = refusal(changed(files[0], work / "changed.tar", change))
            check(f"{what} is noticed", words in found, found)

        dockerfile = (ROOT / "deploy/Dockerfile").read_text()
        config = description["config"]
        says = {
            "User": re.search(r"^USER (.*)$", dockerfile, re.M)[1],
            "Entrypoint": json.loads(re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.M)[-1]),
            "Cmd": json.loads(re.findall(r"^CMD (.*)$", dockerfile, re.M)[-1]),
            "Healthcheck": ["CMD", *json.loads(re.search(r"^HEALTHCHECK .*\\\n  CMD (.*)$", dockerfile, re.M)[1])]}
        ours = {**{name: config[name] for name in ("User", "Entrypoint", "Cmd")}, "Healthcheck": config["Healthcheck"]["Test"]}
        check("the Dockerfile says the same", says == ours, f"{says} {ours}")

        given = work / "given.tar"
        with tarfile.open(given, "w") as tar:
            for path in ("./var/log/a.log", "./etc/apt/sources.list", "./etc/aptitude", "./bin/b"):
                oci_image.add(tar, path, b"")
        with tarfile.open(fileobj=io.BytesIO(oci_image.archive_without(given, ["/var/log/", "/etc/apt"]))) as tar:
            check("a layer comes without what the image leaves out", tar.getnames() == ["etc/aptitude", "bin/b"], tar.getnames())

        status = work / "layer.tar"
        with tarfile.open(status, "w") as tar:
            oci_image.add(tar, "./var/lib/dpkg/status", b"Package: libpq5\nStatus: install ok installed\nArchitecture: amd64\n"
                          b"Version: 15.1\nMaintainer: A <a@example.org>\n\nPackage: gone\nStatus: deinstall ok config-files\n")
        program = work / "program.cdx.json"
        for version, files in (("15.1", [{"name": "libpq.so"}]), ("15.2", None)):
            program.write_text(json.dumps({"components": [{"name": "libpq5", "version": version, "purl": "pkg:deb/debian/libpq5@15.1",
                                                           "components": [{"name": "libpq.so"}]}]}))
            oci_image.write_sbom(program, status, work / "image.cdx.json")
            written = json.loads((work / "image.cdx.json").read_text())["components"]
            check(f"the SBOM has each installed package once, in the image's version (linked with {version})",
                  [(part["name"], part["version"], part.get("components")) for part in written] == [("libpq5", "15.1", files)], written)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
