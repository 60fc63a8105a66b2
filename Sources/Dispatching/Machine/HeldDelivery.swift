// A claimed delivery while the gateway holds it, until its outcome is written.

internal import Providers
internal import PushModel
internal import Queue
internal import Runtime

/// A delivery from its claim until its settlement or its return to the outbox is written. Confined to its machine.
final class HeldDelivery {
  /// What a delivery that is not with its provider waits for.
  enum Wait: Equatable {
    /// The time of the next try.
    case time(Instant)
    /// A confirmed beat.
    case lease
    /// A look-up of whether its call has ended.
    case lookUp
    /// A sync after which its claim is on the server's disk.
    case disk
  }

  enum Stage {
    case waiting(Wait)
    /// It was handed to its provider, and the answer decides.
    case sent
    /// It has ended, and that is being written.
    case settling(Ending)
    /// It goes back to the outbox, and that is being written.
    case returning(Parking)
  }

  /// How it ended.
  struct Ending {
    var outcome: DeliveryOutcome
    var reason: String?
    var messageID: String?
    /// `Settlement.receiptAfter`.
    var receiptAfter: Nanoseconds?
  }

  /// An answer that came while it was handed on, and ends it.
  enum Late {
    /// Its return is being written first.
    case awaiting(Ending)
    /// The ending is written, at most twice, because the row may have been locked: `push.settle` does not wait for the locks of others.
    case writing(isRepeated: Bool)
  }

  let delivery: Delivery
  /// Index of its lane in the dispatcher.
  let lane: Int
  /// Its slot in `HeldDeliveries`.
  var slot = -1
  /// The lease under which it is ours: that of its claim, or of a later one that brought it again.
  private(set) var lease: DeliveryLease
  private(set) var place: DeliveryPlace
  var stage = Stage.waiting(.time(Instant(nanoseconds: .min)))
  /// Number of tries, including those of earlier claims.
  var attempts: Int32
  /// The environment of the next try.
  var environment: PushEnvironment
  /// Whether its call has ended. It is not sent again then.
  var isVoid = false
  /// Whether its row is no longer ours, while its provider still has it.
  var isLost = false
  /// Whether its provider has it. A ring that was handed on without an answer may still get one.
  var isInFlight = false
  /// Whether what became of its row is written, while its provider still has it.
  var isWritten = false
  /// An answer that came while it was handed on.
  var late: Late?
  /// When it is handed on to other gateways, if it has no answer by then; nil for what is not a ring.
  private(set) var rescueAt: Instant?
  /// Whether its call must be looked up before it is sent, because a hint may have been missed.
  var needsLookUp = false
  /// Number of look-ups that found its call ringing while it waited for one.
  var lookUps = 0
  /// Whether it must wait until its claim is on the server's disk, because people must see it at most once.
  var needsDisk = false
  /// Whether its settlement is written without texts, because the database refused it with them.
  var isStripped = false
  /// The reason of the last failed try.
  var reason: String?
  /// The failed tries of this claim.
  private(set) var failures: [FailedAttempt] = []

  /// Whether the next request counts as another try.
  private(set) var isNextCounted = false
  private(set) var sentAt: Instant?
  /// When it was handed to its provider.
  private(set) var handedOverAt: Instant?
  private(set) var answeredAt: Instant?
  private(set) var status: UInt16 = 0
  /// Whether the last try was sent over two connections.
  private(set) var isHedged = false
  /// The connection on which the provider was in trouble or did not answer.
  private(set) var avoidedConnection: Int?
  /// How often the provider answered that this token gets too many pushes.
  private(set) var throttles = 0
  /// Whether it is in flight as a suspect that has its turn.
  var hasTurn = false
  /// Whether it waits aside, for a turn. It takes no room of its lane meanwhile.
  var isSetAside = false
  /// The outcome in the first APNs environment, while the other one is asked.
  private(set) var firstEnvironmentOutcome: PushOutcome?

  init(_ delivery: Delivery, lane: Int) {
    self.delivery = delivery
    self.lane = lane
    lease = delivery.lease
    place = delivery.place
    attempts = delivery.attempt
    environment = delivery.environment
  }

  var key: DeliveryKey { lease.key }

  /// Whether it makes a phone ring, or stop. It may be sent twice.
  var isRing: Bool { delivery.kind == .invite || delivery.kind == .cancel }

  /// Whether it has waited too long for an answer, or for its turn. What its token gets too many of waits as long as the provider says.
  func isOverdue(_ now: Instant) -> Bool {
    guard let rescueAt, rescueAt <= now else { return false }
    switch stage {
    case .sent: return !isVoid && !isLost && firstEnvironmentOutcome == nil
    case .waiting(.time): return throttles == 0
    case .waiting, .settling, .returning: return false
    }
  }

