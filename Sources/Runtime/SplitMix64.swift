// Reproducible random numbers: the same seed gives the same numbers.

/// SplitMix64 (Steele, Lea, Flood: “Fast splittable pseudorandom number generators”, 2014), for jitter, simulations and
/// load. It must not be used for secrets.
public struct SplitMix64: RandomNumberGenerator, Sendable {
  private var state: UInt64

  public init(seed: UInt64) {
    state = seed
  }

  /// - Parameter stream: numbers of different streams of one seed are independent.
  public init(seed: UInt64, stream: UInt64) {
    // Both are mixed: neighbouring states give the same numbers one step apart.
    self.init(seed: stream)
    let offset = next()
    state = seed
    state = next() &+ offset
  }

  public mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }

  /// A number in 0..<1.
  public mutating func nextFraction() -> Double { Double(next() >> 11) * 0x1p-53 }
}
