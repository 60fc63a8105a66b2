"""The page docs/integrations/java.md, lived through: its classes, compiled, in a backend of Enclosure's shape."""

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from machine import Failure, Machine, Results, fcm, hexadecimal, stop

PAGE = "docs/integrations/java.md"
DRIVER = Path("/usr/share/java/postgresql.jar")
HERE = Path(__file__).resolve().parent
VOIP, PHOTO = hexadecimal("omar"), "https://cdn.example.com/nadia.jpg"
# A name that is no JSON as it stands.
NADIA = 'Nadia "N" \\ Zoë'


class Backend:
    """A Java program with the page's classes; `tell` gives it a line and returns its answer."""

    def __init__(self, machine):
        directory = machine.work / "backend"
        directory.mkdir()
        shutil.copy(HERE / "enclosure/Backend.java", directory)
        sources = ["Backend.java"]
        for name, text in machine.page.files.items():
            if name.endswith(".java"):
                (directory / name).write_text(text)
                sources.append(name)
        machine.run(["javac", "-encoding", "UTF-8", "-proc:none", "-Xlint:all", "-Werror", *sources], cwd=directory)
        url = re.sub(r"^\w+://[^@]+@", "jdbc:postgresql://", machine.url)
        self.log = machine.work / "backend.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                ["java", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", f"{directory}:{DRIVER}", "Backend",
                 f"http://{machine.api}", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True,
                encoding="utf-8", env={**os.environ, "PUSH_GATEWAY_KEY": machine.key("enqueue")})
        machine.running.append((self.process, self.log))

    def tell(self, *words):
        self.process.stdin.write("\t".join("-" if word is None else word for word in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer.startswith("> "):
            raise Failure(f"the backend says {answer!r}: {self.log.read_text()[-500:]}")
        return answer[2:].strip()


def at_once(ask):
    """Whether no request has to be made a second time, which it is after five seconds; a busy machine may be late once or twice."""
    for _ in range(4):
        began = time.monotonic()
        ask()
        if time.monotonic() - began < 5:
            return True
    return False


def over_http(machine, results, backend):
    omar = ("omar", "+31612345678", VOIP, fcm("omar"), "ios")
    results.equal("a call is taken", backend.tell("call", "room 7/a", "voice", "nadia", NADIA, PHOTO, *omar), "done")
    push = machine.push(VOIP)
    wanted = {"name": NADIA, "photo": PHOTO, "roomId": "room 7/a", "receiverId": "omar", "phone": "+31612345678", "uid": "nadia",
              "bodyKey": "Incoming voice call"}
    results.equal("the iPhone gets what it reads, over VoIP", (
        push["kind"], {name: push["payload"].get(name) for name in wanted}), ("voip", wanted))
    results.equal("and rings, filed under the caller", set(machine.does(push).values()),
                  {f"rings: “{NADIA}”, filed under nadia"})
    results.equal("an answer is taken", backend.tell("answered", "room 7/a", "omar", None), "done")
    results.equal("at once, over the connection that is there", at_once(
        lambda: backend.tell("answered", "room 7/a", "omar", None)), True)
    results.equal("it is the call's", machine.sql(
        "select state, answered_by from push.outbox where call_id = 'room 7/a'"), "answered|omar")

    backend.tell("call", "room-8", "video", "nadia", "Nadia", None, "lina", None, None, fcm("lina"), "ios")
    push = machine.push(fcm("lina"))
    results.equal("a video call to an iPhone without a VoIP token is an alert, which a tap makes a call of", {
        does for phone, does in machine.does(push).items() if phone.startswith("iPhone, background")},
        {"shows “Nadia” / “Incoming video call”; a tap leads to: call"})
    results.equal("who has no number known has an empty one", push["payload"]["phone"], "")
    results.equal("a decline is taken", backend.tell("declined", "room-8", "lina", None), "done")
    results.equal("of the last one, it ends the call", machine.sql(
        "select state, end_reason from push.outbox where call_id = 'room-8'"), "ended|declined")
    backend.tell("call", "room-11", "voice", "omar", "Omar", None, *omar)
    results.equal("who calls is not rung", machine.sql("select recipients::text from push.outbox where call_id = 'room-11'"), "[]")
    backend.tell("message", "m-1", "-", "nadia", "Nadia", PHOTO, *omar[:4], "ios-voice-video")
    push = machine.push(fcm("omar"))
    wanted = {"bodyKey": "chatting", "friendUidKey": "nadia", "name": "Nadia", "user_nameKey": "Nadia", "photo": PHOTO}
    results.equal("a message goes over FCM, also to who has switched calls off", {
        name: push["payload"].get(name) for name in wanted}, wanted)
    results.equal("and a tap leads to the chat", {does for phone, does in machine.does(push).items() if "iPhone" in phone},
                  {"shows “Nadia” / “New message”; a tap leads to: chat nadia"})
    machine.settled()
    results.equal("who declines has missed nothing", len(machine.pushes(fcm("lina"))), 2)
    backend.tell("call", "room-10", "voice", "nadia", "Nadia", None, *omar)
    results.equal("a hang-up is taken", backend.tell("ended", "room-10", "cancelled"), "done")
    results.equal("and ends the call", machine.sql(
        "select state, end_reason from push.outbox where call_id = 'room-10'"), "ended|cancelled")
    answer = backend.tell("call", "", "voice", "nadia", "Nadia", None, *omar)
    results.equal("what is wrong is an error that names the field", answer.partition(",")[0].startswith(
        "IllegalArgumentException: push-gateway refuses: 4"), True)
    for kind, other in (("voice", "video"), ("video", "voice")):
        backend.tell("call", f"off-{kind}", kind, "nadia", "Nadia", None, *omar[:4], f"ios-{kind}")
        backend.tell("ended", f"off-{kind}", "cancelled")
        backend.tell("call", f"on-{kind}", kind, "nadia", "Nadia", None, *omar[:4], f"ios-{other}")
        machine.find(VOIP, roomId=f"on-{kind}")
        machine.settled()
        results.equal(f"no push of a {kind} call comes to a phone that has switched these off, but of the other kind", (
            [push for push in machine.pushes() if f"off-{kind}" in json.dumps(push["payload"])],
            len([push for push in machine.pushes(VOIP) if push["payload"]["roomId"] == f"on-{kind}"])), ([], 1))
    phones = [word for name in ("lina", "tablet") for word in ("lina", None, None, fcm(name), "ios")]
    for name in ("answered", "declined"):
        backend.tell("call", f"room-{name}", "voice", "nadia", "Nadia", None, *phones)
        results.equal(f"{name} by one of a user's phones, the other one is told", machine.told(
            f"room-{name}", fcm("lina"), fcm("tablet"), lambda: backend.tell(name, f"room-{name}", "lina", fcm("lina"))), (1, 2))
    stop(machine.serving)
    results.equal("while the gateway is away, it is an error of another kind", backend.tell(
        "call", "room-9", "voice", "nadia", "Nadia", None, *omar).partition(": ")[0], "IOException")
    machine.serve()


def in_a_transaction(machine, results, backend):
    recipients = '[{"userId": "omar", "voipPushToken": "%s"}, "nobody"]' % VOIP
    payload = '{"callId": "%s", "from": "nadia", "fromName": "Nadia"}'
    results.equal("a call is a row", backend.tell("enqueue", "incoming_call", payload % "t-1", recipients),
                  "Enqueued[deliveries=1, duplicate=false, skipped=1]")
    results.equal("the same again is no other", backend.tell("enqueue", "incoming_call", payload % "t-1", recipients),
                  "Enqueued[deliveries=1, duplicate=true, skipped=1]")
    backend.tell("rollback")
    backend.tell("enqueue", "incoming_call", payload % "t-2", recipients)
    backend.tell("commit")
    machine.find(VOIP, roomId="t-2")
    results.equal("only what is committed rings", [p for p in machine.pushes(VOIP) if p["payload"]["roomId"] == "t-1"], [])
    both = '[{"userId": "omar", "voipPushToken": "%s"}, {"userId": "lina", "fcmToken": "%s"}]' % (VOIP, fcm("lina"))
    backend.tell("enqueue", "incoming_call", payload % "t-4", both)
    results.equal("a decline", backend.tell("decline", "t-4", "omar", None), "true")
    backend.tell("commit")
    results.equal("is one user's", machine.sql("select state from push.outbox where call_id = 't-4'"), "ringing")
    results.equal("an answer ends it, once", (backend.tell("answer", "t-2", "omar", None), backend.tell("end", "t-2", "ended")),
                  ("true", "false"))
    backend.tell("commit")
    phones = json.dumps([{"userId": "lina", "fcmToken": fcm(name), "platform": "ios"} for name in ("lina", "tablet")])
    for name in ("answer", "decline"):
        backend.tell("enqueue", "incoming_call", payload % f"t-{name}", phones)
        backend.tell("commit")
        results.equal(f"{name} on one of a user's phones, in a transaction: the other one is told", machine.told(
            f"t-{name}", fcm("lina"), fcm("tablet"),
            lambda: (backend.tell(name, f"t-{name}", "lina", fcm("lina")), backend.tell("commit"))), (1, 2))
    answer = backend.tell("enqueue", "incoming_call", '{"callId": "t-3", "from": 7}', recipients)
    results.equal("what is wrong is named", "payload.from: must be a string" in answer, True)
    backend.tell("rollback")


def main(given, gateway):
    results = Results()
    if not shutil.which("javac") or not DRIVER.exists():
        raise Failure("there is no javac, or no JDBC driver: run scripts/setup.sh")
    with Machine(given, gateway, PAGE, "enclosure", "enclosure") as machine:
        backend = Backend(machine)
        over_http(machine, results, backend)
        in_a_transaction(machine, results, backend)
    return results
