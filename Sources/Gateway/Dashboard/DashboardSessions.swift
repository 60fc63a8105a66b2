// Who has shown the ops key lately. Kept in memory: a restart logs everybody out, and each replica has its own.

internal import Runtime

/// Sessions by the digest of their ids, so that no memory dump holds a cookie.
struct DashboardSessions {
  struct Session: Equatable, Sendable {
    /// What every change must show besides the cookie, for other sites can make a browser send that.
    let token: String
    fileprivate let endsAt: Instant
    fileprivate let keyDigest: [UInt8]
  }

  static let timeToLive = Nanoseconds.seconds(12 * 3600)
  static let countMax = 64

  private var sessions: [[UInt8]: Session] = [:]

  /// - Parameter keyDigest: of the key that was shown; sessions of any other end.
  /// - Returns: the id, for a cookie.
  mutating func open(keyDigest: [UInt8], now: Instant) -> (id: String, session: Session) {
    sessions = sessions.filter { $0.value.endsAt > now && $0.value.keyDigest == keyDigest }
    if sessions.count >= Self.countMax, let oldest = sessions.min(by: { $0.value.endsAt < $1.value.endsAt }) {
      sessions[oldest.key] = nil
    }
    let id = Self.random()
    let session = Session(token: Self.random(), endsAt: now + Self.timeToLive, keyDigest: keyDigest)
    sessions[Self.name(id)] = session
    return (id, session)
  }

  func find(_ id: String, now: Instant) -> Session? {
    sessions[Self.name(id)].flatMap { $0.endsAt > now ? $0 : nil }
  }

  mutating func close(_ id: String) {
    sessions[Self.name(id)] = nil
  }

  private static func name(_ id: String) -> [UInt8] { SHA256.digest(Array(id.utf8)) }

  /// 256 bits from the system's source.
  private static func random() -> String {
    var source = SystemRandomNumberGenerator()
    let bytes = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &source) }
    return String(decoding: Base64URL.encode(bytes), as: UTF8.self)
  }
}
