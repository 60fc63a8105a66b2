"""The page twilio.md of docs/integrations, lived through: the test is Twilio, and the app."""

import json
import re
import urllib.parse
import xml.etree.ElementTree as ElementTree

import voice_backend
from machine import await_, fcm, hexadecimal, stop
from voice_backend import PLATFORMS, Backend, android, state


class Twilio:
    """Calls Bob as Twilio does, at the addresses that the backend's TwiML has."""

    def __init__(self, backend):
        self.backend = backend
        _, twiml = backend.ask("/makeCall?" + urllib.parse.urlencode({"to": "bob", "from": "client:ana"}))
        self.client = ElementTree.fromstring(twiml).find("Dial/Client")

    def notification(self, sid, to="client:bob"):
        return {"twi_account_sid": "AC1", "twi_bridge_token": "bridge", "twi_call_sid": sid, "twi_from": "client:ana",
                "twi_message_id": "WB1", "twi_message_type": "twilio.voice.call", "twi_params": "", "twi_to": to}

    def notify(self, sid, to="client:bob", **others):
        return self.backend.post(self.client.get("clientNotificationUrl"), **{**self.notification(sid, to), **others})

    def report(self, sid, status):
        return self.backend.form(self.client.get("statusCallback"), CallSid=sid, CallStatus=status, To="client:bob",
                                 From="client:ana", ParentCallSid="CA0")


def live(results, given, gateway, source):
    with voice_backend.machine(given, gateway, "twilio", "voice") as machine:
        backend = Backend(machine, "twilio", "index.js", source, ACCOUNT_SID="AC1", API_KEY="SK1", API_KEY_SECRET="secret",
                          APP_SID="AP1", ANDROID_PUSH_CREDENTIAL_SID="CR-android", IOS_PUSH_CREDENTIAL_SID="CR-ios").start()
        results.equal("the names that the file exports", backend.names("src/server.js"),
                      ["incoming", "makeCall", "placeCall", "tokenGenerator", "welcome"])
        _, token = backend.ask("/accessToken?identity=bob&os=android")
        results.equal("an access token is the user's, with the push credential as before", (
            json.loads(token)["identity"], json.loads(token)["grants"][0]["pushCredentialSid"]), ("bob", "CR-android"))
        call = Twilio(backend)
        results.equal("a call to a client has the URL of the Client Call Notification webhook", (
            call.client.text, dict(call.client.attrib)), ("bob", {
                "clientNotificationUrl": f"{backend.address}/clientCallNotification",
                "statusCallback": f"{backend.address}/callStatus", "statusCallbackEvent": "answered completed"}))
        results.equal("one to a number has none", "clientNotificationUrl" in backend.ask("/makeCall?to=5551234")[1], False)
        for path in ("/placeCall?to=bob", "/placeCall"):
            backend.ask(path)
        placed = [json.loads(line) for line in re.findall(r"^calls\.create (.*)", backend.log.read_text(), re.M)]
        results.equal("and so have calls over REST", [(
            options["to"], options["from"], options.get("clientNotificationUrl"), options.get("statusCallback")) for options in placed], [
            (to, "client:quick_start", f"{backend.address}/clientCallNotification", f"{backend.address}/callStatus")
            for to in ("client:bob", "client:alice")])

        results.equal("no phone can ring: 404", call.notify("CA1"), 404)
        for os_, token in (("ios", hexadecimal("bob")), ("android", fcm("bob"))):
            results.equal(f"the app gives its token on {os_}", backend.post("/devices", identity="bob", os=os_, token=token), 204)
        results.equal("each token has its platform", machine.sql(PLATFORMS), "apns ios, fcm android")
        results.equal("another account's call: 404", call.notify("CA2", twi_account_sid="AC2"), 404)

        results.equal("a phone can ring: 200", call.notify("CA3"), 200)
        for token, kind in ((hexadecimal("bob"), "iPhone"), (fcm("bob"), "Android")):
            push = machine.push(token)
            results.equal(f"all of Twilio's own reaches the {kind}",
                          {name: push["payload"].get(name) for name in call.notification("")}, call.notification("CA3"))
            results.equal(f"the {kind} rings, and can be answered", {
                does for phone, does in machine.does(push).items() if phone.startswith(kind)}, {"rings: “ana”"})
        results.equal("a repeated notification is the same call", (
            call.notify("CA3"), machine.sql("select count(*) from push.outbox where call_id = 'CA3'")), (200, "1"))
        results.equal("an answer is the call's", (call.report("CA3", "in-progress"), state(machine, "CA3")),
                      (204, "answered|bob|answered"))
        call.report("CA3", "completed")

        call.notify("CA4")
        machine.find(fcm("bob"), twi_call_sid="CA4")
        call.report("CA4", "busy")
        end = machine.find(fcm("bob"), twi_message_type="twilio.voice.cancel")
        results.equal("Twilio's busy is a decline, and Twilio's cancel", (end["payload"]["twi_call_sid"], state(machine, "CA4")),
                      ("CA4", "ended|declined"))
        machine.settled()
        results.equal("nobody missed it", missed(machine, "CA4"), [])

        call.notify("CA5")
        machine.find(fcm("bob"), twi_call_sid="CA5")
        call.report("CA5", "canceled")
        results.equal("a hang-up ends the call", state(machine, "CA5"), "ended|canceled")
        await_("the missed call", lambda: missed(machine, "CA5"))
        machine.settled()
        results.equal("and is a missed call on the Android phone", [(
            push["token"], android(machine, push)) for push in missed(machine, "CA5")], [
            (fcm("bob"), {"ignores it", "shows “ana” / “Missed call”; a tap leads to: app"})])
        call.notify("CA6")
        machine.find(fcm("bob"), twi_call_sid="CA6")
        machine.lapse("CA6")
        await_("the missed call", lambda: missed(machine, "CA6"))
        machine.settled()
        results.equal("so is a call that nobody answered", len(missed(machine, "CA6")), 1)
        results.equal("Twilio's report of that changes nothing", (call.report("CA6", "no-answer"), state(machine, "CA6")),
                      (204, "missed|missed"))

        for os_, token in (("ios", "deadbeef" + hexadecimal("carla")[8:]), ("android", "fault-UNREGISTERED-" + fcm("carla"))):
            backend.post("/devices", identity="carla", os=os_, token=token)
        results.equal("dead tokens: the first call is dispatched, the next one gets 404", (
            call.notify("CA7", "client:carla"), machine.settled(), call.notify("CA8", "client:carla")), (200, None, 404))
        results.equal("what the gateway refuses is an error", call.notify(""), 500)

        backend.post("/devices", identity="bob", os="android", token=fcm("tablet"))
        for sid, name, words in (("CA-answered", "answered", ()), ("CA-declined", "declined", ("declined",))):
            call.notify(sid)
            results.equal(f"{name} by one of a user's phones, the other one is told", machine.told(
                sid, fcm("bob"), fcm("tablet"), lambda: backend.call(name, sid, "client:bob", *words, fcm("bob"))), (1, 2))
        stop(machine.serving)
        results.equal("the gateway is away: 500", call.notify("CA9"), 500)


def missed(machine, call_id):
    return [push for push in machine.pushes() if call_id in json.dumps(push["payload"]) and "missed" in json.dumps(push["payload"])]
