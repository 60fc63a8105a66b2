// Until when requests may leave. A gateway that may have been declared dead must send nothing, whatever woke it up.
//
// The answer of a provider, a new connection or a window update may make room for a request before any timer is looked at: after
// a process was frozen, sockets are ready and timers are due at once. So the permit is not only looked at where a request is
// decided on, but at the moment at which it is about to be written.

public import Runtime

/// How long the requests of all providers of a gateway may be written. One object for all of them, on their loop.
// @unchecked: touched by the loop's thread only, which each access checks.
public final class SendPermit: @unchecked Sendable {
  /// The reason of a request that was not written: certainly not processed, and no attempt.
  public static let lapsedReason = "LeaseUnconfirmed"

  private let loop: EventLoop
  private var end: Instant

  /// - Parameter until: nothing may leave when not given.
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
