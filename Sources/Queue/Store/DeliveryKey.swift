// What makes a delivery different from every other.

/// The identity of a delivery: the call's row, the number of the push within the call, and when the delivery's row was made. The
/// numbers alone may repeat: after an asynchronous fail-over, a restore or a TRUNCATE a sequence may return them for another call.
public struct DeliveryKey: Hashable, Sendable {
  public var outboxID: Int64
  public var pushNumber: Int32
  /// `push.delivery.created_at`: microseconds since 1970 on the database's clock.
  public var createdAtMicroseconds: Int64

  public init(outboxID: Int64, pushNumber: Int32, createdAtMicroseconds: Int64 = 0) {
    self.outboxID = outboxID
    self.pushNumber = pushNumber
    self.createdAtMicroseconds = createdAtMicroseconds
  }

  /// Hashes the two numbers as one word, because keys are hashed several times for each delivery. They seldom repeat.
  public func hash(into hasher: inout Hasher) { hasher.combine(outboxID &* 1_000_003 &+ Int64(pushNumber)) }
}
