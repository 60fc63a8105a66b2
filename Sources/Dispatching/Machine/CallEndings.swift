// Which calls of the held invites to look up, because a hint says that they may have ended. Pure.
//
// At most one look-up is under way. Hints that come meanwhile go into the next one. All invites are looked up at intervals, too: often
// while no hints are heard, and seldom otherwise, for those that wait long at their provider.

internal import Runtime

/// Collects hints, and decides when to look up which calls.
struct CallEndings {
  /// The answer is about deliveries of claims up to `claimMax`. After a fail-over, a later claim may bring another call with the id
  /// of one of these: its invites are looked up again.
  typealias Question = (calls: Set<Int64>, claimMax: Int32)

  /// Maximum number of calls in one look-up. The others follow in the next.
  private static let askedMax = 5_000
  /// The minimum time between two look-ups, so that hints are collected.
  private static let pause = Nanoseconds.milliseconds(5)

  private let settings: DispatcherSettings
  /// The hints since the last look-up.
  var hints = EndedCalls()
  private var asked: Question?
  private var notBefore = Instant(nanoseconds: .min)
  private var nextPoll = Instant(nanoseconds: .min)
  /// Whether hints are heard.
  private(set) var isListening = false

  init(settings: DispatcherSettings) {
    self.settings = settings
  }

  /// Whether hints are heard from now on. Some may have been missed.
  mutating func setListening(_ isListening: Bool) {
    self.isListening = isListening
    hints.noteAny()
    nextPoll = Instant(nanoseconds: .min)
  }

  /// When a look-up is due; distant future while one is under way.
  var due: Instant {
    guard asked == nil else { return .distantFuture }
    return hints.isEmpty ? max(notBefore, nextPoll) : notBefore
  }

  /// The calls to look up now.
  ///
  /// - Parameters:
  ///   - rings: the calls of all invites that may still be sent.
  ///   - claimMax: every claim up to this one has been answered.
  mutating func question(_ rings: Set<Int64>, claimMax: Int32, _ now: Instant) -> [Int64]? {
    guard due <= now else { return nil }
    // Hints about other calls do not put this off: many may come while some are missing.
    let isPoll = nextPoll <= now
    var wanted = isPoll ? rings : rings.filter(hints.contains)
    hints.clear()
    if isPoll { nextPoll = now + settings.lookUpInterval * (isListening ? 4 : 1) }
    guard !wanted.isEmpty else { return nil }
    while wanted.count > Self.askedMax, let one = wanted.popFirst() { hints.note([one]) }
    asked = (wanted, claimMax)
    notBefore = now + Self.pause
    return Array(wanted)
  }

  /// The look-up was answered. Returns what it was about.
  mutating func didAnswer() -> Question? {
    defer { asked = nil }
    return asked
  }

  /// The look-up failed and is repeated.
  mutating func didFail(_ now: Instant) {
    notBefore = now + settings.retryInterval
    if let asked { hints.note(asked.calls) }
    asked = nil
  }
}
