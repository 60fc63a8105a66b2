// The two text formats of /metrics, and which one a scraper prefers.

/// The formats of an exposition.
enum ExpositionFormat: Sendable {
  /// Prometheus text 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats).
  case prometheus
  /// OpenMetrics 1.0.
  case openMetrics

  var contentType: String {
    switch self {
    case .prometheus: "text/plain; version=0.0.4; charset=utf-8"
    case .openMetrics: "application/openmetrics-text; version=1.0.0; charset=utf-8"
    }
  }

  /// OpenMetrics if the scraper prefers it, otherwise Prometheus text.
  ///
  /// - Parameter accept: the value of `Accept`; nil for none.
  init(accept: String?) {
    var openMetrics = 0.0
    var text = 0.0
    for range in (accept ?? "").split(separator: ",") {
      let parts = range.split(separator: ";").map { $0.trimming(while: \.isWhitespace) }
      let parameters = Dictionary(
        parts.dropFirst().compactMap { part -> (String, Substring)? in
          guard let equals = part.firstIndex(of: "=") else { return nil }
          return (part[..<equals].lowercased(), part[part.index(after: equals)...])
        }, uniquingKeysWith: { first, _ in first })
      let weight = parameters["q"].flatMap { Double($0) } ?? 1
      switch parts.first?.lowercased() {
      case "application/openmetrics-text" where parameters["version"].map { ["1.0.0", "0.0.1"].contains($0) } ?? true:
        openMetrics = max(openMetrics, weight)
      case "text/plain", "text/*", "*/*": text = max(text, weight)
      default: break
      }
    }
    self = openMetrics > 0 && openMetrics >= text ? .openMetrics : .prometheus
  }
}

extension Substring {
  fileprivate func trimming(while isUnwanted: (Character) -> Bool) -> Substring {
    guard let last = lastIndex(where: { !isUnwanted($0) }) else { return "" }
    return self[...last].drop(while: isUnwanted)
  }
}
