#!/usr/bin/python3
"""Whether openapi.yaml lists every word that an answer of the HTTP API can have, and no other.

A client that is generated from an enum fails at a word that is not in it. So an answer has no enum, but an x-extensible-enum, and
its words are compared with what says them: the SQL of migrations/functions and the sources of the API. Ends with "N passed, N
failed"; non-zero when any failed. Debian's Python: it has the YAML of openapi.yaml.
"""

import copy
import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
SQL = "\n".join(file.read_text() for file in sorted([*ROOT.glob("migrations/*.sql"), *ROOT.glob("migrations/functions/*.sql")]))
API = ROOT / "Sources/HTTPSurface/API"
URN = "urn:push-gateway:problem:"
results = []


def function(name):
    """The body of a function of the schema, without comments."""
    return re.sub(r"--.*", "", re.search(rf"create or replace function push\.{name}\(.*?\$\$(.*?)\$\$", SQL, re.S)[1])


def column(view, name):
    """The words that a column of a view can have, each as the result of a CASE."""
    body = re.search(rf"create or replace view push\.{view} as(.*?);", SQL, re.S)[1]
    return set(re.findall(r"(?:then|else) '(\w+)'", re.search(rf"case\b((?:(?!\bcase\b).)*?)\bend\s+as {name}\b", body, re.S)[1]))


def listed(pattern):
    """The words between quotes of the first group."""
    return set(re.findall(r"'(\w+)'", re.search(pattern, SQL, re.S)[1]))


def skip_reasons():
    return set(re.findall(r"'([A-Z][a-z]+(?:[A-Z][a-z]+)+)'", function("skipped_recipients") + function("recipient_faults")))


def declined():
    return listed(r"reason not in \((.*?)\)")


def push_states():
    return column("deliveries", "state") | column("delivery_history", "outcome")


def event_names():
    told = re.sub(r"->>? '\w+'|interval '[^']*'", "", function("timeline"))
    return set(re.findall(r"'([a-z][a-z_ ]*)'", told)) | push_states() | declined()


def problem_types():
    """Of the paths of the API alone: the dashboard's are not described, and other servers' paths have answers of other forms."""
    sources = "".join(file.read_text() for file in [*API.glob("*.swift"), *(API.parent / "Connections").glob("*.swift")])
    names = set(re.findall(r'APIProblem\([^"]*name: "([a-z-]+)"|unavailable\(\s*"([a-z-]+)"', sources))
    return {URN + (one or other) for one, other in names}


def matrix_codes():
    return set(re.findall(r'"(M_[A-Z_]+)"', (API / "Fronts/FrontAnswer.swift").read_text()))


SOURCES = {
    "ProblemType": problem_types, "SkipReason": skip_reasons, "CallState": lambda: listed(r"outbox_state_known check \(state in \((.*?)\)"),
    "CallKind": lambda: set(re.findall(r"\w+_\w+|message", re.search(r"'kind: must be (.*?)'", SQL)[1])),
    "DeclineReason": declined, "PushProvider": lambda: set(re.search(r"'\{(.*?)\}'", function("channels"))[1].split(",")),
    "PushKind": lambda: column("deliveries", "kind") | column("delivery_history", "kind"), "PushState": push_states,
    "EventName": event_names, "MatrixErrorCode": matrix_codes,
}


def lists(document):
    """(where, words, whether it is an enum) of every list of words in an answer; where is the name of the schema, if it has one.

    An enum of one word is a constant.
    """
    seen = set()

    def walk(part, where):
        if isinstance(part, list):
            for one in part:
                yield from walk(one, where)
        elif isinstance(part, dict):
            target = part.get("$ref", "").removeprefix("#/components/")
            if target and target not in seen:
                seen.add(target)
                kind, name = target.split("/")
                yield from walk(document["components"][kind][name], name)
            if len(part.get("enum", ())) > 1:
                yield where, part["enum"], True
            if "x-extensible-enum" in part:
                yield where, part["x-extensible-enum"], False
            for name, inner in part.items():
                if name not in ("enum", "x-extensible-enum", "examples", "example", "links"):
                    yield from walk(inner, where)

    for path, item in document["paths"].items():
        for operation in item.values():
            if isinstance(operation, dict):
                yield from walk(operation["responses"], path)


def faults(document):
    found = set()
    for where, words, is_enum in lists(document):
        found.add(where)
        if is_enum:
            yield f"{where}: an enum in an answer, at which generated clients fail if a later release says more: use x-extensible-enum"
        elif where not in SOURCES:
            yield f"{where}: a list of words in an answer, and nothing says where they come from"
        else:
            said = SOURCES[where]()
            yield from (f"{where}: {word} can be said, and is not listed" for word in sorted(said - set(words)))
            yield from (f"{where}: {word} is listed, and nothing says it" for word in sorted(set(words) - said))
    yield from (f"{name}: no answer has these words" for name in sorted(SOURCES.keys() - found))


def check(what, problems):
    results.append(not problems)
    print(f"{'not ok' if problems else 'ok'} - {what}")
    for problem in problems:
        print(f"  # {problem}")


def main():
    document = yaml.safe_load((ROOT / "openapi.yaml").read_text())
    check("openapi.yaml has every word of the answers", list(faults(document)))
    # What it would detect, of each list.
    for name in SOURCES:
        less, more, closed = (copy.deepcopy(document) for _ in range(3))
        less["components"]["schemas"][name]["x-extensible-enum"].pop()
        more["components"]["schemas"][name]["x-extensible-enum"].append("another")
        schema = closed["components"]["schemas"][name]
        schema["enum"] = schema.pop("x-extensible-enum")
        check(f"{name}: a word that is missing, one too many and an enum are detected",
              [] if all(len(list(faults(one))) == 1 for one in (less, more, closed)) else ["one is not"])
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    raise SystemExit(0 if passed == len(results) else 1)


if __name__ == "__main__":
    main()
