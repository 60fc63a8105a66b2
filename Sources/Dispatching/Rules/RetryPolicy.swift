// What to do about an outcome. Pure: outcome, attempts, time left and a random number in; a disposition out.
//
// The waits double from `base`, with full jitter, because everything that failed together must not come back together. A retry
// only happens when its wait and a typical round trip still end before the deadline: a late ring is worse than none.

internal import Providers
internal import PushModel
internal import Queue
public import Runtime

/// What happens to a delivery next.
enum Disposition: Sendable, Equatable {
  /// It is over: write it down.
  case settle(DeliveryOutcome, reason: String?)
  /// Try again after a short wait, kept in memory under the lease. `isCounted` is false when nothing was attempted.
  case retry(after: Nanoseconds, reason: String, isCounted: Bool)
  /// Try again after a wait too long to keep it in memory: put it back into the outbox.
  case park(after: Nanoseconds, reason: String)
}

/// Decides about outcomes.
public struct RetryPolicy: Sendable {
  /// The first wait's upper end; each further one doubles it.
  public var base: Nanoseconds = .milliseconds(200)
  /// No wait of our own choosing is longer.
  public var cap: Nanoseconds = .seconds(5)
  /// A typical round trip, which must fit between a retry and the deadline.
  public var roundTrip: Nanoseconds = .milliseconds(200)
  /// Longer waits are parked in the outbox.
  public var longestInMemory: Nanoseconds = .seconds(2)
  /// How long APNs' other environment may take to say whether a token is its own.
  public var environmentProbe: Nanoseconds = .seconds(2)
  /// The wait before something that was certainly not processed is sent again.
  public var refusedWait: Nanoseconds = .milliseconds(20)

  /// A provider's word silences a whole lane for this long at most; then it is asked again.
  public var longestPause: Nanoseconds = .seconds(60)

  public init() {}

  /// The upper end of the wait after `attempts` failed attempts: 200, 400, 800, 1600, 3200, 5000, 5000 … ms.
  func longestWait(afterAttempts attempts: Int) -> Nanoseconds {
    min(cap, Nanoseconds(base.count << min(max(attempts - 1, 0), 20)))
  }

  /// The reason of a push that people see, and of which nobody knows whether it arrived; what happened to it is among its failed
  /// tries.
  static let fateUnknown = "FateUnknown"

  /// Whether a push of unknown fate is sent again. A phone makes one call of two invites, but two missed calls stay two: what
  /// people see is repeated only where its app would rather have it twice than not at all.
  static func isRepeatable(_ kind: PushKind, isAtLeastOnce: Bool) -> Bool {
    isAtLeastOnce || !kind.isVisible
  }

  /// - Parameters:
  ///   - attempts: attempts made so far, the one just answered included.
  ///   - throttles: how often the provider said that this very token gets too many pushes, this time included.
  ///   - losses: how often the connection was lost with it, this time included.
  ///   - isRepeatable: whether it is sent again when nobody knows if it arrived.
  ///   - answeredAt: when the outcome was known.
  ///   - random: uniform in 0..<1, for the jitter; drawn only when there is a wait.
  func disposition(
    of outcome: PushOutcome, attempts: Int, throttles: Int = 0, losses: ConnectionLosses = ConnectionLosses(),
    isRepeatable: Bool = true, deadline: Instant, answeredAt now: Instant,
    random: @autoclosure () -> Double
  ) -> Disposition {
    switch outcome {
    case .accepted:
      return now <= deadline ? .settle(.delivered, reason: nil) : .settle(.deliveredLate, reason: "AcceptedLate")
    case .tokenInvalid(let reason, _), .rejected(let reason):
      return .settle(.dead, reason: reason)
    case .expired:
      return .settle(.expired, reason: nil)
    case .refused(let reason):
      return again(after: refusedWait, reason, isCounted: false, deadline, now)
    case .throttled(let reason, _, isLaneWide: false) where throttles > 1:
      // Another wait helps no more than the first did: the user's next channel is tried.
      return .settle(.dead, reason: reason)
    case .throttled(let reason, let after, _), .unavailable(let reason, let after):
      let wait = jittered(attempts, random())
      return again(after: max(wait, after ?? wait), reason, isCounted: true, deadline, now)
    case .unknown where !isRepeatable:
      return .settle(.dead, reason: Self.fateUnknown)
    case .unknown(PushOutcome.connectionLostReason) where losses.isAtFault:
      // Each further try would cost its neighbours another connection: the user's next channel is tried.
      return .settle(.dead, reason: PushOutcome.connectionLostReason)
    case .unknown(PushOutcome.connectionLostReason) where losses.isSuspect:
      // Kept in memory, for the outbox does not know of its losses.
      let wait = min(max(jittered(attempts, random()), losses.shortestWait), longestInMemory)
      return again(after: wait, PushOutcome.connectionLostReason, isCounted: true, deadline, now)
    case .unknown(let reason), .unauthorized(let reason):
      return again(after: jittered(attempts, random()), reason, isCounted: true, deadline, now)
    }
  }

  private func jittered(_ attempts: Int, _ random: Double) -> Nanoseconds {
    Nanoseconds(Int64(Double(longestWait(afterAttempts: attempts).count) * random))
  }

  private func again(
    after wait: Nanoseconds, _ reason: String, isCounted: Bool, _ deadline: Instant, _ now: Instant
  ) -> Disposition {
    guard now + wait + roundTrip < deadline else { return .settle(.expired, reason: reason) }
    if wait > longestInMemory { return .park(after: wait, reason: reason) }
    return .retry(after: wait, reason: reason, isCounted: isCounted)
  }
}
