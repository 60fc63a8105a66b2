// The sessions of clients that logged in with an ops key. Kept in memory: a restart ends all of them, and each replica
// has its own.

internal import Runtime

/// Sessions by the digest of their ids, so that a memory dump contains no cookie.
struct OpsSessions {
  struct Session: Equatable, Sendable {
    /// The token that every change must send in addition to the cookie, because other sites can make a browser send the
    /// cookie.
    let token: String
    /// The name of the key.
    let name: String
    fileprivate let endsAt: Instant
    fileprivate let keyDigest: [UInt8]
  }

  static let timeToLive = Nanoseconds.seconds(12 * 3600)
  static let countMax = 64

  private var sessions: [[UInt8]: Session] = [:]

  /// - Parameters:
  ///   - name: the name of the key that was shown.
  ///   - keyDigest: the digest of that key.
  /// - Returns: the id for the cookie, and the session.
  mutating func open(name: String, keyDigest: [UInt8], now: Instant) -> (id: String, session: Session) {
    sessions = sessions.filter { $0.value.endsAt > now }
    if sessions.count >= Self.countMax, let oldest = sessions.min(by: { $0.value.endsAt < $1.value.endsAt }) {
      sessions[oldest.key] = nil
    }
    let id = Self.random()
    let session = Session(token: Self.random(), name: name, endsAt: now + Self.timeToLive, keyDigest: keyDigest)
    sessions[Self.digest(id)] = session
    return (id, session)
  }

  /// The session with this id; nil if it has ended. A session ends when its key changes, and stays ended if the former
  /// key comes back.
  ///
  /// - Parameter digest: returns the current digest of the key with a name.
  mutating func find(_ id: String, now: Instant, digest: (String) -> [UInt8]?) -> Session? {
    guard let session = sessions[Self.digest(id)] else { return nil }
    guard session.endsAt > now, digest(session.name) == session.keyDigest else {
      close(id)
      return nil
    }
    return session
  }

  mutating func close(_ id: String) {
    sessions[Self.digest(id)] = nil
  }

  private static func digest(_ id: String) -> [UInt8] { SHA256.digest(Array(id.utf8)) }

  /// 256 bits from the system's random number generator.
  private static func random() -> String {
    var source = SystemRandomNumberGenerator()
    let bytes = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &source) }
    return String(decoding: Base64URL.encode(bytes), as: UTF8.self)
  }
}
