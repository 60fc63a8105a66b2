// The circuit breaker of a lane. Pure.
//
//   closed ── too many failures in a row, or our credentials refused ──▶ open ── time is over ──▶ half-open
//     ▲                                                    or `tryNow`    ▲                          │
//     └──────────────────────── a success ────────────────────────────────┼──────────────────────────┤
//                                                                         └──────── a failure ───────┘
//
// While the circuit is open, the lane claims nothing. Its deliveries wait in the outbox, and no attempt is counted, until the
// provider answers again or their deadline comes. A half-open circuit lets one delivery try, and another one every second while that
// one has no answer.
//
// A request without an answer is no failure of the provider if the provider has answered since it was sent: the fault is its own.

public import Runtime

/// Decides from the provider's answers whether a lane may claim.
public struct LaneCircuit: Sendable {
  public struct Limits: Sendable {
    /// Number of consecutive failures that open the circuit. Refused credentials open it at once.
    public var failures = 20
    /// Maximum number of failures that count for one delivery. The fault may be its own, and it must not stop the others.
    public var failuresOfOne = 5
    /// How long the circuit stays open the first time. The time doubles whenever a probe fails.
    public var openFor: Nanoseconds = .seconds(1)
    public var openForMost: Nanoseconds = .seconds(15)
    public init() {}
  }

  public enum State: Sendable, Equatable {
    case closed
    case open(until: Instant)
    case halfOpen
  }

  /// What an answer has changed.
  public enum Change: Sendable, Equatable {
    case opened(until: Instant)
    /// It was open or half-open.
    case closed
  }

  /// What an answer says about the provider, apart from what it says about the delivery.
  public enum Answer: Sendable, Equatable {
    /// The provider works: it accepted the delivery, or refused this one alone.
    case working
    /// The provider is in trouble, or did not answer.
    case failing
    /// A connection was lost with the request on it. A lost connection counts once, however many requests it carried.
    case lost(connection: Int)
    /// The provider does not accept our credentials or configuration.
    case unauthorized
  }

  public private(set) var state = State.closed
  private let limits: Limits
  private var failures = 0
  /// When the provider answered last.
  private var workedAt = Instant(nanoseconds: .min)
  /// When the circuit became half-open last.
  private var halfOpenAt = Instant(nanoseconds: .min)
  /// The failures in a row by delivery.
  private var failuresByDelivery: [DeliveryKey: Int] = [:]
  /// The latest connections whose loss was counted.
  private var lostConnections: [Int] = []
  private static let lostConnectionsMax = 8
  private var openings = 0

  public init(limits: Limits = Limits()) {
    self.limits = limits
  }

  /// Updates the state to `now`: an open circuit becomes half-open when its time is over.
  public mutating func advance(_ now: Instant) {
    if case .open(let until) = state, until <= now { tryNow(until) }
  }

  /// Counts an answer. Returns what it changed; nil if nothing.
  ///
  /// - Parameters:
  ///   - delivery: what it was about; nil where that is not known.
  ///   - unansweredSince: when the request was sent, if it got no answer in time; nil otherwise.
  public mutating func didHear(
    _ answer: Answer, about delivery: DeliveryKey? = nil, unansweredSince: Instant? = nil, _ now: Instant
  ) -> Change? {
    if let unansweredSince, unansweredSince < max(workedAt, halfOpenAt) { return nil }
    if case .lost(let connection) = answer {
      guard !lostConnections.contains(connection) else { return nil }
      lostConnections.append(connection)
      if lostConnections.count > Self.lostConnectionsMax { lostConnections.removeFirst() }
    }
    switch (answer, state) {
    case (.working, _):
      // An answer to a request from before the opening counts, too: the provider works.
      let change: Change? = state == .closed ? nil : .closed
      workedAt = now
      close()
      return change
    case (_, .open): return nil
    case (.unauthorized, _), (.failing, .halfOpen), (.lost, .halfOpen):
      return open(now)
    case (.failing, .closed), (.lost, .closed):
      if let delivery {
        let count = failuresByDelivery[delivery, default: 0] + 1
        guard count <= limits.failuresOfOne else { return nil }
        failuresByDelivery[delivery] = count
      }
      failures += 1
      return failures >= limits.failures ? open(now) : nil
    }
  }

  /// The cause may be gone, so an open circuit becomes half-open at once.
  public mutating func tryNow(_ now: Instant) {
    guard case .open = state else { return }
    state = .halfOpen
    halfOpenAt = now
  }

  /// The provider works.
  public mutating func close() {
    state = .closed
    forgetFailures()
    openings = 0
  }

  /// The provider is in trouble until then, at least. An open circuit stays open for the longer time.
  public mutating func open(until: Instant) {
    if case .open(let current) = state, current >= until { return }
    forgetFailures()
    state = .open(until: until)
  }

  /// How long the circuit stays open from now on, at least; zero if it is not open.
  public func wait(_ now: Instant) -> Nanoseconds {
    if case .open(let until) = state { max(.zero, until - now) } else { .zero }
  }

  private mutating func forgetFailures() {
    failures = 0
    if !failuresByDelivery.isEmpty { failuresByDelivery = [:] }
  }

  private mutating func open(_ now: Instant) -> Change {
    let time = min(limits.openForMost, Nanoseconds(limits.openFor.count << min(openings, 10)))
    openings += 1
    forgetFailures()
    state = .open(until: now + time)
    return .opened(until: now + time)
  }
}
