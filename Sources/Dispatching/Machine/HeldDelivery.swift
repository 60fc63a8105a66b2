// The whole life of a delivery in this gateway: from its claim until what became of it is written.
//
//   stage             its row              its provider    what follows
//   waiting           ours                 has nothing     it is sent when what it waits for has come
//   sent, open        ours                 has it          the answer decides: it ends, is handed on, or is tried again
//   sent, void        ours                 has it          the same, but it is not sent again: its call has ended
//   sent, lost        another gateway's    has it          the answer says something about the lane; nothing is written
//   returning         ours                 may have it     it is back in the outbox, or settled if a late answer has ended it
//   settling          ours                 may have it     it has ended
//   returned          not ours any more    has it          a late acceptance settles it all the same
//   settled           not ours any more    has it          the late answer says something about the lane
//
// A ring that gets no answer in time is handed on while its provider still has it. So its return, and even its settlement, may be
// written before the answer comes: the last two stages. A delivery that is written, and that no provider has, is no longer held.

internal import Providers
internal import PushModel
internal import Queue
internal import Runtime

/// A delivery from its claim until its settlement or its return to the outbox is written. Confined to its machine.
final class HeldDelivery {
  enum Stage {
    case waiting(Wait)
    case sent(Sent)
    /// `then`: how an answer has ended it meanwhile. That is written next.
    case returning(Parking, then: Ending? = nil)
    case settling(Ending)
    case returned
    case settled
  }

  /// What a delivery waits for that is not with its provider.
  enum Wait: Equatable {
    /// The time of the next try.
    case time(Instant)
    /// A confirmed beat.
    case lease
    /// A look-up of whether its call has ended. `answers`: how many found that it rings.
    case lookUp(answers: Int)
    /// A sync after which its claim is on the server's disk.
    case disk
  }

  /// What is known of a delivery since it was sent.
  enum Sent {
    case open
    case void
    case lost
  }

  /// How it ended.
  struct Ending {
    /// Whether an answer has ended it that came after it was handed on. That is written at most twice, because the row may have been
    /// locked: `push.settle` does not wait for the locks of others.
    enum Lateness { case none, first, repeated }

    var outcome: DeliveryOutcome
    var reason: String?
    var messageID: String?
    /// `Settlement.receiptAfter`.
    var receiptAfter: Nanoseconds?
    var lateness = Lateness.none
  }

  /// Whether it is its turn, if its token is a suspect (`TokenSuspects`).
  enum Turn {
    case none
    /// It waits for its turn, and takes no room of its lane meanwhile.
    case awaited
    /// It is in flight.
    case taken
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
  /// Whether it is sent only when it is known that its call still rings: a hint may have been missed.
  var needsLookUp = false
  /// Whether it is sent only when its claim is on the server's disk: people must see it at most once.
  var needsDisk = false
  var turn = Turn.none
  /// What its provider has; nil if it has nothing.
  var request: PushRequest?
  /// When it is handed on to other gateways, if it has no answer by then; nil for what is not a ring.
  var rescueAt: Instant?
  /// Whether that time has been extended, because its request had not left.
  var isOverdueTwice = false

  /// Number of tries, including those of earlier claims.
  private(set) var attempts: Int32
  /// Whether the next request counts as another try.
  private(set) var isNextCounted = false
  /// The environment of the next try.
  var environment: PushEnvironment
  /// Whether it asks the other APNs environment, because the first one has called the token bad.
  private(set) var asksOther = false
  /// When its last request was sent.
  private(set) var sentAt: Instant?
  /// The last result.
  private(set) var result: PushResult?
  /// The connection on which the provider was in trouble or did not answer.
  private(set) var avoidedConnection: Int?
  /// How often the provider answered that this token gets too many pushes.
  private(set) var throttles = 0
  /// The reason of the last failed try.
  var reason: String?
  /// The failed tries of this claim that are not written.
  private(set) var failures: [FailedAttempt] = []

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

  var isInFlight: Bool { request != nil }

  /// Whether no request of it was sent, under this lease or an earlier one.
  var isUntried: Bool { sentAt == nil && failures.isEmpty && delivery.attempt <= 1 }

  var isWaiting: Bool { if case .waiting = stage { true } else { false } }

  /// Whether the answer of its provider decides.
  var isSent: Bool { if case .sent = stage { true } else { false } }

