// Which tokens of a lane are at fault themselves, when suspects may be sent, and which environment a token of APNs belongs to. Pure.
//
// From one bad answer nothing follows for others. Blame climbs one step at a time:
//
//   a push fails                                      its token is noted; the lane's circuit hears of it (`LaneCircuit`). A request that
//                                                     left before the last failure, or is the same one, shows nothing new
//   once more, and others have worked between         the token's failures say nothing about its lane any more
//   a third time                                      refused credentials are its own
//   a connection is lost with a push on it            counted for its token
//   twice                                             a suspect: sent in turns, those that have had fewer first, of these rings first
//   five times, others answered between each          the provider closes connections because of it
//   it works                                          its failures are forgotten; any answer forgets its losses
//
// What is the token's own ends a push that people see. A ring it keeps from this gateway for a while, because all this is known of one
// way to the provider alone. If other requests are not answered between the losses, or if more of them are lost than answered, the network
// or the provider is at fault, and every delivery is tried until its deadline. What is known belongs to the token, because a ring that
// failed goes back to the outbox, and because the next ring to the same phone may fail, too.

internal import PushModel
internal import Runtime

/// What a lane knows of its tokens.
struct TokenSuspects {
  /// Maximum number of tokens. Above it the one is forgotten that failed longest ago.
  static let countMax = 1_024
  /// For how long a loss or a failure is remembered.
  static let life = Nanoseconds.seconds(600)
  /// For how long it counts that others have worked.
  static let evidenceLife = Nanoseconds.seconds(60)
  /// No suspect is sent for this long after a loss of one.
  static let pause = Nanoseconds.milliseconds(800)
  /// The same while other requests are in flight and none was answered since the loss. They would be lost with the suspect.
  static let longestPause = Nanoseconds.seconds(2)
  /// A suspect that waits asks again after this long.
  static let interval = Nanoseconds.milliseconds(100)
  /// Maximum number of suspects in flight.
  private static let most = 1_024

  /// The connections that were lost while a push to one token was in flight on them.
  struct Losses {
    private(set) var count = 0
    /// Losses that speak against the token: the first one, and each one before which the lane's other requests were answered.
    private var countAgainst = 0
    /// The lane's requests that were answered and lost until the last loss.
    private var before = (answered: 0, lost: 0)
    /// The connection of the last loss.
    private var connection: Int?
    /// How many turns the token has had since it was last answered.
    fileprivate var turns = 0

    fileprivate mutating func note(_ connection: Int?, answered: Int, lost: Int) {
      if let connection, connection == self.connection { return }
      self.connection = connection
      let others = (answered: answered - before.answered, lost: lost - before.lost)
      if count == 0 || others.answered > 0 && others.answered >= others.lost { countAgainst += 1 }
      count += 1
      before = (answered, lost + 1)
    }

    /// Whether the provider closes the connection because of this push.
    var isAtFault: Bool { countAgainst >= 5 }
    /// Whether the provider may close the connection because of this push.
    var isSuspect: Bool { count >= 2 }
  }

  /// The failures of pushes to one token since it last worked.
  struct Failures {
    /// The first one, and each one before which others have worked.
    fileprivate var countAgainst = 0
    /// When the last one was noted, and how often the lane had worked by then.
    private var (notedAt, workedBefore) = (Instant(nanoseconds: .min), 0)
    fileprivate var isLastAgainst = false

    fileprivate mutating func note(sentAt: Instant, worked: Int, _ now: Instant) {
      guard sentAt > notedAt else { return }
      isLastAgainst = countAgainst == 0 || worked > workedBefore
      if isLastAgainst { countAgainst += 1 }
      (notedAt, workedBefore) = (now, worked)
    }

    /// Whether they say nothing about the lane any more.
    var areItsOwn: Bool { countAgainst >= 2 }
    /// Whether the last one, too, shows that it is the token and not the provider, and not for the first or second time.
    var isLastItsOwn: Bool { countAgainst >= 3 && isLastAgainst }
  }

  /// What is known of the environment of a token. A backend that gives the token with each call may name a wrong one each time.
  struct Environment {
    var environment: PushEnvironment
    /// Whether it has accepted a push. If not, the other one has said that the token is not its own.
    var isProven: Bool
  }

  private struct Entry {
    var losses = Losses()
    var failures = Failures()
    var environment: Environment?
    var at: Instant

    var isEmpty: Bool { losses.count == 0 && failures.countAgainst == 0 && environment == nil }
  }

  private var entries: [ArraySlice<UInt8>: Entry] = [:]
  /// Number of the lane's requests in flight, answered, and lost with their connections.
  private var (inFlight, answered, lost) = (0, 0, 0)
  /// How often a push was accepted, or refused for a reason of its own, and when last.
  private var worked = 0
  private var workedAt = Instant(nanoseconds: .min)

  // When suspects may be sent. At first at most one is in flight. Each answer allows one more at a time. After a loss the limit is one
  // again. Above half of the limit at that loss, only a full round of answers raises it by one, as in TCP's slow start and congestion
  // avoidance (RFC 5681). Only a few of many suspects may be at fault, and each of those loses all suspects that were sent with it.
  private var atATime = 1
  /// Below this limit each answer allows one more at a time.
  private var threshold = Self.most
  /// Number of answers since `atATime` last grew.
  private var answers = 0
  private var suspectsInFlight = 0
  /// When a suspect of a rank last asked in vain. Lower ranks come first.
  private var askedAt: [Int: Instant] = [:]
  private static let turnsMax = 16
  private var grantedAt = Instant(nanoseconds: .min)
  private var lostAt = Instant(nanoseconds: .min)
  private var hasAnswered = true

