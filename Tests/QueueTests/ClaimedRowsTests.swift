import PushModel
import Queue
import Runtime
import TestSupport
import Testing

@Suite("Rows of a claim")
struct ClaimedRowsTests {
  /// When all rows were made: 2026-01-01.
  private static let createdAt: Int64 = 1_767_225_600_000_000

  private static func lease(_ outboxID: Int64, _ pushNumber: Int32) -> DeliveryLease {
    DeliveryLease(outboxID: outboxID, pushNumber: pushNumber, lease: 9, createdAtMicroseconds: createdAt)
  }

  /// As the columns of the claim: a row of an apartment's call, which has the call's texts or has them elsewhere.
  private static func row(
    _ outboxID: Int, _ number: Int, kind: Int = 0, environment: Int = 1, platform: Int = 2, call: String?,
    isDeleted: Bool = false, data: String? = nil, isPaired: Bool = false, declined: String? = nil
  ) -> String {
    let decliners = declined.map { "'\($0)'::jsonb" } ?? "null"
    let texts = call.map {
      "true, 'incoming_call', '\($0)', null::text, '00-trace', \(decliners), jsonb_build_object('callId', '\($0)')"
    }
    let isOver = isDeleted ? "true" : "null::bool"
    return """
      select '(\(outboxID + 70_000),\(number + 3))'::tid, 4::int2, \(outboxID)::int8, \(number)::int4, 70000::int4, \(kind)::int2, 2::int2,
        \(environment)::int2, \(platform)::int2, '2026-01-01 00:00Z'::timestamptz, '2026-01-01 00:01Z'::timestamptz, 30000000::int8, \(isPaired), 'user-\(number)',
        'token-\(number)', null::text, \(data.map { "'\($0)'" } ?? "null")::jsonb, \(texts ?? "\(isOver), null, null, null, null, null, null::jsonb")
      """
  }

  private func claimed(_ rows: [String]) async throws -> Claimed {
    try await TestDatabase.with(.empty) { database in
      let connection = try await database.connect()
      let text = rows.joined(separator: "\nunion all\n")
      let result = try await connection.query(PostgresStatement(name: "rows", text: text))
      await connection.close()
      let asked = Instant(nanoseconds: 1_000)
      return ClaimedRows(result, number: 9, asked: asked).claimed { delivery, remaining in
        #expect(remaining == 30_000_000)
        #expect(delivery.deadline == asked + .seconds(30))
      }
    }
  }

  @Test("one row of each call, any of them, has the call's texts; its deliveries share them")
  func sharing() async throws {
    let claimed = try await claimed([
      Self.row(1, 0, call: nil), Self.row(2, 0, call: "two"), Self.row(1, 1, call: "one"), Self.row(2, 1, call: nil),
      Self.row(1, 2, call: "one", data: #"{"phone": "+31 6"}"#),
    ])
    let deliveries = claimed.deliveries
    #expect(claimed.unreadable.isEmpty)
    #expect(deliveries.map { String(decoding: $0.callID, as: UTF8.self) } == ["one", "two", "one", "two", "one"])
    #expect(deliveries[0].call === deliveries[2].call && deliveries[0].call === deliveries[4].call)
    #expect(deliveries[1].call === deliveries[3].call)
    let first = deliveries[0]
    #expect(first.lease == Self.lease(1, 0))
    #expect(first.place == DeliveryPlace(block: 70_001, offset: 3))
    #expect(first.attempt == 70_000)
    #expect(first.crashes == 2)
    #expect(first.environment == .sandbox && first.platform == .android)
    #expect(first.call.isOver)
    #expect(first.userID.elementsEqual("user-0".utf8) && first.token.elementsEqual("token-0".utf8))
    #expect(first.locale == nil && first.endReason == nil && first.texts.data == nil)
    let brought = try #require(deliveries[4].texts.data)
    #expect(String(decoding: deliveries[4].bytes[brought], as: UTF8.self) == #"{"phone": "+31 6"}"#)
    #expect(deliveries[4].token.elementsEqual("token-2".utf8))
    #expect(first.callKind.elementsEqual("incoming_call".utf8))
    #expect(first.traceparent?.elementsEqual("00-trace".utf8) == true)
    #expect(String(decoding: first.payload, as: UTF8.self) == #"{"callId": "one"}"#)
  }

  @Test("a claim says which phones are told of the end twice, and who has declined")
  func pairsAndDecliners() async throws {
    let claimed = try await claimed([
      Self.row(1, 0, call: nil, isPaired: true), Self.row(1, 1, call: "one", declined: #"["user-1", "j\"ö"]"#),
      Self.row(2, 1, call: "two"),
    ])
    #expect(claimed.deliveries.map(\.isPaired) == [true, false, false])
    #expect(claimed.deliveries[0].call.decliners == [Array("user-1".utf8), Array("j\"ö".utf8)])
    #expect(String(decoding: claimed.deliveries[0].payload, as: UTF8.self) == #"{"callId": "one"}"#)
    #expect(claimed.deliveries[2].call.decliners.isEmpty)
  }

  @Test(
    "rows of an unknown kind, and rows without their call, are leases to return and no deliveries"
  )
  func unreadable() async throws {
    let claimed = try await claimed([
      Self.row(1, 0, kind: 9, call: "one"), Self.row(1, 1, call: nil), Self.row(2, 0, call: nil),
      Self.row(1, 2, kind: -1, call: nil),
    ])
    #expect(
      claimed.deliveries.map(\.key) == [DeliveryKey(outboxID: 1, pushNumber: 1, createdAtMicroseconds: Self.createdAt)])
    #expect(
      claimed.unreadable == [
        Self.lease(1, 0), Self.lease(2, 0),
        Self.lease(1, 2),
      ])
    #expect(claimed.orphans.isEmpty)
  }

  @Test("an environment that this version does not know counts as production, a platform as unknown")
  func unknownCodes() async throws {
    let claimed = try await claimed([
      Self.row(1, 0, environment: 2, platform: 4, call: "one"),
      Self.row(1, 1, environment: -1, platform: 300, call: nil),
    ])
    #expect(claimed.deliveries.map(\.environment) == [.production, .production])
    #expect(claimed.deliveries.map(\.platform) == [.unknown, .unknown])
  }

  @Test("rows of an ended call without its columns belong to a deleted call")
  func orphans() async throws {
    let claimed = try await claimed([
      Self.row(1, 0, call: nil, isDeleted: true), Self.row(2, 0, call: "two"), Self.row(1, 1, call: nil),
    ])
    #expect(
      claimed.deliveries.map(\.key) == [DeliveryKey(outboxID: 2, pushNumber: 0, createdAtMicroseconds: Self.createdAt)])
    #expect(claimed.unreadable.isEmpty)
    #expect(
      claimed.orphans == [
        Self.lease(1, 0), Self.lease(1, 1),
      ])
  }
}
