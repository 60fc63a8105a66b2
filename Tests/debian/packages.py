#!/usr/bin/env python3
"""The Debian packages, installed and used in a Debian 12 of their own, with systemd as its process 1.

  Tests/debian/packages.py FOLDER [--without-lintian]

FOLDER has the .deb files. It needs root, and a mount namespace of its own: scripts/deb.sh check. The commands of deploy/README.md,
section Debian package, are run as they stand there. The providers are the simulators of push-gateway-lab, Postgres is a private one
of this machine. Ends with "N passed, N failed"; non-zero when any failed.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True

from tree import LOCAL, ROOT, Failure, Tree, say  # noqa: E402

ARCHITECTURE = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout.strip()
CONFIGURATION = "/etc/push-gateway/gateway.yaml"
EARLIER = "0.0.9"
KEYS = {"apns-key.p8": "AuthKey_FGHIJ67890.p8", "expo-access-token": "expo-token", "fcm-service-account.json": "service-account.json"}
results = []


def check(what, holds, otherwise=""):
    results.append(bool(holds))
    print(f"{'ok' if holds else 'not ok'} - {what}{'' if holds else f': {otherwise}'}", flush=True)


def equal(what, found, wanted):
    check(what, found == wanted, f"got {found!r}, want {wanted!r}")


def await_(what, condition, seconds=60):
    until = time.time() + seconds
    while not (held := condition()) and time.time() < until:
        time.sleep(0.2)
    check(what, held, f"not within {seconds} s")
    return held


def main():
    folder = Path(sys.argv[1]).resolve()
    version = re.search(r'current = "([^"]+)"', (ROOT / "Sources/Settings/GatewayVersion.swift").read_text())[1]
    packages = {name: folder / f"{name}_{version}_{ARCHITECTURE}.deb" for name in ("push-gateway", "push-gateway-lab")}
    for package in packages.values():
        if not package.exists():
            raise SystemExit(f"packages.py: there is no {package}: make one with scripts/deb.sh build")
    os.chdir(ROOT)
    # Ctrl-C and SIGTERM stop the tree, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    LOCAL.mkdir(parents=True, exist_ok=True)
    tree = Tree()
    try:
        if "--without-lintian" not in sys.argv:
            lintian([*folder.glob(f"push-gateway*_{version}_{ARCHITECTURE}.deb")])
        contents(packages)
        database = subprocess.run(["scripts/postgres.sh", "start", LOCAL / "postgres"], capture_output=True, text=True, check=True)
        say("A Debian 12 starts")
        tree.boot()
        life(Machine(tree, packages, version, database.stdout.strip()))
    except Failure as failure:
        check("the check runs to its end", False, failure)
    finally:
        tree.close()
        shutil.rmtree(LOCAL / "earlier", ignore_errors=True)
        subprocess.run(["scripts/postgres.sh", "stop", LOCAL / "postgres"], capture_output=True)
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    raise SystemExit(1 if failed or not results else 0)


# Debug information is not made: it names folders of the machine that built it, and another build would have other bytes
# (docs/adr/0039-releases-that-can-be-built-again.md). The packages -dbgsym have the symbols; they cannot contain overrides.
WITHOUT_DEBUG_INFORMATION = "debug-file-with-no-debug-symbols"


def lintian(packages):
    say(f"lintian, {len(packages)} packages; two minutes")
    symbols = sorted(package for package in packages if "-dbgsym" in package.name)
    for those, options in ((sorted({*packages} - {*symbols}), []), (symbols, ["--suppress-tags", WITHOUT_DEBUG_INFORMATION])):
        found = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", *options, *those], capture_output=True, text=True)
        equal(f"lintian has neither errors nor warnings: {', '.join(package.name for package in those)}",
              (found.returncode, (found.stdout + found.stderr).strip()), (0, ""))
    for path in (ROOT / "deploy/debian").glob("*.lintian-overrides"):
        check(f"{path.name}: every override has its reason above it", re.fullmatch(r"((#.*\n)+([a-z].*\n)+)+", path.read_text()))


def contents(packages):
    say("what is in the packages")
    odd, paths = [], {}
    for name, package in packages.items():
        lines = output("dpkg-deb", "--contents", package).splitlines()
        paths[name] = {line.split()[5].removeprefix("."): line.split()[0] for line in lines}
        odd += [line for line in lines if line.split()[1] != "root/root"]
        private = {"/etc/push-gateway/": "drwx------", CONFIGURATION: "-rw-------"}
        for path, mode in paths[name].items():
            is_program = path.startswith("/usr/bin/") or path.endswith(("/plproxy/shards.sh", "/examples/push-gateway-xmpp"))
            wanted = private.get(path) or ("drwxr-xr-x" if path.endswith("/") else "-rwxr-xr-x" if is_program else "-rw-r--r--")
            if mode != wanted:
                odd.append(f"{path} {mode}")
    equal("everything is root's; modes are 0755 and 0644, but 0700 and 0600 in /etc/push-gateway", odd, [])
    equal("the only configuration file is gateway.yaml", output("dpkg-deb", "--info", packages["push-gateway"], "conffiles").split(),
          [CONFIGURATION])
    check("the lab has none", "conffiles" not in output("dpkg-deb", "--info", packages["push-gateway-lab"]))
    equal("push-gateway needs no lab, and nothing of the lab is in it",
          [path for path in paths["push-gateway"] if "lab" in Path(path).name and "docs" not in path], [])


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Machine:
    """The tree with what the documentation's commands need around them: packages, keys, an editor, providers, a database."""

    def __init__(self, tree, packages, version, database):
        self.tree, self.packages, self.version = tree, packages, version
        self.documentation = (ROOT / "deploy/README.md").read_text()
        self.database = f"{database.rpartition('/')[0]}/deb_check"
        self.admin = database
        self.calls = 0

    def block(self, name):
        """The lines of the block of deploy/README.md below a comment that ends with `make deb runs it as name`."""
        block = re.search(rf"<!-- not run: .* make deb runs it as {name} -->\s*```sh\n(.*?)```", self.documentation, re.S)
        if not block:
            raise Failure(f"deploy/README.md has no block that make deb runs as {name}")
        return block[1].strip().splitlines()

    def type(self, lines, stdin=""):
        """Runs lines as an administrator types them; what the last one printed."""
        for line in lines:
            print(f"   # {line}", flush=True)
            said = self.tree.run(line, stdin=stdin)
        return said.stdout

    def documented(self, name):
        return self.type(self.block(name))

    def psql(self, sql, database=None):
        return output("psql", "-XAtq", database or self.database, "-c", sql)

    def property(self, name):
        return self.tree.output(f"systemctl show --property={name} --value push-gateway")

    def offer(self, *packages):
        """Puts packages into root's folder, in place of those there."""
        for old in self.tree.path("/root").glob("*.deb"):
            old.unlink()
        for package in packages:
            shutil.copy(package, self.tree.path("/root"))

    def edit(self, edited):
        """From now on, this is what the administrator's editor makes of a file."""
        self.tree.path("/root/edited").write_text(edited)
        editor = self.tree.path("/usr/local/bin/editor")
        editor.write_text('#!/bin/sh\ncat /root/edited >"$1"\n')
        editor.chmod(0o755)

    def new_database(self):
        self.psql("drop database if exists deb_check with (force)", self.admin)
        self.psql("create database deb_check", self.admin)

    def ring(self, what, token="c0ffee", wait=True):
        """Enqueues a call for an iPhone; true if it rings."""
        self.calls += 1
        call, token = f"call-{self.calls}", token + f"{self.calls:064x}"[len(token):]
        self.tree.run("push-gateway enqueue --config /etc/push-gateway/gateway.yaml -", stdin=json.dumps({
            "app": "porteiro", "payload": {"callId": call, "from": "doorman", "fromName": "Portaria"},
            "recipients": [{"userId": "ana", "voipPushToken": token, "platform": "ios"}]}) + "\n")
        if wait:
            await_(what, lambda: self.rang(token) and self.outcome(call) == "delivered", 30)
        return call, token

    def rang(self, token):
        log = self.tree.path("/root/pushes.jsonl")
        return log.exists() and token in log.read_text()

    def outcome(self, call):
        return self.psql(f"select outcome from push.delivery_history where call_id = '{call}'")


