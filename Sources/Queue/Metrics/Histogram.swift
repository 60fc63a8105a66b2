// How often a quantity fell between fixed bounds. A plain value: whoever counts owns it, whoever reads it gets a copy.

public import Runtime

/// Counts of observations, by bucket.
public struct Histogram: Sendable, Equatable {
  /// The upper bounds of the buckets, rising, in the unit of what is observed; above the last comes one more bucket.
  public struct Bounds: Sendable, Equatable {
    /// In whole units of `scale`.
    public let limits: [Int64]
    /// What a unit is: 1e-9 where nanoseconds are observed and seconds are shown.
    public let scale: Double

    public init(limits: [Int64], scale: Double) {
      self.limits = limits
      self.scale = scale
    }

    /// From a millisecond to a minute, as a call sees them.
    public static let latency = Bounds(
      limits: [
        1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
        10_000_000, 30_000_000, 60_000_000,
      ].map { $0 * 1_000 }, scale: 1e-9)

    /// Sizes of batches.
    public static let batch = Bounds(limits: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000], scale: 1)
  }

  public let bounds: Bounds
  /// By bucket, not added up; one more than there are limits.
  public private(set) var counts: [Int]
  /// Of everything observed, in the unit of the bounds.
  public private(set) var total: Int64 = 0

  public init(_ bounds: Bounds) {
    self.bounds = bounds
    counts = [Int](repeating: 0, count: bounds.limits.count + 1)
  }

  /// How many observations there were.
  public var count: Int { counts.reduce(0, +) }

  /// Counts one observation, in the unit of the bounds; a negative one (two clocks) is zero.
  public mutating func observe(_ value: Int64) {
    let value = max(0, value)
    var bucket = 0
    while bucket < bounds.limits.count, value > bounds.limits[bucket] { bucket += 1 }
    counts[bucket] += 1
    total &+= value
  }

  public mutating func observe(_ duration: Nanoseconds) { observe(duration.count) }
}
