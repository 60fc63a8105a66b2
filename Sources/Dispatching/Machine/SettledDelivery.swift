// What is remembered of a delivery that is settled: enough to settle it once more.

internal import PushModel
internal import Queue
internal import Runtime

/// A settlement without what its row holds anyway.
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
  /// When it was known to be written.
  let writtenAt: Instant

  /// The same once more, under the claim that it is ours by now.
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
