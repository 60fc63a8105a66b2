"""The page docs/integrations/express.md, lived through: its code in an Express backend of Porteiro's shape."""

import json
import re
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from machine import HTTP, ROOT, Failure, Machine, Results, await_, ended, expo, hexadecimal, stop

PAGE = "docs/integrations/express.md"
MODULES = ROOT / ".local/node/usr/share/nodejs"
HERE = Path(__file__).resolve().parent
VOIP, TABLET = hexadecimal("ana"), hexadecimal("tablet")
ANA, BRUNO, CARLA, DORA = (expo(name) for name in ("ana", "bruno", "carla", "dora"))
# Rows as getResidentsByApartment gives them: Ana has an iPhone and an iPad; Carla wants no notifications; Emil's token
# has been cut short, Dora's row is from before there was a switch for notifications.
RESIDENTS = [
    {"id": "ana", "push_token": ANA, "voip_push_token": VOIP, "notification_enabled": True,
     "voip_tokens": [{"token": VOIP, "environment": "production"}, {"token": TABLET, "environment": "production"}]},
    {"id": "bruno", "push_token": BRUNO, "voip_push_token": None, "voip_tokens": None, "notification_enabled": True},
    {"id": "carla", "push_token": CARLA, "voip_push_token": None, "voip_tokens": None, "notification_enabled": False},
    {"id": "dora", "push_token": DORA, "voip_push_token": None, "voip_tokens": None},
    {"id": "emil", "push_token": "", "voip_push_token": "c0ffee", "voip_tokens": None, "notification_enabled": True},
]


class Backend:
    """Node.js with the page's files, on a free port of the loopback."""

    def __init__(self, machine):
        directory = machine.work / "backend"
        directory.mkdir()
        program = (HERE / "porteiro/backend.mjs").read_text()
        for name, text in machine.page.files.items():
            if name.endswith(".mjs"):
                (directory / name).write_text(text)
            program = program.replace("{{" + name + "}}", text)
        left = re.search(r"\{\{(\S+)\}\}", program)
        if left:
            raise Failure(f"{PAGE} has no file {left[1]}")
        (directory / "backend.mjs").write_text(program)
        (directory / "node_modules").symlink_to(MODULES)
        environment = {
            "NODE_PATH": str(MODULES), "PUSH_GATEWAY_URL": f"http://{machine.api}",
            "PUSH_GATEWAY_KEY": machine.key("enqueue"), "TABLES": json.dumps({"residents": RESIDENTS}),
            "NODE_NO_WARNINGS": "1", **database(machine.url)}
        self.process, self.log = machine.start("backend", ["node", "backend.mjs"], environment, cwd=directory)
        port = await_("the backend", lambda: re.search(r"listening on (\d+)", self.log.read_text()),
                      lambda: ended(self.process, self.log))
        self.address = f"http://127.0.0.1:{port[1]}"

    def post(self, path, **body):
        """The answer's status and JSON."""
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with HTTP.open(request, timeout=60) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


def database(url):
    """What node-postgres needs in the environment."""
    user, host, port, name = re.fullmatch(r"\w+://([^:@]+)(?::[^@]*)?@([^:/]+):(\d+)/([^?]+).*", url).groups()
    return {"PGUSER": user, "PGHOST": host, "PGPORT": port, "PGDATABASE": name}


