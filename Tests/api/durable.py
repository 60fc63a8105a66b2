#!/usr/bin/env python3
"""What the API has answered with 202 is there after a crash of Postgres, whichever calls shared a commit.

32 connections post calls; the server is killed amid them, and started again. Exits with 1 if a call is lost.
"""

import argparse
import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

CRASHES, CALLS_BETWEEN, CONNECTIONS = 3, 1_500, 32


class Posters:
    def __init__(self, api, key):
        self.api, self.key = api, key
        self.taken = []
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=self.post, args=(number,), daemon=True) for number in range(CONNECTIONS)]
        for thread in self.threads:
            thread.start()

    def post(self, number):
        connection, count = None, 0
        while not self.stopped.is_set():
            count += 1
            call_id = f"durable-{number}-{count}"
            body = json.dumps({"payload": {"callId": call_id, "from": "doorman"}, "recipients": ["nobody"]})
            try:
                connection = connection or http.client.HTTPConnection(self.api, timeout=60)
                connection.request("POST", "/v1/calls", body, {
                    "Authorization": f"Bearer {self.key}", "Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                if answer.status == 202:
                    self.taken.append(call_id)
                else:
                    time.sleep(0.05)
            except (OSError, http.client.HTTPException):
                connection = None

    def wait_for(self, count, gateway):
        """Until so many more calls were taken."""
        enough = len(self.taken) + count
        limit = time.monotonic() + 120
        while len(self.taken) < enough:
            os.kill(gateway, 0)
            if time.monotonic() > limit:
                sys.exit(f"durable.py: only {len(self.taken)} calls were taken within two minutes")
            time.sleep(0.01)

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def is_running(pid):
    """A zombie does not run: where process 1 does not wait for its children, it stays one."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--api", required=True, metavar="HOST:PORT")
    parser.add_argument("--key", required=True)
    parser.add_argument("--gateway", required=True, type=int, metavar="PID")
    parser.add_argument("--cluster", required=True, metavar="DIRECTORY", help="as scripts/postgres.sh takes it")
    options = parser.parse_args()
    root = pathlib.Path(__file__).resolve().parents[2]

    def postgres(*arguments):
        return subprocess.run(
            [root / "scripts/postgres.sh", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()

    url = postgres("url", options.cluster)
    port = url.rpartition(":")[2].partition("/")[0]
    posters = Posters(options.api, options.key)
    for _ in range(CRASHES):
        posters.wait_for(CALLS_BETWEEN, options.gateway)
        pid = int((root / options.cluster / "data/postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGQUIT)  # no checkpoint, no flush: every process ends at once
        limit = time.monotonic() + 60
        while is_running(pid):
            if time.monotonic() > limit:
                sys.exit(f"durable.py: Postgres, process {pid}, has not ended within a minute of SIGQUIT")
            time.sleep(0.02)
        postgres("start", options.cluster, port)
    posters.wait_for(CALLS_BETWEEN, options.gateway)
    posters.stop()
    there = subprocess.run(
        ["psql", "-XAtq", url, "-c", "select call_id from push.outbox where call_id like 'durable-%'"], check=True,
        capture_output=True, text=True).stdout.split()
    lost = set(posters.taken) - set(there)
    commits = subprocess.run(
        ["psql", "-XAtq", url, "-c", "select count(distinct xmin::text) from push.outbox where call_id like 'durable-%'"],
        check=True, capture_output=True, text=True).stdout.strip()
    print(f"   {len(posters.taken)} calls taken in {commits} commits, {CRASHES} crashes, {len(lost)} lost")
    if lost or int(commits) >= len(there):
        sys.exit("durable.py: calls that were answered with 202 are lost" if lost else "durable.py: no two calls shared a commit")


if __name__ == "__main__":
    main()
