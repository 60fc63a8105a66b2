// Requests to providers, their results, and deliveries that wait: for a time, for a confirmed beat, for a look-up.
//
// A ring does not wait here: what this gateway cannot get answered is handed on to others (docs/adr/0060).

internal import Dialects
internal import Logging
internal import Providers
internal import PushModel
internal import Queue
internal import Runtime

extension DispatcherMachine {
  // MARK: - Out

  /// Sends a delivery as soon as it may be sent.
  mutating func send(_ entry: HeldDelivery, _ now: Instant) {
    guard maySend(now) else {
      // Hints may be missed until a beat is confirmed, so its call is looked up then.
      needLookUp(entry)
      entry.stage = .waiting(.lease)
      leaseless.append(entry.slot)
      return
    }
    guard !entry.needsLookUp else {
      entry.stage = .waiting(.lookUp(answers: 0))
      unsure.append(entry.slot)
      endings.hints.note([entry.key.outboxID])
      return
    }
    guard !entry.needsDisk else {
      entry.stage = .waiting(.disk)
      diskWait.add(entry)
      return
    }
    if entry.isRing, entry.rescueAt.map({ $0 <= now }) ?? true { watch(entry, for: patience(of: entry), now) }
    // Requests to Expo share no connection, so no message loses that of another request.
    let isSuspect =
      lanes[entry.lane].provider != .expo && suspects[entry.lane].losses(of: entry.delivery.token, now).isSuspect
    guard !isSuspect || startTurn(entry, now) else { return }
    switch lanes[entry.lane].planner.plan(entry.delivery, now: now, tag: tag(of: entry)) {
    case .success(let request):
      request.avoidedConnection = entry.avoidedConnection
      request.isRepeat = !entry.isUntried
      request.environment = entry.environment
      if entry.asksOther {
        request.deadline = min(request.deadline, now + settings.policy.environmentProbe)
      }
      outgoing[entry.lane].append(request)
      if entry.turn == .awaited { setTurn(.none, of: entry) }
      entry.didSend(request)
      rescues[entry.lane].didSend()
      suspects[entry.lane].didSend()
    case .failure(let failure):
      if entry.turn == .taken { suspects[entry.lane].returnTurn(isAnswered: false) }
      finish(entry, failure.isExpired ? .expired : failure.isNeedless ? .void : .dead, reason: failure.reason, now)
    }
  }

  /// Whether to send a suspect now. If not, it asks again soon. A suspect whose deadline is near proceeds, and expires.
  private mutating func startTurn(_ entry: HeldDelivery, _ now: Instant) -> Bool {
    guard entry.delivery.deadline > now + TokenSuspects.interval else { return true }
    let isGranted = suspects[entry.lane].grant(
      entry.delivery.token, isInvite: entry.delivery.kind == .invite, now)
    setTurn(isGranted ? .taken : .awaited, of: entry)
    if !isGranted { wait(entry, TokenSuspects.interval, isNextCounted: entry.isNextCounted, now) }
    return isGranted
  }

  mutating func setTurn(_ turn: HeldDelivery.Turn, of entry: HeldDelivery) {
    let wasAwaited = entry.turn == .awaited
    entry.turn = turn
    if turn == .awaited, !wasAwaited { scheduler.didSetAside(entry.delivery.lane) }
    if turn != .awaited, wasAwaited { scheduler.didComeBack(entry.delivery.lane) }
  }

  private mutating func wait(_ entry: HeldDelivery, _ wait: Nanoseconds, isNextCounted: Bool, _ now: Instant) {
    entry.wait(until: now + wait, isNextCounted: isNextCounted)
    retries.insert(entry.slot, at: now + wait)
  }

  /// Tells what a result says about the connection: whether it brought an answer or was lost.
  private mutating func noteTraffic(_ result: PushResult, _ entry: HeldDelivery, _ now: Instant) {
    let isLost = result.outcome == .unknown(reason: PushOutcome.connectionLostReason)
    suspects[entry.lane].didEnd(
      entry.delivery.token, isLost: isLost, on: result.connection, isAnswered: result.isAnswered,
      hadTurn: entry.turn == .taken, now)
    entry.turn = .none
    if result.isAnswered, !isLost, let sentAt = result.sentAt, !result.isHedged {
      rescues[entry.lane].didAnswer(after: result.answeredAt - sentAt)
    }
  }

