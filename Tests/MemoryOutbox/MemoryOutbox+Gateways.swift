// Gateways: their lives and their deaths.

internal import Queue

extension MemoryOutbox {
  /// `push.register_gateway`. Durable. Returns the new gateway's id, which is never used again.
  public mutating func register(name: String, at now: DatabaseTime) -> Int32 {
    let id = nextGateway
    nextGateway += 1
    gateways[id] = MemoryGateway(id: id, name: name, heartbeatAt: now, steadySince: now)
    commit(isDurable: true)
    return id
  }

  /// `push.beat`: whether the gateway is alive.
  public mutating func beat(_ gateway: Int32, mayReap: Bool, at now: DatabaseTime) -> Bool {
    defer { commit() }
    guard var row = gateways[gateway], row.isAlive else { return false }
    // If the server stood still or its clock was set, all gateways seem silent, including this one.
    let isHeardInTime = (now - Limits.silence * 2 / 3...now).contains(row.heartbeatAt)
    if !isHeardInTime { row.steadySince = now }
    row.heartbeatAt = now
    row.doubtedAt = nil
    gateways[gateway] = row
    if mayReap, row.steadySince <= now - Limits.silence { reap(by: gateway, at: now) }
    return true
  }

  /// `push.retire_gateway`: the clean end of a gateway. It holds nothing, so it does not know the rows that are claimed in
  /// its name: a fail-over has lost what it wrote. No crash is counted. Durable.
  public mutating func retire(_ gateway: Int32, at now: DatabaseTime) {
    end(gateway, reason: "retired")
    commit(isDurable: true)
  }

  private mutating func end(_ gateway: Int32, reason: String) {
    guard var row = gateways[gateway], row.isAlive else { return }
    row.isAlive = false
    row.endedReason = reason
    row.isFreeDue = true
    gateways[gateway] = row
  }

  /// Declares silent gateways dead.
  private mutating func reap(by gateway: Int32, at now: DatabaseTime) {
    let lively = now - Limits.silence...now + Limits.silence
    let others = gateways.values.filter { $0.isAlive && $0.id != gateway }
    // At the second check: two steps of the clock may make a living gateway seem silent.
    let silent = others.filter {
      !lively.contains($0.heartbeatAt) && $0.doubtedAt.map { $0 < now - Limits.silence / 6 } ?? false
    }.map(\.id).sorted()
    for id in silent { end(id, reason: "silent") }
    let certain = now - Limits.silence * 2 / 3...now + Limits.silence
    for other in others where !certain.contains(other.heartbeatAt) && !(other.doubtedAt.map { $0 <= now } ?? false) {
      gateways[other.id]?.doubtedAt = now
    }
  }

  /// `push.free_claims`: frees what gateways held that have ended. Deliveries of a claim that was still running are found by a later run;
  /// the last one is made when no claim is running any more.
  mutating func freeClaims(at now: DatabaseTime) {
    for id in gateways.values.filter(\.isFreeDue).map(\.id).sorted() {
      freeClaims(of: id, at: now)
      if !isLocked(id) { gateways[id]?.isFreeDue = false }
    }
    commit()
  }

  /// The keys of the deliveries that a gateway has claimed, ascending.
  func claims(of gateway: Int32) -> [DeliveryKey] { keys { $0.state == .claimed && $0.owner == gateway } }

  /// Frees the deliveries of a dead gateway.
  private mutating func freeClaims(of gateway: Int32, at now: DatabaseTime) {
    let keys = claims(of: gateway)
    let isSilent = gateways[gateway]?.endedReason == "silent"
    // If it had a suspect, the suspect killed it.
    if keys.contains(where: { deliveries[$0]?.isSuspect ?? false }) { gateways[gateway]?.hadSuspect = true }
    let hadSuspect = gateways[gateway]?.hadSuspect ?? false
    for key in keys {
      guard var row = deliveries[key] else { continue }
      if isSilent, !hadSuspect || row.isSuspect { row.crashes += 1 }
      deliveries[key] = row
      free(row, at: now)
    }
  }

  /// `push.free_rows`: it is unknown what became of a claimed row. It is ready again, unless people would see it twice, or too
  /// many gateways died with it.
  mutating func free(_ row: MemoryDelivery, at now: DatabaseTime) {
    let isRepeatable = !row.isVisible || (lanes[row.lane].flatMap { apps[$0.app] }?.isAtLeastOnce ?? false)
    if !isRepeatable || row.crashes >= Limits.crashes || row.acceptedAt != nil {
      finish(row, .dead, reason: "GatewayCrashed", at: now)
    } else {
      putBack(row.key, isUncounted: false, at: now)
    }
  }

  /// A claimed row becomes ready.
  mutating func putBack(_ key: DeliveryKey, isUncounted: Bool, at now: DatabaseTime) {
    guard var row = deliveries[key] else { return }
    row.state = .ready
    row.owner = nil
    row.dueAt = now
    if isUncounted || row.hasFoundEnded { row.attempt = max(0, row.attempt - 1) }
    row.hasFoundEnded = false
    deliveries[key] = row
    ringBell()
  }
}
