// Providers that stall, and calls that are answered or ended at random. What the simulators received is compared with
// what was committed, and when.

import Foundation
import Queue
import Runtime
import Simulators
import TestSupport
import TestTime
import Testing

extension SoakTests {
  @Suite struct StallSoakTests {
    /// Maximum time of an invite from the gateway's socket through the simulator's, in microseconds. An invite that is
    /// on its way when the call ends cannot be stopped.
    private static let wireAllowance: Int64 = 250_000
    private static let devicesPerCall = 3

    /// An action on a call, and its time after the start.
    private struct Act {
      enum Deed { case enqueue, answer(user: String), end(reason: String), pause(Bool) }
      var at: Duration
      var call: Int
      var deed: Deed
    }

    @Test(
      "no invite arrives after its deadline or its call's end, no VoIP token is told the end, nobody misses a call twice"
    )
    func stalls() async throws {
      let calls = SoakSettings.invites / Self.devicesPerCall
      var configuration = SimulatorSuite.Configuration()
      configuration.faults = Self.stalls
      try await GatewayHarness.with(simulators: configuration) { gateway in
        let began = ContinuousClock.now
        let ends = try await Self.play(Self.script(calls), gateway)
        report(
          "stalls: \(calls) calls enqueued, \(ends.count) answered or called off, in \(ContinuousClock.now - began)")
        try await gateway.settled()
        report("stalls: everything finished after \(ContinuousClock.now - began)")
        try await expectEachSettledOnce(gateway, calls)
        try await expectNoLateInvite(gateway, ends)
        try await expectOneMissedCall(gateway)
        try await expectInvitesOnlyOverVoIP(gateway)
        report("stalls: outcomes: \(try await kinds(gateway))")
        report("stalls: refusals: \(await gateway.refusals())")
      }
    }

    // MARK: - What happens

    /// A share of each provider's requests waits 0 to `stallSeconds` for its answer, chosen by token: accepted at once,
    /// not accepted and reset, or not accepted and told to retry. Expo gets a hundred messages in one request, so its
    /// share is smaller.
    private static var stalls: FaultPlan {
      let longest = SoakSettings.stallSeconds
      func rules(_ provider: SimulatedProvider, share: Double) -> [FaultRule] {
        let unavailable =
          provider == .apns ? "ServiceUnavailable" : provider == .fcm ? "UNAVAILABLE" : "SERVICE_UNAVAILABLE"
        return [
          Fault(.accept, stallMax: .seconds(Int64(longest))), Fault(.reset, stallMax: .seconds(Int64(longest))),
          Fault(.answer(status: 503, reason: unavailable, body: nil), stallMax: .seconds(Int64(longest))),
        ].map { FaultRule(provider: provider, fault: $0, share: share) }
      }
      return FaultPlan(rules(.apns, share: 0.1) + rules(.fcm, share: 0.02) + rules(.expo, share: 0.002))
    }

    /// Calls come at an even pace over a ring window. Half of them are answered or ended at random while they ring or
    /// shortly after.
    private static func script(_ calls: Int) -> [Act] {
      var random = SplitMix64(seed: UInt64(SoakSettings.seed))
      let window = Double(SoakSettings.ringSeconds)
      var acts: [Act] = []
      for call in 0..<calls {
        let start = window * Double(call) / Double(calls)
        acts.append(Act(at: .seconds(start), call: call, deed: .enqueue))
        let end = start + 0.02 + .random(in: 0..<window, using: &random)
        switch Int.random(in: 0..<8, using: &random) {
        case 0, 1:
          let user = ["ios", "android", "expo"].randomElement(using: &random)!
          acts.append(Act(at: .seconds(end), call: call, deed: .answer(user: "\(user)-\(call)")))
        case 2: acts.append(Act(at: .seconds(end), call: call, deed: .end(reason: "ended")))
        case 3: acts.append(Act(at: .seconds(end), call: call, deed: .end(reason: "declined")))
        default: break
        }
      }
      // A backlog, much of which is near its deadline when the lane is resumed.
      acts.append(Act(at: .seconds(0.5 * window), call: 0, deed: .pause(true)))
      acts.append(Act(at: .seconds(1.2 * window), call: 0, deed: .pause(false)))
      return acts.sorted { $0.at < $1.at }
    }