def life(machine):
    tree = machine.tree
    say("apt installs the packages, with what they need from Debian")
    tree.run("apt-get update")
    machine.offer(*machine.packages.values())
    before = set(tree.output("dpkg-query -W -f '${Package} '").split())
    machine.documented("install")
    machine.documented("lab")
    after = set(tree.output("dpkg-query -W -f '${Package} '").split())
    check(f"apt found {len(after - before) - 2} more packages, libcurl, libpq, nghttp2 and jemalloc among them",
          {"libcurl4", "libpq5", "libnghttp2-14", "libjemalloc2"} <= after - before, after - before)
    for name in machine.packages:
        equal(f"{name} is installed", tree.output(f"dpkg-query -W -f '${{Status}} ${{Version}}' {name}"),
              f"install ok installed {machine.version}")
        equal(f"{name} runs", tree.output(f"{name} --version"), machine.version)
    equal("no file of them was changed", tree.output("dpkg --verify push-gateway push-gateway-lab"), "")
    equal("migrations are there as files",
          tree.output("cd /usr/share/push-gateway/migrations && find . -type f | sort | xargs cat | sha256sum"),
          output("sh", "-c", "cd migrations && find . -type f | LC_ALL=C sort | xargs cat | sha256sum"))
    shells(machine)
    pages(machine)

    say("The unit, as systemd reads it")
    equal("systemd-analyze verify has nothing to say", tree.output("systemd-analyze verify push-gateway.service 2>&1"), "")
    security = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=14", f"--root={tree.folder}",
                               "push-gateway.service"], capture_output=True, text=True)
    check("its exposure is at most 1.4", security.returncode == 0, security.stdout[-200:])
    equal("it is disabled", tree.run("systemctl is-enabled push-gateway", check=False).stdout.strip(), "disabled")
    equal("it does not run", tree.run("systemctl is-active push-gateway", check=False).stdout.strip(), "inactive")
    check("started without an edit, it fails", tree.run("systemctl start push-gateway", check=False).returncode != 0)
    equal("with the exit code of a wrong configuration", machine.property("ExecMainStatus"), "78")
    log = tree.output("journalctl --unit push-gateway --output cat")
    check("and the log names the files that are missing", "apns-key.p8" in log and "fcm-service-account.json" in log, log[-500:])
    tree.run("systemctl stop push-gateway")

    say("One edit of its configuration gives a service")
    machine.new_database()
    providers(machine)
    shipped = tree.path(CONFIGURATION).read_text()
    machine.edit(configured(machine, shipped))
    etc = listing(tree)
    machine.documented("configure")
    equal("only one file of /etc was edited; keys, and a link that enables the service, are new", changes(etc, listing(tree)),
          ["/etc/push-gateway/apns-key.p8", "/etc/push-gateway/expo-access-token", "/etc/push-gateway/fcm-service-account.json",
           CONFIGURATION, "/etc/systemd/system/multi-user.target.wants/push-gateway.service"])
    equal("the edited file keeps its mode", oct(tree.path(CONFIGURATION).stat().st_mode & 0o777), "0o600")
    equal("the service runs", machine.property("ActiveState"), "active")
    equal("it tells systemd what it serves", machine.property("StatusText"), "serving porteiro/apns porteiro/fcm porteiro/expo")
    confined(machine)
    machine.ring("a call rings an iPhone")
    equal("psql has the operators' shortcuts", tree.run(
        f"PSQLRC=/usr/share/push-gateway/psql/ops.psqlrc psql -At '{machine.database}'", stdin=":replicas\n").stdout.count("|t|"), 1)

    say("A gateway that hangs is restarted by the watchdog: half a minute")
    frozen = machine.property("MainPID")
    tree.run(f"kill -STOP {frozen}")
    await_("the watchdog has restarted it", lambda: machine.property("ActiveState") == "active"
           and machine.property("MainPID") not in ("0", frozen), 90)
    equal("because of the watchdog", machine.property("NRestarts"), "1")
    machine.ring("a call rings again")

    say("SIGTERM drains")
    call, token = machine.ring("", token="dead0008", wait=False)
    await_("a push is under way, whose answer takes a second", lambda: machine.rang(token), 30)
    equal("its outcome is not known yet", machine.outcome(call), "")
    tree.run("systemctl stop push-gateway")
    equal("a stop waits for its answer", machine.outcome(call), "delivered")
    equal("and ends with 0", machine.property("ExecMainStatus"), "0")
    tree.run("systemctl start push-gateway")

    say("Remove, then purge")
    edited = tree.path(CONFIGURATION).read_text()
    machine.documented("remove")
    equal("remove stops the service", tree.run("pgrep --exact push-gateway", check=False).stdout, "")
    equal("it keeps the configuration", tree.path(CONFIGURATION).read_text(), edited)
    machine.documented("purge")
    elsewhere = " -o ".join(f"-path {path}" for path in ("/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/var/cache", "/var/log"))
    ours = "-name '*push-gateway*' ! -name '*push-gateway-lab*' -o -path '/etc/push-gateway/*'"
    equal("purge leaves nothing but the keys that were copied there",
          sorted(tree.output(rf"find / \( {elsewhere} \) -prune -o \( {ours} \) -print").split()),
          ["/etc/push-gateway", *(f"/etc/push-gateway/{name}" for name in KEYS)])
    upgrade(machine, shipped)


