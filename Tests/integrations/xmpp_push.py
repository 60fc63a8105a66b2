"""The page docs/integrations/xmpp.md, lived through: deploy/xmpp/push-gateway-xmpp as a component of Debian's Prosody and ejabberd."""

import glob
import hashlib
import hmac
import os
import re
import shutil
import socket
import subprocess
from xml.sax.saxutils import quoteattr

from machine import ROOT, Failure, Machine, Results, await_, ended, fcm, free_port, hexadecimal, stop
from xmpp import Client

PAGE = "docs/integrations/xmpp.md"
PROGRAM = ROOT / "deploy" / "xmpp" / "push-gateway-xmpp"
HOST, OTHER_HOST, SERVICE = "example.com", "other.example", "push.example.com"
PASSWORD, COMPONENT_SECRET = "secret", "the-secret-of-the-component"
NODE_SECRETS = ("0f" * 24, "1e" * 24)
# What somebody writes. Nothing that leaves the server may hold it.
WORDS = "the-words-of-a-message"
USERS = ("romeo", "juliet", "nurse", "paris", "tybalt", "benvolio")
DATA = "{jabber:x:data}"
COMMANDS = "http://jabber.org/protocol/commands"
EVERY_SERVER = os.environ.get("XMPP_IN_EVERY_SERVER") == "1"


class Prosody:
    """On free ports of the loopback, in a directory of its own, with the page's module and lines of configuration."""

    name, rings, host = "prosody", True, HOST
    # How many errors in a row end a registration: 16 by default.
    errors_max = 1

    def __init__(self, machine, address=None):
        """address: of the service for other servers, which is its name, too; None: there are no other servers."""
        self.machine, self.port, self.component_port = machine, free_port(), free_port()
        self.service = address or SERVICE
        directory = self.directory = machine.work / self.name
        (directory / "certs").mkdir(parents=True)
        (directory / "modules").mkdir()
        (directory / "modules" / "mod_push_calls.lua").write_text(machine.page.files["mod_push_calls.lua"])
        for host in (HOST, OTHER_HOST):
            accounts = directory / "data" / host.replace(".", "%2e") / "accounts"
            accounts.mkdir(parents=True)
            for user in USERS:
                (accounts / f"{user}.dat").write_text(f'return {{ ["password"] = "{PASSWORD}" }};\n')
        roster = directory / "data" / HOST.replace(".", "%2e") / "roster"
        roster.mkdir()
        (roster / "nurse.dat").write_text(
            f'return {{ ["romeo@{HOST}"] = {{ name = "Romeo M."; subscription = "both"; groups = {{}} }} }};\n')
        page = machine.page.files["prosody.cfg.lua"].replace("…", COMPONENT_SECRET).replace(SERVICE, self.service)
        others = f"""
s2s_ports = {{ 5269 }}
s2s_interfaces = {{ "{address}" }}
s2s_require_encryption = false
s2s_secure_auth = false
""" if address else ""
        enabled = re.search(r"modules_enabled = (\{[^}]*\})`", machine.page.text)[1]
        (directory / "prosody.cfg.lua").write_text(f"""
daemonize = false
pidfile = "{directory}/prosody.pid"
data_path = "{directory}/data"
plugin_paths = {{ "{directory}/modules" }}
log = {{ info = "*console" }}
interfaces = {{ "127.0.0.1" }}
c2s_ports = {{ {self.port} }}
component_ports = {{ {self.component_port} }}
modules_enabled = {{ "roster"; "saslauth"; "disco"; "ping"; "presence"; "message"; "iq"; "smacks"; "dialback" }}
modules_disabled = {{ "tls"; "s2s_auth_certs"{'' if address else '; "s2s"'} }}
{others}
authentication = "internal_plain"
allow_unencrypted_plain_auth = true
c2s_require_encryption = false
push_notification_with_sender = true
push_max_errors = {self.errors_max}

VirtualHost "{HOST}"
modules_enabled = {enabled}
VirtualHost "{OTHER_HOST}"

{page}
""")
        self.start()

    def start(self):
        machine, directory, other = self.machine, self.directory, {}
        # It refuses to run as root, and so do we.
        if os.geteuid() == 0:
            other = {"user": "prosody", "group": "prosody", "extra_groups": []}
            machine.run(["chown", "-R", "prosody:prosody", str(directory)])
        self.process, self.log = machine.start(self.name, [
            "prosody", "--config", str(directory / "prosody.cfg.lua"), "-F"], {"HOME": str(directory)}, cwd=directory, **other)
        await_(self.name, lambda: listens(self.port) and listens(self.component_port), lambda: ended(self.process, self.log))

    def client(self, user, host=HOST, **options):
        return Client(self.port, host, user, PASSWORD, **options)

    def is_registered(self, user):
        stored = self.directory / "data" / HOST.replace(".", "%2e") / "cloud_notify" / f"{user}.dat"
        return stored.exists() and SERVICE in stored.read_text()


