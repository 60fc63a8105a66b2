// Tables of the faults that tokens can request, as text for people.

/// Every token prefix with a meaning.
public enum FaultCatalog {
  /// A table for a terminal.
  public static var text: String {
    var lines = ["APNs: the token begins"]
    lines += APNsTokenFault.table.map { row("\($0.prefix)", $0.meaning) }
    lines.append(row("\(APNsSimulator.sandboxTokenPrefix)", "a sandbox token: production answers 400 BadDeviceToken"))
    lines.append(
      row("\(APNsSimulator.productionTokenPrefix)", "a production token: the sandbox answers 400 BadDeviceToken"))
    lines += [
      "", "FCM: the token begins (a number after a further dash is the Retry-After, for slow the milliseconds)",
    ]
    lines += (FCMError.names + Fault.names).map { row("\(TokenFault.prefix)\($0.name)", $0.meaning) }
    lines += ["", "Expo: what is in the token's brackets begins (numbers as for FCM)"]
    lines += ExpoPushError.allCases.map { row("\(TokenFault.prefix)\($0.rawValue)", "a ticket with this error") }
    lines += ExpoPushError.allCases.map {
      row("\(TokenFault.prefix)\($0.receiptFaultName)", "a good ticket, a receipt with this error")
    }
    lines += (ExpoError.names + Fault.names).map { row("\(TokenFault.prefix)\($0.name)", $0.meaning) }
    lines.append(row("project-NAME-", "the token belongs to the project NAME"))
    lines += ["", "Web push: the name in the endpoint, /push/NAME, begins (numbers as for FCM)"]
    lines += (WebPushError.all.map { (name: $0.reason, meaning: "\($0.status)") } + Fault.names).map {
      row("\(TokenFault.prefix)\($0.name)", $0.meaning)
    }
    return lines.joined(separator: "\n")
  }

  private static func row(_ prefix: String, _ meaning: String) -> String {
    "  \(prefix)\(String(repeating: " ", count: max(1, 40 - prefix.count)))\(meaning)"
  }
}
