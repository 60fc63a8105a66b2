// What Postgres' notifications mean, and how many of them are read. Pure.

internal import Runtime

/// A notification on one of the channels we listen to.
enum OutboxNotification: Equatable {
  case bell
  /// This call has ended; nil if many have.
  case ended(outboxID: Int64?)
  case invalidationResumed(lane: Int16)

  /// Maximum length of a payload that is read. A longer one is not ours. It may have 8,000 bytes and take long to decode.
  private static let bytesMax = 64

  /// The bell; on the control channel `void <outbox id>`, `void *` and `resume <lane id>`. Nil for what this version does not know.
  init?(channel: String, payload: String) {
    guard payload.utf8.count <= Self.bytesMax else { return nil }
    let words = payload.split(separator: " ")
    switch (channel, words.first, words.last) {
    case ("push_outbox", _, _): self = .bell
    case (_, "void", "*"): self = .ended(outboxID: nil)
    case (_, "void", let id?):
      guard let id = Int64(id) else { return nil }
      self = .ended(outboxID: id)
    case (_, "resume", let lane?):
      guard let lane = Int16(lane) else { return nil }
      self = .invalidationResumed(lane: lane)
    default: return nil
    }
  }
}

/// The hints of one turn of the loop. They become one event.
struct EndedHints {
  /// Maximum number of calls that are kept by id. Above it the event is `manyMayHaveEnded`.
  static let idsMax = 10_000

  private var ids: [Int64] = []
  private var areMany = false

  /// Adds a hint. Returns whether it is the first.
  mutating func note(_ outboxID: Int64?) -> Bool {
    let isFirst = ids.isEmpty && !areMany
    if let outboxID, !areMany, ids.count < Self.idsMax {
      ids.append(outboxID)
    } else {
      areMany = true
      ids = []
    }
    return isFirst
  }

  /// Removes all hints and returns them as one event.
  mutating func dequeue() -> OutboxEvent? {
    defer { self = EndedHints() }
    return areMany ? .manyMayHaveEnded : ids.isEmpty ? nil : .mayHaveEnded(ids)
  }
}

/// Maximum rate of notifications. A busy gateway hears a few thousand a second. Above the limit an attacker sends them, and reading
/// them would take the loop's time from sending.
struct NotificationLimit {
  /// Maximum number of notifications in one second.
  static let countMax = 20_000
  /// Maximum bytes of payloads in one second.
  static let bytesMax = 1_048_576
  /// How long the listener is closed after the limit was exceeded.
  static let rest = Nanoseconds.seconds(5)

  private var count = 0
  private var bytes = 0
  private var since: Instant?

  /// Whether to read a notification that came now.
  ///
  /// - Parameter size: size of its payload in bytes.
  mutating func admit(_ now: Instant, size: Int = 0) -> Bool {
    if since.map({ now - $0 >= .seconds(1) }) ?? true {
      since = now
      count = 0
      bytes = 0
    }
    count += 1
    bytes += size
    return count <= Self.countMax && bytes <= Self.bytesMax
  }
}
