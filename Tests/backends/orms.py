"""The programs of docs/orms.md, with SQLAlchemy and Django, straight and through the pool; and what the page says of them.

pip installs both into .local/orms, once; without a network the programs are not run, which is said.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(os.environ["ROOT"])
TOOLS = ROOT / ".local/orms"
PACKAGES = ["sqlalchemy==2.1.9", "django==5.2.19", "psycopg[binary]==3.3.9"]
sys.path[:0] = [str(ROOT / "Tests/docs"), str(ROOT / "Tests/backends")]


def install():
    """The Python that has the packages; None: pip cannot install them."""
    python, installed = TOOLS / "bin/python", TOOLS / "installed"
    if not installed.exists() or installed.read_text().split() != PACKAGES:
        subprocess.run([sys.executable, "-m", "venv", TOOLS], check=True)
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
                              capture_output=True, text=True)
        if done.returncode:
            print(f"ok - orms.py: skipped, because pip cannot install {' '.join(PACKAGES)}: {done.stderr.strip().splitlines()[-1:]}")
            return None
        installed.write_text("\n".join(PACKAGES))
    return python


def load(page, name):
    """A program of the page, as a module."""
    module = type(sys)(name)
    exec(compile(page.files[name], f"docs/orms.md: {name}", "exec"), module.__dict__)
    return module


def recipients(*users):
    return [{"userId": user, "fcmToken": f"orm-token-0123456789-{user}"} for user in users]


def sqlalchemy(page, way):
    from sqlalchemy import BigInteger, create_engine, exc, text
    from sqlalchemy.dialects.postgresql import JSONB
    from sqlalchemy.engine import URL
    from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
    from psycopg.conninfo import conninfo_to_dict

    from harness import check, conninfo, owner

    class Base(DeclarativeBase):
        pass

    class Call(Base):
        __tablename__, __table_args__ = "outbox", {"schema": "push"}
        id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
        app: Mapped[str]
        payload: Mapped[dict] = mapped_column(JSONB)
        recipients: Mapped[list] = mapped_column(JSONB)

    def name(what):
        return f"SQLAlchemy {way}: {what}"

    def raised(error, work):
        try:
            work()
        except error as fault:
            return getattr(getattr(fault, "orig", None), "sqlstate", type(fault).__name__)
        return "no error"

    settings = conninfo_to_dict(conninfo(way, "enqueuer"))
    url = URL.create("postgresql+psycopg", settings.pop("user"), settings.pop("password"), settings.pop("host"), int(settings.pop("port")),
                     settings.pop("dbname"), {key: value for key, value in settings.items() if key in ("sslmode",)})
    program = load(page, "with_sqlalchemy.py")
    engine = program.engine(url)
    with Session(engine) as session, session.begin():
        call, row = program.ring(session, recipients("ana", "bruno"))
        check(name("a call is enqueued"), tuple(row), (2, False, 0))
        check(name("nothing is sent before the commit"), owner("select count(*) from push.outbox where call_id = %s", call), 0)
    with Session(engine) as session, session.begin():
        check(name("repeated, it is a duplicate"), tuple(program.ring(session, recipients("ana"), call)[1]), (2, True, 0))
        check(name("answered once"), [program.answer(session, call, user) for user in ("ana", "bruno")], [True, False])
        program.register(session, f"{way}-sa", "fcm", f"orm-token-0123456789-{way}-sa", "android")
        check(name("a registered device is rung"), program.ring(session, [f"{way}-sa"])[1].deliveries, 1)

    def add():
        with Session(engine) as session, session.begin():
            session.add(Call(app="porteiro", payload={"callId": f"orm-entity-{way}", "from": "x"}, recipients=[]))

    check(name("an entity is inserted once, and a second time is an error"), [raised(Exception, add) for _ in range(2)],
          ["no error", "FlushError"])
    with Session(engine) as session:
        check(name("entities cannot be read"), raised(exc.DBAPIError, lambda: session.query(Call).first()), "42501")
    with Session(engine) as session, session.begin():
        def refused():
            with session.begin_nested():
                session.execute(program.ENQUEUE, {"payload": {"callId": "orm-bad"}, "recipients": recipients("ana"),
                                                  "app": "porteiro", "ring_seconds": 30})

        check(name("a refused call is an error"), raised(exc.DBAPIError, refused), "22023")
        check(name("whose text has no token"), "orm-token" in str(caught(refused)), False)
        check(name("and with begin_nested the transaction goes on"), tuple(program.ring(session, recipients("ana"))[1]), (1, False, 0))
    two_phases = program.engine(url)
    session = Session(two_phases, twophase=True)
    program.ring(session, [])
    check(name("no transaction that enqueued is prepared"), any(
        "cannot PREPARE" in each or "prepared transactions are disabled" in each for each in said(caught(session.prepare))), True)
    two_phases.dispose()
    if way == "pooled":
        given = create_engine(url, connect_args={"options": "-c statement_timeout=5s"})
        check(name("pgbouncer refuses options"), "unsupported startup parameter" in str(caught(given.connect)), True)
        with engine.begin() as connection:
            connection.execute(text("set local statement_timeout = '5s'"))
            check(name("set local ends with the transaction"), connection.scalar(text("show statement_timeout")), "5s")
        with engine.begin() as connection:
            check(name("and is gone in the next"), connection.scalar(text("show statement_timeout")) == "5s", False)
    engine.dispose()


def caught(work):
    try:
        work()
    except Exception as fault:
        return fault
    return None


def said(fault):
    """The texts of an error, and of those behind it."""
    while fault:
        yield str(fault)
        fault = fault.__cause__ or fault.__context__


def django(page, way):
    from psycopg.conninfo import conninfo_to_dict

    from harness import check, conninfo, owner

    import django
    from django.conf import settings
    from django.db import DataError, connections, models, transaction

    given = conninfo_to_dict(conninfo(way, "enqueuer"))
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], "USER": given["user"], "PASSWORD": given["password"],
                "HOST": given["host"], "PORT": given["port"], "DISABLE_SERVER_SIDE_CURSORS": True}
    settings.configure(DATABASES={"default": database}, INSTALLED_APPS=[], USE_TZ=True)
    django.setup()

    class Call(models.Model):
        call_id, state, end_reason = models.TextField(), models.TextField(), models.TextField(null=True)

        class Meta:
            app_label, managed, db_table = "calls", False, '"push"."outbox"'

    def name(what):
        return f"Django {way}: {what}"

    program = load(page, "with_django.py")
    with transaction.atomic():
        call, row = program.ring(recipients("ana", "bruno"))
        check(name("a call is enqueued"), row, (2, False, 0))
        check(name("nothing is sent before the commit"), owner("select count(*) from push.outbox where call_id = %s", call), 0)
    check(name("repeated, it is a duplicate"), program.ring(recipients("ana"), call)[1], (2, True, 0))
    check(name("an unmanaged model reads calls"), Call.objects.get(call_id=call).state, "ringing")
    check(name("answered once"), [program.answer(call, user) for user in ("ana", "bruno")], [True, False])
    program.register(f"{way}-dj", "fcm", f"orm-token-0123456789-{way}-dj", "android")
    check(name("a registered device is rung"), program.ring([f"{way}-dj"])[1][0], 1)
    other, _ = program.ring(recipients("ana"))
    check(name("update of the three columns"), Call.objects.filter(call_id=other).update(state="ended", end_reason="busy"), 1)
    with transaction.atomic():
        fault = caught(lambda: program.ring(7))
        check(name("a refused call is a DataError"), (type(fault) is DataError, getattr(fault.__cause__, "sqlstate", None)),
              (True, "22023"))
        check(name("and the transaction goes on"), program.ring(recipients("ana"))[1], (1, False, 0))
    # More often than psycopg's prepare_threshold.
    check(name("again and again"), {program.ring(recipients("ana"))[1] for _ in range(12)}, {(1, False, 0)})
    connections.close_all()


if len(sys.argv) == 3:
    from page import Page

    {"sqlalchemy": sqlalchemy, "django": django}[sys.argv[1]](Page("docs/orms.md"), sys.argv[2])
elif python := install():
    for library in ("sqlalchemy", "django"):
        for way in ("direct", "pooled"):
            done = subprocess.run([python, __file__, library, way], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            print(done.stdout, end="")
            if done.returncode:
                print(f"not ok - orms.py {library} {way} runs to its end: {done.stderr.strip().splitlines()[-1:]}")
