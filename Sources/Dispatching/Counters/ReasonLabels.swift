// Reasons as labels. The table is bounded, so no provider or backend can increase the number of series.

public import Providers

/// The reasons that one provider's series tell apart, by dense index. The first means no reason, the last any unknown reason.
public struct ReasonLabels: Sendable {
  private static let all = Dictionary(
    uniqueKeysWithValues: ProviderKind.allCases.map { ($0, ReasonLabels($0.reasons)) })

  public static func of(_ provider: ProviderKind) -> ReasonLabels {
    guard let labels = all[provider] else { preconditionFailure("every provider has labels") }
    return labels
  }

  /// The reasons of the gateway and the database.
  private static let ours = [
    "AcceptedLate", "CallAnswered", "CallEnded", "CallMissed", "DeadlinePassed", "FateUnknown", "GatewayCrashed",
    "Interrupted", "MissingField", "NoTemplate", "PayloadTooLarge", "Restored", "SaidByCancel", "SettlementRefused",
    "Shutdown", "Unknown", "Unreadable", "UserErased",
  ]

  /// The labels, by index.
  public let words: [String]
  private let indexByWord: [String: Int]

  private init(_ documented: [String]) {
    let known = Set(documented + ProviderReasons.common + Self.ours).sorted()
    words = [""] + known + ["other"]
    indexByWord = Dictionary(uniqueKeysWithValues: known.enumerated().map { ($1, $0 + 1) })
  }

  /// The index of a reason. Nil and the empty string mean no reason.
  public func index(of reason: String?) -> Int {
    guard let reason, !reason.isEmpty else { return 0 }
    return indexByWord[reason] ?? words.count - 1
  }
}
