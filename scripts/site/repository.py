"""The pages of the site, and where the links of the repository's Markdown lead on it.

A page is named by its path in the repository (docs/sql.md); on the site it has a path of its own (sql.md). The folder docs/
is the root of the site, and PAGES_ELSEWHERE lists the pages outside of it.
"""

import posixpath
import re
import subprocess
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]

# By their path in the repository; the first one is the site's first page.
PAGES_ELSEWHERE = {
    "README.md": "index.md",
    "deploy/README.md": "deploy.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "SECURITY.md": "reporting.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/portable/README.md": "public-benchmark.md",
    "Tests/README.md": "tests.md",
    "Tests/integrations/README.md": "tests-of-guides.md",
    "Tests/Simulation/README.md": "simulation.md",
    "Tests/Fuzz/README.md": "fuzzing.md",
    "Tests/soak/README.md": "soak.md",
}
# Files that are no pages and are copied as they are.
FILES = {"LICENSE": "LICENSE.txt", "NOTICE": "NOTICE.txt", "openapi.yaml": "openapi.yaml"}
# Pages that are made from other files.
API_REFERENCE, DECISIONS = "http-reference.md", "adr/index.md"
# What a link to these leads to: a page that shows it better.
SHOWN_BY = {"openapi.yaml": API_REFERENCE, "docs/adr": DECISIONS}
# Markdown that is not for readers of the site: forms that GitHub fills in.
NO_PAGES = re.compile(r"\.github/")

VERSION = re.compile(r'static let current = "([^"]+)"')


def version():
    """The version of the program."""
    return VERSION.search((ROOT / "Sources/Settings/GatewayVersion.swift").read_text())[1]


def markdown_files():
    """Every Markdown file that is in git or could be added to it."""
    command = ["git", "-c", "core.quotePath=off", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    names = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    return sorted({name for name in names if (ROOT / name).is_file()})


def on_site(name):
    """The site's path of a page, file or folder of the repository; None if the site does not have it."""
    name = name.rstrip("/")
    if name in SHOWN_BY:
        return SHOWN_BY[name]
    path = PAGES_ELSEWHERE.get(name) or FILES.get(name)
    if path is None and name.startswith("docs/") and (ROOT / name).is_dir():
        name += "/README.md"
    if path is None and name.startswith("docs/") and (ROOT / name).is_file():
        path = name.removeprefix("docs/")
    return path


def in_repository(path):
    """The repository's path of a page of the site; None for a page that is made from other files."""
    elsewhere = {site: name for name, site in PAGES_ELSEWHERE.items()}
    if path in elsewhere:
        return elsewhere[path]
    return f"docs/{path}" if (ROOT / "docs" / path).is_file() else None


def leads_to(name, target):
    """The repository's path that a link on the page `name` leads to, and its anchor; None for a link to another host."""
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name, anchor


def decisions():
    """(path on the site, title) of every ADR, in order."""
    for file in sorted((ROOT / "docs/adr").glob("[0-9]*.md")):
        yield f"adr/{file.name}", file.read_text().split("\n", 1)[0].removeprefix("# ")


def decisions_page():
    """The list of the ADRs."""
    rows = [f"- [{title}]({posixpath.basename(path)})" for path, title in decisions()]
    return "\n".join(["# Decisions", "", "Why the gateway is built as it is: one page for each decision, with its context and its",
                      "consequences.", "", *rows, ""])


def navigation(entries=None):
    """The navigation of mkdocs.yml, in which the entry `adr/` stands for the list of ADRs and every ADR."""
    if entries is None:
        entries = settings()["nav"]
    result = []
    for entry in entries:
        if isinstance(entry, str):
            result.append(entry)
            continue
        title, value = next(iter(entry.items()))
        if value == "adr/":
            value = [DECISIONS, *(path for path, _ in decisions())]
        elif isinstance(value, list):
            value = navigation(value)
        result.append({title: value})
    return result


def settings():
    """mkdocs.yml, without what only MkDocs understands."""
    class Loader(yaml.SafeLoader):
        pass
    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)
    return yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)


def paths(entries):
    """Every path of a navigation."""
    for entry in entries:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        if isinstance(value, list):
            yield from paths(value)
        else:
            yield value
