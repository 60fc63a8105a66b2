// How long this gateway may send, by its own clock. Pure.

internal import Runtime

/// A confirmed beat lets requests leave until a part of the silence after it was asked is over: before that no other gateway
/// takes over what this one holds. A process that was frozen finds its lease lapsed.
struct OwnLease {
  private let time: Nanoseconds
  /// Requests may leave before this instant.
  private(set) var until = Instant(nanoseconds: .min)
  /// As `noteLapse` saw it last.
  private(set) var hasLapsed = true

  /// - Parameter time: how long after it was asked a confirmed beat holds.
  init(time: Nanoseconds) {
    self.time = time
  }

  /// When it lapses if nothing is confirmed; distant future where it has lapsed.
  var lapse: Instant { hasLapsed ? .distantFuture : until }

  func isValid(_ now: Instant) -> Bool { now < until }

  /// A beat that was asked at this instant has been confirmed.
  mutating func confirm(askedAt: Instant) { until = max(until, askedAt + time) }

  /// Whether it has lapsed since it was asked about last.
  mutating func noteLapse(_ now: Instant) -> Bool {
    let wasValid = !hasLapsed
    hasLapsed = !isValid(now)
    return wasValid && hasLapsed
  }

  /// Others own what this gateway holds: nothing may leave.
  mutating func revoke() {
    until = Instant(nanoseconds: .min)
    hasLapsed = true
  }
}
