"""A Debian 12 of its own: a tree made by debootstrap, in which systemd is started as process 1 of a container."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ROOT / ".local/deb"
# What the packages need is not among these, so that apt has to find it.
PACKAGES = "systemd,dbus,libnss-systemd,man-db,bash-completion,zsh,fish"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
SECURITY = os.environ.get("DEBIAN_SECURITY_MIRROR", "http://deb.debian.org/debian-security")
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "TERM": "dumb",
               "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}


class Failure(Exception):
    pass


def say(text):
    print(f"== {text}", flush=True)


def base():
    """The folder of a fresh Debian 12; made once, and again after a month or when the list of packages has changed."""
    folder = LOCAL / f"base-{hashlib.sha256(f'{PACKAGES} {MIRROR}'.encode()).hexdigest()[:8]}"
    stamp = folder / "made"
    if stamp.exists() and time.time() - stamp.stat().st_mtime < 30 * 86400:
        return folder / "tree"
    say(f"debootstrap: a Debian 12 in {folder.relative_to(ROOT)}, once; one or two minutes")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with (folder / "log").open("w") as log:
        if subprocess.run(["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", folder / "tree", MIRROR],
                          stdout=log, stderr=log).returncode:
            raise Failure(f"debootstrap failed: is {MIRROR} reachable (DEBIAN_MIRROR)? See {folder / 'log'}")
    (folder / "tree/etc/apt/sources.list").write_text(
        f"deb {MIRROR} bookworm main\ndeb {MIRROR} bookworm-updates main\ndeb {SECURITY} bookworm-security main\n")
    (folder / "tree/etc/apt/apt.conf.d/90check").write_text('APT::Get::Assume-Yes "true";\nAPT::Keep-Downloaded-Packages "true";\n')
    stamp.touch()
    return folder / "tree"


class Tree:
    """A copy of the base. It has the network of this machine."""

    def __init__(self):
        self.name = f"push-gateway-{os.getpid()}"
        self.folder = LOCAL / f"tree-{os.getpid()}"
        self.groups = []
        self.container = self.leader = None
        self.processes = []

    def boot(self):
        """Makes it and starts systemd in it; returns when all of its services have started."""
        # Those of checks that were killed.
        for old in LOCAL.glob("tree-*"):
            if not Path(f"/proc/{old.name.partition('-')[2]}").exists():
                subprocess.run(["rm", "-rf", "--one-file-system", old], check=True)
        subprocess.run(["cp", "-a", "--reflink=auto", base(), self.folder], check=True)
        archives = LOCAL / "archives"
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        log = (LOCAL / "systemd.log").open("w")
        self.container = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--directory", self.folder, "--boot", "--register=no", "--link-journal=no", "--console=pipe",
             f"--machine={self.name}", f"--bind={archives}:/var/cache/apt/archives", *self.without_systemd()],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, preexec_fn=self.enter)
        until = time.time() + 90
        while time.time() < until and self.container.poll() is None:
            children = Path(f"/proc/{self.container.pid}/task/{self.container.pid}/children").read_text().split()
            self.leader = children[0] if children else None
            if self.leader and self.run("systemctl is-system-running", check=False).stdout.strip() in ("running", "degraded"):
                return
            time.sleep(0.5)
        raise Failure(f"systemd-nspawn cannot start systemd here; see {LOCAL / 'systemd.log'}")

    def without_systemd(self):
        """Options for a machine whose process 1 is not systemd, which would make a control group for the container."""
        if Path("/run/systemd/system").exists():
            return []
        # systemd-nspawn writes there; this machine must not look as if systemd ran on it.
        Path("/run/systemd").mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/systemd"], check=True)
        for hierarchy in ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"):
            if Path(hierarchy, "cgroup.procs").exists():
                self.groups.append(Path(hierarchy, self.name))
                self.groups[-1].mkdir()
        return ["--keep-unit"]

    def enter(self):
        """Called in the new process: it goes into the control groups."""
        for group in self.groups:
            (group / "cgroup.procs").write_text("0")

    def inside(self, command):
        environment = [f"{name}={value}" for name, value in ENVIRONMENT.items()]
        return ["nsenter", "--target", self.leader, "--all", "env", "-i", *environment, "bash", "-c", f"cd /root && {{ {command}\n}}"]

    def run(self, command, check=True, stdin=""):
        """Runs a command of bash in the container, as root."""
        result = subprocess.run(self.inside(command), input=stdin, capture_output=True, text=True, timeout=600)
        if check and result.returncode:
            raise Failure(f"{command!r} ended with {result.returncode}: {(result.stdout + result.stderr).strip()[-1500:]}")
        return result

    def output(self, command):
        return self.run(command).stdout.strip()

    def start(self, command, log):
        """Starts a command that runs until the end."""
        with (self.folder / log).open("w") as file:
            self.processes.append(subprocess.Popen(self.inside(f"exec {command}"), stdin=subprocess.DEVNULL, stdout=file, stderr=file))
        return self.processes[-1]

    def path(self, name):
        return self.folder / name.lstrip("/")

    def close(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        for process in self.processes:
            process.terminate()
        if self.container and self.container.poll() is None:
            # SIGTERM shuts it down like a machine.
            for number, seconds in ((signal.SIGTERM, 60), (signal.SIGTERM, 10), (signal.SIGKILL, 10)):
                self.container.send_signal(number)
                try:
                    self.container.wait(seconds)
                    break
                except subprocess.TimeoutExpired:
                    continue
        for group in self.groups:
            for inner in sorted(group.glob("**/"), reverse=True):
                try:
                    inner.rmdir()
                except OSError as error:
                    print(f"{inner}: {error}", file=sys.stderr)
        subprocess.run(["rm", "-rf", "--one-file-system", self.folder], check=False)
