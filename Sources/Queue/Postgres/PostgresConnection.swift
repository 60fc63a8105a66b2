// A Postgres connection for code that awaits: commands, migrations, maintenance.

public import Runtime

/// One connection to Postgres on an event loop. Statements may be awaited concurrently; they are pipelined in order.
public actor PostgresConnection {
  public nonisolated let loop: EventLoop
  public nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

  private var channel: PostgresPipeline?

  private init(loop: EventLoop) {
    self.loop = loop
  }

  /// Connects.
  ///
  /// - Parameters:
  ///   - url: `postgres://…` or a libpq connection string.
  ///   - applicationName: what `pg_stat_activity` shows.
  /// - Throws: `connectionFailed` with the reason libpq gives.
  public static func connect(
    to url: String, applicationName: String, on loop: EventLoop
  ) async throws(PostgresError) -> PostgresConnection {
    let connection = PostgresConnection(loop: loop)
    try await connection.open(url, applicationName)
    return connection
  }

  private func open(_ url: String, _ applicationName: String) async throws(PostgresError) {
    let error: PostgresError? = await withCheckedContinuation { continuation in
      let dialer = PostgresDialer(url: url, applicationName: applicationName, loop: loop) { outcome in
        switch outcome {
        case .success(let channel):
          self.channel = channel
          continuation.resume(returning: nil)
        case .failure(let error): continuation.resume(returning: error)
        }
      }
      dialer.start()
    }
    if let error { throw error }
  }

  /// Executes a prepared statement in a transaction of its own and returns its rows.
  ///
  /// - Parameter patience: maximum silence of the server while it is this statement's turn, before the connection is closed; nil
  ///   for no limit.
  public func query(
    _ statement: PostgresStatement, _ parameters: PostgresParameters = PostgresParameters(),
    patience: Nanoseconds? = nil
  ) async throws(PostgresError) -> PostgresResult {
    let channel = try openChannel()
    return try await channel.query(statement, parameters, patience: patience, isolation: self)
  }

  /// Executes several statements, separated by semicolons, in one transaction unless they say otherwise. Not while
  /// anything else is awaited on this connection.
  public func script(_ sql: String) async throws(PostgresError) {
    let channel = try openChannel()
    let error: PostgresError? = await withCheckedContinuation { continuation in
      channel.runScript(sql) { outcome in
        switch outcome {
        case .success: continuation.resume(returning: nil)
        case .failure(let error): continuation.resume(returning: error)
        }
      }
    }
    if let error { throw error }
  }

  /// Closes the connection.
  public func close() {
    channel?.close()
    channel = nil
  }

  private func openChannel() throws(PostgresError) -> PostgresPipeline {
    guard let channel else { throw PostgresError(.connectionLost, "the connection to Postgres is closed") }
    return channel
  }
}
