"""The page docs/integrations/prosody.md, lived through: Debian's Prosody with the page's module and configuration."""

import json
import os
import shutil
import socket
from xml.sax.saxutils import escape

from machine import Failure, Machine, Results, await_, ended, fcm, free_port, hexadecimal, stop
from xmpp import Client

PAGE = "docs/integrations/prosody.md"
HOST, ROOMS = "commeazy.com", "muc.commeazy.com"
PASSWORD = "secret"
# What somebody writes. Nothing that leaves Prosody may hold it.
WORDS = "the-words-of-a-message"
SDP = "dGhlIGRlc2NyaXB0aW9uIG9mIGEgc2Vzc2lvbg=="
# Those of CommEazy's server (LOCAL_SERVICES.md:43-47 at its commit ab52ca0) that the page keeps.
MODULES = """{
  "disco", "roster", "saslauth", "tls", "blocklist", "bookmarks", "carbons", "dialback", "limits", "pep", "private", "smacks", "vcard4",
  "vcard_legacy", "csi_simple", "invites", "invites_adhoc", "invites_register", "ping", "register", "time", "uptime", "version",
  "admin_adhoc", "admin_shell", "bosh", "websocket" }"""
USERS = ("romeo", "juliet", "nurse", "paris")


class Prosody:
    """A server on free ports of the loopback, in a directory of its own."""

    def __init__(self, machine):
        self.machine = machine
        self.port = free_port()
        directory = machine.work / "prosody"
        modules, data = directory / "modules", directory / "data"
        modules.mkdir(parents=True)
        (directory / "certs").mkdir()
        accounts = data / HOST.replace(".", "%2e") / "accounts"
        accounts.mkdir(parents=True)
        for user in USERS:
            (accounts / f"{user}.dat").write_text(f'return {{ ["password"] = "{PASSWORD}" }};\n')
        roster = data / HOST.replace(".", "%2e") / "roster"
        roster.mkdir()
        (roster / "juliet.dat").write_text(
            f'return {{ ["romeo@{HOST}"] = {{ name = "Romeo M."; subscription = "both"; groups = {{}} }} }};\n')
        (modules / "mod_push_gateway.lua").write_text(machine.page.files["mod_push_gateway.lua"])
        page = machine.page.files["prosody.cfg.lua"]
        for shown, ours in (("http://127.0.0.1:8081", f"http://{machine.api}"),
                            ("pgk_1_…", machine.key("enqueue,device"))):
            if shown not in page:
                raise Failure(f"{PAGE} does not configure {shown}")
            page = page.replace(shown, ours)
        self.configuration = directory / "prosody.cfg.lua"
        self.configuration.write_text(f"""
daemonize = false
pidfile = "{directory}/prosody.pid"
data_path = "{data}"
plugin_paths = {{ "{modules}" }}
log = {{ warn = "*console" }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {self.port} }}
http_ports = {{ {free_port()} }}
https_ports = {{}}
modules_enabled = {MODULES}
modules_disabled = {{ "s2s"; "s2s_auth_certs"; "dialback"; "tls"; "offline" }}
authentication = "internal_plain"
allow_unencrypted_plain_auth = true
c2s_require_encryption = false
smacks_hibernation_time = 3600
push_gateway_ring_seconds = 300
{page}
""")
        # It refuses to run as root, and so do we.
        self.other = {}
        if os.geteuid() == 0:
            self.other = {"user": "prosody", "group": "prosody", "extra_groups": []}
            machine.run(["chown", "-R", "prosody:prosody", str(directory)])
        self.start()

    def start(self):
        directory = self.configuration.parent
        self.process, self.log = self.machine.start("prosody", [
            "prosody", "--config", str(self.configuration), "-F"], {"HOME": str(directory)}, cwd=directory, **self.other)
        await_("prosody", self._listens, lambda: ended(self.process, self.log))

    def _listens(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), 5).close()
            return True
        except OSError:
            return False

    def client(self, user, **options):
        return Client(self.port, HOST, user, PASSWORD, **options)


def call(kind, call_id, **members):
    """What CommEazy says of a call (src/services/call/types.ts)."""
    return ("<call xmlns='urn:commeazy:call:1'>"
            + escape(json.dumps({"type": kind, "callId": call_id, **members})) + "</call>")


