// Decides whether a connection is alive, from the times of requests and of received bytes. No I/O, no clock.
//
// A NAT or firewall that has forgotten a connection neither answers nor closes it: requests vanish. So only received bytes show
// that a connection is alive. If the peer is silent while a request is in flight, a PING is sent:
//
//   request after a pause ── PING with it ──┐
//   request ── silenceBeforePing ── PING ───┤
//                                           ├─ no byte: doubtful ─ no byte: dead
//
// With the default values a connection that was lost while it was idle is doubtful 1 s after the request and dead 2 s
// after it. PINGs go out only while requests are in flight, because FCM closes connections that PING without any; while
// a slow request is waited for, the time between them doubles.
//
// A connection may also answer only PINGs, when the servers behind the peer's front end are gone:
//
//   request ── answerTimeout without any answer ── unanswered ── answerTimeout ── unresponsive
//
// Any answer to any request, even a slow one, ends both states. The pool decides about an unresponsive connection, because it knows
// whether other connections are better.

/// The health of a connection.
public enum HTTP2ConnectionHealth: Sendable, Equatable {
  /// The peer answers.
  case sound
  /// A PING was not answered for `doubtAfterPing`. New requests should use other connections.
  case doubtful
  /// PINGs are answered, but no request was answered for `answerTimeout`. New requests should use other connections.
  case unanswered
  /// The same, twice in a row.
  case unresponsive
}

/// The times of the checks of a connection.
public struct HTTP2LivenessSettings: Sendable {
  /// After this time without received bytes, the next request is sent together with a PING.
  public var idleBeforePing = Nanoseconds.seconds(5)
  /// Time of silence, with a request in flight, after which a PING is sent.
  public var silenceBeforePing = Nanoseconds.seconds(1)
  /// A connection from which nothing is received for this time after a PING is doubtful.
  public var doubtAfterPing = Nanoseconds.milliseconds(500)
  /// A connection from which nothing is received for this time after a PING, and which was silent for at least
  /// `silenceBeforePing`, is dead.
  public var pingTimeout = Nanoseconds.seconds(1)
  /// How long requests may be in flight without any answer before the connection is doubtful, and then once more before it is
  /// unresponsive. It is longer than nearly every answer takes.
  public var answerTimeout = Nanoseconds.milliseconds(1_750)

  public init() {}
}

/// The liveness of one connection.
struct HTTP2Liveness {
  /// The action at a check.
  enum Step: Equatable {
    case nothing
    case ping
    /// Nothing was received: close the connection.
    case fail
  }

  private let settings: HTTP2LivenessSettings
  private var lastReceivedAt = Instant(nanoseconds: .min)
  /// Since when no byte was received while an answer or a PONG is outstanding; nil if none is.
  private var silentSince: Instant?
  /// When the PING was sent since which nothing was received.
  private var pingSentAt: Instant?
  /// Number of PINGs since the last answer.
  private var pings = 0
  /// When the outstanding PING was overdue.
  private var doubtfulSince: Instant?
  /// Since when requests are in flight without any answer. A strike restarts it.
  private var unansweredSince: Instant?
  /// Number of consecutive times without an answer for `answerTimeout`.
  private var strikes = 0

  init(settings: HTTP2LivenessSettings) {
    self.settings = settings
  }

  var health: HTTP2ConnectionHealth {
    if strikes > 1 { return .unresponsive }
    if doubtfulSince != nil { return .doubtful }
    return strikes > 0 ? .unanswered : .sound
  }

  /// When to call `check` next; `distantFuture` if nothing is outstanding.
  var due: Instant { min(silenceDue, answerDue) }

  /// A request is about to be sent. Returns whether to send a PING with it.
  mutating func didRequest(_ now: Instant) -> Bool {
    if silentSince == nil { silentSince = now }
    if unansweredSince == nil { unansweredSince = now }
    guard pingSentAt == nil, lastReceivedAt + settings.idleBeforePing <= now else { return false }
    notePing(now)
    return true
  }

  /// Bytes were received, whatever their content.
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

  /// No request is in flight any more. An outstanding PING is still checked.
  mutating func didBecomeIdle() {
    pings = 0
    unansweredSince = nil
    if pingSentAt == nil { silentSince = nil }
  }

  /// Checks what is due.
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

  /// Time of silence before the next PING. It doubles after each PING that was answered only by a PONG.
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

  /// Never at the same time as the doubt, even if that was noticed late, so that the pool can open another connection first.
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
