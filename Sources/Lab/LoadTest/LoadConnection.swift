// A connection of a load test to the database, which outlives breaks.

import Queue
import Runtime

/// One connection. A statement fails if the connection breaks; the next one opens another connection.
actor LoadConnection {
  /// Maximum silence of the server while it is a statement's turn. After that the connection is closed.
  static let patience = Nanoseconds.seconds(60)

  private let url: String
  private let loop: EventLoop
  private var opening: Task<Result<PostgresConnection, PostgresError>, Never>?

  init(to url: String, on loop: EventLoop) {
    (self.url, self.loop) = (url, loop)
  }

  /// The open connection. Connects if there is none.
  @discardableResult
  func open() async throws(PostgresError) -> PostgresConnection {
    let opening = opening ?? Task { [url, loop] in await Self.connect(to: url, on: loop) }
    self.opening = opening
    switch await opening.value {
    case .success(let connection): return connection
    case .failure(let error):
      // Unless another statement is already connecting again.
      if self.opening == opening { self.opening = nil }
      throw error
    }
  }

  func query(
    _ statement: PostgresStatement, _ parameters: PostgresParameters = PostgresParameters(),
    patience: Nanoseconds? = LoadConnection.patience
  ) async throws(PostgresError) -> PostgresResult {
    let connection = try await open()
    do throws(PostgresError) {
      return try await connection.query(statement, parameters, patience: patience)
    } catch {
      if error.isOfConnection { await drop(connection) }
      throw error
    }
  }

  func close() async {
    guard let opening else { return }
    self.opening = nil
    if case .success(let connection) = await opening.value { await connection.close() }
  }

  private func drop(_ connection: PostgresConnection) async {
    guard let opening, case .success(let open) = await opening.value, open === connection, self.opening == opening
    else { return }
    self.opening = nil
    await connection.close()
  }

  private static func connect(to url: String, on loop: EventLoop) async -> Result<PostgresConnection, PostgresError> {
    do throws(PostgresError) {
      return .success(
        try await PostgresConnection.connect(to: url, applicationName: LoadDatabase.applicationName, on: loop))
    } catch {
      return .failure(error)
    }
  }
}

extension PostgresError {
  /// Whether there is no connection, or it will take no further statement: the server ends (class 57P), or takes no writes any more.
  var isOfConnection: Bool {
    switch code {
    case .connectionFailed, .connectionLost: true
    case .server(let state): state.hasPrefix("08") || state.hasPrefix("57P") || state == "25006"
    case .unexpectedResult: false
    }
  }
}
