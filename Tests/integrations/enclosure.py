"""The pages enclosure.md and enclosure-calls.md, lived through: their code in Enclosure's own chat controller, or in a stand-in of it.

Without GUIDE_SOURCES the stand-in alone is run (enclosure/backend_example). With it, Enclosure's files are run as well, and the
stand-in is compared with them. The controller for calls is the page's own.
"""

import json
import os
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from edits import Edits
from machine import HTTP, PATIENCE_SECONDS, SALT, Failure, Machine, Page, Results, await_, ended, fcm, free_port, hexadecimal, stop

CHAT, CALLS = "docs/integrations/enclosure.md", "docs/integrations/enclosure-calls.md"
HERE = Path(__file__).resolve().parent / "enclosure"
# The functions of one controller.
FILES = ("send_notification_api.php", "device_type_storage_and_lookup.php")
PHOTO = "https://cdn.example.com/nadia.jpg"
# A name that is no JSON as it stands.
NADIA = 'Nadia "N" \\ Zoë'
IPHONE = "CED8A147-5D1F-4B7E-9E0A-2D9C7B6A1F00"
VOIP = hexadecimal("omar")


def user(uid, token, device, **more):
    return {"uid": uid, "user_type": 2, "full_name": f"User {uid}", "mobile_no": f"+9180000000{uid}", "photo": f"uploads/{uid}.jpg",
            "f_token": token, "voip_token": "", "device_id": device, **more}


# Users as user_details has them: Omar has an iPhone, Lina one without a VoIP token, Ravi an Android phone. Vera has no FCM token and
# has switched video calls off. Ravi has blocked Vera.
USERS = [user("1", fcm("nadia"), IPHONE, full_name=NADIA), user("2", fcm("omar"), IPHONE, voip_token=VOIP),
         user("3", fcm("lina"), IPHONE, photo=""),
         user("4", fcm("ravi"), "1"), user("5", "apns_missing", IPHONE, voip_token=hexadecimal("vera"), video_calls="0")]
TABLES = {"user_details": USERS, "block_user": [{"uid": "4", "blocked_uid": "5"}],
          "users": [{"uid": "3", "device_type": "2"}, {"uid": "4", "device_type": "1"}]}


class Server:
    """PHP's own web server with controllers. chat: the directory with the edited files."""

    def __init__(self, machine, chat):
        directory = machine.work / f"{chat.name}-server"
        directory.mkdir()
        shutil.copy(HERE / "server.php", directory)
        helper = "push_gateway_helper.php"
        # The page's limits of a request are 2 s and 5 s, which a busy machine may take.
        (directory / helper).write_text(re.sub(r"(CURLOPT_\w*TIMEOUT => )\d", r"\g<1>60", machine.page.files[helper]))
        functions = "\n".join((chat / file).read_text().split("<?php", 1)[1] for file in FILES)
        (directory / "EmojiController.php").write_text(
            "<?php\nclass EmojiController extends CI_Controller {" + functions + "\n}\n")
        (directory / "CallController.php").write_text(Page(CALLS).files["CallController.php"])
        for file in directory.glob("*.php"):
            machine.run(["php", "-l", str(file)])
        tables = directory / "tables.json"
        tables.write_text(json.dumps(TABLES))
        address = f"127.0.0.1:{free_port()}"
        clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        process, self.log = machine.start(chat.name, ["env", "-i", *(f"{name}={value}" for name, value in {
            **clean, "PUSH_GATEWAY_URL": f"http://{machine.api}", "PUSH_GATEWAY_KEY": machine.key("enqueue"), "TABLES": str(tables),
        }.items()), "php", "-d", "display_errors=0", "-d", "log_errors=1", "-S", address, "server.php"], cwd=directory)
        self.url = f"http://{address}"
        await_("PHP", lambda: "started" in self.log.read_text(), lambda: ended(process, self.log))

    def post(self, function, body, kind="application/json"):
        """The answer's status and JSON."""
        data = json.dumps(body) if kind == "application/json" else urllib.parse.urlencode(body)
        request = urllib.request.Request(f"{self.url}/{function}", data.encode(), {"Content-Type": kind})
        try:
            with HTTP.open(request, timeout=PATIENCE_SECONDS) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            text = error.read()
            if not text:
                raise Failure(f"PHP: {self.log.read_text()[-800:]}") from error
            return error.code, json.loads(text)

    def chat(self, receiver, token, model="", **more):
        """What a phone posts for a message from Nadia."""
        return self.post("EmojiController/send_notification_api", {
            "deviceToken": token, "title": "Omar", "body": "See you at eight", "message": "See you at eight", "receiverKey": "1",
            "user_name": NADIA, "photo": PHOTO, "deviceType": "2", "modelId": model, "receiverUid": receiver, "bodyKey": "chatting",
            **more})

    def call(self, what, **words):
        return self.post(f"CallController/{what}", words, "application/x-www-form-urlencoded")[0]


