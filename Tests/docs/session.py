"""Types what a page shows into psql, and compares what is printed with what the page says."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from itertools import count

from page import ROOT

SITUATIONS = ROOT / "Tests" / "docs" / "situations"
# A situation stays what it is for so many seconds. One that takes longer is typed again, so many times at most.
SOON, TRIES = 3, 5
SHORTCUTS = ROOT / "deploy" / "psql" / "ops.psqlrc"

# What may differ from the page. Durations are compared apart from the text.
VARYING = [
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d(:?\d\d)?)?"), "TIME"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    # Of the whole server, which others may use as well.
    (re.compile(r"(oldest transaction *\|)[^|]*"), r"\1 AGE "),
    (re.compile(r"\b\d+ beside \d+"), "N beside N"),
    # What other sessions of the server hold at that moment.
    (re.compile(r"(lock table *\|) *\d+ %(?= *\| *ok)"), r"\1 N % "),
    (re.compile(r"\bpid \d+"), "pid N"),
    (re.compile(r"\bpgk_(\d+)_(?:[0-9a-f]{64}\b|…)"), r"pgk_\1_KEY"),
    (re.compile(r"^psql:<stdin>:\d+: "), ""),
]
# What a gateway does after a commit. And a replica that lives sends heartbeats, however long the page takes.
FOLLOW = """select push.follow_up(u.urgent, 1000, '1 day') from (values (true), (false), (true), (false)) u(urgent);
update push.gateways set heartbeat_at = clock_timestamp() where alive and heartbeat_at > clock_timestamp() - interval '30 s';"""
DURATION = re.compile(r"(-?)(?:\b(\d+) days?\b ?)?(-?)\b(\d\d):(\d\d):(\d\d(?:\.\d+)?)|(-?)\b(\d+) days?\b")


class Postgres:
    """The server, with a template database that has the schema, and a database for each situation."""

    def __init__(self, url):
        self.given, self.made, self.numbers = url, [], count()
        self.template = f"docs_{os.getpid()}"
        self.create(self.template, "template0")
        subprocess.run([ROOT / "scripts/apply-schema.sh", self.url(self.template)], check=True)

    def url(self, name):
        server, _, parameters = self.given.partition("?")
        return server.rsplit("/", 1)[0] + "/" + name + ("?" + parameters if parameters else "")

    def create(self, name, template):
        done = psql(self.given, "-X", "-c", f'create database "{name}" template "{template}"')
        if done.returncode:
            raise SystemExit(f"cannot make a scratch database: {done.stdout}")
        self.made.append(name)

    def names(self):
        """Everything of the schema that a page may speak of."""
        done = psql(self.url(self.template), "-X", "-At", "-c", """
            select relname from pg_class where relnamespace = 'push'::regnamespace
            union select proname from pg_proc where pronamespace = 'push'::regnamespace""")
        return set(done.stdout.split())

    def columns(self):
        """The tables, partitions aside, each with those of its columns that may hold a user's id, a token, what a call says,
        or who does what from where."""
        done = psql(self.url(self.template), "-X", "-At", "-F", " ", "-c", r"""
            select c.relname, string_agg(a.attname, ' ') filter (where a.atttypid in ('text'::regtype, 'text[]'::regtype, 'jsonb'::regtype,
              'bytea'::regtype, 'bigint'::regtype, 'bigint[]'::regtype, 'inet'::regtype, 'cidr[]'::regtype)
              and a.attname ~ 'user|token|device|recipient|payload|answered_by|declined|locale|^data$|message_id'
                '|operator|address|_from$|^who$')
            from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
            where c.relnamespace = 'push'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition group by 1""")
        return {words[0]: [word for word in words[1:] if word] for words in map(str.split, done.stdout.splitlines())}

    def situation(self):
        """The address of a new database for a situation."""
        name = f"{self.template}_{next(self.numbers)}"
        self.create(name, self.template)
        return self.url(name)

    def drop(self):
        # Each waits for a checkpoint; at the same time they share one.
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda name: psql(self.given, "-X", "-c", f'drop database if exists "{name}" with (force)'),
                          self.made))


def psql(url, *arguments, **options):
    environment = {**os.environ, "PSQLRC": str(SHORTCUTS), "PSQL_HISTORY": os.devnull, "PGTZ": "UTC",
                   "PGOPTIONS": "-c client_min_messages=warning"}
    return subprocess.run(["psql", "-q", *arguments, url], text=True, env=environment, cwd=SITUATIONS, timeout=1800,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def run(postgres, situation, has_shortcuts):
    """Each block of a situation with what is wrong, or None."""
    for _ in range(TRIES):
        blocks, elapsed = typed(postgres.situation(), situation, has_shortcuts)
        # While the machine stood still, replicas fell silent, or calls rang out: once more.
        if elapsed < SOON or not any(fault for _, fault in blocks):
            break
    return blocks


def typed(url, situation, has_shortcuts):
    """Sets a situation up and types its blocks in one session; each block with what is wrong, or None, and the seconds that it took."""
    # Without the limits of the shortcuts, which a busy machine may reach.
    lines = ["\\echo @@begin `date +%s.%N`", "\\set ON_ERROR_STOP on", "\\o /dev/null",
             "set statement_timeout = 0; set idle_in_transaction_session_timeout = 0;", "begin;",
             f"\\i {situation.name}.sql", "commit;", FOLLOW,
             f"set session authorization {situation.role};" if situation.role else "",
             "\\o", "\\set ON_ERROR_STOP off", "\\pset footer off", "\\pset pager off", "\\set SHOW_CONTEXT never"]
    for index, block in enumerate(situation.blocks):
        lines += [f"\\echo @@{index} `date +%s.%N`", *followed(block.text, situation.role)]
    lines.append("\\echo @@end `date +%s.%N`")
    done = psql(url, *([] if has_shortcuts else ["-X"]), "-f", "-", input="\n".join(lines) + "\n")
    parts = re.split(r"^@@(\d+|begin|end) (\d+\.\d+)\n", done.stdout, flags=re.M)
    printed, times = dict(zip(parts[1::3], parts[3::3])), list(map(float, parts[2::3]))
    if "0" not in printed:
        raise SystemExit(f"situations/{situation.name}.sql fails: {done.stdout[-2000:]}")
    elapsed = times[-1] - times[0]
    return [(block, fault(block.expected, printed.get(str(index), "(psql did not get there)\n"), elapsed))
            for index, block in enumerate(situation.blocks)], elapsed


def followed(text, role):
    """The lines of a block. After each statement, outside a transaction, what a gateway does after a commit."""
    follow = ["\\o /dev/null", "set session authorization default;", FOLLOW,
              f"set session authorization {role};" if role else "", "\\o"]
    is_open = is_quoted = False
    for line in text.split("\n"):
        yield line
        statement = line.strip().lower()
        is_quoted ^= line.count("$$") % 2 == 1
        is_open = (is_open or statement == "begin;") and statement not in ("commit;", "rollback;")
        if statement.endswith(";") and not is_open and not is_quoted:
            yield from follow


def fault(expected, printed, elapsed):
    """How psql's output differs from the page's; None: it does not. elapsed: how long it took, in seconds."""
    got, got_durations = normal(printed)
    if expected is None:
        return f"the page shows no output, psql printed:\n{printed}" if got else None
    want, want_durations = normal(expected)
    if got != want:
        return "\n".join([*unified_diff(want, got, "the page", "psql", lineterm="", n=20), printed])
    for page, real in zip(want_durations, got_durations):
        if abs(page - real) > 1 + elapsed + abs(page) / 1000:
            return f"the page says {page} s, psql {real} s:\n{printed}"
    return None


def normal(text):
    """The lines to compare, and the durations in them, in seconds."""
    lines, durations = [], []

    def note(match):
        minus, days, minus_time, hours, minutes, seconds, minus_days, whole_days = match.groups()
        if whole_days:
            durations.append(int(minus_days + whole_days) * 86400)
        else:
            clock = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
            is_negative = minus_time or minus and not days
            durations.append(int(minus + (days or "0")) * 86400 + (-clock if is_negative else clock))
        return "DURATION"

    for line in text.strip("\n").split("\n"):
        for pattern, word in VARYING:
            line = pattern.sub(word, line)
        line = DURATION.sub(note, line)
        if re.fullmatch(r"[-+]*-[-+]*", line.strip()):
            line = "---"
        line = " | ".join(cell.strip() for cell in line.split("|")) if "|" in line else " ".join(line.split())
        if line:
            lines.append(line)
    return lines, durations
