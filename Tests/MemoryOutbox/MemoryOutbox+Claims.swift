// Claims: taking deliveries, returning them, and writing their results.

public import Queue
internal import Runtime

/// A claimed delivery with its call.
public struct MemoryClaimedRow: Sendable {
  public var delivery: MemoryDelivery
  public var call: MemoryCall
  /// Microseconds from the claim to the deadline.
  public var remaining: Int64
}

/// A claim between its start and its end.
public struct MemoryRunningClaim: Sendable {
  var gateway: Int32
  var number: Int32
  /// The rows that it has picked.
  var keys: [DeliveryKey]
}

extension MemoryOutbox {
  // MARK: - Claiming

  /// The first step of `push.claim`: picks rows, earliest deadline first, and holds them and the gateway's row until `finish`.
  ///
  /// Returns nil if nothing may be claimed: the statement is over.
  public mutating func beginClaim(
    _ gateway: Int32, _ number: Int32, _ allowances: [LaneAllowance], within limits: ClaimLimits, at now: DatabaseTime
  ) -> MemoryRunningClaim? {
    guard let row = gateways[gateway], row.isAlive, row.claimsFrom <= number, isLifeOpen == true else { return nil }
    let keys = pick(for: gateway, allowances, within: limits, at: now)
    sharedLocks[gateway, default: 0] += 1
    locked.formUnion(keys)
    return MemoryRunningClaim(gateway: gateway, number: number, keys: keys)
  }

  /// Whether a statement that locks the gateway's row exclusively must wait, because a claim of the gateway is running.
  public func isLocked(_ gateway: Int32) -> Bool { sharedLocks[gateway, default: 0] > 0 }

  /// The second step of `push.claim`: takes the picked rows and releases the locks.
  public mutating func finish(_ claim: MemoryRunningClaim, at now: DatabaseTime) -> [MemoryClaimedRow] {
    if let locks = sharedLocks[claim.gateway] { sharedLocks[claim.gateway] = locks > 1 ? locks - 1 : nil }
    locked.subtract(claim.keys)
    defer { commit() }
    return claim.keys.compactMap { take($0, for: claim.gateway, claim.number, at: now) }
  }

  private func pick(
    for gateway: Int32, _ allowances: [LaneAllowance], within limits: ClaimLimits, at now: DatabaseTime
  ) -> [DeliveryKey] {
    let first = now + Limits.slack
    let asked = Set(allowances.map(\.lane))
    let candidates = deliveries.values.filter {
      $0.state == .ready && $0.deadlineAt > first && asked.contains($0.lane) && !locked.contains($0.key)
    }
    guard !candidates.isEmpty else { return [] }
    var allowances = allowances
    var left = Int(limits.inAll)
    var background = Int(limits.background)
    var taken: [DeliveryKey] = []
    let near = first + Limits.near
    if left > 0, let suspect = suspect(candidates, for: gateway, allowances) {
      taken.append(suspect.key)
      left -= 1
      if suspect.deadlineAt > near { background -= 1 }
      for index in allowances.indices where allowances[index].lane == suspect.lane { allowances[index].limit -= 1 }
    }
    var ringing: Set<Int16> = []
    for isNear in [true, false] {
      for allowance in allowances where lanes[allowance.lane].map({ !$0.isPaused }) ?? false {
        guard isNear || !ringing.contains(allowance.lane) else { continue }
        let lane = candidates.filter {
          $0.lane == allowance.lane && !$0.isSuspect && ($0.deadlineAt <= near) == isNear
        }
        let most = min(Int(isNear ? allowance.limit : min(allowance.limit, allowance.background)), left)
        let picked = lane.sorted(by: Self.isEarlier).prefix(max(0, isNear ? most : min(most, background)))
        guard !picked.isEmpty else { continue }
        taken += picked.map(\.key)
        left -= picked.count
        if isNear { ringing.insert(allowance.lane) } else { background -= picked.count }
      }
    }
    return taken
  }

  private static func isEarlier(_ left: MemoryDelivery, _ right: MemoryDelivery) -> Bool {
    (left.deadlineAt, left.key.outboxID, left.key.pushNumber) < (
      right.deadlineAt, right.key.outboxID, right.key.pushNumber
    )
  }

  /// At most one delivery that two gateways had when they died, and none while the gateway has another.
  private func suspect(
    _ candidates: [MemoryDelivery], for gateway: Int32, _ allowances: [LaneAllowance]
  ) -> MemoryDelivery? {
    let asked = Set(allowances.filter { $0.limit > 0 }.map(\.lane))
    let suspects = candidates.filter { $0.isSuspect && asked.contains($0.lane) && !(lanes[$0.lane]?.isPaused ?? true) }
    guard let first = suspects.min(by: Self.isEarlier) else { return nil }
    let hasAnother = deliveries.values.contains { $0.isSuspect && $0.state == .claimed && $0.owner == gateway }
    return hasAnother ? nil : first
  }

  private mutating func take(
    _ key: DeliveryKey, for gateway: Int32, _ number: Int32, at now: DatabaseTime
  ) -> MemoryClaimedRow? {
    guard var row = deliveries[key], row.state == .ready, let call = calls[key.outboxID] else { return nil }
    row.state = .claimed
    row.owner = gateway
    row.lease = number
    row.attempt += 1
    deliveries[key] = row
    return MemoryClaimedRow(delivery: row, call: call, remaining: row.deadlineAt - now)
  }

  // MARK: - Lost claims

