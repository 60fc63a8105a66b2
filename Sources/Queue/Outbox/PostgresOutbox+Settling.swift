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
    parameters.append(int64s: parkings) { $0.lease.outboxID }
    parameters.append(int32s: parkings) { $0.lease.pushNumber }
    parameters.append(int32s: parkings) { $0.lease.lease }
    parameters.append(parkings.map(\.attempts))
    parameters.append(parkings.map { $0.delay.map { Int32(clamping: $0.milliseconds) } })
    parameters.append(parkings.map(\.reason))
    parameters.append(texts: parkings.map { $0.failures.json(databaseClock) })
    parameters.append(parkings.map(\.isHandedOn))
    return Int(try await settlements.query(OutboxStatements.park, parameters, isolation: self).int64(0, 0))
  }

  /// Rings wait for this answer. It therefore comes over the connection of the beats, where nothing waits for the disk: if that one does
  /// not work, other gateways soon take over the rings.
  public func endedFor(_ outboxIDs: [Int64]) async throws(OutboxError) -> EndedRings {
    var parameters = PostgresParameters()
    parameters.append(outboxIDs)
    let result = try await control.query(
      OutboxStatements.endedFor, parameters, patience: Patience.beat, isolation: self)
    var ended = EndedRings()
    for row in 0..<result.rowCount {
      if result.isNull(row, 1) {
        ended.calls.insert(result.int64(row, 0))
      } else {
        ended.decliners[result.int64(row, 0), default: []].insert(Array(result.bytes(row, 1..<2)))
      }
    }
    return ended
  }
}
