#!/usr/bin/env python3
"""Breaks one rule after the other, and shows which seed of the simulation detects it.

    scripts/sim-mutants.py [--seeds 2000] [NAME ...]     all mutants, or those named
    scripts/sim-mutants.py --check                       checks that all mutants fit the sources; builds nothing

Tests/Simulation/mutants/NAME.mutant holds a rule and what breaks it: `rule:` and a sentence, `seed:` and the seed that killed it
last, then for each place `file:`, and between `--- old`, `--- new` and `--- end` the exact text, which must be there exactly once,
and what takes its place, in which MUTANT is true if the rule is to be broken.

The sources are copied to .local/mutants, with all mutants in them, and built once: the environment says which is active. Each is
run with its seed first; if that does not kill it any more, with seeds 1, 2, 3, … until one does. Fails if one survives.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MUTANTS = ROOT / "Tests/Simulation/mutants"
COPY = ROOT / ".local/mutants"
PRODUCT = "push-gateway-sim"
VARIABLE = "PUSH_GATEWAY_SIM_MUTANT"
# Number of seeds that the simulation must pass without any mutant.
SEEDS_WITHOUT = 100
# A source file for each target with mutants, which tells the active mutant.
SWITCH = f"""#if canImport(Glibc)
internal import Glibc
#else
internal import Darwin
#endif

private let activeMutant = unsafe getenv("{VARIABLE}").map {{ unsafe String(cString: $0) }}

func isMutant(_ name: String) -> Bool {{ activeMutant == name }}
"""


class Mutant:
    def __init__(self, path):
        self.name = path.stem
        text = path.read_text()
        head = re.match(r"rule: ([^\n]+)\n(?:seed: (\d+)\n)?", text)
        if not head:
            sys.exit(f"{path}: the first line is `rule:` and a sentence")
        self.rule, self.seed = head.groups()
        pattern = re.compile(r"^file: ([^\n]+)\n--- old\n(.*?)\n--- new\n(.*?)\n--- end$", re.M | re.S)
        self.edits = pattern.findall(text)
        if not self.edits or not all("MUTANT" in new for _, _, new in self.edits):
            sys.exit(f"{path}: nothing is replaced, or not by something with MUTANT")


def mutated(mutants):
    """The files with all mutants, and the switch file of each target."""
    places = {}
    for mutant in mutants:
        for file, old, new in mutant.edits:
            text = (ROOT / file).read_text()
            if text.count(old) != 1:
                sys.exit(f"{mutant.name}: the text is {text.count(old)} times in {file}, not once:\n{old}")
            begin = text.index(old)
            call = f'isMutant("{mutant.name}")'
            places.setdefault(file, []).append((begin, begin + len(old), new.replace("MUTANT", call), mutant.name))
    files = {}
    for file, edits in places.items():
        text, end = (ROOT / file).read_text(), None
        for begin, behind, new, name in sorted(edits, reverse=True):
            if end is not None and behind > end:
                sys.exit(f"{name}: changes a place in {file} that another mutant changes")
            text, end = text[:begin] + new + text[behind:], begin
        files[file] = text.encode()
        target = "/".join(pathlib.Path(file).parts[:2])
        files[f"{target}/ActiveMutant.swift"] = SWITCH.encode()
    return files


def copy_sources(changed):
    """Writes only files that differ, so that only these are built again."""
    wanted = dict(changed)
    trees = ["Plugins", "Sources", "Tests", "dashboard", "docs/operations", "migrations", "scripts/lib"]
    for part in ["Package.swift", "Package.resolved", *trees]:
        for path in [ROOT / part, *sorted((ROOT / part).rglob("*"))]:
            name = str(path.relative_to(ROOT))
            if path.is_file() and "__pycache__" not in path.parts and name not in wanted:
                wanted[name] = path.read_bytes()
    for part in trees:
        for path in list((COPY / part).rglob("*")):
            if path.is_file() and str(path.relative_to(COPY)) not in wanted:
                path.unlink()
    for name, content in wanted.items():
        path = COPY / name
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def build():
    command = ["swift", "build", "-c", "release", "--product", PRODUCT, "--package-path", str(COPY)]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode != 0:
        sys.exit(f"the simulator with its mutants is not to be built:\n{built.stdout}{built.stderr}")
    shown = subprocess.run(command + ["--show-bin-path"], capture_output=True, text=True, check=True)
    return pathlib.Path(shown.stdout.strip()) / PRODUCT


def killing_seed(simulator, mutant, first, count):
    """The first of these seeds that breaks a rule, and the rule; None if none does."""
    command = [str(simulator), "--first", str(first), "--seeds", str(count), "--impatient"]
    environment = {**os.environ, "SWIFT_BACKTRACE": "enable=no", VARIABLE: mutant.name if mutant else ""}
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=1800, env=environment)
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
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    every = [Mutant(path) for path in sorted(MUTANTS.glob("*.mutant"))]
    unknown = set(options.names) - {mutant.name for mutant in every}
    if unknown:
        sys.exit(f"there is no mutant {', '.join(sorted(unknown))}")
    mutants = [mutant for mutant in every if not options.names or mutant.name in options.names]

    changed = mutated(every)
    if options.check:
        return
    began = time.monotonic()
    copy_sources(changed)
    simulator = build()
    print(f"{'built with all mutants':<28}  ({time.monotonic() - began:.0f} s)", flush=True)
    began = time.monotonic()
    known = sorted({int(mutant.seed) for mutant in mutants if mutant.seed})
    for first, count in [(1, SEEDS_WITHOUT), *((seed, 1) for seed in known if seed > SEEDS_WITHOUT)]:
        if kill := killing_seed(simulator, None, first, count):
            sys.exit(f"without any mutant, seed {kill[0]} breaks a rule: {kill[1]}")
    print(f"{'no mutant':<28}  passes {SEEDS_WITHOUT} seeds, and those below ({time.monotonic() - began:.0f} s)", flush=True)

    survivors = []
    for mutant in mutants:
        began = time.monotonic()
        kill = killing_seed(simulator, mutant, int(mutant.seed), 1) if mutant.seed else None
        note = ""
        if not kill:
            kill = killing_seed(simulator, mutant, 1, options.seeds)
            if kill and mutant.seed:
                note = f", and no more by seed {mutant.seed}"
        if not kill:
            survivors.append(mutant.name)
        verdict = f"killed by seed {kill[0]}{note}: {kill[1]}" if kill else f"survives {options.seeds} seeds: {mutant.rule}"
        print(f"{mutant.name:<28}  {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    if survivors:
        sys.exit(f"{len(survivors)} of {len(mutants)} mutants survive: {', '.join(survivors)}")
    print(f"all {len(mutants)} mutants are killed")


main()
