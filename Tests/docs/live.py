#!/usr/bin/env python3
"""Types the sessions of the documentation into a shell, with the real programs, and compares what they print.

  PUSH_GATEWAY=.build/debug/push-gateway Tests/docs/live.py [NAME …]

A comment `<!-- shell: NAME -->` on a page begins a part of the session NAME, until `<!-- shell: end -->`. A session goes on
from page to page, in the order of PAGES below; a part `NAME last` is its end. Its blocks of sh are typed into one bash, its
blocks of SQL into `psql "$DATABASE_URL"`. A block without a language right after one of them is what it prints, where `⋮`
stands for any number of lines; order of lines, times, durations and ports may differ. A reader looks again where something
takes a while: so what only asks is repeated for a minute.

A comment `<!-- received: TOKEN TYPE -->` in a session says that the next block is the push of this type that the simulators have
received for the token that begins so: its members are compared (received.py).

/tmp/tour is another folder here, the listeners have free ports, the HTTP API is on, and the programs are those of
PUSH_GATEWAY. Everything that a session starts is stopped. Of commands that are not run (commands.py), the options must be
known to the program's --help. Ends with "N passed, N failed"; non-zero when any failed.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True

from commands import in_run  # noqa: E402
from page import ROOT, Page  # noqa: E402
from received import received_fault  # noqa: E402
from session import normal  # noqa: E402

PAGES = ["README.md", "docs/tour.md", "docs/http-api.md", "docs/operations.md", "docs/app.md", *sorted(
    str(path.relative_to(ROOT)) for path in ROOT.glob("docs/operations/*.md"))]
FOLDER, OPS, API = "/tmp/tour", "127.0.0.1:8080", "127.0.0.1:8081"
PATIENCE_SECONDS = 300
# A command that only asks, and so may be repeated.
CHANGES = r"\b(enqueue_call|answer_call|end_call|pause_lane|resume_lane|pg_sleep)\b"
ASKS = re.compile(r"(push-gateway (timeline|status|lanes)|sleep |curl (?!.*-d )|grep|select (?!.*%s))" % CHANGES, re.S)
VARYING = [(re.compile(r'"outboxId":\d+'), '"outboxId":N'), (re.compile(r"\b\d+\.\d+\b"), "N"), (re.compile(r"\b\d{4,5}\b"), "N"),
           (re.compile(r"\b\d+ (ms|s)\b"), "N s")]


class Session:
    """A context: a bash with the environment of a reader."""

    def __init__(self, name, gateway):
        self.name, self.programs = name, Path(gateway).resolve().parent
        self.work = Path(tempfile.mkdtemp(prefix="push-tour."))
        self.work.chmod(0o755)
        self.sockets = [free_port(), free_port()]
        self.ports = [one.getsockname()[1] for one in self.sockets]
        self.count = 0

    def __enter__(self):
        self.printed = self.work / "printed"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PUSH_GATEWAY", "PG", "DATABASE_URL"))}
        environment |= {"PUSH_GATEWAY_HTTP_LISTEN": self.here(OPS), "PUSH_GATEWAY_API_LISTEN": self.here(API), "PGTZ": "UTC",
                        "PUSH_GATEWAY_API_ENABLED": "true", "no_proxy": "127.0.0.1", "PATH": f"{self.programs}:{environment['PATH']}"}
        with self.printed.open("w") as printed:
            self.bash = subprocess.Popen(["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=printed, stderr=subprocess.STDOUT,
                                         text=True, cwd=ROOT, env=environment, start_new_session=True)
        self.type("shopt -s expand_aliases; make() { [ \"$1\" = build ] || command make \"$@\"; }\n"
                  "trap 'echo \"@@failed: $BASH_COMMAND\"' ERR")
        return self

    def __exit__(self, *_):
        if self.bash.poll() is None:
            os.killpg(self.bash.pid, signal.SIGCONT)
            os.killpg(self.bash.pid, signal.SIGTERM)
            try:
                self.bash.stdin.close()
                self.bash.wait(PATIENCE_SECONDS)
            except (subprocess.TimeoutExpired, BrokenPipeError):
                os.killpg(self.bash.pid, signal.SIGKILL)
        subprocess.run([ROOT / "scripts/postgres.sh", "stop", self.work / "postgres"], cwd=ROOT, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        for one in self.sockets:
            one.close()
        shutil.rmtree(self.work, ignore_errors=True)

    def here(self, text):
        for there, here in ((FOLDER, str(self.work)), (OPS, f"127.0.0.1:{self.ports[0]}"), (API, f"127.0.0.1:{self.ports[1]}")):
            text = text.replace(there, here)
        return text.replace("PATH=$PWD/.build/debug:$PATH ", f"PATH={self.programs}:$PATH ")

    def type(self, text):
        """Types lines."""
        self.count += 1
        self.bash.stdin.write(f"{text}\n")
        self.bash.stdin.flush()

    def run(self, block, text):
        """Types a command and waits for its end; returns where in the output it begins to print, or a text: it did not end."""
        start = self.printed.stat().st_size
        text = self.here(text)
        if block.language == "sql":
            file = self.work / "typed.sql"
            file.write_text(text + "\n")
            text = f'psql -qX -P footer=off -P pager=off -v SHOW_CONTEXT=never -f - "$DATABASE_URL" < {file}'
        self.type(f"{text}\necho; echo @@{self.count}")
        end, deadline = f"@@{self.count - 1}\n", time.monotonic() + 600
        while end not in self.since(start):
            if self.bash.poll() is not None or time.monotonic() > deadline:
                return self.since(start) + f"(no end: {text})"
            time.sleep(0.05)
        return start

    def since(self, start):
        with self.printed.open("rb") as printed:
            printed.seek(start)
            return printed.read().decode(errors="replace")

    def fault(self, block):
        """What is wrong with a block; None: nothing."""
        if block.received:
            return received_fault(block, self.work / "pushes.jsonl", PATIENCE_SECONDS)
        start = self.run(block, block.text)
        deadline = time.monotonic() + PATIENCE_SECONDS
        (again, is_whole), before = repeatable(block), ""
        while True:
            if isinstance(start, str):
                return start
            text = self.since(start)
            failed = re.search(r"(?m)^@@failed: (.*)$", text)
            if failed and block.expected is None:
                return f"{failed[1]} fails:\n{text}"
            printed = before + re.sub(r"(?m)^@@(\d+|failed: .*)\n", "", text)
            if block.expected is None or same(block.expected, printed, self):
                return None
            if time.monotonic() > deadline:
                return f"the page shows:\n{block.expected}\nprinted was:\n{printed}"
            time.sleep(0.3)
            if again:
                before = "" if is_whole else before or leading(block, printed)
                start = self.run(block, again)


def leading(block, printed):
    """What the statements before the last one printed: everything in front of the last table."""
    if block.language != "sql":
        return ""
    return "\n\n".join(re.split(r"\n\n", printed.strip("\n"))[:-1]) + "\n\n"


def repeatable(block):
    """(what may be typed again, whether it is the whole block); (None, False): nothing."""
    if block.language == "sql":
        commands = [re.sub(r"(?m)^(\s*--|\\).*\n", "", one) for one in re.split(r";[^\S\n]*(?:--[^\n]*)?\n", block.text.strip())]
    else:
        commands = re.sub(r"\\\n\s*", " ", block.text.strip()).split("\n")
    if all(map(ASKS.match, commands)):
        return block.text, True
    return (commands[-1], False) if ASKS.match(commands[-1]) else (None, False)


def same(expected, printed, session):
    want, got = lines(session.here(expected)), lines(printed)
    if "⋮" not in want:
        return sorted(want) == sorted(got)
    # Each part between the marks stands somewhere, in its order.
    at = 0
    for line in want:
        if line != "⋮":
            if line not in got[at:]:
                return False
            at = got.index(line, at) + 1
    return True


def lines(text):
    found, _ = normal(text)
    result = []
    for line in found:
        for pattern, word in VARYING:
            line = pattern.sub(word, line)
        result.append(line)
    return result


def options(gateway):
    """(where, fault or None) of each use of the programs in blocks that are not run."""
    helps = {}
    for file in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("deploy/**/*.md")]):
        name = str(file.relative_to(ROOT))
        for block in Page(name).blocks if in_run(name) else []:
            for line in re.sub(r"\\\n\s*", " ", block.text).split("\n") if block.runner == "not run" else []:
                use = re.search(r"(?:^|\s)(push-gateway(?:-lab)?) ([a-z-]+)((?: (?![|&;#]).*)?)", line.split(" # ")[0])
                if not use or use[1] == "push-gateway" and line.lstrip().startswith(("docker build", "systemctl", "journalctl", "install")):
                    continue
                program, command, arguments = use.groups()
                if (program, command) not in helps:
                    done = subprocess.run([gateway.parent / program, command, "--help"], text=True, capture_output=True,
                                          timeout=PATIENCE_SECONDS)
                    helps[program, command] = done.stdout if done.returncode == 0 else None
                known = helps[program, command]
                unknown = [one for one in re.findall(r" (--[a-z-]+)", arguments) if known and f"{one}" not in known]
                yield f"{name}:{block.line}", (f"{program} has no command {command}" if known is None else
                                               f"{program} {command} has no {unknown[0]}" if unknown else None)


def free_port():
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    gateway = Path(os.environ.get("PUSH_GATEWAY", ROOT / ".build/debug/push-gateway"))
    if not os.access(gateway, os.X_OK):
        raise SystemExit(f"live.py: there is no program {gateway}: build it, or name it in PUSH_GATEWAY")
    sessions, ends = {}, {}
    for page in map(Page, PAGES):
        for name, blocks in page.sessions:
            name, _, is_last = name.partition(" ")
            (ends if is_last else sessions).setdefault(name, []).extend((page.name, block) for block in blocks)
    for name, blocks in ends.items():
        sessions[name] += blocks
    passed = failed = 0
    for where, fault in options(gateway.resolve()):
        passed, failed = passed + (fault is None), failed + (fault is not None)
        print(f"{'ok' if fault is None else 'not ok'} - {where}: options" + (f": {fault}" if fault else ""), flush=True)
    for name in sys.argv[1:] or sessions:
        with Session(name, gateway) as session:
            for page, block in sessions[name]:
                fault = session.fault(block)
                passed, failed = passed + (fault is None), failed + (fault is not None)
                print(f"{'ok' if fault is None else 'not ok'} - {page}:{block.line} ({name})" + (f": {fault}" if fault else ""), flush=True)
                if fault and session.bash.poll() is not None:
                    break
    print(f"{passed} passed, {failed} failed")
    raise SystemExit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
