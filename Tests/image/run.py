#!/usr/bin/python3
"""Checks the container image of a release, then starts it with runc, as a user without rights on a file system that is read-only.

  Tests/image/run.py IMAGE.tar

Needs root, runc, a Postgres server, and push-gateway-lab in .build/debug or .build/release. Ends with "N passed, N failed"; non-zero
when any failed.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
import oci_image  # noqa: E402
from Tests.soak.cluster import Server  # noqa: E402

LOCAL = ROOT / ".local/image"
USER = 10001
PATIENCE_SECONDS = 60
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
CALL = {"app": "porteiro", "payload": {"callId": "in-a-container", "from": "doorman", "fromName": "Portaria"}, "recipients": [
    {"userId": "ana", "voipPushToken": "c0ffee" + "0a" * 29, "platform": "ios", "environment": "production"},
    {"userId": "bruno", "fcmToken": "container_fcm_token:APA91bContainer", "platform": "android"},
    {"userId": "carla", "pushToken": "ExponentPushToken[containerCONTAINERcont]", "platform": "android"}]}


class Results:
    passed = failed = 0

    def check(self, what, is_good, why=""):
        if is_good:
            self.passed += 1
            print(f"ok - {what}", flush=True)
        else:
            self.failed += 1
            print(f"not ok - {what}: {str(why)[:1500]}", flush=True)


results = Results()
check = results.check


def contents(image):
    """The image at rest."""
    config, entries = image.config["config"], image.entries()
    check("its user is a number other than root", config["User"] == f"{USER}:{USER}", config["User"])
    wanted = ("title", "version", "revision", "licenses")
    check("every label of a release is there", all(
        config["Labels"].get(f"org.opencontainers.image.{name}") for name in wanted), config["Labels"])
    for path in (config["Entrypoint"][0], "/usr/bin/curl", "/usr/share/doc/push-gateway/LICENSE", "/usr/share/doc/push-gateway/NOTICE",
                 "/usr/share/doc/push-gateway/push-gateway.cdx.json", "/etc/ssl/certs/ca-certificates.crt"):
        check(f"it has {path}", path in entries)
    files = {path: entry for path, entry in entries.items() if entry.isfile() or entry.isdir()}
    bad = [path for path, entry in files.items() if entry.mode & (stat.S_ISUID | stat.S_ISGID) and entry.isfile()]
    check("no program in it is set-uid or set-gid", not bad, bad)
    bad = [path for path, entry in files.items() if entry.mode & 0o002 and not entry.mode & stat.S_ISVTX]
    check("nothing in it can be written by everybody", not bad, bad)
    own = [path for path, entry in entries.items() if entry.uid == USER]
    check("its user owns one folder", own == ["/var/lib/push-gateway"], own)
    bad = [path for path, entry in entries.items() if entry.isfile() and re.search(r"\.(pem|key|p8)$", path)
           or path.startswith(("/etc/apt/", "/root/", "/tmp/", "/var/cache/", "/var/lib/apt/", "/var/log/"))]
    check("it has no keys, no sources of packages and no logs", not bad, bad)
    sbom = json.loads(file(image, "/usr/share/doc/push-gateway/push-gateway.cdx.json"))
    listed = {part["name"] for part in sbom["components"] if part.get("purl", "").startswith("pkg:deb/")}
    status = file(image, "/var/lib/dpkg/status").decode()
    present = set(re.findall(r"^Package: (\S+)\nStatus: install ok installed$", status, re.M))
    check("the SBOM lists every Debian package", present and present <= listed, sorted(present - listed))
    check("there is no apt", "apt" not in present)


def file(image, path):
    for layer in reversed(image.layers):
        with oci_image.tarfile.open(fileobj=oci_image.io.BytesIO(layer)) as tar:
            for entry in tar:
                if "/" + os.path.normpath(entry.name).lstrip("./") == path:
                    return tar.extractfile(entry).read()
    raise SystemExit(f"the image has no {path}")


class Container:
    """The image in runc, in the machine's network. Its arguments replace those of the image."""

    number = 0

    def __init__(self, image, arguments=None, environment=None):
        Container.number += 1
        self.name = f"push-gateway-{os.getpid()}-{Container.number}"
        self.bundle = LOCAL / "bundle"
        config = image.config["config"]
        user, group = (int(number) for number in config["User"].split(":"))
        (self.bundle / "config.json").write_text(json.dumps({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": False, "user": {"uid": user, "gid": group}, "cwd": config["WorkingDir"], "noNewPrivileges": True,
                "args": config["Entrypoint"] + (config["Cmd"] if arguments is None else arguments),
                "env": config["Env"] + [f"{name}={value}" for name, value in (environment or {}).items()],
                "capabilities": {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")},
                "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 4096, "soft": 4096}]},
            "root": {"path": "rootfs", "readonly": True},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc"},
                {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
                {"destination": "/etc/push-gateway", "type": "bind", "source": str(LOCAL / "etc"), "options": ["rbind", "ro"]}],
            "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]}}))
        self.log = LOCAL / f"{self.name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(["runc", "run", "--bundle", self.bundle, self.name], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=subprocess.STDOUT)

    def inside(self, *command):
        return subprocess.run(["runc", "exec", self.name, *command], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def end(self, number=signal.SIGTERM):
        subprocess.run(["runc", "kill", self.name, signal.Signals(number).name], check=False, capture_output=True)
        return self.process.wait(PATIENCE_SECONDS)

    def finish(self):
        status = self.process.wait(PATIENCE_SECONDS)
        return status, self.log.read_text(errors="replace")


def await_(what, condition, process, log):
    limit = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > limit:
            raise SystemExit(f"image: {what} did not happen: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def free_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return holder.getsockname()[1]


async def use(image, lab):
    """The image at work: it migrates, serves, rings three phones and drains."""
    server = Server("postgres", LOCAL, free_port())
    started = []
    try:
        await server.stop("immediate")
        await server.create()
        url = f"postgres://push@127.0.0.1:{server.port}/postgres"
        pushes = LOCAL / "pushes.jsonl"
        log = LOCAL / "simulators.log"
        simulators = subprocess.Popen([lab, "simulate", "--directory", LOCAL / "simulators", "--app", "porteiro", "--log", pushes],
                                      stdin=subprocess.DEVNULL, stdout=log.open("wb"), stderr=subprocess.STDOUT)
        started.append(simulators)
        await_("simulators", lambda: '"ready":true' in log.read_text(), simulators, log)
        shutil.copytree(LOCAL / "simulators", LOCAL / "etc")
        configuration = LOCAL / "etc/gateway.yaml"
        configuration.write_text(configuration.read_text().replace(f"{LOCAL / 'simulators'}/", ""))
        (LOCAL / "etc/call.jsonl").write_text(json.dumps(CALL) + "\n")
        for path in [LOCAL / "etc", *(LOCAL / "etc").rglob("*")]:
            os.chown(path, USER, USER)
        environment = {"DATABASE_URL": url}

        status, text = Container(image, ["check-config", "--config", "/etc/push-gateway/gateway.yaml"], environment).finish()
        check("check-config", status == 0, text)
        status, text = Container(image, ["migrate"], environment).finish()
        check("migrate", status == 0 and "the schema is up to date" in text, text)
        status, text = Container(image, ["--version"]).finish()
        check("--version is that of the label", text.strip() == image.config["config"]["Labels"]["org.opencontainers.image.version"], text)

        port = free_port()
        gateway = Container(image, None, {**environment, "PUSH_GATEWAY_HTTP_LISTEN": f"127.0.0.1:{port}"})
        started.append(gateway)

        def is_ready():
            try:
                return DIRECT.open(f"http://127.0.0.1:{port}/readyz", timeout=2).status == 200
            except OSError:
                return False
        await_("the gateway's readiness", is_ready, gateway.process, gateway.log)
        status, text = Container(image, ["enqueue", "/etc/push-gateway/call.jsonl"], environment).finish()
        check("enqueue", status == 0, text)
        await_("three pushes", lambda: pushes.exists() and pushes.read_text().count("\n") >= 3, gateway.process, gateway.log)
        got = {json.loads(line)["provider"] for line in pushes.read_text().splitlines()}
        check("a call rings over APNs, FCM and Expo", got == {"apns", "fcm", "expo"}, got)

        test = [word.replace(":8080", f":{port}") for word in image.config["config"]["Healthcheck"]["Test"][1:]]
        done = gateway.inside(*test)
        check("the health check of the image passes inside of it", done.returncode == 0, done.stderr)
        done = gateway.inside(*[word.replace(str(port), "1") for word in test])
        check("it fails where nothing listens", done.returncode != 0)
        for path in ("/usr/local/bin/x", "/var/lib/push-gateway/x", "/etc/push-gateway/x", "/tmp/x"):
            done = gateway.inside("touch", path)
            check(f"{path} cannot be written", "Read-only file system" in done.stderr, done.stderr)
        text = gateway.inside("cat", "/proc/1/status").stdout
        check("it runs without capabilities", re.search(r"^CapEff:\s0+$", text, re.M) and re.search(r"^CapBnd:\s0+$", text, re.M), text)
        check("it gets no new privileges", re.search(r"^NoNewPrivs:\s1$", text, re.M), text)
        check("it is not root", re.search(rf"^Uid:(\s{USER}){{4}}$", text, re.M), text)
        status = gateway.end()
        text = gateway.log.read_text()
        check("SIGTERM: it drains and ends with 0", status == 0 and "The gateway has stopped" in text, f"{status}: {text[-1000:]}")
    finally:
        for each in reversed(started):
            if isinstance(each, Container):
                if each.process.poll() is None:
                    each.end(signal.SIGKILL)
            else:
                each.terminate()
                each.wait(PATIENCE_SECONDS)
        await server.stop("fast")


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    labs = [path for path in (ROOT / ".build/debug/push-gateway-lab", ROOT / ".build/release/push-gateway-lab") if path.exists()]
    if not labs:
        raise SystemExit("image: there is no push-gateway-lab, whose simulators stand for the providers: make build")
    shutil.rmtree(LOCAL, ignore_errors=True)
    LOCAL.mkdir(parents=True)
    LOCAL.chmod(0o755)
    image = oci_image.Image(Path(sys.argv[1]))
    check("every digest and size is right", True)
    contents(image)
    image.unpack(LOCAL / "bundle")
    asyncio.run(use(image, labs[0]))
    shutil.rmtree(LOCAL / "bundle")
    print(f"{results.passed} passed, {results.failed} failed")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
