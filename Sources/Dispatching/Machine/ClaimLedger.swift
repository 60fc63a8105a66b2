// The numbers of this gateway's claims, and which claim has no answer. Pure.
//
// Each claim has a number, which is written as the lease of each row it takes. When its answer is lost, the gateway knows neither
// which rows it took nor whether it will still take some. So it is forgotten in the database before the next claim is sent.

internal import Queue
internal import Runtime

/// Assigns numbers to claims, one at a time.
struct ClaimLedger {
  private enum State: Equatable {
    case answered
    case asked
    /// Its answer was lost.
    case lost
    case forgetting
  }

  private let retryInterval: Nanoseconds
  /// The number assigned last.
  private(set) var last: Int32 = 0
  private var state = State.answered
  private var notBefore = Instant(nanoseconds: .min)

  init(retryInterval: Nanoseconds) {
    self.retryInterval = retryInterval
  }

  /// Every claim up to this number is over: the rows it took are known here, or went back.
  var answered: Int32 { state == .answered ? last : last - 1 }

  /// Whether the next number may be assigned.
  var isClear: Bool { state == .answered }

  /// Whether no statement with a number is under way.
  var isQuiet: Bool { state == .answered || state == .lost }

  /// Whether the numbers are nearly used up, so that a new gateway must register.
  var isExhausted: Bool { last > Int32.max - 100_000 }

  /// When to forget the claim whose answer was lost; distant future if there is none.
  var due: Instant { state == .lost ? notBefore : .distantFuture }

  /// The number of the next claim.
  mutating func next() -> Int32 {
    precondition(state == .answered, "a claim is asked for while another has no answer")
    precondition(last < .max, "the numbers of claims are used up")
    last += 1
    state = .asked
    return last
  }

  /// The answer to a claim came. Returns false if the claim is not the one under way.
  mutating func didAnswer(_ number: Int32) -> Bool {
    guard number == last, state == .asked else { return false }
    state = .answered
    return true
  }

  /// The claim failed. Returns whether it may have been executed and must be forgotten.
  mutating func didFail(_ number: Int32, _ code: OutboxError.Code) -> Bool {
    guard number == last, state == .asked else { return false }
    state = code == .answerLost ? .lost : .answered
    notBefore = Instant(nanoseconds: .min)
    return state == .lost
  }

  /// The number of the claim to forget now; nil for none.
  mutating func forget(_ now: Instant) -> Int32? {
    guard due <= now else { return nil }
    state = .forgetting
    return last
  }

  /// The claim is forgotten. Returns false if it is not the one being forgotten.
  mutating func didForget(_ number: Int32) -> Bool {
    guard number == last, state == .forgetting else { return false }
    state = .answered
    return true
  }

  /// The claim could not be forgotten. It is tried again.
  mutating func didFailToForget(_ number: Int32, _ now: Instant) {
    guard number == last, state == .forgetting else { return }
    state = .lost
    notBefore = now + retryInterval
  }

  /// A new gateway continues the numbers, so that no lease of the former one is mistaken for its own.
  mutating func changeGateway() { state = .answered }

  /// A new gateway that has no deliveries of the former one counts from the start.
  mutating func restart() {
    last = 0
    state = .answered
  }
}
