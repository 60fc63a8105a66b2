// The time until which requests may be sent. A gateway whose lease may have expired must send nothing.
//
// The permit is checked when a request is chosen and again when the request is about to be written. After a process was frozen,
// sockets are ready and timers are due at the same time. The answer of a provider, a new connection or a window update may then
// make room for a request before any timer runs.
//
// A gateway has a lease in each of its databases, so each has a permit of its own. A request carries the permit of the database
// that it comes from: while one database is away, the requests of the others are sent.

public import Runtime

/// Until when the requests of one database may be written.
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

/// The permits of all requests that are sent through the same providers. All providers of a gateway share one object, on their
/// loop. With it they check all requests at once: a request's own permit is asked only while one of the permits has lapsed.
// @unchecked: used only on the loop's thread, which each access of a permit checks.
public final class SendPermits: @unchecked Sendable {
  private var permits: [SendPermit]

  public init(_ permits: [SendPermit] = []) { self.permits = permits }

  public func add(_ permit: SendPermit) { permits.append(permit) }

  /// Removes a permit that no request carries any more.
  public func remove(_ permit: SendPermit) { permits.removeAll { $0 === permit } }

  /// Whether every request may be written now, whatever its permit.
  public func allowAll(_ now: Instant) -> Bool { permits.allSatisfy { $0.allows(now) } }

  /// Whether no request may be written now.
  public func allowNone(_ now: Instant) -> Bool { !permits.isEmpty && !permits.contains { $0.allows(now) } }
}
