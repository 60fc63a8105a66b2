"""Reads a page of the documentation: what it shows, and where it links to."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MARK = re.compile(r"<!-- (psql|json|file|situations|shell|received|not run): (.+?) -->")
FENCE = re.compile(r"^( *)```(\w*)$")
HEADING = re.compile(r"^#{1,6} +(.+?)\s*$")
LINK = re.compile(r"\]\(([^)\s]+)\)")


class Block:
    """A fenced block; `expected` is the text it must print, where the page says so.

    runner: the word of the comment by which a test runs it, or "not run"; is_output: it is what another one prints; received: the
    token and the type of the push that it shows.
    """

    def __init__(self, line, language, text):
        self.line, self.language, self.text = line, language, text
        self.expected = self.runner = self.received = None
        self.is_output = False


class Situation:
    """Blocks that are typed into one psql, by `role` if one is named."""

    def __init__(self, page, line, words):
        self.page, self.line = page, line
        self.name, self.role = words[0], words[2] if len(words) == 3 and words[1] == "as" else None
        self.blocks = []


class Page:
    """A Markdown file.

    situations: SQL to run; loose: SQL in no situation; bodies: (block, "METHOD /path"); programs: blocks in other
    languages; files: those that the page names, by name; tables: (line, what of, its text); links: (line, target);
    anchors: where its headings can be linked to; blocks: all of them; sessions: (name, its blocks) for live.py.
    """

    def __init__(self, name, text=None):
        self.name = name
        self.text = (ROOT / name).read_text() if text is None else text
        self.situations, self.loose, self.bodies, self.programs, self.links = [], [], [], [], []
        self.files, self.tables = {}, []
        self.blocks, self.sessions = [], []
        self.anchors = set()
        self._situation = self._request = self._asked = self._file = self._session = self._reason = self._received = None
        lines = self.text.split("\n")
        index = 0
        while index < len(lines):
            fence = FENCE.match(lines[index])
            index += 1
            if not fence:
                self._prose(index, lines[index - 1])
                continue
            start, text = index, []
            while not lines[index].strip().startswith("```"):
                text.append(lines[index][len(fence[1]):])
                index += 1
            index += 1
            self._block(Block(start, fence[2], "\n".join(text)))

    def _prose(self, number, line):
        mark, heading = MARK.fullmatch(line.strip()), HEADING.match(line)
        if mark and mark[1] == "psql":
            self._situation = None if mark[2] == "end" else Situation(self.name, number, mark[2].split())
            if self._situation:
                self.situations.append(self._situation)
        elif mark and mark[1] == "shell":
            self._session = None if mark[2] == "end" else []
            if self._session is not None:
                self.sessions.append((mark[2], self._session))
        elif mark and mark[1] == "not run":
            self._reason = mark[2]
        elif mark and mark[1] == "json":
            self._request = mark[2]
        elif mark and mark[1] == "received":
            self._received = mark[2].split()
        elif mark and mark[1] == "file":
            self._file = mark[2]
        elif mark:
            self.tables.append((number, mark[2], table_after(self.text.split("\n"), number)))
        elif heading:
            self.anchors.add(slug(heading[1]))
        self.links += [(number, target) for target in LINK.findall(line)]
        if line.strip():
            self._asked = None  # words between a command and a block: the block is not its output

    def _block(self, block):
        self.blocks.append(block)
        if block.language == "" and self._asked:
            self._asked.expected = block.text
            block.is_output = True
        self._asked = None
        if self._reason:
            self._reason, block.runner = None, "not run"
            return
        if self._received:
            block.received, self._received = self._received, None
            if self._session is None:
                raise ValueError(f"{self.name}:{block.line}: what was received is not in a session")
            self._session.append(block)
            return
        if self._session is not None and block.language in ("sh", "sql"):
            block.runner = "shell"
            self._session.append(block)
            self._asked = block
            return
        if self._file or self._request or self._situation and block.language == "sql":
            block.runner = "file" if self._file else "json" if self._request else "psql"
        if self._file:
            self.files[self._file] = block.text if block.language != "diff" else patched(block.text)
            self._file = None
        if block.language == "sql" and self._situation:
            self._situation.blocks.append(block)
            self._asked = block
        elif block.language == "sql":
            self.loose.append(block)
        elif self._request and block.language in ("json", "sh"):
            self.bodies.append((block, self._request))
            self._request = None
        elif block.language:
            self.programs.append(block)


def slug(heading):
    """The anchor GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def patched(diff):
    """What a file looks like after a diff that shows all of it."""
    return "\n".join(line[1:] for line in diff.split("\n") if not line.startswith("-"))


def table_after(lines, index):
    """The table that begins at a line, as text; empty if there is none."""
    rows = []
    while index < len(lines) and (lines[index].startswith("|") or not rows and not lines[index].strip()):
        rows += [lines[index]] if lines[index].strip() else []
        index += 1
    return "\n".join(rows)
