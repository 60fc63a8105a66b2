#!/usr/bin/env python3
"""Checks that the router offers what the shards offer, without starting either.

  Tests/shards/static.py

Functions of the router have the names and arguments of the shards' functions, its copies of functions and of the table push.shard_map
are equal, every function that backends or operators may call is routed or is listed below with the reason, and the slots of docs/scaling.md
are those that its rule gives. Ends with "N passed, N failed"; non-zero when any failed.
"""

import hashlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIES = ("slot_of", "shard_of", "shards_of", "is_call", "is_message", "given_call_id")
# Functions that roles of backends and operators have on a shard and not on the router.
ON_SHARDS_ONLY = {
    "own_shard",
    "shard_map_number",
    "new_call_id",  # which shard this is
    "find_calls",  # what the router asks
    "check_health",
    "lane_conditions",
    "count_owed",  # behind views, or housekeeping of one database
    "hold_invalidation",  # the number of a lane is that of a shard
    "quota_uses",
    "set_quota",  # each shard has its own quotas
    "pause_webhooks",
    "resume_webhooks",
    "resend_webhooks",  # each shard sends its own events
    "minutes",
    "overview",
    "calls",
    "entry_user",
    "epoch_ms",
    "finite",
    "length_ms",  # each shard has a dashboard of its own
}
# Functions of the router whose results differ: one row for each shard.
OTHER_RESULTS = {"resume_invalidation"}
failures = passes = 0


def check(what, fault):
    global failures, passes
    if fault:
        failures += 1
        print(f"not ok - {what}: {fault}")
    else:
        passes += 1
        print(f"ok - {what}")


def functions(text):
    """name: (arguments, result, whole text), blanks made equal."""
    found = {}
    for match in re.finditer(r"^create or replace function push\.([a-z_]+)\s*\(", text, re.M):
        end, depth = match.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        body = text.index("$$", end)
        head = text[end:body]
        result = re.search(r"(?:returns(.*?))?language", head, re.S)[1] or ""  # with OUT arguments there is no result
        whole = text[match.start() : text.index("$$;", body + 2)]
        found[match[1]] = tuple(" ".join(part.split()) for part in (text[match.end() : end - 1], result, whole))
    return found


def plain(arguments):
    return arguments.replace("( ", "(").replace(" )", ")")


def main():
    router_text = (ROOT / "deploy/plproxy/router.sql").read_text()
    shard_text = "\n".join(path.read_text() for path in sorted((ROOT / "migrations/functions").glob("*.sql")))
    router, shard = functions(router_text), functions(shard_text)

    for name in COPIES:
        check(f"push.{name} is the shards'", None if router.get(name) and router[name][2] == shard[name][2] else "the copies differ")
    table = (ROOT / "migrations/functions/shards.sql").read_text()
    begin, end = "create table if not exists push.shard_map", "create table if not exists push.shard_here"
    table = table[table.index(begin) : table.index(end)].strip()
    check("push.shard_map is the shards'", None if table in router_text else "the copies differ")

    for name, (arguments, result, _) in sorted(router.items()):
        if name in COPIES or name in ("use_shard_map", "set_shard"):
            continue
        if name not in shard:
            check(f"push.{name} is a function of shards", "it is not")
            continue
        check(
            f"push.{name} has the shards' arguments",
            None if plain(arguments) == plain(shard[name][0]) else f"router ({arguments}), shard ({shard[name][0]})",
        )
        if name not in OTHER_RESULTS:
            check(
                f"push.{name} has the shards' result",
                None if plain(result) == plain(shard[name][1]) else f"router {result}, shard {shard[name][1]}",
            )

    roles = (ROOT / "migrations/functions/roles.sql").read_text()
    calls = roles[roles.index("c_calls(rights)") : roles.index("\nselect r.role")]
    ops = "".join(re.findall(r"\('push_ops', (.*?)\),\n", roles, re.S))
    granted = set(re.findall(r"push\.([a-z_]+)", calls)) | set(re.findall(r"push\.([a-z_]+)", ops[ops.index("execute on function") :]))
    check("the grants were found", None if {"enqueue_call", "erase_user"} <= granted else f"only {granted}")
    check("what backends and operators may call is routed", ", ".join(sorted(granted - set(router) - ON_SHARDS_ONLY)))
    check("and the list of what is not is right", ", ".join(sorted(ON_SHARDS_ONLY & set(router) | ON_SHARDS_ONLY - granted)))
    views = set(re.findall(r"push\.([a-z_]+)", re.search(r"select on push\.summary(.*?)update", ops, re.S)[0]))
    routed = set(re.findall(r"create or replace view push\.([a-z_]+)", router_text))
    page = (ROOT / "docs/scaling.md").read_text()
    for name in sorted((granted | views) - {"slot_of"}):
        check(
            f"docs/scaling.md says where push.{name} is", None if f"`{name}`" in page or f"`push.{name}" in page else "it does not name it"
        )
    check("views of the router are views of shards", ", ".join(sorted(routed - views - {"outbox", "shards", "router_faults"})))

    vectors = re.findall(r"^\| `(.*?)` \| (\d+) \|$", page, re.M)
    check("docs/scaling.md has vectors", None if len(vectors) > 4 else f"{len(vectors)}")
    for call_id, slot in vectors:
        digest = hashlib.sha256(call_id.encode()).digest()
        check(f"slot of {call_id}", None if (digest[0] << 2 | digest[1] >> 6) == int(slot) else f"it is {digest[0] << 2 | digest[1] >> 6}")
    tests = (ROOT / "Tests/sql/98_shards.sql").read_text()
    check("Tests/sql has them, too", ", ".join(i for i, s in vectors if f"('{i}', {s})" not in tests))

    print(f"{passes} passed, {failures} failed")
    sys.exit(1 if failures or not passes else 0)


if __name__ == "__main__":
    main()