def android(push):
    """What the Android app does with data: Utils/FirebaseMessagingService.java of Ram2299007/Enc-14-oct-2025, commit a77e0f8.

    The lines after "ends" use a value that is missing, where nothing catches that.
    """
    data = push["payload"]
    key = data.get("bodyKey")
    if key in ("Incoming voice call", "Incoming video call"):
        if not data.get("receiverId") or data.get("name") is None:
            return "ends (233, 351)"
        if data.get("device_type") not in ("1", "2"):  # FcmNotificationSenderMisscall.java:50
            return f"rings: “{data['name']}”, ends after it (262)"
        room = data.get("roomId") if {"username", "createdBy", "incoming"} <= data.keys() else None
        return f"rings: “{data['name']}”, an answer leads to: {room}"
    if key == "chatting":
        if any(data.get(name) is None for name in ("msgKey", "uidPower", "selectionCount", "user_nameKey")):
            return "ends (725, 729, 1224, 1262)"
        return f"shows “{data['user_nameKey']}” / “{data['msgKey']}”; a tap leads to: chat {data.get('friendUidKey')}"
    if key in ("voiceMissCall", "videoMissCall"):
        return f"shows “Missed Call” / “{data['name']}”"
    return "ignores it"


def shown(machine, push):
    """What an iPhone does with it while the app is not open."""
    return {does for phone, does in machine.does(push).items() if re.match("iPhone, (background|killed)", phone)}


def chats(machine, results, server, mark):
    """mark: distinguishes the tokens of this run."""
    omar, ravi, lina = (fcm(f"{name}{mark}") for name in ("omar", "ravi", "lina"))
    chat = "“New message”; a tap leads to: chat 1"
    results.equal("a message is taken", server.chat("2", omar, f"m-1{mark}", receiverDeviceType=IPHONE, accessToken="ya29.x"),
                  (200, {"status": "success", "error": None, "deliveries": 1, "skipped": []}))
    push = machine.push(omar)
    results.equal("an iPhone shows it", shown(machine, push), {f"shows “{NADIA}” / {chat}"})
    results.equal("with what its extension reads, and no text", (
        [push["payload"].get(name) for name in ("bodyKey", "friendUidKey", "photo", "msgKey")], "eight" in json.dumps(push)),
        (["chatting", "1", PHOTO, "New message"], False))
    results.equal("a request without an access token is as good", server.chat("4", ravi, f"m-2{mark}", receiverDeviceType="1")[0], 200)
    push = machine.push(ravi)
    results.equal("an Android phone shows it", android(push), f"shows “{NADIA}” / {chat}")
    results.equal("and gets data alone", shown(machine, push), {"ignores it"})
    server.chat("2", omar, f"m-1{mark}", receiverDeviceType=IPHONE)
    server.chat("2", omar, f"m-3{mark}", receiverDeviceType=IPHONE)
    push = machine.push(omar, 1)
    machine.settled()
    results.equal("a request that comes twice is one message", len(machine.pushes(omar)), 2)
    for model in ("NA", "NA", ""):
        server.chat("3", lina, model)
    push = machine.push(lina, 2)
    results.equal("messages without an id are each sent; the device type is the database's", shown(machine, push),
                  {f"shows “{NADIA}” / {chat}"})
    both = fcm(f"both{mark}")
    server.chat("9", both, f"m-4{mark}")
    push = machine.push(both)
    machine.settled()
    results.equal("if it is not known, one push is for both systems", (android(push), shown(machine, push), len(machine.pushes(both))), (
        f"shows “{NADIA}” / {chat}", {f"shows “{NADIA}” / {chat}"}, 1))
    status, answer = server.chat("2", "", f"m-5{mark}")
    results.equal("without a token nothing is asked of the gateway", (status, answer), (400, {"error": "Device token is missing!"}))

    dead = f"fault-UNREGISTERED-:{SALT}{mark}{'x' * 20}"
    _, answer = server.chat("4", dead, f"m-6{mark}", receiverDeviceType="1")
    results.equal("a dead token looks like any other, once", answer["deliveries"], 1)
    machine.settled()
    status, answer = server.chat("4", dead, f"m-7{mark}", receiverDeviceType="1")
    results.equal("then it is skipped, and the answer says so", (
        status, answer["deliveries"], [(s["userId"], s["reason"]) for s in answer["skipped"]]), (200, 0, [("4", "TokenInvalid")]))


