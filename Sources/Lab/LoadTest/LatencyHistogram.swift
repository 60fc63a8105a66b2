// A histogram of latencies from a microsecond to an hour with three significant digits, whose size does not depend on
// their number.

internal import Console
internal import Foundation
internal import Histogram

/// An HdrHistogram of microseconds.
struct LatencyHistogram: Sendable {
  /// The summary of a distribution.
  struct Summary: Equatable, Sendable {
    var count: Int
    /// Microseconds.
    var mean: Double
    /// The values at `LatencyHistogram.percentiles`, in their order; microseconds.
    var percentiles: [Int64]
    /// Microseconds.
    var max: Int64
  }

  static let percentiles = [50.0, 90, 99, 99.9]
  private static let hour: UInt64 = 3_600_000_000

  private var histogram = Histogram<UInt32>(
    highestTrackableValue: hour, numberOfSignificantValueDigits: .three)
  /// Microseconds, exact.
  private(set) var max: Int64 = 0

  /// A negative latency, whose start was noted too late, counts as zero; one above an hour counts as an hour.
  mutating func record(_ microseconds: Int64) {
    histogram.record(min(UInt64(clamping: microseconds), Self.hour))
    if microseconds > max { max = microseconds }
  }

  var count: Int { Int(histogram.totalCount) }

  /// Microseconds; 0 without any.
  func value(at percentile: Double) -> Int64 { min(Int64(clamping: histogram.valueAtPercentile(percentile)), max) }

  var summary: Summary {
    Summary(
      count: count, mean: count == 0 ? 0 : histogram.mean, percentiles: Self.percentiles.map { value(at: $0) },
      max: max)
  }

  /// Percentiles ever closer to 100, for a curve that shows the tail, and the value at each.
  var curve: [(percentile: Double, microseconds: Int64)] {
    guard count > 0 else { return [] }
    var points: [(percentile: Double, microseconds: Int64)] = [(0, value(at: 0))]
    var tail = 1.0
    while tail * Double(count) >= 1 {
      for step in 0..<8 {
        let percentile = 100 * (1 - tail * pow(10, -Double(step) / 8))
        if percentile > points[points.count - 1].percentile { points.append((percentile, value(at: percentile))) }
      }
      tail /= 10
    }
    return points
  }

  /// `0.42 ms`, `12.3 ms`, `4.2 s`, `1 m 5 s`.
  static func text(_ microseconds: Int64) -> String {
    switch microseconds {
    case ..<9_995: String(format: "%.2f ms", Double(microseconds) / 1_000)
    case ..<999_950: String(format: "%.1f ms", Double(microseconds) / 1_000)
    default: HumanDuration.text(seconds: Double(microseconds) / 1e6)
    }
  }
}
