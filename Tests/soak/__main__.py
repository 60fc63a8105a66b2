"""Ten minutes of the real thing with a fault every five seconds, accounted from outside. Tests/soak/README.md explains it.

    python3 -m Tests.soak [--seconds 600] [--seed N] [--small] [--rate 25] [--every 5] [--faults cut,freeze=2]

Exit status: 0: all promises were kept; 1: some were not, see the violations; 2: the soak itself broke.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import pathlib
import random
import shutil
import signal
import sys

from benchmarks.processes import BenchError
from Tests.soak.faults import MEANINGS, WEIGHTS
from Tests.soak.report import publish
from Tests.soak.run import Options, Soak

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def main() -> int:
    options = parse()
    try:
        return asyncio.run(supervise(options))
    except BenchError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("soak: interrupted", file=sys.stderr)
        return 2


async def supervise(options: Options) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    print(f"soak: {options.seconds:g} s, seed {options.seed}, {options.rate:g} calls/s, a fault every {options.every:g} s; "
          f"logs in {options.directory}", flush=True)
    async with Soak(options) as soak:
        await soak.run()
    return publish(soak)


def parse() -> Options:
    parser = argparse.ArgumentParser(
        prog="scripts/soak.sh", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Three gateways, a primary and a standby of Postgres, simulated providers, and a fault every few seconds.",
        epilog="faults:\n" + "\n".join(
            f"  {kind:<14} {MEANINGS[kind]} (weight {weight})" for kind, weight in WEIGHTS.items()))
    parser.add_argument("--seconds", type=float, help="how long faults are done; 600, or 60 with --small")
    parser.add_argument("--seed", type=int, help="of calls and faults; a random one, which is printed")
    parser.add_argument("--small", action="store_true", help="a minute, to see that it works")
    parser.add_argument("--rate", type=float, default=25, help="calls a second, the bursts before faults aside")
    parser.add_argument("--every", type=float, default=5, help="seconds from fault to fault")
    parser.add_argument("--faults", type=weights, default=dict(WEIGHTS), metavar="KIND[=WEIGHT],…", help="only these")
    given = parser.parse_args()
    binary = find_binary("PUSH_GATEWAY")
    directory = ROOT / ".local" / "soak"
    directory.mkdir(parents=True, exist_ok=True)
    for entry in directory.iterdir():  # of the last run; the servers' directories are cleared when they are stopped
        if not entry.name.startswith("postgres-") or entry.suffix == ".log":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return Options(
        seconds=given.seconds or (60 if given.small else 600), seed=random.randrange(10**6) if given.seed is None else given.seed,
        rate=given.rate, every=given.every, weights=given.faults, gateway=binary,
        simulators=find_binary("PUSH_GATEWAY_SIMULATORS", binary), directory=directory)


def weights(text: str) -> dict[str, int]:
    chosen: dict[str, int] = {}
    for part in text.split(","):
        kind, _, weight = part.partition("=")
        if kind not in WEIGHTS:
            raise argparse.ArgumentTypeError(f"there is no fault {kind}; there are {', '.join(WEIGHTS)}")
        chosen[kind] = int(weight or WEIGHTS[kind])
    return chosen


def find_binary(variable: str, otherwise: pathlib.Path | None = None) -> pathlib.Path:
    built = [ROOT / ".build" / kind / "push-gateway" for kind in ("release", "debug")]
    candidates = [pathlib.Path(os.environ[variable])] if os.environ.get(variable) else [otherwise] if otherwise else built
    for path in candidates:
        if os.access(path, os.X_OK):
            return path.absolute()
    raise SystemExit(f"soak: there is no program {candidates[0]}: make release, or name one in {variable}")


if __name__ == "__main__":
    sys.exit(main())
