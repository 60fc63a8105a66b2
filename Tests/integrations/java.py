"""The page docs/integrations/java.md, lived through: its class, compiled, in a program that does what it is told."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from machine import Failure, Machine, Results, fcm

PAGE = "docs/integrations/java.md"
DRIVER = Path("/usr/share/java/postgresql.jar")
HERE = Path(__file__).resolve().parent
OMAR = fcm("omar")


class Backend:
    """A Java program with the page's class; `tell` gives it a line and returns its answer."""

    def __init__(self, machine):
        directory = machine.work / "backend"
        directory.mkdir()
        shutil.copy(HERE / "java/Backend.java", directory)
        (directory / "PushOutbox.java").write_text(machine.page.files["PushOutbox.java"])
        machine.run(["javac", "-encoding", "UTF-8", "-proc:none", "-Xlint:all", "-Werror", "Backend.java", "PushOutbox.java"],
                    cwd=directory)
        url = re.sub(r"^\w+://[^@]+@", "jdbc:postgresql://", machine.url)
        self.log = machine.work / "backend.log"
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                ["java", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", f"{directory}:{DRIVER}", "Backend", url],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, encoding="utf-8", env=os.environ)
        machine.running.append((self.process, self.log))

    def tell(self, *words):
        self.process.stdin.write("\t".join("-" if word is None else word for word in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer.startswith("> "):
            raise Failure(f"the backend says {answer!r}: {self.log.read_text()[-500:]}")
        return answer[2:].strip()


def in_a_transaction(machine, results, backend):
    recipients = json.dumps([{"userId": "omar", "fcmToken": OMAR, "platform": "android"}, "nobody"])
    payload = '{"callId": "%s", "from": "nadia", "fromName": "Nadia"}'
    results.equal("a call is a row", backend.tell("enqueue", "incoming_call", payload % "t-1", recipients),
                  "Enqueued[deliveries=1, duplicate=false, skipped=1]")
    results.equal("the same again is no other", backend.tell("enqueue", "incoming_call", payload % "t-1", recipients),
                  "Enqueued[deliveries=1, duplicate=true, skipped=1]")
    backend.tell("rollback")
    backend.tell("enqueue", "incoming_call", payload % "t-2", recipients)
    backend.tell("commit")
    machine.find(OMAR, callId="t-2")
    results.equal("only what is committed rings", [p for p in machine.pushes(OMAR) if p["payload"]["callId"] == "t-1"], [])
    both = json.dumps([{"userId": name, "fcmToken": fcm(name), "platform": "android"} for name in ("omar", "lina")])
    backend.tell("enqueue", "incoming_call", payload % "t-4", both)
    results.equal("a decline", backend.tell("decline", "t-4", "omar", None), "true")
    backend.tell("commit")
    results.equal("is one user's", machine.sql("select state from push.outbox where call_id = 't-4'"), "ringing")
    results.equal("an answer ends it, once", (backend.tell("answer", "t-2", "omar", None), backend.tell("end", "t-2", "ended")),
                  ("true", "false"))
    results.equal("a hang-up ends the other one", backend.tell("end", "t-4", "cancelled"), "true")
    backend.tell("commit")
    phones = json.dumps([{"userId": "lina", "fcmToken": fcm(name), "platform": "android"} for name in ("lina", "tablet")])
    for name in ("answer", "decline"):
        backend.tell("enqueue", "incoming_call", payload % f"t-{name}", phones)
        backend.tell("commit")
        results.equal(f"{name} on one of a user's phones: the other one is told", machine.told(
            f"t-{name}", fcm("lina"), fcm("tablet"),
            lambda: (backend.tell(name, f"t-{name}", "lina", fcm("lina")), backend.tell("commit"))), (1, 2))
    answer = backend.tell("enqueue", "incoming_call", '{"callId": "t-3", "from": 7}', recipients)
    results.equal("what is wrong is named", "payload.from: must be a string" in answer, True)
    backend.tell("rollback")


def main(given, gateway):
    results = Results()
    if not shutil.which("javac") or not DRIVER.exists():
        raise Failure("there is no javac, or no JDBC driver: run scripts/setup.sh")
    with Machine(given, gateway, PAGE, "porteiro", "porteiro") as machine:
        in_a_transaction(machine, results, Backend(machine))
    return results