def away(machine, results, server):
    stop(machine.serving)
    status, answer = server.chat("2", fcm("omar"), "m-8", receiverDeviceType=IPHONE)
    results.equal("while the gateway is away, the phone is told", (status, answer["status"]), (502, "error"))
    machine.serve()


def calls(machine, results, server):
    def start(number, called, video=False, caller="1"):
        """The status, and the room, which is named as the iPhone app does it."""
        room = f"room_{number:032X}"
        return server.call("start", uid=caller, friend_id=called, room_id=room, call_type="2" if video else "1"), room

    def state(room, called):
        return machine.sql(f"select state, coalesce(answered_by, end_reason) from push.outbox where call_id = '{room}/{called}'")

    status, room = start(1, "2")
    push = machine.find(VOIP, roomId=room)
    wanted = {"name": NADIA, "photo": "https://enclosure.example.com/uploads/1.jpg", "receiverId": "2", "phone": "+91800000002",
              "uid": "1", "senderPhone": "+91800000001", "bodyKey": "Incoming voice call"}
    results.equal("an iPhone gets what it reads, over VoIP", (
        status, push["kind"], {name: push["payload"].get(name) for name in wanted}), (202, "voip", wanted))
    results.equal("and rings, filed under the caller", set(machine.does(push).values()), {f"rings: “{NADIA}”, filed under 1"})
    start(1, "4")
    push = machine.find(fcm("ravi"), roomId=room)
    results.equal("an Android phone that is invited to the same room rings", android(push),
                  f"rings: “{NADIA}”, an answer leads to: {room}")
    results.equal("and can send itself a missed call, as today", (push["payload"]["userFcmToken"], push["payload"]["phone"]),
                  (fcm("ravi"), "+91800000004"))
    _, video = start(2, "3", video=True)
    push = machine.find(fcm("lina"), roomId=video)
    results.equal("an iPhone without a VoIP token is shown a video call, which a tap makes a call of", shown(machine, push),
                  {f"shows “{NADIA}” / “Incoming video call”; a tap leads to: call"})
    results.equal("an answer is taken", (server.call("answer", uid="2", room_id=room), state(room, "2")), (200, "answered|2"))
    results.equal("and is not the other one's", state(room, "4"), "ringing|")
    results.equal("a decline is taken", (server.call("decline", uid="4", room_id=room), state(room, "4")), (200, "ended|declined"))
    results.equal("a hang-up is taken", (server.call("end", friend_id="3", room_id=video), state(video, "3")), (200, "ended|cancelled"))
    push = machine.find(fcm("lina"), bodyKey="Cancelled video call")
    results.equal("the alert of the call becomes its end", shown(machine, push),
                  {f"shows “{NADIA}” / “Call ended”; a tap leads to: app"})
    _, busy = start(3, "3")
    machine.find(fcm("lina"), roomId=busy)
    results.equal("busy is a reason to decline", (server.call("decline", uid="3", room_id=busy, reason="busy"), state(busy, "3")),
                  (200, "ended|busy"))
    machine.settled()
    results.equal("the phone that has declined is told nothing", [push["payload"]["bodyKey"] for push in machine.pushes(fcm("lina"))
                                                                 if push["payload"].get("roomId") == busy], ["Incoming voice call"])
    results.equal("reports after the end change nothing", (
        server.call("decline", uid="2", room_id=room), server.call("end", friend_id="2", room_id=room), state(room, "2")),
        (200, 200, "answered|2"))
    _, plain = start(6, "4", caller="3")
    results.equal("a caller without a photo has none", machine.find(fcm("ravi"), roomId=plain)["payload"].get("photo", ""), "")
    server.call("decline", uid="4", room_id=plain)
    machine.settled()
    before = len(machine.pushes())
    results.equal("who has blocked the caller is not rung", (start(4, "4", caller="5")[0], start(5, "5", video=True)[0]), (202, 202))
    machine.settled()
    results.equal("nor who has switched video calls off", len(machine.pushes()), before)
    push = machine.find(hexadecimal("vera"), roomId=start(6, "5")[1])
    results.equal("but for a voice call, also without an FCM token", set(machine.does(push).values()),
                  {f"rings: “{NADIA}”, filed under 1"})
    results.equal("nobody rings for a user who does not exist", start(7, "8")[0], 404)
    machine.settled()
    results.equal("with missed_calls: off nobody is told of one", missed(machine), [])