  mutating func sendOutgoing() {
    for lane in lanes.indices where !outgoing[lane].isEmpty {
      scheduler.didSend(outgoing[lane].count, of: lanes[lane].id)
      actions.append(.send(lane: lane, outgoing[lane]))
      outgoing[lane] = []
    }
  }

  /// A beat was confirmed. Sends the deliveries that waited for it.
  mutating func sendLeaseless(_ now: Instant) {
    guard !leaseless.isEmpty, maySend(now) else { return }
    let slots = leaseless
    leaseless = []
    for entry in slots.compactMap({ held[$0] }) where entry.waits(for: .lease) { resend(entry, now) }
  }

  mutating func syncIfDue(_ now: Instant) {
    guard diskWait.due <= now else { return }
    diskWait.ask()
    actions.append(.sync)
  }

  /// A sync has finished, or has failed.
  mutating func didSync(_ result: Result<Void, OutboxError>, _ now: Instant) {
    guard answer(result, orLog: .debug, "Nobody knows whether claims are on the disk; they go back") != nil else {
      // The server may have crashed, and lost the claims. So they go back, and may be claimed again.
      for entry in diskWait.didFail() where held[entry.slot] === entry && entry.waits(for: .disk) {
        park(entry, after: settings.retryInterval, reason: entry.reason ?? "Interrupted", isCounted: false, now)
      }
      return
    }
    for entry in diskWait.didAnswer(now) where held[entry.slot] === entry && entry.waits(for: .disk) {
      entry.needsDisk = false
      send(entry, now)
    }
  }

  mutating func sendDue(_ now: Instant) {
    var unanswered: [HeldDelivery] = []
    while let slot = retries.popDue(now) {
      // The slot may belong to another delivery by now, which has a time of its own.
      guard let entry = held[slot] else { continue }
      if entry.isOverdue(now), !isDraining, entry.delivery.deadline > now + settings.policy.roundTrip {
        if rescue(entry, now) { unanswered.append(entry) }
      } else if case .waiting(.time(let dueAt)) = entry.stage, dueAt <= now {
        let isThrottled = scheduler.isThrottled(entry.delivery.lane, now)
        if !isThrottled, entry.isRing || scheduler.isWell(entry.delivery.lane) {
          resend(entry, now)
        } else if entry.isRing {
          handOn(entry, reason: entry.reason ?? Self.noAnswer, isCounted: entry.isNextCounted, now)
        } else {
          // The lane's next try is one that a claim chooses, a ring if one is owed: what people see has time.
          let wait = max(scheduler.wait(of: entry.delivery.lane, now), settings.policy.cap)
          park(entry, after: wait, reason: entry.reason ?? Self.noAnswer, isCounted: entry.isNextCounted, now)
        }
      }
    }
    withdraw(unanswered, areOverdue: true)
  }

  /// How long a ring waits for its answer.
  func patience(of entry: HeldDelivery) -> Nanoseconds {
    scheduler.isWell(entry.delivery.lane) ? rescues[entry.lane].time : rescues[entry.lane].shortTime
  }

  mutating func watch(_ entry: HeldDelivery, for time: Nanoseconds, _ now: Instant) {
    entry.rescueAt = now + time
    retries.insert(entry.slot, at: now + time)
  }

