// The tokens whose requests to Expo failed. No clock, no I/O.
//
// | a token's last request | its next one |
// |---|---|
// | failed alone | alone |
// | the same, although another one worked meanwhile | the same, one at a time, after all others: the token is a suspect |
// | worked, or failed with others | with any others |
//
// What failed with others needs no memory: it is sent again as a repeat, by whichever replica (`ExpoSendQueue`).
//
// During an outage everything fails, and no token is the cause: nothing works meanwhile, so there are no suspects. When several
// requests in a row have failed, the first one that works shows that it was an outage, and the smaller requests end.

internal import Runtime

/// Remembers tokens beyond the delivery: the next call to a suspect takes no others with it, either.
struct ExpoSuspects {
  enum Treatment { case any, alone, last }

  /// How long a token is remembered after its last failure.
  static let memory = Nanoseconds.seconds(600)
  /// Maximum number of tokens remembered. The oldest is forgotten for a new one.
  static let tokensMax = 1_024
  /// Number of failures in a row that show an outage.
  static let outageMin = 3

  private struct Mark {
    /// How often it failed although others worked.
    var strikes = 0
    var failedAt: Instant
  }

  private var marks: [ArraySlice<UInt8>: Mark] = [:]
  private var failuresInARow = 0
  private var workedAt = Instant(nanoseconds: .min)

  /// Whether any token is remembered. Forgets those whose time is over.
  mutating func isRemembering(_ now: Instant) -> Bool {
    if !marks.isEmpty { marks = marks.filter { $0.value.failedAt + Self.memory > now } }
    return !marks.isEmpty
  }

  func treatment(of token: ArraySlice<UInt8>) -> Treatment {
    guard let mark = marks[token] else { return .any }
    return mark.strikes > 0 ? .last : .alone
  }

  func strikes(of token: ArraySlice<UInt8>) -> Int { marks[token]?.strikes ?? 0 }

  mutating func didFail(_ tokens: [ArraySlice<UInt8>], sentAt: Instant, _ now: Instant) {
    failuresInARow += 1
    // Only who was alone is the cause for certain.
    guard tokens.count == 1, let token = tokens.first else { return }
    var mark = marks[token] ?? Mark(failedAt: now)
    if workedAt >= sentAt { mark.strikes += 1 }
    mark.failedAt = now
    if marks[token] == nil, marks.count >= Self.tokensMax,
      let oldest = marks.min(by: { $0.value.failedAt < $1.value.failedAt })
    {
      marks[oldest.key] = nil
    }
    // A copy, so that the message of the slice is released.
    marks[ArraySlice(Array(token))] = mark
  }

  mutating func didWork(_ tokens: some Sequence<ArraySlice<UInt8>>, _ now: Instant) {
    workedAt = now
    if failuresInARow >= Self.outageMin { marks = marks.filter { $0.value.strikes > 0 } }
    failuresInARow = 0
    if !marks.isEmpty { for token in tokens { marks[token] = nil } }
  }
}
