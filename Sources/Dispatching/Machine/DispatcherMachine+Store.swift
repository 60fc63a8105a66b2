// The gateway's own life: events of the store, registration, beats, reclaims, scans, jobs and reports.

internal import Logging
internal import PushModel
internal import Queue
internal import Runtime

extension DispatcherMachine {
  mutating func handle(_ event: OutboxEvent, _ now: Instant) {
    switch event {
    case .bell: pacer.didHearBell(now, isClaiming: !ledger.isClear)
    case .available:
      membership.becomeAvailable(now)
      reclaiming.restart()
      reconciliation.restart()
      pacer.didHearBell(now, isClaiming: !ledger.isClear)
    case .unavailable: membership.becomeUnavailable()
    case .mayHaveEnded(let outboxIDs):
      endings.note(outboxIDs)
      ended.note(outboxIDs)
    case .manyMayHaveEnded:
      endings.noteAll()
      ended.noteAny()
    case .listening(let isListening):
      endings.setListening(isListening)
      ended.noteAny()
      for entry in known.allHeld where entry.delivery.kind == .invite { entry.needsLookUp = true }
    case .invalidationResumed(let lane):
      if let index = laneIndexByID[lane] { breakers[index].reset() }
    }
  }

  // MARK: - Registration and beats

  /// Whether no call in the name of this gateway is under way, so that a new gateway may replace it.
  var isQuiet: Bool { ledger.isQuiet && writer.isQuiet }

  mutating func joinIfDue(_ now: Instant) {
    if ledger.isExhausted, membership.isRegistered, known.heldCount == 0, writer.isIdle {
      log(.notice, "The numbers of this gateway's claims are used up; it registers anew")
      leaveGateway()
      ledger.restart()
      membership.leave(now)
    }
    switch membership.call(isQuiet: isQuiet, now) {
    case .register: actions.append(.register)
    case .beat(let mayReap): actions.append(.beat(mayReap: mayReap))
    case nil: break
    }
  }

  mutating func didRegister(_ result: Result<Void, OutboxError>, askedAt: Instant, _ now: Instant) {
    switch result {
    case .success:
      ledger.changeGateway()
      membership.didRegister(knowsAnything: !known.isEmpty)
      lease.confirm(askedAt: askedAt)
    case .failure(let error):
      membership.didFail(now)
      log(.warning, "Registering with the database failed; it is tried again", ["reason": "\(error)"])
    }
  }

  mutating func didBeat(_ result: Result<Beat, OutboxError>, askedAt: Instant, _ now: Instant) {
    switch result {
    case .success(let beat):
      let wasReclaiming = membership.mustReclaim
      guard membership.didBeat(beat, askedAt: askedAt) else {
        log(.warning, "This replica was declared dead; its claims were taken over, and it registers anew")
        leaveGateway()
        return
      }
      lease.confirm(askedAt: askedAt)
      if membership.mustReclaim, !wasReclaiming {
        log(
          .warning, "The database has restarted and may have lost commits; everything this replica has is claimed again"
        )
      }
    case .failure(let error):
      membership.didFail(now)
      log(.debug, "A beat was not confirmed; it is tried again", ["reason": "\(error)"])
    }
  }

  /// This gateway was declared dead. Nothing more of what it holds may be sent.
  private mutating func leaveGateway() {
    lease.revoke()
    renewPermit()
    reclaiming.restart()
    reconciliation.restart()
    let held = known.allHeld
    for entry in held { entry.isOfFormerGateway = true }
    for entry in held where entry.isWaiting { drop(entry) }
    withdraw(held.filter(\.isSent))
  }

  /// When the gateway's lease has lapsed, requests that have not been sent are stopped, here and at the providers.
  mutating func noteLapse(_ now: Instant) {
    guard lease.noteLapse(now), !isDraining else { return }
    counters.leaseLapses += 1
    log(.warning, "No beat was confirmed in time: nothing is sent until one is")
  }

  // MARK: - Reclaiming

  var isReadyToReclaim: Bool { ledger.isClear && writer.isQuiet }

  mutating func reclaimIfDue(_ now: Instant) {
    guard membership.isConfirmed, membership.mustReclaim, isReadyToReclaim, reclaiming.due <= now else { return }
    let takesOver = membership.mustConfirmReclaim
    switch reclaiming.call(confirms: takesOver, allKeys: { takesOver ? known.keysTakenOver : known.keys }) {
    case .reclaim(let keys): actions.append(.reclaim(number: ledger.next(), keys))
    case .confirm: actions.append(.confirmReclaimed)
    case nil: endReclaim(now)
    }
  }

