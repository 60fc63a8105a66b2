#!/usr/bin/python3
"""What a release promises to the next one, as a list of names; and whether this release still has those of the one before.

  Tests/upgrade/surface.py PROGRAM [ROOT]       print the names of the release in ROOT (default: this one), built as PROGRAM
  Tests/upgrade/surface.py --check PROGRAM      whether all names of Tests/upgrade/surface.txt are in this release

docs/compatibility.md says for how long each kind of name is kept. The second form ends with "N passed, N failed"; non-zero when any
failed. Debian's Python: it has the YAML of openapi.yaml.
"""

import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("surface.txt")
sys.path.insert(0, str(ROOT / "scripts"))
import man_pages  # noqa: E402

FUNCTION = re.compile(r"^CREATE FUNCTION push\.(\w+)\((.*?)\) RETURNS ", re.M)
TABLE = re.compile(r"^CREATE (?:UNLOGGED )?TABLE push\.(\w+) \(\n(.*?)\n\)", re.M | re.S)
COLUMN = re.compile(r"^    (\w+) ([a-z].*?)(?: DEFAULT .*| NOT NULL.*| GENERATED .*|,)*$", re.M)
USED = re.compile(r"\bpush\.(\w+)")
METRIC = re.compile(r"\bpush_gateway_[a-z_]+[a-z]\b")
WIRE_KEY = re.compile(r'"([A-Za-z][\w-]*)": ')


def names(root, program):
    """Every name: its kind, and what it is."""
    schema = (root / "docs/schema.sql").read_text()
    # Not what only functions of the schema use: nobody has rights to it, and all functions are replaced in one transaction.
    used = set(USED.findall((root / "migrations/functions/roles.sql").read_text() + (root / "docs/sql.md").read_text()))
    for name, arguments in FUNCTION.findall(schema):
        if name in used:
            yield f"sql function {name}({without_results(without_defaults(arguments))})"
    for table, columns in TABLE.findall(schema):
        for column, kind in COLUMN.findall(columns) if table in used else []:
            if column == "CONSTRAINT":
                continue  # a CHECK is no name, and may be widened
            yield f"sql column {table}.{column} {kind.rstrip(',')}"
    commands = man_pages.Program(program).commands()
    for words, command in commands:
        yield f"command {' '.join(words)}"
        for argument in man_pages.shown(command.get("arguments", [])):
            for name in argument.get("names") or []:
                dashes = "--" if name["kind"] == "long" else "-"
                yield f"command {' '.join(words)} {dashes}{name['name']}"
    discussion = next(command["discussion"] for words, command in commands if words[1:] == ["check-config"])
    for line in man_pages.split_configuration(discussion)[1].splitlines():
        if found := man_pages.KEY.match(line):
            yield f"configuration {found[1]}"
    api = yaml.safe_load((root / "openapi.yaml").read_text())
    for path, item in api["paths"].items():
        for method in item.keys() & {"get", "put", "post", "delete", "patch"}:
            yield f"http {method} {path}"
    schemas = api["components"]["schemas"]
    for name, part in schemas.items():
        for member in members(part, schemas):
            yield f"http {name}.{member}"
    for file in [*root.glob("docs/*.md"), *root.glob("docs/operations/*.md"), *root.glob("deploy/prometheus/*.yml"),
                 *root.glob("deploy/grafana/*.json")]:
        for name in METRIC.findall(file.read_text()):
            yield f"metric {re.sub('_(bucket|sum|count)$', '', name)}"
    for file in (root / "Sources/Dialects").rglob("*.swift"):
        for key in WIRE_KEY.findall(file.read_text()):
            yield f"wire {file.stem} {key}"


def without_defaults(arguments):
    return re.sub(r" DEFAULT (?:'[^']*'(?:::[\w .\[\]]+)?|[^,])*", "", arguments)


def without_results(arguments):
    return re.sub(r"(?:, |^)OUT \w+ [^,]+", "", arguments)


def members(schema, schemas, prefix=""):
    """The members of an object in a JSON schema, at every depth; of other schemas that it names, those which are its alternatives."""
    for name, inner in (schema.get("properties") or {}).items():
        yield prefix + name
        yield from members(inner, schemas, f"{prefix}{name}.")
    for inner in [*schema.get("oneOf", []), *schema.get("allOf", []), *([schema["items"]] if "items" in schema else [])]:
        named = schemas[inner["$ref"].rpartition("/")[2]] if "$ref" in inner and "items" not in schema else inner
        yield from members(named, schemas, prefix)


def lost(old, new):
    """Which old names are not in the new release. A function may have more arguments at its end, if they have defaults."""
    functions = {}
    for name in new:
        if found := re.fullmatch(r"sql function (\w+)\((.*)\)", name):
            functions.setdefault(found[1], []).append(found[2])
    for name in sorted(old - new):
        found = re.fullmatch(r"sql function (\w+)\((.*)\)", name)
        if not found or not any(arguments.startswith(found[2] and found[2] + ", ") for arguments in functions.get(found[1], [])):
            yield name


def main():
    words = sys.argv[1:]
    is_check = words[:1] == ["--check"]
    words = words[is_check:]
    if not words or words[0].startswith("-") or len(words) > (1 if is_check else 2):
        raise SystemExit(__doc__)
    new = set(names(Path(words[1]) if len(words) > 1 else ROOT, Path(words[0])))
    if not is_check:
        print("\n".join(sorted(new)))
        return 0
    old = {line for line in LIST.read_text().splitlines() if line and not line.startswith("#")}
    gone = list(lost(old, new))
    for kind in sorted({name.split()[0] for name in old}):
        missing = [name for name in gone if name.split()[0] == kind]
        print(f"{'not ok' if missing else 'ok'} - this release has every {kind} name of the one before")
        for name in missing:
            print(f"  # {name}")
    # The list and the comparison can fail: each kind is there, and a name that nobody has is missed.
    kinds = {name.split()[0] for name in old}
    is_full = kinds == {"sql", "command", "configuration", "http", "metric", "wire"}
    is_seen = list(lost({"command push-gateway dance", "sql function claim_calls(p_a text)"}, {"sql function claim_calls(p_b text)"}))
    print(f"{'ok' if is_full else 'not ok'} - the list has every kind of name")
    print(f"{'ok' if len(is_seen) == 2 else 'not ok'} - a name that is gone is noticed")
    kinds_failed = len({name.split()[0] for name in gone}) + (not is_full) + (len(is_seen) != 2)
    print(f"{len(kinds) + 2 - kinds_failed} passed, {kinds_failed} failed")
    return 1 if kinds_failed else 0


if __name__ == "__main__":
    sys.exit(main())
