// Logging in with an ops key: each address has few tries a second, and each wrong one waits longer for its answer.

internal import HTTPTypes
internal import Logging
internal import Queue
internal import Runtime

/// Keeps the keys, the sessions, and the door to them.
actor OpsLogin {
  /// What a session is to whoever has its id.
  struct Opened: Sendable {
    let id: String
    let token: String
    let name: String
  }

  /// Whose key came with a request.
  enum Holder: Equatable, Sendable {
    /// An operator.
    case operatorNamed(String)
    /// Whoever may read /metrics, and nothing else.
    case scraper
  }

  /// Whether there is a key to log in with, usable or not.
  nonisolated let canLogIn: Bool

  private let clock: any GatewayClock
  private let pause: @Sendable (Nanoseconds) async -> Void
  private let logger: Logger
  private var keyring: OpsKeyring
  private var metricsKeyring: OpsKeyring
  private var sessions = OpsSessions()
  private var limits = LoginLimits()
  /// Wrong keys are told of at most once a second, whoever shows them.
  private var warnings = RateLimit(perSecond: 1)

  /// - Parameters:
  ///   - metricsKey: opens /metrics alone.
  ///   - pause: waits for so long.
  init(
    keys: [OpsKey], metricsKey: OpsKey? = nil, logger: Logger, clock: any GatewayClock = SystemClock(),
    pause: @escaping @Sendable (Nanoseconds) async -> Void = { try? await Task.sleep(for: .nanoseconds($0.count)) }
  ) {
    canLogIn = !keys.isEmpty
    keyring = OpsKeyring(keys)
    metricsKeyring = OpsKeyring(metricsKey.map { [$0] } ?? [])
    self.clock = clock
    self.pause = pause
    self.logger = logger
    Self.tell(of: keyring.newFaults() + metricsKeyring.newFaults(), logger)
  }

  /// Opens a session for whoever has a key.
  ///
  /// - Parameter peer: the address that asks.
  /// - Throws: 403 for a wrong key, 429 for too many tries of this address, 503 where no key's file can serve.
  func open(_ shown: String, from peer: IPAddress) async throws(APIProblem) -> Opened {
    guard limits.tries(peer, clock.now()) else { throw .tooManyTries }
    let digest = OpsKey.digest(ofShown: shown)
    let (name, isUsable) = keyring.holder(of: digest)
    Self.tell(of: keyring.newFaults(), logger)
    guard isUsable else {
      throw .unavailable("no-key", "the gateway cannot read its ops keys; its log says why", retryAfterSeconds: 60)
    }
    guard let name else {
      let failures = limits.failed(peer, clock.now())
      warn(of: failures, peer)
      guard limits.mayHold else {
        limits.answered(peer)
        throw .tooManyTries
      }
      await pause(LoginLimits.delay(failures: failures))
      limits.answered(peer)
      throw .wrongKey
    }
    limits.succeeded(peer)
    let (id, session) = sessions.open(name: name, keyDigest: digest, now: clock.now())
    logger.notice(
      "Somebody logged in to the dashboard", metadata: ["operator": "\(name)", "peer": "\(Self.text(peer))"])
    return Opened(id: id, token: session.token, name: name)
  }

  /// The living session of an id, with a key that is still the one it was opened with.
  func session(_ id: String) -> Opened? {
    sessions.find(id, now: clock.now()) { keyring.digest(of: $0) }
      .map { Opened(id: id, token: $0.token, name: $0.name) }
  }

  func close(_ id: String) { sessions.close(id) }

  /// Whose key came in `Authorization: Bearer`.
  ///
  /// - Throws: 401 for a wrong key, 429 for wrong ones of this address again and again.
  func holder(ofShown key: String, from peer: IPAddress) throws(APIProblem) -> Holder {
    guard limits.mayShow(peer, clock.now()) else { throw .tooManyTries }
    let digest = OpsKey.digest(ofShown: key)
    if let name = keyring.holder(of: digest).name { return .operatorNamed(name) }
    if metricsKeyring.holder(of: digest).name != nil { return .scraper }
    Self.tell(of: keyring.newFaults() + metricsKeyring.newFaults(), logger)
    warn(of: limits.showed(peer, clock.now()), peer)
    throw .unauthorized("this is none of the keys", challenge: "Bearer error=\"invalid_token\"")
  }

  // MARK: - The log

  private func warn(of failures: Int, _ peer: IPAddress) {
    guard warnings.available(clock.now()) > 0 else { return }
    warnings.spend(1)
    logger.warning(
      "A wrong key was shown to the dashboard", metadata: ["in_a_row": "\(failures)", "peer": "\(Self.text(peer))"])
  }

  private static func text(_ peer: IPAddress) -> String { peer == .unknown ? "unknown" : "\(peer)" }

  private static func tell(of faults: [(name: String, fault: OpsKey.Fault)], _ logger: Logger) {
    for (name, fault) in faults {
      logger.error("Nobody can log in with an ops key", metadata: ["operator": "\(name)", "reason": "\(fault)"])
    }
  }
}

extension APIProblem {
  static let wrongKey = APIProblem(status: .forbidden, name: "wrong-key", detail: "this is not an ops key")
  static let tooManyTries = tooMany("too many tries to log in from this address; try again")
}
