// Decides whether pushes are sent to an origin, from its answers. No clock, no I/O.
//
//   working ── failuresMax failures in a row, no connection, or refused credentials ──▶ resting ── time is over ──▶ probing
//      ▲                                                                         ▲      or connected              │
//      └──────────────────────────── an answer ──────────────────────────────────┼──────────────────────────────┤
//                                                                                 └───────── a failure ───────────┘
//
// It does for an origin what `LaneCircuit` does for a lane. A lane's circuit would stop the pushes to all browsers.
//
// A refused VAPID token (401, 403) has two possible causes: the token is wrong, or the subscription was made with another key. FCM
// and Mozilla answer in the same way to both. So while the origin accepts pushes to other subscriptions, the subscription is at
// fault, and only its own pushes are refused.
//
// Refused subscriptions are remembered: as suspects until the origin accepts a push to another one, as foreign after that. Pushes to
// suspects leave the probe to others, which wait for at most a second. A foreign subscription that is refused again says nothing
// about the origin. Otherwise a user could stop the pushes to all browsers with subscriptions that were made with another key.
//
// The same holds for a push that fails with a temporary error or without an answer: the fault may be that of its subscription. Two
// failures in a row count for one, it leaves the probe to others, and once the origin has answered to another, its further failures
// say nothing about the origin.

internal import Runtime

/// The state of one origin.
struct WebPushOriginHealth {
  enum Admission: Equatable {
    case send
    /// Not before `until`, because of the reason.
    case wait(until: Instant, reason: String)
  }

  /// Number of consecutive failures after which the origin rests.
  static let failuresMax = 5
  /// Maximum number of consecutive failures that count for one subscription. The fault may be its own.
  static let failuresOfOneMax = 2
  /// Number of consecutive refusals of the token that are attributed to subscriptions.
  static let refusalsMax = 3
  /// Number of different subscriptions in a row that got too many pushes, after which the origin gets a pause.
  static let throttlesMax = 10
  /// Maximum pause that is inferred from them. The time that they ask for is their own.
  static let throttledPauseMax = Nanoseconds.seconds(5)
  /// Maximum pause at the origin's request. Then it is asked again.
  static let pauseMax = Nanoseconds.seconds(60)
  /// How long others wait while one push probes the origin.
  static let probeWait = Nanoseconds.milliseconds(500)
  /// How long the pushes to suspects leave the probe to others that wait.
  static let suspectWait = Nanoseconds.seconds(2)
  /// How long others than suspects wait after a refusal of the token, or after a failure.
  static let othersWaitMax = Nanoseconds.seconds(1)
  /// Maximum number of remembered subscriptions of each kind.
  static let refusedMax = 1_024
  /// The rests after failures. They are short because a call may come at any time.
  static let outages: ReconnectBackoff = {
    var backoff = ReconnectBackoff(max: .seconds(5))
    backoff.base = .seconds(1)
    return backoff
  }()
  /// The rests after refusals of the token.
  static let refusals: ReconnectBackoff = {
    var backoff = ReconnectBackoff(max: .seconds(60))
    backoff.base = .seconds(1)
    return backoff
  }()

  private var random: SplitMix64
  private var failures = 0
  private var refusals = 0
  /// Subscriptions that got too many pushes since the last other answer.
  private var throttled: Set<Int> = []
  /// The connection whose loss was counted last. A lost connection counts once, however many requests it carried.
  private var lostConnection: Int?
  /// Whether the origin has accepted our token since the token itself was last held to be refused.
  private var isProven = false
  /// Number of rests in a row.
  private var rests = 0
  private var rest: (until: Instant, reason: String)?
  /// A pause that the origin asked for. An answer to an earlier request does not end it.
  private var pause: (until: Instant, reason: String)?
  private var isProbing = false
  /// Number of requests that its connections can take.
  private var capacity = 0
  /// Subscriptions to which a push was refused since the origin last accepted one.
  private var suspects: Set<Int> = []
  /// Subscriptions that were refused, while the same token was accepted for others.
  private var foreign: Set<Int> = []
  /// Failures in a row by subscription since the origin last answered.
  private var failing: [Int: Int] = [:]
  /// Subscriptions that failed, while the origin answered to others.
  private var faulty: Set<Int> = []
  /// Whether a push to another subscription had to wait since the origin last accepted one.
  private var othersWait = false
  /// When others than suspects may probe; nil: at the end of the rest.
  private var othersFrom: Instant?

  /// Whether it rests, or probes after a rest.
  var isResting: Bool { rest != nil }

  /// - Parameter seed: the seed of the jitter.
  init(seed: UInt64) {
    random = SplitMix64(seed: seed)
  }

  /// Whether a push may be sent now. After a rest, one at a time may.
  ///
  /// - Parameter subscription: a hash of its endpoint; nil if it is not known.
  mutating func admit(_ now: Instant, to subscription: Int? = nil) -> Admission {
    if let pause {
      guard pause.until <= now else { return .wait(until: pause.until, reason: pause.reason) }
      self.pause = nil
    }
    guard let rest else { return .send }
    let isSuspect = subscription.map(isSuspect) ?? false
    var until = rest.until
    if isSuspect {
      if othersWait { until = until + Self.suspectWait }
    } else if subscription != nil, let othersFrom {
      until = min(until, othersFrom)
    }
    if until <= now, isProbing { until = now + Self.probeWait }
    guard until <= now else {
      if !isSuspect { othersWait = true }
      return .wait(until: until, reason: rest.reason)
    }
    isProbing = true
    return .send
  }

