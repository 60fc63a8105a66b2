// The `date` header of a response (RFC 9110 §5.6.7), formatted at most once a second.

#if canImport(Glibc)
internal import Glibc
#elseif canImport(Darwin)
internal import Darwin
#endif

/// The last date formatted, used for all responses in the same second.
struct ResponseDate {
  private var second = Int64.min
  private var bytes: [UInt8] = []

  /// "Sun, 06 Nov 1994 08:49:37 GMT".
  ///
  /// - Parameter second: seconds since 1970.
  mutating func text(at second: Int64) -> [UInt8] {
    guard second != self.second else { return bytes }
    self.second = second
    var time = time_t(second)
    var parts = unsafe tm()
    unsafe gmtime_r(&time, &parts)
    // The process sets no locale, so the names are English.
    var text = [CChar](repeating: 0, count: 40)
    let count = unsafe strftime(&text, text.count, "%a, %d %b %Y %H:%M:%S GMT", &parts)
    bytes = text.prefix(count).map { UInt8(bitPattern: $0) }
    return bytes
  }
}
