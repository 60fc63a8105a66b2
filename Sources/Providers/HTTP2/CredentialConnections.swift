// The pools of a provider's endpoints and the token they use. A new key replaces all of this at once.

internal import Runtime

/// One key's connections. Confined to the provider's loop.
final class CredentialConnections {
  /// The token in use.
  private(set) var token: RenewingToken
  let pools: [HTTP2ConnectionPool]
  /// Pools that connect as soon as there is a token.
  private(set) var isWanted: [Bool]
  private var isConnecting = false
  /// Called when the first token has arrived and the wanted pools connect.
  var didStart: (() -> Void)?
  /// What the provider said; nil while it has said nothing. Once it has accepted them, no later answer counts, because a provider that
  /// is ill may refuse good credentials.
  private(set) var verdict: CredentialVerdict?
  /// Whether a trial is under way, and how many have ended.
  var isBeingTried = false
  var trials = 0

  /// - Parameters:
  ///   - pools: one for each endpoint of the format.
  ///   - isWanted: for each pool, whether it is connected at the start.
  init(_ token: RenewingToken, pools: [HTTP2ConnectionPool], isWanted: [Bool]) {
    self.token = token
    self.pools = pools
    self.isWanted = isWanted
    watchToken()
  }

  /// Why they are refused; nil if they are not, as far as is known.
  var refusal: String? {
    if let refusal = token.refusal { return refusal }
    if case .refused(let reason)? = verdict { return reason } else { return nil }
  }

  /// Maximum number of requests in flight.
  var capacity: Int { pools.reduce(0) { $0 + $1.capacity } }

  func owns(_ pool: HTTP2ConnectionPool) -> Bool { pools.contains { $0 === pool } }

  /// Fetches a token. The wanted pools connect when it has arrived.
  func start() { token.start() }

  /// The pool of an endpoint; the first call connects it.
  func pool(_ index: Int) -> HTTP2ConnectionPool {
    if !isWanted[index] {
      isWanted[index] = true
      if isConnecting { pools[index].start() }
    }
    return pools[index]
  }

  /// Notes what an answer says about them; nil: nothing.
  func note(_ verdict: CredentialVerdict?) {
    guard let verdict, self.verdict != .accepted else { return }
    self.verdict = verdict
  }

  /// Sends no request until the token has been replaced.
  func pause() {
    for pool in pools { pool.pause() }
  }

  /// From now on, uses this token on the same connections.
  func use(_ token: RenewingToken) {
    self.token.stop()
    self.token = token
    watchToken()
    if token.current != nil { tokenArrived() }
  }

  /// Refuses the given requests that still wait for a stream.
  func withdraw(_ requests: Set<Int>) {
    for pool in pools { pool.withdraw(requests) }
  }

  /// Refuses waiting requests, finishes the requests in flight and closes.
  func shutDown(by deadline: Instant, completion: @escaping () -> Void) {
    token.stop()
    var open = pools.count
    for pool in pools {
      pool.shutDown(by: deadline) {
        open -= 1
        if open == 0 { completion() }
      }
    }
  }

  /// Ends a `shutDown` before its deadline.
  func cutOff() {
    for pool in pools { pool.cutOff() }
  }

  private func watchToken() {
    token.didArrive = { [weak self] in self?.tokenArrived() }
  }

  private func tokenArrived() {
    let isFirst = !isConnecting
    if isFirst {
      isConnecting = true
      for (pool, isWanted) in zip(pools, isWanted) where isWanted { pool.start() }
    }
    for pool in pools { pool.resume() }
    if isFirst { didStart?() }
  }
}