class Ejabberd:
    """The same, in one Erlang process without Erlang's own network."""

    name, rings, service = "ejabberd", False, SERVICE
    errors_max = 1

    def __init__(self, machine, address=None):
        """address: for other servers, and its users' host; None: there are no other servers."""
        self.machine, self.port, self.component_port = machine, free_port(), free_port()
        self.host = address or HOST
        directory = self.directory = machine.work / self.name
        (directory / "spool").mkdir(parents=True)
        page = machine.page.files["ejabberd.yml"].replace("…", COMPONENT_SECRET)
        if "5347" not in page:
            raise Failure(f"{PAGE} has no listener of ejabberd")
        listener = "\n".join("  " + line for line in page.replace("5347", str(self.component_port)).split("\n"))
        if address:
            listener = f"""
  - port: 5269
    ip: "{address}"
    module: ejabberd_s2s_in
s2s_use_starttls: false
"""
        (directory / "ejabberd.yml").write_text(f"""
loglevel: info
hosts: ["{self.host}", "{OTHER_HOST}"]
listen:
  - port: {self.port}
    ip: "127.0.0.1"
    module: ejabberd_c2s
{listener}
acl:
  local: {{ user_regexp: "" }}
access_rules:
  local: {{ allow: local }}
modules:
  mod_disco: {{}}
  mod_offline: {{}}
  mod_ping: {{}}
  mod_push: {{ include_sender: true }}
  mod_roster: {{}}
  mod_s2s_dialback: {{}}
  mod_stream_mgmt: {{}}
""")
        library = glob.glob("/usr/lib/*/ejabberd-*/ebin")
        if not library:
            raise Failure("ejabberd is not where Debian has it")
        accounts = "".join(f'ejabberd_auth:try_register(<<"{user}">>, <<"{host}">>, <<"{PASSWORD}">>),'
                           for host in (self.host, OTHER_HOST) for user in USERS)
        (directory / "hosts").write_text("{lookup, [file]}.\n")
        other = {}
        if os.geteuid() == 0:
            other = {"user": "ejabberd", "group": "ejabberd", "extra_groups": []}
            machine.run(["chown", "-R", "ejabberd:ejabberd", str(directory)])
        self.process, self.log = machine.start(self.name, [
            "erl", "-noinput", "-mnesia", "dir", f'"{directory}/spool"', "-s", "ejabberd",
            "-eval", accounts + 'file:write_file("ready", "").'], {
                "HOME": str(directory), "ERL_LIBS": library[0].split("/ejabberd-")[0], "ERL_CRASH_DUMP_BYTES": "0",
                "ERL_INETRC": str(directory / "hosts"), "EJABBERD_CONFIG_PATH": str(directory / "ejabberd.yml"),
                "EJABBERD_LOG_PATH": str(directory / "ejabberd.log")}, cwd=directory, **other)
        await_(self.name, lambda: (directory / "ready").exists() and listens(self.port), lambda: ended(self.process, self.log))
        self.log = directory / "ejabberd.log"

    def client(self, user, host=None, **options):
        return Client(self.port, host or self.host, user, PASSWORD, **options)

    def is_registered(self, user):
        said = re.findall(rf"(Enabling push notifications|disabling push).*|rejected notification for {user}@.*disabling push",
                          "\n".join(line for line in self.log.read_text().splitlines() if f"{user}@{self.host}" in line))
        return bool(said) and said[-1].startswith("Enabling")


