"""Checks every text file of the repository, and the width of SQL and Markdown. Called by scripts/lint.sh with file names."""

import re
import sys
from pathlib import Path

SQL_WIDTH = 150
MARKDOWN_WIDTH = 160
CONFLICT = re.compile(r"(<{7}|>{7}|\|{7})( |$)|={7}$")
# Bytes from providers, and the output of pg_dump.
NOT_OURS = re.compile(r"Tests/Fuzz/corpus/|docs/schema\.sql$")


def findings(name, text):
    lines = text.split("\n")
    if text and lines[-1]:
        yield len(lines), "the last line does not end with a newline"
    elif lines.pop() or (lines and not lines[-1].strip()):
        yield len(lines), "an empty line at the end"
    is_sql, is_markdown, fence = name.endswith((".sql", ".psql")), name.endswith(".md"), None
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield number, "white space at the end of the line"
        if CONFLICT.match(line):
            yield number, "the mark of a merge's conflict"
        if is_sql and "\t" in line:
            yield number, "a tab"
        if is_sql and len(line) > SQL_WIDTH:
            yield number, f"{len(line)} characters, where SQL has {SQL_WIDTH} at most"
        if is_markdown:
            mark = re.match(r"\s*(?:> ?)*(?:[-*] |\d+\. )?\s*(```+|~~~+)", line)
            if mark and fence in (None, mark[1]):
                fence = None if fence else mark[1]
            elif fence is None and len(line) > MARKDOWN_WIDTH and can_break(line):
                yield number, f"{len(line)} characters, where Markdown has {MARKDOWN_WIDTH} at most"


def can_break(line):
    """Whether the line can be wrapped: no table row, no heading, and more than one word or link."""
    if re.match(r"\s*(\||#)", line):
        return False
    return re.search(r"\S\s+\S", re.sub(r"^\s*([-*>]|\d+\.)\s+", "", re.sub(r"\[[^]]*\]\([^)]*\)", "link", line))) is not None


def main():
    for name in sys.argv[1:]:
        content = Path(name).read_bytes()
        if NOT_OURS.match(name) or b"\0" in content:
            continue
        for number, what in sorted(findings(name, content.decode(errors="replace"))):
            print(f"{name}:{number}: {what}")


if __name__ == "__main__":
    main()
