// The circuit breaker of a lane. Pure.
//
//   closed ── pushes to several tokens failed ──▶ open ── a second is over, or `tryNow` ──▶ half-open
//     ▲                                            ▲                                           │
//     └──────────────── a success ─────────────────┼───────────────────────────────────────────┤
//                                                  └──────────────── a failure ────────────────┘
//
// While the circuit is open, the lane claims nothing. Its deliveries wait in the outbox, where other replicas find them, and no attempt is
// counted. A half-open circuit lets one delivery try, and another one every second while that one has no answer. Other replicas come
// first then: it tries what they leave (`LaneAllowance.isLast`). There is one exception: silence alone keeps no ring from its first try,
// because the provider may only be slow (`isSilent`). What was never tried is then claimed also while the circuit is open.
//
// Two tokens are enough, because it costs little to be wrong: a lone ring waits for a second at most, and the first success closes the
// circuit. One token proves nothing, whatever the provider says of our credentials: the fault may be its own. So if a half-open circuit
// has tried a token that had failed before, the next try is soon, but each time later, as the provider may be down. A request without an
// answer is no failure of the provider if the provider has answered since it was sent.

public import Runtime

/// Decides from the provider's answers whether a lane may claim.
public struct LaneCircuit: Sendable {
  public struct Limits: Sendable {
    /// Number of tokens that must fail, with no success between them, to open the circuit.
    public var tokens = 2
    /// How long a failure counts.
    public var memory: Nanoseconds = .seconds(60)
    /// How long the circuit stays open before a delivery tries.
    public var openFor: Nanoseconds = .seconds(1)
    /// The same after a try that has shown nothing new, because its token had failed before. It doubles with each further one in
    /// succession, up to `openFor`.
    public var openAgainFor: Nanoseconds = .milliseconds(250)
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
    /// The same, together with others that count once with it: the number of a connection that was lost, or of a request that carried
    /// several pushes.
    case failingTogether(Int)
    /// The provider does not accept our credentials or configuration.
    case unauthorized
  }

  public private(set) var state = State.closed
  private let limits: Limits
  /// The failures since the last success, each of another token.
  private var failures: [(token: ArraySlice<UInt8>, at: Instant, isSilence: Bool)] = []
  /// How long the circuit stays open after the next try that shows nothing new.
  private var nextAgain: Nanoseconds
  /// When the provider answered last.
  private var workedAt = Instant(nanoseconds: .min)
  /// When the circuit became half-open last.
  private var halfOpenAt = Instant(nanoseconds: .min)
  /// The latest connections and requests that were counted.
  private var groups: [Int] = []
  private static let groupsMax = 8
  private static let failuresMax = 64

  public init(limits: Limits = Limits()) {
    self.limits = limits
    nextAgain = limits.openAgainFor
  }

  /// Whether the last push failed, or the circuit is not closed. Nothing has worked since.
  public func isDoubtful(_ now: Instant) -> Bool {
    state != .closed || failures.contains { $0.at + limits.memory > now }
  }

  /// Whether no more is known than that requests got no answers. What one token gets instead says nothing of the provider.
  public var isSilent: Bool {
    let others = failures.lazy.filter { !$0.isSilence }
    return others.count < min(limits.tokens, failures.count) && others.allSatisfy { !$0.token.isEmpty }
  }

  /// Updates the state to `now`: an open circuit becomes half-open when its time is over.
  public mutating func advance(_ now: Instant) {
    if case .open(let until) = state, until <= now { tryNow(until) }
  }

  /// Counts an answer. Returns what it changed; nil if nothing.
  ///
  /// - Parameters:
  ///   - token: the token it was about; nil where that is not known.
  ///   - unansweredSince: when the request was sent, if it got no answer in time; nil otherwise.
  public mutating func didHear(
    _ answer: Answer, about token: ArraySlice<UInt8>? = nil, unansweredSince: Instant? = nil, _ now: Instant
  ) -> Change? {
    if let unansweredSince, unansweredSince < max(workedAt, halfOpenAt) { return nil }
    if case .failingTogether(let group) = answer {
      guard !groups.contains(group) else { return nil }
      groups.append(group)
      if groups.count > Self.groupsMax { groups.removeFirst() }
    }
    if answer == .working {
      // An answer to a request from before the opening counts, too: the provider works.
      let change: Change? = state == .closed ? nil : .closed
      workedAt = now
      close()
      return change
    }
    let hadFailed = failures.contains { $0.token == token }
    note(token ?? [], isSilence: unansweredSince != nil, now)
    switch state {
    case .open: return nil
    case .halfOpen:
      let time = hadFailed ? nextAgain : limits.openFor
      nextAgain = hadFailed ? min(nextAgain * 2, limits.openFor) : limits.openAgainFor
      return open(for: time, now)
    case .closed: return failures.count >= limits.tokens ? open(for: limits.openFor, now) : nil
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
    nextAgain = limits.openAgainFor
    if !failures.isEmpty { failures = [] }
  }

  /// Pushes of the account were refused elsewhere in this process. The circuit is open until then, at least.
  public mutating func open(until: Instant, _ now: Instant) {
    note([], isSilence: false, now)
    if case .open(let current) = state, current >= until { return }
    state = .open(until: until)
  }

  /// How long the circuit stays open from now on, at least; zero if it is not open.
  public func wait(_ now: Instant) -> Nanoseconds {
    if case .open(let until) = state { max(.zero, until - now) } else { .zero }
  }

  private mutating func note(_ token: ArraySlice<UInt8>, isSilence: Bool, _ now: Instant) {
    failures.removeAll { $0.at + limits.memory <= now || $0.token == token }
    // A copy, because the token is a part of a larger buffer.
    failures.append((Array(token)[...], now, isSilence))
    if failures.count > Self.failuresMax { failures.removeFirst() }
  }

  private mutating func open(for time: Nanoseconds, _ now: Instant) -> Change {
    state = .open(until: now + time)
    return .opened(until: now + time)
  }
}
