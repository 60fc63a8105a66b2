// Decides what the sender of webhooks does next. No socket, no clock.
//
// One statement runs in the database at a time. The registration of the configuration comes first, then results, then a
// claim, so that no claim delays a result. Results that arrive while a statement runs are written together.
//
// The database keeps the order of the events of a call: it hands out only the first one (push.claim_webhooks). This
// machine limits how many requests each app has under way, and decides when a failed one is repeated. An event has one request
// at a time: if it is claimed again meanwhile, it is made due again when that request fails.

package import Runtime

/// An event that this gateway has claimed.
package struct ClaimedWebhook: Sendable, Equatable {
  /// push.webhook_event.id. After a fail-over it may repeat for another event.
  package var id: Int64
  package var app: String
  /// How often the event was claimed, this time included.
  package var attempt: Int32
  /// How often it was sent in vain.
  package var tries: Int32
  /// `webhook-id`.
  package var event: String
  package var body: [UInt8]

  package init(id: Int64, app: String, attempt: Int32, tries: Int32, event: String, body: [UInt8]) {
    self.id = id
    self.app = app
    self.attempt = attempt
    self.tries = tries
    self.event = event
    self.body = body
  }
}

/// What became of one request.
package enum WebhookAnswer: Sendable, Equatable {
  /// The receiver answered.
  ///
  /// - Parameter retryAfter: the time that it asked to wait, if it did.
  case status(UInt16, retryAfter: Nanoseconds?)
  /// There was no answer; the reason is a word of `CurlFailure.Reason`.
  case none(reason: String)
  /// The request was withdrawn, because the endpoint has changed. The event is sent again after its lease.
  case withdrawn

  var verdict: WebhookResult.Verdict {
    switch self {
    case .status(200...299, _): .acknowledged
    case .status(410, _): .gone
    case .status, .none, .withdrawn: .retry
    }
  }
}

/// What is written about one request.
package struct WebhookResult: Sendable, Equatable {
  /// The values of `p_result` of push.settle_webhooks.
  package enum Verdict: Int16, Sendable {
    case acknowledged = 0
    case retry = 1
    /// The receiver answered 410: nothing more is sent to it.
    case gone = 2
  }

  package var id: Int64
  /// `webhook-id`.
  package var event: String
  package var app: String
  /// Of the URL to which the request was sent. It may have changed since.
  package var urlDigest: String
  package var attempt: Int32
  package var verdict: Verdict
  package var status: Int32?
  package var reason: String?
  /// When the event is due again.
  package var delay: Nanoseconds
  /// How long nothing is to be sent to the receiver, if it asked for that.
  package var pause: Nanoseconds?
}

