// Until when this gateway may send, by its own clock. Pure.

internal import Runtime

/// A confirmed beat allows requests to be sent for a part of `silence`, counted from when the beat was sent. Within that time no
/// other gateway takes over what this one holds. A process that was frozen finds its lease lapsed.
struct OwnLease {
  private let time: Nanoseconds
  /// Requests may be sent before this instant.
  private(set) var until = Instant(nanoseconds: .min)
  /// Whether it had lapsed when `noteLapse` was last called.
  private(set) var hasLapsed = true

  /// - Parameter time: how long a confirmed beat is valid, from when it was sent.
  init(time: Nanoseconds) {
    self.time = time
  }

  /// When it lapses if no beat is confirmed; distant future if it has lapsed.
  var lapse: Instant { hasLapsed ? .distantFuture : until }

  func isValid(_ now: Instant) -> Bool { now < until }

  /// A beat that was sent at this instant was confirmed.
  mutating func confirm(askedAt: Instant) { until = max(until, askedAt + time) }

  /// Whether it has lapsed since the last call.
  mutating func noteLapse(_ now: Instant) -> Bool {
    let wasValid = !hasLapsed
    hasLapsed = !isValid(now)
    return wasValid && hasLapsed
  }

  /// Other gateways may own what this one holds. Nothing may be sent.
  mutating func revoke() {
    until = Instant(nanoseconds: .min)
    hasLapsed = true
  }
}
