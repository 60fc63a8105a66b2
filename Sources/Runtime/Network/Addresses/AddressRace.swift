// Decides which of a host's addresses to try when (RFC 8305 §5). No socket, no clock.
//
// Attempts begin one after the other, `attemptDelay` apart, without waiting for earlier ones to fail. When an attempt fails, the
// next begins at once. The first open attempt wins, and the others are cancelled. Open means that the whole handshake is
// complete: an address that answers TCP but not TLS is as useless as a silent one. But a handshake takes longer than a SYN, so
// after an address was reached, the next attempt begins only after `handshakePatience`.

/// The race between the addresses of a host. An address is its index in the order in which addresses are tried.
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
    /// Cancel the attempt: it has lost the race, unless another action says otherwise.
    case abandon(Int)
    /// The attempt has timed out and counts as failed. Cancel it.
    case timeOut(Int)
    case wake(Instant)
    /// The race is over. Nil if no address is left.
    case finish(winner: Int?)
  }

  public struct Settings: Sendable {
    /// The time from the start of an attempt to the start of the next (RFC 8305 §8).
    public var attemptDelay = Nanoseconds.milliseconds(250)
    /// The time from a TCP connection to the start of the next attempt.
    public var handshakePatience = Nanoseconds.seconds(1)
    /// Maximum time of an attempt.
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

  /// - Parameter count: number of addresses.
  public init(count: Int, settings: Settings = Settings()) {
    self.settings = settings
    stages = [Stage](repeating: .untried, count: count)
  }

  /// Handles one event and appends the resulting actions, in order.
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

  /// Ends an attempt. The next one starts at once, unless another attempt has reached its address.
  private mutating func fail(_ place: Int, _ now: Instant) {
    guard stages[place] != .over else { return }
    stages[place] = .over
    let isAnotherReached = stages.contains { if case .reached = $0 { true } else { false } }
    if !isAnotherReached { nextAt = now }
  }
}
