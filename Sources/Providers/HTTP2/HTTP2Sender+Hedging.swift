// Hedges: sends the second flight of an invite and combines the results of the two.

internal import PushModel
internal import Runtime

extension HTTP2Sender {
  /// Called when a flight is handed to a connection.
  func noteDispatch(_ slot: Int, _ flight: PushFlight, _ now: Instant) {
    let isFirst = flight.dispatchedAt == nil
    if isFirst { flight.dispatchedAt = now }
    unanswered.didSend(now)
    guard flight.hedges == nil else { return noteHedge(flight) }
    flight.request.leftAt = now
    if isFirst { hedging?.didSend() }
    guard flight.request.kind == .invite, !flight.isHedged, isFirst || flight.candidate != nil else { return }
    flight.candidate = hedging?.watch(slot, now)
    watchHedges()
  }

  /// Called when a hedge is handed to a connection.
  private func noteHedge(_ hedge: PushFlight) {
    guard !hedge.isHedged else { return }
    hedge.isHedged = true
    if let other = hedge.other { flights[other]?.isHedged = true }
    hedgedCount += 1
    unreportedHedges.append(hedge.request.tag)
    scheduleReport()
  }

  /// Sets the timer for the next candidate that is due.
  func watchHedges() {
    guard let due = hedging?.due, due < hedgeCheckAt, !isShuttingDown else { return }
    hedgeTimer?.cancel()
    hedgeCheckAt = due
    hedgeTimer = loop.schedule(at: due) { [weak self] in
      guard let self else { return }
      // After a stall of the loop, due timers run before the answers that have arrived meanwhile. A second timer lets the
      // answers run first.
      hedgeTimer = loop.schedule(at: loop.now + .microseconds(1)) { [weak self] in self?.hedgeDue() }
    }
  }

  private func hedgeDue() {
    hedgeCheckAt = .distantFuture
    let now = loop.now
    if permits?.allowNone(now) == true { hedging?.pause(for: .milliseconds(50), now) }
    while let candidate = hedging?.next(now, isWaiting: { mayHedge($0, now) }) { hedge(candidate.request, now) }
    watchHedges()
  }

  private func mayHedge(_ candidate: HedgingMachine.Candidate, _ now: Instant) -> Bool {
    guard let flight = flights[candidate.request], flight.candidate == candidate.number else { return false }
    return !flight.isSettled && flight.request.deadline > now
  }

  /// Sends the push of an unanswered request a second time.
  private func hedge(_ slot: Int, _ now: Instant) {
    guard let flight = flights[slot] else { return }
    flight.candidate = nil
    // While only some databases are away, their invites are not hedged: the others must not wait for them.
    guard flight.request.permit?.allows(now) ?? true else { return }
    let hedge = PushFlight(flight.request, current, hedges: flight.dispatchedAt)
    hedge.other = slot
    let hedgeSlot = flights.insert(hedge)
    flight.other = hedgeSlot
    let pool = current.pool(format.endpoint(of: flight.request))
    if flight.connections === current {
      pool.hedge(slot, by: hedgeSlot, deadline: flight.request.deadline, now: now)
    } else {
      pool.submit(hedgeSlot, deadline: flight.request.deadline, now: now)
    }
  }

  /// A flight has ended without an answer. If the push has another flight, that flight decides the outcome.
  func endUnanswered(
    _ slot: Int, _ flight: PushFlight, _ outcome: PushOutcome, _ exchange: borrowing HTTP2Exchange, _ connection: Int?
  ) {
    if flight.isSettled { return removeSettled(slot) }
    if let other = flight.other.flatMap({ flights[$0] }) {
      other.other = nil
      if case .unknown(let reason) = outcome { other.loss = reason }
      flights.remove(slot)
      return
    }
    switch (outcome, flight.loss) {
    case (.refused, let loss?), (.expired, let loss?): finish(slot, .unknown(reason: loss), exchange, connection)
    default: finish(slot, outcome, exchange, connection)
    }
  }

  func removeSettled(_ slot: Int) {
    flights.remove(slot)
    settledCount -= 1
  }

  /// Sends no hedges while the provider asks for a pause.
  func pauseHedges(_ outcome: PushOutcome, _ now: Instant) {
    switch outcome {
    case .throttled(_, let after, isLaneWide: true): hedging?.pause(for: after ?? .seconds(1), now)
    case .unavailable(_, let after?): hedging?.pause(for: after, now)
    default: break
    }
  }

  /// Called when a flight was answered.
  func noteAnswer(_ flight: PushFlight, _ now: Instant) {
    // The flights of this push do not wait any more.
    let own = flight.isSettled ? 0 : flight.other == nil ? 1 : 2
    unanswered.didAnswer(now, isWaiting: flights.count - settledCount > own)
  }

  /// Ends a shutdown as soon as every push has its outcome. It does not wait for flights whose result no longer matters.
  func cutOffIfOver() {
    guard isShuttingDown, settledCount > 0, settledCount == flights.count else { return }
    loop.atEndOfTurn { [self] in
      for connections in all { connections.cutOff() }
    }
  }
}