class Receiver:
    """The program, with the page's configuration."""

    def __init__(self, machine, server, name="receiver", register_from=HOST):
        self.machine, self.server, self.name = machine, server, name
        self.directory = machine.work / f"{server.name}-{name}"
        self.directory.mkdir()
        text = machine.page.files["push-gateway-xmpp.ini"]
        for shown, ours in ((SERVICE, server.service), ("127.0.0.1:5347", f"127.0.0.1:{server.component_port}"),
                            ("http://127.0.0.1:8081", f"http://{machine.api}"),
                            (f"register_from = {HOST}", f"register_from = {register_from}"),
                            ("[nodes]\n", "[nodes]\nring_seconds = 300\n")):
            if shown not in text:
                raise Failure(f"{PAGE} does not configure {shown}")
            text = text.replace(shown, ours)
        for file, content in (("push-gateway-xmpp.ini", text), ("component-secret", COMPONENT_SECRET + "\n"),
                              ("api-key", machine.key("enqueue,device") + "\n"), ("node-secret", "\n".join(NODE_SECRETS) + "\n")):
            (self.directory / file).write_text(content)
        self.start()

    def start(self):
        connected = self.said().count("connected:")
        self.process, self.log = self.machine.start(f"{self.server.name}-{self.name}", [
            "/usr/bin/python3", str(PROGRAM), str(self.directory / "push-gateway-xmpp.ini")])
        await_("the receiver", lambda: self.said().count("connected:") > connected, lambda: ended(self.process, self.log))

    def said(self):
        log = self.machine.work / f"{self.server.name}-{self.name}.log"
        return log.read_text() if log.exists() else ""

    def says(self, what, count=1):
        await_(f"the receiver says {what}", lambda: self.said().count(what) >= count, lambda: ended(self.process, self.log))


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True
    except OSError:
        return False


def secret_of(node, key=NODE_SECRETS[0]):
    return hmac.new(key.encode(), node.encode(), hashlib.sha256).hexdigest()


def form(fields, kind="submit"):
    return f"<x xmlns='jabber:x:data' type='{kind}'>" + "".join(
        f"<field var='{name}'><value>{value}</value></field>" for name, value in fields.items()) + "</x>"


def options(secret):
    return form({"FORM_TYPE": "http://jabber.org/protocol/pubsub#publish-options", "secret": secret})


def enable(client, node, secret=None, service=SERVICE):
    client.ask(f"<enable xmlns='urn:xmpp:push:0' jid='{service}' node={quoteattr(node)}>{options(secret or secret_of(node))}</enable>")


def command(client, name, fields, service=SERVICE):
    answer = client.ask(f"<command xmlns='http://jabber.org/protocol/commands' node='{name}' action='execute'>{form(fields)}</command>",
                        to=service)
    return {field.get("var"): field.findtext(f"{DATA}value") for field in answer.iter(f"{DATA}field")}


def publish(node, secret=None, body=WORDS, item=""):
    """As a server writes it."""
    summary = form({"FORM_TYPE": "urn:xmpp:push:summary", "last-message-body": body, "last-message-sender": f"romeo@{HOST}/phone"})
    return (f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node={quoteattr(node)}><item{item}>"
            f"<notification xmlns='urn:xmpp:push:0'>{summary}</notification></item></publish>"
            f"<publish-options>{options(secret or secret_of(node))}</publish-options></pubsub>")


def refused(client, content, to=SERVICE):
    """The error's type and condition; None if the answer is no error."""
    try:
        client.ask(content, to=to)
        return None
    except RuntimeError as error:
        found = re.search(r"error[^>]* type=\"(\w+)\"|type=\"(\w+)\"[^>]*><\w+:([\w-]+)", str(error).partition("error ")[2] or str(error))
        condition = re.search(r"<\w+:([\w-]+) (?:xmlns:\w+=\"[^\"]*\" )?/>", str(error))
        return (found and (found[1] or found[2])), condition and condition[1]


def tell(machine, user, token, provider="fcm", platform="android", voip="false"):
    """What an app's backend does: registers a token for a node."""
    machine.sql(f"select push.register_device('{user}', 'chat', '{provider}', '{token}', platform => '{platform}', voip => {voip})")


