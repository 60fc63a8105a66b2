"""The test behind run.sh --alerts: every alert fires for its cause, a real one, and for nothing else.

Two replicas, the simulators and a Prometheus that looks every five seconds, over rules whose times are about a twentieth. Each
cause has an app of its own, so all of them are tried at once. First every app is well, and nothing may fire. Then every
cause befalls its app, until every alert has fired; an app's other alerts are only those that follow from its cause.
Then the causes are mended, and everything must end. At last both replicas are stopped.
"""

import json
import os
import signal
import sys
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

import names
import rules
from checks import DASHBOARD, PROMETHEUS, Results
from machine import Failure, Machine, app_block, free_port, get, reachable, with_apps

HASTE = 20
# The ranges of the hastened rules: two probes of an open circuit, which come each 15 s, and what a busy machine adds; and what
# the test may wait for the end of.
RANGE_SECONDS = (60, 60)
# Two scrapes that a busy machine leaves unanswered are no alert.
FOR_SECONDS = 12
RING_SECONDS = 10
QUIET_SECONDS = 30
PATIENCE_SECONDS = 150
# What fails with a lane, whatever it fails for.
LANE_DOWN = {"DeliveryFailureRatioHigh", "LaneCircuitOpen", "BacklogAging", "NothingDelivered"}


@dataclass(frozen=True)
class Scenario:
    """One app and what befalls it.

    A push is its token's provider and beginning, which the simulators heed; once a second, all of a list are sent.
    Where a cause has to end, it is APNs': a missed call goes to no VoIP token, or the fault would be met for hours.
    """

    app: str
    alert: str
    cause: str
    well: tuple
    ill: tuple
    # What else fires for the app.
    follows: frozenset = frozenset()
    # As for app_block.
    settings: tuple = ()


SCENARIOS = (
    Scenario("calm", "", "", *[("apns:c0ffee", "fcm:calm-", "expo:calm-") * 2] * 2),
    # Later than 2.5 s, and sooner than the 3.5 s after which a connection counts as unresponsive.
    Scenario(
        "slow", "CallsRingLate", "FCM answers after 2.8 seconds", ("fcm:well-",) * 4, ("fcm:fault-slow-2800-",) * 4),
    Scenario(
        "topic", "DeliveryFailureRatioHigh", "APNs refuses every second push (DeviceTokenNotForTopic)",
        ("apns:c0ffee",) * 4, ("apns:c0ffee", "apns:dead4006") * 2),
    Scenario(
        "outage", "LaneCircuitOpen", "APNs answers 503 to everything", ("apns:c0ffee",) * 4, ("apns:dead5030",) * 8,
        frozenset(LANE_DOWN)),
    # Its other lane works, so calls are delivered.
    Scenario(
        "paused", "BacklogAging", "somebody paused the lane", *[("fcm:well-", "apns:c0ffee")] * 2,
        frozenset({"DeliveryFailureRatioHigh"})),
    Scenario(
        "removed", "TokensDyingEnMasse", "APNs calls half of the tokens dead", ("apns:c0ffee",) * 4,
        ("apns:c0ffee", "apns:deadbeef") * 10,
        settings=((r"^    ring_seconds", "    invalidation: { answers_min: 100 }\n    ring_seconds"),)),
    Scenario(
        "revoked", "CredentialsFailing", "Expo refuses our access token", ("expo:well-",) * 2, ("expo:well-",) * 2,
        frozenset(LANE_DOWN)),
    # No call is sent meanwhile, but those of before are missed, and Expo refuses to tell anybody so.
    Scenario(
        "receipts", "ReceiptsOverdue", "Expo refuses to tell receipts", ("expo:well-",) * 2, (),
        frozenset({"LaneCircuitOpen", "CredentialsFailing"}),
        settings=((r"^    expo:$", "    expo:\n      receipt_after_seconds: 5"),)),
    Scenario(
        "silent", "NothingDelivered", "APNs answers nothing", ("apns:c0ffee",) * 2, ("apns:dead0001",) * 2,
        frozenset(LANE_DOWN | {"RequestsUnanswered", "ConnectionsBreak"})),
    Scenario(
        "mute", "RequestsUnanswered", "nobody gets an answer from APNs", ("apns:c0ffee",) * 2, ("apns:dead0001",) * 2,
        frozenset(LANE_DOWN | {"ConnectionsBreak"})),
    Scenario(
        "broken", "ConnectionsBreak", "APNs breaks the connection at every second push", ("apns:c0ffee",) * 2,
        ("apns:c0ffee", "apns:dead0005"), frozenset(LANE_DOWN | {"CallsRingLate"})),
    Scenario(
        "hooked", "WebhookEventsWait", "nobody listens at a webhook's URL", *[("fcm:well-",)] * 2,
        settings=((r"^    ring_seconds",
                   '    webhook: { url: "http://127.0.0.1:1/", secret_file: "HOOK", events: token.dead }\n    ring_seconds'),)),
    Scenario("keys", "APIKeysExpire", "a key expires within a month", *[("fcm:well-",)] * 2),
    # Its calls are enqueued by statements of their own (trouble): a refusal is one of the whole statement.
    Scenario("greedy", "AppAtQuota", "a backend enqueues more than its app's quota", ("fcm:well-",), ()),
)
# CertificateExpires needs a listener with TLS, and two weeks; LockTableFills and DatabaseNotServed stop everything else, and a job that
# fails stops other things, too: alerts_test.yml has their cases.
ALERTS = {scenario.alert for scenario in SCENARIOS if scenario.alert} | {
    "ReplicaGone", "CertificateExpires", "LockTableFills", "DatabaseNotServed", "HousekeepingOverdue"}


