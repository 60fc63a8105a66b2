// What SQL did without a gateway: rows of push.tally, added up, for the counters of the replica that takes them.

public import PushModel
public import Runtime

/// The number of events of one kind that no gateway saw.
public struct Tally: Sendable, Equatable {
  public enum Event: Sendable, Equatable {
    /// Deliveries of the lane that ended with their call or at their deadline.
    ///
    /// - isUntried: whether they were never sent.
    case ended(PushKind, DeliveryOutcome, reason: String, isUntried: Bool)
    /// Calls enqueued.
    case enqueued
    /// Statements refused because of the app's quota.
    case refused
    /// Missed calls announced: at the deadline, or because the call ended.
    case missed(isDeadline: Bool)
    /// A phone reported that it rings, `after` the call was enqueued.
    case rang(after: Nanoseconds)
    /// Tokens of the lane that are newly dead.
    case invalidated
    /// Tokens of the lane that were called dead while its invalidation is on hold.
    case quarantined
  }

  public var event: Event
  public var app: String
  /// The lane's provider, with its service if it has several; nil where the app as a whole is meant.
  public var channel: String?
  public var count: Int

  public init(_ event: Event, app: String, channel: String? = nil, count: Int = 1) {
    self.event = event
    self.app = app
    self.channel = channel
    self.count = count
  }
}

extension Tally {
  /// The columns of `OutboxStatements.takeTally`, in order.
  private enum Column: Int {
    case what, app, channel, kind, outcome, reason, untried, count, seconds
  }

  /// A row of `push.take_tally`; nil for what this version does not know.
  init?(_ result: PostgresResult, _ row: Int) {
    func text(_ column: Column) -> String { result.text(row, column.rawValue) }
    let event: Event
    switch text(.what) {
    case "ended":
      guard let kind = PushKind(rawValue: UInt8(clamping: result.int16(row, Column.kind.rawValue))),
        let outcome = DeliveryOutcome(rawValue: UInt8(clamping: result.int16(row, Column.outcome.rawValue)))
      else { return nil }
      event = .ended(
        kind, outcome, reason: text(.reason), isUntried: result.bool(row, Column.untried.rawValue))
    case "enqueued": event = .enqueued
    case "refused": event = .refused
    case "missed": event = .missed(isDeadline: text(.reason) == "deadline")
    case "rang":
      event = .rang(after: Nanoseconds(Int64(min(result.double(row, Column.seconds.rawValue), 1e6) * 1e9)))
    case "invalidated": event = .invalidated
    case "quarantined": event = .quarantined
    default: return nil
    }
    self.init(
      event, app: text(.app), channel: result.isNull(row, Column.channel.rawValue) ? nil : text(.channel),
      count: Int(result.int64(row, Column.count.rawValue)))
  }
}
