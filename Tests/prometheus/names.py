"""Whether the dashboard and the alerts name what a scrape has, and link to what is there."""

import json
import re

import promql

# What Prometheus itself adds.
TARGET_LABELS = {"job", "instance"}
ALERT_LABELS = {"alertname", "alertstate", "severity", "app", "provider", "kind"}
OWN = {"up": TARGET_LABELS, "ALERTS": TARGET_LABELS | ALERT_LABELS,
       # Only of listeners with TLS, which the scraped gateway has not; ListenerTLSTests shows that it is there.
       "push_gateway_certificate_expiry_timestamp_seconds": TARGET_LABELS | {"listener"},
       # The label is only there if there are several databases; SeveralDatabasesTests shows it.
       "push_gateway_database_ready": TARGET_LABELS | {"database"}}
# Labels whose values all exist from the start. A reason is only there once it was seen.
CLOSED = {"provider", "kind", "outcome", "state"}
VARIABLES = {"$__rate_interval": "5m", "$__range": "1h", "$app": ".*", "$provider": ".*"}


class Vocabulary:
    """The metrics there are, with their labels and values."""

    def __init__(self, exposition, rules):
        self.labels = {name: {label: set(values) for label, values in labels.items()}
                       for name, labels in exposition.labels.items()}
        for name in self.labels:
            self.labels[name].update({label: set() for label in TARGET_LABELS})
        self.labels.update({name: {label: set() for label in labels} for name, labels in OWN.items()})
        for rule in rules:
            if rule.kind == "record":
                self.labels[rule.name] = self._recorded(rule)

    def _recorded(self, rule):
        expression = promql.read(rule.expression)
        labels = {}
        for selector in expression.selectors:
            for label, values in self.labels.get(selector.metric, {}).items():
                if label not in expression.without:
                    labels.setdefault(label, set()).update(values)
        return labels

    def faults(self, text):
        """What of an expression does not exist."""
        try:
            expression = promql.read(text)
        except ValueError as error:
            return [str(error)]
        found = []
        seen = set()
        for selector in expression.selectors:
            labels = self.labels.get(selector.metric)
            if labels is None:
                found.append(f"there is no {selector.metric}")
                continue
            seen |= set(labels)
            for matcher in selector.matchers:
                if matcher.label not in labels:
                    found.append(f"{selector.metric} has no label {matcher.label}")
                elif matcher.label in CLOSED and labels[matcher.label]:
                    found += [f"{selector.metric} has no {matcher.label} {value}"
                              for value in matcher.literals if value not in labels[matcher.label]]
        found += [f"nothing in it has the label {label}" for label in sorted(expression.grouped_by - seen)]
        return found

    def result_labels(self, text):
        """The labels that what an expression gives may have."""
        expression = promql.read(text)
        if expression.grouped_by:
            return expression.grouped_by | ({"le"} if "le" in expression.grouped_by else set())
        return {label for selector in expression.selectors for label in self.labels.get(selector.metric, {})}


def queries(dashboard):
    """Each query of a dashboard: where it is, the expression with its variables filled in, and its legend."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel “{panel['title']}”, query {target['refId']}", fill(target["expr"]), target["legendFormat"]
    for annotation in dashboard["annotations"]["list"]:
        yield f"annotation “{annotation['name']}”", fill(annotation["expr"]), annotation["textFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            expression, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            yield f"variable “{variable['name']}”", f"sum by ({label}) ({fill(expression)})", f"{{{{{label}}}}}"


def fill(expression):
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression


def dashboard_faults(path, vocabulary):
    dashboard = json.loads(path.read_text())
    found = []
    for place, expression, legend in queries(dashboard):
        found += [f"{place}: {fault}" for fault in vocabulary.faults(expression)]
        if "$" in expression:
            found.append(f"{place}: an unknown variable in {expression}")
        unknown = set(re.findall(r"{{(\w+)}}", legend)) - vocabulary.result_labels(expression)
        found += [f"{place}: its legend names {label}, which its result has not" for label in sorted(unknown)]
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        found.append("two panels have the same id")
    return found


# Metrics that stay for the queries of others, and are always 0.
KEPT = {"push_gateway_settled_again_total"}


def unseen(path, exposition):
    """The gateway's metrics that no panel shows."""
    shown = {exposition.family(selector.metric)
             for _, expression, _ in queries(json.loads(path.read_text()))
             for selector in promql.read(expression).selectors}
    return sorted(name for name in exposition.families - shown - KEPT if name.startswith("push_gateway_"))


def alert_faults(rules, vocabulary, tests, runbooks):
    """What is wrong with rules: names, texts, links, and alerts without a test."""
    found = []
    for rule in rules:
        found += [f"{rule.name}: {fault}" for fault in vocabulary.faults(rule.expression)]
        if rule.kind == "record":
            continue
        named = set(re.findall(r"\$labels\.(\w+)", rule.body))
        found += [f"{rule.name}: its text names {label}, which it has not"
                  for label in sorted(named - vocabulary.result_labels(rule.expression))]
        found += [f"{rule.name} has no {key}" for key in ("for", "severity", "summary", "description")
                  if not rule.value(key)]
        page = rule.value("runbook_url").rpartition("/docs/operations/")[2]
        if f"`{rule.name}`" not in runbooks.get(page, ""):
            found.append(f"{rule.name}: docs/operations has no {page} that names it")
        if f"alertname: {rule.name}\n" not in tests and f'alertname="{rule.name}"' not in tests:
            found.append(f"{rule.name} has no test")
    return found
