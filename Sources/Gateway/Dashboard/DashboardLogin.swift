// Logging in with the ops key: few tries a second, and each wrong one waits longer for its answer.

internal import HTTPTypes
internal import Logging
internal import Queue
internal import Runtime

/// Keeps the sessions, and the door to them.
actor DashboardLogin {
  static let triesPerSecond = 5
  /// Wrong tries whose answers are held back at a time.
  static let heldMax = 16

  private let key: DashboardKey
  private let clock: any GatewayClock
  private let pause: @Sendable (Nanoseconds) async -> Void
  private let logger: Logger
  private var sessions = DashboardSessions()
  private var rate = RateLimit(perSecond: triesPerSecond)
  private var failures = 0
  private var held = 0

  /// - Parameter pause: waits for so long.
  init(
    key: DashboardKey, logger: Logger, clock: any GatewayClock = SystemClock(),
    pause: @escaping @Sendable (Nanoseconds) async -> Void = { try? await Task.sleep(for: .nanoseconds($0.count)) }
  ) {
    self.key = key
    self.clock = clock
    self.pause = pause
    self.logger = logger
    do {
      _ = try key.digest()
    } catch {
      logger.error("Nobody can log in to the dashboard", metadata: ["reason": "\(error)"])
    }
  }

  /// How long the answer to the n-th wrong try in a row is held back: 0.25 s, 0.5 s, 1 s, 2 s, then 4 s.
  static func delay(failures: Int) -> Nanoseconds { .milliseconds(250 << Int64(min(max(failures, 1), 5) - 1)) }

  /// - Returns: a session's id and its token.
  /// - Throws: 403 for a wrong key, 429 for too many tries, 503 where the key's file cannot serve.
  func open(_ shown: String) async throws(APIProblem) -> (id: String, token: String) {
    guard rate.available(clock.now()) > 0, held < Self.heldMax else {
      throw .tooMany("too many tries to log in; try again")
    }
    rate.spend(1)
    let digest: [UInt8]
    do {
      digest = try key.digest()
    } catch {
      logger.error("Nobody can log in to the dashboard", metadata: ["reason": "\(error)"])
      throw .unavailable("no-key", "the gateway cannot read its ops key; its log says why", retryAfterSeconds: 60)
    }
    guard DashboardKey.equal(digest, DashboardKey.digest(ofShown: shown)) else {
      failures += 1
      logger.warning("A wrong key was shown to the dashboard", metadata: ["in_a_row": "\(failures)"])
      held += 1
      defer { held -= 1 }
      await pause(Self.delay(failures: failures))
      throw .wrongKey
    }
    failures = 0
    let (id, session) = sessions.open(keyDigest: digest, now: clock.now())
    logger.notice("Somebody logged in to the dashboard")
    return (id, session.token)
  }

  /// The token of a living session.
  func token(of id: String?) -> String? { id.flatMap { sessions.find($0, now: clock.now())?.token } }

  func close(_ id: String) { sessions.close(id) }
}

extension APIProblem {
  static let wrongKey = APIProblem(status: .forbidden, name: "wrong-key", detail: "this is not the ops key")
}
