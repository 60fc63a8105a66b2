// Which requests are hedged, and when: an invite that has waited for longer than nearly all answers take leaves once more over
// another connection. No clock, no I/O.
//
//   answers known      an invite is hedged after
//   fewer than 10      delayAtFirst
//   fewer than 1,000   three times the time within which 90 % of the answers came
//   more               the time within which 99.9 % of them came        (and never before delayMin)
//
// Only answers count that came first. What a request would have taken that was overtaken by its hedge is not known, and to count
// it as slow would let a stalled connection move the limit out of its own reach.
//
// Requests wait in the order in which they left, so a push costs an entry at the end of a line and nothing else; entries of
// requests that were answered meanwhile are passed over.

internal import Runtime

/// The pure part of hedging in one lane.
struct HedgingMachine {
  /// An invite that has left.
  struct Candidate: Equatable {
    /// The owner's number for it.
    var request: Int
    /// Tells it from others that had the same number.
    var number: Int
    var sentAt: Instant
  }

  /// A hedge in the units of `credit`.
  private static let price = 100
  /// How long to wait when the lane has no hedge left.
  private static let retryTime = Nanoseconds.milliseconds(50)

  private let settings: HedgingSettings
  private var latency = RecentLatency()
  private var line: [Candidate] = []
  private var lineStart = 0
  private var nextNumber = 0
  /// `percentMax` for each push, `price` less for each hedge.
  private var credit = 0
  /// Hedges that are left without having been earned, and since when the next one comes.
  private var lone: Int
  private var loneSince = Instant(nanoseconds: .min)
  private var pausedUntil = Instant(nanoseconds: .min)
  /// When `next` has something to look at; `distantFuture` while no invite waits.
  private(set) var due = Instant.distantFuture

  init(settings: HedgingSettings) {
    self.settings = settings
    lone = settings.loneMax
  }

  /// How long an invite waits for its answer before it is hedged.
  var delay: Nanoseconds {
    let slow =
      switch latency.count {
      case ..<10: settings.delayAtFirst
      case ..<1_000: (latency.allBut(oneIn: 10) ?? settings.delayAtFirst) * 3
      default: latency.allBut(oneIn: 1_000) ?? settings.delayAtFirst
      }
    return max(settings.delayMin, slow)
  }

  /// A push of the lane leaves for the first time.
  mutating func didSend() {
    credit = min(credit + settings.percentMax, settings.savedMax * Self.price)
  }

  /// An invite leaves, which may be hedged. Returns the number of its candidate.
  mutating func watch(_ request: Int, _ now: Instant) -> Int {
    let candidate = Candidate(request: request, number: nextNumber, sentAt: now)
    nextNumber += 1
    line.append(candidate)
    if due == .distantFuture { due = now + delay }
    return candidate.number
  }

  /// A request got its answer after this time, and before its hedge if it had one.
  mutating func didAnswer(after latency: Nanoseconds, _ now: Instant) {
    self.latency.note(latency, now)
  }

  /// Nothing is hedged for so long: the provider asked for a pause, or nothing may leave.
  mutating func pause(for time: Nanoseconds, _ now: Instant) {
    pausedUntil = max(pausedUntil, now + min(time, settings.longestPause))
  }

  /// The next invite to hedge now; to be called again until it gives none. Then `due` says when there may be another.
  ///
  /// - Parameter isWaiting: whether a candidate is still unanswered and may be hedged.
  mutating func next(_ now: Instant, isWaiting: (Candidate) -> Bool) -> Candidate? {
    while lineStart < line.count, !isWaiting(line[lineStart]) { dropFirst() }
    guard lineStart < line.count else {
      due = .distantFuture
      return nil
    }
    let candidate = line[lineStart]
    due = max(candidate.sentAt + delay, pausedUntil)
    guard due <= now else { return nil }
    guard spend(now) else {
      due = now + Self.retryTime
      return nil
    }
    dropFirst()
    return candidate
  }

  private mutating func spend(_ now: Instant) -> Bool {
    if credit >= Self.price {
      credit -= Self.price
      return true
    }
    if lone < settings.loneMax {
      let earned = Int((now - loneSince).count / settings.loneInterval.count)
      lone = min(lone + earned, settings.loneMax)
      loneSince = loneSince + settings.loneInterval * Int64(earned)
    }
    guard lone > 0 else { return false }
    if lone == settings.loneMax { loneSince = now }
    lone -= 1
    return true
  }

  private mutating func dropFirst() {
    lineStart += 1
    if lineStart == line.count {
      line.removeAll(keepingCapacity: true)
      lineStart = 0
    } else if lineStart >= 1_024, lineStart * 2 > line.count {
      line.removeFirst(lineStart)
      lineStart = 0
    }
  }
}
