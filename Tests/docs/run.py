#!/usr/bin/env python3
"""Runs the commands that the documentation shows, and compares what they print with what it says they print.

  Tests/docs/run.py [DATABASE_URL] [FILE.md …]      (else the variable DATABASE_URL)
  Tests/docs/run.py --write-tables                  put the tables of what phones do in order

Needs psql and nothing else, and a role that may create databases and become push_ops, push_keys and push_enqueuer. Makes scratch
databases beside the given one and drops them again. Ends with "N passed, N failed"; non-zero when any failed.

A comment `<!-- psql: NAME -->` on a page opens a situation: a database with the schema, set up by situations/NAME.sql.
From there on every ```sql block is typed into one psql, until the next such comment or `<!-- psql: end -->`. `NAME as
ROLE` types them as that role. A block without a language right after one of them is what psql must print; there is none
where it prints nothing. Times, UUIDs, keys and process ids may differ, durations by as much as the test takes.

`<!-- json: METHOD /path -->` says that the next ```json block, or the body of the next `curl`, is a body that
openapi.yaml wants for that request. `<!-- situations: … -->` says what the table after it must show: see phones.py.
`<!-- file: NAME -->` names the file that the next block is; Tests/integrations runs those. JavaScript, Java, Swift and Lua
are shown to node, javac, swiftc and luac, where there are these; YAML must be YAML. `<!-- shell: NAME -->` is for live.py,
which types into a shell with the real programs; `<!-- not run: WHY -->` says why the next block is not run (commands.py).
Links must lead somewhere, those of alerts and hints to docs/operations, too, and every `push.name` must exist. security.md names every
table, with what it holds of people, and tests that exist.
"""

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import phones
from checks import COMPILERS, body_fault, compiler, link_fault, openapi, program_fault, runbook_faults, security_faults, yaml_fault
from page import ROOT, Page
from session import Postgres, run

OPERATIONS, SECURITY = "docs/operations", "docs/security.md"
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", *sorted(
    str(path.relative_to(ROOT)) for path in [
        *ROOT.glob("docs/*.md"), *ROOT.glob("docs/integrations/*.md"), *ROOT.glob("docs/operations/*.md"),
        *ROOT.glob("Tests/*/README.md")])]

# Tables that `migrate` makes, a setting that push.claim makes, and what only a router has (deploy/plproxy/router.sql).
MADE_BY_PROGRAMS = {"schema_functions", "schema_migration", "entries_scanned", "shards", "set_shard", "router_faults"}
RELATION = re.compile(r"(?<![\w./@-])push\.([a-z_]+)(?!\.\w|[a-z_])")


def main():
    arguments = sys.argv[1:]
    if arguments == ["--write-tables"]:
        print(*[page.name for page in map(Page, PAGES) if phones.write(page)], sep="\n")
        return
    given = arguments.pop(0) if arguments and "://" in arguments[0] else os.environ.get("DATABASE_URL")
    if not given:
        raise SystemExit(__doc__)
    pages = [Page(name) for name in arguments or PAGES]
    postgres = Postgres(given)
    try:
        results = [*run_situations(postgres, pages), *check_pages(pages, postgres)]
    finally:
        postgres.drop()
    failures = [f"not ok - {where}: {fault}" for where, fault in results if fault]
    print(*skipped(pages), *failures, f"{len(results) - len(failures)} passed, {len(failures)} failed", sep="\n")
    raise SystemExit(1 if failures or not results else 0)


def run_situations(postgres, pages):
    """Types what the pages show, several situations at a time; yields (where, fault or None)."""
    situations = [situation for page in pages for situation in page.situations]

    def play(situation):
        return run(postgres, situation, has_shortcuts=situation.page.startswith(OPERATIONS))

    with ThreadPoolExecutor(4) as pool:
        for situation, blocks in zip(situations, pool.map(play, situations)):
            yield f"{situation.page}:{situation.line}", None if blocks else "a situation without SQL"
            for block, fault in blocks:
                yield f"{situation.page}:{block.line} ({situation.name})", fault


def check_pages(pages, postgres):
    """What needs no psql; yields (where, fault or None)."""
    document, names = openapi(), postgres.names() | MADE_BY_PROGRAMS
    for page in pages:
        if page.name.startswith(OPERATIONS):
            yield page.name, next((f"SQL in line {block.line} is not tested" for block in page.loose), None)
        if page.name == f"{OPERATIONS}.md":
            yield page.name, next(runbook_faults(), None)
        if page.name == SECURITY:
            yield from ((page.name, fault) for fault in security_faults(page, postgres.columns()))
        for block, request in page.bodies:
            yield f"{page.name}:{block.line}", body_fault(block, request, document)
        for block in page.programs:
            if block.language in COMPILERS and compiler(block.language):
                yield f"{page.name}:{block.line}", program_fault(block)
            if block.language == "yaml":
                yield f"{page.name}:{block.line}", yaml_fault(block)
        for line, words, shown in page.tables:
            yield f"{page.name}:{line}", phones.fault(words, shown)
        for line, target in page.links:
            yield f"{page.name}:{line}", link_fault(page, target)
        unknown = sorted(set(RELATION.findall(page.text)) - names)
        yield page.name, f"there is no push.{unknown[0]}" if unknown else None


def skipped(pages):
    """What could not be checked here, and why."""
    if openapi() is None and any(page.bodies for page in pages):
        yield "skipped - request bodies are read as JSON only: there is no openapi.yaml, or no PyYAML"
    for language in sorted({block.language for page in pages for block in page.programs} & COMPILERS.keys()):
        if compiler(language) is None:
            yield f"skipped - {language} is not checked: there is no {COMPILERS[language][1][0]}"


if __name__ == "__main__":
    main()
