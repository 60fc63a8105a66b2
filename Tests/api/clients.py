#!/usr/bin/env python3
"""Clients that two generators make of openapi.yaml, used against a gateway: scripts/test-api.sh.

  Tests/api/clients.py --api http://HOST:PORT --key KEY --work FOLDER

FOLDER gets the generators and the clients. Every operation is used through the generated types alone, with devices of every provider, and
refusals are read. Ends with "N passed, N failed"; non-zero when any failed.
"""

import argparse
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

sys.dont_write_bytecode = True

ROOT = Path(__file__).resolve().parents[2]
# Of PyPI. openapi-generator-cli has the generator's jar, and needs Java.
PACKAGES = ["openapi-python-client==0.29.1", "openapi-generator-cli==7.26.0", "pydantic==2.14.4", "urllib3==2.8.0",
            "python-dateutil==4.0.0"]
APNS, FCM, EXPO = "c0ffee" + "ab" * 29, "generated_fcm_token_0001:APA91b", "ExponentPushToken[generated0000000000001]"
SUBSCRIPTION = {"endpoint": "https://push.example/send/f1x2", "keys": {
    "p256dh": "BFg8xRzKlKORKWlbdgFaBrrPK3ydWAHo4M0gs0i1oEKgPpWC5cW8OCzVrOQRv-1npXRWk8udnW3oYhIO4475rds", "auth": "5I2Bu2oKdyy9CwL8QVF0NQ"}}
results = []


def check(what, holds, otherwise=""):
    results.append(bool(holds))
    print(f"{'ok' if holds else 'not ok'} - {what}{'' if holds else f': {otherwise}'}", flush=True)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"clients.py: {Path(command[0]).name} failed with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


def prepare(work):
    """The two clients, in folders of `work`; its Python has what they import."""
    python = work / "venv/bin/python"
    stamp = work / "installed"
    if not stamp.exists() or stamp.read_text() != " ".join(PACKAGES):
        run("python3", "-m", "venv", work / "venv")
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
        stamp.write_text(" ".join(PACKAGES))
    programs = work / "venv/bin"
    words = run(programs / "openapi-python-client", "generate", "--path", ROOT / "openapi.yaml", "--output-path", work / "typed",
                "--overwrite")
    # It says which parts of a description it cannot use. That it finds no formatter is no fault.
    faults = [line for line in words.splitlines() if re.search(r"(?i)unable|unsupported|invalid|cannot", line)]
    check("openapi-python-client uses every part of openapi.yaml", not faults, faults)
    run(programs / "openapi-generator-cli", "generate", "-g", "python", "-i", ROOT / "openapi.yaml", "-o", work / "generated")
    return python


def snake(name):
    return re.sub("([A-Z])", r"_\1", name).lower()


class Uses:
    """Calls operations of a client, and knows which were never called."""

    def __init__(self, client):
        self.client, self.left = client, {snake(name) for name in re.findall(r"operationId: (\w+)", (ROOT / "openapi.yaml").read_text())}

    def __call__(self, operation, *arguments, **named):
        self.left.discard(operation.__name__.rpartition(".")[2].removesuffix("_with_http_info"))
        return getattr(operation, "sync_detailed", operation)(*arguments, **named)

    def finish(self):
        check(f"{self.client}: every operation is used", not self.left, self.left)


# Requests of clients that are not ours.
MATRIX = {"notification": {"event_id": "$generated", "room_id": "!r:example.org", "type": "m.room.message", "sender": "@a:example.org",
                           "counts": {"unread": 1}, "devices": [{"app_id": "com.example.app.android", "pushkey": FCM}]}}
GORUSH = {"notifications": [{"tokens": [FCM], "platform": 2, "message": "Hello World Android!"}]}


