// Logging in with ops keys. Wrong keys from one address are limited, and the answer to each is delayed.

internal import HTTPTypes
internal import Logging
internal import Runtime
internal import Settings

/// Holds the keys, the sessions, and the limits of wrong keys.
actor OpsLogin {
  /// A session, as its user needs it.
  struct Opened: Sendable {
    let id: String
    let token: String
    let name: String
  }

  /// Whether a key is configured, usable or not.
  nonisolated let canLogIn: Bool

  private let clock: any GatewayClock
  private let pause: @Sendable (Nanoseconds) async -> Void
  private let logger: Logger
  private var keyring: OpsKeyring
  private var sessions = OpsSessions()
  private var limits = LoginLimits()
  /// At most one log line a second about wrong keys, for all addresses together.
  private var warnings = TokenBucket(saved: 1, perSecond: 1)

  /// - Parameters:
  ///   - metricsKey: the key that gives access to /metrics only.
  ///   - pause: waits for a given time.
  init(
    keys: [OpsKey], metricsKey: OpsKey? = nil, logger: Logger, clock: any GatewayClock = SystemClock(),
    pause: @escaping @Sendable (Nanoseconds) async -> Void = { try? await Task.sleep(for: .nanoseconds($0.count)) }
  ) {
    canLogIn = !keys.isEmpty
    keyring = OpsKeyring(keys, metricsKey: metricsKey)
    self.clock = clock
    self.pause = pause
    self.logger = logger
    Self.tell(of: keyring.newFaults(), logger)
  }

  /// Opens a session for a good key.
  ///
  /// - Parameter peer: the address of the client.
  /// - Throws: 403 for a wrong key, 429 for too many wrong keys from this address, 503 if a key file cannot be used.
  func open(_ shown: String, from peer: IPAddress) async throws(APIProblem) -> Opened {
    let digest = OpsKey.digest(ofShown: shown)
    guard case .operatorNamed(let name) = keyring.holder(of: digest) else { throw await refusal(.wrongKey, of: peer) }
    limits.succeeded(peer)
    let (id, session) = sessions.open(name: name, keyDigest: digest, now: clock.now())
    logger.notice(
      "An operator logged in to the dashboard", metadata: ["operator": "\(name)", "peer": "\(Self.text(peer))"])
    return Opened(id: id, token: session.token, name: name)
  }

  /// The session with this id, if it has not expired and its key is still the one it was opened with.
  func session(_ id: String) -> Opened? {
    sessions.find(id, now: clock.now()) { keyring.digest(of: $0) }
      .map { Opened(id: id, token: $0.token, name: $0.name) }
  }

  func close(_ id: String) { sessions.close(id) }

  /// The holder of the key in `Authorization: Bearer`.
  ///
  /// - Throws: 401 for a wrong key, 429 for too many wrong keys from this address, 503 if a key file cannot be used.
  func holder(ofShown key: String, from peer: IPAddress) async throws(APIProblem) -> OpsKeyring.Holder {
    if let holder = keyring.holder(of: OpsKey.digest(ofShown: key)) { return holder }
    throw await refusal(
      .unauthorized("this is not one of the keys", challenge: "Bearer error=\"invalid_token\""), of: peer)
  }

  /// Counts a wrong key, and delays its answer.
  private func refusal(_ problem: APIProblem, of peer: IPAddress) async -> APIProblem {
    Self.tell(of: keyring.newFaults(), logger)
    guard let failures = limits.failed(peer, clock.now()) else { return .tooManyTries }
    // If a key file cannot be read, its key looks like a wrong one.
    let problem = keyring.hasFault ? .unreadableKey : problem
    warn(of: failures, peer)
    await pause(LoginLimits.delay(failures: failures))
    limits.answered(peer)
    return problem
  }

  // MARK: - The log

  private func warn(of failures: Int, _ peer: IPAddress) {
    guard warnings.consume(clock.now()) else { return }
    logger.warning(
      "A wrong key was shown to the dashboard",
      metadata: ["in_a_row": .stringConvertible(failures), "peer": "\(Self.text(peer))"])
  }

  private static func text(_ peer: IPAddress) -> String { peer == .unknown ? "unknown" : "\(peer)" }

  private static func tell(of faults: [(name: String, fault: OpsKey.Fault)], _ logger: Logger) {
    for (name, fault) in faults {
      logger.error("An ops key cannot be used", metadata: ["operator": "\(name)", "reason": "\(fault)"])
    }
  }
}

extension APIProblem {
  static let wrongKey = APIProblem(status: .forbidden, name: "wrong-key", detail: "this is not an ops key")
  static let tooManyTries = tooMany("too many wrong keys came from this address; try again")
  static let unreadableKey = unavailable(
    "no-key",
    "the gateway cannot use one of its key files, perhaps that of this key; correct the file that its log names",
    retryAfterSeconds: 60)
}
