// Everything that a dispatcher has done: calls of the store, requests to providers, lines in the log.

public import Logging
public import Providers
public import Queue
public import Runtime

/// A batch on its way into the outbox.
public enum OutboxWrite: Sendable {
  /// Answered by `OutboxWriteAnswer.count`, as all but the next.
  case settle([Settlement])
  /// Which of these have been written. Answered by `OutboxWriteAnswer.settled`.
  case settledAmong([Settlement])
  case park([Parking])
  case release([DeliveryLease])
  case invalidate([TokenInvalidation])
  case hold([InvalidationHold])
  case correct([EnvironmentCorrection])
}

/// What the store says to a batch.
public enum OutboxWriteAnswer: Sendable {
  /// How many of the batch were written.
  case count(Int)
  /// Which of the batch had been written.
  case settled(Set<DeliveryKey>)
}

/// A line for the log.
public struct DispatcherLogEntry: Sendable {
  public var level: Logger.Level
  public var message: Logger.Message
  public var metadata: Logger.Metadata

  public init(_ level: Logger.Level, _ message: Logger.Message, _ metadata: Logger.Metadata = [:]) {
    self.level = level
    self.message = message
    self.metadata = metadata
  }
}

/// What `DispatcherMachine` has its carrier do, in this order. Each call of the store is answered by one event.
public enum DispatcherAction: Sendable {
  case register
  case beat(mayReap: Bool)
  case claim(number: Int32, [LaneAllowance], within: ClaimLimits)
  case forget(number: Int32)
  case reclaim(number: Int32, [DeliveryKey])
  case confirmReclaimed
  /// The rows claimed in our name, from this page on.
  case scan(from: Int64?)
  case write(batch: Int, OutboxWrite)
  case lookUpEnded([Int64])
  /// Have the server's disk take what was committed so far.
  case sync
  case takeJob
  case runJob(String)
  case report([LaneCondition])

  /// Hands requests to the provider of a lane, by its index. Each comes back as one result.
  case send(lane: Int, [PushRequest])
  /// Takes back those of these requests that have not left.
  case withdraw(lane: Int, Set<UInt64>)
  /// Requests may be written to the wire until this instant, and not later.
  case permit(until: Instant)

  case log(DispatcherLogEntry)
}
