// The circuit breaker of a lane. Pure.
//
//   closed ── too many failures in a row, or our credentials refused ──▶ open ── time is over ──▶ half-open
//     ▲                                                    or `tryNow`    ▲                          │
//     └──────────────────────── a success ────────────────────────────────┼──────────────────────────┤
//                                                                         └──────── a failure ───────┘
//
// While it is open the lane claims nothing: its deliveries wait in the outbox, uncounted, until the provider answers again or
// their deadline comes. Half-open lets a single delivery try.

public import Runtime

/// Whether a lane may claim, judged by its provider's answers.
public struct LaneCircuit: Sendable {
  public struct Limits: Sendable {
    /// Failures in a row that open the circuit; refused credentials open it at once.
    public var failures = 20
    /// Of these count so many of one delivery: it may be at fault itself, and must not stop its neighbours.
    public var failuresOfOne = 5
    /// How long it stays open the first time; doubled each time a probe fails.
    public var openFor: Nanoseconds = .seconds(1)
    public var openForMost: Nanoseconds = .seconds(15)
    public init() {}
  }

  public enum State: Sendable, Equatable {
    case closed
    case open(until: Instant)
    case halfOpen
  }

  /// What an answer says about the provider, whatever it says about the delivery.
  public enum Answer: Sendable, Equatable {
    /// It works: it accepted, or it refused this one delivery.
    case working
    /// It is in trouble, or did not answer.
    case failing
    /// A connection was lost with the request on it: however many there were, that is one failure.
    case lost(connection: Int)
    /// It does not accept our credentials or configuration.
    case unauthorized
  }

  public private(set) var state = State.closed
  private let limits: Limits
  private var failures = 0
  /// How many of these are of one delivery.
  private var failuresByDelivery: [DeliveryKey: Int] = [:]
  /// Connections whose loss was counted, the last ones.
  private var lostConnections: [Int] = []
  private static let lostConnectionsMax = 8
  private var openings = 0

  public init(limits: Limits = Limits()) {
    self.limits = limits
  }

  /// The state at `now`: an open circuit becomes half-open when its time is over.
  public mutating func advance(_ now: Instant) {
    if case .open(let until) = state, until <= now { state = .halfOpen }
  }

  /// An answer came. Returns whether it opened the circuit.
  ///
  /// - Parameter delivery: what it was about; nil where that is not known.
  public mutating func didHear(_ answer: Answer, about delivery: DeliveryKey? = nil, _ now: Instant) -> Bool {
    if case .lost(let connection) = answer {
      guard !lostConnections.contains(connection) else { return false }
      lostConnections.append(connection)
      if lostConnections.count > Self.lostConnectionsMax { lostConnections.removeFirst() }
    }
    switch (answer, state) {
    case (.working, _):
      // Late answers of before the opening count too: the provider works.
      state = .closed
      forgetFailures()
      openings = 0
      return false
    case (_, .open): return false
    case (.unauthorized, _), (.failing, .halfOpen), (.lost, .halfOpen):
      return open(now)
    case (.failing, .closed), (.lost, .closed):
      if let delivery {
        let count = failuresByDelivery[delivery, default: 0] + 1
        guard count <= limits.failuresOfOne else { return false }
        failuresByDelivery[delivery] = count
      }
      failures += 1
      return failures >= limits.failures ? open(now) : false
    }
  }

  /// What opened it may have been mended: an open circuit lets a delivery try at once.
  public mutating func tryNow() {
    if case .open = state { state = .halfOpen }
  }

  /// How long it stays open at least; zero while it is not.
  public func wait(_ now: Instant) -> Nanoseconds {
    if case .open(let until) = state { max(.zero, until - now) } else { .zero }
  }

  private mutating func forgetFailures() {
    failures = 0
    if !failuresByDelivery.isEmpty { failuresByDelivery = [:] }
  }

  private mutating func open(_ now: Instant) -> Bool {
    let time = min(limits.openForMost, Nanoseconds(limits.openFor.count << min(openings, 10)))
    openings += 1
    forgetFailures()
    state = .open(until: now + time)
    return true
  }
}
