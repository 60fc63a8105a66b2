// New credentials: credentials that were never accepted do not displace ones that were.
//
// | credentials in use | new ones | |
// |---|---|---|
// | any | accepted | the new ones take over |
// | accepted before | without a token, refused, or no answer | the ones in use stay, and the new ones are tried again |
// | never accepted, even now | tried without success | the new ones take over: they are not worse |
//
// Credentials are tried with a push to a made-up token on a connection of their own, so no call depends on the trial. A provider
// looks at the credentials first: an answer about the token means that they were accepted. Web push has no such trial, because
// each of its subscriptions is bound to one key. There, new credentials are used as soon as they have a token.

internal import Logging
internal import PushModel
internal import Runtime

extension HTTP2Sender {
  /// How long a trial may take.
  private static let trialTimeMax = Nanoseconds.seconds(5)
  /// The waits between trials of refused credentials.
  private static let trialBackoff: ReconnectBackoff = {
    var backoff = ReconnectBackoff(max: .seconds(60))
    backoff.base = .seconds(1)
    return backoff
  }()

  /// Uses tokens of this source as soon as the provider has accepted one. Ends the trials of earlier ones.
  func rotate(to tokens: any ProviderTokenSource) {
    guard !isShuttingDown else { return }
    let token = makeToken(tokens)
    guard format.madeUpToken != nil else { return rotate(to: token) }
    if let next { retire(next, by: loop.now) }
    trialTimer?.cancel()
    nextRefusal = nil
    let connections = makeConnections(token, isWanted: current.isWanted)
    next = connections
    // Nobody waits for this token: the current one is in use.
    token.isAwaited = false
    token.didFail = { [weak self, weak connections] error in
      guard let self, let connections, connections === next else { return }
      keepCurrent(because: "\(error)")
    }
    connections.didStart = { [weak self, weak connections] in
      guard let self, let connections, connections === next else { return }
      tryOut(connections)
    }
    connections.start()
    if current.verdict == nil, current.token.current != nil { tryOut(current) }
  }

  /// Changes only the token. The connections stay.
  private func rotate(to token: RenewingToken) {
    nextToken?.stop()
    nextToken = token
    token.didArrive = { [weak self, weak token] in
      guard let self, let token else { return }
      nextToken = nil
      current.use(token)
      report?(.renewed)
    }
    token.start()
  }

  // MARK: - Trials

  private func tryOut(_ connections: CredentialConnections) {
    guard !isShuttingDown, !connections.isBeingTried, let token = format.madeUpToken else { return }
    connections.isBeingTried = true
    let now = loop.now
    let request = PushRequest(
      tag: .max, deliveryID: DeliveryID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)),
      kind: .missedCall, environment: .production, token: Array(token.utf8), body: Array("{}".utf8), collapseID: nil,
      deadline: now + Self.trialTimeMax, expiresAtMilliseconds: 0)
    let flight = PushFlight(request, connections, isTrial: true)
    settledCount += 1
    submit(flights.insert(flight), flight, now)
  }

  /// A trial has ended. Returns what its answer says about its connection.
  func endTrial(
    _ slot: Int, _ flight: PushFlight, _ exchange: borrowing HTTP2Exchange
  ) -> HTTP2ConnectionPool.ExchangeEffect.Connection {
    removeSettled(slot)
    var effect = HTTP2ConnectionPool.ExchangeEffect.Connection.unproven
    if case .response(let response) = exchange.result {
      let (disposition, connectionEffect) = format.read(response, clock: clock)
      effect = connectionEffect
      flight.connections.note(disposition.verdict(refusal: format.tokenRefusedReason))
    }
    // At the end of the turn, because this may close the pool that reports the answer.
    loop.atEndOfTurn { [weak self] in
      flight.connections.isBeingTried = false
      flight.connections.trials += 1
      self?.decide()
    }
    cutOffIfOver()
    return effect
  }

  private func decide() {
    guard !isShuttingDown, let next, !next.isBeingTried, next.trials > 0 else { return }
    if next.verdict == .accepted { return takeOver(next) }
    if current.isBeingTried { return }
    guard current.verdict == .accepted else { return takeOver(next) }
    let wait: Nanoseconds
    if case .refused(let reason)? = next.verdict {
      keepCurrent(because: reason)
      wait = Self.trialBackoff.delay(afterFailures: next.trials, random: .random(in: .min ... .max))
    } else {
      wait = Self.trialBackoff.base
    }
    trialTimer?.cancel()
    trialTimer = loop.schedule(at: loop.now + wait) { [weak self, weak next] in
      guard let self, let next, next === self.next else { return }
      tryOut(next)
    }
  }

  private func keepCurrent(because reason: String) {
    guard nextRefusal != reason, current.verdict == .accepted else { return }
    nextRefusal = reason
    logger.error("new credentials are refused; the former ones are still used", metadata: ["reason": "\(reason)"])
  }

  private func takeOver(_ connections: CredentialConnections) {
    logger.info("new credentials are in use", metadata: ["is_accepted": "\(connections.verdict == .accepted)"])
    let old = current
    current = connections
    (next, nextRefusal) = (nil, nil)
    connections.token.isAwaited = true
    connections.token.didFail = nil
    trialTimer?.cancel()
    // All requests in flight have ended or timed out by then.
    retire(old, by: loop.now + settings.connection.requestTimeout + .seconds(1))
    reportCapacity()
    report?(.renewed)
  }

  private func retire(_ connections: CredentialConnections, by deadline: Instant) {
    draining.append(connections)
    connections.shutDown(by: deadline) { [weak self, weak connections] in
      guard let self else { return }
      for pool in connections?.pools ?? [] { formerReplacements.merge(pool.replacements, uniquingKeysWith: +) }
      draining.removeAll { $0 === connections }
    }
  }
}

/// What a provider says about credentials.
enum CredentialVerdict: Equatable {
  case accepted
  case refused(reason: String)
}

extension AnswerDisposition {
  /// What the answer says about the credentials of its request; nil if nothing, as while the provider is ill.
  ///
  /// - Parameter refusal: the reason of an answer that refuses the token as too old.
  func verdict(refusal: String) -> CredentialVerdict? {
    switch self {
    case .settle(.unauthorized(let reason), .lane): .refused(reason: reason)
    case .renewToken: .refused(reason: refusal)
    case .settle(.accepted, _), .settle(.tokenInvalid, _), .settle(.rejected, _), .settle(.unauthorized, _): .accepted
    case .settle, .keepOlderToken, .resend: nil
    }
  }
}
