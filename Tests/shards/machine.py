"""A router, shards, simulated providers and gateways on the loopback. What it starts it stops."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

ROOT = Path(__file__).resolve().parents[2]
LOCAL = ROOT / ".local" / "shards"
# Longer than anything here takes on a busy machine.
PATIENCE_SECONDS = 60
RUN_SECONDS_MAX = 300
# One process for all databases, by `databases:` in its configuration; else one process for each.
ONE_PROCESS = os.environ.get("SHARDS_ONE_PROCESS") == "1"
PASSWORD = "loopback-only"
# The simulators' app.
APP = "porteiro"
HTTP = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Failure(Exception):
    """Why the tests cannot go on."""


class Results:
    def __init__(self):
        self.passed = self.failed = 0

    def equal(self, what, got, want):
        self.check(what, None if got == want else f"got {got!r}, want {want!r}")

    def check(self, what, fault):
        if fault:
            self.failed += 1
            print(f"not ok - {what}: {fault}", flush=True)
        else:
            self.passed += 1
            print(f"ok - {what}", flush=True)


def say(text):
    print(f"== {text}", flush=True)


def await_(what, condition, seconds=PATIENCE_SECONDS):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def run(*command, environment=None, check=True):
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **(environment or {})}, timeout=RUN_SECONDS_MAX
    )
    if check and done.returncode:
        raise Failure(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-600:]}")
    return done


class Database:
    """A cluster of scripts/postgres.sh. Logins other than its owner need a password, as on a network."""

    def __init__(self, name):
        self.name = name
        self.directory = LOCAL / name

    def prepare(self):
        self.start()
        run(
            "psql",
            "-XAtq",
            self.url,
            "-c",
            "set client_min_messages = error",
            "-c",
            "drop schema if exists push cascade; drop schema if exists push_router cascade; drop schema if exists backend cascade; "
            "drop extension if exists plproxy cascade",
        )
        data = self.directory / "data"
        (data / "pg_hba.conf").write_text(
            "local all push trust\nhost all push 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
        )
        self.sql("select pg_reload_conf()")

    def start(self):
        self.url = run(
            "scripts/postgres.sh", "start", f".local/shards/{self.name}", *([str(self.port)] if hasattr(self, "port") else [])
        ).stdout.strip()
        settings = conninfo_to_dict(self.url)
        self.host, self.port, self.dbname = settings["host"], settings["port"], settings["dbname"]

    def connect(self, login=None, **options):
        url = make_conninfo(self.url, **({"user": login, "password": PASSWORD} if login else {}))
        return psycopg.connect(url, autocommit=options.pop("autocommit", True), connect_timeout=5, **options)

    def rows(self, statement, *parameters, login=None):
        with self.connect(login) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def sql(self, statement, *parameters, login=None):
        rows = self.rows(statement, *parameters, login=login)
        return rows[0][0] if rows else None

    def pids(self):
        """The postmaster and its children."""
        postmaster = int((self.directory / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        return [postmaster, *map(int, children)]

    def kill(self):
        """As the loss of its machine: no checkpoint, no farewell."""
        pids = self.pids()
        os.kill(pids[0], signal.SIGQUIT)
        await_(f"the end of {self.name}", lambda: not is_running(pids[0]))

    def freeze(self):
        self.frozen = self.pids()
        for pid in self.frozen:
            os.kill(pid, signal.SIGSTOP)

    def thaw(self):
        for pid in reversed(self.frozen):
            os.kill(pid, signal.SIGCONT)

    def stop(self):
        run("scripts/postgres.sh", "stop", f".local/shards/{self.name}", check=False)


class Machine:
    def __init__(self, gateway):
        self.gateway = str(Path(gateway).resolve())
        self.processes = []
        self.databases = []
        self.serving = {}
        self.pushes_read = 0
        self.pushes_seen = []

    def __enter__(self):
        try:
            LOCAL.mkdir(parents=True, exist_ok=True)
            for path in LOCAL.glob("*.log*"):
                path.unlink()
            say("Simulated providers")
            self.pushes_file = LOCAL / "pushes.log.jsonl"
            self.start(
                "simulators", f"{self.gateway}-lab", "simulate", "--directory", str(LOCAL / "simulators"), "--log", str(self.pushes_file)
            )
            await_("the simulators", lambda: '"ready":true' in self.log("simulators"))
            say("A router and three shards: four clusters")
            self.router = self.database("router")
            self.shards = []
            for _ in range(3):
                self.add_shard()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            stop(process)
        for database in self.databases:
            if getattr(database, "frozen", None):
                database.thaw()
            database.stop()

    def database(self, name):
        database = Database(name)
        self.databases.append(database)
        database.prepare()
        return database

    def add_shard(self):
        number = len(self.shards)
        shard = self.database(f"shard-{number}")
        run(self.gateway, "migrate", environment={"DATABASE_URL": shard.url})
        if os.environ.get("SHARDS_NEWER_SQL") == "1":  # for a program that was built before migrations/ was changed
            run("scripts/apply-schema.sh", shard.url, "functions")
        self.shards.append(shard)
        return shard

    def start(self, name, *command, environment=None):
        log = open(LOCAL / f"{name}.log", "ab")
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        process.log_name = name
        self.processes.append(process)
        return process

    def log(self, name):
        return (LOCAL / f"{name}.log").read_text()

    def serve(self):
        """Gateways for the shards that have none."""
        # A hedge is a second push for the same invite, and the tests count pushes.
        text = (LOCAL / "simulators" / "gateway.yaml").read_text()
        for provider in ("apns", "fcm"):
            text = text.replace(f"    {provider}:\n", f"    {provider}:\n      hedged_percent_max: 0\n")
        configuration = LOCAL / "simulators" / "unhedged.yaml"
        configuration.write_text(text)
        if ONE_PROCESS:
            text += "".join(["databases:\n", *[f"  {shard.name}:\n    url: {shard.url}\n" for shard in self.shards]])
            (LOCAL / "simulators" / "shards.yaml").write_text(text)
            for process in self.serving.values():
                stop(process)
            self.serving = {"all": self.serve_one("gateway", LOCAL / "simulators" / "shards.yaml", {})}
            return
        for shard in self.shards:
            if shard.name not in self.serving:
                self.serving[shard.name] = self.serve_one(f"gateway-{shard.name}", configuration, {"DATABASE_URL": shard.url})

    def serve_one(self, name, configuration, environment):
        port = free_port()
        process = self.start(
            name,
            self.gateway,
            "serve",
            "--config",
            str(configuration),
            environment={**environment, "PUSH_GATEWAY_HTTP_LISTEN": f"127.0.0.1:{port}", "PUSH_GATEWAY_LOG_LEVEL": "warning"},
        )

        def ready():
            if process.poll() is not None:
                raise Failure(f"{name} has ended: {self.log(name)[-600:]}")
            try:
                return HTTP.open(f"http://127.0.0.1:{port}/readyz", timeout=5).status == 200
            except OSError:
                return False

        await_(name, ready)
        return process

    def apply(self, lines=None, check=True, environment=None):
        """deploy/plproxy/shards.sh FILE apply, with these words before the shards' lines: shard, closed or dead."""
        words = lines or ["shard"] * len(self.shards)
        self.configuration = LOCAL / "shards.conf"
        self.configuration.write_text(
            "".join(
                f"{word} {number} {shard.url} host={shard.host} port={shard.port} dbname={shard.dbname}\n"
                for number, (word, shard) in enumerate(zip(words, self.shards))
            )
            + f"router {self.router.url}\n"
        )
        return run(
            "deploy/plproxy/shards.sh",
            str(self.configuration),
            "apply",
            check=check,
            environment={"SHARDS_SETTLE_SECONDS": "2", **(environment or {})},
        )

    def login(self, name, *grants, app=None):
        """The same login everywhere, with its mapping on the router."""
        for database in [self.router, *self.shards]:
            self.login_at(database, name, *grants, app=app)

    def login_at(self, database, name, *grants, app=None):
        database.sql(f"do $$ begin if to_regrole('{name}') is null then create role {name} login; end if; end $$")
        database.sql(f"alter role {name} password '{PASSWORD}'")
        for grant in grants:
            database.sql(f"grant {grant} to {name}")
        if app:
            if database is self.router:
                database.sql(f"grant push_tenant to {name}")
            else:
                database.sql("select push.grant_app(%s, %s)", name, app)
        if database is self.router:
            for server in ["push", *(["push_ops"] if "push_ops" in grants else [])]:
                database.sql(
                    f"do $$ begin if not exists (select from pg_user_mappings where srvname = '{server}' and usename = '{name}') then "
                    f"create user mapping for {name} server {server} options (user '{name}', password '{PASSWORD}'); end if; end $$"
                )

    # --- What came of it ---

    def pushes(self):
        """The pushes that providers accepted. A line that is still being written counts for the next look."""
        if self.pushes_file.exists():
            with open(self.pushes_file, "rb") as file:
                file.seek(self.pushes_read)
                text = file.read()
            text = text[: text.rfind(b"\n") + 1]
            self.pushes_read += len(text)
            self.pushes_seen += [json.loads(line) for line in text.splitlines()]
        return self.pushes_seen

    def rung(self, call_id):
        """How often this call rang a phone."""
        return self.counts().get(call_id, 0)

    def counts(self):
        counts = {}
        for push in self.pushes():
            if push["payload"].get("action") == "incoming_call":
                call_id = push["payload"]["callId"]
                counts[call_id] = counts.get(call_id, 0) + 1
        return counts

    def where(self, call_id):
        """The numbers of the shards that have this call."""
        return [
            n for n, shard in enumerate(self.shards) if shard.sql("select exists (select from push.outbox where call_id = %s)", call_id)
        ]


def is_running(pid):
    """A zombie does not run. The process may end while it is looked at."""
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def stop(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port():
    import socket

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        return holder.getsockname()[1]


if sys.version_info < (3, 9):
    raise SystemExit("Python 3.9 or later is needed")
