// Compares Retry-After and Date (RFC 9110 §5.6.7, §10.2.3) with the C library's result for the same date.
//
// Input: a line of text for Retry-After, one for Date, then eight bytes that define another date.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// Glibc's header declares it only for XPG programs.
@_silgen_name("strptime")
private func strptime(
  _ text: UnsafePointer<CChar>, _ format: UnsafePointer<CChar>, _ time: UnsafeMutablePointer<tm>
) -> UnsafePointer<CChar>?

enum HTTPDateFuzz {
  private static let limits: ClosedRange<Int64> = 0...7_258_118_400

  static func run(_ input: FuzzInput) {
    var input = input
    let (value, date) = (input.line(), input.line())
    check(value)
    check(date)
    let after = RetryAfter.parse(value, date: input.isAtEnd ? nil : date, wallMilliseconds: 1_700_000_000_000)
    require(after.map { Nanoseconds.zero...RetryAfter.max ~= $0 } ?? true, "Retry-After out of its range")
    let number = String(validating: value, as: UTF8.self).flatMap {
      $0.first == "+" || $0.first == "-" ? nil : Int64($0)
    }
    if let number, value.count <= 18 {
      require(after == .seconds(min(number, 86_400)), "another number of seconds than there stands")
    }
    var meter = ClockSkewMeter()
    let skew = meter.measure(date[...], on: 0, now: Instant(nanoseconds: 0), wallMilliseconds: 1_700_000_000_000)
    if let skew { _ = meter.warns(of: skew, now: Instant(nanoseconds: 0)) }
    roundTrip(Int64(input.number(bytes: 8) % UInt64(limits.upperBound)))
  }

  /// A text that is read as a date is the same date for the C library.
  private static func check(_ text: [UInt8]) {
    guard let seconds = HTTPDate.seconds(text) else { return }
    require(limits ~= seconds, "a date out of its range")
    guard let text = String(validating: text, as: UTF8.self), !text.contains("\0") else { return }
    for format in ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"] {
      var time = tm()
      let isWhole = text.withCString { strptime($0, format, &time).map { $0.pointee == 0 } ?? false }
      guard isWhole, time.tm_mday > 0 else { continue }
      // The formats do not agree on the century of a year with two digits.
      if time.tm_year < 70 || !text.contains(String(time.tm_year + 1900)) { continue }
      let expected = min(max(Int64(timegm(&time)), limits.lowerBound), limits.upperBound)
      require(seconds == expected, "another date than the C library reads: \(seconds) and \(expected)")
    }
  }

  /// Each of the three forms of a date is read as the same date.
  private static func roundTrip(_ seconds: Int64) {
    var (clock, time) = (time_t(seconds), tm())
    gmtime_r(&clock, &time)
    var formats = ["%a, %d %b %Y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"]
    if time.tm_year + 1900 < 2070 { formats.append("%A, %d-%b-%y %H:%M:%S GMT") }
    for format in formats {
      var text = [UInt8](repeating: 0, count: 64)
      let count = text.withUnsafeMutableBytes { strftime($0.baseAddress!, $0.count, format, &time) }
      require(HTTPDate.seconds(Array(text[..<count])) == seconds, "a date is not read as it was written: \(seconds)")
    }
  }
}
