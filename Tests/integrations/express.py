"""The page docs/integrations/express.md, lived through: its edits in Porteiro's own backend, or in a stand-in of it.

Without GUIDE_SOURCES the stand-in alone is run (porteiro/src). With it, Porteiro's files are run as well, and the stand-in is
compared with them.
"""

import json
import os
import re
import secrets
import shutil
import urllib.error
import urllib.request
import uuid
from base64 import b64encode
from pathlib import Path

from edits import Edits
from machine import HTTP, PATIENCE_SECONDS, ROOT, Machine, Page, Results, await_, ended, expo, free_port, hexadecimal, reachable, stop

PAGE = "docs/integrations/express.md"
NODE = ROOT / ".local/node"
MODULES, ESBUILD = NODE / "usr/share/nodejs", NODE / "usr/bin/esbuild"
HERE = Path(__file__).resolve().parent / "porteiro"
# What Porteiro imports and packages.mjs replaces.
REPLACED = ("@porteiroapp/supabase", "agora-token", "cors")
LONG_AGO, LATER = "2025-12-01T00:00:00Z", "2100-01-01T00:00:00Z"

VOIP, TABLET, DOORMAN, HELENA_IPHONE, FABIO_IPHONE, NINA = (
    hexadecimal(name) for name in ("ana", "tablet", "doorman", "helena", "fabio", "nina"))
ANA, BRUNO, CARLA, DORA, FABIO, GRETA, HELENA, OTTO, IRIS, KARIN, DESK, NIGHT = (expo(name) for name in (
    "ana", "bruno", "carla", "dora", "fabio", "greta", "helena", "otto", "iris", "karin", "desk", "night"))
DEAD_VOIP, DEAD_LEGACY, DEAD_BUT_NEW = (("dead4100" + hexadecimal(name))[:64] for name in ("iris", "karin", "lars"))
DEAD_EXPO = f"ExponentPushToken[fault-DeviceNotRegistered-x{secrets.token_hex(4)}]"


def profile(name, push_token=None, voip_push_token=None, enabled=True, kind="morador", full_name=None):
    """A row of profiles. The login's id is another one than the profile's, as in Porteiro."""
    return {"id": name, "user_id": f"login-{name}", "full_name": full_name or name.title(), "user_type": kind, "building_id": "b1",
            "push_token": push_token, "voip_push_token": voip_push_token, "notification_enabled": enabled, "updated_at": LONG_AGO}


def device(name, token, platform="ios", kind="voip", environment="production", updated_at=LONG_AGO):
    return {"user_id": f"login-{name}", "device_token": token, "platform": platform, "token_type": kind,
            "environment": environment, "updated_at": updated_at}


# In 101, Ana has an iPhone and an iPad; Bruno's Android phone has registered no platform; Carla wants no notifications; Dora's
# row is from before there was a switch; Emil's token has been cut short; Fabio's VoIP token is in profiles; Greta's iPhone has an
# Expo token alone; Helena has an iPhone and an Android phone. In 102, Nina has a VoIP token alone, which the controller's own
# count leaves out. In 103 are dead tokens: of both tables, of Apple and Expo, and one that was registered again since.
APARTMENTS = {
    "101": [profile("ana", ANA), profile("bruno", BRUNO), profile("carla", CARLA, enabled=False), profile("dora", DORA, enabled=None),
            profile("emil", "", "c0ffee"), profile("fabio", FABIO, FABIO_IPHONE), profile("greta", GRETA), profile("helena", HELENA)],
    "102": [profile("nina"), profile("otto", OTTO)],
    "103": [profile("iris", IRIS), profile("jonas", DEAD_EXPO), profile("karin", KARIN, DEAD_LEGACY), profile("lars")],
}
TABLES = {
    "buildings": [{"id": "b1", "name": "Edifício Aurora"}],
    "apartments": [{"id": f"a{number}", "number": number, "building_id": "b1"} for number in APARTMENTS],
    "profiles": [row for rows in APARTMENTS.values() for row in rows] + [
        profile("doorman-7", DESK, kind="porteiro", full_name="Portaria Sul"), profile("doorman-8", NIGHT, kind="porteiro")],
    "apartment_residents": [{"profile_id": row["id"], "apartment_id": f"a{number}", "is_active": True}
                            for number, rows in APARTMENTS.items() for row in rows],
    "user_devices": [
        device("ana", VOIP), device("ana", TABLET), device("doorman-7", DOORMAN), device("nina", NINA),
        device("greta", GRETA, kind="standard"), device("helena", HELENA_IPHONE), device("helena", HELENA, "android", "standard"),
        device("iris", DEAD_VOIP), device("jonas", DEAD_EXPO, "android", "standard"), device("lars", DEAD_BUT_NEW, updated_at=LATER)],
}
TABLES["profiles"][-1]["full_name"] = None


