// A histogram with fixed bounds. It is a plain value: the counter owns it, and readers get a copy.

public import Runtime

/// Counts of observations, by bucket.
public struct Histogram: Sendable, Equatable {
  /// The upper bounds of the buckets in ascending order. One more bucket lies above the last bound.
  public struct Bounds: Sendable, Equatable {
    /// The bounds, in units of `scale`.
    public let limits: [Int64]
    /// One unit: 1e-9 if nanoseconds are observed and seconds are shown.
    public let scale: Double

    public init(limits: [Int64], scale: Double) {
      self.limits = limits
      self.scale = scale
    }

    /// Latencies of calls, from a millisecond to a minute.
    public static let latency = Bounds(
      limits: [
        1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
        10_000_000, 30_000_000, 60_000_000,
      ].map { $0 * 1_000 }, scale: 1e-9)

    /// Sizes of batches.
    public static let batch = Bounds(limits: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000], scale: 1)
  }

  public let bounds: Bounds
  /// Number of observations by bucket, not cumulative. There is one bucket more than there are limits.
  public private(set) var counts: [Int]
  /// The sum of all observations, in units of the bounds.
  public private(set) var total: Int64 = 0

  public init(_ bounds: Bounds) {
    self.bounds = bounds
    counts = [Int](repeating: 0, count: bounds.limits.count + 1)
  }

  /// Number of observations.
  public var count: Int { counts.reduce(0, +) }

  /// Counts one observation, in units of the bounds. A negative value, which two clocks can yield, counts as zero.
  public mutating func observe(_ value: Int64) {
    let value = max(0, value)
    var bucket = 0
    while bucket < bounds.limits.count, value > bounds.limits[bucket] { bucket += 1 }
    counts[bucket] += 1
    total &+= value
  }

  public mutating func observe(_ duration: Nanoseconds) { observe(duration.count) }

  /// Adds the observations of another histogram with the same bounds.
  public mutating func add(_ other: Histogram) {
    precondition(bounds == other.bounds, "only histograms with the same bounds can be added")
    for bucket in counts.indices { counts[bucket] += other.counts[bucket] }
    total &+= other.total
  }
}