def call_id(number):
    return f"7d4e3a52-53cb-4a4e-9f0c-0000000000{number:02}"


def enable(service, node, device=None):
    field = f"<field var='device'><value>{device}</value></field>" if device else ""
    return (f"<enable xmlns='urn:xmpp:push:0' jid='{service}' node='{node}'><x xmlns='jabber:x:data' type='submit'>"
            f"<field var='FORM_TYPE'><value>http://jabber.org/protocol/pubsub#publish-options</value></field>{field}"
            "</x></enable>")


def registrations(machine, results, romeo, juliet, nurse):
    # The document's form: all three in one node, and the phone's language.
    juliet.ask(enable("push.commeazy.local",
                      f"apns:{hexadecimal('ja')}|fcm:{fcm('juliet')}|voip:{hexadecimal('jv')}", "ios"))
    # Today's: FCM's without a name, and PushKit's at a service of its own.
    nurse.ask(enable("push.commeazy.local", fcm("nurse"), "android"))
    romeo.ask(enable("push.commeazy.local", f"apns:null|fcm:{fcm('romeo')}"))
    romeo.ask(enable("voip.push.commeazy.local", hexadecimal("rv"), "ios"))

    def devices():
        rows = machine.sql("""select user_id, provider, coalesce(platform, '-'), case when provider = 'apns' then voip end
            from push.devices where invalidated_at is null order by 1, 2, 4""").splitlines()
        return rows if len(rows) == 6 else None
    results.equal("each token of a registration is a device of its kind", await_("registrations", devices), [
        f"juliet@{HOST}|apns|ios|f", f"juliet@{HOST}|apns|ios|t", f"juliet@{HOST}|fcm|ios|",
        f"nurse@{HOST}|fcm|android|", f"romeo@{HOST}|apns|ios|t", f"romeo@{HOST}|fcm|-|"])


def logout(machine, results, prosody):
    paris = prosody.client("paris")
    owned = f"select count(*) from push.devices where user_id = 'paris@{HOST}'"
    paris.ask(enable("push.commeazy.local", fcm("paris"), "android"))
    await_("a registration", lambda: machine.sql(owned) == "1")
    paris.ask("<disable xmlns='urn:xmpp:push:0' jid='push.commeazy.local'/>")
    await_("a logout", lambda: machine.sql(owned) == "0")
    results.check("a phone that logs out is forgotten, without naming its token", None)
    paris.close()


