// Where a row lies in its table.

/// Where a row was last seen (Postgres' `ctid`). Settling finds the row there without an index, or by its key if it has moved.
public struct DeliveryPlace: Hashable, Sendable {
  public var block: UInt32
  public var offset: UInt16

  /// No place is known: the row is found by its key.
  public static let unknown = DeliveryPlace(block: 0, offset: 0)

  public init(block: UInt32, offset: UInt16) {
    self.block = block
    self.offset = offset
  }
}
