// When the next connection may be opened. No clock, no socket.
//
// A connection that never worked is followed by a growing wait. One that worked is replaced at once, unless it was
// hardly worth its handshake: the first such end in `window` costs nothing, each further one a growing wait, however
// well the last connection began. Otherwise a peer that answers once and hangs up would be connected to without limit,
// which providers take for abuse. One that was closed while it had nothing to do (a middlebox with little patience, a peer
// that saves) says nothing of the next: the wait for that one is short, since a call may come meanwhile.

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

  /// A connection came to its end without having worked.
  mutating func didFail(_ now: Instant) {
    failures += 1
    wait(now)
  }

  /// A connection that had worked came to its end, by whomever it was ended. Returns whether it was hardly worth its
  /// handshake.
  mutating func didEnd(openedAt: Instant, answers: Int, _ now: Instant) -> Bool {
    guard openedAt + settings.stableAfter > now, answers < settings.answersWorthAConnection else { return false }
    // Those that end together are one event: they count once, while the wait for it lasts.
    guard mayOpenAt <= now else { return true }
    earlyEnds.removeAll { $0 + settings.earlyEndsWindow <= now }
    earlyEnds.append(now)
    if earlyEnds.count > Self.endsMax { earlyEnds.removeFirst() }
    wait(now)
    return true
  }

  /// A connection that was ready came to its end while it had nothing to do, hardly worth its handshake.
  mutating func didEndIdle(_ now: Instant) {
    defer { idleEndAt = now }
    guard let idleEndAt, idleEndAt + settings.earlyEndsWindow > now else { return }
    let wait = settings.idleEndWait.count
    mayOpenAt = max(mayOpenAt, now + Nanoseconds(wait - Int64(random.next() % UInt64(wait / 2 + 1))))
  }

  private mutating func wait(_ now: Instant) {
    let count = failures + max(0, earlyEnds.count - 1)
    mayOpenAt = max(mayOpenAt, now + settings.backoff.delay(afterFailures: count, random: random.next()))
  }
}