def typed(api, key):
    """The client of openapi-python-client."""
    from push_gateway_client import AuthenticatedClient, models
    from push_gateway_client.api.calls import (add_recipients, answer_call, decline_call, end_call, enqueue_call, read_call,
                                               report_ringing)
    from push_gateway_client.api.devices import drop_device, register_device
    from push_gateway_client.api.other_servers import notify_matrix, push_gorush

    client, use = AuthenticatedClient(base_url=api, token=key), Uses("typed")
    devices = [models.APNsDevice("typed-ana", models.APNsDeviceProvider.APNS, APNS),
               models.FCMDevice("typed-ana", models.FCMDeviceProvider.FCM, FCM, platform=models.FCMDevicePlatformType1.ANDROID),
               models.ExpoDevice("typed-ana", models.ExpoDeviceProvider.EXPO, EXPO, enabled=True),
               models.WebPushDevice("typed-ana", models.WebPushDeviceProvider.WEBPUSH, models.PushSubscription.from_dict(SUBSCRIPTION))]
    for device in devices:
        answer = use(register_device, client=client, body=device)
        check(f"typed: registers {type(device).__name__}", answer.status_code == 204, answer.content)
    for kind, body in {
        "a missed call": models.EnqueueMissedCall.from_dict(
            {"payload": {"callId": call_id(), "from": "doorman"}, "recipients": ["typed-ana"], "kind": "missed_call"}),
        "a message": models.EnqueueMessage(
            models.MessagePayload("bruno", "chat-1"), ["typed-ana"], models.EnqueueMessageKind.MESSAGE),
    }.items():
        answer = use(enqueue_call, client=client, body=body)
        made = answer.parsed
        check(f"typed: enqueues {kind}", isinstance(made, models.Enqueued) and made.deliveries >= 1, answer.content)
    body = models.EnqueueCall(models.CallPayload(call_id(), "doorman"), ["typed-ana", "nobody"])
    made = use(enqueue_call, client=client, body=body).parsed
    check("typed: enqueues a call, and reads why a recipient was skipped",
          [skipped.reason for skipped in made.skipped_recipients] == ["NoDevice"], made)
    again = use(enqueue_call, client=client, body=body).parsed
    check("typed: reads what became of a call that exists", again.existing.state == "ringing", again)
    joined = use(add_recipients, made.call_id, client=client, body=models.AddRecipientsBody(["typed-ben"])).parsed
    check("typed: lets people join", isinstance(joined, models.Joined), joined)
    ringing = models.ReportRingingBody("typed-ana")
    check("typed: reports that it rings", use(report_ringing, made.call_id, client=client, body=ringing).status_code == 200)
    declined = use(decline_call, made.call_id, client=client, body=models.DeclineCallBody("typed-ana")).parsed
    check("typed: declines", isinstance(declined, models.Change) and declined.changed, declined)
    read = use(read_call, made.call_id, client=client).parsed
    check("typed: reads the call", isinstance(read, models.Call) and "declined" in [one.event for one in read.timeline]
          and [one.reason for one in read.declined_by] == ["declined"], read)
    second = use(enqueue_call, client=client, body=models.EnqueueCall(models.CallPayload(call_id(), "doorman"), ["typed-ana"])).parsed
    answer = use(answer_call, second.call_id, client=client, body=models.AnswerCallBody("typed-ana")).parsed
    check("typed: answers", isinstance(answer, models.Change) and answer.changed, answer)
    check("typed: ends", isinstance(use(end_call, second.call_id, client=client, body=models.EndCallBody()).parsed, models.Change))
    for want, answer in {
        "unknown-call": use(read_call, "no-such-call", client=client),
        "unauthorized": use(read_call, "x", client=AuthenticatedClient(base_url=api, token="pgk_0_none")),
        "unknown-recipient":
            use(report_ringing, made.call_id, client=client, body=models.ReportRingingBody("stranger")),
        "invalid-field": use(register_device, client=client, body=models.FCMDevice(
            "typed-ana", models.FCMDeviceProvider.FCM, "short")),
    }.items():
        check(f"typed: reads the problem {want}",
              isinstance(answer.parsed, models.Problem) and answer.parsed.type_ == f"urn:push-gateway:problem:{want}", answer)
    dropped = use(drop_device, client=client, body=models.DropDeviceBody(models.Provider.FCM, FCM))
    check("typed: drops a device", dropped.status_code == 204, dropped.content)
    notified = use(notify_matrix, client=client, body=models.MatrixRequest.from_dict(MATRIX)).parsed
    check("typed: notifies as a homeserver", isinstance(notified, models.NotifyMatrixResponse200) and notified.rejected == [], notified)
    refused = use(notify_matrix, client=client, body=models.MatrixRequest.from_dict(unknown_app())).parsed
    check("typed: reads a refusal of Matrix", refused.errcode == "M_NOT_FOUND", refused)
    pushed = use(push_gorush, client=client, body=models.GorushRequest.from_dict(GORUSH)).parsed
    check("typed: pushes as a client of gorush", len(pushed.logs) == pushed.counts == 1, pushed)
    later = models.SkippedRecipient.from_dict({"userId": None, "field": "recipients[0]", "reason": "OfALaterRelease", "remedy": ""})
    check("typed: reads a word of a later release", later.reason == "OfALaterRelease", later)
    use.finish()


