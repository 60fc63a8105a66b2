#!/usr/bin/env python3
"""The first commands of README.md, in a Debian 12 of their own that has the release tarball, and neither Swift nor a compiler.

  Tests/debian/tarball.py FOLDER      FOLDER has the tarball; it needs root, and a mount namespace of its own: make tarball-demo

Ends with "N passed, N failed"; non-zero when any failed.
"""

import re
import shutil
import signal
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

from tree import LOCAL, ROOT, Failure, Tree, say  # noqa: E402

SECONDS_MAX = 120
results = []


def check(what, holds, otherwise=""):
    results.append(bool(holds))
    print(f"{'ok' if holds else 'not ok'} - {what}{'' if holds else f': {otherwise}'}", flush=True)


def commands():
    """The lines of the first block of README.md."""
    block = re.search(r"<!-- not run: .* make tarball-demo runs it -->\s*```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return block[1].strip().splitlines()


def main():
    lines = commands()
    name = re.search(r"tar -xzf (\S+)", " ".join(lines))[1]
    tarball = Path(sys.argv[1]).resolve() / name
    if not tarball.exists():
        raise SystemExit(f"tarball.py: there is no {tarball}, which README.md names: make tarball")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(130))
    LOCAL.mkdir(parents=True, exist_ok=True)
    tree = Tree()
    try:
        tree.boot()
        try_it(tree, tarball, lines)
    except Failure as failure:
        check("the check runs to its end", False, failure)
    finally:
        tree.close()
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    raise SystemExit(1 if failed or not results else 0)


def try_it(tree, tarball, lines):
    check("there is no compiler", tree.run("command -v swift || command -v cc", check=False).returncode)
    shutil.copy(tarball, tree.path("/root"))
    began = time.time()
    for line in lines[:-1]:
        say(line)
        tree.run(line)
    demo = lines[-1]
    say(demo)
    result = tree.run(demo, check=False)
    seconds = round(time.time() - began)
    print(result.stdout, flush=True)
    check("the demo rings three phones", result.returncode == 0 and result.stdout.count(" delivered ") == 3,
          f"{result.returncode}: {result.stderr[-1500:]}")
    check(f"{seconds} s after the download, at most {SECONDS_MAX} s", seconds <= SECONDS_MAX, f"{seconds} s")
    check("nothing is left of it", not tree.output("ls -d /tmp/push-gateway-demo* 2>/dev/null || true; pgrep -l push-gateway || true"))

    say("with a folder that stays, and what it refuses")
    program = demo.split()[0]
    kept = tree.run(f"{program} demo --directory /srv/kept", check=False)
    check("a folder that is named stays", kept.returncode == 0 and tree.path("/srv/kept").is_dir(), kept.stderr[-500:])
    again = tree.run(f"{program} demo --directory /srv/kept", check=False)
    check("a folder with files is refused", again.returncode == 64 and "--directory" in again.stderr and "empty" in again.stderr,
          again.stderr[-500:])
    moved = tree.run(f"mkdir alone && cp {program} alone/ && alone/push-gateway-lab demo", check=False)
    check("without push-gateway beside it, it says so", moved.returncode == 1 and "install push-gateway" in moved.stderr,
          moved.stderr[-500:])
    without = tree.run(f"mv /usr/lib/postgresql /usr/lib/no; {program} demo; code=$?; mv /usr/lib/no /usr/lib/postgresql; exit $code",
                       check=False)
    check("without Postgres, it says what to install", without.returncode == 1 and "apt-get install postgresql" in without.stderr,
          without.stderr[-500:])


if __name__ == "__main__":
    main()
