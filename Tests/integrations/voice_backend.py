"""A backend of Twilio's or Telnyx's with a page's edits: a stand-in of ours or, where GUIDE_SOURCES has them, the system's own files."""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from edits import Edits
from machine import HTTP, PATIENCE_SECONDS, ROOT, Machine, Page, await_, ended, free_port

HERE = Path(__file__).resolve().parent
MODULES = ROOT / ".local/node/usr/share/nodejs"

# Calls a function of the page's push-gateway.js, as a route would.
CALL = """const [file, name, values] = process.argv.slice(1);
require(file)[name](...JSON.parse(values)).then((answer) => console.log(JSON.stringify(answer)));"""

PLATFORMS = "select string_agg(provider || ' ' || coalesce(platform, '-'), ', ' order by provider) from push.devices"
DOTENV = "exports.load = exports.config = () => ({});"


class Backend:
    """A backend with the page's edits. name: twilio or telnyx; main: its program; source: makes its directory."""

    def __init__(self, machine, name, main, source, **environment):
        self.machine, self.main = machine, main
        self.directory = machine.work / "backend"
        source(self.directory)
        self.gateway_file = next(self.directory.glob("**/push-gateway.js"))
        for module, text in ((name, (HERE / name / "library.js").read_text()), ("dotenv", DOTENV)):
            (self.directory / "node_modules" / module).mkdir(parents=True)
            (self.directory / "node_modules" / module / "index.js").write_text(text)
        self.environment = {
            "NODE_PATH": str(MODULES), "NODE_NO_WARNINGS": "1", "PUSH_GATEWAY_URL": f"http://{machine.api}",
            "PUSH_GATEWAY_KEY": machine.key("enqueue,device"), **environment}

    def start(self):
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.process, self.log = self.machine.start(
            f"backend-{port}", ["node", self.main], {**self.environment, "PORT": str(port)}, cwd=self.directory)
        await_("the backend", lambda: re.search(r"(running|listening) on", self.log.read_text()),
               lambda: ended(self.process, self.log))
        return self

    def call(self, name, *values):
        return json.loads(self.machine.run(["node", "-e", CALL, str(self.gateway_file), name, json.dumps(values)],
                                           self.environment))

    def names(self, file):
        """What a file of the backend exports."""
        program = f"console.log(JSON.stringify(Object.keys(require('./{file}')).sort()))"
        return json.loads(self.machine.run(["node", "-e", program], self.environment, cwd=self.directory))

    def ask(self, path, body=None, kind="application/json", headers=()):
        """The status and the text of an answer. path: may be an address."""
        request = urllib.request.Request(urllib.parse.urljoin(self.address, path), body, {"Content-Type": kind, **dict(headers)})
        try:
            with HTTP.open(request, timeout=PATIENCE_SECONDS) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path, **body):
        return self.ask(path, json.dumps(body).encode())[0]

    def form(self, path, **body):
        return self.ask(path, urllib.parse.urlencode(body).encode(), "application/x-www-form-urlencoded")[0]


def machine(given, gateway, name, app):
    return Machine(given, gateway, f"docs/integrations/{name}.md", app, name)


def sources(results, name):
    """What makes the directory of each backend that is to be run: the stand-in and, where they are given, the system's own files."""
    edits = Edits(HERE / name / "edits.json", Page(f"docs/integrations/{name}.md").files.values())
    results.of = f"{name}, the stand-in: "
    yield lambda target: edits.stand_in(HERE / name / "src", target)
    if edits.checkout():
        results.of = f"{name}, {edits.repository}: "
        yield edits.apply


def state(machine, call_id):
    return machine.sql(f"select concat_ws('|', state, answered_by, end_reason) from push.outbox where call_id = '{call_id}'")


def android(machine, push):
    return {does for phone, does in machine.does(push).items() if phone.startswith("Android")}
