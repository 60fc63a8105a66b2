// A strict parser of expositions: a line that violates the format is an error.

import Foundation

/// The samples of an exposition, by series.
package struct MetricsExposition {
  package struct Fault: Error, CustomStringConvertible {
    package let description: String
  }

  /// By the series as written: `name{label="value",…}`.
  package private(set) var samples: [String: Double] = [:]
  package private(set) var types: [String: String] = [:]
  private var bucket: (series: String, bound: Double, count: Double)?

  package init(_ bytes: [UInt8], _ isOpenMetrics: Bool) throws {
    guard let text = String(validating: bytes, as: UTF8.self), text.hasSuffix("\n") else {
      throw Fault(description: "not UTF-8, or no line feed at the end")
    }
    var lines = text.dropLast().split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    if isOpenMetrics, lines.popLast() != "# EOF" { throw Fault(description: "no # EOF at the end") }
    var family = ""
    for line in lines {
      if line.hasPrefix("# HELP ") {
        family = String(line.split(separator: " ")[2])
        guard line.split(separator: " ").count > 3, types[family] == nil else { throw Fault(description: line) }
      } else if line.hasPrefix("# TYPE ") {
        let words = line.split(separator: " ").map(String.init)
        guard words.count == 4, words[2] == family, ["counter", "gauge", "histogram"].contains(words[3]) else {
          throw Fault(description: line)
        }
        types[family] = words[3]
      } else {
        try read(line, family, isOpenMetrics)
      }
    }
  }

  private mutating func read(_ line: String, _ family: String, _ isOpenMetrics: Bool) throws {
    let fault = Fault(description: "\(family): \(line)")
    guard let (name, labels, number) = Self.split(Array(line.utf8)),
      let value = Double(number.replacing("+Inf", with: "inf"))
    else { throw fault }
    let suffixes: [String: [String]] = [
      "gauge": [""], "counter": [isOpenMetrics ? "_total" : ""], "histogram": ["_bucket", "_sum", "_count"],
    ]
    guard let type = types[family], suffixes[type]!.contains(where: { name == family + $0 }) else { throw fault }
    let series = name + labels
    guard samples.updateValue(value, forKey: series) == nil else { throw fault }
    if type == "histogram" { try readHistogram(series, value, fault) }
  }

  /// A line's name, its labels in braces, and its value; nil if the line is malformed.
  private static func split(_ line: [UInt8]) -> (name: String, labels: String, value: String)? {
    func isWord(_ byte: UInt8) -> Bool { byte == UInt8(ascii: "_") || UInt8(ascii: "a")...UInt8(ascii: "z") ~= byte }
    func text(_ range: Range<Int>) -> String { String(decoding: line[range], as: UTF8.self) }
    var index = line.firstIndex { !isWord($0) } ?? 0
    let name = text(0..<index)
    let start = index
    guard index > 0 else { return nil }
    if line[index] == UInt8(ascii: "{") {
      repeat {
        index += 1
        let end = line[index...].firstIndex { !isWord($0) } ?? index
        guard end > index, line[end...].starts(with: "=\"".utf8) else { return nil }
        index = end + 2
        while index < line.count, line[index] != UInt8(ascii: "\"") {
          if line[index] == UInt8(ascii: "\\") {
            index += 1
            guard index < line.count, "\\n\"".utf8.contains(line[index]) else { return nil }
          }
          index += 1
        }
        index += 1
      } while index < line.count && line[index] == UInt8(ascii: ",")
      guard index < line.count, line[index] == UInt8(ascii: "}") else { return nil }
      index += 1
    }
    guard index < line.count, line[index] == UInt8(ascii: " ") else { return nil }
    let labels = text(start..<index)
    return (name, labels, text(index + 1..<line.count))
  }

  /// Checks that bounds and counts of buckets increase, and that the last bucket is +Inf and has the total count.
  private mutating func readHistogram(_ series: String, _ value: Double, _ fault: Fault) throws {
    if series.contains("_bucket"), let start = series.range(of: "le=\"") {
      let of = String(series[..<start.lowerBound])
      let bound = Double(series[start.upperBound...].dropLast(2).replacing("+Inf", with: "inf")) ?? .nan
      if let last = bucket, last.series == of {
        guard last.bound < bound, last.count <= value else { throw fault }
      } else {
        guard bucket == nil || bucket?.bound == .infinity else { throw fault }
      }
      bucket = (of, bound, value)
    } else if series.contains("_count") {
      guard bucket?.bound == .infinity, bucket?.count == value else { throw fault }
      bucket = nil
    }
  }

  /// The sum of a family's samples that have all of these labels.
  package func sum(_ name: String, _ labels: [String: String] = [:]) -> Double {
    samples.filter { series, _ in
      (series == name || series.hasPrefix(name + "{"))
        && labels.allSatisfy { series.contains("\($0.key)=\"\($0.value)\"") }
    }.values.reduce(0, +)
  }
}
