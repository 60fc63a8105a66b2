// When the next connection may be opened. No clock, no socket.
//
// A connection that never worked is followed by a growing wait. One that worked is replaced at once, unless it was hardly worth
// its handshake. The first such end within `earlyEndsWindow` costs nothing; each further one costs a growing wait, however well
// the last connection began. Otherwise a peer that answers once and hangs up would be connected to without limit, which providers
// take for abuse.
//
// Two ends say little about the next connection, and a call may come at any time, so the wait after them is short: a connection
// that had answered everything (a middlebox with little patience, a peer that saves), and one that was lost with a request in
// flight, which may have been that request's fault.

internal import Runtime

/// The waits between the connections of one pool.
struct ReconnectLimiter {
  /// The ends that are remembered; more do not make the waits longer.
  private static let endsMax = 16

  private let settings: HTTP2ConnectionPoolSettings
  private var random: SplitMix64
  /// Connections in a row that never worked.
  private var failures = 0
  /// When connections ended that were hardly worth their handshake, in order.
  private var earlyEnds: [Instant] = []
  /// When a connection was closed last while it had nothing to do.
  private var idleEndAt: Instant?
  /// No connection is opened before this time.
  private(set) var mayOpenAt = Instant(nanoseconds: .min)

  /// - Parameter seed: where the jitter starts.
  init(settings: HTTP2ConnectionPoolSettings, seed: UInt64) {
    self.settings = settings
    random = SplitMix64(seed: seed)
  }

  /// A connection gave its first authorised answer.
  mutating func didWork() { failures = 0 }

  /// What made connections fail may have been mended: the next need not wait.
  mutating func tryNow() {
    failures = 0
    mayOpenAt = Instant(nanoseconds: .min)
  }

  /// A connection came to its end without having worked.
  ///
  /// - Parameter atRequest: it took requests, and ended without answering the last.
  mutating func didFail(atRequest: Bool = false, _ now: Instant) {
    failures += 1
    wait(atMost: atRequest ? settings.requestEndWait : settings.backoff.max, now)
  }

  /// A connection that had worked came to its end, by whomever it was ended. Returns whether it was hardly worth its
  /// handshake.
  ///
  /// - Parameters:
  ///   - atRequest: it ended without answering the last request.
  ///   - owesNothing: it has answered all that it was given.
  mutating func didEnd(
    openedAt: Instant, answers: Int, atRequest: Bool = false, owesNothing: Bool = false, _ now: Instant
  ) -> Bool {
    guard openedAt + settings.stableAfter > now, answers < settings.answersWorthAConnection else { return false }
    // Those that end together are one event: they count once, while the wait for it lasts.
    guard mayOpenAt <= now else { return true }
    earlyEnds.removeAll { $0 + settings.earlyEndsWindow <= now }
    earlyEnds.append(now)
    if earlyEnds.count > Self.endsMax { earlyEnds.removeFirst() }
    wait(atMost: atRequest ? settings.requestEndWait : owesNothing ? settings.idleEndWait : settings.backoff.max, now)
    return true
  }

  /// A connection that was ready came to its end while it had nothing to do, hardly worth its handshake.
  mutating func didEndIdle(_ now: Instant) {
    defer { idleEndAt = now }
    guard let idleEndAt, idleEndAt + settings.earlyEndsWindow > now else { return }
    let wait = settings.idleEndWait.count
    mayOpenAt = max(mayOpenAt, now + Nanoseconds(wait - Int64(random.next() % UInt64(wait / 2 + 1))))
  }

  private mutating func wait(atMost longest: Nanoseconds, _ now: Instant) {
    let count = failures + max(0, earlyEnds.count - 1)
    var backoff = settings.backoff
    backoff.max = min(backoff.max, longest)
    mayOpenAt = max(mayOpenAt, now + backoff.delay(afterFailures: count, random: random.next()))
  }
}