def calls(machine, results, prosody, romeo, juliet, nurse):
    voip, alert = hexadecimal("jv"), hexadecimal("ja")

    def state(number):
        return machine.sql("select state, coalesce(answered_by, '-'), coalesce(end_reason, '-') from push.outbox where "
                           f"call_id = '{call_id(number)}'")

    romeo.message(juliet.bare, call("offer", call_id(1), callType="voice", sdp=SDP, callerName="Somebody"))
    push = machine.push(voip)
    data = push["payload"]
    results.equal("an offer rings the iPhone over VoIP, connected or not",
                  (push["provider"], push["kind"], {k: data.get(k) for k in ("type", "callId", "callerJid", "callerName", "isVideo")}),
                  ("apns", "voip", {"type": "call", "callId": call_id(1), "callerJid": romeo.bare, "callerName": "Romeo M.",
                                    "isVideo": False}))
    results.equal("and that is what the app rings for", set(machine.does(push).values()), {"rings: “Romeo M.”"})

    juliet.message(romeo.jid, call("ringing", call_id(1)))
    juliet.message(romeo.jid, call("answer", call_id(1), sdp=SDP))
    await_("an answer", lambda: state(1).startswith("answered"))
    results.equal("who answered has answered", state(1), f"answered|{juliet.bare}|answered")
    results.equal("a phone that rings says so", machine.sql(
        f"select user_id from push.timeline('{call_id(1)}') where event = 'ringing'"), juliet.bare)
    romeo.message(juliet.bare, call("hangup", call_id(1)))

    romeo.message(juliet.bare, call("offer", call_id(2), callType="video", sdp=SDP))
    push = machine.push(voip, 1)
    results.equal("a video call of today's app is one", (push["payload"]["type"], push["payload"]["isVideo"]), ("video_call", True))
    romeo.message(juliet.bare, call("hangup", call_id(2), reason="timeout"))
    missed = machine.push(alert)
    results.equal("who hangs up leaves a missed call, over the alert token", (
        state(2), missed["kind"], missed["payload"]["aps"]["alert"]),
        ("ended|-|cancelled", "alert", {"title": "Romeo M.", "body": "Gemist videogesprek"}))
    results.equal("a call that was answered left none", len(machine.pushes(alert)), 1)

    romeo.message(nurse.bare, call("offer", call_id(3), callerName="Romeo", isVideo=True))
    push = machine.push(fcm("nurse"))
    results.equal("the document's video call, over FCM to Android", {
        k: push["payload"].get(k) for k in ("type", "callId", "callerJid", "callerName", "isVideo")}, {
        "type": "video_call", "callId": call_id(3), "callerJid": romeo.bare, "callerName": "Romeo", "isVideo": "true"})
    nurse.message(romeo.bare, call("decline", call_id(3)))
    await_("a decline", lambda: state(3) != "ringing|-|-")
    results.equal("a decline ends the call", state(3), "ended|-|declined")
    romeo.message(nurse.bare, call("offer", call_id(4)))
    machine.find(fcm("nurse"), callId=call_id(4))
    nurse.message(romeo.bare, call("busy", call_id(4)))
    await_("a busy phone", lambda: state(4) != "ringing|-|-")
    results.equal("a busy phone, too", state(4), "ended|-|busy")
    machine.settled()
    results.equal("neither is a missed call", [
        p["payload"]["type"] for p in machine.pushes(fcm("nurse")) if p["payload"]["type"] == "missed_call"], [])
    # Two phones: the one that answers is told nothing, the other is.
    watch = prosody.client("nurse", resource="watch")
    watch.ask(enable("push.commeazy.local", fcm("watch"), "android"))
    await_("a second phone", lambda: machine.sql(f"select count(*) from push.devices where user_id = 'nurse@{HOST}'") == "2")
    for number, what in ((8, "answer"), (9, "decline")):
        def say(number=number, what=what):
            watch.message(romeo.bare, call(what, call_id(number)))
            await_(what, lambda: state(number) != "ringing|-|-")
        romeo.message(nurse.bare, call("offer", call_id(number)))
        results.equal(f"{what} on one of a user's phones: the other one is told", machine.told(
            call_id(number), fcm("watch"), fcm("nurse"), say), (1, 2))
    watch.ask("<disable xmlns='urn:xmpp:push:0' jid='push.commeazy.local'/>")
    watch.close()
    known = ", ".join(f"'{call_id(number)}'" for number in (1, 2, 3, 4, 8, 9))
    romeo.message(nurse.bare, call("ice-candidate", call_id(5), candidate="Yw=="))
    for text in ("no JSON", "", "[]", '{"type": "offer"}', '{"type": "offer", "callId": ""}'):
        romeo.message(nurse.bare, f"<call xmlns='urn:commeazy:call:1'>{escape(text)}</call>")
    romeo.synchronise()
    machine.settled()
    results.equal("other signals, and what is none, ring nobody", machine.sql(
        f"select count(*) from push.outbox where call_id not in ({known})"), "0")


