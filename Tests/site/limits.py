"""Compares docs/limits.md with the sources.

The last column of a row names functions of the schema, and types and members in Swift: each must be there, and each number of the
column `default` must be in one of them, in one of the forms in which sources write it (4 hours: `4 hours`, `14_400`, `4 * 3_600`).
"""

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE, ROWS_MIN, ROWS_MAX = "docs/limits.md", 65, 75
CODE = re.compile(r"`([^`]+)`")
NUMBER = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) ?(‰|%|ms|s|min|minutes?|hours?|days?|KiB|MiB)?(?![\w.]*\w)")
# In units that sources count in; 1,000 is for what is counted in thousandths of them.
FACTORS = {"ms": [1000, 10**6], "s": [1000, 10**9], "min": [60], "minute": [60], "hour": [60, 3600, 3_600_000], "day": [24, 86_400],
           "KiB": [1024], "MiB": [1024, 1_048_576], "%": [], "‰": [], None: []}
# What sources compute: why the number is not there.
COMPUTED = {
    ("silence with requests in flight before a PING", "8"): "1 s, doubled three times at most",
    ("notifications are sent while the server's notification queue is", "860"): "0.1 ‰ of what Postgres's queue holds",
}


@cache
def sources():
    return {path: path.read_text() for path in sorted((ROOT / "Sources").rglob("*.swift"))}


@cache
def functions():
    """The functions of the schema: their text by name."""
    found = {}
    for path in sorted((ROOT / "migrations/functions").glob("*.sql")):
        for part in re.split(r"(?m)^(?=create or replace )", path.read_text()):
            if name := re.match(r"create or replace (?:function|procedure) push\.(\w+)", part):
                found[name[1]] = found.get(name[1], "") + part
    return found


@cache
def texts_of(type_name):
    """The files that declare or extend a type."""
    declares = re.compile(rf"\b(?:struct|class|enum|actor|protocol|extension)\s+(?:\w+\.)*{type_name}\b")
    return [text for text in sources().values() if declares.search(text)]


def text_of(name, before):
    """(what a name of the last column stands for, as text, and the type that a following `.member` is one of); None if there is no such."""
    if name.startswith("push."):
        return functions().get(name.removeprefix("push.")), None
    if "+" in name:
        return next((text for path, text in sources().items() if path.stem == name), None), None
    type_name, _, members = name.partition(".")
    if not type_name[:1].isupper():
        type_name, members = (before, members) if name.startswith(".") else (None, name)
    texts = texts_of(type_name) if type_name else list(sources().values())
    for member in filter(None, members.split(".")):
        declares = re.compile(rf"\b(?:let|var|case|func|struct|enum)\s+{member}\b|\"[\w.*]*\b{member}\"|{member}: ")
        texts = [text for text in texts if declares.search(text)] + (texts_of(member) if member[:1].isupper() else [])
    return "\n".join(texts) or None, type_name


def forms(number, unit):
    """The ways in which a number may stand in a source, as regular expressions."""
    value = float(number.replace(",", ""))
    values = {value} | {value * factor for factor in FACTORS[unit.removesuffix("s") if unit and len(unit) > 2 else unit]}
    if unit in ("ms", "%"):
        values |= {value / 1000, value / 100}
    for each in values:
        digits = f"{each:.9f}".rstrip("0").rstrip(".")
        whole, _, part = digits.partition(".")
        yield rf"(?<![\d_])(?<!\d\.){'_?'.join(whole)}{re.escape('.' + part) if part else '(?:[.]0+)?'}(?![\d_]|[.]\d)"


def rows(page):
    for number, line in enumerate(page.split("\n"), 1):
        cells = re.split(r"(?<!\\) \| ", line.strip().removeprefix("| ").removesuffix(" |"))
        if line.startswith("| ") and len(cells) == 3 and cells[0] != "what":
            yield number, *cells


def faults(page):
    found = list(rows(page))
    if len(found) < ROWS_MIN:
        yield f"{PAGE} has {len(found)} rows, where it had {ROWS_MIN}"
    elif len(found) > ROWS_MAX:
        yield f"{PAGE} has {len(found)} rows, more than {ROWS_MAX}: leave out what nobody meets, and let limits share a constant"
    for line, what, default, where in found:
        text, before = "", None
        names = CODE.findall(re.sub(r"\[[^\]]*\]\([^)]*\)", "", where))
        if not names:
            yield f"{PAGE}:{line}: ({what}) names no place"
        for name in names:
            part, owner = text_of(name, before)
            before = owner or before
            if part is None:
                yield f"{PAGE}:{line}: there is no {name}"
            text += part or ""
        for number, unit in NUMBER.findall(CODE.sub("", default)):
            if (what, number) not in COMPUTED and not any(re.search(form, text) for form in forms(number, unit or None)):
                yield f"{PAGE}:{line}: ({what}) {number} {unit} is not in {', '.join(names)}"
