// Counts by kind, outcome and reason of one lane: a dense array, so that counting is an addition.

internal import Providers
public import PushModel

/// How often each outcome occurred.
public struct OutcomeCounts<Outcome: CaseIterable & RawRepresentable & Sendable>: Sendable
where Outcome.RawValue == UInt8 {
  private let reasons: Int
  private var counts: [Int]

  /// - Parameter reasons: number of reasons that are told apart (`ReasonLabels.words`).
  init(reasons: Int) {
    self.reasons = reasons
    counts = [Int](repeating: 0, count: PushKind.allCases.count * Outcome.allCases.count * reasons)
  }

  public subscript(kind: PushKind, outcome: Outcome, reason reason: Int) -> Int {
    get { counts[index(kind, outcome, reason)] }
    set { counts[index(kind, outcome, reason)] = newValue }
  }

  /// All reasons and kinds together.
  public func total(of outcome: Outcome) -> Int {
    PushKind.allCases.reduce(0) { sum, kind in
      (0..<reasons).reduce(sum) { $0 + self[kind, outcome, reason: $1] }
    }
  }

  /// Adds the counts of another lane of the same provider.
  mutating func add(_ other: OutcomeCounts) {
    precondition(reasons == other.reasons, "only counts of the same provider can be added")
    for index in counts.indices { counts[index] += other.counts[index] }
  }

  private func index(_ kind: PushKind, _ outcome: Outcome, _ reason: Int) -> Int {
    (Int(kind.rawValue) * Outcome.allCases.count + Int(outcome.rawValue)) * reasons + reason
  }
}

/// A provider's answer to one try: the cases of `PushOutcome` that come from a provider.
public enum AttemptOutcome: UInt8, CaseIterable, Sendable {
  case accepted, invalid, rejected, unauthorized, throttled, unavailable, unknown, refused

  /// The outcome and its reason; nil if nothing was tried: the deadline had passed, or the service takes no push now.
  static func reading(_ outcome: PushOutcome) -> (AttemptOutcome, reason: String?)? {
    switch outcome {
    case .accepted: (.accepted, nil)
    case .tokenInvalid(let reason, _): (.invalid, reason)
    case .rejected(let reason): (.rejected, reason)
    case .unauthorized(let reason): (.unauthorized, reason)
    case .throttled(let reason, _, _): (.throttled, reason)
    case .unavailable(let reason, _): (.unavailable, reason)
    case .unknown(let reason): (.unknown, reason)
    case .refused(let reason): (.refused, reason)
    case .deferred, .expired: nil
    }
  }
}
