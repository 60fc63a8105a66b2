#!/usr/bin/env python3
"""The tests of the documentation site that need neither MkDocs nor a network: a second.

  Tests/site/run.py

- Links and anchors in every Markdown file of the repository lead somewhere, and pictures have a text.
- Every page of docs/operations has the same four headings and at most 1,200 words, and docs/operations.md leads to it.
- What leads to a page for an alert or a check of push.health leads to one that names it, and blocks that are pasted there do no harm: see
  operations.py.
- Every number of docs/limits.md is in the sources that its row names: see limits.py.
- An ADR that a later one supersedes, also in part, says so in its first line.
- The navigation of mkdocs.yml has every page, once, and no others.
- The page about the HTTP API has everything that openapi.yaml has.
- Every command that a page shows is run by a test, or the page says in a comment why not: see commands.py.
- Tests/README.md names every folder of tests, and the tests of every promise of the first page.
- What the checks are for makes them fail. `make site` checks the built site.
Ends with "N passed, N failed"; non-zero when any failed.
"""

import copy
import re
import sys
from collections import Counter
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/site"), str(ROOT / "Tests/docs")]

import yaml  # noqa: E402

import api_reference  # noqa: E402
import commands  # noqa: E402
import github_markdown  # noqa: E402
import limits  # noqa: E402
import operations  # noqa: E402
import repository  # noqa: E402

FIRST_PAGE, FIRST_PAGE_LINES = "README.md", 250
TESTS_PAGE = "Tests/README.md"
SYMPTOMS, SYMPTOM_WORDS = "docs/operations", 1200
SYMPTOM_HEADINGS = ["What it means", "What to look at", "What to do", "What not to do"]
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
TARGET = re.compile(r"\]\(([^)\s]+)\)")
# Other hosts that pages link to are not asked; a link without a scheme is no address.
results = []


def check(what, faults):
    faults = list(faults)
    results.append(not faults)
    print(f"{'not ok' if faults else 'ok'} - {what}{': ' if faults else ''}{'; '.join(map(str, faults[:20]))}")


def main():
    files = {name: (ROOT / name).read_text() for name in repository.markdown_files()}
    check("links and anchors lead somewhere", link_faults(files))
    check("pictures are there and have a text", picture_faults(files))
    check("no diagram needs a script of another host", mermaid_faults(files))
    check(f"the pages of {SYMPTOMS} have one form, and the index has them", symptom_faults(files))
    check("alerts, checks of push.health and the dashboard lead to pages that name them",
          operations.lead_faults(files, operations.sources()))
    check("blocks that show something change nothing, and others one thing", operations.block_faults(files))
    check("queries of lanes show their channel", operations.lane_faults(files))
    check("commands of operations can be typed as they stand", operations.typed_faults(files))
    check(f"the numbers of {limits.PAGE} are those of the sources", limits.faults(files[limits.PAGE]))
    check("an ADR that is superseded says so in its first line", decision_faults(files))
    navigation = repository.settings()["nav"]
    check("the navigation has every page once", navigation_faults(files, navigation))
    document = yaml.safe_load((ROOT / "openapi.yaml").read_text())
    check("the reference page has everything of openapi.yaml", reference_faults(document, api_reference.page()))
    check("every command is run by a test, or the page says why not", commands.faults(files))
    check(f"{TESTS_PAGE} has every folder of tests, and every promise", tests_page_faults(files))
    check("make help-all lists every target, and make help a dozen", commands.help_faults())
    check(f"{FIRST_PAGE} has at most {FIRST_PAGE_LINES} lines", first_page_faults(files))
    check("the packages of the site have exact versions and hashes", requirement_faults())
    check("the site's version is the program's", [] if re.fullmatch(r"\d+\.\d+\.\d+\S*", repository.version()) else ["no version"])
    conversions()
    detections(files, navigation, document)
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    sys.exit(0 if passed == len(results) else 1)


def prose(text):
    """(number, line) of the lines outside of blocks of code, without what is code in them."""
    end = None
    for number, line in enumerate(text.split("\n"), 1):
        fence = github_markdown.FENCE.match(line)
        if end is not None:
            end = None if line.strip() == end else end
        elif fence:
            end = fence[2]
        else:
            yield number, re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", line)


def anchors(text):
    return {anchor for _, _, _, anchor in github_markdown.headings(text.split("\n"))}


def link_faults(files):
    known = {}
    for name, text in files.items():
        for number, line in prose(text):
            for target in TARGET.findall(line):
                found = repository.leads_to(name, target)
                if found is None:
                    continue
                file, anchor = found
                if not (ROOT / file).exists() and file not in files:
                    yield f"{name}:{number}: {target}: there is no such file"
                elif anchor and file in files:
                    known.setdefault(file, anchors(files[file]))
                    if anchor not in known[file]:
                        yield f"{name}:{number}: {target}: there is no such heading"
                elif anchor:
                    yield f"{name}:{number}: {target}: an anchor in a file that is no page"