  /// `push.forget`: the answer to a claim was lost. The claim is barred if it has not begun; deliveries that it took
  /// are returned. To be called while no claim of the gateway is running (`isLocked`), because the SQL waits for that.
  public mutating func forget(_ gateway: Int32, _ number: Int32, at now: DatabaseTime) -> Int {
    guard var row = gateways[gateway], row.isAlive, row.claimsFrom <= number else { return 0 }
    defer { commit() }
    row.claimsFrom = number + 1
    gateways[gateway] = row
    let keys = keys { $0.state == .claimed && $0.owner == gateway && $0.lease == number }
    for key in keys { putBack(key, isUncounted: true, at: now) }
    return keys.count
  }

  /// `push.reclaim`: claims existing deliveries under a new number. While the gateway has to reclaim because commits
  /// may have been lost, it takes rows of any owner, else only its own and those of no living gateway. Returns the
  /// indices.
  public mutating func reclaim(_ gateway: Int32, _ number: Int32, _ keys: [DeliveryKey]) -> [Int] {
    guard let caller = gateways[gateway], caller.isAlive, caller.claimsFrom <= number else { return [] }
    defer { commit() }
    let takesOver = reclaimed[gateway] == false
    return keys.indices.filter { index in
      guard var row = deliveries[keys[index]] else { return false }
      if !takesOver, let owner = row.owner, owner != gateway, gateways[owner]?.isAlive ?? false { return false }
      if row.owner != gateway { row.attempt += 1 }
      row.state = .claimed
      row.owner = gateway
      row.lease = number
      deliveries[keys[index]] = row
      return true
    }
  }

  /// `push.claimed_by`: rows that the gateway has claimed, of `limit` calls at a time. The parts are ranges of call
  /// numbers, as those of Postgres are ranges of pages: deletions meanwhile do not shift them.
  public func claimed(by gateway: Int32, from page: Int64, limit: Int64) -> ClaimedPage {
    let leases = claims(of: gateway).filter { page..<page + limit ~= $0.outboxID }.compactMap { key in
      deliveries[key].map { DeliveryLease(outboxID: key.outboxID, pushNumber: key.pushNumber, lease: $0.lease) }
    }
    return ClaimedPage(leases: leases, next: page + limit < nextCall ? page + limit : nil)
  }

  /// `push.ended`.
  public func ended(among outboxIDs: [Int64]) -> [Int64] { outboxIDs.filter { !isRinging($0) } }

  // MARK: - Results

  /// The row that still has this lease.
  private func row(_ lease: DeliveryLease, of gateway: Int32) -> MemoryDelivery? {
    guard let row = deliveries[lease.key], row.state == .claimed, row.owner == gateway, row.lease == lease.lease else {
      return nil
    }
    return row
  }

  /// `push.settle`: returns how many were still claimed by the gateway.
  public mutating func settle(
    _ gateway: Int32, _ settlements: [Settlement], at now: DatabaseTime
  ) throws(OutboxError) -> Int {
    for settlement in settlements {
      guard row(settlement.lease, of: gateway) != nil, let poison = poison[settlement.lease.key] else { continue }
      guard poison == .details, settlement.reason == "SettlementRefused" else {
        throw OutboxError(.refusedRows, "a settlement holds what the database cannot store")
      }
    }
    var count = 0
    var isDurable = false
    for settlement in settlements {
      guard let row = row(settlement.lease, of: gateway) else { continue }
      count += 1
      finish(
        row, settlement.outcome, owner: gateway, attempts: settlement.attempts, status: settlement.status,
        reason: settlement.outcome == .delivered ? settlement.reason : settlement.reason ?? row.lastReason ?? "Unknown",
        wasSent: settlement.sentAt != nil, at: now)
      // The next channel, if there is still enough time.
      let left = settlement.outcome == .expired ? Limits.fallBackLeft : 0
      let hasFailed = settlement.outcome == .dead || settlement.outcome == .expired
      if hasFailed, row.isInvite, row.deadlineAt > now + left, fallBack(row, at: now) { isDurable = true }
    }
    commit(isDurable: isDurable)
    return count
  }

  /// `push.settled`: those of these deliveries that the gateway has settled.
  public func settled(_ gateway: Int32, among keys: [DeliveryKey]) -> Set<DeliveryKey> {
    Set(keys.filter { history[$0]?.contains { $0.owner == gateway } ?? false })
  }

  /// `push.park`: deliveries wait for a later attempt; invites of calls that have ended become void.
  public mutating func park(_ gateway: Int32, _ parkings: [Parking], at now: DatabaseTime) -> Int {
    defer { commit() }
    var count = 0
    for parking in parkings {
      guard var row = row(parking.lease, of: gateway) else { continue }
      row.state = .waiting
      row.owner = nil
      row.attempt = parking.attempts
      row.lastReason = parking.reason
      row.dueAt = min(now + parking.delay.microseconds, row.deadlineAt)
      deliveries[row.key] = row
      count += 1
    }
    voidUnsent(Set(parkings.map(\.lease.outboxID)), at: now)
    return count
  }

  /// `push.release`: deliveries are returned without counting the attempt; invites of calls that have ended become
  /// void.
  public mutating func release(_ gateway: Int32, _ leases: [DeliveryLease], at now: DatabaseTime) -> Int {
    defer { commit() }
    var count = 0
    for lease in leases where row(lease, of: gateway) != nil {
      putBack(lease.key, isUncounted: true, at: now)
      count += 1
    }
    return count
  }
}
