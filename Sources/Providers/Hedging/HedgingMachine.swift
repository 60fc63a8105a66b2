// Decides which requests are hedged, and when. An invite that has waited longer than nearly all answers take is sent a second time
// over another connection. No clock, no I/O.
//
//   answers known      an invite is hedged after
//   fewer than 10      delayAtFirst
//   fewer than 1,000   three times the time within which 90 % of the answers came
//   more               the time within which 99.9 % of them came        (and never before delayMin)
//
// A hedge that gets no answer within that time either, while nothing else is answered, shows that not the connection is ill but the
// provider. The next hedge waits for an answer then, or for `patience`.
//
// Only the first answer to a push counts. If the hedge is answered first, the latency of the hedged request is unknown. Counting
// that request as slow would let a stalled connection raise the delay until its requests are no longer hedged.
//
// Candidates are stored in the order in which they were sent, so a push only appends an entry to an array. Entries of requests
// that were answered meanwhile are skipped.

internal import Runtime

/// The hedging decisions of one lane.
struct HedgingMachine {
  /// An invite that has been sent and may be hedged.
  struct Candidate: Equatable {
    /// The owner's number for the request.
    var request: Int
    /// Distinguishes the candidate from others with the same request number.
    var number: Int
    var sentAt: Instant
  }

  /// The price of a hedge in the units of `credit`.
  private static let price = 100
  /// The wait before another try when the lane has no hedge left.
  private static let retryTime = Nanoseconds.milliseconds(50)

  private let settings: HedgingSettings
  private var latency = RecentLatency()
  private var line = WaitingLine<Candidate>()
  private var nextNumber = 0
  /// Grows by `percentMax` with each push and shrinks by `price` with each hedge.
  private var credit = 0
  /// Number of unearned hedges left, and since when the next one accrues.
  private var lone: Int
  private var loneSince = Instant(nanoseconds: .min)
  private var pausedUntil = Instant(nanoseconds: .min)
  /// When the first hedge was sent since the last answer.
  private var unansweredSince: Instant?
  /// When to call `next` again; `distantFuture` while no invite waits.
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

  /// A push of the lane is sent for the first time.
  mutating func didSend() {
    credit = min(credit + settings.percentMax, settings.savedMax * Self.price)
  }

  /// An invite that may be hedged is sent. Returns the number of its candidate.
  mutating func watch(_ request: Int, _ now: Instant) -> Int {
    let candidate = Candidate(request: request, number: nextNumber, sentAt: now)
    nextNumber += 1
    line.append(candidate)
    if due == .distantFuture { due = now + delay }
    return candidate.number
  }

  /// A push got its first answer after this time. If it was hedged, only the request that was answered first is noted.
  mutating func didAnswer(after latency: Nanoseconds, _ now: Instant) {
    self.latency.note(latency, now)
    if unansweredSince != nil, !line.isEmpty { due = now }
    unansweredSince = nil
  }

  /// Pauses hedging for this time, at most `longestPause`: the provider asked for a pause, or no request may be sent.
  mutating func pause(for time: Nanoseconds, _ now: Instant) {
    pausedUntil = max(pausedUntil, now + min(time, settings.longestPause))
  }

  /// The next invite to hedge now. The caller repeats the call until it returns nil. `due` then says when to call again.
  ///
  /// - Parameter isWaiting: whether a candidate is still unanswered and may be hedged.
  mutating func next(_ now: Instant, isWaiting: (Candidate) -> Bool) -> Candidate? {
    while let candidate = line.first, !isWaiting(candidate) { _ = line.popFirst() }
    guard let candidate = line.first else {
      due = .distantFuture
      return nil
    }
    due = max(candidate.sentAt + delay, pausedUntil)
    if let since = unansweredSince, since + delay <= due { due = max(due, since + settings.patience) }
    guard due <= now else { return nil }
    guard spend(now) else {
      due = now + Self.retryTime
      return nil
    }
    if unansweredSince.map({ $0 + settings.patience <= now }) ?? true { unansweredSince = now }
    return line.popFirst()
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
}