def joins(machine, results, romeo, juliet, nurse):
    """A third person: the app sends an `invite` with the running call's id (src/services/call/signalingService.ts:218-239)."""
    voip, alert, android = hexadecimal("jv"), hexadecimal("ja"), fcm("nurse")

    def invite(number):
        rung = len(machine.pushes(voip))
        romeo.message(juliet.bare, call("invite", call_id(number), callType="voice", existingParticipants=[nurse.bare], sdp=SDP))
        return machine.push(voip, rung)

    def state(number):
        """Of the call, and of each invitation into it."""
        machine.settled()
        return machine.sql(f"""select string_agg(concat_ws(' ', state, answered_by, end_reason), ', ' order by id) from push.outbox
            where '{call_id(number)}' in (call_id, payload ->> 'joins')""")

    romeo.message(nurse.bare, call("offer", call_id(10), callType="voice", sdp=SDP))
    machine.find(android, callId=call_id(10))
    nurse.message(romeo.bare, call("answer", call_id(10), sdp=SDP))
    await_("an answer", lambda: state(10).startswith("answered"))
    told = len(machine.pushes(android))
    push = invite(10)
    results.equal("who is invited into a running call is rung for that call, by the one who invites", (
        {k: push["payload"].get(k) for k in ("type", "callId", "callerJid", "callerName", "isVideo")},
        set(machine.does(push).values())), (
        {"type": "call", "callId": call_id(10), "callerJid": romeo.bare, "callerName": "Romeo M.", "isVideo": False},
        {"rings: “Romeo M.”"}))
    juliet.message(romeo.jid, call("ringing", call_id(10)))
    juliet.message(romeo.jid, call("answer", call_id(10), sdp=SDP))
    await_("the third person", lambda: state(10).count("answered ") == 2)
    # A lost connection is offered anew (src/services/call/index.ts:847-852), and today's app says that it is busy (:546-548).
    romeo.message(juliet.bare, call("offer", call_id(10), callType="voice", sdp=SDP))
    juliet.message(romeo.bare, call("busy", call_id(10)))
    juliet.synchronise()
    for client in (nurse, juliet):
        romeo.message(client.bare, call("hangup", call_id(10)))
    romeo.synchronise()
    results.equal("the third person answers, and nobody is told of anything else", (
        state(10), len(machine.pushes(android)), machine.pushes(voip)[-1], machine.find(voip, callId=call_id(10))),
        (f"answered {nurse.bare} answered, answered {juliet.bare} answered", told, push, push))

    romeo.message(nurse.bare, call("offer", call_id(11), callType="voice", sdp=SDP))
    machine.find(android, callId=call_id(11))
    told = len(machine.pushes(android))
    invite(11)
    juliet.message(romeo.bare, call("decline", call_id(11)))
    await_("a third person who declines", lambda: "declined" in state(11))
    missed = len(machine.pushes(alert))
    push = invite(11)
    results.equal("who has declined can be invited again", set(machine.does(push).values()), {"rings: “Romeo M.”"})
    romeo.message(juliet.bare, call("hangup", call_id(11)))
    push = machine.push(alert, missed)
    results.equal("an invitation that is taken back is a missed call", (
        state(11), push["payload"]["aps"]["alert"], {
            does for phone, does in machine.does(push).items() if phone.startswith("iPhone, background")}),
        ("ringing, ended declined, ended cancelled", {"title": "Romeo M.", "body": "Gemiste oproep"},
         {"shows “Romeo M.” / “Gemiste oproep”; a tap leads to: call history"}))
    invite(11)
    juliet.message(romeo.bare, call("answer", call_id(11), sdp=SDP))
    juliet.message(romeo.bare, call("hangup", call_id(11)))
    juliet.synchronise()
    results.equal("whatever a third person does, the second one's phone rings on", (state(11), len(machine.pushes(android))),
                  (f"ringing, ended declined, ended cancelled, answered {juliet.bare} answered", told))
    nurse.message(romeo.bare, call("decline", call_id(11)))
    await_("a decline", lambda: state(11).startswith("ended declined"))


def unknown(machine, results, juliet, nurse):
    """The app's users are UUIDs, and it keeps no roster (src/services/container.ts:97-101): who calls may have no name."""
    voip = hexadecimal("jv")
    rung = len(machine.pushes(voip))
    nurse.message(juliet.bare, call("offer", call_id(12), callType="voice", sdp=SDP))
    results.equal("a caller without a name", set(machine.does(machine.push(voip, rung)).values()), {"rings: “Onbekend”"})
    juliet.message(nurse.bare, call("decline", call_id(12)))
    machine.settled()


