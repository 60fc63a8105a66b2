// What to do about an outcome. Pure: outcome, attempts, time left and a random number in; a disposition out.
//
// A ring ends when it is accepted, when the provider says that its token is dead or its content wrong, or when its time is over. It does not
// end by the number of its attempts, because others were made over other ways to the provider, nor by what this way alone has shown of
// its token. Another gateway may be able to ring it, so it is handed on.
//
// Waits double from `base`, with full jitter, so that deliveries that failed together are not retried together. A retry happens
// only if its wait and a typical round trip end before the deadline: a late ring is worse than none.

internal import Providers
internal import PushModel
internal import Queue
public import Runtime

/// What happens to a delivery next.
enum Disposition: Sendable, Equatable {
  /// It has ended: settle it.
  case settle(DeliveryOutcome, reason: String?)
  /// Try again after a short wait, in memory, under the same lease. `isCounted` is false if the request was not attempted.
  case retry(after: Nanoseconds, reason: String, isCounted: Bool)
  /// Return it to the outbox, where other gateways find it at once, and this one not before the provider wants. `isCounted`: as for
  /// `retry`.
  case handOn(reason: String, after: Nanoseconds?, isCounted: Bool = true)
  /// Return it to the outbox, because the wait is too long to keep it in memory. `isCounted`: as for `retry`.
  case park(after: Nanoseconds, reason: String, isCounted: Bool)
}

/// Decides about outcomes.
public struct RetryPolicy: Sendable {
  /// The upper end of the first wait. It doubles with each further wait.
  public var base: Nanoseconds = .milliseconds(200)
  /// Maximum wait that the gateway itself chooses.
  public var cap: Nanoseconds = .seconds(5)
  /// A typical round trip, which must fit between a retry and the deadline.
  public var roundTrip: Nanoseconds = .milliseconds(200)
  /// Maximum wait in memory. Deliveries with longer waits are parked in the outbox.
  public var longestInMemory: Nanoseconds = .seconds(2)
  /// How long a ring waits for an answer before it is handed on, at least and at most.
  public var patience = Rescue.patience
  /// How long a ring that was handed on avoids its gateway. It doubles with each second attempt, up to the longest.
  public var firstRest: Nanoseconds = .milliseconds(250)
  public var longestRest: Nanoseconds = .seconds(1)
  /// How long APNs' other environment may take to say whether a token is its own.
  public var environmentProbe: Nanoseconds = .seconds(2)
  /// The wait before a request that was certainly not processed is sent again.
  public var refusedWait: Nanoseconds = .milliseconds(20)

  /// Maximum pause of a whole lane at a provider's request. Then the provider is asked again.
  public var longestPause: Nanoseconds = .seconds(60)

  public init() {}

  /// The upper end of the wait after `attempts` failed attempts: 200, 400, 800, 1600, 3200, 5000, 5000 … ms.
  func longestWait(afterAttempts attempts: Int) -> Nanoseconds {
    min(cap, Nanoseconds(base.count << min(max(attempts - 1, 0), 20)))
  }

  /// How long a ring rests that was handed on after so many attempts: 250, 250, 500, 500, 1000, 1000 … ms.
  func rest(afterAttempts attempts: Int) -> Nanoseconds {
    min(longestRest, Nanoseconds(firstRest.count << min(max(attempts - 1, 0) / 2, 20)))
  }

  /// The reason of a push that was accepted after its deadline.
  static let acceptedLate = "AcceptedLate"

  /// The reason of a visible push that may have arrived or not. What happened is among its failed tries.
  static let fateUnknown = "FateUnknown"

  /// Whether a push of unknown fate is sent again. A phone makes one call of two invites, but shows two missed calls. So a
  /// visible push is repeated only if its app prefers two to none. A cancel is always repeated, also where an app shows it (Telnyx on
  /// Android): the phone may still be ringing.
  static func isRepeatable(_ kind: PushKind, isAtLeastOnce: Bool) -> Bool {
    isAtLeastOnce || !kind.isVisible
  }