  mutating func didReclaim(_ number: Int32, _ result: Result<[Reclaimed], OutboxError>, _ now: Instant) {
    switch result {
    case .success(let reclaimed):
      guard ledger.didAnswer(number) else { return }
      let keys = reclaiming.didReclaim()
      guard !keys.isEmpty else { return }
      var places = [DeliveryPlace?](repeating: nil, count: keys.count)
      for row in reclaimed where keys.indices.contains(row.index) { places[row.index] = row.place }
      var lost: [HeldDelivery] = []
      for (key, place) in zip(keys, places) {
        if let place {
          didTakeBack(key, number, place, now)
        } else if case .held(let entry) = known[key] {
          if entry.isWaiting { drop(entry) } else if entry.isSent { lost.append(entry) }
          // A settlement under way is still written. History tells whether it was written before.
        }
      }
      for entry in lost { entry.isLost = true }
      withdraw(lost)
    case .failure(let error):
      ledger.abandon(number)
      reclaiming.didFail(now)
      log(.warning, "Claiming again what this replica has failed; it is tried again", ["reason": "\(error)"])
    }
  }

  /// The delivery's row is ours under a new claim number.
  private mutating func didTakeBack(_ key: DeliveryKey, _ number: Int32, _ place: DeliveryPlace, _ now: Instant) {
    let lease = DeliveryLease(key, lease: number)
    switch known[key] {
    case .held(let entry): entry.adopt(lease, at: place)
    case .settled(let settled): settleAgain(settled, lease, place, now)
    case nil: writer.release(stray: lease, now)  // its outcome was written meanwhile
    }
  }

  mutating func didConfirmReclaim(_ result: Result<Void, OutboxError>, _ now: Instant) {
    switch result {
    case .success: if reclaiming.didConfirm() { endReclaim(now) }
    case .failure(let error):
      reclaiming.didFail(now)
      log(
        .warning, "The database was not told that everything is claimed again; it is tried again",
        ["reason": "\(error)"])
    }
  }

  private mutating func endReclaim(_ now: Instant) {
    membership.didReclaim(now)
    reconciliation.restart()
    log(.notice, "This replica has claimed again what it had")
  }

  // MARK: - Scans

  mutating func scanIfDue(_ now: Instant) {
    guard let question = reconciliation.ask(claimMax: ledger.answered, now) else { return }
    actions.append(.scan(from: question.page))
  }

  mutating func didScan(_ result: Result<ClaimedPage, OutboxError>, _ now: Instant) {
    switch result {
    case .success(let page):
      guard let question = reconciliation.didAnswer(page, now), membership.isOpen else { return }
      for row in page.leases where row.lease <= question.claimMax { reconcile(row, question, now) }
    case .failure(let error):
      reconciliation.didFail(now)
      log(.debug, "What is claimed in our name could not be read; it is tried again", ["reason": "\(error)"])
    }
  }

  private mutating func reconcile(_ row: DeliveryLease, _ question: Reconciliation.Question, _ now: Instant) {
    switch known[row.key] {
    case nil: writer.release(stray: row, now)
    case .settled(let settled):
      // A row that was written after the scan was sent may still be in the answer.
      if settled.writtenAt < question.askedAt { settleAgain(settled, row, .unknown, now) }
    case .held(let entry):
      // The row has another number of ours, of a claim that was answered. The row is right.
      if entry.lease != row, entry.lease.lease <= question.claimMax { entry.adopt(row, at: .unknown) }
    }
  }

  // MARK: - Jobs and reports

  mutating func keepHouse(_ now: Instant) {
    guard !isDraining else { return }
    for kind in JobKind.allCases where housekeeping.claimsJob(kind, now) { actions.append(.claimJob(kind)) }
    if housekeeping.reports(now) { actions.append(.report(scheduler.conditions(now))) }
  }

  mutating func didTakeJob(_ kind: JobKind, _ result: Result<String?, OutboxError>, _ now: Instant) {
    switch result {
    case .success(let name?): actions.append(.runJob(kind, name))
    case .success(nil): housekeeping.didFindNoJob(kind, now)
    case .failure(let error): didFailJob(kind, error, now)
    }
  }

  mutating func didRunJob(_ kind: JobKind, _ result: Result<[Tally], OutboxError>, _ now: Instant) {
    switch result {
    case .success(let tallies):
      for tally in tallies { counters.note(tally) }
      housekeeping.didRunJob(kind, now)
    case .failure(let error): didFailJob(kind, error, now)
    }
  }

  private mutating func didFailJob(_ kind: JobKind, _ error: OutboxError, _ now: Instant) {
    housekeeping.didFailJob(kind, now)
    log(.warning, "Maintenance of the outbox failed; it is tried again", ["reason": "\(error)"])
  }

  mutating func didReport(_ result: Result<Void, OutboxError>) {
    housekeeping.didReport()
    if case .failure(let error) = result {
      log(.debug, "The lanes' condition could not be reported", ["reason": "\(error)"])
    }
  }
}
