"""The page telnyx.md of docs/integrations, lived through: the test is Telnyx, and the app."""

import base64
import json
import re
import subprocess
import time

import voice_backend
from machine import await_, fcm, hexadecimal, stop
from voice_backend import PLATFORMS, Backend, android, state

ANA, NUMBER = "+31201234567", "+31207654321"


class Telnyx:
    """Sends the events of calls as Telnyx does, signed."""

    def __init__(self, machine):
        self.work = machine.work
        self.key = self.work / "telnyx.pem"
        machine.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(self.key)])
        public = subprocess.run(["openssl", "pkey", "-in", str(self.key), "-pubout", "-outform", "DER"], check=True, capture_output=True)
        self.public = base64.b64encode(public.stdout[-32:]).decode()

    def event(self, backend, kind, call_id, **payload):
        """The status of the backend's answer."""
        body = json.dumps({"data": {"event_type": kind, "payload": {
            "call_session_id": call_id, "call_control_id": f"v3:{call_id}", "from": ANA, "to": NUMBER, **payload}}}).encode()
        now = str(int(time.time()))
        signed = self.work / "signed"
        signed.write_bytes(f"{now}|".encode() + body)
        done = subprocess.run(["openssl", "pkeyutl", "-sign", "-inkey", str(self.key), "-rawin", "-in", str(signed)], check=True,
                              capture_output=True)
        return backend.ask("/webhooks/inbound-call", body, headers={
            "telnyx-timestamp": now, "telnyx-signature-ed25519": base64.b64encode(done.stdout).decode()}.items())[0]

    def call(self, backend, call_id, **payload):
        return self.event(backend, "call.initiated", call_id, **{
            "direction": "incoming", "state": "parked", "caller_id_name": "Ana", **payload})

    def hang_up(self, backend, call_id, **payload):
        return self.event(backend, "call.hangup", call_id, **{"hangup_cause": "originator_cancel", **payload})


def commands(backend, call_id):
    """What the backend told Telnyx about a caller."""
    return [(name, json.loads(options)) for name, options in re.findall(
        rf"^(transfer|reject|hangup) v3:{re.escape(call_id)} (.*)", backend.log.read_text(), re.M)]


REJECTED = [("reject", {"cause": "USER_BUSY"})]


def telnyx_id(number):
    return f"7d4e3a52-53cb-4a4e-9f0c-{number:012d}"