  /// Hands on a ring that has waited long enough: while the lane is well, only few of those that were written. Returns whether it did and its
  /// provider has it.
  private mutating func rescue(_ entry: HeldDelivery, _ now: Instant) -> Bool {
    guard entry.isSent else {
      handOn(entry, reason: entry.reason ?? Self.noAnswer, isCounted: entry.isNextCounted, now)
      return false
    }
    let (leftAt, batch) = (entry.request?.leftAt, entry.request?.batch)
    // Patience counts from when it left. If it has not, the requests that it waits for may be given up now, too, and then it leaves.
    let rest = leftAt.map { $0 + patience(of: entry) - now } ?? (entry.isOverdueTwice ? .zero : Rescue.respite)
    guard rest <= .zero else {
      entry.isOverdueTwice = leftAt == nil
      watch(entry, for: rest, now)
      return false
    }
    let silence = PushResult(
      tag: tag(of: entry), outcome: .unknown(reason: Self.noAnswer), sentAt: leftAt, answeredAt: now)
    if leftAt != nil { apply(silence, of: entry.delivery.token, in: batch, toLane: entry.lane, now) }
    // A token that alone gets no answers does not use up the credit of others.
    let isFree = leftAt == nil || batch != nil || suspects[entry.lane].failures(of: entry.delivery.token, now).areItsOwn
    guard isFree || !scheduler.isWell(entry.delivery.lane) || rescues[entry.lane].spend(now) else {
      watch(entry, for: Rescue.interval, now)
      return false
    }
    entry.noteFailure(Self.noAnswer, silence)
    handOn(entry, reason: Self.noAnswer, now)
    return true
  }

  /// The reason of a ring that is handed on without an answer.
  private static let noAnswer = "TimedOut"

  /// Sends once more. An invite's call is looked up first: the hint that it has ended may be missing, because nobody is told where a
  /// commit would have to wait for it (`push.notify`).
  private mutating func resend(_ entry: HeldDelivery, _ now: Instant) {
    needLookUp(entry)
    send(entry, now)
  }

  /// Has the call of an invite looked up before it is sent.
  func needLookUp(_ entry: HeldDelivery) {
    if entry.delivery.kind == .invite { entry.needsLookUp = true }
  }

  // MARK: - Results

  static let badDeviceToken = "BadDeviceToken"

  mutating func handle(_ result: PushResult, _ now: Instant) {
    guard let entry = held[RequestTag.slot(of: result.tag)], entry.isInFlight else {
      preconditionFailure("a provider answered a request twice")
    }
    let batch = entry.request?.batch
    entry.request = nil
    counters.lanes[entry.lane].note(result, of: entry.delivery, isFirst: entry.isUntried)
    entry.note(result)
    noteTraffic(result, entry, now)
    guard case .sent(let known) = entry.stage else { return handleLate(result, entry, in: batch, now) }
    guard let outcome = resolveEnvironment(result, entry, now) else { return }
    var said = result
    said.outcome = outcome
    apply(said, of: entry.delivery.token, in: batch, toLane: entry.lane, now)
    guard known != .lost else { return drop(entry) }
    let disposition = settings.policy.disposition(
      of: outcome, attempts: Int(entry.attempts), throttles: entry.throttles,
      isAtFault: suspects[entry.lane].losses(of: entry.delivery.token, now).isAtFault,
      isRepeatable: RetryPolicy.isRepeatable(entry.delivery.kind, isAtLeastOnce: lanes[entry.lane].isAtLeastOnce),
      isRing: entry.isRing,
      isOwnFailure: suspects[entry.lane].failures(of: entry.delivery.token, now).isLastItsOwn,
      deadline: entry.delivery.deadline,
      answeredAt: result.answeredAt,
      random: random.nextFraction())
    switch disposition {
    case .settle(let ending, let reason):
      switch outcome {
      case .accepted: break
      case .unknown(let cause): entry.noteFailure(cause, result)
      default: if result.isHedged, let reason { entry.noteFailure(reason, result) }  // history counts it
      }
      finish(entry, ending, reason: reason ?? entry.reason, now)
    case .handOn(let reason, let wait, let isCounted):
      if isCounted { entry.noteFailure(reason, result) }
      handOn(entry, reason: reason, after: wait, isCounted: isCounted, now)
    case .park(let wait, let reason, let isCounted):
      if isCounted { entry.noteFailure(reason, result) }
      park(entry, after: wait, reason: reason, isCounted: isCounted, now)
    case .retry(let wait, let reason, let isCounted):
      if isCounted { entry.noteFailure(reason, result) }
      retry(entry, after: wait, reason, isCounted: isCounted, now)
    }
  }

