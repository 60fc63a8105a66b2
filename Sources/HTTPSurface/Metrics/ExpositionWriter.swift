// Writes metric families as text, in either format.

import Queue

/// Builds an exposition. The samples of a family stay together, also if it is begun several times: once for each database.
struct ExpositionWriter {
  enum Kind: String {
    case counter, gauge, histogram
  }

  typealias Labels = KeyValuePairs<String, String>

  /// The value of the label `database` of the samples that follow; nil for none.
  var database: String?

  private let format: ExpositionFormat
  /// The text of each family, in the order in which they were begun.
  private var families: [[UInt8]] = []
  private var indexByName: [String: Int] = [:]
  /// The index of the family to which samples are added.
  private var current = 0
  private var name = ""

  init(_ format: ExpositionFormat) { self.format = format }

  /// Begins a family. Its samples follow.
  ///
  /// - Parameters:
  ///   - name: the name as queries use it; a counter's ends in `_total`.
  ///   - help: one sentence without the final stop.
  mutating func family(_ name: String, _ kind: Kind, _ help: String) {
    precondition((kind == .counter) == name.hasSuffix("_total"), "names of counters end in _total, and no others do")
    self.name = name
    if let index = indexByName[name] {
      current = index
      return
    }
    current = families.count
    indexByName[name] = current
    families.append([])
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
    var bytes = Array(families.joined())
    if format == .openMetrics { bytes.append(contentsOf: "# EOF\n".utf8) }
    return bytes
  }

  // MARK: - Helpers

  private mutating func appendName(_ suffix: String, _ labels: Labels, _ bound: String?) {
    append(name)
    append(suffix)
    guard !labels.isEmpty || bound != nil || database != nil else { return append(" ") }
    var separator = "{"
    if let database {
      append("{database=\"")
      appendEscaped(database, quotes: true)
      append("\"")
      separator = ","
    }
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

  private mutating func append(_ text: String) { families[current].append(contentsOf: text.utf8) }

  private mutating func appendEscaped(_ text: String, quotes: Bool) {
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "\\"): append(#"\\"#)
      case UInt8(ascii: "\n"): append(#"\n"#)
      case UInt8(ascii: "\"") where quotes: append(#"\""#)
      default: families[current].append(byte)
      }
    }
  }
}
