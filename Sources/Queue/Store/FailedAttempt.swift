// A try that did not end a delivery, as history keeps it.

public import Runtime

/// One failed try.
public struct FailedAttempt: Sendable {
  /// Maximum length of a list of failed tries. The oldest are dropped.
  public static let keptMax = 20

  /// When its outcome was known.
  public var at: Instant
  /// Which try it was, from 1.
  public var attempt: Int32
  /// The HTTP status; 0 where there was none.
  public var status: UInt16
  /// Why, in the provider's word or ours.
  public var reason: String
  /// It was sent over two connections.
  public var isHedged: Bool

  public init(at: Instant, attempt: Int32, status: UInt16, reason: String, isHedged: Bool = false) {
    self.at = at
    self.attempt = attempt
    self.status = status
    self.reason = reason
    self.isHedged = isHedged
  }
}

extension [FailedAttempt] {
  /// Adds a failed try, and drops the oldest above `keptMax`.
  public mutating func note(_ failure: FailedAttempt) {
    if count >= FailedAttempt.keptMax { removeFirst() }
    append(failure)
  }

  /// What `push.history.failures` holds, as JSON text; nil for none.
  func json(_ clock: DatabaseClock) -> [UInt8]? {
    guard !isEmpty else { return nil }
    var writer = JSONWriter()
    writer.beginArray()
    for failure in self {
      writer.beginObject()
      if let at = clock.microseconds(at: failure.at) {
        writer.key("at")
        writer.string(UTCTime(microseconds: at).iso8601)
      }
      writer.key("attempt")
      writer.integer(Int64(failure.attempt))
      writer.key("status")
      writer.integer(Int64(failure.status))
      writer.key("reason")
      writer.string(failure.reason.utf8.filter { $0 != 0 })  // jsonb has no NUL either
      if failure.isHedged {
        writer.key("hedged")
        writer.boolean(true)
      }
      writer.endObject()
    }
    writer.endArray()
    return writer.bytes
  }
}