def over_http(machine, results, backend):
    status, answer = backend.post("/api/calls/start", callId="call-1", apartmentNumber=101, doormanId="doorman-7",
                                  doormanName="Portaria Sul", clientVersion=None)
    results.equal("a call goes to every device, and says to how many", (status, answer["notificationsSent"]), (201, 3))
    shown = {"type": "intercom_call", "callId": "call-1", "from": "doorman-7", "fromName": "Portaria Sul",
             "apartmentNumber": "101", "buildingName": "Edifício Aurora", "channelName": "call-call-1"}
    for what, token in (("the iPhone", VOIP), ("the iPad", TABLET)):
        push = machine.push(token)
        results.equal(f"{what} gets baseCallData over VoIP", (
            push["kind"], push["payload"]["isVoip"], {k: push["payload"].get(k) for k in shown}), ("voip", True, shown))
        results.equal(f"and {what} rings", set(machine.does(push).values()), {"rings: “Portaria Sul”"})
    push = machine.push(BRUNO)
    results.equal("the Android phone gets data alone", (
        {k: push["payload"]["data"].get(k) for k in shown}, {"title", "body", "channelId"} & push["payload"].keys()),
        (shown, set()))
    results.equal("and rings", {does for phone, does in machine.does(push).items() if phone.startswith("Android")},
                  {"rings: “Portaria Sul”"})
    results.equal("who is passed over is in the backend's log, with why", sorted(
        re.findall(r"(\w+) is not rung: (\w+)", backend.log.read_text())),
        [("carla", "NotificationsDisabled"), ("dora", "NotificationsDisabled"), ("emil", "TokenMalformed")])

    backend.post("/api/calls/call-1/answer", userId="ana", userType="resident")
    results.equal("an answer is the call's", machine.sql(
        "select state, answered_by from push.outbox where call_id = 'call-1'"), "answered|ana")
    end = machine.push(BRUNO, 1)
    results.equal("the other resident's phone is told, by another type", end["payload"]["data"]["type"], "intercom_call_end")
    machine.settled()

    backend.post("/api/calls/start", callId="call-2", apartmentNumber="101", doormanId="doorman-7")
    results.equal("a doorman without a name is called Porteiro", machine.find(VOIP, callId="call-2")["payload"]["fromName"],
                  "Porteiro")
    backend.post("/api/calls/call-2/decline", userId="bruno", userType="resident")
    ringing = "select state from push.outbox where call_id = 'call-2'"
    results.equal("one who declines leaves the others ringing", machine.sql(ringing), "ringing")
    backend.post("/api/calls/call-2/decline", userId="ana", userType="resident")
    results.equal("the last one ends the call", machine.sql(ringing), "ended")
    machine.settled()
    results.equal("nobody missed it", missed(machine, "call-2"), [])

    backend.post("/api/calls/start", callId="call-3", apartmentNumber="101", doormanId="doorman-7")
    backend.post("/api/calls/call-3/end", userId="doorman-7", userType="doorman")
    machine.settled()
    results.equal("a doorman who hangs up leaves one missed call each, over Expo", missed(machine, "call-3"), [
        ("Chamada perdida", ANA), ("Chamada perdida", BRUNO)])


def missed(machine, call_id):
    """Text and token of a call's missed calls."""
    found = [push for push in machine.pushes() if call_id in json.dumps(push["payload"])]
    return sorted((push["payload"]["body"], push["token"]) for push in found
                  if push["provider"] == "expo" and push["payload"].get("data", {}).get("type") == "missed_call")


def away(machine, results, backend):
    stop(machine.serving)
    status, answer = backend.post("/api/calls/start", callId="call-4", apartmentNumber="101", doormanId="doorman-7")
    results.equal("a call is made even while the gateway is away", (status, answer["notificationsSent"]), (201, 0))
    machine.serve()


def in_a_transaction(machine, results, backend):
    machine.sql("""
        create table calls (id text primary key, doorman text not null);
        create table profiles (id text, push_token text, voip_push_token text, platform text, notification_enabled boolean);
        insert into profiles values ('fabio', null, '%s', 'ios', true), ('gina', '', null, null, true)""" % hexadecimal("fabio"))
    status, _ = backend.post("/api/transactions/start", callId="call-5", doormanId="doorman-7")
    push = machine.push(hexadecimal("fabio"))
    results.equal("a call and its pushes are one transaction", (status, push["payload"]["callId"]), (200, "call-5"))
    status, answer = backend.post("/api/transactions/start", callId="call-6", doormanId=7)
    rows = machine.sql("select string_agg(id, ' ' order by id) from calls")
    results.equal("what the gateway refuses, by field, undoes the call", (
        status, answer["code"], answer["error"].partition(":")[0], rows), (500, "22023", "payload.from", "call-5"))


def main(given, gateway):
    results = Results()
    if not shutil.which("node") or not MODULES.is_dir():
        print("skipped - Express: no Node.js, or no Express for it: see scripts/node-packages.sh")
        return results
    with Machine(given, gateway, PAGE, "porteiro", "porteiro") as machine:
        backend = Backend(machine)
        over_http(machine, results, backend)
        away(machine, results, backend)
        in_a_transaction(machine, results, backend)
    return results