def generated(api, key):
    """The client of openapi-generator."""
    import openapi_client as made

    use = Uses("generated")
    with made.ApiClient(made.Configuration(host=api, access_token=key)) as client:
        devices, calls, others = made.DevicesApi(client), made.CallsApi(client), made.OtherServersApi(client)
        for word, token in {"APNsDevice": APNS, "FCMDevice": FCM, "ExpoDevice": EXPO,
                            "WebPushDevice": made.PushSubscription.from_dict(SUBSCRIPTION)}.items():
            device = getattr(made, word)(userId="generated-ana", provider=word.removesuffix("Device").lower(), token=token)
            answer = use(devices.register_device_with_http_info, made.Device(device))
            check(f"generated: registers {word}", answer.status_code == 204, answer.raw_data)
        recipients = [made.RecipientsInner("generated-ana"), made.RecipientsInner("nobody")]
        call = use(calls.enqueue_call, made.Enqueue(made.EnqueueCall(
            payload=made.CallPayload.from_dict({"callId": call_id(), "from": "doorman"}), recipients=recipients)))
        check("generated: enqueues a call, and reads why a recipient was skipped",
              call.deliveries >= 1 and [skipped.reason for skipped in call.skipped_recipients] == ["NoDevice"], call)
        missed = use(calls.enqueue_call, made.Enqueue(made.EnqueueMissedCall(
            payload=made.CallPayload.from_dict({"callId": call_id(), "from": "doorman"}), recipients=recipients, kind="missed_call")))
        check("generated: enqueues a missed call", missed.deliveries >= 1, missed)
        joined = use(calls.add_recipients, call.call_id, made.AddRecipientsRequest(recipients=[made.RecipientsInner("generated-ben")]))
        check("generated: lets people join", joined.skipped == 1, joined)
        ringing = use(calls.report_ringing, call.call_id, made.ReportRingingRequest.from_dict({"userId": "generated-ana"}))
        check("generated: reports that it rings", ringing.changed, ringing)
        declined = use(calls.decline_call, call.call_id, made.DeclineCallRequest.from_dict({"userId": "generated-ana"}))
        check("generated: declines", declined.changed, declined)
        read = use(calls.read_call, call.call_id)
        check("generated: reads the call", read.call_id == call.call_id and "declined" in [one.event for one in read.timeline], read)
        second = use(calls.enqueue_call, made.Enqueue(made.EnqueueCall(
            payload=made.CallPayload.from_dict({"callId": call_id(), "from": "doorman"}), recipients=recipients)))
        answer = use(calls.answer_call, second.call_id, made.AnswerCallRequest.from_dict({"userId": "generated-ana"}))
        check("generated: answers", answer.changed, answer)
        ended = use(calls.end_call, second.call_id, made.EndCallRequest())
        check("generated: ends", not ended.changed, ended)
        try:
            problem = use(calls.read_call, "no-such-call")
        except made.ApiException as refused:
            problem = refused.data
        check("generated: reads a problem", problem.type == "urn:push-gateway:problem:unknown-call", problem)
        dropped = use(devices.drop_device_with_http_info, made.DropDeviceRequest.from_dict({"provider": "fcm", "token": FCM}))
        check("generated: drops a device", dropped.status_code == 204, dropped.raw_data)
        notified = use(others.notify_matrix, made.MatrixRequest.from_dict(MATRIX))
        check("generated: notifies as a homeserver", notified.rejected == [], notified)
        pushed = use(others.push_gorush, made.GorushRequest.from_dict(GORUSH))
        check("generated: pushes as a client of gorush", len(pushed.logs) == pushed.counts == 1, pushed)
        later = made.SkippedRecipient.from_dict({"userId": None, "field": "recipients[0]", "reason": "OfALaterRelease", "remedy": ""})
        check("generated: reads a word of a later release", later.reason == "OfALaterRelease", later)
    use.finish()


def unknown_app():
    device = {**MATRIX["notification"]["devices"][0], "app_id": "com.example.unknown"}
    return {"notification": {**MATRIX["notification"], "devices": [device]}}


def call_id():
    return str(uuid.uuid4())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--api", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--with-clients", action="store_true", help="the clients are there, and this is their Python")
    options = parser.parse_args()
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if not options.with_clients:
        python = prepare(work)
        status = subprocess.run([python, __file__, *sys.argv[1:], "--with-clients"],
                                env={**os.environ, "NO_PROXY": "*", "PYTHONPATH": f"{work}/typed:{work}/generated"}).returncode
        results.append(status == 0)
    else:
        typed(options.api, options.key)
        generated(options.api, options.key)
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed")
    raise SystemExit(1 if failed or not results else 0)


if __name__ == "__main__":
    main()
