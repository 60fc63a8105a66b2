// The answer to a claim.

/// The result of a claim.
public struct Claimed: Sendable {
  public var deliveries: [Delivery]
  /// Rows that this version cannot read, such as those of an unknown kind. They are ours and must be returned.
  public var unreadable: [DeliveryLease]
  /// Rows whose call was deleted by a transaction that did not see them. They are ours, and are deleted once they are returned.
  public var orphans: [DeliveryLease]

  public init(deliveries: [Delivery], unreadable: [DeliveryLease] = [], orphans: [DeliveryLease] = []) {
    self.deliveries = deliveries
    self.unreadable = unreadable
    self.orphans = orphans
  }
}
