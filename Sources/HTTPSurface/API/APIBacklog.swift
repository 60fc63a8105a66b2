// Whether the gateway sends invites in time. If it does not, further calls would make all calls late, so they are
// refused. Each app is measured by its own lanes alone.

internal import Queue
internal import Runtime

/// Knows how long each app's oldest invite has been ready. Asks the database at most once a second for each app.
actor APIBacklog {
  static let askedEvery = Nanoseconds.seconds(1)

  private struct Answer {
    var oldest = Nanoseconds.zero
    var holdsUntil = Instant(nanoseconds: .min)
  }

  private let database: PostgresPool
  private let limit: Nanoseconds
  private let clock: any GatewayClock
  /// By app. Only apps that have a key are in it, so they are few.
  private var answers: [String: Answer] = [:]

  /// - Parameter limitSeconds: calls are refused while the oldest invite has waited longer than this.
  init(database: PostgresPool, limitSeconds: Int, clock: any GatewayClock = SystemClock()) {
    self.database = database
    limit = .seconds(Int64(limitSeconds))
    self.clock = clock
  }

  /// - Throws: 503 while the app's oldest invite has waited too long.
  func check(_ app: String) async throws(APIProblem) {
    let now = clock.now()
    if answers[app, default: Answer()].holdsUntil <= now {
      // Requests that arrive during the query use the previous answer.
      answers[app, default: Answer()].holdsUntil = now + Self.askedEvery
      var parameters = PostgresParameters()
      parameters.append(app)
      let oldest = try await database.query(APIStatements.oldestRinging, parameters).int64(0, 0)
      answers[app, default: Answer()].oldest = .milliseconds(oldest)
    }
    guard answers[app, default: Answer()].oldest <= limit else {
      throw .unavailable("busy", "too many calls wait to be sent; try again", retryAfterSeconds: 2)
    }
  }
}
