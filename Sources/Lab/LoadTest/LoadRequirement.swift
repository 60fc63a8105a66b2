// Conditions that a run must meet to be GOOD: `failed<0.1%,p99<500ms,delivered>99.9%`.

import Foundation
import Runtime

/// One condition.
struct LoadRequirement: Equatable, Sendable {
  enum Metric: Equatable, Sendable {
    case count(Count)
    case latency(LoadStage, Statistic)
  }

  /// What is counted. A percentage of `refused` is one of the calls; any other, of the deliveries without a requested fault.
  enum Count: String, CaseIterable, Sendable {
    /// The provider accepted it.
    case delivered
    /// Settled but not delivered, without a requested fault.
    case failed
    /// Calls that could not be enqueued.
    case refused
    /// Accepted requests after the first one of each delivery.
    case repeated
  }

  enum Statistic: Equatable, Sendable {
    /// 0 to 100.
    case percentile(Double)
    case mean, max
  }

  enum Comparison: String, CaseIterable, Sendable {
    // The longer ones first: `<` begins `<=`.
    case atMost = "<="
    case atLeast = ">="
    case below = "<"
    case above = ">"

    func holds(_ left: Double, _ right: Double) -> Bool {
      switch self {
      case .atMost: left <= right
      case .atLeast: left >= right
      case .below: left < right
      case .above: left > right
      }
    }
  }

  enum Limit: Equatable, Sendable {
    case count(Double)
    /// Percent.
    case share(Double)
    /// Microseconds.
    case duration(Int64)
  }

  /// A condition and what was measured.
  struct Outcome: Equatable, Sendable {
    var requirement: LoadRequirement
    /// For people, with the unit of the limit.
    var measured: String
    var isMet: Bool

    var line: String { "\(isMet ? "met" : "NOT MET"): \(requirement.text) (measured: \(measured))" }
  }

  /// As it was written.
  let text: String
  let metric: Metric
  let comparison: Comparison
  let limit: Limit

  // MARK: - Reading

  /// Reads conditions separated by commas.
  /// - Throws: an error that describes what is wrong with the text.
  static func list(_ text: String) throws(LoadOptionError) -> [LoadRequirement] {
    var list: [LoadRequirement] = []
    for part in text.split(separator: ",", omittingEmptySubsequences: false) { list.append(try LoadRequirement(part)) }
    return list
  }

  /// - Throws: an error that describes what is wrong with the text.
  init(_ text: some StringProtocol) throws(LoadOptionError) {
    let text = String(text).filter { $0 != " " }
    guard let start = text.firstIndex(where: { "<>".contains($0) }),
      let comparison = Comparison.allCases.first(where: { text[start...].hasPrefix($0.rawValue) })
    else { throw LoadOptionError("“\(text)” is not of the form metric<limit, such as p99<500ms or delivered>99.9%") }
    self.text = text
    self.comparison = comparison
    metric = try Self.metric(String(text[..<start]))
    let limit = String(text[start...].dropFirst(comparison.rawValue.count))
    switch metric {
    case .count: self.limit = try Self.countLimit(limit, in: text)
    case .latency:
      guard let duration = LoadDuration(limit, needsUnit: true) else {
        throw LoadOptionError("“\(text)”: the limit of a latency is a duration with its unit, such as 500ms or 2s")
      }
      self.limit = .duration(duration.nanoseconds.microseconds)
    }
  }

  private static func metric(_ name: String) throws(LoadOptionError) -> Metric {
    if let count = Count(rawValue: name) { return .count(count) }
    let parts = name.split(separator: ".", maxSplits: 1)
    // `p99.9` has a point, too.
    if parts.count == 2, let stage = LoadStage(rawValue: String(parts[0])), let found = statistic(String(parts[1])) {
      return .latency(stage, found)
    }
    if let found = statistic(name) { return .latency(.request, found) }
    throw LoadOptionError(
      "there is no metric \(name). Metrics are \(Count.allCases.map(\.rawValue).joined(separator: ", ")), mean, max and percentiles such as "
        + "p99 or p99.9. The last three may be of a stage, such as settle.p99; stages are "
        + LoadStage.allCases.map(\.rawValue).joined(separator: ", ")
    )
  }

  private static func statistic(_ name: String) -> Statistic? {
    switch name {
    case "mean": return .mean
    case "max": return .max
    default:
      guard name.hasPrefix("p"), let percentile = Double(name.dropFirst()), percentile > 0, percentile <= 100 else {
        return nil
      }
      return .percentile(percentile)
    }
  }

  private static func countLimit(_ limit: String, in text: String) throws(LoadOptionError) -> Limit {
    if limit.hasSuffix("%"), let percent = Double(limit.dropLast()), 0...100 ~= percent { return .share(percent) }
    if let count = Int(limit), count >= 0 { return .count(Double(count)) }
    throw LoadOptionError("“\(text)”: the limit of a count is a whole number, or a percentage from 0% to 100%")
  }

  // MARK: - Measuring

  /// - Parameter histograms: of all deliveries. A stage without any has not been measured, and no condition on it is met.
  func outcome(_ verdict: LoadVerdict, _ histograms: [LoadStage: LatencyHistogram]) -> Outcome {
    switch (metric, limit) {
    case (.latency(let stage, let statistic), .duration(let limit)):
      guard let histogram = histograms[stage], histogram.count > 0 else { return unmeasured }
      let value =
        switch statistic {
        case .percentile(let percentile): histogram.value(at: percentile)
        case .mean: Int64(histogram.summary.mean.rounded())
        case .max: histogram.max
        }
      return Outcome(
        requirement: self, measured: LatencyHistogram.text(value), isMet: comparison.holds(Double(value), Double(limit))
      )
    case (.count(let count), .share(let limit)):
      let base = verdict.base(of: count)
      guard base > 0 else { return unmeasured }
      let number = verdict.number(of: count)
      return Outcome(
        requirement: self, measured: "\(LoadReport.number(100 * Double(number) / Double(base)))%, \(number) of \(base)",
        // Without a division, 999 of 1000 is exactly 99.9 %.
        isMet: comparison.holds(100 * Double(number), limit * Double(base)))
    case (.count(let count), .count(let limit)):
      let number = verdict.number(of: count)
      return Outcome(requirement: self, measured: "\(number)", isMet: comparison.holds(Double(number), limit))
    case (.latency, _), (.count, .duration): preconditionFailure("a limit has the unit of its metric")
    }
  }

  private var unmeasured: Outcome { Outcome(requirement: self, measured: "nothing", isMet: false) }
}

extension LoadVerdict {
  fileprivate func number(of count: LoadRequirement.Count) -> Int {
    switch count {
    case .delivered: delivered
    case .failed: failedUnasked
    case .refused: refused
    case .repeated: repeats
    }
  }

  /// Of which a percentage is one.
  fileprivate func base(of count: LoadRequirement.Count) -> Int {
    count == .refused ? calls : enqueued - failedAsAsked
  }
}
