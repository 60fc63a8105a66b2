"""Shared by the backend tests: checks, which print one line each as in Tests/sql, and connections.

As a program it prints a connection string: harness.py direct|pooled LOGIN [DATABASE].
"""

import os
import sys
from contextlib import contextmanager
from time import monotonic, sleep

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

OWNER = os.environ["OWNER_URL"]
# Clients of a pool in transaction mode must not prepare statements: the next one meets another server session.
PREPARE = {"direct": 5, "pooled": None}
WAYS = tuple(PREPARE)
# Longer than any check takes: an event that has not happened by then never will.
PATIENCE = 300


def conninfo(way, login, database=None):
    """The address for LOGIN, direct or through the pool. Its password is valid for both."""
    settings = conninfo_to_dict(OWNER)
    settings.update(user=os.environ["LOGIN_PREFIX"] + login, password=os.environ["LOGIN_PASSWORD"])
    if way == "pooled":
        settings.update(host="127.0.0.1", port=os.environ["POOL_PORT"], sslmode="disable")
    if database:
        settings["dbname"] = database
    return make_conninfo(**settings)


def connect(way="direct", login="enqueuer", autocommit=False):
    return psycopg.connect(conninfo(way, login), autocommit=autocommit, prepare_threshold=PREPARE[way])


_owner = psycopg.connect(OWNER, autocommit=True)


def owner(statement, *parameters):
    """Runs a statement as the owner: its single value, or None."""
    row = _owner.execute(statement, parameters or None).fetchone()
    return row and row[0]


def until(happened):
    """Waits until this is true, and returns it; false: it is not, after PATIENCE."""
    end = monotonic() + PATIENCE
    while not (is_so := happened()) and monotonic() < end:
        sleep(0.005)
    return is_so


def is_blocked(pid):
    """Whether a session waits for a lock that another one holds. pid: of its server process."""
    return owner("select cardinality(pg_blocking_pids(%s)) > 0", pid)


def waits(pid):
    """Waits until a session waits for another one."""
    return until(lambda: is_blocked(pid))


def owed(call_id):
    """The committed deliveries of a call that are still to be sent."""
    return owner(
        "select string_agg(user_id || ':' || kind || ':' || state, ' ' order by n) from push.deliveries where call_id = %s",
        call_id,
    )


def follow():
    """Does what follows from what was committed, as gateways do a moment later."""
    owner("select test.follow()")


def later():
    """Does what was put off, too: a call was locked, or a claim was not committed yet."""
    owner("update push.follow_ups set due_at = now() where why <> 'unheard' returning 1")
    follow()


def check(name, got, want):
    if got == want:
        print(f"ok - {name}")
    else:
        print(f"not ok - {name}: got [{got}], want [{want}]".replace("\n", " "))


@contextmanager
def refused(name, sqlstate, message=""):
    """The body must fail with this code and with a message that begins with this text."""
    try:
        yield
    except psycopg.Error as error:
        said = error.diag.message_primary or ""
        check(name, (error.sqlstate, said if not said.startswith(message) else message), (sqlstate, message))
    else:
        check(name, "accepted", sqlstate)


if __name__ == "__main__":
    print(conninfo(*sys.argv[1:]))