class Installation:
    """Two replicas that serve every scenario's app, and the calls of their backends."""

    def __init__(self, machine):
        self.machine = machine
        simulated = machine.simulators()
        self.token = (machine.work / "simulators/expo-access-token").read_text()
        self.token_files = {app: machine.work / f"simulators/{app}-token" for app in ("revoked", "receipts")}
        self.hook_secret = machine.work / "simulators/hook-secret"
        self.hook_secret.touch(mode=0o600)
        self.hook_secret.write_text("whsec_" + "A" * 43 + "=")
        self.lend_token(self.token)
        self.configuration = with_apps(simulated, [self._block(simulated, scenario) for scenario in SCENARIOS])
        self.api = f"127.0.0.1:{free_port()}"
        self.replicas = {
            "a": machine.replica("a", self.configuration, environment={
                "PUSH_GATEWAY_API_ENABLED": "true", "PUSH_GATEWAY_API_LISTEN": self.api}),
            "b": machine.replica("b", self.configuration)}
        self.sent = 0

    def _block(self, simulated, scenario):
        changes = [(r"ring_seconds: \d+", f"ring_seconds: {RING_SECONDS}"), *scenario.settings]
        if scenario.app == "hooked":
            changes = [(pattern, text.replace("HOOK", str(self.hook_secret))) for pattern, text in changes]
        if scenario.app in self.token_files:
            changes.append((r"access_token_file: .*", f'access_token_file: "{self.token_files[scenario.app]}"'))
        return app_block(simulated, scenario.app, changes)

    def lend_token(self, token):
        for file in self.token_files.values():
            fresh = file.with_suffix(".new")
            fresh.touch(mode=0o600)
            fresh.write_text(token)
            fresh.rename(file)

    def send(self, pushes):
        """One call for each push: pairs of an app and a token."""
        calls = []
        for app, push in pushes:
            self.sent += 1
            provider, _, beginning = push.partition(":")
            recipient = {
                "apns": lambda: {"voipPushToken": f"{beginning}{self.sent:0{64 - len(beginning)}x}"},
                "fcm": lambda: {"fcmToken": f"{beginning}{self.sent:020}"},
                "expo": lambda: {"pushToken": f"ExponentPushToken[{beginning}{self.sent:016}]"},
            }[provider]() | {"userId": f"user-{self.sent}"}
            payload = {"callId": f"call-{self.sent}", "from": "doorman"}
            calls.append(f"('{app}', '{json.dumps(payload)}', '{json.dumps([recipient])}')")
        self.machine.sql(f"insert into push.outbox (app, payload, recipients) values {', '.join(calls)}")

    def enqueue_greedily(self):
        """A backend in a loop, which ignores that it is refused."""
        self.sent += 1
        self.machine.sql(f"""do $$ begin
            for i in 1..3 loop
              begin
                insert into push.outbox (app, payload, recipients) values ('greedy',
                  jsonb_build_object('callId', 'greedy-{self.sent}-' || i, 'from', 'x'),
                  jsonb_build_array(jsonb_build_object('userId', 'u', 'fcmToken', 'well-greedy-{self.sent:020}-' || i)));
              exception when sqlstate '53Q01' then null;
              end;
            end loop;
          end $$""")

    def ask_without_key(self):
        """A request that the HTTP API refuses and counts, for the dashboard."""
        reachable(f"http://{self.api}/v1/calls/none")

    def befall(self):
        self.machine.sql("select push.pause_lane('paused', 'fcm', 'a test')")
        self.machine.sql("select push.create_api_key('keys', 'a test', '{read}', now() + interval '9 days')")
        self.machine.sql("select push.set_quota('greedy', 2, note => 'a test')")
        # An event of half an hour ago.
        self.machine.sql("""insert into push.token_invalidations (app, provider, token, reason)
            values ('hooked', 'fcm', 'dead', 'a test')""")
        self.machine.sql("update push.webhook_event set created_at = created_at - interval '30 minutes' where app = 'hooked'")
        self.lend_token("none-of-theirs")
        self.machine.stop(self.replicas["b"][0], signal.SIGKILL)

    def mend(self):
        self.machine.sql("select push.resume_lane('paused', 'fcm'), push.resume_invalidation('removed', 'apns', true)")
        self.machine.sql("select push.revoke_api_key(id) from push.keys")
        self.machine.sql("select push.set_quota('greedy')")
        self.machine.sql("delete from push.token_invalidations where app = 'hooked'")
        self.lend_token(self.token)
        address = self.replicas["b"][1]
        self.replicas["b"] = self.machine.replica("b", self.configuration, address)

    def stop(self):
        for process, _ in self.replicas.values():
            self.machine.stop(process)


