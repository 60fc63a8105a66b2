// Everything that a dispatcher hears: what the store says by itself, answers of the store, what providers say, and the end.

public import Providers
public import Queue
public import Runtime

/// What a push's receipt said of its token, where that was no success.
public struct ReceiptFailure: Sendable {
  public var token: [UInt8]
  public var outcome: PushOutcome

  public init(token: [UInt8], outcome: PushOutcome) {
    self.token = token
    self.outcome = outcome
  }
}

/// An event for `DispatcherMachine`. Each store action has exactly one answer, whatever becomes of it.
public enum DispatcherEvent: Sendable {
  /// The store tells something by itself.
  case outbox(OutboxEvent)

  /// The answer to `register`.
  ///
  /// - askedAt: the instant at which it was asked: what it confirms began then.
  case registered(Result<Void, OutboxError>, askedAt: Instant)
  /// The answer to `beat`.
  case beaten(Result<Beat, OutboxError>, askedAt: Instant)
  /// The answer to `claim`.
  case claimed(number: Int32, Result<Claimed, OutboxError>)
  /// The answer to `forget`: how many rows went back.
  case forgotten(number: Int32, Result<Int, OutboxError>)
  /// The answer to `reclaim`.
  case reclaimed(number: Int32, Result<[Reclaimed], OutboxError>)
  /// The answer to `confirmReclaimed`.
  case reclaimConfirmed(Result<Void, OutboxError>)
  /// The answer to `scan`.
  case scanned(Result<ClaimedPage, OutboxError>)
  /// The answer to `write`.
  case written(batch: Int, Result<OutboxWriteAnswer, OutboxError>)
  /// The answer to `lookUpEnded`: which of them have ended.
  case endedFound(Result<[Int64], OutboxError>)
  /// The answer to `sync`.
  case synced(Result<Void, OutboxError>)
  /// The answer to `takeJob`.
  case jobTaken(Result<String?, OutboxError>)
  /// The answer to `runJob`.
  case jobRan(Result<[Tally], OutboxError>)
  /// The answer to `report`.
  case reported(Result<Void, OutboxError>)

  /// A lane's provider reports.
  ///
  /// - lane: the index of the lane, not its id.
  case provider(PushProviderEvent, lane: Int)
  /// Receipts of a lane's earlier pushes: they tell of tokens, credentials and limits as answers do.
  case receipts([ReceiptFailure], lane: Int)

  /// The gateway stops: no more claims; what waits goes back, what is in flight may finish.
  case drain
}
