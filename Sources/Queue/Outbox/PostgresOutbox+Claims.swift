// Claims, and what follows when their answer or the server was lost.

internal import Logging
internal import PushModel
internal import Runtime

extension PostgresOutbox {
  public func claim(
    _ number: Int32, _ allowances: [LaneAllowance], within limits: ClaimLimits
  ) async throws(OutboxError) -> Claimed {
    let gateway = try identity()
    let asked = loop.now
    var parameters = PostgresParameters()
    parameters.append(gateway)
    parameters.append(number)
    parameters.append(allowances.map(\.lane))
    parameters.append(allowances.map(\.limit))
    floor.begin(asked)
    parameters.append(timestamps: allowances) { floor.floor(of: $0.lane) }
    parameters.append(limits.inAll)
    parameters.append(limits.background)
    parameters.append(timestamps: allowances) { floor.backgroundFloor(of: $0.lane) }
    parameters.append(allowances.map(\.background))
    parameters.append(allowances.filter(\.isLast).map(\.lane) + allowances.filter(\.takesOnlyNew).map { -$0.lane })
    let reconnects = maintenance.reconnects
    let answer: (PostgresResult, entriesScanned: Int?)
    do throws(OutboxError) {
      answer = try await perform(claim: parameters, asked)
    } catch {
      if error.code == .refusedRows { await putAside(allowances) }
      throw error
    }
    let (result, scanned) = answer
    let answered = loop.now
    reconnectsAtClaim = min(reconnectsAtClaim ?? reconnects, reconnects)
    let claimed = ClaimedRows(result, number: number, asked: asked).claimed {
      databaseClock.observe(microseconds: $0.deadlineAtMicroseconds - $1, answered)
      floor.didClaim(
        lane: $0.lane, deadlineAtMicroseconds: $0.deadlineAtMicroseconds, isBackground: $0.isBackground(answered),
        isVisible: $0.kind.isVisible)
    }
    // The floors are used by the next claim, which begins only after this one.
    floor.didFinish(cost: answered - asked, entriesScanned: scanned, answered)
    return claimed
  }

  /// Claims deliveries. If the floor wants the count, it also asks how many index entries that read, in the same round trip.
  private func perform(
    claim parameters: PostgresParameters, _ asked: Instant
  ) async throws(OutboxError) -> (PostgresResult, entriesScanned: Int?) {
    do throws(OutboxError) {
      guard floor.wantsScanCount else {
        let result = try await claims.query(
          OutboxStatements.claim, parameters, patience: Patience.claim, isolation: self)
        return (result, nil)
      }
      let (result, scanned) = try await claims.query(
        OutboxStatements.claim, parameters, patience: Patience.claim, then: OutboxStatements.entriesScanned,
        isolation: self)
      return (result, scanned.map { Int($0.int64(0, 0)) })
    } catch {
      floor.didFail(cost: loop.now - asked, isRefused: [.transient, .tooSlow].contains(error.code), loop.now)
      throw error
    }
  }

  /// One call that cannot be read would fail every claim of all apps.
  private func putAside(_ allowances: [LaneAllowance]) async {
    var parameters = PostgresParameters()
    parameters.append(allowances.map(\.lane))
    parameters.append(allowances.map(\.limit))
    let result = try? await claims.query(OutboxStatements.putAside, parameters, isolation: self)
    guard let count = result?.int32(0, 0), count > 0 else { return }
    logger.error(
      "Calls that cannot be read were put aside; push.health names them",
      metadata: ["count": .stringConvertible(count)])
  }

  public func forget(_ number: Int32) async throws(OutboxError) -> Int {
    var count: Int64 = 0
    var page: Int64? = 0
    while let from = page {
      var parameters = PostgresParameters()
      parameters.append(try identity())
      parameters.append(number)
      parameters.append(from)
      // On the link of claims: no claim may overtake it, and settlements need not wait behind it.
      let result = try await claims.query(OutboxStatements.forget, parameters, isolation: self)
      count += result.int64(0, 0)
      page = result.isNull(0, 1) ? nil : result.int64(0, 1)
    }
    return Int(count)
  }

  public func claimed(from page: Int64?) async throws(OutboxError) -> ClaimedPage {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(page ?? 0)
    let result = try await maintenance.query(OutboxStatements.claimed, parameters, isolation: self)
    guard result.rowCount > 0 else { return ClaimedPage(leases: [], next: nil) }
    return ClaimedPage(
      leases: (0..<result.rowCount).filter { !result.isNull($0, 1) }.map { row in
        DeliveryLease(
          outboxID: result.int64(row, 1), pushNumber: result.int32(row, 2), lease: result.int32(row, 3),
          createdAtMicroseconds: result.timestamp(row, 4))
      },
      next: result.isNull(0, 0) ? nil : result.int64(0, 0))
  }

  public func disown(_ leases: [DeliveryLease]) async throws(OutboxError) -> Int {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    parameters.append(int64s: leases) { $0.outboxID }
    parameters.append(int32s: leases) { $0.pushNumber }
    parameters.append(int32s: leases) { $0.lease }
    return Int(try await settlements.query(OutboxStatements.disown, parameters, isolation: self).int64(0, 0))
  }

  public func sync() async throws(OutboxError) {
    var parameters = PostgresParameters()
    parameters.append(try identity())
    // A sync over a connection that is younger than a claim says nothing about it: the server may have crashed in between.
    let former = reconnectsAtClaim
    reconnectsAtClaim = nil
    guard former ?? maintenance.reconnects == maintenance.reconnects else {
      throw OutboxError(.answerLost, "the connection for maintenance was lost since the claim")
    }
    // On the settlements' connection it would wait behind them.
    _ = try await maintenance.query(OutboxStatements.sync, parameters, isolation: self)
  }
}
