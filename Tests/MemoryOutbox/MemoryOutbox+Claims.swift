// Claims: taking deliveries, returning them, and writing their results.

internal import PushModel
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
  /// The rows that it has picked, and their calls as it has read them.
  var picked: [(key: DeliveryKey, call: MemoryCall)]
}

extension MemoryOutbox {
  // MARK: - Claiming

  /// The first step of `push.claim`: picks rows, earliest deadline first, and holds them and the gateway's row until `finish`.
  ///
  /// Returns nil if nothing may be claimed: the statement is over.
  public mutating func beginClaim(
    _ gateway: Int32, _ number: Int32, _ allowances: [LaneAllowance], within limits: ClaimLimits, at now: DatabaseTime
  ) -> MemoryRunningClaim? {
    guard let row = gateways[gateway], row.isAlive, row.claimsFrom <= number else { return nil }
    let keys = pick(for: gateway, allowances, within: limits, at: now)
    sharedLocks[gateway, default: 0] += 1
    locked.formUnion(keys)
    let picked = keys.compactMap { key in calls[key.outboxID].map { (key, $0) } }
    return MemoryRunningClaim(gateway: gateway, number: number, picked: picked)
  }

  /// Whether a statement that locks the gateway's row exclusively must wait, because a claim of the gateway is running.
  public func isLocked(_ gateway: Int32) -> Bool { sharedLocks[gateway, default: 0] > 0 }

  /// The second step of `push.claim`: takes the picked rows and releases the locks.
  public mutating func finish(_ claim: MemoryRunningClaim, at now: DatabaseTime) -> [MemoryClaimedRow] {
    if let locks = sharedLocks[claim.gateway] { sharedLocks[claim.gateway] = locks > 1 ? locks - 1 : nil }
    locked.subtract(claim.picked.map(\.key))
    defer { commit() }
    return claim.picked.compactMap { take($0, of: $1, for: claim.gateway, claim.number, at: now) }
  }

