"""What a soak found, for people and as JSON."""

from __future__ import annotations

import collections
import json
import statistics

from Tests.soak.account import VERDICTS, Account, settle_account
from Tests.soak.faults import Fault
from Tests.soak.run import Soak

SHOWN_MAX = 5
"""Violations of one kind that are printed; the file has all."""


def publish(soak: Soak) -> int:
    """Prints the report, writes report.json and violations.txt; the exit status."""
    assert soak.evidence is not None and soak.injector is not None
    faults = soak.injector.done
    account = settle_account(soak.evidence, faults)
    crashes = [end for gateway in soak.gateways for end in gateway.ended]
    print("\n" + "\n".join(_fault_table(faults)) + "\n")
    print("\n".join(f"  {count:>8,}  {name}" for name, count in sorted(account.figures.items())))
    print("\n" + "\n".join(f"  {count:>8,}  {name}" for name, count in sorted(account.outcomes.items())))
    waits = sorted(push.at - call.committed_at for call, push in _first_rings(soak))
    if waits:
        hundredth = waits[min(len(waits) - 1, int(len(waits) * 0.99))]
        print(f"\n  commit to the first invite: median {statistics.median(waits) * 1000:.0f} ms, "
              f"99th percentile {hundredth:.2f} s, longest {waits[-1]:.2f} s")
    directory = soak.options.directory
    for title, lines in (
        ("gateways that ended by themselves", crashes), ("statements the server refused", soak.backend.refused),
        ("pushes that fit no call", soak.strange),
    ):
        if lines:
            print(f"\n  {len(lines)} {title}, for example: {lines[0][:300]}")
    if soak.longest_stall > 1:
        print(f"\n  the machine stood still for {soak.longest_stall:.1f} s: figures of a starved machine say little")
    _print_violations(account, directory / "violations.txt")
    is_good = not (account.violations or crashes or soak.backend.refused or soak.strange)
    (directory / "report.json").write_text(json.dumps({
        "is_good": is_good, "seed": soak.options.seed, "seconds": soak.options.seconds,
        "verdicts": {verdict: account.count(verdict) for verdict in VERDICTS}, "figures": account.figures,
        "outcomes": account.outcomes, "faults": [vars(fault) for fault in faults], "ended_by_themselves": crashes,
        "refused": soak.backend.refused, "longest_stall_seconds": soak.longest_stall,
    }, indent=1))
    print(f"\nsoak: {account.line}  (seed {soak.options.seed}; {directory}/report.json)")
    return 0 if is_good else 1


def _fault_table(faults: list[Fault]) -> list[str]:
    by_kind: dict[str, list[float]] = collections.defaultdict(list)
    for fault in faults:
        by_kind[fault.kind].append(fault.until - fault.at)
    lines = [f"  {len(faults):>8,}  faults"]
    for kind, lengths in sorted(by_kind.items()):
        lines.append(f"  {len(lengths):>8,}  {kind}, {min(lengths):.1f} to {max(lengths):.1f} s")
    return lines


def _first_rings(soak: Soak):
    """Each ringing call with the first invite that any provider accepted."""
    assert soak.evidence is not None
    seen = set()
    for push in soak.evidence.pushes:
        if push.kind == "invite" and push.call.call_id not in seen and push.call.committed_at:
            seen.add(push.call.call_id)
            yield push.call, push


def _print_violations(account: Account, path) -> None:
    with path.open("w") as file:
        for verdict in VERDICTS:
            found = [violation for violation in account.violations if violation.verdict == verdict]
            for index, violation in enumerate(found):
                lines = [f"{verdict.upper()}: call {violation.call_id}: {violation.text}",
                         *(f"    {line}" for line in violation.timeline)]
                file.write("\n".join(lines) + "\n\n")
                if index < SHOWN_MAX:
                    print("\n" + "\n".join(lines))
            if len(found) > SHOWN_MAX:
                print(f"\n  … and {len(found) - SHOWN_MAX} more {verdict}: see {path}")
