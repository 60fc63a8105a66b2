// The numbers of this gateway's claims, and which of them has no answer. Pure.
//
// A claim has a number, which is written as the lease of each row it takes. When its answer is lost nobody knows what it took, or
// whether it still will: it is forgotten in the database before the next claim is asked for.

internal import Queue
internal import Runtime

/// Gives out numbers, one at a time, for claims and for reclaims.
struct ClaimLedger {
  private enum State: Equatable {
    case answered
    case asked
    /// Its answer was lost.
    case lost
    case forgetting
  }

  private let retryInterval: Nanoseconds
  /// The number given out last.
  private(set) var last: Int32 = 0
  private var state = State.answered
  private var notBefore = Instant(nanoseconds: .min)

  init(retryInterval: Nanoseconds) {
    self.retryInterval = retryInterval
  }

  /// Every claim with this number or a lower one is over: what it took is known here, or has gone back.
  var answered: Int32 { state == .answered ? last : last - 1 }

  /// Whether the next number may be given out.
  var isClear: Bool { state == .answered }

  /// No statement with a number is under way.
  var isQuiet: Bool { state == .answered || state == .lost }

  /// There will soon be no numbers left: it takes a new gateway to go on.
  var isExhausted: Bool { last > Int32.max - 100_000 }

  /// When the claim whose answer was lost is to be forgotten; distant future where there is none.
  var due: Instant { state == .lost ? notBefore : .distantFuture }

  /// The number of the next claim.
  mutating func next() -> Int32 {
    precondition(state == .answered, "a claim is asked for while another has no answer")
    precondition(last < .max, "the numbers of claims are used up")
    last += 1
    state = .asked
    return last
  }

  /// The answer came. False if it is of a claim that nobody waits for.
  mutating func didAnswer(_ number: Int32) -> Bool {
    guard number == last, state == .asked else { return false }
    state = .answered
    return true
  }

  /// A reclaim failed: it is repeated under another number, and there is nothing to be forgotten.
  mutating func abandon(_ number: Int32) {
    if number == last, state == .asked { state = .answered }
  }

  /// The claim failed. Returns whether it may have been executed, and so must be forgotten.
  mutating func didFail(_ number: Int32, _ code: OutboxError.Code) -> Bool {
    guard number == last, state == .asked else { return false }
    state = code == .answerLost ? .lost : .answered
    notBefore = Instant(nanoseconds: .min)
    return state == .lost
  }

  /// The number to forget now; nil for none.
  mutating func forget(_ now: Instant) -> Int32? {
    guard due <= now else { return nil }
    state = .forgetting
    return last
  }

  /// The claim is forgotten. False if nobody waits for that.
  mutating func didForget(_ number: Int32) -> Bool {
    guard number == last, state == .forgetting else { return false }
    state = .answered
    return true
  }

  /// The claim could not be forgotten; that is tried again.
  mutating func didFailToForget(_ number: Int32, _ now: Instant) {
    guard number == last, state == .forgetting else { return }
    state = .lost
    notBefore = now + retryInterval
  }

  /// Another gateway goes on with the numbers, so that no lease of the former one is taken for one of its own.
  mutating func changeGateway() { state = .answered }

  /// Another gateway, that has nothing of the former one, counts from the start.
  mutating func restart() {
    last = 0
    state = .answered
  }
}
