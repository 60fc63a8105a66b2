// A claimed delivery while the gateway holds it.

import Providers
import Queue
import Runtime

/// A delivery until it is settled, parked or released. Confined to its dispatcher.
final class HeldDelivery {
  let delivery: Delivery
  /// Index of its lane in the dispatcher.
  let lane: Int
  /// Tries made, those of earlier claims included.
  var attempts: Int32
  /// APNs: 0 production, 1 sandbox.
  private(set) var environment: UInt8
  /// Its call has ended: it is not sent again.
  var isVoid = false
  /// Why it was not delivered so far.
  var reason: String?
  /// The failed tries of this claim.
  private(set) var failures: [FailedAttempt] = []

  /// Between two tries.
  private(set) var isWaiting = false
  /// When it is sent again, while it waits.
  private(set) var dueAt = Instant(nanoseconds: .min)
  /// Whether sending it again is another try.
  private(set) var isNextCounted = false

  private(set) var sentAt: Instant?
  private(set) var answeredAt: Instant?
  private(set) var status: UInt16 = 0
  /// The connection on which the provider was in trouble.
  private(set) var avoidedConnection: Int?
  /// How often the provider said that this token gets too many pushes.
  private(set) var throttles = 0
  /// What APNs' one environment said of the token, while the other is asked.
  private(set) var suspicion: PushOutcome?

  init(_ delivery: Delivery, lane: Int) {
    self.delivery = delivery
    self.lane = lane
    attempts = delivery.attempt
    environment = delivery.environment
  }

  /// No request of it has left, under this lease or an earlier one.
  var isUntried: Bool { sentAt == nil && failures.isEmpty && delivery.attempt <= 1 }

  /// A try has come back.
  func note(_ result: PushResult) {
    sentAt = result.sentAt ?? sentAt
    answeredAt = result.answeredAt
    status = result.status
    switch result.outcome {
    case .unavailable: avoidedConnection = result.connection
    case .throttled(_, _, isLaneWide: false): throttles += 1
    default: break
    }
  }

  func noteFailure(_ reason: String, _ result: PushResult) {
    failures.note(FailedAttempt(at: result.answeredAt, attempt: attempts, status: result.status, reason: reason))
  }

  /// The next try goes to the other environment.
  func suspect(_ outcome: PushOutcome) {
    suspicion = outcome
    environment ^= 1
    isNextCounted = true
  }

  func wait(until instant: Instant, isNextCounted: Bool) {
    isWaiting = true
    dueAt = instant
    self.isNextCounted = isNextCounted
  }

  /// Its wait is over.
  func wake() { isWaiting = false }

  /// It is handed to its provider.
  func didSend() {
    if isNextCounted { attempts += 1 }
    isNextCounted = false
  }
}
