// Which reasons for not reaching the database are worth a line. Pure.

public import Runtime

/// A reason is logged when it is new and at intervals while it lasts. Otherwise six connections that retry every two seconds would
/// fill the log.
public struct Complaints {
  private static let interval = Nanoseconds.seconds(60)
  /// Maximum number of reasons that are told apart.
  private static let reasonsMax = 16

  private var saidAt: [String: Instant] = [:]

  public init() {}

  /// Whether to log this reason now.
  public mutating func isNew(_ reason: String, _ now: Instant) -> Bool {
    let key = saidAt[reason] != nil || saidAt.count < Self.reasonsMax ? reason : ""
    if let last = saidAt[key], now < last + Self.interval { return false }
    saidAt[key] = now
    return true
  }
}
