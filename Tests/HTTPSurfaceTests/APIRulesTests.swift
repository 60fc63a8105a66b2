// The rules of the HTTP API that need no server: the form of keys, rates, JSON limits.

import HTTPSurfaceTestSupport
import Runtime
import Synchronization
import TestTime
import Testing

@testable import HTTPSurface

struct APIRulesTests {
  private static let secret = String(repeating: "s_", count: 16)

  @Test func `a key consists of its number and the digest of the whole text, including underscores in the secret`()
    throws
  {
    let key = try #require(APIKey(authorization: "bEARER pgk_12_\(Self.secret)"))
    #expect(key.id == 12)
    #expect(key.hash == SHA256.digest(Array("pgk_12_\(Self.secret)".utf8)))
  }

  @Test(arguments: [
    "", "Bearer", "Bearer ", "Basic pgk_1_\(secret)", "Bearer pgk_0_\(secret)", "Bearer pgk_-1_\(secret)",
    "Bearer pgk_2147483648_\(secret)", "Bearer pgk_1_short", "Bearer pgk_١_\(secret)", "Bearer xyz_1_\(secret)",
    "Bearer pgk_1_" + String(repeating: "x", count: 300),
  ])
  func `a text without the form of a key is refused`(_ authorization: String) {
    #expect(APIKey(authorization: authorization) == nil)
  }

  @Test func `each key has a limit of its own for its rate and for its requests in flight`() throws {
    let clock = ManualClock()
    let traffic = APITraffic(perSecond: 10_000, clock: clock)
    for _ in 0..<APITraffic.inFlightMax { try traffic.begin(1) }
    #expect(throws: APIProblem.self) { try traffic.begin(1) }
    try traffic.begin(2)
    traffic.end(1)
    try traffic.begin(1)
    // Exactly one second's worth may come at once.
    for perSecond in [1, 20] {
      let slow = APITraffic(perSecond: perSecond, clock: clock)
      for _ in 0..<perSecond { try slow.begin(1) }
      #expect(throws: APIProblem.self) { try slow.begin(1) }
      clock.advance(.milliseconds(1_000 / Int64(perSecond)))
      try slow.begin(1)
      #expect(throws: APIProblem.self) { try slow.begin(1) }
    }
  }

  @Test(arguments: [
    ("1", true), ("-1.5e-10", true), ("1e330", true), ("1e331", false), ("1e-99999999999999999999", false),
    (String(repeating: "9", count: 64), true), (String(repeating: "9", count: 65), false),
  ])
  func `a number is stored unless it is absurd`(_ text: String, _ isReasonable: Bool) {
    #expect(PostgresJSONCheck.isReasonable(Array(text.utf8)[...]) == isReasonable)
  }

  @Test(arguments: [
    (#"plain"#, true), (#"\\u0000"#, true), (#"\u0000"#, false), (#"a\\\u0000"#, false), (#"\ud83d\ude00"#, true),
    (#"\uD83D\uDE00\uDE00"#, false), (#"\ud83d"#, false), (#"\ud83dx"#, false), (#"\ud83d\n"#, false),
    (#"\ude00\ud83d"#, false), (#"\u0001\""#, true),
  ])
  func `a string is stored unless Postgres has no such text`(_ contents: String, _ isStored: Bool) {
    #expect((PostgresJSONCheck.fault(inString: Array(contents.utf8)[...]) == nil) == isStored)
  }
}
