// From the rows of a claim to deliveries.

public import Runtime

/// The answer to a claim: a row for each delivery, with the columns of `OutboxStatements.claim`.
public struct ClaimedRows {
  private typealias Column = OutboxStatements.ClaimColumn

  private let result: PostgresResult
  /// When the question left: deadlines are counted from here, so that they are early by the way there, and never late.
  private let asked: Instant

  /// - Parameters:
  ///   - result: the rows.
  ///   - asked: when the question left.
  public init(_ result: PostgresResult, asked: Instant) {
    self.result = result
    self.asked = asked
  }

  /// What was claimed, but for kinds that this version does not know.
  /// - Parameter note: is told of each, with the microseconds that were left until its deadline.
  public func deliveries(_ note: (Delivery, _ remaining: Int64) -> Void) -> [Delivery] {
    var deliveries: [Delivery] = []
    deliveries.reserveCapacity(result.rowCount)
    for row in 0..<result.rowCount {
      guard let kind = DeliveryKind(rawValue: UInt8(clamping: result.int16(row, Column.kind.rawValue))) else {
        continue
      }
      let remaining = result.int64(row, Column.remaining.rawValue)
      let delivery = delivery(row, kind, remaining)
      note(delivery, remaining)
      deliveries.append(delivery)
    }
    return deliveries
  }

  private func delivery(_ row: Int, _ kind: DeliveryKind, _ remaining: Int64) -> Delivery {
    Delivery(
      lease: DeliveryLease(
        outboxID: result.int64(row, Column.outboxID.rawValue), number: result.int32(row, Column.number.rawValue),
        lease: result.int32(row, Column.lease.rawValue)),
      lane: result.int16(row, Column.lane.rawValue),
      attempt: result.int32(row, Column.attempt.rawValue),
      kind: kind,
      environment: UInt8(clamping: result.int16(row, Column.environment.rawValue)),
      platform: UInt8(clamping: result.int16(row, Column.platform.rawValue)),
      createdAtMicroseconds: result.timestamp(row, Column.createdAt.rawValue),
      deadlineAtMicroseconds: result.timestamp(row, Column.deadlineAt.rawValue),
      deadline: asked + .microseconds(remaining),
      texts: texts(row),
      bytes: result.bytes(row, Column.userID.rawValue..<Column.payload.rawValue + 1))
  }

  /// Where the texts of a row lie in its bytes: in the order of the columns.
  private func texts(_ row: Int) -> Delivery.Texts {
    var end = 0
    func next(_ column: Column) -> Range<Int>? {
      guard let length = result.length(row, column.rawValue) else { return nil }
      end += length
      return end - length..<end
    }
    func required(_ column: Column) -> Range<Int> { next(column) ?? end..<end }
    return Delivery.Texts(
      userID: required(.userID), token: required(.token), locale: next(.locale), callKind: required(.callKind),
      callID: required(.callID), endReason: next(.endReason), traceparent: next(.traceparent),
      payload: required(.payload).dropFirst())  // the first byte of a jsonb is the version of its format
  }
}