def away(machine, results, romeo, juliet):
    """The gateway is restarted while somebody calls and is answered."""
    stop(machine.serving)
    romeo.message(juliet.bare, call("offer", call_id(6)))
    romeo.synchronise()
    juliet.message(romeo.bare, call("answer", call_id(6)))
    romeo.message(juliet.bare, call("offer", call_id(7)))
    juliet.synchronise()
    machine.serve()
    machine.find(hexadecimal("jv"), callId=call_id(7))
    await_("the answer of meanwhile", lambda: machine.sql(
        f"select state from push.outbox where call_id = '{call_id(6)}'") == "answered")
    results.check("calls made while the gateway was away ring when it is back, each before its answer", None)
    romeo.message(juliet.bare, call("hangup", call_id(7)))
    machine.find(hexadecimal("ja"), callId=call_id(7))
    machine.settled()


def badges(pushes):
    return [push["payload"]["aps"].get("badge") for push in pushes]


def messages(machine, results, prosody, romeo, juliet):
    alert = hexadecimal("ja")
    machine.settled()
    before = len(machine.pushes(alert))
    romeo.message(juliet.bare, f"<body>{WORDS}</body>")
    juliet.expect(lambda e: e.find("{jabber:client}body") is not None)
    juliet.close()
    name = romeo.message(juliet.bare, f"<body>{WORDS}</body>")
    push = machine.push(alert, before)
    chat = f"chat:juliet@{HOST}:romeo@{HOST}"
    results.equal("a message for a phone without a connection is told, one for a connected phone is not", (
        {k: push["payload"].get(k) for k in ("type", "chatId", "senderJid", "senderName")}, push["payload"]["aps"]["alert"]),
        ({"type": "message", "chatId": chat, "senderJid": romeo.bare, "senderName": "Romeo M."},
         {"title": "Romeo M.", "body": "Nieuw bericht"}))
    results.equal("a tap leads to the chat as the app calls it", {
        does for phone, does in machine.does(push).items() if phone.startswith("iPhone, background")}, {
        f"shows “Romeo M.” / “Nieuw bericht”; a tap leads to: chat {chat}"})
    romeo.message(juliet.bare, f"<body>{WORDS}</body>", name=name)
    romeo.message(juliet.bare, "<received xmlns='urn:xmpp:receipts' id='x'/>")
    romeo.message(juliet.bare, "<profile xmlns='urn:commeazy:profile:1'>{}</profile>", kind="headline")
    romeo.message(juliet.bare, f"<body>{WORDS}</body>", name="another")
    machine.push(alert, before + 1)
    machine.settled()
    results.equal("one that is sent again is told once, and a receipt not at all", len(machine.pushes(alert)) - before, 2)

    juliet = prosody.client("juliet", resumes=True)
    romeo.message(juliet.bare, f"<body>{WORDS}</body>")
    romeo.synchronise()
    juliet.vanish()
    machine.push(alert, before + 2)
    romeo.message(juliet.bare, f"<body>{WORDS}</body>")
    machine.push(alert, before + 3)
    results.check("so are those for a phone that has gone without a word, before its session is given up", None)
    # A new session in its place hands the old one's messages over to nobody, once more.
    prosody.client("juliet").close()
    machine.settled()
    results.equal("and not again when it is", len(machine.pushes(alert)) - before, 4)
    results.equal("the badge is the number of messages since the phone was last connected",
                  badges(machine.pushes(alert)[before:]), [1, 2, 1, 2])


