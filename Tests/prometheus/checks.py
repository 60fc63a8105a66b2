"""The tests behind run.sh: the rules by promtool, a real scrape by promtool, and the names in rules and dashboard."""

import json
import os
import subprocess
import sys
from pathlib import Path

import names
import rules
from exposition import Exposition
from machine import ROOT, Failure, Machine, get

PROMETHEUS = ROOT / "deploy/prometheus"
DASHBOARD = ROOT / "deploy/grafana/push-gateway.json"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


class Results:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, faults):
        """Passes when there are no faults."""
        if faults:
            self.failed += 1
            print(f"not ok - {what}: {'; '.join(faults)}")
        else:
            self.passed += 1
            print(f"ok - {what}")

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(0 if self.passed and not self.failed else 1)


def promtool(*arguments, text=None):
    """What promtool complains about."""
    done = subprocess.run(
        ["promtool", *map(str, arguments)], input=text, capture_output=True, text=True, cwd=PROMETHEUS, check=False)
    return [" ".join((done.stdout + done.stderr).split())[-1500:]] if done.returncode else []


def syntax_faults(machine):
    """Whether Prometheus could read each query of the dashboard, asked as if they were rules."""
    file = machine.work / "queries.yml"
    groups = [{"name": "queries", "rules": [
        {"record": f"query_{index}", "expr": expression}
        for index, (_, expression, _) in enumerate(names.queries(json.loads(DASHBOARD.read_text())))]}]
    file.write_text(json.dumps({"groups": groups}))
    return promtool("check", "rules", file)


def scrape(machine):
    """The metrics of a gateway that has sent a little, in both formats."""
    process, address = machine.replica("gateway", machine.simulators())
    machine.sql("""insert into push.outbox (app, payload, recipients) select 'porteiro',
        jsonb_build_object('callId', 'scrape-' || g, 'from', 'x'), jsonb_build_array(
          jsonb_build_object('userId', 'a', 'fcmToken', 'scrape_fcm_token_000000000' || g),
          jsonb_build_object('userId', 'b', 'fcmToken', 'fault-UNREGISTERED-0000000' || g))
        from generate_series(1, 3) g""")
    url = f"http://{address}/metrics"
    machine.await_("the pushes' end", process, machine.work / "gateway.log",
                   lambda: machine.sql("select not exists (select from push.deliveries)") == "t")
    # Some metrics have no series before something has happened.
    while True:
        text, openmetrics, again = get(url), get(url, OPENMETRICS), get(url)
        if Exposition(text).labels.keys() == Exposition(again).labels.keys():
            return text, openmetrics


def main(given, gateway):
    results = Results()
    alerts = rules.load(PROMETHEUS / "alerts.yml")
    results.check("promtool check rules", promtool("check", "rules", "alerts.yml"))
    results.check("promtool test rules", promtool("test", "rules", "alerts_test.yml"))
    # The file with the key is not here.
    results.check("promtool check config", promtool("check", "config", "--syntax-only", "prometheus.yml"))
    with Machine(given, gateway) as machine:
        results.check("Prometheus can read every query of the dashboard", syntax_faults(machine))
        text, openmetrics = scrape(machine)
        results.check("promtool check metrics", promtool("check", "metrics", text=text))
        exposition, other = Exposition(text), Exposition(openmetrics)
        results.check("OpenMetrics has the same series, and ends as it must", [
            *sorted(set(exposition.labels) ^ set(other.labels)),
            *([] if openmetrics.endswith("# EOF\n") else ["no EOF"])])
        vocabulary = names.Vocabulary(exposition, alerts)
        results.check("the dashboard names what exists", names.dashboard_faults(DASHBOARD, vocabulary))
        results.check("the dashboard shows every metric of the gateway", names.unseen(DASHBOARD, exposition))
        results.check("the alerts name what exists, have a runbook and a test", names.alert_faults(
            alerts, vocabulary, (PROMETHEUS / "alerts_test.yml").read_text(),
            {page.name: page.read_text() for page in (ROOT / "docs/operations").glob("*.md")}))
    results.finish()


if __name__ == "__main__":
    try:
        main(os.environ["PUSH_GATEWAY_TEST_DATABASE_URL"], Path(os.environ["PUSH_GATEWAY"]))
    except Failure as failure:
        sys.exit(f"not ok - {failure}")
