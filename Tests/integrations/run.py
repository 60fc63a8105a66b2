#!/usr/bin/env python3
"""The guides of docs/integrations, lived through: each page's own code and configuration, with what it is a guide for.

  PUSH_GATEWAY=.build/debug/push-gateway PUSH_GATEWAY_TEST_DATABASE_URL=postgres://… Tests/integrations/run.py [NAME …]

Makes scratch databases beside the given one, starts simulated providers, gateways and the systems themselves on free
ports of the loopback, and stops and drops all of it. Ends with "N passed, N failed"; non-zero when any failed.
"""

import os
import sys
from pathlib import Path

sys.dont_write_bytecode = True

import clients  # noqa: E402
import enclosure  # noqa: E402
import express  # noqa: E402
import java  # noqa: E402
import lifecycle  # noqa: E402
import prosody  # noqa: E402
import voice  # noqa: E402
import web  # noqa: E402
import xmpp_push  # noqa: E402
from machine import ROOT, Failure  # noqa: E402

GUIDES = {"prosody": prosody, "express": express, "enclosure": enclosure, "java": java, "voice": voice, "lifecycle": lifecycle,
          "web": web, "clients": clients, "xmpp": xmpp_push}


def main():
    given = os.environ.get("PUSH_GATEWAY_TEST_DATABASE_URL")
    gateway = Path(os.environ.get("PUSH_GATEWAY", ROOT / ".build/debug/push-gateway"))
    if not given:
        sys.exit("run.py: PUSH_GATEWAY_TEST_DATABASE_URL is missing: see scripts/postgres.sh")
    if not os.access(gateway, os.X_OK):
        sys.exit(f"run.py: there is no program {gateway}: build it, or name it in PUSH_GATEWAY")
    passed = failed = 0
    for name in sys.argv[1:] or GUIDES:
        try:
            results = GUIDES[name].main(given, gateway)
            passed, failed = passed + results.passed, failed + results.failed
        except Exception as trouble:  # whatever it is, the other guides are run
            print(f"not ok - {name}: {'' if isinstance(trouble, Failure) else type(trouble).__name__ + ': '}{trouble}")
            failed += 1
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
