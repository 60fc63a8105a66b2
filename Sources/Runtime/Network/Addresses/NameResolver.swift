// Resolves host names on threads of its own, because the system's resolver may block for many seconds.
//
// Each name has at most one look-up at a time, on a thread of its own, so that a name whose servers are silent delays no other
// name and no loop. The wait for an answer is limited. Every connection looks the name up again, so changed addresses are
// followed. The last answer is kept and used when the resolver fails or does not answer soon (RFC 8767): an address of an hour
// ago is better than none, and TLS shows whether it is still the same host.

internal import Dispatch
internal import Synchronization

/// Looks names up. The process has one; tests may have their own.
public final class NameResolver: Sendable {
  public typealias Outcome = Result<[SocketAddress], SocketAddress.ResolutionError>

  /// The system's resolver.
  public static let system = NameResolver { SocketAddress.lookUp($0) }

  /// Returns these addresses for every name, without a look-up.
  public static func of(_ addresses: [SocketAddress]) -> NameResolver { NameResolver { _ in .success(addresses) } }

  /// The limits of a resolver.
  public struct Limits: Sendable {
    /// Maximum wait for an answer if there was none before.
    public var timeLimit = Nanoseconds.seconds(3)
    /// Maximum wait if there was an answer before, which is then used.
    public var timeLimitWithStale = Nanoseconds.milliseconds(300)
    /// Maximum age of an answer that is used.
    public var staleTime = Nanoseconds.seconds(86_400)
    /// Maximum number of look-ups at a time, each on a thread. Others wait.
    public var lookupsMax = 16
    /// Maximum number of answers that are kept. The oldest is forgotten first.
    public var answersMax = 256

    public init() {}
  }

  /// A caller that waits for an answer. Touched on its loop only.
  private final class Waiter: @unchecked Sendable {
    let loop: EventLoop
    private var completion: ((Outcome) -> Void)?
    private var timer: EventLoop.Timer?

    init(_ loop: EventLoop, _ completion: @escaping (Outcome) -> Void) {
      self.loop = loop
      self.completion = completion
    }

    func limit(_ time: Nanoseconds, _ outcome: Outcome) {
      timer = loop.schedule(at: loop.now + time) { self.finish(outcome) }
    }

    func finish(_ outcome: Outcome) {
      timer?.cancel()
      timer = nil
      let completion = self.completion
      self.completion = nil
      completion?(outcome)
    }
  }

  private struct Answer {
    var addresses: [SocketAddress]
    var givenAt: Instant
  }

  private struct State {
    var answers: [String: Answer] = [:]
    var waiting: [String: [Waiter]] = [:]
    var queued: [String] = []
    var running = 0
  }

  private let limits: Limits
  private let clock: any GatewayClock
  private let lookUp: @Sendable (String) -> Outcome
  private let state = Mutex(State())

  /// - Parameter lookUp: finds the addresses of a name, with port 0; may block.
  public init(
    limits: Limits = Limits(), clock: any GatewayClock = SystemClock(), lookUp: @escaping @Sendable (String) -> Outcome
  ) {
    self.limits = limits
    self.clock = clock
    self.lookUp = lookUp
  }

  /// Looks up all addresses of a host, in the system's order of preference. The result is passed on the loop: once, within the
  /// limit, and never inside this call.
  public func resolve(
    _ host: String, port: UInt16, on loop: EventLoop, _ completion: @escaping (Outcome) -> Void
  ) {
    loop.checkIsolated()
    if let address = SocketAddress(numericHost: host, port: port) {
      return loop.atEndOfTurn { completion(.success([address])) }
    }
    let waiter = Waiter(loop) { outcome in completion(outcome.map { $0.map { $0.with(port: port) } }) }
    let now = clock.now()
    let (stale, mustStart) = state.withLock { state in
      state.waiting[host, default: []].append(waiter)
      let stale = usable(state.answers[host], now)
      guard state.waiting[host]?.count == 1 else { return (stale, false) }
      guard state.running < limits.lookupsMax else {
        state.queued.append(host)
        return (stale, false)
      }
      state.running += 1
      return (stale, true)
    }
    if let stale {
      waiter.limit(limits.timeLimitWithStale, .success(stale))
    } else {
      let reason = "\(host) cannot be resolved: no answer within \(limits.timeLimit.seconds) s"
      waiter.limit(limits.timeLimit, .failure(SocketAddress.ResolutionError(description: reason)))
    }
    if mustStart { start(host) }
  }

  private func usable(_ answer: Answer?, _ now: Instant) -> [SocketAddress]? {
    guard let answer, answer.givenAt + limits.staleTime > now else { return nil }
    return answer.addresses
  }

  private func start(_ host: String) {
    // A queue of its own: unlike a global queue it gets a thread even while other look-ups block.
    DispatchQueue(label: "name-resolver").async { [self] in finish(host, lookUp(host)) }
  }

  private func finish(_ host: String, _ outcome: Outcome) {
    let now = clock.now()
    let (waiters, result, next) = state.withLock { state -> ([Waiter], Outcome, String?) in
      let waiters = state.waiting.removeValue(forKey: host) ?? []
      var result = outcome
      if case .success(let addresses) = outcome, !addresses.isEmpty {
        state.answers[host] = Answer(addresses: addresses, givenAt: now)
        if state.answers.count > limits.answersMax,
          let oldest = state.answers.min(by: { $0.value.givenAt < $1.value.givenAt })
        {
          state.answers[oldest.key] = nil
        }
      } else if let stale = usable(state.answers[host], now) {
        result = .success(stale)
      }
      guard !state.queued.isEmpty else {
        state.running -= 1
        return (waiters, result, nil)
      }
      return (waiters, result, state.queued.removeFirst())
    }
    for waiter in waiters { waiter.loop.execute { waiter.finish(result) } }
    if let next { start(next) }
  }
}
