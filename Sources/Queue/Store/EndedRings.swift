// Which phones must no longer ring.

/// For whom calls no longer ring: for nobody, because they have ended or no longer exist; or not for users who have declined.
public struct EndedRings: Sendable, Equatable {
  /// Calls that ring for nobody.
  public var calls: Set<Int64>
  /// The users who have declined a call that rings for others, by its id.
  public var decliners: [Int64: Set<[UInt8]>]

  public init(calls: Set<Int64> = [], decliners: [Int64: Set<[UInt8]>] = [:]) {
    self.calls = calls
    self.decliners = decliners
  }

  public var isEmpty: Bool { calls.isEmpty && decliners.isEmpty }

  /// Whether the delivery's call no longer rings for its user.
  public func includes(_ delivery: Delivery) -> Bool {
    let call = delivery.lease.outboxID
    return calls.contains(call) || decliners[call]?.contains(Array(delivery.userID)) ?? false
  }
}
