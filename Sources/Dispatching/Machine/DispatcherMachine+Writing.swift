// The ways a delivery leaves the gateway: settled, parked, handed on, released or dropped; and the end of all.

internal import Logging
internal import Providers
internal import PushModel
internal import Queue
internal import Runtime

extension DispatcherMachine {
  /// The reason of a delivery that was accepted after it had been sent over two connections.
  private static let hedgedReason = "Hedged"
  /// The reason of an accepted invite that an iPhone only shows: without a VoIP push it does not ring.
  private static let alertReason = "Alert"

  /// The reason of a delivery that was accepted in time.
  private func remark(on entry: HeldDelivery) -> String? {
    if entry.result?.isHedged == true { return Self.hedgedReason }
    let isAlert =
      entry.delivery.kind == .invite && entry.delivery.platform == .ios && lanes[entry.lane].provider != .apns
    return isAlert ? Self.alertReason : nil
  }

  /// Ends a delivery.
  mutating func finish(_ entry: HeldDelivery, _ outcome: DeliveryOutcome, reason: String?, _ now: Instant) {
    leaveLane(entry)
    settle(entry, ending(entry, outcome, reason), now)
  }

  func ending(
    _ entry: HeldDelivery, _ outcome: DeliveryOutcome, _ reason: String?,
    _ lateness: HeldDelivery.Ending.Lateness = .none
  ) -> HeldDelivery.Ending {
    let messageID: String? = if case .accepted(let id) = entry.result?.outcome { id } else { nil }
    return HeldDelivery.Ending(
      outcome: outcome, reason: outcome == .delivered ? remark(on: entry) : reason, messageID: messageID,
      receiptAfter: messageID == nil ? nil : lanes[entry.lane].receiptAfter, lateness: lateness)
  }

  mutating func settle(_ entry: HeldDelivery, _ ending: HeldDelivery.Ending, _ now: Instant) {
    entry.end(ending)
    logEnd(entry, ending.outcome, ending.reason)
    writer.add(.settle(entry), now)
  }

  /// Parks a delivery in the outbox, because its next try is too far away to keep it in memory.
  ///
  /// - Parameters:
  ///   - isHandedOn: whether gateways that have not had it may claim it at once.
  ///   - isCounted: whether the last of its attempts was made.
  mutating func park(
    _ entry: HeldDelivery, after wait: Nanoseconds, isHandedOn: Bool = false, reason: String,
    isCounted: Bool = true, _ now: Instant
  ) {
    let attempts = isCounted ? entry.attempts : max(0, entry.attempts - 1)
    giveBack(
      entry,
      Parking(
        lease: entry.lease, attempts: attempts, delay: wait, isHandedOn: isHandedOn, reason: reason,
        failures: entry.failures),
      now)
  }

  /// Returns a ring to the outbox. Gateways that have not had it find it at once. When all have had it, it rests a little: otherwise they
  /// would pass it to and fro as fast as the network lets them.
  ///
  /// - Parameters:
  ///   - wait: how long the provider does not want to see it again.
  ///   - isCounted: whether the last of its attempts was made.
  mutating func handOn(
    _ entry: HeldDelivery, reason: String, after wait: Nanoseconds? = nil, isCounted: Bool = true, _ now: Instant
  ) {
    let attempts = isCounted ? entry.attempts : max(0, entry.attempts - 1)
    let rest = max(settings.policy.rest(afterAttempts: Int(attempts)), wait ?? .zero)
    park(entry, after: rest, isHandedOn: true, reason: reason, isCounted: isCounted, now)
  }

  /// Returns a delivery as if it had never been claimed.
  mutating func release(_ entry: HeldDelivery, _ now: Instant) {
    giveBack(entry, Parking(releasing: entry.lease), now)
  }

  private mutating func giveBack(_ entry: HeldDelivery, _ parking: Parking, _ now: Instant) {
    if case .sent(.void) = entry.stage { return finish(entry, .void, reason: nil, now) }
    leaveLane(entry)
    if parking.delay == nil { counters.released += 1 } else { counters.parked += 1 }
    entry.stage = .returning(parking)
    writer.add(.park(entry), now)
  }

  /// Drops a delivery whose row is no longer ours. Nothing is written.
  mutating func drop(_ entry: HeldDelivery) {
    counters.lostLeases += 1
    leaveLane(entry)
    held.remove(entry)
  }

  /// The delivery leaves its lane. While its provider still has it, its request takes room.
  mutating func leaveLane(_ entry: HeldDelivery) {
    if entry.isInFlight { return scheduler.didHandOn(entry.delivery.lane) }
    setTurn(.none, of: entry)
    scheduler.didFinish(entry.delivery.lane)
  }

  // MARK: - The outbox' answers

  mutating func flushWriter(_ now: Instant) {
    let former = actions.count
    writer.flush(now, isLast: isDraining, into: &actions)
    for case .write(_, .settle(let settlements)) in actions[former...] {
      counters.settlementBatches.observe(Int64(settlements.count))
    }
  }

  mutating func didWrite(_ batch: Int, _ result: Result<OutboxWriteAnswer, OutboxError>, _ now: Instant) {
    switch writer.didWrite(batch, result, now, into: &actions) {
    case .settled(let written, let lost):
      for (entry, settlement) in written {
        counters.note(settlement, inLane: entry.lane, isUntried: entry.isUntried, now)
        // The user may be tried on the next channel.
        if entry.delivery.kind == .invite, [.dead, .expired].contains(settlement.outcome) { followUps.note(.urgent) }
        forget(entry)
      }
      // What was handed on may have been claimed, or have expired, before its late answer.
      counters.lostLeases += lost.count { !$0.isLate }
      for entry in lost { forget(entry) }
    case .returned(let entries, let count):
      counters.lostLeases += max(0, entries.count - count)
      for entry in entries {
        if case .returning(_, let ending?) = entry.stage { settle(entry, ending, now) } else { forget(entry) }
      }
    case .disowned(let count):
      counters.reconciled += count
      if count > 0 {
        log(
          .notice, "Rows were claimed in our name that nobody here knew of; they went back",
          ["rows": .stringConvertible(count)])
      }
    case .log(let level, let message, let metadata): log(level, message, metadata)
    case .nothing: break
    }
  }

  /// What became of a delivery is written.
  private mutating func forget(_ entry: HeldDelivery) {
    if entry.isInFlight { entry.didWrite() } else { held.remove(entry) }
  }

  // MARK: - The log

  /// Logs the one line about the end of a delivery.
  private mutating func logEnd(_ entry: HeldDelivery, _ outcome: DeliveryOutcome, _ reason: String?) {
    guard logLevel <= .info else { return }
    var metadata = Logger.Metadata(entry.delivery, lanes[entry.lane].name)
    metadata.note(outcome, reason, entry)
    log(.info, "A delivery has ended", metadata)
  }

  // MARK: - The end

  /// Stops claiming, and returns deliveries that wait.
  mutating func drain(_ now: Instant) {
    guard !isDraining else { return }
    isDraining = true
    beginClaimed(now)
    for entry in held.all where entry.isWaiting {
      park(entry, after: settings.policy.refusedWait, reason: entry.reason ?? "Shutdown", now)
    }
    withdraw(held.all.filter(\.isSent))
  }
}
