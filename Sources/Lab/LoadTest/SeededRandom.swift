// Random numbers that a run can have again: the same seed, the same load.

/// SplitMix64 (Steele, Lea, Flood: “Fast splittable pseudorandom number generators”, 2014): small, fast, and good enough
/// to choose arrivals, providers and faults.
struct SeededRandom: RandomNumberGenerator {
  private static let increment: UInt64 = 0x9E37_79B9_7F4A_7C15
  private var state: UInt64

  /// - Parameter stream: numbers of different streams of one seed have nothing to do with each other.
  init(seed: UInt64, stream: UInt64 = 0) {
    // Both are mixed: neighbouring states give the same numbers one step apart.
    state = stream
    let offset = next()
    state = seed
    state = next() &+ offset
  }

  mutating func next() -> UInt64 {
    state &+= Self.increment
    var mixed = state
    mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
    mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
    return mixed ^ (mixed >> 31)
  }

  /// Uniform in 0..<1.
  mutating func unit() -> Double { Double(next() >> 11) * 0x1p-53 }
}
