// Whether the gateway keeps up with what has to ring: if it does not, taking more calls would only make all of them late.

internal import Queue
internal import Runtime

/// Knows how long the oldest invite has been ready, asking at most once a second.
actor APIBacklog {
  static let askedEvery = Nanoseconds.seconds(1)

  private let database: APIDatabase
  private let limit: Nanoseconds
  private let clock: any GatewayClock
  private var oldest = Nanoseconds.zero
  private var nextQuestion = Instant(nanoseconds: .min)

  /// - Parameter limitSeconds: the age from which on calls are refused.
  init(database: APIDatabase, limitSeconds: Int, clock: any GatewayClock = SystemClock()) {
    self.database = database
    limit = .seconds(Int64(limitSeconds))
    self.clock = clock
  }

  /// - Throws: 503 while the oldest invite is too old.
  func check() async throws(APIProblem) {
    if clock.now() >= nextQuestion {
      // Whoever comes meanwhile goes by the last answer.
      nextQuestion = clock.now() + Self.askedEvery
      oldest = .milliseconds(try await database.query(APIStatements.oldestRinging).int64(0, 0))
    }
    guard oldest <= limit else {
      throw .unavailable("busy", "calls are waiting to ring already; try again", retryAfterSeconds: 2)
    }
  }
}
