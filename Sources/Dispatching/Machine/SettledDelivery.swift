// What is remembered of a settled delivery: enough to settle it again.

internal import PushModel
internal import Queue
internal import Runtime

/// A settlement without the values that its row has.
struct SettledDelivery {
  let key: DeliveryKey
  let lane: Int
  let laneID: Int16
  let kind: PushKind
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
  /// When the gateway learned that it was written.
  let writtenAt: Instant

  /// The same settlement under the current lease.
  func settlement(lease: DeliveryLease, place: DeliveryPlace) -> Settlement {
    let delivery = Delivery(
      lease: lease, place: place, lane: laneID, attempt: attempts, kind: kind, environment: .production,
      platform: .unknown, userID: [], token: [], locale: nil, createdAtMicroseconds: 0, deadlineAtMicroseconds: 0,
      deadline: .distantFuture,
      call: CallData(callKind: [], callID: callID, payload: []))
    return Settlement(
      delivery, outcome: outcome, attempts: attempts, status: status, reason: reason,
      providerMessageID: providerMessageID, sentAt: sentAt, answeredAt: answeredAt, failures: failures,
      receiptAfter: receiptAfter)
  }
}