def missed(machine):
    """Names and rooms of missed calls."""
    return [(push["token"].split("_")[0], push["payload"].get("name")) for push in machine.pushes()
            if "miss" in str(push["payload"].get("bodyKey")).lower()]


def unreported(machine, results, server):
    """What the page says of calls whose answers nobody reports, with both settings."""
    page = machine.page.files["gateway.yaml"]
    for setting, expected in (("off", []), ("newest", [(name, NADIA) for name in ("lina", "omar", "ravi")])):
        stop(machine.serving)
        machine.page.files["gateway.yaml"] = page.replace("missed_calls: off", f"missed_calls: {setting}")
        machine.serve()
        for called in ("2", "3", "4"):
            server.call("start", uid="1", friend_id=called, room_id=f"room_{setting}", call_type="1")
        machine.settled()
        for called in ("2", "3", "4"):
            machine.lapse(f"room_{setting}/{called}")
        await_("missed calls", lambda expected=expected: len(missed(machine)) >= len(expected))
        machine.settled()
        results.equal(f"an answer that nobody reports, missed_calls: {setting}: missed calls", sorted(missed(machine)), expected)
    machine.page.files["gateway.yaml"] = page
    alerts = [push["payload"]["bodyKey"] for push in machine.pushes(fcm("lina")) if push["payload"].get("roomId") == "room_off"]
    results.equal("with off, nothing replaces the alert of a call on an iPhone without a VoIP token", alerts, ["Incoming voice call"])
    results.equal("and the Android app shows them", {android(push) for push in machine.pushes(fcm("ravi"))[-1:]},
                  {f"shows “Missed Call” / “{NADIA}”"})


def functions(directory):
    return sorted(name for file in FILES for name in re.findall(r"^public function (\w+)", (directory / file).read_text(), re.M))


def main(given, gateway):
    results = Results()
    if not shutil.which("php"):
        raise Failure("there is no PHP: run scripts/setup.sh")
    with Machine(given, gateway, CHAT, "enclosure", "enclosure") as machine:
        edits = Edits(HERE / "edits.json", machine.page.files.values())
        ours, theirs = machine.work / "stand-in", machine.work / "real"
        edits.stand_in(HERE / "backend_example", ours)
        server = Server(machine, ours)
        chats(machine, results, server, "")
        away(machine, results, server)
        calls(machine, results, server)
        unreported(machine, results, server)
        if not edits.checkout():
            print("# skipped - Enclosure's own files: GUIDE_SOURCES is not set, see Tests/integrations/README.md")
            return results
        edits.apply(theirs)
        results.equal("the stand-in has the functions of the real files", functions(ours), functions(theirs))
        chats(machine, results, Server(machine, theirs), "1")
    return results
