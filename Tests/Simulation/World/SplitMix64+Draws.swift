// The only source of randomness in a simulation: everything is a function of the seed.

import Runtime

extension SplitMix64 {
  /// True with this probability, from 0 to 1.
  mutating func chance(_ probability: Double) -> Bool {
    probability > 0 && Double(next() >> 11) / Double(1 << 53) < probability
  }

  mutating func pick<Element>(_ elements: [Element]) -> Element? {
    elements.isEmpty ? nil : elements[Int(next() % UInt64(elements.count))]
  }

  mutating func count(_ range: ClosedRange<Int>) -> Int {
    range.lowerBound + Int(next() % UInt64(range.upperBound - range.lowerBound + 1))
  }

  /// A length of time, in milliseconds.
  mutating func time(_ milliseconds: ClosedRange<Int64>) -> VirtualTime {
    let span = UInt64(milliseconds.upperBound - milliseconds.lowerBound) * 1_000_000 + 1
    return milliseconds.lowerBound * 1_000_000 + VirtualTime(next() % span)
  }

  /// Usually about `typical`, and in one of twenty cases up to `longest`.
  mutating func latency(_ typical: ClosedRange<Int64>, longest: Int64) -> VirtualTime {
    chance(0.05) ? time(typical.upperBound...max(longest, typical.upperBound)) : time(typical)
  }
}
