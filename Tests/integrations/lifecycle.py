"""The page lifecycle.md of docs/integrations, lived through: what a backend reports in SQL, and what the phones then do."""

from machine import Machine, Results, await_, fcm, hexadecimal, stop

PAGE = "docs/integrations/lifecycle.md"
CONFIGURATION = """
apps:
  porteiro:
    dialect: intercom
    ring_seconds: 60
    apns: { team_id: TEAM123456, key_id: KEY7654321, key_file: AuthKey_KEY7654321.p8, topic: com.example.porteiro }
    fcm: { service_account_file: service-account.json }
"""
# Ana has an iPhone and an iPad, Bruno an Android phone.
IPHONE, IPAD, ALERTS, BRUNO = hexadecimal("iphone"), hexadecimal("ipad"), hexadecimal("alerts"), fcm("bruno")


def call_id(number):
    return f"7d4e3a52-53cb-4a4e-9f0c-{number:012d}"


class Backend(Machine):
    def __init__(self, given, gateway):
        super().__init__(given, gateway, PAGE, "porteiro", "porteiro")
        self.page.files["gateway.yaml"] = CONFIGURATION

    def call(self, function, *values):
        """A function of the page's tables, by the role that backends have."""
        words = ", ".join("null" if value is None else f"'{value}'" for value in values)
        return self.sql(f"set role push_enqueuer; select push.{function}({words})") == "t"

    def enqueue(self, call_id, recipients='["ana", "bruno"]'):
        """deliveries|duplicate"""
        return self.sql(f"""set role push_enqueuer; select deliveries, duplicate from push.enqueue_call(
            '{{"callId": "{call_id}", "from": "doorman-7", "fromName": "Portaria"}}', '{recipients}', 'porteiro')""")

    def ring(self, call_id):
        """A call that rings everybody."""
        self.enqueue(call_id)
        for token in (IPHONE, BRUNO):
            await_(f"{call_id} to {token[:12]}…", lambda token=token: self.kinds(call_id, token))
        self.settled()

    def kinds(self, call_id, token):
        """What a token got of a call, in order."""
        names = {"intercom_call": "invite", "intercom_call_end": "cancel"}
        found = [push["payload"] for push in self.pushes(token) if push["payload"].get("callId") == call_id
                 or f'"{call_id}"' in push["payload"].get("body", "")]
        kinds = [payload.get("type") or next(kind for kind in ("intercom_call_end", "intercom_call", "missed_call")
                                             if f'"{kind}"' in payload["body"]) for payload in found]
        return [names.get(kind, kind) for kind in kinds]

    def printed(self, block, dealt=lambda text: True):
        """What psql prints of a block of the page, once it is so."""
        return await_("psql", lambda: next(filter(dealt, ["\n".join(line.rstrip() for line in self.run(
            ["psql", "-X", "-q", "-P", "footer=off", self.url, "-c", "set role push_enqueuer", "-c", block.text]).splitlines())]), None))


def as_the_page_says(results, machine):
    """The page's own SQL, against a gateway that sends."""
    machine.sql("; ".join(f"select push.register_device('{user}', 'porteiro', '{provider}', '{token}', platform => '{platform}', "
                          f"voip => {voip})" for user, provider, token, platform, voip in (
                              ("ana", "apns", IPHONE, "ios", "true"), ("ana", "apns", ALERTS, "ios", "false"),
                              ("bruno", "fcm", BRUNO, "android", "null"))))
    for call_id in ("answered", "declined", "hung-up"):
        machine.ring(call_id)
    ends, pushes = machine.page.situations[0].blocks
    results.equal("the calls end as the page says", machine.printed(ends), ends.expected.strip())
    machine.settled()
    wanted = pushes.expected.strip()
    results.equal("with the page's pushes", machine.printed(pushes, lambda text: len(text) >= len(wanted)), wanted)
    machine.settled()
    results.equal("which have arrived", [machine.kinds("hung-up", token) for token in (IPHONE, ALERTS, BRUNO)],
                  [["invite"], ["missed_call"], ["invite", "cancel", "missed_call"]])


