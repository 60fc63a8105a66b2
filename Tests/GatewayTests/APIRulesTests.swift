// The pure rules of the HTTP API: keys that are believed for a moment, rates, being busy.

import Runtime
import Synchronization
import Testing

@testable import Gateway

/// Keys, paths, limits: what needs no server.
struct APIRulesTests {
  private final class ManualClock: GatewayClock {
    private let time = Mutex(Instant(nanoseconds: 0))
    func now() -> Instant { time.withLock { $0 } }
    func wallMilliseconds() -> Int64 { 0 }
    func advance(_ duration: Nanoseconds) { time.withLock { $0 = $0 + duration } }
  }

  private final class KeyTable: Sendable {
    let keys = Mutex<[Int32: KnownAPIKey]>([:])
    let questions = Mutex(0)
    func find(_ id: Int32) -> KnownAPIKey? {
      questions.withLock { $0 += 1 }
      return keys.withLock { $0[id] }
    }
  }

  private static let secret = String(repeating: "s_", count: 16)

  @Test func `a key is its number and the digest of all of it, underscores in the secret included`() throws {
    let key = try #require(APIKey(authorization: "bEARER pgk_12_\(Self.secret)"))
    #expect(key.id == 12)
    #expect(key.hash == SHA256.digest(Array("pgk_12_\(Self.secret)".utf8)))
  }

  @Test(arguments: [
    "", "Bearer", "Bearer ", "Basic pgk_1_\(secret)", "Bearer pgk_0_\(secret)", "Bearer pgk_-1_\(secret)",
    "Bearer pgk_2147483648_\(secret)", "Bearer pgk_1_short", "Bearer pgk_١_\(secret)", "Bearer xyz_1_\(secret)",
    "Bearer pgk_1_" + String(repeating: "x", count: 300),
  ])
  func `what cannot be a key is none`(_ authorization: String) {
    #expect(APIKey(authorization: authorization) == nil)
  }

  @Test func `an answer about a key is believed for two seconds`() async throws {
    let clock = ManualClock()
    let table = KeyTable()
    let ring = APIKeyring(clock: clock) { id throws(APIProblem) in table.find(id) }
    let text = "Bearer pgk_7_\(Self.secret)"
    let key = try #require(APIKey(authorization: text))
    await #expect(throws: APIProblem.self) { try await ring.client(authorization: text, scope: .read) }
    table.keys.withLock { $0[7] = KnownAPIKey(app: "a", scopes: ["read"], hash: key.hash) }
    await #expect(throws: APIProblem.self) { try await ring.client(authorization: text, scope: .read) }
    clock.advance(.seconds(2))
    #expect(try await ring.client(authorization: text, scope: .read) == APIClient(keyID: 7, app: "a"))
    table.keys.withLock { $0[7] = nil }
    clock.advance(.milliseconds(1_999))
    #expect(try await ring.client(authorization: text, scope: .read).app == "a")
    clock.advance(.milliseconds(1))
    await #expect(throws: APIProblem.self) { try await ring.client(authorization: text, scope: .read) }
    #expect(table.questions.withLock { $0 } == 3)
  }

  @Test func `guessing keys asks the database only so often, and does not lock out a key that is known`() async throws {
    let clock = ManualClock()
    let table = KeyTable()
    let ring = APIKeyring(clock: clock) { id throws(APIProblem) in table.find(id) }
    let text = "Bearer pgk_1_\(Self.secret)"
    let key = try #require(APIKey(authorization: text))
    table.keys.withLock { $0[1] = KnownAPIKey(app: "a", scopes: ["read"], hash: key.hash) }
    _ = try await ring.client(authorization: text, scope: .read)
    var names: Set<String> = []
    for id in 2..<5_000 {
      do throws(APIProblem) {
        _ = try await ring.client(authorization: "Bearer pgk_\(id)_\(Self.secret)", scope: .read)
      } catch {
        names.insert(error.name)
      }
    }
    #expect(names == ["unauthorized", "too-many-requests"])
    #expect(table.questions.withLock { $0 } <= 1 + APIKeyring.strangersPerSecond)
    clock.advance(.seconds(3))
    for id in 5_000..<6_000 {
      _ = try? await ring.client(authorization: "Bearer pgk_\(id)_\(Self.secret)", scope: .read)
    }
    #expect(try await ring.client(authorization: text, scope: .read).app == "a")
  }

  @Test func `a key has a rate and a number of requests at a time, each its own`() throws {
    let clock = ManualClock()
    let traffic = APITraffic(perSecond: 10_000, clock: clock)
    for _ in 0..<APITraffic.inFlightMax { try traffic.begin(1) }
    #expect(throws: APIProblem.self) { try traffic.begin(1) }
    try traffic.begin(2)
    traffic.end(1)
    try traffic.begin(1)
    let slow = APITraffic(perSecond: 2, clock: clock)
    try slow.begin(1)
    slow.end(1)
    #expect(throws: APIProblem.self) { try slow.begin(1) }
    clock.advance(.milliseconds(500))
    try slow.begin(1)
  }

  @Test(arguments: [
    ("1", true), ("-1.5e-10", true), ("1e330", true), ("1e331", false), ("1e-99999999999999999999", false),
    (String(repeating: "9", count: 64), true), (String(repeating: "9", count: 65), false),
  ])
  func `a number is stored unless it is absurd`(_ text: String, _ isReasonable: Bool) {
    #expect(JSONStorability.isReasonable(Array(text.utf8)[...]) == isReasonable)
  }

  @Test(arguments: [
    (#"plain"#, true), (#"\\u0000"#, true), (#"\u0000"#, false), (#"a\\\u0000"#, false), (#"\ud83d\ude00"#, true),
    (#"\uD83D\uDE00\uDE00"#, false), (#"\ud83d"#, false), (#"\ud83dx"#, false), (#"\ud83d\n"#, false),
    (#"\ude00\ud83d"#, false), (#"\u0001\""#, true),
  ])
  func `a string is stored unless Postgres has no such text`(_ contents: String, _ isStored: Bool) {
    #expect((JSONStorability.fault(inString: Array(contents.utf8)[...]) == nil) == isStored)
  }
}
