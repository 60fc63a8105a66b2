"""What docs/operations promises to whoever is led there, and to whoever pastes a block.

- The page that an alert, a hint of push.health, the dashboard or the index names for an alert or an item names that alert or item.
- A block under "What to look at" changes nothing. Elsewhere, a block that changes something does not begin with reading, which must be
  judged first, and calls one function, so that nothing is taken back or revoked by pasting it.
- A query of lanes shows `channel`: the push services of browsers have lanes of their own, all with the provider webpush.
- `push-gateway check-config` is shown with its file, and a backslash of psql is not doubled.
"""

import re
from pathlib import Path

from page import Page

ROOT = Path(__file__).resolve().parents[2]
FOLDER, INDEX, JOBS = "docs/operations", "docs/operations.md", "docs/operations/housekeeping-is-overdue.md"
DAILY = "shortcuts-and-the-daily-look"
ALERTS, HEALTH, TROUBLES = "deploy/prometheus/alerts.yml", "migrations/functions/health.sql", "dashboard/troubles.js"
OVERDUE = "migrations/functions/jobs.sql"
CHANGES = re.compile(r"(?:insert|update|delete|create|alter|drop|grant|revoke|truncate|call|do|copy)\b", re.I)


def sources():
    return {name: (ROOT / name).read_text() for name in (ALERTS, HEALTH, OVERDUE, TROUBLES)}


def lead_faults(files, texts):
    """files: the pages; texts: those of `sources`."""
    leads = [*alert_leads(texts[ALERTS]), *hint_leads(texts[HEALTH]), *dashboard_leads(texts[TROUBLES], items(texts[HEALTH])),
             *index_leads(files[INDEX])]
    for source, what, page in leads:
        if f"`{what}`" not in files.get(f"{FOLDER}/{page}.md", ""):
            yield f"{source} leads to {page} for {what}, which the page does not name"
    indexed = {(what, page) for source, what, page in leads if source == INDEX}
    yield from (f"{INDEX} does not name the alert {alert} beside {page}" for _, alert, page in alert_leads(texts[ALERTS])
                if (alert, page) not in indexed)
    yield from (f"{INDEX} has no page for {item} in push.health" for item in items(texts[HEALTH])
                if item not in {what for what, _ in indexed})
    yield from (f"{ALERTS}: {anchor} is an anchor of no page" for anchor in re.findall(r"\(#[\w-]+\)", texts[ALERTS]))
    names = re.search(r"unnest\(array\[(.*?)\]\) r\(name\)", texts[OVERDUE], re.S)
    yield from (f"{JOBS} does not say what the job {job} does" for job in re.findall(r"'(\w+)'", names[1])
                if f"`{job}`" not in files.get(JOBS, ""))


def alert_leads(text):
    """Each alert with the page of its runbook: (source, what, page)."""
    parts = re.split(r"- alert: (\w+)", text)[1:]
    return [(ALERTS, alert, page) for alert, body in zip(parts[::2], parts[1::2])
            for page in re.findall(r"runbook_url: \S+/([\w-]+)\.md", body)]


def checks_of(text):
    """Each check of push.health with the source of its branch. What is counted for each table has one name."""
    parts = re.split(r"\bselect '([A-Za-z][a-zA-Z ]+?)(?: of push\.)?'", text)[1:]
    return list(zip(parts[::2], parts[1::2]))


def items(text):
    return [item for item, _ in checks_of(text)]


def hint_leads(text):
    return [(HEALTH, item, page) for item, body in checks_of(text) for page in re.findall(r"([\w-]+)\.md", body)]


