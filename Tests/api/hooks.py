"""What schemathesis cannot know of the API from its description."""

import json
import uuid

import schemathesis

# A push holds a payload up to twice, some of it escaped, and may have 3,993 bytes.
PAYLOAD_BYTES_MAX = 1200
# A subscription may have this many bytes, which JSON Schema cannot say.
SUBSCRIPTION_BYTES_MAX = 4096


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """A later release may say other words. This one says those that are listed."""
    for schema in raw_schema["components"]["schemas"].values():
        if "x-extensible-enum" in schema:
            schema["enum"] = schema["x-extensible-enum"]


@schemathesis.hook
def before_call(context, case, kwargs):
    """Gives each call an id of its own, and a payload that fits into a push.

    An id that was used before is a call that exists: nothing but the id would be looked at. And a number stands for a phone only if
    push.devices has it, which no description says.
    """
    if case.operation.path.endswith(("/answer", "/decline")) and isinstance(case.body, dict):
        if str(case.body.get("device")).isdecimal():
            del case.body["device"]
        return
    if case.operation.path == "/v1/devices" and isinstance(case.body, dict) and isinstance(case.body.get("token"), dict):
        token = case.body["token"]
        for member in sorted(set(token) - {"endpoint", "keys"}, key=lambda member: -size(token[member]) - size(member)):
            if size(token) > SUBSCRIPTION_BYTES_MAX:
                del token[member]
        if size(token) > SUBSCRIPTION_BYTES_MAX and case.method == "DELETE":
            token.clear()
        return
    if case.operation.label != "POST /v1/calls" or not isinstance(case.body, dict):
        return
    payload = case.body.get("payload")
    if not isinstance(payload, dict):
        return
    for member in ("callId", "messageId"):
        given = payload.get(member)
        if isinstance(given, str) and 1 <= len(given) <= 128:
            payload[member] = str(uuid.uuid4())
    optional = [member for member in payload if member not in ("callId", "from", "chatId")]
    for member in sorted(optional, key=lambda member: -size(payload[member]) - size(member)):
        if size(payload) > PAYLOAD_BYTES_MAX:
            del payload[member]


def size(value):
    """Bytes with every escape counted."""
    return len(json.dumps(json.dumps(value, ensure_ascii=False), ensure_ascii=False).encode("utf-8", "replace"))
