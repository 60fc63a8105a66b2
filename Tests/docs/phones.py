"""What phones do, as a table of a page: taken from Tests/GatewayTests/Situations, where the Swift tests hold it true.

A comment `<!-- situations: SYSTEM: PHONE, PHONE -->` says what the table after it shows, one column a phone.
"""

import re

from page import ROOT

SITUATIONS = ROOT / "Tests" / "GatewayTests" / "Situations"
# The phones of the situations, as a page calls them.
PHONES = {
    "iphone": "iPhone with PushKit and alert token", "iphone-fcm": "iPhone with an FCM token alone",
    "android-fcm": "Android by FCM", "iphone-expo": "iPhone with an Expo token alone", "android-expo": "Android by Expo",
}
# Where these change nothing of what the other does, they are left out; the pages say so once.
LIKE = {
    "nulls, numbers and extras": "call", "bad tokens among good ones": "call", "call id that is no UUID": "call",
    "call id that is no UUID, its push twice": "call, its push twice",
}
VARIANTS = {"seed": "document", "today": "app"}
LINE = re.compile(r"(?P<situation>.+?) \| (?P<phone>\S+) \(\w+\) \| (?P<states>[^(|]+?)(?: \((?P<variant>\w+)\))? \| (?P<does>.*)")


def table(words):
    """The table that a page must have; words: what its comment says."""
    system, _, names = words.partition(": ")
    phones = [name.strip() for name in names.split(",")]
    does = {}
    for line in (SITUATIONS / f"{system}.txt").read_text().splitlines():
        row = LINE.fullmatch(line)
        if row["phone"] in phones:
            does.setdefault(row["situation"], {}).setdefault(row["phone"], []).append(row)
    lines = ["| |" + "".join(f" {PHONES[phone]} |" for phone in phones), "|---|" + "---|" * len(phones)]
    rows = {what: "".join(f" {cell(cells.get(phone, []))} |" for phone in phones) for what, cells in does.items()}
    lines += [f"| {what} |{row}" for what, row in rows.items() if what not in LIKE or row != rows[LIKE[what]]]
    return "\n".join(lines)


def cell(rows):
    """What one phone does in one situation, by the app's text and the phone's state where these matter."""
    parts = []
    for row in rows:
        when = [VARIANTS[row["variant"]]] if row["variant"] else []
        when += [row["states"]] if row["states"] != "always" else []
        when = when or (["else"] if parts else [])
        does = row["does"].replace("; a tap leads to: app", "").replace("; a tap leads to: ", " → ")
        parts.append((f"*{', '.join(when)}:* " if when else "") + does)
    return "<br>".join(parts)


def fault(words, shown):
    """Why the table of a page is not what it must be; None: it is."""
    return None if shown == table(words) else (
        f"the table of {words} is not what {SITUATIONS.relative_to(ROOT)} says: run Tests/docs/run.py --write-tables")


def write(page):
    """Puts the tables of a page in order; true if one was not."""
    lines, changed = page.text.split("\n"), False
    for number, words, shown in reversed(page.tables):
        if fault(words, shown):
            first = number + (1 if number < len(lines) and not lines[number].strip() else 0)
            last = first + (len(shown.split("\n")) if shown else 0)
            lines[first:last] = table(words).split("\n")
            changed = True
    if changed:
        (ROOT / page.name).write_text("\n".join(lines))
    return changed