    /// Executes the script over several connections. Returns, for each call, the time at which the commit of its end
    /// had returned, in microseconds since 1970. The simulators use the clock of the same machine.
    private static func play(_ script: [Act], _ gateway: GatewayHarness) async throws -> [Int: Int64] {
      let start = ContinuousClock.now
      let database = gateway.database
      let workers = 4
      return try await withThrowingTaskGroup(of: [Int: Int64].self) { group in
        for worker in 0..<workers {
          // All acts of a call use the same connection, so that a call is not ended before it is enqueued.
          let acts = script.filter { $0.call % workers == worker }
          group.addTask { try await play(acts, from: start, on: database.connect()) }
        }
        return try await group.reduce(into: [:]) { $0.merge($1) { first, _ in first } }
      }
    }

    private static func play(
      _ acts: [Act], from start: ContinuousClock.Instant, on connection: PostgresConnection
    ) async throws -> [Int: Int64] {
      var ends: [Int: Int64] = [:]
      for act in acts {
        try await letPass(start + act.at - .now, "until the script goes on")
        try await connection.script(statement(act))
        switch act.deed {
        case .enqueue, .pause: continue
        case .answer, .end: break
        }
        ends[act.call] = Int64(Date().timeIntervalSince1970 * 1_000_000)
      }
      await connection.close()
      return ends
    }

    private static func statement(_ act: Act) -> String {
      let call = act.call
      return switch act.deed {
      case .enqueue:
        """
        select push.enqueue_call('{"callId": "soak-\(call)", "from": "doorman", "fromName": "Portaria"}',
          '[{"userId": "ios-\(call)", "voipPushToken": "\(voipToken(call))", "apnsToken": "\(alertToken(call))"},
            {"userId": "android-\(call)", "fcmToken": "android-token-of-device-\(call)", "platform": "android"},
            {"userId": "expo-\(call)", "pushToken": "ExponentPushToken[device-\(call)]", "platform": "android"}]',
          'porteiro', \(SoakSettings.ringSeconds))
        """
      case .answer(let user): "select push.answer_call('soak-\(call)', '\(user)')"
      case .end(let reason): "select push.end_call('soak-\(call)', '\(reason)')"
      case .pause(let isPaused): "update push.lanes set paused = \(isPaused) where provider = 'fcm'"
      }
    }

    private static func voipToken(_ call: Int) -> String { String(format: "%064x", 0xA000_0000 + call) }
    private static func alertToken(_ call: Int) -> String { String(format: "%064x", 0xB000_0000 + call) }

    // MARK: - What must hold

    private func expectEachSettledOnce(_ gateway: GatewayHarness, _ calls: Int) async throws {
      let account = try await gateway.database.value(
        """
        select concat_ws(' ', (select count(*) from push.deliveries), (select count(*) from push.outbox),
          count(*) filter (where kind = 'invite'), count(*) - count(distinct (outbox_id, n)), count(*) filter (where outcome is null))
        from push.delivery_history
        """)
      report("stalls: left, calls, invites settled, settled twice, without outcome: \(account)")
      #expect(account == "0 \(calls) \(calls * Self.devicesPerCall) 0 0")
      #expect(try await gateway.database.value("select count(*) from push.outbox where state = 'ringing'") == "0")
    }

    private struct Received {
      var call: Int
      var at: Int64
      var provider: SimulatedProvider
      var type: String
      var token: String
      var topic: String
      var id: String
      var expiresAt: Int64
    }

    private func received(_ gateway: GatewayHarness) async throws -> [Received] {
      var received: [Received] = []
      for (_, server) in gateway.simulators.all {
        for push in await server.accepted {
          let payload = try push.object()
          let data = payload["data"] as? [String: Any] ?? payload
          let callID = try #require(data["callId"] as? String)
          received.append(
            Received(
              call: try #require(Int(callID.dropFirst("soak-".count))), at: push.at, provider: push.provider,
              type: (data["action"] ?? data["type"]) as? String ?? "", token: push.token, topic: push.topic,
              id: push.id,
              expiresAt: Int64(data["expiresAt"] as? String ?? "") ?? 0))
        }
      }
      return received
    }

