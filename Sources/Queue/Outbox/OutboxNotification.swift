// What Postgres' notifications say, and how many of them are listened to. Pure.

internal import Runtime

/// A notification on one of the channels we listen to.
enum OutboxNotification: Equatable {
  case bell
  /// This call has ended; nil: many have.
  case ended(outboxID: Int64?)
  case invalidationResumed(lane: Int16)

  /// What is longer is somebody else's: it may have 8,000 bytes, and characters whose borders take long to find.
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

/// Hints of one turn of the loop, which become one event.
struct EndedHints {
  /// More than these are as good as "many".
  static let idsMax = 10_000

  private var ids: [Int64] = []
  private var areMany = false

  /// Takes a hint; returns whether it is the first.
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

  /// What they come to; they are then gone.
  mutating func dequeue() -> OutboxEvent? {
    defer { self = EndedHints() }
    return areMany ? .manyMayHaveEnded : ids.isEmpty ? nil : .mayHaveEnded(ids)
  }
}

/// Maximum rate of notifications. A gateway of a busy house hears a few thousand a second; above the limit somebody sends them
/// who means no good, and reading them would take the loop's time from sending.
struct NotificationLimit {
  /// Within one second.
  static let countMax = 20_000
  /// Of payloads, within one second.
  static let bytesMax = 1_048_576
  /// For how long nothing is heard once there were more.
  static let rest = Nanoseconds.seconds(5)

  private var count = 0
  private var bytes = 0
  private var since: Instant?

  /// Whether a notification that came now is to be read.
  ///
  /// - Parameter size: of its payload, bytes.
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