  /// Until when it admits no push at all; nil if it would admit one now.
  func restsUntil(_ now: Instant) -> Instant? {
    if let pause, pause.until > now { return pause.until }
    guard let rest else { return nil }
    let until = min(rest.until, othersFrom ?? rest.until)
    if until > now { return until }
    return isProbing ? now + Self.probeWait : nil
  }

  private func isSuspect(_ subscription: Int) -> Bool {
    suspects.contains(subscription) || foreign.contains(subscription) || failing[subscription] != nil
      || faulty.contains(subscription)
  }

  /// A push was answered, and our token was accepted.
  mutating func didAnswer(to subscription: Int? = nil) {
    if let subscription {
      suspects.remove(subscription)
      foreign.remove(subscription)
      failing[subscription] = nil
      faulty.remove(subscription)
    }
    if foreign.count + suspects.count > Self.refusedMax { foreign = [] }
    foreign.formUnion(suspects)
    suspects = []
    if faulty.count + failing.count > Self.refusedMax { faulty = [] }
    faulty.formUnion(failing.keys)
    failing = [:]
    othersWait = false
    throttled = []
    (failures, refusals, rests) = (0, 0, 0)
    isProven = true
    isProbing = false
    rest = nil
  }

  /// A push ended before it was sent, for a reason that says nothing about the origin.
  mutating func didNotSend() { isProbing = false }

  /// The origin has a temporary problem, or did not answer.
  ///
  /// - Parameters:
  ///   - subscription: a hash of its endpoint; nil if it is not known.
  ///   - connection: the connection that was lost, if that is the problem.
  ///   - after: the origin's Retry-After.
  mutating func didFail(
    _ reason: String, to subscription: Int? = nil, lost connection: Int? = nil, after: Nanoseconds? = nil,
    _ now: Instant
  ) {
    if let after { pause(reason, for: after, now) }
    if let connection {
      guard connection != lostConnection else { return isProbing = false }
      lostConnection = connection
    }
    if subscription.map({ isCounted($0) }) ?? true { failures += 1 }
    // Requests that were in flight when the rest began end during it. They do not prolong it.
    guard isProbing || failures >= Self.failuresMax && rest == nil else { return }
    rest(reason, Self.outages, now)
    if subscription != nil { othersFrom = now + Self.othersWaitMax }
  }

  /// Whether another failure of the subscription may be the origin's.
  private mutating func isCounted(_ subscription: Int) -> Bool {
    guard !faulty.contains(subscription) else { return false }
    let count = failing[subscription, default: 0] + 1
    guard count <= Self.failuresOfOneMax else { return false }
    if count > 1 || failing.count < Self.refusedMax { failing[subscription] = count }
    return true
  }

  /// No connection could be opened in time. Returns the end of the rest.
  @discardableResult
  mutating func hasNoConnection(_ reason: String, _ now: Instant) -> Instant {
    // Requests that waited together end together. They count once.
    if !isProbing, let rest, rest.until > now { return rest.until }
    return rest(reason, Self.outages, now)
  }

  /// The origin refuses our token. Returns whether the subscription is at fault.
  mutating func didRefuseToken(_ reason: String, to subscription: Int? = nil, _ now: Instant) -> Bool {
    if let subscription {
      if foreign.contains(subscription) {
        isProbing = false
        return true
      }
      if suspects.count < Self.refusedMax { suspects.insert(subscription) }
    }
    if isProven, refusals < Self.refusalsMax {
      refusals += 1
      // It answers, so an outage is over.
      (failures, rests) = (0, 0)
      isProbing = false
      rest = nil
      return true
    }
    isProven = false
    if isProbing || rest == nil {
      rest(reason, Self.refusals, now)
      othersFrom = now + Self.othersWaitMax
    }
    return false
  }

  /// The credentials have changed: what was refused may be accepted now.
  mutating func didChangeKey() {
    suspects = []
    foreign = []
  }

  /// Too many pushes to one subscription.
  mutating func didThrottle(_ reason: String, to subscription: Int? = nil, after: Nanoseconds?, _ now: Instant) {
    var all = throttled
    if let subscription { all.insert(subscription) }
    didAnswer(to: subscription)
    guard all.count >= Self.throttlesMax else { return throttled = all }
    didPause(reason, for: min(after ?? .seconds(1), Self.throttledPauseMax), now)
  }

  /// The origin asks for a pause of all pushes.
  mutating func didPause(_ reason: String, for time: Nanoseconds, _ now: Instant) {
    isProbing = false
    pause(reason, for: time, now)
  }

  /// The capacity of its connections has changed. It grows when there is another connection: then the next push probes at once. It
  /// shrinks when a connection is lost or in doubt, which is no reason to try.
  mutating func didChangeCapacity(to capacity: Int, _ now: Instant) {
    if capacity > self.capacity { tryNow(now) }
    self.capacity = capacity
  }

  /// The cause of the failures may have been fixed: the next push probes at once.
  mutating func tryNow(_ now: Instant) {
    guard let rest, rest.until > now else { return }
    self.rest = (now, rest.reason)
  }

  /// Answers to pushes that were in flight together may ask for different pauses. The longest counts.
  private mutating func pause(_ reason: String, for time: Nanoseconds, _ now: Instant) {
    let until = now + min(time, Self.pauseMax)
    if let pause, pause.until >= until { return }
    pause = (until, reason)
  }

  /// Begins a rest. Returns its end.
  @discardableResult
  private mutating func rest(_ reason: String, _ backoff: ReconnectBackoff, _ now: Instant) -> Instant {
    isProbing = false
    othersFrom = nil
    rests += 1
    let until = now + backoff.delay(afterFailures: rests, random: random.next())
    rest = (until, reason)
    return until
  }
}
