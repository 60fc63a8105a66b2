// What a dispatcher did since it started, for logs and metrics.

import Queue

/// Running totals.
struct DispatcherCounters: Sendable, Equatable {
  var claimed = 0
  /// Requests handed to providers, repetitions included.
  var sent = 0
  var delivered = 0
  var deliveredLate = 0
  var void = 0
  var expired = 0
  var dead = 0
  var parked = 0
  /// Tries without an answer: the phone may have got them or not.
  var ambiguous = 0
  var released = 0
  /// Results dropped because the lease was no longer ours.
  var lostLeases = 0

  mutating func count(_ outcome: DeliveryOutcome) {
    switch outcome {
    case .delivered: delivered += 1
    case .deliveredLate: deliveredLate += 1
    case .void: void += 1
    case .expired: expired += 1
    case .dead: dead += 1
    }
  }
}
