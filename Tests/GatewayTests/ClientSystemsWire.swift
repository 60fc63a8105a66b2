// Helpers for the tests of client systems and rules: calls as a backend inserts them, and pushes as phones receive
// them.

import Dialects
import DialectsTestSupport
import Foundation
import Simulators
import TestSupport
import Testing

@testable import Settings

extension GatewayHarness {
  /// A gateway whose only app uses this dialect.
  static func speaking(
    _ dialect: String, simulators configuration: SimulatorSuite.Configuration = GatewayHarness.strict,
    hasVoIPCancel: Bool = false, unknownName: String? = nil, missedCallChannel: String? = nil,
    sendsMessageText: Bool = false, _ body: (GatewayHarness) async throws -> Void
  ) async throws {
    let dialect = try #require(try ShippedDialects.named(dialect))
    try await with(simulators: configuration) {
      $0.apps[0].dialect = dialect
      $0.apps[0].hasVoIPCancel = hasVoIPCancel
      $0.apps[0].unknownName = unknownName
      $0.apps[0].missedCallChannel = missedCallChannel
      $0.apps[0].sendsMessageText = sendsMessageText
    } _: {
      try await body($0)
    }
  }

  /// Inserts a call as a backend does.
  func ring(_ payload: String, _ recipients: String, kind: String = "incoming_call", seconds: Int? = nil) async throws {
    try await database.execute(
      """
      insert into push.outbox (app, kind, payload, recipients, ring_seconds)
      values ('porteiro', '\(kind)', $json$\(payload)$json$, $json$\(recipients)$json$,
        \(seconds.map(String.init) ?? "null"))
      """)
  }

  /// The least time to live, in seconds, that is right for an invite which a provider has accepted. The gateway's estimate of the
  /// database's clock is wrong by up to half a round trip.
  func timeToLiveMin(of callID: String, _ push: AcceptedPush) async throws -> Int {
    let deadline = try await database.value(
      "select floor(extract(epoch from deadline_at))::bigint from push.outbox where call_id = '\(callID)'")
    return try #require(Int(deadline)) - Int(push.at / 1_000_000) - 5
  }

  func end(_ callID: String, _ reason: String = "ended") async throws {
    _ = try await database.value("select push.end_call('\(callID)', '\(reason)')")
    try await followed()
  }

  /// - Parameter token: the phone's token, if known.
  func answer(_ callID: String, by user: String, with token: String? = nil) async throws {
    let device = token.map { "'\($0)'" } ?? "null"
    _ = try await database.value("select push.answer_call('\(callID)', '\(user)', device => \(device))")
    try await followed()
  }

  /// - Parameter token: the phone's token, if known.
  func decline(_ callID: String, by user: String, _ reason: String, with token: String? = nil) async throws {
    let device = token.map { "'\($0)'" } ?? "null"
    _ = try await database.value(
      "select push.decline_call('\(callID)', '\(user)', reason => '\(reason)', device => \(device))")
  }

  /// `provider kind outcome user` of each finished push, sorted.
  func history() async throws -> [String] {
    try await database.value(
      """
      select coalesce(string_agg(concat_ws(' ', provider, kind, outcome, user_id), ','
        order by provider, kind, user_id, n), '') from push.delivery_history
      """
    ).split(separator: ",").map(String.init)
  }
}

/// Valid tokens, one for each name.
enum PhoneToken {
  static let voip = String(repeating: "ab", count: 32)
  static let alert = String(repeating: "cd", count: 32)
  static func fcm(_ name: String) -> String { "fcm-registration-token-of-\(name)" }
  static func expo(_ name: String) -> String { "ExponentPushToken[\(name)]" }
}

extension AcceptedPush {
  /// The payload, parsed by another JSON parser.
  func object() throws -> [String: Any] { try parse(Data(payload)) }
}

extension [AcceptedPush] {
  func to(_ token: String) throws -> [[String: Any]] { try filter { $0.token == token }.map { try $0.object() } }
}
