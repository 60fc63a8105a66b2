// The rules for calls, end to end, with the numbers of docs/protocols.md. Rules 4 and 5 are in CallRulesTests.

import Dialects
import Foundation
import Queue
import Runtime
import Simulators
import TestSupport
import TestTime
import Testing

@testable import Settings

@Suite("Rules for calls, by number", .timeLimit(.minutes(10)))
struct RuleTests {
  private static let android = #"[{"userId": "u", "fcmToken": "\#(PhoneToken.fcm("android"))", "platform": "android"}]"#
  private static let iphone = #"[{"userId": "u", "voipPushToken": "\#(PhoneToken.voip)"}]"#

  private func faults(_ rules: FaultRule...) -> SimulatorSuite.Configuration {
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan(rules)
    return configuration
  }

  @Test("rule 1: an invite whose retries reach the deadline is not sent again, and becomes a missed call")
  func retriedUntilTheDeadline() async throws {
    let outage = FaultRule(provider: .fcm, fault: .reason("UNAVAILABLE"))
    try await GatewayHarness.with(simulators: faults(outage)) { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("r1"), Self.android, seconds: 1)
      try await gateway.database.wait(for: "select state = 'missed' from push.outbox")
      await gateway.simulators.setFaults(FaultPlan())
      try await gateway.settled()
      #expect(try await gateway.history() == ["fcm invite expired u", "fcm missed_call delivered u"])
      let pushes = try await gateway.simulators.fcm.accepted.map { try $0.object()["type"] as? String }
      #expect(pushes == ["missed_call"])
    }
  }

  @Test("rule 1: an invite that waited in the outbox beyond its deadline is not claimed")
  func waitedBeyondTheDeadline() async throws {
    try await GatewayHarness.with { gateway in
      try await gateway.database.execute("update push.lanes set paused = true")
      try await gateway.ring(GatewayHarness.baseCallData("r1"), Self.iphone, seconds: 1)
      try await gateway.database.wait(for: "select state = 'missed' from push.outbox")
      try await gateway.database.execute("update push.lanes set paused = false")
      try await gateway.settled()
      #expect(try await gateway.history() == ["apns invite expired u"])
      #expect(await gateway.simulators.apnsProduction.counters.requests == 0)
    }
  }

  @Test("rule 2: each provider is told to try once and at once, and until when")
  func envelopes() async throws {
    try await GatewayHarness.with { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("r2"), GatewayHarness.residents, seconds: 45)
      let voip = try #require(try await gateway.simulators.apnsProduction.waitForAccepted(1).first)
      let fcm = try #require(try await gateway.simulators.fcm.waitForAccepted(1).first)
      let expo = try #require(try await gateway.simulators.expo.waitForAccepted(1).first)
      #expect(voip.kind == "voip")
      #expect(voip.topic == "com.example.app.voip")
      #expect(voip.detail("apns-priority") == "10")
      #expect(voip.detail("apns-expiration") == "0")
      #expect(voip.detail("apns-collapse-id") == nil)
      #expect(fcm.kind == "HIGH")
      let least = try await gateway.timeToLiveMin(of: "r2", fcm)
      #expect((least...45).contains(try #require(fcm.detail("ttl").flatMap { Int($0.dropLast()) })))
      #expect(expo.kind == "high")
      let deadline = try await gateway.database.value(
        "select floor(extract(epoch from deadline_at))::bigint from push.outbox")
      #expect(expo.detail("expiration") == deadline)
    }
  }

  @Test("rule 2: a repeated FCM message lives only as long as the call still rings")
  func timeToLiveOfARetry() async throws {
    let once = FaultRule(provider: .fcm, fault: .reason("UNAVAILABLE", retryAfter: 3), count: 1)
    try await GatewayHarness.with(simulators: faults(once)) { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("r2"), Self.android, seconds: 30)
      let push = try #require(try await gateway.simulators.fcm.waitForAccepted(1).first)
      let seconds = try #require(push.detail("ttl").flatMap { Int($0.dropLast()) })
      let least = try await gateway.timeToLiveMin(of: "r2", push)
      #expect((least...27).contains(seconds))
    }
  }

  @Test("rule 3: a user with nothing but a VoIP token gets the invite, and nothing when the call ends, however it ends")
  func voipTokensAreSentInvitesOnly() async throws {
    try await GatewayHarness.with { gateway in
      for callID in ["ended", "declined", "answered"] {
        try await gateway.ring(GatewayHarness.baseCallData(callID), Self.iphone)
      }
      try await gateway.ring(GatewayHarness.baseCallData("missed"), Self.iphone)
      let invites = try await gateway.simulators.apnsProduction.waitForAccepted(4)
      try await gateway.end("ended")
      try await gateway.end("declined", "declined")
      try await gateway.answer("answered", by: "somebody else")
      try await gateway.settled()
      try await gateway.lapse("missed")
      try await gateway.database.wait(for: "select bool_and(state <> 'ringing') from push.outbox")
      try await gateway.settled()
      #expect(try await gateway.history() == Array(repeating: "apns invite delivered u", count: 4))
      #expect(await gateway.simulators.apnsProduction.accepted.count == invites.count)
      #expect(await gateway.simulators.apnsProduction.counters.violations == [:])
    }
  }

  @Test(
    "rule 4: an invite that waits for a stream when the caller hangs up is not sent",
    arguments: ["apns", "fcm", "expo"])
  func waitingForAStream(provider: String) async throws {
    let simulated = try #require(SimulatedProvider(rawValue: provider))
    var configuration = SimulatorSuite.Configuration()
    configuration.apnsStreamsMax = 4
    configuration.streamsMax = 4
    try await GatewayHarness.with(simulators: configuration) { settings in
      settings.apps[0].fcm?.connections = 1
      settings.apps[0].expo?.connections = 1
    } _: { gateway in
      let server =
        switch simulated {
        case .apns: gateway.simulators.apnsProduction
        case .fcm: gateway.simulators.fcm
        default: gateway.simulators.expo
        }
      let token =
        switch simulated {
        case .apns: "'voipPushToken', lpad(to_hex(i), 64, '0')"
        case .fcm: "'fcmToken', 'android-token-of-device-' || i"
        default: "'pushToken', 'ExponentPushToken[device-' || i || ']'"
        }
      func ring(_ name: String, _ count: Int) async throws {
        try await gateway.database.execute(
          """
          insert into push.outbox (app, payload, recipients)
          select 'porteiro', jsonb_build_object('callId', '\(name)-' || i, 'from', 'doorman'),
            jsonb_build_array(jsonb_build_object('userId', 'u' || i, \(token)))
          from generate_series(1, \(count)) i
          """)
      }
      try await ring("warm", 1)
      try await gateway.settled()
      let isWaiting = "from push.deliveries where state = 'claimed' and kind = 'invite' and call_id like 'waiting-%'"
      // A busy machine may have sent all of them before the gateway knows of the end. Then others wait.
      var (round, isWithdrawn) = (0, false)
      while !isWithdrawn, round < 10 {
        round += 1
        // All streams are taken by pushes whose answers are held back …
        await gateway.simulators.setFaults(
          FaultPlan([FaultRule(provider: simulated, fault: Fault(.accept, delay: .seconds(2)))]))
        let accepted = await server.counters.accepted
        try await ring("held-\(round)", 4)
        _ = try await server.waitForAccepted(accepted + 1)
        // … so that what the gateway claims beyond them has to wait.
        try await ring("waiting-\(round)", 12)
        try await gateway.database.wait(for: "select exists (select \(isWaiting))")
        try await gateway.database.execute(
          """
          do $$
          begin
            create table held_back_\(round) as select outbox_id, n \(isWaiting);
            update push.outbox set state = 'answered' where state = 'ringing';
          end $$
          """)
        // It knows at the latest when it has withdrawn what it holds back.
        try await gateway.database.wait(
          for: "select not exists (select from push.deliveries where kind = 'invite' and call_id like 'waiting-%')")
        let withdrawn = "select from push.delivery_history join held_back_\(round) using (outbox_id, n)"
        isWithdrawn = try await gateway.database.value("select exists (\(withdrawn) where outcome = 'void')") == "true"
      }
      #expect(isWithdrawn, "what waited was sent")
      let known = Int64(Date().timeIntervalSince1970 * 1_000_000)
      await gateway.simulators.setFaults(FaultPlan())
      try await gateway.settled()
      let late = try await server.accepted.filter { try $0.at > known && !isCancel($0.object()) }
      #expect(late.count == 0, "invites left after the end of their calls")
    }
  }

  @Test("rule 5: a missed call whose answer was lost is not shown a second time", arguments: ["apns", "fcm", "expo"])
  func missedCallOnce(provider: String) async throws {
    let simulated = try #require(SimulatedProvider(rawValue: provider))
    try await GatewayHarness.with { gateway in
      let (server, phone) =
        switch simulated {
        case .apns: (gateway.simulators.apnsProduction, #""apnsToken": "\#(PhoneToken.alert)""#)
        case .fcm: (gateway.simulators.fcm, #""fcmToken": "\#(PhoneToken.fcm("u"))""#)
        default: (gateway.simulators.expo, #""pushToken": "\#(PhoneToken.expo("u"))""#)
        }
      try await gateway.ring(GatewayHarness.baseCallData("warm"), GatewayHarness.residents, seconds: 600)
      try await gateway.settled()
      let before = await server.counters.accepted
      try await gateway.database.execute("update push.lanes set paused = true")
      try await gateway.ring(GatewayHarness.baseCallData("r5"), #"[{"userId": "u", \#(phone)}]"#)
      try await gateway.end("r5")
      await gateway.simulators.setFaults(
        FaultPlan([FaultRule(provider: simulated, fault: Fault(.lose), count: 1)]))
      try await gateway.database.execute("update push.lanes set paused = false")
      _ = try await server.waitForAccepted(before + 1)
      await server.dropConnections()
      try await gateway.settled()
      let missed = try await server.accepted.dropFirst(before).map { try $0.object() }
      #expect(missed.count == 1)
    }
  }

  private func isCancel(_ payload: [String: Any]) -> Bool {
    ((payload["data"] as? [String: Any]) ?? payload)["action"] as? String == "call_cancelled"
  }

  @Test(
    "rule 6: every push of every dialect contains the call id, its sequence number, when it was sent, and until when it is valid",
    arguments: ShippedDialects.names)
  func stamps(dialect: String) async throws {
    let id = "3d6f0a52-9a0e-4c55-8a5f-5a7d1f6e2b06"
    try await GatewayHarness.speaking(dialect) { gateway in
      let phones = """
        [{"userId": "a", "voipPushToken": "\(PhoneToken.voip)", "apnsToken": "\(PhoneToken.alert)"},
         {"userId": "b", "fcmToken": "\(PhoneToken.fcm("b"))"}]
        """
      try await gateway.ring(GatewayHarness.baseCallData(id), phones)
      try await gateway.settled()
      try await gateway.end(id)
      try await gateway.settled()
      let deadline = try await gateway.database.value(
        "select floor(extract(epoch from deadline_at) * 1000)::bigint from push.outbox")
      let voip = await gateway.simulators.apnsProduction.accepted
      let fcm = await gateway.simulators.fcm.accepted
      #expect(voip.map(\.kind) == ["voip", "alert"])
      // A Telnyx phone that got the cancel gets no missed call.
      #expect(fcm.count == (dialect == "telnyx" ? 2 : 3))
      for pushes in [voip, fcm] {
        var before = -1
        for (index, push) in pushes.enumerated() {
          let object = try push.object()
          #expect(object["callId"] as? String == id)
          let sequence = try #require((object["seq"] as? String).flatMap(Int.init))
          #expect(sequence > before)
          before = sequence
          let sentAt = try #require((object["timestamp"] as? String).flatMap(Int64.init))
          // The gateway's estimate of the database's clock is wrong by up to half a round trip.
          #expect(abs(push.at / 1000 - sentAt) < 600_000)
          let expiresAt = try #require(object["expiresAt"] as? String)
          if index == 0 { #expect(expiresAt == deadline) }
          #expect(try #require(Int64(expiresAt)) > sentAt)
        }
      }
    }
  }

  @Test("rule 7: a Retry-After longer than the rest of the ring window is waited for: only another replica may ring it")
  func retryAfterBeyondTheDeadline() async throws {
    let busy = FaultRule(provider: .fcm, fault: .reason("UNAVAILABLE", retryAfter: 60), count: 1)
    try await GatewayHarness.with(simulators: faults(busy)) { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("r7"), Self.android, seconds: 55)
      try await eventually("FCM has refused it") { await !gateway.simulators.fcm.counters.refused.isEmpty }
      try await gateway.lapse("r7")
      try await gateway.database.wait(for: "select exists (select from push.delivery_history where kind = 'invite')")
      let row = try await gateway.database.value(
        "select concat_ws(' ', outcome, attempts) from push.delivery_history where kind = 'invite'")
      #expect(row == "expired 1")
      _ = try await gateway.simulators.fcm.waitForAccepted(1)
      try await gateway.settled()
      #expect(try await gateway.history() == ["fcm invite expired u", "fcm missed_call delivered u"])
    }
  }

  @Test("rule 7: a Retry-After within the ring window is waited for", arguments: [1, 3])
  func retryAfterWithinTheDeadline(seconds: Int) async throws {
    let busy = FaultRule(provider: .fcm, fault: .reason("UNAVAILABLE", retryAfter: seconds), count: 1)
    try await GatewayHarness.with(simulators: faults(busy)) { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("r7"), Self.android)
      try await gateway.settled()
      let row = try await gateway.database.value(
        "select concat_ws(' ', outcome, attempts, sent_at - created_at >= interval '\(seconds) s') from push.delivery_history"
      )
      #expect(row == "delivered 2 t")
    }
  }

  @Test(
    "rule 8: an acceptance after the deadline is delivered_late, which is not a success",
    arguments: ["apns", "fcm", "expo"])
  func acceptedLate(provider: String) async throws {
    let slow = FaultRule(
      provider: try #require(SimulatedProvider(rawValue: provider)), fault: Fault(.accept, delay: .milliseconds(2_500)))
    try await GatewayHarness.with(simulators: faults(slow)) { gateway in
      let phone =
        switch provider {
        case "apns": Self.iphone
        case "fcm": Self.android
        default: #"[{"userId": "u", "pushToken": "\#(PhoneToken.expo("u"))"}]"#
        }
      // A busy machine may not send within the two seconds; then another call rings.
      var row = ""
      var calls = 0
      while row.isEmpty {
        calls += 1
        try await gateway.ring(GatewayHarness.baseCallData("r8-\(calls)"), phone, seconds: 2)
        let invites = "push.delivery_history where kind = 'invite' and call_id = 'r8-\(calls)'"
        try await gateway.database.wait(for: "select exists (select from \(invites))")
        row = try await gateway.database.value(
          """
          select coalesce((select concat_ws(' ', outcome, answered_at > deadline_at, reason is not null)
          from \(invites) and sent_at is not null), '')
          """)
      }
      #expect(row == "delivered_late t t")
    }
  }

  @Test("rule 9: a push whose answer was lost is sent again with the same call id, and the phone shows one call")
  func ambiguous() async throws {
    let lost = FaultRule(provider: .fcm, fault: Fault(.lose), count: 1)
    try await GatewayHarness.with(simulators: faults(lost)) { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("r9"), Self.android)
      _ = try await gateway.simulators.fcm.waitForAccepted(1)
      await gateway.simulators.fcm.dropConnections()
      let pushes = try await gateway.simulators.fcm.waitForAccepted(2).map { try $0.object() }
      try await gateway.settled()
      #expect(pushes.count == 2)
      var phone = CallSessions()
      for push in pushes { phone.receive(push) }
      #expect(phone.promises == ["r9": 1])
      #expect(Set(pushes.map { $0["seq"] as? String }).count == 1)
      let row = try await gateway.database.value(
        "select concat_ws(' ', outcome, attempts) from push.delivery_history where kind = 'invite'")
      #expect(row == "delivered 2")
    }
  }

  @Test("rule 9: APNs sees the same apns-id at every attempt")
  func ambiguousOverAPNs() async throws {
    let lost = FaultRule(provider: .apns, fault: Fault(.lose), count: 1)
    try await GatewayHarness.with(simulators: faults(lost)) { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("r9"), Self.iphone)
      _ = try await gateway.simulators.apnsProduction.waitForAccepted(1)
      await gateway.simulators.apnsProduction.dropConnections()
      let pushes = try await gateway.simulators.apnsProduction.waitForAccepted(2)
      try await gateway.settled()
      #expect(Set(pushes.map(\.id)).count == 1)
      #expect(try await gateway.history() == ["apns invite delivered u"])
    }
  }

  @Test(
    "rule 10: no kind of outage invalidates a token",
    arguments: [
      Fault(.html), Fault(.malformed), Fault(.close), Fault(.reset), Fault(.answer(status: 500, reason: "x", body: "")),
      Fault(.answer(status: 404, reason: "x", body: "<html>Not Found</html>")),
      Fault(.answer(status: 410, reason: "x", body: "<html>Gone</html>")),
    ])
  func outage(fault: Fault) async throws {
    let outage = [SimulatedProvider.apns, .fcm, .expo].map { FaultRule(provider: $0, fault: fault, count: 3) }
    var configuration = SimulatorSuite.Configuration()
    configuration.faults = FaultPlan(outage)
    try await GatewayHarness.with(simulators: configuration) { gateway in
      try await gateway.ring(GatewayHarness.baseCallData("r10"), GatewayHarness.residents, seconds: 2)
      try await gateway.database.wait(for: "select state = 'missed' from push.outbox")
      try await gateway.settled()
      #expect(try await gateway.database.value("select count(*) from push.token_invalidations") == "0")
    }
  }
}