/// The decisions for one database.
package struct WebhookMachine: Sendable {
  /// One app's part of a claim.
  package struct Claim: Sendable, Equatable {
    package var app: String
    package var urlDigest: String
    package var room: Int
    package var lease: Nanoseconds
  }

  package enum Event: Sendable {
    /// These apps have a webhook from now on, with this URL and timeout of requests; no other app has one.
    case configure([(app: String, urlDigest: String, timeout: Nanoseconds)])
    /// A timer has fired.
    case wake
    /// The statement of the last action has ended: a registration or results.
    case written
    /// The registration has ended, except for apps that another transaction has locked.
    case registeredInPart
    case claimed([ClaimedWebhook])
    /// The database did not answer, or refused the statement.
    case databaseFailed
    case answered(ClaimedWebhook, WebhookAnswer)
    /// Claim nothing more.
    case stop
    /// Stop waiting for requests under way.
    case abandon
  }

  package enum Action: Sendable, Equatable {
    case register
    case settle([WebhookResult])
    case claim([Claim])
    case send(ClaimedWebhook)
    case wake(at: Instant)
    /// To be logged: the first failure after a success.
    case tellFailing(app: String, answer: WebhookAnswer)
    /// To be logged: the receiver answered 410.
    case tellGone(app: String)
    /// To be logged: the first success after failures.
    case tellRecovered(app: String)
    /// Everything is written.
    case close
  }

  /// Maximum number of requests under way for each app.
  package static let inFlightMax = 16
  /// How often the database is asked while nothing is due.
  static let interval = Nanoseconds.milliseconds(500)
  /// How much longer than a request the lease is: the time for writing the result.
  static let leaseSlack = Nanoseconds.seconds(15)
  /// When apps that were locked are registered again. Meanwhile the others are served.
  static let registrationInterval = Nanoseconds.seconds(1)
  /// The longest wait after errors of the database.
  static let databasePauseMax = Nanoseconds.seconds(15)
  /// Seconds until an event is sent again after its first failure, its second, …; the last value is also that of all
  /// later failures. The database drops an event 24 hours after it was recorded.
  static let delays: [Int64] = [5, 30, 120, 600, 1800, 3600]
  /// The longest wait that a receiver may ask for.
  static let retryAfterMax = Nanoseconds.seconds(3600)

  /// Which event a request is about.
  private struct EventKey: Hashable {
    let id: Int64
    let event: String

    init(_ claimed: ClaimedWebhook) {
      id = claimed.id
      event = claimed.event
    }
  }

  /// A request under way.
  private struct Sending {
    /// Of the URL to which the event is being sent.
    let urlDigest: String
    /// `ClaimedWebhook.attempt` of the last claim of the event.
    let attempt: Int32
    /// The event was claimed again meanwhile, because push.resume_webhooks made it due. It is due as soon as this request fails.
    var isDue = false
  }

  private var endpoints: [(app: String, urlDigest: String, timeout: Nanoseconds)] = []
  private var inFlight: [EventKey: Sending] = [:]
  private var counts: [String: Int] = [:]
  private var results: [WebhookResult] = []
  private var running: Action?
  private var mustRegister = false
  /// Set while apps are locked that are to be registered.
  private var nextRegistration: Instant?
  private var isStopping = false
  private var isClosed = false
  private var failing: Set<String> = []
  /// By app: the digest of the URL whose 410 was logged. While another replica has registered another URL, this one is
  /// still given events, and each of them may be answered 410.
  private var gone: [String: String] = [:]
  private var nextClaim = Instant(nanoseconds: .min)
  private var databaseFailures = 0
  private var databasePause = Instant(nanoseconds: .min)
  private var random: SplitMix64

  /// - Parameter seed: of the jitter.
  package init(seed: UInt64) {
    random = SplitMix64(seed: seed)
  }

  /// Number of requests under way.
  package var inFlightCount: Int { inFlight.count }

  package mutating func handle(_ event: Event, now: Instant) -> [Action] {
    var actions: [Action] = []
    switch event {
    case .configure(let endpoints):
      self.endpoints = endpoints
      failing.formIntersection(endpoints.map(\.app))
      gone = gone.filter { failing.contains($0.key) }
      mustRegister = true
    case .wake: break
    case .written:
      // After a result, the next event of its call is due.
      if case .settle = running { nextClaim = now }
      succeed()
    case .registeredInPart:
      nextRegistration = now + Self.registrationInterval
      succeed()
    case .claimed(let events):
      nextClaim = now + Self.interval
      succeed()
      for event in events {
        let key = EventKey(event)
        if let sending = inFlight[key] {
          inFlight[key] = Sending(urlDigest: sending.urlDigest, attempt: event.attempt, isDue: true)
        } else {
          inFlight[key] = Sending(
            urlDigest: endpoints.first { $0.app == event.app }?.urlDigest ?? "", attempt: event.attempt)
          counts[event.app, default: 0] += 1
          actions.append(.send(event))
        }
      }
    case .databaseFailed:
      if case .settle(let lost) = running { results = lost + results }
      if case .register = running { mustRegister = true }
      running = nil
      databaseFailures += 1
      databasePause = now + min(Self.databasePauseMax, .seconds(1 << Int64(min(databaseFailures - 1, 5))))
    case .answered(let claimed, let answer):
      guard let sending = inFlight.removeValue(forKey: EventKey(claimed)) else { break }
      counts[claimed.app, default: 1] -= 1
      actions += judge(claimed, sending, answer)
    case .stop: isStopping = true
    case .abandon:
      isStopping = true
      inFlight = [:]
    }
    return actions + next(now)
  }

  private mutating func succeed() {
    running = nil
    databaseFailures = 0
    databasePause = Instant(nanoseconds: .min)
  }

  /// The next statement, or when to look again.
  private mutating func next(_ now: Instant) -> [Action] {
    guard running == nil, !isClosed else { return [] }
    guard now >= databasePause else {
      if isStopping, inFlight.isEmpty { return close() }
      return [.wake(at: databasePause)]
    }
    if let time = nextRegistration, now >= time { mustRegister = true }
    if mustRegister, !isStopping {
      mustRegister = false
      nextRegistration = nil
      return start(.register)
    }
    if !results.isEmpty {
      defer { results = [] }
      return start(.settle(results))
    }
    if isStopping { return inFlight.isEmpty ? close() : [] }
    guard !endpoints.isEmpty else { return nextRegistration.map { [.wake(at: $0)] } ?? [] }
    guard now >= nextClaim else { return [.wake(at: min(nextClaim, nextRegistration ?? nextClaim))] }
    let claims = endpoints.compactMap { app, urlDigest, timeout -> Claim? in
      let room = Self.inFlightMax - counts[app, default: 0]
      guard room > 0 else { return nil }
      return Claim(app: app, urlDigest: urlDigest, room: room, lease: timeout + Self.leaseSlack)
    }
    // If no app has room, the next result leads here again.
    if claims.isEmpty { return nextRegistration.map { [.wake(at: $0)] } ?? [] }
    return start(.claim(claims))
  }

  private mutating func start(_ action: Action) -> [Action] {
    running = action
    return [action]
  }

  private mutating func close() -> [Action] {
    isClosed = true
    return [.close]
  }

  // MARK: - Answers

  private mutating func judge(_ claimed: ClaimedWebhook, _ sending: Sending, _ answer: WebhookAnswer) -> [Action] {
    var result = WebhookResult(
      id: claimed.id, event: claimed.event, app: claimed.app, urlDigest: sending.urlDigest, attempt: sending.attempt,
      verdict: answer.verdict, delay: sending.isDue ? .zero : delay(after: claimed.tries))
    switch answer {
    case .withdrawn: return []
    case .none(let reason): result.reason = reason
    case .status(let status, let retryAfter):
      result.status = Int32(status)
      if result.verdict == .retry, let retryAfter {
        let wait = min(retryAfter, Self.retryAfterMax)
        result.delay = max(result.delay, wait)
        if status == 429 || status == 503 { result.pause = wait }
      }
    }
    results.append(result)
    switch result.verdict {
    case .acknowledged:
      gone[claimed.app] = nil
      return failing.remove(claimed.app) == nil ? [] : [.tellRecovered(app: claimed.app)]
    case .gone:
      failing.insert(claimed.app)
      let isTold = gone.updateValue(sending.urlDigest, forKey: claimed.app) == sending.urlDigest
      return isTold ? [] : [.tellGone(app: claimed.app)]
    case .retry:
      return failing.insert(claimed.app).inserted ? [.tellFailing(app: claimed.app, answer: answer)] : []
    }
  }

  /// The time until an event is sent again, spread by a fifth, so that events that failed together do not come together.
  private mutating func delay(after tries: Int32) -> Nanoseconds {
    let seconds = Self.delays[min(max(0, Int(tries)), Self.delays.count - 1)]
    return .milliseconds(Int64(Double(seconds * 1000) * (0.8 + 0.4 * random.nextFraction())))
  }
}