  private func pick(
    for gateway: Int32, _ allowances: [LaneAllowance], within limits: ClaimLimits, at now: DatabaseTime
  ) -> [DeliveryKey] {
    let first = now + Limits.slack
    let asked = Set(allowances.map(\.lane))
    let byLane = Dictionary(allowances.map { ($0.lane, $0) }) { first, _ in first }
    let candidates = deliveries.values.filter {
      $0.state == .ready && $0.deadlineAt > first && asked.contains($0.lane) && !locked.contains($0.key)
        && !$0.avoids(gateway, byLane[$0.lane], at: now)
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
    _ key: DeliveryKey, of call: MemoryCall, for gateway: Int32, _ number: Int32, at now: DatabaseTime
  ) -> MemoryClaimedRow? {
    guard var row = deliveries[key], row.state == .ready else { return nil }
    row.state = .claimed
    row.owner = gateway
    row.lease = number
    row.attempt += 1
    row.hasFoundEnded = row.isInvite && !call.rings(for: row.userID)
    deliveries[key] = row
    return MemoryClaimedRow(delivery: row, call: call, remaining: row.deadlineAt - now)
  }

  // MARK: - Lost claims and settlements

  /// `push.forget_in`: the answer to a claim was lost. The claim is barred if it has not begun; deliveries that it took
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

  /// `push.claimed_by`: rows that the gateway has claimed, of `limit` calls at a time. The parts are ranges of call
  /// numbers, as those of Postgres are ranges of pages: deletions meanwhile do not shift them.
  public func claimed(by gateway: Int32, from page: Int64, limit: Int64) -> ClaimedPage {
    let leases = claims(of: gateway).filter { page..<page + limit ~= $0.outboxID }.compactMap { key in
      deliveries[key].map { DeliveryLease(key, lease: $0.lease) }
    }
    return ClaimedPage(leases: leases, next: page + limit < nextCall ? page + limit : nil)
  }

  /// `push.disown`: rows that are claimed by the gateway and that it does not know. Returns how many there were.
  public mutating func disown(_ gateway: Int32, _ leases: [DeliveryLease], at now: DatabaseTime) -> Int {
    defer { commit() }
    var count = 0
    for lease in leases {
      guard let row = row(lease, of: gateway) else { continue }
      count += 1
      free(row, at: now)
    }
    return count
  }

  /// `push.ended_for`.
  public func endedFor(_ outboxIDs: [Int64]) -> EndedRings {
    var ended = EndedRings()
    for id in outboxIDs {
      if let call = calls[id], call.state == .ringing {
        if !call.declined.isEmpty { ended.decliners[id] = Set(call.declined.keys.map { Array($0.utf8) }) }
      } else {
        ended.calls.insert(id)
      }
    }
    return ended
  }

  // MARK: - Results

  /// The row that the gateway has claimed under this lease.
  private func row(_ lease: DeliveryLease, of gateway: Int32) -> MemoryDelivery? {
    guard let row = deliveries[lease.key], row.state == .claimed, row.owner == gateway, row.lease == lease.lease else {
      return nil
    }
    return row
  }

  /// The same, or a row that nobody has, if this is an acceptance, or the gateway has handed it on.
  private func settleable(_ settlement: Settlement, of gateway: Int32) -> MemoryDelivery? {
    if let row = row(settlement.lease, of: gateway) { return row }
    guard let row = deliveries[settlement.lease.key], row.state != .claimed, !locked.contains(row.key),
      settlement.isAccepted || row.handedOnBy.last == gateway && row.lease == settlement.lease.lease
    else { return nil }
    return row
  }

  /// `push.settle`: returns how many were still the gateway's.
  public mutating func settle(
    _ gateway: Int32, _ settlements: [Settlement], at now: DatabaseTime
  ) throws(OutboxError) -> Int {
    for settlement in settlements {
      guard settleable(settlement, of: gateway) != nil, let poison = poison[settlement.lease.key] else {
        continue
      }
      guard poison == .details, settlement.reason == "SettlementRefused" else {
        throw OutboxError(.refusedRows, "a settlement holds what the database cannot store")
      }
    }
    var count = 0
    for settlement in settlements {
      guard let row = settleable(settlement, of: gateway) else {
        if settlement.isAccepted, var row = deliveries[settlement.lease.key], row.acceptedAt == nil {
          row.acceptedAt = now
          deliveries[row.key] = row
        }
        continue
      }
      count += 1
      let outcome = row.acceptedAt != nil && !settlement.isAccepted ? DeliveryOutcome.delivered : settlement.outcome
      let reason =
        switch outcome {
        case .delivered, .deliveredLate: settlement.reason
        case .void: settlement.reason ?? voidReason(row)
        case .expired, .dead: settlement.reason ?? row.lastReason ?? "Unknown"
        }
      finish(
        row, settlement.outcome, owner: gateway, attempts: settlement.attempts, refusals: settlement.refusals,
        reason: reason, wasSent: settlement.sentAt != nil, at: now)
      // The next channel, if there is still enough time.
      let left = outcome == .expired ? Limits.fallBackLeft : 0
      let hasFailed = outcome == .dead || outcome == .expired
      if row.isInvite, hasFailed, row.deadlineAt > now + left { note(row.key.outboxID, .failed, at: now) }
      let isFailedCancel = row.kind == PushKind.cancel.rawValue && hasFailed
      if isFailedCancel || reason == "SaidByCancel" { note(row.key.outboxID, .untold, at: now) }
    }
    commit(isDurable: true)
    return count
  }

  /// `push.settled`: those of these deliveries that the gateway has settled.
  public func settled(_ gateway: Int32, among keys: [DeliveryKey]) -> Set<DeliveryKey> {
    Set(keys.filter { history[$0]?.contains { $0.owner == gateway } ?? false })
  }

  /// `push.park`: deliveries wait for a later attempt, are handed on, or are ready at once.
  public mutating func park(_ gateway: Int32, _ parkings: [Parking], at now: DatabaseTime) -> Int {
    defer { commit() }
    var count = 0
    for parking in parkings {
      guard var row = row(parking.lease, of: gateway) else { continue }
      let isReady = parking.delay == nil || parking.isHandedOn
      row.state = isReady ? .ready : .waiting
      var dueAt = now + (parking.delay ?? .zero).microseconds
      if parking.isHandedOn {
        // In a round, the first time at which one of those that had it may have it again.
        if !row.handedOnBy.isEmpty, !row.handedOnBy.contains(gateway) {
          dueAt = max(min(dueAt, now + Limits.rest), min(dueAt, row.dueAt))
        }
        // Who had it before begins the next round.
        row.handedOnBy = row.handedOnBy.contains(gateway) ? [gateway] : row.handedOnBy + [gateway]
      }
      row.handedOnAt = now
      row.owner = nil
      row.hasFoundEnded = false
      row.attempt = parking.attempts ?? max(0, row.attempt - 1)
      row.lastReason = parking.reason ?? row.lastReason
      row.refusals += parking.failures.refusals
      row.dueAt = min(dueAt, row.deadlineAt)
      count += 1
      guard row.acceptedAt == nil else {
        finish(row, .expired, reason: nil, at: now)  // as what it is: accepted
        continue
      }
      deliveries[row.key] = row
      if isReady { ringBell() }
    }
    return count
  }
}

extension [FailedAttempt] {
  /// Number of those that the provider has refused for certain: of a hedged try only one of the two was answered.
  fileprivate var refusals: Int32 { Int32(count { $0.status != 0 && !$0.isHedged }) }
}

extension Settlement {
  fileprivate var isAccepted: Bool { outcome == .delivered || outcome == .deliveredLate }

  /// The same with the last try, whose failure is among the others only if it was hedged.
  fileprivate var refusals: Int32 {
    let isRefused = status != 0 && !failures.contains { $0.attempt == attempts && $0.isHedged }
    return failures.refusals + (isRefused ? 1 : 0)
  }
}