  /// Whether it is an invite that may still be sent.
  var mayRing: Bool {
    switch stage {
    case .waiting, .sent(.open): delivery.kind == .invite
    default: false
    }
  }

  /// Whether it has waited too long for an answer, or for its turn.
  func isOverdue(_ now: Instant) -> Bool {
    guard let rescueAt, rescueAt <= now else { return false }
    switch stage {
    case .sent(.open): return !asksOther
    case .waiting(.time): return true
    default: return false
    }
  }

  func waits(for wait: Wait) -> Bool {
    if case .waiting(wait) = stage { true } else { false }
  }

  // MARK: - What happens to it

  /// From now on it is ours under this lease.
  func adopt(_ lease: DeliveryLease, at place: DeliveryPlace) {
    self.lease = lease
    self.place = place
    if case .sent(.lost) = stage { stage = .sent(.open) }
  }

  func wait(until instant: Instant, isNextCounted: Bool) {
    stage = .waiting(.time(instant))
    self.isNextCounted = isNextCounted
  }

  /// Sends the next try to the other environment.
  ///
  /// - Parameter isNextCounted: whether it is another try of this claim.
  func askOther(isNextCounted: Bool) {
    asksOther = true
    environment = environment.other
    self.isNextCounted = isNextCounted
  }

  /// It was handed to its provider.
  func didSend(_ request: PushRequest) {
    if isNextCounted { attempts += 1 }
    (isNextCounted, isOverdueTwice) = (false, false)
    self.request = request
    stage = .sent(.open)
  }

  /// A try has a result.
  func note(_ result: PushResult) {
    sentAt = result.sentAt ?? sentAt
    self.result = result
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

  /// A request that is being returned was never sent, so this was no attempt.
  func takeAttemptBack() {
    guard case .returning(var parking, let then) = stage, let attempts = parking.attempts else { return }
    parking.attempts = max(0, attempts - 1)
    if !parking.failures.isEmpty { parking.failures.removeLast() }
    stage = .returning(parking, then: then)
  }

  /// What became of it is written, but its provider still has it.
  func didWrite() {
    switch stage {
    case .settling: stage = .settled
    case .returning: stage = .returned
    default: preconditionFailure("a delivery was written that was neither settled nor returned")
    }
  }

  // MARK: - Being written

  /// The reason of what is written without texts.
  private static let refusedReason = "SettlementRefused"

  /// It has ended. If that is late, its failed tries were written with its return.
  func end(_ ending: Ending) {
    if ending.lateness != .none { failures = [] }
    stage = .settling(ending)
  }

  /// Whether it is ended by an answer that came after it was handed on.
  var isLate: Bool { if case .settling(let ending) = stage { ending.lateness != .none } else { false } }

  /// Whether its late ending, which has found no row, is to be written once more.
  func repeatsLate() -> Bool {
    guard case .settling(var ending) = stage, ending.lateness == .first else { return false }
    ending.lateness = .repeated
    stage = .settling(ending)
    return true
  }

  /// The settlement to write, under the current lease.
  var settlement: Settlement {
    guard case .settling(let ending) = stage else { preconditionFailure("a delivery is settled that has not ended") }
    return Settlement(
      delivery, lease: lease, place: place, outcome: ending.outcome, attempts: attempts, status: result?.status ?? 0,
      reason: ending.reason, providerMessageID: ending.messageID, sentAt: sentAt, answeredAt: result?.answeredAt,
      failures: failures, receiptAfter: ending.receiptAfter)
  }

  /// The return to write, under the current lease.
  var parking: Parking {
    guard case .returning(var parking, _) = stage else {
      preconditionFailure("a delivery is returned that nobody wanted to return")
    }
    parking.lease = lease
    return parking
  }

  /// Removes the texts from what is to be written, because the database refuses one of them. Returns false if it has none.
  func strip() -> Bool {
    switch stage {
    case .settling(let ending) where ending.reason != Self.refusedReason:
      stage = .settling(Ending(outcome: ending.outcome, reason: Self.refusedReason, lateness: ending.lateness))
    case .returning(var parking, let then) where parking.reason != nil && parking.reason != Self.refusedReason:
      parking.reason = Self.refusedReason
      parking.failures = []
      stage = .returning(parking, then: then)
    default: return false
    }
    failures = []
    return true
  }
}
