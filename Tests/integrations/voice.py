"""The pages twilio.md and telnyx.md of docs/integrations, lived through: their code, called by Node.js."""

import json
import shutil

from machine import Machine, Results, fcm, hexadecimal

# What a route would do: calls a function of the page's file.
CALL = """const [file, name, values] = process.argv.slice(1);
import(file).then((page) => page[name](...JSON.parse(values)))
  .then((answer) => console.log(JSON.stringify(answer)), (error) => console.log(JSON.stringify({ error: error.message })));"""


PLATFORMS = "select string_agg(provider || ' ' || coalesce(platform, '-'), ', ' order by provider) from push.devices"


class Page:
    """A page's functions, by name."""

    def __init__(self, machine, file):
        self.file = machine.work / file
        self.file.write_text(machine.page.files[file])
        self.environment = {"PUSH_GATEWAY_URL": f"http://{machine.api}", "PUSH_GATEWAY_KEY": machine.key("enqueue,device")}
        self.machine = machine

    def __call__(self, name, *values):
        return json.loads(self.machine.run(["node", "-e", CALL, str(self.file), name, json.dumps(values)], self.environment))

    def __getattr__(self, name):
        return lambda *values: self(name, *values)


def twilio(results, given, gateway):
    with Machine(given, gateway, "docs/integrations/twilio.md", "voice", "twilio") as machine:
        page = Page(machine, "twilio.mjs")
        page.register("client:bob", "ios", hexadecimal("bob"))
        page.register("bob", "android", fcm("bob"))
        notification = {"twi_account_sid": "AC1", "twi_bridge_token": "bridge", "twi_call_sid": "CA7",
                        "twi_from": "client:ana", "twi_message_id": "NO1", "twi_message_type": "twilio.voice.call",
                        "twi_params": "", "twi_to": "client:bob"}
        results.equal("twilio: a call notification rings both phones", page.ring(notification)["deliveries"], 2)
        for token, kind in ((hexadecimal("bob"), "iPhone"), (fcm("bob"), "Android")):
            push = machine.push(token)
            results.equal(f"twilio: all of Twilio's own reaches the {kind}",
                          {name: push["payload"].get(name) for name in notification}, notification)
            results.equal(f"twilio: the {kind} rings, and can be answered", {
                does for phone, does in machine.does(push).items() if phone.startswith(kind)}, {"rings: “ana”"})
        page.answered("CA7", "client:bob")
        results.equal("twilio: an answer is the call's", machine.sql(
            "select state, answered_by from push.outbox where call_id = 'CA7'"), "answered|bob")
        page.ring({**notification, "twi_call_sid": "CA8"})
        machine.find(fcm("bob"), twi_call_sid="CA8")
        page.declined("CA8", "client:bob", "busy")
        end = machine.find(fcm("bob"), twi_message_type="twilio.voice.cancel")
        results.equal("twilio: a busy user is Twilio's cancel", (end["payload"]["twi_call_sid"], machine.sql(
            "select state, end_reason from push.outbox where call_id = 'CA8'")), ("CA8", "ended|declined"))
        page.ring({**notification, "twi_call_sid": "CA9"})
        page.ended("CA9", "cancelled")
        results.equal("twilio: a hang-up ends the call", machine.sql(
            "select state, end_reason from push.outbox where call_id = 'CA9'"), "ended|cancelled")
        results.equal("twilio: each token has its platform", machine.sql(PLATFORMS), "apns ios, fcm android")
        results.equal("twilio: what is refused is an error", "422" in page.ring({**notification, "twi_call_sid": ""})["error"], True)
        page.register("bob", "android", fcm("tablet"))
        for sid, name, words in (("CA-answered", "answered", ()), ("CA-declined", "declined", ("declined",))):
            page.ring({**notification, "twi_call_sid": sid})
            results.equal(f"twilio: {name} by one of a user's phones, the other one is told", machine.told(
                sid, fcm("bob"), fcm("tablet"), lambda: page(name, sid, "client:bob", *words, fcm("bob"))), (1, 2))


