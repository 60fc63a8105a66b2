#!/usr/bin/env python3
"""Breaks one rule after the other, and shows which seed of the simulation finds it out.

    scripts/sim-mutants.py [--seeds 500] [NAME ...]     all mutants, or those named

Tests/Simulation/mutants/NAME.mutant holds a rule and what breaks it: `rule:` and a sentence, then for each place `file:`, and
between `--- old`, `--- new` and `--- end` the exact text and what takes its place. The text must be there exactly once. The
sources are copied to .local/mutants; each mutant is built there and run until a seed kills it. Fails if one survives.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "Tests/Simulation/mutants"
COPY = ROOT / ".local/mutants"
PRODUCT = "push-gateway-sim"


class Mutant:
    def __init__(self, path):
        self.name = path.stem
        lines = path.read_text().split("\n")
        if not lines[0].startswith("rule: "):
            sys.exit(f"{path}: the first line is `rule:` and a sentence")
        self.rule = lines[0].removeprefix("rule: ")
        self.edits = []
        pattern = re.compile(r"^file: ([^\n]+)\n--- old\n(.*?)\n--- new\n(.*?)\n?--- end$", re.M | re.S)
        for file, old, new in pattern.findall(path.read_text()):
            self.edits.append((file, old, new))
        if not self.edits:
            sys.exit(f"{path}: nothing is replaced")

    def texts(self):
        """The files it changes, changed."""
        texts = {}
        for file, old, new in self.edits:
            text = texts.get(file) or (ROOT / file).read_text()
            if text.count(old) != 1:
                sys.exit(f"{self.name}: the text is {text.count(old)} times in {file}, not once:\n{old}")
            texts[file] = text.replace(old, new)
        return texts


def copy_sources():
    """Only what has changed is copied, so that only that is built again."""
    COPY.mkdir(parents=True, exist_ok=True)
    wanted = set()
    for part in ["Package.swift", "Package.resolved", "Sources", "Tests"]:
        for path in [ROOT / part, *sorted((ROOT / part).rglob("*"))]:
            if path.is_file() and "__pycache__" not in path.parts:
                wanted.add(path.relative_to(ROOT))
    for part in ["Sources", "Tests"]:
        for path in list((COPY / part).rglob("*")):
            if path.is_file() and path.relative_to(COPY) not in wanted:
                path.unlink()
    for path in wanted:
        write(COPY / path, (ROOT / path).read_bytes())


def write(path, content):
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def build():
    """The simulator of the copy as it is; None if it is not to be built."""
    command = ["swift", "build", "-c", "release", "--product", PRODUCT, "--package-path", str(COPY)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode != 0:
        return None, built.stdout + built.stderr
    shown = subprocess.run(command + ["--show-bin-path"], capture_output=True, text=True, check=True)
    return pathlib.Path(shown.stdout.strip()) / PRODUCT, ""


def first_killing_seed(simulator, seeds):
    """The lowest seed that breaks a rule, and the rule; None if none does."""
    command = [str(simulator), "--seeds", str(seeds), "--impatient"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=1800, env={"SWIFT_BACKTRACE": "enable=no"})
    except subprocess.TimeoutExpired:
        return "?", "it does not come to an end"
    found = re.search(r"^seed (\d+): broken after \d+ ms: ([^.]+\.)", ran.stdout, re.M)
    if found:
        return found.group(1), found.group(2)
    if ran.returncode != 0:
        return "?", f"it stops with {ran.returncode}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    mutants = [Mutant(path) for path in sorted(MUTANTS.glob("*.mutant"))]
    unknown = set(options.names) - {mutant.name for mutant in mutants}
    if unknown:
        sys.exit(f"there is no mutant {', '.join(sorted(unknown))}")
    if options.names:
        mutants = [mutant for mutant in mutants if mutant.name in options.names]
    changed = [(mutant, mutant.texts()) for mutant in mutants]

    copy_sources()
    simulator, errors = build()
    if simulator is None:
        sys.exit(f"the simulator is not to be built:\n{errors}")
    if kill := first_killing_seed(simulator, options.seeds):
        sys.exit(f"without any mutant, seed {kill[0]} breaks a rule: {kill[1]}")
    print(f"no mutant                     all {options.seeds} seeds pass")

    survivors = []
    for mutant, texts in changed:
        began = time.monotonic()
        for file, text in texts.items():
            write(COPY / file, text.encode())
        simulator, errors = build()
        kill = first_killing_seed(simulator, options.seeds) if simulator else None
        if simulator is None:
            verdict = f"is not to be built:\n{errors}"
        elif kill:
            verdict = f"killed by seed {kill[0]}: {kill[1]}"
        else:
            verdict = f"survives {options.seeds} seeds"
        if not kill:
            survivors.append(mutant.name)
        print(f"{mutant.name:<28}  {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
        for file in texts:
            shutil.copyfile(ROOT / file, COPY / file)
    if survivors:
        sys.exit(f"{len(survivors)} of {len(changed)} mutants survive: {', '.join(survivors)}")
    print(f"all {len(changed)} mutants are killed")


main()