  /// - Parameters:
  ///   - attempts: number of attempts so far, by all gateways, including the one just answered. Only waits follow from it.
  ///   - throttles: how often the provider answered that this token gets too many pushes, including this time.
  ///   - isAtFault: whether the provider closes connections because of it (`TokenSuspects`).
  ///   - isRepeatable: whether it is sent again when it is unknown whether it arrived.
  ///   - isRing: whether it is handed on rather than tried again here.
  ///   - isOwnFailure: whether this way to the provider fails again and again, for this token alone (`TokenSuspects`).
  ///   - answeredAt: when the outcome became known.
  ///   - random: a uniform random number in 0..<1 for the jitter. Called only if there is a wait.
  func disposition(
    of outcome: PushOutcome, attempts: Int, throttles: Int = 0, isAtFault: Bool = false,
    isRepeatable: Bool = true, isRing: Bool = false, isOwnFailure: Bool = false, deadline: Instant,
    answeredAt now: Instant, random: @autoclosure () -> Double
  ) -> Disposition {
    switch outcome {
    case .accepted:
      return now <= deadline ? .settle(.delivered, reason: nil) : .settle(.deliveredLate, reason: Self.acceptedLate)
    case .tokenInvalid(let reason, _), .rejected(let reason):
      return .settle(.dead, reason: reason)
    case .expired:
      return .settle(.expired, reason: nil)
    case .refused(let reason):
      return again(after: refusedWait, reason, isCounted: false, deadline, now)
    case .deferred(let reason, let after) where isRing && after > longestInMemory:
      return handOn(reason, after, isCounted: false, deadline, now)
    case .deferred(let reason, let after):
      return again(after: after, reason, isCounted: false, deadline, now)
    case .unauthorized(let reason) where isOwnFailure,
      .unknown(let reason) where isAtFault && reason == PushOutcome.connectionLostReason:
      // The provider works for others. Each further try would be refused, too, or would cost them a connection.
      return isRing ? handOn(reason, cap, deadline, now) : .settle(.dead, reason: reason)
    case .throttled(let reason, let after, isLaneWide: false) where isRing: return handOn(reason, after, deadline, now)
    case .unavailable(let reason, let after) where isRing: return handOn(reason, after, deadline, now)
    case .throttled(let reason, _, isLaneWide: true) where isRing, .unauthorized(let reason) where isRing,
      .unknown(let reason) where isRing:
      // The lane of this gateway pauses. Gateways that had the ring before need not wait as long.
      return handOn(reason, nil, deadline, now)
    case .throttled(let reason, _, isLaneWide: false) where throttles > 1:
      // Another wait would not help. The user's next channel is tried.
      return .settle(.dead, reason: reason)
    case .throttled(let reason, let after, _), .unavailable(let reason, let after):
      let wait = jittered(attempts, random())
      return again(after: max(wait, after ?? wait), reason, isCounted: true, deadline, now)
    case .unknown where !isRepeatable:
      return .settle(.dead, reason: Self.fateUnknown)
    case .unknown(let reason), .unauthorized(let reason):
      return again(after: jittered(attempts, random()), reason, isCounted: true, deadline, now)
    }
  }

  private func jittered(_ attempts: Int, _ random: Double) -> Nanoseconds {
    Nanoseconds(Int64(Double(longestWait(afterAttempts: attempts).count) * random))
  }

  /// Another gateway's way to the provider may work. So may another way of this one, a little later.
  private func handOn(
    _ reason: String, _ after: Nanoseconds?, isCounted: Bool = true, _ deadline: Instant, _ now: Instant
  ) -> Disposition {
    guard now + roundTrip < deadline else { return .settle(.expired, reason: reason) }
    return .handOn(reason: reason, after: after, isCounted: isCounted)
  }

  private func again(
    after wait: Nanoseconds, _ reason: String, isCounted: Bool, _ deadline: Instant, _ now: Instant
  ) -> Disposition {
    guard now + wait + roundTrip < deadline else { return .settle(.expired, reason: reason) }
    if wait > longestInMemory { return .park(after: wait, reason: reason, isCounted: isCounted) }
    return .retry(after: wait, reason: reason, isCounted: isCounted)
  }
}
