"""What the backend enqueues: calls with their devices, drawn from a seeded generator, and what it knows of each."""

from __future__ import annotations

import dataclasses
import json
import random

APP = "porteiro"
ANSWER_SECONDS = 0.03
"""How long the simulators hold back an ordinary answer."""
SLOW_SECONDS = 1.0
RULES: list[dict[str, object]] = []
"""The simulators' fault plan: first those of the tokens that ask for a fault, then the ordinary delay."""

PROVIDERS = ("apns", "fcm", "expo")
# What a token begins with, by provider and behaviour. "lossy": half of what was accepted is never answered; an Expo request
# carries a batch whose other tokens would lose their answers as well, so there is none. "flaky": a third is refused with a
# 5xx. "slow": answered after a second. "dead": the provider calls the token dead.
PREFIXES: dict[str, dict[str, str]] = {
    "apns": {"plain": "a0", "lossy": "a1", "flaky": "a2", "slow": "a3", "dead": "dead4100"},
    "fcm": {"plain": "plain-", "lossy": "lossy-", "flaky": "flaky-", "slow": "slow-", "dead": "fault-UNREGISTERED-"},
    "expo": {"plain": "plain-", "flaky": "flaky-", "slow": "slow-", "dead": "fault-DeviceNotRegistered-"},
}
BEHAVIOURS = {"plain": 80, "lossy": 4, "flaky": 6, "slow": 7, "dead": 3}

for _provider in PROVIDERS:
    _head = "ExponentPushToken[" if _provider == "expo" else ""
    _error = {"apns": {"reason": "ServiceUnavailable"}, "fcm": {"reason": "UNAVAILABLE"}, "expo": {"status": 503}}[_provider]
    _prefixes = PREFIXES[_provider]
    if "lossy" in _prefixes:
        RULES.append({"provider": _provider, "token_prefix": _prefixes["lossy"], "action": "lose", "share": 0.5})
    RULES.append({"provider": _provider, "token_prefix": _head + _prefixes["flaky"], "share": 0.34, **_error})
    RULES.append({"provider": _provider, "token_prefix": _head + _prefixes["slow"], "delay_ms": int(SLOW_SECONDS * 1000)})
    for _behaviour in ("plain", "lossy", "flaky"):
        if _behaviour in _prefixes:
            RULES.append({"provider": _provider, "token_prefix": _head + _prefixes[_behaviour],
                          "delay_ms": int(ANSWER_SECONDS * 1000)})


@dataclasses.dataclass(eq=False)
class Device:
    """One phone: a user of its own."""

    user_id: str
    provider: str
    behaviour: str
    entry: dict[str, str]
    """Its entry among the call's recipients."""
    tokens: dict[str, str]
    """Every token of the entry, and its provider."""
    shown_over: str
    """The provider over which this user hears of a missed call."""
    is_reachable: bool
    """The token of `shown_over` is no dead one."""


@dataclasses.dataclass(eq=False)
class Call:
    """One row of push.outbox as the backend means it, and what became of its commits. Times are seconds since 1970."""

    number: int
    call_id: str
    kind: str
    ring_seconds: int
    devices: list[Device]
    end: str | None = None
    """How it ends before its ring window does: answered, ended, declined; None: it does not."""
    end_after: float = 0
    """Seconds from its commit."""
    asked_at: float = 0
    """When it was first tried to enqueue it."""
    committed_at: float = 0
    """When the server's answer to the commit was read; 0: never."""
    deliveries: int = 0
    """As push.enqueue_call said."""
    end_asked_at: float = 0
    ended_at: float = 0
    """When the server's answer to the end's commit was read; 0: never, or it had ended before."""

    @property
    def rings(self) -> bool:
        return self.kind == "incoming_call"

    def payload(self) -> str:
        payload = {"callId": self.call_id, "from": "doorman", "fromName": "Portaria", "apartmentNumber": str(self.number % 500)}
        if self.kind == "message":
            payload["chatId"] = f"room-{self.number % 100}"
        return json.dumps(payload)

    def recipients(self) -> str:
        return json.dumps([device.entry for device in self.devices])


class CallGenerator:
    """The same seed makes the same calls."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"calls {seed}")
        self.calls: list[Call] = []
        self.by_token: dict[str, tuple[Call, Device]] = {}

    def next(self) -> Call:
        draw = self._random
        number = len(self.calls)
        kind = draw.choices(("incoming_call", "message", "missed_call"), (60, 28, 12))[0]
        call = Call(number, f"soak-{number:06d}", kind, draw.randint(10, 30) if kind == "incoming_call" else 60, [])
        for index in range(draw.choices((1, 2, 3), (40, 35, 25))[0]):
            call.devices.append(self._device(call, index))
        if call.rings:
            call.end = draw.choices((None, "answered", "ended", "declined"), (40, 30, 20, 10))[0]
            call.end_after = draw.uniform(0.05, 8)
        self.calls.append(call)
        for device in call.devices:
            for token in device.tokens:
                self.by_token[token] = (call, device)
        return call

    def _device(self, call: Call, index: int) -> Device:
        draw = self._random
        provider = draw.choice(PROVIDERS)
        behaviours = PREFIXES[provider]
        behaviour = draw.choices(list(behaviours), [BEHAVIOURS[name] for name in behaviours])[0]
        name = f"{call.number:06d}-{index}"
        user_id = f"user-{name}"
        match provider:
            case "apns":
                voip, alert = (f"{behaviours[behaviour]}{role}{call.number:010x}{index:x}".ljust(64, "0") for role in "bc")
                entry = {"userId": user_id, "platform": "ios"}
                if call.rings:
                    # The alert token of a phone whose VoIP token is dead is good.
                    alert = f"{behaviours['plain']}c{call.number:010x}{index:x}".ljust(64, "0")
                    entry |= {"voipPushToken": voip, "apnsToken": alert}
                    tokens = {voip: "apns", alert: "apns"}
                    if behaviour == "dead":  # such a call falls back to the user's next channel
                        entry["fcmToken"] = f"{PREFIXES['fcm']['plain']}{name}:APA91bSoak"
                        tokens[entry["fcmToken"]] = "fcm"
                    return Device(user_id, provider, behaviour, entry, tokens, "apns", True)
                entry["apnsToken"] = alert
                tokens = {alert: "apns"}
            case "fcm":
                token = f"{behaviours[behaviour]}{name}:APA91bSoak"
                entry = {"userId": user_id, "fcmToken": token, "platform": "android"}
                tokens = {token: "fcm"}
            case _:
                token = f"ExponentPushToken[{behaviours[behaviour]}{name}]"
                entry = {"userId": user_id, "pushToken": token, "platform": "android"}
                tokens = {token: "expo"}
        return Device(user_id, provider, behaviour, entry, tokens, provider, behaviour != "dead")
