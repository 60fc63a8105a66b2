// A claimed delivery while the gateway holds it, until what became of it is written down.

internal import Providers
internal import PushModel
internal import Queue
internal import Runtime

/// A delivery from its claim until its settlement, parking or release is written. Confined to its machine.
final class HeldDelivery {
  /// What a delivery that is not at its provider waits for.
  enum Wait: Equatable {
    /// The next try.
    case time(Instant)
    /// A confirmed beat.
    case lease
    /// Whether its call has ended.
    case lookUp
    /// Its claim on the server's disk.
    case disk
  }

  enum Stage {
    case waiting(Wait)
    /// Its provider has it.
    case sent
    /// It is over, and this is being written down.
    case settling(Settlement)
    case parking(Parking)
    case releasing
  }

  let delivery: Delivery
  /// Index of its lane in the dispatcher.
  let lane: Int
  /// Where `KnownDeliveries` has it.
  var slot = -1
  /// The claim that it is ours by: its own, or a later one.
  private(set) var lease: DeliveryLease
  private(set) var place: DeliveryPlace
  var stage = Stage.waiting(.time(Instant(nanoseconds: .min)))
  /// Tries made, those of earlier claims included.
  var attempts: Int32
  /// Where its token is tried next.
  private(set) var environment: PushEnvironment
  /// Its call has ended: it is not sent again.
  var isVoid = false
  /// Its row is no longer ours; its provider has it still.
  var isLost = false
  /// It was claimed by the gateway that this one took the place of, and has not been claimed again.
  var isOfFormerGateway = false
  /// Its call may have ended unheard: that is looked up before it is sent.
  var needsLookUp = false
  /// Look-ups that found its call ringing, since it waits for one.
  var lookUps = 0
  /// People see it once, and its claim is not known to be on the server's disk: it is sent when it is.
  var needsDisk = false
  /// It was settled before, and the database has lost that.
  let isAgain: Bool
  /// Its settlement has no texts any more, for the database refused it with them.
  var isStripped = false
  /// Why it was not delivered so far.
  var reason: String?
  /// The failed tries of this claim.
  private(set) var failures: [FailedAttempt] = []

  /// Whether sending it again is another try.
  private(set) var isNextCounted = false
  private(set) var sentAt: Instant?
  private(set) var answeredAt: Instant?
  private(set) var status: UInt16 = 0
  /// The last try was sent over two connections.
  private(set) var isHedged = false
  /// The connection on which the provider was in trouble, or did not answer.
  private(set) var avoidedConnection: Int?
  /// How often the provider said that this token gets too many pushes.
  private(set) var throttles = 0
  /// How often the connection was lost with it.
  var losses = ConnectionLosses()
  /// It is in flight as a suspect that was given a turn.
  var hasTurn = false
  /// It waits for a turn, and takes no room of its lane meanwhile.
  var isSetAside = false
  /// What APNs' one environment said of the token, while the other is asked.
  private(set) var firstEnvironmentOutcome: PushOutcome?

  init(_ delivery: Delivery, lane: Int) {
    self.delivery = delivery
    self.lane = lane
    lease = delivery.lease
    place = delivery.place
    attempts = delivery.attempt
    environment = delivery.environment
    isAgain = false
  }

  /// One that was settled before, to be settled again under this claim.
  init(settling settlement: Settlement, lane: Int) {
    delivery = settlement.delivery
    self.lane = lane
    lease = settlement.lease
    place = settlement.place
    attempts = settlement.attempts
    environment = settlement.delivery.environment
    isAgain = true
    stage = .settling(settlement)
  }

  var key: DeliveryKey { lease.key }

  /// No request of it has left, under this lease or an earlier one.
  var isUntried: Bool { sentAt == nil && failures.isEmpty && delivery.attempt <= 1 }

  var isWaiting: Bool {
    if case .waiting = stage { true } else { false }
  }

  /// It is at its provider.
  var isSent: Bool {
    if case .sent = stage { true } else { false }
  }

  /// When it is tried again; now if it waits for something else.
  func dueAt(_ now: Instant) -> Instant {
    if case .waiting(.time(let at)) = stage { at } else { now }
  }

  /// From now on it is ours by this claim.
  func adopt(_ lease: DeliveryLease, at place: DeliveryPlace) {
    self.lease = lease
    self.place = place
    isLost = false
    isOfFormerGateway = false
  }

  /// Its row has been ours ever since it was claimed, unless the database has lost that.
  var isSurelyOurs: Bool {
    guard !isLost, !isOfFormerGateway else { return false }
    switch stage {
    case .waiting, .sent, .settling: return true
    case .parking, .releasing: return false  // it may have been, and be another's by now
    }
  }

  /// A try has come back.
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

  /// The next try goes to the other environment.
  func suspect(_ outcome: PushOutcome) {
    firstEnvironmentOutcome = outcome
    environment = environment.other
    isNextCounted = true
  }

  func wait(until instant: Instant, isNextCounted: Bool) {
    stage = .waiting(.time(instant))
    self.isNextCounted = isNextCounted
  }

  /// It is handed to its provider.
  func didSend() {
    if isNextCounted { attempts += 1 }
    isNextCounted = false
    stage = .sent
  }

  // MARK: - Being written

  /// What is to be settled, under the claim that it is ours by now.
  var settlement: Settlement {
    guard case .settling(let settlement) = stage else {
      preconditionFailure("a delivery is settled that has not ended")
    }
    if settlement.lease == lease, settlement.place == place { return settlement }
    let current = settlement.with(lease: lease, place: place)
    stage = .settling(current)
    return current
  }

  /// How it is put back, under the claim that it is ours by now.
  var parking: Parking {
    guard case .parking(var parking) = stage else {
      preconditionFailure("a delivery is parked that nobody wanted to park")
    }
    parking.lease = lease
    return parking
  }

  /// Takes the texts out of what is to be written: one of them is what the database refuses.
  func strip() {
    isStripped = true
    switch stage {
    case .settling(let settlement): stage = .settling(settlement.stripped)
    case .parking(var parking):
      parking.reason = Settlement.refusedReason
      parking.failures = []
      stage = .parking(parking)
    case .waiting, .sent, .releasing: break
    }
  }
}

extension Settlement {
  /// The reason of a settlement whose own texts the database refused.
  static let refusedReason = "SettlementRefused"

  /// The same under another claim.
  func with(lease: DeliveryLease, place: DeliveryPlace) -> Settlement {
    Settlement(
      delivery, lease: lease, place: place, outcome: outcome, attempts: attempts, status: status, reason: reason,
      providerMessageID: providerMessageID, sentAt: sentAt, answeredAt: answeredAt, failures: failures,
      receiptAfter: receiptAfter)
  }

  /// Nothing but codes.
  var stripped: Settlement {
    Settlement(
      delivery, lease: lease, place: place, outcome: outcome, attempts: attempts, status: status,
      reason: Self.refusedReason)
  }
}
