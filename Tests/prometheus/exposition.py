"""What a scrape exposes: each metric with its labels and the values they have. Prometheus text or OpenMetrics."""

import re
from collections import defaultdict

SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? +(\S+)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
SUFFIXES = ("_bucket", "_sum", "_count")


class Exposition:
    def __init__(self, text):
        self.labels = defaultdict(lambda: defaultdict(set))
        self.samples = {}
        self.types = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, family, kind = line.split(" ", 3)
                self.types[family] = kind
            if not line or line.startswith("#"):
                continue
            match = SAMPLE.match(line)
            if not match:
                raise ValueError(f"not a sample: {line}")
            name, labels, value = match.groups()
            pairs = LABEL.findall(labels or "")
            known = self.labels[name]
            for label, text_value in pairs:
                known[label].add(text_value)
            key = (name, tuple(sorted(pairs)))
            if key in self.samples:
                raise ValueError(f"twice in one scrape: {line}")
            self.samples[key] = float(value)

    def family(self, name):
        """The metric a series belongs to: the histogram's for its buckets, sum and count."""
        for suffix in SUFFIXES:
            if name.endswith(suffix) and self.types.get(name[: -len(suffix)]) == "histogram":
                return name[: -len(suffix)]
        return name

    @property
    def families(self):
        return {self.family(name) for name in self.labels}
