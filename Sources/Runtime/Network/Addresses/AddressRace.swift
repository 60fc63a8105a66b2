// Which of a host's addresses are tried when (RFC 8305 §5): a decision from times alone, no socket, no clock.
//
// One attempt after the other is begun, `attemptDelay` apart, without waiting for those before to fail; one that fails makes
// way for the next at once. The first that is open wins, and the others are given up. Open means the whole handshake: an
// address behind which TCP answers and TLS does not is as useless as one that is silent. But a handshake takes longer than a
// SYN, so an address that was reached has `handshakePatience` for itself before another is tried beside it.

/// The race between the addresses of a host. Addresses are their places in the order in which they are to be tried.
public struct AddressRace {
  public enum Event: Equatable, Sendable {
    case started
    /// TCP is connected.
    case reached(Int)
    /// The connection is open.
    case opened(Int)
    case failed(Int)
    /// The time asked for by `wake`.
    case woken
  }

  public enum Action: Equatable, Sendable {
    case attempt(Int)
    /// The attempt is given up; if nothing else is said of it, it has lost.
    case abandon(Int)
    /// The attempt has had its time and counts as failed. It is given up.
    case timeOut(Int)
    case wake(Instant)
    /// The race is over; nil when no address is left.
    case finish(winner: Int?)
  }

  public struct Settings: Sendable {
    /// From the beginning of an attempt to that of the next (RFC 8305 §8).
    public var attemptDelay = Nanoseconds.milliseconds(250)
    /// From TCP's connection to the beginning of the next attempt.
    public var handshakePatience = Nanoseconds.seconds(1)
    /// How long an attempt may take in all.
    public var attemptTimeout = Nanoseconds.seconds(4)

    public init() {}
  }

  private enum Stage: Equatable {
    case untried
    case connecting(since: Instant)
    case reached(since: Instant)
    case over

    var begin: Instant? {
      switch self {
      case .connecting(let since), .reached(let since): since
      case .untried, .over: nil
      }
    }
  }

  private let settings: Settings
  private var stages: [Stage]
  private var next = 0
  private var nextAt = Instant(nanoseconds: .min)
  private var isFinished = false

  /// - Parameter count: how many addresses there are.
  public init(count: Int, settings: Settings = Settings()) {
    self.settings = settings
    stages = [Stage](repeating: .untried, count: count)
  }

  /// Takes one event in and appends what is to be done about it, in order.
  public mutating func handle(_ event: Event, now: Instant, _ actions: inout [Action]) {
    guard !isFinished else { return }
    switch event {
    case .started, .woken: break
    case .reached(let place):
      guard case .connecting(let since) = stages[place] else { break }
      stages[place] = .reached(since: since)
      nextAt = max(nextAt, now + settings.handshakePatience)
    case .failed(let place): fail(place, now)
    case .opened(let place):
      isFinished = true
      for other in stages.indices where other != place && stages[other].begin != nil { actions.append(.abandon(other)) }
      return actions.append(.finish(winner: place))
    }
    for place in stages.indices {
      guard let begin = stages[place].begin, begin + settings.attemptTimeout <= now else { continue }
      actions.append(.timeOut(place))
      fail(place, now)
    }
    if next < stages.count, nextAt <= now {
      stages[next] = .connecting(since: now)
      actions.append(.attempt(next))
      next += 1
      nextAt = now + settings.attemptDelay
    }
    let ends = stages.compactMap { $0.begin.map { $0 + settings.attemptTimeout } }
    if next == stages.count, ends.isEmpty {
      isFinished = true
      return actions.append(.finish(winner: nil))
    }
    let wake = min(ends.min() ?? .distantFuture, next < stages.count ? nextAt : .distantFuture)
    actions.append(.wake(wake))
  }

  /// The next attempt need not wait, unless another has got further already.
  private mutating func fail(_ place: Int, _ now: Instant) {
    guard stages[place] != .over else { return }
    stages[place] = .over
    let isAnotherReached = stages.contains { if case .reached = $0 { true } else { false } }
    if !isAnotherReached { nextAt = now }
  }
}
