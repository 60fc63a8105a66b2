// Tests of Retry-After: the three date forms of RFC 9110, seconds, and invalid values.

import Runtime
import Testing

@testable import Providers

@Suite(.timeLimit(.minutes(10))) struct RetryAfterTests {
  /// Sun, 06 Nov 1994 08:49:37 GMT.
  static let moment: Int64 = 784_111_777

  private func parse(_ value: String, date: String? = nil, now: Int64 = moment) -> Nanoseconds? {
    RetryAfter.parse(Array(value.utf8), date: date.map { Array($0.utf8) }, wallMilliseconds: now * 1000)
  }

  @Test(arguments: [
    ("0", 0), ("7", 7), ("0120", 120), ("86400", 86_400), ("86401", 86_400), ("999999999999999999", 86_400),
  ])
  func `a number of seconds is read`(text: String, seconds: Int64) {
    #expect(parse(text) == .seconds(seconds))
  }

  @Test(arguments: ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"])
  func `all three date forms are read`(text: String) {
    #expect(HTTPDate.seconds(Array(text.utf8)) == Self.moment)
    #expect(parse(text, now: Self.moment - 30) == .seconds(30))
    #expect(parse(text, now: Self.moment + 30) == .seconds(0))
    #expect(parse(text, now: 0) == RetryAfter.max)
  }

  @Test func `a date is measured from the answer's own Date`() {
    let later = "Sun, 06 Nov 1994 08:50:07 GMT"
    #expect(parse(later, date: "Sun, 06 Nov 1994 08:49:37 GMT", now: Self.moment + 3600) == .seconds(30))
    #expect(parse(later, date: "nonsense", now: Self.moment + 10) == .seconds(20))
  }

  @Test(
    arguments: [
      ("Thu, 01 Jan 1970 00:00:00 GMT", 0), ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
      ("Tue, 01 Mar 2022 00:00:00 GMT", 1_646_092_800), ("Fri, 31 Dec 1999 23:59:60 GMT", 946_684_800),
      ("Mon, 01 Jan 2096 12:00:00 GMT", 3_976_257_600),
      // Kept within what nanoseconds can express.
      ("Fri, 31 Dec 9999 23:59:59 GMT", 7_258_118_400), ("Wed, 01 Jan 2200 00:00:00 GMT", 7_258_118_400),
      ("Sat, 01 Jan 0999 00:00:00 GMT", 0),
    ] as [(String, Int64)])
  func `every day of the calendar is read as its time`(text: String, seconds: Int64) {
    #expect(HTTPDate.seconds(Array(text.utf8)) == seconds)
  }

  @Test(arguments: [
    "", " ", "-1", "1.5", "7s", "soon", "Sun, 06 Nov 1994", "Sun, 06 Nov 1994 08:49 GMT",
    "Sun, 06 Foo 1994 08:49:37 GMT",
    "Sun, 32 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 25:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET",
    "Sun, xx Nov 1994 08:49:37 GMT", "9999999999999999999",
  ])
  func `an invalid value counts as missing`(text: String) {
    #expect(parse(text) == nil)
  }
}
