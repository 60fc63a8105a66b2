// Why the outbox did not do what it was asked for.

/// Why a call of the store failed.
public struct OutboxError: Error, Sendable, CustomStringConvertible {
  public enum Code: Sendable, Equatable {
    /// The statement was not sent: nothing was changed.
    case unavailable
    /// The connection broke, or no answer came in time. The statement may have been executed or not.
    case answerLost
    /// Another transaction held a lock for longer than `lock_timeout` (SQLSTATE 55P03), usually on one of the rows. Nothing was
    /// changed.
    case locked
    /// The statement reached its time limit, or someone cancelled it (SQLSTATE 57014). Nothing was changed. With fewer rows it may
    /// end in time.
    case tooSlow
    /// The server refused the statement for another temporary reason (deadlock, restart, read-only server). Nothing was changed.
    case transient
    /// The server refused the data of the statement, or may have: a value, a damaged row, or what a trigger raises. It would refuse the
    /// same rows again.
    case refusedRows
    /// The server refused the statement for another permanent reason, such as a missing privilege. No row is at fault.
    case refused
  }

  public var code: Code
  public var description: String

  public init(_ code: Code, _ description: String) {
    self.code = code
    self.description = description
  }
}
