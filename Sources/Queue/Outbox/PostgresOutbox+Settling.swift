// What became of deliveries.

internal import Runtime

extension PostgresOutbox {
  public func settle(_ settlements: [Settlement]) async throws(OutboxError) -> Int {
    let parameters = PostgresParameters(settling: settlements, for: try identity(), databaseClock)
    return Int(try await self.settlements.query(OutboxStatements.settle, parameters, isolation: self).int64(0, 0))
  }

  public func settled(among settlements: [Settlement]) async throws(OutboxError) -> Set<DeliveryKey> {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(int64s: settlements) { $0.lease.outboxID }
    parameters.append(int32s: settlements) { $0.lease.pushNumber }
    parameters.append(timestamps: settlements) { $0.lease.createdAtMicroseconds }
    let result = try await self.settlements.query(OutboxStatements.settled, parameters, isolation: self)
    return Set(
      (0..<result.rowCount).map {
        DeliveryKey(
          outboxID: result.int64($0, 0), pushNumber: result.int32($0, 1),
          createdAtMicroseconds: result.timestamp($0, 2))
      })
  }

  public func park(_ parkings: [Parking]) async throws(OutboxError) -> Int {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(leases: parkings.map(\.lease))
    parameters.append(parkings.map(\.attempts))
    parameters.append(parkings.map { Int32(clamping: $0.delay.milliseconds) })
    parameters.append(parkings.map { Optional($0.reason) })
    parameters.append(texts: parkings.map { $0.failures.json(databaseClock) })
    return Int(try await settlements.query(OutboxStatements.park, parameters, isolation: self).int64(0, 0))
  }

  public func release(_ leases: [DeliveryLease]) async throws(OutboxError) -> Int {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(leases: leases)
    return Int(try await settlements.query(OutboxStatements.release, parameters, isolation: self).int64(0, 0))
  }

  public func sync() async throws(OutboxError) {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    // Settlements need not wait for the disk.
    _ = try await maintenance.query(OutboxStatements.sync, parameters, isolation: self)
  }

  public func ended(among outboxIDs: [Int64]) async throws(OutboxError) -> [Int64] {
    try checkAvailable()
    var parameters = PostgresParameters()
    parameters.append(outboxIDs)
    let result = try await settlements.query(OutboxStatements.ended, parameters, isolation: self)
    return (0..<result.rowCount).map { result.int64($0, 0) }
  }
}

extension PostgresParameters {
  fileprivate mutating func append(leases: [DeliveryLease]) {
    append(int64s: leases) { $0.outboxID }
    append(int32s: leases) { $0.pushNumber }
    append(int32s: leases) { $0.lease }
  }
}