def providers(machine):
    """Simulators in the machine, and the keys as a vendor's site names their files."""
    tree = machine.tree
    process = tree.start("push-gateway-lab simulate --directory /root/simulators --log /root/pushes.jsonl", "root/simulators.log")
    if not await_("the lab's simulators run", lambda: '"ready":true' in tree.path("/root/simulators.log").read_text(), 30):
        raise Failure(f"the simulators ended with {process.poll()}")
    for name, file in KEYS.items():
        tree.run(f"cp simulators/{name} {file}")


def configured(machine, text):
    """The shipped configuration with this database, these apps, and the simulators in place of the providers."""
    simulators = machine.tree.path("/root/simulators/gateway.yaml").read_text()

    def value(key, after=""):
        return re.search(rf"\b{key}: *\"?([^\",}}\s]+)", simulators[simulators.index(after):])[1]
    machine.tree.run("install -m 644 simulators/ca.pem /usr/local/share/ca-certificates/simulators.pem")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for pattern, new in (
            (r"^database: .*$", f"database: {machine.database}\ntls: {{ ca_file: /usr/local/share/ca-certificates/simulators.pem }}"),
            (r"listen: .*$", f"listen: 127.0.0.1:{port}"),
            (r"team_id: .*$", f"team_id: {value('team_id')}"),
            (r"key_id: .*$", f"key_id: {value('key_id')}"),
            (r"topic: .*$", f"topic: {value('topic')}\n      production_url: {value('production_url')}\n"
                            f"      sandbox_url: {value('sandbox_url')}"),
            (r"service_account_file: (.*)$", rf"service_account_file: \1\n      url: {value('url', 'fcm')}"),
            (r"access_token_file: (.*)$", rf"access_token_file: \1\n      url: {value('url', 'expo')}")):
        text, count = re.subn(pattern, new, text, count=1, flags=re.M)
        if not count:
            raise Failure(f"the example has no {pattern}")
    return text


