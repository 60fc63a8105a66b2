#!/usr/bin/env python3
"""Clients that two generators make of openapi.yaml, used against a gateway: scripts/test-api.sh.

  Tests/api/clients.py --api http://HOST:PORT --key KEY --work FOLDER

FOLDER gets the generators and the clients. Devices of every provider are registered, and calls are enqueued, read, answered and declined
through the generated types alone. Ends with "N passed, N failed"; non-zero when any failed.
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


def reasons():
    """What the SQL function says of itself, and what the description says: a generated client refuses any other word."""
    sql = (ROOT / "migrations/functions/stories.sql").read_text()
    said = re.search(r"comment on function push\.skipped_recipients\b.*? is\s+(.*?);", sql, re.S)[1]
    description = re.search(r"\n    SkippedRecipient:.*?reason:\s+enum:\s+\[(.*?)\]", (ROOT / "openapi.yaml").read_text(), re.S)[1]
    listed = {word.strip() for word in description.split(",")}
    words = {word for word in re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", said)}
    check("every reason for which a recipient is skipped is in openapi.yaml", words == listed, words ^ listed)


def typed(api, key):
    """The client of openapi-python-client."""
    from push_gateway_client import AuthenticatedClient, models
    from push_gateway_client.api.calls import answer_call, decline_call, end_call, enqueue_call, read_call, report_ringing
    from push_gateway_client.api.devices import drop_device, register_device

    client = AuthenticatedClient(base_url=api, token=key)
    devices = [models.APNsDevice("typed-ana", models.APNsDeviceProvider.APNS, APNS),
               models.FCMDevice("typed-ana", models.FCMDeviceProvider.FCM, FCM, platform=models.FCMDevicePlatformType1.ANDROID),
               models.ExpoDevice("typed-ana", models.ExpoDeviceProvider.EXPO, EXPO, enabled=True),
               models.WebPushDevice("typed-ana", models.WebPushDeviceProvider.WEBPUSH, models.PushSubscription.from_dict(SUBSCRIPTION))]
    for device in devices:
        answer = register_device.sync_detailed(client=client, body=device)
        check(f"typed: registers {type(device).__name__}", answer.status_code == 204, answer.content)
    for kind, body in {
        "a call": models.EnqueueCall(models.CallPayload(call_id(), "doorman"), ["typed-ana", "nobody"]),
        "a missed call": models.EnqueueMissedCall.from_dict(
            {"payload": {"callId": call_id(), "from": "doorman"}, "recipients": ["typed-ana"], "kind": "missed_call"}),
        "a message": models.EnqueueMessage(
            models.MessagePayload("bruno", "chat-1"), ["typed-ana"], models.EnqueueMessageKind.MESSAGE),
    }.items():
        answer = enqueue_call.sync_detailed(client=client, body=body)
        made = answer.parsed
        check(f"typed: enqueues {kind}", isinstance(made, models.Enqueued) and made.deliveries >= 1, answer.content)
    body = models.EnqueueCall(models.CallPayload(call_id(), "doorman"), ["typed-ana", "nobody"])
    made = enqueue_call.sync(client=client, body=body)
    check("typed: reads why a recipient was skipped",
          [skipped.reason for skipped in made.skipped_recipients] == [models.SkippedRecipientReason.NODEVICE], made)
    ringing = models.ReportRingingBody.from_dict({"userId": "typed-ana"})
    check("typed: reports that it rings", report_ringing.sync_detailed(made.call_id, client=client, body=ringing).status_code < 300)
    declined = decline_call.sync(made.call_id, client=client, body=models.DeclineCallBody.from_dict({"userId": "typed-ana"}))
    check("typed: declines", isinstance(declined, models.Change), declined)
    read = read_call.sync(made.call_id, client=client)
    check("typed: reads the call", isinstance(read, models.Call) and read.call_id == made.call_id, read)
    answered = enqueue_call.sync(client=client, body=models.EnqueueCall(models.CallPayload(call_id(), "doorman"), ["typed-ana"]))
    answer = answer_call.sync(answered.call_id, client=client, body=models.AnswerCallBody.from_dict({"userId": "typed-ana"}))
    check("typed: answers", isinstance(answer, models.Change) and answer.changed, answer)
    check("typed: ends", isinstance(end_call.sync(answered.call_id, client=client, body=models.EndCallBody()), models.Change))
    check("typed: a refusal is a problem", isinstance(read_call.sync("no-such-call", client=client), models.Problem))
    dropped = drop_device.sync_detailed(client=client, body=models.DropDeviceBody(models.Provider.FCM, FCM))
    check("typed: drops a device", dropped.status_code == 204, dropped.content)


def generated(api, key):
    """The client of openapi-generator."""
    import openapi_client as made

    with made.ApiClient(made.Configuration(host=api, access_token=key)) as client:
        devices, calls = made.DevicesApi(client), made.CallsApi(client)
        for word, token in {"APNsDevice": APNS, "FCMDevice": FCM, "ExpoDevice": EXPO,
                            "WebPushDevice": made.PushSubscription.from_dict(SUBSCRIPTION)}.items():
            device = getattr(made, word)(userId="generated-ana", provider=word.removesuffix("Device").lower(), token=token)
            answer = devices.register_device_with_http_info(made.Device(device))
            check(f"generated: registers {word}", answer.status_code == 204, answer.raw_data)
        recipients = [made.RecipientsInner("generated-ana"), made.RecipientsInner("nobody")]
        call = calls.enqueue_call(made.Enqueue(made.EnqueueCall(
            payload=made.CallPayload.from_dict({"callId": call_id(), "from": "doorman"}), recipients=recipients)))
        check("generated: enqueues a call, and reads why a recipient was skipped",
              call.deliveries >= 1 and [skipped.reason for skipped in call.skipped_recipients] == ["NoDevice"], call)
        missed = calls.enqueue_call(made.Enqueue(made.EnqueueMissedCall(
            payload=made.CallPayload.from_dict({"callId": call_id(), "from": "doorman"}), recipients=recipients, kind="missed_call")))
        check("generated: enqueues a missed call", missed.deliveries >= 1, missed)
        read = calls.read_call(call.call_id)
        check("generated: reads the call", read.call_id == call.call_id, read)
        answer = calls.answer_call(call.call_id, made.AnswerCallRequest.from_dict({"userId": "generated-ana"}))
        check("generated: answers", answer.changed, answer)


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
        reasons()
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
