// The right of a gateway to a row that it has claimed.

/// The lease on one claimed row: its key, and the number of the claim that took it. A settlement changes the row only while it is
/// claimed by this gateway under that number.
public struct DeliveryLease: Hashable, Sendable {
  public var outboxID: Int64
  /// The number of the push within its call.
  public var pushNumber: Int32
  /// The number of the gateway's claim.
  public var lease: Int32
  /// When the row was made, as in `DeliveryKey`.
  public var createdAtMicroseconds: Int64

  public var key: DeliveryKey {
    DeliveryKey(outboxID: outboxID, pushNumber: pushNumber, createdAtMicroseconds: createdAtMicroseconds)
  }

  public init(outboxID: Int64, pushNumber: Int32, lease: Int32, createdAtMicroseconds: Int64 = 0) {
    self.outboxID = outboxID
    self.pushNumber = pushNumber
    self.lease = lease
    self.createdAtMicroseconds = createdAtMicroseconds
  }

  /// A lease on the row of this key.
  public init(_ key: DeliveryKey, lease: Int32) {
    self.init(
      outboxID: key.outboxID, pushNumber: key.pushNumber, lease: lease,
      createdAtMicroseconds: key.createdAtMicroseconds)
  }
}
