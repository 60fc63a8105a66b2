// The Retry-After header (RFC 9110 §10.2.3): a number of seconds, or a date.

public import Runtime

/// Reads `Retry-After`.
public enum RetryAfter {
  /// Maximum wait. No provider asks for more; a longer wait is shortened to this.
  public static let max = Nanoseconds.seconds(86_400)

  /// The time to wait; nil if the header cannot be parsed.
  ///
  /// A date is compared with the answer's own `Date`, so clock differences do not matter.
  /// - Parameters:
  ///   - date: the answer's `Date` header.
  ///   - wallMilliseconds: our own clock, used if there is no `Date`.
  public static func parse(_ value: [UInt8], date: [UInt8]?, wallMilliseconds: Int64) -> Nanoseconds? {
    if let seconds = digits(value[...], lengthMax: 18) { return min(.seconds(min(seconds, 86_400)), max) }
    guard let until = HTTPDate.seconds(value) else { return nil }
    let now = date.flatMap(HTTPDate.seconds) ?? wallMilliseconds / 1000
    return .seconds(Swift.max(0, Swift.min(until - now, 86_400)))
  }

  fileprivate static func digits(_ text: ArraySlice<UInt8>, lengthMax: Int) -> Int64? {
    guard !text.isEmpty, text.count <= lengthMax else { return nil }
    var number: Int64 = 0
    for byte in text {
      guard UInt8(ascii: "0")...UInt8(ascii: "9") ~= byte else { return nil }
      number = number * 10 + Int64(byte - UInt8(ascii: "0"))
    }
    return number
  }
}

/// Parses dates of HTTP (RFC 9110 §5.6.7), including the two obsolete forms, which a recipient must accept.
enum HTTPDate {
  private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    .map { Array($0.utf8) }

  /// Dates are clamped to 1970 to 2200, so that arithmetic on them stays within the range of nanoseconds.
  private static let range: ClosedRange<Int64> = 0...7_258_118_400

  /// Seconds since 1970; nil if the text is not an HTTP date. The name of the weekday is not checked.
  static func seconds(_ text: [UInt8]) -> Int64? {
    guard text.count <= 64 else { return nil }
    let words = text.split { $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: ",") || $0 == UInt8(ascii: "-") }
    let gmt = Array("GMT".utf8)
    if words.count == 6, words[5].elementsEqual(gmt) {  // Sun, 06 Nov 1994 08:49:37 GMT; Sunday, 06-Nov-94 08:49:37 GMT
      return seconds(year: words[3], month: words[2], day: words[1], time: words[4])
    }
    if words.count == 5 {  // Sun Nov  6 08:49:37 1994
      return seconds(year: words[4], month: words[1], day: words[2], time: words[3])
    }
    return nil
  }

  private static func seconds(
    year: ArraySlice<UInt8>, month: ArraySlice<UInt8>, day: ArraySlice<UInt8>, time: ArraySlice<UInt8>
  ) -> Int64? {
    let clock = time.split(separator: UInt8(ascii: ":"), omittingEmptySubsequences: false)
    guard let monthIndex = months.firstIndex(where: { $0.elementsEqual(month) }), clock.count == 3,
      var year = RetryAfter.digits(year, lengthMax: 4), let day = RetryAfter.digits(day, lengthMax: 2),
      let hour = RetryAfter.digits(clock[0], lengthMax: 2), let minute = RetryAfter.digits(clock[1], lengthMax: 2),
      let second = RetryAfter.digits(clock[2], lengthMax: 2),
      1...31 ~= day, hour < 24, minute < 60, second <= 60
    else { return nil }
    if year < 100 { year += year < 70 ? 2000 : 1900 }
    let days = UTCTime.daysSince1970(year: year, month: Int64(monthIndex) + 1, day: day)
    return min(max(((days * 24 + hour) * 60 + minute) * 60 + second, range.lowerBound), range.upperBound)
  }
}
