// What an error of Postgres means for the caller of the outbox.

extension OutboxError {
  /// - Parameter error: of a statement on an open connection, or (`connectionFailed`) of one that found none.
  init(_ error: PostgresError) {
    self.init(Self.code(of: error), error.description)
  }

  private static func code(of error: PostgresError) -> Code {
    switch error.code {
    case .connectionFailed: return .unavailable
    case .connectionLost: return .answerLost
    case .unexpectedResult: return .refused
    case .server(let sqlState):
      if sqlState == "55P03" { return .locked }
      if sqlState == "57014" { return .tooSlow }
      if error.isTransient { return .transient }
      // Data exception, integrity constraint violation, program limit exceeded.
      return ["22", "23", "54"].contains(String(sqlState.prefix(2))) ? .refusedRows : .refused
    }
  }
}
