// Tokens that request a fault from a simulator, by the names of `simulate --list-faults`.

internal import Simulators

/// The share of devices that get each fault: `dead=1%,outage=0.5%,lose=0.1%`.
struct LoadFaults: Equatable, Sendable {
  /// A fault and its share of devices.
  struct Rule: Equatable, Sendable {
    var name: String
    /// 0 to 1, of the devices whose provider has the fault.
    var share: Double
    /// The token prefix by provider; nil if the provider has no such fault.
    var prefixes: [LoadProvider: String]
  }

  let rules: [Rule]

  static let none = LoadFaults(rules: [])

  /// Common names of faults that each provider names differently.
  static let shared: [(name: String, meaning: String, names: [LoadProvider: String])] = [
    (
      "dead", "the token is dead: Unregistered, UNREGISTERED, DeviceNotRegistered, HTTP410",
      [.apns: "Unregistered", .fcm: "UNREGISTERED", .expo: "DeviceNotRegistered", .webpush: "HTTP410"]
    ),
    (
      "outage", "503 at every attempt: ServiceUnavailable, UNAVAILABLE, SERVICE_UNAVAILABLE, HTTP503",
      [.apns: "ServiceUnavailable", .fcm: "UNAVAILABLE", .expo: "SERVICE_UNAVAILABLE", .webpush: "HTTP503"]
    ),
    (
      "throttled", "too many pushes: TooManyRequests, QUOTA_EXCEEDED, MessageRateExceeded, HTTP429",
      [.apns: "TooManyRequests", .fcm: "QUOTA_EXCEEDED", .expo: "MessageRateExceeded", .webpush: "HTTP429"]
    ),
  ]

  private init(rules: [Rule]) {
    self.rules = rules
  }

  /// - Throws: an error that describes what is wrong with the text.
  init(_ text: String) throws(LoadOptionError) {
    var rules: [Rule] = []
    for pair in try LoadOptionError.pairs(text) {
      rules.append(Rule(name: pair.name, share: try Self.share(pair), prefixes: try Self.prefixes(pair.name)))
    }
    for provider in LoadProvider.allCases {
      let sum = rules.reduce(0) { $0 + ($1.prefixes[provider] == nil ? 0 : $1.share) }
      guard sum <= 1 + 1e-9 else { throw LoadOptionError("the shares of \(provider.name) are more than 100% together") }
    }
    self.rules = rules
  }

  /// The fault of a device, if it has one.
  /// - Parameter unit: uniform in 0..<1.
  func prefix(of provider: LoadProvider, at unit: Double) -> String? {
    var left = unit
    for rule in rules {
      guard let prefix = rule.prefixes[provider] else { continue }
      left -= rule.share
      if left < 0 { return prefix }
    }
    return nil
  }

  /// `1%`, or `0.01`.
  private static func share(_ pair: (name: String, value: String)) throws(LoadOptionError) -> Double {
    let isPercent = pair.value.hasSuffix("%")
    guard let number = Double(isPercent ? String(pair.value.dropLast()) : pair.value),
      case let share = isPercent ? number / 100 : number, (0...1).contains(share)
    else { throw LoadOptionError("\(pair.name)=\(pair.value): a share is 0% to 100%, or 0 to 1") }
    return share
  }

  private static func prefixes(_ name: String) throws(LoadOptionError) -> [LoadProvider: String] {
    let names = shared.first { $0.name == name }?.names
    var prefixes: [LoadProvider: String] = [:]
    for provider in LoadProvider.allCases {
      prefixes[provider] = FaultCatalog.tokenPrefix(of: names?[provider] ?? name, at: provider.simulated)
    }
    if prefixes.isEmpty {
      let known = shared.map(\.name).joined(separator: ", ")
      throw LoadOptionError("there is no fault \(name): it is one of \(known), or of simulate --list-faults")
    }
    return prefixes
  }
}
