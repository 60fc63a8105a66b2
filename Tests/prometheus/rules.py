"""The rules of deploy/prometheus/alerts.yml as Python sees them without a YAML library, and a hastened copy of them."""

import re
from dataclasses import dataclass


@dataclass
class Rule:
    kind: str
    name: str
    body: str

    def value(self, key):
        """The text of a key, on one line or folded below it; empty when there is none."""
        match = re.search(rf"^( *){key}: *(.*)\n((?:\1 +.*\n|\n)*)", self.body, re.MULTILINE)
        if not match:
            return ""
        inline = match.group(2)
        return match.group(3) if inline in ("|", ">-", ">", "") else inline.strip("\"'")

    @property
    def expression(self):
        return self.value("expr")


def load(path):
    parts = re.split(r"^ +- (alert|record): (\S+)\n", path.read_text(), flags=re.MULTILINE)[1:]
    return [Rule(*parts[index : index + 3]) for index in range(0, len(parts), 3)]


def hastened(text, factor, ranges, least):
    """The same rules with every range and every “for” divided by the factor; thresholds stay as they are.

    A range is within the given bounds, in seconds: what a gateway does once in a quarter of a minute is not hastened, and has to
    happen more than once within it; and what has happened has to be forgotten within the test. A “for” has at least so many.
    """

    def shorten(duration, shortest, longest):
        number, unit = re.fullmatch(r"(\d+)([smh])", duration).groups()
        seconds = round(int(number) * {"s": 1, "m": 60, "h": 3600}[unit] / factor)
        return f"{min(max(seconds, shortest), longest)}s"

    text = re.sub(r"\[(\d+[smh])\]", lambda match: f"[{shorten(match.group(1), *ranges)}]", text)
    return re.sub(r"(?m)^( +for: )(\d+[smh])$", lambda match: match.group(1) + shorten(match.group(2), least, 3600), text)
