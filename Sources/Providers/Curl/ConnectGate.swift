// Limits how often libcurl tries to connect. libcurl connects for each request that finds no connection. No clock, no socket.

internal import Runtime

/// Delays requests after no connection could be opened. The waits are those of `ReconnectBackoff`, measured from the start of one
/// try to the next. Until a request has been sent, only one request at a time is admitted.
struct ConnectGate {
  private let backoff: ReconnectBackoff
  private var random: SplitMix64
  /// Number of tries in a row that found no connection.
  private(set) var failures = 0
  /// No request is made before this time.
  private(set) var opensAt = Instant(nanoseconds: .min)

  /// - Parameter seed: the seed of the jitter.
  init(backoff: ReconnectBackoff = ReconnectBackoff(), seed: UInt64) {
    self.backoff = backoff
    random = SplitMix64(seed: seed)
  }

  /// Whether a request may start while this number of others is in flight.
  func admits(beside requestsUnderWay: Int, _ now: Instant) -> Bool {
    failures == 0 || opensAt <= now && requestsUnderWay == 0
  }

  /// A request was sent, whatever its outcome.
  mutating func didConnect() {
    failures = 0
    opensAt = Instant(nanoseconds: .min)
  }

  /// Ends the wait, because the cause of the failures may have been fixed. One request may try.
  mutating func tryNow() { opensAt = Instant(nanoseconds: .min) }

  /// A request found no connection. Requests that started together count as one failure.
  mutating func didFail(begunAt: Instant) {
    guard begunAt >= opensAt else { return }
    failures += 1
    opensAt = begunAt + backoff.delay(afterFailures: failures, random: random.next())
  }
}

extension CurlFailure {
  /// Whether no connection could be opened for the request.
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
