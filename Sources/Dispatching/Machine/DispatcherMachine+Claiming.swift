// Claims: when the next one is sent, what it brings, and what follows when its answer is lost.

internal import Logging
internal import PushModel
internal import Queue
internal import Runtime

extension DispatcherMachine {
  var mayClaim: Bool {
    !isDraining && ledger.isClear && !ledger.isExhausted && writer.backlog < settings.backlogMax
  }

  mutating func claimIfDue(_ now: Instant) {
    guard mayClaim, pacer.next <= now, lease.isValid(now) else { return }
    let allowances = scheduler.allowances(now)
    guard !allowances.isEmpty else {
      pacer.didClaim(0, now)  // a result or a new connection will make room and cause another turn
      return
    }
    // It reads the ends of earlier hints itself.
    ended.clear()
    actions.append(.claim(number: ledger.next(), allowances, within: scheduler.claimLimits(now)))
  }

  mutating func didClaim(_ number: Int32, _ result: Result<Claimed, OutboxError>, _ now: Instant) {
    switch result {
    case .success(let claimed):
      guard ledger.didAnswer(number) else { return }
      accept(claimed, now)
      pacer.didClaim(claimed.deliveries.count, now)
    case .failure(let error):
      let mayHaveTaken = ledger.didFail(number, error.code)
      pacer.didFail(now)
      log(
        .warning, "Claiming deliveries failed; it is tried again",
        ["reason": "\(error)", "is_lost": .stringConvertible(mayHaveTaken)])
    }
  }

  private mutating func accept(_ answer: Claimed, _ now: Instant) {
    counters.claimed += answer.deliveries.count
    for delivery in answer.deliveries {
      guard let lane = laneIndexByID[delivery.lane] else {
        parkUnusable(delivery.lease, attempts: max(0, delivery.attempt - 1), now)
        continue
      }
      scheduler.didClaim(1, of: delivery.lane, background: delivery.isBackground(now) ? 1 : 0)
      let entry = HeldDelivery(delivery, lane: lane)
      if let known = suspects[lane].environment(of: delivery.token), known.environment != delivery.environment {
        if known.isProven {
          entry.environment = known.environment
        } else {
          entry.askOther(isNextCounted: false)
        }
      }
      if let former = held.insert(entry), !replaces(former, entry, now) {
        scheduler.didFinish(delivery.lane)
        continue
      }
      if delivery.kind.isVisible, !lanes[lane].isAtLeastOnce { entry.needsDisk = true }
      // Read now, because the next claim starts a new list.
      if ended.contains(entry.key.outboxID) { needLookUp(entry) }
      claimed.append(entry)
    }
    for lease in answer.orphans { parkUnusable(lease, attempts: 0, reason: "CallDeleted", now) }
    for lease in answer.unreadable { parkUnusable(lease, attempts: 0, now) }
    if !answer.unreadable.isEmpty {
      log(
        .error,
        "The database holds a kind of delivery this version does not know; is the gateway older than the schema?",
        ["count": .stringConvertible(answer.unreadable.count)])
    }
    scheduler.didFinishClaim()
  }

  /// A claim has brought a delivery that is held here: a crash has lost its former claim, or it was returned, which is not confirmed
  /// yet, or may still get an answer. Returns whether to treat it like a new one.
  private mutating func replaces(_ former: HeldDelivery, _ entry: HeldDelivery, _ now: Instant) -> Bool {
    switch former.stage {
    case .returning, .returned:
      held.replace(with: entry)
      return true
    case .waiting, .sent, .settling, .settled:
      former.adopt(entry.lease, at: entry.place)
      // Its time to be handed on may have passed while it was another gateway's.
      if former.isSent, former.rescueAt.map({ $0 <= now }) == true { watch(former, for: patience(of: former), now) }
      if entry.delivery.isEndedInvite, former.mayRing { void(former, now) }
      return false
    }
  }

  /// Sends each new delivery, unless its call no longer rings.
  mutating func beginClaimed(_ now: Instant) {
    let entries = claimed
    claimed.removeAll(keepingCapacity: true)
    // A delivery that has ended since, or that belongs to another gateway, is already handled.
    for entry in entries where held[entry.slot] === entry && entry.isWaiting {
      if entry.delivery.isEndedInvite {
        finish(entry, .void, reason: nil, now)
      } else if isDraining {
        release(entry, now)
      } else {
        send(entry, now)
      }
    }
  }

  /// Parks a row that this version cannot use, for a gateway that can.
  private mutating func parkUnusable(
    _ lease: DeliveryLease, attempts: Int32, reason: String = "UnknownKind", _ now: Instant
  ) {
    writer.add(
      .parkUnusable(Parking(lease: lease, attempts: attempts, delay: settings.unusableDelay, reason: reason)), now)
  }

  // MARK: - Lost answers

  mutating func forgetIfDue(_ now: Instant) {
    guard let number = ledger.forget(now) else { return }
    actions.append(.forget(number: number))
  }

  mutating func didForget(_ number: Int32, _ result: Result<Int, OutboxError>, _ now: Instant) {
    guard
      let count = answer(
        result, orLog: .warning, "A claim whose answer was lost could not be given up; it is tried again")
    else { return ledger.didFailToForget(number, now) }
    guard ledger.didForget(number) else { return }
    counters.forgottenClaims += 1
    pacer.didHearBell(now, isClaiming: false)
    log(
      .notice, "A claim whose answer was lost has been given up",
      ["claim": .stringConvertible(number), "rows": .stringConvertible(count)])
  }
}
