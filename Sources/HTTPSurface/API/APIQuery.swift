// What stands behind the question mark of a request's path.

internal import HummingbirdCore

/// Typed access to a request's query. What is wrong is told with the name of the parameter.
struct APIQuery {
  private let parameters: FlatDictionary<Substring, Substring>

  init(_ parameters: FlatDictionary<Substring, Substring>) {
    self.parameters = parameters
  }

  /// Nil where it is left out.
  func integer(_ name: Substring, in range: ClosedRange<Int32>) throws(APIProblem) -> Int32? {
    guard let text = parameters[name] else { return nil }
    guard let number = Int32(text), range.contains(number) else {
      throw .invalid(
        String(name), "must be a whole number from \(range.lowerBound) to \(range.upperBound), or left out")
    }
    return number
  }
}
