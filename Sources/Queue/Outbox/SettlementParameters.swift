// The parameters of push.settle for a batch of settlements: one array for each column.

internal import Runtime

extension PostgresParameters {
  /// - Parameters:
  ///   - gateway: our row in `push.gateways`.
  ///   - clock: converts our instants to the database's clock.
  init(settling settlements: [Settlement], for gateway: Int32, _ clock: DatabaseClock) {
    // Sorted by primary key, so that two concurrent batches lock rows in the same order.
    let ordered = settlements.sorted {
      ($0.lease.outboxID, $0.lease.pushNumber) < ($1.lease.outboxID, $1.lease.pushNumber)
    }
    self.init(reservingCapacity: 256 + settlements.count * 192)
    append(gateway)
    append(places: ordered) { $0.place }
    append(int64s: ordered) { $0.lease.outboxID }
    append(int32s: ordered) { $0.lease.pushNumber }
    append(int32s: ordered) { $0.lease.lease }
    append(int32s: ordered) { $0.attempts }
    append(int16s: ordered) { Int16($0.outcome.rawValue) }
    append(int16s: ordered) { Int16(clamping: $0.status) }
    append(texts: ordered) { $0.reason?.utf8 }
    append(texts: ordered) { $0.providerMessageID?.utf8 }
    append([] as [String?])  // p_call_id, which only gateways of release 0.1.0 use
    append(timestamps: ordered) { $0.sentAt.flatMap(clock.microseconds(at:)) }
    append(timestamps: ordered) { $0.answeredAt.flatMap(clock.microseconds(at:)) }
    append(texts: ordered) { $0.failures.json(clock) }
    append(int32s: ordered) { $0.receiptAfter.map { Int32(clamping: $0.milliseconds) } }
    append(timestamps: ordered) { $0.lease.createdAtMicroseconds }
  }
}
