// The events of a dispatcher: reports and answers of the store, reports of providers, and the end.

public import Providers
public import Queue
public import Runtime

/// What a receipt said of a token, if it was not success.
public struct ReceiptFailure: Sendable {
  var token: [UInt8]
  var outcome: PushOutcome
}

/// An event for `DispatcherMachine`. Each call of the store has exactly one answer, even if it failed.
public enum DispatcherEvent: Sendable {
  /// The store reports an event of its own.
  case outbox(OutboxEvent)

  /// The answer to `register`.
  ///
  /// - askedAt: when the call was made. What the answer confirms counts from then.
  case registered(Result<Void, OutboxError>, askedAt: Instant)
  /// The answer to `beat`: whether this gateway is alive.
  case beaten(Result<Bool, OutboxError>, askedAt: Instant)
  /// The answer to `claim`.
  case claimed(number: Int32, Result<Claimed, OutboxError>)
  /// The answer to `forget`: number of rows that went back.
  case forgotten(number: Int32, Result<Int, OutboxError>)
  /// The answer to `scan`.
  case scanned(Result<ClaimedPage, OutboxError>)
  /// The answer to `write`.
  case written(batch: Int, Result<OutboxWriteAnswer, OutboxError>)
  /// The answer to `lookUpEnded`.
  case endedFound(Result<EndedRings, OutboxError>)
  /// The answer to `sync`.
  case synced(Result<Void, OutboxError>)
  /// The answer to `claimJob`.
  case jobClaimed(JobKind, Result<String?, OutboxError>)
  /// The answer to `runJob`.
  case jobRan(JobKind, Result<[Tally], OutboxError>)
  /// The answer to `followUp`: how many were taken.
  case followedUp(JobKind, Result<Int, OutboxError>)
  /// The answer to `report`.
  case reported(Result<Void, OutboxError>)

  /// A lane's provider reports.
  ///
  /// - lane: the index of the lane, not its id.
  case provider(PushProviderEvent, lane: Int)
  /// News from another dispatcher of a lane's account.
  case told(LaneNews, lane: Int)
  /// Receipts of a lane's earlier pushes. Like answers they concern tokens, credentials and limits.
  case receipts([ReceiptFailure], lane: Int)

  /// The gateway stops. It claims nothing more, returns what waits, and lets requests in flight finish.
  case drain
}
