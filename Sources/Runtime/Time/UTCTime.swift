// A date and time of day in UTC, as people and Postgres write it.

/// A point in wall time, as fields of the proleptic Gregorian calendar.
public struct UTCTime: Sendable, Equatable {
  public let year: Int64
  /// 1 to 12.
  public let month: Int64
  /// 1 to 31.
  public let day: Int64
  /// Microseconds since midnight.
  public let microsecondOfDay: Int64

  /// - Parameter microseconds: since 1970-01-01T00:00:00Z; may be negative.
  public init(microseconds: Int64) {
    let perDay: Int64 = 86_400_000_000
    let remainder = microseconds % perDay
    microsecondOfDay = remainder < 0 ? remainder + perDay : remainder
    // Days are counted from 0000-03-01, so that a leap day is the last of its year; 400 years have 146,097 days.
    let days = (microseconds - microsecondOfDay) / perDay + 719_468
    let era = (days >= 0 ? days : days - 146_096) / 146_097
    let dayOfEra = days - era * 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153  // 0 is March
    day = dayOfYear - (153 * shiftedMonth + 2) / 5 + 1
    month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
  }

  /// Days from 1970-01-01 to a date; the inverse of `init(microseconds:)`.
  ///
  /// - Parameters:
  ///   - year: from 0 on.
  ///   - month: 1 to 12.
  ///   - day: counted from 1; beyond the end of the month it is a day of the next.
  public static func daysSince1970(year: Int64, month: Int64, day: Int64) -> Int64 {
    let shifted = month > 2 ? year : year - 1
    let era = shifted / 400
    let yearOfEra = shifted - era * 400
    let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return era * 146_097 + dayOfEra - 719_468
  }

  /// `2026-11-21T09:05:07.000123Z` (RFC 3339); years outside 0 to 9999 get the digits they need.
  public var iso8601: String {
    var text: [UInt8] = []
    text.reserveCapacity(32)
    Self.append(year, 4, to: &text)
    text.append(UInt8(ascii: "-"))
    Self.append(month, 2, to: &text)
    text.append(UInt8(ascii: "-"))
    Self.append(day, 2, to: &text)
    text.append(UInt8(ascii: "T"))
    let second = microsecondOfDay / 1_000_000
    Self.append(second / 3600, 2, to: &text)
    text.append(UInt8(ascii: ":"))
    Self.append(second / 60 % 60, 2, to: &text)
    text.append(UInt8(ascii: ":"))
    Self.append(second % 60, 2, to: &text)
    text.append(UInt8(ascii: "."))
    Self.append(microsecondOfDay % 1_000_000, 6, to: &text)
    text.append(UInt8(ascii: "Z"))
    return String(decoding: text, as: UTF8.self)
  }

  /// Appends a number with at least `width` digits.
  private static func append(_ number: Int64, _ width: Int, to text: inout [UInt8]) {
    var rest = number.magnitude
    let start = text.count
    while rest > 0 || text.count < start + width - (number < 0 ? 1 : 0) {
      text.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10))
      rest /= 10
    }
    if number < 0 { text.append(UInt8(ascii: "-")) }
    text[start...].reverse()
  }
}
