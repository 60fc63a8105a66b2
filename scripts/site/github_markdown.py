"""Turns Markdown as GitHub reads it into Markdown as MkDocs reads it.

- A list may follow a paragraph without an empty line, and what belongs to an item is indented by the width of its mark; MkDocs
  wants an empty line, and four columns.
- A heading gets the anchor that GitHub gives it.
- A link to a page, file or folder of the repository leads to where the site has it. If the site does not have it, its path is
  shown.
- Comments are dropped: they speak to the tests.
"""

import html
import posixpath
import re

import repository

FENCE = re.compile(r"^( *)(```+|~~~+)")
ITEM = re.compile(r"^( *)([-*+]|\d+[.)])( +)(?=\S)")
HEADING = re.compile(r"^(#{1,6}) +(.+?)(?: *\{: *#([\w-]+) *\})?\s*$")
COMMENT = re.compile(r"^ *<!--.*?-->[ \t]*\n?", re.M | re.S)
CODE = r"(?P<code>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))"
LINK = r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?P<target>[^)\s]+)\)"
CODE_OR_LINK = re.compile(f"{CODE}|{LINK}", re.S)


def convert(text, name, path):
    """The page `name` of the repository, for the path that it has on the site. Without a name, links are the site's already."""
    parts = []
    for fenced, lines in chunks(text.split("\n")):
        chunk = "\n".join(lines)
        if not fenced:
            chunk = COMMENT.sub("", chunk + "\n")[:-1]
            chunk = links(chunk, name, path) if name else chunk
        parts.append(chunk)
    return lists(anchors("\n".join(parts).split("\n")))


def chunks(lines):
    """Lines in groups: (whether this is a fenced block, its lines)."""
    group, end = [], None
    for line in lines:
        fence = FENCE.match(line)
        if end is None and fence:
            if group:
                yield False, group
            group, end = [line], fence[2]
        elif end is not None and line.strip() == end:
            yield True, [*group, line]
            group, end = [], None
        else:
            group.append(line)
    if group:
        yield end is not None, group


def slug(heading):
    """The anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def headings(lines):
    """(number of the line, level, text, anchor) of every heading."""
    used, end = {}, None
    for number, line in enumerate(lines):
        fence = FENCE.match(line)
        if end is None and fence:
            end = fence[2]
        elif end is not None:
            end = None if line.strip() == end else end
        elif match := HEADING.match(line):
            anchor = match[3] or slug(re.sub(LINK, r"\g<text>", match[2]))
            used[anchor] = used.get(anchor, -1) + 1
            yield number, len(match[1]), match[2], anchor + (f"-{used[anchor]}" if used[anchor] else "")


def anchors(lines):
    result = list(lines)
    for number, level, heading, anchor in headings(lines):
        result[number] = f"{'#' * level} {heading} {{: #{anchor} }}"
    return result


def links(text, name, path):
    def replaced(match):
        target = repository.leads_to(name, match["target"]) if match["target"] else None
        if target is None:
            return match[0]
        file, anchor = target
        there = repository.on_site(file)
        if there is None:
            shown = html.escape(file)
            return f"`{shown}`" if match["text"].strip("`") == file else f"{match['text']} (`{shown}`)"
        if there == path:
            there = ""
        else:
            there = posixpath.relpath(there, posixpath.dirname(path) or ".")
        return f"{match['image']}[{match['text']}]({there}{'#' if anchor else ''}{anchor})"
    return CODE_OR_LINK.sub(replaced, text)


def lists(lines):
    """Items of lists and what belongs to them, indented by four columns a level."""
    result, widths = [], []  # widths: where the content of each open item begins
    end, shift, was_blank = None, 0, True
    for line in lines:
        if end is not None:
            content = line[min(shift, len(line) - len(line.lstrip())):] if line.strip() else ""
            result.append(" " * 4 * len(widths) + content if content else "")
            if line.strip() == end:
                end, was_blank = None, False
            continue
        if not line.strip():
            result.append("")
            was_blank = True
            continue
        indent = len(line) - len(line.lstrip())
        item, fence = ITEM.match(line), FENCE.match(line)
        if item and item[2][0].isdigit() and item[2][:-1] != "1" and not was_blank and not widths:
            item = None  # a number at the beginning of a line in a paragraph
        starts_block = item or fence or was_blank or line.startswith(("#", "|"))
        if starts_block:
            while widths and indent < widths[-1]:
                widths.pop()
        if fence:
            end, shift = fence[2], widths[-1] if widths else 0
        before = result[-1] if result else ""
        is_table = line.lstrip().startswith("|")
        if before.strip() and (
                item and not widths and not ITEM.match(before) and not was_in_list(result)
                or is_table and not before.lstrip().startswith("|")
                or fence):
            result.append("")
        if is_table:
            line = re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line)
        result.append(" " * 4 * len(widths) + line.lstrip())
        if item:
            widths.append(indent + len(item[2]) + len(item[3]))
        was_blank = False
    return "\n".join(result)


def was_in_list(result):
    """Whether the paragraph at the end belongs to an item of a list."""
    for line in reversed(result):
        if not line.strip():
            return False
        if ITEM.match(line):
            return True
    return False