  /// A result of a ring that was handed on, or that has ended by another answer. It says something about the lane. If the ring was
  /// accepted, or the token is dead, that ends it; if another gateway has it by now, only an acceptance does (`push.settle`).
  private mutating func handleLate(_ result: PushResult, _ entry: HeldDelivery, in batch: Int?, _ now: Instant) {
    scheduler.didEndHandedOn(entry.delivery.lane)
    // Its next try asks the other environment.
    var said = result
    if case .tokenInvalid(Self.badDeviceToken, _) = said.outcome, !entry.asksOther {
      said.outcome = .rejected(reason: Self.badDeviceToken)
      suspects[entry.lane].note(entry.environment.other, isProven: false, of: entry.delivery.token, now)
    }
    apply(said, of: entry.delivery.token, in: batch, toLane: entry.lane, now)
    if result.sentAt == nil { entry.takeAttemptBack() }
    switch said.outcome {
    case .accepted where result.answeredAt <= entry.delivery.deadline: endLate(entry, .delivered, nil, result, now)
    case .accepted: endLate(entry, .deliveredLate, RetryPolicy.acceptedLate, result, now)
    case .tokenInvalid(let reason, _): endLate(entry, .dead, reason, result, now)
    default: break
    }
    switch entry.stage {
    case .returned, .settled: held.remove(entry)
    default: break
    }
  }

  private mutating func endLate(
    _ late: HeldDelivery, _ outcome: DeliveryOutcome, _ reason: String?, _ result: PushResult, _ now: Instant
  ) {
    // It may have been claimed here again meanwhile.
    let entry = held[late.key] ?? late
    switch entry.stage {
    case .waiting, .sent(.open), .sent(.void):
      entry.note(result)
      finish(entry, outcome, reason: reason, now)
      if entry.isInFlight { withdraw([entry]) }
    case .returning(let parking, _):
      entry.note(result)
      entry.stage = .returning(parking, then: ending(entry, outcome, reason, .first))
    case .returned:
      entry.note(result)
      settle(entry, ending(entry, outcome, reason, .first), now)
    case .settling, .settled, .sent(.lost): break
    }
  }

  /// What an answer means for its delivery; nil if APNs' other environment is asked first.
  ///
  /// APNs answers BadDeviceToken for a good token of the other environment, too. The token is dead only if both environments say so,
  /// each for itself. If the other one says nothing of the token, because it is ill or silent, the token stays, and a ring is handed on
  /// (docs/protocols.md).
  private mutating func resolveEnvironment(_ result: PushResult, _ entry: HeldDelivery, _ now: Instant) -> PushOutcome?
  {
    guard entry.asksOther else {
      guard case .tokenInvalid(Self.badDeviceToken, _) = result.outcome, lanes[entry.lane].provider == .apns
      else { return result.outcome }
      guard entry.delivery.deadline > now + settings.policy.roundTrip, case .sent(.open) = entry.stage, !isDraining
      else { return .rejected(reason: Self.badDeviceToken) }  // the other one is not asked any more
      entry.noteFailure(Self.badDeviceToken, result)
      entry.askOther(isNextCounted: true)
      scheduler.didResend(entry.delivery.lane)
      resend(entry, now)
      return nil
    }
    switch result.outcome {
    case .refused, .deferred, .tokenInvalid: return result.outcome
    case .accepted:
      let delivery = entry.delivery
      writer.add(
        .correct(
          EnvironmentCorrection(lane: delivery.lane, token: delivery.token, environment: entry.environment)), now)
      suspects[entry.lane].note(entry.environment, isProven: true, of: delivery.token, now)
      log(
        .warning, "A token is registered for the wrong APNs environment; the push went to the other one",
        Logger.Metadata(delivery, lanes[entry.lane].name))
      return result.outcome
    case .throttled, .unavailable, .unknown, .expired:
      // Another gateway may reach that environment, or this one later.
      if entry.isRing { return .deferred(reason: Self.badDeviceToken, after: settings.policy.cap) }
      fallthrough
    case .rejected, .unauthorized: return .rejected(reason: Self.badDeviceToken)
    }
  }

