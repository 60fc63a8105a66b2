// Writes metric families as text, in either format.

import Queue

/// Builds an exposition, family by family.
struct ExpositionWriter {
  enum Kind: String {
    case counter, gauge, histogram
  }

  typealias Labels = KeyValuePairs<String, String>

  private let format: ExpositionFormat
  private(set) var bytes: [UInt8] = []
  private var name = ""

  init(_ format: ExpositionFormat) {
    self.format = format
    bytes.reserveCapacity(64 * 1024)
  }

  /// Begins a family. Its samples follow.
  ///
  /// - Parameters:
  ///   - name: the name as queries use it; a counter's ends in `_total`.
  ///   - help: one sentence without the final stop.
  mutating func family(_ name: String, _ kind: Kind, _ help: String) {
    precondition((kind == .counter) == name.hasSuffix("_total"), "names of counters end in _total, and no others do")
    self.name = name
    // OpenMetrics names a counter's family without the suffix of its samples.
    let family = format == .openMetrics && kind == .counter ? String(name.dropLast("_total".count)) : name
    append("# HELP \(family) ")
    appendEscaped(help, quotes: format == .openMetrics)
    append("\n# TYPE \(family) \(kind.rawValue)\n")
  }

  mutating func sample(_ value: Int, _ labels: Labels = [:]) {
    appendName("", labels, nil)
    append("\(value)\n")
  }

  mutating func sample(_ value: Double, _ labels: Labels = [:]) {
    appendName("", labels, nil)
    append("\(Self.text(of: value))\n")
  }

  mutating func sample(_ isTrue: Bool, _ labels: Labels = [:]) { sample(isTrue ? 1 : 0, labels) }

  mutating func sample(_ histogram: Histogram, _ labels: Labels = [:]) {
    var sum = 0
    for (limit, count) in zip(histogram.bounds.limits, histogram.counts) {
      sum += count
      appendName("_bucket", labels, bound(Double(limit) * histogram.bounds.scale))
      append("\(sum)\n")
    }
    let count = histogram.count
    appendName("_bucket", labels, "+Inf")
    append("\(count)\n")
    appendName("_sum", labels, nil)
    append("\(Self.text(of: Double(histogram.total) * histogram.bounds.scale))\n")
    appendName("_count", labels, nil)
    append("\(count)\n")
  }

  /// Ends the exposition, and returns it.
  consuming func finish() -> [UInt8] {
    if format == .openMetrics { append("# EOF\n") }
    return bytes
  }

  // MARK: - Helpers

  private mutating func appendName(_ suffix: String, _ labels: Labels, _ bound: String?) {
    append(name)
    append(suffix)
    guard !labels.isEmpty || bound != nil else { return append(" ") }
    var separator = "{"
    for (label, value) in labels {
      append("\(separator)\(label)=\"")
      appendEscaped(value, quotes: true)
      append("\"")
      separator = ","
    }
    if let bound { append("\(separator)le=\"\(bound)\"") }
    append("} ")
  }

  /// OpenMetrics requires a decimal point in every bound; Prometheus text has `1`.
  private func bound(_ value: Double) -> String {
    let rounded = (value * 1e6).rounded() / 1e6
    return format == .prometheus && rounded == rounded.rounded() ? "\(Int(rounded))" : "\(rounded)"
  }

  private static func text(of value: Double) -> String {
    if value.isNaN { return "NaN" }
    if value.isInfinite { return value > 0 ? "+Inf" : "-Inf" }
    return "\(value)"
  }

  private mutating func append(_ text: String) { bytes.append(contentsOf: text.utf8) }

  private mutating func appendEscaped(_ text: String, quotes: Bool) {
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "\\"): append(#"\\"#)
      case UInt8(ascii: "\n"): append(#"\n"#)
      case UInt8(ascii: "\"") where quotes: append(#"\""#)
      default: bytes.append(byte)
      }
    }
  }
}