def dashboard_leads(text, all_items):
    pages = {quoted or plain: page for quoted, plain, page in
             re.findall(r'(?:"([\w ]+)"|\b(\w+)): "([\w-]+)"', text.split("const pages = {")[1].split("};")[0])}
    found = [(TROUBLES, item, pages.get(item, DAILY)) for item in all_items]
    item = None
    for line in text.split("export const pageOf")[1].split("\n};")[0].split("\n"):
        item = (re.findall(r'item [!=]== "(\w+)"', line) or [item])[-1]
        found += [(TROUBLES, item, page) for page in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', line) if page != DAILY]
    return found


def index_leads(text):
    """What a row names as an alert, or as an item of push.health."""
    for line in text.split("\n"):
        cells = line.split("|")
        page = re.search(rf"\]\({FOLDER.removeprefix('docs/')}/([\w-]+)\.md\)", line)
        if len(cells) == 4 and page:
            for part in re.findall(r"alerts? (`\w+`(?:, `\w+`)*)|(`[\w ]+`(?:(?:,| or| and) `[\w ]+`)*) in `push\.health`", cells[1]):
                yield from ((INDEX, what, page[1]) for what in re.findall(r"`([\w ]+)`", "".join(part)))


def volatile_functions():
    """Names of functions that may change something."""
    found = set()
    for path in sorted((ROOT / "migrations/functions").glob("*.sql")):
        for name, head in re.findall(r"create or replace function push\.(\w+)(.*?)\bas \$\$", path.read_text(), re.S):
            if not re.search(r"\b(stable|immutable)\b|returns trigger", head):
                found.add(name)
    return found


def statements(block):
    """What a block makes psql do. A transaction is one statement."""
    text = ";\n".join(re.findall(r'-c "(.*?)"', block.text)) if block.language == "sh" else block.text
    text = re.sub(r"'[^']*'|--[^\n]*", "", text)
    found = [part.strip() for line in re.split(r"(?m)^(:\w+.*)$", text)
             for part in ([line] if line.startswith(":") else re.split(r";|\\g\w*", line)) if part.strip()]
    return [next(filter(CHANGES.match, found), "select")] if found[:1] == ["begin"] else found


def block_faults(files):
    changing = volatile_functions()

    def changed(statement):
        """What a statement changes things with; None: it reads."""
        word, called = CHANGES.match(statement), changing & set(re.findall(r"push\.(\w+)\(", statement))
        return min(called) if called else word[0] if word else None

    for name, text in files.items():
        if not name.startswith(f"{FOLDER}/"):
            continue
        lines = text.split("\n")
        for block in Page(name, text).blocks:
            if block.language not in ("sql", "sh"):
                continue
            heading = next((line for line in reversed(lines[:block.line]) if line.startswith("## ")), "")
            found = [changed(statement) for statement in statements(block)]
            changes = [index for index, word in enumerate(found) if word]
            words = dict.fromkeys(filter(None, found))
            if changes and heading == "## What to look at":
                yield f"{name}:{block.line}: {found[changes[0]]} under What to look at"
            elif changes and None in found[:changes[-1]]:
                yield f"{name}:{block.line}: {found[changes[-1]]} in one block with what must be read before"
            elif len(words.keys() - {"create"}) > 1:
                yield f"{name}:{block.line}: {' and '.join(words)} in one block"


def lane_faults(files):
    shortcuts = "deploy/psql/ops.psqlrc"
    for name, text in [*files.items(), (shortcuts, (ROOT / shortcuts).read_text())]:
        queries = [text] if name == shortcuts else [block.text for block in Page(name, text).blocks if block.language == "sql"]
        for listed in re.findall(r"\bselect\b((?:(?!\bselect\b)[^;])*?)\bfrom push\.lanes\b", "\n;".join(queries)):
            if re.search(r"\bprovider\b", re.sub(r"\bchannel as provider\b", "", listed)):
                yield f"{name}: a query of push.lanes shows provider, not channel: {' '.join(listed.split())[:60]}"


def typed_faults(files):
    for name, text in files.items():
        if name.startswith(f"{FOLDER}/"):
            yield from (f"{name}: {command}: name the file (--config)" for command in re.findall(r"push-gateway check-config[^`\n]*", text)
                        if "--config" not in command)
            yield from (f"{name}: {span} has two backslashes" for span in re.findall(r"`\\\\[^`]*`", text))
