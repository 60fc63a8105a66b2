// Who may call the API: keys read from the database and believed for a moment, so that one that is revoked or new takes
// no restart.

internal import Queue
internal import Runtime

/// Whose request it is.
struct APIClient: Equatable, Sendable {
  /// Row of `push.api_keys`.
  var keyID: Int32
  /// The only app it reaches.
  var app: String
}

/// Tells the client of a request by its key.
actor APIKeyring {
  private struct Entry {
    /// Nil: there is no such key. Remembered too, so that guessing costs no more than a wrong secret.
    var key: KnownAPIKey?
    var staleAt: Instant
  }

  /// How long an answer of the database is believed.
  static let timeToLive = Nanoseconds.seconds(2)
  /// Questions a second about keys that nobody has shown a good one of yet: guessing must not keep the database busy.
  static let strangersPerSecond = 100
  private static let entriesMax = 1_024
  /// What a key that is unknown is compared with.
  private static let nobody = KnownAPIKey(app: "", scopes: [], hash: [UInt8](repeating: 0, count: 32))

  private let clock: any GatewayClock
  private let find: @Sendable (Int32) async throws(APIProblem) -> KnownAPIKey?
  private var entries: [Int32: Entry] = [:]
  private var strangers = RateLimit(perSecond: strangersPerSecond)

  /// - Parameter find: asks the database for a living key by its id.
  init(
    clock: any GatewayClock = SystemClock(), find: @escaping @Sendable (Int32) async throws(APIProblem) -> KnownAPIKey?
  ) {
    self.clock = clock
    self.find = find
  }

  /// Whose key this is.
  ///
  /// - Throws: 401 without a good key, 403 where it lacks the scope.
  func client(authorization: String?, scope: APIScope) async throws(APIProblem) -> APIClient {
    guard let authorization else {
      throw .unauthorized("a key is needed: Authorization: Bearer pgk_...", challenge: "Bearer")
    }
    guard let shown = APIKey(authorization: authorization) else { throw Self.unknown }
    let found = try await known(shown.id)
    let matches = (found ?? Self.nobody).matches(shown)
    guard let found, matches else { throw Self.unknown }
    guard found.scopes.contains(scope.rawValue) else { throw .forbidden(missing: scope) }
    return APIClient(keyID: shown.id, app: found.app)
  }

  private func known(_ id: Int32) async throws(APIProblem) -> KnownAPIKey? {
    let entry = entries[id]
    if let entry, clock.now() < entry.staleAt { return entry.key }
    if entry?.key == nil {
      guard strangers.available(clock.now()) > 0 else {
        throw .tooMany("too many keys are being tried; if this one is good, try again")
      }
      strangers.spend(1)
    }
    let key = try await find(id)
    if entries.count >= Self.entriesMax {
      entries = entries.filter { $0.value.key != nil && $0.value.staleAt > clock.now() }
    }
    entries[id] = Entry(key: key, staleAt: clock.now() + Self.timeToLive)
    return key
  }

  private static let unknown = APIProblem.unauthorized(
    "the key is not known, revoked or expired", challenge: "Bearer error=\"invalid_token\"")
}
