// The time until which requests may be sent. A gateway whose lease may have expired must send nothing.
//
// The permit is checked when a request is chosen and again when the request is about to be written. After a process was frozen,
// sockets are ready and timers are due at the same time. The answer of a provider, a new connection or a window update may then
// make room for a request before any timer runs.

public import Runtime

/// Until when the requests of all providers of a gateway may be written. All providers share one object, on their loop.
// @unchecked: used only on the loop's thread, which each access checks.
public final class SendPermit: @unchecked Sendable {
  /// The reason of a request that was not written. It was certainly not processed and does not count as an attempt.
  public static let lapsedReason = "LeaseUnconfirmed"

  private let loop: EventLoop
  private var end: Instant

  /// - Parameter until: the end of the permit. By default no request may be sent.
  public init(on loop: EventLoop, until: Instant = Instant(nanoseconds: .min)) {
    self.loop = loop
    end = until
  }

  /// Requests may be written before this instant.
  public var until: Instant {
    get {
      loop.checkIsolated()
      return end
    }
    set {
      loop.checkIsolated()
      end = newValue
    }
  }

  /// Whether a request may be written now.
  public func allows(_ now: Instant) -> Bool { now < until }
}