def confined(machine):
    """What the unit promises, of the process that runs."""
    tree, pid = machine.tree, machine.property("MainPID")
    status = dict(line.split(":\t", 1) for line in tree.output(f"cat /proc/{pid}/status").splitlines() if ":\t" in line)
    uid = status["Uid"].split()[0]
    check("it runs as a user that exists only now", int(uid) >= 61184 and "push-gateway" not in tree.path("/etc/passwd").read_text(), uid)
    equal("without capabilities, new privileges, and other system calls",
          (status["CapEff"], status["CapBnd"], status["NoNewPrivs"], status["Seccomp"]), ("0" * 16, "0" * 16, "1", "2"))
    check("that user cannot read the configuration",
          tree.run(f"setpriv --reuid {uid} --clear-groups cat {CONFIGURATION}", check=False).returncode != 0)
    environment = tree.output(f"tr '\\0' '\\n' </proc/{pid}/environ")
    check("no secret is in its environment", "postgres:" not in environment, environment)
    equal("systemd restarts it if it is silent for 30 s", machine.property("WatchdogUSec"), "30s")


def shells(machine):
    tree = machine.tree
    equal("bash completes commands", tree.output(
        ". /usr/share/bash-completion/bash_completion; _completion_loader push-gateway; COMP_WORDS=(push-gateway ti); COMP_CWORD=1; "
        'COMP_LINE="push-gateway ti"; COMP_POINT=15; '
        '$(complete -p push-gateway | sed "s/.*-F \\([^ ]*\\).*/\\1/") push-gateway ti push-gateway; echo ${COMPREPLY[@]}'), "timeline")
    equal("fish completes commands", tree.output("fish --command \"complete --do-complete 'push-gateway ti'\" | cut -f1"), "timeline")
    equal("fish completes options", tree.output(
        "fish --command \"complete --do-complete 'push-gateway-lab loadtest --i-'\" | cut -f1"), "--i-own-this-server")
    equal("zsh finds the completions", tree.output(
        "zsh -fc 'autoload -U compinit && compinit -u && echo $_comps[push-gateway] $_comps[push-gateway-lab]'"),
        "_push-gateway _push-gateway-lab")
    for name in machine.packages:
        tree.run(f"zsh -n /usr/share/zsh/vendor-completions/_{name}")


