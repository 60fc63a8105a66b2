// What became of a delivery.

public import Runtime

/// The outcome of one delivery, to be written. It is a class because it passes through several queues.
public final class Settlement: Sendable {
  public let delivery: Delivery
  /// The lease under which it is written: that of `delivery`, or that of a later claim which brought it again.
  public let lease: DeliveryLease
  /// Where its row was last seen.
  public let place: DeliveryPlace
  public let outcome: DeliveryOutcome
  /// Number of attempts in all, including those in memory.
  public let attempts: Int32
  /// HTTP status of the last answer; 0 for none.
  public let status: UInt16
  /// The reason, in the provider's word or ours; nil for plain success.
  public let reason: String?
  public let providerMessageID: String?
  /// When the last request was sent; nil if none was.
  public let sentAt: Instant?
  /// When its answer came; nil if there was none.
  public let answeredAt: Instant?
  /// The failed tries before the last one that were made under this lease.
  public let failures: [FailedAttempt]
  /// How long from now the receipt of `providerMessageID` can be read; nil if there is none.
  public let receiptAfter: Nanoseconds?

  /// - Parameters:
  ///   - lease: that of `delivery` if not given.
  ///   - place: that of `delivery` if not given.
  public init(
    _ delivery: Delivery, lease: DeliveryLease? = nil, place: DeliveryPlace? = nil, outcome: DeliveryOutcome,
    attempts: Int32, status: UInt16 = 0,
    reason: String? = nil, providerMessageID: String? = nil, sentAt: Instant? = nil, answeredAt: Instant? = nil,
    failures: [FailedAttempt] = [], receiptAfter: Nanoseconds? = nil
  ) {
    self.delivery = delivery
    self.lease = lease ?? delivery.lease
    self.place = place ?? delivery.place
    self.outcome = outcome
    self.attempts = attempts
    self.status = status
    self.reason = reason
    self.providerMessageID = providerMessageID
    self.sentAt = sentAt
    self.answeredAt = answeredAt
    self.failures = failures
    self.receiptAfter = receiptAfter
  }
}