def live(results, given, gateway, source):
    with voice_backend.machine(given, gateway, "telnyx", "flutter") as machine:
        phone = Telnyx(machine)
        backend = Backend(machine, "telnyx", "server.js", source, TELNYX_PUBLIC_KEY=phone.public, TELNYX_API_KEY="KEY1", RING_SECONDS="300")
        (backend.directory / "users.json").write_text(json.dumps({
            NUMBER: {"id": "bob", "sipUser": "bob4711"}, "+31200000000": {"id": "carla", "sipUser": "carla4711"}}))
        backend.start()
        first = telnyx_id(1)
        results.equal("no phone can ring: the caller is rejected", (phone.call(backend, first), commands(backend, first)),
                      (200, REJECTED))
        results.equal("and so is one who calls nobody's number", (
            phone.call(backend, "nobody", to="+31209999999"), commands(backend, "nobody")), (200, REJECTED))
        for platform, token in (("ios", hexadecimal("bob")), ("android", fcm("bob"))):
            results.equal(f"the app gives its token on {platform}", backend.post(
                "/devices", userId="bob", platform=platform, token=token), 204)
        results.equal("each token has its platform", machine.sql(PLATFORMS), "apns ios, fcm android")

        rings(results, machine, backend, phone)
        results.equal("a repeated event is the same call", (
            phone.call(backend, telnyx_id(2)), machine.sql(f"select count(*) from push.outbox where call_id = '{telnyx_id(2)}'")),
            (200, "1"))
        results.equal("nobody is sent to a phone that has not connected", commands(backend, telnyx_id(2)), [])
        results.equal("answered on the iPhone, the Android phone is told", machine.told(
            telnyx_id(2), hexadecimal("bob"), fcm("bob"), lambda: results.equal("the app has connected", backend.post(
                f"/calls/{telnyx_id(2)}/accept", userId="bob", token=hexadecimal("bob")), 204)), (1, 2))
        results.equal("and the caller is sent to it", (state(machine, telnyx_id(2)), commands(backend, telnyx_id(2))), (
            "answered|bob|answered", [("transfer", {"to": "sip:bob4711@sip.telnyx.com", "timeout_secs": 10})]))
        results.equal("a second phone comes too late", backend.post(
            f"/calls/{telnyx_id(2)}/accept", userId="bob", token=fcm("bob")), 409)
        results.equal("an app that cannot be reached: the caller is let go", (phone.hang_up(
            backend, telnyx_id(2), call_control_id="v3:leg-b", hangup_cause="timeout"), commands(backend, telnyx_id(2))[1:]), (
                200, [("hangup", {})]))
        phone.hang_up(backend, telnyx_id(2))

        phone.call(backend, telnyx_id(3))
        machine.find(fcm("bob"), call_id=telnyx_id(3))
        phone.hang_up(backend, telnyx_id(3))
        results.equal("a hang-up ends the call", state(machine, telnyx_id(3)), "ended|cancelled")
        push = machine.find(fcm("bob"), message="Missed call!", call_id=telnyx_id(3))
        machine.settled()
        results.equal("Android is told of the end once, and stops", (
            sum(telnyx_id(3) in json.dumps(p["payload"]) for p in machine.pushes(fcm("bob"))), android(machine, push)),
            (2, {"stops ringing; shows “Ana” / “Missed call”; a tap leads to: call back"}))
        results.equal("and who accepts then is told", backend.post(
            f"/calls/{telnyx_id(3)}/accept", userId="bob", token=fcm("bob")), 409)

        backend.post("/devices", userId="bob", platform="android", token=fcm("tablet"))
        phone.call(backend, telnyx_id(4))
        results.equal("declined by one of a user's phones, the other one is told", machine.told(
            telnyx_id(4), fcm("bob"), fcm("tablet"), lambda: backend.post(
                f"/calls/{telnyx_id(4)}/decline", userId="bob", token=fcm("bob"))), (1, 2))
        results.equal("and the caller is rejected", (state(machine, telnyx_id(4)), commands(backend, telnyx_id(4))),
                      ("ended|declined", REJECTED))
        phone.hang_up(backend, telnyx_id(4))

        for platform, token in (("ios", "deadbeef" + hexadecimal("carla")[8:]), ("android", "fault-UNREGISTERED-" + fcm("carla"))):
            backend.post("/devices", userId="carla", platform=platform, token=token)
        phone.call(backend, telnyx_id(5), to="+31200000000")
        machine.settled()
        phone.call(backend, telnyx_id(6), to="+31200000000")
        results.equal("dead tokens: the first caller waits, the next one is rejected", (
            commands(backend, telnyx_id(5)), commands(backend, telnyx_id(6))), ([], REJECTED))

        stop(backend.process)
        backend.environment["RING_SECONDS"] = "1"
        backend.start()
        phone.call(backend, telnyx_id(7))
        machine.find(fcm("bob"), call_id=telnyx_id(7))
        machine.lapse(telnyx_id(7))
        await_("the caller to be rejected", lambda: commands(backend, telnyx_id(7)))
        results.equal("nobody answers: the caller is rejected", (commands(backend, telnyx_id(7)), phone.hang_up(
            backend, telnyx_id(7)), state(machine, telnyx_id(7))), (REJECTED, 200, "missed|missed"))
        machine.find(fcm("tablet"), message="Missed call!", call_id=telnyx_id(7))
        machine.settled()
        results.equal("and the Android phone files it as missed", [android(machine, push) for push in machine.pushes(fcm("tablet"))
                      if push["payload"].get("message") and telnyx_id(7) in json.dumps(push["payload"])],
                      [{"stops ringing; shows “Ana” / “Missed call”; a tap leads to: call back"}])
        keeps_metadata(results, machine, backend)
        stop(machine.serving)
        results.equal("the gateway is away: Telnyx has to repeat the event", phone.call(backend, telnyx_id(8)), 500)


def rings(results, machine, backend, phone):
    """The call that rings both phones."""
    call_id = telnyx_id(2)
    results.equal("a call is taken", phone.call(backend, call_id), 200)
    wanted = {"call_id": call_id, "caller_name": "Ana", "caller_number": ANA}
    push = machine.push(hexadecimal("bob"))
    results.equal("the iPhone has metadata as an object", push["payload"]["metadata"], wanted)
    results.equal("the iPhone rings", set(machine.does(push).values()), {"rings: “Ana”"})
    push = machine.push(fcm("bob"))
    results.equal("Android has it as a text", json.loads(push["payload"]["metadata"]), wanted)
    results.equal("Android rings", android(machine, push), {"rings: “Ana”"})


def keeps_metadata(results, machine, backend):
    """The backend's own metadata, of a caller without a name."""
    own = {"dialogParams": {"custom_headers": [{"name": "X-Account", "value": "7"}]}}
    call = telnyx_id(9)
    backend.call("ring", {"call_session_id": call, "from": ANA, "caller_id_name": ""}, "bob", own)
    wanted = {"call_id": call, "caller_name": ANA, "caller_number": ANA, **own}
    for token, what in ((hexadecimal("bob"), "VoIP"), (fcm("bob"), "FCM")):
        push = await_("the push", lambda token=token: [p for p in machine.pushes(token) if call in json.dumps(p["payload"])])[0]
        got = push["payload"]["metadata"]
        results.equal(f"over {what}, an object of the backend's metadata stays an object", (
            got if isinstance(got, dict) else json.loads(got)), wanted)
