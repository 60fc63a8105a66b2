// The limit of TLS messages on an open connection. OpenSSL processes such messages without returning as long as there
// are any, and has no limit of its own.

/// Counts the TLS messages that the peer sends after the handshake. These are tickets, which come once, and key
/// updates, which honest peers send after gigabytes.
struct TLSMessageCount {
  private static let perMinuteMax = 64

  private var count = 0
  private var minuteEnd = Instant(nanoseconds: .min)

  var isExceeded: Bool { count > Self.perMinuteMax }

  mutating func add(at now: Instant) {
    if minuteEnd <= now {
      minuteEnd = now + .seconds(60)
      count = 0
    }
    count += 1
  }
}