class Backend:
    """Node.js with the page's files in a backend whose directory src is made by `source`, on `port` of the loopback."""

    def __init__(self, machine, source, port, secret):
        directory = machine.work / "backend"
        directory.mkdir()
        source(directory / "src")
        for name in ("backend.mjs", "packages.mjs"):
            shutil.copy(HERE / name, directory)
        (directory / "start-call.mjs").write_text(machine.page.files["start-call.mjs"])
        (directory / "node_modules").symlink_to(MODULES)
        machine.run([ESBUILD, "backend.mjs", "--bundle", "--packages=external", "--platform=node", "--format=esm",
                     "--outfile=bundle.mjs", "--define:import.meta.url=''", "--log-level=error",
                     *(f"--alias:{name}=./packages.mjs" for name in REPLACED)], cwd=directory)
        environment = {
            "NODE_PATH": str(MODULES), "PUSH_GATEWAY_URL": f"http://{machine.api}", "PUSH_GATEWAY_KEY": machine.key("enqueue"),
            "PUSH_GATEWAY_WEBHOOK_SECRET": secret, "TABLES": json.dumps(TABLES), "PORT": str(port), "NODE_NO_WARNINGS": "1",
            "AGORA_APP_ID": "id", "AGORA_APP_CERTIFICATE": "certificate", **database(machine.url)}
        self.process, self.log = machine.start("backend", ["node", "bundle.mjs"], environment, cwd=directory)
        self.address = f"http://127.0.0.1:{port}"
        await_("the backend", lambda: reachable(f"{self.address}/tables"), lambda: ended(self.process, self.log))

    def post(self, path, **body):
        """The answer's status and JSON."""
        request = urllib.request.Request(self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with HTTP.open(request, timeout=PATIENCE_SECONDS) as response:
                return response.status, json.loads(response.read() or "null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or "null")

    def start(self, doorman="doorman-7", apartment="101"):
        """A new call: its id, and to how many devices it goes."""
        status, answer = self.post("/api/calls/start", apartmentNumber=apartment, doormanId=doorman, buildingId="b1")
        return (answer["data"]["call"]["id"], answer["data"]["notificationsSent"]) if status == 201 else (status, answer)

    def say(self, call, what, who, **more):
        # The app says "resident" whoever it is: InterfoneAPI.ts:150, 161, 172.
        return self.post(f"/api/calls/{call}/{what}", userId=who, userType="resident", **more)[0]

    def rows(self, table):
        with HTTP.open(f"{self.address}/tables", timeout=PATIENCE_SECONDS) as response:
            return json.load(response)[table]

    def status(self, call):
        return next(row["status"] for row in self.rows("intercom_calls") if row["id"] == call)


def database(url):
    """What node-postgres needs in the environment."""
    user, host, port, name = re.fullmatch(r"\w+://([^:@]+)(?::[^@]*)?@([^:/]+):(\d+)/([^?]+).*", url).groups()
    return {"PGUSER": user, "PGHOST": host, "PGPORT": port, "PGDATABASE": name}


def state(machine, call):
    return machine.sql(f"select concat_ws(' ', state, answered_by, end_reason) from push.outbox where call_id = '{call}'")


def of(machine, token, call):
    """The push of a call to a token that came first, waited for."""
    return await_(f"{call} to {token[:12]}…", lambda: [
        push for push in machine.pushes(token) if call in json.dumps(push["payload"])])[0]


def missed(machine, call):
    """Text and token of a call's missed calls."""
    found = [push for push in machine.pushes() if call in json.dumps(push["payload"])]
    return sorted((push["payload"]["body"], push["token"]) for push in found
                  if push["provider"] == "expo" and push["payload"].get("data", {}).get("type") == "missed_call")


def calls(machine, results, backend):
    status, answer = backend.post("/api/calls/start", apartmentNumber="101", doormanId="doorman-7", buildingId="b1",
                                  clientVersion=None)
    results.equal("a call goes to every device, and says to how many", (status, answer.get("data", {}).get("notificationsSent")),
                  (201, 7))
    call = answer["data"]["call"]["id"]
    results.equal("the doorman's app gets nobody's token", re.findall("ExponentPushToken|c0ffee", json.dumps(answer)), [])
    shown = {"type": "intercom_call", "callId": call, "from": "doorman-7", "fromName": "Portaria Sul",
             "apartmentNumber": "101", "channelName": f"call-{call}"}
    for what, token in (("the iPhone", VOIP), ("the iPad", TABLET), ("one whose token is in profiles", FABIO_IPHONE)):
        push = machine.push(token)
        results.equal(f"{what} gets baseCallData over VoIP", (
            push["kind"], push["payload"]["isVoip"], {k: push["payload"].get(k) for k in shown}), ("voip", True, shown))
        # Today's app names CallKit the caller's id (VoipCallKitHandler.mm:100-105).
        results.equal(f"and {what} rings", set(machine.does(push).values()), {"rings: “doorman-7”"})
    push = machine.push(BRUNO)
    results.equal("an Expo token without a platform is an Android phone's: data alone", (
        {k: push["payload"]["data"].get(k) for k in shown}, {"title", "body", "channelId"} & push["payload"].keys()),
        (shown, set()))
    for token in (BRUNO, HELENA):
        results.equal("and it rings", {does for phone, does in machine.does(machine.push(token)).items()
                                       if phone.startswith("Android")}, {"rings: “Portaria Sul”"})
    results.equal("an iPhone without a VoIP token is shown it", {
        does for phone, does in machine.does(machine.push(GRETA)).items() if phone.startswith("iPhone, background")},
        {"shows “Portaria Sul” / “Chamada recebida”; a tap leads to: the call if iOS woke the app, as do its buttons Answer and Decline; "
         "rings if iOS wakes the app: “Portaria Sul”"})
    results.equal("who is passed over is in the backend's log, with why", sorted(
        re.findall(r"(\w+) is not rung: (\w+)", backend.log.read_text())),
        [("carla", "NotificationsDisabled"), ("dora", "NotificationsDisabled"), ("emil", "TokenMalformed")])

    results.equal("an answer is the call's", (backend.say(call, "answer", "ana"), backend.status(call), state(machine, call)),
                  (200, "answered", "answered ana answered"))
    results.equal("the other resident's phone is told, by another type", machine.push(BRUNO, 1)["payload"]["data"]["type"],
                  "intercom_call_end")
    end = machine.push(GRETA, 1)
    results.equal("where it was shown, it is over", (end["payload"]["body"], end["headers"]["collapseId"]),
                  ("Chamada encerrada", call))
    backend.say(call, "end", "doorman-7")
    machine.settled()
    results.equal("the end of a call that was answered is no missed call", (state(machine, call), missed(machine, call)),
                  ("answered ana answered", []))

    call, _ = backend.start("doorman-8")
    results.equal("a doorman without a name is called Porteiro", of(machine, VOIP, call)["payload"]["fromName"], "Porteiro")
    backend.say(call, "decline", "bruno")
    results.equal("one who declines leaves the others ringing", (backend.status(call), state(machine, call)), ("calling", "ringing"))
    # Emil hears of it over RTM: the controller counts him, the gateway does not ring him.
    for name in ("greta", "helena", "fabio", "ana", "emil"):
        backend.say(call, "decline", name)
    results.equal("the last one ends it", (backend.status(call), state(machine, call)[:5]), ("ended", "ended"))
    machine.settled()
    results.equal("nobody missed it", missed(machine, call), [])

    call, count = backend.start(apartment="102")
    backend.say(call, "decline", "otto")
    results.equal("where the controller ends a call of two, the other phone stops too", (
        count, backend.status(call), state(machine, call)), (2, "ended", "ended ended"))

    for what in ("answer", "decline"):
        for own, other, heard in ((HELENA_IPHONE, HELENA, (1, 2)), (HELENA, HELENA_IPHONE, (1, 1))):
            call, _ = backend.start()
            kind = "iPhone" if own == HELENA_IPHONE else "Android phone"
            results.equal(f"{what} on a user's {kind}: pushes to it and to the other one", machine.told(
                call, own, other, lambda: backend.say(call, what, "helena", pushToken=own), heard[1]), heard)
            backend.say(call, "end", "doorman-7")
            machine.settled()

    call, _ = backend.start()
    results.equal("a doorman hangs up", (backend.say(call, "end", "doorman-7"), backend.status(call), state(machine, call)),
                  (200, "ended", "ended ended"))
    machine.settled()
    results.equal("that is one missed call each, over Expo", missed(machine, call), [
        ("Chamada perdida", token) for token in sorted((ANA, BRUNO, FABIO, GRETA, HELENA))])


def to_the_doorman(machine, results, backend):
    def ring(doorman="doorman-7"):
        status, answer = backend.post("/api/calls/call-doorman", residentId="ana", doormanId=doorman, buildingId="b1")
        return (status, answer["data"]["notificationsSent"], answer["data"]["call"]["id"])

    status, count, call = ring()
    push = of(machine, DOORMAN, call)
    shown = {"from": "ana", "fromName": "Ana", "apartmentNumber": "101", "buildingName": "Edifício Aurora", "callId": call}
    results.equal("a resident calls the doorman, whose iPhone rings", (
        status, count, {k: push["payload"].get(k) for k in shown}, set(machine.does(push).values())),
        (201, 1, shown, {"rings: “ana”"}))
    backend.say(call, "answer", "doorman-7")
    results.equal("the doorman answers", (backend.status(call), state(machine, call)), ("answered", "answered doorman-7 answered"))
    _, _, call = ring("doorman-8")
    results.equal("another doorman's Android phone rings", {
        does for phone, does in machine.does(of(machine, NIGHT, call)).items() if phone.startswith("Android")}, {"rings: “Ana”"})
    backend.say(call, "decline", "doorman-8")
    results.equal("the doorman declines", (backend.status(call), state(machine, call)[:5]), ("ended", "ended"))
    _, _, call = ring()
    backend.say(call, "end", "ana")
    machine.settled()
    results.equal("the resident hangs up: the doorman's missed call", missed(machine, call), [("Chamada perdida", DESK)])


def dead_tokens(machine, results, backend):
    results.equal("what nobody signed is refused", backend.post("/push-events", type="token.dead", data={"token": VOIP})[0], 401)
    call, _ = backend.start(apartment="103")
    results.equal("a dead VoIP token: the Expo token beside it", of(machine, IRIS, call)["provider"], "expo")

    def left():
        profiles = backend.rows("profiles")
        return sorted({row["device_token"] for row in backend.rows("user_devices")} & {DEAD_VOIP, DEAD_EXPO, DEAD_BUT_NEW}), [
            row["id"] for row in profiles if row["push_token"] == DEAD_EXPO or row["voip_push_token"] == DEAD_LEGACY]
    await_("the dead tokens' end", lambda: left() == ([DEAD_BUT_NEW], []), lambda: ended(backend.process, backend.log))
    results.equal("dead tokens leave both tables, and one that was registered since stays", left(), ([DEAD_BUT_NEW], []))
    results.equal("and living ones stay", [sum(1 for row in backend.rows(table) if row[column]) for table, column in (
        ("user_devices", "device_token"), ("profiles", "push_token"))], [8, 12])
    machine.settled()


def unanswered(machine, results, backend):
    stop(machine.serving)
    machine.environment["PUSH_GATEWAY_APPS_PORTEIRO_RING_SECONDS"] = "5"
    machine.serve()
    call, _ = backend.start(apartment="102")
    await_("the missed call", lambda: missed(machine, call))
    machine.settled()
    results.equal("nobody answers: a missed call", (state(machine, call)[:6], missed(machine, call)), (
        "missed", [("Chamada perdida", OTTO)]))


def away(machine, results, backend):
    stop(machine.serving)
    call, count = backend.start()
    results.equal("a call is made even while the gateway is away", (count, backend.status(call)), (0, "calling"))
    results.equal("and answered", (backend.say(call, "answer", "ana"), backend.status(call)), (200, "answered"))
    machine.serve()


def in_a_transaction(machine, results, backend):
    machine.sql("""
        create table intercom_calls (id text primary key, doorman text not null);
        create table profiles (id text, push_token text, voip_push_token text, platform text, notification_enabled boolean);
        insert into profiles values ('fabio', null, '%s', 'ios', true), ('gina', '', null, null, true)""" % hexadecimal("paula"))
    status, started = backend.post("/api/transactions/start", doormanId="doorman-7")
    push = machine.push(hexadecimal("paula"))
    results.equal("a call and its pushes are one transaction", (status, push["payload"]["callId"]), (200, started["callId"]))
    results.equal("its id is one by which the app knows the call when it is answered", (
        str(uuid.UUID(started["callId"])), set(machine.does(push).values())), (started["callId"], {"rings: “doorman-7”"}))
    status, answer = backend.post("/api/transactions/start", doormanId=7)
    rows = machine.sql("select string_agg(id, ' ' order by id) from intercom_calls")
    results.equal("what the gateway refuses, by field, undoes the call", (
        status, answer["code"], answer["error"].partition(":")[0], rows), (500, "22023", "payload.from", started["callId"]))


def live(results, given, gateway, source):
    machine = Machine(given, gateway, PAGE, "porteiro", "porteiro")
    port, secret = free_port(), "whsec_" + b64encode(os.urandom(32)).decode()
    file = machine.work / "webhook.secret"
    file.touch(0o600)
    file.write_text(secret + "\n")
    machine.environment = {"PUSH_GATEWAY_APPS_PORTEIRO_WEBHOOK_URL": f"http://127.0.0.1:{port}/push-events",
                           "PUSH_GATEWAY_APPS_PORTEIRO_WEBHOOK_SECRET_FILE": str(file)}
    with machine:
        backend = Backend(machine, source, port, secret)
        calls(machine, results, backend)
        to_the_doorman(machine, results, backend)
        dead_tokens(machine, results, backend)
        away(machine, results, backend)
        in_a_transaction(machine, results, backend)
        unanswered(machine, results, backend)


def functions(text):
    """The functions of a class, by name: their texts."""
    parts = re.split(r"^  (?:static )?(?:private )?(?:async )?(\w+)(?=\(|: route\()", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def declared(text):
    """The variables of a function, without those of loops."""
    names = set(re.findall(r"(?<!for \()\b(?:const|let) (\w+)", text))
    for group in re.findall(r"\b(?:const|let) \{([^}]*)\}", text):
        names |= set(re.findall(r"^\s*(\w+)", re.sub(r"//.*", "", group).replace(",", "\n"), re.M))
    return names


def same_names(results, edits):
    """What the edits use of the stand-in, Porteiro's files have as well, and these use nothing that the edits delete."""
    for path in ("controllers/call.controller.ts", "services/db.service.ts"):
        text = (edits.checkout() / path).read_text()
        theirs, ours = functions(text), functions((HERE / "src" / path).read_text())
        results.equal(f"{path}: the stand-in's functions", sorted(set(ours) - set(theirs) - {"constructor", "one"}), [])
        lacking = []
        for name in set(ours) & set(theirs):
            used = re.findall(r"\w+", " ".join(edit.text for edit in edits.edits if "{{" + edit.name + "}}" in ours[name]))
            lacking += [f"{name}: {variable}" for variable in (declared(ours[name]) & set(used)) - declared(theirs[name])]
        results.equal(f"{path}: the stand-in's variables", sorted(lacking), [])
        lines, changes = text.split("\n"), [edit for edit in edits.edits if edit.path == path]
        removed = {number for edit in changes for number in range(edit.first, edit.last + 1)}
        deleted = declared("\n".join(lines[number - 1] for number in removed)) - declared("\n".join(
            edit.text for edit in changes))
        results.equal(f"{path}: deleted variables are used nowhere", [
            f"line {number}: {name}" for number, line in enumerate(lines, 1) if number not in removed
            for name in deleted if re.search(rf"(?<![.\w]){name}\b(?!\s*:)", line)], [])
    types = (edits.checkout().parents[2] / "packages/supabase/src/types/database.ts").read_text()
    unknown = []
    for table, columns in re.findall(r"^  (\w+): '([^']+)'", (HERE / "packages.mjs").read_text(), re.M):
        row = re.search(rf"^      {table}: \{{\n        Row: \{{\n(.*?)        \}}", types, re.M | re.S)
        unknown += [f"{table}.{column}" for column in set(columns.split()) - set(re.findall(r"^          (\w+):", row[1], re.M))]
    results.equal("the columns of the tables in memory", sorted(unknown), [])


def edited(edits, target):
    """Porteiro's files after the edits, without the two that the page says are not needed any more."""
    edits.apply(target)
    for name in ("push.service.ts", "apns.service.ts"):
        (target / "services" / name).unlink()


def main(given, gateway):
    results = Results()
    if not shutil.which("node") or not MODULES.is_dir() or not ESBUILD.exists():
        print("skipped - Express: no Node.js, or no Express and esbuild for it: see scripts/node-packages.sh")
        return results
    edits = Edits(HERE / "edits.json", Page(PAGE).files.values())
    results.of = "the stand-in: "
    live(results, given, gateway, lambda target: edits.stand_in(HERE / "src", target))
    if edits.checkout():
        results.of = "Porteiro's own files: "
        same_names(results, edits)
        live(results, given, gateway, lambda target: edited(edits, target))
    return results
