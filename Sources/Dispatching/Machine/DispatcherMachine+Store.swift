// The gateway's own life: events of the store, registration, beats, scans, jobs, follow-ups and reports.

internal import Logging
internal import Queue
internal import Runtime

extension DispatcherMachine {
  mutating func handle(_ event: OutboxEvent, _ now: Instant) {
    switch event {
    case .bell: pacer.didHearBell(now, isClaiming: !ledger.isClear)
    case .available:
      membership.becomeAvailable(now)
      reconciliation.restart()
      pacer.didHearBell(now, isClaiming: !ledger.isClear)
    case .unavailable: membership.becomeUnavailable()
    case .mayHaveEnded(let outboxIDs):
      endings.hints.note(outboxIDs)
      ended.note(outboxIDs)
      followUps.note(.upkeep)
    case .manyMayHaveEnded:
      endings.hints.noteAny()
      ended.noteAny()
      followUps.note(.upkeep)
    case .listening(let isListening):
      endings.setListening(isListening)
      ended.noteAny()
      for entry in held.all { needLookUp(entry) }
      for index in breakers.indices { breakers[index].close() }
    case .invalidationResumed(let lane): if let index = laneIndexByID[lane] { breakers[index].close() }
    }
  }

  // MARK: - Registration and beats

  /// Whether no call in the name of this gateway is under way, so that a new gateway may replace it.
  var isQuiet: Bool { ledger.isQuiet && writer.isQuiet }

  mutating func joinIfDue(_ now: Instant) {
    if ledger.isExhausted, membership.isRegistered, held.count == 0, writer.isIdle {
      log(.notice, "The numbers of this gateway's claims are used up; it registers anew")
      ledger.restart()
      membership.leave()
      forgetAll()
    }
    if let call = membership.call(isQuiet: isQuiet, now) { actions.append(call) }
  }

  mutating func didRegister(_ result: Result<Void, OutboxError>, askedAt: Instant, _ now: Instant) {
    guard answer(result, orLog: .warning, "Registering with the database failed; it is tried again") != nil else {
      return membership.didFail(now)
    }
    ledger.changeGateway()
    membership.didRegister()
    lease.confirm(askedAt: askedAt)
  }

  mutating func didBeat(_ result: Result<Bool, OutboxError>, askedAt: Instant, _ now: Instant) {
    guard let isAlive = answer(result, orLog: .debug, "A beat was not confirmed; it is tried again") else {
      return membership.didFail(now)
    }
    membership.didBeat(isAlive: isAlive)
    if isAlive { return lease.confirm(askedAt: askedAt) }
    log(.warning, "This replica was declared dead; its claims were taken over, and it registers anew")
    forgetAll()
  }

  /// This gateway has ended: others have what it held. What waits is dropped, what providers have not sent is withdrawn, and
  /// results that come later are dropped.
  private mutating func forgetAll() {
    lease.revoke()
    renewPermit()
    reconciliation.restart()
    for entry in held.all where entry.isWaiting { drop(entry) }
    let sent = held.all.filter(\.isSent)
    for entry in sent { entry.stage = .sent(.lost) }
    withdraw(sent)
  }

  /// When the gateway's lease has lapsed, requests that have not been sent are stopped, here and at the providers.
  mutating func noteLapse(_ now: Instant) {
    guard lease.noteLapse(now), !isDraining else { return }
    counters.leaseLapses += 1
    log(.warning, "No beat was confirmed in time: nothing is sent until one is")
  }

  // MARK: - Scans

  mutating func scanIfDue(_ now: Instant) {
    if reconciliation.asks(claimMax: ledger.answered, now) { actions.append(.scan(from: reconciliation.page)) }
  }

  mutating func didScan(_ result: Result<ClaimedPage, OutboxError>, _ now: Instant) {
    guard
      let page = answer(result, orLog: .debug, "What is claimed in our name could not be read; it is tried again")
    else { return reconciliation.didFail(now) }
    guard let claimMax = reconciliation.didAnswer(page, now), membership.isOpen else { return }
    for row in page.leases where row.lease <= claimMax { reconcile(row, claimMax, now) }
  }

  private mutating func reconcile(_ row: DeliveryLease, _ claimMax: Int32, _ now: Instant) {
    guard let entry = held[row.key] else { return writer.add(.disown(row), now) }
    // The row has another number of ours, of a claim that was answered. The row is right.
    if entry.lease != row, entry.lease.lease <= claimMax { entry.adopt(row, at: .unknown) }
  }

  // MARK: - Jobs, follow-ups and reports

  mutating func keepHouse(_ now: Instant) {
    guard !isDraining else { return }
    for kind in JobKind.allCases where housekeeping.claimsJob(kind, now) { actions.append(.claimJob(kind)) }
    for kind in JobKind.allCases where followUps.runs(kind, now) {
      actions.append(.followUp(kind, max: FollowUps.countMax(kind)))
    }
    if housekeeping.reports(now) { actions.append(.report(scheduler.conditions(now))) }
  }

  mutating func didTakeJob(_ kind: JobKind, _ result: Result<String?, OutboxError>, _ now: Instant) {
    guard let name = answerOfJob(kind, result, now) else { return }
    guard let name else { return housekeeping.didEndJob(kind, pause: settings.jobInterval, now) }
    actions.append(.runJob(kind, name))
  }

  mutating func didRunJob(_ kind: JobKind, _ result: Result<[Tally], OutboxError>, _ now: Instant) {
    guard let tallies = answerOfJob(kind, result, now) else { return }
    for tally in tallies { counters.note(tally) }
    housekeeping.didEndJob(kind, pause: .zero, now)  // another job may be due
  }

  private mutating func answerOfJob<Answer>(
    _ kind: JobKind, _ result: Result<Answer, OutboxError>, _ now: Instant
  ) -> Answer? {
    let found = answer(result, orLog: .warning, "Maintenance of the outbox failed; it is tried again")
    if found == nil { housekeeping.didEndJob(kind, pause: settings.reportInterval, now) }
    return found
  }

  mutating func didFollowUp(_ kind: JobKind, _ result: Result<Int, OutboxError>, _ now: Instant) {
    let count = answer(result, orLog: .debug, "Follow-ups failed; a job does them") ?? 0
    followUps.didRun(kind, count)
    // New deliveries may be ready. They ring no bell.
    if count > 0 { pacer.didHearBell(now, isClaiming: !ledger.isClear) }
  }

  mutating func didReport(_ result: Result<Void, OutboxError>) {
    housekeeping.didReport()
    _ = answer(result, orLog: .debug, "The lanes' condition could not be reported")
  }
}
