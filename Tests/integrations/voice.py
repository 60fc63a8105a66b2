"""The pages twilio.md and telnyx.md of docs/integrations, lived through: their edits, in the backends that they are for."""

import shutil

import telnyx
import twilio
from machine import Results
from voice_backend import MODULES, sources


def main(given, gateway):
    results = Results()
    if not shutil.which("node") or not MODULES.is_dir():
        print("skipped - Twilio and Telnyx: no Node.js, or no Express for it: see scripts/node-packages.sh")
        return results
    for name, guide in (("twilio", twilio), ("telnyx", telnyx)):
        for source in sources(results, name):
            guide.live(results, given, gateway, source)
    return results
