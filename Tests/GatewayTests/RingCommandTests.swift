// `push-gateway ring` as people run it: the built program, a gateway, and simulators of the providers.

import Foundation
import Simulators
import TestSupport
import Testing

@testable import Gateway

@Suite(.timeLimit(.minutes(10))) struct RingCommandTests {
  private static let token = "cQ7mZl2pR0uX:APA91bHexample-token"
  private static let voip = String(repeating: "ab", count: 32)

  private func ring(_ gateway: GatewayHarness, _ arguments: String...) async throws -> CommandRun {
    let run = try await OperationsFixture.run(
      gateway.database.url,
      ["ring", "--app", "porteiro", "--config", gateway.simulators.material.configurationFile] + arguments)
    for secret in [Self.token, Self.voip] { #expect(!run.output.contains(secret) && !run.errors.contains(secret)) }
    return run
  }

  /// The JSON of a request that was printed: the last line that is not empty.
  private func body(_ run: CommandRun) throws -> [String: Any] {
    let line = try #require(run.output.split(separator: "\n").last { $0.hasPrefix("{") })
    return try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
  }

  @Test func `a user's phone rings, the timeline is printed, and 0 says that it was delivered`() async throws {
    try await GatewayHarness.with { gateway in
      try await gateway.database.execute(
        "select push.register_device('ana', 'porteiro', 'fcm', '\(Self.token)', platform => 'android')")
      let run = try await ring(gateway, "--user", "ana", "--name", "Portaria Sul", "--wait")
      #expect(run.status == 0 && run.errors.isEmpty, "\(run.errors)")
      #expect(run.output.hasPrefix("AT "))
      for event in ["enqueued", "sent", "delivered"] { #expect(run.output.contains(event)) }
      // The last row's columns have headings, although the first row, if it came alone, has fewer.
      let heading = try #require(run.output.split(separator: "\n").last { $0.hasPrefix("AT ") })
      #expect(heading.contains("PROVIDER") && heading.contains("STATUS"), "\(run.output)")
      let recipients = try await gateway.database.value("select recipients ->> 0 from push.outbox")
      #expect(recipients.contains(#""missedCall": false"#))
      #expect(!run.output.contains("ready") && !run.output.contains("claimed"))
      let push = try #require(try await gateway.simulators.fcm.waitForAccepted(1).first)
      #expect(push.token == Self.token)
    }
  }

  @Test func `the request that is shown is the one that the provider gets`() async throws {
    try await GatewayHarness.with { gateway in
      let run = try await ring(gateway, "--token", Self.token, "--platform", "android", "--wait", "--show-request")
      #expect(run.status == 0, "\(run.errors)")
      let push = try #require(try await gateway.simulators.fcm.waitForAccepted(1).first)
      // The simulators keep the member `message`. The token is masked, and what counts time differs.
      func content(_ message: Any?) throws -> NSDictionary {
        var message = try #require(message as? [String: Any])
        var data = try #require(message["data"] as? [String: Any])
        var android = try #require(message["android"] as? [String: Any])
        data["timestamp"] = nil
        // The app of the dialect reads its data from this text.
        let text = try #require(data["body"] as? String)
        data["body"] = text.replacing(/"timestamp":"\d+"/, with: "")
        android["ttl"] = nil
        message["token"] = nil
        message["data"] = data
        message["android"] = android
        return NSDictionary(dictionary: message)
      }
      let shown = try content(try body(run)["message"])
      let sent = try content(try JSONSerialization.jsonObject(with: Data(push.message)))
      #expect(shown == sent)
    }
  }

  @Test func `a refusal is 2, and a window in which nothing took it is 4`() async throws {
    try await GatewayHarness.with { gateway in
      let refused = try await ring(gateway, "--token", "fault-UNREGISTERED-0123456789", "--provider", "fcm", "--wait")
      #expect(refused.status == 2 && refused.output.contains("UNREGISTERED"))
      #expect(refused.errors.contains("the provider refused it"))
      try await gateway.database.execute("select push.pause_lane('porteiro', 'fcm')")
      let paused = try await ring(gateway, "--token", Self.token, "--ring-seconds", "1", "--wait")
      #expect(paused.status == 4 && paused.errors.contains("nothing took it"))
    }
  }

  @Test func `without --wait it says how to follow the call`() async throws {
    try await GatewayHarness.with { gateway in
      let run = try await ring(gateway, "--token", Self.token)
      #expect(run.status == 0)
      let id = try await gateway.database.value("select call_id from push.outbox")
      #expect(run.output.hasPrefix("enqueued \(id) for 1 device; push-gateway timeline \(id) --app porteiro"))
    }
  }

  @Test func `a dry run needs neither a gateway nor a database, and shows no secret`() async throws {
    let simulators = try await SimulatorSuite.start(SimulatorSuite.Configuration(), material: SimulatorMaterial())
    let file = simulators.material.configurationFile
    await simulators.stop()
    let nowhere = "postgres://push@127.0.0.1:1/push"
    let apns = try await OperationsFixture.run(
      nowhere, ["ring", "--app", "porteiro", "--token", Self.voip, "--dry-run", "--config", file])
    #expect(apns.status == 0, "\(apns.errors)")
    #expect(apns.output.hasPrefix("POST https://") && apns.output.contains("/3/device/abab…abab\n"))
    #expect(apns.output.contains("apns-push-type: voip\n") && apns.output.contains("authorization: bearer …\n"))
    #expect(try body(apns)["callId"] != nil)
    #expect(!apns.output.contains(Self.voip))
    let fcm = try await OperationsFixture.run(
      nowhere, ["ring", "--app", "porteiro", "--token", Self.token, "--dry-run", "--config", file])
    #expect(fcm.output.contains("/messages:send\n") && !fcm.output.contains(Self.token))
    let expo = try await OperationsFixture.run(
      nowhere,
      [
        "ring", "--app", "porteiro", "--token", "ExponentPushToken[aBcDeFgHiJkLmNoPqRsTuV]", "--dry-run", "--config",
        file,
      ])
    #expect(expo.status == 0 && expo.output.contains("/--/api/v2/push/send\n"), "\(expo.errors)")
    // As the browser gives it.
    let subscription = try String(contentsOfFile: simulators.material.webPushSubscriptionFile, encoding: .utf8)
    let keys = try #require(subscription.firstMatch(of: /"auth":"([^"]+)","p256dh":"([^"]+)"/))
    for provider in [[], ["--provider", "webpush"]] {
      let browser = try await OperationsFixture.run(
        nowhere, ["ring", "--app", "porteiro", "--token", subscription, "--dry-run", "--config", file] + provider)
      #expect(browser.status == 0 && browser.output.contains("(encrypted when it is sent)\n"), "\(browser.errors)")
      for secret in [keys.output.1, keys.output.2] { #expect(!browser.output.contains(secret)) }
    }
    let unknown = try await OperationsFixture.run(
      nowhere, ["ring", "--app", "portero", "--token", Self.voip, "--dry-run", "--config", file])
    #expect(unknown.status == 1 && unknown.output.isEmpty, "\(unknown)")
    #expect(unknown.errors.hasPrefix("Error: the configuration has no app portero, but porteiro"), "\(unknown)")
  }

  @Test func `a token of another form is refused with its provider, and so is one that lost a digit`() async throws {
    let nowhere = "postgres://push@127.0.0.1:1/push"
    for (token, says) in [
      ("c0ffee", "a token of apns"), (String(Self.voip.dropLast()), "a token of apns"), ("?", "a token of fcm"),
      (#"{"endpoint": "https://push.example/a"}"#, "the browser's JSON, with endpoint, keys.auth and keys.p256dh"),
    ] {
      let run = try await OperationsFixture.run(nowhere, ["ring", "--app", "porteiro", "--token", token])
      #expect(run.status == 64 && run.errors.contains(says) && run.errors.contains("--provider"), "\(run.errors)")
    }
  }

  @Test func `a dry run for a user enqueues nothing`() async throws {
    try await GatewayHarness.with { gateway in
      try await gateway.database.execute(
        "select push.register_device('ana', 'porteiro', 'fcm', '\(Self.token)', platform => 'android')")
      let run = try await ring(gateway, "--user", "ana", "--dry-run")
      #expect(run.status == 0 && run.output.hasPrefix("POST https://"), "\(run.errors)")
      #expect(try await gateway.database.value("select count(*) from push.outbox") == "0")
    }
  }

  @Test func `what cannot ring is refused at once, and nothing is enqueued`() async throws {
    try await OperationsFixture.with { database in
      func refusal(_ arguments: String...) async throws -> String {
        let run = try await OperationsFixture.run(database.url, ["ring"] + arguments)
        #expect(run.status == 1 && run.output.isEmpty)
        return run.errors
      }
      let before = try await database.value("select count(*) from push.outbox")
      #expect(
        try await refusal("--app", "portero", "--user", "ana")
          == "Error: there is no app portero; gateways have served condo, porteiro\n")
      let unknown = try await refusal("--app", "porteiro", "--user", "ana")
      #expect(unknown.contains("no device of user ana") && unknown.contains("push.register_device('ana', 'porteiro'"))
      try await database.execute(
        """
        select push.register_device('ana', 'porteiro', 'fcm', '\(Self.token)');
        update push.devices set enabled = false;
        """)
      #expect(
        try await refusal("--app", "porteiro", "--user", "ana", "--wait").contains(
          "nothing would ring for user ana of app porteiro, and nothing was enqueued: NotificationsDisabled: "))
      try await database.execute(
        "select push.register_device('bea', 'porteiro', 'apns', '\(Self.voip)', voip => false)")
      #expect(
        try await refusal("--app", "porteiro", "--user", "bea").contains(
          "nothing would ring for user bea of app porteiro, and nothing was enqueued: NoDevice: "))
      try await database.execute("update push.gateways set heartbeat_at = now() - interval '1 hour'")
      #expect(
        try await refusal("--app", "porteiro", "--token", Self.token, "--wait").contains(
          "no gateway is alive on this database"))
      #expect(try await database.value("select count(*) from push.outbox") == before)
    }
  }

  private static let wrong: [(arguments: [String], says: String)] = [
    ([], "name the phone with --user or with --token"),
    (["--user", "u", "--token", token], "give --user or --token, not both"),
    (["--user", ""], "--user is empty"), (["--app", "", "--user", "u"], "--app is empty"),
    (["--user", "u", "--provider", "fcm"], "describe a --token"), (["--token", "short"], "a token of fcm"),
    (["--token", "zz", "--provider", "apns"], "a token of apns"),
    (["--token", token, "--provider", "webpush"], "subscription"),
    (["--token", token, "--platform", "web"], "Please provide one of 'ios' and 'android'"),
    (["--token", token, "--provider", "gcm"], "Please provide one of 'apns', 'fcm', 'expo' or 'webpush'"),
    (["--token", token, "--wait", "--dry-run"], "--dry-run sends nothing"),
    (["--user", "u", "--payload", "[]"], "--payload must be a JSON object"),
    (["--user", "u", "--ring-seconds", "0"], "--ring-seconds must be from 1 to 600"),
  ]

  @Test(arguments: wrong) func `wrong usage is 64 and says what is wrong, and a token is never repeated`(
    arguments: [String], says: String
  ) async throws {
    let run = try await OperationsFixture.run("postgres://push@127.0.0.1:1/push", ["ring", "--app", "a"] + arguments)
    #expect(run.status == 64 && run.errors.contains(says) && !run.errors.contains(Self.token), "\(run.errors)")
  }

  @Test func `a configuration without the app, or a missing one, is told before anything rings`() async throws {
    let missing = try await OperationsFixture.run(
      "postgres://push@127.0.0.1:1/push",
      ["ring", "--app", "a", "--token", Self.token, "--dry-run", "--config", "/nonexistent.yaml"])
    #expect(missing.status == 78)
  }
}
