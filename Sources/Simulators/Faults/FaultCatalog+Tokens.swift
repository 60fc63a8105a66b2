// Gives the token prefix that requests a fault; for code that generates tokens.

extension FaultCatalog {
  /// The prefix of a token that gets a fault. For Expo, the prefix of the part in brackets; for web push, of
  /// the name in the endpoint.
  ///
  /// - Parameter fault: a reason of the provider, or a name that every provider has, as `text` lists them.
  /// - Returns: the prefix, or nil if the provider has no such fault. The text after it must not look like a
  ///   continuation of it.
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
    case .webpush: return isCommon || WebPushError.named(fault) != nil ? "\(TokenFault.prefix)\(fault)-" : nil
    case .oauth: return nil
    }
  }
}
