// How often libcurl, which connects for each request that finds no connection, may try to. No clock, no socket.

internal import Runtime

/// The waits between requests for which no connection could be made: those of `ReconnectBackoff`, from the beginning of a try to
/// the next, and one request at a time until one has left.
struct ConnectGate {
  private let backoff: ReconnectBackoff
  private var random: SplitMix64
  /// Tries in a row for which there was no connection.
  private(set) var failures = 0
  /// No request is made before.
  private(set) var opensAt = Instant(nanoseconds: .min)

  /// - Parameter seed: where the jitter starts.
  init(backoff: ReconnectBackoff = ReconnectBackoff(), seed: UInt64) {
    self.backoff = backoff
    random = SplitMix64(seed: seed)
  }

  /// Whether a request may start while a given number of others is in flight.
  func admits(beside requestsUnderWay: Int, _ now: Instant) -> Bool {
    failures == 0 || opensAt <= now && requestsUnderWay == 0
  }

  /// A request has left, whatever became of it.
  mutating func didConnect() {
    failures = 0
    opensAt = Instant(nanoseconds: .min)
  }

  /// What made connections fail may have been mended: one request may try.
  mutating func tryNow() { opensAt = Instant(nanoseconds: .min) }

  /// A request found no connection. Those that were made together have failed together, once.
  mutating func didFail(begunAt: Instant) {
    guard begunAt >= opensAt else { return }
    failures += 1
    opensAt = begunAt + backoff.delay(afterFailures: failures, random: random.next())
  }
}

extension CurlFailure {
  /// No connection could be made for the request.
  var isWithoutConnection: Bool {
    guard sentAt == nil else { return false }
    return switch reason {
    case .nameNotResolved, .notConnected, .proxyAuthenticationRequired, .proxyFailed, .tlsFailed, .untrusted, .timedOut,
      .connectionLost:
      true
    case .addressNotAllowed, .malformedRequest, .withheld, .deadlinePassed, .rootsUnusable, .responseTooLarge,
      .malformedResponse, .closed, .other:
      false
    }
  }
}