  // MARK: - Tokens

  func losses(of token: ArraySlice<UInt8>, _ now: Instant) -> Losses { entry(of: token, now).losses }

  /// Those that may be the token's own. If nothing has worked for a while, they may be the provider's again.
  func failures(of token: ArraySlice<UInt8>, _ now: Instant) -> Failures {
    workedAt + Self.evidenceLife > now ? entry(of: token, now).failures : Failures()
  }

  func environment(of token: ArraySlice<UInt8>) -> Environment? { entries.isEmpty ? nil : entries[token]?.environment }

  mutating func note(_ environment: PushEnvironment, isProven: Bool, of token: ArraySlice<UInt8>, _ now: Instant) {
    change(token, now) { $0.environment = Environment(environment: environment, isProven: isProven) }
  }

  /// A push to the token has failed in a way that may be the provider's fault.
  ///
  /// - Parameter sentAt: when its request left.
  mutating func didFail(_ token: ArraySlice<UInt8>, sentAt: Instant, _ now: Instant) {
    change(token, now) { [worked] in $0.failures.note(sentAt: sentAt, worked: worked, now) }
  }

  /// The provider works: it has accepted a push to the token, or refused it for a reason of its own.
  mutating func didWork(_ token: ArraySlice<UInt8>, _ now: Instant) {
    worked += 1
    workedAt = now
    forget(token) { $0.failures = Failures() }
  }

  private func entry(of token: ArraySlice<UInt8>, _ now: Instant) -> Entry {
    guard !entries.isEmpty, let entry = entries[token] else { return Entry(at: now) }
    return entry.at + Self.life > now ? entry : Entry(environment: entry.environment, at: now)
  }

  private mutating func change(_ token: ArraySlice<UInt8>, _ now: Instant, _ change: (inout Entry) -> Void) {
    var entry = entry(of: token, now)
    entry.at = now
    change(&entry)
    // A copy, because the token is a part of a larger buffer.
    entries[Array(token)[...]] = entry
    guard entries.count > Self.countMax else { return }
    if let oldest = entries.min(by: { $0.value.at < $1.value.at }) { entries[oldest.key] = nil }
  }

  private mutating func forget(_ token: ArraySlice<UInt8>, _ change: (inout Entry) -> Void) {
    guard !entries.isEmpty, var entry = entries[token] else { return }
    change(&entry)
    entries[token] = entry.isEmpty ? nil : entry
  }

  // MARK: - Requests

  mutating func didSend() { inFlight += 1 }

  /// A request has ended.
  ///
  /// - Parameters:
  ///   - isLost: whether its connection was lost.
  ///   - connection: the one that carried it, if known. One that was lost with several pushes to a token counts once for it.
  ///   - hadTurn: whether it was a suspect's.
  mutating func didEnd(
    _ token: ArraySlice<UInt8>, isLost: Bool, on connection: Int? = nil, isAnswered: Bool, hadTurn: Bool, _ now: Instant
  ) {
    inFlight -= 1
    // The first losses of a token do not hold back suspects. Otherwise a lane with many losses would never send them.
    if isLost, hadTurn {
      // Suspects that were sent together are lost together. Only the first loss changes the limit.
      if atATime > 1 { threshold = max(2, atATime / 2) }
      (atATime, answers, lostAt, hasAnswered) = (1, 0, now, false)
    }
    if hadTurn { returnTurn(isAnswered: isAnswered) }
    if isLost {
      change(token, now) { [answered, lost] in $0.losses.note(connection, answered: answered, lost: lost) }
      lost += 1
    } else if isAnswered {
      forget(token) { $0.losses = Losses() }
      answered += 1
      hasAnswered = true
    }
  }

  // MARK: - Turns

  /// Whether a push to this token, which is a suspect, may be sent now. If so, it counts as sent. Nobody has a second turn while others
  /// wait for their first. Of those that have had as many, invites come first.
  mutating func grant(_ token: ArraySlice<UInt8>, isInvite: Bool = true, _ now: Instant) -> Bool {
    let rank = min(losses(of: token, now).turns, Self.turnsMax) * 2 + (isInvite ? 0 : 1)
    let comesFirst = !askedAt.contains { $0.key < rank && $0.value + Self.interval * 2 > now }
    let isAwaited = !hasAnswered && inFlight > suspectsInFlight
    // One that gets no answer holds up the others for `pause`.
    let hasRoom = suspectsInFlight < atATime || grantedAt + Self.pause <= now
    guard comesFirst, hasRoom, lostAt + (isAwaited ? Self.longestPause : Self.pause) <= now else {
      askedAt[rank] = now
      return false
    }
    entries[token]?.losses.turns += 1
    suspectsInFlight += 1
    grantedAt = now
    return true
  }

  /// The turn of a suspect is over.
  mutating func returnTurn(isAnswered: Bool) {
    suspectsInFlight -= 1
    guard isAnswered else { return }
    answers += 1
    guard atATime < threshold || answers >= atATime else { return }
    (atATime, answers) = (min(atATime + 1, Self.most), 0)
  }
}