def picture_faults(files):
    for name, text in files.items():
        for number, line in prose(text):
            yield from (f"{name}:{number}: a picture without a text" for words, _ in IMAGE.findall(line) if not words.strip())
            yield from (f"{name}:{number}: a picture of another host" for _, target in IMAGE.findall(line) if "//" in target)


def mermaid_faults(files):
    for name, text in files.items():
        yield from (f"{name}:{number}: draw this as a picture in docs/images, as docs/images/overview.svg"
                    for number, line in enumerate(text.split("\n"), 1) if line.strip() == "```mermaid")


def symptom_faults(files):
    index, pages = files[f"{SYMPTOMS}.md"], {name: text for name, text in files.items() if name.startswith(f"{SYMPTOMS}/")}
    if not pages:
        yield "there are none"
    for name, text in pages.items():
        found = [(level, title) for _, level, title, _ in github_markdown.headings(text.split("\n"))]
        if [level for level, _ in found[:1]] != [1] or found[1:] != [(2, title) for title in SYMPTOM_HEADINGS]:
            yield f"{name}: its headings are not a title and {', '.join(SYMPTOM_HEADINGS)}"
        if (count := len(text.split())) > SYMPTOM_WORDS:
            yield f"{name} has {count} words, where {SYMPTOM_WORDS} are the most"
        if f"]({name.removeprefix('docs/')})" not in index:
            yield f"{SYMPTOMS}.md does not lead to {name}"


def decision_faults(files):
    """“Superseded by”, or “In part superseded by”, and later ADRs. What a later one says that it supersedes names that one there."""
    pages = {int(name[9:13]): (name, text) for name, text in files.items() if re.match(r"docs/adr/\d", name)}
    notes = {}
    for number, (name, text) in pages.items():
        first = text.split("\n\n")[1]
        notes[number] = {int(other) for other in re.findall(r"\[ADR\s+(\d+)\]", first)} if "uperseded" in first else set()
        if "uperseded" in first and not re.match(r"(Superseded|In part superseded) by \[ADR \d+\]", first):
            yield f"{name}: its first line does not begin with (In part) superseded by [ADR …]"
        yield from (f"{name} is superseded by ADR {other}, which is not later" for other in notes[number] if other <= number)
    for number, (name, text) in pages.items():
        for sentence in re.findall(r"(?:supersedes|Replaces the part of) .*?\.(?:\n|$)", text, re.S):
            yield from (f"{pages[int(other)][0]} does not say that ADR {number} supersedes it"
                        for other in re.findall(r"\[ADR\s+(\d+)\]", sentence) if number not in notes[int(other)])


def navigation_faults(files, navigation):
    shown = Counter(repository.paths(repository.navigation(navigation)))
    pages = {repository.on_site(name) for name in files if not repository.NO_PAGES.match(name)}
    for name in files:
        if repository.on_site(name) is None and not repository.NO_PAGES.match(name):
            yield f"{name} is no page of the site: PAGES_ELSEWHERE in scripts/site/repository.py names those outside of docs/"
    pages |= {repository.API_REFERENCE, repository.DECISIONS}
    yield from (f"{path} has no line in the nav of mkdocs.yml" for path in sorted(pages - shown.keys() - {None}))
    yield from (f"mkdocs.yml has {path}, which is no page" for path in sorted(shown.keys() - pages))
    yield from (f"mkdocs.yml has {path} {count} times" for path, count in shown.items() if count > 1)


def reference_faults(document, page):
    def missing(what, part):
        return [] if part in page else [f"{what} is missing"]

    for path, item in document["paths"].items():
        for method in api_reference.METHODS:
            if method in item:
                operation = item[method]
                yield from missing(f"{method} {path}", f"\n{method.upper()} {path}\n")
                yield from missing(operation["operationId"], f"{operation['summary']} {{: #{operation['operationId']} }}")
                section = page.split(f"{{: #{operation['operationId']} }}")[-1].split("\n### ")[0]
                yield from (f"{method} {path}: the answer {status} is missing" for status in operation["responses"]
                            if f"| `{status}` |" not in section)
    for name, schema in document["components"]["schemas"].items():
        yield from missing(f"the type {name}", f"### {name} {{: #type-{name} }}")
        section = page.split(f"{{: #type-{name} }}")[-1].split("\n### ")[0]
        yield from (f"{name}.{member} is missing" for member in schema.get("properties", {}) if f"| `{member}`" not in section)
    for name in document["components"]["responses"]:
        yield from missing(f"the answer {name}", f"### {name} {{: #answer-{name} }}")
    ids = set(re.findall(r"\{: #([\w-]+) \}", page)) | anchors(page)
    yield from (f"#{anchor} leads nowhere" for anchor in sorted(set(re.findall(r"\]\(#([\w-]+)\)", page)) - ids))


