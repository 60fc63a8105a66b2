// The actions of a dispatcher: calls of the store, requests to providers, log lines.

public import Logging
public import Providers
public import Queue
public import Runtime

/// A batch to write into the outbox.
public enum OutboxWrite: Sendable {
  /// Answered by `OutboxWriteAnswer.count`, as are all cases except the next one.
  case settle([Settlement])
  /// Asks which of these have been written. Answered by `OutboxWriteAnswer.settled`.
  case settledAmong([Settlement])
  case park([Parking])
  case disown([DeliveryLease])
  case invalidate([TokenInvalidation])
  case hold([InvalidationHold])
  case correct([EnvironmentCorrection])
}

/// The store's answer to a batch.
public enum OutboxWriteAnswer: Sendable {
  /// Number of elements of the batch that were written.
  case count(Int)
  /// The elements of the batch that had been written.
  case settled(Set<DeliveryKey>)
}

/// An action of `DispatcherMachine`, which its carrier performs. Actions are performed in order. Each call of the store is answered
/// by one event.
public enum DispatcherAction: Sendable {
  case register
  case beat(mayReap: Bool)
  case claim(number: Int32, [LaneAllowance], within: ClaimLimits)
  case forget(number: Int32)
  /// Reads the rows claimed in our name, from this page on.
  case scan(from: Int64?)
  case write(batch: Int, OutboxWrite)
  case lookUpEnded([Int64])
  /// Waits until everything committed so far is on the server's disk.
  case sync
  case claimJob(JobKind)
  case runJob(JobKind, String)
  case followUp(JobKind, max: Int)
  case report([LaneCondition])

  /// Hands requests to the provider of a lane, by its index. Each comes back as one result.
  case send(lane: Int, [PushRequest])
  /// Takes back the requests among these that have not been sent. `areOverdue`: because they have waited too long for their answers.
  case withdraw(lane: Int, Set<UInt64>, areOverdue: Bool)
  /// Allows providers to write this dispatcher's requests to their connections until this instant.
  case permit(until: Instant)
  /// Tells the other dispatchers of a lane's account, if there are any.
  case tell(lane: Int, LaneNews)

  case log(Logger.Level, Logger.Message, Logger.Metadata)
  /// Logs that a lane's circuit, which was closed, has opened because of this outcome, and which credentials are refused, if any are.
  case logOpening(lane: Int, PushOutcome)
}