  private mutating func retry(
    _ entry: HeldDelivery, after wait: Nanoseconds, _ reason: String, isCounted: Bool, _ now: Instant
  ) {
    entry.reason = reason
    let wait = max(wait, scheduler.wait(of: entry.delivery.lane, now))
    if case .sent(.open) = entry.stage, wait <= settings.policy.longestInMemory, !isDraining {
      if isCounted { scheduler.didResend(entry.delivery.lane) }
      self.wait(entry, wait, isNextCounted: isCounted, now)
    } else if isCounted {
      park(entry, after: wait, reason: reason, now)
    } else if entry.failures.isEmpty {
      release(entry, now)
    } else {
      // Its failed tries are kept.
      park(entry, after: .zero, reason: reason, now)
    }
  }

  /// Applies what a result says about the token and about the lane.
  ///
  /// - Parameter batch: `PushRequest.batch`.
  mutating func apply(
    _ result: PushResult, of token: ArraySlice<UInt8>, in batch: Int? = nil, toLane index: Int, _ now: Instant
  ) {
    let (id, outcome) = (lanes[index].id, result.outcome)
    let answer: LaneCircuit.Answer
    switch outcome {
    case .tokenInvalid(let reason, let since):
      answer = .working
      writer.add(.invalidate(TokenInvalidation(lane: id, token: token, since: since, reason: reason)), now)
      if let note = breakers[index].didHear(isDead: true, now) {
        actions.append(.tell(lane: index, .invalidationHeld(note: note)))
        writeHold(index, note, now)
      }
    case .accepted, .rejected:
      answer = .working
      _ = breakers[index].didHear(isDead: false, now)
    case .throttled(_, let after, let isLaneWide):
      answer = .working
      let pause = min(after ?? settings.policy.base, settings.policy.longestPause)
      if isLaneWide {
        scheduler.throttle(id, until: now + pause)
        actions.append(.tell(lane: index, .throttled(until: now + pause)))
      }
    case .unknown, .unavailable:
      let isLost = outcome == .unknown(reason: PushOutcome.connectionLostReason)
      answer = (batch ?? (isLost ? result.connection : nil)).map { .failingTogether($0) } ?? .failing
    case .unauthorized: answer = .unauthorized
    case .refused, .deferred, .expired: return  // the request did not reach the provider
    }
    // Nor did this one, or a receipt tells of a push that did long ago.
    if answer == .working, result.sentAt == nil { return }
    var isAboutLane = result.concernsLane
    if answer == .working {
      suspects[index].didWork(token, now)
    } else if !token.isEmpty {
      suspects[index].didFail(token, sentAt: result.sentAt ?? now, now)
      isAboutLane = result.concernsLane && !suspects[index].failures(of: token, now).areItsOwn
    }
    refusedCredentials[index].didHear(outcome, concernsLane: isAboutLane, now)
    guard answer == .working || isAboutLane else { return }
    // A connection that was lost is noticed at once.
    var unansweredSince: Instant?
    if case .unknown(let reason) = outcome, reason != PushOutcome.connectionLostReason, !result.isAnswered {
      unansweredSince = result.sentAt
    }
    let wasWell = scheduler.isWell(id)
    switch scheduler.didHear(
      answer, about: token.isEmpty ? nil : token, unansweredSince: unansweredSince, from: id, now)
    {
    case nil: return
    case .closed: return actions.append(.tell(lane: index, .circuitClosed))
    case .opened(let until):
      // Silence shows nothing that would keep others of the account from trying.
      if !scheduler.isSilent(id) { actions.append(.tell(lane: index, .circuitOpened(until: until))) }
    }
    counters.lanes[index].circuitOpenings[answer == .unauthorized ? .unauthorized : .failures, default: 0] += 1
    // A try that fails opens it again, each second for as long as the trouble lasts.
    if wasWell { actions.append(.logOpening(lane: index, outcome)) }
  }

  /// The tag of a delivery's request.
  private func tag(of entry: HeldDelivery) -> UInt64 { RequestTag.make(owner: settings.number, slot: entry.slot) }

  /// Another dispatcher has learned something about the account that the lane shares with it.
  mutating func hear(_ news: LaneNews, ofLane index: Int, _ now: Instant) {
    let id = lanes[index].id
    switch news {
    case .circuitOpened(let until): scheduler.openCircuit(of: id, until: until, now)
    case .circuitClosed:
      scheduler.closeCircuit(of: id)
      refusedCredentials[index].didHear(.accepted(messageID: nil), concernsLane: true, now)
    case .throttled(let until): scheduler.throttle(id, until: until)
    case .invalidationHeld(let note): writeHold(index, note, now)
    }
  }

