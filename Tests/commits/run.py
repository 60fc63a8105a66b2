#!/usr/bin/env python3
"""The test of scripts/hooks/commit-msg, the check of commit messages, with the git of a repository of its own: a second.

  Tests/commits/run.py

Ends with "N passed, N failed"; non-zero when any failed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

HOOKS = Path(__file__).resolve().parents[2] / "scripts/hooks"
# No settings of the user, and none of a repository whose hook or rebase runs this.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
    "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true",
    "GIT_AUTHOR_NAME": "Test", "GIT_AUTHOR_EMAIL": "test@example.com",
    "GIT_COMMITTER_NAME": "Test", "GIT_COMMITTER_EMAIL": "test@example.com",
}
FITS, LONG = "é" * 72, "é" * 73
# A message, and what the check says of it; nothing: it is accepted.
EXAMPLES = [
    ("APNs: a subject, and why below it\n\nThe reason.\n", ""),
    ("A subject alone\n", ""),
    (f"{FITS}\n\n{'A long line of the body is no fault. ' * 9}\n", ""),
    (f"\n# What an editor shows.\n{FITS}\n# More of it.\n\nWhy.\n# ---- >8 ----\ndiff\n", ""),
    (f"fixup! {LONG}\n", ""),
    (f"Merge branch '{LONG}'\n", ""),
    (f"{LONG}\n", "the first line has 73 characters"),
    (f"Merge: {LONG}\n", "the first line has 80 characters"),
    ("A sentence.\n\nWhy.\n", "the first line ends with a period"),
    ("A subject\nthat goes on\n", "the second line is not empty"),
    ("# Nothing but a comment\n", "the first line is empty"),
]
results = []


def check(what, fault):
    results.append(not fault)
    print(f"{'not ok' if fault else 'ok'} - {what}{': ' if fault else ''}{fault}")


def git(directory, *arguments, **options):
    return subprocess.run(["git", *arguments], cwd=directory, env=ENVIRONMENT, text=True, capture_output=True, **options)


def main():
    with tempfile.TemporaryDirectory() as directory:
        git(directory, "init", "-q", check=True)
        for message, fault in EXAMPLES:
            file = Path(directory) / "message"
            file.write_text(message)
            told = subprocess.run([HOOKS / "commit-msg", file], text=True, capture_output=True)
            right = fault in told.stderr and (told.returncode == 0) == (fault == "") and bool(told.stderr) == bool(fault)
            check(f"{message[:50]!r}: {fault or 'accepted'}", "" if right else f"{told.returncode}, {told.stderr!r}")

        def commit(subject):
            return git(directory, "commit", "-q", "--allow-empty", "-m", subject)

        commit(LONG)
        check("without the setting git accepts everything", "" if git(directory, "log", "-1").returncode == 0 else "it does not")
        told = subprocess.run([HOOKS / "commit-msg", "--head"], cwd=directory, env=ENVIRONMENT, text=True, capture_output=True)
        check("the message of the last commit is checked", "" if "the last commit: the first line has 73" in told.stderr else told.stderr)
        git(directory, "config", "core.hooksPath", str(HOOKS), check=True)
        check("with it git makes no commit with a long subject", "" if commit(LONG).returncode != 0 else "it made one")
        check("and one with a short subject", commit(FITS).stderr)
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    sys.exit(0 if passed == len(results) else 1)


if __name__ == "__main__":
    main()
