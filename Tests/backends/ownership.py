"""A schema whose owner is no superuser, as on managed servers: it can be applied, and functions that need rights work. Its database is
Turkish if the server has ICU: lower('I') is not i there."""

import os
import subprocess

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Jsonb

from harness import OWNER, check, refused

SETTINGS = conninfo_to_dict(OWNER)
NAME = SETTINGS["dbname"] + "_owned"
LOGIN = NAME + "_owner"
PASSWORD = os.environ["LOGIN_PASSWORD"]
RECIPIENTS = [{"userId": "victim", "fcmToken": "victim-token-0123456789"}, {"userId": "other", "fcmToken": "other-token-0123456789"}]
FIRST = f'drop database if exists "{NAME}" with (force)', f'drop role if exists "{LOGIN}"'


def main(server):
    server.execute(f"create role \"{LOGIN}\" login createrole password '{PASSWORD}'")
    has_icu = server.execute("select from pg_collation where collname = 'tr-x-icu'").fetchone() is not None
    turkish = "template template0 locale_provider icu icu_locale 'tr-TR'" if has_icu else ""
    server.execute(f'create database "{NAME}" owner "{LOGIN}" {turkish}')
    url = make_conninfo(**{**SETTINGS, "dbname": NAME, "user": LOGIN, "password": PASSWORD})
    done = subprocess.run([os.environ["ROOT"] + "/scripts/apply-schema.sh", url], capture_output=True, text=True)
    check("the schema applies as an owner who is no superuser", (done.returncode, done.stderr), (0, ""))
    if done.returncode != 0:
        return
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("select push.register_app('default', 60), push.register_lane('default', 'fcm')")
        check("the database is Turkish", db.execute("select lower('I') = 'i'").fetchone()[0], not has_icu)
        for word in ("PREVIEW", "SNIPPET"):
            message = Jsonb({"chatId": "c", "from": "x", word: "t"})
            with refused(f"the text of a message is refused there as well: {word}", "22023",
                         f"payload.{word}: a message's text does not travel"):
                db.execute("select push.enqueue_call(%s, '[]', 'default', kind => 'message')", (message,))
        for call in ("rings", "ended"):
            db.execute("select push.enqueue_call(%s, %s, 'default')", (Jsonb({"callId": call, "from": "x"}), Jsonb(RECIPIENTS)))
        db.execute("select push.end_call('ended', 'busy')")
        db.execute("select push.follow_up(p_within => '1 day')")
        db.execute("select push.erase_user('victim', 'default')")
        state = "select declined ? 'victim', recipients::text ~ 'victim' from push.outbox where call_id = %s"
        check("erasing a user declines the call that rings", db.execute(state, ("rings",)).fetchone()[0], True)
        check("and is masked in the one that has ended", db.execute(state, ("ended",)).fetchone()[1], False)


with psycopg.connect(OWNER, autocommit=True) as server:
    for statement in FIRST:
        server.execute(statement)
    try:
        main(server)
    finally:
        for statement in FIRST:
            server.execute(statement)