class Scene:
    """A server, the program, and what both have in common."""

    def __init__(self, machine, results, server):
        self.machine, self.results, self.server = machine, results, server
        self.receiver = Receiver(machine, server)
        self.romeo = server.client("romeo")

    def equal(self, what, got, want):
        self.results.equal(f"{self.server.name}: {what}", got, want)

    def token(self, name):
        return fcm(f"{self.server.name}-{name}")

    def message(self, user, content=f"<body>{WORDS}</body>", **more):
        name = self.romeo.message(f"{user}@{HOST}", content, **more)
        self.romeo.synchronise()
        return name

    def registered(self, user, node, secret=None):
        """Registers at the user's server, and goes away."""
        client = self.server.client(user)
        enable(client, node, secret)
        client.close()

    def play(self):
        self.discovery()
        juliet = self.by_command()
        self.refusals()
        self.by_tokens()
        self.repeated()
        self.away(juliet)
        self.dead()
        self.restarted(juliet)
        if self.server.rings:
            self.reconnected(juliet)
        self.calls() if self.server.rings else self.no_calls()
        self.logout()
        self.silence()

    def discovery(self):
        answer = self.romeo.ask("<query xmlns='http://jabber.org/protocol/disco#info'/>", to=SERVICE, kind="get")
        self.equal("it is found as a push service", [
            (e.get("category"), e.get("type")) for e in answer.iter() if e.tag.endswith("identity")], [("pubsub", "push")])
        self.equal("a client finds its commands", {
            e.get("node") for e in self.romeo.ask(f"<query xmlns='http://jabber.org/protocol/disco#items' node='{COMMANDS}'/>", to=SERVICE,
                                                  kind="get").iter() if e.tag.endswith("}item")}, {"register-push", "unregister-push"})
        for node, want in ((COMMANDS, "command-list"), ("register-push", "command-node")):
            answer = self.romeo.ask(f"<query xmlns='http://jabber.org/protocol/disco#info' node='{node}'/>", to=SERVICE, kind="get")
            self.equal(f"{node} is a {want}", [e.get("type") for e in answer.iter() if e.tag.endswith("identity")], [want])
        self.equal("what it does not do it says", refused(self.romeo, "<query xmlns='jabber:iq:version'/>"), (
            "cancel", "service-unavailable"))

    def by_command(self):
        token = self.token("juliet")
        client = self.server.client("juliet")
        fields = {"device": "one", "fcm-token": token, "platform": "android", "locale": "nl"}
        said = command(client, "register-push", fields)
        self.equal("the command gives the service, a node and its secret", (said["jid"], said["secret"]), (
            SERVICE, secret_of(said["node"])))
        self.equal("the same phone gets the same node", command(client, "register-push", fields), said)
        self.equal("the tokens are devices of the node", self.machine.sql(
            f"select user_id, provider, platform, locale from push.devices where token = '{token}'"), f"{said['node']}|fcm|android|nl")
        for wrong, what in (({"device": "two"}, "no token"), ({"fcm-token": token}, "no device"),
                            ({"device": "two", "voip-token": hexadecimal("v")}, "a PushKit token alone"),
                            ({"device": "two", "fcm-token": "white space"}, "a malformed token")):
            content = f"<command xmlns='http://jabber.org/protocol/commands' node='register-push'>{form(wrong)}</command>"
            self.equal(f"{what} is refused", refused(client, content), ("modify", "bad-request"))
        self.by_form(client, token, said)
        other = self.server.client("juliet", OTHER_HOST)
        content = f"<command xmlns='http://jabber.org/protocol/commands' node='register-push'>{form(fields)}</command>"
        self.equal("accounts of other servers register nothing", refused(other, content), ("auth", "forbidden"))
        other.close()
        enable(client, said["node"], said["secret"])
        client.close()
        self.message("juliet", "<active xmlns='http://jabber.org/protocol/chatstates'/>")
        self.message("juliet")
        push = self.machine.push(token)
        self.equal("a message for a phone that is away is announced, who types is not", (
            {name: push["payload"].get(name) for name in ("type", "chatId", "senderJid", "senderName")}, len(self.machine.pushes(token))),
            ({"type": "message", "chatId": f"romeo@{HOST}", "senderJid": f"romeo@{HOST}", "senderName": f"romeo@{HOST}"}, 1))
        return token

    def by_form(self, client, token, said):
        """As a client that knows nothing of the service does: it asks for the form, and fills it in."""
        def step(attributes, content=""):
            answer = client.ask(f"<command xmlns='{COMMANDS}' node='register-push' {attributes}>{content}</command>", to=SERVICE)
            return answer, answer.find(f"{{{COMMANDS}}}command")

        answer, first = step("action='execute'")
        fields = {e.get("var"): e for e in answer.iter(f"{DATA}field")}
        session, needed = first.get("sessionid"), [name for name, e in fields.items() if e.find(f"{DATA}required") is not None]
        self.equal("a command without a form gives the form", (
            first.get("status"), [e.get("execute") for e in answer.iter(f"{{{COMMANDS}}}actions")], answer.find(f".//{DATA}x").get("type"),
            set(fields), needed), ("executing", ["complete"], "form", {
                "device", "fcm-token", "apns-token", "voip-token", "platform", "environment", "locale"}, ["device"]))
        answer, last = step(f"sessionid='{session}' action='complete'", form(
            {name: {"device": "one", "fcm-token": token, "platform": "android"}.get(name, "") for name in fields}))
        self.equal("which registers the phone when it is filled in", (last.get("status"), last.get("sessionid"), {
            e.get("var"): e.findtext(f"{DATA}value") for e in answer.iter(f"{DATA}field")}), ("completed", session, said))
        _, stopped = step(f"sessionid='{session}' action='cancel'")
        self.equal("or is cancelled", (stopped.get("status"), stopped.get("sessionid")), ("canceled", session))
        self.equal("there is nothing to go back to", refused(
            client, f"<command xmlns='{COMMANDS}' node='register-push' action='prev'/>"), ("modify", "bad-request"))

    def refusals(self):
        token, node = self.token("paris"), f"{self.server.name}-paris"
        tell(self.machine, node, token)
        for secret in ("", "0" * 64, secret_of(node + "x"), secret_of(node, "2d" * 24)):
            self.equal("a wrong secret is refused", refused(self.romeo, publish(node, secret or "-")), ("auth", "not-authorized"))
        without = publish(node).partition("<publish-options>")[0] + "</pubsub>"
        self.equal("so is none", refused(self.romeo, without), ("auth", "not-authorized"))
        self.equal("and what is no notification", refused(
            self.romeo, f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='{node}'/></pubsub>"), ("modify", "bad-request"))
        before = self.receiver.said().count("a publish was refused")
        self.registered("paris", node, "0" * 64)
        for count in range(self.server.errors_max):
            self.message("paris")
            self.receiver.says("a publish was refused", before + count + 1)
        await_("the registration is gone", lambda: not self.server.is_registered("paris"))
        # A key that is being replaced still counts.
        self.registered("paris", node, secret_of(node, NODE_SECRETS[1]))
        self.message("paris")
        self.machine.push(token)
        self.machine.settled()
        self.equal("a wrong secret reaches no phone, and ends the registration; an earlier key's is accepted",
                   (len(self.machine.pushes(token)), self.server.is_registered("paris")), (1, True))

    def by_tokens(self):
        alert, voip = hexadecimal(self.server.name[:2] + "a"), hexadecimal(self.server.name[:2] + "v")
        self.registered("tybalt", f"apns:{alert}|fcm:null|voip:{voip}")
        self.message("tybalt")
        push = self.machine.push(alert)
        self.equal("a node of tokens reaches them", (push["provider"], push["kind"], push["payload"]["type"]), ("apns", "alert", "message"))
        self.equal("a phone that only rings is shown nothing, and stays registered", refused(self.romeo, publish(f"voip:{voip}")), None)
        self.equal("a node without a token is over", refused(self.romeo, publish("fcm:null")), ("cancel", "item-not-found"))
        self.equal("so is a node whose user has none", refused(self.romeo, publish("nobody")), ("cancel", "item-not-found"))
        self.equal("and tokens that are none", refused(self.romeo, publish("fcm:!")), ("cancel", "item-not-found"))

    def repeated(self):
        token, node = self.token("repeated"), f"{self.server.name}-repeated"
        tell(self.machine, node, token)
        for item in (" id='1'", " id='1'", " id='2'"):
            self.romeo.ask(publish(node, item=item), to=SERVICE)
        self.machine.settled()
        self.equal("a publish that comes twice is shown once", len(self.machine.pushes(token)), 2)

    def away(self, token):
        """The gateway is restarted while messages come."""
        before = len(self.machine.pushes(token))
        noticed = self.receiver.said().count("the gateway did not answer")
        stop(self.machine.serving)
        self.message("juliet")
        self.receiver.says("the gateway did not answer", noticed + 1)
        self.message("juliet")
        self.message("juliet")
        self.machine.serve()
        self.machine.push(token, before + 1)
        self.machine.settled()
        self.equal("messages while the gateway was away are announced when it is back, those that waited by one push",
                   len(self.machine.pushes(token)) - before, 2)
        self.equal("and the registration stays", self.server.is_registered("juliet"), True)

    def dead(self):
        token, node, alive = "fault-UNREGISTERED-" + self.token("benvolio"), f"{self.server.name}-benvolio", self.token("alive")
        tell(self.machine, node, token)
        self.registered("benvolio", node)
        self.message("benvolio")
        await_("a dead token", lambda: self.machine.sql(
            f"select count(*) from push.devices where user_id = '{node}' and invalidated_at is not null") == "1")
        self.equal("the push that finds a token dead ends nothing", self.server.is_registered("benvolio"), True)
        over = self.receiver.said().count("a registration is over")
        for count in range(self.server.errors_max):
            self.message("benvolio")
            self.receiver.says("a registration is over", over + count + 1)
        await_("the registration is gone", lambda: not self.server.is_registered("benvolio"))
        tell(self.machine, node, alive)
        self.message("benvolio")
        self.registered("benvolio", node)
        self.message("benvolio")
        self.machine.push(alive)
        self.machine.settled()
        self.equal("a dead token ends the registration; the next one begins it again", len(self.machine.pushes(alive)), 1)

    def restarted(self, token):
        """The program is restarted while the gateway is away; then somebody writes while it does not run."""
        before = len(self.machine.pushes(token))
        noticed = self.receiver.said().count("the gateway did not answer")
        stop(self.machine.serving)
        self.message("juliet")
        self.receiver.says("the gateway did not answer", noticed + 1)
        node = f"{self.server.name}-restarted"
        self.romeo.send(f"<iq type='set' id='waits' to='{SERVICE}'>{publish(node)}</iq>")
        self.receiver.says("the gateway did not answer", noticed + 2)
        stop(self.receiver.process)
        self.equal("it ends when it is told to", self.receiver.process.returncode, 0)
        answer = self.romeo.expect(lambda e: e.get("id") == "waits")
        self.equal("who waits for it is told so", [e.get("type") for e in answer.iter() if e.tag.endswith("}error")], ["wait"])
        self.machine.serve()
        self.romeo.synchronise()
        self.equal("what waits is given back, and ends no registration", self.server.is_registered("juliet"), True)
        if self.server.rings:
            self.message("juliet")
            self.receiver.start()
        else:
            # ejabberd takes a component that is not there for another server: a second program must be there.
            self.receiver.start()
            second = Receiver(self.machine, self.server, "second")
            self.message("juliet")
            self.machine.push(token, before)
            stop(self.receiver.process)
            self.message("juliet")
            self.machine.push(token, before + 1)
            self.equal("a second program takes over", self.server.is_registered("juliet"), True)
            before += 2
            stop(second.process)
            self.message("juliet")
            await_("the registration is gone", lambda: not self.server.is_registered("juliet"))
            self.receiver.start()
            client = self.server.client("juliet")
            said = command(client, "register-push", {"device": "one", "fcm-token": token, "platform": "android"})
            enable(client, said["node"], said["secret"])
            client.close()
        self.message("juliet")
        self.machine.push(token, before)
        self.machine.settled()
        self.equal("after a restart, messages are announced again", (
            len(self.machine.pushes(token)) - before, self.server.is_registered("juliet")), (1, True))

    def reconnected(self, token):
        """The XMPP server is restarted; and a program that does not know the component's secret."""
        wrong = self.receiver.directory / "wrong-secret"
        wrong.write_text("another")
        file = self.receiver.directory / "wrong.ini"
        file.write_text((self.receiver.directory / "push-gateway-xmpp.ini").read_text().replace("component-secret", "wrong-secret"))
        process, log = self.machine.start("wrong", ["/usr/bin/python3", str(PROGRAM), str(file)])
        await_("a refusal", lambda: "it refuses the handshake" in log.read_text(), lambda: ended(process, log))
        stop(process)
        before, connected = len(self.machine.pushes(token)), self.receiver.said().count("connected:")
        self.romeo.close()
        stop(self.server.process)
        self.server.start()
        self.receiver.says("connected:", connected + 1)
        self.romeo = self.server.client("romeo")
        self.message("juliet")
        self.machine.push(token, before)
        self.equal("it connects again when the XMPP server is back", self.receiver.process.poll(), None)

    def calls(self):
        """Jingle's messages, which the page's module lets pass."""
        token, node, voip = self.token("nurse"), f"{self.server.name}-nurse", hexadecimal("nurse")
        tell(self.machine, node, token)
        tell(self.machine, f"{node}-iphone", voip, "apns", "ios", "true")
        tell(self.machine, f"{node}-iphone", hexadecimal("nursea"), "apns", "ios")
        client = self.server.client("nurse")
        enable(client, node)
        enable(client, f"{node}-iphone")
        client.close()

        def jingle(event, session, to="nurse", sender=self.romeo, media=("audio",)):
            content = "".join(f"<description xmlns='urn:xmpp:jingle:apps:rtp:1' media='{medium}'/>" for medium in media)
            sender.message(f"{to}@{HOST}", f"<{event} xmlns='urn:xmpp:jingle-message:0' id='{session}'>{content}</{event}>"
                           "<store xmlns='urn:xmpp:hints'/>")
            sender.synchronise()

        def state(push):
            return self.machine.sql("select state, coalesce(end_reason, '-'), kind, payload -> 'metadata' ->> 'sid' "
                                    f"from push.outbox where call_id = '{push['payload']['callId']}'")

        jingle("propose", "s1", media=("audio", "video"))
        ring, other = self.machine.push(voip), self.machine.push(token)
        self.equal("a proposal rings every phone, each as a call of its own", (
            ring["kind"], {name: ring["payload"].get(name) for name in ("type", "callerJid", "callerName", "isVideo")}, state(ring),
            other["payload"]["type"], other["payload"]["callId"] != ring["payload"]["callId"]),
            ("voip", {"type": "video_call", "callerJid": f"romeo@{HOST}", "callerName": "Romeo M.", "isVideo": True},
             "ringing|-|video_call|s1", "video_call", True))
        jingle("retract", "s1")
        missed = self.machine.find(token, type="missed_call")
        self.equal("one that is withdrawn is a missed call", (missed["payload"]["callId"], state(other)), (
            other["payload"]["callId"], "ended|cancelled|video_call|s1"))
        for event, session, want in (("accept", "s2", "answered|answered|incoming_call|s2"),
                                     ("reject", "s3", "ended|declined|incoming_call|s3")):
            pushes = len(self.machine.pushes(token))
            jingle("propose", session)
            ring = self.machine.push(token, pushes)
            # The account's tablet says so to its own account, as XEP-0353 has it.
            tablet = self.server.client("nurse", resource="tablet")
            jingle(event, session, sender=tablet)
            tablet.close()
            await_(event, lambda ring=ring: not state(ring).startswith("ringing"))
            told = self.machine.find(token, type="call_cancelled", callId=ring["payload"]["callId"])
            self.machine.settled()
            self.equal(f"{event} on another phone of the account stops the ringing, without a missed call", (
                state(ring), told["payload"]["type"], [
                    p for p in self.machine.pushes(token)[pushes:] if p["payload"]["type"] == "missed_call"]),
                (want, "call_cancelled", []))
        before = self.machine.sql("select count(*) from push.outbox")
        jingle("ringing", "s4")
        self.romeo.synchronise()
        self.machine.settled()
        self.equal("that a phone rings is nothing to announce", self.machine.sql("select count(*) from push.outbox"), before)

    def no_calls(self):
        """As the page says of ejabberd: a proposal cannot be told from a receipt."""
        token, node = self.token("nurse"), f"{self.server.name}-nurse"
        tell(self.machine, node, token)
        self.registered("nurse", node)
        self.message("nurse", "<propose xmlns='urn:xmpp:jingle-message:0' id='s1'/><store xmlns='urn:xmpp:hints'/>")
        self.message("nurse")
        self.machine.push(token)
        self.machine.settled()
        self.equal("a proposal alone announces nothing", [p["payload"]["type"] for p in self.machine.pushes(token)], ["message"])

    def logout(self):
        token = self.token("juliet")
        client = self.server.client("juliet")
        client.ask(f"<disable xmlns='urn:xmpp:push:0' jid='{SERVICE}'/>")
        command(client, "unregister-push", {"fcm-token": token})
        self.equal("a phone that logs out is forgotten", self.machine.sql(
            f"select count(*) from push.devices where token = '{token}'"), "0")
        # Both at once, without waiting for the first answer.
        for name, fields in (("register-push", {"device": "one", "fcm-token": token}), ("unregister-push", {"fcm-token": token})):
            client.send(f"<iq type='set' id='{name}' to='{SERVICE}'><command xmlns='http://jabber.org/protocol/commands' node='{name}'>"
                        f"{form(fields)}</command></iq>")
        client.expect(lambda e: e.get("id") == "unregister-push")
        client.close()
        self.equal("who registers and logs out has logged out", self.machine.sql(
            f"select count(*) from push.devices where token = '{token}'"), "0")

    def silence(self):
        self.machine.settled()
        told = self.machine.pushes_file.read_text() + self.machine.gateway_log.read_text() + self.machine.sql(
            "select string_agg(o::text, '') from push.outbox o")
        self.equal("no word of a message reached the gateway", [word for word in (WORDS,) if word in told], [])
        said = self.receiver.said()
        tokens = self.machine.sql("select string_agg(token, ' ') from push.devices").split()
        self.equal("it logged no token, node, secret, name or word", [
            word for word in (*tokens, *NODE_SECRETS, COMPONENT_SECRET, WORDS, *USERS, "pgk_", secret_of("nobody"))
            if word in said], [])
        self.equal("nor an error of its own", [line for line in said.splitlines() if "Traceback" in line or "ERROR" in line], [])
        self.romeo.close()


def loopback_address():
    """An address of the loopback whose port of XMPP servers is free; None: some program has the port on all addresses."""
    for _ in range(8):
        address = "127." + ".".join(str(number % 250 + 2) for number in os.urandom(3))
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((address, 5269))
                one.listen()
                return address
            except OSError:
                pass
    return None


def federated(machine, results):
    """Users of ejabberd, and the service at another operator's Prosody. An address as a host's name needs no DNS."""
    addresses = loopback_address(), loopback_address()
    if None in addresses:
        print("# skipped - two servers: a program here has the port 5269 on all addresses")
        return
    prosody, ejabberd = Prosody(machine, addresses[0]), Ejabberd(machine, addresses[1])
    receiver = Receiver(machine, prosody, register_from=addresses[1])
    token, romeo, juliet = fcm("federated"), ejabberd.client("romeo"), ejabberd.client("juliet")
    said = command(juliet, "register-push", {"device": "one", "fcm-token": token, "platform": "android"}, prosody.service)
    enable(juliet, said["node"], said["secret"], prosody.service)
    juliet.close()

    def message():
        romeo.message(f"juliet@{ejabberd.host}", f"<body>{WORDS}</body>")
        romeo.synchronise()
    message()
    push = machine.push(token)
    results.equal("two servers: ejabberd publishes to the service at Prosody", push["payload"]["senderJid"], f"romeo@{ejabberd.host}")
    stop(receiver.process)
    message()
    await_("ejabberd hears of it", lambda: "temporarily" in ejabberd.log.read_text())
    receiver.start()
    message()
    machine.push(token, 1)
    results.equal("two servers: Prosody answers for a program that does not run, and ejabberd keeps the registration",
                  ejabberd.is_registered("juliet"), True)
    machine.sql(f"select push.drop_device('chat', 'fcm', '{token}')")
    message()
    await_("the registration is gone", lambda: not ejabberd.is_registered("juliet"))
    results.check("two servers: a phone that is not registered any more ends it", None)
    romeo.close()


def configurations(machine, results):
    """What is wrong in its file is said, with the place."""
    directory = machine.work / "wrong"
    directory.mkdir()
    (directory / "long").write_text("x" * 32)
    (directory / "short").write_text("x")
    right = "[xmpp]\njid = push.example.com\nsecret_file = long\n[gateway]\nkey_file = long\n[nodes]\nsecret_file = long\n"
    for change, to, want in (
            ("jid = push.example.com\n", "", "[xmpp] jid: is missing"),
            ("push.example.com", "a@b", "[xmpp] jid: must be"),
            ("[gateway]", "[gateway]\nurl = ftp://a", "[gateway] url: must be"),
            ("[gateway]", "[gateway]\nurll = a", "[gateway] urll: there is no"),
            ("[nodes]\nsecret_file = long", "[nodes]\nsecret_file = short", "[nodes] secret_file: short needs a line of at least 32"),
            ("[nodes]\nsecret_file = long", "[nodes]\nsecret_file = none", "[nodes] secret_file: none: No such file"),
            ("[nodes]", "[nodes]\nring_seconds = x", "[nodes] ring_seconds: must be"),
            ("[nodes]", "[node]", "[node]: there is no such section")):
        file = directory / "wrong.ini"
        file.write_text(right.replace(change, to))
        done = subprocess.run(["/usr/bin/python3", str(PROGRAM), str(file)], capture_output=True, text=True, check=False)
        is_right = done.returncode == 78 and want in done.stderr
        results.check(f"configuration: {want}", None if is_right else (done.returncode, done.stderr))


def secret(machine, results):
    """The page's command computes a secret as the program does."""
    command = machine.page.files["secret.sh"]
    key, node = re.search(r"NODE_KEY=(\w+)", command)[1], re.search(r'printf %s "(\w+)"', command)[1]
    want = secret_of(node, key)
    results.equal("a backend computes the secret of a node", (machine.run(["sh", "-c", command]), f"\n{want}\n" in machine.page.text),
                  (want, True))


def main(given, gateway):
    results = Results()
    servers = []
    for server, tools in ((Prosody, ("prosody",)), (Ejabberd, ("erl", "ejabberdctl"))):
        missing = [tool for tool in tools if not (shutil.which(tool) or os.path.exists(f"/usr/sbin/{tool}"))]
        if missing and (EVERY_SERVER or server is Prosody):
            raise Failure(f"there is no {missing[0]}: run scripts/setup.sh")
        if missing:
            print(f"# skipped - {server.name}: there is no {missing[0]}; make test-xmpp installs it")
        else:
            servers.append(server)
    for server in servers:
        with Machine(given, gateway, PAGE, "chat", "commeazy", "seed") as machine:
            if server is Prosody:
                configurations(machine, results)
                secret(machine, results)
            Scene(machine, results, server(machine)).play()
    if Ejabberd in servers:
        with Machine(given, gateway, PAGE, "chat", "commeazy", "seed") as machine:
            federated(machine, results)
    return results
