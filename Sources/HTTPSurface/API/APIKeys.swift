// Reads API keys from the database and records their use, over a connection of its own.

internal import Logging
internal import Queue
internal import Runtime
internal import Settings

/// Looks up keys, and records in the background which key was used when and from where.
struct APIKeys: Sendable {
  /// The interval of audit lines. Uses of keys are written at every `usesEvery`-th interval.
  private static let pause = Duration.seconds(1)
  private static let usesEvery = 10

  let keyring: APIKeyring
  let uses = APIKeyUses()
  let audit: APIAudit
  private let database: PostgresPool

  /// - Parameter timeoutSeconds: the longest time a statement may take.
  init(url: String, loop: EventLoop, timeoutSeconds: Int, logger: Logger) {
    let database = PostgresPool(
      url: url, loop: loop, timeoutSeconds: timeoutSeconds, logger: logger, applicationName: "push-gateway api keys",
      connectionsMax: 1)
    self.database = database
    audit = APIAudit(logger: logger)
    keyring = APIKeyring(
      source: APIKeyring.Source(
        find: { id async throws(APIProblem) in
          var parameters = PostgresParameters()
          parameters.append(id)
          return Self.keys(try await database.query(APIStatements.findKey, parameters))[id]
        },
        list: { countMax async throws(APIProblem) in
          var parameters = PostgresParameters()
          parameters.append(countMax)
          return Self.keys(try await database.query(APIStatements.goodKeys, parameters))
        }))
  }

  /// Runs until the task is cancelled. Then it writes what is left and closes the connection.
  func keep() async {
    await keyring.list()
    var rounds = 0
    while (try? await Task.sleep(for: Self.pause)) != nil {
      audit.flush()
      rounds += 1
      if rounds % Self.usesEvery == 0 { await write(uses.drain()) }
    }
    audit.flush()
    await write(uses.drain(all: true))
    await database.close()
  }

  /// A batch that cannot be written is dropped: the next use of its keys is written instead.
  private func write(_ batch: APIKeyUses.Batch) async {
    guard !batch.ids.isEmpty else { return }
    var parameters = PostgresParameters()
    parameters.append(batch.ids)
    parameters.append(batch.ages)
    parameters.append(batch.peers)
    _ = try? await database.query(APIStatements.noteKeyUses, parameters)
  }

  private static func keys(_ rows: PostgresResult) -> [Int32: KnownAPIKey] {
    var keys: [Int32: KnownAPIKey] = [:]
    for row in 0..<rows.rowCount {
      keys[rows.int32(row, 0)] = KnownAPIKey(
        app: rows.text(row, 1), scopes: Set(rows.text(row, 2).split(separator: " ").map(String.init)),
        hash: rows.bytes(row, 3),
        addresses: rows.isNull(row, 4) ? nil : rows.text(row, 4).split(separator: " ").compactMap { IPRange($0) },
        // A key in a state that this version does not know is refused.
        state: KnownAPIKey.State(rawValue: rows.text(row, 5)) ?? .revoked)
    }
    return keys
  }
}
