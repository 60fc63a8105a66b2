// Which reasons for not reaching the database are worth a line. Pure.

internal import Runtime

/// A reason is said when it is new, and every so often while it lasts: five connections that try again every two seconds would fill
/// the log.
struct Complaints {
  private static let interval = Nanoseconds.seconds(60)
  /// More reasons than these are not told apart.
  private static let reasonsMax = 16

  private var saidAt: [String: Instant] = [:]

  /// Whether this reason is to be said now.
  mutating func isNew(_ reason: String, _ now: Instant) -> Bool {
    let key = saidAt[reason] != nil || saidAt.count < Self.reasonsMax ? reason : ""
    if let last = saidAt[key], now < last + Self.interval { return false }
    saidAt[key] = now
    return true
  }
}
