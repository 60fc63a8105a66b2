"""What a PromQL expression names: selectors, and labels it groups by. Not a parser: syntax is promtool's business."""

import re
from dataclasses import dataclass, field

TOKEN = re.compile(
    r"""(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
      | (?P<range>\[[^\]]*\])
      | (?P<number>[0-9][0-9a-zA-Z.]*)
      | (?P<word>[a-zA-Z_:][a-zA-Z0-9_:]*)
      | (?P<operator>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},@])
      | (?P<space>\s+)
      | (?P<other>.)""",
    re.VERBOSE,
)
GROUPINGS = {"by", "on", "group_left", "group_right"}
EXCLUSIONS = {"without", "ignoring"}
KEYWORDS = {"and", "or", "unless", "bool", "offset", "atan2", "inf", "nan", "start", "end"} | GROUPINGS | EXCLUSIONS


@dataclass
class Matcher:
    label: str
    operator: str
    value: str

    @property
    def literals(self):
        """The values it names: itself, or the alternatives of a regular expression that is no more than that."""
        if self.operator in ("=", "!="):
            return [self.value]
        return self.value.split("|") if re.fullmatch(r"[\w|-]+", self.value) else []


@dataclass
class Selector:
    metric: str
    matchers: list = field(default_factory=list)


@dataclass
class Expression:
    selectors: list = field(default_factory=list)
    grouped_by: set = field(default_factory=set)
    without: set = field(default_factory=set)


def read(text):
    """The names in an expression; ValueError for what cannot be one."""
    tokens = [(match.lastgroup, match.group()) for match in TOKEN.finditer(text) if match.lastgroup != "space"]
    strange = [value for kind, value in tokens if kind == "other"]
    if strange:
        raise ValueError(f"{strange[0]!r} is no PromQL")
    found = Expression()
    position = 0
    while position < len(tokens):
        kind, value = tokens[position]
        follows = tokens[position + 1][1] if position + 1 < len(tokens) else ""
        position += 1
        if kind != "word":
            continue
        if value in GROUPINGS | EXCLUSIONS:
            if follows == "(":
                end = tokens.index(("operator", ")"), position)
                labels = {word for kind, word in tokens[position:end] if kind == "word"}
                (found.grouped_by if value in GROUPINGS else found.without).update(labels)
                position = end + 1
        elif value not in KEYWORDS and follows != "(" and not is_aggregation(tokens, position):
            selector = Selector(value)
            if follows == "{":
                end = tokens.index(("operator", "}"), position)
                selector.matchers = matchers(tokens[position + 1 : end])
                position = end + 1
            found.selectors.append(selector)
    return found


def is_aggregation(tokens, position):
    """Whether the word before is one such as sum in “sum by (app) (…)”."""
    return tokens[position : position + 2] in [[("word", word), ("operator", "(")] for word in ("by", "without")]


def matchers(tokens):
    parts = [value for _, value in tokens if value != ","]
    return [Matcher(label, operator, value[1:-1]) for label, operator, value in zip(*[iter(parts)] * 3)]
