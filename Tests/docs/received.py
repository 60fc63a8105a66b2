"""Compares the pushes that a page shows with those that the simulators have received."""

import json
import re
import time

# Members that differ from call to call, and what they look like. Their types must be those of the page.
VARYING = {"timestamp": r"\d{13}", "expiresAt": r"\d{13}", "seq": r"\d+", "expiration": r"\d{10}", "ttl": r"\d+"}


def received_fault(block, log, patience_seconds):
    """Why no push in the simulators' log is the one that a block shows; None: there is one."""
    token, kind = block.received
    shown, deadline = json.loads(block.text), time.monotonic() + patience_seconds
    while True:
        # A line that is still being written counts for the next look.
        lines = log.read_text().split("\n")[:-1] if log.exists() else []
        found = [push["payload"] for push in map(json.loads, lines) if push["token"].startswith(token) and kind_of(push["payload"]) == kind]
        if found:
            return difference(shown, found[-1])
        if time.monotonic() > deadline:
            return f"no push {kind} to {token}… was received"
        time.sleep(0.2)


def kind_of(payload):
    """The type of a push: its own, that of its data, or that in its body."""
    places = (payload, payload.get("data"), as_json(payload.get("body")))
    return next((one["type"] for one in places if isinstance(one, dict) and "type" in one), None)


def as_json(value):
    """What a text says as JSON; the value itself, if it is no JSON of an object."""
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


def difference(shown, received, where="the push"):
    """Where a value differs from what the page shows; None: nowhere."""
    shown, received = as_json(shown), as_json(received)
    if isinstance(shown, dict) and isinstance(received, dict):
        for name in [*shown, *received]:
            if (name in shown) != (name in received):
                return f"{where}: {name} is only {'on the page' if name in shown else 'in what was received'}"
            form = VARYING.get(name)
            same_form = form and isinstance(received[name], type(shown[name])) and all(
                re.fullmatch(form, str(one)) for one in (shown[name], received[name]))
            fault = None if same_form else difference(shown[name], received[name], f"{where}.{name}")
            if fault:
                return fault
        return None
    return None if shown == received else f"{where}: the page shows {shown!r}, received was {received!r}"
