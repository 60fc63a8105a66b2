// Which calls of the invites held are to be looked up, since somebody says that they have ended. Pure.
//
// A notification is a hint, which anybody may send and which may get lost: nothing is dropped before the database has said so.
// One look-up is under way at a time; what is hinted at meanwhile goes into the next. While no hints are heard, all invites are
// looked up every so often.

internal import Runtime

/// Collects hints, and says when to look up what.
struct CallEndings {
  /// More calls are not looked up at a time; the rest follows.
  private static let askedMax = 5_000
  /// Between two look-ups: what is hinted at meanwhile goes together.
  private static let pause = Nanoseconds.milliseconds(5)
  /// More hints are taken for all.
  private static let hintsMax = 50_000

  /// Between two look-ups of all while no hints are heard.
  private let interval: Nanoseconds
  /// After one that failed.
  private let retryInterval: Nanoseconds
  private var hinted: Set<Int64> = []
  private var isAllHinted = false
  private var asked: Set<Int64> = []
  private(set) var isAsking = false
  private var notBefore = Instant(nanoseconds: .min)
  private var nextPoll = Instant(nanoseconds: .min)
  /// Whether hints are heard.
  private(set) var isListening = false

  init(interval: Nanoseconds, retryInterval: Nanoseconds) {
    self.interval = interval
    self.retryInterval = retryInterval
  }

  /// These calls may have ended.
  mutating func note(_ outboxIDs: [Int64]) {
    guard !isAllHinted else { return }
    hinted.formUnion(outboxIDs)
    if hinted.count > Self.hintsMax { noteAll() }
  }

  /// Any call may have ended.
  mutating func noteAll() {
    isAllHinted = true
    hinted.removeAll(keepingCapacity: true)
  }

  /// From now on hints are heard, or not: some may have been missed.
  mutating func setListening(_ isListening: Bool) {
    self.isListening = isListening
    noteAll()
  }

  /// Whether the next look-up is about this call.
  func isHinted(_ outboxID: Int64) -> Bool { isAllHinted || hinted.contains(outboxID) }

  /// Whether an invite of this call is to be sent again only after a look-up.
  func mayHaveEnded(_ outboxID: Int64) -> Bool { !isListening || isHinted(outboxID) || asked.contains(outboxID) }

  /// When a look-up is due; distant future for not before something happens.
  var due: Instant {
    guard !isAsking else { return .distantFuture }
    if isAllHinted || !hinted.isEmpty { return notBefore }
    return isListening ? .distantFuture : max(notBefore, nextPoll)
  }

  /// The calls to look up now.
  ///
  /// - Parameter rings: the calls of all invites that may still leave.
  mutating func question(_ rings: Set<Int64>, _ now: Instant) -> [Int64]? {
    guard due <= now else { return nil }
    let isAll = isAllHinted || hinted.isEmpty
    var wanted = isAll ? rings : hinted.intersection(rings)
    hinted.removeAll(keepingCapacity: true)
    isAllHinted = false
    nextPoll = now + interval
    guard !wanted.isEmpty else { return nil }
    while wanted.count > Self.askedMax, let one = wanted.popFirst() { hinted.insert(one) }
    asked = wanted
    isAsking = true
    notBefore = now + Self.pause
    return Array(wanted)
  }

  /// The look-up was answered; returns what it was about.
  mutating func didAnswer() -> Set<Int64> {
    defer { asked = [] }
    isAsking = false
    return asked
  }

  /// The look-up failed; it is done again.
  mutating func didFail(_ now: Instant) {
    isAsking = false
    notBefore = now + retryInterval
    note(Array(asked))
    asked = []
  }
}