def row_by_row(results, machine):
    """The rows of the page's first table, and what it says of ids."""
    first, answered, declined, missed, late, unreached = map(call_id, (1, 2, 3, 4, 5, 7))
    results.equal("a call rings", (machine.enqueue(first), {
        does for phone, does in machine.does(machine.find(IPHONE, callId=first)).items()}), ("2|f", {"rings: “doorman-7”"}))
    results.equal("the same id again is the same call", machine.enqueue(first).split("|")[1], "t")
    results.equal("a user without a phone is called", machine.enqueue(call_id(6), '["nobody"]'), "0|f")
    results.equal("a phone rings", machine.call("report_ringing", first, "bruno", "porteiro"), True)
    machine.settled()
    results.equal("and nothing changes", (machine.kinds(first, IPHONE), machine.kinds(first, BRUNO)), (["invite"], ["invite"]))

    machine.sql(f"select push.register_device('carla', 'porteiro', 'fcm', '{fcm('carla')}', platform => 'android')")
    joins = f"set role push_enqueuer; select deliveries from push.add_recipients('{first}', '[\"carla\", \"bruno\"]', 'porteiro')"
    results.equal("somebody joins", (machine.sql(joins), machine.sql(joins)), ("1", "0"))
    machine.settled()
    results.equal("and that phone rings", (machine.kinds(first, fcm("carla")), machine.kinds(first, BRUNO)), (["invite"], ["invite"]))

    machine.sql(f"select push.register_device('bruno', 'porteiro', 'fcm', '{fcm('tablet')}', platform => 'android')")
    machine.ring(answered)
    results.equal("two answer: one is told that it was the first", (
        machine.call("answer_call", answered, "bruno", "porteiro", BRUNO),
        machine.call("answer_call", answered, "ana", "porteiro")), (True, False))
    machine.settled()
    results.equal("the other phone of who answered stops", [machine.kinds(answered, token) for token in (BRUNO, fcm("tablet"))],
                  [["invite"], ["invite", "cancel"]])

    machine.ring(declined)
    results.equal("somebody is busy", machine.call("decline_call", declined, "bruno", "porteiro", "busy"), True)
    machine.settled()
    results.equal("others ring on", (machine.sql(f"select state from push.outbox where call_id = '{declined}'"),
                  machine.kinds(declined, BRUNO), machine.kinds(declined, IPHONE)), ("ringing", ["invite", "cancel"], ["invite"]))
    machine.call("decline_call", declined, "ana", "porteiro")
    machine.settled()
    results.equal("the last decline ends the call, and nobody missed it", (
        machine.sql(f"select state, end_reason from push.outbox where call_id = '{declined}'"), machine.kinds(declined, ALERTS),
        machine.kinds(declined, BRUNO)), ("ended|declined", [], ["invite", "cancel"]))

    machine.ring(unreached)
    machine.call("decline_call", unreached, "ana", "porteiro", "connection_failed")
    machine.call("decline_call", unreached, "bruno", "porteiro")
    await_("the missed call", lambda: machine.kinds(unreached, ALERTS))
    machine.settled()
    results.equal("who could not be reached has a missed call", (
        machine.kinds(unreached, ALERTS), machine.kinds(unreached, BRUNO), machine.kinds(unreached, IPHONE)),
        (["missed_call"], ["invite", "cancel"], ["invite"]))

    machine.ring(missed)
    machine.lapse(missed)
    await_("the missed call", lambda: machine.kinds(missed, ALERTS))
    machine.settled()
    results.equal("nobody does anything: a missed call each", (machine.kinds(missed, ALERTS), machine.kinds(missed, fcm("tablet"))),
                  (["missed_call"], ["invite", "missed_call"]))

    stop(machine.serving)
    machine.enqueue(late)
    machine.lapse(late, is_served=False)
    machine.serve()
    await_("the missed calls", lambda: machine.kinds(late, ALERTS))
    machine.settled()
    results.equal("a call that comes late does not ring", [
        machine.kinds(late, token) for token in (IPHONE, BRUNO, fcm("tablet"))], [[], [], ["missed_call"]])


def main(given, gateway):
    results = Results()
    results.of = "life cycle: "
    with Backend(given, gateway) as machine:
        as_the_page_says(results, machine)
        row_by_row(results, machine)
    return results
