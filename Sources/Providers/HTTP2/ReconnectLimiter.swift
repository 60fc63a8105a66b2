// Decides when the next connection may be opened. No clock, no socket.
//
// A connection that never worked is followed by a growing wait. A connection that worked is replaced at once, unless it ended too
// early to be worth its handshake. The first early end within `earlyEndsWindow` causes no wait; each further one causes a growing
// wait, even if the last connection worked at first. Otherwise a peer that answers once and closes the connection would be
// reconnected without limit, which providers treat as abuse.
//
// Three kinds of end say little about the next connection. The wait after them is short, because a call may come at any time. The
// first is the end of a connection that was never ready: the network may be back a moment later. The second is that of one that had
// answered everything: a middlebox with a short idle timeout, or a peer that saves resources. The third is a loss with a request in
// flight, because that request may have caused it.

internal import Runtime

/// The waits between the connections of one pool.
struct ReconnectLimiter {
  /// Maximum number of early ends remembered. More would not make the waits longer.
  private static let endsMax = 16

  private let settings: HTTP2ConnectionPoolSettings
  private var random: SplitMix64
  /// Number of connections in a row that never worked.
  private var failures = 0
  /// The times of early ends, in order.
  private var earlyEnds: [Instant] = []
  /// When an idle connection was last closed early.
  private var idleEndAt: Instant?
  /// No connection is opened before this time.
  private(set) var mayOpenAt = Instant(nanoseconds: .min)

  /// - Parameter seed: the seed of the jitter.
  init(settings: HTTP2ConnectionPoolSettings, seed: UInt64) {
    self.settings = settings
    random = SplitMix64(seed: seed)
  }

  /// A connection gave its first authorised answer.
  mutating func didWork() { failures = 0 }

  /// Ends the wait, because the cause of the failures may have been fixed.
  mutating func tryNow() {
    failures = 0
    mayOpenAt = Instant(nanoseconds: .min)
  }

  /// A connection ended without having worked.
  ///
  /// - Parameters:
  ///   - wasReady: whether it could take requests.
  ///   - atRequest: whether it took requests and ended without answering the last.
  mutating func didFail(wasReady: Bool = true, atRequest: Bool = false, _ now: Instant) {
    failures += 1
    wait(atMost: !wasReady ? settings.unreadyEndWait : atRequest ? settings.requestEndWait : settings.backoff.max, now)
  }

  /// A connection that had worked ended; either side may have closed it. Returns whether the end was early.
  ///
  /// - Parameters:
  ///   - atRequest: whether it ended without answering the last request.
  ///   - owesNothing: whether it had no request in flight.
  mutating func didEnd(
    openedAt: Instant, answers: Int, atRequest: Bool = false, owesNothing: Bool = false, _ now: Instant
  ) -> Bool {
    guard openedAt + settings.stableAfter > now, answers < settings.answersWorthAConnection else { return false }
    // Connections that end together are one event. Further ends do not count while its wait lasts.
    guard mayOpenAt <= now else { return true }
    earlyEnds.removeAll { $0 + settings.earlyEndsWindow <= now }
    earlyEnds.append(now)
    if earlyEnds.count > Self.endsMax { earlyEnds.removeFirst() }
    wait(atMost: atRequest ? settings.requestEndWait : owesNothing ? settings.idleEndWait : settings.backoff.max, now)
    return true
  }

  /// A connection that was ready ended early while it was idle.
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
