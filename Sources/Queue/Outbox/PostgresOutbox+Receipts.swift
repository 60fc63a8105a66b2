// The Expo tickets whose receipts are still to be read: `push.expo_receipts`.

public import Runtime

extension PostgresOutbox: ReceiptStore {
  public func claimReceipts(app: String, max: Int, lease: Nanoseconds) async throws(OutboxError) -> [DueReceipt] {
    var parameters = PostgresParameters()
    parameters.append(app)
    parameters.append(Int32(clamping: max))
    parameters.append(Int32(clamping: lease.milliseconds))
    let result = try await perform(OutboxStatements.claimReceipts, parameters)
    return (0..<result.rowCount).map { row in
      DueReceipt(
        ticket: result.text(row, 0), token: result.bytes(row, 1),
        sentAtMilliseconds: result.timestamp(row, 2) / 1000)
    }
  }

  public func settleReceipts(app: String, _ results: [ReceiptResult]) async throws(OutboxError) -> Int {
    var parameters = PostgresParameters()
    parameters.append(app)
    parameters.append(results.map { Optional($0.ticket) })
    parameters.append(results.map(\.reason))
    return Int(try await perform(OutboxStatements.settleReceipts, parameters).int64(0, 0))
  }

  public func postponeReceipts(app: String, _ tickets: [String], by delay: Nanoseconds) async throws(OutboxError) -> Int
  {
    var parameters = PostgresParameters()
    parameters.append(app)
    parameters.append(tickets.map(Optional.init))
    parameters.append(Int32(clamping: delay.milliseconds))
    return Int(try await perform(OutboxStatements.postponeReceipts, parameters).int64(0, 0))
  }

  public func giveUpReceipts(app: String) async throws(OutboxError) -> Int {
    var parameters = PostgresParameters()
    parameters.append(app)
    return Int(try await perform(OutboxStatements.giveUpReceipts, parameters).int64(0, 0))
  }
}
