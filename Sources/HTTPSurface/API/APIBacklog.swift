// Whether the gateway keeps up with what has to ring: if it does not, taking more calls would only make all of them late.
// Each app is judged by its own lanes: what waits in another's says nothing of them.

internal import Queue
internal import Runtime

/// Knows how long each app's oldest invite has been ready, asking at most once a second for each.
actor APIBacklog {
  static let askedEvery = Nanoseconds.seconds(1)

  private struct Answer {
    var oldest = Nanoseconds.zero
    var holdsUntil = Instant(nanoseconds: .min)
  }

  private let database: PostgresPool
  private let limit: Nanoseconds
  private let clock: any GatewayClock
  /// Of the apps that have asked: they have keys, so there are few.
  private var answers: [String: Answer] = [:]

  /// - Parameter limitSeconds: the age from which on calls are refused.
  init(database: PostgresPool, limitSeconds: Int, clock: any GatewayClock = SystemClock()) {
    self.database = database
    limit = .seconds(Int64(limitSeconds))
    self.clock = clock
  }

  /// - Throws: 503 while the app's oldest invite is too old.
  func check(_ app: String) async throws(APIProblem) {
    let now = clock.now()
    if answers[app, default: Answer()].holdsUntil <= now {
      // Whoever comes meanwhile goes by the last answer.
      answers[app, default: Answer()].holdsUntil = now + Self.askedEvery
      var parameters = PostgresParameters()
      parameters.append(app)
      let oldest = try await database.query(APIStatements.oldestRinging, parameters).int64(0, 0)
      answers[app, default: Answer()].oldest = .milliseconds(oldest)
    }
    guard answers[app, default: Answer()].oldest <= limit else {
      throw .unavailable("busy", "calls are waiting to ring already; try again", retryAfterSeconds: 2)
    }
  }
}
