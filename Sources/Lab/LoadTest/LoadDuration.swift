// Durations on the command line of a load test: with their units.

import ArgumentParser
import Runtime

/// `500ms`, `60s`, `2m`, `1h`, `1m30s`; a number without a unit is seconds.
struct LoadDuration: Equatable, Sendable {
  var nanoseconds: Nanoseconds

  private static let units: [(name: String, nanoseconds: Double)] = [
    ("h", 3.6e12), ("m", 6e10), ("s", 1e9), ("ms", 1e6), ("us", 1e3),
  ]
  private static let max = 1e16

  init(_ nanoseconds: Nanoseconds) {
    self.nanoseconds = nanoseconds
  }

  /// Nil for a text of any other form.
  /// - Parameter needsUnit: whether a number without a unit is refused.
  init?(_ text: some StringProtocol, needsUnit: Bool = false) {
    var rest = Substring(text)
    var sum = 0.0
    var hasUnit = false
    guard !rest.isEmpty else { return nil }
    while !rest.isEmpty {
      let digits = rest.prefix { $0.isASCII && $0.isNumber || $0 == "." }
      rest = rest.dropFirst(digits.count)
      let unit = rest.prefix { $0.isASCII && $0.isLetter }
      rest = rest.dropFirst(unit.count)
      // A number without a unit is the only one.
      let isSeconds = unit.isEmpty && !needsUnit && !hasUnit && rest.isEmpty
      guard let number = Double(digits),
        let factor = isSeconds ? 1e9 : Self.units.first(where: { $0.name == unit })?.nanoseconds
      else { return nil }
      hasUnit = true
      sum += number * factor
    }
    guard sum <= Self.max else { return nil }
    nanoseconds = Nanoseconds(Int64(sum.rounded()))
  }

  var seconds: Double { nanoseconds.seconds }
}

extension LoadDuration: ExpressibleByArgument, CustomStringConvertible {
  init?(argument: String) { self.init(argument) }

  /// `1m30s`.
  var description: String {
    var rest = nanoseconds.count
    var text = ""
    for (name, size) in Self.units where rest >= Int64(size) {
      text += "\(rest / Int64(size))\(name)"
      rest %= Int64(size)
    }
    return text.isEmpty ? "0s" : text
  }
}