  /// The provider calls so many tokens dead that the lane's dead tokens are quarantined.
  private mutating func writeHold(_ index: Int, _ note: String, _ now: Instant) {
    let lane = lanes[index]
    writer.add(.hold(InvalidationHold(lane: lane.id, window: lane.invalidation.window, note: note)), now)
    log(
      .critical, "Tokens die en masse: they are quarantined until push.resume_invalidation(app, provider) is called",
      ["app": "\(lane.app)", "provider": "\(lane.name.channel)", "seen": "\(note)"])
  }

  // MARK: - Ends of calls

  mutating func lookUpIfDue(_ now: Instant) {
    guard endings.due <= now else { return }
    var rings: Set<Int64> = []
    for entry in held.all where entry.mayRing { rings.insert(entry.key.outboxID) }
    if let question = endings.question(rings, claimMax: ledger.answered, now) { actions.append(.lookUpEnded(question)) }
  }

  mutating func didLookUp(_ result: Result<EndedRings, OutboxError>, _ now: Instant) {
    guard let ended = answer(result, orLog: .debug, "Ended calls could not be looked up; it is tried again") else {
      return endings.didFail(now)
    }
    guard let asked = endings.didAnswer() else { return }
    self.ended.note(ended.calls.union(ended.decliners.keys))
    if !ended.isEmpty { void(ended, claimMax: asked.claimMax, now) }
    sendUnsure(asked.calls, now)
  }

  /// These calls no longer ring, or not for all users: those invites must not be sent. Invites that wait, here or at a provider, are
  /// void. Invites that were sent are not sent again. One of a later claim may be of another call with that id: it is looked up again.
  private mutating func void(_ ended: EndedRings, claimMax: Int32, _ now: Instant) {
    var sent: [HeldDelivery] = []
    for entry in held.all where entry.mayRing && ended.includes(entry.delivery) {
      let isAsked = entry.delivery.lease.lease <= claimMax
      if entry.isSent {
        if isAsked { entry.stage = .sent(.void) }
        sent.append(entry)
      } else if isAsked {
        finish(entry, .void, reason: nil, now)
      } else {
        needLookUp(entry)
      }
    }
    withdraw(sent)
  }

  /// The call of this invite no longer rings, as its new claim says.
  mutating func void(_ entry: HeldDelivery, _ now: Instant) {
    guard entry.isSent else { return finish(entry, .void, reason: nil, now) }
    entry.stage = .sent(.void)
    withdraw([entry])
  }

  /// Takes back from the providers the requests among these that have not been sent.
  mutating func withdraw(_ entries: [HeldDelivery], areOverdue: Bool = false) {
    guard !entries.isEmpty else { return }
    // Requests of this turn must reach the provider before they can be taken back.
    renewPermit()
    sendOutgoing()
    var tags: [Int: Set<UInt64>] = [:]
    for entry in entries { tags[entry.lane, default: []].insert(tag(of: entry)) }
    for (lane, tags) in tags.sorted(by: { $0.key < $1.key }) {
      actions.append(.withdraw(lane: lane, tags, areOverdue: areOverdue))
    }
  }

  /// These calls ring. Sends the invites that waited for the look-up. A hint that came meanwhile causes one more look-up and no
  /// further ones, because everybody who may connect can send any number of hints. A call that ends later has an invite that was
  /// sent.
  private mutating func sendUnsure(_ calls: Set<Int64>, _ now: Instant) {
    let slots = unsure
    unsure = []
    for slot in slots {
      guard let entry = held[slot], case .waiting(.lookUp(let former)) = entry.stage else { continue }
      let outboxID = entry.key.outboxID
      let answers = former + (calls.contains(outboxID) ? 1 : 0)
      if answers > former, answers > 1 || !endings.hints.contains(outboxID) {
        entry.needsLookUp = false
        send(entry, now)
      } else {
        entry.stage = .waiting(.lookUp(answers: answers))
        unsure.append(slot)
      }
    }
  }
}
