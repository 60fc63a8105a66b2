"""The changes of a guide, applied to the files of the system that it is for.

A code block of the page contains edits. An edit begins with a comment that names its place, and ends at the next one or
at the end of the block:

  // controllers/call.controller.ts:253-336    these lines are replaced; nothing after the comment: they are removed
  // controllers/call.controller.ts:528+       added after this line
  // services/push-gateway.ts                  a new file

The comment may begin with //, #, -- or <!--. A place is relative to the directory of edits.json, which names the repository, the
commit, and the SHA-256 of each file that is changed. So the page and the edits cannot differ, and a file that has
changed is refused. Tests/integrations/README.md says how the sources are given.
"""

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

PLACE = re.compile(r"^\s*(?://|#|--|<!--) ([\w./-]+\.\w+)(?::(\d+)(?:-(\d+)|(\+))?)?(?: -->)?$")
PLACE_IN_STAND_IN = re.compile(r"\{\{(\S+)\}\}")


class Misfit(Exception):
    """An edit does not fit the file."""


class Edit:
    """first, last: the lines that are replaced, from 1, both None for a new file; text: by what. name: the place as written."""

    def __init__(self, name, path, first, last, text):
        self.name, self.path, self.first, self.last, self.text = name, path, first, last, text


def edits_in(block):
    """The edits of a code block, in its order."""
    found, lines = [], []
    for line in block.split("\n"):
        place = PLACE.match(line)
        if place:
            path, first, last, added = place.groups()
            lines = []
            found.append((line.split()[1], path, first, last, added, lines))
        else:
            lines.append(line)
    edits = []
    for name, path, first, last, added, lines in found:
        start = first and int(first) + bool(added)
        end = first and (int(first) if added else int(last or first))
        edits.append(Edit(name, path, start, end, "\n".join(lines).strip("\n")))
    return edits


class Edits:
    """description: a path of edits.json; blocks: texts of the page's code blocks, those without places are ignored."""

    def __init__(self, description, blocks):
        description = json.loads(Path(description).read_text())
        self.repository, self.commit = description["repository"], description["commit"]
        self.directory, self.files = description["directory"], description["files"]
        self.edits = [edit for block in blocks for edit in edits_in(block)]
        unknown = {edit.path for edit in self.edits if edit.first is not None} - set(self.files)
        if unknown:
            raise Misfit(f"edits.json has no checksum of {', '.join(sorted(unknown))}")

    def checkout(self):
        """The directory in the checkout that GUIDE_SOURCES has; None: no sources are given."""
        given = os.environ.get("GUIDE_SOURCES")
        return Path(given) / self.repository.rpartition("/")[2] / self.directory if given else None

    def apply(self, target):
        """Copies the directory of the checkout, checks the files and changes them."""
        shutil.copytree(self.checkout(), target)
        for path, wanted in self.files.items():
            if hashlib.sha256((Path(target) / path).read_bytes()).hexdigest() != wanted:
                raise Misfit(f"{path} is not the one of commit {self.commit}")
        for path in {edit.path for edit in self.edits}:
            self._change(Path(target) / path, [edit for edit in self.edits if edit.path == path])

    def stand_in(self, ours, target):
        """Copies our own stand-in of the directory, with the edits at their places: {{controllers/call.controller.ts:253-336}}."""
        shutil.copytree(ours, target)
        texts = {edit.name: edit.text for edit in self.edits if edit.text and edit.first is not None}
        left = set(texts)
        for path in filter(Path.is_file, Path(target).rglob("*")):
            places = PLACE_IN_STAND_IN.findall(path.read_text())
            if set(places) - left:
                raise Misfit(f"the page has no {', '.join(set(places) - left)}, or it is there twice")
            left -= set(places)
            path.write_text(PLACE_IN_STAND_IN.sub(lambda place: texts[place[1]], path.read_text()))
        if left:
            raise Misfit(f"the stand-in has no place for {', '.join(left)}")
        for edit in self.edits:
            if edit.first is None:
                self._change(Path(target) / edit.path, [edit])

    @staticmethod
    def _change(path, edits):
        if edits[0].first is None:
            if len(edits) > 1 or path.exists():
                raise Misfit(f"{path} is there already")
            path.write_text(edits[0].text + "\n")
            return
        lines = path.read_text().split("\n")
        edits = sorted(edits, key=lambda edit: (edit.first, edit.last))
        for one, next_ in zip(edits, edits[1:]):
            if next_.first <= one.last:
                raise Misfit(f"{next_.name} is within {one.name}")
        if edits[-1].last > len(lines):
            raise Misfit(f"{edits[-1].name}: the file ends before")
        for edit in reversed(edits):
            lines[edit.first - 1:edit.last] = edit.text.split("\n") if edit.text else []
        path.write_text("\n".join(lines))
