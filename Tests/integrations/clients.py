"""The page clients.md of docs/integrations: every program rings a phone, repeats what had no answer, and says what is wrong."""

import http.server
import os
import shutil
import subprocess
import threading
import urllib.request

from machine import Machine, Results, fcm

# A program's file, how it is made into one that can be started, and how it is started. {} is the file, without its ending.
PROGRAMS = {
    "ring.py": (None, ["python3", "{}.py"]),
    "ring.mjs": (None, ["node", "{}.mjs"]),
    "ring.go": (["go", "build", "-o", "{}-go", "{}.go"], ["{}-go"]),
    "ring.php": (None, ["php", "{}.php"]),
    "Ring.java": (["javac", "-d", "{}-java", "{}.java"], ["java", "-cp", "{}-java", "Ring"]),
    "ring.swift": (["swiftc", "-o", "{}-swift", "{}.swift"], ["{}-swift"]),
}
EVERY_LANGUAGE = os.environ.get("CLIENTS_IN_EVERY_LANGUAGE") == "1"


class Unsteady(http.server.BaseHTTPRequestHandler):
    """Stands before the API: the first request of each path is processed, and its answer is lost; the second is answered by 503."""

    target, seen = "", {}

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen[self.path] = self.seen.get(self.path, 0) + 1
        if self.seen[self.path] == 2:
            self.send_error(503)
            return
        request = urllib.request.Request(self.target + self.path, body, {
            name: self.headers[name] for name in ("Content-Type", "Authorization")})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            status, text = answer.status, answer.read()
        if self.seen[self.path] == 1:
            self.close_connection = True
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def main(given, gateway):
    results = Results()
    with Machine(given, gateway, "docs/integrations/clients.md", "porteiro", "porteiro") as machine:
        token = fcm("ana")
        machine.sql(f"select push.register_device('ana', 'porteiro', 'fcm', '{token}', platform => 'android')")
        key = machine.key("enqueue")
        results.equal("the page has a program in each language", sorted(machine.page.files), sorted([*PROGRAMS, "gateway.yaml"]))
        for file, (make, start) in PROGRAMS.items():
            tool = (make or start)[0]
            if shutil.which(tool) is None:
                if EVERY_LANGUAGE:
                    results.check(f"{file}: there is {tool}", "it is not installed")
                else:
                    print(f"# skipped - {file}: there is no {tool}; make test-clients installs it")
                continue
            one(results, machine, key, token, file, make, start)
    return results


def one(results, machine, key, token, file, make, start):
    (machine.work / file).write_text(machine.page.files[file])
    path = str(machine.work / file.rpartition(".")[0])
    if make:
        machine.run([word.replace("{}", path) for word in make], {"HOME": str(machine.work), "GOCACHE": str(machine.work / "go"),
                                                                  "GO111MODULE": "off"})
    command = [word.replace("{}", path) for word in start]
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}

    def run(url, secret):
        return subprocess.run(command, env={**clean, "PUSH_GATEWAY_URL": url, "PUSH_GATEWAY_KEY": secret}, capture_output=True, text=True)

    done = run(f"http://{machine.api}", key)
    call_id = done.stdout.strip()
    results.equal(f"{file}: ends with 0", (done.returncode, done.stderr), (0, ""))
    state = machine.sql(f"select state || ' ' || end_reason from push.outbox where call_id = '{call_id}'")
    results.equal(f"{file}: the call was ended", state, "ended ended")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Unsteady)
    Unsteady.target, Unsteady.seen = f"http://{machine.api}", {}
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        done = run(f"http://127.0.0.1:{server.server_address[1]}", key)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    call_id = done.stdout.strip()
    tries = sorted(Unsteady.seen.values())
    results.equal(f"{file}: repeats what had no answer, and what was answered by 503", (done.returncode, tries), (0, [3, 3]))
    count = machine.sql(f"select count(*) from push.outbox where call_id = '{call_id}'")
    results.equal(f"{file}: one call came of it", count, "1")
    done = run(f"http://{machine.api}", key[:-4] + "0000")
    results.check(f"{file}: says why a request is refused", None if done.returncode and "401" in done.stderr + done.stdout else done)
