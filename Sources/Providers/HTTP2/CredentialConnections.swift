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

  /// - Parameters:
  ///   - pools: one for each endpoint of the format.
  ///   - isWanted: for each pool, whether it is connected at the start.
  init(_ token: RenewingToken, pools: [HTTP2ConnectionPool], isWanted: [Bool]) {
    self.token = token
    self.pools = pools
    self.isWanted = isWanted
    watchToken()
  }

  /// Maximum number of requests in flight.
  var capacity: Int { pools.reduce(0) { $0 + $1.capacity } }

  /// Whether every wanted pool is connected.
  var isReady: Bool { isConnecting && zip(pools, isWanted).allSatisfy { $0.capacity > 0 || !$1 } }

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
    if !isConnecting {
      isConnecting = true
      for (pool, isWanted) in zip(pools, isWanted) where isWanted { pool.start() }
    }
    for pool in pools { pool.resume() }
  }
}
