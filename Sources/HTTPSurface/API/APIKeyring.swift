// Checks API keys. A key that was read from the database is trusted for 2 s, so a new or revoked key needs no restart.
//
// Nobody can guess a key: its secret has 256 bits. But wrong keys could keep the database busy with look-ups, and fill
// tables in memory. So everything that wrong keys cause has a limit, both for each peer and for all peers together. The
// limits do not apply to a key that was good when it was last looked up: it may always be looked up again, whatever
// others send. A request that exceeds a limit gets a 429. The keyring then reads the list of good keys, so that a good
// key that was never used here is refused for a moment at most.

internal import Runtime
internal import Settings

/// The client that sent a request.
struct APIClient: Equatable, Sendable {
  /// Row of `push.api_keys`; nil if the request needed no key.
  var keyID: Int32?
  /// The only app whose calls and devices it may use.
  var app: String
}

/// Finds the client of a request by its key.
actor APIKeyring {
  /// The queries for keys.
  struct Source: Sendable {
    /// Returns the key with this number, whatever its state; nil if there is none.
    var find: @Sendable (Int32) async throws(APIProblem) -> KnownAPIKey?
    /// Returns the good keys, the most recently used first. The argument is the maximum number of keys.
    var list: @Sendable (Int32) async throws(APIProblem) -> [Int32: KnownAPIKey] = { _ in [:] }
  }

  private struct Entry {
    /// Nil if there is no key with this number. That is remembered as well, so that a guessed number costs no more than
    /// a wrong secret.
    var key: KnownAPIKey?
    var staleAt: Instant
    /// When the key was last shown.
    var usedAt: Instant
  }

  /// How long an answer of the database is trusted.
  static let timeToLive = Nanoseconds.seconds(2)
  /// Maximum number of queries a second about keys that are not known to be good, for all peers together.
  static let unknownKeyQueriesPerSecond = 100
  /// Maximum number of good keys in memory, about 5 MB.
  static let goodMax = 16_384
  private static let notGoodMax = 1_024
  /// Unknown keys are compared with this, so that they take as long as known ones.
  private static let placeholder = KnownAPIKey(app: "", scopes: [], hash: [UInt8](repeating: 0, count: 32))

  private let clock: any GatewayClock
  private let source: Source
  private var good: [Int32: Entry] = [:]
  /// Numbers that belong to no key, or to a revoked or expired one.
  private var notGood: [Int32: Entry] = [:]
  /// Callers that wait for a query about the same key.
  private var asking: [Int32: [CheckedContinuation<Result<KnownAPIKey?, APIProblem>, Never>]] = [:]
  private var questions = TokenBucket(saved: 10, perSecond: Double(unknownKeyQueriesPerSecond))
  private var guesses = APIGuesses()
  private var listedAt: Instant?

  init(clock: any GatewayClock = SystemClock(), source: Source) {
    self.clock = clock
    self.source = source
  }

  /// Returns the client that the key belongs to.
  ///
  /// - Parameter peer: the address of the client.
  /// - Throws: 401 without a good key, 403 if the key lacks the scope or may not be used from this address, 429 if the
  ///   peer has shown too many wrong keys.
  func client(
    authorization: String?, scope: APIScope, peer: IPAddress
  ) async throws(APIProblem) -> APIClient {
    guard let authorization else {
      throw .unauthorized(
        "a key is needed: Authorization: Bearer pgk_...", challenge: "Bearer", APIRefusal(reason: .noKey))
    }
    guard let shown = APIKey(authorization: authorization) else { throw wrong(.unknownKey, nil, peer) }
    let found = try await known(shown.id, peer)
    let matches = (found ?? Self.placeholder).matches(shown)
    guard let found else { throw wrong(.unknownKey, nil, peer) }
    guard matches else { throw wrong(.wrongSecret, shown.id, peer) }
    switch found.state {
    case .good: break
    case .expired: throw Self.ended(.expired, shown.id)
    case .revoked: throw Self.ended(.revoked, shown.id)
    }
    guard found.mayBeUsed(from: peer) else {
      throw .forbiddenAddress(APIRefusal(reason: .address, keyID: shown.id))
    }
    guard found.scopes.contains(scope.rawValue) else {
      throw .forbidden(missing: scope, APIRefusal(reason: .scope, keyID: shown.id))
    }
    return APIClient(keyID: shown.id, app: found.app)
  }

  // MARK: - What is known

  /// - Throws: 429 if this needs a query, and a limit does not allow it.
  private func known(_ id: Int32, _ peer: IPAddress) async throws(APIProblem) -> KnownAPIKey? {
    let now = clock.now()
    if let entry = good[id] {
      good[id]?.usedAt = now
      return now < entry.staleAt ? entry.key : try await ask(id)
    }
    if let entry = notGood[id], now < entry.staleAt { return entry.key }
    // `wrong` uses up the try, once the key is found not to be good.
    guard guesses.hasAny(peer, now) else { throw tooManyGuesses() }
    if asking[id] == nil {
      guard questions.consume(now) else { throw tooManyGuesses() }
    }
    return try await ask(id)
  }

  /// Queries the database. Callers that ask about the same key meanwhile share the query.
  private func ask(_ id: Int32) async throws(APIProblem) -> KnownAPIKey? {
    if asking[id] != nil {
      return try await withCheckedContinuation { asking[id]?.append($0) }.get()
    }
    asking[id] = []
    let begun = clock.now()
    let answer: Result<KnownAPIKey?, APIProblem>
    do throws(APIProblem) {
      let key = try await source.find(id)
      remember(id, key, asOf: begun)
      answer = .success(key)
    } catch {
      answer = .failure(error)
    }
    for waiting in asking.removeValue(forKey: id) ?? [] { waiting.resume(returning: answer) }
    return try answer.get()
  }

  private func remember(_ id: Int32, _ key: KnownAPIKey?, asOf begun: Instant) {
    let entry = Entry(key: key, staleAt: begun + Self.timeToLive, usedAt: begun)
    if key?.state == .good {
      notGood[id] = nil
      if good[id] == nil, good.count >= Self.goodMax { forgetUnused() }
      good[id] = entry
    } else {
      good[id] = nil
      if notGood.count >= Self.notGoodMax { notGood = notGood.filter { $0.value.staleAt > begun } }
      if notGood.count < Self.notGoodMax { notGood[id] = entry }
    }
  }

  /// Removes the quarter of the keys that has not been used for the longest time.
  private func forgetUnused() {
    let byUse = good.sorted { $0.value.usedAt < $1.value.usedAt }
    for (id, _) in byUse.prefix(Self.goodMax / 4) { good[id] = nil }
  }

  /// Reads the list of good keys: at the start, and after a limit has refused a request whose key may be good. Does
  /// nothing if the list was read less than `timeToLive` ago.
  func list() async {
    let begun = clock.now()
    if let listedAt, begun < listedAt + Self.timeToLive { return }
    listedAt = begun
    guard let keys = try? await source.list(Int32(Self.goodMax)) else { return }
    for (id, key) in keys where good[id] == nil && good.count < Self.goodMax { remember(id, key, asOf: begun) }
  }

  // MARK: - Refusals

  /// A wrong key uses up one try of its peer.
  private func wrong(_ reason: APIRefusal.Reason, _ id: Int32?, _ peer: IPAddress) -> APIProblem {
    guard guesses.allow(peer, clock.now()) else { return tooManyGuesses() }
    return .unauthorized(
      "the key is not known, revoked or expired", challenge: "Bearer error=\"invalid_token\"",
      APIRefusal(reason: reason, keyID: id))
  }

  private func tooManyGuesses() -> APIProblem {
    Task { await list() }
    return .tooMany(
      "too many wrong keys came from this address; if this key is good, try again",
      APIRefusal(reason: .guessing))
  }

  /// A client that shows the right secret may be told that the key was revoked or has expired.
  private static func ended(_ reason: APIRefusal.Reason, _ id: Int32) -> APIProblem {
    let detail = "the key \(reason == .expired ? "has expired" : "is revoked")"
    return .unauthorized(
      detail, challenge: "Bearer error=\"invalid_token\", error_description=\"\(detail)\"",
      APIRefusal(reason: reason, keyID: id))
  }
}
