// What is remembered of a delivery that is settled: enough to settle it once more.

internal import Queue
internal import Runtime

/// A settlement without what its row holds anyway.
struct SettledDelivery {
  /// What one of these takes beside its texts, its place in the index included.
  private static let bytesMin = 256
  private static let bytesOfFailure = 64

  let key: DeliveryKey
  let lane: Int
  let laneID: Int16
  let kind: DeliveryKind
  let outcome: DeliveryOutcome
  let status: UInt16
  let attempts: Int32
  let reason: String?
  let providerMessageID: String?
  let callID: [UInt8]
  let sentAt: Instant?
  let answeredAt: Instant?
  let failures: [FailedAttempt]
  let receiptAfter: Nanoseconds?
  /// When it was known to be written.
  let writtenAt: Instant

  /// - Parameter neighbour: settled just before: of the same call it shares the id.
  init(_ settlement: Settlement, lane: Int, neighbour: SettledDelivery?, _ now: Instant) {
    key = settlement.delivery.key
    self.lane = lane
    laneID = settlement.delivery.lane
    kind = settlement.delivery.kind
    outcome = settlement.outcome
    status = settlement.status
    attempts = settlement.attempts
    reason = settlement.reason
    providerMessageID = settlement.providerMessageID
    sentAt = settlement.sentAt
    answeredAt = settlement.answeredAt
    failures = settlement.failures
    receiptAfter = settlement.receiptAfter
    writtenAt = now
    if let neighbour, neighbour.key.outboxID == key.outboxID {
      callID = neighbour.callID
    } else {
      callID = Array(settlement.delivery.callID)
    }
  }

  /// About how much memory it takes.
  var bytes: Int {
    Self.bytesMin + callID.count + (reason?.utf8.count ?? 0) + (providerMessageID?.utf8.count ?? 0)
      + failures.count * Self.bytesOfFailure
  }

  /// The same once more, under the claim that it is ours by now.
  func settlement(lease: DeliveryLease, place: DeliveryPlace) -> Settlement {
    let delivery = Delivery(
      lease: lease, place: place, lane: laneID, attempt: attempts, kind: kind, environment: 0, platform: 0, userID: [],
      token: [], locale: nil, createdAtMicroseconds: 0, deadlineAtMicroseconds: 0, deadline: .distantFuture,
      call: CallData(callKind: [], callID: callID, payload: []))
    return Settlement(
      delivery, outcome: outcome, attempts: attempts, status: status, reason: reason,
      providerMessageID: providerMessageID, sentAt: sentAt, answeredAt: answeredAt, failures: failures,
      receiptAfter: receiptAfter)
  }
}