def tests_page_faults(files):
    """The links of the page are checked as those of every page are."""
    page = files[TESTS_PAGE]
    for folder in sorted(path.name for path in (ROOT / "Tests").iterdir() if path.is_dir() and path.name != "__pycache__"):
        if f"[{folder}]({folder})" not in page:
            yield f"the folder {folder} is missing"
    promises = re.findall(r"^- \*\*(.+?)\*\*", files[FIRST_PAGE].split("## What it promises")[1].split("\n## ")[0], re.M)
    rows = {cells[1].strip(" *"): cells[2:-1] for cells in (line.split("|") for line in page.split("\n")) if len(cells) == 6}
    for promise in promises:
        if not all("](" in cell for cell in rows.get(promise, [""])):
            yield f"the promise “{promise}” has no tests in some column"
    if not promises:
        yield f"{FIRST_PAGE} promises nothing"


def first_page_faults(files):
    count = files[FIRST_PAGE].count("\n")
    return [f"it has {count}"] if count > FIRST_PAGE_LINES else []


def requirement_faults():
    text = (ROOT / "scripts/site/requirements.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    yield from (line.split()[0] for line in lines if not re.match(r"[\w.-]+==[\w.]+ +.*--hash=sha256:[0-9a-f]{64}", line))
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.M))
    for name, version in re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "scripts/site/requirements.in").read_text(), re.M):
        if locked.get(name) != version:
            yield f"requirements.txt has {name} {locked.get(name)}, requirements.in {version}: run scripts/site.sh --lock"


def conversions():
    """What GitHub's Markdown becomes for MkDocs."""
    for what, given, want in [
        ("a list after a paragraph", "Text:\n- one\n- two\n", "Text:\n\n- one\n- two\n"),
        ("a list in a list", "- one\n  - two\n\n    more\n", "- one\n    - two\n\n        more\n"),
        ("a block in an item", "1. one\n\n   ```sh\n   if a\n     b\n   ```\n\ntext\n",
         "1. one\n\n    ```sh\n    if a\n      b\n    ```\n\ntext\n"),
        ("no list in a block", "```\n- a\n # b\n```\n", "```\n- a\n # b\n```\n"),
        ("an item's further lines", "- one\n  two\n- three\n", "- one\n    two\n- three\n"),
        ("a comment", "a\n\n<!-- psql: tour -->\n\nb\n", "a\n\n\nb\n"),
        ("a heading", "## How it `is`: a$b\n", "## How it `is`: a$b {: #how-it-is-ab }\n"),
        ("two headings", "# A\n\n# A\n", "# A {: #a }\n\n# A {: #a-1 }\n"),
        ("a pipe in a table", "|a|\n|-|\n|`b \\| c`|\n", "|a|\n|-|\n|`b | c`|\n"),
        ("a link to a page", "[a](docs/sql.md#roles-and-poolers)\n", "[a](sql.md#roles-and-poolers)\n"),
        ("a link to a folder", "[a](docs/integrations)\n", "[a](integrations/README.md)\n"),
        ("a link to another host", "[a](https://example.com/docs)\n", "[a](https://example.com/docs)\n"),
        ("a link to the sources", "[the\nplan](Package.swift)\n", "the\nplan (`Package.swift`)\n"),
        ("a link as code", "`[a](b.md)`\n", "`[a](b.md)`\n"),
    ]:
        got = github_markdown.convert(given, "README.md", "index.md")
        check(f"conversion: {what}", [] if got == want else [f"got {got!r}, want {want!r}"])


