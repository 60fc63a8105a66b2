// A provider that closes the connection at every push to one token, among an app's other calls.

import Foundation
import HTTP2TestSupport
import Queue
import Runtime
import Simulators
import TestSupport
import Testing

@Suite("Hostile tokens", .serialized, .timeLimit(.minutes(10)))
struct BadTokenTests {
  /// Number of calls with such tokens, one token for each provider.
  private static let badCalls = 3
  /// Number of the app's other calls from one of them to the next, one each tenth of a second.
  private static let callsBetween = 80

  /// The row of the table. Its measured time is the longest of the app's other calls.
  private static let row = HostileBehaviour(
    "hangs up at one token's pushes, and answers the app's others",
    "the others ring; that push is tried every 5 s after five tries",
    .rings(3)
  ) { _ in }

  @Test("a token at whose pushes the provider hangs up is tried ever less often, and the app's other calls ring")
  func hangsUp() async throws {
    try await HostileGateway.with { _ in
      []
    } _: { gateway, _ in
      try await gateway.callNeighbour("first")
      try await gateway.waitForEnds(of: "first", 3)
      let (calls, _) = try await gateway.besideNeighbour("good", every: .milliseconds(100)) {
        for number in 0..<Self.badCalls {
          try await gateway.callBadTokens("bad-\(number)")
          try await gateway.waitForEnds(of: "bad-\(number)", 3, within: .seconds(250))
          try await gateway.waitForEnds(of: "good\((number + 1) * Self.callsBetween)", 3)
        }
      }
      let good = try await gateway.spread("good")
      print("hostile tokens: \(good)")
      let worst = ScriptedPeer.Provider.allCases.map { ($0, good[$0.rawValue]?.worst ?? .infinity) }
      HostileTable.print([.init(behaviour: Self.row, seconds: Dictionary(uniqueKeysWithValues: worst))])
      let troubled = try await gateway.neighbour("good").troubled
      #expect(!troubled.contains("dead"))
      #expect(!troubled.contains("expired"))
      for provider in ScriptedPeer.Provider.allCases {
        let spread = try #require(good[provider.rawValue])
        #expect(spread.count == calls)
        #expect(spread.delivered == calls)
        #expect(spread.median < 0.5 + HostileTable.slack)
        #expect(spread.worst < 3 + HostileTable.slack)
      }
      for number in 0..<Self.badCalls {
        let bad = try await gateway.stories(of: "bad-\(number)")
        #expect(bad.count == 3)
        for (lane, story) in bad {
          let comment = Comment(rawValue: "\(lane): \(story)")
          #expect(story.outcome == "expired", "another replica may be able to ring it: \(comment)")
          #expect(story.reasons.hasSuffix("ConnectionLost"), comment)
          #expect(story.attempts <= 12 + HostileTable.furtherAttempts, comment)
        }
      }
    }
  }
}

extension HostileGateway {
  /// How long such a call rings, in seconds.
  private static let badSeconds = 20

  /// The times of the neighbour's deliveries at one provider, in seconds from the commit to the acceptance.
  struct Spread: Sendable {
    var count: Int
    var delivered: Int
    var median: Double
    var worst: Double
  }

  /// Commits a call whose three tokens make the simulators close the connection.
  fileprivate func callBadTokens(_ callID: String) async throws {
    let devices =
      #"{"userId": "ios", "voipPushToken": "dead0005\#(String(repeating: "0", count: 56))"}, "#
      + #"{"userId": "android", "fcmToken": "fault-close-APA91bHexample-token"}, "#
      + #"{"userId": "expo", "pushToken": "ExponentPushToken[fault-close-0000000000]"}"#
    let connection = try await database.connect()
    try await connection.script(
      """
      insert into push.outbox (app, payload, recipients, ring_seconds)
      values ('\(Self.neighbour)', '{"callId": "\(callID)", "from": "doorman"}', '[\(devices)]', \(Self.badSeconds))
      """)
    await connection.close()
  }

  fileprivate func spread(_ prefix: String) async throws -> [String: Spread] {
    let connection = try await database.connect()
    let rows = try await connection.query(
      PostgresStatement(
        name: "spread",
        text: """
          select provider, count(*)::text, count(*) filter (where outcome = 'delivered')::text,
            percentile_cont(0.5) within group (order by extract(epoch from answered_at - created_at))::text,
            max(extract(epoch from answered_at - created_at))::text
          from push.delivery_history
          where app = '\(Self.neighbour)' and kind = 'invite' and starts_with(call_id, '\(prefix)') group by provider
          """))
    var spreads: [String: Spread] = [:]
    for row in 0..<rows.rowCount {
      spreads[rows.text(row, 0)] = Spread(
        count: Int(rows.text(row, 1)) ?? 0, delivered: Int(rows.text(row, 2)) ?? 0,
        median: Double(rows.text(row, 3)) ?? .infinity, worst: Double(rows.text(row, 4)) ?? .infinity)
    }
    await connection.close()
    return spreads
  }
}
