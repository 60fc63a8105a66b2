"""The page docs/integrations/web.md, lived through: a call rings a simulated browser, whose service worker is the page's own."""

import json
import subprocess

from machine import PATIENCE_SECONDS, Failure, Machine, Results, ROOT

PAGE = "docs/integrations/web.md"
CALL = "0b8f2a52-53cb-4a4e-9f0c-0123456789ab"
BROWSER = ROOT / "Tests/integrations/web/browser.mjs"


class Worker:
    """Node.js with the page's service worker."""

    def __init__(self, machine):
        file = machine.work / "push-worker.js"
        file.write_text(machine.page.files["push-worker.js"])
        self.process = subprocess.Popen(["node", str(BROWSER), str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(PATIENCE_SECONDS)

    def ask(self, **event):
        self.process.stdin.write(json.dumps(event) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"the service worker: {self.process.stderr.read().strip()[-1500:]}")
        return json.loads(line)

    def gets(self, push, seconds_later=0):
        return self.ask(bytes=push if isinstance(push, str) else json.dumps(push["payload"]), secondsLater=seconds_later)


def screen(*notifications):
    return [dict(zip(("title", "body", "rings", "silent", "actions"), one)) for one in notifications]


RINGS = ("Portaria", "Chamada recebida", True, False, ["answer", "decline"])
# Of a call that is missed: the cancel says so, too, because it may come after the missed call.
ENDED = ("Portaria", "Chamada perdida", False, True, [])
MISSED = ("Portaria", "Chamada perdida", False, False, [])


def main(given, gateway):
    results = Results()
    with Machine(given, gateway, PAGE, "porteiro", "porteiro") as machine:
        subscription = json.loads((machine.work / "simulators/webpush-subscription.json").read_text())
        token = subscription["endpoint"].rpartition("/")[2]
        machine.sql("select push.register_device('ana', 'porteiro', 'webpush', $json$" + json.dumps(subscription) + "$json$)")
        enqueue(machine, CALL)
        invite = machine.push(token)
        results.equal("the browser gets the call, at once", (invite["kind"], invite["payload"]["apartmentNumber"]), ("high", "101"))
        results.equal("the explainer says that it rings", machine.does(invite), {"browser": "rings: “Portaria”"})
        machine.settled()
        machine.sql(f"select push.end_call('{CALL}', 'ended', 'porteiro')")
        end = machine.find(token, type="intercom_call_end")
        missed = machine.find(token, type="missed_call")
        results.equal("the end has the topic of the call, and a missed call has none", (
            end["headers"].get("topic") == invite["headers"].get("topic") is not None, missed["headers"].get("topic")), (True, None))
        machine.settled()
        in_time(machine, results, invite, end, missed)
        disorder(machine, results, invite, end)
    return results


def enqueue(machine, call):
    payload = {"callId": call, "from": "doorman-7", "fromName": "Portaria", "apartmentNumber": "101"}
    machine.sql(f"select push.enqueue_call('{json.dumps(payload)}', '[\"ana\"]', 'porteiro')")


def in_time(machine, results, invite, end, missed):
    with Worker(machine) as worker:
        results.equal("a call rings, with buttons, and open pages hear of it", worker.gets(invite),
                      {"screen": screen(RINGS), "told": ["intercom_call"], "opened": []})
        results.equal("its end replaces it, in silence", worker.gets(end),
                      {"screen": screen(ENDED), "told": ["intercom_call_end"], "opened": []})
        results.equal("a missed call replaces that", worker.gets(missed)["screen"], screen(MISSED))
        results.equal("a click on it opens the app", worker.ask(click={"tag": CALL, "action": ""}),
                      {"screen": [], "told": [], "opened": ["/"]})
    with Worker(machine) as worker:
        worker.gets(invite)
        results.equal("declining tells the backend", worker.ask(click={"tag": CALL, "action": "decline"})["opened"],
                      [f"POST /calls/{CALL}/decline"])
        worker.gets(invite)
        results.equal("answering opens the call", worker.ask(click={"tag": CALL, "action": "answer"})["opened"], [f"/calls/{CALL}"])


def disorder(machine, results, invite, end):
    with Worker(machine) as worker:
        worker.gets(end)
        results.equal("an invite that was overtaken by the end of its call rings neither in a notification nor in a page",
                      worker.gets(invite), {"screen": screen(ENDED), "told": [], "opened": []})
    with Worker(machine) as worker:
        worker.gets(end)
        worker.ask(close={"tag": CALL})
        results.equal("nor does it when the user has removed that end from the screen",
                      worker.gets(invite), {"screen": screen(ENDED), "told": [], "opened": []})
    with Worker(machine) as worker:
        results.equal("an invite that comes after its ring window is shown and does not ring, in a page neither",
                      worker.gets(invite, seconds_later=3600),
                      {"screen": screen(("Portaria", "Chamada recebida", False, False, [])), "told": [], "opened": []})
        results.equal("a push that is no JSON is shown, too", worker.gets("no JSON")["screen"][-1]["title"], "Notification")
