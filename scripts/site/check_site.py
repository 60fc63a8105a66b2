#!/usr/bin/env python3
"""Checks the built site, without a network.

  scripts/site/check_site.py SITE VERSION

- Every link and every anchor leads somewhere in the folder, and every page can be reached from the first one.
- No page, style sheet or script loads anything from another host; pictures have a text.
- Every page shows the version, and the search knows words of several pages.
- What CommonMark makes of a page of the repository is what the site shows: the same text, lists, tables and blocks of code.
Ends with "N passed, N failed"; non-zero when any failed.
"""

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import markdown_it

import github_markdown
import repository

# Attributes with which an element loads something.
LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("img", "srcset"), ("iframe", "src"), ("source", "src"), ("source", "srcset"),
         ("video", "src"), ("audio", "src"), ("object", "data"), ("embed", "src"), ("use", "href"), ("form", "action")}
STYLE_LOADS = re.compile(r"@import\s+[\"']?(?:url\()?[\"']?(?:https?:)?//|url\(\s*[\"']?(?:https?:)?//", re.I)
# What the theme's script would load from other hosts, and never does: for diagrams in Mermaid, for a browser without
# ResizeObserver, and for links to a repository with its number of stars. No page has the first and the last.
SCRIPT_LOADS = re.compile(r"[\"'`](https?://[^\"'`]*)")
NEVER_ASKED = re.compile(r"https://(unpkg\.com/(mermaid@|resize-observer-polyfill$)|api\.github\.com/|\$\{e\}/api/v4/)")
WORDS = {"PushKit": "protocols", "escalate_after_seconds": "configuration", "enqueue_call": "sql", "callId": "http-reference"}
BLOCKS = {"li", "table", "tr", "pre", "h1", "h2", "h3", "h4", "h5"}


class Document(HTMLParser):
    """links: (element, attribute, value); ids; text and blocks: of the article, without what the theme adds."""

    def __init__(self, text, is_whole=True):
        super().__init__()
        self.links, self.ids, self.pictures = [], set(), []
        self.words, self.blocks = [], {}
        self._inside, self._skipping = 0 if is_whole else 1, 0
        self._is_whole = is_whole
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        self.links += [(tag, name, value) for name, value in attributes.items() if value is not None and (
            (tag, name) in LOADS or (tag, name) == ("a", "href"))]
        if tag == "img":
            self.pictures.append(attributes)
        if tag == "article" and self._is_whole:
            self._inside += 1
        if not self._inside:
            return
        if self._skipping or "headerlink" in attributes.get("class", "") or tag in ("form", "nav", "button", "style", "script"):
            self._skipping += tag not in ("img", "br", "input", "hr", "path", "meta", "link")
        elif tag in BLOCKS:
            self.blocks[tag] = self.blocks.get(tag, 0) + 1

    def handle_endtag(self, tag):
        if tag == "article" and self._is_whole:
            self._inside -= 1
        if self._skipping:
            self._skipping -= 1

    def handle_data(self, data):
        if self._inside and not self._skipping:
            self.words += data.split()


