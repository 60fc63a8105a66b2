// Makes deliveries of the rows of a claim.

internal import PushModel
public import Runtime

/// The answer to a claim: a row for each delivery, with the columns of `OutboxStatements.claim`.
public struct ClaimedRows {
  private typealias Column = OutboxStatements.ClaimColumn

  private let result: PostgresResult
  /// The claim's number, which is the lease of each row.
  private let number: Int32
  /// When the claim was sent. Deadlines count from this instant, so they are early by the time the claim took to arrive, never
  /// late.
  private let asked: Instant

  /// - Parameters:
  ///   - result: the rows.
  ///   - number: the claim's number.
  ///   - asked: when the claim was sent.
  public init(_ result: PostgresResult, number: Int32, asked: Instant) {
    self.result = result
    self.number = number
    self.asked = asked
  }

  /// The claimed deliveries. Deliveries of one call share its data, which at least one of their rows has.
  /// - Parameter note: called for each delivery, with the microseconds left until its deadline.
  public func claimed(_ note: (Delivery, _ remaining: Int64) -> Void) -> Claimed {
    let (calls, deleted) = calls()
    var claimed = Claimed(deliveries: [])
    claimed.deliveries.reserveCapacity(result.rowCount)
    for row in 0..<result.rowCount {
      let lease = DeliveryLease(
        outboxID: outboxID(row), pushNumber: result.int32(row, Column.pushNumber.rawValue), lease: number,
        createdAtMicroseconds: result.timestamp(row, Column.createdAt.rawValue))
      let kind = code(row, .kind).flatMap(PushKind.init(rawValue:))
      guard let kind, let call = calls[lease.outboxID] else {
        if deleted.contains(lease.outboxID) {
          claimed.orphans.append(lease)
        } else {
          claimed.unreadable.append(lease)
        }
        continue
      }
      let remaining = result.int64(row, Column.remaining.rawValue)
      let delivery = delivery(row, lease, kind, call, remaining)
      note(delivery, remaining)
      claimed.deliveries.append(delivery)
    }
    return claimed
  }

  /// A code as a raw value; nil if it does not fit a raw value.
  private func code(_ row: Int, _ column: Column) -> UInt8? { UInt8(exactly: result.int16(row, column.rawValue)) }

  private func outboxID(_ row: Int) -> Int64 { result.int64(row, Column.outboxID.rawValue) }

  /// The calls in the rows by outbox id, and the ids of deleted calls: those that are over and have no data in any row.
  private func calls() -> ([Int64: CallData], deleted: Set<Int64>) {
    var calls: [Int64: CallData] = [:]
    var deleted: Set<Int64> = []
    for row in 0..<result.rowCount {
      if !result.isNull(row, Column.callID.rawValue) {
        let id = outboxID(row)
        if calls[id] == nil { calls[id] = call(row) }
      } else if !result.isNull(row, Column.isOver.rawValue), result.bool(row, Column.isOver.rawValue) {
        deleted.insert(outboxID(row))
      }
    }
    return (calls, deleted)
  }

  private func call(_ row: Int) -> CallData {
    var texts = Texts(result, row)
    let callKind = texts.next(.callKind) ?? 0..<0
    let callID = texts.next(.callID) ?? 0..<0
    let endReason = texts.next(.endReason)
    let traceparent = texts.next(.traceparent)
    let decliners = texts.next(.decliners)?.dropFirst()
    let payload = texts.next(.payload)?.dropFirst() ?? 0..<0  // the first byte of a jsonb is the version of its format
    let bytes = result.bytes(row, Column.callKind.rawValue..<Column.payload.rawValue + 1)
    return CallData(
      texts: CallData.Texts(
        callKind: callKind, callID: callID, endReason: endReason, traceparent: traceparent, payload: payload),
      bytes: bytes, isOver: !result.isNull(row, Column.isOver.rawValue) && result.bool(row, Column.isOver.rawValue),
      decliners: decliners.map { Self.texts(ofArray: bytes, $0) } ?? [])
  }

  /// The texts of an array in JSON.
  private static func texts(ofArray bytes: [UInt8], _ range: Range<Int>) -> Set<[UInt8]> {
    let json = JSONScanner(trusting: bytes, in: range)
    return Set(json.elements(of: json.root).compactMap(json.string))
  }

  /// An environment that is not known here counts as production, a platform as `.unknown`.
  private func delivery(
    _ row: Int, _ lease: DeliveryLease, _ kind: PushKind, _ call: CallData, _ remaining: Int64
  ) -> Delivery {
    var texts = Texts(result, row)
    let userID = texts.next(.userID) ?? 0..<0
    let token = texts.next(.token) ?? 0..<0
    let locale = texts.next(.locale)
    let data = texts.next(.data)?.dropFirst()  // as a payload's
    return Delivery(
      lease: lease,
      place: result.place(row, Column.place.rawValue),
      lane: result.int16(row, Column.lane.rawValue),
      attempt: result.int32(row, Column.attempt.rawValue),
      crashes: UInt8(clamping: result.int16(row, Column.crashes.rawValue)),
      kind: kind,
      environment: code(row, .environment).flatMap(PushEnvironment.init(rawValue:)) ?? .production,
      platform: code(row, .platform).flatMap(DevicePlatform.init(rawValue:)) ?? .unknown,
      createdAtMicroseconds: result.timestamp(row, Column.createdAt.rawValue),
      deadlineAtMicroseconds: result.timestamp(row, Column.deadlineAt.rawValue),
      deadline: asked + .microseconds(remaining),
      isPaired: result.bool(row, Column.isPaired.rawValue),
      call: call,
      texts: Delivery.Texts(userID: userID, token: token, locale: locale, data: data),
      bytes: result.bytes(row, Column.userID.rawValue..<Column.data.rawValue + 1))
  }

  /// The ranges of neighbouring texts of a row in their common bytes. `next` must be called in the order of the columns.
  private struct Texts {
    private let result: PostgresResult
    private let row: Int
    private var end = 0

    init(_ result: PostgresResult, _ row: Int) {
      self.result = result
      self.row = row
    }

    /// Nil for NULL.
    mutating func next(_ column: Column) -> Range<Int>? {
      guard let length = result.length(row, column.rawValue) else { return nil }
      end += length
      return end - length..<end
    }
  }
}
