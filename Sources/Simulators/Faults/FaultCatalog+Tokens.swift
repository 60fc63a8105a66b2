// From a fault's name to the token that asks for it: for whoever makes up tokens.

extension FaultCatalog {
  /// What a token begins with to meet a fault: for Expo, what is in its brackets.
  ///
  /// - Parameter fault: a reason of the provider, or a name every provider knows, as `text` lists them.
  /// - Returns: the prefix, after which nothing must follow that could be a part of it; nil when the provider has no such
  ///   fault.
  public static func tokenPrefix(of fault: String, at provider: SimulatedProvider) -> String? {
    let isCommon = Fault.named(fault) != nil
    switch provider {
    case .apns:
      if let reason = APNsReason(rawValue: fault) { return reason.faultPrefix }
      guard let meaning = Fault.names.first(where: { $0.name == fault })?.meaning else { return nil }
      return APNsTokenFault.table.first { $0.meaning == meaning }?.prefix
    case .fcm:
      return isCommon || FCMError.named(fault) != nil ? "\(TokenFault.prefix)\(fault)-" : nil
    case .expo:
      let isPushError = ExpoPushError.allCases.contains { $0.rawValue == fault || $0.receiptFaultName == fault }
      return isCommon || isPushError || ExpoError.named(fault) != nil ? "\(TokenFault.prefix)\(fault)-" : nil
    case .oauth: return nil
    }
  }
}