class Alarms:
    """What a Prometheus says of its alerts."""

    def __init__(self, address):
        self.address = address

    def query(self, expression):
        answer = json.loads(get(f"http://{self.address}/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
        return answer["data"]["result"]

    def firing(self):
        return self._subjects(self.query('ALERTS{alertstate="firing"}'))

    def ever_fired(self, seconds):
        """All that fired within the last seconds, however briefly."""
        return self._subjects(self.query(f'max_over_time(ALERTS{{alertstate="firing"}}[{max(1, round(seconds))}s])'))

    @staticmethod
    def _subjects(series):
        """Pairs of an alert and what it is about: an app, or an instance, or nothing less than all."""
        return {(one["metric"]["alertname"], one["metric"].get("app") or one["metric"].get("instance", "all"))
                for one in series}


def every_second(until, act, seconds):
    """Acts once a second until a condition holds; returns after how many seconds it did, or None."""
    started = time.monotonic()
    for tick in range(seconds):
        act()
        if until():
            return time.monotonic() - started
        time.sleep(max(0.0, started + tick + 1 - time.monotonic()))
    return None


def text(subjects):
    return sorted(f"{alert} of {subject}" for alert, subject in subjects)


def dashboard_faults(alarms):
    """Queries of the dashboard that show nothing although all of this went on."""
    return [place for place, expression, _ in names.queries(json.loads(DASHBOARD.read_text()))
            if not alarms.query(expression)]


def main(given, gateway):
    results = Results()
    known = {rule.name for rule in rules.load(PROMETHEUS / "alerts.yml") if rule.kind == "alert"}
    results.check("every alert has a cause here", sorted(known ^ ALERTS))
    with Machine(given, gateway) as machine:
        installation = Installation(machine)
        addresses = [address for _, address in installation.replicas.values()]
        alarms = Alarms(machine.prometheus(
            addresses, rules.hastened((PROMETHEUS / "alerts.yml").read_text(), HASTE, RANGE_SECONDS, FOR_SECONDS)))
        well = [(scenario.app, push) for scenario in SCENARIOS for push in scenario.well]
        ill = [(scenario.app, push) for scenario in SCENARIOS for push in scenario.ill]

        def is_watching():
            return len(alarms.query("up == 1")) == len(addresses) and not alarms.firing()

        every_second(is_watching, lambda: None, PATIENCE_SECONDS)
        every_second(lambda: False, lambda: installation.send(well), QUIET_SECONDS)
        results.check("all are silent while every app is well", text(alarms.ever_fired(QUIET_SECONDS)))

        expected = {(scenario.alert, scenario.app): scenario.cause for scenario in SCENARIOS if scenario.alert}
        expected["ReplicaGone", addresses[1]] = "the replica was killed"
        after = {}

        def watch():
            for subject in alarms.firing() & set(expected):
                after.setdefault(subject, time.monotonic() - began)
            return set(after) == set(expected)

        def trouble():
            installation.send(ill)
            installation.enqueue_greedily()
            installation.ask_without_key()
            # A ticket asked for in vain is due again after a minute: here at once.
            machine.sql("""update push.receipt_batch set due_at = greatest(sent_at, now())
                where app = 'receipts' and attempts > 0""")

        began = time.monotonic()
        installation.befall()
        every_second(watch, trouble, PATIENCE_SECONDS)
        for subject, cause in expected.items():
            if subject in after:
                results.check(f"{subject[0]} fires when {cause}, after {after[subject]:.0f} s", [])
            else:
                results.check(f"{subject[0]} fires when {cause}", [f"it did not within {PATIENCE_SECONDS} s"])
        follows = {(alert, scenario.app) for scenario in SCENARIOS for alert in scenario.follows}
        fired = alarms.ever_fired(time.monotonic() - began)
        results.check("no alert fires for another cause, or an app that is well", text(fired - set(expected) - follows))
        results.check("every query of the dashboard shows something", dashboard_faults(alarms))

        installation.mend()
        ended = every_second(lambda: not alarms.firing(), lambda: installation.send(well), PATIENCE_SECONDS)
        results.check("all of them end when their causes do", text(alarms.firing()) if ended is None else [])

        installation.stop()
        noticed = every_second(lambda: ("NothingDelivered", "all") in alarms.firing(), lambda: None, PATIENCE_SECONDS)
        results.check("NothingDelivered fires when no replica is left", ["it did not"] if noticed is None else [])
    results.finish()


if __name__ == "__main__":
    try:
        main(os.environ["PUSH_GATEWAY_TEST_DATABASE_URL"], Path(os.environ["PUSH_GATEWAY"]))
    except Failure as failure:
        sys.exit(f"not ok - {failure}")