  /// Whether no request of it was sent, under this lease or an earlier one.
  var isUntried: Bool { sentAt == nil && failures.isEmpty && delivery.attempt <= 1 }

  var isWaiting: Bool {
    if case .waiting = stage { true } else { false }
  }

  /// Whether its provider has it.
  var isSent: Bool {
    if case .sent = stage { true } else { false }
  }

  func waits(for wait: Wait) -> Bool {
    if case .waiting(wait) = stage { true } else { false }
  }

  /// From now on it is ours under this lease.
  func adopt(_ lease: DeliveryLease, at place: DeliveryPlace) {
    self.lease = lease
    self.place = place
    isLost = false
  }

  /// A try has a result.
  func note(_ result: PushResult) {
    sentAt = result.sentAt ?? sentAt
    answeredAt = result.answeredAt
    status = result.status
    isHedged = result.isHedged
    switch result.outcome {
    case .unavailable, .unknown: avoidedConnection = result.connection
    case .throttled(_, _, isLaneWide: false): throttles += 1
    default: break
    }
  }

  func noteFailure(_ reason: String, _ result: PushResult) {
    failures.note(
      FailedAttempt(
        at: result.answeredAt, attempt: attempts, status: result.status, reason: reason, isHedged: result.isHedged))
  }

  /// It has no answer yet, and does not wait for it.
  func noteNoAnswer(_ reason: String, _ now: Instant) {
    failures.note(FailedAttempt(at: now, attempt: attempts, status: 0, reason: reason))
  }

  func rescue(at instant: Instant) { rescueAt = instant }

  /// It was handed on, and ends by an answer that came since. Its failed tries were written with its return.
  func beginLate() {
    (late, isWritten) = (.writing(isRepeated: false), false)
    failures = []
  }

  /// Whether it has ended by a late answer.
  var isLate: Bool { if case .writing = late { true } else { false } }

  /// Whether its late ending, which has found no row, is to be written once more.
  func repeatsLate() -> Bool {
    guard case .writing(isRepeated: false) = late else { return false }
    late = .writing(isRepeated: true)
    return true
  }

  /// It was never sent, so this was no attempt.
  func takeAttemptBack() {
    guard case .returning(var parking) = stage, let attempts = parking.attempts else { return }
    parking.attempts = max(0, attempts - 1)
    if !parking.failures.isEmpty { parking.failures.removeLast() }
    stage = .returning(parking)
  }

  /// Sends the next try to the other environment.
  ///
  /// - Parameter isNextCounted: whether it is another try of this claim.
  func suspect(_ outcome: PushOutcome, isNextCounted: Bool = true) {
    firstEnvironmentOutcome = outcome
    environment = environment.other
    self.isNextCounted = isNextCounted
  }

  func wait(until instant: Instant, isNextCounted: Bool) {
    stage = .waiting(.time(instant))
    self.isNextCounted = isNextCounted
  }

  /// It was handed to its provider.
  func didSend(_ now: Instant) {
    handedOverAt = now
    if isNextCounted { attempts += 1 }
    isNextCounted = false
    isInFlight = true
    stage = .sent
  }

  // MARK: - Being written

  /// The reason of what is written without texts.
  private static let refusedReason = "SettlementRefused"

  /// The settlement to write, under the current lease.
  var settlement: Settlement {
    guard case .settling(let ending) = stage else { preconditionFailure("a delivery is settled that has not ended") }
    return Settlement(
      delivery, lease: lease, place: place, outcome: ending.outcome, attempts: attempts, status: status,
      reason: ending.reason, providerMessageID: ending.messageID, sentAt: sentAt, answeredAt: answeredAt,
      failures: failures, receiptAfter: ending.receiptAfter)
  }

  /// The return to write, under the current lease.
  var parking: Parking {
    guard case .returning(var parking) = stage else {
      preconditionFailure("a delivery is returned that nobody wanted to return")
    }
    parking.lease = lease
    return parking
  }

  /// Removes the texts from what is to be written, because the database refuses one of them.
  func strip() {
    isStripped = true
    failures = []
    switch stage {
    case .settling(let ending): stage = .settling(Ending(outcome: ending.outcome, reason: Self.refusedReason))
    case .returning(var parking):
      if parking.reason != nil { parking.reason = Self.refusedReason }
      parking.failures = []
      stage = .returning(parking)
    case .waiting, .sent: break
    }
  }
}
