"""The page docs/integrations/express.md, lived through: its code in an Express backend of Porteiro's shape."""

import json
import re
import shutil
import urllib.error
import urllib.request
import uuid
from pathlib import Path

from machine import HTTP, ROOT, Failure, Machine, Results, await_, ended, expo, hexadecimal, stop

PAGE = "docs/integrations/express.md"
MODULES = ROOT / ".local/node/usr/share/nodejs"
HERE = Path(__file__).resolve().parent
VOIP, TABLET = hexadecimal("ana"), hexadecimal("tablet")
ANA, BRUNO, CARLA, DORA, GRETA, OLD = (expo(name) for name in ("ana", "bruno", "carla", "dora", "greta", "old"))
# Rows as getResidentsByApartment gives them: Ana has an iPhone and an iPad; Carla wants no notifications; Emil's token
# has been cut short, Dora's row is from before there was a switch for notifications, Greta's iPhone has an Expo token alone, and
# Bruno has kept his old phone.
RESIDENTS = [
    {"id": "ana", "push_token": ANA, "voip_push_token": VOIP, "notification_enabled": True,
     "voip_tokens": [{"token": VOIP, "environment": "production"}, {"token": TABLET, "environment": "production"}]},
    {"id": "bruno", "push_token": BRUNO, "voip_push_token": None, "voip_tokens": None, "notification_enabled": True,
     "platform": "android"},
    {"id": "bruno", "push_token": OLD, "voip_push_token": None, "voip_tokens": None, "notification_enabled": True,
     "platform": "android"},
    {"id": "greta", "push_token": GRETA, "voip_push_token": None, "voip_tokens": None, "notification_enabled": True,
     "platform": "ios"},
    {"id": "carla", "push_token": CARLA, "voip_push_token": None, "voip_tokens": None, "notification_enabled": False},
    {"id": "dora", "push_token": DORA, "voip_push_token": None, "voip_tokens": None},
    {"id": "emil", "push_token": "", "voip_push_token": "c0ffee", "voip_tokens": None, "notification_enabled": True},
]