class Site:
    def __init__(self, folder, version):
        self.folder, self.version = folder, version
        self.root = folder / version
        self.pages = {path: Document(path.read_text()) for path in sorted(self.root.rglob("*.html"))}
        self.passed, self.faults = 0, []

    def check(self, what, faults):
        faults = list(faults)
        self.passed += not faults
        self.faults += [f"not ok - {what}: {fault}" for fault in faults[:20]]
        print(f"{'not ok' if faults else 'ok'} - {what}")

    def name(self, path):
        return str(path.relative_to(self.root))

    def target(self, path, value):
        """(file, anchor) of a link within the site; None for a link to another host."""
        parts = urlsplit(value)
        if parts.scheme or parts.netloc:
            return None
        file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        return file / "index.html" if file.is_dir() else file, unquote(parts.fragment)

    def broken_links(self):
        for path, document in self.pages.items():
            for tag, attribute, value in document.links:
                target = self.target(path, value)
                if target is None:
                    continue
                file, anchor = target
                if not file.is_file() or self.folder not in file.parents:
                    yield f"{self.name(path)}: {value} leads nowhere"
                elif anchor and file in self.pages and anchor not in self.pages[file].ids and not anchor.startswith("__"):
                    yield f"{self.name(path)}: {value}: there is no such anchor"

    def unreached(self):
        first = self.root / "index.html"
        reached, open_ = {first}, [first]
        while open_:
            path = open_.pop()
            for tag, _, value in self.pages[path].links:
                target = self.target(path, value) if tag == "a" else None
                if target and target[0] in self.pages and target[0] not in reached:
                    reached.add(target[0])
                    open_.append(target[0])
        return [self.name(path) for path in self.pages if path not in reached]

    def loads(self):
        for path, document in self.pages.items():
            text = path.read_text()
            for tag, attribute, value in document.links:
                if (tag, attribute) in LOADS and re.match(r"(https?:)?//", value):
                    yield f"{self.name(path)}: <{tag} {attribute}={value}>"
            if STYLE_LOADS.search(text):
                yield f"{self.name(path)}: a style loads from another host"
            if 'class="mermaid"' in text or 'class="language-mermaid' in text:
                yield f"{self.name(path)}: a diagram in Mermaid needs a script of another host; draw it as a picture"
        for path in sorted(self.root.rglob("*.css")):
            if STYLE_LOADS.search(path.read_text()):
                yield f"{self.name(path)} loads from another host"
        for path in sorted(self.root.rglob("*.js")):
            if "search_index" not in path.name:
                yield from (f"{self.name(path)} loads {found}" for found in SCRIPT_LOADS.findall(path.read_text())
                            if not NEVER_ASKED.match(found))

    def search(self):
        index = json.loads((self.root / "search/search_index.json").read_text())
        for word, page in WORDS.items():
            found = {entry["location"].partition("#")[0] for entry in index["docs"] if word in entry["text"] + entry["title"]}
            if f"{page}.html" not in found:
                yield f"{word} is not found on the page {page}"
        if not (self.root / "search/search_index.js").is_file():
            yield "there is no index for pages that were opened as files"

    def renderings(self):
        parser = markdown_it.MarkdownIt("commonmark").enable(["table"])
        for name in repository.markdown_files():
            path = repository.on_site(name)
            if path is None or repository.NO_PAGES.match(name):
                continue
            file = self.root / re.sub(r"(^|/)README\.html$", r"\1index.html", path.removesuffix(".md") + ".html")
            text = (repository.ROOT / name).read_text()
            # Links to files that the site does not have are shown as paths: here, too.
            text = "\n".join("\n".join(lines) if fenced else github_markdown.links("\n".join(lines), name, path)
                             for fenced, lines in github_markdown.chunks(text.split("\n")))
            want, got = Document(parser.render(text), is_whole=False), self.pages.get(file)
            if got is None:
                yield f"{name}: there is no page {self.name(file)}"
            elif want.blocks != got.blocks:
                different = {tag: (want.blocks.get(tag, 0), got.blocks.get(tag, 0)) for tag in BLOCKS
                             if want.blocks.get(tag, 0) != got.blocks.get(tag, 0)}
                yield f"{name}: (CommonMark, site): {different}"
            elif "".join(want.words) != "".join(got.words):
                yield f"{name}: {difference(''.join(want.words), ''.join(got.words))}"


def difference(want, got):
    at = next((index for index, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
    return f"CommonMark has …{want[max(0, at - 30):at + 40]}…, the site …{got[max(0, at - 30):at + 40]}…"


def main():
    folder, version = Path(sys.argv[1]).resolve(), sys.argv[2]
    site = Site(folder, version)
    site.check(f"{len(site.pages)} pages, at least as many as the repository has", [] if len(site.pages) > len(
        [name for name in repository.markdown_files() if repository.on_site(name)]) else ["pages are missing"])
    site.check(f"{sum(len(page.links) for page in site.pages.values())} links and their anchors", site.broken_links())
    site.check("every page can be reached from the first one", site.unreached())
    site.check("nothing is loaded from another host", site.loads())
    site.check("pictures have a text", (f"{site.name(path)}: {picture.get('src')}" for path, page in site.pages.items()
                                        for picture in page.pictures if not (picture.get("alt") or "").strip()))
    site.check("the search knows the words of the pages", site.search())
    site.check("every page shows the version", (site.name(path) for path in site.pages
                                                if f'all versions">{version}</a>' not in path.read_text()))
    site.check("pages show what CommonMark makes of them", site.renderings())
    versions = (folder / "versions.js").read_text()
    site.check("the list of versions", [] if f'"{version}"' in versions and f'href="{version}/index.html"' in (
        folder / "index.html").read_text() else [f"{version} is not in it"])
    print(*site.faults, sep="\n", end="\n" if site.faults else "")
    print(f"{site.passed} passed, {len(site.faults)} failed")
    raise SystemExit(1 if site.faults else 0)


if __name__ == "__main__":
    main()
