// The statements without an answer, in the order in which Postgres answers them, and when the first answer is overdue. Pure.

internal import Runtime

/// A statement under way.
struct PendingStatement {
  var completion: PostgresPipeline.Completion
  var asked: Instant
  /// Maximum time for its answer, counted from when it is this statement's turn; nil for no limit.
  var patience: Nanoseconds?
  var result: PostgresResult?
  var error: PostgresError?
  /// The name of the statement it prepares, until the server has confirmed that.
  var unconfirmed: String?
}

/// A queue of pending statements.
struct PendingStatements {
  private var statements: [PendingStatement] = []
  private var head = 0

  /// When the last answer came.
  private(set) var lastAnswer = Instant(nanoseconds: .min)

  var count: Int { statements.count - head }
  var isEmpty: Bool { count == 0 }

  /// The statement whose answer comes next. The queue must not be empty.
  var first: PendingStatement {
    get { statements[head] }
    set { statements[head] = newValue }
  }

  /// When the next answer is overdue. The time of a statement behind others starts when it is its turn.
  var overdue: Instant {
    guard !isEmpty, let patience = first.patience else { return .distantFuture }
    return max(first.asked, lastAnswer) + patience
  }

  mutating func append(_ statement: PendingStatement) {
    statements.append(statement)
  }

  /// Removes the first statement: it was answered.
  mutating func removeFirst(_ now: Instant) -> PendingStatement {
    let first = first
    head += 1
    if head == statements.count || head > 64 {
      statements.removeFirst(head)
      head = 0
    }
    lastAnswer = now
    return first
  }

  mutating func removeAll() -> ArraySlice<PendingStatement> {
    defer {
      statements = []
      head = 0
    }
    return statements[head...]
  }
}
