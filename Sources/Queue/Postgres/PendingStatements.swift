// Statements without an answer yet, in the order in which Postgres answers them, and how long the first is waited for. Pure.

internal import Runtime

/// A statement under way.
struct PendingStatement {
  var completion: PostgresChannel.Completion
  var asked: Instant
  /// How long its answer may take from when it is the server's turn; nil: for ever.
  var patience: Nanoseconds?
  var result: PostgresResult?
  var error: PostgresError?
  /// The name of the statement it prepares, until the server has said that it did.
  var unconfirmed: String?
}

/// A line of them.
struct PendingStatements {
  private var statements: [PendingStatement] = []
  private var head = 0

  /// When one was last answered.
  private(set) var lastAnswer = Instant(nanoseconds: .min)

  var count: Int { statements.count - head }
  var isEmpty: Bool { count == 0 }

  /// The one whose answer comes next. There must be one.
  var first: PendingStatement {
    get { statements[head] }
    set { statements[head] = newValue }
  }

  /// When that answer is overdue. A statement behind others is waited for only from when it is its turn.
  var overdue: Instant {
    guard !isEmpty, let patience = first.patience else { return .distantFuture }
    return max(first.asked, lastAnswer) + patience
  }

  mutating func append(_ statement: PendingStatement) {
    statements.append(statement)
  }

  /// The first was answered.
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
