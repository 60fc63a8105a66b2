"""Runs commands and reads files, for several modules."""

import hashlib
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class SupplyChainError(Exception):
    """An error that makes an SBOM incomplete; the message says what to do."""


def run(*command, cwd=None, check=True):
    """The standard output of a command, in the C locale. Raises SupplyChainError when it fails."""
    environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "", "LD_LIBRARY_PATH": ""}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd or ROOT, env=environment, text=True, capture_output=True)
    if check and done.returncode != 0:
        raise SupplyChainError(f"{command[0]} failed with {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}")
    return done.stdout


def sha256(path):
    """The SHA-256 of a file in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of_tree(folder):
    """One SHA-256 for a folder: that of the lines `sha256sum` prints for its files, sorted by path. Without `.git`.

    The same as `cd FOLDER && find . -type f -not -path './.git/*' -printf '%P\\0' | LC_ALL=C sort -z | xargs -0
    sha256sum | sha256sum`.
    """
    lines = []
    for directory, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".git"]
        for name in files:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                lines.append((os.path.relpath(path, folder), sha256(path)))
    text = "".join(f"{digest}  {path}\n" for path, digest in sorted(lines, key=lambda line: line[0].encode()))
    return hashlib.sha256(text.encode()).hexdigest()
