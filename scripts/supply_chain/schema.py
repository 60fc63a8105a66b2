"""CycloneDX's own schema, from a package that is installed into .local/sbom (or SBOM_TOOLS) once."""

import fcntl
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .commands import ROOT

VERSION = "11.12.0"
FOLDER = Path(os.environ.get("SBOM_TOOLS") or ROOT / ".local/sbom")
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
print("" if error is None else str(error.data.message)[:300] + " at " + str(error.data.json_path))
"""


@dataclass
class Verdict:
    note: str
    faults: list = field(default_factory=list)


def verdict(path):
    """Faults of a document by the schema, and a note. If pip reaches no index, there are no faults and the note says so."""
    python = installed()
    if python is None:
        return Verdict("not held against CycloneDX's schema, because pip could not install cyclonedx-python-lib")
    done = subprocess.run([python, "-c", VALIDATE, path], capture_output=True, text=True)
    if done.returncode != 0:
        return Verdict("CycloneDX's schema could not be read", [f"the schema's check ended: {done.stderr.strip()[-300:]}"])
    fault = done.stdout.strip()
    return Verdict("valid by CycloneDX's schema 1.6", []) if not fault else Verdict(
        "not valid by CycloneDX's schema 1.6", [f"CycloneDX's schema: {fault}"])


def installed():
    """The Python with the schema package; None if it cannot be installed."""
    python, stamp = FOLDER / "venv/bin/python", FOLDER / f"venv/{VERSION}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists():
            try:
                for command in (
                    ["python3", "-m", "venv", "--clear", FOLDER / "venv"],
                    [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
                     "--timeout", "20", f"cyclonedx-python-lib[json-validation]=={VERSION}"],
                ):
                    subprocess.run(command, check=True, capture_output=True, timeout=180)
            except (subprocess.SubprocessError, OSError):
                return None
            stamp.touch()
    return python