def groups(machine, results, prosody, romeo, nurse):
    room, alert = f"verona@{ROOMS}", hexadecimal("ja")
    in_room = "<x xmlns='http://jabber.org/protocol/muc'/>"
    juliet = prosody.client("juliet", resource="tablet")
    for client, nick in ((romeo, "Romeo"), (juliet, "Juliet"), (nurse, "Nurse")):
        client.send(f"<presence to='{room}/{nick}'>{in_room}</presence>")
        client.expect(lambda e: e.tag.endswith("presence") and e.get("from") == f"{room}/{nick}")
        if client is romeo:
            romeo.ask("<query xmlns='http://jabber.org/protocol/muc#owner'><x xmlns='jabber:x:data' type='submit'>"
                      "<field var='FORM_TYPE'><value>http://jabber.org/protocol/muc#roomconfig</value></field>"
                      "<field var='muc#roomconfig_roomname'><value>Familie</value></field>"
                      "<field var='muc#roomconfig_persistentroom'><value>1</value></field></x></query>", to=room)
    machine.settled()
    juliet.close()
    before, others = len(machine.pushes(alert)), (len(machine.pushes(fcm("nurse"))), len(machine.pushes(fcm("romeo"))))
    romeo.message(room, f"<body>{WORDS}</body>", kind="groupchat")
    push = machine.push(alert, before)
    results.equal("a group's message is told to a member who is not there",
                  {k: push["payload"].get(k) for k in ("type", "chatId", "groupId", "groupName", "senderJid", "senderName")},
                  {"type": "group_message", "chatId": "verona", "groupId": "verona", "groupName": "Familie",
                   "senderJid": romeo.bare, "senderName": "Romeo"})
    machine.settled()
    results.equal("and to nobody else", (len(machine.pushes(fcm("nurse"))), len(machine.pushes(fcm("romeo")))), others)

    romeo.message(room, "<x xmlns='http://jabber.org/protocol/muc#user'>"
                  f"<invite to='juliet@{HOST}'><reason>{WORDS}</reason></invite></x>", kind="normal")
    push = machine.push(alert, before + 1)
    results.equal("an invitation names the group", (
        {k: push["payload"].get(k) for k in ("type", "chatId", "groupId", "groupName", "senderJid", "senderName")},
        push["payload"]["aps"]["alert"]), (
        {"type": "group_invite", "chatId": "verona", "groupId": "verona", "groupName": "Familie",
         "senderJid": romeo.bare, "senderName": "Romeo M."},
        {"title": "Romeo M.", "subtitle": "Familie", "body": "Groepsuitnodiging"}))
    romeo.message(f"juliet@{HOST}", f"<x xmlns='jabber:x:conference' jid='{room}'/>", kind="normal")
    push = machine.push(alert, before + 2)
    results.equal("so does one from user to user", push["payload"].get("groupName"), "Familie")
    results.equal("an invitation is no unread message", badges([push]), [None])
    romeo.message(room, f"<body>{WORDS}</body>", kind="groupchat")
    machine.push(alert, before + 3)
    results.equal("a group's messages are counted for each member", badges(machine.pushes(alert)[before:]), [1, None, None, 2])


def crowd(machine, results, romeo, nurse):
    """A room with more absent members than the gateway takes recipients in a request."""
    room, count = f"tutti@{ROOMS}", 1200
    # Each 25th has a phone.
    machine.sql(f"""select count(push.register_device('m' || n || '@{HOST}', 'commeazy', 'fcm', 'm' || n || '{fcm("")}'))
        from generate_series(25, {count}, 25) n""")
    join = "<x xmlns='http://jabber.org/protocol/muc'/>"
    romeo.send(f"<presence to='{room}/Romeo'>{join}</presence>")
    romeo.expect(lambda e: e.tag.endswith("presence") and e.get("from") == f"{room}/Romeo")
    romeo.ask("<query xmlns='http://jabber.org/protocol/muc#owner'><x xmlns='jabber:x:data' type='submit'/></query>", to=room)
    for number in range(1, count + 1):
        romeo.send(f"<iq type='set' id='m{number}' to='{room}'><query xmlns='http://jabber.org/protocol/muc#admin'>"
                   f"<item affiliation='member' jid='m{number}@{HOST}'/></query></iq>")
    romeo.ask(f"<query xmlns='http://jabber.org/protocol/muc#admin'><item affiliation='member' jid='juliet@{HOST}'/></query>", to=room)
    alert = hexadecimal("ja")
    before = len(machine.pushes(alert))

    def asked():
        """How many recipients the requests had, how many different ones, and the most in one request."""
        return machine.sql("""
            select count(r), count(distinct coalesce(r ->> 'userId', r #>> '{}')), max(jsonb_array_length(recipients)) <= 1000
            from push.outbox, jsonb_array_elements(recipients) r where payload ->> 'chatId' = 'tutti'""")

    def told():
        machine.settled()
        found = [push["token"] for push in machine.pushes() if push["payload"].get("chatId") == "tutti"]
        return len(found), len(set(found)), len(machine.pushes(alert)) - before
    romeo.message(room, f"<body>{WORDS}</body>", kind="groupchat", name="to-all")
    push = machine.push(alert, before)
    want, phones = f"{count + 1}|{count + 1}|t", count // 25 + 1
    await_("requests for each", lambda: asked() == want)
    results.equal(f"{count + 1} absent members of a room are told, each once", (asked(), told()), (want, (phones, phones, 1)))
    results.equal("and shown who wrote, in a group without a name", (push["payload"].get("groupName"), {
        does for phone, does in machine.does(push).items() if phone.startswith("iPhone, background")}), (
        None, {"shows “Romeo” / “Nieuw groepsbericht”; a tap leads to: chat tutti"}))
    # Sent again when others are absent: one is here, one is new.
    nurse.send(f"<presence to='{room}/Nurse'>{join}</presence>")
    nurse.expect(lambda e: e.tag.endswith("presence") and e.get("from") == f"{room}/Nurse")
    romeo.ask(f"<query xmlns='http://jabber.org/protocol/muc#admin'><item affiliation='none' jid='m7@{HOST}'/></query>", to=room)
    romeo.message(room, f"<body>{WORDS}</body>", kind="groupchat", name="to-all")
    romeo.synchronise()
    romeo.message(room, f"<body>{WORDS}</body>", kind="groupchat", name="to-all-again")
    machine.push(alert, before + 1)
    want = f"{2 * count + 1}|{count + 1}|t"
    await_("further requests for each", lambda: asked() == want)
    results.equal("and not again when the message is sent again", (asked(), told()), (want, (2 * phones, phones, 2)))