def detections(files, navigation, document):
    """Each check sees what it is for."""
    def sees(what, faults):
        check(f"is seen: {what}", [] if list(faults) else ["no check says so"])

    page = "docs/sql.md"
    sees("a link to a file that is not there", link_faults({**files, page: files[page] + "\n[a](nowhere.md)\n"}))
    sees("a link to a heading that is not there", link_faults({**files, page: files[page] + "\n[a](security.md#nothing)\n"}))
    renamed = files[page].replace("## Answering, declining and ending a call", "## Answering")
    sees("a heading that was renamed", link_faults({**files, page: renamed}))
    sees("a picture without a text", picture_faults({page: "![](images/overview.svg)\n"}))
    sees("a diagram in Mermaid", mermaid_faults({page: "```mermaid\n```\n"}))
    sees("a page that the navigation has not", navigation_faults(files, [entry for entry in navigation if "Releases" not in entry]))
    sees("a page that is not there", navigation_faults(files, [*navigation, {"New": "new.md"}]))
    sees("a command that no test runs", commands.faults({page: "```sh\nmake coffee\n```\n"}))
    sees("a target in the text that is not there", commands.faults({page: "Run `make coffee`.\n"}))
    sees("a promise without tests", tests_page_faults({**files, FIRST_PAGE: files[FIRST_PAGE].replace("**Never late.**", "**Soon.**")}))
    symptom = f"{SYMPTOMS}/backlog-grows.md"
    other = files[symptom].replace("## What to do", "## Doing")
    sees("a page of a symptom that says not what to do", symptom_faults({**files, symptom: other}))
    sees("a page of a symptom that is too long", symptom_faults({**files, symptom: files[symptom] + "more " * SYMPTOM_WORDS}))
    sees("a page of a symptom that the index has not", symptom_faults({**files, f"{SYMPTOMS}/new.md": files[symptom]}))
    leads = {**files, symptom: files[symptom].replace("`BacklogAging`", "`Backlog`")}
    sees("an alert that its page does not name", operations.lead_faults(leads, operations.sources()))
    leads = {**files, operations.INDEX: files[operations.INDEX].replace("`other logins` in `push.health`", "logins")}
    sees("a check of push.health that the index has not", operations.lead_faults(leads, operations.sources()))
    texts = operations.sources()
    texts[operations.TROUBLES] = texts[operations.TROUBLES].replace('claims: "back-up-and-restore"', 'claims: "backlog-grows"')
    sees("a check of push.health whose page does not name it", operations.lead_faults(files, texts))
    jobs = {**files, operations.JOBS: files[operations.JOBS].replace("`tally`", "counting")}
    sees("a job that no page explains", operations.lead_faults(jobs, operations.sources()))
    block = "# A\n\n## What to {}\n\n```sql\n{};\n```\n"
    revoked, paused = "select message from push.revoke_api_key(1)", "select message from push.pause_lane('porteiro', 'fcm')"
    sees("a look that changes something", operations.block_faults({symptom: block.format("look at", revoked)}))
    sees("a change before its reason is read",
         operations.block_faults({symptom: block.format("do", f"select id from push.keys;\n{revoked}")}))
    sees("two changes in one block", operations.block_faults({symptom: block.format("do", f"{revoked};\n{paused}")}))
    shell = block.format("look at", "").replace("sql\n;", f'sh\npsql "$DATABASE_URL" -c "{revoked}"')
    sees("a look in a shell that changes something", operations.block_faults({symptom: shell}))
    sees("a query of lanes without their channel", operations.lane_faults({symptom: block.format("do", "select provider from push.lanes")}))
    sees("check-config without a file", operations.typed_faults({symptom: "Run `push-gateway check-config --connect`.\n"}))
    sees("two backslashes", operations.typed_faults({symptom: "`\\\\d push.lanes`\n"}))
    table = files[limits.PAGE]
    sees("a limit that the sources do not have", limits.faults(table.replace("| 1,000 | `push.call_fault`", "| 999 | `push.call_fault`")))
    sees("a time that the sources do not have", limits.faults(table.replace("250 ms doubling to 15 s", "250 ms doubling to 17 s")))
    sees("a limit that nobody meets", limits.faults(table + "| new | 1,000 | `push.call_fault` |\n" * limits.ROWS_MAX))
    sees("a limit whose place is not there", limits.faults(table.replace("`LaneCircuit.Limits`", "`LaneCircuit.Borders`")))
    superseded = "docs/adr/0008-fallback-inside-settle.md"
    sees("a superseded ADR that does not say so", decision_faults({**files, superseded: "# 8. Title\n\n## Context\n"}))
    without = files[TESTS_PAGE].replace("[jwt](jwt)", "jwt")
    sees("a folder of tests that the page has not", tests_page_faults({**files, TESTS_PAGE: without}))
    sees("a command without a language", commands.faults({page: "```\ncurl http://127.0.0.1:8080/\n```\n"}))
    changed = copy.deepcopy(document)
    changed["components"]["schemas"]["APNsDevice"]["properties"]["colour"] = {"type": "string"}
    sees("a member that the reference page has not", reference_faults(changed, api_reference.page()))
    changed = copy.deepcopy(document)
    changed["paths"]["/v1/new"] = {"get": changed["paths"]["/v1/calls/{callId}"]["get"]}
    sees("a request that the reference page has not", reference_faults(changed, api_reference.page()))
    check("the reference page follows openapi.yaml", reference_faults(changed, api_reference.render(changed)))


if __name__ == "__main__":
    main()
