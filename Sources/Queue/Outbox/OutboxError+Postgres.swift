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
      // Not supported, state of the transaction, unknown statement, authorization, database, schema, missing object or right, state
      // of an object. Everything else may be about one row: a value, a damaged page, what a trigger raises, in any class it likes.
      let isOfStatement = ["0A", "25", "26", "28", "3D", "3F", "42", "55"].contains(String(sqlState.prefix(2)))
      return isOfStatement ? .refused : .refusedRows
    }
  }
}
