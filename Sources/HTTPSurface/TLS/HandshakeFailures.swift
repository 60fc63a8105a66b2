// Counts and logs failed TLS handshakes of a listener: at most one log line a second for each reason.

internal import Logging
internal import Runtime
internal import Settings
internal import Synchronization

/// Counts the failed handshakes of one listener.
final class HandshakeFailures: Sendable {
  enum Reason: String, CaseIterable, Sendable {
    /// The client sent no certificate, but one is required.
    case noCertificate = "no_certificate"
    /// The client's certificate is not issued by `client_ca_file`, has expired, or is not for clients.
    case wrongCertificate = "wrong_certificate"
    /// The client refused the handshake, usually because of the listener's certificate.
    case refusedByClient = "refused_by_client"
    /// The connection was closed before the handshake was complete.
    case closed
    /// The client does not use a supported TLS: clear text, an old version, or other ciphers.
    case `protocol`

    init(_ error: TLSError) {
      self =
        switch error.code {
        case .noCertificate: .noCertificate
        case .verification: .wrongCertificate
        case .refused: .refusedByClient
        case .connection: .closed
        default: .protocol
        }
    }

    /// Port scans and simple health checks also close the connection.
    var level: Logger.Level { self == .closed ? .debug : .notice }
  }

  private struct Line {
    var bucket = TokenBucket(saved: 1, perSecond: 1)
    /// Number of failures since the last log line.
    var untold = 0
  }

  private let listener: String
  private let logger: Logger
  private let clock: any GatewayClock
  private let state = Mutex<(counts: [Reason: Int], lines: [Reason: Line])>(([:], [:]))

  /// - Parameter listener: `http` or `api`.
  init(listener: String, logger: Logger, clock: any GatewayClock = SystemClock()) {
    self.listener = listener
    self.logger = logger
    self.clock = clock
  }

  /// The number of failures with this reason.
  func count(_ reason: Reason) -> Int { state.withLock { $0.counts[reason] ?? 0 } }

  /// - Parameter peer: the address at the other end of the connection.
  func note(_ reason: Reason, of peer: IPAddress) {
    let now = clock.now()
    let count: Int? = state.withLock { state in
      state.counts[reason, default: 0] += 1
      state.lines[reason, default: Line()].untold += 1
      guard state.lines[reason]?.bucket.consume(now) == true else { return nil }
      defer { state.lines[reason]?.untold = 0 }
      return state.lines[reason]?.untold
    }
    guard let count else { return }
    logger.log(
      level: reason.level, "A TLS handshake failed",
      metadata: [
        "listener": "\(listener)", "peer": "\(peer)", "reason": "\(reason.rawValue)",
        "count": .stringConvertible(count),
      ])
  }
}