    private func expectNoLateInvite(_ gateway: GatewayHarness, _ ends: [Int: Int64]) async throws {
      let invites = try await received(gateway).filter { $0.type == "incoming_call" }
      let afterDeadline = invites.map { $0.at - $0.expiresAt * 1000 }
      let afterEnd = invites.compactMap { invite in ends[invite.call].map { (invite, $0) } }
        .filter { $0.0.at > $0.1 }
      let worst = afterEnd.map { $0.0.at - $0.1 }.max() ?? 0
      let tooLate = afterEnd.filter { $0.0.at - $0.1 > Self.wireAllowance }
      report(
        """
        stalls: \(invites.count) invites arrived; nearest to its deadline \(-(afterDeadline.max() ?? 0) / 1000) ms before it; \
        \(afterEnd.count) arrived after their call's end had been committed, the worst by \(worst / 1000) ms \
        (allowance \(Self.wireAllowance / 1000) ms), \(tooLate.count) beyond: \
        \(Dictionary(grouping: tooLate, by: { $0.0.provider.rawValue }).mapValues(\.count))
        """)
      #expect(!invites.isEmpty)
      #expect(afterDeadline.count { $0 > 0 } == 0, "invites arrived after their deadline")
      #expect(tooLate.count == 0, "invites arrived after their call's end")
    }

    private func expectOneMissedCall(_ gateway: GatewayHarness) async throws {
      let missed = try await received(gateway).filter { $0.type == "missed_call" }
      // For missed calls, a call has one token for each user.
      let twice = Dictionary(grouping: missed) { "\($0.call) \($0.token)" }.values.filter { $0.count > 1 }
      let answered = try await gateway.database.value(
        "select coalesce(string_agg(substr(call_id, 6), ' '), '') from push.outbox where state = 'answered'")
      let answeredCalls = Set(answered.split(separator: " ").compactMap { Int($0) })
      let providers = Dictionary(grouping: twice) { $0[0].provider.rawValue }.mapValues(\.count)
      let gaps = twice.map { ($0[1].at - $0[0].at) / 1000 }.sorted()
      let reasons = try await gateway.database.value(
        """
        select coalesce(string_agg(concat_ws(' ', provider, reason, count), ', '), '') from (
          select h.provider, f ->> 'reason' as reason, count(*)
          from push.delivery_history h cross join lateral jsonb_array_elements(h.failures) f
          where h.kind = 'missed_call' group by 1, 2 order by 1, 2) t
        """)
      report(
        """
        stalls: \(missed.count) missed calls arrived, \(twice.count) twice \(providers), of which \
        \(twice.count { Set($0.map(\.id)).count == 1 }) under one id, \(gaps.first ?? 0) to \(gaps.last ?? 0) ms apart; \
        failed tries of missed calls: \(reasons)
        """)
      #expect(!missed.isEmpty)
      #expect(twice.count == 0, "users missed a call twice")
      #expect(missed.allSatisfy { !answeredCalls.contains($0.call) }, "an answered call was called missed")
      let owed = try await gateway.database.value(
        "select count(*) - count(distinct (outbox_id, user_id)) from push.delivery_history where kind = 'missed_call'")
      #expect(owed == "0")
    }

    private func expectInvitesOnlyOverVoIP(_ gateway: GatewayHarness) async throws {
      let apns = try await received(gateway).filter { $0.provider == .apns }
      let overVoIP = apns.filter { $0.topic.hasSuffix(".voip") || $0.token == Self.voipToken($0.call) }
      #expect(overVoIP.allSatisfy { $0.type == "incoming_call" })
      #expect(await gateway.simulators.apnsProduction.counters.violations == [:])
      report(
        "stalls: \(overVoIP.count) VoIP pushes, all of them invites: \(overVoIP.allSatisfy { $0.type == "incoming_call" })"
      )
    }

    private func kinds(_ gateway: GatewayHarness) async throws -> String {
      try await gateway.database.value(
        """
        select string_agg(line, ', ' order by line) from (
          select concat_ws(' ', provider, kind, outcome, count(*)) as line from push.delivery_history
          group by provider, kind, outcome) t
        """)
    }
  }
}