def pages(machine):
    tree = machine.tree
    for page, word in (("push-gateway", "push-gateway-serve(1)"), ("push-gateway-api-key-create", "--scopes"),
                       ("push-gateway-lab-loadtest", "--simulator-log"), ("5 gateway.yaml", "apps.APP.apns.key_file")):
        shown = tree.run(f"MANWIDTH=100 man --warnings {page}")
        check(f"man {page}", word in shown.stdout and not shown.stderr, shown.stderr or f"no {word}")


def listing(tree):
    """What is in /etc: names, modes, contents."""
    lines = tree.output("find /etc -type f -exec sha256sum {} + ; find /etc -type l -printf '%l  %p\\n'").splitlines()
    return {line.partition("  ")[2]: line.partition("  ")[0] for line in lines}


def changes(before, after):
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def upgrade(machine, shipped):
    say(f"Upgrade from {EARLIER}")
    tree = machine.tree
    work = LOCAL / "earlier"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    machine.offer(earlier(machine.packages["push-gateway"], work))
    machine.new_database()
    # An app with one provider: of the files that the unit names, two of three keys do not exist.
    tree.run("rm -f /etc/push-gateway/fcm-service-account.json /etc/push-gateway/expo-access-token")
    machine.documented("install")
    edited = re.sub(r"^    fcm:.*", "", configured(machine, shipped), flags=re.M | re.S)
    machine.edit(edited)
    tree.run(f"editor {CONFIGURATION} && push-gateway migrate --config {CONFIGURATION} && systemctl enable --now push-gateway")
    equal("the service runs with one provider of three", machine.property("StatusText"), "serving porteiro/apns")
    former = machine.property("MainPID")

    machine.offer(machine.packages["push-gateway"])
    install, *others = machine.block("upgrade")
    # dpkg asks which gateway.yaml it should take, and the answer is a return.
    said = machine.type([install], stdin="\n")
    equal("the new package is installed", tree.output("dpkg-query -W -f '${Status} ${Version}' push-gateway"),
          f"install ok installed {machine.version}")
    check("dpkg says that the example has changed", "*** gateway.yaml" in said, said[-800:])
    equal("the edited configuration is kept", tree.path(CONFIGURATION).read_text(), edited)
    equal("the new example is beside it, as private", oct(tree.path(f"{CONFIGURATION}.dpkg-dist").stat().st_mode & 0o777), "0o600")
    equal("the former program keeps running", (machine.property("MainPID"), machine.property("ActiveState")), (former, "active"))
    machine.ring("calls ring meanwhile")
    machine.type(others)
    check("a restart takes the new program", machine.property("MainPID") not in ("0", former))
    machine.ring("and calls ring")
    tree.run("apt-get purge push-gateway push-gateway-lab")
    equal("a purge while it runs stops it", tree.run("pgrep --exact push-gateway", check=False).stdout, "")


def earlier(package, work):
    """The same package as an earlier version, whose example of a configuration was another."""
    subprocess.run(["dpkg-deb", "--raw-extract", package, work / "x"], check=True)
    for name, old, new in (("DEBIAN/control", r"^Version: .*$", f"Version: {EARLIER}"),
                           (CONFIGURATION.lstrip("/"), r"\A", "# An earlier example.\n")):
        file = work / "x" / name
        file.write_text(re.sub(old, new, file.read_text(), count=1, flags=re.M))
    result = work / f"push-gateway_{EARLIER}_{ARCHITECTURE}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", work / "x", result], check=True, capture_output=True)
    return result


if __name__ == "__main__":
    main()
