// The properties of a device in the load: its provider, and the fault that its token requests.

internal import Simulators

/// The distribution of devices over providers, by weight: `apns=1,fcm=1,expo=1`.
struct LoadMix: Equatable, Sendable {
  /// The providers with a weight above 0.
  let weights: [(provider: LoadProvider, weight: Double)]

  /// - Throws: an error that describes what is wrong with the text.
  init(_ text: String) throws(LoadOptionError) {
    var weights: [(provider: LoadProvider, weight: Double)] = []
    for pair in try LoadOptionError.pairs(text) {
      guard let provider = LoadProvider(name: pair.name) else {
        throw LoadOptionError("\(pair.name) is no provider: apns, fcm, expo or webpush")
      }
      guard !weights.contains(where: { $0.provider == provider }) else {
        throw LoadOptionError("\(pair.name) is given twice")
      }
      guard let weight = Double(pair.value), weight.isFinite, weight >= 0 else {
        throw LoadOptionError("\(pair.name)=\(pair.value): a weight is a number from 0 up")
      }
      weights.append((provider, weight))
    }
    self.weights = weights.filter { $0.weight > 0 }
    if self.weights.isEmpty { throw LoadOptionError("no provider has a weight above 0") }
  }

  /// - Parameter unit: uniform in 0..<1.
  func provider(at unit: Double) -> LoadProvider {
    var left = unit * weights.reduce(0) { $0 + $1.weight }
    for entry in weights {
      left -= entry.weight
      if left < 0 { return entry.provider }
    }
    return weights[weights.count - 1].provider
  }

  static func == (left: LoadMix, right: LoadMix) -> Bool {
    left.weights.elementsEqual(right.weights) { $0 == $1 }
  }
}

/// The provider of a push.
enum LoadProvider: UInt8, CaseIterable, Sendable {
  case apns, fcm, expo, webpush

  init?(name: String) {
    guard let provider = Self.allCases.first(where: { $0.name == name }) else { return nil }
    self = provider
  }

  var name: String { simulated.rawValue }

  var simulated: SimulatedProvider {
    switch self {
    case .apns: .apns
    case .fcm: .fcm
    case .expo: .expo
    case .webpush: .webpush
    }
  }
}

/// An error in an option's value.
struct LoadOptionError: Error, Equatable, CustomStringConvertible {
  let description: String

  init(_ description: String) {
    self.description = description
  }

  /// Reads `a=1,b=2`.
  static func pairs(_ text: String) throws(LoadOptionError) -> [(name: String, value: String)] {
    var pairs: [(name: String, value: String)] = []
    for part in text.split(separator: ",", omittingEmptySubsequences: false) {
      let sides = part.split(separator: "=", omittingEmptySubsequences: false)
      guard sides.count == 2, !sides[0].isEmpty, !sides[1].isEmpty else {
        throw LoadOptionError("“\(part)” is not of the form name=value")
      }
      pairs.append((String(sides[0]), String(sides[1])))
    }
    return pairs
  }
}
