// Whether a connection is alive, decided from the times of requests and of received bytes. No I/O, no clock.
//
// A NAT or firewall that has forgotten a connection says nothing and closes nothing: requests vanish. So only received
// bytes count as life, and silence while a request is in flight is asked about by PING:
//
//   request after a pause ── PING with it ──┐
//   request ── silenceBeforePing ── PING ───┤
//                                           ├─ no byte: doubtful ─ no byte: dead
//
// With the default values a connection that was lost while it was idle is doubtful 1 s after the request and dead 2 s
// after it. PINGs go out only while requests are in flight, because FCM closes connections that PING without any; while
// a slow request is waited for, the time between them doubles.
//
// A connection may also answer PINGs and nothing else, when what is behind the peer's front is gone:
//
//   request ── answerTimeout without any answer ── doubtful ── answerTimeout ── unresponsive
//
// A slow answer is an answer: any of them, to whichever request, ends both. What to do about an unresponsive connection
// is the pool's decision, which knows whether others are better.

/// What is known of a connection's health.
public enum HTTP2ConnectionHealth: Sendable, Equatable {
  /// Bytes arrive when they are asked for.
  case sound
  /// A PING went unanswered for `doubtAfterPing`, or requests for `answerTimeout`: new ones had better go elsewhere.
  case doubtful
  /// PINGs are answered, but no request was for `answerTimeout`, twice in a row.
  case unresponsive
}

/// The times by which a connection is judged.
public struct HTTP2LivenessSettings: Sendable {
  /// A connection from which nothing was received for this time is asked by PING together with its next request.
  public var idleBeforePing = Nanoseconds.seconds(5)
  /// Silence with a request in flight after which a PING is sent.
  public var silenceBeforePing = Nanoseconds.seconds(1)
  /// A connection that answers a PING with nothing for this time is doubtful.
  public var doubtAfterPing = Nanoseconds.milliseconds(500)
  /// A connection that answers a PING with nothing for this time, and has been silent for `silenceBeforePing` besides, is
  /// dead.
  public var pingTimeout = Nanoseconds.seconds(1)
  /// How long requests may be in flight without an answer to any of them before the connection is doubtful, and then once
  /// more before it is unresponsive. Longer than nearly every answer takes.
  public var answerTimeout = Nanoseconds.milliseconds(1_750)

  public init() {}
}

/// The liveness of one connection.
struct HTTP2Liveness {
  /// What is to be done when a time has come.
  enum Step: Equatable {
    case nothing
    case ping
    /// Nothing came back: the connection is of no use any more.
    case fail
  }

  private let settings: HTTP2LivenessSettings
  private var lastReceivedAt = Instant(nanoseconds: .min)
  /// Since when an answer or a PONG has been waited for without a single byte; nil while none is.
  private var silentSince: Instant?
  /// When the PING was sent after which nothing was received.
  private var pingSentAt: Instant?
  /// PINGs since the last answer.
  private var pings = 0
  /// When the PING that is out had been unanswered for too long.
  private var doubtfulSince: Instant?
  /// Since when requests have been in flight of which none was answered; a strike begins it anew.
  private var unansweredSince: Instant?
  /// How often in a row that was longer than `answerTimeout`.
  private var strikes = 0

  init(settings: HTTP2LivenessSettings) {
    self.settings = settings
  }

  var health: HTTP2ConnectionHealth {
    if strikes > 1 { return .unresponsive }
    return strikes > 0 || doubtfulSince != nil ? .doubtful : .sound
  }

  /// When `check` has something to look at; `distantFuture` while nothing is waited for.
  var due: Instant { min(silenceDue, answerDue) }

  /// A request is about to leave. Returns whether a PING is to leave with it.
  mutating func didRequest(_ now: Instant) -> Bool {
    if silentSince == nil { silentSince = now }
    if unansweredSince == nil { unansweredSince = now }
    guard pingSentAt == nil, lastReceivedAt + settings.idleBeforePing <= now else { return false }
    notePing(now)
    return true
  }

  /// Bytes were received, whatever they say.
  mutating func didReceive(_ now: Instant, inFlight: Int) {
    lastReceivedAt = now
    pingSentAt = nil
    doubtfulSince = nil
    silentSince = inFlight > 0 ? now : nil
  }

  /// A request was answered.
  mutating func didAnswer(_ now: Instant, inFlight: Int) {
    pings = 0
    strikes = 0
    unansweredSince = inFlight > 0 ? now : nil
  }

  /// No request is in flight any more. A PING that is out is still waited for.
  mutating func didBecomeIdle() {
    pings = 0
    unansweredSince = nil
    if pingSentAt == nil { silentSince = nil }
  }

  /// Looks at what is due.
  mutating func check(_ now: Instant) -> Step {
    if answerDue <= now {
      strikes += 1
      unansweredSince = now
    }
    guard let silentSince else { return .nothing }
    guard pingSentAt != nil else {
      guard silentSince + silence <= now else { return .nothing }
      notePing(now)
      return .ping
    }
    if doubtfulSince == nil, doubtDue <= now { doubtfulSince = now }
    return doubtfulSince != nil && failureDue <= now ? .fail : .nothing
  }

  // MARK: - Times

  /// Silence before the next PING, twice as long after each that was answered by nothing but a PONG.
  private var silence: Nanoseconds { settings.silenceBeforePing * (1 << Int64(min(max(pings - 1, 0), 3))) }

  private var silenceDue: Instant {
    guard let silentSince else { return .distantFuture }
    guard pingSentAt != nil else { return silentSince + silence }
    return doubtfulSince == nil ? doubtDue : failureDue
  }

  private var answerDue: Instant {
    guard let unansweredSince else { return .distantFuture }
    return unansweredSince + settings.answerTimeout
  }

  private var doubtDue: Instant {
    guard let silentSince, let pingSentAt else { return .distantFuture }
    return max(silentSince + settings.silenceBeforePing, pingSentAt + settings.doubtAfterPing)
  }

  /// Never at once with the doubt, however late that was noticed: the pool opens another connection meanwhile.
  private var failureDue: Instant {
    guard let silentSince, let pingSentAt, let doubtfulSince else { return .distantFuture }
    let silenceEnd = silentSince + settings.silenceBeforePing + settings.pingTimeout
    return max(silenceEnd, pingSentAt + settings.pingTimeout, doubtfulSince + settings.doubtAfterPing)
  }

  private mutating func notePing(_ now: Instant) {
    pingSentAt = now
    pings += 1
  }
}
