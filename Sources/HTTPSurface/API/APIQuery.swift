// The query of a request's URL: the part after the question mark.

internal import HummingbirdCore

/// Typed access to the parameters of a query. Errors name the parameter.
struct APIQuery {
  private let parameters: FlatDictionary<Substring, Substring>

  init(_ parameters: FlatDictionary<Substring, Substring>) {
    self.parameters = parameters
  }

  /// Nil if the parameter is missing.
  func integer(_ name: Substring, in range: ClosedRange<Int32>) throws(APIProblem) -> Int32? {
    guard let text = parameters[name] else { return nil }
    guard let number = Int32(text), range.contains(number) else {
      throw .invalid(
        String(name), "must be a whole number from \(range.lowerBound) to \(range.upperBound), or left out")
    }
    return number
  }
}
