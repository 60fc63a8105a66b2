// Converts rows in memory into the result of a claim.

internal import PushModel
public import Queue
public import Runtime

extension Claimed {
  /// - Parameters:
  ///   - rows: the result of `MemoryOutbox.claim`.
  ///   - asked: when the statement was sent, on the gateway's clock. Deadlines are counted from here, so they are never
  ///     late.
  public init(_ rows: [MemoryClaimedRow], asked: Instant) {
    var deliveries: [Delivery] = []
    var unreadable: [DeliveryLease] = []
    var calls: [Int64: CallData] = [:]
    for row in rows {
      let delivery = row.delivery
      let lease = DeliveryLease(delivery.key, lease: delivery.lease)
      guard let kind = PushKind(rawValue: delivery.kind) else {
        unreadable.append(lease)
        continue
      }
      let call = calls[row.call.id] ?? CallData(row.call)
      calls[row.call.id] = call
      deliveries.append(
        Delivery(
          lease: lease, lane: delivery.lane, attempt: delivery.attempt, crashes: UInt8(clamping: delivery.crashes),
          kind: kind, environment: .production, platform: .unknown, userID: Array(delivery.userID.utf8),
          token: Array(delivery.token.utf8), locale: nil, createdAtMicroseconds: delivery.createdAt,
          deadlineAtMicroseconds: delivery.deadlineAt, deadline: asked + .microseconds(row.remaining),
          isPaired: delivery.isPaired, call: call))
    }
    self.init(deliveries: deliveries, unreadable: unreadable)
  }
}

extension CallData {
  convenience init(_ call: MemoryCall) {
    self.init(
      callKind: Array(call.kind.utf8), callID: Array(call.callID.utf8), payload: Array(call.payload.utf8),
      endReason: call.endReason.map { Array($0.utf8) }, isOver: call.state != .ringing,
      decliners: Set(call.declined.keys.map { Array($0.utf8) }))
  }
}