def restart(machine, results, prosody, romeo):
    """Prosody is restarted: only a phone that connects begins anew."""
    alert = hexadecimal("ja")
    before = len(machine.pushes(alert))
    romeo.message(f"juliet@{HOST}", f"<body>{WORDS}</body>")
    machine.push(alert, before)
    stop(prosody.process)
    store = prosody.configuration.parent / "data" / HOST.replace(".", "%2e") / "push_gateway_unread.dat"
    was_stored = store.exists()
    prosody.start()
    romeo = prosody.client("romeo")
    results.equal("what is stored is for one restart", (was_stored, store.exists()), (True, False))
    romeo.message(f"juliet@{HOST}", f"<body>{WORDS}</body>", name="after-the-restart")
    machine.push(alert, before + 1)
    last, after = badges(machine.pushes(alert)[before:])
    results.equal("a restart of Prosody keeps the counts", after, last + 1)
    prosody.client("juliet").close()
    romeo.message(f"juliet@{HOST}", f"<body>{WORDS}</body>", name="after-connecting")
    results.equal("a phone that connects begins anew", badges([machine.push(alert, before + 2)]), [1])


def silence(machine, results, prosody):
    machine.settled()
    told = machine.pushes_file.read_text() + machine.gateway_log.read_text() + prosody.log.read_text() + machine.sql(
        "select string_agg(o::text, '') from push.outbox o")
    results.equal("no word of a message reached the gateway, nor a session's description", [
        word for word in (WORDS, SDP) if word in told], [])
    results.equal("Prosody had nothing to warn of", [
        line for line in prosody.log.read_text().splitlines()
        if "push_gateway" in line or "rror" in line and "TLS" not in line], [])


def main(given, gateway):
    if not shutil.which("prosody"):
        raise Failure("there is no prosody: run scripts/setup.sh")
    results = Results()
    with Machine(given, gateway, PAGE, "commeazy", "commeazy", "seed") as machine:
        prosody = Prosody(machine)
        romeo, juliet, nurse = (prosody.client(user) for user in USERS[:3])
        registrations(machine, results, romeo, juliet, nurse)
        logout(machine, results, prosody)
        calls(machine, results, prosody, romeo, juliet, nurse)
        joins(machine, results, romeo, juliet, nurse)
        unknown(machine, results, juliet, nurse)
        away(machine, results, romeo, juliet)
        messages(machine, results, prosody, romeo, juliet)
        groups(machine, results, prosody, romeo, nurse)
        crowd(machine, results, romeo, nurse)
        restart(machine, results, prosody, romeo)
        silence(machine, results, prosody)
    return results