def call_id(number):
    return f"7d4e3a52-53cb-4a4e-9f0c-00000000000{number}"


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
    status, answer = backend.post("/api/calls/start", callId=call_id(1), apartmentNumber=101, doormanId="doorman-7",
                                  doormanName="Portaria Sul", clientVersion=None)
    results.equal("a call goes to every device, and says to how many", (status, answer["notificationsSent"]), (201, 5))
    shown = {"type": "intercom_call", "callId": call_id(1), "from": "doorman-7", "fromName": "Portaria Sul",
             "apartmentNumber": "101", "buildingName": "Edifício Aurora", "channelName": f"call-{call_id(1)}"}
    for what, token in (("the iPhone", VOIP), ("the iPad", TABLET)):
        push = machine.push(token)
        results.equal(f"{what} gets baseCallData over VoIP", (
            push["kind"], push["payload"]["isVoip"], {k: push["payload"].get(k) for k in shown}), ("voip", True, shown))
        # Today's app names CallKit the caller's id (VoipCallKitHandler.mm:100-105).
        results.equal(f"and {what} rings", set(machine.does(push).values()), {"rings: “doorman-7”"})
    push = machine.push(BRUNO)
    results.equal("the Android phone gets data alone", (
        {k: push["payload"]["data"].get(k) for k in shown}, {"title", "body", "channelId"} & push["payload"].keys()),
        (shown, set()))
    results.equal("and rings", {does for phone, does in machine.does(push).items() if phone.startswith("Android")},
                  {"rings: “Portaria Sul”"})
    results.equal("an iPhone without a VoIP token is shown it", {
        does for phone, does in machine.does(machine.push(GRETA)).items() if phone.startswith("iPhone, background")},
        {"shows “Portaria Sul” / “Chamada recebida”; a tap leads to: app; rings if iOS wakes the app: “Portaria Sul”"})
    results.equal("who is passed over is in the backend's log, with why", sorted(
        re.findall(r"(\w+) is not rung: (\w+)", backend.log.read_text())),
        [("carla", "NotificationsDisabled"), ("dora", "NotificationsDisabled"), ("emil", "TokenMalformed")])

    backend.post(f"/api/calls/{call_id(1)}/answer", userId="ana", userType="resident")
    results.equal("an answer is the call's", machine.sql(
        f"select state, answered_by from push.outbox where call_id = '{call_id(1)}'"), "answered|ana")
    end = machine.push(BRUNO, 1)
    results.equal("the other resident's phone is told, by another type", end["payload"]["data"]["type"], "intercom_call_end")
    end = machine.push(GRETA, 1)
    results.equal("where it was shown, it is over", (end["payload"]["body"], end["headers"]["collapseId"]), (
        "Chamada encerrada", call_id(1)))
    machine.settled()

    backend.post("/api/calls/start", callId=call_id(2), apartmentNumber="101", doormanId="doorman-7")
    results.equal("a doorman without a name is called Porteiro", machine.find(VOIP, callId=call_id(2))["payload"]["fromName"],
                  "Porteiro")
    backend.post(f"/api/calls/{call_id(2)}/decline", userId="bruno", userType="resident")
    ringing = f"select state from push.outbox where call_id = '{call_id(2)}'"
    results.equal("one who declines leaves the others ringing", machine.sql(ringing), "ringing")
    backend.post(f"/api/calls/{call_id(2)}/decline", userId="greta", userType="resident")
    backend.post(f"/api/calls/{call_id(2)}/decline", userId="ana", userType="resident")
    results.equal("the last one ends the call", machine.sql(ringing), "ended")
    machine.settled()
    results.equal("nobody missed it", missed(machine, call_id(2)), [])

    for number, what in ((5, "answer"), (6, "decline")):
        backend.post("/api/calls/start", callId=call_id(number), apartmentNumber="101", doormanId="doorman-7")
        results.equal(f"{what} on one of a user's phones: the other one is told", machine.told(
            call_id(number), BRUNO, OLD, lambda: backend.post(
                f"/api/calls/{call_id(number)}/{what}", userId="bruno", userType="resident", pushToken=BRUNO)), (1, 2))
        backend.post(f"/api/calls/{call_id(number)}/end", userId="doorman-7", userType="doorman")
        machine.settled()

    backend.post("/api/calls/start", callId=call_id(3), apartmentNumber="101", doormanId="doorman-7")
    backend.post(f"/api/calls/{call_id(3)}/end", userId="doorman-7", userType="doorman")
    machine.settled()
    results.equal("a doorman who hangs up leaves one missed call each, over Expo", missed(machine, call_id(3)), [
        ("Chamada perdida", token) for token in sorted((ANA, BRUNO, GRETA))])


def missed(machine, call):
    """Text and token of a call's missed calls."""
    found = [push for push in machine.pushes() if call in json.dumps(push["payload"])]
    return sorted((push["payload"]["body"], push["token"]) for push in found
                  if push["provider"] == "expo" and push["payload"].get("data", {}).get("type") == "missed_call")


def away(machine, results, backend):
    stop(machine.serving)
    status, answer = backend.post("/api/calls/start", callId=call_id(4), apartmentNumber="101", doormanId="doorman-7")
    results.equal("a call is made even while the gateway is away", (status, answer["notificationsSent"]), (201, 0))
    machine.serve()


def in_a_transaction(machine, results, backend):
    machine.sql("""
        create table calls (id text primary key, doorman text not null);
        create table profiles (id text, push_token text, voip_push_token text, platform text, notification_enabled boolean);
        insert into profiles values ('fabio', null, '%s', 'ios', true), ('gina', '', null, null, true)""" % hexadecimal("fabio"))
    status, started = backend.post("/api/transactions/start", doormanId="doorman-7")
    push = machine.push(hexadecimal("fabio"))
    results.equal("a call and its pushes are one transaction", (status, push["payload"]["callId"]), (200, started["callId"]))
    results.equal("its id is one by which the app knows the call when it is answered", (
        str(uuid.UUID(started["callId"])), set(machine.does(push).values())), (started["callId"], {"rings: “doorman-7”"}))
    status, answer = backend.post("/api/transactions/start", doormanId=7)
    rows = machine.sql("select string_agg(id, ' ' order by id) from calls")
    results.equal("what the gateway refuses, by field, undoes the call", (
        status, answer["code"], answer["error"].partition(":")[0], rows), (500, "22023", "payload.from", started["callId"]))


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