def telnyx(results, given, gateway):
    call = {"id": "7d4e3a52-53cb-4a4e-9f0c-000000000001", "callerName": "Ana", "callerNumber": "+31201234567", "isVideo": True,
            "metadata": {"voice_sdk_id": "sdk-1", "dialogParams": {"custom": "1"}}}
    with Machine(given, gateway, "docs/integrations/telnyx.md", "flutter", "telnyx") as machine:
        page = Page(machine, "telnyx.mjs")
        page.register("bob", "ios", hexadecimal("bob"))
        page.register("bob", "android", fcm("bob"))
        results.equal("telnyx: a call rings both phones", page.ring(call, "bob")["deliveries"], 2)
        wanted = {"call_id": call["id"], "caller_name": "Ana", "caller_number": "+31201234567", **call["metadata"]}
        push = machine.push(hexadecimal("bob"))
        results.equal("telnyx: the iPhone has metadata as an object", (push["payload"]["metadata"], push["payload"]["isVideo"]),
                      (wanted, True))
        results.equal("telnyx: the iPhone rings", set(machine.does(push).values()), {"rings (video): “Ana”"})
        push = machine.push(fcm("bob"))
        results.equal("telnyx: Android has it as a text, whose values are texts", json.loads(push["payload"]["metadata"]),
                      {**wanted, "dialogParams": '{"custom": "1"}'})
        results.equal("telnyx: Android rings", {
            does for phone, does in machine.does(push).items() if phone.startswith("Android")}, {"rings: “Ana”"})
        page.ended(call["id"], "cancelled")
        push = machine.find(fcm("bob"), message="Missed call!")
        machine.settled()
        results.equal("telnyx: Android is told of the end once", len(machine.pushes(fcm("bob"))), 2)
        results.equal("telnyx: and stops", {
            does for phone, does in machine.does(push).items() if phone.startswith("Android")},
            {"stops ringing; shows “Ana” / “Missed call”; a tap leads to: call back"})
        page.ring({**call, "id": "7d4e3a52-53cb-4a4e-9f0c-000000000002"}, "bob")
        results.equal("telnyx: answered on the iPhone, the Android phone is told", machine.told(
            "7d4e3a52-53cb-4a4e-9f0c-000000000002", hexadecimal("bob"), fcm("bob"), lambda: page.answered(
                "7d4e3a52-53cb-4a4e-9f0c-000000000002", "bob", hexadecimal("bob"))), (1, 2))
        page.ring({**call, "id": "7d4e3a52-53cb-4a4e-9f0c-000000000003"}, "bob")
        page.declined("7d4e3a52-53cb-4a4e-9f0c-000000000003", "bob", "declined")
        results.equal("telnyx: a decline of the only user ends the call", machine.sql(
            "select state, end_reason from push.outbox where call_id like '%3'"), "ended|declined")
        results.equal("telnyx: each token has its platform", machine.sql(PLATFORMS), "apns ios, fcm android")
        results.equal("telnyx: an answer is the call's", machine.sql(
            "select state, answered_by from push.outbox where call_id like '%2'"), "answered|bob")
        page.register("bob", "android", fcm("tablet"))
        for number, name, words in ((4, "answered", ()), (5, "declined", ("declined",))):
            call_id = f"7d4e3a52-53cb-4a4e-9f0c-00000000000{number}"
            page.ring({**call, "id": call_id}, "bob")
            results.equal(f"telnyx: {name} by one of a user's phones, the other one is told", machine.told(
                call_id, fcm("bob"), fcm("tablet"), lambda: page(name, call_id, "bob", *words, fcm("bob"))), (1, 2))


def main(given, gateway):
    results = Results()
    if not shutil.which("node"):
        print("skipped - Twilio and Telnyx: there is no Node.js")
        return results
    twilio(results, given, gateway)
    telnyx(results, given, gateway)
    return results
