// Who may call the API: keys read from the database and believed for a moment, so that one that is revoked or new takes
// no restart.
//
// Guessing a key is hopeless: its secret has 256 bits. What guessers could do is to keep the database busy with numbers of
// keys that it is asked about, and to fill tables. So whatever they cause has a limit, of each peer and of all together; and
// no key that was ever found good is subject to it, whatever others show from wherever: its number is known, and is looked
// up again without leave. What a limit refuses is answered by 429, and makes the keyring read which good keys there are, so
// that a good one that nobody has shown here before is refused for a moment at most.

internal import Runtime
internal import Settings

/// Whose request it is.
struct APIClient: Equatable, Sendable {
  /// Row of `push.api_keys`.
  var keyID: Int32
  /// The only app it reaches.
  var app: String
}

/// Tells the client of a request by its key.
actor APIKeyring {
  /// How the database is asked.
  struct Source: Sendable {
    /// A key by its number, good or not.
    var find: @Sendable (Int32) async throws(APIProblem) -> KnownAPIKey?
    /// The good keys, those used last first, at most so many.
    var list: @Sendable (Int32) async throws(APIProblem) -> [Int32: KnownAPIKey] = { _ in [:] }
  }

  private struct Entry {
    /// Nil: there is no such key. Remembered too, so that guessing costs no more than a wrong secret.
    var key: KnownAPIKey?
    var staleAt: Instant
    /// When it was shown last.
    var usedAt: Instant
  }

  /// How long an answer of the database is believed.
  static let timeToLive = Nanoseconds.seconds(2)
  /// Questions a second about keys that are not known to be good, of all peers together.
  static let strangersPerSecond = 100
  /// Good keys that are remembered, about 5 MB of them.
  static let goodMax = 16_384
  private static let strangersMax = 1_024
  /// What a key that is unknown is compared with.
  private static let nobody = KnownAPIKey(app: "", scopes: [], hash: [UInt8](repeating: 0, count: 32))

  private let clock: any GatewayClock
  private let source: Source
  private var good: [Int32: Entry] = [:]
  /// Numbers of no key, or of one that is revoked or expired.
  private var strangers: [Int32: Entry] = [:]
  /// Those who wait for the answer to a question that somebody else has asked.
  private var asking: [Int32: [CheckedContinuation<Result<KnownAPIKey?, APIProblem>, Never>]] = [:]
  private var questions = TokenBucket(saved: 10, perSecond: Double(strangersPerSecond))
  private var guesses = APIGuesses()
  private var listedAt: Instant?

  init(clock: any GatewayClock = SystemClock(), source: Source) {
    self.clock = clock
    self.source = source
  }

  /// Whose key this is.
  ///
  /// - Parameter peer: from where the request comes.
  /// - Throws: 401 without a good key, 403 where it lacks the scope or may not be used from there, 429 for a peer that has shown
  ///   too many keys that are not good.
  func client(
    authorization: String?, scope: APIScope, peer: IPAddress
  ) async throws(APIProblem) -> APIClient {
    guard let authorization else {
      throw .unauthorized(
        "a key is needed: Authorization: Bearer pgk_...", challenge: "Bearer", APIRefusal(reason: .noKey))
    }
    guard let shown = APIKey(authorization: authorization) else { throw wrong(.unknownKey, nil, peer) }
    let found = try await known(shown.id, peer)
    let matches = (found ?? Self.nobody).matches(shown)
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

  /// - Throws: 429 where the database would have to be asked too often.
  private func known(_ id: Int32, _ peer: IPAddress) async throws(APIProblem) -> KnownAPIKey? {
    let now = clock.now()
    if let entry = good[id] {
      good[id]?.usedAt = now
      return now < entry.staleAt ? entry.key : try await ask(id)
    }
    if let entry = strangers[id], now < entry.staleAt { return entry.key }
    // A try is taken once the key is found not to be good (`wrong`).
    guard guesses.hasAny(peer, now) else { throw tooManyGuesses() }
    if asking[id] == nil {
      guard questions.consume(now) else { throw tooManyGuesses() }
    }
    return try await ask(id)
  }

  /// Asks the database, once however many want to know.
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
      strangers[id] = nil
      if good[id] == nil, good.count >= Self.goodMax { forgetUnused() }
      good[id] = entry
    } else {
      good[id] = nil
      if strangers.count >= Self.strangersMax { strangers = strangers.filter { $0.value.staleAt > begun } }
      if strangers.count < Self.strangersMax { strangers[id] = entry }
    }
  }

  /// Forgets the quarter that was not used for the longest time.
  private func forgetUnused() {
    let byUse = good.sorted { $0.value.usedAt < $1.value.usedAt }
    for (id, _) in byUse.prefix(Self.goodMax / 4) { good[id] = nil }
  }

  /// Reads which good keys there are: when the gateway starts, and when a limit has refused somebody who may have one.
  /// Does nothing where it has just done so.
  func list() async {
    let begun = clock.now()
    if let listedAt, begun < listedAt + Self.timeToLive { return }
    listedAt = begun
    guard let keys = try? await source.list(Int32(Self.goodMax)) else { return }
    for (id, key) in keys where good[id] == nil && good.count < Self.goodMax { remember(id, key, asOf: begun) }
  }

  // MARK: - Refusals

  /// A key that is not good costs its peer a try.
  private func wrong(_ reason: APIRefusal.Reason, _ id: Int32?, _ peer: IPAddress) -> APIProblem {
    guard guesses.allow(peer, clock.now()) else { return tooManyGuesses() }
    return .unauthorized(
      "the key is not known, revoked or expired", challenge: "Bearer error=\"invalid_token\"",
      APIRefusal(reason: reason, keyID: id))
  }

  private func tooManyGuesses() -> APIProblem {
    Task { await list() }
    return .tooMany(
      "too many keys that are not good come from this address; if this one is good, try again",
      APIRefusal(reason: .guessing))
  }

  /// Whoever shows the right secret may know what became of the key.
  private static func ended(_ reason: APIRefusal.Reason, _ id: Int32) -> APIProblem {
    let detail = "the key \(reason == .expired ? "has expired" : "is revoked")"
    return .unauthorized(
      detail, challenge: "Bearer error=\"invalid_token\", error_description=\"\(detail)\"",
      APIRefusal(reason: reason, keyID: id))
  }
}
