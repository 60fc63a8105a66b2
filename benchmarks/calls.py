"""Calls to enqueue: lines for COPY, each with its own call, users and tokens."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence

CALL_KINDS = ("incoming_call", "video_call")


def write_calls(
    path: pathlib.Path, calls: int, devices: int = 3, apps: Sequence[str] = ("porteiro",), ring_seconds: int = 600,
    kind: str = "incoming_call", prefix: str = "bench", first: int = 0,
    providers: Sequence[str] = ("apns", "fcm", "expo"), token_prefix: str = "",
) -> int:
    """Writes a line for each call, with columns as `Database.copy_calls` names them; returns the number of deliveries.

    The devices of a call take turns over `providers`, the calls over `apps`. `prefix` and `first` tell the ids of one
    file from another's, `token_prefix` begins every FCM and Expo token: for the rules of a fault plan.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rings = kind in CALL_KINDS
    with path.open("w") as file:
        for call in range(first, first + calls):
            payload = {
                "callId": f"{prefix}-{call}", "from": "5f0c9f6e-7a33-4f0e-9a4c-2a1f1a2b3c4d", "fromName": "Portaria",
                "apartmentNumber": str(call % 500), "buildingName": "Torre Norte", "channelName": f"call-{call}",
                "metadata": {"schemaVersion": 1, "clientVersion": "1.4.2"},
            }
            if kind in ("message", "group_message", "group_invite"):
                payload["chatId"] = f"room-{call % 500}"
            recipients = [
                recipient(providers[device % len(providers)], call * devices + device, rings, token_prefix)
                for device in range(devices)]
            app = apps[call % len(apps)]
            file.write(f"{app}\t{kind}\t{json.dumps(payload)}\t{json.dumps(recipients)}\t{ring_seconds}\n")
    return calls * devices


def recipient(provider: str, number: int, rings: bool, token_prefix: str = "") -> dict[str, str]:
    """The entry of one device, with a token that its provider's simulator accepts."""
    if provider == "apns":
        key = "voipPushToken" if rings else "apnsToken"
        # Not 0: the simulator of APNs refuses a token of zeros, with which credentials are tried.
        return {"userId": f"ios-{number}", key: f"{number + 1:064x}", "platform": "ios"}
    if provider == "fcm":
        token = f"{token_prefix}bench{number:032d}:APA91bBench"
        return {"userId": f"android-{number}", "fcmToken": token, "platform": "android"}
    if provider == "expo":
        token = f"ExponentPushToken[{token_prefix}{number:022d}]"
        return {"userId": f"expo-{number}", "pushToken": token, "platform": "android"}
    raise ValueError(f"no such provider: {provider}")
